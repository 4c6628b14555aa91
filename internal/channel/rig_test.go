package channel

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/hosts"
	"castellan/internal/ops/housetest"
	"castellan/internal/store"
)

const testSite = "house-0123456789abcdef"

// guests are SSH servers on this machine that stand behind addresses of a network.
type guests struct {
	mu     sync.Mutex
	at     map[netip.Addr]*guest
	dialed []string
}

// guest is one such server. say answers a word; nil: it prints the word and what it reads.
type guest struct {
	t       testing.TB
	address string
	key     ssh.Signer
	client  ssh.PublicKey // that it takes
	most    int           // sessions over one connection; 0 = any number

	mu       sync.Mutex
	say      func(word string, ch ssh.Channel, cut func()) uint32
	offered  int      // keys that were offered
	asked    []string // "exec check", "pty-req", ...
	conns    map[net.Conn]bool
	dials    int
	sessions int
}

func newKey(t testing.TB) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newGuest(t testing.TB) *guest {
	t.Helper()
	g := &guest{t: t, key: newKey(t), conns: map[net.Conn]bool{}}
	conf := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.offered++
		if g.client == nil || string(k.Marshal()) != string(g.client.Marshal()) {
			return nil, errors.New("unknown key")
		}
		return nil, nil
	}}
	conf.AddHostKey(g.key)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.address = l.Addr().String()
	var group sync.WaitGroup
	group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			g.mu.Lock()
			g.conns[c] = true
			g.dials++
			g.mu.Unlock()
			group.Go(func() { g.serve(c, conf) })
		}
	})
	t.Cleanup(func() { l.Close(); g.cut(); group.Wait() })
	return g
}

func (g *guest) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		c.Close()
	}
}

func (g *guest) serve(c net.Conn, conf *ssh.ServerConfig) {
	defer func() {
		c.Close()
		g.mu.Lock()
		delete(g.conns, c)
		g.mu.Unlock()
	}()
	_, channels, requests, err := ssh.NewServerConn(c, conf)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	var open sync.WaitGroup
	defer open.Wait()
	busy := 0
	var mu sync.Mutex
	for nc := range channels {
		mu.Lock()
		full := g.most > 0 && busy >= g.most
		if !full {
			busy++
		}
		mu.Unlock()
		if full || nc.ChannelType() != "session" {
			_ = nc.Reject(ssh.Prohibited, "no more sessions")
			continue
		}
		ch, reqs, err := nc.Accept()
		if err != nil {
			return
		}
		open.Go(func() {
			g.session(ch, reqs, func() { c.Close() })
			mu.Lock()
			busy--
			mu.Unlock()
		})
	}
}

func (g *guest) session(ch ssh.Channel, reqs <-chan *ssh.Request, cut func()) {
	defer ch.Close()
	for r := range reqs {
		var exec struct{ Command string }
		_ = ssh.Unmarshal(r.Payload, &exec) // other requests have other payloads
		g.mu.Lock()
		g.asked = append(g.asked, strings.TrimSpace(r.Type+" "+exec.Command))
		say := g.say
		g.sessions++
		g.mu.Unlock()
		_ = r.Reply(r.Type == "exec", nil)
		if r.Type != "exec" {
			continue
		}
		go func() {
			for r := range reqs {
				_ = r.Reply(false, nil)
			}
		}()
		if say == nil {
			say = echo
		}
		code := say(exec.Command, ch, cut)
		_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{code}))
		return
	}
}

func echo(word string, ch ssh.Channel, _ func()) uint32 {
	_, _ = ch.Write([]byte("castellan 1 " + word + "\nend\n"))
	return 0
}

func (g *guest) answers(say func(word string, ch ssh.Channel, cut func()) uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.say = say
}

func (g *guest) hostKey() string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(g.key.PublicKey())))
}

// net is a network in which guests have addresses; castellan's own is 10.0.0.1.
func newGuests() *guests { return &guests{at: map[netip.Addr]*guest{}} }

func (n *guests) put(address string, g *guest) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if g == nil {
		delete(n.at, netip.MustParseAddr(address))
		return
	}
	n.at[netip.MustParseAddr(address)] = g
}

func (n *guests) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	g := n.at[to.Addr()]
	n.dialed = append(n.dialed, to.String())
	n.mu.Unlock()
	if g == nil {
		return nil, errors.New("no route to host")
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", g.address)
}

func (n *guests) tries() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.dialed...)
}

func ownTest() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil }

func newStore(t testing.TB) *store.Store {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), store.Config{URL: filepath.Join(t.TempDir(), "state", "castellan.db"), Signer: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

func newChannels(t testing.TB, n *guests, st *store.Store) *Channels {
	t.Helper()
	if st == nil {
		st = newStore(t)
	}
	c, err := NewChannels(Config{Store: st, Sealer: housetest.Sealer{}, Dial: n.dial, Own: ownTest, Barred: hosts.New(hosts.Config{Hosts: []string{"10.9.9.1:8006", "https://user@bridge.example/castellan", "[fd00::9]:22", "nowhere.example"},
		Lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
			if host == "bridge.example" {
				return []netip.Addr{netip.MustParseAddr("::ffff:10.9.9.2")}, nil
			}
			return nil, errors.New("no such host")
		}})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// enrolled keeps a channel into a guest.
func enrolled(t testing.TB, c *Channels, g *guest, vmid int, address string) *Entry {
	t.Helper()
	e, err := New(testSite, vmid, "lxc")
	if err != nil {
		t.Fatal(err)
	}
	e.Address, e.HostKeys, e.Account, e.From, e.Identity = address, []string{g.hostKey()}, "castellan", "10.0.0.1", Identity{Root: "local:vm-disk-0", MAC: "BC:24:11:00:00:65"}
	g.mu.Lock()
	if g.client, err = parseKey(e.PublicKey); err != nil {
		t.Fatal(err)
	}
	g.mu.Unlock()
	if err := c.Keep(t.Context(), e, "p1.1"); err != nil {
		t.Fatal(err)
	}
	return e
}

func within(t testing.TB, most time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > most {
		t.Errorf("took %s, more than %s", took, most)
	}
}
