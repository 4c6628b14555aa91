package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"castellan/internal/catalog/facts"
)

// Diff says what a host's own description adds to the catalogue. All of it counts as unjudged. Names in it were
// chosen by the host: plain words, but not to be believed.
type Diff struct {
	Operations []string `json:"operations,omitempty"` // "POST /nodes/{node}/new"
	Params     []string `json:"params,omitempty"`     // "PUT /nodes/{node}/x: name", "…: net[n].key", "…: type=value"
	Raised     []string `json:"raised,omitempty"`     // flags that became stricter
	Refused    []string `json:"refused,omitempty"`    // what was left out, and why
	Missing    []string `json:"missing,omitempty"`    // operations that the catalogue has and this host does not
}

// Empty tells whether the description changes nothing.
func (d Diff) Empty() bool {
	return len(d.Operations) == 0 && len(d.Params) == 0 && len(d.Raised) == 0
}

// Compare says what Merge would change, for a person to accept.
func (c *Catalog) Compare(doc *Doc) (Diff, error) {
	t, err := c.table(doc.product)
	if err != nil {
		return Diff{}, err
	}
	_, diff, err := merge(t, doc)
	return diff, err
}

// Merge adds what an accepted description has more than the catalogue: operations, parameters, keys, values. It never
// takes anything away, loosens nothing, and marks all that it adds as foreign, so that it is judged as the worst.
func (c *Catalog) Merge(doc *Doc) (Diff, error) {
	l, ok := c.tables[doc.product]
	if !ok {
		return Diff{}, fmt.Errorf("merge API description: unknown product %q", doc.product)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t, err := l.get()
	if err != nil {
		return Diff{}, err
	}
	next, diff, err := merge(t, doc)
	if err != nil {
		return Diff{}, err
	}
	if !diff.Empty() {
		next.version = t.version + "+" + doc.SHA256()[:16]
		l.merged.Store(next)
	}
	return diff, nil
}

func merge(t *table, doc *Doc) (*table, Diff, error) {
	var diff Diff
	next := &table{api: t.api, version: t.version, byID: map[string]*Operation{}}
	seen := map[string]bool{}
	places := placesOf(t)
	for i := range doc.ops {
		in := &doc.ops[i]
		id := in.Method + " " + in.Path
		seen[id] = true
		old := t.byID[id]
		if old == nil {
			if reason := places.refuse(string(t.api.Product), in.Path); reason != "" {
				diff.Refused = append(diff.Refused, id+": "+reason)
				continue
			}
			op, err := foreign(t.api, in)
			if err != nil {
				return nil, diff, fmt.Errorf("merge API description: %w", err)
			}
			places.learn(in.Path)
			diff.Operations = append(diff.Operations, id)
			next.add(op)
			continue
		}
		op, err := widen(old, in, &diff)
		if err != nil {
			return nil, diff, fmt.Errorf("merge API description: %w", err)
		}
		next.add(op)
	}
	for _, op := range t.ops {
		if !seen[op.ID] {
			if !op.Foreign && op.Method != MethodRun {
				diff.Missing = append(diff.Missing, op.ID)
			}
			next.add(op)
		}
	}
	for i, op := range next.ops { // what was kept of an operation may rest on others that have changed
		fresh := *op
		fresh.known = &knowledge{}
		next.ops[i], next.byID[op.ID] = &fresh, &fresh
	}
	for _, list := range [][]string{diff.Operations, diff.Params, diff.Raised, diff.Refused, diff.Missing} {
		sort.Strings(list)
	}
	next.index()
	return next, diff, nil
}

// places holds which parts follow which path, so that a new path cannot take requests away from a known one.
type places map[string]map[string]bool

func placesOf(t *table) places {
	p := places{}
	for _, op := range t.ops {
		p.learn(op.Path)
	}
	return p
}

func (p places) learn(path string) {
	at := ""
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if p[at] == nil {
			p[at] = map[string]bool{}
		}
		p[at][part] = true
		at += "/" + part
	}
}

func (p places) refuse(product, path string) string {
	at := ""
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		children := p[at]
		open := ""
		for c := range children {
			if _, ok := placeholder(c); ok {
				open = c
			}
		}
		_, isOpen := placeholder(part)
		switch {
		case at != "" && swallowsRest(product, at):
			return "it lies below a placeholder that takes the rest of the path"
		case children[part]:
		case open != "":
			return "it would stand beside " + open + " and take its requests"
		case isOpen && len(children) > 0:
			return "its placeholder " + part + " would stand beside known paths"
		}
		at += "/" + part
	}
	return ""
}

func foreign(api *facts.API, in *docOp) (*Operation, error) {
	f := &facts.Operation{Product: api.Product, Path: in.Path, Method: in.Method, Protected: in.Protected, NoToken: in.NoToken,
		Permissions: json.RawMessage("null"), Params: map[string]*facts.Schema{}}
	for name := range in.Params {
		s, err := in.schema(name)
		if err != nil {
			return nil, err
		}
		f.Params[name] = s
	}
	op := newOperation(api, f)
	for _, name := range op.Placeholders {
		if f.Params[name] == nil {
			f.Params[name] = &facts.Schema{Type: "string"}
		}
	}
	op.Foreign = true
	op.ForeignParam = map[string]bool{}
	for name := range f.Params {
		op.ForeignParam[name] = true
	}
	return op, nil
}

// widen adds parameters, keys of property strings and enum values to a copy of a known operation.
func widen(old *Operation, in *docOp, diff *Diff) (*Operation, error) {
	f := *old.Facts
	f.Params = maps.Clone(old.Facts.Params)
	op := *old
	op.Facts, op.known = &f, &knowledge{}
	op.ForeignParam = maps.Clone(old.ForeignParam)
	if op.ForeignParam == nil {
		op.ForeignParam = map[string]bool{}
	}
	changed := false
	mark := func(what string) {
		changed = true
		op.ForeignParam[what] = true
		diff.Params = append(diff.Params, op.ID+": "+what)
	}
	for _, name := range slices.Sorted(maps.Keys(in.Params)) {
		s, err := in.schema(name)
		if err != nil {
			return nil, err
		}
		known := f.Params[name]
		if known == nil {
			if _, _, indexed := old.Schema(name); indexed {
				continue
			}
			s.Optional = true // whether it is required there, that host will say
			f.Params[name] = s
			mark(name)
			continue
		}
		if w := widenSchema(&op, name, known, s, mark); w != nil {
			f.Params[name] = w
		}
	}
	if in.Protected && !f.Protected {
		f.Protected, changed = true, true
		diff.Raised = append(diff.Raised, op.ID+": protected")
	}
	if in.NoToken && !f.NoToken {
		f.NoToken, changed = true, true
		diff.Raised = append(diff.Raised, op.ID+": no API token")
	}
	if !changed {
		return old, nil
	}
	return &op, nil
}

// widenSchema returns a copy with what the other schema has more, or nil when it has nothing more.
func widenSchema(op *Operation, name string, known, other *facts.Schema, mark func(string)) *facts.Schema {
	out := *known
	changed := false
	if len(known.Enum) > 0 && len(other.Enum) > 0 {
		have := map[string]bool{}
		for _, e := range known.Enum {
			have[fmt.Sprint(e)] = true
		}
		out.Enum = slices.Clone(known.Enum)
		for _, e := range other.Enum {
			if text := fmt.Sprint(e); !have[text] {
				have[text], changed = true, true
				out.Enum = append(out.Enum, text)
				mark(name + "=" + text)
			}
		}
	}
	if p, q := op.properties(known), op.properties(other); p != nil && q != nil && !p.open {
		props := maps.Clone(p.props)
		for _, key := range q.keys() {
			switch have := props[key]; {
			case have == nil && q.props[key].Alias != "": // an alias could give a known key another reading
			case have == nil:
				extra := *q.props[key]
				extra.Optional, extra.DefaultKey = true, false
				props[key] = &extra
				mark(name + "." + key)
				changed = true
			case have.Alias == "":
				if w := widenSchema(op, name+"."+key, have, q.props[key], mark); w != nil {
					props[key], changed = w, true
				}
			}
		}
		if changed {
			out.Format = &facts.Format{Schema: &facts.Schema{Properties: props}, DefaultKey: p.defaultKey}
		}
	}
	if !changed {
		return nil
	}
	return &out
}

// IsForeign tells whether a parameter, a key ("net0.new") or a value of it is known only from a host's own
// description, so that nobody has judged it.
func (op *Operation) IsForeign(param, value string) bool {
	if op.Foreign {
		return true
	}
	if len(op.ForeignParam) == 0 {
		return false
	}
	top, key, inner := strings.Cut(param, ".")
	_, template, ok := op.Schema(top)
	if !ok {
		template = top
	}
	if inner {
		template += "." + key
	}
	if op.ForeignParam[template] || op.ForeignParam[template+"="+value] {
		return true
	}
	if props, ok := op.ParseProperty(top, value); ok && !inner {
		return slices.ContainsFunc(props, func(kv Property) bool {
			return op.ForeignParam[template+"."+kv.Key] || op.ForeignParam[template+"."+kv.Key+"="+kv.Value]
		})
	}
	return false
}
