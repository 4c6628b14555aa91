// Package front is the HTTP side of the daemon: listeners, TLS, and everything that a request must pass before a way in
// sees it: the right host, no foreign page, a bounded body in bounded time, and a client's address that is true. It
// knows nothing of what the ways in do.
package front

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Settings are the part of [daemon] that is about HTTP.
type Settings struct {
	// Listen are the addresses to listen on, "127.0.0.1:8711" or "[::1]:8711"; "off" for none. Default 127.0.0.1:8711.
	Listen []string `toml:"listen"`
	// PublicURL is how browsers and clients reach the daemon: https, except on loopback. Default http://localhost and the port.
	PublicURL string `toml:"public_url"`
	// TLSCert and TLSKey are PEM files: the certificate with its chain, and its key. A change is taken up while running.
	TLSCert string `toml:"tls_cert"`
	TLSKey  string `toml:"tls_key"`
	// TrustedProxies are the addresses ("10.0.0.5", "10.1.0.0/16") whose X-Forwarded-For is believed.
	TrustedProxies []string `toml:"trusted_proxies"`
	// Hosts are further names under which requests may come, beside that of public_url.
	Hosts []string `toml:"hosts"`
	// MetricsToken is the file of the bearer token that reads /metrics from elsewhere than this machine.
	MetricsToken string `toml:"metrics_token_file"`
}

const defaultListen = "127.0.0.1:8711"

// checked are Settings understood.
type checked struct {
	listen  []string
	public  *url.URL
	tls     bool
	proxies []netip.Prefix
	hosts   []string // lower case, with a port where one is required
}

// Check understands the settings, or says which key is wrong.
func (s Settings) Check() error {
	_, err := s.check()
	return err
}

// Loopback says whether nothing but this machine can reach the listeners.
func (s Settings) Loopback() bool {
	c, err := s.check()
	return err == nil && !slices.ContainsFunc(c.listen, func(a string) bool { return !loopback(a) })
}

// URL is the public URL, without a slash at its end.
func (s Settings) URL() (string, error) {
	c, err := s.check()
	if err != nil {
		return "", err
	}
	return c.public.String(), nil
}

func (s Settings) check() (checked, error) {
	c := checked{listen: s.Listen, tls: s.TLSCert != "" || s.TLSKey != ""}
	if len(c.listen) == 0 {
		c.listen = []string{defaultListen}
	}
	if slices.Contains(c.listen, "off") {
		if len(c.listen) > 1 {
			return c, errors.New(`daemon.listen: "off" stands alone`)
		}
		c.listen = nil
	}
	if c.tls && (s.TLSCert == "" || s.TLSKey == "") {
		return c, errors.New("daemon.tls_cert and daemon.tls_key belong together; one is missing")
	}
	port := ""
	for _, a := range c.listen {
		_, p, err := net.SplitHostPort(a)
		if err != nil {
			return c, fmt.Errorf("daemon.listen: %q is no address with a port, such as 127.0.0.1:8711", a)
		}
		if port == "" {
			port = p
		}
	}
	if err := c.publicURL(s.PublicURL, port); err != nil {
		return c, err
	}
	for _, p := range s.TrustedProxies {
		prefix, err := netip.ParsePrefix(p)
		if addr, aerr := netip.ParseAddr(p); err != nil && aerr == nil {
			prefix, err = addr.Prefix(addr.BitLen())
		}
		if err != nil {
			return c, fmt.Errorf("daemon.trusted_proxies: %q is no address and no range such as 10.1.0.0/16", p)
		}
		if prefix.Bits() == 0 {
			return c, fmt.Errorf("daemon.trusted_proxies: %q trusts everybody; name the proxy", p)
		}
		c.proxies = append(c.proxies, prefix.Masked())
	}
	c.hosts = []string{strings.ToLower(c.public.Hostname())}
	for _, h := range s.Hosts {
		if h == "" || strings.ContainsAny(h, "*/ @") {
			return c, fmt.Errorf("daemon.hosts: %q is no host name; each name must be written out", h)
		}
		c.hosts = append(c.hosts, strings.ToLower(h))
	}
	if slices.ContainsFunc(c.listen, loopback) || len(c.listen) == 0 {
		c.hosts = append(c.hosts, "localhost", "127.0.0.1", "::1")
	}
	return c, nil
}

func (c *checked) publicURL(text, port string) error {
	if text == "" {
		if slices.ContainsFunc(c.listen, func(a string) bool { return !loopback(a) }) {
			return errors.New("daemon.public_url is missing: other machines are to reach this daemon; give the https address under which they do")
		}
		scheme := "http"
		if c.tls {
			scheme = "https"
		}
		text = scheme + "://localhost:" + orElse(port, "8711")
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return fmt.Errorf("daemon.public_url is %q: give scheme and host only, such as https://castellan.example", text)
	}
	u.Path, u.RawPath = "", ""
	local := u.Hostname() == "localhost" || loopback(net.JoinHostPort(u.Hostname(), "1"))
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("daemon.public_url is %q: https is wanted", text)
	case u.Scheme == "http" && !local:
		return fmt.Errorf("daemon.public_url is %q: passwords and tokens would go over the network in the clear; https is wanted for any name but localhost", text)
	}
	c.public = u
	return nil
}

// loopback says whether an address to listen on is reached from this machine only.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
