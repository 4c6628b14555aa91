package self

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/policy"
)

// TestWhyIsItSlow: an ill guest of a simulated site gets a ranked answer with figures, and nothing is unknown.
func TestWhyIsItSlow(t *testing.T) {
	l := open(t, "small", "admin")
	healthy := l.health("diagnose_guest", `{"guest":"202"}`)
	if len(healthy.Causes) != 0 || len(healthy.Unread) != 0 {
		t.Errorf("before: %+v", healthy)
	}
	for _, c := range []struct {
		ill   lab.Illness
		first []string
	}{
		{lab.Illness{Guest: 202, Kind: "memory"}, []string{"memory_pressure", "memory_stall"}},
		{lab.Illness{Guest: 204, Kind: "cpu"}, []string{"cpu_pressure", "cpu_stall"}},
		{lab.Illness{Guest: 206, Kind: "disk"}, []string{"io_pressure", "io_stall"}},
		{lab.Illness{Guest: 201, Kind: "full"}, []string{"disk_full"}},
		{lab.Illness{Guest: 101, Kind: "disk"}, []string{"io_pressure", "io_stall"}},
	} {
		if err := l.lab.SetIll(c.ill); err != nil {
			t.Fatal(err)
		}
		id, err := json.Marshal(map[string]int{"guest": c.ill.Guest})
		if err != nil {
			t.Fatal(err)
		}
		out, err := l.do("diagnose_guest", string(id))
		if err != nil {
			t.Fatal(err)
		}
		var a struct {
			Answer string
			Causes []struct {
				Check, Level, Confidence string
				Evidence                 []struct{ Value string }
			}
			Unread []any
		}
		if err := json.Unmarshal(out.Answer, &a); err != nil {
			t.Fatal(err)
		}
		if len(a.Causes) == 0 || !slices.Contains(c.first, a.Causes[0].Check) || len(a.Causes[0].Evidence) < 1 || len(a.Unread) != 0 {
			t.Errorf("%v: %+v", c.ill, a)
		}
		t.Logf("%v: %s", c.ill, a.Answer)
		if err := l.lab.SetIll(lab.Illness{Guest: c.ill.Guest}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDiagnosisWithinScope: a caller that is limited to some guests learns of those, their nodes and the storages of their
// disks, and nothing that names others: neither guests nor nodes, storages, pools, jobs.
func TestDiagnosisWithinScope(t *testing.T) {
	for name, c := range map[string]struct {
		settings func(*policy.Settings)
		own      string
		foreign  []string // what must not be named
	}{
		"pool": {func(s *policy.Settings) { s.Pools = []string{"dev"} }, "107", []string{"pve1", "pve3", "nas", "db-hourly", "mail", "gateway", "media", "monitor", "proxy", "win11", "old-app", `"101"`, `"102"`, `"105"`, `"106"`, "VM 105", "CT 202", "prod"}},
		"guests": {func(s *policy.Settings) { s.Guests = []string{"206"} }, "206", []string{"pve1", "pve2", "tank", "local-lvm", "db-hourly", "mail", "gateway", "media", "monitor", "win11", "old-app", `"101"`, `"102"`, `"105"`, `"106"`,
			"VM 105", "CT 202", "prod"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := openWith(t, "small", "admin", func(gate.Policy) gate.Policy {
				s := policy.Settings{Capabilities: gate.Capabilities(), StandIn: "phrase"}
				c.settings(&s)
				p, err := policy.New(policy.Config{Settings: s, Dir: t.TempDir()})
				if err != nil {
					t.Fatal(err)
				}
				return p
			})
			// Trouble everywhere, so that there is something to be told of others.
			for _, i := range []lab.Illness{{Guest: 202, Kind: "memory"}, {Guest: 105, Kind: "disk"}, {Guest: 204, Kind: "cpu"}, {Guest: 106, Kind: "disk"}, {Guest: 108, Kind: "disk"}} {
				if err := l.lab.SetIll(i); err != nil {
					t.Fatal(err)
				}
			}
			looked := 0
			for _, call := range [][2]string{{"diagnose_guest", `{"guest":"` + c.own + `"}`}, {"site_check", `{}`}, {"diagnose_node", `{"node":"pve2"}`}, {"diagnose_node", `{"node":"pve3"}`}, {"diagnose_node", `{"node":"pve1"}`}, {"site_check", `{"node":"pve1"}`}, {"diagnose_guest", `{"guest":"102"}`}} {
				out, err := l.do(call[0], call[1])
				said := ""
				if err != nil {
					said = text(gate.AsError(err))
				} else {
					looked++
					said = string(out.Answer)
				}
				asked := call[1]
				for _, f := range c.foreign {
					if strings.Contains(said, f) && !strings.Contains(asked, strings.Trim(f, `"`)) {
						at := strings.Index(said, f)
						t.Errorf("%v tells of %s: …%s…", call, f, said[max(0, at-200):min(len(said), at+160)])
					}
				}
				if (strings.Contains(call[1], "102") || strings.Contains(call[1], "pve1")) && err == nil {
					t.Errorf("%v: what is not this caller's is looked at: %s", call, said)
				}
				t.Logf("%v: %.300s", call, said)
			}
			if looked < 2 {
				t.Errorf("only %d calls were answered", looked)
			}
		})
	}
}
