//go:build linux

package helper

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"castellan/internal/guestlab"
	"castellan/internal/patch"
)

// asVM has the helper say that it runs in a VM, with a kernel of the release that /run/release names: the tests' guests are containers.
func (h *house) asVM(t *testing.T) {
	t.Helper()
	text, err := Text(patch.APT)
	if err != nil {
		t.Fatal(err)
	}
	h.write(t, "usr/local/sbin/castellan-helper.new", []byte(strings.Replace(text, "\nmain \"$@\"\n", `
virt() { cat /run/virt 2>/dev/null || echo vm; }
uname() {
	case $1 in
	-r) cat /run/release 2>/dev/null || echo 6.1.0-98-amd64 ;;
	*) echo '#1 SMP' ;;
	esac
}
main "$@"
`, 1)))
	h.Run(t, "sh", "-c", "cd /usr/local/sbin && chmod 755 castellan-helper.new && mv castellan-helper.new castellan-helper")
}

// What has to stop an installation before anything is changed, with its reason; and when it is over, that it is over.
func TestStopsBefore(t *testing.T) {
	t.Parallel()
	h := enrol(t, guestlab.Guest{Packages: []string{"demo-lib", "demo-app", "demo-slow", "linux-image-6.1.0-98-amd64", "linux-image-amd64"}})
	h.asVM(t)
	good := h.check(t)
	if !good.Fresh || len(good.Ready("all")) > 0 {
		t.Fatalf("to begin with: %q %+v", good.Ready("all"), good)
	}
	key := newSigner(t)
	h.trusted(t, key, true)
	h.Run(t, "cp", "-a", "/srv/guestlab/debian-security", "/srv/security")
	h.Run(t, "cp", "-a", "/srv/guestlab/docker", "/srv/guestlab/aged")
	old := newSigner(t, "seconds=15")
	expired := time.Now().Add(16 * time.Second)
	h.publish(t, old, "aged", "bookworm", "thirdparty", "", "", "", nil)
	h.trusted(t, old, false)
	gone := serve(t, http.NotFound)
	resign := func(fields ...string) func() {
		return func() {
			h.publish(t, key, "debian-security", "bookworm-security", "security", "", "", "", fields)
		}
	}
	run := func(command string) func() { return func() { h.Run(t, "sh", "-c", command) } }
	security := run("rm -rf /srv/guestlab/debian-security && cp -a /srv/security /srv/guestlab/debian-security")
	for _, c := range []struct {
		name          string
		breaks, mends func()
		what          string // of it is asked for
		wants         []string
		unclean       bool
	}{
		{"an expired release file", resign("Valid-Until: Sat, 01 Jan 2022 00:00:00 UTC"), security, "demo-app", []string{"debian-security", "is expired (invalid since"}, false},
		{"a clock that is behind", resign("Date: " + time.Now().UTC().Add(8*time.Hour).Format("Mon, 02 Jan 2006 15:04:05") + " UTC"), security, "demo-app", []string{"debian-security", "is not valid yet"}, false},
		{"an expired key of a third party", func() {
			time.Sleep(time.Until(expired))
			run("echo 'deb [signed-by=/etc/apt/keyrings/guestlab.asc] file:/srv/guestlab/aged bookworm main' >/etc/apt/sources.list.d/aged.list")()
		},
			run("rm /etc/apt/sources.list.d/aged.list"), "demo-app", []string{"/srv/guestlab/aged", "EXPKEYSIG"}, false},
		{"an archive that is no more", run("echo 'deb [trusted=yes] http://" + gone + "/old bookworm main' >/etc/apt/sources.list.d/gone.list"),
			run("rm /etc/apt/sources.list.d/gone.list"), "demo-app", []string{"http://" + gone + "/old", "404"}, false},
		// A script of a package is sure to run when its dpkg is killed.
		{"a dpkg that somebody killed", run(`echo 300 >/etc/demo-slow
setsid dpkg -i /srv/guestlab/debian-security/pool/security/demo-slow_1.1_all.deb </dev/null >/run/slow.log 2>&1 &
for i in $(seq 600); do grep -q 'second 1 ' /run/slow.log && break; sleep 0.1; done
kill -9 -$!; wait $! || true`), run("echo 0 >/etc/demo-slow; dpkg --configure -a"), "demo-app", []string{"demo-slow is half-configured"}, true},
		{"a full /boot", run("cp -a /boot /srv/boot; mount -t tmpfs -o size=3m boot /boot && cp -a /srv/boot/. /boot && head -c 40000000 /dev/zero >/boot/fill 2>/dev/null; true"), run("umount /boot"), "linux-image-amd64 linux-image-6.1.0-99-amd64", []string{"/boot has", "needed"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			state := "dpkg-query -W; cat /var/lib/dpkg/status /var/lib/apt/extended_states; ls /boot"
			c.breaks()
			before := h.Run(t, "sh", "-c", "("+state+") | md5sum")
			r := h.check(t)
			contains(t, "check", strings.Join(r.Ready("all"), "; "), c.wants...)
			if r.UpToDate() || r.Packages.Clean == c.unclean || r.Packages.Repair != c.unclean {
				t.Errorf("check: %+v", r)
			}
			h.start(t, patch.UpgradeAll, "stop."+strings.ReplaceAll(strings.ReplaceAll(c.name, " ", "-"), "/", ""), false, pick(t, good.All, strings.Fields(c.what)...))
			o := h.wait(t, h.result(t).ID)
			if o.State != "refused" || len(o.Done) > 0 {
				t.Errorf("it was begun: %+v", o)
			}
			contains(t, "refused", o.Stale, c.wants...)
			if after := h.Run(t, "sh", "-c", "("+state+") | md5sum"); after != before {
				t.Error("something was changed")
			}
			c.mends()
		})
	}
	if r := h.check(t); !r.Fresh || len(r.Ready("all")) > 0 {
		t.Errorf("when all was mended: %q", r.Ready("all"))
	}
	t.Run("an archive that stands still", func(t *testing.T) {
		if r := h.check(t); len(r.Frozen()) > 0 || len(r.Releases) < 2 {
			t.Errorf("before: %q %+v", r.Frozen(), r.Releases)
		}
		for days, frozen := range map[int]bool{9: false, 12: true} {
			resign("Date: " + time.Now().UTC().Add(-time.Duration(days)*24*time.Hour).Format("Mon, 02 Jan 2006 15:04:05") + " UTC")()
			h.Run(t, "sh", "-c", "rm -rf /var/lib/apt/lists/*") // apt takes no state that is older than what it has
			r := h.check(t)
			if !r.Fresh || (len(r.Frozen()) > 0) != frozen {
				t.Errorf("%d days: fresh %v %q, %q\n%+v", days, r.Fresh, r.Stale, r.Frozen(), r.Releases)
			}
			if len(r.Frozen()) > 0 {
				contains(t, "frozen", r.Frozen()[0], "Debian-Security:bookworm-security", "12 days ago", "of no state")
			}
		}
		security()
		h.Run(t, "sh", "-c", "rm -rf /var/lib/apt/lists/*")
	})
	t.Run("a clock that is told wrong", func(t *testing.T) {
		out := h.word(t, patch.Check, "")
		for _, off := range []time.Duration{-time.Hour, time.Hour} {
			r, err := patch.ParseCheck(out, time.Now().Add(off))
			if err != nil || !r.ClockWrong() || !strings.Contains(strings.Join(r.Ready("all"), ";"), "its clock is off by") {
				t.Errorf("off by %s: %v %+v", off, err, r.ClockOff)
			}
		}
	})
}

// A reboot is due where it is, and nowhere else.
func TestRebootsThatAreNotDue(t *testing.T) {
	t.Parallel()
	h := enrol(t, guestlab.Guest{Packages: []string{}})
	h.asVM(t)
	for _, p := range [][2]string{
		{"linux-virtual", "6.8.0-48.48"}, {"linux-image-virtual", "6.8.0-48.48"}, {"linux-headers-virtual", "6.8.0-48.48"}, {"linux-image-6.8.0-47-generic", "6.8.0-47.47"},
		{"linux-image-6.12.34+rpt-rpi-v8", "1"}, {"linux-image-6.12.34+rpt-rpi-2712", "1"}, {"linux-image-6.12.40+rpt-rpi-v7l", "1"}, {"linux-image-rpi-v8", "6.12.40"}, {"raspi-firmware", "1"},
		{"linux-image-6.12.88+deb13-amd64", "6.12.88-1"}, {"linux-image-6.12.88+deb13.1-amd64", "6.12.88-2"}, {"linux-image-6.12.88+deb13-cloud-amd64", "6.12.88-1"}, {"linux-image-amd64", "6.12.88-2"},
	} {
		h.pack(t, "srv/kernels", p[0], p[1], nil)
	}
	h.Run(t, "sh", "-c", "dpkg -i --force-unsafe-io /srv/kernels/*.deb")
	status := func(where, release, pkgs string) patch.Reboot {
		t.Helper()
		set := "rm -f /run/reboot-required*; touch /run/crond.reboot; echo " + where + " >/run/virt; echo " + release + " >/run/release"
		if pkgs != "" {
			set += "; touch /run/reboot-required; printf '%s\\n' " + pkgs + " >/run/reboot-required.pkgs"
		}
		h.Run(t, "sh", "-c", set)
		r, err := patch.ParseStatus(h.word(t, patch.Status, ""), time.Now())
		if err != nil || !r.Reboot.Known {
			t.Fatalf("%+v %v", r, err)
		}
		return r.Reboot
	}
	for _, c := range []struct{ where, release, pkgs, want string }{
		{"vm", "6.8.0-47-generic", "", ""},           // a package "virtual" is no newer kernel
		{"vm", "6.12.34+rpt-rpi-v8", "", ""},         // nor is another board's
		{"vm", "6.12.34+rpt-rpi-2712", "", ""},       //
		{"vm", "6.12.88+deb13.1-amd64", "", ""},      // it is the newer one, whatever sorts after it as a text
		{"vm", "6.12.88+deb13-cloud-amd64", "", ""},  //
		{"vm", "6.99.0-own", "", ""},                 // built by hand
		{"container", "6.12.88+deb13-amd64", "", ""}, // the node's kernel
		{"container", "6.12.88-1-pve", "linux-image-6.12.88+deb13.1-amd64 linux-base linux-image-virtual linux-virtual linux-generic linux-headers-virtual raspi-firmware proxmox-kernel-6.14 pve-kernel-6.2 intel-microcode linux-modules-6.8.0-47-generic linux-image-rpi-v8", ""},
		{"vm", "6.12.88+deb13-amd64", "", "kernel 6.12.88+deb13.1-amd64 is installed, 6.12.88+deb13-amd64 runs"},
		{"vm", "6.12.88+deb13.1-amd64", "libc6 linux-image-6.12.88+deb13.1-amd64", "libc6; linux-image-6.12.88+deb13.1-amd64"},
		{"container", "6.12.88-1-pve", "libc6 linux-image-6.12.88+deb13.1-amd64", "libc6"},
	} {
		got := status(c.where, c.release, c.pkgs)
		if strings.Join(got.Why, "; ") != c.want || got.Needed != (c.want != "") {
			t.Errorf("%s of %s, %q: %+v, want %q", c.where, c.release, c.pkgs, got, c.want)
		}
	}
}
