package catalog

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
)

const (
	setVM    = "PUT /nodes/{node}/qemu/{vmid}/config"
	setCT    = "PUT /nodes/{node}/lxc/{vmid}/config"
	createVM = "POST /nodes/{node}/qemu"
)

// guest adds the placeholders of a guest's path.
func guest(args map[string]any) map[string]any {
	out := map[string]any{"node": "pve1", "vmid": 100}
	for k, v := range args {
		out[k] = v
	}
	return out
}

// sent renders a request's values for comparing, placeholders of guest paths left out.
func sent(r gate.Request) map[string]string {
	out := map[string]string{}
	for _, p := range r.Params {
		if p.Name == "node" || p.Name == "vmid" {
			continue
		}
		var texts []string
		for _, v := range p.Values {
			texts = append(texts, v.Text)
		}
		out[p.Name] = strings.Join(texts, " | ")
	}
	return out
}

func TestCheckPutsRight(t *testing.T) {
	c := open(t)
	for _, tc := range []struct {
		name, id string
		args     map[string]any
		want     map[string]string
	}{
		{"number as text", setVM, map[string]any{"cores": "4"}, map[string]string{"cores": "4"}},
		{"whole float of JSON", setVM, map[string]any{"cores": float64(4)}, map[string]string{"cores": "4"}},
		{"JSON number", setVM, map[string]any{"memory": json.Number("4096")}, map[string]string{"memory": "4096"}},
		{"true", setVM, map[string]any{"onboot": true}, map[string]string{"onboot": "1"}},
		{"True as text", setVM, map[string]any{"onboot": "True"}, map[string]string{"onboot": "1"}},
		{"off", setVM, map[string]any{"onboot": "off"}, map[string]string{"onboot": "0"}},
		{"switch as property string", setVM, map[string]any{"agent": true}, map[string]string{"agent": "1"}},
		{"object for a property string", setVM, map[string]any{"net0": map[string]any{"model": "virtio", "bridge": "vmbr0", "firewall": true, "tag": 7}},
			map[string]string{"net0": "virtio,bridge=vmbr0,firewall=1,tag=7"}},
		{"JSON text for a property string", setVM, map[string]any{"net0": `{"virtio":"BC:24:11:00:00:01","bridge":"vmbr0"}`},
			map[string]string{"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0"}},
		{"key alias", setVM, map[string]any{"net0": "bridge=vmbr0,model=virtio,macaddr=BC:24:11:00:00:01"},
			map[string]string{"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0"}},
		{"alias of the nameless key", setVM, map[string]any{"scsi0": "volume=local:100/vm-100-disk-0.raw,ssd=yes"},
			map[string]string{"scsi0": "local:100/vm-100-disk-0.raw,ssd=1"}},
		{"list as array", setVM, map[string]any{"delete": []any{"net1", "tags"}}, map[string]string{"delete": "net1,tags"}},
		{"list split at all separators", setVM, map[string]any{"delete": "net1; tags,description\tcores  net1"}, map[string]string{"delete": "net1,tags,description,cores"}},
		{"list split at NUL", setVM, map[string]any{"delete": "net1\x00tags"}, map[string]string{"delete": "net1,tags"}},
		{"tags", setCT, map[string]any{"tags": []any{"web", "db"}}, map[string]string{"tags": "web;db"}},
		{"tags as JSON text", setCT, map[string]any{"tags": `["web","db"]`}, map[string]string{"tags": "web;db"}},
		{"empty optional value", setCT, map[string]any{"features": "", "cores": 1}, map[string]string{"cores": "1"}},
		{"an empty description means something", setCT, map[string]any{"description": ""}, map[string]string{"description": ""}},
		{"list inside a property string", setVM, map[string]any{"boot": map[string]any{"order": []any{"scsi0", "net0"}}}, map[string]string{"boot": "order=scsi0;net0"}},
		{"startup", setVM, map[string]any{"startup": "down=60,2,up=30"}, map[string]string{"startup": "order=2,up=30,down=60"}},
		{"ssh keys", setVM, map[string]any{"sshkeys": "ssh-ed25519 AAAA+b me@x\n"}, map[string]string{"sshkeys": "ssh-ed25519%20AAAA%2Bb%20me%40x%0A"}},
		{"ssh keys already encoded", setVM, map[string]any{"sshkeys": "ssh-ed25519%20AAAA"}, map[string]string{"sshkeys": "ssh-ed25519%20AAAA"}},
		{"size of a new disk", createVM, map[string]any{"scsi0": "local-lvm:32G,ssd=1"}, map[string]string{"scsi0": "local-lvm:32,ssd=1"}},
		{"size of a new disk in TiB", createVM, map[string]any{"scsi0": "local-lvm:1TB"}, map[string]string{"scsi0": "local-lvm:1024"}},
		{"size of a new disk in MiB", createVM, map[string]any{"scsi0": "local-lvm:512M"}, map[string]string{"scsi0": "local-lvm:0.5"}},
		{"resize", "PUT /nodes/{node}/qemu/{vmid}/resize", map[string]any{"disk": "scsi0", "size": "+32gb"}, map[string]string{"disk": "scsi0", "size": "+32G"}},
		{"resize to", "PUT /nodes/{node}/qemu/{vmid}/resize", map[string]any{"disk": "scsi0", "size": "32 G"}, map[string]string{"disk": "scsi0", "size": "32G"}},
		{"arguments of a command", "POST /nodes/{node}/qemu/{vmid}/agent/exec", map[string]any{"command": []any{"sh", "-c", "a; b | c \"d e\"\n"}},
			map[string]string{"command": "sh | -c | a; b | c \"d e\"\n"}},
		{"a switch called delete", "PUT /pools", map[string]any{"poolid": "dev", "vms": "100", "delete": true}, map[string]string{"poolid": "dev", "vms": "100", "delete": "1"}},
		{"ids in a text", "POST /cluster/bulk-action/guest/shutdown", map[string]any{"vms": "200, 201"}, map[string]string{"vms": "200 | 201"}},
		{"ids in an array", "POST /cluster/bulk-action/guest/shutdown", map[string]any{"vms": []any{"200", json.Number("201")}}, map[string]string{"vms": "200 | 201"}},
	} {
		op := lookup(t, c, "pve", tc.id)
		args := tc.args
		if len(op.Placeholders) > 0 || op.Facts.Params["vmid"] != nil {
			args = guest(tc.args)
		}
		r, problems := c.Check(op, args)
		if len(problems) > 0 {
			t.Errorf("%s: %v", tc.name, problems)
			continue
		}
		if diff := cmp.Diff(tc.want, sent(r)); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	c := open(t)
	for _, tc := range []struct {
		id      string
		args    map[string]any
		param   string
		nearest string
	}{
		{setVM, map[string]any{"core": 1}, "core", "cores"},
		{setVM, map[string]any{"Cores": 1}, "Cores", "cores"},
		{setVM, map[string]any{"net32": "virtio"}, "net32", ""},
		{setVM, map[string]any{"net01": "virtio"}, "net01", ""},
		{setVM, map[string]any{"net1１": "virtio"}, "net1１", ""},
		{setVM, map[string]any{"net[n]": "virtio"}, "net[n]", "net0"},
		{setVM, map[string]any{"cores": "256.0"}, "cores", "256"},
		{setVM, map[string]any{"cores": 256.5}, "cores", "256"},
		{setVM, map[string]any{"cores": "1e3"}, "cores", ""},
		{setVM, map[string]any{"cores": "04"}, "cores", "4"},
		{setVM, map[string]any{"cores": "+4"}, "cores", "4"},
		{setVM, map[string]any{"cores": "４"}, "cores", ""},
		{setVM, map[string]any{"cores": " 4"}, "cores", ""},
		{setVM, map[string]any{"cores": "4\n"}, "cores", ""},
		{setVM, map[string]any{"cores": 0}, "cores", "1"},
		{setVM, map[string]any{"cores": nil}, "cores", ""},
		{setVM, map[string]any{"cores": []any{1, 2}}, "cores", ""},
		{setVM, map[string]any{"onboot": "maybe"}, "onboot", ""},
		{setVM, map[string]any{"bios": "uefi"}, "bios", ""},
		{setVM, map[string]any{"ostype": "linux26"}, "ostype", ""},
		{setVM, map[string]any{"ostype": "l2.6"}, "ostype", "l26"},
		{setVM, map[string]any{"name": "a_b"}, "name", ""},
		{setVM, map[string]any{"name": "web\n"}, "name", ""},
		{setVM, map[string]any{"hookscript": "local:snippets/../x"}, "hookscript", ""},
		{setVM, map[string]any{"net0": "virtio,bridge=vmbr0,bridge=vmbr1"}, "net0.bridge", ""},
		{setVM, map[string]any{"net0": "virtio=BC:24:11:00:00:01,model=e1000"}, "net0.model", ""},
		{setVM, map[string]any{"net0": "virtio,brigde=vmbr0"}, "net0.brigde", "bridge"},
		{setVM, map[string]any{"net0": "virtio,bridge="}, "net0.bridge", ""},
		{setVM, map[string]any{"net0": map[string]any{"model": "virtio", "bridge": "vmbr0,firewall=0"}}, "net0.bridge", ""},
		{setVM, map[string]any{"net0": map[string]any{"model": "virtio", "bridge": "vmbr0\nargs: -x"}}, "net0.bridge", ""},
		{setVM, map[string]any{"net0": "bridge=vmbr0"}, "net0.model", ""},
		{setVM, map[string]any{"net0": `{"model":"virtio","model":"e1000"}`}, "net0", ""},
		{setVM, map[string]any{"delete": []any{}}, "delete", ""},
		{setVM, map[string]any{"delete": ""}, "delete", ""},
		{setVM, map[string]any{"delete": ", ;"}, "delete", ""},
		{setVM, map[string]any{"delete": "net0,bogus"}, "delete[1]", ""},
		{setVM, map[string]any{"delete": "memry"}, "delete", "memory"},
		{setVM, map[string]any{"delete": "cores", "cores": 2}, "cores", ""},
		{setVM, map[string]any{"delete": "a\x00b,c"}, "delete", ""},
		{setVM, map[string]any{"description": "a\x00b"}, "description", ""},
		{setVM, map[string]any{"description": "a\u202eb"}, "description", ""},
		{setVM, map[string]any{"tags": "a b\x01"}, "tags[1]", ""},
		{setVM, map[string]any{"ipconfig0": "gw=10.0.0.1"}, "ipconfig0.gw", ""},
		{setVM, map[string]any{"scsi0": "local:+32G"}, "scsi0.file", "local:32"},
		{setVM, map[string]any{"scsi0": "local:100K"}, "scsi0.file", ""},
		{setVM, map[string]any{"vmid": "0100"}, "vmid", "100"},
		{setVM, map[string]any{"vmid": "web"}, "vmid", ""},
		{setVM, map[string]any{"node": "pve1/../pve2"}, "node", ""},
		{"PUT /nodes/{node}/qemu/{vmid}/resize", map[string]any{"disk": "scsi0", "size": "32"}, "size", "32G"},
		{"POST /nodes/{node}/vzdump", map[string]any{"vmid": "100", "all": 1}, "vmid", ""},
		{"POST /nodes/{node}/storage/{storage}/upload", map[string]any{"storage": "local", "content": "iso", "filename": "a.iso", "tmpfilename": "/etc/passwd"}, "tmpfilename", ""},
		{"POST /storage", map[string]any{"storage": "a", "type": "nfs", "server": "x", "export": "/a", "shared": 0}, "shared", ""},
		{"POST /cluster/ha/rules", map[string]any{"rule": "r1", "type": "node-affinity", "resources": "vm:100", "nodes": "pve1", "affinity": "positive"}, "affinity", ""},
		{"PUT /access/acl", map[string]any{"path": "/vms//100", "roles": "PVEAdmin", "users": "a@pve"}, "path", ""},
		{"PUT /access/acl", map[string]any{"path": "vms/100", "roles": "PVEAdmin", "users": "a@pve"}, "path", ""},
		{"GET /nodes/{node}/tasks/{upid}/status", map[string]any{"upid": "nonsense"}, "upid", ""},
		{"GET /nodes/{node}/tasks/{upid}/status", map[string]any{"upid": "x UPID:pve1:0000020F:00032057:6B0C1290:vzcreate:201:root@pam:"}, "upid", ""},
		{"POST /pools", map[string]any{}, "poolid", ""},
		{"GET /pools/{poolid}", map[string]any{"poolid": "team/dev"}, "poolid", ""},
		{"DELETE /nodes/{node}/storage/{storage}/content/{volume}", map[string]any{"storage": "local", "volume": "local:iso/../x"}, "volume", ""},
		{"DELETE /nodes/{node}/storage/{storage}/content/{volume}", map[string]any{"storage": "local", "volume": "local:iso//x"}, "volume", ""},
	} {
		op := lookup(t, c, "pve", tc.id)
		args := tc.args
		if strings.Contains(tc.id, "/nodes/") {
			args = guest(tc.args)
			if op.Facts.Params["vmid"] == nil {
				delete(args, "vmid")
			}
		}
		_, problems := c.Check(op, args)
		i := slices.IndexFunc(problems, func(p Problem) bool { return p.Param == tc.param })
		if i < 0 {
			t.Errorf("%s %v: no problem with %s: %v", tc.id, tc.args, tc.param, problems)
		} else if problems[i].Nearest != tc.nearest {
			t.Errorf("%s %v: nearest %q, want %q", tc.id, tc.args, problems[i].Nearest, tc.nearest)
		}
	}
}

func TestCheckSaysAllAtOnce(t *testing.T) {
	c := open(t)
	_, problems := c.Check(lookup(t, c, "pve", setCT), map[string]any{"node": "pve1", "memory": "abc", "cores": 9999, "bogus": 1})
	var names []string
	for _, p := range problems {
		names = append(names, p.Param)
	}
	if diff := cmp.Diff([]string{"bogus", "cores", "memory", "vmid"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestSharedIsLeftOutAndSaid(t *testing.T) {
	c := open(t)
	got := c.Examine(lookup(t, c, "pve", "POST /storage"), map[string]any{"storage": "nas", "type": "nfs", "server": "10.0.0.1", "export": "/a", "shared": true})
	if len(got.Problems) > 0 || got.Request.Get("shared") != nil {
		t.Fatal(got)
	}
	if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "shared") {
		t.Error(got.Notes)
	}
	got = c.Examine(lookup(t, c, "pve", "POST /storage"), map[string]any{"storage": "dd", "type": "dir", "path": "/a", "shared": true})
	if len(got.Problems) > 0 || got.Request.Text("shared") != "1" {
		t.Error("shared of a directory storage was not sent:", got)
	}
}

func TestSecretsDoNotShowInProblems(t *testing.T) {
	c := open(t)
	const secret = "hunter2hunter2"
	for _, tc := range []struct {
		id   string
		args map[string]any
	}{
		{"PUT /nodes/{node}/qemu/{vmid}/config", guest(map[string]any{"cipassword": secret + "\n"})},
		{"POST /nodes/{node}/qemu/{vmid}/remote_migrate", guest(map[string]any{"target-endpoint": "host=a,apitoken=" + secret + ",port=x"})},
		{"POST /nodes/{node}/qemu/{vmid}/remote_migrate", guest(map[string]any{"target-endpoint": "host=a," + secret + "=x"})},
		{"DELETE /access/tfa/{userid}/{id}", map[string]any{"userid": "a@pve", "id": "x", "password": secret + "\x00"}},
		{"POST /access/users", map[string]any{"userid": "a@pve", "password": []any{secret, secret}}},
	} {
		_, problems := c.Check(lookup(t, c, "pve", tc.id), tc.args)
		if len(problems) == 0 {
			t.Errorf("%s: no problem", tc.id)
		}
		if strings.Contains(fmt.Sprint(problems), secret) {
			t.Errorf("%s: %v", tc.id, problems)
		}
	}
}

// TestEverySettingThatHasAListCanBeUnset: what a description lists for delete is taken, one by one.
func TestEverySettingThatHasAListCanBeUnset(t *testing.T) {
	c := open(t)
	tried := 0
	for _, op := range c.All() {
		s := op.Facts.Params["delete"]
		if s == nil || s.Items == nil {
			continue
		}
		for _, e := range s.Items.Enum {
			tried++
			_, problems := c.Check(op, map[string]any{"delete": []any{e}})
			for _, p := range problems {
				if strings.HasPrefix(p.Param, "delete") {
					t.Errorf("%s %s: %v", op.Product, op.ID, p)
				}
			}
		}
	}
	if tried < 100 {
		t.Error("only", tried, "tried")
	}
}

func TestCheckLeavesTheArgumentsAlone(t *testing.T) {
	c := open(t)
	filesystem := map[string]any{"filesystem": "zfs", "ashift": "12"}
	args := map[string]any{"filesystem": filesystem}
	r, _ := c.Check(lookup(t, c, "pdm", "PUT /auto-install/prepared/{id}"), args)
	if diff := cmp.Diff(map[string]any{"filesystem": "zfs", "ashift": "12"}, filesystem); diff != "" {
		t.Error(diff)
	}
	if got := r.Text("filesystem"); got != `{"ashift":12,"filesystem":"zfs"}` {
		t.Error(got)
	}
}

func TestOtherProducts(t *testing.T) {
	c := open(t)
	for _, tc := range []struct {
		product, id string
		args        map[string]any
		want        map[string]string
		bad         string
	}{
		{"pbs", "PUT /access/users/{userid}", map[string]any{"userid": "a@pbs", "delete": []any{"comment", "email"}}, map[string]string{"userid": "a@pbs", "delete": "comment | email"}, ""},
		{"pbs", "PUT /access/users/{userid}", map[string]any{"userid": "a@pbs", "delete": "comment,email"}, map[string]string{"userid": "a@pbs", "delete": "comment | email"}, ""},
		{"pbs", "PUT /access/users/{userid}", map[string]any{"userid": "a@pbs", "delete": "nope"}, nil, "delete[0]"},
		{"pbs", "PUT /config/datastore/{name}", map[string]any{"name": "store1", "maintenance-mode": map[string]any{"type": "offline", "message": "back, soon \"now\""}},
			map[string]string{"name": "store1", "maintenance-mode": `offline,message="back, soon \"now\""`}, ""},
		{"pbs", "PUT /config/datastore/{name}", map[string]any{"name": "store1", "maintenance-mode": `type=offline,message="back`}, nil, "maintenance-mode.message"},
		{"pbs", "POST /config/access/openid", map[string]any{"realm": "sso", "client-id": "x", "issuer-url": "https://x", "scopes": []any{"email", "profile"}},
			map[string]string{"realm": "sso", "client-id": "x", "issuer-url": "https://x", "scopes": "email,profile"}, ""},
		{"pdm", "POST /auto-install/prepared", map[string]any{"id": "x"}, nil, "filesystem"},
		{"pmg", "PUT /access/users/{userid}", map[string]any{"userid": "a@pmg", "role": "boss"}, nil, "role"},
	} {
		r, problems := c.Check(lookup(t, c, tc.product, tc.id), tc.args)
		if tc.bad != "" {
			if !slices.ContainsFunc(problems, func(p Problem) bool { return p.Param == tc.bad }) {
				t.Errorf("%s %v: no problem with %s: %v", tc.id, tc.args, tc.bad, problems)
			}
			continue
		}
		if len(problems) > 0 {
			t.Errorf("%s: %v", tc.id, problems)
			continue
		}
		got := map[string]string{}
		for _, p := range r.Params {
			var texts []string
			for _, v := range p.Values {
				texts = append(texts, v.Text)
			}
			got[p.Name] = strings.Join(texts, " | ")
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.id, diff)
		}
	}
}

// eachSchema visits every value that any operation describes.
func eachSchema(c *Catalog, visit func(op *Operation, template string, s *facts.Schema)) {
	var walk func(op *Operation, template string, s *facts.Schema)
	walk = func(op *Operation, template string, s *facts.Schema) {
		visit(op, template, s)
		if s.Items != nil {
			walk(op, template+"[]", s.Items)
		}
		for _, b := range s.OneOf {
			walk(op, template, b)
		}
		for key, child := range s.Properties {
			walk(op, template+"."+key, child)
		}
		if p := op.properties(s); p != nil {
			for key, child := range p.props {
				walk(op, template+"."+key, child)
			}
		} else if s.Format != nil && s.Format.Schema != nil {
			walk(op, template+"[]", s.Format.Schema)
		}
	}
	for _, op := range c.All() {
		for name, s := range op.Facts.Params {
			walk(op, name, s)
		}
	}
}

func TestEveryPatternAndFormatIsChecked(t *testing.T) {
	c := open(t)
	missing := map[string]bool{}
	eachSchema(c, func(op *Operation, template string, s *facts.Schema) {
		if s.Pattern != "" {
			if _, known := c.patterns.match(s.Pattern, "x"); !known {
				missing["pattern "+s.Pattern] = true
			}
		}
		if s.Format == nil || s.Format.Name == "" || op.properties(s) != nil {
			return
		}
		k := &checker{cat: c, op: op}
		if item, _, isList := k.listFormat(field{template: template}, s); isList {
			s = item
		}
		name := strings.TrimSuffix(s.Format.Name, "-opt")
		if formatChecks()[name] == nil {
			missing["format "+name+" of "+template] = true
		}
	})
	for m := range missing {
		t.Error("no check for", m)
	}
}

func TestOddPatterns(t *testing.T) {
	var p patterns
	for _, tc := range []struct {
		pattern, text string
		want          bool
	}{
		{patternAtomicKeyValues, "+pcid,-md.clear", true},
		{patternAtomicKeyValues, "host,hidden=1", true},
		{patternAtomicKeyValues, "a,,b", false},
		{patternAtomicKeyValues, "a+b", false},
		{patternAtomicKeyValues, "a b", false},
		{patternAtomicKeyValues, "", false},
		{patternManyKeys, "x!y=", true},
		{patternManyKeys, strings.Repeat("a", 4097), false},
		{patternManyKeys, "a-b", false},
		{patternPosixPrint, "root@x (y)", true},
		{patternPosixPrint, "a\tb", false},
		{patternPosixPrint, strings.Repeat("a", 999), false},
		{`(?^:^[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}$)`, "8086:100e", true},
		{`(?^:^[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}$)`, "8086:100e\n", false},
		{`(?^i:[a-z]+)`, "AbC", true},
		{`(?:a|b)|none`, "nonex", false},
		{`[A-Za-z0-9\-_\s]{,16}`, "", true},
		{`[A-Za-z0-9\-_\s]{,16}`, strings.Repeat("a", 17), false},
		{`(?m)^([[:^cntrl:]]*)$`, "a\nb", true},
		{`(?m)^([[:^cntrl:]]*)$`, "a\x00\nb", false},
		{`^[[:^cntrl:]]*$`, "a]b", true},
		{`^[^\x00-\x1F\x7F <>#"]*$`, "a b", false},
	} {
		if got, known := p.match(tc.pattern, tc.text); got != tc.want || !known {
			t.Errorf("%s %q: %v %v", tc.pattern, tc.text, got, known)
		}
	}
}

// drawArg makes a value that may fit a schema, in one of the ways in which callers write values.
func drawArg(t *rapid.T, op *Operation, s *facts.Schema, depth int) any {
	if len(s.OneOf) > 0 {
		s = rapid.SampledFrom(s.OneOf).Draw(t, "branch")
	}
	if s.Type == "array" && s.Items != nil {
		var out []any
		for range rapid.IntRange(1, 3).Draw(t, "items") {
			out = append(out, drawArg(t, op, s.Items, depth+1))
		}
		return out
	}
	if p := op.properties(s); p != nil && !p.open && depth < 3 {
		out := map[string]any{}
		for _, key := range p.keys() {
			ks := p.props[key]
			if ks.Alias == "" && (!ks.Optional || rapid.IntRange(0, 3).Draw(t, "key") == 0) {
				out[key] = drawArg(t, op, ks, depth+1)
			}
		}
		return out
	}
	switch {
	case len(s.Enum) > 0:
		return rapid.SampledFrom(s.Enum).Draw(t, "enum")
	case s.Type == "boolean":
		return rapid.SampledFrom([]any{true, "false", 1, "on"}).Draw(t, "boolean")
	case s.Type == "integer", s.Type == "number":
		low := int64(0)
		if s.Minimum != nil {
			low, _ = s.Minimum.Int64()
		}
		n := low + rapid.Int64Range(0, 50).Draw(t, "number")
		return rapid.SampledFrom([]any{n, fmt.Sprint(n), json.Number(fmt.Sprint(n))}).Draw(t, "form")
	}
	return rapid.SampledFrom([]any{"pve1", "100", "local", "local:100/vm-100-disk-0.raw", "root@pam", "10.0.0.1", "10.0.0.0/24", "fd00::1", "/mnt/x", "a,b;c d", "web",
		"abc-def", "80:85", "32G", "BC:24:11:00:00:01", "http://a.b/c", "daily", "vm:100", "text with blanks", "a=b", "ab\"c", "0", "scsi0", "x\ny", "é"}).Draw(t, "text")
}

func drawArgs(t *rapid.T, op *Operation) map[string]any {
	args := map[string]any{}
	names := make([]string, 0, len(op.Facts.Params))
	for name := range op.Facts.Params {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		s := op.Facts.Params[name]
		if s.Type == "object" || s.Optional && rapid.IntRange(0, 5).Draw(t, "given") > 0 {
			continue
		}
		if len(s.Index) == 2 {
			name = strings.TrimSuffix(name, "[n]") + fmt.Sprint(rapid.IntRange(s.Index[0], s.Index[1]).Draw(t, "index"))
		}
		args[name] = drawArg(t, op, s, 0)
	}
	return args
}

// TestCheckIsStable: a checked request, given again, is the same request; and it can be sent.
func TestCheckIsStable(t *testing.T) {
	c := open(t)
	passed := 0
	rapid.Check(t, func(t *rapid.T) {
		op := rapid.SampledFrom(c.All()).Draw(t, "op")
		args := drawArgs(t, op)
		r, problems := c.Check(op, args)
		if len(problems) > 0 {
			// Keep what is right and try again.
			for _, p := range problems {
				name, _, _ := strings.Cut(p.Param, ".")
				name, _, _ = strings.Cut(name, "[")
				delete(args, name)
			}
			if r, problems = c.Check(op, args); len(problems) > 0 {
				return
			}
		}
		passed++
		again, problems := c.Check(op, argsOf(r))
		if len(problems) > 0 {
			t.Fatalf("%s: the checked request is refused: %v\n%v", op.ID, problems, r)
		}
		if diff := cmp.Diff(r, again); diff != "" {
			t.Fatalf("%s: %s", op.ID, diff)
		}
		if e, err := c.Encode(r, nil); err == nil && op.Method != MethodRun { // which no product reads
			sameForm(t, op, r, e)
			if id, _, err := productReads(c, op.Product, e.Method, e.Path); err != nil || id != op.ID {
				t.Fatalf("%s is sent as %s and read as %s %v", op.ID, e.Path, id, err)
			}
		}
		c.References(op, r)
		c.Privileges(op, r)
	})
	if passed == 0 {
		t.Error("no request passed")
	}
	t.Log(passed, "requests passed")
}

// sameForm: the form is read by PVE's rule (pairs end at & and ;, a second = cuts the value) as the values shown.
func sameForm(t *rapid.T, op *Operation, r gate.Request, e Encoded) {
	if e.ContentType == "application/json" {
		return
	}
	got := map[string][]string{}
	for _, pair := range strings.FieldsFunc(e.Query+e.Body, func(c rune) bool { return c == '&' || c == ';' }) {
		parts := strings.Split(pair, "=")
		key, err1 := url.QueryUnescape(parts[0])
		value, err2 := url.QueryUnescape(parts[1])
		if err1 != nil || err2 != nil {
			t.Fatalf("%s: %q is not well encoded", op.ID, pair)
		}
		got[key] = append(got[key], value)
	}
	want := map[string][]string{}
	for _, p := range r.Params {
		for _, v := range p.Values {
			if !slices.Contains(op.Placeholders, p.Name) {
				want[p.Name] = append(want[p.Name], v.Text)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s: %s", op.ID, diff)
	}
}

func argsOf(r gate.Request) map[string]any {
	args := map[string]any{}
	for _, p := range r.Params {
		if len(p.Values) == 1 {
			args[p.Name] = p.Values[0].Text
			continue
		}
		var list []any
		for _, v := range p.Values {
			list = append(list, v.Text)
		}
		args[p.Name] = list
	}
	return args
}
