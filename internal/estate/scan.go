package estate

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A site's listing holds megabytes of flat rows; reading it with reflection takes most of a call's time. The scanner
// below walks such a list once. It takes valid JSON only, which is what a driver hands on.

var errNoList = errors.New("the answer is no list of flat rows")

// scanner walks over JSON text.
type scanner struct {
	b     []byte
	i     int
	texts map[string]string // texts that come again: nodes, states, tags
}

// rows calls begin, then member for each key and scalar value, then end, for each object of the list. Nested values
// are passed over.
func (s *scanner) rows(begin func(), member func(key []byte, value raw), end func()) error {
	if s.space() != '[' {
		return errNoList
	}
	s.i++
	if s.space() == ']' {
		return nil
	}
	for {
		if s.space() != '{' {
			return errNoList
		}
		s.i++
		begin()
		if err := s.members(member); err != nil {
			return err
		}
		end()
		switch s.space() {
		case ',':
			s.i++
		case ']':
			return nil
		default:
			return errNoList
		}
	}
}

func (s *scanner) members(member func(key []byte, value raw)) error {
	if s.space() == '}' {
		s.i++
		return nil
	}
	for {
		if s.space() != '"' {
			return errNoList
		}
		key, ok := s.text()
		if !ok || s.space() != ':' {
			return errNoList
		}
		s.i++
		value, ok := s.value()
		if !ok {
			return errNoList
		}
		if value != nil {
			member(key[1:len(key)-1], value)
		}
		switch s.space() {
		case ',':
			s.i++
		case '}':
			s.i++
			return nil
		default:
			return errNoList
		}
	}
}

// space goes to the next byte that is no white space and returns it; 0 at the end.
func (s *scanner) space() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; c {
		case ' ', '\n', '\r', '\t':
		default:
			return c
		}
	}
	return 0
}

// text takes one quoted text, quotes included.
func (s *scanner) text() ([]byte, bool) {
	from := s.i
	for s.i++; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '\\':
			s.i++
		case '"':
			s.i++
			return s.b[from:s.i], true
		}
	}
	return nil, false
}

// value takes one value; nil stands for a nested one.
func (s *scanner) value() (raw, bool) {
	switch s.space() {
	case '"':
		t, ok := s.text()
		return t, ok
	case '{', '[':
		return nil, s.nested()
	case 0:
		return nil, false
	}
	from := s.i
	for ; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case ',', '}', ']', ' ', '\n', '\r', '\t':
			return s.b[from:s.i], s.i > from
		}
	}
	return nil, false
}

func (s *scanner) nested() bool {
	depth := 0
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case '"':
			if _, ok := s.text(); !ok {
				return false
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		s.i++
		if depth == 0 {
			return true
		}
	}
	return false
}

// raw is a scalar as it stands in the text.
type raw []byte

// string reads the scalar as text; equal texts share their memory.
func (s *scanner) string(v raw) string {
	if len(v) == 0 || v[0] == 'n' {
		return ""
	}
	if v[0] == '"' {
		v = v[1 : len(v)-1]
		for _, c := range v {
			if c == '\\' {
				var t string
				if json.Unmarshal(append(append([]byte{'"'}, v...), '"'), &t) != nil {
					return ""
				}
				return bounded(t)
			}
		}
	}
	if t, ok := s.texts[string(v)]; ok {
		return t
	}
	t := bounded(string(v))
	if len(s.texts) < 4096 {
		s.texts[t] = t
	}
	return t
}

// bounded holds identifiers to what they may be: no control characters, and no longer than anything that Proxmox
// itself would take as a name or list of tags.
func bounded(t string) string {
	const most = 1024
	if len(t) <= most && strings.IndexFunc(t, odd) < 0 {
		return t
	}
	if len(t) > most {
		t = strings.ToValidUTF8(t[:most], "")
	}
	return strings.Map(func(r rune) rune {
		if odd(r) {
			return '\uFFFD'
		}
		return r
	}, t)
}

func odd(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

func (v raw) bare() []byte {
	if len(v) >= 2 && v[0] == '"' {
		return v[1 : len(v)-1]
	}
	return v
}

// int reads a whole number, however it is written.
func (v raw) int() int64 {
	b := v.bare()
	if len(b) > 0 && len(b) <= 18 {
		n := int64(0)
		for _, c := range b {
			if c < '0' || c > '9' {
				n = -1
				break
			}
			n = n*10 + int64(c-'0')
		}
		if n >= 0 {
			return n
		}
	}
	var n Int
	_ = n.UnmarshalJSON(b) // cannot fail: what is no number counts as 0
	return int64(n)
}

func (v raw) float() float64 {
	f, err := strconv.ParseFloat(string(v.bare()), 64)
	if err != nil {
		return 0
	}
	return f
}

func (v raw) bool() bool {
	b := v.bare()
	return string(b) == "1" || string(b) == "true"
}
