package proxmox

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"castellan/internal/gate"
)

const (
	maxAnswer  = 32 << 20
	maxHeaders = 64 << 10
	// A genuine server drops an idle connection after five seconds; ours is dropped before.
	idleFor      = 4 * time.Second
	badFor       = 30 * time.Second
	idlePerHost  = 16
	totalPerHost = 64
)

// connectError says that no byte of a request left: there was no connection that may carry one.
type connectError struct {
	address string
	err     error
}

func (e *connectError) Error() string {
	var cert *certificateError
	if errors.As(e.err, &cert) {
		return e.address + ": " + cert.text
	}
	return fmt.Sprintf("connect to %s: %v", e.address, e.err)
}

func (e *connectError) Unwrap() error { return e.err }

// link carries requests to the addresses of one target.
type link struct {
	addresses []string
	trust     *trust
	dialFor   time.Duration
	headers   http.Header
	pool      *http.Transport // for reads: keeps connections, never for writes
	now       func() time.Time

	mu    sync.Mutex
	bad   map[string]failing
	local []netip.Addr // own ends of the latest connections, newest first
}

// maxLocal bounds how many of castellan's own addresses are remembered per target.
const maxLocal = 4

// from remembers castellan's own end of a connection.
func (l *link) from(conn net.Conn) {
	at, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return
	}
	own := at.Addr().Unmap().WithZone("")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.local = slices.DeleteFunc(l.local, func(a netip.Addr) bool { return a == own })
	l.local = append([]netip.Addr{own}, l.local[:min(len(l.local), maxLocal-1)]...)
}

// Renew lets go of the connections to a target that are not in use: the next request makes a new one.
func (c *Client) Renew(target string) {
	if t, err := c.target(target); err == nil {
		t.link.pool.CloseIdleConnections()
	}
}

// Own are the addresses from which castellan lately reached a target; none before the first connection.
func (c *Client) Own(target string) []netip.Addr {
	t, err := c.target(target)
	if err != nil {
		return nil
	}
	t.link.mu.Lock()
	defer t.link.mu.Unlock()
	return slices.Clone(t.link.local)
}

// failing is an address that is passed over for a while.
type failing struct {
	until time.Time
	why   string
}

func newLink(addresses []string, tr *trust, dialFor time.Duration, headers http.Header, now func() time.Time) *link {
	l := &link{addresses: addresses, trust: tr, dialFor: dialFor, headers: headers, now: now, bad: map[string]failing{}}
	l.pool = &http.Transport{
		DialTLSContext:         func(ctx context.Context, _, addr string) (net.Conn, error) { return l.dial(ctx, addr) },
		MaxIdleConnsPerHost:    idlePerHost,
		MaxConnsPerHost:        totalPerHost,
		IdleConnTimeout:        idleFor,
		MaxResponseHeaderBytes: maxHeaders,
	}
	return l
}

// dial connects and verifies. Whatever goes wrong here, nothing secret was sent.
func (l *link) dial(ctx context.Context, addr string) (net.Conn, error) {
	ctx, stop := context.WithTimeout(ctx, l.dialFor)
	defer stop()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, &connectError{address: addr, err: err}
	}
	conn := tls.Client(raw, l.trust.config(addr))
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, &connectError{address: addr, err: err}
	}
	l.from(conn)
	return conn, nil
}

// order lists the addresses, those that failed lately last.
func (l *link) order() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var good, bad []string
	for _, a := range l.addresses {
		if l.now().Before(l.bad[a].until) {
			bad = append(bad, a)
		} else {
			good = append(good, a)
		}
	}
	return append(good, bad...)
}

// fail passes an address over for a while; it is tried again when all others fail as well.
func (l *link) fail(addr, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bad[addr] = failing{until: l.now().Add(badFor), why: clean(why, 300)}
}

func (l *link) works(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.bad, addr)
}

// notices tells which addresses are passed over, and why.
func (l *link) notices(target string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, a := range l.addresses {
		if f, ok := l.bad[a]; ok && l.now().Before(f.until) {
			out = append(out, fmt.Sprintf("target %s: %s is passed over for now: %s", target, a, f.why))
		}
	}
	return out
}

// reply is what one request brought back.
type reply struct {
	address string
	status  int
	reason  string
	header  http.Header
	body    []byte
	cut     error             // why the body is not whole
	peer    *x509.Certificate // who answered; nil when not known
}

// sentError says that a request may have left, and no answer came.
type sentError struct {
	address string
	wrote   bool
	err     error
}

func (e *sentError) Error() string {
	what := e.err.Error()
	switch {
	case errors.Is(e.err, context.DeadlineExceeded):
		what = "no answer within the time limit"
	case errors.Is(e.err, context.Canceled):
		what = "given up by the caller before an answer came"
	case errors.Is(e.err, io.EOF), errors.Is(e.err, io.ErrUnexpectedEOF), strings.Contains(what, "connection reset"), strings.Contains(what, "EOF"):
		what = "the connection was cut before an answer came"
	}
	return e.address + ": " + what
}

func (e *sentError) Unwrap() error { return e.err }

// request builds the bytes of one request; what is rendered is sent as it is, or not at all.
func (l *link) request(ctx context.Context, addr string, r gate.Rendered, c *credential) (*http.Request, error) {
	full := "https://" + addr + "/api2/json" + r.Path
	u, err := url.Parse(full)
	if err != nil || !strings.HasPrefix(r.Path, "/") || u.Host != addr || u.EscapedPath() != "/api2/json"+r.Path || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("make request: the path %q cannot be sent as it is", r.Path)
	}
	if strings.ContainsAny(r.Query, " #\r\n\t") {
		return nil, errors.New("make request: the query cannot be sent as it is")
	}
	u.RawQuery = r.Query
	var body io.Reader
	if r.Body != "" {
		// Only a reader: a body that the transport could rewind might be sent twice.
		body = struct{ io.Reader }{strings.NewReader(r.Body)}
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.ContentLength = int64(len(r.Body))
	for name, values := range l.headers {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", "castellan")
	req.Header.Set("Accept", "application/json")
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if r.ContentType != "" {
			req.Header.Set("Content-Type", r.ContentType)
		}
	}
	if c != nil {
		c.apply(req.Header, r.Method != http.MethodGet)
	}
	return req, nil
}

// fetch sends a harmless GET over a kept connection; the transport may send it again when a kept connection turns
// out to be dead.
func (l *link) fetch(ctx context.Context, addr string, r gate.Rendered, c *credential) (reply, error) {
	req, err := l.request(ctx, addr, r, c)
	if err != nil {
		return reply{}, err
	}
	return l.trip(l.pool, addr, req, nil, nil)
}

// once sends a request over a connection of its own, exactly one time: there is no second connection that could
// carry it again, and no kept one whose end would leave its fate open.
func (l *link) once(ctx context.Context, addr string, r gate.Rendered, c *credential, into *taking) (reply, error) {
	req, err := l.request(ctx, addr, r, c)
	if err != nil {
		return reply{}, &connectError{address: addr, err: err}
	}
	if into != nil {
		req.Header.Set("Accept-Encoding", "identity")
	}
	conn, err := l.dial(ctx, addr)
	if err != nil {
		return reply{}, err
	}
	seen := &seenConn{Conn: conn}
	var taken atomic.Bool
	single := &http.Transport{
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
			if !taken.CompareAndSwap(false, true) {
				return nil, errors.New("this request has had its connection")
			}
			return seen, nil
		},
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeaders,
	}
	defer conn.Close()
	rep, err := l.trip(single, addr, req, seen, into)
	if state := conn.(*tls.Conn).ConnectionState(); len(state.PeerCertificates) > 0 {
		rep.peer = state.PeerCertificates[0]
	}
	return rep, err
}

// seenConn remembers whether anything was written.
type seenConn struct {
	net.Conn
	wrote atomic.Bool
}

func (c *seenConn) Write(b []byte) (int, error) {
	c.wrote.Store(true)
	return c.Conn.Write(b)
}

func (l *link) trip(via *http.Transport, addr string, req *http.Request, seen *seenConn, into *taking) (reply, error) {
	// Not a Client: redirects are never followed, cookies never kept.
	res, err := via.RoundTrip(req)
	if err != nil {
		var before *connectError
		if errors.As(err, &before) {
			return reply{}, err
		}
		return reply{}, &sentError{address: addr, wrote: seen == nil || seen.wrote.Load(), err: err}
	}
	defer res.Body.Close()
	rep := reply{address: addr, status: res.StatusCode, header: res.Header}
	if _, reason, ok := strings.Cut(res.Status, " "); ok {
		rep.reason = strings.TrimSpace(reason)
	}
	if res.TLS != nil && len(res.TLS.PeerCertificates) > 0 {
		rep.peer = res.TLS.PeerCertificates[0]
	}
	if into != nil && into.take(res) {
		return rep, nil
	}
	rep.body, rep.cut = readBounded(res.Body, res.ContentLength)
	return rep, nil
}

var errTooLarge = fmt.Errorf("the answer is larger than %d MiB", maxAnswer>>20)

func readBounded(r io.Reader, expected int64) ([]byte, error) {
	size := 4096
	if expected > 0 {
		size = int(min(expected, maxAnswer)) + 512
	}
	buf := make([]byte, 0, size)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if len(buf) > maxAnswer {
			return nil, errTooLarge
		}
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
}
