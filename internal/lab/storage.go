package lab

import (
	"fmt"
	"path"
	"sort"
	"strings"
	"time"
)

// storage is one storage definition of the cluster.
type storage struct {
	id    string
	conf  M // as GET /storage/{id} shows it, without digest
	dead  bool
	total int64
	base  int64 // used beyond the volumes that the lab knows
}

func (st *storage) typ() string { t, _ := st.conf["type"].(string); return t }

func (st *storage) text(k string) string { t, _ := st.conf[k].(string); return t }

func (st *storage) set(k string) bool { return fmt.Sprint(st.conf[k]) == "1" }

func (st *storage) contents() []string { return splitList(st.text("content")) }

func (st *storage) holds(kind string) bool { return contains(st.contents(), kind) }

func (st *storage) disabled() bool { return st.set("disable") }

// shared storages have one content for all nodes.
func (st *storage) shared() bool {
	switch st.typ() {
	case "nfs", "cifs", "pbs", "rbd", "cephfs", "iscsi":
		return true
	}
	return st.set("shared")
}

// isFile tells whether volumes are files in a directory tree.
func (st *storage) isFile() bool {
	switch st.typ() {
	case "dir", "nfs", "cifs", "btrfs", "cephfs":
		return true
	}
	return false
}

func (st *storage) on(node string) bool {
	nodes := splitList(st.text("nodes"))
	return len(nodes) == 0 || contains(nodes, node)
}

func (st *storage) root() string {
	if p := st.text("path"); p != "" {
		return p
	}
	return "/mnt/pve/" + st.id
}

// volume is anything that lies on a storage.
type volume struct {
	id        string // storage:name
	node      string // empty on shared storages
	content   string
	format    string
	size      int64
	used      int64
	ctime     time.Time
	vmid      int
	parent    string // base volume's id
	notes     string
	protected bool
	subtype   string
	snaps     map[string]bool
	archive   *archive
	verified  string
}

// shelf names what one storage holds as seen from one node (no node: a shared storage).
func shelf(node, store string) string { return node + "\x00" + store }

func storeOf(volid string) string { s, _, _ := strings.Cut(volid, ":"); return s }

func volName(volid string) string { _, n, _ := strings.Cut(volid, ":"); return n }

// vol finds a volume as seen from a node.
func (s *state) vol(node, volid string) *volume {
	st := s.storages[storeOf(volid)]
	if st == nil {
		return nil
	}
	if st.shared() {
		node = ""
	}
	return s.volumes[shelf(node, st.id)][volid]
}

func (s *state) addVol(node string, v *volume) *volume {
	if st := s.storages[storeOf(v.id)]; st != nil && st.shared() {
		node = ""
	}
	v.node = node
	if v.ctime.IsZero() {
		v.ctime = s.now
	}
	k := shelf(node, storeOf(v.id))
	if s.volumes[k] == nil {
		s.volumes[k] = map[string]*volume{}
	}
	s.volumes[k][v.id] = v
	return v
}

func (s *state) dropVol(v *volume) { delete(s.volumes[shelf(v.node, storeOf(v.id))], v.id) }

// guestVolumes are the disks of a guest, on any storage that its node sees.
func (s *state) guestVolumes(g *guest) []*volume {
	var out []*volume
	for _, st := range s.storages {
		for _, v := range s.volsOn(g.node, st.id) {
			if v.vmid == g.id && (v.content == "images" || v.content == "rootdir") {
				out = append(out, v)
			}
		}
	}
	return out
}

// volsOn lists what a storage holds, seen from a node, by volume id.
func (s *state) volsOn(node, store string) []*volume {
	var out []*volume
	st := s.storages[store]
	if st == nil {
		return nil
	}
	if st.shared() {
		node = ""
	}
	for _, v := range s.volumes[shelf(node, store)] {
		out = append(out, v)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].id < out[j].id })
	return out
}

func (s *state) used(node string, st *storage) int64 {
	u := st.base
	if st.shared() {
		node = ""
	}
	for _, v := range s.volumes[shelf(node, st.id)] {
		u += v.used
	}
	return u
}

// newDiskName picks the next free disk name of a guest on a storage.
func (s *state) newDiskName(node string, st *storage, vmid int, format, stem string) string {
	for i := 0; i < 1000; i++ {
		name := fmt.Sprintf("vm-%d-%s-%d", vmid, stem, i)
		if stem == "cloudinit" && i == 0 { // there is one
			name = fmt.Sprintf("vm-%d-cloudinit", vmid)
		}
		if stem == "disk" && format == "subvol" {
			name = fmt.Sprintf("subvol-%d-disk-%d", vmid, i)
		}
		if st.isFile() {
			name = fmt.Sprintf("%d/%s.%s", vmid, name, format)
		}
		taken := false
		for _, v := range s.volsOn(node, st.id) {
			if strings.TrimSuffix(path.Base(volName(v.id)), path.Ext(v.id)) == strings.TrimSuffix(path.Base(name), path.Ext(name)) {
				taken = true
			}
		}
		if !taken {
			return st.id + ":" + name
		}
	}
	return st.id + ":full"
}

// storageOf finds the storage for use on a node.
func (s *state) storageOf(id string) (*storage, error) {
	st := s.storages[id]
	if st == nil {
		return nil, die("storage '%s' does not exist", id)
	}
	return st, nil
}

// usable adds that it must be enabled and on the node.
func (s *state) usable(id, node string) (*storage, error) {
	st, err := s.storageOf(id)
	if err != nil {
		return nil, err
	}
	if st.disabled() {
		return nil, die("storage '%s' is disabled", id)
	}
	if !st.on(node) {
		return nil, die("storage '%s' is not available on node '%s'", id, node)
	}
	return st, nil
}

// active tells whether the storage answers on a node.
func (st *storage) active(node string) bool { return !st.disabled() && st.on(node) && !st.dead }

// deadDelay is how long a look at a dead export blocks its caller.
const deadDelay = 30 * time.Second

func (c *call) storageParam() (*storage, error) { return c.s.storageOf(c.str("storage")) }

// storageStatus is one line of a node's storage list.
func (c *call) storageStatus(st *storage) M {
	on := !st.disabled() && st.on(c.node.name)
	m := M{"type": st.typ(), "content": shuffled(st.text("content")), "enabled": b2i(on), "active": b2i(st.active(c.node.name)), "shared": b2i(st.shared()), "used": 0, "avail": 0, "total": 0}
	if st.active(c.node.name) {
		used := c.s.used(c.node.name, st)
		m["used"], m["total"], m["avail"] = used, st.total, st.total-used
	}
	return m
}

// shuffled keeps the list; the genuine order is random, so no order is promised.
func shuffled(s string) string { return s }

func nodeStorageList(c *call) (any, error) {
	out := []M{}
	delay := time.Duration(0)
	for _, id := range c.s.storOrder {
		st := c.s.storages[id]
		if st == nil || !c.s.mayAny(c.user.id(), "/storage/"+id, "Datastore.Audit", "Datastore.AllocateSpace") {
			continue
		}
		if want := c.str("storage"); want != "" && want != id {
			continue
		}
		if want := c.str("content"); want != "" {
			any := false
			for _, k := range splitList(want) {
				any = any || st.holds(k)
			}
			if !any || st.disabled() || !st.on(c.node.name) {
				continue
			}
		}
		// A storage that is off, or not for this node, is still listed, as not enabled.
		if c.flag("enabled") && (st.disabled() || !st.on(c.node.name)) {
			continue
		}
		m := c.storageStatus(st)
		m["storage"] = id
		if total, _ := m["total"].(int64); total > 0 {
			used, _ := m["used"].(int64)
			m["used_fraction"] = float64(used) / float64(total)
		}
		if st.dead {
			delay = 10 * time.Second
		}
		out = append(out, m)
	}
	return &result{data: out, delay: delay}, nil
}

func nodeStorageStatus(c *call) (any, error) {
	st, err := c.storageParam()
	if err != nil {
		return nil, err
	}
	res := &result{data: c.storageStatus(st)}
	if st.dead {
		res.delay = 10 * time.Second
	}
	return res, nil
}

func (v *volume) listed(s *state) M {
	m := M{"volid": v.id, "content": v.content, "format": v.format, "size": v.size, "ctime": v.ctime.Unix()}
	if v.content == "images" || v.content == "rootdir" {
		m["used"] = v.used
		m["parent"] = nil
		if v.parent != "" {
			m["parent"] = "../" + volName(v.parent)
		}
		st := s.storages[storeOf(v.id)]
		if st != nil && !st.isFile() {
			delete(m, "used")
			delete(m, "ctime")
			if v.parent == "" {
				delete(m, "parent")
			}
		}
	}
	if v.vmid != 0 {
		m["vmid"] = v.vmid
	}
	if v.content == "backup" {
		m["subtype"] = v.subtype
		if v.notes != "" {
			m["notes"] = v.notes
		}
		if v.protected {
			m["protected"] = 1
		}
		if v.verified != "" {
			m["verification"] = M{"state": v.verified, "upid": "UPID:pbs:0000029A:00000AF3:00000001:65000000:verify:main:root@pam:"}
		}
	}
	return m
}

// mayVolume is the rule for seeing one volume.
func (c *call) mayVolume(v *volume) bool {
	id := c.user.id()
	switch v.content {
	case "iso", "vztmpl", "import", "snippets":
		return c.s.mayAny(id, "/storage/"+storeOf(v.id), "Datastore.Audit", "Datastore.AllocateSpace")
	case "backup":
		return c.s.may(id, "/storage/"+storeOf(v.id), "Datastore.Allocate") ||
			c.s.may(id, "/storage/"+storeOf(v.id), "Datastore.AllocateSpace") && v.vmid != 0 && c.s.may(id, fmt.Sprintf("/vms/%d", v.vmid), "VM.Backup")
	}
	return c.s.may(id, "/storage/"+storeOf(v.id), "Datastore.Allocate") ||
		v.vmid != 0 && c.s.may(id, "/storage/"+storeOf(v.id), "Datastore.AllocateSpace") && c.s.may(id, fmt.Sprintf("/vms/%d", v.vmid), "VM.Config.Disk")
}

func storageContent(c *call) (any, error) {
	st, err := c.s.usable(c.str("storage"), c.node.name)
	if err != nil {
		return nil, err
	}
	if st.dead {
		f := die("storage '%s' is not online", st.id)
		f.delay = deadDelay
		return nil, f
	}
	out := []M{}
	for _, v := range c.s.volsOn(c.node.name, st.id) {
		if want := c.str("content"); want != "" && v.content != want {
			continue
		}
		if c.has("vmid") && v.vmid != c.num("vmid") {
			continue
		}
		if !st.holds(v.content) || !c.mayVolume(v) {
			continue
		}
		out = append(out, v.listed(c.s))
	}
	return out, nil
}

// fullVolid completes a path part to a volume id.
func (c *call) fullVolid() string {
	v := c.str("volume")
	if !strings.Contains(v, ":") {
		return c.str("storage") + ":" + v
	}
	return v
}

func (c *call) pathVolume() (*volume, *storage, error) {
	id := c.fullVolid()
	if st := c.str("storage"); st != "" && storeOf(id) != st {
		return nil, nil, bad("storage", "storage does not match volume ID")
	}
	st, err := c.s.storageOf(storeOf(id))
	if err != nil {
		return nil, nil, err
	}
	return c.s.vol(c.node.name, id), st, nil
}

func (s *state) pathOf(v string) string {
	st := s.storages[storeOf(v)]
	name := volName(v)
	if st == nil {
		return name
	}
	switch st.typ() {
	case "lvmthin", "lvm":
		return "/dev/" + st.text("vgname") + "/" + name
	case "zfspool":
		return "/dev/zvol/" + st.text("pool") + "/" + name
	case "pbs":
		return st.text("username") + "@" + st.text("server") + ":" + st.text("datastore") + ":" + name
	}
	kind, rest, _ := strings.Cut(name, "/")
	switch kind {
	case "iso":
		return st.root() + "/template/iso/" + rest
	case "vztmpl":
		return st.root() + "/template/cache/" + rest
	case "backup":
		return st.root() + "/dump/" + rest
	case "snippets", "import":
		return st.root() + "/" + kind + "/" + rest
	}
	parts := strings.Split(name, "/")
	if len(parts) == 4 {
		parts = parts[2:]
	}
	return st.root() + "/images/" + strings.Join(parts, "/")
}

func volumeInfo(c *call) (any, error) {
	v, _, err := c.pathVolume()
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, c.noVolume()
	}
	if !c.mayVolume(v) {
		return nil, denied("")
	}
	m := M{"path": c.s.pathOf(v.id), "size": v.size, "used": v.used, "format": v.format}
	if v.content == "backup" {
		if v.notes != "" {
			m["notes"] = v.notes
		}
		m["protected"] = b2i(v.protected)
	}
	return m, nil
}

// noVolume is what a look at an absent volume says.
func (c *call) noVolume() error {
	st := c.s.storages[storeOf(c.fullVolid())]
	name := volName(c.fullVolid())
	if st != nil && st.isFile() && !strings.Contains(name, "/") {
		return die("unable to parse directory volume name '%s'", name)
	}
	return die("volume_size_info on '%s' failed - no format", c.fullVolid())
}
