package identity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	outsideTimeout = 10 * time.Second
	maxOutside     = 1 << 20 // bytes of an answer
)

// safeURL: https, or http to this machine itself.
func safeURL(u *url.URL) bool {
	return u.Host != "" && u.User == nil && (u.Scheme == "https" || u.Scheme == "http" && isLoopback(u.Hostname()))
}

// isLoopback: a literal address of this machine, or localhost.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}

// newOutside makes the client for outside providers. Addresses are checked when dialled, after the name was resolved, so
// no answer of a name server leads into a private network; redirects are not followed; proxies are not used.
func newOutside(s Settings) *http.Client {
	private := slices.Clone(s.PrivateHosts)
	for _, o := range s.OIDC { // an issuer on this machine is named by the settings
		if u, err := url.Parse(o.Issuer); err == nil && isLoopback(u.Hostname()) {
			private = append(private, u.Hostname())
		}
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		named := slices.ContainsFunc(private, func(h string) bool { return strings.EqualFold(strings.Trim(h, "[]"), host) })
		d := &net.Dialer{Timeout: outsideTimeout, Control: func(_, address string, _ syscall.RawConn) error {
			return allowedAddress(host, address, named)
		}}
		return d.DialContext(ctx, network, address)
	}
	return &http.Client{
		Timeout:       outsideTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &bounded{&http.Transport{DialContext: dial, ForceAttemptHTTP2: true, MaxIdleConns: 8, IdleConnTimeout: 30 * time.Second,
			TLSHandshakeTimeout: outsideTimeout, ResponseHeaderTimeout: outsideTimeout, MaxResponseHeaderBytes: 64 << 10}},
	}
}

// allowedAddress decides on a resolved address of host; named says that the settings name the host.
func allowedAddress(host, address string, named bool) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("reach %s: its address cannot be read", clip(host, 200))
	}
	ip := to.Addr().Unmap().WithZone("")
	switch {
	case ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("reach %s: %s is never asked", clip(host, 200), ip)
	case named || public(ip):
		return nil
	}
	return fmt.Errorf("reach %s: %s is a private address; if that is meant, list the host in identity.private_hosts", clip(host, 200), ip)
}

// public: an address of the open internet. What stands for an IPv4 address within IPv6 is judged as that.
func public(ip netip.Addr) bool {
	for _, p := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
		"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
	} {
		if netip.MustParsePrefix(p).Contains(ip) {
			return false
		}
	}
	if ip.Is4() {
		return true
	}
	// Only global unicast, and of that not the parts that carry an IPv4 address or are for documentation.
	if !netip.MustParsePrefix("2000::/3").Contains(ip) {
		return false
	}
	for _, p := range []string{"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"} {
		if netip.MustParsePrefix(p).Contains(ip) {
			return false
		}
	}
	return true
}

// bounded refuses what is not https (or this machine) and cuts long answers off.
type bounded struct{ next http.RoundTripper }

func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if !safeURL(r.URL) {
		return nil, fmt.Errorf("reach %s: it is not an https address", clip(r.URL.Host, 200))
	}
	resp, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = &limitedBody{ReadCloser: resp.Body, left: maxOutside}
	return resp, nil
}

type limitedBody struct {
	io.ReadCloser
	left int64
}

var errLong = errors.New("the answer is too long")

func (l *limitedBody) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errLong
	}
	if int64(len(p)) > l.left {
		p = p[:l.left]
	}
	n, err := l.ReadCloser.Read(p)
	l.left -= int64(n)
	return n, err
}
