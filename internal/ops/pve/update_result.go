package pve

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/patch"
)

type updateResultIn struct {
	Guest  string `json:"guest,omitempty" jsonschema:"id or unique name: its last installation"`
	Plan   string `json:"plan,omitempty" jsonschema:"or the plan; guest too where it has several"`
	Wait   int    `json:"wait_seconds,omitempty" jsonschema:"for one that still runs, at most 60"`
	Log    bool   `json:"log,omitempty" jsonschema:"what was printed too"`
	Target string `json:"target,omitempty"`
}

type updateResultOut struct {
	VMID     int64            `json:"vmid"`
	Name     string           `json:"name,omitempty"`
	Plan     string           `json:"plan,omitempty"`
	PlanIs   string           `json:"plan_state,omitempty"`
	State    string           `json:"state" jsonschema:"none, running, ended, lost or refused"`
	Verdict  string           `json:"verdict" jsonschema:"well, worse, running, nothing_changed, none or not_known"`
	Why      []string         `json:"why,omitempty"`
	Mode     string           `json:"mode,omitempty"`
	Began    string           `json:"began,omitempty"`
	Took     string           `json:"took,omitempty"`
	Asked    int              `json:"asked"`
	Done     int              `json:"done"`
	Changed  []string         `json:"changed,omitempty"`
	Missing  []string         `json:"missing,omitempty" jsonschema:"asked for and not done"`
	Beyond   []string         `json:"beyond,omitempty" jsonschema:"changed and not asked for"`
	Stale    string           `json:"stale,omitempty" jsonschema:"why it was refused: what differs from the plan"`
	Problems []string         `json:"package_problems,omitempty"`
	Kept     []string         `json:"conffiles_kept,omitempty"`
	Services patch.Difference `json:"services"`
	Reboot   string           `json:"reboot,omitempty"`
	Progress string           `json:"progress,omitempty"`
	Log      string           `json:"log,omitempty"`
	LogBytes int64            `json:"log_bytes,omitempty"`
	Note     string           `json:"note,omitempty"`
	Next     string           `json:"next"`
}

func updateResult() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "update_result", Summary: "How the last installation in a guest went, or goes: packages, services before and after, reboot", Product: "pve",
		Kinds: []gate.Kind{gate.KindUpdates}, Toolset: "standard", Guest: "guest", Keywords: "patch outcome progress log finished failed upgrade wait apt output how did it go went well success succeeded",
	}, runUpdateResult)
}

// How often a running installation is looked at, and what is left to answer when the time of a call ends.
const (
	resultPause  = 2 * time.Second
	resultMargin = 8 * time.Second
)

func runUpdateResult(ctx context.Context, v gate.View, in updateResultIn) (updateResultOut, error) {
	if in.Wait < 0 || in.Wait > 60 {
		return updateResultOut{}, gate.Fail(gate.ErrInvalid, "Give 0 to 60.", "wait_seconds is %d", in.Wait)
	}
	if in.Guest == "" && in.Plan == "" {
		return updateResultOut{}, gate.Fail(gate.ErrInvalid, "Give guest, or plan, or both.", "neither guest nor plan is given")
	}
	until := v.Now().Add(time.Duration(in.Wait) * time.Second)
	if end, ok := ctx.Deadline(); ok && end.Add(-resultMargin).Before(until) {
		until = end.Add(-resultMargin)
	}
	l := &resultLook{v: v, in: in, until: until}
	if in.Plan != "" {
		return l.ofPlan(ctx)
	}
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return updateResultOut{}, err
	}
	g, err := s.inv.Guest(ctx, v, in.Guest)
	if err != nil {
		return updateResultOut{}, err
	}
	return l.ofGuest(ctx, s, g)
}

type resultLook struct {
	v     gate.View
	in    updateResultIn
	until time.Time
}

// pause waits between two looks; false: the time is over.
func (l *resultLook) pause(ctx context.Context) bool {
	if !l.v.Now().Add(resultPause).Before(l.until) {
		return false
	}
	t := time.NewTimer(resultPause)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// ofPlan tells of the installation that a plan holds: by its own record where it has ended, else by the guest.
func (l *resultLook) ofPlan(ctx context.Context) (updateResultOut, error) {
	past, ok := l.v.(gate.Past)
	if !ok {
		return updateResultOut{}, gate.Fail(gate.ErrInvalid, "Give guest alone.", "no plans are kept here")
	}
	for {
		r, err := past.Recorded(ctx, l.in.Plan)
		if err != nil {
			return updateResultOut{}, err
		}
		m, err := l.whose(ctx, r)
		if err != nil {
			return updateResultOut{}, err
		}
		if !r.State.Ended() && r.State != gate.PlanProposed && l.pause(ctx) {
			continue
		}
		return l.fromPlan(ctx, r, installing(r, m))
	}
}

// mine is the guest that a result is about.
type mine struct{ target, id string }

func (m mine) has(s gate.Step) bool {
	return s.API != nil && s.Target == m.target && s.API.Text("vmid") == m.id
}

// installs says whether a step works on packages of a guest.
func installs(s gate.Step) bool {
	return s.API != nil && s.API.IsRun() && strings.Contains(s.API.Operation, "/{vmid}/") && (strings.HasSuffix(s.API.Operation, "/upgrade") || strings.HasSuffix(s.API.Operation, "/repair"))
}

// verifies says whether a step is castellan's check of an installation.
func verifies(s gate.Step) bool {
	return s.API != nil && s.API.IsRun() && s.API.Text("word") == "verify"
}

// whose is the guest of a plan that is asked about.
func (l *resultLook) whose(ctx context.Context, r *gate.PlanRecord) (mine, error) {
	var all []mine
	for _, s := range r.Plan.Steps {
		if !installs(s) {
			continue
		}
		if m := (mine{s.Target, s.API.Text("vmid")}); !slices.Contains(all, m) && (l.in.Target == "" || l.in.Target == s.Target) {
			all = append(all, m)
		}
	}
	switch {
	case len(all) == 0:
		return mine{}, gate.Fail(gate.ErrInvalid, "show_plan tells what it is.", "plan %s installs nothing in a guest", clip(l.in.Plan, 60))
	case l.in.Guest == "" && len(all) == 1:
		return all[0], nil
	case l.in.Guest == "":
		return mine{}, gate.Fail(gate.ErrInvalid, "wave_result with this plan, or give guest too.", "plan %s installs in %d guests", clip(l.in.Plan, 60), len(all))
	}
	var found []mine
	var unfound error
	asked := map[string]string{} // target → id of the guest there
	for _, m := range all {
		id, known := asked[m.target]
		if !known {
			s, err := open(ctx, l.v, m.target)
			if err != nil {
				return mine{}, err
			}
			g, err := s.inv.Guest(ctx, l.v, l.in.Guest)
			if err != nil {
				unfound = err
			}
			id = g.ID
			asked[m.target] = id
		}
		if id != "" && id == m.id {
			found = append(found, m)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return mine{}, gate.Fail(gate.ErrInvalid, "Give target too.", "plan %s installs in guest %s of %d targets", clip(l.in.Plan, 60), clip(l.in.Guest, 60), len(found))
	case unfound != nil:
		return mine{}, unfound
	}
	return mine{}, gate.Fail(gate.ErrInvalid, "show_plan tells what it is; update_result with guest alone tells of its last installation.", "plan %s installs nothing in guest %s", clip(l.in.Plan, 60), clip(l.in.Guest, 60))
}

// installing is the last step of a plan that works on packages of this guest, -1 where there is none.
func installing(r *gate.PlanRecord, m mine) int {
	at := -1
	for i, s := range r.Plan.Steps {
		if installs(s) && m.has(s) {
			at = i
		}
	}
	return at
}

func (l *resultLook) fromPlan(ctx context.Context, r *gate.PlanRecord, at int) (updateResultOut, error) {
	step := r.Plan.Steps[at]
	m := mine{step.Target, step.API.Text("vmid")}
	s, err := open(ctx, l.v, step.Target)
	if err != nil {
		return updateResultOut{}, err
	}
	g, err := s.inv.Guest(ctx, l.v, step.API.Text("vmid"))
	if err != nil {
		return updateResultOut{}, err
	}
	o, known := recordedOutcome(r, at)
	if !known || o.State == "running" || o.State == "lost" {
		if r.Steps[at].State == gate.StepPending || r.Steps[at].State == gate.StepSkipped {
			out := updateResultOut{VMID: g.Number, Name: g.Name, State: "none", Verdict: "none", Plan: r.Plan.ID, PlanIs: string(r.State), Next: "show_plan tells where the plan stands."}
			if r.Note != "" {
				out.Why = []string{clip(r.Note, 400)}
			}
			return out, nil
		}
		if why := idle(g); why == "" {
			out, err := l.ofGuest(ctx, s, g)
			if err != nil || out.Plan == r.Plan.ID {
				return out, err
			}
			if out.Plan != "" {
				return updateResultOut{}, gate.Fail(gate.ErrNotFound, "update_result with guest tells of the later one.", "the guest has installed something else since, by plan %s: what became of plan %s is not told any more", out.Plan, r.Plan.ID)
			}
		}
	}
	out := shaped(g, o, l.in.Log)
	out.Plan, out.PlanIs = r.Plan.ID, string(r.State)
	if !known {
		out.State, out.Verdict, out.Why = "lost", "not_known", []string{clip(r.Steps[at].Result, 300)}
	}
	out.held(r, m, at)
	out.Next = next(r, m, out)
	return out, nil
}

// recordedOutcome is the best that the plan's own record knows: what verify said, else what the installation did.
func recordedOutcome(r *gate.PlanRecord, at int) (o patch.Outcome, known bool) {
	m := mine{r.Plan.Steps[at].Target, r.Plan.Steps[at].API.Text("vmid")}
	for i := len(r.Plan.Steps) - 1; i >= at; i-- {
		s := r.Plan.Steps[i]
		if s.API == nil || !s.API.IsRun() || i >= len(r.Steps) || len(r.Steps[i].Answer) == 0 || i > at && !verifies(s) || !m.has(s) {
			continue
		}
		var res gate.RunResult
		if json.Unmarshal(r.Steps[i].Answer, &res) != nil || len(res.Report) == 0 {
			continue
		}
		var one patch.Outcome
		if json.Unmarshal(res.Report, &one) == nil && one.State != "" {
			return one, true
		}
	}
	return o, false
}

// ofGuest asks the guest itself.
func (l *resultLook) ofGuest(ctx context.Context, s *site, g estate.Guest) (updateResultOut, error) {
	if why := idle(g); why != "" {
		return updateResultOut{}, gate.Fail(gate.ErrInvalid, "Give the plan, whose record is kept; or start the guest.", "%s cannot be asked (%s)", g.Title(), why)
	}
	for {
		o, _, err := told[patch.Outcome](ctx, s, g, string(patch.Result), nil)
		if err != nil {
			return updateResultOut{}, err
		}
		if o.State == "running" && l.pause(ctx) {
			continue
		}
		out := shaped(g, o, l.in.Log)
		if o.State == "running" {
			if res, err := s.word(ctx, g, string(patch.Progress), nil); err == nil {
				out.Progress = tail(res.Said, 1200)
			}
		}
		id, number, ok := cutLast(o.ID, ".")
		if ok {
			out.Plan = clip(id, 60)
		}
		var record *gate.PlanRecord
		m, at := mine{s.target(), g.ID}, -1
		if past, ok := l.v.(gate.Past); ok && out.Plan != "" {
			if r, err := past.Recorded(ctx, out.Plan); err == nil {
				record, at = r, stepOf(r, m, number)
			}
		}
		if record != nil {
			if seen, ok := seenWell(record, m, at); ok && seen.ID == o.ID && o.State == "ended" {
				seen.Reboot = o.Reboot // which it may have done since
				plan := out.Plan
				out = shaped(g, seen, l.in.Log)
				out.Plan = plan
			}
			out.PlanIs = string(record.State)
		}
		out.held(record, m, at)
		out.Next = next(record, m, out)
		return out, nil
	}
}

// stepOf is the place of the installation that a guest names by its number, -1 where the plan has no such one in this guest.
func stepOf(r *gate.PlanRecord, m mine, number string) int {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > len(r.Plan.Steps) || !installs(r.Plan.Steps[n-1]) || !m.has(r.Plan.Steps[n-1]) {
		return -1
	}
	return n - 1
}

// checks are the places of castellan's checks of one installation.
func checks(r *gate.PlanRecord, m mine, at int) (out []int) {
	if r == nil || at < 0 {
		return nil
	}
	for i := at + 1; i < min(len(r.Plan.Steps), len(r.Steps)); i++ {
		switch s := r.Plan.Steps[i]; {
		case !m.has(s):
		case installs(s):
			return out
		case verifies(s):
			out = append(out, i)
		}
	}
	return out
}

// seenWell is what the last check of an installation that went well saw.
func seenWell(r *gate.PlanRecord, m mine, at int) (o patch.Outcome, ok bool) {
	for _, i := range checks(r, m, at) {
		var res gate.RunResult
		var one patch.Outcome
		if r.Steps[i].State == gate.StepDone && json.Unmarshal(r.Steps[i].Answer, &res) == nil && json.Unmarshal(res.Report, &one) == nil && one.State == "ended" {
			o, ok = one, true
		}
	}
	return o, ok
}

// held holds what a guest says of itself against what castellan saw when the plan was carried out: where that spoke against it,
// no later word of the guest makes it good, and without a check that went well nothing does.
func (out *updateResultOut) held(r *gate.PlanRecord, m mine, at int) {
	if out.Verdict != "well" && out.Verdict != "not_known" {
		return
	}
	done, open := false, ""
	for _, i := range checks(r, m, at) {
		switch st := r.Steps[i]; {
		case st.State == gate.StepDone:
			done = true
		case st.State == gate.StepFailed && !r.Unasked(i):
			said := st.Result
			var res gate.RunResult
			if json.Unmarshal(st.Answer, &res) == nil && res.Said != "" {
				said = res.Said
			}
			out.Verdict, out.Why = "worse", []string{"whatever the guest says of itself, castellan saw when the plan was carried out: " + clip(said, 300)}
			return
		case st.State == gate.StepFailed, st.State == gate.StepUnknown:
			open = clip(st.Result, 300)
		}
	}
	if out.Verdict != "well" || done && open == "" {
		return
	}
	why := "castellan has not checked it"
	if out.Plan != "" {
		why += " (plan " + out.Plan + ")"
	}
	if open != "" {
		why = "castellan could not check it to the end: " + open
	}
	out.Verdict, out.Why = "not_known", []string{why + "; there is the guest's own word only"}
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func tail(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return "…" + string(r[len(r)-n:])
	}
	return s
}

// mostResultLog bounds what a package manager printed, in runes.
const mostResultLog = 12_000

// shaped writes an outcome for a reader.
func shaped(g estate.Guest, o patch.Outcome, log bool) updateResultOut {
	out := updateResultOut{VMID: g.Number, Name: g.Name, State: o.State, Mode: o.Mode, Asked: len(o.Asked), Done: len(o.Done), Changed: lines(o.Done, 100), Missing: lines(o.Missing, 40), Beyond: lines(o.Beyond, 40),
		Stale: clip(o.Stale, 600), Kept: someOf(clipped(o.Conffiles, 160), 30), LogBytes: o.LogBytes, Note: clip(o.Note, 400)}
	if !o.Packages.Clean {
		out.Problems = someOf(clipped(o.Packages.Problems, 200), 20)
	}
	out.Services = patch.Difference{Worse: someOf(clipped(o.Services.Worse, 200), 40), Better: someOf(clipped(o.Services.Better, 200), 20), Other: someOf(clipped(o.Services.Other, 200), 20), Unread: someOf(clipped(o.Services.Unread, 200), 20)}
	if !o.Began.IsZero() {
		out.Began = o.Began.UTC().Format(time.RFC3339)
		if o.Ended.After(o.Began) {
			out.Took = o.Ended.Sub(o.Began).Round(time.Second).String()
		}
	}
	if log {
		out.Log = middle(o.Log, mostResultLog)
	}
	well, why := o.Verdict()
	switch o.State {
	case "ended":
		out.Verdict, out.Why, out.Reboot = "worse", someOf(clipped(why, 200), 20), rebootText(o.Reboot)
		switch {
		case well:
			out.Verdict = "well"
		case len(o.Missing)+len(o.Beyond)+len(o.Services.Worse) == 0 && o.Packages.Clean: // nothing is seen to be wrong, and not all was seen
			out.Verdict = "not_known"
		}
	case "running":
		out.Verdict = "running"
	case "refused":
		out.Verdict, out.Why = "nothing_changed", someOf(clipped(why, 200), 20)
	case "none", "":
		out.State, out.Verdict = "none", "none"
	default:
		out.Verdict, out.Why = "not_known", someOf(clipped(why, 200), 20)
	}
	return out
}

// middle keeps the beginning and the end of a text.
func middle(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n/3]) + fmt.Sprintf("\n… %d characters left out …\n", len(r)-n) + string(r[len(r)-(n-n/3):])
}

// next says what there is to do after it.
func next(r *gate.PlanRecord, m mine, out updateResultOut) string {
	back := ""
	if r != nil {
		for i, s := range r.Plan.Steps {
			switch {
			case !m.has(s) || i >= len(r.Steps):
			case strings.HasSuffix(s.API.Operation, "/rollback") && r.Steps[i].State == gate.StepDone:
				return "The guest was put back to snapshot " + s.API.Text("snapname") + ": check_services and check_updates show how it stands."
			case strings.HasPrefix(s.API.Operation, "POST ") && strings.HasSuffix(s.API.Operation, "/snapshot") && r.Steps[i].State == gate.StepDone:
				back = s.API.Text("snapname")
			}
		}
	}
	offer := "No snapshot of castellan's is known to go back to."
	if back != "" {
		offer = fmt.Sprintf("rollback_guest with guest=%d and snapshot=%s goes back to before it; everything written in the guest since is lost then.", out.VMID, back)
	}
	switch out.Verdict {
	case "well":
		if strings.HasPrefix(out.Reboot, "needed") {
			return "reboot_guest, when the service may be away; then check_services."
		}
		if out.Reboot == rebootText(patch.Reboot{}) {
			return "That it needs no reboot is not known: look whether what was updated is in use by what still runs, or reboot_guest when the service may be away. Nothing else is left to do."
		}
		return "Nothing is left to do. prune_snapshots deletes castellan's old snapshots."
	case "worse":
		if len(out.Problems) > 0 {
			return "repair_packages finishes what was left half done. " + offer
		}
		return "Look with check_services and guest_log, then repair it or go back. " + offer
	case "running":
		return "Call update_result again with wait_seconds=45; it goes on in the guest whatever becomes of this connection."
	case "nothing_changed":
		return "Nothing was changed. check_updates, then apply_updates plans anew with what there is now."
	case "none":
		return "Nothing was installed by castellan there. check_updates shows what there is."
	}
	if out.State == "ended" && r != nil && !r.State.Ended() {
		return "The plan has not ended: call update_result again with plan, guest and wait_seconds=45. show_plan tells where it stands."
	}
	return "What became of it is not known: check_updates shows the packages and check_services the services. " + offer
}
