package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"castellan/internal/gate"
)

// HTTPConfig is what an HTTP server is made of. Caller is needed; the rest has a default.
type HTTPConfig struct {
	Config // its Principal is not used: every request brings its own
	// Caller says who sent a request, anew for each. Its error is answered as *Refusal says, another one with 401.
	Caller func(*http.Request) (Caller, error)
	// Metadata is the URL of the protected resource's metadata, named in a 401 that brings no challenge of its own.
	Metadata string
	// Origins may send requests from a browser ("https://host:port"); none by default but the server's own.
	Origins []string
	// HostChecked: somebody in front has checked the Host header. Otherwise a request that arrives over loopback must name a
	// loopback host.
	HostChecked bool

	SessionIdle       time.Duration // how long a session may lie idle; default 30 minutes
	Sessions          int           // at most; default 2,000
	SessionsPerCaller int           // at most; default 200
	MaxBody           int64         // bytes; default 4 MiB
	BodyTime          time.Duration // for a whole body to arrive; default 30 seconds
	Replay            int           // bytes kept for clients that reconnect, of all sessions; default 32 MiB, at most 1 MiB of each
}

// Refusal is an error of HTTPConfig.Caller with its own answer.
type Refusal struct {
	Status     int           // 401, 403, 429, 503; 0 = 401
	Challenge  string        // the WWW-Authenticate header; empty: a plain one for 401
	Message    string        // in words; shown to the client
	RetryAfter time.Duration // 0 = none
}

func (r *Refusal) Error() string { return r.Message }

// HTTP serves MCP at one URL: with sessions for clients up to 2025-11-25, without from 2026-07-28 on.
type HTTP struct {
	c        HTTPConfig
	server   *Server
	sessions *sessions
	crossing *http.CrossOriginProtection
	full     http.Handler // with sessions
	less     http.Handler // without
}

// Bounds of requests.
const (
	maxInitialize = 64 << 10         // bytes of the request that makes a session, which keeps what it says
	askAgain      = 20 * time.Second // how often a stream that stays open is authenticated anew
)

// NewHTTP makes the handler; nothing runs before the first request. Mount it at the path /mcp.
func NewHTTP(c HTTPConfig) (*HTTP, error) {
	if c.Caller == nil {
		return nil, errors.New("make MCP over HTTP: Caller is missing")
	}
	if c.SessionIdle <= 0 {
		c.SessionIdle = 30 * time.Minute
	}
	if c.Sessions <= 0 {
		c.Sessions = 2000
	}
	if c.SessionsPerCaller <= 0 {
		c.SessionsPerCaller = 200
	}
	if c.MaxBody <= 0 {
		c.MaxBody = maxLine
	}
	if c.BodyTime <= 0 {
		c.BodyTime = 30 * time.Second
	}
	if c.Replay <= 0 {
		c.Replay = 32 << 20
	}
	server, err := New(c.Config)
	if err != nil {
		return nil, err
	}
	h := &HTTP{c: c, server: server, sessions: &sessions{most: c.Sessions, each: c.SessionsPerCaller, byID: map[string]*session{}}, crossing: http.NewCrossOriginProtection()}
	for _, origin := range c.Origins {
		if err := h.crossing.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("make MCP over HTTP: origin %q: %w", origin, err)
		}
	}
	server.remote = true
	server.onSession = func(live *mcp.ServerSession, who Caller) error {
		if err := h.sessions.add(live, who.owner()); err != nil {
			go live.Close() // it cannot be closed by the request that runs on it
			return err
		}
		return nil
	}
	replay := newEvents(min(1<<20, c.Replay), c.Replay)
	replay.closed = h.sessions.drop
	only := func(*http.Request) *mcp.Server { return server.mcp }
	h.full = h.asSDK(mcp.NewStreamableHTTPHandler(only, &mcp.StreamableHTTPOptions{EventStore: replay, SessionTimeout: c.SessionIdle, Logger: server.c.Log,
		MaxRequestBodyBytes: c.MaxBody, DisableLocalhostProtection: c.HostChecked}))
	h.less = h.asSDK(mcp.NewStreamableHTTPHandler(only, &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true, Logger: server.c.Log,
		MaxRequestBodyBytes: c.MaxBody, DisableLocalhostProtection: c.HostChecked}))
	return h, nil
}

// Close ends all sessions, within two seconds; plans that are carried out are the gate's and go on as it says.
func (h *HTTP) Close() { h.sessions.closeAll(2 * time.Second) }

// SessionCount is how many sessions are open.
func (h *HTTP) SessionCount() int { return h.sessions.count() }

type callerContext struct{}

// asSDK hands the caller over to the SDK in the one form that reaches the handlers of each single request. The credential
// itself goes no further.
func (h *HTTP) asSDK(next http.Handler) http.Handler {
	return auth.RequireBearerToken(func(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
		c, ok := ctx.Value(callerContext{}).(Caller)
		if !ok {
			return nil, auth.ErrInvalidToken
		}
		return &auth.TokenInfo{UserID: c.owner(), Extra: map[string]any{callerKey: c}}, nil
	}, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)
}

// ServeHTTP answers one request.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if err := h.crosses(r); err != nil {
		refuseHTTP(w, http.StatusForbidden, "forbidden", "the request comes from another site: "+err.Error())
		return
	}
	c, err := h.c.Caller(r)
	if err != nil {
		h.unauthenticated(w, r, err)
		return
	}
	if !h.allowed(w, c) {
		return
	}
	sessionless := r.Header.Get("Mcp-Protocol-Version") >= stateless // dates sort as text; only for routing: the SDK checks it
	switch {
	case r.Method != http.MethodPost && r.Method != http.MethodGet && r.Method != http.MethodDelete, sessionless && r.Method != http.MethodPost:
		allow := "GET, POST, DELETE"
		if sessionless {
			allow = "POST"
		}
		header.Set("Allow", allow)
		refuseHTTP(w, http.StatusMethodNotAllowed, "method_not_allowed", "the method must be one of "+allow)
		return
	}
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), callerContext{}, c))
	defer cancel()
	inner := r.Clone(ctx)
	for _, secret := range []string{"Authorization", "Cookie", "Proxy-Authorization"} {
		inner.Header.Del(secret)
	}
	inner.Header.Set("Authorization", "Bearer -")
	if r.Method == http.MethodPost {
		body, ok := h.body(w, r, sessionless)
		if !ok {
			return
		}
		if h.stepsUp(w, r, c, body, sessionless) {
			return
		}
		inner.Body, inner.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	defer h.watch(ctx, r, c, cancel)()
	if sessionless {
		h.less.ServeHTTP(w, inner)
		return
	}
	if id := r.Header.Get("Mcp-Session-Id"); id != "" {
		leave, ok := h.sessions.enter(id, c.owner(), r.Method != http.MethodGet)
		if !ok {
			refuseHTTP(w, http.StatusNotFound, "session_not_found", "there is no such session (any more): initialize again")
			return
		}
		defer leave()
	} else {
		defer func() { h.sessions.begun(header.Get("Mcp-Session-Id")) }()
	}
	h.full.ServeHTTP(w, inner)
}

// crosses checks where a browser's request comes from, also for methods that change nothing: a stream is one.
func (h *HTTP) crosses(r *http.Request) error {
	if r.Method != http.MethodPost {
		as := *r
		as.Method = http.MethodPost
		r = &as
	}
	return h.crossing.Check(r)
}

// allowed refuses a token that gives no role at all.
func (h *HTTP) allowed(w http.ResponseWriter, c Caller) bool {
	if len(c.Principal.Roles) > 0 || c.Principal.Strength != gate.StrengthToken {
		return true
	}
	if c.StepUp != nil {
		if challenge := c.StepUp(gate.RoleViewer); challenge != "" {
			w.Header().Set("WWW-Authenticate", challenge)
		}
	}
	refuseHTTP(w, http.StatusForbidden, "insufficient_scope", "the token gives no role here")
	return false
}

// body reads what a POST sends, within its size and time.
func (h *HTTP) body(w http.ResponseWriter, r *http.Request, sessionless bool) ([]byte, bool) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		refuseHTTP(w, http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Type must be application/json")
		return nil, false
	}
	limit := h.c.MaxBody
	if !sessionless && r.Header.Get("Mcp-Session-Id") == "" {
		limit = min(limit, maxInitialize)
	}
	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(h.c.BodyTime)) // a writer without deadlines has its own limits
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err == nil {
		_ = deadline.SetReadDeadline(time.Time{})
		return body, true
	}
	w.Header().Set("Connection", "close") // the rest of the body is not waited for
	var large *http.MaxBytesError
	var late net.Error
	switch {
	case errors.As(err, &large):
		refuseHTTP(w, http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the body is larger than %d bytes", large.Limit))
	case errors.As(err, &late) && late.Timeout():
		refuseHTTP(w, http.StatusRequestTimeout, "timeout", "the body did not arrive in time")
	default:
		refuseHTTP(w, http.StatusBadRequest, "bad_request", "the body did not arrive whole")
	}
	return nil, false
}

// stepsUp answers 403 with the scopes needed when a caller that may only read calls a tool that writes, and could get them.
// From 2026-07-28 on the header names the tool; the SDK refuses one that is not the body's.
func (h *HTTP) stepsUp(w http.ResponseWriter, r *http.Request, c Caller, body []byte, sessionless bool) bool {
	if c.StepUp == nil || h.server.mayWrite(c.Principal) {
		return false
	}
	if sessionless && r.Header.Get("Mcp-Method") != "tools/call" {
		return false
	}
	for _, call := range callsOf(body) {
		if !h.server.writes(call.Name, call.Arguments) {
			continue
		}
		challenge := c.StepUp(gate.RoleOperator)
		if challenge == "" {
			return false
		}
		h.server.note(r.Context(), c.Principal, "a call of "+bounded(call.Name, 60)+" with a token that only reads")
		w.Header().Set("WWW-Authenticate", challenge)
		refuseHTTP(w, http.StatusForbidden, "insufficient_scope", bounded(call.Name, 60)+" needs the role "+gate.RoleOperator+"; nothing was done")
		return true
	}
	return false
}

type toolCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// callsOf finds the calls of tools in a body: one message, or the batch that the oldest clients may send. What cannot be
// read holds none, and is refused later.
func callsOf(body []byte) []toolCall {
	type message struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	var batch []message
	var one message
	if json.Unmarshal(body, &one) == nil {
		batch = []message{one}
	} else if json.Unmarshal(body, &batch) != nil {
		return nil
	}
	var out []toolCall
	for _, m := range batch {
		var call toolCall
		if m.Method == "tools/call" && json.Unmarshal(m.Params, &call) == nil {
			out = append(out, call)
		}
	}
	return out
}

// watch authenticates a request that lasts anew, and ends it when its caller is no longer let in.
func (h *HTTP) watch(ctx context.Context, r *http.Request, c Caller, end context.CancelFunc) (stop func()) {
	every := func(c Caller) time.Duration {
		if until := c.Principal.Until; !until.IsZero() {
			return max(0, min(askAgain, time.Until(until)+time.Second))
		}
		return askAgain
	}
	var t *time.Timer
	ready := make(chan struct{})
	t = time.AfterFunc(every(c), func() {
		<-ready
		if ctx.Err() != nil {
			return
		}
		now, err := h.c.Caller(r)
		if err != nil || now.owner() != c.owner() {
			end()
			return
		}
		t.Reset(every(now))
	})
	close(ready)
	return func() { t.Stop() }
}

// unauthenticated answers a request whose caller is not let in.
func (h *HTTP) unauthenticated(w http.ResponseWriter, r *http.Request, err error) {
	var own *Refusal
	if !errors.As(err, &own) {
		own = &Refusal{Message: "the credential is missing or not valid"}
	}
	status := own.Status
	if status == 0 {
		status = http.StatusUnauthorized
	}
	challenge := own.Challenge
	if challenge == "" && status == http.StatusUnauthorized {
		var parts []string
		if h.c.Metadata != "" {
			parts = append(parts, "resource_metadata="+strconv.Quote(h.c.Metadata))
		}
		if r.Header.Get("Authorization") != "" { // who sent nothing is told where to begin, not that it was wrong
			parts = append(parts, `error="invalid_token"`, `error_description="the token is unknown, expired or revoked"`)
		}
		challenge = strings.TrimSpace("Bearer " + strings.Join(parts, ", "))
	}
	if challenge != "" {
		w.Header().Set("WWW-Authenticate", challenge)
	}
	if own.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(own.RetryAfter.Seconds()+0.999)))
	}
	code := map[int]string{http.StatusUnauthorized: "invalid_token", http.StatusForbidden: "insufficient_scope", http.StatusTooManyRequests: "too_many_requests"}[status]
	if code == "" {
		code = "unavailable"
	}
	refuseHTTP(w, status, code, own.Message)
}

func refuseHTTP(w http.ResponseWriter, status int, code, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": bounded(text, 300)}) // a client that is gone needs no answer
}
