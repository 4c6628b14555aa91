package guest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"castellan/internal/channel"
	"castellan/internal/frame"
	"castellan/internal/gate"
	"castellan/internal/lane"
	"castellan/internal/proxmox"
)

// RunnerConfig is what a Runner is made from.
type RunnerConfig struct {
	Driver  gate.Driver
	Bridges *Bridges
	Agent   Agent // nil: VMs are not reached
	// Channels are the ways into the guests whose packages are looked after; nil: there are none.
	Channels *channel.Channels
	// Twins tells which guests share hardware addresses; nil: nobody looks.
	Twins Twins
	// Pace is the pause between two looks at what goes on in a guest, Settle how long services get before they are looked at once
	// more; zero: some seconds.
	Pace, Settle time.Duration
}

// Runner carries out runs that the gate permits. It implements gate.Runner.
type Runner struct {
	driver   gate.Driver
	bridges  *Bridges
	agent    Agent
	channels *channel.Channels
	twins    Twins
	pace     time.Duration
	settle   time.Duration
	checks   checks
	patience time.Duration // with a guest that does not answer, when an installation is looked for
}

var _ gate.Runner = (*Runner)(nil)

// NewRunner makes a Runner.
func NewRunner(c RunnerConfig) (*Runner, error) {
	if c.Driver == nil || c.Bridges == nil {
		return nil, errors.New("make runner: a driver and bridges are needed")
	}
	if c.Pace <= 0 {
		c.Pace = 2 * time.Second
	}
	if c.Settle <= 0 {
		c.Settle = 5 * time.Second
	}
	return &Runner{driver: c.Driver, bridges: c.Bridges, agent: c.Agent, channels: c.Channels, twins: c.Twins, pace: c.Pace, settle: c.Settle, patience: patience}, nil
}

// refused is an error of before anything was started.
func refused(kind gate.ErrorKind, hint, format string, args ...any) error {
	return &gate.UpstreamError{Kind: kind, Delivery: gate.NotCarriedOut, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// notBegun marks an error of something that only looked.
func notBegun(err error) error {
	var u *gate.UpstreamError
	if errors.As(err, &u) {
		e := *u
		e.Delivery = gate.NotCarriedOut
		return &e
	}
	return &gate.UpstreamError{Kind: gate.ErrUnavailable, Delivery: gate.NotCarriedOut, Message: err.Error(), Cause: err}
}

// Run carries out the one run of the permit.
func (r *Runner) Run(ctx context.Context, p *gate.Permit, id string, on gate.RunHooks) (gate.RunResult, error) {
	w, agent, err := r.take(p)
	if err != nil {
		return gate.RunResult{}, err
	}
	return r.carry(ctx, w, agent, id, on)
}

func (r *Runner) carry(ctx context.Context, w gate.Write, agent *proxmox.Agent, id string, on gate.RunHooks) (gate.RunResult, error) {
	o, err := openRun(w.Request, w.Open)
	if err != nil {
		return gate.RunResult{}, refused(gate.ErrInvalid, "", "%v", err)
	}
	if o.hostPackages() {
		return r.onHost(ctx, w.Target, o, id, on)
	}
	g, err := r.look(ctx, w.Target, o)
	if err != nil {
		return gate.RunResult{}, err
	}
	if o.ofPackages() {
		return r.packages(ctx, w.Target, agent, o, g, id, on)
	}
	if o.where == frame.VM {
		return r.runByAgent(ctx, agent, o, g, on)
	}
	return r.runByBridge(ctx, w.Target, o, g, id, on)
}

// take takes the permit, with the guest agent that it is good for.
func (r *Runner) take(p *gate.Permit) (gate.Write, *proxmox.Agent, error) {
	if r.agent == nil {
		w, err := p.Take()
		return w, nil, err
	}
	agent, err := r.agent.OpenAgent(p)
	if err != nil {
		return gate.Write{}, nil, err
	}
	return agent.Permitted(), agent, nil
}

// look reads what the guest is now; for a node there is nothing to read.
func (r *Runner) look(ctx context.Context, target string, o opened) (configured, error) {
	if o.where == frame.Host {
		return configured{}, nil
	}
	a, err := r.driver.Read(ctx, target, configRead(o))
	if err != nil {
		return configured{}, notBegun(fmt.Errorf("read the configuration of %s: %w", o, err))
	}
	g, err := readConfig(o.where, a.Data)
	if err != nil {
		return configured{}, notBegun(err)
	}
	if g.template {
		return configured{}, refused(gate.ErrInvalid, "Take a guest that runs.", "%s is a template: nothing runs in it", o)
	}
	return g, nil
}

// bridgeOf finds the bridge to a node, or says what a person has to set up.
func (r *Runner) bridgeOf(target string, o opened) (*bridge, error) {
	if b := r.bridges.of(target, o.node); b != nil {
		return b, nil
	}
	have := "none of its nodes has one"
	if nodes := r.bridges.nodes(target); len(nodes) > 0 {
		have = "there are bridges to " + strings.Join(nodes, ", ")
	}
	return nil, refused(gate.ErrUnavailable, fmt.Sprintf("A person runs castellan bridge install on node %s and adds a [[bridge]] with target = %q and node = %q to castellan's configuration.", o.node, target, o.node),
		"there is no way to %s: Proxmox has no API for commands in containers and on nodes: they take a bridge to node %s of target %s, and %s", o, o.node, target, have)
}

// runByBridge asks the bridge of the node, and looks what became of the run when the connection breaks.
func (r *Runner) runByBridge(ctx context.Context, target string, o opened, g configured, id string, on gate.RunHooks) (gate.RunResult, error) {
	b, err := r.bridgeOf(target, o)
	if err != nil {
		return gate.RunResult{}, err
	}
	a, accepted, err := r.compose(ctx, target, o, g, id)
	if err != nil {
		return gate.RunResult{}, err
	}
	if a.Run != nil {
		a.Run.Stream = a.Run.Stream && on.Live != nil
		if a.Run.Root {
			if a.Run.Secret, err = rootFor(b); err != nil {
				return gate.RunResult{}, err
			}
		}
	}
	if o.word == wordDeadMan && o.text("action") == "confirm" {
		b.renew() // that castellan still gets in is what is confirmed
	}
	t, err := b.do(ctx, a.Place.Site, a, on.Live)
	if err == nil {
		return r.told(b, a, t, accepted)
	}
	var cut *cutError
	if errors.As(err, &cut) && cut.before {
		return gate.RunResult{}, unreachable(b, err)
	}
	if ctx.Err() != nil || a.Verb != frame.Exec && a.Verb != frame.Manage {
		return gate.RunResult{}, lost(b, err)
	}
	return r.after(ctx, b, a, err, accepted)
}

// compose makes the ask, with the site that the target is and the guest's identity as it is now.
func (r *Runner) compose(ctx context.Context, target string, o opened, g configured, id string) (frame.Ask, func([]string, int) bool, error) {
	a, err := o.ask(id)
	if err != nil {
		return a, nil, refused(gate.ErrInvalid, "", "%v", err)
	}
	if a.Place.Site, err = r.driver.Identify(ctx, target); err != nil {
		return a, nil, notBegun(fmt.Errorf("identify the site of target %s: %w", target, err))
	}
	if a.Place.Site == "" {
		return a, nil, refused(gate.ErrUnavailable, "castellan's own user needs to see the nodes and the certificate of the cluster.", "which site target %s is cannot be told, so no bridge can be compared with it", target)
	}
	if o.where != frame.Host {
		if err := g.identify(&a.Place); err != nil {
			return a, nil, refused(gate.ErrInvalid, "Give the guest a network card, or read it again.", "%v", err)
		}
	}
	accepted := zero
	if o.word == wordProbe {
		p, ok := lane.Find(a.Run.Probe)
		if !ok {
			return a, nil, refused(gate.ErrInvalid, "", "there is no probe %q", bounded(a.Run.Probe, 60))
		}
		inv, err := p.Command(a.Run.Args)
		if err != nil {
			return a, nil, refused(gate.ErrInvalid, "", "%v", err)
		}
		accepted = answered(inv)
	}
	return a, accepted, nil
}

func rootFor(b *bridge) (string, error) {
	if b.set.RootSecretFile == "" {
		return "", refused(gate.ErrDenied, fmt.Sprintf("A person sets root_secret_file in the [[bridge]] of node %s to the file with the secret that castellan bridge secret printed on the node.", b.set.Node), "no secret for root on node %s is configured", b.set.Node)
	}
	s, err := b.rootSecret()
	if err != nil {
		return "", notBegun(err)
	}
	return s, nil
}

// unreachable says that no bridge was reached, so nothing was started.
func unreachable(b *bridge, err error) error {
	e := &gate.UpstreamError{Kind: gate.ErrUnavailable, Delivery: gate.NotCarriedOut, Cause: err, Message: fmt.Sprintf("the bridge of node %s cannot be reached: %s", b.set.Node, bounded(err.Error(), 600)),
		Hint: "Nothing was started. castellan bridge check on the node tells what is wrong there."}
	var key *hostKeyError
	var other *otherError
	switch {
	case errors.As(err, &key):
		e.Hint = fmt.Sprintf("Nothing was sent. If the node's key was changed on purpose, a person compares it on the node itself (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub) and corrects host_key in the [[bridge]] of node %s; otherwise somebody may stand in between.", b.set.Node)
	case errors.As(err, &other):
		e.Kind, e.Hint = gate.ErrDenied, "Nothing was started. "+other.hint
	case strings.Contains(err.Error(), "unable to authenticate"):
		e.Hint = fmt.Sprintf("Nothing was started. The node does not take castellan's key for this account: castellan bridge install on node %s puts it there; look at key_file and user too.", b.set.Node)
	}
	return e
}

func lost(b *bridge, err error) error {
	return &gate.UpstreamError{Kind: gate.ErrUnknownOutcome, Delivery: gate.MaybeDone, Message: fmt.Sprintf("the bridge of node %s did not tell the end: %s", b.set.Node, bounded(err.Error(), 400)), Cause: err,
		Hint: "It may have been carried out. Read back before anything is repeated."}
}

// told turns the last Tell of an ask into an answer.
func (r *Runner) told(b *bridge, a frame.Ask, t frame.Tell, accepted func([]string, int) bool) (gate.RunResult, error) {
	reason := bounded(t.Reason, 800)
	switch t.Ending {
	case frame.Refused:
		return gate.RunResult{}, &gate.UpstreamError{Kind: gate.ErrDenied, Delivery: gate.NotCarriedOut, Message: fmt.Sprintf("the bridge of node %s refuses it: %s", b.set.Node, reason), Hint: bounded(t.Hint, 600)}
	case frame.Failed:
		return gate.RunResult{}, &gate.UpstreamError{Kind: gate.ErrUnknownOutcome, Delivery: gate.MaybeDone, Message: fmt.Sprintf("the bridge of node %s began it, and something there failed: %s", b.set.Node, reason), Hint: bounded(t.Hint, 600)}
	case frame.Unknown:
		return gate.RunResult{}, &gate.UpstreamError{Kind: gate.ErrUnknownOutcome, Delivery: gate.MaybeDone, Message: fmt.Sprintf("the bridge of node %s does not know how it ended: %s", b.set.Node, reason)}
	}
	switch {
	case a.Run != nil && t.Result != nil:
		res := resultOf(t.Result, accepted)
		if a.Run.Lane == frame.Probe {
			if p, ok := lane.Find(a.Run.Probe); ok {
				if inv, err := p.Command(a.Run.Args); err == nil {
					res = whole(chosen(inv, t.Result.Argv), res)
				}
			}
		}
		return res, nil
	case a.File != nil && t.File != nil:
		return gate.RunResult{OK: true, Gone: true, Way: "bridge", File: fileOf(t.File)}, nil
	case a.Word != nil:
		return gate.RunResult{OK: true, Gone: true, Way: "bridge", Said: bounded(t.Text, 16<<10)}, nil
	}
	return gate.RunResult{}, &gate.UpstreamError{Kind: gate.ErrUnknownOutcome, Delivery: gate.MaybeDone, Message: fmt.Sprintf("the bridge of node %s says that it is done, and not how it ended", b.set.Node)}
}

const (
	lookFirst = 200 * time.Millisecond
	lookMost  = 3 * time.Second
)

// after looks what became of a run whose connection broke, as long as the context lasts: the bridge keeps results. That it
// knows of no such run is believed only for a run that was not told to have started, and then proves nothing: the ask may
// still be on its way.
func (r *Runner) after(ctx context.Context, b *bridge, a frame.Ask, why error, accepted func([]string, int) bool) (gate.RunResult, error) {
	pause, missed := lookFirst, 0
	for {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return gate.RunResult{}, lost(b, why)
		}
		pause = min(2*pause, lookMost)
		t, err := b.do(ctx, a.Place.Site, frame.Ask{V: frame.Version, ID: a.ID, Verb: frame.Look}, nil)
		switch {
		case err != nil:
			continue
		case t.Running:
			missed = 0
			continue
		case t.Ending == frame.Unknown && missed < 3:
			missed++
			continue
		case t.Ending == frame.Unknown:
			return gate.RunResult{}, lost(b, fmt.Errorf("%w; asked again, it says: %s", why, bounded(t.Reason, 300)))
		}
		res, err := r.told(b, a, t, accepted)
		if err == nil {
			res.Note = joined(res.Note, "the connection to the node broke while it ran; its result was fetched afterwards")
		}
		return res, err
	}
}

// Look finds out what became of a run.
func (r *Runner) Look(ctx context.Context, target string, req gate.Request, id, handle string) (gate.RunResult, bool, error) {
	o, err := openRun(req, func(v gate.Value) (string, error) { return lookValue(v) })
	if err != nil {
		return gate.RunResult{}, false, err
	}
	if o.ofPackages() {
		return r.lookPackages(ctx, target, o, id)
	}
	if o.where == frame.VM {
		return r.lookByAgent(ctx, target, o, handle)
	}
	b, err := r.bridgeOf(target, o)
	if err != nil {
		return gate.RunResult{}, false, err
	}
	site, err := r.driver.Identify(ctx, target)
	if err != nil {
		return gate.RunResult{}, false, err
	}
	if o.hostPackages() && o.word == wordUpgrade {
		h := host{runner: r, b: b, site: site, node: o.node, id: id}
		return h.lookUpgrade(ctx, o)
	}
	switch o.word {
	case wordWriteFile:
		return r.lookWritten(ctx, b, target, site, o, id)
	case wordReadFile, wordUpdates:
		return gate.RunResult{}, false, fmt.Errorf("look for %s: a bridge keeps no results of %s", id, o.word)
	}
	a, err := o.ask(id)
	if err != nil {
		return gate.RunResult{}, false, err
	}
	accepted := zero
	if o.word == wordProbe {
		if p, ok := lane.Find(a.Run.Probe); ok {
			if inv, err := p.Command(a.Run.Args); err == nil {
				accepted = answered(inv)
			}
		}
	}
	t, err := b.do(ctx, site, frame.Ask{V: frame.Version, ID: id, Verb: frame.Look}, nil)
	if err != nil {
		return gate.RunResult{}, false, fmt.Errorf("look for %s: %w", id, err)
	}
	if t.Running {
		return gate.RunResult{}, true, nil
	}
	res, err := r.told(b, a, t, accepted)
	return res, false, err
}

// lookValue gives what is known of a value without opening secrets: nothing of them is needed to look.
func lookValue(v gate.Value) (string, error) {
	switch {
	case v.Secret != nil:
		return v.Secret.Before + v.Secret.After, nil
	case v.Ref != nil:
		return v.Ref.Plan, nil
	}
	return v.Text, nil
}

// lookWritten reads back whether a write took place: the file then has the content that was to be written.
func (r *Runner) lookWritten(ctx context.Context, b *bridge, target, site string, o opened, id string) (gate.RunResult, bool, error) {
	f, err := o.file()
	if err != nil {
		return gate.RunResult{}, false, err
	}
	g, err := r.look(ctx, target, o)
	if err != nil {
		return gate.RunResult{}, false, err
	}
	place := frame.Place{Site: site, Node: o.node, Where: o.where, VMID: o.vmid}
	if err := g.identify(&place); err != nil {
		return gate.RunResult{}, false, err
	}
	t, err := b.do(ctx, site, frame.Ask{V: frame.Version, ID: shorter(id) + ".look", Verb: frame.Read, Place: place, File: &frame.File{Path: f.Path, Max: frame.MaxFile}}, nil)
	if err != nil {
		return gate.RunResult{}, false, fmt.Errorf("look for %s: %w", id, err)
	}
	sum := sha256.Sum256(f.Content)
	if t.File == nil || t.File.SHA256 != hex.EncodeToString(sum[:]) {
		return gate.RunResult{}, false, fmt.Errorf("look for %s: the file does not have what was to be written", id)
	}
	return gate.RunResult{OK: true, Gone: true, Way: "bridge", Note: "read back: the file has what was to be written; what was there before is not known"}, false, nil
}

// shorter leaves room in an id.
func shorter(id string) string { return id[:min(len(id), 50)] }
