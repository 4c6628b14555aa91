package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// look finds out what became of a request that was sent but not answered, or that its server refused after it may have
// changed something. It only reads.
func (c *carrier) look(ctx context.Context, i int, why string, refused bool) error {
	g := c.g
	s := c.record().Plan.Steps[i]
	if s.API.IsRun() {
		return c.lookRun(ctx, i, why)
	}
	v := g.wholeView(c.record().Plan.Requester)
	lookCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 90*time.Second)
	defer cancel()
	var seen string               // at the last look
	began, missing := true, false // whether a task of it may run; whether what it was to bring about was seen not to be there
	// A server that was slow to answer may start the task later: look a few times.
	for try := range 4 {
		if try > 0 {
			if err := pause(ctx, time.Duration(try)*2*g.c.PollFirst*4); err != nil {
				return err
			}
		}
		seen = ""
		if s.Wait.Kind == WaitTask {
			upid, err := c.findTask(lookCtx, i)
			if err == nil && upid != "" {
				rec := c.stepRecord(i, "step_sent", "found")
				rec.UPID = upid
				rec.Parts["result"] = "its task was found after: " + clip(why, 300)
				return c.save(func(r *PlanRecord) { r.Steps[i].State, r.Steps[i].UPID = StepWaiting, upid }, rec)
			}
			if err != nil {
				seen = "its task could not be looked for: " + err.Error()
				continue
			}
			seen, began = "no task of it is to be seen", false
		}
		if len(s.Verify) > 0 {
			ok, unread, got := true, false, ""
			for _, cond := range s.Verify {
				if cond.Soft {
					continue
				}
				holds, found, err := v.holds(lookCtx, s.Target, cond)
				if err != nil {
					ok, unread, got = false, true, "it could not be read back: "+err.Error()
					break
				}
				if !holds {
					ok, got = false, cond.Name+" is not so (found: "+found+")"
					break
				}
			}
			if ok && changedSomething(s) {
				return c.end(i, StepDone, "seen done by reading back, after: "+clip(why, 200))
			}
			if !ok {
				seen = strings.TrimPrefix(seen+"; "+got, "; ")
			}
			missing = missing || !ok && !unread
		}
		if refused && c.without(lookCtx, i, began, missing) {
			return c.end(i, StepFailed, clip(why, 400)+" (read back: nothing of it has changed)")
		}
	}
	return c.end(i, StepUnknown, "unknown whether it was carried out: "+clip(why, 300)+orSeen(seen))
}

// without says whether a step whose server refused it had no effect, as far as can be read back: what it was to change is
// exactly as it was before, and no task of it runs. Where nothing was kept of it, what it was to bring about must be seen
// not to be there.
func (c *carrier) without(ctx context.Context, i int, began, missing bool) bool {
	r := c.record()
	s, before := r.Plan.Steps[i], r.Steps[i].Before
	task := s.Wait.Kind == WaitTask
	if task && began || len(s.Undo.Lost) > 0 || slices.ContainsFunc(s.API.Params, func(p Param) bool {
		return slices.ContainsFunc(p.Values, func(v Value) bool { return v.Secret != nil })
	}) { // what cannot be read back may have changed
		return false
	}
	if len(s.Undo.Sheets) == 0 || len(before) != len(s.Undo.Sheets) {
		return task && missing
	}
	now, unread := c.g.images(ctx, r.Plan.Requester, s)
	if unread != "" || len(now) != len(before) {
		return false
	}
	for k := range now {
		x, err := json.Marshal(before[k].Rows)
		if err != nil || before[k].Unread != "" {
			return false
		}
		if y, err := json.Marshal(now[k].Rows); err != nil || string(x) != string(y) {
			return false
		}
	}
	return true
}

func orSeen(seen string) string {
	if seen == "" {
		return ""
	}
	return " (" + clip(seen, 300) + ")"
}

// changedSomething says whether the verify conditions prove a change: what held before as well proves nothing.
func changedSomething(s Step) bool {
	for _, v := range s.Verify {
		for _, r := range s.Require {
			if r.Read.Operation == v.Read.Operation && r.Pointer == v.Pointer && r.Key == v.Key && fmt.Sprint(r.Where) == fmt.Sprint(v.Where) {
				if r.Rule != v.Rule || string(r.Value) != string(v.Value) {
					return true
				}
			}
		}
	}
	return false
}

// findTask looks for the one task that this step's request can have started.
func (c *carrier) findTask(ctx context.Context, i int) (string, error) {
	r := c.record()
	s, st := r.Plan.Steps[i], r.Steps[i]
	if st.Resolved == nil {
		return "", errors.New("the request was not recorded")
	}
	node := st.Resolved.Text("node")
	tasks, err := c.g.c.Driver.FindTasks(ctx, s.Target, node, st.Started.Add(-2*time.Second))
	if err != nil {
		return "", err
	}
	ids := taskIDs(*st.Resolved)
	var found []string
	for _, t := range tasks {
		mine := ids[t.ID]
		for k, other := range r.Steps {
			if k != i && other.UPID == t.UPID {
				mine = false
			}
		}
		if mine {
			found = append(found, t.UPID)
		}
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%d tasks could be it", len(found))
}

// taskIDs are the ids under which the server can file the task of a request: the guest where it names one, else none,
// or the name of another thing that it names. A task of some guest is never that of a request for a whole node.
func taskIDs(r Request) map[string]bool {
	guests := map[string]bool{}
	for _, name := range []string{"newid", "vmid"} {
		for _, v := range r.Get(name) {
			for _, id := range SplitList(v.Text) {
				guests[id] = true
			}
		}
	}
	if len(guests) == 1 || len(guests) == 2 && r.Text("newid") != "" {
		return guests
	}
	ids := map[string]bool{"": true}
	for _, p := range r.Params {
		if text := r.Text(p.Name); text != "" && !guests[text] && strings.Trim(text, "0123456789") != "" {
			ids[text] = true
		}
	}
	return ids
}

// wait follows a step that was answered until its end is seen.
func (c *carrier) wait(ctx context.Context, i int) error {
	s, st := c.record().Plan.Steps[i], c.record().Steps[i]
	switch s.Wait.Kind {
	case WaitTask:
		if st.UPID == "" {
			// An answer without a task: the server did it at once, or there was nothing to do.
			return c.seen(ctx, i, "")
		}
		return c.waitTask(ctx, i)
	case WaitNone, WaitVerify:
		return c.seen(ctx, i, "")
	case WaitUntil:
		if d := s.Wait.Until.Sub(c.g.now()); d > 0 {
			if err := pause(ctx, d); err != nil {
				return err
			}
		}
		return c.seen(ctx, i, "")
	case WaitSoak:
		if err := pause(ctx, s.Wait.Limit); err != nil {
			return err
		}
		if d, ok := c.g.c.Driver.(renewer); ok {
			d.Renew(s.Target)
		}
		return c.seen(ctx, i, "")
	}
	return c.end(i, StepUnknown, fmt.Sprintf("this version cannot wait for %q", s.Wait.Kind))
}

func (c *carrier) waitTask(ctx context.Context, i int) error {
	s, st := c.record().Plan.Steps[i], c.record().Steps[i]
	deadline := c.g.now().Add(orElse(s.Wait.Limit, time.Hour))
	every, blind := c.g.c.PollFirst, 0
	for {
		t, err := c.g.c.Driver.Task(ctx, s.Target, st.UPID)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			blind++
		case t.Running:
			blind = 0
		case !t.Known:
			blind++
			if blind >= 5 {
				return c.end(i, StepUnknown, "the task is not running and has no exit status")
			}
		case t.OK:
			return c.seen(ctx, i, t.Warnings)
		default:
			return c.taskFailed(i, t)
		}
		if c.g.now().After(deadline) {
			why := "its task still runs after the time given to it"
			if err != nil {
				why = "its task could not be followed: " + err.Error()
			}
			return c.end(i, StepUnknown, why)
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
		every = min(every*3/2, 5*time.Second)
	}
}

func (c *carrier) taskFailed(i int, t TaskState) error {
	rec := c.stepRecord(i, "step_end", "failed")
	rec.Parts["result"] = c.g.c.Sealer.Redact(t.Exit)
	rec.Parts["log"] = c.g.c.Sealer.Redact(middleCut(strings.Join(t.Log, "\n"), maxPart))
	after := c.after(i)
	return c.save(func(r *PlanRecord) {
		st := &r.Steps[i]
		st.After = after
		st.State, st.Result, st.Ended = StepFailed, "the task failed: "+clip(t.Exit, 400), c.g.now()
		for _, line := range t.Log[max(0, len(t.Log)-20):] {
			st.Log = append(st.Log, clip(line, 300))
		}
	}, rec)
}

// seen ends a step that its server calls done: what the planner named is read back before it counts as done.
func (c *carrier) seen(ctx context.Context, i int, warnings string) error {
	s := c.record().Plan.Steps[i]
	v := c.g.wholeView(c.record().Plan.Requester)
	limit := 20 * time.Second
	if s.Wait.Kind == WaitVerify {
		limit = orElse(s.Wait.Limit, 5*time.Minute)
	}
	deadline := c.g.now().Add(limit)
	every := c.g.c.PollFirst
	for {
		missing, unread, soft := "", "", warnings
		for _, cond := range s.Verify {
			ok, got, err := v.holds(ctx, s.Target, cond)
			if cond.Soft {
				if err != nil || !ok {
					soft = strings.TrimPrefix(soft+"; "+orText(cond.Else, cond.Name+" is not seen yet"), "; ")
				}
				continue
			}
			if err != nil {
				unread = fmt.Sprintf("%s could not be read back: %s", cond.Name, err)
			} else if !ok {
				missing = fmt.Sprintf("%s is not seen (found: %s)", cond.Name, got)
			}
		}
		if missing == "" && unread == "" {
			rec := c.stepRecord(i, "step_end", "ok")
			if soft != "" {
				rec.Parts["warnings"] = c.g.c.Sealer.Redact(clip(soft, 1000))
			}
			after := c.after(i)
			return c.save(func(r *PlanRecord) {
				st := &r.Steps[i]
				st.After = after
				st.State, st.Result, st.Warnings, st.Ended = StepDone, "ok", clip(soft, 600), c.g.now()
			}, rec)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if c.g.now().After(deadline) {
			return c.end(i, StepUnknown, "the server called it done, but "+orText(missing, unread))
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
		every = min(every*3/2, 3*time.Second)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
