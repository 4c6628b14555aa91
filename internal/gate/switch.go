package gate

import (
	"context"
	"errors"
	"time"
)

// Switches are what stops writes beside policy.
type Switches struct {
	Killed       string    `json:"killed,omitempty"`        // who turned the kill switch on, and when; empty = off
	Contained    string    `json:"contained,omitempty"`     // why the configuration stops every write; empty = it does not
	ArmingNeeded bool      `json:"arming_needed,omitempty"` // writes pass only within an armed window
	ArmedUntil   time.Time `json:"armed_until,omitzero"`
}

const (
	killKey  = "kill"
	armedKey = "armed_until"
)

// longestArming bounds an armed window.
const longestArming = 24 * time.Hour

// Kill turns the switch that stops every write, in every process on this store. Any person may turn it on; off takes one
// who oversees.
func (g *Gate) Kill(ctx context.Context, who Principal, on bool) error {
	if who.Agent != "" || who.Person == "" {
		return Fail(ErrDenied, "Ask a person.", "only a person turns the kill switch")
	}
	if !on && !who.Oversees() {
		return Fail(ErrDenied, "An approver signs in and turns it off on the console, or root does with castellan contain off.", "%s may turn the kill switch on, not off", who.Person)
	}
	value, status := "", "off"
	if on {
		value, status = "by "+who.Person+" at "+g.now().Format(time.RFC3339), "on"
	}
	return g.turn(ctx, who, "kill", status, killKey, value)
}

// Arm opens the armed window until a time, or closes it when that is past. Only one who oversees may open it.
func (g *Gate) Arm(ctx context.Context, who Principal, until time.Time) error {
	status, value := "off", ""
	if left := until.Sub(g.now()); left > 0 {
		if left > longestArming {
			return Fail(ErrInvalid, "Give a shorter time.", "writes are armed for %s at most", longestArming)
		}
		status, value = "on", until.UTC().Format(time.RFC3339)
		if !who.Oversees() {
			return Fail(ErrDenied, "An approver signs in and does it on the console, or root does with castellan arm.", "%s may not arm writes", who.Key())
		}
	}
	return g.turn(ctx, who, "arm", status, armedKey, value)
}

func (g *Gate) turn(ctx context.Context, who Principal, operation, status, key, value string) error {
	err := g.c.Store.Update(ctx, func(tx Tx) error {
		rec := Record{At: g.now(), Kind: "settings", Operation: operation, Actor: who.Key(), WayIn: who.WayIn, Status: status}
		if value != "" {
			rec.Marks = map[string]string{"value": value}
		}
		if _, err := tx.Append(rec); err != nil {
			return err
		}
		return tx.Set(key, value)
	})
	if err != nil {
		return ledgerDown(err)
	}
	return nil
}

// Switches tells where they stand.
func (g *Gate) Switches(ctx context.Context) (Switches, error) {
	l := g.c.Policy.Limits()
	out := Switches{ArmingNeeded: l.ArmingNeeded, Contained: l.Contained}
	err := g.c.Store.View(ctx, func(tx Tx) error {
		var err error
		if out.Killed, err = tx.Get(killKey); err != nil {
			return err
		}
		killed, _, err := g.turned.read(tx, "kill")
		if err != nil {
			return err
		}
		out.Killed = orText(killed, out.Killed)
		text, _, err := g.turned.read(tx, "arm")
		if at, perr := time.Parse(time.RFC3339, text); err == nil && perr == nil {
			out.ArmedUntil = at
		}
		return err
	})
	return out, err
}

// switched refuses every write while one of the switches says so; what cannot be read refuses too. What the ledger has of a
// switch counts: its row in the store could have been taken away.
func (g *Gate) switched(tx Tx) error {
	if err := g.stopped(tx); err != nil {
		return err
	}
	if !g.c.Policy.Limits().ArmingNeeded {
		return nil
	}
	text, _, err := g.turned.read(tx, "arm")
	if err != nil {
		return err
	}
	if at, err := time.Parse(time.RFC3339, text); err != nil || !g.now().Before(at) {
		return Fail(ErrDenied, "A person opens the armed window: castellan arm 30m.", "writes are not armed: policy.arming lets changes pass only within an armed window")
	}
	return nil
}

// stopped refuses while everything that acts is stopped: writes, and probes too, for they start programs in guests. An armed
// window is for writes alone.
func (g *Gate) stopped(tx Tx) error {
	if why := g.c.Policy.Limits().Contained; why != "" {
		return Fail(ErrDenied, "A person at castellan's own machine takes it away.", "no write passes, and no probe: %s", clip(why, 200))
	}
	kill, err := tx.Get(killKey)
	if err != nil {
		return err
	}
	killed, _, err := g.turned.read(tx, "kill")
	if err != nil {
		return err
	}
	if kill = orText(killed, kill); kill != "" {
		return Fail(ErrDenied, "A person takes it off: castellan contain off.", "the kill switch is on: no write passes, and no probe (%s)", clip(kill, 100))
	}
	return nil
}

// standing is the principal with the authority that it has now; an error ends what it asked for.
func (g *Gate) standing(ctx context.Context, who Principal) (Principal, error) {
	if g.c.Witness == nil {
		return who, nil
	}
	now, err := g.c.Witness.Standing(ctx, who)
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			return who, e
		}
		return who, &Error{Kind: ErrDenied, Message: "what " + who.Key() + " may do now cannot be told: " + clip(err.Error(), 200), Changed: "nothing", Cause: err}
	}
	if now.Key() != who.Key() {
		return who, Fail(ErrInternal, "", "the standing of %s came back as that of %s", who.Key(), now.Key())
	}
	return now, nil
}
