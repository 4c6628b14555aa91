package undo

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"castellan/internal/gate"
)

// list takes back what happened to a list in which the order counts: firewall rules. A rule is told by its content, and
// where it stood by those beside it: a position is no name.
func (b *back) list(s gate.Sheet, before, after, now gate.Image) error {
	was, is, have := contents(before), contents(after), contents(now)
	if slices.Equal(have, was) {
		b.isAlready("%s are as they were", s.Name)
		return nil
	}
	switch {
	case len(is) == len(was)-1:
		p, ok := oneMore(was, is)
		if !ok {
			break
		}
		return b.putBack(s, before, is, now, p)
	case len(is) == len(was)+1:
		p, ok := oneMore(is, was)
		if !ok {
			break
		}
		return b.takeOut(s, after.Rows[p], was, is, now, p)
	case len(is) == len(was):
		if p, ok := oneOther(was, is); ok {
			return b.setBack(s, before.Rows[p], after.Rows[p], is, now, p)
		}
		if from, to, ok := oneMoved(was, is); ok {
			return b.moveBack(s, is, now, from, to)
		}
	}
	b.leave("how %s changed cannot be told from what was there before and after: somebody else changed them at the same time", s.Name)
	return nil
}

func contents(img gate.Image) []string {
	out := make([]string, len(img.Rows))
	for i, row := range img.Rows {
		out[i] = content(row)
	}
	return out
}

// oneMore finds where long has the one element that short has not.
func oneMore(long, short []string) (int, bool) {
	p := 0
	for p < len(short) && long[p] == short[p] {
		p++
	}
	return p, slices.Equal(long[p+1:], short[p:])
}

func oneOther(a, b []string) (at int, ok bool) {
	count := 0
	for i := range a {
		if a[i] != b[i] {
			at, count = i, count+1
		}
	}
	return at, count == 1
}

// oneMoved finds the element that stands elsewhere: a[from] is b[to], all others are in the same order.
func oneMoved(a, b []string) (from, to int, ok bool) {
	for from = range a {
		for to = range a {
			if from == to || a[from] != b[to] {
				continue
			}
			if slices.Equal(slices.Delete(slices.Clone(a), from, from+1), slices.Delete(slices.Clone(b), to, to+1)) {
				return from, to, true
			}
		}
	}
	return 0, 0, false
}

func count(list []string, c string) (n int) {
	for _, x := range list {
		if x == c {
			n++
		}
	}
	return n
}

// ruleAt are conditions that the rule at a position is this one.
func ruleAt(s gate.Sheet, pos int, row map[string]rawJSON) (out []gate.Condition) {
	where := map[string]string{"pos": strconv.Itoa(pos)}
	for _, k := range slices.Sorted(maps.Keys(row)) {
		text := shown(row[k])
		if slices.Contains(figures, k) || text == "" {
			continue
		}
		out = append(out, gate.Condition{Name: fmt.Sprintf("%s of rule %d in %s is %s", k, pos, s.Name, clip(text, 60)), Read: s.Read, Where: where, Pointer: pointer(k), Rule: gate.RuleEquals, Value: jsonText(text)})
	}
	return out
}

func noRuleAt(s gate.Sheet, pos int) gate.Condition {
	return gate.Condition{Name: fmt.Sprintf("there are %d rules in %s", pos, s.Name), Read: s.Read, Where: map[string]string{"pos": strconv.Itoa(pos)}, Rule: gate.RuleAbsent}
}

func (b *back) rulesChanged(s gate.Sheet, what string, found string) error {
	return fail("Look at the rules, and set what is wanted by a change of its own.", "%s were changed since: %s; found is %s%s. Nothing is undone", s.Name, what, clip(found, 200), b.by(s.Place["vmid"]))
}

// rule is a rule as arguments.
func (b *back) rule(s gate.Sheet, row map[string]rawJSON) map[string]any {
	out := map[string]any{}
	for k, raw := range row {
		if v, ok := value(raw); ok && !slices.Contains(figures, k) && b.takes(s.Create, k) {
			out[k] = v
		}
	}
	return out
}

func (b *back) ruleStep(s gate.Sheet, id string, pos int, args map[string]any) (gate.Step, error) {
	place := copied(s.Place)
	if pos >= 0 {
		place["pos"] = strconv.Itoa(pos)
	}
	req, lost, err := b.make(id, place, args)
	if err != nil {
		return gate.Step{}, fmt.Errorf("undo step %d: %w", b.step.Number, err)
	}
	for _, k := range lost {
		b.leave("%s of a rule in %s (its old value does not fit the call)", k, s.Name)
	}
	step := gate.Step{Target: b.target, API: req}
	if pos >= 0 && b.takes(id, "digest") {
		params := copied(s.Read.Params)
		params["pos"] = strconv.Itoa(pos)
		step.FreshDigest = &gate.Read{Operation: strings.Replace(s.Update, "PUT ", "GET ", 1), Params: params}
	}
	return step, b.identify(&step)
}

// putBack makes a deleted rule again, where it stood: a new rule comes first, and is then moved.
func (b *back) putBack(s gate.Sheet, before gate.Image, is []string, now gate.Image, p int) error {
	have, row := contents(now), before.Rows[p]
	if count(have, content(row)) > count(is, content(row)) {
		b.isAlready("the rule is in %s again", s.Name)
		return nil
	}
	at, ok := p, slices.Equal(have, is)
	if !ok {
		at, ok = between(have, neighbour(is, p-1), neighbour(is, p))
	}
	if !ok {
		return b.rulesChanged(s, "the rules between which the deleted one stood are not beside each other any more", fmt.Sprint(len(have))+" rules")
	}
	step, err := b.ruleStep(s, s.Create, -1, b.rule(s, row))
	if err != nil {
		return err
	}
	if at > 0 {
		step.Require = append(step.Require, ruleAt(s, at-1, now.Rows[at-1])...)
	}
	if at < len(have) {
		step.Require = append(step.Require, ruleAt(s, at, now.Rows[at])...)
	} else {
		step.Require = append(step.Require, noRuleAt(s, at))
	}
	step.Verify = ruleAt(s, 0, row)
	for _, k := range slices.Sorted(maps.Keys(row)) {
		if shown(row[k]) != "" && !slices.Contains(figures, k) {
			b.draft.Diff = append(b.draft.Diff, gate.Difference{Object: s.Name, Key: fmt.Sprintf("rule %d %s", at, k), New: clip(shown(row[k]), 200)})
		}
	}
	next := slices.Insert(slices.Clone(now.Rows), 0, row)
	b.add(s, step, gate.Image{Rows: next})
	if at == 0 {
		return nil
	}
	return b.move(s, gate.Image{Rows: next}, 0, at)
}

func neighbour(list []string, i int) string {
	if i < 0 || i >= len(list) {
		return ""
	}
	return list[i]
}

// between finds the one place where these two stand beside each other; empty is the end of the list.
func between(list []string, left, right string) (int, bool) {
	found, n := 0, 0
	for i := 0; i <= len(list); i++ {
		if neighbour(list, i-1) == left && neighbour(list, i) == right {
			found, n = i, n+1
		}
	}
	return found, n == 1
}

// move puts the rule at from so that it stands at to afterwards.
func (b *back) move(s gate.Sheet, now gate.Image, from, to int) error {
	target := to // the call puts it before the rule that stands at this place in the old list
	if to > from {
		target = to + 1
	}
	step, err := b.ruleStep(s, s.Update, from, map[string]any{"moveto": strconv.Itoa(target)})
	if err != nil {
		return err
	}
	row := now.Rows[from]
	step.Require = append(step.Require, ruleAt(s, from, row)...)
	step.Verify = ruleAt(s, to, row)
	b.draft.Diff = append(b.draft.Diff, gate.Difference{Object: s.Name, Key: "position of a rule", Old: strconv.Itoa(from), New: strconv.Itoa(to)})
	next := slices.Delete(slices.Clone(now.Rows), from, from+1)
	b.add(s, step, gate.Image{Rows: slices.Insert(next, to, row)})
	return nil
}

// find is where a rule of this content stands now.
func (b *back) find(s gate.Sheet, have, is []string, c string, p int) (int, error) {
	switch n := count(have, c); {
	case slices.Equal(have, is), n > 1 && neighbour(have, p) == c && len(have) == len(is):
		return p, nil
	case n == 1:
		return slices.Index(have, c), nil
	case n == 0:
		return 0, b.rulesChanged(s, "the rule that the plan left is not among them", "at its place "+orText(neighbour(have, p), "no rule"))
	}
	return 0, b.rulesChanged(s, "the rule that the plan left cannot be told from others like it", fmt.Sprint(count(have, c))+" like it")
}

// takeOut deletes a rule that was added.
func (b *back) takeOut(s gate.Sheet, row map[string]rawJSON, was, is []string, now gate.Image, p int) error {
	have, c := contents(now), content(row)
	if count(have, c) == 0 && len(have) == len(was) && !slices.ContainsFunc(have, func(x string) bool { return !slices.Contains(was, x) }) {
		b.isAlready("the rule is not in %s any more", s.Name)
		return nil
	}
	at, err := b.find(s, have, is, c, p)
	if err != nil {
		return err
	}
	step, err := b.ruleStep(s, s.Delete, at, nil)
	if err != nil {
		return err
	}
	step.Require = append(step.Require, ruleAt(s, at, now.Rows[at])...)
	for _, k := range slices.Sorted(maps.Keys(row)) {
		if shown(row[k]) != "" && !slices.Contains(figures, k) {
			b.draft.Diff = append(b.draft.Diff, gate.Difference{Object: s.Name, Key: fmt.Sprintf("rule %d %s", at, k), Old: clip(shown(row[k]), 200)})
		}
	}
	b.add(s, step, gate.Image{Rows: slices.Delete(slices.Clone(now.Rows), at, at+1)})
	b.drop(strings.TrimPrefix(s.Read.Operation, "GET "), row)
	return nil
}

// setBack sets the old values of a changed rule again.
func (b *back) setBack(s gate.Sheet, before, after map[string]rawJSON, is []string, now gate.Image, p int) error {
	have := contents(now)
	if count(have, content(after)) == 0 && count(have, content(before)) > 0 {
		b.isAlready("the rule in %s is as it was", s.Name)
		return nil
	}
	at, err := b.find(s, have, is, content(after), p)
	if err != nil {
		return err
	}
	args, gone := map[string]any{}, []string{}
	for _, k := range keys(before, after) {
		if slices.Contains(figures, k) || same(before[k], after[k]) {
			continue
		}
		if v, ok := value(before[k]); ok {
			args[k] = v
		} else {
			gone = append(gone, k)
		}
		b.draft.Diff = append(b.draft.Diff, gate.Difference{Object: s.Name, Key: fmt.Sprintf("rule %d %s", at, k), Old: clip(shown(after[k]), 200), New: clip(shown(before[k]), 200)})
	}
	if len(gone) > 0 {
		args["delete"] = strings.Join(gone, ",")
	}
	step, err := b.ruleStep(s, s.Update, at, args)
	if err != nil {
		return err
	}
	step.Require = append(step.Require, ruleAt(s, at, now.Rows[at])...)
	step.Verify = ruleAt(s, at, before)
	next := slices.Clone(now.Rows)
	next[at] = before
	b.add(s, step, gate.Image{Rows: next})
	return nil
}

func (b *back) moveBack(s gate.Sheet, is []string, now gate.Image, from, to int) error {
	if !slices.Equal(contents(now), is) {
		return b.rulesChanged(s, "a rule was moved among them, and they are not those among which it stood", fmt.Sprint(len(now.Rows))+" rules")
	}
	return b.move(s, now, to, from)
}

func copied(m map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, m)
	return out
}
