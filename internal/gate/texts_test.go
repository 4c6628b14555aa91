package gate

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\nläßt 日本 ✓":                       "plain\ttext\nläßt 日本 ✓",
		"a\x1b[31mred\x1b[0m b":                        "ared b",
		"a\x1b]8;;http://x\x07link\x1b]8;;\x1b\\ b":    "alink b",
		"a\u009b31mb":                                  "ab",
		"a\x00\x07\x08b\x7f":                           "ab",
		"a\r\nb\rc":                                    "a\nbc",
		"evil\u202etxt.exe":                            "eviltxt.exe",
		"zero\u200bwidth\u200d\ufeff\u2060\u00ad":      "zerowidth",
		"tags\U000E0041\U000E007F":                     "tags",
		"selector\ufe0f\U000E0101":                     "selector",
		"filler\u3164\u2800\u115f":                     "filler",
		"line\u2028sep":                                "line\nsep",
		"private\ue000\U000F0000":                      "private",
		"z\u0301\u0302\u0303\u0304\u0305\u0306\u0307a": "z\u0301\u0302\u0303\u0304a",
		"bad\xff":                "bad\ufffd",
		"\x1bPdevice\x1b\\after": "after",
		"cut\x1b":                "cut",
		"c1\u0085x":              "c1\nx",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
	if _, n := clean("a\u200bb\x1b[31mc"); n != 6 {
		t.Errorf("%d characters were counted, want 6", n)
	}
}

// hasHidden says what Clean must never leave.
func hasHidden(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Variation_Selector, r) || r >= 0xe0000 && r <= 0xe0fff || r == 0x2028 || r == 0x2029)
	})
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b[31mb\u202e\xff")
	f.Add("\x1b]0;x\x07\u009d\U000E0041")
	f.Fuzz(func(t *testing.T, s string) {
		got := Clean(s)
		if hasHidden(got) || !utf8.ValidString(got) {
			t.Errorf("Clean(%q) = %q", s, got)
		}
		if again := Clean(got); again != got {
			t.Errorf("cleaning twice: %q, then %q", got, again)
		}
	})
}

func TestWashKeepsBoundsAndOrder(t *testing.T) {
	long := strings.Repeat("x", 50<<10)
	raw, err := json.Marshal(map[string]any{"z": long, "a": []any{long, long, long, long, long, "short\u200b"}, "k\u202ey": json.Number("12345678901234567890")})
	if err != nil {
		t.Fatal(err)
	}
	out := &Outcome{Answer: raw, Untrusted: true, Next: "next\u200b"}
	if err := out.wash(); err != nil {
		t.Fatal(err)
	}
	if len(out.Answer) > maxTexts+8*longText+4096 || out.Removed != 3 || out.Cut == 0 || hasHidden(string(out.Answer)) || !strings.Contains(string(out.Answer), "12345678901234567890") {
		t.Errorf("%d bytes, %d removed, %d cut", len(out.Answer), out.Removed, out.Cut)
	}
	plain := &Outcome{Answer: json.RawMessage(`{"b": 1,   "a":"x"}`)}
	if err := plain.wash(); err != nil || string(plain.Answer) != `{"b": 1,   "a":"x"}` {
		t.Errorf("an answer without anything to clean became %s (%v)", plain.Answer, err)
	}
	own := &Outcome{Answer: json.RawMessage(`{"b":"` + long + `","a":"ü"}`)}
	if err := own.wash(); err != nil || !strings.HasPrefix(string(own.Answer), `{"b":"xxx`) || len(own.Answer) < len(long) {
		t.Errorf("castellan's own text was cut (%v)", err)
	}
}

func TestNothingClosesTheFence(t *testing.T) {
	o := &Outcome{Untrusted: true, Outside: []string{"somebody"}}
	a, end := o.Fence()
	b, _ := o.Fence()
	if a == b || !strings.Contains(a, strings.TrimPrefix(end, "\nend of ")) || !strings.Contains(a, "somebody") {
		t.Errorf("fences %q and %q", a, b)
	}
	if before, after := (&Outcome{}).Fence(); before != "" || after != "" {
		t.Error("castellan's own words are fenced")
	}
}
