//go:build linux

package helper

import (
	"strings"
	"testing"
	"time"

	"castellan/internal/guestlab"
	"castellan/internal/patch"
)

// relative is a guest of another family than apt. Its first versions of the packages named are there.
func relative(t *testing.T, family patch.Family, packages ...string) *house {
	t.Helper()
	lab := guestlab.Open(t)
	h := &house{Container: lab.Start(t, guestlab.Guest{Suite: string(family)}), lab: lab}
	if family == patch.DNF || family == patch.Zypper {
		args := []string{"rpm", "-U", "--quiet"}
		for _, name := range packages {
			args = append(args, strings.Fields(h.Run(t, "sh", "-c", "ls /srv/guestlab/first/"+name+"-[0-9]*.rpm"))...)
		}
		h.Run(t, args...)
	}
	h.enrol(t, InstallConfig{Family: family})
	return h
}

// look is check without the limit that the lab has for a command: a package manager in Python takes its time on a busy machine.
func (h *house) look(t *testing.T) patch.Report {
	t.Helper()
	h.Run(t, "sh", "-c", `rm -f /root/said; setsid sh -c '"$0" check >/root/saying 2>&1; mv /root/saying /root/said' "$0" </dev/null >/dev/null 2>&1 &`, Helper)
	for end := time.Now().Add(5 * time.Minute); h.Exec(t, "test", "-e", "/root/said").Code != 0; time.Sleep(300 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the check does not end")
		}
	}
	out := h.Run(t, "cat", "/root/said")
	r, err := patch.ParseCheck([]byte(out), time.Now())
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return r
}

// await is wait with the same patience, by a word that asks less of the guest.
func (h *house) await(t *testing.T, id string) patch.Outcome {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(500 * time.Millisecond) {
		p, err := patch.ParseProgress(h.word(t, patch.Progress, ""))
		if err != nil || p.ID != id {
			t.Fatalf("%+v %v", p, err)
		}
		if p.State != "running" {
			return h.result(t)
		}
		if time.Now().After(end) {
			t.Fatalf("it still runs: %+v", p)
		}
	}
}

// install installs packages by name, out of what a check found.
func (h *house) install(t *testing.T, word patch.Word, id string, of patch.Transaction, names ...string) patch.Outcome {
	t.Helper()
	h.start(t, word, id, false, pick(t, of, names...))
	return h.await(t, id)
}

func has(t patch.Transaction, texts ...string) (missing []string) {
	all := strings.Join(t.Texts(), "\n")
	for _, text := range texts {
		if !strings.Contains(all, text) {
			missing = append(missing, text)
		}
	}
	return missing
}

func TestDNF(t *testing.T) {
	h := relative(t, patch.DNF, "demo-lib", "demo-app", "demo-held", "demo-shadow", "demo-conf", "demo-new", "demo-old", "demo-repl", "docker-demo", "glibc", "kernel-core", "demo-svc",
		"a-package-whose-name-is-so-long-that-no-table-of-eighty-columns-has-room-for-it")
	h.Run(t, "sh", "-c", "echo exclude=demo-held >>/etc/dnf/dnf.conf; echo mine >>/etc/demo-conf.conf")
	r := h.look(t)
	if !r.System.Supported || r.System.Family != patch.DNF || !r.Fresh || !r.Packages.Clean || len(r.Unread) > 0 || len(r.Ready("all")) > 0 {
		t.Errorf("%+v", r)
	}
	if m := has(r.Security, "upgrade demo-lib:noarch 1.0-1 1.1-1 rocky:appstream", "upgrade demo-shadow:noarch 1.0-1 1.1-1 rocky:appstream", "install demo-new-lib:noarch - 1:1.1-1 rocky:appstream",
		"install kernel-core:noarch - 5.14.0-2 rocky:appstream", "remove demo-old:noarch 1.0-1 - -", "upgrade demo-repl:noarch"); m != nil {
		t.Errorf("mode security has not %q: %q", m, r.Security.Texts())
	}
	if m := has(r.Security, "demo-app", "docker-demo", "9.0", "demo-held", "a-package"); len(m) != 5 {
		t.Errorf("mode security: %q", r.Security.Texts())
	}
	if m := has(r.All, "upgrade demo-app:noarch 1.0-1 1.1-1 rocky:appstream", "upgrade a-package-whose-name"); m != nil || len(r.All) != len(r.Security)+2 {
		t.Errorf("mode all has not %q: %q", m, r.All.Texts())
	}
	for name, want := range map[string]string{"demo-held": "held", "docker-demo": "third_party", "demo-shadow": "third_party", "demo-lib": ""} {
		if got := why(r, name); got != want {
			t.Errorf("%s: %q, not %q", name, got, want)
		}
	}

	o := h.install(t, patch.UpgradeSecurity, "p.1", r.Security, "demo-lib", "demo-shadow", "demo-conf", "demo-new", "demo-new-lib", "demo-old", "demo-repl", "kernel-core", "glibc")
	well(t, o)
	if len(o.Done) != 9 || len(o.Conffiles) != 1 || o.Conffiles[0] != "/etc/demo-conf.conf" || !o.Reboot.Needed || strings.Contains(strings.Join(o.Reboot.Why, " "), "kernel") {
		t.Errorf("%+v", o)
	}
	if got := h.Run(t, "cat", "/etc/demo-conf.conf"); !strings.Contains(got, "mine") {
		t.Errorf("the changed file is now %q", got)
	}
	if got := h.Run(t, "dnf", "-q", "history", "info", "last"); !strings.Contains(got, "demo-new-lib-1:1.1-1.noarch @appstream") || strings.Contains(got, "@commandline") {
		t.Errorf("dnf remembers it as %s", got)
	}

	// What is not a security update is refused in that mode; a service that dies shows.
	for name, archive := range map[string]string{"demo-app": "rocky:appstream", "docker-demo": "rocky:docker-ce-stable"} {
		h.start(t, patch.UpgradeSecurity, "s."+name, false, patch.Transaction{{Action: patch.Upgrade, Name: name, Arch: "noarch", Old: "1.0-1", New: "1.1-1", Archive: archive}})
		if o := h.await(t, "s."+name); o.State != "refused" || o.Stale == "" {
			t.Errorf("%s by mode security: %+v", name, o)
		}
	}
	o = h.install(t, patch.UpgradeAll, "p.2", r.All, "demo-svc", "demo-app")
	if ok, why := o.Verdict(); ok || len(o.Services.Worse) == 0 || len(o.Done) != 2 {
		t.Errorf("%v %q %+v", ok, why, o)
	}
}

// What differs from what was asked for is refused, unless a newer version is allowed.
func TestDNFStale(t *testing.T) {
	t.Parallel()
	h := relative(t, patch.DNF, "demo-lib", "demo-app", "demo-new", "demo-fail", "demo-failpost")
	change := func(name, version string) patch.Change {
		return patch.Change{Action: patch.Upgrade, Name: name, Arch: "noarch", Old: "1.0-1", New: version, Archive: "rocky:appstream"}
	}
	for id, c := range map[string]struct {
		tr   patch.Transaction
		want string
	}{
		"no-such-version": {patch.Transaction{change("demo-lib", "1.0.9-1")}, "would not do: upgrade demo-lib:noarch 1.0-1 1.0.9-1"},
		"dependency":      {patch.Transaction{change("demo-new", "1.1-1")}, "would not do: upgrade demo-new"},
		"other-archive":   {patch.Transaction{{Action: patch.Upgrade, Name: "demo-lib", Arch: "noarch", Old: "1.0-1", New: "1.1-1", Archive: "rocky:baseos"}}, "would not do"},
		"no-archive":      {patch.Transaction{{Action: patch.Upgrade, Name: "demo-lib", Arch: "noarch", Old: "1.0-1", New: "1.1-1", Archive: "fedora:updates"}}, "no repository of this system"},
		"remove":          {patch.Transaction{change("demo-lib", "1.1-1"), {Action: patch.Remove, Name: "demo-new", Arch: "noarch", Old: "1.0-1"}}, "would not do: remove demo-new"},
	} {
		h.start(t, patch.UpgradeAll, id, false, c.tr)
		if o := h.await(t, id); o.State != "refused" || !strings.Contains(o.Stale, c.want) || len(o.Done) > 0 {
			t.Errorf("%s: %+v", id, o)
		}
	}
	h.start(t, patch.UpgradeAll, "newer.2", true, patch.Transaction{change("demo-app", "1.0.9-1")})
	o := h.await(t, "newer.2")
	if o.State != "ended" || len(o.Done) != 1 || o.Done[0].New != "1.1-1" {
		t.Errorf("newer: %+v", o)
	}
	o.Against(patch.Transaction{change("demo-app", "1.0.9-1")}, true)
	well(t, o)

	// A script that fails before: not installed. One that fails after: installed, and said in the output.
	o = h.install(t, patch.UpgradeSecurity, "fail", h.look(t).Security, "demo-fail", "demo-failpost", "demo-lib")
	if ok, why := o.Verdict(); ok || len(o.Missing) != 1 || o.Missing[0].Name != "demo-fail" || len(o.Done) != 2 || !strings.Contains(o.Log, "not to its liking") || !strings.Contains(strings.Join(why, " "), "demo-failpost") {
		t.Errorf("%+v", o)
	}
}

// A transaction that is killed half way leaves two versions, which is said and repaired.
func TestDNFInterrupted(t *testing.T) {
	t.Parallel()
	h := relative(t, patch.DNF, "demo-slow", "demo-lib")
	h.start(t, patch.UpgradeSecurity, "cut", false, pick(t, h.look(t).Security, "demo-slow", "demo-lib"))
	for end := time.Now().Add(60 * time.Second); h.Exec(t, "rpm", "-q", "demo-slow-1.1-1").Code != 0; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not begin: %s", h.word(t, patch.Progress, ""))
		}
	}
	if r, err := patch.ParseStatus(h.word(t, patch.Status, ""), time.Now()); err != nil || r.Lock == nil || r.Running != "cut" {
		t.Errorf("%+v %v", r, err)
	}
	h.Run(t, "sh", "-c", "systemctl kill --signal=KILL castellan-upgrade; pkill -KILL -x dnf; true")
	o := h.await(t, "cut")
	if o.State != "lost" || o.Packages.Clean || !o.Packages.Repair {
		t.Errorf("%+v", o)
	}
	if why := h.look(t).Ready("security"); len(why) != 1 || !strings.Contains(why[0], "demo-slow") {
		t.Errorf("%q\n%s", why, h.Run(t, "cat", "/root/said"))
	}
	h.Run(t, "sh", "-c", "echo 1 >/etc/demo-slow")
	h.start(t, patch.Repair, "mend", false, nil)
	if o = h.await(t, "mend"); o.State != "ended" || !o.Packages.Clean || h.Exec(t, "rpm", "-q", "demo-slow-1.0-1").Code == 0 || h.Exec(t, "rpm", "-q", "demo-slow-1.1-1").Code != 0 {
		t.Errorf("%+v", o)
	}
	h.Run(t, "test", "-e", "/run/demo-slow.done")
}
