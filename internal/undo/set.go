package undo

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/gate"
)

// set takes back rows that were added, removed or changed: entries of the access list, members of a pool, jobs without a
// name of their own.
func (b *back) set(s gate.Sheet, before, after, now gate.Image) error {
	name := rowNames(s)
	was, is, have := byName(name, before), byName(name, after), byName(name, now)
	undone := true
	if made := b.madeRows(s, was, is); len(made) > 1 {
		b.leave("%d of %s were made at the same time, and it cannot be told which is the plan's: %s", len(made), s.Name, strings.Join(made, ", "))
		return nil
	}
	for _, n := range unionOf(was, is) {
		x, wasThere := was[n]
		y, isThere := is[n]
		z, there := have[n]
		if wasThere && isThere && content(x) == content(y) {
			continue
		}
		row := x
		if !wasThere {
			row = y
		}
		if !b.ownRow(s, row) {
			continue // somebody else's, written while the step ran
		}
		if wasThere == there && (!there || content(x) == content(z)) {
			continue // as it was
		}
		if isThere != there || there && content(y) != content(z) {
			found := "nothing"
			if there {
				found = content(z)
			}
			return fail("Look at it, and set what is wanted by a change of its own.", "%s: %s was changed since: the plan left %s, found is %s%s. Nothing is undone",
				s.Name, n, map[bool]string{true: content(y), false: "nothing"}[isThere], found, b.by(s.Place["vmid"]))
		}
		undone = false
		if err := b.row(s, name, n, x, y); err != nil {
			return err
		}
		if !wasThere {
			b.drop(strings.TrimPrefix(s.Read.Operation, "GET "), y)
		}
		if wasThere {
			have[n] = x
		} else {
			delete(have, n)
		}
	}
	if undone {
		b.isAlready("%s is as it was", s.Name)
		return nil
	}
	next := gate.Image{}
	for _, n := range slices.Sorted(maps.Keys(have)) {
		next.Rows = append(next.Rows, have[n])
	}
	b.now[b.key(s)] = next
	return nil
}

// madeRows are the names of new rows that could be the one that a step made without naming it.
func (b *back) madeRows(s gate.Sheet, was, is map[string]map[string]rawJSON) (out []string) {
	if b.step.API.Operation != s.Create {
		return nil
	}
	for _, n := range slices.Sorted(maps.Keys(is)) {
		if was[n] == nil && b.ownRow(s, is[n]) {
			out = append(out, n)
		}
	}
	return out
}

// rowNames are the fields by which a row is told.
func rowNames(s gate.Sheet) []string {
	switch s.Update {
	case "PUT /access/acl":
		return []string{"path", "type", "ugid", "roleid"}
	case "PUT /pools":
		return []string{"type", "vmid", "storage"}
	}
	return []string{"id"}
}

func byName(names []string, img gate.Image) map[string]map[string]rawJSON {
	out := map[string]map[string]rawJSON{}
	for _, row := range img.Rows {
		var parts []string
		for _, n := range names {
			if text, ok := scalar(row[n]); ok {
				parts = append(parts, text)
			}
		}
		out[strings.Join(parts, " ")] = row
	}
	return out
}

func unionOf(a, b map[string]map[string]rawJSON) []string {
	all := map[string]bool{}
	for k := range a {
		all[k] = true
	}
	for k := range b {
		all[k] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// row takes back one row: nil before means added, nil after removed.
func (b *back) row(s gate.Sheet, names []string, n string, before, after map[string]rawJSON) error {
	step := gate.Step{Target: b.target}
	where := map[string]string{}
	row := before
	if row == nil {
		row = after
	}
	for _, k := range names {
		if text, ok := scalar(row[k]); ok {
			where[k] = text
		}
	}
	there := gate.Condition{Name: fmt.Sprintf("%s has %s", s.Name, n), Read: s.Read, Where: where, Rule: gate.RulePresent}
	if after == nil {
		there.Name, there.Rule = fmt.Sprintf("%s has no %s", s.Name, n), gate.RuleAbsent
	}
	var err error
	id, args := s.Update, map[string]any{}
	switch s.Update {
	case "PUT /access/acl":
		err = aclRow(args, before, after)
		if after != nil {
			there.Pointer, there.Rule, there.Value = "/propagate", gate.RuleEquals, jsonText(orText(shown(after["propagate"]), "0"))
			there.Name += ", propagate " + shown(after["propagate"])
		}
		step.Require = append(step.Require, there)
	case "PUT /pools":
		poolRow(args, row, before == nil)
		step.Require = append(step.Require, b.member(s, row, after != nil)) // the rows lie below the answer's top, where no condition selects
	default:
		if before != nil {
			b.leave("%s of %s is gone or changed, and was not to be", n, s.Name)
			return nil
		}
		id, args["id"] = s.Delete, n
		step.Require = append(step.Require, there)
		for _, k := range slices.Sorted(maps.Keys(after)) {
			if text := shown(after[k]); text != "" && !slices.Contains(figures, k) && len(step.Require) < 30 {
				step.Require = append(step.Require, gate.Condition{Name: fmt.Sprintf("%s of %s is %s", k, n, clip(text, 60)), Read: s.Read, Where: where, Pointer: pointer(k), Rule: gate.RuleEquals, Value: jsonText(text)})
			}
		}
	}
	if err != nil {
		return err
	}
	if step.API, _, err = b.make(id, s.Place, args); err != nil {
		return fmt.Errorf("undo step %d: %w", b.step.Number, err)
	}
	diff := gate.Difference{Object: s.Name, Key: n}
	if before != nil {
		diff.New = orText(shown(before["propagate"]), "member")
	}
	if after != nil {
		diff.Old = orText(shown(after["propagate"]), "member")
	}
	if s.Update == "PUT /access/acl" {
		diff.Key += " propagate"
	}
	b.draft.Diff = append(b.draft.Diff, diff)
	b.draft.Steps = append(b.draft.Steps, step)
	return nil
}

// aclRow makes the arguments that give or take one entry.
func aclRow(args map[string]any, before, after map[string]rawJSON) error {
	row := before
	if row == nil {
		row = after
		args["delete"] = "1"
	} else {
		args["propagate"] = orText(shown(row["propagate"]), "0")
	}
	kind, _ := scalar(row["type"])
	field := map[string]string{"user": "users", "group": "groups", "token": "tokens"}[kind]
	if field == "" {
		return fmt.Errorf("an entry of the access list is of the unknown type %q", clip(kind, 20))
	}
	args["path"], args["roles"], args[field] = shown(row["path"]), shown(row["roleid"]), shown(row["ugid"])
	return nil
}

func poolRow(args map[string]any, row map[string]rawJSON, added bool) {
	if id, ok := scalar(row["storage"]); ok {
		args["storage"] = id
	} else {
		args["vms"], _ = scalar(row["vmid"])
	}
	if added {
		args["delete"] = "1"
	}
}

// member says whether a guest or storage is in a pool, as the listing of everything tells it.
func (b *back) member(s gate.Sheet, row map[string]rawJSON, in bool) gate.Condition {
	pool := s.Place["poolid"]
	c := gate.Condition{Read: gate.Read{Operation: "GET /cluster/resources"}, Pointer: "/pool", Rule: gate.RuleEquals, Value: jsonText(pool)}
	if id, ok := scalar(row["vmid"]); ok {
		c.Where = map[string]string{"vmid": id}
		c.Name = "guest " + id + " is in pool " + pool
	} else {
		id, _ := scalar(row["storage"])
		c.Where = map[string]string{"type": "storage", "storage": id}
		c.Name, c.Pointer, c.Rule, c.Value = "storage "+id+" is there", "", gate.RulePresent, nil // the listing does not say a storage's pool
		return c
	}
	if !in {
		c.Name, c.Rule, c.Value = strings.Replace(c.Name, " is in pool ", " is in no pool, as when the plan took it out of ", 1), gate.RuleAbsent, nil
	}
	return c
}
