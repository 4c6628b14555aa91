//go:build linux

package bridge

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"castellan/internal/frame"
	"castellan/internal/guestlab"
	"castellan/internal/patch"
)

// proxmoxArchive makes, in a guest, an archive as Proxmox has it with the packages that make a host, and installs their first
// versions: mk NAME VERSION [FIELD...], and publish DIST CODENAME.
const proxmoxArchive = `set -eu
repo=/srv/proxmox; mkdir -p $repo/pool
mk() {
	name=$1 version=$2; shift 2
	d=$(mktemp -d); mkdir -p "$d/DEBIAN" "$d/usr/share/$name"; echo "$version" >"$d/usr/share/$name/version"
	{ printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: lab <lab@example.invalid>\n' "$name" "$version"; for f; do printf '%s\n' "$f"; done; echo "Description: for tests"; } >"$d/DEBIAN/control"
	[ ! -e /tmp/postinst ] || { cp /tmp/postinst "$d/DEBIAN/postinst"; chmod 755 "$d/DEBIAN/postinst"; }
	dpkg-deb -Znone --root-owner-group --build "$d" "$repo/pool/${name}_${version}_all.deb" >/dev/null; rm -rf "$d"
}
publish() { # the test signs it
	rm -f $repo/dists/$1/InRelease
	p=$repo/dists/$1/pve-no-subscription/binary-amd64; mkdir -p "$p"; : >"$p/Packages"
	for f in $repo/pool/*.deb; do
		{ dpkg-deb -f "$f"; echo "Filename: pool/${f##*/}"; echo "Size: $(stat -c %s "$f")"; echo "SHA256: $(sha256sum <"$f" | cut -d' ' -f1)"; echo; } >>"$p/Packages"
	done
	{ printf 'Origin: Proxmox\nLabel: Proxmox Debian Repository\nSuite: stable\nCodename: %s\nArchitectures: amd64\nComponents: pve-no-subscription\nDate: %s\nSHA256:\n' "$1" "$(date -Ru)"
	  echo " $(sha256sum <"$p/Packages" | cut -d' ' -f1) $(stat -c %s "$p/Packages") pve-no-subscription/binary-amd64/Packages"; } >"$repo/dists/$1/Release"
}
`

const firstHost = proxmoxArchive + `
for s in pve-cluster pvedaemon pveproxy pvestatd; do
	printf '[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n' >/etc/systemd/system/$s.service
done
systemctl daemon-reload; systemctl -q enable --now pve-cluster pvedaemon pveproxy pvestatd
mk pve-manager 8.1.0; mk proxmox-ve 8.1.0 'Depends: pve-manager'; mk proxmox-default-kernel 1.0.0
dpkg --install $repo/pool/*.deb
mk proxmox-kernel-6.8.12-5-pve-signed 6.8.12-5
printf '#!/bin/sh\nsystemctl restart pveproxy pvedaemon\n' >/tmp/postinst; mk pve-manager 8.2.0; rm /tmp/postinst
mk proxmox-ve 8.2.0 'Depends: pve-manager'; mk proxmox-default-kernel 1.1.0 'Depends: proxmox-kernel-6.8.12-5-pve-signed'
publish bookworm
echo 'deb [signed-by=/usr/share/keyrings/proxmox-archive-keyring.gpg] file:/srv/proxmox bookworm pve-no-subscription' >/etc/apt/sources.list.d/pve.list
echo 8 >/etc/demo-slow
`

const hostSettings = `
words = ["updates", "upgrade"]
node = "pve1"
`

// proxmoxHost is a guest that acts as a Proxmox host with a bridge.
type proxmoxHost struct {
	*guestlab.Container
	node
	keys string // of gpg
}

// gpg runs it with the key of the archive's maker, or another.
func gpg(t *testing.T, keys string, args ...string) {
	t.Helper()
	if out, err := exec.Command("gpg", append([]string{"--homedir", keys, "--batch", "--yes", "--quiet"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("gpg %q: %v %s", args, err, out)
	}
}

// newKeys makes a key, whose public part goes into a file of the host.
func (h *proxmoxHost) newKeys(t *testing.T, ring string) string {
	t.Helper()
	keys, err := os.MkdirTemp("", "gpg") // its socket takes no long path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", keys, "--kill", "all").Run()
		_ = os.RemoveAll(keys)
	})
	gpg(t, keys, "--passphrase", "", "--quick-gen-key", "maker <maker@example.invalid>", "ed25519", "sign", "30d")
	gpg(t, keys, "--output", filepath.Join(h.Root, ring), "--export")
	return keys
}

// publish runs a script with mk and publish, and signs the releases of the archive.
func (h *proxmoxHost) publish(t *testing.T, keys, script string) {
	t.Helper()
	h.Run(t, "sh", "-c", script)
	found, err := filepath.Glob(filepath.Join(h.Root, "srv/proxmox/dists/*/Release"))
	if err != nil || len(found) == 0 {
		t.Fatalf("nothing is published: %v", err)
	}
	for _, release := range found {
		gpg(t, keys, "--clearsign", "--output", filepath.Join(filepath.Dir(release), "InRelease"), release)
	}
}

func newProxmoxHost(t *testing.T, packages ...string) *proxmoxHost {
	t.Helper()
	return newProxmoxHostOf(t, "bookworm", packages...)
}

func newProxmoxHostOf(t *testing.T, suite string, packages ...string) *proxmoxHost {
	t.Helper()
	lab := guestlab.Open(t)
	program := buildProgram(t)
	h := &proxmoxHost{Container: lab.Start(t, guestlab.Guest{Suite: suite, Packages: packages})}
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	put := func(path, content string, mode os.FileMode) {
		t.Helper()
		at := filepath.Join(h.Root, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	put(ProgramPath, string(text), 0o755)
	put(DefaultPath, hostSettings, 0o600)
	ca, err := os.ReadFile(filepath.Join(guestlab.PVE, "pve-root-ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	put("/etc/pve/pve-root-ca.pem", string(ca), 0o644)
	put("/etc/pve/priv/lock/keep", "", 0o600)
	h.keys = h.newKeys(t, "usr/share/keyrings/proxmox-archive-keyring.gpg")
	h.publish(t, h.keys, firstHost)
	return h
}

func (h *proxmoxHost) dial(t *testing.T) *wire {
	t.Helper()
	return h.open(t, h.Dial(t), ProgramPath+" bridge run")
}

func (h *proxmoxHost) word(id, name string, args map[string]string) frame.Ask {
	return frame.Ask{ID: id, Verb: frame.Manage, Place: frame.Place{Site: h.site, Node: "pve1", Where: frame.Host}, Word: &frame.Word{Name: name, Args: args}}
}

func read[T any](t *testing.T, tell frame.Tell) T {
	t.Helper()
	var v T
	if tell.Ending != frame.Done {
		t.Fatalf("%+v", tell)
	}
	if err := json.Unmarshal([]byte(tell.Text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func (h *proxmoxHost) check(t *testing.T, w *wire, id string) patch.Report {
	t.Helper()
	return read[patch.Report](t, w.ask(h.word(id, wordUpdates, map[string]string{"word": "check"})))
}

func (h *proxmoxHost) upgrade(id string, texts []string) frame.Ask {
	return h.word(id, wordUpgrade, map[string]string{"mode": "full", "packages": strings.Join(texts, "\n")})
}

func (h *proxmoxHost) kill(t *testing.T, command string) int {
	t.Helper()
	out := h.Run(t, "sh", "-c", "n=0; for p in $(pgrep -f '^"+ProgramPath+" bridge .*"+command+"' || pgrep -f '^"+ProgramPath+" bridge "+command+"'); do kill -9 $p && n=$((n+1)); done; echo $n")
	n, err := strconv.Atoi(out)
	if err != nil {
		t.Fatal(out)
	}
	return n
}

func (h *proxmoxHost) version(t *testing.T, name string) string {
	t.Helper()
	return string(h.Exec(t, "dpkg-query", "-W", "-f", "${Version}", name).Stdout)
}

// forget lets an id be asked for anew.
func (w *wire) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tells = map[string][]frame.Tell{}
}

func swapped(texts []string, old, fresh string) (out []string) {
	for _, text := range texts {
		out = append(out, strings.Replace(text, old, fresh, 1))
	}
	return out
}

// TestSignaturesOnTrixie: where apt has sqv and there is no gpgv, Debian's archives are Debian's, and one that has been signed by
// somebody else is not.
func TestSignaturesOnTrixie(t *testing.T) {
	h := newProxmoxHostOf(t, "trixie", "demo-lib")
	if h.Exec(t, "sh", "-c", "command -v gpgv").Code == 0 {
		t.Fatal("this system has gpgv: sqv is not asked")
	}
	const want = "upgrade demo-lib:all 1.0 1.1 Debian-Security:trixie-security"
	w := h.dial(t)
	if rep := h.check(t, w, "check1"); !slices.Contains(rep.All.Texts(), want) {
		t.Errorf("%v, %v, %q", rep.All.Texts(), rep.Unread, rep.Pending)
	}
	// Another maker's keys in place of Debian's, which apt does not look at where its entries name a file.
	h.Run(t, "sh", "-c", "cp --remove-destination /usr/share/keyrings/proxmox-archive-keyring.gpg /usr/share/keyrings/debian-archive-keyring.gpg")
	if rep := h.check(t, w, "check2"); slices.Contains(rep.All.Texts(), want) {
		t.Error("it is believed without its maker's signature")
	}
}

// TestUpgradeOfAHost goes through a host's full upgrade for real: apt, dpkg and systemd are Debian's own.
func TestUpgradeOfAHost(t *testing.T) {
	h := newProxmoxHost(t, "demo-lib", "demo-app", "demo-old", "demo-repl", "demo-shadow", "demo-slow", "demo-held", "demo-conf", "docker-demo")
	h.Run(t, "sh", "-c", "apt-mark -q hold demo-held; echo mine >/etc/demo-conf.conf")
	w := h.dial(t)
	rep := h.check(t, w, "check1")
	if !rep.Fresh || !rep.Packages.Clean || rep.System.Kind != "pve" || !rep.System.Supported || len(rep.Ready("full")) > 0 {
		t.Fatalf("%+v\n%q", rep, rep.Ready("full"))
	}
	texts := rep.All.Texts()
	for _, want := range []string{"upgrade pve-manager:all 8.1.0 8.2.0 Proxmox:bookworm/pve-no-subscription", "upgrade proxmox-ve:all 8.1.0 8.2.0 Proxmox:bookworm/pve-no-subscription",
		"install proxmox-kernel-6.8.12-5-pve-signed:all - 6.8.12-5 Proxmox:bookworm/pve-no-subscription", "remove demo-old:all 1.0 - -", "upgrade demo-repl:all 1.0 1.1 Debian-Security:bookworm-security",
		"upgrade demo-lib:all 1.0 1.1 Debian-Security:bookworm-security", "upgrade demo-app:all 1.0 1.1 Debian:bookworm-updates", "upgrade demo-shadow:all 1.0 1.1 Debian-Security:bookworm-security"} {
		if !slices.Contains(texts, want) {
			t.Errorf("no %q in\n%s", want, strings.Join(texts, "\n"))
		}
	}
	for _, p := range rep.Pending {
		if want := map[string]string{"docker-demo": "third_party", "demo-held": "held"}[p.Name]; want != p.Why {
			t.Errorf("%+v", p)
		}
	}
	if strings.Contains(strings.Join(texts, "\n"), "docker-demo") || !strings.Contains(strings.Join(rep.Unread, "\n"), "no-subscription") {
		t.Errorf("%v %v", texts, rep.Unread)
	}

	t.Run("what differs is refused, and nothing is changed", func(t *testing.T) {
		for name, asked := range map[string][]string{"fewer": texts[1:], "version": {"upgrade pve-manager:all 8.1.0 8.1.9 Proxmox:bookworm/pve-no-subscription"}, "archive": swapped(texts, "Debian-Security:bookworm-security", "Docker:bookworm")} {
			tell := w.ask(h.upgrade("stale-"+name, asked))
			if o := read[patch.Outcome](t, tell); o.State != "refused" || o.Stale == "" {
				t.Errorf("%s: %+v", name, o)
			}
		}
		for name, asked := range map[string][]string{"ve": {"remove proxmox-ve:all 8.1.0 - -"}, "ssh": {"remove openssh-server:amd64 1 - -"}, "none": {""}, "words": {"upgrade x;y:all 1 2 D:b"}} {
			if tell := w.ask(h.upgrade("never-"+name, asked)); tell.Ending != frame.Refused {
				t.Errorf("%s: %+v", name, tell)
			}
		}
		if v := h.version(t, "pve-manager"); v != "8.1.0" {
			t.Error(v)
		}
	})

	t.Run("killed bridges do not cut it in half", func(t *testing.T) {
		began := time.Now()
		w.put(h.upgrade("plan.3", texts))
		for end := time.Now().Add(40 * time.Second); h.Exec(t, "pgrep", "-f", "demo-slow.postinst").Code != 0; time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it does not install: %+v\n%s", w.tells["plan.3"], h.Exec(t, "sh", "-c", "cat /var/lib/castellan-bridge/upgrades/upgrade-plan.3/*; journalctl -n 30 --no-pager").Stdout)
			}
		}
		if h.kill(t, "run") == 0 || h.kill(t, "patch") == 0 {
			t.Fatal("nothing was killed")
		}
		w := h.dial(t)
		if tell := w.ask(frame.Ask{ID: "plan.3", Verb: frame.Look}); !tell.Running {
			t.Errorf("apt is under way: %+v", tell)
		}
		if tell := w.ask(h.word("c", wordUpdates, map[string]string{"word": "check"})); tell.Ending != frame.Refused {
			t.Errorf("a check meanwhile: %+v", tell)
		}
		if tell := w.ask(h.upgrade("other", texts)); tell.Ending != frame.Refused {
			t.Errorf("a second one meanwhile: %+v", tell)
		}
		w.forget()
		if tell := w.ask(h.upgrade("plan.3", texts)); tell.Ending != frame.Unknown {
			t.Errorf("the same once more: %+v", tell)
		}
		var tell frame.Tell
		for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
			w.forget()
			if tell = w.ask(frame.Ask{ID: "plan.3", Verb: frame.Look}); !tell.Running {
				break
			}
		}
		o := read[patch.Outcome](t, tell)
		if o.State != "ended" || len(o.Done) != len(texts) || len(o.Missing)+len(o.Beyond) > 0 || !o.Packages.Clean || !slices.Contains(o.Conffiles, "/etc/demo-conf.conf") || !strings.Contains(o.Log, "demo-slow: second") {
			t.Errorf("%+v", o)
		}
		if v := h.version(t, "demo-slow") + h.version(t, "pve-manager") + h.version(t, "demo-old") + h.version(t, "demo-shadow") + h.version(t, "docker-demo"); v != "1.18.2.01.11.0" {
			t.Error(v)
		}
		if got := h.Run(t, "cat", "/etc/demo-conf.conf"); got != "mine" {
			t.Error(got)
		}
		o.Services = patch.Compare(*o.Before, *o.After)
		if ok, why := o.Verdict(); !ok {
			t.Errorf("%q", why)
		}
		t.Logf("it took %s", time.Since(began))
	})

	t.Run("an upgrade that is left alone tells its end", func(t *testing.T) {
		h.publish(t, h.keys, proxmoxArchive+"mk pve-manager 8.2.1; publish bookworm")
		w := h.dial(t)
		rep := h.check(t, w, "check2")
		if texts := rep.All.Texts(); len(texts) != 1 {
			t.Fatal(texts)
		}
		o := read[patch.Outcome](t, w.ask(h.upgrade("plan2.1", rep.All.Texts())))
		if o.State != "ended" || len(o.Done) != 1 || o.Exit == nil || *o.Exit != 0 || o.Note != "" {
			t.Errorf("%+v", o)
		}
		if last := read[patch.Outcome](t, w.ask(h.word("r", wordUpdates, map[string]string{"word": "result"}))); last.ID != "plan2.1" || last.State != "ended" {
			t.Errorf("%+v", last)
		}
		house := read[patch.House](t, w.ask(h.word("s", wordUpdates, map[string]string{"word": "services"})))
		if !slices.ContainsFunc(house.Units, func(u patch.Unit) bool { return u.Name == "pveproxy" && u.Active == "active" }) || !slices.ContainsFunc(house.Ports, func(p patch.Port) bool { return p.Port == 22 }) {
			t.Errorf("%+v", house)
		}
	})

	t.Run("what would take the host away is refused by the run itself", func(t *testing.T) {
		h.publish(t, h.keys, proxmoxArchive+"mk demo-lib 1.2 'Conflicts: proxmox-ve'; publish bookworm")
		w := h.dial(t)
		rep := h.check(t, w, "check3")
		texts := rep.All.Texts()
		if !slices.Contains(texts, "remove proxmox-ve:all 8.2.0 - -") {
			t.Fatalf("the test is none: %v", texts)
		}
		if tell := w.ask(h.upgrade("bad1", texts)); tell.Ending != frame.Refused || !strings.Contains(tell.Reason, "proxmox-ve") {
			t.Errorf("%+v", tell)
		}
		// Nobody asks the bridge: the run is given the job.
		dir := "/var/lib/castellan-bridge/upgrades/upgrade-bad2"
		job, err := json.Marshal(map[string]any{"id": "bad2", "asked": texts})
		if err != nil {
			t.Fatal(err)
		}
		h.Run(t, "mkdir", "-m", "700", dir)
		if err := os.WriteFile(filepath.Join(h.Root, dir, "job"), job, 0o600); err != nil {
			t.Fatal(err)
		}
		h.Run(t, ProgramPath, "bridge", "patch", "bad2")
		tell := w.ask(frame.Ask{ID: "bad2", Verb: frame.Look})
		if o := read[patch.Outcome](t, tell); o.State != "refused" || !strings.Contains(o.Stale, "proxmox-ve") || h.version(t, "proxmox-ve") != "8.2.0" {
			t.Errorf("%+v", o)
		}
	})

	t.Run("apt itself is stopped where it is about to do something else", func(t *testing.T) {
		h.publish(t, h.keys, proxmoxArchive+"rm $repo/pool/demo-lib_1.2_all.deb; mk pve-manager 8.2.2; publish bookworm")
		h.Run(t, "sh", "-c", "mkdir -p /var/lib/castellan-bridge/upgrades/upgrade-x; echo '[]' >/var/lib/castellan-bridge/upgrades/upgrade-x/decided; apt-get -q update")
		r := h.Exec(t, "apt-get", "-y", "-q", "-o", "DPkg::Pre-Install-Pkgs::="+ProgramPath+" bridge --config "+DefaultPath+" admit -- x", "-o", "DPkg::Tools::Options::"+ProgramPath+"::Version=3", "dist-upgrade")
		if r.Code == 0 || h.version(t, "pve-manager") != "8.2.1" || !strings.Contains(string(r.Stderr)+string(r.Stdout), "before it changes anything") { // nothing was decided for it
			t.Errorf("%d %s %s", r.Code, r.Stdout, r.Stderr)
		}
	})

	t.Run("an archive that feigns to be the maker's", func(t *testing.T) {
		was := h.version(t, "pve-manager")
		other := h.newKeys(t, "usr/share/keyrings/other.gpg") // apt takes it
		h.publish(t, other, proxmoxArchive+"mk pve-manager 8.2.3; publish bookworm; sed -i s/proxmox-archive-keyring/other/ /etc/apt/sources.list.d/pve.list")
		w := h.dial(t)
		rep := h.check(t, w, "feigned")
		why := strings.Join(rep.Ready("full"), " ")
		if rep.Packages.Clean || !strings.Contains(why, "calls itself Proxmox's") || strings.Contains(strings.Join(rep.All.Texts(), "\n"), "pve-manager") {
			t.Errorf("%q\n%s", why, strings.Join(rep.All.Texts(), "\n"))
		}
		for n, asked := range [][]string{rep.All.Texts(), {"upgrade pve-manager:all 8.2.1 8.2.3 Proxmox:bookworm/pve-no-subscription"}} {
			if len(asked) == 0 {
				continue
			}
			if tell := w.ask(h.upgrade("feigned."+strconv.Itoa(n), asked)); read[patch.Outcome](t, tell).State != "refused" || h.version(t, "pve-manager") != was {
				t.Errorf("%+v", tell)
			}
		}
		h.publish(t, h.keys, "sed -i s/other/proxmox-archive-keyring/ /etc/apt/sources.list.d/pve.list")
	})

	t.Run("another release is no upgrade", func(t *testing.T) {
		h.publish(t, h.keys, proxmoxArchive+"mk pve-manager 9.0.0; publish trixie; echo 'deb [signed-by=/usr/share/keyrings/proxmox-archive-keyring.gpg] file:/srv/proxmox trixie pve-no-subscription' >/etc/apt/sources.list.d/next.list")
		w := h.dial(t)
		rep := h.check(t, w, "check4")
		if rep.Packages.Clean || !strings.Contains(strings.Join(rep.Ready("full"), " "), "another release") {
			t.Errorf("%q", rep.Ready("full"))
		}
		o := read[patch.Outcome](t, w.ask(h.upgrade("rel", []string{"upgrade pve-manager:all 8.2.1 8.2.2 Proxmox:bookworm/pve-no-subscription"})))
		if o.State != "refused" || h.version(t, "pve-manager") != "8.2.1" {
			t.Errorf("%+v", o)
		}
	})

	log := h.Run(t, "cat", "/var/log/castellan-bridge.log")
	if !strings.Contains(log, `"word":"upgrade"`) || !strings.Contains(log, `"verb":"patch"`) {
		t.Errorf("the record: %s", log)
	}
}
