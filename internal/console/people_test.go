package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
)

// fakePeople keeps accounts, sessions and credentials.
type fakePeople struct {
	mu       sync.Mutex
	now      func() time.Time
	secrets  map[string]string
	roles    map[string][]string
	until    map[string]time.Time
	sessions map[string]gate.Principal
	keys     map[string][]identity.Credential
	failures map[string]int
	n        int
	ended    []string
	down     error  // what Session says instead
	agent    string // what browsers call themselves
}

func newFakePeople(now func() time.Time) *fakePeople {
	return &fakePeople{now: now, secrets: map[string]string{}, roles: map[string][]string{}, until: map[string]time.Time{}, sessions: map[string]gate.Principal{},
		keys: map[string][]identity.Credential{}, failures: map[string]int{}}
}

func (p *fakePeople) add(name, password string, roles ...string) {
	p.secrets[name], p.roles[name] = password, roles
}

func (p *fakePeople) open(name string, s gate.Strength) identity.Session {
	p.n++
	token := fmt.Sprintf("session-%s-%d", name, p.n)
	who := gate.Principal{Person: name, WayIn: "console", Strength: s, Roles: p.roles[name], Until: p.until[name]}
	p.sessions[token] = who
	return identity.Session{Token: token, Principal: who, Expires: p.now().Add(8 * time.Hour)}
}

func (p *fakePeople) Session(_ context.Context, token string) (gate.Principal, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	who, ok := p.sessions[token]
	if p.down != nil {
		return who, p.down
	}
	if !ok {
		return who, gate.Fail(gate.ErrDenied, "Sign in.", "nobody is signed in here")
	}
	who.Roles = p.roles[who.Person]
	return who, nil
}

func (p *fakePeople) Password(_ context.Context, name, password string, _ identity.Remote) (identity.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failures[name] >= 5 {
		return identity.Session{}, &identity.Locked{RetryAfter: 90 * time.Second, What: "this account"}
	}
	if want, ok := p.secrets[name]; !ok || want != password {
		p.failures[name]++
		return identity.Session{}, gate.Fail(gate.ErrDenied, "", "name or password is wrong")
	}
	return p.open(name, gate.StrengthSession), nil
}

func (p *fakePeople) PasskeyStart(context.Context) (json.RawMessage, string, error) {
	return json.RawMessage(`{"challenge":"AAAA"}`), "signin", nil
}

// PasskeyFinish takes {"person":"..."} for an answer.
func (p *fakePeople) PasskeyFinish(_ context.Context, ticket string, response json.RawMessage, _ identity.Remote) (identity.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var a struct{ Person string }
	if json.Unmarshal(response, &a) != nil || ticket != "signin" || len(p.keys[a.Person]) == 0 {
		return identity.Session{}, gate.Fail(gate.ErrDenied, "", "the passkey was not accepted")
	}
	return p.open(a.Person, gate.StrengthPasskey), nil
}

func (p *fakePeople) SignOut(_ context.Context, token string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, token)
	p.ended = append(p.ended, token)
	return nil
}

func (p *fakePeople) EnrolStart(_ context.Context, _, code string) (json.RawMessage, string, error) {
	if code != "CODE" {
		return nil, "", gate.Fail(gate.ErrDenied, "Ask the administrator of the machine for one.", "that is not the one-time code")
	}
	return json.RawMessage(`{"challenge":"AAAA","user":{"id":"AA"}}`), "enrol", nil
}

func (p *fakePeople) EnrolFinish(ctx context.Context, session, _ string, _ json.RawMessage, name string) error {
	who, err := p.Session(ctx, session)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys[who.Person] = append(p.keys[who.Person], identity.Credential{ID: fmt.Sprint("k", len(p.keys[who.Person])), Name: name, Enrolled: p.now(), MayApprove: p.now()})
	return nil
}

func (p *fakePeople) Credentials(_ context.Context, person string) ([]identity.Credential, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.keys[person]), nil
}

func (p *fakePeople) RemoveCredential(ctx context.Context, session, id string) error {
	who, err := p.Session(ctx, session)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys[who.Person] = slices.DeleteFunc(p.keys[who.Person], func(k identity.Credential) bool { return k.ID == id })
	return nil
}

func (p *fakePeople) Accounts(context.Context) ([]*identity.Account, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*identity.Account
	for name, roles := range p.roles {
		out = append(out, &identity.Account{Name: name, Roles: roles, Until: p.until[name]})
	}
	slices.SortFunc(out, func(a, b *identity.Account) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (p *fakePeople) SetRoles(_ context.Context, _ gate.Principal, name string, roles []string, until time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.roles[name], p.until[name] = roles, until
	return nil
}

func (p *fakePeople) Disable(_ context.Context, _ gate.Principal, name string, _ bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.roles, name)
	return nil
}

func (p *fakePeople) PasskeyProblem() error { return nil }

func (p *fakePeople) RequestOptions(_ context.Context, _ string, challenge []byte) (json.RawMessage, error) {
	return json.Marshal(map[string]any{"challenge": challenge, "userVerification": "required"})
}

func (p *fakePeople) RealmLogin(ctx context.Context, realm, name, password, totp string, from identity.Remote) (identity.Session, error) {
	if realm != "site" || totp != "123456" {
		return identity.Session{}, gate.Fail(gate.ErrDenied, "", "the realm said no")
	}
	return p.Password(ctx, name, password, from)
}

func (p *fakePeople) OIDCStart(_ context.Context, name string) (string, string, error) {
	if name != "keycloak" {
		return "", "", gate.Fail(gate.ErrInvalid, "", "there is no provider %q", name)
	}
	return "https://sso.example/auth?state=s", "away", nil
}

func (p *fakePeople) OIDCFinish(_ context.Context, ticket string, q url.Values, _ identity.Remote) (identity.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ticket != "away" || q.Get("state") != "s" {
		return identity.Session{}, gate.Fail(gate.ErrDenied, "", "the answer is to another question")
	}
	return p.open("anna", gate.StrengthSession), nil
}

func (p *fakePeople) Access(_ context.Context, r *http.Request, _ identity.Remote) (identity.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Header.Get("Cf-Access-Jwt-Assertion") != "good" {
		return identity.Session{}, gate.Fail(gate.ErrDenied, "", "no assertion")
	}
	return p.open("anna", gate.StrengthSession), nil
}

func (p *fakePeople) VouchStart(context.Context, string, string) (json.RawMessage, string, error) {
	return json.RawMessage(`{"challenge":"AAAA"}`), "vouch", nil
}

func (p *fakePeople) VouchFinish(_ context.Context, _, ticket string, _ json.RawMessage) (string, error) {
	if ticket != "vouch" {
		return "", gate.Fail(gate.ErrDenied, "", "the ticket is none of ours")
	}
	return "CODE", nil
}

func (p *fakePeople) Invite(_ context.Context, _, voucher, name string) (string, error) {
	if voucher != "CODE" {
		return "", gate.Fail(gate.ErrDenied, "", "no voucher")
	}
	return "one-time-for-" + name, nil
}

func (p *fakePeople) Sessions(_ context.Context, person string) ([]identity.SessionInfo, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []identity.SessionInfo
	for _, who := range p.sessions {
		if who.Person == person {
			out = append(out, identity.SessionInfo{ID: "s" + person, Person: person, Method: "password", Created: p.now(), Seen: p.now(), IP: "192.0.2.1", UserAgent: p.agent})
			break
		}
	}
	return out, nil
}

func (p *fakePeople) EndSession(_ context.Context, _ gate.Principal, id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = append(p.ended, id)
	return nil
}
