package pve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

type setGuestConfigIn struct {
	Guest  string         `json:"guest" jsonschema:"id or unique name"`
	Set    map[string]any `json:"set,omitempty" jsonschema:"name to value, such as memory to 4096; +10G grows a disk"`
	Delete []string       `json:"delete,omitempty" jsonschema:"names to unset"`
	Target string         `json:"target,omitempty"`
}

func setGuestConfig() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "set_guest_config", Summary: "Change guest settings by their PVE names. Write; the plan shows each difference; undo: old values", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindConfig, gate.KindGrow}, Undo: "the old values are set again; a destroyed volume does not come back",
		Keywords: "edit modify configuration cores cpu memory ram name hostname tags description onboot network card disk hardware options resize",
		Toolset:  "standard", Guest: "guest",
	}, planSetGuestConfig)
}

// notSettings are parameters of the call that are no settings of the guest.
var notSettings = map[string]string{"digest": "castellan sends the digest itself", "node": "the node is found", "vmid": "name the guest with guest",
	"skiplock": "a lock is never skipped", "revert": "use call_operation to revert pending values", "delete": "use the argument delete",
	"force": "delete=unusedN destroys a detached volume; force is not needed", "background_delay": "the change is made in the foreground"}

func planSetGuestConfig(ctx context.Context, v gate.View, in setGuestConfigIn) (*gate.Draft, error) {
	if len(in.Set) == 0 && len(in.Delete) == 0 {
		return nil, gate.Fail(gate.ErrInvalid, "Give set, as {\"memory\":4096}, or delete, as [\"description\"].", "no change is given")
	}
	if in.Delete != nil && len(in.Delete) == 0 {
		return nil, gate.Fail(gate.ErrInvalid, "Leave delete out, or name the settings to take away.", "delete is an empty list")
	}
	set, err := settingTexts(in.Set)
	if err != nil {
		return nil, err
	}
	del, err := deleteList(in.Delete, set)
	if err != nil {
		return nil, err
	}
	for _, k := range append(slices.Sorted(maps.Keys(set)), del...) {
		if why, is := notSettings[k]; is {
			return nil, gate.Fail(gate.ErrInvalid, "Leave it out.", "%s is no setting: %s", k, why)
		}
	}
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	g, err := s.guest(ctx, in.Guest)
	if err != nil {
		return nil, err
	}
	rename(g.Kind, set)
	if err := s.mayNotSet(g.Kind, set); err != nil {
		return nil, err
	}
	grow, err := g.growths(set)
	if err != nil {
		return nil, err
	}
	c := &configChange{guest: g, set: map[string]string{}}
	var same []string
	for _, k := range slices.Sorted(maps.Keys(set)) {
		if sameSetting(k, g.config[k], set[k]) && masked(k, set[k]) == clip(set[k], 400) {
			shown := masked(k, orZero(g.config[k]))
			if k == "description" { // text of others is not repeated without need
				shown = "so"
			}
			same = append(same, k+" is "+shown+" already")
			continue
		}
		c.set[k] = set[k]
	}
	for _, k := range del {
		if _, is := g.config[k]; !is {
			same = append(same, k+" is not set")
			continue
		}
		c.del = append(c.del, k)
	}
	if len(c.set)+len(c.del)+len(grow) == 0 {
		return nothing(c.nothing(ctx, same)), nil
	}
	if err := g.notLocked(ctx); err != nil {
		return nil, err
	}
	draft := &gate.Draft{Target: s.target(), Phrase: g.ID}
	if len(c.set)+len(c.del) > 0 {
		if draft, err = c.draft(ctx); err != nil {
			return nil, err
		}
	}
	if err := g.growSteps(ctx, grow, draft); err != nil {
		return nil, err
	}
	draft.Skip = same
	draft.Note = strings.TrimSpace(g.nameNote(in.Guest) + draft.Note)
	return draft, nil
}

// rename gives the guest's name the key that its kind has for it.
func rename(kind string, set map[string]string) {
	from, to := "hostname", "name"
	if kind == estate.CT {
		from, to = to, from
	}
	if v, given := set[from]; given && set[to] == "" {
		set[to] = v
		delete(set, from)
	}
}

// deleteList takes names one by one or in one text, as Proxmox splits them.
func deleteList(given []string, set map[string]string) ([]string, error) {
	var out []string
	for _, text := range given {
		names := estate.Tags(text)
		if len(names) == 0 {
			return nil, gate.Fail(gate.ErrInvalid, "Name the settings to take away.", "delete holds an empty name")
		}
		for _, n := range names {
			if _, both := set[n]; both {
				return nil, gate.Fail(gate.ErrInvalid, "Choose one of both.", "%s is to be set and taken away at once", clip(n, 40))
			}
			if !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// configChange is what is left to do once no-ops are out.
type configChange struct {
	*guest
	set map[string]string
	del []string
}

// nothing says why there is nothing to do, and what of it is written but not in force.
func (c *configChange) nothing(ctx context.Context, same []string) string {
	note := c.Title() + ": " + strings.Join(same, ", ") + "."
	if rows, err := c.pending(ctx); err == nil && len(rows) > 0 {
		var keys []string
		for _, r := range rows {
			keys = append(keys, string(r.Key))
		}
		note += " Written but not in force until it is stopped and started: " + strings.Join(keys, ", ") + "."
	}
	return note
}

func (c *configChange) draft(ctx context.Context) (*gate.Draft, error) {
	params := map[string]any{}
	for k, v := range c.set {
		params[k] = v
	}
	if len(c.del) > 0 {
		params["delete"] = strings.Join(c.del, ",")
	}
	step, err := c.step(ctx, "PUT", "/config", params)
	if err != nil {
		return nil, err
	}
	fresh := c.fresh("/config", nil)
	step.FreshDigest = &fresh
	draft := &gate.Draft{Target: c.site.target(), Phrase: c.ID}
	for _, k := range slices.Sorted(maps.Keys(c.set)) {
		draft.Diff = append(draft.Diff, c.difference(k, c.set[k]))
		c.rely(&step, k)
		step.Verify = append(step.Verify, c.written(k, c.set[k])...)
	}
	for _, k := range c.del {
		draft.Diff = append(draft.Diff, c.difference(k, ""))
		c.rely(&step, k)
		step.Verify = append(step.Verify, gate.Condition{Name: k + " is taken away", Read: fresh, Pointer: "/" + k, Rule: gate.RuleAbsent})
	}
	if c.running() {
		for _, d := range draft.Diff {
			step.Verify = append(step.Verify, c.inForce(d.Key)...)
		}
	}
	if err := c.undo(&step); err != nil {
		return nil, err
	}
	draft.Steps = []gate.Step{step}
	return draft, nil
}

// rely makes the old value of a key a precondition; a hidden one cannot be.
func (c *configChange) rely(s *gate.Step, key string) {
	if slices.Contains(secretKeys, key) {
		return
	}
	cond := gate.Condition{Name: key + " is not set", Read: c.fresh("/config", nil), Pointer: "/" + key, Rule: gate.RuleAbsent}
	if old := c.config[key]; strings.TrimSpace(old) != "" { // a lone blank is how an emptied list reads back
		cond.Name, cond.Rule, cond.Value = key+" is "+clip(old, 80), gate.RuleEquals, text(old)
	}
	s.Require = append(s.Require, cond)
}

// written are the checks that a value is stored. The server completes and re-orders property strings, so that only
// the keys that were given are looked at.
func (c *configChange) written(key, value string) []gate.Condition {
	fresh := c.fresh("/config", nil)
	present := gate.Condition{Name: key + " is written", Read: fresh, Pointer: "/" + key, Rule: gate.RulePresent}
	if slices.Contains(secretKeys, key) {
		return []gate.Condition{present}
	}
	if properties(key, value) == nil || !strings.Contains(value, "=") && !strings.Contains(value, ":") {
		if key == "description" && c.Kind == estate.CT {
			value = strings.TrimRight(value, "\n") + "\n"
		}
		if strings.ContainsAny(value, "\r\t ,") && key != "description" || strings.ContainsAny(value, "\r") || key == "sshkeys" {
			return []gate.Condition{present} // lists are stored in the server's own form
		}
		return []gate.Condition{{Name: key + " is written as " + clip(value, 80), Read: fresh, Pointer: "/" + key, Rule: gate.RuleEquals, Value: text(value)}}
	}
	if _, disk := diskKey(key); disk { // a new volume gets its name from the server
		return []gate.Condition{present}
	}
	out := []gate.Condition{present}
	for i, part := range strings.Split(value, ",") {
		name, v, named := strings.Cut(strings.TrimSpace(part), "=")
		if !named || i == 0 && base(key) == "net" || name == "macaddr" || name == "hwaddr" {
			continue
		}
		out = append(out, gate.Condition{Name: key + " has " + name + "=" + clip(v, 60), Read: fresh, Pointer: "/" + key, Key: name, Rule: gate.RuleEquals, Value: text(v)})
	}
	return out
}

// inForce are soft checks that a running guest took the change up.
func (c *configChange) inForce(key string) []gate.Condition {
	pending := c.fresh("/pending", nil)
	stop := "until " + c.short() + " is stopped and started again"
	if c.Kind == estate.CT {
		stop = "until " + c.short() + " is rebooted"
	}
	where := map[string]string{"key": key}
	return []gate.Condition{
		{Name: key + " is in force", Read: pending, Where: where, Pointer: "/pending", Rule: gate.RuleAbsent, Soft: true, Else: key + " is written but pending: the old value stays in force " + stop},
		{Name: key + " is not waiting to be taken away", Read: pending, Where: where, Pointer: "/delete", Rule: gate.RuleAbsent, Soft: true, Else: key + " is taken away only " + stop},
	}
}

// atOnce are settings that a running guest takes up without a stop.
var atOnce = map[string]bool{"name": true, "hostname": true, "tags": true, "onboot": true, "description": true, "protection": true, "startup": true}

// difference shows one key, and what its change means.
func (c *configChange) difference(key, value string) gate.Difference {
	d := gate.Difference{Object: "guest/" + c.ID, Key: key, Old: masked(key, c.config[key]), New: masked(key, value)}
	b, disk := diskKey(key)
	switch {
	case b == "unused" && value == "":
		d.Note = "destroys the volume"
	case disk && value == "":
		d.Note = "detaches the volume; it stays as an unused disk"
	case disk && c.config[key] != "" && properties(key, c.config[key])[nameless[b]] != properties(key, value)[nameless[b]]:
		d.Note = "another volume takes its place; the old one stays as an unused disk"
	case b == "net" && value != "" && c.Kind == estate.VM && properties(key, c.config[key])["macaddr"] != properties(key, value)["macaddr"],
		b == "net" && value != "" && c.Kind == estate.CT && properties(key, c.config[key])["hwaddr"] != properties(key, value)["hwaddr"]:
		if c.config[key] != "" {
			d.Note = "the MAC address changes"
		}
	}
	if c.running() && !atOnce[key] {
		d.Note = strings.TrimPrefix(d.Note+"; it runs: what cannot be changed live waits until it is stopped", "; ")
	}
	return d
}

// undo sets the old values again where they are known and enough.
func (c *configChange) undo(s *gate.Step) error {
	back := map[string]any{}
	var added, lost []string
	for _, k := range append(slices.Sorted(maps.Keys(c.set)), c.del...) {
		old := c.config[k]
		was := strings.TrimSpace(old) != ""
		_, disk := diskKey(k)
		switch {
		case slices.Contains(secretKeys, k):
			lost = append(lost, k+" (its old value cannot be read)")
		case base(k) == "unused" && c.set[k] == "":
			lost = append(lost, k+" (the volume is destroyed)")
		case was:
			back[k] = old
		case disk:
			lost = append(lost, k+" (the new volume stays as an unused disk when it is detached)")
			added = append(added, k)
		default:
			added = append(added, k)
		}
	}
	if len(added) > 0 {
		back["delete"] = strings.Join(added, ",")
	}
	if len(back) == 0 {
		s.Undo.None = strings.Join(lost, "; ")
		return nil
	}
	s.Undo.How = "the old values are set again"
	if len(lost) > 0 {
		s.Undo.How += fmt.Sprintf(", except %s", strings.Join(lost, "; "))
	}
	var err error
	s.Undo.Call, err = c.request("PUT", "/config", back)
	return err
}
