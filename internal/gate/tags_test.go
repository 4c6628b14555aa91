package gate

import (
	"slices"
	"strings"
	"testing"
	"unicode"
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

// spellings are ways to type a tag: any letter large or small, and one of Unicode whose small letter is a plain one.
func spellings(tag string) []string {
	out := []string{""}
	for _, r := range tag {
		ways := []string{strings.ToLower(string(r)), strings.ToUpper(string(r))}
		if unicode.ToLower(r) == 'k' {
			ways = append(ways, "\u212a")
		}
		var next []string
		for _, o := range out {
			for _, w := range ways {
				next = append(next, o+w)
			}
		}
		out = next
	}
	return out
}

// TestReservedIsWhatNobodyCanType holds the rule to what Proxmox does with what a user types: it compares that with the lists as
// it is, and keeps it in small letters where letters do not count.
func TestReservedIsWhatNobodyCanType(t *testing.T) {
	known := [][]string{nil, {"ok"}, {"oK"}, {"ok", "OK"}, {"o\u212a"}, {"17"}}
	for _, tag := range []string{"ok", "oK", "OK", "17"} {
		for _, allow := range []string{"", "free", "existing", "list", "none"} {
			for _, registered := range known {
				for _, list := range known {
					for _, seen := range known {
						for _, exact := range []bool{false, true} {
							r := TagRules{Known: true, Registered: registered, Allow: allow, AllowList: list, Exact: exact, Seen: seen, SeenKnown: true}
							may := func(typed string) bool {
								if slices.Contains(registered, typed) || allow == "none" {
									return false
								}
								return allow == "" || allow == "free" || slices.Contains(list, typed) || allow == "existing" && slices.Contains(seen, typed)
							}
							can := false
							for _, typed := range spellings(tag) {
								kept := typed
								if !exact {
									kept = strings.ToLower(typed)
								}
								can = can || may(typed) && (kept == tag || !exact && kept == strings.ToLower(tag))
							}
							if can && r.Reserved(tag) {
								t.Fatalf("%+v: %q counts as reserved, and others can bring it", r, tag)
							}
							if !can && !r.Reserved(tag) && !(allow == "existing" && !slices.Contains(registered, r.kept(tag))) {
								t.Fatalf("%+v: nobody can bring %q, and it does not count", r, tag)
							}
						}
					}
				}
			}
		}
	}
}

// TestReserveReserves: after the command that is told, all tags that were asked for count, and those that were reserved still do.
func TestReserveReserves(t *testing.T) {
	for _, r := range []TagRules{
		{}, {Allow: "free"}, {Allow: "free", Exact: true}, {Allow: "free", AllowList: []string{"Agent-OK", "x"}}, {Allow: "list", AllowList: []string{"Agent-OK", "agent-ok"}},
		{Allow: "existing", Seen: []string{"AGENT-ok", "web"}}, {Allow: "none"}, {Registered: []string{"mine"}, Allow: "something new"},
	} {
		r.Known, r.SeenKnown = true, true
		words := strings.Split(r.Reserve([]string{"agent-ok", "db"}), "'")
		after := r
		after.Registered = strings.Split(words[1], ";")
		if len(words) > 3 {
			after.Allow, _ = PropertyValue(words[3], "user-allow")
			list, _ := PropertyValue(words[3], "user-allow-list")
			after.AllowList = SplitList(list)
		}
		for _, tag := range append([]string{"agent-ok", "db"}, r.Registered...) {
			if !after.Reserved(tag) {
				t.Errorf("%+v: after %v %q is not reserved", r, words, tag)
			}
		}
	}
}

// TestTagsArePartedAsProxmoxDoes: a tag of the scope is seen whatever stands around it.
func TestTagsArePartedAsProxmoxDoes(t *testing.T) {
	for _, blank := range []string{",", ";", " ", "\t", "\n", "\r", "\v", "\f", "\x00", "\u00a0", "\u0085", "\u2003", "\u3000", "\u2028"} {
		s := Step{API: &Request{Operation: "PUT /nodes/{node}/qemu/{vmid}/config", Params: []Param{{Name: "tags", Values: []Value{{Text: "x" + blank + "Agent-O\u212a"}}}}}}
		if got := changedTags(s, nil); !slices.Contains(got, "agent-ok") {
			t.Errorf("parted by %q: %q", blank, got)
		}
	}
}
