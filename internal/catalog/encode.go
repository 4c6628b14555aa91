package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"castellan/internal/gate"
)

// Encoded is one request as it goes over the wire.
type Encoded struct {
	Method      string
	Path        string // escaped, below the product's /api2/json
	Query       string // GET and DELETE
	Body        string // POST and PUT
	ContentType string // of the body, "" without one
	Download    bool   // a good answer can be a file
}

// ErrTransfer is what Encode answers for operations that carry a file: they are transfers, not requests.
var ErrTransfer = errors.New("the operation carries a file and is sent as a transfer")

const maxBody = 512 << 10 // the products refuse more

// Encode renders a request to the bytes that are sent. It depends on nothing but the request and on what open
// answers for sealed values; open may be nil when there are none. References must have been resolved before.
func (c *Catalog) Encode(r gate.Request, open func(gate.Handle) (string, error)) (Encoded, error) {
	op, ok := c.Lookup(r.Product, r.Operation)
	if !ok {
		return Encoded{}, fmt.Errorf("encode request: %s has no operation %q", r.Product, r.Operation)
	}
	if op.Facts.Stream == "upload" || op.Facts.Params["tmpfilename"] != nil {
		return Encoded{}, fmt.Errorf("encode request %s: %w", op.ID, ErrTransfer)
	}
	texts, err := plainTexts(r, open)
	if err != nil {
		return Encoded{}, fmt.Errorf("encode request %s: %w", op.ID, err)
	}
	e := Encoded{Method: op.Method, Download: op.Facts.Download}
	if e.Path, err = op.path(texts); err != nil {
		return Encoded{}, fmt.Errorf("encode request %s: %w", op.ID, err)
	}
	var rest []wireParam
	for _, p := range texts {
		if !slices.Contains(op.Placeholders, p.name) {
			rest = append(rest, p)
		}
	}
	switch {
	case op.Method == "GET" || op.Method == "DELETE":
		e.Query = formEncode(rest)
	case op.Method == MethodRun: // for reading: nothing of it goes to a product
		if e.Body, err = runBody(rest); err != nil {
			return Encoded{}, fmt.Errorf("encode request %s: %w", op.ID, err)
		}
		return e, nil
	case op.wantsJSON(rest):
		if e.Body, err = op.jsonBody(rest); err != nil {
			return Encoded{}, fmt.Errorf("encode request %s: %w", op.ID, err)
		}
		e.ContentType = "application/json"
	default:
		e.Body, e.ContentType = formEncode(rest), "application/x-www-form-urlencoded"
	}
	if len(e.Body) > maxBody || len(e.Path)+len(e.Query) > maxBody {
		return Encoded{}, fmt.Errorf("encode request %s: longer than %d bytes", op.ID, maxBody)
	}
	return e, nil
}

type wireParam struct {
	name  string
	texts []string
}

// plainTexts opens sealed values and joins property strings around them.
func plainTexts(r gate.Request, open func(gate.Handle) (string, error)) ([]wireParam, error) {
	var out []wireParam
	seen := map[string]bool{}
	for _, p := range r.Params {
		if seen[p.Name] {
			return nil, fmt.Errorf("parameter %s stands twice", p.Name)
		}
		seen[p.Name] = true
		n := wireParam{name: p.Name}
		for _, v := range p.Values {
			switch {
			case v.Ref != nil:
				return nil, fmt.Errorf("parameter %s is not resolved yet", p.Name)
			case v.Secret != nil && open == nil:
				return nil, fmt.Errorf("parameter %s is sealed and nothing opens it", p.Name)
			case v.Secret != nil:
				text, err := open(*v.Secret)
				if err != nil {
					return nil, fmt.Errorf("open parameter %s: %w", p.Name, err)
				}
				n.texts = append(n.texts, v.Secret.Before+text+v.Secret.After)
			default:
				n.texts = append(n.texts, v.Text)
			}
		}
		if len(n.texts) == 0 {
			return nil, fmt.Errorf("parameter %s has no value", p.Name)
		}
		out = append(out, n)
	}
	return out, nil
}

// path renders the template. A value that the product would read as another path is refused.
func (op *Operation) path(params []wireParam) (string, error) {
	var b strings.Builder
	for part := range strings.SplitSeq(strings.Trim(op.Path, "/"), "/") {
		if part == "" {
			continue
		}
		name, isOpen := placeholder(part)
		if !isOpen {
			b.WriteString("/" + escape(part))
			continue
		}
		i := slices.IndexFunc(params, func(n wireParam) bool { return n.name == name })
		if i < 0 || len(params[i].texts) != 1 {
			return "", fmt.Errorf("the path needs one value for %s", name)
		}
		text := params[i].texts[0]
		if bad := op.badPathValue(name, text); bad != "" {
			return "", fmt.Errorf("path value %s: %s", name, bad)
		}
		b.WriteString("/" + escape(text))
	}
	if b.Len() == 0 {
		return "/", nil
	}
	return b.String(), nil
}

// badPathValue says why a value cannot stand in the path, or "".
func (op *Operation) badPathValue(name, text string) string {
	whole := decodesWhole(op.Product)
	parts := []string{text}
	if strings.Contains(text, "/") && (whole || name == op.rest) {
		if name != op.rest {
			return "this product would read its slash as another path"
		}
		parts = strings.Split(text, "/")
	}
	for _, part := range parts {
		switch {
		case part == "":
			return "it is empty or holds an empty part"
		case part == "." || part == ".." || !whole && part[0] == '.':
			return "it is or begins with dots"
		}
		if bad := firstBadRune(part, whole); bad != "" {
			return bad
		}
	}
	return ""
}

// wantsJSON tells whether a value can only be sent as JSON: PDM takes true objects.
func (op *Operation) wantsJSON(params []wireParam) bool {
	return slices.ContainsFunc(params, func(n wireParam) bool {
		s, _, ok := op.Schema(n.name)
		return ok && (s.Type == "object" || s.Type == "array" && s.Items != nil && s.Items.Type == "object")
	})
}

func (op *Operation) jsonBody(params []wireParam) (string, error) {
	parts := make([]string, 0, len(params))
	for _, n := range params {
		s, _, ok := op.Schema(n.name)
		if !ok {
			return "", fmt.Errorf("parameter %s is not known", n.name)
		}
		list := s.Type == "array"
		if list && s.Items != nil {
			s = s.Items
		}
		var values []string
		for _, text := range n.texts {
			value := text
			switch s.Type {
			case "object", "integer", "number":
				if !json.Valid([]byte(text)) {
					return "", fmt.Errorf("parameter %s is not JSON", n.name)
				}
			case "boolean":
				value = map[string]string{"1": "true", "0": "false"}[text]
				if value == "" {
					return "", fmt.Errorf("parameter %s is neither 1 nor 0", n.name)
				}
			default:
				value = jsonText(text)
			}
			values = append(values, value)
		}
		value := values[0]
		if list {
			value = "[" + strings.Join(values, ",") + "]"
		} else if len(values) > 1 {
			return "", fmt.Errorf("parameter %s takes one value", n.name)
		}
		parts = append(parts, jsonText(n.name)+":"+value)
	}
	return "{" + strings.Join(parts, ",") + "}", nil
}

func jsonText(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string cannot fail
	return strings.TrimSuffix(b.String(), "\n")
}

// formEncode renders repeated keys in the order given.
func formEncode(params []wireParam) string {
	var parts []string
	for _, n := range params {
		for _, text := range n.texts {
			parts = append(parts, escape(n.name)+"="+escape(text))
		}
	}
	return strings.Join(parts, "&")
}

// escape percent-encodes all but unreserved characters, so that no reader splits or decodes otherwise.
func escape(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' || c == '~' {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return b.String()
}
