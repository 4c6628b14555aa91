//go:build linux

package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	passwd = `root:x:0:0:root:/root:/bin/bash
castellan:x:450:450::/var/lib/castellan:/usr/sbin/nologin
twin:x:451:451::/:/usr/sbin/nologin
twin2:x:451:451::/:/bin/sh
shelly:x:452:452::/:/bin/bash
bare:x:453:453::/:
person:x:1500:1500::/home/person:/usr/sbin/nologin
ann:x:1000:1000::/home/ann:/bin/bash
bob:x:1001:27::/home/bob:/bin/bash
cyd:x:1002:1002::/home/cyd:/bin/bash
dan:x:1003:450::/home/dan:/bin/bash
eve:x:1004:1004::/home/eve:/bin/bash
fay:x:1005:0::/home/fay:/bin/bash
toor:x:0:1006::/root:/bin/sh
same:x:450:1007::/:/usr/sbin/nologin
`
	groupFile = `sudo:x:27:
docker:x:999:cyd,ann2
castellan:x:450:eve
users:x:100:ann,bob
`
)

func machine(t *testing.T, without ...string) Accounts {
	t.Helper()
	dir := t.TempDir()
	text := passwd
	for _, name := range without {
		var kept []string
		for _, line := range strings.SplitAfter(text, "\n") {
			if !strings.HasPrefix(line, name+":") {
				kept = append(kept, line)
			}
		}
		text = strings.Join(kept, "")
	}
	for name, b := range map[string]string{"passwd": text, "group": groupFile} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(b), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Accounts{Passwd: filepath.Join(dir, "passwd"), Group: filepath.Join(dir, "group")}
}

func TestWhatIsSeparate(t *testing.T) {
	m := machine(t, "same")
	for name, c := range map[string]struct {
		claim Claim
		says  string // "" = separate
	}{
		"nothing configured":    {Claim{UID: 450}, "names no account"},
		"as it should be":       {Claim{Account: "castellan", UID: 450, Served: []string{"ann"}, Accounts: m}, ""},
		"nobody served":         {Claim{Account: "castellan", UID: 450, Accounts: m}, ""},
		"looked at from aside":  {Claim{Account: "castellan", UID: -1, Served: []string{"ann"}, Accounts: m}, ""},
		"no such account":       {Claim{Account: "nosuch", UID: 450, Accounts: m}, "has not"},
		"root":                  {Claim{Account: "root", UID: 0, Accounts: m}, "system account"},
		"a person's account":    {Claim{Account: "person", UID: 1500, Accounts: m}, "system account"},
		"a login shell":         {Claim{Account: "shelly", UID: 452, Accounts: m}, "login shell"},
		"the usual shell":       {Claim{Account: "bare", UID: 453, Accounts: m}, "login shell"},
		"a twin":                {Claim{Account: "twin", UID: 451, Accounts: m}, "same number"},
		"runs as another":       {Claim{Account: "castellan", UID: 0, Accounts: m}, "runs as user 0, not as"},
		"serves root":           {Claim{Account: "castellan", UID: 450, Served: []string{"root"}, Accounts: m}, "is root"},
		"serves another root":   {Claim{Account: "castellan", UID: 450, Served: []string{"toor"}, Accounts: m}, "is root"},
		"serves itself":         {Claim{Account: "castellan", UID: 450, Served: []string{"castellan"}, Accounts: m}, "own account"},
		"serves itself by name": {Claim{Account: "castellan", UID: 450, Served: []string{"same"}, Accounts: machine(t)}, "own account"},
		"serves nobody's":       {Claim{Account: "castellan", UID: 450, Served: []string{"ghost"}, Accounts: m}, "has not"},
		"primary group sudo":    {Claim{Account: "castellan", UID: 450, Served: []string{"bob"}, Accounts: m}, "group sudo"},
		"member of docker":      {Claim{Account: "castellan", UID: 450, Served: []string{"cyd"}, Accounts: m}, "group docker"},
		"primary group root":    {Claim{Account: "castellan", UID: 450, Served: []string{"fay"}, Accounts: m}, "group of root"},
		"its group":             {Claim{Account: "castellan", UID: 450, Served: []string{"dan"}, Accounts: m}, "of the daemon's account"},
		"member of its group":   {Claim{Account: "castellan", UID: 450, Served: []string{"eve"}, Accounts: m}, "of the daemon's account"},
		"one of several":        {Claim{Account: "castellan", UID: 450, Served: []string{"ann", "cyd"}, Accounts: m}, "cyd"},
		"no files":              {Claim{Account: "castellan", UID: 450, Accounts: Accounts{Passwd: "/nonexistent"}}, "cannot be read"},
	} {
		c.claim.Accounts = orAccounts(c.claim.Accounts, m)
		s := c.claim.Judge()
		var texts []string
		for _, r := range s.Reasons {
			texts = append(texts, r.Text)
			if strings.ContainsAny(r.Short, "/:") || strings.Contains(r.Short, "ann") && !strings.Contains(r.Short, "cannot") {
				t.Errorf("%s: the short reason names something: %q", name, r.Short)
			}
		}
		if all := strings.Join(texts, "\n"); s.OK != (c.says == "") || !strings.Contains(all, c.says) {
			t.Errorf("%s: %t %s", name, s.OK, all)
		}
	}
}

func orAccounts(a, other Accounts) Accounts {
	if a.Passwd == "" {
		return other
	}
	return a
}

func TestWhatIsClosed(t *testing.T) {
	uid := os.Geteuid()
	base := t.TempDir()
	if err := os.Chmod(base, 0o700); err != nil {
		t.Fatal(err)
	}
	make := func(name string, mode os.FileMode) string {
		t.Helper()
		p := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	good, readable, writable := make("good", 0o600), make("readable", 0o640), make("writable", 0o602)
	inside := make("open/file", 0o600)
	if err := os.Chmod(filepath.Join(base, "open"), 0o770); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(good, filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(base, "open"), filepath.Join(base, "dirlink")); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{
		good: "", filepath.Join(base, "not", "yet"): "", readable: "mode is 0640", writable: "mode is 0602", inside: "others can write the folder",
		filepath.Join(base, "link"): "symbolic link", filepath.Join(base, "dirlink", "file"): "others can write the folder",
	} {
		if got := closed(path, uid); says == "" && got != "" || !strings.Contains(got, says) {
			t.Errorf("%s: %q, not %q", path, got, says)
		}
	}
	if got := closed(good, uid+1); !strings.Contains(got, "belongs to user") {
		t.Errorf("%q", got)
	}
	if got := unchanged(readable, uid); got != "" {
		t.Errorf("who may read may not change: %q", got)
	}
	if got := unchanged(writable, uid); !strings.Contains(got, "go-w") {
		t.Errorf("%q", got)
	}
}

func TestAgents(t *testing.T) {
	got, err := Settings{Accounts: []string{"ann", "bob=codex"}}.Agents("agent")
	if err != nil || len(got) != 2 || got["ann"] != "agent" || got["bob"] != "codex" {
		t.Errorf("%v %v", got, err)
	}
	for _, bad := range [][]string{{""}, {"=x"}, {"ann="}, {"ann", "ann=x"}, {"a b"}, {"a|b"}} {
		if got, err := (Settings{Accounts: bad}).Agents("agent"); err == nil {
			t.Errorf("%q is taken: %v", bad, got)
		}
	}
}
