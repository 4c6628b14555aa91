package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/seal"
)

func TestBearersRefused(t *testing.T) {
	h := newHouse(t, usual())
	r := h.tokens()
	for _, token := range []string{"", "x", r.Access + "x", r.Access[:len(r.Access)-1], strings.ToUpper(r.Access), " " + r.Access, r.Refresh, h.code(), "cst_" + r.Access[4:], "crt_" + r.Access[4:], r.Access + "\x00", strings.Repeat("x", 1<<20)} {
		h.pass(foldFor)
		if c, err := h.bearer(token); err == nil || asRefused(err).Status != 401 {
			t.Errorf("%.60q: %+v %v", token, c, err)
		}
	}
	wrong := r.Access[:len(r.Access)-1] + "A"
	if wrong == r.Access {
		wrong = r.Access[:len(r.Access)-1] + "B"
	}
	h.mustRefuse(wrong, "wrong_token")
	h.mustRefuse("cat_aaaaaaaaaaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaa", "unknown_token")
	h.mustBearer(r.Access)
}

// alter changes the stored document of a token with knowledge of the form, but not of the key.

func (h *house) alter(kind, id string, change func(d *gate.Doc, body map[string]any)) {
	h.t.Helper()
	err := h.store.Update(ctx, func(tx gate.Tx) error {
		d, err := tx.Doc(kind, id)
		if err != nil {
			return err
		}
		body := map[string]any{}
		if err := json.Unmarshal(d.Body[macLen:], &body); err != nil {
			return err
		}
		change(d, body)
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		d.Body = append(d.Body[:macLen:macLen], text...)
		return tx.PutDoc(d)
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

func idOf(token string) string { return token[4 : 4+idLen] }

func TestChangedRowsAreRefused(t *testing.T) {
	h := newHouse(t, Settings{Failures: 1000, Clients: usual().Clients})
	later := time.Now().Add(9999 * time.Hour)
	for name, change := range map[string]func(*gate.Doc, map[string]any){
		"nothing but the version": func(*gate.Doc, map[string]any) {},
		"longer":                  func(_ *gate.Doc, b map[string]any) { b["until"] = later },
		"expiry of the row":       func(d *gate.Doc, _ map[string]any) { d.Expires = later },
		"wider":                   func(_ *gate.Doc, b map[string]any) { b["scopes"] = []string{"read", "operate"} },
		"other grant":             func(_ *gate.Doc, b map[string]any) { b["grant"] = "aaaaaaaaaaaaaaaa" },
		"own hash": func(_ *gate.Doc, b map[string]any) {
			b["hash"] = seal.HashToken("aaaaaaaaaaaaaaaaaaaaaaaa", "oauth cat_", "aaaaaaaaaaaaaaaa")
		},
		"other owner": func(d *gate.Doc, _ map[string]any) { d.Owner = "eve" },
	} {
		t.Run(name, func(t *testing.T) {
			r := h.tokens("scope", "read offline_access")
			h.alter(kindToken, idOf(r.Access), change)
			h.mustRefuse(r.Access, "altered")
			h.alter(kindToken, idOf(r.Refresh), change)
			if got := h.post("/token", h.refreshed(r.Refresh)); got.Error != "invalid_grant" {
				t.Errorf("%+v", got)
			}
			code := h.code()
			h.alter(kindCode, idOf(code), change)
			if got := h.post("/token", h.redeemed(code)); got.Error != "invalid_grant" {
				t.Errorf("%+v", got)
			}
			h.recorded("token_denied", "altered")
		})
	}
	t.Run("the grant", func(t *testing.T) {
		r := h.tokens()
		c := h.mustBearer(r.Access)
		h.alter(kindGrant, c.Grant, func(_ *gate.Doc, b map[string]any) { b["person"] = "boss" })
		h.mustRefuse(r.Access, "grant_gone")
	})
	t.Run("a row of another", func(t *testing.T) {
		a, b := h.tokens(), h.tokens("scope", "read")
		err := h.store.Update(ctx, func(tx gate.Tx) error {
			from, err := tx.Doc(kindToken, idOf(a.Access))
			if err != nil {
				return err
			}
			to, err := tx.Doc(kindToken, idOf(b.Access))
			if err != nil {
				return err
			}
			to.Body, to.Owner, to.Expires = from.Body, from.Owner, from.Expires
			return tx.PutDoc(to)
		})
		if err != nil {
			t.Fatal(err)
		}
		h.mustRefuse(b.Access, "altered")
		h.mustRefuse(b.Access[:4+idLen]+a.Access[4+idLen:], "altered")
	})
	t.Run("a client that was written in", func(t *testing.T) {
		err := h.store.Update(ctx, func(tx gate.Tx) error {
			return tx.PutDoc(&gate.Doc{Kind: kindClient, ID: "dyn-aaaaaaaaaaaaaaaa", Owner: KindDynamic, Body: append(make([]byte, macLen), `{"id":"dyn-aaaaaaaaaaaaaaaa","kind":"dynamic","redirects":["https://evil.example.org/"],"scopes":["operate"]}`...)})
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.s.Authorize(ctx, h.request("client_id", "dyn-aaaaaaaaaaaaaaaa", "redirect_uri", "https://evil.example.org/"), h.from()); err == nil {
			t.Error("it is known")
		}
	})
	t.Run("the keys of another", func(t *testing.T) {
		keys, err := seal.CreateKeys(h.dir + "/other-keys")
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{Store: h.store, Keys: keys, Issuer: h.url, People: h.people, Clock: h.now, Settings: usual(), Secrets: func(string) (seal.Secret, error) { return seal.NewSecret([]byte(clientSecret)), nil }})
		if err != nil {
			t.Fatal(err)
		}
		r := h.tokens()
		if _, err := s.Bearer(ctx, r.Access, Remote{}); err == nil {
			t.Error("a token of other keys is taken")
		}
	})
}

func TestAuthorityIsTheIntersection(t *testing.T) {
	h := newHouse(t, usual(), func(c *Config) { c.Roles = []string{"team-a"} })
	r := h.tokens()
	roles := func() string { return fmt.Sprint(h.mustBearer(r.Access).Principal.Roles) }
	for _, tt := range []struct {
		has  []string
		want string
	}{
		{[]string{"operator"}, "[operator viewer]"}, {[]string{"viewer"}, "[viewer]"}, {[]string{"viewer", "operator", "approver", "administrator"}, "[operator viewer]"},
		{[]string{"operator", "team-a"}, "[operator team-a viewer]"},
	} {
		h.people.set("ann", tt.has...)
		if got := roles(); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.has, got, tt.want)
		}
	}
	// To have no role of ours is to have no access: nothing would limit such a caller.
	for _, has := range [][]string{{"approver"}, {"administrator", "approver"}, {"team-a"}, {}} {
		h.people.set("ann", has...)
		h.mustRefuse(r.Access, "person_ended")
	}
	h.people.set("ann", "operator")
	soon := h.now().Add(2 * time.Hour).UTC()
	h.people.until["ann"] = soon
	if c := h.mustBearer(r.Access); !c.Principal.Until.Equal(soon) {
		t.Errorf("until %v", c.Principal.Until)
	}
	h.people.until["ann"] = h.now()
	h.mustRefuse(r.Access, "person_ended")
	delete(h.people.until, "ann")
	h.people.set("ann")
	h.mustRefuse(r.Access, "person_ended")
	h.people.set("ann", "operator")
	h.mustBearer(r.Access)
	h.people.failing = true
	if _, err := h.bearer(r.Access); asRefused(err).Status != 503 {
		t.Errorf("people cannot be asked: %v", err)
	}
	if r := h.post("/token", h.refreshed(r.Refresh)); r.Status != 503 || r.Error != "temporarily_unavailable" {
		t.Errorf("%+v", r)
	}
}

// liar says of everybody that they are what they were asked as.

type liar struct{}

func (liar) Standing(_ context.Context, p gate.Principal) (gate.Principal, error) {
	p.Roles = []string{"administrator", "approver", "operator", "root"}
	return p, nil
}

func TestNoRoleReachesApproval(t *testing.T) {
	h := newHouse(t, usual(), func(c *Config) { c.People = liar{} })
	for _, scope := range []string{"read", "operate", "read operate offline_access", "read approve approver administrator"} {
		r := h.tokens("scope", scope)
		for _, role := range h.mustBearer(r.Access).Principal.Roles {
			if role == gate.RoleApprover || role == gate.RoleAdministrator {
				t.Errorf("%s gives %s", scope, role)
			}
		}
	}
}

func TestStanding(t *testing.T) {
	h := newHouse(t, usual())
	r := h.tokens()
	c := h.mustBearer(r.Access)
	now, err := h.s.Standing(ctx, c.Principal)
	if err != nil || now.Key() != c.Principal.Key() || !slices.Equal(now.Roles, []string{"operator", "viewer"}) || now.Until.Before(h.now().Add(29*24*time.Hour)) || now.Strength != gate.StrengthToken {
		t.Errorf("%+v %v", now, err)
	}
	// It never has more than it had when it asked.
	less := c.Principal
	less.Roles = []string{"viewer"}
	if now, err := h.s.Standing(ctx, less); err != nil || !slices.Equal(now.Roles, []string{"viewer"}) {
		t.Errorf("%+v %v", now, err)
	}
	h.people.set("ann", "viewer")
	if now, err := h.s.Standing(ctx, c.Principal); err != nil || !slices.Equal(now.Roles, []string{"viewer"}) {
		t.Errorf("%+v %v", now, err)
	}
	h.people.set("ann", "operator")
	// The access token may end; the connection holds.
	h.pass(2 * time.Hour)
	if _, err := h.s.Standing(ctx, c.Principal); err != nil {
		t.Error(err)
	}
	for name, p := range map[string]gate.Principal{
		"another agent":  {Agent: "static:other", Person: "ann", Strength: gate.StrengthToken, Roles: []string{"operator"}},
		"another person": {Agent: "static:pub", Person: "vic", Strength: gate.StrengthToken, Roles: []string{"operator"}},
		"no agent":       {Person: "ann", Strength: gate.StrengthToken, Roles: []string{"operator"}},
		"a session":      {Agent: "static:pub", Person: "ann", Strength: gate.StrengthSession, Roles: []string{"operator"}},
		"no roles":       {Agent: "static:pub", Person: "ann", Strength: gate.StrengthToken},
		"an approver":    {Agent: "static:pub", Person: "ann", Strength: gate.StrengthToken, Roles: []string{"approver"}},
	} {
		if now, err := h.s.Standing(ctx, p); err == nil {
			t.Errorf("%s has %+v", name, now)
		}
	}
	if err := h.s.RevokeToken(ctx, session("ann"), c.Grant); err != nil {
		t.Fatal(err)
	}
	if _, err := h.s.Standing(ctx, c.Principal); err == nil {
		t.Error("a connection that was revoked has standing")
	}
	h.people.failing = true
	var e *gate.Error
	h.people.failing = false
	h.tokens()
	h.people.failing = true
	if _, err := h.s.Standing(ctx, c.Principal); !errors.As(err, &e) || e.Kind != gate.ErrUnavailable {
		t.Errorf("%v", err)
	}
}

func TestChallenges(t *testing.T) {
	h := newHouse(t, usual())
	if got, want := h.s.Challenge(nil), `Bearer resource_metadata="`+h.url+`/.well-known/oauth-protected-resource/mcp", scope="read operate"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := h.s.Challenge(errToken); !strings.HasPrefix(got, `Bearer error="invalid_token", error_description="`) {
		t.Error(got)
	}
	c := Caller{Scopes: []string{"read", "offline_access"}, Grant: "x", Principal: gate.Principal{Person: "ann"}}
	if got := h.s.StepUp(c, "operate"); !strings.HasPrefix(got, `Bearer error="insufficient_scope"`) || !strings.HasSuffix(got, `scope="read operate offline_access"`) {
		t.Error(got)
	}
	if lacks, err := h.s.Lacks(ctx, c, "operator"); err != nil || !slices.Equal(lacks, []string{"operate"}) {
		t.Error(lacks, err)
	}
	c.Principal.Person = "vic" // more scopes would not help
	if lacks, err := h.s.Lacks(ctx, c, "operator"); err != nil || len(lacks) != 0 {
		t.Error(lacks, err)
	}
	for header, want := range map[string]string{"Bearer abc": "abc", "bearer abc": "abc", "Basic abc": "!", "Bearer": "!", "Bearer ": "!", "Bearer a b": "!", "Bearer a,Bearer b": "!"} {
		r := httptest.NewRequest("GET", "/mcp?access_token=x", nil)
		r.Header.Set("Authorization", header)
		got, err := BearerText(r)
		if err != nil {
			got = "!"
		}
		if got != want {
			t.Errorf("%q: %q %v", header, got, err)
		}
	}
	r := httptest.NewRequest("GET", "/mcp?access_token=x", nil)
	if got, err := BearerText(r); got != "" || err != nil {
		t.Error(got, err)
	}
	r.Header["Authorization"] = []string{"Bearer a", "Bearer b"}
	if _, err := BearerText(r); err == nil {
		t.Error("two headers")
	}
}

func TestRefusedBearersAreFolded(t *testing.T) {
	h := newHouse(t, usual())
	for range 10 {
		h.bearer("x")
	}
	if n := len(h.records("access_denied")); n != 1 {
		t.Errorf("%d records", n)
	}
	h.pass(foldFor)
	h.bearer("x")
	if data := h.recorded("access_denied", "malformed"); data["left_out"] != "9" {
		t.Errorf("%v", data)
	}
}

func TestClosedWithoutStore(t *testing.T) {
	h := newHouse(t, usual())
	r := h.tokens()
	code := h.code()
	for _, c := range []Config{{}, {Store: h.store}, {Store: h.store, Keys: h.keys}, {Keys: h.keys, People: h.people}, {Store: h.store, People: h.people}} {
		c.Issuer = h.url
		if _, err := New(c); err == nil {
			t.Errorf("%+v makes a server", c)
		}
	}
	h.store.Close()
	if _, err := h.bearer(r.Access); asRefused(err).Status != 503 {
		t.Errorf("bearer: %v", err)
	}
	for name, got := range map[string]reply{"code": h.post("/token", h.redeemed(code)), "refresh": h.post("/token", h.refreshed(r.Refresh)), "revoke": h.post("/revoke", map[string][]string{"token": {r.Access}}),
		"register": h.register(`{"redirect_uris":["http://127.0.0.1/callback"]}`)} {
		if got.Status != 503 || got.Access != "" || got.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if _, err := h.s.Authorize(ctx, h.request(), h.from()); err == nil {
		t.Error("authorize")
	}
	if got := h.s.Challenge(asRefused(&Refused{Status: 503})); strings.Contains(got, "error") {
		t.Error(got)
	}
}
