package catalog

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
)

// refs checks arguments and lists what they refer to, as "use kind/id (param)".
func refs(t *testing.T, c *Catalog, product, id string, args map[string]any) []string {
	t.Helper()
	op := lookup(t, c, product, id)
	r, problems := c.Check(op, args)
	if len(problems) > 0 {
		t.Fatalf("%s: %v", id, problems)
	}
	var out []string
	for _, ref := range c.References(op, r) {
		s := string(ref.Use) + " " + ref.Object.String()
		if ref.Object.Site != "" {
			s += "@" + ref.Object.Site
		}
		out = append(out, s+" ("+ref.Param+")")
	}
	return out
}

func TestReferences(t *testing.T) {
	c := open(t)
	batch := `[{"method":"PUT","path":"/nodes/pve1/qemu/105/config","args":{"onboot":0}},{"method":"GET","path":"bogus"}]`
	for _, tc := range []struct {
		name, product, id string
		args              map[string]any
		want              []string
	}{
		{"guest in the path", "pve", setVM, guest(map[string]any{"cores": 2}), []string{"names node/pve1 (node)", "acts guest/100 (vmid)"}},
		{"bridge and disk of another guest", "pve", setVM, guest(map[string]any{"net0": "virtio,bridge=vmbr1", "scsi1": "local:101/vm-101-disk-0.raw"}),
			[]string{"names bridge/vmbr1 (net0.bridge)", "names node/pve1 (node)", "names guest/101 (scsi1.file)", "names storage/local (scsi1.file)",
				"names volume/local:101/vm-101-disk-0.raw (scsi1.file)", "acts guest/100 (vmid)"}},
		{"a new disk is no volume yet", "pve", setVM, guest(map[string]any{"scsi1": "local:8"}),
			[]string{"names node/pve1 (node)", "names storage/local (scsi1.file)", "acts guest/100 (vmid)"}},
		{"import", "pve", setVM, guest(map[string]any{"scsi1": "local:0,import-from=local:102/base-102-disk-1.raw"}),
			[]string{"names node/pve1 (node)", "names storage/local (scsi1.file)", "names guest/102 (scsi1.import-from)", "names storage/local (scsi1.import-from)",
				"names volume/local:102/base-102-disk-1.raw (scsi1.import-from)", "acts guest/100 (vmid)"}},
		{"host path", "pve", setCT, guest(map[string]any{"mp0": "/etc,mp=/host"}),
			[]string{"names unknown//etc (mp0.volume)", "names node/pve1 (node)", "acts guest/100 (vmid)"}},
		{"mappings", "pve", setVM, guest(map[string]any{"hostpci0": "mapping=gpu", "usb1": "mapping=key", "virtiofs0": "share"}),
			[]string{"names acl//mapping/pci/gpu (hostpci0.mapping)", "names node/pve1 (node)", "names acl//mapping/usb/key (usb1.mapping)",
				"names acl//mapping/dir/share (virtiofs0.dirid)", "acts guest/100 (vmid)"}},
		{"tags", "pve", setCT, guest(map[string]any{"tags": "Web;db"}),
			[]string{"names node/pve1 (node)", "acts tag/db (tags)", "acts tag/web (tags)", "acts guest/100 (vmid)"}},
		{"all tags taken away", "pve", setCT, guest(map[string]any{"delete": "tags,description"}),
			[]string{"acts tag/* (delete)", "names node/pve1 (node)", "acts guest/100 (vmid)"}},
		{"clone", "pve", "POST /nodes/{node}/qemu/{vmid}/clone", guest(map[string]any{"newid": 200, "target": "pve2", "pool": "team/dev", "storage": "fast"}),
			[]string{"acts guest/200 (newid)", "names node/pve1 (node)", "acts pool/team/dev (pool)", "names storage/fast (storage)", "names node/pve2 (target)", "acts guest/100 (vmid)"}},
		{"migrate", "pve", "POST /nodes/{node}/qemu/{vmid}/migrate", guest(map[string]any{"target": "pve2", "targetstorage": "a1:b1,c1:d1"}),
			[]string{"names node/pve1 (node)", "names node/pve2 (target)", "names storage/a1 (targetstorage)", "names storage/b1 (targetstorage)", "names storage/c1 (targetstorage)",
				"names storage/d1 (targetstorage)", "acts guest/100 (vmid)"}},
		{"restore", "pve", "POST /nodes/{node}/lxc", map[string]any{"node": "pve1", "vmid": 300, "ostemplate": "local:backup/vzdump-lxc-205-2026_01_01-00_00_00.tar.zst", "restore": 1, "pool": "dev"},
			[]string{"names node/pve1 (node)", "names guest/205 (ostemplate)", "names storage/local (ostemplate)",
				"names volume/local:backup/vzdump-lxc-205-2026_01_01-00_00_00.tar.zst (ostemplate)", "acts pool/dev (pool)", "acts guest/300 (vmid)"}},
		{"volume deleted", "pve", "DELETE /nodes/{node}/storage/{storage}/content/{volume}", map[string]any{"node": "pve1", "storage": "local", "volume": "local:100/vm-100-disk-0.raw"},
			[]string{"names node/pve1 (node)", "names storage/local (storage)", "acts guest/100 (volume)", "names storage/local (volume)", "acts volume/local:100/vm-100-disk-0.raw (volume)"}},
		{"volume deleted without its storage", "pve", "DELETE /nodes/{node}/storage/{storage}/content/{volume}", map[string]any{"node": "pve1", "storage": "thin", "volume": "vm-101-disk-0"},
			[]string{"names node/pve1 (node)", "names storage/thin (storage)", "acts guest/101 (volume)", "names storage/thin (volume)", "acts volume/thin:vm-101-disk-0 (volume)"}},
		{"backup of a list", "pve", "POST /nodes/{node}/vzdump", map[string]any{"node": "pve1", "vmid": "100 101", "storage": "local"},
			[]string{"names node/pve1 (node)", "names storage/local (storage)", "acts guest/100 (vmid)", "acts guest/101 (vmid)"}},
		{"backup of all", "pve", "POST /nodes/{node}/vzdump", map[string]any{"node": "pve1", "all": 1},
			[]string{"acts site ()", "acts site (all)", "acts node/pve1 (node)"}},
		{"backup of a pool", "pve", "POST /cluster/backup", map[string]any{"pool": "dev", "schedule": "daily", "storage": "local"},
			[]string{"acts pool/dev (pool)", "names storage/local (storage)"}},
		{"bulk", "pve", "POST /cluster/bulk-action/guest/shutdown", map[string]any{"vms": []any{100, 101}}, []string{"acts guest/100 (vms)", "acts guest/101 (vms)"}},
		{"bulk without names", "pve", "POST /cluster/bulk-action/guest/shutdown", map[string]any{}, []string{"acts site ()"}},
		{"stop all", "pve", "POST /nodes/{node}/stopall", map[string]any{"node": "pve1"}, []string{"acts site ()", "acts node/pve1 (node)"}},
		{"pool members", "pve", "PUT /pools", map[string]any{"poolid": "dev", "vms": "100,101", "storage": "local"},
			[]string{"acts pool/dev (poolid)", "acts storage/local (storage)", "acts guest/100 (vms)", "acts guest/101 (vms)"}},
		{"access", "pve", "PUT /access/acl", map[string]any{"path": "/vms/100", "roles": "PVEAdmin", "users": "a@pve", "groups": "ops", "tokens": "a@pve!t1"},
			[]string{"acts user/ops (groups)", "acts acl//vms/100 (path)", "acts guest/100 (path)", "acts user/PVEAdmin (roles)", "names user/a@pve (tokens)",
				"acts user/a@pve!t1 (tokens)", "acts user/a@pve (users)"}},
		{"access to all", "pve", "PUT /access/acl", map[string]any{"path": "/", "roles": "PVEAdmin", "users": "a@pve"},
			[]string{"acts acl// (path)", "acts site (path)", "acts user/PVEAdmin (roles)", "acts user/a@pve (users)"}},
		{"access to a nested pool", "pve", "PUT /access/acl", map[string]any{"path": "/pool/team/dev", "roles": "PVEAdmin", "users": "a@pve"},
			[]string{"acts acl//pool/team/dev (path)", "acts pool/team/dev (path)", "acts user/PVEAdmin (roles)", "acts user/a@pve (users)"}},
		{"token", "pve", "DELETE /access/users/{userid}/token/{tokenid}", map[string]any{"userid": "a@pve", "tokenid": "t1"},
			[]string{"acts user/a@pve!t1 (tokenid)", "acts user/a@pve (userid)"}},
		{"high availability", "pve", "DELETE /cluster/ha/resources/{sid}", map[string]any{"sid": "vm:100"}, []string{"acts guest/100 (sid)"}},
		{"ha rule", "pve", "POST /cluster/ha/rules", map[string]any{"rule": "r1", "type": "node-affinity", "resources": "vm:100,ct:101", "nodes": "pve1:2,pve2"},
			[]string{"names node/pve1 (nodes)", "names node/pve2 (nodes)", "acts guest/100 (resources)", "acts guest/101 (resources)"}},
		{"replication", "pve", "DELETE /cluster/replication/{id}", map[string]any{"id": "100-0"}, []string{"acts guest/100 (id)"}},
		{"task", "pve", "DELETE /nodes/{node}/tasks/{upid}", map[string]any{"node": "pve1", "upid": "UPID:pve1:0000020F:00032057:6B0C1290:vzdump:201:root@pam!full:"},
			[]string{"names node/pve1 (node)", "acts guest/201 (upid)", "names node/pve1 (upid)"}},
		{"a backup job may have served others", "pve", "PUT /cluster/backup/{id}", map[string]any{"id": "job1", "vmid": "100"}, []string{"acts guest/100 (vmid)", "acts site ()"}},
		{"so may a rule", "pve", "PUT /cluster/ha/rules/{rule}", map[string]any{"rule": "r1", "type": "node-affinity", "resources": "vm:100"},
			[]string{"acts guest/100 (resources)", "acts site ()"}},
		{"far end of a migration", "pve", "POST /nodes/{node}/qemu/{vmid}/remote_migrate",
			guest(map[string]any{"target-endpoint": "host=10.0.0.9,apitoken=x", "target-bridge": "1", "target-storage": "a1:b1", "target-vmid": 500}),
			[]string{"names node/pve1 (node)", "names site/10.0.0.9 (target-endpoint.host)", "names storage/a1 (target-storage)", "names storage/b1 (target-storage)",
				"acts guest/500 (target-vmid)", "acts guest/100 (vmid)"}},
		{"nested calls", "pve", "POST /nodes/{node}/execute", map[string]any{"node": "pve1", "commands": batch},
			[]string{"acts guest/105 (commands)", "acts unknown//nodes/pve1/bogus (commands)", "names node/pve1 (commands)", "names node/pve1 (node)"}},
		{"cluster settings", "pve", "PUT /cluster/options", map[string]any{"keyboard": "de"}, []string{"acts site ()"}},
		{"firewall of the cluster", "pve", "POST /cluster/firewall/rules", map[string]any{"type": "in", "action": "DROP", "iface": "vmbr0"}, []string{"acts site ()"}},
		{"sdn", "pve", "POST /cluster/sdn/vnets", map[string]any{"vnet": "lan1", "zone": "z1"}, []string{"acts bridge/lan1 (vnet)", "acts zone/z1 (zone)"}},
		{"node network", "pve", "DELETE /nodes/{node}/network/{iface}", map[string]any{"node": "pve1", "iface": "vmbr0"}, []string{"acts bridge/vmbr0 (iface)", "names node/pve1 (node)"}},
		{"backup of a guest on PBS", "pbs", "DELETE /admin/datastore/{store}/snapshots",
			map[string]any{"store": "store1", "backup-type": "vm", "backup-id": "100", "backup-time": 1700000000, "ns": "a/b"},
			[]string{"acts guest/100 (backup-id)", "acts volume/store1:ns/a/ns/b/vm/100/1700000000 (backup-id)", "acts storage/store1 (store)"}},
		{"sync from a remote", "pbs", "POST /pull", map[string]any{"store": "store1", "remote": "other", "remote-store": "s2x"},
			[]string{"names site/other (remote)", "names storage/store1 (store)", "acts site ()"}},
		{"guest behind a remote", "pdm", "POST /pve/remotes/{remote}/qemu/{vmid}/stop", map[string]any{"remote": "site1", "vmid": 100},
			[]string{"names site/site1@site1 (remote)", "acts guest/100@site1 (vmid)"}},
	} {
		got := refs(t, c, tc.product, tc.id, tc.args)
		slices.Sort(got)
		want := slices.Clone(tc.want)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}

func TestUnresolvedReferencesAreTheWorst(t *testing.T) {
	c := open(t)
	op := lookup(t, c, "pve", "POST /nodes/{node}/qemu/{vmid}/migrate")
	r := gate.Request{Product: "pve", Operation: op.ID, Params: []gate.Param{
		{Name: "node", Values: []gate.Value{{Ref: &gate.Ref{Guest: "100", Plan: "pve1"}}}},
		{Name: "target", Values: []gate.Value{{Ref: &gate.Ref{Step: 1}}}},
		{Name: "vmid", Values: []gate.Value{{Text: "all"}}},
		{Name: "bogus", Values: []gate.Value{{Text: "x"}}},
	}}
	got := map[string]gate.ObjectKind{}
	for _, ref := range c.References(op, r) {
		got[ref.Param] = ref.Object.Kind
	}
	want := map[string]gate.ObjectKind{"node": gate.ObjectNode, "target": gate.ObjectUnknown, "vmid": gate.ObjectUnknown, "bogus": gate.ObjectUnknown}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// suggests tells names and formats that sound like a reference to something.
var suggests = regexp.MustCompile(`(?i)(?:^|[-_.])(?:vmid|vms|newid|guests?|nodes?|storages?|store|datastore|pools?|poolid|users?|userid|username|groups?|groupid|roles?|roleid|realm|tokens?|tokenid|token-name|` +
	`bridges?|vnet|zones?|volumes?|volid|target|source|remotes?|iface|interfaces?|tags|sid|owner|auth-?id|mapping|archive|ostemplate|upid|resources?|controller|fabric|fabric_id)$`)

// TestEverySuggestedReferenceIsDecided: what sounds like a reference is one, or a rule without a kind says that it is
// none.
func TestEverySuggestedReferenceIsDecided(t *testing.T) {
	c := open(t)
	undecided := map[string]int{}
	eachSchema(c, func(op *Operation, template string, s *facts.Schema) {
		name := leaf(template)
		byFormat := false
		if s.Format != nil && s.Format.Name != "" {
			_, byFormat = refFormats[strings.TrimSuffix(strings.TrimSuffix(s.Format.Name, "-list"), "-opt")]
		}
		if !suggests.MatchString(name) && !byFormat || s.Type == "boolean" || s.Alias != "" || s.Type == "object" {
			return
		}
		if kind, _ := op.reference(template, s); kind != "" {
			return
		}
		for _, r := range refRules { // reviewed to refer to nothing
			if r.kind == "" && (r.product == "" || r.product == op.Product) && (r.path == "" || strings.Contains(op.Path+"/", r.path)) && leaf(r.param) == name {
				return
			}
		}
		undecided[op.Product+" "+name+"  e.g. "+op.ID]++
	})
	for u := range undecided {
		t.Error("neither a reference nor a reviewed exception:", u)
	}
}

func TestGuestBinding(t *testing.T) {
	c := open(t)
	for _, tc := range []struct{ product, id, param, field string }{
		{"pve", "GET /nodes/{node}/qemu/{vmid}/config", "vmid", ""},
		{"pve", "GET /cluster/resources", "", "vmid"},
		{"pve", "GET /cluster/tasks", "", "id"},
		{"pve", "GET /nodes/{node}/lxc", "", "vmid"},
		{"pve", "GET /nodes/{node}/syslog", "", ""},
		{"pbs", "GET /admin/datastore/{store}/snapshots", "", ""},
	} {
		param, field, ok := c.GuestBinding(lookup(t, c, tc.product, tc.id))
		if param != tc.param || field != tc.field || ok != (tc.param+tc.field != "") {
			t.Errorf("%s: %q %q %v", tc.id, param, field, ok)
		}
	}
	for key := range rowFilters {
		product, id, _ := strings.Cut(key, " ")
		lookup(t, c, product, id)
	}
}

func TestEveryReferenceRuleIsNeeded(t *testing.T) {
	c := open(t)
	used := make([]bool, len(refRules))
	eachSchema(c, func(op *Operation, template string, s *facts.Schema) {
		for i, r := range refRules {
			if (r.product == "" || r.product == op.Product) && (r.path == "" || strings.Contains(op.Path+"/", r.path)) && leaf(r.param) == leaf(template) {
				used[i] = true
				return
			}
		}
	})
	for i, r := range refRules {
		if !used[i] {
			t.Errorf("rule %+v fits nothing", r)
		}
	}
}
