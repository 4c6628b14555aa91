package pve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"castellan/internal/backups"
	"castellan/internal/catalog"
	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/patch"
)

// PatchingSettings say what guests are patched under.
type PatchingSettings struct {
	// WithoutSnapshot is what happens to a guest that cannot be snapshotted: "refuse" (default), "backup" (vzdump first, as its
	// backup job does) or "person" (a person approves that there is no way back).
	WithoutSnapshot string `toml:"without_snapshot"`
	// MaxBackupAge ("36h", "7d"): a guest whose newest backup is older is not patched; not asked for when left out.
	MaxBackupAge string `toml:"max_backup_age"`
	// Settle is how long services may take after an installation until they count as worse than before ("90s", "5m"; default "2m").
	Settle string `toml:"settle"`
}

// The least and the most that services are given, and what they are given where nobody says otherwise.
const (
	leastSettle, mostSettle = 5 * time.Second, 30 * time.Minute
	usualSettle             = 2 * time.Minute
)

// settle is how long services are given.
func (s PatchingSettings) settle() time.Duration {
	if d, err := time.ParseDuration(s.Settle); err == nil {
		return d
	}
	return usualSettle
}

// What a guest without a snapshot gets.
const (
	bareRefuse = "refuse"
	bareBackup = "backup"
	barePerson = "person"
)

// Check says what is wrong with the settings.
func (s PatchingSettings) Check() error {
	if !slices.Contains([]string{"", bareRefuse, bareBackup, barePerson}, s.WithoutSnapshot) {
		return fmt.Errorf("patching.without_snapshot is %q: give refuse, backup or person", s.WithoutSnapshot)
	}
	if _, err := spanOf("patching.max_backup_age", s.MaxBackupAge); err != nil {
		return err
	}
	if d, err := time.ParseDuration(s.Settle); s.Settle != "" && (err != nil || d < leastSettle || d > mostSettle) {
		return fmt.Errorf("patching.settle is %q: give 5s to 30m", s.Settle)
	}
	return nil
}

// oldest is how old the newest backup may be, 0 when that is not asked for.
func (s PatchingSettings) oldest(hours int64) (time.Duration, error) {
	limit, err := spanOf("patching.max_backup_age", s.MaxBackupAge)
	if err != nil {
		return 0, err
	}
	if hours < 0 || hours > 24*3650 {
		return 0, gate.Fail(gate.ErrInvalid, "Give hours, from 1.", "max_backup_age_hours is %d", hours)
	}
	if asked := time.Duration(hours) * time.Hour; asked > 0 && (limit == 0 || asked < limit) { // a caller may ask for more, never for less
		limit = asked
	}
	return limit, nil
}

// word asks a guest's helper for one of the words that change nothing.
func (s *site) word(ctx context.Context, g estate.Guest, word string, more map[string]any) (gate.RunResult, error) {
	p := map[string]any{"node": gate.NodeOf(g.ID), "vmid": g.ID, "word": word}
	maps.Copy(p, more)
	res, err := s.v.Run(ctx, s.target(), catalog.MethodRun+" /nodes/{node}/"+g.Path()+"/{vmid}/updates", p)
	if err != nil {
		return res, err
	}
	if !res.OK {
		why := strings.TrimSpace(strings.Join([]string{res.Note, res.Said, res.Stderr}, " "))
		if why == "" {
			why = "it gave no answer"
		}
		return res, gate.Fail(gate.ErrUnavailable, "Ask again, or look at the guest itself.", "%s did not answer to %s: %s", g.Title(), word, clip(why, 300))
	}
	return res, nil
}

// told asks for a word whose answer is a report.
func told[T any](ctx context.Context, s *site, g estate.Guest, word string, more map[string]any) (out T, res gate.RunResult, err error) {
	if res, err = s.word(ctx, g, word, more); err != nil {
		return out, res, err
	}
	if err := json.Unmarshal(res.Report, &out); err != nil {
		return out, res, gate.Fail(gate.ErrUnavailable, "Ask again; where it stays so a person enrols the guest anew.", "what %s answered to %s cannot be read: %v", g.Title(), word, err)
	}
	return out, res, nil
}

// unasked says in which way a guest could not be asked: not set up for it, or set up and silent.
func unasked(err error) (enrolled bool, why string) {
	why, hint := err.Error(), ""
	var e *gate.Error
	var u *gate.UpstreamError
	switch {
	case errors.As(err, &e):
		why, hint = e.Message, e.Hint
	case errors.As(err, &u):
		why, hint = u.Message, u.Hint
	}
	return !strings.Contains(why, "not enrolled"), clip(strings.TrimSuffix(strings.TrimSuffix(why, ".")+". "+hint, ". "), 500)
}

// idle says why a guest is left as it is: nothing in it would answer.
func idle(g estate.Guest) string {
	switch {
	case g.NodeOff:
		return "node " + g.Node + " is not online"
	case g.Template:
		return "a template"
	case g.Status != "running":
		return cleared(g.Status)
	}
	return ""
}

// short forms of what is in a transaction

func changeLine(c patch.Change) string {
	name := c.Name
	if c.Arch != "" {
		name += ":" + c.Arch
	}
	switch c.Action {
	case patch.Remove:
		return "remove " + name + " " + c.Old
	case patch.Install:
		return "install " + name + " " + c.New + from(c.Archive)
	}
	return name + " " + c.Old + " → " + c.New + from(c.Archive)
}

func from(archive string) string {
	if archive == "" {
		return ""
	}
	return " (" + archive + ")"
}

// someOf keeps the first n texts and says how many there are more.
func someOf(list []string, n int) []string {
	if len(list) <= n {
		return list
	}
	return append(slices.Clone(list[:n]), fmt.Sprintf("and %d more", len(list)-n))
}

func names(t patch.Transaction) []string {
	out := make([]string, 0, len(t))
	for _, c := range t {
		out = append(out, clip(c.Name, 80))
	}
	return out
}

func lines(t patch.Transaction, n int) []string {
	var out []string
	for _, c := range t {
		out = append(out, clip(changeLine(c), 240))
	}
	return someOf(out, n)
}

// whyWords are the reasons for which something that is available is not installed, for a reader.
var whyWords = map[string]string{"held": "held", "pinned": "pinned", "phased": "phased: not yet for this machine", "esm_only": "only with an ESM subscription", "third_party": "from a third-party archive",
	"backports": "from backports", "needs_removal": "would remove something", "needs_new": "needs a new package", "not_security": "no security update"}

// kept says why each available version is not installed, one line a reason, the names bounded.
func kept(pending []patch.Pending, most int) []string {
	by := map[string][]string{}
	for _, p := range pending {
		why := clip(cmp.Or(whyWords[p.Why], strings.ReplaceAll(p.Why, "_", " ")), 60)
		name := clip(p.Name, 80)
		if p.Note != "" {
			name += " (" + clip(p.Note, 80) + ")"
		}
		by[why] = append(by[why], name)
	}
	var out []string
	for _, why := range slices.Sorted(maps.Keys(by)) {
		slices.Sort(by[why])
		out = append(out, fmt.Sprintf("%d not installed, %s: %s", len(by[why]), why, strings.Join(someOf(by[why], most), ", ")))
	}
	return out
}

// backedUp is when the newest backup was made that surely is of this guest; zero = none is known.
func (s *site) backedUp(ctx context.Context, ids ...string) map[string]time.Time {
	return backups.Book{}.Newest(ctx, s.v, s.target(), ids)
}

// isPoint says whether castellan took the snapshot before a change: by its name and by what it says of itself.
func (s snapshot) isPoint() bool {
	at, ours := strings.CutPrefix(string(s.Name), undoPrefix)
	_, err := time.Parse(undoStamp, at)
	return ours && err == nil && strings.TrimSpace(string(s.Description)) == undoDescription
}

// agentOff says of a VM that its settings leave the guest agent out: castellan can then not learn its address.
func agentOff(kind string, config estate.Config) bool {
	if kind != estate.VM {
		return false
	}
	enabled := properties("agent", config["agent"])["enabled"]
	return enabled == "" || enabled == "0"
}
