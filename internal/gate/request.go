package gate

import (
	"encoding/json"
	"fmt"
	"sort"
)

// Request is one exact API request, by catalogued operation. Its parameters include those of the path.
// The bytes that are sent follow from it alone: path placeholders are escaped into the template, the rest is
// form-encoded in the order of Params, each value once.
type Request struct {
	Product   string  `json:"product"`   // pve, pbs, pmg, pdm
	Operation string  `json:"operation"` // "POST /nodes/{node}/qemu/{vmid}/status/start"
	Params    []Param `json:"params,omitempty"`
}

// Param is one parameter with one or more values (a repeated key).
type Param struct {
	Name   string  `json:"name"`
	Values []Value `json:"values"`
}

// Value is exactly one of: text, a secret by handle, or a reference that is resolved before sending.
type Value struct {
	Text   string  `json:"text,omitempty"`
	Secret *Handle `json:"secret,omitempty"`
	Ref    *Ref    `json:"ref,omitempty"`
	// Veiled marks, in a draft, a text that is a secret whatever the catalogue says of its parameter: it is sealed as a whole.
	Veiled bool `json:"-"`
}

// Handle stands for a secret value: the digest covers its commitment, the store holds it sealed. In a property
// string only the secret key is replaced: Before and After are the text around it.
type Handle struct {
	ID         string `json:"id"`
	Commitment string `json:"commitment"` // hex SHA-256 over salt and value
	Before     string `json:"before,omitempty"`
	After      string `json:"after,omitempty"`
}

// Ref is a value that is known only when the step runs.
type Ref struct {
	Step    int    `json:"step,omitempty"`    // the result of this earlier step (1-based) ...
	Pointer string `json:"pointer,omitempty"` // ... at this JSON pointer of its answer
	Guest   string `json:"guest,omitempty"`   // or: the node where this guest (vmid) is now
	Plan    string `json:"planned,omitempty"` // what it was when the plan was made; for showing and judging, not for sending
}

// NewRequest makes a request of plain texts; a slice value becomes a repeated key. Names are sorted so that
// equal calls make equal plans.
func NewRequest(product, operation string, params map[string]any) (Request, error) {
	r := Request{Product: product, Operation: operation}
	for name, v := range params {
		p := Param{Name: name}
		if err := p.add(v); err != nil {
			return Request{}, fmt.Errorf("make request %s: parameter %s: %w", operation, name, err)
		}
		r.Params = append(r.Params, p)
	}
	sort.Slice(r.Params, func(i, j int) bool { return r.Params[i].Name < r.Params[j].Name })
	return r, nil
}

func (p *Param) add(v any) error {
	switch x := v.(type) {
	case string:
		p.Values = append(p.Values, Value{Text: x})
	case bool:
		text := "0"
		if x {
			text = "1"
		}
		p.Values = append(p.Values, Value{Text: text})
	case int:
		p.Values = append(p.Values, Value{Text: fmt.Sprint(x)})
	case int64:
		p.Values = append(p.Values, Value{Text: fmt.Sprint(x)})
	case json.Number:
		p.Values = append(p.Values, Value{Text: x.String()})
	case Value:
		p.Values = append(p.Values, x)
	case Ref:
		p.Values = append(p.Values, Value{Ref: &x})
	case []any:
		for _, e := range x {
			if err := p.add(e); err != nil {
				return err
			}
		}
	case []string:
		for _, e := range x {
			p.Values = append(p.Values, Value{Text: e})
		}
	default:
		return fmt.Errorf("a %T cannot be sent", v)
	}
	return nil
}

// Get returns the values of a parameter, nil when absent.
func (r Request) Get(name string) []Value {
	for _, p := range r.Params {
		if p.Name == name {
			return p.Values
		}
	}
	return nil
}

// Text returns the single plain text of a parameter ("" when absent, repeated, secret or not yet resolved).
// For a Ref it is the value seen at planning.
func (r Request) Text(name string) string {
	v := r.Get(name)
	if len(v) != 1 {
		return ""
	}
	if v[0].Ref != nil {
		return v[0].Ref.Plan
	}
	return v[0].Text
}
