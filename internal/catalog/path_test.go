package catalog

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"castellan/internal/gate"
)

func TestMatch(t *testing.T) {
	c := open(t)
	const upid = "UPID:pve1:0000020F:00032057:6B0C1290:vzcreate:201:root@pam!full:"
	for _, tc := range []struct {
		product, method, path, id string
		args                      map[string]any
	}{
		{"pve", "GET", "/version", "GET /version", map[string]any{}},
		{"pve", "get", "version/", "GET /version", map[string]any{}},
		{"pve", "GET", "/api2/json//version", "GET /version", map[string]any{}},
		{"pve", "GET", "/api2/extjs/version", "GET /version", map[string]any{}},
		{"pmg", "GET", "/api2/htmlmail/version", "GET /version", map[string]any{}},
		{"pbs", "GET", "/api2/extjs/version", "GET /version", map[string]any{}},
		{"pve", "PUT", "/nodes/pve1/lxc/540/config", "PUT /nodes/{node}/lxc/{vmid}/config", map[string]any{"node": "pve1", "vmid": "540"}},
		{"pve", "GET", "//nodes///localhost/qemu/100/config?current=1&_dc=7", "GET /nodes/{node}/qemu/{vmid}/config",
			map[string]any{"node": "localhost", "vmid": "100", "current": "1"}},
		{"pve", "GET", "/nodes/pve1/tasks/" + url.PathEscape(upid) + "/status", "GET /nodes/{node}/tasks/{upid}/status", map[string]any{"node": "pve1", "upid": upid}},
		{"pve", "DELETE", "/nodes/pve1/storage/local.ssd/content/local.ssd:vztmpl/debian-12.tar.zst", "DELETE /nodes/{node}/storage/{storage}/content/{volume}",
			map[string]any{"node": "pve1", "storage": "local.ssd", "volume": "local.ssd:vztmpl/debian-12.tar.zst"}},
		{"pve", "DELETE", "/nodes/pve1/storage/local/content/local%3Aiso%2Fa.iso", "DELETE /nodes/{node}/storage/{storage}/content/{volume}",
			map[string]any{"node": "pve1", "storage": "local", "volume": "local:iso/a.iso"}},
		{"pve", "PUT", "/cluster/firewall/ipset/s1/10.0.0.0/8", "PUT /cluster/firewall/ipset/{name}/{cidr}", map[string]any{"name": "s1", "cidr": "10.0.0.0/8"}},
		{"pmg", "GET", "/config/mynetworks/10.0.0.0%2F8", "GET /config/mynetworks/{cidr}", map[string]any{"cidr": "10.0.0.0/8"}},
		{"pbs", "GET", "/nodes/localhost/tasks/a%2Fb/log", "GET /nodes/{node}/tasks/{upid}/log", map[string]any{"node": "localhost", "upid": "a/b"}},
		{"pve", "GET", "/nodes/pve1/tasks?statusfilter=error&statusfilter=ok", "GET /nodes/{node}/tasks", map[string]any{"node": "pve1", "statusfilter": []any{"error", "ok"}}},
	} {
		op, args, err := c.Match(tc.product, tc.method, tc.path)
		if err != nil {
			t.Errorf("%s: %v", tc.path, err)
			continue
		}
		if op.ID != tc.id || cmp.Diff(tc.args, args) != "" {
			t.Errorf("%s: %s %v", tc.path, op.ID, args)
		}
	}
}

func TestMatchRefuses(t *testing.T) {
	c := open(t)
	for _, tc := range []struct{ product, method, path string }{
		{"pve", "GET", "/nodes/pve1/lxc/540%2Fconfig"},           // the product reads another path
		{"pve", "GET", "/nodes/pve1/lxc/../qemu/100/config"},     // some readers resolve it
		{"pve", "GET", "/nodes/pve1/lxc/%2e%2e/100/config"},      // the same, encoded
		{"pve", "GET", "/nodes/pve1/lxc/100/config#"},            // the rest would be cut
		{"pve", "GET", "/nodes/pve1/lxc/100/config%0a"},          // trailing newline
		{"pve", "GET", "/nodes/pve1/lxc/100/config\n"},           // trailing newline
		{"pve", "GET", "/nodes/pve1/lxc/100%00/config"},          // NUL
		{"pve", "GET", "/nodes/pve1/lxc/１００/config"},             // full-width digits
		{"pve", "GET", "/nodes/pve1/lxc/%EF%BC%91%30%30/config"}, // the same, encoded
		{"pve", "GET", "/nodes/pve1/lxc/100%zz/config"},          // broken escape
		{"pve", "GET", "/nodes/pve1/lxc/1 00/config"},            // blank
		{"pve", "GET", "/nodes/pve1/lxc/1%e2%80%8b00/config"},    // zero-width blank
		{"pve", "GET", "/api2/yaml/version"},                     // no such formatter
		{"pbs", "GET", "/api2/html/version"},                     // not on this product
		{"pve", "GET", "https://pve1:8006/api2/json/version"},    // another host
		{"pbs", "GET", "/admin/datastore/.store/gc"},             // PBS refuses a leading dot
		{"pbs", "GET", "/admin/datastore/%2estore/gc"},           // and so do we once decoded
		{"pve", "GET", "/nodes/pve1/tasks?a=b;c=d"},              // split at ; by some
		{"pve", "GET", "/nodes/pve1/tasks?a=b=c"},                // cut at the second =
		{"pve", "GET", "/nodes/pve1/tasks?node=pve2"},            // contradicts the path
		{"pve", "PATCH", "/version"},
		{"pve", "POST", "/version"},
		{"pve", "GET", "/nodes/pve1/bogus"},
		{"pve", "GET", "/" + strings.Repeat("a", maxPath)},
	} {
		op, _, err := c.Match(tc.product, tc.method, tc.path)
		var pe *PathError
		if err == nil {
			t.Errorf("%s %s was taken as %s", tc.method, clip(tc.path, 80), op.ID)
		} else if !errors.As(err, &pe) {
			t.Errorf("%s: %T", tc.path, err)
		}
	}
}

func TestUnknownPathNamesTheNearest(t *testing.T) {
	c := open(t)
	for _, tc := range []struct{ method, path, want string }{
		{"POST", "/nodes/pve1/qemu/100/start", "POST /nodes/{node}/qemu/{vmid}/status/start"},
		{"GET", "/nodes/pve1/qemu/100/snapshots", "GET /nodes/{node}/qemu/{vmid}/snapshot"},
		{"DELETE", "/nodes/pve1/lxc/100/config", "PUT /nodes/{node}/lxc/{vmid}/config"},
		{"GET", "/nodes/pve1/services/pveproxy/status", "GET /nodes/{node}/services/{service}/state"},
	} {
		_, _, err := c.Match("pve", tc.method, tc.path)
		var pe *PathError
		if !errors.As(err, &pe) || !strings.Contains(strings.Join(pe.Nearest, "\n"), tc.want) {
			t.Errorf("%s %s: %v", tc.method, tc.path, err)
		}
	}
}

func TestResolveJoinsArguments(t *testing.T) {
	c := open(t)
	op, args, err := c.Resolve("pve", "PUT", "/nodes/pve1/lxc/100/config?memory=512&cores=1", map[string]any{"memory": 1024, "vmid": 100})
	if err != nil || op.ID != "PUT /nodes/{node}/lxc/{vmid}/config" {
		t.Fatal(op, err)
	}
	if diff := cmp.Diff(map[string]any{"node": "pve1", "vmid": "100", "memory": 1024, "cores": "1"}, args); diff != "" {
		t.Error(diff)
	}
	if _, _, err := c.Resolve("pve", "PUT", "/nodes/pve1/lxc/100/config", map[string]any{"vmid": 101}); err == nil {
		t.Error("an argument that contradicts the path was taken")
	}
	op, args, err = c.Resolve("pve", "PUT", "/nodes/{node}/lxc/100/config", map[string]any{"node": "pve1", "cores": 2})
	if err != nil || args["node"] != "pve1" || args["vmid"] != "100" {
		t.Error(op, args, err)
	}
	if _, _, err := c.Resolve("pve", "PUT", "/nodes/{node}/lxc/100/config", map[string]any{"node": "pve1/lxc/101/config?"}); err == nil {
		t.Error("a value with a slash was put into the path")
	}
	if op, _, err := c.Resolve("pve", "put", "/nodes/{node}/lxc/{vmid}/config", nil); err != nil || op.Method != "PUT" {
		t.Error("the template itself is not taken:", err)
	}
}

// productReads is how a product finds an operation, written anew from what its servers do: PVE and PMG decode the
// whole path and split it at runs of slashes, with two placeholders that take the rest; PBS and PDM split, drop empty
// parts, refuse a leading dot, and decode each part.
func productReads(c *Catalog, product, method, path string) (string, map[string]string, error) {
	var parts []string
	if product == "pve" || product == "pmg" {
		whole, err := url.PathUnescape(path)
		if err != nil {
			return "", nil, err
		}
		for _, p := range regexp.MustCompile(`/+`).Split(whole, -1) {
			if p != "" {
				parts = append(parts, p)
			}
		}
	} else {
		for _, p := range strings.Split(path, "/") {
			if p == "" {
				continue
			}
			if strings.HasPrefix(p, ".") {
				return "", nil, errors.New("path contains illegal components")
			}
			u, err := url.PathUnescape(p)
			if err != nil {
				return "", nil, err
			}
			parts = append(parts, u)
		}
	}
	var found []string
	var values map[string]string
	for _, op := range c.Operations(product) {
		if op.Method != method {
			continue
		}
		template := strings.FieldsFunc(op.Path, func(r rune) bool { return r == '/' })
		have := parts
		last := ""
		if len(template) > 0 {
			last = template[len(template)-1]
		}
		rest := product == "pve" && (last == "{volume}" || last == "{cidr}") || product == "pmg" && op.Path == "/config/mynetworks/{cidr}"
		if rest && len(have) > len(template) {
			have = append(append([]string{}, have[:len(template)-1]...), strings.Join(have[len(template)-1:], "/"))
		}
		if len(have) != len(template) {
			continue
		}
		v := map[string]string{}
		fits := true
		for i, want := range template {
			if strings.HasPrefix(want, "{") {
				fits = fits && (product == "pbs" || product == "pdm" || !strings.ContainsAny(have[i], " \t\r\n\v\f"))
				v[strings.Trim(want, "{}")] = have[i]
			} else if want != have[i] {
				fits = false
			}
		}
		if fits {
			found, values = append(found, op.ID), v
		}
	}
	if len(found) != 1 {
		return "", nil, fmt.Errorf("%d operations fit", len(found))
	}
	return found[0], values, nil
}

// drawPath makes paths of all sorts: templates with placeholders filled from nasty pieces, oddly encoded.
func drawPath(t *rapid.T, c *Catalog) (product, method, path string) {
	product = rapid.SampledFrom(Products()).Draw(t, "product")
	op := rapid.SampledFrom(c.Operations(product)).Draw(t, "op")
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{"100", "pve1", "local", "local:iso/a b.iso", "..", ".", ".x", "a/b", "a%2Fb", "%2e%2e", "0100", "１", "a\x00", "x\n", "u@pam!t",
			"UPID:a:b:", `a\x3ab`, "a;b", "a?b=c", "a#b", "%", "%41", "é", "\u200b", "a+b", "//", "config"}),
		rapid.StringN(0, 6, 12))
	var b strings.Builder
	b.WriteString(rapid.SampledFrom([]string{"", "", "", "/api2/json", "/api2/extjs", "//api2//html", "/api2/yaml", "/./"}).Draw(t, "prefix"))
	for _, part := range strings.Split(strings.Trim(op.Path, "/"), "/") {
		b.WriteString(rapid.SampledFrom([]string{"/", "/", "/", "/", "//", "%2F", "/./"}).Draw(t, "slash"))
		if _, isOpen := placeholder(part); isOpen {
			part = piece.Draw(t, "piece")
		}
		switch rapid.IntRange(0, 5).Draw(t, "encode") {
		case 0:
			part = url.PathEscape(part)
		case 1:
			part = escape(part)
		case 2:
			if part != "" {
				part = fmt.Sprintf("%%%02x", part[0]) + part[1:]
			}
		}
		b.WriteString(part)
	}
	b.WriteString(rapid.SampledFrom([]string{"", "", "", "/", "?a=b", "#x", "\n", "%0a", "%00"}).Draw(t, "tail"))
	return product, op.Method, b.String()
}

// TestMatchedPathsReadTheSame: whatever path is taken, the path rendered from operation and values is read by the
// product's own rule as that same operation with those same values.
func TestMatchedPathsReadTheSame(t *testing.T) {
	c := open(t)
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		product, method, path := drawPath(t, c)
		if sameReading(t, c, product, method, path) {
			taken++
		}
	})
	if taken == 0 {
		t.Error("no path was taken at all")
	}
	t.Log(taken, "paths taken")
}

type fataler interface{ Fatalf(string, ...any) }

func sameReading(t fataler, c *Catalog, product, method, path string) bool {
	op, args, err := c.Match(product, method, path)
	if err != nil {
		return false
	}
	r := gate.Request{Product: product, Operation: op.ID}
	want := map[string]string{}
	for _, name := range op.Placeholders {
		text := args[name].(string)
		want[name] = text
		r.Params = append(r.Params, gate.Param{Name: name, Values: []gate.Value{{Text: text}}})
	}
	e, err := c.Encode(r, nil)
	if err != nil {
		if errors.Is(err, ErrTransfer) {
			return false
		}
		t.Fatalf("%q was taken as %s %v but cannot be rendered: %v", path, op.ID, args, err)
	}
	id, values, err := productReads(c, product, e.Method, e.Path)
	if err != nil || id != op.ID {
		t.Fatalf("%q was taken as %s, sent as %s, and is read as %s %v", path, op.ID, e.Path, id, err)
	}
	if diff := cmp.Diff(want, values); diff != "" {
		t.Fatalf("%q sent as %s: %s", path, e.Path, diff)
	}
	return true
}

func FuzzMatch(f *testing.F) {
	for _, s := range []string{"/api2/json/nodes/pve1/qemu/100/config", "/nodes/a/storage/b/content/c%3Ad/e", "/pools/team%2Fdev", "/a/%2e%2e/b?x=y"} {
		f.Add(uint8(0), s)
		f.Add(uint8(1), s)
	}
	c := open(f)
	f.Fuzz(func(t *testing.T, p uint8, path string) {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
			sameReading(t, c, Products()[int(p)%4], method, path)
		}
	})
}

func BenchmarkMatchUnknown(b *testing.B) {
	c := open(b)
	c.Operations("pve")
	for b.Loop() {
		c.Match("pve", "GET", "/nodes/pve1/qemu/100/snapshots")
	}
}
