package lab

import (
	"fmt"
	"sort"
	"strings"
	"time"
)

// exists names the guest that has an id, in the words of a refused create.
func (s *state) exists(id int) string {
	g := s.guests[id]
	if g == nil {
		return ""
	}
	return fmt.Sprintf("%s %d already exists on node '%s'", g.word(), id, g.node)
}

// mayCreate asks for the right to make a guest with an id, by way of a pool if one is named.
func (c *call) mayCreate(vmid int, restore, exists bool) error {
	id := c.user.id()
	pool := c.str("pool")
	path := fmt.Sprintf("/vms/%d", vmid)
	if c.has("pool") {
		if c.s.pools[pool] == nil {
			return denied("pool '" + pool + "' does not exist")
		}
		if !c.s.may(id, "/pool/"+pool, "VM.Allocate") && !c.s.may(id, path, "VM.Allocate") {
			return denied("")
		}
		return nil
	}
	switch {
	case c.s.may(id, path, "VM.Allocate"):
		return nil
	case restore && exists && c.flag("force") && c.s.may(id, path, "VM.Backup"):
		return nil
	}
	return denied("")
}

func createCT(c *call) (any, error) {
	s, vmid := c.s, c.num("vmid")
	restore, force := c.flag("restore"), c.flag("force")
	if s.noQuorum {
		return nil, die("cluster not ready - no quorum?")
	}
	set := c.newConf()
	if _, ok := c.p["unprivileged"]; !ok && !restore {
		set["unprivileged"] = "1"
	}
	if err := c.mayCreate(vmid, restore, s.guests[vmid] != nil); err != nil {
		return nil, err
	}
	unpriv := set["unprivileged"] == "1"
	if err := c.mayConfigure(kindLXC, vmid, map[string]string{}, set, nil, unpriv, c.str("pool")); err != nil {
		return nil, err
	}
	old := s.guests[vmid]
	if old != nil {
		if !restore || !force || old.kind != kindLXC || old.node != c.node.name {
			return nil, die("%s", s.exists(vmid))
		}
		if old.running {
			return nil, die("can't overwrite running container")
		}
	}
	def := firstNonEmpty(c.str("storage"), "local")
	if _, err := s.storageOf(def); err != nil {
		return nil, err
	}
	rootStore := def
	if m := newDisk.FindStringSubmatch(volumeOf(set["rootfs"])); m != nil {
		rootStore = m[1]
	}
	if st, err := s.usable(rootStore, c.node.name); err != nil {
		return nil, err
	} else if !st.holds("rootdir") {
		return nil, bad("storage", "storage '%s' does not support container directories", rootStore)
	}
	if err := c.need("/storage/"+def, "Datastore.AllocateSpace"); err != nil {
		return nil, err
	}
	if err := c.mayUseStorage(kindLXC, set, def); err != nil {
		return nil, err
	}
	if err := c.mayUseBridges(set); err != nil {
		return nil, err
	}
	tmpl := c.str("ostemplate")
	if strings.Contains(tmpl, ":") {
		if _, err := s.storageOf(storeOf(tmpl)); err != nil {
			return nil, err
		}
		if err := c.needAny("/storage/"+storeOf(tmpl), "Datastore.Audit", "Datastore.AllocateSpace"); err != nil {
			return nil, err
		}
	}
	if old != nil && old.conf["protection"] == "1" {
		return nil, die("unable to restore CT %d - protection mode enabled", vmid)
	}
	if err := c.mayTag("", set["tags"]); err != nil {
		return nil, err
	}
	if err := c.normalize(kindLXC, vmid, set); err != nil {
		return nil, err
	}
	if restore {
		return c.restoreCT(vmid, set, rootStore, old), nil
	}
	g := &guest{id: vmid, kind: kindLXC, node: c.node.name, conf: map[string]string{"lock": "create"}, pend: map[string]string{}, pdel: map[string]bool{}, created: s.now}
	s.guests[vmid] = g
	c.joinPool(vmid)
	t := s.newTask(c.node, "vzcreate", fmt.Sprint(vmid), c.user)
	s.work(t, 600*time.Millisecond, func() error {
		fail := func(err error) error {
			s.forget(g, false)
			return err
		}
		conf := map[string]string{"arch": "amd64", "ostype": osTypeOf(tmpl)}
		for k, v := range set {
			if k != "rootfs" && !isDiskKey(kindLXC, k) {
				conf[k] = v
			}
		}
		for k, d := range map[string]string{"memory": "512", "swap": "512", "hostname": fmt.Sprintf("CT%d", vmid)} {
			if conf[k] == "" {
				conf[k] = d
			}
		}
		delete(conf, "password")
		g.conf = conf
		root := set["rootfs"]
		if root == "" {
			root = def + ":4"
		}
		for _, k := range append([]string{"rootfs"}, g.diskKeys(set)...) {
			v := set[k]
			if k == "rootfs" {
				if g.conf["rootfs"] != "" {
					continue
				}
				v = root
			}
			made, err := c.makeDisk(g, k, v)
			if err != nil {
				return fail(err)
			}
			g.conf[k] = made
			if newDisk.MatchString(volumeOf(v)) {
				if strings.HasSuffix(volumeOf(made), ".subvol") || strings.Contains(volumeOf(made), "subvol-") {
					continue
				}
				if line := s.formattingLine(volumeOf(made)); line != "" {
					t.say("%s", line)
				}
				t.say("Creating filesystem with 262144 4k blocks and 65536 inodes")
				t.say("Filesystem UUID: %s", newUUID())
				t.say("Superblock backups stored on blocks: \n\t32768, 98304, 163840, 229376")
			}
		}
		if strings.Contains(tmpl, ":") && s.vol(c.node.name, tmpl) == nil {
			t.say("volume '%s' does not exist", tmpl)
			return fail(die("unable to create CT %d - volume '%s' does not exist", vmid, tmpl))
		}
		t.say("extracting archive '%s'", s.pathOf(tmpl))
		t.say("Total bytes read: 3338240 (3.2MiB, 60MiB/s)")
		t.say("Detected container architecture: amd64")
		s.touchNew(g)
		if c.flag("start") {
			c.startLater(g)
		}
		if c.flag("template") {
			s.makeTemplate(g)
		}
		return nil
	})
	t.onStop = func() string { s.forget(g, false); return "" }
	return t.upid, nil
}

func osTypeOf(tmpl string) string {
	for _, o := range []string{"debian", "ubuntu", "alpine", "archlinux", "centos", "fedora", "opensuse", "gentoo", "nixos", "devuan"} {
		if strings.Contains(tmpl, o) {
			return o
		}
	}
	return "unmanaged"
}

// newConf takes the configuration keys out of a create call.
func (c *call) newConf() map[string]string {
	set := map[string]string{}
	kind := kindLXC
	if strings.Contains(c.op.Path, "/qemu") {
		kind = kindQemu
	}
	for k, v := range c.p {
		t, ok := v.(string)
		if !ok || notAnOption[k] || k == "force" {
			continue
		}
		if lookup(c.s.api.configs[kind], k) != nil || k == "unprivileged" || k == "ostype" || k == "arch" && kind == kindLXC {
			set[k] = t
		}
	}
	return set
}

func (c *call) joinPool(vmid int) {
	if p := c.str("pool"); p != "" {
		c.s.guestPool[vmid] = p
		c.s.rightsChanged()
	}
}

// touchNew leaves a new guest unknown to the cluster's figures until the next round.
func (s *state) touchNew(g *guest) {
	g.pub = published{}
	s.touch(g)
	s.dirty[g.id] = s.now.Add(newbornLag)
}

func createVM(c *call) (any, error) {
	s, vmid := c.s, c.num("vmid")
	if s.noQuorum {
		return nil, die("cluster not ready - no quorum?")
	}
	archive, force := c.str("archive"), c.flag("force")
	if c.has("start") && c.flag("start") && archive == "" && c.has("live-restore") {
		return nil, bad("live-restore", "'live-restore' requires 'archive'")
	}
	if err := c.mayCreate(vmid, archive != "", s.guests[vmid] != nil); err != nil {
		return nil, err
	}
	set := c.newConf()
	if archive == "" {
		if err := c.mayUseStorage(kindQemu, set, ""); err != nil {
			return nil, err
		}
		if err := c.mayConfigure(kindQemu, vmid, map[string]string{}, set, nil, false, c.str("pool")); err != nil {
			return nil, err
		}
		if err := c.mayUseBridges(set); err != nil {
			return nil, err
		}
	} else {
		def := firstNonEmpty(c.str("storage"), "local")
		if err := c.need("/storage/"+def, "Datastore.AllocateSpace"); err != nil {
			return nil, err
		}
	}
	old := s.guests[vmid]
	if old != nil {
		if archive == "" || !force || old.kind != kindQemu || old.node != c.node.name {
			return nil, die("unable to %s VM %d - %s", map[bool]string{true: "restore", false: "create"}[archive != ""], vmid, s.exists(vmid))
		}
		if old.running {
			return nil, die("unable to restore VM %d - vm is running", vmid)
		}
		if old.conf["protection"] == "1" {
			return nil, die("unable to restore VM %d - protection mode enabled", vmid)
		}
	}
	if err := c.mayTag("", set["tags"]); err != nil {
		return nil, err
	}
	if err := c.normalize(kindQemu, vmid, set); err != nil {
		return nil, err
	}
	if archive != "" {
		return c.restoreVM(vmid, set, archive, old), nil
	}
	probe := &guest{id: vmid, kind: kindQemu, node: c.node.name, conf: map[string]string{}}
	for _, k := range sortedKeys(set) {
		if err := c.checkVolume(probe, k, set[k]); err != nil {
			return nil, err
		}
	}
	g := &guest{id: vmid, kind: kindQemu, node: c.node.name, conf: map[string]string{"lock": "create"}, pend: map[string]string{}, pdel: map[string]bool{}, shutFail: true, created: s.now}
	s.guests[vmid] = g
	c.joinPool(vmid)
	t := s.newTask(c.node, "qmcreate", fmt.Sprint(vmid), c.user)
	t.onStop = func() string { s.forget(g, false); return "" }
	s.work(t, 500*time.Millisecond, func() error {
		conf := map[string]string{}
		for k, v := range set {
			conf[k] = v
		}
		g.conf = conf
		for _, k := range g.diskKeys(set) {
			fresh := newDisk.MatchString(volumeOf(set[k]))
			made, err := c.makeDisk(g, k, set[k])
			if err != nil {
				s.forget(g, false)
				return die("unable to create VM %d - %s", vmid, err)
			}
			g.conf[k] = made
			if fresh {
				if line := s.formattingLine(volumeOf(made)); line != "" {
					t.say("%s", line)
				}
				t.say("%s: successfully created disk '%s'", k, made)
			}
		}
		if conf["boot"] == "" {
			if order := defaultBoot(g); order != "" {
				conf["boot"] = "order=" + order
			} else {
				conf["boot"] = " "
			}
		}
		if conf["vmgenid"] == "" {
			conf["vmgenid"] = newUUID()
		}
		if conf["smbios1"] == "" {
			conf["smbios1"] = "uuid=" + newUUID()
		}
		conf["meta"] = fmt.Sprintf("creation-qemu=%s,ctime=%d", s.qemuVersion(), s.now.Unix())
		s.touchNew(g)
		if c.flag("start") {
			c.startLater(g)
		}
		return nil
	})
	return t.upid, nil
}

// startLater starts a new guest in a task of its own.
func (c *call) startLater(g *guest) {
	c.quick(g.taskType("start"), fmt.Sprint(g.id), startTime, func(*task) error {
		if err := c.s.startable(g); err != nil {
			return err
		}
		c.s.bootGuest(g)
		return nil
	})
}

// defaultBoot is the order that a new VM gets: the first disk, the first CD drive, the first NIC.
func defaultBoot(g *guest) string {
	var out []string
	disk, cd := "", ""
	keys := g.diskKeys(g.conf)
	rank := map[string]int{"ide": 0, "scsi": 1, "virtio": 2, "sata": 3}
	sort.SliceStable(keys, func(i, j int) bool {
		return rank[strings.TrimRight(keys[i], "0123456789")] < rank[strings.TrimRight(keys[j], "0123456789")]
	})
	for _, k := range keys {
		if _, bootable := rank[strings.TrimRight(k, "0123456789")]; !bootable {
			continue
		}
		if isCDROM(g.conf[k]) {
			if cd == "" {
				cd = k
			}
		} else if disk == "" {
			disk = k
		}
	}
	for _, d := range []string{disk, cd} {
		if d != "" {
			out = append(out, d)
		}
	}
	for i := 0; i < 32; i++ {
		if k := fmt.Sprintf("net%d", i); g.conf[k] != "" {
			out = append(out, k)
			break
		}
	}
	return strings.Join(out, ";")
}

// forget removes a guest with its disks, rights, pool and firewall; purge takes jobs and HA too.
func (s *state) forget(g *guest, purge bool) {
	for _, v := range s.guestVolumes(g) {
		s.dropVol(v)
	}
	delete(s.guests, g.id)
	delete(s.dirty, g.id)
	delete(s.agents, g.id)
	delete(s.guestPool, g.id)
	delete(s.acl, fmt.Sprintf("/vms/%d", g.id))
	delete(s.fw, fmt.Sprintf("guest/%d", g.id))
	s.rightsChanged()
	if !purge {
		return
	}
	s.haRemove(g.sid())
	for id, j := range s.jobs {
		list, _ := j["vmid"].(string)
		var keep []string
		for _, v := range splitList(list) {
			if v != fmt.Sprint(g.id) {
				keep = append(keep, v)
			}
		}
		if list != "" && len(keep) == 0 {
			s.dropJob(id)
			continue
		}
		if list != "" {
			j["vmid"] = strings.Join(keep, ",")
		}
	}
	for id, r := range s.repl {
		if r["guest"] == g.id {
			delete(s.repl, id)
		}
	}
}

func destroyGuest(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	if g.kind == kindQemu {
		if err := c.rootOnly("skiplock"); err != nil {
			return nil, err
		}
	}
	if g.kind == kindLXC {
		if err := g.locked(); err != nil && !c.flag("force") {
			return nil, err
		} else if err != nil && g.conf["lock"] != "" {
			return nil, err
		}
	} else if err := g.locked(); err != nil && !c.flag("skiplock") {
		return nil, err
	}
	if g.conf["protection"] == "1" {
		if g.kind == kindLXC {
			return nil, die("can't remove CT %d - protection mode enabled", g.id)
		}
		return nil, die("can't remove VM %d - protection mode enabled", g.id)
	}
	purge := c.flag("purge")
	if c.s.managed(g) && !purge {
		return nil, die("unable to remove %s %d - used in HA resources and purge parameter not set.", g.word(), g.id)
	}
	if !purge {
		for id, r := range c.s.repl {
			if r["guest"] == g.id {
				return nil, die("unable to destroy %s %d - replication job '%s' exists and purge parameter not set.", g.word(), g.id, id)
			}
		}
	}
	if g.running && !(g.kind == kindLXC && c.flag("force")) {
		if g.kind == kindLXC {
			return nil, die("unable to destroy CT %d - container is running", g.id)
		}
		return nil, die("VM %d is running - destroy failed", g.id)
	}
	return c.quick(g.taskType("destroy"), fmt.Sprint(g.id), 150*time.Millisecond, func(t *task) error {
		if g.running {
			c.s.haltGuest(g)
		}
		for _, k := range g.diskKeys(g.conf) {
			vol := volumeOf(g.conf[k])
			if vol == "" || isCDROM(g.conf[k]) {
				continue
			}
			if c.s.storages[storeOf(vol)] == nil {
				if g.kind == kindLXC {
					return die("storage '%s' does not exist", storeOf(vol))
				}
				t.warn("failed to get path and owner of volume '%s': storage '%s' does not exist", vol, storeOf(vol))
			}
			if x := c.s.vol(g.node, vol); x != nil && g.template() {
				if st := c.s.storages[storeOf(vol)]; c.s.childOf(x) != "" && st.typ() != "btrfs" {
					return die("base volume '%s' is still in use by linked cloned", vol)
				}
			}
		}
		for _, k := range g.diskKeys(g.conf) {
			vol := volumeOf(g.conf[k])
			if st := c.s.storages[storeOf(vol)]; st != nil && st.isFile() && !isCDROM(g.conf[k]) && c.s.vol(g.node, vol) == nil {
				t.say("disk image '%s' does not exist", c.s.pathOf(vol))
			}
		}
		if purge {
			t.say("purging %s %d from related configurations..", g.word(), g.id)
			if c.s.ha.resources[g.sid()] != nil {
				t.say("NOTE: removed %s %d from HA resource configuration.", g.word(), g.id)
			}
		}
		c.s.forget(g, purge)
		return nil
	}), nil
}

// makeTemplate turns a guest's disks into base volumes.
func (s *state) makeTemplate(g *guest) {
	g.conf["template"] = "1"
	for _, k := range g.diskKeys(g.conf) {
		if strings.HasPrefix(k, "unused") || isCDROM(g.conf[k]) {
			continue
		}
		if x := s.vol(g.node, volumeOf(g.conf[k])); x != nil {
			s.dropVol(x)
			id := strings.Replace(x.id, "/vm-", "/base-", 1)
			if id == x.id {
				id = strings.Replace(strings.Replace(x.id, ":vm-", ":base-", 1), ":subvol-", ":basevol-", 1)
			}
			g.conf[k] = strings.Replace(g.conf[k], x.id, id, 1)
			x.id = id
			s.addVol(g.node, x)
		}
	}
	s.touch(g)
}

func toTemplate(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	if g.template() {
		return nil, die("you can't convert a template to a template")
	}
	if err := g.locked(); err != nil {
		return nil, err
	}
	if len(g.snaps) > 0 {
		if g.kind == kindLXC {
			return nil, die("unable to create template, because CT contains snapshots")
		}
		return nil, die("unable to create template, because VM contains snapshots")
	}
	if g.running {
		if g.kind == kindLXC {
			return nil, die("you can't convert a CT to template if the CT is running")
		}
		return nil, die("you can't convert a VM to template if VM is running")
	}
	if g.conf["protection"] == "1" && g.kind == kindLXC {
		return nil, die("you can't convert a CT to template if the CT is protected")
	}
	if g.kind == kindLXC {
		c.quick("vztemplate", fmt.Sprint(g.id), time.Second, func(*task) error { c.s.makeTemplate(g); return nil })
		return nil, nil
	}
	return c.quick("qmtemplate", fmt.Sprint(g.id), 300*time.Millisecond, func(*task) error { c.s.makeTemplate(g); return nil }), nil
}
