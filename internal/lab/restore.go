package lab

import (
	"fmt"
	"strings"
	"time"
)

// restoreCT makes a container from an archive; what the call says wins over the archive.
func (c *call) restoreCT(vmid int, set map[string]string, def string, old *guest) any {
	s, tmpl := c.s, c.str("ostemplate")
	if old == nil {
		s.guests[vmid] = &guest{id: vmid, kind: kindLXC, node: c.node.name, conf: map[string]string{"lock": "create"}, pend: map[string]string{}, pdel: map[string]bool{}, created: s.now}
		c.joinPool(vmid)
	} else {
		old.conf["lock"] = "create"
	}
	g := s.guests[vmid]
	return c.quick("vzrestore", fmt.Sprint(vmid), 800*time.Millisecond, func(t *task) error {
		t.say("recovering backed-up configuration from '%s'", tmpl)
		a := s.vol(c.node.name, tmpl)
		if a == nil || a.archive == nil || a.archive.kind != kindLXC {
			if old == nil {
				s.forget(g, false)
			} else {
				delete(g.conf, "lock")
			}
			return die("unable to restore CT %d - volume '%s' does not exist", vmid, tmpl)
		}
		c.rebuild(t, g, a.archive, set, def, "rootdir")
		t.say("restoring '%s' now..", tmpl)
		t.say("extracting archive '%s'", s.pathOf(tmpl))
		t.say("Total bytes read: 3338240 (3.2MiB, 60MiB/s)")
		t.say("merging backed-up and given configuration..")
		s.touchNew(g)
		if c.flag("start") {
			s.bootGuest(g)
		}
		return nil
	})
}

func (c *call) restoreVM(vmid int, set map[string]string, archiveID string, old *guest) any {
	s := c.s
	if old == nil {
		s.guests[vmid] = &guest{id: vmid, kind: kindQemu, node: c.node.name, conf: map[string]string{"lock": "create"}, pend: map[string]string{}, pdel: map[string]bool{}, created: s.now}
		c.joinPool(vmid)
	} else {
		old.conf["lock"] = "create"
	}
	g := s.guests[vmid]
	def := c.str("storage")
	return c.quick("qmrestore", fmt.Sprint(vmid), 800*time.Millisecond, func(t *task) error {
		a := s.vol(c.node.name, archiveID)
		if a == nil || a.archive == nil || a.archive.kind != kindQemu {
			if old == nil {
				s.forget(g, false)
			} else {
				delete(g.conf, "lock")
			}
			return die("volume '%s' does not exist", archiveID)
		}
		t.say("restore vma archive: zstd -q -d -c %s | vma extract -v -r /var/tmp/vzdumptmp%d.fifo - /var/tmp/vzdumptmp%d", s.pathOf(archiveID), t.pid, t.pid)
		c.rebuild(t, g, a.archive, set, def, "images")
		if c.flag("unique") && g.conf["vmgenid"] != "" {
			g.conf["vmgenid"] = newUUID()
		}
		t.say("rescan volumes...")
		s.touchNew(g)
		if c.flag("start") {
			s.bootGuest(g)
		}
		return nil
	})
}

// rebuild gives a guest the archive's configuration with new volumes, then drops the old ones.
func (c *call) rebuild(t *task, g *guest, a *archive, set map[string]string, def, content string) {
	s := c.s
	before := s.guestVolumes(g)
	conf := cloneMap(a.conf)
	for _, k := range sortedKeys(a.disks) {
		store := firstNonEmpty(def, storeOf(volumeOf(a.conf[k])))
		st := s.storages[store]
		if st == nil {
			st = s.storages["local"]
		}
		format := "raw"
		if st.typ() == "zfspool" && g.kind == kindLXC {
			format = "subvol"
		}
		n := s.addVol(c.node.name, &volume{id: s.newDiskName(c.node.name, st, g.id, format, "disk"), content: content, format: format, size: a.disks[k], used: 36401152, vmid: g.id})
		_, rest, _ := strings.Cut(a.conf[k], ",")
		conf[k] = s.diskValue(g.kind, k, n.id, rest, n.size)
		if line := s.formattingLine(n.id); line != "" {
			t.say("%s", line)
		}
		if g.kind == kindLXC {
			t.say("Creating filesystem with 262144 4k blocks and 65536 inodes")
			t.say("Filesystem UUID: %s", newUUID())
			t.say("Superblock backups stored on blocks: \n\t32768, 98304, 163840, 229376")
		}
	}
	for k, v := range set {
		if isDiskKey(g.kind, k) || k == "unprivileged" && !c.has("unprivileged") {
			continue
		}
		conf[k] = v
	}
	if c.flag("unique") {
		for k, v := range conf {
			if strings.HasPrefix(k, "net") && lookup(s.api.configs[kindLXC], k) != nil {
				conf[k] = freshMAC(g.kind, v)
			}
		}
	}
	delete(conf, "lock")
	g.conf, g.pend, g.pdel, g.snaps, g.parent = conf, map[string]string{}, map[string]bool{}, nil, ""
	for _, v := range before {
		s.dropVol(v)
	}
}

func extractConfig(c *call) (any, error) {
	id := c.str("volume")
	v := c.s.vol(c.node.name, id)
	if _, err := c.s.storageOf(storeOf(id)); err != nil {
		return nil, err
	}
	if v == nil || v.archive == nil {
		return nil, die("volume '%s' does not exist", id)
	}
	if !c.mayVolume(v) {
		return nil, denied("")
	}
	return fileText(v.archive.conf) + v.archive.maps(), nil
}

// maps are the lines by which an archive of a VM says of which disks it has the data.
func (a *archive) maps() string {
	if a.kind != kindQemu {
		return ""
	}
	var b strings.Builder
	for _, k := range sortedKeys(a.disks) {
		id, format := volumeOf(a.conf[k]), "raw"
		if strings.HasSuffix(id, ".qcow2") {
			format = "qcow2"
		}
		fmt.Fprintf(&b, "#qmdump#map:%s:drive-%s:%s:%s:\n", k, k, storeOf(id), format)
	}
	return b.String()
}
