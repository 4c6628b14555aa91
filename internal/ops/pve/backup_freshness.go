package pve

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/backups"
	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/ops/table"
)

type backupFreshnessIn struct {
	Guest  string `json:"guest,omitempty" jsonschema:"id or unique name; default: all"`
	Only   string `json:"verdict,omitempty" enum:"never,stale,uncovered,unknown,orphaned,new,parked,template,fresh"`
	MaxAge string `json:"max_age,omitempty" jsonschema:"older is stale, e.g. 24h"`
	Grace  string `json:"grace,omitempty" jsonschema:"how long a run may take; default 6h"`
	table.Ask
	Target string `json:"target,omitempty"`
}

type backupFreshnessOut struct {
	Counts     map[string]int   `json:"counts"`
	Guests     []map[string]any `json:"guests"` // the gravest first
	Complete   bool             `json:"complete"`
	Incomplete []string         `json:"incomplete,omitempty"`
	Grant      string           `json:"grant,omitempty"` // the pveum line that gives castellan's own user what it lacks for this
	table.Count
}

var freshnessColumns = table.Columns{All: []string{"vmid", "name", "node", "status", "verdict", "why", "newest", "age", "storage", "verify", "archives", "others", "jobs", "due", "next", "left_out", "failed", "running"}}

func backupFreshness() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "backup_freshness", Summary: "Which guests have the backups that their jobs promise; the gravest first. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "backup age stale missing never uncovered orphaned last backup overdue schedule promise archives vzdump pbs check", Toolset: "standard", Bounded: true,
	}, runBackupFreshness)
}

func runBackupFreshness(ctx context.Context, v gate.View, in backupFreshnessIn) (backupFreshnessOut, error) {
	q := backups.Question{}
	var err error
	if q.MaxAge, err = spanOf("max_age", in.MaxAge); err != nil {
		return backupFreshnessOut{}, err
	}
	if q.Grace, err = spanOf("grace", in.Grace); err != nil {
		return backupFreshnessOut{}, err
	}
	if q.Guest, err = guestOrOrphan(ctx, v, in.Target, in.Guest); err != nil {
		return backupFreshnessOut{}, err
	}
	s, err := backups.Look(ctx, v, in.Target, q)
	if err != nil {
		return backupFreshnessOut{}, err
	}
	states := s.States(seen(ctx, v, s.Inventory.Target.Name))
	if q.Guest != "" && len(states) == 0 {
		return backupFreshnessOut{}, gate.Fail(gate.ErrNotFound, "list_guests shows the guests.", "there is no guest %s, and no archive of that id can be seen", q.Guest)
	}
	out := backupFreshnessOut{Counts: backups.Counted(states), Complete: len(s.Missing) == 0, Incomplete: bounded(s.Missing)}
	if !v.Scoped() { // a limited caller is not told of castellan's own user
		var grants []backups.Grant
		for _, g := range s.Gaps {
			grants = append(grants, g.Grants...)
		}
		give, limited := &granting{ctx: ctx, v: v, t: s.Inventory.Target}, false
		if _, out.Grant, limited = give.of(grants); limited {
			out.Incomplete = append(out.Incomplete, give.limit())
		}
	}
	states = slices.DeleteFunc(states, func(st backups.State) bool { return in.Only != "" && string(st.Verdict) != in.Only })
	out.Guests, out.Count, err = table.Cut(in.Ask, freshnessColumns, states, func(st backups.State) string { return st.ID }, func(st backups.State) map[string]any { return freshnessRow(s, st) })
	return out, err
}

func freshnessRow(s *backups.Site, st backups.State) map[string]any {
	row := map[string]any{"vmid": st.ID, "name": st.Guest.Name, "node": st.Guest.Node, "status": st.Guest.Status, "verdict": string(st.Verdict), "why": clip(st.Why, 500),
		"archives": st.Archives, "others": st.Others, "jobs": strings.Join(st.Jobs[:min(len(st.Jobs), 8)], ","), "left_out": strings.Join(st.LeftOut[:min(len(st.LeftOut), 12)], ","), "running": st.Running}
	if a := st.Newest; a != nil && !a.Time.IsZero() {
		row["newest"], row["age"], row["storage"], row["verify"] = a.Time.Format(time.RFC3339), roughly(s.Now.Sub(a.Time)), a.Storage, a.Verify
	}
	loc, known := s.Zone(st.Guest.Node)
	if known { // in the zone of the node, whose clock the schedule follows
		if !st.Due.IsZero() {
			row["due"] = st.Due.In(loc).Format(time.RFC3339)
		}
		if !st.Next.IsZero() {
			row["next"] = st.Next.In(loc).Format(time.RFC3339)
		}
	}
	if st.Failed != "" {
		row["failed"] = failure(st.Failed)
	}
	return row
}

// failure sorts the server's words about a failed backup: what outsiders put there stays out of the answer.
func failure(said string) string {
	said = strings.ToLower(said)
	for _, f := range []struct{ part, means string }{
		{"locked", "the guest was locked"}, {"no space", "no space was left"}, {"max backup limit", "the storage keeps no more archives"}, {"not online", "the storage could not be reached"},
		{"connect", "the storage could not be reached"}, {"timeout", "it timed out"}, {"timed out", "it timed out"}, {"interrupted", "it was interrupted"}, {"permission", "a right was missing"},
		{"does not exist", "something that it needs does not exist"},
	} {
		if strings.Contains(said, f.part) {
			return f.means
		}
	}
	return "its last run failed: list_tasks with type vzdump, then task_status, shows why"
}

// roughly writes an age for people.
func roughly(d time.Duration) string {
	switch {
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 72*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// spanOf reads a time such as 90m, 24h or 7d.
func spanOf(key, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	var n int
	unit := map[byte]time.Duration{'m': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}[text[len(text)-1]]
	if _, err := fmt.Sscanf(text[:len(text)-1], "%d", &n); err == nil && unit > 0 && n > 0 && n < 100_000 && fmt.Sprint(n) == text[:len(text)-1] {
		return time.Duration(n) * unit, nil
	}
	return 0, gate.Fail(gate.ErrInvalid, "Give it as 90m, 24h or 7d.", "%s %q is not understood", key, clip(text, 40))
}

// seen says which guests the caller may know of.
func seen(ctx context.Context, v gate.View, target string) func(estate.Guest) bool {
	return func(g estate.Guest) bool {
		return !v.Scoped() || v.Sees(ctx, target, gate.ObjectFacts{Object: gate.Object{Kind: gate.ObjectGuest, ID: g.ID}, Use: gate.UseNames, Name: g.Name, Tags: g.Tags, Pools: estate.Pools(g.Pool), Known: true})
	}
}

// guestOrOrphan finds the id that is meant; an id that no guest has any more is taken where the caller is not limited.
func guestOrOrphan(ctx context.Context, v gate.View, target, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	s, err := open(ctx, v, target)
	if err != nil {
		return "", err
	}
	g, err := s.inv.Guest(ctx, v, name)
	switch {
	case err == nil && seen(ctx, v, s.target())(g):
		return g.ID, nil
	case err == nil:
		return "", gate.Fail(gate.ErrNotFound, "list_guests shows the guests within reach.", "guest %s is not within this caller's scope", clip(name, 40))
	case vmidForm.MatchString(name) && !v.Scoped() && estate.Gone(err):
		return name, nil
	}
	return "", err
}

// bounded keeps what an answer says of what it lacks readable.
func bounded(missing []string) []string {
	const most = 40
	if len(missing) <= most {
		return missing
	}
	return append(slices.Clone(missing[:most]), fmt.Sprintf("and %d more", len(missing)-most))
}
