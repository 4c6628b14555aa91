package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"castellan/internal/gate"
	"castellan/internal/local"
)

// socket is the daemon's that this command is to use; empty for none. What the account at hand sets comes first: it can
// only choose whom to ask, never what it is given.
func (a *app) socket() (string, error) {
	if p, ok := a.env("CASTELLAN_SOCKET"); ok {
		if p == "" || strings.Contains(p, "${") {
			return "", gate.Fail(gate.ErrInvalid, "Unset it, or give it the path of the daemon's socket.", "CASTELLAN_SOCKET is %q", p)
		}
		return p, nil
	}
	s, _, _, err := a.load()
	switch {
	case err == nil && s.Socket != "":
		return s.Socket, nil
	case err == nil && s.Daemon.Account != "":
		return s.Daemon.local().Path(), nil
	case err == nil, !errors.Is(err, errNoConfig) && !errors.Is(err, fs.ErrPermission):
		return "", nil // whoever needs the configuration says what is wrong with it
	}
	if info, err := os.Stat(local.DefaultSocket); err == nil && info.Mode()&os.ModeSocket != 0 {
		return local.DefaultSocket, nil
	}
	return "", nil
}

// holdsKeys says whether this process is root, or the account of the daemon.
func (a *app) holdsKeys(s Settings) bool {
	uid := os.Geteuid()
	own, err := local.Accounts{}.Number(s.Daemon.Account)
	return uid == 0 || err == nil && uid == own
}

// inReach refuses to hold keys, policy and store in a process that the daemon's account is to be kept from.
func (a *app) inReach(s Settings) error {
	if s.Daemon.Account == "" || a.isDaemon {
		return nil
	}
	if a.overseer && a.holdsKeys(s) {
		return nil
	}
	hint := "Use the daemon's socket: set CASTELLAN_SOCKET, or socket in the configuration of your own account, to " + s.Daemon.local().Path() + "."
	if a.overseer {
		hint = "Run it as root, or as " + s.Daemon.Account + "."
	}
	return gate.Fail(gate.ErrDenied, hint, "this configuration is that of the daemon of the account %q; a process beside it may not hold its keys", s.Daemon.Account)
}

// claim is what must hold for the daemon to count as separate. uid is its process's, or negative.
func (s Settings) claim(path string, uid int) local.Claim {
	c := local.Claim{Account: s.Daemon.Account, UID: uid, Closed: []string{path, s.Store.Keys}, Unchanged: []string{filepath.Dir(path)}}
	if !strings.Contains(s.Store.URL, "://") {
		c.Closed = append(c.Closed, s.Store.URL)
	}
	c.Closed = append(c.Closed, s.secretFiles()...)
	for _, f := range s.Policy.Files {
		if !filepath.IsAbs(f) {
			f = filepath.Join(filepath.Dir(path), f)
		}
		c.Unchanged = append(c.Unchanged, f)
	}
	if program, err := os.Executable(); err == nil {
		c.Unchanged = append(c.Unchanged, program)
	}
	for _, text := range s.Daemon.Accounts {
		name, _, _ := strings.Cut(text, "=")
		c.Served = append(c.Served, name)
	}
	slices.Sort(c.Served)
	return c
}

// highest is the highest rung that approvals can have: in the daemon as it is, elsewhere as far as it can be seen.
func (a *app) highest(s Settings, dir string) gate.Rung {
	var v local.Separation
	switch {
	case a.separation != nil:
		v = a.separation()
	case s.Daemon.Account == "":
		return gate.RungDialog
	default:
		path, err := a.configPath()
		if err != nil {
			return gate.RungDialog
		}
		v = s.claim(path, -1).Judge()
	}
	if v.OK {
		return gate.RungTwoPasskeys
	}
	return gate.RungDialog
}

// separate says whether approvals above a dialog count in this process; the policy changes with it.
func (a *app) separate() bool { return a.separation != nil && a.separation().OK }

// notSeparate is what every answer says while a daemon that is to be out of reach is not.
func (a *app) notSeparate(s Settings) []string {
	if a.separation == nil || s.Daemon.Account == "" {
		return nil
	}
	v := a.separation()
	if v.OK {
		return nil
	}
	var why []string
	for _, r := range v.Reasons {
		why = append(why, r.Short)
	}
	return []string{"castellan is not out of reach of those whom it serves (" + strings.Join(slices.Compact(why), "; ") + "): approvals count as a dialog at most. castellan daemon check tells more."}
}
