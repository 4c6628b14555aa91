package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"castellan/internal/lab"
)

// keep is a ground with a daemon on it.
type keep struct {
	*ground
	address, socket string
	daemon          *exec.Cmd
	log             *lockedBuffer
	command         func(args ...string) *exec.Cmd // another way to start it
}

// daemonOn appends [daemon] to the configuration and starts the real program.
func daemonOn(t *testing.T, c lab.Config, more string) *keep {
	t.Helper()
	g := newGround(t, c)
	dir, err := os.MkdirTemp("", "castle") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	k := &keep{ground: g, socket: filepath.Join(dir, "s")}
	old, err := os.ReadFile(g.config)
	if err != nil {
		t.Fatal(err)
	}
	k.address = freeAddress(t)
	g.write("castellan.toml", fmt.Sprintf("%s\n[daemon]\nlisten = [%q]\nsocket = %q\n%s\n", old, k.address, k.socket, more))
	k.start()
	return k
}

func (k *keep) start() {
	k.t.Helper()
	if k.command == nil {
		k.command = func(args ...string) *exec.Cmd { return k.program("", args...) }
	}
	k.daemon = k.command("daemon")
	k.log = &lockedBuffer{}
	k.daemon.Stderr = k.log
	if err := k.daemon.Start(); err != nil {
		k.t.Fatal(err)
	}
	ended := make(chan struct{})
	cmd := k.daemon
	go func() { defer close(ended); _ = cmd.Wait() }()
	k.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
			k.t.Error("the daemon did not end")
		}
		if k.t.Failed() {
			k.t.Logf("daemon: %s", k.log.String())
		}
	})
	for range 400 {
		if strings.Contains(k.log.String(), "msg=approvals") {
			return
		}
		select {
		case <-ended:
			k.t.Fatalf("the daemon ended: %s", k.log.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	k.t.Fatalf("the daemon did not begin: %s", k.log.String())
}

// freeAddress is one on loopback that nobody listens on now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (k *keep) get(path string) (int, string) {
	k.t.Helper()
	r, err := http.Get("http://" + k.address + path)
	if err != nil {
		k.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		k.t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func TestDaemonAnswersOnBothSides(t *testing.T) {
	if testing.Short() {
		t.Skip("starts programs")
	}
	k := daemonOn(t, lab.Config{}, "")
	if code, body := k.get("/healthz"); code != 200 || !strings.Contains(body, "ok") {
		t.Errorf("/healthz: %d %s", code, body)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		code, body := k.get("/readyz")
		if code == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("/readyz: %d %s", code, body)
		}
		time.Sleep(50 * time.Millisecond)
	}
	_, body := k.get("/health")
	var h struct {
		Status     string
		Configured bool
		Ledger     struct{ Verified string }
		Separate   struct {
			OK      bool
			Highest string   `json:"highest_approval"`
			Why     []string `json:"why_not"`
		}
	}
	if err := json.Unmarshal([]byte(body), &h); err != nil || !h.Configured || h.Ledger.Verified != "yes" || h.Separate.OK || h.Separate.Highest != "dialog" || len(h.Separate.Why) != 1 {
		t.Errorf("/health: %s %v", body, err)
	}
	for _, secret := range []string{k.dir, k.socket, "lab", "127.0.0.1"} {
		if strings.Contains(body, secret) {
			t.Errorf("/health tells %q: %s", secret, body)
		}
	}
	if code, body := k.get("/metrics"); code != 200 || !strings.Contains(body, "castellan_ledger_verified 1") {
		t.Errorf("/metrics: %d %s", code, body)
	}
	if code, body := k.get("/mcp"); code != 401 || body == "" {
		t.Errorf("/mcp without a token: %d %s", code, body)
	}
	_, port, _ := net.SplitHostPort(k.address)
	if code, body := k.get("/.well-known/oauth-protected-resource/mcp"); code != 200 || !strings.Contains(body, "http://localhost:"+port+"/mcp") {
		t.Errorf("metadata: %d %s", code, body)
	}
	if code, body := k.get("/nothing"); code != 404 || !strings.Contains(body, `"error"`) {
		t.Errorf("/nothing: %d %s", code, body)
	}
	cmd := k.program("", "call", "list_guests", "--json")
	cmd.Env = append(cmd.Env, "CASTELLAN_SOCKET="+k.socket, "CASTELLAN_CONFIG=/nonexistent")
	out, err := cmd.Output()
	if err != nil || !bytes.Contains(out, []byte(`"answer"`)) {
		t.Errorf("list_guests over the socket: %s %v", out, err)
	}
}
