package gate

import (
	"slices"
	"strings"
)

// SaysApproveNewer approves a plan and lets a newer version of each of its packages be taken, from the same archive, with nothing
// added or removed. It is a verdict of its own, so that whoever signs a plan signs which of the two it was.
const SaysApproveNewer = "approve newer"

// newerParam lets a run that installs exactly what is named take newer versions of it. No plan holds it: who approves says so.
const newerParam = "newer"

// exact says whether a run installs packages that its request names one by one.
func (r Request) exact() bool {
	return r.IsRun() && strings.HasSuffix(r.Operation, "/upgrade") && len(r.Get("package")) > 0
}

// MayAllowNewer says whether there is something in the plan of which its approver may allow newer versions.
func (p *Plan) MayAllowNewer() bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.API != nil && s.API.exact() })
}

// notOurs refuses a step that says beforehand what only its approver may.
func (s *Step) notOurs() *Error {
	if s.API == nil || !s.API.exact() || len(s.API.Get(newerParam)) == 0 {
		return nil
	}
	return Fail(ErrInvalid, "Leave "+newerParam+" out: who approves the plan as a person may allow it there.", "step %d would take newer versions than it names, which only an approver allows", s.Number)
}

// Says is the verdict that this evidence of an approval stands for.
func (e Evidence) Says() string {
	if e.AllowNewer {
		return SaysApproveNewer
	}
	return SaysApprove
}

// allowsNewer says whether everybody who approved this plan allowed newer versions. What a caller repeats, a dialog or a file never
// does, and one approver of two who did not tick it is enough against it.
func (g *Gate) allowsNewer(r *PlanRecord) bool {
	allowed := false
	for _, a := range r.Approvals {
		if a.Plan != r.Plan.ID || a.Digest != r.Plan.Digest || !g.genuine(a) {
			continue
		}
		if !a.Evidence.AllowNewer {
			return false
		}
		allowed = true
	}
	return allowed
}

// newer tells readers of a plan how it stands with newer versions; empty where it has no packages.
func (g *Gate) newer(r *PlanRecord) string {
	switch {
	case !r.Plan.MayAllowNewer():
		return ""
	case r.State == PlanProposed:
		return "Exactly these versions. A person who approves it may allow newer ones of the same packages from the same archives; nothing is added or removed by that."
	case g.allowsNewer(r):
		return "Newer versions of the same packages from the same archives are allowed, by who approved it."
	}
	return "Exactly these versions."
}
