package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/local"
	"castellan/internal/ops/self"
	"castellan/internal/rights"
	"castellan/internal/seal"
)

// doctorCommand looks at everything that is needed, and says what is wrong: 0 when nothing is, 1 with problems, 6 when a target
// or the daemon is not reached.
func (a *app) doctorCommand() *cobra.Command {
	var target, capability, report string
	var anonymous bool
	cmd := &cobra.Command{Use: "doctor", Short: "Look at connection, rights, approvals, settings, store and files; exit 0 fine, 1 problems, 6 unreachable", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if anonymous && report == "" && !cli.JSON(cmd) {
			return cli.Usage{Err: errors.New("--anonymous goes with --report FILE or --json")}
		}
		raw, out, err := a.examine(cmd.Context(), target, capability)
		if err != nil {
			return err
		}
		if anonymous {
			if raw, err = a.anonymous(raw, out); err != nil {
				return err
			}
		}
		if report != "" {
			if err := a.writeReport(report, raw); err != nil {
				return err
			}
			fmt.Fprintf(a.err, "Wrote %s; it holds no secrets. Read it before you share it.\n", report)
		}
		if cli.JSON(cmd) {
			if err := cli.PrintJSON(a.out, raw); err != nil {
				return err
			}
		} else if !anonymous {
			printExamined(a.out, out)
		}
		switch out.Verdict {
		case "fine":
			return nil
		case "unreachable":
			return cli.Exit(cli.ExitDown)
		}
		return cli.Exit(cli.ExitError)
	}}
	cmd.Flags().StringVar(&target, "target", "", "only this target")
	cmd.Flags().StringVar(&capability, "capability", "", "also what this capability would take in Proxmox")
	cmd.Flags().StringVar(&report, "report", "", "write all of it as JSON into a new file, to share")
	cmd.Flags().BoolVar(&anonymous, "anonymous", false, "in the report, replace names of hosts, users, guests, pools and paths")
	return cmd
}

// examine asks the operation; where castellan cannot even start, that is the finding.
func (a *app) examine(ctx context.Context, target, capability string) (json.RawMessage, examined, error) {
	var out examined
	answer, err := a.askDoctor(ctx, target, capability)
	if err != nil {
		var e *gate.Error
		if cli.Code(err) == cli.ExitUsage || errors.As(err, &e) && e.Kind == gate.ErrNotFound {
			return nil, out, err // what was typed is wrong, not castellan
		}
		check := self.Check{Area: "castellan", State: self.CheckProblem, Text: err.Error()}
		if errors.As(err, &e) {
			check.Text, check.Fix = e.Message, e.Hint
		}
		out.Verdict = "problems"
		if path, serr := a.socket(); serr == nil && path != "" && (e == nil || e.Kind == gate.ErrUnavailable || errors.Is(err, local.ErrNoWelcome)) {
			check.Area, check.State, out.Verdict = "daemon", self.CheckUnreachable, "unreachable"
			if check.Fix == "" {
				check.Fix = "systemctl status castellan"
			}
		}
		out.Problems = []self.Check{check}
		if answer, err = json.Marshal(out); err != nil {
			return nil, out, err
		}
		return answer, out, nil
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		return nil, out, fmt.Errorf("read what doctor says: %w", err)
	}
	return answer, out, nil
}

func (a *app) askDoctor(ctx context.Context, target, capability string) (json.RawMessage, error) {
	g, done, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	args, err := json.Marshal(map[string]string{"detail": "full", "target": target, "capability": capability})
	if err != nil {
		return nil, err
	}
	o, err := g.Do(ctx, gate.Call{Operation: "doctor", Args: args, Principal: a.person()}, nil)
	if err != nil {
		return nil, err
	}
	return o.Answer, nil
}

// writeReport makes the file, and sees to it that no secret of this configuration is in it.
func (a *app) writeReport(path string, raw json.RawMessage) error {
	b, err := json.MarshalIndent(raw, "", "  ")
	if err != nil {
		return err
	}
	text := string(b)
	if s, _, _, err := a.load(); err == nil {
		for _, f := range s.secretFiles() {
			if v, err := seal.Open(f); err == nil {
				secret := strings.TrimSpace(v.Reveal())
				_, after, _ := strings.Cut(secret, "=")
				for _, w := range []string{secret, after} {
					if len(w) >= 8 && strings.Contains(text, w) {
						return fmt.Errorf("write report: it would hold the secret of %s; nothing was written", f)
					}
				}
			}
		}
	}
	if err := seal.Create(path, append([]byte(text), '\n')); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return cli.Usage{Err: fmt.Errorf("%s is there already: name a new file", path)}
		}
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

var marks = map[string]string{self.CheckOK: "ok  ", self.CheckNote: "note", self.CheckUnknown: "??  ", self.CheckProblem: "BAD ", self.CheckUnreachable: "DOWN"}

func printExamined(w io.Writer, out examined) {
	line := func(c self.Check) {
		fmt.Fprintf(w, "%s  %s: %s\n", marks[c.State], cli.Safe(c.Area), cli.Safe(c.Text))
		if c.Fix != "" {
			fmt.Fprintf(w, "      -> %s\n", cli.Safe(c.Fix))
		}
	}
	for _, list := range [][]self.Check{out.Good, out.Notes, out.Problems} {
		for _, c := range list {
			line(c)
		}
	}
	for _, t := range out.Targets {
		var can []rights.Ability
		if json.Unmarshal(t.Can, &can) == nil && len(can) > 0 {
			fmt.Fprintf(w, "\nOn %s (%s %s, as %s):\n", cli.Safe(t.Name), cli.Safe(t.Product), cli.Safe(t.Version), cli.Safe(t.Login))
			for _, c := range can {
				text := map[string]string{"everywhere": "everywhere", "no": "not granted", "with": "takes the rights of what it is used with", "partly": "partly"}[c.Can]
				if len(c.Where) > 0 {
					text += ": on " + strings.Join(c.Where, ", ")
				}
				if len(c.Except) > 0 {
					text += ", but not on " + strings.Join(c.Except, ", ")
				}
				fmt.Fprintf(w, "  %-14s %s\n", c.Capability, cli.Safe(clipped(text, 300)))
			}
		}
		commands(w, "To give what is missing, castellan mint --target "+t.Name+" with a login, or on a node as root (user and token both need it):", t.Commands)
		commands(w, "To take away what is too much, after that:", t.Narrow)
		if len(t.RootOnly) > 0 {
			fmt.Fprintf(w, "\nNo role helps with these, only root@pam with its password: %s.\n", strings.Join(t.RootOnly, "; "))
		}
	}
	fmt.Fprintf(w, "\n%s\n", map[string]string{"fine": "All is fine.", "problems": "There are problems.", "unreachable": "Not everything could be reached."}[out.Verdict])
}

func commands(w io.Writer, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	for _, l := range lines {
		fmt.Fprintln(w, "  "+cli.Safe(l))
	}
}
