package main

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"

	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/identity"
	"castellan/internal/local"
	"castellan/internal/oauth"
	"castellan/internal/proxmox"
	"castellan/internal/seal"
)

// grants is the authorization server as identity asks it: each needs the other.
type grants struct{ server *oauth.Server }

// Standing says what is left of a token.
func (g *grants) Standing(ctx context.Context, p gate.Principal) (gate.Principal, error) {
	if g.server == nil {
		return gate.Principal{}, gate.Fail(gate.ErrDenied, "", "nothing here gives out tokens, so none can be checked")
	}
	return g.server.Standing(ctx, p)
}

// whoMayCome makes what knows people and the clients that they let in. Every process on a store has both: it may take over
// a plan that one of them asked another for.
func (s Settings) whoMayCome(st *lateStore, keys *seal.Keys, client *proxmox.Client, tell func(identity.Notice), log *slog.Logger) (*identity.Identity, *oauth.Server, string, error) {
	url, err := s.Daemon.http().URL()
	if err != nil {
		return nil, nil, "", err
	}
	roles := slices.Sorted(maps.Keys(s.Policy.Roles))
	g := &grants{}
	people, err := identity.New(identity.Config{Store: st, Keys: keys, Settings: s.Identity, PublicURL: url, Log: log, Grants: g, Realm: realm{client}, Tell: tell, Removed: removedFrom(st), Roles: roles})
	if err != nil {
		return nil, nil, "", err
	}
	g.server, err = oauth.New(oauth.Config{Store: st, Keys: keys, Settings: s.OAuth, Issuer: url, People: people, Roles: roles, Log: log})
	if err != nil {
		return nil, nil, "", err
	}
	return people, g.server, url, nil
}

// removedFrom asks the ledger whether a passkey was removed.
func removedFrom(st *lateStore) func(ctx context.Context, fingerprint string) (bool, error) {
	return func(ctx context.Context, fingerprint string) (bool, error) {
		s, err := st.get(ctx)
		if err != nil {
			return false, err
		}
		return s.CredentialRemoved(ctx, fingerprint)
	}
}

// link tells where a person approves a plan; "" where no console is known to be.
func (s Settings) link(url string, daemon bool) func(plan string) string {
	if !daemon && s.Daemon.PublicURL == "" {
		return nil
	}
	return func(plan string) string { return url + "/plans/" + plan }
}

// door is where people approve over the socket: their password is checked here.
type door struct{ h *house }

var (
	_ local.People = door{}
	_ cli.Approver = (*ownDoor)(nil)
)

// SignIn checks a password.
func (d door) SignIn(ctx context.Context, from local.Peer, person, password string) (string, gate.Principal, error) {
	s, err := d.h.people.Password(ctx, person, password, identity.Remote{IP: addressOf(from.UID), UserAgent: "castellan approve", WayIn: "socket"})
	return s.Token, s.Principal, err
}

// addressOf is a loopback address of an account's own: what one account's processes try must not lock out others.
func addressOf(uid int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 128 | byte(uid>>16&0x7f), byte(uid >> 8), byte(uid)})
}

// SignOut ends the session.
func (d door) SignOut(ctx context.Context, session string) {
	_ = d.h.people.SignOut(ctx, session) // it ends by itself too
}

// Show gives the plan as the person sees it.
func (d door) Show(ctx context.Context, who gate.Principal, plan string) (*gate.PlanView, error) {
	v, _, err := d.h.gate.Show(ctx, who, plan)
	return v, err
}

// Approve takes the approval of whoever the session is of.
func (d door) Approve(ctx context.Context, session, plan string, newer bool) (*gate.PlanView, error) {
	return d.h.gate.Approve(ctx, plan, gate.Evidence{Kind: "session", Session: session, AllowNewer: newer})
}

// Deny takes a no.
func (d door) Deny(ctx context.Context, session, plan, why string) error {
	return d.h.gate.Refuse(ctx, plan, why, gate.Evidence{Kind: "session", Session: session})
}

// ownDoor is the door in the process of the command itself, where no daemon is.
type ownDoor struct {
	door
	usual   string // the person of this account
	session string
	who     gate.Principal
}

// SignIn checks a password.
func (o *ownDoor) SignIn(ctx context.Context, person, password string) error {
	if person == "" {
		person = o.usual
	}
	var err error
	o.session, o.who, err = o.door.SignIn(ctx, local.Peer{UID: max(0, os.Getuid())}, person, password)
	return err
}

// Show gives the plan as the person sees it.
func (o *ownDoor) Show(ctx context.Context, plan string) (*gate.PlanView, error) {
	return o.door.Show(ctx, o.who, plan)
}

// Approve approves as the person who signed in.
func (o *ownDoor) Approve(ctx context.Context, plan string, newer bool) (*gate.PlanView, error) {
	return o.door.Approve(ctx, o.session, plan, newer)
}

// Deny denies as the person who signed in.
func (o *ownDoor) Deny(ctx context.Context, plan, why string) error {
	return o.door.Deny(ctx, o.session, plan, why)
}

// approver is the door for people from the command line: the daemon's, or one of this process.
func (a *app) approver(ctx context.Context) (cli.Approver, func(), error) {
	path, err := a.socket()
	if err != nil {
		return nil, nil, err
	}
	if path != "" {
		c, err := local.Connect(ctx, path)
		if err != nil {
			return nil, nil, err
		}
		return c, func() { _ = c.Close() }, nil
	}
	h, err := a.house(ctx)
	if err != nil {
		return nil, nil, err
	}
	h.start()
	o := &ownDoor{door: door{h}, usual: accountName()}
	return o, func() {
		if o.session != "" {
			o.SignOut(context.WithoutCancel(ctx), o.session)
		}
		h.end(endTime)
	}, nil
}
