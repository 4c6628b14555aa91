package gate

import "testing"

func TestPropertyValue(t *testing.T) {
	for _, c := range []struct {
		text, key, want string
		ok              bool
	}{
		{"virtio=BC:24:11:00:00:01,bridge=vmbr0", "bridge", "vmbr0", true},
		{"local:101/vm-101-disk-0.raw,size=8G", "-", "local:101/vm-101-disk-0.raw", true},
		{"virtio=BC:24:11:00:00:01,bridge=vmbr0", "-", "", false},
		{"order=scsi0;ide2;net0", "order", "scsi0;ide2;net0", true},
		{"1,fstrim_cloned_disks=1", "-", "1", true},
		{"", "bridge", "", false},
	} {
		if got, ok := PropertyValue(c.text, c.key); got != c.want || ok != c.ok {
			t.Errorf("PropertyValue(%q, %q) = %q, %v; want %q, %v", c.text, c.key, got, ok, c.want, c.ok)
		}
	}
}
