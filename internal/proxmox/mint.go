package proxmox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/regex"
	"castellan/internal/rights"
	"castellan/internal/seal"
)

// Minter makes castellan's own user, roles and token at one Proxmox VE with a person's login, which lives as long as it does.
//
// It is the one writer that takes no gate.Permit. The gate judges what agents ask of castellan's token, by castellan's policy,
// into castellan's ledger; here there is neither token nor policy nor ledger yet, and who acts is a person with a login of
// their own, who is shown every request before. So the bounds lie here: it has no operation and no way in, sends to one pinned
// address, and sends nothing but the five requests that rights.Command can be, for one user that is not root.
type Minter struct {
	person string // USER@REALM who logs in
	want   rights.Want
	link   *link
	login  *login
	cred   credential
	now    func() time.Time
}

// MinterConfig is what a Minter is made from.
type MinterConfig struct {
	Address string // host or host:port
	Pins    []string
	Person  string      // USER@REALM who logs in
	Want    rights.Want // for whom rights may be given
	Clock   func() time.Time
}

// NewMinter checks the configuration; nothing is sent.
func NewMinter(c MinterConfig) (*Minter, error) {
	addr, err := address(kindPVE, c.Address)
	if err != nil {
		return nil, fmt.Errorf("make minter: address %w", err)
	}
	if err := c.Want.Check(); err != nil {
		return nil, fmt.Errorf("make minter: %w", err)
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if !strings.Contains(c.Person, "@") || strings.Contains(c.Person, "!") {
		return nil, fmt.Errorf("make minter: %.60q is no USER@REALM", c.Person)
	}
	tr := &trust{now: c.Clock}
	for _, text := range c.Pins {
		p, err := parsePin(text)
		if err != nil {
			return nil, fmt.Errorf("make minter: %w", err)
		}
		tr.pins = append(tr.pins, p)
	}
	if len(tr.pins) == 0 {
		return nil, errors.New("make minter: no fingerprint to hold the server to")
	}
	m := &Minter{person: c.Person, want: c.Want, now: c.Clock, link: newLink([]string{addr}, tr, 10*time.Second, nil, c.Clock)}
	m.login = &login{target: Target{Name: addr, Kind: kindPVE, User: c.Person}, now: c.Clock, post: func(ctx context.Context, addr string, form url.Values) (reply, error) {
		return m.link.once(ctx, addr, gate.Rendered{Method: http.MethodPost, Path: "/access/ticket", Body: form.Encode()}, nil, nil)
	}}
	return m, nil
}

// LogIn tries the password once; code is asked for where the server wants a second factor, and answers with that of an
// authenticator app or a recovery key.
func (m *Minter) LogIn(ctx context.Context, password string, code func() (string, error)) error {
	addr := m.link.addresses[0]
	got, err := m.login.ask(ctx, addr, url.Values{"username": {m.person}, "password": {password}})
	if err != nil {
		return m.said(err)
	}
	if got.challenge != "" {
		text, err := code()
		if err != nil {
			return err
		}
		if kind := "recovery"; !strings.Contains(text, ":") {
			if strings.Trim(text, "0123456789") == "" {
				kind = "totp"
			}
			text = kind + ":" + text
		}
		if got, err = m.login.ask(ctx, addr, url.Values{"username": {m.person}, "password": {text}, "tfa-challenge": {got.Ticket}}); err != nil {
			return m.said(err)
		}
	}
	if got.challenge != "" {
		return m.said(m.login.refusal("the second factor was taken, and another one asked for"))
	}
	m.cred = credential{ticket: got.ticket(kindPVE, m.now())}
	return nil
}

// said gives a refusal the words for a person who types.
func (m *Minter) said(err error) error {
	if Refused(err) {
		return gate.Fail(gate.ErrDenied, "Check user, realm (pam or pve), password and code. Nothing was changed.", "%s is not let in at %s", m.person, m.link.addresses[0])
	}
	var up *gate.UpstreamError
	if errors.As(err, &up) {
		return up
	}
	return transportFailure(err, false)
}

func (m *Minter) read(ctx context.Context, path, query string) (json.RawMessage, error) {
	rep, err := m.link.fetch(ctx, m.link.addresses[0], gate.Rendered{Method: http.MethodGet, Path: path, Query: query}, &m.cred)
	if err != nil {
		return nil, transportFailure(err, false)
	}
	a, fail := rep.answer(kindPVE, false)
	if fail != nil {
		return nil, fmt.Errorf("read %s: %w", path, fail)
	}
	return a.Data, nil
}

// Look reads the version, and what there is of users, roles and entries.
func (m *Minter) Look(ctx context.Context) (rights.Version, *rights.State, error) {
	var parts [4]json.RawMessage
	for i, path := range []string{"/version", "/access/users", "/access/roles", "/access/acl"} {
		query := ""
		if path == "/access/users" {
			query = "full=1"
		}
		var err error
		if parts[i], err = m.read(ctx, path, query); err != nil {
			return rights.Version{}, nil, err
		}
	}
	var v struct{ Version string }
	if err := json.Unmarshal(parts[0], &v); err != nil {
		return rights.Version{}, nil, fmt.Errorf("read version: %w", err)
	}
	version, err := rights.ParseVersion(v.Version)
	if err != nil {
		return rights.Version{}, nil, err
	}
	state, err := rights.Read(parts[1], parts[2], parts[3])
	return version, state, err
}

// Permits says whether a command is one that may be sent: of the five kinds, and for the user that was named.
func (m *Minter) Permits(c rights.Command) error {
	p := c.Params
	own := func(ids ...string) bool {
		for _, id := range ids {
			if id != "" && id != m.want.User && id != m.want.TokenID() {
				return false
			}
		}
		return true
	}
	ok := false
	switch c.Operation {
	case "POST /access/users":
		ok = p["userid"] == m.want.User && p["password"] == ""
	case "POST /access/roles", "PUT /access/roles/{roleid}":
		ok = slices.ContainsFunc(m.want.Roles(), func(r rights.Role) bool { return r.Name == p["roleid"] })
	case "POST /access/users/{userid}/token/{tokenid}":
		ok = p["userid"] == m.want.User && p["tokenid"] == m.want.Token && p["privsep"] == "1"
	case "PUT /access/acl":
		ok = own(p["users"], p["tokens"]) && p["groups"] == "" && p["delete"] == "" && p["users"]+p["tokens"] != ""
	}
	if !ok {
		return fmt.Errorf("%s is not among what may be done with a person's login", c.Operation)
	}
	return nil
}

// tokenValue is the form of a token's secret.
var tokenValue = &regex.Lazy{Expr: `^[A-Za-z0-9-]{16,128}$`}

// Give carries one command out, once. Of a token it returns USER@REALM!ID=SECRET, which the server tells this one time.
func (m *Minter) Give(ctx context.Context, c rights.Command) (seal.Secret, error) {
	if err := m.Permits(c); err != nil {
		return seal.Secret{}, err
	}
	method, path, _ := strings.Cut(c.Operation, " ")
	form := url.Values{}
	for name, value := range c.Params {
		if mark := "{" + name + "}"; strings.Contains(path, mark) {
			path = strings.Replace(path, mark, url.PathEscape(value), 1)
			continue
		}
		form.Set(name, value)
	}
	rep, err := m.link.once(ctx, m.link.addresses[0], gate.Rendered{Method: method, Path: path, Body: form.Encode()}, &m.cred, nil)
	if err != nil {
		return seal.Secret{}, transportFailure(err, true)
	}
	a, fail := rep.answer(kindPVE, false)
	if fail != nil {
		return seal.Secret{}, fail
	}
	var made struct {
		ID    string `json:"full-tokenid"`
		Value string `json:"value"`
	}
	if method == http.MethodPost && strings.Contains(path, "/token/") {
		if json.Unmarshal(a.Data, &made) != nil || made.ID == "" || made.Value == "" {
			return seal.Secret{}, errors.New("the token was made, but the answer does not tell its secret: remove it and make it again")
		}
		if made.ID != m.want.TokenID() || !tokenValue.MatchString(made.Value) {
			return seal.Secret{}, errors.New("the answer names another token than the one asked for, or no secret of one: nothing of it is kept; look what was made, and whom you are talking to")
		}
		return seal.NewSecret([]byte(made.ID + "=" + made.Value)), nil
	}
	return seal.Secret{}, nil
}

// Close drops the connection and the login with it.
func (m *Minter) Close() {
	m.cred = credential{}
	m.link.pool.CloseIdleConnections()
}
