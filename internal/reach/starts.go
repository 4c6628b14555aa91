package reach

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// beginning is how a guest comes to run.
type beginning struct {
	node  string // where; empty = it cannot be told
	when  string // "with its start", "when it is started again after the backup"
	ran   bool   // it runs until then: what it holds now it holds again
	asked bool   // the request is for this start: where Proxmox refuses it, it refuses the request
	still bool   // its processor stays off: Proxmox starts it to read its disks
}

// startDims is the worst that the start of guests of these kinds can bring.
func (w *walk) startDims(kinds ...string) []dim {
	out := []dim{{ClassLosesData, gate.WeightDanger, []gate.Kind{gate.KindOutage, gate.KindData}}, copyGains}
	for _, kind := range kinds {
		out = append(out, w.unjudged(kind))
	}
	return append(out, w.takesDims(kinds...)...)
}

// takesDims is the worst that the node's memory and devices can bring then.
func (w *walk) takesDims(kinds ...string) []dim {
	out := []dim{{ClassSpace, gate.WeightCaution, nil}}
	if slices.Contains(kinds, "qemu") {
		out = append(out, deviceDims...)
	}
	return out
}

// deviceDims is the worst that a device brings which two guests name.
var deviceDims = []dim{{ClassBlocked, gate.WeightNote, nil}, {ClassStops, gate.WeightDanger, outage}}

// begins says what comes into force because a guest starts, whatever starts it: the changes that waited for it, a new image
// for cloud-init, memory and devices of the node, and disks that are another's.
func (w *walk) begins(o gate.Object, g held, b beginning) {
	c := change{object: o}
	now, then, ok := w.waiting(c, g, "waits and comes into force "+b.when)
	into := "the guest"
	if b.still {
		into = "a new one, which the guest takes up when it runs,"
	}
	w.seeds(c, g.Guest, "was set since the last cloud-init image and comes into "+into+" "+b.when)
	switch {
	case ok:
		w.takesUp(o, g, now, with(then, w.setBefore(g.ID)), b)
	case b.node != "":
		w.missing(o, "what "+title(g.Guest)+" takes of its node with the changes that wait", w.takesDims(g.Path())...)
	}
	switch {
	case b.ran || b.still || g.Template: // it had them before, or writes to none
	case g.config == nil:
		w.missing(o, "the settings of "+title(g.Guest), alsoLoses)
	default:
		w.alsoOf(g, "", drives(g.config)...)
	}
}

// takesUp says what a guest with these settings takes of the node on which it starts.
func (w *walk) takesUp(o gate.Object, g held, now, then estate.Config, b beginning) {
	if b.node == "" {
		return
	}
	if !b.still { // else nothing in it writes to its memory
		more := memoryOf(then) - memoryOf(now)
		switch {
		case !b.ran:
			w.memoryFor(b.node, g.MaxMem+more, g.Guest, "when it starts")
		case more > 0:
			w.memoryFor(b.node, more, g.Guest, "more when it starts again")
		}
	}
	if g.Kind == estate.VM && !g.Template { // containers open devices side by side
		w.takesDevices(o, g, now, then, b)
	}
}

// setBefore are the settings that earlier steps of the plan give a guest, "" = taken away: they are judged there, but what
// they take of a node is taken when it starts.
func (w *walk) setBefore(id string) map[string]string {
	out := map[string]string{}
	for _, s := range w.before {
		changes, ok := readGuest(w, *s.API)
		if !ok || s.API.Text("vmid") != id || s.Target != w.step.Target {
			continue
		}
		for _, c := range changes {
			if c.verb == alters && c.object.Kind == gate.ObjectGuest {
				maps.Copy(out, c.keys)
			}
		}
	}
	return out
}

// memoryOf is what a guest's settings give it, in bytes.
func memoryOf(c estate.Config) int64 {
	text := property(c["memory"], "") + property(c["memory"], "current")
	if text == "" {
		text = "512"
	}
	return bytesOf(text) << 20
}

// memoryBefore is what the plan's earlier steps take of a node's memory by guests that they start or move there, less what
// those use that they stop or move away; but for one guest.
func (w *walk) memoryBefore(node, but string) (more int64) {
	at := map[string]string{}
	for _, s := range w.before {
		r := *s.API
		for _, id := range append(listOf(r, "vms"), r.Text("vmid"), haGuest(r.Text("sid"))) {
			if _, known := at[id]; !known && id != "" {
				at[id] = ""
			}
		}
		if _, _, rest, ok := guestPath(r); ok && rest == "/migrate" {
			at[r.Text("vmid")] = r.Text("target")
		}
	}
	for id, to := range at {
		g, there := w.guest(id)
		if !there || id == but || g.Template {
			continue
		}
		was := g.Node == node && g.Status == "running"
		switch is := orText(to, g.Node) == node && w.runs(g); {
		case is && !was:
			more += g.MaxMem
		case was && !is:
			more -= g.Mem
		}
	}
	return more
}

// waking names a guest that comes to run though the request does not name it.
func (w *walk) waking(g held, way gate.Object, text string, b beginning) {
	o := object(gate.ObjectGuest, g.ID)
	w.hit(gate.Hit{Class: ClassStarts, Weight: gate.WeightCaution, Object: o, Way: []gate.Object{way, o}, Text: title(g.Guest) + " " + text})
	w.begins(o, g, b)
}

// movedByHA says what a move by HA does to a guest beyond its place: a container stops, and starts on the other node.
func (w *walk) movedByHA(sid string, sure bool) {
	id := haGuest(sid)
	o := object(gate.ObjectGuest, id)
	g, ok := w.guest(id)
	if !ok {
		if !strings.HasPrefix(sid, estate.VM+":") && len(w.s.Gaps(estate.PartResources)) > 0 {
			w.missing(o, "what kind of guest "+clean(id)+" is", append(w.startDims("lxc"), dim{ClassStops, gate.WeightCaution, nil})...)
		}
		return
	}
	if g.Kind != estate.CT || !w.runs(g) {
		return
	}
	may := map[bool]string{true: "is", false: "may be"}[sure]
	w.hit(gate.Hit{Class: ClassStops, Weight: gate.WeightCaution, Object: o, Unknown: !sure, Text: title(g) + " " + may + " stopped and started on another node: a container does not move while it runs"})
	w.begins(o, held{Guest: g}, beginning{when: "when HA starts it on another node", ran: true})
}

// left says what the last of the plan's earlier steps that did so made of a guest: whether it runs; known is false where
// none did.
func (w *walk) left(id string) (runs answer, known bool) {
	for _, s := range w.before {
		if s.API == nil || s.Target != w.step.Target {
			continue
		}
		if is, does := w.leaves(*s.API, id, runs, known); does {
			runs, known = is, true
		}
	}
	return runs, known
}

// leaves says whether a guest runs after a request; does is false where the request leaves that as it is.
func (w *walk) leaves(r gate.Request, id string, was answer, told bool) (runs answer, does bool) {
	if method, _, rest, ok := guestPath(r); ok {
		switch does := method + " " + rest; {
		case does == "POST /clone" && r.Text("newid") == id:
			return no, true
		case r.Text("vmid") != id:
			return no, false
		case does == "POST /status/stop", does == "POST /status/shutdown", does == "POST /template", does == "DELETE ", does == "POST /status/suspend" && on(r, "todisk"):
			return no, true
		case does == "POST /status/start", does == "POST /status/resume", does == "POST /status/reboot":
			return yes, true
		case does == "POST /agent/shutdown", does == "POST /agent/suspend-disk", does == "POST /agent" && (r.Text("command") == "shutdown" || r.Text("command") == "suspend-disk"):
			return perhaps, true // it is asked to
		case does == "POST /snapshot/{snapname}/rollback":
			return w.afterRollback(id, r.Text("snapname"), on(r, "start")), true
		}
		return no, false
	}
	method, path, _ := strings.Cut(r.Operation, " ")
	named := listOf(r, "vms")
	mine := func(runs answer) (answer, bool) {
		g, there := w.guest(id)
		here := r.Text("node") == "" || !there || g.Node == r.Text("node")
		switch {
		case slices.Contains(named, id):
			return runs, true
		case len(named) > 0 || !here:
			return no, false
		case told && was == runs, !told && there && (g.Status == "stopped") == (runs == no):
			return runs, true // chosen or not, that is how it is
		}
		return perhaps, true
	}
	switch {
	case (path == "/nodes/{node}/qemu" || path == "/nodes/{node}/lxc") && method == "POST" && r.Text("vmid") == id:
		if on(r, "start") || on(r, "live-restore") {
			return yes, true
		}
		return no, true
	case path == "/nodes/{node}/startall", path == "/cluster/bulk-action/guest/start":
		return mine(yes)
	case path == "/nodes/{node}/stopall", path == "/cluster/bulk-action/guest/shutdown", path == "/cluster/bulk-action/guest/suspend" && on(r, "to-disk"):
		return mine(no)
	case path == "/nodes/{node}/status" && method == "POST":
		if is, does := mine(no); !does || r.Text("command") != "reboot" {
			return is, does
		}
		return perhaps, true
	case strings.HasPrefix(path, "/cluster/ha/resources") && haGuest(r.Text("sid")) == id && method != "DELETE":
		switch state := r.Text("state"); {
		case state == "started", state == "enabled", state == "" && method == "POST" && path == "/cluster/ha/resources":
			return yes, true
		case state == "stopped", state == "disabled":
			return no, true
		}
	}
	return no, false
}

// afterRollback says whether a guest runs after it was put back to a snapshot.
func (w *walk) afterRollback(id, name string, start bool) answer {
	g, there := w.guest(id)
	switch {
	case start, keptUp(g.HA):
		return yes
	case !there:
		return perhaps
	case w.snapshotted(id, name): // with the memory, if it ran then
		return perhaps
	}
	snaps, ok := w.s.Snapshots(g)
	if i := slices.IndexFunc(snaps, func(s estate.Config) bool { return s["name"] == name }); ok && i >= 0 {
		return map[bool]answer{true: yes, false: no}[snaps[i].On("vmstate")]
	}
	return perhaps
}

// starting is a guest that an earlier step of the plan makes or puts back, as it is when it starts: no change waits for that
// then. Of one that is made of another the settings are that one's.
func (w *walk) starting(id string) (g held, made, rolled bool) {
	for _, s := range w.before {
		if s.API == nil || s.Target != w.step.Target {
			continue
		}
		r := *s.API
		if _, kind, rest, ok := guestPath(r); ok && rest == "/clone" && r.Text("newid") == id {
			of, there := w.guest(r.Text("vmid"))
			if !there {
				continue
			}
			conf, ok := w.s.Config(of)
			if snap := r.Text("snapname"); snap != "" {
				conf, ok = w.snapshotConfig(of, snap)
			}
			if !ok {
				w.missing(object(gate.ObjectGuest, id), "the settings of "+title(of)+", which it is a copy of,", w.startDims(kind)...)
				continue
			}
			g, made, rolled = held{Guest: estate.Guest{ID: id, Node: orText(r.Text("target"), of.Node), Kind: of.Kind}, config: conf}, true, false
		} else if ok && strings.HasSuffix(rest, "/rollback") && r.Text("vmid") == id {
			of, there := w.guest(id)
			conf, ok := w.s.Config(of)
			if name := r.Text("snapname"); !w.snapshotted(id, name) {
				conf, ok = w.snapshotConfig(of, name)
			}
			if !there || !ok {
				w.missing(object(gate.ObjectGuest, id), "the settings to which it is put back", w.startDims(kind)...)
			}
			g, made, rolled = held{Guest: of, config: conf}, true, true
		}
		changes, ok := readNewGuest(w, r)
		if !ok || r.Text("vmid") != id {
			continue
		}
		for _, c := range changes {
			conf := estate.Config{}
			if archive := c.detail["archive"]; archive != "" {
				kept, ok := w.archiveConfig(c.detail["node"], archive)
				if !ok {
					w.missing(object(gate.ObjectGuest, id), "the settings in the archive that it is made of", w.startDims(c.detail["type"])...)
					continue
				}
				conf = kept.settings
			}
			conf = with(conf, c.keys)
			g, made, rolled = held{Guest: newGuest(c), config: conf}, true, false
		}
	}
	if made {
		g.config = with(g.config, w.setBefore(id))
		g.MaxMem = memoryOf(g.config)
	}
	return g, made, rolled
}

// startsBack: what comes into force when a guest starts that was put back to a snapshot. What waited is dropped, and what
// differs from the snapshot is judged with it.
func (w *walk) startsBack(o gate.Object, g held, then estate.Config, b beginning) {
	w.takesUp(o, g, g.config, then, b)
	now, _ := w.s.Config(g.Guest) // its gap is said below
	w.seedsBut(change{object: o}, g.Guest, "was set since the last cloud-init image and comes into the guest "+b.when, func(key string) bool { return !sameSetting(key, now[key], then[key]) })
}

// newGuest is what a request to make a guest says of it.
func newGuest(c change) estate.Guest {
	return estate.Guest{ID: c.object.ID, Node: c.detail["node"], Kind: map[bool]string{true: estate.CT, false: estate.VM}[c.detail["type"] == "lxc"]}
}

// with are settings with others set, or taken away, in them.
func with(c estate.Config, keys map[string]string) estate.Config {
	out := estate.Config{}
	for k, v := range c {
		out[k] = v
	}
	for k, v := range keys {
		if out[k] = v; v == "" {
			delete(out, k)
		}
	}
	return out
}

// startsNew is the first start of a guest that the request makes.
func (w *walk) startsNew(c change, then estate.Config, when string) {
	g := held{Guest: newGuest(c)}
	g.MaxMem = memoryOf(then)
	w.takesUp(c.object, g, then, then, beginning{node: g.Node, when: when})
}

// hostDevice is a device of a node that a guest's settings name.
type hostDevice struct {
	key, text string
	usb       bool
	mdev      bool       // a part of a device, of which several can be had
	ways      [][]string // the devices of which it takes one, each with its addresses; nil = it could not be read
	beyond    bool       // castellan's token may not see what it stands for
}

// devicesOf lists those of a guest on a node; only those that differ from what it has already are asked for.
func (w *walk) devicesOf(c, had estate.Config, node string) (out []hostDevice) {
	for key, value := range c {
		base, number := fold(key)
		if number == "" || base != "hostpci" && base != "usb" || had[key] == value {
			continue
		}
		p := properties(value)
		d := hostDevice{key: key, text: value, usb: base == "usb", mdev: p["mdev"] != ""}
		host := p[""] + p["host"]
		switch {
		case p["mapping"] != "":
			d.ways, d.beyond = w.mappedTo(strings.TrimPrefix(base, "host"), p["mapping"], node)
		case host == "" || strings.EqualFold(host, "spice"):
			continue
		default:
			d.ways = [][]string{addressesOf(host)}
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b hostDevice) int { return strings.Compare(a.key, b.key) })
	return out
}

func addressesOf(text string) (out []string) {
	for _, a := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r == ';' || r == ' ' }) {
		out = append(out, strings.TrimPrefix(strings.TrimPrefix(a, "0000:"), "0x"))
	}
	return out
}

// mappedTo are the devices that a mapping stands for on a node, each by its addresses; nil where that could not be read.
func (w *walk) mappedTo(kind, name, node string) (out [][]string, beyond bool) {
	rows, ok := w.s.Rows(estate.PartMappings, kind, gate.Read{Operation: "GET /cluster/mapping/" + kind})
	if !ok && !w.narrow(estate.PartMappings) {
		return nil, false
	}
	out, beyond = [][]string{}, !ok
	for _, r := range rows {
		if r["id"] != name {
			continue
		}
		beyond = false
		for _, entry := range textsIn(r["map"]) {
			if property(entry, "node") == node {
				at := property(entry, "path")
				if kind == "usb" { // a port, or whatever is of that kind
					at += ";" + property(entry, "id")
				}
				out = append(out, addressesOf(at))
			}
		}
	}
	return out, beyond
}

// meets says whether two lists of addresses name a common device: one without a function names all of them.
func meets(a, b []string) bool {
	return slices.ContainsFunc(a, func(x string) bool {
		return slices.ContainsFunc(b, func(y string) bool { return x == y || strings.HasPrefix(x, y+".") || strings.HasPrefix(y, x+".") })
	})
}

// takesDevices: a guest that starts takes devices of its node which another one has that runs there.
func (w *walk) takesDevices(o gate.Object, g held, now, then estate.Config, b beginning) {
	had := estate.Config{}
	if b.ran {
		had = now
	}
	mine := w.devicesOf(then, had, b.node)
	if len(mine) == 0 {
		return
	}
	inv, ok := w.listing()
	switch {
	case ok:
	case w.narrow(estate.PartResources):
		w.out.Unread = union(w.out.Unread, []string{"who else has the devices of " + title(g.Guest) + ": guests that castellan's token may not see were not looked for"})
	default:
		w.missing(o, "the list of guests", deviceDims...)
	}
	var others []estate.Guest
	for _, x := range inv.Guests {
		if x.ID != g.ID && x.Node == b.node && x.Kind == estate.VM && w.runs(x) {
			others = append(others, x)
		}
	}
	known := w.s.Configs(others)
	var theirs []hostDevice
	var whose []estate.Guest
	for _, x := range others {
		conf, ok := known[x.ID]
		if !ok {
			w.missing(object(gate.ObjectGuest, x.ID), "the devices of "+title(x), deviceDims...)
		}
		for _, d := range w.devicesOf(conf, nil, b.node) {
			theirs, whose = append(theirs, d), append(whose, x)
		}
	}
	for _, d := range mine {
		switch {
		case d.ways == nil:
			w.missing(o, fmt.Sprintf("the device that %s (%s) stands for", d.key, clean(d.text)), deviceDims...)
			continue
		case len(d.ways) == 0 && !d.beyond:
			w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: o, Blocks: b.asked, Text: fmt.Sprintf("%s does not start: %s (%s) stands for no device of node %s", title(g.Guest), d.key, clean(d.text), b.node)})
			continue
		}
		free, floating := slices.Clone(d.ways), 0
		var holders []string
		for i, x := range theirs {
			other := object(gate.ObjectGuest, whose[i].ID)
			is := fmt.Sprintf("%s (%s) is %s of %s", d.key, clean(d.text), x.key, title(whose[i]))
			common := slices.ContainsFunc(d.ways, func(a []string) bool {
				return slices.ContainsFunc(x.ways, func(b []string) bool { return meets(a, b) })
			})
			switch {
			case d.usb != x.usb || x.ways != nil && !common || d.mdev && x.mdev:
			case x.ways == nil:
				w.missing(other, fmt.Sprintf("the device that %s (%s) of %s stands for", x.key, clean(x.text), title(whose[i])), deviceDims...)
			case d.usb:
				w.hit(gate.Hit{Class: ClassStops, Weight: gate.WeightCaution, Object: other, Unknown: true, Way: []gate.Object{o, other}, Text: is + ", which runs: Proxmox starts both, and one of the two may be left without it"})
			case x.mdev:
				w.hit(gate.Hit{Class: ClassStops, Weight: gate.WeightDanger, Object: other, Unknown: len(d.ways) > 1, Kinds: outage, Way: []gate.Object{o, other}, Text: is + ", which runs with a part of it: the whole device is taken from the node, and that part with it"})
			default:
				holders = append(holders, x.key+" of "+title(whose[i]))
				if len(x.ways) == 1 {
					free = slices.DeleteFunc(free, func(a []string) bool { return meets(a, x.ways[0]) })
				} else {
					floating++
				}
			}
		}
		if len(holders) > 0 && floating >= len(free) {
			without := map[bool]string{true: ", and is not backed up"}[b.still]
			w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: o, Blocks: b.asked, Unknown: len(free) > 0,
				Text: fmt.Sprintf("%s does not start"+without+": what %s (%s) needs is taken by %s", title(g.Guest), d.key, clean(d.text), names(holders))})
		}
	}
}
