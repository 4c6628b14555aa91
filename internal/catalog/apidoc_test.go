package catalog

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
)

// docWith is a host's description in the form in which PVE publishes it, with the given nodes of the tree.
func docWith(nodes ...string) []byte {
	return []byte("const apiSchema = [\n" + strings.Join(nodes, ",\n") + "\n]\n;\n\nlet x = [1, 2];\nalert('never run');\n")
}

func node(path, method, params string) string {
	return fmt.Sprintf(`{"path":%q,"text":"x","leaf":1,"info":{%q:{"method":%q,"description":"<script>","protected":1,"permissions":{"user":"all"},
		"parameters":{"additionalProperties":0,"properties":{%s}},"returns":{"type":"null"}}},"children":[]}`, path, method, method, params)
}

func parseDoc(t testing.TB, product string, b []byte) *Doc {
	t.Helper()
	doc, err := ParseApidoc(product, b)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestMergeAddsAndNeverLowers(t *testing.T) {
	c := open(t)
	before := lookup(t, c, "pve", setVM)
	doc := parseDoc(t, "pve", docWith(
		node("/nodes/{node}/qemu/{vmid}/teleport", "POST", `"node":{"type":"string"},"vmid":{"type":"integer"},"where":{"type":"string","optional":1,"maxLength":20}`),
		node("/nodes/{node}/qemu/{vmid}/config", "PUT", `"node":{"type":"string"},"vmid":{"type":"integer","minimum":1},"warp":{"type":"boolean"},
			"cipassword":{"type":"boolean"},"bios":{"type":"string","enum":["seabios","ovmf","coreboot"]},
			"net[n]":{"type":"string","format":{"model":{"type":"string","default_key":1,"enum":["virtio"]},"speed":{"type":"integer","optional":1},"brdige":{"alias":"bridge"}}}`),
		node("/nodes/{node}/qemu/100/config", "PUT", `"node":{"type":"string"}`),
		node("/nodes/{host}/qemu", "PUT", `"host":{"type":"string"}`),
		node("/nodes/{node}/storage/{storage}/content/{volume}/extra", "GET", `"node":{"type":"string"}`),
		node("/cluster/{thing}", "GET", `"thing":{"type":"string"}`)))
	compared, err := c.Compare(doc)
	if err != nil {
		t.Fatal(err)
	}
	plain := open(t).Version("pve")
	if c.Version("pve") != plain {
		t.Error("comparing changed the catalogue")
	}
	diff, err := c.Merge(doc)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(compared, diff); d != "" {
		t.Error("Compare and Merge differ:", d)
	}
	diff.Missing = nil
	want := Diff{
		Operations: []string{"POST /nodes/{node}/qemu/{vmid}/teleport"},
		Params:     []string{setVM + ": bios=coreboot", setVM + ": net[n].speed", setVM + ": warp"},
		Refused: []string{
			"GET /cluster/{thing}: its placeholder {thing} would stand beside known paths",
			"GET /nodes/{node}/storage/{storage}/content/{volume}/extra: it lies below a placeholder that takes the rest of the path",
			"PUT /nodes/{host}/qemu: it would stand beside {node} and take its requests",
			"PUT /nodes/{node}/qemu/100/config: it would stand beside {vmid} and take its requests",
		},
	}
	if d := cmp.Diff(want, diff); d != "" {
		t.Error(d)
	}
	if !strings.HasPrefix(c.Version("pve"), plain+"+") {
		t.Error(c.Version("pve"))
	}
	op := lookup(t, c, "pve", setVM)
	if !op.Facts.Protected || before.Facts == op.Facts {
		t.Error("the known operation was changed in place or lost a flag")
	}
	if d := cmp.Diff([]string{"cipassword"}, op.Secrets()); d != "" {
		t.Error("a secret mark was lowered:", d)
	}
	for _, tc := range []struct {
		param, value string
		want         bool
	}{{"warp", "1", true}, {"bios", "ovmf", false}, {"bios", "coreboot", true}, {"net0", "virtio,bridge=vmbr0", false}, {"net0", "virtio,speed=3", true}, {"cores", "2", false}} {
		if got := op.IsForeign(tc.param, tc.value); got != tc.want {
			t.Errorf("%s=%s foreign: %v", tc.param, tc.value, got)
		}
	}
	r, problems := c.Check(op, guest(map[string]any{"warp": true, "bios": "coreboot", "net0": "virtio,speed=3"}))
	if len(problems) > 0 {
		t.Error(problems)
	}
	if _, problems := c.Check(op, guest(map[string]any{"vmid": 1})); len(problems) == 0 {
		t.Error("a looser limit of the host was taken")
	}
	if e, err := c.Encode(r, nil); err != nil || !strings.Contains(e.Body, "warp=1") {
		t.Error(e, err)
	}
	added := lookup(t, c, "pve", "POST /nodes/{node}/qemu/{vmid}/teleport")
	if !added.Foreign || !added.IsForeign("where", "x") {
		t.Error("an added operation is not marked")
	}
	if got, _, err := c.Match("pve", "PUT", "/nodes/pve1/qemu/100/config"); err != nil || got.ID != setVM {
		t.Error(got, err)
	}
	again, err := c.Merge(doc)
	if err != nil || !again.Empty() {
		t.Error("merging again adds:", again, err)
	}
}

// TestOwnFactsMergeToNothing: a host that publishes what we know adds nothing.
func TestOwnFactsMergeToNothing(t *testing.T) {
	c := open(t)
	for _, product := range Products() {
		var nodes []string
		for _, op := range c.Operations(product) {
			params := map[string]json.RawMessage{}
			for name, s := range op.Facts.Params {
				plain := map[string]any{"type": s.Type}
				if len(s.Enum) > 0 {
					plain["enum"] = s.Enum
				}
				if p := op.properties(s); p != nil && !p.open {
					keys := map[string]any{}
					for key, ks := range p.props {
						keys[key] = map[string]any{"type": "string", "alias": ks.Alias, "optional": 1}
						if ks.Alias == "" {
							delete(keys[key].(map[string]any), "alias")
						}
					}
					plain["format"] = keys
				}
				b, err := json.Marshal(plain)
				if err != nil {
					t.Fatal(err)
				}
				params[name] = b
			}
			b, err := json.Marshal(params)
			if err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, fmt.Sprintf(`{"path":%q,"info":{%q:{"parameters":{"properties":%s}}}}`, op.Path, op.Method, b))
		}
		diff, err := c.Compare(parseDoc(t, product, docWith(nodes...)))
		if err != nil {
			t.Fatal(err)
		}
		if !diff.Empty() || len(diff.Refused) > 0 || len(diff.Missing) > 0 {
			t.Errorf("%s: %+v", product, diff)
		}
	}
}

func TestParseApidocRefuses(t *testing.T) {
	deep := strings.Repeat(`{"children":[`, 40) + strings.Repeat(`]}`, 40)
	for name, b := range map[string][]byte{
		"html":            []byte("<html><body>[]</body></html>"),
		"empty tree":      docWith(),
		"cut off":         []byte(`const apiSchema = [{"path":"/x"`),
		"too deep":        docWith(deep),
		"strange path":    docWith(node("/x/../y", "GET", "")),
		"path with query": docWith(node("/x?y", "GET", "")),
		"relative":        docWith(node("x", "GET", "")),
		"strange name":    docWith(node("/x", "GET", `"a b":{"type":"string"}`)),
		"control in enum": docWith(node("/x", "GET", `"a":{"type":"string","enum":["a\u0000"]}`)),
		"twice":           docWith(node("/x", "GET", ""), node("/x", "GET", "")),
	} {
		if _, err := ParseApidoc("pve", b); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if _, err := ParseApidoc("pvx", docWith(node("/x", "GET", ""))); err == nil {
		t.Error("an unknown product was taken")
	}
}

func TestDocIsPinned(t *testing.T) {
	doc := parseDoc(t, "pve", docWith(node("/x", "GET", `"b":{"type":"string"},"a":{"type":"integer","minimum":"3"}`)))
	b, pin := doc.Bytes(), doc.SHA256()
	back, err := OpenDoc(b, pin)
	if err != nil || back.SHA256() != pin || back.Product() != "pve" {
		t.Fatal(back, err)
	}
	if _, err := OpenDoc(append(b, ' '), pin); err == nil {
		t.Error("a changed file was taken")
	}
	other := parseDoc(t, "pve", docWith(node("/x", "GET", `"a":{"type":"integer","minimum":3},"b":{"type":"string","description":"other words"}`)))
	if other.SHA256() != pin {
		t.Error("descriptions that say the same have different pins")
	}
}

func FuzzParseApidoc(f *testing.F) {
	f.Add(docWith(node("/nodes/{node}/x", "POST", `"node":{"type":"string"},"a[n]":{"type":"string","format":{"k":{"type":"integer"}}}`)))
	f.Add([]byte(`var pveapi = [{"path":"/","info":{"GET":{"parameters":{"properties":{"x":{"type":"array","items":{"type":"object","properties":{"y":{}}}}}}}}}]`))
	c := open(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		doc, err := ParseApidoc("pve", b)
		if err != nil {
			return
		}
		if _, err := OpenDoc(doc.Bytes(), doc.SHA256()); err != nil {
			t.Fatal(err)
		}
		own, err := New(Config{Facts: facts.Open()})
		if err != nil {
			t.Fatal(err)
		}
		own.tables["pve"].load = c.tables["pve"].get
		diff, err := own.Merge(doc)
		if err != nil {
			return
		}
		for _, id := range diff.Operations {
			op := lookup(t, own, "pve", id)
			if !op.Foreign {
				t.Fatalf("%s is not marked", id)
			}
			r, _ := own.Check(op, map[string]any{"node": "pve1", "a0": "k=1", "x": []any{map[string]any{"y": "z"}}})
			own.References(op, r)
		}
		for _, op := range c.Operations("pve") {
			if got := lookup(t, own, "pve", op.ID); len(got.Facts.Params) < len(op.Facts.Params) || len(got.Secrets()) < len(op.Secrets()) {
				t.Fatalf("%s lost something", op.ID)
			}
		}
	})
}

func FuzzPropertyString(f *testing.F) {
	for _, s := range []string{"virtio=BC:24:11:00:00:01,bridge=vmbr0", `{"model":"virtio"}`, "host=a,apitoken=b=c", `offline,message="a, \"b\""`, ",,=,", "a=b,a=c"} {
		f.Add(s)
	}
	c := open(f)
	type place struct {
		op    *Operation
		param string
	}
	var places []place
	for _, p := range []struct{ product, id, param string }{
		{"pve", setVM, "net0"}, {"pve", setVM, "scsi0"}, {"pve", setVM, "boot"}, {"pve", setCT, "mp0"}, {"pve", setVM, "cpu"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/remote_migrate", "target-endpoint"}, {"pbs", "PUT /config/datastore/{name}", "maintenance-mode"},
		{"pbs", "POST /config/notifications/endpoints/webhook", "secret"},
	} {
		places = append(places, place{lookup(f, c, p.product, p.id), p.param})
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range places {
			r, problems := c.Check(p.op, map[string]any{p.param: text})
			for _, problem := range problems {
				if problem.Param == p.param || strings.HasPrefix(problem.Param, p.param+".") || strings.HasPrefix(problem.Param, p.param+"[") {
					r = gate.Request{}
				}
			}
			for _, v := range r.Get(p.param) {
				again, problems := c.Check(p.op, map[string]any{p.param: v.Text})
				if got := again.Get(p.param); len(got) != 1 || got[0].Text != v.Text {
					t.Fatalf("%s: %q became %q and then %v (%v)", p.param, text, v.Text, got, problems)
				}
				if strings.ContainsAny(v.Text, "\n\r\x00") {
					t.Fatalf("%s: %q would begin another line", p.param, v.Text)
				}
				if before, secret, after, ok := p.op.SplitSecret(p.param, v.Text); ok && before+secret+after != v.Text {
					t.Fatalf("%s: %q is split into %q %q %q", p.param, v.Text, before, secret, after)
				}
			}
		}
	})
}

func FuzzList(f *testing.F) {
	for _, s := range []string{"cores,memory", "a;b c\td", "net0\x00tags", `["cores","tags"]`, "tags,cores", "\u2003tags"} {
		f.Add(s)
	}
	c := open(f)
	op := lookup(f, c, "pve", setVM)
	f.Fuzz(func(t *testing.T, text string) {
		for _, param := range []string{"delete", "tags", "nameserver", "revert"} {
			r, _ := c.Check(op, map[string]any{param: text})
			for _, v := range r.Get(param) {
				// The product splits as Perl does: at NUL alone where there is one, else at , ; and white space.
				parts := strings.FieldsFunc(v.Text, func(r rune) bool { return strings.ContainsRune(",; \t\n\r\v\f\u0085\u00a0\u2028\u2029", r) })
				if strings.Contains(v.Text, "\x00") || len(parts) == 0 {
					t.Fatalf("%s: %q became %q", param, text, v.Text)
				}
				if isNameList(param) {
					for _, p := range parts {
						if _, _, ok := op.Schema(p); !ok && !strings.HasPrefix(p, "unused") {
							t.Fatalf("%s: %q names %q", param, v.Text, p)
						}
					}
				}
			}
		}
	})
}
