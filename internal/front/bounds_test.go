package front

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// serving is a front on a loopback port.
func serving(t *testing.T, change func(*Front), mounts ...Mount) string {
	t.Helper()
	f, err := New(Config{Settings: Settings{Listen: []string{"127.0.0.1:0"}, PublicURL: "http://localhost:8711"}, Mounts: mounts})
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(f)
	}
	listeners, err := f.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx, listeners) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listeners[0].Addr().String()
}

// TestBodyThatNobodyReads: who is turned away before the body is read does not keep the connection by never sending it.
func TestBodyThatNobodyReads(t *testing.T) {
	no := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	address := serving(t, func(f *Front) { f.bodyTime = 200 * time.Millisecond }, Mount{Pattern: "/mcp", Handler: no, OwnBody: true},
		Mount{Pattern: "/typed", Handler: no, Types: []string{"application/json"}})
	for name, head := range map[string]string{
		"a handler of its own": "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
		"chunked":              "POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
		"another host":         "POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 100\r\n\r\n",
		"another origin":       "POST / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nContent-Length: 100\r\n\r\n",
		"another type":         "POST /typed HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\n",
		"a get with a body":    "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
		"slow":                 "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nx",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, head); err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("the connection is still open: %v", err)
			}
		})
	}
}

// TestBodyDeadlineEnds: the bound on a body does not end what is answered after it.
func TestBodyDeadlineEnds(t *testing.T) {
	address := serving(t, func(f *Front) { f.bodyTime = 100 * time.Millisecond }, Mount{Pattern: "/", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			w.WriteHeader(http.StatusTeapot)
		case <-time.After(400 * time.Millisecond):
		}
	})})
	a, err := http.Post("http://"+address+"/", "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		t.Errorf("status %d", a.StatusCode)
	}
}

// TestBodiesOfOneAddress: one address cannot fill the memory with bodies that do not end, nor keep others from sending theirs.
func TestBodiesOfOneAddress(t *testing.T) {
	for _, own := range []bool{false, true} {
		f, err := New(Config{Mounts: []Mount{{Pattern: "/", OwnBody: own, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})}}})
		if err != nil {
			t.Fatal(err)
		}
		f.bodies = newShare(1000, 2000)
		post := func(address string, body io.Reader) int {
			r := httptest.NewRequest(http.MethodPost, "http://localhost/", body)
			r.RemoteAddr = address
			w := httptest.NewRecorder()
			f.Handler().ServeHTTP(w, r)
			return w.Code
		}
		held, hold := io.Pipe()
		ended := make(chan int)
		go func() { ended <- post("[2001:db8::1]:1", held) }()
		for _, n := range []int{900, 0} { // when the second is taken, the first was counted
			if _, err := hold.Write(make([]byte, n)); err != nil {
				t.Fatal(err)
			}
		}
		if got := post("[2001:db8::2]:1", strings.NewReader(strings.Repeat("x", 600))); got != http.StatusServiceUnavailable {
			t.Errorf("the same network got %d", got)
		}
		if got := post("[2001:db8:0:1::1]:1", strings.NewReader(strings.Repeat("x", 200))); got != http.StatusOK {
			t.Errorf("another network got %d", got)
		}
		_ = hold.Close()
		if got := <-ended; got != http.StatusOK {
			t.Errorf("the held one got %d", got)
		}
		if got := post("[2001:db8::2]:1", strings.NewReader(strings.Repeat("x", 200))); got != http.StatusOK {
			t.Errorf("after it ended, the same network got %d", got)
		}
		if f.bodies.used != 0 || len(f.bodies.by) != 0 {
			t.Errorf("%d bytes are still counted", f.bodies.used)
		}
	}
}

// TestConnectionsOfOneAddress: one address cannot take every connection; a proxy speaks for many.
func TestConnectionsOfOneAddress(t *testing.T) {
	peers := make(peers, 10)
	l := limited{Listener: peers, slots: make(chan struct{}, 5), shares: newShare(2, 5), many: func(a netip.Addr) bool { return a == netip.MustParseAddr("10.0.0.1") }}
	for _, a := range []string{"192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3", "192.0.2.2:4", "10.0.0.1:5", "10.0.0.1:6"} {
		peers <- a
	}
	var got []net.Conn
	for range 5 {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, c)
	}
	if a := got[2].RemoteAddr().String(); a != "192.0.2.2:4" {
		t.Errorf("the third was %s", a)
	}
	_ = got[0].Close()
	peers <- "192.0.2.1:7"
	if c, err := l.Accept(); err != nil || c.RemoteAddr().String() != "192.0.2.1:7" {
		t.Errorf("after one ended: %v %v", c, err)
	}
}

// peers is a listener to which these addresses connect.
type peers chan string

func (p peers) Accept() (net.Conn, error) {
	ap := netip.MustParseAddrPort(<-p)
	a, b := net.Pipe()
	_ = b.Close()
	return from{a, net.TCPAddrFromAddrPort(ap)}, nil
}
func (peers) Close() error   { return nil }
func (peers) Addr() net.Addr { return nil }

type from struct {
	net.Conn
	peer net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.peer }

// TestMetricsBehindAProxy: a proxy on this machine is not this machine, whatever headers it leaves out.
func TestMetricsBehindAProxy(t *testing.T) {
	for proxies, want := range map[string]int{"": http.StatusOK, "127.0.0.1": http.StatusUnauthorized} {
		set := Settings{}
		if proxies != "" {
			set.TrustedProxies = []string{proxies}
		}
		f, err := New(Config{Settings: set})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodGet, "http://localhost/metrics", nil)
		r.RemoteAddr = "127.0.0.1:9"
		w := httptest.NewRecorder()
		f.Handler().ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("with proxies %q: %d", proxies, w.Code)
		}
	}
}
