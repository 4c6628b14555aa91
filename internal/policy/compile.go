package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
)

// statement is one Cedar policy with the setting that it comes from.
type statement struct {
	id      string
	action  []string // the actions in its scope; nil: any
	kind    gate.Kind
	setting string // the key, for refusals
	reason  string // why it refuses
	hint    string
	names   bool // whether the refusal says which object it is about
	text    string
}

// compile turns the settings into Cedar, in the order of printing.
func (r *rules) compile() []statement {
	var out []statement
	add := func(s statement) { out = append(out, s) }
	add(statement{id: "read", action: []string{"read"}, setting: "",
		text: "permit (principal, action == Action::\"read\", resource)\nwhen { context.effect == \"read\" };"})
	for _, row := range gate.Table() {
		if row.Capability != "" && !slices.Contains(r.capabilities, row.Capability) {
			continue
		}
		add(statement{id: "table." + string(row.Kind), action: []string{"call", "write"}, kind: row.Kind, setting: "policy.capabilities",
			text: fmt.Sprintf("permit (principal, action in [Action::\"call\", Action::\"write\"], resource)\nwhen { context.kind == %s && context.level >= %d };",
				quote(string(row.Kind)), int(r.rung(row)))})
	}
	add(statement{id: "governs", action: []string{"write"}, setting: "policy.rungs.governs",
		reason: "it changes what castellan itself depends on, which takes a passkey",
		text:   fmt.Sprintf("forbid (principal, action == Action::\"write\", resource)\nwhen { context.governs && context.level < %d };", int(governsFloor))})
	add(statement{id: "taint", action: []string{"write"}, setting: "policy.taint_for",
		reason: "text of outsiders (notes, logs, descriptions) was read within policy.taint_for",
		text:   fmt.Sprintf("forbid (principal, action == Action::\"write\", resource)\nwhen { context.tainted && context.effect != \"read\" && context.level < %d };", int(gate.RungRestated))})
	for _, a := range r.afterText {
		s := a.refuses("after_free_text", "kind", "context.tainted && context.effect != \"read\"", a.key+" refuses this while text of outsiders (notes, logs, descriptions) was read within policy.taint_for")
		s.hint = "Wait until policy.taint_for is over, or whoever may edit the configuration changes " + a.key + " or policy.taint_for."
		add(s)
	}
	for _, a := range r.commands {
		add(a.refuses("command_risk", "command_risk", "context.command_risk != \"\"", a.key+" refuses what would be run"))
	}
	if r.readOnly {
		add(statement{id: "read_only", action: []string{"call", "write"}, setting: "policy.read_only",
			reason: "the master switch policy.read_only is on: nothing is changed",
			hint:   "A person sets policy.read_only = false: in the configuration, or with castellan config set where it was set while castellan runs (get_settings says where).",
			text:   "forbid (principal, action in [Action::\"call\", Action::\"write\"], resource)\nwhen { context.effect != \"read\" };"})
	}
	if r.scope.limits() {
		add(statement{id: "scope", names: true, action: []string{"write"}, setting: "policy.guests, policy.pools, policy.tags",
			reason: "it touches something outside the guests that policy.guests, policy.pools and policy.tags allow",
			hint:   scopeHint("policy.guests", "policy.pools", "policy.tags"),
			text:   "forbid (principal, action == Action::\"write\", resource)\nunless {\n  " + r.scope.cedar() + "\n};"})
	}
	for _, w := range r.within {
		add(w.statement())
	}
	out = append(out, forbids("forbid", "policy.forbid", "", r.forbid)...)
	if r.backupBefore > 0 {
		add(statement{id: "backup_before_destroy", names: true, action: []string{"write"}, setting: "policy.backup_before_destroy",
			reason: "policy.backup_before_destroy asks for a backup of it that is no older than " + r.backupBefore.String() + ", and none is known",
			hint:   "Make one with backup_guest, then plan again; backup_freshness shows what is known.",
			text: fmt.Sprintf("forbid (principal, action == Action::\"write\", resource)\nwhen { [\"data\", \"rollback\"].contains(context.kind) && context.effect == \"destroy\" && resource.use == \"acts\" &&\n"+
				"  [\"guest\", \"volume\"].contains(resource.kind) && resource.vmid >= 0 && resource.backup_age > %d }\n"+
				"unless { context.api like \"*/vzdump\" || context.api like \"*/cluster/backup*\" || resource.name like \"*:backup/*\" };", int64(r.backupBefore/time.Minute))})
	}
	if r.writes > 0 {
		add(rate("rate", "policy.writes_per_hour", "", r.writes))
	}
	if len(r.windows) > 0 {
		add(statement{id: "window", action: []string{"call", "write"}, setting: "policy.windows",
			reason: "changes are allowed only in the times of policy.windows",
			hint:   "Wait for the next window, or have policy.windows changed.",
			text:   "forbid (principal, action in [Action::\"call\", Action::\"write\"], resource)\nwhen { context.effect != \"read\" && !context.in_window };"})
	}
	for _, name := range slices.Sorted(maps.Keys(r.targets)) {
		out = append(out, r.targets[name].compile(name)...)
	}
	out = append(out, r.compileRoles()...)
	out = append(out, builtInRoles()...)
	add(statement{id: "approve", action: []string{"approve"}, setting: "",
		text: "permit (principal, action == Action::\"approve\", resource)\nwhen {\n  context.level <= 3 ||\n  context.level == 4 && (principal.strength == \"session\" || principal.strength == \"passkey\") ||\n  principal.strength == \"passkey\"\n};"})
	if r.fourEyes {
		add(statement{id: "four_eyes", action: []string{"approve"}, setting: "policy.four_eyes",
			reason: "policy.four_eyes asks for an approver other than the person for whom the plan was made",
			hint:   "Another person approves it.",
			text:   "forbid (principal, action == Action::\"approve\", resource)\nwhen { context.level >= 3 && (principal.person == \"\" || principal.person == context.requester_person) };"})
	}
	return out
}

func forbids(id, setting, target string, patterns []pattern) []statement {
	var out []statement
	add := func(name, reason, hint, like string) {
		when := "context.asked like " + quote(like)
		if target != "" {
			when = "context.target == " + quote(target) + " && " + when
		}
		out = append(out, statement{id: id + "." + name, action: []string{"read", "call", "write"}, setting: setting, reason: reason, hint: hint,
			text: "forbid (principal, action in [Action::\"read\", Action::\"call\", Action::\"write\"], resource)\nwhen { " + when + " };"})
	}
	for i, p := range patterns {
		add(fmt.Sprint(i), fmt.Sprintf("%s forbids %q", setting, p.text), "Whoever may edit the configuration takes the entry out of "+setting+".", p.like)
	}
	if len(patterns) > 0 { // a list of calls may hold what is forbidden, and is no call of that name
		add("nested", "calls inside a call are not taken where "+setting+" forbids something", "Make the calls one by one, or with plan_many.", "*\npost /nodes/{}/execute")
	}
	return out
}

func rate(id, setting, target string, n int) statement {
	when := fmt.Sprintf("context.effect != \"read\" && context.writes_last_hour >= %d", n)
	if target != "" {
		when = "context.target == " + quote(target) + " && " + when
	}
	return statement{id: id, action: []string{"write"}, setting: setting,
		reason: fmt.Sprintf("%d changes were sent to this target within the last hour, as many as %s allows", n, setting),
		hint:   "Wait, or have " + setting + " raised.",
		text:   "forbid (principal, action == Action::\"write\", resource)\nwhen { " + when + " };"}
}

func (t targetRules) compile(name string) []statement {
	key, id := "policy.target."+name, "target."+name
	var out []statement
	if t.readOnly {
		out = append(out, statement{id: id + ".read_only", action: []string{"call", "write"}, setting: key + ".read_only",
			reason: key + ".read_only is on: nothing is changed on this target",
			hint:   "Whoever may edit the configuration sets " + key + ".read_only = false.",
			text: "forbid (principal, action in [Action::\"call\", Action::\"write\"], resource)\nwhen { context.target == " + quote(name) +
				" && context.effect != \"read\" };"})
	}
	if t.limited {
		out = append(out, statement{id: id + ".capabilities", action: []string{"call", "write"}, setting: key + ".capabilities",
			reason: key + ".capabilities does not have the capability that this takes",
			hint:   "Whoever may edit the configuration adds it there.",
			text: "forbid (principal, action in [Action::\"call\", Action::\"write\"], resource)\nwhen { context.target == " + quote(name) +
				" && context.capability != \"\" }\nunless { " + containsOrFalse(t.capabilities, "context.capability") + " };"})
	}
	out = append(out, forbids(id+".forbid", key+".forbid", name, t.forbid)...)
	if t.scope.limits() {
		out = append(out, statement{id: id + ".scope", names: true, action: []string{"write"}, setting: key + ".guests, .pools, .tags",
			reason: "it touches something outside the guests that " + key + ".guests, .pools and .tags allow",
			hint:   scopeHint(key+".guests", key+".pools", key+".tags"),
			text:   "forbid (principal, action == Action::\"write\", resource)\nwhen { context.target == " + quote(name) + " }\nunless {\n  " + t.scope.cedar() + "\n};"})
	}
	for _, w := range t.within {
		if !w.scope.all {
			out = append(out, w.statement())
		}
	}
	if t.writes > 0 {
		out = append(out, rate(id+".rate", key+".writes_per_hour", name, t.writes))
	}
	return out
}

func containsOrFalse(words []string, of string) string {
	if len(words) == 0 {
		return "false"
	}
	return set(words) + ".contains(" + of + ")"
}

// compileRoles limits those who are in a role to what one of their roles lets them.
func (r *rules) compileRoles() []statement {
	if len(r.roles) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(r.roles))
	var call, write []string
	for _, n := range names {
		role := r.roles[n]
		in := "principal.roles.contains(" + quote(n) + ") && " + "(context.capability == \"\" || " + containsOrFalse(role.capabilities, "context.capability") + ")"
		if len(role.targets) > 0 {
			in += " && " + set(role.targets) + ".contains(context.target)"
		}
		call = append(call, "("+in+")")
		if role.scope.limits() {
			in += " && (" + role.scope.cedar() + ")"
		}
		write = append(write, "("+in+")")
	}
	reason := "no role of this caller allows it (policy.role)"
	hint := "Whoever may edit the configuration changes policy.role." + strings.Join(names, " or policy.role.") + "."
	limit := func(action string, allowed []string) statement {
		return statement{id: "roles." + action, action: []string{action}, setting: "policy.role", reason: reason, hint: hint,
			text: "forbid (principal, action == Action::\"" + action + "\", resource)\nwhen { principal.roles.containsAny(" + set(names) + ") }\nunless {\n  " +
				strings.Join(allowed, " ||\n  ") + "\n};"}
	}
	return []statement{limit("call", call), limit("write", write)}
}

// builtInRoles limit whoever has one of the four: only operators and administrators change anything, and of those who
// signed in only approvers and administrators approve. Who has none of them is a process of this machine.
func builtInRoles() []statement {
	any, changing, approving := set(gate.Roles()), set([]string{gate.RoleOperator, gate.RoleAdministrator}), set([]string{gate.RoleApprover, gate.RoleAdministrator})
	return []statement{
		{id: "role.change", action: []string{"call", "write"}, setting: "roles",
			reason: "changes take the role operator, which this caller does not have",
			hint:   "An administrator gives the role on the console (or castellan people roles), or the client asks for the scope operate.",
			text: "forbid (principal, action in [Action::\"call\", Action::\"write\"], resource)\nwhen { context.effect != \"read\" && principal.roles.containsAny(" + any +
				") }\nunless { principal.roles.containsAny(" + changing + ") };"},
		{id: "role.approve", action: []string{"approve"}, setting: "roles",
			reason: "approving takes the role approver, which this person does not have",
			hint:   "An administrator gives the role on the console (or castellan people roles), or another person approves.",
			text: "forbid (principal, action == Action::\"approve\", resource)\nwhen { principal.strength == \"session\" || principal.strength == \"passkey\" }\nunless { principal.roles.containsAny(" +
				approving + ") };"},
	}
}

// scopeHint says how a scope is widened, and that it never holds more than guests.
func scopeHint(guests, pools, tags string) string {
	return "Nodes, storages and the site itself are in no such scope: changes of them take a caller without one. For a guest, whoever may edit the configuration adds it to " + guests + ", or its pool or tag to " + pools + " or " + tags + "."
}
