package gate

import "testing"

// TestGroupsOfOthersGovernNothing: what is given to a group is castellan's own only where its user is, or may be, a member.
func TestGroupsOfOthersGovernNothing(t *testing.T) {
	s := newSite()
	s.groups = map[string]string{"ops": `{"members":["joe@pve"]}`, "empty": `{"members":[]}`, "own": `{"members":["joe@pve","agent@pve"]}`, "odd": `{"comment":"x"}`}
	r := newRig(t, newMemory(), s)
	for name, c := range map[string]struct {
		operation, param, value string
		want                    bool
	}{
		"of others":           {"PUT /access/acl", "groups", "ops", false},
		"without members":     {"PUT /access/acl", "groups", "empty", false},
		"of castellan":        {"PUT /access/acl", "groups", "own", true},
		"one of two":          {"PUT /access/acl", "groups", "ops,own", true},
		"not readable":        {"PUT /access/acl", "groups", "gone", true},
		"not told":            {"PUT /access/acl", "groups", "odd", true},
		"named by nothing":    {"PUT /access/acl", "groups", "", true},
		"others' goes":        {"DELETE /access/groups/{groupid}", "groupid", "ops", false},
		"castellan's changes": {"PUT /access/groups/{groupid}", "groupid", "own", true},
		"a role":              {"PUT /access/roles/{roleid}", "roleid", "ops", true},
	} {
		p := &Plan{Requester: agent, Steps: []Step{{Number: 1, Target: "pve", API: &Request{Product: "pve", Operation: c.operation, Params: []Param{{Name: c.param, Values: []Value{{Text: c.value}}}}},
			Judgement: Judgement{Effect: EffectChange}}}}
		if got := r.g.governs(t.Context(), p); len(got) > 0 != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	many := ""
	for range maxGroups + 1 {
		many += "ops,"
	}
	p := &Plan{Requester: agent, Steps: []Step{{Number: 1, Target: "pve", API: &Request{Product: "pve", Operation: "PUT /access/acl", Params: []Param{{Name: "groups", Values: []Value{{Text: many}}}}}, Judgement: Judgement{Effect: EffectChange}}}}
	if len(r.g.governs(t.Context(), p)) == 0 {
		t.Error("more groups than are looked at")
	}
}
