package self

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ops/housetest"
)

// patient lets everything pass as lenient does, and steps wait so long for a lock.
type patient struct {
	lenient
	wait time.Duration
}

func (p patient) Limits() gate.Limits {
	l := p.lenient.Limits()
	l.LockWait = p.wait
	return l
}

func openPatient(t *testing.T, wait time.Duration) *live {
	t.Helper()
	return openHouse(t, housetest.Config{Delays: true, Rules: func(p gate.Policy) gate.Policy { return patient{lenient{p}, wait} }})
}

// TestLocksAtApply: between plan and apply somebody else's task takes the guest's lock. The step waits for that task as long
// as the settings let it, and is refused with the task's name after that; nothing is sent meanwhile.
func TestLocksAtApply(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for locks")
	}
	const backup = "/nodes/pve1/vzdump"
	for _, c := range []struct {
		name     string
		wait     time.Duration
		op, args string
		ends     bool // the other task ends while the step waits
		first    bool // the lock is there when the plan is made
		done     bool
		want     []string
	}{
		{"a curated operation waits", 20 * time.Second, "set_guest_config", `{"guest":"103","set":{"description":"x"}}`, true, false, true, nil},
		{"by the door", 20 * time.Second, "call_operation", `{"operation":"PUT /nodes/pve1/qemu/103/config","params":{"description":"x"}}`, true, false, true, nil},
		{"undo waits too", 20 * time.Second, "undo", ``, true, false, true, nil},
		{"it does not end in time", 3 * time.Second, "set_guest_config", `{"guest":"103","set":{"description":"x"}}`, false, false, false, []string{"VM 103 is not locked", "found: backup", "vzdump", "held by task UPID:pve1:", "task_status"}},
		{"the settings do not let it wait", 0, "set_guest_config", `{"guest":"103","set":{"description":"x"}}`, false, false, false, []string{"found: backup", "held by task UPID:pve1:", "lock_wait"}},
		{"undo, not in time", 3 * time.Second, "undo", ``, false, false, false, []string{"found: backup", "held by task UPID:pve1:"}},
		{"by the door, not in time", 3 * time.Second, "call_operation", `{"operation":"PUT /nodes/pve1/qemu/103/config","params":{"description":"x"}}`, false, false, false, []string{"found: backup", "held by task UPID:pve1:"}},
		{"planned while it is locked", 20 * time.Second, "set_guest_config", `{"guest":"103","set":{"description":"x"}}`, true, true, true, nil},
		{"planned by the door while it is locked", 20 * time.Second, "call_operation", `{"operation":"PUT /nodes/pve1/qemu/103/config","params":{"description":"x"}}`, true, true, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := openPatient(t, c.wait)
			if c.op == "undo" {
				made := l.api("PUT /nodes/pve1/qemu/103/config", map[string]any{"description": "x"})
				c.args = text(map[string]string{"plan": made.Receipt.Plan})
			}
			lock := func() {
				if _, err := l.Begin(t.Context(), "POST", backup, url.Values{"vmid": {"103"}, "storage": {"local"}, "bwlimit": {"1"}}); err != nil {
					t.Fatal(err)
				}
				for deadline := time.Now().Add(5 * time.Second); !strings.Contains(l.seen("GET /nodes/pve1/qemu/103/status/current"), `"lock": "backup"`); {
					if time.Now().After(deadline) {
						t.Fatal("the guest is not locked")
					}
				}
			}
			if c.first {
				lock()
			}
			planned, err := l.Plan(t.Context(), c.op, c.args)
			if err != nil || planned.Plan == nil {
				t.Fatalf("%v %s", err, text(planned))
			}
			if says := strings.Contains(text(planned), "is waited for, up to 20s"); says != c.first {
				t.Errorf("the plan says that it waits: %t. %s", says, text(planned.Plan.Steps))
			}
			if !c.first {
				lock()
			}
			l.lab.ResetRequests()
			began := time.Now()
			if c.ends {
				ended := time.AfterFunc(500*time.Millisecond, func() { l.lab.Drain() })
				defer ended.Stop()
			}
			out, err := l.Apply(t.Context(), planned.Plan)
			said := text(out)
			if err != nil {
				said = text(gate.AsError(err))
			}
			puts := 0
			for _, w := range l.Sent() {
				if strings.HasPrefix(w, "PUT ") {
					puts++
				}
			}
			if c.done {
				if err != nil || out.Status != gate.StatusDone || puts != 1 || time.Since(began) < 500*time.Millisecond {
					t.Errorf("after %s, %d sent: %s", time.Since(began), puts, said)
				}
				return
			}
			if puts != 0 || err == nil && out.Status == gate.StatusDone {
				t.Errorf("%d sent to a locked guest: %s", puts, said)
			}
			for _, want := range c.want {
				if !strings.Contains(said, want) {
					t.Errorf("it does not say %q: %s", want, said)
				}
			}
			if waited := time.Since(began); waited < c.wait || waited > c.wait+15*time.Second {
				t.Errorf("it waited %s, not %s", waited, c.wait)
			}
		})
	}
}

// TestLockedWithoutPatience: where steps do not wait, what a task holds is refused when it is planned, with the task.
func TestLockedWithoutPatience(t *testing.T) {
	l := openPatient(t, 0)
	for _, c := range [][2]string{
		{"guest_power", `{"guest":"105","action":"shutdown"}`},
		{"call_operation", `{"operation":"PUT /nodes/pve3/qemu/105/config","params":{"description":"x"}}`},
	} {
		_, err := l.Plan(t.Context(), c[0], c[1])
		if said := text(gate.AsError(err)); err == nil || !strings.Contains(said, "is locked (backup)") {
			t.Errorf("%v: %s", c, said)
		}
	}
}
