package front

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config is what a Front is made of.
type Config struct {
	Settings Settings
	Mounts   []Mount
	// Unprotected says why requests from other machines would not have to prove who they are; nil when they must. With
	// any listener but loopback it keeps the front from being made.
	Unprotected error
	Health      Health
	// Secret reads a file that holds a secret, checking its owner and mode.
	Secret func(path string) ([]byte, error)
	// Refused is told of requests that were turned away at the door; in a flood, of some.
	Refused func(ctx context.Context, r Refusal)
	Version string
	Log     *slog.Logger
}

// Mount is one way in.
type Mount struct {
	// Pattern is a path as http.ServeMux takes it, without a method: "/mcp", or "/" for what nothing else takes.
	Pattern string
	Handler http.Handler
	// Types are the content types that a body may have; empty = any.
	Types []string
	// MaxBody bounds a body, in bytes; 0 = 128 KiB.
	MaxBody int64
	// AnyOrigin lets pages of other origins use it: for what knows no cookie.
	AnyOrigin bool
	// OwnBody leaves bounds and deadline of bodies to the handler, which knows more before it reads one.
	OwnBody bool
}

// Refusal is a request that was turned away.
type Refusal struct {
	Status int
	Reason string // a fixed word: "host", "origin", "body", "type", "slow", "busy"
	IP     string
	Route  string // the pattern of the mount, if one was found
}

// Front serves HTTP.
type Front struct {
	c       Config
	set     checked
	handler http.Handler
	cert    *certificate
	metrics *metrics
	budget  budget
	// bodyTime is how long a body may take to arrive.
	bodyTime    time.Duration
	bodies      *share // bytes
	connections *share
}

// Bounds of the whole front.
const (
	maxHeader      = 32 << 10
	maxConnections = 4096
	maxEach        = 1024     // connections of one address
	maxBodies      = 64 << 20 // bytes of bodies under way of one address
	maxAllBodies   = 512 << 20
	headerTime     = 5 * time.Second
	bodyTime       = 15 * time.Second
	writeTime      = 30 * time.Second // for one write to be taken
	idleTime       = 2 * time.Minute
	stopTime       = 5 * time.Second
	defaultBody    = 128 << 10
)

// New checks the settings and reads the certificate; Listen opens the listeners.
func New(c Config) (*Front, error) {
	set, err := c.Settings.check()
	if err != nil {
		return nil, fmt.Errorf("make front: %w", err)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Refused == nil {
		c.Refused = func(context.Context, Refusal) {}
	}
	f := &Front{c: c, set: set, bodyTime: bodyTime, bodies: newShare(maxBodies, maxAllBodies), connections: newShare(maxEach, maxConnections)}
	if open := slices.IndexFunc(set.listen, func(a string) bool { return !loopback(a) }); open >= 0 {
		switch {
		case c.Unprotected != nil:
			return nil, fmt.Errorf("make front: daemon.listen names %s, which other machines reach, and nobody has to prove who they are: %w", set.listen[open], c.Unprotected)
		case !set.tls && len(set.proxies) == 0:
			return nil, fmt.Errorf("make front: daemon.listen names %s, which other machines reach, without TLS: set daemon.tls_cert and daemon.tls_key, or daemon.trusted_proxies when a proxy in front does TLS", set.listen[open])
		}
	}
	if set.tls {
		if f.cert, err = newCertificate(c.Settings.TLSCert, c.Settings.TLSKey, c.Secret, c.Log); err != nil {
			return nil, fmt.Errorf("make front: %w", err)
		}
	}
	token, err := f.metricsToken()
	if err != nil {
		return nil, fmt.Errorf("make front: %w", err)
	}
	f.metrics = newMetrics(c.Version, c.Health, token)
	f.handler, err = f.build()
	return f, err
}

func (f *Front) metricsToken() (string, error) {
	if f.c.Settings.MetricsToken == "" {
		return "", nil
	}
	if f.c.Secret == nil {
		return "", errors.New("daemon.metrics_token_file: nothing reads secrets here")
	}
	b, err := f.c.Secret(f.c.Settings.MetricsToken)
	if err != nil {
		return "", fmt.Errorf("daemon.metrics_token_file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if len(token) < 16 {
		return "", errors.New("daemon.metrics_token_file holds fewer than 16 characters")
	}
	return token, nil
}

// URL is the public URL.
func (f *Front) URL() string { return f.set.public.String() }

// Handler answers requests as the listeners do.
func (f *Front) Handler() http.Handler { return f.handler }

// Listen opens all listeners, or none.
func (f *Front) Listen() ([]net.Listener, error) {
	var out []net.Listener
	for _, a := range f.set.listen {
		l, err := net.Listen("tcp", a)
		if err != nil {
			for _, o := range out {
				_ = o.Close()
			}
			return nil, fmt.Errorf("listen (daemon.listen): %w", err)
		}
		out = append(out, l)
	}
	return out, nil
}

// Run serves the listeners until ctx ends. Requests under way are then told to end, and are given a few seconds.
func (f *Front) Run(ctx context.Context, listeners []net.Listener) error {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{Handler: f.handler, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return requests },
		ErrorLog:    slog.NewLogLogger(f.c.Log.Handler(), slog.LevelDebug)} // what clients do wrong on the wire is theirs to know
	if f.cert != nil {
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: f.cert.get, NextProtos: []string{"h2", "http/1.1"}}
	}
	slots := make(chan struct{}, maxConnections)
	var group sync.WaitGroup
	faults := make(chan error, len(listeners))
	for _, l := range listeners {
		l = limited{Listener: l, slots: slots, shares: f.connections, many: func(a netip.Addr) bool { return a.IsLoopback() || f.trusted(a) }}
		group.Go(func() {
			var err error
			if f.cert != nil {
				err = server.ServeTLS(l, "", "")
			} else {
				err = server.Serve(l)
			}
			if !errors.Is(err, http.ErrServerClosed) {
				faults <- fmt.Errorf("serve http: %w", err)
			}
		})
	}
	var fault error
	select {
	case <-ctx.Done():
	case fault = <-faults:
	}
	stop, done := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer done()
	late := time.AfterFunc(stopTime/2, cancel) // streams end when their request does
	defer late.Stop()
	if err := server.Shutdown(stop); err != nil {
		_ = server.Close()
	}
	group.Wait()
	return fault
}
