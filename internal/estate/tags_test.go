package estate

import (
	"encoding/json"
	"testing"

	"castellan/internal/gate"
)

func TestTagRules(t *testing.T) {
	for _, c := range []struct {
		options, tag string
		reserved     bool
	}{
		{`{"allowed-tags":["a"]}`, "a", false},
		{`{"allowed-tags":["a"],"mac_prefix":"BC:24:11","description":""}`, "a", false},
		// Tags are free where nothing is said, and a registered one can then be typed in other letters.
		{`{"mac_prefix":"BC:24:11","registered-tags":["a","b"]}`, "a", false},
		{`{"mac_prefix":"BC:24:11","registered-tags":["17"]}`, "17", true},
		{`{"registered-tags":["a"],"user-tag-access":{"user-allow":"free"}}`, "a", false},
		{`{"registered-tags":["a"],"tag-style":{"case-sensitive":1}}`, "a", true},
		{`{"registered-tags":["a"],"tag-style":{"case-sensitive":1}}`, "A", false},
		{`{"registered-tags":["a"],"tag-style":"case-sensitive=1,shape=full"}`, "a", true},
		{`{"registered-tags":["a"],"tag-style":{"case-sensitive":0}}`, "a", false},
		{`{"registered-tags":["a"],"tag-style":{"shape":"full"}}`, "a", false},
		{`{"registered-tags":["a"],"tag-style":{"case-sensitive":"perhaps"}}`, "a", false},
		{`{"allowed-tags":["c"],"registered-tags":["a"],"user-tag-access":{"user-allow":"existing"}}`, "a", true},
		{`{"allowed-tags":["c"],"registered-tags":"a;b","user-tag-access":{"user-allow":"existing"}}`, "b", true},
		{`{"allowed-tags":["c"],"registered-tags":["a"],"user-tag-access":{"user-allow":"existing"}}`, "c", false},
		{`{"allowed-tags":["A"],"registered-tags":["a"],"user-tag-access":{"user-allow":"existing"}}`, "a", false},
		{`{"allowed-tags":["A"],"registered-tags":["a","A"],"user-tag-access":{"user-allow":"existing"}}`, "a", true},
		{`{"allowed-tags":[],"registered-tags":["a"],"user-tag-access":{"user-allow":"existing"}}`, "a", true},
		{`{"registered-tags":["a"],"user-tag-access":{"user-allow":"existing"}}`, "a", false},
		{`{"allowed-tags":[],"registered-tags":["a"],"user-tag-access":{"user-allow":"existing","user-allow-list":["A"]}}`, "a", false},
		{`{"mac_prefix":"BC:24:11","registered-tags":["a"],"user-tag-access":{"user-allow":"list","user-allow-list":["a"]}}`, "a", true},
		{`{"registered-tags":["a"],"user-tag-access":{"user-allow":"list","user-allow-list":["a","A"]}}`, "a", false},
		{`{"user-tag-access":{"user-allow":"none"}}`, "a", true},
		{`{"user-tag-access":{"user-allow":"free"}}`, "a", false},
		{`{"user-tag-access":{"user-allow":"existing"}}`, "a", false},
		{`{"user-tag-access":{"user-allow":"list","user-allow-list":["x"]}}`, "a", true},
		{`{"user-tag-access":{"user-allow":"list","user-allow-list":["a"]}}`, "a", false},
		{`{"user-tag-access":{"user-allow":"list","user-allow-list":["A"]}}`, "a", false},
		{`{"tag-style":{"case-sensitive":1},"user-tag-access":{"user-allow":"list","user-allow-list":["A"]}}`, "a", true},
		{`{"user-tag-access":"user-allow=list,user-allow-list=x;a"}`, "a", false},
		{`{"user-tag-access":"user-allow=none"}`, "a", true},
		{`{"user-tag-access":{"user-allow":"something new"}}`, "a", false},
		{`{"registered-tags":{"a":1},"x":1}`, "a", false},
		{`{}`, "a", false},
	} {
		var o map[string]json.RawMessage
		if err := json.Unmarshal([]byte(c.options), &o); err != nil {
			t.Fatal(err)
		}
		if got := tagRules(o).Reserved(c.tag); got != c.reserved {
			t.Errorf("%s: tag %s reserved %v, want %v", c.options, c.tag, got, c.reserved)
		}
	}
	if (gate.TagRules{Registered: []string{"a"}}).Reserved("a") {
		t.Error("rules that are not known reserve a tag")
	}
}
