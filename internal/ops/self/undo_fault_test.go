package self

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"castellan/internal/gate"
	"castellan/internal/lab"
)

// TestUndoOnABadWire: what a step changed is never guessed. Each fault hits the change once.
func TestUndoOnABadWire(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	l := openWith(t, "small", "admin", func(p gate.Policy) gate.Policy { return lenient{p} })
	const path, read = "/nodes/*/qemu/103/config", "GET /nodes/pve1/qemu/103/config"
	try := func(description string) (*gate.Outcome, error) {
		return l.run("call_operation", text(map[string]any{"operation": "PUT /nodes/{node}/qemu/{vmid}/config", "params": map[string]any{"vmid": 103, "description": description}}))
	}
	undo := func(o *gate.Outcome, partial bool) (*gate.Outcome, error) {
		return l.run("undo", text(map[string]any{"plan": o.Receipt.Plan, "partial": partial}))
	}
	was := l.seen(read)
	sent := func() (n int) {
		for _, r := range l.lab.Requests() {
			if r.Method == "PUT" && strings.HasSuffix(r.Path, "/qemu/103/config") {
				n++
			}
		}
		return n
	}
	for _, kind := range []string{"before the effect", "after the effect", "cut"} {
		t.Run("the change is "+kind, func(t *testing.T) {
			l.t = t
			l.lab.SetFaults([]lab.Fault{{Kind: kind, Method: "PUT", Path: path, Count: 1}})
			out, err := try(kind)
			l.lab.SetFaults(nil)
			if err != nil || out.Receipt == nil {
				t.Fatalf("%v %s", err, text(out))
			}
			now := l.seen(read)
			back, err := undo(out, false)
			switch out.Status {
			case gate.StatusDone:
				if now == was || err != nil || back.Status != gate.StatusDone || l.seen(read) != was {
					t.Errorf("done, and undone by %v %.900s", err, text(back))
				}
			case gate.StatusUnknown:
				if err == nil || !strings.Contains(err.Error(), "unknown whether it was carried out") || l.seen(read) != now {
					t.Errorf("nobody knows, and undo says %v %.900s", err, text(back))
				}
			case gate.StatusFailed:
				if now != was {
					t.Errorf("called failed, and it changed something")
				}
			}
			if l.seen(read) != was {
				l.api("PUT /nodes/pve1/qemu/103/config", map[string]any{"delete": "description"})
			}
		})
	}
	for _, kind := range []string{"before the effect", "after the effect"} {
		t.Run("the undo is "+kind, func(t *testing.T) {
			l.t = t
			made, err := try("undo " + kind)
			if err != nil || made.Status != gate.StatusDone {
				t.Fatalf("%v %s", err, text(made))
			}
			l.lab.SetFaults([]lab.Fault{{Kind: kind, Method: "PUT", Path: path, Count: 1}})
			first, err := undo(made, false)
			l.lab.SetFaults(nil)
			if err != nil || (first.Status == gate.StatusDone) != (l.seen(read) == was) {
				t.Errorf("%v %.900s\n%s", err, text(first), l.seen(read))
			}
			if second, err := undo(made, false); err != nil || second.Status != gate.StatusDone && second.Status != gate.StatusNothing || l.seen(read) != was {
				t.Errorf("a second undo: %v %.900s", err, text(second))
			}
		})
	}
	t.Run("the reading before fails", func(t *testing.T) {
		l.t = t
		out, err := l.gate.Do(t.Context(), gate.Call{Operation: "call_operation", Args: []byte(`{"operation":"PUT /nodes/{node}/qemu/{vmid}/config","params":{"vmid":103,"description":"blind"}}`), Principal: l.who, PlanOnly: true}, nil)
		if err != nil || out.Plan == nil {
			t.Fatalf("%v %s", err, text(out))
		}
		n := sent()
		l.lab.SetFaults([]lab.Fault{{Kind: "status", Method: "GET", Path: path, Status: 500, Reason: "no"}})
		late, err := l.do("apply_plan", text(map[string]string{"plan": out.Plan.ID, "sentence": out.Plan.Sentence, "token": out.Plan.Token}))
		l.lab.SetFaults(nil)
		if err == nil && late.Status == gate.StatusDone || sent() != n || l.seen(read) != was {
			t.Errorf("sent without a look at what was there: %v %.900s", err, text(late))
		}
	})
	t.Run("the reading after fails", func(t *testing.T) {
		l.t = t
		// How many reads come before the change is counted first; those after it fail.
		reads := func() (n int) {
			for _, r := range l.lab.Requests() {
				if r.Method == "GET" && strings.HasSuffix(r.Path, "/qemu/103/config") {
					n++
				}
				if r.Method == "PUT" && strings.HasSuffix(r.Path, "/qemu/103/config") {
					return n
				}
			}
			return n
		}
		l.lab.ResetRequests()
		made, err := try("counted")
		if err != nil || made.Status != gate.StatusDone {
			t.Fatalf("%v %s", err, text(made))
		}
		n := reads()
		if out, err := undo(made, false); err != nil || out.Status != gate.StatusDone {
			t.Fatalf("%v %s", err, text(out))
		}
		l.lab.SetFaults([]lab.Fault{{Kind: "status", Method: "GET", Path: path, Skip: n, Status: 500, Reason: "no"}})
		out, err := try("unseen")
		l.lab.SetFaults(nil)
		if err != nil || out.Receipt == nil {
			t.Fatalf("%v %s", err, text(out))
		}
		now := l.seen(read)
		if now == was {
			t.Fatalf("nothing was changed: %.900s", text(out))
		}
		back, err := undo(out, false)
		if err == nil || l.seen(read) != now || !strings.Contains(err.Error(), "could not be read") && !strings.Contains(err.Error(), "unknown whether") {
			t.Errorf("undone without knowing what the plan left: %v %.900s", err, text(back))
		}
		l.api("PUT /nodes/pve1/qemu/103/config", map[string]any{"delete": "description"})
	})
}

// family is a kind of configuration: where it is read, how it is made, and a random change with a foreign one of the same key.
type family struct {
	read, path, key string
	fixed           map[string]any
	value           func(*rapid.T, string) any
}

func numbers(from, to int) func(*rapid.T, string) any {
	return func(t *rapid.T, name string) any { return rapid.IntRange(from, to).Draw(t, name) }
}

func words(t *rapid.T, name string) any {
	return rapid.StringMatching(`[a-z][a-z0-9 äß,;=:.-]{0,20}[a-z0-9]`).Draw(t, name)
}

// TestRandomUndo: whatever is changed, undone it is as it was; with somebody else's value in between it is refused by key and
// value, and nothing is touched.
func TestRandomUndo(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	l := openWith(t, "small", "admin", func(p gate.Policy) gate.Policy { return lenient{p} })
	l.api("POST /cluster/firewall/aliases", map[string]any{"name": "office", "cidr": "10.1.0.0/24", "comment": "c"})
	l.api("POST /cluster/backup", map[string]any{"id": "j1", "schedule": "02:00", "storage": "local", "vmid": "101", "comment": "c"})
	l.api("POST /pools", map[string]any{"poolid": "kept", "comment": "c"})
	l.api("POST /cluster/sdn/zones", map[string]any{"zone": "dmz", "type": "vlan", "bridge": "vmbr0", "mtu": 1400})
	l.api("POST /access/users", map[string]any{"userid": "kept@pve", "comment": "c"})
	l.api("POST /access/groups", map[string]any{"groupid": "g1", "comment": "c"})
	l.api("POST /cluster/ha/resources", map[string]any{"sid": "vm:103", "state": "stopped", "comment": "c"})
	families := []family{
		{"GET /nodes/pve1/qemu/103/config", "PUT /nodes/pve1/qemu/103/config", "cores", nil, numbers(1, 8)},
		{"GET /nodes/pve1/qemu/103/config", "PUT /nodes/pve1/qemu/103/config", "description", nil, words},
		{"GET /nodes/pve1/lxc/201/config", "PUT /nodes/pve1/lxc/201/config", "memory", nil, numbers(128, 2048)},
		{"GET /nodes/pve1/qemu/103/firewall/options", "PUT /nodes/pve1/qemu/103/firewall/options", "policy_in", nil, func(t *rapid.T, n string) any {
			return rapid.SampledFrom([]string{"ACCEPT", "DROP", "REJECT"}).Draw(t, n)
		}},
		{"GET /cluster/firewall/aliases", "PUT /cluster/firewall/aliases/office", "cidr", map[string]any{"comment": "c"}, func(t *rapid.T, n string) any { return fmt.Sprintf("10.%d.0.0/24", rapid.IntRange(2, 250).Draw(t, n)) }},
		{"GET /cluster/backup/j1", "PUT /cluster/backup/j1", "schedule", nil, func(t *rapid.T, n string) any { return fmt.Sprintf("%02d:%02d", rapid.IntRange(0, 23).Draw(t, n), 15) }},
		{"GET /pools", "PUT /pools", "comment", map[string]any{"poolid": "kept"}, words},
		{"GET /cluster/sdn/zones/dmz", "PUT /cluster/sdn/zones/dmz", "mtu", nil, numbers(1280, 1500)},
		{"GET /access/users/kept@pve", "PUT /access/users/kept@pve", "comment", nil, words},
		{"GET /access/groups", "PUT /access/groups/g1", "comment", nil, words},
		{"GET /cluster/ha/resources", "PUT /cluster/ha/resources/vm:103", "max_restart", nil, numbers(2, 9)},
		{"GET /storage/local", "PUT /storage/local", "content", nil, func(t *rapid.T, n string) any {
			return rapid.SampledFrom([]string{"iso", "backup,iso", "iso,vztmpl", "backup,snippets"}).Draw(t, n)
		}},
		{"GET /nodes/pve1/config", "PUT /nodes/pve1/config", "description", nil, words},
		{"GET /cluster/options", "PUT /cluster/options", "keyboard", nil, func(t *rapid.T, n string) any { return rapid.SampledFrom([]string{"fr", "de", "en-us"}).Draw(t, n) }},
	}
	deadline := time.Now().Add(40 * time.Second)
	rapid.Check(t, func(rt *rapid.T) {
		if time.Now().After(deadline) {
			return // bounded
		}
		f := rapid.SampledFrom(families).Draw(rt, "family")
		put := func(v any) *gate.Outcome {
			params := map[string]any{f.key: v}
			for k, x := range f.fixed {
				params[k] = x
			}
			out, err := l.run("call_operation", text(map[string]any{"operation": f.path, "params": params}))
			if err != nil {
				rt.Fatalf("%s %v: %v", f.path, params, err)
			}
			l.lab.Advance(15 * time.Second)
			return out
		}
		undo := func(o *gate.Outcome) (*gate.Outcome, error) {
			out, err := l.run("undo", text(map[string]any{"plan": o.Receipt.Plan}))
			l.lab.Advance(15 * time.Second)
			return out, err
		}
		was := l.seen(f.read)
		mine, theirs := f.value(rt, "value"), f.value(rt, "foreign value")
		made := put(mine)
		if made.Status == gate.StatusNothing {
			return
		}
		if made.Status != gate.StatusDone {
			rt.Fatalf("%s: %.600s", f.path, text(made))
		}
		changed := l.seen(f.read)
		if changed == was {
			return // it had that value
		}
		if rapid.Bool().Draw(rt, "foreign") && text(mine) != text(theirs) {
			other := put(theirs)
			found := l.seen(f.read)
			if other.Status != gate.StatusDone || found == changed || found == was { // no other value
				if found != was {
					_, _ = undo(made) // what is checked is the other way
				}
				return
			}
			out, err := undo(made)
			switch {
			case err == nil:
				rt.Fatalf("%s: undone over somebody else's value: %.600s", f.path, text(out))
			case !strings.Contains(err.Error(), f.key+" of ") || !strings.Contains(err.Error(), fmt.Sprintf("%q", fmt.Sprint(theirs))) && f.key != "content":
				rt.Fatalf("%s: the refusal names no key or value: %v", f.path, err)
			case l.seen(f.read) != found:
				rt.Fatalf("%s: refused, and changed", f.path)
			}
			if out, err := undo(other); err != nil || out.Status != gate.StatusDone {
				rt.Fatalf("%s: %v %.600s", f.path, err, text(out))
			}
			if l.seen(f.read) == was {
				return
			}
		}
		if out, err := undo(made); err != nil || out.Status != gate.StatusDone {
			rt.Fatalf("%s %v: %v %.600s", f.path, mine, err, text(out))
		}
		if d := cmp.Diff(was, l.seen(f.read)); d != "" {
			rt.Fatalf("%s %v: not as it was (-was +is):\n%s", f.path, mine, d)
		}
	})
}
