package proxmox

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// trust decides on a server's certificate before any byte of a request is sent.
type trust struct {
	pins    []pin
	anchors []*x509.Certificate // of ca_file
	name    string              // expected in the certificate; "" = the host of the address
	now     func() time.Time

	mu   sync.Mutex
	ends map[string]time.Time // address → when the certificate that it showed last ends
}

// certificateError says that a certificate was not accepted.
type certificateError struct {
	text string
}

func (e *certificateError) Error() string { return e.text }

func readAnchors(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for rest := text; ; {
		block, more := pem.Decode(rest)
		if block == nil {
			break
		}
		rest = more
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read certificate %d: %w", len(out)+1, err)
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, errors.New("it holds no PEM certificate")
	}
	return out, nil
}

// config makes the TLS settings for one address. The standard verification is replaced by verify, not left out:
// the cluster's own CA and pinned keys are beyond what it can be told.
func (t *trust) config(addr string) *tls.Config {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	name := host
	if t.name != "" {
		name = t.name
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         name,
		NextProtos:         []string{"http/1.1"},
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			return t.verify(addr, name, s.PeerCertificates)
		},
	}
}

func (t *trust) verify(addr, name string, shown []*x509.Certificate) error {
	if len(shown) == 0 {
		return &certificateError{text: "the server showed no certificate"}
	}
	chain, err := t.accept(name, shown)
	if err != nil {
		return err
	}
	end := shown[0].NotAfter
	for _, c := range chain {
		if c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ends == nil {
		t.ends = map[string]time.Time{}
	}
	t.ends[addr] = end
	return nil
}

func (t *trust) accept(name string, shown []*x509.Certificate) ([]*x509.Certificate, error) {
	if len(t.pins) > 0 {
		return t.acceptPinned(name, shown)
	}
	var roots *x509.CertPool
	if len(t.anchors) > 0 {
		roots = x509.NewCertPool()
		for _, c := range t.anchors {
			roots.AddCert(c)
		}
	}
	chain, err := t.chain(name, shown, roots)
	if err != nil {
		by := "the system's roots; for a certificate of the cluster's own CA set ca_file or pins"
		if roots != nil {
			by = "the certificates of ca_file"
		}
		return nil, &certificateError{text: fmt.Sprintf("the certificate (SHA-256 %s) does not verify by %s: %v", fingerprint(shown[0]), by, err)}
	}
	return chain, nil
}

func (t *trust) acceptPinned(name string, shown []*x509.Certificate) ([]*x509.Certificate, error) {
	leaf := shown[0]
	cert, key := sha256.Sum256(leaf.Raw), sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	candidates := append(append([]*x509.Certificate{}, shown[1:]...), t.anchors...)
	roots := x509.NewCertPool()
	found := false
	for _, p := range t.pins {
		if p.sum == cert && p.only != "key" && p.only != "ca" || p.sum == key && p.only != "cert" && p.only != "ca" {
			return nil, nil
		}
		if p.only == "cert" || p.only == "key" {
			continue
		}
		for _, c := range candidates {
			if p.sum == sha256.Sum256(c.Raw) || p.sum == sha256.Sum256(c.RawSubjectPublicKeyInfo) {
				roots.AddCert(c)
				found = true
			}
		}
	}
	if found {
		chain, err := t.chain(name, shown, roots)
		if err == nil {
			return chain, nil
		}
		return nil, &certificateError{text: fmt.Sprintf("the certificate (SHA-256 %s) does not verify by the pinned CA: %v", fingerprint(leaf), err)}
	}
	more := ""
	if len(candidates) == 0 {
		more = " (a pin of its CA works only with the CA's certificate in ca_file: the server does not send it)"
	}
	return nil, &certificateError{text: fmt.Sprintf("the certificate fits none of the %d pins: its SHA-256 is %s, that of its public key %s%s",
		len(t.pins), fingerprint(leaf), colons(key[:]), more)}
}

func (t *trust) chain(name string, shown []*x509.Certificate, roots *x509.CertPool) ([]*x509.Certificate, error) {
	between := x509.NewCertPool()
	for _, c := range shown[1:] {
		between.AddCert(c)
	}
	chains, err := shown[0].Verify(x509.VerifyOptions{DNSName: name, Roots: roots, Intermediates: between, CurrentTime: t.now()})
	if err != nil {
		return nil, err
	}
	// The chain that lasts longest decides when to warn.
	best := chains[0]
	for _, c := range chains[1:] {
		if earliestEnd(c).After(earliestEnd(best)) {
			best = c
		}
	}
	return best, nil
}

func earliestEnd(chain []*x509.Certificate) time.Time {
	end := chain[0].NotAfter
	for _, c := range chain {
		if c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	return end
}

// notices warns of certificates that end within 30 days.
func (t *trust) notices(target string, addresses []string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for _, a := range addresses {
		end, ok := t.ends[a]
		if !ok {
			continue
		}
		left := end.Sub(t.now())
		switch {
		case left <= 0:
			out = append(out, fmt.Sprintf("target %s: the certificate of %s ended on %s (its pin is still accepted)", target, a, end.UTC().Format(time.DateOnly)))
		case left <= 30*24*time.Hour:
			out = append(out, fmt.Sprintf("target %s: the certificate of %s ends on %s, in %d days; renew it and change the pins, if it is pinned", target, a, end.UTC().Format(time.DateOnly), int(left.Hours()/24)))
		}
	}
	return out
}

func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return colons(sum[:])
}

func colons(sum []byte) string {
	parts := make([]string, len(sum))
	for i, b := range sum {
		parts[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(parts, ":")
}
