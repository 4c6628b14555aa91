package anchor

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"castellan/internal/ledger"
)

// syslogSink sends heads to a collector as RFC 5424 messages: over TCP, TLS or a stream socket with octet counting, to
// a datagram socket one message each. What it has sent it cannot read back.
type syslogSink struct {
	to    *url.URL
	conf  *tls.Config
	dial  *dialer
	clock func() time.Time
}

func newSyslog(p plan, clock func() time.Time) (*syslogSink, error) {
	to, err := parseAddress(p.Address)
	if err != nil {
		return nil, err
	}
	if p.CAFile != "" && to.Scheme != "tls" {
		return nil, errors.New("ca_file belongs to tls://")
	}
	conf, err := trust(p.CAFile)
	if err != nil {
		return nil, err
	}
	conf.ServerName = to.Hostname()
	return &syslogSink{to: to, conf: conf, dial: newDialer(false), clock: clock}, nil
}

func (s *syslogSink) readable() bool { return false }
func (s *syslogSink) away() bool     { return s.dial.away.Load() }

func (s *syslogSink) latest(context.Context) (string, error) { return "", errNotReadable }

// priority: facility log audit (13), severity notice (5).
const priority = 13*8 + 5

func (s *syslogSink) message(note string) (string, error) {
	c, err := ledger.ParseCheckpoint(note)
	if err != nil {
		return "", err
	}
	host, err := os.Hostname()
	if err != nil || host == "" || len(host) > 255 || strings.ContainsFunc(host, func(r rune) bool { return r < 33 || r > 126 }) {
		host = "-"
	}
	// All values are made of characters that need no escape within structured data.
	return fmt.Sprintf(`<%d>1 %s %s castellan %d checkpoint [castellan@32473 origin="%s" size="%d" root="%s" note="%s"] ledger head of %d records`,
		priority, s.clock().UTC().Format("2006-01-02T15:04:05.000000Z07:00"), host, os.Getpid(), c.Origin, c.Size,
		base64.StdEncoding.EncodeToString(c.Root[:]), base64.StdEncoding.EncodeToString([]byte(note)), c.Size), nil
}

func (s *syslogSink) put(ctx context.Context, note string, _ bool) error {
	msg, err := s.message(note)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, datagram, err := s.connect(ctx)
	if err != nil {
		return fmt.Errorf("reach syslog: %w", err)
	}
	defer conn.Close()
	if t, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(t); err != nil {
			return fmt.Errorf("send to syslog: %w", err)
		}
	}
	if !datagram {
		msg = strconv.Itoa(len(msg)) + " " + msg
	}
	if _, err := io.WriteString(conn, msg); err != nil {
		return fmt.Errorf("send to syslog: %w", err)
	}
	if datagram {
		return nil
	}
	return farewell(conn)
}

// farewell ends the sending side and looks whether the other side resets the connection, which is all that it ever
// says of a message that it did not take.
func farewell(conn net.Conn) error {
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		if err := c.CloseWrite(); err != nil {
			return fmt.Errorf("send to syslog: %w", err)
		}
	}
	_ = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond)) // an error shows in the read
	_, err := conn.Read(make([]byte, 1))
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("send to syslog: %w", err)
	}
	var alert tls.AlertError
	if errors.As(err, &alert) {
		return fmt.Errorf("send to syslog: %w", err)
	}
	return nil
}

func (s *syslogSink) connect(ctx context.Context) (conn net.Conn, datagram bool, err error) {
	switch s.to.Scheme {
	case "unix":
		var d net.Dialer
		conn, err = d.DialContext(ctx, "unixgram", s.to.Path)
		if errors.Is(err, syscall.EPROTOTYPE) {
			conn, err = d.DialContext(ctx, "unix", s.to.Path)
			return conn, false, err
		}
		return conn, true, err
	case "tls":
		conn, err = s.dial.DialContext(ctx, "tcp", s.to.Host)
		if err != nil {
			return nil, false, err
		}
		t := tls.Client(conn, s.conf)
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, false, errors.Join(err, conn.Close())
		}
		return t, false, nil
	}
	conn, err = s.dial.DialContext(ctx, "tcp", s.to.Host)
	return conn, false, err
}
