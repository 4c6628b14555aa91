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

// Schedule is a call that castellan itself makes once in each window of a mandate, as the caller that the mandate is for.
type Schedule struct {
	Operation string          `json:"operation"`
	Args      json.RawMessage `json:"args,omitempty"`
}

// ScheduleState says what became of a window.
type ScheduleState string

// The states.
const (
	ScheduleClaimed ScheduleState = "claimed" // a process makes the call now
	ScheduleMoved   ScheduleState = "moved"   // it could not be now, as for backups: tried again in the same window
	ScheduleCarried ScheduleState = "carried" // its plan is contained in the mandate and is carried out
	ScheduleWaiting ScheduleState = "waiting" // its plan is not contained: a person decides
	ScheduleNothing ScheduleState = "nothing" // there was nothing to do
	ScheduleRefused ScheduleState = "refused" // it makes no plan
	ScheduleMissed  ScheduleState = "missed"  // nobody was there in the window; it is not made up for
	ScheduleLost    ScheduleState = "lost"    // the process that had claimed it died before there was a plan
)

// ScheduleRun is what became of one window of one mandate.
type ScheduleRun struct {
	Mandate   string        `json:"mandate"`
	For       string        `json:"for"`       // Principal.Key of who it is made for
	Operation string        `json:"operation"` // that is called
	From      time.Time     `json:"from"`      // of the window
	To        time.Time     `json:"to"`
	State     ScheduleState `json:"state"`
	Process   string        `json:"process,omitempty"`
	At        time.Time     `json:"at"`
	Next      time.Time     `json:"next,omitzero"` // of a call that was moved
	Tries     int           `json:"tries,omitempty"`
	Plan      string        `json:"plan,omitempty"`
	Note      string        `json:"note,omitempty"` // in castellan's words
}

const (
	scheduleKind  = "schedule"
	scheduleAgain = 10 * time.Minute    // until a call that was moved is tried again
	scheduleDead  = 10 * time.Minute    // after that long a claim without a plan is lost
	scheduleBack  = 8 * 24 * time.Hour  // so far back missed windows are looked for
	scheduleKeep  = 30 * 24 * time.Hour // so long what became of a window is kept
)

// Schedules makes the calls that are due, each once whatever processes share the store, and finds windows that were missed. It
// returns what has changed, for telling people. caller gives who a mandate is for, as that would come in by its own way.
func (g *Gate) Schedules(ctx context.Context, caller func(ctx context.Context, key string) (Principal, error)) ([]ScheduleRun, error) {
	mandates, err := g.scheduled(ctx)
	if err != nil {
		return nil, err
	}
	var out []ScheduleRun
	for _, m := range mandates {
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		missed, err := g.missed(ctx, m)
		out = append(out, missed...)
		if err != nil {
			return out, err
		}
		now := g.now()
		s, open := openAt(m.Windows, now)
		if !open || now.Before(m.From) || !now.Before(m.Until) || len(m.Uses) >= m.Count {
			continue
		}
		run, version, claimed, err := g.claim(ctx, m, s)
		if err != nil {
			return out, err
		}
		if !claimed {
			continue
		}
		g.runSchedule(ctx, m, &run, caller)
		if err := g.putRun(ctx, m, &run, version); err != nil {
			return out, err
		}
		out = append(out, run)
	}
	return out, nil
}

// scheduled lists the mandates with a schedule that are not revoked.
func (g *Gate) scheduled(ctx context.Context) (out []*Mandate, err error) {
	err = g.c.Store.View(ctx, func(tx Tx) error {
		out = nil
		docs, err := tx.Docs(DocFilter{Kind: mandateKind, Limit: 1000})
		for _, d := range docs {
			m, err := g.openMandate(d)
			if err != nil {
				g.c.Log.Warn("mandate refused", "mandate", d.ID)
				continue
			}
			if m.Schedule == nil || m.Revoked != "" {
				continue
			}
			if by, err := revoked(tx, m); err != nil || by != "" {
				continue
			}
			out = append(out, m)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for schedules: %w", err)
	}
	return out, nil
}

func scheduleID(m *Mandate, from time.Time) string {
	return fmt.Sprintf("%s/%011d", m.ID, from.Unix())
}

// claim takes a window for this process; false when it was taken before, or it is not time to try again.
func (g *Gate) claim(ctx context.Context, m *Mandate, s span) (run ScheduleRun, version int64, claimed bool, err error) {
	err = g.c.Store.Update(ctx, func(tx Tx) error {
		claimed, version = false, 0
		run = ScheduleRun{Mandate: m.ID, For: m.For, Operation: m.Schedule.Operation, From: s.from.UTC(), To: s.to.UTC()}
		d, err := tx.Doc(scheduleKind, scheduleID(m, s.from))
		switch {
		case errors.Is(err, ErrStoreNotFound):
		case err != nil:
			return err
		default:
			had, err := g.openRun(d)
			if err != nil || had.State != ScheduleMoved || g.now().Before(had.Next) {
				return err
			}
			run, version = *had, d.Version
		}
		run.State, run.Process, run.At, run.Next, run.Note = ScheduleClaimed, g.c.Process, g.now(), time.Time{}, ""
		run.Tries++
		if version, err = g.writeRun(tx, m, &run, version); err == nil {
			claimed = true
		}
		return err
	})
	if errors.Is(err, ErrStoreConflict) {
		return run, 0, false, nil // another process has it
	}
	return run, version, claimed, err
}

// runSchedule makes the call and settles what becomes of its plan.
func (g *Gate) runSchedule(ctx context.Context, m *Mandate, run *ScheduleRun, caller func(ctx context.Context, key string) (Principal, error)) {
	began := g.now()
	end := func(state ScheduleState, note string) { run.State, run.Note = state, clip(line(note), 400) }
	who, err := caller(ctx, m.For)
	if err == nil && who.Key() != m.For {
		err = errors.New("the caller came back as another")
	}
	if err == nil {
		who, err = g.standing(ctx, who)
	}
	if err != nil {
		end(ScheduleRefused, "who it is for has no access now: "+AsError(err).Message)
		return
	}
	out, err := g.Do(ctx, Call{Operation: m.Schedule.Operation, Args: m.Schedule.Args, Principal: who, Reason: "schedule of mandate " + m.ID, PlanOnly: true, scheduled: true}, nil)
	switch {
	case err != nil && AsError(err).Kind == ErrUnavailable && g.now().Add(scheduleAgain).Before(run.To):
		run.Next = g.now().Add(scheduleAgain)
		end(ScheduleMoved, "not now: "+AsError(err).Message)
		return
	case err != nil:
		end(ScheduleRefused, AsError(err).Message)
		return
	case out.Plan == nil:
		end(ScheduleNothing, out.Next)
		return
	}
	run.Plan = out.Plan.ID
	r, err := g.load(ctx, who, run.Plan)
	if err != nil {
		end(ScheduleWaiting, "its plan could not be read back: "+AsError(err).Message)
		return
	}
	if why := g.coversNow(ctx, m, &r.Plan); why != "" {
		end(ScheduleWaiting, "the mandate does not cover the plan: "+why)
		return
	}
	by, err := g.standing(ctx, m.By)
	if err != nil || !by.Oversees() {
		end(ScheduleWaiting, "who gave the mandate could not give it any more")
		return
	}
	if err := g.approve(ctx, run.Plan, by, m.Rung, Evidence{Kind: "mandate", Mandate: m.ID, looked: m.looked}, nil); err != nil {
		end(ScheduleWaiting, "the mandate did not approve it: "+AsError(err).Message)
		return
	}
	if _, err := g.carryOut(ctx, run.Plan, who, began, nil); err != nil {
		end(ScheduleWaiting, "it was approved and did not begin: "+AsError(err).Message)
		return
	}
	end(ScheduleCarried, "")
}

// missed finds windows in which nobody was there, and calls whose process died.
func (g *Gate) missed(ctx context.Context, m *Mandate) (out []ScheduleRun, err error) {
	now := g.now()
	from := now.Add(-scheduleBack)
	for _, t := range []time.Time{m.Given, m.From} {
		if t.After(from) {
			from = t
		}
	}
	until := now
	if m.Until.Before(until) {
		until = m.Until
	}
	if len(m.Uses) >= m.Count {
		return nil, nil // it has no runs left: none is missed
	}
	var spans []span
	for _, text := range m.Windows {
		if w, err := ParseWindow(text); err == nil {
			spans = append(spans, w.between(from, until)...)
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	for _, s := range spans {
		var run *ScheduleRun
		err := g.c.Store.Update(ctx, func(tx Tx) error {
			run = nil
			d, err := tx.Doc(scheduleKind, scheduleID(m, s.from))
			switch {
			case errors.Is(err, ErrStoreNotFound):
				if s.to.After(now) {
					return nil
				}
				run = &ScheduleRun{Mandate: m.ID, For: m.For, Operation: m.Schedule.Operation, From: s.from.UTC(), To: s.to.UTC(), State: ScheduleMissed, At: now, Note: "nobody was there in its window; it is not made up for"}
				_, err = g.writeRun(tx, m, run, 0)
				return err
			case err != nil:
				return err
			}
			had, err := g.openRun(d)
			if err != nil {
				return nil // not castellan's: it says nothing, and nothing is written over it
			}
			dead := had.State == ScheduleClaimed && now.Sub(had.At) > scheduleDead
			over := had.State == ScheduleMoved && !now.Before(had.To)
			if !dead && !over {
				return nil
			}
			run = had
			run.At = now
			if dead {
				run.State, run.Note = ScheduleLost, "the process that made the call died before it had a plan; it is not made again in this window"
			} else {
				run.State, run.Note, run.Next = ScheduleMissed, "it was put off until its window was over: "+had.Note, time.Time{}
			}
			_, err = g.writeRun(tx, m, run, d.Version)
			return err
		})
		switch {
		case errors.Is(err, ErrStoreConflict):
		case err != nil:
			return out, fmt.Errorf("look for missed windows: %w", err)
		case run != nil:
			out = append(out, *run)
		}
	}
	return out, nil
}

// writeRun keeps what became of a window, sealed, with its record.
func (g *Gate) writeRun(tx Tx, m *Mandate, run *ScheduleRun, version int64) (int64, error) {
	text, err := json.Marshal(run)
	if err != nil {
		return 0, err
	}
	id := scheduleID(m, run.From)
	box, err := g.c.Sealer.Seal(text, fmt.Sprintf("schedule/%s/%d", id, version+1))
	if err != nil {
		return 0, err
	}
	d := &Doc{Kind: scheduleKind, ID: id, Owner: m.For, Expires: run.To.Add(scheduleKeep), Version: version, Body: box}
	if err := tx.PutDoc(d); err != nil {
		return 0, err
	}
	rec := Record{At: g.now(), Kind: "schedule", Operation: m.Schedule.Operation, Actor: m.For, WayIn: "schedule", Status: string(run.State), Plan: run.Plan,
		Marks: map[string]string{"mandate": m.ID, "window": run.From.UTC().Format(time.RFC3339)}, Parts: map[string]string{}}
	if run.Note != "" {
		rec.Parts["note"] = g.c.Sealer.Redact(run.Note)
	}
	_, err = tx.Append(rec)
	return d.Version, err
}

func (g *Gate) putRun(ctx context.Context, m *Mandate, run *ScheduleRun, version int64) error {
	err := g.c.Store.Update(context.WithoutCancel(ctx), func(tx Tx) error {
		_, err := g.writeRun(tx, m, run, version)
		return err
	})
	if errors.Is(err, ErrStoreConflict) {
		return nil // it counted as lost meanwhile
	}
	return err
}

func (g *Gate) openRun(d *Doc) (*ScheduleRun, error) {
	text, err := g.c.Sealer.Open(d.Body, fmt.Sprintf("schedule/%s/%d", d.ID, d.Version))
	if err != nil {
		return nil, Fail(ErrInternal, "Look at audit_verify.", "what became of schedule %s in the store was not written by castellan", clip(d.ID, 40))
	}
	var run ScheduleRun
	if err := json.Unmarshal(text, &run); err != nil || !strings.HasPrefix(d.ID, run.Mandate+"/") {
		return nil, Fail(ErrInternal, "", "what became of schedule %s cannot be read", clip(d.ID, 40))
	}
	return &run, nil
}

// ScheduleRuns tells what became of the windows of a mandate, the newest first.
func (g *Gate) ScheduleRuns(ctx context.Context, m *Mandate) (out []ScheduleRun, err error) {
	err = g.c.Store.View(ctx, func(tx Tx) error {
		out = nil
		docs, err := tx.Docs(DocFilter{Kind: scheduleKind, Owner: m.For, After: m.ID + "/", Limit: 200})
		for _, d := range docs {
			if !strings.HasPrefix(d.ID, m.ID+"/") {
				break
			}
			run, err := g.openRun(d)
			if err != nil {
				continue
			}
			out = append(out, *run)
		}
		return err
	})
	slices.Reverse(out)
	return out, err
}

// closed says why nothing new of a plan may begin now: a mandate approved it, and that one's window is over. Nobody else's
// approval ends so.
func (c *carrier) closed(ctx context.Context) string {
	r := c.record()
	var ids []string
	for _, a := range r.Approvals {
		if a.Evidence.Mandate == "" && a.Rung >= r.Plan.Decision.Rung {
			return ""
		}
		if a.Evidence.Mandate != "" {
			ids = append(ids, a.Evidence.Mandate)
		}
	}
	for _, id := range ids {
		var m *Mandate
		err := c.g.c.Store.View(ctx, func(tx Tx) error {
			var err error
			m, _, err = c.g.mandate(tx, id)
			return err
		})
		if err != nil {
			return "" // each step asks whether the mandate still holds
		}
		if _, open := openAt(m.Windows, c.g.now()); len(m.Windows) > 0 && !open {
			return "the window of mandate " + m.ID + " is over"
		}
	}
	return ""
}

// late says why a step is not begun in a plan whose parts come one after the other: with it something new would begin, and the
// window is over.
func (c *carrier) late(ctx context.Context, i int) string {
	r := c.record()
	if r.Steps[i].State != StepPending {
		return ""
	}
	for k, s := range r.Plan.Steps {
		if s.Part == r.Plan.Steps[i].Part && r.Steps[k].State != StepPending && !strings.HasPrefix(r.Steps[k].Result, unbegun) {
			return ""
		}
	}
	return c.closed(ctx)
}
