package local

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Claim is what must hold for a daemon to count as out of reach of those whom it serves.
type Claim struct {
	Account   string   // the account that it is to have for itself; empty: none
	UID       int      // of the process; negative: not judged, the claim is looked at from outside
	Served    []string // accounts that the socket serves
	Closed    []string // files and folders that only the account may read: configuration, keys, store, tokens
	Unchanged []string // files that only root or the account may change: the program
	Accounts  Accounts
}

// Reason is one thing that is not as it must be.
type Reason struct {
	Short string `json:"short"` // in words, names nothing of this machine
	Text  string `json:"text"`  // names account, file and remedy
}

// Separation says whether the claim holds, and why not.
type Separation struct {
	OK      bool     `json:"ok"`
	Reasons []Reason `json:"reasons,omitempty"`
}

// canBecome are groups whose members can become any account, or read what it keeps.
var canBecome = []string{"root", "sudo", "wheel", "admin", "docker", "lxd", "incus", "incus-admin", "libvirt", "disk", "shadow"}

var noLogin = []string{"nologin", "false"}

// Judge looks at the machine as it is now.
func (c Claim) Judge() Separation {
	var s Separation
	say := func(short, format string, args ...any) {
		s.Reasons = append(s.Reasons, Reason{short, fmt.Sprintf(format, args...)})
	}
	if c.Account == "" {
		say("no account of its own is configured", "daemon.account names no account: one account holds agent, keys and policy. Make a system account and set daemon.account to it")
		return s
	}
	all, err := c.Accounts.read()
	groups, gerr := c.Accounts.groups()
	if err != nil || gerr != nil {
		say("the accounts of this machine cannot be read", "the accounts of this machine cannot be read: %v", errorOf(err, gerr))
		return s
	}
	at := slices.IndexFunc(all, func(a account) bool { return a.name == c.Account })
	if at < 0 {
		say("its account does not exist", "daemon.account names %q, which this machine has not: useradd --system --shell /usr/sbin/nologin %s", c.Account, c.Account)
		return s
	}
	own := all[at]
	if own.uid == 0 || own.uid >= 1000 {
		say("its account is no system account", "%s has the number %d: a system account has one from 1 to 999", own.name, own.uid)
	}
	if !slices.Contains(noLogin, filepath.Base(own.shell)) {
		say("its account has a login shell", "%s has the login shell %q: usermod --shell /usr/sbin/nologin %s", own.name, own.shell, own.name)
	}
	if twin := slices.IndexFunc(all, func(a account) bool { return a.uid == own.uid && a.name != own.name }); twin >= 0 {
		say("its account shares its number with another", "%s and %s have the same number %d", own.name, all[twin].name, own.uid)
	}
	if c.UID >= 0 && c.UID != own.uid {
		say("the daemon does not run under its account", "the daemon runs as user %d, not as %s (%d): start it by its systemd unit", c.UID, own.name, own.uid)
	}
	for _, name := range c.Served {
		c.served(name, own, all, groups, say)
	}
	for _, path := range c.Closed {
		if fault := closed(path, own.uid); fault != "" {
			say("its keys, configuration or state are open to others", "%s: %s", path, fault)
		}
	}
	for _, path := range c.Unchanged {
		if fault := unchanged(path, own.uid); fault != "" {
			say("others can change its program", "%s: %s", path, fault)
		}
	}
	s.OK = len(s.Reasons) == 0
	return s
}

func errorOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// served looks at one account that the socket serves.
func (c Claim) served(name string, own account, all []account, groups []group, say func(short, format string, args ...any)) {
	at := slices.IndexFunc(all, func(a account) bool { return a.name == name })
	if at < 0 {
		say("the socket serves an account that does not exist", "daemon.accounts names %q, which this machine has not", name)
		return
	}
	a := all[at]
	switch {
	case a.uid == 0:
		say("the socket serves root", "daemon.accounts names %q, which is root and can become anyone: take it out", name)
		return
	case a.uid == own.uid:
		say("the socket serves the daemon's own account", "daemon.accounts names %q, the daemon's own account: take it out", name)
		return
	}
	if a.gid == 0 {
		say("the socket serves an account that can become the daemon's", "%s is in the group of root: give it a group of its own", name)
	}
	if a.gid == own.gid && !slices.ContainsFunc(groups, func(g group) bool { return g.gid == own.gid }) {
		say("the socket serves a member of the daemon's group", "%s has the group %d of the daemon's account: give it a group of its own", name, own.gid)
	}
	for _, g := range groups {
		in := g.gid == a.gid || slices.Contains(g.members, name)
		switch {
		case in && g.gid == own.gid:
			say("the socket serves a member of the daemon's group", "%s is in the group %s of the daemon's account: gpasswd --delete %s %s", name, g.name, name, g.name)
		case in && g.gid != a.gid && g.gid == 0 || in && (slices.Contains(canBecome, g.name)):
			say("the socket serves an account that can become the daemon's", "%s is in the group %s, which can become any account: gpasswd --delete %s %s, or let agents run as another account", name, g.name, name, g.name)
		}
	}
}

// closed says what is wrong with a file or folder that only the account may read; "" when nothing is. What does not
// exist yet is judged by the folder that it will lie in.
func closed(path string, uid int) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err.Error()
	}
	info, err := os.Lstat(abs)
	if os.IsNotExist(err) {
		dir := filepath.Dir(abs)
		if fault := closed(dir, uid); fault != "" {
			return "there is no such file, and of the folder " + dir + " it holds: " + fault
		}
		return ""
	}
	if err != nil {
		return err.Error()
	}
	if info.Mode()&os.ModeSymlink != 0 {
		return "it is a symbolic link; name the file itself"
	}
	owner, ok := ownerOf(info)
	switch {
	case !ok:
		return "its owner cannot be told on this system"
	case owner != uid:
		return fmt.Sprintf("it belongs to user %d, not to the daemon's account (%d): chown it", owner, uid)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Sprintf("its mode is %04o: chmod go-rwx", info.Mode().Perm())
	}
	return above(filepath.Dir(abs), uid)
}

// unchanged says who else could change a file; "" when nobody can.
func unchanged(path string, uid int) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err.Error()
	}
	info, err := os.Lstat(real)
	if err != nil {
		return err.Error()
	}
	owner, ok := ownerOf(info)
	switch {
	case !ok:
		return "its owner cannot be told on this system"
	case owner != 0 && owner != uid:
		return fmt.Sprintf("it belongs to user %d: install it as root", owner)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Sprintf("its mode is %04o: chmod go-w", info.Mode().Perm())
	}
	return above(filepath.Dir(real), uid)
}

// above looks at the folders on the way: who can rename in one can put something else in its place.
func above(dir string, uid int) string {
	for {
		info, err := os.Stat(dir)
		if err != nil {
			return err.Error()
		}
		owner, ok := ownerOf(info)
		sticky := info.Mode()&os.ModeSticky != 0
		switch {
		case !ok:
			return "the owner of " + dir + " cannot be told on this system"
		case owner != 0 && owner != uid:
			return fmt.Sprintf("user %d owns the folder %s above it and can put another in its place", owner, dir)
		case info.Mode().Perm()&0o022 != 0 && !sticky:
			return fmt.Sprintf("others can write the folder %s above it (mode %04o)", dir, info.Mode().Perm())
		}
		if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir {
			if fault := above(real, uid); fault != "" {
				return fault
			}
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// Text is the verdict in words, for a person on this machine.
func (s Separation) Text() string {
	if s.OK {
		return "castellan runs under an account of its own: approvals by a person or passkey count as such"
	}
	var texts []string
	for _, r := range s.Reasons {
		texts = append(texts, r.Text)
	}
	return "castellan is not out of reach of those whom it serves, so every approval counts as a dialog at most: " + strings.Join(texts, "; ")
}
