package pve

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/backups"
	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/regex"
)

// jobSettings are the arguments that creating and changing a job share, in Proxmox's terms.
type jobSettings struct {
	Schedule string   `json:"schedule,omitempty" jsonschema:"e.g. mon..fri 02:00, */2:00, sat *-1..7 15:00, daily"`
	Storage  string   `json:"storage,omitempty"`
	All      bool     `json:"all,omitempty" jsonschema:"every guest, also those to come"`
	Guests   []string `json:"guests,omitempty" jsonschema:"ids"`
	Pool     string   `json:"pool,omitempty"`
	Exclude  []string `json:"exclude,omitempty" jsonschema:"ids, with all"`
	Node     string   `json:"node,omitempty" jsonschema:"only guests there"`
	Mode     string   `json:"mode,omitempty" enum:"snapshot,suspend,stop"`
	Prune    string   `json:"prune,omitempty" jsonschema:"e.g. keep-last=3,keep-weekly=4"`
	Notes    string   `json:"notes,omitempty" jsonschema:"notes template, e.g. {{guestname}}"`
	Comment  string   `json:"comment,omitempty"`
	Enabled  *bool    `json:"enabled,omitempty"`
	Repeat   *bool    `json:"repeat_missed,omitempty"`
}

// jobKeys are the keys of a job by which three ways of selecting exclude one another.
var jobKeys = []string{"all", "pool", "vmid"}

var jobID = &regex.Lazy{Expr: `^[A-Za-z][A-Za-z0-9_-]{1,49}$`}

// params checks the settings and writes them as the server takes them.
func (in jobSettings) params(s *site) (map[string]string, error) {
	out := map[string]string{}
	if in.Schedule != "" {
		if _, err := backups.ParseEvent(in.Schedule); err != nil {
			return nil, gate.Fail(gate.ErrInvalid, "Correct the schedule.", "%v", err)
		}
		out["schedule"] = in.Schedule
	}
	ways := 0
	for _, given := range []bool{in.All, in.Pool != "", len(in.Guests) > 0} {
		if given {
			ways++
		}
	}
	if ways > 1 {
		return nil, gate.Fail(gate.ErrInvalid, "Give one of all, guests and pool.", "the guests are selected in %d ways", ways)
	}
	ids := func(list []string) (string, error) {
		for _, id := range list {
			if !vmidForm.MatchString(id) {
				return "", gate.Fail(gate.ErrInvalid, "Give ids as list_guests shows them.", "%q is no guest id", clip(id, 40))
			}
			if _, there := s.inv.ByID(id); !there {
				return "", gate.Fail(gate.ErrNotFound, "list_guests shows the guests.", "there is no guest %s", id)
			}
		}
		return strings.Join(list, ","), nil
	}
	var err error
	switch {
	case in.All:
		out["all"] = "1"
	case in.Pool != "":
		out["pool"] = in.Pool
	case len(in.Guests) > 0:
		if out["vmid"], err = ids(in.Guests); err != nil {
			return nil, err
		}
	}
	if len(in.Exclude) > 0 {
		if out["exclude"], err = ids(in.Exclude); err != nil {
			return nil, err
		}
	}
	if in.Node != "" {
		n, err := s.inv.Node(in.Node)
		if err != nil {
			return nil, err
		}
		out["node"] = n.Name
	}
	if err := checkPrune(in.Prune); err != nil {
		return nil, err
	}
	for key, val := range map[string]string{"storage": in.Storage, "mode": in.Mode, "prune-backups": in.Prune, "notes-template": in.Notes, "comment": in.Comment} {
		if val == "" {
			continue
		}
		if key == "prune-backups" {
			parts := strings.Split(val, ",")
			slices.Sort(parts)
			val = strings.Join(parts, ",")
		}
		if len(val) > 500 || strings.ContainsAny(val, "\r\n\x00") {
			return nil, gate.Fail(gate.ErrInvalid, "Give one line of at most 500 bytes.", "%s is too long or has several lines", key)
		}
		out[key] = val
	}
	for key, val := range map[string]*bool{"enabled": in.Enabled, "repeat-missed": in.Repeat} {
		if val != nil {
			out[key] = map[bool]string{true: "1", false: "0"}[*val]
		}
	}
	return out, nil
}

func jobRequest(method string, params map[string]string) (*gate.Request, error) {
	all := map[string]any{}
	for k, v := range params {
		all[k] = v
	}
	path := map[string]string{"POST": "POST /cluster/backup", "PUT": "PUT /cluster/backup/{id}", "DELETE": "DELETE /cluster/backup/{id}"}[method]
	r, err := gate.NewRequest("pve", path, all)
	if err != nil {
		return nil, gate.Fail(gate.ErrInvalid, "Correct the arguments.", "%v", err)
	}
	return &r, nil
}

func jobsRead() gate.Read { return gate.Read{Operation: "GET /cluster/backup"} }

// jobHas are the conditions that a job has a value under a key; an empty one, that it has none. What is read as an object
// is compared key by key: its order is not kept.
func jobHas(id, key, value string) []gate.Condition {
	where := map[string]string{"id": id}
	if c, err := estate.ParseConfig([]byte(value)); composite(key) && err == nil {
		var out []gate.Condition
		for _, name := range slices.Sorted(maps.Keys(c)) {
			out = append(out, gate.Condition{Name: "job " + id + " has " + name + " " + clip(c[name], 60), Read: jobsRead(), Where: where, Pointer: "/" + key + "/" + name, Rule: gate.RuleEquals, Value: text(c[name])})
		}
		return out
	}
	c := gate.Condition{Name: "job " + id + " has " + key + " " + clip(value, 60), Read: jobsRead(), Where: where, Pointer: "/" + key, Rule: gate.RuleEquals, Value: text(value)}
	if value == "" {
		c.Name, c.Rule, c.Value = "job "+id+" has no "+key, gate.RuleAbsent, nil
	}
	return []gate.Condition{c}
}

// jobsNow reads the jobs as they are stored, key by key.
func (s *site) jobsNow(ctx context.Context) (map[string]estate.Config, error) {
	var rows []json.RawMessage
	if _, err := s.read(ctx, &rows, "GET /cluster/backup", nil); err != nil {
		return nil, fmt.Errorf("read the backup jobs: %w", err)
	}
	out := map[string]estate.Config{}
	for _, row := range rows {
		c, err := estate.ParseConfig(row)
		if err != nil {
			return nil, fmt.Errorf("read the backup jobs: %w", err)
		}
		out[c["id"]] = c
	}
	return out, nil
}

// whoNote says in figures whom a job with these settings would cover now, and when it would run.
func (s *site) whoNote(ctx context.Context, settings map[string]string) string {
	bs, err := backups.Look(ctx, s.v, s.target(), backups.Question{Jobs: true})
	if err != nil {
		return ""
	}
	j := backups.NewJob(settings)
	covered := 0
	mine := seen(ctx, s.v, s.target())
	for _, g := range s.inv.Guests {
		if in, _ := bs.Covers(&j, g); in && mine(g) {
			covered++
		}
	}
	note := fmt.Sprintf("It covers %s now. ", plural(covered, "guest", "guests"))
	if !j.On() {
		return note + "It is switched off."
	}
	node := bs.HomeNode(&j)
	var runs []string
	for _, t := range bs.NextRuns(&j, node, 3) {
		runs = append(runs, t.Format("2006-01-02 15:04 MST"))
	}
	if len(runs) == 0 {
		return note + "It never runs by that schedule."
	}
	note += "Next runs: " + strings.Join(runs, ", ")
	if node != "" {
		note += " by the clock of node " + node
	}
	if bs.ZonesDiffer() && j.Node == "" {
		note += "; other nodes are in other time zones and run it by theirs"
	}
	return note + "."
}

// backupStorage checks that a storage takes backups.
func (s *site) backupStorage(ctx context.Context, name string) error {
	rows, missing := s.storages(ctx)
	var fit []string
	for _, r := range rows {
		if slices.Contains(r.Content, "backup") {
			fit = append(fit, r.Storage)
		}
		if r.Storage != name {
			continue
		}
		switch {
		case r.Disabled:
			return gate.Fail(gate.ErrInvalid, "Choose another storage.", "storage %s is disabled", name)
		case slices.Contains(r.Content, "backup"):
			return nil
		}
	}
	slices.Sort(fit)
	hint := "Give one of: " + strings.Join(slices.Compact(fit), ", ")
	if len(missing) > 0 {
		hint += ". Not complete: " + clip(missing[0], 200)
	}
	return gate.Fail(gate.ErrInvalid, hint, "there is no storage %q for backups that can be seen", clip(name, 60))
}

// composite keys are read as objects and sent as property strings.
func composite(k string) bool {
	return k == "prune-backups" || k == "fleecing" || k == "performance" || k == "exclude-path"
}

// settingOf writes a stored value as the server takes it.
func settingOf(k, stored string) string {
	if !composite(k) || !strings.HasPrefix(strings.TrimSpace(stored), "{") {
		return stored
	}
	c, err := estate.ParseConfig([]byte(stored))
	if err != nil {
		return stored
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, name+"="+c[name])
	}
	return strings.Join(parts, ",")
}

// oneJob finds a job by its id.
func oneJob(jobs map[string]estate.Config, id string) (estate.Config, error) {
	if job := jobs[id]; job != nil {
		return job, nil
	}
	all := slices.Sorted(maps.Keys(jobs))
	hint := "The jobs are: " + strings.Join(all[:min(len(all), 20)], ", ")
	if len(all) == 0 {
		hint = "There is none; create_backup_job makes one."
	}
	e := gate.Fail(gate.ErrNotFound, hint, "there is no backup job %q", clip(id, 60))
	if near := gate.Nearest(id, all); near != "" {
		e.Message += fmt.Sprintf("; did you mean %s?", near)
	}
	return nil, e
}

// uncovered names guests that no job that is on would cover any more; after is nil for a job that goes.
func (s *site) uncovered(ctx context.Context, id string, after map[string]string) string {
	bs, err := backups.Look(ctx, s.v, s.target(), backups.Question{Jobs: true})
	if err != nil {
		return "Who falls out of every job could not be read."
	}
	var lost []string
	mine := seen(ctx, s.v, s.target())
	next := backups.NewJob(after)
	for _, g := range s.inv.Guests {
		was, is := false, false
		for i := range bs.Jobs {
			j := &bs.Jobs[i]
			in, _ := bs.Covers(j, g)
			if !in || !j.On() {
				continue
			}
			was = true
			is = is || string(j.ID) != id
		}
		if after != nil && next.On() {
			in, _ := bs.Covers(&next, g)
			is = is || in
		}
		if was && !is && mine(g) && !g.Template {
			lost = append(lost, g.ID)
		}
	}
	if len(lost) == 0 {
		return ""
	}
	const most = 15
	more := ""
	if len(lost) > most {
		more = fmt.Sprintf(" and %d more", len(lost)-most)
	}
	return "No job covers these any more: " + strings.Join(lost[:min(most, len(lost))], ", ") + more + "."
}
