package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"castellan/internal/catalog"
	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/policy"
)

// makePolicy makes the policy of settings, with what it needs to know of targets and operations.
func makePolicy(s Settings, dir string, c *catalog.Catalog, a *app) (*policy.Policy, error) {
	cfg := policy.Config{Settings: s.Policy, Dir: dir, Highest: a.highest(s, dir), Users: map[string]string{}, Targets: []string{}, Sites: s.sites()}
	for _, t := range s.Targets {
		cfg.Targets = append(cfg.Targets, t.Name)
		cfg.Users[t.Name] = a.tokenOf(t)
		if t.Kind == "pdm" {
			cfg.Fleets = append(cfg.Fleets, t.Name)
		}
	}
	if len(s.Policy.Forbid) > 0 { // only then the catalogue is needed
		for _, o := range declared() {
			cfg.Known = append(cfg.Known, [2]string{o.Name, ""})
		}
		for _, op := range c.All() {
			cfg.Known = append(cfg.Known, [2]string{"call_operation", op.ID})
		}
	}
	return policy.New(cfg)
}

// checkedPolicy makes the policy for its errors alone.
func (a *app) checkedPolicy(s Settings, dir string) (*policy.Policy, error) {
	c, err := a.plainCatalog()
	if err != nil {
		return nil, err
	}
	return makePolicy(s, dir, c, a)
}

func (a *app) policyCommand() *cobra.Command {
	root := &cobra.Command{Use: "policy", Short: "Explain and check what may be done"}
	load := func() (*policy.Policy, *catalog.Catalog, error) {
		c, err := a.plainCatalog()
		if err != nil {
			return nil, nil, err
		}
		s, path, _, err := a.load()
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoConfig) {
			fmt.Fprintln(a.err, "note: there is no configuration; these are the defaults")
			p, err := policy.New(policy.Config{})
			return p, c, err
		}
		if err != nil {
			return nil, nil, err
		}
		p, err := makePolicy(s, filepath.Dir(path), c, a)
		return p, c, err
	}
	table := &cobra.Command{Use: "table", Short: "Print what each kind of change takes", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		p, _, err := load()
		if err != nil {
			return err
		}
		if cli.JSON(cmd) {
			return cli.PrintJSON(a.out, p.Table())
		}
		fmt.Fprint(a.out, p.TableText())
		return nil
	}}
	show := &cobra.Command{Use: "show", Short: "Print the Cedar policies that the settings compile to", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		p, _, err := load()
		if err != nil {
			return err
		}
		fmt.Fprint(a.out, p.Text())
		return nil
	}}
	check := &cobra.Command{Use: "check [FILE…]", Short: "Check Cedar files, or without any the policy of the configuration", RunE: func(cmd *cobra.Command, args []string) error {
		var faults []error
		for _, f := range args {
			faults = append(faults, policy.CheckFile(f)...)
		}
		if len(args) == 0 {
			p, _, err := load()
			if err != nil {
				return gate.Fail(gate.ErrInvalid, "Correct the file; until then the earlier policy stays in force where a castellan runs.", "%v", err)
			}
			for _, w := range p.Warnings() {
				fmt.Fprintln(a.err, "warning: "+cli.Safe(w))
			}
		}
		if err := errors.Join(faults...); err != nil {
			return gate.Fail(gate.ErrInvalid, "docs/policies.md names every attribute.", "%v", err)
		}
		if cli.JSON(cmd) {
			return cli.PrintJSON(a.out, map[string]any{"ok": true})
		}
		fmt.Fprintln(a.out, "good")
		return nil
	}}
	var agent, target, guest, risk string
	var tainted bool
	explain := &cobra.Command{Use: "explain OPERATION|KIND|\"METHOD /path\"", Short: "Show which rule says what about a call, at every rung", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		p, c, err := load()
		if err != nil {
			return err
		}
		q := policy.Question{Principal: gate.Principal{Agent: agent, Person: accountName(), WayIn: "cli"}, Target: target, Tainted: tainted}
		switch r := gate.CommandRisk(risk); r {
		case gate.RiskNone, gate.RiskLow, gate.RiskMedium, gate.RiskHigh:
			q.Command = r
		default:
			return gate.Fail(gate.ErrInvalid, "Give low, medium or high.", "there is no risk %q", risk)
		}
		if guest != "" {
			q.Objects = []gate.ObjectFacts{{Object: gate.Object{Kind: gate.ObjectGuest, ID: guest}, Use: gate.UseActs, Known: true}}
		}
		if err := question(&q, c, args[0]); err != nil {
			return err
		}
		e := p.Explain(q)
		if cli.JSON(cmd) {
			return cli.PrintJSON(a.out, e)
		}
		fmt.Fprint(a.out, cli.Safe(e.Text()))
		return nil
	}}
	explain.Flags().StringVar(&agent, "agent", "agent", "as this agent; empty: as you")
	explain.Flags().StringVar(&target, "target", "", "on this target")
	explain.Flags().StringVar(&guest, "guest", "", "on this guest")
	explain.Flags().StringVar(&risk, "risk", "", "as if it ran a command of this risk: low, medium, high (policy.command_risk)")
	explain.Flags().BoolVar(&tainted, "tainted", false, "as if text of outsiders had just been read (policy.after_free_text)")
	root.AddCommand(table, show, check, explain)
	return root
}

// question fills in what an operation, kind or API call means.
func question(q *policy.Question, c *catalog.Catalog, what string) error {
	if method, path, ok := strings.Cut(what, " "); ok {
		for _, product := range catalog.Products() {
			op, _, err := c.Match(product, strings.ToUpper(method), path)
			if err != nil {
				continue
			}
			j := c.Judge(op, gate.Request{Product: product, Operation: op.ID})
			q.Operation, q.API, q.Kinds, q.Effect = "call_operation", op.ID, j.Kinds, j.Effect
			return nil
		}
		return gate.Fail(gate.ErrNotFound, "castellan catalog find, in plain words.", "no product has %s", what)
	}
	var names []string
	for _, o := range declared() {
		if o.Name == what {
			q.Operation, q.Kinds, q.Effect = o.Name, o.Kinds, o.Effect
			return nil
		}
		names = append(names, o.Name)
	}
	for _, r := range gate.Table() {
		if string(r.Kind) == what {
			q.Kinds = []gate.Kind{r.Kind}
			return nil
		}
		names = append(names, string(r.Kind))
	}
	e := gate.Fail(gate.ErrNotFound, "castellan policy table lists the kinds.", "there is no operation or kind %q", what)
	if near := gate.Nearest(what, names); near != "" {
		e.Message += "; did you mean " + near + "?"
	}
	return e
}
