//go:build linux

package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/syslog"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"castellan/internal/frame"
)

// entry is one line of the record: every use of the bridge, before and after.
type entry struct {
	Time   time.Time         `json:"time"`
	Peer   string            `json:"peer,omitempty"`
	ID     string            `json:"id,omitempty"`
	Verb   string            `json:"verb"`
	Where  string            `json:"where,omitempty"`
	VMID   int               `json:"vmid,omitempty"`
	Lane   string            `json:"lane,omitempty"`
	Probe  string            `json:"probe,omitempty"`
	Args   map[string]string `json:"args,omitempty"`
	Argv   []string          `json:"argv,omitempty"`
	Script string            `json:"script_sha256,omitempty"` // never its text
	Input  string            `json:"input_sha256,omitempty"`
	Path   string            `json:"path,omitempty"`
	Word   string            `json:"word,omitempty"`
	Root   bool              `json:"root_on_host,omitempty"`
	Ending string            `json:"ending,omitempty"` // absent: it begins
	Reason string            `json:"reason,omitempty"`
	Code   *int              `json:"code,omitempty"`
	Signal string            `json:"signal,omitempty"`
	Gone   *bool             `json:"gone,omitempty"`
}

// rooted marks what runs as root of the node.
func (e entry) rooted(yes bool) entry {
	e.Root = e.Root || yes
	return e
}

func sumText(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func short(s string) string {
	if len(s) > 500 {
		s = s[:500] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}

// entryOf makes the line of an ask and what it came to. Secrets, environment and texts of scripts are not in it.
func entryOf(ask frame.Ask, t frame.Tell) entry {
	e := entry{ID: short(ask.ID), Verb: short(string(ask.Verb)), Where: short(string(ask.Place.Where)), VMID: ask.Place.VMID, Ending: string(t.Ending), Reason: short(t.Reason)}
	if r := ask.Run; r != nil {
		e.Lane, e.Probe, e.Root = short(string(r.Lane)), short(r.Probe), r.Root
		size := 0
		for _, a := range r.Argv {
			if size += len(a); size > 4<<10 {
				e.Argv = append(e.Argv, "…")
				break
			}
			e.Argv = append(e.Argv, short(a))
		}
		for k, v := range r.Args {
			if e.Args == nil {
				e.Args = map[string]string{}
			}
			if len(e.Args) < 16 {
				e.Args[short(k)] = short(v)
			}
		}
		if r.Script != "" {
			e.Script = sumText(r.Script)
		}
		if len(r.Input) > 0 {
			e.Input = sumText(string(r.Input))
		}
	}
	if ask.File != nil {
		e.Path = short(ask.File.Path)
	}
	if ask.Word != nil {
		e.Word = short(ask.Word.Name)
		for k, v := range ask.Word.Args {
			if e.Args == nil {
				e.Args = map[string]string{}
			}
			if len(e.Args) < 16 {
				e.Args[short(k)] = short(v)
			}
		}
	}
	if r := t.Result; r != nil {
		e.Code, e.Signal, e.Gone = r.Code, r.Signal, &r.Gone
	}
	return e
}

// leastRoom is left free by the record: whoever asks must not be able to fill the node's disk.
const leastRoom = 64 << 20

// recorder appends to a file of root's, and tells the system's log as well.
type recorder struct {
	mu   sync.Mutex
	f    *os.File
	sys  *syslog.Writer // nil where there is none
	peer string
}

func openRecord(path, peer string) (*recorder, error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open record %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		f.Close()
		return nil, fmt.Errorf("open record %s: it must be a regular file that only its own account can write", path)
	}
	r := &recorder{f: f, peer: short(peer)}
	if r.sys, err = syslog.New(syslog.LOG_AUTHPRIV|syslog.LOG_INFO, "castellan-bridge"); err != nil {
		r.sys = nil // no log of the system: the file has it all
	}
	return r, nil
}

// write appends a line; what is to run waits for it.
func (r *recorder) write(e entry) error {
	e.Time, e.Peer = time.Now().UTC(), r.peer
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(r.f.Fd()), &st); err == nil && st.Bavail*uint64(st.Bsize) < leastRoom {
		return fmt.Errorf("record: less than %d MiB are free where it lies", leastRoom>>20)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.f.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if r.sys != nil {
		_ = r.sys.Info(string(b)) // beside the file, which counts
	}
	return nil
}

// note appends a line of what has happened already.
func (r *recorder) note(e entry) { _ = r.write(e) }

func (r *recorder) close() error {
	if r.sys != nil {
		_ = r.sys.Close()
	}
	return r.f.Close()
}
