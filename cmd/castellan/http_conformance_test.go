package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"castellan/internal/lab"
	"castellan/internal/mcpserver"
	"castellan/internal/mcpserver/fixtures"
)

// suite runs the conformance suite of a version with these arguments, and gives what it printed.
func suite(t *testing.T, version string, args ...string) (string, error) {
	t.Helper()
	home, node := nodeHome(t)
	program := filepath.Join(home, "conformance-"+version, "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")
	if _, err := os.Stat(program); err != nil {
		t.Skipf("there is no conformance suite %s in CASTELLAN_NODE_DIR: %v", version, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, append([]string{program}, args...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+cmd.Dir, "NO_COLOR=1")
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// scored is one line of a run's summary: scenario → checks passed and failed, and whether the suite takes it for good.
type scored struct {
	good           bool
	passed, failed int
}

var summaryLine = regexp.MustCompile(`(?m)^(\S) ([a-z0-9-]+): (\d+) passed, (\d+) failed`)

func summary(t *testing.T, out string) map[string]scored {
	t.Helper()
	got := map[string]scored{}
	for _, m := range summaryLine.FindAllStringSubmatch(out, -1) {
		passed, perr := strconv.Atoi(m[3])
		failed, ferr := strconv.Atoi(m[4])
		if perr != nil || ferr != nil {
			t.Fatalf("summary line %q", m[0])
		}
		got[m[2]] = scored{m[1] == "✓", passed, failed}
	}
	return got
}

// TestConformance: the official suite, with nothing on its list of expected failures, against the fixtures that the same
// server serves.
func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Node")
	}
	nodeHome(t)
	w := newWeb(t, emptyHouse(t), func(c *mcpserver.HTTPConfig) {
		if err := fixtures.Add(c, "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	})
	for _, c := range []struct {
		version string
		args    []string
		least   int      // scenarios that the suite runs
		hollow  []string // that check nothing, or only warn, of any server
	}{
		{"0.1.16", []string{"--suite", "all"}, 32, []string{"server-sse-polling"}},
		{"0.2.0-alpha.12", []string{"--requirements", "2025-11-25"}, 33, nil},
		{"0.2.0-alpha.12", []string{"--requirements", "2026-07-28"}, 50, []string{"tasks-status-notifications"}},
	} {
		t.Run(c.version+strings.Join(c.args, " "), func(t *testing.T) {
			out, err := suite(t, c.version, append([]string{"server", "--url", w.url}, c.args...)...)
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			got := summary(t, out)
			if len(got) < c.least {
				t.Errorf("%d scenarios were run, not %d:\n%s", len(got), c.least, out)
			}
			for name, v := range got {
				if !v.good || v.failed > 0 || v.passed == 0 && !slices.Contains(c.hollow, name) {
					t.Errorf("%s: %+v", name, v)
				}
			}
		})
	}
}

// TestConformanceOfTheRealServer: what the suite can ask of any server, of one that serves a site.
func TestConformanceOfTheRealServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Node")
	}
	nodeHome(t)
	w := newWeb(t, siteHouse(t, newSite(t, lab.Config{}, all())), nil)
	for _, c := range []struct {
		spec      string
		scenarios []string
	}{
		{"2025-11-25", []string{"server-initialize", "ping", "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection", "server-session-lifecycle"}},
		{"2026-07-28", []string{"tools-list", "dns-rebinding-protection", "http-header-validation", "input-required-result-unsupported-methods"}},
	} {
		for _, name := range c.scenarios {
			t.Run(c.spec+" "+name, func(t *testing.T) {
				out, err := suite(t, "0.2.0-alpha.12", "server", "--url", w.url, "--scenario", name, "--spec-version", c.spec)
				if err != nil || strings.Contains(out, "FAILURE") || !strings.Contains(out, "SUCCESS") {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}
