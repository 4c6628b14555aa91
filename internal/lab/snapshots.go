package lab

import (
	"fmt"
	"strings"
	"time"
)

func (g *guest) snap(name string) *snapshot {
	for _, sn := range g.snaps {
		if sn.name == name {
			return sn
		}
	}
	return nil
}

func (g *guest) snapText(text string) string {
	if g.kind == kindLXC && text != "" && !strings.HasSuffix(text, "\n") {
		return text + "\n"
	}
	return text
}

// snapConfig is a snapshot's configuration as read.
func (s *state) snapConfig(g *guest, sn *snapshot) M {
	m := s.shown(g, sn.conf)
	delete(m, "description")
	if sn.desc != "" {
		m["description"] = g.snapText(sn.desc)
	}
	m["snaptime"] = sn.time
	if sn.parent != "" {
		m["parent"] = sn.parent
	}
	if sn.state != "" {
		m["snapstate"] = sn.state
	}
	return m
}

func listSnapshots(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	out := []M{}
	for _, sn := range g.snaps {
		m := M{"name": sn.name, "snaptime": sn.time, "description": g.snapText(sn.desc)}
		if sn.parent != "" {
			m["parent"] = sn.parent
		}
		if sn.state != "" {
			m["snapstate"] = sn.state
		}
		if g.kind == kindQemu {
			m["vmstate"] = b2i(sn.vmstate)
		}
		out = append(out, m)
	}
	cur := M{"name": "current", "description": "You are here!", "digest": g.digest(), "running": b2i(g.running)}
	if g.parent != "" {
		cur["parent"] = g.parent
	}
	return append(out, cur), nil
}

func snapshotIndex(c *call) (any, error) { return []M{{"cmd": "rollback"}, {"cmd": "config"}}, nil }

func (c *call) snapOf(g *guest) (*snapshot, error) {
	sn := g.snap(c.str("snapname"))
	if sn == nil {
		return nil, die("snapshot '%s' does not exist", c.str("snapname"))
	}
	return sn, nil
}

func snapshotConfig(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	sn, err := c.snapOf(g)
	if err != nil {
		return nil, err
	}
	return c.s.snapConfig(g, sn), nil
}

func setSnapshotConfig(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	if c.str("snapname") == "current" {
		return nil, nil
	}
	if err := g.locked(); err != nil {
		return nil, err
	}
	sn, err := c.snapOf(g)
	if err != nil {
		return nil, err
	}
	if c.has("description") {
		sn.desc = keptText(g.kind, c.str("description"))
	}
	return nil, nil
}

// canSnapshot tells whether every volume of a guest lies where snapshots are possible.
func (s *state) canSnapshot(g *guest) bool {
	for _, k := range g.diskKeys(g.conf) {
		if strings.HasPrefix(k, "unused") || isCDROM(g.conf[k]) {
			continue
		}
		vol := volumeOf(g.conf[k])
		if vol == "" {
			if g.kind == kindLXC { // a bind mount
				return false
			}
			continue
		}
		if g.kind == kindLXC && strings.HasPrefix(k, "mp") && option(g.conf[k], "backup") == "" && strings.HasPrefix(vol, "/") {
			return false
		}
		if !s.snapshotsOn(g, vol) {
			return false
		}
	}
	return true
}

func (s *state) snapshotsOn(g *guest, vol string) bool {
	st, x := s.storages[storeOf(vol)], s.vol(g.node, vol)
	if st == nil || x == nil {
		return false
	}
	switch st.typ() {
	case "lvmthin", "zfspool", "rbd", "btrfs":
		return st.typ() != "btrfs" || x.format == "raw" || x.format == "subvol"
	}
	return x.format == "qcow2" && g.kind == kindQemu
}

func makeSnapshot(c *call) (any, error) {
	name := c.str("snapname")
	lxc := strings.Contains(c.op.Path, "/lxc/")
	if name == "current" || name == "pending" || name == "vzdump" && lxc {
		return nil, die("unable to use snapshot name '%s' (reserved name)", name)
	}
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	t := c.s.newTask(c.node, g.taskType("snapshot"), fmt.Sprint(g.id), c.user)
	c.s.work(t, 50*time.Millisecond, func() error {
		if err := g.locked(); err != nil {
			return err
		}
		if g.template() {
			return die("you can't take a snapshot if it's a template")
		}
		if g.snap(name) != nil {
			return die("snapshot name '%s' already used", name)
		}
		if !c.s.canSnapshot(g) {
			return die("snapshot feature is not available")
		}
		g.conf["lock"] = "snapshot"
		conf := cloneMap(g.conf)
		delete(conf, "lock")
		delete(conf, "description")
		sn := &snapshot{name: name, parent: g.parent, desc: keptText(g.kind, c.str("description")), time: c.s.now.Unix(), conf: conf, state: "prepare", vmstate: c.flag("vmstate") && g.running}
		if sn.vmstate {
			conf["vmstate"] = c.s.stateVolume(g, name)
			conf["runningmachine"], conf["runningcpu"] = "pc-i440fx-10.1+pve0", "qemu64"
		}
		g.snaps = append(g.snaps, sn)
		t.onStop = func() string {
			g.dropSnap(sn)
			delete(g.conf, "lock")
			return ""
		}
		d := 50 * time.Millisecond
		if sn.vmstate {
			d = 2 * time.Second
		}
		c.s.work(t, d, func() error {
			if g.kind == kindQemu {
				if sn.vmstate {
					if line := c.s.formattingLine(conf["vmstate"]); line != "" {
						t.say("%s", line)
					}
					t.say("saving VM state and RAM using storage '%s'", storeOf(conf["vmstate"]))
					t.say("completed saving the VM state in 0s, saved 1.00 MiB")
				} else if g.running && !agentOn(g.conf["agent"]) {
					t.say("skipping guest filesystem freeze - disabled in VM options")
				}
				for _, k := range g.diskKeys(g.conf) {
					if vol := volumeOf(g.conf[k]); vol != "" && !isCDROM(g.conf[k]) && !strings.HasPrefix(k, "unused") {
						t.say("snapshotting '%s' (%s)", "drive-"+k, vol)
						if x := c.s.vol(g.node, vol); g.running && x != nil && x.format == "qcow2" {
							t.say("internal qemu snapshot")
						}
					}
				}
			}
			sn.state = ""
			g.parent = name
			delete(g.conf, "lock")
			return nil
		})
		return nil
	})
	return t.upid, nil
}

// stateVolume makes the volume that holds a running VM's memory, beside its first disk.
func (s *state) stateVolume(g *guest, snap string) string {
	store := "local"
	for _, k := range g.diskKeys(g.conf) {
		if vol := volumeOf(g.conf[k]); vol != "" && !isCDROM(g.conf[k]) {
			store = storeOf(vol)
			break
		}
	}
	name := fmt.Sprintf("vm-%d-state-%s", g.id, snap)
	if st := s.storages[store]; st != nil && st.isFile() {
		name = fmt.Sprintf("%d/%s.raw", g.id, name)
	}
	id := store + ":" + name
	s.addVol(g.node, &volume{id: id, content: "images", format: "raw", size: s.maxMem(g, g.conf)*2 + 524288000, used: 1 << 20, vmid: g.id})
	return id
}

func (g *guest) dropSnap(sn *snapshot) {
	for i, x := range g.snaps {
		if x == sn {
			g.snaps = append(g.snaps[:i:i], g.snaps[i+1:]...)
		}
	}
	for _, x := range g.snaps {
		if x.parent == sn.name {
			x.parent = sn.parent
		}
	}
	if g.parent == sn.name {
		g.parent = sn.parent
	}
}

func deleteSnapshot(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	return c.quick(g.taskType("delsnapshot"), fmt.Sprint(g.id), 120*time.Millisecond, func(t *task) error {
		sn, err := c.snapOf(g)
		if err != nil {
			return err
		}
		if l := g.conf["lock"]; l != "" && !(c.flag("force") && l == "snapshot") {
			return g.locked()
		}
		if x := c.s.vol(g.node, sn.conf["vmstate"]); x != nil {
			c.s.dropVol(x)
		}
		g.dropSnap(sn)
		return nil
	}), nil
}

func rollbackSnapshot(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	return c.quick(g.taskType("rollback"), fmt.Sprint(g.id), 120*time.Millisecond, func(t *task) error {
		sn, err := c.snapOf(g)
		if err != nil {
			return err
		}
		if g.template() {
			return die("you can't rollback if the %s is a template", g.word())
		}
		if err := g.locked(); err != nil {
			return err
		}
		if sn.state != "" {
			return die("unable to rollback to incomplete snapshot (snapstate = %s)", sn.state)
		}
		for _, k := range g.diskKeys(sn.conf) {
			vol := volumeOf(sn.conf[k])
			if st := c.s.storages[storeOf(vol)]; st != nil && st.typ() == "zfspool" {
				if newer := g.newerThan(sn); newer != "" {
					return die("can't rollback, '%s' is not most recent snapshot on '%s'", sn.name, vol)
				}
			}
		}
		was := g.running
		if was {
			c.s.haltGuest(g)
		}
		desc, hasDesc := g.conf["description"]
		conf := cloneMap(sn.conf)
		for _, k := range []string{"vmstate", "runningmachine", "runningcpu"} {
			delete(conf, k)
		}
		if hasDesc {
			conf["description"] = desc
		}
		for _, k := range g.diskKeys(g.conf) {
			vol := volumeOf(g.conf[k])
			used := false
			for _, x := range conf {
				used = used || vol != "" && volumeOf(x) == vol
			}
			if vol != "" && !used && !isCDROM(g.conf[k]) {
				defer c.s.addUnused(g, vol)
			}
		}
		g.conf, g.pend, g.pdel = conf, map[string]string{}, map[string]bool{}
		g.parent = sn.name
		if g.kind == kindQemu && g.conf["vmgenid"] != "" {
			g.conf["vmgenid"] = newUUID()
		}
		if sn.vmstate || c.flag("start") {
			c.s.bootGuest(g)
		}
		c.s.touch(g)
		return nil
	}), nil
}

// newerThan names a snapshot made after sn.
func (g *guest) newerThan(sn *snapshot) string {
	for _, x := range g.snaps {
		if x != sn && x.time > sn.time {
			return x.name
		}
	}
	return ""
}

func guestFeature(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	conf := g.conf
	if c.has("snapname") {
		sn, err := c.snapOf(g)
		if err != nil {
			return nil, err
		}
		conf = sn.conf
	}
	ok := false
	switch c.str("feature") {
	case "snapshot":
		ok = c.s.canSnapshot(g)
	case "clone":
		ok = g.template() || c.s.canSnapshot(g) && c.has("snapname")
	case "copy":
		ok = true
	}
	m := M{"hasFeature": b2i(ok)}
	if g.kind == kindQemu {
		m["nodes"] = c.s.nodesFor(g, conf)
	}
	return m, nil
}

// nodesFor lists the nodes that have all storages of a configuration.
func (s *state) nodesFor(g *guest, conf map[string]string) []string {
	out := []string{}
	for _, n := range s.nodes {
		ok := true
		for _, k := range g.diskKeys(conf) {
			vol := volumeOf(conf[k])
			if st := s.storages[storeOf(vol)]; vol != "" && (st == nil || !st.on(n.name) || !st.shared() && n.name != g.node) {
				ok = false
			}
		}
		if ok {
			out = append(out, n.name)
		}
	}
	return out
}
