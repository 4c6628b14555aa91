//go:build linux

package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/gate"
)

// station is a gate that remembers who asked for what.
type station struct {
	mu    sync.Mutex
	asked []string
	hold  chan struct{} // calls wait for it when it is not nil
}

func (s *station) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, fmt.Sprintf(format, args...))
}

func (s *station) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) == 0 {
		return ""
	}
	return s.asked[len(s.asked)-1]
}

func (s *station) Do(ctx context.Context, c gate.Call, p gate.Progress) (*gate.Outcome, error) {
	s.note("do %s %s as %s by %s %s plan_only=%t", c.Operation, c.Args, c.Principal.Key(), c.Principal.WayIn, c.Principal.Strength, c.PlanOnly)
	if c.Operation == "panic" {
		panic("oh")
	}
	if s.hold != nil {
		p.Report(1, 2, "half")
		select {
		case <-s.hold:
		case <-ctx.Done():
			s.note("gone")
			return nil, ctx.Err()
		}
	}
	if c.Operation == "no" {
		return nil, gate.Fail(gate.ErrDenied, "a hint", "denied")
	}
	return &gate.Outcome{Status: gate.StatusAnswer, Answer: json.RawMessage(`{"a":1}`)}, nil
}

func (s *station) Confirm(_ context.Context, who gate.Principal, id string, e gate.Evidence, _ gate.Progress) (*gate.Outcome, error) {
	s.note("confirm %s as %s %s %q %q", id, who.Key(), e.Kind, e.Phrase, e.Session)
	return &gate.Outcome{Status: gate.StatusDone}, nil
}

func (s *station) Kill(_ context.Context, who gate.Principal, on bool) error {
	s.note("kill %t as %s", on, who.Key())
	return nil
}

func (s *station) Arm(_ context.Context, who gate.Principal, until time.Time) error {
	s.note("arm %t as %s", until.After(time.Now()), who.Key())
	return nil
}

func (s *station) Switches(context.Context) (gate.Switches, error) {
	return gate.Switches{Killed: "by ann"}, nil
}

// folk is one person with a password.
type folk struct{ *station }

func (f folk) SignIn(_ context.Context, _ Peer, person, password string) (string, gate.Principal, error) {
	if password != "right" {
		return "", gate.Principal{}, gate.Fail(gate.ErrDenied, "", "wrong")
	}
	f.note("sign in %s", person)
	return "session-of-" + person, gate.Principal{Person: person, Strength: gate.StrengthSession}, nil
}

func (f folk) SignOut(_ context.Context, session string) { f.note("sign out %s", session) }

func (f folk) Show(_ context.Context, who gate.Principal, plan string) (*gate.PlanView, error) {
	f.note("show %s to %s", plan, who.Key())
	return &gate.PlanView{ID: plan}, nil
}

func (f folk) Approve(_ context.Context, session, plan string, newer bool) (*gate.PlanView, error) {
	f.note("approve %s with %s%s", plan, session, map[bool]string{true: " and newer"}[newer])
	return &gate.PlanView{ID: plan, State: gate.PlanApproved}, nil
}

func (f folk) Deny(_ context.Context, session, plan, why string) error {
	f.note("deny %s with %s: %s", plan, session, why)
	return nil
}

func me(t *testing.T) string {
	t.Helper()
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return u.Username
}

// opened serves a socket to this very account until the returned function is called, or the test ends.
func opened(t *testing.T, s *station, change func(*Config)) (path string, stop func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "local")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "s")
	c := Config{Path: path, Gate: s, Agents: map[string]string{me(t): "claude"}, People: folk{s},
		Checksum: func(gate.Principal, []string) (string, error) { return "sum", nil },
		MCP: func(ctx context.Context, who gate.Principal, h Hello, in io.Reader, out io.Writer) error {
			s.note("mcp as %s by %s %s %v", who.Key(), who.WayIn, who.Strength, h.Toolset)
			r := bufio.NewReader(in)
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					return nil
				}
				if strings.Contains(line, "hang") {
					continue
				}
				var m struct{ ID json.RawMessage }
				if json.Unmarshal([]byte(line), &m) == nil && len(m.ID) > 0 {
					fmt.Fprintf(out, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n", m.ID)
				}
			}
		}}
	if change != nil {
		change(&c)
	}
	server, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := server.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, l) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Error("the socket did not stop")
			}
		})
	}
	t.Cleanup(stop)
	return path, stop
}

func TestCalls(t *testing.T) {
	s := &station{}
	path, _ := opened(t, s, nil)
	ctx := context.Background()
	c, err := Connect(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Welcome.Account != me(t) || c.Welcome.Agent != "claude" || !c.SameAccount {
		t.Errorf("%+v", c)
	}
	// What the client says of itself is not heard.
	liar := gate.Principal{Person: "root", Strength: gate.StrengthAccount, Roles: []string{gate.RoleAdministrator}}
	out, err := c.Do(ctx, gate.Call{Operation: "list", Args: json.RawMessage(`{"x":1}`), Principal: liar, PlanOnly: true}, nil)
	if err != nil || string(out.Answer) != `{"a":1}` {
		t.Fatalf("%+v %v", out, err)
	}
	as := "claude|" + me(t)
	if got, want := s.last(), `do list {"x":1} as `+as+` by socket peer plan_only=true`; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	var e *gate.Error
	if _, err = c.Do(ctx, gate.Call{Operation: "no"}, nil); !errors.As(err, &e) || e.Kind != gate.ErrDenied || e.Hint != "a hint" || e.Changed != "nothing" {
		t.Errorf("%#v", err)
	}
	if _, err = c.Do(ctx, gate.Call{Operation: "panic"}, nil); !errors.As(err, &e) || e.Kind != gate.ErrInternal {
		t.Errorf("%#v", err)
	}
	if _, err = c.Confirm(ctx, liar, "p-1", gate.Evidence{Kind: "session", Phrase: "ph", Session: "forged"}, nil); err != nil || s.last() != `confirm p-1 as `+as+` terminal "ph" ""` {
		t.Errorf("%s %v", s.last(), err)
	}
	if err := c.Kill(ctx, liar, true); err != nil || s.last() != "kill true as |"+me(t) {
		t.Errorf("%s %v", s.last(), err)
	}
	if err := c.Kill(ctx, liar, false); !errors.As(err, &e) || e.Kind != gate.ErrDenied || s.last() != "kill true as |"+me(t) {
		t.Errorf("%s %v", s.last(), err)
	}
	if sw, err := c.Switches(ctx); err != nil || sw.Killed != "by ann" {
		t.Errorf("%+v %v", sw, err)
	}
	// Nobody approves without having signed in; who has is the daemon's to know.
	if _, err := c.Approve(ctx, "p-1", false); !errors.As(err, &e) || e.Kind != gate.ErrDenied {
		t.Errorf("%v", err)
	}
	if err := c.SignIn(ctx, "bea", "wrong"); err == nil {
		t.Error("a wrong password signs in")
	}
	if err := c.SignIn(ctx, "", "right"); err != nil || s.last() != "sign in "+me(t) {
		t.Errorf("%s %v", s.last(), err)
	}
	if err := c.SignIn(ctx, "bea", "right"); err == nil {
		t.Error("two people on one connection")
	}
	if v, err := c.Approve(ctx, "p-1", false); err != nil || v.State != gate.PlanApproved || s.last() != "approve p-1 with session-of-"+me(t) {
		t.Errorf("%s %v", s.last(), err)
	}
	_ = c.Close()
	for deadline := time.Now().Add(5 * time.Second); s.last() != "sign out session-of-"+me(t); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the session outlives the connection: %s", s.last())
		}
	}
}

// TestAClientThatGoes ends its call, and a daemon that goes says so.
func TestAClientThatGoes(t *testing.T) {
	s := &station{hold: make(chan struct{})}
	path, stop := opened(t, s, nil)
	c, err := Connect(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	_, err = c.Do(ctx, gate.Call{Operation: "slow"}, func(done, total int, message string) {
		if done != 1 || total != 2 || message != "half" {
			t.Errorf("%d of %d %s", done, total, message)
		}
		cancel()
	})
	var e *gate.Error
	if !errors.As(err, &e) || e.Changed != "unknown" {
		t.Errorf("%#v", err)
	}
	_ = c.Close()
	for deadline := time.Now().Add(5 * time.Second); s.last() != "gone"; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the call goes on without its client")
		}
	}
	if c, err = Connect(context.Background(), path); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ended := make(chan error, 1)
	begun := make(chan struct{}, 1)
	go func() {
		_, err := c.Do(context.Background(), gate.Call{Operation: "slow"}, func(int, int, string) { begun <- struct{}{} })
		ended <- err
	}()
	<-begun
	stop()
	if err := <-ended; err == nil {
		t.Error("a call ended well although its daemon went")
	}
}

func TestWhoIsRefused(t *testing.T) {
	s := &station{}
	var refused []Peer
	path, _ := opened(t, s, func(c *Config) {
		c.Agents = map[string]string{"somebody": "x"}
		c.Refused = func(_ context.Context, p Peer) { refused = append(refused, p) }
	})
	_, err := Connect(context.Background(), path)
	var e *gate.Error
	if !errors.As(err, &e) || e.Kind != gate.ErrDenied || !errors.Is(err, ErrNoWelcome) || len(refused) != 1 || refused[0].UID != os.Geteuid() || refused[0].PID != os.Getpid() {
		t.Errorf("%v %+v", err, refused)
	}
	_, err = Connect(context.Background(), path+"nosuch")
	if !errors.As(err, &e) || e.Kind != gate.ErrUnavailable || !strings.Contains(e.Hint, "systemctl start") {
		t.Errorf("%v", err)
	}
}

func TestBadGreetings(t *testing.T) {
	s := &station{}
	path, _ := opened(t, s, nil)
	for _, text := range []string{"", "nonsense\n", "{}\n", `{"castellan":2,"kind":"mcp"}` + "\n", `{"castellan":1,"kind":"shell"}` + "\n", `{"castellan":1,"kind":"mcp","as":"root"}` + "\n",
		`{"castellan":1,"kind":"mcp"} {}` + "\n", `{"castellan":1,"kind":"mcp","pin":"other"}` + "\n", strings.Repeat("x", maxHello+1)} {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = io.WriteString(c, text) // it may hang up half way
		_ = c.(*net.UnixConn).CloseWrite()
		b, _ := io.ReadAll(c)
		var w Welcome
		if text != "" && len(text) < 1000 && (json.Unmarshal(b, &w) != nil || w.Error == nil) {
			t.Errorf("%.60q is answered with %q", text, b)
		}
		_ = c.Close()
	}
	if s.last() != "" {
		t.Errorf("something was done: %s", s.last())
	}
	// The daemon still serves.
	c, err := Connect(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

// TestRelay: lines go both ways; when the daemon goes, every request is answered.
func TestRelay(t *testing.T) {
	s := &station{}
	path, stop := opened(t, s, nil)
	in, feed := io.Pipe()
	var out safeBuffer
	ended := make(chan error, 1)
	go func() {
		ended <- Relay(context.Background(), path, Hello{Toolset: []string{"front"}}, in, &out)
	}()
	send := func(line string) {
		t.Helper()
		if _, err := io.WriteString(feed, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	shows := func(text string) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Second); !strings.Contains(out.String(), text); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%q is not there: %s", text, out.String())
			}
		}
	}
	send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	shows(`"id":1,"result"`)
	if want := "mcp as claude|" + me(t) + " by mcp-stdio peer [front]"; s.last() != want {
		t.Errorf("%s, not %s", s.last(), want)
	}
	send(`{"jsonrpc":"2.0","id":"a b","method":"hang"}`)
	send(`[{"jsonrpc":"2.0","id":7,"method":"hang"},{"jsonrpc":"2.0","method":"note"}]`)
	time.Sleep(50 * time.Millisecond)
	stop()
	shows(`"id":7`)
	shows(`"id":"a b"`)
	send(`{"jsonrpc":"2.0","id":8,"method":"ping"}`)
	shows(`"id":8`)
	send(`{"jsonrpc":"2.0","method":"notifications/x"}`)
	_ = feed.Close()
	var e *gate.Error
	if err := <-ended; !errors.As(err, &e) || e.Kind != gate.ErrUnavailable || errors.Is(err, ErrNoWelcome) {
		t.Errorf("%v", err)
	}
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		var m struct {
			ID    json.RawMessage
			Error *struct {
				Code    int
				Message string
			}
		}
		if json.Unmarshal([]byte(line), &m) != nil || string(m.ID) != "1" && (m.Error == nil || m.Error.Code != -32000 || !strings.Contains(m.Error.Message, "daemon is gone")) {
			t.Errorf("answered: %s", line)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 4 {
		t.Errorf("%d answers: %s", n, out.String())
	}
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestSocketPlace: one left behind is taken away, one that lives and anything else is not, nor a folder of others.
func TestSocketPlace(t *testing.T) {
	s := &station{}
	path, stop := opened(t, s, nil)
	again := func(at string) error {
		server, err := New(Config{Path: at, Gate: s, MCP: func(context.Context, gate.Principal, Hello, io.Reader, io.Writer) error { return nil },
			Checksum: func(gate.Principal, []string) (string, error) { return "", nil }})
		if err != nil {
			t.Fatal(err)
		}
		l, err := server.Listen()
		if err == nil {
			_ = l.Close()
		}
		return err
	}
	if err := again(path); err == nil || !strings.Contains(err.Error(), "another daemon") {
		t.Errorf("%v", err)
	}
	stop()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if err := again(path); err != nil {
		t.Errorf("what was left behind is in the way: %v", err)
	}
	if err := os.WriteFile(path+"f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := again(path + "f"); err == nil || !strings.Contains(err.Error(), "something else") {
		t.Errorf("%v", err)
	}
	open := filepath.Join(filepath.Dir(path), "open")
	if err := os.Mkdir(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := again(filepath.Join(open, "s")); err == nil || !strings.Contains(err.Error(), "others can write") {
		t.Errorf("%v", err)
	}
}

// TestAPeerThatDoesNotRead: whoever reads no answers does not keep the daemon from stopping.
func TestAPeerThatDoesNotRead(t *testing.T) {
	for _, kind := range []string{KindMCP, KindCalls} {
		t.Run(kind, func(t *testing.T) {
			path, stop := opened(t, &station{}, func(c *Config) {
				c.MCP = func(_ context.Context, _ gate.Principal, _ Hello, _ io.Reader, out io.Writer) error {
					for {
						if _, err := out.Write(make([]byte, 1<<16)); err != nil {
							return err
						}
					}
				}
			})
			c, _, _, err := Dial(t.Context(), path, Hello{Kind: kind})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // until both sides are full
			for kind == KindCalls {
				if _, err := io.WriteString(c, strings.Repeat(`{"method":"switches"}`+"\n", 100)); err != nil {
					break
				}
			}
			time.Sleep(100 * time.Millisecond)
			stop() // fails the test where it does not return
		})
	}
}
