package channel

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/patch"
)

func TestAsk(t *testing.T) {
	n, g := newGuests(), newGuest(t)
	n.put("10.0.0.5", g)
	c := newChannels(t, n, nil)
	e := enrolled(t, c, g, 101, "10.0.0.5")
	g.answers(func(word string, ch ssh.Channel, _ func()) uint32 {
		in, _ := io.ReadAll(ch)
		_, _ = ch.Write([]byte(word + ":" + string(in)))
		return 0
	})
	out, err := c.Ask(t.Context(), e, patch.UpgradeAll, []byte("id p.1\nend\n"), time.Second)
	if err != nil || string(out) != "upgrade-all:id p.1\nend\n" {
		t.Errorf("%q %v", out, err)
	}
	for range 3 {
		if out, err = c.Ask(t.Context(), e, patch.Check, nil, time.Second); err != nil || string(out) != "check:" {
			t.Errorf("%q %v", out, err)
		}
	}
	if g.dials != 1 || !slices.Equal(g.asked, []string{"exec upgrade-all", "exec check", "exec check", "exec check"}) {
		t.Errorf("%d connections; asked for %q: no pty, no environment, no forwarding, one connection", g.dials, g.asked)
	}
	if _, err := c.Ask(t.Context(), e, "check; id", nil, time.Second); err == nil {
		t.Error("a word that is none was sent")
	}
}

// Whatever a guest answers, the state is clear, and nobody waits for it for long.
func TestHostile(t *testing.T) {
	n, g := newGuests(), newGuest(t)
	n.put("10.0.0.5", g)
	c := newChannels(t, n, nil)
	e := enrolled(t, c, g, 101, "10.0.0.5")
	for _, x := range []struct {
		name  string
		say   func(word string, ch ssh.Channel, cut func()) uint32
		limit time.Duration
		want  func(out []byte, err error) bool
	}{
		{"megabytes", func(_ string, ch ssh.Channel, _ func()) uint32 {
			for range 400 {
				if _, err := ch.Write(bytes.Repeat([]byte("x"), 32<<10)); err != nil {
					return 1
				}
			}
			return 0
		}, 10 * time.Second, func(out []byte, err error) bool { var x *TooMuchError; return errors.As(err, &x) && out == nil }},
		{"megabytes of errors", func(_ string, ch ssh.Channel, _ func()) uint32 {
			for range 400 {
				if _, err := ch.Stderr().Write(bytes.Repeat([]byte("x"), 32<<10)); err != nil {
					return 1
				}
			}
			return 0
		}, 10 * time.Second, func(_ []byte, err error) bool { var x *TooMuchError; return errors.As(err, &x) }},
		{"a slow drip", func(_ string, ch ssh.Channel, _ func()) uint32 {
			for {
				if _, err := ch.Write([]byte("x")); err != nil {
					return 1
				}
				time.Sleep(20 * time.Millisecond)
			}
		}, 300 * time.Millisecond, func(_ []byte, err error) bool { var x *SlowError; return errors.As(err, &x) && x.Bytes > 3 }},
		{"no answer", func(_ string, ch ssh.Channel, _ func()) uint32 {
			_, _ = io.ReadAll(ch)
			time.Sleep(3 * time.Second)
			return 0
		}, 200 * time.Millisecond,
			func(_ []byte, err error) bool { var x *SlowError; return errors.As(err, &x) }},
		{"escape sequences among its complaints", func(_ string, ch ssh.Channel, _ func()) uint32 {
			_, _ = ch.Stderr().Write([]byte("\x1b]0;owned\x07\x1b[2J\u202e bad\nword"))
			return 3
		}, time.Second, func(_ []byte, err error) bool {
			var x *EndError
			return errors.As(err, &x) && x.Code == 3 && !strings.ContainsAny(err.Error(), "\x1b\x07\n\u202e") && strings.Contains(err.Error(), "bad?word")
		}},
		{"an end with an answer", func(_ string, ch ssh.Channel, _ func()) uint32 { _, _ = ch.Write([]byte("half")); return 9 }, time.Second,
			func(out []byte, err error) bool { var x *EndError; return errors.As(err, &x) && string(out) == "half" }},
		{"a cut", func(_ string, ch ssh.Channel, cut func()) uint32 { _, _ = ch.Write([]byte("half")); cut(); return 0 }, 5 * time.Second,
			func(_ []byte, err error) bool { var x *CutError; return errors.As(err, &x) && x.Started }},
		{"nothing", func(string, ssh.Channel, func()) uint32 { return 0 }, time.Second, func(out []byte, err error) bool { return err == nil && len(out) == 0 }},
		{"well again", nil, time.Second, func(out []byte, err error) bool { return err == nil && string(out) == "castellan 1 check\nend\n" }},
	} {
		g.answers(x.say)
		within(t, x.limit+2*time.Second, func() {
			if out, err := c.Ask(t.Context(), e, patch.Check, nil, x.limit); !x.want(out, err) {
				t.Errorf("%s: %d bytes, %v", x.name, len(out), err)
			}
		})
	}
}

// A guest that floods the connection while nobody asks loses it.
func TestFlood(t *testing.T) {
	n, g := newGuests(), newGuest(t)
	n.put("10.0.0.5", g)
	c := newChannels(t, n, nil)
	e := enrolled(t, c, g, 101, "10.0.0.5")
	done := make(chan struct{})
	g.answers(func(word string, ch ssh.Channel, _ func()) uint32 {
		go func() {
			defer close(done)
			for range 100_000 {
				if _, err := ch.SendRequest("flood@example", false, bytes.Repeat([]byte("x"), 30<<10)); err != nil {
					return
				}
			}
			t.Error("3 GB were taken")
		}()
		time.Sleep(time.Second)
		return 0
	})
	_, err := c.Ask(t.Context(), e, patch.Check, nil, 5*time.Second)
	if err == nil {
		t.Error("no error")
	}
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
}

// A dead kept connection is no failure of the next word; a guest that takes few words over one connection gets more of them.
func TestKept(t *testing.T) {
	n, g := newGuests(), newGuest(t)
	g.most = 2
	n.put("10.0.0.5", g)
	c := newChannels(t, n, nil)
	e := enrolled(t, c, g, 101, "10.0.0.5")
	if _, err := c.Ask(t.Context(), e, patch.Check, nil, time.Second); err != nil {
		t.Fatal(err)
	}
	g.cut()
	if _, err := c.Ask(t.Context(), e, patch.Check, nil, time.Second); err != nil {
		t.Errorf("after a cut between words: %v", err)
	}
	g.answers(func(word string, ch ssh.Channel, cut func()) uint32 {
		time.Sleep(100 * time.Millisecond)
		return echo(word, ch, cut)
	})
	var group sync.WaitGroup
	for range 12 {
		group.Go(func() {
			if _, err := c.Ask(t.Context(), e, patch.Check, nil, 5*time.Second); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if g.dials > 2+mostLinks {
		t.Errorf("%d connections", g.dials)
	}
}

// castellan cannot be led to another guest, whoever names an address.
func TestAddresses(t *testing.T) {
	n, a, b := newGuests(), newGuest(t), newGuest(t)
	n.put("10.0.0.5", a)
	n.put("10.0.0.6", b)
	c := newChannels(t, n, nil)
	e := enrolled(t, c, a, 101, "10.0.0.5")
	b.mu.Lock()
	b.client = a.client // b would even take the key
	b.mu.Unlock()
	told := func(texts ...string) func(context.Context) ([]netip.Addr, error) {
		return func(context.Context) ([]netip.Addr, error) {
			var out []netip.Addr
			for _, x := range texts {
				out = append(out, netip.MustParseAddr(x))
			}
			return out, nil
		}
	}
	ask := func() error {
		c.Drop(e)
		_, err := c.Ask(t.Context(), e, patch.Check, nil, 2*time.Second)
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	// The address is another guest's now.
	n.put("10.0.0.5", b)
	var other *HostKeyError
	if err := ask(); !errors.As(err, &other) || !strings.Contains(err.Error(), "10.0.0.5") {
		t.Errorf("another guest at the address: %v", err)
	}
	// It reports the other's address, and addresses that are never dialled.
	e.Addresses = told("10.0.0.6", "127.0.0.1", "::1", "169.254.169.254", "fe80::1", "10.0.0.1", "::ffff:127.0.0.1", "0.0.0.0", "224.0.0.1")
	if err := ask(); !errors.As(err, &other) {
		t.Errorf("reported addresses: %v", err)
	}
	for _, to := range n.tries() {
		if at := netip.MustParseAddrPort(to); Forbidden(at.Addr(), []netip.Addr{netip.MustParseAddr("10.0.0.1")}) != "" || at.Port() != 22 {
			t.Errorf("dialled %s", to)
		}
	}
	if b.offered != 0 {
		t.Errorf("castellan's key was offered %d times to another guest", b.offered)
	}
	// It has really moved.
	n.put("10.0.0.9", a)
	e.Addresses = told("10.0.0.6", "10.0.0.9")
	if err := ask(); err != nil {
		t.Errorf("a moved guest: %v", err)
	}
	if b.offered != 0 {
		t.Errorf("castellan's key was offered %d times to another guest", b.offered)
	}
	// It answers nowhere.
	n.put("10.0.0.5", nil)
	n.put("10.0.0.9", nil)
	e.Addresses = told("127.0.0.1")
	var gone *UnreachableError
	if err := ask(); !errors.As(err, &gone) || !strings.Contains(err.Error(), "127.0.0.1:22: it does not answer there") {
		t.Errorf("a guest that is gone: %v", err)
	}
	// What is at an address that it reports is not told, whatever it is: another machine's sshd, a closed port, nothing, a server that
	// castellan works through. Those are not even tried.
	dialled := len(n.tries())
	e.Addresses = told("10.0.0.6", "10.0.0.77", "10.0.0.1", "10.9.9.1", "10.9.9.2", "fd00::9")
	err := ask()
	for _, a := range []string{"10.0.0.6:22", "10.0.0.77:22", "10.0.0.1:22", "10.9.9.1:22", "10.9.9.2:22", "[fd00::9]:22"} {
		if !errors.As(err, &gone) || !strings.Contains(err.Error(), a+": it does not answer there") {
			t.Errorf("%s: %v", a, err)
		}
	}
	for _, to := range n.tries()[dialled:] {
		if slices.Contains([]string{"10.9.9.1:22", "10.9.9.2:22", "[fd00::9]:22", "10.0.0.1:22"}, to) {
			t.Errorf("dialled %s", to)
		}
	}
	// It has another key, at its own address: that is another guest until a person says otherwise.
	n.put("10.0.0.5", a)
	a.mu.Lock()
	a.client = newKey(t).PublicKey()
	a.mu.Unlock()
	e.Addresses = nil
	var refused *KeyRefusedError
	if err := ask(); !errors.As(err, &refused) {
		t.Errorf("a guest that takes the key no more: %v", err)
	}
}

// A server that never says who it is holds up nobody for long.
func TestReach(t *testing.T) {
	n, g := newGuests(), newGuest(t)
	n.put("10.0.0.5", g)
	c := newChannels(t, n, nil)
	e := enrolled(t, c, g, 101, "10.0.0.5")
	ports := []int{22, 80, 0, -1, 70000}
	for p := range 100 {
		ports = append(ports, 1000+p)
	}
	got, err := c.Reach(t.Context(), e, ports)
	if err != nil || len(got) != mostPorts || !got[22] {
		t.Errorf("%v %v", got, err)
	}
	for _, to := range n.tries() {
		if netip.MustParseAddrPort(to).Addr() != netip.MustParseAddr("10.0.0.5") {
			t.Errorf("dialled %s", to)
		}
	}
}
