package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/gate"
	"castellan/internal/seal"
)

// OIDCRedirectPath is where outside providers send the browser back: register the public URL with this path there, and
// give what comes to OIDCFinish.
const OIDCRedirectPath = "/signin/oidc"

// provider is what an issuer says of itself (OpenID Connect Discovery).
type provider struct {
	Issuer    string   `json:"issuer"`
	Authorize string   `json:"authorization_endpoint"`
	Token     string   `json:"token_endpoint"`
	Keys      string   `json:"jwks_uri"`
	UserInfo  string   `json:"userinfo_endpoint"`
	Methods   []string `json:"token_endpoint_auth_methods_supported"`
	Returns   bool     `json:"authorization_response_iss_parameter_supported"`
}

func (i *Identity) oidcSettings(name string) (OIDCSettings, error) {
	for _, o := range i.set.OIDC {
		if o.Name == name {
			return o, nil
		}
	}
	return OIDCSettings{}, gate.Fail(gate.ErrNotFound, "The sign-in page lists them.", "there is no provider %q to sign in with", clip(name, 64))
}

// providersLife is how long what an issuer says of itself is believed.
const providersLife = 10 * time.Minute

// providerCache keeps what issuers say, so that strangers who open the sign-in page do not make them be asked each time.
type providerCache struct {
	mu    sync.Mutex
	known map[string]knownProvider
}

type knownProvider struct {
	*provider
	asked time.Time
}

// discover asks an issuer what it offers. Where its documents point is checked like every outbound address.
func (i *Identity) discover(ctx context.Context, o OIDCSettings) (*provider, error) {
	c := &i.providers
	c.mu.Lock()
	known, ok := c.known[o.Issuer]
	c.mu.Unlock()
	if age := i.now().Sub(known.asked); ok && age >= 0 && age < providersLife {
		return known.provider, nil
	}
	b, err := i.fetch(ctx, strings.TrimSuffix(o.Issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return nil, err
	}
	p, err := parseProvider(b, o.Issuer)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]knownProvider{}
	}
	c.known[o.Issuer] = knownProvider{p, i.now()} // one for each issuer of the settings
	return p, nil
}

func parseProvider(b []byte, issuer string) (*provider, error) {
	p := new(provider)
	if err := json.Unmarshal(b, p); err != nil {
		return nil, unreachable("read what the provider says of itself", err)
	}
	if p.Issuer != issuer {
		return nil, unreachable("use the provider", errors.New("it calls itself "+clip(p.Issuer, 200)+", not what the settings call it"))
	}
	needed := []string{p.Authorize, p.Token, p.Keys}
	if p.UserInfo != "" {
		needed = append(needed, p.UserInfo)
	}
	for _, address := range needed {
		if u, err := url.Parse(address); err != nil || !safeURL(u) || u.Fragment != "" {
			return nil, unreachable("use the provider", errors.New("it names an address that is not https: "+clip(address, 200)))
		}
	}
	return p, nil
}

func (i *Identity) oidcRedirect() string { return i.party.origin + OIDCRedirectPath }

// OIDCStart begins a sign-in at an outside provider: where to send the browser, and a ticket that must stay with that
// browser (a cookie of the sign-in page: HttpOnly, SameSite=Lax) and come back with the answer within five minutes.
func (i *Identity) OIDCStart(ctx context.Context, name string) (redirect, ticketText string, err error) {
	o, err := i.oidcSettings(name)
	if err != nil {
		return "", "", err
	}
	p, err := i.discover(ctx, o)
	if err != nil {
		return "", "", err
	}
	t := &ticket{Provider: o.Name, State: rand.Text(), Nonce: rand.Text(), Verifier: rand.Text() + rand.Text()}
	if ticketText, err = i.sealTicket(ticketOIDC, t); err != nil {
		return "", "", err
	}
	u, err := url.Parse(p.Authorize)
	if err != nil {
		return "", "", unreachable("use the provider", err)
	}
	scopes := o.Scopes
	if len(scopes) == 0 {
		scopes = []string{"email"}
	}
	if !slices.Contains(scopes, "openid") {
		scopes = append([]string{"openid"}, scopes...)
	}
	sum := sha256.Sum256([]byte(t.Verifier))
	q := u.Query()
	for k, v := range map[string]string{"response_type": "code", "client_id": o.ClientID, "redirect_uri": i.oidcRedirect(), "scope": strings.Join(scopes, " "),
		"state": t.State, "nonce": t.Nonce, "code_challenge": base64.RawURLEncoding.EncodeToString(sum[:]), "code_challenge_method": "S256"} {
		q.Set(k, v)
	}
	u.RawQuery = q.Encode()
	return u.String(), ticketText, nil
}

// OIDCFinish takes what the provider sent the browser back with (the query of OIDCRedirectPath) and the browser's ticket.
func (i *Identity) OIDCFinish(ctx context.Context, ticketText string, query url.Values, from Remote) (Session, error) {
	address := addressBucket(WayOIDC, from.IP)
	if l, err := i.checkLocked(ctx, address); l != nil || err != nil {
		return Session{}, lockedOr(l, err)
	}
	t, err := i.openTicket(ticketOIDC, ticketText)
	if err != nil {
		return Session{}, err
	}
	// An answer that another browser asked for uses up nothing of this one's.
	if len(query["state"]) != 1 || subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(t.State)) != 1 {
		return Session{}, gate.Fail(gate.ErrDenied, "Begin again.", "the provider's answer is not for a sign-in that this browser began")
	}
	if err := i.update(ctx, "sign in", func(tx gate.Tx) (error, error) { return nil, i.spend(tx, t.Random, t.Expires) }); err != nil {
		return Session{}, err
	}
	e := event{from: from, method: WayOIDC, marks: map[string]string{"provider": t.Provider}}
	login, s, why := i.exchange(ctx, t, query)
	if why != nil {
		var known *gate.Error
		if !errors.As(why, &known) {
			known = gate.Fail(gate.ErrDenied, "Begin again, or sign in otherwise.", "the provider's answer is not accepted: %v", why)
		}
		if known.Kind != gate.ErrDenied {
			return Session{}, known
		}
		e.why = known.Message
		return Session{}, i.update(ctx, "sign in", func(tx gate.Tx) (error, error) { return i.refuse(tx, nil, e, known, address) })
	}
	e.claimed = login.Subject + login.Email
	var out Session
	err = i.update(ctx, "sign in", func(tx gate.Tx) (error, error) {
		var refusal, err error
		out, refusal, err = i.letOutside(tx, login, s, e, address)
		return refusal, err
	})
	if err != nil {
		return Session{}, err
	}
	return out, nil
}

// exchange turns the code into an identity: it is redeemed, and the id token verified.
func (i *Identity) exchange(ctx context.Context, t *ticket, query url.Values) (Login, session, error) {
	o, err := i.oidcSettings(t.Provider)
	if err != nil {
		return Login{}, session{}, err
	}
	if said := query.Get("error"); said != "" {
		return Login{}, session{}, errors.New("it says " + clip(said, 60))
	}
	code := query.Get("code")
	if len(query["code"]) != 1 || code == "" || len(code) > 4096 {
		return Login{}, session{}, errors.New("it brings no code")
	}
	p, err := i.discover(ctx, o)
	if err != nil {
		return Login{}, session{}, err
	}
	if iss := query["iss"]; p.Returns && len(iss) != 1 || len(iss) > 0 && iss[0] != o.Issuer {
		return Login{}, session{}, errors.New("it is from another provider")
	}
	access, id, err := i.redeem(ctx, o, p, code, t.Verifier)
	if err != nil {
		return Login{}, session{}, err
	}
	if err := i.signedBy(ctx, id, p.Keys); err != nil {
		return Login{}, session{}, err
	}
	if _, err := id.check(o.Issuer, []string{o.ClientID}, i.now()); err != nil {
		return Login{}, session{}, err
	}
	nonce, err := id.text("nonce")
	if err != nil || subtle.ConstantTimeCompare([]byte(nonce), []byte(t.Nonce)) != 1 {
		return Login{}, session{}, errors.New("its token is of another sign-in")
	}
	aud, _ := id.list("aud")
	azp, err := id.text("azp")
	if err != nil || len(aud) > 1 && azp == "" || azp != "" && azp != o.ClientID {
		return Login{}, session{}, errors.New("its token was given to another client")
	}
	return i.claims(ctx, o, p, id, access)
}

// redeem sends the code to the provider, with the secret that only the browser's ticket and the provider's memory join.
func (i *Identity) redeem(ctx context.Context, o OIDCSettings, p *provider, code, verifier string) (access string, id *jwt, err error) {
	form := url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {i.oidcRedirect()}, "code_verifier": {verifier}, "client_id": {o.ClientID}}
	var secret seal.Secret
	basic := len(p.Methods) == 0 || slices.Contains(p.Methods, "client_secret_basic")
	if o.ClientSecretFile != "" {
		if secret, err = seal.Open(o.ClientSecretFile); err != nil {
			return "", nil, unreachable("read the secret that the provider knows", err)
		}
		if basic {
			form.Del("client_id")
		} else {
			form.Set("client_secret", secret.Reveal())
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.Token, strings.NewReader(form.Encode()))
	if err != nil {
		return "", nil, unreachable("ask the provider", err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	if !secret.IsZero() && basic {
		r.SetBasicAuth(url.QueryEscape(o.ClientID), url.QueryEscape(secret.Reveal()))
	}
	b, err := i.outsideJSON(r)
	if denies(err) {
		return "", nil, errors.New("it does not take its code back")
	}
	if err != nil {
		return "", nil, err
	}
	var answer struct {
		IDToken     string `json:"id_token"`
		AccessToken string `json:"access_token"`
	}
	if err := json.Unmarshal(b, &answer); err != nil || answer.IDToken == "" {
		return "", nil, errors.New("it gave no id token")
	}
	id, err = parseJWT(answer.IDToken)
	return answer.AccessToken, id, err
}

// claims finds out who it is. What the id token does not hold is asked of the provider, about the same subject.
func (i *Identity) claims(ctx context.Context, o OIDCSettings, p *provider, id *jwt, access string) (Login, session, error) {
	subject, err := id.text("sub")
	if err != nil || subject == "" || len(subject) > 255 {
		return Login{}, session{}, errors.New("its token names no subject")
	}
	_, mail := id.claims["email"]
	_, groups := id.claims[o.GroupsClaim]
	if (o.MapBy == byEmail && !mail || o.GroupsClaim != "" && !groups) && p.UserInfo != "" && access != "" && len(access) <= maxJWT {
		more, err := i.userInfo(ctx, p, access, subject)
		if err != nil {
			return Login{}, session{}, err
		}
		if !mail { // an address and whether it was verified come from one hand
			id.claims["email"], id.claims["email_verified"] = more.claims["email"], more.claims["email_verified"]
		}
		if !groups {
			id.claims[o.GroupsClaim] = more.claims[o.GroupsClaim]
		}
	}
	l, s := Login{Way: WayOIDC, Provider: o.Name, Subject: subject}, session{Method: WayOIDC, Strength: gate.StrengthSession}
	if o.MapBy == byEmail {
		l.Subject = ""
		if l.Email, err = id.text("email"); err != nil || l.Email == "" {
			return Login{}, session{}, errors.New("it tells no e-mail address")
		}
		if string(id.claims["email_verified"]) != "true" {
			return Login{}, session{}, errors.New("it has not verified the e-mail address")
		}
	}
	if len(o.Groups) > 0 {
		s.Capped = true
		has, err := id.list(o.GroupsClaim)
		if err != nil {
			return Login{}, session{}, err
		}
		for _, g := range has {
			s.Roles = append(s.Roles, o.Groups[g]...)
		}
	}
	return l, s, nil
}

func (i *Identity) userInfo(ctx context.Context, p *provider, access, subject string) (*jwt, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.UserInfo, nil)
	if err != nil {
		return nil, unreachable("ask the provider", err)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Authorization", "Bearer "+access)
	b, err := i.outsideJSON(r)
	if err != nil {
		return nil, err
	}
	t := &jwt{}
	if t.claims, err = members(b); err != nil {
		return nil, errJWTClaims
	}
	if sub, err := t.text("sub"); err != nil || sub != subject {
		return nil, errors.New("it tells about somebody else")
	}
	return t, nil
}
