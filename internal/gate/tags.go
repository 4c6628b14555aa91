package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// TagRules are a site's rules about who may give and take tags.
type TagRules struct {
	Known      bool     // false: the site did not tell them
	Registered []string // only who may change the site sets these
	Allow      string   // what others may set: "free" (or empty), "existing", "list" or "none"
	AllowList  []string // what they may set beside that
	Exact      bool     // letters count: Proxmox keeps a tag as it was given
	Seen       []string // the tags that castellan's user is told others may set: the list, and what is on guests
	SeenKnown  bool     // false: the site did not tell those
}

// Reserved says whether only those who may change the whole site can bring a tag onto a guest. One that its bearers' owners
// can bring grants nothing: an agent, or a guest's owner, could give it.
//
// Proxmox compares a tag with what is registered and allowed as it was typed, and keeps it in small letters unless the style
// of tags says that letters count. So a registered agent-ok is also given by who types Agent-OK, where that is allowed.
func (r TagRules) Reserved(tag string) bool {
	if !r.Known || tag == "" {
		return false
	}
	switch r.Allow {
	case "none":
		return true
	case "list":
		return len(r.open(r.AllowList, tag)) == 0
	}
	if !slices.Contains(r.Registered, r.kept(tag)) {
		return false
	}
	switch {
	case r.Exact:
		return true
	case r.Allow == "existing":
		return r.SeenKnown && len(r.open(slices.Concat(r.AllowList, r.Seen), tag)) == 0
	}
	return strings.ToUpper(tag) == strings.ToLower(tag) // with no letters there is no other way to type it
}

// kept is the form in which Proxmox keeps a tag.
func (r TagRules) kept(tag string) string {
	if r.Exact {
		return tag
	}
	return strings.ToLower(tag)
}

// open are those of the tags that others may type and that become this one.
func (r TagRules) open(allowed []string, tag string) (out []string) {
	for _, a := range allowed {
		if r.kept(a) == r.kept(tag) && !slices.Contains(r.Registered, a) {
			out = append(out, a)
		}
	}
	return out
}

// Reserve is the command that reserves tags, beside what is reserved already.
func (r TagRules) Reserve(tags []string) string {
	register := slices.Clone(r.Registered)
	for _, t := range tags {
		register = append(append(register, r.kept(t)), r.open(slices.Concat(r.AllowList, r.Seen), t)...)
	}
	slices.Sort(register)
	out := "pvesh set /cluster/options --registered-tags " + quoted(strings.Join(slices.Compact(register), ";"))
	if !r.Exact && !slices.Contains([]string{"existing", "list", "none"}, r.Allow) {
		access := "user-allow=existing"
		if len(r.AllowList) > 0 {
			access += ",user-allow-list=" + strings.Join(r.AllowList, ";")
		}
		out += " --user-tag-access " + quoted(access)
	}
	return out
}

// quoted writes a word for a shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// Why says of a tag that is not reserved what lets others set it.
func (r TagRules) Why(tag string) string {
	switch {
	case !r.Known:
		return "the rules for tags cannot be read (castellan's user needs Sys.Audit on /)"
	case !slices.Contains(r.Registered, r.kept(tag)):
		return "Proxmox lets others set it, since it is not among registered-tags in the options of the datacenter"
	}
	return "it is registered, but counts for Proxmox as another where it is typed in other letters, and is then kept in small ones"
}

// remedy says what a person does about a tag that does not count.
func (r TagRules) remedy(tag string) string {
	if !r.Known {
		return r.Why(tag)
	}
	return r.Why(tag) + "; a person who may change the site reserves it: " + clip(r.Reserve([]string{tag}), 500)
}

// countTags fills which tags of objects the site reserves: of all their tags, or of those that grant scope. Nothing is
// asked where no object bears one.
func (v *view) countTags(ctx context.Context, target string, objects []ObjectFacts, all bool) {
	_, scope := v.g.c.Policy.GovernedScope()
	for i := range objects {
		o := &objects[i]
		o.Reserved, o.Ignored = nil, nil
		for _, t := range o.Tags {
			grants := slices.Contains(scope, strings.ToLower(t))
			if !grants && !all {
				continue
			}
			rules := v.tagRules(ctx, target)
			if rules.Reserved(t) {
				o.Reserved = append(o.Reserved, t)
				continue
			}
			if !grants {
				continue
			}
			o.Ignored = append(o.Ignored, t)
			v.mu.Lock()
			v.ignored = union(v.ignored, []string{fmt.Sprintf("Tag %s does not count as scope on target %s: %s", clip(t, 60), target, rules.remedy(t))})
			v.mu.Unlock()
		}
	}
}

// tagRules asks a site once in a call.
func (v *view) tagRules(ctx context.Context, target string) TagRules {
	v.mu.Lock()
	rules, known := v.rules[target]
	v.mu.Unlock()
	if known {
		return rules
	}
	rules, err := v.g.c.Estate.TagRules(ctx, v.g.wholeView(v.principal), target)
	if err != nil {
		rules = TagRules{}
	}
	v.mu.Lock()
	if v.rules == nil {
		v.rules = map[string]TagRules{}
	}
	v.rules[target] = rules
	v.mu.Unlock()
	return rules
}

// ignoredTags says which tags would have granted scope, had the site reserved them.
func (v *view) ignoredTags() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.ignored)
}

// Tagged is a View that says which of the tags that grant scope a site reserves, and what else it reserves.
type Tagged interface {
	ScopeTags(ctx context.Context, target string) (tags []string, rules TagRules)
}

// ScopeTags are the tags that grant scope by the settings, and the site's rules for tags.
func (v *view) ScopeTags(ctx context.Context, target string) ([]string, TagRules) {
	_, tags := v.g.c.Policy.GovernedScope()
	if len(tags) == 0 {
		return nil, TagRules{}
	}
	return tags, v.tagRules(ctx, target)
}

// because adds to an error that a tag does not count, where that may be what is missing.
func because(e *Error, notes []string) *Error {
	if len(notes) > 0 && (e.Kind == ErrDenied || e.Kind == ErrNotFound) {
		e.Hint = strings.TrimSpace(e.Hint + " " + strings.Join(notes[:min(3, len(notes))], " "))
	}
	return e
}

// givesTag says whether a hit gives or takes a tag that grants scope: a snapshot, an archive or a clone carries tags along.
func givesTag(h Hit, scope []string) bool {
	return h.Object.Kind == ObjectTag && counts(scope, strings.ToLower(h.Object.ID))
}
