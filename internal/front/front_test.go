package front

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// echo answers with what a way in sees.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body) // bounded by the front
	fmt.Fprintf(w, "%s %s %d xff=%q", r.Method, r.RemoteAddr, len(b), r.Header.Get("X-Forwarded-For")+r.Header.Get("Forwarded")+r.Header.Get("X-Real-Ip"))
})

type refusals struct {
	mu   sync.Mutex
	list []Refusal
}

func (r *refusals) note(_ context.Context, x Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, x)
}

func newFront(t testing.TB, s Settings, change func(*Config)) (*Front, *refusals) {
	t.Helper()
	var seen refusals
	only := http.NewServeMux()
	only.Handle("GET /only", echo)
	c := Config{Settings: s, Version: "test", Refused: seen.note, Secret: os.ReadFile, Mounts: []Mount{
		{Pattern: "/echo", Handler: echo, Types: []string{"application/json"}, MaxBody: 1000},
		{Pattern: "/any", Handler: echo, AnyOrigin: true},
		{Pattern: "/only", Handler: only},
		{Pattern: "/panic", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oh") })},
	}}
	if change != nil {
		change(&c)
	}
	f, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return f, &seen
}

func request(method, path, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body == "" {
		r.Body, r.ContentLength = http.NoBody, 0
	}
	r.Host = "localhost:8711"
	r.RemoteAddr = "127.0.0.1:4000"
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		if headers[i] == "From" {
			r.RemoteAddr = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func TestWhoGetsThrough(t *testing.T) {
	f, seen := newFront(t, Settings{Hosts: []string{"Castle.example", "odd:99"}}, nil)
	jsonBody := []string{"Content-Type", "application/json"}
	for name, c := range map[string]struct {
		r      *http.Request
		status int
		reason string
	}{
		"get":                 {request("GET", "/echo", ""), 200, ""},
		"post":                {request("POST", "/echo", "{}", jsonBody...), 200, ""},
		"other port":          {request("GET", "/echo", "", "Host", "127.0.0.1:1"), 200, ""},
		"six":                 {request("GET", "/echo", "", "Host", "[::1]:8711"), 200, ""},
		"named":               {request("GET", "/echo", "", "Host", "castle.EXAMPLE"), 200, ""},
		"named with port":     {request("GET", "/echo", "", "Host", "odd:99"), 200, ""},
		"named, other port":   {request("GET", "/echo", "", "Host", "odd:98"), 403, "host"},
		"rebound":             {request("GET", "/echo", "", "Host", "evil.example:8711"), 403, "host"},
		"suffix":              {request("GET", "/echo", "", "Host", "castle.example.evil.example"), 403, "host"},
		"no host":             {request("GET", "/echo", "", "Host", ""), 403, "host"},
		"health under any":    {request("GET", "/healthz", "", "Host", "10.0.0.9:8711"), 200, ""},
		"whole under any":     {request("GET", "/health", "", "Host", "10.0.0.9:8711"), 403, "host"},
		"own page":            {request("POST", "/echo", "{}", append(jsonBody, "Origin", "http://localhost:8711", "Sec-Fetch-Site", "same-origin")...), 200, ""},
		"own page, other way": {request("POST", "/echo", "{}", append(jsonBody, "Host", "127.0.0.1:8711", "Origin", "http://127.0.0.1:8711")...), 200, ""},
		"foreign page":        {request("POST", "/echo", "{}", append(jsonBody, "Origin", "https://evil.example")...), 403, "origin"},
		"foreign read":        {request("GET", "/echo", "", "Origin", "https://evil.example"), 403, "origin"},
		"null":                {request("POST", "/echo", "{}", append(jsonBody, "Origin", "null")...), 403, "origin"},
		"cross-site":          {request("POST", "/echo", "{}", append(jsonBody, "Sec-Fetch-Site", "cross-site")...), 403, "origin"},
		"same-site":           {request("POST", "/echo", "{}", append(jsonBody, "Sec-Fetch-Site", "same-site")...), 403, "origin"},
		"any origin":          {request("POST", "/any", "x", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"), 200, ""},
		"form":                {request("POST", "/echo", "a=b", "Content-Type", "application/x-www-form-urlencoded"), 415, "type"},
		"no type":             {request("POST", "/echo", "{}"), 415, "type"},
		"with charset":        {request("POST", "/echo", "{}", "Content-Type", "application/json; charset=utf-8"), 200, ""},
		"large":               {request("POST", "/echo", strings.Repeat("a", 1001), jsonBody...), 413, "body"},
		"just fits":           {request("POST", "/echo", strings.Repeat("a", 1000), jsonBody...), 200, ""},
		"nothing there":       {request("GET", "/nosuch", ""), 404, ""},
		"method":              {request("DELETE", "/only", ""), 405, ""},
		"own method":          {request("POST", "/healthz", "{}"), 405, ""},
		"panic":               {request("GET", "/panic", ""), 500, ""},
	} {
		before := len(seen.list)
		w := httptest.NewRecorder()
		f.Handler().ServeHTTP(w, c.r)
		if w.Code != c.status {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		var e struct {
			Error struct{ Kind, Message, Hint string }
		}
		if w.Code >= 400 && (json.Unmarshal(w.Body.Bytes(), &e) != nil || e.Error.Message == "") {
			t.Errorf("%s: the refusal is no JSON: %s", name, w.Body)
		}
		if w.Code == 405 && w.Header().Get("Allow") == "" {
			t.Errorf("%s: no Allow", name)
		}
		if h := w.Header(); h.Get("X-MCP-Server-Version") != "test" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" || !strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
			t.Errorf("%s: headers %v", name, h)
		}
		switch {
		case c.reason == "" && len(seen.list) != before:
			t.Errorf("%s is told as refused", name)
		case c.reason != "" && (len(seen.list) != before+1 || seen.list[before].Reason != c.reason || seen.list[before].IP != "127.0.0.1"):
			t.Errorf("%s: told %+v", name, seen.list[before:])
		}
	}
	w := httptest.NewRecorder()
	f.Handler().ServeHTTP(w, request("GET", "/nosuch", "", "Accept", "text/html"))
	if w.Code != 404 || strings.Contains(w.Header().Get("Content-Type"), "json") {
		t.Errorf("a browser is answered with JSON: %v", w.Header())
	}
}

// TestAFloodIsToldInPart: who fills the door does not fill the ledger.
func TestAFloodIsToldInPart(t *testing.T) {
	f, seen := newFront(t, Settings{}, nil)
	for range 1000 {
		f.Handler().ServeHTTP(httptest.NewRecorder(), request("GET", "/echo", "", "Host", "evil"))
	}
	if n := len(seen.list); n < 30 || n > 40 {
		t.Errorf("%d refusals were told of", n)
	}
	if f.metrics.refused["host"] != 1000 {
		t.Errorf("counted: %v", f.metrics.refused)
	}
}

func TestWhoseAddressIsBelieved(t *testing.T) {
	f, _ := newFront(t, Settings{TrustedProxies: []string{"10.1.0.0/16", "192.0.2.7", "fd00::/8"}}, nil)
	for _, c := range []struct{ from, xff, want string }{
		{"127.0.0.1:9", "", "127.0.0.1:9"},
		{"127.0.0.1:9", "203.0.113.9", "127.0.0.1:9"}, // not a trusted proxy
		{"10.1.2.3:9", "", "10.1.2.3:9"},
		{"10.1.2.3:9", "203.0.113.9", "203.0.113.9:9"},
		{"10.1.2.3:9", "1.1.1.1, 203.0.113.9", "203.0.113.9:9"}, // what stands before may be anybody's invention
		{"10.1.2.3:9", "1.1.1.1,203.0.113.9, 192.0.2.7", "203.0.113.9:9"},
		{"10.1.2.3:9", "203.0.113.9, nonsense", "10.1.2.3:9"},
		{"10.1.2.3:9", "nonsense, 203.0.113.9", "203.0.113.9:9"},
		{"10.1.2.3:9", "203.0.113.9:5555", "203.0.113.9:9"},
		{"10.1.2.3:9", "[2001:db8::1]", "[2001:db8::1]:9"},
		{"10.1.2.3:9", "10.1.9.9", "10.1.9.9:9"},
		{"[fd00::1]:9", "203.0.113.9", "203.0.113.9:9"},
		{"[::ffff:10.1.2.3]:9", "203.0.113.9", "203.0.113.9:9"},
		{"10.2.0.1:9", "203.0.113.9", "10.2.0.1:9"},
	} {
		r := request("GET", "/echo", "", "From", c.from, "Forwarded", "for=6.6.6.6", "X-Real-Ip", "6.6.6.6")
		if c.xff != "" {
			r.Header.Set("X-Forwarded-For", c.xff)
		}
		w := httptest.NewRecorder()
		f.Handler().ServeHTTP(w, r)
		if want := "GET " + c.want + ` 0 xff=""`; w.Body.String() != want {
			t.Errorf("from %s with %q: %s, not %s", c.from, c.xff, w.Body, want)
		}
	}
}

func TestMetricsAreForThisMachine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("0123456789abcdef0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, _ := newFront(t, Settings{MetricsToken: file}, nil)
	for name, c := range map[string]struct {
		r    *http.Request
		code int
	}{
		"here":             {request("GET", "/metrics", ""), 200},
		"here, by a proxy": {request("GET", "/metrics", "", "X-Forwarded-For", "9.9.9.9"), 401},
		"elsewhere":        {request("GET", "/metrics", "", "From", "9.9.9.9:1"), 401},
		"token":            {request("GET", "/metrics", "", "From", "9.9.9.9:1", "Authorization", "Bearer 0123456789abcdef0"), 200},
		"wrong token":      {request("GET", "/metrics", "", "From", "9.9.9.9:1", "Authorization", "Bearer 0123456789abcdef1"), 401},
		"wrong token here": {request("GET", "/metrics", "", "Authorization", "Bearer x"), 401},
	} {
		w := httptest.NewRecorder()
		f.Handler().ServeHTTP(w, c.r)
		if w.Code != c.code {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	for path := range 200 { // paths are a client's, and no label
		f.Handler().ServeHTTP(httptest.NewRecorder(), request("GET", fmt.Sprintf("/x%d", path), ""))
	}
	w := httptest.NewRecorder()
	f.Handler().ServeHTTP(w, request("GET", "/metrics", ""))
	if n := strings.Count(w.Body.String(), "castellan_http_requests_total{"); n == 0 || n > 12 || strings.Contains(w.Body.String(), "/x1") {
		t.Errorf("%d series: %s", n, w.Body)
	}
	if _, err := New(Config{Settings: Settings{MetricsToken: "/nonexistent"}, Secret: os.ReadFile}); err == nil {
		t.Error("a token that cannot be read is passed over")
	}
}

func TestSettingsThatAreRefused(t *testing.T) {
	open := []string{"0.0.0.0:8711"}
	for name, c := range map[string]struct {
		s         Settings
		unknown   error
		says      string
		wantsGood bool
	}{
		"default":              {wantsGood: true},
		"no port":              {s: Settings{Listen: []string{"127.0.0.1"}}, says: "no address with a port"},
		"off and on":           {s: Settings{Listen: []string{"off", "127.0.0.1:1"}}, says: "stands alone"},
		"off":                  {s: Settings{Listen: []string{"off"}}, wantsGood: true},
		"open, no url":         {s: Settings{Listen: open}, says: "public_url is missing"},
		"open, http":           {s: Settings{Listen: open, PublicURL: "http://castle.example"}, says: "https is wanted"},
		"open, no TLS":         {s: Settings{Listen: open, PublicURL: "https://castle.example"}, says: "without TLS"},
		"open, a proxy":        {s: Settings{Listen: open, PublicURL: "https://castle.example", TrustedProxies: []string{"10.0.0.1"}}, wantsGood: true},
		"open, nobody":         {s: Settings{Listen: open, PublicURL: "https://castle.example", TrustedProxies: []string{"10.0.0.1"}}, unknown: errors.New("no account"), says: "nobody has to prove"},
		"every address":        {s: Settings{Listen: []string{":8711"}, PublicURL: "https://castle.example", TrustedProxies: []string{"10.0.0.1"}}, unknown: errors.New("no account"), says: "nobody has to prove"},
		"every six":            {s: Settings{Listen: []string{"[::]:8711"}, PublicURL: "https://castle.example"}, says: "without TLS"},
		"loopback, nobody":     {unknown: errors.New("no account"), wantsGood: true},
		"a path":               {s: Settings{PublicURL: "https://castle.example/x"}, says: "scheme and host only"},
		"a user":               {s: Settings{PublicURL: "https://a@castle.example"}, says: "scheme and host only"},
		"ftp":                  {s: Settings{PublicURL: "ftp://castle.example"}, says: "https is wanted"},
		"half a certificate":   {s: Settings{TLSCert: "x"}, says: "belong together"},
		"trust everybody":      {s: Settings{TrustedProxies: []string{"0.0.0.0/0"}}, says: "trusts everybody"},
		"trust nobody's range": {s: Settings{TrustedProxies: []string{"10.0.0.0/33"}}, says: "no address and no range"},
		"any host":             {s: Settings{Hosts: []string{"*"}}, says: "no host name"},
	} {
		_, err := New(Config{Settings: c.s, Unprotected: c.unknown, Secret: os.ReadFile})
		if c.wantsGood != (err == nil) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// makeCertificate writes a certificate that signed itself.
func makeCertificate(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost", name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(30 * 24 * time.Hour), BasicConstraintsValid: true, IsCA: true}
	raw, err := x509.CreateCertificate(rand.Reader, tpl, tpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: raw}, "key": {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// running serves a front on a free port until the test ends.
func running(t *testing.T, f *Front) string {
	t.Helper()
	l, err := f.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx, l) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(2 * stopTime):
			t.Error("the front did not stop")
		}
	})
	return l[0].Addr().String()
}

func TestACertificateIsTakenUp(t *testing.T) {
	dir := t.TempDir()
	makeCertificate(t, dir, "first")
	f, _ := newFront(t, Settings{Listen: []string{"127.0.0.1:0"}, TLSCert: filepath.Join(dir, "cert"), TLSKey: filepath.Join(dir, "key")}, nil)
	at := running(t, f)
	name := func() string {
		c, err := tls.Dial("tcp", at, &tls.Config{InsecureSkipVerify: true}) // the test looks at the certificate itself
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if n := name(); n != "first" {
		t.Fatal(n)
	}
	for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11} {
		if c, err := tls.Dial("tcp", at, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: version}); err == nil {
			_ = c.Close()
			t.Errorf("TLS %x is spoken", version)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "cert"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(lookEvery + 50*time.Millisecond)
	if n := name(); n != "first" {
		t.Errorf("a broken file took the certificate away: %q", n)
	}
	if s := f.state(context.Background()); len(s.Problems) == 0 || s.Certificate.IsZero() {
		t.Errorf("nobody is told: %+v", s)
	}
	makeCertificate(t, dir, "second")
	time.Sleep(lookEvery + 50*time.Millisecond)
	if n := name(); n != "second" {
		t.Errorf("the new certificate is not shown: %q", n)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert"), filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	tr, err := ReadTrust(pair)
	if err != nil || tr.Public || len(tr.Fingerprint) != 95 || tr.Names[1] != "second" {
		t.Errorf("%+v %v", tr, err)
	}
}

// TestSlowAndBrokenBodies: who does not send what was promised gets an answer, and no way in waits for it.
func TestSlowAndBrokenBodies(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	f, seen := newFront(t, Settings{Listen: []string{"127.0.0.1:0"}}, nil)
	at := running(t, f)
	talk := func(head, body string) string {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(bodyTime + 10*time.Second))
		if _, err := io.WriteString(c, head+"\r\n\r\n"+body); err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(c) // the server ends it
		return string(b)
	}
	var group sync.WaitGroup
	head := "POST /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
	for name, c := range map[string]struct{ head, body, want string }{
		"slow":           {head + "Content-Length: 100", "{", "408"},
		"slow in pieces": {head + "Transfer-Encoding: chunked", "1\r\n{\r\n", "408"},
		"pieces":         {head + "Transfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n", "200"},
		"large pieces":   {head + "Transfer-Encoding: chunked", "7d0\r\n" + strings.Repeat("a", 2000) + "\r\n0\r\n\r\n", "413"},
		"huge promise":   {head + "Content-Length: 99999999999", "", "413"},
		"slow header":    {"POST /echo HTTP/1.1\r\nHost: localh", "", ""},
		"large header":   {"GET /echo HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("a", 64<<10), "", "431"},
	} {
		group.Go(func() {
			began := time.Now()
			if name == "slow header" {
				conn, err := net.Dial("tcp", at)
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, c.head) // never ended
				_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
				b, err := io.ReadAll(conn)
				if err != nil || strings.HasPrefix(string(b), "HTTP/1.1 2") || time.Since(began) > headerTime+5*time.Second {
					t.Errorf("%s: %q %v after %s", name, b, err, time.Since(began))
				}
				return
			}
			if got := talk(c.head, c.body); !strings.HasPrefix(got, "HTTP/1.1 "+c.want) {
				t.Errorf("%s: %.120q", name, got)
			}
		})
	}
	group.Wait()
	if len(seen.list) == 0 {
		t.Error("nothing was told of")
	}
}

// TestStopEndsStreams: a stream that would go on for ever does not keep the front from stopping.
func TestStopEndsStreams(t *testing.T) {
	begun := make(chan struct{})
	f, _ := newFront(t, Settings{Listen: []string{"127.0.0.1:0"}}, func(c *Config) {
		c.Mounts = append(c.Mounts, Mount{Pattern: "/stream", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(w, "first")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			close(begun)
			<-r.Context().Done()
		})})
	})
	at := running(t, f)
	r, err := http.Get("http://" + at + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	<-begun
}
