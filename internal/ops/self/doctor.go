package self

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/rights"
)

// Doctor is what the operation asks of the process that it runs in.
type Doctor interface {
	// Contact tries each address of a target; a login that is refused is tried once.
	Contact(ctx context.Context, target string) ([]Contact, error)
	// Own looks at castellan itself: approvals, settings, store, ledger, files.
	Own(ctx context.Context) []Check
	// Enabled lists the capabilities that are switched on.
	Enabled(ctx context.Context) ([]string, error)
}

// The states of a check, from good to bad.
const (
	CheckOK          = "ok"
	CheckNote        = "note"
	CheckUnknown     = "unknown"
	CheckProblem     = "problem"
	CheckUnreachable = "unreachable"
)

// Check is one thing that was looked at.
type Check struct {
	Area  string `json:"area"`
	State string `json:"state"` // ok, note, unknown, problem, unreachable
	Text  string `json:"text"`
	Fix   string `json:"fix,omitempty"`
}

// Contact is one address of a target.
type Contact struct {
	Address     string
	Fault       string // empty: it answers
	Reached     bool
	Refused     bool
	Certificate string
	TrustedBy   string
	Ends        time.Time
	Skew        time.Duration
	Version     string
}

type doctorIn struct {
	Detail     string `json:"detail,omitempty" enum:"short,full" jsonschema:"default short"`
	Target     string `json:"target,omitempty" jsonschema:"default all"`
	Capability string `json:"capability,omitempty" jsonschema:"what it would take in Proxmox"`
}

type doctorOut struct {
	Verdict  string         `json:"verdict"`  // fine, problems or unreachable
	Problems []Check        `json:"problems"` // unreachable, problem and unknown
	Notes    []Check        `json:"notes,omitempty"`
	Good     []Check        `json:"good,omitempty"` // with detail full
	Targets  []targetHealth `json:"targets"`
	Here     tour           `json:"here"`
}

// tour tells who comes for the first time what can be done here.
type tour struct {
	Reads   string   `json:"reads"`
	Changes []string `json:"changes"`       // capabilities that are on and granted
	Limited []string `json:"limited"`       // on, but Proxmox does not grant all of it
	Off     []string `json:"off,omitempty"` // switched off here
	First   []string `json:"first"`         // calls to begin with
	How     string   `json:"how"`
}

type targetHealth struct {
	Name     string           `json:"name"`
	Product  string           `json:"product"`
	Version  string           `json:"version,omitempty"`
	Login    string           `json:"login,omitempty"`
	Can      []rights.Ability `json:"can,omitempty"`
	Commands []string         `json:"commands,omitempty"` // pveum lines that give what is missing, in their order
	Narrow   []string         `json:"narrow,omitempty"`   // pveum lines that take away what is too much, after the others
	RootOnly []string         `json:"root_only,omitempty"`
}

// maxLines bounds each list of an answer.
const maxLines = 60

func doctor(c Config) *gate.Operation {
	return gate.Control(gate.Declaration{
		Name: "doctor", Summary: "What works here, what the token may do in Proxmox, what is missing or too much, with the commands. Read", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "health check setup permissions token rights privileges pveum grant tls certificate version clock diagnose castellan hello first what can you do", Toolset: "front", Bounded: true,
	}, func(ctx context.Context, desk gate.Desk, in doctorIn) (doctorOut, error) {
		out := doctorOut{Problems: []Check{}, Targets: []targetHealth{}}
		if c.Doctor == nil {
			return out, gate.Fail(gate.ErrUnavailable, "Use castellan doctor on the command line.", "this process cannot look at itself")
		}
		if in.Capability != "" && !slices.Contains(gate.Capabilities(), in.Capability) {
			return out, gate.Fail(gate.ErrInvalid, "Give one of: "+strings.Join(gate.Capabilities(), ", "), "there is no capability %q", clip(in.Capability, 40))
		}
		enabled, err := c.Doctor.Enabled(ctx)
		if err != nil {
			return out, gate.Fail(gate.ErrUnavailable, "castellan config check", "the settings cannot be read: %v", err)
		}
		if in.Capability != "" && !slices.Contains(enabled, in.Capability) {
			enabled = append(slices.Clone(enabled), in.Capability)
		}
		slices.Sort(enabled)
		var checks []Check
		targets := desk.Targets()
		if in.Target != "" {
			t, err := desk.Target(in.Target)
			if err != nil {
				return out, err
			}
			targets = []gate.TargetInfo{t}
		}
		if len(targets) == 0 {
			checks = append(checks, Check{"targets", CheckProblem, "no target is configured", "castellan init"})
		}
		for _, t := range targets {
			h, more := c.examine(ctx, desk, t, enabled, in.Detail == "full")
			out.Targets, checks = append(out.Targets, h), append(checks, more...)
		}
		if !desk.Scoped() || desk.Principal().Agent == "" { // what this machine looks like is not for who may see a few guests only
			checks = append(checks, c.Doctor.Own(ctx)...)
		}
		out.sort(checks, in.Detail == "full")
		status, err := desk.Status(ctx)
		if err != nil {
			return out, err
		}
		out.Here = tourOf(out.Targets, enabled, status, desk)
		return out, nil
	})
}

// sort puts checks where they belong, the worst first, and gives the verdict.
func (out *doctorOut) sort(checks []Check, full bool) {
	rank := []string{CheckUnreachable, CheckProblem, CheckUnknown, CheckNote, CheckOK}
	slices.SortStableFunc(checks, func(a, b Check) int { return slices.Index(rank, a.State) - slices.Index(rank, b.State) })
	out.Verdict = "fine"
	for _, x := range checks {
		x.Text, x.Fix = clip(x.Text, 600), clip(x.Fix, 900)
		switch x.State {
		case CheckUnreachable, CheckProblem, CheckUnknown:
			if len(out.Problems) < maxLines {
				out.Problems = append(out.Problems, x)
			}
			switch {
			case x.State == CheckUnreachable:
				out.Verdict = "unreachable"
			case x.State == CheckProblem && out.Verdict == "fine":
				out.Verdict = "problems"
			}
		case CheckNote:
			if len(out.Notes) < maxLines {
				out.Notes = append(out.Notes, x)
			}
		default:
			if full && len(out.Good) < maxLines {
				out.Good = append(out.Good, x)
			}
		}
	}
}

func tourOf(targets []targetHealth, enabled []string, status map[string]gate.Decision, desk gate.Desk) tour {
	t := tour{Reads: "Everything that is asked is answered; secrets are left out.", Changes: []string{}, Limited: []string{},
		First: []string{}, How: "A change answers with a plan: read its sentence, then apply_plan as it says. A refusal names the setting or the Proxmox privilege that is missing."}
	if desk.Scoped() {
		t.Reads = "Only the guests of this caller's scope are shown."
	}
	limited := map[string]bool{}
	for _, x := range targets {
		for _, a := range x.Can {
			if a.Can == "no" || a.Can == "partly" {
				limited[a.Capability] = true
			}
		}
	}
	for _, c := range gate.Capabilities() {
		_, off := status[c]
		switch {
		case off || !slices.Contains(enabled, c):
			t.Off = append(t.Off, c)
		case limited[c]:
			t.Limited = append(t.Limited, c)
		default:
			t.Changes = append(t.Changes, c)
		}
	}
	for _, o := range desk.Operations() {
		if slices.Contains([]string{"list_guests", "guest_status", "list_nodes", "site_check", "find_operation"}, o.Name) {
			t.First = append(t.First, o.Name)
		}
	}
	return t
}

// support says whether a version still gets fixes; the dates are those that the vendor has announced.
func support(v rights.Version, now time.Time) (state, text string) {
	ends := map[int]string{7: "2024-07-31", 8: "2026-08-31"}
	switch end, known := ends[v.Major]; {
	case v.Major == 0:
		return CheckUnknown, "its version is not known"
	case known:
		at, err := time.Parse(time.DateOnly, end)
		switch {
		case err != nil:
		case now.After(at):
			return CheckProblem, fmt.Sprintf("Proxmox VE %s gets no fixes since %s: upgrade it", v, end)
		case at.Sub(now) < 180*24*time.Hour:
			return CheckNote, fmt.Sprintf("Proxmox VE %s gets fixes until %s", v, end)
		}
		return CheckOK, fmt.Sprintf("Proxmox VE %s gets fixes until %s", v, end)
	case v.Major < 7:
		return CheckProblem, fmt.Sprintf("Proxmox VE %s gets no fixes any more: upgrade it", v)
	case !v.Known():
		return CheckNote, fmt.Sprintf("Proxmox VE %s is newer than what castellan knows: privileges are taken to be as in %s", v, rights.Versions()[1])
	}
	return CheckOK, fmt.Sprintf("Proxmox VE %s is supported", v)
}
