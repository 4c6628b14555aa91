package anchor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// dialer connects and checks the address that a name led to, which only the moment of dialling shows.
type dialer struct {
	net.Dialer
	loopback bool // only to this machine
	away     atomic.Bool
}

func newDialer(loopbackOnly bool) *dialer {
	d := &dialer{loopback: loopbackOnly}
	d.Timeout = 5 * time.Second
	d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		a, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("check address: %w", err)
		}
		ip := a.Addr().Unmap()
		switch {
		case d.loopback && !ip.IsLoopback():
			return fmt.Errorf("%s is not loopback; without TLS nothing else is dialled", ip)
		case ip.IsUnspecified(), ip.IsMulticast(), ip.IsLinkLocalUnicast():
			return fmt.Errorf("%s is an address that no anchor has", ip)
		}
		d.away.Store(!ip.IsLoopback() && !ours(ip))
		return nil
	}
	return d
}

// ours says whether ip is an address of this machine.
func ours(ip netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true // not known to be elsewhere
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == ip {
			return true
		}
	}
	return false
}

// trust reads the certificates of a file; nil stands for the system's roots.
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
