package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"castellan/internal/catalog"
	"castellan/internal/cli"
	"castellan/internal/gate"
)

// description is one API operation for a reader.
type description struct {
	Product    string       `json:"product"`
	Operation  string       `json:"operation"`
	Summary    string       `json:"summary,omitempty"`
	Effect     gate.Effect  `json:"effect"`
	Classes    []gate.Class `json:"classes"`
	Task       bool         `json:"task"`
	Privileges []string     `json:"privileges,omitempty"`
	Secrets    []string     `json:"secrets,omitempty"`
	Params     []paramLine  `json:"params"`
}

type paramLine struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"`
	Required bool     `json:"required,omitempty"`
	Values   []string `json:"values,omitempty"`
	Format   string   `json:"format,omitempty"`
	Keys     []string `json:"keys,omitempty"` // of a property string
}

func describeOperation(c *catalog.Catalog, op *catalog.Operation) description {
	d := description{Product: op.Product, Operation: op.ID, Summary: c.Describe(op.Product, op.ID), Effect: c.Effect(op), Classes: c.Classes(op),
		Task: op.Facts.Task != "", Secrets: op.Secrets(), Privileges: c.Privileges(op, gate.Request{Product: op.Product, Operation: op.ID})}
	if d.Classes == nil {
		d.Classes = []gate.Class{}
	}
	for _, name := range slices.Sorted(maps.Keys(op.Facts.Params)) {
		s := op.Facts.Params[name]
		p := paramLine{Name: name, Type: s.Type, Required: !s.Optional}
		if len(s.Index) == 2 {
			p.Name = strings.TrimSuffix(name, "[n]") + fmt.Sprintf("%d..%d", s.Index[0], s.Index[1])
		}
		for _, v := range s.Enum {
			p.Values = append(p.Values, fmt.Sprint(v))
		}
		if s.Format != nil {
			p.Format = s.Format.Name
			if s.Format.Schema != nil {
				p.Keys = slices.Sorted(maps.Keys(s.Format.Schema.Properties))
			}
		}
		d.Params = append(d.Params, p)
	}
	return d
}

func printDescription(w io.Writer, d description) error {
	words := make([]string, len(d.Classes))
	for i, k := range d.Classes {
		words[i] = string(k)
	}
	fmt.Fprintf(w, "%s %s\n  %s\n  effect %s; classes %s; task %t\n", d.Product, d.Operation, cli.Safe(d.Summary), d.Effect, strings.Join(words, ","), d.Task)
	if len(d.Privileges) > 0 {
		fmt.Fprintf(w, "  Proxmox asks for: %s\n", cli.Safe(strings.Join(d.Privileges, "; ")))
	}
	for _, p := range d.Params {
		line := fmt.Sprintf("  %-28s %s", p.Name, p.Type)
		if p.Required {
			line += " (required)"
		}
		if p.Format != "" {
			line += " " + p.Format
		}
		if len(p.Values) > 0 {
			line += " [" + strings.Join(p.Values, "|") + "]"
		}
		if len(p.Keys) > 0 {
			line += " keys: " + strings.Join(p.Keys, ",")
		}
		if _, err := fmt.Fprintln(w, cli.Safe(line)); err != nil {
			return err
		}
	}
	return nil
}
