package seal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// MaxFile bounds the size of a secret file in bytes.
const MaxFile = 64 << 10

// Errors of secret files.
var (
	// ErrExposed: others than its owner can read or change the file.
	ErrExposed = errors.New("others have access")
	// ErrEmpty: there is nothing in it.
	ErrEmpty = errors.New("it is empty")
	// ErrUnexpanded: the value is the name of a variable that nothing replaced.
	ErrUnexpanded = errors.New("the variable in it was not replaced by its value")
)

// Open reads a secret from a file. The last element of path must not be a
// symbolic link; the file must be a regular one of this user (or root), of
// which nobody else has any permission. All is checked on the opened file, so
// it cannot be exchanged in between. One newline at the end is not part of the
// secret. An empty file is an error.
func Open(path string) (Secret, error) {
	b, err := readPrivate(path)
	if err != nil {
		return Secret{}, err
	}
	b, _ = bytes.CutSuffix(b, []byte("\n"))
	b, _ = bytes.CutSuffix(b, []byte("\r"))
	if len(bytes.TrimSpace(b)) == 0 {
		return Secret{}, fmt.Errorf("read secret file %s: %w", path, ErrEmpty)
	}
	return NewSecret(b), nil
}

func readPrivate(path string) ([]byte, error) {
	f, err := openPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("open secret file %s: %w", path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("check secret file %s: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("check secret file %s: it is not a regular file", path)
	}
	if err := checkPrivate(f, info); err != nil {
		return nil, fmt.Errorf("check secret file %s: %w", path, err)
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read secret file %s: %w", path, err)
	}
	if len(b) > MaxFile {
		return nil, fmt.Errorf("read secret file %s: it is longer than %d bytes", path, MaxFile)
	}
	return b, nil
}

// Create writes a new secret file that only this user can read, whole or not at
// all. It never replaces a file: when there is one, the error wraps
// fs.ErrExist.
func Create(path string, content []byte) error {
	tmp, err := stage(path, content)
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	// A hard link fails where a file is, which a rename would replace.
	if err := os.Link(tmp, path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("create secret file %s: %w", path, fs.ErrExist)
		}
		return createWithoutLink(path, content, err)
	}
	return syncDir(filepath.Dir(path))
}

// createWithoutLink serves file systems that have no hard links. A crash in
// between leaves a short file, which Open refuses or the reader notices.
func createWithoutLink(path string, content []byte, cause error) error {
	f, err := createPrivate(path)
	if err != nil {
		return fmt.Errorf("create secret file %s: %w", path, errors.Join(err, cause))
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		os.Remove(path)
		return fmt.Errorf("create secret file %s: %w", path, err)
	}
	return nil
}

// Replace writes a secret file in place of the one that may be there, whole or
// not at all.
func Replace(path string, content []byte) error {
	tmp, err := stage(path, content)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		os.Remove(tmp)
		return fmt.Errorf("replace secret file %s: %w", path, err)
	}
	return syncDir(filepath.Dir(path))
}

// stage writes content into a private temporary file beside path.
func stage(path string, content []byte) (string, error) {
	id, err := randomText(9)
	if err != nil {
		return "", err
	}
	tmp := path + ".new-" + id
	f, err := createPrivate(tmp)
	if err != nil {
		return "", fmt.Errorf("create secret file %s: %w", path, err)
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(tmp)
		return "", fmt.Errorf("create secret file %s: %w", path, err)
	}
	return tmp, nil
}

// CheckSetting refuses a value that cannot be meant: empty, or holding a
// variable that nothing has replaced (${NAME}, or $NAME or %NAME% alone). The
// error names the key and does not repeat the value.
func CheckSetting(key, value string) error {
	v := strings.TrimSpace(value)
	if v == "" {
		return fmt.Errorf("read setting %s: %w", key, ErrEmpty)
	}
	if unexpanded(v) {
		return fmt.Errorf("read setting %s: %w", key, ErrUnexpanded)
	}
	return nil
}

func unexpanded(v string) bool {
	if i := strings.Index(v, "${"); i >= 0 && strings.Contains(v[i:], "}") {
		return true
	}
	name := ""
	if rest, ok := strings.CutPrefix(v, "$"); ok {
		name = rest
	} else if rest, ok := strings.CutPrefix(v, "%"); ok {
		if name, ok = strings.CutSuffix(rest, "%"); !ok {
			return false
		}
	}
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c != '_' && !(c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9') {
			return false
		}
	}
	return true
}

// Reference says where the secret of a setting is.
type Reference struct {
	Key  string // of the setting, for messages
	File string // path, "" when none is given
	Env  string // name of an environment variable, "" when none may be used
}

// Loaded is a secret with where it came from.
type Loaded struct {
	Secret
	From string // the path, or the name of the variable
	// Warning is not empty when the secret stood in the environment, where other
	// processes of the user and crash reports can read it, or when one of two
	// sources was passed over.
	Warning string
}

// Load resolves a reference. A file wins over the environment.
func Load(r Reference, lookup func(string) (string, bool)) (Loaded, error) {
	env, inEnv := "", false
	if r.Env != "" && lookup != nil {
		env, inEnv = lookup(r.Env)
	}
	if r.File != "" {
		if err := CheckSetting(r.Key, r.File); err != nil {
			return Loaded{}, err
		}
		s, err := Open(r.File)
		if err != nil {
			return Loaded{}, fmt.Errorf("read setting %s: %w", r.Key, err)
		}
		if err := CheckSetting(r.Key, s.Reveal()); err != nil {
			return Loaded{}, err
		}
		l := Loaded{Secret: s, From: r.File}
		if inEnv {
			l.Warning = fmt.Sprintf("%s: the file %s is used, the environment variable %s is ignored", r.Key, r.File, r.Env)
		}
		return l, nil
	}
	if !inEnv {
		return Loaded{}, fmt.Errorf("read setting %s: neither a file nor the environment variable %s is given", r.Key, r.Env)
	}
	if err := CheckSetting(r.Key, env); err != nil {
		return Loaded{}, fmt.Errorf("environment variable %s: %w", r.Env, err)
	}
	return Loaded{Secret: NewSecret([]byte(env)), From: r.Env,
		Warning: fmt.Sprintf("%s: the secret comes from the environment variable %s, which other programs of this user can read; a file of mode 0600 is safer", r.Key, r.Env)}, nil
}
