package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// unbegun begins the result of a step whose part was not begun.
const unbegun = "not begun: "

// course goes through the parts of a plan that run side by side. Nothing is remembered but the record: a process that takes
// the plan over finds in it which parts have begun, and what ends the rest.
func (c *carrier) course(ctx context.Context) error {
	for _, stage := range c.record().Plan.stages() {
		if err := c.stage(ctx, stage); err != nil {
			return err
		}
	}
	return nil
}

// stage carries parts out, so many at the same time; those that have begun come first.
func (c *carrier) stage(ctx context.Context, parts []part) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := c.record()
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b part) int {
		switch x, y := r.begun(a), r.begun(b); {
		case x == y:
			return 0
		case x:
			return -1
		}
		return 1
	})
	var mu sync.Mutex
	var group sync.WaitGroup
	var fault error
	slots := make(chan struct{}, r.Plan.Course.Parallel)
	for _, p := range parts {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		group.Go(func() {
			defer func() { <-slots }()
			if err := c.part(ctx, p); err != nil {
				mu.Lock()
				if fault == nil || errors.Is(err, errLost) {
					fault = err
				}
				mu.Unlock()
				cancel() // as when the process stops: what runs pauses, nothing else begins
			}
		})
	}
	group.Wait()
	if fault == nil {
		fault = ctx.Err()
	}
	return fault
}

func (r *PlanRecord) begun(p part) bool {
	return slices.ContainsFunc(p.steps, func(i int) bool { return r.Steps[i].State != StepPending })
}

// part goes through the steps of one part. A failure ends it, but for what is there for that case.
func (c *carrier) part(ctx context.Context, p part) error {
	r := c.record()
	if why := r.halt(p); !r.begun(p) && r.remains(p) {
		if why == "" && p.number != 0 {
			why = c.closed(ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if why != "" {
			return c.save(func(r *PlanRecord) {
				for _, i := range p.steps {
					r.Steps[i].State, r.Steps[i].Result = StepSkipped, clip(unbegun+why, 600)
				}
			})
		}
	}
	for _, i := range p.steps {
		r := c.record()
		due := r.called(i)
		if r.Plan.Steps[i].When == (When{}) {
			due = !slices.ContainsFunc(p.steps, func(k int) bool {
				return k < i && (r.Steps[k].State == StepFailed || r.Steps[k].State == StepUnknown)
			})
		}
		if err := c.step(ctx, i, due); err != nil {
			return err
		}
	}
	return nil
}

func (r *PlanRecord) remains(p part) bool {
	return slices.ContainsFunc(p.steps, func(i int) bool { return r.Steps[i].State == StepPending })
}

// halt says why this part may not begin; empty when it may. It goes by the record alone. A part of which the end is not known counts
// as a failed one for the others, which act on other things; what acts on the same does not begin after it, and neither do steps of
// the plan itself.
func (r *PlanRecord) halt(next part) string {
	failed, unknown := map[int]bool{}, map[int]bool{}
	for i, s := range r.Steps {
		p := r.Plan.Steps[i]
		switch s.State {
		case StepUnknown:
			if p.Part == 0 || next.number == 0 || p.Part != next.number && r.Plan.meet(p.Part, next.number) {
				return fmt.Sprintf("it is not known what became of step %d (%s)", i+1, r.Plan.about(p.Part))
			}
			failed[p.Part], unknown[p.Part] = true, true
		case StepFailed:
			if p.Part == 0 {
				return fmt.Sprintf("step %d failed", i+1)
			}
			failed[p.Part] = true
		}
	}
	for _, n := range r.Plan.Course.Canaries {
		switch {
		case unknown[n]:
			return "it is not known what became of the trial with " + r.Plan.about(n)
		case failed[n]:
			return "the trial with " + r.Plan.about(n) + " failed"
		}
	}
	if n := r.Plan.Course.StopAfter; n > 0 && len(failed) >= n {
		what := "have failed"
		if len(unknown) > 0 {
			what = fmt.Sprintf("have failed (of %d the end is not known)", len(unknown))
		}
		return fmt.Sprintf("%d parts %s, and after %d no other begins", len(failed), what, n)
	}
	return ""
}

// meet says whether two parts act on one object.
func (p *Plan) meet(one, other int) bool {
	acts := map[string]bool{}
	for _, part := range []int{one, other} {
		for _, s := range p.Steps {
			for _, r := range s.Judgement.References {
				key := s.Site + "/" + r.Object.String()
				switch {
				case s.Part != part || r.Use != UseActs || r.Object.ID == "":
				case part == one:
					acts[key] = true
				case acts[key]:
					return true
				}
			}
		}
	}
	return false
}

// tally sums up how the parts of a plan went; empty for a plan that has none side by side.
func (r *PlanRecord) tally() string {
	if r.Plan.Course == nil {
		return ""
	}
	var failed, unknown, left []string
	done, why := 0, ""
	for _, stage := range r.Plan.stages() {
		for _, p := range stage {
			if p.number == 0 {
				continue
			}
			state, name := r.partState(p), r.Plan.about(p.number)
			switch state {
			case StepDone:
				done++
			case StepFailed:
				failed = append(failed, name)
			case StepUnknown:
				unknown = append(unknown, name)
			case StepSkipped:
				left = append(left, name)
				why = orText(why, strings.TrimPrefix(r.Steps[p.steps[0]].Result, unbegun))
			}
		}
	}
	text := fmt.Sprintf("%d parts done", done)
	for _, list := range []struct {
		what  string
		names []string
	}{{"failed", failed}, {"not known", unknown}, {"not begun", left}} {
		if len(list.names) > 0 {
			text += fmt.Sprintf(", %d %s (%s)", len(list.names), list.what, enumerate(list.names, 20))
		}
	}
	if why != "" {
		text += ": " + why
	}
	return text + ". "
}

func enumerate(names []string, most int) string {
	if n := len(names) - most; n > 0 {
		names = append(slices.Clone(names[:most]), fmt.Sprintf("%d more", n))
	}
	return strings.Join(names, ", ")
}

// partState is how a part stands: the worst of its steps.
func (r *PlanRecord) partState(p part) StepState {
	seen := map[StepState]bool{}
	for _, i := range p.steps {
		seen[r.Steps[i].State] = true
		if strings.HasPrefix(r.Steps[i].Result, unbegun) {
			return StepSkipped
		}
	}
	for _, s := range []StepState{StepUnknown, StepStarted, StepWaiting} {
		if seen[s] {
			return s
		}
	}
	switch {
	case seen[StepPending] && len(seen) == 1:
		return StepPending
	case seen[StepPending]:
		return StepStarted
	case seen[StepFailed]:
		return StepFailed
	}
	return StepDone
}

// standing is what runs now, in one line for those who wait: of parts side by side also how far they are.
func (r *PlanRecord) standing(under []string) string {
	if r.Plan.Course == nil {
		if len(under) == 0 {
			return ""
		}
		return under[len(under)-1]
	}
	s := r.Strip()
	var names []string
	for _, p := range s {
		if p.State == StepStarted {
			names = append(names, p.About)
		}
	}
	counts := map[StepState]int{}
	for _, p := range s {
		counts[p.State]++
	}
	text := fmt.Sprintf("%d of %d parts done", counts[StepDone], len(s))
	for _, c := range []struct {
		n    int
		what string
	}{{counts[StepFailed], "failed"}, {counts[StepUnknown], "not known"}, {counts[StepSkipped], "not begun"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	if len(names) > 0 {
		text += "; now " + enumerate(names, 6)
	}
	return text
}

// PartView is how one part of a plan stands.
type PartView struct {
	Part  int       `json:"part"`
	Batch int       `json:"batch"`
	About string    `json:"about"`
	State StepState `json:"state"` // pending, started, done, failed, unknown, or skipped: not begun
	Steps []int     `json:"steps"` // their numbers
}

// Strip tells how the parts of a plan stand that run side by side, in their order.
func (r *PlanRecord) Strip() (out []PartView) {
	if r.Plan.Course == nil {
		return nil
	}
	for _, stage := range r.Plan.stages() {
		for _, p := range stage {
			if p.number == 0 {
				continue
			}
			v := PartView{Part: p.number, Batch: p.batch, About: r.Plan.about(p.number), State: r.partState(p)}
			if v.State == StepWaiting {
				v.State = StepStarted
			}
			for _, i := range p.steps {
				v.Steps = append(v.Steps, i+1)
			}
			out = append(out, v)
		}
	}
	return out
}
