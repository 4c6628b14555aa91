// Package ledgertest holds what every implementation of the ledger's row
// interfaces is tested with, and one such implementation in memory.
package ledgertest

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"

	"castellan/internal/ledger"
)

// Rows is all that the ledger asks of a transaction.
type Rows interface {
	ledger.Finder
	ledger.Sweeper
	ledger.SessionRows
}

// DB runs transactions. Update commits when fn returns nil and changes nothing
// otherwise; updates exclude each other at least from their call of Head on.
type DB interface {
	Update(ctx context.Context, fn func(Rows) error) error
	View(ctx context.Context, fn func(Rows) error) error
}

// Memory is a DB in memory.
type Memory struct {
	mu    sync.RWMutex
	trees map[ledger.Tree]*memoryTree
	sess  map[string]ledger.Session
}

type memoryTree struct {
	head    ledger.Head
	records []ledger.Record // by index
}

// NewMemory makes an empty Memory.
func NewMemory() *Memory {
	return &Memory{trees: map[ledger.Tree]*memoryTree{ledger.Write: {}, ledger.Read: {}}, sess: map[string]ledger.Session{}}
}

// Update implements DB.
func (m *Memory) Update(ctx context.Context, fn func(Rows) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	tx := &memoryTx{m: m, write: true}
	err := fn(tx)
	if err != nil {
		for _, undo := range slices.Backward(tx.undo) {
			undo()
		}
	}
	return err
}

// View implements DB.
func (m *Memory) View(ctx context.Context, fn func(Rows) error) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return fn(&memoryTx{m: m})
}

type memoryTx struct {
	m     *Memory
	write bool
	undo  []func()
}

func (tx *memoryTx) change(undo func()) error {
	if !tx.write {
		return fmt.Errorf("this transaction only reads")
	}
	tx.undo = append(tx.undo, undo)
	return nil
}

func (tx *memoryTx) Head(_ context.Context, tree ledger.Tree) (ledger.Head, error) {
	return tx.m.trees[tree].head, nil
}

func (tx *memoryTx) SetHead(_ context.Context, tree ledger.Tree, head ledger.Head) error {
	t := tx.m.trees[tree]
	old := t.head
	if err := tx.change(func() { t.head = old }); err != nil {
		return err
	}
	t.head = head
	return nil
}

func (tx *memoryTx) Insert(_ context.Context, tree ledger.Tree, records []ledger.Record) error {
	t := tx.m.trees[tree]
	old := slices.Clone(t.records)
	if err := tx.change(func() { t.records = old }); err != nil {
		return err
	}
	for _, r := range records {
		if i := t.find(r.Index); i < len(t.records) && t.records[i].Index == r.Index {
			return fmt.Errorf("insert record: index %d is taken", r.Index)
		}
		r.Parts = slices.Clone(r.Parts)
		t.records = slices.Insert(t.records, t.find(r.Index), r)
	}
	return nil
}

func (t *memoryTree) find(index int64) int {
	return sort.Search(len(t.records), func(i int) bool { return t.records[i].Index >= index })
}

func (t *memoryTree) within(from, to int64) []ledger.Record {
	if from >= to {
		return nil
	}
	return t.records[t.find(from):t.find(to)]
}

func (tx *memoryTx) Hashes(_ context.Context, tree ledger.Tree, from, to int64) ([]byte, error) {
	var b []byte
	for _, r := range tx.m.trees[tree].within(from, to) {
		b = append(b, r.Hashes...)
	}
	return b, nil
}

func (tx *memoryTx) Scan(_ context.Context, tree ledger.Tree, from, to int64, fn func(*ledger.Record) error) error {
	for _, r := range tx.m.trees[tree].within(from, to) {
		if err := fn(&r); err != nil {
			return err
		}
	}
	return nil
}

func (tx *memoryTx) Select(_ context.Context, tree ledger.Tree, q ledger.Query, below int64, limit int) ([]ledger.Record, error) {
	var out []ledger.Record
	for _, r := range slices.Backward(tx.m.trees[tree].within(0, below)) {
		if len(out) == limit {
			break
		}
		if r.Header != nil && q.MatchColumns(r.Columns) {
			out = append(out, r)
		}
	}
	return out, nil
}

func (tx *memoryTx) DropParts(_ context.Context, tree ledger.Tree, from, to int64, names []string) (int64, error) {
	t := tx.m.trees[tree]
	old := slices.Clone(t.records)
	if err := tx.change(func() { t.records = old }); err != nil {
		return 0, err
	}
	var n int64
	recs := t.within(from, to)
	for i := range recs {
		var keep []ledger.Part
		for _, p := range recs[i].Parts {
			if len(names) > 0 && !slices.Contains(names, p.Name) {
				keep = append(keep, p)
			}
		}
		n += int64(len(recs[i].Parts) - len(keep))
		recs[i].Parts = keep
	}
	return n, nil
}

func (tx *memoryTx) DropRecords(ctx context.Context, tree ledger.Tree, from, to int64) (int64, error) {
	if _, err := tx.DropParts(ctx, tree, from, to, nil); err != nil {
		return 0, err
	}
	var n int64
	recs := tx.m.trees[tree].within(from, to)
	for i := range recs {
		if recs[i].Header != nil {
			n++
		}
		recs[i].Header, recs[i].Columns = nil, ledger.Columns{}
	}
	return n, nil
}

func (tx *memoryTx) PutSession(_ context.Context, s ledger.Session) error {
	old, was := tx.m.sess[s.ID]
	err := tx.change(func() {
		delete(tx.m.sess, s.ID)
		if was {
			tx.m.sess[s.ID] = old
		}
	})
	if err == nil {
		tx.m.sess[s.ID] = s
	}
	return err
}

func (tx *memoryTx) DropSession(_ context.Context, id string) (bool, error) {
	old, was := tx.m.sess[id]
	if err := tx.change(func() {
		if was {
			tx.m.sess[id] = old
		}
	}); err != nil {
		return false, err
	}
	delete(tx.m.sess, id)
	return was, nil
}

func (tx *memoryTx) Sessions(context.Context) ([]ledger.Session, error) {
	var out []ledger.Session
	for _, s := range tx.m.sess {
		out = append(out, s)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out, nil
}
