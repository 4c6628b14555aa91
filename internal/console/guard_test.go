package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"castellan/internal/gate"
)

// everyPage are the pages that a signed-in administrator can open.
func everyPage(w *world) []string {
	return []string{"/", "/plans/", "/plans/p1", "/plans/p5", "/plans/p6", "/plans/p7", "/group?plan=p1&plan=p2&plan=p3", "/mandates", "/mandates/m1", "/activity", recordPath, "/clients", "/approvers",
		"/enrol", "/switches", "/settings", "/settings?key=policy.wait_ttl", "/authorize?client_id=" + w.oauth.asked.ClientID, "/nothing-here"}
}

func TestEveryAnswerIsFramedByNobodyAndKeptByNobody(t *testing.T) {
	w := newWorld(t)
	fill(w)
	b := w.signedIn("boss", "battery staple")
	for _, path := range append(everyPage(w), "/signin", "/plans/none") {
		a := b.get(path)
		csp := a.header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "script-src 'self'", "style-src 'self'", "form-action 'self'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: policy %q lacks %q", path, csp, want)
			}
		}
		if strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q is loose", path, csp)
		}
		for name, want := range map[string]string{"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store"} {
			if got := a.header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		if strings.Contains(a.body, "<script>") || strings.Contains(a.body, " style=") || strings.Contains(a.body, " onclick") {
			t.Errorf("%s: something is inline", path)
		}
		if a.status == http.StatusOK {
			for _, want := range []string{`<html lang="en">`, `<main id="main">`, `name="viewport"`, "<h1"} {
				if !strings.Contains(a.body, want) {
					t.Errorf("%s lacks %s", path, want)
				}
			}
		}
	}
}

func TestPagesNeedASession(t *testing.T) {
	w := newWorld(t)
	fill(w)
	b := w.browser()
	for _, path := range everyPage(w) {
		a := b.get(path)
		if path == "/nothing-here" || path == "/enrol" {
			continue
		}
		if a.status != http.StatusSeeOther || !strings.HasPrefix(a.header.Get("Location"), "/signin?next=") || strings.Contains(a.body, "VM 101") {
			t.Errorf("%s: %d to %q", path, a.status, a.header.Get("Location"))
		}
	}
	if a := b.post("/signin", "/plans/p1/approve", "digest", w.gate.plans["p1"].Plan.Digest); a.status != http.StatusUnauthorized || w.gate.state("p1") != gate.PlanProposed {
		t.Errorf("approved without a session: %d", a.status)
	}
}

func TestAFormOfAnotherSiteDoesNothing(t *testing.T) {
	w := newWorld(t)
	fill(w)
	b := w.signedIn("anna", "correct horse")
	digest := w.gate.plans["p1"].Plan.Digest
	good := b.token("/plans/p1")
	other := w.signedIn("anna", "correct horse")
	for name, try := range map[string]func() answered{
		"no token": func() answered { return b.do("POST", "/plans/p1/approve", url.Values{"digest": {digest}}) },
		"token of a new visit": func() answered {
			return b.do("POST", "/plans/p1/approve", url.Values{"digest": {digest}, "form": {w.browser().token("/signin")}})
		},
		"token of other signin": func() answered {
			return b.do("POST", "/plans/p1/approve", url.Values{"digest": {digest}, "form": {other.token("/plans/p1")}})
		},
		"cross-site header": func() answered {
			b.head = http.Header{"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://evil.example"}}
			defer func() { b.head = http.Header{} }()
			return b.do("POST", "/plans/p1/approve", url.Values{"digest": {digest}, "form": {good}})
		},
		"other origin of an old browser": func() answered {
			b.head = http.Header{"Sec-Fetch-Site": nil, "Origin": {"https://evil.example"}}
			defer func() { b.head = http.Header{} }()
			return b.do("POST", "/plans/p1/approve", url.Values{"digest": {digest}, "form": {good}})
		},
		"json": func() answered {
			b.head = http.Header{"Content-Type": {"application/json"}}
			defer func() { b.head = http.Header{} }()
			return b.do("POST", "/plans/p1/approve", url.Values{"digest": {digest}, "form": {good}})
		},
		"too large": func() answered {
			return b.do("POST", "/plans/p1/approve", url.Values{"digest": {digest}, "form": {good}, "why": {strings.Repeat("x", 100_000)}})
		},
		"in the address": func() answered { return b.do("GET", "/plans/p1/approve?form="+good+"&digest="+digest, nil) },
	} {
		a := try()
		if a.status < 400 || w.gate.state("p1") != gate.PlanProposed {
			t.Errorf("%s: %d, plan is %s", name, a.status, w.gate.state("p1"))
		}
	}
	if a := b.do("POST", "/plans/p1/approve", url.Values{"digest": {digest}, "form": {good}}); a.status != http.StatusSeeOther || w.gate.state("p1") != gate.PlanApproved {
		t.Errorf("the true form: %d, plan is %s", a.status, w.gate.state("p1"))
	}
}

// TestAGetChangesNothing opens every page and every place that takes a form.
func TestAGetChangesNothing(t *testing.T) {
	w := newWorld(t)
	fill(w)
	b := w.signedIn("boss", "battery staple")
	for _, path := range append(everyPage(w), "/plans/p1/approve", "/plans/p1/deny", "/plans/p7/run", "/group", "/signout", "/mandates/m1/revoke", "/clients/revoke?what=token&id=t1", "/switches/kill?to=on", "/switches/arm?minutes=5",
		"/approvers/disable?name=anna", "/approvers/roles?name=anna", "/approvers/passkey?id=k1", "/enrol/finish", "/plans/p1?approve=1&verdict=approve", "/settings?key=policy.wait_ttl&value=x") {
		b.get(path)
	}
	if w.gate.state("p1") != gate.PlanProposed || w.gate.state("p7") != gate.PlanApproved || len(w.gate.applied) > 0 || w.gate.sw.Killed != "" || !w.gate.sw.ArmedUntil.IsZero() || w.gate.mandates["m1"].Revoked != "" ||
		len(w.oauth.answered) > 0 || len(w.people.roles) != 3 || len(w.people.keys["boss"]) != 2 || w.gate.settings["policy.wait_ttl"] != "12h" {
		t.Error("a GET changed something")
	}
	if a := b.get("/"); a.status != http.StatusOK {
		t.Error("a GET signed out")
	}
}

func TestSigningInGivesANewSession(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	u, _ := url.Parse(w.srv.URL)
	b.c.Jar.SetCookies(u, []*http.Cookie{{Name: "castellan", Value: "planted", Path: "/"}})
	b.get("/signin")
	if b.cookie("castellan") != "" {
		t.Error("a planted cookie stays")
	}
	b.c.Jar.SetCookies(u, []*http.Cookie{{Name: "castellan", Value: "planted", Path: "/"}})
	b.post("/signin", "/signin", "name", "anna", "password", "correct horse")
	first := b.cookie("castellan")
	if first == "" || first == "planted" {
		t.Fatalf("session cookie %q", first)
	}
	b.post("/", "/signin", "name", "boss", "password", "battery staple")
	if second := b.cookie("castellan"); second == first || len(w.people.ended) != 1 || w.people.ended[0] != first {
		t.Errorf("the old session lives on: %v", w.people.ended)
	}
	last := b.cookie("castellan")
	if a := b.post("/", "/signout"); a.status != http.StatusSeeOther || b.cookie("castellan") != "" || w.people.ended[len(w.people.ended)-1] != last {
		t.Errorf("sign-out: %d", a.status)
	}
}

func TestSessionCookieOverHTTPS(t *testing.T) {
	w := newWorld(t)
	k, err := New(Config{Gate: w.gate, People: w.people, PublicURL: "https://castellan.example:8443"})
	if err != nil {
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "https://castellan.example:8443/signin", nil)
	k.Handler().ServeHTTP(rec, r)
	mark := rec.Result().Cookies()[0]
	form := formField.FindStringSubmatch(rec.Body.String())[1]
	r = httptest.NewRequest("POST", "https://castellan.example:8443/signin", strings.NewReader(url.Values{"form": {form}, "name": {"anna"}, "password": {"correct horse"}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "https://castellan.example:8443")
	r.Host = "castellan.example:8443"
	r.AddCookie(mark)
	rec = httptest.NewRecorder()
	k.Handler().ServeHTTP(rec, r)
	for _, c := range rec.Result().Cookies() {
		if !strings.HasPrefix(c.Name, "__Host-") || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" {
			t.Errorf("cookie %+v", c)
		}
	}
	if rec.Code != http.StatusSeeOther {
		t.Errorf("sign-in: %d %s", rec.Code, rec.Body)
	}
	for _, bad := range []string{"http://castellan.example", "castellan.example", "https://", "ftp://x", "https://a/b", "http://10.0.0.1"} {
		if _, err := New(Config{Gate: w.gate, People: w.people, PublicURL: bad}); err == nil {
			t.Errorf("public URL %q is taken", bad)
		}
	}
}

func TestNextStaysHere(t *testing.T) {
	for next, want := range map[string]string{
		"/plans/p1": "/plans/p1", "/authorize?client_id=https%3A%2F%2Fclaude.ai&state=a+b": "/authorize?client_id=https%3A%2F%2Fclaude.ai&state=a+b", "": "/", "//evil.example": "/", "https://evil.example": "/",
		`/\evil.example`: "/", "/\tevil": "/", "/%2F/evil.example": "/", "/\n/evil.example": "/", "javascript:alert(1)": "/", "evil.example": "/", "/%5Cevil.example": "/", "/ok\u202e": "/", "///evil.example": "/",
		"/@evil.example": "/@evil.example", "/" + strings.Repeat("a", 5000): "/",
	} {
		if got := safeNext(next); got != want {
			t.Errorf("%q leads to %q, want %q", next, got, want)
		}
	}
	w := newWorld(t)
	b := w.browser()
	a := b.post("/signin?next=https://evil.example", "/signin", "name", "anna", "password", "correct horse", "next", "//evil.example")
	if a.header.Get("Location") != "/" {
		t.Errorf("sign-in leads to %q", a.header.Get("Location"))
	}
}

func TestLockedOutIsSaid(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	for range 5 {
		if a := b.post("/signin", "/signin", "name", "anna", "password", "wrong"); a.status != http.StatusUnauthorized {
			t.Fatalf("wrong password: %d", a.status)
		}
	}
	a := b.post("/signin", "/signin", "name", "anna", "password", "correct horse")
	if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") != "90" || !strings.Contains(a.body, "Try again in") {
		t.Errorf("locked: %d, Retry-After %q", a.status, a.header.Get("Retry-After"))
	}
	unknown := b.post("/signin", "/signin", "name", "nobody", "password", "wrong")
	known := w.browser().post("/signin", "/signin", "name", "boss", "password", "wrong")
	if unknown.status != known.status || strings.ReplaceAll(unknown.body, "nobody", "boss") == "" {
		t.Errorf("a name that is there is answered otherwise: %d, %d", unknown.status, known.status)
	}
}
