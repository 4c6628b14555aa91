package patch

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// lines makes a report: columns are written with "|".
func lines(word string, rows ...string) []byte {
	var b strings.Builder
	b.WriteString("castellan 1 " + word + "\n")
	for _, r := range rows {
		b.WriteString(strings.ReplaceAll(r, "|", "\t") + "\n")
	}
	b.WriteString("end\n")
	return []byte(b.String())
}

var bookworm = []string{"system|debian|12|bookworm|apt|Debian GNU/Linux 12 (bookworm)", "virt|container", "boot|11111111-2222-3333-4444-555555555555", "clock|1796040000", "helper|1",
	"database|clean", "reboot|no", "automatic|on|unattended-upgrades"}

func check(rows ...string) []byte {
	return lines("check", append(append([]string{}, bookworm...), rows...)...)
}

func TestChange(t *testing.T) {
	for _, text := range []string{
		"upgrade demo-lib:all 1.0 1.1 Debian-Security:bookworm-security",
		"install libc6:amd64 - 2:2.36-9+deb12u9~x Debian:bookworm",
		"remove a:all 1 - -",
		"upgrade kernel-core:x86_64 6.11.3-200.fc41 6.11.4-200.fc41^1 updates",
	} {
		c, err := ParseChange(text)
		if err != nil || c.String() != text {
			t.Errorf("%q: %v %q", text, err, c.String())
		}
	}
	for _, text := range []string{"", "upgrade a:all 1 2", "upgrade a:all 1 1 x", "upgrade a:all - 1 x", "upgrade a:all 1 2 -", "install a:all 1 2 x", "install a:all - - x", "remove a:all 1 2 -", "remove a:all 1 - x",
		"purge a:all 1 - -", "upgrade a 1 2 x", "upgrade :all 1 2 x", "upgrade a:all 1 2 x y", "upgrade  a:all 1 2 x", "upgrade a:all 1 $(x) x", "upgrade -o:all 1 2 x", "upgrade a:all 1 2;id x",
		"upgrade a:all 1 2\n x", "upgrade a:all -1 2 x", "upgrade a:all 1 2 ../x", "upgrade ä:all 1 2 x", "upgrade " + strings.Repeat("a", 300) + ":all 1 2 x"} {
		if c, err := ParseChange(text); err == nil {
			t.Errorf("%q was read as %+v", text, c)
		}
	}
	a, b := "upgrade b:all 1 2 x", "install a:amd64 - 2 x"
	tr, err := ParseTransaction([]string{a, b})
	if err != nil || !cmp.Equal(tr.Texts(), []string{b, a}) {
		t.Errorf("transaction: %v %v", tr.Texts(), err)
	}
	for _, twice := range [][]string{{a, a}, {a, "upgrade b:all 1 3 x"}, {a, "remove b:all 1 - -"}, {b, b}, {"install k:all - 2 x", "remove k:all 2 - -"}} {
		if _, err := ParseTransaction(twice); err == nil {
			t.Errorf("taken: %q", twice)
		}
	}
	if _, err := ParseTransaction([]string{"install k:all - 2 x", "remove k:all 1 - -"}); err != nil {
		t.Errorf("a kernel that comes while one goes: %v", err)
	}
	if _, err := ParseTransaction(make([]string, maxChanges+1)); err == nil {
		t.Error("a transaction of any size is taken")
	}
}

func TestCheck(t *testing.T) {
	r, err := ParseCheck(check("fresh|yes",
		"security|upgrade demo-lib:all 1.0 1.1 Debian-Security:bookworm-security|1|700",
		"all|upgrade demo-lib:all 1.0 1.1 Debian-Security:bookworm-security|1|700",
		"all|upgrade demo-app:all 1.0 1.1 Debian:bookworm-updates|0|-",
		"pending|demo-lib|all|1.0|1.1|Debian-Security:bookworm-security|security|-|-",
		"pending|demo-held|all|1.0|1.1|Debian-Security:bookworm-security|security|held|-",
		"pending|docker|all|1.0|1.1|Docker:bookworm|third_party|third_party|-",
		"space|/|1000|20", "uncovered|2 containers of docker"), noon)
	if err != nil {
		t.Fatal(err)
	}
	if why := r.Ready("security"); len(why) > 0 || len(r.Unread) > 0 {
		t.Errorf("not ready: %q %q", why, r.Unread)
	}
	if n, kept := r.Waiting(); n != 3 || kept != 2 || r.UpToDate() {
		t.Errorf("%d pending, %d kept, up to date %v", n, kept, r.UpToDate())
	}
	if len(r.All) != 2 || r.All[0].Name != "demo-app" || !r.All[1].Security || r.All[1].Bytes != 700 || !r.Reboot.Known || r.Reboot.Needed || !r.Packages.Clean || r.ClockOff != 0 {
		t.Errorf("%+v", r)
	}
	// Eight are listed and none is installable.
	var rows []string
	for _, why := range []string{"held", "pinned", "phased", "esm_only", "third_party", "backports", "needs_removal", "kept_back"} {
		rows = append(rows, "pending|demo-"+strings.ReplaceAll(why, "_", "-")+"|all|1|2|A:b|official|"+why+"|-")
	}
	if r, err = ParseCheck(check(append(rows, "fresh|yes")...), noon); err != nil {
		t.Fatal(err)
	}
	if n, kept := r.Waiting(); n != 8 || kept != 8 || len(r.All) != 0 || r.UpToDate() {
		t.Errorf("8 with reasons: %d %d %v", n, kept, r.All)
	}
	// Nothing pending is not enough.
	for name, row := range map[string]string{"no word of freshness": "unread|x", "an archive": "stale|x is unreachable"} {
		if r, err = ParseCheck(check(row), noon); err != nil || r.Fresh || r.UpToDate() || len(r.Ready("all")) == 0 {
			t.Errorf("%s: fresh %v, up to date %v, %q, %v", name, r.Fresh, r.UpToDate(), r.Ready("all"), err)
		}
	}
	if r, err = ParseCheck(check("fresh|yes"), noon); err != nil || !r.UpToDate() {
		t.Errorf("nothing is pending: %+v %v", r, err)
	}
	if r, err = ParseCheck(check("fresh|yes", "stale|x"), noon); err != nil || r.Fresh {
		t.Errorf("fresh and stale: %+v %v", r.Fresh, err)
	}
	if r, err = ParseCheck(check("fresh|yes"), noon.Add(time.Hour)); err != nil || r.ClockOff != -3600 || len(r.Ready("all")) != 1 {
		t.Errorf("a clock: %d %q %v", r.ClockOff, r.Ready("all"), err)
	}
	if r, err = ParseCheck(check("fresh|yes"), noon.AddDate(3, 0, 0)); err != nil || r.EOL == "" {
		t.Errorf("after its end: %q %v", r.EOL, err)
	}
}

// What stands against installing, each by itself.
func TestReady(t *testing.T) {
	for row, want := range map[string]string{
		"lock|12|unattended-upgr|30": "unattended-upgr (pid 12)",
		"lock|x":                     "works on packages now",
		"running|plan.2":             "plan.2",
		"problem|demo is halfway":    "demo is halfway",
		"repair|yes":                 "repair_packages",
		"space|/boot|1000|20000000":  "/boot",
		"kind|pve":                   "",
	} {
		r, err := ParseCheck(check("fresh|yes", row), noon)
		if err != nil {
			t.Fatal(err)
		}
		if why := strings.Join(r.Ready("all"), "; "); !strings.Contains(why, want) || (want == "") != (why == "") {
			t.Errorf("%s: %q", row, why)
		}
	}
	r, err := ParseCheck(lines("check", "fresh|yes"), noon)
	if err != nil || len(r.Ready("all")) < 2 || r.Reboot.Known || r.Packages.Clean || r.Automatic.State != "unknown" || len(r.Unread) == 0 {
		t.Errorf("a report that says nothing: %q %+v %v", r.Ready("all"), r, err)
	}
}

func TestSupported(t *testing.T) {
	for row, want := range map[string]bool{"debian|12|bookworm|apt|x": true, "debian|13|trixie|apt|x": true, "debian|11|bullseye|apt|x": false, "ubuntu|22.04|jammy|apt|x": true, "ubuntu|26.04|x|apt|x": true, "ubuntu|20.04|focal|apt|x": false,
		"raspbian|12|bookworm|apt|x": false, "debian|-|-|apt|x": false, "debian|12|bookworm|-|x": false, "debian|12|bookworm|brew|x": false} {
		s, err := ParseSystem(strings.Split(row, "|"))
		if err != nil || s.Supported != want || (s.Why == "") != want {
			t.Errorf("%s: %+v %v", row, s, err)
		}
	}
}

// False and broken reports are errors, or concerns: never a better report.
func TestHostileReports(t *testing.T) {
	for name, b := range map[string][]byte{
		"empty": nil, "cut off": []byte("castellan 1 check\nfresh\tyes\n"), "only an end": []byte("end\n"), "another word": lines("services"), "another form": []byte("castellan 2 check\nend\n"),
		"goes on": append(check("fresh|yes"), "x\n"...), "two ends": append(check("fresh|yes"), "end\n"...), "endless": []byte("castellan 1 check\n" + strings.Repeat("x\n", 1<<19) + "end\n"),
		"many lines":        []byte("castellan 1 check\n" + strings.Repeat("x\n", maxLines) + "end\n"),
		"a removal":         check("all|remove a:all 1 - -|0|-"),
		"third party":       check("all|upgrade a:all 1 2 Docker:bookworm|0|-"),
		"another release":   check("all|upgrade a:all 1 2 Debian:trixie|0|-"),
		"not security":      check("security|upgrade a:all 1 2 Debian:bookworm|0|-"),
		"twice":             check("all|upgrade a:all 1 2 Debian:bookworm|0|-", "all|upgrade a:all 1 3 Debian:bookworm|0|-"),
		"no change":         check("all|$(id)|0|-"),
		"columns":           check("all|upgrade a:all 1 2 Debian:bookworm"),
		"neither 0 nor 1":   check("all|upgrade a:all 1 2 Debian:bookworm|yes|-"),
		"too many packages": check(strings.Split(strings.Repeat("all|x|0|0\n", maxChanges+1), "\n")...),
	} {
		if r, err := ParseCheck(b, noon); err == nil {
			t.Errorf("%s: taken: %+v", name, r)
		}
	}
	r, err := ParseCheck(check("fresh|yes", "boot|66666666-2222-3333-4444-555555555555", "unheard-of|x", "uncovered|\x1b]0;x\x07a\u202eb\xff", "reboot|yes|a\x00b", "pending|a|all|1|2|x|gift|-|-", "space|/|-5|x", "database|broken"), noon)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(r.Unread, "; ")
	for _, want := range []string{`"boot"`, "unheard-of", "pending update", "free on", `"database"`} {
		if !strings.Contains(all, want) {
			t.Errorf("no word of %s in %q", want, all)
		}
	}
	if r.BootID != "" || r.Packages.Clean || !r.Reboot.Needed || r.Reboot.Why[0] != "a b" || r.NotCovered[0] != " ]0;x ab?" || len(r.Pending) != 0 {
		t.Errorf("%+v", r)
	}
}
