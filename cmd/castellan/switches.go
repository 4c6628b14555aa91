package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/local"
)

// within gives f a house that runs. It serves nobody but the person at hand, who must hold the keys.
func (a *app) within(ctx context.Context, f func(h *house) error) error {
	a.overseer = true
	h, err := a.house(ctx)
	if errors.Is(err, errNoConfig) {
		if path, _ := a.socket(); path != "" {
			return gate.Fail(gate.ErrDenied, "As root, name the daemon's own: castellan --config FILE …", "this needs the configuration of the daemon itself, not only its socket %s", path)
		}
	}
	if err != nil {
		return err
	}
	h.start()
	defer h.end(5 * time.Second)
	return f(h)
}

// switchboard is what turns the switches: a gate of this process, or the daemon's.
type switchboard interface {
	Kill(ctx context.Context, who gate.Principal, on bool) error
	Arm(ctx context.Context, who gate.Principal, until time.Time) error
	Switches(ctx context.Context) (gate.Switches, error)
}

// switches gives f the switchboard: beside the daemon to whoever holds its keys, else over its socket.
func (a *app) switches(ctx context.Context, f func(b switchboard) error) error {
	path, err := a.socket()
	if err != nil {
		return err
	}
	_, chosen := a.env("CASTELLAN_SOCKET")
	if s, _, _, err := a.load(); path == "" || err == nil && !chosen && s.Socket == "" && s.Daemon.Account != "" && a.holdsKeys(s) {
		return a.within(ctx, func(h *house) error { return f(h.gate) })
	}
	c, err := local.Connect(ctx, path)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// containCommand is the switch above everything: while it is on, no write passes, in any process on this store.
func (a *app) containCommand() *cobra.Command {
	return &cobra.Command{Use: "contain on|off|show", Aliases: []string{"kill"}, Short: "Stop every write at once (the kill switch), or let writes pass again",
		ValidArgs: []string{"on", "off", "show"}, Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] != "on" && args[0] != "off" && args[0] != "show" {
				return cli.Usage{Err: errors.New("give one of on, off, show")}
			}
			return nil
		}, RunE: func(cmd *cobra.Command, args []string) error {
			return a.switches(cmd.Context(), func(b switchboard) error {
				if args[0] != "show" {
					if err := b.Kill(cmd.Context(), a.person(), args[0] == "on"); err != nil {
						return err
					}
				}
				return a.showSwitches(cmd, b)
			})
		}}
}

// armCommand opens the window in which policy.arming lets writes pass.
func (a *app) armCommand() *cobra.Command {
	return &cobra.Command{Use: "arm DURATION|off", Short: "Let writes pass for a time, where policy.arming asks for it", Example: "  castellan arm 30m",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usage{Err: errors.New("give one time, such as 30m, or off")}
			}
			return nil
		}, RunE: func(cmd *cobra.Command, args []string) error {
			var until time.Time
			if args[0] != "off" {
				d, err := time.ParseDuration(args[0])
				if err != nil || d <= 0 {
					return cli.Usage{Err: fmt.Errorf("%q is no time; write 30m or 2h", args[0])}
				}
				until = time.Now().Add(d)
			}
			return a.switches(cmd.Context(), func(b switchboard) error {
				if err := b.Arm(cmd.Context(), a.person(), until); err != nil {
					return err
				}
				return a.showSwitches(cmd, b)
			})
		}}
}

// taintCommand says that what somebody read was harmless, before policy.taint_for is over.
func (a *app) taintCommand() *cobra.Command {
	c := &cobra.Command{Use: "taint", Short: "What having read text of outsiders entails"}
	c.AddCommand(&cobra.Command{Use: "clear CALLER", Short: "Clear that CALLER (\"agent|person\", as castellan audit search shows it) read text of outsiders; recorded in the ledger", Example: "  castellan taint clear 'claude|ann'",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usage{Err: errors.New("give one caller, such as claude|ann")}
			}
			return nil
		}, RunE: func(cmd *cobra.Command, args []string) error {
			return a.within(cmd.Context(), func(h *house) error {
				if err := h.gate.ClearTaint(cmd.Context(), a.person(), args[0]); err != nil {
					return err
				}
				fmt.Fprintf(a.out, "%s counts as not having read text of outsiders\n", cli.Safe(args[0]))
				return nil
			})
		}})
	return c
}

func (a *app) showSwitches(cmd *cobra.Command, b switchboard) error {
	s, err := b.Switches(cmd.Context())
	if err != nil {
		return err
	}
	if cli.JSON(cmd) {
		return cli.PrintJSON(a.out, s)
	}
	fmt.Fprintln(a.out, describeSwitches(s))
	return nil
}

func describeSwitches(s gate.Switches) string {
	text := "the kill switch is off"
	if s.Killed != "" {
		text = "the kill switch is on (" + cli.Safe(s.Killed) + ")"
	}
	if s.Contained != "" {
		text += "\n" + cli.Safe(s.Contained)
	}
	switch armed := time.Now().Before(s.ArmedUntil); {
	case armed:
		text += "\nwrites are armed until " + s.ArmedUntil.Local().Format(time.RFC3339)
	case s.ArmingNeeded:
		text += "\nwrites are not armed (policy.arming): castellan arm 30m"
	}
	return text
}
