package console

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	"castellan/internal/catalog"
	"castellan/internal/catalog/facts"
	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/identity"
	"castellan/internal/lab"
	"castellan/internal/ledger"
	"castellan/internal/ops/pve"
	"castellan/internal/ops/self"
	"castellan/internal/policy"
	"castellan/internal/proxmox"
	"castellan/internal/seal"
	"castellan/internal/store"
)

// real is a console over the real gate, identity and store, in front of a simulated site.
type real struct {
	t      *testing.T
	gate   *gate.Gate
	people *identity.Identity
	url    string
	root   gate.Principal
	agent  gate.Principal
}

// box seals with the installation's keys, as the program does.
type box struct{ keys *seal.Keys }

func (b box) Seal(plain []byte, context string) ([]byte, error) {
	return b.keys.Seal(seal.NewSecret(plain), "plan secret", context)
}

func (b box) Open(sealed []byte, context string) ([]byte, error) {
	v, err := b.keys.Unseal(sealed, "plan secret", context)
	if err != nil {
		return nil, err
	}
	return v.Bytes(), nil
}

func (b box) Commit([]byte) (string, []byte) { return "", nil }

func (b box) Token() (string, string) {
	t, hash, err := seal.NewToken("plan approval")
	if err != nil {
		return "", ""
	}
	return t.Reveal(), hash
}

func (b box) HashToken(t string) string { return seal.HashToken(t, "plan approval") }
func (b box) Redact(text string) string { return text }

func newReal(t *testing.T, set policy.Settings, change ...func(*gate.Config)) *real {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l, err := lab.New(lab.Config{Site: "small", Facts: facts.Open()})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served, ran := make(chan struct{}), make(chan struct{})
	go func() { defer close(served); _ = l.Serve(ctx, listener) }() // ends with the test
	c, err := catalog.New(catalog.Config{Facts: facts.Open()})
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.TrimPrefix(l.Tokens()["admin"], "PVEAPIToken=")
	client, err := proxmox.New(proxmox.Config{Settings: proxmox.Settings{Targets: []proxmox.Target{{Name: "lab", Kind: "pve", Addresses: []string{listener.Addr().String()}, TokenFile: "token", Pins: []string{l.Fingerprint()}}}},
		Catalog: c.Guide(), Secrets: func(string) (seal.Secret, error) { return seal.NewSecret([]byte(secret)), nil }})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	keys, err := seal.CreateKeys(filepath.Join(dir, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(ctx, store.Config{URL: filepath.Join(dir, "state", "castellan.db"), Signer: keys.Ledger()})
	if err != nil {
		t.Fatal(err)
	}
	set.Capabilities = gate.Capabilities()
	rules, err := policy.New(policy.Config{Settings: set, Dir: dir, Highest: gate.RungTwoPasskeys})
	if err != nil {
		t.Fatal(err)
	}
	r := &real{t: t, root: gate.Principal{Person: "root", WayIn: "cli", Strength: gate.StrengthAccount},
		agent: gate.Principal{Agent: "claude", Person: "anna", WayIn: "mcp-stdio", Strength: gate.StrengthPeer, Client: "Claude Code"}}
	var h http.Handler
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { h.ServeHTTP(w, q) }))
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	r.url = "http://localhost:" + port
	log := slog.New(slog.DiscardHandler)
	if r.people, err = identity.New(identity.Config{Store: st, Keys: keys, PublicURL: r.url, Log: log}); err != nil {
		t.Fatal(err)
	}
	house := gate.Config{Operations: slices.Concat(pve.Operations(), self.Operations(self.Config{Catalog: c, Audit: ledgerOf{st}})), Catalog: c.Guide(), Driver: client, Policy: rules, Store: st,
		Estate: estate.New(), Sealer: box{keys}, Witness: r.people, Link: func(plan string) string { return r.url + "/plans/" + plan }, Log: log, PollFirst: 20 * time.Millisecond}
	for _, f := range change {
		f(&house)
	}
	if r.gate, err = gate.New(house); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(ran); _ = r.gate.Run(ctx) }() // ends with the test
	r.gate.AwaitRunning()
	k, err := New(Config{Gate: r.gate, People: r.people, Switches: r.gate, PublicURL: r.url, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	h = k.Handler()
	t.Cleanup(func() {
		srv.Close()
		cancel()
		<-ran
		_ = listener.Close() // Serve may have closed it
		<-served
		client.Close()
		_ = st.Close() // the folder goes with the test
	})
	return r
}

// ask has the agent ask for something that waits.
func (r *real) ask(operation, args string) *gate.PlanView {
	r.t.Helper()
	out, err := r.gate.Do(r.t.Context(), gate.Call{Operation: operation, Args: json.RawMessage(args), Principal: r.agent, Reason: "the person asked me to"}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if out.Status != gate.StatusWaiting || out.Plan == nil {
		r.t.Fatalf("%s: %s %+v", operation, out.Status, out)
	}
	return out.Plan
}

func (r *real) state(id string) gate.PlanState {
	r.t.Helper()
	_, rec, err := r.gate.Show(r.t.Context(), r.root, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return rec.State
}

func css(s string) chromedp.CSS { return chromedp.CSS(s) }

// must runs steps in the browser, and says where it was when they fail.
func must(t *testing.T, ctx context.Context, what string, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	limited, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	err := chromedp.Do(limited, steps...)
	for range 3 { // a page that was still coming got in the way of the first step, which goes to another
		if err == nil || !strings.Contains(err.Error(), "net::ERR_ABORTED") {
			break
		}
		err = chromedp.Do(limited, steps...)
	}
	if err != nil {
		at, _ := chromedp.Run(ctx, chromedp.Location())
		body, _ := chromedp.Run(ctx, chromedp.Text(css("body")))
		t.Fatalf("%s: %v\nat %s\n%s", what, err, at, body)
	}
}

func signIn(name, password string) []chromedp.Action[chromedp.Void] {
	return []chromedp.Action[chromedp.Void]{chromedp.WaitVisible(css(`input[name=name]`)), chromedp.SendKeys(css(`input[name=name]`), name), chromedp.SendKeys(css(`input[name=password]`), password),
		chromedp.Click(css(`form[action="/signin"] button`))}
}

const password = "a long pass phrase of anna"

// TestBrowserApprovesWithAPasskey goes the whole way: sign in, enrol, approve, run; by real ceremonies of a real browser.
func TestBrowserApprovesWithAPasskey(t *testing.T) {
	ctx := chromium(t)
	r := newReal(t, policy.Settings{Rungs: map[string]string{"shutdown": "passkey"}})
	if _, err := r.people.AddAccount(t.Context(), r.root, identity.NewAccount{Name: "anna", Roles: []string{gate.RoleApprover}, Password: password}); err != nil {
		t.Fatal(err)
	}
	code, err := r.people.EnrolmentCode(t.Context(), r.root, "anna")
	if err != nil {
		t.Fatal(err)
	}
	plan := r.ask("guest_power", `{"guest":101,"action":"shutdown"}`)
	if plan.Rung != gate.RungPasskey || plan.URL != r.url+"/plans/"+plan.ID {
		t.Fatalf("needs %s at %s", plan.Rung, plan.URL)
	}
	if _, err := chromedp.Call(ctx, webauthn.Enable, webauthn.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{Protocol: "ctap2", Transport: "internal", HasResidentKey: true,
		HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true}}); err != nil {
		t.Fatal(err)
	}
	must(t, ctx, "sign in", append([]chromedp.Action[chromedp.Void]{chromedp.Navigate(plan.URL)}, signIn("anna", password)...)...)
	must(t, ctx, "the plan without a passkey", chromedp.WaitVisible(css(`#decide .note.warn a[href="/enrol"]`)), chromedp.WaitVisible(css(`button[data-passkey]:disabled`)))
	must(t, ctx, "enrol", chromedp.Navigate(r.url+"/enrol"), chromedp.SendKeys(css(`input[name=name]`), "test key"), chromedp.SendKeys(css(`input[name=code]`), code), chromedp.Click(css(`button[data-passkey=create]`)),
		chromedp.WaitVisible(css(`.cards .hash`)))
	must(t, ctx, "approve", chromedp.Navigate(plan.URL), chromedp.WaitVisible(css(`button[data-passkey=get]:enabled`)), chromedp.Click(css(`button[data-passkey=get]`)), chromedp.WaitVisible(css(`.approvals`)))
	if s := r.state(plan.ID); s != gate.PlanApproved {
		t.Fatalf("after the approval it is %s", s)
	}
	_, rec, err := r.gate.Show(t.Context(), r.root, plan.ID)
	if err != nil || len(rec.Approvals) != 1 || rec.Approvals[0].Rung != gate.RungPasskey || rec.Approvals[0].Evidence.Passkey == nil {
		t.Fatalf("approvals %+v, %v", rec.Approvals, err)
	}
	if err := identity.VerifyProof(*rec.Approvals[0].Evidence.Passkey); err != nil {
		t.Errorf("the signature does not verify: %v", err)
	}
	must(t, ctx, "run", chromedp.Click(css(`form[action$="/run"] button`)), chromedp.WaitVisible(css(`.badge.state-done`)))
	if s := r.state(plan.ID); s != gate.PlanDone {
		t.Errorf("after the run it is %s", s)
	}
	must(t, ctx, "sign out and in by passkey", chromedp.Click(css(`form[action="/signout"] button`)), chromedp.WaitVisible(css(`form[action="/signin/passkey/finish"] button`)), chromedp.Click(css(`form[action="/signin/passkey/finish"] button`)), chromedp.WaitVisible(css(`nav form`)))
	must(t, ctx, "confirm and enrol another", chromedp.Navigate(r.url+"/enrol"), chromedp.Click(css(`form[action="/enrol/vouch"] button`)), chromedp.WaitVisible(css(`input[name=code][type=hidden] ~ button, form[action="/enrol/finish"] button`)))
	must(t, ctx, "give a mandate by passkey", chromedp.Navigate(r.url+"/mandates"), chromedp.SendKeys(css(`input[name=for]`), "claude|anna"), chromedp.Click(css(`input[name=operation][value=guest_power]`)),
		chromedp.Click(css(`input[name=target][value=lab]`)), chromedp.SendKeys(css(`textarea[name=objects]`), "guest/103"), chromedp.SendKeys(css(`textarea[name=args]`), "action=shutdown"),
		chromedp.Click(css(`button[data-passkey=get]`)), chromedp.WaitVisible(css(`.rows .row .tag.good`)))
	given, err := r.gate.Mandates(t.Context(), r.root)
	if err != nil || len(given) != 1 || given[0].Rung != gate.RungPasskey || given[0].Passkey == nil {
		t.Errorf("mandates %+v, %v", given, err)
	}
	denied := r.ask("guest_power", `{"guest":102,"action":"shutdown"}`)
	must(t, ctx, "deny", chromedp.Navigate(denied.URL), chromedp.SendKeys(css(`input[name=why]`), "not tonight"), chromedp.Click(css(`button.deny`)), chromedp.WaitVisible(css(`.badge.state-denied`)))
	must(t, ctx, "kill switch on and, by passkey, off", chromedp.Navigate(r.url+"/switches"), chromedp.Click(css(`button.deny`)), chromedp.WaitVisible(css(`.banner.grave`)), chromedp.Click(css(`form[action="/switches/kill"] button[data-passkey]`)),
		chromedp.WaitNotPresent(css(`.banner.grave`)))
}

// TestBrowserWithoutScripts approves by session, with JavaScript off, on a phone's screen.
func TestBrowserWithoutScripts(t *testing.T) {
	ctx := chromium(t)
	r := newReal(t, policy.Settings{})
	if _, err := r.people.AddAccount(t.Context(), r.root, identity.NewAccount{Name: "anna", Roles: []string{gate.RoleApprover}, Password: password}); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 360, Height: 740, DeviceScaleFactor: 2, Mobile: true}); err != nil {
		t.Fatal(err)
	}
	plan := r.ask("guest_power", `{"guest":101,"action":"stop"}`)
	if plan.Rung != gate.RungPerson {
		t.Fatalf("a stop needs %s", plan.Rung)
	}
	must(t, ctx, "sign in", append([]chromedp.Action[chromedp.Void]{chromedp.Navigate(r.url + "/")}, signIn("anna", password)...)...)
	must(t, ctx, "open what waits", chromedp.Click(css(`.group .row`)), chromedp.WaitVisible(css(`#decide button.primary`)))
	wide, err := chromedp.Run(ctx, chromedp.Dimensions(css("main")))
	if err != nil || wide.Width > 360 {
		t.Errorf("the page is wider than the phone: %v %v", wide, err)
	}
	must(t, ctx, "approve", chromedp.SendKeys(css(`#decide input[name=password]`), password), chromedp.Click(css(`#decide button.primary`)), chromedp.WaitVisible(css(`.approvals`)))
	must(t, ctx, "run", chromedp.Click(css(`form[action$="/run"] button`)), chromedp.WaitVisible(css(`.badge.state-done`)))
	if s := r.state(plan.ID); s != gate.PlanDone {
		t.Errorf("after the run it is %s", s)
	}
	must(t, ctx, "all records of the plan", chromedp.Click(css(`#decide a[href^="/activity?text="]`)), chromedp.WaitVisible(css(`.rows .row`)), chromedp.Click(css(`.rows .row`)), chromedp.WaitVisible(css(`dl.plain a[href^="/plans/"]`)))
}

// ledgerOf is the store's ledger, as the program gives it to the audit operations.
type ledgerOf struct{ st *store.Store }

func (l ledgerOf) Search(ctx context.Context, q self.AuditQuery) (self.AuditPage, error) {
	page, err := l.st.Search(ctx, ledger.Query{Since: q.Since, Until: q.Until, Op: q.Operation, Actor: q.Actor, Target: q.Target, Status: q.Status, Effect: q.Effect, Text: q.Text, Limit: q.Limit, Cursor: q.Cursor})
	out := self.AuditPage{Cursor: page.Next, Notice: page.Notice}
	for _, f := range page.Records {
		row := self.AuditRow{Tree: string(f.Tree), Index: f.Seq, At: f.TS, Kind: f.Kind, Operation: f.Op, Actor: f.Actor, Target: f.Target, Status: f.Status, Plan: f.Plan}
		for _, p := range f.Parts {
			if row.Parts == nil {
				row.Parts = map[string]string{}
			}
			row.Parts[p.Name] = string(p.Body)
		}
		out.Records = append(out.Records, row)
	}
	return out, err
}

func (ledgerOf) Verify(context.Context, string) (self.AuditReport, error) {
	return self.AuditReport{}, nil
}
