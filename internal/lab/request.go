package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"time"

	"castellan/internal/regex"
)

// request is one call as it came from the wire.
type request struct {
	method string
	target string // request target, undecoded
	header http.Header
	body   []byte
	via    string // the node that took the connection; empty: the first
	host   string
}

type cut int

const (
	cutNone cut = iota
	cutBefore
	cutHalf
)

// response is one answer as it goes to the wire.
type response struct {
	status  int
	reason  string
	ctype   string
	header  map[string]string
	body    []byte
	gzipped bool
	delay   time.Duration
	cut     cut
	stream  bool // no length is told: the end of the connection is the end of the body
}

const ctypeJSON = "application/json;charset=UTF-8"

func bareAnswer(code int, reason string) *response { return &response{status: code, reason: reason} }

func plainAnswer(code int, text string) *response {
	return &response{status: code, reason: strings.SplitN(text, "\n", 2)[0], body: []byte(text)}
}

var uriForm = &regex.Lazy{Expr: `^/api2/+([a-z][a-z0-9]+)(/.*)?$`}

// formatters that the genuine server knows, each with what it does for a write.
var formatters = map[string]bool{"json": true, "extjs": true, "html": true, "htmljs": true, "png": true, "spiceconfig": true}

// unescape decodes as the genuine server does: the whole path at once, bad escapes left alone.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			b.WriteByte(unhex(s[i+1])<<4 | unhex(s[i+2]))
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c >= 'a':
		return c - 'a' + 10
	case c >= 'A':
		return c - 'A' + 10
	}
	return c - '0'
}

// splitTarget gives the decoded path and the raw query.
func splitTarget(target string) (path, query string) {
	if strings.HasPrefix(target, "http://") || strings.HasPrefix(target, "https://") {
		if u, err := url.Parse(target); err == nil {
			target = u.RequestURI()
		}
	}
	target, _, _ = strings.Cut(target, "#")
	raw, query, _ := strings.Cut(target, "?")
	return unescape(raw), query
}

// null is a JSON null that was sent as the value of a parameter: there, yet undefined.
type null struct{}

// object is a JSON object sent as a parameter's value.
type object struct{}

// addPair collects form pairs; a repeated key becomes a list.
func addPair(into map[string]any, key string, val any) {
	old, ok := into[key]
	if !ok {
		into[key] = val
		return
	}
	if l, ok := old.([]any); ok {
		into[key] = append(l, val)
		return
	}
	into[key] = []any{old, val}
}

func parseForm(text string) map[string]any {
	out := map[string]any{}
	for _, pair := range strings.FieldsFunc(text, func(r rune) bool { return r == '&' || r == ';' }) {
		key, val, has := strings.Cut(pair, "=")
		key = unescape(strings.ReplaceAll(key, "+", " "))
		if key == "" {
			continue
		}
		if !has {
			// A name without "=" is there but undefined, so it is as good as not sent.
			if _, ok := out[key]; !ok {
				out[key] = null{}
			}
			continue
		}
		val, _, _ = strings.Cut(val, "=") // a second unencoded "=" cuts the rest off
		v := unescape(strings.ReplaceAll(val, "+", " "))
		if _, isNull := out[key].(null); isNull {
			out[key] = v
			continue
		}
		addPair(out, key, v)
	}
	return out
}

// parseJSON reads a JSON body as the Perl server would; the failure texts are those of its parser.
func parseJSON(body []byte) (map[string]any, *failure) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, jsonFailure(body)
	}
	m, ok := v.(map[string]any)
	if !ok {
		what := "Not a HASH reference at /usr/share/perl5/PVE/APIServer/AnyEvent.pm line 978."
		if _, list := v.([]any); !list {
			what = "malformed JSON string, neither tag, array, object, number, string or atom, at character offset 0 (before \"" + clip(string(body)) + "\") at /usr/share/perl5/PVE/APIServer/AnyEvent.pm line 934."
		}
		return nil, &failure{code: 500, msg: what, plain: true}
	}
	out := make(map[string]any, len(m))
	for k, x := range m {
		out[k] = plainValue(x)
	}
	return out, nil
}

func plainValue(x any) any {
	switch t := x.(type) {
	case nil:
		return null{}
	case json.Number:
		return string(t)
	case []any:
		l := make([]any, len(t))
		for i := range t {
			l[i] = plainValue(t[i])
		}
		return l
	case map[string]any:
		return object{}
	}
	return x
}

func clip(s string) string {
	if len(s) > 20 {
		return s[:20] + "..."
	}
	return s
}

// jsonFailure tells a syntax error in the words of the Perl parser.
func jsonFailure(body []byte) *failure {
	const at = " at /usr/share/perl5/PVE/APIServer/AnyEvent.pm line 934."
	text := string(body)
	say := func(what string, off int) *failure {
		rest := "(end of string)"
		if off < len(text) {
			rest = text[off:]
			if len(rest) > 20 {
				rest = rest[:20] + "..."
			}
		}
		return &failure{code: 500, plain: true, msg: fmt.Sprintf("%s, at character offset %d (before %q)", what, off, rest) + at}
	}
	trimmed := strings.TrimLeft(text, " \t\r\n")
	off := len(text) - len(trimmed)
	if strings.HasPrefix(trimmed, "{") {
		in := strings.TrimLeft(trimmed[1:], " \t\r\n")
		if !strings.HasPrefix(in, "\"") && !strings.HasPrefix(in, "}") {
			return say("'\"' expected", len(text)-len(in))
		}
		var se *json.SyntaxError
		err := json.Unmarshal(body, new(any))
		if e, ok := err.(*json.SyntaxError); ok {
			se = e
		}
		pos := len(text)
		if se != nil && int(se.Offset) <= len(text) && int(se.Offset) > 0 && !strings.Contains(se.Error(), "unexpected end") {
			pos = int(se.Offset) - 1
		}
		if pos >= len(text) {
			return say(", or ]/} expected while parsing object/array", pos)
		}
		return say("malformed JSON string, neither tag, array, object, number, string or atom", pos)
	}
	return say("malformed JSON string, neither tag, array, object, number, string or atom", off)
}

// upload is a file sent as multipart/form-data.
type upload struct {
	name string
	size int64
	data []byte
}

func parseMultipart(ctype string, body []byte) (map[string]any, *upload, error) {
	_, pars, err := mime.ParseMediaType(ctype)
	if err != nil || pars["boundary"] == "" {
		return nil, nil, fmt.Errorf("read upload: no boundary")
	}
	out := map[string]any{}
	var up *upload
	rd := multipart.NewReader(bytes.NewReader(body), pars["boundary"])
	for i := 0; i < 100; i++ {
		p, err := rd.NextPart()
		if err != nil {
			break
		}
		var b bytes.Buffer
		if _, err := b.ReadFrom(p); err != nil {
			break
		}
		if p.FileName() != "" {
			up = &upload{name: p.FileName(), size: int64(b.Len()), data: b.Bytes()}
			out["filename"] = p.FileName()
			continue
		}
		addPair(out, p.FormName(), b.String())
	}
	return out, up, nil
}
