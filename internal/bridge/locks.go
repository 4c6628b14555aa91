//go:build linux

package bridge

import (
	"fmt"
	"slices"

	"castellan/internal/frame"
	"castellan/internal/lane"
	"castellan/internal/regex"
)

var envName = &regex.Lazy{Expr: `^[A-Za-z_][A-Za-z0-9_]{0,127}$`}

// attempt is one way to carry out an ask: of a probe there may be several, for systems whose programs differ.
type attempt struct {
	argv  []string
	own   []string // of the environment: the bridge's
	asked []string // of the environment: what the ask brought
	input []byte
}

// action is what an ask has come to after the bridge's own locks.
type action struct {
	tries   []attempt
	files   []string                          // that a probe opens by name
	unfit   func(code int, printed bool) bool // of the first try: take the next
	script  string
	dir     string
	root    bool    // on the host, as root
	account account // on the host, otherwise
	user    string  // the name of who runs it on the host
}

// judge passes an ask through the bridge's own locks. A privileged container counts as the host: root in it is root here.
func (b *Bridge) judge(p frame.Place, g *guest, r *frame.Run) (action, error) {
	where := p.Where
	if g != nil && g.privileged {
		where = frame.Host
	}
	open, key := b.set.lanes(where)
	if !slices.Contains(open, string(r.Lane)) {
		what := fmt.Sprintf("the lane %.20q of %s is not open on this bridge", r.Lane, place(p))
		if where != p.Where {
			what = fmt.Sprintf("container %d is privileged, so the lanes of the host hold for it, and %.20q is not open on this bridge", p.VMID, r.Lane)
		}
		return action{}, refuse(b.set.hint(key, fmt.Sprintf("add %q", r.Lane)), "%s", what)
	}
	if (r.Root || r.Secret != "") && (p.Where != frame.Host || r.Lane != frame.Script) {
		return action{}, refuse("", "root and its secret are for scripts of the host")
	}
	var act action
	var err error
	switch r.Lane {
	case frame.Probe:
		act, err = b.probe(p, r)
	case frame.Command:
		act, err = b.command(p, r)
	case frame.Script:
		act, err = b.scripted(p, r)
	default:
		err = refuse("", "there is no lane %.20q", r.Lane)
	}
	if err != nil {
		return action{}, err
	}
	act.dir = r.Dir
	return act, b.who(p, r, &act)
}

// who says which account runs it on the host.
func (b *Bridge) who(p frame.Place, r *frame.Run, act *action) error {
	if p.Where != frame.Host {
		act.env(r.Env, "/root", "root", r.Lane == frame.Probe)
		return nil
	}
	if r.Root {
		if err := b.rootSecret(r.Secret); err != nil {
			return err
		}
		act.root = true
	}
	home := "/root"
	act.user = "root"
	if !act.root {
		var err error
		if act.account, err = b.hostAccount(); err != nil {
			return err
		}
		home, act.user = act.account.home, act.account.name
	}
	act.env(r.Env, home, act.user, r.Lane == frame.Probe)
	return nil
}

// env gives commands and scripts their environment; probes bring their own.
func (a *action) env(asked []string, home, user string, probe bool) {
	if probe {
		return
	}
	own := []string{"PATH=" + usualPath, "HOME=" + home, "USER=" + user, "LOGNAME=" + user, "SHELL=/bin/sh", "LANG=C.UTF-8", "TERM=dumb"}
	for n := range a.tries {
		a.tries[n].own, a.tries[n].asked = own, asked
	}
}

func place(p frame.Place) string {
	if p.Where == frame.Host {
		return "the host"
	}
	return "containers"
}

// nothingElse refuses parts of a run that its lane does not take.
func nothingElse(r *frame.Run, probe, argv, script bool) error {
	switch {
	case !probe && (r.Probe != "" || len(r.Args) > 0):
		return refuse("", "a %s brings no probe", r.Lane)
	case !argv && len(r.Argv) > 0:
		return refuse("", "a %s brings no argv", r.Lane)
	case !script && (r.Script != "" || r.Interpreter != ""):
		return refuse("", "a %s brings no script", r.Lane)
	}
	return nil
}

func (b *Bridge) probe(p frame.Place, r *frame.Run) (action, error) {
	if err := nothingElse(r, true, false, false); err != nil {
		return action{}, err
	}
	if len(r.Input) > 0 || len(r.Env) > 0 || r.Dir != "" {
		return action{}, refuse("", "a probe brings no input, environment or folder")
	}
	inv, v := b.lock.Probe(b.at(p), r.Probe, r.Args)
	if !v.Allowed {
		return action{}, refuse(v.Hint, "%s", v.Reason)
	}
	probe, _ := lane.Find(r.Probe) // the lock has found it
	act := action{unfit: inv.Unfit, root: p.Where == frame.Host && probe.Root}
	for _, i := range append([]lane.Invocation{inv}, inv.Alternatives...) {
		act.tries = append(act.tries, attempt{argv: i.Argv, own: i.Env, input: i.Input})
		act.files = append(act.files, i.Files...)
	}
	return act, nil
}

// at is the place as the locks name it.
func (b *Bridge) at(p frame.Place) lane.Place {
	return lane.Place{Where: lane.Where(p.Where), Node: p.Node, VMID: p.VMID}
}

func (b *Bridge) command(p frame.Place, r *frame.Run) (action, error) {
	if err := nothingElse(r, false, true, false); err != nil {
		return action{}, err
	}
	if v := b.lock.Command(b.at(p), lane.Command{Argv: r.Argv, Env: r.Env, Dir: r.Dir}); !v.Allowed {
		return action{}, refuse(v.Hint, "%s: %s", v.Rule, v.Reason)
	}
	return action{tries: []attempt{{argv: r.Argv, input: r.Input}}}, nil
}

func (b *Bridge) scripted(p frame.Place, r *frame.Run) (action, error) {
	if err := nothingElse(r, false, false, true); err != nil {
		return action{}, err
	}
	if v := b.lock.Script(b.at(p), lane.Script{Text: r.Script, Interpreter: r.Interpreter, Env: r.Env, Dir: r.Dir}); !v.Allowed {
		return action{}, refuse(v.Hint, "%s: %s", v.Rule, v.Reason)
	}
	return action{script: r.Script, tries: []attempt{{argv: []string{r.Interpreter}, input: r.Input}}}, nil
}
