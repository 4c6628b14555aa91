package policy

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"castellan/internal/gate"
	"castellan/internal/rights"
)

// Line is one row of the table as it is in force.
type Line struct {
	Kind       gate.Kind   `json:"kind"`
	Class      gate.Class  `json:"class,omitempty"`
	Capability string      `json:"capability,omitempty"`
	On         bool        `json:"on"`
	Effect     gate.Effect `json:"effect"`
	Rung       gate.Rung   `json:"approval"`             // what it takes once the capability is on
	StandIn    gate.Rung   `json:"stands_for,omitempty"` // what stands for it here; none when nothing needs to
	Refused    bool        `json:"refused,omitempty"`    // nothing that can be had here suffices
	Privilege  string      `json:"privilege,omitempty"`  // that Proxmox VE asks for beside reading, blank separated
}

// Table is the table of kinds with the settings applied.
func (p *Policy) Table() []Line {
	var out []Line
	for _, row := range gate.Table() {
		l := Line{Kind: row.Kind, Class: row.Class, Capability: row.Capability, Effect: row.Effect, Rung: p.rules.rung(row), Privilege: privilegesOf(row.Kind),
			On: row.Capability == "" || slices.Contains(p.rules.capabilities, row.Capability)}
		if row.Capability != "" && p.rules.readOnly {
			l.On = false
		}
		if l.Rung > gate.RungNone {
			d := p.settle(l.Rung, gate.RungNone, nil, row.Kind == gate.KindGoverns, nil)
			switch {
			case d.Verdict == gate.VerdictDeny:
				l.Refused = true
			case d.Rung != l.Rung:
				l.StandIn = d.Rung
			}
		}
		out = append(out, l)
	}
	return out
}

func privilegesOf(k gate.Kind) string {
	var out []string
	for _, r := range rights.OfKind(k, rights.Version{}) {
		if !slices.Contains(out, r.Privilege) {
			out = append(out, r.Privilege)
		}
	}
	return strings.Join(out, " ")
}

// TableText prints the table.
func (p *Policy) TableText() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "kind\tclass\tcapability\tis\teffect\tapproval\there\tprivilege")
	for _, l := range p.Table() {
		is, here := "off", ""
		switch {
		case l.Capability == "":
			is = "always"
		case l.On:
			is = "on"
		}
		switch {
		case l.Refused:
			here = "refused"
		case l.StandIn != gate.RungNone:
			here = l.StandIn.String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Kind, dash(string(l.Class)), dash(l.Capability), is, l.Effect, l.Rung, dash(here), dash(l.Privilege))
	}
	w.Flush()
	if p.rules.readOnly {
		b.WriteString("policy.read_only is on: nothing is changed, whatever else is set\n")
	}
	return b.String()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
