package catalog

import (
	"slices"
	"strings"
	"testing"

	"castellan/internal/gate"
)

// TestValuesThatLookHarmless: what reaches further than its name says is judged by what it reaches, and what only looks
// dangerous is not.
func TestValuesThatLookHarmless(t *testing.T) {
	c := newTestCatalog(t)
	const config, create = "PUT /nodes/{node}/qemu/{vmid}/config", "POST /nodes/{node}/qemu"
	for _, tc := range []struct {
		id    string
		args  map[string]any
		has   []gate.Kind
		hasNo []gate.Kind
	}{
		// The folder owns a file, whatever that is called.
		{config, map[string]any{"scsi1": "local:200/vm-101-disk-0.qcow2"}, []gate.Kind{gate.KindData}, nil},
		{config, map[string]any{"scsi1": "local:101/vm-101-disk-0.qcow2"}, []gate.Kind{gate.KindConfig}, []gate.Kind{gate.KindData}},
		{config, map[string]any{"scsi1": "local:200/base-200-disk-0.qcow2/101/vm-101-disk-0.qcow2"}, []gate.Kind{gate.KindConfig}, []gate.Kind{gate.KindData}},
		// A medium is a file of installation media, not any volume that is called one.
		{config, map[string]any{"ide2": "local-lvm:precious,media=cdrom"}, []gate.Kind{gate.KindData}, nil},
		{config, map[string]any{"ide2": "local:iso/debian.iso,media=cdrom"}, []gate.Kind{gate.KindConfig}, []gate.Kind{gate.KindData}},
		{config, map[string]any{"ivshmem": "size=32,name=other"}, []gate.Kind{gate.KindHost}, nil},
		{"PUT /nodes/{node}/lxc/{vmid}/config", map[string]any{"cmode": "shell"}, []gate.Kind{gate.KindGuard}, nil},
		{"PUT /nodes/{node}/lxc/{vmid}/config", map[string]any{"cmode": "tty"}, []gate.Kind{gate.KindConfig}, []gate.Kind{gate.KindGuard}},
		{"POST /nodes/{node}/lxc", map[string]any{"ostemplate": "local:vztmpl/x.tar.gz", "features": "mount=nfs"}, []gate.Kind{gate.KindGuard}, nil},
		{"POST /nodes/{node}/lxc", map[string]any{"ostemplate": "local:vztmpl/x.tar.gz", "features": "nesting=1"}, nil, []gate.Kind{gate.KindGuard}},
		// Names that end in a digit and have no index.
		{config, map[string]any{"smbios1": "manufacturer=x"}, []gate.Kind{gate.KindConfig}, []gate.Kind{gate.KindData, gate.KindExec}},
		{config, map[string]any{"audio0": "device=AC97"}, []gate.Kind{gate.KindConfig}, []gate.Kind{gate.KindData, gate.KindExec}},
		{create, map[string]any{"efidisk0": "local-lvm:1,efitype=4m", "tpmstate0": "local-lvm:1,version=v2.0"}, []gate.Kind{gate.KindCreate}, []gate.Kind{gate.KindData, gate.KindSin}},
		{create, map[string]any{"efidisk0": "local-lvm:vm-200-disk-0"}, []gate.Kind{gate.KindData}, nil},
		// What a job does later is its doing.
		{"POST /cluster/backup", map[string]any{"vmid": "101", "schedule": "daily", "remove": 0, "mailto": "a@example.org"}, []gate.Kind{gate.KindGuard, gate.KindSend}, nil},
		{"POST /cluster/backup", map[string]any{"vmid": "101", "schedule": "daily", "remove": 0, "mode": "stop"}, []gate.Kind{gate.KindReboot}, nil},
	} {
		op, ok := c.Lookup("pve", tc.id)
		if !ok {
			t.Fatalf("no operation %s", tc.id)
		}
		if op.Facts.Params["node"] != nil {
			tc.args["node"] = "pve1"
		}
		if tc.args["vmid"] == nil {
			tc.args["vmid"] = 101
		}
		r, problems := c.Check(op, tc.args)
		if len(problems) > 0 {
			t.Errorf("%s %v: %v", tc.id, tc.args, problems)
			continue
		}
		got := c.Judge(op, r).Kinds
		for _, k := range tc.has {
			if !slices.Contains(got, k) {
				t.Errorf("%s %v: kinds %v lack %s", tc.id, tc.args, got, k)
			}
		}
		for _, k := range tc.hasNo {
			if slices.Contains(got, k) {
				t.Errorf("%s %v: kinds %v have %s", tc.id, tc.args, got, k)
			}
		}
	}
}

// TestNestedCallsCarryNoSecret: the text of a batch is shown and recorded.
func TestNestedCallsCarryNoSecret(t *testing.T) {
	c := newTestCatalog(t)
	op, _ := c.Lookup("pve", "POST /nodes/{node}/execute")
	const secret = "Sup3rs3cret"
	_, problems := c.Check(op, map[string]any{"node": "pve1",
		"commands": `[{"method":"POST","path":"qemu/101/agent/set-user-password","args":{"username":"root","password":"` + secret + `"}}]`})
	if len(problems) == 0 {
		t.Fatal("a password inside a nested call is taken")
	}
	for _, p := range problems {
		if strings.Contains(p.Error(), secret) {
			t.Errorf("the refusal repeats it: %v", p)
		}
	}
	if _, problems = c.Check(op, map[string]any{"node": "pve1", "commands": `[{"method":"POST","path":"qemu/101/status/start","args":{"timeout":10}}]`}); len(problems) > 0 {
		t.Errorf("a harmless batch: %v", problems)
	}
}
