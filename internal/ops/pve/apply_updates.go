package pve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"castellan/internal/backups"
	"castellan/internal/catalog"
	"castellan/internal/gate"
	"castellan/internal/helper"
	"castellan/internal/patch"
)

type applyUpdatesIn struct {
	Guest     string   `json:"guest" jsonschema:"id or unique name"`
	Mode      string   `json:"mode,omitempty" enum:"security,all" jsonschema:"security if absent"`
	Packages  []string `json:"packages,omitempty" jsonschema:"only these"`
	Snapshot  *bool    `json:"snapshot,omitempty" jsonschema:"default true; false needs a person"`
	Rollback  bool     `json:"rollback_if_worse,omitempty" jsonschema:"then goes back to the snapshot by itself"`
	BackupAge int64    `json:"max_backup_age_hours,omitempty"`
	Timeout   int64    `json:"timeout,omitempty" jsonschema:"seconds, 3600 if absent"`
	Target    string   `json:"target,omitempty"`
}

func applyUpdates(set PatchingSettings) *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "apply_updates", Summary: "Install a guest's updates: snapshot, exactly what the plan lists, services compared. Undo: rollback_guest", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindUpgrade, gate.KindUpgradeBare}, Undo: "rollback_guest, to the snapshot taken first: what was written since is lost",
		Keywords: "patch upgrade security install packages apt dist-upgrade unattended update guest now", Toolset: "standard", Guest: "guest",
	}, func(ctx context.Context, v gate.View, in applyUpdatesIn) (*gate.Draft, error) {
		return planApplyUpdates(ctx, v, set, in)
	})
}

// upgradePlan is what one plan of updates is made from.
type upgradePlan struct {
	*guest
	set     PatchingSettings
	in      applyUpdatesIn
	report  patch.Report
	todo    patch.Transaction
	brought map[string][]string // by "name:arch" what was not named, and which packages need it
	protect string              // "snapshot", "backup", "none"
	point   string              // the snapshot that is taken first
	draft   *gate.Draft
}

func planApplyUpdates(ctx context.Context, v gate.View, set PatchingSettings, in applyUpdatesIn) (*gate.Draft, error) {
	if in.Mode == "" {
		in.Mode = "security"
	}
	oldest, err := set.oldest(in.BackupAge)
	if err != nil {
		return nil, err
	}
	if in.Timeout != 0 && (in.Timeout < 60 || in.Timeout > 14400) {
		return nil, gate.Fail(gate.ErrInvalid, "Give 60 to 14400 seconds.", "timeout is %d", in.Timeout)
	}
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	g, err := s.inside(ctx, in.Guest)
	if err != nil {
		return nil, err
	}
	p := &upgradePlan{guest: g, set: set, in: in, draft: &gate.Draft{Target: s.target(), Phrase: g.ID}}
	var res gate.RunResult
	if p.report, res, err = told[patch.Report](ctx, s, g.Guest, string(patch.Check), map[string]any{"timeout": within(ctx, 40)}); err != nil {
		return nil, p.deaf(err)
	}
	if res.Note != "" {
		p.draft.Note += "Of who answers: " + clip(res.Note, 400) + ". "
	}
	if err := p.choose(); err != nil {
		return nil, err
	}
	stays := kept(staying(p.report), 8)
	if len(p.todo) == 0 {
		return nothing(p.nothingToDo(stays)), nil
	}
	p.draft.Skip = append(p.draft.Skip, stays...)
	if err := p.ready(); err != nil {
		return nil, err
	}
	if err := p.freshBackup(ctx, oldest); err != nil {
		return nil, err
	}
	if err := p.protectFirst(ctx); err != nil {
		return nil, err
	}
	if err := p.steps(ctx); err != nil {
		return nil, err
	}
	p.draft.Steps[0].BackedUpWithin = oldest // it is looked at again before anything is begun
	p.say(ctx)
	return p.draft, nil
}

// within is how many seconds a guest is given, at most so many: what is left of the call, and time to read the rest.
func within(ctx context.Context, most int) int {
	if end, ok := ctx.Deadline(); ok {
		most = max(1, min(most, int((time.Until(end)-4*time.Second).Seconds())))
	}
	return most
}

// deaf adds to why a guest did not answer what its settings say about it.
func (p *upgradePlan) deaf(err error) error {
	var e *gate.Error
	if !errors.As(err, &e) || !agentOff(p.Kind, p.config) {
		return err
	}
	told := *e
	told.Hint = strings.TrimSpace(told.Hint + " The guest agent is off in this VM's settings, so its address is not known: a person sets agent=1, installs qemu-guest-agent in it and restarts it.")
	return &told
}

// choose takes the transaction of the mode, cut to the packages that are named.
func (p *upgradePlan) choose() error {
	r := p.report
	if !r.System.Supported {
		return gate.Fail(gate.ErrInvalid, "Patch it by its own means.", "%s is not handled: %s", p.Title(), clip(r.System.Why, 200))
	}
	if why := r.System.Refuses(p.in.Mode, len(p.in.Packages) > 0); why != "" {
		return gate.Fail(gate.ErrInvalid, "Give mode=all without packages.", "%s cannot be patched so: %s", p.Title(), why)
	}
	if !r.Fresh {
		return gate.Fail(gate.ErrUnavailable, "Repair what stands against it in the guest (archive, key, clock, network), then call again.", "the package lists of %s are not fresh, so nothing is known for sure: %s", p.Title(), clip(r.Stale, 300))
	}
	p.todo = r.Security
	if p.in.Mode == "all" {
		p.todo = r.All
	}
	if len(p.in.Packages) == 0 {
		return nil
	}
	if len(p.in.Packages) > 200 {
		return gate.Fail(gate.ErrInvalid, "Leave packages out to take all of the mode.", "%d packages are named; 200 are taken", len(p.in.Packages))
	}
	part, err := cut(p.todo, p.in.Packages)
	if err != nil {
		return p.noSuch(err)
	}
	p.todo, p.brought = p.todo.With(part)
	return nil
}

// noSuch says why a named package is not in the transaction.
func (p *upgradePlan) noSuch(err error) error {
	var missing *missingPackage
	if !errors.As(err, &missing) {
		return err
	}
	for _, x := range staying(p.report) {
		if x.Name == missing.name {
			return gate.Fail(gate.ErrInvalid, "check_updates with guest tells every package.", "%s has %s %s, which is not installed in mode %s: %s", p.Title(), clip(x.Name, 80), clip(x.Available, 60), p.in.Mode, strings.TrimSpace(cmp.Or(whyWords[x.Why], x.Why)+" "+clip(x.Note, 120)))
		}
	}
	if p.in.Mode == "security" && slices.ContainsFunc(p.report.All, func(c patch.Change) bool { return c.Name == missing.name }) {
		return gate.Fail(gate.ErrInvalid, "Give mode=all.", "%s of %s is no security update", missing.name, p.Title())
	}
	e := gate.Fail(gate.ErrInvalid, "check_updates with guest tells every package.", "%s has no update of %q", p.Title(), clip(missing.name, 80))
	if near := gate.Nearest(missing.name, names(p.todo)); near != "" {
		e.Message += "; did you mean " + near + "?"
	}
	return e
}

type missingPackage struct{ name string }

func (m *missingPackage) Error() string { return "no update of " + m.name }

// cut keeps the named packages of a transaction.
func cut(t patch.Transaction, named []string) (patch.Transaction, error) {
	want := map[string]bool{}
	for _, n := range named {
		name, _, _ := strings.Cut(strings.TrimSpace(n), ":")
		want[name] = true
		if !slices.ContainsFunc(t, func(c patch.Change) bool { return c.Name == name }) {
			return nil, &missingPackage{name}
		}
	}
	var out patch.Transaction
	for _, c := range t {
		if want[c.Name] {
			out = append(out, c)
		}
	}
	return out, nil
}

func (p *upgradePlan) nothingToDo(stays []string) string {
	out := fmt.Sprintf("%s: nothing to install in mode %s.", p.Title(), p.in.Mode)
	if p.in.Mode == "security" && len(p.report.All) > 0 {
		out += fmt.Sprintf(" Mode all would install %d.", len(p.report.All))
	}
	if against := append(p.report.Frozen(), p.report.Ready(p.in.Mode)...); len(against) > 0 {
		out += " Whether that is all is not known: " + strings.Join(someOf(clipped(against, 200), 4), "; ") + "."
	}
	if len(stays) > 0 {
		out += " " + strings.Join(stays, ". ") + "."
	}
	if p.report.EOL != "" {
		out += " Its release gets no more updates: " + clip(p.report.EOL, 160) + "."
	}
	if p.report.Reboot.Needed {
		out += " A reboot is " + rebootText(p.report.Reboot) + "."
	}
	return clip(out, 980)
}

// ready refuses what cannot go well now.
func (p *upgradePlan) ready() error {
	r := p.report
	if err := p.helped(r.Helper); err != nil {
		return err
	}
	if r.Running != "" {
		return gate.Fail(gate.ErrUnavailable, "update_result with this guest waits for its end.", "an installation is under way in %s (%s)", p.Title(), clip(r.Running, 60))
	}
	if against := r.Ready(p.in.Mode); len(against) > 0 {
		return gate.Fail(gate.ErrUnavailable, wayOut(r, p.in.Mode), "%s cannot be patched now: %s", p.Title(), strings.Join(someOf(clipped(against, 200), 6), "; "))
	}
	if r.Reboot.Needed {
		for _, c := range p.todo {
			if c.Action == patch.Remove && (strings.HasPrefix(c.Name, "linux-image-") || strings.HasPrefix(c.Name, "kernel")) {
				return gate.Fail(gate.ErrInvalid, "reboot_guest first, then call again.", "%s waits for a reboot, and this would remove %s, which may be the kernel that runs", p.Title(), clip(c.Name, 80))
			}
		}
	}
	return nil
}

// helped refuses a guest whose helper is older than castellan's: it does not tell all that the look afterwards goes by.
func (g *guest) helped(version string) error {
	own, err := strconv.Atoi(helper.Version())
	if n, bad := strconv.Atoi(version); err == nil && (bad != nil || n < own) {
		return gate.Fail(gate.ErrUnavailable, "A person renews it: castellan enrol "+g.ID+".", "what castellan left in %s is %s", g.Title(), oldHelper(version))
	}
	return nil
}

// wayOut says what to do about each thing that stands against installing.
func wayOut(r patch.Report, mode string) string {
	var do []string
	switch {
	case r.Lock != nil:
		do = append(do, "Wait until that has ended")
	case r.Packages.Clean:
	case r.Packages.Repair:
		do = append(do, "repair_packages finishes what was left half done, as a plan of its own")
	default:
		do = append(do, "A person looks at the package database in the guest: repair_packages does not help it")
	}
	if r.ClockWrong() {
		do = append(do, "Set its clock (NTP in a VM, the node's clock for a container)")
	}
	if short := r.Short(); len(short) > 0 {
		do = append(do, "Make room on "+strings.Join(someOf(clipped(short, 60), 6), ", ")+": delete old kernels or cached packages in the guest, or give it a larger disk")
	}
	if r.Removes(mode) {
		if mode == "all" && len(r.Security) > 0 && !r.Removes("security") {
			do = append(do, "Mode security removes nothing")
		} else {
			do = append(do, "What removes packages is for a person, in the guest")
		}
	}
	return clip(strings.Join(append(do, "Then call again."), ". "), 600)
}

// freshBackup refuses where the newest backup is older than asked for.
func (p *upgradePlan) freshBackup(ctx context.Context, oldest time.Duration) error {
	at, known := p.site.backedUp(ctx, p.ID)[p.ID]
	said := "No backup that surely is of it is known. "
	if known {
		said = "Its newest backup is " + roughly(p.site.v.Now().Sub(at)) + " old. "
	}
	if oldest > 0 && (!known || p.site.v.Now().Sub(at) > oldest) {
		return gate.Fail(gate.ErrInvalid, "backup_guest makes one; backup_freshness tells why there is none.", "%s is not patched without a backup of the last %s: %s", p.Title(), roughly(oldest), strings.TrimSpace(said))
	}
	p.draft.Note += said
	return nil
}

// protectFirst puts what there will be to go back to before the rest, by the caller's word and the settings.
func (p *upgradePlan) protectFirst(ctx context.Context) error {
	if p.in.Snapshot != nil && !*p.in.Snapshot {
		p.protect = "none"
		p.draft.Note += "No snapshot is taken, as asked: there is no way back. "
		return p.noRollback()
	}
	point, err := planUndoPoint(ctx, p.site.v, undoPointIn{Guest: p.ID, Target: p.site.target()})
	if err == nil {
		p.protect, p.draft.Steps = "snapshot", point.Steps
		p.point = point.Steps[0].API.Text("snapname")
		p.draft.Note += point.Note + " "
		return nil
	}
	var e *gate.Error
	if !errors.As(err, &e) || e.Kind != gate.ErrInvalid { // it could not be asked: that is no reason to go without
		return err
	}
	switch p.set.WithoutSnapshot {
	case bareBackup:
		if err := p.backupFirst(ctx); err != nil {
			return err
		}
		p.protect = "backup"
		p.draft.Note += "No snapshot can be taken, so a backup is made first (patching.without_snapshot); restore_guest would bring it back. " + e.Message + ". "
	case barePerson:
		p.protect = "none"
		p.draft.Note += "No snapshot can be taken, so a person decides whether it is patched without a way back (patching.without_snapshot): " + e.Message + ". "
	default:
		told := *e
		told.Hint = "A person sets patching.without_snapshot to backup or person, makes room, or moves the disks to a storage with snapshots; snapshot=false asks a person for this once."
		return &told
	}
	return p.noRollback()
}

func (p *upgradePlan) noRollback() error {
	if !p.in.Rollback {
		return nil
	}
	return gate.Fail(gate.ErrInvalid, "Leave rollback_if_worse out.", "%s would have no snapshot to go back to", p.Title())
}

// backupFirst makes a backup in the way of the guest's own backup job: its storage, its mode.
func (p *upgradePlan) backupFirst(ctx context.Context) error {
	look, err := backups.Look(ctx, p.site.v, p.site.target(), backups.Question{Guest: p.ID, Jobs: true})
	if err != nil {
		return err
	}
	var fit []*backups.Job
	for i := range look.Jobs {
		j := &look.Jobs[i]
		if in, left := look.Covers(j, p.Guest); in && left == 0 && j.On() && j.Storage != "" {
			fit = append(fit, j)
		}
	}
	if len(fit) == 0 {
		return gate.Fail(gate.ErrInvalid, "Give it to a backup job (create_backup_job), or a person sets patching.without_snapshot = \"person\".", "%s cannot be snapshotted, and no backup job that is on saves all of it: castellan makes up no storage of its own for the backup before it", p.Title())
	}
	j := fit[0]
	made, err := planBackup(ctx, p.site.v, backupGuestIn{Guest: p.ID, Storage: string(j.Storage), Mode: string(j.Mode), Notes: "before updates, by castellan", Target: p.site.target()})
	if err != nil {
		return err
	}
	p.draft.Steps = made.Steps
	p.draft.Note += fmt.Sprintf("The backup goes to storage %s, as that of job %s. ", j.Storage, j.ID)
	if p.running() && j.Mode == "stop" {
		p.draft.Note += "Its mode stops the guest meanwhile. "
	}
	return nil
}

// steps adds the installation, the look at how it went, and the way back where that is asked for.
func (p *upgradePlan) steps(ctx context.Context) error {
	params := map[string]any{"mode": p.in.Mode, "package": p.todo.Texts(), "protect": p.protect}
	if p.in.Timeout > 0 {
		params["timeout"] = p.in.Timeout
	}
	up, err := p.run(ctx, "upgrade", params)
	if err != nil {
		return err
	}
	up.Undo.None = map[string]string{"snapshot": "packages are not taken back one by one; rollback_guest goes back to the snapshot " + p.point + ", and what was written since is lost",
		"backup": "packages are not taken back; the backup made first can be restored", "none": "packages are not taken back, and no snapshot is taken"}[p.protect]
	look, err := p.verify(ctx, p.set.settle())
	if err != nil {
		return err
	}
	p.draft.Steps = append(p.draft.Steps, up, look)
	if !p.in.Rollback {
		return nil
	}
	back, err := p.back(ctx)
	if err != nil {
		return err
	}
	back.When = gate.When{StepFailed: len(p.draft.Steps)}
	p.draft.Steps = append(p.draft.Steps, back)
	return nil
}

// failing says when the check after an installation fails.
const failing = "The check fails where packages are missing or others changed, the package database is not clean, somebody else has installed since, or after patching.settle the guest does not run, does not answer or has worse services or ports; not where castellan could not ask. "

// verify is the step that says whether it went well; it fails where it did not.
func (g *guest) verify(ctx context.Context, settle time.Duration) (gate.Step, error) {
	s, err := g.step(ctx, catalog.MethodRun, "/updates", map[string]any{"word": "verify", "timeout": int(settle.Seconds())})
	if err != nil {
		return s, err
	}
	s.Undo.How = "it changes nothing"
	return s, nil
}

// back goes back to the snapshot that the plan takes, and starts the guest again.
func (p *upgradePlan) back(ctx context.Context) (gate.Step, error) {
	s, err := p.step(ctx, "POST", "/snapshot/{snapname}/rollback", map[string]any{"snapname": p.point, "start": true})
	if err != nil {
		return s, err
	}
	s.Wait = gate.Wait{Kind: gate.WaitTask, Limit: time.Hour}
	s.Require = append(s.Require, p.hasSnapshot(p.point)...)
	s.Verify = []gate.Condition{{Name: p.short() + " builds on snapshot " + p.point, Read: p.fresh("/snapshot", nil),
		Where: map[string]string{"name": current}, Pointer: "/parent", Rule: gate.RuleEquals, Value: text(p.point)}, p.inState("running")}
	s.Undo.None = "everything written in the guest since the snapshot is lost with it"
	return s, nil
}

// say tells what the steps do not: what stops, how much there is to fetch, what is not taken back.
func (p *upgradePlan) say(ctx context.Context) {
	var size int64
	removed := 0
	for _, c := range p.todo {
		size += c.Bytes
		note := c.Archive
		if c.Action == patch.Remove {
			removed++
			note = "is removed"
		}
		if by := p.brought[c.Name+":"+c.Arch]; len(by) > 0 {
			note += "; needed by " + strings.Join(someOf(by, 4), ", ")
		}
		p.draft.Diff = append(p.draft.Diff, gate.Difference{Object: "guest/" + p.ID, Key: strings.TrimSuffix(c.Name+":"+c.Arch, ":"), Old: c.Old, New: c.New, Note: clip(note, 120)})
	}
	note := fmt.Sprintf("%s in mode %s", counted(len(p.todo), "package"), p.in.Mode)
	if removed > 0 {
		note += fmt.Sprintf(" (%d of them removed)", removed)
	}
	if size > 0 {
		note += fmt.Sprintf(", %d MiB to fetch", (size>>20)+1)
	}
	note += ". Services of these packages restart while they are configured"
	if hit := p.services(ctx); len(hit) > 0 {
		note += ": " + strings.Join(someOf(hit, 8), ", ")
	}
	note += ". "
	if len(p.in.Packages) > 0 {
		note += "Only what was named is asked for"
		if len(p.brought) > 0 {
			note += ", and what that needs from the same archives: " + strings.Join(someOf(slices.Sorted(maps.Keys(p.brought)), 8), ", ")
		}
		note += ". Should it need still more, the guest refuses, says what, and nothing is changed. "
	}
	if p.in.Rollback {
		note += "If its check fails the guest goes back to " + p.point + " and starts: ALL that was written in it since the snapshot (data, mail, databases) is lost then. " + failing
	}
	if p.report.Reboot.Needed {
		note += "It waits for a reboot already. "
	}
	if old := p.report.Frozen(); len(old) > 0 {
		note += "There may be newer ones: " + clip(strings.Join(old, "; "), 300) + ". "
	}
	if agentOff(p.Kind, p.config) {
		note += "Its guest agent is off: the snapshot is as after a power cut. "
	}
	if strings.EqualFold(p.report.Automatic.State, "on") {
		note += "It installs updates by itself too (" + clip(p.report.Automatic.By, 40) + "). "
	}
	p.draft.Note = strings.TrimSpace(note + p.nameNote(p.in.Guest) + p.draft.Note)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// services are the units that bear the name of a package that is changed. What others restart is not known beforehand.
func (p *upgradePlan) services(ctx context.Context) (out []string) {
	h, _, err := told[patch.House](ctx, p.site, p.Guest, string(patch.Services), map[string]any{"timeout": 15})
	if err != nil {
		return nil
	}
	for _, u := range h.Units {
		name := strings.TrimSuffix(u.Name, ".service")
		if u.Active == "active" && slices.ContainsFunc(p.todo, func(c patch.Change) bool { return c.Name == name || c.Name == name+"-server" }) {
			out = append(out, clip(u.Name, 80))
		}
	}
	return out
}
