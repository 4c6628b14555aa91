package notify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"castellan/internal/gate"
)

// Documents of this kind say what was told: "plan/<id>" for a plan, "later/<id>" for a notice that quiet hours hold
// back, "burst" for when the last notification of plans went out, "same/<digest>" for an event that a process has told
// of. They grant nothing.
const docKind = "notify"

// mark is the body of a document.
type mark struct {
	Sent   bool      `json:"sent,omitempty"`
	Until  time.Time `json:"until,omitzero"` // claimed by a process, which may have died, until then
	Notice *Notice   `json:"notice,omitempty"`
	By     string    `json:"by,omitempty"` // the process that told of an event
}

const (
	lease     = 5 * time.Minute // longer than all tries take
	apart     = time.Minute     // by which the times differ that processes look at: their clocks, and how long each waited for the store
	keepSent  = time.Hour       // beyond the plan's own time, against clocks that differ
	keepLater = 7 * 24 * time.Hour
	maxLater  = 200
	sameFor   = 30 * time.Second // two processes that see the same within this time saw one event
)

// others leaves out the events that another process has just told of: several may watch the same switch.
func (n *Notifier) others(ctx context.Context, now time.Time, notices []Notice) []Notice {
	if n.c.Store == nil || len(notices) == 0 {
		return notices
	}
	var left []Notice
	err := n.c.Store.Update(ctx, func(t gate.Tx) error {
		left = nil
		for _, x := range notices {
			id, err := sameID(x)
			if err != nil {
				return err
			}
			d, m, err := readMark(t, id)
			if err != nil {
				return err
			}
			if age := now.Sub(m.Until); m.By != "" && m.By != n.self && age > -sameFor && age < sameFor {
				continue
			}
			left = append(left, x)
			d.Expires = now.Add(10 * sameFor)
			if err := writeMark(t, d, mark{By: n.self, Until: now}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return notices // rather twice than not at all
	}
	return left
}

// sameID is the id of a notice's document: all that it says but when.
func sameID(x Notice) (string, error) {
	x.At = time.Time{}
	b, err := json.Marshal(x)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return "same/" + hex.EncodeToString(sum[:]), nil
}

// look tells of plans that nobody was told of, once a burst had time to come together.
func (n *Notifier) look(ctx context.Context, now time.Time) {
	silent := n.rules.silent(now)
	if d := now.Sub(n.later); d >= laterEvery || d < 0 {
		n.later = now
		n.tellLater(ctx, now, silent)
	}
	if silent {
		return
	}
	waiting, err := n.waiting(ctx)
	if err != nil {
		if ctx.Err() == nil {
			n.c.Log.Warn("the waiting plans cannot be listed", "error", err)
		}
		return
	}
	there := map[string]bool{}
	var fresh []*gate.PlanRecord
	for _, r := range waiting {
		there[r.Plan.ID] = true
		if until, known := n.skip[r.Plan.ID]; !known || !until.IsZero() && !now.Before(until) {
			fresh = append(fresh, r)
		}
	}
	for id := range n.skip {
		if !there[id] {
			delete(n.skip, id)
		}
	}
	if len(fresh) == 0 {
		n.first = time.Time{}
		return
	}
	if n.first.IsZero() || now.Before(n.first) {
		n.first = now
	}
	if now.Sub(n.first) < n.rules.window {
		return
	}
	claimed, again, err := n.claim(ctx, now, fresh)
	if err != nil {
		n.first = now // another window
		if ctx.Err() == nil {
			n.c.Log.Warn("nobody is told of waiting plans: it cannot be recorded", "error", err)
		}
		return
	}
	n.first = again
	if len(claimed) == 0 {
		return
	}
	plans := make([]waits, len(claimed))
	for i, r := range claimed {
		plans[i] = waitsOf(r, n.c.Link)
	}
	n.send(newMessage(newID(), now, plans, nil, n.c.Link), func(ok bool) {
		if ok { // else the claim runs out, and they are told of again as long as they wait
			n.sent(claimed)
		}
	})
}

func (n *Notifier) waiting(ctx context.Context) ([]*gate.PlanRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	all, err := n.c.Source.Waiting(ctx)
	if err != nil {
		return nil, err
	}
	var out []*gate.PlanRecord
	for _, r := range all {
		if rungOf(r) >= gate.RungPerson { // a dialog is shown by the client that asked
			out = append(out, r)
		}
	}
	return out, nil
}

// claim takes the plans that no other process tells of. again is not zero when another has just told of some: then the
// rest waits for a window of its own.
func (n *Notifier) claim(ctx context.Context, now time.Time, fresh []*gate.PlanRecord) (claimed []*gate.PlanRecord, again time.Time, err error) {
	if n.c.Store == nil {
		for _, r := range fresh {
			n.skip[r.Plan.ID] = time.Time{}
		}
		return fresh, time.Time{}, nil
	}
	skip := map[string]time.Time{}
	err = n.c.Store.Update(ctx, func(t gate.Tx) error {
		claimed, again = nil, time.Time{}
		clear(skip)
		burst, last, err := readMark(t, "burst")
		if err != nil {
			return err
		}
		if d := now.Sub(last.Until); burst.Version > 0 && d > -apart && d < n.rules.window {
			again = last.Until
			return nil
		}
		for _, r := range fresh {
			d, m, err := readMark(t, "plan/"+r.Plan.ID)
			if err != nil {
				return err
			}
			switch {
			case m.Sent:
				skip[r.Plan.ID] = time.Time{}
				continue
			case now.Before(m.Until) && m.Until.Sub(now) <= lease+apart: // what is claimed for longer was claimed by a clock that was wrong
				skip[r.Plan.ID] = m.Until
				continue
			}
			d.Expires = r.Plan.Expires.Add(keepSent)
			if err := writeMark(t, d, mark{Until: now.Add(lease)}); err != nil {
				return err
			}
			skip[r.Plan.ID] = now.Add(2 * lease) // should it fail here, another process tries first
			claimed = append(claimed, r)
		}
		if len(claimed) == 0 {
			return nil
		}
		return writeMark(t, burst, mark{Until: now})
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("claim plans: %w", err)
	}
	for id, until := range skip {
		n.skip[id] = until
	}
	return claimed, again, nil
}

// sent notes that the plans were told of: no process tells of them again.
func (n *Notifier) sent(plans []*gate.PlanRecord) {
	if n.c.Store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := n.c.Store.Update(ctx, func(t gate.Tx) error {
		for _, r := range plans {
			d, _, err := readMark(t, "plan/"+r.Plan.ID)
			if err != nil {
				return err
			}
			d.Expires = r.Plan.Expires.Add(keepSent)
			if err := writeMark(t, d, mark{Sent: true}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		n.c.Log.Warn("it is not recorded that people were told; they may be told again", "error", err)
	}
}

// keep holds notices back until the quiet hours end.
func (n *Notifier) keep(ctx context.Context, notices []Notice) {
	if n.store(ctx, notices) {
		return
	}
	n.calm = append(n.calm, notices...)
	if over := len(n.calm) - queued; over > 0 {
		n.calm = n.calm[over:]
		n.mu.Lock()
		n.lost += over
		n.mu.Unlock()
	}
}

// store keeps notices for later in the store; false when it cannot.
func (n *Notifier) store(ctx context.Context, notices []Notice) bool {
	if n.c.Store == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := n.c.Store.Update(ctx, func(t gate.Tx) error {
		for _, x := range notices {
			d := &gate.Doc{Kind: docKind, ID: "later/" + newID(), Expires: n.c.Clock().Add(keepLater)}
			if err := writeMark(t, d, mark{Notice: &x}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		n.c.Log.Warn("notices that are to be sent later cannot be stored", "error", err)
	}
	return err == nil
}

// Leave keeps a notice in the store for whichever process tells people: for those that have no Notifier of their own.
func Leave(ctx context.Context, s Store, now time.Time, x Notice) error {
	if x.At.IsZero() {
		x.At = now
	}
	return s.Update(ctx, func(t gate.Tx) error {
		return writeMark(t, &gate.Doc{Kind: docKind, ID: "later/" + newID(), Expires: now.Add(keepLater)}, mark{Notice: &x})
	})
}

// tellLater sends what quiet hours have held back, and what other processes left. In quiet hours only what is urgent.
func (n *Notifier) tellLater(ctx context.Context, now time.Time, silent bool) {
	var notices []Notice
	if !silent {
		notices, n.calm = n.calm, nil
	}
	var ids []string
	if n.c.Store != nil {
		var err error
		if ids, err = n.claimLater(ctx, now, silent, &notices); err != nil && ctx.Err() == nil {
			n.c.Log.Warn("notices held back by quiet hours cannot be read", "error", err)
		}
	}
	if len(notices) == 0 {
		return
	}
	n.send(newMessage(newID(), now, nil, notices, n.c.Link), func(ok bool) {
		if !ok && len(ids) < len(notices) {
			n.store(context.Background(), notices[:len(notices)-len(ids)]) // those of memory come first
		}
		if !ok || len(ids) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := n.c.Store.Update(ctx, func(t gate.Tx) error {
			for _, id := range ids {
				if err := t.DropDoc(docKind, id); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			n.c.Log.Warn("it is not recorded that people were told; they may be told again", "error", err)
		}
	})
}

func (n *Notifier) claimLater(ctx context.Context, now time.Time, silent bool, notices *[]Notice) ([]string, error) {
	list := func(t gate.Tx) ([]*gate.Doc, error) {
		docs, err := t.Docs(gate.DocFilter{Kind: docKind, After: "later/", Limit: maxLater})
		var out []*gate.Doc
		for _, d := range docs {
			var m mark
			if strings.HasPrefix(d.ID, "later/") && json.Unmarshal(d.Body, &m) == nil && m.Notice != nil && !now.Before(m.Until) && (!silent || m.Notice.urgent()) {
				out = append(out, d)
			}
		}
		return out, err
	}
	var some bool
	err := n.c.Store.View(ctx, func(t gate.Tx) error {
		docs, err := list(t)
		some = len(docs) > 0
		return err
	})
	if err != nil || !some {
		return nil, err
	}
	var ids []string
	var got []Notice
	err = n.c.Store.Update(ctx, func(t gate.Tx) error {
		ids, got = nil, nil
		docs, err := list(t)
		if err != nil {
			return err
		}
		for _, d := range docs {
			var m mark
			if err := json.Unmarshal(d.Body, &m); err != nil {
				return err
			}
			m.Until = now.Add(lease)
			if err := writeMark(t, d, m); err != nil {
				return err
			}
			ids, got = append(ids, d.ID), append(got, m.Notice.cleaned())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	*notices = append(*notices, got...)
	return ids, nil
}

// readMark finds a document, or makes one that is not stored yet. One that cannot be read counts as absent: whoever
// spoils it has people told once more.
func readMark(t gate.Tx, id string) (*gate.Doc, mark, error) {
	d, err := t.Doc(docKind, id)
	if errors.Is(err, gate.ErrStoreNotFound) {
		return &gate.Doc{Kind: docKind, ID: id}, mark{}, nil
	}
	if err != nil {
		return nil, mark{}, err
	}
	var m mark
	if json.Unmarshal(d.Body, &m) != nil {
		m = mark{}
	}
	return d, m, nil
}

func writeMark(t gate.Tx, d *gate.Doc, m mark) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	d.Body = b
	return t.PutDoc(d)
}
