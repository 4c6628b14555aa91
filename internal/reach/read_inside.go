package reach

import (
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// readInside reads requests that run or change something inside a guest or on a node: what that comes to is decided by
// programs there, so that nothing beyond the place itself can be told.
func readInside(w *walk, r gate.Request) ([]change, bool) {
	method, _, rest, inGuest := guestPath(r)
	if inGuest {
		return w.insideGuest(r, method+" "+rest)
	}
	method, path, _ := strings.Cut(strings.Replace(r.Operation, "/nodes/{node}/", "", 1), " ")
	node := r.Text("node")
	o := object(gate.ObjectNode, node)
	known := []change{{verb: nothing, object: o}}
	switch {
	case r.Product != "pve":
		return nil, false
	case method == "POST" && (path == "termproxy" || path == "vncshell" || path == "spiceshell"):
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: o, Text: "who signs in at the console of node " + node + " may change there what that account may"})
		return known, true
	case method != "RUN":
		return nil, false
	case path == "maintenance":
		w.maintenance(o, node, r.Text("mode") == "enable")
		return known, true
	case path == "updates":
		return known, true
	case path == "upgrade":
		w.upgradeNode(o, node)
		return known, true
	case path == "dead-man":
		if r.Text("action") == "arm" {
			what := "its " + r.Text("what") + " settings"
			if guest := r.Text("guest"); guest != "" {
				what = "the " + r.Text("what") + " of guest " + guest
			}
			w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: o, Text: "node " + node + " puts " + what + " back by itself, whoever changed them meanwhile, unless that is confirmed in time"})
		}
		return known, true
	case on(r, "root"):
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightDanger, Object: o, Text: "what is run as root on node " + node + " may change anything there: every guest, storage and network of the node, and the cluster's settings"})
		return known, true
	case path == "command" || path == "script":
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: o, Text: "what is run on node " + node + " may change whatever its account there may"})
		return known, true
	}
	return nil, false
}

// insideGuest reads what goes into a guest, by castellan's own ways and by those of the API.
func (w *walk) insideGuest(r gate.Request, what string) ([]change, bool) {
	id := r.Text("vmid")
	o := object(gate.ObjectGuest, id)
	known := []change{{verb: nothing, object: o}}
	note := func(text string) ([]change, bool) {
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: o, Text: text})
		return known, true
	}
	command := strings.TrimPrefix(what, "POST /agent/")
	if what == "POST /agent" {
		command = r.Text("command")
	}
	switch {
	case what == "RUN /command", what == "RUN /script", what == "POST /agent/exec":
		return note("what is run in guest " + id + " may change anything inside it, and whatever it reaches over the network; beyond that it reaches nothing by itself")
	case what == "RUN /write-file", what == "POST /agent/file-write":
		return note("the file of guest " + id + " is replaced; programs in it may act on that")
	case what == "RUN /read-file", what == "RUN /enrol", what == "RUN /unenrol": // an account and a helper inside, nothing beyond
		return known, true
	case what == "POST /agent/set-user-password":
		return note("an account inside guest " + id + " gets another password; who used the old one does not get in any more")
	case what == "POST /monitor":
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightDanger, Object: o, Text: "a command of QEMU's monitor may stop guest " + id + ", change its devices and read files of the node"})
		return known, true
	case what == "PUT /sendkey":
		return note("keys typed at guest " + id + " do what its screen makes of them: a restart among others")
	case command == "fsfreeze-freeze":
		w.hit(gate.Hit{Class: ClassStops, Weight: gate.WeightCaution, Object: o, Text: "programs in guest " + id + " that write stand still until its file systems are thawed"})
		return known, true
	case command == "fsfreeze-thaw", command == "fsfreeze-status", command == "fstrim", command == "ping", strings.HasPrefix(command, "get-"), command == "info", command == "network-get-interfaces":
		return known, strings.HasPrefix(what, "POST /agent")
	}
	return nil, false
}

// upgradeNode says what an upgrade of a node's own packages touches: its daemons restart, its guests go on.
func (w *walk) upgradeNode(o gate.Object, node string) {
	w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: o, Text: "daemons of node " + node + " restart while its packages are upgraded; its guests go on"})
	w.quorum(o, node)
	w.cephOn(o, node)
	w.ownNode(o, node)
	if len(w.s.Gaps(estate.PartResources)) > 0 {
		w.unreadSelf(o, "which guests run on "+node)
	}
	for _, g := range w.s.Inventory().Guests {
		if own := no; g.Node == node && g.Status != "stopped" {
			if own = w.ownGuest(g); own != no {
				w.hit(gate.Hit{Class: ClassSelf, Weight: gate.WeightDanger, Object: object(gate.ObjectGuest, g.ID), Unknown: own == perhaps, Kinds: []gate.Kind{gate.KindGoverns}, Text: g.Title() + ", which castellan depends on, runs on " + node})
			}
		}
	}
}

// maintenance names the guests that HA moves away from a node, or back.
func (w *walk) maintenance(o gate.Object, node string, enable bool) {
	resources, ok := w.s.HAResources()
	if !ok || len(w.s.Inventory().Guests) == 0 {
		w.unread(ClassMoves, gate.WeightCaution, o, "which guests HA looks after")
		w.missing(o, "which guests HA looks after", append(w.startDims("lxc"), dim{ClassStops, gate.WeightCaution, nil})...)
	}
	if !enable {
		w.hit(gate.Hit{Class: ClassMoves, Weight: gate.WeightNote, Object: o, Text: "HA moves guests back to node " + node + " that it had moved away, where its rules say so"})
		w.movedBack(o, node)
		w.drawnBack(o, node)
		return
	}
	managed := map[string]bool{}
	for _, r := range resources {
		managed[haGuest(r["sid"])] = r["state"] != "ignored"
	}
	for _, g := range w.s.Inventory().Guests {
		if g.Node != node || !managed[g.ID] {
			continue
		}
		w.hit(gate.Hit{Class: ClassMoves, Weight: gate.WeightCaution, Object: object(gate.ObjectGuest, g.ID), Text: title(g) + " is moved to another node by HA"})
		w.movedByHA(haID(g), true)
	}
	w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: o, Text: "HA starts nothing on node " + node + " while it is in maintenance"})
}
