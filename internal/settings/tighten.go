package settings

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"castellan/internal/gate"
)

// Rule says which direction of a key is the tight one: it refuses a value that is looser than the old one in any way.
type Rule struct {
	Key  string
	Says string // in words: "only true", "only fewer"
	ok   func(old, next json.RawMessage) bool
}

// Check refuses a looser value.
func (r Rule) Check(old, next json.RawMessage) error {
	if !r.ok(old, next) {
		return fmt.Errorf("%s may only be made tighter here (%s)", r.Key, r.Says)
	}
	return nil
}

// Rules are the few keys that an agent may make tighter, and in which direction. Everything else is a person's.
func Rules() []Rule {
	return []Rule{
		{"policy.read_only", "only to true", onlyTrue},
		{"policy.arming", "only to true", onlyTrue},
		{"policy.four_eyes", "only to true", onlyTrue},
		{"policy.capabilities", "only fewer of those that are on", fewer},
		{"policy.forbid", "only more entries", more},
		{"policy.writes_per_hour", "only a lower number, and never none", lower},
		{"policy.rungs", "only higher rungs than those in force, none left out", higher},
		{"policy.taint_for", "only longer", func(old, next json.RawMessage) bool { return span(next, 0) >= span(old, time.Hour) }},
		{"policy.plan_ttl", "only shorter", shorter(15 * time.Minute)},
		{"policy.approval_ttl", "only shorter", shorter(15 * time.Minute)},
		{"policy.wait_ttl", "only shorter", shorter(12 * time.Hour)},
		{"policy.undo_points", "only more entries", more},
		{"policy.backup_before_destroy", "only shorter, and never none", ageBound},
	}
}

// RuleOf finds the rule of a key.
func RuleOf(key string) (Rule, bool) {
	rules := Rules()
	i := slices.IndexFunc(rules, func(r Rule) bool { return r.Key == key })
	if i < 0 {
		return Rule{}, false
	}
	return rules[i], true
}

func onlyTrue(_, next json.RawMessage) bool { return string(next) == "true" }

func list(raw json.RawMessage) ([]string, bool) {
	var out []string
	err := json.Unmarshal(raw, &out)
	return out, err == nil
}

func within(all, of json.RawMessage) bool {
	a, ok1 := list(all)
	b, ok2 := list(of)
	return ok1 && ok2 && !slices.ContainsFunc(b, func(s string) bool { return !slices.Contains(a, s) })
}

func fewer(old, next json.RawMessage) bool { return string(next) != "null" && within(old, next) }
func more(old, next json.RawMessage) bool  { return string(next) != "null" && within(next, old) }

func lower(old, next json.RawMessage) bool {
	var was, is int
	if json.Unmarshal(old, &was) != nil || json.Unmarshal(next, &is) != nil || is < 1 {
		return false
	}
	return was == 0 || is <= was
}

// higher: each kind or class that is named has a rung no lower than before, and what was named stays.
func higher(old, next json.RawMessage) bool {
	var was, is map[string]string
	if json.Unmarshal(old, &was) != nil || json.Unmarshal(next, &is) != nil {
		return false
	}
	for name := range was {
		if _, still := is[name]; !still {
			return false
		}
	}
	for name, text := range is {
		rung, err := gate.ParseRung(text)
		if err != nil || rung < before(was, name) {
			return false
		}
	}
	return true
}

// before is the highest rung that anything under a name (a kind, or a class with all its kinds) has now: an entry of its
// own, that of its class, or the table's.
func before(was map[string]string, name string) gate.Rung {
	highest, found := gate.RungNone, false
	for _, row := range gate.Table() {
		if string(row.Kind) != name && string(row.Class) != name {
			continue
		}
		found = true
		rung := row.Rung
		for _, n := range []string{string(row.Class), string(row.Kind)} {
			if r, err := gate.ParseRung(was[n]); err == nil {
				rung = r
			}
		}
		highest = max(highest, rung)
	}
	if !found {
		return gate.RungDenied
	}
	return highest
}

func span(raw json.RawMessage, usual time.Duration) time.Duration {
	var text string
	if string(raw) == "null" {
		return usual
	}
	d := time.Duration(-1)
	if json.Unmarshal(raw, &text) == nil {
		if v, err := time.ParseDuration(text); err == nil {
			d = v
		}
	}
	return d
}

// ageBound: any age is tighter than none, and a longer one lets older backups pass.
func ageBound(old, next json.RawMessage) bool {
	is := span(next, -1)
	if text := string(old); text == "null" || text == `""` {
		return is > 0
	}
	return is > 0 && is <= span(old, -1)
}

func shorter(usual time.Duration) func(old, next json.RawMessage) bool {
	return func(old, next json.RawMessage) bool {
		is := span(next, -1)
		return is > 0 && is <= span(old, usual)
	}
}
