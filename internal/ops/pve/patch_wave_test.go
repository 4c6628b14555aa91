package pve

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/ops/opstest"
)

// herd is a site with many guests; apply_updates is a stand-in that says what each has.
func herd(t *testing.T, guests []map[string]any, more string, updates map[string]any) *opstest.View {
	t.Helper()
	rows := []map[string]any{}
	for n := range 3 {
		rows = append(rows, map[string]any{"type": "node", "node": fmt.Sprintf("pve%d", n+1), "status": "online"})
	}
	rows = append(rows, guests...)
	b, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	v, err := opstest.New("GET /cluster/resources " + string(b) + "\n" + more)
	if err != nil {
		t.Fatal(err)
	}
	v.Compose = map[string]opstest.Run{"apply_updates": func(_ context.Context, _ gate.View, args json.RawMessage) (any, *gate.Draft, error) {
		var in struct {
			Guest    string `json:"guest"`
			Mode     string `json:"mode"`
			Rollback bool   `json:"rollback_if_worse"`
		}
		if err := json.Unmarshal(args, &in); err != nil {
			return nil, nil, err
		}
		step := func(op string, params map[string]any) gate.Step {
			params["node"], params["vmid"] = "pve1", in.Guest
			r, err := gate.NewRequest("pve", op, params)
			if err != nil {
				t.Fatal(err)
			}
			return gate.Step{API: &r, Undo: gate.Undo{None: "a test"}}
		}
		switch u := updates[in.Guest].(type) {
		case error:
			return nil, nil, u
		case []string:
			d := &gate.Draft{Diff: []gate.Difference{{Key: "its own"}}, Steps: []gate.Step{step("RUN /nodes/{node}/qemu/{vmid}/upgrade", map[string]any{"mode": in.Mode, "package": u}),
				step("RUN /nodes/{node}/qemu/{vmid}/updates", map[string]any{"word": "verify"})}}
			if in.Rollback {
				back := step("POST /nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback", map[string]any{"snapname": "x"})
				back.When.StepFailed = 2
				d.Steps = append(d.Steps, back)
			}
			return nil, d, nil
		}
		return nil, &gate.Draft{Note: "nothing to install"}, nil
	}}
	return v
}

func vm(id int, name, node string, more ...any) map[string]any {
	g := map[string]any{"type": "qemu", "id": fmt.Sprintf("qemu/%d", id), "vmid": id, "name": name, "node": node, "status": "running"}
	for i := 0; i+1 < len(more); i += 2 {
		g[more[i].(string)] = more[i+1]
	}
	return g
}

var ssl = []string{"upgrade openssl:amd64 3.0.1 3.0.2 Debian-Security:bookworm-security", "install libx:amd64 - 1.0 Debian:bookworm"}

func plannedWave(t *testing.T, v gate.View, args string) (*gate.Draft, error) {
	t.Helper()
	var in patchWaveIn
	if err := json.Unmarshal([]byte(args), &in); err != nil {
		t.Fatal(err)
	}
	return planPatchWave(t.Context(), v, in, nil)
}

// TestWaveLeavesOut: who is not taken, each with its reason, and who is.
func TestWaveLeavesOut(t *testing.T) {
	v := herd(t, []map[string]any{vm(101, "web", "pve1"), vm(102, "db", "pve2", "status", "stopped"), vm(103, "tmpl", "pve1", "template", 1), vm(104, "held", "pve1", "lock", "migrate"),
		vm(105, "saved", "pve1", "lock", "backup"), vm(106, "deaf", "pve3"), vm(107, "fresh", "pve3"), vm(108, "task", "pve2"), vm(109, "due", "pve2"), vm(110, "run", "pve3")},
		`GET /cluster/tasks [{"upid":"UPID:pve2:1:2:3:vzdump:108:root@pam:","type":"vzdump","id":"108","node":"pve2","starttime":1},{"upid":"UPID:pve3:1:2:3:vzdump::root@pam:","type":"vzdump","id":"","node":"pve3","starttime":1}]
GET /cluster/backup [{"id":"nightly","schedule":"*:0/5","enabled":1,"vmid":"109,110","storage":"nas"}]
`, map[string]any{"101": ssl, "106": gate.Fail(gate.ErrDenied, "enrol it", "VM 106 is not enrolled")})
	d, err := plannedWave(t, v, `{"guests":["101","102","103","104","105","106","107","108","109","110"]}`)
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Join(d.Skip, "\n")
	for _, want := range []string{"VM 102 (db): it is stopped", "VM 103 (tmpl): a template", "VM 104 (held): it is locked (migrate)", "VM 105 (saved): a backup of it runs", "VM 106 (deaf): not enrolled",
		"VM 107 (fresh): nothing to install", "VM 108 (task): a backup of it runs", "VM 109 (due): its backup by job nightly is due at", "VM 110 (run): a backup run is under way on its node pve3"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not said:\n%s", want, said)
		}
	}
	if len(d.Children) != 1 || d.Parallel != usualBatch || d.StopAfter != 1 {
		t.Errorf("%d children, %d at once, stops after %d", len(d.Children), d.Parallel, d.StopAfter)
	}
	if d, err := plannedWave(t, v, `{"guests":["102","107"]}`); err != nil || len(d.Children) != 0 || d.Parallel != 0 {
		t.Errorf("nothing to do: %+v %v", d, err)
	}
	if _, err := plannedWave(t, v, `{"guests":["105","107"]}`); gate.AsError(err).Kind != gate.ErrUnavailable {
		t.Errorf("only backups stand against it: %v", err)
	}
	if _, err := plannedWave(t, v, `{"guests":["105","106"]}`); gate.AsError(err).Kind != gate.ErrUnavailable || !strings.Contains(gate.AsError(err).Hint, "castellan enrol 106") {
		t.Errorf("a backup, and one that is not enrolled: %v", err)
	}
	if _, err := plannedWave(t, v, `{"guests":["102","106"]}`); gate.AsError(err).Kind != gate.ErrDenied || !strings.Contains(gate.AsError(err).Hint, "castellan enrol 106") {
		t.Errorf("nothing is known of any, which is not nothing to do: %v", err)
	}
	if d, err := plannedWave(t, v, `{"guests":["106","107"]}`); err != nil || len(d.Children) != 0 {
		t.Errorf("one is up to date, one is left out: %+v %v", d, err)
	}
	if _, err := plannedWave(t, v, `{"guests":["101"],"canary":["107"]}`); err == nil || !strings.Contains(err.Error(), "canary VM 107") {
		t.Errorf("a canary that cannot be taken: %v", err)
	}
	for _, bad := range []string{`{}`, `{"pool":"nobody"}`, `{"guests":["101"],"batch":11}`, `{"guests":["101"],"max_guests":51}`, `{"guests":["101"],"soak_minutes":5}`, `{"guests":["101"],"soak_minutes":1441,"canary":["101"]}`,
		`{"guests":["101"],"stop_after":-1}`, `{"guests":["nobody"]}`} {
		if d, err := plannedWave(t, v, bad); err == nil {
			t.Errorf("%s: %+v", bad, d)
		}
	}
}

// TestWaveOrder: canaries first and watched, mates apart, the others spread, what is the same told once.
func TestWaveOrder(t *testing.T) {
	var guests []map[string]any
	updates := map[string]any{}
	for i := range 12 {
		guests = append(guests, vm(101+i, []string{"web-a", "web-b", "mail", "db1", "db2", "db3", "ldap", "ci", "git", "wiki", "ns", "log"}[i], fmt.Sprintf("pve%d", i%3+1), "pool", "prod"))
		updates[fmt.Sprint(101+i)] = ssl
	}
	guests[6]["tags"], guests[7]["tags"] = "cluster-x", "cluster-x"
	updates["112"] = ssl[:1]
	v := herd(t, guests, `GET /cluster/tasks []
GET /cluster/backup []
GET /cluster/ha/rules [{"rule":"apart","type":"resource-affinity","affinity":"negative","resources":"vm:101,vm:102"},{"rule":"off","type":"resource-affinity","affinity":"negative","resources":"vm:103,vm:111","disable":1}]
GET /cluster/ha/resources [{"sid":"vm:109","group":"g"},{"sid":"vm:110","group":"g"}]
`, updates)
	d, err := plannedWave(t, v, `{"pool":"prod","canary":["103"],"soak_minutes":30,"rollback_if_worse":true,"batch":4,"stop_after":2}`)
	if err != nil {
		t.Fatal(err)
	}
	at, batches := map[string]int{}, map[int][]string{}
	for _, c := range d.Children {
		id := c.Steps[0].API.Text("vmid")
		at[id] = c.Batch
		batches[c.Batch] = append(batches[c.Batch], id)
		if c.Canary != (id == "103") || len(c.Diff) > 0 {
			t.Errorf("guest %s: canary %v, diff %v", id, c.Canary, c.Diff)
		}
	}
	if len(at) != 12 || len(batches[1]) != 1 || at["103"] != 1 {
		t.Errorf("batches %v", batches)
	}
	for _, b := range batches {
		if len(b) > 4 {
			t.Errorf("a batch of %d", len(b))
		}
	}
	for _, pair := range [][2]string{{"101", "102"}, {"104", "105"}, {"105", "106"}, {"104", "106"}, {"107", "108"}, {"109", "110"}} {
		if at[pair[0]] == at[pair[1]] {
			t.Errorf("%s and %s are in one batch: %v", pair[0], pair[1], batches)
		}
	}
	if !slices.IsSortedFunc(d.Children, func(a, b *gate.Draft) int { return a.Batch - b.Batch }) {
		t.Error("batches are not in their order")
	}
	for _, want := range []string{"HA rule apart (101, 102)", "HA group g (109, 110)", "tag cluster-x (107, 108)", "names that begin with db (104, 105, 106)", "watched for 30 minutes", "ALL that was written", "2 different transactions"} {
		if !strings.Contains(d.Note, want) {
			t.Errorf("%q is not in the note: %s", want, d.Note)
		}
	}
	if len(d.Diff) != 3 || !strings.HasPrefix(d.Diff[0].Object, "11 guests: ") || d.Diff[0].Key != "openssl:amd64" || d.Diff[0].Old != "3.0.1" || d.Diff[1].Note != "comes anew Debian:bookworm" || d.Diff[2].Object != "guest 112 log" {
		t.Errorf("%+v", d.Diff)
	}
	var canary []string
	for i, s := range d.Children[0].Steps {
		text := s.API.Operation[strings.LastIndex(s.API.Operation, "/")+1:]
		if s.Wait.Kind == gate.WaitSoak {
			text += " " + s.Wait.Limit.String()
		}
		if n := s.When.StepFailed; n > 0 {
			text += fmt.Sprintf(" if %d", n)
			if n > i {
				t.Errorf("step %d waits for the failure of step %d", i+1, n)
			}
		}
		canary = append(canary, text)
	}
	want := "upgrade, updates 10m0s, rollback if 2, updates 10m0s, rollback if 4, updates 10m0s, rollback if 6, updates, rollback if 8"
	if got := strings.Join(canary, ", "); got != want {
		t.Errorf("canary: %s\nwant    %s", got, want)
	}
	d, err = plannedWave(t, v, `{"pool":"prod","max_guests":5,"stop_after":0}`)
	if err != nil || len(d.Children) != 5 || len(d.Skip) != 7 || d.StopAfter != 0 || !strings.Contains(d.Skip[0], "another one afterwards") {
		t.Errorf("a small wave: %d children, %v, %v", len(d.Children), d.Skip, err)
	}
}

type keptPlans struct {
	gate.View
	gate.Past
	r *gate.PlanRecord
}

func (k keptPlans) Recorded(context.Context, string) (*gate.PlanRecord, error) { return k.r, nil }

// TestWaveResult: a line for each guest, by numbers, with no text of the guest.
func TestWaveResult(t *testing.T) {
	step := func(part, batch int, vmid, op string) gate.Step {
		r, err := gate.NewRequest("pve", op, map[string]any{"vmid": vmid})
		if err != nil {
			t.Fatal(err)
		}
		return gate.Step{Part: part, Batch: batch, API: &r, Judgement: gate.Judgement{References: []gate.Reference{{Object: gate.Object{Kind: gate.ObjectGuest, ID: vmid}, Use: gate.UseActs}}}}
	}
	const up, verify, back = "RUN /nodes/{node}/qemu/{vmid}/upgrade", "RUN /nodes/{node}/qemu/{vmid}/updates", "POST /nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback"
	report := func(text string) json.RawMessage {
		b, err := json.Marshal(gate.RunResult{OK: true, Report: json.RawMessage(text), Said: "HOSTILE"})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	r := &gate.PlanRecord{State: gate.PlanFailed, Plan: gate.Plan{ID: "p-x", Course: &gate.Course{Parallel: 2, StopAfter: 1}, Skip: []string{"VM 9: stopped"}}}
	rolled := step(2, 1, "102", back)
	rolled.When.StepFailed = 4
	r.Plan.Steps = []gate.Step{step(1, 1, "101", up), step(1, 1, "101", verify), step(2, 1, "102", up), step(2, 1, "102", verify), rolled, step(3, 2, "103", up)}
	for i := range r.Plan.Steps {
		r.Plan.Steps[i].Number = i + 1
	}
	good := report(`{"id":"p-x.1","state":"ended","done":[{"action":"upgrade","name":"openssl","arch":"amd64"}],"services":{},"reboot":{"needed":true,"known":true,"why":["HOSTILE"]}}`)
	bad := report(`{"id":"p-x.3","state":"ended","done":[],"missing":[{"action":"upgrade","name":"openssl","arch":"amd64"}],"services":{"worse":["HOSTILE is gone"]},"conffiles":["/etc/HOSTILE"],"reboot":{}}`)
	r.Steps = []gate.StepRecord{{State: gate.StepDone, Answer: good}, {State: gate.StepDone}, {State: gate.StepDone, Answer: bad}, {State: gate.StepFailed, Result: "HOSTILE"}, {State: gate.StepDone}, {State: gate.StepSkipped, Result: "not begun: 1 parts have failed"}}
	out, err := runWaveResult(t.Context(), keptPlans{r: r}, waveResultIn{Plan: "p-x"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, want := range []string{`"sums":{"done":1,"failed":1,"not begun":1}`, `"reboot":"needed"`, `"services_worse":1`, `"way_back":"gone back to its snapshot: done"`, `"missing":1`, `"why":"step 4, failed"`, `"why":"step 6, not begun"`, `"reboot":"not known"`, "VM 9"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	if strings.Contains(text, "HOSTILE") {
		t.Error("the text of a guest is in it: " + text)
	}
	if _, err := runWaveResult(t.Context(), keptPlans{r: &gate.PlanRecord{}}, waveResultIn{Plan: "p-y"}); gate.AsError(err).Kind != gate.ErrInvalid {
		t.Errorf("no wave: %v", err)
	}
}

// TestPackedTakesAll: whoever is given is in exactly one batch, whatever keeps guests apart.
func TestPackedTakesAll(t *testing.T) {
	for n := range 40 {
		var taken []*waver
		apart := mates{}
		var ids []string
		for i := range n {
			taken = append(taken, &waver{Guest: estate.Guest{ID: fmt.Sprint(i), Node: fmt.Sprint(i % 3)}, canary: i == 3})
			if i%2 == 0 {
				ids = append(ids, fmt.Sprint(i))
			}
		}
		apart.join(ids)
		seen := map[string]int{}
		for _, b := range packed(taken, apart, 1+n%5) {
			if len(b) == 0 || len(b) > 1+n%5 {
				t.Fatalf("a batch of %d", len(b))
			}
			even := 0
			for _, w := range b {
				seen[w.ID]++
				if slices.Contains(ids, w.ID) {
					even++
				}
			}
			if even > 1 {
				t.Fatalf("mates in one batch of %d guests", n)
			}
		}
		if len(seen) != n {
			t.Fatalf("%d of %d guests", len(seen), n)
		}
	}
}

// lastSeen is a roll of guests by when they answered last.
type lastSeen map[int64]time.Time

func (lastSeen) Site(context.Context, string) (string, error) { return "house", nil }

func (a lastSeen) Enrolled(context.Context) (out []Enrolled, err error) {
	for id, at := range a {
		out = append(out, Enrolled{Site: "house", VMID: id, Answered: at})
	}
	return out, nil
}

// Silent guests, however many, take no other guest's turn: those that answered last come first, nobody is waited for long, and one
// that was only slow is found in a second round.
func TestWaveAsksTheSilentLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guests, args, roll, updates := []map[string]any{}, []string{}, lastSeen{}, map[string]any{}
		for n := range 48 {
			id := 101 + n
			guests = append(guests, vm(id, fmt.Sprintf("g%c%c", 'a'+n/26, 'a'+n%26), "pve1"))
			args = append(args, fmt.Sprintf("%q", fmt.Sprint(id)))
			updates[fmt.Sprint(id)] = ssl
			if n >= 38 {
				roll[int64(id)] = time.Now().Add(-time.Duration(n) * time.Minute)
			}
		}
		v := herd(t, guests, "", updates)
		plan := v.Compose["apply_updates"]
		var mu sync.Mutex
		asked := map[string]int{}
		first := map[string]time.Duration{} // when each was asked for the first time
		began := time.Now()
		v.Compose["apply_updates"] = func(ctx context.Context, view gate.View, raw json.RawMessage) (any, *gate.Draft, error) {
			var in struct{ Guest string }
			if err := json.Unmarshal(raw, &in); err != nil {
				return nil, nil, err
			}
			mu.Lock()
			if asked[in.Guest]++; asked[in.Guest] == 1 {
				first[in.Guest] = time.Since(began)
			}
			times := asked[in.Guest]
			mu.Unlock()
			switch {
			case in.Guest == "102" && times == 2: // it was slow
			case in.Guest < "139": // nothing comes from these
				seconds := within(ctx, 40)
				select {
				case <-time.After(time.Duration(seconds) * time.Second):
					return nil, nil, gate.Fail(gate.ErrUnavailable, "", "still reading after %d s", seconds)
				case <-ctx.Done():
					return nil, nil, ctx.Err()
				}
			}
			return plan(ctx, view, raw)
		}
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Second)
		defer stop()
		var in patchWaveIn
		if err := json.Unmarshal([]byte(`{"guests":[`+strings.Join(args, ",")+`],"canary":["148"]}`), &in); err != nil {
			t.Fatal(err)
		}
		d, err := planPatchWave(ctx, v, in, roll)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 50*time.Second {
			t.Errorf("it took %s", took)
		}
		if len(d.Children) != 11 {
			t.Errorf("%d guests are taken\n%s", len(d.Children), strings.Join(d.Skip, "\n"))
		}
		for id := 139; id <= 148; id++ {
			if at, was := first[fmt.Sprint(id)]; !was || at > 0 { // no time passes before a silent one is given up
				t.Errorf("%d answered last time, and is asked after %v, behind silent ones: %v", id, at, first)
			}
		}
	})
}

// sharing is a roll of two guests at one address, and one by itself.
type sharing struct{ lastSeen }

func (sharing) Enrolled(context.Context) ([]Enrolled, error) {
	return []Enrolled{{Site: "house", VMID: 101, Address: "10.0.0.5"}, {Site: "house", VMID: 102, Address: "10.0.0.5"}, {Site: "house", VMID: 103, Address: "10.0.0.6"}, {Site: "other", VMID: 104, Address: "10.0.0.6"}}, nil
}

// Guests that are enrolled at one address are named: one of them is a copy of the other, or one has moved.
func TestEnrolledAtOneAddress(t *testing.T) {
	v := herd(t, []map[string]any{vm(101, "web", "pve1"), vm(102, "copy", "pve1"), vm(103, "db", "pve2")}, "", nil)
	out, err := runListEnrolled(t.Context(), v, listEnrolledIn{}, sharing{})
	if err != nil || len(out.Guests) != 3 {
		t.Fatalf("%v %+v", err, out)
	}
	for i, want := range []string{"address of guest 102 too", "address of guest 101 too", ""} {
		said := fmt.Sprint(out.Guests[i]["problem"])
		if want == "" && out.Guests[i]["problem"] != nil && said != "" || !strings.Contains(said, want) {
			t.Errorf("%v: %q", out.Guests[i]["vmid"], said)
		}
	}
	// Of a pool or tag only those are enrolled that are not; who is named is enrolled anew.
	v.Compose["enrol_guest"] = func(_ context.Context, _ gate.View, raw json.RawMessage) (any, *gate.Draft, error) {
		if strings.Contains(string(raw), `"102"`) {
			return nil, nil, gate.Fail(gate.ErrDenied, "grant it", "VM 102 (copy) cannot be enrolled: the token lacks something")
		}
		return nil, &gate.Draft{Steps: []gate.Step{{}}}, nil
	}
	d, err := planEnrolGuests(t.Context(), v, estate.New(), enrolGuestsIn{Guests: []string{"101", "102", "db"}}, sharing{})
	if err != nil || len(d.Children) != 2 || len(d.Skip) != 1 || !strings.Contains(d.Skip[0], "VM 102 (copy): cannot be enrolled") || d.Parallel == 0 || d.StopAfter != 0 {
		t.Errorf("%v %+v", err, d)
	}
	if _, err := planEnrolGuests(t.Context(), v, estate.New(), enrolGuestsIn{Guests: []string{"102"}}, sharing{}); gate.AsError(err).Hint != "grant it" {
		t.Errorf("none can be: %v", err)
	}
}
