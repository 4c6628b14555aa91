package self

import (
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
)

// pointing allows every plan and wants a snapshot before settings of a guest are changed.
type pointing struct{ lenient }

func (p pointing) Limits() gate.Limits {
	l := p.lenient.Limits()
	l.UndoPoints = []gate.Kind{gate.KindConfig, gate.KindRollback}
	return l
}

func TestUndoPoints(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	l := openWith(t, "small", "admin", func(p gate.Policy) gate.Policy { return pointing{lenient{p}} })
	set := l.api("PUT /nodes/pve1/qemu/101/config", map[string]any{"description": "x"})
	if len(set.Receipt.UndoPoints) != 1 || len(set.Receipt.Steps) != 2 || set.Receipt.Steps[0].State != gate.StepDone {
		t.Fatalf("no snapshot first: %s", text(set))
	}
	list, err := l.do("list_snapshots", `{"guest":"101"}`)
	if err != nil || !strings.Contains(string(list.Answer), gate.UndoPointPrefix) {
		t.Fatalf("no undo point on the site: %v %s", err, text(list))
	}
	// An undo sets the settings back and leaves the snapshot: it is a way back.
	if out, err := l.run("undo", text(map[string]any{"plan": set.Receipt.Plan})); err != nil || out.Status != gate.StatusDone {
		t.Fatalf("undo: %v %s", err, text(out))
	}
	// Where none can be taken the change is refused.
	_, err = l.run("set_guest_config", `{"guest":"media","set":{"description":"x"}}`)
	if err == nil || !strings.Contains(err.Error(), "no undo point") {
		t.Errorf("a guest that cannot be snapshotted was to be changed: %v", err)
	}
	_, err = l.run("with_snapshot", `{"guest":"101","operation":"guest_power","params":{"guest":"103","action":"start"}}`)
	if err == nil || !strings.Contains(err.Error(), "no way back") {
		t.Errorf("a snapshot of another guest: %v", err)
	}
	l.lab.Advance(30 * 24 * time.Hour)
	for _, c := range []struct{ args, want string }{{`{"guest":"101","keep":1}`, gate.UndoPointPrefix}, {`{"guest":"101","keep":9}`, ""}, {`{"guest":"db","keep":0}`, ""}} {
		out, err := l.do("prune_snapshots", c.args)
		if err != nil || c.want == "" && out.Status != gate.StatusNothing {
			t.Errorf("prune %s: %v %s", c.args, err, text(out))
		}
	}
}

// TestForeignChange: what somebody else has changed since is not undone, and used things are not deleted.
func TestForeignChange(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	l := openWith(t, "small", "admin", func(p gate.Policy) gate.Policy { return lenient{p} })
	m := func(kv ...any) map[string]any {
		out := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			out[kv[i].(string)] = kv[i+1]
		}
		return out
	}
	for _, c := range []struct {
		name            string
		change, foreign change
		want            string
	}{
		{"settings", change{"PUT /nodes/pve1/qemu/101/config", m("description", "one", "cores", 4)}, change{"PUT /nodes/pve1/qemu/101/config", m("description", "two")}, `the plan left "one", found is "two"`},
		{"rule", change{"POST /cluster/firewall/rules", m("type", "in", "action", "DROP", "comment", "mine")}, change{"PUT /cluster/firewall/rules/0", m("comment", "theirs")}, "were changed since"},
		{"pool in use", change{"POST /pools", m("poolid", "made")}, change{"PUT /pools", m("poolid", "made", "vms", "104", "allow-move", 1)}, "in use since it was made"},
		{"user in use", change{"POST /access/users", m("userid", "u1@pve")}, change{"PUT /access/acl", m("path", "/vms/101", "users", "u1@pve", "roles", "PVEAuditor")}, "an ACL entry of u1@pve"},
		{"zone in use", change{"POST /cluster/sdn/zones", m("zone", "z1", "type", "simple")}, change{"POST /cluster/sdn/vnets", m("vnet", "v1", "zone", "z1")}, "a vnet"},
		{"bridge in use", change{"POST /nodes/pve1/network", m("iface", "vmbr9", "type", "bridge", "autostart", 1)}, change{"PUT /nodes/pve1/qemu/101/config", m("net3", "virtio,bridge=vmbr9")}, "a network card of"},
		{"storage in use", change{"POST /storage", m("storage", "extra", "type", "dir", "path", "/srv/extra", "content", "iso,backup,images")}, change{"POST /cluster/backup", m("id", "j9", "storage", "extra", "schedule", "02:00", "vmid", "101")}, "a backup job"},
		{"alias in use", change{"POST /cluster/firewall/aliases", m("name", "office", "cidr", "10.1.0.0/24")}, change{"POST /cluster/firewall/rules", m("type", "in", "action", "ACCEPT", "source", "dc/office")}, "a firewall rule"},
		{"acl", change{"PUT /access/acl", m("path", "/vms/103", "users", "u2@pve", "roles", "PVEAuditor", "propagate", 0)}, change{"PUT /access/acl", m("path", "/vms/103", "users", "u2@pve", "roles", "PVEAuditor", "propagate", 1)}, "was changed since"},
		{"alias renamed", change{"PUT /cluster/firewall/aliases/first", m("rename", "second", "cidr", "10.7.0.0/24")}, change{"PUT /cluster/firewall/aliases/second", m("cidr", "10.8.0.0/24")}, `the plan left "10.7.0.0/24", found is "10.8.0.0/24"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.t = t
			if c.name == "acl" {
				l.api("POST /access/users", m("userid", "u2@pve"))
			}
			if c.name == "alias renamed" {
				l.api("POST /cluster/firewall/aliases", m("name", "first", "cidr", "10.7.0.0/24"))
			}
			made := l.api(c.change.op, c.change.params)
			other := l.api(c.foreign.op, c.foreign.params)
			_, err := l.run("undo", text(m("plan", made.Receipt.Plan)))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			if strings.Contains(c.want, "left") && !strings.Contains(err.Error(), other.Receipt.Plan) {
				t.Errorf("the refusal does not say who changed it: %v", err)
			}
			// With the foreign change taken back, the undo goes through.
			for _, plan := range []string{other.Receipt.Plan, made.Receipt.Plan} {
				l.lab.Advance(15 * time.Second)
				if out, err := l.run("undo", text(m("plan", plan))); err != nil || out.Status != gate.StatusDone {
					t.Fatalf("undo %s: %v %.900s", plan, err, text(out))
				}
			}
		})
	}
}

// TestUndoOfGuests: a guest that a plan made is deleted while nobody has used it, power goes the other way.
func TestUndoOfGuests(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	l := openWith(t, "small", "admin", func(p gate.Policy) gate.Policy { return lenient{p} })
	do := func(op, args string) *gate.Outcome {
		t.Helper()
		out, err := l.run(op, args)
		if err != nil || out.Status != gate.StatusDone {
			t.Fatalf("%s %s: %v %.900s", op, args, err, text(out))
		}
		l.lab.Advance(15 * time.Second)
		return out
	}
	undo := func(o *gate.Outcome) string { return text(map[string]any{"plan": o.Receipt.Plan}) }
	made := do("create_guest", `{"kind":"vm","node":"pve1","name":"fresh","storage":"local-lvm","disk":"8G","set":{"memory":1024},"vmid":600}`)
	do("undo", undo(made))
	if _, err := l.do("guest_status", `{"guest":"600"}`); err == nil {
		t.Error("guest 600 is still there")
	}
	used := do("create_guest", `{"kind":"vm","node":"pve1","name":"fresh","storage":"local-lvm","disk":"8G","set":{"memory":1024},"vmid":601}`)
	do("guest_power", `{"guest":"601","action":"start"}`)
	do("guest_power", `{"guest":"601","action":"stop"}`)
	if _, err := l.run("undo", undo(used)); err == nil || !strings.Contains(err.Error(), "in use since it was made") {
		t.Errorf("a guest that was started is deleted: %v", err)
	}
	changed := do("create_guest", `{"kind":"vm","node":"pve1","name":"fresh2","storage":"local-lvm","disk":"8G","set":{"memory":1024},"vmid":602}`)
	do("set_guest_config", `{"guest":"602","set":{"description":"mine"}}`)
	if _, err := l.run("undo", undo(changed)); err == nil || !strings.Contains(err.Error(), "in use since it was made") {
		t.Errorf("a guest that was changed is deleted: %v", err)
	}
	copied := do("clone_guest", `{"guest":"debian-template","name":"copy1","linked":true,"newid":"500"}`)
	do("undo", undo(copied))
	started := do("guest_power", `{"guest":"old-app","action":"start"}`)
	do("undo", undo(started))
	moved := do("migrate_guest", `{"guest":"monitor","node":"pve1"}`)
	do("undo", undo(moved))
	many := do("plan_many", `{"calls":[{"operation":"set_guest_config","args":{"guest":"dns","set":{"cores":2}}},{"operation":"snapshot_guest","args":{"guest":"dns","name":"m1"}}]}`)
	do("undo", undo(many))
	if _, err := l.run("undo", `{"plan":"p-nothing"}`); err == nil {
		t.Error("a plan that is not there is undone")
	}
}

// pruning wants a snapshot before settings of a guest are changed, and old ones gone.
type pruning struct {
	lenient
	days, keep int
}

func (p pruning) Limits() gate.Limits {
	l := p.lenient.Limits()
	l.UndoPoints, l.PruneAfter, l.PruneBeside = []gate.Kind{gate.KindConfig, gate.KindRollback}, time.Duration(p.days)*24*time.Hour, p.keep
	return l
}

// TestOldUndoPoints: a plan that takes an undo point deletes old ones of that guest, each named, and never anything else.
func TestOldUndoPoints(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	from := time.Now().Add(-60 * 24 * time.Hour)
	began := time.Now()
	p := &pruning{days: 14, keep: 2}
	l := openAt(t, "small", "admin", func(q gate.Policy) gate.Policy { p.lenient = lenient{q}; return p }, func() time.Time { return from.Add(time.Since(began)) })
	snap := func(guest, name, description string) {
		t.Helper()
		l.api("POST /nodes/pve1/qemu/"+guest+"/snapshot", map[string]any{"snapname": name, "description": description})
		l.lab.Advance(24 * time.Hour)
	}
	const own = "taken by castellan before a change"
	made := []string{}
	for _, at := range []string{"20260801_000000", "20260802_000000", "20260803_000000", "20260804_000000", "20260805_000000"} {
		made = append(made, gate.UndoPointPrefix+at)
		snap("101", gate.UndoPointPrefix+at, own)
	}
	snap("101", "before_upgrade", "by hand")
	snap("101", "castellan_20260801_000000", own)                  // asked for by its caller
	snap("101", gate.UndoPointPrefix+"20260806_000000", "keep me") // somebody wants it
	snap("101", gate.UndoPointPrefix+"mine", own)
	snap("103", gate.UndoPointPrefix+"20260801_000000", own) // of another guest
	l.lab.Advance(time.Now().Sub(from) - 10*24*time.Hour)
	list := func(guest string) string {
		out, err := l.do("list_snapshots", text(map[string]any{"guest": guest}))
		if err != nil {
			t.Fatal(err)
		}
		return string(out.Answer)
	}
	// A plan that waits goes back to the first: that one stays.
	l.who.Agent = "other"
	p.days = 0
	waits, err := l.gate.Do(t.Context(), gate.Call{Operation: "rollback_snapshot", Args: []byte(`{"guest":"101","name":"` + made[0] + `"}`), Principal: l.who, PlanOnly: true}, nil)
	if err != nil || waits.Plan == nil {
		t.Fatalf("%v %s", err, text(waits))
	}
	p.days = 14
	l.who.Agent = "test"
	set := l.api("PUT /nodes/pve1/qemu/101/config", map[string]any{"description": "x"})
	now := list("101")
	for i, name := range made {
		if gone := !strings.Contains(now, `"`+name+`"`); gone != (i > 0 && i < 4) { // the first is needed, the last is beside the new one
			t.Errorf("%s is gone: %t", name, gone)
		}
		if i > 0 && i < 4 && !strings.Contains(text(set.Receipt.Steps), name) {
			t.Errorf("%s is not named: %s", name, text(set.Receipt.Steps))
		}
	}
	for _, name := range []string{"before_upgrade", "castellan_20260801_000000", gate.UndoPointPrefix + "20260806_000000", gate.UndoPointPrefix + "mine"} {
		if !strings.Contains(now, `"`+name+`"`) {
			t.Errorf("%s is gone", name)
		}
	}
	if !strings.Contains(list("103"), gate.UndoPointPrefix+"20260801_000000") {
		t.Error("a snapshot of another guest is gone")
	}
	// What builds on deleted ones is still gone back to, and the change is still undone.
	p.days = 0
	pause := func() { time.Sleep(1100 * time.Millisecond) } // undo points are named by the second
	pause()
	l.taken(set)
	pause()
	l.ended("rollback_snapshot", `{"guest":"101","name":"before_upgrade"}`)
	// Off, nothing is deleted.
	before := list("101")
	pause()
	l.api("PUT /nodes/pve1/qemu/101/config", map[string]any{"description": "y"})
	for _, name := range []string{made[0], "before_upgrade"} {
		if !strings.Contains(before, name) || !strings.Contains(list("101"), name) {
			t.Errorf("%s is gone", name)
		}
	}
}
