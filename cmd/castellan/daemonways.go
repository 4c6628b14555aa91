package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"time"

	"castellan/internal/front"
	"castellan/internal/gate"
	"castellan/internal/local"
	"castellan/internal/mcpserver"
	"castellan/internal/mcpserver/fixtures"
	"castellan/internal/oauth"
)

// mounts are the ways in over HTTP. unprotected says why other machines would not have to prove who they are.
func (d *daemon) mounts(ctx context.Context) (mounts []front.Mount, unprotected error, err error) {
	h := d.house
	resource := h.clients.ResourceMetadataURL()
	c := mcpserver.HTTPConfig{Config: mcpserver.Config{Gate: h.gate, Extra: everyOperation(h, d.set.Daemon.Toolset), Toolset: d.set.Daemon.Toolset, Version: version, Log: d.quiet}, Caller: d.caller, Metadata: resource, Origins: []string{h.url}, HostChecked: true}
	if d.app.fixtures {
		if err := d.addFixtures(&c); err != nil {
			return nil, nil, err
		}
	}
	d.mcp, err = mcpserver.NewHTTP(c)
	if err != nil {
		return nil, nil, err
	}
	tokens := h.clients.Handler()
	for _, path := range []string{"/.well-known/", oauth.PathToken, oauth.PathRegister, oauth.PathRevoke} {
		mounts = append(mounts, front.Mount{Pattern: path, Handler: tokens, AnyOrigin: true})
	}
	pages, err := d.newConsole()
	if err != nil {
		return nil, nil, err
	}
	mounts = append(mounts, front.Mount{Pattern: "/mcp", Handler: d.mcp, OwnBody: true}, front.Mount{Pattern: "/", Handler: pages.Handler()})
	return mounts, d.nobody(ctx), nil
}

// addFixtures serves what the official conformance suite looks for, to anybody on this machine. There must be nothing else
// to reach: no target, and no listener but on loopback.
func (d *daemon) addFixtures(c *mcpserver.HTTPConfig) error {
	listen := d.set.Daemon.Listen
	if len(listen) != 1 {
		return errors.New("serve conformance fixtures: daemon.listen must hold one loopback address")
	}
	if err := fixtures.Add(c, listen[0]); err != nil {
		return err
	}
	c.Caller = func(*http.Request) (mcpserver.Caller, error) {
		return mcpserver.Caller{Principal: gate.Principal{Agent: "conformance", WayIn: "mcp-http", Strength: gate.StrengthToken, Roles: []string{gate.RoleViewer}}}, nil
	}
	return nil
}

// nobody says that there is nobody who could prove anything, so that serving others would be of no use or worse.
func (d *daemon) nobody(ctx context.Context) error {
	s := d.set.Identity
	if d.set.Daemon.http().Loopback() || len(s.OIDC)+len(s.Realms) > 0 || s.Access.Team != "" {
		return nil
	}
	people, err := d.house.people.Accounts(ctx)
	if err != nil {
		return fmt.Errorf("the accounts cannot be read: %w", err)
	}
	tokens, err := d.house.clients.Tokens(ctx)
	if err != nil {
		return fmt.Errorf("the tokens cannot be read: %w", err)
	}
	if len(people)+len(tokens) == 0 {
		return errors.New("no person has an account and no token was made; castellan people add NAME makes one")
	}
	return nil
}

// caller says who sent a request to /mcp.
func (d *daemon) caller(r *http.Request) (mcpserver.Caller, error) {
	server := d.house.clients
	refuse := func(err error) error {
		out := &mcpserver.Refusal{Status: http.StatusUnauthorized, Challenge: server.Challenge(err), Message: "a bearer token is needed"}
		var e *oauth.Refused
		if errors.As(err, &e) {
			out.Status, out.Message, out.RetryAfter = e.Status, e.Description, e.After
		}
		return out
	}
	text, err := oauth.BearerText(r)
	if err != nil || text == "" {
		return mcpserver.Caller{}, refuse(err)
	}
	c, err := server.Bearer(r.Context(), text, oauth.Remote{IP: address(r), UserAgent: r.UserAgent()})
	if err != nil {
		return mcpserver.Caller{}, refuse(err)
	}
	if ip := address(r); ip.IsValid() {
		c.Principal.IP = ip.String()
	}
	c.Principal.Token = c.TokenID
	return mcpserver.Caller{Principal: c.Principal, Client: cmp.Or(c.Client, c.TokenID), StepUp: func(role string) string {
		lacks, err := server.Lacks(context.WithoutCancel(r.Context()), c, role)
		if err != nil || len(lacks) == 0 {
			return ""
		}
		return server.StepUp(c, lacks...)
	}}, nil
}

// address is the client's: the front has put it into the request.
func address(r *http.Request) netip.Addr {
	a, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero address is what all unknown share
	return a.Addr().Unmap()
}

// serveSocket serves one MCP client on the socket.
func (d *daemon) serveSocket(ctx context.Context, who gate.Principal, h local.Hello, in io.Reader, out io.Writer) error {
	s, err := d.server(who, h.Toolset, h.PlanOnly)
	if err != nil {
		return err
	}
	return s.Stdio(ctx, in, out)
}

func (d *daemon) server(who gate.Principal, toolset []string, planOnly bool) (*mcpserver.Server, error) {
	return mcpserver.New(mcpserver.Config{Gate: d.house.gate, Extra: everyOperation(d.house, toolset), Toolset: toolset, PlanOnly: planOnly, Version: version, Principal: who, Log: d.quiet})
}

func (d *daemon) checksum(who gate.Principal, toolset []string) (string, error) {
	s, err := d.server(who, toolset, false)
	if err != nil {
		return "", err
	}
	return s.Checksum()
}

// refusedRequest records a request that was turned away at the door.
func (d *daemon) refusedRequest(_ context.Context, r front.Refusal) {
	marks := map[string]string{"ip": r.IP, "reason": r.Reason}
	if r.Route != "" {
		marks["route"] = r.Route
	}
	d.house.store.Observe(gate.Record{At: time.Now(), Kind: "auth", Operation: "http_rejected", WayIn: "http", Status: "denied", Marks: marks})
}

// refusedPeer records an account that the socket does not serve.
func (d *daemon) refusedPeer(_ context.Context, p local.Peer) {
	d.house.store.Observe(gate.Record{At: time.Now(), Kind: "auth", Operation: "socket_rejected", Actor: "|" + p.Account, WayIn: "socket", Status: "denied"})
}
