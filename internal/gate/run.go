package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ownerDead is how many heartbeats an owner may miss before its plan is adopted.
const ownerDead = 5

// Run carries plans out until ctx ends: it shows that this process lives, adopts plans whose owner died, and settles
// paused plans with nothing left to send. When ctx ends no new step starts; running ones pause.
func (g *Gate) Run(ctx context.Context) error {
	g.mu.Lock()
	if g.running {
		g.mu.Unlock()
		return errors.New("run gate: it runs already")
	}
	g.running, g.stopping = true, false
	g.mu.Unlock()
	g.start.Do(func() { close(g.begun) })
	first := time.NewTimer(g.c.FirstSweep)
	defer first.Stop()
	select {
	case <-first.C:
	case <-ctx.Done():
	}
	tick := time.NewTicker(g.c.Heartbeat)
	defer tick.Stop()
	var swept time.Time
	for {
		if ctx.Err() != nil {
			g.stop()
			return nil
		}
		if now := g.now(); now.Sub(swept) >= time.Minute {
			swept = now
			if err := g.sweepExpired(ctx); err != nil && ctx.Err() == nil {
				g.c.Log.Warn("look for expired plans", "error", err)
			}
		}
		if err := g.sweep(ctx); err != nil && ctx.Err() == nil {
			g.c.Log.Warn("look for plans to adopt", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// stop lets no new step start and waits for those that run.
func (g *Gate) stop() {
	g.mu.Lock()
	g.stopping = true
	for _, c := range g.carriers {
		c.stop()
	}
	g.mu.Unlock()
	g.group.Wait()
	g.mu.Lock()
	g.running = false
	g.mu.Unlock()
}

// AwaitRunning returns when Run has begun: before that nothing can be applied.
func (g *Gate) AwaitRunning() { <-g.begun }

// sweepExpired ends what nobody approved in time, so that no secret stays sealed for a plan that cannot run any more.
func (g *Gate) sweepExpired(ctx context.Context) error {
	cursor := ""
	for range 20 {
		var late []string
		err := g.c.Store.View(ctx, func(tx Tx) error {
			plans, next, err := tx.ListPlans(PlanFilter{States: []PlanState{PlanProposed}, Limit: 200, Cursor: cursor})
			for _, r := range plans {
				if !g.now().Before(r.Plan.Expires) {
					late = append(late, r.Plan.ID)
				}
			}
			cursor = next
			return err
		})
		if err != nil {
			return err
		}
		for _, id := range late {
			err := g.c.Store.Update(ctx, func(tx Tx) error {
				r, err := tx.Plan(id)
				if err != nil || r.State != PlanProposed || g.now().Before(r.Plan.Expires) {
					return err
				}
				return g.expire(tx, r)
			})
			if err != nil && !errors.Is(err, ErrStoreConflict) {
				return err
			}
		}
		if cursor == "" {
			return nil
		}
	}
	return nil
}

// sweep looks at every plan that is on its way.
func (g *Gate) sweep(ctx context.Context) error {
	var open []*PlanRecord
	err := g.c.Store.View(ctx, func(tx Tx) error {
		var err error
		open, _, err = tx.ListPlans(PlanFilter{States: []PlanState{PlanApplying, PlanPaused}, Limit: 200})
		return err
	})
	if err != nil {
		return err
	}
	for _, r := range open {
		if r.State == PlanApplying && g.now().Sub(r.Heartbeat) > ownerDead*g.c.Heartbeat && !g.carries(r.Plan.ID) {
			if err := g.take(ctx, r.Plan.ID, PlanApplying, Principal{}); err != nil && !errors.Is(err, ErrStoreConflict) {
				g.c.Log.Warn("adopt plan", "plan", r.Plan.ID, "error", err)
			}
			continue
		}
		g.settle(ctx, r)
	}
	return nil
}

func (g *Gate) carries(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.carriers[id] != nil
}

// settle adopts a paused plan that has nothing left to send: reading alone ends it. It says whether it did.
func (g *Gate) settle(ctx context.Context, r *PlanRecord) bool {
	if r.State != PlanPaused {
		return false
	}
	for i, s := range r.Steps {
		if s.State == StepPending && (r.Plan.Steps[i].When == (When{}) || r.called(i)) {
			return false
		}
	}
	if err := g.take(ctx, r.Plan.ID, PlanPaused, Principal{}); err != nil {
		g.c.Log.Debug("settle plan", "plan", r.Plan.ID, "error", err)
		return false
	}
	return true
}

// take makes this process the plan's owner and starts to carry it out. who is empty for an adoption.
func (g *Gate) take(ctx context.Context, id string, from PlanState, who Principal) error {
	var r *PlanRecord
	var refusal *Error
	err := g.c.Store.Update(ctx, func(tx Tx) error {
		refusal = nil
		var err error
		if r, err = tx.Plan(id); err != nil {
			return err
		}
		if r.State != from || from == PlanApplying && g.now().Sub(r.Heartbeat) <= ownerDead*g.c.Heartbeat {
			return ErrStoreConflict
		}
		if err := unended(tx, id); err != nil {
			return err
		}
		if who.Key() != "|" {
			if holder, err := g.lockAll(tx, r); err != nil {
				return err
			} else if holder != "" {
				refusal = Fail(ErrUnavailable, "Wait for plan "+holder+" (show_plan), then apply again.", "plan %s is at work on the same object", holder)
				return nil
			}
			r.Applier = who
		}
		status := "adopted"
		if who.Key() != "|" {
			status = "applying"
		}
		r.State, r.Owner, r.Heartbeat = PlanApplying, g.c.Process, g.now()
		rec := g.planRecord(&r.Plan, "apply", status)
		if who.Key() != "|" {
			rec.Actor, rec.Client, rec.WayIn = who.Key(), clip(who.Client, 80), who.WayIn
		}
		if _, err := tx.Append(rec); err != nil {
			return err
		}
		return tx.UpdatePlan(r)
	})
	if err != nil {
		return err
	}
	if refusal != nil {
		return refusal
	}
	g.c.Trace(PointTaken)
	return g.launch(r, from == PlanPaused && who.Key() == "|")
}

// lockAll takes the locks on everything that the plan acts on; a lock of an ended plan is void.
func (g *Gate) lockAll(tx Tx, r *PlanRecord) (holder string, err error) {
	for _, o := range r.Plan.Facts.Objects {
		if o.Use != UseActs || o.Object.ID == "" {
			continue
		}
		key := o.Object.Site + "/" + o.Object.String()
		other, err := tx.Lock(key, r.Plan.ID, g.now())
		if err != nil {
			return "", err
		}
		if other == "" || other == r.Plan.ID {
			continue
		}
		held, err := tx.Plan(other)
		if err != nil && !errors.Is(err, ErrStoreNotFound) {
			return "", err
		}
		if err == nil && !held.State.Ended() {
			return other, tx.Unlock(r.Plan.ID)
		}
		if err := tx.Unlock(other); err != nil {
			return "", err
		}
		if other, err = tx.Lock(key, r.Plan.ID, g.now()); err != nil || other != "" && other != r.Plan.ID {
			return other, err
		}
	}
	return "", nil
}

// launch starts the carrier of a plan that this process owns.
func (g *Gate) launch(r *PlanRecord, readOnly bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.running || g.stopping {
		return Fail(ErrUnavailable, "apply_plan from another process, or again after the restart.", "this process is stopping; plan %s waits", r.Plan.ID)
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &carrier{g: g, r: r, stop: stop, done: make(chan struct{}), readOnly: readOnly}
	g.carriers[r.Plan.ID] = c
	g.group.Go(func() {
		defer close(c.done)
		defer func() {
			g.mu.Lock()
			delete(g.carriers, r.Plan.ID)
			g.mu.Unlock()
		}()
		defer stop()
		c.carry(ctx)
	})
	return nil
}

// carryOut takes an approved or paused plan and waits for its end, as long as the call has time.
func (g *Gate) carryOut(ctx context.Context, id string, who Principal, began time.Time, progress Progress) (*Outcome, error) {
	r, err := g.load(ctx, who, id)
	if err != nil {
		return nil, err
	}
	switch r.State {
	case PlanApproved, PlanPaused:
		if e := g.mayTake(ctx, who, r); e != nil {
			return nil, e
		}
		if err := g.take(ctx, id, r.State, who); err != nil {
			if errors.Is(err, ErrStoreConflict) {
				break // another process has it already: wait for that one
			}
			var e *Error
			if errors.As(err, &e) {
				return nil, e
			}
			return nil, ledgerDown(err)
		}
	case PlanProposed:
		return nil, Fail(ErrNeedsApproval, g.next(r), "plan %s is not approved", id)
	}
	limit := max(0, g.c.CallLimit-g.now().Sub(began)-2*time.Second)
	r, err = g.wait(ctx, who, id, limit, progress)
	if err != nil {
		return nil, err
	}
	out := g.outcome(r)
	if out.Untrusted {
		if why := g.taint(ctx, who); why != nil {
			return withheld(out, id, why), nil
		}
	}
	return out, nil
}

// outcome renders where a plan stands.
func (g *Gate) outcome(r *PlanRecord) *Outcome {
	id := r.Plan.ID
	out := &Outcome{Receipt: r.Receipt}
	switch r.State {
	case PlanDone:
		out.Status, out.Next = StatusDone, "Done and seen done."
	case PlanFailed, PlanStale, PlanExpired, PlanDenied, PlanWithdrawn:
		out.Status, out.Next = StatusFailed, orText(r.Note, "It failed.")
	case PlanUnknown:
		out.Status, out.Next = StatusUnknown, orText(r.Note, "What became of it is not known.")+" Look at the objects themselves before planning anew."
	default:
		out.Status, out.Next = StatusRunning, fmt.Sprintf("It goes on. show_plan with plan=%s and wait=45 tells how it ends.", id)
		out.Plan = g.show(r, "")
	}
	if out.Receipt == nil && out.Plan == nil {
		out.Plan = g.show(r, "")
	}
	if out.Plan != nil {
		out.Outside = out.Plan.Outside
	} else {
		var authors []string
		out.Output, authors = outputs(r)
		out.Saved = saved(r)
		out.Outside = union(slices.Clone(out.Outside), authors)
	}
	if slices.ContainsFunc(r.Steps, func(s StepRecord) bool { return s.State != StepSkipped && saidOutside(s.Log, s.Warnings, s.Result) }) {
		out.Outside = union(slices.Clone(out.Outside), []string{taskPrograms})
	}
	out.Untrusted = len(out.Outside) > 0
	return out
}

// Wait returns the plan when it has ended, or as it stands when the limit is over.
func (g *Gate) Wait(ctx context.Context, who Principal, id string, limit time.Duration) (*PlanRecord, error) {
	return g.wait(ctx, who, id, limit, nil)
}

func (g *Gate) wait(ctx context.Context, who Principal, id string, limit time.Duration, progress Progress) (*PlanRecord, error) {
	g.mu.Lock()
	c := g.carriers[id]
	g.mu.Unlock()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	pause := 200 * time.Millisecond
	for {
		var done chan struct{}
		if c != nil {
			done = c.done
		}
		look := time.NewTimer(pause)
		select {
		case <-done:
			look.Stop()
			return g.load(context.WithoutCancel(ctx), who, id)
		case <-deadline.C:
			look.Stop()
			return g.load(context.WithoutCancel(ctx), who, id)
		case <-ctx.Done():
			look.Stop()
			return g.load(context.WithoutCancel(ctx), who, id)
		case <-look.C:
		}
		pause = min(pause*3/2, 2*time.Second)
		r, err := g.load(ctx, who, id)
		if err != nil {
			return nil, err
		}
		if c == nil && r.State != PlanApplying {
			return r, nil
		}
		ready, under := 0, []string(nil)
		for i, s := range r.Steps {
			switch s.State {
			case StepDone, StepSkipped, StepFailed, StepUnknown:
				ready++
			case StepStarted, StepWaiting:
				line := r.Plan.Steps[i].Sentence
				if said, ok := g.live.Load(runID(id, i+1)); ok && c != nil {
					line += ": " + said.(string)
				}
				under = append(under, line)
			}
		}
		progress.Report(ready, len(r.Steps), r.standing(under))
	}
}
