package undo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
)

// back makes the plan that takes another one back.
type back struct {
	k       *Keeper
	ctx     context.Context
	v       gate.View
	plan    *gate.PlanRecord
	product string
	target  string
	step    gate.Step       // the one that is taken back now
	record  gate.StepRecord // and what became of it

	now     map[string]gate.Image // what sheets show, with what the new steps will have set back
	draft   *gate.Draft
	left    []string                       // what is not taken back, and why
	already []string                       // what is as it was before
	gone    map[string]bool                // objects that are deleted as a whole: what was done to them later goes with them
	apply   []gate.Step                    // what brings staged settings into force again
	groups  map[string]rawJSON             // of users whose groups are set back
	dropped map[string][]map[string]string // rows that this plan takes out of a listing
	staged  map[string]bool                // which kinds of staged settings are set back
}

// Back drafts the plan that takes back what a plan did. Steps that have no way back are named; with partial the others are
// taken back all the same.
func (k *Keeper) Back(ctx context.Context, v gate.View, r *gate.PlanRecord, partial bool) (*gate.Draft, error) {
	if err := mayBeUndone(r); err != nil {
		return nil, err
	}
	b := &back{k: k, ctx: ctx, v: v, plan: r, now: map[string]gate.Image{}, draft: &gate.Draft{Undoes: r.Plan.ID}, gone: map[string]bool{}, staged: map[string]bool{}, dropped: map[string][]map[string]string{}, groups: map[string]rawJSON{}}
	b.subsume()
	for i := len(r.Plan.Steps) - 1; i >= 0; i-- {
		if err := b.undo(i); err != nil {
			return nil, err
		}
	}
	for _, s := range b.apply {
		if scope, _ := applies(s.API.Operation); b.staged[scope+s.Target] {
			b.draft.Steps = append(b.draft.Steps, s)
		}
	}
	count := steps(b.draft)
	points := ""
	if p := r.Plan.Facts.UndoPoints; len(p) > 0 {
		points = " Taken first were: " + strings.Join(p, ", ") + "; rollback_snapshot goes back to one."
	}
	switch {
	case len(b.left) > 0 && count == 0 && len(b.already) == 0:
		return nil, gate.Fail(gate.ErrInvalid, strings.TrimSpace("Nothing of it can be undone by castellan."+points), "plan %s cannot be undone: %s", r.Plan.ID, strings.Join(b.left, "; "))
	case len(b.left) > 0 && count > 0 && !partial:
		return nil, gate.Fail(gate.ErrInvalid, strings.TrimSpace("Give partial=true to undo the rest."+points), "not all of plan %s can be undone: %s", r.Plan.ID, strings.Join(b.left, "; "))
	}
	b.draft.Skip = append(b.draft.Skip, b.left...)
	if count == 0 {
		b.draft.Note = fmt.Sprintf("Plan %s is undone already: %s.%s", r.Plan.ID, orText(strings.Join(b.already, "; "), "it changed nothing"), b.earlier())
		return b.draft, nil
	}
	if len(b.already) > 0 {
		b.draft.Skip = append(b.draft.Skip, b.already...)
	}
	b.draft.Note = strings.TrimSpace(fmt.Sprintf("Takes back plan %s (%s).%s", r.Plan.ID, clip(r.Plan.Sentence, 200), points) + " " + b.draft.Note)
	return b.draft, nil
}

func steps(d *gate.Draft) int {
	n := len(d.Steps)
	for _, c := range d.Children {
		n += steps(c)
	}
	return n
}

func orText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func mayBeUndone(r *gate.PlanRecord) error {
	id := r.Plan.ID
	switch {
	case !r.State.Ended():
		return gate.Fail(gate.ErrInvalid, "show_plan tells where it stands; withdraw_plan ends one that has not begun or is paused.", "plan %s is %s: only what has ended can be undone", id, r.State)
	case !slices.ContainsFunc(r.Steps, func(s gate.StepRecord) bool {
		return s.State == gate.StepDone || s.State == gate.StepUnknown || len(s.Before) > 0
	}):
		return gate.Fail(gate.ErrInvalid, "There is nothing to undo.", "plan %s is %s and none of its steps was carried out", id, r.State)
	}
	return nil
}

// subsume finds the objects that the plan made: they are deleted as a whole.
func (b *back) subsume() {
	for i, s := range b.plan.Plan.Steps {
		st := b.plan.Steps[i]
		if len(s.Undo.Sheets) == 0 || len(st.Before) == 0 || len(st.After) == 0 || s.Undo.Sheets[0].Form != gate.SheetObject {
			continue
		}
		if sheet := s.Undo.Sheets[0]; len(st.Before[0].Rows) == 0 && len(st.After[0].Rows) == 1 && sheet.Delete != "" {
			if vmid := guestOf(sheet); vmid != "" {
				b.gone[s.Target+"/guest/"+vmid] = true
			}
		}
	}
}

// guestOf is the guest whose existence a sheet shows.
func guestOf(s gate.Sheet) string {
	if s.Read.Operation == "GET /cluster/resources" && strings.HasSuffix(s.Delete, "/{vmid}") {
		return s.Place["vmid"]
	}
	return ""
}

// undo takes back step i.
func (b *back) undo(i int) error {
	b.step, b.record = b.plan.Plan.Steps[i], b.plan.Steps[i]
	t, err := b.v.Target(b.step.Target)
	if err != nil {
		return err
	}
	b.product, b.target = t.Product, t.Name
	if t.Site != "" && b.step.Site != "" && t.Site != b.step.Site {
		return fail("Look at the target's addresses.", "target %s is now site %s, it was %s", t.Name, t.Site, b.step.Site)
	}
	switch b.record.State {
	case gate.StepPending, gate.StepSkipped:
		return nil
	case gate.StepStarted, gate.StepWaiting, gate.StepUnknown:
		b.leave("it is unknown whether it was carried out (%s)", clip(orText(b.record.Result, string(b.record.State)), 160))
		return nil
	}
	changed := b.sawChange()
	if b.record.State == gate.StepFailed && !changed {
		return nil // it changed nothing that is seen
	}
	if b.step.API == nil {
		b.leave("only API requests can be undone")
		return nil
	}
	if b.step.Judgement.Effect == gate.EffectRead {
		return nil
	}
	if b.within() {
		return nil
	}
	if _, is := applies(b.step.API.Operation); is {
		again := gate.Step{Target: b.step.Target, API: b.step.API, Undo: gate.Undo{None: "what it brings into force stays until it is set back and applied again"}}
		b.apply = append(b.apply, again)
		return nil
	}
	if name := b.step.API.Text("snapname"); strings.HasPrefix(name, gate.UndoPointPrefix) && strings.HasSuffix(b.step.API.Operation, "/snapshot") {
		return nil // a way back stays until it is pruned
	}
	if name := b.step.API.Text("snapname"); len(b.plan.Plan.Facts.UndoPoints) > 0 && strings.HasPrefix(name, gate.UndoPointPrefix) && strings.HasPrefix(b.step.API.Operation, "DELETE ") && b.plan.Plan.Operation != gate.PrunePoints {
		b.draft.Note = strings.TrimSpace(b.draft.Note + " The old undo point " + name + " of guest " + b.step.API.Text("vmid") + " does not come back.")
		return nil // it was pruned beside the change
	}
	if done, err := b.opposite(); done || err != nil {
		return err
	}
	u := b.step.Undo
	switch {
	case u.None != "":
		b.leave("%s", u.None)
	case u.Kept != "":
		return b.replaced()
	case len(u.Sheets) > 0:
		return b.sheets()
	case u.Call != nil:
		return b.call()
	default:
		b.leave("castellan cannot plan it: %s", u.How)
	}
	return nil
}

// within says whether the step acted on a guest that is deleted as a whole, after it was made.
func (b *back) within() bool {
	if len(b.step.Undo.Sheets) > 0 && guestOf(b.step.Undo.Sheets[0]) != "" {
		return false
	}
	all := false
	for _, r := range b.step.Judgement.References {
		if r.Use != gate.UseActs || r.Object.Kind != gate.ObjectGuest {
			continue
		}
		if !b.gone[b.step.Target+"/guest/"+r.Object.ID] {
			return false // it did something to another guest as well, and that does not go with this one
		}
		all = true
	}
	return all
}

func (b *back) leave(format string, args ...any) {
	b.left = append(b.left, fmt.Sprintf("step %d (%s): ", b.step.Number, clip(b.step.Sentence, 100))+fmt.Sprintf(format, args...))
}

func (b *back) isAlready(format string, args ...any) {
	b.already = append(b.already, fmt.Sprintf("step %d: ", b.step.Number)+fmt.Sprintf(format, args...))
}

// sawChange says whether what was there before the step differs from what was there after it.
func (b *back) sawChange() bool {
	for i := range min(len(b.record.Before), len(b.record.After)) {
		x, _ := json.Marshal(b.record.Before[i].Rows) // maps have one JSON form
		y, _ := json.Marshal(b.record.After[i].Rows)
		if string(x) != string(y) {
			return true
		}
	}
	return false
}

// applies says whether an operation brings staged settings into force, and which.
func applies(id string) (scope string, is bool) {
	switch id {
	case "PUT /cluster/sdn":
		return "/cluster/sdn", true
	case "PUT /nodes/{node}/network":
		return "/nodes/{node}/network", true
	}
	return "", false
}

// stage notes that staged settings of this kind are set back.
func (b *back) stage(s gate.Sheet) {
	for _, scope := range []string{"/cluster/sdn", "/nodes/{node}/network"} {
		if strings.Contains(s.Read.Operation, " "+scope) {
			b.staged[scope+b.target] = true
		}
	}
}

// opposite takes back what another operation takes back better, with checks of its own.
func (b *back) opposite() (done bool, err error) {
	op := b.step.API.Operation
	vmid := b.step.API.Text("vmid")
	if vmid == "" || !strings.HasPrefix(op, "POST /nodes/{node}/") {
		return false, nil
	}
	plan := func(operation string, args map[string]any) (bool, error) {
		args["guest"], args["target"] = vmid, b.target
		raw, err := json.Marshal(args)
		if err != nil {
			return true, err
		}
		d, err := b.v.Plan(b.ctx, operation, raw)
		if err != nil {
			var e *gate.Error
			if errors.As(err, &e) {
				named := *e
				named.Message = fmt.Sprintf("step %d (%s) cannot be undone now: %s", b.step.Number, clip(b.step.Sentence, 80), e.Message)
				return true, &named
			}
			return true, fmt.Errorf("undo step %d: %w", b.step.Number, err)
		}
		if steps(d) == 0 {
			b.isAlready("%s", orText(d.Note, "it is as it was"))
			return true, nil
		}
		b.sameGuest(vmid, d)
		b.take(d)
		return true, nil
	}
	switch {
	case strings.Contains(op, "/status/"):
		action := op[strings.LastIndexByte(op, '/')+1:]
		opposite := map[string]string{"start": "shutdown", "shutdown": "start", "stop": "start", "suspend": "resume", "resume": "suspend"}[action]
		if opposite == "" || b.step.Undo.None != "" {
			return false, nil
		}
		if action == "stop" || action == "shutdown" {
			b.draft.Note = strings.TrimSpace(b.draft.Note + " What was only in the memory of guest " + vmid + " does not come back.")
		}
		return plan("guest_power", map[string]any{"action": opposite})
	case strings.HasSuffix(op, "/snapshot"):
		name := b.step.API.Text("snapname")
		if name == "" || len(b.record.After) == 0 || len(b.record.After[0].Rows) == 0 {
			return false, nil
		}
		now, err := b.look(b.step.Undo.Sheets[0])
		if err != nil {
			return true, err
		}
		if len(now.Rows) == 0 {
			b.isAlready("snapshot %s is gone", name)
			return true, nil
		}
		if !same(now.Rows[0]["snaptime"], b.record.After[0].Rows[0]["snaptime"]) {
			return true, fail("Delete it by delete_snapshot if that is what is wanted.", "snapshot %s of guest %s is another one: it was made at %s, that of the plan at %s", name, vmid,
				stamp(now.Rows[0]["snaptime"]), stamp(b.record.After[0].Rows[0]["snaptime"]))
		}
		return plan("delete_snapshot", map[string]any{"name": name})
	case strings.HasSuffix(op, "/migrate"):
		from := ""
		if b.record.Resolved != nil {
			from = b.record.Resolved.Text("node")
		}
		if from == "" || b.step.Undo.None != "" {
			return false, nil
		}
		node, err := b.k.c.Estate.NodeOf(b.ctx, b.v, b.target, vmid)
		if err != nil {
			return true, err
		}
		if to := b.step.API.Text("target"); node != to && node != from {
			return true, fail("Move it by migrate_guest if that is what is wanted.", "guest %s is on node %s now: somebody moved it on since%s", vmid, node, b.by(vmid))
		}
		return plan("migrate_guest", map[string]any{"node": from})
	}
	return false, nil
}

// sameGuest ties the steps of another operation's draft to the guest that the plan acted on.
func (b *back) sameGuest(vmid string, d *gate.Draft) {
	for _, c := range b.step.Require {
		if !c.Identity {
			continue
		}
		for i := range d.Steps {
			s := &d.Steps[i]
			if s.API.Text("vmid") == vmid && !slices.ContainsFunc(s.Require, func(o gate.Condition) bool { return o.Name == c.Name && o.Since.Equal(c.Since) }) && c.Since.IsZero() {
				s.Require = append(s.Require, c)
			}
		}
	}
}

// take puts the steps of another draft at the end.
func (b *back) take(d *gate.Draft) {
	base := len(b.draft.Steps)
	for _, s := range d.Steps {
		if s.Target == "" {
			s.Target = orText(d.Target, b.target)
		}
		if s.When.StepFailed > 0 {
			s.When.StepFailed += base
		}
		if s.When.CheckFailed > 0 {
			s.When.CheckFailed += base
		}
		b.draft.Steps = append(b.draft.Steps, s)
	}
	b.draft.Diff = append(b.draft.Diff, d.Diff...)
	if d.Note != "" {
		b.draft.Note = strings.TrimSpace(b.draft.Note + " " + d.Note)
	}
	for _, c := range d.Children {
		b.take(c)
	}
}

// call takes the call that the planner named.
func (b *back) call() error {
	s := gate.Step{Target: b.target, API: b.step.Undo.Call}
	if err := b.renamedSince(&s); err != nil {
		return err
	}
	if err := b.identify(&s); err != nil {
		return err
	}
	b.draft.Steps = append(b.draft.Steps, s)
	return nil
}

// identify ties a step to the guests that it acts on, as they are now, and to those that the plan acted on.
func (b *back) identify(s *gate.Step) error {
	vmid := s.API.Text("vmid")
	if b.product != "pve" || vmid == "" {
		return nil
	}
	if err := b.sameAs(vmid); err != nil {
		return err
	}
	conditions, _, err := b.k.c.Estate.Identity(b.ctx, b.v, b.target, []gate.Object{{Kind: gate.ObjectGuest, ID: vmid}})
	if err != nil {
		return err
	}
	s.Require = append(s.Require, conditions...)
	s.Require = append(s.Require, unlocked(s.API, vmid)...)
	return nil
}

// sameAs refuses where the guest of an id is not the one that the step acted on. By what was known of it then, it is the
// same while its UUID or its MAC address is, or while no guest of that id was made or destroyed on the node where it was.
func (b *back) sameAs(vmid string) error {
	told := false
	for _, c := range b.step.Require {
		births := c.Where["type"] != "" && c.Read.Params["vmid"] == vmid
		if !births && (!c.Identity || c.Read.Params["vmid"] != vmid || c.Key != "uuid" && c.Key != "hwaddr") {
			continue
		}
		told = true
		s := gate.Sheet{Name: c.Name, Form: gate.SheetSet, Read: c.Read, Where: c.Where}
		if !births {
			s.Form = gate.SheetObject
		}
		img, err := gate.LookAt(b.ctx, b.v, b.target, s)
		if err != nil {
			return fmt.Errorf("look whether guest %s is the same: %w", vmid, err)
		}
		var want string
		_ = json.Unmarshal(orNull(c.Value), &want) // none: no such task
		field, got := strings.TrimPrefix(c.Pointer, "/"), ""
		if len(img.Rows) > 0 {
			got = shown(img.Rows[0][field])
		}
		if births {
			if got == want && c.Read.Params["node"] == b.nodeOf(vmid) {
				return nil
			}
			continue
		}
		if text, ok := gate.PropertyValue(got, c.Key); ok && text == want {
			return nil
		}
	}
	if told {
		return fail("Look at it, and set what is wanted by a change of its own.", "guest %s is another one now: the one that the plan changed was destroyed%s. Nothing is undone", vmid, b.by(vmid))
	}
	return nil
}

// unlocked is the condition that no task holds the guest, for calls at which Proxmox looks at the guest's lock.
func unlocked(r *gate.Request, vmid string) []gate.Condition {
	path := pathOf(r.Operation)
	parts := strings.SplitN(path, "/", 6)
	if len(parts) < 6 || parts[1] != "nodes" || parts[4] != "{vmid}" || strings.HasPrefix(parts[5], "firewall/") {
		return nil
	}
	return []gate.Condition{{Name: "guest " + vmid + " is not locked", Rule: gate.RuleAbsent, Pointer: "/lock",
		Read: gate.Read{Operation: "GET /nodes/{node}/" + parts[3] + "/{vmid}/status/current", Params: map[string]string{"node": gate.NodeOf(vmid), "vmid": vmid}}}}
}

// look reads a sheet as it is now, with what earlier steps of the new plan set back.
func (b *back) look(s gate.Sheet) (gate.Image, error) {
	key := b.key(s)
	if img, seen := b.now[key]; seen {
		return img, nil
	}
	img, err := gate.LookAt(b.ctx, b.v, b.target, s)
	if err != nil {
		return gate.Image{}, fmt.Errorf("look whether it changed since: %w", err)
	}
	b.now[key] = img
	return img, nil
}

func (b *back) key(s gate.Sheet) string {
	raw, err := json.Marshal([]any{b.target, s.Read, s.At, s.Where, s.Fields})
	if err != nil {
		return s.Name
	}
	return string(raw)
}

// sheets takes back what the sheets of a step show as changed.
func (b *back) sheets() error {
	if len(b.record.Before) != len(b.step.Undo.Sheets) {
		b.leave("what was there before was not kept")
		return nil
	}
	if len(b.record.After) != len(b.step.Undo.Sheets) {
		b.leave("what it looked like when the step had ended is not known, so nobody can tell whether others have changed it since")
		return nil
	}
	for i := range b.step.Undo.Sheets {
		if why := b.record.Before[i].Unread + b.record.After[i].Unread; why != "" {
			b.leave("what it changed could not be read: %s", why)
			return nil
		}
	}
	for _, l := range b.step.Undo.Lost {
		b.leave("%s", l)
	}
	if !b.sawChange() && len(b.step.Undo.Lost) == 0 {
		b.leave("no change of it is seen in %s", b.step.Undo.Sheets[0].Name)
		return nil
	}
	// What lies in an object comes after the object itself when it is made again; rows that were taken from one place
	// and put into another leave the new place first.
	for i, s := range b.step.Undo.Sheets {
		before, after := b.record.Before[i], b.record.After[i]
		if s.Update == "" && s.Create == "" && s.Delete == "" { // a witness only
			continue
		}
		now, err := b.look(s)
		if err != nil {
			return err
		}
		switch s.Form {
		case gate.SheetObject:
			err = b.object(s, before, after, now)
		case gate.SheetSet:
			err = b.set(s, before, after, now)
		case gate.SheetList:
			err = b.list(s, before, after, now)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// earlier names the plan that took this one back, where the caller may see it.
func (b *back) earlier() string {
	past, ok := b.v.(gate.Past)
	if !ok {
		return ""
	}
	plans, err := past.Earlier(b.ctx, gate.PlanFilter{States: []gate.PlanState{gate.PlanDone}, Since: b.plan.Plan.Created, Limit: 200})
	if err != nil {
		return ""
	}
	for _, r := range plans {
		if r.Plan.Undoes == b.plan.Plan.ID {
			return fmt.Sprintf(" Plan %s of %s did it.", r.Plan.ID, r.Plan.Requester.Key())
		}
	}
	return ""
}

// by says who may have changed an object since, as far as that can be known: a task of Proxmox, or another plan.
func (b *back) by(vmid string) string {
	since := b.record.Ended
	if past, ok := b.v.(gate.Past); ok {
		plans, err := past.Earlier(b.ctx, gate.PlanFilter{States: []gate.PlanState{gate.PlanDone, gate.PlanFailed, gate.PlanUnknown, gate.PlanApplying}, Since: b.plan.Plan.Created, Limit: 200})
		for _, r := range plans {
			if err != nil || r.Plan.ID == b.plan.Plan.ID {
				continue
			}
			for i, s := range r.Plan.Steps {
				if r.Steps[i].Ended.After(since) && touchesSame(s, b.step) {
					return fmt.Sprintf(" (plan %s of %s, %q, changed it at %s)", r.Plan.ID, r.Plan.Requester.Key(), clip(r.Plan.Sentence, 80), r.Steps[i].Ended.Format(time.RFC3339))
				}
			}
		}
	}
	if vmid == "" {
		return ""
	}
	a, err := b.v.Read(b.ctx, b.target, gate.Read{Operation: "GET /nodes/{node}/tasks", Params: map[string]string{"node": gate.NodeOf(vmid), "vmid": vmid, "source": "all", "since": fmt.Sprint(since.Unix())}})
	var rows []struct {
		Type, User string
		Start      int64 `json:"starttime"`
	}
	if err != nil || json.Unmarshal(a.Data, &rows) != nil {
		return ""
	}
	slices.SortFunc(rows, func(x, y struct {
		Type, User string
		Start      int64 `json:"starttime"`
	}) int {
		return int(y.Start - x.Start)
	})
	for _, t := range rows {
		if t.Start > since.Unix() {
			return fmt.Sprintf(" (its latest task since is %s of %s at %s)", clip(t.Type, 40), clip(t.User, 80), time.Unix(t.Start, 0).UTC().Format(time.RFC3339))
		}
	}
	return ""
}

func touchesSame(a, b gate.Step) bool {
	if a.Target != b.Target {
		return false
	}
	for _, x := range a.Judgement.References {
		for _, y := range b.Judgement.References {
			if x.Use == gate.UseActs && y.Use == gate.UseActs && x.Object.Kind == y.Object.Kind && x.Object.ID == y.Object.ID {
				return true
			}
		}
	}
	return false
}

func stamp(raw rawJSON) string {
	text, _ := scalar(raw)
	var n int64
	if _, err := fmt.Sscanf(text, "%d", &n); err != nil {
		return "an unknown time"
	}
	return time.Unix(n, 0).UTC().Format(time.RFC3339)
}
