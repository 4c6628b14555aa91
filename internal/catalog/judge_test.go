package catalog

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"castellan/internal/gate"
)

func request(t testing.TB, product, id string, args map[string]any) gate.Request {
	t.Helper()
	r, err := gate.NewRequest(product, id, args)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// judged gives one request in a short form: "put product id | a=b c=d".
func judged(t testing.TB, c *Catalog, product, id string, args map[string]any) gate.Judgement {
	t.Helper()
	op, ok := c.Lookup(product, id)
	if !ok {
		t.Fatalf("%s %s is not in the catalogue", product, id)
	}
	for _, name := range op.Placeholders {
		if args[name] == nil {
			args[name] = map[string]string{"vmid": "101", "node": "pve1"}[name]
			if args[name] == "" {
				args[name] = "x1"
			}
		}
	}
	return c.Judge(op, request(t, product, id, args))
}

func listed[T ~string](list []T) string {
	var out []string
	for _, x := range list {
		out = append(out, string(x))
	}
	return strings.Join(out, " ")
}

type args = map[string]any

func TestJudgeByParameterAndValue(t *testing.T) {
	const (
		vmConf = "PUT /nodes/{node}/qemu/{vmid}/config"
		ctConf = "PUT /nodes/{node}/lxc/{vmid}/config"
		vmMake = "POST /nodes/{node}/qemu"
		ctMake = "POST /nodes/{node}/lxc"
		vzdump = "POST /nodes/{node}/vzdump"
		agent  = "POST /nodes/{node}/qemu/{vmid}/agent"
	)
	c := newTestCatalog(t)
	for _, test := range []struct {
		product, id string
		args        args
		classes     string
		kinds       string
		effect      gate.Effect
	}{
		{"pve", vmConf, args{"tags": "a;b"}, "", "config", "change"},
		{"pve", vmConf, args{"memory": 4096, "cores": 4}, "", "config", "change"},
		{"pve", vmConf, args{"hookscript": "local:snippets/x"}, "exec", "exec host", "execute"},
		{"pve", vmConf, args{"args": "-device x"}, "exec", "exec host", "execute"},
		{"pve", vmConf, args{"cicustom": "user=local:snippets/u"}, "exec", "exec", "execute"},
		{"pve", vmConf, args{"sshkeys": "ssh-ed25519"}, "exec", "exec", "execute"},
		{"pve", vmConf, args{"cipassword": "x"}, "sin exec", "sin exec", "execute"},
		{"pve", vmConf, args{"net0": "virtio,bridge=vmbr0,firewall=1"}, "net", "net", "change"},
		{"pve", vmConf, args{"net0": "virtio,bridge=vmbr0,firewall=0"}, "net guard", "net guard", "change"},
		{"pve", vmConf, args{"net0": "virtio,bridge=vmbr0"}, "net guard", "net guard", "change"},
		{"pve", vmConf, args{"net0": "virtio,firewall=1,firewall=0"}, "net guard", "net guard", "change"},
		{"pve", vmConf, args{"protection": false}, "guard", "guard", "change"},
		{"pve", vmConf, args{"protection": true}, "", "config", "change"},
		{"pve", vmConf, args{"delete": "protection"}, "guard", "guard", "change"},
		{"pve", vmConf, args{"delete": "tags"}, "", "config", "change"},
		{"pve", vmConf, args{"delete": "tags;net0"}, "net", "config net", "change"},
		{"pve", vmConf, args{"delete": "tags unused0"}, "data", "config data", "destroy"},
		{"pve", vmConf, args{"delete": "tags\x00unused0"}, "data", "config data", "destroy"},
		{"pve", vmConf, args{"delete": "scsi1"}, "", "config", "change"},
		{"pve", vmConf, args{"delete": "scsi1", "force": true}, "data", "config data", "destroy"},
		{"pve", vmConf, args{"delete": "nosuch"}, "data net sin exec guard", "net guard sin exec data", "destroy"},
		{"pve", vmConf, args{"skiplock": true}, "guard", "guard", "change"},
		{"pve", vmConf, args{"scsi0": "local-lvm:32,ssd=1"}, "", "config", "change"},
		{"pve", vmConf, args{"scsi0": "local-lvm:vm-101-disk-0,size=32G"}, "", "config", "change"},
		{"pve", vmConf, args{"scsi0": "local-lvm:vm-101-disk-0,backup=0"}, "guard", "config guard", "change"},
		{"pve", vmConf, args{"scsi1": "local-lvm:vm-999-disk-0"}, "data", "config data", "destroy"},
		{"pve", vmConf, args{"scsi1": "local:999/base-999-disk-0.qcow2/101/vm-101-disk-0.qcow2"}, "", "config", "change"},
		{"pve", vmConf, args{"scsi1": "file=local-lvm:vm-101-disk-0,volume=local-lvm:vm-999-disk-0"}, "data", "config data", "destroy"},
		{"pve", vmConf, args{"scsi1": "/dev/sda"}, "data exec", "config data host", "destroy"},
		{"pve", vmConf, args{"ide2": "local:iso/debian.iso,media=cdrom"}, "", "config", "change"},
		{"pve", vmConf, args{"ide2": "none,media=cdrom"}, "", "config", "change"},
		{"pve", vmConf, args{"ide2": "local-lvm:vm-999-disk-0,media=cdrom"}, "data", "config data", "destroy"},
		{"pve", vmConf, args{"scsi0": "local-lvm:vm-101-disk-0,newkey=1"}, "data net sin exec guard", "config net guard sin exec data", "destroy"},
		{"pve", vmConf, args{"hostpci0": "0000:01:00.0"}, "exec", "host", "execute"},
		{"pve", vmConf, args{"usb0": "spice"}, "", "config", "change"},
		{"pve", vmConf, args{"serial0": "socket"}, "", "config", "change"},
		{"pve", vmConf, args{"serial0": "/dev/ttyS0"}, "exec", "host", "execute"},
		{"pve", vmConf, args{}, "", "config", "change"},
		{"pve", ctConf, args{"mp0": "/etc,mp=/mnt"}, "data exec", "config data host", "destroy"},
		{"pve", ctConf, args{"features": "nesting=1"}, "guard", "config guard", "change"},
		{"pve", ctConf, args{"hostname": "a"}, "", "config", "change"},
		{"pve", ctConf, args{"dev0": "/dev/kvm"}, "exec", "host", "execute"},
		{"pve", ctConf, args{"env": "A=b"}, "exec", "exec", "execute"},

		{"pve", vmMake, args{"vmid": 200, "memory": 512, "net0": "virtio,bridge=vmbr0", "scsi0": "local-lvm:8"}, "", "create", "change"},
		{"pve", vmMake, args{"vmid": 200, "archive": "pbs:backup/vm/1"}, "", "restore", "change"},
		{"pve", vmMake, args{"vmid": 200, "archive": "pbs:backup/vm/1", "force": 1}, "data", "restore data", "destroy"},
		{"pve", vmMake, args{"vmid": 200, "start": 1}, "", "start create", "change"},
		{"pve", vmMake, args{"vmid": 200, "args": "x"}, "exec", "create exec host", "execute"},
		{"pve", ctMake, args{"vmid": 200, "ostemplate": "local:vztmpl/d.tar.zst", "password": "x"}, "sin", "create sin", "change"},
		{"pve", ctMake, args{"vmid": 200, "ostemplate": "/etc/shadow"}, "exec", "create exec host", "execute"},
		{"pve", ctMake, args{"vmid": 200, "ostemplate": "local:backup/vzdump-lxc-105-2026_01_01-00_00_00.tar.zst"}, "", "restore", "change"},
		{"pve", vmMake, args{"vmid": 200, "ha-managed": 1}, "", "create guard", "change"},
		{"pve", vmMake, args{"vmid": 200, "ha-managed": 0}, "", "create", "change"},
		{"pve", "PUT /cluster/options", args{"crs": "ha=static"}, "", "settings", "change"},
		{"pve", "PUT /cluster/options", args{"crs": "ha=dynamic,ha-auto-rebalance=1"}, "guard", "settings guard", "change"},
		{"pve", vmMake, args{"vmid": 200, "hostpci0": "mapping=gpu"}, "", "create guard", "change"},
		{"pve", vmMake, args{"vmid": 200, "virtiofs0": "share"}, "", "create guard", "change"},
		{"pve", vmMake, args{"vmid": 200, "usb0": "spice"}, "", "create", "change"},
		{"pve", "PUT /storage/{storage}", args{"storage": "pbs", "master-pubkey": "LS0t"}, "guard", "settings guard trust", "change"},

		{"pve", "POST /nodes/{node}/qemu/{vmid}/status/start", args{}, "power", "start", "change"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/status/start", args{"stateuri": "x"}, "power", "start power", "change"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/status/start", args{"skiplock": 1}, "power", "start stop", "change"},
		{"pve", "POST /nodes/{node}/lxc/{vmid}/status/shutdown", args{"timeout": 60}, "power", "shutdown", "change"},
		{"pve", "POST /nodes/{node}/lxc/{vmid}/status/shutdown", args{"forceStop": 1}, "power", "shutdown stop", "change"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/status/reset", args{}, "power", "stop", "change"},
		{"pdm", "POST /pve/remotes/{remote}/qemu/{vmid}/stop", args{}, "power", "stop", "change"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/migrate", args{"target": "pve2", "online": 1}, "power", "migrate", "change"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/migrate", args{"target": "pve2", "force": 1}, "power", "migrate power", "change"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/remote_migrate", args{"target-endpoint": "host=a,apitoken=b"}, "power sin ssrf trust", "migrate power ssrf sin trust", "change"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/remote_migrate", args{"target-endpoint": "host=a,apitoken=b", "delete": 1}, "data power sin ssrf trust", "migrate power ssrf sin data trust", "destroy"},
		{"pdm", "POST /pve/remotes/{remote}/qemu/{vmid}/remote-migrate", args{"target": "b"}, "power", "migrate power", "change"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/snapshot", args{"snapname": "a"}, "", "snapshot", "change"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback", args{}, "data", "rollback", "destroy"},
		{"pve", "DELETE /nodes/{node}/lxc/{vmid}/snapshot/{snapname}", args{}, "data", "delete_snapshot", "destroy"},
		{"pve", "PUT /nodes/{node}/qemu/{vmid}/resize", args{"disk": "scsi0", "size": "+5G"}, "", "grow", "change"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/clone", args{"newid": 300}, "", "clone", "change"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/move_disk", args{"disk": "scsi0", "storage": "b"}, "", "config", "change"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/move_disk", args{"disk": "scsi0", "storage": "b", "delete": 1}, "data", "config data", "destroy"},
		{"pve", "DELETE /nodes/{node}/qemu/{vmid}", args{}, "data", "data", "destroy"},

		{"pve", vzdump, args{"vmid": "101", "remove": 0}, "", "backup", "change"},
		{"pve", vzdump, args{"vmid": "101"}, "data", "backup data", "destroy"},
		{"pve", vzdump, args{"vmid": "101", "remove": 1}, "data", "backup data", "destroy"},
		{"pve", vzdump, args{"vmid": "101", "remove": 0, "mode": "stop"}, "power", "backup reboot", "change"},
		{"pve", vzdump, args{"vmid": "101", "remove": 0, "script": "/x"}, "exec", "backup exec host", "execute"},
		{"pve", "PUT /cluster/backup/{id}", args{"comment": "x"}, "guard", "guard", "change"},
		{"pve", "PUT /cluster/backup/{id}", args{"prune-backups": "keep-last=1"}, "data guard", "guard data", "destroy"},
		{"pve", "DELETE /cluster/replication/{id}", args{"keep": 1}, "cfgdel guard", "guard cfgdel", "destroy"},
		{"pve", "DELETE /cluster/replication/{id}", args{}, "data cfgdel guard", "guard cfgdel data", "destroy"},
		{"pve", "PUT /nodes/{node}/storage/{storage}/content/{volume}", args{"notes": "x"}, "", "settings", "change"},
		{"pve", "PUT /nodes/{node}/storage/{storage}/content/{volume}", args{"protected": 1}, "", "settings", "change"},
		{"pve", "PUT /nodes/{node}/storage/{storage}/content/{volume}", args{"protected": 0}, "guard", "guard", "change"},
		{"pve", "POST /nodes/{node}/storage/{storage}/download-url", args{"content": "iso", "filename": "a.iso", "url": "https://x"}, "file ssrf", "file ssrf", "change"},
		{"pve", "POST /nodes/{node}/storage/{storage}/download-url", args{"content": "vztmpl", "filename": "a", "url": "https://x"}, "exec file ssrf", "file ssrf exec", "execute"},
		{"pve", "PUT /cluster/options", args{"keyboard": "de"}, "", "settings", "change"},
		{"pve", "PUT /cluster/options", args{"delete": "keyboard,http_proxy"}, "ssrf", "settings ssrf", "change"},
		{"pve", "POST /cluster/mapping/dir", args{"id": "m", "map": "node=pve1,path=/etc"}, "", "guard", "change"},
		{"pve", "PUT /pools/{poolid}", args{"comment": "x"}, "", "settings", "change"},
		{"pve", "PUT /pools/{poolid}", args{"vms": "101"}, "ident", "ident", "change"},

		{"pve", "POST /access/domains/{realm}/sync", args{"dry-run": 1}, "", "read", "read"},
		{"pve", "POST /access/domains/{realm}/sync", args{"dry-run": 0}, "lock ident", "lock ident", "change"},
		{"pve", "POST /access/domains/{realm}/sync", args{}, "lock ident", "lock ident", "change"},
		{"pbs", "POST /admin/datastore/{store}/prune-datastore", args{"dry-run": true}, "", "read", "read"},
		{"pbs", "POST /admin/datastore/{store}/prune-datastore", args{"keep-last": 1}, "data", "data", "destroy"},
		{"pbs", "DELETE /config/datastore/{name}", args{}, "cfgdel", "cfgdel", "destroy"},
		{"pbs", "DELETE /config/datastore/{name}", args{"destroy-data": 1}, "data cfgdel", "cfgdel data", "destroy"},
		{"pbs", "PUT /config/sync/{id}", args{"remove-vanished": 1}, "data guard", "guard data", "destroy"},
		{"pbs", "PUT /config/sync/{id}", args{"comment": "x"}, "guard", "guard", "change"},
		{"pbs", "PUT /config/sync/{id}", args{"remote-store": "empty"}, "data guard", "guard data", "destroy"},
		{"pbs", "PUT /config/sync/{id}", args{"ns": "a/b"}, "data guard", "guard data", "destroy"},
		{"pbs", "PUT /config/sync/{id}", args{"remote-store": "empty", "remove-vanished": 0}, "guard", "guard", "change"},
		{"pbs", "PUT /config/sync/{id}", args{"delete": []any{"comment", "ns"}}, "data guard", "guard data", "destroy"},
		{"pbs", "PUT /config/sync/{id}", args{"delete": []any{"comment", "rate-in"}}, "guard", "guard", "change"},
		{"pbs", "POST /config/sync", args{"id": "s1", "store": "main", "remote": "far", "remote-store": "x"}, "guard", "guard", "change"},
		{"pdm", "PUT /config/views/{id}", args{"include-all": 1}, "", "guard", "change"},
		{"pbs", "GET /tape/media/destroy", args{"label-text": "x"}, "data", "data", "destroy"},
		{"pmg", "POST /quarantine/content", args{"action": "mark-seen", "id": "x"}, "", "settings", "change"},
		{"pmg", "POST /quarantine/content", args{"action": "delete", "id": "x"}, "data", "data", "destroy"},
		{"pmg", "POST /quarantine/content", args{"action": "other", "id": "x"}, "data send guard", "guard send data", "destroy"},

		{"pve", agent, args{"command": "ping"}, "", "read", "read"},
		{"pve", agent, args{"command": "shutdown"}, "power", "shutdown", "change"},
		{"pve", agent, args{"command": "other"}, "power sout exec", "power exec sout", "execute"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/agent/ping", args{}, "", "read", "read"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/agent/exec", args{"command": "id"}, "exec", "exec", "execute"},
		{"pve", "POST /nodes/{node}/execute", args{"commands": "[]"}, "data exec", "data host", "destroy"},
		{"pve", "PUT /nodes/{node}/disks/wipedisk", args{"disk": "/dev/sda"}, "data", "data host", "destroy"},

		{"pve", "GET /nodes/{node}/qemu/{vmid}/config", args{}, "", "read", "read"},
		{"pve", "GET /nodes/{node}/qemu/{vmid}/cloudinit/dump", args{"type": "user"}, "sout", "sout", "expose"},
		{"pve", "GET /nodes/{node}/tasks/{upid}/log", args{}, "", "read", "read"},
		{"pve", "GET /nodes/{node}/tasks/{upid}/log", args{"download": 1}, "file", "file", "change"},
		{"pve", "GET /nodes/{node}/journal", args{}, "sout", "private", "read"},
		{"pve", "GET /access/users", args{}, "sout", "private", "read"},
		{"pve", "GET /nodes/{node}/subscription", args{}, "sout", "private", "read"},
		{"pve", "GET /nodes/{node}/vncwebsocket", args{"port": 5900, "vncticket": "x"}, "sin console", "sin console", "execute"},
		{"pve", "POST /access/users/{userid}/token/{tokenid}", args{}, "ident sout", "ident sout", "expose"},
		{"pbs", "PUT /access/users/{userid}", args{"comment": "x"}, "lock ident", "lock ident", "change"},
		{"pbs", "PUT /access/users/{userid}", args{"password": "12345678"}, "lock ident sin", "lock sin ident", "change"},
		{"pve", "POST /access/ticket", args{"username": "a", "password": "b"}, "sin sout", "sin sout", "expose"},
		{"pmg", "GET /quarantine/link", args{"mail": "a@b"}, "sout", "sout", "expose"},
		{"pve", "GET /nodes/{node}/scan/nfs", args{"server": "x"}, "ssrf", "ssrf", "change"},
	} {
		name := fmt.Sprintf("%s %s %v", test.product, test.id, test.args)
		j := judged(t, c, test.product, test.id, test.args)
		if listed(j.Classes) != test.classes {
			t.Errorf("%s: classes %q, want %q", name, listed(j.Classes), test.classes)
		}
		if listed(j.Kinds) != test.kinds {
			t.Errorf("%s: kinds %q, want %q", name, listed(j.Kinds), test.kinds)
		}
		if j.Effect != test.effect {
			t.Errorf("%s: effect %q, want %q", name, j.Effect, test.effect)
		}
	}
}

// rung is the approval that a judgement takes.
func rung(j gate.Judgement) gate.Rung {
	worst := gate.RungNone
	for _, k := range j.Kinds {
		worst = max(worst, gate.RowOf(k).Rung)
	}
	return worst
}

// TestForeignOperationsAndParametersAreUnknown: what only a host's own description knows was judged by nobody.
func TestForeignOperationsAndParametersAreUnknown(t *testing.T) {
	c := newTestCatalog(t)
	known, _ := c.Lookup("pve", "PUT /nodes/{node}/qemu/{vmid}/config")
	op := *known
	op.ForeignParam = map[string]bool{"newkey": true}
	j := c.Judge(&op, request(t, "pve", op.ID, args{"node": "n", "vmid": 1, "newkey": "x"}))
	if !slices.Contains(j.Kinds, gate.KindUnknown) || len(j.Classes) != len(c.Classes(&op)) {
		t.Errorf("a foreign parameter counts as %v, %v", j.Classes, j.Kinds)
	}
	raised := *known
	raised.ForeignParam = map[string]bool{"vga=new": true, "scsi[n].ssd": true}
	for name, text := range map[string]string{"scsi0": "local-lvm:vm-101-disk-0,ssd=1", "vga": "new"} {
		j := c.Judge(&raised, request(t, "pve", op.ID, args{"node": "n", "vmid": 101, name: text}))
		if !slices.Contains(j.Kinds, gate.KindUnknown) {
			t.Errorf("a foreign key or value, %s=%s, counts as %v", name, text, j.Kinds)
		}
	}
	if j := c.Judge(&raised, request(t, "pve", op.ID, args{"node": "n", "vmid": 101, "vga": "std"})); slices.Contains(j.Kinds, gate.KindUnknown) {
		t.Errorf("a known value beside a foreign one counts as %v", j.Kinds)
	}
	read, _ := c.Lookup("pve", "GET /version")
	op = *read
	op.Foreign = true
	if j := c.Judge(&op, request(t, "pve", op.ID, args{})); !slices.Contains(j.Kinds, gate.KindUnknown) || j.Effect != gate.EffectDestroy {
		t.Errorf("a foreign read counts as %v, %v", j.Kinds, j.Effect)
	}
}
