package self

import (
	"context"
	"encoding/json"
	"time"

	"castellan/internal/gate"
)

// Settings is what the two settings operations ask.
type Settings interface {
	// List gives every key as it stands, sorted, and what is to be said about them.
	List(ctx context.Context) ([]Setting, []string, error)
	// Tighten sets a key to a tighter value; anything else is refused.
	Tighten(ctx context.Context, who gate.Principal, key string, value json.RawMessage) error
}

// Setting is one key. A secret's value is never there.
type Setting struct {
	Key    string          `json:"key"`
	Value  json.RawMessage `json:"value,omitempty"`
	Set    bool            `json:"set"`
	Source string          `json:"source"` // default, file, environment, runtime
	By     string          `json:"by,omitempty"`
	At     time.Time       `json:"at,omitzero"`
	Agent  string          `json:"agent,omitempty"`  // how an agent may change it
	Person bool            `json:"person,omitempty"` // a person may change it while castellan runs
}

type getSettingsIn struct {
	Prefix string `json:"prefix,omitempty" jsonschema:"e.g. policy"`
	All    bool   `json:"all,omitempty" jsonschema:"unset keys too"`
}

type getSettingsOut struct {
	Settings []Setting `json:"settings"`
	Unset    []string  `json:"unset,omitempty"` // keys that have their default
	Notes    []string  `json:"notes,omitempty"`
}

func getSettings(s Settings) *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "get_settings", Summary: "castellan's own settings: value or set-state, and where each comes from. Read", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "configuration config options policy source environment overrides", Toolset: "full", Bounded: true,
	}, func(ctx context.Context, _ gate.View, in getSettingsIn) (getSettingsOut, error) {
		if s == nil {
			return getSettingsOut{}, gate.Fail(gate.ErrUnavailable, "", "this castellan has no configuration")
		}
		all, notes, err := s.List(ctx)
		out := getSettingsOut{Settings: []Setting{}, Notes: notes}
		for _, x := range all {
			switch {
			case in.Prefix != "" && x.Key != in.Prefix && !hasPrefix(x.Key, in.Prefix):
			case !x.Set && !in.All:
				out.Unset = append(out.Unset, x.Key)
			default:
				out.Settings = append(out.Settings, x)
			}
		}
		return out, err
	})
}

// hasPrefix: the prefix is whole names, so policy is none of policy_files.
func hasPrefix(key, prefix string) bool {
	return len(key) > len(prefix) && key[:len(prefix)] == prefix && (key[len(prefix)] == '.' || prefix[len(prefix)-1] == '.')
}

type updateSettingsIn struct {
	Setting string `json:"setting"` // "key" would be taken for a secret in the record of the call
	Value   string `json:"value" jsonschema:"as JSON: true, 5, [\"a\"]"`
}

type updateSettingsOut struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
	Note  string          `json:"note"`
}

func updateSettings(s Settings) *gate.Operation {
	return gate.Control(gate.Declaration{
		Name: "update_settings", Summary: "Make one of castellan's own settings tighter; nothing can be loosened here. Write", Effect: gate.EffectChange,
		Undo: "by a person, on the console or with castellan config set", Keywords: "configuration policy restrict tighten lock read only", Toolset: "full",
	}, func(ctx context.Context, desk gate.Desk, in updateSettingsIn) (updateSettingsOut, error) {
		if s == nil {
			return updateSettingsOut{}, gate.Fail(gate.ErrUnavailable, "", "this castellan has no configuration")
		}
		value := json.RawMessage(in.Value)
		if !json.Valid(value) { // a plain word is a text
			var err error
			if value, err = json.Marshal(in.Value); err != nil {
				return updateSettingsOut{}, gate.Fail(gate.ErrInvalid, "Give the value as JSON.", "the value of %q cannot be read", clip(in.Setting, 60))
			}
		}
		if err := s.Tighten(ctx, desk.Principal(), in.Setting, value); err != nil {
			return updateSettingsOut{}, err
		}
		return updateSettingsOut{Key: in.Setting, Value: value, Note: "In force from the next call on, in every process on this store. Only a person can take it back."}, nil
	})
}
