package reach

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
)

// A Datacenter Manager passes calls on to the sites that it looks after. What such a call does there is walked as the call that the
// site gets. What the walk reads is read through the Datacenter Manager; what cannot be had through it is unread, and counts so.

const remotePath = "/pve/remotes/{remote}"

// passedOn reads a request to a Datacenter Manager as the one that a site gets; ok is false for one that is not passed on, or of
// which it is not known how.
func passedOn(r gate.Request) (remote string, out gate.Request, ok bool) {
	method, path, _ := strings.Cut(r.Operation, " ")
	rest, below := strings.CutPrefix(path, remotePath)
	if r.Product != "pdm" || !below || r.Text("remote") == "" {
		return "", gate.Request{}, false
	}
	to := ""
	for _, kind := range []string{"qemu", "lxc"} {
		does, guest := strings.CutPrefix(rest, "/"+kind+"/{vmid}")
		if !guest {
			continue
		}
		switch does {
		case "/start", "/stop", "/shutdown", "/resume":
			does = "/status" + does
		case "/remote-migrate":
			does = "/remote_migrate"
		}
		to = "/nodes/{node}/" + kind + "/{vmid}" + does
	}
	switch {
	case to != "":
	case strings.HasPrefix(rest, "/firewall/"):
		to = "/cluster" + rest
	case strings.HasPrefix(rest, "/nodes/{node}/firewall/"):
		to = rest
	default:
		return "", gate.Request{}, false
	}
	out = gate.Request{Product: "pve", Operation: method + " " + to}
	for _, p := range r.Params {
		switch p.Name {
		case "remote":
			continue
		case "target-storage":
			p.Name = "targetstorage"
		case "migration-network", "migration-type":
			p.Name = strings.ReplaceAll(p.Name, "-", "_")
		}
		out.Params = append(out.Params, p)
	}
	return r.Text("remote"), out, true
}

// through is a view of one site that a Datacenter Manager looks after, as if it were a target of its own.
type through struct {
	gate.View
	manager, remote string // the target, and the site by the name that it has there
}

// site is the name under which it is walked.
func (t through) site() string { return t.manager + "/" + t.remote }

// Target implements gate.View.
func (t through) Target(name string) (gate.TargetInfo, error) {
	if name != t.site() {
		return t.View.Target(name)
	}
	return gate.TargetInfo{Name: name, Product: "pve"}, nil // which site it is is not known
}

// Scoped implements gate.View: what is read this way is kept for nobody else.
func (t through) Scoped() bool { return true }

// Read implements gate.View.
func (t through) Read(ctx context.Context, target string, r gate.Read) (gate.Answer, error) {
	if target != t.site() {
		return t.View.Read(ctx, target, r)
	}
	as, ok := t.asked(r)
	if !ok {
		return gate.Answer{}, gate.Fail(gate.ErrUnavailable, "", "the Datacenter Manager does not tell it of remote %s", clean(t.remote))
	}
	a, err := t.View.Read(ctx, t.manager, as)
	if err == nil && r.Operation == "GET /cluster/resources" {
		a.Data, err = sameRows(a.Data)
	}
	return a, err
}

// asked is how a site's own read is asked of the Datacenter Manager.
func (t through) asked(r gate.Read) (gate.Read, bool) {
	out := gate.Read{Params: map[string]string{"remote": t.remote}}
	for name, text := range r.Params {
		out.Params[name] = text
	}
	_, path, _ := strings.Cut(r.Operation, " ")
	switch path {
	case "/cluster/resources":
		out.Operation = "GET " + remotePath + "/resources"
	case "/cluster/options":
		out.Operation = "GET " + remotePath + "/options"
	case "/nodes/{node}/network":
		out.Operation = "GET " + remotePath + path
	default:
		rest, ok := strings.CutPrefix(path, "/nodes/{node}/")
		kind, does, _ := strings.Cut(rest, "/{vmid}/")
		if !ok || kind != "qemu" && kind != "lxc" {
			return out, false
		}
		switch does {
		case "pending", "snapshot":
		case "config":
			out.Params["state"] = "active"
			if out.Params["snapshot"] != "" {
				out.Params["state"] = "pending" // it has but one state, and Proxmox takes none with it
			}
			delete(out.Params, "current")
		case "snapshot/{snapname}/config":
			does = "config"
			out.Params["snapshot"], out.Params["state"] = out.Params["snapname"], "pending"
			delete(out.Params, "snapname")
		default:
			return out, false
		}
		out.Operation = "GET " + remotePath + "/" + kind + "/{vmid}/" + does
	}
	return out, true
}

// sameRows writes the rows of a Datacenter Manager as a site has them: it gives tags as a list.
func sameRows(data json.RawMessage) (json.RawMessage, error) {
	var rows []map[string]json.RawMessage
	if err := json.Unmarshal(data, &rows); err != nil {
		return nil, fmt.Errorf("read resources: %w", err)
	}
	for _, row := range rows {
		var tags []string
		if json.Unmarshal(row["tags"], &tags) != nil {
			continue
		}
		text, err := json.Marshal(strings.Join(tags, ";"))
		if err != nil {
			return nil, fmt.Errorf("write tags: %w", err)
		}
		row["tags"] = text
	}
	return json.Marshal(rows)
}

// Since is that of the look that it is made for.
func (t through) Since() time.Time {
	if v, ok := t.View.(interface{ Since() time.Time }); ok {
		return v.Since()
	}
	return time.Time{}
}

// placed is a step that is passed on, with the view by which it is walked; the step itself where it is not.
func placed(v gate.View, s gate.Step) (gate.Step, gate.View) {
	if s.API == nil {
		return s, v
	}
	remote, request, ok := passedOn(*s.API)
	if !ok {
		return s, v
	}
	t := through{View: v, manager: s.Target, remote: remote}
	s.API, s.Target = &request, t.site()
	return s, t
}

// anothers says whether a site that is walked through a Datacenter Manager may be another one than that of a target.
func (w *walk) anothers(target string) bool {
	t, ok := w.v.(through)
	return ok && target != t.manager
}

// atNode fills in where the guest of a request is, which a caller of a Datacenter Manager may leave out.
func (w *walk) atNode() {
	id := w.step.API.Text("vmid")
	if w.step.API.Get("node") != nil || id == "" || !strings.Contains(w.step.API.Operation, "{node}") {
		return
	}
	if g, ok := w.s.Inventory().ByID(id); ok {
		r := *w.step.API
		r.Params = append(slices.Clone(r.Params), gate.Param{Name: "node", Values: []gate.Value{{Text: g.Node}}})
		w.step.API = &r
	}
}
