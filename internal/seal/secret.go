// Package seal keeps secrets: values that never print, secret files, the key
// directory, sealed boxes, one-use tokens, commitments, and the redaction of
// text that may hold secrets of others.
package seal

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
)

// Mask stands wherever a Secret would have been printed.
const Mask = "[secret]"

// Secret is a value that never prints: not by fmt with any verb, nor as JSON or
// text, nor in a log, nor as an unexported field of a printed struct (it is
// held in a closure, which printing by reflection does not open). Only Reveal
// and Bytes give it away. The zero Secret is empty.
type Secret struct{ get func() []byte }

// NewSecret copies value.
func NewSecret(value []byte) Secret {
	if len(value) == 0 {
		return Secret{}
	}
	v := append([]byte(nil), value...)
	return Secret{get: func() []byte { return v }}
}

// Reveal returns the value as text.
func (s Secret) Reveal() string {
	if s.get == nil {
		return ""
	}
	return string(s.get())
}

// Bytes returns a copy of the value.
func (s Secret) Bytes() []byte {
	if s.get == nil {
		return nil
	}
	return append([]byte(nil), s.get()...)
}

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s.get == nil }

// Equal compares in constant time (for equal lengths).
func (s Secret) Equal(o Secret) bool {
	var a, b []byte
	if s.get != nil {
		a = s.get()
	}
	if o.get != nil {
		b = o.get()
	}
	return subtle.ConstantTimeCompare(a, b) == 1
}

// String implements fmt.Stringer.
func (Secret) String() string { return Mask }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return Mask }

// Format implements fmt.Formatter for every verb and flag.
func (Secret) Format(f fmt.State, _ rune) { io.WriteString(f, Mask) }

// MarshalJSON implements json.Marshaler.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + Mask + `"`), nil }

// MarshalText implements encoding.TextMarshaler (TOML, XML, map keys).
func (Secret) MarshalText() ([]byte, error) { return []byte(Mask), nil }

// MarshalBinary implements encoding.BinaryMarshaler (gob).
func (Secret) MarshalBinary() ([]byte, error) { return []byte(Mask), nil }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue(Mask) }
