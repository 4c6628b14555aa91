package ledger

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Query selects records. Every field that is set must match; there is no query
// language, so nothing in a field has a meaning other than itself.
type Query struct {
	Tree  Tree      // "" for both
	Since time.Time // at or after
	Until time.Time // before

	// Exact, whole values.
	Kind, Op, Actor, Client, Status, Effect, Plan string
	// Target matches when it occurs anywhere in the record's target.
	Target string
	// Text is searched literally, without regard to case, in all fields, data
	// and parts that are still there.
	Text string

	Limit  int    // 0: DefaultLimit; at most MaxLimit
	Cursor string // Page.Next of the page before

	// MaxScan and MaxTime bound the work of one page; 0: 200,000 records, 2 s.
	MaxScan int
	MaxTime time.Duration
}

// Limits of a page.
const (
	DefaultLimit = 50
	MaxLimit     = 500
	maxText      = 1 << 10
)

// check completes the query with defaults and refuses what cannot be meant.
func (q *Query) check() error {
	if q.Tree != "" && !q.Tree.valid() {
		return fmt.Errorf("search: no tree %q, there are write and read", q.Tree)
	}
	if q.Limit < 0 || q.Limit > MaxLimit {
		return fmt.Errorf("search: limit %d is not between 1 and %d", q.Limit, MaxLimit)
	}
	if q.Limit == 0 {
		q.Limit = DefaultLimit
	}
	if len(q.Text) > maxText {
		return fmt.Errorf("search: text has %d bytes, at most %d are possible", len(q.Text), maxText)
	}
	if !q.Since.IsZero() && !q.Until.IsZero() && !q.Since.Before(q.Until) {
		return errors.New("search: since is not before until")
	}
	if q.MaxScan <= 0 {
		q.MaxScan = 200_000
	}
	if q.MaxTime <= 0 {
		q.MaxTime = 2 * time.Second
	}
	return nil
}

// Window returns the bounds of Columns.TS as text: since ≤ TS < until, "" where
// open. It is what a store compares its column with.
func (q Query) Window() (since, until string) {
	if !q.Since.IsZero() {
		since = ceilMicro(q.Since).Format(TimeLayout)
	}
	if !q.Until.IsZero() {
		until = ceilMicro(q.Until).Format(TimeLayout)
	}
	return since, until
}

// ceilMicro rounds up, since a bound between two microseconds lets in only the
// later one.
func ceilMicro(t time.Time) time.Time {
	t = t.UTC()
	if r := t.Truncate(time.Microsecond); !r.Equal(t) {
		return r.Add(time.Microsecond)
	}
	return t
}

// MatchColumns reports whether the columns match all of q but its text.
func (q Query) MatchColumns(c Columns) bool {
	same := func(want, have string) bool { return want == "" || want == have }
	since, until := q.Window()
	return c.TS >= since && (until == "" || c.TS < until) &&
		same(q.Kind, c.Kind) && same(q.Op, c.Op) && same(q.Actor, c.Actor) && same(q.Client, c.Client) &&
		same(q.Status, c.Status) && same(q.Effect, c.Effect) && same(q.Plan, c.Plan) &&
		(q.Target == "" || strings.Contains(c.Target, q.Target))
}

// matcher of literal text; nil matches everything.
type matcher struct{ plain, escaped string }

func newMatcher(text string) *matcher {
	if text == "" {
		return nil
	}
	m := &matcher{plain: strings.ToLower(strings.ToValidUTF8(text, "\uFFFD"))}
	// In Data the text stands as JSON writes it.
	b, _ := appendString(nil, m.plain)
	m.escaped = string(b[1 : len(b)-1])
	return m
}

func (m *matcher) match(h *Header, parts []Part) bool {
	if m == nil {
		return true
	}
	for _, f := range h.Columns.fields() {
		if strings.Contains(strings.ToLower(*f.v), m.plain) {
			return true
		}
	}
	if len(h.Data) > 0 && strings.Contains(strings.ToLower(string(h.Data)), m.escaped) {
		return true
	}
	for _, p := range parts {
		if strings.Contains(strings.ToLower(string(p.Body)), m.plain) {
			return true
		}
	}
	return false
}

// ParseWhen reads a point in time as people give it: an age (90s, 15m, 2h, 7d,
// 3w), RFC 3339, a date with or without a time (UTC), or a Unix time in seconds
// or milliseconds. "" is the zero time.
func ParseWhen(s string, now time.Time) (time.Time, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return time.Time{}, nil
	}
	if len(s) <= 40 {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			switch {
			case n >= 1e12 && n < 1e14:
				return time.UnixMilli(n).UTC(), nil
			case n >= 1e9 && n < 1e11:
				return time.Unix(n, 0).UTC(), nil
			}
		} else if d, ok := age(s); ok {
			return now.Add(-d).UTC(), nil
		}
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
			if t, err := time.Parse(layout, s); err == nil {
				return t.UTC(), nil
			}
		}
	}
	return time.Time{}, fmt.Errorf("parse time %q: give an age such as 15m, 2h, 7d or 3w, a time such as 2026-01-31T08:00:00Z or 2026-01-31, or a Unix time", clip(s))
}

func age(s string) (time.Duration, bool) {
	unit := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}[s[len(s)-1]]
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 32)
	if unit == 0 || err != nil || time.Duration(n) > 100*365*24*time.Hour/unit {
		return 0, false
	}
	return time.Duration(n) * unit, true
}

// cursor says where to go on in each tree: only records below.
type cursor map[Tree]int64

func (c cursor) String() string {
	return "w" + strconv.FormatInt(c[Write], 10) + "r" + strconv.FormatInt(c[Read], 10)
}

func parseCursor(s string) (cursor, error) {
	rest, ok := strings.CutPrefix(s, "w")
	w, r, ok2 := strings.Cut(rest, "r")
	nw, err1 := strconv.ParseInt(w, 10, 64)
	nr, err2 := strconv.ParseInt(r, 10, 64)
	c := cursor{Write: nw, Read: nr}
	if !ok || !ok2 || err1 != nil || err2 != nil || nw < 0 || nr < 0 || c.String() != s {
		return nil, fmt.Errorf("search: %q is not a cursor; give one exactly as a page returned it, with the same filters", clip(s))
	}
	return c, nil
}
