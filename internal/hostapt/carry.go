//go:build linux

package hostapt

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"castellan/internal/patch"
)

// Carry does an upgrade that was prepared. It is called by a process of its own, which nobody's end ends; where it is killed all
// the same, apt goes on and Outcome finds out how it ended.
func (r *Runs) Carry(ctx context.Context, id string) (patch.Outcome, error) {
	if !r.Known(id) {
		return patch.Outcome{}, fmt.Errorf("carry out upgrade: there is no %q", id)
	}
	ctx = context.WithoutCancel(ctx)
	mine, err := flock(r.at(id, fileLock))
	if err != nil {
		return patch.Outcome{}, fmt.Errorf("carry out upgrade: %w", err)
	}
	defer mine.Close()
	if err := os.Rename(r.at(id, jobWaits), r.at(id, jobBegun)); err != nil {
		return patch.Outcome{}, fmt.Errorf("carry out upgrade: it was begun or taken back before: %w", err)
	}
	text, err := os.ReadFile(r.at(id, jobBegun))
	if err != nil {
		return r.refuseRun(id, "what is asked for cannot be read: "+err.Error())
	}
	var j Job
	if err := json.Unmarshal(text, &j); err != nil {
		return r.refuseRun(id, "what is asked for cannot be read: "+err.Error())
	}
	asked, err := patch.ParseTransaction(j.Asked)
	if err != nil {
		return r.refuseRun(id, err.Error())
	}
	release, err := r.clusterLock()
	if err != nil {
		return r.refuseRun(id, err.Error())
	}
	defer release()
	r.wait(id)
	done, remove, why, err := r.decide(ctx, id, asked, j.Newer)
	if err != nil || why != "" {
		if err != nil {
			why = err.Error()
		}
		return r.refuseRun(id, why)
	}
	defer remove()
	argv, err := r.command(id, done)
	if err != nil {
		return r.refuseRun(id, err.Error())
	}
	exit, began, err := r.install(id, argv, mine)
	if err != nil && !began {
		return r.refuseRun(id, "apt could not be started: "+err.Error())
	}
	r.calm(ctx)
	o, e := r.settle(ctx, id, exit)
	o.Ended = time.Now().UTC().Truncate(time.Second)
	switch {
	case e == nil && len(o.Done)+len(o.Beyond) == 0 && o.Packages.Clean && exists(r.at(id, "differs")):
		why, err := os.ReadFile(r.at(id, "differs"))
		o.State, o.Stale = "refused", "apt was about to do something else, and was stopped before it changed anything: "+clip(string(why), 1500)
		if err != nil {
			o.Stale = "apt was about to do something else, and was stopped before it changed anything"
		}
	case e != nil:
		o.Note = join(o.Note, "how packages are could not be read: "+clip(e.Error(), 300))
	}
	return o, errors.Join(err, r.put(o))
}

// decide finds out what apt would do now, and whether that is what was asked for and may be done on a host.
func (r *Runs) decide(ctx context.Context, id string, asked patch.Transaction, newer bool) (preferences string, remove func(), why string, err error) {
	rep, err := r.host.Look(ctx, true)
	if err != nil {
		return "", nil, "", err
	}
	all, err := r.host.inventory(ctx)
	if err != nil {
		return "", nil, "", err
	}
	rep.Lock, rep.Running = nil, "" // it was waited for, and this is it
	against := rep.Ready("full")
	against = append(against, Forbidden(rep.All, kernel(), func(name string) bool { h, ok := all.find(name, ""); return ok && h.essential })...)
	if differs := Match(asked, rep.All, newer, r.host.later(ctx)); differs != "" {
		against = append([]string{"what apt would do has changed since it was asked for: " + differs}, against...)
	}
	if len(against) > 0 {
		return "", nil, strings.Join(against, "; "), nil
	}
	policy, err := r.host.text(ctx, time.Minute, "apt-cache", "policy")
	if err != nil {
		return "", nil, "", err
	}
	was := before{Packages: all.versions(), House: r.host.Services(ctx), Began: time.Now().UTC().Truncate(time.Second), BootID: BootID()}
	decided, e1 := json.Marshal(rep.All)
	house, e2 := json.Marshal(was)
	if err := errors.Join(e1, e2); err != nil {
		return "", nil, "", err
	}
	if err := errors.Join(durable(r.at(id, fileDecided), decided), durable(r.at(id, fileBefore), house)); err != nil {
		return "", nil, "", err
	}
	sources := parsePolicy(policy)
	if err := r.host.verify(ctx, sources); err != nil {
		return "", nil, "", err
	}
	preferences, remove, err = r.host.preferences(sources, rep.System.Codename)
	return preferences, remove, "", err
}

const lockLimit = 15 * time.Minute

// wait lets somebody else who works on packages come to an end, and names them.
func (r *Runs) wait(id string) {
	told := 0
	for end := time.Now().Add(lockLimit); time.Now().Before(end); time.Sleep(time.Second) {
		l := holder()
		if l == nil {
			return
		}
		if l.PID != told {
			told = l.PID
			if f, err := os.OpenFile(r.at(id, fileLog), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err == nil {
				fmt.Fprintf(f, "waiting for %s (pid %d), which works on packages\n", patch.Clean(l.Program), l.PID)
				f.Close()
			}
		}
	}
}

// command is what installs, with the check that apt itself makes before it changes anything.
func (r *Runs) command(id, preferences string) ([]string, error) {
	argv := append([]string{"apt-get"}, aptOptions(preferences)...)
	argv = append(argv, "-y", "-o", "DPkg::Lock::Timeout=900", "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")
	if len(r.admit) == 0 {
		return nil, errors.New("what checks apt's own list is not known")
	}
	for _, a := range r.admit {
		if strings.ContainsFunc(a, func(c rune) bool {
			return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-", c)
		}) {
			return nil, fmt.Errorf("the path %.100q is not one that apt can call", a)
		}
	}
	// apt gives this line to a shell: it is of plain letters alone.
	argv = append(argv, "-o", "DPkg::Pre-Install-Pkgs::="+strings.Join(append(slices.Clone(r.admit), id), " "), "-o", "DPkg::Tools::Options::"+r.admit[0]+"::Version=3")
	return append(argv, "dist-upgrade"), nil
}

// install starts apt and waits for its end, however long that takes: dpkg is never cut in half.
func (r *Runs) install(id string, argv []string, mine *os.File) (exit *int, began bool, err error) {
	path, err := r.host.tool(argv[0])
	if err != nil {
		return nil, false, err
	}
	log, err := os.OpenFile(r.at(id, fileLog), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, false, err
	}
	defer log.Close()
	if err := durable(r.at(id, fileMark), []byte(time.Now().UTC().Format(time.RFC3339)+"\n")); err != nil {
		return nil, false, err
	}
	cmd := exec.Command(path, argv[1:]...)
	// It writes into a file, so that nobody's end breaks a pipe of it, and keeps the lock for as long as it lives.
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = environment(), "/", log, log, []*os.File{mine}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, false, errors.Join(err, os.Remove(r.at(id, fileMark)))
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case <-ended:
			if code := cmd.ProcessState.ExitCode(); code >= 0 {
				return &code, true, nil
			}
			return nil, true, fmt.Errorf("apt was ended by a signal: %s", cmd.ProcessState)
		case <-time.After(2 * time.Second):
			trim(log)
		}
	}
}

// trim keeps a log from growing without bound: its middle goes.
func trim(log *os.File) {
	info, err := log.Stat()
	if err != nil || info.Size() <= mostLog {
		return
	}
	tail := make([]byte, 1<<20)
	n, _ := log.ReadAt(tail, info.Size()-int64(len(tail)))
	if log.Truncate(1<<20) == nil {
		_, _ = log.Write(append([]byte("\n[… the middle was left out …]\n"), tail[:n]...)) // the end is worth more than the middle
	}
}

// calm waits until services that were restarted have settled.
func (r *Runs) calm(ctx context.Context) {
	for end := time.Now().Add(45 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Second) {
		house := r.host.Services(ctx)
		if !slices.ContainsFunc(house.Units, func(u patch.Unit) bool {
			return u.Active == "activating" && u.Sub != "start" || u.Active == "deactivating" || u.Active == "reloading"
		}) {
			return
		}
	}
}

// Admit is asked by apt, under its locks, just before it changes anything: what it is about to do must be exactly what was
// decided. An error stops apt, with nothing changed.
func (r *Runs) Admit(id string, in io.Reader) error {
	err := r.admitted(id, in)
	if err != nil && r.Known(id) {
		_ = os.WriteFile(r.at(id, "differs"), []byte(err.Error()), 0o600) // said in the outcome
	}
	return err
}

func (r *Runs) admitted(id string, in io.Reader) error {
	if !r.Known(id) {
		return fmt.Errorf("admit: there is no upgrade %.64q", id)
	}
	text, err := os.ReadFile(r.at(id, fileDecided))
	if err != nil {
		return fmt.Errorf("admit: %w", err)
	}
	var decided patch.Transaction
	if err := json.Unmarshal(text, &decided); err != nil {
		return fmt.Errorf("admit: %w", err)
	}
	moves, err := parseHook(in)
	if err != nil {
		return fmt.Errorf("admit: %w", err)
	}
	return admitMoves(decided, moves)
}

// admitMoves compares what was decided with what apt is about to do.
func admitMoves(decided patch.Transaction, moves []patch.Change) error {
	want := map[string]patch.Change{}
	for _, c := range decided {
		want[key(c)] = c
	}
	for _, m := range moves {
		w, ok := want[key(m)]
		if !ok {
			w, ok = want[m.Name+":all"]
		}
		if !ok || w.Action != m.Action || w.Old != m.Old || m.Action != patch.Remove && w.New != m.New {
			return fmt.Errorf("apt is about to %s, which was not decided", describe(m))
		}
		delete(want, key(w))
	}
	for _, w := range want {
		return fmt.Errorf("apt is not about to %s, which was decided", describe(w))
	}
	return nil
}

// parseHook reads what apt gives to a Pre-Install-Pkgs hook of version 3: settings, an empty line, then a line for each package:
// "name old-version old-arch old-multiarch < new-version new-arch new-multiarch file", and "**CONFIGURE**" or "**REMOVE**".
func parseHook(in io.Reader) ([]patch.Change, error) {
	r := bufio.NewScanner(io.LimitReader(in, 64<<20))
	r.Buffer(make([]byte, 64<<10), 4<<20)
	if !r.Scan() || r.Text() != "VERSION 3" {
		return nil, errors.New("apt speaks another version of its hook")
	}
	for r.Scan() && r.Text() != "" {
	}
	seen := map[string]bool{}
	var out []patch.Change
	for r.Scan() {
		f := strings.Fields(r.Text())
		if len(f) < 9 {
			return nil, fmt.Errorf("apt's hook: %.120q", r.Text())
		}
		c := patch.Change{Name: f[0], Old: f[1], New: f[5], Arch: f[6]}
		action := f[8]
		switch {
		case action == "**CONFIGURE**":
			continue // it follows the line that unpacks it
		case action == "**REMOVE**":
			c.Action, c.Arch, c.New = patch.Remove, f[2], ""
		case f[1] == "-":
			c.Action, c.Old = patch.Install, ""
		case f[4] != "<":
			return nil, fmt.Errorf("apt is about to put %s at %s in place of %s, which is not newer", f[0], f[5], f[1])
		default:
			c.Action = patch.Upgrade
		}
		if k := string(c.Action) + key(c); !seen[k] {
			seen[k] = true
			out = append(out, c)
		}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, errors.New("apt's hook names no package")
	}
	return out, nil
}
