package notify

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// newDialer checks the address that a name led to, which only the moment of dialling shows.
func newDialer(loopbackOnly bool) *net.Dialer {
	return &net.Dialer{Timeout: 5 * time.Second, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		a, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("check address: %w", err)
		}
		ip := a.Addr().Unmap()
		switch {
		case loopbackOnly && !ip.IsLoopback():
			return fmt.Errorf("%s is not loopback; without TLS nothing else is dialled", ip)
		case ip.IsUnspecified(), ip.IsMulticast(), ip.IsLinkLocalUnicast():
			return fmt.Errorf("%s is an address that nobody is told at", ip)
		}
		return nil
	}}
}

// trust reads the certificates of a file; the system's roots when there is none.
func trust(file string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if file == "" {
		return c, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read ca_file: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(b) {
		return nil, errors.New("read ca_file: it holds no PEM certificate")
	}
	return c, nil
}

func newClient(plain bool, caFile string) (*http.Client, error) {
	conf, err := trust(caFile)
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Transport: &http.Transport{DialContext: newDialer(plain).DialContext, TLSClientConfig: conf, ForceAttemptHTTP2: true, MaxIdleConns: 2, IdleConnTimeout: time.Minute,
			TLSHandshakeTimeout: 5 * time.Second, ResponseHeaderTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10},
		// A secret must not travel to where somebody else points.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// permanent marks a failure that another try would meet again.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// answered turns a status into an error.
func answered(status int) error {
	if status >= 200 && status <= 299 {
		return nil
	}
	err := fmt.Errorf("the server answers %d", status)
	if status >= 300 && status <= 499 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests {
		return permanent{err}
	}
	return err
}
