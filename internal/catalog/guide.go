package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/gate"
)

// Guide is the catalogue as the gate asks it: by product and name, what is not there counting as the worst.
type Guide struct{ c *Catalog }

var _ gate.Catalog = Guide{}

// Guide returns the catalogue's side towards the gate.
func (c *Catalog) Guide() Guide { return Guide{c} }

// Version names the facts of all four products.
func (g Guide) Version() string {
	var out []string
	for _, p := range Products() {
		out = append(out, p+" "+g.c.Version(p))
	}
	return strings.Join(out, ", ")
}

// Check makes the request to be sent, or says what is wrong.
func (g Guide) Check(product, operation string, args map[string]any) (gate.Request, []gate.Problem) {
	op, ok := g.c.Lookup(product, operation)
	if !ok {
		p := gate.Problem{Message: fmt.Sprintf("%s has no operation %q", product, operation)}
		if t, err := g.c.table(product); err == nil {
			p.Nearest = gate.Nearest(operation, slices.Sorted(maps.Keys(t.byID)))
		}
		return gate.Request{}, []gate.Problem{p}
	}
	r, problems := g.c.Check(op, args)
	out := make([]gate.Problem, 0, len(problems))
	for _, p := range problems {
		out = append(out, gate.Problem{Param: p.Param, Message: p.Message, Nearest: p.Nearest, Valid: p.Valid})
	}
	return r, out
}

// Judge classes a request; one of an unknown operation is the worst.
func (g Guide) Judge(r gate.Request) gate.Judgement {
	op, ok := g.c.Lookup(r.Product, r.Operation)
	if !ok {
		return gate.Judgement{Operation: r.Operation, Effect: gate.EffectDestroy, Kinds: []gate.Kind{gate.KindUnknown},
			References: []gate.Reference{{Object: gate.Object{Kind: gate.ObjectUnknown}, Use: gate.UseActs}}}
	}
	return g.c.Judge(op, r)
}

// Render gives the bytes that are sent, values opened by open.
func (g Guide) Render(r gate.Request, open func(gate.Value) (string, error)) (gate.Rendered, error) {
	plain := gate.Request{Product: r.Product, Operation: r.Operation}
	for _, p := range r.Params {
		q := gate.Param{Name: p.Name}
		for _, v := range p.Values {
			text, err := open(v)
			if err != nil {
				return gate.Rendered{}, fmt.Errorf("render parameter %s: %w", p.Name, err)
			}
			q.Values = append(q.Values, gate.Value{Text: text})
		}
		plain.Params = append(plain.Params, q)
	}
	e, err := g.c.Encode(plain, nil)
	if err != nil {
		return gate.Rendered{}, err
	}
	return gate.Rendered{Method: e.Method, Path: e.Path, Query: e.Query, Body: e.Body, ContentType: e.ContentType, Download: e.Download}, nil
}

// withheld stands where a secret was in an answer.
const withheld = "(secret, withheld)"

// Scrub takes the secret fields out of an answer.
func (g Guide) Scrub(r gate.Request, data json.RawMessage) json.RawMessage {
	op, ok := g.c.Lookup(r.Product, r.Operation)
	if !ok || len(data) == 0 || string(data) == "null" {
		return data
	}
	fields := g.c.SecretFields(op)
	if len(fields) == 0 {
		return data
	}
	if slices.Contains(fields, "") {
		return json.RawMessage(`"` + withheld + `"`)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return json.RawMessage(`"` + withheld + `"`) // what cannot be read cannot be scrubbed
	}
	found := false
	v = scrub(v, fields, &found)
	if !found {
		return data
	}
	out, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage(`"` + withheld + `"`)
	}
	return out
}

func scrub(v any, fields []string, found *bool) any {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			if slices.Contains(fields, k) && e != nil && e != "" {
				x[k], *found = withheld, true
				continue
			}
			x[k] = scrub(e, fields, found)
		}
	case []any:
		for i, e := range x {
			x[i] = scrub(e, fields, found)
		}
	}
	return v
}

// SecretValue finds the secret inside a value.
func (g Guide) SecretValue(r gate.Request, param, value string) []gate.SecretPart {
	op, ok := g.c.Lookup(r.Product, r.Operation)
	if !ok {
		return []gate.SecretPart{{From: 0, To: len(value)}}
	}
	before, secret, _, ok := op.SplitSecret(param, value)
	if !ok || secret == "" {
		return nil
	}
	return []gate.SecretPart{{From: len(before), To: len(before) + len(secret)}}
}

// SecretName tells names that are secret in some operation of some product.
func (g Guide) SecretName(name string) bool { return mayBeSecret(name) }

// mayBeSecret tells the name of a parameter or key that is secret in some operation; one that only is in some counts.
func mayBeSecret(name string) bool {
	if notSecret[name] != "" {
		return false
	}
	return secretWord.MatchString(name) || slices.ContainsFunc(secretHere, func(h struct{ product, path, param, why string }) bool {
		return h.param[strings.LastIndexByte(h.param, '.')+1:] == name
	})
}

// Outside says who may have written the free text of an answer; none when it holds identifiers and figures only.
func (g Guide) Outside(r gate.Request, data json.RawMessage) []string {
	op, ok := g.c.Lookup(r.Product, r.Operation)
	if !ok {
		return []string{"unknown people or programs"}
	}
	return g.c.Outside(op, data)
}

// ReadScope says how an answer can be limited to the guests of a scope.
func (g Guide) ReadScope(product, operation string) (pathParam, rowField string, ok bool) {
	op, found := g.c.Lookup(product, operation)
	if !found {
		return "", "", false
	}
	return g.c.GuestBinding(op)
}
