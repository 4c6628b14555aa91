// Package restored is the folder that files fetched from backups are saved to.
package restored

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"castellan/internal/gate"
)

// DefaultLimit is the most that a file may hold where nothing else is said.
const DefaultLimit = 1 << 30

// spare is what stays free of the disk: castellan's own state may lie on it.
const spare = 64 << 20

// Config is what a Folder is made from.
type Config struct {
	Dir   string // absolute; made with mode 0700 when something is first saved
	Limit int64  // bytes of one file; 0 = DefaultLimit
}

// Folder takes files, each once and under a name of its own. It is safe for concurrent use.
type Folder struct {
	dir   string
	limit int64
	spare int64
}

// New checks the configuration. Nothing is made yet.
func New(c Config) (*Folder, error) {
	if !filepath.IsAbs(c.Dir) {
		return nil, fmt.Errorf("make folder for restored files: the path %q is not absolute", c.Dir)
	}
	if c.Limit < 0 {
		return nil, fmt.Errorf("make folder for restored files: a limit of %d bytes", c.Limit)
	}
	if c.Limit == 0 {
		c.Limit = DefaultLimit
	}
	return &Folder{dir: filepath.Clean(c.Dir), limit: c.Limit, spare: spare}, nil
}

// Fits refuses a file that would be too large, for the limit or for what is free on the disk.
func (f *Folder) Fits(size int64) error {
	if size > f.limit {
		return fmt.Errorf("it holds %d bytes, and the limit for a restored file is %d (setting restored.max_mib)", size, f.limit)
	}
	root, err := f.open()
	if err != nil {
		return err
	}
	defer root.Close()
	if room := f.room(root); size > room {
		return fmt.Errorf("it holds %d bytes, and %d can be taken of the disk of %s (%d stay free): make room there, or name another folder (setting restored.folder)", size, room, f.dir, f.spare)
	}
	return nil
}

// room is how many bytes may be taken of the disk. Where that cannot be told, the writing will.
func (f *Folder) room(root *os.Root) int64 {
	free, err := free(root)
	if err != nil {
		return f.limit
	}
	return max(0, free-f.spare)
}

func (f *Folder) full(n int64) error {
	return fmt.Errorf("after %d bytes the disk of %s is full (%d stay free): make room there, or name another folder (setting restored.folder)", n, f.dir, f.spare)
}

// Save streams a file into the folder, mode 0600, under a name made of key and the clean letters of d.Name. A file or
// link that lies there already is left alone, and is an error. What is too large, of another size than was told or
// without its end is removed again, and is an error too.
func (f *Folder) Save(key string, d gate.Download, length int64, from io.Reader) (out gate.Saved, err error) {
	if length >= 0 {
		if err := f.Fits(length); err != nil {
			return out, err
		}
	}
	root, err := f.open()
	if err != nil {
		return out, err
	}
	defer root.Close()
	name := localName(key, d)
	// O_EXCL makes the file, and never opens what a name that is taken leads to, links included.
	file, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return out, fmt.Errorf("%s exists already in %s; it was left alone", name, f.dir)
	} else if err != nil {
		return out, fmt.Errorf("create %s in %s: %w", name, f.dir, cause(err))
	}
	defer func() {
		if closed := file.Close(); err == nil && closed != nil {
			err = fmt.Errorf("write %s: %w", name, cause(closed))
		}
		if err == nil {
			return
		}
		out = gate.Saved{}
		if gone := root.Remove(name); gone != nil {
			err = fmt.Errorf("%w; what had come of it could not be removed from %s: %w", err, filepath.Join(f.dir, name), cause(gone))
		}
	}()
	sum := sha256.New()
	// One byte more than is allowed tells too much from just enough.
	room := f.room(root)
	n, err := io.Copy(io.MultiWriter(file, sum), io.LimitReader(from, min(f.limit, room)+1))
	switch {
	case full(err), err == nil && n > room && n <= f.limit:
		return out, f.full(n)
	case err != nil:
		return out, fmt.Errorf("it broke off after %d bytes: %w", n, cause(err))
	case n > f.limit:
		return out, fmt.Errorf("it holds more than %d bytes, the limit for a restored file (setting restored.max_mib)", f.limit)
	}
	whole := length >= 0
	if d.Size != nil {
		if n != *d.Size {
			return out, fmt.Errorf("%d bytes came, and the backup lists it with %d: it broke off, or was changed", n, *d.Size)
		}
		whole = true
	}
	if d.Zip {
		if whole, err = zipEnds(file, n); err != nil {
			return out, fmt.Errorf("read %s back: %w", name, cause(err))
		} else if !whole {
			return out, fmt.Errorf("it broke off after %d bytes: the archive has no end", n)
		}
	}
	if err := file.Sync(); full(err) {
		return out, f.full(n)
	} else if err != nil {
		return out, fmt.Errorf("write %s: %w", name, cause(err))
	}
	return gate.Saved{Path: filepath.Join(f.dir, name), Size: n, SHA256: hex.EncodeToString(sum.Sum(nil)), Whole: whole}, nil
}

// open makes the folder where there is none, and refuses one that is a link, another account's, or open to others. What is
// judged is what was opened: nobody can put another in its place between the two.
func (f *Folder) open() (*os.Root, error) {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder for restored files: %w", cause(err))
	}
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return nil, fmt.Errorf("open the folder for restored files, %s: %w", f.dir, cause(err))
	}
	if err := f.ours(root); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

func (f *Folder) ours(root *os.Root) error {
	info, err := root.Stat(".")
	if err != nil {
		return fmt.Errorf("look at the folder for restored files: %w", cause(err))
	}
	named, err := os.Lstat(f.dir)
	if err != nil {
		return fmt.Errorf("look at the folder for restored files: %w", cause(err))
	}
	switch {
	case !os.SameFile(info, named):
		return fmt.Errorf("the folder for restored files, %s, is a link, or was exchanged just now: name the folder itself (setting restored.folder)", f.dir)
	case !own(info):
		return fmt.Errorf("the folder for restored files, %s, belongs to another account than castellan's: give it to that one, or name another (setting restored.folder)", f.dir)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("the folder for restored files, %s, is open to others (mode %04o): make it 0700", f.dir, info.Mode().Perm())
	}
	return nil
}

// maxLetters bounds what a local name takes of the name that others chose.
const maxLetters = 80

// localName begins with the key, so that it is no reserved name and no option, whatever follows.
func localName(key string, d gate.Download) string {
	name := letters(d.Name)
	if d.Zip {
		name += ".zip"
	}
	return letters(key) + "-" + name
}

// letters keeps what is plain in any file system; of a path the last part.
func letters(text string) string {
	text = text[strings.LastIndexAny(text, `/\`)+1:]
	var b strings.Builder
	for _, r := range text {
		switch {
		case b.Len() >= maxLetters:
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.' && b.Len() > 0:
			b.WriteRune(r)
		default:
			b.WriteByte('_')
		}
	}
	if out := strings.TrimRight(b.String(), "."); out != "" {
		return out
	}
	return "file"
}

// zipEnds says whether a file ends as a zip archive does: with the record that says how long the comment after it is.
func zipEnds(file io.ReaderAt, size int64) (bool, error) {
	const record, longest = 22, 1<<16 - 1
	tail := make([]byte, min(size, record+longest))
	if _, err := file.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	for end := len(tail); ; {
		at := bytes.LastIndex(tail[:end], []byte("PK\x05\x06"))
		if at < 0 {
			return false, nil
		}
		if at+record <= len(tail) && at+record+int(binary.LittleEndian.Uint16(tail[at+record-2:])) == len(tail) {
			return true, nil
		}
		end = at
	}
}

// cause is an error without the path that it repeats.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
