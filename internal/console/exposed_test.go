package console

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
	"castellan/internal/oauth"
)

// TestCookieOfAnotherPort: over plain http a browser sends the session to every port of the host, so a program on the
// machine that the person looked at has it. What it does with it approves nothing.
func TestCookieOfAnotherPort(t *testing.T) {
	w := newWorld(t)
	w.pages.exposed = true
	w.gate.plans["p1"], w.gate.plans["p2"] = rollback("p1", "101", w.at), rollback("p2", "102", w.at)
	digest := w.gate.plans["p1"].Plan.Digest
	person := w.signedIn("anna", "correct horse")
	thief := w.browser()
	thief.head.Set("Cookie", "castellan="+person.cookie("castellan"))
	pair := func(id string) string { return id + ":" + w.gate.plans[id].Plan.Digest }
	const asks = "/authorize?client_id=https://claude.ai/c"
	mandate := []string{"for", "claude|anna", "operation", "start_guest", "target", "home", "objects", "guest/101", "count", "1", "from", w.at.Format(minuteForm), "until", w.at.Add(time.Hour).Format(minuteForm)}
	try := func(what string) {
		t.Helper()
		for _, extra := range [][]string{nil, {"password", "wrong"}, {"ticket", "x", "response", "{}"}} {
			if a := thief.post("/plans/p1", "/plans/p1/approve", append([]string{"digest", digest}, extra...)...); a.status == http.StatusSeeOther {
				t.Errorf("%s: approved with %v", what, extra)
			}
			if a := thief.post("/", "/group", append([]string{"plan", pair("p1"), "plan", pair("p2")}, extra...)...); a.status == http.StatusOK {
				t.Errorf("%s: approved together with %v", what, extra)
			}
			if a := thief.post("/mandates", "/mandates", append(mandate, extra...)...); a.status == http.StatusSeeOther {
				t.Errorf("%s: mandate given with %v", what, extra)
			}
			if a := thief.post(asks, "/authorize", append([]string{"ticket", "t", "answer", "allow", "scope", "read"}, extra...)...); a.status == http.StatusSeeOther || len(w.oauth.answered) > 0 {
				t.Errorf("%s: let a client in with %v", what, extra)
			}
		}
		if w.gate.state("p1") != gate.PlanProposed || w.gate.state("p2") != gate.PlanProposed || len(w.gate.mandates) != 0 {
			t.Errorf("%s: %s, %s, %d mandates", what, w.gate.state("p1"), w.gate.state("p2"), len(w.gate.mandates))
		}
	}
	w.oauth.asked, w.oauth.remembered = &oauth.Asked{Ticket: "t", ClientID: "https://claude.ai/c", ClientHost: "claude.ai", RedirectURI: "https://claude.ai/api/mcp/auth_callback", Scopes: []string{"read"}}, "https://claude.ai/api/mcp/auth_callback?code=c"
	try("with a password")
	if page := person.get("/plans/p1").body; !strings.Contains(page, `name="password"`) {
		t.Error("the page does not ask for the password")
	}
	if a := person.post("/plans/p1", "/plans/p1/approve", "digest", digest, "password", "correct horse"); a.status != http.StatusSeeOther || w.gate.state("p1") != gate.PlanApproved {
		t.Errorf("the person: %d\n%s", a.status, a.body)
	}
	if a := person.post(asks, "/authorize", "ticket", "t", "answer", "allow", "scope", "read", "password", "correct horse"); a.status != http.StatusSeeOther || len(w.oauth.answered) != 1 {
		t.Errorf("the person lets a client in: %d\n%s", a.status, a.body)
	}
	w.oauth.answered = nil
	w.gate.plans["p1"] = rollback("p1", "101", w.at)
	if a := person.post("/group?plan=p1&plan=p2", "/group", "plan", pair("p1"), "plan", pair("p2"), "password", "correct horse"); a.status != http.StatusOK || w.gate.state("p1") != gate.PlanApproved {
		t.Errorf("the person, of two: %d\n%s", a.status, a.body)
	}
	w.gate.plans["p1"], w.gate.plans["p2"] = rollback("p1", "101", w.at), rollback("p2", "102", w.at)
	w.people.keys["anna"] = []identity.Credential{{ID: "k", Name: "key"}}
	thief.head.Set("Cookie", "castellan="+person.cookie("castellan"))
	try("with a passkey")
	if page := person.get("/plans/p1").body; !strings.Contains(page, `data-start="/plans/p1/challenge"`) {
		t.Error("the page does not ask for the passkey")
	}
}
