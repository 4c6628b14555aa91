package estate

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"castellan/internal/gate"
	"castellan/internal/ops/opstest"
)

func site(t *testing.T, more string) *opstest.View {
	t.Helper()
	base, err := os.ReadFile("../ops/pve/testdata/small.site")
	if err != nil {
		t.Fatal(err)
	}
	v, err := opstest.New(string(base) + "\n" + more)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestScalars(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int64
	}{
		{`101`, 101}, {`"101"`, 101}, {`1.125899906842624e+15`, 1125899906842624}, {`"1.125899906842624e+15"`, 1125899906842624}, {`42268934144`, 42268934144},
		{`null`, 0}, {`""`, 0}, {`"abc"`, 0}, {`-5`, -5}, {`2.0`, 2}, {`9007199254740993`, 9007199254740993}, {`1e400`, 0}, {`{}`, 0},
	} {
		var n Int
		if err := json.Unmarshal([]byte(c.in), &n); err != nil || int64(n) != c.want {
			t.Errorf("Int of %s is %d (%v), want %d", c.in, n, err, c.want)
		}
		if got := raw(c.in).int(); c.in != `{}` && c.in != `null` && got != c.want {
			t.Errorf("raw int of %s is %d, want %d", c.in, got, c.want)
		}
	}
	for in, want := range map[string]bool{`1`: true, `"1"`: true, `true`: true, `0`: false, `"0"`: false, `""`: false, `null`: false} {
		var v Bool
		if err := json.Unmarshal([]byte(in), &v); err != nil || bool(v) != want {
			t.Errorf("Bool of %s is %v (%v)", in, v, err)
		}
	}
	c := Config{"a": "1", "b": "1,fstrim_cloned_disks=1", "c": "enabled=1", "d": "0", "e": "enabled=0,x=1", "f": ""}
	for key, want := range map[string]bool{"a": true, "b": true, "c": true, "d": false, "e": false, "f": false, "absent": false} {
		if c.On(key) != want {
			t.Errorf("%s is on: %v, want %v", key, !want, want)
		}
	}
}

func TestGuest(t *testing.T) {
	lag := `GET /nodes/pve1/qemu/110/config {"name":"brandnew","digest":"x"}`
	v := site(t, lag)
	inv, err := Load(t.Context(), v, "")
	if err != nil {
		t.Fatal(err)
	}
	inv.Guests = append(inv.Guests, Guest{ID: "110", Number: 110, Kind: VM, Node: "pve1", Status: "unknown"})
	inv.order()
	for _, c := range []struct{ name, id, want string }{
		{"101", "101", ""}, {"web", "101", ""}, {" Web ", "101", ""}, {"brandnew", "110", ""},
		{"twin", "", `2 guests are called "twin": CT 201 on pve1 (stopped), VM 202 on pve2 (stopped)`},
		{"99", "", `near it: VM 101 (web)`}, {"wbe", "", `near it: VM 101 (web)`}, {"", "", `no guest is given`}, {"101/../102", "", `no guest "101/../102"`},
	} {
		g, err := inv.Guest(t.Context(), v, c.name)
		switch {
		case c.want == "" && (err != nil || g.ID != c.id):
			t.Errorf("%q is %s, %v; want %s", c.name, g.ID, err, c.id)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q: error %v, want %q", c.name, err, c.want)
		}
	}
	if g, ok := inv.ByID("300"); !ok || !g.NodeOff || g.Status != "unknown" {
		t.Errorf("guest of the lost node: %+v", g)
	}
	if g, _ := inv.ByID("102"); g.MaxDisk != 1125899906842624 {
		t.Errorf("a petabyte became %d", g.MaxDisk)
	}
}

func TestBounded(t *testing.T) {
	inv, err := parse([]byte(`[{"type":"qemu","vmid":1,"name":"a\u001b[31mb\nc","tags":"` + strings.Repeat("x", 5000) + `","node":"p\u202e"}]`))
	if err != nil {
		t.Fatal(err)
	}
	g := inv.Guests[0]
	if g.Name != "a\uFFFD[31mb\uFFFDc" || len(g.Tags) != 1 || len(g.Tags[0]) != 1024 || g.Node != "p\uFFFD" {
		t.Errorf("taken as %q %q %d", g.Name, g.Node, len(g.Tags[0]))
	}
}

func TestDescribe(t *testing.T) {
	v := site(t, "")
	var refs []gate.Reference
	for _, o := range []gate.Object{{Kind: gate.ObjectGuest, ID: "101"}, {Kind: gate.ObjectGuest, ID: "999"}, {Kind: gate.ObjectVolume, ID: "fast:vm-101-disk-0"},
		{Kind: gate.ObjectVolume, ID: "local:iso/x.iso"}, {Kind: gate.ObjectVolume, ID: "fast:vm-999-disk-0"}, {Kind: gate.ObjectStorage, ID: "nas"}, {Kind: gate.ObjectStorage, ID: "nope"},
		{Kind: gate.ObjectNode, ID: "pve3"}, {Kind: gate.ObjectNode, ID: "pve9"}, {Kind: gate.ObjectPool, ID: "a"}, {Kind: gate.ObjectUnknown, ID: "?"}} {
		refs = append(refs, gate.Reference{Object: o, Use: gate.UseActs, Param: "p"})
	}
	got, err := New().Describe(t.Context(), v, "lab", refs)
	if err != nil {
		t.Fatal(err)
	}
	var known []bool
	for i, f := range got {
		known = append(known, f.Known)
		if f.Object != refs[i].Object {
			t.Errorf("fact %d is about %s, asked was %s", i, f.Object, refs[i].Object)
		}
	}
	if d := cmp.Diff([]bool{true, false, true, true, false, true, false, true, false, true, false}, known); d != "" {
		t.Errorf("known (-want +got)\n%s", d)
	}
	if d := cmp.Diff([]string{"team/dev", "team"}, got[0].Pools); d != "" {
		t.Errorf("pools (-want +got)\n%s", d)
	}
	if !slices.Equal(got[2].Tags, []string{"prod", "web"}) {
		t.Errorf("a guest's volume has tags %v", got[2].Tags)
	}
	if n := len(v.Asked()); n != 1 {
		t.Errorf("%d reads for it: %v", n, v.Asked())
	}
}

func TestOwnerOf(t *testing.T) {
	for volume, want := range map[string]string{
		"200/vm-200-disk-0.raw": "200", "vm-101-disk-0": "101", "101/base-101-disk-0.raw/102/vm-102-disk-0.qcow2": "102", "subvol-202-disk-0": "202",
		"backup/vzdump-lxc-200-2026_11_29-12_03_43.tar.zst": "200", "backup/vm/101/2026-01-01T00:00:00Z": "101", "iso/debian-13.iso": "", "vztmpl/x-100-y.tar.zst": "",
		"base-101-disk-0/vm-103-disk-1": "103", "": "",
	} {
		if got := OwnerOf(volume); got != want {
			t.Errorf("owner of %s is %q, want %q", volume, got, want)
		}
	}
}

// TestLasting: what tells a guest for months is what stays as it is moved, and the node's own time tells what is later.
func TestLasting(t *testing.T) {
	given := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	v := site(t, `GET /nodes/pve1/tasks?limit=1&source=all&vmid=101 [{"upid":"UPID:a","type":"qmstart","starttime":1700000000}]`)
	for _, c := range []struct {
		id   string
		want []string
	}{
		{"101", []string{`VM 101 still has SMBIOS uuid 4a35242f-4e1c-411b-8dee-8676ab23dfc9 equals`, `no guest 101 was created, restored or destroyed after 2023-11-14T22:13:20Z absent 1700000000`}},
		{"200", []string{`CT 200 still has MAC address BC:24:11:7B:08:67 equals`, `no guest 200 was created, restored or destroyed after 2026-03-01T12:00:00Z absent 1772366400`}},
		{"201", nil}, // neither uuid nor address
	} {
		known, err := New().Lasting(t.Context(), v, "lab", c.id, given)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, k := range known {
			got = append(got, strings.TrimSpace(k.Name+" "+string(k.Rule)+" "+k.Read.Params["since"]))
			if k.Read.Params["node"] != gate.NodeOf(c.id) {
				t.Errorf("%s is read where the guest was: %v", k.Name, k.Read.Params)
			}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("guest %s (-want +got)\n%s", c.id, d)
		}
	}
	if known, err := New().Lasting(t.Context(), v, "lab", "999", given); err == nil {
		t.Errorf("a guest that is not there is told by %v", known)
	}
}

func TestIdentity(t *testing.T) {
	v := site(t, `GET /nodes/pve1/tasks?limit=500&source=all&vmid=101 [{"upid":"UPID:a","type":"qmstart"},{"upid":"UPID:b","type":"qmcreate"},{"upid":"UPID:c","type":"qmdestroy"}]`)
	conditions, without, err := New().Identity(t.Context(), v, "lab", []gate.Object{{Kind: gate.ObjectGuest, ID: "101"}, {Kind: gate.ObjectGuest, ID: "201"}, {Kind: gate.ObjectGuest, ID: "999"}, {Kind: gate.ObjectNode, ID: "pve1"}})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"guest/201", "guest/999", "node/pve1"}, without); d != "" {
		t.Errorf("without identity (-want +got)\n%s", d)
	}
	var names []string
	for _, c := range conditions {
		mark := ""
		if c.Identity {
			mark = "identity: "
		}
		names = append(names, mark+c.Name+" "+string(c.Rule)+" "+string(c.Value))
	}
	want := []string{
		`identity: VM 101 still has SMBIOS uuid 4a35242f-4e1c-411b-8dee-8676ab23dfc9 equals "4a35242f-4e1c-411b-8dee-8676ab23dfc9"`,
		`identity: no guest 101 was created, restored or destroyed since equals "UPID:b"`,
		`CT 201 still has root volume fast:vm-201-disk-0 equals "fast:vm-201-disk-0"`,
		`no guest 201 was created, restored or destroyed since absent `,
		`no guest has the id 999 absent `,
	}
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("conditions (-want +got)\n%s", d)
	}
}

func TestNodeOf(t *testing.T) {
	v := site(t, "")
	if node, err := New().NodeOf(t.Context(), v, "lab", "102"); err != nil || node != "pve2" {
		t.Errorf("102 is on %q, %v", node, err)
	}
	if _, err := New().NodeOf(t.Context(), v, "lab", "998"); err == nil || gate.AsError(err).Kind != gate.ErrNotFound {
		t.Errorf("998: %v", err)
	}
}

// FuzzParse holds the scanner to what a JSON decoder reads.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`[]`, `null`, `[{"type":"qemu","vmid":101,"name":"a\"b","x":{"y":["]",1]},"tags":"a;b"}]`, `[{"type":"lxc","vmid":"7"},{}]`, `{"a":1}`, `[1]`, `[{"a":`,
		`[{"type":"qemu","name":"ü\\"}]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var rows []map[string]any
		valid := json.Unmarshal(data, &rows) == nil
		inv, err := parse(data)
		if !valid || slices.ContainsFunc(rows, func(m map[string]any) bool { return m == nil }) {
			return // whatever comes out of it, it must come out
		}
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		guests := 0
		for _, r := range rows {
			if r["type"] == "qemu" || r["type"] == "lxc" {
				guests++
			}
		}
		if len(inv.Guests) != guests && !slices.ContainsFunc(rows, strangeKeys) {
			t.Fatalf("%s: %d guests, a decoder reads %d", data, len(inv.Guests), guests)
		}
	})
}

// strangeKeys: escaped or repeated keys, which no server sends, are read differently.
func strangeKeys(m map[string]any) bool {
	b, err := json.Marshal(m)
	return err != nil || strings.Contains(string(b), `\`) || len(m) > 0 && m["type"] == nil
}
