package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Declaration is what an operation says of itself.
type Declaration struct {
	Name     string
	Summary  string // one line, no full stop needed
	Product  string
	Effect   Effect
	Kinds    []Kind
	Undo     string
	Keywords string
	Toolset  string
	Guest    string
	Bounded  bool // its answers and plans show identifiers, states and figures only: free text that it reads stays with it
	Wide     bool // it looks at each guest of a site: it may make as many reads as the gate's own walk
}

// Query declares an operation that answers. In and Out are structs; their json tags name the arguments, a
// `jsonschema:"…"` tag describes one, an `enum:"a,b"` tag closes it.
func Query[In, Out any](d Declaration, f func(ctx context.Context, v View, in In) (Out, error)) *Operation {
	if d.Effect == "" {
		d.Effect = EffectRead
	}
	o := declare[In, Out](d)
	o.run.query = func(ctx context.Context, v View, args json.RawMessage) (any, error) {
		in, err := decode[In](args)
		if err != nil {
			return nil, err
		}
		return f(ctx, v, in)
	}
	return o
}

// Change declares an operation that plans. An empty draft (no steps) means that there is nothing to do.
func Change[In any](d Declaration, f func(ctx context.Context, v View, in In) (*Draft, error)) *Operation {
	o := declare[In, Outcome](d)
	o.run.change = func(ctx context.Context, v View, args json.RawMessage) (*Draft, error) {
		in, err := decode[In](args)
		if err != nil {
			return nil, err
		}
		return f(ctx, v, in)
	}
	return o
}

// Door declares the operation that leads to every catalogued one: it answers where that one reads, else drafts.
func Door[In any](d Declaration, f func(ctx context.Context, v View, in In) (answer any, draft *Draft, err error)) *Operation {
	o := declare[In, Outcome](d)
	o.run.door = func(ctx context.Context, v View, args json.RawMessage) (any, *Draft, error) {
		in, err := decode[In](args)
		if err != nil {
			return nil, nil, err
		}
		return f(ctx, v, in)
	}
	return o
}

// Control declares an operation on castellan's own plans. It can do no more than its Desk.
func Control[In, Out any](d Declaration, f func(ctx context.Context, desk Desk, in In) (Out, error)) *Operation {
	if d.Effect == "" {
		d.Effect = EffectRead
	}
	o := declare[In, Out](d)
	o.run.control = func(ctx context.Context, desk Desk, args json.RawMessage) (any, error) {
		in, err := decode[In](args)
		if err != nil {
			return nil, err
		}
		return f(ctx, desk, in)
	}
	return o
}

// Alone says that the operation acts on castellan itself, its plans and settings: it is called by itself, never through
// another or as a part of a plan.
func (o *Operation) Alone() bool { return o.run.control != nil }

// isName says whether a name is a lower-case letter and at most 39 more letters, digits and _.
func isName(s string) bool {
	if s == "" || len(s) > 40 || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

func declare[In, Out any](d Declaration) *Operation {
	o := &Operation{Name: d.Name, Summary: d.Summary, Product: d.Product, Effect: d.Effect, Kinds: d.Kinds, Undo: d.Undo,
		Keywords: d.Keywords, Toolset: d.Toolset, Guest: d.Guest, Bounded: d.Bounded, wide: d.Wide}
	if o.Toolset == "" {
		o.Toolset = "full"
	}
	if !isName(o.Name) {
		o.fault = fmt.Errorf("declare operation %q: the name must be a lower-case letter and up to 39 more letters, digits and _", o.Name)
		return o
	}
	in, err := shapeOf(reflect.TypeFor[In]())
	if err != nil {
		o.fault = fmt.Errorf("declare operation %s: input: %w", o.Name, err)
		return o
	}
	o.takes, o.Input = in, in.schema("true")
	if out := reflect.TypeFor[Out](); out.Kind() == reflect.Struct && out != reflect.TypeFor[Outcome]() {
		s, err := shapeOf(out)
		if err != nil {
			o.fault = fmt.Errorf("declare operation %s: output: %w", o.Name, err)
			return o
		}
		o.Output = s.schema(`{"type":"object","additionalProperties":true}`) // not every client knows true, or an empty schema, for anything
	}
	return o
}

func decode[In any](args json.RawMessage) (In, error) {
	var in In
	if err := json.Unmarshal(args, &in); err != nil {
		return in, Fail(ErrInvalid, "Look at the operation's schema with describe_operation.", "arguments do not fit: %v", err)
	}
	return in, nil
}
