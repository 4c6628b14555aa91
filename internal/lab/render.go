package lab

import (
	"encoding/json"
	"html"
	"sort"
	"strconv"
	"strings"
)

// render gives a value or an error the form that the formatter has for it.
func (c *call) render(v any, err error) *response {
	if err != nil {
		f, ok := err.(*failure)
		if !ok {
			f = die("%s", strings.TrimSuffix(err.Error(), "\n"))
		}
		return c.renderFailure(f)
	}
	res, ok := v.(*result)
	if !ok {
		res = &result{data: v}
	}
	if res.raw != nil {
		if res.delay > 0 {
			res.raw.delay = res.delay
		}
		return res.raw
	}
	a := &response{status: 200, reason: "OK", delay: res.delay}
	b := make([]byte, 0, 512)
	if l, ok := res.data.([]any); ok {
		b = make([]byte, 0, 64+len(l)*400)
	}
	b = append(b, `{"data":`...)
	b = appendJSON(b, res.data)
	if res.total != nil {
		b = appendJSON(append(b, `,"total":`...), res.total)
	}
	if res.changes != nil {
		b = appendJSON(append(b, `,"changes":`...), res.changes)
	}
	switch c.format {
	case "extjs":
		b = append(b, `,"success":1`...)
	case "html":
		return c.htmlAnswer(a, res.data)
	case "png", "htmljs":
		a.ctype = "image/png"
		if c.format == "htmljs" {
			a.ctype = "text/html; charset=UTF-8"
		}
		return a
	case "spiceconfig":
		a.ctype = "application/x-virt-viewer;charset=UTF-8"
		return a
	}
	a.ctype = ctypeJSON
	a.body = append(b, '}')
	return a
}

func (c *call) renderFailure(f *failure) *response {
	first, _, _ := strings.Cut(f.msg, "\n")
	a := &response{status: f.code, reason: first, delay: f.delay}
	if f.bare {
		return a
	}
	if f.plain {
		a.body = []byte(f.msg + "\n")
		return a
	}
	msg := f.msg + "\n"
	if f.code == 501 {
		msg = f.msg
	}
	body := map[string]any{"data": nil, "message": msg}
	if len(f.errors) > 0 {
		errs := map[string]any{}
		for k, v := range f.errors {
			errs[k] = v
		}
		body["errors"] = errs
	}
	switch c.format {
	case "extjs":
		body["success"] = 0
		body["status"] = f.code
		if f.code == 400 || f.code == 403 {
			body["status"] = strconv.Itoa(f.code)
		}
		a.status, a.reason = 200, "OK"
	case "html":
		return c.htmlAnswer(a, msg)
	case "png", "htmljs":
		a.status, a.reason, a.ctype = 200, "OK", "image/png"
		if c.format == "htmljs" {
			a.ctype = "text/html; charset=UTF-8"
		}
		return a
	}
	a.ctype = ctypeJSON
	a.body = appendJSON(nil, body)
	return a
}

func (c *call) htmlAnswer(a *response, data any) *response {
	text, err := json.MarshalIndent(json.RawMessage(appendJSON(nil, data)), "", "   ")
	if err != nil {
		text = nil
	}
	a.ctype = "text/html;charset=UTF-8"
	a.body = []byte("<!DOCTYPE html>\n<html lang=\"en\">\n  <head>\n    <meta charset=\"utf-8\">\n    <title>Proxmox VE API</title>\n  </head>\n  <body>\n    <h1>" +
		html.EscapeString(c.method+" "+c.rel) + "</h1>\n    <pre>" + html.EscapeString(string(text)) + "</pre>\n  </body>\n</html>\n")
	return a
}

type M = map[string]any

// appendJSON is a small encoder for what handlers return. Key order is not defined, as with the genuine API.
func appendJSON(b []byte, v any) []byte {
	switch t := v.(type) {
	case nil:
		return append(b, "null"...)
	case string:
		return appendString(b, t)
	case int:
		return strconv.AppendInt(b, int64(t), 10)
	case int64:
		return strconv.AppendInt(b, t, 10)
	case bool:
		return strconv.AppendBool(b, t)
	case float64:
		return strconv.AppendFloat(b, t, 'g', -1, 64)
	case M:
		b = append(b, '{')
		first := true
		for k, x := range t {
			if !first {
				b = append(b, ',')
			}
			first = false
			b = appendString(b, k)
			b = append(b, ':')
			b = appendJSON(b, x)
		}
		return append(b, '}')
	case row:
		b = append(b, '{')
		for i, c := range t {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, '"')
			b = append(b, c.key...)
			b = append(b, '"', ':')
			b = appendJSON(b, c.val)
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for i, x := range t {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(b, x)
		}
		return append(b, ']')
	case []M:
		b = append(b, '[')
		for i, x := range t {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(b, x)
		}
		return append(b, ']')
	case []string:
		b = append(b, '[')
		for i, x := range t {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, x)
		}
		return append(b, ']')
	case json.RawMessage:
		return append(b, t...)
	}
	enc, err := json.Marshal(v)
	if err != nil {
		return append(b, "null"...)
	}
	return append(b, enc...)
}

func appendString(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= 0x80 {
			enc, err := json.Marshal(s)
			if err != nil {
				return append(b, `""`...)
			}
			return append(b, enc...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
