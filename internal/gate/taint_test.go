package gate

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// letters is an operation that shows text of outsiders.
func letters() *Operation {
	type in struct{}
	type out struct {
		Text string `json:"text"`
	}
	return Query(Declaration{Name: "letters", Summary: "letters"}, func(_ context.Context, v View, _ in) (out, error) {
		v.(interface{ SawFreeText() }).SawFreeText()
		return out{"a letter"}, nil
	})
}

// TestTaintIsKnownToEveryProcess: what one gate on a store showed counts in another; what the store cannot take is not
// shown, and until the store tells, a caller counts as having read.
func TestTaintIsKnownToEveryProcess(t *testing.T) {
	store := newMemory()
	with := func(c *Config) { c.Operations = append(c.Operations, letters()) }
	a, b := newRigWith(t, store, newSite(), with), newRigWith(t, store, newSite(), with)

	store.mu.Lock()
	store.down = errors.New("no space left")
	store.mu.Unlock()
	_, err := a.do(t, "letters", `{}`)
	wantKind(t, err, ErrUnavailable)
	if strings.Contains(err.Error(), "a letter") || !strings.Contains(err.Error(), "withheld") {
		t.Error(err)
	}
	store.mu.Lock()
	store.down = nil
	store.mu.Unlock()
	ctx := context.Background()
	if a.g.isTainted(ctx, agent) || b.g.isTainted(ctx, agent) {
		t.Error("nothing was shown, and it taints")
	}

	for range 2 { // the second time the store need not be told
		out, err := a.do(t, "letters", `{}`)
		if err != nil || !out.Untrusted || len(out.Outside) == 0 {
			t.Fatalf("%+v %v", out, err)
		}
	}
	other := agent
	other.Client = "another name"
	stranger := Principal{Agent: "claude", Person: "bob", Strength: StrengthAccount}
	if !a.g.isTainted(ctx, agent) || !b.g.isTainted(ctx, other) || b.g.isTainted(ctx, stranger) {
		t.Error("the other process does not know, or knows too much")
	}
	planned, err := b.g.Do(ctx, Call{Operation: "power", Args: json.RawMessage(`{"guest":"101","action":"start"}`), Principal: agent, PlanOnly: true}, nil)
	if err != nil || planned.Plan.Rung != RungRestated {
		t.Fatalf("%+v %v", planned, err)
	}

	// Who oversees clears it, in the other process; the ledger has it; reading again taints again.
	person := Principal{Person: "ann", WayIn: "cli", Strength: StrengthAccount}
	wantKind(t, b.g.ClearTaint(ctx, agent, agent.Key()), ErrDenied)
	wantKind(t, b.g.ClearTaint(ctx, Principal{Person: "eve", Strength: StrengthPeer}, agent.Key()), ErrDenied)
	wantKind(t, b.g.ClearTaint(ctx, Principal{Person: "eve", Strength: StrengthSession, Roles: []string{RoleOperator}}, agent.Key()), ErrDenied)
	wantKind(t, b.g.ClearTaint(ctx, person, stranger.Key()), ErrNotFound)
	wantKind(t, b.g.ClearTaint(ctx, person, "a\u202eb"), ErrInvalid)
	if err := b.g.ClearTaint(ctx, person, agent.Key()); err != nil {
		t.Fatal(err)
	}
	if a.g.isTainted(ctx, agent) || b.g.isTainted(ctx, agent) {
		t.Error("it was cleared")
	}
	last := store.records[len(store.records)-1]
	if last.Operation != "taint_clear" || last.Marks["value"] != agent.Key() || last.Actor != person.Key() {
		t.Errorf("%+v", last)
	}
	if _, err := a.do(t, "letters", `{}`); err != nil || !b.g.isTainted(ctx, agent) {
		t.Errorf("reading again does not taint (%v)", err)
	}

	// What stands there and is no time counts as read.
	store.mu.Lock()
	store.values[taintPrefix+agent.Key()] = "soon"
	store.mu.Unlock()
	if !b.g.isTainted(ctx, agent) {
		t.Error("what cannot be read clears")
	}
}
