package estate

import (
	"iter"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
)

// EdgeKind says in which way one thing depends on another. An edge leads from what depends to what it depends on, so a
// blast radius walks against it.
type EdgeKind string

// The edges.
const (
	EdgeRunsOn     EdgeKind = "runs_on"     // guest → node
	EdgeDisk       EdgeKind = "disk"        // guest → volume in use
	EdgeUnused     EdgeKind = "unused"      // guest → volume kept as unusedN
	EdgeMedia      EdgeKind = "media"       // guest → ISO image or template it boots from or has in a drive
	EdgeStoredOn   EdgeKind = "stored_on"   // volume or archive → storage
	EdgeProvided   EdgeKind = "provided_by" // storage → node that has it
	EdgeBacking    EdgeKind = "backed_by"   // storage → Ceph pool, or storage whose disk it lies on
	EdgeClone      EdgeKind = "clone_of"    // volume → its base volume
	EdgeNIC        EdgeKind = "nic"         // guest → bridge ("pve1/vmbr0") or vnet
	EdgeCarries    EdgeKind = "carried_by"  // bridge, bond or VLAN → interface under it; vnet → zone; zone → node
	EdgeMember     EdgeKind = "member_of"   // guest or storage → pool; user → group; pool → pool above it
	EdgeManages    EdgeKind = "manages"     // HA resource → guest; rule → HA resource or node
	EdgeReplicates EdgeKind = "replicates"  // replication job → guest, → target node
	EdgeBacksUp    EdgeKind = "backs_up"    // job → guest or pool; → storage it writes to
	EdgeArchive    EdgeKind = "archive_of"  // archive → guest
	EdgeSnapshot   EdgeKind = "snapshot_of" // snapshot → guest; snapshot → snapshot it builds on
	EdgeRules      EdgeKind = "filters"     // firewall scope → guest, node, vnet or site
	EdgeGrants     EdgeKind = "grants"      // ACL entry → user, group or token; → path's object; → role
	EdgeServes     EdgeKind = "serves"      // Ceph daemon → node; Ceph pool → OSDs' site
	EdgePassthru   EdgeKind = "passthrough" // guest → host device or mapping of a node
	EdgeSame       EdgeKind = "same_as"     // storage → storage that is the same place under another name
)

// Edge is one dependency.
type Edge struct {
	From, To gate.Object
	Kind     EdgeKind
	Key      string // by which setting: "scsi0", "net1", "nodes"
	// Unknown: the platform hides whether it is so. It is never left out for that.
	Unknown bool
}

// Vertex is one thing of a site.
type Vertex struct {
	Object gate.Object // Site is empty: a graph is of one site
	Title  string      // for people, bounded: "VM 101 (web)"
	Facts  Config      // what a drawing or walk wants to know: "status", "type", ...
	Read   time.Time   // when what it rests on was read
	Ghost  bool        // something refers to it, and nothing was seen of it
}

// Gap is a part of a site that could not be read.
type Gap struct {
	Part Part   // which part
	Of   string // of which object; empty = of the whole site
	Why  string
	// Narrow says that the site answered, and that castellan's token may see only a part of what was asked for.
	Narrow bool
}

// Graph is what is known of one site: things and what they depend on. It is not safe for concurrent writing; one that a
// Survey handed out is read only.
type Graph struct {
	index map[gate.Object]int
	nodes []vertexAt
	many  map[int]map[Edge]bool // edges of things that have a lot of them
	Gaps  []Gap
}

type vertexAt struct {
	v       *Vertex
	out, in []Edge
}

// NewGraph makes an empty graph.
func NewGraph() *Graph {
	return &Graph{index: map[gate.Object]int{}, many: map[int]map[Edge]bool{}}
}

// Add puts a thing in; one that is there gets the newer title, facts and time.
func (g *Graph) Add(v Vertex) {
	i, ok := g.index[v.Object]
	if !ok {
		g.index[v.Object] = len(g.nodes)
		g.nodes = append(g.nodes, vertexAt{v: &v})
		return
	}
	if v.Ghost {
		return
	}
	old := g.nodes[i].v
	if v.Title == "" || old.Title != "" && !old.Ghost && v.Title == v.Object.String() {
		v.Title = old.Title
	}
	for k, text := range old.Facts {
		if _, ok := v.Facts[k]; !ok {
			if v.Facts == nil {
				v.Facts = Config{}
			}
			v.Facts[k] = text
		}
	}
	if !old.Ghost && !old.Read.IsZero() && old.Read.Before(v.Read) { // it is as old as the oldest of what is said of it
		v.Read = old.Read
	}
	*old = v
}

func (g *Graph) at(o gate.Object) int {
	if i, ok := g.index[o]; ok {
		return i
	}
	g.index[o] = len(g.nodes)
	g.nodes = append(g.nodes, vertexAt{v: &Vertex{Object: o, Title: o.String(), Ghost: true}})
	return len(g.nodes) - 1
}

// fewEdges is up to how many edges of one thing are compared one by one.
const fewEdges = 24

// Connect puts an edge in; ends that are not there become ghosts.
func (g *Graph) Connect(e Edge) {
	from, to := g.at(e.From), g.at(e.To)
	out := g.nodes[from].out
	switch seen := g.many[from]; {
	case seen != nil:
		if seen[e] {
			return
		}
		seen[e] = true
	case slices.Contains(out, e):
		return
	case len(out) == fewEdges:
		seen = make(map[Edge]bool, 2*fewEdges)
		for _, x := range out {
			seen[x] = true
		}
		seen[e] = true
		g.many[from] = seen
	}
	g.nodes[from].out = append(out, e)
	g.nodes[to].in = append(g.nodes[to].in, e)
}

// Vertex finds a thing; nil when nothing was seen of it or refers to it.
func (g *Graph) Vertex(o gate.Object) *Vertex {
	if i, ok := g.index[o]; ok {
		return g.nodes[i].v
	}
	return nil
}

// Title names a thing for people.
func (g *Graph) Title(o gate.Object) string {
	if v := g.Vertex(o); v != nil && v.Title != "" {
		return v.Title
	}
	return o.String()
}

// Vertices lists all things by kind and id.
func (g *Graph) Vertices() []*Vertex {
	out := make([]*Vertex, 0, len(g.nodes))
	for _, n := range g.nodes {
		out = append(out, n.v)
	}
	slices.SortFunc(out, func(a, b *Vertex) int { return compareObjects(a.Object, b.Object) })
	return out
}

func compareObjects(a, b gate.Object) int {
	if c := strings.Compare(string(a.Kind), string(b.Kind)); c != 0 {
		return c
	}
	switch n, m := isNumber(a.ID), isNumber(b.ID); {
	case n && m && len(a.ID) != len(b.ID):
		return len(a.ID) - len(b.ID)
	case n != m && n:
		return -1
	case n != m:
		return 1
	}
	return strings.Compare(a.ID, b.ID)
}

// Size says how many things and edges there are.
func (g *Graph) Size() (vertices, edges int) {
	for _, n := range g.nodes {
		edges += len(n.out)
	}
	return len(g.nodes), edges
}

// Needs lists what a thing depends on by edges of these kinds; none given = all.
func (g *Graph) Needs(o gate.Object, kinds ...EdgeKind) []Edge {
	if i, ok := g.index[o]; ok {
		return pick(g.nodes[i].out, kinds)
	}
	return nil
}

// Dependents lists what depends on a thing by edges of these kinds; none given = all.
func (g *Graph) Dependents(o gate.Object, kinds ...EdgeKind) []Edge {
	if i, ok := g.index[o]; ok {
		return pick(g.nodes[i].in, kinds)
	}
	return nil
}

// pick gives the edges of some kinds. Callers only read what they get.
func pick(all []Edge, kinds []EdgeKind) []Edge {
	if len(kinds) == 0 {
		return slices.Clip(all)
	}
	var out []Edge
	for _, e := range all {
		if slices.Contains(kinds, e.Kind) {
			out = append(out, e)
		}
	}
	return out
}

// Against walks from a thing to everything that depends on it, nearest first, by edges of these kinds; each thing once,
// with the way that led to it (the start first, the thing last). Cycles end by themselves.
func (g *Graph) Against(start gate.Object, kinds ...EdgeKind) iter.Seq2[gate.Object, []Edge] {
	return g.walk(start, func(o gate.Object) []Edge { return g.Dependents(o, kinds...) }, func(e Edge) gate.Object { return e.From })
}

// Along walks from a thing to everything that it depends on, as Against does the other way.
func (g *Graph) Along(start gate.Object, kinds ...EdgeKind) iter.Seq2[gate.Object, []Edge] {
	return g.walk(start, func(o gate.Object) []Edge { return g.Needs(o, kinds...) }, func(e Edge) gate.Object { return e.To })
}

func (g *Graph) walk(start gate.Object, edges func(gate.Object) []Edge, end func(Edge) gate.Object) iter.Seq2[gate.Object, []Edge] {
	return func(yield func(gate.Object, []Edge) bool) {
		type at struct {
			o   gate.Object
			way []Edge
		}
		seen := map[gate.Object]bool{start: true}
		queue := []at{{o: start}}
		for len(queue) > 0 {
			here := queue[0]
			queue = queue[1:]
			for _, e := range edges(here.o) {
				next := end(e)
				if seen[next] {
					continue
				}
				seen[next] = true
				way := append(slices.Clip(here.way), e)
				if !yield(next, way) {
					return
				}
				queue = append(queue, at{next, way})
			}
		}
	}
}

// Names lists a volume under every name that it has: a storage that is the same place as its own shows it too. The name
// that was asked for comes first.
func (g *Graph) Names(volume gate.Object) []gate.Object {
	out := []gate.Object{volume}
	storage, rest, ok := strings.Cut(volume.ID, ":")
	if !ok {
		return out
	}
	for same := range g.Along(gate.Object{Site: volume.Site, Kind: gate.ObjectStorage, ID: storage}, EdgeSame) {
		out = append(out, gate.Object{Site: volume.Site, Kind: volume.Kind, ID: same.ID + ":" + rest})
	}
	return out
}

// Users lists the edges by which guests and clones use a volume or archive, under whichever name they know it.
func (g *Graph) Users(volume gate.Object) []Edge {
	var out []Edge
	for _, name := range g.Names(volume) {
		out = append(out, g.Dependents(name, EdgeDisk, EdgeUnused, EdgeMedia, EdgeClone)...)
	}
	return out
}
