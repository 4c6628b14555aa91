package lab

import (
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net"
	"sort"
	"strconv"
	"strings"
	"time"
)

// state is everything that the site knows. It is guarded by the lab's mutex.
type state struct {
	rel      release
	api      *checker
	delays   bool
	now      time.Time
	boot     time.Time
	lastStat time.Time
	agenda   agenda
	seq      int

	cluster   string
	nodes     []*node
	noQuorum  bool
	nested    bool // the nodes are containers themselves and run a plain emulator
	version   int
	ticketKey []byte

	guests    map[int]*guest
	storages  map[string]*storage
	storOrder []string
	volumes   map[string]map[string]*volume // by shelf, then volume id

	users      map[string]*user
	groups     map[string]*group
	roles      map[string]*role
	realms     map[string]M
	acl        map[string]aclNode
	adminPrivs map[string]bool
	permCache  map[string]map[string]bool
	pools      map[string]*pool
	guestPool  map[int]string
	fw         map[string]*firewall // "cluster", "node/N", "guest/ID", "vnet/V"
	fwGroups   map[string]*fwGroup
	ha         *haState
	jobs       map[string]M // backup jobs
	jobOrder   []string
	repl       map[string]M
	sdn        *sdnState
	objects    map[string]*generic // collections without a model of their own
	options    M
	nodeConf   map[string]M
	ifaces     map[string]*network
	tasks      []*task // oldest first
	byUPID     map[string]*task
	clusterLog []M

	dirty        map[int]time.Time // guests whose figures are to be published, and when at the earliest
	pendingCalls map[string][]func()
	pid          int
	vzdumpLock   map[string]*task // by node
	vzdumpConf   map[string]M     // by node: what its file for backups holds
	macSeq       uint32
	agents       map[int]*agentState
	agentSocket  func(vmid int) (net.Conn, error)
	ill          map[int]illness // by guest
}

type node struct {
	name, ip     string
	id           int
	state        NodeState
	cpus         int
	mem, disk    int64
	fingerprint  string
	boot         time.Time
	certificates []M
}

type pool struct {
	comment  string
	storages map[string]bool
}

func newState(now time.Time, delays bool, rel release) *state {
	s := &state{
		rel:    rel,
		delays: delays, now: now, boot: now.Add(-71 * time.Minute), lastStat: now,
		guests: map[int]*guest{}, storages: map[string]*storage{}, volumes: map[string]map[string]*volume{},
		users: map[string]*user{}, groups: map[string]*group{}, roles: map[string]*role{}, realms: map[string]M{},
		acl: map[string]aclNode{}, permCache: map[string]map[string]bool{}, pools: map[string]*pool{}, guestPool: map[int]string{},
		fw: map[string]*firewall{}, fwGroups: map[string]*fwGroup{}, ha: newHA(), jobs: map[string]M{}, repl: map[string]M{},
		sdn: newSDN(), objects: map[string]*generic{}, options: M{}, nodeConf: map[string]M{}, ifaces: map[string]*network{},
		byUPID: map[string]*task{}, dirty: map[int]time.Time{}, pendingCalls: map[string][]func(){}, pid: 400, version: 1,
		vzdumpLock: map[string]*task{}, vzdumpConf: map[string]M{}, agents: map[int]*agentState{}, ill: map[int]illness{},
	}
	s.ha.epoch = now
	s.ticketKey = make([]byte, 32)
	_, _ = rand.Read(s.ticketKey)
	s.realms["pam"] = M{"type": "pam", "comment": "Linux PAM standard authentication"}
	s.realms["pve"] = M{"type": "pve", "comment": "Proxmox VE authentication server"}
	s.builtinRoles()
	s.users["root@pam"] = &user{id: "root@pam", enable: true, groups: map[string]bool{}, tokens: map[string]*token{}}
	return s
}

func (s *state) api0() *node { return s.nodes[0] }

func (s *state) node(name string) *node {
	for _, n := range s.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// up tells whether a node takes part in the cluster with figures.
func (n *node) up() bool { return n.state == NodeOn || n.state >= NodeBackendDown }

func (s *state) resumeBackend(n *node) {
	if n.state != NodeOn {
		return
	}
	calls := s.pendingCalls[n.name]
	delete(s.pendingCalls, n.name)
	for _, do := range calls {
		do()
	}
}

func (s *state) builtinRoles() {
	add := func(name string, privs ...[]string) {
		r := &role{privs: map[string]bool{}, special: true}
		for _, l := range privs {
			for _, p := range l {
				r.privs[p] = true
			}
		}
		s.roles[name] = r
	}
	g := map[string]privGroup{}
	var audits []string
	for _, x := range s.rel.privGroups() {
		g[x.name] = x
		audits = append(audits, x.audit...)
	}
	var admin []string
	for _, x := range s.rel.privGroups() {
		admin = append(append(append(admin, x.admin...), x.user...), x.audit...)
	}
	add("Administrator", s.rel.privs())
	add("NoAccess")
	add("PVEAuditor", audits)
	vm, ds, sys, sdn, mp := g["VM"], g["Datastore"], g["Sys"], g["SDN"], g["Mapping"]
	add("PVEVMAdmin", vm.admin, vm.user, vm.audit)
	add("PVEVMUser", vm.user, vm.audit)
	add("PVETemplateUser", []string{"VM.Audit", "VM.Clone"})
	add("PVEDatastoreAdmin", ds.root, ds.user, ds.audit)
	add("PVEDatastoreUser", ds.user, ds.audit)
	add("PVEPoolAdmin", g["Pool"].admin, g["Pool"].audit)
	add("PVEPoolUser", g["Pool"].audit)
	add("PVESysAdmin", sys.admin, sys.audit)
	add("PVESDNAdmin", sdn.root, sdn.user, sdn.audit)
	add("PVESDNUser", sdn.user, sdn.audit)
	add("PVEMappingAdmin", mp.admin, mp.user, mp.audit)
	add("PVEMappingUser", mp.user, mp.audit)
	add("PVEMappingAuditor", mp.audit)
	add("PVEUserAdmin", []string{"User.Modify", "Realm.AllocateUser", "Group.Allocate"})
	full := append([]string{}, admin...)
	full = append(full, "Datastore.Allocate", "Datastore.AllocateTemplate", "SDN.Allocate")
	add("PVEAdmin", full)
}

// Small helpers for parameters.

func (c *call) has(k string) bool {
	v, ok := c.p[k]
	if !ok {
		return false
	}
	_, undef := v.(null)
	return !undef
}

func (c *call) str(k string) string {
	switch t := c.p[k].(type) {
	case string:
		return t
	case []string:
		return strings.Join(t, ",")
	}
	return ""
}

func (c *call) num(k string) int   { return atoi(c.str(k)) }
func (c *call) flag(k string) bool { return c.str(k) == "1" }
func (c *call) list(k string) []string {
	switch t := c.p[k].(type) {
	case []string:
		return t
	case string:
		return []string{t}
	}
	return nil
}

// flagOr is a boolean with a default.
func (c *call) flagOr(k string, def bool) bool {
	if !c.has(k) {
		return def
	}
	return c.flag(k)
}

func atoi(s string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(s, "+"))
	if err != nil {
		return 0
	}
	return n
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func digestOf(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// digestMap is the digest of a section kept as key → value.
func digestMap(m M) string {
	var b strings.Builder
	for _, k := range sortedKeys(m) {
		if k != "digest" {
			fmt.Fprintf(&b, "%s %v\n", k, m[k])
		}
	}
	return digestOf(b.String())
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func newMAC() string {
	var b [3]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("BC:24:11:%02X:%02X:%02X", b[0], b[1], b[2])
}

// sortedIDs are the ids of all guests in order.
func (s *state) sortedIDs() []int {
	ids := make([]int, 0, len(s.guests))
	for id := range s.guests {
		ids = append(ids, id)
	}
	sort.Ints(ids)
	return ids
}

// clusterFiles are the parts of the API whose writes need the lock of a file of the cluster file system: path
// prefix, name of the lock, and what the method says first ("" = nothing).
func clusterFiles() [][3]string {
	return [][3]string{
		{"/pools", "file-user_cfg", "pool"}, {"/access/users/{userid}/token", "file-user_cfg", "token"}, {"/access/users", "file-user_cfg", "user"}, {"/access/groups", "file-user_cfg", "group"}, {"/access/roles", "file-user_cfg", "role"}, {"/access/acl", "file-user_cfg", "ACL"},
		{"/access/domains", "file-domains_cfg", "auth server"}, {"/storage", "file-storage_cfg", "storage"}, {"/cluster/firewall", "firewall-cluster", ""}, {"/cluster/ha/resources", "domain-ha", ""}, {"/cluster/ha/rules", "domain-ha", ""},
		{"/cluster/backup", "file-jobs_cfg", ""}, {"/cluster/options", "file-datacenter_cfg", ""}, {"/cluster/replication", "file-replication_cfg", ""}, {"/cluster/sdn", "domain-sdn", ""}, {"/cluster/metrics", "file-status_cfg", ""},
	}
}

// quorum refuses changes of the cluster file system while the cluster has no quorum.
func (c *call) quorum() error {
	if !c.s.noQuorum || c.op.Method == "GET" {
		return nil
	}
	for _, f := range clusterFiles() {
		if c.op.Path != f[0] && !strings.HasPrefix(c.op.Path, f[0]+"/") {
			continue
		}
		what := ""
		verb := map[string]string{"POST": "create", "PUT": "update", "DELETE": "delete"}[c.op.Method]
		switch {
		case f[2] == "ACL":
			what = "ACL update failed: "
		case f[2] == "pool" && verb == "update":
			what = "update pools failed: "
		case f[2] != "":
			what = verb + " " + f[2] + " failed: "
		}
		e := die("%scfs-lock '%s' error: no quorum!", what, f[1])
		e.delay = 10 * time.Second
		return e
	}
	return nil
}
