//go:build linux

package bridge

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// Header of the shared secret, and the path that takes asks.
const (
	SecretHeader = "X-Castellan-Bridge-Secret"
	AsksPath     = "/v1/asks"
)

const mostBody = 8 << 20

// Service answers the same frames over HTTP, on loopback: the body of a POST holds asks, one a line, and the answer their
// Tells, as they come.
type Service struct {
	bridge *Bridge
	set    ServiceSettings
	tls    *tls.Config
	room   chan struct{} // of requests under way
}

// NewService makes a Service; it listens when it runs.
func NewService(b *Bridge) (*Service, error) {
	s := &Service{bridge: b, set: b.set.Service, room: make(chan struct{}, b.set.Limits.Requests)}
	host, _, err := net.SplitHostPort(s.set.Listen)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("make service: service.listen %q is no address of loopback: put a tunnel or proxy before it", s.set.Listen)
	}
	if s.set.Secret == "" {
		return nil, errors.New("make service: service.secret names no file with the hash of the shared secret")
	}
	if _, err := secretFile(s.set.Secret, ""); err != nil {
		return nil, fmt.Errorf("make service: service.secret: %w", err)
	}
	for name, value := range s.set.Headers {
		if value == "" {
			return nil, fmt.Errorf("make service: service.headers: %s has no value", name)
		}
	}
	if (s.set.Certificate == "") != (s.set.Key == "") {
		return nil, errors.New("make service: service.certificate and service.key go together")
	}
	if s.set.Key != "" {
		key, err := readGuarded(s.set.Key, 1<<20, 0o077)
		if err != nil {
			return nil, fmt.Errorf("make service: service.key: %w", err)
		}
		cert, err := readGuarded(s.set.Certificate, 1<<20, 0o022)
		if err != nil {
			return nil, fmt.Errorf("make service: service.certificate: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("make service: %w", err)
		}
		s.tls = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	return s, nil
}

// Run serves until the context ends; then it takes no more asks, ends what runs and returns.
func (s *Service) Run(ctx context.Context) error {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", s.set.Listen)
	if err != nil {
		return fmt.Errorf("serve bridge: %w", err)
	}
	return s.Serve(ctx, l)
}

// Serve is Run on a listener that is open already, which it closes; it must be one of loopback.
func (s *Service) Serve(ctx context.Context, l net.Listener) error {
	if at, ok := l.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		return errors.Join(fmt.Errorf("serve bridge: %s is no address of loopback: put a tunnel or proxy before it", l.Addr()), l.Close())
	}
	if s.tls != nil {
		l = tls.NewListener(l, s.tls)
	}
	server := &http.Server{Handler: s.handler(ctx), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	reaping := make(chan struct{})
	go func() { defer close(reaping); s.reap(ctx) }()
	defer func() { <-reaping }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve bridge: %w", err)
	case <-ctx.Done():
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		if err := server.Shutdown(end); err != nil {
			return errors.Join(fmt.Errorf("serve bridge: %w", err), server.Close())
		}
		return nil
	}
}

// reap looks for runs whose bridges are gone, as each connection does.
func (s *Service) reap(ctx context.Context) {
	for {
		s.bridge.reap(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(6 * time.Minute):
		}
	}
}

// handler answers requests. ctx ends what runs; the end of a request does not.
func (s *Service) handler(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+AsksPath, func(w http.ResponseWriter, r *http.Request) {
		if status, reason := s.admit(r); status != 0 {
			http.Error(w, reason, status)
			return
		}
		select {
		case s.room <- struct{}{}:
			defer func() { <-s.room }()
		default: // the status proves to castellan that no ask was read
			w.Header().Set("Retry-After", "1")
			http.Error(w, fmt.Sprintf("%d requests are under way at this bridge, which is the limit; nothing was started. Try again when some have ended, or raise limits.requests in %s on the node", cap(s.room), s.bridge.set.path), http.StatusTooManyRequests)
			return
		}
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex() // of HTTP/2 it is so anyway
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusOK)
		_ = control.Flush() // the write that follows tells
		out := flushing{w, control}
		if err := s.bridge.Serve(ctx, http.MaxBytesReader(w, r.Body, mostBody), out); err != nil {
			s.bridge.log.Warn("serve request", "err", err)
		}
	})
	return mux
}

// flushing sends each line at once.
type flushing struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil {
		err = f.control.Flush()
	}
	return n, err
}

// admit says with which status a request is turned away; 0 admits it.
func (s *Service) admit(r *http.Request) (int, string) {
	if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return http.StatusForbidden, "no browser speaks to a bridge"
	}
	ok, err := secretFile(s.set.Secret, r.Header.Get(SecretHeader))
	if err != nil {
		s.bridge.log.Error("compare secret", "err", err)
		return http.StatusInternalServerError, "the bridge cannot compare secrets: castellan bridge check on the node tells why"
	}
	for name, want := range s.set.Headers {
		if !headerIs(r.Header.Values(name), want) {
			ok = false
		}
	}
	if ok {
		return 0, ""
	}
	if s.bridge.state.guesses("service") >= guessesMost {
		return http.StatusTooManyRequests, "too many requests with a wrong secret; wait ten minutes, or correct it"
	}
	s.bridge.state.guessed("service")
	s.bridge.rec.note(entry{Verb: "?", Ending: "refused", Reason: "a request with a wrong secret, or without a header of service.headers, from " + short(r.RemoteAddr)})
	return http.StatusUnauthorized, "the shared secret, or another header that this bridge asks for, is missing or wrong: service.secret and service.headers in " + s.bridge.set.path + " on the node"
}

// headerIs compares in constant time. "*" is any value; "sha256:SALT:HASH" is the value of that hash.
func headerIs(got []string, want string) bool {
	if len(got) != 1 || got[0] == "" {
		return false
	}
	if want == "*" {
		return true
	}
	if strings.HasPrefix(want, secretKind+":") {
		ok, err := matches(want, got[0])
		return err == nil && ok
	}
	return subtle.ConstantTimeCompare([]byte(got[0]), []byte(want)) == 1
}
