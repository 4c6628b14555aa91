package front

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
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// build puts the mounts behind the guards.
func (f *Front) build() (http.Handler, error) {
	cross := http.NewCrossOriginProtection()
	if err := cross.AddTrustedOrigin(f.set.public.String()); err != nil {
		return nil, fmt.Errorf("make front: daemon.public_url: %w", err)
	}
	mux := http.NewServeMux()
	root := false
	for _, m := range append(f.own(), f.c.Mounts...) {
		mux.Handle(m.Pattern, f.guarded(m, cross))
		root = root || m.Pattern == "/"
	}
	if !root {
		mux.Handle("/", f.guarded(Mount{Pattern: "/", Handler: http.NotFoundHandler()}, cross))
	}
	return f.outer(mux), nil
}

// open are paths that answer under any host name: they tell nothing but whether the process lives and is ready.
var open = []string{"/healthz", "/readyz"}

// outer is what every request passes, whatever it asks for.
func (f *Front) outer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		o := &writer{ResponseWriter: w, json: !strings.Contains(r.Header.Get("Accept"), "text/html")}
		defer func() {
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler {
					panic(p)
				}
				f.c.Log.Error("panic in a request", "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				if o.status == 0 {
					fail(o, http.StatusInternalServerError, "internal", "a fault in castellan ended this request", "Its log tells more; look at what was done before trying again.")
				}
			}
			f.metrics.observe(o.route, o.status, time.Since(began))
		}()
		r = f.direct(r)
		f.headers(o.Header())
		if hasBody(r) { // also of one that nobody will read: the server would wait for it before it takes the next request
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(f.bodyTime)) // a recorder in a test has none
		}
		if !slices.Contains(open, r.URL.Path) && !f.hostAllowed(r.Host) {
			f.refuse(o, r, "", http.StatusForbidden, "host", fmt.Sprintf("this daemon does not answer under the name %.80q", r.Host),
				"Use the address in daemon.public_url, or add the name to daemon.hosts.")
			return
		}
		next.ServeHTTP(o, r)
	})
}

// headers are the safe ones; a way in may set others.
func (f *Front) headers(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("Referrer-Policy", "same-origin") // no-referrer would make a page's own forms come from the origin null
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("X-MCP-Server-Version", f.c.Version)
	if f.set.public.Scheme == "https" {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// hostAllowed keeps out pages that have their own name point here.
func (f *Front) hostAllowed(host string) bool {
	host = strings.ToLower(host)
	if slices.Contains(f.set.hosts, host) {
		return true
	}
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	} else {
		name = strings.Trim(host, "[]")
	}
	return slices.Contains(f.set.hosts, name)
}

type directKey struct{}

// direct puts the client's true address into RemoteAddr. Headers that tell of addresses are believed when a trusted
// proxy sent them, and are gone after this in any case.
func (f *Front) direct(r *http.Request) *http.Request {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	proxied := len(r.Header.Values("X-Forwarded-For"))+len(r.Header.Values("Forwarded"))+len(r.Header.Values("X-Real-Ip"))+len(r.Header.Values("Via")) > 0
	if err == nil {
		client := peer.Addr().Unmap()
		if f.trusted(client) {
			client = f.forwarded(client, r.Header.Values("X-Forwarded-For"))
		}
		r = r.WithContext(context.WithValue(r.Context(), directKey{}, peer.Addr().Unmap().IsLoopback() && !proxied && !f.trusted(peer.Addr().Unmap())))
		r.RemoteAddr = netip.AddrPortFrom(client, peer.Port()).String()
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Forwarded-") || name == "Forwarded" || name == "X-Real-Ip" || name == "True-Client-Ip" || name == "Cf-Connecting-Ip" {
			delete(r.Header, name)
		}
	}
	return r
}

func (f *Front) trusted(a netip.Addr) bool {
	return slices.ContainsFunc(f.set.proxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// forwarded is the last address in the chain that no trusted proxy vouches for as another proxy. What stands before it
// may be anybody's invention.
func (f *Front) forwarded(peer netip.Addr, values []string) netip.Addr {
	chain := strings.Split(strings.Join(values, ","), ",")
	client := peer
	for _, text := range slices.Backward(chain) {
		text = strings.TrimSpace(text)
		a, err := netip.ParseAddr(strings.Trim(text, "[]"))
		if p, perr := netip.ParseAddrPort(text); err != nil && perr == nil {
			a, err = p.Addr(), nil
		}
		if err != nil {
			return client
		}
		client = a.Unmap()
		if !f.trusted(client) {
			return client
		}
	}
	return client
}

// guarded is what a request of one mount passes.
func (f *Front) guarded(m Mount, cross *http.CrossOriginProtection) http.Handler {
	limit := m.MaxBody
	if limit == 0 {
		limit = defaultBody
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o, ok := w.(*writer); ok {
			o.route = m.Pattern
		}
		if origin := r.Header.Get("Origin"); !m.AnyOrigin && (cross.Check(r) != nil || origin != "" && !f.sameOrigin(origin, r.Host)) {
			f.refuse(w, r, m.Pattern, http.StatusForbidden, "origin", "the request comes from a page of another origin", "Only castellan's own pages, and programs that are no browser, may send it.")
			return
		}
		if hasBody(r) {
			counted := f.bodies.meter(r)
			defer counted.done()
			r.Body = counted
			if !m.OwnBody && !f.body(w, r, m, limit) {
				return
			}
		}
		m.Handler.ServeHTTP(w, r)
	})
}

func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

// sameOrigin compares with the public URL and with the host that the request was sent to, which is an allowed one.
func (f *Front) sameOrigin(origin, host string) bool {
	if origin == f.set.public.String() {
		return true
	}
	scheme, rest, ok := strings.Cut(origin, "://")
	return ok && (scheme == "http" || scheme == "https") && strings.EqualFold(rest, host)
}

// body reads the whole body, so that a way in never waits for one and never sees too much of it.
func (f *Front) body(w http.ResponseWriter, r *http.Request, m Mount, limit int64) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if len(m.Types) > 0 && (err != nil || !slices.Contains(m.Types, kind)) {
		w.Header().Set("Accept", strings.Join(m.Types, ", "))
		f.refuse(w, r, m.Pattern, http.StatusUnsupportedMediaType, "type", fmt.Sprintf("the body is %.80q", r.Header.Get("Content-Type")), "Send it as "+strings.Join(m.Types, " or ")+".")
		return false
	}
	tooLarge := func() bool {
		w.Header().Set("Connection", "close")
		f.refuse(w, r, m.Pattern, http.StatusRequestEntityTooLarge, "body", fmt.Sprintf("the body is larger than %d bytes", limit), "Send less at once.")
		return false
	}
	if r.ContentLength > limit {
		return tooLarge()
	}
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(r.Body, limit+1))
	switch {
	case n > limit:
		return tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		f.refuse(w, r, m.Pattern, http.StatusRequestTimeout, "slow", fmt.Sprintf("the body did not come within %s", f.bodyTime), "Send it again.")
		return false
	case errors.Is(err, errBusy):
		w.Header().Set("Connection", "close")
		w.Header().Set("Retry-After", "5")
		f.refuse(w, r, m.Pattern, http.StatusServiceUnavailable, "busy", "too many bodies are under way", "Send fewer at once; try again in a few seconds.")
		return false
	case err != nil:
		f.refuse(w, r, m.Pattern, http.StatusBadRequest, "body", "the body broke off", "Send it again.")
		return false
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(b.Bytes())), n, nil
	return true
}

// refuse turns a request away, and tells of it.
func (f *Front) refuse(w http.ResponseWriter, r *http.Request, route string, status int, reason, message, hint string) {
	fail(w, status, "invalid", message, hint)
	f.metrics.turnedAway(reason)
	if f.budget.take(time.Now()) {
		ip := r.RemoteAddr
		if a, err := netip.ParseAddrPort(ip); err == nil {
			ip = a.Addr().String()
		}
		f.c.Refused(r.Context(), Refusal{Status: status, Reason: reason, IP: ip, Route: route})
	}
}

// fail answers with an error that names the next step.
func fail(w http.ResponseWriter, status int, kind, message, hint string) {
	if o, ok := w.(*writer); ok {
		o.json = false // it is JSON already
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Del("Content-Length")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"kind": kind, "message": message, "changed": "nothing", "hint": hint}}) // the client may be gone
}

// budget bounds how many refusals are told of: thirty at once, then one a second.
type budget struct {
	mu   sync.Mutex
	left float64
	last time.Time
}

func (b *budget) take(now time.Time) bool {
	const most = 30
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last.IsZero() {
		b.left = most
	} else {
		b.left = min(most, b.left+max(0, now.Sub(b.last).Seconds()))
	}
	b.last = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}
