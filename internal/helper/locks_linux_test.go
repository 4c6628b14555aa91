//go:build linux

package helper

import (
	"bytes"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"castellan/internal/guestlab"
	"castellan/internal/patch"
)

// Others work on packages too, and are waited for by name: an installation, a refresh of the lists, and one that outlasts the limit.
func TestLocksOfOthers(t *testing.T) {
	t.Parallel()
	h := enrol(t, guestlab.Guest{Unprivileged: true, Packages: []string{"demo-lib", "demo-app", "demo-point", "demo-slow"}})
	r := h.check(t)
	t.Run("an installation", func(t *testing.T) {
		h.Run(t, "sh", "-c", "echo 15 >/etc/demo-slow")
		h.Run(t, "systemd-run", "-q", "--collect", "--unit=other", "apt-get", "-y", "-q", "install", "demo-slow")
		if l := h.lockHeld(t); l.Program != "apt-get" || l.PID == 0 {
			t.Errorf("lock: %+v", l)
		}
		began := time.Now()
		h.startByGate(t, patch.UpgradeSecurity, "lock.1", pick(t, r.Security, "demo-lib"))
		h.waitsFor(t, "lock.1", "held by apt-get (pid ")
		o := h.wait(t, "lock.1")
		if ok, why := o.Verdict(); !ok || len(o.Done) != 1 || o.Done[0].Name != "demo-lib" || len(o.Beyond) != 0 {
			t.Errorf("what the other one did meanwhile is not of this one: %q %+v", why, o)
		}
		if took := time.Since(began); took < 10*time.Second {
			t.Errorf("it did not wait: %s", took)
		}
		done, err := strconv.ParseInt(h.Run(t, "cat", "/run/demo-slow.done"), 10, 64)
		if err != nil || o.Ended.Unix() < done {
			t.Errorf("it ended at %v, before the other one (%d): %v", o.Ended, done, err)
		}
	})
	t.Run("a refresh", func(t *testing.T) {
		release := make(chan struct{})
		at := serveSlow(t, release)
		refresh := func(unit string) {
			h.Run(t, "sh", "-c", "echo 'deb [trusted=yes] http://"+at+"/slow bookworm main' >/run/slow.list")
			h.Run(t, "systemd-run", "-q", "--collect", "--unit="+unit, "apt-get", "-q", "-o", "Dir::Etc::sourcelist=/run/slow.list", "-o", "Dir::Etc::sourceparts=-", "update")
			if l := h.lockHeld(t); l.Program != "apt-get" {
				t.Errorf("lock: %+v", l)
			}
		}
		refresh("lists")
		h.startByGate(t, patch.UpgradeAll, "lock.2", pick(t, r.All, "demo-app"))
		h.waitsFor(t, "lock.2", "held by apt-get (pid ")
		time.AfterFunc(5*time.Second, func() { close(release) })
		if o := h.wait(t, "lock.2"); o.State != "ended" || len(o.Done) != 1 {
			t.Errorf("%+v", o)
		}
		// A check waits a while too, and is fresh then.
		release = make(chan struct{})
		at = serveSlow(t, release)
		refresh("lists2")
		time.AfterFunc(5*time.Second, func() { close(release) })
		if now := h.check(t); !now.Fresh || now.Lock != nil || len(now.Ready("all")) > 0 || len(now.All) != 1 {
			t.Errorf("a check while the lists were refreshed: fresh %v, %q, %+v", now.Fresh, now.Stale, now.Lock)
		}
		// It does not wait for ever, and says for whom it did.
		release = make(chan struct{})
		at = serveSlow(t, release)
		defer close(release)
		refresh("lists3")
		h.Run(t, "sh", "-c", "echo 2 >/var/lib/castellan/lock-wait")
		now := h.check(t)
		if now.Fresh || now.UpToDate() || now.Lock == nil || now.Lock.Program != "apt-get" || !strings.Contains(now.Stale, "apt-get") {
			t.Errorf("a check while the lists are held: fresh %v, %q, %+v", now.Fresh, now.Stale, now.Lock)
		}
	})
	h.Run(t, "systemctl", "stop", "lists3")
	t.Run("longer than the limit", func(t *testing.T) {
		h.Run(t, "sh", "-c", "echo 3 >/var/lib/castellan/lock-wait")
		before := h.Run(t, "sh", "-c", "dpkg-query -W | md5sum")
		hold(t, h)
		h.startByGate(t, patch.UpgradeAll, "lock.3", pick(t, r.All, "demo-point"))
		o := h.wait(t, "lock.3")
		if ok, _ := o.Verdict(); ok || o.State != "refused" || len(o.Done) > 0 {
			t.Errorf("%+v", o)
		}
		contains(t, "why", o.Stale, "held by python3 (pid ", "and has for 3 s")
		h.Run(t, "touch", "/run/release")
		if got := h.Run(t, "sh", "-c", "dpkg-query -W | md5sum"); got != before {
			t.Error("something was changed")
		}
		h.start(t, patch.UpgradeAll, "lock.4", false, pick(t, r.All, "demo-point"))
		well(t, h.wait(t, "lock.4"))
	})
}

// startByGate starts an installation as castellan does: through sshd, gate and sudo.
func (h *house) startByGate(t *testing.T, word patch.Word, id string, tr patch.Transaction) {
	t.Helper()
	in, err := Input(id, false, nil, tr)
	if err != nil {
		t.Fatal(err)
	}
	s := session(t, h)
	s.Stdin = bytes.NewReader(in)
	out, err := s.Output(string(word))
	if st, e := patch.ParseStarted(out); err != nil || e != nil || st.ID != id || st.Already || st.Refused != "" {
		t.Fatalf("start: %v %v %q", err, e, out)
	}
}

func (h *house) lockHeld(t *testing.T) patch.Lock {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if st, err := patch.ParseStatus(h.word(t, patch.Status, ""), time.Now()); err == nil && st.Lock != nil {
			return *st.Lock
		}
	}
	t.Fatal("nobody holds a lock")
	return patch.Lock{}
}

// waitsFor waits until an installation says for whom it waits.
func (h *house) waitsFor(t *testing.T, id, note string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		p, err := patch.ParseProgress(h.word(t, patch.Progress, ""))
		if err != nil || p.State != "running" || p.ID != id {
			t.Fatalf("progress: %+v %v", p, err)
		}
		if strings.Contains(p.Note, note) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it does not say for whom it waits: %+v", p)
		}
	}
}

// serveSlow serves an archive on the lab's own network that has nothing, and says so when it is released.
func serveSlow(t *testing.T, release <-chan struct{}) string {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		http.NotFound(w, r)
	})
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "10.99.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go s.Serve(l) // it ends with the test
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}
