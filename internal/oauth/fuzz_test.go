package oauth

import (
	"encoding/base64"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func FuzzRedirect(f *testing.F) {
	for _, s := range append([]string{staticRedirect, loopRedirect, "http://[::1]:5/x", "https://a.b/..;/", "https://a.b:/x", "x://y", "https://a.b/x?code=1", "http://localhost:080/", "https://a.b:99999/x", "http://127.0.0.1:@evil.org/"}, knownRedirects...) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRedirect(text)
		if err != nil {
			return
		}
		to := withQuery(text, "code", "c&d=e#f", "state", "s", "iss", "i")
		u, err := url.Parse(to)
		if err != nil || u.User != nil || u.Fragment != "" {
			t.Fatalf("%q becomes %q: %v", text, to, err)
		}
		q := u.Query()
		if q.Get("code") != "c&d=e#f" || q.Get("state") != "s" || q.Get("iss") != "i" || len(q["code"]) != 1 || len(q["iss"]) != 1 {
			t.Errorf("%q becomes %q", text, to)
		}
		if r.loopback && (u.Scheme != "http" || !isLoopbackName(u.Hostname())) || r.web && u.Scheme != "https" || r.loopback && r.web {
			t.Errorf("%q: %+v", text, r)
		}
		if (r.loopback || r.web) && r.host != u.Hostname() {
			t.Errorf("%q: host %q", text, r.host)
		}
		if !sameRedirect(text, r) {
			t.Errorf("%q is not itself", text)
		}
		if sameRedirect(staticRedirect, r) && text != staticRedirect {
			t.Errorf("%q passes for another", text)
		}
		if sameRedirect("http://127.0.0.1/callback", r) && (u.Hostname() != "127.0.0.1" || u.Path != "/callback" || u.RawQuery != q.Encode() && !strings.HasPrefix(to, text+"?")) {
			t.Errorf("%q passes for a loopback address", text)
		}
	})
}

func FuzzClientID(f *testing.F) {
	for _, s := range []string{"https://claude.ai/c", "https://claude.ai:8443/c.json", "https://127.0.0.1/c", "https://a.b/%2e", "https://x.y//c", "https://a.b/./c", "https://[::1]/c", "https://0x7f.1/c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		host, err := checkDocumentID(id)
		if err != nil {
			return
		}
		u, err := url.Parse(id)
		if err != nil || u.String() != id || u.Hostname() != host || u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
			t.Errorf("%q is read in two ways", id)
		}
		if _, err := netip.ParseAddr(host); err == nil {
			t.Errorf("%q is an address", id)
		}
	})
}

func FuzzDocument(f *testing.F) {
	const id = "https://example.com/c"
	f.Add([]byte(`{"client_id":"https://example.com/c","client_name":"x","redirect_uris":["https://example.com/cb"],"grant_types":["authorization_code"]}`))
	f.Add([]byte(`{"client_id":"https://example.com/c","client_id":"x"}`))
	f.Add([]byte(`{"redirect_uris":[null]}`))
	h := newHouse(f, Settings{})
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := parseDocument(id, body)
		if err == nil {
			if c.ID != id || len(c.Redirects) == 0 || len(c.Redirects) > maxRedirects || c.Confidential {
				t.Errorf("%q: %+v", body, c)
			}
			checkLabel(t, c.Name)
		}
		if c, refused := h.s.register(body); refused == nil {
			for _, text := range c.Redirects {
				if r, err := parseRedirect(text); err != nil || !h.s.rules.openRedirect(r) {
					t.Errorf("%q registers %q", body, text)
				}
			}
			checkLabel(t, c.Name)
		} else if refused.Status != 400 || plain(refused.Description) == "" {
			t.Errorf("%q: %+v", body, refused)
		}
	})
}

func checkLabel(t *testing.T, s string) {
	t.Helper()
	if utf8.RuneCountInString(s) > maxName || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || unicode.Is(unicode.Cf, r) }) {
		t.Errorf("label %q", s)
	}
}

func FuzzTokenText(f *testing.F) {
	d, err := draw(accessPrefix)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(d.text)
	f.Add("cat_aaaaaaaaaaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaa")
	f.Fuzz(func(t *testing.T, text string) {
		prefix, id, secret, ok := split(text)
		if ok && prefix+id+"_"+secret != text {
			t.Errorf("%q is taken apart into %q %q %q", text, prefix, id, secret)
		}
		if ok && text != d.text && right(prefix, id, secret, d.hash) {
			t.Errorf("%q passes for another", text)
		}
	})
}

func FuzzTicket(f *testing.F) {
	h := newHouse(f, usual())
	a, err := h.s.Authorize(ctx, h.request(), h.from())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(a.Ticket)
	f.Add(base64.RawURLEncoding.EncodeToString(make([]byte, 40)))
	f.Fuzz(func(t *testing.T, ticket string) {
		if _, err := h.s.open(ticket); err == nil && ticket != a.Ticket {
			t.Errorf("a ticket that was not given is taken: %q", ticket)
		}
	})
}

// FuzzToken: whatever comes, the endpoint answers within 4xx and gives nothing.
func FuzzToken(f *testing.F) {
	h := newHouse(f, Settings{Failures: 1000, Clients: usual().Clients})
	f.Add("grant_type=authorization_code&code=cac_aaaaaaaaaaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaa&client_id=pub&redirect_uri=x&code_verifier=y", "Basic cHViOg==")
	f.Add("grant_type=refresh_token&refresh_token=crt_aaaaaaaaaaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaa&client_id=pub", "")
	f.Add("grant_type=%00&a=b&a=b", "Bearer x")
	f.Fuzz(func(t *testing.T, body, authorization string) {
		for _, path := range []string{PathToken, PathRevoke} {
			r := httptest.NewRequest("POST", path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			if authorization != "" {
				r.Header["Authorization"] = []string{authorization}
			}
			w := httptest.NewRecorder()
			h.s.Handler().ServeHTTP(w, r)
			if w.Code >= 500 || w.Code == 200 && path == PathToken || strings.Contains(w.Body.String(), "access_token") {
				t.Errorf("%q %q: %d %s", body, authorization, w.Code, w.Body)
			}
		}
	})
}

func BenchmarkBearer(b *testing.B) {
	h := newHouse(b, usual())
	r := h.tokens()
	b.ReportAllocs()
	for b.Loop() {
		h.mustBearer(r.Access)
	}
}
