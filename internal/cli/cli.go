// Package cli is the way in for people and scripts: commands that become calls on the gate. Output is JSON or plain
// text that is safe for a terminal; hints go to stderr; the exit code says what kind of end it was.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"castellan/internal/gate"
	"castellan/internal/regex"
)

// Config is what the commands are made of.
type Config struct {
	// Open gives a gate that runs; close ends it. It is called by commands that need one, not before.
	Open func(ctx context.Context) (g Gate, close func(), err error)
	// Approver gives the door for people; nil where there is none.
	Approver func(ctx context.Context) (p Approver, close func(), err error)
	// Declared lists the operations without opening anything, for flags and completion.
	Declared func() []*gate.Operation
	// Calls says whether the command line is about `call`: only then are its many sub-commands made.
	Calls     bool
	Principal gate.Principal
	In        io.Reader
	Out, Err  io.Writer
	// Terminal says whether In and Err are a person's terminal.
	Terminal bool
}

// Gate is what the commands ask of a gate: one of this process, or the daemon's.
type Gate interface {
	Do(ctx context.Context, c gate.Call, p gate.Progress) (*gate.Outcome, error)
	Confirm(ctx context.Context, who gate.Principal, id string, e gate.Evidence, p gate.Progress) (*gate.Outcome, error)
}

// Exit codes. Cobra's own errors are usage errors.
const (
	ExitOK       = 0
	ExitError    = 1
	ExitUsage    = 2
	ExitDenied   = 3
	ExitNotFound = 4
	ExitStale    = 5
	ExitDown     = 6
	ExitUnknown  = 7
	ExitApproval = 8
	ExitRunning  = 9 // a plan goes on, and its end was not waited for
)

// Usage marks an error in the command line itself.
type Usage struct{ Err error }

func (u Usage) Error() string { return u.Err.Error() }

// Unwrap gives the cause.
func (u Usage) Unwrap() error { return u.Err }

// Exit carries a code without a message of its own.
type Exit int

func (e Exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Code maps an error to its exit code.
func Code(err error) int {
	if err == nil {
		return ExitOK
	}
	var exit Exit
	if errors.As(err, &exit) {
		return int(exit)
	}
	var u Usage
	if errors.As(err, &u) {
		return ExitUsage
	}
	var e *gate.Error
	if errors.As(err, &e) {
		switch e.Kind {
		case gate.ErrInvalid:
			return ExitUsage
		case gate.ErrDenied:
			return ExitDenied
		case gate.ErrNotFound:
			return ExitNotFound
		case gate.ErrStale:
			return ExitStale
		case gate.ErrUnavailable:
			return ExitDown
		case gate.ErrUnknownOutcome:
			return ExitUnknown
		case gate.ErrNeedsApproval:
			return ExitApproval
		}
	}
	return ExitError
}

// Report writes an error for a reader who cannot see the code: what happened, whether anything changed, what to do.
// Hints name operations; names lists them, so that a person is told the commands instead.
func Report(w io.Writer, err error, asJSON bool, names []string) {
	var exit Exit
	if err == nil || errors.As(err, &exit) {
		return
	}
	var e *gate.Error
	known := errors.As(err, &e)
	if asJSON {
		if !known {
			e = &gate.Error{Kind: gate.ErrInternal, Message: err.Error(), Changed: "nothing"}
			if Code(err) == ExitUsage {
				e.Kind = gate.ErrInvalid
			}
		}
		b, _ := json.Marshal(map[string]any{"error": e}) // a gate.Error always has a JSON form
		fmt.Fprintln(w, escaped(b))
		return
	}
	if !known {
		fmt.Fprintln(w, "castellan: "+Safe(err.Error()))
		return
	}
	before, after := e.Fence()
	fmt.Fprintf(w, "%scastellan: %s\n", before, Safe(e.Error()))
	if after != "" {
		defer fmt.Fprintln(w, strings.TrimSpace(after))
	}
	for _, h := range e.Hits {
		fmt.Fprintf(w, "  would hit: %s\n", Safe(h.Text))
	}
	for _, u := range e.Unread {
		fmt.Fprintf(w, "  not read: %s\n", Safe(u))
	}
	if e.Changed != "" {
		fmt.Fprintf(w, "  changed: %s\n", Safe(e.Changed))
	}
	if e.Hint != "" {
		fmt.Fprintf(w, "  next:    %s\n", Safe(Spoken(e.Hint, names)))
	}
}

var operationName = &regex.Lazy{Expr: `(castellan call )?\b[a-z]+(_[a-z]+)+\b( with plan=)?`}

// Spoken puts the commands of this program in place of the operations that a hint names.
func Spoken(hint string, names []string) string {
	commands := map[string]string{"show_plan": "castellan plans show", "list_plans": "castellan plans", "apply_plan": "castellan apply", "withdraw_plan": "castellan withdraw",
		"find_operation": "castellan catalog find", "describe_operation": "castellan call OPERATION --help", "audit_search": "castellan audit search", "audit_verify": "castellan audit verify"}
	return operationName.ReplaceAllStringFunc(hint, func(found string) string {
		word, plan := strings.CutSuffix(found, " with plan=")
		name := strings.TrimPrefix(word, "castellan call ")
		if !slices.Contains(names, name) {
			return found
		}
		command := commands[name]
		if command == "" {
			command = "castellan call " + name
		}
		if plan {
			command += " "
		}
		return command
	})
}

func (c Config) names() []string {
	var out []string
	for _, o := range c.Declared() {
		out = append(out, o.Name)
	}
	return out
}

// Safe takes out what could steer a terminal: control characters, escape sequences, bidirectional overrides.
func Safe(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == unicode.ReplacementChar, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, !unicode.IsPrint(r),
			r >= 0x80 && gate.Clean(string(r)) == "":
			return '�'
		}
		return r
	}, s)
}

// Commands returns the commands that are calls.
func Commands(c Config) []*cobra.Command {
	return []*cobra.Command{callCommand(c), plansCommand(c), applyCommand(c), undoCommand(c), withdrawCommand(c), approveCommand(c), denyCommand(c)}
}

// JSON says whether --json was given; the root command declares the flag.
func JSON(cmd *cobra.Command) bool {
	if cmd == nil {
		return false
	}
	on, err := cmd.Flags().GetBool("json")
	return err == nil && on
}

// Do opens the gate, makes one call, and prints its outcome.
func (c Config) Do(cmd *cobra.Command, call gate.Call) error {
	g, done, err := c.Open(cmd.Context())
	if err != nil {
		return err
	}
	defer done()
	call.Principal = c.Principal
	out, err := g.Do(cmd.Context(), call, c.progress())
	if err != nil {
		return err
	}
	return c.outcome(cmd, g, out)
}

func (c Config) progress() gate.Progress {
	if !c.Terminal {
		return c.plainly()
	}
	last := ""
	return func(done, total int, message string) { // called again and again while a step runs
		now := fmt.Sprint(done, " ", total, " ", message)
		if now == last {
			return
		}
		last = now
		if strings.Contains(message, partsDone) {
			fmt.Fprintf(c.Err, "  [%s] %s\n", bar(done, total, 24), Safe(message))
			return
		}
		fmt.Fprintf(c.Err, "  %d of %d steps done: %s\n", done, total, Safe(message))
	}
}

// partsDone is what the gate says of a plan whose parts run side by side.
const partsDone = " parts done"

// plainly tells of such a plan where there is no terminal: a line each time that something has changed.
func (c Config) plainly() gate.Progress {
	last := ""
	return func(done, total int, message string) {
		if message != last && strings.Contains(message, partsDone) {
			last = message
			fmt.Fprintf(c.Err, "%d of %d steps: %s\n", done, total, Safe(message))
		}
	}
}

// bar draws how much is done.
func bar(done, total, width int) string {
	full := 0
	if total > 0 {
		full = min(max(done*width/total, 0), width)
	}
	return strings.Repeat("#", full) + strings.Repeat(".", width-full)
}
