package guest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/channel"
	"castellan/internal/gate"
	"castellan/internal/helper"
	"castellan/internal/patch"
)

// before is what castellan knows of an installation when it begins, and has to know when it was ended meanwhile.
type before struct {
	Guest string      `json:"guest"` // whose channel it went over: another's report may name the run too
	Asked []string    `json:"asked,omitempty"`
	Newer bool        `json:"newer,omitempty"`
	House patch.House `json:"house"`
}

const (
	startLimit   = 2 * time.Minute
	installLimit = time.Hour
	followMost   = 3 * time.Second
	unknownMost  = 6 // times that a guest may say that it knows of no such installation
	patience     = 3 * time.Minute
)

// asked reads the transaction of a request.
func (o opened) asked() (t patch.Transaction, word patch.Word, err error) {
	if o.word == wordRepair { // it need not bring any package
		t, err = patch.ParseTransaction(o.values["package"])
		return t, patch.Repair, err
	}
	switch o.text("mode") {
	case "security":
		word = patch.UpgradeSecurity
	case "all":
		word = patch.UpgradeAll
	default:
		return nil, "", fmt.Errorf("read run: there is no mode %q", bounded(o.text("mode"), 20))
	}
	if t, err = patch.ParseTransaction(o.values["package"]); err == nil && len(t) == 0 {
		err = errors.New("read run: no package is named")
	}
	return t, word, err
}

// install starts an installation in the guest, which goes on by itself, and follows it to its end.
func (c *task) install(ctx context.Context) (gate.RunResult, error) {
	t, word, err := c.o.asked()
	if err != nil {
		return gate.RunResult{}, refused(gate.ErrInvalid, "", "%v", err)
	}
	limit, err := c.o.limit(installLimit)
	if err != nil {
		return gate.RunResult{}, refused(gate.ErrInvalid, "", "%v", err)
	}
	input, err := helper.Input(c.id, c.o.yes("newer"), c.g.cards, t)
	if err != nil {
		return gate.RunResult{}, refused(gate.ErrInvalid, "", "%v", err)
	}
	e, err := c.entry(ctx)
	if err != nil {
		return gate.RunResult{}, err
	}
	if err := c.surelyAlone(ctx); err != nil {
		return gate.RunResult{}, err
	}
	c.r.checks.forget(e.ID())
	house, err := c.house(ctx, e, nil)
	if err != nil {
		return gate.RunResult{}, c.told(e, fmt.Errorf("look at its services before: %w", err), false)
	}
	note := before{Guest: e.ID(), Asked: t.Texts(), Newer: c.o.yes("newer"), House: house}
	if err := c.r.channels.Note(ctx, c.id, note); err != nil {
		return gate.RunResult{}, notBegun(err)
	}
	if c.on.Handle != nil {
		c.on.Handle(c.id)
	}
	b, err := c.r.channels.Ask(ctx, e, word, input, startLimit)
	var cut *channel.CutError
	var slow *channel.SlowError
	var end *channel.EndError
	var much *channel.TooMuchError
	switch {
	case ctx.Err() != nil:
		return gate.RunResult{}, ctx.Err()
	case err == nil, errors.As(err, &end) && len(b) > 0:
		s, bad := patch.ParseStarted(b)
		switch {
		case bad != nil:
			return c.follow(ctx, e, note, limit, fmt.Errorf("read what it answers: %w", bad))
		case s.Refused != "":
			return notWell(patch.Outcome{ID: c.id, State: "refused", Stale: s.Refused, Asked: t}, "nothing was installed: "+bounded(s.Refused, 600))
		case s.ID != c.id:
			return c.follow(ctx, e, note, limit, fmt.Errorf("it says that it started %q", bounded(s.ID, 80)))
		}
		return c.follow(ctx, e, note, limit, nil)
	case errors.As(err, &cut) && cut.Started, errors.As(err, &slow), errors.As(err, &much), errors.As(err, &end):
		return c.follow(ctx, e, note, limit, err) // the word may have arrived
	}
	return gate.RunResult{}, c.told(e, err, false)
}

// house asks for the services and connects to the ports that are open to the network. Where ports of before are given, only
// those that were reached then are tried.
func (c *task) house(ctx context.Context, e *channel.Entry, was *patch.House) (patch.House, error) {
	var h patch.House
	if err := c.ask(ctx, e, patch.Services, lookLimit, func(b []byte) (err error) {
		if h, err = patch.ParseServices(b); err == nil {
			err = c.same(ctx, h.Cards, &h.Unread)
		}
		return err
	}); err != nil {
		return h, err
	}
	var ports []int
	if was == nil {
		for _, p := range h.Ports {
			if p.Proto == "tcp" && open(p.Address) {
				ports = append(ports, p.Port)
			}
		}
	} else {
		for _, p := range was.Ports {
			if p.Reached != nil {
				ports = append(ports, p.Port)
			}
		}
	}
	got, err := c.r.channels.Reach(ctx, e, ports)
	if err != nil {
		return h, err
	}
	for i, p := range h.Ports {
		if reached, tried := got[p.Port]; tried && p.Proto == "tcp" && open(p.Address) {
			h.Ports[i].Reached = &reached
		}
	}
	if was != nil { // what no longer listens is not in its report: castellan has tried it all the same
		for _, p := range was.Ports {
			reached, tried := got[p.Port]
			if tried && reached && p.Reached != nil && !slices.ContainsFunc(h.Ports, func(q patch.Port) bool { return q.Proto == p.Proto && q.Port == p.Port }) {
				p.Reached = &reached
				h.Ports = append(h.Ports, p)
			}
		}
	}
	return h, nil
}

// open says whether a port that listens there can be reached from outside.
func open(address string) bool {
	address, _, _ = strings.Cut(strings.Trim(address, "[]"), "%")
	return !strings.HasPrefix(address, "127.") && address != "::1" && !strings.HasPrefix(address, "::ffff:127.") && !strings.HasPrefix(address, "fe80:")
}

// unknownEnd is an installation whose end is not told.
func (c *task) unknownEnd(format string, args ...any) error {
	return &gate.UpstreamError{Kind: gate.ErrUnknownOutcome, Delivery: gate.MaybeDone, Message: fmt.Sprintf("%s: %s", c.o, fmt.Sprintf(format, args...)),
		Hint: "What was started goes on in the guest. update_result tells how it went, once the guest answers."}
}

// follow asks how an installation goes until it has ended. doubt says why it is not known whether it was started.
func (c *task) follow(ctx context.Context, e *channel.Entry, note before, limit time.Duration, doubt error) (gate.RunResult, error) {
	end := time.Now().Add(limit)
	pause, strange := c.r.pace/2, 0
	var last error
	printed := int64(0)
	for {
		var p patch.Ongoing
		err := c.ask(ctx, e, patch.Progress, askLimit, func(b []byte) (err error) {
			p, err = patch.ParseProgress(b)
			return err
		})
		switch {
		case ctx.Err() != nil:
			return gate.RunResult{}, ctx.Err()
		case err != nil && !passing(err):
			var u *gate.UpstreamError
			if strange++; errors.As(err, &u) || strange > unknownMost {
				return gate.RunResult{}, c.unknownEnd("it does not tell how the installation goes: %s", bounded(err.Error(), 400))
			}
			last = err
		case err != nil:
			last = err // it may be booting, or its sshd is restarted
		case p.ID != c.id:
			last = fmt.Errorf("it knows of no installation %s", c.id)
			if strange++; strange > unknownMost {
				if doubt != nil {
					return gate.RunResult{}, c.unknownEnd("%s; asked for it, %s", bounded(doubt.Error(), 400), last)
				}
				return gate.RunResult{}, c.unknownEnd("it was told to have started; %s", last)
			}
		case p.State == "running":
			last, strange = nil, 0
			c.live(p, &printed)
		default:
			c.live(p, &printed)
			res, err := c.ended(ctx, e, note)
			if err == nil {
				return res, nil
			}
			var twin *twinError
			if errors.As(err, &twin) { // it was started meanwhile
				return res, c.unknownEnd("the result does not count: %v", err)
			}
			if ctx.Err() != nil || !passing(err) {
				return res, err
			}
			last = err
		}
		if !time.Now().Add(pause).Before(end) {
			if last == nil {
				return gate.RunResult{}, c.unknownEnd("it still runs after %s", limit)
			}
			return gate.RunResult{}, c.unknownEnd("how it goes could not be told within %s: %s", limit, bounded(last.Error(), 300))
		}
		if err := wait(ctx, pause); err != nil {
			return gate.RunResult{}, err
		}
		pause = min(pause*3/2, followMost)
	}
}

// live tells what was printed since the last time, as far as it is shown.
func (c *task) live(p patch.Ongoing, printed *int64) {
	if c.on.Live == nil {
		return
	}
	text := strings.TrimRight(p.Log, "\n")
	if p.LogBytes <= *printed {
		text = ""
	} else if grown := p.LogBytes - *printed; grown < int64(len(text)) {
		text = text[len(text)-int(grown):]
		if i := strings.IndexByte(text, '\n'); i >= 0 {
			text = text[i+1:]
		}
	}
	*printed = max(*printed, p.LogBytes)
	if text == "" && p.Note != "" {
		text = p.Note
	}
	if text = strings.ToValidUTF8(text, ""); text != "" {
		c.on.Live([]byte(text + "\n"))
	}
}

// outcome asks how the last installation went, and holds it against what castellan asked for.
func (c *task) outcome(ctx context.Context, e *channel.Entry, limit time.Duration) (o patch.Outcome, note before, known bool, err error) {
	var unread []string
	if err := c.ask(ctx, e, patch.Result, limit, func(b []byte) (err error) {
		o, err = patch.ParseResult(b)
		if err == nil {
			err = c.same(ctx, o.Cards, &unread)
		}
		return err
	}); err != nil {
		return patch.Outcome{}, before{}, false, err
	}
	defer func() {
		o.Services.Unread = append(o.Services.Unread, unread...)
	}()
	if o.ID != "" {
		if known, err = c.r.channels.Noted(ctx, o.ID, &note); err != nil {
			return o, note, false, err
		}
	}
	if !known || note.Guest != e.ID() { // of another guest it says nothing about this one
		return o, before{}, false, nil
	}
	t, err := patch.ParseTransaction(note.Asked)
	if err != nil {
		return o, note, false, err
	}
	if o.State == "ended" || o.State == "lost" {
		o.Against(t, note.Newer)
	}
	house := note.House
	o.Before = &house
	if o.After != nil {
		o.Services = patch.Compare(*o.Before, *o.After)
	}
	return o, note, true, nil
}

// ended makes the answer of an installation that is no longer under way.
func (c *task) ended(ctx context.Context, e *channel.Entry, _ before) (gate.RunResult, error) {
	o, _, _, err := c.outcome(ctx, e, lookLimit)
	if err != nil {
		return gate.RunResult{}, err
	}
	if o.ID != c.id {
		return gate.RunResult{}, c.unknownEnd("its result is of another installation (%s)", bounded(o.ID, 80))
	}
	switch o.State {
	case "ended":
		said := fmt.Sprintf("it ran to its end: %d of %d changes done", len(o.Asked)-len(o.Missing), len(o.Asked))
		if c.o.word == wordRepair {
			said = "the repair ran to its end"
		}
		if n := len(o.Beyond); n > 0 {
			said += fmt.Sprintf(", %d that were not asked for", n)
		}
		if !o.Packages.Clean {
			said += "; the package database is not clean"
		}
		return answer(o, said)
	case "refused":
		return notWell(o, "nothing was installed: "+bounded(o.Stale+" "+o.Note, 600))
	case "lost":
		res, err := answer(o, "it was started, and its end is not known: the guest was restarted, or it was ended from outside; the packages are as the report shows")
		res.OK = false // and no exit code: the step's end is unknown
		return res, err
	}
	return gate.RunResult{}, c.unknownEnd("it says of the installation that it is %q", bounded(o.State, 20))
}

// lookInstall finds out what became of an installation, for as long as the guest may be booting.
func (c *task) lookInstall(ctx context.Context) (gate.RunResult, bool, error) {
	e, err := c.entry(ctx)
	if err != nil {
		return gate.RunResult{}, false, err
	}
	for end := time.Now().Add(c.r.patience); ; {
		var p patch.Ongoing
		err := c.ask(ctx, e, patch.Progress, askLimit, func(b []byte) (err error) {
			p, err = patch.ParseProgress(b)
			return err
		})
		var res gate.RunResult
		switch {
		case err == nil && p.ID != c.id:
			return gate.RunResult{}, false, fmt.Errorf("look for %s: the guest knows of no such installation", c.id)
		case err == nil && p.State == "running":
			return gate.RunResult{}, true, nil
		case err == nil:
			if res, err = c.ended(ctx, e, before{}); err == nil {
				res.Note = joined(res.Note, "its end was read afterwards")
				return res, false, nil
			}
		}
		if ctx.Err() != nil || !passing(err) || time.Now().After(end) {
			return gate.RunResult{}, false, err
		}
		if err := wait(ctx, c.r.pace); err != nil {
			return gate.RunResult{}, false, err
		}
	}
}
