package notify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/smtp"
	"net/textproto"
	"os"
	"strings"
	"time"

	"castellan/internal/seal"
)

// mailer sends mail by SMTP.
type mailer struct {
	SMTP
	host string
	conf *tls.Config
	dial *net.Dialer
}

func newMailer(s SMTP) (*mailer, error) {
	conf, err := trust(s.CAFile)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(s.Address)
	if err != nil {
		return nil, fmt.Errorf("read address: %w", err)
	}
	conf.ServerName = host
	if s.TLS == "" {
		s.TLS = "starttls"
	}
	return &mailer{SMTP: s, host: host, conf: conf, dial: newDialer(s.TLS == "none")}, nil
}

func (m *mailer) name() string { return "smtp" }

// errSome says that the mail went out, but not to everybody.
var errSome = errors.New("not everybody was told")

func (m *mailer) send(ctx context.Context, msg *message) error {
	ctx, cancel := context.WithTimeout(ctx, sendLimit)
	defer cancel()
	c, end, err := m.connect(ctx)
	if err != nil {
		return lasting(err)
	}
	defer end()
	if err := c.Mail(m.From); err != nil {
		return lasting(fmt.Errorf("send mail: sender: %w", err))
	}
	var refused []error
	for _, to := range m.To {
		if err := c.Rcpt(to); err != nil {
			refused = append(refused, fmt.Errorf("to %s: %w", to, err))
		}
	}
	if len(refused) == len(m.To) {
		return lasting(fmt.Errorf("send mail: %w", errors.Join(refused...)))
	}
	w, err := c.Data()
	if err != nil {
		return lasting(fmt.Errorf("send mail: %w", err))
	}
	if _, err := w.Write(m.compose(msg)); err != nil {
		return fmt.Errorf("send mail: %w", err)
	}
	if err := w.Close(); err != nil {
		return lasting(fmt.Errorf("send mail: %w", err))
	}
	_ = c.Quit() // the mail was taken
	if len(refused) > 0 {
		return fmt.Errorf("%w: %w", errSome, errors.Join(refused...))
	}
	return nil
}

// lasting tells the server's "never" (5xx) from its "not now".
func lasting(err error) error {
	var e *textproto.Error
	if errors.As(err, &e) && e.Code >= 500 {
		return permanent{err}
	}
	return err
}

// connect greets, secures the connection and signs in. Nothing that matters is sent before TLS.
func (m *mailer) connect(ctx context.Context) (*smtp.Client, func(), error) {
	conn, err := m.dial.DialContext(ctx, "tcp", m.Address)
	if err != nil {
		return nil, nil, fmt.Errorf("reach mail server: %w", err)
	}
	fail := func(err error) (*smtp.Client, func(), error) { return nil, nil, errors.Join(err, conn.Close()) }
	if t, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(t); err != nil {
			return fail(fmt.Errorf("reach mail server: %w", err))
		}
	}
	if m.TLS == "tls" {
		t := tls.Client(conn, m.conf)
		if err := t.HandshakeContext(ctx); err != nil {
			return fail(fmt.Errorf("reach mail server: %w", err))
		}
		conn = t
	}
	c, err := smtp.NewClient(conn, m.host)
	if err != nil {
		return fail(fmt.Errorf("greet mail server: %w", err))
	}
	if err := c.Hello(helo()); err != nil {
		return fail(fmt.Errorf("greet mail server: %w", err))
	}
	if m.TLS == "starttls" {
		if ok, _ := c.Extension("STARTTLS"); !ok {
			return fail(permanent{errors.New("the mail server offers no STARTTLS; nothing was sent")})
		}
		if err := c.StartTLS(m.conf); err != nil {
			return fail(fmt.Errorf("secure the connection to the mail server: %w", err))
		}
	}
	if m.User != "" {
		p, err := seal.Open(m.PasswordFile)
		if err != nil {
			return fail(err)
		}
		if err := c.Auth(smtp.PlainAuth("", m.User, p.Reveal(), m.host)); err != nil {
			return fail(fmt.Errorf("sign in at the mail server: %w", err))
		}
	}
	return c, func() { _ = c.Close() }, nil
}

func helo() string {
	host, err := os.Hostname()
	if err != nil || host == "" || clean(host) != host || strings.ContainsAny(host, ":@/+!|") {
		return "localhost"
	}
	return host
}

// compose writes the mail. Every line that is not fixed is made of cleaned fields; the header is encoded all the same.
func (m *mailer) compose(msg *message) []byte {
	_, domain, _ := strings.Cut(m.From, "@")
	var b strings.Builder
	header := func(name, value string) { b.WriteString(name + ": " + value + "\r\n") }
	header("From", "castellan <"+m.From+">")
	header("To", strings.Join(m.To, ",\r\n "))
	header("Subject", mime.QEncoding.Encode("utf-8", oneLine(msg.Subject)))
	header("Date", msg.At.Format(time.RFC1123Z))
	header("Message-ID", "<"+msg.ID+"@"+domain+">")
	header("Auto-Submitted", "auto-generated")
	header("MIME-Version", "1.0")
	header("Content-Type", "text/plain; charset=utf-8")
	header("Content-Transfer-Encoding", "8bit")
	if msg.Urgent {
		header("Importance", "high")
	}
	b.WriteString("\r\n")
	for line := range strings.Lines(msg.text()) {
		b.WriteString(strings.TrimRight(line, "\r\n") + "\r\n")
	}
	return []byte(b.String())
}

func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return '_'
		}
		return r
	}, s)
}
