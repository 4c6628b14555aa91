//go:build linux

package helper

import (
	"slices"
	"strings"
	"testing"

	"castellan/internal/guestlab"
	"castellan/internal/patch"
)

// A named package brings what it cannot be had without, out of the same archives and nothing else; no mark of the packages changes.
func TestNamedPackagesBringWhatTheyNeed(t *testing.T) {
	t.Parallel()
	h := enrol(t, guestlab.Guest{Unprivileged: true, Packages: []string{"demo-lib", "demo-app", "demo-new", "linux-image-6.1.0-98-amd64", "linux-image-amd64"}})
	key := newSigner(t)
	h.trusted(t, key, true)
	pool := "srv/guestlab/debian-security/pool/security"
	for _, name := range []string{"demo-a", "demo-b", "demo-c", "demo-d", "demo-e", "demo-f", "demo-g", "demo-h", "demo-i"} {
		h.pack(t, "srv/first", name, "1.0", nil)
	}
	h.Run(t, "sh", "-c", "dpkg -i --force-unsafe-io /srv/first/*.deb")
	h.pack(t, pool, "demo-a", "2.0", nil, "Pre-Depends: demo-b (>= 2.0~)", "Depends: demo-c (>= 1.0), demo-f (>= 9) | demo-d | demo-e")
	h.pack(t, pool, "demo-b", "2.0", nil, "Breaks: demo-e (<< 2.0), demo-c (<< 0.5)", "Depends: demo-new-lib")
	h.pack(t, pool, "demo-c", "2.0", nil, "Depends: demo-lib (>= 1.0)")
	h.pack(t, pool, "demo-d", "2.0", nil, "Conflicts: demo-f (<= 1.0)")
	h.pack(t, pool, "demo-e", "2.0", nil)
	h.pack(t, pool, "demo-f", "2.0", nil)
	// What is needed goes by another name: one that is there already, one that only a newer version has, and one by its version.
	h.pack(t, "srv/second", "demo-j", "1.0", nil, "Provides: demo-there")
	h.Run(t, "sh", "-c", "dpkg -i --force-unsafe-io /srv/second/*.deb")
	h.pack(t, pool, "demo-g", "2.0", nil, "Depends: demo-there, demo-virtual")
	h.pack(t, pool, "demo-h", "2.0", nil, "Provides: demo-virtual, demo-abi (= 3)")
	h.pack(t, pool, "demo-i", "2.0", nil, "Depends: demo-abi (>= 2)")
	h.publish(t, key, "debian-security", "bookworm-security", "security", "", "", "", nil)
	r := h.check(t)
	got := map[string]string{}
	for _, c := range r.Security {
		got[c.Name] = c.Needs
	}
	for name, want := range map[string]string{"demo-a": "demo-b:all", "demo-b": "demo-e:all demo-new-lib:all", "demo-c": "", "demo-d": "demo-f:all", "demo-g": "demo-h:all", "demo-h": "", "demo-i": "demo-h:all", "demo-new": "demo-new-lib:all", "demo-lib": "", "linux-image-amd64": "linux-image-6.1.0-99-amd64:all"} {
		if got[name] != want {
			t.Errorf("%s needs %q, want %q", name, got[name], want)
		}
	}
	if len(r.Unread) > 0 {
		t.Errorf("unread: %q", r.Unread)
	}
	marks := func() string { return h.Run(t, "apt-mark", "showmanual") }
	before := marks()
	part := pick(t, r.Security, "demo-a")
	if o := h.upgrade(t, patch.UpgradeSecurity, "need.1", r.Security, "demo-a"); o.State != "refused" || len(o.Done) > 0 {
		t.Errorf("alone: %+v", o)
	}
	whole, brought := r.Security.With(part)
	if want := []string{"demo-a", "demo-b", "demo-e", "demo-new-lib"}; !slices.Equal(namesOf(whole), want) || strings.Join(brought["demo-new-lib:all"], ",") != "demo-b" || len(brought) != 3 {
		t.Errorf("%q, %v", namesOf(whole), brought)
	}
	h.start(t, patch.UpgradeSecurity, "need.2", false, whole)
	o := h.wait(t, "need.2")
	well(t, o)
	if !slices.Equal(namesOf(o.Done), namesOf(whole)) {
		t.Errorf("done: %q", o.Done.Texts())
	}
	named, _ := r.Security.With(pick(t, r.Security, "demo-g"))
	h.start(t, patch.UpgradeSecurity, "need.3", false, named)
	if o := h.wait(t, "need.3"); len(named) != 2 || !slices.Equal(namesOf(o.Done), namesOf(named)) {
		t.Errorf("what is provided: %q, %+v", named.Texts(), o)
	}
	if after := marks(); after != before {
		t.Errorf("marks: %q, before %q", after, before)
	}
}

// What somebody installed without what it depends on is completed by exactly what the plan names, and by nothing else.
func TestRepairBringsWhatThePlanNames(t *testing.T) {
	t.Parallel()
	h := enrol(t, guestlab.Guest{Unprivileged: true, Packages: []string{"demo-lib"}})
	h.pack(t, "srv/byhand", "demo-byhand", "1.0", nil, "Depends: demo-new-lib")
	h.Run(t, "sh", "-c", "dpkg -i --force-unsafe-io /srv/byhand/*.deb >/dev/null 2>&1 || true")
	r := h.check(t)
	if r.Packages.Clean || !r.Packages.Repair || len(r.Fix) != 1 || r.Fix[0].String() != "install demo-new-lib:all - 1.1 Debian-Security:bookworm-security" || r.Fix[0].Bytes == 0 {
		t.Fatalf("%+v, fix %q", r.Packages, r.Fix.Texts())
	}
	// Nothing else than what was named: without a name it is told only, with another it is refused.
	h.start(t, patch.Repair, "fix.1", false, nil)
	if o := h.wait(t, "fix.1"); o.State != "ended" || o.Packages.Clean || len(o.Done) > 0 || !strings.Contains(o.Note, "would install demo-new-lib, which no plan names") {
		t.Errorf("without a name: %+v", o)
	}
	other := slices.Clone(r.Fix)
	other[0].New = "1.2"
	h.start(t, patch.Repair, "fix.2", false, other)
	if o := h.wait(t, "fix.2"); o.Packages.Clean || len(o.Done) > 0 || !strings.Contains(o.Note, "would not do what the plan names") {
		t.Errorf("another version: %+v", o)
	}
	h.start(t, patch.Repair, "fix.3", false, r.Fix)
	o := h.wait(t, "fix.3")
	well(t, o)
	if !slices.Equal(namesOf(o.Done), []string{"demo-new-lib"}) || o.Mode != "repair" {
		t.Errorf("%+v", o)
	}
	if r = h.check(t); !r.Packages.Clean || len(r.Fix) > 0 {
		t.Errorf("afterwards: %+v", r)
	}
}

func namesOf(t patch.Transaction) (out []string) {
	for _, c := range t {
		out = append(out, c.Name)
	}
	slices.Sort(out)
	return out
}
