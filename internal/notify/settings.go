package notify

import (
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// Settings are the part [notify] of the configuration. Its zero value tells nobody.
type Settings struct {
	// Window is the time within which everything that comes up is one notification; default "15s".
	Window string `toml:"window"`
	// Quiet are the hours in which nobody is told ("22:00-07:00"), local time or that of Zone. What comes up then is told
	// afterwards; the kill switch and what concerns credentials, accounts and roles is told at once.
	Quiet []string `toml:"quiet"`
	// Zone is the time zone of Quiet, such as "Europe/Berlin"; the machine's when empty.
	Zone string `toml:"zone"`
	// Webhook gets a JSON document.
	Webhook Webhook `toml:"webhook"`
	// Ntfy gets a message with a title.
	Ntfy Ntfy `toml:"ntfy"`
	// SMTP sends mail.
	SMTP SMTP `toml:"smtp"`
}

// Webhook is where a JSON document is posted to.
type Webhook struct {
	URL        string `toml:"url"`         // https, or http on loopback; none is told when it is empty
	SecretFile string `toml:"secret_file"` // of mode 0600: signs each body
	CAFile     string `toml:"ca_file"`     // certificates to trust in place of the system's roots
}

// Ntfy is a topic of an ntfy server.
type Ntfy struct {
	URL       string `toml:"url"`        // with the topic: https://ntfy.example/topic
	TokenFile string `toml:"token_file"` // of mode 0600: an access token
	CAFile    string `toml:"ca_file"`
}

// SMTP is a mail server.
type SMTP struct {
	Address      string   `toml:"address"`       // host:port
	TLS          string   `toml:"tls"`           // "starttls" (default), "tls", or "none" on loopback
	From         string   `toml:"from"`          // the sender's address
	To           []string `toml:"to"`            // who is told
	User         string   `toml:"user"`          // signs in, when given, with the password of PasswordFile
	PasswordFile string   `toml:"password_file"` // of mode 0600
	CAFile       string   `toml:"ca_file"`
}

const (
	defaultWindow = 15 * time.Second
	maxWindow     = time.Hour
)

// rules are Settings that were understood.
type rules struct {
	window time.Duration
	quiet  []span
	zone   *time.Location
}

// span is a part of each day, in minutes after midnight; it may run over midnight.
type span struct{ from, to int }

// Given says whether anybody is to be told.
func (s Settings) Given() bool {
	return s.Webhook.URL != "" || s.Ntfy.URL != "" || s.SMTP.given()
}

// Validate says what is wrong; it opens nothing.
func (s Settings) Validate() error {
	_, err := s.rules()
	errs := []error{err}
	if s.Webhook != (Webhook{}) {
		errs = append(errs, within("webhook", checkURL(s.Webhook.URL)))
	}
	if s.Ntfy != (Ntfy{}) {
		err := checkURL(s.Ntfy.URL)
		if u, e := url.Parse(s.Ntfy.URL); err == nil && (e != nil || strings.Trim(u.Path, "/") == "") {
			err = errors.New("url has no topic; https://host/topic is wanted")
		}
		errs = append(errs, within("ntfy", err))
	}
	if s.SMTP.given() {
		errs = append(errs, within("smtp", s.SMTP.validate()))
	}
	return errors.Join(errs...)
}

func within(part string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("notify.%s: %w", part, err)
}

func (s Settings) rules() (rules, error) {
	r := rules{window: defaultWindow, zone: time.Local}
	if s.Window != "" {
		d, err := time.ParseDuration(s.Window)
		if err != nil || d < time.Second || d > maxWindow {
			return r, fmt.Errorf("notify.window is %q; a time such as \"15s\", from 1s to %s, is wanted", s.Window, maxWindow)
		}
		r.window = d
	}
	if s.Zone != "" {
		z, err := time.LoadLocation(s.Zone)
		if err != nil {
			return r, fmt.Errorf("notify.zone: %w", err)
		}
		r.zone = z
	}
	for _, text := range s.Quiet {
		from, to, ok := strings.Cut(text, "-")
		a, err := time.Parse("15:04", strings.TrimSpace(from))
		b, err2 := time.Parse("15:04", strings.TrimSpace(to))
		if !ok || err != nil || err2 != nil || a.Equal(b) {
			return r, fmt.Errorf("notify.quiet is %q; two times such as \"22:00-07:00\" are wanted", text)
		}
		r.quiet = append(r.quiet, span{a.Hour()*60 + a.Minute(), b.Hour()*60 + b.Minute()})
	}
	return r, nil
}

// silent says whether nobody is to be told at that time.
func (r rules) silent(at time.Time) bool {
	at = at.In(r.zone)
	m := at.Hour()*60 + at.Minute()
	for _, s := range r.quiet {
		if s.from < s.to && m >= s.from && m < s.to || s.from > s.to && (m >= s.from || m < s.to) {
			return true
		}
	}
	return false
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return fmt.Errorf("url is %q; https://host/path is wanted", text)
	case u.User != nil:
		return errors.New("url holds a user name or password; put the secret into a file")
	case u.Fragment != "":
		return errors.New("url has a part after #, which is never sent")
	case u.Scheme == "https", u.Scheme == "http" && thisMachine(u.Hostname()):
		return nil
	case u.Scheme == "http":
		return fmt.Errorf("url is http and %s is not loopback; use https", u.Hostname())
	}
	return fmt.Errorf("url has the scheme %q; https is wanted", u.Scheme)
}

func thisMachine(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

func (s SMTP) given() bool {
	return s.Address != "" || s.From != "" || len(s.To) > 0 || s.User != "" || s.PasswordFile != "" || s.TLS != "" || s.CAFile != ""
}

func (s SMTP) validate() error {
	host, port, err := net.SplitHostPort(s.Address)
	switch {
	case err != nil || host == "" || port == "":
		return fmt.Errorf("address is %q; host:port is wanted", s.Address)
	case s.TLS != "" && s.TLS != "starttls" && s.TLS != "tls" && s.TLS != "none":
		return fmt.Errorf("tls is %q; starttls, tls or none is wanted", s.TLS)
	case s.TLS == "none" && !thisMachine(host):
		return fmt.Errorf("tls is none and %s is not loopback", host)
	case (s.User == "") != (s.PasswordFile == ""):
		return errors.New("user and password_file belong together")
	case len(s.To) == 0:
		return errors.New("to is empty: nobody would be told")
	case len(s.To) > 50:
		return errors.New("to has more than 50 addresses")
	}
	for _, a := range append([]string{s.From}, s.To...) {
		if _, err := bareAddress(a); err != nil {
			return err
		}
	}
	return nil
}

// bareAddress takes "someone@host" and nothing beside it.
func bareAddress(text string) (string, error) {
	a, err := mail.ParseAddress(text)
	if err != nil || a.Name != "" || a.Address != text || strings.ContainsFunc(text, func(r rune) bool { return r <= 0x20 || r >= 0x7f || r == '<' || r == '>' }) {
		return "", fmt.Errorf("%q is no plain mail address", text)
	}
	return a.Address, nil
}
