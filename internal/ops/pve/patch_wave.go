package pve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

type patchWaveIn struct {
	Guests    []string `json:"guests,omitempty" jsonschema:"ids or unique names"`
	Pool      string   `json:"pool,omitempty" jsonschema:"or all of a pool"`
	Tag       string   `json:"tag,omitempty" jsonschema:"or all with a tag"`
	Mode      string   `json:"mode,omitempty" enum:"security,all" jsonschema:"security if absent"`
	Canary    []string `json:"canary,omitempty" jsonschema:"first, alone; if one fails nothing else begins"`
	Soak      int      `json:"soak_minutes,omitempty" jsonschema:"canaries are watched so long before the rest"`
	Batch     int      `json:"batch,omitempty" jsonschema:"guests at the same time, 3 if absent"`
	StopAfter *int     `json:"stop_after,omitempty" jsonschema:"failed guests after which none begins; 1 if absent, 0 = never"`
	Rollback  bool     `json:"rollback_if_worse,omitempty" jsonschema:"a guest whose check fails goes back to its snapshot"`
	Max       int      `json:"max_guests,omitempty" jsonschema:"50 if absent"`
	Target    string   `json:"target,omitempty"`
}

// Bounds of a wave, and how often a canary is looked at while it is watched.
const (
	mostWave, mostBatch, usualBatch = 50, 10, 3
	mostSoak                        = 24 * 60
	soakLooks                       = 3
	askedAtOnce                     = 24
	askedFor                        = 20 * time.Second // a guest, in the first round; those that take longer are asked once more
	waveAhead                       = time.Hour        // a guest whose backup is due within this time is left alone
)

func patchWave(roll Roll) *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "patch_wave", Summary: "Install updates in many guests: a trial first, then in batches, with a stop rule. Undo: rollback_guest of each", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindUpgrade, gate.KindUpgradeBare}, Undo: "rollback_guest of each guest, to the snapshot taken first",
		Keywords: "patch upgrade security updates fleet many all guests pool tag batch canary rolling staged wave", Toolset: "full",
	}, func(ctx context.Context, v gate.View, in patchWaveIn) (*gate.Draft, error) {
		return planPatchWave(ctx, v, in, roll)
	})
}

// waver is one guest that a wave asks about.
type waver struct {
	estate.Guest
	draft    *gate.Draft
	why      string // it is left out
	hint     string // what to do about it
	busy     bool   // for a backup: another time it may be taken
	stranger bool   // not enrolled: nothing is known of its updates
	current  bool   // it was asked, and has nothing to install
	canary   bool
	slow     bool     // it took all the time that it had in the first round
	todo     []string // its packages, each as the request has it
}

func planPatchWave(ctx context.Context, v gate.View, in patchWaveIn, roll Roll) (*gate.Draft, error) {
	stop := 1
	if in.StopAfter != nil {
		stop = *in.StopAfter
	}
	in.Batch, in.Max, in.Mode = cmp.Or(in.Batch, usualBatch), cmp.Or(in.Max, mostWave), cmp.Or(in.Mode, "security")
	switch {
	case in.Batch < 1 || in.Batch > mostBatch:
		return nil, gate.Fail(gate.ErrInvalid, fmt.Sprintf("Give 1 to %d.", mostBatch), "batch is %d", in.Batch)
	case in.Max < 1 || in.Max > mostWave:
		return nil, gate.Fail(gate.ErrInvalid, fmt.Sprintf("Give 1 to %d; more guests are several waves, one after the other.", mostWave), "max_guests is %d", in.Max)
	case in.Soak < 0 || in.Soak > mostSoak:
		return nil, gate.Fail(gate.ErrInvalid, fmt.Sprintf("Give 0 to %d.", mostSoak), "soak_minutes is %d", in.Soak)
	case in.Soak > 0 && len(in.Canary) == 0:
		return nil, gate.Fail(gate.ErrInvalid, "Name a canary, or leave soak_minutes out.", "there is no canary to watch")
	case stop < 0:
		return nil, gate.Fail(gate.ErrInvalid, "Give 0 or more.", "stop_after is %d", stop)
	}
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	chosen, err := s.wavers(ctx, in)
	if err != nil {
		return nil, err
	}
	draft := &gate.Draft{Target: s.target(), Parallel: in.Batch, StopAfter: stop}
	busy := s.backupsAhead(ctx, waveAhead+time.Duration(in.Soak)*time.Minute)
	for _, w := range chosen {
		w.leaveOut(busy)
	}
	known, err := s.enrolled(ctx, roll)
	if err != nil {
		return nil, err
	}
	ask(ctx, v, s.target(), in, chosen, known)
	var taken []*waver
	waits, current := 0, 0
	var strangers []string
	for _, w := range chosen {
		switch {
		case w.why == "" && len(taken) < in.Max:
			taken = append(taken, w)
			continue
		case w.why == "":
			w.why = fmt.Sprintf("a wave takes %d guests: ask for another one afterwards", in.Max)
		case w.canary:
			return nil, gate.Fail(gate.ErrUnavailable, "Name another canary, or leave it out.", "the canary %s cannot be taken: %s", w.Title(), w.why)
		}
		switch {
		case w.busy:
			waits++
		case w.current:
			current++
		case w.stranger:
			strangers = append(strangers, w.ID)
		}
		draft.Skip = append(draft.Skip, w.Title()+": "+w.why)
	}
	draft.Skip = append(draft.Skip, busy.unread...)
	if len(taken) == 0 {
		enrol := ""
		if len(strangers) > 0 {
			enrol = fmt.Sprintf(" A person enrols those that are not: castellan enrol %s.", strings.Join(strangers[:min(len(strangers), 10)], " "))
		}
		left := clip(strings.Join(draft.Skip, "; "), 600)
		if waits > 0 {
			return nil, gate.Fail(gate.ErrUnavailable, fmt.Sprintf("Call again when the backups are done: %s for them.", plural(waits, "guest waits", "guests wait"))+enrol, "no guest can be taken now: %s", left)
		}
		if len(strangers) > 0 && current == 0 { // to answer "nothing to do" would read as up to date
			return nil, gate.Fail(gate.ErrDenied, strings.TrimSpace(enrol), "no guest can be taken, and nothing is known of the updates of %d: %s", len(strangers), left)
		}
		draft.Parallel, draft.StopAfter = 0, 0
		return draft, nil
	}
	mates, note := s.mates(ctx, taken)
	batches := packed(taken, mates, in.Batch)
	for i, batch := range batches {
		for _, w := range batch {
			child := w.draft
			child.Target, child.Diff, child.Batch, child.Canary = cmp.Or(child.Target, s.target()), nil, i+1, w.canary
			for _, text := range child.Skip {
				draft.Skip = append(draft.Skip, w.Title()+": "+text)
			}
			child.Skip = nil
			if w.canary && in.Soak > 0 {
				soak(child, time.Duration(in.Soak)*time.Minute)
			}
			draft.Children = append(draft.Children, child)
		}
	}
	groups := grouped(taken)
	draft.Diff = differences(groups)
	draft.Phrase = fmt.Sprintf("%d guests", len(taken))
	draft.Note = waveNote(in, taken, groups, note)
	return draft, nil
}

// wavers are the guests that are asked for, the canaries first.
func (s *site) wavers(ctx context.Context, in patchWaveIn) (out []*waver, err error) {
	if len(in.Guests) == 0 && in.Pool == "" && in.Tag == "" {
		return nil, gate.Fail(gate.ErrInvalid, "Give guests, pool or tag.", "no guests are chosen")
	}
	if len(in.Guests)+len(in.Canary) > 500 {
		return nil, gate.Fail(gate.ErrInvalid, "Choose by pool or tag, or make several waves.", "%d guests are named", len(in.Guests))
	}
	at := map[string]*waver{}
	add := func(g estate.Guest) *waver {
		if at[g.ID] == nil {
			at[g.ID] = &waver{Guest: g}
			out = append(out, at[g.ID])
		}
		return at[g.ID]
	}
	for _, name := range in.Canary {
		g, err := s.inv.Guest(ctx, s.v, name)
		if err != nil {
			return nil, err
		}
		add(g).canary = true
	}
	for _, name := range in.Guests {
		g, err := s.inv.Guest(ctx, s.v, name)
		if err != nil {
			return nil, err
		}
		add(g)
	}
	if in.Pool != "" || in.Tag != "" {
		n := 0
		for _, g := range s.inv.Guests {
			if (listGuestsIn{Pool: in.Pool, Tag: in.Tag}).fits(g) && s.v.Sees(ctx, s.target(), gate.ObjectFacts{Object: gate.Object{Kind: gate.ObjectGuest, ID: g.ID}, Use: gate.UseNames, Name: g.Name, Tags: g.Tags, Pools: estate.Pools(g.Pool), Known: true}) {
				add(g)
				n++
			}
		}
		if n == 0 && len(in.Guests) == 0 {
			return nil, gate.Fail(gate.ErrNotFound, "list_guests shows pools and tags.", "no guest that can be seen has that pool or tag")
		}
	}
	return out, nil
}

// leaveOut says why a guest is not even asked.
func (w *waver) leaveOut(busy ahead) {
	switch why, is := busy.of(w.Guest); {
	case w.Template:
		w.why = "a template"
	case w.NodeOff:
		w.why = "its node " + w.Node + " is not online"
	case w.Status != "running":
		w.why = "it is " + cmp.Or(w.Status, "in an unknown state")
	case w.Lock == "backup", is:
		w.why, w.busy = cmp.Or(why, "a backup of it runs"), true
	case w.Lock != "":
		w.why = "it is locked (" + clip(w.Lock, 20) + ")"
	}
}

// ask has a child plan made for each guest, several at the same time: each asks its guest. The canaries come first, then those that
// answered last; nobody is waited for longer than askedFor while others have not had their turn. A guest goes on with what it was
// asked, so that a second round finds the answer of one that was only slow.
func ask(ctx context.Context, v gate.View, target string, in patchWaveIn, chosen []*waver, known map[int64]Enrolled) {
	turn := slices.Clone(chosen)
	slices.SortStableFunc(turn, func(a, b *waver) int {
		if a.canary != b.canary {
			return map[bool]int{true: -1, false: 1}[a.canary]
		}
		return known[b.Number].Answered.Compare(known[a.Number].Answered)
	})
	for round := range 2 {
		var group sync.WaitGroup
		slots := make(chan struct{}, askedAtOnce)
		for _, w := range turn {
			if round == 0 && w.why != "" || round == 1 && !w.slow {
				continue
			}
			slots <- struct{}{}
			group.Go(func() {
				defer func() { <-slots }()
				if round == 1 {
					w.why = ""
					w.ask(ctx, v, target, in)
					return
				}
				short, stop := context.WithTimeout(ctx, askedFor)
				defer stop()
				began := time.Now()
				w.ask(short, v, target, in)
				w.slow = w.why != "" && !w.current && !w.stranger && (short.Err() != nil || time.Since(began) > askedFor*2/3)
			})
		}
		group.Wait()
		if end, has := ctx.Deadline(); ctx.Err() != nil || has && time.Until(end) < askedFor/2 {
			return // there is no time for a second round
		}
	}
}

func (w *waver) ask(ctx context.Context, v gate.View, target string, in patchWaveIn) {
	if ctx.Err() != nil {
		w.why = "it was not asked in time: ask for it in a wave of its own"
		return
	}
	args := map[string]any{"guest": w.ID, "mode": in.Mode, "target": target}
	if in.Rollback {
		args["rollback_if_worse"] = true
	}
	text, err := json.Marshal(args)
	if err == nil {
		w.draft, err = v.Plan(ctx, "apply_updates", text)
	}
	var e *gate.Error
	switch {
	case errors.As(err, &e):
		w.why = clip(e.Message, 300)
		if enrolled, _ := unasked(err); !enrolled {
			w.why, w.stranger = "not enrolled", true
		}
	case err != nil && ctx.Err() != nil:
		w.why = "it did not answer in time: ask for it in a wave of its own"
	case err != nil:
		w.why = clip(err.Error(), 300)
	case len(allSteps(w.draft)) == 0:
		w.why, w.current = clip(cmp.Or(w.draft.Note, "nothing to do"), 300), true
	default:
		for _, s := range w.draft.Steps {
			if s.API != nil && s.API.IsRun() && strings.HasSuffix(s.API.Operation, "/upgrade") {
				for _, value := range s.API.Get("package") {
					w.todo = append(w.todo, value.Text)
				}
			}
		}
	}
}

// soak has the check of a canary repeated while time passes: each look that fails ends the canary, with the way back that the
// child plan has for its own.
func soak(d *gate.Draft, long time.Duration) {
	at := slices.IndexFunc(d.Steps, func(s gate.Step) bool { return s.API != nil && s.API.IsRun() && s.API.Text("word") == "verify" })
	if at < 0 {
		return
	}
	check := d.Steps[at]
	var back []gate.Step
	for _, s := range d.Steps[at+1:] {
		if s.When.StepFailed == at+1 || s.When.CheckFailed == at+1 {
			back = append(back, s)
		}
	}
	d.Steps[at].Wait = gate.Wait{Kind: gate.WaitSoak, Limit: long / soakLooks}
	for i := range soakLooks {
		again := check
		if i < soakLooks-1 {
			again.Wait = gate.Wait{Kind: gate.WaitSoak, Limit: long / soakLooks}
		}
		again.Note = strings.TrimSpace(again.Note + fmt.Sprintf(" look %d of %d while it is watched", i+2, soakLooks+1))
		d.Steps = append(d.Steps, again)
		n := len(d.Steps)
		for _, b := range back {
			if b.When.StepFailed > 0 {
				b.When.StepFailed = n
			} else {
				b.When.CheckFailed = n
			}
			d.Steps = append(d.Steps, b)
		}
	}
}

// alike are guests in which the same is done.
type alike struct {
	guests []*waver
	todo   []string
}

// grouped puts guests with the same transaction together, the largest group first.
func grouped(taken []*waver) (out []alike) {
	at := map[string]int{}
	for _, w := range taken {
		key := strings.Join(w.todo, "\n")
		if _, has := at[key]; !has {
			at[key] = len(out)
			out = append(out, alike{todo: w.todo})
		}
		g := &out[at[key]]
		g.guests = append(g.guests, w)
	}
	slices.SortStableFunc(out, func(a, b alike) int { return len(b.guests) - len(a.guests) })
	return out
}

func (a alike) who() string {
	var names []string
	for _, w := range a.guests {
		names = append(names, strings.TrimSpace(w.ID+" "+clip(w.Name, 40)))
	}
	if len(names) == 1 {
		return "guest " + names[0]
	}
	return fmt.Sprintf("%d guests: %s", len(names), strings.Join(names, ", "))
}

// mostShown bounds the packages that are told one by one: of a group, and in all.
const mostShown, mostShownInAll = 40, 300

// differences tell each package once for all guests of a group.
func differences(groups []alike) (out []gate.Difference) {
	for _, a := range groups {
		who := a.who()
		for i, text := range a.todo {
			if i == mostShown || len(out) >= mostShownInAll {
				out = append(out, gate.Difference{Object: who, Key: fmt.Sprintf("%d more packages", len(a.todo)-i), Note: "the steps name them"})
				break
			}
			out = append(out, packageLine(who, text))
		}
	}
	return out
}

// packageLine reads one package of a request: "upgrade name:arch old new archive".
func packageLine(who, text string) gate.Difference {
	f := strings.Fields(text)
	if len(f) != 5 {
		return gate.Difference{Object: who, Key: clip(text, 200)}
	}
	for i := range f {
		if f[i] == "-" {
			f[i] = ""
		}
	}
	d := gate.Difference{Object: who, Key: f[1], Old: f[2], New: f[3], Note: f[4]}
	if f[0] != "upgrade" {
		d.Note = strings.TrimSpace(map[string]string{"install": "comes anew", "remove": "is removed"}[f[0]] + " " + f[4])
	}
	return d
}

func waveNote(in patchWaveIn, taken []*waver, groups []alike, mates string) string {
	note := fmt.Sprintf("%d guests in mode %s, %d different transactions", len(taken), in.Mode, len(groups))
	if len(groups) > 0 && len(groups[0].guests) > 1 {
		note += fmt.Sprintf(" (the commonest in %d guests)", len(groups[0].guests))
	}
	note += ". "
	if in.Soak > 0 {
		note += fmt.Sprintf("The canaries are watched for %d minutes, and looked at %d times. ", in.Soak, soakLooks+1)
	}
	if in.Rollback {
		note += "A guest whose check fails goes back to its snapshot: ALL that was written in it since is lost then. " + failing + "No mandate covers that: a person approves this plan itself. "
	}
	return strings.TrimSpace(note + mates + " wave_result shows afterwards how each guest came out.")
}
