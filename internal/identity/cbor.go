package identity

import (
	"encoding/binary"
	"errors"
	"unicode/utf8"
)

// The part of CBOR that authenticators write (CTAP2 canonical form): integers, byte and text strings, arrays, maps,
// booleans and null, each with a definite length. All else is refused.

const (
	cborDepth = 6
	cborItems = 1024
)

var errCBOR = errors.New("the CBOR is malformed, or uses what authenticators do not write")

type cborReader struct {
	b     []byte
	items int
}

// cborValue decodes one item and returns what follows it. Values are int64, []byte, string, bool, nil, []any and
// map[any]any with keys int64 or string.
func cborValue(b []byte) (v any, rest []byte, err error) {
	r := &cborReader{b: b}
	v, err = r.value(0)
	return v, r.b, err
}

func (r *cborReader) head() (major byte, n uint64, err error) {
	if len(r.b) == 0 {
		return 0, 0, errCBOR
	}
	major, info := r.b[0]>>5, r.b[0]&31
	r.b = r.b[1:]
	if info < 24 {
		return major, uint64(info), nil
	}
	if info > 27 {
		return 0, 0, errCBOR
	}
	size := 1 << (info - 24)
	if len(r.b) < size {
		return 0, 0, errCBOR
	}
	var buf [8]byte
	copy(buf[8-size:], r.b[:size])
	r.b = r.b[size:]
	n = binary.BigEndian.Uint64(buf[:])
	// The shortest form only, so that a value has one spelling; of floats and simple values none is taken at all.
	if size == 1 && n < 24 || size > 1 && n>>(size*4) == 0 {
		return 0, 0, errCBOR
	}
	return major, n, nil
}

func (r *cborReader) value(depth int) (any, error) {
	if r.items++; depth > cborDepth || r.items > cborItems {
		return nil, errCBOR
	}
	first := byte(0)
	if len(r.b) > 0 {
		first = r.b[0]
	}
	major, n, err := r.head()
	if err != nil {
		return nil, err
	}
	switch major {
	case 0, 1:
		if n > 1<<63-1 {
			return nil, errCBOR
		}
		if major == 1 {
			return -1 - int64(n), nil
		}
		return int64(n), nil
	case 2, 3:
		if n > uint64(len(r.b)) {
			return nil, errCBOR
		}
		s := r.b[:n:n]
		r.b = r.b[n:]
		if major == 2 {
			return s, nil
		}
		if !utf8.Valid(s) {
			return nil, errCBOR
		}
		return string(s), nil
	case 4:
		if n > uint64(len(r.b)) {
			return nil, errCBOR
		}
		out := make([]any, 0, min(n, 64))
		for range n {
			v, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case 5:
		if n > uint64(len(r.b))/2 {
			return nil, errCBOR
		}
		out := make(map[any]any, min(n, 64))
		for range n {
			k, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			switch k.(type) {
			case int64, string:
			default:
				return nil, errCBOR
			}
			if _, twice := out[k]; twice {
				return nil, errCBOR
			}
			if out[k], err = r.value(depth + 1); err != nil {
				return nil, err
			}
		}
		return out, nil
	case 7:
		switch first {
		case 0xf4, 0xf5:
			return first == 0xf5, nil
		case 0xf6:
			return nil, nil
		}
	}
	return nil, errCBOR
}
