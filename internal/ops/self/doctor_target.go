package self

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/rights"
)

// maxSkew is how far clocks may be apart before times are misjudged and logins with codes fail.
const maxSkew = 30 * time.Second

// examine looks at one target: each address, then what the login may do there.
func (c Config) examine(ctx context.Context, v gate.View, t gate.TargetInfo, enabled []string, full bool) (targetHealth, []Check) {
	h := targetHealth{Name: t.Name, Product: t.Product, Version: t.Version, Login: t.User}
	var checks []Check
	say := func(state, fix, format string, args ...any) {
		checks = append(checks, Check{"target " + t.Name, state, fmt.Sprintf(format, args...), fix})
	}
	contacts, err := c.Doctor.Contact(ctx, t.Name)
	if err != nil {
		say(CheckUnknown, "", "it could not be tried: %v", err)
		return h, checks
	}
	answers := false
	for _, k := range contacts {
		if answers = answers || k.Fault == ""; k.Version != "" {
			h.Version = k.Version
		}
		checks = append(checks, contactChecks("target "+t.Name, k, v.Now())...)
	}
	if !answers {
		for i, x := range checks { // the target as a whole
			if x.State == CheckProblem && strings.HasPrefix(x.Text, "no connection") {
				checks[i].State = CheckUnreachable
			}
		}
		return h, checks
	}
	for i, x := range checks {
		if strings.HasPrefix(x.Text, "no connection") {
			checks[i].Text += " (the others stand in)"
		}
	}
	if t.Product != "pve" {
		say(CheckNote, "", "what the login may do is worked out for Proxmox VE only")
		return h, checks
	}
	if state, text := support(versionOf(h.Version), v.Now()); text != "" {
		say(state, "", "%s", text)
	}
	checks = append(checks, tagChecks(ctx, v, t.Name)...)
	return h, append(checks, c.rightsOf(ctx, v, t, enabled, full, &h)...)
}

// tagChecks tells which tags grant no scope, since others than the site's administrators may set them.
func tagChecks(ctx context.Context, v gate.View, target string) []Check {
	view, ok := v.(gate.Tagged)
	if !ok {
		return nil
	}
	tags, rules := view.ScopeTags(ctx, target)
	area := "scope on " + target
	if len(tags) == 0 {
		return nil
	}
	if !rules.Known {
		return []Check{{area, CheckProblem, "policy.tags grants nothing there: who may set tags cannot be read", "Give castellan's user Sys.Audit on / (the lines above give it)."}}
	}
	var ignored, why []string
	for _, t := range tags {
		if rules.Reserved(t) {
			continue
		}
		ignored = append(ignored, t)
		if text := rules.Why(t); !slices.Contains(why, text) {
			why = append(why, text)
		}
	}
	if len(ignored) == 0 {
		return []Check{{area, CheckOK, "the tags of policy.tags count: only who may change the site sets them", ""}}
	}
	fix, after := rules.Reserve(ignored), ""
	if strings.Contains(fix, "--user-tag-access") {
		after = ". After the command others give their guests only tags that are there already, so that none types a reserved one in other letters"
	}
	return []Check{{area, CheckProblem, fmt.Sprintf("these tags of policy.tags grant nothing there, since others than the site's administrators can set them: %s (%s)%s", strings.Join(ignored, ", "), strings.Join(why, "; "), after), fix}}
}

func versionOf(text string) rights.Version {
	v, err := rights.ParseVersion(text)
	if err != nil {
		return rights.Version{}
	}
	return v
}

// contactChecks are what one address gives to say.
func contactChecks(area string, k Contact, now time.Time) []Check {
	var out []Check
	say := func(state, fix, format string, args ...any) {
		out = append(out, Check{area, state, fmt.Sprintf(format, args...), fix})
	}
	switch {
	case k.Refused:
		say(CheckProblem, "Put the right token into the target's token file (castellan mint makes a new one). It is not tried again for a minute.",
			"%s does not take the login: wrong token, wrong secret, expired, or its user is disabled", k.Address)
	case k.Fault != "" && !k.Reached && k.Certificate != "":
		say(CheckProblem, "If the certificate was changed on purpose, compare it on the node (pvenode cert info) and put it into pins.", "no connection to %s: %s; nothing secret was sent", k.Address, k.Fault)
	case k.Fault != "" && !k.Reached:
		say(CheckProblem, "Check that the host is up, and that its port can be reached from here.", "no connection to %s: %s", k.Address, k.Fault)
	case k.Fault != "":
		say(CheckProblem, "", "%s answers, but not as it should: %s", k.Address, k.Fault)
	default:
		say(CheckOK, "", "%s answers; its certificate is trusted by %s", k.Address, k.TrustedBy)
	}
	if !k.Ends.IsZero() {
		left := int(k.Ends.Sub(now).Hours() / 24)
		fix := ""
		if strings.HasPrefix(k.TrustedBy, "pin of") {
			fix = "Renew it in good time and put the new fingerprint into pins; both may stand there."
		}
		switch {
		case left < 0:
			say(CheckProblem, fix, "the certificate of %s ended on %s", k.Address, k.Ends.Format(time.DateOnly))
		case left <= 30:
			say(CheckNote, fix, "the certificate of %s ends on %s, in %d days", k.Address, k.Ends.Format(time.DateOnly), left)
		default:
			say(CheckOK, "", "the certificate of %s is good until %s", k.Address, k.Ends.Format(time.DateOnly))
		}
	}
	if k.Version != "" {
		switch skew := k.Skew.Round(time.Second); {
		case skew.Abs() > maxSkew:
			say(CheckProblem, "Let both keep time by NTP (timedatectl, chronyc tracking).", "the clock of %s is %s apart from the one here", k.Address, skew.Abs())
		default:
			say(CheckOK, "", "the clock of %s agrees with the one here", k.Address)
		}
	}
	return out
}

// granted is what was read of rights on a target.
type granted struct {
	version         rights.Version
	effective, user rights.Permissions
	state           *rights.State // nil: not to be read
	there           *rights.State // what is there at least: whoever asks, and roles, which all may read
	why             error
}

// readGranted asks what the login may do. Lists that a server shortens for want of a right count as not read.
func readGranted(ctx context.Context, v gate.View, t gate.TargetInfo, version rights.Version) (granted, error) {
	g := granted{version: version}
	ask := func(op string, params map[string]string) (json.RawMessage, error) {
		a, err := v.Read(ctx, t.Name, gate.Read{Operation: op, Params: params})
		return a.Data, err
	}
	permissions := func(id string) (rights.Permissions, error) {
		out := rights.Permissions{}
		for _, path := range []string{"", "/mapping"} { // the map of all paths leaves this one out
			params := map[string]string{}
			if path != "" {
				params["path"] = path
			}
			if id != "" {
				params["userid"] = id
			}
			raw, err := ask("GET /access/permissions", params)
			if err != nil {
				return nil, err
			}
			p, err := rights.ReadPermissions(raw)
			if err != nil {
				return nil, err
			}
			for at, held := range p {
				out[at] = held
			}
		}
		return out, nil
	}
	var err error
	if g.effective, err = permissions(""); err != nil {
		return g, err
	}
	user, _, token := strings.Cut(t.User, "!")
	if !token {
		g.user = g.effective
	} else if g.user, err = permissions(user); err != nil {
		g.user, g.why = nil, err
	}
	g.there = &rights.State{Users: map[string][]string{user: nil}, Tokens: map[string]bool{}}
	if token {
		g.there.Tokens[t.User] = true
	}
	roles, err := ask("GET /access/roles", nil)
	if err == nil {
		if s, err := rights.Read(nil, roles, nil); err == nil {
			g.there.Roles = s.Roles
		}
	}
	if _, audits := g.effective["/access"]["Sys.Audit"]; !audits {
		g.why = errors.Join(g.why, errors.New("Sys.Audit on /access is missing"))
		return g, nil
	}
	users, err1 := ask("GET /access/users", map[string]string{"full": "1"})
	acl, err2 := ask("GET /access/acl", nil)
	if err := errors.Join(err, err1, err2); err != nil {
		g.why = errors.Join(g.why, err)
		return g, nil
	}
	g.state, err = rights.Read(users, roles, acl)
	g.there = g.state
	return g, err
}

// who is the holder whose rights are compared.
func (g granted) who(login string) rights.Who {
	w := rights.Who{Effective: g.effective, User: g.user}
	if g.state != nil && strings.Contains(login, "!") {
		w.Own = func(r rights.Right) bool {
			for role := range g.state.Effective(login, r.Place.Path()) {
				if slices.Contains(g.state.Roles[role], r.Privilege) {
					return true
				}
			}
			return false
		}
	}
	return w
}

// rightsOf compares what the login may do with what is switched on.
func (c Config) rightsOf(ctx context.Context, v gate.View, t gate.TargetInfo, enabled []string, full bool, h *targetHealth) []Check {
	var checks []Check
	area := "rights on " + t.Name
	say := func(state, fix, format string, args ...any) {
		checks = append(checks, Check{area, state, fmt.Sprintf(format, args...), fix})
	}
	g, err := readGranted(ctx, v, t, versionOf(h.Version))
	if err != nil {
		say(CheckUnknown, "", "what the login may do could not be read: %v", err)
		return checks
	}
	if full {
		h.RootOnly = rights.RootOnly()
	}
	user, token, _ := strings.Cut(t.User, "!")
	if v.Scoped() {
		h.Can = rights.Abilities(enabled, g.version, g.who(t.User))
		for i := range h.Can { // paths name guests that this caller may not know of
			h.Can[i].Where, h.Can[i].Except = nil, nil
		}
		return checks
	}
	if user == "root@pam" {
		state, text := CheckProblem, "the login belongs to root@pam, which may do everything"
		if token != "" {
			text += ", but for what Proxmox lets only root's password do"
		}
		say(state, "castellan mint makes a user and a token for exactly what is switched on.", "%s", text)
	}
	h.Can = rights.Abilities(enabled, g.version, g.who(t.User))
	want := rights.Want{Version: g.version, User: user, Token: token, Capabilities: enabled}
	if user == "root@pam" {
		want.User, want.Token = "castellan@pve", "castellan"
		h.Commands = rights.Lines(want.Commands(g.there))
	} else if g.state != nil {
		want.Pools, want.Guests = g.state.Narrowed(user)
		slices.Sort(want.Pools)
		slices.Sort(want.Guests)
	} else {
		want.Pools, want.Guests = confined(g.effective)
	}
	checkable := want.Check() == nil
	lacking := false
	for _, a := range h.Can {
		if a.Can != "no" && (a.Can != "partly" || len(want.Pools)+len(want.Guests) > 0 && onlyNarrowed(a)) {
			continue
		}
		lacking = true
		say(CheckProblem, "", "%s is switched on, and Proxmox lets it %s: %s", a.Capability, map[string]string{"no": "do nothing of it", "partly": "do only a part"}[a.Can], describeLacks(a.Missing))
	}
	if blind := g.effective.Blind(g.version); len(blind) > 0 {
		lacking = true
		for _, l := range blind {
			say(CheckProblem, "", "without %s on %s nothing there is seen: an empty list then does not mean that there is nothing", l.Privilege, l.Path)
		}
	}
	if lacking && checkable && len(h.Commands) == 0 {
		for _, line := range rights.Lines(want.Commands(g.there)) {
			if len(h.Commands) < maxLines {
				h.Commands = append(h.Commands, line)
			}
		}
		if g.state == nil {
			say(CheckNote, "", "what is there of users, roles and entries could not be read (%v), so the commands suppose nothing. %s", g.why, rights.Replaces)
		}
	}
	if !lacking && user != "root@pam" {
		say(CheckOK, "", "Proxmox grants what is switched on (%d capabilities) and reading", len(enabled))
	}
	checks = append(checks, tooMuch(area, g, want, user == "root@pam", checkable, h)...)
	var unread []string
	for _, f := range rights.FurtherReading(g.version) {
		switch a := (rights.Permissions)(g.effective); {
		case holds(a, f.Right):
		case full:
			say(CheckNote, "", "not to be read with what is granted: %s (%s on %s)", f.What, f.Privilege, f.Place.Path())
		default:
			unread = append(unread, f.What)
		}
	}
	if len(unread) > 0 {
		say(CheckNote, "", "not to be read with what is granted: %s; detail full says what each takes", strings.Join(unread, "; "))
	}
	return checks
}

// confined are the pools, else the guests, that what is held is limited to: commands that suppose nothing must not lift that. The
// members of pools are told as guests too.
func confined(p rights.Permissions) (pools, guests []string) {
	for _, path := range p.Confined() {
		if pool, ok := strings.CutPrefix(path, "/pool/"); ok {
			pools = append(pools, pool)
		} else if guest, ok := strings.CutPrefix(path, "/vms/"); ok {
			guests = append(guests, guest)
		}
	}
	if len(pools) > 0 {
		guests = nil
	}
	return pools, guests
}

func holds(p rights.Permissions, r rights.Right) bool {
	_, ok := p[r.Place.Path()][r.Privilege]
	return ok
}

// onlyNarrowed says that what a capability lacks is what was left out on purpose: it holds on some pools or guests.
func onlyNarrowed(a rights.Ability) bool {
	return len(a.Where) > 0 && !slices.ContainsFunc(a.Missing, func(l rights.Lack) bool { return l.Path != "/vms" && l.Path != "/storage" })
}

func describeLacks(all []rights.Lack) string {
	var parts []string
	by := map[string][]string{}
	for _, l := range all {
		who := map[string]string{"user": "the user lacks", "token": "the token lacks", "both": "user and token lack", "unknown": "missing:"}[l.Who]
		key := who + "\x00" + l.Path
		if by[key] == nil {
			parts = append(parts, key)
		}
		by[key] = append(by[key], l.Privilege)
	}
	for i, key := range parts {
		who, path, _ := strings.Cut(key, "\x00")
		parts[i] = who + " " + strings.Join(by[key], ", ") + " on " + path
	}
	return strings.Join(parts, "; ")
}

// tooMuch lists what is granted and needed for nothing that is switched on.
func tooMuch(area string, g granted, want rights.Want, root, checkable bool, h *targetHealth) []Check {
	var checks []Check
	say := func(state, fix, format string, args ...any) {
		checks = append(checks, Check{area, state, fmt.Sprintf(format, args...), fix})
	}
	if user := want.User; g.state != nil && want.Token != "" && !root {
		if separated, known := g.state.Tokens[want.TokenID()]; known && !separated {
			say(CheckNote, "pveum user token modify "+user+" "+want.Token+" --privsep 1, after it was given rights of its own", "the token %s has all that its user has (no privilege separation)", want.TokenID())
		}
	}
	if g.state != nil && !root {
		for _, path := range []string{"/", "/vms", "/access"} {
			for _, role := range []string{"Administrator", "PVEAdmin"} {
				if _, has := g.state.Effective(want.User, path)[role]; has {
					say(CheckProblem, "", "%s has the role %s on %s", want.User, role, path)
				}
			}
		}
	}
	if !root {
		if passed := g.effective.PassedOn(g.version); len(passed) > 0 {
			say(CheckNote, "", "held on / and passed on to everything: %s", clip(strings.Join(passed, ", "), 300))
		}
	}
	if root {
		return checks // which has everything, and is said already
	}
	beyond := g.effective.Beyond(want.Capabilities, g.version)
	for i, e := range beyond {
		if i == 8 {
			say(CheckProblem, "", "%d more paths with privileges that nothing here needs", len(beyond)-i)
			break
		}
		say(CheckProblem, "", "held on %s and needed for nothing that is switched on: %s", e.Path, clip(strings.Join(e.Privileges, ", "), 300))
	}
	if len(beyond) > 0 && checkable {
		if len(h.Commands) == 0 {
			h.Commands = rights.Lines(want.Commands(g.there))
		}
		h.Narrow = rights.Lines(want.Narrowing(g.state))
		for _, r := range want.Roles() {
			if g.state == nil {
				break
			}
			if more := slices.DeleteFunc(slices.Clone(g.state.Roles[r.Name]), func(p string) bool { return slices.Contains(r.Privileges, p) }); len(more) > 0 {
				h.Narrow = append(h.Narrow, rights.Command{Operation: "PUT /access/roles/{roleid}", Params: map[string]string{"roleid": r.Name, "privs": strings.Join(r.Privileges, ",")}}.String())
			}
		}
	}
	return checks
}
