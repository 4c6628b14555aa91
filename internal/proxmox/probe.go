package proxmox

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"sync"
	"time"
)

// Contact is how one address of a target fares.
type Contact struct {
	Address     string
	Fault       string        // why it cannot be used; empty: it answers
	Reached     bool          // a TLS connection was made and its certificate accepted
	Refused     bool          // it does not take the token or login
	Certificate string        // SHA-256 of what it shows, also of one that is not accepted
	TrustedBy   string        // "pin of the certificate", "pin of its key", "pinned CA", "ca_file", "the system's roots"
	Ends        time.Time     // when the certificate, or one above it, ends
	Skew        time.Duration // how far its clock is ahead of ours, to the second
	Version     string
}

// Probe tries every address of a target once. The login is tried at one address after the other and no more once it was
// refused: each refusal costs the server seconds, and may lock the account.
func (c *Client) Probe(ctx context.Context, name string) ([]Contact, error) {
	t, err := c.target(name)
	if err != nil {
		return nil, err
	}
	out := make([]Contact, len(t.hosts))
	var group sync.WaitGroup
	for i, addr := range t.hosts {
		group.Go(func() { out[i] = t.greet(ctx, addr) })
	}
	group.Wait()
	var v veil
	t.veil(&v)
	refused := ""
	for i := range out {
		r := &out[i]
		switch {
		case !r.Reached:
		case refused != "":
			r.Refused, r.Fault = true, refused
		default:
			before := c.now()
			rep, answer, fail := t.ask(ctx, r.Address, "/version", "")
			if fail != nil {
				r.Refused, r.Fault = fail.Auth, fail.Message
				if fail.Auth {
					r.Fault = fail.Hint
					refused = r.Fault
				}
				break
			}
			t.noteClock(r.Address, rep, before)
			t.noteVersion(answer)
			t.mu.Lock()
			r.Skew, r.Version = t.skew[r.Address], t.version
			t.mu.Unlock()
		}
		r.Fault = v.text(r.Fault)
	}
	return out, nil
}

// greet makes a TLS connection and sends nothing over it.
func (t *target) greet(ctx context.Context, addr string) Contact {
	r := Contact{Address: addr}
	conn, err := t.link.dial(ctx, addr)
	if err != nil {
		r.Fault = clean(err.Error(), 400)
		var cert *certificateError
		if errors.As(err, &cert) {
			r.Certificate = t.shownTo(ctx, addr)
		}
		return r
	}
	defer conn.Close()
	r.Reached = true
	if state := conn.(*tls.Conn).ConnectionState(); len(state.PeerCertificates) > 0 {
		leaf := state.PeerCertificates[0]
		r.Certificate = fingerprint(leaf)
		r.TrustedBy = t.trust.by(sha256.Sum256(leaf.Raw), sha256.Sum256(leaf.RawSubjectPublicKeyInfo))
	}
	t.trust.mu.Lock()
	r.Ends = t.trust.ends[addr]
	t.trust.mu.Unlock()
	return r
}

// shownTo looks at a certificate that was not accepted. Nothing is sent over that connection.
func (t *target) shownTo(ctx context.Context, addr string) string {
	ctx, stop := context.WithTimeout(ctx, t.link.dialFor)
	defer stop()
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return ""
	}
	defer conn.Close()
	state := conn.(*tls.Conn).ConnectionState()
	if len(state.PeerCertificates) == 0 {
		return ""
	}
	return fingerprint(state.PeerCertificates[0])
}

// by says what a certificate that was accepted is trusted by.
func (t *trust) by(cert, key [32]byte) string {
	for _, p := range t.pins {
		switch {
		case p.sum == cert && p.only != "key" && p.only != "ca":
			return "pin of the certificate"
		case p.sum == key && p.only != "cert" && p.only != "ca":
			return "pin of its key"
		}
	}
	switch {
	case len(t.pins) > 0:
		return "pinned CA"
	case len(t.anchors) > 0:
		return "ca_file"
	}
	return "the system's roots"
}
