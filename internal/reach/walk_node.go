package reach

import (
	"fmt"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

func nodeRules() []rule {
	return []rule{
		{stops, gate.ObjectNode, (*walk).stopNode}, {restarts, gate.ObjectNode, (*walk).stopNode}, {starts, gate.ObjectNode, (*walk).wakeNode},
		{frees, gate.ObjectNode, (*walk).wipeDisk}, {removes, gate.ObjectNode, (*walk).removeFromNode}, {trusts, gate.ObjectNode, (*walk).trustNode},
	}
}

// stopNode walks the stop of a node or of one of its services.
func (w *walk) stopNode(c change) {
	if c.detail["what"] == "service" {
		w.stopService(c)
		return
	}
	node := c.detail["node"]
	o := c.object
	w.nodeGuests(o, node, c.verb == restarts)
	w.quorum(o, node)
	w.cephOn(o, node)
	w.replicationTo(o, node)
	w.ownNode(o, node)
	inv := w.s.Inventory()
	if slices.ContainsFunc(inv.Nodes, func(n estate.Node) bool { return n.Name == node && n.Status == "offline" }) {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: o, Text: node + " is off already"})
	}
	storages, ok := w.s.Storages()
	if !ok {
		w.unread(ClassLosesDisk, gate.WeightCaution, o, "which storages only "+node+" has")
	}
	for _, s := range storages {
		if nodes := list(s["nodes"]); len(nodes) == 1 && nodes[0] == node {
			w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightCaution, Object: object(gate.ObjectStorage, s["storage"]), Text: "storage " + s["storage"] + " is on " + node + " alone"})
		}
	}
	if c.verb == restarts {
		w.applyNode(c, node, true)
	}
	if c.verb == stops {
		w.hit(gate.Hit{Class: ClassTime, Weight: gate.WeightCaution, Object: o, Text: node + " stays off until somebody starts it"})
	}
}

// nodeGuests names what runs on a node and what becomes of it.
func (w *walk) nodeGuests(o gate.Object, node string, again bool) {
	inv := w.s.Inventory()
	if len(w.s.Gaps(estate.PartResources)) > 0 {
		w.unread(ClassStops, gate.WeightDanger, o, "which guests run on "+node, gate.KindOutage)
		w.unread(ClassHA, gate.WeightDanger, o, "which guests run on "+node, gate.KindOutage)
		w.unread(ClassMoves, gate.WeightCaution, o, "which guests run on "+node)
		w.unread(ClassBlocked, gate.WeightNote, o, "whether "+node+" runs")
		w.unreadSelf(o, "which guests run on "+node)
		w.missing(o, "which guests start again when "+node+" stops", append(w.startDims("qemu", "lxc"), dim{ClassStarts, gate.WeightCaution, nil})...)
	}
	options, ok := w.s.Options()
	policy, _ := gate.PropertyValue(options["ha"], "shutdown_policy")
	if policy == "" {
		policy = nestedOf(options["ha"], "shutdown_policy")
	}
	resources, ok2 := w.s.HAResources()
	if !ok || !ok2 {
		w.unread(ClassStops, gate.WeightDanger, o, "what HA does when "+node+" stops", gate.KindOutage)
		w.unread(ClassMoves, gate.WeightCaution, o, "what HA does when "+node+" stops")
	}
	managed := map[string]bool{}
	for _, r := range resources {
		managed[haGuest(r["sid"])] = r["state"] != "ignored"
	}
	if again {
		w.s.Configs(w.s.GuestsOn(node)) // read ahead
	}
	var startedAgain, startedToo, stay []estate.Guest
	elsewhere := map[string]bool{}
	for _, g := range inv.Guests {
		if g.Node != node || g.Template {
			continue
		}
		guest := object(gate.ObjectGuest, g.ID)
		byHA := managed[g.ID] || g.HA != "" && g.HA != "ignored"
		if !w.runs(g) {
			if again && !byHA {
				startedToo = append(startedToo, g)
			}
			continue
		}
		text, startsAgain := g.Title()+" stops", !ok || !ok2
		if again {
			conf, known := w.s.Config(g)
			startsAgain = startsAgain || !known || conf.On("onboot")
			switch {
			case byHA: // HA decides, whatever onboot says
			case !known:
				text += "; whether it starts with the node could not be read"
			case conf.On("onboot"):
				text += ", and starts again with the node"
			default:
				text += ", and stays off: it does not start with the node (onboot)"
			}
		}
		if byHA {
			startsAgain = policy != "migrate" || g.Kind == estate.CT // HA moves a running VM as it runs
			moved := ""
			switch {
			case policy == "migrate":
				moved = "HA moves it to another node first (shutdown_policy migrate)"
			case policy == "freeze" || (policy == "" || policy == "conditional") && again:
				text += "; HA leaves it where it is and starts it when the node is back"
			default:
				moved = "HA starts it on another node after it stopped here"
			}
			if elsewhere[g.ID] = moved != ""; moved != "" {
				w.hit(gate.Hit{Class: ClassMoves, Weight: gate.WeightCaution, Object: guest, Text: g.Title() + ": " + moved})
			}
		}
		w.hit(gate.Hit{Class: ClassStops, Weight: gate.WeightDanger, Object: guest, Kinds: []gate.Kind{gate.KindOutage}, Way: []gate.Object{o}, Text: text})
		switch {
		case startsAgain:
			startedAgain = append(startedAgain, g)
		case !elsewhere[g.ID]:
			stay = append(stay, g)
		}
		if own := w.ownGuest(g); own != no {
			w.hit(gate.Hit{Class: ClassSelf, Weight: gate.WeightDanger, Object: guest, Unknown: own == perhaps, Kinds: []gate.Kind{gate.KindGoverns}, Text: g.Title() + ", which castellan depends on, runs on " + node})
		}
	}
	w.s.ReadPending(startedAgain)
	for _, g := range startedAgain {
		b := beginning{node: node, when: "when it starts again after " + node + " stopped", ran: true}
		if elsewhere[g.ID] {
			b.node = ""
		}
		w.begins(object(gate.ObjectGuest, g.ID), held{Guest: g}, b)
	}
	w.s.ReadPending(stay)
	for _, g := range stay {
		w.waiting(change{object: object(gate.ObjectGuest, g.ID)}, held{Guest: g}, "waited until it stops and comes into force")
	}
	for _, g := range startedToo {
		conf, known := w.s.Config(g)
		switch {
		case !known:
			w.missing(object(gate.ObjectGuest, g.ID), "whether "+title(g)+" starts with the node", append(w.startDims(g.Path()), dim{ClassStarts, gate.WeightCaution, nil})...)
		case conf.On("onboot"):
			w.waking(held{Guest: g, config: conf}, o, "does not run, and starts with the node (onboot)", beginning{node: node, when: "when it starts with the node"})
		}
	}
}

// nestedOf reads a key of a value that is shown as an object.
func nestedOf(text, key string) string {
	c, err := estate.ParseConfig([]byte(text))
	if err != nil {
		return ""
	}
	return c[key]
}

// haGuest is the guest of an HA resource "vm:101".
func haGuest(sid string) string {
	_, id, named := strings.Cut(sid, ":")
	if !named {
		return sid
	}
	return id
}

// quorum says whether the others still are a majority.
func (w *walk) quorum(o gate.Object, node string) {
	rows, ok := w.s.Status()
	if !ok {
		w.unread(ClassHA, gate.WeightDanger, o, "whether the cluster keeps its majority", gate.KindOutage)
		return
	}
	total, online := 0, 0
	quorate, stopped := true, w.stoppedNodes()
	for _, r := range rows {
		switch r["type"] {
		case "cluster":
			quorate = r["quorate"] != "0"
		case "node":
			total++
			if r.On("online") && r["name"] != node && !slices.Contains(stopped, r["name"]) {
				online++
			}
		}
	}
	if total < 2 {
		return
	}
	need := total/2 + 1
	text := fmt.Sprintf("without %s %d of %d nodes are left", names(union(stopped, []string{node})), online, total)
	switch {
	case !quorate:
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightDanger, Object: o, Kinds: []gate.Kind{gate.KindOutage}, Text: "the cluster has no majority as it is"})
	case online < need:
		// A separate vote (a quorum device) may make up for it; that is no reason to weigh it less.
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightDanger, Object: object(gate.ObjectSite, ""), Kinds: []gate.Kind{gate.KindOutage},
			Text: fmt.Sprintf("%s, fewer than the %d that are a majority: no configuration can be written, nodes with HA guests restart themselves", text, need)})
	case online == need:
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: object(gate.ObjectSite, ""), Text: text + ": the majority bears no further loss"})
	default:
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightNote, Object: object(gate.ObjectSite, ""), Text: text})
	}
}

// stoppedNodes are those that earlier steps of the plan stop. One that restarts is among them until a step has waited for its next
// boot.
func (w *walk) stoppedNodes() (out []string) {
	for _, s := range w.before {
		if s.API.Operation == "RUN /nodes/{node}/updates" && s.API.Get("other-than") != nil {
			out = slices.DeleteFunc(out, func(n string) bool { return n == s.API.Text("node") })
		}
		changes, _ := readNode(w, *s.API)
		for _, c := range changes {
			node, power := c.detail["node"], c.detail["what"] == "power" && c.verb != starts
			if (power || c.verb == stops && c.detail["service"] == "corosync") && !slices.Contains(out, node) {
				out = append(out, node)
			}
		}
	}
	return out
}

// cephOn says which Ceph daemons a node carries.
func (w *walk) cephOn(o gate.Object, node string) {
	meta, ok := w.s.Ceph()
	if !ok {
		w.unread(ClassHA, gate.WeightDanger, o, "which Ceph daemons run on "+node, gate.KindOutage)
		return
	}
	var here []string
	mons, monsLeft, stopped := 0, 0, w.stoppedNodes()
	for _, kind := range []string{"mon", "mgr", "mds", "osd"} {
		for id, host := range daemonsIn(meta[kind]) {
			if kind == "mon" {
				mons++
				if host != node && !slices.Contains(stopped, host) {
					monsLeft++
				}
			}
			if host == node || host == "" {
				here = append(here, kind+"."+id)
			}
		}
	}
	slices.Sort(here)
	if len(here) == 0 {
		return
	}
	h := gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: object(gate.ObjectCeph, ""), Text: fmt.Sprintf("Ceph loses %s; without the flag noout it starts to copy their data", names(here))}
	if monsLeft <= mons/2 {
		h.Weight, h.Kinds, h.Text = gate.WeightDanger, []gate.Kind{gate.KindOutage}, h.Text+fmt.Sprintf("; %d of %d monitors are left, no majority: everything on Ceph stands still", monsLeft, mons)
	}
	w.hit(h)
}

// daemonsIn reads Ceph's daemons of one kind as id → host; the list comes as an object by "name@host", or as a list.
func daemonsIn(text string) map[string]string {
	out := map[string]string{}
	if c, err := estate.ParseConfig([]byte(text)); err == nil {
		for id, row := range c {
			facts, err := estate.ParseConfig([]byte(row))
			if err != nil {
				facts = estate.Config{}
			}
			name, host, _ := strings.Cut(id, "@")
			out[name] = firstOf(facts, "hostname", "host")
			if out[name] == "" {
				out[name] = host
			}
		}
		return out
	}
	for _, r := range rowsIn(text) {
		out[firstOf(r, "id", "name")] = firstOf(r, "hostname", "host")
	}
	return out
}

func (w *walk) replicationTo(o gate.Object, node string) {
	rows, ok := w.s.Replication()
	if !ok {
		w.unread(ClassHA, gate.WeightCaution, o, "which guests are replicated to "+node)
	}
	for _, r := range rows {
		if r["target"] == node && !r.On("disable") {
			w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: object(gate.ObjectReplication, r["id"]), Text: "guest " + r["guest"] + " is not replicated while " + node + " is off"})
		}
	}
}

// ownNode says whether castellan runs on a node itself.
func (w *walk) ownNode(o gate.Object, node string) {
	if slices.Contains(w.self.Nodes, node) {
		w.hit(gate.Hit{Class: ClassSelf, Weight: gate.WeightDanger, Object: o, Kinds: []gate.Kind{gate.KindGoverns}, Text: "castellan runs on " + node})
	}
}

// wakeNode is the start of a node that is off: which of its guests start with it stands in settings that only it tells.
func (w *walk) wakeNode(c change) {
	node := c.detail["node"]
	// Nothing runs there whose devices or memory could be taken.
	starts := []dim{{ClassStarts, gate.WeightCaution, nil}, w.unjudged("qemu"), w.unjudged("lxc"), {ClassLosesData, gate.WeightDanger, []gate.Kind{gate.KindOutage, gate.KindData}}}
	inv, ok := w.listing()
	if n, err := inv.Node(node); err == nil && n.Status == "online" {
		w.hit(gate.Hit{Class: ClassStarts, Weight: gate.WeightNote, Object: c.object, Text: node + " runs already"})
		return
	}
	w.hit(gate.Hit{Class: ClassStarts, Weight: gate.WeightNote, Object: c.object, Text: node + " is woken; guests that start with it come to run"})
	var who []string
	for _, g := range w.s.GuestsOn(node) {
		if !g.Template {
			who = append(who, g.ID)
		}
	}
	switch {
	case len(who) > 0:
		w.missing(c.object, "which of guests "+names(who)+" start with "+node+", and what waits for that,", starts...)
	case !ok:
		w.missing(c.object, "which guests start with "+node, starts...)
	}
	w.drawnBack(c.object, node)
}

// A service's effect when it stands still.
type service struct {
	class  string
	weight gate.Weight // when stopped; restarted weighs a caution at most, unless again says otherwise
	kinds  []gate.Kind
	again  bool // a restart is as grave as a stop
	text   string
}

func services() map[string]service {
	lockout, outage := []gate.Kind{gate.KindLockout}, []gate.Kind{gate.KindOutage}
	return map[string]service{
		"pveproxy":     {ClassLockout, gate.WeightDanger, lockout, false, "neither the API nor the web pages of this node are reached: castellan, approvers and operators do not get in by it"},
		"pvedaemon":    {ClassLockout, gate.WeightDanger, lockout, false, "no write and no sign-in works on this node"},
		"pve-cluster":  {ClassHA, gate.WeightDanger, outage, true, "the configuration of the cluster is not there on this node: nothing can be changed, and HA may restart the node"},
		"corosync":     {ClassHA, gate.WeightDanger, outage, true, "the node leaves the cluster: with HA guests it restarts itself after a minute"},
		"pve-ha-lrm":   {ClassHA, gate.WeightDanger, outage, false, "HA does not look after the guests of this node"},
		"pve-ha-crm":   {ClassHA, gate.WeightCaution, nil, false, "HA's manager does not run on this node"},
		"watchdog-mux": {ClassHA, gate.WeightDanger, outage, true, "the node's watchdog is not fed: the node restarts itself"},
		"sshd":         {ClassLockout, gate.WeightDanger, lockout, false, "nobody gets in by SSH; moves of guests between nodes need it too"},
		"ssh":          {ClassLockout, gate.WeightDanger, lockout, false, "nobody gets in by SSH; moves of guests between nodes need it too"},
		"pve-firewall": {ClassOpens, gate.WeightDanger, nil, false, "the firewall of this node and its guests is taken away"},
		"proxmox-firewall": {ClassOpens, gate.WeightDanger, nil, false,
			"the firewall of this node and its guests is not kept up"},
		"pvescheduler":      {ClassLosesBackup, gate.WeightCaution, nil, false, "no backup and no replication of this node runs by itself"},
		"pvestatd":          {ClassSetting, gate.WeightNote, nil, false, "states and figures of this node are not told any more"},
		"spiceproxy":        {ClassSetting, gate.WeightNote, nil, false, "SPICE consoles do not work"},
		"chrony":            {ClassTime, gate.WeightCaution, nil, false, "the clock is not set any more: the cluster and Ceph need equal clocks"},
		"systemd-timesyncd": {ClassTime, gate.WeightCaution, nil, false, "the clock is not set any more: the cluster and Ceph need equal clocks"},
		"postfix":           {ClassSetting, gate.WeightCaution, nil, false, "mails of this node, alerts among them, are not sent"},
		"cron":              {ClassSetting, gate.WeightCaution, nil, false, "timed work of this node does not run"},
		"syslog":            {ClassSetting, gate.WeightNote, nil, false, "logs are not written"},
		"systemd-journald":  {ClassSetting, gate.WeightNote, nil, false, "logs are not written"},
	}
}

func (w *walk) stopService(c change) {
	name, node := c.detail["service"], c.detail["node"]
	s, known := services()[name]
	if !known {
		s = service{ClassStops, gate.WeightCaution, nil, true, "what depends on " + name + " is not known"}
	}
	h := gate.Hit{Class: s.class, Weight: s.weight, Object: c.object, Unknown: !known, Kinds: s.kinds, Text: node + ", service " + name + ": " + s.text}
	if c.verb == restarts && !s.again {
		h.Kinds, h.Text = nil, h.Text+", for the moment of the restart"
		if h.Weight.Heavier(gate.WeightCaution) {
			h.Weight = gate.WeightCaution
		}
	}
	w.hit(h)
	if s.class == ClassLockout || s.class == ClassHA {
		if c.verb == stops {
			w.ownNode(c.object, node)
		}
	}
}

// wipeDisk walks what happens to a disk of a node whose content goes.
func (w *walk) wipeDisk(c change) {
	node, o := c.detail["node"], c.object
	devices := list(c.detail["disk"])
	rows, ok := w.s.Rows(estate.PartDisks, node, gate.Read{Operation: "GET /nodes/{node}/disks/list", Params: map[string]string{"node": node, "include-partitions": "1", "skipsmart": "1"}})
	if !ok {
		w.unread(ClassLosesData, gate.WeightDanger, o, "what the disk is used for", gate.KindOutage)
		w.unread(ClassHA, gate.WeightDanger, o, "what the disk is used for", gate.KindOutage)
		w.unread(ClassLosesDisk, gate.WeightDanger, o, "what the disk is used for", gate.KindOutage)
		w.unreadSelf(o, "what the disk is used for")
		return
	}
	for _, dev := range devices {
		found := false
		for _, r := range rows {
			if r["devpath"] != dev && r["by_id_link"] != dev && r["parent"] != dev {
				continue
			}
			found = true
			h := gate.Hit{Class: ClassLosesData, Weight: gate.WeightCaution, Object: o, Text: fmt.Sprintf("everything on %s goes (%s)", r["devpath"], orText(r["used"], "not in use"))}
			switch used := r["used"]; {
			case r["osdid"] != "" && r["osdid"] != "-1":
				w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightDanger, Object: object(gate.ObjectCeph, "osd."+r["osdid"]), Kinds: []gate.Kind{gate.KindOutage}, Text: r["devpath"] + " is the disk of Ceph's osd." + r["osdid"]})
				fallthrough
			case used == "ZFS" || used == "LVM" || used == "mounted" || used == "BIOS boot" || used == "EFI" || r.On("mounted"):
				h.Weight, h.Kinds = gate.WeightDanger, []gate.Kind{gate.KindOutage}
				w.storagesOfDisk(o, node, used, deviceIn(rows, r["devpath"]))
				w.ownNode(o, node)
			case used != "" && used != "partitions":
				h.Weight = gate.WeightDanger
			}
			w.hit(h)
		}
		if disk := deviceIn(rows, dev); len(disk) > 0 {
			w.deviceUsers(o, node, rows, disk)
		}
		if !found {
			w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: o, Unknown: true, Kinds: []gate.Kind{gate.KindOutage}, Text: dev + " is not among the disks that " + node + " shows"})
		}
	}
}

// storagesOfDisk names the storages on a disk of a node, with the guests there, and those that may lie on it.
func (w *walk) storagesOfDisk(o gate.Object, node, used string, disk []estate.Config) {
	var sure []string
	for _, l := range w.lyingOn(node, disk, w.disksOf(w.s, o, node, disk[0]["devpath"], losesDisk), func(what string) { w.missing(o, what, losesDisk) }) {
		if l.sure {
			name := l.def["storage"]
			sure = append(sure, name)
			w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightDanger, Object: object(gate.ObjectStorage, name), Kinds: []gate.Kind{gate.KindOutage}, Text: "storage " + name + " lies on it"})
			w.usersOfStorage(o, node, name)
		}
	}
	w.localStorages(o, node, used, sure)
}

func orText(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// localStorages names the storages that may lie on a node's own disks, but those that are named already.
func (w *walk) localStorages(o gate.Object, node, used string, but []string) {
	storages, ok := w.s.Storages()
	if !ok {
		w.unread(ClassLosesDisk, gate.WeightDanger, o, "which storages lie on the disks of "+node, gate.KindOutage)
	}
	kinds := map[string][]string{"ZFS": {"zfspool", "dir"}, "LVM": {"lvm", "lvmthin", "dir"}}[used]
	for _, s := range storages {
		if slices.Contains(but, s["storage"]) {
			continue
		}
		local := s["nodes"] == "" || slices.Contains(list(s["nodes"]), node)
		if local && (slices.Contains(kinds, s["type"]) || kinds == nil && slices.Contains([]string{"dir", "btrfs"}, s["type"])) && !s.On("shared") && !s.On("disable") {
			w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightDanger, Object: object(gate.ObjectStorage, s["storage"]), Unknown: true, Kinds: []gate.Kind{gate.KindOutage}, Text: "storage " + s["storage"] + " may lie on this disk of " + node})
		}
	}
}

// removeFromNode walks the removal of a node's volume group or pool, and of a node from the cluster.
func (w *walk) removeFromNode(c change) {
	node, o := c.detail["node"], c.object
	if c.detail["what"] == "member" {
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightDanger, Object: o, Kinds: []gate.Kind{gate.KindOutage}, Text: node + " leaves the cluster for good: it must not come back as it is, and its guests' configuration stays behind"})
		w.nodeGuests(o, node, false)
		w.quorum(o, node)
		w.cephOn(o, node)
		w.replicationTo(o, node)
		w.ownNode(o, node)
		return
	}
	storages, ok := w.s.Storages()
	if !ok {
		w.unread(ClassLosesDisk, gate.WeightDanger, o, "which storages lie on it", gate.KindOutage)
		w.unreadSelf(o, "which storages lie on it")
	}
	name := c.detail["name"]
	w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: o, Text: fmt.Sprintf("%s: all of %s goes", node, name)})
	for _, s := range storages {
		if s["vgname"] != name && s["thinpool"] != name && s["pool"] != name && !strings.HasPrefix(s["pool"], name+"/") && s["path"] != "/mnt/pve/"+name && !strings.HasPrefix(s["path"], "/"+name) {
			continue
		}
		if s["nodes"] != "" && !slices.Contains(list(s["nodes"]), node) {
			continue
		}
		w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightDanger, Object: object(gate.ObjectStorage, s["storage"]), Kinds: []gate.Kind{gate.KindOutage}, Text: "storage " + s["storage"] + " lies on it"})
		w.usersOfStorage(o, node, s["storage"])
	}
}

// usersOfStorage names the guests of a node with a disk on a storage.
func (w *walk) usersOfStorage(o gate.Object, node, storage string) {
	var guests []estate.Guest
	for _, g := range w.s.Inventory().Guests {
		if g.Node == node {
			guests = append(guests, g)
		}
	}
	if len(w.s.Gaps(estate.PartResources)) > 0 {
		w.unread(ClassLosesDisk, gate.WeightDanger, o, "which guests have disks on it", gate.KindOutage)
		w.unreadSelf(o, "which guests have disks on it")
	}
	known := w.s.Configs(guests)
	for _, g := range guests {
		conf, ok := known[g.ID]
		if !ok {
			w.unread(ClassLosesDisk, gate.WeightDanger, object(gate.ObjectGuest, g.ID), "the disks of "+g.Title(), gate.KindOutage)
			if w.ownGuest(g) != no {
				w.unreadSelf(object(gate.ObjectGuest, g.ID), "the disks of "+g.Title())
			}
			continue
		}
		for key, text := range conf {
			if !strings.HasPrefix(text, storage+":") {
				continue
			}
			w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightDanger, Object: object(gate.ObjectGuest, g.ID), Kinds: []gate.Kind{gate.KindOutage}, Text: g.Title() + " has a disk on storage " + storage + " (" + key + ")"})
			if own := w.ownGuest(g); own != no {
				w.hit(gate.Hit{Class: ClassSelf, Weight: gate.WeightDanger, Object: object(gate.ObjectGuest, g.ID), Unknown: own == perhaps, Kinds: []gate.Kind{gate.KindGoverns}, Text: g.Title() + ", which castellan depends on, has a disk on storage " + storage})
			}
			break
		}
	}
}

// trustNode walks certificates and package sources.
func (w *walk) trustNode(c change) {
	node := c.detail["node"]
	if c.detail["what"] == "packages" {
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightDanger, Object: c.object, Text: "what is installed on " + node + " at the next update comes from other sources"})
		return
	}
	w.hit(gate.Hit{Class: ClassLockout, Weight: gate.WeightDanger, Object: c.object, Unknown: true, Kinds: []gate.Kind{gate.KindLockout},
		Text: node + " shows another certificate: where castellan has pinned the present one it does not get in any more, and browsers may refuse it"})
	if c.detail["method"] == "DELETE" {
		w.hit(gate.Hit{Class: ClassSecret, Weight: gate.WeightCaution, Object: c.object, Text: "the certificate's private key on " + node + " goes"})
	}
}

// nodeConfig walks a node's own settings.
func (w *walk) nodeConfig(c change) {
	for k := range c.keys {
		switch {
		case k == "wakeonlan":
			w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: c.object, Text: "how " + c.detail["node"] + " is woken changes"})
		case k == "acme" || strings.HasPrefix(k, "acmedomain"):
			w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: c.object, Text: "the certificate that " + c.detail["node"] + " asks for next changes"})
		case k == "startall-onboot-delay":
			w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: c.object, Text: "guests start later or sooner after " + c.detail["node"] + " has started"})
		}
	}
}
