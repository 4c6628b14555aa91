package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Keys lists the keys of a settings struct as a.b.c, by its toml tags, in their order. Tables of several (slices and maps
// of structs) are one key each.
func Keys(v any) []string { return keys(reflect.TypeOf(v), "") }

func keys(t reflect.Type, at string) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		name := tagName(f)
		if name == "" {
			continue
		}
		key := strings.TrimPrefix(at+"."+name, ".")
		if f.Type.Kind() == reflect.Struct {
			out = append(out, keys(f.Type, key)...)
			continue
		}
		out = append(out, key)
	}
	return out
}

func tagName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
	if name == "-" {
		return ""
	}
	return name
}

// field finds the field of a key in a struct given by pointer.
func field(v any, key string) (reflect.Value, error) {
	at := reflect.ValueOf(v).Elem()
	for rest := key; ; {
		name, more, deeper := strings.Cut(rest, ".")
		found := reflect.Value{}
		for i := range at.NumField() {
			if tagName(at.Type().Field(i)) == name {
				found = at.Field(i)
			}
		}
		if !found.IsValid() || deeper && found.Kind() != reflect.Struct {
			return found, fmt.Errorf("there is no setting %s", key)
		}
		if !deeper {
			return found, nil
		}
		at, rest = found, more
	}
}

// Get gives the value of a key as JSON, null when it has its zero value.
func Get(v any, key string) (json.RawMessage, error) {
	f, err := field(v, key)
	if err != nil {
		return nil, err
	}
	if f.IsZero() {
		return json.RawMessage("null"), nil
	}
	return json.Marshal(plain(f))
}

// plain turns tables into maps by their toml names, without what is not set.
func plain(v reflect.Value) any {
	switch {
	case v.Kind() == reflect.Struct:
		m := map[string]any{}
		for i := range v.NumField() {
			if name := tagName(v.Type().Field(i)); name != "" && !v.Field(i).IsZero() {
				m[name] = plain(v.Field(i))
			}
		}
		return m
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		out := []any{}
		for i := range v.Len() {
			out = append(out, plain(v.Index(i)))
		}
		return out
	case v.Kind() == reflect.Map && v.Type().Elem().Kind() == reflect.Struct:
		m := map[string]any{}
		for _, k := range v.MapKeys() {
			m[k.String()] = plain(v.MapIndex(k))
		}
		return m
	}
	return v.Interface()
}

// Put sets a key of a struct given by pointer from JSON, strictly: a value of another type is an error and changes nothing.
func Put(v any, key string, value json.RawMessage) error {
	f, err := field(v, key)
	if err != nil {
		return err
	}
	switch f.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64:
	case reflect.Slice, reflect.Map:
		if f.Type().Elem().Kind() != reflect.String {
			return fmt.Errorf("setting %s is a table; it is set in the file", key)
		}
	default:
		return fmt.Errorf("setting %s cannot be set at run time", key)
	}
	fresh := reflect.New(f.Type())
	d := json.NewDecoder(bytes.NewReader(value))
	if err := d.Decode(fresh.Interface()); err != nil || d.More() {
		return fmt.Errorf("setting %s takes %s, not %.80s", key, wanted(f.Type()), value)
	}
	f.Set(fresh.Elem())
	return nil
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a number"
	case reflect.Slice:
		return `a list of texts, ["a", "b"]`
	case reflect.Map:
		return `texts by name, {"a": "b"}`
	}
	return "a text"
}
