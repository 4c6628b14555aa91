package policy

import (
	"fmt"
	"slices"
	"strings"

	"castellan/internal/gate"
	"castellan/internal/rights"
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

// grant are the rights that Proxmox asks of castellan's own user for such a change, with the command that gives them. The
// lines for a shell of Proxmox are doctor's: whoever is refused is mostly a model, which cannot run them.
func (p *Policy) grant(q *request, row gate.Row) string {
	if q.product != "" && q.product != "pve" {
		return ""
	}
	path, need := grantPath(q), rights.OfKind(row.Kind, rights.Version{})
	there := at(need, rights.PlaceOf(path))
	if len(there) == 0 && len(need) > 0 {
		path = need[0].Place.Path()
		there = at(need, need[0].Place)
	}
	if len(there) == 0 {
		return ""
	}
	what := strings.Join(there, ", ")
	if older := at(rights.OfKind(row.Kind, rights.Versions()[0]), rights.PlaceOf(path)); !slices.Equal(older, there) {
		what += " (on " + rights.Versions()[0].String() + ": " + strings.Join(older, ", ") + ")"
	}
	return "Proxmox asks for rights of its own, " + what + ", which only an administrator there gives: " + p.mint(q.target) + " (castellan doctor has the commands for a node)"
}

func at(all []rights.Right, place rights.Place) []string {
	var out []string
	for _, r := range all {
		if r.Place == place {
			out = append(out, r.Privilege)
		}
	}
	return out
}

// mint is the command that gives castellan's own user on a target what is switched on; where none is named and there is
// only one, that one's.
func (p *Policy) mint(target string) string {
	if target == "" && len(p.users) == 1 {
		for name := range p.users {
			target = name
		}
	}
	if target == "" {
		target = "NAME"
	}
	return "castellan mint --target " + target
}

func grantPath(q *request) string {
	if q.object.Object.Kind == gate.ObjectGuest && vmid(q.object.Object) >= 0 {
		return "/vms/" + q.object.Object.ID
	}
	return "/"
}
