package self

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"castellan/internal/gate"
)

// heedless are calls on a guest for which Proxmox does not look at its lock.
var heedless = []string{"/agent/", "/agent", "proxy", "/monitor", "/sendkey", "/firewall/", "/mtunnel", "/vncwebsocket", "/spiceproxy", "/cloudinit"}

// heedLock refuses a change of a guest that a task holds, naming the task; else the change relies on there being no lock.
// Who asks to pass over a lock, or to take it away, is refused while that task runs.
func (a *apiCall) heedLock(ctx context.Context, s *gate.Step) error {
	if !a.onGuest() || slices.ContainsFunc(heedless, func(part string) bool { return strings.Contains(a.op.Path, part) }) {
		return nil
	}
	vmid := a.req.Text("vmid")
	kind := strings.Split(a.op.Path, "/")[3]
	read := gate.Read{Operation: "GET /nodes/{node}/" + kind + "/{vmid}/status/current", Params: map[string]string{"node": gate.NodeOf(vmid), "vmid": vmid}}
	answer, err := a.v.Read(ctx, a.target.Name, read)
	if err != nil {
		return nil // what is missing is said by what is checked besides
	}
	now := &preimage{}
	if json.Unmarshal(answer.Data, &now.fields) != nil {
		return nil
	}
	lock, _ := now.scalar("lock")
	passes := a.passesLock()
	if lock == "" {
		if !passes {
			s.Require = append(s.Require, gate.Condition{Name: "guest " + vmid + " is not locked", Read: read, Pointer: "/lock", Rule: gate.RuleAbsent})
		}
		return nil
	}
	if lock == "suspended" && (strings.HasSuffix(a.op.Path, "/status/start") || strings.HasSuffix(a.op.Path, "/status/resume")) {
		return nil // its own lock
	}
	finder, ok := a.c.Estate.(interface {
		LockHolder(ctx context.Context, v gate.View, target, vmid string) (holder string, known bool)
	})
	holder, known := "", false
	if ok {
		holder, known = finder.LockHolder(ctx, a.v, a.target.Name, vmid)
	}
	if p, ok := a.v.(gate.Patient); ok && holder != "" && !passes && p.LockWait() > 0 {
		s.Require = append(s.Require, gate.Condition{Name: fmt.Sprintf("guest %s is not locked: %s holds it now (%s) and is waited for, up to %s", vmid, holder, clip(lock, 40), p.LockWait()),
			Read: read, Pointer: "/lock", Rule: gate.RuleAbsent})
		return nil
	}
	switch {
	case holder != "":
		return gate.Fail(gate.ErrUnavailable, "Wait for it with task_status and wait, then call again; policy.lock_wait lets castellan wait.", "guest %s is locked (%s) by %s", vmid, clip(lock, 40), holder)
	case !known:
		return gate.Fail(gate.ErrUnavailable, "Wait for the task that holds it (list_tasks), then call again.", "guest %s is locked (%s); which task holds it cannot be seen", vmid, clip(lock, 40))
	case !passes:
		return gate.Fail(gate.ErrUnavailable, "Look into list_tasks for the task that died: what it left half done is looked at before anything else.",
			"guest %s is locked (%s), and no running task that would hold it can be seen", vmid, clip(lock, 40))
	}
	s.Require = append(s.Require, gate.Condition{Name: "guest " + vmid + " still has lock " + clip(lock, 40), Read: read, Pointer: "/lock", Rule: gate.RuleEquals, Value: jsonText(lock)})
	return nil
}

// passesLock says whether the request asks to pass over a lock, or to take it away.
func (a *apiCall) passesLock() bool {
	if t := a.req.Text("skiplock"); t != "" && t != "0" {
		return true
	}
	_, deleted := a.changes()
	return slices.Contains(deleted, "lock") || a.req.Text("lock") != ""
}
