package health

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/ops/opstest"
)

var update = flag.Bool("update", false, "write the expectations anew")

// expand writes "@rrd cpu=0.1:0.9 maxcpu=2" as an hour of points: the second value, if any, from a third of it on; a key
// without a value stays out. "@patch OLD => NEW" changes the line of the same path that went before.
func expand(t *testing.T, now int64, site string) string {
	t.Helper()
	var out []string
	last := map[string]string{}
	for _, line := range strings.Split(site, "\n") {
		path, data, _ := strings.Cut(strings.TrimPrefix(line, "GET "), " ")
		switch {
		case !strings.HasPrefix(line, "GET "):
		case strings.HasPrefix(data, "@rrd"):
			line = "GET " + path + " " + history(t, now, strings.Fields(data)[1:])
		case strings.HasPrefix(data, "@patch "):
			old, repl, ok := strings.Cut(strings.TrimPrefix(data, "@patch "), " => ")
			if !ok || !strings.Contains(last[path], old) {
				t.Fatalf("%s holds no %q", path, old)
			}
			line = strings.Replace(last[path], old, repl, 1)
		}
		if strings.HasPrefix(line, "GET ") {
			last[path] = line
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

func history(t *testing.T, now int64, figures []string) string {
	t.Helper()
	var rows []map[string]float64
	for i := range int64(60) {
		row := map[string]float64{"time": float64(now/60*60 - (59-i)*60)}
		for _, f := range figures {
			k, v, _ := strings.Cut(f, "=")
			first, second, two := strings.Cut(v, ":")
			if two && i >= 20 {
				first = second
			}
			n, err := strconv.ParseFloat(first, 64)
			if err != nil {
				t.Fatal(err)
			}
			row[k] = n
		}
		rows = append(rows, row)
	}
	b, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func siteOf(t *testing.T, more string) *opstest.View {
	t.Helper()
	base, err := os.ReadFile("testdata/healthy.site")
	if err != nil {
		t.Fatal(err)
	}
	v, err := opstest.New("")
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Add(expand(t, v.Clock.Unix(), string(base)+"\n"+more)); err != nil {
		t.Fatal(err)
	}
	return v
}

// look is one diagnosis or round, as what tests compare.
type look struct {
	verdict Verdict
	causes  []Flag
	flags   []Flag
	unread  []Unread
}

func examine(ctx context.Context, t *testing.T, v gate.View, call string) look {
	t.Helper()
	inv, err := estate.Load(ctx, v, "")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(call)
	switch words[0] {
	case "guest":
		g, err := inv.Guest(ctx, v, words[1])
		if err != nil {
			t.Fatal(err)
		}
		r := Guest(ctx, v, inv, g)
		return look{r.Verdict, r.Causes, r.Flags, r.Unread}
	case "node":
		n, err := inv.Node(words[1])
		if err != nil {
			t.Fatal(err)
		}
		r := Node(ctx, v, inv, n)
		return look{r.Verdict, r.Causes, r.Flags, r.Unread}
	case "site":
		r := Site(ctx, v, inv, SiteAsk{Checks: words[1:]})
		return look{r.Verdict, nil, r.Findings, r.Unread}
	}
	t.Fatalf("what is %q?", call)
	return look{}
}

func (l look) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", l.verdict.Word)
	if l.verdict.CouldBe != "" {
		fmt.Fprintf(&b, ", could be %s", l.verdict.CouldBe)
	}
	b.WriteByte('\n')
	for _, list := range []struct {
		name  string
		flags []Flag
	}{{"cause", l.causes}, {"flag", l.flags}} {
		for _, f := range list.flags {
			fmt.Fprintf(&b, "%s %s %s %s | %s | %s", list.name, f.Check, f.Level, f.Confidence, f.Where, f.What)
			if len(f.Evidence) > 0 {
				fmt.Fprintf(&b, " | %s %s", f.Evidence[0].Figure, f.Evidence[0].Value)
			}
			if f.Since != "" {
				fmt.Fprintf(&b, " | since %s", f.Since)
			}
			b.WriteByte('\n')
		}
	}
	for _, u := range l.unread {
		fmt.Fprintf(&b, "unread %s (%s): %s; missing %q; hides %s\n", u.Part, u.Where, u.Why, u.Missing, u.Hides)
	}
	return b.String()
}

func (l look) first() string {
	for _, f := range slices.Concat(l.causes, l.flags) {
		return f.Check
	}
	return "nothing"
}

// TestIllnesses: each case is a site with one illness. Its name is the call and the check that must come first.
func TestIllnesses(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var call, want, site string
		for i, f := range a.Files {
			if f.Name != "want" {
				call, want, _ = strings.Cut(f.Name, " = ")
				site = string(f.Data)
				continue
			}
			t.Run(strings.ReplaceAll(call+" "+want, "/", "-"), func(t *testing.T) {
				want, _, _ := strings.Cut(want, " (") // a note tells cases of one check apart
				got := examine(t.Context(), t, siteOf(t, site), call)
				if got.first() != want {
					t.Errorf("first is %s, want %s", got.first(), want)
				}
				if strings.Contains(got.String(), "the test site has no answer") {
					t.Error("the site lacks an answer")
				}
				if *update {
					a.Files[i].Data = []byte(got.String())
				} else if d := cmp.Diff(string(f.Data), got.String()); d != "" {
					t.Errorf("(-want +got)\n%s", d)
				}
			})
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
