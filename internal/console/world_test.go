package console

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
	"castellan/internal/oauth"
)

// world is a console over fakes, served on loopback.
type world struct {
	t      testing.TB
	gate   *fakeGate
	people *fakePeople
	oauth  *fakeOAuth
	srv    *httptest.Server
	pages  *Console
	at     time.Time
}

func newWorld(t testing.TB, change ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, at: time.Now().UTC().Truncate(time.Second)}
	now := func() time.Time { return w.at }
	w.people = newFakePeople(now)
	w.people.add("anna", "correct horse", gate.RoleApprover)
	w.people.add("boss", "battery staple", gate.RoleAdministrator)
	w.people.add("vic", "look only", gate.RoleViewer)
	w.gate = newFakeGate(w.people, now)
	w.oauth = &fakeOAuth{}
	w.gate.settings["policy.wait_ttl"] = "12h"
	var h http.Handler
	w.srv = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { h.ServeHTTP(rw, r) }))
	t.Cleanup(w.srv.Close)
	c := Config{Gate: w.gate, People: w.people, OAuth: w.oauth, Settings: w.gate, Switches: w.gate, PublicURL: w.srv.URL, Clock: now,
		Ways: identity.Settings{Realms: []identity.RealmSettings{{Name: "site"}}, OIDC: []identity.OIDCSettings{{Name: "keycloak", Issuer: "https://sso.example/realms/x"}}, Access: identity.AccessSettings{Team: "team.example"}}}
	for _, f := range change {
		f(&c)
	}
	k, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	k.exposed = false // as over https; the tests of what plain http needs set it
	h, w.pages = k.Handler(), k
	return w
}

// browser keeps cookies and does not follow redirects by itself.
type browser struct {
	w    *world
	c    *http.Client
	head http.Header
}

func (w *world) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return &browser{w: w, head: http.Header{}, c: &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

type answered struct {
	status int
	body   string
	header http.Header
}

func (b *browser) do(method, path string, form url.Values) answered {
	b.w.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(context.Background(), method, b.w.srv.URL+path, body)
	if err != nil {
		b.w.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", b.w.srv.URL)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for k, v := range b.head {
		r.Header[k] = v
	}
	res, err := b.c.Do(r)
	if err != nil {
		b.w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.w.t.Fatal(err)
	}
	return answered{res.StatusCode, string(text), res.Header}
}

func (b *browser) get(path string) answered { b.w.t.Helper(); return b.do("GET", path, nil) }

var formField = regexp.MustCompile(`name="form" value="([^"]+)"`)
var digestField = regexp.MustCompile(`name="digest" value="([^"]+)"`)

// token reads the forms' token from a page, as a browser's user would send it.
func (b *browser) token(path string) string {
	b.w.t.Helper()
	a := b.get(path)
	m := formField.FindStringSubmatch(a.body)
	if m == nil {
		b.w.t.Fatalf("%s (%d) has no form:\n%s", path, a.status, a.body)
	}
	return m[1]
}

// post sends a form with the token that the page at from gave out.
func (b *browser) post(from, path string, fields ...string) answered {
	b.w.t.Helper()
	f := url.Values{"form": {b.token(from)}}
	for i := 0; i+1 < len(fields); i += 2 {
		f.Add(fields[i], fields[i+1])
	}
	return b.do("POST", path, f)
}

func (w *world) signedIn(name, password string) *browser {
	w.t.Helper()
	b := w.browser()
	if a := b.post("/signin", "/signin", "name", name, "password", password); a.status != http.StatusSeeOther {
		w.t.Fatalf("sign-in of %s: %d\n%s", name, a.status, a.body)
	}
	return b
}

func (b *browser) cookie(name string) string {
	u, _ := url.Parse(b.w.srv.URL)
	for _, c := range b.c.Jar.Cookies(u) {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}

func text(s string) []gate.Value { return []gate.Value{{Text: s}} }

// rollback is a plan as the gate makes them.
func rollback(id, vmid string, at time.Time) *gate.PlanRecord {
	guest := gate.Object{Site: "home", Kind: gate.ObjectGuest, ID: vmid}
	return &gate.PlanRecord{State: gate.PlanProposed, Plan: gate.Plan{
		ID: id, Digest: strings.Repeat("ab", 31) + fmt.Sprintf("%02x", len(vmid)+len(id)) + vmid, Operation: "rollback_snapshot", Created: at, Expires: at.Add(12 * time.Hour),
		Requester: gate.Principal{Agent: "claude", Person: "anna", WayIn: "mcp-http", Client: "Claude Code 2.1"},
		Sentence:  "Shut down VM " + vmid + " on node pve1; then roll back VM " + vmid + " to snapshot before-upgrade",
		Reason:    "The upgrade of the web shop broke checkout. Rolling back as the runbook says.",
		Note:      "2 days of changes on disk scsi0 will be lost.",
		Steps: []gate.Step{
			{Number: 1, Target: "home", Sentence: "Shut down VM " + vmid + " on node pve1", Undo: gate.Undo{How: "start VM " + vmid + " again"}, Wait: gate.Wait{Kind: gate.WaitTask},
				API: &gate.Request{Product: "pve", Operation: "POST /nodes/{node}/qemu/{vmid}/status/shutdown", Params: []gate.Param{{Name: "node", Values: text("pve1")}, {Name: "vmid", Values: text(vmid)}}},
				Judgement: gate.Judgement{Effect: gate.EffectChange, Classes: []gate.Class{gate.ClassPower}, Kinds: []gate.Kind{gate.KindShutdown}, References: []gate.Reference{
					{Object: guest, Param: "vmid", Use: gate.UseActs}, {Object: gate.Object{Kind: gate.ObjectNode, ID: "pve1"}, Param: "node", Use: gate.UseNames}}},
				Require: []gate.Condition{{Name: "VM " + vmid + " is running"}}},
			{Number: 2, Target: "home", Sentence: "Roll back VM " + vmid + " to snapshot before-upgrade", Undo: gate.Undo{None: "what was written since the snapshot is gone"}, Wait: gate.Wait{Kind: gate.WaitTask},
				API: &gate.Request{Product: "pve", Operation: "POST /nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback", Params: []gate.Param{{Name: "node", Values: text("pve1")}, {Name: "vmid", Values: text(vmid)},
					{Name: "snapname", Values: text("before-upgrade")}}},
				Judgement: gate.Judgement{Effect: gate.EffectDestroy, Classes: []gate.Class{gate.ClassData}, Kinds: []gate.Kind{gate.KindRollback}, References: []gate.Reference{
					{Object: guest, Param: "vmid", Use: gate.UseActs}, {Object: gate.Object{Kind: gate.ObjectNode, ID: "pve1"}, Param: "node", Use: gate.UseNames}}},
				Require: []gate.Condition{{Name: "snapshot before-upgrade of VM " + vmid + " is the one seen"}, {Name: "VM " + vmid + " is the same guest"}},
				Verify:  []gate.Condition{{Name: "VM " + vmid + " has parent before-upgrade"}, {Soft: true, Name: "memory is in force", Else: "memory is written but pending: the old value stays in force until VM " + vmid + " stops"}}},
		},
		Diff: []gate.Difference{{Object: "guest/" + vmid, Key: "memory", Old: "4096", New: "2048"}, {Object: "guest/" + vmid, Key: "net1", Old: "virtio=BC:24:11:00:00:01,bridge=vmbr1"}},
		Facts: gate.Facts{Effect: gate.EffectDestroy, Classes: []gate.Class{gate.ClassPower, gate.ClassData}, Kinds: []gate.Kind{gate.KindShutdown, gate.KindRollback}, Reversible: "no",
			UndoNote: "what was written since the snapshot is gone",
			Objects: []gate.ObjectFacts{{Object: guest, Use: gate.UseActs, Name: "web" + vmid, Tags: []string{"prod"}, Known: true},
				{Object: gate.Object{Kind: gate.ObjectNode, ID: "pve1"}, Use: gate.UseNames, Known: true}}},
		Decision: gate.Decision{Verdict: gate.VerdictNeeds, Rung: gate.RungPerson, Asked: gate.RungPerson, Set: "cafe", Reason: "table: rollback asks for person"},
	}}
}

// fakeOAuth keeps one request.
type fakeOAuth struct {
	asked      *oauth.Asked
	answered   []string
	remembered string
	redirect   string
	tokens     []oauth.TokenInfo
	clients    []oauth.ClientInfo
}

func (o *fakeOAuth) Authorize(_ context.Context, q url.Values, _ oauth.Remote) (*oauth.Asked, error) {
	if o.redirect != "" {
		return nil, &oauth.Redirect{URL: o.redirect}
	}
	if o.asked == nil || q.Get("client_id") != o.asked.ClientID {
		return nil, gate.Fail(gate.ErrInvalid, "Connect the client again.", "the client is not known")
	}
	return o.asked, nil
}

func (o *fakeOAuth) Recall(context.Context, string, gate.Principal) (string, bool, error) {
	return o.remembered, o.remembered != "", nil
}

func (o *fakeOAuth) Consent(_ context.Context, ticket string, person gate.Principal, allow bool, scopes []string) (string, error) {
	if ticket != o.asked.Ticket {
		return "", gate.Fail(gate.ErrDenied, "", "the ticket is none of ours")
	}
	o.answered = append(o.answered, fmt.Sprint(person.Person, allow, scopes))
	if !allow {
		return o.asked.RedirectURI + "?error=access_denied", nil
	}
	return o.asked.RedirectURI + "?code=c", nil
}

func (o *fakeOAuth) Clients(context.Context) ([]oauth.ClientInfo, error) { return o.clients, nil }
func (o *fakeOAuth) Tokens(context.Context) ([]oauth.TokenInfo, error)   { return o.tokens, nil }
func (o *fakeOAuth) RevokeClient(_ context.Context, _ gate.Principal, id string) error {
	o.answered = append(o.answered, "revoked client "+id)
	return nil
}
func (o *fakeOAuth) RevokeToken(_ context.Context, _ gate.Principal, id string) error {
	o.answered = append(o.answered, "revoked token "+id)
	return nil
}
