//go:build linux

package lane

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// carry runs a probe as whoever has no other way to pass an environment on would, taking alternatives as they fall due.
func carry(t *testing.T, i Invocation, search string) (out string, answered bool) {
	t.Helper()
	for _, try := range slices.Concat([]Invocation{i}, i.Alternatives) {
		try.Env = slices.Clone(try.Env)
		for n, e := range try.Env {
			if strings.HasPrefix(e, "PATH=") {
				try.Env[n] = "PATH=" + search
			}
		}
		argv := try.Enveloped()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, argv[0], argv[1:]...)
		c.Stdin = bytes.NewReader(try.Input)
		b, err := c.Output()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if code := c.ProcessState.ExitCode(); !try.Unfit(code, len(b) > 0) {
			return string(b), try.Whole(code) || len(b) > 0 && try.Answered(code)
		}
	}
	return "", false
}

// What every Linux has is asked for real: with its own tools, and with those of busybox alone.
func TestProbesAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts programs")
	}
	searches := map[string]string{"tools": Search}
	if box, err := exec.LookPath("busybox"); err == nil {
		dir := t.TempDir()
		list, err := exec.Command(box, "--list").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, applet := range strings.Fields(string(list)) {
			if err := os.Symlink(box, filepath.Join(dir, applet)); err != nil {
				t.Fatal(err)
			}
		}
		searches["busybox"] = dir
	}
	small := t.TempDir()
	for by, search := range searches {
		for name, args := range map[string]map[string]string{"memory": nil, "load": nil, "boot": nil, "mounts": nil, "disk": nil, "inodes": {"remote": "yes"}, "processes": {"by": "memory"}, "process": {"pid": "1"}, "os_release": nil, "disk_top": {"path": small, "min": "1"}, "big_files": {"path": small},
			"ports": nil, "connections": nil, "addresses": nil, "links": nil, "routes": {"family": "6"}, "resolver": nil, "block_devices": nil, "swap": nil, "logins": nil, "reboot_required": nil, "cron_jobs": nil, "log_files": nil, "sockets": nil, "neighbours": nil} {
			p, _ := Find(name)
			i, err := p.Command(args)
			if err != nil {
				t.Fatal(err)
			}
			if missing := !slices.ContainsFunc(append([]Invocation{i}, i.Alternatives...), func(i Invocation) bool {
				return slices.ContainsFunc(strings.Split(search, ":"), func(dir string) bool {
					_, err := os.Stat(filepath.Join(dir, i.Argv[0]))
					return err == nil
				})
			}); missing {
				t.Logf("%s: nothing of %s is here", name, by)
				continue
			}
			if out, ok := carry(t, i, search); !ok {
				t.Errorf("%s with %s gives no answer: %.200s", name, by, out)
			}
		}
	}
}
