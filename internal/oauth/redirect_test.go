package oauth

import (
	"slices"
	"strings"
	"testing"
)

func TestKnownRedirects(t *testing.T) {
	r, err := Settings{}.parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	for to, ok := range map[string]bool{
		"https://claude.ai/api/mcp/auth_callback": true, "https://claude.com/api/mcp/auth_callback": true, "https://chatgpt.com/connector/oauth/Ab-1_x": true,
		"https://chatgpt.com/connector_platform_oauth_redirect": true, "https://vscode.dev/redirect": true, "https://insiders.vscode.dev/redirect": true,
		"https://www.cursor.com/agents/mcp/oauth/callback": true, "cursor://anysphere.cursor-mcp/oauth/callback": true, "http://localhost:8787/callback": true, "http://127.0.0.1:33418": true,
		"http://127.0.0.1:33418/": true, "http://[::1]:5/x": true,
		"https://claude.ai/api/mcp/auth_callback/": false, "https://claude.ai/other": false, "https://evil.claude.ai.example.org/api/mcp/auth_callback": false,
		"https://chatgpt.com/connector/oauth/": false, "https://chatgpt.com/connector/oauth/a/b": false, "https://chatgpt.com/connector/oauth/a?b": false, "https://chatgpt.com/connector/oauth/a%2fb": false,
		"https://chatgpt.com/connector/oauth/..": false, "https://chatgpt.com/connector/oauth/.": false, "cursor://other/oauth/callback": false, "https://vscode.dev/redirect?x=1": false,
	} {
		p, err := parseRedirect(to)
		if got := err == nil && r.openRedirect(p); got != ok {
			t.Errorf("%s: %v %v", to, got, err)
		}
	}
	for _, bad := range []string{"", "x", "/x", "https:x", "https://", "http://example.org/x", "https://EXAMPLE.org/x", "Https://example.org/x", "https://a@example.org/", "https://example.org/x#", "https://exa mple.org/",
		"https://example.org/%zz", "data:text/html,x", "javascript:alert(1)", "file:///etc/passwd", "javascript://x/y", "blob:https://x/y", "https://ex\u00e4mple.org/x", "http://127.1/x", "http://0x7f.0.0.1/x", "http://2130706433/x",
		"http://localhost.evil.org/x", "http://0.0.0.0/x", "https://example.org/a/../b", "https://example.org/a/%2e%2e/b", "https://example.org?code=1", "https://example.org/x?a=1&state=2", "https://example.org/x;y?a=%", "https://2130706433/x",
		strings.Repeat("x", 600)} {
		if p, err := parseRedirect(bad); err == nil {
			t.Errorf("%q is taken: %+v", bad, p)
		}
	}
}

func TestLabels(t *testing.T) {
	for in, want := range map[string]string{
		"Claude": "Claude", "  a \n b\t": "a b", "a\u202eevil\u202c": "aevil", "x\u200b\u2066y\ufeff": "xy", "": "", "\x00\x1b[31mred": "[31mred", strings.Repeat("é", 100): strings.Repeat("é", maxName-1) + "…",
		"Z\u0300\u0301\u0302algo": "Zalgo", "bad\xff": "bad", "\U000e0041tag": "tag",
	} {
		if got := label(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := word("  Claude Code! <x> äö "); strings.Trim(got, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
		t.Errorf("%q", got)
	}
	if !slices.Equal(Scopes(), []string{"read", "operate", "offline_access"}) {
		t.Error(Scopes())
	}
}
