package channel

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/gate"
)

// The kinds of documents and records.
const (
	docKind     = "channel"
	pendingKind = "channel_pending"
	keptKind    = "channel_run"
	recordKind  = "channel"
)

const (
	pendingLife = 48 * time.Hour
	keptLife    = 30 * 24 * time.Hour
)

// errForged is a document that castellan did not write, or not last.
var errForged = errors.New("it was not written by castellan, or not last")

// kept is a channel as its document holds it, sealed.
type kept struct {
	Entry
	Key []byte `json:"key"`
}

// changes knows the ledger's latest record of each channel. A document that was put back from earlier is genuine in itself:
// only this tells that the channel was replaced or taken away since.
type changes struct {
	mu   sync.Mutex
	from uint64
	last map[string]change
}

type change struct {
	index  uint64
	status string
}

func (c *changes) latest(tx gate.Tx, id string) (change, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := map[string]change{}
	err := gate.Walk(tx, gate.RecordFilter{Kind: recordKind, From: c.from}, func(r gate.Recorded) bool {
		if of := r.Marks["channel"]; of != "" && r.Index >= since[of].index {
			since[of] = change{r.Index, r.Status}
		}
		return false
	})
	if err != nil {
		return change{}, false, err
	}
	if at, ok := since[id]; ok {
		return at, true, nil
	}
	at, ok := c.last[id]
	return at, ok, nil
}

// follow takes up what was recorded since; tx must be one that only reads.
func (c *changes) follow(tx gate.Tx) error {
	newest, err := tx.Recorded(gate.RecordFilter{Limit: 1})
	if err != nil || len(newest) == 0 {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if newest[0].Index < c.from {
		return nil
	}
	err = gate.Walk(tx, gate.RecordFilter{Kind: recordKind, From: c.from}, func(r gate.Recorded) bool {
		if of := r.Marks["channel"]; of != "" && r.Index >= c.last[of].index {
			c.last[of] = change{r.Index, r.Status}
		}
		return false
	})
	if err == nil {
		c.from = newest[0].Index + 1
	}
	return err
}

func (c *Channels) sealed(kind, id string, version int64) string {
	return kind + "/" + id + "/" + strconv.FormatInt(version, 10)
}

// put keeps a value of a kind, sealed for exactly this version of its document.
func (c *Channels) put(tx gate.Tx, kind, id string, version int64, expires time.Time, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	box, err := c.sealer.Seal(text, c.sealed(kind, id, version+1))
	if err != nil {
		return err
	}
	return tx.PutDoc(&gate.Doc{Kind: kind, ID: id, Version: version, Expires: expires, Body: box})
}

// get reads one; a document of another version, id or installation does not open.
func (c *Channels) get(d *gate.Doc, v any) error {
	text, err := c.sealer.Open(d.Body, c.sealed(d.Kind, d.ID, d.Version))
	if err != nil {
		return fmt.Errorf("read %s %s: %w", d.Kind, clip(d.ID, 80), errForged)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("read %s %s: %w", d.Kind, clip(d.ID, 80), err)
	}
	return nil
}

func version(tx gate.Tx, kind, id string) (int64, error) {
	d, err := tx.Doc(kind, id)
	if errors.Is(err, gate.ErrStoreNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return d.Version, nil
}

func (k *kept) entry() (*Entry, error) {
	if len(k.Key) != ed25519.SeedSize {
		return nil, errForged
	}
	e := k.Entry
	e.key = ed25519.NewKeyFromSeed(k.Key)
	return &e, nil
}

// open reads a channel and holds it against the ledger.
func (c *Channels) open(tx gate.Tx, d *gate.Doc) (*Entry, error) {
	var k kept
	if err := c.get(d, &k); err != nil {
		return nil, err
	}
	e, err := k.entry()
	if err != nil || e.ID() != d.ID {
		return nil, fmt.Errorf("read channel %s: %w", clip(d.ID, 80), errForged)
	}
	last, found, err := c.changes.latest(tx, d.ID)
	if err != nil {
		return nil, err
	}
	if found && (last.status != "enrolled" || e.Record != last.index+1) {
		return nil, fmt.Errorf("read channel %s: %w: the ledger knows of a later change", clip(d.ID, 80), errForged)
	}
	return e, nil
}

// Find gives the channel of a guest; ErrNotEnrolled where there is none.
func (c *Channels) Find(ctx context.Context, site string, vmid int) (*Entry, error) {
	var out *Entry
	err := c.store.View(ctx, func(tx gate.Tx) error {
		if err := c.changes.follow(tx); err != nil {
			return err
		}
		d, err := tx.Doc(docKind, ID(site, vmid))
		if errors.Is(err, gate.ErrStoreNotFound) {
			return ErrNotEnrolled
		}
		if err != nil {
			return err
		}
		out, err = c.open(tx, d)
		return err
	})
	if err != nil && !errors.Is(err, ErrNotEnrolled) {
		err = fmt.Errorf("find channel: %w", err)
	}
	return out, err
}

// Row is a channel as lists show it.
type Row struct {
	*Entry
	Answered time.Time // zero: not since its enrolment, or long ago
	Bad      string    // it cannot be used: why
}

// List gives the channels of all sites, by id.
func (c *Channels) List(ctx context.Context) ([]Row, error) {
	var out []Row
	err := c.store.View(ctx, func(tx gate.Tx) error {
		out = nil
		if err := c.changes.follow(tx); err != nil {
			return err
		}
		for after := ""; ; {
			docs, err := tx.Docs(gate.DocFilter{Kind: docKind, After: after, Limit: 1000})
			if err != nil {
				return err
			}
			for _, d := range docs {
				e, err := c.open(tx, d)
				row := Row{Entry: e}
				if errors.Is(err, errForged) {
					at := strings.LastIndexByte(d.ID, '/')
					vmid, _ := strconv.Atoi(d.ID[at+1:]) // 0 says that even the id is none
					row = Row{Entry: &Entry{Site: d.ID[:max(at, 0)], VMID: vmid}, Bad: err.Error()}
				} else if err != nil {
					return err
				}
				text, err := tx.Get(seenKey(d.ID))
				if err != nil {
					return err
				}
				row.Answered, _ = time.Parse(time.RFC3339, text) // empty where it never answered
				out, after = append(out, row), d.ID
			}
			if len(docs) < 1000 {
				return nil
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list channels: %w", err)
	}
	return out, nil
}

// Keep makes an entry the channel of its guest, in place of one that it had, and records it in the same transaction. run names
// the plan and step that made it.
func (c *Channels) Keep(ctx context.Context, e *Entry, run string) error {
	if _, err := ParseHostKeys(e.HostKeys); err != nil {
		return fmt.Errorf("keep channel: %w", err)
	}
	if e.Identity.Empty() {
		return errors.New("keep channel: nothing tells the guest from a later one of its id")
	}
	err := c.store.Update(ctx, func(tx gate.Tx) error {
		e.At, e.Run, e.Plan = c.now(), run, planOf(run)
		e.By = c.asker(tx, e.Plan)
		rec := gate.Record{At: e.At, Kind: recordKind, Operation: "channel", Actor: e.By, Status: "enrolled", Plan: e.Plan, Objects: []string{"guest/" + strconv.Itoa(e.VMID)},
			Marks: map[string]string{"channel": e.ID(), "key": e.fingerprint(), "host_keys": strings.Join(e.Fingerprints(), " "), "way": e.Way}}
		index, err := tx.Append(rec)
		if err != nil {
			return err
		}
		e.Record = index + 1
		v, err := version(tx, docKind, e.ID())
		if err != nil {
			return err
		}
		if err := tx.DropDoc(pendingKind, e.ID()); err != nil {
			return err
		}
		if err := tx.Set(seenKey(e.ID()), e.At.UTC().Format(time.RFC3339)); err != nil { // it has answered: a channel is kept when it was tried
			return err
		}
		return c.put(tx, docKind, e.ID(), v, time.Time{}, kept{Entry: *e, Key: e.key.Seed()})
	})
	if err != nil {
		return fmt.Errorf("keep channel: %w", err)
	}
	c.drop(e.ID())
	return nil
}

func (e *Entry) fingerprint() string {
	k, err := parseKey(e.PublicKey)
	if err != nil {
		return ""
	}
	return ssh.FingerprintSHA256(k)
}

// Forget takes the channel of a guest away on castellan's side, its key with it. why is "removed" or "forgotten".
func (c *Channels) Forget(ctx context.Context, site string, vmid int, run, why string) error {
	id := ID(site, vmid)
	err := c.store.Update(ctx, func(tx gate.Tx) error {
		plan := planOf(run)
		rec := gate.Record{At: c.now(), Kind: recordKind, Operation: "channel", Actor: c.asker(tx, plan), Status: why, Plan: plan, Objects: []string{"guest/" + strconv.Itoa(vmid)}, Marks: map[string]string{"channel": id, "run": run}}
		if _, err := tx.Append(rec); err != nil {
			return err
		}
		if err := tx.DropDoc(pendingKind, id); err != nil {
			return err
		}
		if err := tx.Set(seenKey(id), ""); err != nil {
			return err
		}
		return tx.DropDoc(docKind, id)
	})
	if err != nil {
		return fmt.Errorf("forget channel: %w", err)
	}
	c.drop(id)
	return nil
}

// Forgot says whether this run took the channel of a guest away.
func (c *Channels) Forgot(ctx context.Context, site string, vmid int, run string) (bool, error) {
	found := false
	err := c.store.View(ctx, func(tx gate.Tx) error {
		return gate.Walk(tx, gate.RecordFilter{Kind: recordKind, Plan: planOf(run)}, func(r gate.Recorded) bool {
			found = found || r.Marks["channel"] == ID(site, vmid) && r.Marks["run"] == run && (r.Status == "removed" || r.Status == "forgotten")
			return found
		})
	})
	return found, err
}

// asker is who asked for a plan, as its record says.
func (c *Channels) asker(tx gate.Tx, plan string) string {
	if r, err := tx.Plan(plan); err == nil {
		return r.Plan.Requester.Key()
	}
	return "" // a run of no plan: the ledger has who made it
}

// planOf is the plan that a run belongs to.
func planOf(run string) string {
	if i := strings.LastIndexByte(run, '.'); i > 0 {
		return run[:i]
	}
	return run
}

// Pend keeps a key pair for a guest whose script a person runs; it replaces an earlier one.
func (c *Channels) Pend(ctx context.Context, e *Entry) error {
	err := c.store.Update(ctx, func(tx gate.Tx) error {
		v, err := version(tx, pendingKind, e.ID())
		if err != nil {
			return err
		}
		if v == 0 { // an expired one is not found and still there
			if err := tx.DropDoc(pendingKind, e.ID()); err != nil {
				return err
			}
		}
		e.At = c.now()
		return c.put(tx, pendingKind, e.ID(), v, c.now().Add(pendingLife), kept{Entry: *e, Key: e.key.Seed()})
	})
	if err != nil {
		return fmt.Errorf("keep the pending channel: %w", err)
	}
	return nil
}

// Pended gives what Pend kept; ErrNotEnrolled where there is none, or it has expired.
func (c *Channels) Pended(ctx context.Context, site string, vmid int) (*Entry, error) {
	var out *Entry
	err := c.store.View(ctx, func(tx gate.Tx) error {
		d, err := tx.Doc(pendingKind, ID(site, vmid))
		if errors.Is(err, gate.ErrStoreNotFound) {
			return ErrNotEnrolled
		}
		if err != nil {
			return err
		}
		var k kept
		if err := c.get(d, &k); err != nil {
			return err
		}
		out, err = k.entry()
		return err
	})
	return out, err
}

// Others names the guests beside this one that one of these host keys, or this address, is pinned for.
func (c *Channels) Others(ctx context.Context, e *Entry, address string) (sameKey, sameAddress []string, err error) {
	rows, err := c.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		if r.ID() == e.ID() || r.Bad != "" {
			continue
		}
		for _, k := range e.HostKeys {
			for _, have := range r.HostKeys {
				if k == have {
					sameKey = append(sameKey, r.Guest()+" of "+r.Site)
				}
			}
		}
		if address != "" && r.Site == e.Site && r.Address == address {
			sameAddress = append(sameAddress, r.Guest())
		}
	}
	return sameKey, sameAddress, nil
}

// Note keeps what castellan has to know of a run when it was killed meanwhile; it replaces an earlier note.
func (c *Channels) Note(ctx context.Context, run string, v any) error {
	err := c.store.Update(ctx, func(tx gate.Tx) error {
		at, err := version(tx, keptKind, run)
		if err != nil {
			return err
		}
		return c.put(tx, keptKind, run, at, c.now().Add(keptLife), v)
	})
	if err != nil {
		return fmt.Errorf("keep a note of run %s: %w", clip(run, 64), err)
	}
	return nil
}

// Noted reads what Note kept; false where there is nothing.
func (c *Channels) Noted(ctx context.Context, run string, v any) (bool, error) {
	found := false
	err := c.store.View(ctx, func(tx gate.Tx) error {
		d, err := tx.Doc(keptKind, run)
		if errors.Is(err, gate.ErrStoreNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		found = true
		return c.get(d, v)
	})
	return found && err == nil, err
}

func seenKey(id string) string { return "channel_seen/" + id }

// seenEvery is how often it is written down that a guest answers.
const seenEvery = time.Minute

// saw writes down that a guest has answered, now and then.
func (c *Channels) saw(ctx context.Context, w *way) {
	now := c.now()
	w.mu.Lock()
	due := w.kept && now.Sub(w.seen) >= seenEvery
	if due {
		w.seen = now
	}
	w.mu.Unlock()
	if !due {
		return
	}
	if err := c.store.Update(ctx, func(tx gate.Tx) error { return tx.Set(seenKey(w.id), now.UTC().Format(time.RFC3339)) }); err != nil {
		c.log.Warn("write down that a guest answers", "error", err)
	}
}
