package estate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"castellan/internal/gate"
)

// TagRules reads who may give and take tags on a site. It is read anew each time.
func (*Estate) TagRules(ctx context.Context, v gate.View, target string) (gate.TagRules, error) {
	t, err := v.Target(target)
	if err != nil {
		return gate.TagRules{}, err
	}
	if t.Product != "pve" {
		return gate.TagRules{}, nil
	}
	a, err := v.Read(ctx, t.Name, gate.Read{Operation: "GET /cluster/options"})
	if err != nil {
		return gate.TagRules{}, fmt.Errorf("read the rules for tags: %w", err)
	}
	var o map[string]json.RawMessage
	if err := json.Unmarshal(a.Data, &o); err != nil {
		return gate.TagRules{}, fmt.Errorf("read the rules for tags: %w", err)
	}
	return tagRules(o), nil
}

// tagRules takes the rules out of the options of the datacenter. Who may not read those is told allowed-tags only.
func tagRules(o map[string]json.RawMessage) gate.TagRules {
	var r gate.TagRules
	for k := range o {
		r.Known = r.Known || k != "allowed-tags"
	}
	r.Registered = tagList(o["registered-tags"])
	r.Seen, r.SeenKnown = tagList(o["allowed-tags"]), string(o["allowed-tags"]) != "" && string(o["allowed-tags"]) != "null"
	r.Exact = exact(o["tag-style"])
	var access map[string]json.RawMessage
	if json.Unmarshal(o["user-tag-access"], &access) == nil {
		r.AllowList = tagList(access["user-allow-list"])
		_ = json.Unmarshal(access["user-allow"], &r.Allow) // absent or no text: free, which reserves nothing
		return r
	}
	var text string
	if json.Unmarshal(o["user-tag-access"], &text) == nil {
		r.Allow, _ = gate.PropertyValue(text, "user-allow")
		list, _ := gate.PropertyValue(text, "user-allow-list")
		r.AllowList = Tags(list)
	}
	return r
}

// exact says whether the style of tags has letters count. What cannot be read has not.
func exact(raw json.RawMessage) bool {
	var style map[string]json.RawMessage
	var text string
	switch {
	case json.Unmarshal(raw, &style) == nil:
		return slices.Contains([]string{"1", `"1"`, "true"}, string(style["case-sensitive"]))
	case json.Unmarshal(raw, &text) == nil:
		value, _ := gate.PropertyValue(text, "case-sensitive")
		return value == "1"
	}
	return false
}

// tagList reads tags that are given as a list or as one text.
func tagList(raw json.RawMessage) []string {
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return list
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return nil
	}
	return Tags(text)
}
