package gate

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// shape is the JSON schema of a Go type, as far as arguments and answers need one: one type a field, closed objects, no
// null alternatives.
type shape struct {
	kind        string // as in JSON schema; empty: anything
	description string
	enum        []string
	min, max    *float64
	fields      []field // of a struct, in their order
	required    []string
	items       *shape // of an array
	values      *shape // of a map; nil: no fields but those
}

type field struct {
	name  string
	shape *shape
}

// field finds a field by name.
func (s *shape) field(name string) (*shape, bool) {
	for _, f := range s.fields {
		if f.name == name {
			return f.shape, true
		}
	}
	return nil, false
}

// names lists the fields, sorted.
func (s *shape) names() []string {
	out := make([]string, len(s.fields))
	for i, f := range s.fields {
		out[i] = f.name
	}
	slices.Sort(out)
	return out
}

// shapeOf finds the shape of what encoding/json reads and writes as t. A `jsonschema:"…"` tag describes a field, an
// `enum:"a,b"` tag closes it.
func shapeOf(t reflect.Type) (*shape, error) { return shapeWithin(t, nil) }

func shapeWithin(t reflect.Type, above []reflect.Type) (*shape, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return &shape{}, nil
	case reflect.TypeFor[time.Time]():
		return &shape{kind: "string"}, nil
	}
	if t.Name() != "" && t.Kind() >= reflect.Array && t.Kind() != reflect.String {
		if slices.Contains(above, t) {
			return nil, fmt.Errorf("type %v holds itself", t)
		}
		above = append(slices.Clone(above), t)
	}
	switch t.Kind() {
	case reflect.Bool:
		return &shape{kind: "boolean"}, nil
	case reflect.String:
		return &shape{kind: "string"}, nil
	case reflect.Int, reflect.Int64:
		return &shape{kind: "integer"}, nil
	case reflect.Uint, reflect.Uint64:
		return &shape{kind: "integer", min: new(float64)}, nil
	case reflect.Float32, reflect.Float64:
		return &shape{kind: "number"}, nil
	case reflect.Interface:
		return &shape{}, nil
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return nil, fmt.Errorf("type %v has keys that are no text", t)
		}
		v, err := shapeWithin(t.Elem(), above)
		return &shape{kind: "object", values: v}, err
	case reflect.Slice:
		v, err := shapeWithin(t.Elem(), above)
		return &shape{kind: "array", items: v}, err
	case reflect.Struct:
		s := &shape{kind: "object"}
		return s, s.addFields(t, above)
	}
	return nil, fmt.Errorf("type %v has no JSON schema here", t)
}

// addFields adds the fields of a struct, those of embedded ones among them.
func (s *shape) addFields(t reflect.Type, above []reflect.Type) error {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			if f.Type.Kind() != reflect.Struct {
				return fmt.Errorf("type %v embeds %v, which is no struct", t, f.Type)
			}
			if err := s.addFields(f.Type, above); err != nil {
				return err
			}
			continue
		}
		if !f.IsExported() || name == "-" && options == "" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if _, twice := s.field(name); twice {
			return fmt.Errorf("type %v has the field %s twice", t, name)
		}
		v, err := shapeWithin(f.Type, above)
		if err != nil {
			return err
		}
		v.description = f.Tag.Get("jsonschema")
		if e := f.Tag.Get("enum"); e != "" {
			to := v
			if v.items != nil {
				to = v.items
			}
			to.enum = strings.Split(e, ",")
		}
		s.fields = append(s.fields, field{name, v})
		if o := strings.Split(options, ","); !slices.Contains(o, "omitempty") && !slices.Contains(o, "omitzero") {
			s.required = append(s.required, name)
		}
	}
	return nil
}

// schema writes the shape as JSON schema; open stands for a field or item that may be anything.
func (s *shape) schema(open string) json.RawMessage { return s.write(nil, open) }

func (s *shape) write(b []byte, open string) []byte {
	if s.kind == "" && s.description == "" {
		return append(b, open...)
	}
	b = append(b, '{')
	member := func(name string) {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), name...), '"', ':')
	}
	if s.kind != "" {
		member("type")
		b = appendText(b, s.kind)
	}
	if len(s.fields) > 0 {
		member("properties")
		for i, f := range s.fields {
			b = append(b, "{,"[min(i, 1)])
			b = append(appendText(b, f.name), ':')
			b = f.shape.write(b, open)
		}
		b = append(b, '}')
	}
	if s.items != nil {
		member("items")
		b = s.items.write(b, open)
	}
	if s.description != "" {
		member("description")
		b = appendText(b, s.description)
	}
	if len(s.enum) > 0 {
		member("enum")
		b = appendTexts(b, s.enum)
	}
	if s.min != nil {
		member("minimum")
		b = strconv.AppendFloat(b, *s.min, 'g', -1, 64)
	}
	if s.max != nil {
		member("maximum")
		b = strconv.AppendFloat(b, *s.max, 'g', -1, 64)
	}
	if len(s.required) > 0 {
		member("required")
		b = appendTexts(b, s.required)
	}
	if s.kind == "object" {
		member("additionalProperties")
		if s.values == nil {
			b = append(b, "false"...)
		} else {
			b = s.values.write(b, "true")
		}
	}
	return append(b, '}')
}

func appendText(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil { // a string always has a JSON form
		return append(b, `""`...)
	}
	return append(b, text...)
}

func appendTexts(b []byte, list []string) []byte {
	for i, s := range list {
		b = appendText(append(b, "[,"[min(i, 1)]), s)
	}
	return append(b, ']')
}
