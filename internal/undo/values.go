package undo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/catalog"
	"castellan/internal/gate"
)

// figures are fields that move by themselves, or say where a row stands: they are no settings.
var figures = []string{"digest", "pos", "cpu", "mem", "maxmem", "maxdisk", "disk", "used", "avail", "free", "total", "uptime", "pid", "next-run", "next_run", "ipversion"}

// scalar is a field as the text that is sent for it; ok is false for what is absent, blank, hidden or no single value.
func scalar(raw rawJSON) (text string, ok bool) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0 || string(raw) == "null" || raw[0] == '{' || raw[0] == '[':
		return "", false
	case string(raw) == "true":
		return "1", true
	case string(raw) == "false":
		return "0", true
	case raw[0] == '"':
		if json.Unmarshal(raw, &text) != nil || strings.TrimSpace(text) == "" || masked(text) {
			return "", false
		}
		return text, true
	}
	return string(raw), true
}

// masked says whether a text only stands in place of a value.
func masked(text string) bool {
	return strings.HasPrefix(text, "****") || strings.HasPrefix(text, "(secret")
}

func hidden(raw rawJSON) bool {
	var text string
	return json.Unmarshal(raw, &text) == nil && masked(text)
}

// same compares two fields: a number and its text are the same value, a blank one is the same as none.
func same(a, b rawJSON) bool {
	if bytes.Equal(a, b) {
		return true
	}
	return shown(a) == shown(b)
}

// shown is a field as text for people and for comparing: lists and objects as JSON in canonical form.
func shown(raw rawJSON) string {
	if text, ok := scalar(raw); ok {
		return strings.TrimRight(text, "\n")
	}
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	if raw[0] == '"' {
		var text string
		if json.Unmarshal(raw, &text) == nil && strings.TrimSpace(text) == "" {
			return ""
		}
		return text
	}
	return string(raw)
}

// value is a field in a form that the catalogue takes as an argument.
func value(raw rawJSON) (any, bool) {
	if text, ok := scalar(raw); ok {
		return text, true
	}
	if len(raw) == 0 || hidden(raw) || raw[0] != '{' && raw[0] != '[' {
		return nil, false
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return v, d.Decode(&v) == nil
}

// flat are further forms of a value that is a list or an object, for parameters that take one text.
func flat(v any) []any {
	switch x := v.(type) {
	case []any:
		var parts []string
		for _, e := range x {
			switch e.(type) {
			case map[string]any, []any:
				return nil
			}
			parts = append(parts, fmt.Sprint(e))
		}
		return []any{strings.Join(parts, ","), strings.Join(parts, ";")}
	case map[string]any:
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(x)) {
			text := fmt.Sprint(x[k])
			switch e := x[k].(type) {
			case map[string]any:
				return nil
			case []any:
				inner := flat(e)
				if inner == nil { // lists of lists have no form as text
					return nil
				}
				text, _ = inner[1].(string)
			case bool:
				text = map[bool]string{true: "1", false: "0"}[e]
			}
			parts = append(parts, k+"="+text)
		}
		return []any{strings.Join(parts, ",")}
	}
	return nil
}

// make checks a request; values that do not fit as they are are tried in their other forms. What does not fit at all is
// left out and named.
func (b *back) make(id string, place map[string]string, args map[string]any) (*gate.Request, []string, error) {
	op, ok := b.k.c.Catalog.Lookup(b.product, id)
	if !ok {
		return nil, nil, fmt.Errorf("there is no call %s", id)
	}
	given := map[string]any{}
	for name, v := range args {
		given[name] = v
	}
	follows := ""
	for name, text := range place {
		if _, own := given[name]; own || op.Facts.Params[name] == nil {
			continue
		}
		if vmid := place["vmid"]; name == "node" && vmid != "" && text == gate.NodeOf(vmid) {
			follows = vmid
			node, err := b.k.c.Estate.NodeOf(b.ctx, b.v, b.target, vmid)
			if err != nil {
				return nil, nil, err
			}
			text = node
		}
		given[name] = text
	}
	var left []string
	for range len(given) + 1 {
		req, problems := b.k.c.Catalog.Check(op, given)
		if len(problems) == 0 {
			if follows != "" {
				for i, p := range req.Params {
					if p.Name == "node" {
						req.Params[i].Values = []gate.Value{{Ref: &gate.Ref{Guest: follows, Plan: p.Values[0].Text}}}
					}
				}
			}
			slices.Sort(left)
			return &req, left, nil
		}
		param, _, _ := strings.Cut(problems[0].Param, ".")
		v, mine := args[param]
		if !mine || given[param] == nil {
			return nil, nil, fmt.Errorf("%s: %w", id, problems[0])
		}
		if !b.fits(op, given, param, v) {
			delete(given, param)
			left = append(left, param)
		}
	}
	return nil, nil, fmt.Errorf("%s takes none of the values", id)
}

// fits looks for a form of the value against which the catalogue has nothing.
func (b *back) fits(op *catalog.Operation, given map[string]any, param string, v any) bool {
	for _, form := range flat(v) {
		if fmt.Sprint(given[param]) == fmt.Sprint(form) {
			continue
		}
		given[param] = form
		_, problems := b.k.c.Catalog.Check(op, given)
		if !slices.ContainsFunc(problems, func(p catalog.Problem) bool {
			name, _, _ := strings.Cut(p.Param, ".")
			return name == param
		}) {
			return true
		}
	}
	return false
}

// takes says whether a call takes a value of this name.
func (b *back) takes(id, name string) bool {
	op, ok := b.k.c.Catalog.Lookup(b.product, id)
	if !ok {
		return false
	}
	_, _, has := op.Schema(name)
	return has
}

// required lists what a call must be given.
func (b *back) required(id string) (out []string) {
	op, ok := b.k.c.Catalog.Lookup(b.product, id)
	if !ok {
		return nil
	}
	for name, s := range op.Facts.Params {
		if !s.Optional && s.Index == nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// alongWith lists what a call takes these arguments only beside.
func (b *back) alongWith(id string, args map[string]any) (out []string) {
	op, ok := b.k.c.Catalog.Lookup(b.product, id)
	if !ok {
		return nil
	}
	for name := range args {
		if s, _, has := op.Schema(name); has && s.Requires != "" && args[s.Requires] == nil {
			out = append(out, s.Requires)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func unusedDisk(key string) bool {
	return strings.HasPrefix(key, "unused") && strings.Trim(key[len("unused"):], "0123456789") == "" && key != "unused"
}

func diskName(key string) bool {
	base := strings.TrimRight(key, "0123456789")
	return key == "rootfs" || base != key && slices.Contains([]string{"scsi", "virtio", "sata", "ide", "efidisk", "tpmstate", "mp"}, base)
}

// newVolume says whether a disk's value asks for a new volume: storage:size.
func newVolume(text string) bool {
	first, _, _ := strings.Cut(text, ",")
	_, size, ok := strings.Cut(strings.TrimPrefix(first, "file="), ":")
	return ok && size != "" && strings.Trim(size, "0123456789.") == ""
}

func jsonText(s string) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		return json.RawMessage(fmt.Sprintf("%q", s)) // a text always has a JSON form
	}
	return b
}

// pointer writes a key as part of a JSON pointer.
func pointer(k string) string { return "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(k) }
