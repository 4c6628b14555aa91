package oauth

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"castellan/internal/seal"
)

func TestIssuers(t *testing.T) {
	h := newHouse(t, usual())
	for issuer, ok := range map[string]bool{"https://x.example.org": true, "https://x.example.org:8443": true, "http://localhost:8006": true, "http://[::1]:1": true,
		"": false, "x": false, "http://x.example.org": false, "https://x.example.org/": false, "https://x.example.org/a": false, "https://x.example.org?a": false, "https://u@x.example.org": false, "ftp://x": false} {
		if _, err := New(Config{Store: h.store, Keys: h.keys, People: h.people, Issuer: issuer}); (err == nil) != ok {
			t.Errorf("%s: %v", issuer, err)
		}
	}
	if _, err := New(Config{Store: h.store, Keys: h.keys, People: h.people, Issuer: "https://x.example.org", Resource: "https://y.example.org/mcp"}); err == nil {
		t.Error("a resource elsewhere")
	}
	// A token is for one resource: another public URL takes none of before.
	r := h.tokens()
	s, err := New(Config{Store: h.store, Keys: h.keys, People: h.people, Issuer: h.url, Resource: h.url + "/other", Clock: h.now, Settings: Settings{Clients: []StaticClient{{ID: "pub", Redirects: []string{staticRedirect}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Bearer(ctx, r.Access, Remote{}); asRefused(err).Status != 401 {
		t.Errorf("%v", err)
	}
	// A client that is taken out of the settings takes its tokens along.
	if s, err = New(Config{Store: h.store, Keys: h.keys, People: h.people, Issuer: h.url, Clock: h.now}); err != nil {
		t.Fatal(err)
	}
	h.mustBearer(r.Access)
	if _, err := s.Bearer(ctx, r.Access, Remote{}); asRefused(err).Status != 401 {
		t.Errorf("%v", err)
	}
}

func TestSettings(t *testing.T) {
	one := func(c StaticClient) Settings { return Settings{Clients: []StaticClient{c}} }
	for name, s := range map[string]Settings{
		"access short": {AccessLife: "1m"}, "access long": {AccessLife: "25h"}, "access text": {AccessLife: "x"}, "access negative": {AccessLife: "-1h"}, "refresh": {RefreshIdle: "1m"}, "remember": {RememberConsent: "9000h"},
		"failures": {Failures: 1}, "failures many": {Failures: 5000}, "host": {DocumentHosts: []string{"https://claude.ai"}}, "host case": {DocumentHosts: []string{"Claude.ai"}}, "every host": {DocumentHosts: []string{"*"}},
		"redirect": {Redirects: []string{"x"}}, "wild": {Redirects: []string{"https://*.example.org/cb"}}, "wild in the middle": {Redirects: []string{"https://example.org/*/cb"}}, "wild part": {Redirects: []string{"https://example.org/cb*"}},
		"http": {Redirects: []string{"http://example.org/cb"}}, "no id": one(StaticClient{Redirects: []string{staticRedirect}}), "dynamic id": one(StaticClient{ID: "dyn-x", Redirects: []string{staticRedirect}}),
		"url id": one(StaticClient{ID: "https://x.example.org/c", Redirects: []string{staticRedirect}}), "no redirects": one(StaticClient{ID: "x"}), "scope": one(StaticClient{ID: "x", Redirects: []string{staticRedirect}, Scopes: []string{"reed"}}),
		"useless": one(StaticClient{ID: "x", Redirects: []string{staticRedirect}, Scopes: []string{"offline_access"}}), "bad name": one(StaticClient{ID: "x", Name: "a|b", Redirects: []string{staticRedirect}}),
		"twice": {Clients: []StaticClient{{ID: "x", Redirects: []string{staticRedirect}}, {ID: "x", Redirects: []string{staticRedirect}}}},
	} {
		if err := s.Validate(); err == nil || !strings.HasPrefix(err.Error(), "oauth.") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := one(StaticClient{ID: "x", Redirects: []string{staticRedirect}, Scopes: []string{"reed"}}).Validate(); !strings.Contains(err.Error(), "read?") {
		t.Error(err)
	}
	s := usual()
	s.AccessLife, s.RefreshIdle, s.Redirects, s.DocumentHosts = "10m", "48h", []string{"https://x.example.org/cb/*", "myapp://x/y"}, []string{"*.example.org"}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	h := newHouse(t, s)
	if r := h.tokens(); r.Expires != 600 {
		t.Errorf("%+v", r)
	}
	for name, secrets := range map[string]func(string) (seal.Secret, error){
		"short": func(string) (seal.Secret, error) { return seal.NewSecret([]byte("short")), nil }, "missing": func(string) (seal.Secret, error) { return seal.Secret{}, errors.New("gone") }} {
		if _, err := New(Config{Store: h.store, Keys: h.keys, People: h.people, Issuer: h.url, Settings: usual(), Secrets: secrets}); err == nil || strings.Contains(err.Error(), "\"short\"") {
			t.Errorf("%s: %v", name, err)
		}
	}
	var _ http.Handler = h.s.Handler()
}
