package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"castellan/internal/lab"
)

// TestConformanceOfTheDaemon: the suite against the real program, with the front and all that it mounts; and the flag is
// refused where there is something to reach.
func TestConformanceOfTheDaemon(t *testing.T) {
	if testing.Short() {
		t.Skip("starts programs")
	}
	nodeHome(t)
	g := newGround(t, lab.Config{})
	k := &keep{ground: g, address: freeAddress(t), socket: filepath.Join(g.dir, "s")}
	refused := g.program("", "daemon", "--conformance-fixtures")
	if out, err := within(refused, 30*time.Second); err == nil || !strings.Contains(out, "fixtures") {
		t.Errorf("served beside a target: %v %s", err, out)
	}
	for listen, says := range map[string]string{"0.0.0.0:0": "", `"off"`: ""} {
		g.write("castellan.toml", fmt.Sprintf("[store]\nurl = %q\n[daemon]\nlisten = [%q]\nsocket = \"off\"\n", filepath.Join(g.dir, "state", "c.db"), strings.Trim(listen, `"`)))
		if out, err := within(g.program("", "daemon", "--conformance-fixtures"), 30*time.Second); err == nil || !strings.Contains(out, says) {
			t.Errorf("served on %s: %v %s", listen, err, out)
		}
	}
	g.write("castellan.toml", fmt.Sprintf("[store]\nurl = %q\n[daemon]\nlisten = [%q]\nsocket = \"off\"\n", filepath.Join(g.dir, "state", "c.db"), k.address))
	k.command = func(...string) *exec.Cmd { return g.program("", "daemon", "--conformance-fixtures") }
	k.start()
	out, err := suite(t, "0.2.0-alpha.12", "server", "--url", "http://"+k.address+"/mcp", "--requirements", "2026-07-28")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	got := summary(t, out)
	if len(got) < 50 {
		t.Errorf("%d scenarios were run:\n%s", len(got), out)
	}
	for name, v := range got {
		if !v.good || v.failed > 0 {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// within runs a program that should end by itself, and gives what it printed.
func within(cmd *exec.Cmd, limit time.Duration) (string, error) {
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	out, err := cmd.CombinedOutput()
	return string(out), err
}
