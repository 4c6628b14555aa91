//go:build linux

package helper

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/guestlab"
	"castellan/internal/patch"
)

// One Debian 12 in an unprivileged container, from enrolment to its end, with updates of every sort.
func TestBookworm(t *testing.T) {
	t.Parallel()
	h := enrol(t, guestlab.Guest{Unprivileged: true, Packages: []string{"demo-lib", "demo-app", "demo-point", "demo-backport", "demo-shadow", "demo-held", "demo-svc", "demo-new", "demo-old", "demo-repl",
		"docker-demo", "demo-conf", "demo-fail", "demo-reboot", "demo-slow", "linux-image-6.1.0-98-amd64", "linux-image-amd64"}})
	if in := h.installed; len(in.HostKeys) != 1 || !bytes.Equal(keyOf(t, in.HostKeys[0]).Marshal(), h.HostKey.Marshal()) || in.Port != 22 || !in.System.Supported || in.System.Codename != "bookworm" || len(in.Packages) != 0 || len(in.Notes) != 0 {
		t.Errorf("installed: %+v", in)
	}
	t.Run("again", func(t *testing.T) {
		h.enrol(t, InstallConfig{Automatic: "off"})
		if got := h.Run(t, "sh", "-c", "grep -c . /var/lib/castellan/home/.ssh/authorized_keys; visudo -cq && echo sudo; stat -c %U:%a /var/lib/castellan/home /var/lib/castellan/home/.ssh /var/lib/castellan/home/.ssh/authorized_keys /etc/sudoers.d/castellan; getent shadow castellan | cut -d: -f2"); got != "1\nsudo\nroot:755\nroot:755\nroot:644\nroot:440\n*" {
			t.Errorf("%q", got)
		}
		if h.installed.Automatic.State != "off" || !strings.Contains(h.Run(t, "apt-config", "dump", "APT::Periodic::Unattended-Upgrade"), `"0"`) {
			t.Errorf("automatic updates: %+v", h.installed.Automatic)
		}
	})
	t.Run("gate", func(t *testing.T) { gate(t, h) })
	h.Run(t, "sh", "-c", `apt-mark hold demo-held; apt-mark auto demo-lib demo-shadow; echo "shipped = mine" >/etc/demo-conf.conf
printf 'Package: demo-app\nPin: version 1.1\nPin-Priority: -1\n' >/etc/apt/preferences.d/app
printf 'Package: demo-shadow\nPin: version 9.0\nPin-Priority: 1001\n\nPackage: *\nPin: release l=Docker*\nPin-Priority: 990\n' >/etc/apt/preferences`)
	manual := h.Run(t, "apt-mark", "showmanual")
	before := h.Run(t, "sh", "-c", "cd /etc/apt && cat preferences preferences.d/* sources.list | md5sum")

	r := h.check(t)
	if !r.Fresh || !r.Packages.Clean || len(r.Unread) > 0 || len(r.Ready("security")) > 0 || !r.Reboot.Known || r.Reboot.Needed || r.Lock != nil {
		t.Errorf("check: %+v, ready: %q", r, r.Ready("security"))
	}
	names := func(tr patch.Transaction) (out []string) {
		for _, c := range tr {
			out = append(out, c.Name)
		}
		return out
	}
	security := []string{"demo-conf", "demo-fail", "demo-lib", "demo-new", "demo-new-lib", "demo-reboot", "demo-shadow", "demo-slow", "demo-svc", "linux-image-6.1.0-99-amd64", "linux-image-amd64"}
	if got := names(r.Security); !slices.Equal(got, security) {
		t.Errorf("security: %q", got)
	}
	if got, want := names(r.All), append(security[:5:5], append([]string{"demo-point"}, security[5:]...)...); !slices.Equal(got, want) {
		t.Errorf("all: %q", got)
	}
	for name, want := range map[string]string{"demo-held": "held", "demo-app": "pinned", "demo-backport": "backports", "docker-demo": "third_party", "demo-repl": "needs_removal", "demo-lib": ""} {
		if got := why(r, name); got != want {
			t.Errorf("%s: why %q, want %q", name, got, want)
		}
	}
	for _, c := range r.All {
		if c.Bytes < 500 || c.Name == "demo-shadow" && c.New != "1.1" {
			t.Errorf("%+v", c)
		}
	}

	t.Run("good", func(t *testing.T) {
		hold(t, h)
		if st, err := patch.ParseStatus(h.word(t, patch.Status, ""), time.Now()); err != nil || st.Lock == nil || !strings.HasPrefix(st.Lock.Program, "python3") || len(st.Ready("all")) == 0 {
			t.Errorf("status while the lock is held: %+v %v", st, err)
		}
		asked := pick(t, r.Security, "demo-lib", "demo-shadow", "demo-new", "demo-new-lib", "demo-conf", "demo-reboot", "linux-image-amd64", "linux-image-6.1.0-99-amd64")
		in, err := Input("plan.1", false, nil, asked)
		if err != nil {
			t.Fatal(err)
		}
		// The connection ends with the answer, and the network for a moment.
		s := session(t, h)
		s.Stdin = bytes.NewReader(in)
		out, err := s.Output("upgrade-security")
		if st, e := patch.ParseStarted(out); err != nil || e != nil || st.ID != "plan.1" || st.Already {
			t.Fatalf("start: %v %v %q", err, e, out)
		}
		h.Cut(t)
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			p, err := patch.ParseProgress(h.word(t, patch.Progress, ""))
			if err != nil || p.State != "running" || p.ID != "plan.1" {
				t.Fatalf("progress: %+v %v", p, err)
			}
			if strings.Contains(p.Note, "held by python3") {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("it does not say for whom it waits: %+v", p)
			}
		}
		if st, err := patch.ParseStarted(h.word(t, patch.UpgradeSecurity, string(in))); err != nil || !st.Already {
			t.Errorf("the same again: %+v %v", st, err)
		}
		if st, err := patch.ParseStarted(h.word(t, patch.Repair, "id other.1\nnewer 0\nguest -\nend\n")); err != nil || st.Refused == "" {
			t.Errorf("another one meanwhile: %+v %v", st, err)
		}
		h.Join(t)
		h.Run(t, "touch", "/run/release")
		o := h.wait(t, "plan.1")
		if ok, why := o.Verdict(); !ok || o.Mode != "security" || len(o.Done) != len(asked) {
			t.Errorf("verdict: %q %+v", why, o)
		}
		if !slices.Equal(o.Conffiles, []string{"/etc/demo-conf.conf"}) || h.Run(t, "cat", "/etc/demo-conf.conf") != "shipped = mine" {
			t.Errorf("conffiles: %q", o.Conffiles)
		}
		if !o.Reboot.Needed || !slices.Equal(o.Reboot.Why, []string{"demo-reboot"}) {
			t.Errorf("a container has no kernel: %+v", o.Reboot)
		}
		if got := reboot(t, h, "vm"); !got.Needed || !slices.Contains(got.Why, "linux-image-6.1.0-99-amd64") {
			t.Errorf("a VM has: %+v", got)
		}
		if got := h.Run(t, "apt-mark", "showmanual"); got != manual {
			t.Errorf("marked manual: %s\nbefore: %s", got, manual)
		}
		if got := h.Run(t, "sh", "-c", "cd /etc/apt && cat preferences preferences.d/* sources.list | md5sum"); got != before {
			t.Error("the configuration of apt was changed")
		}
		if st, err := patch.ParseStarted(h.word(t, patch.UpgradeSecurity, string(in))); err != nil || !st.Already {
			t.Errorf("the same after its end: %+v %v", st, err)
		}
	})
	t.Run("stale", func(t *testing.T) {
		o := h.upgrade(t, patch.UpgradeSecurity, "plan.2", r.All, "demo-lib", "demo-point")
		if o.State != "refused" || !strings.Contains(o.Stale, "demo-lib:all") || !strings.Contains(o.Stale, "demo-point:all") || len(o.Done) > 0 {
			t.Errorf("what is done already, and what is not security: %+v", o)
		}
		key := newSigner(t)
		h.trusted(t, key, true)
		h.publish(t, key, "debian-security", "bookworm-security", "security", "demo-slow", "1.2", "exit 0", nil)
		o = h.upgrade(t, patch.UpgradeSecurity, "plan.4", r.Security, "demo-slow")
		if o.State != "refused" || !strings.Contains(o.Stale, "1.2") {
			t.Errorf("a newer version that nobody allowed: %+v", o)
		}
		asked := pick(t, r.Security, "demo-slow")
		h.start(t, patch.UpgradeSecurity, "plan.5", true, asked)
		o = h.wait(t, "plan.5")
		o.Against(asked, true)
		if ok, why := o.Verdict(); !ok || len(o.Done) != 1 || o.Done[0].New != "1.2" {
			t.Errorf("a newer version that was allowed: %q %+v", why, o)
		}
	})
	t.Run("bad", func(t *testing.T) {
		o := h.upgrade(t, patch.UpgradeSecurity, "plan.6", r.Security, "demo-svc", "demo-fail")
		ok, why := o.Verdict()
		text := strings.Join(why, "; ")
		if ok || o.State != "ended" || !o.Packages.Repair {
			t.Errorf("verdict: %+v", o)
		}
		contains(t, "verdict", text, "demo-svc.service failed; it was active (running)", "demo-fail is half-configured", "1 asked for and not done: demo-fail")
		now := h.check(t)
		contains(t, "ready", strings.Join(now.Ready("all"), "; "), "repair_packages")
		if o = h.upgrade(t, patch.UpgradeAll, "plan.7", r.All, "demo-point"); o.State != "refused" || !strings.Contains(o.Stale, "demo-fail is half-configured") {
			t.Errorf("on top of that: %+v", o)
		}
		h.start(t, patch.Repair, "plan.8", false, nil)
		if o = h.wait(t, "plan.8"); o.State != "ended" || o.Packages.Clean {
			t.Errorf("a repair that cannot help: %+v", o)
		}
		h.Run(t, "touch", "/etc/demo-fail-ok")
		h.start(t, patch.Repair, "plan.9", false, nil)
		if o = h.wait(t, "plan.9"); o.Mode != "repair" || !o.Packages.Clean || len(o.Services.Worse) > 0 {
			t.Errorf("repair: %+v", o)
		}
	})
	t.Run("archives", func(t *testing.T) { archivesFail(t, h) })
	t.Run("away", func(t *testing.T) {
		removed, refused, err := ParseRemoved(h.Feed(t, []byte(Uninstall()), "sh").Stdout)
		if err != nil || refused != "" || len(removed) < 6 {
			t.Errorf("%q %q %v", removed, refused, err)
		}
		if got := h.Exec(t, "sh", "-c", "getent passwd castellan; getent group castellan; find / -xdev -name '*castellan*' -not -path '/proc/*' 2>/dev/null; grep -rl castellan /etc | grep -v -e '-$'; visudo -cq || echo sudo"); len(got.Stdout) > 0 {
			t.Errorf("left: %s", got.Stdout)
		}
		if _, refused, err := ParseRemoved(h.Feed(t, []byte(Uninstall()), "sh").Stdout); err != nil || refused != "" {
			t.Errorf("a second time: %q %v", refused, err)
		}
	})
}

func keyOf(t *testing.T, text string) ssh.PublicKey {
	t.Helper()
	k, _, _, _, err := ssh.ParseAuthorizedKey([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// hold takes the package manager's lock, as another of its users does, until /run/release is there.
func hold(t *testing.T, h *house) {
	t.Helper()
	h.Run(t, "systemd-run", "-q", "--collect", "python3", "-c", `
import fcntl, os, time
f = open("/var/lib/dpkg/lock-frontend", "w")
fcntl.lockf(f, fcntl.LOCK_EX)
while not os.path.exists("/run/release"): time.sleep(0.1)`)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if strings.Contains(string(h.word(t, patch.Status, "")), "\nlock\t") {
			return
		}
	}
	t.Error("nobody holds the lock")
}

// reboot asks the helper's own function, on what it is said to run on.
func reboot(t *testing.T, h *house, where string) patch.Reboot {
	t.Helper()
	text, err := Text(patch.APT)
	if err != nil {
		t.Fatal(err)
	}
	text = strings.Replace(text, "\nmain \"$@\"\n", "\nvirt() { echo "+where+"; }\ntmp=$(mktemp -d)\necho 'castellan 1 status'\nfam_reboot\necho end\n", 1)
	r, err := patch.ParseStatus(h.Feed(t, []byte(text), "sh").Stdout, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return r.Reboot
}

// archivesFail: what cannot be read, and what only says that it is the distribution's.
func archivesFail(t *testing.T, h *house) {
	root := filepath.Join(h.Root, "srv/guestlab")
	for name, c := range map[string]struct{ breaks, mends, want string }{
		"unreachable": {"mv /srv/guestlab/debian-security /srv/guestlab/x", "mv /srv/guestlab/x /srv/guestlab/debian-security", "debian-security"},
		"expired":     {`echo 'Acquire::Max-ValidTime "1";' >/etc/apt/apt.conf.d/50expired`, "rm /etc/apt/apt.conf.d/50expired", "expired"},
		"bad":         {"cp -a /srv/guestlab/debian/dists/bookworm-updates/InRelease /srv/x; sed -i 's/^Suite: .*/Suite: other/' /srv/guestlab/debian/dists/bookworm-updates/InRelease", "mv /srv/x /srv/guestlab/debian/dists/bookworm-updates/InRelease", "bookworm-updates"},
	} {
		h.Run(t, "sh", "-c", c.breaks)
		r := h.check(t)
		if r.Fresh || r.UpToDate() || !strings.Contains(r.Stale, c.want) || !strings.Contains(strings.Join(r.Ready("all"), ";"), c.want) {
			t.Errorf("%s: fresh %v, stale %q", name, r.Fresh, r.Stale)
		}
		h.Run(t, "sh", "-c", c.mends)
	}
	// An archive that this machine trusts and that calls itself Debian's, without Debian's key.
	key := newSigner(t)
	h.trusted(t, key, false)
	h.write(t, "srv/guestlab/false/dists/bookworm-security/InRelease", mustRead(t, filepath.Join(root, "debian-security/dists/bookworm-security/InRelease")))
	if err := os.MkdirAll(filepath.Join(root, "false/pool/security"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.publish(t, key, "false", "bookworm-security", "security", "demo-lib", "6.6", "exit 0", nil)
	h.Run(t, "sh", "-c", "echo 'deb [signed-by=/etc/apt/keyrings/guestlab.asc] file:/srv/guestlab/false bookworm-security main' >/etc/apt/sources.list.d/false.list")
	r := h.check(t)
	if !r.Fresh || why(r, "demo-lib") != "third_party" || r.UpToDate() || !strings.Contains(strings.Join(r.Unread, ";"), "not signed by a key of the distribution") {
		t.Errorf("a false archive: %q %q %v", why(r, "demo-lib"), r.Unread, r.All.Texts())
	}
	for _, c := range r.All {
		if c.Name == "demo-lib" {
			t.Errorf("it would be installed: %v", c)
		}
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
