package gate

import (
	"slices"
	"strings"
	"testing"
)

// TestTagsCountWhereReserved: facts say which tags the site reserves; a scope tag that others can set is said not to count.
func TestTagsCountWhereReserved(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	v := r.g.wholeView(agent)
	facts := []ObjectFacts{{Object: Object{Kind: ObjectGuest, ID: "1"}, Known: true, Tags: []string{"agent-ok", "other"}}}
	r.estate.set(nil, []string{"agent-ok"})
	v.countTags(t.Context(), "pve", facts, false)
	if !slices.Equal(facts[0].Reserved, []string{"agent-ok"}) || len(facts[0].Ignored) != 0 {
		t.Errorf("%+v", facts[0])
	}
	r.estate.set(nil, nil)
	v = r.g.wholeView(agent)
	v.countTags(t.Context(), "pve", facts, true)
	if facts[0].Reserved != nil || !slices.Equal(facts[0].Ignored, []string{"agent-ok"}) || len(v.ignoredTags()) != 1 || !strings.Contains(v.ignoredTags()[0], "registered-tags") {
		t.Errorf("%+v %v", facts[0], v.ignoredTags())
	}
	e := because(Fail(ErrDenied, "First.", "x"), v.ignoredTags())
	if !strings.HasPrefix(e.Hint, "First. Tag agent-ok") {
		t.Error(e.Hint)
	}
}

// TestTagsBroughtInGovern: a tag that comes with a snapshot or a clone and grants scope is as if it were set by hand.
func TestTagsBroughtInGovern(t *testing.T) {
	r, s := scouted(t)
	s.find(Hit{Class: "setting", Weight: WeightNote, Object: Object{Kind: ObjectTag, ID: "Agent-OK"}, Text: "tag Agent-OK comes along"})
	out, err := r.do(t, "power", `{"guest":"101","action":"start"}`)
	if e := AsError(err); err == nil && out.Plan.Rung < RungPhrase || err != nil && e.Kind != ErrDenied {
		t.Fatalf("%+v %v", out, err)
	}
	r, s = scouted(t)
	s.find(Hit{Class: "setting", Weight: WeightNote, Object: Object{Kind: ObjectTag, ID: "plain"}, Text: "tag plain comes along"})
	if out, err := r.do(t, "power", `{"guest":"101","action":"start"}`); err != nil || out.Status != StatusDone {
		t.Errorf("a tag that grants nothing: %+v %v", out, err)
	}
}

func TestChangesTagRules(t *testing.T) {
	for params, want := range map[string]bool{"registered-tags=a": true, "user-tag-access=user-allow=free": true, "delete=keyboard,registered-tags": true, "tag-style=case-sensitive=1": true, "keyboard=de": false, "delete=keyboard": false} {
		name, text, _ := strings.Cut(params, "=")
		s := Step{API: &Request{Operation: "PUT /cluster/options", Params: []Param{{Name: name, Values: []Value{{Text: text}}}}}}
		if got := changesTagRules(s); got != want {
			t.Errorf("%s: %v", params, got)
		}
	}
}
