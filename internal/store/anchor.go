package store

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"castellan/internal/gate"
	"castellan/internal/ledger"
)

// Anchors hold heads of the ledger off the machine.
type Anchors interface {
	// Heads gives the latest head that each anchor holds, by the anchor's name, as far as they can be read; what was read
	// a moment ago need not be read anew. The error says that nothing may be written as things stand.
	Heads(ctx context.Context) (map[string]string, error)
	// Put brings a head to all anchors; nil says that each has it.
	Put(ctx context.Context, note string) error
	// Replace is Put where an anchor holds a head that a person gave up.
	Replace(ctx context.Context, note string) error
}

// kept is what was found of the anchors' heads.
type kept struct {
	mu     sync.Mutex             // held while the anchors are asked
	proven map[string]string      // anchor → the head that the ledger was found to contain
	reason atomic.Pointer[string] // why nothing may be written; reads look at it without waiting
}

func (k *kept) why() string {
	if r := k.reason.Load(); r != nil {
		return *r
	}
	return ""
}

func anchorHead(name string) origin {
	return origin{"the head at anchor " + name, "restore the newer state, or accept this one by castellan audit accept-rewind at this machine"}
}

// checkAnchors proves that the ledger goes on from the heads that its anchors hold. Reads never wait for it.
func (s *Store) checkAnchors(ctx context.Context) error {
	if s.anchors == nil {
		return nil
	}
	k := &s.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	heads, err := s.anchors.Heads(ctx)
	if ctx.Err() != nil {
		return fmt.Errorf("look at the anchors: %w", ctx.Err())
	}
	if err != nil {
		why := err.Error()
		k.reason.Store(&why)
		return fmt.Errorf("%w: %w", gate.ErrReadOnlyStore, err)
	}
	for _, name := range slices.Sorted(maps.Keys(heads)) {
		if k.proven[name] == heads[name] {
			continue
		}
		if err := s.Contains(ctx, name, heads[name]); err != nil {
			var lacks *pinError
			if errors.As(err, &lacks) {
				k.reason.Store(&lacks.reason)
				delete(k.proven, name)
			}
			return err
		}
		if k.proven == nil {
			k.proven = map[string]string{}
		}
		k.proven[name] = heads[name]
	}
	k.reason.Store(nil)
	return nil
}

// Contains proves that the ledger contains the head that the anchor of that name holds; an error wraps ledger.ErrRewound
// when it does not.
func (s *Store) Contains(ctx context.Context, name, head string) error {
	cp, err := ledger.ParseCheckpoint(tidyHead(head))
	if err != nil {
		return fmt.Errorf("look at anchor %s: %w", name, err)
	}
	return s.contains(ctx, cp, anchorHead(name))
}

// Head is the signed head of the write tree, "" while it is empty.
func (s *Store) Head(ctx context.Context) (string, error) {
	var note string
	err := s.db.read(ctx, func(q *session) error {
		var err error
		_, note, err = s.led.Head(ctx, &rows{ctx: ctx, q: q}, ledger.Write)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read head: %w", err)
	}
	return note, nil
}

// Wrote says whether this process has appended anything to the write tree.
func (s *Store) Wrote() bool { return s.wrote.Load() }

// committed takes note of a head that is durable.
func (s *Store) committed(cp ledger.Checkpoint) {
	s.led.Committed(cp)
	s.wrote.Store(true)
}

// AcceptRewind takes the present ledger as right although anchors hold heads that it lacks, records which, and brings
// the present head to the anchors. It returns the anchors whose heads were given up. Only a person may decide that: what
// was recorded since is lost, used approvals and switches among it.
func (s *Store) AcceptRewind(ctx context.Context, by gate.Principal) ([]string, error) {
	if s.anchors == nil {
		return nil, errors.New("accept rewind: no anchor is configured")
	}
	if err := s.checkStart(ctx); err != nil {
		return nil, err
	}
	heads, readErr := s.anchors.Heads(ctx)
	var names []string
	var records []gate.Record
	for _, name := range slices.Sorted(maps.Keys(heads)) {
		err := s.Contains(ctx, name, heads[name])
		if err == nil {
			continue
		}
		var lacks *pinError
		if !errors.As(err, &lacks) {
			return nil, fmt.Errorf("accept rewind: %w; nothing was changed", err)
		}
		cp, err := ledger.ParseCheckpoint(tidyHead(heads[name]))
		if err != nil {
			return nil, fmt.Errorf("accept rewind: %w; nothing was changed", err)
		}
		names = append(names, name)
		records = append(records, gate.Record{Kind: "settings", Operation: "accept_rewind", Actor: by.Key(), WayIn: by.WayIn, Target: name, Status: "ok", Effect: gate.EffectDestroy,
			Marks: map[string]string{"lost_origin": cp.Origin, "lost_size": strconv.FormatInt(cp.Size, 10), "lost_root": base64.StdEncoding.EncodeToString(cp.Root[:])},
			Parts: map[string]string{"head": heads[name]}})
	}
	if len(names) == 0 {
		return nil, errors.Join(errors.New("accept rewind: there is nothing to accept: the ledger contains what its anchors hold, as far as they can be read"), readErr)
	}
	r, err := s.record(false, records...)
	if err != nil {
		return nil, fmt.Errorf("accept rewind: %w", err)
	}
	if err := s.anchors.Replace(ctx, r.Note); err != nil {
		return names, fmt.Errorf("accept rewind: it is recorded, but writes stay refused until every anchor has the present head: %w", err)
	}
	return names, s.checkAnchors(ctx)
}

// record appends records in a transaction of their own, past what refuses ordinary writes: it is for what a person
// decides so that they are possible again. With clock, the present time is taken as right.
func (s *Store) record(clock bool, records ...gate.Record) (ledger.Receipt, error) {
	now := s.clock()
	var entries []ledger.Entry
	for _, r := range records {
		r.At = now
		e, err := entry(r, now)
		if err != nil {
			return ledger.Receipt{}, err
		}
		entries = append(entries, e)
	}
	var got []ledger.Receipt
	err := s.db.write(func(ctx context.Context, q *session) error {
		mark := now
		if !clock {
			b, err := s.begin(ctx, q)
			if err != nil {
				return err
			}
			mark = later(now, b.clock)
		}
		var err error
		got, err = s.led.Append(ctx, &rows{ctx: ctx, q: q, clock: mark}, ledger.Write, entries...) // which also sets the mark of the clock
		return err
	})
	if err != nil {
		return ledger.Receipt{}, s.refusal(err)
	}
	s.committed(got[0].Checkpoint)
	s.state.wrote()
	return got[len(got)-1], nil
}
