package identity

import (
	"context"
	"errors"
	"net/http"

	"castellan/internal/gate"
)

// accessHeader carries the assertion of Cloudflare Access.
const accessHeader = "Cf-Access-Jwt-Assertion"

// ErrNoAssertion: the request carries no assertion of Cloudflare Access, or the settings take none.
var ErrNoAssertion = errors.New("no assertion of Cloudflare Access")

// Access signs in by the assertion that Cloudflare Access put into a request. It is verified, not believed: issuer,
// audience, algorithm, signature and time. The session ends no later than the assertion. A request without one, or
// settings that take none, is ErrNoAssertion.
func (i *Identity) Access(ctx context.Context, r *http.Request, from Remote) (Session, error) {
	set := i.set.Access
	values := r.Header.Values(accessHeader)
	if set.Team == "" || len(values) == 0 {
		return Session{}, ErrNoAssertion
	}
	address := addressBucket(WayAccess, from.IP)
	if l, err := i.checkLocked(ctx, address); l != nil || err != nil {
		return Session{}, lockedOr(l, err)
	}
	login, s, why := i.assertion(ctx, values)
	if why != nil {
		var known *gate.Error
		if !errors.As(why, &known) {
			known = gate.Fail(gate.ErrDenied, "Sign in at Cloudflare Access again, or otherwise.", "the assertion of Cloudflare Access is not accepted: %v", why)
		}
		if known.Kind != gate.ErrDenied {
			return Session{}, known
		}
		return Session{}, i.update(ctx, "sign in", func(tx gate.Tx) (error, error) {
			return i.refuse(tx, nil, event{from: from, method: WayAccess, why: known.Message}, known, address)
		})
	}
	var out Session
	err := i.update(ctx, "sign in", func(tx gate.Tx) (error, error) {
		var refusal, err error
		out, refusal, err = i.letOutside(tx, login, s, event{from: from, method: WayAccess, claimed: login.Subject + login.Email}, address)
		return refusal, err
	})
	if err != nil {
		return Session{}, err
	}
	return out, nil
}

func (i *Identity) assertion(ctx context.Context, values []string) (Login, session, error) {
	set := i.set.Access
	if len(values) != 1 {
		return Login{}, session{}, errors.New("there are several")
	}
	t, err := parseJWT(values[0])
	if err != nil {
		return Login{}, session{}, err
	}
	issuer := "https://" + set.Team
	if err := i.signedBy(ctx, t, issuer+"/cdn-cgi/access/certs"); err != nil {
		return Login{}, session{}, err
	}
	end, err := t.check(issuer, set.Audience, i.now())
	if err != nil {
		return Login{}, session{}, err
	}
	l := Login{Way: WayAccess}
	if set.MapBy == bySubject {
		l.Subject, err = t.text("sub")
	} else {
		l.Email, err = t.text("email")
	}
	if err != nil {
		return Login{}, session{}, err
	}
	if l.Subject+l.Email == "" {
		return Login{}, session{}, errors.New("it names no person; a service token is none")
	}
	return l, session{Method: WayAccess, Strength: gate.StrengthSession, Until: end}, nil
}
