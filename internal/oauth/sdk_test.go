package oauth

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// mcp is an MCP server that takes our tokens, and asks for the scope operate where the tool does.
func (h *house) mcp() http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	type who struct {
		Who string `json:"who"`
	}
	for _, name := range []string{"look", "change"} {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, who, error) {
			return nil, who{ctx.Value(callerKey{}).(Caller).Principal.Key()}, nil
		})
	}
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := BearerText(r)
		var c Caller
		if err == nil && text != "" {
			c, err = h.s.Bearer(r.Context(), text, h.remote(r))
		}
		if err != nil || text == "" {
			w.Header().Set("WWW-Authenticate", h.s.Challenge(err))
			w.WriteHeader(401)
			return
		}
		if r.Header.Get("Mcp-Name") == "change" || strings.Contains(peek(r), `"change"`) {
			if lacks, err := h.s.Lacks(r.Context(), c, "operator"); err != nil || len(lacks) > 0 {
				w.Header().Set("WWW-Authenticate", h.s.StepUp(c, lacks...))
				w.WriteHeader(403)
				return
			}
		}
		inner.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
	})
}

type callerKey struct{}

// peek reads the body and puts it back.
func peek(r *http.Request) string {
	b, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	if err != nil {
		return ""
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	return string(b)
}

// browser follows the authorization URL as far as the client's own address.
func browser(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
	c := &http.Client{CheckRedirect: func(r *http.Request, _ []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(ctx, "GET", args.URL, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	u, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || resp.StatusCode != 302 {
		return nil, errors.New("no redirect: " + resp.Status)
	}
	q := u.Query()
	if q.Get("error") != "" {
		return nil, errors.New(q.Get("error"))
	}
	return &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}, nil
}

// TestSDKClient is the client of the official Go SDK with all three kinds of registration: from nothing but the URL to a
// tool's answer, then up a step, then on after the access token has ended.
func TestSDKClient(t *testing.T) {
	set := usual()
	set.Clients = append(set.Clients, StaticClient{ID: "sdk", Redirects: []string{"http://127.0.0.1/cb"}}, StaticClient{ID: "sdk-secret", SecretFile: "x", Redirects: []string{"http://127.0.0.1/cb"}})
	site := newSite(t)
	id := site.id("/client.json")
	site.does(give(doc(id, "http://127.0.0.1/cb")))
	const redirect = "http://127.0.0.1:4711/cb"
	for name, tt := range map[string]struct {
		agent  string
		config auth.AuthorizationCodeHandlerConfig
	}{
		"document": {"example.com:loopback|ann", auth.AuthorizationCodeHandlerConfig{ClientIDMetadataDocumentConfig: &auth.ClientIDMetadataDocumentConfig{URL: id}}},
		"static":   {"static:sdk|ann", auth.AuthorizationCodeHandlerConfig{PreregisteredClient: &oauthex.ClientCredentials{ClientID: "sdk"}}},
		"secret":   {"static:sdk-secret|ann", auth.AuthorizationCodeHandlerConfig{PreregisteredClient: &oauthex.ClientCredentials{ClientID: "sdk-secret", ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: clientSecret}}}},
		"dynamic": {"dynamic:loopback:the-sdk|ann", auth.AuthorizationCodeHandlerConfig{DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			RedirectURIs: []string{redirect}, ClientName: "The SDK", GrantTypes: []string{"authorization_code", "refresh_token"}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, set, func(c *Config) { c.Fetch = site.fetch() })
			config := tt.config
			config.RedirectURL, config.AuthorizationCodeFetcher, config.RequestRefreshToken = redirect, browser, true
			up := false
			config.ScopeFilter = func(found []string) []string { // the least at first, so that there is a step up
				if up {
					return found
				}
				return []string{"read"}
			}
			handler, err := auth.NewAuthorizationCodeHandler(&config)
			if err != nil {
				t.Fatal(err)
			}
			client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
			s, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: h.url + "/mcp", OAuthHandler: handler, MaxRetries: -1}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			call := func(tool string) {
				t.Helper()
				r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{}})
				if err != nil {
					t.Fatalf("%s: %v", tool, err)
				}
				if got := r.StructuredContent.(map[string]any)["who"]; got != tt.agent {
					t.Errorf("the tool was called by %v, want %s", got, tt.agent)
				}
			}
			call("look")
			if n := len(h.records("authorize_ok")); n != 1 {
				t.Errorf("%d consents", n)
			}
			up = true
			call("change")
			if n := len(h.records("authorize_ok")); n != 2 {
				t.Errorf("%d consents after the step up", n)
			}
			// The client's own clock does not move: the server just stops taking the token.
			src, err := handler.TokenSource(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			tok, err := src.Token()
			if err != nil || tok.RefreshToken == "" || time.Until(tok.Expiry) < 50*time.Minute {
				t.Fatalf("%+v %v", tok, err)
			}
			next := h.post("/token", h.refreshed(tok.RefreshToken, "client_id", h.records("token_issued")[0].Client, "client_secret", clientSecret))
			if next.Status != 200 {
				t.Errorf("%+v", next)
			}
		})
	}
}
