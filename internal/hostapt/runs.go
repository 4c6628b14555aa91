//go:build linux

package hostapt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"castellan/internal/patch"
)

// RunsConfig is what Runs are made of.
type RunsConfig struct {
	Dir  string // of the upgrades, of root alone
	Host *Host
	// Admit is the program, with its arguments, that is given the id of an upgrade and apt's list of packages: it calls Admit.
	Admit []string
	// Lock is a folder that all nodes of the cluster share: one upgrade at a time is begun in it. Empty: this host is alone.
	Lock string
}

// Runs are the upgrades of this host: each is begun once, goes on whoever ends, and can be looked at afterwards. An upgrade is a
// folder with the files below; whoever renames a job first decides whether it is begun.
type Runs struct {
	dir   string
	host  *Host
	admit []string
	lock  string
}

const (
	jobWaits      = "job"        // asked for, not yet begun
	jobBegun      = "begun"      // the run has taken it
	jobWithdrawn  = "withdrawn"  // it did not begin in time
	fileDecided   = "decided"    // the exact transaction that apt is let do
	fileBefore    = "before"     // packages and services as they were
	fileMark      = "installing" // written just before apt is started: without it nothing was changed
	fileLog       = "log"
	fileOutcome   = "outcome"
	fileLock      = "lock"
	runPrefix     = "upgrade-"
	mostLog       = 8 << 20
	keptLog       = 64 << 10
	keepRuns      = 20
	clusterStale  = 2 * time.Minute // as the cluster's file system has it
	clusterLocked = "castellan-host-upgrade"
)

// Job is an upgrade that is asked for.
type Job struct {
	ID    string    `json:"id"`
	Asked []string  `json:"asked"` // the changes, as texts
	Newer bool      `json:"newer"`
	Since time.Time `json:"since"`
}

// before is how the host was.
type before struct {
	Packages map[string]string `json:"packages"`
	House    patch.House       `json:"house"`
	Began    time.Time         `json:"began"`
	BootID   string            `json:"boot_id"`
}

var idGrammar = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// NewRuns makes Runs.
func NewRuns(c RunsConfig) (*Runs, error) {
	if c.Dir == "" || c.Host == nil {
		return nil, errors.New("make runs: a folder and a host are needed")
	}
	return &Runs{dir: c.Dir, host: c.Host, admit: c.Admit, lock: c.Lock}, nil
}

func (r *Runs) at(id, file string) string { return filepath.Join(r.dir, runPrefix+id, file) }

// Prepare writes down what is asked for. An id is prepared once.
func (r *Runs) Prepare(j Job) error {
	if !idGrammar.MatchString(j.ID) {
		return errors.New("prepare upgrade: the id is 1 to 64 of A-Z a-z 0-9 . _ -")
	}
	if len(j.Asked) == 0 {
		return errors.New("prepare upgrade: no package is named")
	}
	if _, err := patch.ParseTransaction(j.Asked); err != nil {
		return fmt.Errorf("prepare upgrade: %w", err)
	}
	if other, busy := r.busy(); busy {
		return fmt.Errorf("prepare upgrade: the upgrade %s is under way", other)
	}
	r.sweep()
	b, err := json.Marshal(j)
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(r.dir, runPrefix+j.ID), 0o700); err != nil {
		return fmt.Errorf("prepare upgrade: %w", err)
	}
	return durable(r.at(j.ID, jobWaits), b)
}

// Withdraw takes a job back that has not begun; false: it has.
func (r *Runs) Withdraw(id string) bool {
	return os.Rename(r.at(id, jobWaits), r.at(id, jobWithdrawn)) == nil
}

// Begun says whether a job is no longer waiting.
func (r *Runs) Begun(id string) bool { return exists(r.at(id, jobBegun)) }

// Known says whether an upgrade of this id was ever prepared.
func (r *Runs) Known(id string) bool {
	return idGrammar.MatchString(id) && exists(filepath.Join(r.dir, runPrefix+id))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// durable writes a new file so that it is there after a loss of power.
func durable(path string, content []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err == nil {
		var d *os.File
		if d, err = os.Open(filepath.Dir(path)); err == nil {
			err = errors.Join(d.Sync(), d.Close())
		}
	}
	return err
}

// flock opens a file and locks it, without waiting.
func flock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// held says whether somebody has the file locked.
func held(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

func (r *Runs) ids() []string {
	found, err := filepath.Glob(filepath.Join(r.dir, runPrefix+"*"))
	if err != nil {
		return nil
	}
	type row struct {
		id string
		at time.Time
	}
	var rows []row
	for _, p := range found {
		if info, err := os.Stat(p); err == nil && info.IsDir() {
			at := info.ModTime()
			for _, f := range []string{jobBegun, jobWaits, jobWithdrawn} { // written once: the folder's own time moves
				if i, err := os.Stat(filepath.Join(p, f)); err == nil {
					at = i.ModTime()
				}
			}
			rows = append(rows, row{strings.TrimPrefix(filepath.Base(p), runPrefix), at})
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return b.at.Compare(a.at) })
	out := make([]string, len(rows))
	for i, row := range rows {
		out[i] = row.id
	}
	return out
}

// Last is the id of the newest upgrade; "" = there was none.
func (r *Runs) Last() string {
	if ids := r.ids(); len(ids) > 0 {
		return ids[0]
	}
	return ""
}

// busy names an upgrade under way, or one that is about to begin.
func (r *Runs) busy() (string, bool) {
	for _, id := range r.ids() {
		if held(r.at(id, fileLock)) {
			return id, true
		}
		if info, err := os.Stat(r.at(id, jobWaits)); err == nil && time.Since(info.ModTime()) < time.Minute {
			return id, true
		}
	}
	return "", false
}

// Running names the upgrade under way.
func (r *Runs) Running() string {
	id, _ := r.busy()
	return id
}

func (r *Runs) sweep() {
	for i, id := range r.ids() {
		if i >= keepRuns && !held(r.at(id, fileLock)) {
			_ = os.RemoveAll(filepath.Join(r.dir, runPrefix+id)) // the mark of its id stays with the bridge
		}
	}
}

// Log is the begin and the end of what the package manager printed, and how much it was.
func (r *Runs) Log(id string) (text string, size int64) {
	f, err := os.Open(r.at(id, fileLog))
	if err != nil {
		return "", 0
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", 0
	}
	size = info.Size()
	if size <= keptLog {
		b := make([]byte, size)
		n, _ := f.ReadAt(b, 0) // what could be read
		return strings.ToValidUTF8(string(b[:n]), "?"), size
	}
	head, tail := make([]byte, keptLog/3), make([]byte, keptLog-keptLog/3)
	n, _ := f.ReadAt(head, 0)
	m, _ := f.ReadAt(tail, size-int64(len(tail)))
	return strings.ToValidUTF8(string(head[:n])+fmt.Sprintf("\n[… %d bytes left out here …]\n", size-int64(n)-int64(m))+string(tail[:m]), "?"), size
}

// Outcome tells what became of an upgrade, whoever began it and whatever ended it.
func (r *Runs) Outcome(ctx context.Context, id string) (o patch.Outcome, running bool, err error) {
	o = patch.Outcome{ID: id, Mode: "full", State: "none"}
	if id == "" || !r.Known(id) {
		return o, false, nil
	}
	if held(r.at(id, fileLock)) {
		o.State = "running"
		r.fill(&o)
		return o, true, nil
	}
	if b, err := os.ReadFile(r.at(id, fileOutcome)); err == nil {
		var done patch.Outcome
		if err := json.Unmarshal(b, &done); err == nil {
			return done, false, nil
		}
	}
	switch {
	case exists(r.at(id, jobWaits)):
		if info, err := os.Stat(r.at(id, jobWaits)); err == nil && time.Since(info.ModTime()) < time.Minute {
			o.State = "running"
			return o, true, nil
		}
		o.State, o.Stale = "refused", "the run that was to begin it did not start"
		return o, false, nil
	case exists(r.at(id, jobWithdrawn)):
		o.State, o.Stale = "refused", "it was taken back before it began"
		return o, false, nil
	case !exists(r.at(id, fileMark)):
		o.State, o.Stale = "refused", "the run was ended before it began to install"
		return o, false, nil
	}
	o, err = r.settle(ctx, id, nil)
	if err == nil && o.State == "ended" {
		o.Note = join(o.Note, "the run itself was ended before it could say so; the package database tells that all was done")
	}
	return o, false, err
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

func (r *Runs) fill(o *patch.Outcome) (b before) {
	if text, err := os.ReadFile(r.at(o.ID, fileBefore)); err == nil {
		if json.Unmarshal(text, &b) == nil {
			o.Began, o.Before = b.Began, &b.House
		}
	}
	if text, err := os.ReadFile(r.at(o.ID, fileDecided)); err == nil {
		_ = json.Unmarshal(text, &o.Asked) // none: it had not been decided
	}
	return b
}

// settle compares what is installed with what was, and makes an outcome of it.
func (r *Runs) settle(ctx context.Context, id string, exit *int) (patch.Outcome, error) {
	o := patch.Outcome{ID: id, Mode: "full", State: "lost", Exit: exit}
	was := r.fill(&o)
	all, err := r.host.inventory(ctx)
	if err != nil {
		return o, err
	}
	if o.Packages, err = r.host.database(ctx); err != nil {
		return o, err
	}
	house := r.host.Services(ctx)
	o.After = &house
	o.Reboot = r.host.reboot(all)
	o.Log, o.LogBytes = r.Log(id)
	o.Conffiles = conffiles(o.Log)
	did := difference(was.Packages, all.versions())
	asked := map[string]patch.Change{}
	for _, c := range o.Asked {
		asked[key(c)] = c
	}
	for _, c := range did {
		a, ok := asked[key(c)]
		if ok && a.Action == c.Action && a.New == c.New && a.Old == c.Old {
			c.Archive, c.Security, c.Bytes = a.Archive, a.Security, a.Bytes
			o.Done = append(o.Done, c)
			delete(asked, key(c))
		} else {
			o.Beyond = append(o.Beyond, c)
		}
	}
	for _, c := range o.Asked {
		if _, left := asked[key(c)]; left {
			o.Missing = append(o.Missing, c)
		}
	}
	if exit != nil || len(o.Missing)+len(o.Beyond) == 0 && o.Packages.Clean {
		o.State = "ended"
	}
	return o, nil
}

// refuseRun ends an upgrade of which nothing was changed.
func (r *Runs) refuseRun(id, why string) (patch.Outcome, error) {
	o := patch.Outcome{ID: id, Mode: "full", State: "refused", Stale: clip(why, 2000), Ended: time.Now().UTC().Truncate(time.Second)}
	return o, r.put(o)
}

func (r *Runs) put(o patch.Outcome) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return durable(r.at(o.ID, fileOutcome), b)
}

// clusterLock is held by one node at a time. It is given up by release, and by itself some minutes after its holder died.
func (r *Runs) clusterLock() (release func(), err error) {
	if r.lock == "" {
		return func() {}, nil
	}
	path := filepath.Join(r.lock, clusterLocked)
	for try := 0; ; try++ {
		err = os.Mkdir(path, 0o700)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("the cluster's lock for upgrades of nodes cannot be taken, as without quorum: %w", err)
		}
		_ = os.Chtimes(path, time.Unix(0, 0), time.Unix(0, 0)) // asks the cluster's file system to give up a lock that has run out
		if info, e := os.Stat(path); e == nil && !shared(path) && time.Since(info.ModTime()) > clusterStale && try > 0 {
			_ = os.Remove(path)
		}
		if try == 8 {
			return nil, errors.New("another node of the cluster is being upgraded, or was a moment ago: one at a time")
		}
		time.Sleep(time.Second)
	}
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Second):
				now := time.Now()
				_ = os.Chtimes(path, now, now) // the cluster's file system may be restarting
			}
		}
	}()
	return func() {
		close(done)
		_ = os.Remove(path) // else it runs out
	}, nil
}

// shared says whether a path is on the cluster's own file system.
func shared(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.FUSE_SUPER_MAGIC
}

// News is what the package manager printed after the first from bytes, its end where it is much.
func (r *Runs) News(id string, from int64) (piece []byte, size int64) {
	f, err := os.Open(r.at(id, fileLog))
	if err != nil {
		return nil, from
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, from
	}
	size = info.Size()
	if from > size { // its middle was left out meanwhile
		from = size
	}
	piece = make([]byte, min(size-from, 8<<10))
	n, _ := f.ReadAt(piece, size-int64(len(piece)))
	return piece[:n], size
}
