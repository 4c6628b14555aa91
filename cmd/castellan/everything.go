package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"castellan/internal/catalog"
	"castellan/internal/gate"
	"castellan/internal/mcpserver"
	"castellan/internal/regex"
)

// everyOperation makes one tool per API operation of the products that have a target, when the toolset asks for it.
func everyOperation(h *house, toolset []string) []mcpserver.Tool {
	if !slices.Contains(toolset, "everything") {
		return nil
	}
	products := map[string]bool{}
	for _, t := range h.client.Targets() {
		products[t.Product] = true
	}
	several := len(h.client.Targets()) > 1
	var out []mcpserver.Tool
	taken := map[string]bool{}
	for _, p := range slices.Sorted(maps.Keys(products)) {
		for _, op := range h.catalog.Operations(p) {
			name := toolName(p, op.ID, taken)
			out = append(out, mcpserver.Tool{Name: name, Summary: op.ID + ": " + h.catalog.Describe(p, op.ID), Input: inputOf(op, several),
				Effect: h.catalog.Effect(op), Kinds: h.catalog.Judge(op, gate.Request{Product: p, Operation: op.ID}).Kinds, Call: toCall(op.ID)})
		}
	}
	return out
}

var notName = &regex.Lazy{Expr: `[^a-z0-9]+`}

// toolName is the verb and path in at most 40 characters; what must be cut ends in a piece of its hash.
func toolName(product, id string, taken map[string]bool) string {
	full := strings.Trim(notName.ReplaceAllString(strings.ToLower(product+" "+id), "_"), "_")
	name := full
	if len(name) > 40 || taken[name] {
		sum := sha256.Sum256([]byte(product + " " + id))
		name = full[:min(len(full), 33)] + "_" + hex.EncodeToString(sum[:3])
	}
	taken[name] = true
	return name
}

// inputOf is the operation's parameters as a closed JSON schema.
func inputOf(op *catalog.Operation, several bool) json.RawMessage {
	props, required := map[string]any{}, []string{}
	for name, s := range op.Facts.Params {
		base, _, _ := strings.Cut(name, "[n]")
		p := map[string]any{}
		switch s.Type {
		case "integer", "number", "boolean", "array":
			p["type"] = s.Type
		default:
			p["type"] = "string"
		}
		if s.Type == "array" {
			p["items"] = map[string]any{"type": "string"}
		}
		if len(s.Enum) > 0 && p["type"] == "string" {
			p["enum"] = s.Enum
		}
		if len(s.Index) == 2 { // net[n]: one object, number → value
			p = map[string]any{"type": "object", "description": "numbered: " + base + "0, " + base + "1, …"}
		}
		props[base] = p
		if !s.Optional && s.Alias == "" {
			required = append(required, base)
		}
	}
	if several {
		props["target"] = map[string]any{"type": "string"}
	}
	slices.Sort(required)
	b, err := json.Marshal(map[string]any{"type": "object", "properties": props, "required": required})
	if err != nil {
		return json.RawMessage(`{"type":"object"}`)
	}
	return b
}

// toCall turns a tool's arguments into those of call_operation.
func toCall(id string) func(json.RawMessage) (string, json.RawMessage) {
	return func(args json.RawMessage) (string, json.RawMessage) {
		m := map[string]json.RawMessage{}
		if len(args) > 0 && json.Unmarshal(args, &m) != nil {
			return "call_operation", args // not an object: the gate says so
		}
		call := map[string]any{"operation": id}
		if t, ok := m["target"]; ok {
			call["target"] = t
			delete(m, "target")
		}
		for name, raw := range m { // {"net": {"0": "…"}} → net0
			var numbered map[string]json.RawMessage
			if json.Unmarshal(raw, &numbered) != nil || len(numbered) == 0 {
				continue
			}
			digits := true
			for k := range numbered {
				digits = digits && k != "" && strings.Trim(k, "0123456789") == ""
			}
			if digits {
				delete(m, name)
				for k, v := range numbered {
					m[name+k] = v
				}
			}
		}
		call["params"] = m
		b, err := json.Marshal(call)
		if err != nil {
			return "call_operation", args
		}
		return "call_operation", b
	}
}
