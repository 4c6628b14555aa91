package catalog

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"castellan/internal/gate"

	"pgregory.net/rapid"
)

// drawValue draws a value of every sort that matters to some rule, whether the product would take it or not.
func drawValue(t *rapid.T, op *Operation, name string) gate.Value {
	pool := []string{"0", "1", "true", "no", "off", "", "x", "net0", "unused0;tags", "scsi1,protection", "local-lvm:vm-999-disk-0",
		"local-lvm:vm-101-disk-0,backup=0", "local:iso/x.iso,media=cdrom", "/etc/passwd", "virtio,bridge=vmbr0,firewall=1", "keep-last=1",
		"http://169.254.169.254/", "snapshot", "iso", "secure", "+5G", "a, b=c (d) \"e\"\n\x1b[31m‮", strings.Repeat("long ", 100)}
	if s := op.Facts.Params[name]; s != nil {
		for _, e := range s.Enum {
			if text, ok := e.(string); ok {
				pool = append(pool, text)
			}
		}
	}
	switch rapid.IntRange(0, 19).Draw(t, "sort") {
	case 0:
		return gate.Value{Secret: &gate.Handle{ID: "1", Before: rapid.SampledFrom([]string{"", "host=a,apitoken="}).Draw(t, "before")}}
	case 1:
		return gate.Value{Ref: &gate.Ref{Step: 1, Plan: rapid.SampledFrom(pool).Draw(t, "planned")}}
	}
	return gate.Value{Text: rapid.SampledFrom(pool).Draw(t, "text")}
}

func concrete(name string, t *rapid.T) string {
	if base, ok := strings.CutSuffix(name, "[n]"); ok {
		return base + rapid.SampledFrom([]string{"0", "1", "3"}).Draw(t, "index")
	}
	return name
}

// drawRequest draws a request with all required parameters and some of the others, and one parameter more.
func drawRequest(t *rapid.T, op *Operation) (gate.Request, gate.Param, bool) {
	r := gate.Request{Product: op.Product, Operation: op.ID}
	var optional []string
	for _, name := range slices.Sorted(maps.Keys(op.Facts.Params)) {
		switch {
		case slices.Contains(op.Placeholders, name):
		case !op.Facts.Params[name].Optional:
			n := concrete(name, t)
			r.Params = append(r.Params, gate.Param{Name: n, Values: []gate.Value{drawValue(t, op, name)}})
		default:
			optional = append(optional, name)
		}
	}
	for _, name := range op.Placeholders {
		r.Params = append(r.Params, gate.Param{Name: name, Values: []gate.Value{{Text: "101"}}})
	}
	if len(optional) == 0 {
		return r, gate.Param{}, false
	}
	for range rapid.IntRange(0, 4).Draw(t, "count") {
		name := rapid.SampledFrom(optional).Draw(t, "name")
		if n := concrete(name, t); r.Get(n) == nil {
			r.Params = append(r.Params, gate.Param{Name: n, Values: []gate.Value{drawValue(t, op, name)}})
		}
	}
	name := rapid.SampledFrom(optional).Draw(t, "one more")
	n := concrete(name, t)
	if r.Get(n) != nil {
		return r, gate.Param{}, false
	}
	return r, gate.Param{Name: n, Values: []gate.Value{drawValue(t, op, name)}}, true
}

func badness(e gate.Effect) int {
	return slices.Index([]gate.Effect{gate.EffectRead, gate.EffectChange, gate.EffectExpose, gate.EffectExecute, gate.EffectDestroy}, e)
}

// holdsBack tells the parameters by which the product itself does less.
func holdsBack(p gate.Param) bool {
	return p.Name == "dry-run" || p.Name == "keep" || p.Name == "remove"
}

func TestJudgementsKeepTheirRules(t *testing.T) {
	c := newTestCatalog(t)
	ops := c.All()
	rapid.Check(t, func(t *rapid.T) {
		op := ops[rapid.IntRange(0, len(ops)-1).Draw(t, "operation")]
		r, more, ok := drawRequest(t, op)
		j := c.Judge(op, r)
		checkJudgement(t, c, op, r, j)
		if !ok || holdsBack(more) {
			return
		}
		r2 := r
		r2.Params = append(slices.Clone(r.Params), more)
		j2 := c.Judge(op, r2)
		checkJudgement(t, c, op, r2, j2)
		if badness(j2.Effect) < badness(j.Effect) || rung(j2) < rung(j) {
			t.Fatalf("%s %s: %s lowers %s, %v to %s, %v", op.Product, op.ID, more.Name, j.Effect, j.Kinds, j2.Effect, j2.Kinds)
		}
		for _, class := range j.Classes {
			if !slices.Contains(j2.Classes, class) {
				t.Fatalf("%s %s: %s takes class %s away", op.Product, op.ID, more.Name, class)
			}
		}
	})
}

type failer interface {
	Fatalf(format string, args ...any)
}

func checkJudgement(t failer, c *Catalog, op *Operation, r gate.Request, j gate.Judgement) {
	union := c.Classes(op)
	for _, class := range j.Classes {
		if !slices.Contains(union, class) {
			t.Fatalf("%s %s: class %s is not published: %v", op.Product, op.ID, class, r.Params)
		}
	}
	if len(j.Kinds) == 0 {
		t.Fatalf("%s %s: no row of the table", op.Product, op.ID)
	}
	if rung(j) == gate.RungNone {
		for _, class := range j.Classes {
			guest := class == gate.ClassPower && (slices.Contains(j.Kinds, gate.KindStart) || slices.Contains(j.Kinds, gate.KindResume))
			private := class == gate.ClassSout && j.Effect == gate.EffectRead
			if !guest && !private {
				t.Fatalf("%s %s: class %s needs no approval: %v", op.Product, op.ID, class, j.Kinds)
			}
		}
	}
	if len(j.Classes) > 0 && j.Effect == gate.EffectRead && !slices.Equal(j.Classes, []gate.Class{gate.ClassSout}) {
		t.Fatalf("%s %s: a read in classes %v", op.Product, op.ID, j.Classes)
	}
	checkSentence(t, op, r, j.Sentence)
}

func checkSentence(t failer, op *Operation, r gate.Request, text string) {
	if text == "" {
		t.Fatalf("%s %s: no sentence", op.Product, op.ID)
	}
	for _, c := range text {
		if c != ' ' && !unicode.IsPrint(c) {
			t.Fatalf("%s %s: %q holds %U", op.Product, op.ID, text, c)
		}
	}
	if strings.ContainsAny(text, "{}") {
		t.Fatalf("%s %s: %q has a gap", op.Product, op.ID, text)
	}
	for _, p := range r.Params {
		for _, v := range p.Values {
			want := shown(v.Text)
			_, _, _, secret := op.SplitSecret(p.Name, v.Text)
			switch {
			case v.Ref != nil:
				want = "the result of step 1"
			case v.Secret != nil || secret:
				want = "(secret)"
			}
			if !strings.Contains(text, want) {
				t.Fatalf("%s %s: %q does not show %s=%q", op.Product, op.ID, text, p.Name, want)
			}
		}
	}
}

// FuzzJudge: whatever a value holds, the judgement keeps its rules and is no milder than that of the same
// request without it.
func FuzzJudge(f *testing.F) {
	c := newTestCatalog(f)
	f.Add("scsi0", "local-lvm:vm-101-disk-0,backup=0")
	f.Add("delete", "net0;unused1\x00protection")
	f.Add("net0", "virtio=AA:BB,,firewall=1,=")
	f.Add("description", "a\u202eb")
	op, _ := c.Lookup("pve", "PUT /nodes/{node}/qemu/{vmid}/config")
	alone := request(f, "pve", op.ID, args{"node": "pve1", "vmid": 101})
	least := c.Judge(op, alone)
	f.Fuzz(func(t *testing.T, name, text string) {
		if name == "node" || name == "vmid" {
			return
		}
		r := alone
		r.Params = append(slices.Clone(alone.Params), gate.Param{Name: name, Values: []gate.Value{{Text: text}}})
		j := c.Judge(op, r)
		for _, class := range j.Classes {
			if !slices.Contains(c.Classes(op), class) {
				t.Errorf("class %s is not published", class)
			}
		}
		if rung(j) < rung(least) || badness(j.Effect) < badness(least.Effect) {
			t.Errorf("%q=%q lowers to %v", name, text, j.Kinds)
		}
		for _, ch := range j.Sentence {
			if !unicode.IsPrint(ch) {
				t.Errorf("%q holds %U", j.Sentence, ch)
			}
		}
		if utf8.RuneCountInString(j.Sentence) > 3*longestShown {
			t.Errorf("a sentence of %d characters", utf8.RuneCountInString(j.Sentence))
		}
	})
}

// TestEveryOperationIsJudgedAlone: with nothing but its path.
func TestEveryOperationIsJudgedAlone(t *testing.T) {
	c := newTestCatalog(t)
	for _, op := range c.All() {
		r := gate.Request{Product: op.Product, Operation: op.ID}
		for _, name := range op.Placeholders {
			r.Params = append(r.Params, gate.Param{Name: name, Values: []gate.Value{{Text: "x1"}}})
		}
		checkJudgement(t, c, op, r, c.Judge(op, r))
		if op.Method == "DELETE" && c.Judge(op, r).Effect == gate.EffectRead {
			t.Errorf("%s %s is a read", op.Product, op.ID)
		}
	}
}

func BenchmarkJudge(b *testing.B) {
	c := newTestCatalog(b)
	op, _ := c.Lookup("pve", "PUT /nodes/{node}/qemu/{vmid}/config")
	r := request(b, "pve", op.ID, args{"node": "pve1", "vmid": 101, "memory": 4096, "net0": "virtio,bridge=vmbr0"})
	for b.Loop() {
		c.Judge(op, r)
	}
}

func BenchmarkJudgeRead(b *testing.B) {
	c := newTestCatalog(b)
	op, _ := c.Lookup("pve", "GET /nodes/{node}/qemu/{vmid}/status/current")
	r := request(b, "pve", op.ID, args{"node": "pve1", "vmid": 101})
	for b.Loop() {
		c.Judge(op, r)
	}
}
