// Package policy decides who may do what, and after which approval. Simple settings compile to Cedar; policies of
// one's own are added to them. Whatever cannot be evaluated denies.
package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/regex"
)

// Settings are the simple rules: the part [policy] of the configuration. Its zero value lets everything be read and
// nothing be changed.
type Settings struct {
	// ReadOnly refuses every change, whatever else is set.
	ReadOnly bool `toml:"read_only"`
	// Capabilities are the switches that are on, such as "power" or "snapshot"; `castellan policy table` lists them.
	Capabilities []string `toml:"capabilities"`
	// Guests that may be seen and changed: ids and ranges ("101", "200-299"); "*" is every guest. With Guests, Pools and
	// Tags all empty there is no limit; else a guest is in scope when one of the three has it.
	Guests []string `toml:"guests"`
	// Pools whose members are in scope.
	Pools []string `toml:"pools"`
	// Tags whose bearers are in scope.
	Tags []string `toml:"tags"`
	// UpgradePools and UpgradeTags are where packages may be installed: only in guests that a pool of these has, or that bear a tag
	// of these which Proxmox reserves; with both left out the scope alone decides. RebootPools and RebootTags are the same for
	// reboots.
	UpgradePools []string `toml:"upgrade_pools"`
	UpgradeTags  []string `toml:"upgrade_tags"`
	RebootPools  []string `toml:"reboot_pools"`
	RebootTags   []string `toml:"reboot_tags"`
	// Forbid names what is never done: "DELETE /nodes/{node}/qemu/{vmid}" (one API operation), "/access" (everything below a
	// path), or a part of a name ("delete_guest", "rollback"); * stands for any text.
	Forbid []string `toml:"forbid"`
	// Rungs change the approval of a kind or class of change: stop = "restated", net = "dialog".
	Rungs map[string]string `toml:"rungs"`
	// StandIn stands for the rungs person and above where one account holds agent, keys and policy: "off" (default),
	// "dialog" or "phrase". It never stands for changes of what castellan itself depends on.
	StandIn string `toml:"stand_in"`
	// FourEyes asks for an approver who is not the person on whose behalf the plan was made, from dialog on.
	FourEyes bool `toml:"four_eyes"`
	// UndoPoints are kinds of changes (config, file, exec, …) before which the guest is snapshotted; where it cannot be, the change is refused.
	UndoPoints []string `toml:"undo_points"`
	// UndoPointsDays deletes such snapshots of a guest that are older when it gets a new one, each named in that plan; 0 deletes
	// none. The UndoPointsKeep newest of the guest (3 when 0) stay however old they are.
	UndoPointsDays int `toml:"undo_points_days"`
	UndoPointsKeep int `toml:"undo_points_keep"`
	// WritesPerHour bounds the changes sent to each target within an hour; 0 is no bound.
	WritesPerHour int `toml:"writes_per_hour"`
	// Windows are the times in which changes are allowed, local time: "mon-fri 08:00-18:00"; none is always.
	Windows []string `toml:"windows"`
	// PlanTTL is how long a plan waits for its approval, ApprovalTTL how long that holds, TaintFor how long text of
	// outsiders taints whoever read it ("15m", "1h"; default 15m, 15m, 1h).
	PlanTTL string `toml:"plan_ttl"`
	// WaitTTL is the same for a plan that a person must approve ("12h", the default).
	WaitTTL string `toml:"wait_ttl"`
	// Arming lets changes pass only within an armed window, which a person opens with `castellan arm` or on the console.
	Arming      bool   `toml:"arming"`
	ApprovalTTL string `toml:"approval_ttl"`
	TaintFor    string `toml:"taint_for"`
	// LockWait is how long a step waits for a guest that a task holds, such as a backup, before its plan counts as stale
	// ("5m"; default: it does not wait).
	LockWait string `toml:"lock_wait"`
	// AfterFreeText is what changes take at least while text of outsiders was read within TaintFor: by kind or class of
	// change, or "all" (exec = "denied", all = "person"); "denied" refuses them until then.
	AfterFreeText map[string]string `toml:"after_free_text"`
	// CommandRisk is what a command that a caller chose takes at least, by how dangerous it looks ("low", "medium",
	// "high"): high = "passkey", or "denied".
	CommandRisk map[string]string `toml:"command_risk"`
	// RecordCommands is how the ledger keeps what is run on nodes and in guests, and what it printed: "redacted" (in full,
	// values that look like secrets replaced; the default) or "commitment" (salted hashes only).
	RecordCommands string `toml:"record_commands"`
	// BackupBeforeDestroy refuses to destroy a guest or its disks, to roll it back or to restore over it, unless a backup that
	// surely is of it is no older than this ("24h"); where that cannot be told, it refuses too. Empty: not asked for.
	BackupBeforeDestroy string `toml:"backup_before_destroy"`
	// Targets tighten the rules for one target each, by its name.
	Targets map[string]TargetSettings `toml:"target"`
	// Roles limit their members further: who is in at least one may do only what one of them lets.
	Roles map[string]RoleSettings `toml:"role"`
	// Files are Cedar policies of one's own, relative to the configuration's folder.
	Files []string `toml:"files"`
}

// TargetSettings tighten the rules for one target.
type TargetSettings struct {
	ReadOnly      bool     `toml:"read_only"`
	Capabilities  []string `toml:"capabilities"`    // when given, only these of those that are on
	Forbid        []string `toml:"forbid"`          // added to those of all targets
	WritesPerHour int      `toml:"writes_per_hour"` // when given, instead of that of all targets if lower
	// Guests, Pools, Tags and the rest are as in Settings, for guests of this target. In upgrade_pools and reboot_pools "*" is
	// every guest of it.
	Guests       []string `toml:"guests"`
	Pools        []string `toml:"pools"`
	Tags         []string `toml:"tags"`
	UpgradePools []string `toml:"upgrade_pools"`
	UpgradeTags  []string `toml:"upgrade_tags"`
	RebootPools  []string `toml:"reboot_pools"`
	RebootTags   []string `toml:"reboot_tags"`
}

// RoleSettings say what members of a role may do.
type RoleSettings struct {
	Members      []string `toml:"members"`      // "agent:NAME" and "person:NAME"; roles from sign-in count too
	Capabilities []string `toml:"capabilities"` // of those that are on; none: members only read
	Targets      []string `toml:"targets"`      // where members may change something; none: all
	Guests       []string `toml:"guests"`       // as in Settings, within those
	Pools        []string `toml:"pools"`
	Tags         []string `toml:"tags"`
}

// rules are settings that were understood.
type rules struct {
	readOnly     bool
	capabilities []string
	withholdRuns bool
	scope        scope
	within       []within
	forbid       []pattern
	rungs        map[gate.Kind]gate.Rung
	standIn      gate.Rung // RungDenied for off
	fourEyes     bool
	writes       int
	undoPoints   []gate.Kind
	pruneAfter   time.Duration
	pruneBeside  int
	windows      []window
	planTTL      time.Duration
	waitTTL      time.Duration
	arming       bool
	approvalTTL  time.Duration
	taintFor     time.Duration
	lockWait     time.Duration
	afterText    []atLeast
	commands     []atLeast
	backupBefore time.Duration // 0 = not asked for
	targets      map[string]targetRules
	roles        map[string]roleRules
	warnings     []string
}

type targetRules struct {
	readOnly     bool
	limited      bool // capabilities were given
	capabilities []string
	forbid       []pattern
	writes       int
	scope        scope
	within       []within
}

type roleRules struct {
	members      []string
	capabilities []string
	targets      []string
	scope        scope
}

// parse understands the settings, or says which key cannot be meant and what is nearest.
func (s Settings) parse() (*rules, error) {
	r := &rules{readOnly: s.ReadOnly, arming: s.Arming, fourEyes: s.FourEyes, rungs: map[gate.Kind]gate.Rung{}, targets: map[string]targetRules{}, roles: map[string]roleRules{}}
	var err error
	if r.capabilities, err = capabilities("policy.capabilities", s.Capabilities); err != nil {
		return nil, err
	}
	if r.scope, err = parseScope("policy", s.Guests, s.Pools, s.Tags); err != nil {
		return nil, err
	}
	if r.within, err = parseWithin("", s.UpgradePools, s.UpgradeTags, s.RebootPools, s.RebootTags); err != nil {
		return nil, err
	}
	if r.scope.all {
		r.warnings = append(r.warnings, `policy.guests holds "*": every guest is in scope, also those that come later`)
	}
	if r.forbid, err = parsePatterns("policy.forbid", s.Forbid); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(s.Rungs)) {
		if err := r.setRung(name, s.Rungs[name]); err != nil {
			return nil, err
		}
	}
	if r.afterText, err = parseAtLeast("policy.after_free_text", s.AfterFreeText, kindsNamed); err != nil {
		return nil, err
	}
	if r.commands, err = parseAtLeast("policy.command_risk", s.CommandRisk, risksNamed); err != nil {
		return nil, err
	}
	switch s.StandIn {
	case "", "off":
		r.standIn = gate.RungDenied
	case "dialog":
		r.standIn = gate.RungDialog
	case "phrase":
		r.standIn = gate.RungPhrase
	default:
		return nil, unknown("policy.stand_in", s.StandIn, []string{"off", "dialog", "phrase"})
	}
	if s.WritesPerHour < 0 {
		return nil, fmt.Errorf("policy.writes_per_hour is %d: give the number of changes an hour, or 0 for no bound", s.WritesPerHour)
	}
	r.writes = s.WritesPerHour
	if s.UndoPointsDays < 0 || s.UndoPointsDays > 3650 || s.UndoPointsKeep < 0 || s.UndoPointsKeep > 1000 {
		return nil, fmt.Errorf("policy.undo_points_days is %d and policy.undo_points_keep %d: give 1 to 3650 days, or 0 to delete none, and keep 1 to 1000", s.UndoPointsDays, s.UndoPointsKeep)
	}
	if s.UndoPointsKeep > 0 && s.UndoPointsDays == 0 {
		return nil, fmt.Errorf("policy.undo_points_keep is set without policy.undo_points_days: give the days after which older ones are deleted")
	}
	r.pruneAfter, r.pruneBeside = time.Duration(s.UndoPointsDays)*24*time.Hour, cmp.Or(s.UndoPointsKeep, 3)
	for _, name := range s.UndoPoints {
		known := []string{}
		for _, row := range gate.Table() {
			known = append(known, string(row.Kind))
		}
		if !slices.Contains(known, name) {
			return nil, unknown("policy.undo_points", name, known)
		}
		r.undoPoints = append(r.undoPoints, gate.Kind(name))
	}
	for i, text := range s.Windows {
		w, err := parseWindow(text)
		if err != nil {
			return nil, fmt.Errorf("policy.windows[%d]: %w", i, err)
		}
		r.windows = append(r.windows, w)
	}
	for _, d := range []struct {
		key, text string
		to        *time.Duration
		usual     time.Duration
	}{
		{"policy.plan_ttl", s.PlanTTL, &r.planTTL, 15 * time.Minute},
		{"policy.wait_ttl", s.WaitTTL, &r.waitTTL, 12 * time.Hour},
		{"policy.approval_ttl", s.ApprovalTTL, &r.approvalTTL, 15 * time.Minute},
		{"policy.taint_for", s.TaintFor, &r.taintFor, time.Hour},
		{"policy.lock_wait", s.LockWait, &r.lockWait, 0},
	} {
		if *d.to, err = lifetime(d.key, d.text, d.usual); err != nil {
			return nil, err
		}
	}
	switch s.RecordCommands {
	case "", "redacted":
	case "commitment":
		r.withholdRuns = true
	default:
		return nil, fmt.Errorf("policy.record_commands is %q: give redacted or commitment", s.RecordCommands)
	}
	if text := s.BackupBeforeDestroy; text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < time.Minute || d > 366*24*time.Hour {
			return nil, fmt.Errorf("policy.backup_before_destroy is %q: give a time between 1m and 8784h, such as 24h", text)
		}
		r.backupBefore = d
	}
	for _, name := range slices.Sorted(maps.Keys(s.Targets)) {
		if err := r.addTarget(name, s.Targets[name]); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Roles)) {
		if err := r.addRole(name, s.Roles[name]); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *rules) addTarget(name string, s TargetSettings) error {
	key := "policy.target." + name
	t := targetRules{readOnly: s.ReadOnly, limited: s.Capabilities != nil, writes: s.WritesPerHour}
	var err error
	if t.capabilities, err = capabilities(key+".capabilities", s.Capabilities); err != nil {
		return err
	}
	if t.forbid, err = parsePatterns(key+".forbid", s.Forbid); err != nil {
		return err
	}
	if s.WritesPerHour < 0 {
		return fmt.Errorf("%s.writes_per_hour is %d: give the number of changes an hour", key, s.WritesPerHour)
	}
	if t.scope, err = parseScope(key, s.Guests, s.Pools, s.Tags); err != nil {
		return err
	}
	if t.within, err = parseWithin(name, s.UpgradePools, s.UpgradeTags, s.RebootPools, s.RebootTags); err != nil {
		return err
	}
	r.targets[name] = t
	return nil
}

func (r *rules) addRole(name string, s RoleSettings) error {
	key := "policy.role." + name
	role := roleRules{members: s.Members, targets: s.Targets}
	var err error
	for _, m := range s.Members {
		if sort, who, ok := strings.Cut(m, ":"); !ok || who == "" || sort != "agent" && sort != "person" {
			return fmt.Errorf("%s.members holds %q: members are written agent:NAME or person:NAME", key, m)
		}
	}
	if role.capabilities, err = capabilities(key+".capabilities", s.Capabilities); err != nil {
		return err
	}
	if role.scope, err = parseScope(key, s.Guests, s.Pools, s.Tags); err != nil {
		return err
	}
	r.roles[name] = role
	return nil
}

// setRung applies one entry of policy.rungs, for a kind, or for all kinds of a class.
func (r *rules) setRung(name, text string) error {
	key := "policy.rungs." + name
	rung, err := gate.ParseRung(text)
	if err != nil {
		var valid []string
		for _, x := range gate.Rungs() {
			valid = append(valid, x.String())
		}
		return unknown(key, text, valid)
	}
	kinds, valid := kindsNamed(name)
	if len(kinds) == 0 {
		return unknown("policy.rungs", name, valid)
	}
	for _, k := range kinds {
		kind := gate.Kind(k)
		if kind == gate.KindGoverns && rung < governsFloor {
			return fmt.Errorf("%s is %q: changes of what castellan itself depends on never take less than %s", key, text, governsFloor)
		}
		// A kind's own entry wins over that of its class.
		if _, set := r.rungs[kind]; set && k != name {
			continue
		}
		r.rungs[kind] = rung
	}
	return nil
}

// kindsNamed lists the kinds that a name of a kind or class means, and the names that there are.
func kindsNamed(name string) (kinds, valid []string) {
	for _, row := range gate.Table() {
		valid = append(valid, string(row.Kind))
		if string(row.Kind) == name {
			return []string{name}, nil
		}
		if row.Class != "" {
			valid = append(valid, string(row.Class))
			if string(row.Class) == name {
				kinds = append(kinds, string(row.Kind))
			}
		}
	}
	return kinds, valid
}

func risksNamed(name string) (risks, valid []string) {
	valid = []string{string(gate.RiskLow), string(gate.RiskMedium), string(gate.RiskHigh)}
	if slices.Contains(valid, name) {
		risks = []string{name}
	}
	return risks, valid
}

// atLeast is an approval below which something is refused; RungDenied refuses it always.
type atLeast struct {
	key  string   // of the setting
	name string   // as written, "all" for everything
	of   []string // what it is about; none = everything
	rung gate.Rung
}

func parseAtLeast(key string, entries map[string]string, named func(string) (of, valid []string)) ([]atLeast, error) {
	var out []atLeast
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		a := atLeast{key: key + "." + name, name: name, rung: gate.RungDenied}
		if text := entries[name]; text != gate.RungDenied.String() {
			var err error
			if a.rung, err = gate.ParseRung(text); err != nil {
				var valid []string
				for _, r := range append(gate.Rungs(), gate.RungDenied) {
					valid = append(valid, r.String())
				}
				return nil, unknown(a.key, text, valid)
			}
		}
		if name != "all" {
			var valid []string
			if a.of, valid = named(name); len(a.of) == 0 {
				return nil, unknown(key, name, append([]string{"all"}, valid...))
			}
		}
		out = append(out, a)
	}
	return out, nil
}

// refuses is the statement that keeps an entry, for requests of which a condition holds.
func (a atLeast) refuses(id, attribute, when, reason string) statement {
	cond := when
	if len(a.of) > 0 {
		cond += " && " + set(a.of) + ".contains(context." + attribute + ")"
	}
	hint := "Whoever may edit the configuration changes " + a.key + "."
	if a.rung != gate.RungDenied {
		cond += fmt.Sprintf(" && context.level < %d", int(a.rung))
	}
	return statement{id: id + "." + a.name, action: []string{"write"}, setting: a.key, reason: reason, hint: hint,
		text: "forbid (principal, action == Action::\"write\", resource)\nwhen { " + cond + " };"}
}

// governsFloor is the least approval of a change that governs.
const governsFloor = gate.RungPasskey

func (r *rules) rung(row gate.Row) gate.Rung {
	if rung, ok := r.rungs[row.Kind]; ok {
		return rung
	}
	return row.Rung
}

func capabilities(key string, names []string) ([]string, error) {
	valid := gate.Capabilities()
	var out []string
	for _, n := range names {
		if !slices.Contains(valid, n) {
			return nil, unknown(key, n, valid)
		}
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

func lifetime(key, text string, usual time.Duration) (time.Duration, error) {
	if text == "" {
		return usual, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 10*time.Second || d > 7*24*time.Hour {
		return 0, fmt.Errorf("%s is %q: give a time between 10s and 168h, such as 15m", key, text)
	}
	return d, nil
}

// unknown is the error for a word that a key does not take.
func unknown(key, word string, valid []string) error {
	near := ""
	if n := gate.Nearest(word, valid); n != "" {
		near = fmt.Sprintf("; did you mean %q?", n)
	}
	return fmt.Errorf("%s holds %q, which it does not know%s (it takes: %s)", key, word, near, strings.Join(valid, ", "))
}

// pattern is one entry of a forbid list: a Cedar pattern over context.asked.
type pattern struct {
	text string // as written
	like string // with * for any text, in lower case, not yet escaped
}

var methodPath = &regex.Lazy{Expr: `(?i)^(get|post|put|delete|\*) +(/.*)$`}

var placeholder = &regex.Lazy{Expr: `\{[^{}]*\}`}

// anonymous takes the names out of placeholders, so that {vmid} and {id} are the same place.
func anonymous(s string) string { return placeholder.ReplaceAllString(s, "{}") }

// asked is what patterns are compared with.
func asked(operation, api string) string {
	return strings.ToLower(operation) + "\n" + anonymous(strings.ToLower(api))
}

// parsePatterns turns entries into patterns over the two lines of context.asked: castellan's operation, and the
// operation of the API.
func parsePatterns(key string, entries []string) ([]pattern, error) {
	var out []pattern
	for _, e := range entries {
		text := strings.ToLower(strings.TrimSpace(e))
		if strings.Trim(text, "* ") == "" || strings.ContainsAny(text, "\n\r\x00") {
			return nil, fmt.Errorf("%s holds %q: give a name, a part of one, or METHOD /path; to forbid every change, set policy.read_only", key, e)
		}
		switch m := methodPath.FindStringSubmatch(text); {
		case m != nil:
			out = append(out, pattern{e, "*\n" + m[1] + " " + anonymous(m[2])})
		case strings.HasPrefix(text, "/"):
			path := strings.TrimSuffix(anonymous(text), "/")
			out = append(out, pattern{e, "*\n* " + path}, pattern{e, "*\n* " + path + "/*"})
		default:
			out = append(out, pattern{e, "*" + anonymous(text) + "*"})
		}
	}
	return out, nil
}

// window is a time of the week.
type window struct {
	days     [7]bool
	from, to int // minutes of the day; to may be 1440; from > to spans midnight
}

var dayNames = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

var windowForm = &regex.Lazy{Expr: `^(?:([a-z]{3})(?:-([a-z]{3}))? +)?(\d\d):(\d\d)-(\d\d):(\d\d)$`}

func parseWindow(text string) (window, error) {
	var w window
	bad := fmt.Errorf("%q is no time of the week; write mon-fri 08:00-18:00, sat 22:00-04:00 or 01:00-05:00", text)
	m := windowForm.FindStringSubmatch(strings.ToLower(strings.TrimSpace(text)))
	if m == nil {
		return w, bad
	}
	first, last := 0, 6
	if m[1] != "" {
		if first = slices.Index(dayNames, m[1]); first < 0 {
			return w, bad
		}
		last = first
		if m[2] != "" {
			if last = slices.Index(dayNames, m[2]); last < 0 {
				return w, bad
			}
		}
	}
	for d := first; ; d = (d + 1) % 7 {
		w.days[d] = true
		if d == last {
			break
		}
	}
	clock := func(h, m string) int {
		hh, _ := strconv.Atoi(h)
		mm, _ := strconv.Atoi(m)
		if mm > 59 || hh > 24 || hh == 24 && mm > 0 {
			return -1
		}
		return hh*60 + mm
	}
	w.from, w.to = clock(m[3], m[4]), clock(m[5], m[6])
	if w.from < 0 || w.to < 0 || w.from == w.to || w.from == 1440 {
		return w, bad
	}
	return w, nil
}

// has says whether t lies within; a span over midnight belongs to the day on which it begins.
func (w window) has(t time.Time) bool {
	at, day := t.Hour()*60+t.Minute(), int(t.Weekday())
	if w.from < w.to {
		return w.days[day] && at >= w.from && at < w.to
	}
	return w.days[day] && at >= w.from || w.days[(day+6)%7] && at < w.to
}
