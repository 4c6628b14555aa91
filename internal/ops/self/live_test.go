package self

import (
	"slices"
	"strings"
	"testing"
	"time"

	"castellan/internal/backups"
	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/ops/housetest"
	"castellan/internal/ops/pve"
	"castellan/internal/undo"
)

// live is a whole castellan in front of a simulated site.
type live struct {
	*housetest.House
	t    *testing.T // of the subtest that runs
	lab  *lab.Lab
	gate *gate.Gate
	who  gate.Principal
	// bench is what doctor looks at.
	bench *bench
	// backups is what the gate asks when guests were last backed up.
	backups *asked
}

// open starts a site and a gate with the named token of it.
func open(t *testing.T, site, token string) *live { return openWith(t, site, token, nil) }

func openWith(t *testing.T, site, token string, rules func(gate.Policy) gate.Policy) *live {
	return openAt(t, site, token, rules, nil)
}

// openAt does it with a clock of the site's own; nil is the real one.
func openAt(t *testing.T, site, token string, rules func(gate.Policy) gate.Policy, clock func() time.Time) *live {
	t.Helper()
	return openHouse(t, housetest.Config{Site: site, Token: token, Rules: rules, Clock: clock})
}

// openOn also puts something between the gate and the site, where through is given.
func openOn(t *testing.T, site, token string, rules func(gate.Policy) gate.Policy, through func(gate.Driver) gate.Driver) *live {
	t.Helper()
	return openHouse(t, housetest.Config{Site: site, Token: token, Rules: rules, Through: through})
}

func openHouse(t *testing.T, c housetest.Config) *live {
	t.Helper()
	looked, counted := &bench{}, &asked{Backups: backups.Book{}}
	c.Gate = func(h *housetest.House, c *gate.Config) error {
		keeper, err := undo.New(undo.Config{Catalog: h.Catalog, Estate: h.Estate})
		looked.client = h.Client
		c.Operations = slices.Concat(pve.Operations(), Operations(Config{Catalog: h.Catalog, Undo: keeper, Doctor: looked, Estate: h.Estate}))
		c.Keeper, c.Backups = keeper, counted
		return err
	}
	h := housetest.Open(t, c)
	return &live{House: h, t: t, lab: h.Lab, gate: h.Gate, bench: looked, backups: counted, who: h.Who}
}

func (l *live) do(operation, args string) (*gate.Outcome, error) {
	l.t.Helper()
	return l.Do(l.t.Context(), operation, args)
}

// run calls and, where the plan waits, applies it as its answer says.
func (l *live) run(operation, args string) (*gate.Outcome, error) {
	l.t.Helper()
	return l.Run(l.t.Context(), operation, args)
}

func text(v any) string { return housetest.Text(v) }

// TestLive walks through every operation on a simulated site, through the real gate.
func TestLive(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	l := open(t, "small", "admin")
	for _, c := range []struct {
		op, args string
		status   gate.Status // "" = an error whose text holds want
		want     string
	}{
		{"list_guests", `{"limit":3}`, gate.StatusAnswer, `"matched":`},
		{"guest_status", `{"guest":101}`, gate.StatusAnswer, `"status":"running"`},
		{"guest_status", `{"guest":"web"}`, "", `2 guests are called`},
		{"guest_config", `{"guest":"db"}`, gate.StatusAnswer, `"digest":`},
		{"list_nodes", `{}`, gate.StatusAnswer, `pve3`},
		{"node_status", `{"node":"pve1"}`, gate.StatusAnswer, `"memory"`},
		{"list_storage", `{}`, gate.StatusAnswer, `nas`},
		{"cluster_overview", `{}`, gate.StatusAnswer, `"quorate":true`},
		{"list_snapshots", `{"guest":"db"}`, gate.StatusAnswer, `before-upgrade`},
		{"guest_power", `{"guest":"old-app","action":"start"}`, gate.StatusDone, ``},
		{"guest_power", `{"guest":"old-app","action":"start"}`, gate.StatusNothing, `running already`},
		{"guest_power", `{"guest":"old-app","action":"suspend"}`, gate.StatusDone, ``},
		{"guest_status", `{"guest":"old-app"}`, gate.StatusAnswer, `"status":"paused"`},
		{"guest_power", `{"guest":"old-app","action":"resume"}`, gate.StatusDone, ``},
		{"guest_power", `{"guest":"old-app","action":"reboot"}`, gate.StatusDone, ``},
		{"guest_power", `{"guest":"old-app","action":"reset"}`, gate.StatusDone, ``},
		{"set_guest_config", `{"guest":"old-app","set":{"memory":4096,"tags":"Legacy,new","description":"line one\nline two"}}`, gate.StatusDone, `pending`},
		{"set_guest_config", `{"guest":"old-app","set":{"memory":"4096"}}`, gate.StatusNothing, `in force`},
		{"guest_power", `{"guest":"old-app","action":"stop"}`, gate.StatusDone, ``},
		{"set_guest_config", `{"guest":"old-app","set":{"name":"older-app","net0":{"model":"virtio","bridge":"vmbr0","tag":5}},"delete":["description"]}`, gate.StatusDone, ``},
		{"set_guest_config", `{"guest":"103","set":{"scsi0":"+4G","cores":4}}`, gate.StatusDone, ``},
		{"guest_power", `{"guest":"gateway","action":"shutdown"}`, gate.StatusDone, ``},
		{"guest_power", `{"guest":"gateway","action":"start"}`, gate.StatusDone, ``},
		{"migrate_guest", `{"guest":"gateway","node":"pve1"}`, gate.StatusDone, ``},
		{"guest_power", `{"guest":"mail","action":"shutdown"}`, "", `is locked (backup)`},
		{"guest_power", `{"guest":"debian-template","action":"start"}`, "", `is a template`},
		{"snapshot_guest", `{"guest":"101","name":"first","description":"x"}`, gate.StatusDone, ``},
		{"snapshot_guest", `{"guest":"101","vmstate":true}`, gate.StatusDone, ``},
		{"snapshot_guest", `{"guest":"media"}`, "", `cannot be snapshotted`},
		{"set_guest_config", `{"guest":"101","set":{"cores":3}}`, gate.StatusDone, `pending`},
		{"rollback_snapshot", `{"guest":"101","name":"first","start":true}`, gate.StatusDone, ``},
		{"guest_config", `{"guest":"101"}`, gate.StatusAnswer, `"cores":"2"`},
		{"delete_snapshot", `{"guest":"101","name":"first"}`, gate.StatusDone, ``},
		{"backup_guest", `{"guest":"dns","storage":"local"}`, gate.StatusDone, ``},
		{"clone_guest", `{"guest":"debian-template","name":"copy1","linked":true,"newid":"500"}`, gate.StatusDone, ``},
		{"clone_guest", `{"guest":"debian-template","name":"copy2","newid":501}`, gate.StatusDone, ``},
		{"migrate_guest", `{"guest":"501","node":"pve2"}`, gate.StatusDone, ``},
		{"migrate_guest", `{"guest":"monitor","node":"pve1"}`, gate.StatusDone, ``},
		{"create_guest", `{"kind":"vm","node":"pve1","name":"fresh","storage":"local-lvm","disk":"8G","image":"local:iso/debian-13.1.0-amd64-netinst.iso","set":{"memory":1024,"net0":"virtio,bridge=vmbr0"},"vmid":600,"start":true}`, gate.StatusDone, ``},
		{"create_guest", `{"kind":"ct","node":"pve1","name":"box","storage":"local-lvm","disk":"4G","image":"local:vztmpl/debian-13-standard_13.1-2_amd64.tar.zst","set":{"password":"geheim123","net0":"name=eth0,bridge=vmbr0,ip=dhcp"},"vmid":601}`, gate.StatusDone, ``},
		{"delete_guest", `{"guest":"db","stop":true}`, "", `is protected`},
		{"delete_guest", `{"guest":"gateway","stop":true}`, "", `managed by HA`},
		{"delete_guest", `{"guest":"fresh","stop":true,"purge":true}`, gate.StatusDone, ``},
		{"delete_guest", `{"guest":"box"}`, gate.StatusDone, ``},
		{"guest_status", `{"guest":"box"}`, "", `there is no guest "box"`},
		{"plan_many", `{"calls":[{"operation":"snapshot_guest","args":{"guest":"dns","name":"m1"}},{"operation":"guest_power","args":{"guest":"debian-template","action":"start"}},{"operation":"set_guest_config","args":{"guest":"dns","set":{"cores":2}}}]}`, gate.StatusDone, ``},
		{"call_operation", `{"operation":"GET /nodes/pve1/qemu/101/config","fields":["name","cores"]}`, gate.StatusAnswer, `"cores":2`},
		{"call_operation", `{"operation":"GET /nodes/{node}/qemu/{vmid}/config","params":{"vmid":101},"fields":["nmae"]}`, "", `did you mean name`},
		{"call_operation", `{"operation":"GET /nodes/pve2/qemu/101/config"}`, "", `guest 101 is on node pve1`},
		{"call_operation", `{"operation":"GET /nodes/pve2/qemu/998/config"}`, "", `there is no guest "998"`},
		{"call_operation", `{"operation":"GET /cluster/resources","params":{"type":"vm"},"limit":2,"fields":["vmid"]}`, gate.StatusAnswer, `"shown":2`},
		{"call_operation", `{"operation":"guest_status","params":{"guest":"dns"}}`, gate.StatusAnswer, `"kind":"ct"`},
		{"call_operation", `{"operation":"guest_power","params":{"guest":"old-app","action":"start"}}`, "", `there is no guest`},
		{"call_operation", `{"operation":"guest_power","params":{"guest":"older-app","action":"start"}}`, gate.StatusDone, ``},
		{"call_operation", `{"operation":"PUT /nodes/pve1/lxc/201/config","params":{"description":"by the door"}}`, gate.StatusDone, ``},
		{"call_operation", `{"operation":"POST /pools","params":{"poolid":"made"}}`, gate.StatusDone, ``},
		{"call_operation", `{"operation":"PUT /pools/made","params":{"comment":"hello"}}`, gate.StatusDone, ``},
		{"call_operation", `{"operation":"DELETE /pools/made"}`, gate.StatusDone, ``},
		{"call_operation", `{"operation":"POST /nodes/pve1/qemu/101/status/strat"}`, "", `status/start`},
		{"call_operation", `{"operation":"PUT /access/password","params":{"userid":"a@pve","password":"x2345678"}}`, "", `cannot be called with an API token`},
		{"find_operation", `{"query":"shut down a vm"}`, gate.StatusAnswer, `"operation":"guest_power"`},
		{"describe_operation", `{"operation":"guest_power"}`, gate.StatusAnswer, `"input"`},
		{"describe_operation", `{"operation":"PUT /nodes/{node}/qemu/{vmid}/config","param":"net"}`, gate.StatusAnswer, `net[n]`},
		{"describe_operation", `{"operation":"guest_pwer"}`, "", `did you mean guest_power`},
		{"list_plans", `{"state":"ended","limit":5}`, gate.StatusAnswer, `"state":"done"`},
		{"list_tasks", `{}`, gate.StatusAnswer, `"upid"`},
		{"audit_verify", `{}`, "", `no ledger`},
	} {
		out, err := l.run(c.op, c.args)
		got := ""
		switch {
		case err != nil && c.status == "":
			got = text(gate.AsError(err))
		case err != nil:
			t.Errorf("%s %s: %v (%s)", c.op, c.args, err, text(gate.AsError(err)))
			continue
		case c.status == "":
			t.Errorf("%s %s: no error, but %s", c.op, c.args, text(out))
			continue
		case out.Status != c.status:
			t.Errorf("%s %s: status %s, want %s: %s", c.op, c.args, out.Status, c.status, text(out))
			continue
		default:
			got = text(out)
			if out.Status == gate.StatusAnswer {
				got = string(out.Answer)
			}
		}
		if !strings.Contains(strings.ReplaceAll(got, `\"`, `"`), c.want) {
			t.Errorf("%s %s: %q is not in %s", c.op, c.args, c.want, got)
		}
		l.lab.Advance(15 * time.Second)
	}
}
