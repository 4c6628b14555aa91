// Package identity knows the people: their accounts, how they sign in (password, passkey, an outside provider, a Proxmox
// realm, Cloudflare Access), their sessions and their passkeys. It is the gate's witness: it says whose session a token
// is, which roles a person has now, and whether a passkey signed a challenge.
//
// It keeps nothing in memory that another process would need: accounts, credentials and sessions are documents of the
// store, each under a MAC, and a ceremony under way is a sealed ticket that the browser carries. Every event is a record
// of the ledger in the same transaction.
package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/seal"
)

// Config of an Identity. Store, Keys and PublicURL are needed.
type Config struct {
	Store gate.Store
	Keys  *seal.Keys
	// Settings are checked by New.
	Settings Settings
	// PublicURL is where people's browsers find the console: scheme, host and port. Passkeys belong to its host.
	PublicURL string
	// Clock tells the time, time.Now when nil.
	Clock gate.Clock
	// Log takes warnings; nil discards them.
	Log *slog.Logger
	// Realm logs in at a Proxmox target; nil where there is none.
	Realm Realm
	// Grants knows what the OAuth server gave; nil where there is none.
	Grants Grants
	// Tell is told what all approvers should hear of. It must not block; nil tells nobody.
	Tell func(Notice)
	// Removed asks the ledger whether it holds a record of kind "credential" and status "removed" whose target is this
	// fingerprint. It catches a row that somebody put back into the database; nil relies on the store's own marks.
	Removed func(ctx context.Context, fingerprint string) (bool, error)
	// Roles are role names that policy knows beside the built-in ones.
	Roles []string
}

// Grants is what the OAuth server answers about principals that it let in.
type Grants interface {
	// Standing gives the principal with the roles and expiry that its token has now; an error when it has ended.
	Standing(ctx context.Context, p gate.Principal) (gate.Principal, error)
}

// Remote is where a request came from, as far as it can be trusted.
type Remote struct {
	IP        netip.Addr
	UserAgent string // the client's own words
	WayIn     string // "console" when empty
}

// Notice is something that all approvers should hear of. It holds typed fields only.
type Notice struct {
	Kind       string // "credential_enrolled", "credential_removed", "credential_reset", "counter_back", "role_granted", "password_set", "enrolment_code"
	Person     string // whom it concerns
	By         string // who did it
	At         time.Time
	Credential string    // fingerprint, where it concerns one
	From       time.Time // when the credential may approve, where it was enrolled
	Approvers  []string  // the accounts to tell
}

// Identity is safe for use by many goroutines and many processes on one store.
type Identity struct {
	c         Config
	log       *slog.Logger
	set       Settings // with defaults filled in
	party     party
	cost      cost
	slots     chan struct{} // bounds the memory that password checks take at once
	realms    chan struct{} // bounds how many targets and providers are asked at once
	outside   *http.Client
	keys      keyCache
	providers providerCache
	changes   changes
	dummy     string // the hash that unknown names are compared with
}

var _ gate.Witness = (*Identity)(nil)

// New checks the settings; it opens nothing and starts nothing.
func New(c Config) (*Identity, error) {
	if c.Store == nil || c.Keys == nil {
		return nil, errors.New("make identity: store or keys are missing; nobody could be let in safely")
	}
	if err := c.Settings.Validate(); err != nil {
		return nil, err
	}
	p, err := newParty(c.PublicURL)
	if err != nil {
		return nil, err
	}
	i := &Identity{c: c, log: c.Log, set: c.Settings.filled(), party: p, cost: usualCost(), changes: changes{last: map[string]uint64{}}, slots: make(chan struct{}, passwordSlots), realms: make(chan struct{}, realmSlots)}
	if i.c.Clock == nil {
		i.c.Clock = time.Now
	}
	if i.log == nil {
		i.log = slog.New(slog.DiscardHandler)
	}
	i.dummy = i.cost.dummyHash()
	i.outside = newOutside(i.set)
	return i, nil
}

func (i *Identity) now() time.Time { return i.c.Clock().UTC() }

func (i *Identity) tell(ns []Notice) {
	if i.c.Tell == nil {
		return
	}
	for _, n := range ns {
		i.c.Tell(n)
	}
}

// update runs f in a transaction. f returns a refusal apart from its error: what it recorded stays, and the caller hears no.
func (i *Identity) update(ctx context.Context, what string, f func(tx gate.Tx) (refusal, err error)) error {
	var refusal error
	if err := i.view(ctx, what, func(gate.Tx) error { return nil }); err != nil {
		return err
	}
	err := i.c.Store.Update(ctx, func(tx gate.Tx) error {
		var err error
		refusal, err = f(tx)
		return err
	})
	if err != nil {
		return i.down(what, err)
	}
	return refusal
}

func (i *Identity) view(ctx context.Context, what string, f func(tx gate.Tx) error) error {
	err := i.c.Store.View(ctx, func(tx gate.Tx) error {
		if err := i.changes.follow(tx); err != nil {
			return err
		}
		return f(tx)
	})
	if err != nil {
		return i.down(what, err)
	}
	return nil
}

// down says so in the log too where somebody has changed the database by hand.
func (i *Identity) down(what string, err error) error {
	if errors.Is(err, errForged) {
		i.log.Error("a row of the store is not what was written; access that rests on it is refused", "error", err)
	}
	return storeDown(what, err)
}

// storeDown keeps what was meant for the caller and says of everything else that nobody can be let in.
func storeDown(what string, err error) error {
	var e *gate.Error
	if errors.As(err, &e) {
		return err
	}
	var l *Locked
	if errors.As(err, &l) {
		return err
	}
	return &gate.Error{Kind: gate.ErrUnavailable, Message: "cannot " + what + ": the store does not answer as it should", Changed: "nothing",
		Hint: "Nobody is let in without the store. Look at the daemon's log and at castellan daemon check, then try again.", Cause: fmt.Errorf("%s: %w", what, err)}
}

// clip bounds words of others and takes out what could steer a terminal or break a line.
func clip(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200e || r == 0x200f {
			return '\uFFFD'
		}
		return r
	}, s)
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
