package seal

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestNeedsLoseNothing: looking for the needed texts first leaves the same as trying every expression.
func TestNeedsLoseNothing(t *testing.T) {
	quick, thorough := NewRedactor(), NewRedactor()
	for i := range thorough.patterns {
		thorough.patterns[i].needs = []string{""}
	}
	pieces := []string{"-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----", "AGE-SECRET-KEY-1ABCDEFGH", "PVEAPIToken=", "root@pam!x", "=", ":", " ", "\n", "12345678-1234-1234-1234-123456789012",
		"PVE:root@pam:65F0A1B2::", "abcdefghijklmnopqrstuvwxyz0123456789", "PVEAuthCookie=", "CSRFPreventionToken", "Authorization", "Bearer ", "basic ", "eyJhbGciOi.eyJzdWIiOi.c2ln", "ghp_", "AKIAABCDEFGHIJKLMNOP",
		"sk-", "tk_", "xoxb-", "glpat-", "github_pat_", "$6$", "https://", "user", "@host", "password", "Passwd", "passphrase", "secret", "ſecret", "toKen", "token", "credential", "api_key", "access-key", "ticket", "cookie",
		"recovery", "TOTP", "psk", "--", "-", "\"", "'", ",", "x", "ä", "{", "}", "value1", Redacted}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 14).Draw(t, "pieces"), "")
		if a, b := quick.Text(text), thorough.Text(text); a != b {
			t.Fatalf("%q becomes %q, and with every expression %q", text, a, b)
		}
	})
}

func BenchmarkText(b *testing.B) {
	r := NewRedactor()
	for b.Loop() {
		r.Text(`{"guest":"101","action":"start","target":"lab","limit":50}`)
	}
}
