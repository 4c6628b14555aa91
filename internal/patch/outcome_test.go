package patch

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var went = []string{"outcome|ended", "id|plan.2", "mode|security", "began|1796040000", "ended|1796040060", "exit|0", "asked|upgrade demo-lib:all 1.0 1.1 Debian-Security:bookworm-security", "done|upgrade demo-lib:all 1.0 1.1 -",
	"database|clean", "reboot|no", "log|Unpacking|demo", "log-bytes|14",
	"before-boot|11111111-2222-3333-4444-555555555555", "before-unit|ssh.service|active|running|1|0", "before-port|tcp|0.0.0.0|22|sshd",
	"after-boot|11111111-2222-3333-4444-555555555555", "after-unit|ssh.service|active|running|1|0", "after-port|tcp|0.0.0.0|22|sshd"}

func result(t *testing.T, replace map[string]string, more ...string) Outcome {
	t.Helper()
	var rows []string
	for _, r := range went {
		if to, has := replace[r]; !has {
			rows = append(rows, r)
		} else if to != "" {
			rows = append(rows, to)
		}
	}
	o, err := ParseResult(lines("result", append(rows, more...)...))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestVerdict(t *testing.T) {
	o := result(t, nil)
	if ok, why := o.Verdict(); !ok || o.Log != "Unpacking demo\n" || o.LogBytes != 14 || *o.Exit != 0 || o.Note != "" {
		t.Errorf("it went well: %q %+v", why, o)
	}
	if o = result(t, map[string]string{"exit|0": "exit|100"}); true {
		if ok, why := o.Verdict(); !ok {
			t.Errorf("an exit code is no verdict: %q", why)
		}
	}
	done := "done|upgrade demo-lib:all 1.0 1.1 -"
	for name, c := range map[string]struct {
		replace map[string]string
		more    string
		want    string
	}{
		"missing":      {map[string]string{done: ""}, "", "not done: demo-lib"},
		"another":      {map[string]string{done: "done|upgrade demo-lib:all 1.0 1.2 -"}, "", "not asked for: demo-lib 1.0 → 1.2"},
		"beyond":       {nil, "done|install demo-x:all - 1 -", "not asked for: demo-x"},
		"gone":         {nil, "done|remove demo-x:all 1 - -", "not asked for: demo-x"},
		"database":     {map[string]string{"database|clean": "database|broken"}, "problem|demo-lib is half-configured", "half-configured"},
		"no database":  {map[string]string{"database|clean": ""}, "", "did not say"},
		"failed":       {map[string]string{"after-unit|ssh.service|active|running|1|0": "after-unit|ssh.service|failed|failed|1|0"}, "", "ssh.service failed"},
		"port":         {map[string]string{"after-port|tcp|0.0.0.0|22|sshd": ""}, "", "nothing listens on tcp port 22"},
		"lost":         {map[string]string{"outcome|ended": "outcome|lost"}, "", "its end is not known"},
		"running":      {map[string]string{"outcome|ended": "outcome|running"}, "", "still runs"},
		"refused":      {map[string]string{"outcome|ended": "outcome|refused"}, "stale|demo-lib is gone", "demo-lib is gone"},
		"none":         {map[string]string{"outcome|ended": "outcome|none"}, "", "nothing was installed"},
		"unheard of":   {map[string]string{"outcome|ended": "outcome|splendid"}, "", "its end is not known"},
		"two outcomes": {nil, "outcome|none", "its end is not known"},
		"no id":        {map[string]string{"id|plan.2": ""}, "", "which installation"},
		"nothing":      {map[string]string{"asked|upgrade demo-lib:all 1.0 1.1 Debian-Security:bookworm-security": "", done: ""}, "", "asked for is not known"},
		"unread":       {nil, "after-unread|ports", "not known: ports"},
		"new failed":   {nil, "after-unit|demo.service|failed|failed|0|0", "demo.service is new and failed"},
	} {
		o := result(t, c.replace, c.more)
		if ok, why := o.Verdict(); ok || !strings.Contains(strings.Join(why, "; "), c.want) {
			t.Errorf("%s: %v %q", name, ok, why)
		}
	}
	repair := result(t, map[string]string{"mode|security": "mode|repair", "asked|upgrade demo-lib:all 1.0 1.1 Debian-Security:bookworm-security": ""})
	if ok, why := repair.Verdict(); !ok {
		t.Errorf("a repair: %q", why)
	}
	// What castellan asked for counts, not what the guest says it was asked.
	asked, err := ParseTransaction([]string{"upgrade demo-lib:all 1.0 1.0.5 Debian-Security:bookworm-security"})
	if err != nil {
		t.Fatal(err)
	}
	o = result(t, nil)
	if o.Against(asked, false); len(o.Missing) != 1 || len(o.Beyond) != 1 {
		t.Errorf("a newer version that nobody allowed: %+v", o)
	}
	if o.Against(asked, true); len(o.Missing) != 0 || len(o.Beyond) != 0 {
		t.Errorf("a newer version that was allowed: %+v", o)
	}
	repair.Done = nil
	if repair.Against(asked, false); len(repair.Missing) != 1 {
		t.Errorf("an upgrade that the guest calls a repair: %+v", repair)
	}
}

func TestCompare(t *testing.T) {
	yes, no := true, false
	unit := func(active, sub string, enabled bool, restarts int) House {
		return House{BootID: "a", Units: []Unit{{Name: "x.service", Active: active, Sub: sub, Enabled: enabled, Restarts: restarts}, {Name: "y.service", Active: "active"}}}
	}
	port := func(p ...Port) House { return House{Units: []Unit{{Name: "y.service", Active: "active"}}, Ports: p} }
	tcp := Port{Proto: "tcp", Address: "0.0.0.0", Port: 80, Program: "web"}
	reached := func(r *bool) Port { p := tcp; p.Reached = r; return p }
	for name, c := range map[string]struct {
		a, b House
		want Difference
	}{
		"same":                      {unit("active", "running", true, 0), unit("active", "running", true, 0), Difference{}},
		"failed":                    {unit("active", "running", true, 0), unit("failed", "failed", true, 0), Difference{Worse: []string{"x.service failed; it was active (running)"}}},
		"was failed":                {unit("failed", "failed", true, 0), unit("failed", "failed", true, 0), Difference{Other: []string{"x.service is failed, as before"}}},
		"better":                    {unit("failed", "failed", true, 0), unit("active", "running", true, 0), Difference{Better: []string{"x.service is active (running); it was failed"}}},
		"stopped":                   {unit("active", "running", true, 0), unit("inactive", "dead", true, 0), Difference{Worse: []string{"x.service is inactive (dead); it was active (running)"}}},
		"on demand":                 {unit("active", "running", false, 0), unit("inactive", "dead", false, 0), Difference{Other: []string{"x.service is inactive (dead); it was active (running)"}}},
		"did its work":              {unit("active", "exited", true, 0), unit("inactive", "dead", true, 0), Difference{Other: []string{"x.service is inactive (dead); it was active (exited)"}}},
		"again and again":           {unit("active", "running", true, 0), unit("activating", "auto-restart", true, 3), Difference{Worse: []string{"x.service ends and is restarted by itself (3 times, before 0)"}}},
		"restarted":                 {unit("active", "running", true, 2), unit("active", "running", true, 0), Difference{Other: []string{"x.service was restarted"}}},
		"gone":                      {unit("active", "running", true, 0), House{BootID: "a", Units: []Unit{{Name: "y.service", Active: "active"}}}, Difference{Worse: []string{"x.service is gone; it was active (running)"}}},
		"empty":                     {unit("active", "running", false, 0), House{BootID: "b"}, Difference{Other: []string{"it was booted anew in between", "x.service is gone; it was active (running)", "y.service is gone; it was active"}, Unread: []string{"neither services nor ports are known from after"}}},
		"deaf":                      {port(tcp), port(), Difference{Worse: []string{"nothing listens on tcp port 80 on 0.0.0.0 (web) any more"}}},
		"new":                       {port(), port(tcp), Difference{Other: []string{"something listens on tcp port 80 on 0.0.0.0 (web) that did not before"}}},
		"unreached":                 {port(reached(&yes)), port(reached(&no)), Difference{Worse: []string{"tcp port 80 on 0.0.0.0 (web) is not reached any more"}}},
		"not tried":                 {port(reached(&yes)), port(tcp), Difference{Unread: []string{"whether tcp port 80 on 0.0.0.0 (web) is reached was not tried again"}}},
		"an account's ends":         {port(Port{Proto: "tcp", Address: "*", Port: 8080, Owner: "account", Reached: &yes}), port(), Difference{Other: []string{"nothing listens on tcp port 8080 on * any more, which was of an ordinary account and does not count"}}},
		"an account's not tried":    {port(Port{Proto: "tcp", Address: "*", Port: 8080, Owner: "account", Reached: &yes}), port(Port{Proto: "tcp", Address: "*", Port: 8080, Owner: "account"}), Difference{}},
		"the system's ends":         {port(Port{Proto: "tcp", Address: "*", Port: 8080, Owner: "system"}), port(), Difference{Worse: []string{"nothing listens on tcp port 8080 on * any more"}}},
		"nobody tells whose it was": {port(Port{Proto: "tcp", Address: "*", Port: 8080}), port(), Difference{Worse: []string{"nothing listens on tcp port 8080 on * any more"}}},
		"an account takes it over":  {port(Port{Proto: "tcp", Address: "*", Port: 8080, Owner: "system", Reached: &yes}), port(Port{Proto: "tcp", Address: "*", Port: 8080, Owner: "account", Reached: &yes}), Difference{Worse: []string{"tcp port 8080 on * is of an ordinary account now; it was the system's"}}},
		"passing":                   {port(Port{Proto: "udp", Address: "*", Port: 40000}), port(Port{Proto: "udp", Address: "*", Port: 40001}), Difference{}},
	} {
		if d := cmp.Diff(c.want, Compare(c.a, c.b)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	var many House
	for i := range 3000 {
		many.Units = append(many.Units, Unit{Name: fmt.Sprint(i), Active: "active", Enabled: true})
	}
	if d := Compare(many, unit("active", "", true, 0)); len(d.Worse) > maxTexts {
		t.Errorf("%d lines", len(d.Worse))
	}
}

func TestStartedAndProgress(t *testing.T) {
	for row, want := range map[string]Started{"started|a.1": {ID: "a.1"}, "already|a.1": {ID: "a.1", Already: true}, "refused|busy": {Refused: "busy"}} {
		if got, err := ParseStarted(lines("upgrade-security", row)); err != nil || got != want {
			t.Errorf("%s: %+v %v", row, got, err)
		}
	}
	for _, rows := range [][]string{nil, {"started|a", "refused|b"}, {"started|a", "already|a"}, {"started|a", "started|b"}} {
		if got, err := ParseStarted(lines("upgrade-all", rows...)); err == nil {
			t.Errorf("%q: %+v", rows, got)
		}
	}
	p, err := ParseProgress(lines("progress", "outcome|running", "id|a.1", "mode|all", "began|1796040000", "note|it waits", "log|x", "log-bytes|2"))
	if err != nil || p.State != "running" || p.Log != "x\n" || p.Note != "it waits" || len(p.Unread) > 0 {
		t.Errorf("%+v %v", p, err)
	}
}

func FuzzReports(f *testing.F) {
	f.Add(check("fresh|yes", "all|upgrade a:all 1 2 Debian:bookworm|0|-"))
	f.Add(lines("result", went...))
	f.Add(lines("services", "unit|x|active|running|1|0", "port|tcp|0.0.0.0|22|sshd", "init|running"))
	f.Add(lines("progress", "outcome|running", "log|\x1b[2J"))
	f.Add(lines("repair", "started|x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var all []any
		if r, err := ParseCheck(b, noon); err == nil {
			r.Ready("all")
			all = append(all, r)
		}
		if r, err := ParseStatus(b, noon); err == nil {
			all = append(all, r)
		}
		if h, err := ParseServices(b); err == nil {
			all = append(all, h)
		}
		if o, err := ParseResult(b); err == nil {
			o.Verdict()
			all = append(all, o)
		}
		if p, err := ParseProgress(b); err == nil {
			all = append(all, p)
		}
		if s, err := ParseStarted(b); err == nil {
			all = append(all, s)
		}
		for _, v := range all {
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if len(text) > 8<<20 || strings.Contains(string(text), `\u001b`) || strings.Contains(string(text), `\u0000`) {
				t.Errorf("%d bytes: %.300s", len(text), text)
			}
		}
	})
}

func FuzzChange(f *testing.F) {
	f.Add("upgrade demo-lib:all 1.0 1.1 Debian-Security:bookworm-security")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := ParseChange(text); err == nil && c.String() != text {
			t.Errorf("%q was read as %q", text, c.String())
		}
	})
}

// TestNotKnownIsNotWorse: what could only not be told speaks against nothing; with it alone a way back must not begin.
func TestNotKnownIsNotWorse(t *testing.T) {
	well := Outcome{ID: "p.1", State: "ended", Mode: "all", Asked: Transaction{{Name: "x"}}, Packages: State{Clean: true}, Before: &House{}, After: &House{}}
	for name, c := range map[string]struct {
		change           func(o *Outcome)
		against, unknown bool
	}{
		"well":                 {func(*Outcome) {}, false, false},
		"unread":               {func(o *Outcome) { o.Services.Unread = []string{"whether port 80 is reached was not tried again"} }, false, true},
		"nothing to compare":   {func(o *Outcome) { o.After = nil }, false, true},
		"its end is not known": {func(o *Outcome) { o.State = "lost" }, false, true},
		"worse":                {func(o *Outcome) { o.Services.Worse = []string{"x is failed"} }, true, false},
		"missing, unread":      {func(o *Outcome) { o.Missing, o.Services.Unread = Transaction{{Name: "y"}}, []string{"ports"} }, true, true},
		"not clean":            {func(o *Outcome) { o.Packages.Clean = false }, true, false},
		"refused":              {func(o *Outcome) { o.State = "refused" }, true, false},
	} {
		o := well
		c.change(&o)
		against, unknown := o.Judge()
		ok, why := o.Verdict()
		if len(against) > 0 != c.against || len(unknown) > 0 != c.unknown || ok != (!c.against && !c.unknown) || len(why) != len(against)+len(unknown) {
			t.Errorf("%s: against %q, unknown %q, %v", name, against, unknown, ok)
		}
	}
}
