// Package settings keeps what is set while castellan runs: values that lie over those of the file and the environment,
// in the store, sealed, each with who set it and when. It knows keys and values, not what they mean.
package settings

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"castellan/internal/gate"
)

const (
	kind = "setting"
	// versionMark moves with every change, in the transaction of the change.
	versionMark = "settings/version"
	maxValue    = 16 << 10
)

// Config of a Set.
type Config struct {
	Store  gate.Store
	Sealer gate.Sealer
	Clock  gate.Clock
}

// Set is the values set at run time. It is safe for concurrent use, and several processes may share the store.
type Set struct{ c Config }

// New makes one.
func New(c Config) (*Set, error) {
	if c.Store == nil || c.Sealer == nil {
		return nil, errors.New("make settings: a store and a sealer are needed")
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	return &Set{c}, nil
}

// Value is one key's value with who set it.
type Value struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
	By    string          `json:"by"` // Principal.Key
	At    time.Time       `json:"at"`
}

// Version moves with every change of any key.
func (s *Set) Version(ctx context.Context) (string, error) {
	var v string
	err := s.c.Store.View(ctx, func(tx gate.Tx) error {
		var err error
		v, err = tx.Get(versionMark)
		return err
	})
	return v, err
}

// ErrLost says that a value that was set is gone, or an older one was put back: what is in force cannot be told.
var ErrLost = errors.New("a setting in the store is not the one that was set last")

// latest is what the ledger knows of each key: the hash of the row that was written last, "" where the key was unset, and
// "?" where the record does not say.
func latest(tx gate.Tx) (map[string]string, error) {
	out := map[string]string{}
	err := gate.Walk(tx, gate.RecordFilter{Kind: "settings", Operation: "setting"}, func(r gate.Recorded) bool {
		key := r.Marks["key"]
		if _, later := out[key]; later || key == "" {
			return false
		}
		switch row := r.Marks["row"]; {
		case r.Status != "set":
			out[key] = ""
		case row == "":
			out[key] = "?"
		default:
			out[key] = row
		}
		return false
	})
	return out, err
}

func hashed(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// believed are the values whose rows castellan wrote, and of those that the ledger knows the latest; lost are the keys that
// were set and whose latest row is not there.
func (s *Set) believed(tx gate.Tx, docs []*gate.Doc) (values map[string]Value, lost, faults []string, err error) {
	want, err := latest(tx)
	if err != nil {
		return nil, nil, nil, err
	}
	values = map[string]Value{}
	for _, d := range docs {
		v, ok := s.open(d)
		row, known := want[d.ID]
		switch {
		case !ok:
			faults = append(faults, fmt.Sprintf("the row of setting %.80q in the store was not written by castellan and does not count", d.ID))
		case known && row != "?" && row != hashed(d.Body):
			faults = append(faults, fmt.Sprintf("the row of setting %.80q in the store is an older one that was put back and does not count", d.ID))
		default:
			values[v.Key] = v
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if _, there := values[key]; !there && want[key] != "" {
			lost = append(lost, key)
			faults = append(faults, fmt.Sprintf("the setting %.80q was set, and its row in the store is gone or changed: nothing may be changed until a person sets it again (castellan config set)", key))
		}
	}
	return values, lost, faults, nil
}

// All are the values in force by key. Rows that castellan did not write are left out and named in faults. With ErrLost the
// rest is given all the same.
func (s *Set) All(ctx context.Context) (values map[string]Value, faults []string, err error) {
	var lost []string
	err = s.c.Store.View(ctx, func(tx gate.Tx) error {
		docs, err := tx.Docs(gate.DocFilter{Kind: kind, Limit: 1000})
		if err != nil {
			return err
		}
		values, lost, faults, err = s.believed(tx, docs)
		return err
	})
	if err == nil && len(lost) > 0 {
		return values, faults, ErrLost
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read settings: %w", err)
	}
	return values, faults, nil
}

func (s *Set) open(d *gate.Doc) (Value, bool) {
	var v Value
	text, err := s.c.Sealer.Open(d.Body, sealedFor(d.ID, d.Version))
	return v, err == nil && json.Unmarshal(text, &v) == nil && v.Key == d.ID
}

func sealedFor(key string, version int64) string { return fmt.Sprintf("setting/%s/%d", key, version) }

// Put sets a key to a JSON value, or back to what file and environment say when value is nil, with its record: who, key,
// and the values before and after. check is asked within the transaction with the values before and
// those that would then be in force.
func (s *Set) Put(ctx context.Context, who gate.Principal, key string, value json.RawMessage, check func(before, then map[string]Value) error) error {
	if len(value) > maxValue {
		return gate.Fail(gate.ErrInvalid, "Give a shorter value.", "the value of %s has %d bytes, at most %d are taken", key, len(value), maxValue)
	}
	return s.c.Store.Update(ctx, func(tx gate.Tx) error {
		docs, err := tx.Docs(gate.DocFilter{Kind: kind, Limit: 1000})
		if err != nil {
			return err
		}
		then, lost, _, err := s.believed(tx, docs)
		if err != nil {
			return err
		}
		if who.Agent != "" && len(lost) > 0 {
			return gate.Fail(gate.ErrDenied, "A person sets it again: castellan config set.", "the setting %s was set, and its row in the store is gone or changed", lost[0])
		}
		var version int64
		old := "unset"
		for _, d := range docs {
			if d.ID == key {
				version = d.Version
			}
		}
		if v, ok := then[key]; ok {
			old = string(v.Value)
		}
		next := Value{Key: key, Value: value, By: who.Key(), At: s.c.Clock().UTC()}
		before := maps.Clone(then)
		status, shown := "set", string(value)
		if value == nil {
			delete(then, key)
			status, shown = "unset", "unset"
		} else {
			then[key] = next
		}
		if err := check(before, maps.Clone(then)); err != nil {
			return err
		}
		rec := gate.Record{At: next.At, Kind: "settings", Operation: "setting", Actor: who.Key(), Client: who.Client, WayIn: who.WayIn, Status: status,
			Effect: gate.EffectChange, Marks: map[string]string{"key": key}, Parts: map[string]string{"old": old, "new": shown}}
		var d *gate.Doc
		if value != nil {
			if d, err = s.row(next, version); err != nil {
				return err
			}
			rec.Marks["row"] = hashed(d.Body)
		}
		if _, err := tx.Append(rec); err != nil {
			return err
		}
		if d == nil {
			err = tx.DropDoc(kind, key)
		} else {
			err = tx.PutDoc(d)
		}
		if err != nil {
			return err
		}
		count, err := tx.Get(versionMark)
		if err != nil {
			return err
		}
		n, _ := strconv.ParseInt(count, 10, 64) // anything else begins anew, which is another text too
		return tx.Set(versionMark, strconv.FormatInt(n+1, 10))
	})
}

func (s *Set) row(v Value, version int64) (*gate.Doc, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	box, err := s.c.Sealer.Seal(text, sealedFor(v.Key, version+1))
	if err != nil {
		return nil, err
	}
	return &gate.Doc{Kind: kind, ID: v.Key, Owner: v.By, Version: version, Body: box}, nil
}

// Sorted lists values by key.
func Sorted(values map[string]Value) []Value {
	out := make([]Value, 0, len(values))
	for _, k := range slices.Sorted(maps.Keys(values)) {
		out = append(out, values[k])
	}
	return out
}
