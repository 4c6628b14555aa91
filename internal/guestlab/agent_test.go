//go:build linux

package guestlab

import (
	"context"
	"encoding/base64"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestAgent(t *testing.T) {
	t.Parallel()
	lab := Open(t)
	c := lab.Start(t, Guest{Unprivileged: true})
	a := lab.Agent(t, c)
	var started struct{ PID int }
	if err := a.Call(t.Context(), "guest-exec", map[string]any{"path": "/bin/sh", "arg": []string{"-c", `printf 'a\000\377'; exit 5`}, "capture-output": true}, &started); err != nil {
		t.Fatal(err)
	}
	var status struct {
		Exited   bool
		ExitCode int
		Out      string `json:"out-data"`
	}
	for end := time.Now().Add(10 * time.Second); !status.Exited && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err := a.Call(t.Context(), "guest-exec-status", map[string]any{"pid": started.PID}, &status); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := base64.StdEncoding.DecodeString(status.Out); err != nil || string(out) != "a\x00\xff" || status.ExitCode != 5 {
		t.Errorf("exec: %+v", status)
	}
	if err := a.Call(t.Context(), "guest-exec-status", map[string]any{"pid": 4_000_000}, nil); err == nil {
		t.Error("a pid that it never started has a status")
	}
	if err := a.Call(t.Context(), "guest-no-such", nil, nil); err == nil || !strings.Contains(err.Error(), "guest-no-such") {
		t.Errorf("an unknown command: %v", err)
	}

	qm := func(want string, args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "qm", args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("qm %v: %v %q, want %q", args, err, out, want)
		}
	}
	id := c.Name[2:]
	qm(`"exitcode" : 3`, "guest", "exec", id, "--", "sh", "-c", "exit 3")
	qm(`"out-data" : "a b|$x;"`, "guest", "exec", id, "--", "printf", "%s|%s", "a b", "$x;")
	qm(`"signal" : 9`, "guest", "exec", id, "--", "sh", "-c", "kill -9 $$")
	qm(`"pid" : `, "guest", "exec", id, "--timeout", "1", "--", "sleep", "30")
	qm("uuid="+a.UUID, "config", id)
	qm("", "guest", "cmd", id, "ping")
	if out, err := exec.CommandContext(t.Context(), "pct", "status", id).CombinedOutput(); err == nil {
		t.Errorf("a VM is a container too: %s", out)
	}

	a.Stop(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := a.Call(ctx, "guest-ping", nil, nil); err == nil {
		t.Error("a stopped agent answers")
	}
	a.Restart(t)
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := a.Call(t.Context(), "guest-ping", nil, nil)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if err := a.Call(t.Context(), "guest-exec-status", map[string]any{"pid": started.PID}, nil); err == nil {
		t.Error("an agent that was restarted knows the programs of before")
	}
}
