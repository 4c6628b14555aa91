// Package proxmox talks to the four products over HTTPS: it logs in, verifies certificates, reads, and carries out
// the writes that a gate.Permit allows, each exactly once. It never decides.
package proxmox

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/gate"
	"castellan/internal/seal"
)

// Config is what a Client is made from.
type Config struct {
	Settings Settings
	Catalog  Catalog
	Secrets  func(path string) (seal.Secret, error) // opens secret files; default seal.Open
	ReadFile func(path string) ([]byte, error)      // reads public files (ca_file); default os.ReadFile
	Clock    func() time.Time                       // default time.Now
	Log      *slog.Logger                           // default: nothing is logged
	Sink     Sink                                   // takes what is downloaded; default: nothing can be
}

// Catalog is what the client asks of the API description.
type Catalog interface {
	// Render gives the bytes that are sent; open gives the text of secrets and references.
	Render(r gate.Request, open func(gate.Value) (string, error)) (gate.Rendered, error)
	Judge(r gate.Request) gate.Judgement
}

// Client reaches the configured targets. It is safe for concurrent use and implements gate.Driver.
type Client struct {
	targets []*target
	catalog Catalog
	now     func() time.Time
	log     *slog.Logger
	texts   func() []text
	sink    Sink
}

var _ gate.Driver = (*Client)(nil)

// target is one remote with everything that is known of it.
type target struct {
	set   Target
	hosts []string
	user  string // user or token id that castellan has there
	login *login
	link  *link
	trust *trust

	mu      sync.Mutex
	site    string
	version string
	skew    map[string]time.Duration // address → how far its clock is ahead of ours
	nodeOf  map[string]string        // address and certificate → the node that answers there
}

// New checks the settings and opens what they name. No connection is made and nothing is started.
func New(cfg Config) (*Client, error) {
	if cfg.Catalog == nil {
		return nil, errors.New("make client: no catalogue given")
	}
	if cfg.Secrets == nil {
		cfg.Secrets = seal.Open
	}
	if cfg.ReadFile == nil {
		cfg.ReadFile = os.ReadFile
	}
	if err := cfg.Settings.Validate(); err != nil {
		return nil, err
	}
	c := &Client{catalog: cfg.Catalog, now: cfg.Clock, log: cfg.Log, texts: sync.OnceValue(texts), sink: cfg.Sink}
	if c.now == nil {
		c.now = time.Now
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	problems := &SettingsError{}
	for i, set := range cfg.Settings.Targets {
		c.targets = append(c.targets, c.newTarget(fmt.Sprintf("target[%d]", i), set, cfg, problems))
	}
	if err := problems.orNil(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Client) newTarget(key string, set Target, cfg Config, problems *SettingsError) *target {
	t := &target{set: set, hosts: set.hosts(), trust: &trust{name: set.ServerName, now: c.now}, skew: map[string]time.Duration{}, nodeOf: map[string]string{}}
	open := func(name, ref string) string {
		if ref == "" {
			return ""
		}
		s, err := cfg.Secrets(ref)
		switch {
		case err != nil:
			problems.add(key+"."+name, "%v", err)
		case strings.TrimSpace(s.Reveal()) == "":
			problems.add(key+"."+name, "the file is empty")
		}
		return s.Reveal()
	}
	t.login = &login{target: set, open: cfg.Secrets, now: c.now}
	t.user = set.User
	switch {
	case set.TokenFile != "":
		if s := open("token_file", set.TokenFile); strings.TrimSpace(s) != "" {
			id, _, err := parseToken(s)
			if err != nil {
				problems.add(key+".token_file", "%v", err)
			}
			t.user = id
		}
	case set.TokenID != "":
		t.user, _ = set.fullTokenID()
		open("secret_file", set.SecretFile)
	default:
		open("password_file", set.PasswordFile)
		if s := open("totp_file", set.TOTPFile); strings.TrimSpace(s) != "" {
			if _, err := parseTOTP(s); err != nil {
				problems.add(key+".totp_file", "%v", err)
			}
		}
		open("recovery_file", set.RecoveryFile)
	}
	if set.CAFile != "" {
		text, err := cfg.ReadFile(set.CAFile)
		if err == nil {
			t.trust.anchors, err = readAnchors(text)
		}
		if err != nil {
			problems.add(key+".ca_file", "%v", err)
		}
	}
	for _, text := range set.Pins {
		if p, err := parsePin(text); err == nil {
			t.trust.pins = append(t.trust.pins, p)
		}
	}
	headers := http.Header{}
	for name, ref := range set.Headers {
		value := strings.TrimSpace(open("headers."+name, ref))
		if strings.ContainsAny(value, "\r\n\x00") {
			problems.add(key+".headers."+name, "the file holds more than one line")
			continue
		}
		headers.Set(name, value)
	}
	t.link = newLink(t.hosts, t.trust, set.ConnectTimeout.or(5*time.Second), headers, c.now)
	t.login.post = c.poster(t)
	return t
}

// Targets lists the remotes in the order of the settings; the user is known without a call.
func (c *Client) Targets() []gate.TargetInfo {
	out := make([]gate.TargetInfo, len(c.targets))
	for i, t := range c.targets {
		t.mu.Lock()
		out[i] = gate.TargetInfo{Name: t.set.Name, Product: t.set.Kind, Addresses: slices.Clone(t.hosts), User: t.user, Site: t.site, Version: t.version}
		t.mu.Unlock()
	}
	return out
}

// Address is the one that a write without an address of its own would be sent to now.
func (c *Client) Address(name string) (string, error) {
	t, err := c.target(name)
	if err != nil {
		return "", err
	}
	return t.link.order()[0], nil
}

// Notices says what the person who runs this should know: certificates that end soon, and addresses that fail while
// others stand in for them.
func (c *Client) Notices() []string {
	var out []string
	for _, t := range c.targets {
		out = append(out, t.trust.notices(t.set.Name, t.hosts)...)
		if len(t.hosts) > 1 {
			var v veil
			t.veil(&v)
			for _, n := range t.link.notices(t.set.Name) {
				out = append(out, v.text(n))
			}
		}
	}
	return out
}

// Close drops idle connections.
func (c *Client) Close() {
	for _, t := range c.targets {
		t.link.pool.CloseIdleConnections()
	}
}

func (c *Client) target(name string) (*target, error) {
	if name == "" && len(c.targets) == 1 {
		return c.targets[0], nil
	}
	var names []string
	for _, t := range c.targets {
		if t.set.Name == name {
			return t, nil
		}
		names = append(names, t.set.Name)
	}
	if len(names) == 0 {
		return nil, gate.Fail(gate.ErrNotFound, "Add a target to the configuration.", "no target is configured")
	}
	if name == "" {
		return nil, gate.Fail(gate.ErrInvalid, "Name one of them.", "several targets are configured: %s", strings.Join(names, ", "))
	}
	return nil, gate.Fail(gate.ErrNotFound, "Name one of the configured ones.", "no target is called %q; there are %s", name, strings.Join(names, ", "))
}

// unescape undoes the escaping of a path part; what cannot be undone stays.
func unescape(s string) string {
	if out, err := url.PathUnescape(s); err == nil {
		return out
	}
	return s
}
