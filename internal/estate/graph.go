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
}

// Graph is what is known of one site: things and what they depend on. It is not safe for concurrent writing.
type Graph struct {
	vertices map[gate.Object]*Vertex
	out, in  map[gate.Object][]Edge
	Gaps     []Gap
}

// NewGraph makes an empty graph.
func NewGraph() *Graph {
	return &Graph{vertices: map[gate.Object]*Vertex{}, out: map[gate.Object][]Edge{}, in: map[gate.Object][]Edge{}}
}

// Add puts a thing in; one that is there gets the newer title, facts and time.
func (g *Graph) Add(v Vertex) {
	old := g.vertices[v.Object]
	if old == nil {
		g.vertices[v.Object] = &v
		return
	}
	if v.Ghost {
		return
	}
	if v.Title == "" {
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
	*old = v
}

// Connect puts an edge in; ends that are not there become ghosts.
func (g *Graph) Connect(e Edge) {
	for _, o := range []gate.Object{e.From, e.To} {
		if g.vertices[o] == nil {
			g.vertices[o] = &Vertex{Object: o, Title: o.String(), Ghost: true}
		}
	}
	if slices.Contains(g.out[e.From], e) {
		return
	}
	g.out[e.From] = append(g.out[e.From], e)
	g.in[e.To] = append(g.in[e.To], e)
}

// Vertex finds a thing; nil when nothing was seen of it or refers to it.
func (g *Graph) Vertex(o gate.Object) *Vertex { return g.vertices[o] }

// Title names a thing for people.
func (g *Graph) Title(o gate.Object) string {
	if v := g.vertices[o]; v != nil && v.Title != "" {
		return v.Title
	}
	return o.String()
}

// Vertices lists all things by kind and id.
func (g *Graph) Vertices() []*Vertex {
	out := make([]*Vertex, 0, len(g.vertices))
	for _, v := range g.vertices {
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b *Vertex) int {
		if c := strings.Compare(string(a.Object.Kind), string(b.Object.Kind)); c != 0 {
			return c
		}
		return strings.Compare(a.Object.ID, b.Object.ID)
	})
	return out
}

// Needs lists what a thing depends on by edges of these kinds; none given = all.
func (g *Graph) Needs(o gate.Object, kinds ...EdgeKind) []Edge { return pick(g.out[o], kinds) }

// Dependents lists what depends on a thing by edges of these kinds; none given = all.
func (g *Graph) Dependents(o gate.Object, kinds ...EdgeKind) []Edge { return pick(g.in[o], kinds) }

func pick(all []Edge, kinds []EdgeKind) []Edge {
	if len(kinds) == 0 {
		return slices.Clone(all)
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
			for _, e := range pick(g.in[here.o], kinds) {
				if seen[e.From] {
					continue
				}
				seen[e.From] = true
				way := append(slices.Clip(slices.Clone(here.way)), e)
				if !yield(e.From, way) {
					return
				}
				queue = append(queue, at{e.From, way})
			}
		}
	}
}
