package anchor

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"castellan/internal/ledger"
	"castellan/internal/seal"
)

// httpSink posts heads to a URL and reads the latest one from there.
type httpSink struct {
	url, tokenFile string
	client         *http.Client
	dial           *dialer
}

func newHTTP(p plan) (*httpSink, error) {
	u, err := parseURL(p.URL)
	if err != nil {
		return nil, err
	}
	conf, err := trust(p.CAFile)
	if err != nil {
		return nil, err
	}
	d := newDialer(u.Scheme == "http")
	s := &httpSink{url: p.URL, tokenFile: p.TokenFile, dial: d}
	s.client = &http.Client{
		Transport: &http.Transport{DialContext: d.DialContext, TLSClientConfig: conf, ForceAttemptHTTP2: true, MaxIdleConns: 2, IdleConnTimeout: time.Minute,
			TLSHandshakeTimeout: 5 * time.Second, ResponseHeaderTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10},
		// A token must not travel to where somebody else points.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s, nil
}

func (s *httpSink) readable() bool { return true }
func (s *httpSink) away() bool     { return s.dial.away.Load() }

func (s *httpSink) put(ctx context.Context, note string, _ bool) error {
	_, status, err := s.send(ctx, http.MethodPost, note)
	if err != nil {
		return err
	}
	if status < 200 || status > 299 {
		return fmt.Errorf("post head: the server answers %d", status)
	}
	return nil
}

func (s *httpSink) latest(ctx context.Context) (string, error) {
	body, status, err := s.send(ctx, http.MethodGet, "")
	switch {
	case err != nil:
		return "", err
	case status == http.StatusNotFound || status == http.StatusNoContent || status == http.StatusOK && strings.TrimSpace(body) == "":
		return "", nil
	case status != http.StatusOK:
		return "", fmt.Errorf("get head: the server answers %d", status)
	}
	return body, nil
}

func (s *httpSink) send(ctx context.Context, method, body string) (string, int, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.url, strings.NewReader(body))
	if err != nil {
		return "", 0, fmt.Errorf("make request: %w", err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "text/plain; charset=utf-8")
	} else {
		r.Body = http.NoBody
	}
	r.Header.Set("User-Agent", "castellan")
	if s.tokenFile != "" {
		t, err := seal.Open(s.tokenFile) // anew each time: it may have been renewed
		if err != nil {
			return "", 0, err
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(t.Reveal()))
	}
	a, err := s.client.Do(r)
	if err != nil {
		return "", 0, fmt.Errorf("reach anchor: %w", err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(io.LimitReader(a.Body, ledger.MaxNote+1))
	if err != nil {
		return "", 0, fmt.Errorf("read the anchor's answer: %w", err)
	}
	if method == http.MethodGet && len(b) > ledger.MaxNote {
		return "", 0, fmt.Errorf("read the anchor's answer: it is longer than %d bytes", ledger.MaxNote)
	}
	return string(b), a.StatusCode, nil
}
