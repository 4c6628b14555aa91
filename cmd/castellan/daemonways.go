package main

import (
	"context"
	"errors"
	"io"
	"time"

	"castellan/internal/cli"
	"castellan/internal/front"
	"castellan/internal/gate"
	"castellan/internal/local"
	"castellan/internal/mcpserver"
)

// mounts are the ways in over HTTP. unprotected says why other machines would not have to prove who they are.
func (d *daemon) mounts(context.Context) (mounts []front.Mount, unprotected error, err error) {
	return nil, errors.New("this daemon has no way to sign in yet"), nil
}

// people is the door for approvals over the socket; nil where nobody can be known.
func (d *daemon) people() local.People { return nil }

// serveSocket serves one MCP client on the socket.
func (d *daemon) serveSocket(ctx context.Context, who gate.Principal, h local.Hello, in io.Reader, out io.Writer) error {
	s, err := d.server(who, h.Toolset)
	if err != nil {
		return err
	}
	return s.Stdio(ctx, in, out)
}

func (d *daemon) server(who gate.Principal, toolset []string) (*mcpserver.Server, error) {
	return mcpserver.New(mcpserver.Config{Gate: d.house.gate, Extra: everyOperation(d.house, toolset), Toolset: toolset, Version: version, Principal: who, Log: d.log})
}

func (d *daemon) checksum(who gate.Principal, toolset []string) (string, error) {
	s, err := d.server(who, toolset)
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

// approver is the door for people from the command line.
func (a *app) approver(ctx context.Context) (cli.Approver, func(), error) {
	path, err := a.socket()
	if err != nil {
		return nil, nil, err
	}
	if path == "" {
		return nil, nil, gate.Fail(gate.ErrUnavailable, "Start castellan daemon and set socket; without one, castellan apply asks on the terminal.", "no daemon is configured, and only a daemon knows people with passwords")
	}
	c, err := local.Connect(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	return c, func() { _ = c.Close() }, nil
}
