package oauth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Fetch says how metadata documents are fetched. Its zero value reaches public addresses at port 443 only.
type Fetch struct {
	// Lookup finds the addresses of a host; nil asks the system.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// Permit says which addresses may be connected to; nil is the rule above. For tests.
	Permit func(netip.AddrPort) bool
	// Roots verify the other side; nil are those of the system.
	Roots *x509.CertPool
}

const (
	fetchTime   = 5 * time.Second // for all of it
	maxDocument = 64 << 10
)

var errForbiddenAddress = errors.New("the host has an address that is not public")

// client never follows a redirect, uses no proxy of the environment, and checks each address as it connects.
func (f Fetch) client() *http.Client {
	lookup, permit := f.Lookup, f.Permit
	if lookup == nil {
		lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if permit == nil {
		permit = func(ap netip.AddrPort) bool { return ap.Port() == 443 && isPublic(ap.Addr()) }
	}
	dialer := &net.Dialer{Timeout: fetchTime, Control: func(_, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address) // what is really connected to
		if err != nil || !permit(netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())) {
			return errForbiddenAddress
		}
		return nil
	}}
	return &http.Client{Timeout: fetchTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10, TLSHandshakeTimeout: fetchTime,
			ResponseHeaderTimeout: fetchTime, TLSClientConfig: &tls.Config{RootCAs: f.Roots, MinVersion: tls.VersionTLS12},
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				host, portText, err := net.SplitHostPort(address)
				if err != nil {
					return nil, err
				}
				port, err := strconv.ParseUint(portText, 10, 16)
				if err != nil {
					return nil, err
				}
				addresses, err := lookup(ctx, host)
				if err != nil {
					return nil, err
				}
				// One bad address spoils the name: whoever mixes them is trying something.
				for _, a := range addresses {
					if !permit(netip.AddrPortFrom(a.Unmap(), uint16(port))) {
						return nil, errForbiddenAddress
					}
				}
				err = errors.New("the host has no address")
				for i, a := range addresses {
					if i == 4 {
						break
					}
					var c net.Conn
					if c, err = dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(a.Unmap(), uint16(port)).String()); err == nil {
						return c, nil
					}
				}
				return nil, err
			}}}
}

// closed are ranges within the global ones that lead elsewhere: own networks, documentation, tunnels and translations
// that carry an IPv4 address.
var closed = []string{
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
}

// isPublic says whether an address is one of the public internet.
func isPublic(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
		return false
	}
	// Of IPv6 only 2000::/3 is given out; translations such as 64:ff9b::/96 and old forms lie outside.
	if a.Is6() && a.As16()[0]>>5 != 1 {
		return false
	}
	for _, text := range closed {
		if netip.MustParsePrefix(text).Contains(a) {
			return false
		}
	}
	return true
}

// get fetches the document at url and says how long it may be kept, as its headers have it.
func (f Fetch) get(ctx context.Context, c *http.Client, url string) (body []byte, keep time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "castellan")
	resp, err := c.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		if resp.StatusCode/100 == 3 {
			return nil, 0, fmt.Errorf("the server answered %d: redirects are not followed", resp.StatusCode)
		}
		return nil, 0, fmt.Errorf("the server answered %d, not 200", resp.StatusCode)
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" && !(strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")) {
		return nil, 0, errors.New("the answer is not JSON by its Content-Type")
	}
	if resp.Header.Get("Content-Encoding") != "" {
		return nil, 0, errors.New("the answer is compressed, which was not asked for")
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err != nil {
		return nil, 0, err
	}
	if len(body) > maxDocument {
		return nil, 0, fmt.Errorf("the answer has more than %d bytes", maxDocument)
	}
	return body, keepFor(resp.Header), nil
}

// Bounds of keeping a document, whatever its headers say.
const (
	keepUsually = 5 * time.Minute
	keepAtMost  = 24 * time.Hour
)

// keepFor reads Cache-Control, Age and Expires.
func keepFor(h http.Header) time.Duration {
	keep := keepUsually
	found := false
	for _, line := range h.Values("Cache-Control") {
		for part := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(part)), "=")
			switch name {
			case "no-store", "no-cache":
				return 0
			case "max-age":
				n, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31)
				if err != nil {
					return 0
				}
				if d := time.Duration(n) * time.Second; !found || d < keep {
					keep = d
				}
				found = true
			}
		}
	}
	if found {
		if age, err := strconv.ParseUint(h.Get("Age"), 10, 31); err == nil {
			keep -= time.Duration(age) * time.Second
		}
	} else if text := h.Get("Expires"); text != "" {
		expires, err := http.ParseTime(text)
		date, err2 := http.ParseTime(h.Get("Date"))
		if err != nil || err2 != nil {
			return 0
		}
		keep = expires.Sub(date)
	}
	return min(max(keep, 0), keepAtMost)
}
