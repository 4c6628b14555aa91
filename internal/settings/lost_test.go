package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"castellan/internal/gate"
)

// TestASettingThatIsGone: taking the row of a tighter setting away, or putting back an older one, loosens nothing unseen.
func TestASettingThatIsGone(t *testing.T) {
	ctx := context.Background()
	const key = "policy.read_only"
	fine := func(_, _ map[string]Value) error { return nil }
	ann, agent := gate.Principal{Person: "ann"}, gate.Principal{Agent: "claude", Person: "ann"}
	for name, spoil := range map[string]func(tx gate.Tx, old *gate.Doc) error{
		"its row was removed": func(tx gate.Tx, _ *gate.Doc) error { return tx.DropDoc(kind, key) },
		"an older row was put back": func(tx gate.Tx, old *gate.Doc) error {
			old.Version = 0
			return errors.Join(tx.DropDoc(kind, key), tx.PutDoc(old))
		},
		"its row was changed": func(tx gate.Tx, _ *gate.Doc) error {
			d, err := tx.Doc(kind, key)
			if err != nil {
				return err
			}
			d.Body = []byte("false")
			return tx.PutDoc(d)
		},
		"its row hides behind others": func(tx gate.Tx, _ *gate.Doc) error {
			for n := range 1000 {
				if err := tx.PutDoc(&gate.Doc{Kind: kind, ID: fmt.Sprintf("a%04d", n), Body: []byte("x")}); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, st := newSet(t)
			if err := s.Put(ctx, ann, key, json.RawMessage("false"), fine); err != nil {
				t.Fatal(err)
			}
			var old *gate.Doc
			if err := st.View(ctx, func(tx gate.Tx) error { var err error; old, err = tx.Doc(kind, key); return err }); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.Put(ctx, ann, key, nil, fine), s.Put(ctx, ann, key, json.RawMessage("true"), fine)); err != nil {
				t.Fatal(err)
			}
			if err := st.Update(ctx, func(tx gate.Tx) error { return spoil(tx, old) }); err != nil {
				t.Fatal(err)
			}
			all, faults, err := s.All(ctx)
			if !errors.Is(err, ErrLost) || len(faults) == 0 || len(all) != 0 {
				t.Errorf("%v %v %v", all, faults, err)
			}
			var e *gate.Error
			if err := s.Put(ctx, agent, "policy.arming", json.RawMessage("true"), fine); !errors.As(err, &e) || e.Kind != gate.ErrDenied {
				t.Errorf("an agent set another: %v", err)
			}
			if name == "its row hides behind others" {
				return
			}
			if err := s.Put(ctx, ann, key, json.RawMessage("true"), fine); err != nil {
				t.Fatal(err)
			}
			if all, faults, err = s.All(ctx); err != nil || len(faults) != 0 || string(all[key].Value) != "true" {
				t.Errorf("set again: %v %v %v", all, faults, err)
			}
		})
	}
	t.Run("one that was given up comes back", func(t *testing.T) {
		s, st := newSet(t)
		if err := s.Put(ctx, ann, key, json.RawMessage("false"), fine); err != nil {
			t.Fatal(err)
		}
		var old *gate.Doc
		if err := st.View(ctx, func(tx gate.Tx) error { var err error; old, err = tx.Doc(kind, key); return err }); err != nil {
			t.Fatal(err)
		}
		if err := s.Put(ctx, ann, key, nil, fine); err != nil {
			t.Fatal(err)
		}
		old.Version = 0
		if err := st.Update(ctx, func(tx gate.Tx) error { return tx.PutDoc(old) }); err != nil {
			t.Fatal(err)
		}
		if all, faults, err := s.All(ctx); err != nil || len(faults) != 1 || len(all) != 0 {
			t.Errorf("%v %v %v", all, faults, err)
		}
	})
}
