package estate

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/catalog"
	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
	"castellan/internal/lab"
)

// labView asks a lab, without a network.
type labView struct {
	*lab.Lab
	c      *catalog.Catalog
	token  string
	scoped bool
	clock  time.Time
	user   string
	hide   func(op string) bool

	mu    sync.Mutex
	asked []string
	busy  map[string]int // reads under way, by node
	most  map[string]int
	wait  func(path string)
}

func newLab(t testing.TB, site string) *labView {
	t.Helper()
	l, err := lab.New(lab.Config{Site: site})
	if err != nil {
		t.Fatal(err)
	}
	c, err := catalog.New(catalog.Config{Facts: facts.Open()})
	if err != nil {
		t.Fatal(err)
	}
	return &labView{Lab: l, c: c, token: "admin", clock: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), user: "root@pam!admin", busy: map[string]int{}, most: map[string]int{}}
}

func (v *labView) Read(ctx context.Context, _ string, r gate.Read) (gate.Answer, error) {
	if err := ctx.Err(); err != nil {
		return gate.Answer{}, err
	}
	op, ok := v.c.Lookup("pve", r.Operation)
	if !ok {
		return gate.Answer{}, gate.Fail(gate.ErrInvalid, "", "read %s: no such operation", r.Operation)
	}
	args, q, path := map[string]any{}, url.Values{}, strings.TrimPrefix(r.Operation, "GET ")
	for k, text := range r.Params {
		args[k] = text
		if strings.Contains(path, "{"+k+"}") {
			path = strings.ReplaceAll(path, "{"+k+"}", url.PathEscape(text))
		} else {
			q.Set(k, text)
		}
	}
	if _, problems := v.c.Check(op, args); len(problems) > 0 {
		return gate.Answer{}, problems[0]
	}
	node := r.Params["node"]
	v.mu.Lock()
	v.asked = append(v.asked, path)
	v.busy[node]++
	v.busy["*"]++
	for _, k := range []string{node, "*"} {
		v.most[k] = max(v.most[k], v.busy[k])
	}
	wait := v.wait
	v.mu.Unlock()
	if wait != nil {
		wait(path)
	}
	defer func() {
		v.mu.Lock()
		v.busy[node]--
		v.busy["*"]--
		v.mu.Unlock()
	}()
	if v.hide != nil && v.hide(path) {
		return gate.Answer{}, &gate.UpstreamError{Kind: gate.ErrDenied, Status: 403, Message: "Permission check failed"}
	}
	status, reason, body := v.Do(ctx, "GET", "/api2/json"+path+"?"+q.Encode(), http.Header{"Authorization": {v.Tokens()[v.token]}}, nil)
	if status != 200 {
		return gate.Answer{}, &gate.UpstreamError{Kind: gate.ErrUnavailable, Status: status, Message: reason}
	}
	var envelope struct{ Data json.RawMessage }
	if err := json.Unmarshal(body, &envelope); err != nil {
		return gate.Answer{}, err
	}
	return gate.Answer{Data: envelope.Data}, nil
}

func (v *labView) Plan(context.Context, string, json.RawMessage) (*gate.Draft, error) {
	return nil, gate.Fail(gate.ErrNotFound, "", "none")
}
func (v *labView) Query(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	return nil, gate.Fail(gate.ErrNotFound, "", "none")
}
func (v *labView) Run(context.Context, string, string, map[string]any) (gate.RunResult, error) {
	return gate.RunResult{}, gate.Fail(gate.ErrDenied, "", "no lane is configured")
}
func (v *labView) Sees(context.Context, string, gate.ObjectFacts) bool { return true }
func (v *labView) Scoped() bool                                        { return v.scoped }
func (v *labView) Target(string) (gate.TargetInfo, error) {
	return gate.TargetInfo{Name: "lab", Product: "pve", Site: "lab", User: v.user, Version: "9.2.11"}, nil
}
func (v *labView) Targets() []gate.TargetInfo { t, _ := v.Target(""); return []gate.TargetInfo{t} }
func (v *labView) Principal() gate.Principal  { return gate.Principal{Agent: "test"} }
func (v *labView) Now() time.Time             { return v.clock }

// count says how often something was asked since the last time.
func (v *labView) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := len(v.asked)
	v.asked = nil
	return n
}

func (v *labView) askedFor(part string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for _, a := range v.asked {
		if strings.Contains(a, part) {
			n++
		}
	}
	return n
}

// change sends a write to the lab.
func (v *labView) change(t testing.TB, method, path string, form url.Values) {
	t.Helper()
	h := http.Header{"Authorization": {v.Tokens()["admin"]}}
	var body []byte
	if method != "DELETE" {
		h.Set("Content-Type", "application/x-www-form-urlencoded")
		body = []byte(form.Encode())
	} else if len(form) > 0 {
		path += "?" + form.Encode()
	}
	if status, reason, _ := v.Do(t.Context(), method, "/api2/json"+path, h, body); status != 200 {
		t.Fatalf("%s %s: %d %s", method, path, status, reason)
	}
}

func survey(t testing.TB, e *Estate, v gate.View, age time.Duration) *Survey {
	t.Helper()
	s, err := e.Survey(t.Context(), v, "lab", age)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lines writes a graph's edges, one a line, for comparing.
func lines(g *Graph, kinds ...EdgeKind) []string {
	var out []string
	for _, v := range g.Vertices() {
		for _, e := range g.Needs(v.Object, kinds...) {
			line := fmt.Sprintf("%s %s %s", e.From, e.Kind, e.To)
			if e.Key != "" {
				line += " " + e.Key
			}
			if e.Unknown {
				line += " ?"
			}
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

func all() []Part { return append(ResourceParts(), ConfigParts()...) }
