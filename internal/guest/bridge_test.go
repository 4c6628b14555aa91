package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/frame"
	"castellan/internal/gate"
)

func TestRun(t *testing.T) {
	n := newNode(t)
	r := runnerTo(t, newSite(), bridgesTo(t, n, nil))
	for _, argv := range [][]string{{"df", "-h"}, {"echo", `a; b | c "d e"`, "$(id)", "ü€", ""}} {
		res, err := carry(t, r, command(t, argv...), "p1."+argv[0])
		if err != nil {
			t.Fatal(err)
		}
		if res.Stdout != strings.Join(argv, " ") || !res.OK || res.Way != "bridge" || *res.ExitCode != 0 {
			t.Errorf("%v: %+v", argv, res)
		}
	}
	a := n.asks(frame.Exec)[0]
	want := frame.Place{Site: testSite, Node: "pve1", Where: frame.CT, VMID: 101, Root: testRoot, MAC: testMAC}
	if a.Place != want || a.Run.Limit != 30*time.Second || a.Run.MaxOutput != 40000 || a.Run.Secret != "" {
		t.Errorf("asked %+v, want the place %+v", a, want)
	}
	if n.dials != 1 || len(n.shells) != 1 || !strings.HasPrefix(n.shells[0], "exec ") {
		t.Errorf("%d connections, sessions %q: want one connection and one session, and nothing but an exec", n.dials, n.shells)
	}
}

func TestRoot(t *testing.T) {
	n := newNode(t)
	r := runnerTo(t, newSite(), bridgesTo(t, n, nil))
	script := func(root string) gate.Request {
		return request(t, "script", map[string]any{"node": "pve1", "script": "id", "root": root})
	}
	for i, root := range []string{"0", "1"} {
		if _, err := carry(t, r, script(root), fmt.Sprint("p.", i)); err != nil {
			t.Fatal(err)
		}
	}
	asks := n.asks(frame.Exec)
	if asks[0].Run.Secret != "" || asks[0].Run.Root || asks[1].Run.Secret != "the root secret" || !asks[1].Run.Root {
		t.Errorf("asked %+v and %+v", asks[0].Run, asks[1].Run)
	}
	r = runnerTo(t, newSite(), bridgesTo(t, n, func(b *BridgeSettings) { b.RootSecretFile = "" }))
	if _, err := carry(t, r, script("1"), "p.9"); !notStarted(err) || !strings.Contains(err.(*gate.UpstreamError).Hint, "root_secret_file") {
		t.Errorf("without a secret: %v", err)
	}
}

// What is wrong before anything is started proves that nothing was, and says what to do.
func TestNotStarted(t *testing.T) {
	other, _ := key(t)
	_, wrong := key(t)
	for _, tt := range []struct {
		name   string
		node   func(*node)
		site   func(*site)
		set    func(*BridgeSettings)
		req    func() gate.Request
		want   string
		hint   string
		nobody bool // no connection is made
	}{
		{name: "another host key", set: func(b *BridgeSettings) { b.HostKey = []string{ssh.FingerprintSHA256(other.PublicKey())} }, want: "not among the pinned", hint: "host_key"},
		{name: "another site", node: func(n *node) { n.self.Site = "house-ffffffffffffffff" }, want: "split target", hint: "another cluster"},
		{name: "another node", node: func(n *node) { n.self.Node = "pve2" }, want: "is on node pve2", hint: "corrects node or address"},
		{name: "another version", node: func(n *node) { n.self.Version = 7 }, want: "version 7", hint: "same version"},
		{name: "a key that is not taken", node: func(n *node) { n.client = wrong }, want: "authenticate", hint: "key_file"},
		{name: "no site", site: func(s *site) { s.name = "" }, want: "cannot be told", nobody: true},
		{name: "no bridge", set: func(b *BridgeSettings) { b.Node = "pve7" }, want: "no API for commands in containers", hint: "castellan bridge install on node pve1", nobody: true},
		{name: "a template", site: func(s *site) { s.conf["template"] = "1" }, want: "template", nobody: true},
		{name: "no identity", site: func(s *site) { clear(s.conf); s.conf["unprivileged"] = "1" }, want: "nothing that tells it", nobody: true},
		{name: "no such guest", req: func() gate.Request {
			return request(t, "lxc/{vmid}/command", map[string]any{"node": "pve1", "vmid": "102", "command": []string{"id"}})
		}, want: "does not exist", nobody: true},
		{name: "a bad id", req: func() gate.Request {
			return request(t, "lxc/{vmid}/command", map[string]any{"node": "pve1", "vmid": "0101", "command": []string{"id"}})
		}, want: "no number", nobody: true},
		{name: "refused", node: func(n *node) {
			n.answer = func(a frame.Ask, put func(frame.Tell), _ io.Writer, _ func()) {
				put(frame.Tell{ID: a.ID, Ending: frame.Refused, Reason: "the lane is not \x1b[31mopen", Hint: "root on the node opens it"})
			}
		}, want: "not ?[31mopen", hint: "root on the node"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, s := newNode(t), newSite()
			if tt.node != nil {
				tt.node(n)
			}
			if tt.site != nil {
				tt.site(s)
			}
			req := command(t, "id")
			if tt.req != nil {
				req = tt.req()
			}
			_, err := carry(t, runnerTo(t, s, bridgesTo(t, n, tt.set)), req, "p.1")
			var u *gate.UpstreamError
			if !errors.As(err, &u) || u.Delivery != gate.NotCarriedOut || !strings.Contains(u.Message, tt.want) || !strings.Contains(u.Hint, tt.hint) {
				t.Fatalf("%v %+v, want %q with the hint %q", err, u, tt.want, tt.hint)
			}
			if got := len(n.asks(frame.Exec)); got > 1 || got == 1 && tt.name != "refused" || tt.nobody && n.dials > 0 {
				t.Errorf("%d asks, %d connections", got, n.dials)
			}
		})
	}
}

// A connection that breaks: the run is looked for by its id and never sent twice.
func TestCut(t *testing.T) {
	garbage := strings.Repeat("x", 1000) + "\n"
	for _, tt := range []struct {
		name   string
		answer func(n *node) func(a frame.Ask, put func(frame.Tell), raw io.Writer, cut func())
		want   string // of the error; "" = a result
	}{
		{"before it started", func(n *node) func(frame.Ask, func(frame.Tell), io.Writer, func()) {
			return func(a frame.Ask, _ func(frame.Tell), _ io.Writer, cut func()) {
				n.mu.Lock()
				delete(n.running, a.ID)
				n.mu.Unlock()
				cut()
			}
		}, "knows of no such run"},
		{"after it started", func(n *node) func(frame.Ask, func(frame.Tell), io.Writer, func()) {
			return func(a frame.Ask, put func(frame.Tell), _ io.Writer, cut func()) {
				put(frame.Tell{ID: a.ID, Started: true})
				cut()
				time.Sleep(300 * time.Millisecond) // it goes on over there
				put(done(a, "kept"))
			}
		}, ""},
		{"garbage", func(n *node) func(frame.Ask, func(frame.Tell), io.Writer, func()) {
			return func(a frame.Ask, put func(frame.Tell), raw io.Writer, _ func()) {
				put(frame.Tell{ID: a.ID, Started: true})
				_, _ = io.WriteString(raw, garbage)
				n.mu.Lock()
				n.ends[a.ID] = done(a, "kept")
				n.mu.Unlock()
			}
		}, ""},
		{"an endless line", func(n *node) func(frame.Ask, func(frame.Tell), io.Writer, func()) {
			return func(a frame.Ask, put func(frame.Tell), raw io.Writer, _ func()) {
				n.mu.Lock()
				n.ends[a.ID] = done(a, "kept")
				n.mu.Unlock()
				for range 3 * frame.MaxLine / len(garbage) {
					if _, err := io.WriteString(raw, garbage[:len(garbage)-1]); err != nil {
						return
					}
				}
			}
		}, ""},
		{"unknown keys", func(n *node) func(frame.Ask, func(frame.Tell), io.Writer, func()) {
			return func(a frame.Ask, put func(frame.Tell), raw io.Writer, _ func()) {
				n.mu.Lock()
				n.ends[a.ID] = done(a, "kept")
				n.mu.Unlock()
				_, _ = io.WriteString(raw, `{"id":"`+a.ID+`","ending":"done","sudo":true}`+"\n")
			}
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.answer = tt.answer(n)
			res, err := carry(t, runnerTo(t, newSite(), bridgesTo(t, n, nil)), command(t, "id"), "p.1")
			if tt.want == "" && (err != nil || res.Stdout != "kept" || !strings.Contains(res.Note, "broke")) {
				t.Fatalf("%+v %v", res, err)
			}
			if tt.want != "" && (err == nil || notStarted(err) || !strings.Contains(err.Error(), tt.want)) {
				t.Fatalf("%+v %v, want %q and no proof that nothing was started", res, err, tt.want)
			}
			if got := len(n.asks(frame.Exec)); got != 1 {
				t.Errorf("it was sent %d times", got)
			}
		})
	}
}

// A context that ends leaves the run to go on; who looks later finds it.
func TestLeave(t *testing.T) {
	n := newNode(t)
	release := make(chan struct{})
	n.answer = func(a frame.Ask, put func(frame.Tell), _ io.Writer, _ func()) {
		put(frame.Tell{ID: a.ID, Started: true})
		<-release
		put(done(a, "late"))
	}
	b := bridgesTo(t, n, nil)
	r := runnerTo(t, newSite(), b)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	req := command(t, "id")
	if _, err := r.carry(ctx, gate.Write{Target: "lab", Request: req, Open: plainOpen}, nil, "p.1", gate.RunHooks{}); err == nil || notStarted(err) {
		t.Fatalf("left: %v", err)
	}
	if _, running, err := r.Look(t.Context(), "lab", req, "p.1", ""); !running || err != nil {
		t.Fatalf("while it runs: %v %v", running, err)
	}
	close(release)
	for range 100 {
		res, running, err := r.Look(t.Context(), "lab", req, "p.1", "")
		if err != nil {
			t.Fatal(err)
		}
		if !running {
			if res.Stdout != "late" || !res.OK {
				t.Fatalf("%+v", res)
			}
			if _, _, err := r.Look(t.Context(), "lab", req, "p.2", ""); err == nil {
				t.Error("a run that nobody knows of was found")
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("it never ended")
}

func TestLive(t *testing.T) {
	n := newNode(t)
	n.answer = func(a frame.Ask, put func(frame.Tell), _ io.Writer, _ func()) {
		put(frame.Tell{ID: a.ID, Started: true})
		put(frame.Tell{ID: "nobody", Out: []byte("not mine")})
		put(frame.Tell{ID: a.ID, Out: []byte("one "), Err: []byte("two ")})
		put(done(a, "one two"))
	}
	r := runnerTo(t, newSite(), bridgesTo(t, n, nil))
	var seen strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := r.carry(ctx, gate.Write{Target: "lab", Request: command(t, "id"), Open: plainOpen}, nil, "p.1", gate.RunHooks{Live: func(p []byte) { seen.Write(p) }})
	if err != nil || seen.String() != "one two " || !n.asks(frame.Exec)[0].Run.Stream {
		t.Errorf("%q %v", seen.String(), err)
	}
}

// Many runs share one connection; what ends first is told first.
func TestMany(t *testing.T) {
	n := newNode(t)
	var mu sync.Mutex
	now, most := 0, 0
	n.answer = func(a frame.Ask, put func(frame.Tell), _ io.Writer, _ func()) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		time.Sleep(200 * time.Millisecond)
		mu.Lock()
		now--
		mu.Unlock()
		put(done(a, a.ID))
	}
	r := runnerTo(t, newSite(), bridgesTo(t, n, func(b *BridgeSettings) { b.Parallel = 20 }))
	var group sync.WaitGroup
	began := time.Now()
	for i := range 60 {
		group.Go(func() {
			id := fmt.Sprint("p.", i)
			if res, err := carry(t, r, command(t, "sleep"), id); err != nil || res.Stdout != id {
				t.Errorf("%s: %+v %v", id, res, err)
			}
		})
	}
	group.Wait()
	if took := time.Since(began); most != 20 || n.dials != 1 || took > 3*time.Second {
		t.Errorf("%d at once over %d connections in %s; want 20 over one", most, n.dials, took)
	}
}

// A bridge that does not answer is tried again, and not at once for every caller.
func TestBackoff(t *testing.T) {
	n := newNode(t)
	n.self.Site = "house-ffffffffffffffff"
	r := runnerTo(t, newSite(), bridgesTo(t, n, nil))
	for i := range 6 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := r.carry(ctx, gate.Write{Target: "lab", Request: command(t, "id"), Open: plainOpen}, nil, fmt.Sprint("p.", i), gate.RunHooks{})
		cancel()
		if !notStarted(err) {
			t.Fatal(err)
		}
	}
	if n.dials > 4 {
		t.Errorf("%d connections for six calls", n.dials)
	}
}

func TestFiles(t *testing.T) {
	n := newNode(t)
	n.answer = func(a frame.Ask, put func(frame.Tell), _ io.Writer, _ func()) {
		put(frame.Tell{ID: a.ID, Ending: frame.Done, File: &frame.Found{Path: a.File.Path, Size: 3, Mode: 0o640, Content: []byte("a\x00\xff"), SHA256: strings.Repeat("0", 64)}})
	}
	r := runnerTo(t, newSite(), bridgesTo(t, n, nil))
	res, err := carry(t, r, request(t, "lxc/{vmid}/read-file", map[string]any{"node": "pve1", "vmid": "101", "path": "/etc/x"}), "p.1")
	if err != nil || res.File == nil || res.File.Content64 != "YQD/" || res.File.Mode != "0640" || !res.OK {
		t.Errorf("%+v %v", res.File, err)
	}
	if _, err := carry(t, r, request(t, "lxc/{vmid}/write-file", map[string]any{"node": "pve1", "vmid": "101", "path": "/etc/x", "content": "ü", "mode": "0600", "expect": "absent"}), "p.2"); err != nil {
		t.Fatal(err)
	}
	if f := n.asks(frame.Write)[0].File; string(f.Content) != "ü" || f.Mode != 0o600 || f.Expect != "absent" {
		t.Errorf("%+v", f)
	}
	for _, bad := range []map[string]any{{"content": "a", "content64": "YQ=="}, {"content64": "?"}, {}, {"content": "a", "mode": "999"}} {
		bad["node"], bad["vmid"], bad["path"], bad["expect"] = "pve1", "101", "/etc/x", "absent"
		if _, err := carry(t, r, request(t, "lxc/{vmid}/write-file", bad), "p.3"); !notStarted(err) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
