package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"castellan/internal/gate"
	"castellan/internal/ledger"
)

func FuzzEncode(f *testing.F) {
	for _, s := range []string{"", "a", "\x00", "\x01", "\x010", "\xff", "\uFFFD", "a\xc3(", "\x01x0", "ä\x00\xf0\x9f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := encode(s)
		if !utf8.ValidString(e) || strings.Contains(e, "\x00") {
			t.Errorf("%q is written as %q, which PostgreSQL does not take", s, e)
		}
		if back := decode(e); back != s {
			t.Errorf("%q came back as %q", s, back)
		}
		decode(s) // of anything
	})
}

func FuzzParts(f *testing.F) {
	f.Add(packParts([]ledger.Part{{Name: "args", Body: []byte("{}")}, {Name: "x"}}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		parts, err := unpackParts(b, nil)
		if err != nil {
			return
		}
		again, err := unpackParts(packParts(parts), nil)
		if err != nil || len(again) != len(parts) {
			t.Fatalf("%d parts came back as %d, %v", len(parts), len(again), err)
		}
		for i := range parts {
			if parts[i].Name != again[i].Name || parts[i].Salt != again[i].Salt || !bytes.Equal(parts[i].Body, again[i].Body) {
				t.Errorf("part %d changed", i)
			}
		}
	})
}

func FuzzRestore(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	path := filepath.Join(f.TempDir(), "s", "from.db")
	s, err := Open(context.Background(), Config{URL: path, Signer: key})
	if err != nil {
		f.Fatal(err)
	}
	var whole bytes.Buffer
	if _, err := s.Backup(context.Background(), &whole, gate.Principal{Person: "ann"}); err != nil {
		f.Fatal(err)
	}
	s.Close()
	z, err := gzip.NewReader(&whole)
	if err != nil {
		f.Fatal(err)
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(z); err != nil {
		f.Fatal(err)
	}
	good := text.String()
	f.Add(strings.Replace(good, "write", "read", 1))
	f.Add(strings.Replace(good, "state_backup", "state_backed", 1))
	f.Add("{}\n[]\n{}\n")
	empty := filepath.Join(f.TempDir(), "s", "to.db")
	f.Fuzz(func(t *testing.T, text string) {
		var file bytes.Buffer
		w := gzip.NewWriter(&file)
		w.Write([]byte(text))
		w.Close()
		if _, err := Restore(context.Background(), Config{URL: empty, Signer: key}, &file, gate.Principal{}); err == nil {
			t.Errorf("a backup that nobody signed was restored: %.200q", text)
		}
	})
}
