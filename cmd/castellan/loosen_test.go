package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/lab"
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
