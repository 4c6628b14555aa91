package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// carrier carries one plan out in this process. Each move is written down before the next one is made.
type carrier struct {
	g        *Gate
	stop     context.CancelFunc
	done     chan struct{}
	readOnly bool // settles what was sent; a step that would have to be sent pauses the plan again

	mu sync.Mutex
	r  *PlanRecord
}

// errLost says that another process has taken the plan: this one must not touch it any more.
var errLost = errors.New("another process carries the plan out")

// save changes the record and writes it with its ledger records in one transaction.
func (c *carrier) save(change func(r *PlanRecord), records ...Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	copied := *c.r
	copied.Steps = slices.Clone(c.r.Steps)
	change(&copied)
	if copied.State == PlanApplying {
		copied.Heartbeat = c.g.now()
	}
	err := c.g.c.Store.Update(ctx, func(tx Tx) error {
		fresh := copied // an earlier try of this transaction must leave no trace
		for _, rec := range records {
			if rec.Kind == "step" {
				if err := unsent(tx, rec.Plan, rec.Step); err != nil {
					return err
				}
			}
			index, err := tx.Append(rec)
			if err != nil {
				return err
			}
			if rec.Kind == "plan_end" {
				fresh.End = index
			}
			if rec.Kind == "step" {
				if err := tx.Hit("write/"+rec.Target, c.g.now()); err != nil {
					return err
				}
			}
		}
		if fresh.State.Ended() {
			if err := tx.Unlock(fresh.Plan.ID); err != nil {
				return err
			}
			if err := tx.DropSealed(fresh.Plan.ID); err != nil {
				return err
			}
		}
		if err := tx.UpdatePlan(&fresh); err != nil {
			return err
		}
		copied.Version, copied.End = fresh.Version, fresh.End
		return nil
	})
	if errors.Is(err, ErrStoreConflict) {
		return errLost
	}
	if err == nil {
		c.r = &copied
	}
	return err
}

func (c *carrier) record() *PlanRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.r
}

// carry goes through the steps until the plan ends or the process stops.
func (c *carrier) carry(ctx context.Context) {
	beat := time.NewTicker(c.g.c.Heartbeat)
	defer beat.Stop()
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		for {
			select {
			case <-ctx.Done():
				return
			case <-beat.C:
				if err := c.save(func(*PlanRecord) {}); errors.Is(err, errLost) {
					c.stop()
					return
				}
			}
		}
	}()
	err := c.steps(ctx)
	c.stop()
	<-beating
	if errors.Is(err, errLost) {
		c.g.c.Log.Warn("plan lost to another process", "plan", c.record().Plan.ID)
		return
	}
	if err != nil && ctx.Err() == nil {
		c.g.c.Log.Error("carry plan", "plan", c.record().Plan.ID, "error", err)
	}
	c.finish(err)
}

// finish writes the end of the plan, or that it pauses.
func (c *carrier) finish(cause error) {
	r := c.record()
	state, note := c.verdict(r)
	if cause != nil && (state == PlanPaused) {
		note = "paused: " + clip(cause.Error(), 300)
	}
	rec := c.g.planRecord(&r.Plan, "plan_end", string(state))
	if note != "" {
		rec.Parts["note"] = c.g.c.Sealer.Redact(note)
	}
	if state == PlanPaused {
		if err := c.save(func(r *PlanRecord) { r.State, r.Note, r.Owner = state, note, "" }, rec); err != nil {
			c.g.c.Log.Warn("pause plan", "plan", r.Plan.ID, "error", err)
		}
		return
	}
	ended := *r
	ended.State, ended.Note = state, note
	rc := receipt(&ended)
	text, err := Canonical(rc)
	if err == nil {
		rec.Parts["receipt"] = string(text)
		sum := sha256.Sum256(text)
		rec.Marks = map[string]string{"receipt": hex.EncodeToString(sum[:])}
	}
	err = c.save(func(r *PlanRecord) { r.State, r.Note, r.Owner, r.Receipt = state, note, "", rc }, rec)
	if err != nil {
		c.g.c.Log.Warn("end plan", "plan", r.Plan.ID, "error", err)
		return
	}
	c.g.c.Log.Info("plan ended", "plan", r.Plan.ID, "operation", r.Plan.Operation, "state", string(state))
	c.g.c.Trace(PointEnded)
	if pos, err := c.g.c.Store.Position(context.Background(), c.record().End); err == nil {
		signed := *rc
		rc = &signed
		rc.Ledger = pos
		rc.Ledger.Leaf = "" // in the full receipt only
		if err := c.save(func(r *PlanRecord) { r.Receipt = rc }); err != nil {
			c.g.c.Log.Debug("add proof to receipt", "plan", r.Plan.ID, "error", err)
		}
	}
}

// verdict sums up the steps.
func (c *carrier) verdict(r *PlanRecord) (PlanState, string) {
	var failed, unknown, pending, stale, open []string
	left := ""
	for i, s := range r.Steps {
		line := fmt.Sprintf("step %d: %s", i+1, s.Result)
		switch s.State {
		case StepFailed:
			if strings.HasPrefix(s.Result, staleMark) {
				stale = append(stale, line)
			} else {
				failed = append(failed, line)
			}
		case StepUnknown:
			unknown = append(unknown, line)
		case StepPending:
			pending = append(pending, line)
		case StepStarted, StepWaiting:
			open = append(open, line)
		case StepSkipped:
			if strings.HasPrefix(s.Result, unbegun) {
				left = orText(left, s.Result)
			}
		}
	}
	sent := ""
	if len(failed)+len(stale) > 0 {
		sent = " " + sentSoFar(&PlanRecord{Steps: carriedOut(r.Steps)})
	}
	tally := r.tally()
	switch {
	case len(open) > 0:
		return PlanPaused, "a step was sent and its end is not seen yet"
	case len(pending) > 0:
		return PlanPaused, fmt.Sprintf("%d of %d steps are still to come", len(pending), len(r.Steps))
	case len(unknown) > 0:
		return PlanUnknown, tally + strings.Join(append(unknown, failed...), "; ")
	case len(failed) > 0:
		return PlanFailed, tally + stopped(strings.Join(append(failed, stale...), "; ")) + sent
	case len(stale) > 0:
		return PlanStale, tally + stopped(strings.Join(stale, "; ")) + sent
	case left != "":
		return PlanFailed, orText(tally, "some of it was "+left+". ") + sentSoFar(&PlanRecord{Steps: carriedOut(r.Steps)})
	}
	return PlanDone, ""
}

// stopped is a text to which another sentence can be added.
func stopped(text string) string {
	if text == "" || strings.ContainsAny(text[len(text)-1:], ".!?") {
		return text
	}
	return text + "."
}

// carriedOut counts as sent only what was not proven to be without effect.
func carriedOut(steps []StepRecord) []StepRecord {
	out := slices.Clone(steps)
	for i := range out {
		if out[i].State == StepFailed && out[i].UPID == "" && !out[i].Told {
			out[i].State = StepSkipped
		}
	}
	return out
}

// staleMark begins the result of a step that was not sent since something had changed.
const staleMark = "stale: "

func (c *carrier) steps(ctx context.Context) error {
	if c.record().Plan.Course != nil {
		return c.course(ctx)
	}
	ended := map[int]bool{} // parts that a failure has ended
	all := false            // a failure outside of parts, or an unknown, ends everything
	for i := range c.record().Steps {
		if why := c.late(ctx, i); why != "" {
			if err := c.save(func(r *PlanRecord) { r.Steps[i].State, r.Steps[i].Result = StepSkipped, clip(unbegun+why, 600) }); err != nil {
				return err
			}
			continue
		}
		if err := c.step(ctx, i, c.due(i, ended, all)); err != nil {
			return err
		}
		s := &c.record().Plan.Steps[i]
		switch c.record().Steps[i].State {
		case StepFailed:
			if c.record().handled(i) {
				continue
			}
			if s.Part == 0 {
				all = true
			}
			ended[s.Part] = true
		case StepUnknown:
			all = true
		}
	}
	return nil
}

// step brings one step to its end from wherever it stands; one that is pending and not due is skipped.
func (c *carrier) step(ctx context.Context, i int, due bool) error {
	r := c.record()
	s := &r.Plan.Steps[i]
	switch r.Steps[i].State {
	case StepPending:
		if !due {
			why := ""
			if n := max(s.When.StepFailed, s.When.CheckFailed); n > 0 && r.Steps[n-1].State != StepSkipped && r.Unasked(n-1) {
				why = fmt.Sprintf("not done: the check of step %d could not be asked, so it is not known whether it is needed", n)
			}
			return c.save(func(r *PlanRecord) { r.Steps[i].State, r.Steps[i].Result = StepSkipped, why })
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if c.readOnly {
			return errors.New("the rest is sent by apply_plan only")
		}
		err := c.send(ctx, i)
		c.g.forget(s)
		if err != nil {
			return err
		}
	case StepStarted:
		// The process that sent it died, or was stopped, before it knew the answer: look, never send.
		if err := c.look(ctx, i, "the process ended while the request was under way", false); err != nil {
			return err
		}
	}
	if c.record().Steps[i].State == StepWaiting {
		if err := c.wait(ctx, i); err != nil {
			return err
		}
		c.g.c.Trace(PointSeen)
		c.g.forget(s)
	}
	return nil
}

// handled says whether a later step is there for the case that this one fails, and the case has come.
func (r *PlanRecord) handled(i int) bool {
	for k, s := range r.Plan.Steps {
		if (s.When.StepFailed == i+1 || s.When.CheckFailed == i+1) && r.called(k) {
			return true
		}
	}
	return false
}

// due says whether a pending step runs.
func (c *carrier) due(i int, ended map[int]bool, all bool) bool {
	r := c.record()
	s := r.Plan.Steps[i]
	if s.When != (When{}) {
		return r.called(i)
	}
	return !all && !ended[s.Part]
}

// called says whether the case has come for which a step is there.
func (r *PlanRecord) called(i int) bool {
	s := r.Plan.Steps[i]
	n := max(s.When.StepFailed, s.When.CheckFailed)
	if n == 0 || r.Unasked(n-1) {
		return false
	}
	of := r.Steps[n-1]
	return of.State == StepFailed || s.When.CheckFailed > 0 && of.State == StepUnknown && of.UPID != ""
}

// Unasked says whether a step that only looks has ended, or not begun, without an answer: policy or its preconditions stood
// against it, or what it looks with could not be reached. Such a check has not failed: it says nothing of what it was to check.
func (r *PlanRecord) Unasked(i int) bool {
	s, st := r.Plan.Steps[i], r.Steps[i]
	if s.Judgement.Effect != EffectRead {
		return false
	}
	return st.Started.IsZero() || s.API != nil && s.API.IsRun() && !st.Told && len(st.Answer) == 0
}

// stepRecord is the ledger record of one step.
func (c *carrier) stepRecord(i int, kind, status string) Record {
	r := c.record()
	s := r.Plan.Steps[i]
	rec := c.g.planRecord(&r.Plan, kind, status)
	rec.Actor, rec.Client, rec.WayIn = r.Applier.Key(), clip(r.Applier.Client, 80), r.Applier.WayIn
	rec.Step, rec.Target, rec.UPID, rec.Effect = s.Number, s.Target, r.Steps[i].UPID, s.Judgement.Effect
	return rec
}

// end writes how a step ended.
func (c *carrier) end(i int, state StepState, result string) error {
	rec := c.stepRecord(i, "step_end", string(state))
	rec.Parts["result"] = c.g.c.Sealer.Redact(result)
	after := c.after(i)
	return c.save(func(r *PlanRecord) {
		r.Steps[i].After = after
		r.Steps[i].State, r.Steps[i].Result, r.Steps[i].Ended = state, clip(c.g.c.Sealer.Redact(result), 600), c.g.now()
	}, rec)
}

// downloadLimit is the most that a download takes.
const downloadLimit = 20 * time.Minute

// send re-checks, records, sends once, and records the answer.
func (c *carrier) send(ctx context.Context, i int) error {
	r := c.record()
	s := r.Plan.Steps[i]
	if why := c.recheck(ctx, i); why != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if why.applier && untouchedYet(r) {
			return fmt.Errorf("%s; nothing was sent, and apply_plan of who may goes on", strings.TrimRight(why.Error(), ".")) // the step stays pending
		}
		prefix := staleMark
		if why.Kind == ErrDenied || why.Kind == ErrUnavailable {
			prefix = "not sent: "
		}
		return c.end(i, StepFailed, prefix+why.advice())
	}
	req, err := c.resolve(ctx, i)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return c.end(i, StepFailed, staleMark+err.Error())
	}
	address, err := c.g.c.Driver.Address(s.Target)
	if err != nil {
		return c.end(i, StepFailed, "not sent: "+err.Error())
	}
	before, unread := c.g.images(ctx, r.Plan.Requester, s)
	if unread != "" {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return c.end(i, StepFailed, "not sent: what undo would restore could not be read: "+unread)
	}
	c.g.c.Trace(PointRechecked)
	rec := c.stepRecord(i, "step", "started")
	// From where it is sent the request may have left: the call is not cut by a stop of the process. A download changes
	// nothing there, and is cut.
	base, limit := context.WithoutCancel(ctx), 2*time.Minute
	if b, err := c.g.c.Catalog.Render(req, hideSecrets); err == nil {
		if b.Download {
			base, limit = ctx, downloadLimit
		}
		rec.Parts["request"] = b.Method + " " + b.Path + " " + b.Query + b.Body
		if req.IsRun() {
			rec.Parts["request"], rec.Marks = c.g.c.Sealer.Redact(rec.Parts["request"]), runMarks(req, RunResult{})
		}
	}
	if err := c.save(func(r *PlanRecord) {
		st := &r.Steps[i]
		st.State, st.Resolved, st.Address, st.Started = StepStarted, &req, address, c.g.now()
		st.Before = before
	}, rec); err != nil {
		if errors.Is(err, errLost) {
			return err
		}
		if errors.Is(err, errSentBefore) {
			return c.end(i, StepUnknown, err.Error())
		}
		// It could not be recorded, so it is not sent. The step is still pending.
		return fmt.Errorf("record step before sending: %w", err)
	}
	c.g.c.Log.Info("step sent", "plan", r.Plan.ID, "step", s.Number, "operation", s.API.Operation, "target", s.Target, "actor", r.Applier.Key())
	c.g.c.Trace(PointStarted)
	sendCtx, cancel := context.WithTimeout(base, limit)
	defer cancel()
	permit := mint(Write{Target: s.Target, Address: address, Request: req, Key: fmt.Sprintf("%s-%d", r.Plan.ID, s.Number), Download: s.Download, Open: func(v Value) (string, error) { return c.open(v) }})
	if req.IsRun() {
		return c.run(ctx, i, permit, req)
	}
	a, err := c.g.c.Driver.Send(sendCtx, permit)
	if err != nil {
		var u *UpstreamError
		if errors.As(err, &u) && u.Delivery == NotCarriedOut || errors.Is(err, ErrPermitSpent) {
			return c.end(i, StepFailed, err.Error())
		}
		return c.look(ctx, i, err.Error(), u != nil && u.Refused)
	}
	c.g.c.Trace(PointSent)
	data := c.g.c.Catalog.Scrub(req, a.Data)
	if a.Saved != nil {
		if data, err = json.Marshal(a.Saved); err != nil {
			return fmt.Errorf("write where a file was saved: %w", err)
		}
	}
	upid := ""
	if s.Wait.Kind == WaitTask {
		upid = taskOf(data)
	}
	sent := c.stepRecord(i, "step_sent", "answered")
	sent.UPID = upid
	if len(a.Notes) > 0 {
		sent.Parts["notes"] = clip(strings.Join(a.Notes, "; "), 600)
	}
	sent.Parts["answer"] = c.g.c.Sealer.Redact(middleCut(string(data), maxPart))
	defer c.g.c.Trace(PointAnswered)
	return c.save(func(r *PlanRecord) {
		st := &r.Steps[i]
		st.State, st.UPID, st.Address, st.Resent, st.Saved = StepWaiting, upid, a.Address, len(a.Notes) > 0, a.Saved
		if len(data) <= maxPart {
			st.Answer = data
		}
	}, sent)
}

// untouchedYet says whether nothing of a plan was sent, or ended, yet.
func untouchedYet(r *PlanRecord) bool {
	return !slices.ContainsFunc(r.Steps, func(s StepRecord) bool { return s.State != StepPending })
}

func hideSecrets(v Value) (string, error) {
	if v.Secret != nil {
		return v.Secret.Before + "(secret)" + v.Secret.After, nil
	}
	return v.Text, nil
}

// taskOf finds the UPID in an answer, or in the key upid of it.
func taskOf(data json.RawMessage) string {
	var s string
	if json.Unmarshal(data, &s) == nil && strings.Contains(s, "UPID:") {
		return s
	}
	var o struct {
		UPID string `json:"upid"`
	}
	if json.Unmarshal(data, &o) == nil && strings.Contains(o.UPID, "UPID:") {
		return o.UPID
	}
	return ""
}

// open gives the text of a value at send time; sealed ones are checked against their commitment by their box.
func (c *carrier) open(v Value) (string, error) {
	if v.Ref != nil {
		return "", errors.New("open value: the reference was not resolved")
	}
	if v.Secret == nil {
		return v.Text, nil
	}
	plan := c.record().Plan.ID
	var box []byte
	err := c.g.c.Store.View(context.Background(), func(tx Tx) error {
		var err error
		box, err = tx.Sealed(plan, v.Secret.ID)
		return err
	})
	if err != nil || len(box) < 2 {
		return "", fmt.Errorf("open secret %s: %w", v.Secret.ID, orError(err, "nothing is sealed there"))
	}
	salted, err := c.g.c.Sealer.Open(box[1:], secretPlace(plan, v.Secret.ID, int(box[0])))
	if err != nil {
		return "", fmt.Errorf("open secret %s: %w", v.Secret.ID, err)
	}
	n := int(box[0])
	if len(salted) < n {
		return "", fmt.Errorf("open secret %s: the box is too short", v.Secret.ID)
	}
	return v.Secret.Before + string(salted[n:]) + v.Secret.After, nil
}

func orError(err error, text string) error {
	if err != nil {
		return err
	}
	return errors.New(text)
}
