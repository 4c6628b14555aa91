package lab

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

//go:generate go run castellan/internal/lab/gen $CASTELLAN_RECORDS testdata/expect.json.gz

// expectation is one line of the table that gen writes.
type expectation struct {
	As     string  `json:"a"`
	Req    string  `json:"r"`
	Body   *string `json:"b"`
	Type   string  `json:"t"`
	Status string  `json:"s"`
	Text   string  `json:"x"`
	Shape  any     `json:"d"`
	Step   int     `json:"n"`
	At     float64 `json:"w"`
	Task   bool    `json:"k"`
	Stale  bool    `json:"o"`
	Uses   []struct {
		From string `json:"f"`
		Step int    `json:"n"`
		Path string `json:"p"`
		Part bool   `json:"x"`
	} `json:"u"`
}

func expectations(t *testing.T) (fresh []expectation, flows [][]expectation) {
	t.Helper()
	f, err := os.Open("testdata/expect.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Fresh []expectation
		Flows [][]expectation
	}
	if err := json.NewDecoder(z).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all.Fresh, all.Flows
}

// shapeOf is the lab's answer in the table's form.
func shapeOf(v any) any {
	switch t := v.(type) {
	case nil:
		return "z"
	case string:
		return "s"
	case float64:
		return "n"
	case bool:
		return "b"
	case map[string]any:
		m := map[string]any{}
		for k, x := range t {
			m[k] = shapeOf(x)
		}
		return m
	case []any:
		l := []any{}
		for _, x := range t {
			l = append(l, shapeOf(x))
		}
		return l
	}
	return "?"
}

func (e expectation) differs(g got, strict bool) []string {
	if want := "HTTP/1.1 " + e.Status; g.line != want {
		return []string{fmt.Sprintf("status %q, want %q", g.line, want)}
	}
	if !strings.HasPrefix(e.Status, "200") {
		if t := errorText(g.answer); t != e.Text {
			return []string{fmt.Sprintf("text %s, want %s", t, e.Text)}
		}
		return nil
	}
	if e.Shape == nil {
		return nil
	}
	var out []string
	shapesDiffer("", e.Shape, shapeOf(g.answer), strict, &out)
	return out
}

// shapesDiffer compares shapes; types are strings, so shapeDiff sees only kinds and is not enough.
func shapesDiffer(path string, want, have any, strict bool, out *[]string) {
	a, isText := want.(string)
	b, isText2 := have.(string)
	if isText || isText2 {
		if a != b {
			*out = append(*out, fmt.Sprintf("%s: %v, want %v", path, have, want))
		}
		return
	}
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			*out = append(*out, path+": not an object")
			return
		}
		for k, v := range w {
			if x, ok := h[k]; ok {
				shapesDiffer(path+"/"+k, v, x, strict, out)
			} else if strict {
				*out = append(*out, path+"/"+k+": missing")
			}
		}
		for k := range h {
			if _, ok := w[k]; !ok && strict {
				*out = append(*out, path+"/"+k+": not in the genuine answer")
			}
		}
	case []any:
		h, ok := have.([]any)
		if !ok {
			*out = append(*out, path+": not a list")
			return
		}
		if strict && (len(h) == 0) != (len(w) == 0) {
			*out = append(*out, fmt.Sprintf("%s: empty %v, want %v", path, len(h) == 0, len(w) == 0))
		}
		for i, v := range w {
			var best []string
			for j, x := range h {
				var d []string
				shapesDiffer(fmt.Sprintf("%s[%d]", path, i), v, x, strict, &d)
				if j == 0 || len(d) < len(best) {
					best = d
				}
			}
			*out = append(*out, best...)
		}
	}
}

// TestExpectedAnswers holds the rig site to the table of genuine answers, each from the fresh site.
func TestExpectedAnswers(t *testing.T) {
	fresh, _ := expectations(t)
	if len(fresh) < 300 {
		t.Fatalf("the table holds %d answers", len(fresh))
	}
	ok := 0
	for _, e := range fresh {
		g := send(rigLab(t, false, nil), e.As, "", e.Req, e.Body, e.Type)
		if d := e.differs(g, false); len(d) > 0 {
			t.Logf("%s as %s: %s", e.Req, e.As, strings.Join(d, "; "))
			continue
		}
		ok++
	}
	t.Logf("%d of %d answers agree", ok, len(fresh))
	if ok*100 < len(fresh)*98 {
		t.Errorf("only %d of %d answers agree", ok, len(fresh))
	}
}

// TestExpectedFlows replays the table's sequences, each on a site of its own.
func TestExpectedFlows(t *testing.T) {
	_, flows := expectations(t)
	ok, total := 0, 0
	for i, steps := range flows {
		clk := &manual{t: time.Date(2026, 11, 29, 13, 0, 0, 0, time.UTC)}
		l := rigLab(t, true, clk.now)
		start, late := clk.t.Add(20*time.Second), time.Duration(0)
		secrets, answers, behind := map[string]string{}, map[int]any{}, time.Time{}
		for _, e := range steps {
			clk.t = start.Add(late + time.Duration(e.At*float64(time.Second)))
			if clk.t.Before(behind) {
				late += behind.Sub(clk.t)
				clk.t = behind
			}
			req, body := e.Req, e.Body
			for _, u := range e.Uses {
				to := walk(answers[u.Step], u.Path)
				if u.Part {
					to = wordForm.FindString(to)
				}
				if to == "" {
					continue
				}
				req = strings.ReplaceAll(strings.ReplaceAll(req, u.From, to), url.QueryEscape(u.From), url.QueryEscape(to))
				if body != nil {
					x := strings.ReplaceAll(strings.ReplaceAll(*body, u.From, to), url.QueryEscape(u.From), url.QueryEscape(to))
					body = &x
				}
			}
			secret := secrets[e.As]
			if e.Stale {
				secret = "00000000-0000-4000-8000-000000000000"
			}
			g := sendTimed(l, clk, e.As, secret, req, body, e.Type)
			answers[e.Step] = g.answer
			if m, isObject := g.answer.(map[string]any); isObject {
				if d, isObject := m["data"].(map[string]any); isObject {
					id, _ := d["full-tokenid"].(string)
					if v, _ := d["value"].(string); id != "" && v != "" {
						secrets[id] = v
					}
				}
				if upid, _ := m["data"].(string); e.Task {
					if task := l.s.byUPID[upid]; task != nil {
						for n := 0; n < 600 && !task.done; n++ {
							clk.t = clk.t.Add(200 * time.Millisecond)
							l.Advance(0)
						}
						behind = clk.t
					}
				}
			}
			total++
			if d := e.differs(g, true); len(d) > 0 {
				t.Logf("flow %d step %d %s: %s", i+1, e.Step, e.Req, strings.Join(d, "; "))
				continue
			}
			ok++
		}
	}
	t.Logf("%d of %d steps agree", ok, total)
	if total < 500 || ok*100 < total*95 {
		t.Errorf("only %d of %d steps agree", ok, total)
	}
}
