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
}

// Reserved says whether only those who may change the whole site can set a tag. One that its bearers' owners can set
// grants nothing: an agent, or a guest's owner, could give it.
func (r TagRules) Reserved(tag string) bool {
	switch {
	case !r.Known || tag == "":
		return false
	case slices.Contains(r.Registered, tag): // this goes before all others
		return true
	case r.Allow == "none":
		return true
	case r.Allow == "list":
		return !slices.Contains(r.AllowList, tag)
	}
	return false
}

func (r TagRules) why() string {
	if !r.Known {
		return "the rules for tags cannot be read (castellan's user needs Sys.Audit on /)"
	}
	return "Proxmox lets others set it: put it into registered-tags in the options of the datacenter"
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
			v.ignored = union(v.ignored, []string{fmt.Sprintf("Tag %s does not count as scope on target %s: %s.", clip(t, 60), target, rules.why())})
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
