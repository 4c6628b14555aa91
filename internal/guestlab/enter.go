//go:build linux

package guestlab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed enter.sh
var enterScript string

// Node is the name of the lab's node.
const Node = "pve1"

// The environment through which Main tells the binary that it starts where things are.
const (
	envDir   = "GUESTLAB_DIR"   // the lab's folder; set inside only
	envLacks = "GUESTLAB_LACKS" // why there is no lab
	envCache = "GUESTLAB_CACHE" // folder of trees
	envNode  = "GUESTLAB_NODE"
)

// Main runs the tests in namespaces of their own where it can, and returns the exit code of them.
func Main(m *testing.M) int {
	if os.Getenv(envDir) != "" {
		if err := prepareNode(os.Getenv(envDir)); err != nil {
			fmt.Fprintf(os.Stderr, "guestlab: %v\n", err)
			return 1
		}
		return m.Run()
	}
	lacks := lacking()
	if lacks == "" {
		code, err := enter(os.Args[1:])
		if err == nil {
			return code
		}
		lacks = err.Error()
	}
	os.Setenv(envLacks, lacks)
	return m.Run()
}

// lacking says what a lab needs and this machine has not.
func lacking() string {
	if os.Geteuid() != 0 {
		return "it takes root"
	}
	var missing []string
	for _, tool := range []string{"unshare", "ip", "hostname", "lxc-start", "lxc-attach", "sshd", "mmdebstrap"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	if missing != nil {
		return "not installed: " + strings.Join(missing, ", ")
	}
	return ""
}

// enter starts this binary again in a lab and returns its exit code. An error means that no test was run.
func enter(args []string) (int, error) {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return 0, fmt.Errorf("find the own binary: %w", err)
	}
	cache, err := cacheFolder()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "guestlab.")
	if err != nil {
		return 0, fmt.Errorf("make the lab's folder: %w", err)
	}
	defer os.RemoveAll(dir)
	// Guests whose root is not this machine's must get through to their own files.
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "lab"), 0o755)); err != nil {
		return 0, fmt.Errorf("make the lab's folder: %w", err)
	}
	held, err := os.Create(filepath.Join(dir, "held"))
	if err != nil {
		return 0, fmt.Errorf("make the lab's folder: %w", err)
	}
	defer held.Close()
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
		return 0, fmt.Errorf("make the lab's folder: %w", err)
	}
	groups, err := controlGroups()
	if err != nil {
		return 0, err
	}
	sweep(filepath.Dir(dir), groups)
	group, err := newControlGroup(groups, filepath.Base(dir))
	if err != nil {
		return 0, err
	}
	defer removeControlGroup(group)
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := serveTrees(ctx, dir, cache); err != nil {
		return 0, err
	}

	// What is started dies with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	script := `echo $$ >"$0/cgroup.procs" && exec unshare --cgroup --mount --net --pid --uts --ipc --fork --kill-child -- "$@"`
	argv := append([]string{"-c", script, group, "sh", "-c", enterScript, "enter.sh", dir, self}, args...)
	cmd := exec.CommandContext(ctx, "sh", argv...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), envDir+"="+dir, envCache+"="+cache, envNode+"="+Node, "PATH="+systemPath(os.Getenv("PATH")))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	if _, missing := os.Stat(filepath.Join(dir, entered)); missing != nil {
		return 0, fmt.Errorf("the namespaces could not be made: %v (what was printed above says why)", err)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintf(os.Stderr, "guestlab: %v\n", err)
		return 1, nil
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code, nil
	}
	return 1, nil // ended by a signal
}

// entered is the mark in the lab's folder that the tests began.
const entered = "entered"

// systemPath adds the folders of the system's own programs where they are not in a path.
func systemPath(path string) string {
	for _, dir := range []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if !strings.Contains(":"+path+":", ":"+dir+":") {
			path += ":" + dir
		}
	}
	return path
}

// sweep removes what labs left whose first process was killed: nobody holds the lock of their folder.
func sweep(tmp, groups string) {
	marks, err := filepath.Glob(filepath.Join(tmp, "guestlab.*", "held"))
	if err != nil {
		return
	}
	for _, mark := range marks {
		f, err := os.Open(mark)
		if err != nil {
			continue
		}
		st, err := f.Stat()
		if err == nil && time.Since(st.ModTime()) > time.Minute && unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			dir := filepath.Dir(mark)
			removeControlGroup(filepath.Join(groups, filepath.Base(dir)))
			_ = os.RemoveAll(dir) // what stays is for the next one
		}
		f.Close()
	}
}

// controlGroups is where version 2 of them is mounted.
func controlGroups() (string, error) {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return "", fmt.Errorf("find the control groups: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1], nil
		}
	}
	return "", errors.New("find the control groups: version 2 is not mounted")
}

// newControlGroup makes a group that becomes the root of the lab's.
func newControlGroup(groups, name string) (string, error) {
	dir := filepath.Join(groups, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a control group: %w", err)
	}
	return dir, nil
}

// removeControlGroup removes a group and those below it; the last processes may take a moment to be gone.
func removeControlGroup(group string) {
	for range 20 {
		var dirs []string
		_ = filepath.WalkDir(group, func(path string, d os.DirEntry, err error) error { // what is gone is gone
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		if dirs == nil {
			return
		}
		for i := len(dirs) - 1; i >= 0; i-- {
			_ = os.Remove(dirs[i]) // the next round tries again
		}
		time.Sleep(50 * time.Millisecond)
	}
}
