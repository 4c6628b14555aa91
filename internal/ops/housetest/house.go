// Package housetest opens a whole castellan in front of a simulated site, for the tests of what works behind the gate.
package housetest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"castellan/internal/catalog"
	"castellan/internal/catalog/facts"
	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/policy"
	"castellan/internal/proxmox"
	"castellan/internal/seal"
	"castellan/internal/store"
)

// Config says what differs from test to test.
type Config struct {
	Site    string                               // of the lab; "" = small
	Token   string                               // of the site, with which castellan comes; "" = admin
	Clock   func() time.Time                     // the site's own; nil = the real one
	Delays  bool                                 // tasks of the site take their time
	Policy  *policy.Settings                     // nil = every capability, a phrase in place of persons
	Rules   func(gate.Policy) gate.Policy        // put around the policy, where given
	Through func(gate.Driver) gate.Driver        // put between the gate and the site, where given
	Gate    func(h *House, c *gate.Config) error // completes the gate: operations, keeper, walker
	Lab     func(*lab.Config)                    // changes the site, where given
	Sink    proxmox.Sink                         // takes what is downloaded, where given
}

// House is a whole castellan with its site.
type House struct {
	Lab     *lab.Lab
	Gate    *gate.Gate
	Client  *proxmox.Client
	Catalog *catalog.Catalog
	Estate  *estate.Estate
	Who     gate.Principal // who asks
}

// Open starts the site and the gate; both end with the test.
func Open(t testing.TB, c Config) *House {
	t.Helper()
	if c.Site == "" {
		c.Site = "small"
	}
	if c.Token == "" {
		c.Token = "admin"
	}
	site := lab.Config{Site: c.Site, Facts: facts.Open(), Clock: c.Clock, Delays: c.Delays}
	if c.Lab != nil {
		c.Lab(&site)
	}
	l, err := lab.New(site)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served, ran := make(chan struct{}), make(chan struct{})
	go func() { defer close(served); _ = l.Serve(ctx, listener) }() // ends with the test
	cat, err := catalog.New(catalog.Config{Facts: facts.Open()})
	if err != nil {
		t.Fatal(err)
	}
	_, secret, ok := strings.Cut(l.Tokens()[c.Token], "PVEAPIToken=")
	if !ok {
		t.Fatalf("site %s has no token %s", c.Site, c.Token)
	}
	client, err := proxmox.New(proxmox.Config{Settings: proxmox.Settings{Targets: []proxmox.Target{{Name: "lab", Kind: "pve", Addresses: []string{listener.Addr().String()},
		TokenFile: "token", Pins: []string{l.Fingerprint()}}}}, Catalog: cat.Guide(), Secrets: func(string) (seal.Secret, error) { return seal.NewSecret([]byte(secret)), nil }, Sink: c.Sink})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(ctx, store.Config{URL: filepath.Join(dir, "state", "castellan.db"), Signer: key})
	if err != nil {
		t.Fatal(err)
	}
	if c.Policy == nil {
		c.Policy = &policy.Settings{Capabilities: gate.Capabilities(), StandIn: "phrase"}
	}
	p, err := policy.New(policy.Config{Settings: *c.Policy, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	h := &House{Lab: l, Client: client, Catalog: cat, Estate: estate.New(), Who: gate.Principal{Agent: "test", Person: "ann", WayIn: "test", Strength: gate.StrengthAccount}}
	config := gate.Config{Catalog: cat.Guide(), Driver: client, Policy: p, Store: st, Estate: h.Estate, Sealer: Sealer{}, PollFirst: 20 * time.Millisecond}
	if c.Rules != nil {
		config.Policy = c.Rules(p)
	}
	if c.Through != nil {
		config.Driver = c.Through(client)
	}
	if err := c.Gate(h, &config); err != nil {
		t.Fatal(err)
	}
	if h.Gate, err = gate.New(config); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(ran); _ = h.Gate.Run(ctx) }() // ends with the test
	h.Gate.AwaitRunning()
	t.Cleanup(func() {
		cancel()
		<-ran
		_ = listener.Close() // Serve may have closed it
		<-served
		client.Close()
		_ = st.Close() // the folder goes with the test
	})
	return h
}

// Do calls an operation; args is JSON, or what is to be written as JSON.
func (h *House) Do(ctx context.Context, operation string, args any) (*gate.Outcome, error) {
	return h.Gate.Do(ctx, gate.Call{Operation: operation, Args: raw(args), Principal: h.Who}, nil)
}

// Plan calls an operation for its plan alone.
func (h *House) Plan(ctx context.Context, operation string, args any) (*gate.Outcome, error) {
	return h.Gate.Do(ctx, gate.Call{Operation: operation, Args: raw(args), Principal: h.Who, PlanOnly: true}, nil)
}

// Apply carries a plan out, as its answer says.
func (h *House) Apply(ctx context.Context, v *gate.PlanView) (*gate.Outcome, error) {
	args := map[string]string{"plan": v.ID, "sentence": v.Sentence, "token": v.Token}
	if v.Rung == gate.RungPhrase {
		args["phrase"] = v.Phrase
	}
	return h.Do(ctx, "apply_plan", args)
}

// Run calls and, where the plan waits, applies it.
func (h *House) Run(ctx context.Context, operation string, args any) (*gate.Outcome, error) {
	out, err := h.Do(ctx, operation, args)
	if err != nil || out.Status != gate.StatusWaiting {
		return out, err
	}
	return h.Apply(ctx, out.Plan)
}

// Behind is what somebody else does at the same site, past castellan: a request with form values. Its tasks have ended when
// it returns.
func (h *House) Behind(ctx context.Context, method, path string, form url.Values) (json.RawMessage, error) {
	answer, err := h.Begin(ctx, method, path, form)
	h.Lab.Drain()
	return answer, err
}

// Begin does the same, and waits for no task.
func (h *House) Begin(ctx context.Context, method, path string, form url.Values) (json.RawMessage, error) {
	header := http.Header{"Authorization": {h.Lab.Tokens()["admin"]}, "Content-Type": {"application/x-www-form-urlencoded"}}
	var body []byte
	if method == "POST" || method == "PUT" {
		body = []byte(form.Encode())
	} else if len(form) > 0 {
		path += "?" + form.Encode()
	}
	status, reason, answer := h.Lab.Do(ctx, method, "/api2/json"+path, header, body)
	if status != http.StatusOK {
		return nil, fmt.Errorf("%s %s by somebody else: %d %s %s", method, path, status, reason, answer)
	}
	return answer, nil
}

// Sent lists the writes that the site got, as method and path.
func (h *House) Sent() (out []string) {
	for _, r := range h.Lab.Requests() {
		if r.Method != "GET" {
			path, _, _ := strings.Cut(r.Path, "?")
			out = append(out, r.Method+" "+strings.TrimPrefix(path, "/api2/json"))
		}
	}
	return out
}

// Text writes a value as JSON.
func Text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func raw(args any) json.RawMessage {
	if text, ok := args.(string); ok {
		return json.RawMessage(text)
	}
	return json.RawMessage(Text(args))
}

// Sealer keeps values in boxes that open only for their context. It hides nothing.
type Sealer struct{}

// Seal puts a value into a box.
func (Sealer) Seal(plain []byte, context string) ([]byte, error) {
	return []byte(context + "\x00" + string(plain)), nil
}

// Open opens a box that was made for this context.
func (Sealer) Open(box []byte, context string) ([]byte, error) {
	plain, ok := strings.CutPrefix(string(box), context+"\x00")
	if !ok {
		return nil, errors.New("open box: it belongs elsewhere")
	}
	return []byte(plain), nil
}

// Commit is a commitment to a value, with its salt.
func (s Sealer) Commit(plain []byte) (string, []byte) {
	return s.HashToken("salt" + string(plain)), []byte("salt")
}

// Token is a fresh token and its hash.
func (s Sealer) Token() (string, string) {
	token := rand.Text()
	return token, s.HashToken(token)
}

// HashToken is the hash under which a token is kept.
func (Sealer) HashToken(t string) string {
	sum := sha256.Sum256([]byte(t))
	return hex.EncodeToString(sum[:])
}

// Redact changes nothing.
func (Sealer) Redact(text string) string { return text }
