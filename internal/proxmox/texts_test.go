package proxmox

import (
	"encoding/json"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"castellan/internal/gate"
)

// The reviewed table: what genuine servers say, and what it means. A line is kind, marks (G: the guest's existence is
// checked, L: the holder of a lock is looked for), status, message, and parameters as "name: text|name: text".
func TestTexts(t *testing.T) {
	table, err := os.ReadFile("testdata/texts.tsv")
	if err != nil {
		t.Fatal(err)
	}
	rules := texts()
	lines := 0
	for line := range strings.Lines(string(table)) {
		cells := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(cells) != 5 {
			t.Fatalf("line %q has %d cells", line, len(cells))
		}
		lines++
		status, err := strconv.Atoi(cells[2])
		if err != nil {
			t.Fatal(err)
		}
		message := strings.ReplaceAll(cells[3], `\n`, "\n")
		body := map[string]any{"data": nil, "message": message + "\n"}
		if cells[4] != "" {
			errs := map[string]string{}
			for cell := range strings.SplitSeq(cells[4], "|") {
				name, what, _ := strings.Cut(cell, ": ")
				errs[name] = what
			}
			body["errors"] = errs
		}
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		reason, _, _ := strings.Cut(message, "\n")
		for _, r := range []reply{
			{status: status, reason: reason, body: raw, header: http.Header{"Content-Type": {jsonType}}},
			{status: status, reason: reason, header: http.Header{}}, // the reason is all there is
		} {
			if r.body == nil && (cells[4] != "" || strings.Contains(message, "\n")) {
				continue
			}
			e := r.failure(kindPVE)
			k := &call{c: &Client{texts: func() []text { return rules }, catalog: plainCatalog{}}, t: &target{set: Target{Kind: kindPVE}, user: "a@pve!t"}}
			marks := ""
			if !e.Auth {
				hit, _ := classify(rules, &gate.UpstreamError{Status: e.Status, Message: e.Message, Params: e.Params})
				if hit.guest {
					marks += "G"
				}
				if hit.lock {
					marks += "L"
				}
				k.interpret(t.Context(), e)
			}
			if string(e.Kind) != cells[0] || marks != cells[1] {
				t.Errorf("%d %q: %s %q, want %s %q", status, message, e.Kind, marks, cells[0], cells[1])
			}
			if e.Status == 403 && e.Hint == "" {
				t.Errorf("%q: no hint", message)
			}
		}
	}
	if lines < 100 {
		t.Errorf("only %d lines", lines)
	}
}

// What is told of a missing right.
func TestGrantHint(t *testing.T) {
	tests := []struct {
		kind, login, message string
		privileges           []string
		want                 []string
		not                  string
	}{
		{"pve", "audit@pve!ro", "Permission check failed (/vms/200, VM.PowerMgmt)", nil,
			[]string{"audit@pve!ro needs VM.PowerMgmt on /vms/200", "pveum role add audit-VM.PowerMgmt --privs VM.PowerMgmt", "pveum acl modify /vms/200 --users audit@pve --tokens 'audit@pve!ro' --roles audit-VM.PowerMgmt (", "takes the place", "not in castellan's policy"}, ""},
		{"pve", "joe@pve", "Permission check failed (/storage/local, Datastore.Audit|Datastore.AllocateSpace)", nil,
			[]string{"joe@pve needs Datastore.Audit or Datastore.AllocateSpace on /storage/local", "--users joe@pve"}, "--tokens"},
		{"pve", "a@pve!t", "Permission check failed", []string{"User.Modify on /access/groups"}, []string{"needs User.Modify on /access/groups"}, ""},
		{"pve", "a@pve!t", "Permission check failed", nil, []string{"does not say what it asks for"}, "pveum"},
		{"pve", "a@pve!t", "Permission check failed (, Pool.Allocate)", nil, []string{"needs Pool.Allocate."}, "acl modify"},
		{"pve", "a@pve!t", "Permission check failed (/sdn/zones/localnetwork/vmbr0, SDN.Use)", nil, []string{"/sdn/zones/localnetwork/vmbr0"}, ""},
		{"pve", "a@pve!t", "Permission check failed (/vms/`reboot`;x, VM.Audit)", nil, []string{"pveum acl modify '/vms/`reboot`;x' --users"}, "modify /vms"},
		{"pve", "a@pve!t", "Permission check failed (/vms/1, VM.Audit;reboot)", nil, []string{"does not say"}, "reboot"},
		{"pbs", "a@pbs!t", "permission check failed.", []string{"Datastore.Audit on /datastore/x"}, []string{"needs Datastore.Audit on /datastore/x"}, "pveum"},
	}
	for _, tt := range tests {
		got := grantHint(tt.kind, tt.login, tt.message, tt.privileges, func(string) (map[string]bool, bool) { return nil, false })
		for _, w := range tt.want {
			if !strings.Contains(got, w) {
				t.Errorf("%q: %q is missing in %q", tt.message, w, got)
			}
		}
		if tt.not != "" && strings.Contains(got, tt.not) {
			t.Errorf("%q: %q stands in %q", tt.message, tt.not, got)
		}
	}
}

// "Not running" is said of guests that do not exist, too.
func TestExistenceIsChecked(t *testing.T) {
	for _, tt := range []struct {
		name, config string
		kind         gate.ErrorKind
		says         string
	}{
		{"there", ok(`{"cores":1}`), gate.ErrInvalid, "Start the guest first"},
		{"absent", raw("500 Configuration file 'nodes/pve1/lxc/201.conf' does not exist", jsonType, `{"data":null,"message":"Configuration file 'nodes/pve1/lxc/201.conf' does not exist\n"}`), gate.ErrNotFound, "There is no CT 201 on node pve1"},
		{"not to be seen", raw("403 Permission check failed (/vms/201, VM.Audit)", "", ""), gate.ErrInvalid, "could not be checked"},
	} {
		f := newFake(t, func(_ int, r seen) string {
			if r.line == "GET /api2/json/nodes/pve1/lxc/201/config" {
				return tt.config
			}
			return raw("500 CT 201 not running", jsonType, `{"data":null,"message":"CT 201 not running\n"}`)
		})
		set, secrets := tokenTarget(f)
		_, fail := sendOne(t, newClient(t, set, secrets), "POST /nodes/{node}/lxc/{vmid}/status/stop", map[string]any{"node": "pve1", "vmid": "201"})
		if fail == nil || fail.Kind != tt.kind || !strings.Contains(fail.Hint, tt.says) || fail.Delivery != gate.MaybeDone {
			t.Errorf("%s: %+v", tt.name, fail)
		}
	}
}

// A lock is told with the task that holds it.
func TestLockNamesItsTask(t *testing.T) {
	busy := "UPID:pve1:000001F1:000CD816:6B0C2B71:vzdump:450:root@pam!full:"
	for _, tt := range []struct{ name, tasks, says, not string }{
		{"held", ok(`[{"upid":"` + busy + `","type":"vzdump","status":"RUNNING","saved":"0"}]`), busy, ""},
		{"left behind", ok(`[]`), "may have died", "remove the lock yourself"},
		{"not to be seen", raw("403 no", "", ""), "wait for its end", "died"},
	} {
		f := newFake(t, func(_ int, r seen) string {
			if strings.HasPrefix(r.line, "GET /api2/json/nodes/pve1/tasks?") && strings.Contains(r.line, "vmid=450") {
				return tt.tasks
			}
			return raw("500 CT is locked (backup)", jsonType, `{"data":null,"message":"CT is locked (backup)\n"}`)
		})
		set, secrets := tokenTarget(f)
		_, fail := sendOne(t, newClient(t, set, secrets), opConfig, map[string]any{"node": "pve1", "vmid": "450", "cores": 2})
		if fail == nil || fail.Kind != gate.ErrUnavailable || !strings.Contains(fail.Hint, tt.says) || tt.not != "" && strings.Contains(fail.Hint, tt.not) {
			t.Errorf("%s: %+v", tt.name, fail)
		}
	}
}

// Only a backup server's parameter check proves by its 400 that nothing was done.
func TestDeliveryOfOtherProducts(t *testing.T) {
	for _, tt := range []struct {
		kind, status, body string
		want               gate.Delivery
	}{
		{"pbs", "400 Bad Request", "parameter verification failed - 'keep-last': value too small", gate.NotCarriedOut},
		{"pbs", "400 Bad Request", "unable to write file: No space left on device", gate.MaybeDone},
		{"pdm", "400 Bad Request", "api error (status = 400: guest is locked)", gate.MaybeDone},
		{"pbs", "403 Forbidden", "permission check failed.", gate.NotCarriedOut},
		{"pbs", "404 Not Found", "Path '/api2/json/x' not found.", gate.MaybeDone},
		{"pbs", "595 Connection refused", "", gate.MaybeDone},
	} {
		f := newFake(t, func(_ int, r seen) string { return raw(tt.status, "application/json", tt.body) })
		c := newClient(t, Target{Name: "b", Kind: tt.kind, Addresses: []string{f.addr}, TokenFile: "t", CAFile: "ca"}, files{"t": "root@pam!x:y-z", "ca": f.ca})
		_, fail := sendOne(t, c, "POST /config/prune/{id}", map[string]any{"id": "x"})
		if fail == nil || fail.Delivery != tt.want || tt.body != "" && fail.Message != tt.body {
			t.Errorf("%s %s %q: %+v", tt.kind, tt.status, tt.body, fail)
		}
	}
}
