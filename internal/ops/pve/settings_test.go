package pve

import (
	"testing"

	"castellan/internal/estate"
)

func TestSameSetting(t *testing.T) {
	for _, c := range []struct {
		key, a, b string
		same      bool
	}{
		{"memory", "4096", "4096", true}, {"memory", "4096", "4096.0", true}, {"memory", "4096", "current=4096", true}, {"memory", "4096", "8192", false},
		{"description", "x\n", "x", true}, {"description", "x", "x y", false},
		{"tags", "web;db", "DB, web", true}, {"tags", "web", "web;db", false},
		{"net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0", "bridge=vmbr0,model=virtio,macaddr=bc:24:11:00:00:01", true},
		{"net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0", "virtio,bridge=vmbr0", false},
		{"net0", "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01", "hwaddr=bc:24:11:00:00:01,name=eth0,bridge=vmbr0", true},
		{"scsi0", "local:1/a.raw,size=1G,ssd=1", "file=local:1/a.raw,ssd=1,size=1G", true}, {"mp0", "local:1/a,mp=/x", "mp=/x,volume=local:1/a", true},
		{"agent", "1", "enabled=1", true}, {"agent", "1,fstrim_cloned_disks=1", "enabled=1", false},
		{"onboot", "", "0", true}, {"onboot", "1", "0", false}, {"protection", "0", "", true}, {"cores", "", "0", false},
		{"boot", " ", "", true}, {"name", "Web", "web", false}, {"hostname", "a", "a", true},
	} {
		if got := sameSetting(c.key, c.a, c.b); got != c.same {
			t.Errorf("%s: %q and %q are the same: %v", c.key, c.a, c.b, got)
		}
	}
}

func TestRootOnly(t *testing.T) {
	for _, c := range []struct {
		kind, key, value string
		only             bool
	}{
		{estate.VM, "args", "-x", true}, {estate.VM, "hookscript", "local:snippets/x", true}, {estate.VM, "serial0", "socket", false}, {estate.VM, "serial0", "/dev/ttyS0", true},
		{estate.VM, "hostpci0", "0000:01:00.0", true}, {estate.VM, "hostpci0", "mapping=gpu", false}, {estate.VM, "usb0", "host=spice", false}, {estate.VM, "usb0", "host=1234:5678", true},
		{estate.VM, "scsi0", "local:1/a.raw", false}, {estate.VM, "cores", "4", false},
		{estate.CT, "mp0", "/srv,mp=/srv", true}, {estate.CT, "mp0", "volume=/srv,mp=/srv", true}, {estate.CT, "mp0", "local:8,mp=/srv", false},
		{estate.CT, "features", "nesting=1", false}, {estate.CT, "features", "nesting=1,fuse=1", true}, {estate.CT, "dev0", "/dev/dri/card0", true}, {estate.CT, "memory", "512", false},
	} {
		if got := rootOnly(c.kind, c.key, c.value) != ""; got != c.only {
			t.Errorf("%s %s=%s is for root only: %v", c.kind, c.key, c.value, got)
		}
	}
}

func TestParseUPID(t *testing.T) {
	for in, want := range map[string]upid{
		"UPID:pve1:0000020F:00032057:6B0C1290:vzcreate:201:root@pam!full:": {node: "pve1", kind: "vzcreate", id: "201", user: "root@pam!full"},
		"UPID:pve1:0000020F:00032057:6B0C1290:vzdump::root@pam!full:":      {node: "pve1", kind: "vzdump", user: "root@pam!full"},
		"UPID:pve1:0000020F:00032057:6B0C1290:imgdel:200@local:root@pam:":  {node: "pve1", kind: "imgdel", id: "200@local", user: "root@pam"},
		"UPID:pve1:0000020F:00032057:6B0C1290:x:a:b:c:root@pam:":           {node: "pve1", kind: "x", id: "a:b:c", user: "root@pam"},
	} {
		got, err := parseUPID(in)
		got.start = want.start
		if err != nil || got != want {
			t.Errorf("%s is %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "UPID:", "UPID:pve1", "UPID::::::::", "pve1:0000020F:00032057:6B0C1290:vzcreate:201:root@pam:", "UPID:pve1:1:2:zz:t:1:u:", "UPID:pve1:1:2:3:t:1:u"} {
		if got, err := parseUPID(in); err == nil {
			t.Errorf("%q was taken as %+v", in, got)
		}
	}
}

func FuzzParseUPID(f *testing.F) {
	f.Add("UPID:pve1:0000020F:00032057:6B0C1290:vzcreate:201:root@pam!full:")
	f.Fuzz(func(t *testing.T, s string) {
		if u, err := parseUPID(s); err == nil && u.node == "" {
			t.Fatalf("%q has no node", s)
		}
	})
}

func FuzzProperties(f *testing.F) {
	f.Add("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0")
	f.Add("scsi0", ",,=,a=b=c")
	f.Fuzz(func(t *testing.T, key, value string) {
		if !sameSetting(key, value, value) {
			t.Fatalf("%s=%q is not the same as itself", key, value)
		}
		properties(key, value)
		rootOnly(estate.CT, key, value)
	})
}
