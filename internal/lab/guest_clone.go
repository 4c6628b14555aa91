package lab

import (
	"fmt"
	"path"
	"strings"
	"time"
)

func cloneGuest(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	s, newid := c.s, c.num("newid")
	pool := c.str("pool")
	if c.has("pool") && s.pools[pool] == nil {
		return nil, denied("pool '" + pool + "' does not exist")
	}
	store, snapname := c.str("storage"), c.str("snapname")
	if store != "" {
		if _, err := s.storageOf(store); err != nil {
			return nil, err
		}
		if err := c.need("/storage/"+store, "Datastore.AllocateSpace"); err != nil {
			return nil, err
		}
	}
	target := firstNonEmpty(c.str("target"), g.node)
	if n := s.node(target); n == nil {
		return nil, bad("target", "node '%s' does not exist", target)
	}
	full := c.flagOr("full", !g.template())
	if err := g.locked(); err != nil {
		return nil, err
	}
	conf := g.conf
	if snapname != "" && snapname != "current" {
		sn := g.snap(snapname)
		if sn == nil {
			return nil, die("snapshot '%s' does not exist", snapname)
		}
		conf = sn.conf
	}
	if store != "" && !full {
		return nil, die("parameter 'storage' not allowed for linked clones")
	}
	if s.guests[newid] != nil {
		if g.kind == kindLXC {
			return nil, die("unable to create CT %d: config file already exists", newid)
		}
		return nil, die("unable to create VM %d: config file already exists", newid)
	}
	if err := c.mayUseBridges(conf); err != nil {
		return nil, err
	}
	shared := true
	for _, k := range g.diskKeys(conf) {
		vol := volumeOf(conf[k])
		if vol == "" || strings.HasPrefix(k, "unused") {
			continue
		}
		st := s.storages[storeOf(vol)]
		if st != nil && !st.shared() && !isCDROM(conf[k]) {
			shared = false
		}
		if isCDROM(conf[k]) {
			continue
		}
		if store == "" {
			if err := c.need("/storage/"+storeOf(vol), "Datastore.AllocateSpace"); err != nil {
				return nil, err
			}
		}
		if !full && !g.template() && !(snapname != "" && s.snapshotsOn(g, vol)) {
			if g.kind == kindLXC {
				return nil, die("Linked clone feature for '%s' is not available", vol)
			}
			return nil, die("Linked clone feature is not supported for '%s' (%s)", vol, k)
		}
	}
	if !shared && target != g.node {
		if g.kind == kindLXC {
			return nil, die("can't clone CT to node '%s' (CT uses local storage)", target)
		}
		return nil, die("can't clone VM to node '%s' (VM uses local storage)", target)
	}
	if g.kind == kindLXC && g.running && full && snapname == "" {
		return nil, die("Full clone of a running container is only possible from a snapshot")
	}
	n := &guest{id: newid, kind: g.kind, node: g.node, conf: map[string]string{"lock": "create"}, pend: map[string]string{}, pdel: map[string]bool{}, shutFail: g.shutFail, created: s.now}
	s.guests[newid] = n
	c.joinPool(newid)
	t := s.newTask(c.node, g.taskType("clone"), fmt.Sprint(g.id), c.user)
	if full && g.kind == kindLXC && !g.running {
		g.conf["lock"] = "disk"
	}
	t.onStop = func() string {
		s.forget(n, false)
		if g.conf["lock"] == "disk" {
			delete(g.conf, "lock")
		}
		return ""
	}
	d := 400 * time.Millisecond
	if full {
		d = s.copyTime(g)
		if bw := c.num("bwlimit"); bw > 0 && throttled(bw) > d {
			d = throttled(bw)
		}
	}
	if g.kind == kindLXC {
		// The target has everything but its volumes while they are copied.
		for k, v := range conf {
			if !isDiskKey(g.kind, k) && k != "lock" && k != "template" {
				n.conf[k] = v
			}
		}
		if h := c.str("hostname"); h != "" {
			n.conf["hostname"] = h
		}
	}
	s.work(t, d, func() error {
		if g.kind == kindQemu {
			t.say("creating a clone of VM %d with ID %d", g.id, newid)
		} else {
			t.say("creating a clone of container %d with ID %d", g.id, newid)
		}
		if g.conf["lock"] == "disk" {
			delete(g.conf, "lock")
		}
		nc := map[string]string{}
		for k, v := range conf {
			if k == "lock" || k == "template" || k == "vmstate" || strings.HasPrefix(k, "unused") {
				continue
			}
			nc[k] = v
		}
		for k, v := range nc {
			if strings.HasPrefix(k, "net") && lookup(s.api.configs[kindLXC], k) != nil {
				nc[k] = freshMAC(g.kind, v)
			}
		}
		n.conf = nc
		n.node = g.node
		for _, k := range n.diskKeys(nc) {
			vol := volumeOf(nc[k])
			seed := strings.Contains(vol, "-cloudinit") // of which each has its own
			if vol == "" || isCDROM(nc[k]) && !seed {
				continue
			}
			made := s.copyDisk(t, g, n, k, vol, full || seed, store, c.str("format"))
			_, rest, _ := strings.Cut(nc[k], ",")
			nc[k] = s.diskValue(g.kind, k, made.id, rest, made.size)
		}
		if g.kind == kindQemu {
			nc["name"] = firstNonEmpty(c.str("name"), "Copy-of-VM-"+g.name())
			if nc["vmgenid"] != "" {
				nc["vmgenid"] = newUUID()
			}
			nc["smbios1"] = setOption(nc["smbios1"], "uuid", newUUID())
			if nc["smbios1"] != "" && strings.HasPrefix(nc["smbios1"], ",") {
				nc["smbios1"] = nc["smbios1"][1:]
			}
		} else if h := c.str("hostname"); h != "" {
			nc["hostname"] = h
		}
		if c.has("description") {
			nc["description"] = keptText(g.kind, c.str("description"))
		}
		if target != g.node {
			n.node = target
		}
		s.touchNew(n)
		return nil
	})
	return t.upid, nil
}

// copyTime is how long the lab takes to copy a guest's disks.
func (s *state) copyTime(g *guest) time.Duration {
	size := int64(0)
	for _, k := range g.diskKeys(g.conf) {
		if x := s.vol(g.node, volumeOf(g.conf[k])); x != nil {
			size += x.size
		}
	}
	d := 600*time.Millisecond + time.Duration(size>>30)*100*time.Millisecond
	if d > 30*time.Second {
		d = 30 * time.Second
	}
	return d
}

func freshMAC(kind, v string) string {
	if kind == kindLXC {
		return normalizeNet(kind, setOption(v, "hwaddr", newMAC()))
	}
	model, rest, _ := strings.Cut(v, ",")
	name, _, _ := strings.Cut(model, "=")
	return name + "=" + newMAC() + "," + rest
}

// copyDisk makes the clone's volume, linked or full.
func (s *state) copyDisk(t *task, from, to *guest, key, vol string, full bool, store, format string) *volume {
	src := s.vol(from.node, vol)
	if src == nil {
		src = &volume{id: vol, content: "images", format: "raw", size: 1 << 30}
	}
	st := s.storages[firstNonEmpty(store, storeOf(vol))]
	if !full {
		f := "qcow2"
		name := s.newDiskName(from.node, st, to.id, f, "disk")
		id := name
		switch {
		case st.typ() == "btrfs":
			id = s.newDiskName(from.node, st, to.id, src.format, "disk")
			f = src.format
			t.say("create linked clone of %s %s (%s)", map[string]string{kindQemu: "drive", kindLXC: "mount point"}[from.kind], key, vol)
		case st.isFile():
			id = vol + "/" + volName(name)
			t.say("create linked clone of drive %s (%s)", key, vol)
			t.say("clone %s: images, %s, %d to %s (base=../%s)", volName(vol), path.Base(volName(name)), to.id, path.Base(volName(name)), volName(vol))
			t.say("Formatting '%s', fmt=qcow2 cluster_size=131072 extended_l2=on preallocation=off compression_type=zlib size=%d backing_file=../%s backing_fmt=%s lazy_refcounts=off refcount_bits=16", s.pathOf(name), src.size, volName(vol), src.format)
		default:
			f = src.format
			id = st.id + ":" + volName(vol) + "/" + volName(s.newDiskName(from.node, st, to.id, src.format, "disk"))
			t.say("create linked clone of drive %s (%s)", key, vol)
		}
		return s.addVol(from.node, &volume{id: id, content: src.content, format: f, size: src.size, used: 397312, vmid: to.id, parent: vol})
	}
	f := firstNonEmpty(format, src.format)
	if format == "" && st.isFile() && from.kind == kindQemu && src.parent != "" {
		f = "qcow2"
	}
	if from.kind == kindLXC && st.isFile() {
		f = "raw"
	}
	if !st.isFile() {
		f = "raw"
		if st.typ() == "zfspool" && from.kind == kindLXC {
			f = "subvol"
		}
	}
	stem := "disk"
	if strings.Contains(vol, "-cloudinit") {
		stem = "cloudinit"
	}
	n := s.addVol(from.node, &volume{id: s.newDiskName(from.node, st, to.id, f, stem), content: src.content, format: f, size: src.size, used: src.used, vmid: to.id})
	t.say("create full clone of %s %s (%s)", map[string]string{kindQemu: "drive", kindLXC: "mountpoint"}[from.kind], key, vol)
	if line := s.formattingLine(n.id); line != "" {
		t.say("%s", line)
	}
	if from.kind == kindLXC {
		t.say("Creating filesystem with 262144 4k blocks and 65536 inodes")
		t.say("Filesystem UUID: %s", newUUID())
		t.say("Superblock backups stored on blocks: \n\t32768, 98304, 163840, 229376")
		t.say("\nNumber of files: 45 (reg: 12, dir: 17, link: 16)\nNumber of created files: 43 (reg: 12, dir: 15, link: 16)\nNumber of deleted files: 0\nNumber of regular files transferred: 12")
		t.say("Total file size: 1,983,040 bytes\nTotal transferred file size: 1,982,928 bytes\nLiteral data: 1,982,928 bytes\nMatched data: 0 bytes\nFile list size: 0\nFile list generation time: 0.001 seconds\nFile list transfer time: 0.000 seconds")
		t.say("Total bytes sent: 1,985,039\nTotal bytes received: 353\n\nsent 1,985,039 bytes  received 353 bytes  3,970,784.00 bytes/sec\ntotal size is 1,983,040  speedup is 1.00")
	} else {
		t.say("allocated target volume '%s'", n.id)
	}
	if from.kind == kindQemu {
		t.say("transferred 0.0 B of %s (0.00%%)", humanSize(src.size))
		t.say("transferred %s of %s (100.00%%)", humanSize(src.size), humanSize(src.size))
	}
	return n
}

func humanSize(n int64) string {
	f, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

func migrateGuest(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	s, target := c.s, c.str("target")
	if target == c.node.name {
		return nil, bad("target", "target is local node.")
	}
	if s.node(target) == nil {
		return nil, bad("target", "no such cluster node '%s'", target)
	}
	if g.kind == kindQemu {
		if err := c.rootOnly("force"); err != nil {
			return nil, err
		}
	}
	if g.running {
		if g.kind == kindLXC && !c.flag("online") && !c.flag("restart") {
			return nil, die("can't migrate running container without --online or --restart")
		}
		if g.kind == kindQemu && !c.flag("online") {
			return nil, die("can't migrate running VM without --online")
		}
	}
	if s.managed(g) {
		return c.haMigrate(g, target), nil
	}
	t := s.newTask(c.node, map[string]string{kindQemu: "qmigrate", kindLXC: "vzmigrate"}[g.kind], fmt.Sprint(g.id), c.user)
	stamp := func(format string, args ...any) {
		t.say("%s "+format, append([]any{s.now.UTC().Format("2006-01-02 15:04:05")}, args...)...)
	}
	abort := func(why string) error {
		stamp("ERROR: migration aborted (duration 00:00:00): %s", why)
		return die("migration aborted")
	}
	var move []*volume
	for _, k := range g.diskKeys(g.conf) {
		if x := s.vol(g.node, volumeOf(g.conf[k])); x != nil && x.node != "" && !isCDROM(g.conf[k]) {
			move = append(move, x)
		}
	}
	d := 800 * time.Millisecond
	if len(move) > 0 {
		d = 10 * time.Second
	}
	online := g.running
	s.work(t, 100*time.Millisecond, func() error {
		if l := g.conf["lock"]; l != "" {
			return abort(fmt.Sprintf("%s is locked (%s)", g.word(), l))
		}
		n := s.node(target)
		if n == nil || !n.up() {
			return abort(fmt.Sprintf("Can't connect to destination address using public key"))
		}
		if g.kind == kindLXC && online && c.flag("online") {
			return abort("lxc live migration is currently not implemented")
		}
		if g.kind == kindQemu && online && len(move) > 0 && !c.flag("with-local-disks") {
			return abort(fmt.Sprintf("can't migrate local disk '%s': live migration: storage migration needs --with-local-disks", move[0].id))
		}
		for _, x := range move {
			if st := s.storages[storeOf(x.id)]; st == nil || !st.on(target) {
				return abort(fmt.Sprintf("storage '%s' is not available on node '%s'", storeOf(x.id), target))
			}
			if len(g.snaps) > 0 && g.kind == kindLXC {
				return abort(fmt.Sprintf("cannot migrate volume '%s' with snapshots", x.id))
			}
		}
		stamp("starting migration of %s %d to node '%s' (%s)", g.word(), g.id, target, n.ip)
		if g.kind == kindLXC && online {
			stamp("shutdown CT %d", g.id)
			s.haltGuest(g)
		}
		g.conf["lock"] = "migrate"
		t.onStop = func() string {
			delete(g.conf, "lock")
			return ""
		}
		for _, x := range move {
			stamp("found local volume '%s' (in current VM config)", x.id)
		}
		s.work(t, d, func() error {
			delete(g.conf, "lock")
			for _, x := range move {
				s.dropVol(x)
				s.addVol(target, x)
				if line := s.formattingLine(x.id); line != "" {
					stamp("%s", line)
				}
				stamp("successfully imported '%s'", x.id)
				stamp("volume '%s' is '%s' on the target", x.id, x.id)
			}
			if len(move) > 0 {
				stamp("start final cleanup")
			}
			g.node = target
			if g.kind == kindLXC && online {
				s.bootGuest(g)
			}
			stamp("migration finished successfully (duration 00:00:%02d)", int(d/time.Second))
			s.touch(g)
			return nil
		})
		return nil
	})
	return t.upid, nil
}

// migrateCheck is GET migrate: what stands in the way.
func migrateCheck(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	m := M{"running": b2i(g.running), "allowed_nodes": []string{}, "not_allowed_nodes": M{}}
	allowed, not := []string{}, M{}
	disks := []M{}
	for _, k := range g.diskKeys(g.conf) {
		x := c.s.vol(g.node, volumeOf(g.conf[k]))
		if x == nil || x.node == "" {
			continue
		}
		disks = append(disks, M{"volid": x.id, "cdrom": b2i(isCDROM(g.conf[k])), "size": x.size, "drivename": k, "is_attached": 1, "is_cloudinit": 0, "is_tpmstate": 0, "is_unused": b2i(strings.HasPrefix(k, "unused")), "is_vmstate": 0, "replicate": 1, "shared": 0})
	}
	for _, n := range c.s.nodes {
		if n.name == g.node {
			continue
		}
		var missing []string
		for _, k := range g.diskKeys(g.conf) {
			vol := volumeOf(g.conf[k])
			if st := c.s.storages[storeOf(vol)]; st != nil && !st.on(n.name) && !contains(missing, st.id) {
				missing = append(missing, st.id)
			}
		}
		if len(missing) > 0 {
			not[n.name] = M{"unavailable_storages": missing}
			continue
		}
		allowed = append(allowed, n.name)
	}
	m["allowed_nodes"], m["not_allowed_nodes"] = allowed, not
	if g.kind == kindQemu {
		m["local_disks"], m["local_resources"], m["mapped-resources"], m["mapped-resource-info"] = disks, []string{}, []string{}, M{}
		m["has-dbus-vmstate"] = true
	}
	return m, nil
}
