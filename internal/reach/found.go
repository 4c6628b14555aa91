package reach

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// dim is one thing that a walk looks for, with the worst that could be there.
type dim struct {
	class string
	worst gate.Weight
	kinds []gate.Kind
}

// missing says for every dimension that what it rests on could not be read.
func (w *walk) missing(o gate.Object, what string, dims ...dim) {
	for _, d := range dims {
		w.unread(d.class, d.worst, o, what, d.kinds...)
	}
}

// Dimensions that many walks look for.
var (
	outage       = []gate.Kind{gate.KindOutage}
	losesDisk    = dim{ClassLosesDisk, gate.WeightDanger, outage}
	losesBackup  = dim{ClassLosesBackup, gate.WeightCaution, []gate.Kind{gate.KindGuard}}
	losesArchive = dim{ClassLosesBackup, gate.WeightDanger, nil}
)

// listing is what there is on the site; ok is false when it could not be read whole, or castellan's token may see only part of
// it. Guests of nodes that are off are in it all the same.
func (w *walk) listing() (inv *estate.Inventory, ok bool) {
	inv = w.s.Inventory()
	off := 0
	for _, n := range inv.Nodes {
		if n.Status != "online" {
			off++
		}
	}
	return inv, len(inv.Nodes) > 0 && len(inv.Missing) <= off && len(w.s.Gaps(estate.PartResources)) == 0
}

// narrow says whether all of these parts that could not be had whole are what castellan's token may not see: there was an answer.
func (w *walk) narrow(parts ...estate.Part) bool {
	gaps := w.s.Gaps(parts...)
	return len(gaps) > 0 && !slices.ContainsFunc(gaps, func(g estate.Gap) bool { return !g.Narrow })
}

// unseen says whether a selection may take guests that the listing does not show: one by a rule, or by ids that are not in it.
func (w *walk) unseen(job estate.Config) bool {
	inv, ok := w.listing()
	if ok {
		return false
	}
	if everyone(job) || job["pool"] != "" || job["vmid"] == "" {
		return true
	}
	return slices.ContainsFunc(words(job["vmid"]), func(id string) bool { _, there := inv.ByID(id); return !there })
}

// held is a guest with its settings.
type held struct {
	estate.Guest
	config estate.Config
	quick  estate.Settings // the same
}

func hold(g estate.Guest, s estate.Settings) held { return held{g, s.Config, s} }

// mentions says whether one of the texts stands anywhere in the settings: a quick look before they are read closely.
func (h held) mentions(texts ...string) bool { return h.quick.Mention(texts...) }

// most is how many things of one sort a walk names one by one.
const most = 250

// guests goes over those guests that which picks (nil = all) with their settings, in the order of their ids. For those
// whose settings cannot be read, and for the listing, the dimensions are unread. A site may have thousands: nothing is
// copied that the walk does not keep.
func (w *walk) guests(of gate.Object, which func(*estate.Guest) bool, dims ...dim) iter.Seq[held] {
	inv, ok := w.listing()
	if !ok {
		w.missing(of, "the list of guests", dims...)
	}
	wanted := make([]*estate.Guest, 0, len(inv.Guests))
	for i := range inv.Guests {
		if which == nil || which(&inv.Guests[i]) {
			wanted = append(wanted, &inv.Guests[i])
		}
	}
	known := w.s.Settings(wanted)
	blind := 0
	for i, g := range wanted {
		if known[i].Config != nil {
			continue
		}
		if blind++; blind <= most {
			w.missing(object(gate.ObjectGuest, g.ID), "the settings of "+title(*g), dims...)
		}
	}
	if blind > most {
		w.missing(of, fmt.Sprintf("the settings of %d more guests", blind-most), dims...)
	}
	return func(yield func(held) bool) {
		for i, g := range wanted {
			if c := known[i]; c.Config != nil && !yield(hold(*g, c)) {
				return
			}
		}
	}
}

// one finds the guest that a request acts on and its settings. found is false when no guest has that id; when it cannot
// be told, the dimensions are unread.
func (w *walk) one(id string, dims ...dim) (g held, found bool) {
	o := object(gate.ObjectGuest, id)
	inv, ok := w.listing()
	guest, there := inv.ByID(id)
	if !there {
		switch {
		case !ok:
			w.lost[o] = true
			w.missing(o, "the list of guests", dims...)
		case !w.made(id): // it is not there, or castellan's token may not see it
			w.lost[o] = true
			w.missing(o, "guest "+clean(id)+", which is not among those that castellan sees,", dims...)
		}
		return held{}, false
	}
	c, ok := w.s.Config(guest)
	if !ok {
		w.lost[o] = true
		w.missing(o, "the settings of "+title(guest), dims...)
		return held{Guest: guest}, true
	}
	return hold(guest, estate.Settings{Config: c}), true
}

// title names a guest for people; its name is somebody's text, so it is bounded.
func title(g estate.Guest) string { return clean(g.Title()) }

// clean bounds a text from outside and takes out what does not print.
func clean(text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(gate.Clean(text), "\n", " "), "\t", " ")
	if len(text) > 80 {
		if r := []rune(text); len(r) > 80 {
			return string(r[:80]) + "…"
		}
	}
	return text
}

// storage finds a storage's definition. ok is false when the definitions could not be read; a storage that is not
// defined is nil.
func (w *walk) storage(name string) (def estate.Config, ok bool) {
	all, ok := w.s.Storages()
	for _, d := range all {
		if d["storage"] == name {
			return d, ok
		}
	}
	return nil, ok
}

// isShared says whether all nodes that have a storage see the same contents.
func isShared(def estate.Config) bool {
	switch def["type"] {
	case "nfs", "cifs", "cephfs", "rbd", "iscsi", "iscsidirect", "glusterfs", "pbs", "zfs", "esxi":
		return true
	}
	return def.On("shared")
}

// onNode says whether a storage is to be had on a node.
func onNode(def estate.Config, node string) bool {
	return !def.On("disable") && (def["nodes"] == "" || slices.Contains(words(def["nodes"]), node))
}

// serves says whether a storage may hold a type of content.
func serves(def estate.Config, content string) bool {
	return slices.Contains(words(def["content"]), content)
}

// words splits a list as Proxmox does.
func words(text string) []string { return gate.SplitList(text) }

// values are the texts of a parameter, each value of a repeated one; secret parts are left out.
func values(r gate.Request, name string) []string {
	var out []string
	for _, v := range r.Get(name) {
		out = append(out, valueText(v))
	}
	return out
}

func valueText(v gate.Value) string {
	switch {
	case v.Secret != nil:
		return v.Secret.Before + v.Secret.After
	case v.Ref != nil:
		return v.Ref.Plan
	}
	return v.Text
}

// list is a parameter that holds a list, however it is sent.
func listOf(r gate.Request, name string) []string {
	var out []string
	for _, text := range values(r, name) {
		out = append(out, words(text)...)
	}
	return out
}

// on says whether a switch is on, or may be.
func on(r gate.Request, name string) bool {
	v := r.Get(name)
	for _, x := range v {
		if t := strings.ToLower(strings.TrimSpace(valueText(x))); x.Secret != nil || t != "0" && t != "no" && t != "off" && t != "false" {
			return true
		}
	}
	return false
}

// off says whether a switch is sent, and off.
func off(r gate.Request, name string) bool { return r.Get(name) != nil && !on(r, name) }

// made says whether an earlier step makes a guest: it is judged there.
func (w *walk) made(id string) bool {
	for _, s := range w.before {
		if s.API == nil || s.Target != w.step.Target {
			continue
		}
		switch op := s.API.Operation; {
		case strings.HasSuffix(op, "/{vmid}/clone"):
			if s.API.Text("newid") == id {
				return true
			}
		case op == "POST /nodes/{node}/qemu", op == "POST /nodes/{node}/lxc":
			if s.API.Text("vmid") == id {
				return true
			}
		}
	}
	return false
}

// madeStorage says whether an earlier step makes a storage.
func (w *walk) madeStorage(name string) bool {
	return slices.ContainsFunc(w.before, func(s gate.Step) bool { return s.API.Operation == "POST /storage" && s.API.Text("storage") == name })
}

// runs says whether a guest runs when the step comes; what cannot be told counts as running.
func (w *walk) runs(g estate.Guest) bool {
	if runs, known := w.left(g.ID); known {
		return runs != no
	}
	return g.Status != "stopped" && !g.Template
}

// since says how long ago a time of the site was.
func since(d time.Duration) string {
	switch {
	case d < 0:
		return "in the future"
	case d < 2*time.Hour:
		return fmt.Sprintf("%d minutes ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d hours ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}

// ago reads a time of the site as it is written in a row.
func (w *walk) ago(seconds string) (time.Time, string) {
	var n estate.Int
	_ = n.UnmarshalJSON([]byte(seconds)) // cannot fail: what is no number counts as 0
	if n == 0 {
		return time.Time{}, "at an unknown time"
	}
	at := time.Unix(int64(n), 0).UTC()
	return at, at.Format("2006-01-02 15:04 UTC") + ", " + since(w.s.Now().Sub(at))
}

// plural counts things.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
