package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/policy"
	"castellan/internal/settings"
)

// TestLooseningTakesAPasskey: where passkeys are enrolled, an administrator's session alone makes no setting looser; else it
// would be enough for all that takes a passkey.
func TestLooseningTakesAPasskey(t *testing.T) {
	ctx := context.Background()
	g := newGround(t, lab.Config{})
	a := &app{in: nil, out: io.Discard, err: io.Discard, env: os.LookupEnv, config: g.config}
	h, err := a.house(ctx)
	if err != nil {
		t.Fatal(err)
	}
	h.start()
	defer h.end(5 * time.Second)
	session := gate.Principal{Person: "ann", Strength: gate.StrengthSession, Roles: []string{gate.RoleAdministrator}}
	passkey := session
	passkey.Strength = gate.StrengthPasskey
	root := gate.Principal{Person: "root", Strength: gate.StrengthAccount}
	set := func(who gate.Principal, value string) error {
		var raw json.RawMessage
		if value != "" {
			raw = json.RawMessage(value)
		}
		return h.runtime.Set(ctx, who, "policy.rungs", raw)
	}
	if err := errors.Join(set(session, `{"stop":"passkey"}`), set(session, `{"stop":"person"}`)); err != nil {
		t.Fatalf("where no passkey is: %v", err)
	}
	h.runtime.enrolled = func(context.Context) (bool, error) { return true, nil }
	for name, value := range map[string]string{"a lower rung": `{"stop":"none"}`, "none of its own": ""} {
		var e *gate.Error
		if err := set(session, value); !errors.As(err, &e) || e.Kind != gate.ErrDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := errors.Join(set(session, `{"stop":"passkey"}`), set(passkey, `{"stop":"person"}`), set(root, "")); err != nil {
		t.Error(err)
	}
	if values, faults, err := h.runtime.set.All(ctx); err != nil || len(values)+len(faults) != 0 {
		t.Errorf("%v %v %v", values, faults, err)
	}
}

// TestASettingOfAnotherVersion: a value that this version cannot read may have made things tighter, so nothing is changed
// while it is there.
func TestASettingOfAnotherVersion(t *testing.T) {
	ctx := context.Background()
	g := newGround(t, lab.Config{})
	a := &app{in: nil, out: io.Discard, err: io.Discard, env: os.LookupEnv, config: g.config}
	h, err := a.house(ctx)
	if err != nil {
		t.Fatal(err)
	}
	h.start()
	defer h.end(5 * time.Second)
	root := gate.Principal{Person: "root", Strength: gate.StrengthAccount}
	fine := func(_, _ map[string]settings.Value) error { return nil }
	readOnly := func(p *policy.Policy) bool {
		d := p.Call(ctx, gate.CallQuestion{Principal: root, Operation: &gate.Operation{Name: "snapshot_guest", Product: "pve", Effect: gate.EffectChange, Kinds: []gate.Kind{gate.KindSnapshot}}, Target: "lab", At: time.Now()})
		return d.Verdict == gate.VerdictDeny && strings.Contains(d.Reason, "read_only")
	}
	for key, value := range map[string]string{"policy.tightness_of_tomorrow": `"very"`, "policy.writes_per_hour": `{"a":1}`} {
		if err := h.runtime.set.Put(ctx, root, key, json.RawMessage(value), fine); err != nil {
			t.Fatal(err)
		}
		if p, notes, err := h.runtime.policy(); err != nil || len(notes) != 1 || !readOnly(p) {
			t.Errorf("%s: %v %v", key, notes, err)
		}
		if err := h.runtime.Set(ctx, root, key, nil); err != nil {
			t.Errorf("unset %s: %v", key, err)
		}
		if p, notes, err := h.runtime.policy(); err != nil || len(notes) != 0 || readOnly(p) {
			t.Errorf("after unset of %s: %v %v", key, notes, err)
		}
	}
}

// TestWhatDestroyingTakes: an agent may ask for more snapshots and younger backups, never for fewer or older ones, and what
// it set is in force at once.
func TestWhatDestroyingTakes(t *testing.T) {
	ctx := context.Background()
	g := newGround(t, lab.Config{})
	a := &app{in: nil, out: io.Discard, err: io.Discard, env: os.LookupEnv, config: g.config}
	h, err := a.house(ctx)
	if err != nil {
		t.Fatal(err)
	}
	h.start()
	defer h.end(5 * time.Second)
	agent := gate.Principal{Agent: "a", Person: "ann"}
	root := gate.Principal{Person: "root", Strength: gate.StrengthAccount}
	for _, c := range []struct {
		key, value string
		kind       gate.ErrorKind
	}{
		{"policy.undo_points", `["config"]`, ""}, {"policy.undo_points", `["config","exec"]`, ""}, {"policy.undo_points", `["config"]`, gate.ErrDenied}, {"policy.undo_points", `[]`, gate.ErrDenied},
		{"policy.undo_points", `["config","exec","confg"]`, gate.ErrInvalid},
		{"policy.backup_before_destroy", `"48h"`, ""}, {"policy.backup_before_destroy", `"24h"`, ""}, {"policy.backup_before_destroy", `"25h"`, gate.ErrDenied}, {"policy.backup_before_destroy", `""`, gate.ErrDenied},
		{"policy.backup_before_destroy", `"1s"`, gate.ErrInvalid},
	} {
		err := h.runtime.Tighten(ctx, agent, c.key, json.RawMessage(c.value))
		var e *gate.Error
		if errors.As(err, &e); err == nil && c.kind != "" || err != nil && (e == nil || e.Kind != c.kind) {
			t.Errorf("%s to %s: %v, want %q", c.key, c.value, err, c.kind)
		}
	}
	p, notes, err := h.runtime.policy()
	if err != nil || len(notes) != 0 {
		t.Fatalf("%v %v", notes, err)
	}
	if got := p.Limits().UndoPoints; len(got) != 2 {
		t.Errorf("snapshots are wanted before %v", got)
	}
	guest := gate.Object{Kind: gate.ObjectGuest, ID: "101"}
	step := gate.Step{Number: 1, Target: "lab", API: &gate.Request{Product: "pve", Operation: "DELETE /nodes/{node}/qemu/{vmid}"}, Judgement: gate.Judgement{Operation: "DELETE /nodes/{node}/qemu/{vmid}",
		Effect: gate.EffectDestroy, Kinds: []gate.Kind{gate.KindData}, References: []gate.Reference{{Object: guest, Use: gate.UseActs}}}}
	d := p.Plan(ctx, gate.PlanQuestion{Principal: agent, Operation: "x", Steps: []gate.Step{step}, At: time.Now(), Facts: gate.Facts{Effect: gate.EffectDestroy, Kinds: []gate.Kind{gate.KindData}, Reversible: "no",
		Objects: []gate.ObjectFacts{{Object: guest, Use: gate.UseActs, Known: true, BackedUp: time.Now().Add(-30 * time.Hour)}}}})
	if d.Verdict != gate.VerdictDeny || !strings.Contains(d.Reason, "24h") {
		t.Errorf("a guest with a backup of 30 hours ago may be destroyed: %s %s", d.Verdict, d.Reason)
	}
	for _, key := range []string{"policy.undo_points", "policy.backup_before_destroy"} { // a person takes it back
		if err := h.runtime.Set(ctx, root, key, nil); err != nil {
			t.Errorf("unset %s: %v", key, err)
		}
	}
	if p, _, err := h.runtime.policy(); err != nil || len(p.Limits().UndoPoints) != 0 {
		t.Errorf("still wanted: %v %v", p.Limits().UndoPoints, err)
	}
}
