package console

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	"castellan/internal/gate"
	"castellan/internal/identity"
	"castellan/internal/policy"
)

// installer runs what installs packages, and remembers what it was told.
type installer struct {
	mu   sync.Mutex
	sent []gate.Request
}

func (i *installer) Run(_ context.Context, p *gate.Permit, _ string, _ gate.RunHooks) (gate.RunResult, error) {
	w, err := p.Take()
	if err != nil {
		return gate.RunResult{}, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.sent = append(i.sent, w.Request)
	zero := 0
	return gate.RunResult{ExitCode: &zero, OK: true, Gone: true, Way: "channel"}, nil
}

func (*installer) Look(context.Context, string, gate.Request, string, string) (gate.RunResult, bool, error) {
	return gate.RunResult{}, false, nil
}

// Judge lets everything run.
func (*installer) Judge(context.Context, gate.View, string, gate.Request, []gate.ObjectFacts) gate.LaneVerdict {
	return gate.LaneVerdict{}
}

func (i *installer) newer() []bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out []bool
	for _, r := range i.sent {
		out = append(out, r.Text("newer") != "")
	}
	return out
}

// house adds an operation that installs a package in a container.
func (i *installer) house(c *gate.Config) {
	c.Runner, c.Lanes = i, i
	c.Operations = append(c.Operations, gate.Change(gate.Declaration{Name: "install", Summary: "install", Product: "pve", Effect: gate.EffectChange, Kinds: []gate.Kind{gate.KindUpgrade, gate.KindUpgradeBare}},
		func(_ context.Context, _ gate.View, in struct {
			Package string `json:"package"`
		}) (*gate.Draft, error) {
			r, err := gate.NewRequest("pve", "RUN /nodes/{node}/lxc/{vmid}/upgrade", map[string]any{"node": "pve1", "vmid": "201", "mode": "security", "protect": "none", "package": "upgrade " + in.Package + ":all 1 2 a:b"})
			return &gate.Draft{Target: "lab", Steps: []gate.Step{{API: &r, Undo: gate.Undo{None: "a test"}}}}, err
		}))
}

// TestBrowserAllowsNewer: the tick on the page is what the passkey signs, and what is sent follows it.
func TestBrowserAllowsNewer(t *testing.T) {
	ctx := chromium(t)
	hands := &installer{}
	r := newReal(t, policy.Settings{Rungs: map[string]string{"upgrade_bare": "passkey"}}, hands.house)
	if _, err := r.people.AddAccount(t.Context(), r.root, identity.NewAccount{Name: "anna", Roles: []string{gate.RoleApprover}, Password: password}); err != nil {
		t.Fatal(err)
	}
	code, err := r.people.EnrolmentCode(t.Context(), r.root, "anna")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, webauthn.Enable, webauthn.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{Protocol: "ctap2", Transport: "internal", HasResidentKey: true,
		HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true}}); err != nil {
		t.Fatal(err)
	}
	must(t, ctx, "sign in", append([]chromedp.Action[chromedp.Void]{chromedp.Navigate(r.url + "/")}, append(signIn("anna", password), chromedp.WaitVisible(css(`form[action="/signout"] button`)))...)...)
	must(t, ctx, "enrol", chromedp.Navigate(r.url+"/enrol"), chromedp.SendKeys(css(`input[name=name]`), "test key"), chromedp.SendKeys(css(`input[name=code]`), code), chromedp.Click(css(`button[data-passkey=create]`)),
		chromedp.WaitVisible(css(`.cards .hash`)))
	for i, ticked := range []bool{false, true} {
		plan := r.ask("install", `{"package":"`+[]string{"demo", "other"}[i]+`"}`)
		if plan.Rung != gate.RungPasskey || plan.Newer == "" {
			t.Fatalf("needs %s, says %q", plan.Rung, plan.Newer)
		}
		steps := []chromedp.Action[chromedp.Void]{chromedp.Navigate(plan.URL), chromedp.WaitVisible(css(`button[data-passkey=get]:enabled`))}
		if ticked {
			steps = append(steps, chromedp.Click(css(`#decide input[name=newer]`)))
		}
		must(t, ctx, "approve", append(steps, chromedp.Click(css(`button[data-passkey=get]`)), chromedp.WaitVisible(css(`.approvals`)))...)
		_, rec, err := r.gate.Show(t.Context(), r.root, plan.ID)
		if err != nil || len(rec.Approvals) != 1 || rec.Approvals[0].Evidence.AllowNewer != ticked || rec.Approvals[0].Evidence.Passkey == nil {
			t.Fatalf("approvals %+v, %v", rec.Approvals, err)
		}
		signed := *rec.Approvals[0].Evidence.Passkey
		if err := identity.VerifyProof(signed); err != nil {
			t.Errorf("the signature does not verify: %v", err)
		}
		signed.Verdict = map[bool]string{true: gate.SaysApprove, false: gate.SaysApproveNewer}[ticked]
		if identity.VerifyProof(signed) == nil {
			t.Error("the signature fits the other answer too")
		}
		page, err := chromedp.Run(ctx, chromedp.Text(css(".approvals")))
		if err != nil || strings.Contains(page, "newer versions allowed") != ticked {
			t.Errorf("ticked %v: %v %s", ticked, err, page)
		}
		must(t, ctx, "run", chromedp.Click(css(`form[action$="/run"] button`)), chromedp.WaitVisible(css(`.badge.state-done`)))
		if sent := hands.newer(); len(sent) != i+1 || sent[i] != ticked {
			t.Errorf("sent with newer %v", sent)
		}
	}
}

// TestTickOnThePage: it is there where a plan installs packages, and what the form says goes to the gate.
func TestTickOnThePage(t *testing.T) {
	hands := &installer{}
	r := newReal(t, policy.Settings{}, hands.house)
	if _, err := r.people.AddAccount(t.Context(), r.root, identity.NewAccount{Name: "anna", Roles: []string{gate.RoleApprover}, Password: password}); err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	send := func(path string, form url.Values) (int, string) {
		t.Helper()
		page := ""
		if form != nil {
			_, page = r.fetch(client, "GET", form.Get("from"), nil)
			form.Del("from")
			form.Set("form", formField.FindStringSubmatch(page)[1])
			if m := digestField.FindStringSubmatch(page); m != nil {
				form.Set("digest", m[1])
			}
			return r.fetch(client, "POST", path, form)
		}
		return r.fetch(client, "GET", path, nil)
	}
	if code, body := send("/signin", url.Values{"from": {"/signin"}, "name": {"anna"}, "password": {password}}); code != http.StatusSeeOther {
		t.Fatalf("%d %s", code, body)
	}
	other := r.ask("guest_power", `{"guest":101,"action":"stop"}`)
	if _, page := send("/plans/"+other.ID, nil); strings.Contains(page, `name="newer"`) {
		t.Error("a plan without packages has the tick")
	}
	if code, _ := send("/plans/"+other.ID+"/approve", url.Values{"from": {"/plans/" + other.ID}, "newer": {"1"}, "password": {password}}); code != http.StatusBadRequest || r.state(other.ID) != gate.PlanProposed {
		t.Errorf("newer versions of nothing: %d, %s", code, r.state(other.ID))
	}
	plan := r.ask("install", `{"package":"demo"}`)
	if _, page := send("/plans/"+plan.ID, nil); !strings.Contains(page, `<input type="checkbox" name="newer" value="1">`) || !strings.Contains(page, "Exactly these versions") {
		t.Errorf("the tick is missing:\n%s", page)
	}
	if code, body := send("/plans/"+plan.ID+"/approve", url.Values{"from": {"/plans/" + plan.ID}, "newer": {"1"}, "password": {password}}); code != http.StatusSeeOther {
		t.Fatalf("%d %s", code, body)
	}
	_, rec, err := r.gate.Show(t.Context(), r.root, plan.ID)
	if err != nil || len(rec.Approvals) != 1 || !rec.Approvals[0].Evidence.AllowNewer {
		t.Errorf("%+v %v", rec.Approvals, err)
	}
	if b, err := json.Marshal(rec.Plan); err != nil || strings.Contains(string(b), `"newer"`) {
		t.Errorf("the tick is in the plan: %s %v", b, err)
	}
}

// fetch is what a browser without scripts does.
func (r *real) fetch(client *http.Client, method, path string, form url.Values) (int, string) {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		r.t.Fatal(err)
	}
	if form != nil {
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		q.Header.Set("Origin", r.url)
		q.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	res, err := client.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}
