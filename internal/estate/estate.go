package estate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/gate"
	"castellan/internal/regex"
)

// Estate answers the gate's questions about a PVE site: those are read anew each time. What surveys read it keeps for a
// while, for those that may see all of a site.
type Estate struct {
	mu    sync.Mutex
	sites map[string]*known // by target
}

// New makes an Estate.
func New() *Estate { return &Estate{} }

var _ gate.Estate = (*Estate)(nil)

// Describe fills name, tags and pools of the objects, in their order. A guest or storage that is not listed, and
// whatever is on a target that cannot be asked, stays unknown. Objects that are their name alone count as known.
func (*Estate) Describe(ctx context.Context, v gate.View, target string, objects []gate.Reference) ([]gate.ObjectFacts, error) {
	out := make([]gate.ObjectFacts, len(objects))
	listed := false
	for i, o := range objects {
		out[i] = gate.ObjectFacts{Object: o.Object, Use: o.Use}
		if o.Param != "" {
			out[i].Params = []string{o.Param}
		}
		switch o.Object.Kind {
		case gate.ObjectGuest, gate.ObjectVolume, gate.ObjectStorage, gate.ObjectNode:
			listed = true
		case gate.ObjectUnknown:
		default:
			out[i].Known, out[i].Name = true, o.Object.ID
		}
	}
	t, err := v.Target(target)
	if err != nil {
		return nil, err
	}
	if !listed || t.Product != "pve" {
		return out, nil
	}
	inv, err := Load(ctx, v, t.Name)
	if err != nil {
		return nil, fmt.Errorf("describe objects: %w", err)
	}
	for i := range out {
		inv.describe(&out[i])
	}
	return out, nil
}

func (inv *Inventory) describe(f *gate.ObjectFacts) {
	id := f.Object.ID
	switch f.Object.Kind {
	case gate.ObjectGuest:
		if g, ok := inv.ByID(id); ok {
			f.Known, f.Name, f.Tags, f.Pools = true, g.Name, g.Tags, Pools(g.Pool)
		}
	case gate.ObjectNode:
		if n, err := inv.Node(id); err == nil {
			f.Known, f.Name = true, n.Name
		}
	case gate.ObjectStorage:
		f.Known = inv.hasStorage(id)
		f.Name = id
	case gate.ObjectVolume:
		storage, volume, _ := strings.Cut(id, ":")
		f.Known, f.Name = inv.hasStorage(storage), id
		if owner := OwnerOf(volume); owner != "" {
			g, ok := inv.ByID(owner)
			f.Known = f.Known && ok
			f.Tags, f.Pools = g.Tags, Pools(g.Pool)
		}
	}
}

func (inv *Inventory) hasStorage(name string) bool {
	return slices.ContainsFunc(inv.Storages, func(s Storage) bool { return s.Name == name })
}

// Pools lists a pool and those above it: rights on an upper pool reach down.
func Pools(pool string) []string {
	if pool == "" {
		return nil
	}
	out := []string{pool}
	for i := strings.LastIndexByte(pool, '/'); i > 0; i = strings.LastIndexByte(pool[:i], '/') {
		out = append(out, pool[:i])
	}
	return out
}

var volumeOwner = &regex.Lazy{Expr: `(?:^|/)(?:(?:vm|base|subvol|basevol)-([1-9][0-9]{2,8})-|vzdump-(?:qemu|lxc|openvz)-([1-9][0-9]{2,8})-|(?:vm|ct)/([1-9][0-9]{2,8})/)`}

// OwnerOf reads the guest id from a volume's name ("200/vm-200-disk-0.raw"); empty when the name holds none. Of a
// linked clone it is the clone, not its base.
func OwnerOf(volume string) string {
	all := volumeOwner.FindAllStringSubmatch(volume, -1)
	if len(all) == 0 {
		return ""
	}
	last := all[len(all)-1]
	for _, group := range last[1:] {
		if group != "" {
			return group
		}
	}
	return ""
}

// Identity gives the conditions that tell guests from later ones of the same id.
func (*Estate) Identity(ctx context.Context, v gate.View, target string, objects []gate.Object) (conditions []gate.Condition, without []string, err error) {
	var inv *Inventory
	for _, o := range objects {
		if o.Kind != gate.ObjectGuest {
			without = append(without, o.String())
			continue
		}
		if inv == nil {
			if inv, err = Load(ctx, v, target); err != nil {
				return nil, nil, fmt.Errorf("identify %s: %w", o, err)
			}
		}
		g, ok := inv.ByID(o.ID)
		if !ok { // who comes to have this id is somebody else
			conditions = append(conditions, gate.Condition{Name: "no guest has the id " + o.ID, Read: gate.Read{Operation: "GET /cluster/resources", Params: map[string]string{"type": "vm"}},
				Where: map[string]string{"vmid": o.ID}, Rule: gate.RuleAbsent})
			without = append(without, o.String())
			continue
		}
		c, _, err := ReadConfig(ctx, v, target, g)
		if err != nil {
			return nil, nil, fmt.Errorf("identify %s: %w", o, err)
		}
		own, enough := Identify(ctx, v, target, g, c)
		conditions = append(conditions, own...)
		if !enough {
			without = append(without, o.String())
		}
	}
	return conditions, without, nil
}

// births are the tasks after which an id can belong to another guest. A clone is filed under its source, so a
// clone to this id shows by the destruction that must come before it.
const births = "qmcreate|qmrestore|qmdestroy|vzcreate|vzrestore|vzdestroy"

// Identify gives the conditions for one guest whose settings were just read; enough is false when nothing in them
// tells it from another one (a container without a network card).
func Identify(ctx context.Context, v gate.View, target string, g Guest, c Config) (conditions []gate.Condition, enough bool) {
	read := gate.Read{Operation: "GET /nodes/{node}/" + g.Path() + "/{vmid}/config", Params: map[string]string{"node": gate.NodeOf(g.ID), "vmid": g.ID}}
	same := func(what, pointer, key, value string) {
		conditions = append(conditions, gate.Condition{Name: fmt.Sprintf("%s still has %s %s", strings.ToUpper(g.Kind)+" "+g.ID, what, value), Read: read,
			Pointer: pointer, Key: key, Rule: gate.RuleEquals, Value: quoted(value), Identity: true})
	}
	if g.Kind == VM {
		if uuid, ok := gate.PropertyValue(c["smbios1"], "uuid"); ok {
			same("SMBIOS uuid", "/smbios1", "uuid", uuid)
			enough = true
		}
	} else {
		if volume, ok := gate.PropertyValue(c["rootfs"], "-"); ok {
			same("root volume", "/rootfs", "-", volume)
		} else if volume, ok := gate.PropertyValue(c["rootfs"], "volume"); ok {
			same("root volume", "/rootfs", "volume", volume)
		}
		for _, net := range networkCards(c) {
			if mac, ok := gate.PropertyValue(c[net], "hwaddr"); ok {
				same("MAC address", "/"+net, "hwaddr", mac)
				enough = true
				break
			}
		}
	}
	if birth, ok := lastBirth(ctx, v, target, g); ok {
		conditions = append(conditions, birth)
	}
	if !enough { // they hold for its successor as well: no identity, but still worth looking at
		for i := range conditions {
			conditions[i].Identity = false
		}
	}
	return conditions, enough
}

func networkCards(c Config) []string {
	var out []string
	for k := range c {
		if n, ok := strings.CutPrefix(k, "net"); ok && isNumber(n) {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// lastBirth ties the plan to the newest task that made or destroyed a guest of this id on its node. Comparing with
// the newest of now needs no two clocks to agree.
func lastBirth(ctx context.Context, v gate.View, target string, g Guest) (gate.Condition, bool) {
	read := gate.Read{Operation: "GET /nodes/{node}/tasks", Params: map[string]string{"node": g.Node, "vmid": g.ID, "limit": "500", "source": "all"}}
	a, err := v.Read(ctx, target, read)
	if err != nil {
		return gate.Condition{}, false // a caller who may not see tasks has the settings alone to go by
	}
	var rows []struct {
		Type Text `json:"type"`
		UPID Text `json:"upid"`
	}
	if json.Unmarshal(a.Data, &rows) != nil {
		return gate.Condition{}, false
	}
	c := gate.Condition{Name: fmt.Sprintf("no guest %s was created, restored or destroyed since", g.ID), Read: read, Pointer: "/upid",
		Where: map[string]string{"type": births}, Rule: gate.RuleAbsent, Identity: true}
	for _, r := range rows {
		if slices.Contains(strings.Split(births, "|"), string(r.Type)) {
			c.Rule, c.Value = gate.RuleEquals, quoted(string(r.UPID))
			break
		}
	}
	return c, true
}

// Lasting implements gate.Estate. The root volume of a container counts for nothing here: it may be moved.
func (*Estate) Lasting(ctx context.Context, v gate.View, target, vmid string, since time.Time) ([]gate.Condition, error) {
	inv, err := Load(ctx, v, target)
	if err != nil {
		return nil, fmt.Errorf("find guest %s: %w", vmid, err)
	}
	g, ok := inv.ByID(vmid)
	if !ok {
		return nil, inv.notFound(vmid)
	}
	c, _, err := ReadConfig(ctx, v, target, g)
	if err != nil {
		return nil, fmt.Errorf("read the settings of guest %s: %w", vmid, err)
	}
	own, enough := Identify(ctx, v, target, g, c)
	if !enough {
		return nil, nil
	}
	own = slices.DeleteFunc(own, func(c gate.Condition) bool {
		return c.Pointer == "/rootfs" || strings.HasSuffix(c.Read.Operation, "/tasks")
	})
	if birth, ok := laterBirth(ctx, v, target, g, since); ok {
		own = append(own, birth)
	}
	return own, nil
}

// laterBirth says that nothing made or destroyed a guest of this id after all that its node knows of it now. The time is of the
// node's clock, and old tasks may be forgotten: what was before does not count.
func laterBirth(ctx context.Context, v gate.View, target string, g Guest, since time.Time) (gate.Condition, bool) {
	read := gate.Read{Operation: "GET /nodes/{node}/tasks", Params: map[string]string{"node": gate.NodeOf(g.ID), "vmid": g.ID, "limit": "1", "source": "all"}}
	a, err := v.Read(ctx, target, read)
	if err != nil {
		return gate.Condition{}, false // a caller who may not see tasks has the settings alone to go by
	}
	var rows []struct {
		Start int64 `json:"starttime"`
	}
	if json.Unmarshal(a.Data, &rows) == nil && len(rows) > 0 {
		since = time.Unix(rows[0].Start, 0)
	}
	read.Params["limit"], read.Params["since"] = "5000", fmt.Sprint(since.Unix())
	return gate.Condition{Name: fmt.Sprintf("no guest %s was created, restored or destroyed after %s", g.ID, since.UTC().Format(time.RFC3339)), Read: read, Pointer: "/upid",
		Where: map[string]string{"type": births}, Since: since.UTC(), Rule: gate.RuleAbsent, Identity: true}, true
}

func quoted(s string) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		return json.RawMessage(`""`) // a text always has a JSON form
	}
	return b
}

// NodeOf finds where a guest is now.
func (*Estate) NodeOf(ctx context.Context, v gate.View, target, vmid string) (string, error) {
	inv, err := Load(ctx, v, target)
	if err != nil {
		return "", fmt.Errorf("find guest %s: %w", vmid, err)
	}
	g, ok := inv.ByID(vmid)
	if !ok {
		return "", inv.notFound(vmid)
	}
	return g.Node, nil
}
