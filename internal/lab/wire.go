package lab

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxBody is the most that the genuine server reads of a body that is no upload.
const (
	maxBody   = 512 * 1024
	maxUpload = 64 << 20 // the lab's own bound
	idleTime  = 5 * time.Second
)

// Serve answers on ln with TLS until ctx ends; plain HTTP on the same port is sent to https. It closes ln.
func (l *Lab) Serve(ctx context.Context, ln net.Listener) error { return l.ServeNode(ctx, ln, "") }

// ServeNode is Serve for one more address of the cluster: requests there reach the named node first.
func (l *Lab) ServeNode(ctx context.Context, ln net.Listener, node string) error {
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	defer wg.Wait()
	defer cancel()
	conf := &tls.Config{Certificates: []tls.Certificate{l.cert.tls}, NextProtos: []string{"http/1.1"}}
	for {
		c, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("serve lab: %w", err)
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			end := context.AfterFunc(ctx, func() { c.Close() })
			defer end()
			defer c.Close()
			l.serveConn(ctx, c, conf, node)
		}()
	}
}

// peeked is a connection whose first byte was looked at.
type peeked struct {
	net.Conn
	r io.Reader
}

func (p peeked) Read(b []byte) (int, error) { return p.r.Read(b) }

func (l *Lab) serveConn(ctx context.Context, c net.Conn, conf *tls.Config, node string) {
	first := bufio.NewReaderSize(c, 4096)
	b, err := first.Peek(1)
	if err != nil {
		return
	}
	if b[0] != 0x16 {
		plainRedirect(c, first)
		return
	}
	tc := tls.Server(peeked{c, first}, conf)
	if err := tc.HandshakeContext(ctx); err != nil {
		return
	}
	br := bufio.NewReaderSize(tc, 16*1024)
	for {
		_ = c.SetReadDeadline(time.Now().Add(l.idle()))
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		_ = c.SetReadDeadline(time.Time{})
		limit := int64(maxBody + 1)
		if strings.HasPrefix(req.Header.Get("Content-Type"), "multipart/form-data") {
			limit = maxUpload
		}
		if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
			_, _ = io.WriteString(tc, "HTTP/1.1 100 Continue\r\n\r\n")
		}
		body, err := io.ReadAll(io.LimitReader(req.Body, limit))
		if err != nil {
			return
		}
		ask := &request{method: req.Method, target: req.RequestURI, header: req.Header, body: body, via: node, host: req.Host}
		ans := l.answer(ctx, ask)
		if ans == nil || ans.cut == cutBefore {
			return
		}
		keep := keepAlive(req) && ans.cut == cutNone && !ans.stream && int64(len(body)) < limit
		if !sleep(ctx, ans.delay) {
			return
		}
		if err := l.writeAnswer(tc, req, ans, keep, l.now()); err != nil || !keep {
			if !errors.Is(err, errCut) {
				_ = tc.CloseWrite()
			}
			return
		}
	}
}

// idle is how long a connection may lie unused; the genuine server drops it after five seconds.
func (l *Lab) idle() time.Duration {
	if l.cfg.Delays {
		return idleTime
	}
	return 10 * time.Minute
}

func keepAlive(r *http.Request) bool {
	c := strings.ToLower(r.Header.Get("Connection"))
	if c == "close" {
		return false
	}
	return r.ProtoAtLeast(1, 1) || c == "keep-alive"
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func plainRedirect(c net.Conn, br *bufio.Reader) {
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	req, err := http.ReadRequest(br)
	if err != nil {
		return
	}
	fmt.Fprintf(c, "HTTP/1.1 301 Moved Permanently\r\nLocation: https://%s%s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", req.Host, req.RequestURI)
}

var errCut = errors.New("connection cut by a scripted fault")

func (l *Lab) writeAnswer(w io.Writer, req *http.Request, a *response, keep bool, now time.Time) error {
	body := a.body
	var head bytes.Buffer
	fmt.Fprintf(&head, "HTTP/1.1 %d %s\r\n", a.status, a.reason)
	date := now.UTC().Format(http.TimeFormat)
	if keep {
		head.WriteString("Connection: Keep-Alive\r\n")
	} else {
		head.WriteString("Connection: close\r\n")
	}
	head.WriteString("Cache-Control: max-age=0\r\nPragma: no-cache\r\nServer: pve-api-daemon/3.0\r\n")
	head.WriteString("Date: " + date + "\r\nExpires: " + date + "\r\n")
	if a.ctype != "" {
		head.WriteString("Content-Type: " + a.ctype + "\r\n")
	}
	for k, v := range a.header {
		head.WriteString(k + ": " + v + "\r\n")
	}
	if !a.gzipped && !a.stream && len(body) > 1024 && a.status == 200 && strings.Contains(req.Header.Get("Accept-Encoding"), "gzip") {
		body = l.zip(body)
		head.WriteString("Content-Encoding: gzip\r\n")
	} else if a.gzipped {
		head.WriteString("Content-Encoding: gzip\r\n")
	}
	if !a.stream {
		head.WriteString("Content-Length: " + strconv.Itoa(len(body)) + "\r\n")
	}
	head.WriteString("\r\n")
	if a.cut == cutHalf {
		head.Write(body[:len(body)/2])
		_, _ = w.Write(head.Bytes())
		return errCut
	}
	if len(body) < 16*1024 {
		head.Write(body)
		_, err := w.Write(head.Bytes())
		return err
	}
	if _, err := w.Write(head.Bytes()); err != nil {
		return err
	}
	_, err := w.Write(body)
	return err
}

func (l *Lab) zip(b []byte) []byte {
	var out bytes.Buffer
	z, ok := l.zips.Get().(*gzip.Writer)
	if !ok {
		z, _ = gzip.NewWriterLevel(&out, gzip.BestSpeed)
	}
	z.Reset(&out)
	_, _ = z.Write(b)
	_ = z.Close()
	l.zips.Put(z)
	return out.Bytes()
}
