package pve

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

type guestPowerIn struct {
	Guest   string `json:"guest" jsonschema:"id or unique name"`
	Action  string `json:"action" enum:"start,shutdown,stop,reboot,suspend,resume,reset"`
	Timeout int    `json:"timeout,omitempty" jsonschema:"seconds for shutdown and reboot, default 60"`
	Target  string `json:"target,omitempty"`
}

func guestPower() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "guest_power", Summary: "Change a guest's power state. Write; shutdown is graceful, stop cuts power; undo: the opposite action", Product: "pve", Effect: gate.EffectChange,
		Kinds:    []gate.Kind{gate.KindStart, gate.KindResume, gate.KindShutdown, gate.KindReboot, gate.KindSuspend, gate.KindStop},
		Undo:     "by the opposite action; what was only in the guest's memory is gone after stop and reset",
		Keywords: "boot power on off halt poweroff restart reset pause unpause wake turn kill virtual machine container vm ct lxc qemu",
		Toolset:  "standard", Bounded: true, Guest: "guest",
	}, planGuestPower)
}

func planGuestPower(ctx context.Context, v gate.View, in guestPowerIn) (*gate.Draft, error) {
	if in.Timeout < 0 || in.Timeout > 7200 {
		return nil, gate.Fail(gate.ErrInvalid, "Give 1 to 7200 seconds, or nothing for 60.", "timeout %d is out of range", in.Timeout)
	}
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	g, err := s.guest(ctx, in.Guest)
	if err != nil {
		return nil, err
	}
	if err := g.notTemplate("started, stopped or paused"); err != nil {
		return nil, err
	}
	p := &powerPlan{guest: g, action: in.Action, timeout: in.Timeout}
	if p.timeout == 0 {
		p.timeout = 60
	}
	if done, err := p.allowed(); err != nil || done != "" {
		return &gate.Draft{Note: done}, err
	}
	if !(g.Lock == "suspended" && (in.Action == "start" || in.Action == "resume")) {
		if err := g.notLocked(ctx); err != nil {
			return nil, err
		}
	}
	return p.draft(ctx, in.Guest)
}

type powerPlan struct {
	*guest
	action  string
	timeout int
}

// allowed says that there is nothing to do, or why it cannot be done in this state.
func (p *powerPlan) allowed() (done string, err error) {
	if p.Kind == estate.CT {
		switch p.action {
		case "reset", "suspend":
			return "", gate.Fail(gate.ErrInvalid, "Use reboot or stop for a container.", "%s is a container: only VMs can be %s", p.Title(), map[string]string{"reset": "reset", "suspend": "paused"}[p.action])
		case "resume":
			return "", gate.Fail(gate.ErrInvalid, "Use start if it is stopped.", "%s is a container: only VMs are paused and resumed", p.Title())
		}
	}
	switch p.action {
	case "start":
		if p.paused() {
			return "", gate.Fail(gate.ErrInvalid, "Use action resume.", "%s is paused, not stopped", p.Title())
		}
		if p.running() {
			return p.Title() + " is running already.", nil
		}
	case "resume":
		if p.running() && !p.paused() {
			return p.Title() + " is running already.", nil
		}
		if !p.running() && p.Lock != "suspended" {
			return "", gate.Fail(gate.ErrInvalid, "Use action start.", "%s is stopped, not paused", p.Title())
		}
	case "suspend":
		if p.paused() {
			return p.Title() + " is paused already.", nil
		}
		fallthrough
	case "reboot", "reset":
		if !p.running() {
			return "", gate.Fail(gate.ErrInvalid, "Use action start.", "%s is %s: there is nothing to %s", p.Title(), p.Status, p.action)
		}
	case "shutdown", "stop":
		if p.Status == "stopped" {
			return p.Title() + " is stopped already.", nil
		}
		if p.action == "shutdown" && p.paused() {
			return "", gate.Fail(gate.ErrInvalid, "Resume it first, or use stop.", "%s is paused and cannot hear a shutdown request", p.Title())
		}
	}
	if p.action == "reboot" && p.paused() {
		return "", gate.Fail(gate.ErrInvalid, "Resume it first, or use reset.", "%s is paused and cannot hear a reboot request", p.Title())
	}
	return "", nil
}

func (p *powerPlan) draft(ctx context.Context, asked string) (*gate.Draft, error) {
	params := map[string]any{}
	limit := 5 * time.Minute
	if p.action == "shutdown" || p.action == "reboot" {
		params["timeout"] = p.timeout
		limit += time.Duration(p.timeout) * time.Second
	}
	note := p.nameNote(asked) + p.haNote()
	if p.action == "stop" && p.shuttingDown(ctx) {
		params["overrule-shutdown"] = true
		note += "A shutdown of it is under way; stop overrules it. "
	}
	step, err := p.step(ctx, "POST", "/status/"+p.action, params)
	if err != nil {
		return nil, err
	}
	step.Wait = gate.Wait{Kind: gate.WaitTask, Limit: limit}
	step.Require = append(step.Require, p.inState(p.Status))
	if p.Kind == estate.VM && p.running() {
		step.Require = append(step.Require, p.is(p.short()+" is "+p.qmp(), "/status/current", "/qmpstatus", p.qmp()))
	}
	after := map[string]string{"start": "running", "resume": "running", "reboot": "running", "reset": "running", "suspend": "running", "shutdown": "stopped", "stop": "stopped"}[p.action]
	step.Verify = []gate.Condition{p.inState(after)}
	if p.action == "suspend" {
		step.Verify = append(step.Verify, p.is(p.short()+" is paused", "/status/current", "/qmpstatus", "paused"))
	}
	if p.managed && p.Status != after {
		step.Wait = gate.Wait{Kind: gate.WaitVerify, Limit: limit}
	}
	if p.action != "start" && p.action != "resume" && p.action != "suspend" {
		note += p.pendingNote(ctx)
	}
	if err := p.undo(&step); err != nil {
		return nil, err
	}
	return &gate.Draft{Target: p.site.target(), Steps: []gate.Step{step}, Note: strings.TrimSpace(note), Phrase: p.ID}, nil
}

func (p *powerPlan) qmp() string {
	if q := p.current["qmpstatus"]; q != "" {
		return q
	}
	return "running"
}

func (p *powerPlan) undo(s *gate.Step) (err error) {
	back := map[string]string{"start": "shutdown", "shutdown": "start", "stop": "start", "suspend": "resume", "resume": "suspend"}[p.action]
	if back == "" {
		s.Undo.None = "the guest runs again afterwards; what was only in its memory is gone"
		return nil
	}
	s.Undo.How = back + " it again"
	if p.action == "stop" {
		s.Undo.Lost = []string{"what was only in its memory, and what was not yet on its disks"}
	}
	s.Undo.Call, err = p.request("POST", "/status/"+back, nil)
	return err
}

// shuttingDown says whether a shutdown task of this guest runs now.
func (p *powerPlan) shuttingDown(ctx context.Context) bool {
	var rows []taskRow
	if _, err := p.site.read(ctx, &rows, "GET /nodes/{node}/tasks", map[string]string{"node": p.Node, "source": "active", "vmid": p.ID}); err != nil {
		return false
	}
	for _, r := range rows {
		if !r.ended() && (r.Type == "qmshutdown" || r.Type == "vzshutdown") {
			return true
		}
	}
	return false
}

// pendingNote names settings that wait for this stop: they come into force with it.
func (g *guest) pendingNote(ctx context.Context) string {
	rows, err := g.pending(ctx)
	if err != nil || len(rows) == 0 {
		return ""
	}
	var keys []string
	for _, r := range rows {
		keys = append(keys, string(r.Key))
	}
	return fmt.Sprintf("Pending settings come into force with it: %s. ", strings.Join(keys, ", "))
}

// pendingRow is one setting that is written but not in force.
type pendingRow struct {
	Key     estate.Text  `json:"key"`
	Value   *estate.Text `json:"value"`
	Pending *estate.Text `json:"pending"`
	Delete  estate.Int   `json:"delete"`
}

// pending lists the settings that wait for the next stop.
func (g *guest) pending(ctx context.Context) ([]pendingRow, error) {
	var data json.RawMessage
	if _, err := g.site.read(ctx, &data, g.at("GET", "/pending"), g.params(nil)); err != nil {
		return nil, fmt.Errorf("read the pending settings of %s: %w", g.Title(), err)
	}
	var rows, out []pendingRow
	if err := json.Unmarshal(data, &rows); err != nil {
		return nil, fmt.Errorf("read the pending settings of %s: %w", g.Title(), err)
	}
	for _, r := range rows {
		if r.Pending != nil || r.Delete != 0 {
			out = append(out, r)
		}
	}
	return out, nil
}
