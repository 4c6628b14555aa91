package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/spf13/cobra"

	"castellan/internal/gate"
)

// callCommand makes `call OPERATION --flag…`: one sub-command per operation, its flags from the input schema.
func callCommand(c Config) *cobra.Command {
	root := &cobra.Command{Use: "call OPERATION", Short: "Ask or change something: call one operation", Long: "Ask or change something: call one operation.\n\nRequests of the API itself go through call_operation:\n  " + doorExample + "\nwhich find_operation finds and describe_operation explains.",
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true}, // the flags of an operation that there is not: what is said is that there is not
		Args: func(_ *cobra.Command, args []string) error {
			var names []string
			for _, o := range c.Declared() {
				names = append(names, o.Name)
			}
			slices.Sort(names)
			if len(args) == 0 {
				return Usage{fmt.Errorf("name an operation: %s", strings.Join(names, ", "))}
			}
			if method, path, ok := strings.Cut(args[0], " "); ok && strings.HasPrefix(path, "/") && strings.ToUpper(method) == method {
				return Usage{fmt.Errorf("%q is a request of the API itself, which goes through call_operation: %s", args[0], doorExample)}
			}
			hint := ""
			if near := gate.Nearest(args[0], names); near != "" {
				hint = "; did you mean " + near + "?"
			}
			return Usage{fmt.Errorf("there is no operation %q%s", args[0], hint)}
		}, RunE: func(*cobra.Command, []string) error { return nil }}
	if c.Calls {
		for _, o := range c.Declared() {
			root.AddCommand(operationCommand(c, o))
		}
	}
	return root
}

// doorExample shows how a request of the API itself is called.
const doorExample = `castellan call call_operation --operation 'POST /nodes/{node}/status' --params '{"node":"pve1","command":"reboot"}'`

func operationCommand(c Config, o *gate.Operation) *cobra.Command {
	var schema jsonschema.Schema
	_ = json.Unmarshal(o.Input, &schema) // made by the gate itself
	texts := map[string]*string{}
	lists := map[string]*[]string{}
	objects := map[string]*[]string{}
	var reason, raw string
	var planOnly bool
	cmd := &cobra.Command{Use: use(o, &schema), Short: o.Summary, Args: func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			if last := args[len(args)-1]; last == "true" || last == "false" { // would be taken for a guest, and the flag for a yes
				if bare := bareSwitches(cmd, &schema); len(bare) > 0 {
					return Usage{fmt.Errorf("%s: %q stands alone; a flag that is on or off takes its value with a =: %s", o.Name, last, strings.Join(bare, "="+last+" or ")+"="+last)}
				}
			}
		}
		if len(args) > 1 || len(args) == 1 && first(o, &schema) == "" {
			hint := ""
			if len(args) == 1 && len(schema.Required) == 1 {
				hint = "; did you mean --" + strings.ReplaceAll(schema.Required[0], "_", "-") + " " + args[0] + "?"
			}
			return Usage{fmt.Errorf("%s takes its arguments as flags; %q is left over%s", o.Name, args[len(args)-1], hint)}
		}
		return nil
	}}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		p := schema.Properties[name]
		flag := strings.ReplaceAll(name, "_", "-")
		usage := p.Description
		if name == "target" && usage == "" {
			usage = "which target, where there are several"
		}
		if len(p.Enum) > 0 {
			var v []string
			for _, e := range p.Enum {
				v = append(v, fmt.Sprint(e))
			}
			usage = strings.TrimSpace(usage + " [" + strings.Join(v, "|") + "]")
		}
		switch p.Type {
		case "array":
			lists[name] = cmd.Flags().StringArray(flag, nil, usage+" (repeatable)")
		case "object":
			objects[name] = cmd.Flags().StringArray(flag, nil, usage+" (NAME=VALUE, repeatable; or a JSON object)")
		case "boolean":
			texts[name] = cmd.Flags().String(flag, "", usage)
			cmd.Flags().Lookup(flag).NoOptDefVal = "true"
		default:
			texts[name] = cmd.Flags().String(flag, "", usage)
		}
		if len(p.Enum) > 0 {
			var v []string
			for _, e := range p.Enum {
				v = append(v, fmt.Sprint(e))
			}
			_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(v, cobra.ShellCompDirectiveNoFileComp)) // the flag was just declared
		}
	}
	cmd.Flags().StringVar(&raw, "args", "", "all arguments as one JSON object")
	if o.Writes() {
		cmd.Flags().BoolVar(&planOnly, "plan-only", false, "stop at the plan")
		if schema.Properties["reason"] == nil {
			cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
		}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m := map[string]json.RawMessage{}
		if raw != "" {
			if err := json.Unmarshal([]byte(raw), &m); err != nil {
				return Usage{fmt.Errorf("--args is no JSON object: %w", err)}
			}
		}
		put := func(name string, v any) {
			b, _ := json.Marshal(v) // texts and lists of texts always have a JSON form
			m[name] = b
		}
		for name, text := range texts {
			if cmd.Flags().Changed(strings.ReplaceAll(name, "_", "-")) {
				put(name, *text)
			}
		}
		for name, list := range lists {
			if cmd.Flags().Changed(strings.ReplaceAll(name, "_", "-")) {
				put(name, listOf(*list))
			}
		}
		for name, pairs := range objects {
			if cmd.Flags().Changed(strings.ReplaceAll(name, "_", "-")) {
				o, err := objectOfPairs(*pairs)
				if err != nil {
					return Usage{fmt.Errorf("--%s: %w", strings.ReplaceAll(name, "_", "-"), err)}
				}
				put(name, o)
			}
		}
		if len(args) == 1 {
			name := first(o, &schema)
			if m[name] != nil {
				return Usage{fmt.Errorf("%s is given twice: %q before the flags, and once more as --%s or in --args", name, args[0], strings.ReplaceAll(name, "_", "-"))}
			}
			put(name, args[0])
		}
		b, err := json.Marshal(m)
		if err != nil {
			return err
		}
		return c.Do(cmd, gate.Call{Operation: o.Name, Args: b, Reason: reason, PlanOnly: planOnly})
	}
	return cmd
}

// bareSwitches are the flags that are on or off and were turned on.
func bareSwitches(cmd *cobra.Command, s *jsonschema.Schema) (out []string) {
	for _, name := range append(slices.Sorted(maps.Keys(s.Properties)), "plan-only") {
		f := cmd.Flags().Lookup(strings.ReplaceAll(name, "_", "-"))
		if f != nil && f.NoOptDefVal == "true" && f.Changed && f.Value.String() == "true" {
			out = append(out, "--"+f.Name)
		}
	}
	return out
}

// first is the argument that may stand before the flags: the guest, or the node where it must be given.
func first(o *gate.Operation, s *jsonschema.Schema) string {
	if o.Guest == "" && slices.Contains(s.Required, "node") {
		return "node"
	}
	return o.Guest
}

// use is how an operation is called.
func use(o *gate.Operation, s *jsonschema.Schema) string {
	switch first(o, s) {
	case "":
		return o.Name
	case "node":
		return o.Name + " [NODE]"
	}
	return o.Name + " [GUEST]"
}

// objectOfPairs reads repeated flags: each is NAME=VALUE, or a JSON object. What stands twice is an error.
func objectOfPairs(values []string) (map[string]any, error) {
	out := map[string]any{}
	for _, v := range values {
		part := map[string]any{}
		if strings.HasPrefix(strings.TrimSpace(v), "{") {
			d := json.NewDecoder(strings.NewReader(v))
			d.UseNumber()
			if err := d.Decode(&part); err != nil {
				return nil, fmt.Errorf("%q is no JSON object: %w", v, err)
			}
			if d.More() {
				return nil, fmt.Errorf("%q is more than one JSON object", v)
			}
		} else {
			name, text, ok := strings.Cut(v, "=")
			if !ok || name == "" {
				return nil, fmt.Errorf("%q is neither NAME=VALUE nor a JSON object", v)
			}
			part[name] = text
		}
		for name, value := range part {
			if _, twice := out[name]; twice {
				return nil, fmt.Errorf("%q is given twice", name)
			}
			out[name] = value
		}
	}
	return out, nil
}

// listOf reads repeated flags: each is a text, or a JSON value when it looks like an object.
func listOf(values []string) []any {
	var out []any
	for _, v := range values {
		var o map[string]any
		if strings.HasPrefix(v, "{") && json.Unmarshal([]byte(v), &o) == nil {
			out = append(out, o)
			continue
		}
		out = append(out, v)
	}
	return out
}

// outcome prints what became of a call and turns its end into an exit code. On a terminal a waiting plan is asked about.
func (c Config) outcome(cmd *cobra.Command, g Gate, out *gate.Outcome) error {
	c.notices(out)
	switch {
	case out.Status == gate.StatusRunning && out.Plan != nil && JSON(cmd): // one answer is printed, that of its end
	case JSON(cmd):
		if err := PrintJSON(c.Out, out); err != nil {
			return err
		}
	default:
		if err := c.print(out); err != nil {
			return err
		}
	}
	switch out.Status {
	case gate.StatusWaiting:
		if c.Terminal && !JSON(cmd) {
			return c.prompt(cmd, g, out.Plan)
		}
		fmt.Fprintln(c.Err, "next: "+Safe(nextOf(out.Plan)))
		return Exit(ExitApproval)
	case gate.StatusFailed:
		if out.Receipt != nil && out.Receipt.State == gate.PlanStale || out.Plan != nil && out.Plan.State == gate.PlanStale {
			return Exit(ExitStale)
		}
		return Exit(ExitError)
	case gate.StatusUnknown:
		return Exit(ExitUnknown)
	case gate.StatusRunning:
		return c.await(cmd, g, out)
	}
	return nil
}

func (c Config) notices(out *gate.Outcome) {
	for _, n := range out.Notices {
		fmt.Fprintln(c.Err, "note: "+Safe(n))
	}
}

// nextOf says how a waiting plan is carried out from the command line.
func nextOf(p *gate.PlanView) string {
	if p.Rung >= gate.RungPerson {
		return "nothing has changed; " + personNext(p)
	}
	next := fmt.Sprintf("nothing has changed; carry it out on a terminal with: castellan apply %s", p.ID)
	if p.Token == "" || p.Rung != gate.RungRestated && p.Rung != gate.RungPhrase {
		return next
	}
	next += fmt.Sprintf("\n      or in a script: castellan apply %s --token %s --sentence %s", p.ID, p.Token, shellQuoted(p.Sentence))
	if p.Phrase != "" {
		next += " --phrase " + shellQuoted(p.Phrase)
	}
	return next
}

// personNext says how a plan is approved that a yes on this terminal is not enough for.
func personNext(p *gate.PlanView) string {
	where := "on the console"
	if p.URL != "" {
		where = "at " + p.URL
	}
	next := fmt.Sprintf("it takes %s: a person approves it %s", p.Rung, where)
	if p.Rung == gate.RungPerson {
		next += fmt.Sprintf(", or with: castellan approve %s", p.ID)
	}
	return next + fmt.Sprintf("; then: castellan apply %s", p.ID)
}

func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
