package pve

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/helper"
	"castellan/internal/ops/table"
	"castellan/internal/patch"
)

type checkUpdatesIn struct {
	Guest  string   `json:"guest,omitempty" jsonschema:"id or unique name: every package of this one"`
	Guests []string `json:"guests,omitempty" jsonschema:"several; all in sight if both are absent"`
	table.Ask
	Target string `json:"target,omitempty"`
}

type checkUpdatesOut struct {
	Counts      map[string]int   `json:"counts" jsonschema:"guests by verdict"`
	Guests      []map[string]any `json:"guests" jsonschema:"those that were asked, the gravest first; of one guest one row a package in packages"`
	NotEnrolled []string         `json:"not_enrolled,omitempty"`
	Enrol       string           `json:"enrol,omitempty" jsonschema:"who does what about those that are not enrolled"`
	Skipped     []string         `json:"skipped,omitempty" jsonschema:"left as they are, with the reason"`
	Packages    []map[string]any `json:"packages,omitempty"`
	NotCovered  []string         `json:"not_covered,omitempty"`
	Incomplete  []string         `json:"incomplete,omitempty" jsonschema:"what could not be looked at, of the site as a whole"`
	table.Count
}

func checkUpdates() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "check_updates", Summary: "Which updates guests have, what would be installed and why not the rest; reboot needed. Asks the guests now", Product: "pve",
		Kinds: []gate.Kind{gate.KindUpdates}, Toolset: "standard", Guest: "guest", Wide: true,
		Keywords: "security patches pending packages apt upgrade available outdated reboot required unattended upgrades held phased esm dnf needs updating",
	}, runCheckUpdates)
}

// How many guests one call asks, and how many at a time.
const (
	mostAsked     = 100
	askedFirst    = 60
	checkedAtOnce = 32
)

// The verdicts of a check, the gravest first.
const (
	verdictBlocked  = "blocked"     // there is something to install, and something stands against it
	verdictSecurity = "security"    // security updates can be installed
	verdictUpdates  = "updates"     // other official updates can be
	verdictUnknown  = "not_checked" // its lists are old, something stands against it, or it did not answer: nothing says that it is up to date
	verdictEOL      = "end_of_life" // its release gets no more updates
	verdictHeld     = "none_installable"
	verdictCurrent  = "up_to_date"
)

var verdictOrder = []string{verdictBlocked, verdictSecurity, verdictEOL, verdictUnknown, verdictUpdates, verdictHeld, verdictCurrent}

// checked is one guest with what it answered.
type checked struct {
	guest    estate.Guest
	report   patch.Report
	verdict  string
	why      []string
	note     string
	enrolled bool
	idle     string // it was not asked after all: why
	backup   time.Time
	snapshot string // "possible", "not possible", "not known"
}

func runCheckUpdates(ctx context.Context, v gate.View, in checkUpdatesIn) (checkUpdatesOut, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return checkUpdatesOut{}, err
	}
	out := checkUpdatesOut{Counts: map[string]int{}, Guests: []map[string]any{}}
	asked, err := s.chosen(ctx, in)
	if err != nil {
		return out, err
	}
	var run []estate.Guest
	for _, g := range asked {
		if why := idle(g); why != "" {
			out.Skipped = append(out.Skipped, g.Title()+": "+why)
			out.Counts["skipped"]++
			continue
		}
		run = append(run, g)
	}
	page, more, err := pageOf(run, in.Ask)
	if err != nil {
		return out, err
	}
	if more.Cursor != "" || in.Cursor != "" { // what is not asked is told on the first page only
		if in.Cursor != "" {
			out.Skipped, out.Counts = nil, map[string]int{}
		}
	}
	found := s.check(ctx, page)
	slices.SortStableFunc(found, func(a, b checked) int {
		return cmp.Or(cmp.Compare(slices.Index(verdictOrder, a.verdict), slices.Index(verdictOrder, b.verdict)), cmp.Compare(a.guest.Number, b.guest.Number))
	})
	var rows []checked
	for _, c := range found {
		if c.idle != "" {
			out.Skipped = append(out.Skipped, c.guest.Title()+": "+c.idle)
			out.Counts["skipped"]++
			continue
		}
		if !c.enrolled {
			out.NotEnrolled = append(out.NotEnrolled, c.guest.Title())
			out.Counts["not_enrolled"]++
			out.Enrol = c.why[0]
			if _, plain, ok := strings.Cut(out.Enrol, " is refused: "); ok { // nobody but castellan made that request
				out.Enrol = plain
			}
			continue
		}
		out.Counts[c.verdict]++
		if c.note != "" && len(out.Incomplete) < 4 && !slices.Contains(out.Incomplete, c.note) { // mostly the same for all
			out.Incomplete = append(out.Incomplete, c.note)
		}
		rows = append(rows, c)
	}
	if len(out.NotEnrolled) > 0 {
		out.Enrol = "For one of them: " + out.Enrol
	}
	out.NotEnrolled, out.Skipped = someOf(out.NotEnrolled, 60), someOf(out.Skipped, 60)
	columns := checkColumns
	if in.Guest != "" {
		columns.Default = nil
	}
	ask := table.Ask{Fields: in.Fields, Omit: in.Omit}
	var packages table.Columns
	if in.Guest != "" && len(rows) == 1 {
		ask = table.Ask{}
		packages = packageColumns
	}
	if out.Guests, out.Count, err = table.Cut(ask, columns, rows, func(c checked) string { return c.guest.ID }, func(c checked) map[string]any { return c.row(v.Now(), in.Guest != "") }); err != nil {
		return out, err
	}
	if packages.All != nil {
		r := rows[0].report
		out.NotCovered = someOf(clipped(r.NotCovered, 200), 20)
		out.Packages, out.Count, err = table.Cut(in.Ask, packages, packageRows(r), func(p packageRow) string { return p.name }, packageRow.row)
		return out, err
	}
	out.Matched = len(run)
	if more.Cursor != "" {
		out.Cursor, out.More = more.Cursor, more.More
	}
	return out, nil
}

// chosen are the guests that are meant, sorted by id.
func (s *site) chosen(ctx context.Context, in checkUpdatesIn) ([]estate.Guest, error) {
	ids := in.Guests
	if in.Guest != "" {
		if len(ids) > 0 {
			return nil, gate.Fail(gate.ErrInvalid, "Give guest for every package of one, or guests for several.", "both guest and guests are given")
		}
		ids = []string{in.Guest}
	}
	if len(ids) > 1000 {
		return nil, gate.Fail(gate.ErrInvalid, "Leave guests out for all in sight.", "%d guests are named; 1000 are taken", len(ids))
	}
	mine := seen(ctx, s.v, s.target())
	var out []estate.Guest
	if len(ids) == 0 {
		for _, g := range s.inv.Guests {
			if mine(g) {
				out = append(out, g)
			}
		}
	}
	for _, id := range ids {
		g, err := s.inv.Guest(ctx, s.v, id)
		if err != nil {
			return nil, err
		}
		if !mine(g) {
			return nil, gate.Fail(gate.ErrNotFound, "list_guests shows the guests within reach.", "guest %s is not within this caller's scope", clip(id, 40))
		}
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b estate.Guest) int { return cmp.Compare(a.Number, b.Number) })
	return slices.CompactFunc(out, func(a, b estate.Guest) bool { return a.ID == b.ID }), nil
}

// pageOf takes the guests that this call asks. A cursor is the id of the last one asked.
func pageOf(all []estate.Guest, ask table.Ask) (page []estate.Guest, more table.Count, err error) {
	limit := askedFirst
	switch {
	case ask.Limit < 0 || ask.Limit > 100_000:
		return nil, more, gate.Fail(gate.ErrInvalid, "Give a limit of 1 to 100.", "the limit is %d", ask.Limit)
	case ask.Limit > 0:
		limit = min(ask.Limit, mostAsked)
	}
	after := int64(0)
	if ask.Cursor != "" && len(all) > 1 {
		if _, err := fmt.Sscanf(ask.Cursor, "after:%d", &after); err != nil || after <= 0 {
			return nil, more, gate.Fail(gate.ErrInvalid, "Give the cursor of the answer before, unchanged, or none.", "%q is no cursor", clip(ask.Cursor, 40))
		}
	}
	for _, g := range all {
		if g.Number > after {
			page = append(page, g)
		}
	}
	if len(page) > limit {
		more.Cursor = fmt.Sprintf("after:%d", page[limit-1].Number)
		more.More = fmt.Sprintf("%s not asked yet: call again with this cursor", counted(len(page)-limit, "guest"))
		page = page[:limit]
	}
	return page, more, nil
}

// check asks guests, several at a time. What does not answer while there is time counts as not checked.
func (s *site) check(ctx context.Context, guests []estate.Guest) []checked {
	seconds := 40
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end) - 4*time.Second
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, left)
		defer stop()
		seconds = max(1, int(left.Seconds()))
	}
	out := make([]checked, len(guests))
	var ages map[string]time.Time
	var group sync.WaitGroup
	if len(guests) > 0 {
		ids := make([]string, 0, len(guests))
		for _, g := range guests {
			ids = append(ids, g.ID)
		}
		group.Go(func() { ages = s.backedUp(ctx, ids...) })
	}
	turns := make(chan struct{}, checkedAtOnce)
	for i, g := range guests {
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			out[i] = s.checkOne(ctx, g, seconds)
		})
	}
	group.Wait()
	for i := range out {
		out[i].backup = ages[out[i].guest.ID]
	}
	return out
}

func (s *site) checkOne(ctx context.Context, g estate.Guest, seconds int) checked {
	c := checked{guest: g, enrolled: true, snapshot: "not known"}
	rep, res, err := told[patch.Report](ctx, s, g, string(patch.Check), map[string]any{"timeout": seconds})
	if err != nil {
		enrolled, why := unasked(err)
		if ctx.Err() != nil {
			enrolled, why = true, "it did not answer in time; ask for it alone"
		}
		c.enrolled, c.verdict, c.why = enrolled, verdictUnknown, []string{why}
		if enrolled && s.stands(ctx, g) {
			c.idle = "paused"
		}
		return c
	}
	c.report, c.note = rep, clip(res.Note, 400)
	one := &guest{Guest: g, site: s}
	if yes, known := one.supports(ctx, "snapshot"); known {
		c.snapshot = map[bool]string{true: "possible", false: "not possible"}[yes]
	}
	c.verdict, c.why = judged(rep)
	return c
}

// stands says whether a VM that does not answer is paused.
func (s *site) stands(ctx context.Context, g estate.Guest) bool {
	var now struct {
		QMP estate.Text `json:"qmpstatus"`
	}
	if g.Kind != estate.VM {
		return false
	}
	_, err := s.read(ctx, &now, "GET /nodes/{node}/qemu/{vmid}/status/current", map[string]string{"node": g.Node, "vmid": g.ID})
	return err == nil && (now.QMP == "paused" || now.QMP == "suspended")
}

// judged says how a guest stands by its report. Nothing that was not looked at counts as good.
func judged(r patch.Report) (verdict string, why []string) {
	against := r.Ready("all")
	switch {
	case !r.System.Supported:
		return verdictUnknown, []string{"castellan does not handle its system: " + clip(r.System.Why, 200)}
	case !r.Fresh:
		return verdictUnknown, append([]string{"its package lists are not fresh: " + clip(r.Stale, 200)}, against...)
	case len(r.All)+len(r.Security) > 0 && len(against) > 0:
		return verdictBlocked, against
	case len(r.Security) > 0:
		return verdictSecurity, clipped(r.Frozen(), 240)
	case len(r.All) > 0:
		return verdictUpdates, clipped(r.Frozen(), 240)
	case r.EOL != "":
		return verdictEOL, append([]string{clip(r.EOL, 200)}, against...)
	case len(r.Frozen()) > 0:
		return verdictUnknown, append(clipped(r.Frozen(), 240), against...)
	case len(r.Unread) > 0:
		return verdictUnknown, append(clipped(r.Unread, 200), against...)
	case len(against) > 0: // a half-done installation, a lock, a clock that is off: what was found need not be all
		return verdictUnknown, against
	case len(staying(r)) > 0:
		return verdictHeld, nil
	}
	return verdictCurrent, nil
}

func clipped(list []string, n int) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, clip(s, n))
	}
	return out
}

var checkColumns = table.Columns{
	All: []string{"vmid", "name", "node", "verdict", "why", "security", "security_names", "all", "other_names", "not_installed", "reasons", "reboot", "automatic", "lock", "guest_lock", "installing",
		"backup_age", "snapshot", "old_helper", "system", "helper", "archives", "clock_off", "packages_state", "space", "boot_id"},
	Default: []string{"vmid", "name", "verdict", "why", "security", "security_names", "all", "other_names", "not_installed", "reasons", "reboot", "automatic", "lock", "guest_lock", "installing", "backup_age", "snapshot", "old_helper"},
}

func (c checked) row(now time.Time, whole bool) map[string]any {
	r := c.report
	most, texts := 6, 4
	if whole {
		most, texts = 40, 30
	}
	row := map[string]any{"vmid": c.guest.Number, "name": c.guest.Name, "node": c.guest.Node, "verdict": c.verdict, "why": someOf(c.why, texts), "lock": c.guest.Lock, "snapshot": c.snapshot, "backup_age": "none known"}
	if !c.backup.IsZero() {
		row["backup_age"] = roughly(now.Sub(c.backup))
	}
	if r.System.ID == "" && len(r.Pending) == 0 && r.BootID == "" { // it did not answer
		return row
	}
	row["security"], row["all"] = len(r.Security), len(r.All)
	row["security_names"] = someOf(names(r.Security), most)
	row["other_names"] = someOf(names(without(r.All, r.Security)), most)
	stays := staying(r)
	row["not_installed"], row["reasons"] = len(stays), reasonCounts(stays)
	row["reboot"] = rebootText(r.Reboot)
	row["automatic"] = strings.TrimSpace(clip(r.Automatic.State, 20) + " " + byWhom(r.Automatic.By))
	if r.Lock != nil {
		row["guest_lock"] = fmt.Sprintf("%s (pid %d)", clip(r.Lock.Program, 40), r.Lock.PID)
	}
	row["installing"] = clip(r.Running, 60)
	row["system"], row["helper"], row["old_helper"] = clip(cmp.Or(r.System.Name, r.System.ID), 80), clip(r.Helper, 40), oldHelper(r.Helper)
	var archives []string
	for _, x := range r.Releases {
		text := clip(x.Archive, 80) + " of "
		if x.Date.IsZero() {
			text += "a time not told"
		} else {
			text += x.Date.Format(time.RFC3339)
		}
		if !x.Until.IsZero() {
			text += ", good until " + x.Until.Format(time.RFC3339)
		}
		archives = append(archives, text)
	}
	row["archives"] = someOf(archives, 8)
	if r.ClockOff > 60 || r.ClockOff < -60 {
		row["clock_off"] = r.ClockOff
	}
	if !r.Packages.Clean {
		row["packages_state"] = strings.Join(someOf(clipped(r.Packages.Problems, 120), texts), "; ")
	}
	var space []string
	for _, p := range r.Space {
		space = append(space, fmt.Sprintf("%s: %d MiB free, %d MiB needed", clip(p.Path, 40), p.Free>>20, p.Need>>20))
	}
	row["space"], row["boot_id"] = someOf(space, 6), r.BootID
	return row
}

func byWhom(by string) string {
	if by == "" {
		return ""
	}
	return "(" + clip(by, 40) + ")"
}

// oldHelper says that what castellan left in the guest is not what it would leave there now.
func oldHelper(version string) string {
	if version == helper.Version() {
		return ""
	}
	return fmt.Sprintf("%s; this castellan leaves %s: a person enrols the guest anew", cmp.Or(clip(version, 20), "of no version"), helper.Version())
}

func rebootText(r patch.Reboot) string {
	switch {
	case !r.Known && !r.Needed:
		return "not known"
	case !r.Needed:
		return "no"
	}
	return "needed: " + strings.Join(someOf(clipped(r.Why, 100), 6), "; ")
}

// reasonCounts says how many available versions are not installed for which reason.
func reasonCounts(pending []patch.Pending) string {
	by := map[string]int{}
	for _, p := range pending {
		by[clip(cmp.Or(whyWords[p.Why], strings.ReplaceAll(p.Why, "_", " ")), 40)]++
	}
	var out []string
	for _, why := range slices.Sorted(maps.Keys(by)) {
		out = append(out, fmt.Sprintf("%d %s", by[why], why))
	}
	return strings.Join(out, ", ")
}

// without are the changes of a transaction that are not in another one.
func without(all, part patch.Transaction) (out patch.Transaction) {
	for _, c := range all {
		if !slices.ContainsFunc(part, func(o patch.Change) bool { return o.Name == c.Name && o.Arch == c.Arch }) {
			out = append(out, c)
		}
	}
	return out
}

// staying are the available versions that no mode installs.
func staying(r patch.Report) (out []patch.Pending) {
	comes := map[[2]string]bool{}
	for _, c := range slices.Concat(r.All, r.Security) {
		comes[[2]string{c.Name, c.Arch}], comes[[2]string{c.Name, ""}] = true, true
	}
	for _, p := range r.Pending {
		if p.Why != "" && !comes[[2]string{p.Name, p.Arch}] {
			out = append(out, p)
		}
	}
	return out
}

// packageRow is one package of a guest: what comes with it, or why it does not.
type packageRow struct {
	name, arch, installed, available, archive, sort, mode, why, note string
}

var packageColumns = table.Columns{All: []string{"package", "arch", "installed", "available", "archive", "sort", "installs_in", "why_not", "note"},
	Default: []string{"package", "installed", "available", "archive", "sort", "installs_in", "why_not", "note"}}

func (p packageRow) row() map[string]any {
	return map[string]any{"package": p.name, "arch": p.arch, "installed": p.installed, "available": p.available, "archive": p.archive, "sort": p.sort, "installs_in": p.mode, "why_not": p.why, "note": p.note}
}

// packageRows are the packages of a report: first what mode security installs, then what mode all adds, then what stays.
func packageRows(r patch.Report) (out []packageRow) {
	add := func(t patch.Transaction, mode string) {
		for _, c := range t {
			row := packageRow{name: clip(c.Name, 80), arch: c.Arch, installed: c.Old, available: c.New, archive: clip(c.Archive, 80), mode: mode, sort: string(patch.Official)}
			if c.Security {
				row.sort = string(patch.Security)
			}
			if c.Action != patch.Upgrade {
				row.note = string(c.Action)
			}
			out = append(out, row)
		}
	}
	add(r.Security, "security, all")
	add(without(r.All, r.Security), "all")
	for _, p := range staying(r) {
		why := clip(cmp.Or(whyWords[p.Why], strings.ReplaceAll(p.Why, "_", " ")), 60)
		out = append(out, packageRow{name: clip(p.Name, 80), arch: p.Arch, installed: p.Installed, available: p.Available, archive: clip(p.Archive, 80), sort: string(p.Sort), why: why, note: clip(p.Note, 160)})
	}
	return out
}
