package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/mcpserver"
)

func (a *app) serveCommand() *cobra.Command {
	var o serveOptions
	var toolset string
	var demo bool
	cmd := &cobra.Command{Use: "serve", Short: "Serve MCP on stdin and stdout", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		var h *house
		var agent string
		var err error
		if demo {
			var clean func()
			if h, clean, err = a.demoHouse(cmd.Context()); err != nil {
				return err
			}
			defer clean()
			agent = "demo"
		} else {
			o.toolset = split(toolset)
			path, err := a.socket()
			if err != nil {
				return err
			}
			if path != "" {
				return a.relay(cmd.Context(), path, o)
			}
			s, file, _, err := a.load()
			if err == nil {
				agent, a.firstSweep = s.Agent, time.Second // tools are listed before the store is opened
				h, err = a.house(cmd.Context())
			}
			if err != nil && !o.checksum {
				return a.broken(cmd.Context(), located(file, err))
			}
			if err != nil {
				return err
			}
		}
		h.start()
		defer h.end(800 * time.Millisecond)
		o.toolset = split(toolset)
		return a.serve(cmd.Context(), h, agent, o)
	}}
	cmd.Flags().StringVar(&toolset, "toolset", "standard", "front, standard, full, everything, or names of operations, separated by commas")
	cmd.Flags().BoolVar(&o.planOnly, "plan-only", false, "stop every change at its plan, also where policy asks for no approval")
	cmd.Flags().BoolVar(&o.checksum, "tools-checksum", false, "print the checksum of the toolset's names, texts and schemas, and serve nothing")
	cmd.Flags().StringVar(&o.pin, "tools-pin", "", "refuse to start when the toolset's checksum is another than this one")
	cmd.Flags().BoolVar(&demo, "demo", false, "serve a simulated site; reads no configuration, keeps nothing")
	return cmd
}

func split(list string) []string {
	var out []string
	for _, part := range strings.Split(list, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

type serveOptions struct {
	toolset  []string
	planOnly bool   // every change stops at its plan
	checksum bool   // only print it
	pin      string // the checksum that the toolset must have; empty = any
}

func (a *app) serve(ctx context.Context, h *house, agent string, o serveOptions) error {
	s, err := mcpserver.New(mcpserver.Config{Gate: h.gate, Extra: everyOperation(h, o.toolset), Toolset: o.toolset, PlanOnly: o.planOnly, Version: version,
		Principal: gate.Principal{Agent: agent, Person: accountName(), WayIn: "mcp-stdio", Strength: gate.StrengthAccount}})
	if err != nil {
		return cli.Usage{Err: err}
	}
	if o.checksum || o.pin != "" {
		sum, err := s.Checksum()
		if err != nil {
			return err
		}
		if o.pin != "" && !strings.EqualFold(o.pin, sum) {
			return gate.Fail(gate.ErrDenied, "Read what the tools say now (docs/reference.md); if that is right, pin the new checksum.",
				"the toolset has the checksum %s, but %.80q is pinned: nothing is served", sum, o.pin)
		}
		if o.checksum {
			fmt.Fprintln(a.out, sum)
			return nil
		}
	}
	if a.in == nil {
		return cli.Usage{Err: fmt.Errorf("serve needs stdin")}
	}
	outliveReader()
	return s.Stdio(ctx, io.NopCloser(a.in), a.out)
}
