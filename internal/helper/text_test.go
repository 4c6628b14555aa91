package helper

import (
	"bytes"
	"compress/gzip"
	"os/exec"
	"strings"
	"testing"

	"castellan/internal/patch"
)

const testKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIWm9Cz2hLXcYzC4kMH4mYtDyXnU0m0V0xqmSxS0mhUi"

func TestInstallRefuses(t *testing.T) {
	good := InstallConfig{PublicKey: testKey, From: "192.0.2.1"}
	if _, err := Install(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*InstallConfig){
		"no key":   func(c *InstallConfig) { c.PublicKey = "" },
		"options":  func(c *InstallConfig) { c.PublicKey = `command="x" ` + testKey },
		"two keys": func(c *InstallConfig) { c.PublicKey = testKey + "\n" + testKey },
		"certificate": func(c *InstallConfig) {
			c.PublicKey = strings.Replace(testKey, "ssh-ed25519", "ssh-ed25519-cert-v01@openssh.com", 1)
		},
		"a long key":      func(c *InstallConfig) { c.PublicKey = testKey + strings.Repeat("A", 9000) },
		"no address":      func(c *InstallConfig) { c.From = "" },
		"a name":          func(c *InstallConfig) { c.From = "example.org" },
		"a pattern":       func(c *InstallConfig) { c.From = "192.0.2.*" },
		"a quote":         func(c *InstallConfig) { c.From = `192.0.2.1",command="sh` },
		"a zone":          func(c *InstallConfig) { c.From = "fe80::1%eth0" },
		"a line":          func(c *InstallConfig) { c.From = "192.0.2.1\n" },
		"half a network":  func(c *InstallConfig) { c.From = "192.0.2.1/24" },
		"many addresses":  func(c *InstallConfig) { c.From = strings.Repeat("192.0.2.1,", 20) + "192.0.2.1" },
		"updates":         func(c *InstallConfig) { c.Automatic = "perhaps" },
		"another account": func(c *InstallConfig) { c.Account = "root" },
		"no such family":  func(c *InstallConfig) { c.Family = "../x" },
	} {
		c := good
		change(&c)
		if text, err := Install(c); err == nil {
			t.Errorf("%s: taken: %.200s", name, text)
		}
	}
	text, err := Install(InstallConfig{PublicKey: testKey + " a comment; $(id)", From: "::ffff:192.0.2.1,2001:DB8::/32"})
	if err != nil || !strings.Contains(text, `authorized='restrict,from="192.0.2.1,2001:db8::/32",command="/usr/local/sbin/castellan-gate" `+testKey+" castellan'\n") || strings.Contains(text, "comment;") {
		t.Errorf("%v", err)
	}
}

// The words, paths and names in the scripts are those of the code.
func TestScriptsAgree(t *testing.T) {
	text, err := Text(patch.APT)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, w := range patch.Words() {
		words = append(words, string(w))
	}
	if want := "\n" + strings.Join(words, " | ") + ") ;;\n"; !strings.Contains(GateText(), want) {
		t.Errorf("the gate does not take exactly %q", want)
	}
	if want := strings.Join(words, " | ") + ")\n"; !strings.Contains(text, want) {
		t.Errorf("the helper does not take %q", want)
	}
	for _, want := range []string{"HELPER=" + Helper, "STATE=" + State + " "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	install, err := Install(InstallConfig{PublicKey: testKey, From: "192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{Gate, Helper, Sudoers} {
		if !strings.Contains(install, path) || !strings.Contains(Uninstall(), path) {
			t.Errorf("%s is not both installed and removed", path)
		}
	}
	for name, s := range map[string]string{"gate": GateText(), "helper": text, "install": install, "uninstall": Uninstall(), "detect": Detect()} {
		var packed bytes.Buffer // as a guest agent is handed what is longer
		z := gzip.NewWriter(&packed)
		if _, err := z.Write([]byte(s)); err != nil || z.Close() != nil {
			t.Fatal(err)
		}
		if len(s) > 128<<10 || packed.Len() > 40<<10 {
			t.Errorf("%s has %d bytes, packed %d: a guest agent takes 60 KiB at once, in letters", name, len(s), packed.Len())
		}
		if sh, err := exec.LookPath("dash"); err == nil {
			cmd := exec.Command(sh, "-n")
			cmd.Stdin = strings.NewReader(s)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v %s", name, err, out)
			}
		}
	}
	if _, err := Text("none"); err == nil {
		t.Error("there is a helper for no family")
	}
}

func TestInput(t *testing.T) {
	tr, err := patch.ParseTransaction([]string{"upgrade b:all 1 2 A:x", "install a:amd64 - 2 A:x"})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := Input("plan.2", true, nil, tr); err != nil || string(b) != "id plan.2\nnewer 1\nguest -\ninstall a:amd64 - 2 A:x\nupgrade b:all 1 2 A:x\nend\n" {
		t.Errorf("%q %v", b, err)
	}
	for _, id := range []string{"", "a b", "a\nb", "-a", "../a", "a/b", strings.Repeat("a", 81), "ä"} {
		if _, err := Input(id, false, nil, tr); err == nil {
			t.Errorf("id %q is taken", id)
		}
	}
	if b, err := Input("a", false, []string{"BC:24:11:00:00:01", "bc:24:11:00:00:02"}, nil); err != nil || string(b) != "id a\nnewer 0\nguest bc:24:11:00:00:01,bc:24:11:00:00:02\nend\n" {
		t.Errorf("%q %v", b, err)
	}
	for _, card := range []string{"", "-", "bc:24:11:00:00:01\nend", "02:00:5e:10:00:00:00:01", "bc:24:11:00:00:01,"} {
		if _, err := Input("a", false, []string{card}, nil); err == nil {
			t.Errorf("the hardware address %q was taken", card)
		}
	}
	if _, err := Input("a", false, nil, patch.Transaction{{Action: "upgrade", Name: "x\nend"}}); err == nil {
		t.Error("a change that is none is taken")
	}
}

func TestParseInstalled(t *testing.T) {
	report := func(rows ...string) []byte {
		return []byte("castellan 1 enrol\n" + strings.ReplaceAll(strings.Join(rows, "\n"), "|", "\t") + "\nend\n")
	}
	system, key := "system|debian|12|bookworm|apt|Debian", "host-key|"+strings.Replace(testKey, " ", "|", 1)
	in, err := ParseInstalled(report(system, key, "account|castellan", "port|22", "installed|sudo", "automatic|off", "helper|1"))
	if err != nil || len(in.HostKeys) != 1 || in.HostKeys[0] != testKey || in.Port != 22 || in.System.Family != patch.APT || !in.System.Supported || in.Automatic.State != "off" || len(in.Packages) != 1 || len(in.Notes) != 0 {
		t.Errorf("%+v %v", in, err)
	}
	for name, b := range map[string][]byte{"no key": report(system, "account|castellan", "port|22"), "no real key": report(system, "host-key|ssh-ed25519|x", "account|castellan", "port|22"),
		"an account": report(system, key, "account|root", "port|22"), "no port": report(system, key, "account|castellan"), "cut": []byte("castellan 1 enrol\n"), "another word": []byte("castellan 1 check\nend\n")} {
		if in, err := ParseInstalled(b); err == nil {
			t.Errorf("%s: %+v", name, in)
		}
	}
	if in, err := ParseInstalled(report("refused|castellan does not look after this")); err != nil || in.Refused == "" {
		t.Errorf("%+v %v", in, err)
	}
}
