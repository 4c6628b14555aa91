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
)

type restoreGuestIn struct {
	Backup  string `json:"backup" jsonschema:"volid as list_backups shows it"`
	ID      string `json:"vmid,omitempty" jsonschema:"default: next free"`
	Force   bool   `json:"force,omitempty" jsonschema:"vmid is a stopped guest: its disks are destroyed"`
	Storage string `json:"storage,omitempty" jsonschema:"for disks; default: as in the archive; of a container its own, or the only one"`
	Node    string `json:"node,omitempty"`
	Unique  *bool  `json:"unique,omitempty" jsonschema:"new MAC addresses; default: true for a new id"`
	Start   bool   `json:"start,omitempty"`
	Pool    string `json:"pool,omitempty"`
	Target  string `json:"target,omitempty"`
}

func restoreGuest() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "restore_guest", Summary: "Restore a backup as a new guest, or with force over a stopped one. Write", Product: "pve", Effect: gate.EffectDestroy,
		Kinds: []gate.Kind{gate.KindRestore}, Undo: "of a new guest: delete_guest; over an existing one: none", Keywords: "bring back recover backup archive vzdump pbs restore_vm qmrestore pct restore disaster",
		Toolset: "full", Bounded: true,
	}, planRestore)
}

func planRestore(ctx context.Context, v gate.View, in restoreGuestIn) (*gate.Draft, error) {
	bs, a, err := findBackup(ctx, v, in.Target, in.Backup)
	if err != nil {
		return nil, err
	}
	if a.Kind == "" {
		return nil, gate.Fail(gate.ErrInvalid, "Choose another one from list_backups.", "it is not told whether %s is of a VM or a container", clip(a.Volume, 120))
	}
	if a.Verify == "failed" {
		return nil, gate.Fail(gate.ErrInvalid, "Choose another one from list_backups, or verify it again on the backup server.", "the backup server found %s damaged when it last verified it", clip(a.Volume, 120))
	}
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	r := &restoration{site: s, in: in, archive: a, backups: bs}
	if in.Force {
		return r.over(ctx)
	}
	return r.fresh(ctx)
}

type restoration struct {
	*site
	in      restoreGuestIn
	archive backups.Archive
	backups *backups.Site
	notes   []string
}

// path is the kind's part of API paths.
func (r *restoration) path() string {
	return estate.Guest{Kind: r.archive.Kind}.Path()
}

// params are those of the restoring call, which is that of creating.
func (r *restoration) params(node any, id string) map[string]any {
	p := map[string]any{"node": node, "vmid": id}
	if r.archive.Kind == estate.VM {
		p["archive"] = r.archive.Volume
	} else {
		p["ostemplate"], p["restore"] = r.archive.Volume, true
	}
	if r.in.Storage != "" {
		p["storage"] = r.in.Storage
	}
	if r.in.Pool != "" {
		p["pool"] = r.in.Pool
	}
	if r.in.Start {
		p["start"] = true
	}
	return p
}

// fresh restores as a guest that was not there.
func (r *restoration) fresh(ctx context.Context) (*gate.Draft, error) {
	if g, taken := r.inv.ByID(r.in.ID); taken && r.in.ID != "" {
		return nil, gate.Fail(gate.ErrInvalid, "Leave vmid out for a new guest beside it, or give force to destroy that guest's disks and put the backup in its place.", "the id %s is that of %s on %s", r.in.ID, g.Title(), g.Node)
	}
	id, free, err := r.freeID(ctx, r.in.ID)
	if err != nil {
		return nil, err
	}
	node := r.in.Node
	if node == "" {
		node = r.archive.Node
		if g, live := r.inv.ByID(r.archive.Guest); live && !g.NodeOff {
			node = g.Node
		}
	}
	if node, err = r.pickNode(node); err != nil {
		return nil, err
	}
	if err := r.place(ctx, node, 0); err != nil {
		return nil, err
	}
	params := r.params(node, id)
	if r.in.Unique == nil || *r.in.Unique {
		params["unique"] = true
	} else if g, live := r.inv.ByID(r.archive.Guest); live {
		r.notes = append(r.notes, "It has the MAC addresses of "+g.Title()+": do not run both on one network.")
	}
	req, err := gate.NewRequest("pve", "POST /nodes/{node}/"+r.path(), params)
	if err != nil {
		return nil, err
	}
	step := gate.Step{API: &req, Wait: gate.Wait{Kind: gate.WaitTask, Limit: 24 * time.Hour}, Require: []gate.Condition{free, backupIs(r.archive)}, Verify: madeGuest(r.path(), id)}
	step.Undo.How = "destroy guest " + id
	if step.Undo.Call, err = destroy(r.path(), id, node); err != nil {
		return nil, err
	}
	r.notes = append(r.notes, fmt.Sprintf("The id %s is free now; nothing reserves it.", id))
	if r.archive.Kind == estate.VM {
		r.notes = append(r.notes, "Its SMBIOS uuid is that of the archive.")
	}
	return r.draft(step, id), nil
}

// over puts the backup in the place of a guest, whose disks are destroyed.
func (r *restoration) over(ctx context.Context) (*gate.Draft, error) {
	if r.in.ID == "" {
		return nil, gate.Fail(gate.ErrInvalid, "Give vmid: the guest whose place the backup takes.", "force is given without vmid")
	}
	g, err := r.guest(ctx, r.in.ID)
	if err != nil {
		return nil, err
	}
	if g.ID != r.in.ID {
		return nil, gate.Fail(gate.ErrInvalid, "Give its id.", "vmid %q is no number", clip(r.in.ID, 40))
	}
	switch {
	case g.Kind != r.archive.Kind:
		return nil, gate.Fail(gate.ErrInvalid, "Leave force and vmid out to restore it beside it.", "%s is a %s, and the archive is of a %s", g.Title(), strings.ToUpper(g.Kind), strings.ToUpper(r.archive.Kind))
	case r.in.Node != "" && r.in.Node != g.Node:
		return nil, gate.Fail(gate.ErrInvalid, "Leave node out.", "%s is on %s: it is restored over where it is", g.Title(), g.Node)
	case g.config.On("protection"):
		return nil, gate.Fail(gate.ErrInvalid, "If it really is to go, take the protection off first: set_guest_config with set={\"protection\":0}.", "%s is protected", g.Title())
	case g.Status != "stopped":
		return nil, gate.Fail(gate.ErrInvalid, "Shut it down with guest_power first, or restore beside it: leave force and vmid out.", "%s is %s: only a stopped guest is restored over", g.Title(), g.Status)
	case g.Template:
		return nil, gate.Fail(gate.ErrInvalid, "Restore beside it: leave force and vmid out.", "%s is a template, on whose disks linked clones may rest", g.Title())
	}
	if err := g.notLocked(ctx); err != nil {
		return nil, err
	}
	if r.in.Storage == "" && g.Kind == estate.CT {
		r.in.Storage, _, _ = strings.Cut(strings.TrimPrefix(g.config["rootfs"], "volume="), ":")
	}
	if err := r.place(ctx, g.Node, g.MaxDisk); err != nil {
		return nil, err
	}
	params := r.params(gate.Ref{Guest: g.ID, Plan: g.Node}, g.ID)
	params["force"] = true
	if r.in.Unique != nil && *r.in.Unique {
		params["unique"] = true
	}
	req, err := gate.NewRequest("pve", "POST /nodes/{node}/"+r.path(), params)
	if err != nil {
		return nil, err
	}
	step := gate.Step{API: &req, Wait: gate.Wait{Kind: gate.WaitTask, Limit: 24 * time.Hour}, Verify: madeGuest(r.path(), g.ID)}
	step.Require, _ = estate.Identify(ctx, r.v, r.target(), g.Guest, g.config)
	step.Require = append(step.Require, g.unlocked(), g.inState("stopped"), backupIs(r.archive), gate.Condition{Name: g.short() + " is not protected", Read: g.fresh("/config", nil), Pointer: "/protection",
		Rule: gate.RuleDiffers, Value: text("1")})
	if r.archive.Guest == g.ID {
		step.Undo.None = "the disks of " + g.short() + " and all that was written since the backup are destroyed; only another backup brings them back"
		r.notes = append(r.notes, "What "+g.Title()+" holds now is lost: everything since "+r.archive.Time.Format(time.RFC3339)+".")
	} else {
		back := "castellan knows of no backup of it"
		if slices.ContainsFunc(r.backups.Archives, func(a backups.Archive) bool { return a.Guest == g.ID }) {
			back = "only a backup of it brings them back"
		}
		step.Undo.None = "the disks of " + g.short() + " and all that it ever wrote are destroyed, since the archive is of guest " + r.archive.Guest + "; " + back
		r.notes = append(r.notes, "The archive is of guest "+r.archive.Guest+", not of "+g.ID+": all that "+g.Title()+" holds now is lost; "+back+".")
	}
	var own, others []string
	for _, volume := range g.disks() {
		if estate.OwnerOf(strings.TrimPrefix(volume, volume[:strings.IndexByte(volume, ':')+1])) == g.ID {
			own = append(own, volume)
		} else {
			others = append(others, volume)
		}
	}
	if len(own) > 0 {
		note := "Destroyed: " + strings.Join(own, ", ")
		if g.Kind == estate.VM {
			note += "; of these, what the archive has nothing in place of is kept as an unused disk"
		}
		r.notes = append(r.notes, note+".")
	}
	if len(others) > 0 {
		r.notes = append(r.notes, "Not its own by their names, so they leave its settings and stay: "+strings.Join(others, ", ")+".")
	}
	by := "rights, HA, backup jobs, replication"
	if r.in.Pool == "" {
		by = "pool, " + by
	}
	r.notes = append(r.notes, "What goes by the number "+g.ID+" ("+by+") stays; its firewall is the archive's, where that has one.")
	if list, _, err := g.snapshots(ctx); err == nil && len(list) > 0 {
		r.notes = append(r.notes, plural(len(list), "snapshot goes", "snapshots go")+" with it.")
	}
	if g.managed {
		r.notes = append(r.notes, g.haNote())
	}
	return r.draft(step, g.ID), nil
}

// place checks that node and storage can take the disks; size is what is known of theirs, 0 = nothing.
func (r *restoration) place(ctx context.Context, node string, size int64) error {
	shared := false
	for _, st := range r.inv.Storages {
		if st.Name == r.archive.Storage && st.Node == node {
			shared = true
		}
	}
	if node != r.archive.Node && !(shared && r.isShared(r.archive.Storage)) {
		return gate.Fail(gate.ErrInvalid, "Restore on node "+r.archive.Node+", or copy the archive first.", "storage %s with the archive is that of node %s: node %s cannot read it", r.archive.Storage, r.archive.Node, node)
	}
	kind := map[string]string{estate.VM: "images", estate.CT: "rootdir"}[r.archive.Kind]
	if r.in.Storage == "" && r.archive.Kind == estate.CT { // left out, the server takes "local", whatever the archive names
		only, err := r.pickStorage(ctx, "", node, kind)
		if err != nil {
			return err
		}
		r.in.Storage = only
	}
	if r.in.Storage == "" {
		r.notes = append(r.notes, "The disks go to the storages that the archive names; where one is missing on "+node+", it fails.")
		return nil
	}
	name, err := r.pickStorage(ctx, r.in.Storage, node, kind)
	if err != nil {
		return err
	}
	for _, st := range r.inv.Storages {
		if st.Name != name || st.Node != node || st.Total <= 0 {
			continue
		}
		free := st.Total - st.Used
		if need := max(size, r.archive.Size); need > free {
			return gate.Fail(gate.ErrInvalid, "Choose another storage (list_storage), or make room.", "%s has %s free, and at least %s is needed", name, gib(free), gib(need))
		}
		r.notes = append(r.notes, name+" has "+gib(free)+" free.")
	}
	return nil
}

func (r *restoration) isShared(storage string) bool {
	for _, st := range r.inv.Storages {
		if st.Name == storage {
			return st.Shared
		}
	}
	return false
}

func gib(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

func (r *restoration) draft(step gate.Step, id string) *gate.Draft {
	a := r.archive
	if r.in.Start {
		step.Verify = append(step.Verify, gate.Condition{Name: "guest " + id + " is running", Rule: gate.RuleEquals, Value: text("running"), Pointer: "/status",
			Read: gate.Read{Operation: "GET /nodes/{node}/" + r.path() + "/{vmid}/status/current", Params: map[string]string{"node": gate.NodeOf(id), "vmid": id}}})
	}
	notes := []string{fmt.Sprintf("The backup is %s old (%s).", roughly(r.backups.Now.Sub(a.Time)), a.Time.Format(time.RFC3339))}
	switch a.Whose {
	case backups.Own, backups.Likely:
	case backups.Orphan:
		notes = append(notes, "No guest has the id "+a.Guest+" any more.")
	default:
		notes = append(notes, "It is not certain to be of the guest that has the id "+a.Guest+" now: "+a.Why+".")
	}
	if a.Encrypted {
		notes = append(notes, "It is encrypted: the storage needs its key.")
	}
	return &gate.Draft{Target: r.target(), Steps: []gate.Step{step}, Note: strings.TrimSpace(strings.Join(append(notes, r.notes...), " ")), Phrase: id}
}
