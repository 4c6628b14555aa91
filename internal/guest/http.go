package guest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"castellan/internal/frame"
	"castellan/internal/seal"
)

// httpWay reaches a bridge that is a service: each ask is a request of its own.
type httpWay struct {
	url     string
	headers map[string]string // name → file of the value
	open    func(path string) (seal.Secret, error)
	make    func() *http.Client
	client  atomic.Pointer[http.Client]
}

func newHTTPWay(b BridgeSettings, open func(string) (seal.Secret, error), readFile func(string) ([]byte, error)) (*httpWay, error) {
	w := &httpWay{url: strings.TrimSuffix(b.URL, "/") + asksPath, headers: map[string]string{secretHeader: b.SecretFile}, open: open}
	if b.AccessIDFile != "" {
		w.headers["CF-Access-Client-Id"], w.headers["CF-Access-Client-Secret"] = b.AccessIDFile, b.AccessSecretFile
	}
	if _, err := w.secrets(); err != nil {
		return nil, err
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if b.CAFile != "" {
		text, err := readFile(b.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read ca_file: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read ca_file %s: it holds no certificate in PEM", b.CAFile)
		}
	}
	if len(b.Pins) > 0 {
		var pins []string
		for _, text := range b.Pins {
			pin, err := parsePin(text)
			if err != nil {
				return nil, err
			}
			pins = append(pins, pin)
		}
		conf.InsecureSkipVerify = true // the pin takes the place of the chain and the name
		conf.VerifyConnection = func(s tls.ConnectionState) error {
			sum := sha256.Sum256(s.PeerCertificates[0].Raw)
			if got := hex.EncodeToString(sum[:]); !slices.Contains(pins, got) {
				return fmt.Errorf("the server shows the certificate %s, which is not among pins", got)
			}
			return nil
		}
	}
	w.make = func() *http.Client {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: conf.Clone(), ForceAttemptHTTP2: true, MaxIdleConnsPerHost: b.parallel(), MaxConnsPerHost: 2 * b.parallel(), IdleConnTimeout: time.Minute,
			TLSHandshakeTimeout: connectLimit, ResponseHeaderTimeout: 30 * time.Second, MaxResponseHeaderBytes: 64 << 10},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	w.client.Store(w.make())
	return w, nil
}

// renew takes connections of their own for what comes next; the old ones end with what goes on over them.
func (w *httpWay) renew() {
	w.client.Swap(w.make()).CloseIdleConnections()
}

// secrets reads the headers anew: their files may have been exchanged.
func (w *httpWay) secrets() (http.Header, error) {
	out := http.Header{}
	for name, file := range w.headers {
		s, err := w.open(file)
		if err != nil {
			return nil, err
		}
		value := strings.TrimSpace(s.Reveal())
		if value == "" || strings.ContainsAny(value, "\r\n\x00") {
			return nil, fmt.Errorf("read %s: it holds no secret of one line", file)
		}
		out.Set(name, value)
	}
	return out, nil
}

// post sends one ask and reads its Tells until the last.
func (w *httpWay) post(ctx context.Context, a frame.Ask, live func([]byte)) (frame.Tell, error) {
	head, err := w.secrets()
	if err != nil {
		return frame.Tell{}, &cutError{before: true, cause: err}
	}
	body, err := json.Marshal(a)
	if err != nil {
		return frame.Tell{}, &cutError{before: true, cause: err}
	}
	if len(body) >= frame.MaxLine {
		return frame.Tell{}, &cutError{before: true, cause: frame.ErrTooLong}
	}
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(append(body, '\n')))
	if err != nil {
		return frame.Tell{}, &cutError{before: true, cause: err}
	}
	req.Header = head
	req.Header.Set("Content-Type", "application/x-ndjson")
	// A connection that was kept and is dead must not make the transport send the ask a second time.
	req.GetBody = nil
	resp, err := w.client.Load().Do(req)
	if err != nil {
		return frame.Tell{}, &cutError{before: !connected.Load(), cause: err}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 2000)) // what can be read of it is told
		return frame.Tell{}, &cutError{before: turnedAway(resp.StatusCode), cause: answerError(resp, string(text))}
	}
	r := frame.NewReader(resp.Body)
	started := false
	for {
		var t frame.Tell
		if err := r.Next(&t); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the answer ended before the end of the run was told")
			}
			return frame.Tell{}, &cutError{started: started, cause: err}
		}
		if t.ID != a.ID {
			return frame.Tell{}, &cutError{started: started, cause: fmt.Errorf("the answer is for another ask: %s", bounded(t.Reason, 300))}
		}
		started = started || t.Started
		for _, piece := range [][]byte{t.Out, t.Err} {
			if live != nil && len(piece) > 0 {
				live(piece)
			}
		}
		if t.Ending != "" {
			return t, nil
		}
	}
}

// turnedAway says whether an answer proves that no bridge has read the ask: the service admits nobody with these.
func turnedAway(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusTooManyRequests || status/100 == 3
}

func answerError(resp *http.Response, text string) error {
	if at := resp.Header.Get("Location"); resp.StatusCode/100 == 3 {
		return fmt.Errorf("it answers %d with another address (%s): an access service wants to sign somebody in; give access_id_file and access_secret_file", resp.StatusCode, bounded(at, 100))
	}
	if strings.Contains(resp.Header.Get("Content-Type"), "html") {
		return fmt.Errorf("a web page with status %d came in place of the bridge", resp.StatusCode)
	}
	return fmt.Errorf("it answers %d: %s", resp.StatusCode, bounded(strings.TrimSpace(text), 400))
}

// httpLine is a service that has said hello not long ago.
type httpLine struct {
	way  *httpWay
	told *frame.Self
	till time.Time
}

// helloHolds is how long what a service said of itself is believed without asking again.
const helloHolds = time.Minute

func (l *httpLine) self() *frame.Self { return l.told }

func (l *httpLine) ended() error {
	if time.Now().After(l.till) {
		return errors.New("the bridge has not said hello for a while")
	}
	return nil
}

func (l *httpLine) close(error) { l.way.client.Load().CloseIdleConnections() }
func (l *httpLine) retire()     {}

func (l *httpLine) ask(ctx context.Context, a frame.Ask, live func([]byte)) (frame.Tell, error) {
	return l.way.post(ctx, a, live)
}
