package estate

import (
	"slices"

	"castellan/internal/gate"
)

// Around is a thing with what depends on it, up to so many edges away, and what all of those need, up to two edges more.
// What a node, a storage, a pool or the site merely holds is not followed back: that would be the site again.
func (g *Graph) Around(o gate.Object, hops int) map[gate.Object]bool {
	in := map[gate.Object]bool{}
	if g.Vertex(o) == nil {
		return in
	}
	in[o] = true
	for far, way := range g.Against(o) {
		if len(way) > hops {
			break // nearest come first
		}
		if through := way[:len(way)-1]; slices.ContainsFunc(through, func(e Edge) bool { return holds(e.From.Kind) }) {
			continue
		}
		in[far] = true
	}
	near := make([]gate.Object, 0, len(in))
	for x := range in {
		near = append(near, x)
	}
	for _, x := range near {
		if x != o && holds(x.Kind) {
			continue // a storage below a node is named; what it needs in turn is other nodes
		}
		for far, way := range g.Along(x) {
			if len(way) > 3 || x != o && len(way) > 1 {
				break
			}
			in[far] = true
		}
	}
	return in
}

// holds says that a thing is one that much else merely lies in.
func holds(kind gate.ObjectKind) bool {
	return kind == gate.ObjectNode || kind == gate.ObjectStorage || kind == gate.ObjectPool || kind == gate.ObjectSite || kind == gate.ObjectZone || kind == gate.ObjectJob || kind == gate.ObjectACL
}

// Within is what a caller may see who sees some guests only: those guests, what they need, and what is about them alone.
func (g *Graph) Within(guests []Guest) map[gate.Object]bool {
	in := map[gate.Object]bool{}
	for i := range guests {
		in[guestObject(guests[i].ID)] = true
	}
	var all []gate.Object
	for o := range in {
		all = append(all, o)
	}
	for _, o := range all {
		for far := range g.Along(o, EdgeRunsOn, EdgeDisk, EdgeUnused, EdgeMedia, EdgeStoredOn, EdgeProvided, EdgeBacking, EdgeSame, EdgeClone, EdgeNIC, EdgeCarries, EdgeMember, EdgePassthru) {
			in[far] = true
		}
		for _, e := range g.Dependents(o, EdgeSnapshot, EdgeArchive, EdgeManages, EdgeReplicates) {
			in[e.From] = true
		}
	}
	return in
}
