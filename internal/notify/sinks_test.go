package notify

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/gate"
)

var background = context.Background()

// poison is what agents, guests and whoever writes into the database would like to have in a header or a line.
func poison() []string {
	return []string{"a\r\nBcc: eve@example.org", "a\nX: y", "a\r\n\r\n<script>", "=?utf-8?q?hello?=", "a\x00b\x1b[31m", "‮evil", "a\u2028b", strings.Repeat("x", 5000), "\r\n.\r\nMAIL FROM:<eve@example.org>", "a\tb", "<!channel>", "@everyone\n"}
}

// poisoned is a message of which every field is poison.
func poisoned(p string) *message {
	r := waiting(p, gate.RungPasskey)
	r.Plan.Operation, r.Plan.Sentence, r.Plan.Reason, r.Plan.Note = p, p, p, p
	r.Plan.Steps = []gate.Step{{Target: p}}
	r.Plan.Requester = gate.Principal{Agent: p, Person: p, Client: p}
	link := func(id string) string { return "https://console.example/plans/" + id }
	n := Notice{Kind: p, Person: p, By: p, Agent: p, State: p, Operation: p, Target: p, Rung: p, Plan: p, Credential: p, At: time.Now()}
	return newMessage("0123456789ab", time.Now(), []waits{waitsOf(r, link)}, []Notice{n}, link)
}

func checkText(t *testing.T, where, s string) {
	t.Helper()
	for _, r := range s {
		if r < 0x20 && r != '\n' || r == 0x7f || r == '‮' || r == '\u2028' || r == '<' || r == '>' || r == '=' || r == '?' {
			t.Errorf("%s holds %q: %.200q", where, r, s)
			return
		}
	}
	if strings.Contains(s, "roll back") {
		t.Errorf("%s holds the sentence of a plan", where)
	}
}

func TestNothingOfOthersGetsIn(t *testing.T) {
	for _, p := range poison() {
		m := poisoned(p)
		checkText(t, "the subject", m.Subject)
		if strings.Contains(m.Subject, "\n") || len(m.Subject) > 250 {
			t.Errorf("subject of %d bytes: %q", len(m.Subject), m.Subject)
		}
		checkText(t, "the text", strings.ReplaceAll(m.text(), m.Plans[0].URL, ""))
		if strings.Count(m.text(), "\n") > 12 {
			t.Errorf("lines were added: %q", m.text())
		}
		if u := m.Plans[0].URL; u != "" && (safeURL(u) != u || strings.ContainsAny(u, "\r\n ")) {
			t.Errorf("link %q", u)
		}
	}
}

func private(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// inbox is a server that keeps the requests it got.
type inbox struct {
	mu     sync.Mutex
	got    []*http.Request
	bodies []string
	status int
}

func (i *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.got, i.bodies = append(i.got, r), append(i.bodies, string(b))
	if i.status == http.StatusFound {
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
		return
	}
	if i.status != 0 {
		w.WriteHeader(i.status)
	}
}

func TestWebhook(t *testing.T) {
	var box inbox
	srv := httptest.NewServer(&box)
	defer srv.Close()
	w, err := newWebhook(Webhook{URL: srv.URL + "/hook", SecretFile: private(t, "k3y")})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range poison() {
		if err := w.send(background, poisoned(p)); err != nil {
			t.Fatal(err)
		}
		r, body := box.got[len(box.got)-1], box.bodies[len(box.bodies)-1]
		stamp, sig, ok := strings.Cut(r.Header.Get("Castellan-Signature"), ",v1=")
		mac := hmac.New(sha256.New, []byte("k3y"))
		io.WriteString(mac, strings.TrimPrefix(stamp, "t=")+"."+body)
		if !ok || sig != hex.EncodeToString(mac.Sum(nil)) || r.Header.Get("Castellan-Delivery") != "0123456789ab" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("headers %v", r.Header)
		}
		var m message
		d := json.NewDecoder(strings.NewReader(body))
		d.DisallowUnknownFields()
		if err := d.Decode(&m); err != nil || m.Version != 1 || m.Count != 1 || m.Plans[0].Rung != "passkey" {
			t.Errorf("%v: %.300q", err, body)
		}
		checkText(t, "a field", m.Subject+m.Plans[0].ID+m.Plans[0].Operation+m.Plans[0].Targets[0]+m.Notices[0].Person)
	}
	for _, c := range []struct {
		status int
		final  bool
	}{{http.StatusFound, true}, {http.StatusNotFound, true}, {http.StatusTooManyRequests, false}, {http.StatusInternalServerError, false}} {
		box.status = c.status
		n := len(box.got)
		err := w.send(background, poisoned("a"))
		var final permanent
		if err == nil || errors.As(err, &final) != c.final || len(box.got) != n+1 {
			t.Errorf("%d: %v, %d requests", c.status, err, len(box.got)-n)
		}
	}
	os.Chmod(w.SecretFile, 0o644)
	if err := w.send(background, poisoned("a")); runtime.GOOS != "windows" && (err == nil || !strings.Contains(err.Error(), "chmod 600")) {
		t.Errorf("a secret that others may read: %v", err)
	}
	for _, url := range []string{"https://169.254.169.254/x", "https://[::]/x", "https://[fe80::1]/x"} {
		w, err := newWebhook(Webhook{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.send(background, poisoned("a")); err == nil || !strings.Contains(err.Error(), "nobody is told at") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestNtfy(t *testing.T) {
	var box inbox
	srv := httptest.NewServer(&box)
	defer srv.Close()
	n, err := newNtfy(Ntfy{URL: srv.URL + "/castle", TokenFile: private(t, "tk_1")})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range poison() {
		if err := n.send(background, poisoned(p)); err != nil {
			t.Fatal(err)
		}
		r := box.got[len(box.got)-1]
		checkText(t, "the title", r.Header.Get("Title"))
		if r.Header.Get("Authorization") != "Bearer tk_1" || r.URL.Path != "/castle" || r.Header.Get("X") != "" || r.Header.Get("Bcc") != "" || len(r.Header) > 9 {
			t.Errorf("%v", r.Header)
		}
		checkText(t, "the text", strings.ReplaceAll(box.bodies[len(box.bodies)-1], r.Header.Get("Click"), ""))
	}
	many := make([]waits, 20)
	for i := range many {
		many[i] = waitsOf(waiting(fmt.Sprintf("p-%d-%s", i, strings.Repeat("x", 300)), gate.RungPerson), func(id string) string { return "https://console.example/plans/" + id })
	}
	if err := n.send(background, newMessage("1", time.Now(), many, nil, nil)); err != nil {
		t.Fatal(err)
	}
	if b := box.bodies[len(box.bodies)-1]; len(b) > 4000 || !strings.HasSuffix(b, "\n…\n") {
		t.Errorf("%d bytes", len(b))
	}
}

// post office: a small SMTP server that knows EHLO, STARTTLS, AUTH PLAIN, MAIL, RCPT, DATA and QUIT.
type office struct {
	t        *testing.T
	listener net.Listener
	conf     *tls.Config
	ca       string

	mu       sync.Mutex
	starttls bool
	refuse   map[string]string // verb or recipient → answer
	mails    []letter
	lines    []string
}

type letter struct {
	from, user string
	to         []string
	secure     bool
	data       string
}

func newOffice(t *testing.T, implicit bool) *office {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "office"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	o := &office{t: t, conf: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, starttls: true, refuse: map[string]string{}}
	o.ca = filepath.Join(t.TempDir(), "ca.pem")
	os.WriteFile(o.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
	if o.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.listener.Close() })
	go func() {
		for {
			conn, err := o.listener.Accept()
			if err != nil {
				return
			}
			go o.serve(conn, implicit)
		}
	}()
	return o
}

func (o *office) serve(conn net.Conn, secure bool) {
	defer func() { conn.Close() }()
	if secure {
		conn = tls.Server(conn, o.conf)
	}
	r := bufio.NewReader(conn)
	say := func(s string) { io.WriteString(conn, s+"\r\n") }
	say("220 office ESMTP")
	l := letter{secure: secure}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		verb, rest, _ := strings.Cut(line, " ")
		verb = strings.ToUpper(verb)
		o.mu.Lock()
		o.lines = append(o.lines, line)
		answer := o.refuse[verb]
		if answer == "" && verb == "RCPT" {
			answer = o.refuse[between(rest)]
		}
		offers := o.starttls && !l.secure
		o.mu.Unlock()
		switch {
		case answer != "":
			say(answer)
		case verb == "EHLO":
			say("250-office")
			if offers {
				say("250-STARTTLS")
			}
			say("250-8BITMIME")
			say("250 AUTH PLAIN")
		case verb == "STARTTLS":
			say("220 go on")
			conn = tls.Server(conn, o.conf)
			r = bufio.NewReader(conn)
			l = letter{secure: true}
		case verb == "AUTH":
			b, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(rest, "PLAIN "))
			if string(b) != "\x00castellan\x00pa55" {
				say("535 no")
				continue
			}
			l.user = "castellan"
			say("235 welcome")
		case verb == "MAIL":
			l.from = between(rest)
			say("250 ok")
		case verb == "RCPT":
			l.to = append(l.to, between(rest))
			say("250 ok")
		case verb == "DATA":
			say("354 go on")
			var data strings.Builder
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				if line == ".\r\n" {
					break
				}
				data.WriteString(strings.TrimPrefix(line, "."))
			}
			l.data = data.String()
			o.mu.Lock()
			o.mails = append(o.mails, l)
			o.mu.Unlock()
			say("250 taken")
		case verb == "QUIT":
			say("221 bye")
			return
		default:
			say("500 what?")
		}
	}
}

func between(s string) string {
	_, s, _ = strings.Cut(s, "<")
	s, _, _ = strings.Cut(s, ">")
	return s
}

func (o *office) settings(mode string) SMTP {
	s := SMTP{Address: o.listener.Addr().String(), TLS: mode, From: "castellan@example.org", To: []string{"ann@example.org", "bob@example.org"}, CAFile: o.ca}
	if mode == "none" {
		s.CAFile = ""
	}
	return s
}

func (o *office) last() letter {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.mails) == 0 {
		o.t.Fatal("no mail came")
	}
	return o.mails[len(o.mails)-1]
}

func sendMail(t *testing.T, s SMTP, m *message) error {
	t.Helper()
	if err := within("smtp", s.validate()); err != nil {
		t.Fatal(err)
	}
	w, err := newMailer(s)
	if err != nil {
		t.Fatal(err)
	}
	return w.send(background, m)
}

func TestMail(t *testing.T) {
	plain := poisoned("a")
	for _, mode := range []string{"starttls", "tls", "none", ""} {
		o := newOffice(t, mode == "tls")
		s := o.settings(mode)
		s.User, s.PasswordFile = "castellan", private(t, "pa55")
		if err := sendMail(t, s, plain); err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		l := o.last()
		if l.secure != (mode != "none") || l.user != "castellan" || l.from != s.From || strings.Join(l.to, " ") != "ann@example.org bob@example.org" {
			t.Errorf("%s: %+v", mode, l)
		}
	}
	o := newOffice(t, false)
	for _, p := range poison() {
		m := poisoned(p)
		if err := sendMail(t, o.settings(""), m); err != nil {
			t.Fatalf("%q: %v", p, err)
		}
		l := o.last()
		msg, err := mail.ReadMessage(strings.NewReader(l.data))
		if err != nil {
			t.Fatalf("%v: %q", err, l.data)
		}
		subject, err := new(mime.WordDecoder).DecodeHeader(msg.Header.Get("Subject"))
		if err != nil || subject != m.Subject {
			t.Errorf("subject %q, want %q (%v)", subject, m.Subject, err)
		}
		if len(msg.Header) != 10-boolInt(!m.Urgent) || msg.Header.Get("Bcc") != "" || msg.Header.Get("X") != "" || len(l.to) != 2 {
			t.Errorf("%d headers: %v", len(msg.Header), msg.Header)
		}
		body, _ := io.ReadAll(msg.Body)
		if got := strings.ReplaceAll(string(body), "\r\n", "\n"); got != m.text() {
			t.Errorf("body %q, want %q", got, m.text())
		}
		if bytes.Contains(bytes.ReplaceAll([]byte(l.data), []byte("\r\n"), nil), []byte("\n")) {
			t.Error("a bare line feed")
		}
	}
	o.mu.Lock()
	for _, l := range o.lines {
		if strings.Contains(l, "eve@") {
			t.Errorf("the server was told %q", l)
		}
	}
	o.mu.Unlock()
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestMailFails(t *testing.T) {
	m := poisoned("a")
	o := newOffice(t, false)
	for _, c := range []struct {
		name   string
		before func(*SMTP)
		want   string
		final  bool
	}{
		{"no STARTTLS", func(*SMTP) { o.starttls = false }, "offers no STARTTLS", true},
		{"unknown roots", func(s *SMTP) { s.CAFile = "" }, "certificate", false},
		{"wrong password", func(s *SMTP) { s.User, s.PasswordFile = "castellan", private(t, "wrong") }, "535", true},
		{"full", func(*SMTP) { o.refuse["MAIL"] = "452 full" }, "452", false},
		{"never", func(*SMTP) { o.refuse["MAIL"] = "550 never" }, "550", true},
		{"nobody", func(*SMTP) { o.refuse["RCPT"] = "550 who?" }, "who?", true},
		{"gone", func(s *SMTP) { s.Address = "127.0.0.1:1" }, "reach mail server", false},
	} {
		o.mu.Lock()
		o.starttls, o.refuse = true, map[string]string{}
		s := o.settings("")
		c.before(&s)
		n := len(o.mails)
		o.mu.Unlock()
		err := sendMail(t, s, m)
		var final permanent
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, &final) != c.final || len(o.mails) != n {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	o.mu.Lock()
	for _, l := range o.lines {
		if strings.HasPrefix(l, "AUTH") && !o.starttls {
			t.Error("signed in without TLS")
		}
	}
	o.starttls, o.refuse = true, map[string]string{"bob@example.org": "550 no bob"}
	o.mu.Unlock()
	if err := sendMail(t, o.settings(""), m); !errors.Is(err, errSome) || !strings.Contains(err.Error(), "bob") || strings.Join(o.last().to, " ") != "ann@example.org" {
		t.Errorf("one of two: %v", err)
	}
	// A server that says nothing does not hold anybody up for ever.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w, err := newMailer(SMTP{Address: l.Addr().String(), From: "a@b.c", To: []string{"d@e.f"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(background, 200*time.Millisecond)
	defer stop()
	start := time.Now()
	if err := w.send(ctx, m); err == nil || time.Since(start) > 5*time.Second {
		t.Errorf("a silent server: %v after %s", err, time.Since(start))
	}
}

func TestSettings(t *testing.T) {
	good := SMTP{Address: "mail.example.org:587", From: "a@example.org", To: []string{"b@example.org"}}
	with := func(f func(*SMTP)) Settings { s := good; f(&s); return Settings{SMTP: s} }
	for _, c := range []struct {
		s    Settings
		want string
	}{
		{Settings{}, ""},
		{Settings{Window: "1m", Quiet: []string{"22:00-07:00", "12:00-13:00"}, Zone: "Europe/Berlin"}, ""},
		{Settings{Window: "1ms"}, "notify.window"},
		{Settings{Quiet: []string{"22-7"}}, "notify.quiet"},
		{Settings{Quiet: []string{"22:00-22:00"}}, "notify.quiet"},
		{Settings{Quiet: []string{"25:00-07:00"}}, "notify.quiet"},
		{Settings{Zone: "Middle/Earth"}, "notify.zone"},
		{Settings{Webhook: Webhook{URL: "https://hooks.example/x"}}, ""},
		{Settings{Webhook: Webhook{URL: "http://hooks.example/x"}}, "use https"},
		{Settings{Webhook: Webhook{SecretFile: "/x"}}, "notify.webhook"},
		{Settings{Webhook: Webhook{URL: "https://u:p@hooks.example/x"}}, "password"},
		{Settings{Ntfy: Ntfy{URL: "https://ntfy.example/"}}, "no topic"},
		{Settings{Ntfy: Ntfy{URL: "https://ntfy.example/topic"}}, ""},
		{with(func(s *SMTP) {}), ""},
		{with(func(s *SMTP) { s.TLS = "none" }), "not loopback"},
		{with(func(s *SMTP) { s.TLS = "maybe" }), "starttls"},
		{with(func(s *SMTP) { s.User = "x" }), "belong together"},
		{with(func(s *SMTP) { s.To = nil }), "nobody"},
		{with(func(s *SMTP) { s.To = []string{"b@example.org\r\nBcc: eve@example.org"} }), "no plain mail address"},
		{with(func(s *SMTP) { s.From = "Ann <a@example.org>" }), "no plain mail address"},
		{with(func(s *SMTP) { s.From = "\"a b\"@example.org" }), "no plain mail address"},
		{with(func(s *SMTP) { s.Address = "mail.example.org" }), "host:port"},
	} {
		err := c.s.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.s, err)
		}
	}
	for link, want := range map[string]bool{"https://c.example/plans/p-1": true, "http://127.0.0.1:8080/": true, "javascript:alert(1)": false, "https://c.example/\r\nX: y": false, "https://c.example/ x": false, "/plans": false, "": false} {
		if (safeURL(link) != "") != want {
			t.Errorf("link %q", link)
		}
	}
}
