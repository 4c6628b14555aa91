package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/local"
	"castellan/internal/mcpserver"
)

// relay serves MCP by the daemon. Only the choice of tools goes there; nothing else of this side's flags, files and
// environment is heard.
func (a *app) relay(ctx context.Context, path string, o serveOptions) error {
	h := local.Hello{Kind: local.KindMCP, Toolset: o.toolset, PlanOnly: o.planOnly, Pin: o.pin, Checksum: o.checksum}
	if o.checksum {
		c, _, w, err := local.Dial(ctx, path, h)
		if err != nil {
			return err
		}
		_ = c.Close()
		fmt.Fprintln(a.out, w.Checksum)
		return nil
	}
	if a.in == nil {
		return cli.Usage{Err: errors.New("serve needs stdin")}
	}
	outliveReader()
	err := local.Relay(ctx, path, h, a.in, a.out)
	var e *gate.Error
	if errors.As(err, &e) && errors.Is(err, local.ErrNoWelcome) && e.Kind != gate.ErrInvalid {
		return a.broken(ctx, err)
	}
	return err
}

// broken serves a client although castellan cannot: it is greeted, lists no tool, and answers every call with what is
// wrong. A client that finds its server dead would show less.
func (a *app) broken(ctx context.Context, cause error) error {
	if a.in == nil {
		return cause
	}
	var e *gate.Error
	if !errors.As(cause, &e) { // the configuration, or what it names
		e = gate.Fail(gate.ErrUnavailable, "A person corrects it (castellan config check reads it again); then start this server anew.", "castellan cannot start: %v", cause)
	}
	outliveReader()
	if err := mcpserver.NewBroken(version, e).Stdio(ctx, io.NopCloser(a.in), a.out); err != nil {
		return errors.Join(cause, err)
	}
	return cause
}
