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

// recordLine is one record of the ledger, as audit_search gives it.
type recordLine struct {
	Tree      string            `json:"tree"`
	Index     int64             `json:"index"`
	At        string            `json:"at"`
	Kind      string            `json:"kind"`
	Operation string            `json:"operation"`
	Actor     string            `json:"actor"`
	Client    string            `json:"client"`
	Target    string            `json:"target"`
	Status    string            `json:"status"`
	Effect    string            `json:"effect"`
	Plan      string            `json:"plan"`
	UPID      string            `json:"upid"`
	Marks     map[string]string `json:"marks"`
	Parts     map[string]string `json:"parts"`
	Withheld  []string          `json:"withheld"`
	When      string            `json:"-"`
	Link      string            `json:"-"`
}

type foundRecords struct {
	Records []recordLine `json:"records"`
	Cursor  string       `json:"cursor"`
	Notice  string       `json:"notice"`
}

// search asks the ledger as any caller does: policy says whose records this person sees.
func (c *Console) search(v *visit, args map[string]any) (foundRecords, error) {
	var out foundRecords
	if err := c.read(v, "audit_search", args, &out); err != nil {
		return out, err
	}
	for i := range out.Records {
		r := &out.Records[i]
		r.When = r.At
		if t, err := time.Parse(time.RFC3339Nano, r.At); err == nil {
			r.When = when(t)
		}
		r.Link = "/activity/" + url.PathEscape(r.Tree) + "/" + strconv.FormatInt(r.Index, 10) + "?at=" + url.QueryEscape(r.At)
	}
	return out, nil
}

func (c *Console) activity(v *visit) {
	in := v.r.URL.Query()
	get := func(name string) string { return clipRunes(strings.TrimSpace(in.Get(name)), 200) }
	body := activityPage{Since: get("since"), Until: get("until"), Operation: get("operation"), Actor: get("actor"), Target: get("target"), Status: get("status"),
		Effect: get("effect"), Text: get("text")}
	args := map[string]any{"limit": 50}
	for name, text := range map[string]string{"operation": body.Operation, "actor": body.Actor, "object": body.Target, "status": body.Status, "effect": body.Effect, "text": body.Text, "cursor": get("cursor")} {
		if text != "" {
			args[name] = text
		}
	}
	err := days(args, body.Since, body.Until)
	var found foundRecords
	if err == nil {
		found, err = c.search(v, args)
	}
	status := http.StatusOK
	if err != nil {
		e := gate.AsError(err)
		body.Problem = strings.TrimSpace(e.Message + ". " + e.Hint)
		switch e.Kind {
		case gate.ErrInvalid:
			status = http.StatusBadRequest
		case gate.ErrDenied:
			status = http.StatusForbidden
		default:
			status = http.StatusServiceUnavailable
		}
	}
	body.Records, body.Notice = found.Records, found.Notice
	if found.Cursor != "" {
		next := url.Values{}
		for name, values := range in {
			if name != "cursor" && len(values) > 0 && values[0] != "" {
				next.Set(name, values[0])
			}
		}
		next.Set("cursor", found.Cursor)
		body.Next = "/activity?" + next.Encode()
	}
	c.draw(v, status, "activity", sheet{Title: "Activity", At: "/activity", Body: body})
}

// days reads the bounds: whole days, the last one with it.
func days(args map[string]any, since, until string) error {
	for name, text := range map[string]string{"since": since, "until": until} {
		if text == "" {
			continue
		}
		t, err := time.Parse(time.DateOnly, text)
		if err != nil {
			return gate.Fail(gate.ErrInvalid, "Give it as 2026-01-31.", "the date %q cannot be read", clipRunes(text, 40))
		}
		if name == "until" {
			t = t.Add(24 * time.Hour)
		}
		args[name] = t.Format(time.RFC3339)
	}
	return nil
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

// record shows one record whole, its texts fenced. The time in its address finds it among the others.
func (c *Console) record(v *visit) {
	index, err := strconv.ParseInt(v.r.PathValue("index"), 10, 64)
	at, bad := time.Parse(time.RFC3339Nano, v.r.URL.Query().Get("at"))
	if err != nil || bad != nil {
		c.refuse(v, http.StatusNotFound, "There is no such record", "Search under Activity, and open it from there.")
		return
	}
	args := map[string]any{"since": at.Add(-time.Second).UTC().Format(time.RFC3339), "until": at.Add(2 * time.Second).UTC().Format(time.RFC3339), "limit": 20, "payloads": true}
	for range 10 {
		found, err := c.search(v, args)
		if err != nil {
			c.failAt(v, err, "/activity")
			return
		}
		if i := slices.IndexFunc(found.Records, func(r recordLine) bool { return r.Tree == v.r.PathValue("tree") && r.Index == index }); i >= 0 {
			c.drawRecord(v, found.Records[i])
			return
		}
		if found.Cursor == "" {
			break
		}
		args["cursor"] = found.Cursor
	}
	c.refuse(v, http.StatusNotFound, "There is no such record", "It is not among those of that time that you may see. Search under Activity, and open it from there.")
}

func (c *Console) drawRecord(v *visit, r recordLine) {
	body := recordPage{recordLine: r}
	for name, text := range r.Parts {
		body.Said = append(body.Said, part{name, said(text)})
	}
	slices.SortFunc(body.Said, func(a, b part) int { return strings.Compare(a.Name, b.Name) })
	for name, text := range r.Marks {
		body.Marks = append(body.Marks, markShown{name, text})
	}
	slices.SortFunc(body.Marks, func(a, b markShown) int { return strings.Compare(a.Name, b.Name) })
	c.draw(v, http.StatusOK, "record", sheet{Title: "Record " + strconv.FormatInt(r.Index, 10), At: "/activity", Body: body})
}
