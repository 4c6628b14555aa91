package anchor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"castellan/internal/ledger"
)

// fileSink appends heads to a file, one line of JSON each. The last line is the anchor's latest head; it may only go on
// from the one before, unless a person has accepted an older state.
type fileSink struct {
	path  string
	clock func() time.Time
}

// line is one line of the file.
type line struct {
	At   time.Time `json:"at"`
	Note string    `json:"head"`
}

// tailBytes is how much of the file's end is read: several lines.
const tailBytes = 2 * ledger.MaxNote

func newFile(p plan, own []string, clock func() time.Time) (*fileSink, error) {
	for _, dir := range own {
		if dir == "" {
			continue
		}
		if rel, err := filepath.Rel(resolved(dir), filepath.Join(resolved(filepath.Dir(p.Path)), filepath.Base(p.Path))); err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			return nil, fmt.Errorf("path %s lies in %s, which holds castellan's own state: what puts that back puts the anchor back too; name another place", p.Path, dir)
		}
	}
	return &fileSink{path: p.Path, clock: clock}, nil
}

// resolved follows links as far as there is something.
func resolved(dir string) string {
	if r, err := filepath.EvalSymlinks(dir); err == nil {
		return r
	}
	return filepath.Clean(dir)
}

func (s *fileSink) readable() bool { return true }
func (s *fileSink) away() bool     { return onNetwork(filepath.Dir(s.path)) }

func (s *fileSink) latest(context.Context) (string, error) {
	f, err := openAnchor(s.path, false)
	if errors.Is(err, os.ErrNotExist) {
		// Only a folder that is there tells that nothing was ever anchored; one that is not mounted tells nothing.
		if _, e := os.Stat(filepath.Dir(s.path)); e != nil {
			return "", fmt.Errorf("open anchor file: %w", e)
		}
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("open anchor file: %w", err)
	}
	defer f.Close()
	return lastNote(f)
}

func (s *fileSink) put(_ context.Context, note string, force bool) error {
	f, err := openAnchor(s.path, true)
	if err != nil {
		return fmt.Errorf("open anchor file: %w", err)
	}
	defer f.Close()
	unlock, err := lockFile(f) // several processes append
	if err != nil {
		return fmt.Errorf("lock anchor file: %w", err)
	}
	defer unlock()
	last, err := lastNote(f)
	if err != nil && !force {
		return err
	}
	if last == note {
		return nil
	}
	if was, err := ledger.ParseCheckpoint(last); err == nil && !force {
		if now, err := ledger.ParseCheckpoint(note); err != nil || was.Origin == now.Origin && was.Size >= now.Size {
			return err // another process is ahead of this one
		}
	}
	b, err := json.Marshal(line{At: s.clock().UTC().Truncate(time.Second), Note: note})
	if err != nil {
		return fmt.Errorf("write anchor file: %w", err)
	}
	if whole, err := endsWhole(f); err != nil {
		return err
	} else if !whole {
		b = append([]byte("\n"), b...) // after a line that a crash tore
	}
	if _, err := f.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write anchor file: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("write anchor file: %w", err)
	}
	if back, err := lastNote(f); err != nil || back != note {
		return errors.Join(errors.New("write anchor file: it does not hold what was written"), err)
	}
	return nil
}

func tail(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read anchor file: %w", err)
	}
	from := max(0, info.Size()-tailBytes)
	b := make([]byte, info.Size()-from)
	if _, err := f.ReadAt(b, from); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read anchor file: %w", err)
	}
	return b, nil
}

func endsWhole(f *os.File) (bool, error) {
	b, err := tail(f)
	return len(b) == 0 || b[len(b)-1] == '\n', err
}

// lastNote is the head of the last line that is one: a crash, or a full disk, leaves torn lines. It is "" for an empty
// file; one that holds something else only is an error.
func lastNote(f *os.File) (string, error) {
	b, err := tail(f)
	if err != nil || len(b) == 0 {
		return "", err
	}
	lines := bytes.Split(b[:bytes.LastIndexByte(b, '\n')+1], []byte("\n"))
	for _, text := range slices.Backward(lines) {
		var l line
		if json.Unmarshal(text, &l) != nil {
			continue
		}
		if _, err := ledger.ParseCheckpoint(l.Note); err == nil {
			return l.Note, nil
		}
	}
	if len(b) < tailBytes && bytes.Count(b, []byte("\n")) == 0 {
		return "", nil // the very first line was torn
	}
	return "", errors.New("read anchor file: no line at its end is a head; is it another program's file?")
}
