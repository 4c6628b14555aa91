package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// scout is a Walker that finds what the test put there.
type scout struct {
	mu    sync.Mutex
	hits  []Hit
	asked []WalkQuestion
	left  []time.Duration // that each walk had
}

func (s *scout) Walk(ctx context.Context, _ View, q WalkQuestion) Reach {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, _ := ctx.Deadline()
	s.left = append(s.left, time.Until(until))
	s.asked = append(s.asked, q)
	out := Reach{}
	for _, h := range s.hits {
		h.Step = q.Steps[0].Number
		out.Hits = append(out.Hits, h)
	}
	return out
}

func (s *scout) find(hits ...Hit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hits = hits
}

func hitGuest(id string, w Weight, kinds ...Kind) Hit {
	return Hit{Class: "stops", Weight: w, Object: Object{Kind: ObjectGuest, ID: id}, Kinds: kinds, Text: "guest " + id + " stops"}
}

// brings is a setting that comes into force.
func brings(matter string, w Weight) Hit {
	return Hit{Class: "setting", Weight: w, Object: Object{Kind: ObjectGuest, ID: "101"}, Matter: matter, Text: "settings come with it"}
}

func scouted(t *testing.T) (*rig, *scout) {
	s := &scout{}
	return newRigWith(t, newMemory(), newSite(), func(c *Config) { c.Walker = s }), s
}

// TestHitsAreJudgedAndShown: what a plan hits raises its approval, comes before policy as an object, and stands in the
// sentence that is approved and in the receipt.
func TestHitsAreJudgedAndShown(t *testing.T) {
	r, s := scouted(t)
	s.find(hitGuest("200", WeightCaution), hitGuest("300", WeightDanger, KindOutage), hitGuest("400", WeightNote))
	out, err := r.do(t, "power", `{"guest":"101","action":"start"}`)
	if err != nil || out.Status != StatusWaiting || out.Plan.Rung != RungPhrase {
		t.Fatalf("a start that stops another guest ran or waits at the wrong rung: %+v %v", out, err)
	}
	if !strings.Contains(out.Plan.Sentence, "guest/300") || !strings.Contains(out.Plan.Sentence, "guest/200") || strings.Contains(out.Plan.Sentence, "guest/400") {
		t.Errorf("sentence %q", out.Plan.Sentence)
	}
	var uses []string
	for _, o := range out.Plan.Touches {
		uses = append(uses, o.Object.ID+" "+string(o.Use))
	}
	if want := []string{"101 acts", "300 hits", "200 hits"}; !slices.Equal(uses, want) {
		t.Errorf("objects %v, want %v", uses, want)
	}
	if h := out.Plan.Hits; len(h) != 3 || h[0].Weight != WeightDanger || h[2].Weight != WeightNote {
		t.Errorf("hits %+v", h)
	}
	done, err := apply(t, r, out.Plan, nil)
	if err != nil || done.Status != StatusDone || len(done.Receipt.Hits) != 3 {
		t.Fatalf("%+v %v", done, err)
	}
	if last := s.asked[len(s.asked)-1]; !last.Fresh || len(last.Steps) != 1 {
		t.Errorf("the walk before the step: %+v", last)
	}
}

// TestNewDangerIsStale: what was not shown to the approver is not hit.
func TestNewDangerIsStale(t *testing.T) {
	for name, c := range map[string]struct {
		before, after []Hit
		runs          bool
	}{
		"another guest":               {before: []Hit{hitGuest("200", WeightDanger, KindOutage)}, after: []Hit{hitGuest("201", WeightDanger, KindOutage)}},
		"worse than it was":           {before: []Hit{hitGuest("200", WeightCaution)}, after: []Hit{hitGuest("200", WeightDanger)}},
		"a kind that asks for more":   {after: []Hit{hitGuest("200", WeightNote, KindLockout)}},
		"a new caution":               {after: []Hit{hitGuest("200", WeightCaution)}, runs: true},
		"a new caution of a new kind": {after: []Hit{hitGuest("200", WeightCaution, KindExec)}},
		"another matter":              {before: []Hit{brings("x", WeightCaution)}, after: []Hit{brings("y", WeightCaution)}},
		"another matter to note":      {before: []Hit{brings("x", WeightNote)}, after: []Hit{brings("y", WeightNote)}, runs: true},
		"the same matter":             {before: []Hit{brings("x", WeightDanger)}, after: []Hit{brings("x", WeightDanger)}, runs: true},
		"gone":                        {before: []Hit{hitGuest("200", WeightDanger, KindOutage)}, runs: true},
		"was not readable": {before: []Hit{{Class: "stops", Weight: WeightDanger, Object: Object{Kind: ObjectSite}, Unknown: true, Kinds: []Kind{KindOutage}}},
			after: []Hit{hitGuest("201", WeightDanger, KindOutage)}, runs: true},
		"not readable any more": {before: []Hit{hitGuest("200", WeightDanger, KindOutage)},
			after: []Hit{{Class: "stops", Weight: WeightDanger, Object: Object{Kind: ObjectSite}, Unknown: true, Kinds: []Kind{KindOutage}}}},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := scouted(t)
			s.find(c.before...)
			out, err := r.do(t, "set", `{"guest":"101","set":{"memory":"1024"}}`)
			if err != nil || out.Status != StatusWaiting {
				t.Fatalf("%+v %v", out, err)
			}
			s.find(c.after...)
			done, err := apply(t, r, out.Plan, nil)
			if ran := err == nil && done.Status == StatusDone; ran != c.runs || ran != (len(r.site.sent) == 1) {
				t.Errorf("ran %v, want %v: %+v %v", ran, c.runs, done, err)
			}
		})
	}
}

// TestMoreHitsAreAnotherPlan: an open plan is found again only while it hits the same.
func TestMoreHitsAreAnotherPlan(t *testing.T) {
	r, s := scouted(t)
	plan := func() string {
		out, err := r.do(t, "set", `{"guest":"101","set":{"memory":"1024"}}`)
		if err != nil {
			t.Fatal(err)
		}
		return out.Plan.ID
	}
	first := plan()
	if again := plan(); again != first {
		t.Errorf("the same plan came twice")
	}
	s.find(hitGuest("200", WeightCaution))
	second := plan()
	if second == first {
		t.Errorf("a plan that hits more was taken for the old one")
	}
	s.find(Hit{Class: "stops", Weight: WeightCaution, Object: Object{Kind: ObjectGuest, ID: "200"}, Text: "only a figure in the text differs"})
	if again := plan(); again != second {
		t.Errorf("a figure in a text made another plan")
	}
}

// TestManyHits: beyond a bound the whole site counts as hit, and what is shown stays bounded.
func TestManyHits(t *testing.T) {
	r, s := scouted(t)
	var all []Hit
	for i := range 3000 {
		all = append(all, hitGuest(fmt.Sprint(1000+i), WeightCaution))
	}
	all = append(all, Hit{Class: "touches_castellan", Weight: WeightCaution, Object: Object{Kind: ObjectGuest, ID: "105"}, Kinds: []Kind{KindGoverns}, Text: "castellan's own guest"})
	s.find(all...)
	out, err := r.do(t, "set", `{"guest":"101","set":{"memory":"1024"}}`)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(out.Plan.Touches); n != maxReached+2 || out.Plan.Touches[n-1].Object.Kind != ObjectSite {
		t.Errorf("%d objects", n)
	}
	if h := out.Plan.Hits[0]; h.Object != "guest/105" || h.Weight != WeightDanger || !strings.Contains(out.Plan.Sentence, "guest/105") {
		t.Errorf("what governs is not in front: %+v\n%s", h, out.Plan.Sentence)
	}
	if len(out.Plan.Hits) != maxHitViews+1 || len(out.Plan.Sentence) > longestSentence+1000 {
		t.Errorf("%d hits shown, sentence of %d", len(out.Plan.Hits), len(out.Plan.Sentence))
	}
}

// TestHitsOnCastellanGovern: a hit on castellan itself counts like a change of it.
func TestHitsOnCastellanGovern(t *testing.T) {
	r, s := scouted(t)
	s.find(hitGuest("105", WeightDanger, KindGoverns))
	out, err := r.do(t, "power", `{"guest":"101","action":"start"}`)
	if err != nil {
		t.Fatal(err)
	}
	_, rec, err := r.g.Show(context.Background(), agent, out.Plan.ID)
	if err != nil || len(rec.Plan.Facts.Governs) != 1 || !rec.Plan.Facts.Self || !slices.Contains(rec.Plan.Facts.Kinds, KindGoverns) {
		t.Errorf("%+v %v", rec.Plan.Facts, err)
	}
}

// TestTheStepHasLongerToLook: planning may use what several looks have read, the step reads all anew: it is given the time
// for it, and says that something could not be read, not that more would be hit.
func TestTheStepHasLongerToLook(t *testing.T) {
	r, s := scouted(t)
	out, err := r.do(t, "set", `{"guest":"101","set":{"memory":"1024"}}`)
	if err != nil || out.Status != StatusWaiting {
		t.Fatalf("%+v %v", out, err)
	}
	s.find(Hit{Class: "stops", Weight: WeightDanger, Object: Object{Kind: ObjectSite}, Unknown: true, Kinds: []Kind{KindOutage}, Text: "guests that could not be read"})
	text := ""
	if out, err = apply(t, r, out.Plan, nil); err != nil {
		text = err.Error()
	} else {
		text = out.Receipt.Steps[0].Result
	}
	if !strings.Contains(text, "could not be read now") || strings.Contains(text, "it would now hit more") {
		t.Errorf("what could not be read at the step is told as %q", text)
	}
	if n := len(s.left); n < 2 || s.left[n-1] < 4*s.left[0] {
		t.Errorf("the walks had %v", s.left)
	}
}
