package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"castellan/internal/gate"
)

// undoCommand plans the way back from a plan, shows it, and asks as apply does.
func undoCommand(c Config) *cobra.Command {
	var partial bool
	cmd := &cobra.Command{Use: "undo PLAN", Short: "Take back what a plan did, by a plan of its own", Args: one("plan id"), RunE: func(cmd *cobra.Command, args []string) error {
		b, err := json.Marshal(map[string]any{"plan": args[0], "partial": partial})
		if err != nil {
			return err
		}
		g, done, err := c.Open(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		out, err := g.Do(cmd.Context(), gate.Call{Operation: "undo", Args: b, Principal: c.Principal, PlanOnly: true}, c.progress())
		if err != nil {
			return err
		}
		if out.Plan == nil || !c.Terminal || JSON(cmd) || out.Plan.Rung >= gate.RungPerson {
			return c.outcome(cmd, g, out)
		}
		printPlan(c.Out, out.Plan)
		if out.Plan.Rung == gate.RungNone {
			fmt.Fprintf(c.Err, "next: nothing has changed yet; carry it out with: castellan apply %s\n", out.Plan.ID)
			return nil
		}
		return c.prompt(cmd, g, out.Plan)
	}}
	cmd.Flags().BoolVar(&partial, "partial", false, "undo what can be undone, where some of it cannot")
	return cmd
}
