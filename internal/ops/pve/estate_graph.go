package pve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/ops/table"
)

type estateGraphIn struct {
	Depth  string `json:"depth,omitempty" enum:"resource,config" jsonschema:"resource (default): what the site tells as a whole; config: also disks, network cards, snapshots, bridges, archives, read guest by guest"`
	Of     string `json:"of,omitempty" jsonschema:"only this thing and what it is connected to: guest/101, node/pve1, storage/nas, bridge/pve1/vmbr0, pool/prod"`
	Hops   int    `json:"hops,omitempty" jsonschema:"with of: how far to follow what depends on it, 1 to 4; of a storage at depth config 2, else 1, when not given"`
	Limit  int    `json:"limit,omitempty" jsonschema:"how many things at the most, 100 when not given"`
	Cursor string `json:"cursor,omitempty" jsonschema:"next_cursor of the answer before"`
	Target string `json:"target,omitempty"`
}

// graphVertex is one thing with what it depends on.
type graphVertex struct {
	ID     string            `json:"id"` // kind/id
	Title  string            `json:"title,omitempty"`
	Facts  map[string]string `json:"facts,omitempty"`
	Age    int64             `json:"age"`              // seconds since it was read
	Unseen bool              `json:"unseen,omitempty"` // something names it, and nothing was seen of it
	Needs  []graphEdge       `json:"needs,omitempty"`
	More   int               `json:"more_needs,omitempty"` // edges that are not shown
}

type graphEdge struct {
	To      string `json:"to"`
	How     string `json:"how"`
	Key     string `json:"key,omitempty"`
	Unknown bool   `json:"unknown,omitempty"` // the platform hides whether it is so
}

type estateGraphOut struct {
	Target     string        `json:"target"`
	Depth      string        `json:"depth"`
	Of         string        `json:"of,omitempty"`
	Things     int           `json:"things"` // in all, not only on this page
	Edges      int           `json:"edges"`
	Vertices   []graphVertex `json:"vertices"`
	Incomplete []string      `json:"incomplete,omitempty"` // what could not be read, and why
	NextCursor string        `json:"next_cursor,omitempty"`
}

const (
	graphAge   = 5 * time.Minute
	graphTime  = 40 * time.Second
	graphPage  = 100
	graphMost  = 20_000
	graphGaps  = 40
	graphFacts = 300 // characters of one fact
	graphEdges = 40  // edges of one thing, where no limit is given
)

func estateGraph(e *estate.Estate) *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "estate_graph", Summary: "What depends on what: guests, disks, storages, nodes, networks, pools, HA, jobs. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "dependency graph picture topology map whole cluster relations which guests use a storage bridge snapshot clone draw diagram", Bounded: true, Wide: true,
	}, func(ctx context.Context, v gate.View, in estateGraphIn) (estateGraphOut, error) {
		return runEstateGraph(ctx, v, e, in)
	})
}

func runEstateGraph(ctx context.Context, v gate.View, e *estate.Estate, in estateGraphIn) (estateGraphOut, error) {
	t, err := v.Target(in.Target)
	if err != nil {
		return estateGraphOut{}, err
	}
	if t.Product != "pve" {
		return estateGraphOut{}, gate.Fail(gate.ErrInvalid, "Choose a pve target.", "target %s is %s, not pve", t.Name, t.Product)
	}
	if in.Limit < 0 || in.Limit > graphMost || in.Hops < 0 || in.Hops > 4 {
		return estateGraphOut{}, gate.Fail(gate.ErrInvalid, fmt.Sprintf("limit is 1 to %d, hops 1 to 4.", graphMost), "limit %d or hops %d is out of range", in.Limit, in.Hops)
	}
	ctx, cancel := context.WithTimeout(ctx, graphTime)
	defer cancel()
	s, err := e.Survey(ctx, v, t.Name, graphAge)
	if err != nil {
		return estateGraphOut{}, err
	}
	if err := s.Unlisted(); err != nil {
		return estateGraphOut{}, err
	}
	q := graphQuestion{ctx: ctx, v: v, s: s, in: in}
	if err := q.find(); err != nil {
		return estateGraphOut{}, err
	}
	if in.Depth == "config" {
		q.readConfig()
	}
	return q.answer()
}

// graphQuestion is one call.
type graphQuestion struct {
	ctx    context.Context
	v      gate.View
	s      *estate.Survey
	in     estateGraphIn
	guests []estate.Guest // those that the caller sees
	of     gate.Object
	named  bool
}

// find looks up what is asked for.
func (q *graphQuestion) find() error {
	inv := q.s.Inventory()
	for _, g := range inv.Guests {
		if !q.v.Scoped() || q.v.Sees(q.ctx, q.s.Target().Name, gate.ObjectFacts{Object: gate.Object{Kind: gate.ObjectGuest, ID: g.ID}, Use: gate.UseNames, Name: g.Name, Tags: g.Tags, Pools: estate.Pools(g.Pool), Known: true}) {
			q.guests = append(q.guests, g)
		}
	}
	if q.in.Of == "" {
		return nil
	}
	kind, id, ok := strings.Cut(strings.TrimSpace(q.in.Of), "/")
	if !ok {
		kind, id = "guest", kind
	}
	if gate.ObjectKind(kind) == gate.ObjectGuest {
		g, err := inv.Guest(q.ctx, q.v, id)
		var e *gate.Error
		if errors.As(err, &e) && !ok && e.Kind == gate.ErrNotFound {
			e.Hint = strings.TrimSpace("What is no guest is asked for with its kind: storage/NAME, node/NAME, pool/NAME, bridge/NODE/NAME. " + e.Hint)
			if named := q.sameName(id); len(named) > 0 {
				e.Message += "; there is " + strings.Join(named, ", ")
				e.Hint = "Ask for of=" + named[0] + "."
			}
		}
		if err != nil {
			return err
		}
		id = g.ID
	}
	q.of, q.named = gate.Object{Kind: gate.ObjectKind(kind), ID: id}, true
	return nil
}

// sameName lists what is no guest and has that name. A limited caller is told of nothing beyond its guests.
func (q *graphQuestion) sameName(name string) (out []string) {
	if q.v.Scoped() || name == "" {
		return nil
	}
	for _, v := range q.s.Graph(estate.PartResources).Vertices() {
		if _, last, ok := strings.Cut(v.Object.ID, "/"); v.Object.Kind != gate.ObjectGuest && (strings.EqualFold(v.Object.ID, name) || ok && strings.EqualFold(last, name)) && len(out) < 4 {
			out = append(out, v.Object.String())
		}
	}
	return out
}

// readConfig reads what the question needs of what is read one by one.
func (q *graphQuestion) readConfig() {
	s := q.s
	if !q.named {
		if q.v.Scoped() {
			q.readGuests(q.guests)
			return
		}
		s.Graph(estate.ConfigParts()...)
		return
	}
	node, rest, below := strings.Cut(q.of.ID, "/")
	switch q.of.Kind {
	case gate.ObjectGuest:
		q.readGuests(only(q.guests, func(g estate.Guest) bool { return g.ID == q.of.ID }))
		q.readArchives()
		q.readNodesOf(func(g estate.Guest) bool { return g.ID == q.of.ID })
	case gate.ObjectSnapshot:
		q.readGuests(only(q.guests, func(g estate.Guest) bool { return g.ID == node }))
	case gate.ObjectNode:
		q.readGuests(only(q.guests, func(g estate.Guest) bool { return g.Node == node }))
		q.readNode(node)
	case gate.ObjectBridge, gate.ObjectInterface:
		if below && rest != "" {
			q.readGuests(only(q.guests, func(g estate.Guest) bool { return g.Node == node }))
			q.readNode(node)
		}
	case gate.ObjectPool:
		q.readGuests(only(q.guests, func(g estate.Guest) bool { return g.Pool == q.of.ID || strings.HasPrefix(g.Pool, q.of.ID+"/") }))
		if !q.v.Scoped() {
			s.Members(q.of.ID)
		}
	case gate.ObjectStorage, gate.ObjectVolume, gate.ObjectArchive:
		storage, _, _ := strings.Cut(q.of.ID, ":")
		q.readGuests(q.guests) // any guest may have a disk there
		if !q.v.Scoped() {
			for _, p := range s.Places() {
				if p.Storage == storage {
					s.Content(p.Node, p.Storage)
				}
			}
		}
	default:
		q.readGuests(q.guests)
	}
}

func only(all []estate.Guest, which func(estate.Guest) bool) []estate.Guest {
	return slices.DeleteFunc(slices.Clone(all), func(g estate.Guest) bool { return !which(g) })
}

func (q *graphQuestion) readGuests(guests []estate.Guest) {
	q.s.Configs(guests)
	q.s.SnapshotsOf(guests)
}

func (q *graphQuestion) readNode(node string) {
	if !q.v.Scoped() {
		q.s.Network(node)
	}
}

func (q *graphQuestion) readNodesOf(which func(estate.Guest) bool) {
	for _, g := range only(q.guests, which) {
		q.readNode(g.Node)
	}
}

// readArchives reads the storages that hold backups.
func (q *graphQuestion) readArchives() {
	if q.v.Scoped() {
		return
	}
	holds := map[string]bool{}
	for _, st := range q.s.Inventory().Storages {
		if strings.Contains(st.Content, "backup") {
			holds[st.Name] = true
		}
	}
	for _, p := range q.s.Places() {
		if holds[p.Storage] {
			q.s.Content(p.Node, p.Storage)
		}
	}
}

// answer cuts the page out of the graph.
func (q *graphQuestion) answer() (estateGraphOut, error) {
	parts := estate.ResourceParts()
	if q.v.Scoped() { // what is not about the caller's guests is not even asked for
		parts = []estate.Part{estate.PartResources, estate.PartHA, estate.PartReplication, estate.PartVNets, estate.PartZones}
	}
	g := q.s.Graph(parts...)
	out := estateGraphOut{Target: q.s.Target().Name, Depth: "resource", Vertices: []graphVertex{}}
	if q.in.Depth == "config" {
		out.Depth = "config"
	}
	var within map[gate.Object]bool
	if q.v.Scoped() {
		within = g.Within(q.guests)
	}
	if q.named {
		out.Of = q.of.String()
		if g.Vertex(q.of) == nil || within != nil && !within[q.of] {
			return estateGraphOut{}, q.notFound(g, within)
		}
		hops := max(q.in.Hops, 1)
		if q.in.Hops == 0 && q.in.Depth == "config" && q.of.Kind == gate.ObjectStorage {
			hops = 2 // between a storage and its guests lie the disks
		}
		around := g.Around(q.of, hops)
		for o := range around {
			if within != nil && !within[o] {
				delete(around, o)
			}
		}
		within = around
	}
	limit, edges, room := q.in.Limit, graphMost, 64*table.MaxBytes
	if limit == 0 {
		limit, edges, room = graphPage, graphEdges, table.MaxBytes
	}
	passed := q.in.Cursor == ""
	for _, v := range g.Vertices() {
		if within != nil && !within[v.Object] {
			continue
		}
		out.Things++
		needs := g.Needs(v.Object)
		if within != nil {
			needs = slices.DeleteFunc(slices.Clone(needs), func(e estate.Edge) bool { return !within[e.To] })
		}
		out.Edges += len(needs)
		id := v.Object.String()
		switch {
		case !passed:
			passed = id == q.in.Cursor
		case out.NextCursor != "":
		case len(out.Vertices) == limit || room <= 0:
			out.NextCursor = out.Vertices[len(out.Vertices)-1].ID
		default:
			shown := q.vertex(v, needs, edges)
			room -= shown.size()
			out.Vertices = append(out.Vertices, shown)
		}
	}
	if !passed {
		return estateGraphOut{}, gate.Fail(gate.ErrInvalid, "Begin again without cursor.", "the thing at which the answer before ended is not there any more")
	}
	for _, gap := range g.Gaps {
		text := string(gap.Part)
		if gap.Of != "" {
			text += " of " + gap.Of
		}
		why := gap.Why
		if q.ctx.Err() != nil && strings.Contains(why, context.DeadlineExceeded.Error()) {
			why = "not read yet when the time was over; ask again to go on"
		}
		out.Incomplete = append(out.Incomplete, text+": "+clip(why, 200))
	}
	if n := len(out.Incomplete); n > graphGaps {
		out.Incomplete = append(out.Incomplete[:graphGaps], fmt.Sprintf("and %d more", n-graphGaps))
	}
	if q.named && q.in.Depth != "config" {
		switch q.of.Kind {
		case gate.ObjectStorage:
			out.Incomplete = append(out.Incomplete, "disks, and the guests that have them here, are not looked at: depth config shows them")
		case gate.ObjectGuest, gate.ObjectNode, gate.ObjectPool:
			out.Incomplete = append(out.Incomplete, "disks, network cards and snapshots are not looked at: depth config shows them")
		}
	}
	if q.v.Scoped() {
		out.Incomplete = append(out.Incomplete, "only the guests within this caller's scope, and what they need, are shown")
	}
	return out, nil
}

func (q *graphQuestion) vertex(v *estate.Vertex, needs []estate.Edge, most int) graphVertex {
	out := graphVertex{More: max(len(needs)-most, 0), ID: v.Object.String(), Title: v.Title, Unseen: v.Ghost}
	if v.Title == out.ID {
		out.Title = ""
	}
	if !v.Read.IsZero() {
		out.Age = int64(q.v.Now().Sub(v.Read).Seconds())
	}
	for k, text := range v.Facts {
		if text == "" {
			continue
		}
		if out.Facts == nil {
			out.Facts = map[string]string{}
		}
		out.Facts[k] = clip(text, graphFacts)
	}
	for _, e := range needs[:min(most, len(needs))] {
		out.Needs = append(out.Needs, graphEdge{To: e.To.String(), How: string(e.Kind), Key: e.Key, Unknown: e.Unknown})
	}
	return out
}

// size is about how many bytes it takes in an answer.
func (v graphVertex) size() int {
	n := 40 + len(v.ID) + len(v.Title)
	for k, text := range v.Facts {
		n += 6 + len(k) + len(text)
	}
	for _, e := range v.Needs {
		n += 24 + len(e.To) + len(e.How) + len(e.Key)
	}
	return n
}

// notFound names things of the same kind.
func (q *graphQuestion) notFound(g *estate.Graph, within map[gate.Object]bool) error {
	var names, kinds []string
	for _, v := range g.Vertices() {
		if within != nil && !within[v.Object] {
			continue
		}
		if !slices.Contains(kinds, string(v.Object.Kind)) {
			kinds = append(kinds, string(v.Object.Kind))
		}
		if v.Object.Kind == q.of.Kind {
			names = append(names, v.Object.String())
		}
	}
	hint := "Things are named kind/id; the kinds here are " + strings.Join(kinds, ", ") + "."
	if len(names) > 0 {
		hint = "There are: " + clip(strings.Join(names, ", "), 600)
	}
	if q.in.Depth != "config" {
		hint += " Disks, bridges, snapshots and archives are seen with depth=config only."
	}
	e := gate.Fail(gate.ErrNotFound, hint, "nothing is known of %q", clip(q.in.Of, 80))
	if near := gate.Nearest(q.of.String(), names); near != "" {
		e.Message += "; did you mean " + near + "?"
	}
	return e
}
