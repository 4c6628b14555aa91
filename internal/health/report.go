package health

import (
	"fmt"
	"slices"
	"strings"
)

// Bounds of one answer.
const (
	mostCauses = 20
	mostFlags  = 40
)

// close ranks, bounds and sums up.
func (r *Report) close(what string, scoped bool) {
	rankCauses(r.Causes)
	rank(r.Flags)
	r.Unread = merge(r.Unread)
	r.Verdict = Judge(slices.Concat(r.Causes, r.Flags), r.Unread)
	causes, flags := len(r.Causes), len(r.Flags)
	if causes > mostCauses {
		r.Causes = r.Causes[:mostCauses]
	}
	if flags > mostFlags {
		r.Flags = r.Flags[:mostFlags]
	}
	var b strings.Builder
	switch {
	case causes == 0 && len(r.Unread) == 0:
		fmt.Fprintf(&b, "No cause was found that would make %s slow.", what)
	case causes == 0:
		fmt.Fprintf(&b, "No cause was found in what could be read of %s, and %s could not be read: that is no proof that all is well.", what, plural(len(r.Unread), "part", "parts"))
	default:
		first := r.Causes[0]
		fmt.Fprintf(&b, "%s, first: %s (%s; %s", plural(causes, "cause was found", "causes were found"), first.What, first.Where, first.Confidence)
		if len(first.Evidence) > 0 {
			fmt.Fprintf(&b, "; %s %s", first.Evidence[0].Figure, first.Evidence[0].Value)
		}
		b.WriteString(").")
		if n := len(r.Unread); n > 0 {
			fmt.Fprintf(&b, " %s could not be read.", plural(n, "part", "parts"))
		}
	}
	if causes > mostCauses || flags > mostFlags {
		fmt.Fprintf(&b, " Only the first %d causes and %d flags are shown, of %d and %d.", len(r.Causes), len(r.Flags), causes, flags)
	}
	if scoped {
		b.WriteString(" Guests outside of this caller's scope are not looked at.")
	}
	r.Answer = b.String()
	for _, list := range []*[]Flag{&r.Causes, &r.Flags} {
		if *list == nil {
			*list = []Flag{}
		}
	}
	if r.Unread == nil {
		r.Unread = []Unread{}
	}
}
