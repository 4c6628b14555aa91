package cli

import (
	"bytes"
	"encoding/json"
	"testing"

	"castellan/internal/gate"
)

// TestHostileTables: names, tags, comments and values that try to steer a terminal, turn the direction of writing or hide
// something come out of every form of an answer as text.
func TestHostileTables(t *testing.T) {
	for _, s := range []string{"\x1b[2J\x1b[31mred", "\x1b]0;title\x07", "\x1b]8;;http://evil\x07link\x1b]8;;\x07", "\u009b31m", "safe\u202egnp.exe", "\u2066x\u2069", "a\u200bb\u2060c\u00add",
		"tag\U000e0041\U000e0042", "vs\ufe0f\U000e0101", "filler\u3164\u115f\u2800", "line\rover", "\u0085next\u2028line", "\x00\x07\x7f", "<script>alert(1)</script>"} {
		raw, err := json.Marshal(map[string]any{"name": s, s: 1, "rows": []any{map[string]any{"vmid": 1, "name": s, "tags": []string{s, s}, s: s}, map[string]any{"vmid": 2, "comment": s}}, "deep": map[string]any{"a": map[string]any{s: []any{s}}}})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := printAnswer(&b, raw); err != nil || b.Len() == 0 {
			t.Fatalf("%q: %v, %d bytes were printed", s, err, b.Len())
		}
		for _, r := range b.String() {
			if r != '\n' && r != '\t' && gate.Clean(string(r)) != string(r) {
				t.Errorf("%q: %U is printed: %q", s, r, b.String())
				break
			}
		}
	}
}
