package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"castellan/internal/gate"
	"castellan/internal/regex"
)

// scope is a limit on guests. Its zero value limits nothing.
type scope struct {
	all    bool // "*" was given
	ranges []idRange
	pools  []string
	tags   []string // lower case
	bound  string   // the one target where ranges and pools count; empty: on every one
}

type idRange struct{ from, to int64 }

func (s scope) limits() bool {
	return !s.all && (len(s.ranges) > 0 || len(s.pools) > 0 || len(s.tags) > 0)
}

var (
	idForm    = &regex.Lazy{Expr: `^([1-9]\d{0,8})(?:-([1-9]\d{0,8}))?$`}
	wordForm  = &regex.Lazy{Expr: `^[A-Za-z0-9_][A-Za-z0-9_.+/-]*$`}
	volOwners = &regex.Lazy{Expr: `(?:^|[/:])(?:vm|base|basevol|subvol)-(\d+)-|vzdump-[a-z]+-(\d+)-|backup/(?:vm|ct)/(\d+)/|:(\d+)/`}
)

func parseScope(key string, guests, pools, tags []string) (scope, error) {
	var s scope
	if (guests != nil || pools != nil || tags != nil) && len(guests)+len(pools)+len(tags) == 0 {
		return s, fmt.Errorf(`%s: guests, pools or tags is an empty list, which would let every guest in; leave the key out to mean that (or say guests = ["*"]), or name some`, key)
	}
	for _, g := range guests {
		g = strings.TrimSpace(g)
		if g == "*" {
			s.all = true
			continue
		}
		m := idForm.FindStringSubmatch(g)
		if m == nil {
			return s, fmt.Errorf("%s.guests holds %q: give ids (101) and ranges (200-299), or * for every guest", key, g)
		}
		from, _ := strconv.ParseInt(m[1], 10, 64)
		to := from
		if m[2] != "" {
			to, _ = strconv.ParseInt(m[2], 10, 64)
		}
		if to < from {
			return s, fmt.Errorf("%s.guests holds %q, a range that ends before it begins", key, g)
		}
		s.ranges = append(s.ranges, idRange{from, to})
	}
	if s.all && (len(s.ranges) > 0 || len(pools) > 0 || len(tags) > 0) {
		return s, fmt.Errorf(`%s.guests holds "*" beside narrower entries, which would mean nothing; leave one of the two out`, key)
	}
	for _, p := range pools {
		if !wordForm.MatchString(p) {
			return s, fmt.Errorf("%s.pools holds %q, which is no name of a pool", key, p)
		}
		s.pools = append(s.pools, p)
	}
	for _, t := range tags {
		if !wordForm.MatchString(t) {
			return s, fmt.Errorf("%s.tags holds %q, which is no tag", key, t)
		}
		s.tags = append(s.tags, strings.ToLower(t))
	}
	return s, nil
}

// vmid is the guest id that an object is, or belongs to; -1 for none.
func vmid(o gate.Object) int64 {
	text := ""
	switch o.Kind {
	case gate.ObjectGuest:
		text = o.ID
	case gate.ObjectVolume:
		for _, m := range volOwners.FindAllStringSubmatch(o.ID, -1) {
			found := m[1] + m[2] + m[3] + m[4]
			if text != "" && text != found {
				return -1 // more than one guest is named
			}
			text = found
		}
	}
	if m := idForm.FindStringSubmatch(text); m == nil || m[2] != "" {
		return -1
	}
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// has says whether a guest, or something that belongs to one, lies within. What is not known is not.
func (s scope) has(target string, o gate.ObjectFacts) bool {
	if !s.limits() {
		return true
	}
	if s.bound != "" && s.bound != target {
		s.ranges, s.pools = nil, nil
	}
	if id := vmid(o.Object); id >= 0 {
		for _, r := range s.ranges {
			if id >= r.from && id <= r.to {
				return true
			}
		}
	}
	if !o.Known {
		return false
	}
	for _, p := range o.Pools {
		if slices.Contains(s.pools, p) {
			return true
		}
	}
	for _, t := range o.Reserved {
		if slices.Contains(s.tags, strings.ToLower(t)) {
			return true
		}
	}
	return false
}

// sees says whether a row about an object may be shown.
func (s scope) sees(target string, o gate.ObjectFacts) bool {
	if !s.limits() {
		return true
	}
	switch o.Object.Kind {
	case gate.ObjectGuest:
		return s.has(target, o)
	case gate.ObjectVolume:
		return vmid(o.Object) < 0 || s.has(target, o)
	case gate.ObjectUnknown, "":
		return false
	}
	return true
}

// cedar is the scope as a condition on resource; what is only named besides guests is let through, what is acted on
// must be a guest in scope, or belong to one.
func (s scope) cedar() string {
	if !s.limits() {
		return "true"
	}
	var in []string
	for _, r := range s.ranges {
		if r.from == r.to {
			in = append(in, fmt.Sprintf("resource.vmid == %d", r.from))
		} else {
			in = append(in, fmt.Sprintf("resource.vmid >= %d && resource.vmid <= %d", r.from, r.to))
		}
	}
	if len(s.pools) > 0 {
		in = append(in, s.pooled())
	}
	here := ""
	if s.bound != "" && len(in) > 0 {
		here = "context.target == " + quote(s.bound) + " && "
		in = []string{here + "(" + strings.Join(in, " || ") + ")"}
	}
	if len(s.tags) > 0 {
		in = append(in, s.tagged())
	}
	out := "resource.kind == \"guest\" && (" + strings.Join(in, " || ") + ")"
	if len(s.pools) > 0 {
		out += " ||\n  " + here + "resource.kind == \"pool\" && " + set(s.pools) + ".contains(resource.name)"
	}
	return out + " ||\n  resource.kind == \"volume\" && (resource.use == \"names\" || resource.vmid >= 0) ||\n  resource.kind == \"tag\" ||\n" +
		"  resource.use == \"names\" && [\"node\", \"storage\", \"bridge\", \"zone\", \"pool\", \"user\", \"acl\", \"site\"].contains(resource.kind)"
}

// marked is the condition that a guest is in one of the pools, or bears one of the tags.
func (s scope) marked() string {
	var in []string
	if len(s.pools) > 0 {
		in = append(in, s.pooled())
	}
	if len(s.tags) > 0 {
		in = append(in, s.tagged())
	}
	return strings.Join(in, " || ")
}

func (s scope) pooled() string {
	return fmt.Sprintf("resource.known && resource.pools.containsAny(%s)", set(s.pools))
}

func (s scope) tagged() string {
	return fmt.Sprintf("resource.known && resource.reserved_tags.containsAny(%s)", set(s.tags))
}

func set(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// quote writes a text as a Cedar string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
