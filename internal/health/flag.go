// Package health tells what ails a guest, a node or a site: fixed probes, read in parallel and each within a time
// limit, and pure functions from what was read to flags with evidence. What could not be read is a flag of its own.
package health

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Level says how bad a flag is.
type Level string

// The levels, best first.
const (
	Healthy  Level = "healthy"
	Info     Level = "info"
	Warning  Level = "warning"
	Critical Level = "critical"
)

func (l Level) rank() int { return slices.Index([]Level{Healthy, Info, Warning, Critical}, l) }

// Worse returns the worse of two levels.
func Worse(a, b Level) Level {
	if b.rank() > a.rank() {
		return b
	}
	return a
}

// Confidence says how sure it is that a flag explains slowness. It follows from the evidence and from nothing else.
type Confidence string

// The confidences.
const (
	// Certain: the state itself keeps the guest from working: paused, locked, a full disk.
	Certain Confidence = "certain"
	// Likely: waiting was measured (pressure), or the figure is beyond its threshold now and for most of the last hour.
	Likely Confidence = "likely"
	// Possible: one figure only, or a circumstance such as a busy neighbour or a running backup.
	Possible Confidence = "possible"
)

func (c Confidence) rank() int { return slices.Index([]Confidence{"", Possible, Likely, Certain}, c) }

// Evidence is one figure behind a flag.
type Evidence struct {
	Figure    string `json:"figure"`              // what was measured
	Value     string `json:"value"`               // with its unit
	Threshold string `json:"threshold,omitempty"` // from which value on it counts
	Source    string `json:"source"`              // the read that told it
}

// Next is the operation to call next.
type Next struct {
	Operation string            `json:"operation"`
	Arguments map[string]string `json:"arguments,omitempty"`
}

// Flag is one thing found.
type Flag struct {
	Level      Level      `json:"level"`
	Check      string     `json:"check"` // which check found it: a fixed word
	Where      string     `json:"where"`
	What       string     `json:"what"`
	Confidence Confidence `json:"confidence,omitempty"` // of causes: how sure that it explains slowness
	Evidence   []Evidence `json:"evidence,omitempty"`
	Since      string     `json:"since,omitempty"` // RFC 3339; the earliest that was seen, at least
	Next       *Next      `json:"next,omitempty"`

	excess float64 // how far beyond its threshold, for ranking
}

// Unread is a part that could not be read: a flag of its own, so that an empty list never reads as healthy.
type Unread struct {
	Part    string `json:"part"`
	Where   string `json:"where,omitempty"`
	Why     string `json:"why"`
	Missing string `json:"missing_privilege,omitempty"` // "Sys.Audit on /nodes/pve1"
	Grant   string `json:"grant,omitempty"`             // the command that would give it
	Hides   Level  `json:"hides"`                       // the worst that it could tell
}

// rank sorts flags: worst first, then surest, then those farthest beyond their threshold.
func rank(flags []Flag) {
	slices.SortStableFunc(flags, func(a, b Flag) int {
		return cmp.Or(cmp.Compare(b.Level.rank(), a.Level.rank()), cmp.Compare(b.Confidence.rank(), a.Confidence.rank()), cmp.Compare(b.excess, a.excess),
			cmp.Compare(a.Check, b.Check), cmp.Compare(a.Where, b.Where))
	})
}

// rankCauses sorts causes: surest first, then worst.
func rankCauses(flags []Flag) {
	slices.SortStableFunc(flags, func(a, b Flag) int {
		return cmp.Or(cmp.Compare(b.Confidence.rank(), a.Confidence.rank()), cmp.Compare(b.Level.rank(), a.Level.rank()), cmp.Compare(b.excess, a.excess),
			cmp.Compare(a.Check, b.Check), cmp.Compare(a.Where, b.Where))
	})
}

// Verdict is the whole in one word: the worst that was found and the worst that may hide in what could not be read.
type Verdict struct {
	Word    string `json:"verdict"`            // healthy, info, warning, critical; unknown when nothing bad was found and something bad may hide in what could not be read
	CouldBe Level  `json:"could_be,omitempty"` // the worst that the unread parts may hide, where that is worse than what was found
}

// Judge makes the verdict.
func Judge(flags []Flag, unread []Unread) Verdict {
	found, hidden := Healthy, Healthy
	for _, f := range flags {
		found = Worse(found, f.Level)
	}
	for _, u := range unread {
		hidden = Worse(hidden, u.Hides)
	}
	v := Verdict{Word: string(found)}
	if hidden.rank() > found.rank() {
		v.CouldBe = hidden
	}
	if hidden.rank() > found.rank() && hidden.rank() >= Warning.rank() && found.rank() <= Info.rank() {
		v.Word = "unknown"
	}
	return v
}

// merge joins parts that could not be read on several nodes or guests for the same reason, so that a large site tells it once.
func merge(unread []Unread) []Unread {
	type key struct {
		part, why, missing string
		hides              Level
	}
	at := map[key]int{}
	var out []Unread
	var where [][]string
	for _, u := range unread {
		words := strings.Fields(u.Where)
		name := ""
		if len(words) == 2 {
			name = words[1] // "node pve1", "CT 105"
		}
		each := func(s string) string {
			if name == "" {
				return s
			}
			return strings.ReplaceAll(s, "/"+name, "/{each}")
		}
		k := key{u.Part, each(u.Why), each(u.Missing), u.Hides}
		i, again := at[k]
		if !again {
			i = len(out)
			at[k] = i
			out = append(out, u)
			where = append(where, nil)
		}
		if !slices.Contains(where[i], u.Where) {
			where[i] = append(where[i], u.Where)
		}
	}
	for k, i := range at {
		if w := where[i]; len(w) > 1 {
			slices.Sort(w)
			out[i].Where, out[i].Why, out[i].Missing = some(w, 8), k.why, k.missing
		}
	}
	slices.SortStableFunc(out, func(a, b Unread) int {
		return cmp.Or(cmp.Compare(b.Hides.rank(), a.Hides.rank()), cmp.Compare(a.Part, b.Part), cmp.Compare(a.Where, b.Where), cmp.Compare(a.Why, b.Why))
	})
	return out
}

// some names the first few of a list.
func some(list []string, most int) string {
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}

// clean bounds a text that others chose and takes out what steers a reader unseen.
func clean(s string, most int) string {
	n := 0
	text := plainText(s)
	for i := range text {
		if n == most {
			return text[:i] + "…"
		}
		n++
	}
	return text
}

// Figures as people read them.

func pct(f float64) string { return strconv.FormatFloat(f*100, 'f', 1, 64) + " %" }

// points writes a figure that is in percent already.
func points(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) + " %" }

func plain(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func short(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) }

func size(n float64) string {
	for _, u := range []struct {
		name string
		n    float64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.n {
			return strconv.FormatFloat(n/u.n, 'f', 1, 64) + " " + u.name
		}
	}
	return strconv.FormatFloat(n, 'f', 0, 64) + " B"
}

func rate(n float64) string { return size(n) + "/s" }

func stamp(unix int64) string {
	if unix <= 0 {
		return ""
	}
	return time.Unix(unix, 0).UTC().Format(time.RFC3339)
}

func span(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", int(d.Hours()))
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d minutes", int(d.Minutes()))
	}
	return fmt.Sprintf("%d seconds", int(d.Seconds()))
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
