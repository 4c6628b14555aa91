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
		{`{"mac_prefix":"BC:24:11","registered-tags":["a","b"]}`, "a", true},
		{`{"mac_prefix":"BC:24:11","registered-tags":"a;b"}`, "b", true},
		{`{"mac_prefix":"BC:24:11","registered-tags":["a"]}`, "A", false},
		{`{"mac_prefix":"BC:24:11","registered-tags":["a"]}`, "c", false},
		{`{"mac_prefix":"BC:24:11","registered-tags":["a"],"user-tag-access":{"user-allow":"list","user-allow-list":["a"]}}`, "a", true},
		{`{"user-tag-access":{"user-allow":"none"}}`, "a", true},
		{`{"user-tag-access":{"user-allow":"free"}}`, "a", false},
		{`{"user-tag-access":{"user-allow":"existing"}}`, "a", false},
		{`{"user-tag-access":{"user-allow":"list","user-allow-list":["x"]}}`, "a", true},
		{`{"user-tag-access":{"user-allow":"list","user-allow-list":["a"]}}`, "a", false},
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
