package estate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Int is a whole number as the servers write it: as number or as text, in scientific notation, or null (0).
type Int int64

// UnmarshalJSON takes every form in which a server writes a whole number; what is none counts as 0.
func (n *Int) UnmarshalJSON(b []byte) error {
	text := unquote(b)
	if v, err := strconv.ParseInt(text, 10, 64); err == nil {
		*n = Int(v)
		return nil
	}
	*n = 0
	f, _, err := big.ParseFloat(text, 10, 128, big.ToNearestEven)
	if err != nil {
		return nil //nolint:nilerr // a missing or odd figure must not lose the row that it stands in
	}
	if v, acc := f.Int64(); acc == big.Exact || math.Abs(float64(v)) < math.MaxInt64 {
		*n = Int(v)
	}
	return nil
}

// Float is a figure that may be whole, fractional, text or null.
type Float float64

// UnmarshalJSON takes numbers, numbers as text, and null.
func (f *Float) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseFloat(unquote(b), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	*f = Float(v)
	return nil
}

// Bool is 0, 1, "0", "1", "", true, false or null.
type Bool bool

// UnmarshalJSON takes all of them.
func (v *Bool) UnmarshalJSON(b []byte) error {
	switch unquote(b) {
	case "1", "true":
		*v = true
	default:
		*v = false
	}
	return nil
}

// Text is a text that may come as number.
type Text string

// UnmarshalJSON takes text, numbers, booleans and null.
func (t *Text) UnmarshalJSON(b []byte) error {
	*t = Text(unquote(b))
	return nil
}

func unquote(b []byte) string {
	b = bytes.TrimSpace(b)
	if len(b) == 0 || string(b) == "null" {
		return ""
	}
	if b[0] == '"' {
		var s string
		if json.Unmarshal(b, &s) == nil {
			return s
		}
	}
	return string(b)
}

// Config is one object's settings as text by key, whatever types the server chose.
type Config map[string]string

// ParseConfig reads a flat JSON object; nested values stay JSON text.
func ParseConfig(data json.RawMessage) (Config, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	c := make(Config, len(raw))
	for k, v := range raw {
		switch string(bytes.TrimSpace(v)) {
		case "null":
		case "true": // as the products in Rust write a switch; the others write 1
			c[k] = "1"
		case "false":
			c[k] = "0"
		default:
			c[k] = unquote(v)
		}
	}
	return c, nil
}

// What parts the settings within the text that join makes.
const (
	afterValue = "\x00"
	afterKey   = "\x01"
)

// join puts a copy of the settings into one piece of memory, each value before its key: a site has thousands of
// settings, and most questions are where something stands in any of them. The text is empty when a value or a key holds
// what parts them.
func (c Config) join() (Config, string) {
	keys, size, plain := make([]string, 0, len(c)), 0, true
	for k, v := range c {
		keys = append(keys, k)
		size += len(v) + len(k) + 2
		plain = plain && !strings.ContainsAny(v, afterValue+afterKey) && !strings.ContainsAny(k, afterValue+afterKey)
	}
	var b strings.Builder
	b.Grow(size)
	for _, k := range keys {
		b.WriteString(c[k])
		b.WriteString(afterValue)
		b.WriteString(k)
		b.WriteString(afterKey)
	}
	all, out, at := b.String(), make(Config, len(c)), 0
	for _, k := range keys {
		value := all[at : at+len(c[k])]
		at += len(value) + 1
		out[all[at:at+len(k)]] = value
		at += len(k) + 1
	}
	if !plain {
		all = ""
	}
	return out, all
}

// On says whether an option is on; options that hide a boolean in a property string count too ("1,fstrim=1",
// "enabled=1"). An absent one is off.
func (c Config) On(key string) bool {
	first, _, _ := strings.Cut(c[key], ",")
	first = strings.TrimPrefix(strings.TrimSpace(first), "enabled=")
	return first == "1"
}
