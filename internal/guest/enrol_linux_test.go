//go:build linux

package guest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/channel"
	"castellan/internal/gate"
	"castellan/internal/guestlab"
	"castellan/internal/ops/housetest"
	"castellan/internal/patch"
	"castellan/internal/store"
)

// castellan's own address on the network of the lab's guests.
const labSelf = "10.99.0.1"

func testChannels(t testing.TB, change ...func(*channel.Config)) *channel.Channels {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), store.Config{URL: filepath.Join(t.TempDir(), "state", "castellan.db"), Signer: key})
	if err != nil {
		t.Fatal(err)
	}
	config := channel.Config{Store: st, Sealer: housetest.Sealer{}}
	for _, f := range change {
		f(&config)
	}
	c, err := channel.NewChannels(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); st.Close() })
	return c
}

// looked after: a real container whose packages castellan looks after, or is to.
func newLooked(t testing.TB, g guestlab.Guest) *real {
	t.Helper()
	r := newRealGuest(t, g)
	r.site.says("GET /nodes/{node}/lxc/{vmid}/interfaces", fmt.Sprintf(`[{"name":"lo","hwaddr":"00:00:00:00:00:00","inet":"127.0.0.1/8"},{"name":"eth0","hwaddr":%q,"inet":"%s/16"}]`, strings.ToLower(r.ct.MAC), r.ct.Address))
	r.site.says("GET /nodes/{node}/lxc/{vmid}/status/current", `{"status":"running"}`)
	r.again(t, testChannels(t))
	return r
}

// again is castellan after a restart.
func (r *real) again(t testing.TB, c *channel.Channels) {
	t.Helper()
	var err error
	if r.runner, err = NewRunner(RunnerConfig{Driver: r.site, Bridges: r.bridges, Channels: c, Pace: 200 * time.Millisecond, Settle: 300 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
}

func (r *real) do(t testing.TB, id, word string, params map[string]any) (gate.RunResult, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return r.runner.carry(ctx, gate.Write{Target: "lab", Request: r.request(t, word, params), Open: plainOpen}, nil, id, gate.RunHooks{})
}

func (r *real) enrol(t testing.TB) {
	t.Helper()
	res, err := r.do(t, nextID(), "enrol", map[string]any{"from": labSelf, "automatic": "off"})
	if err != nil || !res.OK {
		t.Fatalf("enrol: %+v %v", res, err)
	}
}

// files lists everything in the guest that may be changed, with modes, owners and contents of what is small.
func files(t testing.TB, ct *guestlab.Container) []string {
	t.Helper()
	out := ct.Run(t, "sh", "-c", `cd / && find etc usr/local var/lib root home opt srv -xdev \( -path var/lib/dpkg -o -path var/lib/apt -o -path var/lib/systemd -o -path srv/guestlab \) -prune -o \( -type f -size -200k -printf '%p %m %U:%G ' -exec sh -c 'sha256sum <"$1"' sh {} \; -o -printf '%p %m %U:%G\n' \) | sort`)
	return slices.DeleteFunc(strings.Split(out, "\n"), func(l string) bool {
		// Copies that the tools for accounts keep of what was there before.
		return strings.HasPrefix(l, "etc/passwd-") || strings.HasPrefix(l, "etc/shadow-") || strings.HasPrefix(l, "etc/group-") || strings.HasPrefix(l, "etc/gshadow-") || strings.HasPrefix(l, "etc/subuid-") || strings.HasPrefix(l, "etc/subgid-") ||
			strings.HasPrefix(l, "etc/.pwd.lock") || strings.HasPrefix(l, "var/lib/sudo")
	})
}

func TestRealEnrol(t *testing.T) {
	for _, g := range []guestlab.Guest{{Unprivileged: true}, {Suite: "trixie"}} {
		r := newLooked(t, g)
		if g.Suite != "" {
			delete(r.site.conf, "unprivileged")
		}
		before := files(t, r.ct)
		id := nextID()
		res, err := r.do(t, id, "enrol", map[string]any{"from": labSelf, "automatic": "keep"})
		if err != nil || !res.OK || !strings.Contains(res.Said, r.ct.Address) {
			t.Fatalf("enrol: %+v %v", res, err)
		}
		e, err := r.runner.channels.Find(t.Context(), r.site.name, r.ct.ID)
		if err != nil || e.Run != id || e.Address != r.ct.Address || e.System.ID != "debian" || e.From != labSelf {
			t.Fatalf("%+v %v", e, err)
		}
		if res, running, err := r.runner.Look(t.Context(), "lab", r.request(t, "enrol", map[string]any{"from": labSelf}), id, ""); err != nil || running || !res.OK {
			t.Errorf("look: %+v %v %v", res, running, err)
		}
		if _, _, err := r.runner.Look(t.Context(), "lab", r.request(t, "enrol", map[string]any{"from": labSelf}), "other.1", ""); err == nil || !strings.Contains(err.Error(), "castellan enrol") {
			t.Errorf("look for another: %v", err)
		}
		for _, word := range []string{"status", "services", "result", "progress"} {
			res, err := r.do(t, nextID(), "updates", map[string]any{"word": word})
			if err != nil || !res.OK || len(res.Report) == 0 {
				t.Errorf("%s: %+v %v", word, res, err)
			}
		}
		// Enrolled anew: the old key is of no use any more.
		old := *e
		r.enrol(t)
		if _, _, err := r.runner.channels.Try(t.Context(), &old, patch.Status, 10*time.Second); err == nil {
			t.Error("the key of before is still taken")
		}
		// Nothing is left.
		id = nextID()
		res, err = r.do(t, id, "unenrol", nil2())
		if err != nil || !res.OK {
			t.Fatalf("unenrol: %+v %v", res, err)
		}
		if _, err := r.runner.channels.Find(t.Context(), r.site.name, r.ct.ID); err == nil {
			t.Error("the channel is still kept")
		}
		if res, _, err := r.runner.Look(t.Context(), "lab", r.request(t, "unenrol", nil2()), id, ""); err != nil || !res.OK {
			t.Errorf("look: %+v %v", res, err)
		}
		after := files(t, r.ct)
		for _, l := range before {
			if !slices.Contains(after, l) {
				t.Errorf("before: %s", l)
			}
		}
		for _, l := range after {
			if !slices.Contains(before, l) {
				t.Errorf("after: %s", l)
			}
		}
		if _, err := r.do(t, nextID(), "updates", map[string]any{"word": "status"}); !notStarted(err) || !strings.Contains(err.Error(), "not enrolled") {
			t.Errorf("after it was taken away: %v", err)
		}
	}
}

func nil2() map[string]any { return map[string]any{} }

// An enrolment that does not work is taken away again, and says so.
func TestRealEnrolFails(t *testing.T) {
	r := newLooked(t, guestlab.Guest{Unprivileged: true})
	before := files(t, r.ct)
	res, err := r.do(t, nextID(), "enrol", map[string]any{"from": "10.99.77.77"}) // castellan does not come from there
	if err != nil || res.OK || !strings.Contains(res.Said, "--from") || !strings.Contains(res.Said, "taken away again") {
		t.Errorf("%+v %v", res, err)
	}
	if after := files(t, r.ct); !slices.Equal(before, after) {
		t.Error("something is left")
	}
	if _, err := r.do(t, nextID(), "enrol", map[string]any{"from": "127.0.0.1"}); !notStarted(err) {
		t.Errorf("from loopback: %v", err)
	}
	// Replaced: another root volume.
	r.enrol(t)
	r.site.conf["rootfs"] = "local-zfs:subvol-999-disk-0,size=8G"
	for _, word := range []string{"updates", "repair"} {
		if _, err := r.do(t, nextID(), word, map[string]any{"word": "status"}); !notStarted(err) || !strings.Contains(err.Error(), "another one than was enrolled") {
			t.Errorf("%s of a replaced guest: %v", word, err)
		}
	}
	res, err = r.do(t, nextID(), "unenrol", map[string]any{"forget": true})
	if err != nil || !res.OK || !strings.Contains(res.Said, "/var/lib/castellan") {
		t.Errorf("forget: %+v %v", res, err)
	}
}

// The way of a person: a script that is pasted.
func TestRealScript(t *testing.T) {
	r := newLooked(t, guestlab.Guest{Unprivileged: true})
	id := nextID()
	res, err := r.do(t, id, "enrol", map[string]any{"from": labSelf, "way": "script"})
	if err != nil || !res.OK || !strings.HasPrefix(res.Stdout, "#!/bin/sh") || strings.Contains(res.Stdout, "PRIVATE") {
		t.Fatalf("%+v %v", res.Said, err)
	}
	if again, _, err := r.runner.Look(t.Context(), "lab", r.request(t, "enrol", map[string]any{"from": labSelf, "way": "script"}), id, ""); err != nil || again.Stdout != res.Stdout {
		t.Errorf("look: %v", err)
	}
	out := r.ct.Run(t, "sh", "-c", res.Stdout)
	var keys []string
	for l := range strings.Lines(out) {
		if k, ok := strings.CutPrefix(strings.TrimSpace(l), "host-key\t"); ok {
			keys = append(keys, strings.ReplaceAll(k, "\t", " "))
		}
	}
	other, _ := key(t)
	otherKey := strings.TrimSpace(guestlab.AuthorizedKey("", other.PublicKey()))
	if res, err := r.do(t, nextID(), "enrol", map[string]any{"from": labSelf, "way": "accept", "host-key": []string{otherKey}}); err != nil || res.OK || !strings.Contains(res.Said, "not the pinned one") {
		t.Errorf("another host key: %+v %v", res, err)
	}
	if res, err := r.do(t, nextID(), "enrol", map[string]any{"from": labSelf, "way": "accept", "host-key": keys}); err != nil || !res.OK {
		t.Errorf("accept: %+v %v", res, err)
	}
	if res, err := r.do(t, nextID(), "updates", map[string]any{"word": "status"}); err != nil || !res.OK {
		t.Errorf("status: %+v %v", res, err)
	}
}

func outcome(t testing.TB, res gate.RunResult) (o patch.Outcome) {
	t.Helper()
	if err := json.Unmarshal(res.Report, &o); err != nil {
		t.Fatalf("%v: %+v", err, res)
	}
	return o
}

func (r *real) check(t testing.TB) (p patch.Report) {
	t.Helper()
	res, err := r.do(t, nextID(), "updates", map[string]any{"word": "check"})
	if err != nil || !res.OK {
		t.Fatalf("check: %+v %v", res, err)
	}
	if err := json.Unmarshal(res.Report, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// Packages are installed for real, with the connection cut, sshd restarted and castellan ended in the middle.
func TestRealUpgrade(t *testing.T) {
	r := newLooked(t, guestlab.Guest{Unprivileged: true, Packages: []string{"demo-lib", "demo-slow"}})
	r.enrol(t)
	r.ct.Run(t, "sh", "-c", "echo 4 >/etc/demo-slow")
	p := r.check(t)
	if len(p.Security) == 0 {
		t.Fatalf("nothing to install: %+v", p)
	}
	plan := "p" + nextID()[1:]
	plan = strings.ReplaceAll(plan, ".", "x")
	req := map[string]any{"mode": "security", "package": p.Security.Texts(), "protect": "none"}

	ctx, kill := context.WithCancel(t.Context())
	var handle string
	var mu sync.Mutex
	ended := make(chan error, 1)
	go func() {
		_, err := r.runner.carry(ctx, gate.Write{Target: "lab", Request: r.request(t, "upgrade", req), Open: plainOpen}, nil, plan+".2", gate.RunHooks{Handle: func(h string) { mu.Lock(); handle = h; mu.Unlock() }})
		ended <- err
	}()
	for range 100 {
		time.Sleep(100 * time.Millisecond)
		if mu.Lock(); handle != "" {
			mu.Unlock()
			break
		}
		mu.Unlock()
	}
	time.Sleep(1500 * time.Millisecond)
	r.ct.Run(t, "systemctl", "restart", "ssh")
	kill()
	<-ended
	// Another castellan finds it.
	channels := r.runner.channels
	r.again(t, channels)
	var res gate.RunResult
	for range 200 {
		var running bool
		var err error
		if res, running, err = r.runner.Look(t.Context(), "lab", r.request(t, "upgrade", req), plan+".2", handle); err != nil {
			t.Fatalf("look: %v", err)
		}
		if !running {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	o := outcome(t, res)
	if !res.OK || o.State != "ended" || len(o.Done) != len(p.Security) || o.ID != plan+".2" {
		t.Errorf("%+v %+v", res, o)
	}
	reached := false
	for _, port := range o.Before.Ports {
		reached = reached || port.Port == 22 && port.Reached != nil && *port.Reached
	}
	if !reached {
		t.Errorf("castellan's own connection to port 22 before is not in the answer: %+v", o.Before.Ports)
	}
	res, err := r.do(t, plan+".3", "updates", map[string]any{"word": "verify"})
	if err != nil || !res.OK {
		t.Errorf("verify: %+v %v", res, err)
	}
	// An outcome of another plan proves nothing.
	res, err = r.do(t, "pother.3", "updates", map[string]any{"word": "verify"})
	if err != nil || res.OK || res.ExitCode == nil {
		t.Errorf("verify of another plan: %+v %v", res, err)
	}
	// The same transaction is stale now: nothing is changed, and that is known.
	res, err = r.do(t, plan+"b.2", "upgrade", req)
	if err != nil || res.OK || res.ExitCode == nil || !strings.Contains(res.Said, "nothing was installed") {
		t.Errorf("stale: %+v %v", res, err)
	}
	// No id is started twice.
	before := r.ct.Run(t, "sh", "-c", "cat /var/lib/castellan/ids; dpkg-query -W | md5sum; stat -c %Y /var/lib/castellan/run/began")
	res, err = r.do(t, plan+".2", "upgrade", req)
	if again := r.ct.Run(t, "sh", "-c", "cat /var/lib/castellan/ids; dpkg-query -W | md5sum; stat -c %Y /var/lib/castellan/run/began"); again != before {
		t.Errorf("the same id again: %s, before %s", again, before)
	}
	if err == nil && res.OK { // what the guest has to tell by then is another run's
		t.Errorf("the same id again: %+v", res)
	}
}

// A service that dies is seen, though the package manager is content.
func TestRealVerify(t *testing.T) {
	r := newLooked(t, guestlab.Guest{Unprivileged: true, Packages: []string{"demo-svc"}})
	r.enrol(t)
	p := r.check(t)
	tx := p.All
	if len(tx) == 0 {
		t.Fatalf("nothing to install: %+v", p)
	}
	plan := "v" + strings.ReplaceAll(nextID(), ".", "x")
	var lines []string
	res, err := r.runner.carry(t.Context(), gate.Write{Target: "lab", Request: r.request(t, "upgrade", map[string]any{"mode": "all", "package": tx.Texts(), "protect": "none"}), Open: plainOpen}, nil, plan+".2",
		gate.RunHooks{Live: func(b []byte) { lines = append(lines, string(b)) }})
	if err != nil || !res.OK {
		t.Fatalf("upgrade: %+v %v", res, err)
	}
	if len(lines) == 0 {
		t.Error("nothing of its progress was told")
	}
	res, err = r.do(t, plan+".3", "updates", map[string]any{"word": "verify", "timeout": "8"})
	if err != nil || res.OK || res.ExitCode == nil || !strings.Contains(res.Said, "demo-svc") {
		t.Errorf("verify: %+v %v", res, err)
	}
	// Proxmox says that it does not run: the guest's word does not count.
	r.site.says("GET /nodes/{node}/lxc/{vmid}/status/current", `{"status":"stopped"}`)
	res, err = r.do(t, plan+".3", "updates", map[string]any{"word": "verify", "timeout": "2"})
	if err != nil || res.OK || !strings.Contains(res.Said, "stopped") {
		t.Errorf("verify: %+v %v", res, err)
	}
}

// A reboot is over when another boot id is told.
func TestRealReboot(t *testing.T) {
	r := newLooked(t, guestlab.Guest{Unprivileged: true})
	r.enrol(t)
	boot := r.ct.BootID(t)
	if _, err := r.do(t, nextID(), "updates", map[string]any{"word": "status", "other-than": boot, "timeout": "4"}); !notStarted(err) || !strings.Contains(err.Error(), "another boot id within 4s") {
		t.Errorf("without a reboot: %v", err)
	}
	done := make(chan struct{})
	go func() { defer close(done); r.ct.Reboot(t) }()
	res, err := r.do(t, nextID(), "updates", map[string]any{"word": "status", "other-than": boot})
	<-done
	var p patch.Report
	if err != nil || json.Unmarshal(res.Report, &p) != nil || p.BootID == boot || p.BootID == "" {
		t.Errorf("%+v %v", res, err)
	}
}
