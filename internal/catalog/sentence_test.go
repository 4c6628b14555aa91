package catalog

import (
	"strings"
	"testing"
	"unicode/utf8"

	"castellan/internal/gate"
)

func TestSentences(t *testing.T) {
	c := newTestCatalog(t)
	for _, test := range []struct {
		product, id string
		args        args
		want        string
	}{
		{"pve", "POST /nodes/{node}/qemu/{vmid}/status/shutdown", args{"node": "pve1", "vmid": 101}, "Shut down VM 101 on node pve1"},
		{"pve", "POST /nodes/{node}/lxc/{vmid}/status/shutdown", args{"node": "pve1", "vmid": 200, "forceStop": 1, "timeout": 30},
			"Shut down CT 200 on node pve1 (forceStop=1, timeout=30)"},
		{"pve", "PUT /nodes/{node}/qemu/{vmid}/config", args{"node": "pve2", "vmid": 110, "memory": 4096, "cores": 4},
			"Set cores=4, memory=4096 of VM 110 on pve2"},
		{"pve", "PUT /nodes/{node}/qemu/{vmid}/config", args{"node": "pve2", "vmid": 110, "delete": "net1", "revert": "tags", "onboot": true},
			"Set onboot=1 and delete net1 and revert tags of VM 110 on pve2"},
		{"pve", "PUT /nodes/{node}/qemu/{vmid}/config", args{"node": "pve2", "vmid": 110, "description": "a, memory=1 of VM 1\nx"},
			`Set description="a, memory=1 of VM 1\nx" of VM 110 on pve2`},
		{"pve", "PUT /nodes/{node}/qemu/{vmid}/config", args{"node": "pve2", "vmid": 110, "cipassword": "hunter2"},
			"Set cipassword=(secret) of VM 110 on pve2"},
		{"pve", "PUT /nodes/{node}/qemu/{vmid}/config", args{"node": "pve2", "vmid": 110, "description": ""},
			`Set description="" of VM 110 on pve2`},
		{"pve", "DELETE /nodes/{node}/lxc/{vmid}/snapshot/{snapname}", args{"node": "pve1", "vmid": 200, "snapname": "before-upgrade"},
			"Delete snapshot before-upgrade of CT 200 on node pve1"},
		{"pve", "POST /nodes/{node}/vzdump", args{"node": "pve1", "vmid": "101,102", "storage": "pbs", "remove": false},
			"Back up guest 101,102 on node pve1 to storage pbs (remove=0)"},
		{"pve", "POST /nodes/{node}/vzdump", args{"node": "pve1", "all": true}, "Back up guests on node pve1 (all=1)"},
		{"pve", "DELETE /cluster/sdn/ipams/{ipam}", args{"ipam": "x y"}, `DELETE /cluster/sdn/ipams/"x y"`},
		{"pve", "PUT /cluster/sdn/zones/{zone}", args{"zone": "z1", "mtu": 1400}, "PUT /cluster/sdn/zones/z1 (mtu=1400)"},
		{"pbs", "PUT /access/acl", args{"path": "/", "role": "Admin", "delete": []string{"a", "b"}},
			"Change the access rights on path / (delete=[a, b], role=Admin)"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/remote_migrate", args{"node": "pve1", "vmid": 101,
			"target-endpoint": "host=10.0.0.1,apitoken=PVEAPIToken=a@pve!t=1234", "target-storage": "1", "target-bridge": "1"},
			"Migrate VM 101 from node pve1 to another cluster (target-bridge=1, target-endpoint=host=10.0.0.1,apitoken=(secret), target-storage=1)"},
	} {
		op, ok := c.Lookup(test.product, test.id)
		if !ok {
			t.Fatalf("%s is not in the catalogue", test.id)
		}
		if got := c.Sentence(op, request(t, test.product, test.id, test.args)); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func TestSentenceOfWhatIsNotKnownYet(t *testing.T) {
	c := newTestCatalog(t)
	op, _ := c.Lookup("pve", "POST /nodes/{node}/qemu/{vmid}/status/start")
	r := gate.Request{Product: "pve", Operation: op.ID, Params: []gate.Param{
		{Name: "node", Values: []gate.Value{{Ref: &gate.Ref{Guest: "101", Plan: "pve1"}}}},
		{Name: "vmid", Values: []gate.Value{{Ref: &gate.Ref{Step: 1, Pointer: "/vmid"}}}},
	}}
	want := "Start VM (/vmid of the result of step 1) on node pve1 (or where it is then)"
	if got := c.Sentence(op, r); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestLongValuesAreCutAndNamedByTheirHash: two values that differ only where they are cut stay apart.
func TestLongValuesAreCutAndNamedByTheirHash(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 500), strings.Repeat("é\u202e ", 300), strings.Repeat("\x00", 400), strings.Repeat("\xff", 300)} {
		a, b := shown(text), shown(text[:len(text)/2]+"y"+text[len(text)/2:])
		if a == b {
			t.Errorf("%.20q: a change in the middle does not show", text)
		}
		if n := utf8.RuneCountInString(a); n > longestShown {
			t.Errorf("%.20q: %d characters are shown", text, n)
		}
		if !strings.Contains(a, "sha256 ") {
			t.Errorf("%.20q: no hash in %s", text, a)
		}
	}
}
