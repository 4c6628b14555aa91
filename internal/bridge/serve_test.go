//go:build linux

package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"castellan/internal/frame"
)

func TestTheServiceAnswersWhoeverHasItsSecret(t *testing.T) {
	h := newHouse(t)
	secret, kept := NewSecret()
	_, other := NewSecret()
	h.put("service-secret", kept)
	if err := os.Chmod(filepath.Join(h.dir, "service-secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	access, accessLine := NewSecret()
	h.set.Service = ServiceSettings{Listen: "127.0.0.1:0", Secret: filepath.Join(h.dir, "service-secret"), Headers: map[string]string{"Cf-Access-Client-Secret": accessLine, "Cf-Access-Jwt-Assertion": "*"}}
	s, err := NewService(h.bridge())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	url := "http://" + l.Addr().String() + AsksPath
	post := func(change func(r *http.Request), asks ...frame.Ask) (int, []frame.Tell) {
		t.Helper()
		var body bytes.Buffer
		for _, a := range asks {
			a.V = frame.Version
			if err := json.NewEncoder(&body).Encode(a); err != nil {
				t.Fatal(err)
			}
		}
		r, err := http.NewRequest(http.MethodPost, url, &body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(SecretHeader, secret)
		r.Header.Set("Cf-Access-Client-Secret", access)
		r.Header.Set("Cf-Access-Jwt-Assertion", "x")
		change(r)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var tells []frame.Tell
		for read := frame.NewReader(res.Body); res.StatusCode == http.StatusOK; {
			var tell frame.Tell
			if read.Next(&tell) != nil {
				break
			}
			tells = append(tells, tell)
		}
		return res.StatusCode, tells
	}
	asIs := func(*http.Request) {}
	status, tells := post(asIs, script("a1", h.ct(), "echo one"), script("a2", h.ct(), "echo two"), frame.Ask{ID: "a3", Verb: frame.Hello})
	if status != http.StatusOK || len(tells) != 5 {
		t.Fatalf("%d %+v", status, tells)
	}
	for _, change := range []func(*http.Request){
		func(r *http.Request) { r.Header.Del(SecretHeader) },
		func(r *http.Request) { r.Header.Set(SecretHeader, other) },
		func(r *http.Request) { r.Header.Set("Cf-Access-Client-Secret", "x") },
		func(r *http.Request) { r.Header.Add("Cf-Access-Client-Secret", access) },
		func(r *http.Request) { r.Header.Del("Cf-Access-Jwt-Assertion") },
		func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1") },
	} {
		if status, _ := post(change, script("b1", h.ct(), "echo one")); status != http.StatusUnauthorized && status != http.StatusForbidden {
			t.Errorf("status %d", status)
		}
	}
	last := 0
	for range guessesMost + 1 {
		last, _ = post(func(r *http.Request) { r.Header.Set(SecretHeader, "x") })
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("after many wrong ones: %d", last)
	}
	if strings.Contains(h.log(), secret) {
		t.Error("the secret is in the log")
	}
	if status, _ := post(asIs, frame.Ask{ID: "b1", Verb: frame.Look}); status != http.StatusOK {
		t.Errorf("the right secret: %d", status)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	h.set.Service.Listen = "0.0.0.0:1"
	if _, err := NewService(h.bridge()); err == nil {
		t.Error("it would listen to everybody")
	}
}

// Of one id only a few asks are under way at once, and no answer to the others reads as if it did not run.
func TestFewAsksOfOneID(t *testing.T) {
	h := newHouse(t)
	b := h.bridge()
	l := dial(t, b)
	l.put(script("same", h.ct(), "sleep 2; echo end"))
	for end := time.Now().Add(10 * time.Second); !exists(b.state.file("same", startSuffix)); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not begin")
		}
	}
	var leave []func()
	for {
		done, ok := b.among("same")
		if !ok {
			break
		}
		leave = append(leave, done)
	}
	if len(leave) != mostSame-1 {
		t.Errorf("%d more were let in", len(leave))
	}
	for _, a := range []frame.Ask{{ID: "same", Verb: frame.Look}, {ID: "same", Verb: frame.Kill}, script("same", h.ct(), "echo other")} {
		a.V = frame.Version
		var last frame.Tell
		b.Answer(context.Background(), a, func(t frame.Tell) { last = t })
		if last.Ending != frame.Unknown || !last.Running || !strings.Contains(last.Reason, "which is the limit") {
			t.Errorf("%s: %+v", a.Verb, last)
		}
	}
	for _, done := range leave {
		done()
	}
	if r := done(t, l.end("same")); text(r.Out) != "end\n" {
		t.Errorf("%+v", r)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.under) > 1 { // its own may not have left yet
		t.Errorf("%v", b.under)
	}
}

func TestADeadMansSwitchPutsBackWhatWasNotConfirmed(t *testing.T) {
	h := newHouse(t)
	h.set.Words = []string{"dead_man", "maintenance"}
	h.put("pve/firewall/cluster.fw", "before\n")
	h.put("pve/firewall/900.fw", "other\n")
	h.put("bin/ha-manager", "#!/bin/sh\necho \"$@\"\n")
	if err := os.Chmod(filepath.Join(h.dir, "bin/ha-manager"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.set.Paths.HAManager = filepath.Join(h.dir, "bin/ha-manager")
	b := h.bridge()
	b.program = []string{"/bin/true"}
	l := dial(t, b)
	n, plan := 0, "one"
	word := func(name string, args map[string]string) frame.Tell {
		t.Helper()
		n++
		return l.ask(frame.Ask{ID: plan + "." + string(rune('a'+n)), Verb: frame.Manage, Place: h.host(), Word: &frame.Word{Name: name, Args: args}})
	}
	if tell := word("maintenance", map[string]string{"mode": "enable"}); !strings.Contains(tell.Text, "crm-command node-maintenance enable pve1") {
		t.Errorf("%+v", tell)
	}
	for _, args := range []map[string]string{nil, {"mode": "enable; id"}, {"mode": "enable", "node": "pve2"}} {
		if tell := word("maintenance", args); tell.Ending != frame.Refused {
			t.Errorf("%+v", tell)
		}
	}
	arm := func(by string) frame.Tell {
		plan = by
		return word("dead_man", map[string]string{"action": "arm", "what": "firewall", "seconds": "10"})
	}
	confirm := func(by string) frame.Tell {
		plan = by
		return word("dead_man", map[string]string{"action": "confirm", "what": "firewall"})
	}
	if tell := arm("one"); tell.Ending != frame.Done {
		t.Fatalf("%+v", tell)
	}
	if tell := arm("two"); tell.Ending != frame.Refused || !strings.Contains(tell.Reason, "one") {
		t.Errorf("a second one: %+v", tell)
	}
	h.put("pve/firewall/cluster.fw", "after\n")
	h.put("pve/firewall/101.fw", "new\n")
	waiting := b.state.armed()
	if len(waiting) != 1 {
		t.Fatalf("%+v", waiting)
	}
	waiting[0].Until = time.Now()
	if err := b.revert(context.Background(), waiting[0]); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(h.dir, "pve/firewall/cluster.fw"))
	if err != nil || string(got) != "before\n" || exists(filepath.Join(h.dir, "pve/firewall/101.fw")) {
		t.Errorf("put back: %q %v", got, err)
	}
	if tell := confirm("one"); tell.Ending != frame.Refused || !strings.Contains(tell.Reason, "too late") {
		t.Errorf("%+v", tell)
	}
	if tell := arm("three"); tell.Ending != frame.Done {
		t.Fatalf("%+v", tell)
	}
	h.put("pve/firewall/cluster.fw", "after\n")
	waiting = b.state.armed()
	for _, other := range []string{"two", "thre", "three.firewall", "one"} {
		if tell := confirm(other); tell.Ending != frame.Refused {
			t.Errorf("plan %s confirms what three has armed: %+v", other, tell)
		}
	}
	for range 2 {
		if tell := confirm("three"); tell.Ending != frame.Done {
			t.Errorf("%+v", tell)
		}
	}
	waiting[0].Until = time.Now()
	if err := b.revert(context.Background(), waiting[0]); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(h.dir, "pve/firewall/cluster.fw")); err != nil || string(got) != "after\n" {
		t.Errorf("confirmed: %q %v", got, err)
	}
	for _, args := range []map[string]string{{"action": "arm", "what": "firewall", "seconds": "010"}, {"action": "arm", "what": "all", "seconds": "60"}, {"action": "arm", "what": "firewall", "seconds": "60", "id": "../x"}, {"action": "confirm", "what": "network"}, {"action": "confirm"}, {"action": "x"}} {
		if tell := word("dead_man", args); tell.Ending != frame.Refused {
			t.Errorf("%v: %+v", args, tell)
		}
	}
}

// What was cut off while it put things back goes on at the next start, and each switch waits for its own time alone.
func TestARevertThatWasCutOffIsTakenUp(t *testing.T) {
	h := newHouse(t)
	h.set.Words = []string{"dead_man"}
	h.put("pve/firewall/cluster.fw", "before\n")
	b := h.bridge()
	b.program = []string{"/bin/true"}
	l := dial(t, b)
	arm := func(plan string) frame.Tell {
		return l.ask(frame.Ask{ID: plan + ".1", Verb: frame.Manage, Place: h.host(), Word: &frame.Word{Name: "dead_man", Args: map[string]string{"action": "arm", "what": "firewall", "seconds": "3600"}}})
	}
	if tell := arm("cut"); tell.Ending != frame.Done {
		t.Fatalf("%+v", tell)
	}
	h.put("pve/firewall/cluster.fw", "after\n")
	dir := b.state.deadDir("cut.firewall")
	if err := os.Rename(filepath.Join(dir, deadArmed), filepath.Join(dir, deadReverting)); err != nil {
		t.Fatal(err)
	}
	if tell := arm("other"); tell.Ending != frame.Refused {
		t.Errorf("armed while another puts back: %+v", tell)
	}
	if tell := l.ask(frame.Ask{ID: "cut.2", Verb: frame.Manage, Place: h.host(), Word: &frame.Word{Name: "dead_man", Args: map[string]string{"action": "confirm", "what": "firewall"}}}); tell.Ending != frame.Refused || !strings.Contains(tell.Reason, "too late") {
		t.Errorf("%+v", tell)
	}
	late := b.state.deadDir("late.network") // another, whose time is far off, holds up nobody
	text := fmt.Sprintf(`{"id":"late.network","what":"network","until":%q}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	if err := os.Mkdir(late, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(late, deadArmed), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, waiting := range b.state.switches(deadReverting) {
		waiting.Until = time.Now()
		b2, err := json.Marshal(waiting)
		if err != nil || i > 0 {
			t.Fatal(err, i)
		}
		if err := os.WriteFile(filepath.Join(dir, deadReverting), b2, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Revert(ctx, "") }()
	for end := time.Now().Add(10 * time.Second); !exists(filepath.Join(dir, deadReverted)); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it was not taken up")
		}
	}
	stop()
	<-ended // the other was left to wait
	if got, err := os.ReadFile(filepath.Join(h.dir, "pve/firewall/cluster.fw")); err != nil || string(got) != "before\n" {
		t.Errorf("%q %v", got, err)
	}
	if !exists(filepath.Join(late, deadArmed)) {
		t.Error("the other is armed no more")
	}
}

// Whoever asks and does not read the answers is not read any more, before much memory is taken.
func TestUnreadAnswersHoldLittle(t *testing.T) {
	h := newHouse(t)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- h.bridge().Serve(context.Background(), inR, outW) }()
	var taken atomic.Int64
	go func() {
		w := frame.NewWriter(inW)
		for i := range 500 {
			if w.Put(frame.Ask{V: frame.Version, ID: fmt.Sprintf("r%d", i), Verb: frame.Read, Place: h.host(), File: &frame.File{Path: "/x", Max: frame.MaxFile}}) != nil {
				return
			}
			taken.Add(1)
		}
	}()
	before := int64(-1)
	for range 100 {
		time.Sleep(50 * time.Millisecond)
		if now := taken.Load(); now == before {
			break
		} else {
			before = now
		}
	}
	if n := taken.Load(); n < 2 || n > 64 {
		t.Errorf("%d asks were taken and no answer was read", n)
	}
	outR.Close()
	inW.Close()
	<-ended // how it ended is not what is looked at
}
