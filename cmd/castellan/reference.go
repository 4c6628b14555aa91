package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/spf13/cobra"
)

//go:generate sh -c "go run . reference > ../../docs/reference.md"

// referenceCommand prints docs/reference.md.
func (a *app) referenceCommand() *cobra.Command {
	return &cobra.Command{Use: "reference", Short: "Print the reference of all operations as Markdown", Hidden: true, Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		return writeReference(a.out)
	}}
}

func writeReference(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Operations\n\nMade by `castellan reference` from the operations' own declarations. Each is `castellan call NAME --flag…`, and an MCP tool from the toolset on that the table names: `front` is part of `standard`, which a client sees without further settings, and `standard` of `full`.\n" +
		"Every API operation without a page of its own is reached by `find_operation`, `describe_operation` and `call_operation`; `castellan catalog list` prints them all.\n" +
		"Every change also takes `reason` (why, for the record) and `plan_only` (stop at the plan).\n\n| operation | toolset | effect | in short |\n| --- | --- | --- | --- |\n")
	ops := declared()
	for _, o := range ops {
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s |\n", o.Name, o.Name, o.Toolset, o.Effect, o.Summary)
	}
	for _, o := range ops {
		fmt.Fprintf(&b, "\n## %s\n\n%s.", o.Name, strings.TrimSuffix(o.Summary, "."))
		if o.Undo != "" {
			fmt.Fprintf(&b, " Undo: %s.", strings.TrimSuffix(o.Undo, "."))
		}
		if len(o.Kinds) > 0 {
			words := make([]string, len(o.Kinds))
			for i, k := range o.Kinds {
				words[i] = string(k)
			}
			fmt.Fprintf(&b, " Kinds: %s.", strings.Join(words, ", "))
		}
		b.WriteString("\n\n")
		var s jsonschema.Schema
		if err := json.Unmarshal(o.Input, &s); err != nil {
			return err
		}
		if len(s.Properties) == 0 {
			b.WriteString("No arguments.\n")
			continue
		}
		b.WriteString("| argument | type | |\n| --- | --- | --- |\n")
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			p := s.Properties[name]
			kind, note := p.Type, p.Description
			if kind == "" {
				kind = "any"
			}
			if p.Items != nil {
				kind += " of " + p.Items.Type
			}
			if slices.Contains(s.Required, name) {
				note = strings.TrimSpace("required. " + note)
			}
			enum := p.Enum
			if p.Items != nil {
				enum = append(enum, p.Items.Enum...)
			}
			if len(enum) > 0 {
				var words []string
				for _, e := range enum {
					words = append(words, fmt.Sprintf("`%v`", e))
				}
				note = strings.TrimSpace(note + " One of " + strings.Join(words, ", "))
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, kind, strings.ReplaceAll(note, "|", "\\|"))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
