package lab

import (
	"fmt"
	"strings"
	"time"
)

// checkDetach refuses what may not be taken away.
func (c *call) checkDetach(g *guest, k string, force bool) error {
	if !isDiskKey(g.kind, k) || g.conf[k] == "" {
		return nil
	}
	vol := volumeOf(g.conf[k])
	if g.conf["protection"] == "1" && !isCDROM(g.conf[k]) && vol != "" {
		if g.kind == kindLXC {
			return die("can't remove CT %d drive '%s' - protection mode enabled", g.id, k)
		}
		return die("can't remove drive '%s' - protection mode enabled", k)
	}
	if strings.HasPrefix(k, "unused") || force {
		for _, sn := range g.snaps {
			for _, v := range sn.conf {
				if vol != "" && volumeOf(v) == vol {
					return die("unable to delete '%s' - volume is still in use (snapshot?)", vol)
				}
			}
		}
	}
	return nil
}

// checkVolume looks whether the volume that a key names is there, or can be made.
func (c *call) checkVolume(g *guest, k, v string) error {
	if !isDiskKey(g.kind, k) || strings.HasPrefix(k, "unused") {
		return nil
	}
	vol := volumeOf(v)
	if vol == "" {
		return nil
	}
	st, err := c.s.storageOf(storeOf(vol))
	if err != nil {
		return err
	}
	if newDisk.MatchString(vol) || strings.HasSuffix(vol, ":cloudinit") {
		if _, err := c.s.usable(st.id, c.node.name); err != nil {
			return err
		}
		want := "images"
		if g.kind == kindLXC {
			want = "rootdir"
		}
		if !st.holds(want) {
			if g.kind == kindLXC {
				return die("storage '%s' does not support container directories", st.id)
			}
			return die("storage '%s' does not support content-type '%s'", st.id, want)
		}
		return nil
	}
	if c.s.vol(c.node.name, vol) == nil {
		if g.kind == kindLXC {
			return die("no such volume '%s'", vol)
		}
		return die("volume '%s' does not exist", vol)
	}
	return nil
}

// makeDisk allocates storage:SIZE and completes the value with the size.
func (c *call) makeDisk(g *guest, k, v string) (string, error) {
	s := c.s
	vol := volumeOf(v)
	if vol == "" {
		return v, nil
	}
	_, rest, has := strings.Cut(v, ",")
	if has {
		rest = "," + rest
	}
	if m := newDisk.FindStringSubmatch(vol); m != nil || strings.HasSuffix(vol, ":cloudinit") {
		st := s.storages[storeOf(vol)]
		if st == nil {
			return "", die("storage '%s' does not exist", storeOf(vol))
		}
		stem, size := "disk", int64(4<<20)
		if m != nil {
			size = parseSize(m[2], 1<<30)
		} else {
			stem = "cloudinit"
			rest = setOption(rest, "media", "cdrom")
		}
		format := option(v, "format")
		if format == "" {
			format = "raw"
			if g.kind == kindLXC && (st.typ() == "zfspool" || size == 0 && st.isFile()) {
				format = "subvol"
			}
			if stem == "cloudinit" && st.isFile() {
				format = "qcow2"
			}
		}
		id := s.newDiskName(c.node.name, st, g.id, format, stem)
		content := "images"
		if g.kind == kindLXC {
			content = "rootdir"
		}
		used := int64(4096)
		if g.kind == kindLXC {
			used = 36401152
		}
		s.addVol(c.node.name, &volume{id: id, content: content, format: format, size: size, used: used, vmid: g.id})
		return s.diskValue(g.kind, k, id, rest, size), nil
	}
	x := s.vol(c.node.name, vol)
	if x == nil {
		return v, nil
	}
	return s.diskValue(g.kind, k, vol, rest, x.size), nil
}

// diskValue prints a disk with its size.
func (s *state) diskValue(kind, key, vol, opts string, size int64) string {
	var keep []string
	for _, p := range strings.Split(strings.TrimPrefix(opts, ","), ",") {
		if p != "" && !strings.HasPrefix(p, "size=") && !strings.HasPrefix(p, "format=") && !strings.HasPrefix(p, "import-from=") {
			keep = append(keep, p)
		}
	}
	keep = append(keep, "size="+formatSize(size))
	v := vol + "," + strings.Join(keep, ",")
	if sch := lookup(s.api.configs[kind], key); sch != nil && sch.Format != nil {
		return s.reorder(sch.Format, v)
	}
	return v
}

// formattingLine is what making a file-based disk prints.
func (s *state) formattingLine(vol string) string {
	v := ""
	if st := s.storages[storeOf(vol)]; st == nil || !st.isFile() || st.typ() == "btrfs" {
		return ""
	}
	for _, n := range append([]*node{{}}, s.nodes...) {
		x := s.volumes[shelf(n.name, storeOf(vol))][vol]
		if x == nil {
			continue
		}
		v = fmt.Sprintf("Formatting '%s', fmt=%s size=%d preallocation=off", s.pathOf(vol), x.format, x.size)
		if x.format == "qcow2" {
			v = fmt.Sprintf("Formatting '%s', fmt=qcow2 cluster_size=65536 extended_l2=off preallocation=off compression_type=zlib size=%d lazy_refcounts=off refcount_bits=16", s.pathOf(vol), x.size)
		}
		break
	}
	return v
}

// unlinkDisks is PUT unlink.
func unlinkDisks(c *call) (any, error) {
	c.p["delete"] = c.str("idlist")
	delete(c.p, "idlist")
	return setGuestConfig(c)
}

// resizeDisk is PUT resize.
func resizeDisk(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	if g.kind == kindLXC {
		if err := g.locked(); err != nil {
			return nil, err
		}
		if err := g.checkDigest(c); err != nil {
			return nil, err
		}
	}
	if c.flag("skiplock") && !c.user.root() {
		return nil, bad("skiplock", "Only root may use this option.")
	}
	disk, size := c.str("disk"), c.str("size")
	typ := "resize"
	do := func(t *task) error {
		if g.kind == kindQemu {
			if err := g.checkDigest(c); err != nil {
				return err
			}
			if err := g.locked(); err != nil {
				return err
			}
		}
		val := g.conf[disk]
		if val == "" {
			if g.kind == kindLXC {
				return die("disk '%s' does not exist", disk)
			}
			return die("disk '%s' does not exist", disk)
		}
		vol := volumeOf(val)
		x := c.s.vol(c.node.name, vol)
		if x == nil {
			return die("no such volume '%s'", vol)
		}
		want := parseSize(strings.TrimPrefix(size, "+"), 1)
		if strings.HasPrefix(size, "+") {
			want += x.size
		}
		if want < x.size {
			return die("unable to shrink disk size")
		}
		if want == x.size {
			return nil
		}
		x.size = want
		_, rest, _ := strings.Cut(val, ",")
		g.conf[disk] = c.s.diskValue(g.kind, disk, vol, rest, want)
		if t != nil && (g.kind == kindLXC || !g.running) {
			t.say("Image resized.")
			if g.kind == kindLXC {
				blocks := want / 4096
				p := c.s.pathOf(vol)
				t.say("e2fsck 1.47.0 (5-Feb-2023)\nPass 1: Checking inodes, blocks, and sizes\nPass 2: Checking directory structure\nPass 3: Checking directory connectivity\nPass 4: Checking reference counts\nPass 5: Checking group summary information")
				t.say("%s: 55/65536 files (0.0%% non-contiguous), 13467/262144 blocks", p)
				t.say("resize2fs 1.47.0 (5-Feb-2023)\nResizing the filesystem on %s to %d (4k) blocks.\nThe filesystem on %s is now %d (4k) blocks long.\n", p, blocks, p, blocks)
			}
		}
		c.s.touch(g)
		return nil
	}
	if g.kind == kindLXC {
		if err := c.need("/storage/"+storeOf(volumeOf(g.conf[disk])), "Datastore.AllocateSpace"); g.conf[disk] != "" && err != nil {
			return nil, err
		}
		if g.conf[disk] == "" {
			return nil, die("disk '%s' does not exist", disk)
		}
		return c.quick(typ, fmt.Sprint(g.id), time.Second, do), nil
	}
	return c.quick(typ, fmt.Sprint(g.id), 400*time.Millisecond, do), nil
}

// moveDisk is POST move_disk and move_volume.
func moveDisk(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	key := firstNonEmpty(c.str("disk"), c.str("volume"))
	to := c.str("storage")
	if to == "" {
		return nil, bad("storage", "property is missing")
	}
	if err := c.need("/storage/"+to, "Datastore.AllocateSpace"); err != nil {
		return nil, err
	}
	if err := g.checkDigest(c); err != nil {
		return nil, err
	}
	if err := g.locked(); err != nil {
		return nil, err
	}
	val := g.conf[key]
	if val == "" {
		if g.kind == kindLXC {
			return nil, die("volume '%s' for container '%d' does not exist", key, g.id)
		}
		return nil, die("disk '%s' does not exist", key)
	}
	vol := volumeOf(val)
	if vol == "" {
		return nil, die("disk '%s' has no associated volume", key)
	}
	if isCDROM(val) {
		return nil, die("you can't move a cdrom")
	}
	if storeOf(vol) == to && c.str("format") == "" {
		return nil, die("you can't move to the same storage with same format")
	}
	st, err := c.s.usable(to, c.node.name)
	if err != nil {
		return nil, err
	}
	for _, sn := range g.snaps {
		for _, v := range sn.conf {
			if c.flag("delete") && volumeOf(v) == vol {
				return nil, die("you can't move a disk with snapshots and delete the source")
			}
		}
	}
	if g.kind == kindLXC && g.running {
		return nil, die("cannot move volumes of a running container")
	}
	typ := map[string]string{kindQemu: "qmmove", kindLXC: "move_volume"}[g.kind]
	return c.quick(typ, fmt.Sprint(g.id), 1500*time.Millisecond, func(t *task) error {
		old := c.s.vol(c.node.name, vol)
		if old == nil {
			return die("no such volume '%s'", vol)
		}
		format := firstNonEmpty(c.str("format"), old.format)
		if !st.isFile() {
			format = "raw"
			if st.typ() == "zfspool" && g.kind == kindLXC {
				format = "subvol"
			}
		}
		n := c.s.addVol(c.node.name, &volume{id: c.s.newDiskName(c.node.name, st, g.id, format, "disk"), content: old.content, format: format, size: old.size, used: old.used, vmid: g.id})
		t.say("copying volume '%s' from current storage '%s' to target storage '%s'", vol, storeOf(vol), st.id)
		t.say("create full clone of %s %s (%s)", map[string]string{kindQemu: "drive", kindLXC: "mountpoint"}[g.kind], key, vol)
		if line := c.s.formattingLine(n.id); line != "" {
			t.say("%s", line)
		}
		t.say("allocated target volume '%s'", n.id)
		t.say("transferred 0.0 B of %s (0.00%%)", humanSize(n.size))
		t.say("transferred %s of %s (100.00%%)", humanSize(n.size), humanSize(n.size))
		_, rest, _ := strings.Cut(val, ",")
		g.conf[key] = c.s.diskValue(g.kind, key, n.id, rest, n.size)
		if c.flag("delete") {
			t.say("removing source volume '%s' after successful copy", vol)
			c.s.dropVol(old)
		} else {
			c.s.addUnused(g, vol)
		}
		c.s.touch(g)
		return nil
	}), nil
}
