package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// methodRun marks the catalogue's own operations: what a Runner carries out, no API.
const methodRun = "RUN "

// IsRun says whether a Runner carries the request out: a command, a file or a word on a node or in a guest.
func (r Request) IsRun() bool { return strings.HasPrefix(r.Operation, methodRun) }

// Runner runs commands and moves files on nodes and in guests. It never decides.
type Runner interface {
	// Run carries out the one run of the permit and returns when it has ended. Its id is never started twice, whoever
	// asks. An error that is an *UpstreamError with NotCarriedOut proves that nothing was started; a cancelled context
	// leaves the run to go on.
	Run(ctx context.Context, p *Permit, id string, on RunHooks) (RunResult, error)
	// Look finds out what became of a run that was started by whatever process, and starts nothing. handle is what the run
	// told by RunHooks.Handle, "" when that is not known. A run that is not known of is an error.
	Look(ctx context.Context, target string, r Request, id, handle string) (res RunResult, running bool, err error)
}

// RunHooks are told of a run under way; both may be nil.
type RunHooks struct {
	// Handle is told once what the run is called on the other side ("pid 4711"), before its end is waited for.
	Handle func(handle string)
	// Live gets what it prints, in pieces.
	Live func(piece []byte)
}

// RunResult is how a run ended. Texts are UTF-8; what is none is in the fields that end in 64.
type RunResult struct {
	ExitCode    *int     `json:"exit_code,omitempty"` // absent when a signal ended it
	Signal      string   `json:"signal,omitempty"`    // "KILL"
	TimedOut    bool     `json:"timed_out,omitempty"`
	Gone        bool     `json:"gone"`             // nothing of it is left, seen so afterwards
	OK          bool     `json:"ok"`               // it ended by itself with an exit code that counts as success
	Stdout      string   `json:"stdout,omitempty"` // its middle cut out where it is long, with a line that says how much
	Stderr      string   `json:"stderr,omitempty"`
	Stdout64    string   `json:"stdout64,omitempty"`
	Stderr64    string   `json:"stderr64,omitempty"`
	StdoutBytes int64    `json:"stdout_bytes,omitempty"` // that were printed, before anything was cut
	StderrBytes int64    `json:"stderr_bytes,omitempty"`
	Cut         bool     `json:"cut,omitempty"`
	TookMS      int64    `json:"took_ms"`
	Way         string   `json:"way"` // "bridge", "agent"
	User        string   `json:"user,omitempty"`
	File        *RunFile `json:"file,omitempty"` // of read-file; of write-file what it replaced
	Said        string   `json:"said,omitempty"` // of a word
	// Report is what castellan made of a guest's report about packages and services (patch.Report, patch.Outcome): typed,
	// bounded and clean, and still the guest's word.
	Report json.RawMessage `json:"report,omitempty"`
	Note   string          `json:"note,omitempty"` // what the runner has to add: that input was converted, that only a part is known
}

// RunFile is a file of a guest.
type RunFile struct {
	Path      string `json:"path"`
	Size      int64  `json:"size"`
	Mode      string `json:"mode"` // "0644"
	UID       int    `json:"uid"`  // as the guest sees it; -1 = not told
	GID       int    `json:"gid"`
	SHA256    string `json:"sha256,omitempty"` // of the whole file; empty when only a part was read
	Content   string `json:"content,omitempty"`
	Content64 string `json:"content64,omitempty"`
	Cut       bool   `json:"cut,omitempty"`
	Absent    bool   `json:"absent,omitempty"`
	// Sealed is the content of a replaced file, encrypted and in base64, as the record of its step keeps it; it is shown nowhere.
	Sealed string `json:"sealed,omitempty"`
}

// summary is the result in one line.
func (r RunResult) summary() string {
	switch {
	case r.TimedOut && r.Gone:
		return "timed out; it was killed and nothing of it is left"
	case r.TimedOut:
		return "timed out; it could not be seen that nothing of it is left"
	case r.Said != "" && (r.Report != nil || r.ExitCode != nil && !r.OK): // castellan's own words on what a guest reported
		return clip(line(r.Said), 500)
	case r.Signal != "":
		return "ended by signal " + clip(line(r.Signal), 20)
	case r.ExitCode != nil:
		return fmt.Sprintf("exit code %d", *r.ExitCode)
	case r.OK:
		return "ok"
	}
	return "it is not known how it ended"
}

// ended says which state a step with this result has.
func (r RunResult) ended() StepState {
	switch {
	case r.OK:
		return StepDone
	case r.TimedOut && !r.Gone, r.ExitCode == nil && r.Signal == "" && !r.TimedOut:
		return StepUnknown
	}
	return StepFailed
}

// Lanes knows what the administrator lets run where, and what a request that runs something comes to.
type Lanes interface {
	// Judge is asked of each request that gets a caller into a guest (RUN, the agent's exec, a console, a file, ...), when its
	// plan is frozen and again just before it is sent.
	Judge(ctx context.Context, v View, target string, r Request, objects []ObjectFacts) LaneVerdict
}

// LaneVerdict is what the lanes say of one request.
type LaneVerdict struct {
	// Kinds take the place of the catalogue's, where they are named: that a container is privileged is not in the request.
	Kinds   []Kind
	Refused string // why it may not run; empty = it may, as far as the lanes go
	Hint    string // which setting says so, and who may change it
	Note    string // what the plan should say beside: the way that it takes
}

// runKinds are the rows of what the lanes judge.
var runKinds = []Kind{KindProbe, KindHostProbe, KindCommand, KindHostCommand, KindReadFile, KindExec, KindHost, KindRoot, KindUpdates, KindUpgrade, KindUpgradeBare, KindHostUpgrade, KindEnrol}

// laneClasses are the classes of what gets a caller into a guest by the API's own ways: code, a console, a file.
var laneClasses = []Class{ClassExec, ClassConsole, ClassFile}

// byLane asks the lanes about a frozen step; it returns the refusal, if any. What they add makes the judgement worse, never
// milder.
func (g *Gate) byLane(ctx context.Context, v View, s *Step, objects []ObjectFacts) *Error {
	if s.API == nil || !s.API.IsRun() && !slices.ContainsFunc(s.Judgement.Classes, func(c Class) bool { return slices.Contains(laneClasses, c) }) {
		return nil
	}
	if g.c.Lanes == nil {
		if s.API.IsRun() {
			return Fail(ErrDenied, "A person configures [lanes] and [[bridge]].", "step %d runs something, and no lane is configured", s.Number)
		}
		return nil
	}
	if objects == nil {
		refs := slices.Clone(s.Judgement.References)
		for i := range refs {
			refs[i].Object.Site = s.Site
		}
		objects = g.described(ctx, g.wholeView(v.Principal()), s.Target, refs)
	}
	said := g.c.Lanes.Judge(ctx, v, s.Target, *s.API, objects)
	if said.Refused != "" {
		return Fail(ErrDenied, said.Hint, "%s is refused: %s", clip(s.Sentence, 200), said.Refused)
	}
	s.Judgement.Kinds = union(slices.Clone(s.Judgement.Kinds), said.Kinds)
	for _, k := range said.Kinds {
		row := RowOf(k)
		s.Judgement.Effect = WorseEffect(s.Judgement.Effect, row.Effect)
		if row.Class != "" {
			s.Judgement.Classes = union(s.Judgement.Classes, []Class{row.Class})
		}
	}
	if said.Note != "" {
		s.Note = strings.TrimPrefix(s.Note+"; "+line(clip(said.Note, 300)), "; ")
	}
	return nil
}

// laneNow asks the lanes again before a step is sent: what they refuse now, or what counts for more now, is not sent.
func (g *Gate) laneNow(ctx context.Context, p *Plan, s Step) *Error {
	v := g.wholeView(p.Requester)
	now := s
	now.Judgement.Kinds, now.Judgement.Classes = slices.Clone(s.Judgement.Kinds), slices.Clone(s.Judgement.Classes)
	if e := g.byLane(ctx, v, &now, p.Facts.Objects); e != nil {
		return e
	}
	for _, k := range now.Judgement.Kinds {
		if !slices.Contains(s.Judgement.Kinds, k) {
			return Fail(ErrStale, "Plan anew.", "it counts as %s now, which it did not when it was approved", k)
		}
	}
	return nil
}

// runID is what a step's run is called on the other side.
func runID(plan string, step int) string { return fmt.Sprintf("%s.%d", plan, step) }

// runLimit is how long the gate waits for the end of a run: its own limit and what starting and ending takes. What works on
// packages takes longer than a command may, and goes on in the guest when nobody waits.
func runLimit(r Request) time.Duration {
	seconds, most := 30, 300
	if r.installs() {
		seconds, most = 3600, 4*3600
	}
	if text := r.Text("timeout"); text != "" {
		if n, err := strconv.Atoi(text); err == nil {
			seconds = n
		} else {
			seconds = most
		}
	}
	return time.Duration(min(max(seconds, 1), most))*time.Second + 45*time.Second
}

// installs says whether a run works on packages.
func (r Request) installs() bool {
	return r.IsRun() && slices.ContainsFunc([]string{"/upgrade", "/repair", "/enrol", "/unenrol", "/updates"}, func(end string) bool { return strings.HasSuffix(r.Operation, end) })
}

// maxAnswer bounds the answer of a run that a plan's record keeps, in bytes.
const maxAnswer = 1 << 20

// run carries out a step that is a run. The step is recorded as started.
func (c *carrier) run(ctx context.Context, i int, permit *Permit, req Request) error {
	r := c.record()
	limit, cancel := context.WithTimeout(ctx, runLimit(req)) // a stop of the process leaves it to go on, and looks for it later
	defer cancel()
	hooks := RunHooks{
		Live: func(piece []byte) { c.g.told(runID(r.Plan.ID, i+1), piece) },
		Handle: func(handle string) {
			rec := c.stepRecord(i, "step_sent", "running")
			rec.UPID = clip(line(handle), 80)
			if err := c.save(func(r *PlanRecord) { r.Steps[i].UPID = rec.UPID }, rec); err != nil {
				c.g.c.Log.Warn("record what a run is called", "plan", r.Plan.ID, "error", err)
			}
		},
	}
	defer c.g.live.Delete(runID(r.Plan.ID, i+1))
	res, err := c.g.c.Runner.Run(limit, permit, runID(r.Plan.ID, i+1), hooks)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var u *UpstreamError
		switch {
		case errors.As(err, &u) && u.Delivery == NotCarriedOut:
			return c.end(i, StepFailed, strings.TrimSpace(stopped(err.Error())+" "+u.Hint)) // what to set up stands in the hint
		case errors.Is(err, ErrPermitSpent):
			return c.end(i, StepFailed, err.Error())
		}
		return c.lookRun(ctx, i, err.Error())
	}
	c.g.c.Trace(PointSent)
	return c.ran(i, req, res)
}

// ran records the end of a run.
func (c *carrier) ran(i int, req Request, res RunResult) error {
	if err := c.g.sealReplaced(c.record().Plan.ID, i+1, req, &res); err != nil {
		c.g.c.Log.Warn("what a run replaced is not kept", "step", i+1, "error", err)
	}
	data, err := json.Marshal(res)
	if err != nil {
		return fmt.Errorf("write result of step %d: %w", i+1, err)
	}
	told, err := recordedRun(res)
	if err != nil {
		return fmt.Errorf("write result of step %d: %w", i+1, err)
	}
	rec := c.stepRecord(i, "step_sent", "answered")
	rec.Parts["answer"] = c.g.c.Sealer.Redact(middleCut(string(told), maxPart))
	rec.Sizes = map[string]int{"answer": len(data)}
	rec.Marks = runMarks(req, res)
	s := c.record().Plan.Steps[i]
	readBack := res.ended() == StepDone && (len(s.Verify) > 0 || s.Wait.Kind == WaitSoak || s.Wait.Kind == WaitUntil) // that it ended well does not prove what it was for
	if err := c.save(func(r *PlanRecord) {
		r.Steps[i].Told = true
		if len(data) <= maxAnswer {
			r.Steps[i].Answer = data
		}
		if readBack {
			r.Steps[i].State = StepWaiting
		}
	}, rec); err != nil {
		return err
	}
	c.g.c.Trace(PointAnswered)
	if readBack {
		return nil
	}
	return c.end(i, res.ended(), res.summary())
}

// runMarks are the fields of a run that are never dropped.
func runMarks(r Request, res RunResult) map[string]string {
	marks := map[string]string{"way": clip(line(res.Way), 20)}
	if isTrue(r.Text("root")) {
		marks["root_on_host"] = "1"
	}
	return marks
}

func isTrue(text string) bool {
	return slices.Contains([]string{"1", "true", "yes", "on"}, strings.ToLower(text))
}

// lookRun finds out what became of a run that was started and whose end was not told. It starts nothing.
func (c *carrier) lookRun(ctx context.Context, i int, why string) error {
	r := c.record()
	s, st := r.Plan.Steps[i], r.Steps[i]
	req := *s.API
	if st.Resolved != nil {
		req = *st.Resolved
	}
	end := c.g.now().Add(runLimit(req))
	for try := 0; ; try++ {
		res, running, err := c.g.c.Runner.Look(ctx, s.Target, req, runID(r.Plan.ID, i+1), st.UPID)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && !running:
			return c.ran(i, req, res)
		case err != nil && try >= 3, c.g.now().After(end):
			seen := "it still runs"
			if err != nil {
				seen = err.Error()
			}
			return c.end(i, StepUnknown, "unknown whether it ran to its end: "+clip(why, 300)+orSeen(seen))
		}
		if err := pause(ctx, min(time.Duration(try+1)*c.g.c.PollFirst*4, 5*time.Second)); err != nil {
			return err
		}
	}
}

// told keeps the last of what runs print, for those who wait in this process.
func (g *Gate) told(run string, piece []byte) {
	text := strings.TrimSpace(Clean(string(piece)))
	if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		text = text[i+1:]
	}
	if text != "" {
		g.live.Store(run, clip(text, 200))
	}
}

// RunOutput is what one step of a plan that ran something gave.
type RunOutput struct {
	Step int `json:"step"`
	RunResult
}

// outputs are what the runs of a plan gave, and who may have written it.
func outputs(r *PlanRecord) (out []RunOutput, authors []string) {
	for i, s := range r.Plan.Steps {
		if i >= len(r.Steps) || s.API == nil || !s.API.IsRun() || len(r.Steps[i].Answer) == 0 {
			continue
		}
		o := RunOutput{Step: s.Number}
		if json.Unmarshal(r.Steps[i].Answer, &o.RunResult) == nil {
			if o.File != nil {
				o.File.Sealed = ""
				if s.API.Replaces() {
					o.File.Content, o.File.Content64 = "", ""
				}
			}
			o.shorten()
			out = append(out, o)
			authors = union(authors, []string{insideOf(*s.API)})
		}
	}
	return out, authors
}

// Bounds of what is shown of a guest's report, in bytes; the plan's record has all.
const (
	mostReport = 24 << 10
	mostSaid   = 16 << 10
)

// shorten leaves out of an answer what one guest could fill a reader's memory with.
func (o *RunOutput) shorten() {
	o.Said = middleCut(o.Said, mostSaid)
	if n := len(o.Report); n > mostReport {
		o.Report, o.Note = nil, strings.TrimPrefix(fmt.Sprintf("%s; the report of packages and services has %d bytes and is left out here: update_result, check_updates and check_services tell it", o.Note, n), "; ")
	}
}

// wash cleans what programs on the other side printed; it was bounded where it was read.
func (o *RunOutput) wash(w *washer) {
	for _, text := range []*string{&o.Stdout, &o.Stderr, &o.Said, &o.Note, &o.Signal, &o.User} {
		clean, n := clean(*text)
		*text = clean
		w.removed += n
	}
	if len(o.Report) > 0 {
		report, err := w.json(o.Report)
		if err != nil {
			report, o.Note = nil, strings.TrimPrefix(o.Note+"; its report cannot be read", "; ")
		}
		o.Report = report
	}
	if o.File != nil {
		clean, n := clean(o.File.Content)
		o.File.Content = clean
		w.removed += n
	}
}
