package estate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unique"

	"castellan/internal/gate"
)

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

// HARules are the rules (their id under "rule"), on a site before PVE 9 the groups ("group").
func (s *Survey) HARules() ([]Config, bool) {
	if Before9(s.ctx, s.v, s.target) {
		return s.Rows(PartHA, "", gate.Read{Operation: "GET /cluster/ha/groups"})
	}
	return s.Rows(PartHA, "", gate.Read{Operation: "GET /cluster/ha/rules"})
}

// Before9 says whether a site is older than version 9: its HA has groups, which resources name, and no rules, which name
// resources; its SDN has no lock. It asks where nobody has asked yet; a site that does not say counts as new.
func Before9(ctx context.Context, v gate.View, t gate.TargetInfo) bool {
	version := t.Version
	if version == "" {
		var told struct{ Version string }
		if a, err := v.Read(ctx, t.Name, gate.Read{Operation: "GET /version"}); err == nil && json.Unmarshal(a.Data, &told) == nil {
			version = told.Version
		}
	}
	major, _, _ := strings.Cut(version, ".")
	return isNumber(major) && len(major) == 1 && major < "9"
}

func (s *Survey) ACL() ([]Config, bool) {
	return s.Rows(PartACL, "", gate.Read{Operation: "GET /access/acl"})
}

// Users come with their groups (a list separated by commas) and tokens (JSON text).
func (s *Survey) Users() ([]Config, bool) {
	return s.Rows(PartUsers, "", gate.Read{Operation: "GET /access/users", Params: map[string]string{"full": "1"}})
}
func (s *Survey) Groups() ([]Config, bool) {
	return s.Rows(PartGroups, "", gate.Read{Operation: "GET /access/groups"})
}
func (s *Survey) Roles() ([]Config, bool) {
	return s.Rows(PartRoles, "", gate.Read{Operation: "GET /access/roles"})
}
func (s *Survey) Realms() ([]Config, bool) {
	return s.Rows(PartRealms, "", gate.Read{Operation: "GET /access/domains"})
}

// Zones and VNets are shown as they are staged: what waits to be applied is under "pending" (JSON text), with "state".
func (s *Survey) Zones() ([]Config, bool) {
	return s.Rows(PartZones, "", gate.Read{Operation: "GET /cluster/sdn/zones", Params: map[string]string{"pending": "1"}})
}
func (s *Survey) VNets() ([]Config, bool) {
	return s.Rows(PartVNets, "", gate.Read{Operation: "GET /cluster/sdn/vnets", Params: map[string]string{"pending": "1"}})
}
func (s *Survey) Tasks() ([]Config, bool) {
	return s.Rows(PartTasks, "", gate.Read{Operation: "GET /cluster/tasks"})
}

// Options are the datacenter's options as one object.
func (s *Survey) Options() (Config, bool) {
	return one(s.Rows(PartOptions, "", gate.Read{Operation: "GET /cluster/options"}))
}

func one(rows []Config, ok bool) (Config, bool) {
	if len(rows) == 0 {
		return Config{}, ok
	}
	return rows[0], ok
}

// Guests.

// GuestsOn lists the guests that the listing shows on a node.
func (s *Survey) GuestsOn(node string) []Guest {
	return s.guests(func(g *Guest) bool { return g.Node == node })
}

// GuestsIn lists the guests of a pool and of those below it.
func (s *Survey) GuestsIn(pool string) []Guest {
	return s.guests(func(g *Guest) bool { return g.Pool == pool || strings.HasPrefix(g.Pool, pool+"/") })
}

func (s *Survey) guests(which func(*Guest) bool) []Guest {
	all := s.Inventory().Guests
	var out []Guest
	for i := range all {
		if which(&all[i]) {
			out = append(out, all[i])
		}
	}
	return out
}

// ofGuest reads something of one guest. One that has moved since the listing is asked for once more where it is now.
func (s *Survey) ofGuest(part Part, g Guest, what string, params map[string]string) ([]Config, bool) {
	op := "GET /nodes/{node}/" + g.Path() + "/{vmid}/" + what
	a := s.answerOfGuest(question{part: part, op: op}.of(g.ID), g, params)
	return a.rows, a.gap == nil
}

func (s *Survey) answerOfGuest(k key, g Guest, params map[string]string) *answer {
	if s.after != nil {
		if now, ok := s.listed().ByID(g.ID); ok {
			g.Node = now.Node
		}
	}
	return s.get(k, func(a *answer) error {
		read := func(node string) error {
			p := map[string]string{"node": node, "vmid": g.ID}
			for name, text := range params {
				p[name] = text
			}
			err := s.read(a, node, gate.Read{Operation: k.what().op, Params: p})
			if k.what().part == PartConfig && len(a.rows) > 0 {
				a.rows[0], a.text = a.rows[0].join()
			}
			return err
		}
		err := read(g.Node)
		if err == nil || s.ctx.Err() != nil || !Gone(err) && !unreachable(err) {
			return err
		}
		now, listErr := s.relist(g, Gone(err))
		switch {
		case listErr != nil:
			return err
		case now.ID == "":
			return fmt.Errorf("guest %s is gone since the site was listed", g.ID)
		case now.Kind != g.Kind:
			return fmt.Errorf("guest %s is another guest since the site was listed", g.ID)
		case now.Node == g.Node:
			return err
		}
		return read(now.Node)
	})
}

// relist finds where a guest is now that it was not where the listing had it; the zero guest when it is nowhere.
func (s *Survey) relist(g Guest, again bool) (Guest, error) {
	s.mu.Lock()
	moved, tries := s.moved, s.relists
	s.mu.Unlock()
	if moved != nil {
		now, ok := moved.ByID(g.ID)
		if !ok || now.Node != g.Node || !again || tries >= mostRelists {
			return now, nil
		}
	}
	inv, err := Load(s.ctx, s.v, s.target.Name)
	if err != nil {
		return Guest{}, err
	}
	s.mu.Lock()
	s.moved = inv
	s.relists++
	s.mu.Unlock()
	now, _ := inv.ByID(g.ID)
	return now, nil
}

// mostRelists bounds how often one survey lists the site anew because guests were not where they had been.
const mostRelists = 5

// Config reads a guest's settings; those of now, with what is pending left out.
func (s *Survey) Config(g Guest) (Config, bool) {
	a := s.config(&g)
	if len(a.rows) == 0 {
		return nil, false
	}
	return s.after.config(g.ID, Settings{Config: a.rows[0]}).Config, a.gap == nil
}

func (s *Survey) config(g *Guest) *answer {
	return s.answerOfGuest(configKey(g), *g, map[string]string{"current": "1"})
}

// Settings are a guest's settings; without a Config they could not be read.
type Settings struct {
	Config
	text string
}

// Mention says whether one of the texts stands in any of the settings: a quick look before they are read closely.
func (s Settings) Mention(texts ...string) bool {
	for range s.Naming(texts...) {
		return true
	}
	return false
}

// Naming goes over the settings whose value holds one of the texts, in no order.
func (s Settings) Naming(texts ...string) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		if s.text == "" {
			for k, v := range s.Config {
				if within(v, texts) && !yield(k, v) {
					return
				}
			}
			return
		}
		for n, t := range texts {
			for rest := s.text; rest != ""; {
				i := strings.Index(rest, t)
				if i < 0 {
					break
				}
				begin := strings.LastIndex(rest[:i], afterKey) + 1
				end := begin + strings.Index(rest[begin:], afterKey)
				value, key, _ := strings.Cut(rest[begin:end], afterValue)
				if i+len(t) <= begin+len(value) && !within(value, texts[:n]) && !yield(key, value) {
					return
				}
				rest = rest[end+1:]
			}
		}
	}
}

func within(value string, texts []string) bool {
	return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(value, t) })
}

// Settings reads the settings of many guests, in their order, no more than a few at a time from one node.
func (s *Survey) Settings(guests []*Guest) []Settings {
	keys := make([]key, len(guests))
	for i, g := range guests {
		keys[i] = configKey(g)
	}
	answers := s.ready(keys) // what is there already needs no turns
	var rest []int
	for i, a := range answers {
		if a == nil {
			rest = append(rest, i)
		}
	}
	each(s, rest, func(i int) string { return guests[i].Node }, func(i int) { answers[i] = s.config(guests[i]) })
	out := make([]Settings, len(guests))
	for i, a := range answers {
		if a.gap == nil && len(a.rows) > 0 {
			out[i] = s.after.config(guests[i].ID, Settings{a.rows[0], a.text})
		}
	}
	return out
}

// Configs is Settings by the ids of guests; it lacks those that could not be read.
func (s *Survey) Configs(guests []Guest) map[string]Config {
	all := make([]*Guest, len(guests))
	for i := range guests {
		all[i] = &guests[i]
	}
	known := make(map[string]Config, len(guests))
	for i, c := range s.Settings(all) {
		if c.Config != nil {
			known[guests[i].ID] = c.Config
		}
	}
	return known
}

func configKey(g *Guest) key {
	if g.Kind == CT {
		return key{configOfCT, g.ID}
	}
	return key{configOfVM, g.ID}
}

var (
	configOfVM = unique.Make(question{part: PartConfig, op: "GET /nodes/{node}/qemu/{vmid}/config"})
	configOfCT = unique.Make(question{part: PartConfig, op: "GET /nodes/{node}/lxc/{vmid}/config"})
)

func (g Guest) node() string { return g.Node }

// Snapshots lists a guest's snapshots, the row "current" left out.
func (s *Survey) Snapshots(g Guest) ([]Config, bool) {
	rows, ok := s.ofGuest(PartSnaps, g, "snapshot", nil)
	return slices.DeleteFunc(slices.Clone(rows), func(r Config) bool { return r["name"] == "current" }), ok
}

// SnapshotsOf reads the snapshots of many guests, as Configs does their settings. known lacks those that could not be read.
func (s *Survey) SnapshotsOf(guests []Guest) (known map[string][]Config) {
	keys := make([]key, len(guests))
	for i := range guests {
		keys[i] = snapKey(&guests[i])
	}
	var rest []Guest
	for i, a := range s.ready(keys) {
		if a == nil {
			rest = append(rest, guests[i])
		}
	}
	each(s, rest, Guest.node, func(g Guest) { s.Snapshots(g) })
	known = make(map[string][]Config, len(guests))
	for _, g := range guests {
		if rows, ok := s.Snapshots(g); ok {
			known[g.ID] = rows
		}
	}
	return known
}

func snapKey(g *Guest) key {
	return question{part: PartSnaps, op: "GET /nodes/{node}/" + g.Path() + "/{vmid}/snapshot"}.of(g.ID)
}

// Pending lists a guest's settings with what waits for its next start: rows of key, value, pending, delete.
func (s *Survey) Pending(g Guest) ([]Config, bool) {
	return s.ofGuest(PartPending, g, "pending", nil)
}

// ReadPending reads ahead what Pending of these guests will be asked for, no more than a few at a time from one node.
func (s *Survey) ReadPending(guests []Guest) {
	each(s, guests, Guest.node, func(g Guest) { s.Pending(g) })
}

// Nodes, storages, pools.

// Network lists a node's interfaces as they are configured, staged changes included.
func (s *Survey) Network(node string) ([]Config, bool) {
	return s.Rows(PartNetwork, node, gate.Read{Operation: "GET /nodes/{node}/network", Params: map[string]string{"node": node}})
}

// Content lists the volumes of a storage as one node sees it.
func (s *Survey) Content(node, storage string) ([]Config, bool) {
	return s.Rows(PartContent, node+"/"+storage, gate.Read{Operation: "GET /nodes/{node}/storage/{storage}/content", Params: map[string]string{"node": node, "storage": storage}})
}

// Members are the guests and storages of a pool: rows with type, and vmid or storage.
func (s *Survey) Members(pool string) ([]Config, bool) {
	row, ok := one(s.members(pool))
	members, err := rowsOf([]byte(cmp.Or(row["members"], "[]")))
	return members, ok && err == nil
}

func (s *Survey) members(pool string) ([]Config, bool) {
	return s.Rows(PartMembers, pool, gate.Read{Operation: "GET /pools", Params: map[string]string{"poolid": pool}})
}

// Place is one storage on one node.
type Place struct{ Node, Storage string }

// Places lists where each storage can be looked into: a shared one once, through the first node that has it.
func (s *Survey) Places() []Place {
	var out []Place
	shared := map[string]bool{}
	for _, st := range s.Inventory().Storages {
		if st.Status != "available" || st.Shared && shared[st.Name] {
			continue
		}
		shared[st.Name] = true
		out = append(out, Place{st.Node, st.Name})
	}
	return out
}

// unreachable says that an answer never came from the node that was asked.
func unreachable(err error) bool {
	var u *gate.UpstreamError
	return errors.As(err, &u) && (u.Status == 595 || u.Status == 596)
}

// off says that the listing, where it was read already, shows a node as off: asking it would take long and tell nothing.
func (s *Survey) off(node string) bool {
	s.mu.Lock()
	p := s.slots.get(ofSite(PartResources, listing))
	s.mu.Unlock()
	if node == "" || p == nil {
		return false
	}
	a := p.a.Load()
	return a != nil && a.inv != nil && slices.ContainsFunc(a.inv.Nodes, func(n Node) bool { return n.Name == node && n.Status == "offline" })
}
