package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"castellan/internal/gate"
)

func one(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return Usage{fmt.Errorf("give one %s", what)}
		}
		return nil
	}
}

func plansCommand(c Config) *cobra.Command {
	var all bool
	list := &cobra.Command{Use: "plans", Short: "List plans that wait or are at work", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		args := map[string]any{}
		if !all {
			args["state"] = "open"
		}
		b, err := json.Marshal(args)
		if err != nil {
			return err
		}
		return c.Do(cmd, gate.Call{Operation: "list_plans", Args: b})
	}}
	list.Flags().BoolVar(&all, "all", false, "ended ones too")
	var wait bool
	show := &cobra.Command{Use: "show PLAN", Short: "Show a plan as it is stored, and how far it is", Args: one("plan id"), RunE: func(cmd *cobra.Command, args []string) error {
		m := map[string]any{"plan": args[0]}
		if wait {
			m["wait"] = 45
		}
		return c.show(cmd, m, wait)
	}}
	show.Flags().BoolVar(&wait, "wait", false, "return when it has ended, after at most 45 s; the exit code says how")
	list.AddCommand(show)
	return list
}

// show prints a plan. After waiting for its end the exit code tells what that was.
func (c Config) show(cmd *cobra.Command, args map[string]any, waited bool) error {
	b, err := json.Marshal(args)
	if err != nil {
		return err
	}
	g, done, err := c.Open(cmd.Context())
	if err != nil {
		return err
	}
	defer done()
	out, v, err := c.look(cmd, g, b)
	if err != nil {
		return err
	}
	c.notices(out)
	if JSON(cmd) {
		err = PrintJSON(c.Out, out)
	} else {
		printPlan(c.Out, v)
	}
	if err != nil || !waited {
		return err
	}
	if code, ended := exitOf(v.State); ended {
		return code
	}
	fmt.Fprintf(c.Err, "next: it has not ended; look again with: castellan plans show --wait %s\n", v.ID)
	return nil
}

// exitOf is the exit code of how a plan stands; ended is false where it goes on.
func exitOf(state gate.PlanState) (code error, ended bool) {
	switch state {
	case gate.PlanDone:
		return nil, true
	case gate.PlanUnknown:
		return Exit(ExitUnknown), true
	case gate.PlanStale, gate.PlanExpired, gate.PlanWithdrawn:
		return Exit(ExitStale), true
	case gate.PlanDenied:
		return Exit(ExitDenied), true
	case gate.PlanProposed:
		return Exit(ExitApproval), true
	case gate.PlanApproved, gate.PlanApplying, gate.PlanPaused:
		return nil, false
	}
	return Exit(ExitError), true
}

// awaitLooks bounds how often a command looks whether a plan has ended that goes on elsewhere; each look waits up to awaitSeconds.
const (
	awaitLooks   = 160 // some two hours
	awaitSeconds = 45
	// Looks in a row that fail, or find that nobody goes on with the plan, and the time between them: a daemon that is started
	// anew takes its plans up again.
	awaitTries = 6
	awaitPause = 5 * time.Second
)

// await waits for the end of a plan that outlasts the call, whoever carries it out, and ends as that ends.
func (c Config) await(cmd *cobra.Command, g Gate, last *gate.Outcome) error {
	p := last.Plan
	if p == nil {
		return Exit(ExitRunning)
	}
	fmt.Fprintf(c.Err, "plan %s goes on; waiting for its end (an interrupt ends the waiting, not the plan)\n", Safe(p.ID))
	why, idle, failed := "it takes long", 0, 0
	for range awaitLooks {
		b, err := json.Marshal(map[string]any{"plan": p.ID, "wait": awaitSeconds})
		if err != nil {
			return err
		}
		out, v, err := c.look(cmd, g, b)
		switch {
		case cmd.Context().Err() != nil:
			err = cmd.Context().Err()
			fallthrough
		case err != nil:
			why = Safe(err.Error())
			if failed++; failed < awaitTries && !settled(err) && paused(cmd.Context()) {
				continue
			}
		default:
			last, failed = out, 0
			code, ended := exitOf(v.State)
			if idle++; v.State == gate.PlanApplying {
				idle = 0
			}
			if !ended && (idle == 0 || idle < awaitTries && paused(cmd.Context())) {
				continue
			}
			if !ended {
				why = "it is " + string(v.State)
				break
			}
			if JSON(cmd) {
				err = PrintJSON(c.Out, out)
			} else {
				printPlan(c.Out, v)
			}
			if err != nil {
				return err
			}
			return code
		}
		break
	}
	if JSON(cmd) {
		if err := PrintJSON(c.Out, last); err != nil {
			return err
		}
	}
	fmt.Fprintf(c.Err, "next: the plan has not ended as far as this command saw (%s); look with: castellan plans show --wait %s\n", why, Safe(p.ID))
	return Exit(ExitRunning)
}

// settled says of an error that asking again will not help.
func settled(err error) bool {
	var e *gate.Error
	return errors.As(err, &e) && slices.Contains([]gate.ErrorKind{gate.ErrDenied, gate.ErrNotFound, gate.ErrInvalid}, e.Kind)
}

// paused waits between two looks; false where the command is ended meanwhile.
func paused(ctx context.Context) bool {
	select {
	case <-time.After(awaitPause):
		return true
	case <-ctx.Done():
		return false
	}
}

// look asks for a plan.
func (c Config) look(cmd *cobra.Command, g Gate, args json.RawMessage) (*gate.Outcome, *gate.PlanView, error) {
	out, err := g.Do(cmd.Context(), gate.Call{Operation: "show_plan", Args: args, Principal: c.Principal}, c.progress())
	if err != nil {
		return nil, nil, err
	}
	var v gate.PlanView
	if err := json.Unmarshal(out.Answer, &v); err != nil {
		return nil, nil, fmt.Errorf("read plan: %w", err)
	}
	return out, &v, nil
}

// applyCommand approves as the person at this terminal and carries the plan out. A yes here counts as a dialog.
func applyCommand(c Config) *cobra.Command {
	var sentence, token, phrase string
	cmd := &cobra.Command{Use: "apply PLAN", Short: "Approve a plan and carry it out", Args: one("plan id"), RunE: func(cmd *cobra.Command, args []string) error {
		if sentence != "" || token != "" {
			b, err := json.Marshal(map[string]any{"plan": args[0], "sentence": sentence, "token": token, "phrase": phrase})
			if err != nil {
				return err
			}
			return c.Do(cmd, gate.Call{Operation: "apply_plan", Args: b})
		}
		g, done, err := c.Open(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		b, err := json.Marshal(map[string]any{"plan": args[0]})
		if err != nil {
			return err
		}
		_, v, err := c.look(cmd, g, b)
		if err != nil {
			return err
		}
		if v.State != gate.PlanProposed || v.Rung == gate.RungNone {
			out, err := g.Do(cmd.Context(), gate.Call{Operation: "apply_plan", Args: b, Principal: c.Principal}, c.progress())
			if err != nil {
				return err
			}
			return c.outcome(cmd, g, out)
		}
		if JSON(cmd) {
			if err := PrintJSON(c.Out, &gate.Outcome{Status: gate.StatusWaiting, Plan: v}); err != nil {
				return err
			}
		} else {
			printPlan(c.Out, v)
		}
		if v.Rung >= gate.RungPerson {
			fmt.Fprintln(c.Err, "next: "+Safe(personNext(v)))
			return Exit(ExitApproval)
		}
		if !c.Terminal || JSON(cmd) {
			fmt.Fprintln(c.Err, "next: run this on a terminal; where the plan needs no more than its sentence, --sentence and --token of the call that made it do too")
			return Exit(ExitApproval)
		}
		return c.prompt(cmd, g, v)
	}}
	cmd.Flags().StringVar(&sentence, "sentence", "", "the plan's sentence, word for word")
	cmd.Flags().StringVar(&token, "token", "", "the plan's one-use token")
	cmd.Flags().StringVar(&phrase, "phrase", "", "the literal phrase, where the plan asks for one")
	return cmd
}

// prompt asks the person at the terminal. Only the whole word yes counts, and the phrase where one is asked for.
func (c Config) prompt(cmd *cobra.Command, g Gate, v *gate.PlanView) error {
	want := "yes"
	if v.Phrase != "" {
		want = v.Phrase
	}
	fmt.Fprintf(c.Err, "Carry this out? Type %q: ", want)
	line, err := ReadLine(cmd.Context(), bufio.NewReader(c.In))
	if err != nil && line == "" {
		fmt.Fprintln(c.Err)
	}
	if strings.TrimSpace(line) != want {
		fmt.Fprintf(c.Err, "Nothing has changed; plan %s still waits. Withdraw it with: castellan withdraw %s\n", v.ID, v.ID)
		return Exit(ExitApproval)
	}
	out, err := g.Confirm(cmd.Context(), c.Principal, v.ID, gate.Evidence{Kind: "terminal", Phrase: v.Phrase}, c.progress())
	if err != nil {
		return err
	}
	return c.outcome(cmd, g, out)
}

func withdrawCommand(c Config) *cobra.Command {
	var why string
	cmd := &cobra.Command{Use: "withdraw PLAN", Short: "End a plan that has not begun, or is paused", Args: one("plan id"), RunE: func(cmd *cobra.Command, args []string) error {
		b, err := json.Marshal(map[string]any{"plan": args[0], "why": why})
		if err != nil {
			return err
		}
		return c.Do(cmd, gate.Call{Operation: "withdraw_plan", Args: b})
	}}
	cmd.Flags().StringVar(&why, "reason", "", "why, for the record")
	return cmd
}
