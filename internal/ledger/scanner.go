package ledger

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

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
