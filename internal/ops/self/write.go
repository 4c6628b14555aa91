package self

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/gate"
)

// hidden begins what stands in place of a value that is not given away.
var hidden = []string{"****", "(secret"}

// write drafts the one step of a catalogued write: who it acts on, and what it found before. How it is taken back is the
// gate's matter.
func (a *apiCall) write(ctx context.Context) (*gate.Draft, error) {
	if err := a.rootOnly(); err != nil {
		return nil, err
	}
	step := gate.Step{}
	draft := &gate.Draft{Target: a.target.Name}
	if a.onGuest() {
		if err := a.follow(ctx); err != nil {
			return nil, err
		}
	}
	if err := a.identify(ctx, &step); err != nil {
		return nil, err
	}
	if err := a.heedLock(ctx, &step); err != nil {
		return nil, err
	}
	if note := a.nothingStaged(ctx); note != "" {
		return &gate.Draft{Note: note}, nil
	}
	before, notes := a.before(ctx)
	if before != nil {
		if a.same(before) {
			return &gate.Draft{Note: a.objectName() + " has these values already."}, nil
		}
		a.relyOn(&step, draft, before)
	}
	step.API = &a.req
	draft.Steps = []gate.Step{step}
	draft.Note = strings.Join(notes, " ")
	return draft, nil
}

// nothingStaged says that a call that brings a node's staged network settings into force has nothing to bring. Where that
// cannot be read the call is planned.
func (a *apiCall) nothingStaged(ctx context.Context) string {
	if a.op.Product != "pve" || a.op.ID != "PUT /nodes/{node}/network" {
		return ""
	}
	node := a.req.Text("node")
	answer, err := a.v.Read(ctx, a.target.Name, gate.Read{Operation: "GET /nodes/{node}/network", Params: map[string]string{"node": node}})
	if err != nil {
		return ""
	}
	if text := string(answer.Siblings["changes"]); text == "" || text == "null" || text == `""` {
		return "Nothing is staged on " + clip(node, 60) + "."
	}
	return ""
}

// follow sends the request to where the guest is when it is carried out. A guest that is nowhere is said now, with
// those near it; where nobody can tell, the server will.
func (a *apiCall) follow(ctx context.Context) error {
	vmid, node := a.req.Text("vmid"), a.req.Text("node")
	now, err := a.c.Estate.NodeOf(ctx, a.v, a.target.Name, vmid)
	var e *gate.Error
	switch {
	case err == nil:
		node = now
	case errors.As(err, &e) && e.Kind == gate.ErrNotFound:
		return err
	}
	params := slices.Clone(a.req.Params)
	for i, p := range params {
		if p.Name == "node" {
			params[i].Values = []gate.Value{{Ref: &gate.Ref{Guest: vmid, Plan: node}}}
		}
	}
	a.req.Params = params
	return nil
}

// identify ties the step to the guests that it acts on, as they are now.
func (a *apiCall) identify(ctx context.Context, s *gate.Step) error {
	if a.target.Product != "pve" {
		return nil
	}
	var guests []gate.Object
	for _, r := range a.c.Catalog.References(a.op, a.req) {
		if r.Use == gate.UseActs && r.Object.Kind == gate.ObjectGuest && !slices.Contains(guests, r.Object) {
			guests = append(guests, r.Object)
		}
	}
	if len(guests) == 0 || len(guests) > 40 {
		return nil
	}
	conditions, _, err := a.c.Estate.Identity(ctx, a.v, a.target.Name, guests)
	if err != nil {
		return err
	}
	s.Require = append(s.Require, conditions...)
	return a.snapshotIs(ctx, s)
}

// snapshotIs ties the step to the snapshot that it names, by its time: a later one of the same name is another one.
func (a *apiCall) snapshotIs(ctx context.Context, s *gate.Step) error {
	name, path := a.req.Text("snapname"), "/nodes/{node}/lxc/{vmid}/snapshot"
	if strings.HasPrefix(a.op.Path, "/nodes/{node}/qemu/") {
		path = "/nodes/{node}/qemu/{vmid}/snapshot"
	}
	if name == "" || !a.onGuest() || a.op.Path == path {
		return nil
	}
	read := gate.Read{Operation: "GET " + path, Params: map[string]string{"node": gate.NodeOf(a.req.Text("vmid")), "vmid": a.req.Text("vmid")}}
	answer, err := a.v.Read(ctx, a.target.Name, read)
	if err != nil {
		return fmt.Errorf("look at snapshot %s: %w", name, err)
	}
	var rows []map[string]json.RawMessage
	if err := json.Unmarshal(answer.Data, &rows); err != nil {
		return fmt.Errorf("look at snapshot %s: %w", name, err)
	}
	is := gate.Condition{Name: "there is no snapshot " + name, Read: read, Where: map[string]string{"name": name}, Rule: gate.RuleAbsent}
	for _, fields := range rows {
		row := preimage{fields: fields}
		if called, _ := row.scalar("name"); called != name {
			continue
		}
		is.Name, is.Rule = "snapshot "+name+" is there", gate.RulePresent
		if taken, ok := row.scalar("snaptime"); ok {
			is.Name, is.Pointer, is.Rule, is.Value = "snapshot "+name+" is the one found", "/snaptime", gate.RuleEquals, jsonText(taken)
		}
	}
	s.Require = append(s.Require, is)
	return nil
}

// preimage is what a read of the same path answers now.
type preimage struct {
	read   gate.Read
	at     string // pointer to the object: empty, or the only row of a list
	fields map[string]json.RawMessage
}

// scalar returns a field as text; ok is false for what is absent, hidden, or no single value.
func (p *preimage) scalar(name string) (text string, ok bool) {
	raw := strings.TrimSpace(string(p.fields[name]))
	switch {
	case raw == "" || raw == "null" || raw[0] == '{' || raw[0] == '[':
		return "", false
	case raw == "true":
		return "1", true
	case raw == "false":
		return "0", true
	case raw[0] == '"':
		if json.Unmarshal([]byte(raw), &text) != nil || slices.ContainsFunc(hidden, func(h string) bool { return strings.HasPrefix(text, h) }) || strings.TrimSpace(text) == "" {
			return "", false
		}
		return text, true
	}
	return raw, true
}

// before reads what is there now, where the same path can be read.
func (a *apiCall) before(ctx context.Context) (*preimage, []string) {
	if a.op.Method != "PUT" && a.op.Method != "DELETE" {
		return nil, nil
	}
	twin, ok := a.c.Catalog.Lookup(a.op.Product, "GET "+a.op.Path)
	if !ok {
		return nil, nil
	}
	params := map[string]string{}
	for _, p := range a.req.Params {
		s := a.op.Facts.Params[p.Name]
		_, taken := twin.Facts.Params[p.Name]
		if slices.Contains(a.op.Placeholders, p.Name) || taken && s != nil && !s.Optional {
			params[p.Name] = a.req.Text(p.Name)
			a.naming = append(a.naming, p.Name)
		}
	}
	if a.onGuest() {
		params["node"] = gate.NodeOf(a.req.Text("vmid"))
	}
	read := gate.Read{Operation: twin.ID, Params: params}
	answer, err := a.v.Read(ctx, a.target.Name, read)
	if err != nil {
		return nil, []string{"What is there now could not be read (" + clip(err.Error(), 160) + "): nothing is compared before it is sent."}
	}
	p := &preimage{read: read}
	if json.Unmarshal(answer.Data, &p.fields) == nil && p.fields != nil {
		return p, nil
	}
	var only []map[string]json.RawMessage // asked for by a parameter, one object comes as a list of one
	if json.Unmarshal(answer.Data, &only) == nil && len(only) == 1 && len(params) > len(twin.Placeholders) {
		p.at, p.fields = "/0", only[0]
		return p, nil
	}
	return nil, nil // a list, or an index: no pre-image of one object
}

// same says whether a change would leave every value as it is.
func (a *apiCall) same(p *preimage) bool {
	given, deleted := a.changes()
	if a.op.Method != "PUT" || len(given)+len(deleted) == 0 {
		return false
	}
	for k, v := range given {
		if old, known := p.scalar(k); !known || old != v || a.secret(k) {
			return false
		}
	}
	for _, k := range deleted {
		if _, there := p.fields[k]; there {
			return false
		}
	}
	return true
}

// figures are fields that move by themselves: no condition can rest on them.
var figures = []string{"cpu", "mem", "maxmem", "memhost", "disk", "used", "avail", "free", "total", "uptime", "netin", "netout", "diskread", "diskwrite", "time", "timestamp",
	"ctime", "mtime", "digest", "status", "pid", "swap", "load", "size", "expire-at"}

// unordered are lists that come in another order each time.
var unordered = []string{"content"}

// relyOn makes what was found a precondition: of a change the keys that it changes, of a deletion (and of what is
// addressed by its position) all that tells the object.
func (a *apiCall) relyOn(s *gate.Step, d *gate.Draft, p *preimage) {
	given, deleted := a.changes()
	object := a.objectName()
	equals := func(k, old string) {
		if a.op.HoldsSecret(k, old) { // a condition is shown and kept
			s.Require = append(s.Require, gate.Condition{Name: k + " is set", Read: p.read, Pointer: p.at + "/" + escape(k), Rule: gate.RulePresent})
			return
		}
		s.Require = append(s.Require, gate.Condition{Name: k + " is " + clip(old, 80), Read: p.read, Pointer: p.at + "/" + escape(k), Rule: gate.RuleEquals, Value: jsonText(old)})
	}
	if a.op.Method == "DELETE" || a.byPosition() {
		for _, k := range slices.Sorted(maps.Keys(p.fields)) {
			if old, ok := p.scalar(k); ok && !slices.Contains(figures, k) && len(s.Require) < 40 {
				if !slices.Contains(unordered, k) {
					equals(k, old)
				}
				if a.op.Method == "DELETE" {
					if a.op.HoldsSecret(k, old) {
						old = "(hidden)"
					}
					d.Diff = append(d.Diff, gate.Difference{Object: object, Key: k, Old: clip(old, 400)})
				}
			}
		}
	}
	if a.op.Method == "PUT" {
		for _, k := range slices.Concat(slices.Sorted(maps.Keys(given)), deleted) {
			old, known := p.scalar(k)
			if known && !a.byPosition() && !slices.Contains(unordered, k) {
				equals(k, old)
			}
			if _, there := p.fields[k]; !there {
				s.Require = append(s.Require, gate.Condition{Name: k + " is not set", Read: p.read, Pointer: p.at + "/" + escape(k), Rule: gate.RuleAbsent})
			}
			if known && old == given[k] {
				continue
			}
			diff := gate.Difference{Object: object, Key: k, Old: clip(old, 400), New: clip(given[k], 400)}
			if a.op.HoldsSecret(k, old) || a.op.HoldsSecret(k, given[k]) {
				diff.Old, diff.New = "(hidden)", "(hidden)"
			}
			d.Diff = append(d.Diff, diff)
		}
	}
	_, takes := a.op.Facts.Params["digest"]
	if _, has := p.fields["digest"]; takes && has && len(a.req.Get("digest")) == 0 {
		read := p.read
		s.FreshDigest = &read
	}
}

// byPosition: the last part of the path is a place in a list, not a name.
func (a *apiCall) byPosition() bool {
	n := len(a.op.Placeholders)
	return n > 0 && slices.Contains([]string{"pos", "seq", "url_seq", "id_number"}, a.op.Placeholders[n-1])
}

func (a *apiCall) objectName() string {
	for _, r := range a.c.Catalog.References(a.op, a.req) {
		if r.Use == gate.UseActs {
			return r.Object.String()
		}
	}
	return a.op.Path
}

func (a *apiCall) secret(name string) bool { return slices.Contains(a.op.Secrets(), name) }

// changes lists what a PUT sets, and what it takes away.
func (a *apiCall) changes() (given map[string]string, deleted []string) {
	given = map[string]string{}
	for _, p := range a.req.Params {
		switch {
		case slices.Contains(a.op.Placeholders, p.Name) || slices.Contains(a.naming, p.Name) || p.Name == "digest":
		case p.Name == "delete":
			for _, v := range p.Values {
				deleted = append(deleted, gate.SplitList(v.Text)...)
			}
		default:
			var texts []string
			for _, v := range p.Values {
				texts = append(texts, v.Text)
			}
			given[p.Name] = strings.Join(texts, ",")
		}
	}
	slices.Sort(deleted)
	return given, deleted
}

// escape writes a key as part of a JSON pointer.
func escape(k string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(k) }

func jsonText(s string) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		return json.RawMessage(fmt.Sprintf("%q", s)) // a text always has a JSON form
	}
	return b
}
