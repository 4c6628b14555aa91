package undo

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/gate"
)

// object takes back what happened to one object: made, changed or deleted.
func (b *back) object(s gate.Sheet, before, after, now gate.Image) error {
	switch was, is := len(before.Rows) == 1, len(after.Rows) == 1; {
	case !was && is:
		return b.remove(s, after.Rows[0], now)
	case was && !is:
		return b.recreate(s, before.Rows[0], now)
	case was && is:
		return b.restore(s, before.Rows[0], after.Rows[0], now)
	}
	return nil
}

// at is a condition's way to a field of the object that a sheet shows.
func at(s gate.Sheet, key string) gate.Condition {
	c := gate.Condition{Read: s.Read, Where: s.Where}
	if key != "" {
		c.Pointer = pointer(key)
	}
	if len(s.Where) == 0 {
		c.Pointer = s.At + c.Pointer
	}
	return c
}

// is says that a field has this value.
func is(s gate.Sheet, key string, raw rawJSON) gate.Condition {
	c := at(s, key)
	text := shown(raw)
	switch {
	case text == "":
		c.Name, c.Rule = fmt.Sprintf("%s of %s is not set", key, s.Name), gate.RuleAbsent
	case masked(text):
		c.Name, c.Rule = fmt.Sprintf("%s of %s is set", key, s.Name), gate.RulePresent
	default:
		c.Name, c.Rule, c.Value = fmt.Sprintf("%s of %s is %s", key, s.Name, clip(text, 80)), gate.RuleEquals, jsonText(text)
	}
	return c
}

func absent(s gate.Sheet) gate.Condition {
	c := at(s, "")
	c.Name, c.Rule = "there is no "+s.Name, gate.RuleAbsent
	return c
}

// object's keys that are settings: what the call that changes it takes, or the one that makes it.
func (b *back) setting(s gate.Sheet, key string) bool {
	if slices.Contains(figures, key) || unusedDisk(key) {
		return false
	}
	if _, placed := s.Place[key]; placed {
		return false
	}
	return s.Update != "" && b.takes(s.Update, key) || s.Create != "" && b.takes(s.Create, key) || roleRow(s)
}

func keys(rows ...map[string]rawJSON) []string {
	all := map[string]bool{}
	for _, r := range rows {
		for k := range r {
			all[k] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// roleRow: a role's answer has its privileges as keys.
func roleRow(s gate.Sheet) bool { return s.Read.Operation == "GET /access/roles/{roleid}" }

func privileges(row map[string]rawJSON) string {
	var on []string
	for k, v := range row {
		if text, _ := scalar(v); text == "1" {
			on = append(on, k)
		}
	}
	slices.Sort(on)
	return strings.Join(on, ",")
}

// whole is an object as the arguments that make it so.
func (b *back) whole(s gate.Sheet, row map[string]rawJSON) map[string]any {
	if roleRow(s) {
		return map[string]any{"privs": privileges(row)}
	}
	out := map[string]any{}
	for k, raw := range row {
		if !b.setting(s, k) || derived(s, k, row) {
			continue
		}
		if v, ok := value(raw); ok {
			out[k] = v
		}
	}
	return out
}

// derived are fields that follow from others and are refused, or contradict them, when they are sent along.
func derived(s gate.Sheet, key string, row map[string]rawJSON) bool {
	switch {
	case strings.Contains(s.Update, "/network/{iface}") && (key == "address" || key == "netmask"):
		return row["cidr"] != nil
	case strings.Contains(s.Update, "/network/{iface}") && (key == "address6" || key == "netmask6"):
		return row["cidr6"] != nil
	case s.Read.Operation == "GET /storage/{storage}" && key == "shared":
		kind, _ := scalar(row["type"])
		return slices.Contains([]string{"nfs", "cifs", "pbs", "rbd", "cephfs", "glusterfs", "iscsi", "iscsidirect", "zfs", "esxi"}, kind)
	case key == "tokens" && strings.Contains(s.Read.Operation, "/access/users/"):
		return true
	}
	return false
}

// conflict refuses since somebody else has changed what the plan changed.
func (b *back) conflict(s gate.Sheet, key string, after, now rawJSON) error {
	found := shown(now)
	if masked(found) || found == "" {
		found = map[bool]string{true: "nothing", false: "a hidden value"}[found == ""]
	}
	left := orText(shown(after), "nothing")
	if masked(left) {
		left = "a hidden value"
	}
	return fail("Look at it, and set what is wanted by a change of its own.", "%s of %s was changed since: the plan left %q, found is %q%s. Nothing is undone", key, s.Name, clip(left, 120), clip(found, 120), b.by(s.Place["vmid"]))
}

// unseen says whether a value that is set cannot be compared: it is never shown, or was not kept.
func unseen(kept, now rawJSON) bool { return hidden(kept) && shown(now) != "" }

// restore sets the old values of changed keys again.
func (b *back) restore(s gate.Sheet, before, after map[string]rawJSON, now gate.Image) error {
	if len(now.Rows) == 0 {
		return fail("It cannot be set back any more.", "%s is gone%s", s.Name, b.by(s.Place["vmid"]))
	}
	row := now.Rows[0]
	args, unset := map[string]any{}, []string{}
	step := gate.Step{Target: b.target}
	next := maps.Clone(row)
	ready := true
	for _, k := range keys(before, after) {
		if hidden(before[k]) && b.setting(s, k) { // both look alike, whether or not it was changed
			if b.names(s, k) && (pathOf(b.step.API.Operation) == pathOf(s.Update) || !same(before[k], after[k])) {
				b.leave("%s of %s (its old value cannot be read: it must be typed again)", k, s.Name)
			}
			continue
		}
		if same(before[k], after[k]) || !b.setting(s, k) {
			continue
		}
		if same(row[k], before[k]) {
			continue // it is as it was
		}
		if !b.names(s, k) {
			b.leave("%s of %s changed beside it, and it did not name that: somebody else may have written it, so it stays %q", k, s.Name, clip(shown(row[k]), 80))
			continue
		}
		if set, other := b.otherwise(s, k, after[k]); other {
			return fail("Look at it, and set what is wanted by a change of its own.", "%s of %s was changed since: the plan set %q, and when its step had ended %q was found. Nothing is undone", k, s.Name, clip(set, 120), clip(shown(after[k]), 120))
		}
		if !same(row[k], after[k]) && !unseen(after[k], row[k]) {
			return b.conflict(s, k, after[k], row[k])
		}
		ready = false
		if k == "groups" && s.Update == "PUT /access/users/{userid}" {
			b.groups[s.Place["userid"]] = before[k]
		}
		step.Require = append(step.Require, is(s, k, after[k]))
		diff := gate.Difference{Object: s.Name, Key: k, Old: clip(shown(after[k]), 400), New: clip(shown(before[k]), 400)}
		b.draft.Diff = append(b.draft.Diff, diff)
		if text := shown(before[k]); text == "" || text == "[]" || text == "{}" {
			delete(next, k)
			unset = append(unset, k)
		} else {
			next[k] = before[k]
			if v, ok := value(before[k]); ok {
				args[k] = v
			} else {
				b.leave("%s (its old value has no form in which it can be sent)", k)
			}
		}
		if !roleRow(s) {
			step.Verify = append(step.Verify, is(s, k, before[k]))
		}
	}
	if ready {
		b.isAlready("%s is as it was", s.Name)
		return nil
	}
	if s.Update == "" {
		b.leave("no call is known that changes %s", s.Name)
		return nil
	}
	if roleRow(s) {
		args, unset = map[string]any{"privs": privileges(before)}, nil
	}
	if replaces(s.Update) {
		for k, v := range b.whole(s, next) {
			if _, given := args[k]; !given && b.takes(s.Update, k) {
				args[k] = v
			}
		}
	}
	for k := range args { // both forms of an address at once contradict each other
		if derived(s, k, before) && (args["cidr"] != nil || args["cidr6"] != nil) {
			delete(args, k)
		}
	}
	unset = slices.DeleteFunc(unset, func(k string) bool { return derived(s, k, after) })
	if err := b.unset(s, args, unset); err != nil {
		return err
	}
	for _, k := range append(b.required(s.Update), b.alongWith(s.Update, args)...) {
		_, placed := s.Place[k]
		if v, ok := value(row[k]); ok && args[k] == nil && !placed && k != "digest" {
			args[k] = v // the call asks for it again although it stays
		}
	}
	req, lost, err := b.make(s.Update, s.Place, args)
	if err != nil {
		return fmt.Errorf("undo step %d: %w", b.step.Number, err)
	}
	for _, k := range lost {
		b.leave("%s (its old value does not fit the call)", k)
	}
	step.API = req
	if b.takes(s.Update, "digest") && row["digest"] != nil && len(s.Where) == 0 {
		read := s.Read
		step.FreshDigest = &read
	}
	if err := b.identify(&step); err != nil {
		return err
	}
	b.add(s, step, gate.Image{Rows: []map[string]rawJSON{next}})
	return nil
}

// replaces says whether a call forgets what it is not given.
func replaces(id string) bool {
	return strings.HasSuffix(id, "/firewall/aliases/{name}") || strings.HasSuffix(id, "/firewall/ipset/{name}/{cidr}")
}

// unset takes keys away again: by the call's delete, else by an empty value where the call takes that for none.
func (b *back) unset(s gate.Sheet, args map[string]any, names []string) error {
	if len(names) == 0 {
		return nil
	}
	op, ok := b.k.c.Catalog.Lookup(b.product, s.Update)
	if !ok {
		return fmt.Errorf("there is no call %s", s.Update)
	}
	if d := op.Facts.Params["delete"]; d != nil && d.Type != "boolean" {
		args["delete"] = strings.Join(names, ",")
		return nil
	}
	for _, k := range names {
		schema, _, _ := op.Schema(k)
		switch {
		case schema != nil && schema.Default != nil:
			args[k] = fmt.Sprint(schema.Default)
		case schema != nil && schema.Type == "boolean":
			args[k] = "0"
		default:
			args[k] = ""
		}
	}
	req, problems := b.k.c.Catalog.Check(op, withPlace(args, s.Place))
	if len(problems) > 0 {
		return nil // make says which
	}
	for _, k := range names {
		if len(req.Get(k)) == 0 {
			b.leave("%s (the call cannot unset it)", k)
		}
	}
	return nil
}

func withPlace(args map[string]any, place map[string]string) map[string]any {
	out := maps.Clone(args)
	for k, v := range place {
		out[k] = v
	}
	return out
}

// recreate makes a deleted object again.
func (b *back) recreate(s gate.Sheet, before map[string]rawJSON, now gate.Image) error {
	if len(now.Rows) > 0 {
		for _, k := range keys(before, now.Rows[0]) {
			if (b.setting(s, k) || roleRow(s)) && !same(before[k], now.Rows[0][k]) && !unseen(before[k], now.Rows[0][k]) {
				return b.conflict(s, k, nil, now.Rows[0][k])
			}
		}
		b.isAlready("%s is there again", s.Name)
		return nil
	}
	lacks := false
	for _, k := range keys(before) {
		if hidden(before[k]) && b.setting(s, k) {
			b.leave("%s of %s (its old value cannot be read: it must be typed again)", k, s.Name)
			lacks = lacks || slices.Contains(b.required(s.Create), k)
		}
	}
	if lacks {
		b.leave("%s (it cannot be made again without what cannot be read)", s.Name)
		return nil
	}
	args := b.whole(s, before)
	create, later := map[string]any{}, map[string]any{}
	for k, v := range args {
		if b.takes(s.Create, k) {
			create[k] = v
		} else {
			later[k] = v
		}
	}
	for k, v := range s.Place {
		if b.takes(s.Create, k) && create[k] == nil && !strings.HasPrefix(v, "@") {
			create[k] = v
		}
	}
	b.createdAs(s, before, create)
	req, lost, err := b.make(s.Create, s.Place, create)
	if err != nil {
		return fmt.Errorf("undo step %d: %w", b.step.Number, err)
	}
	for _, k := range lost {
		b.leave("%s of %s (its old value does not fit the call)", k, s.Name)
	}
	step := gate.Step{Target: b.target, API: req, Require: []gate.Condition{absent(s)}}
	there := at(s, "")
	there.Name, there.Rule = s.Name+" is there", gate.RulePresent
	step.Verify = []gate.Condition{there}
	for _, k := range slices.Sorted(maps.Keys(before)) {
		if b.setting(s, k) && !derived(s, k, before) {
			b.draft.Diff = append(b.draft.Diff, gate.Difference{Object: s.Name, Key: k, New: clip(shown(before[k]), 400)})
		}
	}
	b.add(s, step, gate.Image{Rows: []map[string]rawJSON{before}})
	if len(later) > 0 && s.Update != "" {
		for _, k := range b.required(s.Update) {
			if v, ok := value(before[k]); ok && later[k] == nil {
				later[k] = v
			}
		}
		req, _, err := b.make(s.Update, s.Place, later)
		if err != nil {
			return fmt.Errorf("undo step %d: %w", b.step.Number, err)
		}
		b.draft.Steps = append(b.draft.Steps, gate.Step{Target: b.target, API: req})
	}
	return nil
}

// createdAs puts in place what the call that makes an object calls otherwise than the answer that shows it.
func (b *back) createdAs(s gate.Sheet, before map[string]rawJSON, create map[string]any) {
	if s.Create == "POST /cluster/sdn/vnets/{vnet}/subnets" {
		if cidr, ok := scalar(before["cidr"]); ok {
			create["subnet"] = cidr
		} else if id, ok := create["subnet"].(string); ok {
			if zone, ok := scalar(before["zone"]); ok {
				id = strings.TrimPrefix(id, zone+"-")
			}
			if i := strings.LastIndexByte(id, '-'); i > 0 {
				create["subnet"] = id[:i] + "/" + id[i+1:]
			}
		}
		create["type"] = "subnet"
	}
}

// remove deletes an object that the plan made, if nobody has used or changed it since.
func (b *back) remove(s gate.Sheet, after map[string]rawJSON, now gate.Image) error {
	if len(now.Rows) == 0 {
		b.isAlready("%s is gone", s.Name)
		return nil
	}
	step := gate.Step{Target: b.target}
	row := now.Rows[0]
	changed := map[string]rawJSON{} // what later steps of the plan changed, and this plan has set back by then
	for _, k := range keys(after, row) {
		if !b.setting(s, k) && !roleRow(s) {
			continue
		}
		if !same(after[k], row[k]) && !unseen(after[k], row[k]) {
			return b.conflict(s, k, after[k], row[k])
		}
		if len(step.Require) < 40 {
			step.Require = append(step.Require, is(s, k, after[k]))
		}
		changed[k] = after[k]
	}
	unused, err := b.unused(s, after)
	if err != nil {
		return err
	}
	step.Require = append(step.Require, unused...)
	req, _, err := b.make(s.Delete, s.Place, b.deletion(s))
	if err != nil {
		return fmt.Errorf("undo step %d: %w", b.step.Number, err)
	}
	step.API = req
	step.Verify = []gate.Condition{absent(s)}
	if guestOf(s) == "" {
		for _, k := range slices.Sorted(maps.Keys(changed)) {
			b.draft.Diff = append(b.draft.Diff, gate.Difference{Object: s.Name, Key: k, Old: clip(shown(after[k]), 400)})
		}
	} else {
		step.Undo.None = "its disks are destroyed; only a backup brings the guest back"
	}
	if err := b.identify(&step); err != nil {
		return err
	}
	b.add(s, step, gate.Image{})
	path := strings.TrimPrefix(s.Delete, "DELETE ")
	if i := strings.LastIndex(path, "/{"); i > 0 && strings.HasSuffix(path, "}") {
		id := strings.TrimSuffix(path[i+2:], "}")
		b.drop(path[:i], map[string]rawJSON{id: rawJSON(jsonText(s.Place[id]))})
	}
	return nil
}

// deletion are arguments that a deletion takes beside the name.
func (b *back) deletion(s gate.Sheet) map[string]any {
	switch {
	case strings.HasSuffix(s.Delete, "/qemu/{vmid}"):
		return map[string]any{"purge": "1", "destroy-unreferenced-disks": "0"}
	case strings.HasSuffix(s.Delete, "/lxc/{vmid}"):
		return map[string]any{"purge": "1"}
	}
	return nil
}

// add takes a step into the plan and notes how the sheet will look after it.
func (b *back) add(s gate.Sheet, step gate.Step, next gate.Image) {
	b.draft.Steps = append(b.draft.Steps, step)
	b.now[b.key(s)] = next
	b.stage(s)
}

// lists of texts in canonical order, for comparing rows.
func content(row map[string]rawJSON) string {
	out := map[string]string{}
	for k, v := range row {
		if !slices.Contains(figures, k) && shown(v) != "" {
			out[k] = shown(v)
		}
	}
	b, err := json.Marshal(out)
	if err != nil {
		return ""
	}
	return string(b)
}
