package identity

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"castellan/internal/gate"
)

// party is the relying party that passkeys belong to: the host of the public URL, and its exact origin.
type party struct {
	id      string // host
	origin  string // scheme, host and port as browsers write it
	problem string // why there can be no passkeys; empty when there can
}

// newParty reads the public URL. A host that passkeys cannot belong to is no error: all other sign-ins work.
func newParty(publicURL string) (party, error) {
	u, err := url.Parse(publicURL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return party{}, fmt.Errorf("make identity: the public URL %q is not http(s)://HOST[:PORT]", clip(publicURL, 200))
	}
	if strings.ContainsFunc(u.Hostname(), func(r rune) bool { return r >= 0x80 }) {
		return party{}, fmt.Errorf("make identity: write the host of the public URL %q as browsers do, in ASCII (xn--…)", clip(publicURL, 200))
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	port := u.Port()
	if port == "443" && u.Scheme == "https" || port == "80" && u.Scheme == "http" {
		port = ""
	}
	p := party{id: host, origin: u.Scheme + "://" + host}
	if strings.Contains(host, ":") {
		p.origin = u.Scheme + "://[" + host + "]"
	}
	if port != "" {
		p.origin = u.Scheme + "://" + net.JoinHostPort(host, port)
	}
	forward := port
	if forward == "" {
		forward = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	switch _, err := netip.ParseAddr(host); {
	case err == nil:
		p.problem = fmt.Sprintf("browsers have no passkeys for an IP address, and the public URL is %s; give it a DNS name, or set it to %s://localhost:%s and reach it by: ssh -L %s:localhost:%s USER@%s",
			p.origin, u.Scheme, forward, forward, forward, host)
	case u.Scheme != "https" && host != "localhost" && !strings.HasSuffix(host, ".localhost"):
		p.problem = fmt.Sprintf("browsers have passkeys over https only, or on localhost, and the public URL is %s; give it a certificate, or set it to http://localhost:%s and reach it by: ssh -L %s:localhost:%s USER@%s",
			p.origin, forward, forward, forward, host)
	}
	return p, nil
}

// PasskeyProblem says why there can be no passkeys at this public URL, and what to do; nil when there can.
func (i *Identity) PasskeyProblem() error {
	if i.party.problem == "" {
		return nil
	}
	return gate.Fail(gate.ErrUnavailable, "Change the public URL, then enrol passkeys anew.", "%s", i.party.problem)
}

// challengeText is a challenge as client data holds it.
func challengeText(challenge []byte) string { return base64.RawURLEncoding.EncodeToString(challenge) }

// said checks what a browser and an authenticator said: for this kind of ceremony, this challenge, at this origin, with
// the person present and verified.
func (p party) said(kind string, challenge, client []byte, d *authenticatorData) error {
	c, err := parseClientData(client)
	if err != nil {
		return err
	}
	want := sha256.Sum256([]byte(p.id))
	switch {
	case c.kind != kind:
		return fmt.Errorf("it is a %q, not a %q", clip(c.kind, 40), kind)
	case len(challenge) < 16 || c.challenge != challengeText(challenge):
		return fmt.Errorf("it answers another challenge")
	case c.origin != p.origin || c.cross:
		return fmt.Errorf("it was given at %q, not at %q", clip(c.origin, 200), p.origin)
	case !bytes.Equal(d.rpHash[:], want[:]):
		return fmt.Errorf("it is for another host than %s", p.id)
	case d.flags&flagPresent == 0:
		return fmt.Errorf("nobody was present")
	case d.flags&flagVerified == 0:
		return fmt.Errorf("the authenticator did not verify its user (PIN, fingerprint or face)")
	}
	return nil
}
