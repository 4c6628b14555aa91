package pve

import (
	"context"
	"fmt"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/regex"
)

type cloneGuestIn struct {
	Guest    string `json:"guest" jsonschema:"id or unique name"`
	ID       string `json:"newid,omitempty" jsonschema:"default: next free"`
	Name     string `json:"name,omitempty"`
	Linked   bool   `json:"linked,omitempty" jsonschema:"of a template"`
	Storage  string `json:"storage,omitempty"`
	Node     string `json:"node,omitempty" jsonschema:"where the copy goes"`
	Snapshot string `json:"snapshot,omitempty"`
	Pool     string `json:"pool,omitempty"`
	Target   string `json:"target,omitempty"`
}

func cloneGuest() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "clone_guest", Summary: "Copy a guest or template. Write; undo: delete_guest", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindClone}, Undo: "delete_guest of the copy", Keywords: "duplicate template deploy new vm from template full linked",
		Toolset: "full", Bounded: true, Guest: "guest",
	}, planClone)
}

var (
	vmidForm = &regex.Lazy{Expr: `^[1-9][0-9]{2,8}$`}
	dnsName  = &regex.Lazy{Expr: `^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`}
)

func planClone(ctx context.Context, v gate.View, in cloneGuestIn) (*gate.Draft, error) {
	if in.Name != "" && (!dnsName.MatchString(in.Name) || len(in.Name) > 253) {
		return nil, gate.Fail(gate.ErrInvalid, "Use letters, digits, - and dots.", "%q is no DNS name", clip(in.Name, 60))
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
	if in.Linked && !g.Template {
		return nil, gate.Fail(gate.ErrInvalid, "Leave linked out for a full copy.", "%s is no template: only a template has linked clones", g.Title())
	}
	if in.Linked && in.Storage != "" {
		return nil, gate.Fail(gate.ErrInvalid, "Leave one of both out.", "a linked clone lies on its template's storage: storage cannot be chosen")
	}
	if g.Kind == estate.CT && g.running() && in.Snapshot == "" {
		return nil, gate.Fail(gate.ErrInvalid, "Shut it down first, or give a snapshot of it.", "%s is running: a running container is cloned from a snapshot only", g.Title())
	}
	node := g.Node
	if in.Node != "" {
		n, err := s.inv.Node(in.Node)
		if err != nil {
			return nil, err
		}
		if n.Status != "online" {
			return nil, gate.Fail(gate.ErrUnavailable, "Choose a node that is online: "+strings.Join(s.inv.Online(), ", "), "node %s is %s", n.Name, n.Status)
		}
		node = n.Name
	}
	id, free, err := s.freeID(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	params := map[string]any{"newid": id}
	require := []gate.Condition{free}
	if in.Snapshot != "" {
		snap, _, err := g.snapshot(ctx, in.Snapshot)
		if err != nil {
			return nil, err
		}
		params["snapname"] = in.Snapshot
		require = append(require, g.snapshotIs(snap))
	}
	if !in.Linked {
		params["full"] = true
	}
	for k, val := range map[string]string{"storage": in.Storage, "pool": in.Pool} {
		if val != "" {
			params[k] = val
		}
	}
	if node != g.Node {
		params["target"] = node
	}
	if in.Name != "" {
		params[map[string]string{estate.VM: "name", estate.CT: "hostname"}[g.Kind]] = in.Name
	}
	step, err := g.step(ctx, "POST", "/clone", params)
	if err != nil {
		return nil, err
	}
	step.Wait = gate.Wait{Kind: gate.WaitTask, Limit: 12 * time.Hour}
	step.Require = append(step.Require, require...)
	step.Verify = madeGuest(g.Path(), id)
	step.Undo.How = "destroy guest " + id
	if step.Undo.Call, err = destroy(g.Path(), id, node); err != nil {
		return nil, err
	}
	note := g.nameNote(in.Guest) + fmt.Sprintf("The id %s is free now; nothing reserves it. ", id)
	if g.Kind == estate.VM {
		note += "The copy takes over tags, description, onboot and protection; MAC addresses and uuid are new. "
	}
	if g.running() && g.Kind == estate.VM && in.Snapshot == "" {
		note += "It runs: the copy is as after a power cut. "
	}
	return &gate.Draft{Target: s.target(), Steps: []gate.Step{step}, Note: strings.TrimSpace(note), Phrase: g.ID}, nil
}

// freeID checks a wanted id, or asks for the next free one; the condition holds while nobody takes it.
func (s *site) freeID(ctx context.Context, want string) (string, gate.Condition, error) {
	id := want
	if id == "" {
		var next estate.Text
		if _, err := s.read(ctx, &next, "GET /cluster/nextid", nil); err != nil {
			return "", gate.Condition{}, fmt.Errorf("ask for a free id: %w", err)
		}
		id = string(next)
	}
	if !vmidForm.MatchString(id) {
		return "", gate.Condition{}, gate.Fail(gate.ErrInvalid, "Give a number from 100 to 999999999, or nothing for the next free one.", "%q is no guest id", clip(id, 40))
	}
	if g, taken := s.inv.ByID(id); taken {
		return "", gate.Condition{}, gate.Fail(gate.ErrInvalid, "Choose another id, or leave it out for the next free one.", "the id %s is that of %s on %s", id, g.Title(), g.Node)
	}
	return id, gate.Condition{Name: "no guest has the id " + id, Read: gate.Read{Operation: "GET /cluster/resources", Params: map[string]string{"type": "vm"}},
		Where: map[string]string{"vmid": id}, Rule: gate.RuleAbsent}, nil
}

// madeGuest are the checks that a guest was made whole.
func madeGuest(path, id string) []gate.Condition {
	read := gate.Read{Operation: "GET /nodes/{node}/" + path + "/{vmid}/config", Params: map[string]string{"node": gate.NodeOf(id), "vmid": id}}
	return []gate.Condition{
		{Name: "guest " + id + " is there", Read: read, Pointer: "/digest", Rule: gate.RulePresent},
		{Name: "guest " + id + " is not locked", Read: read, Pointer: "/lock", Rule: gate.RuleAbsent},
	}
}

// destroy is the call that takes a newly made guest away again.
func destroy(path, id, node string) (*gate.Request, error) {
	r, err := gate.NewRequest("pve", "DELETE /nodes/{node}/"+path+"/{vmid}", map[string]any{"node": gate.Ref{Guest: id, Plan: node}, "vmid": id})
	return &r, err
}
