package console

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
	"castellan/internal/oauth"
)

func TestKillSwitch(t *testing.T) {
	w := newWorld(t)
	fill(w)
	vic := w.signedIn("vic", "look only")
	if a := vic.post("/switches", "/switches/kill", "to", "on"); a.status != http.StatusSeeOther || w.gate.sw.Killed == "" {
		t.Fatalf("anybody may stop: %d", a.status)
	}
	if !strings.Contains(vic.get("/mandates").body, "All writes are stopped") {
		t.Error("other pages do not say that writes are stopped")
	}
	anna := w.signedIn("anna", "correct horse") // has no passkey: the password
	before := anna.cookie("castellan")
	for _, wrong := range []string{"", "wrong"} {
		if a := anna.post("/switches", "/switches/kill", "to", "off", "password", wrong); a.status != http.StatusForbidden || w.gate.sw.Killed == "" {
			t.Errorf("off with password %q: %d", wrong, a.status)
		}
	}
	if a := anna.post("/switches", "/switches/kill", "to", "off", "password", "correct horse"); a.status != http.StatusSeeOther || w.gate.sw.Killed != "" {
		t.Errorf("off: %d", a.status)
	}
	if after := anna.cookie("castellan"); after == before || anna.get("/").status != http.StatusOK {
		t.Error("a fresh proof gives no fresh session")
	}
	w.gate.sw.Killed = "by vic"
	boss := w.signedIn("boss", "battery staple") // has a passkey: nothing less
	for name, fields := range map[string][]string{"password": {"password", "battery staple"}, "nothing": {}, "another person's passkey": {"ticket", "signin", "response", `{"person":"anna"}`}, "no JSON": {"ticket", "signin", "response", "x"}} {
		if name == "another person's passkey" {
			w.people.keys["anna"] = []identity.Credential{{ID: "a", MayApprove: w.at}}
		}
		if a := boss.post("/switches", "/switches/kill", append([]string{"to", "off"}, fields...)...); a.status != http.StatusForbidden || w.gate.sw.Killed == "" {
			t.Errorf("off by %s: %d", name, a.status)
		}
	}
	if a := boss.post("/switches", "/switches/kill", "to", "off", "ticket", "signin", "response", `{"person":"boss"}`); a.status != http.StatusSeeOther || w.gate.sw.Killed != "" {
		t.Errorf("off by passkey: %d", a.status)
	}
}

func TestArmedWindow(t *testing.T) {
	w := newWorld(t)
	b := w.signedIn("anna", "correct horse")
	for _, minutes := range []string{"", "x", "-1", "1441", "99999999999999999999"} {
		if a := b.post("/switches", "/switches/arm", "minutes", minutes, "password", "correct horse"); a.status != http.StatusBadRequest {
			t.Errorf("%q minutes: %d", minutes, a.status)
		}
	}
	if a := b.post("/switches", "/switches/arm", "minutes", "30"); a.status != http.StatusForbidden {
		t.Errorf("without a proof: %d", a.status)
	}
	b.post("/switches", "/switches/arm", "minutes", "30", "password", "correct horse")
	if !w.gate.sw.ArmedUntil.Equal(w.at.Add(30 * time.Minute)) {
		t.Errorf("armed until %s", w.gate.sw.ArmedUntil)
	}
	b.post("/switches", "/switches/arm", "minutes", "0")
	if !w.gate.sw.ArmedUntil.IsZero() {
		t.Error("it does not close")
	}
}

func TestMandates(t *testing.T) {
	w := newWorld(t)
	fill(w)
	b := w.signedIn("anna", "correct horse")
	good := map[string]string{"for": "claude|anna", "operation": "start_guest", "target": "home", "objects": "guest/101\ntag:dev", "args": "wait=*\nmode = fast", "count": "5", "from": w.at.Format(minuteForm), "until": w.at.Add(time.Hour).Format(minuteForm), "note": "<b>"}
	send := func(change map[string]string) answered {
		fields := []string{}
		for k, v := range good {
			if c, ok := change[k]; ok {
				v = c
			}
			fields = append(fields, k, v)
		}
		return b.post("/mandates", "/mandates", fields...)
	}
	for name, change := range map[string]map[string]string{"count": {"count": "many"}, "from": {"from": "soon"}, "until": {"until": ""}, "args": {"args": "novalue"}, "name": {"args": "=x"}} {
		if a := send(change); a.status != http.StatusBadRequest || !strings.Contains(a.body, "No mandate was given") || !strings.Contains(a.body, `value="claude|anna"`) {
			t.Errorf("bad %s: %d", name, a.status)
		}
	}
	if a := send(nil); a.status != http.StatusSeeOther {
		t.Fatalf("grant: %d %s", a.status, a.body)
	}
	m := w.gate.mandates["m2"]
	if m.For != "claude|anna" || m.Args["wait"][0] != "*" || m.Args["mode"][0] != "fast" || len(m.Objects) != 2 || m.Count != 5 || m.By.Person != "anna" {
		t.Errorf("mandate %+v", m)
	}
	if m.ByNumber {
		t.Error("the numbers count alone, and nobody said so")
	}
	good["bynumber"] = "1"
	if a := send(nil); a.status != http.StatusSeeOther || !w.gate.mandates["m3"].ByNumber || !strings.Contains(b.get("/mandates/m3").body, "count alone") {
		t.Errorf("by number: %d", a.status)
	}
	if page := b.get("/mandates/m1").body; !strings.Contains(page, "since nothing was kept that tells the guest") {
		t.Error("a mandate that covers no guest by its number does not say so")
	}
	w.gate.mandates["m1"].Guests = map[string][]gate.Condition{"guest/101": {{Name: "VM 101 still has SMBIOS uuid <4a35>"}, {Name: "no guest 101 was created after today"}}}
	page := b.get("/mandates/m1").body
	if !strings.Contains(page, "while VM 101 still has SMBIOS uuid &lt;4a35&gt;, and no guest 101 was created after today") {
		t.Error("it is not said which guest is meant")
	}
	if !strings.Contains(page, "1 of 10 used") || !strings.Contains(page, `href="/plans/p6"`) {
		t.Error("its uses are not shown")
	}
	if strings.Contains(b.get("/mandates").body, "delete_guest") {
		t.Error("what destroys is offered")
	}
	if a := b.post("/mandates/m1", "/mandates/m1/revoke"); a.status != http.StatusSeeOther || w.gate.mandates["m1"].Revoked == "" {
		t.Errorf("revoke: %d", a.status)
	}
	if page := b.get("/mandates/m1").body; !strings.Contains(page, "Revoked") || strings.Contains(page, "Revoke it") {
		t.Error("a revoked mandate can be revoked")
	}
	fields := []string{"challenge", "1"}
	for k, v := range good {
		fields = append(fields, k, v)
	}
	if a := b.post("/mandates", "/mandates", fields...); a.status != http.StatusOK || !strings.Contains(a.body, `"ticket":"mandate"`) || len(w.gate.mandates) != 3 {
		t.Errorf("challenge: %d %s", a.status, a.body)
	}
}

func TestConsent(t *testing.T) {
	w := newWorld(t)
	fill(w)
	path := "/authorize?client_id=" + w.oauth.asked.ClientID + "&state=x%20y"
	stranger := w.browser()
	a := stranger.get(path)
	if to := a.header.Get("Location"); a.status != http.StatusSeeOther || !strings.HasPrefix(to, "/signin?next=%2Fauthorize%3Fclient_id") {
		t.Fatalf("without a session: %d to %q", a.status, to)
	}
	if a := stranger.post(a.header.Get("Location"), "/signin", "name", "vic", "password", "look only", "next", path); !strings.HasPrefix(a.header.Get("Location"), "/authorize?client_id=") {
		t.Errorf("sign-in leads to %q", a.header.Get("Location"))
	}
	b := w.signedIn("vic", "look only")
	page := b.get(path)
	if !strings.Contains(page.header.Get("Content-Security-Policy"), "form-action 'self' https://claude.ai") || page.header.Get("X-Frame-Options") != "DENY" {
		t.Errorf("policy %q", page.header.Get("Content-Security-Policy"))
	}
	for _, want := range []string{`<dd class="host"><code class="v">claude.ai</code></dd>`, "It calls itself", "Anybody can choose any name", "It changes nothing", "It can never approve"} {
		if !strings.Contains(page.body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Index(page.body, "Who asks") > strings.Index(page.body, "It calls itself") {
		t.Error("the client's words come before its host")
	}
	if a := b.post(path, "/authorize", "ticket", "t", "answer", "maybe"); a.status != http.StatusBadRequest || len(w.oauth.answered) > 0 {
		t.Errorf("no answer: %d", a.status)
	}
	if a := b.post(path, "/authorize", "ticket", "forged", "answer", "allow"); a.status != http.StatusForbidden {
		t.Errorf("forged ticket: %d", a.status)
	}
	if a := b.post(path, "/authorize", "ticket", "t", "answer", "allow", "scope", "read"); a.header.Get("Location") != "https://claude.ai/api/mcp/auth_callback?code=c" || w.oauth.answered[0] != "victrue [read]" {
		t.Errorf("allow: %q %v", a.header.Get("Location"), w.oauth.answered)
	}
	if a := b.post(path, "/authorize", "ticket", "t", "answer", "deny"); !strings.Contains(a.header.Get("Location"), "error=access_denied") {
		t.Errorf("deny: %q", a.header.Get("Location"))
	}
	if a := b.get("/authorize?client_id=unknown"); a.status != http.StatusBadRequest {
		t.Errorf("unknown client: %d", a.status)
	}
	w.oauth.redirect = "https://claude.ai/cb?error=invalid_scope"
	if a := b.get(path); a.header.Get("Location") != w.oauth.redirect {
		t.Errorf("an error for the client goes to %q", a.header.Get("Location"))
	}
	w.oauth.redirect = ""
	w.oauth.asked = &oauth.Asked{Ticket: "t", ClientID: "dyn", ClientName: "Claude", Kind: oauth.KindDynamic, RedirectURI: "http://127.0.0.1:3333/cb", RedirectHost: "127.0.0.1", Loopback: true, Scopes: []string{"read", "frobnicate"}, Changed: true}
	page = b.get("/authorize?client_id=dyn")
	for _, want := range []string{"nobody vouches for it", "Nobody vouches for this client", "a program on the machine", "does not know what that means", "not those that were let in"} {
		if !strings.Contains(page.body, want) {
			t.Errorf("a self-registered client: the page lacks %q", want)
		}
	}
	for uri, want := range map[string]string{"cursor://anysphere.cursor-mcp/cb": "cursor:", "http://[::1]:99/cb": "http:", "http://127.0.0.1:8080/x": "http://127.0.0.1:8080", "https://a.example/x;y": "https://a.example", "https://a;b/x": "https:"} {
		if got := place(uri); got != want {
			t.Errorf("%s is the source %q, want %q", uri, got, want)
		}
	}
}

func TestClients(t *testing.T) {
	w := newWorld(t)
	fill(w)
	w.oauth.tokens = append(w.oauth.tokens, oauth.TokenInfo{ID: "t2", Kind: "static", Agent: "cron", Person: "vic", Expires: w.at.Add(time.Hour)}, oauth.TokenInfo{ID: "t3", Agent: "dead-agent", Person: "vic", Expires: w.at.Add(-time.Hour)})
	vic := w.signedIn("vic", "look only")
	page := vic.get("/clients").body
	if !strings.Contains(page, "cron") || strings.Contains(page, "claude.ai") || strings.Contains(page, "dead-agent") {
		t.Error("a viewer sees the tokens of others, or ended ones, or not their own")
	}
	if a := vic.post("/clients", "/clients/revoke", "what", "token", "id", "t1"); a.status != http.StatusNotFound || len(w.oauth.answered) > 0 {
		t.Errorf("another's token: %d", a.status)
	}
	if a := vic.post("/clients", "/clients/revoke", "what", "token", "id", "t2"); a.status != http.StatusSeeOther || w.oauth.answered[0] != "revoked token t2" {
		t.Errorf("one's own: %d", a.status)
	}
	if a := w.signedIn("anna", "correct horse").post("/clients", "/clients/revoke", "what", "client", "id", "c"); a.status != http.StatusSeeOther {
		t.Errorf("client: %d", a.status)
	}
}

func TestActivity(t *testing.T) {
	w := newWorld(t)
	fill(w)
	b := w.signedIn("anna", "correct horse")
	a := b.get("/activity?text=roll%20back&since=2026-01-01&until=2026-01-31&operation=rollback_snapshot&status=ok&target=guest/110")
	q := w.gate.asked[0]
	for name, want := range map[string]any{"text": "roll back", "operation": "rollback_snapshot", "status": "ok", "object": "guest/110", "since": "2026-01-01T00:00:00Z", "until": "2026-02-01T00:00:00Z", "limit": 50.0} {
		if q[name] != want {
			t.Errorf("asked for %s %v, want %v", name, q[name], want)
		}
	}
	if !strings.Contains(a.body, "cursor=next") || !strings.Contains(a.body, "parts withheld") {
		t.Error("no cursor, or withheld parts not said")
	}
	if a := b.get("/activity?since=yesterday"); a.status != http.StatusBadRequest || !strings.Contains(a.body, "2026-01-31") {
		t.Errorf("a bad date: %d", a.status)
	}
	page := b.get(recordPath).body
	if !strings.Contains(page, "Withheld") || !strings.Contains(page, "still verifies") || !strings.Contains(page, "ab12") {
		t.Error("the record does not say what is withheld")
	}
	for _, path := range []string{"/activity/write/99?at=2026-11-29T02:58:00Z", "/activity/write/41", "/activity/other/41?at=2026-11-29T02:58:00Z", "/activity/write/x?at=2026-11-29T02:58:00Z", "/activity/write/41?at=x"} {
		if a := b.get(path); a.status != http.StatusNotFound {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

func TestApproversAndPasskeys(t *testing.T) {
	w := newWorld(t)
	fill(w)
	delete(w.people.keys, "boss")
	boss := w.signedIn("boss", "battery staple")
	if a := boss.post("/approvers", "/approvers/roles", "name", "vic", "role", "approver"); a.status != http.StatusForbidden || len(w.people.roles["vic"]) != 1 || w.people.roles["vic"][0] != "viewer" {
		t.Errorf("roles without a proof: %d", a.status)
	}
	if a := boss.post("/approvers", "/approvers/roles", "name", "vic", "role", "viewer", "role", "operator", "until", "soon", "password", "battery staple"); a.status != http.StatusBadRequest {
		t.Errorf("a bad time: %d", a.status)
	}
	if a := boss.post("/approvers", "/approvers/roles", "name", "vic", "role", "viewer", "role", "operator", "until", "2027-01-31T18:00", "password", "battery staple"); a.status != http.StatusSeeOther || len(w.people.roles["vic"]) != 2 ||
		w.people.until["vic"].Format(minuteForm) != "2027-01-31T18:00" {
		t.Errorf("roles: %d %v", a.status, w.people.roles["vic"])
	}
	if a := w.signedIn("anna", "correct horse").post("/", "/approvers/roles", "name", "anna", "role", "administrator", "password", "correct horse"); a.status != http.StatusForbidden || len(w.people.roles["anna"]) != 1 {
		t.Errorf("an approver made itself administrator: %d", a.status)
	}
	if a := w.signedIn("vic", "look only").get("/approvers"); a.status != http.StatusForbidden {
		t.Errorf("a viewer sees approvers: %d", a.status)
	}
	anna := w.signedIn("anna", "correct horse")
	if a := anna.post("/enrol", "/enrol/start", "code", "guess"); a.status != http.StatusForbidden || !json.Valid([]byte(a.body)) {
		t.Errorf("a wrong code: %d %s", a.status, a.body)
	}
	if a := anna.post("/enrol", "/enrol/start", "code", "CODE"); a.status != http.StatusOK || !strings.Contains(a.body, `"ticket":"enrol"`) {
		t.Errorf("the code: %d %s", a.status, a.body)
	}
	if a := anna.post("/enrol", "/enrol/finish", "name", "phone"); a.status != http.StatusBadRequest || len(w.people.keys["anna"]) != 0 {
		t.Errorf("no answer: %d", a.status)
	}
	if a := anna.post("/enrol", "/enrol/finish", "name", "phone", "ticket", "enrol", "response", "{}"); a.status != http.StatusSeeOther || len(w.people.keys["anna"]) != 1 {
		t.Errorf("enrol: %d", a.status)
	}
	w.people.keys["anna"] = append(w.people.keys["anna"], identity.Credential{ID: "k9", Name: "new", MayApprove: w.at.Add(time.Hour)})
	if page := anna.get("/enrol").body; !strings.Contains(page, "in 60 min") || !strings.Contains(page, "Confirm with a passkey") {
		t.Error("the waiting time is not shown")
	}
	if a := anna.post("/enrol", "/approvers/passkey", "id", "k0", "password", "correct horse"); a.status != http.StatusForbidden || len(w.people.keys["anna"]) != 2 {
		t.Errorf("removed by password though there is a passkey: %d", a.status)
	}
	if a := anna.post("/enrol", "/approvers/passkey", "id", "k0", "ticket", "signin", "response", `{"person":"anna"}`); a.status != http.StatusSeeOther || len(w.people.keys["anna"]) != 1 {
		t.Errorf("remove: %d", a.status)
	}
	if a := boss.post("/approvers", "/approvers/invite", "name", "anna", "ticket", "vouch", "response", "{}"); a.status != http.StatusOK || !strings.Contains(a.body, "one-time-for-anna") {
		t.Errorf("invite: %d", a.status)
	}
	if a := anna.post("/enrol", "/approvers/invite", "name", "vic", "ticket", "vouch", "response", "{}"); a.status != http.StatusForbidden || strings.Contains(a.body, "one-time-for") {
		t.Errorf("an approver invites: %d", a.status)
	}
}

func TestSettingsPage(t *testing.T) {
	w := newWorld(t)
	boss := w.signedIn("boss", "battery staple")
	if a := boss.post("/settings", "/settings", "key", "policy.wait_ttl", "value", "6h"); a.status != http.StatusForbidden || w.gate.settings["policy.wait_ttl"] != "12h" {
		t.Errorf("without a proof: %d", a.status)
	}
	if a := boss.post("/settings", "/settings", "key", "policy.wait_ttl", "value", "6h", "password", "battery staple"); a.status != http.StatusSeeOther || w.gate.settings["policy.wait_ttl"] != "6h" {
		t.Errorf("set: %d", a.status)
	}
	if a := w.signedIn("anna", "correct horse").post("/settings", "/settings", "key", "policy.wait_ttl", "value", "x", "password", "correct horse"); a.status != http.StatusForbidden || w.gate.settings["policy.wait_ttl"] != "6h" {
		t.Errorf("by an approver: %d", a.status)
	}
	if a := boss.post("/settings", "/settings", "key", "policy.wait_ttl", "value", "", "password", "battery staple"); a.status != http.StatusSeeOther || w.gate.settings["policy.wait_ttl"] != nil {
		t.Errorf("back: %d", a.status)
	}
	if page := w.signedIn("anna", "correct horse").get("/settings").body; strings.Contains(page, ">change<") {
		t.Error("an approver is offered to change")
	}
}

func TestOtherWaysIn(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	if a := b.post("/signin", "/signin", "name", "anna", "password", "correct horse", "realm", "site", "totp", "000000"); a.status != http.StatusUnauthorized {
		t.Errorf("a wrong second factor: %d", a.status)
	}
	if a := b.post("/signin", "/signin", "name", "anna", "password", "correct horse", "realm", "site", "totp", "123456"); a.status != http.StatusSeeOther || b.cookie("castellan") == "" {
		t.Errorf("realm: %d", a.status)
	}
	b = w.browser()
	if a := b.get("/signin/oidc?state=s&code=c"); a.status != http.StatusBadRequest || b.cookie("castellan") != "" {
		t.Errorf("a callback that this browser did not ask for: %d", a.status)
	}
	a := b.post("/signin", "/signin/provider", "provider", "keycloak", "next", "/plans/p1")
	if a.status != http.StatusOK || !strings.Contains(a.body, `content="0;url=https://sso.example/auth?state=s"`) {
		t.Fatalf("provider: %d\n%s", a.status, a.body)
	}
	if a := b.get("/signin/oidc?state=s&code=c"); a.status != http.StatusSeeOther || a.header.Get("Location") != "/plans/p1" || b.cookie("castellan") == "" {
		t.Errorf("callback: %d to %q", a.status, a.header.Get("Location"))
	}
	if a := b.get("/signin/oidc?state=s&code=c"); a.status != http.StatusBadRequest {
		t.Errorf("the callback twice: %d", a.status)
	}
	b = w.browser()
	if a := b.post("/signin", "/signin/proxy"); a.status != http.StatusUnauthorized {
		t.Errorf("without an assertion: %d", a.status)
	}
	b.head = http.Header{"Cf-Access-Jwt-Assertion": {"good"}}
	if a := b.post("/signin", "/signin/proxy"); a.status != http.StatusSeeOther {
		t.Errorf("with one: %d", a.status)
	}
}

// TestWhatIsMissingIsSaid: a console without the parts that it can do without.
func TestWhatIsMissingIsSaid(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.OAuth, c.Settings, c.Switches = nil, nil, nil })
	fill(w)
	b := w.signedIn("boss", "battery staple")
	for _, path := range []string{"/clients", "/switches", "/authorize?client_id=x"} {
		if a := b.get(path); a.status != http.StatusNotFound || !strings.Contains(a.body, "<h1>") {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	for _, path := range []string{"/clients/revoke", "/switches/kill", "/switches/arm", "/authorize"} {
		if a := b.post("/", path, "to", "on", "minutes", "5"); a.status != http.StatusNotFound {
			t.Errorf("POST %s: %d", path, a.status)
		}
	}
	if b.get("/").status != http.StatusOK || b.get("/plans/p1").status != http.StatusOK {
		t.Error("the rest does not work")
	}
}

// TestTheStoreIsDown: nobody is signed in, and nobody is signed out, by a store that does not answer.
func TestTheStoreIsDown(t *testing.T) {
	w := newWorld(t)
	fill(w)
	b := w.signedIn("anna", "correct horse")
	form := b.token("/plans/p1")
	w.people.down = gate.Fail(gate.ErrUnavailable, "", "the store does not answer")
	if a := b.get("/"); a.status != http.StatusServiceUnavailable || strings.Contains(a.body, "VM 101") {
		t.Errorf("page: %d", a.status)
	}
	if a := b.do("POST", "/plans/p1/approve", map[string][]string{"form": {form}, "digest": {w.gate.plans["p1"].Plan.Digest}}); a.status < 400 || w.gate.state("p1") != gate.PlanProposed {
		t.Errorf("approve: %d", a.status)
	}
	w.people.down = nil
	if a := b.get("/"); a.status != http.StatusOK {
		t.Errorf("afterwards: %d", a.status)
	}
}
