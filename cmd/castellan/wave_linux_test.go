package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/guestlab"
)

// TestWave is a wave over real guests: the real program over MCP, four real Debians that are enrolled through the real bridge. One
// fails and the stop rule holds; the service of a canary dies and nothing after it is touched; and the real daemon makes the call
// of a schedule once.
func TestWave(t *testing.T) {
	if !aloneOnNode(t) {
		return
	}
	c := newWaveStory(t)
	if !t.Run("enrol", c.enrolled) {
		return
	}
	t.Run("stop rule", c.stopRule)
	t.Run("canary", c.canaryDies)
	t.Run("repair", c.repaired)
	c.raw.t = t
	c.raw.end()
	t.Run("schedule", c.scheduled)
	if out, errs, code := castellan(t, c.site.env(), "", "audit", "verify", "--json"); code != 0 || !strings.Contains(out, `"ok": true`) {
		t.Errorf("the ledger does not verify: %d %s %s", code, out, errs)
	}
}

// The guests of the wave: two of which the same is pending, one whose update fails, one whose service dies of it.
const (
	waveAlpha, waveBravo, waveFails, waveDies = "211", "212", "213", "214"
)

type waveStory struct {
	*patchStory
	guests map[string]*guestlab.Container
}

func newWaveStory(t *testing.T) *waveStory {
	t.Helper()
	l := guestlab.Open(t)
	start := func(id int, packages ...string) *guestlab.Container {
		return l.Start(t, guestlab.Guest{ID: id, Unprivileged: true, Packages: packages})
	}
	alpha, bravo, fails, dies := start(211, "demo-lib", "demo-app"), start(212, "demo-lib", "demo-app"), start(213, "demo-lib", "demo-fail"), start(214, "demo-lib", "demo-svc")
	c := &waveStory{newPatchHouse(t, l, alpha, bravo, fails, dies), map[string]*guestlab.Container{waveAlpha: alpha, waveBravo: bravo, waveFails: fails, waveDies: dies}}
	c.atAPI(t, "PUT", "/cluster/backup/nightly", url.Values{"enabled": {"0"}, "schedule": {"02:30"}}) // near its time nobody is patched
	for id, name := range map[string]string{waveAlpha: "alpha", waveBravo: "bravo", waveFails: "romeo", waveDies: "sierra"} {
		ct := c.guests[id]
		c.atAPI(t, "POST", "/nodes/pve1/lxc", url.Values{"vmid": {id}, "hostname": {name}, "ostemplate": {"local:vztmpl/debian-13-standard_13.1-2_amd64.tar.zst"}, "rootfs": {"local-lvm:8"},
			"unprivileged": {"1"}, "net0": {"name=eth0,bridge=vmbr0,hwaddr=" + ct.MAC + ",ip=" + ct.Address + "/24,type=veth"}})
		c.atAPI(t, "POST", "/nodes/pve1/lxc/"+id+"/status/start", nil)
		onNodeOf(t, ct, ct.Volume, "local-lvm:vm-"+id+"-disk-0")
	}
	c.start(t)
	return c
}

// about has the frame of the story look at one guest.
func (c *waveStory) about(id string) *patchStory {
	c.ct = c.guests[id]
	return c.patchStory
}

// enrolled: a person at a terminal enrols a pool by one plan and with one yes. Two of its guests fail, one that the node's bridge
// knows nothing of and one whose network is down: each is told with its reason and is as it was, and the others are done. Who comes
// into the pool between plan and yes is not enrolled. What has failed is enrolled by the same words afterwards.
func (c *waveStory) enrolled(t *testing.T) {
	const stranger, late = "201", "202"
	const pool = "fleet"
	member := func(id string, out bool) {
		form := url.Values{"poolid": {pool}, "vms": {id}}
		if out {
			form.Set("delete", "1")
		}
		c.atAPI(t, "PUT", "/pools", form)
	}
	c.atAPI(t, "POST", "/pools", url.Values{"poolid": {pool}})
	for _, id := range []string{waveAlpha, waveBravo, waveFails, waveDies, stranger} {
		member(id, false)
	}
	traces := func() string {
		return c.guests[waveDies].Run(t, "sh", "-c", "getent passwd castellan; ls -d /usr/local/lib/castellan* /etc/castellan* /var/lib/castellan* /etc/sudoers.d/castellan* 2>/dev/null; true")
	}
	if had := traces(); had != "" {
		t.Fatalf("it is there already: %s", had)
	}
	c.guests[waveDies].Cut(t)
	enrol := func() *terminal {
		r := onTerminal(t, append(c.site.env(), beatEvery+"=200ms"), "enrol", "--pool", pool, "--from", "10.99.0.1")
		r.shows("[keep]: ")
		r.types("off")
		return r
	}
	r := enrol()
	r.shows("Carry this out? ")
	member(late, false)
	r.types("CONFIRM ENROL GUESTS 5 guests")
	code, all := r.ends(), r.all.String()
	if code == 0 || strings.Count(all, "Carry this out?") != 1 || strings.Contains(all, "CT "+late) {
		t.Errorf("%d: %s", code, all)
	}
	_, told, _ := strings.Cut(all, ": failed\r\n")
	for id, want := range map[string]string{waveAlpha: "done", waveBravo: "done", waveFails: "done",
		stranger: `failed \(the bridge of node pve1 refuses it: the bridge does not serve guest 201\. guests: add "201" in `,
		waveDies: `failed \(not enrolled: the channel was tried: the guest does not answer: .*What was begun in the guest was taken away again\.\)`} {
		if !regexp.MustCompile(`(?m)^  \d\. .* of CT ` + id + ` .*: ` + want).MatchString(told) {
			t.Errorf("guest %s: %s", id, all)
		}
	}
	if !strings.Contains(told, "3 parts done, 2 failed (guest 201 (dns), guest 214 (sierra))") || strings.Contains(told, "..") || !strings.Contains(told, "4 of its 5 steps had been sent.") {
		t.Errorf("%s", told)
	}
	c.guests[waveDies].Join(t)
	if left := traces(); left != "" {
		t.Errorf("of an enrolment that failed this is left: %s", left)
	}
	member(stranger, true)
	member(late, true)
	r = enrol()
	r.shows("left out: CT 211 (alpha): enrolled already")
	r.shows("Carry this out? ")
	r.types("CONFIRM ENROL GUESTS 1 guest")
	if code := r.ends(); code != 0 {
		t.Fatalf("%d: %s", code, r.all)
	}
	out, errs, code := castellan(t, c.site.env(), "", "enrol", "--pool", pool, "--from", "10.99.0.1")
	if code != 0 || strings.Count(out, "enrolled already") != 4 || !strings.Contains(out, "Of 4 guests all are enrolled") {
		t.Errorf("again: %d %s %s", code, out, errs)
	}
	out, errs, code = castellan(t, c.site.env(), "", "enrolled")
	for _, id := range []string{waveAlpha, waveBravo, waveFails, waveDies} {
		if !regexp.MustCompile(`(?m)^\s+` + id + `\b.*10\.99\.0\.\d+`).MatchString(out) {
			t.Errorf("%s is not there: %d %s%s", id, code, out, errs)
		}
	}
	if strings.Contains(out, stranger) {
		t.Errorf("%s", out)
	}
}

type waveSeen struct {
	State  string           `json:"state"`
	Sums   map[string]int   `json:"sums"`
	Guests []map[string]any `json:"guests"`
	Next   string           `json:"next"`
}

// states are the guests of a wave by their ids.
func (w waveSeen) states() map[string]string {
	out := map[string]string{}
	for _, g := range w.Guests {
		f := strings.Fields(fmt.Sprint(g["guest"]))
		out[f[1]] = fmt.Sprint(g["state"])
	}
	return out
}

func (w waveSeen) of(id string) map[string]any {
	for _, g := range w.Guests {
		if strings.Contains(fmt.Sprint(g["guest"]), id) {
			return g
		}
	}
	return nil
}

func (c *waveStory) wave(t *testing.T, plan string) waveSeen {
	t.Helper()
	return answered[waveSeen](t, c.raw.call("wave_result", map[string]any{"plan": plan}))
}

// waves plans a wave. On a machine that is busy otherwise a guest takes longer to read its lists than one call has.
func (c *waveStory) waves(t *testing.T, args map[string]any) *planSeen {
	t.Helper()
	c.raw.t = t
	for range 5 {
		a := c.raw.call("patch_wave", args)
		if a.Structured.Error == nil || a.Structured.Error.Kind != string(gate.ErrUnavailable) {
			break
		}
		t.Logf("once more: %s", a.Structured.Error.Message)
	}
	return c.planned(t, "patch_wave", args)
}

var progressBar = regexp.MustCompile(`\[[^\]\n]{24}\] 0 of 3 parts done; now guest 211 \(alpha\)`)

// stopRule: a canary that is watched for a minute goes well, the next guest's update fails, and no other begins.
func (c *waveStory) stopRule(t *testing.T) {
	began := time.Now()
	p := c.waves(t, map[string]any{"guests": []string{waveFails, waveBravo}, "canary": []string{waveAlpha}, "soak_minutes": 1, "batch": 1})
	shown := said(c.raw.call("show_plan", map[string]any{"plan": p.ID}))
	for _, want := range []string{"2 guests: 211 alpha, 212 bravo", "guest 213 romeo", "Batch 1: guest 211 (alpha). A trial", "Batch 2: guest 213", "When 1 parts have failed, or their end is not known, no other begins", "3 guests in mode security, 2 different transactions"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the plan does not say %q: %s", want, shown)
		}
	}
	if a := c.raw.call("apply_plan", apply(p)); a.Structured.Error != nil {
		t.Fatalf("%s", said(a))
	}
	// A person looks on from a terminal: a bar, how many are done, and which one it is now.
	onlooker := onTerminal(t, c.site.env(), "plans", "show", "--wait", p.ID)
	for end := time.Now().Add(patience); !progressBar.MatchString(onlooker.all.String()); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("no bar is shown: %s", onlooker.all)
			break
		}
	}
	state := c.ended(t, p.ID)
	w := c.wave(t, p.ID)
	if got, want := w.states(), map[string]string{waveAlpha: "done", waveFails: "failed", waveBravo: "not begun"}; state != "failed" || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v: %+v", state, got, want, w)
	}
	if took := time.Since(began); took < time.Minute {
		t.Errorf("the canary was watched for less than a minute: all of it took %s", took)
	}
	if row := w.of(waveAlpha); fmt.Sprint(row["packages"], row["missing"], row["services_worse"]) != "1 0 0" {
		t.Errorf("%+v", row)
	}
	if row := w.of(waveFails); row["why"] == nil || row["packages"] == nil {
		t.Errorf("%+v", row)
	}
	view := said(c.raw.call("show_plan", map[string]any{"plan": p.ID}))
	if !strings.Contains(view, "1 parts done, 1 failed (guest 213 (romeo)), 1 not begun (guest 212 (bravo))") {
		t.Errorf("%s", view)
	}
	for id, want := range map[string]string{waveAlpha: "1.1 installed", waveBravo: "1.0 installed", waveFails: "1.1 installed"} {
		if got := c.about(id).version(t, "demo-lib"); got != want {
			t.Errorf("demo-lib of %s is %s", id, got)
		}
	}
	if n := len(c.about(waveBravo).snapshots(t)); n != 0 {
		t.Errorf("a guest that was not begun has %d snapshots", n)
	}
	o := answered[outcomeSeen](t, c.raw.call("update_result", map[string]any{"plan": p.ID, "guest": waveFails, "wait_seconds": 5, "log": true}))
	if o.Verdict != "worse" || !strings.Contains(strings.Join(o.Why, " "), "demo-fail") || !strings.Contains(o.Log, "not to its liking") || !strings.Contains(o.Next, "rollback_guest") {
		t.Errorf("%+v", o)
	}
}

// canaryDies: its service dies, so nothing of the second batch is touched, and the way back is offered. The guest with a package
// left half done is left out, and why is said.
func (c *waveStory) canaryDies(t *testing.T) {
	p := c.waves(t, map[string]any{"guests": []string{waveAlpha, waveBravo, waveFails}, "canary": []string{waveDies}, "mode": "all", "batch": 2, "soak_minutes": 1})
	if shown := said(c.raw.call("show_plan", map[string]any{"plan": p.ID})); !strings.Contains(shown, "CT 213 (romeo): nothing to install in mode all. Whether that is all is not known: the package database is not clean") {
		t.Errorf("who is left out: %s", shown)
	}
	if a := c.raw.call("apply_plan", apply(p)); a.Structured.Error != nil {
		t.Fatalf("%s", said(a))
	}
	state := c.ended(t, p.ID)
	w := c.wave(t, p.ID)
	if got, want := w.states(), map[string]string{waveDies: "failed", waveAlpha: "not begun", waveBravo: "not begun"}; state != "failed" || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v: %+v", state, got, want, w)
	}
	if row := w.of(waveDies); fmt.Sprint(row["services_worse"]) == "0" {
		t.Errorf("%+v", row)
	}
	for id, most := range map[string]int{waveAlpha: 1, waveBravo: 0} { // of the wave before
		if got := c.about(id).version(t, "demo-app"); got != "1.0 installed" {
			t.Errorf("demo-app of %s is %s", id, got)
		}
		if n := len(c.snapshots(t)); n != most {
			t.Errorf("%s has %d snapshots", id, n)
		}
	}
	points := c.about(waveDies).snapshots(t)
	o := answered[outcomeSeen](t, c.raw.call("update_result", map[string]any{"plan": p.ID, "guest": waveDies, "wait_seconds": 5}))
	if len(points) != 1 || o.Verdict != "worse" || !strings.Contains(o.Next, "rollback_guest") || !strings.Contains(o.Next, points[0]) {
		t.Errorf("%v %+v", points, o)
	}
	back := c.planned(t, "rollback_guest", map[string]any{"guest": waveDies})
	if shown := said(c.raw.call("show_plan", map[string]any{"plan": back.ID})); !strings.Contains(shown, "EVERYTHING written") || !strings.Contains(shown, points[0]) {
		t.Errorf("%s", shown)
	}
}

// repaired: what somebody installed without what it depends on is completed by what the plan names.
func (c *waveStory) repaired(t *testing.T) {
	c.about(waveAlpha).ct.Run(t, "sh", "-c", "mkdir -p /srv/byhand/DEBIAN && printf 'Package: demo-byhand\\nVersion: 1.0\\nArchitecture: all\\nMaintainer: nobody <nobody@example.org>\\nDescription: by hand\\nDepends: demo-new-lib\\n' >/srv/byhand/DEBIAN/control && "+
		"dpkg-deb --build /srv/byhand /srv/byhand.deb && { dpkg -i --force-unsafe-io /srv/byhand.deb >/dev/null 2>&1; true; }")
	p := c.planned(t, "repair_packages", map[string]any{"guest": waveAlpha})
	if shown := said(c.raw.call("show_plan", map[string]any{"plan": p.ID})); !strings.Contains(shown, "demo-new-lib:all") || !strings.Contains(shown, "brings exactly what is named (1 package)") {
		t.Errorf("%s", shown)
	}
	if a := c.raw.call("apply_plan", apply(p)); a.Structured.Error != nil {
		t.Fatalf("%s", said(a))
	}
	state := c.ended(t, p.ID)
	if got := c.version(t, "demo-new-lib") + ", " + c.version(t, "demo-byhand"); state != "done" || got != "1.1 installed, 1.0 installed" {
		t.Errorf("%s: %s: %+v", state, got, c.outcome(t, p.ID))
	}
}

// scheduled: a person gives a mandate for a window that is open; the daemon makes its call once. The guest that fails again ends
// none of the others.
func (c *waveStory) scheduled(t *testing.T) {
	c.guests[waveFails].Run(t, "sh", "-c", "touch /etc/demo-fail-ok; dpkg --configure -a && dpkg --install --force-downgrade --force-unsafe-io /srv/guestlab/debian/pool/base/demo-fail_1.0_all.deb && rm /etc/demo-fail-ok")
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte(annsPassword), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := castellan(t, c.site.env(), "", "people", "add", "ann", "--role", "operator,approver", "--password-file", secret); code != 0 {
		t.Fatalf("people add: %d %s %s", code, out, errs)
	}
	address := freeAddress(t)
	c.site.write(t, c.site.text(t)+fmt.Sprintf("\n[daemon]\nlisten = [%q]\nsocket = \"off\"\n", address))
	daemon := command(t, append(c.site.env(), beatEvery+"=200ms"), "daemon")
	log := &lockedBuffer{}
	daemon.Stderr = log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = daemon.Wait() }()
	defer func() {
		_ = daemon.Process.Signal(os.Interrupt) // it may have ended
		<-ended
		if t.Failed() {
			t.Logf("daemon: %s", log)
		}
	}()
	until := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(4 * time.Minute); !done(); time.Sleep(200 * time.Millisecond) {
			select {
			case <-ended:
				t.Fatalf("the daemon ended before %s: %s", what, log)
			default:
			}
			if time.Now().After(end) {
				t.Fatalf("%s: not in time: %s", what, log)
			}
		}
	}
	until("it began", func() bool { return strings.Contains(log.String(), "msg=approvals") })
	ann := signInOver(t, address, "ann", annsPassword)
	now := time.Now().UTC()
	given := ann.post(t, "/mandates", "/mandates", url.Values{"for": {"|ann"}, "operation": {"patch_wave"}, "target": {"lab"}, "objects": {"guest/211 guest/212 guest/213"}, "count": {"3"},
		"from": {now.Add(-time.Minute).Format("2006-01-02T15:04")}, "until": {now.Add(20 * time.Hour).Format("2006-01-02T15:04")},
		"windows":        {fmt.Sprintf("%s-%s", now.Add(-time.Hour).Format("15:04"), now.Add(3*time.Hour).Format("15:04"))},
		"scheduled":      {"patch_wave"},
		"scheduled_args": {`{"guests":["213","211","212"],"mode":"all","stop_after":0}`}})
	if given.status != http.StatusSeeOther {
		t.Fatalf("the mandate: %d %s", given.status, given.body)
	}
	var plan string
	until("the schedule", func() bool {
		out, _, _ := castellan(t, c.site.env(), "", "call", "list_plans", "--json")
		var list struct {
			Answer struct {
				Plans []struct{ Plan, ID, Operation, State, Requester string }
			}
		}
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, p := range list.Answer.Plans {
			if p.Operation == "patch_wave" && strings.Contains(p.Requester, "ann") {
				plan = p.ID + p.Plan
				return gate.PlanState(p.State).Ended()
			}
		}
		return false
	})
	out, errs, code := castellan(t, c.site.env(), "", "call", "wave_result", "--plan", plan, "--json")
	var seen struct{ Answer waveSeen }
	if err := json.Unmarshal([]byte(out), &seen); err != nil || code != 0 {
		t.Fatalf("%d %v: %s%s", code, err, out, errs)
	}
	if got, want := seen.Answer.states(), map[string]string{waveFails: "failed", waveAlpha: "done", waveBravo: "done"}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v: %s", got, want, out)
	}
	for _, id := range []string{waveAlpha, waveBravo} {
		if got := c.about(id).version(t, "demo-app"); got != "1.1 installed" {
			t.Errorf("demo-app of %s is %s", id, got)
		}
	}
	page := ann.get(t, "/mandates")
	m := regexp.MustCompile(`href="(/mandates/m-[^"]+)"`).FindStringSubmatch(page.body)
	if m == nil {
		t.Fatalf("%s", page.body)
	}
	if page = ann.get(t, m[1]); !strings.Contains(page.body, "carried out") || !strings.Contains(page.body, plan) || strings.Count(page.body, `href="/plans/p-`) == 0 {
		t.Errorf("%s", page.body)
	}
	if n := strings.Count(log.String(), "msg=schedule"); n != 1 {
		t.Errorf("%d calls were made: %s", n, log)
	}
}

// consoleVisit is a person at the console, without a browser.
type consoleVisit struct {
	base   string
	client *http.Client
}

type pageSeen struct {
	status int
	body   string
}

func signInOver(t *testing.T, address, name, password string) *consoleVisit {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(address, ":")
	v := &consoleVisit{"http://localhost:" + port, &http.Client{Jar: jar, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	if p := v.post(t, "/signin", "/signin", url.Values{"name": {name}, "password": {password}}); p.status != http.StatusSeeOther {
		t.Fatalf("sign-in of %s: %d %s", name, p.status, p.body)
	}
	return v
}

func (v *consoleVisit) do(t *testing.T, method, path string, form url.Values) pageSeen {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, v.base+path, bytes.NewReader([]byte(form.Encode())))
	if err != nil {
		t.Fatal(err)
	}
	if method == "POST" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", v.base)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	res, err := v.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return pageSeen{res.StatusCode, string(b)}
}

func (v *consoleVisit) get(t *testing.T, path string) pageSeen {
	t.Helper()
	return v.do(t, "GET", path, nil)
}

var hiddenForm = regexp.MustCompile(`name="form" value="([^"]+)"`)

// post sends a form with the token of the page that it is on.
func (v *consoleVisit) post(t *testing.T, from, path string, form url.Values) pageSeen {
	t.Helper()
	page := v.get(t, from)
	m := hiddenForm.FindStringSubmatch(page.body)
	if m == nil {
		t.Fatalf("%s has no form: %d %s", from, page.status, page.body)
	}
	form.Set("form", m[1])
	return v.do(t, "POST", path, form)
}
