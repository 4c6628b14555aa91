package health

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"castellan/internal/gate"
	"castellan/internal/ops/opstest"
)

// hiding answers one read with an error, or without an end.
type hiding struct {
	*opstest.View
	path string
	err  error
	data string // in place of err
}

func (h hiding) Read(ctx context.Context, target string, r gate.Read) (gate.Answer, error) {
	if r.Operation != "GET /cluster/resources" && asked(r) == h.path {
		if h.data != "" {
			return gate.Answer{Data: json.RawMessage(h.data)}, nil
		}
		return gate.Answer{}, h.err
	}
	return h.View.Read(ctx, target, r)
}

// asked writes a read as the view's log does.
func asked(r gate.Read) string {
	path, query := r.Operation, []string{}
	keys := make([]string, 0, len(r.Params))
	for k := range r.Params {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if strings.Contains(path, "{"+k+"}") {
			path = strings.ReplaceAll(path, "{"+k+"}", r.Params[k])
		} else {
			query = append(query, k+"="+r.Params[k])
		}
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	return path
}

// worst is the worst that a look leaves possible.
func (l look) worst() int {
	w := max(Level(l.verdict.Word).rank(), l.verdict.CouldBe.rank(), 0)
	return w
}

// TestHidingAReadIsNeverBetter: whichever read of whichever site fails, it is told as unread and nothing looks better.
func TestHidingAReadIsNeverBetter(t *testing.T) {
	if testing.Short() {
		t.Skip("many sites times many reads")
	}
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	denied := &gate.UpstreamError{Kind: gate.ErrDenied, Status: 403, Message: "Permission check failed (/nodes/pve1, Sys.Audit)"}
	down := &gate.UpstreamError{Kind: gate.ErrUnavailable, Status: 595, Message: "No route to host"}
	hidden := 0
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range a.Files {
			if f.Name == "want" {
				continue
			}
			call, _, _ := strings.Cut(f.Name, " = ")
			v := siteOf(t, string(f.Data))
			before := examine(t.Context(), t, v, call)
			paths := v.Asked()
			slices.Sort(paths)
			for i, path := range slices.Compact(paths) {
				bare, _, _ := strings.Cut(path, "?")
				ill := strings.Contains(string(f.Data), bare+" ") || strings.Contains(string(f.Data), bare+"?")
				if path == "GET /cluster/resources" || !ill && (hidden+i)%9 != 0 { // all that tell of the illness, and some of the rest
					continue
				}
				hidden++
				h := hiding{View: v, path: path, err: []error{denied, down, context.DeadlineExceeded}[i%3]}
				after := examine(t.Context(), t, h, call)
				if after.worst() < before.worst() {
					t.Errorf("%s: without %s it looks better:\n%s\nbefore:\n%s", f.Name, path, after, before)
				}
				if len(after.unread) < 1 || path != "GET /access/permissions" && len(after.unread) < len(before.unread) {
					t.Errorf("%s: without %s nothing is told as unread:\n%s", f.Name, path, after)
				}
			}
		}
	}
	if hidden < 200 {
		t.Errorf("only %d reads were hidden", hidden)
	}
}

// TestHealthyNeedsAllThatMatters: a site that is healthy is not called so when a read that may hide something bad fails.
func TestHealthyNeedsAllThatMatters(t *testing.T) {
	for _, call := range []string{"guest 105", "guest 101", "node pve1", "site"} {
		v := siteOf(t, "")
		if got := examine(t.Context(), t, v, call); got.verdict.Word != string(Healthy) || got.verdict.CouldBe != "" {
			t.Fatalf("%s: %s", call, got)
		}
		paths := v.Asked()
		slices.Sort(paths)
		for _, path := range slices.Compact(paths) {
			if path == "GET /cluster/resources" {
				continue
			}
			got := examine(t.Context(), t, hiding{View: v, path: path, err: errors.New("gone")}, call)
			if got.verdict.Word == string(Healthy) && got.verdict.CouldBe != Info {
				t.Errorf("%s without %s: %s", call, path, got)
			}
		}
	}
}

// TestOddAnswers: no form of an answer breaks a look, or reads as health that was not seen.
func TestOddAnswers(t *testing.T) {
	for _, call := range []string{"guest 105", "guest 101", "node pve1", "site"} {
		v := siteOf(t, "")
		examine(t.Context(), t, v, call)
		paths := v.Asked()
		slices.Sort(paths)
		for i, path := range slices.Compact(paths) {
			forms := []string{`null`, `[]`, `{}`, `"x"`, `17`, `[null]`, `[[]]`, `[{"name":null,"time":"x","health":7,"used":"1e400","cpu":"NaN","upid":{},"vmid":[],"type":3}]`, `{"data":{"cpu":[]},"memory":5,"loadavg":null,"health":[]}`}
			for j, data := range forms {
				if path == "GET /cluster/resources" || (i+j)%3 != 0 {
					continue
				}
				got := examine(t.Context(), t, hiding{View: v, path: path, data: data}, call)
				if (data == `"x"` || data == `17` || data == `[[]]`) && len(got.unread) == 0 {
					t.Errorf("%s with %s from %s: %s", call, data, path, got)
				}
			}
		}
	}
}
