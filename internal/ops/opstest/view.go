// Package opstest runs operations against a site written down as text, for tests.
package opstest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/catalog"
	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
)

// View answers reads from a site. Reads are checked against the catalogue: what the gate would refuse fails here too.
type View struct {
	Catalog *catalog.Catalog
	Info    gate.TargetInfo
	Clock   time.Time
	Limit   func(gate.ObjectFacts) bool // scope; nil = none
	Compose map[string]Run              // operations that View.Plan and View.Query reach
	Runs    map[string]gate.RunResult   // what probes and words answer: "RUN /nodes/{node}/lxc/{vmid}/probe disk", "RUN …/updates check 101"
	Walks   bool                        // it is a walk's view, which may also see what archives hold

	mu    sync.Mutex
	site  map[string]json.RawMessage // "GET /nodes/pve1/status" → data, or {"error":…}
	asked []string
}

// Run is an operation's planner or query, by raw arguments.
type Run func(ctx context.Context, v gate.View, args json.RawMessage) (any, *gate.Draft, error)

// New makes a view of a site: one answer a line, "GET /path?query data"; a later line replaces an earlier one. A line
// without a query answers any query that has no line of its own. "status: text" after the path is an error.
func New(site string) (*View, error) {
	c, err := shared()
	if err != nil {
		return nil, err
	}
	v := &View{Catalog: c, Info: gate.TargetInfo{Name: "lab", Product: "pve", User: "agent@pve!castellan", Site: "lab", Version: "9.2.11"},
		Clock: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), site: map[string]json.RawMessage{}}
	return v, v.Add(site)
}

// shared is the one catalogue of all views of a process: it is read only, and takes long to build.
var shared = sync.OnceValues(func() (*catalog.Catalog, error) { return catalog.New(catalog.Config{Facts: facts.Open()}) })

// Add takes more lines.
func (v *View) Add(site string) error {
	if v.site == nil {
		v.site = map[string]json.RawMessage{}
	}
	for n, line := range strings.Split(site, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		path, data, ok := strings.Cut(strings.TrimPrefix(line, "GET "), " ")
		if !ok || !strings.HasPrefix(line, "GET ") {
			return fmt.Errorf("read site: line %d is no answer", n+1)
		}
		if text, isError := strings.CutPrefix(data, "error: "); isError {
			b, err := json.Marshal(map[string]string{"_error": text})
			if err != nil {
				return err
			}
			data = string(b)
		}
		if !json.Valid([]byte(data)) {
			return fmt.Errorf("read site: line %d holds no JSON", n+1)
		}
		v.site["GET "+path] = json.RawMessage(data)
	}
	return nil
}

// Asked lists the reads so far.
func (v *View) Asked() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.asked)
}

// Read implements gate.View.
func (v *View) Read(_ context.Context, _ string, r gate.Read) (gate.Answer, error) {
	op, ok := v.Catalog.Lookup(v.Info.Product, r.Operation)
	if !ok {
		return gate.Answer{}, fmt.Errorf("read %s: no such operation", r.Operation)
	}
	args := map[string]any{}
	path, query := r.Operation, []string{}
	for _, k := range slices.Sorted(maps.Keys(r.Params)) {
		text := r.Params[k]
		if strings.HasPrefix(text, "@node_of:") {
			text = v.nodeOf(strings.TrimPrefix(text, "@node_of:"))
		}
		args[k] = text
		if strings.Contains(path, "{"+k+"}") {
			path = strings.ReplaceAll(path, "{"+k+"}", text)
		} else {
			query = append(query, k+"="+text)
		}
	}
	req, problems := v.Catalog.Check(op, args)
	if len(problems) > 0 {
		return gate.Answer{}, fmt.Errorf("read %s: %w", r.Operation, problems[0])
	}
	j := v.Catalog.Judge(op, req)
	if j.Effect != gate.EffectRead && !(v.Walks && r.Operation == "GET /nodes/{node}/vzdump/extractconfig") {
		return gate.Answer{}, fmt.Errorf("read %s: its effect is %s", r.Operation, j.Effect)
	}
	full := path
	if len(query) > 0 {
		full += "?" + strings.Join(query, "&")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = append(v.asked, full)
	data, ok := v.site[full]
	if !ok {
		data, ok = v.site[path]
	}
	if !ok { // a site whose text says nothing of rights hides nothing
		switch path {
		case "GET /access/permissions":
			data, ok = allRights(), true
		case "GET /access/acl":
			data, ok = json.RawMessage(`[]`), true
		}
	}
	if !ok {
		return gate.Answer{}, &gate.UpstreamError{Kind: gate.ErrUnavailable, Status: 500, Message: "the test site has no answer to " + full}
	}
	var fault struct {
		Error string `json:"_error"`
	}
	if json.Unmarshal(data, &fault) == nil && fault.Error != "" {
		kind := gate.ErrUnavailable
		switch {
		case strings.Contains(fault.Error, "does not exist"):
			kind = gate.ErrNotFound
		case strings.HasPrefix(fault.Error, "Permission check failed"):
			kind = gate.ErrDenied
		}
		return gate.Answer{}, &gate.UpstreamError{Kind: kind, Status: 500, Message: fault.Error}
	}
	a := gate.Answer{Data: data, Untrusted: len(v.Catalog.Outside(op, data)) > 0}
	var sibling struct {
		Data  json.RawMessage `json:"_data"`
		Total json.RawMessage `json:"_total"`
		Diff  json.RawMessage `json:"_changes"`
	}
	if json.Unmarshal(data, &sibling) == nil && sibling.Data != nil {
		a.Data, a.Siblings = sibling.Data, map[string]json.RawMessage{"total": sibling.Total, "changes": sibling.Diff}
	}
	return a, nil
}

// allRights is what a token holds that may see everything.
func allRights() json.RawMessage {
	held := map[string]int{}
	for _, p := range []string{"Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.Audit", "Mapping.Audit", "Permissions.Modify", "Pool.Audit", "SDN.Audit", "SDN.Use", "Sys.Audit", "Sys.Syslog",
		"User.Modify", "VM.Audit", "VM.Backup", "VM.Config.Disk"} {
		held[p] = 1
	}
	paths := map[string]any{}
	for _, p := range []string{"/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms"} {
		paths[p] = held
	}
	b, err := json.Marshal(paths)
	if err != nil {
		return json.RawMessage(`{}`) // a map of maps has a JSON form
	}
	return b
}

// SawFreeText takes what the gate's view would taint its caller by.
func (v *View) SawFreeText() {}

func (v *View) nodeOf(vmid string) string {
	var rows []struct {
		VMID json.Number `json:"vmid"`
		Node string      `json:"node"`
	}
	if json.Unmarshal(v.site["GET /cluster/resources"], &rows) == nil {
		for _, r := range rows {
			if r.VMID.String() == vmid {
				return r.Node
			}
		}
	}
	return "nowhere"
}

// Plan implements gate.View.
func (v *View) Plan(ctx context.Context, operation string, args json.RawMessage) (*gate.Draft, error) {
	run, ok := v.Compose[operation]
	if !ok {
		return nil, gate.Fail(gate.ErrNotFound, "", "there is no operation %q", operation)
	}
	_, d, err := run(ctx, v, args)
	if err == nil && d == nil {
		err = gate.Fail(gate.ErrInvalid, "", "%s makes no plan", operation)
	}
	return d, err
}

// Query implements gate.View.
func (v *View) Query(ctx context.Context, operation string, args json.RawMessage) (json.RawMessage, error) {
	run, ok := v.Compose[operation]
	if !ok {
		return nil, gate.Fail(gate.ErrNotFound, "", "there is no operation %q", operation)
	}
	out, d, err := run(ctx, v, args)
	if err != nil {
		return nil, err
	}
	if d != nil {
		e := gate.Fail(gate.ErrInvalid, "", "%s is no query", operation)
		e.Cause = gate.ErrNoQuery
		return nil, e
	}
	return json.Marshal(out)
}

// Run implements gate.View: what probes answer stands in Runs, by operation and probe.
func (v *View) Run(_ context.Context, _, operation string, params map[string]any) (gate.RunResult, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	what := params["probe"]
	if what == nil {
		what = params["word"]
	}
	key := operation + " " + fmt.Sprint(what)
	res, ok := v.Runs[key+" "+fmt.Sprint(params["vmid"])]
	if !ok {
		res, ok = v.Runs[key]
	}
	if !ok {
		if params["word"] != nil && params["vmid"] != nil {
			return gate.RunResult{}, gate.Fail(gate.ErrDenied, fmt.Sprintf("A person lets castellan look after its packages: castellan enrol %v.", params["vmid"]), "%s is refused: guest %v is not enrolled", key, params["vmid"])
		}
		return gate.RunResult{}, gate.Fail(gate.ErrDenied, "", "%s is refused: no lane is configured", key)
	}
	return res, nil
}

// Sees implements gate.View.
func (v *View) Sees(_ context.Context, _ string, o gate.ObjectFacts) bool {
	return v.Limit == nil || v.Limit(o)
}

// Scoped implements gate.View.
func (v *View) Scoped() bool { return v.Limit != nil }

// Target implements gate.View.
func (v *View) Target(name string) (gate.TargetInfo, error) {
	if name != "" && name != v.Info.Name {
		return gate.TargetInfo{}, gate.Fail(gate.ErrNotFound, "", "there is no target %q", name)
	}
	return v.Info, nil
}

// Targets implements gate.View.
func (v *View) Targets() []gate.TargetInfo { return []gate.TargetInfo{v.Info} }

// Principal implements gate.View.
func (v *View) Principal() gate.Principal { return gate.Principal{Agent: "test", Person: "ann"} }

// Now implements gate.View.
func (v *View) Now() time.Time { return v.Clock }
