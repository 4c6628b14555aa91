package catalog

import "testing"

func BenchmarkCheckRead(b *testing.B) {
	c := open(b)
	op := lookup(b, c, "pve", "GET /nodes/{node}/qemu/{vmid}/config")
	for b.Loop() {
		r, problems := c.Check(op, map[string]any{"node": "pve1", "vmid": 100})
		if len(problems) > 0 {
			b.Fatal(problems)
		}
		c.References(op, r)
		c.SecretFields(op)
		if _, err := c.Encode(r, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheckWrite(b *testing.B) {
	c := open(b)
	op := lookup(b, c, "pve", setVM)
	for b.Loop() {
		r, problems := c.Check(op, guest(map[string]any{"net0": "virtio,bridge=vmbr0", "memory": 4096, "delete": "net1,tags", "scsi1": "local:8"}))
		if len(problems) > 0 {
			b.Fatal(problems)
		}
		c.References(op, r)
		c.Privileges(op, r)
	}
}

func BenchmarkDecode(b *testing.B) {
	for b.Loop() {
		if len(open(b).Operations("pve")) == 0 {
			b.Fatal("nothing decoded")
		}
	}
}
