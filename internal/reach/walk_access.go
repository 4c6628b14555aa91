package reach

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

func accessRules() []rule {
	return []rule{
		{grants, gate.ObjectACL, (*walk).access}, {revokes, gate.ObjectACL, (*walk).access},
		{grants, gate.ObjectUser, (*walk).access}, {revokes, gate.ObjectUser, (*walk).access}, {alters, gate.ObjectUser, (*walk).sync},
		{grants, gate.ObjectPool, (*walk).access}, {revokes, gate.ObjectPool, (*walk).access},
	}
}

// strong are privileges with which one can get others, or take the host.
var strong = []string{"Permissions.Modify", "Realm.Allocate", "Realm.AllocateUser", "User.Modify", "Group.Allocate", "Sys.Modify", "Sys.Console", "Sys.PowerMgmt", "Sys.Incoming", "Datastore.Allocate", "SDN.Allocate", "Mapping.Modify", "VM.Allocate"}

// readRights reads the access control of the site. ok is false when a part of it is missing.
func (w *walk) readRights() (r *rights, ok bool) {
	r = newRights()
	users, ok1 := w.s.Users()
	for _, row := range users {
		r.takeUser(row, w.s.Now())
	}
	roles, ok2 := w.s.Roles()
	for _, row := range roles {
		r.roles[row["roleid"]] = map[string]bool{}
		for _, p := range list(row["privs"]) {
			r.roles[row["roleid"]][p] = true
		}
	}
	entries, ok3 := w.s.ACL()
	for _, row := range entries {
		r.grant(row["path"], entry{row["type"], row["ugid"], row["roleid"]}, row["propagate"] != "0")
	}
	ok = ok1 && ok2 && ok3
	inv := w.s.Inventory()
	ok = ok && len(w.s.Gaps(estate.PartResources)) == 0
	for _, g := range inv.Guests {
		r.guests[g.ID] = g.Pool
	}
	return r, ok
}

func (r *rights) takeUser(row estate.Config, now time.Time) {
	expired := func(text string) bool {
		return text != "" && text != "0" && len(text) <= 18 && number(text) <= now.Unix()
	}
	a := r.account(row["userid"])
	a.off = row["enable"] == "0" || expired(row["expire"])
	for _, g := range list(row["groups"]) {
		a.groups[g] = true
	}
	for _, t := range rowsIn(row["tokens"]) {
		a.tokens[row["userid"]+"!"+t["tokenid"]] = &tokenAccount{own: t["privsep"] != "0", off: expired(t["expire"])}
	}
}

// change carries a change of access out on a copy. said is false where what it does cannot be computed.
func (r *rights) change(c change, now time.Time) (after *rights, said bool) {
	after = r.clone()
	k, method := c.keys, c.detail["method"]
	switch c.detail["is"] {
	case isACL:
		for kind, who := range map[string]string{"user": k["users"], "group": k["groups"], "token": k["tokens"]} {
			for _, id := range list(who) {
				for _, role := range list(k["roles"]) {
					e := entry{kind, id, role}
					if k["delete"] == "1" {
						after.drop(func(path string, x entry) bool { return path == aclPath(k["path"]) && x == e })
					} else {
						after.grant(aclPath(k["path"]), e, k["propagate"] != "0")
					}
				}
			}
		}
	case isUser:
		after.changeUser(method, k, now)
	case isToken:
		a, id := after.account(k["userid"]), c.object.ID
		switch {
		case method == "DELETE":
			delete(a.tokens, id)
			after.drop(func(_ string, e entry) bool { return e.kind == "token" && e.who == id })
		case method == "POST":
			a.tokens[id] = &tokenAccount{own: k["privsep"] != "0"}
		case a.tokens[id] != nil:
			if v, ok := k["privsep"]; ok {
				a.tokens[id].own = v != "0"
			}
			if v := k["expire"]; v != "" {
				a.tokens[id].off = v != "0" && number(v) <= now.Unix()
			}
		}
	case isGroup:
		if method == "DELETE" {
			after.drop(func(_ string, e entry) bool { return e.kind == "group" && e.who == c.object.ID })
			for _, a := range after.accounts {
				delete(a.groups, c.object.ID)
			}
		}
	case isRole:
		switch {
		case method == "DELETE":
			delete(after.roles, c.object.ID)
			after.drop(func(_ string, e entry) bool { return e.role == c.object.ID })
		default:
			privs := map[string]bool{}
			if k["append"] == "1" {
				privs = maps.Clone(after.roles[c.object.ID])
			}
			if privs == nil {
				privs = map[string]bool{}
			}
			for _, p := range list(k["privs"]) {
				privs[p] = true
			}
			after.roles[c.object.ID] = privs // an update that names none takes all, unless it adds
		}
	case isRealm:
		if method != "DELETE" {
			return after, false
		}
		for id, a := range after.accounts {
			if strings.HasSuffix(id, "@"+c.object.ID) {
				a.off = true
			}
		}
	case isPool:
		after.changePool(method, k)
	case isPass, isTFA:
	default:
		return after, false
	}
	return after, true
}

func (r *rights) changeUser(method string, k map[string]string, now time.Time) {
	id := k["userid"]
	if method == "DELETE" {
		delete(r.accounts, id)
		r.drop(func(_ string, e entry) bool {
			return e.kind == "user" && e.who == id || e.kind == "token" && strings.HasPrefix(e.who, id+"!")
		})
		return
	}
	a := r.account(id)
	if v, ok := k["enable"]; ok {
		a.off = v == "0"
	}
	if v := k["expire"]; v != "" && v != "0" && number(v) <= now.Unix() {
		a.off = true
	}
	if groups, ok := k["groups"]; ok {
		if k["append"] != "1" {
			a.groups = map[string]bool{}
		}
		for _, g := range list(groups) {
			a.groups[g] = true
		}
	}
}

func (r *rights) changePool(method string, k map[string]string) {
	pool := k["poolid"]
	if method == "DELETE" {
		r.drop(func(path string, _ entry) bool { return path == "/pool/"+pool })
	}
	for _, id := range list(k["vms"]) {
		switch {
		case k["delete"] != "1":
			r.guests[id] = pool
		case r.guests[id] == pool:
			r.guests[id] = ""
		}
	}
	for _, name := range list(k["storage"]) {
		r.storages[name] = slices.DeleteFunc(r.storages[name], func(p string) bool { return p == pool })
		if k["delete"] != "1" {
			r.storages[name] = append(r.storages[name], pool)
		}
	}
}

func aclPath(path string) string {
	path = "/" + strings.Trim(path, "/")
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}

// place is a path, or many alike, on which rights are compared.
type place struct {
	path  string
	title string
	ids   []string // the guests that are alike
}

func (p place) String() string {
	if len(p.ids) == 0 {
		return p.title
	}
	return "guests " + names(p.ids)
}

// places are where a change can make a difference: paths with entries, the tops, and guests, storages and nodes; those
// that are alike for access control count as one.
func (w *walk) places(before, after *rights) []place {
	out := []place{}
	seen := map[string]bool{}
	add := func(path, title string) {
		if !seen[path] {
			seen[path] = true
			out = append(out, place{path: path, title: title})
		}
	}
	for _, p := range []string{"/", "/access", "/nodes", "/pool", "/sdn", "/storage", "/vms", "/mapping"} {
		add(p, p)
	}
	own := map[string]bool{}
	for _, r := range []*rights{before, after} {
		for path := range r.entries {
			own[path] = true
		}
	}
	for _, path := range slices.Sorted(maps.Keys(own)) {
		add(path, path)
	}
	inv := w.s.Inventory()
	alike := map[string]int{}
	for _, g := range inv.Guests {
		path := "/vms/" + g.ID
		if own[path] {
			continue
		}
		key := before.guests[g.ID] + "|" + after.guests[g.ID]
		i, ok := alike[key]
		if !ok {
			i = len(out)
			alike[key] = i
			out = append(out, place{path: path})
		}
		out[i].ids = append(out[i].ids, g.ID)
	}
	for _, s := range inv.Storages {
		add("/storage/"+s.Name, "storage "+s.Name)
	}
	for name := range after.storages {
		add("/storage/"+name, "storage "+name)
	}
	for _, n := range inv.Nodes {
		add("/nodes/"+n.Name, "node "+n.Name)
	}
	return out
}

// difference is what one user or token gains or loses, and where.
type difference struct {
	privs  map[string]bool
	places []string
	ids    []string
}

func (d *difference) add(p place, privs []string) {
	if d.privs == nil {
		d.privs = map[string]bool{}
	}
	for _, priv := range privs {
		d.privs[priv] = true
	}
	d.places = append(d.places, p.String())
	d.ids = append(d.ids, p.ids...)
	if id, ok := strings.CutPrefix(p.path, "/vms/"); ok && len(p.ids) == 0 {
		d.ids = append(d.ids, id)
	}
}

// matter tells apart what is gained: which privileges, and on what. Who gains them on every guest there is gains them on
// those to come; of a pool the guests that are in it count.
func (d *difference) matter() string {
	on := slices.DeleteFunc(slices.Clone(d.places), func(p string) bool { return strings.HasPrefix(p, "guests ") })
	if !slices.Contains(on, "/") && !slices.Contains(on, "/vms") {
		on = append(on, slices.Sorted(slices.Values(d.ids))...)
	}
	return digestOf(append(slices.Sorted(maps.Keys(d.privs)), on...))
}

func (d *difference) any(of []string) bool {
	return slices.ContainsFunc(of, func(p string) bool { return d.privs[p] })
}

func (d *difference) String() string {
	privs := slices.Sorted(maps.Keys(d.privs))
	return names(privs) + " on " + names(d.places)
}

// access walks a change of rights: what users and tokens gain and lose, where an entry replaces inherited ones, and
// whether castellan's own access is among it.
func (w *walk) access(c change) {
	w.ownAccess(c)
	w.signsIn(c)
	w.described(c)
	before, ok := w.readRights()
	if !ok {
		w.unread(ClassGains, gate.WeightDanger, c.object, "who has which rights", gate.KindIdent)
		w.unread(ClassLosesAccess, gate.WeightDanger, c.object, "who has which rights", gate.KindIdent)
		w.unread(ClassReferences, gate.WeightNote, c.object, "who has which rights")
		if w.mayHitOwn(c) {
			w.unread(ClassSelf, gate.WeightDanger, c.object, "whether castellan's own rights come by it", gate.KindGoverns, gate.KindLockout)
		}
	}
	for _, s := range w.before { // the plan's own earlier steps
		if earlier, known := readAccess(w, *s.API); known {
			for _, e := range earlier {
				before, _ = before.change(e, w.s.Now())
			}
		}
	}
	after, said := before.change(c, w.s.Now())
	if !said {
		w.hit(gate.Hit{Class: ClassLosesAccess, Weight: gate.WeightDanger, Object: c.object, Unknown: true, Kinds: []gate.Kind{gate.KindIdent},
			Text: fmt.Sprintf("what a change of %s %s does to those who come by it cannot be computed: %d users do", c.detail["is"], c.object.ID, len(usersOf(before, c.object.ID)))})
	}
	w.touched(c, before)
	places := w.places(before, after)
	who := before.everybody()
	for _, id := range after.everybody() {
		if !slices.Contains(who, id) {
			who = append(who, id)
		}
	}
	apart := map[string]*differences{}
	for _, id := range who {
		d := &differences{}
		for _, p := range places {
			was, is := before.on(id, p.path), after.on(id, p.path)
			void := func(priv string) bool { return idle(priv, p) }
			if more := slices.DeleteFunc(without(is, was), void); len(more) > 0 {
				d.gains.add(p, more)
			}
			if less := slices.DeleteFunc(without(was, is), void); len(less) > 0 {
				d.losses.add(p, less)
			}
		}
		apart[id] = d
	}
	for _, id := range who {
		w.differs(c, id, apart, before)
	}
	if !ok {
		return
	}
	if masters(before) > 0 && masters(after) == 0 {
		w.hit(gate.Hit{Class: ClassLosesAccess, Weight: gate.WeightDanger, Object: object(gate.ObjectACL, "/"), Kinds: []gate.Kind{gate.KindIdent},
			Text: "nobody but root@pam may give rights on / any more"})
	}
}

// differences are what a user or token gains and loses.
type differences struct{ gains, losses difference }

// idle says whether Proxmox asks for a privilege nowhere on a place: on a guest it asks for those of virtual machines and for
// the right to give rights, on a storage for those of storages. One that is of no known sort counts.
func idle(priv string, p place) bool {
	elsewhere := []string{"Pool.", "Sys.", "SDN.", "Mapping.", "User.", "Group.", "Realm."}
	switch {
	case len(p.ids) > 0 || strings.HasPrefix(p.path, "/vms/"):
		elsewhere = append(elsewhere, "Datastore.")
	case strings.HasPrefix(p.path, "/storage/"):
		elsewhere = append(elsewhere, "VM.")
	default:
		return false
	}
	return slices.ContainsFunc(elsewhere, func(sort string) bool { return strings.HasPrefix(priv, sort) })
}

// differs tells what one user or token gains and loses. A token with the same as its user is told with it.
func (w *walk) differs(c change, id string, all map[string]*differences, before *rights) {
	o := object(gate.ObjectUser, id)
	user, _, isToken := strings.Cut(id, "!")
	gains, losses := all[id].gains, all[id].losses
	told := func(of func(*differences) *difference) (asUser bool, tokens string) {
		same := func(token string) bool {
			return all[user] != nil && of(all[token]).String() == of(all[user]).String() && of(all[token]).matter() == of(all[user]).matter()
		}
		if isToken {
			return same(id), ""
		}
		for _, token := range slices.Sorted(maps.Keys(all)) {
			if strings.HasPrefix(token, id+"!") && same(token) {
				tokens += " and " + token
			}
		}
		return false, tokens
	}
	own := w.ownUser() != "" && (id == w.s.Target().User || id == w.ownUser() && !before.ownToken(w.s.Target().User))
	if asUser, tokens := told(func(d *differences) *difference { return &d.gains }); len(gains.privs) > 0 && !asUser {
		weight := gate.WeightCaution
		if gains.any(strong) || slices.Contains(gains.places, "/") || slices.Contains(gains.places, "/storage") {
			weight = gate.WeightDanger
		}
		gain, get := " gains ", " gets"
		if tokens != "" {
			gain, get = " gain ", " get"
		}
		text := id + tokens + gain + gains.String()
		if c.detail["is"] == isACL && slices.Contains(list(c.keys["roles"]), "Administrator") {
			text = id + tokens + get + " every privilege (Administrator):" + gain + gains.String()
		}
		w.hit(gate.Hit{Class: ClassGains, Weight: weight, Object: o, Kinds: []gate.Kind{gate.KindIdent}, Text: text, Matter: gains.matter()})
	}
	asUser, tokens := told(func(d *differences) *difference { return &d.losses })
	if len(losses.privs) == 0 || asUser {
		return
	}
	lose := " loses "
	if tokens != "" {
		lose = " lose "
	}
	text := id + tokens + lose + losses.String()
	if c.detail["is"] == isACL && c.verb == grants {
		text += ": its entry on " + aclPath(c.keys["path"]) + " replaces what it has from above or by its groups"
	}
	w.hit(gate.Hit{Class: ClassLosesAccess, Weight: gate.WeightCaution, Object: o, Kinds: []gate.Kind{gate.KindIdent}, Text: text})
	if own || user == w.ownUser() && id == user {
		w.hit(gate.Hit{Class: ClassSelf, Weight: gate.WeightDanger, Object: o, Kinds: []gate.Kind{gate.KindGoverns, gate.KindLockout},
			Text: "castellan itself loses " + losses.String()})
	}
}

// ownToken says whether a token is known and has privileges of its own.
func (r *rights) ownToken(id string) bool {
	user, _, isToken := strings.Cut(id, "!")
	return isToken && r.accounts[user] != nil && r.accounts[user].tokens[id] != nil && r.accounts[user].tokens[id].own
}

func (w *walk) ownUser() string {
	user, _, _ := strings.Cut(w.s.Target().User, "!")
	return user
}

// ownAccess says when castellan would not get in any more, from the request alone.
func (w *walk) ownAccess(c change) {
	own, user := w.s.Target().User, w.ownUser()
	if user == "" {
		w.unread(ClassLockout, gate.WeightDanger, c.object, "by which user castellan comes in", gate.KindLockout)
		return
	}
	_, realm, _ := strings.Cut(user, "@")
	k, method, why := c.keys, c.detail["method"], ""
	switch c.detail["is"] {
	case isUser:
		expires := k["expire"] != "" && k["expire"] != "0"
		if k["userid"] == user && (method == "DELETE" || k["enable"] == "0" || expires) {
			why = "castellan's own user would not be let in any more"
		}
	case isToken:
		if c.object.ID == own && (method == "DELETE" || k["regenerate"] == "1" || k["expire"] != "" && k["expire"] != "0") {
			why = "castellan's own token would not be good any more"
		}
	case isRealm:
		if c.object.ID == realm && !strings.Contains(own, "!") || c.object.ID == realm && method == "DELETE" {
			why = "castellan's own user is of realm " + realm
		}
	case isPass, isTFA:
		if k["userid"] == user && !strings.Contains(own, "!") {
			why = "castellan itself signs in with the password of " + user
		}
	}
	if why != "" {
		w.hit(gate.Hit{Class: ClassLockout, Weight: gate.WeightDanger, Object: object(gate.ObjectUser, own), Kinds: []gate.Kind{gate.KindLockout, gate.KindGoverns}, Text: why})
	}
}

// signsIn: who signs in at castellan with a password of this target is let in by whoever can set that password, his second
// factor, or the realm that checks it.
func (w *walk) signsIn(c change) {
	realm, text := "", ""
	switch id := c.keys["userid"]; c.detail["is"] {
	case isPass, isTFA:
		realm, text = id[strings.LastIndexByte(id, '@')+1:], "people sign in at castellan as users of realm %s: whoever can sign in as "+id+" may come to approve as this person"
	case isUser:
		if c.detail["method"] != "POST" {
			realm, text = id[strings.LastIndexByte(id, '@')+1:], "people sign in at castellan as users of realm %s: "+id+" may be let in or kept out by it"
		}
	case isRealm:
		realm, text = c.object.ID, "people sign in at castellan as users of realm %s: who is let in changes with it"
	}
	for target, realms := range w.self.Realms {
		if text != "" && slices.Contains(realms, realm) && w.here(target) {
			w.hit(gate.Hit{Class: ClassSelf, Weight: gate.WeightDanger, Object: c.object, Kinds: []gate.Kind{gate.KindGoverns}, Text: fmt.Sprintf(text, realm)})
		}
	}
}

// mayHitOwn says whether castellan's own rights can depend on what is changed, as far as that is known without the list
// of rights: by name, by group or role, or by the pool of a guest.
func (w *walk) mayHitOwn(c change) bool {
	own, user := w.s.Target().User, w.ownUser()
	switch c.detail["is"] {
	case isGroup, isRole, isRealm:
		return true
	case isACL:
		return c.keys["groups"] != "" || slices.Contains(list(c.keys["users"]), user) || slices.Contains(list(c.keys["tokens"]), own)
	case isUser, isPass, isTFA:
		return c.keys["userid"] == user
	case isToken:
		return c.object.ID == own
	case isPool:
		held, ok := w.s.Rights()
		if !ok {
			return true
		}
		for path, privs := range held {
			if !strings.HasPrefix(path, "/pool/") {
				continue
			}
			for p := range privs {
				if _, everywhere := held["/"][p]; !everywhere {
					return true
				}
			}
		}
	}
	return false
}

// described says what is known from the request alone: widening roles and paths, ways to sign in that become weaker.
func (w *walk) described(c change) {
	k := c.keys
	switch c.detail["is"] {
	case isACL:
		path := aclPath(k["path"])
		switch {
		case c.verb == grants && slices.Contains(list(k["roles"]), "Administrator"):
			w.hit(gate.Hit{Class: ClassGains, Weight: gate.WeightDanger, Object: c.object, Kinds: []gate.Kind{gate.KindIdent}, Text: "role Administrator is given on " + path})
		case c.verb == grants && (path == "/" || path == "/storage"):
			w.hit(gate.Hit{Class: ClassGains, Weight: gate.WeightDanger, Object: c.object, Kinds: []gate.Kind{gate.KindIdent}, Text: "rights are given on " + path + ", which is everything below it"})
		}
	case isPass:
		w.hit(gate.Hit{Class: ClassLosesAccess, Weight: gate.WeightCaution, Object: c.object, Text: "the old password of " + k["userid"] + " is not good any more"})
	case isTFA:
		if c.detail["method"] != "POST" {
			w.hit(gate.Hit{Class: ClassOpens, Weight: gate.WeightCaution, Object: c.object, Text: k["userid"] + " may come to sign in with one factor less"})
		}
	case isToken:
		if k["privsep"] == "0" {
			w.hit(gate.Hit{Class: ClassGains, Weight: gate.WeightCaution, Object: c.object, Kinds: []gate.Kind{gate.KindIdent}, Text: "whoever has the secret of " + c.object.ID + " may do all that " + k["userid"] + " may"})
		}
		if k["regenerate"] == "1" || c.detail["method"] == "DELETE" {
			class := ClassLosesAccess
			if k["regenerate"] == "1" {
				class = ClassSecret
			}
			w.hit(gate.Hit{Class: class, Weight: gate.WeightCaution, Object: c.object, Text: "whoever uses the present secret of " + c.object.ID + " is not let in any more"})
		}
	}
}

// touched names who stands behind a group or role, and entries that go on naming what is gone.
func (w *walk) touched(c change, r *rights) {
	switch c.detail["is"] {
	case isACL:
		for _, g := range list(c.keys["groups"]) {
			var members []string
			for _, id := range slices.Sorted(maps.Keys(r.accounts)) {
				if r.accounts[id].groups[g] {
					members = append(members, id)
				}
			}
			text := "group " + g + " has no members"
			if len(members) > 0 {
				text = "members of group " + g + ": " + names(members)
			}
			w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: object(gate.ObjectUser, g), Text: text})
		}
	case isRole:
		var at []string
		for _, path := range slices.Sorted(maps.Keys(r.entries)) {
			for e := range r.entries[path] {
				if e.role == c.object.ID {
					at = append(at, e.who+" on "+path)
				}
			}
		}
		slices.Sort(at)
		text := "nobody has role " + c.object.ID
		if len(at) > 0 {
			text = "role " + c.object.ID + " is held by " + names(at)
		}
		w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: c.object, Text: text})
	case isRealm:
		w.hit(gate.Hit{Class: ClassLosesAccess, Weight: gate.WeightCaution, Object: c.object, Kinds: []gate.Kind{gate.KindIdent},
			Text: fmt.Sprintf("users of realm %s: %s", c.object.ID, orNone(names(usersOf(r, c.object.ID))))})
	}
}

// sync walks a synchronisation with a directory: what it takes away cannot be seen beforehand.
func (w *walk) sync(c change) {
	w.signsIn(change{object: c.object, keys: c.keys, detail: map[string]string{"is": isRealm}})
	k := c.keys
	r, ok := w.readRights()
	gone := strings.Contains(k["remove-vanished"], "entry") || strings.Contains(k["remove-vanished"], "acl") || k["purge"] == "1" || k["full"] == "1"
	weight, text := gate.WeightCaution, "users and groups of realm %s are taken over from its directory; which ones cannot be seen beforehand"
	if gone || k["remove-vanished"] == "" { // the realm's own defaults may say so
		weight, text = gate.WeightDanger, "users and groups of realm %s that its directory does not have lose their account or their rights; which ones cannot be seen beforehand"
	}
	w.hit(gate.Hit{Class: ClassLosesAccess, Weight: weight, Object: c.object, Unknown: true, Kinds: []gate.Kind{gate.KindIdent},
		Text: fmt.Sprintf(text, c.object.ID) + " (now " + orNone(names(usersOf(r, c.object.ID))) + ")"})
	if !ok {
		w.unread(ClassLosesAccess, gate.WeightDanger, c.object, "who is of the realm", gate.KindIdent)
	}
	// A job that is changed without its realm being named may be of any that can be synchronised.
	_, realm, _ := strings.Cut(w.ownUser(), "@")
	if realm == c.object.ID || realm == "" || c.object.ID == "" && realm != "pam" && realm != "pve" {
		w.hit(gate.Hit{Class: ClassLockout, Weight: gate.WeightDanger, Object: object(gate.ObjectUser, w.s.Target().User), Kinds: []gate.Kind{gate.KindLockout, gate.KindGoverns}, Unknown: true,
			Text: "castellan's own user is of this realm"})
	}
}

func usersOf(r *rights, realm string) (out []string) {
	for _, id := range slices.Sorted(maps.Keys(r.accounts)) {
		if strings.HasSuffix(id, "@"+realm) {
			out = append(out, id)
		}
	}
	return out
}

// masters counts the users and tokens, root@pam apart, that may give rights on "/".
func masters(r *rights) (n int) {
	for _, id := range r.everybody() {
		if user, _, _ := strings.Cut(id, "!"); user != superuser && r.on(id, "/")["Permissions.Modify"] {
			n++
		}
	}
	return n
}

func without(a, b map[string]bool) (out []string) {
	for p := range a {
		if !b[p] {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
