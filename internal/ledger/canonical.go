package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxSafe is the largest integer that every JSON reader keeps exactly (2^53-1).
const maxSafe = 1<<53 - 1

const maxDepth = 32

// Canonical encodes v as canonical JSON: RFC 8785 without floating point.
// Keys are sorted by UTF-16 code units, there is no white space, strings are
// escaped only where JSON demands it, and integers beyond ±(2^53-1) become
// strings. It takes nil, bool, string, every integer type, json.Number holding
// an integer, []any, []string, map[string]any and map[string]string; anything
// else, a float and invalid UTF-8 are errors.
func Canonical(v any) ([]byte, error) {
	return appendCanonical(nil, v, 0)
}

func appendCanonical(b []byte, v any, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, errors.New("encode canonical JSON: nested too deeply")
	}
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case string:
		return appendString(b, v)
	case int:
		return appendInt(b, int64(v)), nil
	case int8:
		return appendInt(b, int64(v)), nil
	case int16:
		return appendInt(b, int64(v)), nil
	case int32:
		return appendInt(b, int64(v)), nil
	case int64:
		return appendInt(b, v), nil
	case uint:
		return appendUint(b, uint64(v)), nil
	case uint8:
		return appendInt(b, int64(v)), nil
	case uint16:
		return appendInt(b, int64(v)), nil
	case uint32:
		return appendInt(b, int64(v)), nil
	case uint64:
		return appendUint(b, v), nil
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return appendInt(b, n), nil
		}
		if n, err := strconv.ParseUint(string(v), 10, 64); err == nil {
			return appendUint(b, n), nil
		}
		return nil, fmt.Errorf("encode canonical JSON: %q is not an integer of 64 bits", string(v))
	case []string:
		return appendList(b, len(v), depth, func(i int) any { return v[i] })
	case []any:
		return appendList(b, len(v), depth, func(i int) any { return v[i] })
	case map[string]string:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		return appendObject(b, keys, depth, func(k string) any { return v[k] })
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		return appendObject(b, keys, depth, func(k string) any { return v[k] })
	}
	return nil, fmt.Errorf("encode canonical JSON: a %T has no canonical form", v)
}

func appendInt(b []byte, n int64) []byte {
	if n > maxSafe || n < -maxSafe {
		return append(strconv.AppendInt(append(b, '"'), n, 10), '"')
	}
	return strconv.AppendInt(b, n, 10)
}

func appendUint(b []byte, n uint64) []byte {
	if n > math.MaxInt64 {
		return append(strconv.AppendUint(append(b, '"'), n, 10), '"')
	}
	return appendInt(b, int64(n))
}

func appendList(b []byte, n, depth int, at func(int) any) ([]byte, error) {
	b = append(b, '[')
	var err error
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendCanonical(b, at(i), depth+1); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func appendObject(b []byte, keys []string, depth int, at func(string) any) ([]byte, error) {
	sort.Slice(keys, func(i, j int) bool { return lessUTF16(keys[i], keys[j]) })
	b = append(b, '{')
	var err error
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendString(b, k); err != nil {
			return nil, err
		}
		b = append(b, ':')
		if b, err = appendCanonical(b, at(k), depth+1); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// lessUTF16 orders as RFC 8785 does. It differs from byte order only where a
// character beyond the basic plane (a surrogate pair, 0xD800..0xDFFF) meets one
// of U+E000..U+FFFF.
func lessUTF16(a, b string) bool {
	for a != "" && b != "" {
		ra, na := utf8.DecodeRuneInString(a)
		rb, nb := utf8.DecodeRuneInString(b)
		if ra != rb {
			if (ra > 0xFFFF) != (rb > 0xFFFF) {
				if ra > 0xFFFF {
					return rb >= 0xE000
				}
				return ra < 0xE000
			}
			return ra < rb
		}
		a, b = a[na:], b[nb:]
	}
	return a == "" && b != ""
}

const hexDigits = "0123456789abcdef"

func appendString(b []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return nil, errors.New("encode canonical JSON: text is not valid UTF-8")
	}
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, '\\', 'b')
		case '\f':
			b = append(b, '\\', 'f')
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(b, s[from:]...), '"'), nil
}

// errCanonical is deliberately without detail: what is not canonical was not
// written by us, and where it differs does not matter.
var errCanonical = errors.New("not canonical JSON")

// scanner walks canonical JSON and refuses everything else, so that one text
// has one meaning. It allocates nothing.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) next() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// str returns the raw text between the quotes and whether it holds escapes.
func (s *scanner) str() (raw []byte, escaped bool, err error) {
	if !s.take('"') {
		return nil, false, errCanonical
	}
	from, high := s.i, false
	for s.i < len(s.b) {
		c := s.b[s.i]
		switch {
		case c == '"':
			raw = s.b[from:s.i]
			s.i++
			if high && !utf8.Valid(raw) {
				return nil, false, errCanonical
			}
			return raw, escaped, nil
		case c < 0x20:
			return nil, false, errCanonical
		case c == '\\':
			escaped = true
			n := escapeLen(s.b[s.i:])
			if n == 0 {
				return nil, false, errCanonical
			}
			s.i += n
		default:
			high = high || c >= 0x80
			s.i++
		}
	}
	return nil, false, errCanonical
}

// escapeLen is the length of the canonical escape at the start of b, 0 for any
// other.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 || b[2] != '0' || b[3] != '0' || (b[4] != '0' && b[4] != '1') {
			return 0
		}
		low := strings.IndexByte(hexDigits, b[5])
		if low < 0 {
			return 0
		}
		// The five that have a short escape must use it.
		if b[4] == '0' && (low == 8 || low == 9 || low == 10 || low == 12 || low == 13) {
			return 0
		}
		return 6
	}
	return 0
}

// unescape turns the raw text of a canonical string into its value.
func unescape(raw []byte) string {
	var out strings.Builder
	out.Grow(len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			out.WriteByte(raw[i])
			continue
		}
		i++
		switch raw[i] {
		case 'b':
			out.WriteByte('\b')
		case 'f':
			out.WriteByte('\f')
		case 'n':
			out.WriteByte('\n')
		case 'r':
			out.WriteByte('\r')
		case 't':
			out.WriteByte('\t')
		case 'u':
			hi := raw[i+3] - '0'
			lo := strings.IndexByte(hexDigits, raw[i+4])
			out.WriteByte(hi<<4 | byte(lo))
			i += 4
		default:
			out.WriteByte(raw[i])
		}
	}
	return out.String()
}

func text(raw []byte, escaped bool) string {
	if escaped {
		return unescape(raw)
	}
	return string(raw)
}

func (s *scanner) int() (int64, error) {
	from := s.i
	s.take('-')
	digits := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	if s.i == digits || s.i-digits > 16 || (s.b[digits] == '0' && (s.i-digits > 1 || digits > from)) {
		return 0, errCanonical
	}
	n, err := strconv.ParseInt(string(s.b[from:s.i]), 10, 64)
	if err != nil || n > maxSafe || n < -maxSafe {
		return 0, errCanonical
	}
	return n, nil
}

func (s *scanner) word(w string) error {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		return errCanonical
	}
	s.i += len(w)
	return nil
}

// object calls member for each key in order; member must consume the value.
func (s *scanner) object(member func(raw []byte, escaped bool) error) error {
	if !s.take('{') {
		return errCanonical
	}
	if s.take('}') {
		return nil
	}
	var last []byte
	var lastEscaped, have bool
	for {
		key, escaped, err := s.str()
		if err != nil {
			return err
		}
		if have && !keyBefore(last, lastEscaped, key, escaped) {
			return errCanonical
		}
		last, lastEscaped, have = key, escaped, true
		if !s.take(':') {
			return errCanonical
		}
		if err := member(key, escaped); err != nil {
			return err
		}
		if s.take(',') {
			continue
		}
		if s.take('}') {
			return nil
		}
		return errCanonical
	}
}

func keyBefore(a []byte, aEscaped bool, b []byte, bEscaped bool) bool {
	if !aEscaped && !bEscaped && isASCII(a) && isASCII(b) {
		return string(a) < string(b)
	}
	return lessUTF16(text(a, aEscaped), text(b, bEscaped))
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= 0x80 {
			return false
		}
	}
	return true
}

func (s *scanner) value(depth int) error {
	if depth > maxDepth {
		return errCanonical
	}
	switch c := s.next(); {
	case c == '"':
		_, _, err := s.str()
		return err
	case c == '{':
		return s.object(func([]byte, bool) error { return s.value(depth + 1) })
	case c == '[':
		s.i++
		if s.take(']') {
			return nil
		}
		for {
			if err := s.value(depth + 1); err != nil {
				return err
			}
			if s.take(',') {
				continue
			}
			if s.take(']') {
				return nil
			}
			return errCanonical
		}
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	case c == '-' || c >= '0' && c <= '9':
		_, err := s.int()
		return err
	}
	return errCanonical
}
