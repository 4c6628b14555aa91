package oauth

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
)

const (
	maxForm         = 16 << 10
	maxRegistration = 32 << 10
)

// Paths of the endpoints. That of authorization is a page, which others draw.
const (
	PathServer    = "/.well-known/oauth-authorization-server"
	PathResource  = "/.well-known/oauth-protected-resource"
	PathAuthorize = "/authorize"
	PathToken     = "/token"
	PathRegister  = "/register"
	PathRevoke    = "/revoke"
)

// serverMetadata is RFC 8414 with the additions of RFC 9207 and of client-id metadata documents.
type serverMetadata struct {
	Issuer            string   `json:"issuer"`
	Authorize         string   `json:"authorization_endpoint"`
	Token             string   `json:"token_endpoint"`
	Register          string   `json:"registration_endpoint,omitempty"`
	Revoke            string   `json:"revocation_endpoint"`
	Scopes            []string `json:"scopes_supported"`
	Responses         []string `json:"response_types_supported"`
	Modes             []string `json:"response_modes_supported"`
	Grants            []string `json:"grant_types_supported"`
	Methods           []string `json:"token_endpoint_auth_methods_supported"`
	RevokeMethods     []string `json:"revocation_endpoint_auth_methods_supported"`
	Challenges        []string `json:"code_challenge_methods_supported"`
	Iss               bool     `json:"authorization_response_iss_parameter_supported"`
	Documents         bool     `json:"client_id_metadata_document_supported"`
	ProtectedResource []string `json:"protected_resources"`
}

// resourceMetadata is RFC 9728.
type resourceMetadata struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported"`
	Methods  []string `json:"bearer_methods_supported"`
	Name     string   `json:"resource_name"`
}

// ResourceMetadataURL is what a 401 points to.
func (s *Server) ResourceMetadataURL() string {
	return s.issuer + PathResource + strings.TrimPrefix(s.resource, s.issuer)
}

// Handler serves metadata, token, registration and revocation endpoint.
func (s *Server) Handler() http.Handler {
	methods := []string{"none", "client_secret_basic", "client_secret_post"}
	server := serverMetadata{Issuer: s.issuer, Authorize: s.issuer + PathAuthorize, Token: s.issuer + PathToken, Revoke: s.issuer + PathRevoke, Scopes: Scopes(),
		Responses: []string{"code"}, Modes: []string{"query"}, Grants: []string{"authorization_code", "refresh_token"}, Methods: methods, RevokeMethods: methods,
		Challenges: []string{"S256"}, Iss: true, Documents: !s.rules.noDocuments, ProtectedResource: []string{s.resource}}
	if !s.rules.noRegister {
		server.Register = s.issuer + PathRegister
	}
	resource := resourceMetadata{Resource: s.resource, Servers: []string{s.issuer}, Scopes: resourceScopes(), Methods: []string{"header"}, Name: "castellan"}
	mux := http.NewServeMux()
	mux.Handle(PathServer, document(server))
	mux.Handle(PathResource, document(resource))
	mux.Handle(strings.TrimPrefix(s.ResourceMetadataURL(), s.issuer), document(resource))
	mux.Handle(PathToken, s.endpoint("token", maxForm, "application/x-www-form-urlencoded", s.serveToken))
	mux.Handle(PathRevoke, s.endpoint("revoke", maxForm, "application/x-www-form-urlencoded", s.serveRevoke))
	mux.Handle(PathRegister, s.endpoint("register", maxRegistration, "application/json", s.serveRegister))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(http.StatusNotFound, "not_found", "there is nothing here").write(w)
	})
	return mux
}

// shared lets programs in browsers use the endpoints; no cookie counts there.
func shared(w http.ResponseWriter, methods string) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Access-Control-Allow-Methods", methods)
	w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, MCP-Protocol-Version")
	w.Header().Set("Access-Control-Max-Age", "600")
}

// document serves a metadata document.
func document(body any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shared(w, "GET, HEAD, OPTIONS")
		switch r.Method {
		case http.MethodGet, http.MethodHead:
			answer(w, http.StatusOK, body)
		case http.MethodOptions:
			w.WriteHeader(http.StatusNoContent)
		default:
			w.Header().Set("Allow", "GET, HEAD, OPTIONS")
			refuse(http.StatusMethodNotAllowed, "invalid_request", "use GET").write(w)
		}
	})
}

// endpoint checks what all endpoints have in common: method, address, content type, size.
func (s *Server) endpoint(door string, limit int64, kind string, f func(w http.ResponseWriter, r *http.Request, body []byte, from Remote) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shared(w, "POST, OPTIONS")
		switch r.Method {
		case http.MethodPost:
		case http.MethodOptions:
			w.WriteHeader(http.StatusNoContent)
			return
		default:
			w.Header().Set("Allow", "POST, OPTIONS")
			refuse(http.StatusMethodNotAllowed, "invalid_request", "use POST").write(w)
			return
		}
		from := s.remote(r)
		err := s.enter(r.Context(), door, from)
		if err == nil {
			var body []byte
			if body, err = readBody(w, r, limit, kind); err == nil {
				err = f(w, r, body, from)
			}
		}
		if err != nil {
			refused := asRefused(err)
			if refused.Status >= 500 {
				s.log.ErrorContext(r.Context(), "authorization endpoint failed", "endpoint", door, "error", err, "cause", refused.cause)
			}
			refused.write(w)
		}
	})
}

func readBody(w http.ResponseWriter, r *http.Request, limit int64, kind string) ([]byte, error) {
	if r.URL.RawQuery != "" {
		return nil, refuse(http.StatusBadRequest, "invalid_request", "give the parameters in the body: an address is kept in logs")
	}
	got, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if charset := strings.ToLower(params["charset"]); err != nil || got != kind || charset != "" && charset != "utf-8" || r.Header.Get("Content-Encoding") != "" {
		return nil, refuse(http.StatusUnsupportedMediaType, "invalid_request", "the body must be "+kind)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return nil, refuse(http.StatusRequestEntityTooLarge, "invalid_request", "the body is too large")
	}
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "invalid_request", "the body could not be read")
	}
	return body, nil
}

// parseForm reads a body; each parameter may be there once, but resource.
func parseForm(body []byte) (url.Values, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "invalid_request", "the body is no form")
	}
	for name, values := range form {
		if len(values) > 1 && name != "resource" || len(values) > 10 {
			return nil, refuse(http.StatusBadRequest, "invalid_request", "a parameter is there twice")
		}
		for _, v := range values {
			if len(v) > maxValue {
				return nil, refuse(http.StatusBadRequest, "invalid_request", "a parameter is too long")
			}
		}
	}
	return form, nil
}

// parseCredentials finds what the client says of itself, in the header or in the form, not in both.
func parseCredentials(r *http.Request, form url.Values) (credentials, error) {
	c := credentials{id: form.Get("client_id"), secret: form.Get("client_secret")}
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return c, nil
	}
	user, password, ok := r.BasicAuth()
	id, err1 := url.QueryUnescape(user) // RFC 6749 encodes them first
	secret, err2 := url.QueryUnescape(password)
	if len(headers) > 1 || !ok || err1 != nil || err2 != nil {
		return c, &Refused{Status: http.StatusUnauthorized, Code: "invalid_client", basic: true, Description: "the Authorization header cannot be read"}
	}
	if form.Has("client_secret") || form.Has("client_id") && c.id != id {
		return c, refuse(http.StatusBadRequest, "invalid_request", "the client says twice, or in two ways, who it is")
	}
	return credentials{id: id, secret: secret, basic: true}, nil
}

func (s *Server) exchange(r *http.Request, body []byte, from Remote) (exchange, error) {
	form, err := parseForm(body)
	if err != nil {
		return exchange{}, err
	}
	c, err := parseCredentials(r, form)
	return exchange{form: form, cred: c, from: from}, err
}

func (s *Server) serveToken(w http.ResponseWriter, r *http.Request, body []byte, from Remote) error {
	x, err := s.exchange(r, body, from)
	if err != nil {
		return s.deny(r.Context(), "token", x.denied("malformed"), asRefused(err))
	}
	out, err := s.answerToken(r.Context(), x)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, out)
	return nil
}

func (s *Server) serveRevoke(w http.ResponseWriter, r *http.Request, body []byte, from Remote) error {
	x, err := s.exchange(r, body, from)
	if err != nil {
		e := x.denied("malformed")
		e.name = "revoke_denied"
		return s.deny(r.Context(), "revoke", e, asRefused(err))
	}
	if err := s.answerRevoke(r.Context(), x); err != nil {
		return err
	}
	answer(w, http.StatusOK, struct{}{})
	return nil
}

func (s *Server) serveRegister(w http.ResponseWriter, r *http.Request, body []byte, from Remote) error {
	out, err := s.answerRegister(r.Context(), body, from)
	if err != nil {
		return err
	}
	answer(w, http.StatusCreated, out)
	return nil
}
