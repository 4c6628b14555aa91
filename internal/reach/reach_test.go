package reach

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"castellan/internal/catalog"
	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/ops/opstest"
)

var update = flag.Bool("update", false, "write the expectations anew")

// TestWalks runs every testdata/NAME.txtar: "site" sections hold lines beside those of the base ("base" names another
// file of the folder, or none), "product" which one is asked, "self" what castellan knows of itself, each "request" is a step of the plan, and "want"
// is what the walk over the steps since the last "want" hits. Each is walked again with every read that it asked for
// hidden, one at a time: no class may weigh less then, or bring fewer kinds.
func TestWalks(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no expectations: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			runCase(t, file)
		})
	}
}

// walkCase is the state of a case while its sections are read.
type walkCase struct {
	t     *testing.T
	site  string
	self  Self
	steps []*gate.Request
	from  string // the product that is asked; "" = pve
	first *opstest.View
}

func runCase(t *testing.T, file string) {
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := &walkCase{t: t}
	base := "base.site"
	for i, f := range a.Files {
		switch f.Name {
		case "base":
			base = strings.TrimSpace(string(f.Data))
		case "site":
			c.site += string(f.Data) + "\n"
		case "self":
			c.self = selfOf(t, f.Data)
		case "product":
			c.from = strings.TrimSpace(string(f.Data))
		case "request":
			r := requestOf(t, string(f.Data))
			if c.from != "" {
				r.Product = c.from
			}
			c.steps = append(c.steps, r)
		case "want":
			if base != "none" {
				b, err := os.ReadFile(filepath.Join("testdata", base))
				if err != nil {
					t.Fatal(err)
				}
				c.site, base = string(b)+"\n"+c.site, "none"
			}
			got, asked := c.walk("")
			shown := showReach(got)
			if *update {
				a.Files[i].Data = []byte(shown)
			} else if d := cmp.Diff(string(f.Data), shown); d != "" {
				t.Errorf("%s\n(-want +got)\n%s", c.title(), d)
			}
			c.hide(got, asked)
			c.steps = nil
		default:
			t.Fatalf("unknown section %q", f.Name)
		}
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// requestOf reads a request: its operation, then one parameter a line. A name that comes again has several values.
func requestOf(t *testing.T, text string) *gate.Request {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	r := &gate.Request{Product: "pve", Operation: strings.TrimSpace(lines[0])}
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			t.Fatalf("%q is no parameter", line)
		}
		if i := slices.IndexFunc(r.Params, func(p gate.Param) bool { return p.Name == name }); i >= 0 {
			r.Params[i].Values = append(r.Params[i].Values, gate.Value{Text: value})
			continue
		}
		r.Params = append(r.Params, gate.Param{Name: name, Values: []gate.Value{{Text: value}}})
	}
	slices.SortFunc(r.Params, func(a, b gate.Param) int { return strings.Compare(a.Name, b.Name) })
	return r
}

func selfOf(t *testing.T, data []byte) Self {
	t.Helper()
	var in struct {
		Guests, Nodes, Storages, MACs []string
		Operators                     []netip.Prefix
		Own, Approvers, Uses          []netip.Addr
		Realms                        map[string][]string
	}
	if err := json.Unmarshal(data, &in); err != nil {
		t.Fatal(err)
	}
	return Self{Guests: in.Guests, Nodes: in.Nodes, Storages: in.Storages, MACs: in.MACs, Operators: in.Operators, Realms: in.Realms,
		Uses:      func(context.Context) []netip.Addr { return in.Uses },
		Own:       func(context.Context, string) []netip.Addr { return in.Own },
		Approvers: func(context.Context) []netip.Addr { return in.Approvers }}
}

func (c *walkCase) title() string {
	var out []string
	for _, s := range c.steps {
		out = append(out, opstestRequest(s))
	}
	return strings.Join(out, " then ")
}

func opstestRequest(r *gate.Request) string {
	out := r.Operation
	for _, p := range r.Params {
		for _, v := range p.Values {
			out += fmt.Sprintf(" %s=%q", p.Name, v.Text)
		}
	}
	return out
}

// walk walks the case's steps on its site and a few lines more, and says what was read for it.
func (c *walkCase) walk(more string) (gate.Reach, []string) {
	c.t.Helper()
	v, err := c.view(c.site + "\n" + more)
	if err != nil {
		c.t.Fatal(err)
	}
	v.Walks = true
	k, err := New(Config{Estate: estate.New(), Catalog: v.Catalog, Self: c.self})
	if err != nil {
		c.t.Fatal(err)
	}
	q := gate.WalkQuestion{Principal: v.Principal()}
	for i, r := range c.steps {
		q.Steps = append(q.Steps, gate.Step{Number: i + 1, Target: "lab", API: r, Judgement: judge(c.t, v.Catalog, r)})
	}
	return k.Walk(c.t.Context(), v, q), v.Asked()
}

// view makes a view of a site; the catalogue is read once for all of them.
func (c *walkCase) view(site string) (*opstest.View, error) {
	if c.first == nil {
		v, err := opstest.New("")
		if err != nil {
			return nil, err
		}
		c.first = v
	}
	v := &opstest.View{Catalog: c.first.Catalog, Info: c.first.Info, Clock: c.first.Clock}
	if c.from != "" {
		v.Info.Product = c.from
	}
	return v, v.Add(site)
}

func judge(t *testing.T, c *catalog.Catalog, r *gate.Request) gate.Judgement {
	t.Helper()
	op, ok := c.Lookup(r.Product, r.Operation)
	if !ok {
		t.Fatalf("no operation %s", r.Operation)
	}
	args := map[string]any{}
	for _, p := range r.Params {
		var texts []any
		for _, x := range p.Values {
			texts = append(texts, x.Text)
		}
		if args[p.Name] = texts; len(texts) == 1 {
			args[p.Name] = texts[0]
		}
	}
	if _, problems := c.Check(op, args); len(problems) > 0 {
		t.Fatalf("%s: %v", opstestRequest(r), problems[0])
	}
	return c.Judge(op, *r)
}

// worst is the weight and the kinds that a class brings.
type worst struct {
	weight gate.Weight
	kinds  []gate.Kind
}

func worstOf(r gate.Reach) map[string]worst {
	out := map[string]worst{}
	for _, h := range r.Hits {
		w := out[h.Class]
		if w.weight == "" || h.Weight.Heavier(w.weight) {
			w.weight = h.Weight
		}
		w.kinds = union(w.kinds, h.Kinds)
		out[h.Class] = w
	}
	return out
}

// hide walks again with one read after the other hidden.
func (c *walkCase) hide(seen gate.Reach, asked []string) {
	c.t.Helper()
	whole := worstOf(seen)
	slices.Sort(asked)
	for _, read := range slices.Compact(asked) {
		for _, why := range []string{"595 Connection refused", "Permission check failed (/, Sys.Audit)"} {
			blind, _ := c.walk(read + " error: " + why)
			left := worstOf(blind)
			for _, h := range seen.Hits {
				if !stands(blind, h) {
					c.t.Errorf("%s\nwith %q hidden (%s) nothing stands for %s %s %s", c.title(), read, why, h.Weight, h.Class, h.Object)
				}
			}
			for class, had := range whole {
				has, ok := left[class]
				if !ok || had.weight.Heavier(has.weight) {
					c.t.Errorf("%s\nwith %q hidden (%s) class %s weighs %q, not %q", c.title(), read, why, class, has.weight, had.weight)
				}
				for _, k := range had.kinds {
					if !slices.Contains(has.kinds, k) {
						c.t.Errorf("%s\nwith %q hidden (%s) class %s lacks kind %s", c.title(), read, why, class, k)
					}
				}
			}
		}
	}
}

// stands says whether a hit is still there, or one of its class that could not be read counts in its place.
func stands(r gate.Reach, h gate.Hit) bool {
	return h.Weight == gate.WeightNote || slices.ContainsFunc(r.Hits, func(o gate.Hit) bool {
		return o.Step == h.Step && o.Class == h.Class && !h.Weight.Heavier(o.Weight) && (o.Object == h.Object || o.Unknown)
	})
}

// showReach writes what a walk found, the gravest first.
func showReach(r gate.Reach) string {
	var b strings.Builder
	hits := slices.Clone(r.Hits)
	slices.SortStableFunc(hits, func(x, y gate.Hit) int {
		switch {
		case x.Step != y.Step:
			return x.Step - y.Step
		case x.Weight.Heavier(y.Weight):
			return -1
		case y.Weight.Heavier(x.Weight):
			return 1
		case x.Class != y.Class:
			return strings.Compare(x.Class, y.Class)
		}
		return strings.Compare(x.Object.String(), y.Object.String())
	})
	step := 0
	for _, h := range hits {
		if h.Step != step {
			step = h.Step
			fmt.Fprintf(&b, "step %d\n", step)
		}
		fmt.Fprintf(&b, "%s %s %s", h.Weight, h.Class, h.Object)
		if h.Unknown {
			b.WriteString(" unknown")
		}
		if h.Blocks {
			b.WriteString(" blocks")
		}
		if h.Refused {
			b.WriteString(" refused")
		}
		if len(h.Kinds) > 0 {
			fmt.Fprintf(&b, " %v", h.Kinds)
		}
		fmt.Fprintf(&b, ": %s\n", h.Text)
		for _, o := range h.Way {
			fmt.Fprintf(&b, "  by %s\n", o)
		}
	}
	for _, u := range r.Unread {
		fmt.Fprintf(&b, "unread: %s\n", u)
	}
	for _, u := range r.Unwalked {
		fmt.Fprintf(&b, "unwalked: %s\n", u)
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// TestANewerBackupOfADeletedGroup: a backup that is made meanwhile is more than was approved; older ones that go are not.
func TestANewerBackupOfADeletedGroup(t *testing.T) {
	matter := func(times string, requests ...string) string {
		var rows []string
		for at := range strings.FieldsSeq(times) {
			rows = append(rows, `{"backup-type":"vm","backup-id":"101","backup-time":`+at+`}`)
		}
		c := &walkCase{t: t, from: "pbs", site: "GET /admin/datastore/main/snapshots [" + strings.Join(rows, ",") + "]\n"}
		for _, text := range requests {
			r := requestOf(t, text)
			r.Product = "pbs"
			c.steps = append(c.steps, r)
		}
		got, _ := c.walk("")
		for _, h := range got.Hits {
			if h.Step == len(requests) && h.Class == ClassLosesBackup {
				return h.Matter
			}
		}
		t.Fatalf("no backup is lost: %+v", got.Hits)
		return ""
	}
	group := "DELETE /admin/datastore/{store}/groups\nstore=main\nbackup-type=vm\nbackup-id=101"
	newest := "DELETE /admin/datastore/{store}/snapshots\nstore=main\nbackup-type=vm\nbackup-id=101\nbackup-time=300"
	planned := matter("300 200 100", group)
	if planned == "" || matter("400 300 200 100", group) == planned {
		t.Error("a newer backup goes unseen")
	}
	if matter("300 200", group) != planned {
		t.Error("an older one that is gone stops it")
	}
	if matter("300 200 100", newest, group) != matter("200 100", newest, group) {
		t.Error("what the plan itself has deleted stops it")
	}
}
