package reach

import (
	"path"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

func clusterRules() []rule {
	return []rule{{alters, gate.ObjectSite, (*walk).alterSite}, {removes, gate.ObjectSite, (*walk).alterSite}, {creates, gate.ObjectSite, (*walk).alterSite}, {trusts, gate.ObjectSite, (*walk).joinCluster}}
}

// joinCluster: hosts come to trust each other.
func (w *walk) joinCluster(c change) {
	text := "another host becomes a member: it reads and changes everything here"
	switch c.detail["what"] {
	case "config/join":
		text = "this host's own configuration, users and rights are replaced by those of the cluster that it joins; it must have no guests"
		w.hit(gate.Hit{Class: ClassLockout, Weight: gate.WeightDanger, Object: c.object, Kinds: []gate.Kind{gate.KindLockout, gate.KindGoverns}, Text: "castellan's own user, token and rights on this host are replaced by those of the cluster"})
		if g := w.s.Inventory().Guests; len(g) > 0 {
			w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightCaution, Object: c.object, Text: "the host has guests: it cannot join without force", Blocks: c.keys["force"] != "1"})
		} else if len(w.s.Gaps(estate.PartResources)) > 0 {
			w.unread(ClassBlocked, gate.WeightCaution, c.object, "whether the host has guests")
		}
	case "config":
		text = "the host becomes the first member of a new cluster"
	}
	w.hit(gate.Hit{Class: ClassGains, Weight: gate.WeightDanger, Object: c.object, Kinds: []gate.Kind{gate.KindTrust}, Text: text})
}

// alterSite walks settings of the whole site.
func (w *walk) alterSite(c change) {
	switch what := c.detail["what"]; {
	case what == "options":
		w.options(c)
	case what == "notifications":
		text := "who is told of failed backups, replication, fencing and updates changes"
		if c.detail["method"] == "DELETE" || c.keys["disable"] == "1" {
			text = "alerts by " + c.detail["name"] + " stop: nobody is told by it of failed backups, replication, fencing and updates"
		}
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: c.object, Text: text})
	case slices.Contains([]string{"pci", "usb", "dir"}, what):
		w.mapping(c)
	case strings.HasPrefix(what, "metrics"):
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: c.object, Text: "figures are sent elsewhere, or not any more: alarms that rest on them fall silent"})
	case strings.HasPrefix(what, "acme"):
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: c.object, Text: "certificates that nodes renew by it may run out"})
	case strings.HasPrefix(what, "qemu"):
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: c.object, Text: "VMs with this kind of processor get another one, or do not start, at their next start"})
	}
}

// options walks the datacenter's options.
func (w *walk) options(c change) {
	say := func(class string, weight gate.Weight, text string, kinds ...gate.Kind) {
		w.hit(gate.Hit{Class: class, Weight: weight, Object: c.object, Kinds: kinds, Text: text})
	}
	for _, k := range slices.Sorted(keysOf(c.keys)) {
		switch k {
		case "migration", "migration_unsecure":
			say(ClassMoves, gate.WeightCaution, "moves of guests go over another network, or unencrypted")
		case "replication":
			say(ClassHA, gate.WeightCaution, "replication goes over another network, or unencrypted")
		case "ha":
			say(ClassHA, gate.WeightCaution, "what HA does with guests when a node is shut down changes")
		case "fencing":
			say(ClassHA, gate.WeightDanger, "how a failed node is cut off changes: before it is, HA starts nothing anew", gate.KindOutage)
		case "crs":
			say(ClassMoves, gate.WeightCaution, "HA may place guests otherwise")
			if auto := property(c.keys[k], "ha-auto-rebalance"); auto != "" && auto != "0" {
				w.rebalanced(c)
			}
		case "registered-tags", "user-tag-access":
			say(ClassGains, gate.WeightDanger, "who may set which tags changes: scope that rests on a tag rests on it", gate.KindIdent)
		case "webauthn", "u2f":
			say(ClassLosesAccess, gate.WeightDanger, "second factors that users have enrolled may not be accepted any more")
		case "http_proxy":
			say(ClassNetwork, gate.WeightCaution, "nodes fetch updates and images by another proxy")
		case "mac_prefix":
			say(ClassSetting, gate.WeightNote, "new network cards get addresses of another range")
		case "bwlimit", "max_workers":
			say(ClassTime, gate.WeightNote, "moves, restores and clones take another time")
		case "notify", "email_from":
			say(ClassSetting, gate.WeightCaution, "who is told of failures changes")
		case "next-id":
			say(ClassSetting, gate.WeightNote, "new guests get ids of another range")
		default:
			say(ClassSetting, gate.WeightNote, k+" changes")
		}
	}
}

// rebalanced names the guests that HA moves by itself from now on, whoever they belong to.
func (w *walk) rebalanced(c change) {
	rows, ok := w.s.HAResources()
	if !ok {
		w.unread(ClassMoves, gate.WeightCaution, c.object, "which guests HA looks after")
	}
	for _, r := range rows {
		if r["state"] == "ignored" {
			continue
		}
		id := haGuest(r["sid"])
		w.hit(gate.Hit{Class: ClassMoves, Weight: gate.WeightCaution, Object: object(gate.ObjectGuest, id), Text: "HA moves guest " + id + " by itself from now on, whenever nodes are loaded unevenly"})
	}
}

// hostFolders are those by which whoever writes there has the host.
var hostFolders = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin", "/sys", "/usr", "/var"}

// mapped says what of the host a mapping gives to guests.
func (w *walk) mapped(c change) {
	for part := range strings.FieldsFuncSeq(c.keys["map"], func(r rune) bool { return r == ',' || r == ';' }) {
		folder, ok := strings.CutPrefix(strings.TrimSpace(part), "path=")
		if !ok || c.detail["what"] != "dir" {
			continue
		}
		folder = path.Clean("/" + folder)
		h := gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: c.object, Text: "a guest with share " + clean(c.detail["name"]) + " reads and writes folder " + clean(folder) + " of its node"}
		if folder == "/" || slices.ContainsFunc(hostFolders, func(f string) bool { return folder == f || within(folder, f) }) {
			h.Weight, h.Kinds = gate.WeightDanger, []gate.Kind{gate.KindHost}
			h.Text += ", by which it has the node"
		}
		w.hit(h)
	}
}

// mapping names the guests that use a host's device or folder by a mapping that comes, changes or goes: what it stands for
// comes into them at their next start as if it were set there.
func (w *walk) mapping(c change) {
	brings := c.verb == creates || c.verb == alters && c.keys["map"] != ""
	w.mapped(c)
	unread := func(what string) {
		w.unread(ClassReferences, gate.WeightCaution, c.object, what)
		if brings {
			w.unread(ClassSetting, gate.WeightDanger, c.object, what, gate.KindHost)
		}
	}
	inv := w.s.Inventory()
	if len(w.s.Gaps(estate.PartResources)) > 0 {
		unread("which guests use the mapping")
	}
	known := w.s.Configs(inv.Guests)
	var gap []string
	for _, g := range inv.Guests {
		conf, ok := known[g.ID]
		if !ok {
			gap = append(gap, g.ID)
			continue
		}
		for key, text := range conf {
			m, _ := gate.PropertyValue(text, "mapping")
			dir, _ := gate.PropertyValue(text, "dirid")
			first, _ := gate.PropertyValue(text, "-")
			if m == c.detail["name"] || strings.HasPrefix(key, "virtiofs") && (dir == c.detail["name"] || first == c.detail["name"]) {
				w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightCaution, Object: object(gate.ObjectGuest, g.ID), Text: g.Title() + " uses it as " + key + ": it gets another device, or does not start, the next time"})
				if brings {
					w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightDanger, Object: object(gate.ObjectGuest, g.ID), Kinds: []gate.Kind{gate.KindHost}, Text: g.Title() + " names it as " + key + ": what it is made to stand for comes into the guest at its next start"})
				}
			}
		}
	}
	if len(gap) > 0 {
		unread("the settings of guests " + names(gap))
	}
}
