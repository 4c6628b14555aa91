// Package patch is what castellan knows of the packages of a guest or node: what could be installed and why not, the exact
// transaction that is asked for, how it went, and what the services were before and after. It is made from the reports of
// package helper's words, which are a guest's own: bounded, cleaned, and believed where they raise concern.
//
// It asks nobody; package channel brings the reports, package gate carries the transactions out.
package patch

import "time"

// Word is what a guest's helper is asked for. They are all that the channel into a guest takes.
type Word string

// The words.
const (
	Check           Word = "check"            // refreshes the package lists and tells what could be installed
	Status          Word = "status"           // boot id, clock, whether something is being installed
	Services        Word = "services"         // services, failed units, listening ports
	UpgradeSecurity Word = "upgrade-security" // installs the transaction on its standard input, from security archives only
	UpgradeAll      Word = "upgrade-all"      // the same from all official archives
	Progress        Word = "progress"         // how the installation under way goes: the end of its output
	Result          Word = "result"           // how the last installation went
	Repair          Word = "repair"           // finishes what an interrupted installation left
)

// Words lists them.
func Words() []Word {
	return []Word{Check, Status, Services, UpgradeSecurity, UpgradeAll, Progress, Result, Repair}
}

// Family is how packages are handled.
type Family string

// The families; others are refused, not guessed.
const (
	APT    Family = "apt"
	DNF    Family = "dnf"
	Pacman Family = "pacman"
	Zypper Family = "zypper"
	APK    Family = "apk"
)

// System is what runs in the guest.
type System struct {
	ID        string `json:"id"` // "debian", "ubuntu", "alpine", ...
	Version   string `json:"version,omitempty"`
	Codename  string `json:"codename,omitempty"`
	Name      string `json:"name,omitempty"` // "Debian GNU/Linux 12 (bookworm)"
	Family    Family `json:"family,omitempty"`
	Supported bool   `json:"supported"`
	Why       string `json:"why,omitempty"`  // it is not, or what this family cannot do
	Kind      string `json:"kind,omitempty"` // of a node: "pve", "pbs", "pmg"
}

// Action is what happens to one package.
type Action string

// The actions.
const (
	Upgrade Action = "upgrade"
	Install Action = "install" // a package that is not there yet
	Remove  Action = "remove"
)

// Change is one package of a transaction. Its text is "upgrade name:arch old new archive", "install name:arch - new archive" or
// "remove name:arch old - -".
type Change struct {
	Action   Action `json:"action"`
	Name     string `json:"name"`
	Arch     string `json:"arch"`
	Old      string `json:"old,omitempty"`
	New      string `json:"new,omitempty"`
	Archive  string `json:"archive,omitempty"` // "Debian-Security:bookworm-security": origin or label, and suite or repository; no spaces
	Security bool   `json:"security,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"` // to fetch; 0 = not told
	Needs    string `json:"needs,omitempty"` // others of its transaction that it cannot be had without: "name:arch name:arch"
}

// Transaction is what comes and what goes, sorted by name and architecture.
type Transaction []Change

// Sort says where an available version comes from.
type Sort string

// The sorts.
const (
	Security   Sort = "security"
	Official   Sort = "official"    // of the distribution, not security
	ThirdParty Sort = "third_party" // any other archive: reported, never installed
)

// Pending is a newer version that some archive has.
type Pending struct {
	Name      string `json:"name"`
	Arch      string `json:"arch,omitempty"`
	Installed string `json:"installed"`
	Available string `json:"available"`
	Archive   string `json:"archive,omitempty"`
	Sort      Sort   `json:"sort"`
	// Why it will not be installed: "held", "pinned", "phased", "esm_only", "third_party", "backports", "needs_removal" (with what),
	// "needs_new", "not_security" ... empty = it will be.
	Why  string `json:"why,omitempty"`
	Note string `json:"note,omitempty"` // what Why is about: the pin, what would be removed
}

// Release is the state of an archive that the package lists were read from.
type Release struct {
	Archive string    `json:"archive"`
	Sort    Sort      `json:"sort"`
	Date    time.Time `json:"date,omitzero"`  // when it was published, signed by the distribution
	Until   time.Time `json:"until,omitzero"` // then it counts no more; zero: it says nothing
}

// Report is the answer to Check, and in part to Status.
type Report struct {
	System   System    `json:"system"`
	BootID   string    `json:"boot_id"`
	Clock    time.Time `json:"clock"`     // as the guest has it
	ClockOff int64     `json:"clock_off"` // seconds that it differs from castellan's

	// Fresh: the package lists were read from all archives just now. Where it is false nothing here says "up to date".
	Fresh    bool      `json:"fresh"`
	Stale    string    `json:"stale,omitempty"` // why not: which archive, expired release file, wrong clock, key
	Releases []Release `json:"releases,omitempty"`
	EOL      string    `json:"eol,omitempty"`    // the release gets no more updates: since when, how it is known
	Unread   []string  `json:"unread,omitempty"` // what could not be found out

	Security Transaction `json:"security"`      // what mode security would do now
	All      Transaction `json:"all"`           // what mode all would do now (of a node: full)
	Fix      Transaction `json:"fix,omitempty"` // what would complete packages whose dependencies are not met, for a repair
	Pending  []Pending   `json:"pending,omitempty"`

	Reboot     Reboot    `json:"reboot"`
	Automatic  Automatic `json:"automatic"`
	Packages   State     `json:"packages"`
	Lock       *Lock     `json:"lock,omitempty"` // somebody works on packages now
	Space      []Space   `json:"space,omitempty"`
	NotCovered []string  `json:"not_covered,omitempty"` // container images, software installed by hand, language packages
	Helper     string    `json:"helper,omitempty"`      // its version
	Running    string    `json:"running,omitempty"`     // id of an installation under way
	Cards      []string  `json:"-"`                     // hardware addresses of whatever machine answered
}

// Reboot says whether a reboot is needed. Known is false where that cannot be told.
type Reboot struct {
	Needed bool     `json:"needed"`
	Known  bool     `json:"known"`
	Why    []string `json:"why,omitempty"` // packages, or "kernel 6.1.0-28 is installed, 6.1.0-27 runs"
}

// Automatic is whether the guest installs updates by itself.
type Automatic struct {
	State string `json:"state"`        // "on", "off", "download" or "unknown"
	By    string `json:"by,omitempty"` // "unattended-upgrades", "dnf-automatic", ...
}

// State is how the package database is.
type State struct {
	Clean    bool     `json:"clean"`
	Problems []string `json:"problems,omitempty"` // "dpkg was interrupted", "demo-fail is half-configured", "unmet: ..."
	Repair   bool     `json:"repair"`             // the word repair is what helps
}

// Lock names who holds the lock of the package database.
type Lock struct {
	PID     int    `json:"pid"`
	Program string `json:"program"`         // "unattended-upgr"
	Since   int64  `json:"since,omitempty"` // seconds
}

// Space is what is free and needed on a file system, in bytes.
type Space struct {
	Path string `json:"path"` // "/", "/boot", "/var"
	Free int64  `json:"free"`
	Need int64  `json:"need"` // of mode all, with a margin
}

// House is what runs in a guest: the answer to Services.
type House struct {
	BootID string   `json:"boot_id"`
	State  string   `json:"state"` // of the init system: "running", "degraded", ...; empty = it cannot tell
	Units  []Unit   `json:"units"`
	Ports  []Port   `json:"ports"`
	Unread []string `json:"unread,omitempty"`
	Cards  []string `json:"-"` // hardware addresses of whatever machine answered
}

// Unit is a service as the init system has it.
type Unit struct {
	Name     string `json:"name"`
	Active   string `json:"active"` // "active", "failed", "inactive", ...
	Sub      string `json:"sub,omitempty"`
	Enabled  bool   `json:"enabled,omitempty"`
	Restarts int    `json:"restarts,omitempty"`
}

// Port is one on which something listens.
type Port struct {
	Proto   string `json:"proto"` // "tcp", "udp"
	Address string `json:"address"`
	Port    int    `json:"port"`
	Program string `json:"program,omitempty"`
	Owner   string `json:"owner,omitempty"` // "system"; "account": of somebody who has an account there; empty: not told
	// Reached: castellan itself opened a connection to it, which no report can feign; nil = it was not tried.
	Reached *bool `json:"reached,omitempty"`
}

// Difference is how a house differs from what it was. Each entry is a line for a reader.
type Difference struct {
	Worse  []string `json:"worse,omitempty"`  // failed, gone, restarting all the time, no longer listening or reachable
	Better []string `json:"better,omitempty"` // failed before and not now
	Other  []string `json:"other,omitempty"`  // new services and ports, restarted ones
	Unread []string `json:"unread,omitempty"` // what cannot be compared
}

// Outcome is how an installation went: the answer to Result.
type Outcome struct {
	ID    string    `json:"id"`    // of the run that started it
	State string    `json:"state"` // "none", "running", "ended", "lost" (it was started and its end is not known), "refused"
	Mode  string    `json:"mode,omitempty"`
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	Exit  *int      `json:"exit,omitempty"` // of the package manager: no verdict

	Asked   Transaction `json:"asked,omitempty"`
	Done    Transaction `json:"done,omitempty"`    // what changed, as the package database has it
	Missing Transaction `json:"missing,omitempty"` // asked for and not done
	Beyond  Transaction `json:"beyond,omitempty"`  // changed and not asked for
	Stale   string      `json:"stale,omitempty"`   // of "refused": what differs from what was asked for; nothing was changed

	Packages  State      `json:"packages"`
	Conffiles []string   `json:"conffiles,omitempty"` // kept as they were; the new ones lie beside them
	Before    *House     `json:"before,omitempty"`
	After     *House     `json:"after,omitempty"`
	Services  Difference `json:"services"`
	Reboot    Reboot     `json:"reboot"`
	Log       string     `json:"log,omitempty"` // of the package manager, its middle cut out
	LogBytes  int64      `json:"log_bytes,omitempty"`
	Note      string     `json:"note,omitempty"`
	Cards     []string   `json:"-"` // hardware addresses of whatever machine answered
}
