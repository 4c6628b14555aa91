package oauth

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"castellan/internal/gate"
)

// window is the time in which failures are counted, and for which who has too many is locked out.
const window = 15 * time.Minute

// block is how an address is counted: whoever has one of IPv6 has all of its /64.
func block(from Remote) string {
	a := from.IP.Unmap().WithZone("")
	switch {
	case !a.IsValid():
		return "unknown"
	case a.Is4():
		return a.String()
	}
	p, err := a.Prefix(64)
	if err != nil {
		return "unknown"
	}
	return p.String()
}

func bucket(door string, from Remote) string { return "oauth/" + door + "/" + block(from) }

// enter refuses an address that has failed too often at a door. Nothing is written, so that it costs little.
func (s *Server) enter(ctx context.Context, door string, from Remote) error {
	n := 0
	err := s.view(ctx, func(tx gate.Tx) error {
		var err error
		n, err = tx.Count(bucket(door, from), s.now().Add(-window))
		return err
	})
	if err != nil || n < s.rules.failures {
		return err
	}
	return &Refused{Status: http.StatusTooManyRequests, Code: "temporarily_unavailable", After: window,
		Description: "too many failed requests came from this address; try again in 15 minutes"}
}

// failuresAll bounds the failures of all addresses within the window that are recorded, so that many together cannot fill
// the ledger; what is more is refused all the same.
const failuresAll = 2000

// failed counts a failure at a door and records it, and the lock-out when it is one too many.
func (s *Server) failed(tx gate.Tx, door string, e event) error {
	all, err := tx.Count("oauth/failed", s.now().Add(-window))
	if err != nil || all >= failuresAll {
		return err
	}
	if all == failuresAll-1 {
		e.reason, e.detail = "more_are_not_recorded", e.reason
	}
	if err := s.record(tx, e); err != nil {
		return err
	}
	if err := tx.Hit("oauth/failed", s.now()); err != nil {
		return err
	}
	if err := tx.Hit(bucket(door, e.from), s.now()); err != nil {
		return err
	}
	n, err := tx.Count(bucket(door, e.from), s.now().Add(-window))
	if err != nil || n != s.rules.failures {
		return err
	}
	return s.record(tx, event{name: "authorize_lockout", status: "denied", from: e.from, client: e.client, reason: door})
}

// folder lets a kind of record through once in a while for each address, and counts those between.
type folder struct {
	mu   sync.Mutex
	last map[netip.Prefix]fold
	all  fold // of all addresses
}

type fold struct {
	at time.Time
	n  int
}

const (
	foldFor  = time.Minute
	foldAll  = 100 // records of all addresses within that time
	maxFolds = 4096
)

// pass says whether to record now, and how many were left out since the last.
func (f *folder) pass(a netip.Addr, now time.Time) (ok bool, left int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var p netip.Prefix // unknown addresses share one
	if a = a.Unmap().WithZone(""); a.Is4() {
		p = netip.PrefixFrom(a, 32)
	} else if a.IsValid() {
		p, _ = a.Prefix(64) // of a valid address of 128 bits: cannot fail
	}
	if last, seen := f.last[p]; seen && now.Sub(last.at) < foldFor && !now.Before(last.at) {
		last.n++
		f.last[p] = last
		return false, 0
	} else if seen {
		left = last.n
	}
	if now.Sub(f.all.at) >= foldFor || now.Before(f.all.at) {
		f.all = fold{at: now}
	}
	if f.all.n++; f.all.n > foldAll {
		return false, 0
	}
	if f.last == nil || len(f.last) >= maxFolds {
		f.last = map[netip.Prefix]fold{}
	}
	f.last[p] = fold{at: now}
	return true, left
}
