package patch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Started is the answer to upgrade-security, upgrade-all and repair.
type Started struct {
	ID      string
	Already bool   // an earlier ask of the same id started it
	Refused string // nothing was started: why
}

// ParseStarted reads it.
func ParseStarted(b []byte) (Started, error) {
	r, err := readReport(b, string(UpgradeSecurity), string(UpgradeAll), string(Repair))
	if err != nil {
		return Started{}, err
	}
	refused := r.texts("refused", 20)
	started, already := r.text("started"), r.text("already")
	switch {
	case len(refused) > 0 && started == "" && already == "":
		return Started{Refused: strings.Join(refused, "; ")}, nil
	case len(refused) == 0 && (started == "") != (already == ""):
		return Started{ID: clip(started+already, 80), Already: already != ""}, nil
	}
	return Started{}, fmt.Errorf("read report: it says neither that it was started nor that it was refused, or both")
}

// Ongoing is the answer to progress.
type Ongoing struct {
	ID       string    `json:"id,omitempty"`
	State    string    `json:"state"` // as of Outcome
	Mode     string    `json:"mode,omitempty"`
	Began    time.Time `json:"began,omitzero"`
	Note     string    `json:"note,omitempty"` // what it waits for
	Log      string    `json:"log,omitempty"`  // the end of the output
	LogBytes int64     `json:"log_bytes,omitempty"`
	Unread   []string  `json:"unread,omitempty"`
}

// ParseProgress reads the answer to progress.
func ParseProgress(b []byte) (Ongoing, error) {
	r, err := readReport(b, string(Progress))
	if err != nil {
		return Ongoing{}, err
	}
	p := Ongoing{}
	p.ID, p.State, p.Mode, p.Began = r.run()
	p.Note, p.Log, p.LogBytes = strings.Join(r.texts("note", 20), "; "), r.log(), r.logBytes()
	p.Unread = r.rest()
	return p, nil
}

// run reads which installation a report is about.
func (r *report) run() (id, state, mode string, began time.Time) {
	id, state, mode, began = clip(r.text("id"), 80), r.text("outcome"), r.text("mode"), r.when("began")
	if !slices.Contains([]string{"none", "running", "ended", "lost", "refused"}, state) {
		r.concern("how the installation stands is said as %q", clip(state, 20))
		state = "lost" // what is not known is not taken for ended, and not for nothing
	}
	if mode != "" && !slices.Contains([]string{"security", "all", "full", "repair"}, mode) {
		r.concern("the mode is %q", clip(mode, 20))
		mode = ""
	}
	return id, state, mode, began
}

// maxLog bounds the output of a package manager that is kept, in bytes.
const maxLog = 128 << 10

func (r *report) log() string {
	var b strings.Builder
	r.asked["log"] = true
	for _, row := range r.rows["log"] {
		if b.Len() > maxLog {
			b.WriteString("…\n")
			r.concern("the output is longer than %d bytes; the rest is left out", maxLog)
			break
		}
		b.WriteString(clip(strings.Join(row, " "), 1000))
		b.WriteByte('\n')
	}
	return b.String()
}

func (r *report) logBytes() int64 {
	n, _ := r.count("log-bytes", 1<<50)
	return n
}

// ParseResult reads the answer to result.
func ParseResult(b []byte) (Outcome, error) {
	r, err := readReport(b, string(Result))
	if err != nil {
		return Outcome{}, err
	}
	r.system()
	for _, key := range []string{"clock", "helper", "boot"} {
		r.one(key, 1, 1)
	}
	o := Outcome{Ended: r.when("ended"), Stale: clip(strings.Join(r.texts("stale", maxTexts), "; "), 4000), Conffiles: r.texts("conffile", maxTexts), Log: r.log(), LogBytes: r.logBytes(), Cards: r.cards()}
	o.ID, o.State, o.Mode, o.Began = r.run()
	if text := r.text("exit"); text != "" {
		if n, err := strconv.Atoi(text); err == nil && n >= 0 && n < 256 {
			o.Exit = &n
		} else {
			r.concern("the exit code is %q", clip(text, 20))
		}
	}
	for key, into := range map[string]*Transaction{"asked": &o.Asked, "done": &o.Done} {
		if *into, err = r.changes(key); err != nil {
			return Outcome{}, err
		}
	}
	if o.State != "none" {
		o.Packages, o.Reboot = r.database(), r.reboot()
	}
	if r.has("before-") {
		o.Before = r.house("before-")
	}
	if r.has("after-") {
		o.After = r.house("after-")
	}
	if o.Before != nil && o.After != nil {
		o.Services = Compare(*o.Before, *o.After)
	}
	if o.State == "ended" || o.State == "lost" {
		o.Against(o.Asked, false)
	}
	o.Note = strings.Join(append(r.texts("note", 20), r.rest()...), "; ")
	return o, nil
}

func (r *report) has(prefix string) bool {
	for key := range r.rows {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

func (r *report) changes(key string) (Transaction, error) {
	var out Transaction
	if n := len(r.rows[key]); n > maxChanges {
		return nil, fmt.Errorf("read report: %q has %d changes; %d is the most", key, n, maxChanges)
	}
	r.asked[key] = true
	for _, row := range r.rows[key] {
		if len(row) != 1 {
			return nil, fmt.Errorf("read report: a change of %q has %d columns", key, len(row))
		}
		c, err := parseChange(row[0])
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, out.check()
}

// Against says what is missing and what is beyond, held against what castellan itself asked for rather than what the guest says
// that it was asked. Where newer versions were allowed, one that the guest says it took counts, of the same package from the same
// archive. A repair asks for nothing by name; that it was one is the guest's word, so what castellan asked for counts first.
func (o *Outcome) Against(asked Transaction, newer bool) {
	o.Missing, o.Beyond = nil, nil
	if o.Mode == "repair" && len(asked) == 0 {
		return
	}
	asked = slices.Clone(asked)
	for i, c := range asked {
		for _, took := range o.Asked {
			if newer && took.Action == c.Action && took.Name == c.Name && took.Arch == c.Arch && took.Old == c.Old && took.Archive == c.Archive {
				asked[i].New = took.New
			}
		}
	}
	o.Missing, o.Beyond = differ(asked, o.Done)
}

// Verdict says whether an installation went well, and what speaks against it. It goes by what is, not by exit codes.
func (o Outcome) Verdict() (ok bool, why []string) {
	against, unknown := o.Judge()
	why = append(against, unknown...)
	return len(why) == 0, why
}

// Judge tells what is seen to speak against an installation, and apart from it what is only not known.
func (o Outcome) Judge() (against, unknown []string) {
	say := func(format string, args ...any) { against = append(against, fmt.Sprintf(format, args...)) }
	doubt := func(format string, args ...any) { unknown = append(unknown, fmt.Sprintf(format, args...)) }
	switch o.State {
	case "ended":
	case "lost":
		doubt("it was started, and its end is not known")
	case "running":
		say("it still runs")
	case "refused":
		say("nothing was installed: %s", dash(o.Stale))
	default:
		say("nothing was installed")
	}
	if o.ID == "" {
		doubt("which installation this is about is not known")
	}
	if o.State == "ended" && o.Mode != "repair" && len(o.Asked) == 0 {
		doubt("what was asked for is not known")
	}
	if n := len(o.Missing); n > 0 {
		say("%d asked for and not done: %s", n, names(o.Missing))
	}
	if n := len(o.Beyond); n > 0 {
		say("%d changed that were not asked for: %s", n, names(o.Beyond))
	}
	if o.State == "ended" || o.State == "lost" {
		if !o.Packages.Clean {
			say("the package database is not clean: %s", clip(strings.Join(o.Packages.Problems, "; "), 500))
		}
		if o.Before == nil || o.After == nil {
			doubt("the services before and after cannot be compared")
		}
	}
	against = append(against, o.Services.Worse...)
	for _, text := range o.Services.Unread {
		doubt("not known: %s", text)
	}
	return against, unknown
}

// names are the packages of a transaction, the first few.
func names(t Transaction) string {
	var out []string
	for i, c := range t {
		if i == 10 {
			out = append(out, fmt.Sprintf("and %d more", len(t)-i))
			break
		}
		out = append(out, fmt.Sprintf("%s %s → %s", c.Name, dash(c.Old), dash(c.New)))
	}
	return strings.Join(out, ", ")
}
