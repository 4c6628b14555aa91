package front

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// certificate is a pair of files, read again when they change. What cannot be used leaves the one before in force.
type certificate struct {
	certFile, keyFile string
	secret            func(string) ([]byte, error)
	log               *slog.Logger

	mu     sync.Mutex
	pair   *tls.Certificate
	stamp  string
	looked time.Time
	fault  error
}

// lookEvery bounds how often the files are looked at.
const lookEvery = time.Second

func newCertificate(certFile, keyFile string, secret func(string) ([]byte, error), log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, secret: secret, log: log}
	if c.secret == nil {
		return nil, errors.New("daemon.tls_key: nothing reads secrets here")
	}
	c.stamp = c.stamped()
	var err error
	c.pair, err = c.load()
	return c, err
}

func (c *certificate) stamped() string {
	var b strings.Builder
	for _, f := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(f)
		if err != nil {
			fmt.Fprint(&b, "missing ")
			continue
		}
		fmt.Fprint(&b, info.Size(), info.ModTime().UnixNano(), " ")
	}
	return b.String()
}

func (c *certificate) load() (*tls.Certificate, error) {
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return nil, fmt.Errorf("daemon.tls_cert: %w", err)
	}
	key, err := c.secret(c.keyFile)
	if err != nil {
		return nil, fmt.Errorf("daemon.tls_key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("daemon.tls_cert and daemon.tls_key: %w", err)
	}
	if now := time.Now(); now.After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("daemon.tls_cert ended on %s", pair.Leaf.NotAfter.Format(time.DateOnly))
	}
	return &pair, nil
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) >= lookEvery {
		c.looked = now
		if stamp := c.stamped(); stamp != c.stamp || c.fault != nil { // the two files may change one after the other
			pair, err := c.load()
			switch {
			case err == nil:
				c.pair, c.fault = pair, nil
				c.log.Info("took up a changed certificate", "until", pair.Leaf.NotAfter)
			case stamp != c.stamp:
				c.fault = err
				c.log.Warn("a changed certificate cannot be used; the one before stays", "error", err)
			}
			c.stamp = stamp
		}
	}
	return c.pair, nil
}

// state says until when the certificate holds, and what is wrong with the files now.
func (c *certificate) state() (until time.Time, fault error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pair.Leaf.NotAfter, c.fault
}

// Trust tells how clients come to trust a certificate that no public authority signed.
type Trust struct {
	Names       []string
	Until       time.Time
	Fingerprint string // SHA-256 of what a client must trust: the last certificate of the chain
	Public      bool   // this machine's own list of authorities trusts it, so that clients will
	Own         bool   // it signed itself
}

// ReadTrust reads a certificate file with its chain.
func ReadTrust(pair tls.Certificate) (Trust, error) {
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return Trust{}, fmt.Errorf("read certificate: %w", err)
	}
	last, err := x509.ParseCertificate(pair.Certificate[len(pair.Certificate)-1])
	if err != nil {
		return Trust{}, fmt.Errorf("read certificate: %w", err)
	}
	t := Trust{Names: leaf.DNSNames, Until: leaf.NotAfter, Own: last.CheckSignatureFrom(last) == nil || last == leaf}
	for _, ip := range leaf.IPAddresses {
		t.Names = append(t.Names, ip.String())
	}
	between := x509.NewCertPool()
	for _, raw := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(raw); err == nil {
			between.AddCert(c)
		}
	}
	if roots, err := x509.SystemCertPool(); err == nil {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between})
		t.Public = err == nil
	}
	sum := sha256.Sum256(last.Raw)
	var parts []string
	for _, b := range sum {
		parts = append(parts, fmt.Sprintf("%02X", b))
	}
	t.Fingerprint = strings.Join(parts, ":")
	return t, nil
}
