package reach

import (
	"fmt"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// What is done at a Mail Gateway: which rules, domains, mails and users it hits. Its rules name groups of objects by number.

func readMail(_ *walk, r gate.Request) ([]change, bool) {
	method, path, _ := strings.Cut(r.Operation, " ")
	if r.Product != "pmg" {
		return nil, false
	}
	own := func(f func(w *walk, r gate.Request)) ([]change, bool) { return []change{{verb: direct, own: f}}, true }
	switch rest, ruled := strings.CutPrefix(path, "/config/ruledb"); {
	case ruled && rest == "":
		return own((*walk).rulesReset)
	case ruled && strings.HasPrefix(rest, "/rules"):
		return own((*walk).ruleChanged)
	case ruled && method == "POST" && (strings.HasPrefix(rest, "/action/") || strings.Count(rest, "/") == 1):
		return own(quiet) // a group that no rule uses yet
	case ruled:
		return own((*walk).groupChanged)
	}
	switch {
	case among(path, "/config/domains", "/config/transport", "/config/mynetworks"):
		return own((*walk).mailRoute)
	case path == "/quarantine/content":
		return own((*walk).quarantined)
	case path == "/config/spamquar" || path == "/config/virusquar":
		return own((*walk).quarantineKept)
	case path == "/config/cluster/join":
		return own((*walk).mailReplaced)
	case path == "/config/cluster/nodes":
		return own((*walk).mailNode)
	case among(path, "/access/users", "/access/auth-realm"):
		return own((*walk).mailUsers)
	case path == "/nodes/{node}/backup" || strings.HasPrefix(path, "/nodes/{node}/pbs/{remote}/snapshot") && !strings.Contains(path, "{backup-time}"):
		return own(quiet) // a backup is made
	case strings.HasPrefix(path, "/nodes/{node}/backup/") || strings.HasSuffix(path, "/snapshot/{backup-id}/{backup-time}"):
		if method == "DELETE" {
			return own((*walk).mailBackupGone)
		}
		return own((*walk).mailReplaced)
	case method == "DELETE" && strings.HasPrefix(path, "/nodes/{node}/postfix/queue"), path == "/nodes/{node}/postfix/queue/{queue}":
		return own((*walk).queueDeleted)
	}
	return nil, false
}

// among says whether a path is one of a list or of what is in it.
func among(path string, lists ...string) bool {
	return slices.ContainsFunc(lists, func(l string) bool { return path == l || strings.HasPrefix(path, l+"/{") })
}

func mailObject(id string) gate.Object { return object(gate.ObjectMail, id) }

// mailRules lists the rules, with the groups that they use.
func (w *walk) mailRules(dims ...dim) (rules []estate.Config, ok bool) {
	rules, ok = w.vaultRows("GET /config/ruledb/rules", nil)
	if !ok {
		w.missing(mailObject("rules"), "the rules of the mail filter", dims...)
	}
	return rules, ok
}

var (
	filtersMail = dim{ClassSetting, gate.WeightCaution, []gate.Kind{gate.KindGuard}}
	losesAll    = dim{ClassLosesData, gate.WeightDanger, nil}
)

// ruleTitle names a rule for people.
func ruleTitle(r estate.Config) string {
	state := "not active"
	if r.On("active") {
		state = "active"
	}
	way := map[string]string{"0": "for mail from outside", "1": "for mail from inside", "2": "for all mail"}[r["direction"]]
	return strings.Join(strings.Fields(fmt.Sprintf("rule %s %q (%s %s)", clean(r["id"]), clean(r["name"]), state, way)), " ")
}

// usedGroups names the groups of a rule in some of its places.
func usedGroups(r estate.Config, places ...string) (out []string) {
	for _, p := range places {
		for _, g := range rowsIn(r[p]) {
			out = append(out, clean(orText(g["name"], g["id"])))
		}
	}
	return out
}

func (w *walk) rulesReset(gate.Request) {
	rules, ok := w.mailRules(losesAll)
	text := "all rules of the mail filter, with their groups of senders, contents, times and actions, are replaced by those of a new installation"
	if ok {
		var titles []string
		for _, r := range rules {
			titles = append(titles, clean(r["name"]))
		}
		text += fmt.Sprintf(": %s go (%s)", plural(len(rules), "rule", "rules"), names(titles))
	}
	w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: mailObject("rules"), Kinds: []gate.Kind{gate.KindGuard}, Text: text})
}

// ruleChanged: one that is active acts on mail at once.
func (w *walk) ruleChanged(r gate.Request) {
	method, path, _ := strings.Cut(r.Operation, " ")
	if path == "/config/ruledb/rules" {
		if on(r, "active") {
			w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: mailObject("rules"), Text: fmt.Sprintf("rule %q is active as soon as it is made, with no group and no action yet", clean(r.Text("name")))})
		}
		return
	}
	id := r.Text("id")
	rules, ok := w.mailRules(filtersMail)
	i := slices.IndexFunc(rules, func(x estate.Config) bool { return x["id"] == id })
	switch {
	case ok && i < 0:
		w.missing(mailObject("rule/"+id), "rule "+clean(id)+", which is not among those that are listed,", filtersMail)
		return
	case i < 0 || len(settingNames(r, "id", "name")) == 0 && method == "PUT": // its name alone
		return
	}
	rule := rules[i]
	h := gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: mailObject("rule/" + id)}
	if active := rule.On("active"); active || on(r, "active") {
		h.Weight, h.Kinds = gate.WeightCaution, []gate.Kind{gate.KindGuard}
	}
	does := ""
	if actions := usedGroups(rule, "action"); len(actions) > 0 {
		does = ", which does " + names(actions)
	}
	switch place, _, _ := strings.Cut(strings.TrimPrefix(path, "/config/ruledb/rules/{id}"), "/{ogroup}"); {
	case method == "DELETE" && place == "":
		h.Text = ruleTitle(rule) + does + " goes: mail that it held, changed or let through is filtered by the other rules alone"
	case place == "/config":
		h.Text = ruleTitle(rule) + does + " changes: " + strings.Join(settingNames(r, "id"), ", ")
	default:
		what := strings.TrimPrefix(place, "/")
		h.Text = fmt.Sprintf("%s%s: group %s is added to %s", ruleTitle(rule), does, clean(r.Text("ogroup")), what)
		if method == "DELETE" {
			name := r.Text("ogroup")
			for _, g := range rowsIn(rule[what]) {
				if g["id"] == name {
					name = orText(g["name"], name)
				}
			}
			h.Text = fmt.Sprintf("%s%s: group %s is taken out of %s, so that it applies to other mail, or does less", ruleTitle(rule), does, clean(name), what)
		}
	}
	w.hit(h)
}

// settingNames are the parameters of a request but those that choose its object.
func settingNames(r gate.Request, but ...string) (out []string) {
	for _, p := range r.Params {
		if !slices.Contains(but, p.Name) {
			out = append(out, clean(p.Name+" "+strings.Join(values(r, p.Name), ",")))
		}
	}
	slices.Sort(out)
	return out
}

// groupChanged: a change of a group of senders, contents, times or of an action changes all rules that use it.
func (w *walk) groupChanged(r gate.Request) {
	method, path, _ := strings.Cut(r.Operation, " ")
	kind, rest, _ := strings.Cut(strings.TrimPrefix(path, "/config/ruledb/"), "/")
	places := map[string][]string{"who": {"from", "to"}, "what": {"what"}, "when": {"when"}, "action": {"action"}}[kind]
	group := r.Text("ogroup")
	if kind == "action" {
		group, _, _ = strings.Cut(r.Text("id"), "_")
	}
	if strings.HasSuffix(rest, "/config") && len(r.Get("invert"))+len(r.Get("and"))+len(r.Get("delete")) == 0 {
		return // its name, or what is said of it
	}
	rules, ok := w.mailRules(filtersMail)
	used := 0
	for _, rule := range rules {
		for _, p := range places {
			i := slices.IndexFunc(rowsIn(rule[p]), func(g estate.Config) bool { return g["id"] == group })
			if i < 0 {
				continue
			}
			used++
			h := gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: mailObject("rule/" + rule["id"])}
			if rule.On("active") {
				h.Weight, h.Kinds = gate.WeightCaution, []gate.Kind{gate.KindGuard}
			}
			name := clean(orText(rowsIn(rule[p])[i]["name"], group))
			h.Text = fmt.Sprintf("%s uses %s in its %s, and applies to other mail from now on", ruleTitle(rule), name, p)
			switch {
			case kind == "action":
				h.Text = fmt.Sprintf("%s does %s, and does otherwise from now on", ruleTitle(rule), name)
				if method == "DELETE" {
					h.Text = fmt.Sprintf("%s does %s, which goes: Proxmox refuses that, or the rule does less", ruleTitle(rule), name)
				}
			case method == "DELETE" && rest == "{ogroup}":
				h.Text = fmt.Sprintf("%s uses %s in its %s, which goes: Proxmox refuses that, or the rule applies to other mail", ruleTitle(rule), name, p)
			}
			w.hit(h)
		}
	}
	if ok && used == 0 {
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: mailObject("group/" + group), Text: "no rule uses group " + clean(group)})
	}
}

// mailRoute: for whom mail is taken, to where it goes on, and who may send.
func (w *walk) mailRoute(r gate.Request) {
	method, path, _ := strings.Cut(r.Operation, " ")
	list := strings.Split(path, "/")[2]
	name := orText(r.Text("domain"), r.Text("cidr"))
	o := mailObject(strings.TrimSuffix(list, "s") + "/" + name)
	h := gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: o}
	switch list {
	case "domains":
		switch method {
		case "POST":
			h.Class, h.Text = ClassOpens, "mail for "+clean(name)+" is taken and passed on"
		case "DELETE":
			h.Class, h.Text = ClassStops, "mail from outside for "+clean(name)+" is refused from now on"
			routes, ok := w.vaultRows("GET /config/transport", nil)
			if !ok {
				w.unread(ClassReferences, gate.WeightNote, o, "whether a transport names the domain")
			}
			for _, t := range routes {
				if t["domain"] == name {
					w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: o, Text: fmt.Sprintf("its transport to %s stays", clean(t["host"]))})
				}
			}
		default:
			return // a comment
		}
	case "transport":
		if method == "PUT" && len(settingNames(r, "domain", "comment")) == 0 {
			return
		}
		h.Text = fmt.Sprintf("mail for %s goes to %s", clean(name), clean(orText(r.Text("host"), "the host of before, by other settings")))
		if method == "DELETE" {
			h.Text = "mail for " + clean(name) + " goes to the default relay, or where DNS says"
		}
		routes, ok := w.vaultRows("GET /config/transport", nil)
		for _, t := range routes {
			if t["domain"] == name {
				h.Text += fmt.Sprintf(", and no longer to %s", clean(strings.Trim(t["host"]+":"+t["port"], ":")))
			}
		}
		if !ok {
			h.Text += "; where it goes now could not be read"
		}
	default:
		switch method {
		case "POST":
			h.Class, h.Text = ClassOpens, "hosts of "+clean(name)+" may send mail to anywhere through the gateway"
		case "DELETE":
			h.Class, h.Text = ClassLosesAccess, "hosts of "+clean(name)+" may no longer send mail through the gateway"
		default:
			return
		}
	}
	w.hit(h)
}

// quarantined: the request names each mail; whose they are is private, and said nowhere.
func (w *walk) quarantined(r gate.Request) {
	mails := plural(len(strings.Split(r.Text("id"), ";")), "mail", "mails")
	o := mailObject("quarantine")
	switch does := r.Text("action"); does {
	case "delete":
		w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: o, Text: "deleted from quarantine for good: " + mails})
	case "deliver":
		w.hit(gate.Hit{Class: ClassOpens, Weight: gate.WeightCaution, Object: o, Text: "the filter held back, and is overruled: " + mails + " delivered to the receivers"})
	case "mark-seen", "mark-unseen":
	default:
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: o, Text: "the senders of " + mails + " are put on the " + clean(does) + " of their receivers"})
	}
}

// quarantineKept: with a shorter time older mails go with the next run of the day.
func (w *walk) quarantineKept(r gate.Request) {
	_, path, _ := strings.Cut(r.Operation, " ")
	drops := slices.Contains(listOf(r, "delete"), "lifetime")
	if r.Get("lifetime") == nil && !drops {
		return
	}
	o := mailObject("quarantine")
	const standard = 7
	to := number(r.Text("lifetime"))
	if drops {
		to = standard
	}
	now, ok := w.vaultRows("GET "+path, nil)
	if !ok || len(now) == 0 {
		w.missing(o, "how long mails stay in quarantine now", losesAll)
		return
	}
	was := int64(standard)
	if now[0]["lifetime"] != "" {
		was = number(now[0]["lifetime"])
	}
	if to >= was {
		return
	}
	text := fmt.Sprintf("mails in quarantine are deleted after %d days, no longer after %d: those in between go with the next run", to, was)
	status := map[string]string{"/config/spamquar": "GET /quarantine/spamstatus", "/config/virusquar": "GET /quarantine/virusstatus"}[path]
	if rows, ok := w.vaultRows(status, nil); ok && len(rows) > 0 {
		text += fmt.Sprintf("; %s lie in it", plural(int(number(rows[0]["count"])), "mail", "mails"))
	}
	w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: o, Text: text})
}

// mailReplaced: a restore, or becoming a node of another cluster, replaces what is there.
func (w *walk) mailReplaced(r gate.Request) {
	o := mailObject("configuration")
	joins := strings.HasSuffix(r.Operation, "/config/cluster/join")
	if joins || r.Get("database") == nil || on(r, "database") {
		text := "the rule database is replaced by that of the backup"
		if joins {
			text = "the rule database and all mails in quarantine are replaced by those of the cluster's master"
		}
		if rules, ok := w.mailRules(losesAll); ok {
			text += fmt.Sprintf(": what differs of the %s that are here now is lost", plural(len(rules), "rule", "rules"))
		}
		w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: mailObject("rules"), Kinds: []gate.Kind{gate.KindGuard}, Text: text})
	}
	if joins || on(r, "config") {
		w.hit(gate.Hit{Class: ClassLockout, Weight: gate.WeightDanger, Object: o, Unknown: true, Kinds: []gate.Kind{gate.KindLockout},
			Text: "all configuration is replaced: network, domains, transports, certificates and users, castellan's own among them, are then those that the other side has"})
		for _, list := range []struct{ word, read, key string }{{"relay domains", "GET /config/domains", "domain"}, {"users", "GET /access/users", "userid"}} {
			rows, ok := w.vaultRows(list.read, nil)
			if !ok {
				continue // that all of them go is said
			}
			var all []string
			for _, x := range rows {
				all = append(all, clean(x[list.key]))
			}
			w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: o, Text: fmt.Sprintf("%s that are replaced: %s", list.word, names(all))})
		}
	}
	if on(r, "statistic") {
		w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightCaution, Object: mailObject("statistics"), Text: "statistics of mail since the backup are lost"})
	}
}

func (w *walk) mailNode(r gate.Request) {
	w.hit(gate.Hit{Class: ClassGains, Weight: gate.WeightDanger, Object: mailObject("cluster"), Kinds: []gate.Kind{gate.KindTrust},
		Text: fmt.Sprintf("%s at %s becomes a node of the cluster: it gets all configuration and mails in quarantine, and root of each node signs in at the others", clean(r.Text("name")), clean(r.Text("ip")))})
}

// mailUsers names who can sign in no longer. castellan's own user governs, which the gate itself sees.
func (w *walk) mailUsers(r gate.Request) {
	method, path, _ := strings.Cut(r.Operation, " ")
	realm, id := r.Text("realm"), r.Text("userid")
	of := path == "/access/auth-realm/{realm}"
	gone := method == "DELETE" || off(r, "enable") || r.Get("expire") != nil && number(r.Text("expire")) > 0
	if method == "POST" || !gone && r.Get("role") == nil && r.Get("password") == nil && r.Get("crypt_pass") == nil || of && !gone {
		return
	}
	loses := dim{ClassLosesAccess, gate.WeightCaution, nil}
	users, ok := w.vaultRows("GET /access/users", nil)
	if !ok {
		w.missing(object(gate.ObjectUser, orText(id, "@"+realm)), "the users", loses, dim{ClassGains, gate.WeightCaution, nil})
		return
	}
	for _, u := range users {
		if of && !strings.HasSuffix(u["userid"], "@"+realm) || !of && u["userid"] != id {
			continue
		}
		who := object(gate.ObjectUser, u["userid"])
		title := fmt.Sprintf("%s (%s)", clean(u["userid"]), clean(orText(u["role"], "no role")))
		switch {
		case gone:
			w.hit(gate.Hit{Class: ClassLosesAccess, Weight: gate.WeightCaution, Object: who, Text: title + " can no longer sign in"})
		case r.Get("role") != nil && r.Text("role") != u["role"]:
			w.hit(gate.Hit{Class: ClassLosesAccess, Weight: gate.WeightCaution, Object: who, Text: title + " loses what this role may"})
			w.hit(gate.Hit{Class: ClassGains, Weight: gate.WeightCaution, Object: who, Text: title + " becomes " + clean(r.Text("role"))})
		case r.Get("role") == nil:
			w.hit(gate.Hit{Class: ClassLosesAccess, Weight: gate.WeightCaution, Object: who, Text: title + " gets another password"})
		}
	}
}

// mailBackupGone: those on a Backup Server cannot be listed without a call to it.
func (w *walk) mailBackupGone(r gate.Request) {
	if strings.Contains(r.Operation, "/pbs/") {
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightDanger, Object: object(gate.ObjectArchive, r.Text("remote")+":"+r.Text("backup-id")+"/"+r.Text("backup-time")), Unknown: true,
			Text: "a backup of the gateway is deleted from remote " + clean(r.Text("remote")) + "; whether another is there was not looked at"})
		return
	}
	o := object(gate.ObjectArchive, r.Text("filename"))
	rows, ok := w.vaultRows("GET /nodes/{node}/backup", map[string]string{"node": r.Text("node")})
	if !ok {
		w.missing(o, "which backups node "+clean(r.Text("node"))+" has", losesArchive)
		return
	}
	left, newer := 0, 0
	var when int64
	for _, b := range rows {
		if b["filename"] == r.Text("filename") {
			when = number(b["timestamp"])
		}
	}
	for _, b := range rows {
		if b["filename"] != r.Text("filename") {
			if left++; number(b["timestamp"]) > when {
				newer++
			}
		}
	}
	h := gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: o, Text: fmt.Sprintf("a backup of the gateway's configuration is deleted; %d stay on the node, %d of them newer", left, newer)}
	if left == 0 {
		h.Weight, h.Text = gate.WeightDanger, "the only backup of the gateway's configuration on the node is deleted; whether a Backup Server has one was not looked at"
	}
	w.hit(h)
}

// queueDeleted: mail that waits was taken over from its sender, and nobody else has it.
func (w *walk) queueDeleted(r gate.Request) {
	o := mailObject("queue")
	if r.Get("action") != nil && r.Text("action") != "delete" {
		return
	}
	text := "mails that wait to be delivered are deleted: their senders take them for accepted, and are told nothing"
	switch {
	case r.Text("queue_id") != "":
		text = "a mail that waits to be delivered is deleted: its sender takes it for accepted, and is told nothing"
	case r.Get("ids") != nil:
		text = fmt.Sprintf("%s (named by id): ", plural(len(listOf(r, "ids")), "mail", "mails")) + text
	default:
		queue := orText(r.Text("queue"), "deferred")
		rows, ok := w.vaultRows("GET /nodes/{node}/postfix/qshape", map[string]string{"node": r.Text("node"), "queue": queue})
		i := slices.IndexFunc(rows, func(x estate.Config) bool { return strings.EqualFold(x["domain"], "total") })
		if ok && i >= 0 {
			what := "queue " + clean(queue)
			if r.Text("queue") == "" {
				what = "all queues, of which deferred"
			}
			text = fmt.Sprintf("%s has %s: ", what, plural(int(number(rows[i]["total"])), "mail", "mails")) + text
		}
	}
	w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: o, Text: text})
}
