package undo

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"castellan/internal/catalog"
	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
)

func TestValues(t *testing.T) {
	for _, c := range []struct {
		raw         string
		scalar      string
		ok          bool
		shown       string
		hidden, arg bool
	}{
		{``, "", false, "", false, false},
		{`null`, "", false, "", false, false},
		{`""`, "", false, "", false, false},
		{`"  "`, "", false, "", false, false},
		{`"a"`, "a", true, "a", false, true},
		{`"a\n"`, "a\n", true, "a", false, true},
		{`1`, "1", true, "1", false, true},
		{` 2.5`, "2.5", true, "2.5", false, true},
		{`true`, "1", true, "1", false, true},
		{`false`, "0", true, "0", false, true},
		{`12345678901234567890`, "12345678901234567890", true, "12345678901234567890", false, true},
		{`"**********"`, "", false, "**********", true, false},
		{`"(secret, 4 bytes)"`, "", false, "(secret, 4 bytes)", true, false},
		{`["a","b"]`, "", false, `["a","b"]`, false, true},
		{`{"a":1}`, "", false, `{"a":1}`, false, true},
	} {
		raw := rawJSON(c.raw)
		text, ok := scalar(raw)
		_, arg := value(raw)
		if text != c.scalar || ok != c.ok || shown(raw) != c.shown || hidden(raw) != c.hidden || arg != c.arg {
			t.Errorf("%s: %q %t, shown %q, hidden %t, an argument %t", c.raw, text, ok, shown(raw), hidden(raw), arg)
		}
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`1`, `"1"`, true}, {`true`, `1`, true}, {`false`, `"0"`, true}, {``, `""`, true}, {`null`, ``, true}, {`"a"`, `"a\n"`, true},
		{`"a"`, `"A"`, false}, {`0`, ``, false}, {`1`, `2`, false}, {`"1.0"`, `1`, false}, {`[1]`, `[2]`, false}, {`"["`, `[]`, false},
	} {
		if got := same(rawJSON(c.a), rawJSON(c.b)); got != c.same || same(rawJSON(c.b), rawJSON(c.a)) != got {
			t.Errorf("%s and %s: same is %t", c.a, c.b, got)
		}
	}
}

func TestFlat(t *testing.T) {
	for _, c := range []struct {
		value string
		want  []any
	}{
		{`"a"`, nil},
		{`["a",1]`, []any{"a,1", "a;1"}},
		{`[]`, []any{"", ""}},
		{`[["a"]]`, nil},
		{`[{"a":1}]`, nil},
		{`{"b":true,"a":"x","c":["d","e"]}`, []any{"a=x,b=1,c=d;e"}},
		{`{"a":{"b":1}}`, nil},
		{`{"a":[{"b":1}]}`, nil},
	} {
		v, _ := value(rawJSON(c.value))
		if d := cmp.Diff(c.want, flat(v)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.value, d)
		}
	}
}

func TestKeysOfDisks(t *testing.T) {
	for _, c := range []struct {
		key          string
		unused, disk bool
	}{
		{"unused0", true, false}, {"unused12", true, false}, {"unused", false, false}, {"unusedx", false, false},
		{"scsi0", false, true}, {"virtio15", false, true}, {"sata1", false, true}, {"ide2", false, true}, {"efidisk0", false, true}, {"tpmstate0", false, true},
		{"rootfs", false, true}, {"mp3", false, true}, {"scsihw", false, false}, {"scsi", false, false}, {"net0", false, false}, {"mp", false, false}, {"", false, false},
	} {
		if unusedDisk(c.key) != c.unused || diskName(c.key) != c.disk {
			t.Errorf("%q: unused %t, disk %t", c.key, unusedDisk(c.key), diskName(c.key))
		}
	}
	for text, want := range map[string]bool{"local-lvm:8": true, "file=local-lvm:8,cache=none": true, "local-lvm:8.5": true, "local-lvm:vm-1-disk-0": false, "none,media=cdrom": false,
		"local:iso/a.iso": false, "local-lvm:": false, "": false} {
		if newVolume(text) != want {
			t.Errorf("%q asks for a new volume: %t", text, !want)
		}
	}
}

func TestSmallWords(t *testing.T) {
	for _, c := range [][2]string{
		{pointer("a/b~c"), "/a~1b~0c"},
		{where("/nodes/{node}/qemu/{vmid}/config", map[string]string{"node": gate.NodeOf("101"), "vmid": "101"}), "nodes/qemu/101/config"},
		{strings.Join(listed("a, b;c\td\x00e"), "|"), "a|b|c|d|e"},
		{strings.Join(placeholders("/nodes/{node}/qemu/{vmid}/config"), "|"), "node|vmid"},
		{pathOf("PUT /a/{b}"), "/a/{b}"},
		{plain("Yes"), "1"}, {plain("off"), "0"}, {plain("8"), "8"}, {plain("ä"), "ä"},
		{orText("", "b"), "b"}, {orText("a", "b"), "a"},
		{stamp(rawJSON(`1700000000`)), "2023-11-14T22:13:20Z"}, {stamp(rawJSON(`"now"`)), "an unknown time"},
	} {
		if c[0] != c[1] {
			t.Errorf("%q, want %q", c[0], c[1])
		}
	}
	for _, c := range []struct {
		text, name string
		want       bool
	}{{"10.0.0.1,office", "office", true}, {"+dc/Office", "office", true}, {"office2", "office", false}, {"my-office", "office", false}, {"", "office", false}} {
		if mentions(c.text, c.name) != c.want {
			t.Errorf("%q mentions %q: %t", c.text, c.name, !c.want)
		}
	}
}

// TestNoWay: no operation that undo can handle is called hopeless, and the hopeless are.
func TestNoWay(t *testing.T) {
	for id, hopeless := range map[string]bool{
		"PUT /cluster/sdn": true, "PUT /nodes/{node}/network": true, "DELETE /nodes/{node}/network": true, "POST /cluster/sdn/rollback": true, "PUT /access/password": true,
		"POST /nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback": true, "PUT /nodes/{node}/qemu/{vmid}/resize": true, "POST /nodes/{node}/qemu/{vmid}/template": true,
		"PUT /nodes/{node}/network/{iface}": false, "PUT /cluster/sdn/zones/{zone}": false, "POST /nodes/{node}/qemu/{vmid}/snapshot": false, "PUT /storage/{storage}": false,
	} {
		if got := noWay(id) != ""; got != hopeless {
			t.Errorf("%s: %q", id, noWay(id))
		}
	}
	for path, want := range map[string]bool{"/storage/{storage}": true, "/cluster/backup/{id}": true, "/nodes/{node}/qemu/{vmid}/config": true, "/cluster/sdn/zones/{zone}": true,
		"/access/users/{userid}": true, "/access/tfa/{userid}": false, "/cluster/ha/resources/{sid}/migrate": false, "/nodes/{node}/qemu/{vmid}/agent/exec": false, "/nodes/{node}/status": false, "/access/password": false} {
		if keeps(path) != want {
			t.Errorf("%s is kept: %t", path, !want)
		}
	}
}

// TestWhyItDestroys: where its class alone makes a request one that destroys, the sentence says for what it counts as that, and
// never that something is lost which stays.
func TestWhyItDestroys(t *testing.T) {
	c, err := catalog.New(catalog.Config{Facts: facts.Open()})
	if err != nil {
		t.Fatal(err)
	}
	k := &Keeper{Config{Catalog: c}}
	const all = "what is destroyed does not come back"
	for _, tc := range []struct {
		product, id string
		args        map[string]any
		want        string // begins so
	}{
		{"pve", "POST /nodes/{node}/vzdump", map[string]any{"node": "a", "vmid": "101", "mode": "stop"}, "it counts as destroying since it may delete older archives"},
		{"pve", "POST /nodes/{node}/vzdump", map[string]any{"node": "a", "vmid": "101", "remove": 0, "prune-backups": "keep-last=1"}, "it counts as destroying since it may delete older archives"},
		{"pve", "POST /nodes/{node}/vzdump", map[string]any{"node": "a", "vmid": "101", "remove": 0}, "no call is known"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/move_disk", map[string]any{"node": "a", "vmid": 101, "disk": "scsi0", "storage": "bb", "delete": 1}, "it counts as destroying since the volume that the disk leaves"},
		{"pve", "POST /nodes/{node}/lxc/{vmid}/move_volume", map[string]any{"node": "a", "vmid": 201, "volume": "rootfs", "storage": "bb", "delete": 1}, "it counts as destroying since the volume that the disk leaves"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/move_disk", map[string]any{"node": "a", "vmid": 101, "disk": "scsi0", "target-vmid": 102, "target-disk": "scsi1", "delete": 1}, all},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/move_disk", map[string]any{"node": "a", "vmid": 101, "disk": "scsi0", "target-vmid": 102, "delete": 1}, all},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/move_disk", map[string]any{"node": "a", "vmid": 101, "disk": "scsi0", "storage": "bb"}, "no call is known"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/remote_migrate", map[string]any{"node": "a", "vmid": 101, "target-bridge": "vmbr0", "target-storage": "ss", "target-endpoint": "host=a,apitoken=b", "delete": 1}, "it counts as destroying since the guest is deleted here"},
		{"pve", "DELETE /nodes/{node}/qemu/{vmid}", map[string]any{"node": "a", "vmid": 101}, all},
		{"pve", "DELETE /nodes/{node}/storage/{storage}/prunebackups", map[string]any{"node": "a", "storage": "ss"}, all},
		{"pve", "POST /nodes/{node}/disks/initgpt", map[string]any{"node": "a", "disk": "/dev/sdb"}, all},
		{"pve", "POST /nodes/{node}/qemu", map[string]any{"node": "a", "vmid": 101, "archive": "ss:backup/vzdump-qemu-101-2026_01_01-00_00_00.vma", "force": 1}, "it counts as destroying for "},
	} {
		op, ok := c.Lookup(tc.product, tc.id)
		if !ok {
			t.Fatalf("there is no %s", tc.id)
		}
		req, problems := c.Check(op, tc.args)
		if len(problems) > 0 {
			t.Fatalf("%s: %v", tc.id, problems)
		}
		r := &request{k: k, step: gate.Step{API: &req, Judgement: c.Judge(op, req)}, op: op}
		if got := r.nothingKnown(); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s %v: %s", tc.id, tc.args, got)
		}
	}
}

// TestLists: what happened to a list is told from what it was and is, and going back ends where it began.
func TestLists(t *testing.T) {
	element := rapid.SampledFrom([]string{"a", "b", "c", "d"}) // few, so that some are alike
	rapid.Check(t, func(t *rapid.T) {
		was := rapid.SliceOfN(element, 1, 7).Draw(t, "list")
		from, to := rapid.IntRange(0, len(was)-1).Draw(t, "from"), rapid.IntRange(0, len(was)-1).Draw(t, "to")
		without := slices.Delete(slices.Clone(was), from, from+1)
		if p, ok := oneMore(was, without); !ok || !slices.Equal(slices.Delete(slices.Clone(was), p, p+1), without) {
			t.Fatalf("%v without %d: %d %t", was, from, p, ok)
		} else if at, ok := between(without, neighbour(without, p-1), neighbour(without, p)); ok && !slices.Equal(slices.Insert(slices.Clone(without), at, was[p]), was) {
			t.Fatalf("%v: put between %d, it is another list than %v", without, at, was)
		}
		moved := slices.Insert(slices.Clone(without), to, was[from])
		if !slices.Equal(moved, was) {
			if f, o, ok := oneMoved(was, moved); !ok || !slices.Equal(slices.Insert(slices.Delete(slices.Clone(moved), o, o+1), f, moved[o]), was) {
				t.Fatalf("%v to %v: %d to %d %t", was, moved, f, o, ok)
			}
		}
		other := slices.Clone(was)
		other[to] = "new"
		if p, ok := oneOther(was, other); !ok || p != to {
			t.Fatalf("%v to %v: %d %t", was, other, p, ok)
		}
		if _, ok := oneOther(was, was); ok {
			t.Fatal("nothing changed, and something is told")
		}
	})
	for _, c := range []struct {
		long, short string
		ok          bool
	}{{"ab", "a", true}, {"abc", "ac", true}, {"aab", "ab", true}, {"abc", "ba", false}, {"abc", "xy", false}} {
		if _, ok := oneMore(strings.Split(c.long, ""), strings.Split(c.short, "")); ok != c.ok {
			t.Errorf("%s from %s: %t", c.long, c.short, ok)
		}
	}
	for _, c := range []struct {
		list, left, right string
		at                int
		ok                bool
	}{{"abc", "a", "b", 1, true}, {"abc", "", "a", 0, true}, {"abc", "c", "", 3, true}, {"abc", "a", "c", 0, false}, {"abab", "a", "b", 3, false}, {"", "", "", 0, true}} {
		list := strings.Split(c.list, "")
		if c.list == "" {
			list = nil
		}
		if at, ok := between(list, c.left, c.right); ok != c.ok || ok && at != c.at {
			t.Errorf("%s between %q and %q: %d %t", c.list, c.left, c.right, at, ok)
		}
	}
}

func row(t *testing.T, text string) map[string]rawJSON {
	t.Helper()
	var out map[string]rawJSON
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRows(t *testing.T) {
	entry := row(t, `{"path":"/vms/1","type":"user","ugid":"a@pve","roleid":"PVEAuditor","propagate":1}`)
	for _, c := range []struct {
		before, after map[string]rawJSON
		want          map[string]any
	}{
		{entry, nil, map[string]any{"path": "/vms/1", "users": "a@pve", "roles": "PVEAuditor", "propagate": "1"}},
		{nil, entry, map[string]any{"path": "/vms/1", "users": "a@pve", "roles": "PVEAuditor", "delete": "1"}},
		{row(t, `{"path":"/","type":"token","ugid":"a@pve!t","roleid":"R"}`), entry, map[string]any{"path": "/", "tokens": "a@pve!t", "roles": "R", "propagate": "0"}},
		{row(t, `{"path":"/","type":"group","ugid":"g","roleid":"R","propagate":"0"}`), nil, map[string]any{"path": "/", "groups": "g", "roles": "R", "propagate": "0"}},
	} {
		got := map[string]any{}
		if err := aclRow(got, c.before, c.after); err != nil {
			t.Error(err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	if err := aclRow(map[string]any{}, row(t, `{"type":"robot"}`), nil); err == nil || !strings.Contains(err.Error(), "robot") {
		t.Errorf("an entry of an unknown type: %v", err)
	}
	for _, c := range []struct {
		row   string
		added bool
		want  map[string]any
	}{
		{`{"vmid":101,"type":"qemu"}`, true, map[string]any{"vms": "101", "delete": "1"}},
		{`{"vmid":101,"type":"qemu"}`, false, map[string]any{"vms": "101"}},
		{`{"storage":"nas","type":"storage"}`, true, map[string]any{"storage": "nas", "delete": "1"}},
	} {
		got := map[string]any{}
		poolRow(got, row(t, c.row), c.added)
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.row, d)
		}
	}
	named := byName([]string{"type", "vmid", "storage"}, gate.Image{Rows: []map[string]rawJSON{row(t, `{"vmid":101,"type":"qemu"}`), row(t, `{"storage":"nas","type":"storage"}`)}})
	if d := cmp.Diff([]string{"qemu 101", "storage nas"}, unionOf(named, named)); d != "" {
		t.Error(d)
	}
	if content(row(t, `{"a":1,"pos":3,"digest":"x"}`)) != content(row(t, `{"digest":"y","pos":0,"a":"1"}`)) {
		t.Error("where a rule stands is taken for what it says")
	}
	if content(row(t, `{"a":1}`)) == content(row(t, `{"a":2}`)) {
		t.Error("two rules are one")
	}
}

// backOf is a back whose step is this request.
func backOf(t *testing.T, operation string, params map[string]string) *back {
	t.Helper()
	c, err := catalog.New(catalog.Config{Facts: facts.Open()})
	if err != nil {
		t.Fatal(err)
	}
	r := gate.Request{Product: "pve", Operation: operation}
	for _, k := range slices.Sorted(func(yield func(string) bool) {
		for k := range params {
			if !yield(k) {
				return
			}
		}
	}) {
		r.Params = append(r.Params, gate.Param{Name: k, Values: []gate.Value{{Text: params[k]}}})
	}
	return &back{k: &Keeper{Config{Catalog: c}}, product: "pve", target: "lab", step: gate.Step{Number: 1, API: &r}}
}

// TestWhatIsTheSteps: what the request did not name is not taken for its doing, and what it named is compared.
func TestWhatIsTheSteps(t *testing.T) {
	config := gate.Sheet{Update: "PUT /nodes/{node}/qemu/{vmid}/config"}
	for _, c := range []struct {
		operation string
		params    map[string]string
		sheet     gate.Sheet
		key       string
		named     bool
		after     string // JSON
		otherwise bool
	}{
		{"PUT /nodes/{node}/qemu/{vmid}/config", map[string]string{"cores": "4"}, config, "cores", true, `4`, false},
		{"PUT /nodes/{node}/qemu/{vmid}/config", map[string]string{"cores": "4"}, config, "cores", true, `"4"`, false},
		{"PUT /nodes/{node}/qemu/{vmid}/config", map[string]string{"cores": "4"}, config, "cores", true, `8`, true},
		{"PUT /nodes/{node}/qemu/{vmid}/config", map[string]string{"onboot": "1"}, config, "onboot", true, `true`, false},
		{"PUT /nodes/{node}/qemu/{vmid}/config", map[string]string{"onboot": "1"}, config, "onboot", true, `0`, true},
		{"PUT /nodes/{node}/qemu/{vmid}/config", map[string]string{"cores": "4"}, config, "memory", false, `512`, false},
		{"PUT /nodes/{node}/qemu/{vmid}/config", map[string]string{"delete": "cores, memory"}, config, "memory", true, ``, false},
		{"PUT /nodes/{node}/qemu/{vmid}/config", map[string]string{"revert": "memory"}, config, "memory", true, ``, false},
		{"PUT /nodes/{node}/qemu/{vmid}/config", map[string]string{"delete": "scsi1"}, config, "boot", true, `"order=scsi0"`, false},
		{"PUT /nodes/{node}/qemu/{vmid}/config", map[string]string{"delete": "description"}, config, "boot", false, `"order=scsi0"`, false},
		{"PUT /nodes/{node}/qemu/{vmid}/config", map[string]string{"description": "a"}, config, "description", true, `"other"`, false}, // text may be kept in another form
		{"PUT /nodes/{node}/network/{iface}", map[string]string{"cidr": "10.0.0.1/24"}, gate.Sheet{Update: "PUT /nodes/{node}/network/{iface}"}, "netmask", true, `"24"`, false},
		{"PUT /nodes/{node}/network/{iface}", map[string]string{"mtu": "1400"}, gate.Sheet{Update: "PUT /nodes/{node}/network/{iface}"}, "address", false, `"10.0.0.1"`, false},
	} {
		b := backOf(t, c.operation, c.params)
		if got := b.names(c.sheet, c.key); got != c.named {
			t.Errorf("%s %v names %s: %t", c.operation, c.params, c.key, got)
		}
		if _, got := b.otherwise(c.sheet, c.key, rawJSON(c.after)); got != c.otherwise {
			t.Errorf("%s %v, found %s: otherwise %t", c.operation, c.params, c.after, got)
		}
	}
	acl := backOf(t, "PUT /access/acl", map[string]string{"path": "/vms/1", "roles": "PVEAuditor,PVEVMUser", "users": "a@pve"})
	for text, own := range map[string]bool{
		`{"path":"/vms/1","type":"user","ugid":"a@pve","roleid":"PVEVMUser"}`: true,
		`{"path":"/vms/1","type":"user","ugid":"b@pve","roleid":"PVEVMUser"}`: false,
		`{"path":"/vms/1","type":"user","ugid":"a@pve","roleid":"PVEAdmin"}`:  false,
	} {
		if got := acl.ownRow(gate.Sheet{}, row(t, text)); got != own {
			t.Errorf("%s is its own: %t", text, got)
		}
	}
}

func TestMayBeUndone(t *testing.T) {
	step := func(s gate.StepState) []gate.StepRecord { return []gate.StepRecord{{State: s}} }
	for _, c := range []struct {
		state gate.PlanState
		steps []gate.StepRecord
		may   bool
	}{
		{gate.PlanDone, step(gate.StepDone), true}, {gate.PlanFailed, step(gate.StepDone), true}, {gate.PlanUnknown, step(gate.StepUnknown), true},
		{gate.PlanApplying, step(gate.StepDone), false}, {gate.PlanPaused, step(gate.StepDone), false}, {gate.PlanProposed, step(gate.StepPending), false},
		{gate.PlanWithdrawn, step(gate.StepPending), false}, {gate.PlanFailed, step(gate.StepFailed), false}, {gate.PlanStale, step(gate.StepSkipped), false},
		{gate.PlanFailed, []gate.StepRecord{{State: gate.StepFailed, Before: []gate.Image{{}}}}, true}, // a step that failed may have changed something
	} {
		err := mayBeUndone(&gate.PlanRecord{State: c.state, Steps: c.steps})
		if (err == nil) != c.may {
			t.Errorf("%s, %s: %v", c.state, c.steps[0].State, err)
		}
	}
}
