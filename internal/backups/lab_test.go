package backups

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/catalog"
	"castellan/internal/catalog/facts"
	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/lab"
)

// labView reads of a simulated site as one of its tokens.
type labView struct {
	tb     testing.TB
	lab    *lab.Lab
	guide  catalog.Guide
	header string
	clock  func() time.Time
	scope  func(gate.ObjectFacts) bool
	hide   func(path string) bool // reads that are refused

	mu    sync.Mutex
	asked []string
}

func newLabView(tb testing.TB, site, token string, now time.Time) *labView {
	tb.Helper()
	clock := func() time.Time { return now }
	l, err := lab.New(lab.Config{Site: site, Facts: facts.Open(), Clock: clock})
	if err != nil {
		tb.Fatal(err)
	}
	c, err := catalog.New(catalog.Config{Facts: facts.Open()})
	if err != nil {
		tb.Fatal(err)
	}
	return &labView{tb: tb, lab: l, guide: c.Guide(), header: l.Tokens()[token], clock: clock}
}

func (v *labView) as(token string) *labView {
	w := &labView{tb: v.tb, lab: v.lab, guide: v.guide, header: v.lab.Tokens()[token], clock: v.clock}
	return w
}

func (v *labView) Read(ctx context.Context, _ string, r gate.Read) (gate.Answer, error) {
	args := map[string]any{}
	for k, text := range r.Params {
		args[k] = text
	}
	req, problems := v.guide.Check("pve", r.Operation, args)
	if len(problems) > 0 {
		return gate.Answer{}, fmt.Errorf("read %s: %v", r.Operation, problems)
	}
	if j := v.guide.Judge(req); j.Effect != gate.EffectRead {
		v.tb.Errorf("%s is no read: %s", r.Operation, j.Effect)
	}
	out, err := v.guide.Render(req, func(x gate.Value) (string, error) { return x.Text, nil })
	if err != nil {
		return gate.Answer{}, err
	}
	target := "/api2/json" + out.Path
	if out.Query != "" {
		target += "?" + out.Query
	}
	v.mu.Lock()
	v.asked = append(v.asked, target)
	v.mu.Unlock()
	if v.hide != nil && v.hide(target) {
		return gate.Answer{}, &gate.UpstreamError{Kind: gate.ErrDenied, Status: 403, Message: "Permission check failed"}
	}
	status, reason, body := v.lab.Do(ctx, out.Method, target, http.Header{"Authorization": {v.header}}, nil)
	if status != 200 {
		return gate.Answer{}, &gate.UpstreamError{Kind: gate.ErrUnavailable, Status: status, Message: reason}
	}
	var a struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return gate.Answer{}, err
	}
	return gate.Answer{Data: a.Data}, nil
}

// write sends a change past castellan, as an administrator of the site does.
func (v *labView) write(method, path string, body string) {
	v.tb.Helper()
	header := http.Header{"Authorization": {v.lab.Tokens()["admin"]}, "Content-Type": {"application/x-www-form-urlencoded"}}
	status, reason, answer := v.lab.Do(v.tb.Context(), method, "/api2/json"+path, header, []byte(body))
	if status != 200 {
		v.tb.Fatalf("%s %s: %d %s %s", method, path, status, reason, answer)
	}
}

func (v *labView) Plan(context.Context, string, json.RawMessage) (*gate.Draft, error) {
	return nil, fmt.Errorf("not here")
}
func (v *labView) Query(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	return nil, fmt.Errorf("not here")
}
func (v *labView) Run(context.Context, string, string, map[string]any) (gate.RunResult, error) {
	return gate.RunResult{}, gate.Fail(gate.ErrDenied, "", "no lane is configured")
}
func (v *labView) Sees(_ context.Context, _ string, o gate.ObjectFacts) bool {
	return v.scope == nil || v.scope(o)
}
func (v *labView) Scoped() bool { return v.scope != nil }
func (v *labView) Target(string) (gate.TargetInfo, error) {
	return gate.TargetInfo{Name: "lab", Product: "pve", User: "x@pve!y"}, nil
}
func (v *labView) Targets() []gate.TargetInfo {
	t, _ := v.Target("")
	return []gate.TargetInfo{t}
}
func (v *labView) Principal() gate.Principal { return gate.Principal{Agent: "test"} }
func (v *labView) Now() time.Time            { return v.clock() }

func all(estate.Guest) bool { return true }

func look(t *testing.T, v gate.View, q Question) (*Site, map[string]State) {
	t.Helper()
	s, err := Look(t.Context(), v, "lab", q)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]State{}
	for _, st := range s.States(all) {
		by[st.ID] = st
	}
	return s, by
}

func expect(t *testing.T, by map[string]State, want map[string]Verdict) {
	t.Helper()
	for id, v := range want {
		if by[id].Verdict != v {
			t.Errorf("guest %s is %s (%s), want %s", id, by[id].Verdict, by[id].Why, v)
		}
	}
}

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func TestSmallSite(t *testing.T) {
	v := newLabView(t, "small", "admin", noon)
	s, by := look(t, v, Question{})
	for _, m := range s.Missing {
		t.Log("missing: ", m)
	}
	expect(t, by, map[string]Verdict{"101": Fresh, "102": Fresh, "201": Fresh, "203": Fresh, "104": Template, "205": Template, "106": Never, "105": Never, "103": Never, "204": Never})
	if n := len(v.asked); n > 40 {
		t.Errorf("%d reads: %v", n, v.asked)
	}
	for _, a := range s.Archives {
		if a.Storage == "pbs1" && a.Whose != Own {
			t.Errorf("%s is %s: %s", a.Volume, a.Whose, a.Why)
		}
	}
	if got := by["105"].Failed; !strings.Contains(got, "locked") {
		t.Errorf("the reason of the failure is %q", got)
	}
	asked := 0
	for _, a := range v.asked {
		if strings.Contains(a, "/storage/pbs1/content") {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("the shared storage was asked %d times", asked)
	}
}

func TestHiddenIsNotAbsent(t *testing.T) {
	v := newLabView(t, "small", "auditor", noon) // an auditor is shown no archive at all
	s, by := look(t, v, Question{})
	for id, st := range by {
		if st.Verdict == Never || st.Verdict == Stale || st.Verdict == Fresh {
			t.Errorf("guest %s is %s without a look at archives: %s", id, st.Verdict, st.Why)
		}
	}
	if !slices.ContainsFunc(s.Missing, func(m string) bool { return strings.Contains(m, "VM.Backup") && strings.Contains(m, "/storage/pbs1") }) {
		t.Errorf("the missing grant is not named: %v", s.Missing)
	}
	v = newLabView(t, "small", "limited", noon)
	s, by = look(t, v, Question{})
	if len(by) != 1 || by["201"].Verdict != Unclear || !slices.ContainsFunc(s.Missing, func(m string) bool { return strings.Contains(m, "may not see all") }) {
		t.Errorf("%v, missing %v", by, s.Missing)
	}
}

// TestEachHiddenReadIsHonest refuses one read after the other: no guest turns better than it is, and none that was kept
// turns into one that surely was not.
func TestEachHiddenReadIsHonest(t *testing.T) {
	v := newLabView(t, "small", "admin", noon)
	_, truth := look(t, v, Question{})
	reads := slices.Clone(v.asked)
	slices.Sort(reads)
	for _, path := range slices.Compact(reads) {
		if strings.Contains(path, "/cluster/resources") {
			continue // without the listing there is no answer at all
		}
		v.hide = func(p string) bool { return p == path }
		_, by := look(t, v, Question{})
		for id, st := range by {
			was := truth[id].Verdict
			if st.Verdict == Fresh && was != Fresh || was == Fresh && (st.Verdict == Never || st.Verdict == Stale || st.Verdict == Uncovered) {
				t.Errorf("without %s guest %s is %s (%s), it was %s", path, id, st.Verdict, st.Why, was)
			}
		}
	}
}

func TestIdentityIsMoreThanTheID(t *testing.T) {
	v := newLabView(t, "small", "admin", noon)
	v.write("POST", "/nodes/pve1/qemu/101/status/stop", "")
	v.write("DELETE", "/nodes/pve1/qemu/101", "")
	s, by := look(t, v, Question{})
	if by["101"].Verdict != Orphaned || by["101"].Others == 0 {
		t.Errorf("archives of the destroyed guest: %+v", by["101"])
	}
	for _, a := range s.Archives {
		if a.Guest == "101" && a.Whose != Orphan {
			t.Errorf("%s is %s", a.Volume, a.Whose)
		}
	}
	// Somebody else comes to have the id: nothing of before is its own.
	v.write("POST", "/nodes/pve1/qemu", "vmid=101&name=other")
	s, by = look(t, v, Question{})
	if st := by["101"]; st.Verdict == Fresh || st.Archives != 0 || st.Others == 0 {
		t.Errorf("%+v", st)
	}
	for _, a := range s.Archives {
		if a.Guest == "101" && a.Whose != Earlier {
			t.Errorf("%s is %s", a.Volume, a.Whose)
		}
	}
}

func TestUncoveredAndParked(t *testing.T) {
	v := newLabView(t, "small", "admin", noon)
	v.write("PUT", "/cluster/backup/nightly", "enabled=0")
	_, by := look(t, v, Question{})
	expect(t, by, map[string]Verdict{"101": Uncovered, "103": Parked, "203": Parked, "102": Fresh, "104": Template})
	if !strings.Contains(by["101"].Why, "nightly") {
		t.Errorf("the job that is off is not named: %s", by["101"].Why)
	}
	v.write("PUT", "/cluster/backup/nightly", "enabled=1&exclude=101")
	_, by = look(t, v, Question{})
	expect(t, by, map[string]Verdict{"101": Uncovered, "203": Fresh})
	v.write("PUT", "/cluster/backup/nightly", "pool=prod")
	_, by = look(t, v, Question{})
	expect(t, by, map[string]Verdict{"101": Fresh, "201": Uncovered})
	v.write("PUT", "/cluster/backup/nightly", "node=pve2&all=1")
	_, by = look(t, v, Question{})
	expect(t, by, map[string]Verdict{"101": Uncovered, "203": Fresh})
}

func TestUnreadableStorage(t *testing.T) {
	v := newLabView(t, "small", "admin", noon)
	if err := v.lab.SetStorageDead("pbs1", true); err != nil {
		t.Fatal(err)
	}
	s, by := look(t, v, Question{})
	expect(t, by, map[string]Verdict{"101": Unclear, "102": Unclear, "106": Unclear})
	if !slices.ContainsFunc(s.Missing, func(m string) bool { return strings.Contains(m, "storage pbs1 could not be read") }) {
		t.Errorf("missing: %v", s.Missing)
	}
}

func TestLateAndInTime(t *testing.T) {
	// The last archives are of 02:30 on the 29th; a day later, when the grace of the next run is over, they are stale.
	for _, c := range []struct {
		later time.Duration
		want  Verdict
	}{{0, Fresh}, {14*time.Hour + 30*time.Minute, Fresh}, {20 * time.Hour, Fresh}, {20*time.Hour + 31*time.Minute, Stale}} {
		v := newLabView(t, "small", "admin", noon)
		v.clock = func() time.Time { return noon.Add(c.later) }
		_, by := look(t, v, Question{})
		expect(t, by, map[string]Verdict{"101": c.want})
	}
}

func TestZoneOfTheNode(t *testing.T) {
	// In New York the job's 02:30 is 07:30 UTC: at noon UTC its grace is not over, and the run of the day before counts.
	v := newLabView(t, "small", "admin", noon)
	v.write("PUT", "/nodes/pve1/time", "timezone=America/New_York")
	s, by := look(t, v, Question{})
	if st := by["101"]; st.Verdict != Fresh || !st.Due.Equal(time.Date(2026, 11, 28, 7, 30, 0, 0, time.UTC)) || !s.ZonesDiffer() {
		t.Errorf("%s %s %s", st.Verdict, st.Due, st.Why)
	}
	next, ok := s.NextRun(&s.Jobs[1], "pve1")
	if !ok || !next.Equal(time.Date(2026, 11, 30, 7, 30, 0, 0, time.UTC)) {
		t.Errorf("next run %s", next)
	}
}

func TestBigSite(t *testing.T) {
	v := newLabView(t, "2000", "admin", noon)
	began := time.Now()
	s, by := look(t, v, Question{})
	t.Logf("%d guests, %d reads, %s", len(by), len(v.asked), time.Since(began))
	if len(v.asked) > 120 {
		t.Errorf("%d reads", len(v.asked))
	}
	if len(by) != 2000 {
		t.Errorf("%d guests, missing %v", len(by), s.Missing)
	}
}
