package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"castellan/internal/anchor"
	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/guest"
	"castellan/internal/identity"
	notices "castellan/internal/notify"
	"castellan/internal/oauth"
	"castellan/internal/ops/pve"
	"castellan/internal/policy"
	"castellan/internal/proxmox"
	"castellan/internal/reach"
	"castellan/internal/restored"
	"castellan/internal/seal"
)

// systemConfig is where the daemon's configuration lies.
const systemConfig = "/etc/castellan/castellan.toml"

// configPlace is where the configuration lies when nobody says otherwise.
func configPlace() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "castellan/castellan.toml in the configuration folder of the account"
	}
	return filepath.Join(dir, "castellan", "castellan.toml")
}

// Settings is the whole configuration file. Every package owns its own part.
type Settings struct {
	Agent   string           `toml:"agent"`  // name of the agent that `serve` acts for; default "agent"
	Store   StoreSettings    `toml:"store"`  // where plans and ledger are kept
	Policy  policy.Settings  `toml:"policy"` // who may do what
	Targets []proxmox.Target `toml:"target"` // the remotes
	// Lanes say which commands and scripts may run where, Bridges how nodes and their containers are reached.
	Lanes   guest.LaneSettings     `toml:"lanes"`
	Bridges []guest.BridgeSettings `toml:"bridge"`
	// Restored says where files fetched from backups are saved.
	Restored RestoredSettings `toml:"restored"`
	// Patching says what guests are patched under.
	Patching pve.PatchingSettings `toml:"patching"`
	// Anchors hold the head of the ledger off this machine.
	Anchors []anchor.Settings `toml:"anchor"`
	// Notify says how people hear of plans that wait.
	Notify notices.Settings `toml:"notify"`
	Daemon DaemonSettings   `toml:"daemon"` // the process that serves others
	// Identity says how people sign in, OAuth how they let clients in.
	Identity identity.Settings `toml:"identity"`
	OAuth    oauth.Settings    `toml:"oauth"`
	// Self says what castellan itself depends on.
	Self reach.Settings `toml:"self"`
	// Socket of the daemon that commands and `serve` of this account use; nothing else in the file is then used.
	Socket string `toml:"socket"`
}

// StoreSettings say where state is kept.
type StoreSettings struct {
	URL  string `toml:"url"`  // SQLite file or postgres://…; default ~/.local/state/castellan/castellan.db
	Keys string `toml:"keys"` // folder of the keys; default the folder keys beside the configuration
	Head string `toml:"head"` // checkpoint of the ledger that must still be contained, as `audit verify` printed it
	// Retention is how long what is recorded is kept ("365d"); everything for ever when it is left out.
	Retention string `toml:"retention"`
}

// RestoredSettings say where files fetched from backups are saved.
type RestoredSettings struct {
	Folder string `toml:"folder"`  // absolute, of mode 0700; default the folder restored in the state folder
	MaxMiB int64  `toml:"max_mib"` // the most that one file may hold; default 1024
}

// folder is where restored files go.
func (s Settings) folder() (*restored.Folder, error) {
	if s.Restored.MaxMiB < 0 || s.Restored.MaxMiB > 1<<20 {
		return nil, fmt.Errorf("restored.max_mib is %d: give 1 to 1048576", s.Restored.MaxMiB)
	}
	dir := s.Restored.Folder
	if dir == "" {
		state, err := s.state()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(state, "restored")
	}
	return restored.New(restored.Config{Dir: dir, Limit: s.Restored.MaxMiB << 20})
}

// configPath is the file in use: --config, CASTELLAN_CONFIG, or the default place.
func (a *app) configPath() (string, error) {
	if a.config != "" {
		return a.config, nil
	}
	if p, ok := a.env("CASTELLAN_CONFIG"); ok && p != "" {
		return p, nil
	}
	if _, err := os.UserConfigDir(); err != nil {
		return "", fmt.Errorf("find configuration: %w", err)
	}
	if _, err := os.Stat(configPlace()); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(systemConfig); err == nil {
			return systemConfig, nil
		}
	}
	return configPlace(), nil
}

// load reads the configuration; notes say what the environment overrode.
func (a *app) load() (s Settings, path string, notes []string, err error) {
	if path, err = a.configPath(); err != nil {
		return s, path, nil, err
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, path, nil, fmt.Errorf("read configuration %s: %w", path, errNoConfig)
	}
	if err != nil {
		return s, path, nil, fmt.Errorf("read configuration: %w", err)
	}
	if s, err = parseSettings(b); err != nil {
		return s, path, nil, fmt.Errorf("read configuration %s: %w", path, err)
	}
	file := s
	look, named, loaded, err := a.environment(filepath.Dir(path))
	if err != nil {
		return s, path, nil, err
	}
	if notes, err = override(reflect.ValueOf(&s).Elem(), "CASTELLAN", "", look); err != nil {
		return s, path, nil, fmt.Errorf("read configuration from the environment: %w", err)
	}
	if notes, err = forgive(&s, file, notes); err != nil {
		return s, path, nil, fmt.Errorf("read configuration from the environment: %w", err)
	}
	notes = append(notes, loaded...)
	if err = misspelt(append(os.Environ(), named...)); err != nil {
		return s, path, nil, fmt.Errorf("read configuration from the environment: %w", err)
	}
	if err = a.become(s.Daemon.Account); err != nil {
		return s, path, nil, err
	}
	return s, path, notes, s.complete(filepath.Dir(path))
}

// parseSettings is strict: an unknown key is an error that names the nearest valid one.
func parseSettings(b []byte) (Settings, error) {
	var s Settings
	d := toml.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(&s)
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) {
		valid := keysOf(reflect.TypeFor[Settings](), "")
		var lines []string
		for _, e := range strict.Errors {
			row, _ := e.Position()
			key := strings.Join(e.Key(), ".")
			line := fmt.Sprintf("line %d: there is no key %s", row, key)
			if near := gate.Nearest(key, valid); near != "" {
				line += "; did you mean " + near + "?"
			}
			lines = append(lines, line)
		}
		return s, errors.New(strings.Join(lines, "; "))
	}
	var bad *toml.DecodeError
	if errors.As(err, &bad) {
		row, col := bad.Position()
		return s, fmt.Errorf("line %d, column %d: %w", row, col, err)
	}
	if err != nil {
		return s, err
	}
	var plain map[string]any
	if err := toml.Unmarshal(b, &plain); err != nil {
		return s, err
	}
	return s, unset(plain, "")
}

// complete fills in defaults.
func (s *Settings) complete(dir string) error {
	if s.Agent == "" {
		s.Agent = "agent"
	}
	if s.Store.Keys == "" {
		s.Store.Keys = filepath.Join(dir, "keys")
	}
	if s.Store.URL == "" || s.Restored.Folder == "" {
		state, err := s.state()
		if err != nil {
			return err
		}
		if s.Store.URL == "" {
			s.Store.URL = filepath.Join(state, "castellan.db")
		}
	}
	if _, err := s.folder(); err != nil {
		return err
	}
	if _, err := retentionOf(s.Store.Retention); err != nil {
		return err
	}
	if _, err := s.Self.Self(); err != nil {
		return err
	}
	_, err := s.Lanes.Validate(s.bridged())
	return errors.Join(anchor.Validate(s.Anchors), s.Notify.Validate(), err, guest.Settings{Bridges: s.Bridges}.Validate(s.bridged()))
}

// state is the folder in which castellan keeps what it has come to know.
func (s *Settings) state() (string, error) {
	if s.Store.URL != "" && !strings.Contains(s.Store.URL, "://") && filepath.IsAbs(s.Store.URL) {
		return filepath.Dir(s.Store.URL), nil
	}
	if s.Daemon.Account != "" {
		return "/var/lib/castellan", nil
	}
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the state folder: %w", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "castellan"), nil
}

// bridged lists the targets whose nodes can have bridges.
func (s Settings) bridged() []string {
	var out []string
	for _, t := range s.Targets {
		if t.Kind == "pve" {
			out = append(out, t.Name)
		}
	}
	return out
}

// sites lists the targets that have guests: a number or a pool means another guest on each of them.
func (s Settings) sites() []string {
	var out []string
	for _, t := range s.Targets {
		if t.Kind == "pve" || t.Kind == "pdm" {
			out = append(out, t.Name)
		}
	}
	return out
}

// unset finds values that a shell, or a person, should have filled in. v is the file as decoded without a type.
func unset(v any, at string) error {
	switch x := v.(type) {
	case string:
		if strings.TrimSpace(x) == "" {
			return fmt.Errorf("key %s is empty: give it a value, or leave the line out", at)
		}
		if strings.Contains(x, "${") {
			return fmt.Errorf("key %s holds %q: nothing is expanded here; write the value itself", at, x)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(x)) {
			if err := unset(x[k], strings.TrimPrefix(at+"."+k, ".")); err != nil {
				return err
			}
		}
	case []any:
		for i, e := range x {
			if err := unset(e, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func tomlName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
	if name == "-" {
		return ""
	}
	return name
}

// keysOf lists all keys of the settings as a.b.c.
func keysOf(t reflect.Type, at string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var out []string
	for i := range t.NumField() {
		name := tomlName(t.Field(i))
		if name == "" {
			continue
		}
		key := strings.TrimPrefix(at+"."+name, ".")
		out = append(append(out, key), keysOf(t.Field(i).Type, key)...)
	}
	return out
}

// environmentWon ends the note on a key that is set in both places.
const environmentWon = "the environment won"

// override takes settings from the environment: store.url is CASTELLAN_STORE_URL; lists are separated by commas.
func override(v reflect.Value, env, at string, look func(string) (string, bool)) ([]string, error) {
	var notes []string
	for i := range v.NumField() {
		f, name := v.Field(i), tomlName(v.Type().Field(i))
		if name == "" {
			continue
		}
		key := strings.TrimPrefix(at+"."+name, ".")
		variable := env + "_" + strings.ToUpper(strings.NewReplacer("-", "_").Replace(name))
		if f.Kind() == reflect.Struct {
			inner, err := override(f, variable, key, look)
			if err != nil {
				return nil, err
			}
			notes = append(notes, inner...)
			continue
		}
		text, ok := look(variable)
		if !ok {
			continue
		}
		if text == "" || strings.Contains(text, "${") {
			return nil, fmt.Errorf("%s is %q: unset it, or give it a value", variable, text)
		}
		was := !f.IsZero()
		if strings.HasPrefix(key, "lanes.") { // whoever starts castellan may be the agent's program: it closes lanes, and opens none
			if key != "lanes.probes_off" {
				return nil, fmt.Errorf("%s cannot be set by the environment, which may only close lanes; write %s into the file", variable, key)
			}
			text = strings.Join(append(slices.Clone(f.Interface().([]string)), text), ",")
		}
		switch {
		case f.Kind() == reflect.String:
			f.SetString(text)
		case f.Kind() == reflect.Bool:
			b, err := strconv.ParseBool(text)
			if err != nil {
				return nil, fmt.Errorf("%s is %q: true or false is wanted", variable, text)
			}
			f.SetBool(b)
		case f.Kind() == reflect.Int:
			n, err := strconv.Atoi(text)
			if err != nil {
				return nil, fmt.Errorf("%s is %q: a number is wanted", variable, text)
			}
			f.SetInt(int64(n))
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.String:
			f.Set(reflect.ValueOf(strings.Split(text, ",")).Convert(f.Type()))
		default:
			return nil, fmt.Errorf("%s cannot be set by the environment; write %s into the file", variable, key)
		}
		if was {
			notes = append(notes, fmt.Sprintf("%s is set in the file and by %s: "+environmentWon, key, variable))
		} else {
			notes = append(notes, fmt.Sprintf("%s comes from %s", key, variable))
		}
	}
	return notes, nil
}

// misspelt refuses a variable that is almost one of castellan's: a setting that silently does nothing is worse than none.
func misspelt(environ []string) error {
	valid := []string{"CASTELLAN_CONFIG", "CASTELLAN_ENV_FILE", "CASTELLAN_LOG"}
	for _, k := range keysOf(reflect.TypeFor[Settings](), "") {
		valid = append(valid, "CASTELLAN_"+strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(k)))
	}
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "CASTELLAN_") || slices.Contains(valid, name) {
			continue
		}
		if near := gate.Nearest(name, valid); near != "" && closeTo(name, near) {
			return fmt.Errorf("there is no setting %s; did you mean %s? Unset it, or spell it so", name, near)
		}
	}
	return nil
}

// closeTo: the same letters but for a separator or two, or one slip of the finger.
func closeTo(a, b string) bool {
	bare := strings.NewReplacer("_", "")
	a, b = bare.Replace(a), bare.Replace(b)
	return a == b || len(a) > 14 && gate.Nearest(a, []string{b}) != "" && max(len(a)-len(b), len(b)-len(a)) <= 1 && differing(a, b) <= 2
}

// differing counts the letters between the common beginning and the common end of two words.
func differing(a, b string) int {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return max(len(a), len(b))
}

// filesOf lists the files of a target that hold secrets.
func filesOf(t proxmox.Target) []string {
	files := []string{t.TokenFile, t.SecretFile, t.PasswordFile, t.TOTPFile, t.RecoveryFile}
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		files = append(files, t.Headers[name])
	}
	return slices.DeleteFunc(files, func(f string) bool { return f == "" })
}

// secretFiles lists all files that hold secrets, beside the keys.
func (s Settings) secretFiles() []string {
	var out []string
	for _, t := range s.Targets {
		out = append(out, filesOf(t)...)
	}
	more := []string{s.Daemon.TLSKey, s.Daemon.MetricsToken, s.Notify.Webhook.SecretFile, s.Notify.Ntfy.TokenFile, s.Notify.SMTP.PasswordFile}
	more = append(more, guest.Settings{Bridges: s.Bridges}.SecretFiles()...)
	for _, o := range s.Identity.OIDC {
		more = append(more, o.ClientSecretFile)
	}
	for _, c := range s.OAuth.Clients {
		more = append(more, c.SecretFile)
	}
	for _, f := range more {
		if f != "" {
			out = append(out, f)
		}
	}
	return out
}

// readable opens every file that holds a secret or key, as serve will.
func (s Settings) readable() error {
	var faults []error
	for _, t := range s.Targets {
		for _, f := range filesOf(t) {
			if _, err := seal.Open(f); err != nil {
				faults = append(faults, fmt.Errorf("target %s: %w", t.Name, err))
			}
		}
	}
	for _, f := range (guest.Settings{Bridges: s.Bridges}).SecretFiles() {
		if _, err := seal.Open(f); err != nil {
			faults = append(faults, fmt.Errorf("bridge: %w", err))
		}
	}
	if _, err := seal.OpenKeys(s.Store.Keys); err != nil {
		faults = append(faults, fmt.Errorf("open keys: %w", err))
	}
	return errors.Join(faults...)
}

func (a *app) configCommand() *cobra.Command {
	root := &cobra.Command{Use: "config", Short: "Look at the configuration, and set keys of it while castellan runs"}
	root.AddCommand(&cobra.Command{Use: "check", Short: "Read the configuration as serve would, and say what is wrong", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		s, path, notes, err := a.load()
		if err != nil {
			return err
		}
		if err := (proxmox.Settings{Targets: s.Targets}).Validate(); err != nil {
			return err
		}
		if _, err := a.checkedPolicy(s, filepath.Dir(path)); err != nil {
			return err
		}
		if err := s.readable(); err != nil {
			return err
		}
		if cli.JSON(cmd) {
			return cli.PrintJSON(a.out, map[string]any{"ok": true, "path": path, "targets": len(s.Targets), "notes": append([]string{}, notes...)})
		}
		for _, n := range notes {
			fmt.Fprintln(a.err, "note: "+cli.Safe(n))
		}
		wide, err := s.Lanes.Validate(s.bridged())
		if err != nil {
			return err
		}
		for _, w := range wide {
			fmt.Fprintln(a.err, "note: "+cli.Safe(w))
		}
		targets := fmt.Sprintf("%d targets", len(s.Targets))
		if len(s.Targets) == 1 {
			targets = "1 target"
		}
		fmt.Fprintf(a.out, "%s is good: %s, state in %s, keys in %s\n", path, targets, s.Store.URL, s.Store.Keys)
		return nil
	}})
	root.AddCommand(a.configShowCommand(), a.configSetCommand(), a.configUnsetCommand())
	return root
}
