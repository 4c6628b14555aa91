package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// UndoPoint names the operation that plans a snapshot before a change, UndoPointPrefix begins the names of such snapshots.
const (
	UndoPoint       = "undo_point"
	UndoPointPrefix = "castellan_undo_"
	// PrunePoints names the operation that plans the deletion of old ones.
	PrunePoints = "prune_snapshots"
)

// withUndoPoints puts a snapshot of each guest before the steps that policy wants one for. Where one cannot be taken there
// is no plan: what comes after it counts on it.
func (g *Gate) withUndoPoints(ctx context.Context, v *view, op *Operation, d *Draft) (*Draft, error) {
	if op.Name == UndoPoint {
		return d, nil
	}
	if e := g.backedUpFirst(d, "", map[[2]string]bool{}); e != nil {
		return nil, e
	}
	kinds := g.c.Policy.Limits().UndoPoints
	wanted, had := map[[2]string]string{}, map[[2]string]string{} // target and guest → the snapshot that is gone back to, and that is taken
	g.pointsOf(d, "", kinds, wanted, had)
	maps.DeleteFunc(wanted, func(k [2]string, _ string) bool { return had[k] != "" })
	if len(wanted) == 0 {
		return d, nil
	}
	most := maxUndoPoints
	if d.Parallel > 0 {
		most = maxCourseUndoPoints
	}
	if len(wanted) > most {
		return nil, Fail(ErrInvalid, "Make several plans.", "policy wants a snapshot before this, of %d guests; at most %d are taken at once", len(wanted), most)
	}
	if d.Parallel > 0 {
		return g.pointsInParts(ctx, v, d, kinds, wanted)
	}
	out := &Draft{Target: d.Target, Note: d.Note, Phrase: d.Phrase, Undoes: d.Undoes}
	var err error
	if out.Steps, err = g.takePoints(ctx, v, wanted); err != nil {
		return nil, err
	}
	made := len(out.Steps)
	old := g.oldPoints(ctx, v, d, wanted)
	out.Note = strings.TrimSpace(out.Note + fmt.Sprintf(" Policy wants a snapshot first (%d); without it the rest is not done.", made) + old.Note)
	if len(d.Steps) == 0 { // parts stay parts of their own
		out.Children, out.Diff, out.Skip = append(slices.Clone(d.Children), old.Children...), d.Diff, d.Skip
		return out, nil
	}
	out.Children = append([]*Draft{d}, old.Children...)
	return out, nil
}

// takePoints plans the snapshots.
func (g *Gate) takePoints(ctx context.Context, v *view, wanted map[[2]string]string) (steps []Step, err error) {
	for _, k := range slices.SortedFunc(maps.Keys(wanted), func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) }) {
		args, err := json.Marshal(map[string]string{"guest": k[1], "rollback": wanted[k], "target": k[0]})
		if err != nil {
			return nil, err
		}
		point, err := v.Plan(ctx, UndoPoint, args)
		if err != nil {
			e := *g.readError(err)
			e.Message = "policy wants a snapshot before this (policy.undo_points): " + e.Message
			return nil, &e
		}
		for _, s := range point.Steps {
			s.Target = orText(s.Target, point.Target)
			steps = append(steps, s)
		}
	}
	return steps, nil
}

// pointsInParts puts the snapshots of a plan whose parts run side by side into the parts that want them: one that fails ends
// its own part, and the last guest's is no older than need be.
func (g *Gate) pointsInParts(ctx context.Context, v *view, d *Draft, kinds []Kind, wanted map[[2]string]string) (*Draft, error) {
	out := *d
	own := map[[2]string]string{} // of the plan's own steps, which come before all parts
	g.pointsOf(&Draft{Target: d.Target, Steps: d.Steps}, "", kinds, own, map[[2]string]string{})
	if len(own) > 0 {
		return nil, Fail(ErrInternal, "", "steps of the plan itself want a snapshot first, where parts run side by side")
	}
	out.Children = nil
	last, made, old := 0, 0, []*Draft(nil)
	for _, child := range d.Children {
		last = max(last, child.Batch)
		mine, had := map[[2]string]string{}, map[[2]string]string{}
		g.pointsOf(child, d.Target, kinds, mine, had)
		maps.DeleteFunc(mine, func(k [2]string, _ string) bool { _, still := wanted[k]; return !still || had[k] != "" })
		if len(mine) == 0 {
			out.Children = append(out.Children, child)
			continue
		}
		steps, err := g.takePoints(ctx, v, mine)
		if err != nil {
			return nil, err
		}
		made += len(steps)
		inner := *child
		inner.Batch, inner.Canary = 0, false
		out.Children = append(out.Children, &Draft{Steps: steps, Children: []*Draft{&inner}, Batch: child.Batch, Canary: child.Canary})
		if gone := g.oldPoints(ctx, v, d, mine); len(gone.Children) > 0 || gone.Note != "" {
			old = append(old, gone)
		}
	}
	for _, o := range old { // when all batches have ended
		out.Note += o.Note
		if len(o.Children) > 0 {
			out.Children = append(out.Children, &Draft{Children: o.Children, Batch: last + 1})
		}
	}
	out.Note = strings.TrimSpace(out.Note + fmt.Sprintf(" Policy wants a snapshot first (%d); without it the part of that guest is not done.", made))
	return &out, nil
}

// oldPoints plans the deletion of old undo points of the guests that get a new one, after all else is done. What cannot be
// planned stays, and is no reason against the change.
func (g *Gate) oldPoints(ctx context.Context, v *view, d *Draft, wanted map[[2]string]string) *Draft {
	limits, out := g.c.Policy.Limits(), &Draft{}
	if limits.PruneAfter < 24*time.Hour {
		return out
	}
	if v.scheduled {
		out.Note = " Old undo points stay: no mandate covers that they are deleted."
		return out
	}
	named := map[[2]string]bool{} // by the plan itself: what it goes back to is not deleted by it
	namedIn(d, named)
	for _, k := range slices.SortedFunc(maps.Keys(wanted), func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) }) {
		args, err := json.Marshal(map[string]any{"guest": k[1], "target": k[0], "older_than_days": int(limits.PruneAfter / (24 * time.Hour)), "keep": max(0, limits.PruneBeside-1), "undo_points": true})
		if err != nil {
			continue
		}
		old, err := v.Plan(ctx, PrunePoints, args)
		if err != nil {
			out.Note += " Old undo points of guest " + k[1] + " stay: " + clip(err.Error(), 200) + "."
			continue
		}
		for _, c := range old.Children {
			if !slices.ContainsFunc(c.Steps, func(s Step) bool { return named[[2]string{s.API.Text("vmid"), s.API.Text("snapname")}] }) {
				c.Target = orText(c.Target, orText(old.Target, k[0]))
				out.Children = append(out.Children, c)
				out.Note += " Afterwards the old undo point " + c.Steps[0].API.Text("snapname") + " of guest " + k[1] + " is deleted (policy.undo_points_days)."
			}
		}
	}
	return out
}

func namedIn(d *Draft, named map[[2]string]bool) {
	for _, s := range d.Steps {
		if s.API != nil && s.API.Text("snapname") != "" {
			named[[2]string{s.API.Text("vmid"), s.API.Text("snapname")}] = true
		}
	}
	for _, c := range d.Children {
		namedIn(c, named)
	}
}

// pointsOf finds the guests whose change wants a snapshot first, and those that the plan snapshots itself and leaves so.
func (g *Gate) pointsOf(d *Draft, target string, kinds []Kind, wanted, had map[[2]string]string) {
	target = orText(d.Target, target)
	for _, s := range d.Steps {
		if s.API == nil {
			continue
		}
		plain := Request{Product: s.API.Product, Operation: s.API.Operation}
		for _, p := range s.API.Params {
			plain.Params = append(plain.Params, Param{Name: p.Name, Values: []Value{{Text: s.API.Text(p.Name)}}})
		}
		j := g.c.Catalog.Judge(plain)
		at := orText(s.Target, target)
		if vmid := s.API.Text("vmid"); strings.HasSuffix(s.API.Operation, "/snapshot") && strings.HasPrefix(s.API.Operation, "POST ") {
			if _, late := wanted[[2]string{at, vmid}]; !late && s.When == (When{}) { // one that is taken only where something fails is none before
				had[[2]string{at, vmid}] = s.API.Text("snapname")
			}
			continue
		} else if key := [2]string{at, vmid}; strings.HasSuffix(s.API.Operation, "/snapshot/{snapname}") && strings.HasPrefix(s.API.Operation, "DELETE ") && had[key] == s.API.Text("snapname") {
			delete(had, key) // a way back that the plan itself takes away is none
		}
		if key := [2]string{at, s.API.Text("vmid")}; s.API.wantsSnapshot() {
			if _, has := wanted[key]; !has {
				wanted[key] = ""
			}
			continue
		}
		if !slices.ContainsFunc(j.Kinds, func(k Kind) bool { return slices.Contains(kinds, k) }) {
			continue
		}
		for _, r := range j.References {
			if r.Use != UseActs || r.Object.Kind != ObjectGuest || r.Object.ID == "" || !strings.HasPrefix(strings.TrimLeft(s.API.Operation, "PUTOSDELE"), " /nodes/{node}/") {
				continue
			}
			key := [2]string{at, r.Object.ID}
			if strings.HasSuffix(s.API.Operation, "/rollback") {
				wanted[key] = s.API.Text("snapname")
			} else if _, has := wanted[key]; !has {
				wanted[key] = ""
			}
		}
	}
	for _, c := range d.Children {
		g.pointsOf(c, target, kinds, wanted, had)
	}
}

// undoPoints names the snapshots that a plan takes first.
func undoPoints(p *Plan) (out []string) {
	for _, s := range p.Steps {
		if name := s.API.Text("snapname"); strings.HasPrefix(name, UndoPointPrefix) && strings.HasPrefix(s.API.Operation, "POST ") && strings.HasSuffix(s.API.Operation, "/snapshot") {
			out = append(out, "guest "+s.API.Text("vmid")+": "+name)
		}
	}
	return out
}

// wantsSnapshot says whether a run works on the packages of a guest and counts on a snapshot before: it gets one, whatever
// policy says of other kinds.
func (r Request) wantsSnapshot() bool {
	return r.worksOnPackages() && slices.Contains([]string{"", "snapshot"}, r.Text("protect"))
}

func (r Request) worksOnPackages() bool {
	return r.IsRun() && strings.Contains(r.Operation, "/{vmid}/") && (strings.HasSuffix(r.Operation, "/upgrade") || strings.HasSuffix(r.Operation, "/repair"))
}

// plainBackup are the parameters of a backup that leave nothing out of it.
var plainBackup = []string{"node", "vmid", "storage", "mode", "compress", "zstd", "pigz", "notes-template", "protected", "prune-backups", "remove", "bwlimit", "ionice", "lockwait", "stopwait", "performance", "fleecing",
	"pbs-change-detection-mode", "mailto", "mailnotification", "notification-mode", "quiet"}

// wholeBackup says whether a backup is one of all of a guest: paths that are excluded, for one, do not come back with it.
func (r Request) wholeBackup() bool {
	return !slices.ContainsFunc(r.Params, func(p Param) bool { return !slices.Contains(plainBackup, p.Name) })
}

// backedUpFirst refuses a run that says a backup comes before it, where the plan makes none.
func (g *Gate) backedUpFirst(d *Draft, target string, made map[[2]string]bool) *Error {
	target = orText(d.Target, target)
	for _, s := range d.Steps {
		if s.API == nil {
			continue
		}
		key := [2]string{orText(s.Target, target), s.API.Text("vmid")}
		if s.API.Operation == "POST /nodes/{node}/vzdump" && s.When == (When{}) && s.API.wholeBackup() {
			made[key] = true
		}
		// What the plan itself takes away again is no way back; which of several archives it is, is not known beforehand.
		if strings.HasPrefix(s.API.Operation, "DELETE ") && (strings.HasSuffix(s.API.Operation, "/content/{volume}") || strings.HasSuffix(s.API.Operation, "/prunebackups")) {
			clear(made)
		}
		if s.API.worksOnPackages() && s.API.Text("protect") == "backup" && !made[key] {
			return Fail(ErrInvalid, "Use apply_updates, which makes the backup.", "it counts on a backup of guest %s, and nothing before it makes one of all of it that stays", clip(key[1], 20))
		}
	}
	for _, c := range d.Children {
		if e := g.backedUpFirst(c, target, made); e != nil {
			return e
		}
	}
	return nil
}
