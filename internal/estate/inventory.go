// Package estate knows what there is on a site: guests, nodes and storages from one listing, who is meant by a
// name, and what tells a guest from a later one of the same id.
package estate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"castellan/internal/gate"
)

// Kind of a guest, as callers see it.
const (
	VM = "vm"
	CT = "ct"
)

// Guest is one VM or container as the site listing shows it. Figures are bytes and seconds.
type Guest struct {
	ID       string
	Number   int64
	Name     string // empty while the site does not tell it: a node that is off, a guest made seconds ago
	Kind     string // VM or CT
	Node     string
	Status   string // running, stopped, unknown, ...
	Template bool
	Lock     string
	Tags     []string
	Pool     string
	HA       string // state of the HA resource; empty = not managed
	CPU      float64
	CPUs     int64
	Mem      int64
	MaxMem   int64
	Disk     int64
	MaxDisk  int64
	Uptime   int64

	// What it moved since its start, in bytes.
	DiskRead, DiskWrite, NetIn, NetOut int64

	NodeOff bool // its node is not online: what it does is unknown
}

// Path is the guest's part of API paths: "qemu" or "lxc".
func (g Guest) Path() string {
	if g.Kind == CT {
		return "lxc"
	}
	return "qemu"
}

// Title names the guest for people: "VM 101 (web)".
func (g Guest) Title() string {
	t := strings.ToUpper(g.Kind) + " " + g.ID
	if g.Name != "" {
		t += " (" + g.Name + ")"
	}
	return t
}

// Node is one member of the site.
type Node struct {
	Name    string
	Status  string // online, offline, unknown
	CPU     float64
	CPUs    int64
	Mem     int64
	MaxMem  int64
	Disk    int64
	MaxDisk int64
	Uptime  int64
	HA      string
	Figures bool // the site told figures for it
}

// Storage is one storage as one node sees it.
type Storage struct {
	Name    string
	Node    string
	Type    string
	Content string
	Status  string
	Shared  bool
	Used    int64
	Total   int64
}

// Zone is one SDN zone or other network object as one node sees it.
type Zone struct {
	Name   string
	Node   string
	Type   string
	Status string
}

// Inventory is one listing of a site.
type Inventory struct {
	Target   gate.TargetInfo
	Guests   []Guest // sorted by id
	Nodes    []Node  // sorted by name
	Storages []Storage
	Pools    []string
	Zones    []Zone
	Missing  []string // what the answer lacks and why
	cut      bool     // the listing itself lacks rows; guests of a node that is off are in it
	byID     map[string]int
}

// resource is one row of the listing, of any type.
type resource struct {
	Type, VMID, Name, Node, Status, Lock, Tags, Pool, HA string
	Storage, Plugin, Content, SDN, Network, NetType      string
	Template, Shared, Figures                            bool
	CPU                                                  float64
	MaxCPU, Mem, MaxMem, Disk, MaxDisk, Uptime           int64
	DiskRead, DiskWrite, NetIn, NetOut                   int64
}

func (r *resource) set(s *scanner, key []byte, v raw) {
	switch string(key) {
	case "type":
		r.Type = s.string(v)
	case "vmid":
		r.VMID = s.string(v)
	case "name":
		r.Name = s.string(v)
	case "node":
		r.Node = s.string(v)
	case "status":
		r.Status = s.string(v)
	case "template":
		r.Template = v.bool()
	case "lock":
		r.Lock = s.string(v)
	case "tags":
		r.Tags = s.string(v)
	case "pool":
		r.Pool = s.string(v)
	case "hastate":
		r.HA = s.string(v)
	case "cpu":
		r.CPU = v.float()
	case "maxcpu":
		r.MaxCPU = v.int()
	case "mem":
		r.Mem = v.int()
	case "maxmem":
		r.MaxMem, r.Figures = v.int(), true
	case "disk":
		r.Disk = v.int()
	case "maxdisk":
		r.MaxDisk = v.int()
	case "uptime":
		r.Uptime = v.int()
	case "diskread":
		r.DiskRead = v.int()
	case "diskwrite":
		r.DiskWrite = v.int()
	case "netin":
		r.NetIn = v.int()
	case "netout":
		r.NetOut = v.int()
	case "storage":
		r.Storage = s.string(v)
	case "plugintype":
		r.Plugin = s.string(v)
	case "content":
		r.Content = s.string(v)
	case "shared":
		r.Shared = v.bool()
	case "sdn":
		r.SDN = s.string(v)
	case "network":
		r.Network = s.string(v)
	case "network-type":
		r.NetType = s.string(v)
	}
}

// Load reads the site behind target (empty = the only one) with one request.
func Load(ctx context.Context, v gate.View, target string) (*Inventory, error) {
	t, err := v.Target(target)
	if err != nil {
		return nil, err
	}
	if t.Product != "pve" {
		return nil, gate.Fail(gate.ErrInvalid, "Choose a pve target: "+strings.Join(targetsOf(v, "pve"), ", "), "target %s is %s, not pve", t.Name, t.Product)
	}
	a, err := v.Read(ctx, t.Name, gate.Read{Operation: "GET /cluster/resources"})
	if err != nil {
		return nil, fmt.Errorf("list the site: %w", err)
	}
	inv, err := parse(a.Data)
	if err != nil {
		return nil, fmt.Errorf("list the site: %w", err)
	}
	inv.Target = t
	inv.Missing = append(inv.Missing, a.Missing...)
	inv.cut = len(a.Missing) > 0
	return inv, nil
}

func targetsOf(v gate.View, product string) []string {
	var out []string
	for _, t := range v.Targets() {
		if t.Product == product {
			out = append(out, t.Name)
		}
	}
	slices.Sort(out)
	return out
}

func parse(data json.RawMessage) (*Inventory, error) {
	inv := &Inventory{}
	s := &scanner{b: data, texts: map[string]string{}}
	if c := s.space(); c == 0 || c == 'n' { // no data, or null
		inv.order()
		return inv, nil
	}
	var r resource
	err := s.rows(func() { r = resource{} }, func(key []byte, v raw) { r.set(s, key, v) }, func() { inv.take(&r) })
	if err != nil {
		return nil, err
	}
	inv.order()
	return inv, nil
}

func (inv *Inventory) take(r *resource) {
	switch r.Type {
	case "qemu", "lxc":
		inv.Guests = append(inv.Guests, guestOf(r))
	case "node":
		inv.Nodes = append(inv.Nodes, Node{Name: r.Node, Status: cmp.Or(r.Status, "unknown"), CPU: r.CPU, CPUs: r.MaxCPU, Mem: r.Mem, MaxMem: r.MaxMem,
			Disk: r.Disk, MaxDisk: r.MaxDisk, Uptime: r.Uptime, HA: r.HA, Figures: r.Figures})
	case "storage":
		inv.Storages = append(inv.Storages, Storage{Name: r.Storage, Node: r.Node, Type: r.Plugin, Content: r.Content, Status: cmp.Or(r.Status, "unknown"),
			Shared: r.Shared, Used: r.Disk, Total: r.MaxDisk})
	case "pool":
		inv.Pools = append(inv.Pools, r.Pool)
	case "sdn":
		inv.Zones = append(inv.Zones, Zone{Name: r.SDN, Node: r.Node, Type: "sdn", Status: r.Status})
	case "network":
		inv.Zones = append(inv.Zones, Zone{Name: r.Network, Node: r.Node, Type: cmp.Or(r.NetType, "network"), Status: r.Status})
	}
}

func guestOf(r *resource) Guest {
	g := Guest{ID: r.VMID, Number: raw(r.VMID).int(), Name: r.Name, Kind: VM, Node: r.Node, Status: cmp.Or(r.Status, "unknown"), Template: r.Template, Lock: r.Lock,
		Tags: Tags(r.Tags), Pool: r.Pool, HA: r.HA, CPU: r.CPU, CPUs: r.MaxCPU, Mem: r.Mem, MaxMem: r.MaxMem, Disk: r.Disk, MaxDisk: r.MaxDisk, Uptime: r.Uptime,
		DiskRead: r.DiskRead, DiskWrite: r.DiskWrite, NetIn: r.NetIn, NetOut: r.NetOut}
	if r.Type == "lxc" {
		g.Kind = CT
	}
	return g
}

// order sorts, and marks the guests of nodes that are off.
func (inv *Inventory) order() {
	slices.SortFunc(inv.Guests, func(a, b Guest) int { return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.ID, b.ID)) })
	slices.SortFunc(inv.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(inv.Storages, func(a, b Storage) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node)) })
	slices.Sort(inv.Pools)
	off := map[string]string{}
	for _, n := range inv.Nodes {
		if n.Status != "online" {
			off[n.Name] = n.Status
		}
	}
	lost := map[string]int{}
	inv.byID = make(map[string]int, len(inv.Guests))
	for i := range inv.Guests {
		g := &inv.Guests[i]
		inv.byID[g.ID] = i
		if _, isOff := off[g.Node]; isOff {
			g.NodeOff, g.Status = true, "unknown"
			lost[g.Node]++
		}
	}
	for _, n := range inv.Nodes {
		if status, isOff := off[n.Name]; isOff {
			word := "is offline"
			if status != "offline" {
				word = "does not report (status " + status + ")"
			}
			inv.Missing = append(inv.Missing, fmt.Sprintf("node %s %s: its %d guests are unknown", n.Name, word, lost[n.Name]))
		}
	}
}

// Tags splits a tag list as Proxmox does.
func Tags(s string) []string {
	out := gate.SplitList(s)
	if len(out) == 0 {
		return nil
	}
	return out
}

// Node finds a node by name.
func (inv *Inventory) Node(name string) (Node, error) {
	var names []string
	for _, n := range inv.Nodes {
		if n.Name == name {
			return n, nil
		}
		names = append(names, n.Name)
	}
	e := gate.Fail(gate.ErrNotFound, "The nodes are: "+strings.Join(names, ", "), "there is no node %q", name)
	if near := gate.Nearest(name, names); near != "" {
		e.Message += fmt.Sprintf("; did you mean %s?", near)
	}
	return Node{}, e
}

// Online lists the nodes that are up.
func (inv *Inventory) Online() []string {
	var out []string
	for _, n := range inv.Nodes {
		if n.Status == "online" {
			out = append(out, n.Name)
		}
	}
	return out
}

// ByID finds a guest by its exact id.
func (inv *Inventory) ByID(id string) (Guest, bool) {
	i, ok := inv.byID[id]
	if !ok {
		return Guest{}, false
	}
	return inv.Guests[i], true
}

// maxNameReads bounds how many configurations are read to learn names that the listing lags behind with.
const maxNameReads = 8

// Guest finds the one guest that is meant by an id or a name. It reads the configuration of guests that the site
// lists without a name when no other fits.
func (inv *Inventory) Guest(ctx context.Context, v gate.View, name string) (Guest, error) {
	name = strings.TrimSpace(name)
	if name == "" {
		return Guest{}, gate.Fail(gate.ErrInvalid, "Give its id or its name; list_guests shows them.", "no guest is given")
	}
	if g, ok := inv.ByID(name); ok {
		return g, nil
	}
	found := inv.named(name)
	if len(found) == 0 && !isNumber(name) {
		if err := inv.learnNames(ctx, v); err != nil {
			return Guest{}, err
		}
		found = inv.named(name)
	}
	switch len(found) {
	case 0:
		return Guest{}, inv.notFound(name)
	case 1:
		return found[0], nil
	}
	var which []string
	for _, g := range found {
		which = append(which, fmt.Sprintf("%s %s on %s (%s)", strings.ToUpper(g.Kind), g.ID, g.Node, g.Status))
	}
	return Guest{}, gate.Fail(gate.ErrInvalid, "Say which by its id.", "%d guests are called %q: %s", len(found), name, strings.Join(which, ", "))
}

// named finds guests by name; an exact match goes before one that differs in case only.
func (inv *Inventory) named(name string) []Guest {
	var exact, folded []Guest
	for _, g := range inv.Guests {
		switch {
		case g.Name == name:
			exact = append(exact, g)
		case strings.EqualFold(g.Name, name):
			folded = append(folded, g)
		}
	}
	if len(exact) > 0 {
		return exact
	}
	return folded
}

// Nameless lists the guests whose names cannot be known now, since their node is off.
func (inv *Inventory) Nameless() []string {
	var out []string
	for _, g := range inv.Guests {
		if g.Name == "" && g.NodeOff {
			out = append(out, g.ID)
		}
	}
	return out
}

func (inv *Inventory) learnNames(ctx context.Context, v gate.View) error {
	asked := 0
	for i := range inv.Guests {
		g := &inv.Guests[i]
		if g.Name != "" || g.NodeOff || asked == maxNameReads {
			continue
		}
		asked++
		c, _, err := ReadConfig(ctx, v, inv.Target.Name, *g)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			continue // one that cannot be read has no name to offer
		}
		g.Name = cmp.Or(c["name"], c["hostname"])
	}
	return nil
}

func (inv *Inventory) notFound(name string) error {
	hint := "list_guests shows all that can be seen."
	if len(inv.Guests) == 0 {
		hint = "No guest at all can be seen: castellan's token may lack VM.Audit, which hides guests without an error."
	} else if len(inv.Missing) > 0 {
		hint += " Not complete: " + strings.Join(inv.Missing, "; ") + "."
	}
	e := gate.Fail(gate.ErrNotFound, hint, "there is no guest %q on target %s", clip(name), inv.Target.Name)
	if near := inv.near(name); len(near) > 0 {
		e.Message += "; near it: " + strings.Join(near, ", ")
	}
	return e
}

// near names up to three guests with a close id or name.
func (inv *Inventory) near(name string) []string {
	var out []string
	if isNumber(name) {
		var want Int
		_ = want.UnmarshalJSON([]byte(name)) // cannot fail
		byDistance := slices.Clone(inv.Guests)
		slices.SortStableFunc(byDistance, func(a, b Guest) int {
			return cmp.Compare(abs(a.Number-int64(want)), abs(b.Number-int64(want)))
		})
		for _, g := range byDistance[:min(3, len(byDistance))] {
			out = append(out, g.Title())
		}
		return out
	}
	var names []string
	for _, g := range inv.Guests {
		names = append(names, g.Name)
		if len(out) < 3 && len(name) >= 2 && strings.Contains(strings.ToLower(g.Name), strings.ToLower(name)) {
			out = append(out, g.Title())
		}
	}
	if near := gate.Nearest(name, names); near != "" && len(out) == 0 {
		for _, g := range inv.named(near) {
			out = append(out, g.Title())
		}
	}
	return out
}

// ReadConfig reads a guest's settings, values that wait for its next stop merged in, and their digest.
func ReadConfig(ctx context.Context, v gate.View, target string, g Guest) (c Config, digest string, err error) {
	a, err := v.Read(ctx, target, gate.Read{Operation: "GET /nodes/{node}/" + g.Path() + "/{vmid}/config", Params: map[string]string{"node": g.Node, "vmid": g.ID}})
	if err != nil {
		return nil, "", fmt.Errorf("read the settings of %s: %w", g.Title(), err)
	}
	if c, err = ParseConfig(a.Data); err != nil {
		return nil, "", fmt.Errorf("read the settings of %s: %w", g.Title(), err)
	}
	return c, c["digest"], nil
}

// Gone says whether an error means that the object does not exist (any more).
func Gone(err error) bool {
	var u *gate.UpstreamError
	var e *gate.Error
	switch {
	case errors.As(err, &u):
		return u.Kind == gate.ErrNotFound || strings.Contains(u.Message, "does not exist")
	case errors.As(err, &e):
		return e.Kind == gate.ErrNotFound
	}
	return false
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func abs(n int64) int64 { return max(n, -n) }

func clip(s string) string { return clipTo(s, 60) }

func clipTo(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
