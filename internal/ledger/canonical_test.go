package ledger_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf16"

	"castellan/internal/ledger"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestCanonical(t *testing.T) {
	for _, tt := range []struct {
		in   any
		want string
	}{
		{nil, "null"},
		{true, "true"},
		{-7, "-7"},
		{int64(1)<<53 - 1, "9007199254740991"},
		{int64(1) << 53, `"9007199254740992"`},
		{int64(math.MinInt64), `"-9223372036854775808"`},
		{uint64(math.MaxUint64), `"18446744073709551615"`},
		{json.Number("12"), "12"},
		{json.Number("18446744073709551615"), `"18446744073709551615"`},
		{"", `""`},
		{"a\"\\/\b\f\n\r\t\x00\x1f\x7f<>&\u2028é\U0001F600", "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\x7f<>&\u2028é\U0001F600\""},
		{[]any{}, "[]"},
		{[]string{"b", "a"}, `["b","a"]`},
		{map[string]any{}, "{}"},
		// The order of RFC 8785, section 3.2.3: by UTF-16 code units.
		{map[string]string{"\u20ac": "Euro", "\r": "CR", "\ufb33": "Dalet", "1": "One", "\U0001F600": "Emoji", "\u0080": "Control", "\u00f6": "o"},
			"{\"\\r\":\"CR\",\"1\":\"One\",\"\u0080\":\"Control\",\"\u00f6\":\"o\",\"\u20ac\":\"Euro\",\"\U0001F600\":\"Emoji\",\"\ufb33\":\"Dalet\"}"},
		{map[string]any{"b": []any{1, nil}, "a": map[string]any{"z": false}}, `{"a":{"z":false},"b":[1,null]}`},
	} {
		got, err := ledger.Canonical(tt.in)
		if err != nil || string(got) != tt.want {
			t.Errorf("%#v: got %s %v, want %s", tt.in, got, err, tt.want)
		}
	}
	deep := any(1)
	for range 50 {
		deep = []any{deep}
	}
	for _, in := range []any{1.5, float32(1), json.Number("1.5"), json.Number("1e3"), json.Number("99999999999999999999"), "\xff", map[string]any{"\xff": 1}, struct{}{}, []int{1}, deep} {
		if got, err := ledger.Canonical(in); err == nil {
			t.Errorf("%#v became %s", in, got)
		}
	}
}

// anyJSON draws values that have a canonical form.
func anyJSON(depth int) *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int64Range(-1<<53+1, 1<<53-1).AsAny(),
		rapid.String().AsAny(), rapid.SampledFrom([]any{"\U00010000", "\uffff", "\ue000", "\ud7ff", "\x00", "\""}))
	if depth == 0 {
		return leaf
	}
	return rapid.OneOf(leaf,
		rapid.SliceOfN(anyJSON(depth-1), 0, 4).AsAny(),
		rapid.MapOfN(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"\U00010000", "\uffff", "\ue000", "a"})), anyJSON(depth-1), 0, 5).AsAny())
}

func TestCanonicalProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyJSON(3).Draw(t, "v")
		b, err := ledger.Canonical(v)
		if err != nil {
			t.Fatal(err)
		}
		var back any
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		if err := d.Decode(&back); err != nil {
			t.Fatalf("%s is no JSON: %v", b, err)
		}
		again, err := ledger.Canonical(back)
		if err != nil || !bytes.Equal(b, again) {
			t.Fatalf("%s became %s (%v)", b, again, err)
		}
		checkOrder(t, b)
	})
}

// checkOrder compares the order of all keys with one taken from UTF-16 itself.
func checkOrder(t *rapid.T, b []byte) {
	d := json.NewDecoder(bytes.NewReader(b))
	type level struct {
		object, value bool
		last          []uint16
		have          bool
	}
	var stack []*level
	for {
		tok, err := d.Token()
		if err != nil {
			return
		}
		top := func() *level {
			if len(stack) == 0 {
				return &level{}
			}
			return stack[len(stack)-1]
		}
		switch tok := tok.(type) {
		case json.Delim:
			switch tok {
			case '{', '[':
				top().value = false
				stack = append(stack, &level{object: tok == '{'})
			default:
				stack = stack[:len(stack)-1]
			}
			continue
		case string:
			if l := top(); l.object && !l.value {
				u := utf16.Encode([]rune(tok))
				if l.have && cmpUTF16(l.last, u) >= 0 {
					t.Fatalf("keys out of order in %s", b)
				}
				l.last, l.have, l.value = u, true, true
				continue
			}
		}
		top().value = false
	}
}

func cmpUTF16(a, b []uint16) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return int(a[i]) - int(b[i])
		}
	}
	return len(a) - len(b)
}

func TestParseHeader(t *testing.T) {
	good := `{"actor":"é\n","data":{"a":[1,"x",null]},"kind":"plan","parts":{"args":"` + strings.Repeat("0a", 32) + `"},"seq":7,"tree":"read","ts":"2026-01-02T03:04:05.000000Z","v":1}`
	h, err := ledger.ParseHeader([]byte(good))
	if err != nil || h.Actor != "é\n" || h.Seq != 7 || h.Tree != ledger.Read || string(h.Data) != `{"a":[1,"x",null]}` || len(h.Parts) != 1 {
		t.Fatalf("%+v %v", h, err)
	}
	m, err := h.Fields()
	if d := cmp.Diff(map[string]any{"a": []any{json.Number("1"), "x", nil}}, m); d != "" || err != nil {
		t.Error(d, err)
	}
	for _, r := range [][2]string{
		{`"kind":"plan",`, ``}, {`"kind":"plan"`, `"kind":""`}, {`"kind":"plan"`, `"kind":1`}, {`"kind":"plan"`, `"kind" :"plan"`}, {`"kind":"plan",`, `"kind":"plan","kind":"plan",`},
		{`"v":1`, `"v":2`}, {`,"v":1`, ``}, {`"v":1}`, `"v":1} `}, {`"v":1}`, `"v":1}}`}, {`"v":1}`, `"v":1`}, {`"v":1`, `"v":1,"w":1`}, {`"v":1`, `"v":01`}, {`"v":1`, `"v":1.0`}, {`"v":1`, `"v":1e0`},
		{`"seq":7`, `"seq":-7`}, {`"seq":7`, `"seq":-0`}, {`"seq":7`, `"seq":"7"`}, {`"seq":7`, `"seq":9007199254740992`}, {`"seq":7`, `"seq":99999999999999999999`}, {`"seq":7,`, ``},
		{`"tree":"read"`, `"tree":"other"`}, {`"tree":"read"`, `"tree":"Read"`}, {`é`, `\u00e9`}, {`\n`, `\u000a`}, {`\n`, `\u000A`}, {`\n`, `\/`}, {`é`, "\xff"}, {`\n`, "\n"},
		{`0a0a"`, `0A0a"`}, {`0a0a"`, `0a0"`}, {`0a0a"`, `0a0g"`}, {`"args"`, `"Args"`}, {`"args"`, `""`}, {`"parts":{`, `"parts":{"args":1,`}, {`[1,"x",null]`, `[1, "x",null]`}, {`[1,"x",null]`, `[1,"x",null,]`},
		{`{"a":[1,"x",null]}`, `[1]`}, {`{"a":[1,"x",null]}`, `{"b":1,"a":1}`}, {`{"a":[1,"x",null]}`, `{"a":1,"a":1}`}, {`{"a":[1,"x",null]}`, `{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`},
		{`"2026-01-02T03:04:05.000000Z"`, `"2026"`}, {`{"actor"`, `[{"actor"`}, {`{"actor"`, "\ufeff" + `{"actor"`}, {`null`, `nul`}, {`null`, `NaN`},
	} {
		bad := strings.Replace(good, r[0], r[1], 1)
		if bad == good {
			t.Fatalf("%q does not occur", r[0])
		}
		if _, err := ledger.ParseHeader([]byte(bad)); err == nil {
			t.Errorf("taken: %s", bad)
		}
	}
}

// FuzzParseHeader: what is taken is canonical JSON with these values.
func FuzzParseHeader(f *testing.F) {
	f.Add([]byte(`{"actor":"é\n","data":{"a":[1,"x",null]},"kind":"plan","parts":{"args":"` + strings.Repeat("0a", 32) + `"},"seq":7,"tree":"read","ts":"2026-01-02T03:04:05.000000Z","v":1}`))
	f.Add([]byte(`{"kind":"k","seq":0,"tree":"write","ts":"2026-01-02T03:04:05.000000Z","v":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ledger.ParseHeader(b)
		if err != nil {
			return
		}
		var v map[string]any
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		again, err := ledger.Canonical(v)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%s is not canonical: %s %v", b, again, err)
		}
		for name, got := range map[string]string{"actor": h.Actor, "op": h.Op, "kind": h.Kind, "ts": h.TS, "target": h.Target, "tree": string(h.Tree), "seq": fmt.Sprint(h.Seq)} {
			if want, ok := v[name]; ok && fmt.Sprint(want) != got {
				t.Fatalf("%s: %s is %q", b, name, got)
			}
		}
	})
}

func FuzzParseCheckpoint(f *testing.F) {
	f.Add("castellan/test/write\n5\n" + strings.Repeat("A", 43) + "=\n\n— castellan/test/write AAAA\n")
	f.Add("castellan/a/read\n0\n\n")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ledger.ParseCheckpoint(s)
		if err != nil {
			return
		}
		text, _, _ := strings.Cut(s, "\n\n")
		if strings.TrimSuffix(c.Text(), "\n") != strings.TrimSuffix(text, "\n") || c.Store() == "" || c.Tree() == "" || c.Size < 0 {
			t.Fatalf("%q was read as %q", s, c.Text())
		}
		if _, err := ledger.OpenCheckpoint(s, pub("test")); err == nil {
			t.Fatalf("%q is signed", s)
		}
	})
}

func TestKeys(t *testing.T) {
	k := pub("test")
	for _, s := range []string{
		ledger.FormatKey("test", ledger.Write, k), ledger.FormatKey("test", ledger.Read, k), " " + ledger.FormatKey("other", ledger.Read, k) + "\n",
		pemOf(t, k), b64Of(k),
	} {
		got, err := ledger.ParseKey(s)
		if err != nil || !got.Equal(k) {
			t.Errorf("%q: %v %v", s, got, err)
		}
	}
	for _, s := range []string{"", "x", "castellan/a/write+00000000+AAAA", strings.Replace(ledger.FormatKey("test", ledger.Write, k), "test", "tset", 1), "AAAA", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", strings.Repeat("A", 1<<20)} {
		if _, err := ledger.ParseKey(s); err == nil {
			t.Errorf("%.50q was taken", s)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add(ledger.FormatKey("test", ledger.Write, pub("test")))
	f.Fuzz(func(t *testing.T, s string) {
		if k, err := ledger.ParseKey(s); err == nil && len(k) != 32 {
			t.Fatalf("%q is a key of %d bytes", s, len(k))
		}
	})
}
