//go:build unix

package anchor_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"castellan/internal/anchor"
	"castellan/internal/ledger"
)

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		s    anchor.Settings
		want string // "" for good
	}{
		{anchor.Settings{Kind: "file", Path: "/srv/heads"}, ""},
		{anchor.Settings{Kind: "file", Path: "heads"}, "absolute"},
		{anchor.Settings{Kind: "file"}, "absolute"},
		{anchor.Settings{Kind: "file", Path: "/a", URL: "https://b"}, "no key url"},
		{anchor.Settings{Kind: "pigeon"}, "pigeon"},
		{anchor.Settings{}, "file, http, syslog or journal"},
		{anchor.Settings{Kind: "http", URL: "https://host/head"}, ""},
		{anchor.Settings{Kind: "http", URL: "http://127.0.0.1:9/head"}, ""},
		{anchor.Settings{Kind: "http", URL: "http://[::1]:9/head"}, ""},
		{anchor.Settings{Kind: "http", URL: "http://host/head"}, "use https"},
		{anchor.Settings{Kind: "http", URL: "http://127.0.0.1.evil.example/head"}, "use https"},
		{anchor.Settings{Kind: "http", URL: "https://user:pw@host/"}, "token_file"},
		{anchor.Settings{Kind: "http", URL: "ftp://host/"}, "scheme"},
		{anchor.Settings{Kind: "http", URL: "https:///head"}, "https://host/path"},
		{anchor.Settings{Kind: "syslog", Address: "tls://host:6514"}, ""},
		{anchor.Settings{Kind: "syslog", Address: "tcp://host"}, "host:port"},
		{anchor.Settings{Kind: "syslog", Address: "udp://host:514"}, "udp"},
		{anchor.Settings{Kind: "syslog", Address: "unix://dev/log"}, "unix:///path"},
		{anchor.Settings{Kind: "syslog", Address: "unix:///dev/log"}, ""},
		{anchor.Settings{Kind: "journal"}, ""},
		{anchor.Settings{Kind: "journal", Every: "0s"}, "every"},
		{anchor.Settings{Kind: "journal", Every: "soon"}, "every"},
		{anchor.Settings{Kind: "journal", Limit: "1ms"}, "limit"},
		{anchor.Settings{Kind: "journal", Name: "a\nb"}, "control"},
	} {
		err := anchor.Validate([]anchor.Settings{c.s})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.s, err)
		}
	}
	if err := anchor.Validate([]anchor.Settings{{Kind: "journal"}, {Kind: "journal"}}); err == nil || !strings.Contains(err.Error(), "two of the name") {
		t.Errorf("two of one name: %v", err)
	}
	if ok, why := open(t, anchor.Config{}).Outside(); ok || !strings.Contains(why, "no anchor is configured") {
		t.Errorf("none: %v %q", ok, why)
	}
	if err := open(t, anchor.Config{}).Run(background); err == nil {
		t.Error("ran without a source")
	}
}

func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("%s did not come to be within 15 seconds", what)
}

func TestRunFollowsTheHead(t *testing.T) {
	w := &witness{}
	srv := httptest.NewServer(w)
	defer srv.Close()
	b := &book{size: 1}
	path := filepath.Join(t.TempDir(), "heads")
	a := open(t, anchor.Config{Source: b, Settings: []anchor.Settings{
		{Kind: "http", URL: srv.URL, Every: "1s"}, {Kind: "file", Path: path, Every: "1s"}, {Kind: "syslog", Address: "tcp://127.0.0.1:1", Every: "1s", Name: "dead"}}})
	ctx, stop := context.WithCancel(background)
	ran := make(chan error)
	go func() { ran <- a.Run(ctx) }()
	latest := func() (string, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.head, nil
	}
	await(t, "the first head", func() bool { h, _ := latest(); return h == note(1) })
	for n := 2; n < 50; n++ { // within the anchors' second
		b.set(n)
		time.Sleep(time.Millisecond)
	}
	await(t, "the latest head", func() bool { h, _ := latest(); return h == note(49) })
	w.mu.Lock()
	if w.puts > 4 {
		t.Errorf("%d puts: a burst is one", w.puts)
	}
	w.status = http.StatusServiceUnavailable
	w.mu.Unlock()
	b.set(60)
	await(t, "the trouble", func() bool { return a.States()[0].Trouble != "" })
	w.set(note(49), 0)
	await(t, "the retry", func() bool { h, _ := latest(); return h == note(60) && a.States()[0].Trouble == "" })
	if s := a.States()[2]; s.Trouble == "" || s.Behind.IsZero() {
		t.Errorf("the dead one: %+v", s)
	}
	b.set(61)
	stop()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	if h, _ := latest(); h != note(61) {
		t.Error("the head of a clean stop did not go out")
	}
}

// TestAShortLifePutsNothing: a command that only reads leaves the anchors alone.
func TestAShortLifePutsNothing(t *testing.T) {
	w := &witness{}
	srv := httptest.NewServer(w)
	defer srv.Close()
	b := &book{size: 5}
	a := one(t, anchor.Settings{Kind: "http", URL: srv.URL}, b)
	ctx, stop := context.WithTimeout(background, 300*time.Millisecond)
	defer stop()
	if err := a.Run(ctx); err != nil || w.puts != 0 {
		t.Errorf("%d puts, %v", w.puts, err)
	}
	b.set(6)
	ctx, stop = context.WithCancel(background)
	stop()
	if err := a.Run(ctx); err != nil || w.puts != 1 || w.head != note(6) {
		t.Errorf("one that wrote: %d puts, %v", w.puts, err)
	}
}

func TestHeadsForWrites(t *testing.T) {
	w := &witness{}
	srv := httptest.NewServer(w)
	defer srv.Close()
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	var mu sync.Mutex
	pass := func(d time.Duration) { mu.Lock(); now = now.Add(d); mu.Unlock() }
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	b := &book{size: 5}
	s := anchor.Settings{Name: "w", Kind: "http", URL: srv.URL, Limit: "10m"}
	a := open(t, anchor.Config{Settings: []anchor.Settings{s}, Source: b, Clock: clock})
	heads := func(want string) {
		t.Helper()
		got, err := a.Heads(background)
		if err != nil || got["w"] != want {
			t.Errorf("heads %q, %v", got, err)
		}
	}
	heads("")
	w.set(note(3), 0)
	heads("") // a moment ago it was so
	pass(3 * time.Second)
	heads(note(3))
	w.set(note(4), http.StatusBadGateway)
	pass(3 * time.Second)
	heads("") // it cannot be read, and is not required
	w.set(note(4), 0)
	pass(3 * time.Second)
	heads("") // left alone for a while
	pass(10 * time.Second)
	heads(note(4))
	pass(-time.Hour) // a clock that was put back makes nothing fresh
	w.set(note(5), 0)
	heads(note(5))

	s.Required = true
	w.set(note(5), http.StatusBadGateway)
	a = open(t, anchor.Config{Settings: []anchor.Settings{s}, Source: b, Clock: clock})
	if _, err := a.Heads(background); err == nil || !strings.Contains(err.Error(), "could not be read since the start") {
		t.Errorf("required, and never read: %v", err)
	}
	w.set(note(5), 0)
	pass(20 * time.Second)
	heads(note(5))
	w.set(note(5), http.StatusBadGateway)
	b.set(6)
	if err := a.Put(background, note(6)); err == nil {
		t.Error("put to a dead anchor")
	}
	pass(5 * time.Minute)
	if _, err := a.Heads(background); err != nil {
		t.Errorf("behind for five minutes of ten: %v", err)
	}
	if n := a.Notices(); len(n) != 1 || !strings.Contains(n[0], "does not work since") {
		t.Errorf("notices %q", n)
	}
	pass(6 * time.Minute)
	if _, err := a.Heads(background); err == nil || !strings.Contains(err.Error(), "behind since") {
		t.Errorf("behind for eleven minutes: %v", err)
	}
	w.set(note(5), 0)
	if err := a.Put(background, note(6)); err != nil {
		t.Error(err)
	}
	pass(3 * time.Second)
	heads(note(6))
}

// TestRetriesGrow: a dead anchor is tried less and less often, and never given up.
func TestRetriesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{size: 1}
		a := one(t, anchor.Settings{Kind: "file", Path: filepath.Join("/proc/1/none", "heads")}, b)
		var mu sync.Mutex
		looks := 0
		c := &counting{book: b, seen: func() { mu.Lock(); looks++; mu.Unlock() }}
		a = open(t, anchor.Config{Settings: []anchor.Settings{{Kind: "file", Path: "/proc/none/heads"}}, Source: c})
		ctx, stop := context.WithTimeout(background, 24*time.Hour)
		defer stop()
		if err := a.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if looks < 200 || looks > 320 {
			t.Errorf("%d tries in a day", looks)
		}
	})
}

type counting struct {
	*book
	seen func()
}

func (c *counting) Head(ctx context.Context) (string, error) {
	c.seen()
	return c.book.Head(ctx)
}

func TestErrorsNameTheAnchor(t *testing.T) {
	b := &book{size: 9}
	dir := t.TempDir()
	a := open(t, anchor.Config{Source: b, Settings: []anchor.Settings{
		{Name: "good", Kind: "file", Path: filepath.Join(dir, "heads")}, {Name: "bad", Kind: "file", Path: filepath.Join(dir, "none", "heads")}}})
	err := a.Put(background, note(9))
	if err == nil || !strings.Contains(err.Error(), "anchor bad") || strings.Contains(err.Error(), "anchor good") {
		t.Errorf("%v", err)
	}
	if got, err := a.Latest(background); got != note(9) || err != nil {
		t.Errorf("%q %v", got, err)
	}
	b.set(3)
	if err := a.Compare(background); !errors.Is(err, ledger.ErrRewound) || !strings.Contains(err.Error(), "anchor good") {
		t.Errorf("%v", err)
	}
}
