package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// memory is a store that holds its state in maps; an Update that fails leaves no trace.
type memory struct {
	mu      sync.Mutex
	plans   map[string][]byte
	version map[string]int64
	locks   map[string]string
	nonces  map[string]bool
	hits    map[string][]time.Time
	sealed  map[string][]byte
	docs    map[string]Doc
	values  map[string]string
	records []Record
	reads   []Record
	down    error // of every Update
}

func newMemory() *memory {
	return &memory{plans: map[string][]byte{}, version: map[string]int64{}, locks: map[string]string{}, nonces: map[string]bool{},
		hits: map[string][]time.Time{}, sealed: map[string][]byte{}, docs: map[string]Doc{}, values: map[string]string{}}
}

func (m *memory) Update(_ context.Context, f func(Tx) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down != nil {
		return m.down
	}
	saved := &memory{records: slices.Clone(m.records)}
	saved.plans, saved.version, saved.locks, saved.nonces = maps.Clone(m.plans), maps.Clone(m.version), maps.Clone(m.locks), maps.Clone(m.nonces)
	saved.hits, saved.sealed, saved.values = maps.Clone(m.hits), maps.Clone(m.sealed), maps.Clone(m.values)
	if err := f((*memoryTx)(m)); err != nil {
		m.plans, m.version, m.locks, m.nonces = saved.plans, saved.version, saved.locks, saved.nonces
		m.hits, m.sealed, m.values, m.records = saved.hits, saved.sealed, saved.values, saved.records
		return err
	}
	return nil
}

func (m *memory) View(_ context.Context, f func(Tx) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return f((*memoryTx)(m))
}

func (m *memory) Observe(r Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads = append(m.reads, r)
}

func (m *memory) Position(context.Context, uint64) (*LedgerPosition, error) {
	return &LedgerPosition{Index: 1, Size: 2}, nil
}
func (m *memory) Ready(context.Context) error { return m.down }

func (m *memory) kinds() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, r := range m.records {
		out = append(out, r.Kind+":"+r.Status)
	}
	return out
}

type memoryTx memory

func (t *memoryTx) InsertPlan(r *PlanRecord) error {
	if t.plans[r.Plan.ID] != nil {
		return ErrStoreConflict
	}
	b, err := json.Marshal(r)
	t.plans[r.Plan.ID], t.version[r.Plan.ID] = b, 1
	r.Version = 1
	return err
}

func (t *memoryTx) Plan(id string) (*PlanRecord, error) {
	b := t.plans[id]
	if b == nil {
		return nil, ErrStoreNotFound
	}
	r := &PlanRecord{}
	err := json.Unmarshal(b, r)
	r.Version = t.version[id]
	return r, err
}

func (t *memoryTx) OpenPlan(effect, requester string) (*PlanRecord, error) {
	for id := range t.plans {
		if r, err := t.Plan(id); err == nil && r.State == PlanProposed && r.Plan.EffectDigest == effect && r.Plan.Requester.Key() == requester {
			return r, nil
		}
	}
	return nil, ErrStoreNotFound
}

func (t *memoryTx) UpdatePlan(r *PlanRecord) error {
	if t.version[r.Plan.ID] != r.Version {
		return ErrStoreConflict
	}
	b, err := json.Marshal(r)
	r.Version++
	t.plans[r.Plan.ID], t.version[r.Plan.ID] = b, r.Version
	return err
}

func (t *memoryTx) ListPlans(f PlanFilter) ([]*PlanRecord, string, error) {
	var out []*PlanRecord
	for id := range t.plans {
		r, err := t.Plan(id)
		if err != nil {
			return nil, "", err
		}
		if len(f.States) == 0 || slices.Contains(f.States, r.State) {
			out = append(out, r)
		}
	}
	return out, "", nil
}

func (t *memoryTx) Lock(object, plan string, _ time.Time) (string, error) {
	if h := t.locks[object]; h != "" && h != plan {
		return h, nil
	}
	t.locks[object] = plan
	return "", nil
}

func (t *memoryTx) Unlock(plan string) error {
	maps.DeleteFunc(t.locks, func(_, p string) bool { return p == plan })
	return nil
}

func (t *memoryTx) UseNonce(n string, _ time.Time) error {
	if t.nonces[n] {
		return ErrNonceUsed
	}
	t.nonces[n] = true
	return nil
}

func (t *memoryTx) Hit(b string, at time.Time) error { t.hits[b] = append(t.hits[b], at); return nil }
func (t *memoryTx) Count(b string, since time.Time) (int, error) {
	n := 0
	for _, at := range t.hits[b] {
		if at.After(since) {
			n++
		}
	}
	return n, nil
}
func (t *memoryTx) PutSealed(p, h string, box []byte) error { t.sealed[p+"/"+h] = box; return nil }
func (t *memoryTx) Sealed(p, h string) ([]byte, error)      { return t.sealed[p+"/"+h], nil }
func (t *memoryTx) DropSealed(p string) error {
	maps.DeleteFunc(t.sealed, func(k string, _ []byte) bool { return strings.HasPrefix(k, p+"/") })
	return nil
}
func (t *memoryTx) Get(k string) (string, error) { return t.values[k], nil }
func (t *memoryTx) Set(k, v string) error        { t.values[k] = v; return nil }
func (t *memoryTx) PutDoc(d *Doc) error {
	old := t.docs[d.Kind+"/"+d.ID]
	if d.Version != old.Version {
		return ErrStoreConflict
	}
	d.Version++
	t.docs[d.Kind+"/"+d.ID] = *d
	return nil
}
func (t *memoryTx) Doc(kind, id string) (*Doc, error) {
	d, ok := t.docs[kind+"/"+id]
	if !ok {
		return nil, ErrStoreNotFound
	}
	return &d, nil
}
func (t *memoryTx) Docs(f DocFilter) ([]*Doc, error) {
	var out []*Doc
	for _, k := range slices.Sorted(maps.Keys(t.docs)) {
		if d := t.docs[k]; d.Kind == f.Kind && (f.Owner == "" || d.Owner == f.Owner) && d.ID > f.After && (f.Limit == 0 || len(out) < f.Limit) {
			out = append(out, &d)
		}
	}
	return out, nil
}
func (t *memoryTx) DropDoc(kind, id string) error { delete(t.docs, kind+"/"+id); return nil }
func (t *memoryTx) Append(r Record) (uint64, error) {
	t.records = append(t.records, r)
	return uint64(len(t.records) - 1), nil
}

func (t *memoryTx) Recorded(f RecordFilter) ([]Recorded, error) {
	var out []Recorded
	for i, r := range slices.Backward(t.records) {
		same := func(want, have string) bool { return want == "" || want == have }
		if n := uint64(i); n >= f.From && (f.Below == 0 || n < f.Below) && same(f.Kind, r.Kind) && same(f.Operation, r.Operation) &&
			same(f.Status, r.Status) && same(f.Plan, r.Plan) && (f.Limit == 0 || len(out) < f.Limit) {
			r.Parts = nil
			out = append(out, Recorded{uint64(i), r})
		}
	}
	return out, nil
}

// site is a driver with one guest that can be started, stopped and configured; faults are scripted by operation.
type site struct {
	groups map[string]string // by id, as JSON
	mu     sync.Mutex
	status string
	config map[string]string
	tasks  map[string]TaskState
	sent   []Write
	bodies []string
	fault  map[string]func() error // before the effect when it returns NotCarriedOut, else after it
	owner  *Permit
	slow   time.Duration // how long tasks run
	began  map[string]time.Time
	name   string
	gone   error // of Address
}

func newSite() *site {
	return &site{status: "stopped", config: map[string]string{"memory": "512", "digest": "d1"}, tasks: map[string]TaskState{}, fault: map[string]func() error{},
		began: map[string]time.Time{}, name: "site-a"}
}

func (s *site) Targets() []TargetInfo {
	return []TargetInfo{{Name: "pve", Product: "pve", User: "agent@pve!castellan"}}
}
func (s *site) Identify(context.Context, string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.name, nil
}

func (s *site) Address(string) (string, error) { return "pve1:8006", s.gone }

func (s *site) Read(_ context.Context, _ string, r Request) (Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Operation {
	case "GET /access/groups/{groupid}":
		if text, ok := s.groups[r.Text("groupid")]; ok {
			return Answer{Data: json.RawMessage(text)}, nil
		}
	case "GET /guest/{vmid}":
		if r.Text("vmid") != "101" {
			return Answer{}, &UpstreamError{Kind: ErrNotFound, Status: 500, Message: "does not exist"}
		}
		m := maps.Clone(s.config)
		m["status"] = s.status
		b, err := json.Marshal(m)
		return Answer{Data: b}, err
	}
	return Answer{}, &UpstreamError{Kind: ErrInvalid, Delivery: NotCarriedOut, Status: 501, Message: "not implemented"}
}

func (s *site) Send(_ context.Context, p *Permit) (Answer, error) {
	w, err := p.Take()
	if err != nil {
		return Answer{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner = p
	s.sent = append(s.sent, w)
	body := url.Values{}
	for _, p := range w.Request.Params {
		for _, v := range p.Values {
			text, err := w.Open(v)
			if err != nil {
				return Answer{}, err
			}
			body.Add(p.Name, text)
		}
	}
	s.bodies = append(s.bodies, body.Encode())
	var after error
	if f := s.fault[w.Request.Operation]; f != nil {
		err := f()
		var u *UpstreamError
		if errors.As(err, &u) && u.Delivery == NotCarriedOut {
			return Answer{}, err
		}
		after = err
	}
	upid := ""
	switch w.Request.Operation {
	case "POST /guest/{vmid}/start", "POST /guest/{vmid}/stop":
		verb := w.Request.Operation[strings.LastIndex(w.Request.Operation, "/")+1:]
		upid = fmt.Sprintf("UPID:n1:%08X:%s:101:agent@pve!castellan:", len(s.sent), verb)
		s.tasks[upid] = TaskState{UPID: upid, ID: "101", Known: true, OK: true, Exit: "OK"}
		s.began[upid] = time.Now()
		s.status = map[string]string{"start": "running", "stop": "stopped"}[verb]
	case "PUT /guest/{vmid}":
		for k, v := range body {
			if k != "vmid" && k != "digest" {
				s.config[k] = v[0]
			}
		}
		s.config["digest"] += "x"
	}
	if after != nil {
		return Answer{}, after
	}
	if upid != "" {
		return Answer{Data: json.RawMessage(`"` + upid + `"`)}, nil
	}
	return Answer{Data: json.RawMessage("null")}, nil
}

func (s *site) Task(_ context.Context, _, upid string) (TaskState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tasks[upid]
	if !ok {
		return TaskState{UPID: upid}, nil
	}
	if time.Since(s.began[upid]) < s.slow {
		return TaskState{UPID: upid, Running: true}, nil
	}
	return t, nil
}

func (s *site) FindTasks(context.Context, string, string, time.Time) ([]TaskState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.tasks)), nil
}

// smallCatalog knows the four operations of site.
type smallCatalog struct{}

func (smallCatalog) Version() string { return "test" }
func (smallCatalog) Check(product, op string, args map[string]any) (Request, []Problem) {
	for k, v := range args {
		if v == "bad" {
			return Request{}, []Problem{{Param: k, Message: "is bad"}}
		}
	}
	r, err := NewRequest(product, op, args)
	if err != nil {
		return r, []Problem{{Message: err.Error()}}
	}
	return r, nil
}
func (smallCatalog) Judge(r Request) Judgement {
	j := Judgement{Operation: r.Operation, Effect: EffectChange, Sentence: r.Operation + " of guest " + r.Text("vmid"),
		References: []Reference{{Object: Object{Kind: ObjectGuest, ID: r.Text("vmid")}, Param: "vmid", Use: UseActs}}}
	switch r.Operation {
	case "GET /guest/{vmid}", "GET /access/groups/{groupid}":
		j.Effect, j.Kinds = EffectRead, []Kind{KindRead}
	case "POST /guest/{vmid}/start":
		j.Kinds, j.Task = []Kind{KindStart}, true
	case "POST /guest/{vmid}/stop":
		j.Kinds, j.Task = []Kind{KindStop}, true
	case "RUN /guest/{vmid}/probe":
		j.Effect, j.Kinds = EffectRead, []Kind{KindProbe}
	case "RUN /guest/{vmid}/command":
		j.Effect, j.Kinds, j.Classes = EffectExecute, []Kind{KindCommand}, []Class{ClassExec}
	default:
		j.Kinds = []Kind{KindConfig}
	}
	return j
}
func (smallCatalog) Render(r Request, open func(Value) (string, error)) (Rendered, error) {
	m, p, _ := strings.Cut(r.Operation, " ")
	out := Rendered{Method: m, Path: p}
	for _, param := range r.Params {
		for _, v := range param.Values {
			text, err := open(v)
			if err != nil {
				return out, err
			}
			out.Body += param.Name + "=" + text + "&"
		}
	}
	return out, nil
}
func (smallCatalog) Scrub(_ Request, d json.RawMessage) json.RawMessage { return d }
func (smallCatalog) SecretValue(_ Request, param, value string) []SecretPart {
	if param == "password" {
		return []SecretPart{{0, len(value)}}
	}
	return nil
}
func (smallCatalog) SecretName(name string) bool { return name == "password" }
func (c smallCatalog) Outside(r Request, _ json.RawMessage) []string {
	if c.Judge(r).FreeText {
		return []string{"somebody"}
	}
	return nil
}
func (smallCatalog) ReadScope(_, op string) (string, string, bool) { return "vmid", "", true }

// ladder is a policy that asks for the table's rung.
type ladder struct {
	mu      sync.Mutex
	standIn Rung
	highest Rung
	arming  bool
	deny    map[Kind]bool
	set     string
	titles  []string // of guests, by which it decides
	least   Rung     // asked of everything
	scope   string   // a pool in which guests must be
	pools   []string // that grant scope
	roles   bool     // changes take the role of an operator
	shut    string   // a person who may make no changes

	withhold  bool
	contained string
}

func (l *ladder) Digest() string { return "set" + l.set }
func (l *ladder) Call(context.Context, CallQuestion) Decision {
	return Decision{Verdict: VerdictAllow, Set: l.Digest()}
}
func (l *ladder) Plan(_ context.Context, q PlanQuestion) Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	rung := l.least
	if l.roles && q.Principal.looksOnly() || l.shut != "" && q.Principal.Person == l.shut {
		return Decision{Set: l.Digest(), Reason: "changes take the role operator", Rung: RungDenied}
	}
	for _, o := range q.Facts.Objects {
		if l.scope != "" && !slices.Contains(o.Pools, l.scope) {
			return Decision{Set: l.Digest(), Reason: o.Object.String() + " is not in scope", Rung: RungDenied}
		}
	}
	for _, k := range q.Facts.Kinds {
		if l.deny[k] {
			return Decision{Set: l.Digest(), Reason: "capability of " + string(k) + " is off", Rung: RungDenied}
		}
		rung = max(rung, RowOf(k).Rung)
	}
	if q.Facts.Tainted && rung == RungNone {
		rung = RungRestated
	}
	d := Decision{Verdict: VerdictNeeds, Rung: rung, Asked: rung, Set: l.Digest()}
	if rung >= RungPerson && rung > l.highest {
		d.Rung = l.standIn
	}
	if rung == RungNone {
		d.Verdict = VerdictAllow
	}
	return d
}
func (l *ladder) Approve(context.Context, PlanQuestion, Principal, Rung) Decision {
	return Decision{Verdict: VerdictAllow}
}
func (l *ladder) Sees(Principal, string, ObjectFacts) bool { return true }
func (l *ladder) Scoped(Principal) bool                    { return false }
func (l *ladder) GovernedScope() ([]string, []string)      { return l.pools, []string{"agent-ok"} }
func (l *ladder) Depends() (pools, tags, titles []string) {
	return l.pools, []string{"agent-ok"}, l.titles
}
func (l *ladder) Limits() Limits {
	return Limits{StandIn: l.standIn, HighestRung: max(l.highest, RungDialog), ArmingNeeded: l.arming, WithholdRuns: l.withhold, Contained: l.contained}
}

type flatEstate struct {
	mu          sync.Mutex
	pools, tags []string // of every object
	nameless    bool     // nothing tells a guest from another
}

func (e *flatEstate) set(pools, tags []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pools, e.tags = pools, tags
}

func (e *flatEstate) Describe(_ context.Context, _ View, _ string, refs []Reference) ([]ObjectFacts, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []ObjectFacts
	for _, r := range refs {
		out = append(out, ObjectFacts{Object: r.Object, Use: r.Use, Known: true, Pools: e.pools, Tags: e.tags})
	}
	return out, nil
}
func (e *flatEstate) TagRules(context.Context, View, string) (TagRules, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return TagRules{Known: true, Allow: "existing", SeenKnown: true, Registered: slices.DeleteFunc(slices.Clone(e.tags), func(t string) bool { return strings.HasPrefix(t, "free") })}, nil
}

// Lasting tells a guest as long as its settings do not say that it was replaced.
func (e *flatEstate) Lasting(_ context.Context, _ View, _, vmid string, _ time.Time) ([]Condition, error) {
	if e.nameless {
		return nil, nil
	}
	return []Condition{{Name: "guest " + vmid + " was not replaced", Read: Read{Operation: "GET /guest/{vmid}", Params: map[string]string{"vmid": vmid}}, Pointer: "/replaced", Rule: RuleAbsent}}, nil
}

func (*flatEstate) Identity(context.Context, View, string, []Object) ([]Condition, []string, error) {
	return nil, nil, nil
}
func (*flatEstate) Definitions(context.Context, View, string, Request, []Reference) ([]Condition, []string) {
	return nil, nil
}
func (*flatEstate) NodeOf(context.Context, View, string, string) (string, error) { return "n1", nil }

// plainSealer turns boxes round, so that a test sees whether anything is stored in clear.
type plainSealer struct{ n int }

func (plainSealer) Seal(p []byte, c string) ([]byte, error) {
	out := slices.Clone(p)
	slices.Reverse(out)
	return append([]byte(c+"\x00"), out...), nil
}
func (plainSealer) Open(b []byte, c string) ([]byte, error) {
	rest, ok := strings.CutPrefix(string(b), c+"\x00")
	if !ok {
		return nil, errors.New("sealed for something else")
	}
	out := []byte(rest)
	slices.Reverse(out)
	return out, nil
}
func (plainSealer) Commit(p []byte) (string, []byte) {
	return fmt.Sprintf("c%d", len(p)), []byte("salt")
}
func (p *plainSealer) Token() (string, string) {
	p.n++
	return fmt.Sprintf("tok%d", p.n), fmt.Sprintf("#tok%d", p.n)
}
func (plainSealer) HashToken(t string) string { return "#" + t }
func (plainSealer) Redact(s string) string    { return s }

type powerIn struct {
	Guest  string `json:"guest"`
	Action string `json:"action" enum:"start,stop"`
}
type setIn struct {
	Guest string            `json:"guest"`
	Set   map[string]string `json:"set"`
}

func statusIs(vmid, status string) Condition {
	return Condition{Name: "guest " + vmid + " is " + status, Read: Read{Operation: "GET /guest/{vmid}", Params: map[string]string{"vmid": vmid}},
		Pointer: "/status", Rule: RuleEquals, Value: json.RawMessage(`"` + status + `"`)}
}

func testOperations() []*Operation {
	power := Change(Declaration{Name: "power", Summary: "power", Effect: EffectChange, Kinds: []Kind{KindStart, KindStop}, Guest: "guest"},
		func(ctx context.Context, v View, in powerIn) (*Draft, error) {
			a, err := v.Read(ctx, "", Read{Operation: "GET /guest/{vmid}", Params: map[string]string{"vmid": in.Guest}})
			if err != nil {
				return nil, err
			}
			status, _, _ := Condition{Pointer: "/status"}.find(a.Data)
			want := map[string]string{"start": "running", "stop": "stopped"}[in.Action]
			if status == want {
				return &Draft{}, nil
			}
			r, err := NewRequest("pve", "POST /guest/{vmid}/"+in.Action, map[string]any{"vmid": in.Guest})
			return &Draft{Steps: []Step{{API: &r, Require: []Condition{statusIs(in.Guest, status)}, Verify: []Condition{statusIs(in.Guest, want)}}}}, err
		})
	set := Change(Declaration{Name: "set", Summary: "set", Effect: EffectChange, Kinds: []Kind{KindConfig}, Guest: "guest"},
		func(_ context.Context, _ View, in setIn) (*Draft, error) {
			args := map[string]any{"vmid": in.Guest}
			for k, v := range in.Set {
				args[k] = v
			}
			r, err := NewRequest("pve", "PUT /guest/{vmid}", args)
			return &Draft{Steps: []Step{{API: &r, FreshDigest: &Read{Operation: "GET /guest/{vmid}", Params: map[string]string{"vmid": in.Guest}}}}}, err
		})
	both := Change(Declaration{Name: "both", Summary: "both", Effect: EffectChange}, func(ctx context.Context, v View, in setIn) (*Draft, error) {
		d := &Draft{}
		for _, c := range []struct{ op, args string }{{"set", `{"guest":"101","set":{"memory":"1024"}}`}, {"power", `{"guest":"101","action":"start"}`}} {
			child, err := v.Plan(ctx, c.op, json.RawMessage(c.args))
			if err != nil {
				return nil, err
			}
			d.Children = append(d.Children, child)
		}
		return d, nil
	})
	type applyIn struct {
		Plan     string `json:"plan"`
		Sentence string `json:"sentence,omitempty"`
		Token    string `json:"token,omitempty"`
		Phrase   string `json:"phrase,omitempty"`
	}
	apply := Control(Declaration{Name: "apply", Summary: "apply", Effect: EffectChange}, func(ctx context.Context, d Desk, in applyIn) (*Outcome, error) {
		return d.Apply(ctx, in.Plan, Evidence{Sentence: in.Sentence, Phrase: in.Phrase}, in.Token)
	})
	return []*Operation{power, set, both, apply}
}

type rig struct {
	g      *Gate
	store  *memory
	site   *site
	policy *ladder
	estate *flatEstate
	stop   func()
}

func newRig(t *testing.T, store *memory, s *site) *rig {
	t.Helper()
	return newRigWith(t, store, s, func(*Config) {})
}

func newRigWith(t *testing.T, store *memory, s *site, change func(*Config)) *rig {
	t.Helper()
	p, e := &ladder{standIn: RungPhrase, deny: map[Kind]bool{}}, &flatEstate{}
	c := Config{Operations: testOperations(), Catalog: smallCatalog{}, Driver: s, Policy: p, Store: store, Estate: e, Sealer: &plainSealer{},
		Heartbeat: 20 * time.Millisecond, PollFirst: 2 * time.Millisecond}
	change(&c)
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := g.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	g.AwaitRunning()
	r := &rig{g: g, store: store, site: s, policy: p, estate: e}
	stopped := false
	r.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			<-done
		}
	}
	t.Cleanup(r.stop)
	return r
}

var agent = Principal{Agent: "claude", Person: "ann", WayIn: "test", Strength: StrengthAccount}

func (r *rig) do(t *testing.T, op, args string) (*Outcome, error) {
	t.Helper()
	return r.g.Do(context.Background(), Call{Operation: op, Args: json.RawMessage(args), Principal: agent}, nil)
}
