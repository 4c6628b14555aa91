package pve

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/regex"
)

// snapshot is one entry of a guest's list; "current" is the state of now.
type snapshot struct {
	Name        estate.Text `json:"name"`
	Description estate.Text `json:"description"`
	Parent      estate.Text `json:"parent"`
	Time        estate.Int  `json:"snaptime"`
	RAM         estate.Bool `json:"vmstate"`
	State       estate.Text `json:"snapstate"`
}

const current = "current"

// ownPrefix begins the names that castellan makes up.
const ownPrefix = "castellan_"

var ownName = &regex.Lazy{Expr: `^castellan_(undo_)?[0-9]{8}_[0-9]{6}$`}

// madeUp says whether castellan made a snapshot's name up; what people call alike is theirs.
func madeUp(name string) bool { return ownName.MatchString(name) }

var snapshotName = &regex.Lazy{Expr: `^[A-Za-z][A-Za-z0-9_-]{1,39}$`}

func checkSnapshotName(name string) error {
	if name == current || name == "pending" {
		return gate.Fail(gate.ErrInvalid, "Choose another name, or leave it out.", "the name %q is reserved", name)
	}
	if !snapshotName.MatchString(name) {
		return gate.Fail(gate.ErrInvalid, "Use 2 to 40 letters, digits, - and _, a letter first; or leave it out for a made-up name.", "%q is no snapshot name", clip(name, 60))
	}
	return nil
}

// snapshots lists a guest's snapshots without the entry of now, and the name that now builds on.
func (g *guest) snapshots(ctx context.Context) (list []snapshot, base string, err error) {
	var rows []snapshot
	if _, err := g.site.read(ctx, &rows, g.at("GET", "/snapshot"), g.params(nil)); err != nil {
		return nil, "", fmt.Errorf("list the snapshots of %s: %w", g.Title(), err)
	}
	for _, r := range rows {
		if r.Name == current {
			base = string(r.Parent)
			continue
		}
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b snapshot) int {
		if a.Time != b.Time {
			return int(a.Time - b.Time)
		}
		return strings.Compare(string(a.Name), string(b.Name))
	})
	return list, base, nil
}

// snapshot finds one by name, or names those that there are.
func (g *guest) snapshot(ctx context.Context, name string) (snapshot, []snapshot, error) {
	list, _, err := g.snapshots(ctx)
	if err != nil {
		return snapshot{}, nil, err
	}
	var names []string
	for _, s := range list {
		if string(s.Name) == name {
			return s, list, nil
		}
		names = append(names, string(s.Name))
	}
	e := gate.Fail(gate.ErrNotFound, "list_snapshots shows them.", "%s has no snapshot %q", g.Title(), clip(name, 60))
	switch near := gate.Nearest(name, names); {
	case near != "":
		e.Message += fmt.Sprintf("; did you mean %s?", near)
	case len(names) == 0:
		e.Message += "; it has none"
	default:
		e.Message += "; it has " + strings.Join(names[max(0, len(names)-20):], ", ")
	}
	return snapshot{}, nil, e
}

// snapshotIs are conditions that tell this snapshot from a later one of the same name.
func (g *guest) snapshotIs(s snapshot) gate.Condition {
	return gate.Condition{Name: fmt.Sprintf("snapshot %s is the one of %s", s.Name, stamp(int64(s.Time))), Read: g.fresh("/snapshot", nil),
		Where: map[string]string{"name": string(s.Name)}, Pointer: "/snaptime", Rule: gate.RuleEquals, Value: text(fmt.Sprint(int64(s.Time)))}
}

func (g *guest) noSnapshot(name string) gate.Condition {
	return gate.Condition{Name: "there is no snapshot " + name, Read: g.fresh("/snapshot", nil), Where: map[string]string{"name": name}, Rule: gate.RuleAbsent}
}

func (g *guest) hasSnapshot(name string) []gate.Condition {
	where := map[string]string{"name": name}
	return []gate.Condition{
		{Name: "snapshot " + name + " is there", Read: g.fresh("/snapshot", nil), Where: where, Rule: gate.RulePresent},
		{Name: "snapshot " + name + " is complete", Read: g.fresh("/snapshot", nil), Where: where, Pointer: "/snapstate", Rule: gate.RuleAbsent},
	}
}

// supports asks whether the guest's storages can do a feature; what cannot be asked is not claimed.
func (g *guest) supports(ctx context.Context, feature string) (yes, known bool) {
	var out struct {
		Has *estate.Bool `json:"hasFeature"`
	}
	if _, err := g.site.read(ctx, &out, g.at("GET", "/feature"), g.params(map[string]string{"feature": feature})); err != nil || out.Has == nil {
		return false, false
	}
	return bool(*out.Has), true
}
