package seal

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

type onlySecret struct{ S Secret }

func TestSecretNeverPrints(t *testing.T) {
	const value = "hunter2-hunter2"
	s := NewSecret([]byte(value))
	type holder struct {
		Public  Secret
		private Secret
		Ptr     *Secret
		M       map[string]Secret
	}
	h := holder{s, s, &s, map[string]Secret{"k": s}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p", "%20s", "%b", "%t"} {
		fmt.Fprintf(&out, verb+"\n", s)
		fmt.Fprintf(&out, verb+"\n", &s)
		fmt.Fprintf(&out, verb+"\n", h)
		fmt.Fprintf(&out, verb+"\n", &h)
		fmt.Fprintf(&out, verb+"\n", []Secret{s})
	}
	fmt.Fprintln(&out, fmt.Errorf("open %v: %w", s, errors.New(s.String())))
	for _, log := range []*slog.Logger{slog.New(slog.NewJSONHandler(&out, nil)), slog.New(slog.NewTextHandler(&out, nil))} {
		log.Info("m", "s", s, "h", h, "p", &s)
	}
	for _, v := range []any{s, h, &h, []any{s}, map[string]any{"x": s}} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		out.Write(b)
	}
	if b, err := xml.Marshal(onlySecret{s}); err != nil {
		t.Error(err)
	} else {
		out.Write(b)
	}
	if err := gob.NewEncoder(&out).Encode(struct{ S Secret }{s}); err != nil {
		t.Error(err)
	}
	template.Must(template.New("").Parse("{{.}} {{printf \"%s\" .}}")).Execute(&out, s)
	out.WriteString(cmp.Diff(s, NewSecret([]byte("other"))))
	for _, form := range []string{value, fmt.Sprintf("%x", value), fmt.Sprintf("%X", value), fmt.Sprint([]byte(value)), "hunter"} {
		if strings.Contains(out.String(), form) {
			t.Errorf("the value shows as %q in:\n%s", form, out.String())
		}
	}
	if s.Reveal() != value || string(s.Bytes()) != value || s.IsZero() || !NewSecret(nil).IsZero() || NewSecret(nil).Reveal() != "" {
		t.Error("the value is not given when asked for")
	}
	if !s.Equal(NewSecret([]byte(value))) || s.Equal(Secret{}) || !(Secret{}).Equal(Secret{}) {
		t.Error("Equal is wrong")
	}
	b := s.Bytes()
	b[0] = 'X'
	if s.Reveal() != value {
		t.Error("the value can be changed from outside")
	}
}

func TestLoad(t *testing.T) {
	p := filepath.Join(t.TempDir(), "f")
	if err := Create(p, []byte("from file\n")); err != nil {
		t.Fatal(err)
	}
	unexpandedFile := filepath.Join(t.TempDir(), "g")
	if err := Create(unexpandedFile, []byte("${TOKEN}\n")); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"V": "from env", "EMPTY": "", "RAW": "${PVE_TOKEN}", "RAW2": "$PVE_TOKEN", "RAW3": "%PVE_TOKEN%", "MONEY": "$5-and-$x{"}
	lookup := func(k string) (string, bool) { v, ok := env[k]; return v, ok }
	for _, tt := range []struct {
		ref             Reference
		want, warn, err string
	}{
		{Reference{"target.a.token", p, ""}, "from file", "", ""},
		{Reference{"target.a.token", p, "V"}, "from file", "V is ignored", ""},
		{Reference{"target.a.token", "", "V"}, "from env", "0600", ""},
		{Reference{"target.a.token", "", "MONEY"}, "$5-and-$x{", "0600", ""},
		{Reference{"target.a.token", "", "NONE"}, "", "", "neither a file nor"},
		{Reference{"target.a.token", "", "EMPTY"}, "", "", "empty"},
		{Reference{"target.a.token", "", "RAW"}, "", "", "not replaced"},
		{Reference{"target.a.token", "", "RAW2"}, "", "", "not replaced"},
		{Reference{"target.a.token", "", "RAW3"}, "", "", "not replaced"},
		{Reference{"target.a.token", "${HOME}/x", ""}, "", "", "not replaced"},
		{Reference{"target.a.token", unexpandedFile, ""}, "", "", "not replaced"},
		{Reference{"target.a.token", p + "x", "V"}, "", "", "no such file"},
	} {
		l, err := Load(tt.ref, lookup)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), "target.a.token") {
				t.Errorf("%+v: got %v", tt.ref, err)
			}
			continue
		}
		if err != nil || l.Reveal() != tt.want || !strings.Contains(l.Warning, tt.warn) || (l.Warning == "") != (tt.warn == "") {
			t.Errorf("%+v: got %q %q %v", tt.ref, l.Reveal(), l.Warning, err)
		}
	}
}

func TestCreateAndReplace(t *testing.T) {
	dir := t.TempDir()
	p := filepath.Join(dir, "f")
	if err := Create(p, []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := Create(p, []byte("two")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second create: %v", err)
	}
	if s, err := Open(p); err != nil || s.Reveal() != "one" {
		t.Errorf("%q %v", s.Reveal(), err)
	}
	if err := Replace(p, []byte("three")); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(p); err != nil || s.Reveal() != "three" {
		t.Errorf("%q %v", s.Reveal(), err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}
}

func TestKeys(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "state", "keys")
	if _, err := OpenKeys(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opening what is not there: %v", err)
	}
	// Several first starts at once agree on one set of keys.
	var wg sync.WaitGroup
	keys := make([]*Keys, 8)
	for i := range keys {
		wg.Go(func() {
			k, err := OpenOrCreateKeys(dir)
			if err != nil {
				t.Error(err)
			}
			keys[i] = k
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	k := keys[0]
	for _, o := range keys[1:] {
		if !k.LedgerPublic().Equal(o.LedgerPublic()) || k.MAC("x") != o.MAC("x") {
			t.Error("two processes have different keys")
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	if runtime.GOOS != "windows" {
		filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if info, _ := d.Info(); info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v", p, info.Mode())
			}
			return nil
		})
	}
	if _, err := CreateKeys(dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("keys were made twice: %v", err)
	}
	for _, s := range []string{fmt.Sprintf("%+v", k.Ledger()), fmt.Sprintf("%#v", k.Ledger())} {
		if strings.Contains(s, fmt.Sprint(k.ledger.Seed()[:4])) {
			t.Errorf("the signer prints its key: %s", s)
		}
	}
	if pem, err := k.LedgerPublicPEM(); err != nil || !strings.HasPrefix(pem, "-----BEGIN PUBLIC KEY-----") {
		t.Errorf("%s %v", pem, err)
	}

	for _, name := range []string{ledgerFile, sealFile, macFile} {
		t.Run("without "+name, func(t *testing.T) {
			p := filepath.Join(dir, name)
			b, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			os.Remove(p)
			if _, err := OpenOrCreateKeys(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v", err)
			}
			for _, bad := range []string{"", "rubbish", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
				os.WriteFile(p, []byte(bad), 0o600)
				if _, err := OpenOrCreateKeys(dir); err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("%q: got %v", bad, err)
				}
			}
			os.WriteFile(p, b, 0o600)
			if o, err := OpenKeys(dir); err != nil || !o.LedgerPublic().Equal(k.LedgerPublic()) {
				t.Errorf("after putting it back: %v", err)
			}
		})
	}
	t.Run("an open directory", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("modes are those of unix")
		}
		os.Chmod(dir, 0o750)
		defer os.Chmod(dir, 0o700)
		if _, err := OpenKeys(dir); !errors.Is(err, ErrExposed) || !strings.Contains(err.Error(), "chmod 700") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a file in the way is left alone", func(t *testing.T) {
		p := filepath.Join(parent, "file")
		os.WriteFile(p, []byte("x"), 0o600)
		if _, err := OpenOrCreateKeys(p); err == nil {
			t.Error("no error")
		}
		if b, _ := os.ReadFile(p); string(b) != "x" {
			t.Error("the file was changed")
		}
	})
	t.Run("rotation", func(t *testing.T) {
		old := k.LedgerPublic()
		next, err := k.BeginRotation()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.BeginRotation(); err == nil {
			t.Error("two rotations at once")
		}
		o, err := OpenKeys(dir)
		if err != nil || o.NextLedger() == nil || !o.LedgerPublic().Equal(old) {
			t.Fatalf("after a crash in between: %v", err)
		}
		if err := o.AbandonRotation(); err != nil || o.NextLedger() != nil {
			t.Error(err)
		}
		k, _ = OpenKeys(dir)
		next, err = k.BeginRotation()
		if err != nil {
			t.Fatal(err)
		}
		if err := k.FinishRotation(); err != nil {
			t.Fatal(err)
		}
		o, err = OpenKeys(dir)
		if err != nil || !o.LedgerPublic().Equal(next.Public()) || o.NextLedger() != nil || o.LedgerPublic().Equal(old) {
			t.Errorf("after the rotation: %v", err)
		}
	})
}

func testKeys(t testing.TB) *Keys {
	t.Helper()
	k, err := CreateKeys(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSealUnseal(t *testing.T) {
	k, other := testKeys(t), testKeys(t)
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SliceOf(rapid.Byte()).Draw(t, "value")
		ctx := rapid.SliceOf(rapid.String()).Draw(t, "context")
		box, err := k.Seal(NewSecret(value), "plan secret", ctx...)
		if err != nil {
			t.Fatal(err)
		}
		if len(value) > 8 && bytes.Contains(box, value) {
			t.Fatal("the value stands in the box")
		}
		got, err := k.Unseal(box, "plan secret", ctx...)
		if err != nil || !bytes.Equal(got.Bytes(), value) && len(value) > 0 {
			t.Fatalf("%q %v", got.Bytes(), err)
		}
		for name, open := range map[string]func() (Secret, error){
			"other purpose": func() (Secret, error) { return k.Unseal(box, "plan secret2", ctx...) },
			"other context": func() (Secret, error) { return k.Unseal(box, "plan secret", append(ctx, "")...) },
			"other key":     func() (Secret, error) { return other.Unseal(box, "plan secret", ctx...) },
			"changed": func() (Secret, error) {
				b := bytes.Clone(box)
				b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= 1
				return k.Unseal(b, "plan secret", ctx...)
			},
			"cut": func() (Secret, error) {
				return k.Unseal(box[:rapid.IntRange(0, len(box)-1).Draw(t, "to")], "plan secret", ctx...)
			},
		} {
			if _, err := open(); !errors.Is(err, ErrUnseal) {
				t.Fatalf("%s: %v", name, err)
			}
		}
		again, _ := k.Seal(NewSecret(value), "plan secret", ctx...)
		if bytes.Equal(box, again) {
			t.Fatal("two boxes are alike")
		}
	})
}

func TestMACAndTokens(t *testing.T) {
	k := testKeys(t)
	m := k.MAC("cursor", "a", "bc")
	if !k.CheckMAC(m[:], "cursor", "a", "bc") {
		t.Error("a good MAC is refused")
	}
	for _, texts := range [][]string{{"ab", "c"}, {"abc"}, {"a", "bc", ""}, {"", "a", "bc"}, nil} {
		if k.CheckMAC(m[:], "cursor", texts...) {
			t.Errorf("%q has the same MAC", texts)
		}
	}
	if k.CheckMAC(m[:], "other", "a", "bc") || k.CheckMAC(nil, "cursor", "a", "bc") {
		t.Error("a bad MAC is taken")
	}
	if k.Derive("a").Equal(k.Derive("b")) || !k.Derive("a").Equal(k.Derive("a")) {
		t.Error("derived keys are not one per purpose")
	}

	tok, hash, err := NewToken("apply", "plan-1", "digest")
	if err != nil || len(tok.Reveal()) != 24 {
		t.Fatal(tok.Reveal(), err)
	}
	if !CheckToken(tok.Reveal(), hash, "apply", "plan-1", "digest") {
		t.Error("a good token is refused")
	}
	if CheckToken(tok.Reveal(), hash, "apply", "plan-2", "digest") || CheckToken(tok.Reveal(), hash, "undo", "plan-1", "digest") ||
		CheckToken(tok.Reveal()+"x", hash, "apply", "plan-1", "digest") || CheckToken("", hash, "apply", "plan-1", "digest") || CheckToken(tok.Reveal(), "", "apply", "plan-1", "digest") {
		t.Error("a token is good for something else")
	}

	c, err := Commit([]byte("v"))
	if err != nil || !c.Opens([]byte("v")) || c.Opens([]byte("w")) || c.Opens(nil) {
		t.Error("commitment", err)
	}
}
