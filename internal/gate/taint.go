package gate

import (
	"context"
	"fmt"
	"time"
)

// taintPrefix stands before a principal's key in the store.
const taintPrefix = "taint/"

func (g *Gate) taintFor() time.Duration { return orElse(g.c.Policy.Limits().TaintFor, time.Hour) }

// taint marks agent and person, whatever the client calls itself: free text of outsiders is about to be shown to them. It
// must be known to every process on the store before that; an error means that the text must not be shown.
func (g *Gate) taint(ctx context.Context, p Principal) *Error {
	key, now := p.Key(), g.now()
	every := g.taintFor() / 20 // the store is told that seldom, and told a taint that lasts that much longer
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	fresh := false
	err := g.c.Store.View(ctx, func(tx Tx) error {
		text, err := tx.Get(taintPrefix + key)
		at, bad := time.Parse(time.RFC3339, text)
		fresh = bad == nil && at.After(now) && at.Sub(now) <= every
		return err
	})
	if err == nil && !fresh {
		err = g.c.Store.Update(ctx, func(tx Tx) error { return tx.Set(taintPrefix+key, now.Add(every).Format(time.RFC3339Nano)) })
	}
	if err != nil {
		return &Error{Kind: ErrUnavailable, Message: "text of outsiders is withheld: that it was shown could not be recorded (" + clip(err.Error(), 200) + ")", Changed: "nothing",
			Hint: "Operations that show no text of outsiders still answer (list_guests, guest_status, doctor); doctor says what the store lacks.", Cause: err}
	}
	return nil
}

// isTainted says whether text of outsiders was shown to the principal lately, by any process on the store. What the store
// cannot tell counts as yes.
func (g *Gate) isTainted(ctx context.Context, p Principal) bool {
	tainted := true
	err := g.c.Store.View(ctx, func(tx Tx) error {
		text, err := tx.Get(taintPrefix + p.Key())
		if err != nil || text == "" {
			tainted = false
			return err
		}
		at, err := time.Parse(time.RFC3339, text)
		tainted = err != nil || g.now().Sub(at) < g.taintFor()
		return nil
	})
	return tainted || err != nil
}

// ClearTaint takes the mark off an agent or person, by its key as the ledger shows it ("agent|person"). Only one who
// oversees may say that what was read is harmless.
func (g *Gate) ClearTaint(ctx context.Context, who Principal, key string) error {
	if !who.Oversees() {
		return Fail(ErrDenied, "An approver, or the person at castellan's own machine, does it.", "%s may not clear that text of outsiders was read", who.Key())
	}
	if key == "" || len(key) > 200 || Clean(key) != key {
		return Fail(ErrInvalid, "audit_search shows the keys of callers, such as agent|person.", "%q is no caller", clip(Clean(key), 60))
	}
	had := false
	err := g.c.Store.Update(ctx, func(tx Tx) error {
		text, err := tx.Get(taintPrefix + key)
		if err != nil {
			return err
		}
		if had = text != ""; !had {
			return nil
		}
		if _, err := tx.Append(Record{At: g.now(), Kind: "settings", Operation: "taint_clear", Actor: who.Key(), WayIn: who.WayIn, Status: "ok", Marks: map[string]string{"value": key}}); err != nil {
			return err
		}
		return tx.Set(taintPrefix+key, "")
	})
	if err != nil {
		return ledgerDown(err)
	}
	if !had {
		return Fail(ErrNotFound, "audit_search shows the keys of callers, such as agent|person.", "text of outsiders is not recorded as read by %q", clip(key, 60))
	}
	return nil
}

// withheld is what is told of a plan's end when its texts may not be shown.
func withheld(out *Outcome, plan string, why *Error) *Outcome {
	return &Outcome{Status: out.Status, Next: fmt.Sprintf("Plan %s has come that far; %s. show_plan with plan=%s tells more when that works again.", plan, why.Message, plan)}
}
