package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/catalog/facts"
	"castellan/internal/lab"
	"castellan/internal/seal"
)

// patience is how long a test waits for an answer on a loaded machine.
const patience = 60 * time.Second

// site is a simulated site that the test itself can look into, with a configuration for it.
type site struct {
	lab    *lab.Lab
	dir    string
	config string
}

// newSite serves a lab and writes a configuration with this [policy] text.
func newSite(t testing.TB, c lab.Config, policy string) *site {
	t.Helper()
	c.Facts = facts.Open()
	l, err := lab.New(c)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Serve(ctx, listener) // ends with the test
	}()
	t.Cleanup(func() {
		stop()
		_ = listener.Close()
		<-done
	})
	s := &site{lab: l, dir: t.TempDir()}
	s.config = filepath.Join(s.dir, "castellan.toml")
	_, token, _ := strings.Cut(l.Tokens()["admin"], "PVEAPIToken=")
	if err := seal.Create(filepath.Join(s.dir, "token"), []byte(token+"\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.CreateKeys(filepath.Join(s.dir, "keys")); err != nil {
		t.Fatal(err)
	}
	s.write(t, fmt.Sprintf("[store]\nurl = %q\n\n[[target]]\nname = \"lab\"\nkind = \"pve\"\naddresses = [%q]\ntoken_file = %q\npins = [%q]\n\n[policy]\n%s\n",
		filepath.Join(s.dir, "state", "castellan.db"), listener.Addr().String(), filepath.Join(s.dir, "token"), l.Fingerprint(), policy))
	return s
}

func (s *site) write(t testing.TB, text string) {
	t.Helper()
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *site) text(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (s *site) env() []string { return []string{"CASTELLAN_CONFIG=" + s.config} }

// asked counts the requests of the API that begin with this method and contain this part of a path.
func (s *site) asked(method, part string) int {
	n := 0
	for _, r := range s.lab.Requests() {
		if (method == "" || r.Method == method) && strings.Contains(r.Path, part) {
			n++
		}
	}
	return n
}

// command is castellan as a process of its own: this test binary run again.
func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(append(os.Environ(), asProgram+"=1"), env...)
	return cmd
}

// castellan runs to its end with this input.
func castellan(t *testing.T, env []string, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := command(t, env, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(2*patience, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait() // the exit code says it
	kill.Stop()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// raw is a session over stdio with nothing between the test and the wire.
type raw struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	errs  *lockedBuffer
	seen  []string
	id    int
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func startRaw(t *testing.T, env []string, args ...string) *raw {
	t.Helper()
	r := &raw{t: t, cmd: command(t, env, args...), lines: make(chan string, 10000), errs: &lockedBuffer{}}
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.cmd.Stderr = r.errs
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.lines)
		s := bufio.NewScanner(out)
		s.Buffer(nil, 64<<20)
		for s.Scan() {
			r.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = r.in.Close()
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
		if t.Failed() {
			t.Logf("stderr: %s", r.errs)
		}
	})
	return r
}

func (r *raw) send(line string) {
	r.t.Helper()
	if _, err := io.WriteString(r.in, line+"\n"); err != nil {
		r.t.Fatalf("send: %v; stderr: %s", err, r.errs)
	}
}

// message is any JSON-RPC message as it came.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

// next reads one line of stdout, which must be protocol.
func (r *raw) next() message {
	r.t.Helper()
	select {
	case line, ok := <-r.lines:
		if !ok {
			r.t.Fatalf("stdout ended; stderr: %s", r.errs)
		}
		r.seen = append(r.seen, line)
		var m message
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.Version != "2.0" {
			r.t.Fatalf("stdout carries what is no protocol: %q", line)
		}
		return m
	case <-time.After(patience):
		r.t.Fatalf("no answer in %v; stderr: %s", patience, r.errs)
	}
	return message{}
}

// ask sends a request and returns its answer; notifications in between are kept in seen.
func (r *raw) ask(method string, params any) message {
	r.t.Helper()
	r.id++
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": r.id, "method": method, "params": params})
	if err != nil {
		r.t.Fatal(err)
	}
	r.send(string(b))
	for {
		if m := r.next(); m.Method == "" {
			if string(m.ID) != fmt.Sprint(r.id) {
				r.t.Fatalf("the answer has id %s, not %d", m.ID, r.id)
			}
			return m
		}
	}
}

func (r *raw) initialize(version string) message {
	r.t.Helper()
	m := r.ask("initialize", map[string]any{"protocolVersion": version, "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "raw", "version": "1"}})
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return m
}

// answer is the result of a tools/call.
type answer struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	Structured struct {
		Status  string          `json:"status"`
		Answer  json.RawMessage `json:"answer"`
		Plan    *planSeen       `json:"plan"`
		Receipt *struct {
			Plan  string `json:"plan"`
			State string `json:"state"`
		} `json:"receipt"`
		Next    string   `json:"next"`
		Notices []string `json:"notices"`
		Error   *struct {
			Kind    string `json:"kind"`
			Message string `json:"message"`
			Changed string `json:"changed"`
			Hint    string `json:"hint"`
			Hits    []json.RawMessage
		} `json:"error"`
	} `json:"structuredContent"`
	IsError    bool   `json:"isError"`
	ResultType string `json:"resultType"`
}

type planSeen struct {
	ID       string `json:"id"`
	State    string `json:"state"`
	Sentence string `json:"sentence"`
	Token    string `json:"token"`
	Phrase   string `json:"phrase"`
	Approval string `json:"approval"`
	Reason   string `json:"reason"`
}

func (r *raw) call(tool string, args any) answer {
	r.t.Helper()
	return r.result(r.ask("tools/call", map[string]any{"name": tool, "arguments": args}))
}

func (r *raw) result(m message) answer {
	r.t.Helper()
	if m.Error != nil {
		r.t.Fatalf("a protocol error %d: %s", m.Error.Code, m.Error.Message)
	}
	var a answer
	if err := json.Unmarshal(m.Result, &a); err != nil {
		r.t.Fatalf("read answer: %v: %.300s", err, m.Result)
	}
	if len(a.Content) == 0 {
		r.t.Fatalf("the answer has no content: %.300s", m.Result)
	}
	return a
}

// end closes stdin; the process must be gone within two seconds, and may say no more than protocol.
func (r *raw) end() (code int) {
	r.t.Helper()
	began := time.Now()
	if err := r.in.Close(); err != nil {
		r.t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		for line := range r.lines {
			r.seen = append(r.seen, line)
		}
		_ = r.cmd.Wait()
		close(gone)
	}()
	select {
	case <-gone:
	case <-time.After(patience):
		r.t.Fatal("the process stays after the end of stdin")
	}
	if took := time.Since(began); took > 2*time.Second {
		r.t.Errorf("the process needed %v to end", took)
	}
	for _, line := range r.seen {
		if !json.Valid([]byte(line)) || !strings.Contains(line, `"jsonrpc":"2.0"`) {
			r.t.Errorf("stdout carries what is no protocol: %q", line)
		}
	}
	return r.cmd.ProcessState.ExitCode()
}

// ask asks the site itself, past castellan.
func (s *site) ask(t *testing.T, token, method, path, form string) (int, json.RawMessage) {
	t.Helper()
	target, body := "/api2/json"+path, []byte(form)
	h := http.Header{"Authorization": {"PVEAPIToken=" + strings.TrimPrefix(token, "PVEAPIToken=")}}
	if method == "GET" {
		target, body = target+"?"+form, nil
	} else {
		h.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	status, _, answer := s.lab.Do(context.Background(), method, target, h, body)
	var data struct{ Data json.RawMessage }
	_ = json.Unmarshal(answer, &data)
	return status, data.Data
}

func (s *site) address(t *testing.T) string {
	t.Helper()
	return regexp.MustCompile(`addresses = \["([^"]*)"`).FindStringSubmatch(s.text(t))[1]
}

func (s *site) writes() (n int) {
	for _, r := range s.lab.Requests() {
		if r.Method != "GET" && r.Path != "/access/ticket" {
			n++
		}
	}
	return n
}

const labRoot = "labroot123"
