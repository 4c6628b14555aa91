//go:build linux

package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Where an installation lies. It is the same on every node, so that the command that sudo allows is one exact line.
const (
	ProgramPath  = "/usr/local/sbin/castellan"
	door         = "castellan-bridge" // account that SSH opens
	runner       = "castellan-run"    // account that runs commands of the host
	doorHome     = "/var/lib/castellan-door"
	runnerHome   = "/var/lib/castellan-run"
	settingsDir  = "/etc/castellan-bridge"
	sudoersPath  = "/etc/sudoers.d/castellan-bridge"
	unitDir      = "/etc/systemd/system"
	serviceUnit  = "castellan-bridge.service"
	revertUnit   = "castellan-bridge-revert.service"
	manifestPath = settingsDir + "/installed"
)

// Installation is what install makes on a node.
type Installation struct {
	Key     string   // castellan's public key, as ssh-keygen writes it; empty: no way in by SSH
	From    []string // addresses or networks that the key may come from
	Service bool     // the service on loopback too
	Program string   // the program to install: this one
}

// Step is one change to a node.
type Step struct {
	Text string // what is changed, for people
	Done bool   // it is so already
	do   func(context.Context) error
}

// Do makes the change.
func (s Step) Do(ctx context.Context) error {
	if s.Done || s.do == nil {
		return nil
	}
	if err := s.do(ctx); err != nil {
		return fmt.Errorf("%s: %w", s.Text, err)
	}
	return nil
}

// forced is the one command that the key of castellan, and sudo for its account, let through.
const forced = ProgramPath + " bridge run"

// authorizedKey is the line of authorized_keys.
func (i Installation) authorizedKey() (string, error) {
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(i.Key))
	if err != nil || len(options) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		return "", errors.New("read castellan's key: give one public key as ssh-keygen writes it, without options")
	}
	if len(i.From) == 0 {
		return "", errors.New("read addresses: say from where the key may come (--from), or 0.0.0.0/0,::/0 for everywhere")
	}
	for _, f := range i.From {
		_, addr := netip.ParseAddr(f)
		_, network := netip.ParsePrefix(f)
		if addr != nil && network != nil {
			return "", fmt.Errorf("read addresses: %.60q is no address and no network such as 192.0.2.0/24", f)
		}
	}
	return fmt.Sprintf("restrict,from=%q,command=\"/usr/bin/sudo -n %s\" %s castellan\n", strings.Join(i.From, ","), forced, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))), nil
}

const sudoers = `# Written by castellan bridge install: the account that SSH opens may run this one command as root, with exactly these arguments.
Defaults:` + door + ` env_reset, !requiretty, !use_pty, !log_input, !log_output, env_keep = "SSH_CONNECTION"
` + door + ` ALL = (root) NOPASSWD: ` + forced + `
`

const exampleSettings = `# What castellan may have run on this node. castellan cannot change this file. Everything is off until it is switched on here;
# each SSH connection reads it anew (the service: systemctl restart castellan-bridge).
# See "castellan bridge check" for what is wrong with it, and docs/bridge.md for what can stand here.

# Guests by id, or ["*"] for all of this node.
guests = []

# The account that runs commands of the host itself; it may do no more than any account without rights.
account = "` + runner + `"

# Files of guests: "read", "write".
files = []

# Words for the node: "maintenance", "dead_man". "enrol" lets castellan put its channel for packages into the containers above,
# and take it away, by this program's own script.
# "updates" looks at the packages of the node itself, "upgrade" installs exactly
# the full upgrade that was asked for, and never one that takes away what makes this a Proxmox host.
words = []

[lanes]
# "probe": diagnostic commands of a fixed catalogue, which only read. "command": the commands of rules. "script": any script.
host = []
lxc = []

# [[rules.commands]]
# guests = ["101"]
# argv = "systemctl restart <unit:nginx>"

# [root]
# enabled = true
# secret = "/etc/castellan-bridge/root-secret"   # the line that "castellan bridge secret" prints, mode 0600
`

const revertText = `[Unit]
Description=Take up castellan's dead man's switches after a reboot
After=pve-cluster.service
ConditionPathExistsGlob=|/var/lib/castellan-bridge/deadman-*/armed
ConditionPathExistsGlob=|/var/lib/castellan-bridge/deadman-*/reverting

[Service]
ExecStart=` + ProgramPath + ` bridge revert
UMask=0077

[Install]
WantedBy=multi-user.target
`

// Plan lists what Install changes, in order; nothing is changed by it.
func (i Installation) Plan() ([]Step, error) {
	var out []Step
	if i.Key != "" {
		for name, pack := range map[string]string{"/usr/bin/sudo": "sudo", "/usr/sbin/visudo": "sudo"} {
			if !exists(name) {
				return nil, fmt.Errorf("plan installation: %s is not there: apt-get install %s", name, pack)
			}
		}
	}
	program, err := os.ReadFile(i.Program)
	if err != nil {
		return nil, fmt.Errorf("plan installation: %w", err)
	}
	out = append(out, dirStep(settingsDir, 0o700, 0), fileStep(ProgramPath, program, 0o755, 0, "this program"))
	out = append(out, accountStep(runner, runnerHome, "/usr/sbin/nologin", "runs commands of the host, with no rights"), ownDirStep(runnerHome, 0o700, runner))
	out = append(out, dirStep("/var/lib/castellan-bridge", 0o700, 0))
	if !exists(DefaultPath) {
		out = append(out, fileStep(DefaultPath, []byte(exampleSettings), 0o600, 0, "settings with everything off"))
	}
	out = append(out, unitStep(revertUnit, revertText, false))
	if i.Service {
		out = append(out, unitStep(serviceUnit, serviceText(rootScripts()), ready()))
	}
	if i.Key != "" {
		line, err := i.authorizedKey()
		if err != nil {
			return nil, err
		}
		out = append(out, accountStep(door, doorHome, "/bin/sh", "is opened by castellan's key, for the forced command alone"),
			dirStep(doorHome, 0o755, 0), dirStep(doorHome+"/.ssh", 0o755, 0), fileStep(doorHome+"/.ssh/authorized_keys", []byte(line), 0o644, 0, strings.TrimSpace(line)), sudoersStep())
	}
	return append(out, manifestStep(out)), nil
}

// command runs one of the node's programs.
func command(ctx context.Context, name string, args ...string) (string, error) {
	path, err := tool("", name)
	if err != nil {
		return "", err
	}
	out, err := own(ctx, path, args...)
	if err != nil {
		return out, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return out, nil
}

func ownedBy(path string) int {
	info, err := os.Lstat(path)
	if err != nil {
		return -1
	}
	uid, _ := ownerAndKind(info)
	return uid
}

func dirStep(path string, mode fs.FileMode, uid int) Step {
	info, err := os.Lstat(path)
	return Step{Text: fmt.Sprintf("folder %s, of root, mode %04o", path, mode), Done: err == nil && info.IsDir() && info.Mode().Perm() == mode && ownedBy(path) == uid, do: func(context.Context) error {
		return makeDir(path, mode, uid, uid)
	}}
}

func ownDirStep(path string, mode fs.FileMode, account string) Step {
	info, err := os.Lstat(path)
	u, e := user.Lookup(account)
	return Step{Text: fmt.Sprintf("folder %s, of %s, mode %04o", path, account, mode), Done: err == nil && e == nil && info.IsDir() && info.Mode().Perm() == mode && strconv.Itoa(ownedBy(path)) == u.Uid, do: func(context.Context) error {
		u, err := user.Lookup(account)
		if err != nil {
			return err
		}
		uid, e1 := strconv.Atoi(u.Uid)
		gid, e2 := strconv.Atoi(u.Gid)
		return errors.Join(e1, e2, makeDir(path, mode, uid, gid))
	}}
}

func makeDir(path string, mode fs.FileMode, uid, gid int) error {
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		return fmt.Errorf("%s is no folder", path)
	}
	return errors.Join(os.Chown(path, uid, gid), os.Chmod(path, mode))
}

func fileStep(path string, content []byte, mode fs.FileMode, uid int, what string) Step {
	now, err := os.ReadFile(path)
	info, e := os.Lstat(path)
	same := err == nil && e == nil && bytes.Equal(now, content) && info.Mode().IsRegular() && info.Mode().Perm() == mode && ownedBy(path) == uid
	return Step{Text: fmt.Sprintf("file %s, of root, mode %04o: %s", path, mode, what), Done: same, do: func(context.Context) error { return putFile(path, content, mode) }}
}

// putFile writes beside and renames, so that a running program or a half-written file is never in the way.
func putFile(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".castellan-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func accountStep(name, home, shell, what string) Step {
	_, err := user.Lookup(name)
	return Step{Text: fmt.Sprintf("system account %s, home %s, shell %s, no password: %s", name, home, shell, what), Done: err == nil, do: func(ctx context.Context) error {
		if _, err := command(ctx, "useradd", "--system", "--user-group", "--no-create-home", "--home-dir", home, "--shell", shell, name); err != nil {
			return err
		}
		_, err := command(ctx, "usermod", "--password", "*", name) // no password opens it, and sshd does not take it for locked
		return err
	}}
}

func sudoersStep() Step {
	s := fileStep(sudoersPath, []byte(sudoers), 0o440, 0, door+" may run as root, without a password, exactly: "+forced)
	write := s.do
	s.do = func(ctx context.Context) error {
		f, err := os.CreateTemp("", "castellan-sudoers-*")
		if err != nil {
			return err
		}
		defer os.Remove(f.Name())
		if _, err = f.WriteString(sudoers); err == nil {
			err = f.Close()
		}
		if err == nil {
			_, err = command(ctx, "visudo", "--check", "--quiet", "--file="+f.Name())
		}
		if err != nil {
			return err
		}
		return write(ctx)
	}
	return s
}

func booted() bool { return exists("/run/systemd/system") }

func unitStep(name, text string, start bool) Step {
	path := filepath.Join(unitDir, name)
	s := fileStep(path, []byte(text), 0o644, 0, "unit of systemd, switched on")
	s.Done = s.Done && exists(filepath.Join(unitDir, "multi-user.target.wants", name))
	write := s.do
	s.do = func(ctx context.Context) error {
		if err := write(ctx); err != nil {
			return err
		}
		args := []string{"enable", "--quiet", name}
		if start && booted() {
			args = []string{"enable", "--quiet", "--now", name}
		}
		if booted() {
			if _, err := command(ctx, "systemctl", "daemon-reload"); err != nil {
				return err
			}
		}
		_, err := command(ctx, "systemctl", args...)
		return err
	}
	return s
}

// manifestStep notes what was made, so that uninstall removes that and nothing else.
func manifestStep(made []Step) Step {
	old, _ := os.ReadFile(manifestPath) // none is an empty one
	lines := strings.Fields(string(old))
	for _, s := range made {
		word := strings.Fields(s.Text)
		at := strings.TrimSuffix(word[1], ",")
		if word[0] == "system" {
			at = "account:" + strings.TrimSuffix(word[2], ",")
		}
		if (!s.Done || slices.Contains(lines, at)) && !slices.Contains(lines, at) {
			lines = append(lines, at)
		}
	}
	return fileStep(manifestPath, []byte(strings.Join(lines, "\n")+"\n"), 0o600, 0, "list of what was made, for uninstall")
}

// PlanRemoval lists what uninstall removes: all that install made, the settings, the state and the record.
func PlanRemoval() []Step {
	list, _ := os.ReadFile(manifestPath) // none: what is named below
	made := strings.Fields(string(list))
	var out []Step
	for _, unit := range []string{serviceUnit, revertUnit} {
		path := filepath.Join(unitDir, unit)
		out = append(out, Step{Text: "unit " + unit + " of systemd: stopped, switched off, removed", Done: !exists(path), do: func(ctx context.Context) error {
			args := []string{"disable", "--quiet", unit}
			if booted() {
				args = []string{"disable", "--quiet", "--now", unit}
			}
			if _, err := command(ctx, "systemctl", args...); err != nil {
				return err
			}
			if err := os.Remove(path); err != nil || !booted() {
				return err
			}
			_, err := command(ctx, "systemctl", "daemon-reload")
			return err
		}})
	}
	remove := func(path string) {
		out = append(out, Step{Text: "remove " + path, Done: !exists(path), do: func(context.Context) error { return os.RemoveAll(path) }})
	}
	remove(sudoersPath)
	remove(doorHome)
	for _, name := range []string{door, runner} {
		_, err := user.Lookup(name)
		out = append(out, Step{Text: "remove account " + name + " and end its processes", Done: err != nil || !slices.Contains(made, "account:"+name), do: func(ctx context.Context) error {
			u, err := user.Lookup(name)
			if err != nil {
				return err
			}
			endProcesses(u.Uid)
			_, err = command(ctx, "userdel", name)
			return err
		}})
	}
	remove(runnerHome)
	remove("/var/lib/castellan-bridge")
	remove("/var/log/castellan-bridge.log")
	remove("/run/castellan-bridge")
	if slices.Contains(made, ProgramPath) {
		remove(ProgramPath)
	}
	remove(settingsDir)
	return out
}

// endProcesses ends all of an account that is to go.
func endProcesses(uid string) {
	for range 20 {
		left := false
		for _, pid := range everyPid() {
			info, err := os.Stat("/proc/" + strconv.Itoa(pid))
			if err != nil {
				continue
			}
			if owner, _ := ownerAndKind(info); strconv.Itoa(owner) == uid {
				if s, err := readStat(pid); err == nil && !s.over() {
					left = true
					s.process.signal(9)
				}
			}
		}
		if !left {
			return
		}
	}
}
