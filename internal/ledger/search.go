package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Found is a record that matched.
type Found struct {
	Header
	Raw   json.RawMessage // the canonical header
	Parts []Part          // those still there; the header names all
}

// Page is a part of an answer, newest first.
type Page struct {
	Records []Found
	// Next is the cursor of the following page, "" at the end.
	Next string
	// Notice says in words that and why the page is not the whole answer.
	Notice string
	// Scanned is how many records were looked at.
	Scanned int
}

// stream hands out the records of one tree, newest first.
type stream struct {
	tree  Tree
	below int64
	buf   []Record
	done  bool
}

func (s *stream) fill(ctx context.Context, rows Finder, q Query, chunk int) error {
	if len(s.buf) > 0 || s.done {
		return nil
	}
	buf, err := rows.Select(ctx, s.tree, q, s.below, chunk)
	if err != nil {
		return fmt.Errorf("search %s tree: %w", s.tree, err)
	}
	s.buf, s.done = buf, len(buf) == 0
	return nil
}

// Search answers q, newest first over both trees, in bounded time: when the
// bound on records or time is met, the page says so and carries a cursor.
func Search(ctx context.Context, rows Finder, q Query) (Page, error) {
	if err := q.check(); err != nil {
		return Page{}, err
	}
	from := cursor{}
	if q.Cursor != "" {
		c, err := parseCursor(q.Cursor)
		if err != nil {
			return Page{}, err
		}
		from = c
	}
	var streams []*stream
	for _, t := range Trees() {
		if q.Tree != "" && q.Tree != t {
			continue
		}
		head, err := rows.Head(ctx, t)
		if err != nil {
			return Page{}, fmt.Errorf("search %s tree: %w", t, err)
		}
		s := &stream{tree: t, below: head.Size}
		if q.Cursor != "" {
			s.below = min(from[t], head.Size)
		}
		streams = append(streams, s)
	}
	page := Page{Records: []Found{}}
	m := newMatcher(q.Text)
	// Without text every selected record is a hit, so no more than a page is
	// read; with text the reads grow to spare round trips.
	chunk := q.Limit + 1
	if m != nil {
		chunk = max(chunk, 256)
	}
	stop := time.Now().Add(q.MaxTime)
	for {
		var newest *stream
		for _, s := range streams {
			if err := s.fill(ctx, rows, q, chunk); err != nil {
				return Page{}, err
			}
			if !s.done && (newest == nil || s.buf[0].TS > newest.buf[0].TS) {
				newest = s
			}
		}
		if newest == nil {
			return page, nil
		}
		switch {
		case len(page.Records) == q.Limit:
			page.Notice = fmt.Sprintf("capped at %d records; there are older ones: go on with the cursor or narrow the filters", q.Limit)
		case page.Scanned >= q.MaxScan || page.Scanned > 0 && time.Now().After(stop):
			page.Notice = fmt.Sprintf("stopped after looking at %d records; older ones were not searched: go on with the cursor or narrow the time window", page.Scanned)
		}
		if page.Notice != "" {
			next := cursor{}
			for _, s := range streams {
				next[s.tree] = s.below
			}
			page.Next = next.String()
			return page, nil
		}
		r := newest.buf[0]
		newest.buf, newest.below = newest.buf[1:], r.Index
		page.Scanned++
		h, err := ParseHeader(r.Header)
		// What counts is the signed header. A record whose header or columns
		// were altered is Verify's to report; here it is not a hit.
		if err != nil || !q.MatchColumns(h.Columns) || !m.match(&h, r.Parts) {
			continue
		}
		page.Records = append(page.Records, Found{Header: h, Raw: json.RawMessage(r.Header), Parts: r.Parts})
	}
}
