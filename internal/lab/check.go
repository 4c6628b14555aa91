package lab

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"castellan/internal/catalog/facts"
	"castellan/internal/regex"
)

// checker verifies parameters from the API facts with the rules and texts of the genuine schema code.
type checker struct {
	formats map[string]*facts.Schema // registered property strings
	named   map[string]func(string) string
	regexps map[string]*regexp.Regexp
	configs map[string]map[string]*facts.Schema // parameters of guest configurations by kind
}

func newChecker(api *facts.API) *checker {
	ck := &checker{formats: api.Formats, named: namedFormats(), regexps: map[string]*regexp.Regexp{}, configs: map[string]map[string]*facts.Schema{}}
	for _, op := range api.Operations {
		if op.Method == "PUT" {
			switch op.Path {
			case "/nodes/{node}/qemu/{vmid}/config":
				ck.configs["qemu"] = op.Params
			case "/nodes/{node}/lxc/{vmid}/config":
				ck.configs["lxc"] = op.Params
			}
		}
	}
	return ck
}

const (
	msgMissing = "property is missing and it is not optional"
	msgUnknown = "property is not defined in schema and the schema does not allow additional properties"
)

// lookup finds a parameter's schema; net3 is found as net[n].
func lookup(params map[string]*facts.Schema, name string) *facts.Schema {
	if s := params[name]; s != nil && !strings.Contains(name, "[") {
		return s
	}
	base := strings.TrimRight(name, "0123456789")
	if base == name {
		return nil
	}
	s := params[base+"[n]"]
	if s == nil {
		return nil
	}
	num := name[len(base):]
	n, err := strconv.Atoi(num)
	if err != nil || strconv.Itoa(n) != num || len(s.Index) == 2 && (n < s.Index[0] || n > s.Index[1]) {
		return nil
	}
	return s
}

// check verifies p against the operation; conversions (a single value for an array, JSON booleans, repeated keys
// of list strings) are made in p.
func (ck *checker) check(op *facts.Operation, p map[string]any) error {
	errs := map[string]string{}
	for k, v := range p {
		if s := lookup(op.Params, k); s != nil {
			p[k] = convert(s, v)
		}
	}
	ck.object("", op.Params, p, op.Additional, errs)
	if len(errs) > 0 {
		return &failure{code: 400, msg: verificationFailed, errors: errs}
	}
	for k, v := range p {
		switch t := v.(type) {
		case bool:
			p[k] = "0"
			if t {
				p[k] = "1"
			}
		case []any:
			l := make([]string, 0, len(t))
			for _, x := range t {
				l = append(l, fmt.Sprint(x))
			}
			p[k] = l
		}
	}
	return nil
}

func convert(s *facts.Schema, v any) any {
	list, isList := v.([]any)
	switch {
	case s.Type == "array" && !isList:
		if _, undef := v.(null); !undef {
			return []any{v}
		}
	case s.Type == "string" && isList && s.Format != nil && (strings.HasSuffix(s.Format.Name, "-list") || s.Format.Name == "pve-command-batch"):
		parts := make([]string, 0, len(list))
		for _, x := range list {
			parts = append(parts, fmt.Sprint(x))
		}
		return strings.Join(parts, ",")
	}
	return v
}

func (ck *checker) object(path string, props map[string]*facts.Schema, val map[string]any, additional bool, errs map[string]string) {
	join := func(k string) string {
		if path == "" {
			return k
		}
		return path + "." + k
	}
	for k, s := range props {
		if strings.HasSuffix(k, "[n]") {
			continue
		}
		if s.Type == "" && s.Alias != "" {
			continue
		}
		v, ok := val[k]
		if _, undef := v.(null); !ok || undef {
			if !s.Optional && s.Type != "null" && s.Alias == "" {
				errs[join(k)] = msgMissing
			}
			continue
		}
		ck.prop(join(k), s, v, val, errs)
	}
	for k, v := range val {
		s := lookup(props, k)
		if s == nil {
			if !additional {
				errs[join(k)] = msgUnknown
			}
			continue
		}
		if _, direct := props[k]; !direct {
			if _, undef := v.(null); !undef {
				ck.prop(join(k), s, v, val, errs)
			}
		}
		if s.Requires != "" {
			if r, ok := val[s.Requires]; !ok || r == (null{}) {
				errs[join(s.Requires)] = "missing property - '" + join(k) + "' requires this property"
			}
		}
	}
}

func perlRef(v any) string {
	switch v.(type) {
	case []any:
		return "ARRAY"
	case object:
		return "HASH"
	case bool:
		return "JSON::PP::Boolean"
	}
	return ""
}

var (
	integerForm = &regex.Lazy{Expr: `^[+-]?\d+$`}
	numberForm  = &regex.Lazy{Expr: `^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$`}
)

func (ck *checker) prop(path string, s *facts.Schema, v any, whole map[string]any, errs map[string]string) {
	if len(s.OneOf) > 0 {
		ck.oneOf(path, s, v, whole, errs)
		return
	}
	ref := perlRef(v)
	text, _ := v.(string)
	switch s.Type {
	case "array":
		list, ok := v.([]any)
		if !ok {
			errs[path] = "type check ('array') failed"
			return
		}
		if s.Items != nil {
			for i, el := range list {
				ck.prop(fmt.Sprintf("%s[%d]", path, i), s.Items, el, whole, errs)
			}
		}
		return
	case "boolean":
		if ref == "JSON::PP::Boolean" {
			return
		}
	case "null":
		errs[path] = "type check ('null') failed - value is not null"
		return
	}
	if ref != "" && s.Type != "" && s.Type != "any" && s.Type != "object" {
		errs[path] = "type check ('" + s.Type + "') failed - got " + ref
		return
	}
	switch s.Type {
	case "boolean":
		if text != "0" && text != "1" {
			errs[path] = "type check ('boolean') failed - got '" + text + "'"
			return
		}
	case "integer":
		if !integerForm.MatchString(text) {
			errs[path] = "type check ('integer') failed - got '" + text + "'"
			return
		}
	case "number":
		if !numberForm.MatchString(text) {
			errs[path] = "type check ('number') failed - got '" + text + "'"
			return
		}
	}
	if msg := ck.format(s.Format, text, path); msg != "" {
		errs[path] = "invalid format - " + msg
		return
	}
	if s.Pattern != "" && !ck.match(s.Pattern, text) {
		errs[path] = "value does not match the regex pattern"
		return
	}
	n := utf8.RuneCountInString(text)
	if s.MaxLength != nil && n > *s.MaxLength {
		errs[path] = fmt.Sprintf("value may only be %d characters long", *s.MaxLength)
		return
	}
	if s.MinLength != nil && n < *s.MinLength {
		errs[path] = fmt.Sprintf("value must be at least %d characters long", *s.MinLength)
		return
	}
	if numberForm.MatchString(text) {
		if s.Maximum != nil && numberOf(text) > numberOf(s.Maximum.String()) {
			errs[path] = "value must have a maximum value of " + s.Maximum.String()
			return
		}
		if s.Minimum != nil && numberOf(text) < numberOf(s.Minimum.String()) {
			errs[path] = "value must have a minimum value of " + s.Minimum.String()
			return
		}
	}
	if len(s.Enum) > 0 {
		names := make([]string, len(s.Enum))
		for i, e := range s.Enum {
			names[i] = enumText(e)
			if names[i] == text {
				return
			}
		}
		errs[path] = "value '" + text + "' does not have a value in the enumeration '" + strings.Join(names, ", ") + "'"
	}
}

func enumText(e any) string {
	switch t := e.(type) {
	case string:
		return t
	case float64:
		return strconv.FormatFloat(t, 'f', -1, 64)
	case json.Number:
		return t.String()
	}
	return fmt.Sprint(e)
}

func numberOf(s string) float64 {
	f, err := strconv.ParseFloat(strings.TrimPrefix(s, "+"), 64)
	if err != nil {
		return 0
	}
	return f
}

// oneOf takes the alternative that is meant for the section type given; without one, any that passes.
func (ck *checker) oneOf(path string, s *facts.Schema, v any, whole map[string]any, errs map[string]string) {
	var last map[string]string
	for _, alt := range s.OneOf {
		if len(alt.InstanceTypes) > 0 {
			typ, _ := whole[firstNonEmpty(s.TypeProperty, alt.TypeProperty, "type")].(string)
			if typ != "" && !contains(alt.InstanceTypes, typ) {
				continue
			}
		}
		sub := map[string]string{}
		ck.prop(path, alt, v, whole, sub)
		if len(sub) == 0 {
			return
		}
		last = sub
	}
	for k, m := range last {
		errs[k] = m
	}
}

func firstNonEmpty(vals ...string) string {
	for _, v := range vals {
		if v != "" {
			return v
		}
	}
	return ""
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// match applies a Perl pattern, anchored at both ends.
func (ck *checker) match(pattern, text string) bool {
	re, ok := ck.regexps[pattern]
	if !ok {
		p := strings.NewReplacer("(?^u:", "(?:", "(?^:", "(?:", "(?^i:", "(?i:", "(?>", "(?:", "{0,4096}", "*").Replace(pattern)
		re, _ = regexp.Compile("^(?:" + p + ")$")
		ck.regexps[pattern] = re
	}
	return re == nil || re.MatchString(text)
}

// format gives the text of what is wrong, newline included, or "".
func (ck *checker) format(f *facts.Format, text, path string) string {
	if f == nil {
		return ""
	}
	if f.Schema != nil {
		if len(f.Schema.Properties) == 0 {
			return ""
		}
		_, msg := ck.propertyString(f.Schema.Properties, text, path)
		return msg
	}
	name, list, opt := f.Name, false, false
	if n, ok := strings.CutSuffix(name, "-list"); ok {
		name, list = n, true
	} else if n, ok := strings.CutSuffix(name, "-opt"); ok {
		name, opt = n, true
	}
	if list {
		check := ck.named[name]
		if check == nil {
			return ""
		}
		for _, v := range splitList(text) {
			if msg := check(v); msg != "" {
				return msg
			}
		}
		return ""
	}
	if opt && text == "" {
		return ""
	}
	if s := ck.formats[name]; s != nil {
		_, msg := ck.propertyString(s.Properties, text, path)
		return msg
	}
	if check := ck.named[name]; check != nil {
		return check(text)
	}
	return ""
}

// splitList splits as the genuine code splits lists.
func splitList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ';' || r == 0 || unicode.IsSpace(r) })
}

// propertyString reads key=value,key=value; aliases are resolved and checked as the keys that they stand for.
func (ck *checker) propertyString(props map[string]*facts.Schema, text, path string) (map[string]string, string) {
	res := map[string]string{}
	usedDefault := ""
	for _, part := range strings.Split(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		k, v, has := strings.Cut(part, "=")
		switch {
		case has && k != "" && v != "":
			s := lookup(props, k)
			if _, dup := res[k]; dup {
				return nil, "duplicate key in comma-separated list property: " + k + "\n"
			}
			if s != nil && s.Alias != "" {
				if s.KeyAlias != "" {
					if _, dup := res[s.KeyAlias]; dup {
						return nil, "key alias '" + s.KeyAlias + "' is already defined\n"
					}
					res[s.KeyAlias] = k
				}
				k = s.Alias
				s = lookup(props, k)
			}
			if s == nil {
				return nil, "invalid key in comma-separated list property: " + k + "\n"
			}
			if s.Type == "boolean" {
				v = parseBoolean(v)
			}
			res[k] = v
		case !has:
			if usedDefault != "" {
				return nil, "duplicate key in comma-separated list property: " + usedDefault + "\n"
			}
			for name, s := range props {
				if s.DefaultKey {
					usedDefault = name
					if s.Alias != "" {
						name = s.Alias
					}
					if _, dup := res[name]; dup {
						return nil, "duplicate key in comma-separated list property: " + name + "\n"
					}
					res[name] = part
				}
			}
			if usedDefault == "" {
				return nil, "value without key, but schema does not define a default key\n"
			}
		default:
			return nil, "missing key in comma-separated list property\n"
		}
	}
	val := make(map[string]any, len(res))
	for k, v := range res {
		val[k] = v
	}
	errs := map[string]string{}
	ck.object(path, props, val, false, errs)
	if len(errs) > 0 {
		return nil, "format error\n" + joinErrors(errs)
	}
	return res, ""
}

func parseBoolean(v string) string {
	switch strings.ToLower(v) {
	case "1", "on", "yes", "true":
		return "1"
	case "0", "off", "no", "false":
		return "0"
	}
	return v
}
