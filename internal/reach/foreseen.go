package reach

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// foreseen is the site as the plan's earlier steps leave it, as far as that can be told: what else the step hits there is
// hit as well. Which disks and network cards guests have, where they are and in which pools; which storages and jobs there are.
type foreseen struct {
	w      *walk
	guests []func(estate.Guest) estate.Guest
	config map[string][]func(estate.Config) estate.Config
	rows   map[string][]func([]estate.Config) []estate.Config
}

// foresee looks at the step once more where earlier ones are done. Nothing is lighter for it: it adds dangers and cautions
// that are not hit as things are.
func (w *walk) foresee(earlier []gate.Step) {
	f := foreseen{w, nil, map[string][]func(estate.Config) estate.Config{}, map[string][]func([]estate.Config) []estate.Config{}}
	for _, s := range earlier {
		f.done(*s.API)
	}
	if len(f.guests)+len(f.config)+len(f.rows) == 0 {
		return
	}
	then := *w
	then.s, then.kept, then.again = w.s.After(f.after()), &kept{}, true
	then.first, then.had, then.lost, then.spoken, then.filled = w.had, map[hitKey][]int{}, map[gate.Object]bool{}, map[string]int64{}, maps.Clone(w.filled)
	then.run()
}

// toldAlready says whether the step hits it as things are.
func (w *walk) toldAlready(h gate.Hit) bool {
	same := func(i int) bool {
		o := w.out.Hits[i]
		more := slices.ContainsFunc(h.Kinds, func(k gate.Kind) bool { return !slices.Contains(o.Kinds, k) })
		return !h.Weight.Heavier(o.Weight) && !more && strings.Contains(o.Matter, h.Matter)
	}
	for _, key := range []hitKey{{h.Class, h.Object, true, ""}, {h.Class, h.Object, false, gate.WeightDanger}, {h.Class, h.Object, false, gate.WeightCaution}, {h.Class, h.Object, false, gate.WeightNote}} {
		if slices.ContainsFunc(w.first[key], same) || slices.ContainsFunc(w.had[key], same) {
			return true
		}
	}
	return false
}

func (f *foreseen) after() *estate.After {
	a := &estate.After{Config: map[string]func(estate.Config) estate.Config{}, Rows: map[string]func([]estate.Config) []estate.Config{}, Made: f.w.madeStorage}
	if len(f.guests) > 0 {
		a.Guest = inTurn(f.guests)
	}
	for id, each := range f.config {
		a.Config[id] = inTurn(each)
	}
	for op, each := range f.rows {
		a.Rows[op] = inTurn(each)
	}
	return a
}

func inTurn[T any](each []func(T) T) func(T) T {
	return func(x T) T {
		for _, f := range each {
			x = f(x)
		}
		return x
	}
}

// done takes a request as done.
func (f *foreseen) done(r gate.Request) {
	for _, read := range []reader{readGuest, readStorage, readJob, readPool, readHA} {
		changes, _ := read(f.w, r)
		for _, c := range changes {
			f.change(c)
		}
	}
}

func (f *foreseen) change(c change) {
	id := c.object.ID
	switch c.object.Kind {
	case gate.ObjectGuest:
		if to := c.detail["to"]; c.verb == moves && to != "" {
			f.isAt(id, to)
		}
		if c.verb == alters {
			f.config[id] = append(f.config[id], func(was estate.Config) estate.Config { return altered(was, c.keys, c.detail["force"] != "") })
		}
	case gate.ObjectHA:
		if c.verb == moves {
			f.isAt(haGuest(id), c.detail["to"])
		}
	case gate.ObjectVolume:
		if c.verb == moves {
			guest, key, _ := strings.Cut(id, ":")
			f.diskMoved(guest, key, c.detail)
		}
	case gate.ObjectPool:
		if c.verb == alters {
			f.guests = append(f.guests, func(g estate.Guest) estate.Guest {
				if slices.Contains(words(c.detail["guests"]), g.ID) {
					g.Pool = map[bool]string{false: id}[c.detail["out"] != ""]
				}
				return g
			})
		}
	case gate.ObjectStorage:
		f.listed("GET /storage", "storage", c)
	case gate.ObjectJob:
		f.listed("GET /cluster/backup", "id", c)
	}
}

func (f *foreseen) isAt(id, node string) {
	f.guests = append(f.guests, func(g estate.Guest) estate.Guest {
		if g.ID == id {
			g.Node = node
		}
		return g
	})
}

// listed is a row of a list that is made, changed or taken away. A storage that goes is asked about still.
func (f *foreseen) listed(op, by string, c change) {
	f.rows[op] = append(f.rows[op], func(rows []estate.Config) []estate.Config {
		i := slices.IndexFunc(rows, func(r estate.Config) bool { return r[by] == c.object.ID })
		rows = slices.Clone(rows)
		switch {
		case c.verb == creates:
			rows = append(rows, with(c.keys, map[string]string{by: c.object.ID}))
		case i >= 0 && c.verb == alters && c.object.Kind == gate.ObjectJob:
			rows[i] = alteredJob(rows[i], c.keys)
		case i >= 0 && c.verb == alters:
			rows[i] = with(rows[i], c.keys)
		case i >= 0 && c.verb == removes && c.object.Kind == gate.ObjectJob:
			rows = slices.Delete(rows, i, i+1)
		}
		return rows
	})
}

// diskMoved: a disk of a guest comes to another storage, or to another guest. How it is called there is not known before.
func (f *foreseen) diskMoved(id, key string, detail map[string]string) {
	g, there := f.w.guest(id)
	now, ok := f.w.s.Config(g)
	if !there || !ok {
		f.w.missing(object(gate.ObjectGuest, id), "the settings of guest "+clean(id)+", a disk of which this plan moves before,", losesDisk, alsoLoses)
		return
	}
	d, ok := driveOf(key, inTurn(f.config[id])(now)[key])
	if !ok {
		return
	}
	if to := detail["to"]; to != "" {
		f.config[id] = append(f.config[id], func(was estate.Config) estate.Config {
			out := with(was, map[string]string{key: newVolume(to, id, d)})
			if detail["delete"] == "" {
				keepUnused(out, d)
			}
			return out
		})
		return
	}
	to := detail["guest"]
	f.config[id] = append(f.config[id], func(was estate.Config) estate.Config { return with(was, map[string]string{key: ""}) })
	f.config[to] = append(f.config[to], func(was estate.Config) estate.Config {
		return with(was, map[string]string{orText(detail["key"], key): newVolume(d.storage, to, d)})
	})
}

// newVolume is the value of a disk whose volume gets a name that Proxmox chooses.
func newVolume(storage, guest string, d drive) string {
	return fmt.Sprintf("%s:vm-%s-disk-?,size=%d", storage, guest, d.size)
}

// unnamed says whether a disk's volume is one that has no name yet.
func (d drive) unnamed() bool { return strings.HasSuffix(d.volume, "-disk-?") }

// altered are settings after a request, as far as disks, network cards and the start with the node go: a disk that is taken
// off is kept as unused.
func altered(was estate.Config, keys map[string]string, force bool) estate.Config {
	out := with(was, nil)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		base, _ := fold(key)
		if !isDrive(key) && base != "net" && key != "onboot" {
			continue
		}
		old, had := driveOf(key, out[key])
		set, _ := driveOf(key, keys[key])
		if out[key] = keys[key]; keys[key] == "" {
			delete(out, key)
		}
		if had && old.inUse() && !force && set.volume != old.volume {
			keepUnused(out, old)
		}
	}
	return out
}

func keepUnused(c estate.Config, d drive) {
	for n := 0; ; n++ {
		key := fmt.Sprintf("unused%d", n)
		if c[key] == d.volume {
			return
		}
		if c[key] == "" {
			c[key] = d.volume
			return
		}
	}
}
