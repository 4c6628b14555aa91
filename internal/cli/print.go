package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"castellan/internal/gate"
)

// PrintJSON writes indented JSON. Go's encoder escapes control characters, so a terminal is safe.
func PrintJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write json: %w", err)
	}
	_, err = fmt.Fprintln(w, Safe(string(b)))
	return err
}

func (c Config) print(out *gate.Outcome) error {
	switch {
	case len(out.Answer) > 0:
		return printAnswer(c.Out, out.Answer)
	case out.Receipt != nil:
		printReceipt(c.Out, out)
	case out.Plan != nil:
		printPlan(c.Out, out.Plan)
	}
	if out.Status == gate.StatusNothing || out.Status == gate.StatusRunning || out.Status == gate.StatusPlanned || out.Status == gate.StatusAnswer && len(out.Answer) == 0 {
		fmt.Fprintln(c.Out, Safe(out.Next))
	}
	return nil
}

// printAnswer writes the first list of objects of an answer as a table, the rest as lines.
func printAnswer(w io.Writer, raw json.RawMessage) error {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return fmt.Errorf("print answer: %w", err)
	}
	m, ok := v.(map[string]any)
	if !ok {
		return PrintJSON(w, v)
	}
	for _, k := range sortedKeys(m) {
		rows, ok := m[k].([]any)
		if !ok || len(rows) == 0 || !allObjects(rows) {
			if text := scalar(m[k]); text != "" {
				fmt.Fprintf(w, "%s: %s\n", k, Safe(text))
			}
			continue
		}
		fmt.Fprintf(w, "%s:\n", k)
		table(w, rows)
	}
	return nil
}

func allObjects(rows []any) bool {
	for _, r := range rows {
		if _, ok := r.(map[string]any); !ok {
			return false
		}
	}
	return true
}

func table(w io.Writer, rows []any) {
	columns := map[string]any{}
	for _, r := range rows {
		for k := range r.(map[string]any) {
			columns[k] = true
		}
	}
	first := []string{"vmid", "id", "name", "node", "type", "status"}
	var names []string
	for _, k := range first {
		if columns[k] != nil {
			names = append(names, k)
			delete(columns, k)
		}
	}
	names = append(names, sortedKeys(columns)...)
	tw := tabwriter.NewWriter(w, 2, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "  "+strings.ToUpper(strings.Join(names, "\t")))
	for _, r := range rows {
		cells := make([]string, len(names))
		for i, k := range names {
			cells[i] = strings.ReplaceAll(Safe(scalar(r.(map[string]any)[k])), "\n", " ")
		}
		fmt.Fprintln(tw, "  "+strings.Join(cells, "\t"))
	}
	tw.Flush()
}

func scalar(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		return x
	case json.Number:
		return x.String()
	case bool:
		return fmt.Sprint(x)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

func printPlan(w io.Writer, p *gate.PlanView) {
	fmt.Fprintf(w, "Plan %s (%s)\n  %s\n", p.ID, p.State, Safe(p.Sentence))
	for _, s := range p.Steps {
		fmt.Fprintf(w, "  %d. %s\n", s.Number, Safe(s.Request))
		for _, r := range s.Requires {
			fmt.Fprintf(w, "       only if: %s\n", Safe(r))
		}
		if s.Note != "" {
			fmt.Fprintf(w, "       note: %s\n", Safe(s.Note))
		}
		if s.State != "" {
			fmt.Fprintf(w, "       %s: %s %s\n", s.State, Safe(s.Result), Safe(s.Warnings))
		}
		for _, l := range s.Log {
			fmt.Fprintf(w, "       | %s\n", Safe(l))
		}
	}
	for _, d := range p.Diff {
		fmt.Fprintf(w, "  %s %s: %q → %q %s\n", Safe(d.Object), Safe(d.Key), Safe(d.Old), Safe(d.New), Safe(d.Note))
	}
	for _, s := range p.Skip {
		fmt.Fprintf(w, "  left out: %s\n", Safe(s))
	}
	for _, o := range p.Touches {
		name := ""
		if o.Name != "" {
			name = " " + o.Name
		}
		if !o.Known {
			name += " (not known)"
		}
		fmt.Fprintf(w, "  touches %s%s\n", Safe(o.Object.String()), Safe(name))
	}
	fmt.Fprintf(w, "  effect %s; %s; approval: %s", p.Effect, Safe(p.Undo), p.Rung)
	if p.Why != "" {
		fmt.Fprintf(w, " (%s)", Safe(p.Why))
	}
	fmt.Fprintln(w)
	if p.Note != "" {
		fmt.Fprintf(w, "  planner's note: %s\n", Safe(p.Note))
	}
	if p.Reason != "" {
		fmt.Fprintf(w, "  the caller's reason: %q\n", Safe(p.Reason))
	}
	if p.Ended != "" {
		fmt.Fprintf(w, "  %s\n", Safe(p.Ended))
	}
	if !p.State.Ended() {
		fmt.Fprintf(w, "  waits until %s; digest %s\n", p.Expires.Format("15:04:05 MST"), p.Digest)
	}
}

func printReceipt(w io.Writer, out *gate.Outcome) {
	r := out.Receipt
	fmt.Fprintf(w, "Plan %s: %s\n", r.Plan, r.State)
	for _, s := range r.Steps {
		fmt.Fprintf(w, "  %d. %s: %s", s.Number, Safe(s.Sentence), s.State)
		if s.Result != "" && s.Result != "ok" {
			fmt.Fprintf(w, " (%s)", Safe(s.Result))
		}
		fmt.Fprintln(w)
		if s.Warnings != "" {
			fmt.Fprintf(w, "     warning: %s\n", Safe(s.Warnings))
		}
		for _, l := range s.Log {
			fmt.Fprintf(w, "     | %s\n", Safe(l))
		}
	}
	if r.Ledger != nil {
		fmt.Fprintf(w, "  ledger record %d of %d\n", r.Ledger.Index, r.Ledger.Size)
	}
	if r.State != gate.PlanDone {
		fmt.Fprintf(w, "  %s\n", Safe(out.Next))
	}
}
