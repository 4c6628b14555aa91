package oauth

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
)

func TestMint(t *testing.T) {
	h := newHouse(t, usual())
	admin := session("ann", "administrator")
	good := MintRequest{Name: "backup", Agent: "cron", Person: "ann", Roles: []string{"viewer"}, Until: h.now().Add(time.Hour)}
	for name, tt := range map[string]struct {
		who    gate.Principal
		change func(*MintRequest)
	}{
		"an agent":         {gate.Principal{Agent: "claude", Person: "ann", Strength: gate.StrengthAccount}, nil},
		"a token":          {gate.Principal{Agent: "", Person: "ann", Strength: gate.StrengthToken, Roles: []string{"administrator"}}, nil},
		"no administrator": {session("ann", "operator", "approver"), nil},
		"nobody":           {gate.Principal{Strength: gate.StrengthAccount}, nil},
		"role approver":    {admin, func(m *MintRequest) { m.Roles = []string{"viewer", "approver"} }},
		"role of none":     {admin, func(m *MintRequest) { m.Roles = nil }},
		"other role":       {admin, func(m *MintRequest) { m.Roles = []string{"root"} }},
		"more than has":    {admin, func(m *MintRequest) { m.Person, m.Roles = "vic", []string{"operator"} }},
		"nobody's":         {admin, func(m *MintRequest) { m.Person = "eve" }},
		"no person":        {admin, func(m *MintRequest) { m.Person = "" }},
		"bad name":         {admin, func(m *MintRequest) { m.Name = "a b" }},
		"no name":          {admin, func(m *MintRequest) { m.Name = "" }},
		"like a client":    {admin, func(m *MintRequest) { m.Agent = "static:pub" }},
		"over":             {admin, func(m *MintRequest) { m.Until = h.now() }},
		"for ever":         {admin, func(m *MintRequest) { m.Until = h.now().Add(400 * 24 * time.Hour) }},
	} {
		m := good
		if tt.change != nil {
			tt.change(&m)
		}
		var e *gate.Error
		if out, err := h.s.Mint(ctx, tt.who, m); !errors.As(err, &e) || e.Hint == "" {
			t.Errorf("%s: %+v %v", name, out, err)
		}
	}
	out, err := h.s.Mint(ctx, admin, good)
	if err != nil {
		t.Fatal(err)
	}
	if s := fmt.Sprintf("%v %+v", out, *out); strings.Contains(s, out.Token.Reveal()) {
		t.Errorf("the token prints: %s", s)
	}
	text := out.Token.Reveal()
	c := h.mustBearer(text)
	if c.Principal.Key() != "cron|ann" || !slices.Equal(c.Principal.Roles, []string{"viewer"}) || c.Principal.Strength != gate.StrengthToken || c.TokenID != out.ID || !slices.Equal(c.Scopes, []string{"read"}) {
		t.Errorf("%+v", c)
	}
	h.recorded("token_issued", "minted")
	if _, err := h.s.Mint(ctx, admin, good); err == nil {
		t.Error("two of one name")
	}
	if now, err := h.s.Standing(ctx, c.Principal); err != nil || !slices.Equal(now.Roles, []string{"viewer"}) {
		t.Errorf("%+v %v", now, err)
	}
	list, err := h.s.Tokens(ctx)
	if err != nil || len(list) != 1 || list[0].Kind != "static" || !list[0].Live(h.now()) {
		t.Errorf("%+v %v", list, err)
	}
	if err := h.s.RevokeToken(ctx, gate.Principal{Agent: "cron", Person: "ann", Strength: gate.StrengthToken}, out.ID); err == nil {
		t.Error("an agent revoked it by its id")
	}
	if err := h.s.RevokeToken(ctx, session("vic", "viewer"), out.ID); err == nil {
		t.Error("somebody else revoked it")
	}
	h.recorded("revoke_denied", "")
	if err := h.s.RevokeToken(ctx, session("ann", "operator"), out.ID); err != nil {
		t.Error(err)
	}
	h.mustRefuse(text, "revoked")
	if out, err = h.s.Mint(ctx, gate.Principal{Person: "root", Strength: gate.StrengthAccount}, good); err != nil {
		t.Fatal(err)
	}
	h.pass(time.Hour)
	h.mustRefuse(out.Token.Reveal(), "expired")
}

func TestListingsAndRevocationByPeople(t *testing.T) {
	h := newHouse(t, usual())
	dyn := h.register(`{"redirect_uris":["http://127.0.0.1/callback"],"client_name":"Goose"}`)
	a, b := h.tokens(), h.tokens("client_id", dyn.ID, "redirect_uri", "http://127.0.0.1:5/callback")
	h.person = session("vic")
	v := h.tokens("scope", "read")
	clients, err := h.s.Clients(ctx)
	if err != nil || len(clients) != 5 {
		t.Fatalf("%+v %v", clients, err)
	}
	for _, c := range clients {
		if want := map[string]int{"pub": 2, dyn.ID: 1}[c.ID]; c.Live != want {
			t.Errorf("%+v", c)
		}
	}
	tokens, err := h.s.Tokens(ctx)
	if err != nil || len(tokens) != 3 {
		t.Fatalf("%+v %v", tokens, err)
	}
	admin := session("ann", "administrator")
	if err := h.s.RevokeClient(ctx, session("vic", "viewer"), dyn.ID); err == nil {
		t.Error("a viewer revoked a client")
	}
	if err := h.s.RevokeClient(ctx, admin, "nobody"); err == nil {
		t.Error("a client that there is not was revoked")
	}
	if err := h.s.RevokeClient(ctx, admin, dyn.ID); err != nil {
		t.Fatal(err)
	}
	h.mustRefuse(b.Access, "grant_ended")
	if r := h.post("/token", h.refreshed(b.Refresh, "client_id", dyn.ID)); r.Status != 401 || r.Error != "invalid_client" {
		t.Errorf("%+v", r)
	}
	h.mustBearer(a.Access)
	open := h.code("scope", "read")
	if err := h.s.RevokePerson(ctx, admin, "vic"); err != nil {
		t.Fatal(err)
	}
	h.mustRefuse(v.Access, "grant_ended")
	if r := h.post("/token", h.redeemed(open)); r.Error != "invalid_grant" {
		t.Errorf("a code from before: %+v", r)
	}
	h.mustBearer(a.Access)
	if err := h.s.RevokeToken(ctx, admin, idOf(a.Access)); err != nil {
		t.Fatal(err)
	}
	h.mustRefuse(a.Access, "revoked")
	if err := h.s.RevokeToken(ctx, admin, idOf(a.Refresh)); err != nil {
		t.Fatal(err)
	}
	if r := h.post("/token", h.refreshed(a.Refresh)); r.Error != "invalid_grant" {
		t.Errorf("%+v", r)
	}
}
