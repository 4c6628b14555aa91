package anchor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// Settings of one anchor: a part [[anchor]] of the configuration.
type Settings struct {
	// Name tells anchors apart in messages; the kind and the place when empty.
	Name string `toml:"name"`
	// Kind is "file", "http", "syslog" or "journal".
	Kind string `toml:"kind"`
	// Path of the file to append to, or of the journal's socket (default /run/systemd/journal/socket).
	Path string `toml:"path"`
	// URL that takes a POST of the signed head and gives the latest one to a GET: https, or http on loopback.
	URL string `toml:"url"`
	// Address of the syslog collector: tcp://host:port, tls://host:port or unix:///path.
	Address string `toml:"address"`
	// TokenFile holds the bearer token for the URL; nobody else may read it.
	TokenFile string `toml:"token_file"`
	// CAFile holds the certificates to trust in place of the system's roots.
	CAFile string `toml:"ca_file"`
	// Every is the least time between two heads that go out; default "5s".
	Every string `toml:"every"`
	// Required has writes refused while this anchor is behind for longer than Limit, or could not be read since the start.
	Required bool `toml:"required"`
	// Limit is how long a required anchor may be behind; default "15m".
	Limit string `toml:"limit"`
	// Outside says that what is written there lies outside castellan's own machine although that cannot be seen from here
	// (a file that something else carries away).
	Outside bool `toml:"outside"`
}

const (
	defaultEvery   = 5 * time.Second
	defaultLimit   = 15 * time.Minute
	defaultJournal = "/run/systemd/journal/socket"
)

// plan is what was understood of Settings.
type plan struct {
	Settings
	every, limit time.Duration
}

// Validate says what is wrong with the settings of all anchors, naming each. It opens nothing.
func Validate(all []Settings) error {
	var errs []error
	names := map[string]bool{}
	for i, s := range all {
		p, err := understand(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("anchor %d: %w", i+1, err))
			continue
		}
		if names[p.Name] {
			errs = append(errs, fmt.Errorf("anchor %d: there are two of the name %s; give each its own name", i+1, p.Name))
		}
		names[p.Name] = true
	}
	return errors.Join(errs...)
}

func understand(s Settings) (plan, error) {
	p := plan{Settings: s}
	var err error
	if p.every, err = duration("every", s.Every, defaultEvery, time.Second, 24*time.Hour); err != nil {
		return p, err
	}
	if p.limit, err = duration("limit", s.Limit, defaultLimit, 10*time.Second, 30*24*time.Hour); err != nil {
		return p, err
	}
	place := ""
	given := map[string]string{"path": s.Path, "url": s.URL, "address": s.Address, "token_file": s.TokenFile, "ca_file": s.CAFile}
	takes := map[string][]string{"file": {"path"}, "http": {"url", "token_file", "ca_file"}, "syslog": {"address", "ca_file"}, "journal": {"path"}}
	if takes[s.Kind] == nil {
		return p, fmt.Errorf("kind is %q; file, http, syslog or journal is wanted", s.Kind)
	}
	for _, k := range takes[s.Kind] {
		delete(given, k)
	}
	for _, k := range []string{"path", "url", "address", "token_file", "ca_file"} {
		if given[k] != "" {
			return p, fmt.Errorf("kind %s takes no key %s", s.Kind, k)
		}
	}
	switch s.Kind {
	case "file":
		if !filepath.IsAbs(s.Path) {
			return p, errors.New("kind file needs path, an absolute one")
		}
		p.Path = filepath.Clean(s.Path)
		place = p.Path
	case "http":
		u, err := parseURL(s.URL)
		if err != nil {
			return p, err
		}
		place = u.Host
	case "syslog":
		u, err := parseAddress(s.Address)
		if err != nil {
			return p, err
		}
		place = u.Host + u.Path
	case "journal":
		if p.Path == "" {
			p.Path = defaultJournal
		}
		if !filepath.IsAbs(p.Path) {
			return p, errors.New("path of the journal's socket must be an absolute one")
		}
	}
	if p.Name == "" {
		p.Name = strings.TrimSpace(s.Kind + " " + place)
	}
	if len(p.Name) > 200 || strings.ContainsFunc(p.Name, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return p, errors.New("name is longer than 200 bytes or holds control characters")
	}
	return p, nil
}

func duration(key, text string, standard, least, most time.Duration) (time.Duration, error) {
	if text == "" {
		return standard, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		return 0, fmt.Errorf("%s is %q; a time such as \"%s\", from %s to %s, is wanted", key, text, standard, least, most)
	}
	return d, nil
}

// parseURL takes https, and http where the host is plainly this machine; what a name leads to is checked when it is dialled.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Opaque != "" {
		return nil, fmt.Errorf("url is %q; https://host/path is wanted", text)
	}
	switch {
	case u.User != nil:
		return nil, errors.New("url holds a user name or password; put a token into token_file")
	case u.Fragment != "":
		return nil, errors.New("url has a part after #, which is never sent")
	case u.Scheme == "https":
	case u.Scheme == "http" && thisMachine(u.Hostname()):
	case u.Scheme == "http":
		return nil, fmt.Errorf("url is http and %s is not loopback; use https", u.Hostname())
	default:
		return nil, fmt.Errorf("url has the scheme %q; https is wanted", u.Scheme)
	}
	return u, nil
}

func thisMachine(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

func parseAddress(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("address is %q; tcp://host:port, tls://host:port or unix:///path is wanted", text)
	}
	switch u.Scheme {
	case "tcp", "tls":
		if host, port, err := net.SplitHostPort(u.Host); err != nil || host == "" || port == "" || u.Path != "" {
			return nil, fmt.Errorf("address is %q; %s://host:port is wanted", text, u.Scheme)
		}
	case "unix":
		if u.Host != "" || !filepath.IsAbs(u.Path) {
			return nil, fmt.Errorf("address is %q; unix:///path is wanted", text)
		}
	case "udp":
		return nil, errors.New("address is udp: what gets lost there is never noticed; use tcp, tls or unix")
	default:
		return nil, fmt.Errorf("address is %q; tcp://host:port, tls://host:port or unix:///path is wanted", text)
	}
	return u, nil
}
