package self

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"castellan/internal/catalog"
	"castellan/internal/gate"
	"castellan/internal/ops/table"
)

type callOperationIn struct {
	Operation string         `json:"operation" jsonschema:"METHOD /path/{template} or /path/with/values, or a name"`
	Params    map[string]any `json:"params,omitempty"`
	Target    string         `json:"target,omitempty"`
	table.Ask
}

func callOperation(c Config) *gate.Operation {
	return gate.Door(gate.Declaration{
		Name: "call_operation", Summary: "Call any operation: a read answers, a write becomes a plan for apply_plan", Effect: gate.EffectDestroy,
		Undo: "as the plan says", Keywords: "raw api request pve_api generic escape hatch get post put delete path", Toolset: "front",
	}, c.call)
}

func (c Config) call(ctx context.Context, v gate.View, in callOperationIn) (any, *gate.Draft, error) {
	name := strings.TrimSpace(in.Operation)
	if !isAPIName(name) {
		return callCurated(ctx, v, name, in)
	}
	return c.callAPI(ctx, v, name, in)
}

// callCurated passes a call on to an operation of that name; its own schema checks the arguments.
func callCurated(ctx context.Context, v gate.View, name string, in callOperationIn) (any, *gate.Draft, error) {
	args := map[string]any{}
	for k, val := range in.Params {
		args[k] = val
	}
	for k, val := range map[string]any{"target": in.Target, "fields": in.Fields, "omit_fields": in.Omit, "limit": in.Limit, "cursor": in.Cursor} {
		if !reflect.ValueOf(val).IsZero() {
			args[k] = val
		}
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return nil, nil, fmt.Errorf("write arguments: %w", err)
	}
	answer, err := v.Query(ctx, name, raw)
	if errors.Is(err, gate.ErrNoQuery) {
		draft, err := v.Plan(ctx, name, raw)
		return nil, draft, err
	}
	return answer, nil, err
}

// apiCall is one catalogued request on its way.
type apiCall struct {
	c      Config
	v      gate.View
	target gate.TargetInfo
	op     *catalog.Operation
	req    gate.Request
	judged gate.Judgement
	naming []string // parameters that say which object is meant, set by before
}

func (c Config) callAPI(ctx context.Context, v gate.View, name string, in callOperationIn) (any, *gate.Draft, error) {
	t, err := v.Target(in.Target)
	if err != nil {
		return nil, nil, err
	}
	method, path := splitName(name)
	op, args, err := c.Catalog.Resolve(t.Product, method, path, in.Params)
	if err != nil {
		hint := "Ask find_operation in plain words, or describe_operation for the parameters."
		if strings.Contains(path, "/lxc/") && strings.Contains(path, "/agent") {
			hint = "A container has no guest agent: probe_guest, run_command, run_script and read_guest_file go in through the bridge of its node."
		}
		return nil, nil, gate.Fail(gate.ErrInvalid, hint, "%v", err)
	}
	call := &apiCall{c: c, v: v, target: t, op: op}
	filled := map[string]any{}
	for k, val := range args {
		filled[k] = val
	}
	if err := call.findNode(ctx, filled); err != nil {
		return nil, nil, err
	}
	kept := call.keepRequired(ctx, filled)
	checked := c.Catalog.Examine(op, filled)
	if len(checked.Problems) > 0 {
		var texts []string
		for _, p := range checked.Problems {
			texts = append(texts, p.Error())
		}
		return nil, nil, gate.Fail(gate.ErrInvalid, fmt.Sprintf("Correct the params; describe_operation with operation=%q shows them all.", op.ID), "%s: %s", op.ID, strings.Join(texts, " · "))
	}
	call.req, call.judged = checked.Request, c.Catalog.Judge(op, checked.Request)
	if call.judged.Effect == gate.EffectRead && call.req.IsRun() {
		answer, err := v.Run(ctx, t.Name, op.ID, filled)
		return answer, nil, err
	}
	if call.judged.Effect == gate.EffectRead {
		answer, err := call.read(ctx, in.Ask)
		return answer, nil, err
	}
	if len(in.Fields)+len(in.Omit) > 0 || in.Limit != 0 || in.Cursor != "" {
		return nil, nil, gate.Fail(gate.ErrInvalid, "Leave fields, omit_fields, limit and cursor out.", "%s changes something: its answer is a plan, not a list", op.ID)
	}
	draft, err := call.write(ctx)
	if err != nil {
		return nil, nil, err
	}
	if len(kept) > 0 {
		draft.Note += " Sent along as they are now, since the call asks for them: " + strings.Join(kept, ", ") + "."
	}
	for _, n := range checked.Notes {
		draft.Note += " " + n + "."
	}
	draft.Note = strings.TrimSpace(draft.Note)
	return nil, draft, nil
}

// onGuest says whether the operation acts on one guest of a node.
func (a *apiCall) onGuest() bool {
	return a.op.Product == "pve" && (strings.HasPrefix(a.op.Path, "/nodes/{node}/qemu/{vmid}") || strings.HasPrefix(a.op.Path, "/nodes/{node}/lxc/{vmid}"))
}

// findNode fills in where the guest is when the caller did not say.
func (a *apiCall) findNode(ctx context.Context, args map[string]any) error {
	vmid, has := args["vmid"]
	if _, given := args["node"]; given || !has || !a.onGuest() {
		return nil
	}
	node, err := a.c.Estate.NodeOf(ctx, a.v, a.target.Name, fmt.Sprint(vmid))
	if err != nil {
		return err
	}
	args["node"] = node
	return nil
}

// keepRequired fills in what a change must name again although it stays as it is (the type of a network interface).
func (a *apiCall) keepRequired(ctx context.Context, args map[string]any) (kept []string) {
	if a.op.Method != "PUT" {
		return nil
	}
	twin, ok := a.c.Catalog.Lookup(a.op.Product, "GET "+a.op.Path)
	if !ok {
		return nil
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(a.op.Facts.Params)) {
		_, given := args[name]
		if s := a.op.Facts.Params[name]; !s.Optional && !given && !slices.Contains(a.op.Placeholders, name) && !slices.Contains(a.op.Secrets(), name) {
			missing = append(missing, name)
		}
	}
	params := map[string]string{}
	for _, name := range twin.Placeholders {
		text, given := args[name].(string)
		if !given {
			return nil
		}
		params[name] = text
	}
	if len(missing) == 0 {
		return nil
	}
	answer, err := a.v.Read(ctx, a.target.Name, gate.Read{Operation: twin.ID, Params: params})
	if err != nil {
		return nil // the check says what is missing
	}
	now := &preimage{}
	if json.Unmarshal(answer.Data, &now.fields) != nil {
		return nil
	}
	for _, name := range missing {
		if text, ok := now.scalar(name); ok {
			args[name] = text
			kept = append(kept, name+"="+clip(text, 60))
		}
	}
	return kept
}

// read asks and shapes the answer.
func (a *apiCall) read(ctx context.Context, ask table.Ask) (any, error) {
	if a.v.Scoped() {
		if _, _, ok := a.c.Catalog.GuestBinding(a.op); !ok {
			return nil, gate.Fail(gate.ErrDenied, "Use the curated operations, such as list_guests, guest_status, list_storage, list_tasks.",
				"%s shows more than the guests that this caller may see", a.op.ID)
		}
	}
	params := map[string]string{}
	for _, p := range a.req.Params {
		if len(p.Values) != 1 {
			return nil, gate.Fail(gate.ErrInvalid, "Ask once for each value.", "%s: a read takes one value of %s", a.op.ID, p.Name)
		}
		params[p.Name] = p.Values[0].Text
	}
	answer, err := a.v.Read(ctx, a.target.Name, gate.Read{Operation: a.op.ID, Params: params})
	if err != nil {
		return nil, a.elsewhere(ctx, err)
	}
	return shape(answer, ask)
}

// elsewhere turns "does not exist" about a guest into where it is, or into those near it.
func (a *apiCall) elsewhere(ctx context.Context, err error) error {
	var u *gate.UpstreamError
	if !a.onGuest() || !errors.As(err, &u) || u.Kind != gate.ErrNotFound && !strings.Contains(u.Message, "does not exist") {
		return err
	}
	vmid := a.req.Text("vmid")
	node, lost := a.c.Estate.NodeOf(ctx, a.v, a.target.Name, vmid)
	var e *gate.Error
	switch {
	case errors.As(lost, &e) && e.Kind == gate.ErrNotFound:
		return lost
	case lost == nil && node != a.req.Text("node"):
		return gate.Fail(gate.ErrNotFound, "Leave node out: it is found.", "guest %s is on node %s, not on %s", vmid, node, clip(a.req.Text("node"), 60))
	}
	return err
}

// rootOnly refuses before planning what Proxmox gives to root@pam alone.
func (a *apiCall) rootOnly() error {
	user := a.target.User
	if user == "" || a.op.Foreign {
		return nil
	}
	switch perm := string(a.op.Facts.Permissions); {
	case a.op.Facts.NoToken && strings.Contains(user, "!"):
		return gate.Fail(gate.ErrDenied, "Do it in the web interface, or with a login by password.", "%s cannot be called with an API token, whatever its role (castellan is %s there)", a.op.ID, user)
	case (perm == "" || perm == "null") && user != "root@pam" && (a.op.Product == "pve" || a.op.Product == "pmg"):
		return gate.Fail(gate.ErrDenied, "No role gives this to another user or to a token: do it on the host as root.", "%s is for root@pam only (castellan is %s there)", a.op.ID, user)
	}
	return nil
}
