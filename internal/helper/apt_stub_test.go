package helper

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"castellan/internal/patch"
)

// inside runs a function of apt's helper with stand-ins for the programs that it calls.
func inside(t *testing.T, call string, programs map[string]string) (dir, out string) {
	t.Helper()
	text, err := Text(patch.APT)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	write := func(name, content string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, script := range programs {
		write(name, "#!/bin/sh\necho \""+name+" $*\" >>'"+dir+"/calls'\n"+script+"\n", 0o755)
	}
	write("calls", "", 0o644)
	write("helper", strings.Replace(text, "\nmain \"$@\"\n", "\nPATH='"+dir+"':$PATH tmp='"+dir+"' run='"+dir+"' m=all\n"+call+"\n", 1), 0o644)
	b, _ := exec.Command("sh", filepath.Join(dir, "helper")).CombinedOutput() // its exit code is printed where it counts
	return dir, string(b)
}

// A repair brings no package that is not there, and takes none away: no plan names them.
func TestRepairBringsNothing(t *testing.T) {
	const brings = "echo 'Inst demo-new (1.0 Debian:12/stable [all])'; echo 'Inst demo-half [1.0] (1.0 Debian:12/stable [all])'; echo 'Conf demo-new (1.0)'"
	for name, c := range map[string]struct {
		sim, note string
		runs      bool
	}{
		"as asked: install demo-new:all - 1.0 Debian:bookworm":              {brings, "", true},
		"less than asked: install demo-new:all - 1.0 Debian:bookworm":       {"echo 'Conf demo-a (1.0 Debian:12/stable [all])'", "would not do what the plan names", false},
		"another version: install demo-new:all - 1.1 Debian:bookworm":       {brings, "would not do what the plan names, but: install demo-new:all - 1.0 Debian:bookworm;", false},
		"more than asked: install demo-new:all - 1.0 Debian:bookworm":       {brings + "; echo 'Inst demo-b (1 Debian:12/stable [all])'", "would not do what the plan names", false},
		"asked, and it removes: install demo-new:all - 1.0 Debian:bookworm": {brings + "; echo 'Remv demo-old [1.0]'", "would not do what the plan names", false},
		"configures":    {"echo 'Conf demo-a (1.0 Debian:12/stable [all])'", "", true},
		"unpacks anew":  {"echo 'Inst demo-half [1.0] (1.0 Debian:12/stable [all])'; echo 'Conf demo-half (1.0)'", "", true},
		"for the first": {"echo 'Inst demo-half (1.0 Debian:12/stable [all])'; echo 'Conf demo-half (1.0)'", "", true},
		"a newer one":   {"echo 'Inst demo-half [1.0] (1.1 Debian:12/stable [all])'; echo 'Conf demo-half (1.1)'", "would install demo-half (1.1), which no plan names", false},
		"as planned: upgrade demo-half:all 1.0 1.1 Debian:bookworm": {"echo 'Inst demo-half [1.0] (1.1 Debian:12/stable [all])'; echo 'Conf demo-half (1.1)'", "", true},
		"and another":    {"echo 'Inst demo-half [1.0] (1.1 x [all])'; echo 'Inst demo-new (1.0 x [all])'", "would install demo-new demo-half (1.1), which no plan names", false},
		"installs":       {"echo 'Inst demo-new (1.0 Debian:12/stable [all])'; echo 'Conf demo-new (1.0)'", "would install demo-new, which no plan names", false},
		"removes":        {"echo 'Remv demo-old [1.0]'", "would remove demo-old, which no plan names", false},
		"both":           {"echo 'Inst demo-new (1.0 x [all])'; echo 'Inst demo-b (1 x [all])'; echo 'Purg demo-old [1.0]'", "would install demo-b demo-new and remove demo-old, which", false},
		"does not know":  {"echo 'E: Unmet dependencies'; exit 100", "cannot work out what would complete it: Unmet dependencies", false},
		"says no reason": {"exit 100", "cannot work out", false},
	} {
		t.Run(name, func(t *testing.T) {
			_, asked, _ := strings.Cut(name, ": ")
			dir, out := inside(t, "archives() { echo 'x|Debian|stable|official|Debian:bookworm|Debian|bookworm' >$tmp/archives; }\nview() { :; }\n[ -z '"+asked+"' ] || echo '"+asked+"' >$run/asked\nfam_repair\necho \"code $?\"", map[string]string{
				"dpkg":       "exit 1",
				"dpkg-query": "echo 'iHR|demo-half:all 1.0'; echo 'ii |demo-new:all 1.0'; echo 'iF |demo-a:all 1.0'",
				"apt-get":    "case \"$*\" in *check*) exit 100 ;; *' -s '*) " + c.sim + " ;; esac",
			})
			note, _ := os.ReadFile(filepath.Join(dir, "note")) // absent where there is nothing to say
			calls, err := os.ReadFile(filepath.Join(dir, "calls"))
			if err != nil {
				t.Fatal(err)
			}
			ran := false
			for line := range strings.Lines(string(calls)) {
				ran = ran || strings.Contains(line, " install") && !strings.Contains(line, " -s ")
			}
			if ran != c.runs || !strings.Contains(string(note), c.note) || (c.note == "") != (len(note) == 0) || !c.runs && !strings.Contains(out, "code 1\n") {
				t.Errorf("ran %v, note %q\n%s\n%s", ran, note, calls, out)
			}
		})
	}
}

// At the last moment a repair brings what was simulated, and configures whatever is there.
func TestTheHookOfARepair(t *testing.T) {
	const half, fresh = "demo-half 1.0 all - = 1.0 all - /x.deb\n", "demo-new - - none < 1.0 all none /y.deb\n"
	for name, c := range map[string]struct{ mode, exact, does, want string }{
		"as simulated":       {"repair", "upgrade demo-half:all 1.0 1.0 a\ninstall demo-new:all - 1.0 a\n", half + fresh, ""},
		"configures others":  {"repair", "upgrade demo-half:all 1.0 1.0 a\n", half + "demo-a 1.0 all none = 1.0 all none **CONFIGURE**\n", ""},
		"configures alone":   {"repair", "", "demo-a 1.0 all none = 1.0 all none **CONFIGURE**\n", ""},
		"a newer version":    {"repair", "upgrade demo-half:all 1.0 1.0 a\n", strings.ReplaceAll(half, "= 1.0", "< 1.1"), "dpkg would upgrade demo-half:all 1.0 1.1, which was not asked for"},
		"one more":           {"repair", "upgrade demo-half:all 1.0 1.0 a\n", half + fresh, "dpkg would install demo-new:all - 1.0"},
		"nothing simulated":  {"repair", "", fresh, "dpkg would install demo-new:all - 1.0"},
		"one less":           {"repair", "upgrade demo-half:all 1.0 1.0 a\ninstall demo-new:all - 1.0 a\n", half, "1 of the changes asked for would not be done"},
		"removes":            {"repair", "upgrade demo-half:all 1.0 1.0 a\n", half + "demo-old 1.0 all none > - - none **REMOVE**\n", "dpkg would remove demo-old 1.0"},
		"an upgrade may not": {"all", "upgrade demo-half:all 1.0 1.0 a\n", half + "demo-a 1.0 all none = 1.0 all none **CONFIGURE**\n", "dpkg would configure demo-a"},
	} {
		t.Run(name, func(t *testing.T) {
			_, out := inside(t, "echo "+c.mode+" >$run/mode; printf '"+c.exact+"' >$run/exact; cp $run/exact $run/asked\nprintf 'VERSION 3\\nAPT::x=1\\n\\n"+strings.ReplaceAll(c.does, "\n", "\\n")+"' | fam_hook", nil)
			if (out == "") != (c.want == "") || !strings.Contains(out, c.want) {
				t.Errorf("%q", out)
			}
		})
	}
}

// What apt does not tell of other versions is said to be not known.
func TestPolicyThatDoesNotAnswer(t *testing.T) {
	for script, silent := range map[string]bool{"exit 100": true, "echo 'demo:'; echo '  Installed: 1.0'; echo '  Candidate: 1.0'": false, "case \"$*\" in -c*) exit 100 ;; *) echo demo: ;; esac": true} {
		_, out := inside(t, "esm() { :; }\n: >$tmp/archives; : >$tmp/plan.all; : >$tmp/plan.security; : >$tmp/dpkg\npending", map[string]string{
			"dpkg-query": "echo 'ii |demo'", "apt-cache": script, "apt-mark": "", "apt-get": "",
		})
		if strings.Contains(out, "unread\twhich other versions") != silent {
			t.Errorf("%s: %q", script, out)
		}
	}
}
