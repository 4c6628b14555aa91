package catalog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"castellan/internal/catalog/facts"
	"castellan/internal/regex"
)

// Limits of a host's own description; the largest published one has 4 MB and 700 operations.
const (
	maxDoc       = 32 << 20
	maxDocOps    = 5000
	maxDocDepth  = 64
	maxDocParams = 1000
	maxDocText   = 8 << 10 // one pattern, format or enum value
)

// Doc is a host's own API description, read as data. Its descriptions in words are dropped.
type Doc struct {
	product string
	ops     []docOp
}

type docOp struct {
	Path      string                     `json:"path"`
	Method    string                     `json:"method"`
	Protected bool                       `json:"protected,omitempty"`
	NoToken   bool                       `json:"no_token,omitempty"`
	Params    map[string]json.RawMessage `json:"params,omitempty"`
}

type docFile struct {
	Format     int     `json:"format"`
	Product    string  `json:"product"`
	Operations []docOp `json:"operations"`
}

// Product names the product that the description is of.
func (d *Doc) Product() string { return d.product }

// Bytes is the form in which an accepted description is kept. It is canonical: equal descriptions, equal bytes.
func (d *Doc) Bytes() []byte {
	b, err := json.Marshal(docFile{Format: 1, Product: d.product, Operations: d.ops})
	if err != nil { // maps of valid raw JSON always marshal
		return nil
	}
	return b
}

// SHA256 is the pin of the description: the hash of Bytes, in hex.
func (d *Doc) SHA256() string {
	sum := sha256.Sum256(d.Bytes())
	return hex.EncodeToString(sum[:])
}

// OpenDoc reads an accepted description back and compares it with the pin.
func OpenDoc(b []byte, pin string) (*Doc, error) {
	if len(b) > maxDoc {
		return nil, fmt.Errorf("open API description: larger than %d bytes", maxDoc)
	}
	sum := sha256.Sum256(b)
	if got := hex.EncodeToString(sum[:]); got != pin {
		return nil, fmt.Errorf("open API description: its SHA-256 is %s, accepted was %s", got, clip(pin, 80))
	}
	var f docFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("open API description: %w", err)
	}
	if f.Format != 1 || !slices.Contains(Products(), f.Product) {
		return nil, fmt.Errorf("open API description: format %d of product %q is not known", f.Format, clip(f.Product, 20))
	}
	return &Doc{product: f.Product, ops: f.Operations}, nil
}

var docStart = &regex.Lazy{Expr: `(?:const|var|let)\s+[A-Za-z_][A-Za-z0-9_]*\s*=\s*\[`}

// ParseApidoc reads the file that a host publishes for its API viewer: a script that begins with a JSON tree. The
// tree is parsed as data, never run, and what follows it is ignored.
func ParseApidoc(product string, b []byte) (*Doc, error) {
	if !slices.Contains(Products(), product) {
		return nil, fmt.Errorf("parse API description: unknown product %q", clip(product, 20))
	}
	if len(b) > maxDoc {
		return nil, fmt.Errorf("parse API description: larger than %d bytes", maxDoc)
	}
	start := bytes.IndexByte(b, '[')
	if at := docStart.FindIndex(b); at != nil {
		start = at[1] - 1
	} else if start < 0 || len(bytes.TrimSpace(b[:start])) > 0 {
		return nil, errors.New("parse API description: no tree found; is this the file apidoc.js?")
	}
	if err := depthWithin(b[start:], maxDocDepth); err != nil {
		return nil, fmt.Errorf("parse API description: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(b[start:]))
	d.UseNumber()
	var tree []docNode
	if err := d.Decode(&tree); err != nil {
		return nil, fmt.Errorf("parse API description: %w", err)
	}
	doc := &Doc{product: product}
	for _, n := range tree {
		if err := doc.take(n); err != nil {
			return nil, fmt.Errorf("parse API description: %w", err)
		}
	}
	if len(doc.ops) == 0 {
		return nil, errors.New("parse API description: it holds no operation")
	}
	sort.Slice(doc.ops, func(i, j int) bool {
		if doc.ops[i].Path != doc.ops[j].Path {
			return doc.ops[i].Path < doc.ops[j].Path
		}
		return doc.ops[i].Method < doc.ops[j].Method
	})
	for i := 1; i < len(doc.ops); i++ {
		if doc.ops[i].Path == doc.ops[i-1].Path && doc.ops[i].Method == doc.ops[i-1].Method {
			return nil, fmt.Errorf("parse API description: %s %s stands twice", doc.ops[i].Method, doc.ops[i].Path)
		}
	}
	return doc, nil
}

// depthWithin checks nesting before anything is decoded, and finds the end of the first value.
func depthWithin(b []byte, limit int) error {
	depth, inText := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '[' || c == '{':
			if depth++; depth > limit {
				return fmt.Errorf("nested deeper than %d", limit)
			}
		case c == ']' || c == '}':
			if depth--; depth == 0 {
				return nil
			}
		}
	}
	return errors.New("the tree is cut off")
}

type docNode struct {
	Path     string               `json:"path"`
	Info     map[string]docMethod `json:"info"`
	Children []docNode            `json:"children"`
}

type docMethod struct {
	Protected  any `json:"protected"`
	AllowToken any `json:"allowtoken"`
	Parameters struct {
		Properties map[string]map[string]any `json:"properties"`
	} `json:"parameters"`
}

var (
	exprDocPart  = &regex.Lazy{Expr: `\A(?:[A-Za-z0-9_-][A-Za-z0-9_.-]*|\{[A-Za-z0-9_-]+\})\z`}
	exprDocParam = &regex.Lazy{Expr: `\A[A-Za-z0-9_.$-]{1,64}(?:\[n\])?\z`}
)

func (d *Doc) take(n docNode) error {
	for method, info := range n.Info {
		if !slices.Contains([]string{"GET", "POST", "PUT", "DELETE"}, method) {
			continue
		}
		for i, part := range strings.Split(n.Path, "/") {
			if i == 0 && part == "" || n.Path == "/" {
				continue
			}
			if i == 0 || i > 20 || !exprDocPart.MatchString(part) {
				return fmt.Errorf("path %s is not of a plain form", quote(n.Path))
			}
		}
		if len(d.ops) >= maxDocOps || len(info.Parameters.Properties) > maxDocParams {
			return fmt.Errorf("more than %d operations or %d parameters", maxDocOps, maxDocParams)
		}
		op := docOp{Path: n.Path, Method: method, Protected: truth(info.Protected),
			NoToken: info.AllowToken != nil && !truth(info.AllowToken), Params: map[string]json.RawMessage{}}
		for name, raw := range info.Parameters.Properties {
			if !exprDocParam.MatchString(name) {
				return fmt.Errorf("parameter %s of %s is not of a plain form", quote(name), quote(n.Path))
			}
			s, err := docSchema(raw, 0)
			if err != nil {
				return fmt.Errorf("parameter %s of %s: %w", name, n.Path, err)
			}
			if op.Params[name], err = json.Marshal(s); err != nil {
				return fmt.Errorf("parameter %s of %s: %w", name, n.Path, err)
			}
		}
		d.ops = append(d.ops, op)
	}
	for _, child := range n.Children {
		if err := d.take(child); err != nil {
			return err
		}
	}
	return nil
}

// truth reads the several ways in which the trees write true and false.
func truth(v any) bool {
	switch x := v.(type) {
	case bool:
		return x
	case json.Number:
		return x.String() != "0"
	case float64:
		return x != 0
	case string:
		return x != "" && x != "0"
	}
	return false
}

// docSchema keeps what a check needs of one value's description, in the form of our own facts.
func docSchema(in map[string]any, depth int) (map[string]any, error) {
	if depth > maxDepth {
		return nil, errors.New("nested too deeply")
	}
	out := map[string]any{}
	for _, key := range []string{"type", "pattern", "requires", "alias", "keyAlias", "type-property"} {
		if text, ok := in[key].(string); ok {
			if len(text) > maxDocText {
				return nil, fmt.Errorf("%s is too long", key)
			}
			if key == "pattern" && len(text) > 1 && text[0] == '/' && text[len(text)-1] == '/' {
				text = text[1 : len(text)-1]
			}
			out[key] = text
		}
	}
	for _, key := range []string{"optional", "default_key"} {
		if truth(in[key]) {
			out[key] = true
		}
	}
	for _, key := range []string{"minimum", "maximum", "minLength", "maxLength"} {
		var text string
		switch x := in[key].(type) {
		case json.Number:
			text = x.String()
		case string:
			text = x
		default:
			continue
		}
		if !isInteger(strings.TrimSuffix(text, ".0")) {
			continue // a limit that cannot be read is no limit; the product has its own
		}
		out[key] = json.Number(strings.TrimSuffix(text, ".0"))
	}
	if list, ok := in["enum"].([]any); ok && len(list) <= maxDocParams {
		var values []any
		for _, e := range list {
			text, ok := plainText(e)
			if !ok || len(text) > 256 || badControl(text, false) != "" {
				return nil, errors.New("an enum value is not plain")
			}
			values = append(values, text)
		}
		out["enum"] = values
	}
	if list, ok := in["instance-types"].([]any); ok {
		out["instance-types"] = words(list)
	}
	if items, ok := in["items"].(map[string]any); ok {
		s, err := docSchema(items, depth+1)
		if err != nil {
			return nil, err
		}
		out["items"] = s
	}
	if props, ok := in["properties"].(map[string]any); ok {
		p, err := docProperties(props, depth)
		if err != nil {
			return nil, err
		}
		out["properties"] = p
	}
	switch f := in["format"].(type) {
	case string:
		if !exprDocParam.MatchString(f) {
			return nil, errors.New("a format's name is not plain")
		}
		out["format"] = f
	case map[string]any:
		format, err := docFormat(f, depth)
		if err != nil {
			return nil, err
		}
		out["format"] = format
	}
	if out["type"] == nil && out["alias"] == nil {
		out["type"] = "string"
	}
	return out, nil
}

// docFormat reads a property string's description: its keys directly, or a schema with properties or items.
func docFormat(f map[string]any, depth int) (map[string]any, error) {
	_, hasItems := f["items"].(map[string]any)
	_, hasProps := f["properties"].(map[string]any)
	if kind, _ := f["type"].(string); kind == "array" && hasItems || kind != "string" && hasProps {
		s, err := docSchema(f, depth+1)
		if err == nil {
			if key, ok := f["default_key"].(string); ok {
				s["default_key"] = key
			}
		}
		return s, err
	}
	p, err := docProperties(f, depth)
	return map[string]any{"properties": p}, err
}

func docProperties(props map[string]any, depth int) (map[string]any, error) {
	if len(props) > maxDocParams {
		return nil, errors.New("too many keys")
	}
	out := map[string]any{}
	for key, v := range props {
		m, ok := v.(map[string]any)
		if !ok {
			continue
		}
		if !exprDocParam.MatchString(key) {
			return nil, fmt.Errorf("key %s is not plain", quote(key))
		}
		s, err := docSchema(m, depth+1)
		if err != nil {
			return nil, err
		}
		out[key] = s
	}
	return out, nil
}

// schema turns the kept form into a facts schema.
func (o *docOp) schema(name string) (*facts.Schema, error) {
	s := &facts.Schema{}
	if err := json.Unmarshal(o.Params[name], s); err != nil {
		return nil, fmt.Errorf("parameter %s of %s %s: %w", name, o.Method, o.Path, err)
	}
	if strings.HasSuffix(name, "[n]") && len(s.Index) != 2 {
		s.Index = []int{0, 255} // the tree does not tell the range; the product refuses what is beyond it
	}
	return s, nil
}
