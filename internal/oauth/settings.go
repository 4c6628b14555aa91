package oauth

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/regex"
	"castellan/internal/seal"
)

// Settings are the part [oauth] of the configuration. The zero value serves the known clients.
type Settings struct {
	// AccessLife is how long an access token is good: 5m to 24h, default 1h.
	AccessLife string `toml:"access_life"`
	// RefreshIdle is how long a refresh token is good when nobody uses it: 1h to 2160h, default 720h (30 days).
	RefreshIdle string `toml:"refresh_idle"`
	// RememberConsent is how long a consent is remembered for the same person, client, redirects and scopes: up to 8760h.
	// By default a person is always asked. Clients on the person's own machine are always asked for.
	RememberConsent string `toml:"remember_consent"`
	// NoDocuments refuses clients that are known by a metadata document only (a client id that is an https URL).
	NoDocuments bool `toml:"no_documents"`
	// DocumentHosts are the hosts whose metadata documents are taken ("claude.ai", "*.example.org"); none is every public host.
	DocumentHosts []string `toml:"document_hosts"`
	// NoRegistration refuses dynamic registration.
	NoRegistration bool `toml:"no_registration"`
	// Redirects are further addresses that clients which nobody set up may have their codes sent to, beside those of the
	// known clients and the client's own machine. A last path part may be *: "https://example.org/callback/*".
	Redirects []string `toml:"redirects"`
	// Failures is how many failed requests an address may make at an endpoint within 15 minutes: 3 to 1000, default 10.
	Failures int `toml:"failures"`
	// Clients are set up by hand.
	Clients []StaticClient `toml:"client"`
}

// StaticClient is a client that is set up by hand.
type StaticClient struct {
	// ID is its client_id: letters, digits, ".", "_" and "-".
	ID string `toml:"id"`
	// Name stands in the audit, as "static:NAME"; the id when empty.
	Name string `toml:"name"`
	// SecretFile holds its secret, 0600. Without one it is a public client, which proves itself by PKCE alone.
	SecretFile string `toml:"secret_file"`
	// Redirects are where codes may be sent: exactly these; the port of a loopback address is free.
	Redirects []string `toml:"redirects"`
	// Scopes that it may have: read, operate, offline_access (to stay connected); all when none is named.
	Scopes []string `toml:"scopes"`
}

// rules are settings that were understood.
type rules struct {
	access, refresh, remember time.Duration
	noDocuments, noRegister   bool
	documentHosts             []string
	redirects                 []string
	failures                  int
	clients                   map[string]*client
}

// Validate says which key cannot be meant. It does not open secret files.
func (s Settings) Validate() error {
	_, err := s.parse(nil)
	return err
}

var (
	clientWord = &regex.Lazy{Expr: `^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`}
	hostWord   = &regex.Lazy{Expr: `^(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]$`}
)

func (s Settings) parse(secrets func(string) (seal.Secret, error)) (rules, error) {
	r := rules{noDocuments: s.NoDocuments, noRegister: s.NoRegistration, clients: map[string]*client{}, failures: s.Failures}
	for _, d := range []struct {
		key, text       string
		to              *time.Duration
		usual, low, top time.Duration
	}{
		{"oauth.access_life", s.AccessLife, &r.access, time.Hour, 5 * time.Minute, 24 * time.Hour},
		{"oauth.refresh_idle", s.RefreshIdle, &r.refresh, 30 * 24 * time.Hour, time.Hour, 90 * 24 * time.Hour},
		{"oauth.remember_consent", s.RememberConsent, &r.remember, 0, time.Minute, 365 * 24 * time.Hour},
	} {
		*d.to = d.usual
		if d.text == "" {
			continue
		}
		v, err := time.ParseDuration(d.text)
		if err != nil || v < d.low || v > d.top {
			return r, fmt.Errorf("%s is %q: give a time between %s and %s, such as 1h", d.key, d.text, short(d.low), short(d.top))
		}
		*d.to = v
	}
	if r.failures == 0 {
		r.failures = 10
	}
	if r.failures < 3 || r.failures > 1000 {
		return r, fmt.Errorf("oauth.failures is %d: give a number between 3 and 1000", s.Failures)
	}
	for i, h := range s.DocumentHosts {
		if !hostWord.MatchString(h) {
			return r, fmt.Errorf("oauth.document_hosts[%d] is %q: give a host name in small letters, such as claude.ai or *.example.org", i, h)
		}
	}
	r.documentHosts = s.DocumentHosts
	r.redirects = slices.Clone(knownRedirects)
	for i, text := range s.Redirects {
		start, wild := strings.CutSuffix(text, "*")
		if wild {
			start += "x"
		}
		if _, err := parseRedirect(start); err != nil || wild && !strings.HasSuffix(text, "/*") {
			return r, fmt.Errorf("oauth.redirects[%d] is %q: give the whole address, such as https://example.org/callback; only its last part may be *", i, text)
		}
		r.redirects = append(r.redirects, text)
	}
	for i, c := range s.Clients {
		if err := r.add(c, secrets); err != nil {
			return r, fmt.Errorf("oauth.client[%d]: %w", i, err)
		}
	}
	return r, nil
}

func short(d time.Duration) string {
	if d%time.Hour == 0 {
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dm", d/time.Minute)
}

func (r *rules) add(c StaticClient, secrets func(string) (seal.Secret, error)) error {
	if c.Name == "" {
		c.Name = c.ID
	}
	switch {
	case !clientWord.MatchString(c.ID) || strings.HasPrefix(c.ID, dynamicPrefix):
		return fmt.Errorf("id is %q: give up to 64 letters, digits, \".\", \"_\" and \"-\"; it must not begin with %s", c.ID, dynamicPrefix)
	case !clientWord.MatchString(c.Name):
		return fmt.Errorf("name is %q: give up to 64 letters, digits, \".\", \"_\" and \"-\"", c.Name)
	case r.clients[c.ID] != nil:
		return fmt.Errorf("id %q is there twice", c.ID)
	case len(c.Redirects) == 0:
		return errors.New("redirects names no address")
	}
	out := &client{ID: c.ID, Kind: "static", Name: c.Name, Redirects: c.Redirects, Scopes: Scopes(), Refresh: true}
	for _, u := range c.Redirects {
		if _, err := parseRedirect(u); err != nil {
			return fmt.Errorf("redirects holds %q: %w", u, err)
		}
	}
	if len(c.Scopes) > 0 {
		for _, s := range c.Scopes {
			if !slices.Contains(Scopes(), s) {
				near := gate.Nearest(s, Scopes())
				if near != "" {
					near = "; did you mean " + near + "?"
				}
				return fmt.Errorf("scopes holds %q, which there is not%s (there are: %s)", s, near, strings.Join(Scopes(), ", "))
			}
		}
		out.Scopes = knownScopes(strings.Join(c.Scopes, " "))
		if !usable(out.Scopes) {
			return errors.New("scopes names neither read nor operate")
		}
	}
	out.Refresh = slices.Contains(out.Scopes, ScopeOffline)
	if c.SecretFile != "" {
		out.Confidential = true
		if secrets != nil {
			secret, err := secrets(c.SecretFile)
			if err != nil {
				return fmt.Errorf("secret_file: %w", err)
			}
			if len(secret.Reveal()) < 20 {
				return errors.New("secret_file: the secret has fewer than 20 characters; draw a longer one at random")
			}
			out.secretHash = seal.HashToken(secret.Reveal(), "oauth client", c.ID)
		}
	}
	r.clients[c.ID] = out
	return nil
}
