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
