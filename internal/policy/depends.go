package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
)

// restsOn are the pools and tags by which policies of one's own decide.
type restsOn struct{ pools, tags []string }

// Depends names the pools and tags on which a decision rests: those that grant scope, and those that policies of one's own
// ask about. Who changes membership in them changes what is allowed.
func (p *Policy) Depends() (pools, tags []string) {
	pools, tags = p.GovernedScope()
	pools, tags = append(pools, p.rests.pools...), append(tags, p.rests.tags...)
	slices.Sort(pools)
	slices.Sort(tags)
	return slices.Compact(pools), slices.Compact(tags)
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
	tags, pools bool
	texts       []string
}

// compares are the operators that hold a set against texts. The texts of the smallest such part count, so that others of the
// same policy do not.
var compares = []string{"contains", "containsAll", "containsAny", "==", "!=", "in"}

func (a *restsOn) walk(node any) (out said) {
	add := func(s said) {
		out.tags, out.pools, out.texts = out.tags || s.tags, out.pools || s.pools, append(out.texts, s.texts...)
	}
	switch n := node.(type) {
	case []any:
		for _, x := range n {
			add(a.walk(x))
		}
	case map[string]any:
		if attr, ok := n["attr"].(string); ok {
			add(said{tags: attr == "tags" || attr == "reserved_tags", pools: attr == "pools"})
		}
		if text, ok := n["Value"].(string); ok {
			add(said{texts: []string{text}})
		}
		for _, key := range slices.Sorted(maps.Keys(n)) {
			s := a.walk(n[key])
			if slices.Contains(compares, key) && (s.tags || s.pools) {
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
