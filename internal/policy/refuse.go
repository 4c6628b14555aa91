package policy

import (
	"fmt"
	"strings"

	"castellan/internal/gate"
)

// refuse says why a request is denied and what would let it through: our setting, and the right that Proxmox asks for.
func (p *Policy) refuse(q *request, why answer) gate.Decision {
	d := gate.Decision{Verdict: gate.VerdictDeny, Rung: gate.RungDenied, Policies: why.ids, Set: p.digest}
	if len(why.errors) > 0 {
		d.Reason = "a policy could not be evaluated, and then nothing is allowed: " + strings.Join(why.errors, "; ")
		d.Hint = "Whoever may edit the configuration repairs that policy; castellan policy check names what is wrong."
		return d
	}
	var reasons, hints []string
	for _, id := range why.ids {
		s := p.own[id]
		if s.reason != "" {
			reason := s.reason
			if object := described(q.object); s.names && object != "" {
				reason += ": " + object
			}
			reasons = append(reasons, reason)
		}
		if s.hint != "" {
			hints = append(hints, s.hint)
		}
	}
	if len(reasons) > 0 {
		d.Reason, d.Hint = strings.Join(reasons, "; "), strings.Join(hints, " ")
		return d
	}
	// Nothing forbids it: no permit was there.
	row := p.row(q.kind)
	switch {
	case q.action == "approve":
		d.Reason = "no policy lets this caller approve it"
		d.Hint = "A person whom policy names approves it."
	case row.Capability == "":
		d.Reason = fmt.Sprintf("no policy allows %s", describeKind(q.kind))
		d.Hint = "castellan policy explain shows what was asked."
	default:
		d.Reason = fmt.Sprintf("the capability %q is off (policy.capabilities), which %s takes", row.Capability, describeKind(q.kind))
		d.Hint = fmt.Sprintf("A person turns it on: castellan capability on %s.", row.Capability)
		if rung := p.rules.rung(row); rung > gate.RungNone {
			if then := p.settle(rung, gate.RungNone, nil, row.Kind == gate.KindGoverns, nil); then.Verdict == gate.VerdictDeny {
				d.Hint += fmt.Sprintf(" It then takes the approval %s, which cannot be had here", rung)
				if row.Kind != gate.KindGoverns {
					d.Hint += " unless policy.stand_in is set too"
				}
				d.Hint += "."
			}
		}
		if grant := p.grant(q, row); grant != "" {
			d.Hint += " " + grant
		}
	}
	return d
}

func (p *Policy) row(k gate.Kind) gate.Row {
	if row, ok := p.rows[k]; ok {
		return row
	}
	return p.rows[gate.KindUnknown]
}

func describeKind(k gate.Kind) string {
	switch k {
	case "":
		return "it"
	case gate.KindUnknown:
		return "an operation that nobody has judged"
	}
	return "a change of kind " + string(k)
}

func described(o gate.ObjectFacts) string {
	if o.Object.Kind == "" {
		return ""
	}
	out := o.Object.String()
	if !o.Known && o.Object.Kind == gate.ObjectGuest {
		out += " (of which nothing is known)"
	}
	return out
}

// grant is the right that Proxmox asks of castellan's own user for such a change, with the command that gives it.
func (p *Policy) grant(q *request, row gate.Row) string {
	if row.Privilege == "" || q.product != "" && q.product != "pve" {
		return ""
	}
	return "Proxmox asks for a right of its own, " + row.Privilege + ", which only an administrator there gives: " +
		grantCommand(p.user(q.target), grantPath(q), row.Privilege)
}

// user is castellan's own user on a target; where none is named and there is only one, that one's.
func (p *Policy) user(target string) string {
	if target == "" && len(p.users) == 1 {
		for _, u := range p.users {
			return u
		}
	}
	return p.users[target]
}

func grantPath(q *request) string {
	if q.object.Object.Kind == gate.ObjectGuest && vmid(q.object.Object) >= 0 {
		return "/vms/" + q.object.Object.ID
	}
	return "/"
}

// grantCommand is what gives a privilege on a path to a user or token ("user@realm!token"); empty stands for a
// placeholder. A token with privilege separation has only what its user has too, so both are given it.
func grantCommand(user, path, privilege string) string {
	if user == "" {
		user = "USER@REALM!TOKEN"
	}
	user = strings.ReplaceAll(user, "'", "")
	role := "castellan-" + privilege
	owner, _, token := strings.Cut(user, "!")
	out := fmt.Sprintf("pveum role add %s --privs '%s' && pveum acl modify %s --users '%s' --roles %s", role, privilege, path, owner, role)
	if token {
		out += fmt.Sprintf(" && pveum acl modify %s --tokens '%s' --roles %s", path, user, role)
	}
	return out
}
