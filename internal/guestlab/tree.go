//go:build linux

package guestlab

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

//go:embed tree.sh archives.sh families.sh
var treeScripts embed.FS

// treeLimit is how long the making of a tree may take, and the waiting for another process that makes it.
const treeLimit = 15 * time.Minute

// cacheFolder is where trees are kept from one run to the next.
func cacheFolder() (string, error) {
	dir := os.Getenv(envCache)
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			base = os.TempDir()
		}
		dir = filepath.Join(base, "castellan-guestlab")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the folder of trees: %w", err)
	}
	return filepath.Abs(dir)
}

// serveTrees makes trees for the lab, which has no network to fetch packages from: a name a line on the socket of its folder,
// answered by "+FOLDER" or "-why not".
func serveTrees(ctx context.Context, dir, cache string) error {
	l, err := net.Listen("unix", filepath.Join(dir, "trees"))
	if err != nil {
		return fmt.Errorf("serve trees: %w", err)
	}
	context.AfterFunc(ctx, func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				name, err := bufio.NewReader(io.LimitReader(c, 100)).ReadString('\n')
				if err != nil {
					return
				}
				tree, err := makeTree(ctx, cache, strings.TrimSpace(name))
				if err != nil {
					fmt.Fprintf(c, "-%s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
					return
				}
				fmt.Fprintf(c, "+%s\n", tree)
			}()
		}
	}()
	return nil
}

// makeTree returns the folder of a tree.
func makeTree(ctx context.Context, cache, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, treeLimit)
	defer cancel()
	scripts, err := os.MkdirTemp("", "guestlab-trees.")
	if err != nil {
		return "", fmt.Errorf("make tree %s: %w", name, err)
	}
	defer os.RemoveAll(scripts)
	if err := os.CopyFS(scripts, treeScripts); err != nil {
		return "", fmt.Errorf("make tree %s: %w", name, err)
	}
	cmd := exec.CommandContext(ctx, "bash", filepath.Join(scripts, "tree.sh"), cache, name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("make tree %s: %w: %s", name, err, tail(stderr.Bytes(), 2000))
	}
	return strings.TrimSpace(string(out)), nil
}

// askTree is the lab's side of serveTrees.
func askTree(dir, name string) (string, error) {
	c, err := net.DialTimeout("unix", filepath.Join(dir, "trees"), 5*time.Second)
	if err != nil {
		return "", fmt.Errorf("ask for tree %s: %w", name, err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(treeLimit + time.Minute)); err != nil {
		return "", fmt.Errorf("ask for tree %s: %w", name, err)
	}
	fmt.Fprintln(c, name) // a lost line shows as no answer
	answer, err := bufio.NewReader(io.LimitReader(c, 8192)).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("ask for tree %s: %w", name, err)
	}
	text := strings.TrimSpace(answer[1:])
	if answer[0] != '+' {
		return "", errors.New(text)
	}
	return text, nil
}

// tail is the end of what a program printed.
func tail(b []byte, most int) string {
	return strings.TrimSpace(string(b[max(0, len(b)-most):]))
}
