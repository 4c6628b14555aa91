package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A mandate is for its objects: a plan that would hit others, or that destroys by what comes with it, is not contained, however high
// the mandate was approved.
func TestAMandateReachesItsObjectsAlone(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	now := r.g.now()
	guest := func(id string) Object { return Object{Kind: ObjectGuest, ID: id} }
	acts := ObjectFacts{Object: guest("101"), Use: UseActs, Known: true, Pools: []string{"web"}}
	hits := func(id string, pools ...string) ObjectFacts {
		return ObjectFacts{Object: guest(id), Use: UseHits, Known: true, Pools: pools}
	}
	m := Mandate{ID: "m-1", By: agent, For: agent.Key(), Operations: []string{"power"}, Targets: []string{"pve"}, Objects: []string{"pool:web"}, Count: 1, From: now.Add(-time.Hour), Until: now.Add(time.Hour), Rung: RungPasskey}
	for name, c := range map[string]struct {
		objects []ObjectFacts
		hits    []Hit
		kinds   []Kind
		want    string // empty: contained
	}{
		"nothing else":            {[]ObjectFacts{acts}, []Hit{hitGuest("101", WeightDanger, KindOutage)}, []Kind{KindStop, KindOutage}, ""},
		"a guest of its pool":     {[]ObjectFacts{acts, hits("102", "web")}, []Hit{hitGuest("102", WeightDanger, KindOutage)}, []Kind{KindStop, KindOutage}, ""},
		"another guest stops":     {[]ObjectFacts{acts, hits("200", "db")}, []Hit{hitGuest("200", WeightCaution)}, []Kind{KindStop}, "guest/200"},
		"others, too many":        {[]ObjectFacts{acts, {Object: Object{Kind: ObjectSite}, Use: UseHits}}, nil, []Kind{KindStop}, "site"},
		"a storage fills up":      {[]ObjectFacts{acts}, []Hit{{Weight: WeightDanger, Object: Object{Kind: ObjectStorage, ID: "nas"}, Text: "nas is full"}}, []Kind{KindStop}, "nas is full"},
		"a storage is tight":      {[]ObjectFacts{acts}, []Hit{{Weight: WeightCaution, Object: Object{Kind: ObjectStorage, ID: "nas"}, Text: "nas is tight"}}, []Kind{KindStop}, ""},
		"somebody gains":          {[]ObjectFacts{acts}, []Hit{{Weight: WeightCaution, Kinds: []Kind{KindIdent}, Object: Object{Kind: ObjectUser, ID: "joe@pve"}, Text: "joe gains"}}, []Kind{KindStop, KindIdent}, "joe gains"},
		"its own snapshot":        {[]ObjectFacts{acts}, []Hit{{Weight: WeightDanger, Object: Object{Kind: ObjectSnapshot, ID: "101/s1"}, Text: "s1"}}, []Kind{KindStop}, ""},
		"what waited destroys":    {[]ObjectFacts{acts}, []Hit{hitGuest("101", WeightDanger, KindData)}, []Kind{KindStart, KindData}, "destroys"},
		"what nobody has judged":  {[]ObjectFacts{acts}, nil, []Kind{KindStart, KindUnknown}, "destroys"},
		"what castellan rests on": {[]ObjectFacts{acts}, nil, []Kind{KindStart, KindGoverns}, "destroys"},
	} {
		p := &Plan{Operation: "power", Requester: agent, Args: json.RawMessage(`{"guest":"101"}`), Decision: Decision{Verdict: VerdictNeeds, Rung: RungPerson},
			Steps: []Step{{Target: "pve"}}, Facts: Facts{Kinds: c.kinds, Objects: c.objects, Reach: Reach{Hits: c.hits}}}
		if why := r.g.covers(&m, p); (why == "") != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%s: %q, want %q", name, why, c.want)
		}
	}
}

// TestAMandateHoldsWhileItsObjectsDo: what grants a mandate its objects governs, by whatever it is changed, and an object that is
// none any more, or a plan that hits more by now, is carried out no further.
func TestAMandateHoldsWhileItsObjectsDo(t *testing.T) {
	ctx := context.Background()
	r, _, _ := peopleRig(t, RungPerson)
	if r.policy.pools != nil {
		t.Fatal("policy itself rests on pools")
	}
	guest := Object{Kind: ObjectGuest, ID: "105"}
	joins := &Plan{Steps: []Step{{Number: 1, Target: "pve", API: &Request{Product: "pve", Operation: "PUT /pools"},
		Judgement: Judgement{Effect: EffectChange, References: []Reference{{Object: Object{Kind: ObjectPool, ID: "web"}, Use: UseActs}, {Object: guest, Use: UseActs}}}}}}
	tagged := &Plan{Facts: Facts{Objects: []ObjectFacts{{Object: guest}}}, Steps: []Step{{Number: 1, Target: "pve", API: &Request{Product: "pve", Operation: "PUT /nodes/{node}/qemu/{vmid}/config",
		Params: []Param{{Name: "tags", Values: []Value{{Text: "Dev"}}}}}, Judgement: Judgement{Effect: EffectChange, References: []Reference{{Object: guest, Use: UseActs}}}}}}
	if why := slices.Concat(r.g.governs(ctx, joins), r.g.governs(ctx, tagged)); len(why) > 0 {
		t.Fatalf("before there is a mandate: %v", why)
	}
	m, err := r.g.Grant(ctx, Mandate{For: agent.Key(), Operations: []string{"power"}, Targets: []string{"pve"}, Objects: []string{"pool:web", "tag:dev"}, Count: 2, Until: time.Now().Add(time.Hour)}, Evidence{Kind: "session", Session: "s-ann"})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := r.g.governs(ctx, joins), r.g.governs(ctx, tagged); len(a) == 0 || len(b) == 0 {
		t.Errorf("a guest joins the pool (%v) or gets the tag (%v) of a mandate, and that governs nothing", a, b)
	}
	p := &Plan{Facts: Facts{Objects: []ObjectFacts{{Object: guest, Use: UseActs, Known: true, Pools: []string{"web"}}}}}
	if why := r.g.mandateEnded(ctx, m.ID, p); why != "" {
		t.Errorf("while the guest is in the pool: %s", why)
	}
	p.Facts.Objects[0].Pools = nil
	if why := r.g.mandateEnded(ctx, m.ID, p); !strings.Contains(why, "guest/105 is not among its objects") {
		t.Errorf("when it has left the pool: %q", why)
	}
	if err := r.g.Revoke(ctx, "s-ann", m.ID); err != nil {
		t.Fatal(err)
	}
	if why := slices.Concat(r.g.governs(ctx, joins), r.g.governs(ctx, tagged)); len(why) > 0 {
		t.Errorf("after it was revoked: %v", why)
	}
	err = r.g.c.Store.Update(ctx, func(tx Tx) error {
		for i := range maxMandatesRead {
			if err := tx.PutDoc(&Doc{Kind: mandateKind, ID: fmt.Sprintf("m-old-%d", i), Body: json.RawMessage(`{}`)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := r.g.governs(ctx, joins), r.g.governs(ctx, tagged); len(a) == 0 || len(b) == 0 {
		t.Errorf("with more mandates than are looked at: %v, %v", a, b)
	}
}
