package patch

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ParseCheck reads the answer to check. now is castellan's clock.
func ParseCheck(b []byte, now time.Time) (Report, error) {
	r, err := readReport(b, string(Check))
	if err != nil {
		return Report{}, err
	}
	out := Report{NotCovered: r.texts("uncovered", maxTexts)}
	r.base(&out, now)
	stale := r.texts("stale", 20)
	out.Fresh, out.Stale = r.text("fresh") == "yes" && len(stale) == 0, strings.Join(stale, "; ")
	if !out.Fresh && out.Stale == "" {
		out.Stale = "the guest did not say that it read all package lists"
	}
	if out.EOL = r.text("eol"); out.EOL == "" {
		out.EOL = endOfLife(out.System, now)
	}
	out.Releases = r.releases()
	for key, into := range map[string]*Transaction{"security": &out.Security, "all": &out.All} {
		if *into, err = r.transaction(key, out.System); err != nil {
			return Report{}, err
		}
	}
	if out.Fix, err = r.transaction("fix", out.System); err != nil {
		r.concern("what would complete the packages is none that castellan does: %s", clip(err.Error(), 200))
		out.Fix = nil
	}
	whys := map[string]bool{}
	for _, row := range r.all("pending", 8, 8, maxRows) {
		p := Pending{Name: row[0], Arch: row[1], Installed: row[2], Available: row[3], Archive: clip(row[4], 200), Sort: Sort(row[5]), Why: clip(row[6], 60), Note: clip(row[7], 300)}
		if !word(p.Name, "+._@~-") || !slices.Contains([]Sort{Security, Official, ThirdParty}, p.Sort) || p.Available == "" {
			r.concern("a line about a pending update is not valid: %q", clip(strings.Join(row, " "), 100))
			continue
		}
		if p.Why != "" && !whys[p.Why] && (len(whys) >= maxWhys || !word(p.Why, "_-")) {
			r.concern("the report gives reasons that are none, or too many of them")
			p.Why = "unknown"
		}
		whys[p.Why] = true
		p.Installed, p.Available, p.Arch = clip(p.Installed, 200), clip(p.Available, 200), clip(p.Arch, 30)
		out.Pending = append(out.Pending, p)
	}
	out.reasons(r)
	out.Unread = r.rest()
	return out, nil
}

// releases reads which states of archives the lists were read from.
func (r *report) releases() (out []Release) {
	for _, row := range r.all("release", 2, 4, 50) {
		x := Release{Archive: clip(row[0], 200), Sort: Sort(row[1])}
		if x.Archive == "" || x.Sort != Security && x.Sort != Official {
			r.concern("a line about an archive's state is not valid: %q", clip(strings.Join(row, " "), 100))
			continue
		}
		if n, ok := r.number("release", row[2], 1<<36); ok {
			x.Date = time.Unix(n, 0).UTC()
		} else {
			r.concern("when the state of %s was published is not told", x.Archive)
		}
		if n, ok := r.number("release", row[3], 1<<36); ok {
			x.Until = time.Unix(n, 0).UTC()
		}
		out = append(out, x)
	}
	return out
}

// frozenAfter is how old the state of an archive of updates may be: they are published anew within days, also where nothing changes.
const frozenAfter = 10 * 24 * time.Hour

// moves says whether an archive is published anew every few days, and nothing but its own date tells when it is not: that of security
// updates, and one of updates that says of no state until when it counts (apt itself refuses the state of one that does).
func (x Release) moves() bool {
	return x.Sort == Security || x.Until.IsZero() && strings.HasSuffix(x.Archive, "-updates")
}

// Frozen names the archives that show a state so old that updates may be withheld, each a line for a reader. It goes by
// castellan's clock: that of the guest is another matter.
func (out Report) Frozen() (why []string) {
	now := out.Clock.Add(-time.Duration(out.ClockOff) * time.Second)
	for _, x := range out.Releases {
		if out.Clock.IsZero() || !x.moves() || x.Date.IsZero() || now.Sub(x.Date) <= frozenAfter {
			continue
		}
		line := fmt.Sprintf("the archive %s shows the state of %s, %d days ago: a mirror that stands still, or somebody who withholds updates", x.Archive, x.Date.Format(time.DateOnly), int(now.Sub(x.Date)/(24*time.Hour)))
		if x.Until.IsZero() {
			line += " (it says of no state until when it counts)"
		}
		if !slices.Contains(why, line) {
			why = append(why, line)
		}
	}
	return why
}

// ParseStatus reads the answer to status: a Report without what could be installed.
func ParseStatus(b []byte, now time.Time) (Report, error) {
	r, err := readReport(b, string(Status))
	if err != nil {
		return Report{}, err
	}
	out := Report{Stale: "status does not look for updates"}
	r.base(&out, now)
	out.Unread = r.rest()
	return out, nil
}

// base reads what check and status have in common.
func (r *report) base(out *Report, now time.Time) {
	out.System, out.BootID, out.Clock, out.Cards = r.system(), r.bootID("boot"), r.when("clock"), r.cards()
	if out.Clock.IsZero() {
		r.concern("the guest did not tell its time")
	} else {
		out.ClockOff = out.Clock.Unix() - now.Unix()
	}
	out.Helper, out.Running = clip(r.text("helper"), 40), clip(r.text("running"), 80)
	out.Reboot, out.Packages = r.reboot(), r.database()
	if row := r.one("automatic", 1, 2); row != nil && slices.Contains([]string{"on", "off", "download"}, row[0]) {
		out.Automatic = Automatic{State: row[0], By: clip(row[1], 60)}
	} else {
		out.Automatic.State = "unknown"
	}
	if row := r.one("lock", 2, 3); row != nil {
		pid, _ := r.number("lock", row[0], 1<<31)
		since, _ := r.number("lock", row[2], 1<<36)
		out.Lock = &Lock{PID: int(pid), Program: clip(row[1], 60), Since: since}
	} else if len(r.rows["lock"]) > 0 {
		out.Lock = &Lock{Program: "unknown"} // that it is held is believed, whatever else is wrong with the line
	}
	for _, row := range r.all("space", 3, 3, 20) {
		free, ok := r.number("space", row[1], 1<<62)
		need, ok2 := r.number("space", row[2], 1<<62)
		if ok && ok2 && strings.HasPrefix(row[0], "/") {
			out.Space = append(out.Space, Space{Path: clip(row[0], 200), Free: free, Need: need})
		} else {
			r.concern("what is free on %q is not known", clip(row[0], 60))
		}
	}
}

// cards are the hardware addresses of the machine that answered, in lower case.
func (r *report) cards() (out []string) {
	for _, row := range r.all("card", 1, 1, maxRows) {
		if a, err := net.ParseMAC(row[0]); err == nil && len(a) == 6 {
			out = append(out, a.String())
		} else {
			r.concern("%q is no hardware address", clip(row[0], 40))
		}
	}
	return out
}

func (r *report) system() System {
	s := System{Kind: r.text("kind")}
	r.one("virt", 1, 1)
	row := r.one("system", 4, 5)
	if row == nil {
		s.Why = "the guest did not say what it is"
		return s
	}
	s.ID, s.Version, s.Codename, s.Name = clip(row[0], 40), clip(row[1], 40), clip(row[2], 40), clip(row[4], 100)
	if f := Family(row[3]); slices.Contains([]Family{APT, DNF, Pacman, Zypper, APK}, f) {
		s.Family = f
	}
	if !slices.Contains([]string{"", "pve", "pbs", "pmg"}, s.Kind) {
		r.concern("the guest says that it is a %q", clip(s.Kind, 20))
		s.Kind = ""
	}
	s.Supported, s.Why = supported(s)
	return s
}

// supported says whether castellan knows how to look after a distribution; others are refused, not guessed.
func supported(s System) (bool, string) {
	major, rest, _ := strings.Cut(s.Version, ".")
	n, err := strconv.Atoi(major)
	switch s.Family {
	case "":
		return false, "the distribution is none that castellan knows"
	case APT:
		switch {
		case s.ID == "debian" && err == nil && (n == 12 || n == 13):
			return true, ""
		case s.ID == "ubuntu" && err == nil && n >= 22 && n < 100 && (rest == "04" || rest == "10"):
			return true, ""
		}
		return false, "castellan knows Debian 12 and 13, and Ubuntu from 22.04"
	}
	return familySupported(s)
}

// ParseSystem reads the line "system" of a report of any word, as enrolment has it.
func ParseSystem(columns []string) (System, error) {
	r := &report{rows: map[string][][]string{"system": {columns}}, asked: map[string]bool{}}
	s := r.system()
	if s.ID == "" {
		return s, fmt.Errorf("read system: %s", s.Why)
	}
	return s, nil
}

func (r *report) reboot() (out Reboot) {
	worst := ""
	for _, row := range r.all("reboot", 1, 2, maxTexts) {
		switch {
		case row[0] == "yes", row[0] == "unknown" && worst != "yes", row[0] == "no" && worst == "":
			worst = row[0]
		case !slices.Contains([]string{"yes", "no", "unknown"}, row[0]):
			r.concern("whether a reboot is needed is said as %q", clip(row[0], 20))
		}
		if row[1] != "" && row[0] != "no" {
			out.Why = append(out.Why, clip(row[1], 300))
		}
	}
	out.Needed, out.Known = worst == "yes", worst == "yes" || worst == "no"
	return out
}

func (r *report) database() State {
	s := State{Problems: r.texts("problem", maxTexts), Repair: r.text("repair") == "yes"}
	said := r.text("database")
	s.Clean = said == "clean" && len(s.Problems) == 0 && !s.Repair
	if !s.Clean && len(s.Problems) == 0 {
		s.Problems = []string{"the guest did not say that its package database is clean"}
	}
	return s
}

// transaction reads what a mode would do now. What castellan would never install is an error: then nothing of the report can be
// gone by.
func (r *report) transaction(key string, system System) (Transaction, error) {
	out := Transaction{}
	if n := len(r.rows[key]); n > maxChanges {
		return nil, fmt.Errorf("read report: mode %s has %d changes; %d is the most", key, n, maxChanges)
	}
	r.asked[key] = true
	for _, row := range r.rows[key] {
		if len(row) != 3 && len(row) != 4 {
			return nil, fmt.Errorf("read report: a change of mode %s has %d columns", key, len(row))
		}
		c, err := ParseChange(row[0])
		if err != nil {
			return nil, err
		}
		if len(row) == 4 {
			c.Needs = undash(row[3])
		}
		c.Security = row[1] == "1"
		c.Bytes, _ = r.number(key, undash(row[2]), 1<<50)
		switch {
		case row[1] != "0" && row[1] != "1":
			return nil, fmt.Errorf("read report: whether %s is a security update is said as %q", c.Name, clip(row[1], 20))
		case c.Action == Remove && system.Family == APT && system.Kind == "":
			return nil, fmt.Errorf("read report: mode %s would remove %s, which castellan never does", key, c.Name)
		case key == "security" && c.Action == Upgrade && !c.Security:
			return nil, fmt.Errorf("read report: %s is in mode security and not from a security archive", c.Name)
		case system.Family == APT && system.Kind == "" && c.Action != Remove && !official(system, c.Archive):
			return nil, fmt.Errorf("read report: %s is from %s, which is no official archive of %s", c.Name, clip(c.Archive, 60), clip(system.Codename, 40))
		}
		out = append(out, c)
	}
	in := map[string]bool{}
	for _, c := range out {
		in[c.Name+":"+c.Arch] = true
	}
	for i, c := range out {
		for _, other := range strings.Fields(c.Needs) {
			if !in[other] {
				r.concern("%s is said to need %s, which mode %s does not bring", c.Name, clip(other, 100), key)
				out[i].Needs = ""
				break
			}
		}
	}
	return out, out.check()
}

// official says whether an archive of a Debian or Ubuntu is one that castellan installs from.
func official(s System, archive string) bool {
	var all []string
	switch s.ID {
	case "debian":
		all = []string{"Debian:" + s.Codename, "Debian:" + s.Codename + "-updates", "Debian-Security:" + s.Codename + "-security"}
	case "ubuntu":
		all = []string{"Ubuntu:" + s.Codename, "Ubuntu:" + s.Codename + "-updates", "Ubuntu:" + s.Codename + "-security"}
	}
	return s.Codename != "" && slices.Contains(all, archive)
}

// reasons holds what is pending against what will be installed: an update is one or the other.
func (out *Report) reasons(r *report) {
	will := map[[2]string]bool{}
	for _, c := range slices.Concat(out.All, out.Security) {
		will[[2]string{c.Name, c.New}] = true
	}
	for i, p := range out.Pending {
		if comes := will[[2]string{p.Name, p.Available}]; p.Why == "" && !comes {
			out.Pending[i].Why, out.Pending[i].Note = "unknown", "nothing would install it, and the guest does not say why"
		} else if p.Why != "" && comes && p.Sort != ThirdParty {
			r.concern("%s %s would be installed, and would not: %s", p.Name, clip(p.Available, 60), p.Why)
		}
	}
}

// Waiting counts the updates that an archive has, and those of them that nothing will install.
func (out Report) Waiting() (pending, kept int) {
	for _, p := range out.Pending {
		pending++
		if p.Why != "" {
			kept++
		}
	}
	return pending, kept
}

// UpToDate says that nothing official is pending, which only a report knows that read all lists just now and missed nothing.
func (out Report) UpToDate() bool {
	return out.Fresh && len(out.Frozen()) == 0 && len(out.All) == 0 && len(out.Security) == 0 && len(out.Unread) == 0 &&
		!slices.ContainsFunc(out.Pending, func(p Pending) bool { return p.Sort != ThirdParty && p.Why != "backports" })
}

// clockLimit is how far the clock of a guest may be off before signatures and their ends are not to be relied on, in seconds.
const clockLimit = 600

// Ready says what stands against installing now, each a line for a reader; empty = nothing. mode is "security", "all" or "full".
func (out Report) Ready(mode string) (why []string) {
	say := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	if !out.System.Supported {
		say("castellan does not look after this system: %s", out.System.Why)
	}
	if out.Running != "" {
		say("an installation is under way (%s)", out.Running)
	}
	if out.Lock != nil {
		say("%s (pid %d) works on packages now", dash(out.Lock.Program), out.Lock.PID)
	}
	if !out.Fresh {
		say("the package lists could not be refreshed: %s", out.Stale)
	}
	if !out.Packages.Clean {
		help := ""
		if out.Packages.Repair {
			help = "; repairing it is a plan of its own (repair_packages)"
		}
		say("the package database is not clean: %s%s", clip(strings.Join(out.Packages.Problems, "; "), 500), help)
	}
	if out.ClockWrong() {
		say("its clock is off by %s", (time.Duration(out.ClockOff) * time.Second).String())
	}
	for _, s := range out.Space {
		if s.Free < s.Need {
			say("%s has %s free, and %s are needed", s.Path, size(s.Free), size(s.Need))
		}
	}
	if mode == "security" || mode == "all" {
		if out.Removes(mode) {
			say("it would remove packages")
		}
	}
	return why
}

// ClockWrong says whether the guest's clock is too far off for archives to be judged by it.
func (out Report) ClockWrong() bool { return out.ClockOff > clockLimit || out.ClockOff < -clockLimit }

// Short are the paths that have less room than an installation needs.
func (out Report) Short() (paths []string) {
	for _, s := range out.Space {
		if s.Free < s.Need {
			paths = append(paths, s.Path)
		}
	}
	return paths
}

// Removes says whether a mode (security, all) would remove packages where that is refused.
func (out Report) Removes(mode string) bool {
	return out.System.Family == APT && slices.ContainsFunc(out.transactionOf(mode), func(c Change) bool { return c.Action == Remove })
}

func (out Report) transactionOf(mode string) Transaction {
	if mode == "security" {
		return out.Security
	}
	return out.All
}

func size(n int64) string {
	if n < 10<<20 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
