// Package undo knows how configurations are read and written back. Before a step is sent it says which of them the step
// changes; afterwards it makes of what they showed before and after a plan that restores exactly what the step changed.
package undo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"castellan/internal/catalog"
	"castellan/internal/gate"
)

// Config is what a Keeper is made of.
type Config struct {
	Catalog *catalog.Catalog
	Estate  gate.Estate
}

// Keeper implements gate.Keeper.
type Keeper struct{ c Config }

// New makes a Keeper.
func New(c Config) (*Keeper, error) {
	if c.Catalog == nil || c.Estate == nil {
		return nil, errors.New("make keeper: Catalog or Estate is missing")
	}
	return &Keeper{c}, nil
}

var _ gate.Keeper = (*Keeper)(nil)

// Undo says how a step is taken back. What the planner says of it stands, but where a configuration can be read and
// written back that way is taken.
func (k *Keeper) Undo(ctx context.Context, v gate.View, s gate.Step) gate.Undo {
	u := s.Undo
	op, ok := k.c.Catalog.Lookup(s.API.Product, s.API.Operation)
	if !ok {
		return u
	}
	r := &request{k: k, ctx: ctx, v: v, step: s, op: op}
	if u.None != "" || u.Kept != "" {
		return u
	}
	if why := noWay(op.ID); why != "" {
		return gate.Undo{None: why}
	}
	if r.renames() {
		return r.renameBack()
	}
	sheets, err := r.sheets()
	if err != nil {
		return gate.Undo{None: "what it changes cannot be read, so there is nothing to set back: " + clip(err.Error(), 200)}
	}
	if len(sheets) == 0 {
		if u.Call == nil && u.How == "" {
			u = r.opposite()
		}
		return u
	}
	u.Sheets, u.Call = sheets, nil
	r.foresee(&u)
	return u
}

// noWay names operations after which there is no way back, and why.
func noWay(id string) string {
	for _, n := range []struct{ end, why string }{
		{"PUT /cluster/sdn", "what it brings into force stays until the staged settings are set back and applied again"},
		{"PUT /nodes/{node}/network", "what it brings into force stays until the staged settings are set back and applied again"},
		{"DELETE /nodes/{node}/network", "the staged changes that it drops are kept nowhere"},
		{"POST /cluster/sdn/rollback", "the staged changes that it drops are kept nowhere"},
		{"/rollback", "what was written since the snapshot is lost"},
		{"/resize", "a disk cannot be made smaller again"},
		{"/template", "no call makes its base disks ordinary ones again"},
		{"PUT /access/password", "the old password cannot be read"},
	} {
		if n.end == id || strings.HasPrefix(n.end, "/") && strings.HasSuffix(id, n.end) {
			return n.why
		}
	}
	return ""
}

// opposite is the other direction of what starts, stops or moves a guest.
func (r *request) opposite() gate.Undo {
	none := gate.Undo{None: r.nothingKnown()}
	if r.op.Product != "pve" || r.op.Method != "POST" || r.text("vmid") == "" {
		return none
	}
	base, action, power := strings.Cut(r.op.Path, "/status/")
	args, u := map[string]any{"node": r.text("node"), "vmid": r.text("vmid")}, gate.Undo{}
	path := ""
	switch back := map[string]string{"start": "shutdown", "shutdown": "start", "stop": "start", "suspend": "resume", "resume": "suspend"}[action]; {
	case power && back != "":
		path, u.How = base+"/status/"+back, back+" it again"
		if action == "stop" {
			u.Lost = []string{"what was only in its memory, and what was not yet on its disks"}
		}
	case strings.HasSuffix(r.op.Path, "/migrate"):
		path, u.How, args["target"] = r.op.Path, "move it back to "+r.text("node"), r.text("node")
		args["node"] = r.text("target")
	default:
		return none
	}
	op, ok := r.k.c.Catalog.Lookup(r.op.Product, "POST "+path)
	if !ok {
		return none
	}
	req, problems := r.k.c.Catalog.Check(op, args)
	if len(problems) > 0 {
		return none
	}
	u.Call = &req
	return u
}

func (r *request) nothingKnown() string {
	j := r.step.Judgement
	switch {
	case j.Effect == gate.EffectDestroy && (r.op.Method == "DELETE" || slices.Contains(j.Classes, gate.ClassData)):
		return r.whyDestroys()
	case j.Effect == gate.EffectExecute || j.Effect == gate.EffectExpose:
		return "what was run or shown cannot be taken back"
	}
	return "no call is known that takes it back"
}

// whyDestroys says what does not come back of a request that counts as destroying. Where its class alone makes it that, by a
// parameter that it has or lacks, what it is named for may come back all the same: then it tells what counts.
func (r *request) whyDestroys() string {
	const all = "what is destroyed does not come back"
	if r.op.Method == "DELETE" || !slices.Contains(r.step.Judgement.Classes, gate.ClassData) {
		return all
	}
	switch last := r.op.Path[strings.LastIndexByte(r.op.Path, '/')+1:]; {
	case last == "vzdump" && r.spares(map[string]string{"remove": "0"}, "prune-backups"):
		return "it counts as destroying since it may delete older archives of what it backs up, as the storage's retention or prune-backups says, and these do not come back; remove=0 without prune-backups keeps them"
	case (last == "move_disk" || last == "move_volume") && r.spares(nil, "delete"):
		return "it counts as destroying since the volume that the disk leaves is deleted when all of it is copied (delete); what is on the disk is kept, at its new place, from where another move takes it back"
	case last == "remote_migrate" && r.spares(nil, "delete"):
		return "it counts as destroying since the guest is deleted here when all of it is over there (delete), and castellan does not move it back"
	}
	var by []string
	for _, p := range r.step.API.Params {
		if !slices.Contains(r.op.Placeholders, p.Name) && r.spares(nil, p.Name) {
			by = append(by, p.Name)
		}
	}
	if len(by) == 0 {
		return all
	}
	return "it counts as destroying for " + strings.Join(by, " and ") + ": what that destroys or overwrites does not come back"
}

// spares says whether the request would destroy no data with these values and without these parameters.
func (r *request) spares(with map[string]string, without ...string) bool {
	req := *r.step.API
	req.Params = slices.DeleteFunc(slices.Clone(req.Params), func(p gate.Param) bool { return with[p.Name] != "" || slices.Contains(without, p.Name) })
	for name, text := range with {
		req.Params = append(req.Params, gate.Param{Name: name, Values: []gate.Value{{Text: text}}})
	}
	j := r.k.c.Catalog.Judge(r.op, req)
	return j.Effect != gate.EffectDestroy && !slices.Contains(j.Classes, gate.ClassData)
}

// foresee says in words what undo would do, from what is there now.
func (r *request) foresee(u *gate.Undo) {
	var made, changed, gone bool
	for i, s := range u.Sheets {
		img, err := gate.LookAt(r.ctx, r.v, r.step.Target, s)
		if err != nil {
			*u = gate.Undo{None: "what it changes cannot be read, so there is nothing to set back: " + clip(err.Error(), 200)}
			return
		}
		if i > 0 {
			continue
		}
		switch {
		case s.Form != gate.SheetObject:
			changed = true
		case r.op.ID == s.Delete:
			gone = true
			if len(img.Rows) > 0 {
				u.Lost = append(u.Lost, r.lostWith(img.Rows[0])...)
			}
			if s.Create == "" {
				*u = gate.Undo{None: "no call is known that makes it again"}
				return
			}
		case len(img.Rows) == 0:
			made = true
			if s.Delete == "" {
				*u = gate.Undo{None: "no call is known that takes it away again"}
				return
			}
		default:
			changed = true
		}
	}
	u.Lost = append(u.Lost, r.secrets()...)
	u.Lost = append(u.Lost, r.volumes()...)
	switch {
	case changed:
		u.How = "the old values are set again"
	case gone:
		u.How = "it is created again as it was"
	case made:
		u.How = "what it creates is deleted, unless somebody has used it by then"
	}
	if changed && len(u.Lost) > 0 && !r.changesMore() {
		u.None, u.Sheets, u.How, u.Lost = strings.Join(u.Lost, "; "), nil, "", nil
	}
}

// secrets names what the request sets and nobody can read back.
func (r *request) secrets() (lost []string) {
	for _, p := range r.step.API.Params {
		if slices.ContainsFunc(p.Values, func(v gate.Value) bool { return v.Secret != nil }) || slices.Contains(r.op.Secrets(), p.Name) {
			if r.op.Method == "PUT" || strings.HasSuffix(r.op.ID, "/config") {
				lost = append(lost, p.Name+" (its old value cannot be read: it must be typed again)")
			}
		}
	}
	return lost
}

// changesMore says whether the request sets anything that can be read back.
func (r *request) changesMore() bool {
	for _, p := range r.step.API.Params {
		secret := slices.ContainsFunc(p.Values, func(v gate.Value) bool { return v.Secret != nil })
		if secret || slices.Contains(r.op.Placeholders, p.Name) || p.Name == "digest" || unusedDisk(p.Name) {
			continue
		}
		if p.Name == "delete" && !slices.ContainsFunc(listed(r.step.API.Text("delete")), func(k string) bool { return !unusedDisk(k) }) {
			continue
		}
		return true
	}
	return false
}

// volumes names what stays of a guest's disks, or does not come back with its settings.
func (r *request) volumes() (lost []string) {
	if !guestConfig(r.op.Path) {
		return nil
	}
	for _, k := range listed(r.step.API.Text("delete")) {
		if unusedDisk(k) {
			lost = append(lost, k+" (the volume is destroyed)")
		}
	}
	for _, p := range r.step.API.Params {
		if text := r.step.API.Text(p.Name); diskName(p.Name) && newVolume(text) {
			lost = append(lost, p.Name+" (the new volume stays as an unused disk when it is detached)")
		}
	}
	return lost
}

// lostWith names what cannot be given to the call that makes an object again.
func (r *request) lostWith(row map[string]rawJSON) (lost []string) {
	again := " must be typed again"
	kind, _ := scalar(row["type"])
	switch path := r.op.Path; {
	case path == "/storage/{storage}":
		lost = map[string][]string{"cifs": {"password"}, "pbs": {"password", "encryption key"}, "esxi": {"password"}}[kind]
	case path == "/access/users/{userid}" && strings.HasSuffix(r.step.API.Text("userid"), "@pve"):
		lost = []string{"password"}
	case path == "/access/domains/{realm}":
		lost = map[string][]string{"ldap": {"bind password"}, "ad": {"bind password"}, "openid": {"client key"}}[kind]
	case strings.Contains(path, "/token/{tokenid}"):
		return []string{"the token's secret (a new one is made)"}
	case strings.HasPrefix(path, "/cluster/metrics/server/"):
		lost = map[string][]string{"influxdb": {"token"}}[kind]
	case strings.HasPrefix(path, "/cluster/notifications/endpoints/smtp"):
		lost = []string{"password"}
	case strings.HasPrefix(path, "/cluster/notifications/endpoints/gotify"):
		lost = []string{"token"}
	case strings.HasPrefix(path, "/cluster/notifications/endpoints/webhook"):
		lost = []string{"secrets"}
	}
	var out []string
	for _, l := range lost {
		out = append(out, l+" ("+"it cannot be read:"+again+")")
	}
	if tokens, ok := row["tokens"]; ok && string(tokens) != "[]" && string(tokens) != "{}" {
		out = append(out, "its API tokens (their secrets are gone)")
	}
	return out
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

func listed(s string) []string { return gate.SplitList(s) }

// where writes a path with its values filled in, for people.
func where(path string, place map[string]string) string {
	for k, v := range place {
		if strings.HasPrefix(v, "@") {
			continue
		}
		path = strings.ReplaceAll(path, "{"+k+"}", v)
	}
	return strings.TrimPrefix(strings.NewReplacer("/{node}", "").Replace(path), "/")
}

func fail(hint, format string, args ...any) error {
	return gate.Fail(gate.ErrStale, hint, format, args...)
}

var errUnread = fmt.Errorf("it could not be read")
