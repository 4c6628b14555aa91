package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pelletier/go-toml/v2"

	"castellan/internal/gate"
	"castellan/internal/ops/self"
	"castellan/internal/policy"
	"castellan/internal/settings"
)

// runtimeKeys may be set while castellan runs. What names files, addresses or accounts is not among them.
var runtimeKeys = []string{"policy.read_only", "policy.capabilities", "policy.guests", "policy.pools", "policy.tags", "policy.forbid", "policy.rungs",
	"policy.stand_in", "policy.four_eyes", "policy.writes_per_hour", "policy.windows", "policy.plan_ttl", "policy.wait_ttl", "policy.arming",
	"policy.approval_ttl", "policy.taint_for", "policy.undo_points", "policy.backup_before_destroy"}

// runtimeSettings lays what is set in the store over file and environment.
type runtimeSettings struct {
	a    *app
	path string
	set  *settings.Set
	make func(Settings) (*policy.Policy, error)
	// enrolled says whether any passkey was ever enrolled here; nil: nobody can.
	enrolled func(ctx context.Context) (bool, error)

	mu      sync.Mutex
	started bool   // what the store holds has been taken up once
	stamp   string // of what was last looked at: file and version
	looked  time.Time
	version string
	broken  error
	notes   []string
}

// newRuntime begins with the file as it is now and nothing in the store.
func (a *app) newRuntime(path string, set *settings.Set, make func(Settings) (*policy.Policy, error)) *runtimeSettings {
	r := &runtimeSettings{a: a, path: path, set: set, make: make}
	if info, err := os.Stat(path); err == nil {
		r.stamp = fmt.Sprint(info.Size(), info.ModTime().UnixNano(), a.separate(), " ")
	}
	return r
}

// lookEvery bounds how often the store is asked whether settings have changed.
const lookEvery = 250 * time.Millisecond

// overlay puts values over s, each for itself: one that cannot be taken is named and left out. Who decides by the result
// changes nothing while there is one.
func overlay(s Settings, values map[string]settings.Value) (Settings, []string) {
	var faults []string
	s.Policy.Rungs = maps.Clone(s.Policy.Rungs)
	for _, v := range settings.Sorted(values) {
		err := fmt.Errorf("%s is none of the settings that can be set while castellan runs", v.Key)
		if slices.Contains(runtimeKeys, v.Key) {
			below := s
			if err = settings.Put(&s, v.Key, v.Value); err == nil {
				if err = mildFault(s, v.Key); err != nil {
					s = below
				}
			}
		}
		if err != nil {
			faults = append(faults, "a setting in the store cannot be read by this version, and it may have made things tighter: nothing may be changed until castellan config unset "+v.Key+" ("+err.Error()+")")
		}
	}
	return s, faults
}

// load is called before each decision: nil when nothing has changed.
func (r *runtimeSettings) load() (*policy.Policy, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	info, err := os.Stat(r.path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if now := time.Now(); now.Sub(r.looked) >= lookEvery {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		v, err := r.set.Version(ctx)
		r.looked = now
		if err != nil {
			return nil, fmt.Errorf("read the settings in the store: %w", err)
		}
		r.version = v
	}
	stamp := fmt.Sprint(info.Size(), info.ModTime().UnixNano(), r.a.separate(), " ", r.version)
	if stamp == r.stamp {
		return nil, r.broken
	}
	p, notes, err := r.policy()
	if err != nil && !r.started && p != nil { // at the start, what the store holds cannot be used: nothing may be changed
		r.stamp, r.broken, r.notes = stamp, err, append(notes, err.Error())
		return p, nil
	}
	r.stamp, r.broken = stamp, err
	if err == nil {
		r.notes, r.started = notes, true
	}
	return p, err
}

// policy makes the policy of file, environment and store. Where the store's part cannot be used, it is one that changes
// nothing, beside the error.
func (r *runtimeSettings) policy() (*policy.Policy, []string, error) {
	s, _, _, err := r.a.load()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	values, faults, err := r.set.All(ctx)
	lost := errors.Is(err, settings.ErrLost)
	if err != nil && !lost {
		return nil, nil, err
	}
	over, more := overlay(s, values)
	over.Policy.ReadOnly = over.Policy.ReadOnly || lost || len(more) > 0
	faults = append(faults, more...)
	p, err := r.make(over)
	if err == nil {
		return p, faults, nil
	}
	err = fmt.Errorf("what is set in the store does not go with the configuration: %w", err)
	s.Policy.ReadOnly = true
	p, ferr := r.make(s)
	if ferr != nil {
		return nil, faults, errors.Join(err, ferr)
	}
	return p, faults, err
}

// notices are what every answer must say about settings.
func (r *runtimeSettings) notices() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.notes)
}

// current is the settings as they stand, with the values of the store and where each key comes from.
func (r *runtimeSettings) current(ctx context.Context) (s Settings, values map[string]settings.Value, source map[string]string, notes []string, err error) {
	s, _, notes, err = r.a.load()
	if err != nil {
		return s, nil, nil, nil, err
	}
	values, faults, err := r.set.All(ctx)
	if err != nil && !errors.Is(err, settings.ErrLost) {
		return s, nil, nil, nil, err
	}
	source = map[string]string{}
	if b, err := os.ReadFile(r.path); err == nil {
		var plain map[string]any
		if toml.Unmarshal(b, &plain) == nil {
			named(plain, "", source)
		}
	}
	for _, n := range notes {
		if key, _, ok := strings.Cut(n, " "); ok && !strings.HasSuffix(key, ":") { // a key that is named with a colon was not taken
			source[key] = "environment"
		}
	}
	s, more := overlay(s, values)
	for k := range values {
		source[k] = "runtime"
	}
	return s, values, source, append(notes, append(faults, more...)...), nil
}

func named(v any, at string, source map[string]string) {
	m, ok := v.(map[string]any)
	if at != "" {
		source[at] = "file"
	}
	if ok {
		for k, e := range m {
			named(e, strings.TrimPrefix(at+"."+k, "."), source)
		}
	}
}

var _ self.Settings = (*runtimeSettings)(nil)

// List gives every key.
func (r *runtimeSettings) List(ctx context.Context) ([]self.Setting, []string, error) {
	s, values, source, notes, err := r.current(ctx)
	if err != nil {
		return nil, nil, &gate.Error{Kind: gate.ErrUnavailable, Message: "the settings cannot be read: " + err.Error(), Changed: "nothing", Hint: "castellan config check", Cause: err}
	}
	var out []self.Setting
	for _, key := range settings.Keys(s) {
		raw, err := settings.Get(&s, key)
		if err != nil {
			return nil, nil, err
		}
		x := self.Setting{Key: key, Set: string(raw) != "null", Source: "default", Person: slices.Contains(runtimeKeys, key)}
		if from, ok := source[key]; ok {
			x.Source, x.Set = from, true
		}
		if v, ok := values[key]; ok {
			x.By, x.At = v.By, v.At
		}
		if rule, ok := settings.RuleOf(key); ok {
			x.Agent = rule.Says
		}
		if x.Set {
			x.Value = shown(key, raw)
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b self.Setting) int { return strings.Compare(a.Key, b.Key) })
	return out, notes, nil
}

// shown is a value as anybody may see it: of files their names, of addresses no password. Tables show their files only as
// set.
func shown(key string, raw json.RawMessage) json.RawMessage {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	b, err := json.Marshal(masked(key[strings.LastIndexByte(key, '.')+1:], v))
	if err != nil {
		return nil
	}
	return b
}

func masked(name string, v any) any {
	switch x := v.(type) {
	case string:
		if u, err := url.Parse(x); err == nil && u.User != nil {
			u.User = url.User("withheld")
			return u.String()
		}
		lower := strings.ToLower(name)
		secret := strings.Contains(lower, "secret") || strings.Contains(lower, "password") || strings.Contains(lower, "token")
		if secret && !strings.HasSuffix(lower, "file") && !strings.HasSuffix(lower, "id") && x != "" {
			return "(set)"
		}
		return x
	case []any:
		for i, e := range x {
			x[i] = masked(name, e)
		}
		return x
	case map[string]any:
		for k, e := range x {
			if z := reflect.ValueOf(e); !z.IsValid() || z.IsZero() {
				delete(x, k)
				continue
			}
			x[k] = masked(k, e)
		}
		return x
	}
	return v
}

// Tighten is what an agent may do.
func (r *runtimeSettings) Tighten(ctx context.Context, who gate.Principal, key string, value json.RawMessage) error {
	rule, ok := settings.RuleOf(key)
	if !ok {
		var keys []string
		for _, x := range settings.Rules() {
			keys = append(keys, x.Key)
		}
		return gate.Fail(gate.ErrDenied, "A person changes it: on the console, with castellan config set, or in the file.",
			"%q is none of the settings that can be made tighter here: %s", key, strings.Join(keys, ", "))
	}
	if slices.Contains(who.Roles, gate.RoleViewer) && !slices.Contains(who.Roles, gate.RoleOperator) && !slices.Contains(who.Roles, gate.RoleAdministrator) {
		return gate.Fail(gate.ErrDenied, "A person changes it.", "the role viewer changes nothing")
	}
	return r.put(ctx, who, key, value, func(old json.RawMessage) error {
		if err := rule.Check(old, value); err != nil {
			return gate.Fail(gate.ErrDenied, "A person changes it: on the console, with castellan config set, or in the file.", "%v; it is %s now", err, old)
		}
		return nil
	})
}

// Set is what a person may do; value nil gives the key back to file and environment.
func (r *runtimeSettings) Set(ctx context.Context, who gate.Principal, key string, value json.RawMessage) error {
	administers := who.Agent == "" && who.Person != "" && (who.Strength == gate.StrengthAccount || slices.Contains(who.Roles, gate.RoleAdministrator) &&
		(who.Strength == gate.StrengthSession || who.Strength == gate.StrengthPasskey))
	if !administers {
		return gate.Fail(gate.ErrDenied, "An administrator does.", "%s may not change settings", who.Key())
	}
	if !slices.Contains(runtimeKeys, key) && value != nil { // what another version left behind can be taken away
		return gate.Fail(gate.ErrInvalid, "Edit the configuration file for it.", "%q cannot be set while castellan runs; these can: %s", key, strings.Join(runtimeKeys, ", "))
	}
	return r.put(ctx, who, key, value, func(old json.RawMessage) error {
		rule, ok := settings.RuleOf(key)
		if who.Strength != gate.StrengthSession || r.enrolled == nil || ok && value != nil && rule.Check(old, value) == nil {
			return nil
		}
		// Else a session would be enough for what takes a passkey.
		if ever, err := r.enrolled(ctx); err != nil || ever {
			return cmp.Or(err, error(gate.Fail(gate.ErrDenied, "Sign in with a passkey and do it again.", "passkeys are enrolled here, so %s is made looser only by someone signed in with one", key)))
		}
		return nil
	})
}

// put stores a value if the whole of the settings is still good with it; old is what is in force.
func (r *runtimeSettings) put(ctx context.Context, who gate.Principal, key string, value json.RawMessage, allow func(old json.RawMessage) error) error {
	s, _, _, err := r.a.load()
	if err != nil {
		return &gate.Error{Kind: gate.ErrUnavailable, Message: "the configuration cannot be read, so nothing was changed: " + err.Error(), Changed: "nothing", Hint: "castellan config check", Cause: err}
	}
	err = r.set.Put(ctx, who, key, value, func(before, then map[string]settings.Value) error {
		now, _ := overlay(s, before)
		old, err := settings.Get(&now, key)
		if err != nil && value == nil {
			old, err = json.RawMessage("null"), nil
		}
		if err != nil {
			return err
		}
		if err := allow(old); err != nil {
			return err
		}
		next := s
		if err := settings.Put(&next, key, orUnset(value)); value != nil && err != nil {
			return gate.Fail(gate.ErrInvalid, "Give a value of that form.", "%v", err)
		}
		over, _ := overlay(s, then)
		if _, err := r.make(over); err != nil {
			return gate.Fail(gate.ErrInvalid, "Give another value.", "%v", err)
		}
		return nil
	})
	r.mu.Lock()
	r.looked = time.Time{} // this process takes it up at once
	r.mu.Unlock()
	var e *gate.Error
	if err != nil && !errors.As(err, &e) {
		return &gate.Error{Kind: gate.ErrUnavailable, Message: "the setting could not be stored: " + err.Error(), Changed: "nothing", Cause: err}
	}
	return err
}

func orUnset(value json.RawMessage) json.RawMessage {
	if value == nil {
		return json.RawMessage("null")
	}
	return value
}

// containFile stops every write while it lies beside the configuration.
const containFile = "contain"

// contained says why every write is refused: somebody put the file there.
func contained(dir string) func() string {
	return func() string {
		info, err := os.Lstat(filepath.Join(dir, containFile))
		switch {
		case err == nil:
			return fmt.Sprintf("the file %s beside the configuration stops them since %s", containFile, info.ModTime().UTC().Format(time.RFC3339))
		case errors.Is(err, os.ErrNotExist):
			return ""
		}
		return "whether the file " + containFile + " stops them cannot be told: " + err.Error()
	}
}
