package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
	notices "castellan/internal/notify"
)

// teller hands on what people should hear of. What comes before the notifier is there waits for it.
type teller struct {
	mu    sync.Mutex
	to    *notices.Notifier
	early []notices.Notice
}

func (t *teller) tell(n notices.Notice) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.to != nil {
		t.to.Tell(n)
	} else if len(t.early) < 100 {
		t.early = append(t.early, n)
	}
}

func (t *teller) give(n *notices.Notifier) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.to = n
	for _, e := range t.early {
		n.Tell(e)
	}
	t.early = nil
}

// identity tells of what changes who can approve.
func (t *teller) identity(n identity.Notice) { t.tell(noticeOf(n)) }

func noticeOf(n identity.Notice) notices.Notice {
	return notices.Notice{Kind: n.Kind, Person: n.Person, By: n.By, Credential: n.Credential, At: n.At, From: n.From}
}

// leave hands what a command changed to the daemon on the same store, which tells people.
func leave(st *lateStore, log *slog.Logger) func(identity.Notice) {
	return func(n identity.Notice) {
		if err := notices.Leave(context.Background(), st, time.Now(), noticeOf(n)); err != nil {
			log.Warn("nobody is told of this", "kind", n.Kind, "error", err)
		}
	}
}

// switches tells when the kill switch or the armed window changes, whoever turns it in whatever process.
func (d *daemon) watchSwitches(ctx context.Context) error {
	var last *gate.Switches
	every(ctx, 5*time.Second, func(ctx context.Context) {
		now, err := d.house.gate.Switches(ctx)
		if err != nil {
			return // health says it
		}
		if last != nil {
			if a, b := last.Killed != "" || last.Contained != "", now.Killed != "" || now.Contained != ""; a != b {
				d.teller.tell(notices.Notice{Kind: "kill_switch", State: word(b), At: time.Now().UTC()})
			}
			if a, b := last.ArmedUntil, now.ArmedUntil; !a.Equal(b) && b.After(time.Now()) {
				d.teller.tell(notices.Notice{Kind: "armed", State: "on", At: time.Now().UTC(), Until: b})
			}
		}
		last = &now
	})
	return nil
}

func word(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
