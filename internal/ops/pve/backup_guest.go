package pve

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

type backupGuestIn struct {
	Guest   string `json:"guest" jsonschema:"id or unique name"`
	Storage string `json:"storage,omitempty"`
	Mode    string `json:"mode,omitempty" enum:"snapshot,suspend,stop"`
	Notes   string `json:"notes,omitempty"`
	Prune   string `json:"prune,omitempty" jsonschema:"e.g. keep-last=3; default: keep all"`
	Target  string `json:"target,omitempty"`
}

func backupGuest() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "backup_guest", Summary: "Back a guest up now. Write; removes older archives only with prune", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindBackup}, Undo: "delete the archive that its task names", Keywords: "vzdump archive dump save copy pbs create_backup",
		Toolset: "standard", Bounded: true, Guest: "guest",
	}, planBackup)
}

func planBackup(ctx context.Context, v gate.View, in backupGuestIn) (*gate.Draft, error) {
	if err := checkPrune(in.Prune); err != nil {
		return nil, err
	}
	if len(in.Notes) > 1000 || strings.ContainsAny(in.Notes, "\r\n") {
		return nil, gate.Fail(gate.ErrInvalid, "Give one line of at most 1000 bytes.", "the notes are too long or have several lines")
	}
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	g, err := s.guest(ctx, in.Guest)
	if err != nil {
		return nil, err
	}
	if err := g.notLocked(ctx); err != nil {
		return nil, err
	}
	storage, err := s.pickStorage(ctx, in.Storage, g.Node, "backup")
	if err != nil {
		return nil, err
	}
	mode := in.Mode
	if mode == "" {
		mode = "snapshot"
	}
	note := g.nameNote(in.Guest)
	params := map[string]any{"node": gate.Ref{Guest: g.ID, Plan: g.Node}, "vmid": g.ID, "storage": storage, "mode": mode, "compress": "zstd"}
	switch {
	case in.Prune != "":
		params["prune-backups"] = in.Prune
	case s.mayAllocate(ctx, storage):
		params["prune-backups"], params["remove"] = "keep-all=1", false
	default: // saying that all are kept takes a right that making a backup does not
		params["remove"] = false
		note += "Where the storage keeps a limited number of archives and that is reached, it fails rather than remove one (to go on: Datastore.Allocate on /storage/" + storage + "). "
	}
	if in.Notes != "" {
		params["notes-template"] = in.Notes
	}
	r, err := gate.NewRequest("pve", "POST /nodes/{node}/vzdump", params)
	if err != nil {
		return nil, err
	}
	step := gate.Step{API: &r, Wait: gate.Wait{Kind: gate.WaitTask, Limit: 24 * time.Hour}}
	step.Require, _ = estate.Identify(ctx, v, s.target(), g.Guest, g.config)
	step.Require = append(step.Require, g.unlocked())
	step.Undo.How = "delete the archive that the task's log names"
	if in.Prune != "" {
		step.Undo.None, step.Undo.How = "older archives that "+in.Prune+" does not keep are removed for good", ""
		note += "Afterwards older, unprotected archives of this guest in that storage are removed down to " + in.Prune + ". "
	}
	if g.running() && mode == "stop" {
		note += "Mode stop shuts the guest down and starts it again. "
	}
	if g.running() && g.Kind == estate.CT && mode == "snapshot" {
		note += "Where its storage has no snapshots the container is halted for moments instead. "
	}
	note += "The guest is locked meanwhile; another backup on that node is waited for."
	return &gate.Draft{Target: s.target(), Steps: []gate.Step{step}, Note: strings.TrimSpace(note), Phrase: g.ID}, nil
}

// mayAllocate says whether castellan's user may set what a storage keeps; not knowing counts as yes, since the server asks too.
func (s *site) mayAllocate(ctx context.Context, storage string) bool {
	var held map[string]map[string]estate.Int
	path := "/storage/" + storage
	if _, err := s.read(ctx, &held, "GET /access/permissions", map[string]string{"path": path}); err != nil {
		return true
	}
	_, may := held[path]["Datastore.Allocate"]
	return may
}

var keepWords = []string{"keep-all", "keep-last", "keep-hourly", "keep-daily", "keep-weekly", "keep-monthly", "keep-yearly"}

func checkPrune(s string) error {
	if s == "" {
		return nil
	}
	for _, part := range strings.Split(s, ",") {
		name, n, ok := strings.Cut(part, "=")
		if !ok || !slices.Contains(keepWords, name) || n == "" || len(n) > 6 || strings.Trim(n, "0123456789") != "" {
			return gate.Fail(gate.ErrInvalid, "Give it as keep-last=3,keep-weekly=4; the words are "+strings.Join(keepWords, ", ")+".", "prune %q is not understood", clip(s, 80))
		}
	}
	return nil
}

// pickStorage checks the named storage, or finds the only one that takes this content on the node.
func (s *site) pickStorage(ctx context.Context, name, node, kind string) (string, error) {
	rows, _ := s.storages(ctx)
	var fit, alive, all []string
	for _, r := range rows {
		if r.Node != node && !slices.Contains(r.Nodes, node) && !(r.Shared && len(r.Nodes) == 0) {
			if r.Storage == name {
				all = append(all, r.Storage+" (not on "+node+")")
			}
			continue
		}
		all = append(all, fmt.Sprintf("%s (%s; %s)", r.Storage, strings.Join(r.Content, ","), r.Status))
		if slices.Contains(r.Content, kind) && !r.Disabled {
			fit = append(fit, r.Storage)
			if r.Status == "available" {
				alive = append(alive, r.Storage)
			}
		}
	}
	have := "On " + node + " there are: " + strings.Join(all, ", ") + "."
	if len(all) == 0 {
		have = "No storage can be seen on " + node + ": castellan's user may lack Datastore.Audit."
	}
	switch {
	case name != "" && slices.Contains(fit, name):
		return name, nil
	case name != "":
		e := gate.Fail(gate.ErrInvalid, have, "storage %q takes no %s on node %s", clip(name, 60), kind, node)
		if near := gate.Nearest(name, fit); near != "" {
			e.Message += fmt.Sprintf("; did you mean %s?", near)
		}
		return "", e
	case len(alive) == 1:
		return alive[0], nil
	case len(fit) == 1:
		return fit[0], nil
	case len(fit) == 0:
		return "", gate.Fail(gate.ErrInvalid, have, "no storage on node %s takes %s", node, kind)
	}
	return "", gate.Fail(gate.ErrInvalid, "Give storage, one of: "+strings.Join(fit, ", "), "%d storages on node %s take %s", len(fit), node, kind)
}
