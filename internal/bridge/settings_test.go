//go:build linux

package bridge

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSettingsAreRootsAlone(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "bridge.toml")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(want string) {
		t.Helper()
		if _, err := LoadSettings(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	write("guests = ['101']\n[lanes]\nlxc = ['probe']\n", 0o644)
	s, err := LoadSettings(path)
	if err != nil || !s.allows(101) || s.allows(102) || s.Limits.Seconds != 300 {
		t.Fatalf("%+v %v", s, err)
	}
	write("", 0o660)
	refused("chmod")
	write("", 0o606)
	refused("chmod")
	for text, want := range map[string]string{
		"guest = ['101']": "keys that no setting has", "guests = ['0101']": "no id", "guests = ['101 -- sh']": "no id", "guests = ['99']": "no id", "[lanes]\nlxc = ['exec']": "no lane", "words = ['reboot']": "words",
		"[limits]\nseconds = 99999": "limits.seconds", "[limits]\nkeep = 5": "limits.keep", "[root]\nenabled = true": "root.secret", "state = 'x'": "absolute", "[[rules.commands]]\npools = ['p']\nargv = 'id'": "pools",
		"[[rules.commands]]\nguests = ['101']\nargv = 'sh -c <word>'": "no rule can allow", "guests = ": "bridge.toml",
	} {
		write(text, 0o600)
		refused(want)
	}
	write("", 0o600)
	link := filepath.Join(dir, "link.toml")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadSettings(link); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link: %v", err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "folder")); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadSettings(filepath.Join(dir, "folder/bridge.toml")); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a folder that is a link: %v", err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	refused("others may write in the folder")
	if os.Geteuid() == 0 {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, 1234, 0); err != nil {
			t.Fatal(err)
		}
		refused("belongs to user 1234")
	}
	if _, err := LoadSettings("bridge.toml"); err == nil {
		t.Error("a relative path")
	}
}

// TestTheExampleIsValid: what install writes can be read, and switches nothing on.
func TestTheExampleIsValid(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "bridge.toml")
	if err := os.WriteFile(path, []byte(exampleSettings), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := LoadSettings(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Guests)+len(s.Lanes.Host)+len(s.Lanes.LXC)+len(s.Files)+len(s.Words) > 0 || s.Root.Enabled {
		t.Errorf("something is on: %+v", s)
	}
}

func TestTheKeeperKeepsBeginAndEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(2, 64).Draw(t, "most")
		k := newKeeper(most, true)
		var all []byte
		for _, part := range rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 50), 0, 12).Draw(t, "parts") {
			all = append(all, part...)
			if n, err := k.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		o := k.output()
		if o.Total != int64(len(all)) || len(o.Head)+len(o.Tail) > most/2*2 {
			t.Fatalf("total %d of %d, kept %d+%d of %d", o.Total, len(all), len(o.Head), len(o.Tail), most)
		}
		if !bytes.HasPrefix(all, o.Head) || !bytes.HasSuffix(all, o.Tail) {
			t.Fatalf("%q is not begin %q and end %q", all, o.Head, o.Tail)
		}
		if len(all) <= most/2*2 && !bytes.Equal(o.Head, all) {
			t.Fatalf("all of %q fits, kept %q", all, o.Head)
		}
	})
}

func TestOnlyTheCurrentSectionCounts(t *testing.T) {
	conf, err := currentSection([]byte("# a note\nrootfs: local:1/a.raw,size=1G\nnet1: name=eth1,hwaddr=BB\nnet0: name=eth0,hwaddr=AA,ip=dhcp\nlxc.mount.entry: a\nlxc.mount.entry: b\n\n[snap]\nrootfs: other\ntemplate: 1\n"))
	if err != nil || conf["rootfs"] != "local:1/a.raw,size=1G" || conf["template"] != "" || firstMAC(conf) != "AA" {
		t.Errorf("%v %v", conf, err)
	}
	for _, bad := range []string{"rootfs: a\nrootfs: b\n", "no colon\n"} {
		if _, err := currentSection([]byte(bad)); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

func TestStatWithAnyName(t *testing.T) {
	for _, name := range []string{"sh", "a b", ") R 1 1 1", "(x", "\n"} {
		s, err := parseStat(7, fmt.Appendf(nil, "7 (%s) S 3 5 6 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0\n", name))
		if err != nil || s.parent != 3 || s.group != 5 || s.leader != 6 || s.started != 12345 || s.state != 'S' {
			t.Errorf("%q: %+v %v", name, s, err)
		}
	}
	if _, err := parseStat(7, []byte("7 (sh) S")); err == nil {
		t.Error("too short passes")
	}
}

func TestKeysAreRestricted(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHVb9fVQJ4VbZ0n9lW3n9b1cR1oH3nQm0m3Wm8nY5b2s"
	for _, i := range []Installation{{Key: "x", From: []string{"10.0.0.1"}}, {Key: key}, {Key: key, From: []string{`10.0.0.1" ssh-rsa`}}, {Key: key, From: []string{"*"}}, {Key: `command="id" ` + key, From: []string{"10.0.0.1"}}, {Key: key + "\n" + key, From: []string{"10.0.0.1"}}} {
		if line, err := i.authorizedKey(); err == nil {
			t.Errorf("%+v: %s", i, line)
		}
	}
	line, err := Installation{Key: key + " me@there\n", From: []string{"10.0.0.1", "fd00::/8"}}.authorizedKey()
	if err != nil || line != `restrict,from="10.0.0.1,fd00::/8",command="/usr/bin/sudo -n /usr/local/sbin/castellan bridge run" `+key+" castellan\n" {
		t.Errorf("%q %v", line, err)
	}
}

// The account that SSH opens has no login shell's PATH: programs of the node are found without it.
func TestProgramsAreFoundWithoutAPath(t *testing.T) {
	t.Setenv("PATH", "/nonexistent")
	if p, err := tool("", "sh"); err != nil || !filepath.IsAbs(p) {
		t.Errorf("%q %v", p, err)
	}
	if p, err := tool("", "no-such-program"); err == nil {
		t.Errorf("found %q", p)
	}
}
