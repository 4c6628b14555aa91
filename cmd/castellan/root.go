package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/identity"
	"castellan/internal/local"
)

// app is one run of the program.
type app struct {
	in       io.Reader
	out, err io.Writer
	env      func(string) (string, bool)
	config   string // --config

	firstSweep time.Duration // how long a gate leaves the store alone at first
	isDaemon   bool          // this process is the daemon itself
	fixtures   bool          // the daemon serves those of the conformance suite
	overseer   bool          // the command needs the store and serves nobody: whoever holds the keys may run it
	mayBecome  bool          // root gives up its rights for those of the daemon's account
	separation func() local.Separation
	tell       func(identity.Notice) // of what changes who can approve; nil tells nobody

	// Set by tests only.
	trace     func(gate.Point)
	heartbeat time.Duration
}

func (a *app) run(ctx context.Context, args []string) int {
	calls := slices.ContainsFunc(args, func(s string) bool { return slices.Contains([]string{"call", "__complete", "__completeNoDesc"}, s) })
	if len(args) == 1 && args[0] == "--version" {
		args = []string{"version"}
	}
	root := a.root(calls)
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && isUsage(err) {
		err = cli.Usage{Err: err}
	}
	asJSON := cli.JSON(cmd) || slices.Contains(args, "--json") // the flags may not have been read
	if err == nil {
		return cli.ExitOK
	}
	cli.Report(a.err, err, asJSON, operationNames())
	switch {
	case asJSON || !isUsage(err):
	case strings.HasPrefix(err.Error(), "unknown command"):
		fmt.Fprintln(a.err, "  next:    castellan --help lists the commands")
	default:
		fmt.Fprintf(a.err, "  usage:   %s\n  next:    %s --help tells all of it\n", cmd.UseLine(), cmd.CommandPath())
	}
	return cli.Code(err)
}

func operationNames() []string {
	var out []string
	for _, o := range declared() {
		out = append(out, o.Name)
	}
	return out
}

// isUsage tells cobra's own complaints about the command line, which have no type.
func isUsage(err error) bool {
	for _, start := range []string{"unknown command", "unknown flag", "unknown shorthand", "flag needs", "invalid argument", "required flag", "accepts ", "requires ", "give one "} {
		if strings.HasPrefix(err.Error(), start) {
			return true
		}
	}
	return false
}

func (a *app) root(calls bool) *cobra.Command {
	root := &cobra.Command{Use: "castellan", Short: "Administer Proxmox through one gate: ask everything, change by plans only",
		SilenceUsage: true, SilenceErrors: true}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.Usage{Err: err} })
	root.PersistentFlags().StringVar(&a.config, "config", "", "configuration file (default "+configPlace()+")")
	root.PersistentFlags().Bool("json", false, "print JSON")
	c := cli.Config{Open: a.open, Approver: a.approver, Declared: declared, Calls: calls, Principal: a.person(), In: a.in, Out: a.out, Err: a.err, Terminal: a.terminal()}
	root.AddCommand(cli.Commands(c)...)
	root.AddCommand(a.serveCommand(), a.demoCommand(), a.labCommand(), a.initCommand(), a.doctorCommand(), a.mintCommand(), a.clientCommand(), a.capabilityCommand(), a.containCommand(), a.receiptCommand(), a.armCommand(), a.taintCommand(), a.daemonCommand(), a.peopleCommand(), a.tokenCommand(), a.auditCommand(c),
		a.catalogCommand(), a.policyCommand(), a.stateCommand(), a.configCommand(), a.versionCommand(), a.referenceCommand())
	root.AddCommand(a.estateCommand(c), a.bridgeCommand(), a.enrolCommand(c), a.unenrolCommand(c), a.enrolledCommand(c))
	root.Version = version // a template of its own would link text/template, and with it every method of every type: 3 MB
	for _, group := range root.Commands() {
		needSubcommand(group)
	}
	return root
}

// needSubcommand makes a wrong word after a group an error; cobra would print the help and call it a success.
func needSubcommand(group *cobra.Command) {
	if !group.HasSubCommands() || group.Runnable() {
		return
	}
	group.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var names []string
		for _, c := range group.Commands() {
			names = append(names, c.Name())
		}
		hint := "; it has: " + strings.Join(names, ", ")
		if near := gate.Nearest(args[0], names); near != "" {
			hint = "; did you mean " + near + "?"
		}
		return cli.Usage{Err: fmt.Errorf("%s has no command %q%s", group.CommandPath(), args[0], hint)}
	}
	group.RunE = func(*cobra.Command, []string) error { return group.Help() }
}

// person is the one at the command line: the account of this process, without an agent.
func (a *app) person() gate.Principal {
	return gate.Principal{Person: accountName(), WayIn: "cli", Strength: gate.StrengthAccount}
}

func accountName() string {
	u, err := user.Current()
	if err != nil || u.Username == "" {
		return fmt.Sprintf("uid-%d", os.Getuid())
	}
	return u.Username
}

// terminal says whether a person can be asked.
func (a *app) terminal() bool {
	in, ok := a.in.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return false
	}
	e, ok := a.err.(*os.File)
	return ok && term.IsTerminal(int(e.Fd()))
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if cli.JSON(cmd) {
			fmt.Fprintf(a.out, "{\"version\":%q}\n", version)
			return nil
		}
		fmt.Fprintln(a.out, "castellan "+version)
		return nil
	}}
}

// errNoConfig says that there is none, and how to make one.
var errNoConfig = errors.New("there is no configuration yet; make one with: castellan init (or try without: castellan demo)")
