package proxmox

import (
	"strings"
	"testing"
	"time"

	"castellan/internal/catalog"
	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
)

func realCatalogue(tb testing.TB) Catalog {
	tb.Helper()
	c, err := catalog.New(catalog.Config{Facts: facts.Open()})
	if err != nil {
		tb.Fatal(err)
	}
	return c.Guide()
}

// What the client asks on its own account is catalogued for each product.
func TestOwnReadsAreCatalogued(t *testing.T) {
	const short = "UPID:n1:0000020F:00032057:6B0C1290:vzdump:100:root@pam!x:"
	const long = "UPID:n1:0000020F:00032057:0000000A:6B0C1290:gc:a\\x3ab:root@pam!x:"
	upids := map[string][]string{"pve": {short}, "pbs": {long}, "pmg": {short}, "pdm": {long, "pve:r1!" + short, "pbs:r2!" + long}}
	for kind, tasks := range upids {
		f := newFake(t, func(_ int, r seen) string {
			switch {
			case strings.HasPrefix(r.line, "POST"):
				return ok(`{"ticket":"t","CSRFPreventionToken":"c"}`)
			case strings.HasSuffix(r.line, "/status"):
				return ok(`{"status":"stopped","exitstatus":"job errors"}`)
			}
			return ok(`[]`)
		})
		set, secrets := ticketTarget(f, kind)
		c, err := New(Config{Settings: Settings{Targets: []Target{set}}, Catalog: realCatalogue(t), Secrets: secrets.Open, ReadFile: secrets.Read})
		if err != nil {
			t.Fatal(err)
		}
		for _, upid := range tasks {
			if s, err := c.Task(t.Context(), "", upid); err != nil || !s.Known {
				t.Errorf("%s %s: %+v, %v", kind, upid, s, err)
			}
		}
		if _, err := c.FindTasks(t.Context(), "", "n1", time.Now()); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if _, err := c.Identify(t.Context(), ""); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		for _, r := range f.requests() {
			if strings.Contains(r.line, "/log") && !strings.Contains(r.line, "limit=") {
				t.Errorf("%s: the whole log is asked for: %s", kind, r.line)
			}
		}
	}
}

// What the catalogue renders is sent as it is, odd characters and all.
func TestRenderedIsSent(t *testing.T) {
	f := newFake(t, func(int, seen) string { return ok("null") })
	set, secrets := tokenTarget(f)
	c, err := New(Config{Settings: Settings{Targets: []Target{set}}, Catalog: realCatalogue(t), Secrets: secrets.Open, ReadFile: secrets.Read})
	if err != nil {
		t.Fatal(err)
	}
	r, err := gate.NewRequest("pve", "DELETE /nodes/{node}/storage/{storage}/content/{volume}", map[string]any{"node": "pve1", "storage": "local.ssd", "volume": "local.ssd:vztmpl/a+b_c.tar.zst", "delay": 5})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.send(t.Context(), gate.Write{Request: r, Open: plainOpen}); err != nil {
		t.Fatal(err)
	}
	if got, want := f.requests()[0].line, "DELETE /api2/json/nodes/pve1/storage/local.ssd/content/local.ssd%3Avztmpl%2Fa%2Bb_c.tar.zst?delay=5"; got != want {
		t.Errorf("sent %s\nwant %s", got, want)
	}
	r, err = gate.NewRequest("pve", "POST /nodes/{node}/qemu/{vmid}/agent/exec", map[string]any{"node": "pve1", "vmid": "100", "command": []string{"a; b | c", `"d e"`, "ü€"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.send(t.Context(), gate.Write{Request: r, Open: plainOpen}); err != nil {
		t.Fatal(err)
	}
	if got, want := f.requests()[1].body, "command=a%3B%20b%20%7C%20c&command=%22d%20e%22&command=%C3%BC%E2%82%AC"; got != want {
		t.Errorf("sent %s\nwant %s", got, want)
	}
}
