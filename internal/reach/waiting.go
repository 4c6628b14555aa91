package reach

import (
	"fmt"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// coldKeys are settings that Proxmox leaves waiting while a guest runs, whatever else is changed of it.
var coldKeys = []string{"args", "hostpci", "machine", "bios", "efidisk", "tpmstate", "virtiofs", "serial", "parallel", "vga", "audio", "rng", "numa", "scsihw", "kvm", "ostype", "arch",
	"smbios", "cpu", "boot", "bootdisk", "amd-sev", "intel-tdx", "ivshmem", "features", "hostname", "cmode", "console", "tty", "unprivileged", "watchdog", "localtime", "tablet", "agent"}

// seedKeys are those of the cloud-init image, which is made anew at a start, or at once where hotplug says so.
var seedKeys = []string{"cicustom", "cipassword", "ciupgrade", "ciuser", "citype", "sshkeys", "ipconfig", "nameserver", "searchdomain"}

// waitsOn says whether a setting goes on waiting when something else is changed of a guest.
func (w *walk) waitsOn(c change, g held, key string) bool {
	base, _ := fold(key)
	return w.runs(g.Guest) && (slices.Contains(coldKeys, base) || slices.Contains(coldKeys, key) || g.Kind == estate.VM && slices.Contains(seedKeys, base) && !seedsAtOnce(c, g))
}

// seedsAtOnce says whether the cloud-init image is made anew while the guest runs: a request that sets so counts at once.
func seedsAtOnce(c change, g held) bool {
	plugs := g.config["hotplug"]
	if v, ok := c.keys["hotplug"]; ok {
		plugs = v
	}
	return slices.Contains(words(plugs), "cloudinit")
}

// swept judges the changes that others left waiting and that any change of a guest's settings takes along: all of them
// where it is stopped, else those that can be plugged in.
func (w *walk) swept(c change, g held) {
	w.waitingBut(c, g, "waited and comes into force with it", func(key string) bool {
		_, own := c.keys[key]
		return own || slices.Contains(words(c.detail["revert"]), key) || w.waitsOn(c, g, key)
	})
}

// asked says whether what waits for a key is what an earlier step of the plan sets it to, or that it takes it away: it is
// judged there.
func (w *walk) asked(id, key string, row estate.Config) bool {
	for _, s := range w.before {
		if s.API == nil || s.Target != w.step.Target || s.API.Text("vmid") != id || !strings.HasSuffix(s.API.Operation, "/{vmid}/config") {
			continue
		}
		taken := row["delete"] != "" && row["delete"] != "0"
		if taken && slices.Contains(listOf(*s.API, "delete"), key) || !taken && s.API.Get(key) != nil && madeOf(key, row["pending"], strings.Join(values(*s.API, key), ";")) {
			return true
		}
	}
	return false
}

// madeOf says whether a value is the one that was set, perhaps with what Proxmox has added to it.
func madeOf(key, value, set string) bool {
	if sameSetting(key, value, set) {
		return true
	}
	has, wants := folded(key, value), folded(key, set)
	if len(wants) == 0 || !strings.ContainsAny(set, "=,") {
		return false
	}
	for name, v := range wants {
		if has[name] != v {
			return false
		}
	}
	return true
}

// waiting judges the changes that wait for a guest's next start, and tells its settings before it and with it.
func (w *walk) waiting(c change, g held, how string) (now, then estate.Config, ok bool) {
	return w.waitingBut(c, g, how, func(string) bool { return false })
}

func (w *walk) waitingBut(c change, g held, how string, not func(key string) bool) (now, then estate.Config, ok bool) {
	rows, ok := w.s.Pending(g.Guest)
	if !ok {
		w.lost[c.object] = true
		w.missing(c.object, "the changes that wait for the next start of "+title(g.Guest), w.unjudged(g.Path()), dim{ClassLosesData, gate.WeightDanger, []gate.Kind{gate.KindOutage, gate.KindData}}, copyGains)
		return nil, nil, false
	}
	now, then = estate.Config{}, estate.Config{}
	var destroyed []string
	for _, r := range rows {
		key := r["key"]
		if r["value"] != "" {
			now[key], then[key] = r["value"], r["value"]
		}
		if not(key) || w.asked(g.ID, key, r) {
			continue
		}
		if p, ok := r["pending"]; ok {
			then[key] = p
		}
		if r["delete"] != "" && r["delete"] != "0" {
			delete(then, key)
			if byForce(g.Guest, r) {
				destroyed = append(destroyed, key)
			}
		}
	}
	w.bring(brought{guest: c.object, kind: g.Path(), node: g.Node, id: g.ID, now: now, then: then, how: how, destroyed: destroyed})
	w.destroys(g, now, destroyed, "as soon as the change comes into force that waits")
	for _, d := range drives(then) {
		if now[d.key] != then[d.key] {
			w.alsoOf(g, "", d)
			w.hasDataOf(g, d, "")
		}
	}
	return now, then, true
}

// byForce says whether what waits for a key of a VM takes a disk of its own away together with its volume.
func byForce(g estate.Guest, row estate.Config) bool {
	d, ok := driveOf(row["key"], row["value"])
	return ok && g.Kind == estate.VM && row["delete"] == "2" && !d.medium && !d.seed && d.owner() == g.ID
}

// destroys names the volumes that go with keys which are taken away by force.
func (w *walk) destroys(g held, now estate.Config, keys []string, when string) {
	g.config = now
	for _, key := range keys {
		d, _ := driveOf(key, now[key])
		w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: d.object(), Way: []gate.Object{object(gate.ObjectGuest, g.ID), d.object()}, Kinds: []gate.Kind{gate.KindData},
			Text: fmt.Sprintf("%s (%s) of %s is destroyed %s", key, sizeOf(d), title(g.Guest), when)})
		w.alsoOf(g, "it is destroyed", d)
	}
}

// seeds judges what was set of a VM's cloud-init since its image was last made, and comes into the guest with the next one:
// each start makes it anew. Who set it is not told.
func (w *walk) seeds(c change, g estate.Guest, how string) {
	w.seedsBut(c, g, how, func(string) bool { return false })
}

func (w *walk) seedsBut(c change, g estate.Guest, how string, not func(key string) bool) {
	if g.Kind != estate.VM || g.Template {
		return
	}
	worst := w.unjudged(g.Path())
	conf, ok := w.s.Config(g)
	if !ok {
		w.missing(c.object, "the settings of "+title(g), worst, alsoLoses)
		return
	}
	if !slices.ContainsFunc(drives(conf), func(d drive) bool { return d.seed }) {
		return
	}
	for _, d := range drives(conf) {
		if d.seed && d.owner() != "" && d.owner() != g.ID {
			w.alsoOf(held{Guest: g, config: conf}, "it is written anew with the cloud-init of "+title(g)+", which that guest takes up when it starts", d)
		}
	}
	rows, ok := w.s.Rows(estate.PartPending, g.ID, gate.Read{Operation: "GET /nodes/{node}/qemu/{vmid}/cloudinit", Params: map[string]string{"node": g.Node, "vmid": g.ID}})
	if !ok {
		w.missing(c.object, "what was set of cloud-init of "+title(g)+" since its image was made", worst)
		return
	}
	now, then := estate.Config{}, estate.Config{}
	for _, r := range rows {
		key := r["key"]
		pending, waits := r["pending"]
		gone := r["delete"] != "" && r["delete"] != "0"
		if !waits && !gone || not(key) || w.asked(g.ID, key, r) {
			continue
		}
		now[key] = r["value"]
		if !waits && gone {
			now[key] = "(what the image has)" // it is not told
			continue
		}
		if then[key] = pending; pending == now[key] { // both are masked, and one would not wait if it were the same
			now[key] = "(another)"
		}
	}
	w.bring(brought{guest: c.object, kind: g.Path(), node: g.Node, id: g.ID, now: now, then: then, how: how})
}
