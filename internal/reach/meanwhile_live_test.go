package reach_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestMeanwhile changes what a name in a plan stands for after it was planned: what is carried out is what was approved, or nothing.
func TestMeanwhile(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	type change struct {
		method, path string
		form         map[string]string
	}
	for _, c := range []struct {
		name    string
		op      string
		params  m
		before  change
		between []change
		want    string
	}{
		{"an alias becomes everything", "POST /cluster/firewall/rules", m{"type": "in", "action": "ACCEPT", "source": "dc/made", "enable": 1},
			change{"POST", "/cluster/firewall/aliases", map[string]string{"name": "made", "cidr": "10.1.0.0/24"}},
			[]change{{"PUT", "/cluster/firewall/aliases/made", map[string]string{"cidr": "0.0.0.0/0"}}}, "hit more than was approved"},
		{"a storage lies elsewhere", "POST /nodes/{node}/qemu/{vmid}/move_disk", m{"node": "pve1", "vmid": 103, "disk": "scsi0", "storage": "made", "delete": 1},
			change{"POST", "/storage", map[string]string{"storage": "made", "type": "dir", "path": "/mnt/made", "content": "images"}},
			[]change{{"DELETE", "/storage/made", nil}, {"POST", "/storage", map[string]string{"storage": "made", "type": "nfs", "server": "203.0.113.9", "export": "/x", "content": "images"}}}, "storage made is still dir /mnt/made"},
		{"a storage that a curated operation names", "clone_guest", m{"guest": "103", "storage": "made"},
			change{"POST", "/storage", map[string]string{"storage": "made", "type": "dir", "path": "/mnt/made", "content": "images"}},
			[]change{{"DELETE", "/storage/made", nil}, {"POST", "/storage", map[string]string{"storage": "made", "type": "dir", "path": "/mnt/other", "content": "images"}}}, "storage made is still dir /mnt/made"},
		{"a device is another one", "PUT /nodes/{node}/qemu/{vmid}/config", m{"node": "pve1", "vmid": 103, "hostpci0": "mapping=made"},
			change{"POST", "/cluster/mapping/pci", map[string]string{"id": "made", "map": "node=pve1,path=0000:01:00.0,id=8086:1234"}},
			[]change{{"PUT", "/cluster/mapping/pci/made", map[string]string{"map": "node=pve1,path=0000:00:1f.2,id=8086:9999"}}}, "pci mapping made still stands for"},
		{"a folder is another one", "PUT /nodes/{node}/qemu/{vmid}/config", m{"node": "pve1", "vmid": 103, "virtiofs0": "made"},
			change{"POST", "/cluster/mapping/dir", map[string]string{"id": "made", "map": "node=pve1,path=/srv/public"}},
			[]change{{"PUT", "/cluster/mapping/dir/made", map[string]string{"map": "node=pve1,path=/etc"}}}, "dir mapping made still stands for"},
		{"nothing happens", "POST /nodes/{node}/qemu/{vmid}/move_disk", m{"node": "pve1", "vmid": 103, "disk": "scsi0", "storage": "local-lvm", "delete": 1},
			change{"PUT", "/storage/local-lvm", map[string]string{"content": "images"}}, []change{{"PUT", "/storage/local-lvm", map[string]string{"content": "images,rootdir"}}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			h.behind(c.before.method, c.before.path, c.before.form)
			ask, args := "call_operation", m{"operation": c.op, "params": c.params}
			if !strings.Contains(c.op, " ") {
				ask, args = c.op, c.params
			}
			out, err := h.Plan(t.Context(), ask, args)
			if err != nil {
				t.Fatal(err)
			}
			p := out.Plan
			for _, b := range c.between {
				h.behind(b.method, b.path, b.form)
			}
			if strings.Contains(c.op, "firewall") {
				time.Sleep(16 * time.Second) // what was read of the site as a whole may be 15 seconds old
			}
			out, err = h.Apply(t.Context(), p)
			got := fmt.Sprint(err)
			if err == nil {
				got = fmt.Sprint(out.Status, out.Receipt.Steps)
			}
			if c.want == "" && !strings.HasPrefix(got, "done") || !strings.Contains(got, c.want) {
				t.Errorf("%s, want %q", got, c.want)
			}
		})
	}
}
