// Package lab is a simulated Proxmox VE site that answers as the genuine API does: status lines, texts,
// parameter and privilege checks, tasks, locks, digests and pending changes, all in memory.
//
// In a Go test:
//
//	l, err := lab.New(lab.Config{Site: "small"}) // Delays false: tasks end at once, no waiting after a failed login
//	ln, err := net.Listen("tcp", "127.0.0.1:0")
//	go l.Serve(ctx, ln)                          // TLS; returns when ctx ends
//	base := "https://" + ln.Addr().String()      // API below base + "/api2/json"
//	auth := l.Tokens()["operator"]               // the whole value of the Authorization header
//	pin := l.Fingerprint()                       // SHA-256 of the certificate; l.CAPEM() is its issuer
//
// Without a network, l.Do(method, target, header, body) gives one answer. l.Requests() lists what was asked,
// l.SetFaults scripts failures, l.SetNode switches nodes, l.Advance moves the clock.
package lab

import (
	"castellan/internal/catalog/facts"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Config says which site is simulated and how.
type Config struct {
	Product facts.Product    // facts.PVE when empty; no other is simulated yet
	Site    string           // "small" (default), "rig", "2000", "10000"
	Faults  []Fault          // scripted failures, see Fault
	Version string           // "9" (default) or "8": privileges, roles, HA groups or rules, and which paths are there
	Delays  bool             // realistic durations; false: whatever takes time is over when its call is answered
	Ill     []Illness        // guests that are ill, see Illness
	Clock   func() time.Time // time.Now when nil
	Facts   *facts.Facts     // facts.Open() when nil
	// Agent opens the socket of a genuine guest agent for a VM; nil, or no connection and no error: the simulated one answers.
	// It is called while the lab is locked, and must not wait for the lab.
	Agent func(vmid int) (net.Conn, error)
	// BackupFiles are more files in every backup on a backup server: text by path, from the root of the file system.
	BackupFiles map[string]string
}

// product is what one simulated product does with a request that matched no page; rec is filled in for the log.
type product interface {
	process(r *request, path, query string, rec *Request) (*response, *fault)
}

// pve answers as Proxmox VE.
type pve struct{ *Lab }

// Lab is one simulated site. Its methods may be called from several goroutines.
type Lab struct {
	mu      sync.Mutex
	product product
	cfg     Config
	clock   func() time.Time
	offset  time.Duration
	s       *state
	ops     *router
	serve   map[*facts.Operation]handler
	checks  *checker
	cert    *certificate
	faults  []*fault
	log     []Request
	logFrom int
	tokens  map[string]string
	zips    sync.Pool // writers: each is large
}

// Request is one line of the request log.
type Request struct {
	Method string
	Path   string   // decoded, without /api2/FORMAT and query
	Keys   []string // names of all parameters sent, sorted
	Status int      // as answered; 0 when the connection was cut
	User   string   // user or token id, empty when not authenticated
	Time   time.Time
}

// Info is what a caller needs to reach a served lab.
type Info struct {
	URL         string            `json:"url"`
	Fingerprint string            `json:"fingerprint"`
	Tokens      map[string]string `json:"tokens"` // name → value of the Authorization header
}

// ErrSite is returned for an unknown site name.
var ErrSite = errors.New("unknown site; known are small, rig, 2000 and 10000")

// ErrVersion is returned for a version that is not simulated.
var ErrVersion = errors.New("unknown version; known are 8 and 9")

// ErrProduct is returned for a product that is not simulated.
var ErrProduct = errors.New("product is not simulated")

// New builds the site. Nothing is started.
func New(cfg Config) (*Lab, error) {
	if cfg.Facts == nil {
		cfg.Facts = facts.Open()
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Site == "" {
		cfg.Site = "small"
	}
	if cfg.Product == "" {
		cfg.Product = facts.PVE
	}
	if cfg.Product != facts.PVE {
		return nil, fmt.Errorf("build lab: %w: %s", ErrProduct, cfg.Product)
	}
	api, err := cfg.Facts.API(facts.PVE)
	if err != nil {
		return nil, fmt.Errorf("build lab: %w", err)
	}
	l := &Lab{cfg: cfg, clock: cfg.Clock, tokens: map[string]string{}}
	l.product = pve{l}
	l.checks = newChecker(api)
	ops := append([]*facts.Operation{rootOperation()}, api.Operations...)
	l.ops = newRouter(ops)
	l.serve = pveHandlers(ops)
	rel, known := releaseOf(cfg.Version)
	if !known {
		return nil, fmt.Errorf("build lab version %q: %w", cfg.Version, ErrVersion)
	}
	l.s = newState(cfg.Clock(), cfg.Delays, rel)
	l.s.api, l.s.agentSocket = l.checks, cfg.Agent
	switch cfg.Site {
	case "small":
		l.tokens = smallSite(l.s)
	case "rig":
		l.tokens = rigSite(l.s)
	case "2000":
		l.tokens = bigSite(l.s, 20, 2000)
	case "10000":
		l.tokens = bigSite(l.s, 100, 10000)
	default:
		return nil, fmt.Errorf("build lab site %q: %w", cfg.Site, ErrSite)
	}
	l.s.publishAll()
	for _, i := range cfg.Ill {
		if err := l.SetIll(i); err != nil {
			return nil, fmt.Errorf("build lab: %w", err)
		}
	}
	if l.cert, err = newCertificate(l.s.api0().name); err != nil {
		return nil, fmt.Errorf("build lab: %w", err)
	}
	l.SetFaults(cfg.Faults)
	return l, nil
}

// Tokens maps the names of the site's tokens to whole Authorization header values.
func (l *Lab) Tokens() map[string]string {
	out := make(map[string]string, len(l.tokens))
	for k, v := range l.tokens {
		out[k] = v
	}
	return out
}

// Fingerprint is the SHA-256 of the served certificate as upper-case hex pairs with colons.
func (l *Lab) Fingerprint() string { return l.cert.fingerprint }

// CAPEM is the throw-away authority that issued the certificate, in PEM.
func (l *Lab) CAPEM() []byte { return l.cert.caPEM }

// Info describes the lab served at the address host:port.
func (l *Lab) Info(addr string) Info {
	return Info{URL: "https://" + addr, Fingerprint: l.Fingerprint(), Tokens: l.Tokens()}
}

// Requests returns the log of all requests since the start or the last ResetRequests (the newest 10,000).
func (l *Lab) Requests() []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Request(nil), l.log...)
}

// ResetRequests empties the log.
func (l *Lab) ResetRequests() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = nil
}

const maxLog = 10000

func (l *Lab) record(r Request) {
	if len(l.log) >= maxLog {
		l.log = append(l.log[:0], l.log[maxLog/2:]...)
	}
	l.log = append(l.log, r)
}

// Advance moves the lab's clock forward and lets everything happen that is due by then.
func (l *Lab) Advance(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.offset += d
	l.s.run(l.clock().Add(l.offset))
}

// Drain lets all that is under way (tasks, HA rounds, published figures) come to its end at once.
func (l *Lab) Drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.s.drain()
}

// NodeState says how a node behaves.
type NodeState int

// The states of a node.
const (
	NodeOn           NodeState = iota
	NodeOff                    // 595 No route to host; its guests are unknown
	NodeNoDaemon               // a cluster member that refuses API connections: 595 Connection refused
	NodeHanging                // takes connections and never answers: 596 after 30 s
	NodeBackendDown            // pveproxy answers, pvedaemon does not run: protected calls are 595
	NodeBackendHangs           // pvedaemon hangs: protected calls are 596 after 30 s and carried out later
)

// SetNode switches a node; an unknown name is an error.
func (l *Lab) SetNode(name string, st NodeState) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.s.node(name)
	if n == nil {
		return fmt.Errorf("set node: no node %q", name)
	}
	n.state = st
	l.s.resumeBackend(n)
	l.s.publishAll()
	return nil
}

// SetStorageDead makes every look at a storage hang as a dead NFS export does (or ends that).
func (l *Lab) SetStorageDead(name string, dead bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := l.s.storages[name]
	if st == nil {
		return fmt.Errorf("set storage: no storage %q", name)
	}
	st.dead = dead
	l.s.publishAll()
	return nil
}

// SetQuorum takes the cluster's quorum away or gives it back.
func (l *Lab) SetQuorum(ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.s.noQuorum = !ok
}
