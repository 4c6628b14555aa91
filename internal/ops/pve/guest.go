package pve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// errTemplate is the cause of every refusal that is due to the guest being a template: batches skip those.
var errTemplate = errors.New("the guest is a template")

// site is what one call looks at.
type site struct {
	v   gate.View
	inv *estate.Inventory
}

func open(ctx context.Context, v gate.View, target string) (*site, error) {
	inv, err := estate.Load(ctx, v, target)
	if err != nil {
		return nil, err
	}
	return &site{v: v, inv: inv}, nil
}

func (s *site) target() string { return s.inv.Target.Name }

// rootUser says whether castellan itself is root@pam there; a token of root@pam is not.
func (s *site) rootUser() bool { return s.inv.Target.User == "root@pam" }

// read asks for a read and decodes its data into out.
func (s *site) read(ctx context.Context, out any, operation string, params map[string]string) (gate.Answer, error) {
	a, err := s.v.Read(ctx, s.target(), gate.Read{Operation: operation, Params: params})
	if err != nil {
		return a, err
	}
	if out != nil && len(a.Data) > 0 {
		if err := json.Unmarshal(a.Data, out); err != nil {
			return a, fmt.Errorf("read the answer of %s: %w", operation, err)
		}
	}
	return a, nil
}

// guest is one guest as a planner sees it.
type guest struct {
	estate.Guest
	site    *site
	config  estate.Config // pending values merged in
	current estate.Config // status/current
	managed bool          // by HA
	haState string
	awaited string // which task holds its lock now, where steps wait for it
}

// guest finds a guest and reads its settings and state.
func (s *site) guest(ctx context.Context, name string) (*guest, error) {
	found, err := s.inv.Guest(ctx, s.v, name)
	if err != nil {
		return nil, err
	}
	if found.NodeOff {
		return nil, gate.Fail(gate.ErrUnavailable, "Wait until the node is back; list_nodes shows it.",
			"%s is on node %s, which is not online: nothing is known of its state", found.Title(), found.Node)
	}
	g := &guest{Guest: found, site: s}
	if g.config, _, err = estate.ReadConfig(ctx, s.v, s.target(), found); err != nil {
		if estate.Gone(err) {
			return nil, gate.Fail(gate.ErrNotFound, "Call list_guests: it may have been moved or destroyed just now.", "%s is listed on %s but is not there", found.Title(), found.Node)
		}
		return nil, err
	}
	if g.Name == "" {
		g.Name = g.config["name"] + g.config["hostname"]
	}
	var data json.RawMessage
	if _, err = s.read(ctx, &data, g.at("GET", "/status/current"), g.params(nil)); err != nil {
		return nil, fmt.Errorf("read the state of %s: %w", g.Title(), err)
	}
	if g.current, err = estate.ParseConfig(data); err != nil {
		return nil, fmt.Errorf("read the state of %s: %w", g.Title(), err)
	}
	var ha struct {
		Managed estate.Bool `json:"managed"`
		State   estate.Text `json:"state"`
	}
	if json.Unmarshal([]byte(g.current["ha"]), &ha) == nil {
		g.managed, g.haState = bool(ha.Managed), string(ha.State)
	}
	g.Status, g.Template = g.current["status"], g.config["template"] == "1"
	g.Lock = g.current["lock"]
	if g.Lock == "" {
		g.Lock = g.config["lock"]
	}
	return g, nil
}

// at names the operation for this kind of guest: at("POST", "/status/start").
func (g *guest) at(method, suffix string) string {
	return method + " /nodes/{node}/" + g.Path() + "/{vmid}" + suffix
}

func (g *guest) params(more map[string]string) map[string]string {
	p := map[string]string{"node": g.Node, "vmid": g.ID}
	maps.Copy(p, more)
	return p
}

// fresh is a read for conditions: it follows the guest to where it is then.
func (g *guest) fresh(suffix string, more map[string]string) gate.Read {
	p := g.params(more)
	p["node"] = gate.NodeOf(g.ID)
	return gate.Read{Operation: g.at("GET", suffix), Params: p}
}

// request makes a write on this guest, sent to the node where it is then.
func (g *guest) request(method, suffix string, more map[string]any) (*gate.Request, error) {
	p := map[string]any{"node": gate.Ref{Guest: g.ID, Plan: g.Node}, "vmid": g.ID}
	maps.Copy(p, more)
	r, err := gate.NewRequest("pve", g.at(method, suffix), p)
	if err != nil {
		return nil, gate.Fail(gate.ErrInvalid, "Correct the arguments.", "%s: %v", g.Title(), err)
	}
	return &r, nil
}

// step makes a write with what it always relies on: that the guest is the same one and that no task holds it.
func (g *guest) step(ctx context.Context, method, suffix string, more map[string]any) (gate.Step, error) {
	r, err := g.request(method, suffix, more)
	if err != nil {
		return gate.Step{}, err
	}
	s := gate.Step{API: r}
	s.Require, _ = estate.Identify(ctx, g.site.v, g.site.target(), g.Guest, g.config)
	s.Require = append(s.Require, g.unlocked())
	return s, nil
}

func (g *guest) is(name, suffix, pointer, value string) gate.Condition {
	return gate.Condition{Name: name, Read: g.fresh(suffix, nil), Pointer: pointer, Rule: gate.RuleEquals, Value: text(value)}
}

func (g *guest) unlocked() gate.Condition {
	if g.Lock != "" { // planners let a locked guest pass only where its lock belongs to the action
		return g.is(g.short()+" still has lock "+g.Lock, "/status/current", "/lock", g.Lock)
	}
	name := g.short() + " is not locked"
	if g.awaited != "" {
		name += ": " + g.awaited
	}
	return gate.Condition{Name: name, Read: g.fresh("/status/current", nil), Pointer: "/lock", Rule: gate.RuleAbsent}
}

func (g *guest) inState(status string) gate.Condition {
	return g.is(g.short()+" is "+status, "/status/current", "/status", status)
}

// short is the kind and id, without a name that outsiders chose.
func (g *guest) short() string { return strings.ToUpper(g.Kind) + " " + g.ID }

func (g *guest) running() bool { return g.Status == "running" }

// paused: a VM whose processors stand still while it counts as running.
func (g *guest) paused() bool { return g.running() && g.current["qmpstatus"] == "paused" }

// notTemplate refuses what templates cannot do.
func (g *guest) notTemplate(what string) error {
	if !g.Template {
		return nil
	}
	e := gate.Fail(gate.ErrInvalid, "Make a guest of it with clone_guest and use that.", "%s is a template: it cannot be %s", g.Title(), what)
	e.Cause = errTemplate
	return e
}

// lockWait is how long steps wait for a guest that a task holds.
func lockWait(v gate.View) time.Duration {
	if p, ok := v.(gate.Patient); ok {
		return p.LockWait()
	}
	return 0
}

// notLocked refuses while a task holds the guest, and names the task. Where the settings let a step wait for it, what is
// planned relies on that task having ended.
func (g *guest) notLocked(ctx context.Context) error {
	if g.Lock == "" {
		return nil
	}
	holder, known := g.holder(ctx)
	if wait := lockWait(g.site.v); holder != nil && wait > 0 {
		g.awaited = fmt.Sprintf("task %s (%s) holds it now (%s) and is waited for, up to %s", holder.UPID, holder.Type, g.Lock, wait)
		g.Lock = ""
		return nil
	}
	switch {
	case holder != nil:
		return gate.Fail(gate.ErrUnavailable, "Wait for it with task_status and wait, then call again; policy.lock_wait lets castellan wait.",
			"%s is locked (%s) by task %s (%s, since %s)", g.Title(), g.Lock, holder.UPID, holder.Type, stamp(int64(holder.Start)))
	case known:
		return gate.Fail(gate.ErrUnavailable, "Look into list_tasks for the task that died. A left-over lock is taken off on the host, by root, after a look at what was left half done.",
			"%s is locked (%s), and no running task that would hold it can be seen", g.Title(), g.Lock)
	}
	return gate.Fail(gate.ErrUnavailable, "Wait for the task that holds it (list_tasks), then call again.",
		"%s is locked (%s); which task holds it cannot be seen", g.Title(), g.Lock)
}

// holder finds the running task that holds the guest's lock; known says whether tasks could be looked at.
func (g *guest) holder(ctx context.Context) (task *taskRow, known bool) {
	var rows []taskRow
	if _, err := g.site.read(ctx, &rows, "GET /nodes/{node}/tasks", map[string]string{"node": g.Node, "source": "active", "limit": "500"}); err != nil {
		return nil, false
	}
	for i, r := range rows {
		if r.ended() {
			continue
		}
		if string(r.ID) == g.ID || r.ID == "" && g.Lock == "backup" && r.Type == "vzdump" {
			return &rows[i], true
		}
	}
	return nil, true
}

// disks lists the volumes that the settings name, by key.
func (g *guest) disks() []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(g.config)) {
		if _, ok := diskKey(k); !ok || strings.Contains(g.config[k], "media=cdrom") {
			continue
		}
		volume, ok := gate.PropertyValue(g.config[k], "-")
		if !ok {
			volume, ok = gate.PropertyValue(g.config[k], "volume")
		}
		if ok && volume != "none" && strings.Contains(volume, ":") {
			out = append(out, volume)
		}
	}
	return out
}

// nameNote says when other guests could bear the same name unseen.
func (g *guest) nameNote(asked string) string {
	if asked == g.ID {
		return ""
	}
	if lost := g.site.inv.Nameless(); len(lost) > 0 {
		return fmt.Sprintf("The names of guests %s cannot be seen now; one could be called the same. ", strings.Join(lost[:min(len(lost), 10)], ", "))
	}
	return ""
}

// haNote says what HA changes about the action.
func (g *guest) haNote() string {
	if !g.managed {
		return ""
	}
	return fmt.Sprintf("HA manages this guest (state %s): the call asks HA, which acts within some 10 to 30 seconds. ", g.haState)
}

func text(s string) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		return json.RawMessage(`""`) // a text always has a JSON form
	}
	return b
}

func nothing(note string) *gate.Draft { return &gate.Draft{Note: note} }
