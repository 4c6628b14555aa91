package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"

	"castellan/internal/gate"
)

// PrintJSON writes indented JSON. What could steer a terminal is escaped, so that no value is changed.
func PrintJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write json: %w", err)
	}
	_, err = fmt.Fprintln(w, escaped(b))
	return err
}

// escaped writes the runes that Safe takes out as \u escapes: in JSON they stand in texts only.
func escaped(b []byte) string {
	var out strings.Builder
	for _, r := range string(b) {
		if Safe(string(r)) == string(r) || r == unicode.ReplacementChar {
			out.WriteRune(r)
			continue
		}
		if r > 0xffff {
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, hi, lo)
			continue
		}
		fmt.Fprintf(&out, `\u%04x`, r)
	}
	return out.String()
}

func (c Config) print(out *gate.Outcome) error {
	before, after := out.Fence()
	fmt.Fprint(c.Out, before)
	if after != "" {
		defer fmt.Fprintln(c.Out, strings.TrimSpace(after))
	}
	switch {
	case len(out.Answer) > 0:
		return printAnswer(c.Out, out.Answer)
	case out.Receipt != nil:
		printReceipt(c.Out, out)
	case out.Plan != nil:
		printPlan(c.Out, out.Plan)
	}
	if out.Status == gate.StatusNothing || out.Status == gate.StatusRunning || out.Status == gate.StatusPlanned || out.Status == gate.StatusAnswer && len(out.Answer) == 0 {
		fmt.Fprintln(c.Out, Safe(Spoken(out.Next, c.names())))
	}
	return nil
}

// printAnswer writes lists of objects as tables and the rest as lines, in the order of the answer.
func printAnswer(w io.Writer, raw json.RawMessage) error {
	o, ok := objectOf(raw)
	if !ok {
		return PrintJSON(w, raw)
	}
	for _, f := range o {
		rows, ok := rowsOf(f.value)
		if !ok {
			if text := scalar(f.value); text != "" {
				fmt.Fprintf(w, "%s: %s\n", Safe(f.key), Safe(text))
			}
			continue
		}
		fmt.Fprintf(w, "%s:\n", Safe(f.key))
		table(w, rows)
	}
	return nil
}

// field is one key of an object, in the order in which it stands there.
type field struct {
	key   string
	value json.RawMessage
}

func objectOf(raw json.RawMessage) ([]field, bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	var out []field
	for d.More() {
		var f field
		t, err := d.Token()
		if err != nil {
			return nil, false
		}
		f.key, _ = t.(string) // a key of an object is one
		if d.Decode(&f.value) != nil {
			return nil, false
		}
		out = append(out, f)
	}
	return out, true
}

// rowsOf reads a list that holds objects only.
func rowsOf(raw json.RawMessage) ([][]field, bool) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return nil, false
	}
	rows := make([][]field, len(list))
	for i, r := range list {
		o, ok := objectOf(r)
		if !ok {
			return nil, false
		}
		rows[i] = o
	}
	return rows, true
}

// table puts what tells an object first, then the columns as they come.
func table(w io.Writer, rows [][]field) {
	names := []string{"vmid", "id", "name", "node", "type", "status", "level", "check", "where", "what"}
	given := map[string]bool{}
	for _, r := range rows {
		for _, f := range r {
			given[f.key] = true
			if !slices.Contains(names, f.key) {
				names = append(names, f.key)
			}
		}
	}
	names = slices.DeleteFunc(names, func(k string) bool { return !given[k] })
	if given["at"] { // a history begins with its times
		names = append([]string{"at"}, slices.DeleteFunc(names, func(k string) bool { return k == "at" })...)
	}
	tw := tabwriter.NewWriter(w, 2, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "  "+strings.ToUpper(Safe(strings.Join(names, "\t"))))
	for _, r := range rows {
		cells := make([]string, len(names))
		for _, f := range r {
			cells[slices.Index(names, f.key)] = strings.NewReplacer("\n", " ", "\t", " ").Replace(Safe(scalar(f.value)))
		}
		fmt.Fprintln(tw, "  "+strings.Join(cells, "\t"))
	}
	tw.Flush()
}

// scalar is a value in one cell: a text as itself, a list with commas, an object as its keys and values.
func scalar(raw json.RawMessage) string {
	var text string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return ""
	case json.Unmarshal(raw, &text) == nil:
		return text
	}
	if o, ok := objectOf(raw); ok {
		parts := make([]string, len(o))
		for i, f := range o {
			parts[i] = f.key + " " + scalar(f.value)
		}
		return strings.Join(parts, ", ")
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return string(raw)
	}
	parts, between := make([]string, len(list)), ", "
	for i, e := range list {
		if parts[i] = scalar(e); len(e) > 0 && e[0] == '{' {
			between = "; "
		}
	}
	return strings.Join(parts, between)
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
	if p.Newer != "" {
		fmt.Fprintf(w, "  %s\n", Safe(p.Newer))
	}
	for _, s := range p.Skip {
		fmt.Fprintf(w, "  left out: %s\n", Safe(s))
	}
	for _, o := range p.Touches {
		name := ""
		if o.Name != "" && o.Name != o.Object.ID {
			name = " " + o.Name
		}
		if !o.Known {
			name += " (not known)"
		}
		fmt.Fprintf(w, "  touches %s%s\n", Safe(o.Object.String()), Safe(name))
	}
	printReach(w, p)
	fmt.Fprintf(w, "  effect %s; %s; approval: %s", p.Effect, Safe(p.Undo), p.Rung)
	if p.Why != "" {
		fmt.Fprintf(w, " (%s)", Safe(p.Why))
	}
	fmt.Fprintln(w)
	if !p.State.Ended() && strings.Contains(p.Why, "policy.taint_for") {
		fmt.Fprintf(w, "  what was read is harmless? castellan taint clear '%s' ends that before policy.taint_for does\n", Safe(p.Requester))
	}
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

// printReach writes what a plan hits beyond what it names, the gravest first, and what could not be read of that.
func printReach(w io.Writer, p *gate.PlanView) {
	for _, h := range p.Hits {
		object := h.Object
		if h.Unknown {
			object += " (not known, counts as if it were so)"
		}
		fmt.Fprintf(w, "  hits %-7s %s: %s: %s\n", h.Weight, Safe(strings.ReplaceAll(h.Class, "_", " ")), oneLine(object), oneLine(h.Text))
	}
	for _, u := range p.Unread {
		fmt.Fprintf(w, "  not read: %s\n", oneLine(u))
	}
}

func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\t", " ").Replace(Safe(s)) }

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
	for _, point := range r.UndoPoints {
		fmt.Fprintf(w, "  snapshot taken first: %s\n", Safe(point))
	}
	if r.UndoWith != "" {
		fmt.Fprintf(w, "  undo it with: castellan undo %s\n", r.Plan)
	}
	if r.Ledger != nil {
		fmt.Fprintf(w, "  ledger record %d of %d\n", r.Ledger.Index, r.Ledger.Size)
	}
	if r.State != gate.PlanDone {
		fmt.Fprintf(w, "  %s\n", Safe(out.Next))
	}
}
