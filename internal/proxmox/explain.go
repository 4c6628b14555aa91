package proxmox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"castellan/internal/gate"
)

// explain says what a failure means and what to do next: it reads the server's words, looks up what they leave open,
// and takes every secret out of them.
func (k *call) explain(ctx context.Context, e *gate.UpstreamError) {
	if e.Status != 0 && !e.Auth && !k.stranger {
		k.interpret(ctx, e)
	}
	k.t.veil(&k.veil)
	judged := k.c.catalog.Judge(k.request)
	for _, name := range judged.Secrets {
		param, _, _ := strings.Cut(name, ".")
		for _, v := range k.request.Get(param) {
			k.veil.add(v.Text)
		}
	}
	k.veil.failure(e)
}

// veil adds the target's own secrets.
func (t *target) veil(v *veil) {
	for _, s := range t.login.hidden() {
		v.add(s)
	}
	for _, values := range t.link.headers {
		for _, s := range values {
			v.add(s)
		}
	}
}

func (k *call) interpret(ctx context.Context, e *gate.UpstreamError) {
	switch {
	case poolMissing(e):
		e.Kind, e.Hint = gate.ErrNotFound, "What the text names does not exist."
		return
	case e.Status == statusUnreachable || e.Status == statusNoAnswer || e.Status < 400:
		if e.Hint == "" {
			e.Hint = unreachableHint(e.Status)
		}
		return
	}
	hit, ok := classify(k.c.texts(), e)
	if e.Status == 403 && e.Hint == "" {
		e.Hint = grantHint(k.t.set.Kind, k.t.user, e.Message, k.c.catalog.Judge(k.request).Privileges, func(path string) (map[string]bool, bool) { return k.heldAt(ctx, path) })
	}
	if e.Status == 400 && len(e.Params) == 0 && e.Kind == gate.ErrInvalid && e.Hint == "" {
		e.Hint = "Look at the parameters of this call with describe_operation."
	}
	if e.Status == 403 && e.Kind != gate.ErrNotFound {
		e.Kind = gate.ErrDenied
	}
	if !ok {
		return
	}
	if hit.guest {
		k.believeGuest(ctx, e)
	}
	if hit.lock {
		k.nameHolder(ctx, e)
	}
}

func unreachableHint(status int) string {
	switch status {
	case statusUnreachable:
		return "The server that was asked could not reach the node or the daemon that has to do it; it may be switched off."
	case statusNoAnswer:
		return "The node or the daemon that has to do it took the request and gave no answer. Read back before anything is repeated."
	}
	return ""
}

// guest finds kind and id of the guest in the path.
func (k *call) guest() (node, kind, vmid string) {
	_, path, _ := strings.Cut(k.request.Operation, " ")
	switch {
	case strings.Contains(path, "/qemu/{vmid}"):
		kind = "qemu"
	case strings.Contains(path, "/lxc/{vmid}"):
		kind = "lxc"
	}
	return k.path["node"], kind, k.path["vmid"]
}

// believeGuest checks that a guest exists of which a server says that it does not run: it says so of guests that do
// not exist as well.
func (k *call) believeGuest(ctx context.Context, e *gate.UpstreamError) {
	node, kind, vmid := k.guest()
	if k.t.set.Kind != kindPVE || node == "" || kind == "" || vmid == "" {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	addr := k.t.link.order()[0]
	_, _, fail := k.t.ask(ctx, addr, "/nodes/"+url.PathEscape(node)+"/"+kind+"/"+url.PathEscape(vmid)+"/config", "")
	switch {
	case fail == nil:
	case strings.Contains(fail.Message, "does not exist"):
		e.Kind = gate.ErrNotFound
		e.Hint = fmt.Sprintf("There is no %s %s on node %s (the server says %q of absent guests too). list_guests shows where each is.", kindWord(kind), vmid, node, e.Message)
	default:
		e.Hint += " Whether the guest exists at all could not be checked."
	}
}

func kindWord(kind string) string {
	if kind == "lxc" {
		return "CT"
	}
	return "VM"
}

// nameHolder looks which running task holds the lock that stood in the way.
func (k *call) nameHolder(ctx context.Context, e *gate.UpstreamError) {
	node, _, vmid := k.guest()
	if k.t.set.Kind != kindPVE || node == "" || vmid == "" {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	_, answer, fail := k.t.ask(ctx, k.t.link.order()[0], "/nodes/"+url.PathEscape(node)+"/tasks", "source=active&vmid="+url.QueryEscape(vmid))
	if fail != nil {
		return
	}
	var rows []struct {
		UPID   string `json:"upid"`
		Type   string `json:"type"`
		Status string `json:"status"`
		End    any    `json:"endtime"`
	}
	if json.Unmarshal(answer.Data, &rows) != nil {
		return
	}
	for _, r := range rows {
		if r.End == nil && (r.Status == "" || r.Status == "RUNNING") {
			e.Hint = fmt.Sprintf("The task %s (%s) is running on it; wait for its end with task_status. Never remove the lock while it runs.", clean(r.UPID, 200), clean(r.Type, 40))
			return
		}
	}
	e.Hint += " No running task was seen that could hold it: a task may have died and left the lock behind."
}

// asUpstream is for callers inside the package that need the status of an error.
func asUpstream(err error) *gate.UpstreamError {
	var u *gate.UpstreamError
	if errors.As(err, &u) {
		return u
	}
	return nil
}
