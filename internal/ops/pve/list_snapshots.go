package pve

import (
	"context"
	"strings"

	"castellan/internal/gate"
)

type listSnapshotsIn struct {
	Guest  string `json:"guest" jsonschema:"id or unique name"`
	Target string `json:"target,omitempty"`
}

type listSnapshotsOut struct {
	VMID      int64         `json:"vmid"`
	Name      string        `json:"name,omitempty"`
	Node      string        `json:"node"`
	Snapshots []snapshotRow `json:"snapshots"` // parents before children
	BuildsOn  string        `json:"now_builds_on,omitempty"`
	Count     int           `json:"count"`
}

type snapshotRow struct {
	Name        string `json:"name"`
	Parent      string `json:"parent,omitempty"`
	Depth       int    `json:"depth"`
	Time        string `json:"time,omitempty"`
	Description string `json:"description,omitempty"`
	RAM         bool   `json:"with_ram,omitempty"`
	Own         bool   `json:"made_by_castellan,omitempty"`
	Now         bool   `json:"now_builds_on_it,omitempty"`
	Unfinished  string `json:"unfinished,omitempty"`
}

func listSnapshots() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "list_snapshots", Summary: "Snapshots of a guest, as a tree. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "checkpoint restore point history state saved", Toolset: "standard", Guest: "guest",
	}, runListSnapshots)
}

func runListSnapshots(ctx context.Context, v gate.View, in listSnapshotsIn) (listSnapshotsOut, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return listSnapshotsOut{}, err
	}
	found, err := s.inv.Guest(ctx, v, in.Guest)
	if err != nil {
		return listSnapshotsOut{}, err
	}
	g := &guest{Guest: found, site: s}
	list, base, err := g.snapshots(ctx)
	if err != nil {
		return listSnapshotsOut{}, err
	}
	return listSnapshotsOut{VMID: g.Number, Name: g.Name, Node: g.Node, Snapshots: tree(list, base), BuildsOn: base, Count: len(list)}, nil
}

// tree puts parents before children, siblings by time. A snapshot whose parent is gone stands at the root; what
// only its own descendants lead to is not lost either.
func tree(list []snapshot, base string) []snapshotRow {
	children, known := map[string][]snapshot{}, map[string]bool{}
	for _, s := range list {
		known[string(s.Name)] = true
	}
	for _, s := range list {
		parent := string(s.Parent)
		if !known[parent] || parent == string(s.Name) {
			parent = ""
		}
		children[parent] = append(children[parent], s)
	}
	rows, done := []snapshotRow{}, map[string]bool{}
	var walk func(parent string, depth int)
	walk = func(parent string, depth int) {
		for _, s := range children[parent] {
			name := string(s.Name)
			if done[name] {
				continue
			}
			done[name] = true
			rows = append(rows, snapshotRow{Name: name, Parent: parent, Depth: depth, Time: stamp(int64(s.Time)), Description: strings.TrimSpace(string(s.Description)),
				RAM: bool(s.RAM), Own: madeUp(name), Now: name == base, Unfinished: string(s.State)})
			walk(name, depth+1)
		}
	}
	walk("", 0)
	for _, s := range list {
		if !done[string(s.Name)] {
			children[""] = []snapshot{s}
			walk("", 0)
		}
	}
	return rows
}
