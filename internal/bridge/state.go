//go:build linux

package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"castellan/internal/frame"
)

// state keeps what was started and how it ended, in a folder that only root can write. A mark is made before anything
// starts and is locked by the process that stays with the run; no id has two.
type state struct {
	dir  string
	keep time.Duration // of results
}

const (
	keepMarks   = 30 * 24 * time.Hour // ids are random: none comes again after that
	mostResults = 512 << 20           // bytes of all results
	endSuffix   = ".end"
	startSuffix = ".start"
)

// mark is what is written before a run starts.
type mark struct {
	Nonce string      `json:"nonce"`
	Group string      `json:"group,omitempty"` // folder of its control group
	Place frame.Place `json:"place"`
	Began time.Time   `json:"began"`
	Limit int64       `json:"limit"` // nanoseconds
}

// held is a mark that this process has made; it is locked until it is closed.
type held struct {
	f *os.File
	state
	id string
}

var errKnownID = errors.New("an ask of this id was begun before")

func openState(dir string, keep time.Duration) (*state, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open state of the bridge: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return nil, fmt.Errorf("open state of the bridge: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return nil, fmt.Errorf("open state of the bridge: %s must be a folder of its own account with mode 0700: chown root:root %s; chmod 0700 %s", dir, dir, dir)
	}
	return &state{dir: dir, keep: keep}, nil
}

func (s *state) file(id, suffix string) string { return filepath.Join(s.dir, "run-"+id+suffix) }

// begin makes the mark of an id, once for all bridges of this node.
func (s *state) begin(id string, m mark, durable bool) (*held, error) {
	var room unix.Statfs_t
	if err := unix.Statfs(s.dir, &room); err == nil && (room.Bavail*uint64(room.Bsize) < leastRoom || room.Files > 0 && room.Ffree < 1000) {
		return nil, fmt.Errorf("mark the start: less than %d MiB, or fewer than 1000 files, are free where the state lies", leastRoom>>20)
	}
	f, err := os.OpenFile(s.file(id, startSuffix), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, errKnownID
	}
	if err != nil {
		return nil, fmt.Errorf("mark the start: %w", err)
	}
	h := &held{f: f, state: *s, id: id}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("mark the start: %w", err), f.Close())
	}
	b, err := json.Marshal(m)
	if err == nil {
		_, err = f.Write(b)
	}
	if err == nil && durable {
		if err = f.Sync(); err == nil {
			err = syncDir(s.dir)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mark the start: %w", err), f.Close())
	}
	return h, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// end keeps how it ended, then gives up the lock.
func (h *held) end(t frame.Tell) error {
	err := h.put(t)
	if e := h.f.Close(); err == nil {
		err = e
	}
	return err
}

func (s *state) put(t frame.Tell) error {
	b, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("keep the result: %w", err)
	}
	f, err := os.CreateTemp(s.dir, "tmp-*")
	if err != nil {
		return fmt.Errorf("keep the result: %w", err)
	}
	_, err = f.Write(b)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), s.file(t.ID, endSuffix))
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("keep the result: %w", err)
	}
	return nil
}

// found is what is known of an id.
type found struct {
	known   bool
	running bool // a process stays with it
	mark    mark
	end     *frame.Tell
}

func (s *state) look(id string) (found, error) {
	var out found
	f, err := os.OpenFile(s.file(id, startSuffix), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("look for the run: %w", err)
	}
	defer f.Close()
	out.known = true
	// The lock is asked for before the end is looked for: a run that ends between the two shows its end.
	out.running = errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
	if !out.running {
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // closed in a moment
	}
	if b, err := os.ReadFile(s.file(id, startSuffix)); err == nil {
		_ = json.Unmarshal(b, &out.mark) // it may have been cut by a loss of power: then nothing is known but the id
	}
	b, err := os.ReadFile(s.file(id, endSuffix))
	if errors.Is(err, os.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("look for the run: %w", err)
	}
	var t frame.Tell
	if err := json.Unmarshal(b, &t); err == nil {
		out.end, out.running = &t, false
	}
	return out, nil
}

// sweep removes what is old, at most once an hour, and lists the ids that nobody stays with and that have no end.
func (s *state) sweep(now time.Time) (orphans []string) {
	stamp := filepath.Join(s.dir, "swept")
	if info, err := os.Stat(stamp); err == nil && now.Sub(info.ModTime()) < 5*time.Minute && now.After(info.ModTime()) {
		return nil
	}
	_ = os.WriteFile(stamp, nil, 0o600) // without it the next one sweeps again
	rows, err := os.ReadDir(s.dir)
	if err != nil {
		return nil
	}
	var size int64
	for n := len(rows) - 1; n >= 0; n-- {
		r := rows[n]
		info, err := r.Info()
		if err != nil {
			continue
		}
		age := now.Sub(info.ModTime())
		name := filepath.Join(s.dir, r.Name())
		switch {
		case strings.HasSuffix(r.Name(), endSuffix):
			if size += info.Size(); age > s.keep || size > mostResults && age > 15*time.Minute {
				_ = os.Remove(name)
			}
		case strings.HasPrefix(r.Name(), "tmp-"):
			if age > time.Hour {
				_ = os.Remove(name)
			}
		case strings.HasSuffix(r.Name(), startSuffix):
			if age > keepMarks {
				_ = os.Remove(name)
				continue
			}
			id := strings.TrimSuffix(strings.TrimPrefix(r.Name(), "run-"), startSuffix)
			if _, err := os.Stat(s.file(id, endSuffix)); errors.Is(err, os.ErrNotExist) && age < 24*time.Hour && age > 5*time.Second {
				orphans = append(orphans, id)
			}
		}
	}
	return orphans
}
