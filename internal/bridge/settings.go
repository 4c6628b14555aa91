//go:build linux

package bridge

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"

	"castellan/internal/frame"
	"castellan/internal/lane"
)

// DefaultPath is where the settings lie.
const DefaultPath = "/etc/castellan-bridge/bridge.toml"

// Settings are what root on the node has set. Everything is off in them until it is switched on.
type Settings struct {
	Guests   []string `toml:"guests"`    // ids, or "*"
	Lanes    Lanes    `toml:"lanes"`     // which lanes are open where
	Files    []string `toml:"files"`     // "read", "write": files in guests
	Words    []string `toml:"words"`     // "maintenance", "dead_man", "updates", "upgrade", "enrol"
	Account  string   `toml:"account"`   // that runs commands of the host; never root
	QuietEnv []string `toml:"quiet_env"` // variables that hold secrets: they reach a guest beside the list of processes
	State    string   `toml:"state"`     // folder for marks and results
	Log      string   `toml:"log"`       // file that every use is appended to
	Node     string   `toml:"node"`      // empty: the name of this machine

	Root    Root            `toml:"root"`
	Limits  Limits          `toml:"limits"`
	Service ServiceSettings `toml:"service"`
	Paths   Paths           `toml:"paths"`

	// Rules say which commands, scripts and probes. Scripts that name no place are for every guest of Guests and this node.
	Rules lane.Settings `toml:"rules"`

	path string // of the file that they were read from
}

// Lanes are the open ones of each place: "probe", "command", "script".
type Lanes struct {
	Host []string `toml:"host"`
	LXC  []string `toml:"lxc"`
}

// Root switches scripts of the host that run as root.
type Root struct {
	Enabled bool   `toml:"enabled"`
	Secret  string `toml:"secret"` // file with the hash of the secret
}

// Limits bound what one ask may take.
type Limits struct {
	Seconds int   `toml:"seconds"` // of a run
	Runs    int   `toml:"runs"`    // at once, per connection
	Output  int   `toml:"output"`  // bytes kept of each output
	Total   int64 `toml:"total"`   // bytes that a run may print before it is killed
	File    int   `toml:"file"`    // bytes of a file
	Keep    int   `toml:"keep"`    // minutes that results are kept
	// Requests are the most that the service has under way at once.
	Requests int `toml:"requests"`
}

// ServiceSettings are for `castellan bridge serve`.
type ServiceSettings struct {
	Listen      string            `toml:"listen"`      // address of loopback
	Secret      string            `toml:"secret"`      // file with the hash of the shared secret
	Certificate string            `toml:"certificate"` // with Key: TLS
	Key         string            `toml:"key"`
	Headers     map[string]string `toml:"headers"` // that each request must carry, with their values or the hashes of them
}

// Paths are for nodes where things lie elsewhere.
type Paths struct {
	PVE       string `toml:"pve"`
	LXC       string `toml:"lxc"` // where the configurations of running containers lie; empty: as lxc has it
	LXCAttach string `toml:"lxc_attach"`
	LXCInfo   string `toml:"lxc_info"`
	HAManager string `toml:"ha_manager"`
	IfReload  string `toml:"ifreload"`
	Network   string `toml:"network"` // the file of the node's interfaces
}

// LoadSettings reads the settings. The file, and the folders above it, must be such that nobody but root (or whoever
// runs this) can change them; links are not followed.
func LoadSettings(path string) (Settings, error) {
	b, err := readGuarded(path, 1<<20, 0o022)
	if err != nil {
		return Settings{}, fmt.Errorf("read settings of the bridge: %w", err)
	}
	s := Settings{path: path}
	d := toml.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		var strict *toml.StrictMissingError
		if errors.As(err, &strict) {
			return Settings{}, fmt.Errorf("read settings of the bridge: %s has keys that no setting has:\n%s", path, strict.String())
		}
		return Settings{}, fmt.Errorf("read settings of the bridge: %s: %w", path, err)
	}
	if err := s.complete(); err != nil {
		return Settings{}, fmt.Errorf("read settings of the bridge: %s: %w", path, err)
	}
	return s, nil
}

func orElse[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// complete sets defaults and finds what cannot be meant.
func (s *Settings) complete() error {
	orElse(&s.State, "/var/lib/castellan-bridge")
	orElse(&s.Log, "/var/log/castellan-bridge.log")
	orElse(&s.Account, "castellan-run")
	orElse(&s.Limits.Seconds, 300)
	orElse(&s.Limits.Runs, 64)
	orElse(&s.Limits.Output, frame.MaxOutput)
	orElse(&s.Limits.Total, 1<<30)
	orElse(&s.Limits.File, frame.MaxFile)
	orElse(&s.Limits.Keep, 60)
	orElse(&s.Limits.Requests, 256)
	orElse(&s.Service.Listen, "127.0.0.1:8129")
	orElse(&s.Paths.PVE, "/etc/pve")
	orElse(&s.Paths.Network, "/etc/network/interfaces")
	switch {
	case s.Limits.Seconds < 1 || s.Limits.Seconds > 3600:
		return errors.New("limits.seconds is from 1 to 3600")
	case s.Limits.Runs < 1 || s.Limits.Runs > 256:
		return errors.New("limits.runs is from 1 to 256")
	case s.Limits.Output < 2 || s.Limits.Output > frame.MaxOutput:
		return fmt.Errorf("limits.output is from 2 to %d", frame.MaxOutput)
	case s.Limits.Total < 1<<10:
		return errors.New("limits.total is at least 1024")
	case s.Limits.File < 1 || s.Limits.File > frame.MaxFile:
		return fmt.Errorf("limits.file is from 1 to %d", frame.MaxFile)
	case s.Limits.Keep < 15 || s.Limits.Keep > 7*24*60:
		return errors.New("limits.keep is from 15 to 10080 minutes")
	case s.Limits.Requests < 2 || s.Limits.Requests > 4096:
		return errors.New("limits.requests is from 2 to 4096")
	}
	for _, g := range s.Guests {
		if _, err := guestID(g); g != "*" && err != nil {
			return fmt.Errorf("guests: %w", err)
		}
	}
	for where, lanes := range map[string][]string{"lanes.host": s.Lanes.Host, "lanes.lxc": s.Lanes.LXC} {
		for _, l := range lanes {
			if !slices.Contains([]frame.Lane{frame.Probe, frame.Command, frame.Script}, frame.Lane(l)) {
				return fmt.Errorf("%s: %q is no lane; the lanes are probe, command, script", where, l)
			}
		}
	}
	for _, f := range s.Files {
		if f != "read" && f != "write" {
			return fmt.Errorf("files: %q is neither read nor write", f)
		}
	}
	for _, w := range s.Words {
		if w != wordEnrol && !slices.Contains(nodeWords, w) {
			return fmt.Errorf("words: %q is none; the words are %s, enrol", w, strings.Join(nodeWords, ", "))
		}
	}
	for name, p := range map[string]string{"state": s.State, "log": s.Log, "paths.pve": s.Paths.PVE} {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p {
			return fmt.Errorf("%s is an absolute path without . and ..", name)
		}
	}
	if s.Rules.Scripts.Empty() {
		s.Rules.Scripts = lane.Scope{Guests: s.Guests, Nodes: []string{"*"}}
	}
	for _, r := range s.Rules.Commands {
		if len(r.Pools) > 0 {
			return errors.New("rules.commands: a bridge has no pools: castellan could change them; name guests")
		}
	}
	if len(s.Rules.Scripts.Pools) > 0 {
		return errors.New("rules.scripts: a bridge has no pools: castellan could change them; name guests")
	}
	if _, err := s.Rules.Validate(); err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	if s.Root.Enabled && s.Root.Secret == "" {
		return errors.New("root.enabled needs root.secret, the file with the hash of the secret")
	}
	return nil
}

// guestID reads the canonical form of an id, and nothing else.
func guestID(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || strconv.Itoa(n) != s || n < 100 || n > 999_999_999 {
		return 0, fmt.Errorf("%.40q is no id of a guest: 100 to 999999999, as digits", s)
	}
	return n, nil
}

// hint says where a setting lies and who can change it.
func (s *Settings) hint(key, change string) string {
	return fmt.Sprintf("%s: %s in %s on the node. Only root there can change it; castellan cannot.", key, change, s.path)
}

// lanes are the open ones of a place.
func (s *Settings) lanes(w frame.Where) (open []string, key string) {
	if w == frame.Host {
		return s.Lanes.Host, "lanes.host"
	}
	return s.Lanes.LXC, "lanes.lxc"
}

// readGuarded reads a file that only root, or whoever runs this, can have written: the checks are made on the open
// handle, no part of the path is a link, and bits of forbid are in no mode.
func readGuarded(path string, most int64, forbid uint32) ([]byte, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%s: give an absolute path", path)
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s: a part of the path is a symbolic link; name the file itself", path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, fmt.Errorf("%s is no regular file", path)
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return nil, fmt.Errorf("%s belongs to user %d, not to root: chown root:root %s", path, st.Uid, path)
	case st.Mode&forbid != 0:
		return nil, fmt.Errorf("the mode of %s is %04o: chmod %04o %s", path, st.Mode&0o7777, st.Mode&0o7777&^forbid, path)
	case st.Size > most:
		return nil, fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		var d unix.Stat_t
		if err := unix.Lstat(dir, &d); err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		if d.Uid != 0 && int(d.Uid) != os.Geteuid() {
			return nil, fmt.Errorf("the folder %s belongs to user %d, not to root, who could put another file there", dir, d.Uid)
		}
		if d.Mode&0o022 != 0 && d.Mode&unix.S_ISVTX == 0 {
			return nil, fmt.Errorf("others may write in the folder %s, and so put another file there: chmod go-w %s", dir, dir)
		}
		if dir == "/" {
			break
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if int64(len(b)) > most {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	return b, nil
}

// allows says whether a list of settings names the guest.
func (s *Settings) allows(id int) bool {
	return slices.Contains(s.Guests, "*") || slices.Contains(s.Guests, strconv.Itoa(id))
}

// fields of a line "key: value".
func keyValue(line string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(line, ":")
	return strings.TrimSpace(key), strings.TrimSpace(value), ok
}
