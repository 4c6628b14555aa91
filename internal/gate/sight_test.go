package gate

import "testing"

// sighted is a policy under which only guest 107 is in scope.
type sighted struct {
	Policy
	limited bool
}

func (s sighted) Scoped(Principal) bool { return s.limited }
func (sighted) Sees(_ Principal, target string, o ObjectFacts) bool {
	return target == "lab" && (o.Object.Kind != ObjectGuest || o.Object.ID == "107")
}

// TestMaySee: a refused plan is told to a limited caller only where all of it is in its scope.
func TestMaySee(t *testing.T) {
	guest := func(id string) Object { return Object{Site: "s", Kind: ObjectGuest, ID: id} }
	node := Object{Site: "s", Kind: ObjectNode, ID: "pve1"}
	for name, tt := range map[string]struct {
		objects []Object
		hits    []Hit
		want    bool
	}{
		"its guest":                {[]Object{guest("107"), node}, nil, true},
		"its guest is hit":         {[]Object{guest("107"), node}, []Hit{{Object: guest("107"), Way: []Object{node}}}, true},
		"another guest":            {[]Object{guest("101")}, nil, false},
		"another guest is hit":     {[]Object{node, guest("101")}, []Hit{{Object: guest("101")}}, false},
		"a note of another":        {[]Object{node}, []Hit{{Object: guest("101"), Weight: WeightNote}}, false},
		"by way of another":        {[]Object{guest("107")}, []Hit{{Object: guest("107"), Way: []Object{{Kind: ObjectGuest, ID: "101"}}}}, false},
		"a thing of nobody known":  {[]Object{node}, []Hit{{Object: Object{Site: "s", Kind: "job", ID: "nightly"}}}, false},
		"a guest of another place": {[]Object{{Site: "t", Kind: ObjectGuest, ID: "107"}}, nil, false},
	} {
		p := &Plan{Steps: []Step{{Target: "lab", Site: "s"}}}
		for _, o := range tt.objects {
			p.Facts.Objects = append(p.Facts.Objects, ObjectFacts{Object: o})
		}
		p.Facts.Reach.Hits = tt.hits
		if got := (&Gate{c: Config{Policy: sighted{limited: true}}}).maySee(Principal{}, p); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
		if !(&Gate{c: Config{Policy: sighted{}}}).maySee(Principal{}, p) {
			t.Errorf("%s: not told to a caller without a scope", name)
		}
	}
}
