package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"castellan/internal/bridge"
	"castellan/internal/cli"
)

func (a *app) bridgeInstallCommand() *cobra.Command {
	var i bridge.Installation
	var key string
	var yes bool
	cmd := &cobra.Command{Use: "install", Short: "Set this node up as a bridge: show what is changed, and do it after a yes", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		var err error
		if i.Program, err = os.Executable(); err != nil {
			return err
		}
		if i.Key = key; key != "" && !strings.Contains(key, " ") {
			text, err := os.ReadFile(key)
			if err != nil {
				return cli.Usage{Err: fmt.Errorf("read castellan's public key: %w", err)}
			}
			i.Key = string(text)
		}
		if key == "" && !i.Service {
			return cli.Usage{Err: errors.New("give --key (and --from) for the way in by SSH, or --service for the one over HTTP; nothing was changed")}
		}
		steps, err := i.Plan()
		if err != nil {
			return cli.Usage{Err: err}
		}
		did, err := a.carrySteps(cmd.Context(), steps, yes)
		if err != nil || !did {
			return err
		}
		if i.Key != "" {
			if err := bridge.SudoIsNarrow(cmd.Context()); err != nil {
				return fmt.Errorf("look at what sudo allows: %w: castellan bridge uninstall takes all back", err)
			}
			fmt.Fprintln(a.out, "sudo was asked: the account of the key may run that one command, the other account none.")
		}
		fmt.Fprintf(a.out, "Next: switch on what you want in %s, then: castellan bridge check\n", bridge.DefaultPath)
		if i.Service {
			fmt.Fprintln(a.out, "The service reads it when it starts, and needs service.secret (castellan bridge secret): systemctl restart castellan-bridge")
		}
		return nil
	}}
	cmd.Flags().StringVar(&key, "key", "", "castellan's public key, or the file that holds it")
	cmd.Flags().StringSliceVar(&i.From, "from", nil, "addresses or networks that the key may come from")
	cmd.Flags().BoolVar(&i.Service, "service", false, "the service on loopback as well (service.secret is to be set before it starts)")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it without asking")
	return cmd
}

func (a *app) bridgeUninstallCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{Use: "uninstall", Short: "Remove every trace of the bridge: show what goes, and do it after a yes", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		_, err := a.carrySteps(cmd.Context(), bridge.PlanRemoval(), yes)
		return err
	}}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it without asking")
	return cmd
}

// carrySteps shows the steps, asks, and takes them in order; the first that fails ends it.
func (a *app) carrySteps(ctx context.Context, steps []bridge.Step, yes bool) (did bool, err error) {
	if os.Geteuid() != 0 {
		return false, cli.Usage{Err: errors.New("only root can do this; nothing was changed")}
	}
	open := 0
	for _, s := range steps {
		mark := "+"
		if s.Done {
			mark = "="
		} else {
			open++
		}
		fmt.Fprintf(a.out, "%s %s\n", mark, cli.Safe(s.Text))
	}
	if open == 0 {
		fmt.Fprintln(a.out, "All of it is so already: nothing was changed.")
		return true, nil
	}
	if !yes {
		if !a.terminal() {
			return false, cli.Usage{Err: errors.New("nobody can be asked here: look at the plan above, then give --yes; nothing was changed")}
		}
		fmt.Fprintf(a.err, "Do what is marked with +, %d of it? Type yes: ", open)
		answer, err := cli.ReadLine(ctx, bufio.NewReader(a.in))
		if err != nil || strings.TrimSpace(answer) != "yes" {
			fmt.Fprintln(a.out, "Not done: nothing was changed.")
			return false, err
		}
	}
	for _, s := range steps {
		if err := s.Do(ctx); err != nil {
			return false, fmt.Errorf("set up bridge: %w; what stands before it in the plan is done, and the same command goes on from there", err)
		}
	}
	fmt.Fprintln(a.out, "Done.")
	return true, nil
}

func (a *app) bridgeCheckCommand() *cobra.Command {
	return &cobra.Command{Use: "check", Short: "Say what is wrong with the bridge of this node, and how to mend it", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		found := bridge.Check(cmd.Context(), a.bridgePath())
		bad := 0
		for _, f := range found {
			if !f.OK {
				bad++
			}
		}
		if cli.JSON(cmd) {
			if err := cli.PrintJSON(a.out, map[string]any{"ok": bad == 0, "findings": found}); err != nil {
				return err
			}
		} else {
			for _, f := range found {
				mark := "ok   "
				if !f.OK {
					mark = "WRONG"
				}
				fmt.Fprintf(a.out, "%s %s\n", mark, cli.Safe(f.Text))
				if f.Mend != "" {
					fmt.Fprintf(a.out, "      %s\n", cli.Safe(f.Mend))
				}
			}
		}
		if bad > 0 {
			return fmt.Errorf("check bridge: %d of %d things are wrong", bad, len(found))
		}
		return nil
	}}
}
