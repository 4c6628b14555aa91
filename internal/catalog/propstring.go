package catalog

import (
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"castellan/internal/catalog/facts"
)

// Property is one key of a property string, aliases resolved: of "virtio=AA:..,bridge=vmbr0" they are model,
// macaddr and bridge.
type Property struct {
	Key, Value string
}

// propSchema says how a property string is read and written.
type propSchema struct {
	props      map[string]*facts.Schema
	defaultKey string
	quoted     bool     // PBS and PDM: a value may stand in double quotes
	open       bool     // only the format's name is known: any plain key is taken
	names      []string // of the keys, sorted
}

// openFormats are property strings whose keys no published description tells.
var openFormats = []string{"pve-sdn-fabric-wireguard-interface", "datastore-backend-config"}

// properties returns how to read a value as property string, or nil when it is none.
func (op *Operation) properties(s *facts.Schema) *propSchema {
	if s == nil || s.Format == nil {
		return nil
	}
	if p, ok := op.known.properties.Load(s); ok {
		return p.(*propSchema)
	}
	p := op.readProperties(s)
	op.known.properties.Store(s, p)
	return p
}

func (op *Operation) readProperties(s *facts.Schema) *propSchema {
	p := &propSchema{quoted: !decodesWhole(op.Product)}
	format := s.Format.Schema
	if format == nil {
		if format = op.api.Formats[s.Format.Name]; format == nil {
			if slices.Contains(openFormats, s.Format.Name) {
				p.open = true
				return p
			}
			return nil
		}
	}
	if len(format.Properties) == 0 {
		return nil
	}
	p.props, p.defaultKey = format.Properties, s.Format.DefaultKey
	for key, ks := range p.props {
		if ks.DefaultKey {
			p.defaultKey = key
		}
	}
	p.names = slices.Sorted(maps.Keys(p.props))
	return p
}

// keys lists the keys that a caller may write, sorted; the slice must not be changed.
func (p *propSchema) keys() []string { return p.names }

// parse splits a property string as the product does and resolves aliases; it does not check the values.
func (p *propSchema) parse(text string) ([]Property, *Problem) {
	var out []Property
	parts, prob := p.split(text)
	if prob != nil {
		return nil, prob
	}
	for _, part := range parts {
		if prob := p.put(&out, part.Key, part.Value); prob != nil {
			return nil, prob
		}
	}
	return out, nil
}

// put adds one key as written.
func (p *propSchema) put(out *[]Property, key, value string) *Problem {
	if key == "" {
		if p.defaultKey == "" {
			return &Problem{Message: "each part needs a key: key=value,key=value", Valid: p.keys()}
		}
		key = p.defaultKey
	}
	if s := p.props[key]; s != nil && s.Alias != "" {
		if s.KeyAlias != "" {
			if prob := add(out, s.KeyAlias, key); prob != nil {
				return prob
			}
		}
		key = s.Alias
	}
	if !p.open && p.props[key] == nil {
		return &Problem{Param: key, Message: "no such key", Nearest: nearest(key, p.keys()), Valid: p.keys()}
	}
	if p.open && !plainKey(key) {
		return &Problem{Param: key, Message: "not a plain key"}
	}
	return add(out, key, value)
}

func add(out *[]Property, key, value string) *Problem {
	for _, have := range *out {
		if have.Key == key {
			return &Problem{Param: key, Message: "given twice"}
		}
	}
	*out = append(*out, Property{key, value})
	return nil
}

func plainKey(s string) bool {
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// split cuts at commas (outside quotes where the product knows quotes). An empty Key is a part without a name.
func (p *propSchema) split(text string) ([]Property, *Problem) {
	var out []Property
	for rest := text; rest != ""; {
		rest = strings.TrimLeft(rest, " ")
		if rest == "" {
			break
		}
		end := strings.IndexAny(rest, ",=")
		key := ""
		if end >= 0 && rest[end] == '=' && !strings.HasPrefix(rest, `"`) {
			key = strings.TrimRight(rest[:end], " ")
			rest = rest[end+1:]
			if key == "" {
				return nil, &Problem{Message: "a value without a key before its ="}
			}
		}
		var value string
		if p.quoted && strings.HasPrefix(rest, `"`) {
			var ok bool
			if value, rest, ok = unquote(rest); !ok {
				return nil, &Problem{Param: key, Message: "a quoted value is not closed, or something follows its quote"}
			}
		} else {
			value, rest, _ = strings.Cut(rest, ",")
			value = strings.Trim(value, " ")
		}
		if value == "" {
			if key == "" {
				continue
			}
			return nil, &Problem{Param: key, Message: "has no value; leave the key out"}
		}
		out = append(out, Property{key, value})
	}
	return out, nil
}

// unquote reads a double-quoted value at the start of s and returns what follows its comma.
func unquote(s string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i >= len(s) || s[i] != '\\' && s[i] != '"' {
				return "", "", false
			}
			b.WriteByte(s[i])
		case '"':
			rest = strings.TrimLeft(s[i+1:], " ")
			if rest != "" && rest[0] != ',' {
				return "", "", false
			}
			return b.String(), strings.TrimPrefix(rest, ","), true
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}

// render writes the keys in one canonical order: the key alias or the nameless key first, the rest by name.
func (p *propSchema) render(props []Property) (string, *Problem) {
	vals := map[string]string{}
	for _, kv := range props {
		vals[kv.Key] = kv.Value
	}
	var parts []string
	emit := func(key, value string) *Problem {
		switch {
		case p.quoted && (strings.ContainsAny(value, "\",\\") || strings.Trim(value, " ") != value):
			value = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
		case strings.Contains(value, ","):
			return &Problem{Param: key, Message: "a comma would begin another key"}
		case strings.Trim(value, " ") != value:
			return &Problem{Param: key, Message: "begins or ends with a blank"}
		}
		if key != "" {
			value = key + "=" + value
		}
		parts = append(parts, value)
		return nil
	}
	for _, name := range p.keys() {
		s := p.props[name]
		if s.KeyAlias == "" || vals[s.KeyAlias] != name {
			continue
		}
		if v, ok := vals[s.Alias]; ok {
			if prob := emit(name, v); prob != nil {
				return "", prob
			}
			delete(vals, s.Alias)
			delete(vals, s.KeyAlias)
		}
	}
	if v, ok := vals[p.defaultKey]; ok && p.defaultKey != "" && len(parts) == 0 && !strings.Contains(v, "=") {
		if prob := emit("", v); prob != nil {
			return "", prob
		}
		delete(vals, p.defaultKey)
	}
	rest := make([]string, 0, len(vals))
	for k := range vals {
		rest = append(rest, k)
	}
	sort.Strings(rest)
	for _, k := range rest {
		if prob := emit(k, vals[k]); prob != nil {
			return "", prob
		}
	}
	return strings.Join(parts, ","), nil
}

// ParseProperty reads one value of a parameter as property string. It answers false when the parameter holds none
// or the text cannot be read.
func (op *Operation) ParseProperty(param, text string) ([]Property, bool) {
	s, _, ok := op.Schema(param)
	if !ok {
		return nil, false
	}
	if s.Type == "array" && s.Items != nil {
		s = s.Items
	}
	p := op.properties(s)
	if p == nil {
		return nil, false
	}
	out, prob := p.parse(text)
	return out, prob == nil
}

// Schema returns the description of a parameter by the name that a caller writes: net0 finds net[n]. The second
// result is the name in the catalogue.
func (op *Operation) Schema(param string) (*facts.Schema, string, bool) {
	if s, ok := op.Facts.Params[param]; ok && s.Index == nil {
		return s, param, true
	}
	base := strings.TrimRight(param, "0123456789")
	digits := param[len(base):]
	s, ok := op.Facts.Params[base+"[n]"]
	if !ok || digits == "" || len(digits) > 4 || len(digits) > 1 && digits[0] == '0' || len(s.Index) != 2 {
		return nil, "", false
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < s.Index[0] || n > s.Index[1] {
		return nil, "", false
	}
	return s, base + "[n]", true
}
