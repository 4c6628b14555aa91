//go:build linux

package bridge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"castellan/internal/frame"
)

func ownerAndKind(info fs.FileInfo) (uid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, false
	}
	return int(st.Uid), true
}

// Finding is one thing that was looked at.
type Finding struct {
	OK   bool   `json:"ok"`
	Text string `json:"text"`
	Mend string `json:"mend,omitempty"`
}

// Check looks at an installation and says what is wrong, with how to mend it.
func Check(ctx context.Context, path string) []Finding {
	var out []Finding
	say := func(err error, good, mend string) bool {
		f := Finding{OK: err == nil, Text: good}
		if err != nil {
			f.Text, f.Mend = err.Error(), mend
		}
		out = append(out, f)
		return err == nil
	}
	s, err := LoadSettings(path)
	if say(err, "the settings "+path+" can be read, and nobody but root can change them", "Correct the file, or take the one that castellan bridge install makes.") {
		out = append(out, checkSettings(ctx, s)...)
	}
	if err == nil && exists(filepath.Join(unitDir, serviceUnit)) {
		say(unitFits(s), serviceUnit+" is the unit for these settings", "Run castellan bridge install again, with --service, then systemctl restart castellan-bridge. Changes of your own belong into a drop-in: systemctl edit castellan-bridge.")
	}
	if exists(sudoersPath) {
		say(SudoIsNarrow(ctx), "sudo lets "+door+" run exactly one command, and "+runner+" none", "Remove other lines of sudoers for these accounts, and run castellan bridge install again.")
		keys := doorHome + "/.ssh/authorized_keys"
		text, err := readGuarded(keys, 1<<20, 0o022)
		if err == nil {
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && (!strings.HasPrefix(line, "restrict,from=") || !strings.Contains(line, `,command="/usr/bin/sudo -n `+forced+`" `)) {
					err = fmt.Errorf("%s holds a line that is not restricted to the forced command: %.80q", keys, line)
				}
			}
		}
		say(err, "castellan's key opens the forced command alone", "Run castellan bridge install again, with --key and --from.")
		say(sshdAdmits(ctx), "the node's sshd admits "+door, "Name the account there as well, and reload sshd.")
		_, err = readGuarded(ProgramPath, 1<<30, 0o022)
		say(err, ProgramPath+" can be changed by root alone", "Correct owner and mode, or run castellan bridge install again.")
	}
	return out
}

func checkSettings(ctx context.Context, s Settings) []Finding {
	var out []Finding
	say := func(err error, good, mend string) {
		f := Finding{OK: err == nil, Text: good}
		if err != nil {
			f.Text, f.Mend = err.Error(), mend
		}
		out = append(out, f)
	}
	b, err := New(Config{Settings: s})
	say(err, "state and record can be written", "Correct owner and mode of the folder and file that are named.")
	if err != nil {
		return out
	}
	defer b.Close()
	site, node, err := b.self()
	say(err, fmt.Sprintf("this is node %s of site %s", node, site), "Look whether /etc/pve is mounted: systemctl status pve-cluster.")
	if len(s.Lanes.LXC)+len(s.Files) > 0 {
		_, e1 := tool(s.Paths.LXCAttach, "lxc-attach")
		_, e2 := tool(s.Paths.LXCInfo, "lxc-info")
		say(errors.Join(e1, e2), "containers can be entered", "apt-get install lxc-pve")
		if len(s.Guests) == 0 {
			say(errors.New("lanes of containers are open, and guests names none"), "", s.hint("guests", "name ids"))
		}
	}
	if len(s.Lanes.Host)+len(s.Lanes.LXC)+len(s.Files)+len(s.Words) == 0 {
		out = append(out, Finding{OK: true, Text: "note: everything is off: castellan can run nothing here until lanes, files or words name something in " + s.path})
	}
	if len(s.Lanes.Host) > 0 {
		a, err := b.hostAccount()
		if err == nil {
			err = harmless(a)
		}
		say(err, "the account "+s.Account+" has no rights", "Give it no groups, or name another in account; castellan bridge install makes one.")
	}
	if s.Root.Enabled {
		_, err := secretFile(s.Root.Secret, "")
		say(err, "scripts as root on this host take a secret", "Write the line that castellan bridge secret prints to root.secret, owned by root, mode 0600.")
	}
	if slices.Contains(s.Words, wordMaintenance) {
		_, err := tool(s.Paths.HAManager, "ha-manager")
		say(err, "the HA manager can be asked for maintenance", "apt-get install pve-ha-manager")
	}
	if exists(unitDir+"/"+serviceUnit) || s.Service.Secret != "" {
		_, err := NewService(b)
		say(err, "the service is set up for loopback, with a secret", "Set service.secret to a file of root's with the line that castellan bridge secret prints, mode 0600.")
	}
	warnings, _ := s.Rules.Validate() // it was validated when it was read
	for _, w := range warnings {
		out = append(out, Finding{OK: true, Text: "note: rules: " + w})
	}
	if slices.Contains(s.Guests, "*") {
		out = append(out, Finding{OK: true, Text: "note: guests holds \"*\": every container of this node, also those made later"})
	}
	if slices.Contains(s.Lanes.Host, string(frame.Script)) {
		out = append(out, Finding{OK: true, Text: "note: any script may run on this host, as " + s.Account})
	}
	return out
}

// sshdAdmits looks for lists of sshd that leave the account out. An sshd that cannot be asked is not judged.
func sshdAdmits(ctx context.Context) error {
	out, err := command(ctx, "sshd", "-T", "-C", "user="+door+",host=localhost,addr=127.0.0.1")
	if err != nil {
		return nil
	}
	lists := map[string][]string{} // a name a line
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 1 {
			lists[f[0]] = append(lists[f[0]], f[1:]...)
		}
	}
	for _, key := range []string{"allowusers", "allowgroups"} {
		if l := lists[key]; len(l) > 0 && !slices.Contains(l, door) {
			return fmt.Errorf("sshd's %s does not name %s: %s", key, door, strings.Join(l, " "))
		}
	}
	for _, key := range []string{"denyusers", "denygroups"} {
		if slices.Contains(lists[key], door) {
			return fmt.Errorf("sshd's %s names %s", key, door)
		}
	}
	return nil
}

// harmless says which group gives an account more than its own.
func harmless(a account) error {
	u, err := user.Lookup(a.name)
	if err != nil {
		return err
	}
	ids, err := u.GroupIds()
	if err != nil {
		return err
	}
	for _, id := range ids {
		g, err := user.LookupGroupId(id)
		if err == nil && slices.Contains([]string{"root", "sudo", "wheel", "adm", "admin", "disk", "shadow", "docker", "lxd", "kvm", "www-data", "systemd-journal"}, g.Name) {
			return fmt.Errorf("the account %s is in the group %s", a.name, g.Name)
		}
	}
	return nil
}

// SudoIsNarrow asks sudo itself what the two accounts may run.
func SudoIsNarrow(ctx context.Context) error {
	out, err := command(ctx, "sudo", "-n", "-l", "-U", door)
	if err != nil {
		return err
	}
	var lines []string
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "(") {
			lines = append(lines, line)
		}
	}
	if want := "(root) NOPASSWD: " + forced; len(lines) != 1 || lines[0] != want {
		return fmt.Errorf("sudo lets %s run %q, and it should be exactly %q", door, lines, want)
	}
	out, _ = command(ctx, "sudo", "-n", "-l", "-U", runner) // it answers no with an exit code
	if strings.Contains(out, "may run the following") {
		return fmt.Errorf("sudo lets %s run commands: %.200s", runner, out)
	}
	if _, err := os.Stat(ProgramPath); err != nil {
		return err
	}
	return nil
}
