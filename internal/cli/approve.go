package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"castellan/internal/gate"
)

// Approver is the door for people: first they sign in, then what they say counts as theirs. Who keeps the passwords
// checks them; the commands only carry them there.
type Approver interface {
	// SignIn checks a password; an empty person is the one of this account.
	SignIn(ctx context.Context, person, password string) error
	Show(ctx context.Context, plan string) (*gate.PlanView, error)
	// Approve starts nothing. newer lets newer versions of what the plan installs be taken.
	Approve(ctx context.Context, plan string, newer bool) (*gate.PlanView, error)
	Deny(ctx context.Context, plan, why string) error
}

func approveCommand(c Config) *cobra.Command {
	var person string
	cmd := &cobra.Command{Use: "approve PLAN", Short: "Approve a plan as a person, with the password that castellan knows of you; starts nothing", Args: one("plan id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.asPerson(cmd, person, args[0], func(a Approver, plan *gate.PlanView, r *bufio.Reader) error {
				fmt.Fprint(c.Err, "Approve this? Type \"yes\": ")
				line, err := ReadLine(cmd.Context(), r)
				if err != nil && line == "" {
					fmt.Fprintln(c.Err)
				}
				if strings.TrimSpace(line) != "yes" {
					fmt.Fprintf(c.Err, "Nothing has changed; plan %s still waits. To refuse it: castellan deny %s\n", args[0], args[0])
					return Exit(ExitApproval)
				}
				newer := false
				if plan.Newer != "" {
					fmt.Fprint(c.Err, "Newer versions of the same packages, from the same archives, may come out until then. Type \"newer\" to allow them, or just Enter for exactly these: ")
					line, err := ReadLine(cmd.Context(), r)
					switch word := strings.TrimSpace(line); {
					case err != nil && word == "" && cmd.Context().Err() != nil:
						return err
					case word == "newer":
						newer = true
					case word != "":
						fmt.Fprintf(c.Err, "That is neither. Nothing has changed; plan %s still waits.\n", args[0])
						return Exit(ExitApproval)
					}
				}
				v, err := a.Approve(cmd.Context(), args[0], newer)
				if err != nil {
					return err
				}
				if JSON(cmd) {
					return PrintJSON(c.Out, v)
				}
				if v.State == gate.PlanProposed {
					fmt.Fprintf(c.Out, "Your approval of plan %s is recorded; it still waits for another.\n", v.ID)
					return nil
				}
				fmt.Fprintf(c.Out, "Plan %s is %s; nothing has been started. Carry it out with: castellan apply %s\n", v.ID, v.State, v.ID)
				return nil
			})
		}}
	cmd.Flags().StringVar(&person, "person", "", "your name in castellan, where it is not that of this account")
	return cmd
}

func denyCommand(c Config) *cobra.Command {
	var person string
	cmd := &cobra.Command{Use: "deny PLAN [REASON…]", Short: "Say no to a plan as a person, with the password that castellan knows of you", Args: func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Usage{errors.New("give one plan id, then the reason")}
		}
		return nil
	}, RunE: func(cmd *cobra.Command, args []string) error {
		return c.asPerson(cmd, person, args[0], func(a Approver, _ *gate.PlanView, _ *bufio.Reader) error {
			if err := a.Deny(cmd.Context(), args[0], strings.Join(args[1:], " ")); err != nil {
				return err
			}
			if JSON(cmd) {
				return PrintJSON(c.Out, map[string]any{"plan": args[0], "state": gate.PlanDenied})
			}
			fmt.Fprintf(c.Out, "Plan %s is denied; nothing of it was done.\n", args[0])
			return nil
		})
	}}
	cmd.Flags().StringVar(&person, "person", "", "your name in castellan, where it is not that of this account")
	return cmd
}

// asPerson signs a person in on this terminal, shows the plan as it is stored, and goes on.
func (c Config) asPerson(cmd *cobra.Command, person, plan string, then func(a Approver, v *gate.PlanView, r *bufio.Reader) error) error {
	if !c.Terminal {
		return gate.Fail(gate.ErrNeedsApproval, "Run it on a terminal, or approve on the console.", "a password is asked for, and this is no terminal")
	}
	if c.Approver == nil {
		return gate.Fail(gate.ErrUnavailable, "Approve on the console.", "there is nothing here that knows people")
	}
	a, done, err := c.Approver(cmd.Context())
	if err != nil {
		return err
	}
	defer done()
	password, err := c.Password(cmd.Context(), "Password of "+cmp.Or(person, c.Principal.Person)+" in castellan: ")
	if err != nil {
		return err
	}
	if err := a.SignIn(cmd.Context(), person, password); err != nil {
		return err
	}
	v, err := a.Show(cmd.Context(), plan)
	if err != nil {
		return err
	}
	if JSON(cmd) {
		printPlan(c.Err, v)
	} else {
		printPlan(c.Out, v)
	}
	return then(a, v, bufio.NewReader(c.In))
}

// Password asks the person at the terminal for one, without echo.
func (c Config) Password(ctx context.Context, prompt string) (string, error) {
	f, ok := c.In.(*os.File)
	if !ok {
		return "", errors.New("read password: this is no terminal")
	}
	text, err := Secret(ctx, f, c.Err, prompt)
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	if text == "" {
		return "", gate.Fail(gate.ErrNeedsApproval, "", "no password was given; nothing has changed")
	}
	return text, nil
}

// Secret reads a line from a terminal without echo, which is off before the prompt is shown, and gives the terminal back
// as it was.
func Secret(ctx context.Context, in *os.File, out io.Writer, prompt string) (string, error) {
	fd := int(in.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	hideEcho(fd)
	fmt.Fprint(out, Safe(prompt))
	b, err := Interruptible(ctx, func() ([]byte, error) { return term.ReadPassword(fd) })
	err = errors.Join(err, term.Restore(fd, before)) // reading leaves it as it was found, without the echo
	fmt.Fprintln(out)
	return string(b), err
}
