package proxmox

import (
	"encoding/json"
	"fmt"
)

// maxDepth bounds nesting; the products' answers are a handful deep.
const maxDepth = 1000

// envelope splits {"data":…,"total":…} without decoding the data. The text is checked to be JSON in the same single
// pass: answers can be many megabytes, and are decoded again by whoever uses them.
func envelope(body []byte) (siblings map[string]json.RawMessage, data json.RawMessage, err error) {
	broken := func(at int) error {
		if at >= len(body) {
			return fmt.Errorf("it ends after %d bytes", len(body))
		}
		return fmt.Errorf("it is wrong at byte %d", at)
	}
	at := blank(body, 0)
	if at >= len(body) || body[at] != '{' {
		return nil, nil, broken(at)
	}
	at = blank(body, at+1)
	for first := true; at >= len(body) || body[at] != '}'; first = false {
		if !first {
			if at >= len(body) || body[at] != ',' {
				return nil, nil, broken(at)
			}
			at = blank(body, at+1)
		}
		start := at
		if at = quoted(body, at); at < 0 {
			return nil, nil, broken(start)
		}
		var name string
		if err := json.Unmarshal(body[start:at], &name); err != nil {
			return nil, nil, err
		}
		if at = blank(body, at); at >= len(body) || body[at] != ':' {
			return nil, nil, broken(at)
		}
		start = blank(body, at+1)
		end, bad := value(body, start, 0)
		if bad {
			return nil, nil, broken(end)
		}
		part := json.RawMessage(body[start:end:end])
		if name == "data" {
			data = part
		} else {
			if siblings == nil {
				siblings = map[string]json.RawMessage{}
			}
			siblings[name] = part
		}
		at = blank(body, end)
	}
	if at = blank(body, at+1); at < len(body) {
		return nil, nil, broken(at)
	}
	return siblings, data, nil
}

// blank skips white space.
func blank(b []byte, at int) int {
	for at < len(b) && (b[at] == ' ' || b[at] == '\n' || b[at] == '\t' || b[at] == '\r') {
		at++
	}
	return at
}

// value finds the end of the value that begins at at; bad says that there is none, and end where it is wrong.
func value(b []byte, at, depth int) (end int, bad bool) {
	if at >= len(b) || depth > maxDepth {
		return at, true
	}
	switch c := b[at]; {
	case c == '"':
		if end = quoted(b, at); end < 0 {
			return at, true
		}
		return end, false
	case c == '{', c == '[':
		return container(b, at, depth)
	case c == '-', c >= '0' && c <= '9':
		return number(b, at)
	}
	for _, word := range []string{"null", "true", "false"} {
		if len(b)-at >= len(word) && string(b[at:at+len(word)]) == word {
			return at + len(word), false
		}
	}
	return at, true
}

func container(b []byte, at, depth int) (end int, bad bool) {
	object := b[at] == '{'
	last := byte(']')
	if object {
		last = '}'
	}
	at = blank(b, at+1)
	if at < len(b) && b[at] == last {
		return at + 1, false
	}
	for {
		if object {
			start := at
			if at = quoted(b, at); at < 0 {
				return start, true
			}
			if at = blank(b, at); at >= len(b) || b[at] != ':' {
				return at, true
			}
			at = blank(b, at+1)
		}
		if at, bad = value(b, at, depth+1); bad {
			return at, true
		}
		if at = blank(b, at); at >= len(b) {
			return at, true
		}
		switch b[at] {
		case last:
			return at + 1, false
		case ',':
			at = blank(b, at+1)
		default:
			return at, true
		}
	}
}

// quoted finds the end of a string, -1 when there is none.
func quoted(b []byte, at int) int {
	if at >= len(b) || b[at] != '"' {
		return -1
	}
	for at++; at < len(b); at++ {
		for at < len(b) && b[at] != '"' && b[at] != '\\' && b[at] >= ' ' {
			at++
		}
		if at >= len(b) {
			return -1
		}
		switch c := b[at]; {
		case c == '"':
			return at + 1
		case c < ' ':
			return -1
		case c == '\\':
			at++
			if at >= len(b) {
				return -1
			}
			switch b[at] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					at++
					if at >= len(b) || !hexDigit(b[at]) {
						return -1
					}
				}
			default:
				return -1
			}
		}
	}
	return -1
}

func hexDigit(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func number(b []byte, at int) (end int, bad bool) {
	if at < len(b) && b[at] == '-' {
		at++
	}
	switch {
	case at < len(b) && b[at] == '0':
		at++
	default:
		if at, bad = digits(b, at); bad {
			return at, true
		}
	}
	if at < len(b) && b[at] == '.' {
		if at, bad = digits(b, at+1); bad {
			return at, true
		}
	}
	if at < len(b) && (b[at] == 'e' || b[at] == 'E') {
		at++
		if at < len(b) && (b[at] == '+' || b[at] == '-') {
			at++
		}
		return digits(b, at)
	}
	return at, false
}

func digits(b []byte, at int) (end int, bad bool) {
	start := at
	for at < len(b) && b[at] >= '0' && b[at] <= '9' {
		at++
	}
	return at, at == start
}
