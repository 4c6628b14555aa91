package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
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
