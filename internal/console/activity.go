package console

import (
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"castellan/internal/gate"
)

type activityPage struct {
	Since, Until, Operation, Actor, Target, Status, Effect, Text string
	Records                                                      []recordLine
	Next                                                         string
	Notice                                                       string
	Problem                                                      string
}

type recordLine struct {
	Record
	When string
}

// activity searches the ledger.
func (c *Console) activity(v *visit) {
	if c.c.Audit == nil {
		c.refuse(v, http.StatusNotFound, "The ledger is not read here", "castellan audit shows it on the machine.")
		return
	}
	in := v.r.URL.Query()
	get := func(name string) string { return clipRunes(strings.TrimSpace(in.Get(name)), 200) }
	body := activityPage{Since: get("since"), Until: get("until"), Operation: get("operation"), Actor: get("actor"), Target: get("target"), Status: get("status"),
		Effect: get("effect"), Text: get("text")}
	q := Query{Operation: body.Operation, Actor: body.Actor, Target: body.Target, Status: body.Status, Effect: body.Effect, Text: body.Text, Limit: 50, Cursor: get("cursor")}
	var err error
	if q.Since, err = day(body.Since, false); err == nil {
		q.Until, err = day(body.Until, true)
	}
	status := http.StatusOK
	if err != nil {
		status, body.Problem = http.StatusBadRequest, gate.AsError(err).Message
	} else if page, err := c.c.Audit.Search(v.ctx, v.who, q); err != nil {
		e := gate.AsError(err)
		status, body.Problem = http.StatusBadRequest, e.Message
		if e.Kind != gate.ErrInvalid {
			status = http.StatusServiceUnavailable
		}
	} else {
		body.Notice = page.Notice
		for _, r := range page.Records {
			body.Records = append(body.Records, recordLine{r, atText(r.At)})
		}
		if page.Cursor != "" {
			next := url.Values{}
			for name, values := range in {
				if name != "cursor" && len(values) > 0 && values[0] != "" {
					next.Set(name, values[0])
				}
			}
			next.Set("cursor", page.Cursor)
			body.Next = "/activity?" + next.Encode()
		}
	}
	c.draw(v, status, "activity", sheet{Title: "Activity", At: "/activity", Body: body})
}

// day reads a date; the end of it for an upper bound.
func day(text string, end bool) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return t, gate.Fail(gate.ErrInvalid, "Give it as 2026-01-31.", "the date %q cannot be read; give it as 2026-01-31", clipRunes(text, 40))
	}
	if end {
		t = t.Add(24*time.Hour - time.Nanosecond)
	}
	return t, nil
}

func atText(at string) string {
	if t, err := time.Parse(time.RFC3339Nano, at); err == nil {
		return when(t)
	}
	return at
}

type recordPage struct {
	recordLine
	Said  []part
	Marks []markShown
}

type part struct {
	Name  string
	Lines []template.HTML
}

type markShown struct{ Name, Value string }

// record shows one record whole, its texts fenced.
func (c *Console) record(v *visit) {
	index, err := strconv.ParseInt(v.r.PathValue("index"), 10, 64)
	tree := v.r.PathValue("tree")
	if c.c.Audit == nil || err != nil || index < 0 || tree != "write" && tree != "read" {
		c.refuse(v, http.StatusNotFound, "There is no such record", "Search under Activity.")
		return
	}
	r, err := c.c.Audit.Record(v.ctx, v.who, tree, index)
	if err != nil {
		c.failAt(v, err, "/activity")
		return
	}
	body := recordPage{recordLine: recordLine{*r, atText(r.At)}}
	for name, text := range r.Parts {
		body.Said = append(body.Said, part{name, said(text)})
	}
	slices.SortFunc(body.Said, func(a, b part) int { return strings.Compare(a.Name, b.Name) })
	for name, text := range r.Marks {
		body.Marks = append(body.Marks, markShown{name, text})
	}
	slices.SortFunc(body.Marks, func(a, b markShown) int { return strings.Compare(a.Name, b.Name) })
	c.draw(v, http.StatusOK, "record", sheet{Title: "Record " + strconv.FormatInt(index, 10), At: "/activity", Body: body})
}
