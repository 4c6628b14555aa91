package self

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tiktoken-go/tokenizer"

	"castellan/internal/gate"
	"castellan/internal/lab"
)

// TestLargeSite holds listings of 10,000 guests to a handful of requests and to an answer that a model can take.
func TestLargeSite(t *testing.T) {
	if testing.Short() {
		t.Skip("a site of 10,000 guests")
	}
	l := open(t, "10000", "auditor")
	enc, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		op, args string
		requests int
	}{
		{"list_guests", `{}`, 2}, {"list_guests", `{"fields":["vmid","name","kind","status","node","template","lock","tags","pool","ha","cpu","maxcpu","mem","maxmem","disk","maxdisk","uptime"]}`, 2},
		{"list_nodes", `{}`, 2}, {"list_storage", `{}`, 3}, {"cluster_overview", `{}`, 4}, {"list_tasks", `{}`, 3},
		{"call_operation", `{"operation":"GET /cluster/resources"}`, 2},
	} {
		l.lab.ResetRequests()
		began := time.Now()
		out, err := l.do(c.op, c.args)
		if err != nil {
			t.Errorf("%s %s: %v", c.op, c.args, err)
			continue
		}
		took := time.Since(began)
		ids, _, err := enc.Encode(string(out.Answer))
		if err != nil {
			t.Fatal(err)
		}
		n := len(l.lab.Requests())
		t.Logf("%s: %d requests, %d tokens, %d bytes, %s", c.op, n, len(ids), len(out.Answer), took)
		if n > c.requests || len(ids) > 20_000 {
			t.Errorf("%s %s: %d requests (at most %d), %d tokens (at most 20,000)", c.op, c.args, n, c.requests, len(ids))
		}
	}
	seen, cursor := map[string]bool{}, ""
	for range 200 {
		args, err := json.Marshal(map[string]any{"fields": []string{"vmid"}, "cursor": cursor})
		if err != nil {
			t.Fatal(err)
		}
		out, err := l.do("list_guests", string(args))
		if err != nil {
			t.Fatal(err)
		}
		var page struct {
			Guests []struct {
				VMID json.Number `json:"vmid"`
			} `json:"guests"`
			Matched int    `json:"matched"`
			Cursor  string `json:"cursor"`
		}
		if err := json.Unmarshal(out.Answer, &page); err != nil {
			t.Fatal(err)
		}
		for _, g := range page.Guests {
			if seen[g.VMID.String()] {
				t.Fatalf("guest %s stands on two pages", g.VMID)
			}
			seen[g.VMID.String()] = true
		}
		if cursor = page.Cursor; cursor == "" {
			if len(seen) != page.Matched || page.Matched < 10_000 {
				t.Errorf("%d guests on all pages, %d matched", len(seen), page.Matched)
			}
			return
		}
	}
	t.Error("the pages do not end")
}

// TestLostNode switches a node off: the others' guests are listed, its own are unknown, and it is named.
func TestLostNode(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	l := open(t, "small", "admin")
	if err := l.lab.SetNode("pve3", lab.NodeOff); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ op, args, want string }{
		{"list_guests", `{}`, `node pve3 is offline`},
		{"list_guests", `{"node":"pve3"}`, `"status":"unknown"`},
		{"list_guests", `{"status":"running"}`, `"name":"dns"`},
		{"list_nodes", `{}`, `"status":"offline"`},
		{"node_status", `{"node":"pve3"}`, `"status":"offline"`},
		{"guest_status", `{"guest":"204"}`, `"status":"unknown"`},
		{"guest_power", `{"guest":"204","action":"stop"}`, `not online`},
		{"list_storage", `{}`, `nas`},
		{"cluster_overview", `{}`, `pve3`},
		{"list_tasks", `{}`, `pve3`},
		{"guest_status", `{"guest":"dns"}`, `"status":"running"`},
		{"guest_power", `{"guest":"dns","action":"reboot"}`, `"status":"done"`},
	} {
		out, err := l.run(c.op, c.args)
		got := text(out)
		if err != nil {
			got = text(gate.AsError(err))
		} else if out.Status == gate.StatusAnswer {
			got = string(out.Answer)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %q is not in %s", c.op, c.args, c.want, got)
		}
	}
}

// TestDeadStorage lets a storage hang as a dead NFS export does: the rest is answered at once, and it is named.
func TestDeadStorage(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	l := open(t, "small", "admin")
	if err := l.lab.SetStorageDead("nas", true); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ op, args, want string }{
		{"list_storage", `{}`, `"status":"available","storage":"local"`},
		{"list_storage", `{}`, `"status":"unknown","storage":"nas"`},
		{"cluster_overview", `{}`, `nas`},
		{"list_guests", `{}`, `"name":"dns"`},
		{"guest_config", `{"guest":"dns"}`, `"hostname"`},
	} {
		began := time.Now()
		out, err := l.do(c.op, c.args)
		got := text(out)
		if err != nil {
			got = text(gate.AsError(err))
		} else if out.Status == gate.StatusAnswer {
			got = string(out.Answer)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %q is not in %s", c.op, c.args, c.want, got)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s %s took %s", c.op, c.args, took)
		}
	}
}

// TestRights walks with tokens that may less.
func TestRights(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	for _, c := range []struct{ token, op, args, want string }{
		{"operator", "backup_guest", `{"guest":"dns","storage":"local"}`, `"status":"done"`},
		{"operator", "guest_power", `{"guest":"old-app","action":"start"}`, `"status":"done"`},
		{"operator", "snapshot_guest", `{"guest":"old-app"}`, `"status":"done"`},
		{"operator", "set_guest_config", `{"guest":"old-app","set":{"cores":1}}`, `"status":"done"`},
		{"operator", "set_guest_config", `{"guest":"old-app","set":{"args":"-x"}}`, `root@pam only`},
		{"auditor", "guest_power", `{"guest":"old-app","action":"start"}`, `VM.PowerMgmt`},
		{"auditor", "list_guests", `{}`, `"name":"db"`},
		{"limited", "list_guests", `{}`, `"shown":1`},
		{"limited", "guest_status", `{"guest":"db"}`, `there is no guest`},
		{"limited", "list_storage", `{}`, `hides all storages`},
		{"limited", "cluster_overview", `{}`, `quorum is not known`},
		{"limited", "list_nodes", `{}`, `Sys.Audit`},
	} {
		t.Run(c.token+" "+c.op, func(t *testing.T) {
			l := open(t, "small", c.token)
			out, err := l.run(c.op, c.args)
			got := text(out)
			if err != nil {
				got = text(gate.AsError(err))
			} else if out.Status == gate.StatusAnswer {
				got = string(out.Answer)
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("%s: %q is not in %s", c.args, c.want, got)
			}
		})
	}
}
