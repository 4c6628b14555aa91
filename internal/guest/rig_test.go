package guest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/frame"
	"castellan/internal/gate"
	"castellan/internal/seal"
)

const (
	testSite = "house-0123456789abcdef"
	testRoot = "local-lvm:vm-101-disk-0"
	testMAC  = "BC:24:11:00:00:65"
)

// site is a driver of one target, "lab", whose only guest is container 101.
type site struct {
	name string
	conf map[string]string
	down error
	id   string

	mu   sync.Mutex
	more map[string]string // further answers, by operation
}

// says sets what it answers to an operation.
func (s *site) says(operation, answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.more == nil {
		s.more = map[string]string{}
	}
	s.more[operation] = answer
}

func newSite() *site {
	return &site{name: testSite, id: "101", conf: map[string]string{"rootfs": testRoot + ",size=8G", "net0": "name=eth0,bridge=vmbr0,hwaddr=" + testMAC, "net1": "name=eth1,hwaddr=BC:24:11:FF:FF:FF", "unprivileged": "1"}}
}

func (s *site) Targets() []gate.TargetInfo {
	return []gate.TargetInfo{{Name: "lab", Product: "pve"}}
}

func (s *site) Read(_ context.Context, _ string, r gate.Request) (gate.Answer, error) {
	if s.down != nil {
		return gate.Answer{}, s.down
	}
	s.mu.Lock()
	answer, known := s.more[r.Operation]
	s.mu.Unlock()
	if known && r.Text("vmid") == s.id {
		return gate.Answer{Data: json.RawMessage(answer)}, nil
	}
	if r.Operation != "GET /nodes/{node}/lxc/{vmid}/config" || r.Text("vmid") != s.id {
		return gate.Answer{}, &gate.UpstreamError{Kind: gate.ErrNotFound, Delivery: gate.MaybeDone, Status: 500, Message: "Configuration file does not exist"}
	}
	b, err := json.Marshal(s.conf)
	return gate.Answer{Data: b}, err
}
func (s *site) Address(string) (string, error) { return "", nil }
func (s *site) Send(context.Context, *gate.Permit) (gate.Answer, error) {
	return gate.Answer{}, errors.New("this site takes no writes")
}
func (s *site) Identify(context.Context, string) (string, error) { return s.name, nil }
func (s *site) Task(context.Context, string, string) (gate.TaskState, error) {
	return gate.TaskState{}, nil
}
func (s *site) FindTasks(context.Context, string, string, time.Time) ([]gate.TaskState, error) {
	return nil, nil
}

// node is a bridge behind a real SSH server. It keeps results by id, as bridges do, and starts no id twice.
type node struct {
	t       testing.TB
	address string
	key     ssh.Signer // of the server
	client  []byte     // private key of castellan, PEM

	mu      sync.Mutex
	self    frame.Self
	ends    map[string]frame.Tell
	asked   []frame.Ask
	dials   int
	running map[string]bool
	conns   map[net.Conn]bool
	shells  []string // what was asked for, of each session
	// answer makes the Tells of an ask; nil: it runs at once and prints its arguments. A nil write ends the connection.
	answer func(a frame.Ask, put func(frame.Tell), raw io.Writer, cut func())
}

func key(t testing.TB) (ssh.Signer, []byte) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	return signer, pem.EncodeToMemory(block)
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{t: t, ends: map[string]frame.Tell{}, running: map[string]bool{}, conns: map[net.Conn]bool{},
		self: frame.Self{Version: frame.Version, Site: testSite, Node: "pve1", Lanes: map[frame.Where][]frame.Lane{frame.CT: {frame.Probe, frame.Command, frame.Script}}, Guests: []string{"*"}}}
	var client ssh.Signer
	n.key, _ = key(t)
	client, n.client = key(t)
	conf := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		if string(k.Marshal()) != string(client.PublicKey().Marshal()) {
			return nil, errors.New("unknown key")
		}
		return nil, nil
	}}
	conf.AddHostKey(n.key)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.address = l.Addr().String()
	var group sync.WaitGroup
	group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.mu.Lock()
			n.conns[c] = true
			n.dials++
			n.mu.Unlock()
			group.Go(func() { n.serve(c, conf) })
		}
	})
	t.Cleanup(func() { l.Close(); n.cutAll(); group.Wait() })
	return n
}

// dialled is how often somebody has connected.
func (n *node) dialled() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}

func (n *node) cutAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		c.Close()
	}
}

func (n *node) serve(c net.Conn, conf *ssh.ServerConfig) {
	defer func() {
		c.Close()
		n.mu.Lock()
		delete(n.conns, c)
		n.mu.Unlock()
	}()
	_, channels, requests, err := ssh.NewServerConn(c, conf)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for nc := range channels {
		ch, reqs, err := nc.Accept()
		if err != nil {
			return
		}
		go func() {
			for r := range reqs {
				n.mu.Lock()
				n.shells = append(n.shells, r.Type+" "+string(r.Payload))
				n.mu.Unlock()
				_ = r.Reply(r.Type == "exec", nil)
			}
		}()
		n.frames(ch, func() { c.Close() })
	}
}

func (n *node) frames(ch io.ReadWriter, cut func()) {
	r, w := frame.NewReader(ch), frame.NewWriter(ch)
	put := func(t frame.Tell) {
		if t.Ending != "" && t.Ending != frame.Refused && t.Hello == nil {
			n.mu.Lock()
			n.ends[t.ID] = t
			n.mu.Unlock()
		}
		_ = w.Put(t)
	}
	for {
		var a frame.Ask
		if r.Next(&a) != nil {
			return
		}
		n.mu.Lock()
		n.asked = append(n.asked, a)
		self, end, known, answer, running := n.self, n.ends[a.ID], false, n.answer, n.running[a.ID]
		_, known = n.ends[a.ID]
		n.mu.Unlock()
		switch {
		case a.Verb == frame.Hello:
			_ = w.Put(frame.Tell{ID: a.ID, Ending: frame.Done, Hello: &self})
		case a.Verb == frame.Look && known:
			_ = w.Put(end)
		case a.Verb == frame.Look:
			_ = w.Put(frame.Tell{ID: a.ID, Ending: frame.Unknown, Running: running, Reason: "this bridge knows of no such run"})
		case known || running:
			_ = w.Put(frame.Tell{ID: a.ID, Ending: frame.Unknown, Reason: "an ask of this id was begun before"})
		default:
			n.mu.Lock()
			n.running[a.ID] = true
			n.mu.Unlock()
			if answer == nil {
				answer = echo
			}
			go answer(a, put, ch, cut)
		}
	}
}

// echo runs at once and prints what it was asked to run.
func echo(a frame.Ask, put func(frame.Tell), _ io.Writer, _ func()) {
	put(frame.Tell{ID: a.ID, Started: true})
	put(done(a, strings.Join(a.Run.Argv, " ")))
}

func done(a frame.Ask, text string) frame.Tell {
	zero := 0
	return frame.Tell{ID: a.ID, Ending: frame.Done, Result: &frame.Result{Argv: a.Run.Argv, Code: &zero, Gone: true, Out: frame.Output{Head: []byte(text), Total: int64(len(text))}, Took: time.Millisecond}}
}

func (n *node) settings() BridgeSettings {
	return BridgeSettings{Target: "lab", Node: "pve1", Address: n.address, KeyFile: "key", RootSecretFile: "root", HostKey: []string{ssh.FingerprintSHA256(n.key.PublicKey())}}
}

func (n *node) secrets(path string) (seal.Secret, error) {
	switch path {
	case "key":
		return seal.NewSecret(n.client), nil
	case "root":
		return seal.NewSecret([]byte("the root secret\n")), nil
	}
	return seal.Secret{}, errors.New("no such file")
}

func (n *node) asks(verb frame.Verb) (out []frame.Ask) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.asked {
		if a.Verb == verb {
			out = append(out, a)
		}
	}
	return out
}

func bridgesTo(t testing.TB, n *node, change func(*BridgeSettings)) *Bridges {
	t.Helper()
	set := n.settings()
	if change != nil {
		change(&set)
	}
	b, err := NewBridges(BridgesConfig{Settings: Settings{Bridges: []BridgeSettings{set}}, Targets: []string{"lab"}, Secrets: n.secrets})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func runnerTo(t testing.TB, s *site, b *Bridges) *Runner {
	t.Helper()
	r, err := NewRunner(RunnerConfig{Driver: s, Bridges: b})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// request is a run; a slice is a repeated parameter.
func request(t testing.TB, operation string, params map[string]any) gate.Request {
	t.Helper()
	r, err := gate.NewRequest("pve", "RUN /nodes/{node}/"+operation, params)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func command(t testing.TB, argv ...string) gate.Request {
	return request(t, "lxc/{vmid}/command", map[string]any{"node": "pve1", "vmid": "101", "command": argv})
}

func plainOpen(v gate.Value) (string, error) { return lookValue(v) }

func carry(t testing.TB, r *Runner, req gate.Request, id string) (gate.RunResult, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return r.carry(ctx, gate.Write{Target: "lab", Request: req, Open: plainOpen}, nil, id, gate.RunHooks{})
}

// notStarted says whether an error proves that nothing was started.
func notStarted(err error) bool {
	var u *gate.UpstreamError
	return errors.As(err, &u) && u.Delivery == gate.NotCarriedOut
}
