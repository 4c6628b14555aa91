package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"castellan/internal/bridge"
	"castellan/internal/cli"
)

// bridgeCommand is the mode that runs on a Proxmox node. It has settings of its own and touches nothing of castellan's.
func (a *app) bridgeCommand() *cobra.Command {
	root := &cobra.Command{Use: "bridge", Short: "On a Proxmox node: run probes, commands and scripts for castellan, by rules of the node's own", Args: cobra.NoArgs,
		Long: "On a Proxmox node: run probes, commands and scripts for castellan, by rules of the node's own (" + bridge.DefaultPath + ", or --config).\nWithout a further word it answers frames on standard input and output, as \"run\" does."}
	run := &cobra.Command{Use: "run", Short: "Answer frames on standard input and output: the forced command of SSH", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.bridgeRun(cmd.Context()) }}
	root.RunE = run.RunE
	root.AddCommand(run, a.bridgeInstallCommand(), a.bridgeUninstallCommand(), a.bridgeCheckCommand(),
		&cobra.Command{Use: "serve", Short: "Answer frames over HTTP on loopback, behind a tunnel or proxy of yours", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return a.bridgeServe(cmd.Context()) }},
		&cobra.Command{Use: "secret", Short: "Make a secret: print it, and the line to keep of it on the node", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
			secret, line := bridge.NewSecret()
			_, err := fmt.Fprintf(a.out, "secret, for castellan:            %s\nline, for the file on the node:   %s\n", secret, line)
			return err
		}},
		&cobra.Command{Use: "revert [ID]", Short: "Wait for a dead man's switch, or all of them, and put back what was", Args: cobra.MaximumNArgs(1), Hidden: true,
			RunE: func(cmd *cobra.Command, args []string) error {
				b, err := a.openBridge("")
				if err != nil {
					return err
				}
				defer b.Close()
				return b.Revert(cmd.Context(), strings.Join(args, ""))
			}},
		&cobra.Command{Use: "patch ID", Short: "Do an upgrade of this node that was asked for", Args: cobra.ExactArgs(1), Hidden: true,
			RunE: func(cmd *cobra.Command, args []string) error {
				b, err := a.openBridge("")
				if err != nil {
					return err
				}
				defer b.Close()
				return b.Patch(cmd.Context(), args[0])
			}},
		&cobra.Command{Use: "admit ID", Short: "Say to apt whether what it is about to do was decided", Args: cobra.ExactArgs(1), Hidden: true,
			RunE: func(_ *cobra.Command, args []string) error {
				b, err := a.openBridge("")
				if err != nil {
					return err
				}
				defer b.Close()
				return b.Admit(args[0], a.in)
			}})
	return root
}

// bridgePath is where the settings of the bridge lie.
func (a *app) bridgePath() string {
	if a.config != "" {
		return a.config
	}
	return bridge.DefaultPath
}

// openBridge reads the settings and makes the bridge; only root can be one.
func (a *app) openBridge(peer string) (*bridge.Bridge, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the bridge runs as root, through sudo for exactly this command: castellan bridge install sets that up")
	}
	path, err := filepath.Abs(a.bridgePath())
	if err != nil {
		return nil, err
	}
	s, err := bridge.LoadSettings(path)
	if err != nil {
		return nil, err
	}
	program := []string{}
	if self, err := os.Executable(); err == nil {
		program = []string{self, "bridge", "--config", path}
	}
	return bridge.New(bridge.Config{Settings: s, Build: version, Peer: peer, Program: program, Log: slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn}))})
}

// bridgeRun serves one connection. Its end ends no run: they go on until they end or reach their limits, and their results
// are kept. Signals that tell of a lost connection are let pass; a pipe that nobody reads is an error of the write.
func (a *app) bridgeRun(ctx context.Context) error {
	lost := make(chan os.Signal, 4)
	signal.Notify(lost, syscall.SIGPIPE, syscall.SIGHUP)
	defer signal.Stop(lost)
	ctx, stop := signal.NotifyContext(context.WithoutCancel(ctx), syscall.SIGTERM, os.Interrupt)
	defer stop()
	from, _ := a.env("SSH_CONNECTION")
	as, _ := a.env("SUDO_USER")
	b, err := a.openBridge(strings.TrimSpace(from + " " + as))
	if err != nil {
		return err
	}
	defer b.Close()
	if err := b.Serve(ctx, a.in, a.out); err != nil {
		return cli.Usage{Err: fmt.Errorf("serve castellan: %w", err)}
	}
	return nil
}

// bridgeServe answers over HTTP until it is told to end.
func (a *app) bridgeServe(ctx context.Context) error {
	b, err := a.openBridge("http")
	if err != nil {
		return err
	}
	defer b.Close()
	s, err := bridge.NewService(b)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}
