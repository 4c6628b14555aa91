package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
)

// restsOn are the pools, tags and titles by which policies of one's own decide. "*" is any: what is asked names none.
type restsOn struct{ pools, tags, titles []string }

// Depends names the pools and tags on which a decision rests: those that grant scope, and those that policies of one's own
// ask about; and the titles of guests, in which * stands for any text, that the latter ask about. Who changes membership in
// them, or a title, changes what is allowed. "*" is any pool or tag.
func (p *Policy) Depends() (pools, tags, titles []string) {
	pools, tags = p.GovernedScope()
	pools, tags, titles = append(pools, p.rests.pools...), append(tags, p.rests.tags...), slices.Clone(p.rests.titles)
	slices.Sort(pools)
	slices.Sort(tags)
	slices.Sort(titles)
	return slices.Compact(pools), slices.Compact(tags), slices.Compact(titles)
}

// take adds what a policy asks about.
func (a *restsOn) take(text string) error {
	var c cedar.Policy
	if err := c.UnmarshalCedar([]byte(text)); err != nil {
		return err
	}
	b, err := c.MarshalJSON()
	if err != nil {
		return err
	}
	var tree any
	if err := json.Unmarshal(b, &tree); err != nil {
		return fmt.Errorf("read policy: %w", err)
	}
	a.walk(tree)
	return nil
}

// said is what stands in a part of a policy.
type said struct {
	tags, pools, titles bool
	texts               []string
}

// compares are the operators that hold a set or a title against texts. The texts of the smallest such part count, so that others of the
// same policy do not.
var compares = []string{"contains", "containsAll", "containsAny", "==", "!=", "in", "like", "isEmpty", "<", "<=", ">", ">="}

func (a *restsOn) walk(node any) (out said) {
	add := func(s said) {
		out.tags, out.pools, out.titles, out.texts = out.tags || s.tags, out.pools || s.pools, out.titles || s.titles, append(out.texts, s.texts...)
	}
	switch n := node.(type) {
	case []any:
		for _, x := range n {
			add(a.walk(x))
		}
	case map[string]any:
		if attr, ok := n["attr"].(string); ok {
			add(said{tags: attr == "tags" || attr == "reserved_tags", pools: attr == "pools", titles: attr == "title"})
		}
		if text, ok := wildcards(n["pattern"]); ok {
			add(said{texts: []string{text}})
		}
		if text, ok := n["Value"].(string); ok {
			add(said{texts: []string{text}})
		}
		for _, key := range slices.Sorted(maps.Keys(n)) {
			s := a.walk(n[key])
			if slices.Contains(compares, key) && (s.tags || s.pools || s.titles) {
				if len(s.texts) == 0 { // by how many there are, or by what else one of them may be
					s.texts = []string{"*"}
				}
				if s.titles {
					a.titles = append(a.titles, s.texts...)
				}
				if s.tags {
					for _, t := range s.texts {
						a.tags = append(a.tags, strings.ToLower(t))
					}
				}
				if s.pools {
					a.pools = append(a.pools, s.texts...)
				}
				continue // told
			}
			add(s)
		}
	}
	return out
}

// wildcards reads what "like" compares with.
func wildcards(pattern any) (text string, ok bool) {
	parts, ok := pattern.([]any)
	for _, part := range parts {
		literal, _ := part.(map[string]any)
		if t, isText := literal["Literal"].(string); isText {
			text += t
			continue
		}
		text += "*"
	}
	return text, ok
}
