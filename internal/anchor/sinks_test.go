//go:build unix

package anchor_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/binary"
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
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"castellan/internal/anchor"
	"castellan/internal/ledger"
)

var background = context.Background()

// note is the head of a ledger of n records, signed by nobody that matters here.
func note(n int) string {
	root := tlog.RecordHash(fmt.Append(nil, n))
	c := ledger.Checkpoint{Origin: "castellan/s-1/write", Size: int64(n), Root: root}
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32))
	sig := append([]byte{1, 2, 3, 4}, ed25519.Sign(key, []byte(c.Text()))...)
	return c.Text() + "\n— " + c.Origin + " " + base64.StdEncoding.EncodeToString(sig) + "\n"
}

// book is a ledger of so many records.
type book struct {
	mu    sync.Mutex
	size  int
	err   error
	wrote bool
}

func (b *book) Wrote() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wrote
}

func (b *book) Head(context.Context) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size == 0 || b.err != nil {
		return "", b.err
	}
	return note(b.size), nil
}

func (b *book) Contains(_ context.Context, name, head string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, err := ledger.ParseCheckpoint(head)
	if err != nil {
		return err
	}
	if head != note(int(c.Size)) || int(c.Size) > b.size {
		return fmt.Errorf("%s: %w", name, ledger.ErrRewound)
	}
	return nil
}

func (b *book) set(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.size, b.wrote = n, true
}

func open(t testing.TB, c anchor.Config) *anchor.Anchors {
	t.Helper()
	a, err := anchor.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func one(t testing.TB, s anchor.Settings, b *book) *anchor.Anchors {
	t.Helper()
	return open(t, anchor.Config{Settings: []anchor.Settings{s}, Source: b})
}

func TestFile(t *testing.T) {
	b := &book{size: 9}
	path := filepath.Join(t.TempDir(), "heads")
	a := one(t, anchor.Settings{Kind: "file", Path: path}, b)
	if got, err := a.Latest(background); got != "" || err != nil {
		t.Fatalf("before the first: %q %v", got, err)
	}
	for _, n := range []int{3, 5, 5, 4, 9} {
		if err := a.Put(background, note(n)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := a.Latest(background); got != note(9) || err != nil {
		t.Fatalf("%q %v", got, err)
	}
	text, _ := os.ReadFile(path)
	if n := bytes.Count(text, []byte("\n")); n != 3 {
		t.Errorf("%d lines: the same head, or one older than what is there, adds none:\n%s", n, text)
	}
	if i, _ := os.Stat(path); i.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", i.Mode())
	}
	// A crash tore a line; a full disk another.
	f, _ := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	f.WriteString("{\"at\":\"2026\n{\"head\":\"castellan/s-1/wr")
	f.Close()
	if got, err := a.Latest(background); got != note(9) || err != nil {
		t.Errorf("with a torn line: %q %v", got, err)
	}
	b.set(12)
	if err := a.Put(background, note(12)); err != nil {
		t.Error(err)
	}
	if got, err := a.Latest(background); got != note(12) || err != nil {
		t.Errorf("after a torn line: %q %v", got, err)
	}
	// The ledger was put back: what is there stays.
	b.set(6)
	before, _ := os.ReadFile(path)
	if err := a.Put(background, note(6)); !errors.Is(err, ledger.ErrRewound) {
		t.Errorf("a ledger that was put back: %v", err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("the anchor was changed")
	}
	if st := a.States()[0]; st.Rewound == "" || st.Behind.IsZero() {
		t.Errorf("%+v", st)
	}
	if n := a.Notices(); len(n) != 1 || !strings.Contains(n[0], "not a continuation") {
		t.Errorf("%q", n)
	}
	if err := a.Replace(background, note(6)); err != nil {
		t.Error(err)
	}
	if got, err := a.Latest(background); got != note(6) || err != nil {
		t.Errorf("after it was accepted: %q %v", got, err)
	}
	if n := a.Notices(); len(n) != 0 {
		t.Errorf("%q", n)
	}
}

func TestFileRefuses(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string, mode os.FileMode) string {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		os.Chmod(at(name), mode)
		return at(name)
	}
	os.Symlink(write("real", "", 0o600), at("link"))
	os.Mkdir(at("folder"), 0o700)
	for name, c := range map[string]struct{ path, want string }{
		"others may write": {write("open", "", 0o666), "chmod go-w"},
		"a link":           {at("link"), "symbolic link"},
		"a folder":         {at("folder"), ""},
		"no such folder":   {at("none/heads"), "no such file"},
		"another's file":   {write("mail", "From: a\nTo: b\n", 0o600), "another program's"},
		"a long line":      {write("long", strings.Repeat("x", 100_000), 0o600), "no line at its end is a head"},
	} {
		a := one(t, anchor.Settings{Kind: "file", Path: c.path}, &book{size: 1})
		if err := a.Put(background, note(1)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b, _ := os.ReadFile(at("mail")); string(b) != "From: a\nTo: b\n" {
		t.Error("another program's file was written to")
	}
	for _, path := range []string{at("folder/heads"), at("folder")} {
		if _, err := anchor.New(anchor.Config{Settings: []anchor.Settings{{Kind: "file", Path: path}}, Own: []string{at("folder")}}); err == nil || !strings.Contains(err.Error(), "castellan's own state") {
			t.Errorf("%s, beside the store: %v", path, err)
		}
	}
	os.Symlink(at("folder"), at("way"))
	if _, err := anchor.New(anchor.Config{Settings: []anchor.Settings{{Kind: "file", Path: at("way/heads")}}, Own: []string{at("folder")}}); err == nil {
		t.Error("a link leads beside the store")
	}
	a := one(t, anchor.Settings{Kind: "file", Path: at("heads")}, &book{size: 1})
	if err := a.Put(background, "hello"); err == nil {
		t.Error("what is no head was put")
	}
}

// witness is a server that keeps the latest head.
type witness struct {
	mu     sync.Mutex
	head   string
	puts   int
	status int
	auth   string
}

func (w *witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.auth = r.Header.Get("Authorization")
	switch {
	case w.status == http.StatusFound:
		http.Redirect(rw, r, "http://127.0.0.1:1/elsewhere", http.StatusFound)
	case w.status != 0:
		rw.WriteHeader(w.status)
		io.WriteString(rw, "<html>nobody is home</html>")
	case r.Method == http.MethodPost:
		b, _ := io.ReadAll(r.Body)
		w.head = string(b)
		w.puts++
		rw.WriteHeader(http.StatusCreated)
	case w.head == "":
		http.NotFound(rw, r)
	default:
		io.WriteString(rw, w.head)
	}
}

func (w *witness) set(head string, status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.head, w.status = head, status
}

func TestHTTP(t *testing.T) {
	w := &witness{}
	srv := httptest.NewServer(w)
	defer srv.Close()
	token := filepath.Join(t.TempDir(), "token")
	os.WriteFile(token, []byte("s3cret\n"), 0o600)
	b := &book{size: 9}
	a := one(t, anchor.Settings{Kind: "http", URL: srv.URL + "/head", TokenFile: token}, b)
	if err := errors.Join(a.Put(background, note(3)), a.Put(background, note(3)), a.Put(background, note(5))); err != nil {
		t.Fatal(err)
	}
	if w.head != note(5) || w.puts != 2 || w.auth != "Bearer s3cret" {
		t.Errorf("%d puts, %q", w.puts, w.auth)
	}
	if got, err := a.Latest(background); got != note(5) || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if ok, _ := a.Outside(); ok {
		t.Error("loopback counts as another machine")
	}
	for _, c := range []struct {
		name, head string
		status     int
		want       string
	}{
		{"a redirect", note(5), http.StatusFound, "302"},
		{"a fault", note(5), http.StatusInternalServerError, "500"},
		{"a page", "<html>hello</html>", 0, "no head"},
		{"too much", strings.Repeat("x", 100_000), 0, "longer than"},
		{"more than the ledger has", note(20), 0, "put back"},
	} {
		w.set(c.head, c.status)
		puts := w.puts
		if err := a.Put(background, note(9)); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", c.name, err)
		}
		if w.puts != puts {
			t.Errorf("%s: what is there was covered up", c.name)
		}
	}
	os.Chmod(token, 0o644)
	w.set("", 0)
	if err := a.Put(background, note(9)); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a token that others may read: %v", err)
	}
}

func TestHTTPSWithItsOwnRoots(t *testing.T) {
	w := &witness{}
	srv := httptest.NewTLSServer(w)
	defer srv.Close()
	srv.Config.ErrorLog = nil
	ca := filepath.Join(t.TempDir(), "ca.pem")
	os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600)
	b := &book{size: 9}
	if err := one(t, anchor.Settings{Kind: "http", URL: srv.URL, CAFile: ca}, b).Put(background, note(1)); err != nil {
		t.Error(err)
	}
	if err := one(t, anchor.Settings{Kind: "http", URL: srv.URL}, b).Put(background, note(2)); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that nobody vouches for: %v", err)
	}
}

// TestNamesAreCheckedWhenDialled: a name may lead anywhere by the time that it is used.
func TestAddressesAreCheckedWhenDialled(t *testing.T) {
	for _, s := range []anchor.Settings{
		{Kind: "http", URL: "https://169.254.169.254/latest"},
		{Kind: "http", URL: "https://[fe80::1]/"},
		{Kind: "http", URL: "https://0.0.0.0/"},
		{Kind: "http", URL: "https://224.0.0.1/"},
		{Kind: "syslog", Address: "tcp://169.254.169.254:514"},
	} {
		err := one(t, s, &book{size: 1}).Put(background, note(1))
		if err == nil || !strings.Contains(err.Error(), "no anchor has") {
			t.Errorf("%s%s: %v", s.URL, s.Address, err)
		}
	}
}

// collector takes syslog connections and hands on what each brought.
func collector(t *testing.T, l net.Listener) <-chan string {
	t.Helper()
	t.Cleanup(func() { l.Close() })
	out := make(chan string, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b, _ := io.ReadAll(c)
			c.Close()
			out <- string(b)
		}
	}()
	return out
}

func receive(t *testing.T, from <-chan string) string {
	t.Helper()
	select {
	case s := <-from:
		return s
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came within ten seconds")
		return ""
	}
}

var syslogForm = regexp.MustCompile(`^<109>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z \S{1,255} castellan \d+ checkpoint \[castellan@32473 origin="castellan/s-1/write" size="(\d+)" root="([^"]+)" note="([^"]+)"\] ledger head of \d+ records$`)

func checkSyslog(t *testing.T, msg string, n int) {
	t.Helper()
	m := syslogForm.FindStringSubmatch(msg)
	if m == nil {
		t.Fatalf("not of the form: %q", msg)
	}
	b, err := base64.StdEncoding.DecodeString(m[3])
	if err != nil || string(b) != note(n) || m[1] != strconv.Itoa(n) {
		t.Errorf("it brought %q (%v)", b, err)
	}
}

func counted(t *testing.T, msg string) string {
	t.Helper()
	r := bufio.NewReader(strings.NewReader(msg))
	n, err := r.ReadString(' ')
	if err != nil {
		t.Fatalf("%q: %v", msg, err)
	}
	rest, _ := io.ReadAll(r)
	if strconv.Itoa(len(rest)) != strings.TrimSpace(n) {
		t.Errorf("counted %s octets, there are %d", n, len(rest))
	}
	return string(rest)
}

func TestSyslog(t *testing.T) {
	b := &book{size: 9}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got := collector(t, tcp)
	if err := one(t, anchor.Settings{Kind: "syslog", Address: "tcp://" + tcp.Addr().String()}, b).Put(background, note(7)); err != nil {
		t.Fatal(err)
	}
	checkSyslog(t, counted(t, receive(t, got)), 7)

	cert, ca := certificate(t)
	secure, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	got = collector(t, secure)
	if err := one(t, anchor.Settings{Kind: "syslog", Address: "tls://" + secure.Addr().String(), CAFile: ca}, b).Put(background, note(8)); err != nil {
		t.Fatal(err)
	}
	checkSyslog(t, counted(t, receive(t, got)), 8)
	if err := one(t, anchor.Settings{Kind: "syslog", Address: "tls://" + secure.Addr().String()}, b).Put(background, note(8)); err == nil {
		t.Error("a collector that nobody vouches for was taken")
	}

	dir := t.TempDir()
	stream, err := net.Listen("unix", filepath.Join(dir, "stream"))
	if err != nil {
		t.Fatal(err)
	}
	got = collector(t, stream)
	if err := one(t, anchor.Settings{Kind: "syslog", Address: "unix://" + dir + "/stream"}, b).Put(background, note(9)); err != nil {
		t.Fatal(err)
	}
	checkSyslog(t, counted(t, receive(t, got)), 9)

	pack, err := net.ListenPacket("unixgram", filepath.Join(dir, "datagram"))
	if err != nil {
		t.Fatal(err)
	}
	defer pack.Close()
	a := one(t, anchor.Settings{Kind: "syslog", Address: "unix://" + dir + "/datagram"}, b)
	if err := a.Put(background, note(2)); err != nil {
		t.Fatal(err)
	}
	checkSyslog(t, datagram(t, pack), 2)
	if _, err := a.Latest(background); err == nil {
		t.Error("syslog was read back")
	}
	tcp.Close()
	a = one(t, anchor.Settings{Kind: "syslog", Address: "tcp://" + tcp.Addr().String()}, b)
	if err := a.Put(background, note(7)); err == nil || a.States()[0].Trouble == "" {
		t.Errorf("a collector that is gone: %v, %+v", err, a.States())
	}
}

func datagram(t *testing.T, c net.PacketConn) string {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	b := make([]byte, 64<<10)
	n, _, err := c.ReadFrom(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	c, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := one(t, anchor.Settings{Kind: "journal", Path: path}, &book{size: 9}).Put(background, note(7)); err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for rest := datagram(t, c); rest != ""; {
		line, after, _ := strings.Cut(rest, "\n")
		if name, value, ok := strings.Cut(line, "="); ok {
			fields[name], rest = value, after
			continue
		}
		n := binary.LittleEndian.Uint64([]byte(after[:8]))
		fields[line], rest = after[8:8+n], strings.TrimPrefix(after[8+n:], "\n")
	}
	if fields["CASTELLAN_HEAD"] != note(7) || fields["CASTELLAN_SIZE"] != "7" || fields["PRIORITY"] != "5" || fields["MESSAGE"] != "ledger head of 7 records" {
		t.Errorf("%q", fields)
	}
	if err := one(t, anchor.Settings{Kind: "journal", Path: path + "-none"}, &book{size: 9}).Put(background, note(7)); err == nil {
		t.Error("no journal is there, and nothing was said")
	}
}

func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "collector"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, path
}
