package gate

import (
	"fmt"
	"slices"
	"strings"
)

// Course says how the parts of a plan are carried out side by side. Steps of no part come one after the other, where they
// stand; between them parts of one batch run at the same time, and batches one after the other.
type Course struct {
	Parallel  int   `json:"parallel"`             // so many parts at the same time
	StopAfter int   `json:"stop_after,omitempty"` // after so many parts that failed, or whose end is not known, none begins any more; 0 = they all do
	Canaries  []int `json:"canaries,omitempty"`   // where one of these parts fails, none begins any more
}

// Bounds of a plan: how many steps it has, how many parts of it run at the same time, how many guests it snapshots first.
const (
	maxSteps, maxCourseSteps           = 200, 600
	maxParallel                        = 20
	maxUndoPoints, maxCourseUndoPoints = 20, 50
)

// courseOf checks how the parts of a draft are to be carried out; nil when they come one after the other.
func courseOf(p *Plan, d *Draft) (most int, c *Course, err error) {
	if d.Parallel == 0 {
		return maxSteps, nil, nil
	}
	if d.Parallel < 1 || d.Parallel > maxParallel || d.StopAfter < 0 {
		return 0, nil, Fail(ErrInvalid, fmt.Sprintf("Let 1 to %d run at the same time.", maxParallel), "%d parts at the same time, stopping after %d failed ones", d.Parallel, d.StopAfter)
	}
	c = &Course{Parallel: d.Parallel, StopAfter: d.StopAfter}
	last := 0
	for i, child := range d.Children {
		if countSteps(child) == 0 {
			continue
		}
		if child.Batch < last {
			return 0, nil, Fail(ErrInternal, "", "part %d is of batch %d and comes after batch %d", i+1, child.Batch, last)
		}
		if last = child.Batch; child.Canary {
			c.Canaries = append(c.Canaries, i+1)
		}
	}
	return maxCourseSteps, c, nil
}

// apart refuses a course in which two parts that may run at the same time act on one object: each relies on what it saw.
func (p *Plan) apart() *Error {
	if p.Course == nil {
		return nil
	}
	type at struct {
		batch int
		what  string
	}
	acts := map[at]int{}
	for _, s := range p.Steps {
		for _, r := range s.Judgement.References {
			if s.Part == 0 || r.Use != UseActs || r.Object.ID == "" {
				continue
			}
			key := at{s.Batch, s.Site + "/" + r.Object.String()}
			if other := acts[key]; other != 0 && other != s.Part {
				return Fail(ErrInvalid, "Put them into different batches.", "parts %d and %d would act on %s at the same time", other, s.Part, r.Object)
			}
			acts[key] = s.Part
		}
	}
	return nil
}

// part is what belongs together in a course: the places of its steps.
type part struct {
	number int // 0: steps of the plan itself
	batch  int
	steps  []int
}

// stages are the parts in the order in which they come: those of one stage may run at the same time.
func (p *Plan) stages() (out [][]part) {
	for i, s := range p.Steps {
		n := len(out) - 1
		if n < 0 || (s.Part == 0) != (out[n][0].number == 0) || s.Batch != out[n][0].batch {
			out, n = append(out, nil), n+1
		}
		if k := len(out[n]) - 1; k >= 0 && out[n][k].number == s.Part {
			out[n][k].steps = append(out[n][k].steps, i)
			continue
		}
		out[n] = append(out[n], part{number: s.Part, batch: s.Batch, steps: []int{i}})
	}
	return out
}

// about names what a part is about: the node that it upgrades, else the first guest that it acts on, else the first object.
func (p *Plan) about(part int) string {
	for _, s := range p.Steps {
		if s.Part == part && s.API != nil && slices.Contains(s.Judgement.Kinds, KindHostUpgrade) {
			return p.named(Object{Kind: ObjectNode, ID: s.API.Text("node")})
		}
	}
	what := ""
	for _, s := range p.Steps {
		for _, r := range s.Judgement.References {
			if s.Part != part || r.Use != UseActs || r.Object.ID == "" {
				continue
			}
			if r.Object.Kind == ObjectGuest {
				return p.named(r.Object)
			}
			what = orText(what, p.named(r.Object))
		}
	}
	return orText(what, fmt.Sprintf("part %d", part))
}

// named is an object with its name, where it has one.
func (p *Plan) named(o Object) string {
	text := string(o.Kind) + " " + o.ID
	for _, f := range p.Facts.Objects {
		if f.Object.Kind == o.Kind && f.Object.ID == o.ID && f.Name != "" {
			return text + " (" + clip(line(f.Name), 60) + ")"
		}
	}
	return text
}

// course is the beginning of the sentence of a plan whose parts run side by side.
func (p *Plan) course() string {
	if p.Course == nil {
		return ""
	}
	parts, batches := 0, 0
	for _, stage := range p.stages() {
		if stage[0].number != 0 {
			parts, batches = parts+len(stage), batches+1
		}
	}
	text := fmt.Sprintf("%d parts in %d batches, at most %d at the same time", parts, batches, p.Course.Parallel)
	if len(p.Course.Canaries) > 0 {
		text += fmt.Sprintf(", the first %d as a trial", len(p.Course.Canaries))
	}
	if p.Course.StopAfter > 0 {
		text += fmt.Sprintf(", none begun any more after %d failed", p.Course.StopAfter)
	}
	return text + ": "
}

// maxOrder bounds the lines that tell the order of parts, maxOrderParts the parts named in one.
const maxOrder, maxOrderParts = 40, 60

// order tells how the parts are carried out, in words.
func (p *Plan) order() (out []string) {
	if p.Course == nil {
		return nil
	}
	out = append(out, fmt.Sprintf("At most %d parts run at the same time; a batch begins when the one before it has ended.", p.Course.Parallel))
	batch := 0
	for _, stage := range p.stages() {
		if len(out) > maxOrder {
			out = append(out, "and so on: the steps tell their parts")
			break
		}
		if stage[0].number == 0 {
			out = append(out, fmt.Sprintf("Then %d steps of the plan itself.", len(stage[0].steps)))
			continue
		}
		batch++
		var names []string
		trial := false
		for _, part := range stage {
			if len(names) < maxOrderParts {
				names = append(names, p.about(part.number))
			}
			trial = trial || slices.Contains(p.Course.Canaries, part.number)
		}
		if n := len(stage) - len(names); n > 0 {
			names = append(names, fmt.Sprintf("%d more", n))
		}
		text := fmt.Sprintf("Batch %d: %s.", batch, strings.Join(names, ", "))
		if trial {
			text += " A trial: if it fails, nothing after it begins."
		}
		out = append(out, text)
	}
	if n := p.Course.StopAfter; n > 0 {
		out = append(out, fmt.Sprintf("When %d parts have failed, or their end is not known, no other begins; those that run go on to their end.", n))
	} else {
		out = append(out, "A failed part ends none of the others, and neither does one of which the end is not known.")
	}
	return append(out, "What acts on the same as a part of which the end is not known does not begin after it.")
}
