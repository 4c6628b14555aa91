// Package store keeps what castellan must not forget, in one database: plans, locks, nonces, sealed values, marks
// and the rows of the ledger. SQLite is embedded; PostgreSQL serves several replicas. Both keep one contract, which
// package storetest holds them to.
//
// Every Update is one serial transaction: no two run at the same time, in whatever process. Updates that several
// goroutines ask for at once share one commit.
package store

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ledger"
)

// Config of a Store.
type Config struct {
	// URL is the path of an SQLite file, or postgres://… for a PostgreSQL database.
	URL string
	// Signer is the Ed25519 key of the ledger.
	Signer crypto.Signer
	// Head is a checkpoint of the write tree (its three lines, or the signed note) that the ledger must still contain;
	// empty for none. It is what somebody wrote down elsewhere.
	Head string
	// Anchors hold heads that the ledger must still contain; nil for none.
	Anchors Anchors
	// Clock tells the time, time.Now when nil.
	Clock gate.Clock
	// Log takes warnings; nil discards them.
	Log *slog.Logger
}

// Store is an open database. It is safe for use by many goroutines, and many processes may open the same one.
type Store struct {
	clock gate.Clock
	log   *slog.Logger
	db    *database
	id    string
	led   *ledger.Log
	key   crypto.Signer
	reads reads
	group group
	pin   pin
	state condition

	anchors Anchors
	kept    kept
	wrote   atomic.Bool

	closing sync.Once
	closed  error
}

var _ gate.Store = (*Store)(nil)

// Open opens the database, creating it and bringing its schema up to date where needed. It reads a few rows only;
// what takes longer (the pinned head, the records that a killed process left) is done by Run and by the first Ready.
func Open(ctx context.Context, c Config) (*Store, error) {
	s := &Store{clock: c.Clock, log: c.Log, key: c.Signer, anchors: c.Anchors}
	if s.clock == nil {
		s.clock = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if strings.TrimSpace(c.URL) == "" {
		return nil, errors.New("open store: no file and no address is named; give a path or postgres://…")
	}
	if err := s.pin.set(c.Head); err != nil {
		return nil, fmt.Errorf("open store: pinned head: %w", err)
	}
	var err error
	if s.db, err = openDatabase(ctx, c.URL); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if err := s.start(ctx, c); err != nil {
		return nil, errors.Join(fmt.Errorf("open store: %w", err), s.db.close())
	}
	return s, nil
}

func (s *Store) start(ctx context.Context, c Config) error {
	if err := s.db.migrate(ctx); err != nil {
		return err
	}
	err := s.db.read(ctx, func(q *session) error {
		var err error
		s.id, err = getMark(ctx, q, markStore)
		return err
	})
	if err != nil {
		return fmt.Errorf("read store id: %w", err)
	}
	if s.id == "" {
		return errors.New("the database has a schema but no store id; it is damaged: restore a backup")
	}
	if s.led, err = ledger.New(ledger.Config{Store: s.id, Signer: c.Signer, Now: s.clock}); err != nil {
		return err
	}
	s.reads.queue, err = s.newQueue()
	return err
}

// ID names the store for its whole life; checkpoints carry it.
func (s *Store) ID() string { return s.id }

// Close flushes what is queued and closes the database. Run must have returned.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.flushRest()
		s.closed = s.db.close()
	})
	return s.closed
}

// View runs f on a consistent snapshot; what f tries to write fails.
func (s *Store) View(ctx context.Context, f func(gate.Tx) error) error {
	return s.db.read(ctx, func(q *session) error {
		t := &tx{ctx: s.db.patient(ctx), q: q, now: s.clock()}
		defer func() { t.q = nil }()
		return f(t)
	})
}
