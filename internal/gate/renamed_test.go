package gate

import "testing"

// TestRenamingGoverns: where policy decides by titles, to call a guest otherwise is to change what policy says of it.
func TestRenamingGoverns(t *testing.T) {
	guest := Object{Kind: ObjectGuest, ID: "101", Site: "lab"}
	old := map[Object]ObjectFacts{guest: {Object: guest, Name: "prod-web", Known: true}}
	for _, c := range []struct {
		operation, key, value string
		titles                []string
		governs               bool
	}{
		{"PUT /nodes/{node}/qemu/{vmid}/config", "name", "play", []string{"prod-*"}, true},
		{"POST /nodes/{node}/qemu/{vmid}/config", "name", "play", []string{"other"}, true}, // "unless" asks as well
		{"PUT /nodes/{node}/qemu/{vmid}/config", "name", "prod-web", []string{"prod-*"}, false},
		{"PUT /nodes/{node}/qemu/{vmid}/config", "delete", "memory,name", []string{"prod-*"}, true},
		{"PUT /nodes/{node}/qemu/{vmid}/config", "revert", "name", []string{"prod-*"}, true},
		{"PUT /nodes/{node}/qemu/{vmid}/config", "memory", "1024", []string{"prod-*"}, false},
		{"PUT /nodes/{node}/qemu/{vmid}/config", "name", "play", nil, false},
		{"PUT /nodes/{node}/lxc/{vmid}/config", "hostname", "play", []string{"prod-*"}, true},
		{"PUT /nodes/{node}/lxc/{vmid}/config", "hostname", "play", nil, false},
		{"POST /nodes/{node}/qemu/{vmid}/clone", "name", "play", []string{"prod-*"}, false},
		{"POST /nodes/{node}/qemu/{vmid}/clone", "name", "prod-2", []string{"prod-*"}, true},
		{"POST /nodes/{node}/qemu/{vmid}/clone", "newid", "150", []string{"Copy-of-*web"}, true},
		{"POST /nodes/{node}/qemu/{vmid}/clone", "name", "play", []string{"*"}, true},
		{"POST /nodes/{node}/qemu/{vmid}/firewall/ipset", "name", "play", []string{"*"}, false},
		{"PUT /pools", "name", "play", []string{"*"}, false},
	} {
		s := Step{Number: 1, Site: "lab", API: &Request{Product: "pve", Operation: c.operation, Params: []Param{{Name: c.key, Values: []Value{{Text: c.value}}}}},
			Judgement: Judgement{References: []Reference{{Object: Object{Kind: ObjectGuest, ID: "101"}, Use: UseActs}}}}
		if got := renames(c.titles, named(s, old)); got != c.governs {
			t.Errorf("%s %s=%s with titles %v governs: %t", c.operation, c.key, c.value, c.titles, got)
		}
	}
}

func TestLikePatterns(t *testing.T) {
	for _, c := range []struct {
		text, pattern string
		is            bool
	}{
		{"a", "a", true}, {"ab", "a", false}, {"ab", "a*", true}, {"ab", "*b", true}, {"acb", "a*b", true}, {"ab", "a*b", true}, {"a", "a*a", false},
		{"axbyc", "a*b*c", true}, {"axc", "a*b*c", false}, {"", "*", true}, {"", "", true}, {"x", "", false},
	} {
		if like(c.text, c.pattern) != c.is {
			t.Errorf("%q like %q", c.text, c.pattern)
		}
	}
}
