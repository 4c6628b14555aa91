// Package gate is the one way to change anything: operations describe, the gate decides, the drivers obey. Do finds
// the operation, checks its arguments, decides, lets it look, freezes its plan, decides again, records the intent,
// obtains the approval, re-checks, carries out step by step, verifies, and hands back a receipt.
package gate

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config is what a Gate is made of. Witness, Link, Consent, Log, Clock and what has a default may be left out.
type Config struct {
	Operations []*Operation
	Catalog    Catalog
	Driver     Driver
	Policy     Policy
	Store      Store
	Estate     Estate
	Keeper     Keeper  // knows how configurations are written back; nil: only what planners say themselves is undone
	Walker     Walker  // finds what a plan hits beyond what it names; nil: nothing is said of that
	Backups    Backups // knows when guests were last backed up; nil: nothing is known of that
	Runner     Runner  // runs commands on nodes and in guests; nil: nothing is run
	Lanes      Lanes   // knows what may be run where; nil: nothing may
	Sealer     Sealer
	Witness    Witness                  // nil: nobody can prove more than a dialog
	Link       func(plan string) string // the page on which a person approves; nil or "": there is none
	Consent    func(p *Plan) bool       // takes a consent file of this very plan, once; nil: there are none
	Log        *slog.Logger
	Clock      Clock
	Process    string          // names this process among those that share the store; empty = random
	CallLimit  time.Duration   // how long Do may take; 0 = 50 s
	Heartbeat  time.Duration   // how often an applying plan shows that its owner lives; 0 = 3 s
	FirstSweep time.Duration   // how long Run leaves the store alone at first; a call does not wait for it
	PollFirst  time.Duration   // first pause between two looks at a task; 0 = 250 ms
	Soak       time.Duration   // how long after a step that may lock somebody out castellan must still get in; 0 = 25 s
	Notices    func() []string // what the driver's side has to say beside every answer: a certificate that ends soon
	Trace      func(at Point)  // told of each point that a plan passes; tests end the process there
}

// Point is a place on a plan's way between two durable moves.
type Point string

// The points, in their order. The last four come once per step.
const (
	PointKept      Point = "kept"      // the intent is recorded
	PointApproved  Point = "approved"  // the approval is recorded
	PointTaken     Point = "taken"     // this process owns the plan
	PointRechecked Point = "rechecked" // everything was looked at again; nothing recorded yet
	PointStarted   Point = "started"   // the step is recorded, the request not sent
	PointSent      Point = "sent"      // the request was answered, the answer not recorded
	PointAnswered  Point = "answered"  // the answer is recorded, the end not seen
	PointSeen      Point = "seen"      // the step's end is recorded
	PointEnded     Point = "ended"     // the plan's end is recorded
)

// Gate carries plans out. Its methods are safe for concurrent use.
type Gate struct {
	c      Config
	byName map[string]*Operation
	sorted []*Operation

	mu       sync.Mutex
	running  bool
	stopping bool
	carriers map[string]*carrier // plans that this process carries out
	group    sync.WaitGroup
	start    sync.Once
	begun    chan struct{}
	turned   turned
	live     sync.Map // run → the last line that it printed, in this process
}

// New checks the configuration; Run must be running before anything can be applied.
func New(c Config) (*Gate, error) {
	for name, missing := range map[string]bool{"Catalog": c.Catalog == nil, "Driver": c.Driver == nil, "Policy": c.Policy == nil,
		"Store": c.Store == nil, "Estate": c.Estate == nil, "Sealer": c.Sealer == nil} {
		if missing {
			return nil, fmt.Errorf("make gate: %s is missing", name)
		}
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Process == "" {
		c.Process = newID("x")
	}
	c.CallLimit = orElse(c.CallLimit, 50*time.Second)
	c.Heartbeat = orElse(c.Heartbeat, 3*time.Second)
	c.PollFirst = orElse(c.PollFirst, 250*time.Millisecond)
	c.Soak = orElse(c.Soak, 25*time.Second) // two of the rounds in which nodes read their firewall anew, and some
	if c.Trace == nil {
		c.Trace = func(Point) {}
	}
	c.Store = sealing{c.Store, c.Sealer, c.Log, &told{ids: map[string]bool{}}}
	g := &Gate{c: c, byName: map[string]*Operation{}, carriers: map[string]*carrier{}, turned: turned{last: map[string]Record{}}, begun: make(chan struct{})}
	var faults []error
	for _, o := range c.Operations {
		if o.fault != nil {
			faults = append(faults, o.fault)
			continue
		}
		if g.byName[o.Name] != nil {
			faults = append(faults, fmt.Errorf("make gate: operation %s is declared twice", o.Name))
		}
		g.byName[o.Name] = o
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(g.byName)) {
		g.sorted = append(g.sorted, g.byName[name])
	}
	return g, nil
}

func orElse(d, other time.Duration) time.Duration {
	if d == 0 {
		return other
	}
	return d
}

// Operations lists all declared operations by name; Listed says which of them a principal is shown.
func (g *Gate) Operations() []*Operation { return g.sorted }

// Listed lists the operations that this principal is shown: one of effect destroy only when its capability is on.
func (g *Gate) Listed(ctx context.Context, p Principal) []*Operation {
	var out []*Operation
	for _, o := range g.sorted {
		if o.Effect == EffectDestroy && g.offers(ctx, o, p).Verdict == VerdictDeny {
			continue
		}
		if p.looksOnly() && (o.Writes() || o.Effect != EffectRead) {
			continue
		}
		out = append(out, o)
	}
	return out
}

// Offered says whether this principal can have anything of these kinds.
func (g *Gate) Offered(ctx context.Context, p Principal, e Effect, kinds []Kind) bool {
	return g.offers(ctx, &Operation{Name: "call_operation", Effect: e, Kinds: kinds}, p).Verdict != VerdictDeny
}

// Off lists the capabilities of which this principal can have nothing, sorted.
func (g *Gate) Off(ctx context.Context, p Principal) []string {
	kinds := map[string][]Kind{}
	effects := map[string]Effect{}
	for _, r := range Table() {
		if r.Capability != "" {
			kinds[r.Capability] = append(kinds[r.Capability], r.Kind)
			effects[r.Capability] = r.Effect
		}
	}
	var off []string
	for _, c := range slices.Sorted(maps.Keys(kinds)) {
		if !g.Offered(ctx, p, effects[c], kinds[c]) {
			off = append(off, c)
		}
	}
	return off
}

// Limits are the settings in force that callers are told of.
func (g *Gate) Limits() Limits { return g.c.Policy.Limits() }

// Targets lists the configured targets.
func (g *Gate) Targets() []TargetInfo { return g.c.Driver.Targets() }

func (g *Gate) now() time.Time { return g.c.Clock().UTC() }

// newID returns a random id of 50 bits with a prefix, easy to read out and to type.
func newID(prefix string) string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return prefix + "-" + strings.ToLower(base32.NewEncoding("ABCDEFGHJKLMNPQRSTUVWXYZ23456789").WithPadding(base32.NoPadding).EncodeToString(b[:]))[:10]
}

// notices are what every answer must say.
func (g *Gate) notices(ctx context.Context) []string {
	out := slices.Clone(g.c.Policy.Limits().Notices)
	if g.c.Notices != nil {
		out = append(out, g.c.Notices()...)
	}
	if err := g.c.Store.Ready(ctx); err != nil {
		out = append(out, fmt.Sprintf("The ledger cannot be written (%v): reads go on, every write is refused.", err))
	}
	return out
}
