package hostapt

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"castellan/internal/patch"
)

const policyText = `Package files:
 100 /var/lib/dpkg/status
     release a=now
 500 http://pve.example/debian/pve bookworm/pve-no-subscription amd64 Packages
     release o=Proxmox,a=stable,n=bookworm,l=Proxmox Debian Repository,c=pve-no-subscription,b=amd64
     origin pve.example
 500 http://pve.example/debian/ceph-reef bookworm/no-subscription amd64 Packages
     release o=Proxmox,a=stable,n=bookworm,l=Proxmox Ceph 18 Debian Repository,c=no-subscription,b=amd64
     origin pve.example
 500 https://other.example/linux/debian bookworm/stable amd64 Packages
     release o=Docker,a=bookworm,l=Docker CE, of a sort,c=stable,b=amd64
     origin other.example
 100 http://mirror.example/debian bookworm-backports/main amd64 Packages
     release o=Debian Backports,a=stable-backports,n=bookworm-backports,l=Debian Backports,c=main,b=amd64
     origin mirror.example
 500 http://mirror.example/debian-security bookworm-security/main amd64 Packages
     release v=12,o=Debian,a=stable-security,n=bookworm-security,l=Debian-Security,c=main,b=amd64
     origin mirror.example
 500 http://mirror.example/debian trixie/main amd64 Packages
     release v=13,o=Debian,a=testing,n=trixie,l=Debian,c=main,b=amd64
     origin mirror.example
 500 file:/srv/own ./ Packages
     release c=
Pinned packages:
     docker-ce -> 5:20 with priority 900
`

func TestSources(t *testing.T) {
	all := parsePolicy(policyText)
	if len(all) != 8 {
		t.Fatalf("%d: %+v", len(all), all)
	}
	for i := range all {
		all[i].proved = slices.Contains(makers, all[i].origin)
	}
	var got []string
	for _, s := range all {
		official, other := "", ""
		if s.official("bookworm") {
			official = " official"
		}
		if s.otherRelease("bookworm") {
			other = " other"
		}
		got = append(got, s.archive()+" "+string(s.sort("bookworm"))+official+other)
	}
	want := []string{"unknown:now third_party", "Proxmox:bookworm/pve-no-subscription official official", "Proxmox-Ceph-18:bookworm/no-subscription official official",
		"Docker_CE__of_a_sort:bookworm third_party", "Debian_Backports:bookworm-backports third_party", "Debian-Security:bookworm-security security official", "Debian:trixie third_party other", "unknown third_party"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	p := pins(all, "bookworm")
	for _, line := range []string{"Pin: release o=Docker,a=bookworm,c=stable\n", "n=bookworm-backports", "n=trixie", "Pin: origin \"\"\n"} {
		if !strings.Contains(p, line) {
			t.Errorf("no %q in\n%s", line, p)
		}
	}
	if strings.Contains(p, "Proxmox") || strings.Contains(p, "security") {
		t.Errorf("it shuts out what is official:\n%s", p)
	}
	for _, a := range got {
		name, _, _ := strings.Cut(a, " ")
		if _, err := patch.ParseChange("install x:amd64 - 1 " + name); err != nil {
			t.Error(err)
		}
	}
}

func TestPolicyOf(t *testing.T) {
	k := parsePolicyOf("demo-shadow:\n  Installed: 1.0\n  Candidate: 1.1\n  Version table:\n     9.0 -1\n        500 https://other.example/linux/debian bookworm/stable amd64 Packages\n" +
		"     1.1 500\n        500 http://mirror.example/debian-security bookworm-security/main amd64 Packages\n *** 1.0 100\n        100 /var/lib/dpkg/status\nlibc6:i386:\n  Installed: (none)\n  Candidate: 2\n  Version table:\n     2 500\n        500 x y z Packages\n")
	s, ok := best(k["demo-shadow"].archives("1.1", parsePolicy(policyText)), "bookworm")
	if !ok || s.archive() != "Debian-Security:bookworm-security" || k["demo-shadow"].installed != "1.0" || len(k["demo-shadow"].versions) != 3 || k["libc6:i386"].candidate != "2" {
		t.Errorf("%+v %+v", s, k)
	}
}

func TestSimulation(t *testing.T) {
	got, err := parseSimulation(`NOTE: This is only a simulation!
Reading package lists...
The following packages have been kept back:
  demo-held demo-third
  demo-other
The following packages will be upgraded:
  libc6
Remv demo-old [1.0] [demo-repl:amd64 ]
Inst demo-repl [1.0] (1.1 Debian-Security:12/stable-security [all])
Inst libc6:i386 [2.36-9] (2.36-10 Debian:12.5/stable, Debian-Security:12/stable-security [i386]) []
Inst proxmox-kernel-6.8.12-5-pve-signed (6.8.12-5 Proxmox Debian Repository:stable [amd64])
Conf libc6:i386 (2.36-10 Debian:12.5/stable [i386])
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []move{{name: "demo-old", old: "1.0", remove: true}, {name: "demo-repl", arch: "all", old: "1.0", fresh: "1.1"}, {name: "libc6", arch: "i386", old: "2.36-9", fresh: "2.36-10"},
		{name: "proxmox-kernel-6.8.12-5-pve-signed", arch: "amd64", fresh: "6.8.12-5"}}
	if d := cmp.Diff(want, got.moves, cmp.AllowUnexported(move{})); d != "" {
		t.Error(d)
	}
	if !slices.Equal(got.kept, []string{"demo-held", "demo-third", "demo-other"}) {
		t.Error(got.kept)
	}
	for _, bad := range []string{"Inst x [1", "Inst x", "Remv x"} {
		if _, err := parseSimulation(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func transaction(t *testing.T, texts ...string) patch.Transaction {
	t.Helper()
	out, err := patch.ParseTransaction(texts)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestForbidden(t *testing.T) {
	for text, bad := range map[string]bool{
		"remove proxmox-ve:all 8.1.0 - -": true, "remove proxmox-backup-server:amd64 3 - -": true, "remove proxmox-mailgateway:all 8 - -": true, "remove pve-manager:amd64 8 - -": true,
		"remove openssh-server:amd64 1 - -": true, "remove sudo:amd64 1 - -": true, "remove proxmox-kernel-6.8.12-4-pve-signed:amd64 6 - -": true, "remove proxmox-kernel-6.8.12-3-pve-signed:amd64 6 - -": false,
		"remove linux-image-amd64:amd64 6 - -": false, "remove telnet:amd64 1 - -": false, "remove essential-thing:amd64 1 - -": true,
		"upgrade pve-manager:amd64 8.4.1 9.0.3 Proxmox:trixie": true, "upgrade pve-manager:amd64 8.2.2 8.4.1 Proxmox:bookworm": false, "upgrade base-files:amd64 12.4+deb12u1 13 Debian:trixie": true,
		"upgrade base-files:amd64 12.4+deb12u1 12.4+deb12u5 Debian:bookworm": false, "install proxmox-ve:all - 9 Proxmox:bookworm": false,
	} {
		got := Forbidden(transaction(t, text), "6.8.12-4-pve", func(name string) bool { return name == "essential-thing" })
		if len(got) > 0 != bad {
			t.Errorf("%s: %q", text, got)
		}
	}
}

func TestMatch(t *testing.T) {
	later := func(a, b string) bool { return a > b }
	asked := []string{"upgrade a:all 1 2 D:b", "remove b:all 1 - -", "install c:all - 3 D:b"}
	for _, tt := range []struct {
		now   []string
		newer bool
		same  bool
	}{
		{asked, false, true},
		{[]string{"upgrade a:all 1 3 D:b", asked[1], asked[2]}, true, true},
		{[]string{"upgrade a:all 1 3 D:b", asked[1], asked[2]}, false, false},
		{[]string{"upgrade a:all 1 1.5 D:b", asked[1], asked[2]}, true, false},
		{[]string{"upgrade a:all 1 3 X:b", asked[1], asked[2]}, true, false},
		{[]string{"upgrade a:all 1.1 2 D:b", asked[1], asked[2]}, true, false},
		{append([]string{"upgrade d:all 1 2 D:b"}, asked...), true, false},
		{asked[:2], true, false},
		{[]string{asked[0], "upgrade b:all 1 2 D:b", asked[2]}, true, false},
		{nil, true, false},
	} {
		if why := Match(transaction(t, asked...), transaction(t, tt.now...), tt.newer, later); why == "" != tt.same {
			t.Errorf("%v %v: %q", tt.now, tt.newer, why)
		}
	}
}

func TestKernels(t *testing.T) {
	for name, want := range map[string]string{"proxmox-kernel-6.8.12-5-pve-signed": "6.8.12-5-pve", "pve-kernel-5.15.143-1-pve": "5.15.143-1-pve", "linux-image-6.1.0-28-amd64": "6.1.0-28-amd64", "proxmox-kernel-6.8": "",
		"proxmox-kernel-helper": "", "linux-image-amd64": "", "proxmox-default-kernel": ""} {
		if got, _ := kernelOf(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
