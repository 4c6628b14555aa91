package rights_test

import (
	"slices"
	"strings"
	"testing"

	"castellan/internal/rights"
)

// TestRolesOfOthers: what is added to a role reaches all who hold it, and what is there already may be more than was wished.
func TestRolesOfOthers(t *testing.T) {
	w := rights.Want{User: "castellan@pve", Token: "castellan", Capabilities: []string{"power"}, Version: rights.Version{Major: 9}}
	have := &rights.State{Users: map[string][]string{"castellan@pve": nil}, Tokens: map[string]bool{"castellan@pve!castellan": false}, Roles: map[string][]string{}, Entries: []rights.Entry{}}
	for _, r := range w.Roles() {
		have.Roles[r.Name] = []string{"Permissions.Modify"}
		for _, e := range []rights.Entry{{Path: "/vms", Kind: "user", ID: "castellan@pve", Role: r.Name}, {Path: "/vms", Kind: "token", ID: "castellan@pve!other", Role: r.Name}, {Path: "/vms", Kind: "group", ID: "ops", Role: r.Name},
			{Path: "/vms", Kind: "user", ID: "castellan@pam", Role: r.Name}} {
			have.Entries = append(have.Entries, e)
		}
	}
	if len(have.Roles) == 0 {
		t.Fatal("the capability takes no role")
	}
	shared := w.Shared(have, w.Commands(have))
	if len(shared) != 2*len(have.Roles) || !slices.ContainsFunc(shared, func(s string) bool { return strings.Contains(s, "group ops") }) {
		t.Errorf("shared: %v", shared)
	}
	surplus := strings.Join(w.Surplus(have), "\n")
	if !strings.Contains(surplus, "Permissions.Modify") || !strings.Contains(surplus, "privsep=0") {
		t.Errorf("surplus: %v", surplus)
	}
	clean := &rights.State{Users: map[string][]string{}, Tokens: map[string]bool{}, Roles: map[string][]string{}, Entries: []rights.Entry{}}
	if s := append(w.Shared(clean, w.Commands(clean)), w.Surplus(clean)...); len(s) > 0 {
		t.Errorf("of nothing: %v", s)
	}
}
