package reach

import (
	"slices"

	"castellan/internal/gate"
)

// verb is what a request does to an object, whoever's request it is.
type verb string

const (
	removes   verb = "removes"   // the object goes
	disables  verb = "disables"  // it stays, out of use
	restricts verb = "restricts" // it is withdrawn from the nodes in detail "lost"
	stops     verb = "stops"     // guest, node, service: stopped, or shut down; detail "hard"
	restarts  verb = "restarts"
	starts    verb = "starts" // also resume
	moves     verb = "moves"  // guest or disk to detail "to"
	alters    verb = "alters" // settings: keys with new values, "" = taken away
	bringsIn  verb = "brings" // state that was kept elsewhere comes into force: snapshot, archive, source of a clone, staged or pending changes
	creates   verb = "creates"
	frees     verb = "frees"   // content is deleted: volume or archive
	fills     verb = "fills"   // space is taken on a storage
	grants    verb = "grants"  // rights are given
	revokes   verb = "revokes" // rights are taken
	filters   verb = "filters" // firewall rules, options, sets of a scope
	cuts      verb = "cuts"    // network of a node or zone is changed or applied
	trusts    verb = "trusts"  // certificates, cluster membership
	direct    verb = "direct"  // what it does is walked by the request itself: own
	nothing   verb = "nothing" // known to reach nothing beyond its object
)

// change is one thing that a request does.
type change struct {
	verb   verb
	object gate.Object
	keys   map[string]string // for alters and filters
	detail map[string]string
	own    func(w *walk, r gate.Request) // of direct
}

// reader reads requests as changes; ok is false for requests that it knows nothing of.
type reader func(w *walk, r gate.Request) (changes []change, ok bool)

// readers are asked in turn; all that know a request have a say.
func readers() []reader {
	return slices.Concat(siteReaders(), guestReaders())
}

// changes reads the walk's step.
func (w *walk) changes() (all []change, known bool) {
	for _, read := range readers() {
		if c, ok := read(w, *w.step.API); ok {
			all, known = append(all, c...), true
		}
	}
	return all, known
}

// rule walks one verb on one kind of object; of "" is any kind.
type rule struct {
	verb verb
	of   gate.ObjectKind
	walk func(w *walk, c change)
}

func rules() []rule {
	return slices.Concat(siteRules(), guestRules())
}
