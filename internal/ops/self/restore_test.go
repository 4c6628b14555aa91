package self

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/policy"
)

// ended runs a call to its good end and lets the site's clock go on.
func (l *live) ended(operation, args string) *gate.Outcome {
	l.t.Helper()
	out, err := l.run(operation, args)
	if err != nil || out.Status != gate.StatusDone {
		l.t.Fatalf("%s %s: %v %.1500s", operation, args, err, text(out))
	}
	l.lab.Advance(15 * time.Second)
	return out
}

// taken undoes a plan to its good end.
func (l *live) taken(made *gate.Outcome) *gate.Outcome {
	l.t.Helper()
	return l.ended("undo", text(map[string]any{"plan": made.Receipt.Plan}))
}

func (l *live) refused(operation, args, want string) {
	l.t.Helper()
	out, err := l.run(operation, args)
	if err == nil || !strings.Contains(err.Error(), want) {
		l.t.Errorf("%s %s: %v %.600s, want %q", operation, args, err, text(out), want)
	}
}

// volumes lists the archives of a guest, the newest first.
func (l *live) volumes(guest string) (out []string) {
	l.t.Helper()
	a, err := l.do("list_backups", text(map[string]any{"guest": guest, "limit": 50}))
	if err != nil {
		l.t.Fatal(err)
	}
	var got struct {
		Backups []struct {
			Volume string `json:"volid"`
		} `json:"backups"`
	}
	if err := json.Unmarshal(a.Answer, &got); err != nil {
		l.t.Fatal(err)
	}
	for _, b := range got.Backups {
		out = append(out, b.Volume)
	}
	return out
}

// TestRestore puts a backup beside its guest and over it, through the whole gate.
func TestRestore(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	l := openWith(t, "small", "admin", func(p gate.Policy) gate.Policy { return lenient{p} })
	for _, c := range []struct{ kind, guest, path, name string }{{"vm", "103", "qemu", "name"}, {"ct", "204", "lxc", "hostname"}} {
		t.Run(c.kind, func(t *testing.T) {
			l.t = t
			config := func(id string) map[string]any {
				for _, node := range []string{"pve1", "pve2", "pve3"} {
					out, err := l.do("call_operation", text(map[string]any{"operation": fmt.Sprintf("GET /nodes/%s/%s/%s/config", node, c.path, id)}))
					if err != nil {
						continue
					}
					var v struct {
						Data map[string]any `json:"data"`
					}
					if err := json.Unmarshal(out.Answer, &v); err != nil {
						t.Fatal(err)
					}
					if v.Data == nil {
						if err := json.Unmarshal(out.Answer, &v.Data); err != nil {
							t.Fatal(err)
						}
					}
					return v.Data
				}
				return nil
			}
			if config(c.guest) == nil {
				t.Fatalf("guest %s is not there", c.guest)
			}
			if st, err := l.do("guest_status", text(map[string]any{"guest": c.guest})); err != nil {
				t.Fatal(err)
			} else if !strings.Contains(string(st.Answer), `"status":"stopped"`) {
				l.ended("guest_power", text(map[string]any{"guest": c.guest, "action": "stop"}))
			}
			l.ended("set_guest_config", text(map[string]any{"guest": c.guest, "set": map[string]any{c.name: "saved", "description": "as saved"}}))
			l.ended("backup_guest", text(map[string]any{"guest": c.guest, "storage": "local"}))
			saved := l.volumes(c.guest)
			if len(saved) == 0 {
				t.Fatal("no archive")
			}
			id := "7" + c.guest
			// Beside it: another guest with other MAC addresses and what was saved; undone, it is gone and the old one is as it was.
			was := config(c.guest)
			l.refused("restore_guest", text(map[string]any{"backup": saved[0], "vmid": c.guest}), "the id "+c.guest+" is that of")
			made := l.ended("restore_guest", text(map[string]any{"backup": saved[0], "vmid": id, "storage": "local-lvm"}))
			fresh := config(id)
			if fresh == nil || fresh[c.name] != "saved" {
				t.Fatalf("restored is %v", fresh)
			}
			if was["net0"] != nil && fresh["net0"] == was["net0"] {
				t.Errorf("two guests have %v", fresh["net0"])
			}
			if made.Receipt.UndoWith == "" {
				t.Errorf("the receipt does not say how it is undone: %s", text(made.Receipt))
			}
			l.taken(made)
			if config(id) != nil {
				t.Errorf("guest %s is still there", id)
			}
			if d := cmp.Diff(was, config(c.guest)); d != "" {
				t.Errorf("the guest that was saved has changed (-was +is):\n%s", d)
			}
			// Used meanwhile, it is not taken away again.
			used := l.ended("restore_guest", text(map[string]any{"backup": saved[0], "vmid": id, "storage": "local-lvm"}))
			l.ended("set_guest_config", text(map[string]any{"guest": id, "set": map[string]any{"description": "mine"}}))
			l.refused("undo", text(map[string]any{"plan": used.Receipt.Plan}), "in use since it was made")
			// Over it: what came after the backup is lost, and nothing brings it back.
			l.ended("set_guest_config", text(map[string]any{"guest": c.guest, "set": map[string]any{c.name: "later", "description": "since"}}))
			l.ended("guest_power", text(map[string]any{"guest": c.guest, "action": "start"}))
			over := map[string]any{"backup": saved[0], "vmid": c.guest, "force": true}
			l.refused("restore_guest", text(over), "only a stopped guest is restored over")
			l.ended("guest_power", text(map[string]any{"guest": c.guest, "action": "stop"}))
			// Between plan and step somebody starts it: it is not sent.
			plan, err := l.do("restore_guest", text(over))
			if err != nil || plan.Status != gate.StatusWaiting && plan.Status != gate.StatusDone {
				t.Fatalf("%v %s", err, text(plan))
			}
			if plan.Status == gate.StatusWaiting {
				t.Fatalf("policy lets everything pass here: %s", text(plan))
			}
			l.lab.Advance(15 * time.Second)
			after := config(c.guest)
			if after[c.name] != "saved" || after["description"] == "since" {
				t.Errorf("restored over is %v", after)
			}
			if plan.Receipt.UndoWith != "" {
				t.Errorf("it is said to be undone by %q", plan.Receipt.UndoWith)
			}
			l.refused("undo", text(map[string]any{"plan": plan.Receipt.Plan}), "only another backup brings them back")
			l.ended("set_guest_config", text(map[string]any{"guest": c.guest, "set": map[string]any{"protection": 1}}))
			l.refused("restore_guest", text(over), "is protected")
		})
	}
}

// TestBackupJobs carries each operation on jobs out and takes it back: the jobs are as they were.
func TestBackupJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	l := openWith(t, "small", "admin", func(p gate.Policy) gate.Policy { return lenient{p} })
	jobs := func() string { return l.seen("GET /cluster/backup") }
	l.ended("create_backup_job", `{"id":"weekdays","schedule":"mon..fri 02:00","storage":"local","guests":["101","103"],"prune":"keep-weekly=2,keep-last=3","notes":"{{guestname}}","comment":"c","mode":"snapshot"}`)
	for _, c := range []struct{ op, args string }{
		{"create_backup_job", `{"schedule":"02:30","storage":"local","all":true,"exclude":["104"]}`},
		{"create_backup_job", `{"id":"other","schedule":"*/2:00","storage":"local","guests":["101"],"enabled":false,"repeat_missed":true}`},
		{"update_backup_job", `{"id":"weekdays","schedule":"03:00","enabled":false}`},
		{"update_backup_job", `{"id":"weekdays","all":true,"exclude":["103"],"prune":"keep-last=9"}`},
		{"update_backup_job", `{"id":"weekdays","unset":["comment","prune-backups","notes-template"],"node":"pve1"}`},
		{"delete_backup_job", `{"id":"weekdays"}`},
	} {
		was := jobs()
		made := l.ended(c.op, c.args)
		changed := jobs()
		if changed == was {
			t.Fatalf("%s %s changed nothing", c.op, c.args)
		}
		back := l.taken(made)
		if d := cmp.Diff(was, jobs()); d != "" {
			t.Fatalf("%s %s: not as it was (-was +is):\n%s", c.op, c.args, d)
		}
		again := l.taken(back)
		if d := cmp.Diff(changed, jobs()); d != "" {
			t.Fatalf("%s %s: the undo undone is not as changed (-changed +is):\n%s", c.op, c.args, d)
		}
		// Somebody else's change between is not undone.
		if c.op == "update_backup_job" {
			foreign := l.ended("call_operation", `{"operation":"PUT /cluster/backup/weekdays","params":{"schedule":"05:05","enabled":0,"node":"pve2","comment":"theirs","prune-backups":"keep-last=1"}}`)
			if out, err := l.run("undo", text(map[string]any{"plan": again.Receipt.Plan})); err == nil || !strings.Contains(err.Error(), "was changed since") {
				t.Errorf("%s: a foreign change is undone: %v %.600s", c.args, err, text(out))
			}
			l.taken(foreign)
		}
		l.taken(again)
		if d := cmp.Diff(was, jobs()); d != "" {
			t.Fatalf("%s %s: not as it was at last (-was +is):\n%s", c.op, c.args, d)
		}
	}
	had := map[string]int{"101": len(l.volumes("101")), "103": len(l.volumes("103"))}
	was := jobs()
	ran := l.ended("run_backup_job", `{"id":"weekdays"}`)
	if d := cmp.Diff(was, jobs()); d != "" {
		t.Errorf("the run changed the jobs: %s", d)
	}
	for id, n := range had {
		if len(l.volumes(id)) == n && len(l.volumes(id)) != 3 { // three are kept
			t.Errorf("guest %s has no new archive", id)
		}
	}
	l.refused("undo", text(map[string]any{"plan": ran.Receipt.Plan}), "removed for good")
	l.ended("update_backup_job", `{"id":"weekdays","prune":"keep-all=1"}`)
	keeps := l.ended("run_backup_job", `{"id":"weekdays"}`)
	l.refused("undo", text(map[string]any{"plan": keeps.Receipt.Plan}), "delete the archives that the task's log names")
}

// asked counts what a site is asked for.
type asked struct {
	gate.Backups
	times int
}

func (a *asked) Newest(ctx context.Context, v gate.View, target string, guests []string) map[string]time.Time {
	a.times++
	return a.Backups.Newest(ctx, v, target, guests)
}

// TestNoDestructionWithoutABackup: with policy.backup_before_destroy only a proven, young backup lets a guest go or be
// rolled back; without the setting nothing is read about backups.
func TestNoDestructionWithoutABackup(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	within := func(age string) func(gate.Policy) gate.Policy {
		return func(gate.Policy) gate.Policy {
			p, err := policy.New(policy.Config{Settings: policy.Settings{Capabilities: gate.Capabilities(), StandIn: "phrase", BackupBeforeDestroy: age}, Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
	}
	const wanted = "backup_before_destroy"
	l := openWith(t, "small", "admin", within("24h"))
	l.ended("snapshot_guest", `{"guest":"103","name":"s1"}`)
	l.ended("snapshot_guest", `{"guest":"101","name":"s1"}`)
	if l.backups.times != 0 {
		t.Errorf("backups were looked for before changes that destroy nothing, %d times", l.backups.times)
	}
	l.refused("rollback_snapshot", `{"guest":"103","name":"s1"}`, wanted)
	l.refused("delete_guest", `{"guest":"103","stop":true}`, wanted) // never backed up
	if l.backups.times == 0 {
		t.Error("nothing was asked")
	}
	// What cannot be read is no backup.
	l.lab.SetFaults([]lab.Fault{{Kind: "status", Method: "GET", Path: "/nodes/*/storage/*/content", Status: 500, Reason: "no"}})
	l.refused("rollback_snapshot", `{"guest":"101","name":"s1"}`, wanted)
	l.lab.SetFaults([]lab.Fault{{Kind: "status", Method: "GET", Path: "/nodes/*/tasks", Status: 500, Reason: "no"}}) // whose it is cannot be proven then
	l.refused("rollback_snapshot", `{"guest":"101","name":"s1"}`, wanted)
	l.lab.SetFaults(nil)
	l.ended("rollback_snapshot", `{"guest":"101","name":"s1"}`)
	// The backup is gone between plan and step: it is not sent.
	out, err := l.do("delete_guest", `{"guest":"101","stop":true,"purge":true}`)
	if err != nil || out.Status != gate.StatusWaiting {
		t.Fatalf("%v %s", err, text(out))
	}
	l.lab.SetFaults([]lab.Fault{{Kind: "status", Method: "GET", Path: "/nodes/*/storage/*/content", Status: 500, Reason: "no"}})
	late, err := l.do("apply_plan", text(map[string]string{"plan": out.Plan.ID, "sentence": out.Plan.Sentence, "token": out.Plan.Token, "phrase": out.Plan.Phrase}))
	if err == nil && late.Status == gate.StatusDone {
		t.Errorf("destroyed without a known backup: %s", text(late))
	}
	l.lab.SetFaults(nil)
	if _, err := l.do("guest_status", `{"guest":"101"}`); err != nil {
		t.Errorf("the guest is gone: %v", err)
	}

	l = openWith(t, "small", "admin", within("1m"))
	l.refused("delete_guest", `{"guest":"201","stop":true}`, wanted) // its newest is of the night: stale by this

	l = openWith(t, "small", "admin", within(""))
	l.ended("snapshot_guest", `{"guest":"103","name":"s1"}`)
	l.ended("rollback_snapshot", `{"guest":"103","name":"s1"}`)
	l.ended("delete_guest", `{"guest":"103","purge":true}`)
	if l.backups.times != 0 {
		t.Errorf("without the setting backups were looked for, %d times", l.backups.times)
	}
}
