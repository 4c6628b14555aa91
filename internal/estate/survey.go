package estate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/gate"
)

// Part is a part of a site that is read by itself.
type Part string

// The parts. Those after PartConfig are read per guest, node, storage or scope.
const (
	PartResources   Part = "resources"   // GET /cluster/resources
	PartStatus      Part = "status"      // GET /cluster/status: nodes, their addresses, quorum
	PartStorages    Part = "storages"    // GET /storage
	PartPools       Part = "pools"       // GET /pools
	PartHA          Part = "ha"          // resources, groups or rules, state
	PartReplication Part = "replication" // GET /cluster/replication
	PartJobs        Part = "jobs"        // GET /cluster/backup
	PartOptions     Part = "options"     // GET /cluster/options
	PartACL         Part = "acl"         // GET /access/acl
	PartUsers       Part = "users"       // GET /access/users?full=1
	PartGroups      Part = "groups"
	PartRoles       Part = "roles"
	PartRealms      Part = "realms"
	PartZones       Part = "zones" // SDN zones, as staged and as in force
	PartVNets       Part = "vnets"
	PartTasks       Part = "tasks" // GET /cluster/tasks
	PartMetrics     Part = "metrics"
	PartNotify      Part = "notify" // notification endpoints and matchers
	PartMappings    Part = "mappings"

	PartConfig   Part = "config"   // of a guest
	PartPending  Part = "pending"  // of a guest: changes that wait for its next start
	PartSnaps    Part = "snaps"    // of a guest
	PartNetwork  Part = "network"  // of a node: interfaces, with staged changes
	PartContent  Part = "content"  // of a storage on a node, "pve1/local"
	PartFirewall Part = "firewall" // of a scope: "cluster", "node/pve1", "guest/101"
	PartCeph     Part = "ceph"
	PartDisks    Part = "disks" // of a node
)

// Survey reads a site part by part, each once, when a walk asks for it. What could not be read is a Gap, never an empty
// list. Its methods are safe for concurrent use; an answer that has been handed out is not changed any more.
type Survey struct {
	ctx    context.Context
	v      gate.View
	target gate.TargetInfo
	maxAge time.Duration

	mu     sync.Mutex
	parts  map[string]*part
	inv    *Inventory
	graph  *Graph
	oldest time.Time
}

// part is one answer.
type part struct {
	once sync.Once
	rows []Config
	raw  json.RawMessage
	gap  *Gap
	at   time.Time
}

// Survey starts to look at a site. What the estate has read already is used where it is not older than maxAge.
func (e *Estate) Survey(ctx context.Context, v gate.View, target string, maxAge time.Duration) (*Survey, error) {
	t, err := v.Target(target)
	if err != nil {
		return nil, err
	}
	return &Survey{ctx: ctx, v: v, target: t, maxAge: maxAge, parts: map[string]*part{}, graph: NewGraph()}, nil
}

// Target is the site's target.
func (s *Survey) Target() gate.TargetInfo { return s.target }

// Now is the time of the view.
func (s *Survey) Now() time.Time { return s.v.Now() }

// Inventory is the site's listing; empty, with a Gap of PartResources, when it cannot be read.
func (s *Survey) Inventory() *Inventory {
	p := s.part(PartResources, "", func(p *part) error {
		inv, err := Load(s.ctx, s.v, s.target.Name)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.inv = inv
		s.mu.Unlock()
		if len(inv.Missing) > 0 {
			return fmt.Errorf("incomplete: %s", strings.Join(inv.Missing, "; "))
		}
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inv == nil || p == nil {
		return &Inventory{Target: s.target}
	}
	return s.inv
}

// Rows reads one part by a catalogued read whose answer is a list of objects or one object, nested values as JSON text.
// ok is false when it could not be read; there is a Gap then.
func (s *Survey) Rows(of Part, object string, r gate.Read) (rows []Config, ok bool) {
	p := s.part(of, object+" "+r.Operation+" "+fmt.Sprint(r.Params), func(p *part) error {
		a, err := s.v.Read(s.ctx, s.target.Name, r)
		if err != nil {
			return err
		}
		p.raw = a.Data
		if p.rows, err = rowsOf(a.Data); err != nil {
			return err
		}
		if len(a.Missing) > 0 {
			return fmt.Errorf("incomplete: %s", strings.Join(a.Missing, "; "))
		}
		return nil
	})
	if p.gap != nil && p.gap.Of == "" {
		p.gap.Of = object
	}
	return p.rows, p.gap == nil
}

// part reads one part once.
func (s *Survey) part(of Part, key string, read func(p *part) error) *part {
	s.mu.Lock()
	p := s.parts[string(of)+"|"+key]
	if p == nil {
		p = &part{}
		s.parts[string(of)+"|"+key] = p
	}
	s.mu.Unlock()
	p.once.Do(func() {
		p.at = s.v.Now()
		if err := read(p); err != nil {
			p.gap = &Gap{Part: of, Why: clip(err.Error())}
		}
		s.mu.Lock()
		if s.oldest.IsZero() || p.at.Before(s.oldest) {
			s.oldest = p.at
		}
		s.mu.Unlock()
	})
	return p
}

// Oldest is when the oldest of what was used was read.
func (s *Survey) Oldest() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.oldest
}

// Gaps lists what could not be read so far, of these parts; none given = all.
func (s *Survey) Gaps(parts ...Part) []Gap {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Gap
	for _, key := range slices.Sorted(maps.Keys(s.parts)) {
		if p := s.parts[key]; p.gap != nil && (len(parts) == 0 || slices.Contains(parts, p.gap.Part)) {
			out = append(out, *p.gap)
		}
	}
	return out
}

func rowsOf(data json.RawMessage) ([]Config, error) {
	text := strings.TrimSpace(string(data))
	switch {
	case text == "" || text == "null":
		return nil, nil
	case text[0] == '{':
		c, err := ParseConfig(data)
		return []Config{c}, err
	case text[0] != '[':
		return nil, fmt.Errorf("the answer is neither list nor object")
	}
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("read list: %w", err)
	}
	out := make([]Config, 0, len(list))
	for _, raw := range list {
		c, err := ParseConfig(raw)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// Cluster-wide parts.

func (s *Survey) Status() ([]Config, bool) {
	return s.Rows(PartStatus, "", gate.Read{Operation: "GET /cluster/status"})
}
func (s *Survey) Storages() ([]Config, bool) {
	return s.Rows(PartStorages, "", gate.Read{Operation: "GET /storage"})
}
func (s *Survey) Pools() ([]Config, bool) {
	return s.Rows(PartPools, "", gate.Read{Operation: "GET /pools"})
}
func (s *Survey) Replication() ([]Config, bool) {
	return s.Rows(PartReplication, "", gate.Read{Operation: "GET /cluster/replication"})
}
func (s *Survey) Jobs() ([]Config, bool) {
	return s.Rows(PartJobs, "", gate.Read{Operation: "GET /cluster/backup"})
}
func (s *Survey) HAResources() ([]Config, bool) {
	return s.Rows(PartHA, "", gate.Read{Operation: "GET /cluster/ha/resources"})
}
func (s *Survey) ACL() ([]Config, bool) {
	return s.Rows(PartACL, "", gate.Read{Operation: "GET /access/acl"})
}
func (s *Survey) Tasks() ([]Config, bool) {
	return s.Rows(PartTasks, "", gate.Read{Operation: "GET /cluster/tasks"})
}

// Options are the datacenter's options as one object.
func (s *Survey) Options() (Config, bool) {
	rows, ok := s.Rows(PartOptions, "", gate.Read{Operation: "GET /cluster/options"})
	if len(rows) == 0 {
		return Config{}, ok
	}
	return rows[0], ok
}

// Config reads a guest's settings; those of now, with what is pending left out.
func (s *Survey) Config(g Guest) (Config, bool) {
	rows, ok := s.Rows(PartConfig, g.ID, gate.Read{Operation: "GET /nodes/{node}/" + g.Path() + "/{vmid}/config", Params: map[string]string{"node": g.Node, "vmid": g.ID, "current": "1"}})
	if len(rows) == 0 {
		return nil, ok && false
	}
	return rows[0], ok
}

// Configs reads the settings of many guests, no more than a few at a time from one node. known lacks those that could
// not be read.
func (s *Survey) Configs(guests []Guest) (known map[string]Config) {
	known = map[string]Config{}
	for _, g := range guests {
		if c, ok := s.Config(g); ok {
			known[g.ID] = c
		}
	}
	return known
}

// Snapshots lists a guest's snapshots, the row "current" left out.
func (s *Survey) Snapshots(g Guest) ([]Config, bool) {
	rows, ok := s.Rows(PartSnaps, g.ID, gate.Read{Operation: "GET /nodes/{node}/" + g.Path() + "/{vmid}/snapshot", Params: map[string]string{"node": g.Node, "vmid": g.ID}})
	return slices.DeleteFunc(slices.Clone(rows), func(r Config) bool { return r["name"] == "current" }), ok
}

// Network lists a node's interfaces as they are configured, staged changes included.
func (s *Survey) Network(node string) ([]Config, bool) {
	return s.Rows(PartNetwork, node, gate.Read{Operation: "GET /nodes/{node}/network", Params: map[string]string{"node": node}})
}

// Content lists the volumes of a storage as one node sees it.
func (s *Survey) Content(node, storage string) ([]Config, bool) {
	return s.Rows(PartContent, node+"/"+storage, gate.Read{Operation: "GET /nodes/{node}/storage/{storage}/content", Params: map[string]string{"node": node, "storage": storage}})
}
