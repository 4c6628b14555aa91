//go:build linux

package helper

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"castellan/internal/guestlab"
	"castellan/internal/patch"
)

// All that the repositories of Arch Linux hold, or nothing.
func TestPacman(t *testing.T) {
	t.Parallel()
	h := relative(t, patch.Pacman)
	h.Run(t, "sh", "-c", "cd /srv/guestlab/first && pacman -U --noconfirm demo-lib-1* demo-app-* demo-held-* demo-shadow-* demo-conf-* demo-new-1* demo-old-* demo-repl-* chaotic-demo-* demo-failpost-* && "+
		"sed -i 's/^HoldPkg.*/&\\nIgnorePkg = demo-held/' /etc/pacman.conf && echo mine >>/etc/demo-conf.conf && pacman -Sy")
	r := h.look(t)
	if !r.System.Supported || !r.Fresh || !r.Packages.Clean || len(r.Security) > 0 || len(r.All) != 9 || len(r.Ready("all")) > 0 || len(r.Unread) > 0 {
		t.Errorf("%+v", r)
	}
	if m := has(r.All, "upgrade demo-app:any 1.0-1 1:1.1-1 arch:extra", "upgrade demo-shadow:any 1.0-1 1.1-1 arch:core", "install demo-new-lib:any - 1.1-1 arch:core", "remove demo-old:any 1.0-1 - -"); m != nil {
		t.Errorf("mode all has not %q: %q", m, r.All.Texts())
	}
	for name, want := range map[string]string{"demo-held": "held", "chaotic-demo": "third_party"} {
		if got := why(r, name); got != want {
			t.Errorf("%s: %q, not %q", name, got, want)
		}
	}
	for id, c := range map[string]struct {
		word patch.Word
		tr   patch.Transaction
		want string
	}{
		"security": {patch.UpgradeSecurity, pick(t, r.All, "demo-lib"), "only mode all"},
		"some":     {patch.UpgradeAll, pick(t, r.All, "demo-lib"), "no partial upgrades"},
	} {
		h.start(t, c.word, id, false, c.tr)
		if o := h.await(t, id); o.State != "refused" || !strings.Contains(o.Stale, c.want) {
			t.Errorf("%s: %+v", id, o)
		}
	}
	h.start(t, patch.UpgradeAll, "all", false, r.All)
	o := h.await(t, "all")
	if ok, why := o.Verdict(); ok || len(why) != 1 || !strings.Contains(why[0], "demo-failpost") || len(o.Done) != 9 || len(o.Missing)+len(o.Beyond) > 0 || len(o.Conffiles) != 1 || o.Conffiles[0] != "/etc/demo-conf.conf" {
		t.Errorf("%v %q %+v", ok, why, o)
	}
	// A lock that nobody holds any more is said, and repaired.
	h.Run(t, "touch", "/var/lib/pacman/db.lck")
	if s, err := patch.ParseStatus(h.word(t, patch.Status, ""), time.Now()); err != nil || s.Packages.Clean || !s.Packages.Repair || s.Lock != nil {
		t.Errorf("%+v %v", s, err)
	}
	h.start(t, patch.Repair, "mend", false, nil)
	if o := h.await(t, "mend"); !o.Packages.Clean {
		t.Errorf("%+v", o)
	}
}

func TestZypper(t *testing.T) {
	t.Parallel()
	h := relative(t, patch.Zypper, "demo-lib", "demo-app", "demo-held", "demo-shadow", "demo-conf", "demo-new", "demo-old", "demo-repl", "docker-demo")
	h.Run(t, "sh", "-c", "zypper --non-interactive refresh && zypper addlock demo-held && echo mine >>/etc/demo-conf.conf")
	r := h.look(t)
	if !r.System.Supported || !r.Fresh || !r.Packages.Clean || len(r.Unread) > 0 || len(r.Ready("all")) > 0 {
		t.Errorf("%+v", r)
	}
	if m := has(r.Security, "upgrade demo-lib:noarch 1.0-1 1.1-1 opensuse-leap:repo-update", "upgrade demo-shadow:noarch 1.0-1 1.1-1 opensuse-leap:repo-update", "install demo-new-lib:noarch - 1:1.1-1 opensuse-leap:repo-update", "remove demo-old:noarch 1.0-1 - -"); m != nil {
		t.Errorf("mode security has not %q: %q", m, r.Security.Texts())
	}
	if len(has(r.Security, "demo-app", "docker-demo", "demo-held")) != 3 || len(r.All) != len(r.Security)+1 {
		t.Errorf("%q %q", r.Security.Texts(), r.All.Texts())
	}
	for name, want := range map[string]string{"demo-held": "held", "docker-demo": "third_party"} {
		if got := why(r, name); got != want {
			t.Errorf("%s: %q, not %q", name, got, want)
		}
	}
	h.start(t, patch.UpgradeSecurity, "app", false, pick(t, r.All, "demo-app"))
	if o := h.await(t, "app"); o.State != "refused" || !strings.Contains(o.Stale, "no security update") {
		t.Errorf("%+v", o)
	}
	o := h.install(t, patch.UpgradeSecurity, "p.1", r.Security, "demo-lib", "demo-shadow", "demo-conf", "demo-new", "demo-new-lib")
	well(t, o)
	if len(o.Done) != 5 || len(o.Conffiles) != 1 {
		t.Errorf("%+v", o)
	}
}

// Alpine's apk is not to be had here: what answers is a script that prints what its documentation shows.
func TestAPK(t *testing.T) {
	t.Parallel()
	lab := guestlab.Open(t)
	h := &house{lab: lab, Container: lab.Start(t, guestlab.Guest{Suite: "trixie", Prepare: func(root string) error {
		for path, text := range map[string]string{
			"etc/os-release":       "ID=alpine\nNAME=\"Alpine Linux\"\nVERSION_ID=3.22.1\nPRETTY_NAME=\"Alpine Linux v3.22\"\n",
			"etc/apk/repositories": "https://dl.example/alpine/v3.22/main\nhttps://dl.example/alpine/v3.22/community\n@edge https://dl.example/alpine/edge/main\nhttps://elsewhere.example/stuff\n",
			"lib/apk/db/installed": "P:musl\nV:1.2.5-r9\nA:x86_64\n\nP:zlib\nV:1.3.1-r1\nA:x86_64\n\n",
			"usr/bin/apk":          standIn,
		} {
			full := filepath.Join(root, path)
			_ = os.Remove(full) // a link, of which what it names is not to be written
			if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(full, []byte(text), 0o755); err != nil {
				return err
			}
		}
		return nil
	}})}
	// The account is made in the way of this tree, which has no adduser of busybox.
	h.Run(t, "sh", "-c", `rm -f /usr/sbin/addgroup /usr/sbin/adduser; printf '#!/bin/sh\n' >/usr/sbin/addgroup; printf '#!/bin/sh\ngroupadd --system castellan; exec useradd --system --gid castellan --home-dir /var/lib/castellan/home --no-create-home --shell /bin/sh castellan\n' >/usr/sbin/adduser; chmod 755 /usr/sbin/addgroup /usr/sbin/adduser`)
	h.enrol(t, InstallConfig{Family: patch.APK})
	r := h.look(t)
	if !r.System.Supported || !r.Fresh || len(r.Security) > 0 || len(r.All) != 2 || has(r.All, "upgrade musl:x86_64 1.2.5-r9 1.2.5-r10 alpine:branch", "install musl-new:x86_64 - 1.0-r0 alpine:branch") != nil {
		t.Errorf("%+v", r)
	}
	h.start(t, patch.UpgradeAll, "some", false, pick(t, r.All, "musl"))
	if o := h.await(t, "some"); o.State != "refused" || !strings.Contains(o.Stale, "with the rest") {
		t.Errorf("%+v", o)
	}
	h.start(t, patch.UpgradeAll, "all", false, r.All)
	o := h.await(t, "all")
	if ok, why := o.Verdict(); !ok || len(o.Done) != 2 {
		t.Errorf("%q %+v", why, o)
	}
	if got := h.Run(t, "cat", "/root/asked-of"); strings.Contains(got, "elsewhere") || strings.Contains(got, "edge") || !strings.Contains(got, "v3.22/main") {
		t.Errorf("apk was given %q", got)
	}
	// Old lists are no news.
	h.Run(t, "touch", "/root/offline")
	if r := h.look(t); r.Fresh || len(r.Ready("all")) == 0 {
		t.Errorf("%+v", r)
	}
}

const standIn = `#!/bin/sh
db=/lib/apk/db/installed
word=$1
while [ $# -gt 0 ]; do
	case $1 in --simulate) simulate=yes ;; --repositories-file) shift; cat "$1" >/root/asked-of ;; esac
	shift
done
case $word in
--print-arch) echo x86_64 ;;
update)
	[ ! -e /root/offline ] || { echo 'WARNING: updating https://dl.example/alpine/v3.22/main: temporary error (try again later)' >&2; exit 1; }
	echo 'OK: 25000 distinct packages available' ;;
upgrade)
	if grep -q 1.2.5-r9 $db; then
		echo '(1/2) Installing musl-new (1.0-r0)'
		echo '(2/2) Upgrading musl (1.2.5-r9 -> 1.2.5-r10)'
		[ -n "$simulate" ] || { sed -i s/1.2.5-r9/1.2.5-r10/ $db; printf 'P:musl-new\nV:1.0-r0\nA:x86_64\n\n' >>$db; }
	fi
	echo 'OK: 9 MiB in 15 packages' ;;
fix) echo 'OK: 9 MiB in 15 packages' ;;
*) exit 1 ;;
esac
`
