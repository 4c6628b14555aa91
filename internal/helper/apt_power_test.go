//go:build linux

package helper

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"castellan/internal/guestlab"
	"castellan/internal/patch"
)

// A Debian 13 loses its power while dpkg works.
func TestTrixiePowerLoss(t *testing.T) {
	t.Parallel()
	h := enrol(t, guestlab.Guest{Suite: "trixie", Packages: []string{"demo-lib", "demo-app", "demo-slow", "docker-demo"}})
	h.Run(t, "sh", "-c", "echo 300 >/etc/demo-slow")
	r := h.check(t)
	if len(r.Security) != 2 || len(r.All) != 3 || why(r, "docker-demo") != "third_party" || len(r.Ready("all")) > 0 || len(r.Unread) > 0 {
		t.Errorf("check: %+v %q", r, r.Ready("all"))
	}
	h.start(t, patch.UpgradeAll, "power.1", false, r.All)
	progress := func() patch.Ongoing {
		p, err := patch.ParseProgress(h.word(t, patch.Progress, ""))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for end := time.Now().Add(90 * time.Second); !strings.Contains(progress().Log, "demo-slow: second"); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no progress: %+v", progress())
		}
	}
	if st, err := patch.ParseStatus(h.word(t, patch.Status, ""), time.Now()); err != nil || st.Running != "power.1" || st.Lock == nil || len(st.Ready("all")) == 0 {
		t.Errorf("status meanwhile: %+v %v", st, err)
	}
	h.Run(t, "systemctl", "restart", "ssh") // what runs is not of any connection
	if p := progress(); p.State != "running" {
		t.Errorf("%+v", p)
	}
	h.PowerLoss(t)
	h.Boot(t)
	o := h.result(t)
	if ok, why := o.Verdict(); ok || o.State != "lost" || o.ID != "power.1" || o.Packages.Clean || !o.Packages.Repair || len(o.Missing) == 0 || !strings.Contains(strings.Join(why, ";"), "its end is not known") {
		t.Errorf("after a power loss: %q %+v", why, o)
	}
	if p := progress(); p.State != "lost" {
		t.Errorf("progress: %+v", p)
	}
	if r = h.check(t); r.Packages.Clean || !strings.Contains(strings.Join(r.Ready("all"), ";"), "repair_packages") {
		t.Errorf("check: %+v", r)
	}
	in, err := Input("power.1", false, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := patch.ParseStarted(h.word(t, patch.Repair, string(in))); err != nil || !st.Already {
		t.Errorf("an id that was used: %+v %v", st, err)
	}
	h.Run(t, "sh", "-c", "echo 0 >/etc/demo-slow")
	h.start(t, patch.Repair, "power.2", false, nil)
	o = h.wait(t, "power.2")
	if ok, why := o.Verdict(); !ok {
		t.Errorf("repair: %q %+v", why, o)
	}
	if r = h.check(t); !r.Packages.Clean || len(r.All) > 1 { // where the power went, the last package may not have been begun
		t.Errorf("after the repair: %+v", r)
	}
}

// Ubuntu's archives differ by suite; some of its updates are for some machines only, and some take a contract.
func TestNoble(t *testing.T) {
	t.Parallel()
	h := enrol(t, guestlab.Guest{Suite: "noble", Packages: []string{"demo-lib", "demo-app", "demo-backport", "docker-demo", "demo-point"}})
	key := newSigner(t)
	h.trusted(t, key, true)
	h.publish(t, key, "ubuntu", "noble-updates", "updates", "demo-app", "1.2", "exit 0", nil, "Phased-Update-Percentage: 0")
	esm := filepath.Join(h.Root, "srv/guestlab/esm")
	for _, dir := range []string{"pool/esm", "dists/noble-infra-security"} {
		if err := os.MkdirAll(filepath.Join(esm, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.write(t, "srv/guestlab/esm/dists/noble-infra-security/InRelease", []byte("Origin: UbuntuESM\nLabel: UbuntuESM\nSuite: noble-infra-security\nCodename: noble\nArchitectures: amd64\nComponents: main\n"))
	h.publish(t, key, "esm", "noble-infra-security", "esm", "demo-point", "1.5", "exit 0", nil)
	h.Run(t, "sh", "-c", "echo 'deb [signed-by=/etc/apt/keyrings/guestlab.asc] file:/srv/guestlab/esm noble-infra-security main' >/etc/apt/sources.list.d/esm.list")
	r := h.check(t)
	if !r.Fresh || len(r.Unread) > 0 || r.System.ID != "ubuntu" || !r.System.Supported {
		t.Errorf("check: %+v", r)
	}
	for name, want := range map[string]string{"demo-app": "phased", "demo-backport": "backports", "docker-demo": "third_party", "demo-point": "esm_only", "demo-lib": ""} {
		if got := why(r, name); got != want {
			t.Errorf("%s: why %q, want %q", name, got, want)
		}
	}
	if got := r.Security.Texts(); !slices.Equal(got, []string{"upgrade demo-lib:all 1.0 1.1 Ubuntu:noble-security"}) {
		t.Errorf("security: %q", got)
	}
	for _, c := range r.All {
		if c.Name == "demo-app" && c.New == "1.2" || c.New == "1.5" {
			t.Errorf("it would be installed: %v", c)
		}
	}
	enrolments(t, h)
}

// enrolments are those that are refused, and that find an sshd with ways of its own.
func enrolments(t *testing.T, h *house) {
	script, err := Install(InstallConfig{PublicKey: testKey, From: "10.99.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	sum := func() string {
		return h.Run(t, "sh", "-c", "cat /etc/sudoers.d/castellan /usr/local/sbin/castellan-* /var/lib/castellan/home/.ssh/authorized_keys | md5sum")
	}
	before := sum()
	for name, c := range map[string]struct{ breaks, mends, want string }{
		"an old release":       {"cp /etc/os-release /run/o; sed -i s/24.04/20.04/ /etc/os-release", "cp /run/o /etc/os-release", "does not look after"},
		"another distribution": {"cp /etc/os-release /run/o; sed -i s/^ID=.*/ID=mint/ /etc/os-release", "cp /run/o /etc/os-release", "mint"},
		"no sudo":              {"mv /usr/bin/sudo /usr/bin/x", "mv /usr/bin/x /usr/bin/sudo", "sudo is missing"},
		"a bad visudo":         {"mv /usr/sbin/visudo /usr/sbin/x; ln -s /bin/false /usr/sbin/visudo", "mv -f /usr/sbin/x /usr/sbin/visudo", "does not take the rule"},
	} {
		h.Run(t, "sh", "-c", c.breaks)
		in, err := ParseInstalled(h.Feed(t, []byte(script), "sh").Stdout)
		h.Run(t, "sh", "-c", c.mends)
		if err != nil || !strings.Contains(in.Refused, c.want) || sum() != before {
			t.Errorf("%s: %+v %v", name, in, err)
		}
	}
	d, err := ParseInstalled(h.Feed(t, []byte(Detect()), "sh").Stdout)
	if err != nil || d.System.Family != patch.APT || d.System.ID != "ubuntu" || !d.System.Supported {
		t.Errorf("detect: %+v %v", d, err)
	}
	h.Run(t, "sh", "-c", "printf 'AuthorizedKeysFile /etc/ssh/keys/%%u\\nAllowUsers root\\nPort 22\\nPort 2222\\n' >/etc/ssh/sshd_config.d/own.conf")
	in, err := ParseInstalled(h.Feed(t, []byte(script), "sh").Stdout)
	if err != nil || in.Refused != "" || len(in.Notes) == 0 || !strings.Contains(in.Notes[0], "allowusers root") || !strings.Contains(h.Run(t, "cat", "/etc/ssh/keys/castellan"), testKey) {
		t.Errorf("an sshd of its own ways: %+v %v", in, err)
	}
	if _, refused, err := ParseRemoved(h.Feed(t, []byte(Uninstall()), "sh").Stdout); err != nil || refused != "" || h.Exec(t, "test", "-e", "/etc/ssh/keys/castellan").Code == 0 {
		t.Errorf("unenrol: %q %v", refused, err)
	}
}

// At the last moment apt asks whether dpkg may have what it is about to get.
func TestHook(t *testing.T) {
	text, err := Text(patch.APT)
	if err != nil {
		t.Fatal(err)
	}
	const head, lib, fresh = "VERSION 3\nAPT::Architecture=amd64\n\n", "demo-lib 1.0 all none < 1.1 all none /a/demo-lib_1.1_all.deb\n", "demo-new - - none < 1 amd64 same /a/demo-new_1_amd64.deb\n"
	for name, c := range map[string]struct{ in, want string }{
		"exactly that":     {head + lib + fresh + "demo-lib 1.0 all none < 1.1 all none **CONFIGURE**\ndemo-new - - none < 1 amd64 same **CONFIGURE**\n", ""},
		"one less":         {head + lib, "1 of the changes"},
		"one more":         {head + lib + fresh + "evil - - none < 1 all none /a/evil.deb\n", "install evil:all - 1"},
		"another version":  {head + strings.Replace(lib, "1.1 all", "6.6 all", 1) + fresh, "upgrade demo-lib:all 1.0 6.6"},
		"from another":     {head + strings.Replace(lib, "1.0 all", "0.9 all", 1) + fresh, "upgrade demo-lib:all 0.9 1.1"},
		"another arch":     {head + lib + strings.Replace(fresh, "1 amd64", "1 i386", 1), "install demo-new:i386"},
		"a removal":        {head + lib + fresh + "demo-old 1.0 all none > - - none **REMOVE**\n", "remove demo-old 1.0"},
		"its own removal":  {head + "demo-lib 1.0 all none > - - none **REMOVE**\n" + fresh, "remove demo-lib 1.0"},
		"configures":       {head + lib + fresh + "other 1 all none = 1 all none **CONFIGURE**\n", "configure other"},
		"an older apt":     {"VERSION 2\n\n" + lib + fresh, "another protocol"},
		"nothing":          {"", "did not say"},
		"no list":          {"VERSION 3\nx=y\n", "did not say"},
		"names that alike": {head + strings.Replace(lib, "demo-lib ", "demo.lib ", 1) + fresh, "demo.lib"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "asked"), []byte("upgrade demo-lib:all 1.0 1.1 Debian-Security:bookworm-security\ninstall demo-new:amd64 - 1 Debian:bookworm\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "helper"), []byte(strings.Replace(text, "\nmain \"$@\"\n", "\ntmp='"+dir+"' run='"+dir+"'\nfam_hook\n", 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("sh", filepath.Join(dir, "helper"))
			cmd.Stdin = strings.NewReader(c.in)
			out, err := cmd.CombinedOutput()
			stopped, _ := os.ReadFile(filepath.Join(dir, "stopped")) // absent where it was let through
			if (err == nil) != (c.want == "") || !strings.Contains(string(stopped), c.want) || (c.want == "") != (len(stopped) == 0) {
				t.Errorf("%v %q", err, out)
			}
		})
	}
}

// A disk that is full, or nearly.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	h := enrol(t, guestlab.Guest{Disk: "80m", Packages: []string{"demo-big", "demo-lib"}})
	r := h.check(t)
	big := pick(t, r.Security, "demo-big")
	h.Run(t, "sh", "-c", `free=$(df -Pk / | awk 'NR==2{print $4}'); head -c $(( (free - 10000) * 1024 )) /dev/zero >/fill`)
	r = h.check(t)
	if why := strings.Join(r.Ready("security"), ";"); !strings.Contains(why, "are needed") {
		t.Errorf("nearly full: %q %+v", why, r.Space)
	}
	h.start(t, patch.UpgradeSecurity, "disk.1", false, big)
	if o := h.wait(t, "disk.1"); o.State != "refused" || !strings.Contains(o.Stale, "space") || len(o.Done) > 0 || !r.Packages.Clean {
		t.Errorf("more than there is space for: %+v", o)
	}
	h.Exec(t, "sh", "-c", "cat /dev/zero >>/fill")
	in, err := Input("disk.2", false, nil, pick(t, r.Security, "demo-lib"))
	if err != nil {
		t.Fatal(err)
	}
	if st, err := patch.ParseStarted(h.word(t, patch.UpgradeSecurity, string(in))); err != nil || !strings.Contains(st.Refused, "space") {
		t.Errorf("full: %+v %v", st, err)
	}
	if o := h.result(t); o.ID != "disk.1" || o.State != "refused" {
		t.Errorf("the last result: %+v", o)
	}
	r = h.check(t)
	if len(r.Ready("security")) == 0 || r.UpToDate() {
		t.Errorf("full: %+v", r)
	}
}

// Whether a newer kernel waits for a reboot, by what is installed and what runs.
func TestNewerKernel(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("dpkg compares versions, and is not installed")
	}
	text, err := Text(patch.APT)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		runs, build, installed string
		want                   string
	}{
		"newest runs":          {"6.1.0-28-amd64", "#1 SMP Debian 6.1.119-1 (2024)", "ii |linux-image-6.1.0-28-amd64|6.1.119-1\nii |linux-image-6.1.0-27-amd64|6.1.115-1", ""},
		"older runs":           {"6.1.0-27-amd64", "#1 SMP Debian 6.1.115-1 (2024)", "ii |linux-image-6.1.0-28-amd64|6.1.119-1\nii |linux-image-6.1.0-27-amd64|6.1.115-1", "kernel 6.1.0-28-amd64 is installed, 6.1.0-27-amd64 runs"},
		"9 and 10":             {"6.1.0-9-amd64", "#1", "ii |linux-image-6.1.0-9-amd64|1\nii |linux-image-6.1.0-10-amd64|2", "kernel 6.1.0-10-amd64 is installed, 6.1.0-9-amd64 runs"},
		"removed":              {"6.1.0-27-amd64", "#1", "rc |linux-image-6.1.0-28-amd64|1\nii |linux-image-6.1.0-27-amd64|1", ""},
		"deb13 and deb13.1":    {"6.12.88+deb13.1-amd64", "#1", "ii |linux-image-6.12.88+deb13-amd64|1\nii |linux-image-6.12.88+deb13.1-amd64|2", ""},
		"deb13.1 after deb13":  {"6.12.88+deb13-amd64", "#1", "ii |linux-image-6.12.88+deb13-amd64|1\nii |linux-image-6.12.88+deb13.1-amd64|2", "kernel 6.12.88+deb13.1-amd64 is installed, 6.12.88+deb13-amd64 runs"},
		"another flavour":      {"6.1.0-27-amd64", "#1", "ii |linux-image-6.1.0-28-cloud-amd64|1\nii |linux-image-6.1.0-27-amd64|1", ""},
		"its own flavour":      {"6.1.0-27-cloud-amd64", "#1", "ii |linux-image-6.1.0-29-amd64|1\nii |linux-image-6.1.0-28-cloud-amd64|1\nii |linux-image-6.1.0-27-cloud-amd64|1", "kernel 6.1.0-28-cloud-amd64 is installed, 6.1.0-27-cloud-amd64 runs"},
		"rpi":                  {"6.12.34+rpt-rpi-v8", "#1", "ii |linux-image-6.12.34+rpt-rpi-v8|1\nii |linux-image-6.12.34+rpt-rpi-2712|1", ""},
		"rpi older":            {"6.12.30+rpt-rpi-v8", "#1", "ii |linux-image-6.12.30+rpt-rpi-v8|1\nii |linux-image-6.12.34+rpt-rpi-v8|1", "kernel 6.12.34+rpt-rpi-v8 is installed, 6.12.30+rpt-rpi-v8 runs"},
		"ubuntu":               {"6.8.0-45-generic", "#45-Ubuntu SMP", "ii |linux-image-6.8.0-45-generic|1\nii |linux-image-6.8.0-47-generic|2", "kernel 6.8.0-47-generic is installed, 6.8.0-45-generic runs"},
		"none of a package":    {"6.5.1-custom", "#1", "ii |linux-image-6.8.0-47-generic|2", ""},
		"the same, built anew": {"6.1.0-28-amd64", "#1 SMP Debian 6.1.119-1 (2024)", "ii |linux-image-6.1.0-28-amd64|6.1.119-2", "kernel 6.1.0-28-amd64 is installed as 6.1.119-2, and an earlier build of it runs"},
		"proxmox":              {"6.8.12-4-pve", "#1", "ii |proxmox-kernel-6.8.12-4-pve-signed|1\nii |proxmox-kernel-6.8.12-5-pve-signed|1", "kernel 6.8.12-5-pve is installed, 6.8.12-4-pve runs"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "dpkg-query"), []byte("#!/bin/sh\ncat "+dir+"/installed\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "installed"), []byte(c.installed+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("sh")
			cmd.Stdin = strings.NewReader(strings.Replace(text, "\nmain \"$@\"\n", "\ntmp="+dir+" PATH="+dir+":$PATH\nnewer_kernel '"+c.runs+"' '"+c.build+"'\n", 1))
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != c.want {
				t.Errorf("%q %v, want %q", got, err, c.want)
			}
		})
	}
}
