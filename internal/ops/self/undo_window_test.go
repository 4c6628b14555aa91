package self

import (
	"context"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"castellan/internal/gate"
)

// meddling does something after the n-th write that is sent from now on.
type meddling struct {
	gate.Driver
	left atomic.Int64
	then atomic.Pointer[func()]
}

func (m *meddling) Send(ctx context.Context, p *gate.Permit) (gate.Answer, error) {
	a, err := m.Driver.Send(ctx, p)
	if then := m.then.Load(); then != nil && m.left.Add(-1) == 0 {
		(*then)()
	}
	return a, err
}

// TestUndoMeetsOthers: between the planning of an undo and its steps, and between its steps, somebody else writes. What
// they set is never written over, the refusal names it, and what nobody touched is still taken back.
func TestUndoMeetsOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	const alias, rules, vm, ct = "/cluster/firewall/aliases/office", "/nodes/pve1/qemu/103/firewall/rules", "/nodes/pve1/qemu/103/config", "/nodes/pve1/lxc/201/config"
	type m = map[string]any
	for _, c := range []struct {
		name    string
		before  []change
		changes []change // one plan
		reads   []string
		after   int // steps of the undo that are sent before the others write; 0 = between plan and apply
		other   func(l *live)
		want    string // what the refusal names; "" = it is carried out
	}{
		{"another value of the key", nil, []change{{"PUT " + vm, m{"cores": 4}}}, []string{"GET " + vm}, 0,
			func(l *live) { l.other("PUT", vm, url.Values{"cores": {"6"}}) }, "cores"},
		{"the old value already", nil, []change{{"PUT " + vm, m{"cores": 4}}}, []string{"GET " + vm}, 0,
			func(l *live) { l.other("PUT", vm, url.Values{"cores": {"2"}}) }, "cores"},
		{"the key is deleted", nil, []change{{"PUT " + vm, m{"description": "x"}}}, []string{"GET " + vm}, 0,
			func(l *live) { l.other("PUT", vm, url.Values{"delete": {"description"}}) }, "description"},
		{"another key", nil, []change{{"PUT " + vm, m{"description": "x"}}}, nil, 0,
			func(l *live) { l.other("PUT", vm, url.Values{"onboot": {"1"}}) }, ""},
		{"the guest is another one", nil, []change{{"PUT " + vm, m{"description": "x"}}}, nil, 0,
			func(l *live) {
				l.other("DELETE", "/nodes/pve1/qemu/103", nil)
				l.other("POST", "/nodes/pve1/qemu", url.Values{"vmid": {"103"}, "name": {"old-app"}, "description": {"x"}})
			}, "103"},
		{"a rule is put before", []change{{"POST " + rules, m{"type": "in", "action": "DROP", "comment": "first"}}}, []change{{"PUT " + rules + "/0", m{"comment": "second"}}}, []string{"GET " + rules}, 0,
			func(l *live) { l.other("POST", rules, url.Values{"type": {"in"}, "action": {"ACCEPT"}}) }, "rule 0"},
		{"an alias points elsewhere", []change{{"POST /cluster/firewall/aliases", m{"name": "office", "cidr": "10.0.0.0/24"}}}, []change{{"PUT " + alias, m{"cidr": "10.1.0.0/24"}}}, []string{"GET " + alias}, 0,
			func(l *live) { l.other("PUT", alias, url.Values{"cidr": {"10.9.0.0/24"}}) }, "cidr"},
		{"what was made is used", nil, []change{{"POST /pools", m{"poolid": "made"}}}, []string{"GET /pools"}, 0,
			func(l *live) { l.other("PUT", "/pools", url.Values{"poolid": {"made"}, "vms": {"103"}}) }, "made"},
		{"a role is given on", []change{{"POST /access/users", m{"userid": "kept@pve"}}}, []change{{"PUT /access/acl", m{"path": "/vms/103", "users": "kept@pve", "roles": "PVEAuditor"}}}, []string{"GET /access/acl"}, 0,
			func(l *live) {
				l.other("PUT", "/access/acl", url.Values{"path": {"/vms/103"}, "users": {"kept@pve"}, "roles": {"PVEAuditor"}, "propagate": {"0"}})
			}, "propagate"},
		{"between the steps, the second one's", nil, []change{{"PUT " + vm, m{"description": "x"}}, {"PUT " + ct, m{"description": "y"}}}, []string{"GET " + vm}, 1,
			func(l *live) { l.other("PUT", vm, url.Values{"description": {"theirs"}}) }, "description"},
		{"between the steps, the first one's", nil, []change{{"PUT " + vm, m{"description": "x"}}, {"PUT " + ct, m{"description": "y"}}}, nil, 1,
			func(l *live) { l.other("PUT", ct, url.Values{"onboot": {"1"}}) }, ""},
		{"between the steps, the guest is gone", nil, []change{{"PUT " + vm, m{"description": "x"}}, {"PUT " + ct, m{"description": "y"}}}, nil, 1,
			func(l *live) { l.other("DELETE", "/nodes/pve1/qemu/103", nil) }, "103"},
	} {
		t.Run(c.name, func(t *testing.T) {
			between := &meddling{}
			l := openOn(t, "small", "admin", func(p gate.Policy) gate.Policy { return lenient{p} }, func(d gate.Driver) gate.Driver { between.Driver = d; return between })
			for _, b := range c.before {
				l.api(b.op, b.params)
			}
			calls := []m{}
			for _, x := range c.changes {
				calls = append(calls, m{"operation": "call_operation", "args": m{"operation": x.op, "params": x.params}})
			}
			made, err := l.run("plan_many", text(m{"calls": calls}))
			if err != nil || made.Status != gate.StatusDone {
				t.Fatalf("%v %s", err, text(made))
			}
			l.lab.Advance(15e9)
			planned, err := l.Plan(t.Context(), "undo", m{"plan": made.Receipt.Plan})
			if err != nil || planned.Plan == nil {
				t.Fatalf("%v %s", err, text(planned))
			}
			theirs := func() {
				c.other(l)
				l.lab.Advance(15e9)
			}
			if c.after == 0 {
				theirs()
			} else {
				between.left.Store(int64(c.after))
				between.then.Store(&theirs)
			}
			found := ""
			look := func() (s string) {
				for _, r := range c.reads {
					s += l.seen(r)
				}
				return s
			}
			if c.after == 0 {
				found = look()
			}
			l.lab.ResetRequests()
			out, err := l.Apply(t.Context(), planned.Plan)
			said := text(out)
			if err != nil {
				said = text(gate.AsError(err))
			}
			writes := len(l.Sent())
			if c.want == "" {
				if err != nil || out.Status != gate.StatusDone {
					t.Errorf("%s", said)
				}
				return
			}
			if err == nil && out.Status == gate.StatusDone || !strings.Contains(said, c.want) {
				t.Errorf("want a refusal that names %q: %.1500s", c.want, said)
			}
			if c.after == 0 && (writes != 0 || look() != found) {
				t.Errorf("refused, and %d requests were sent: %s", writes, look())
			}
			if c.after > 0 && len(c.reads) > 0 && !strings.Contains(look(), "theirs") {
				t.Errorf("what others set was written over: %s", look())
			}
			if c.after > 0 && out != nil && (out.Receipt == nil || out.Receipt.Steps[0].State != gate.StepDone) {
				t.Errorf("the receipt does not say what was done: %s", said)
			}
		})
	}
}
