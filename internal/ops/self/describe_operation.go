package self

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/catalog"
	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
)

type describeOperationIn struct {
	Operation string `json:"operation" jsonschema:"name or METHOD /path"`
	Param     string `json:"param,omitempty" jsonschema:"only these, by prefix"`
	Product   string `json:"product,omitempty"`
}

type describeOperationOut struct {
	Operation  string            `json:"operation"`
	Product    string            `json:"product,omitempty"`
	Summary    string            `json:"summary"`
	Effect     gate.Effect       `json:"effect"` // at worst
	Classes    []gate.Class      `json:"classes,omitempty"`
	Approval   string            `json:"approval"` // usual; what the call says decides
	Capability []string          `json:"capability,omitempty"`
	Off        string            `json:"off,omitempty"`
	Undo       string            `json:"undo,omitempty"`
	Task       bool              `json:"task,omitempty"`
	Privileges []string          `json:"privileges,omitempty"`
	Input      json.RawMessage   `json:"input,omitempty"`  // schema of a curated operation
	Params     map[string]string `json:"params,omitempty"` // of a catalogued one
	Secret     []string          `json:"secret_params,omitempty"`
	Left       string            `json:"left_out,omitempty"`
	Next       string            `json:"next"`
}

// maxDescription bounds the parameters of one description, in bytes.
const maxDescription = 24_000

func describeOperation(c Config) *gate.Operation {
	return gate.Control(gate.Declaration{
		Name: "describe_operation", Summary: "Arguments, effect and approval of one operation. Read; then call_operation", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "schema parameters help usage how to call get_tool_schema", Toolset: "front",
	}, func(ctx context.Context, desk gate.Desk, in describeOperationIn) (describeOperationOut, error) {
		status, err := desk.Status(ctx)
		if err != nil {
			return describeOperationOut{}, err
		}
		name := strings.TrimSpace(in.Operation)
		for _, o := range desk.Operations() {
			if o.Name == name {
				return describeCurated(o, status), nil
			}
		}
		if !isAPIName(name) {
			return describeOperationOut{}, unknownName(name, desk.Operations())
		}
		op, err := c.lookAny(desk, name, in.Product)
		if err != nil {
			return describeOperationOut{}, err
		}
		return c.describe(op, in.Param, status)
	})
}

// isAPIName tells "GET /version" and "/version" from the name of a curated operation.
func isAPIName(s string) bool { return strings.Contains(s, "/") }

func unknownName(name string, ops []*gate.Operation) error {
	var names []string
	for _, o := range ops {
		names = append(names, o.Name)
	}
	e := gate.Fail(gate.ErrNotFound, "Ask find_operation in plain words; API operations are named like GET /nodes/{node}/status.", "there is no operation %q", clip(name, 80))
	if near := gate.Nearest(name, names); near != "" {
		e.Message += fmt.Sprintf("; did you mean %s?", near)
	}
	return e
}

// splitName takes "METHOD /path" or "/path", which means GET.
func splitName(s string) (method, path string) {
	method, path, two := strings.Cut(strings.TrimSpace(s), " ")
	if !two {
		return "GET", method
	}
	return strings.ToUpper(method), strings.TrimSpace(path)
}

// lookAny finds an operation in the given product, else in those of the configured targets, else in all.
func (c Config) lookAny(v gate.View, name, product string) (*catalog.Operation, error) {
	products := slices.Concat(configured(v), catalog.Products())
	if product != "" {
		products = []string{product}
	}
	method, path := splitName(name)
	var first error
	for _, p := range products {
		op, _, err := c.Catalog.Resolve(p, method, path, nil)
		if err == nil {
			return op, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, gate.Fail(gate.ErrNotFound, "Ask find_operation in plain words.", "%v", first)
}

func describeCurated(o *gate.Operation, status map[string]gate.Decision) describeOperationOut {
	out := describeOperationOut{Operation: o.Name, Product: o.Product, Summary: o.Summary, Effect: o.Effect, Undo: o.Undo, Input: o.Input, Off: offFor(o.Kinds, status, false),
		Next: "Call it as a tool, or through call_operation with these as params."}
	out.approvals(o.Kinds)
	return out
}

// approvals says what each row that a call can fall under takes.
func (out *describeOperationOut) approvals(kinds []gate.Kind) {
	by := map[gate.Rung][]string{}
	for _, k := range kinds {
		row := gate.RowOf(k)
		by[row.Rung] = append(by[row.Rung], string(k))
		out.grow(row)
	}
	var parts []string
	for _, r := range slices.Sorted(maps.Keys(by)) {
		part := r.String()
		if len(by) > 1 {
			part += " (" + strings.Join(by[r], ", ") + ")"
		}
		parts = append(parts, part)
	}
	out.Approval = strings.Join(parts, ", ")
}

func (out *describeOperationOut) grow(row gate.Row) {
	if row.Class != "" && !slices.Contains(out.Classes, row.Class) {
		out.Classes = append(out.Classes, row.Class)
	}
	if row.Capability != "" && !slices.Contains(out.Capability, row.Capability) {
		out.Capability = append(out.Capability, row.Capability)
	}
}

func (c Config) describe(op *catalog.Operation, prefix string, status map[string]gate.Decision) (describeOperationOut, error) {
	bare := gate.Request{Product: op.Product, Operation: op.ID}
	j := c.Catalog.Judge(op, bare)
	out := describeOperationOut{Operation: op.ID, Product: op.Product, Summary: c.Catalog.Describe(op.Product, op.ID), Effect: c.Catalog.Effect(op),
		Classes: c.Catalog.Classes(op), Task: j.Task, Privileges: j.Privileges, Off: offFor(j.Kinds, status, true), Params: map[string]string{}, Secret: op.Secrets()}
	out.approvals(j.Kinds)
	out.Next = fmt.Sprintf("call_operation with operation=%q and params.", op.ID)
	if out.Effect != gate.EffectRead {
		out.Next += " It answers with a plan, or carries it out where no approval is asked for; parameters can raise the approval."
	}
	names := slices.Sorted(maps.Keys(op.Facts.Params))
	if prefix != "" {
		all := names
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, strings.TrimRight(prefix, "0123456789")) })
		if len(names) == 0 {
			e := gate.Fail(gate.ErrNotFound, "Ask without param for all.", "%s has no parameter %q", op.ID, clip(prefix, 60))
			if near := gate.Nearest(prefix, all); near != "" {
				e.Message += fmt.Sprintf("; did you mean %s?", near)
			}
			return describeOperationOut{}, e
		}
	}
	size, short := 0, 0
	for _, n := range names {
		text := describeParam(op, n, op.Facts.Params[n], prefix != "")
		if size += len(n) + len(text) + 6; size > maxDescription {
			short++
			continue
		}
		out.Params[n] = text
	}
	if short > 0 {
		out.Left = fmt.Sprintf("%d more parameters: ask with param=PREFIX", short)
	}
	return out, nil
}

// describeParam writes one parameter in one line; a whole one shows the keys of a property string.
func describeParam(op *catalog.Operation, name string, s *facts.Schema, whole bool) string {
	var parts []string
	kind := s.Type
	if kind == "" {
		kind = "string"
	}
	if len(s.Index) == 2 {
		kind += fmt.Sprintf(", n from %d to %d", s.Index[0], s.Index[1])
	}
	parts = append(parts, kind)
	if !s.Optional && !slices.Contains(op.Placeholders, name) {
		parts = append(parts, "required")
	}
	if len(s.Enum) > 0 {
		var values []string
		for _, e := range s.Enum {
			values = append(values, fmt.Sprint(e))
		}
		list := strings.Join(values, "|")
		if !whole {
			list = clip(list, 120)
		}
		parts = append(parts, "one of "+list)
	}
	if s.Minimum != nil || s.Maximum != nil {
		parts = append(parts, fmt.Sprintf("%s..%s", number(s.Minimum), number(s.Maximum)))
	}
	if s.Default != nil {
		parts = append(parts, "default "+clip(fmt.Sprint(s.Default), 40))
	}
	if s.Requires != "" {
		parts = append(parts, "needs "+s.Requires)
	}
	if s.Format != nil {
		switch {
		case s.Format.Name != "":
			parts = append(parts, "format "+s.Format.Name)
		case s.Format.Schema != nil:
			parts = append(parts, "keys "+describeKeys(s.Format.Schema, whole))
		}
	} else if s.Pattern != "" && whole {
		parts = append(parts, "matches "+clip(s.Pattern, 120))
	}
	return strings.Join(parts, "; ")
}

func describeKeys(s *facts.Schema, whole bool) string {
	var keys []string
	for _, k := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[k]
		if p.KeyAlias != "" { // a value of another key that may stand as key: virtio=MAC
			continue
		}
		text := k
		if p.DefaultKey {
			text = "[" + k + "=]"
		}
		if whole {
			if p.Type != "" && p.Type != "string" {
				text += " " + p.Type
			}
			if len(p.Enum) > 0 && len(p.Enum) <= 12 {
				var values []string
				for _, e := range p.Enum {
					values = append(values, fmt.Sprint(e))
				}
				text += " " + strings.Join(values, "|")
			}
			if !p.Optional && p.Alias == "" {
				text += " required"
			}
		}
		keys = append(keys, text)
	}
	list := strings.Join(keys, ", ")
	if !whole {
		list = clip(list, 160)
	}
	return list
}

func number(n *json.Number) string {
	if n == nil {
		return ""
	}
	return n.String()
}
