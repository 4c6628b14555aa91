package reach

import (
	"strings"
	"testing"

	"castellan/internal/gate"
)

// TestClean: nothing that is not seen, steers a terminal or begins another line gets into the text of a hit.
func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain name": "plain name", "größe": "größe", "a\u2060b": "ab", "a\u00adb": "ab", "x\U000e0041\U000e0042": "x", "a\u200bb\ufeff": "ab", "safe\u202egnp": "safegnp",
		"\x1b[31mred": "red", "\u009b31mred": "red", "a\nb": "a b", "a\u2028b": "a b", "vs\ufe0f": "vs", "a\u3164\u2800b": "ab",
	} {
		if got := clean(in); got != want || strings.ContainsAny(got, "\n\t") || gate.Clean(got) != got {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := clean(strings.Repeat("ä", 200)); len([]rune(got)) != 81 {
		t.Errorf("%d characters", len([]rune(got)))
	}
}
