package settings

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/seal"
	"castellan/internal/store"
	"castellan/internal/store/storetest"
)

type keyed struct{ k *seal.Keys }

func (s keyed) Seal(p []byte, c string) ([]byte, error) {
	return s.k.Seal(seal.NewSecret(p), "test", c)
}
func (s keyed) Open(b []byte, c string) ([]byte, error) {
	v, err := s.k.Unseal(b, "test", c)
	if err != nil {
		return nil, err
	}
	return v.Bytes(), nil
}
func (keyed) Commit([]byte) (string, []byte) { return "", nil }
func (keyed) Token() (string, string)        { return "", "" }
func (keyed) HashToken(string) string        { return "" }
func (keyed) Redact(s string) string         { return s }

func newSet(t *testing.T) (*Set, *store.Store) {
	t.Helper()
	keys, err := seal.CreateKeys(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	st := storetest.Open(t, filepath.Join(t.TempDir(), "state", "s.db"))
	s, err := New(Config{Store: st, Sealer: keyed{keys}})
	if err != nil {
		t.Fatal(err)
	}
	return s, st
}

func TestPut(t *testing.T) {
	ctx := context.Background()
	s, st := newSet(t)
	who := gate.Principal{Person: "ann"}
	fine := func(_, _ map[string]Value) error { return nil }
	first, err := s.Version(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Put(ctx, who, "policy.read_only", json.RawMessage("true"), fine), s.Put(ctx, who, "policy.read_only", json.RawMessage("false"), func(before, then map[string]Value) error {
		if string(before["policy.read_only"].Value) != "true" || string(then["policy.read_only"].Value) != "false" {
			t.Errorf("before %v, then %v", before, then)
		}
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("no")
	if err := s.Put(ctx, who, "policy.read_only", json.RawMessage("true"), func(_, _ map[string]Value) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
	all, faults, err := s.All(ctx)
	if err != nil || len(faults) > 0 || string(all["policy.read_only"].Value) != "false" || all["policy.read_only"].By != "|ann" {
		t.Errorf("%v %v %v", all, faults, err)
	}
	if v, err := s.Version(ctx); err != nil || v == first {
		t.Errorf("version %q, was %q, %v", v, first, err)
	}
	// A row of somebody else, or of another key, does not count.
	err = st.Update(ctx, func(tx gate.Tx) error {
		d, err := tx.Doc(kind, "policy.read_only")
		if err != nil {
			return err
		}
		return errors.Join(tx.PutDoc(&gate.Doc{Kind: kind, ID: "policy.arming", Body: d.Body}), tx.PutDoc(&gate.Doc{Kind: kind, ID: "policy.four_eyes", Body: []byte(`{"key":"policy.four_eyes","value":false}`)}))
	})
	if err != nil {
		t.Fatal(err)
	}
	if all, faults, err = s.All(ctx); err != nil || len(faults) != 2 || len(all) != 1 {
		t.Errorf("%v %v %v", all, faults, err)
	}
	if err := s.Put(ctx, who, "policy.read_only", nil, fine); err != nil {
		t.Fatal(err)
	}
	if all, _, err = s.All(ctx); err != nil || len(all) != 0 {
		t.Errorf("%v %v", all, err)
	}
}

func TestKeys(t *testing.T) {
	type inner struct {
		On    bool              `toml:"on"`
		Names []string          `toml:"names"`
		Rungs map[string]string `toml:"rungs"`
	}
	type outer struct {
		Name  string  `toml:"name"`
		Inner inner   `toml:"inner"`
		Many  []inner `toml:"many"`
		Not   int
	}
	var v outer
	for key, value := range map[string]string{"name": `"x"`, "inner.on": "true", "inner.names": `["a"]`, "inner.rungs": `{"stop":"person"}`} {
		if err := Put(&v, key, json.RawMessage(value)); err != nil {
			t.Error(err)
		}
		if got, err := Get(&v, key); err != nil || string(got) != value {
			t.Errorf("%s: %s %v", key, got, err)
		}
	}
	was, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"name": "5", "inner.on": `"true"`, "inner.names": `"a"`, "inner": "{}", "many": "[]", "nothing": "1", "Not": "1", "inner.on.x": "true", "inner.rungs": `{"a":1}`} {
		if err := Put(&v, key, json.RawMessage(value)); err == nil {
			t.Errorf("%s took %s", key, value)
		}
	}
	if now, err := json.Marshal(v); err != nil || string(now) != string(was) {
		t.Errorf("a refused value changed something: %s", now)
	}
}

func TestTighten(t *testing.T) {
	for _, c := range []struct {
		key, old, next string
		ok             bool
	}{
		{"policy.read_only", "null", "true", true}, {"policy.read_only", "true", "false", false}, {"policy.read_only", "true", `"true"`, false},
		{"policy.capabilities", `["a","b"]`, `["a"]`, true}, {"policy.capabilities", `["a"]`, `["a","b"]`, false}, {"policy.capabilities", `["a"]`, `[]`, true},
		{"policy.capabilities", `["a"]`, `null`, false}, {"policy.capabilities", "null", `["a"]`, false},
		{"policy.forbid", `["x"]`, `["x","y"]`, true}, {"policy.forbid", `["x"]`, `["y"]`, false}, {"policy.forbid", `["x"]`, `[]`, false}, {"policy.forbid", "null", `["y"]`, true},
		{"policy.writes_per_hour", "null", "5", true}, {"policy.writes_per_hour", "5", "6", false}, {"policy.writes_per_hour", "5", "0", false}, {"policy.writes_per_hour", "5", "null", false}, {"policy.writes_per_hour", "5", "-1", false},
		{"policy.rungs", "null", `{"start":"person"}`, true}, {"policy.rungs", "null", `{"stop":"restated"}`, false}, {"policy.rungs", `{"stop":"passkey"}`, `{"stop":"person"}`, false},
		{"policy.rungs", `{"stop":"passkey"}`, `{}`, false}, {"policy.rungs", "null", `{"nothing":"none"}`, false}, {"policy.rungs", "null", `{"power":"none"}`, false}, {"policy.rungs", "null", `{"stop":"denied"}`, false},
		{"policy.rungs", `{"power":"passkey"}`, `{"power":"passkey","stop":"person"}`, false},
		{"policy.taint_for", "null", `"2h"`, true}, {"policy.taint_for", "null", `"10m"`, false}, {"policy.taint_for", `"2h"`, "null", false},
		{"policy.plan_ttl", "null", `"5m"`, true}, {"policy.plan_ttl", `"5m"`, `"6m"`, false}, {"policy.plan_ttl", `"5m"`, "null", false}, {"policy.plan_ttl", `"5m"`, `"0s"`, false}, {"policy.plan_ttl", `"5m"`, `"-1h"`, false},
		{"policy.undo_points", "null", `["config"]`, true}, {"policy.undo_points", `["config"]`, `["config","exec"]`, true}, {"policy.undo_points", `["config","exec"]`, `["config"]`, false},
		{"policy.undo_points", `["config"]`, `["exec"]`, false}, {"policy.undo_points", `["config"]`, `[]`, false}, {"policy.undo_points", `["config"]`, "null", false},
		{"policy.backup_before_destroy", "null", `"240h"`, true}, {"policy.backup_before_destroy", `""`, `"240h"`, true}, {"policy.backup_before_destroy", `"24h"`, `"12h"`, true},
		{"policy.backup_before_destroy", `"24h"`, `"25h"`, false}, {"policy.backup_before_destroy", `"24h"`, "null", false}, {"policy.backup_before_destroy", `"24h"`, `""`, false},
		{"policy.backup_before_destroy", `"24h"`, `"-1h"`, false}, {"policy.backup_before_destroy", "null", `"soon"`, false}, {"policy.backup_before_destroy", `"24h"`, "12", false},
	} {
		rule, found := RuleOf(c.key)
		if !found {
			t.Fatal(c.key)
		}
		if err := rule.Check(json.RawMessage(c.old), json.RawMessage(c.next)); (err == nil) != c.ok {
			t.Errorf("%s from %s to %s: %v", c.key, c.old, c.next, err)
		}
	}
	if _, found := RuleOf("policy.guests"); found {
		t.Error("the scope may be changed by an agent")
	}
}
