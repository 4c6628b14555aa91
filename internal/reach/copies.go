package reach

import (
	"fmt"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// copyGains is the worst that a copy's place can bring: others than those of the source come to it.
var copyGains = dim{ClassGains, gate.WeightDanger, []gate.Kind{gate.KindIdent}}

// copied: whoever has rights on a guest that is made of another one's data has a copy of it. pool is the one that the new
// guest comes into, or empty where it stays in what it is in. castellan's own rights are left out: what its callers may do
// with the copy is policy's to say, and they had to be allowed the source.
func (w *walk) copied(made, source, pool string) {
	if source == "" || made == source && pool == "" {
		return
	}
	o := object(gate.ObjectGuest, made)
	r, ok := w.readRights()
	if !ok {
		w.missing(o, "who has which rights, and so who gets a copy,", copyGains)
	}
	for _, s := range w.before { // the plan's own earlier steps
		if earlier, known := readAccess(w, *s.API); known {
			for _, e := range earlier {
				r, _ = r.change(e, w.s.Now())
			}
		}
	}
	inv, _ := w.listing() // its gap was reported before
	of, template := "guest "+clean(source), false
	if g, there := inv.ByID(source); there {
		of, template = title(g), g.Template
	}
	after := r.clone()
	if pool != "" {
		after.guests[made] = pool
	}
	for _, id := range r.everybody() {
		user, _, _ := strings.Cut(id, "!")
		if user == superuser || user == w.ownUser() {
			continue
		}
		more := without(after.on(id, "/vms/"+made), r.on(id, "/vms/"+source))
		if len(more) == 0 {
			continue
		}
		h := gate.Hit{Class: ClassGains, Weight: gate.WeightCaution, Object: object(gate.ObjectUser, id), Way: []gate.Object{object(gate.ObjectGuest, source), o},
			Kinds: []gate.Kind{gate.KindIdent}, Text: fmt.Sprintf("%s gains %s on a copy of %s: guest %s", id, names(more), of, made)}
		h.Matter = digestOf(more)
		if in := after.guests[made]; in != "" {
			h.Text += " is in pool " + clean(in)
		}
		switch {
		case template: // it is there to be copied
			h.Weight, h.Kinds = gate.WeightNote, nil
		case slices.ContainsFunc(more, func(p string) bool { return slices.Contains(strong, p) }):
			h.Weight = gate.WeightDanger
		}
		w.hit(h)
	}
}

// sourcesOf are the guests whose data a request to make a guest takes: by an archive, or disk by disk.
func sourcesOf(keys map[string]string, archive string) (out []string) {
	if archive != "" {
		_, name, _ := strings.Cut(archive, ":")
		out = append(out, estate.OwnerOf(name))
	}
	for key, text := range keys {
		d, ok := driveOf(key, text)
		if !ok {
			continue
		}
		out = append(out, d.owner())
		if from := property(text, "import-from"); from != "" {
			_, name, _ := strings.Cut(from, ":")
			out = append(out, estate.OwnerOf(name))
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(id string) bool { return id == "" })
}

// madeOf are the guests of whose data an earlier step of the plan makes this one.
func (w *walk) madeOf(id string) []string {
	for _, s := range w.before {
		if !strings.HasPrefix(s.API.Operation, "POST /nodes/{node}/") {
			continue
		}
		if strings.HasSuffix(s.API.Operation, "/{vmid}/clone") && s.API.Text("newid") == id {
			return []string{s.API.Text("vmid")}
		}
		changes, known := readNewGuest(w, *s.API)
		if !known || s.API.Text("vmid") != id {
			continue
		}
		for _, c := range changes {
			return sourcesOf(c.keys, orText(c.detail["archive"], c.detail["template"]))
		}
	}
	return nil
}

// takenOver are keys by which a guest reaches into its host: a copy of the guest reaches there too.
var takenOver = []string{"hookscript", "args", "hostpci", "usb", "virtiofs", "dev", "parallel", "serial", "features", "lxc"}

// alongHost judges what a copy of a guest takes over that reaches into the host, as if it were set there.
func (w *walk) alongHost(made gate.Object, kind, node, source string, settings estate.Config, but ...string) {
	then := estate.Config{}
	for key, value := range settings {
		base, _ := fold(key)
		if p := properties(value); key == "features" && settings.On("unprivileged") && len(p) == 1 && p["nesting"] != "" {
			continue // as Proxmox's own form makes them all
		}
		d, isVolume := driveOf(key, value)
		if slices.Contains(takenOver, base) || strings.HasPrefix(key, "lxc.") || isVolume && kind == "lxc" && d.storage == "" {
			then[key] = value
		}
	}
	w.bring(brought{guest: made, kind: kind, node: node, id: source, now: estate.Config{}, then: then, how: "comes along with what is copied", fresh: true, but: but})
}
