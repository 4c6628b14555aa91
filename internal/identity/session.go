package identity

import (
	"context"
	"errors"
	"slices"
	"time"

	"castellan/internal/gate"
	"castellan/internal/seal"
)

// Session is a fresh sign-in. Token goes into a cookie or a file; it is stored nowhere.
type Session struct {
	Token     string
	Principal gate.Principal
	Expires   time.Time // latest; it ends earlier when it is not used
}

// SessionInfo is a session as lists show it.
type SessionInfo struct {
	ID        string
	Person    string
	WayIn     string
	Method    string
	Strength  gate.Strength
	Created   time.Time
	Seen      time.Time
	Expires   time.Time
	IP        string
	UserAgent string
	Damaged   bool // its row was changed in the database: it is good for nothing, and can be ended
}

// session is what is stored, under the hash of its token.
type session struct {
	UID      string        `json:"uid"` // of the account
	Person   string        `json:"person"`
	WayIn    string        `json:"way_in"`
	Method   string        `json:"method"`
	Strength gate.Strength `json:"strength"`
	Key      string        `json:"key,omitempty"` // fingerprint of the passkey
	Created  time.Time     `json:"created"`
	Seen     time.Time     `json:"seen"`
	Until    time.Time     `json:"until"`
	IP       string        `json:"ip,omitempty"`
	Agent    string        `json:"agent,omitempty"`
	// Capped limits the roles to Roles: what an outside provider's groups give.
	Capped bool     `json:"capped,omitempty"`
	Roles  []string `json:"roles,omitempty"`
}

const (
	sessionPurpose = "session"
	maxSessions    = 20 // of one person; the oldest goes
	maxToken       = 128
)

func hashSession(token string) string { return seal.HashToken(token, sessionPurpose) }

func (i *Identity) idle(s *session) time.Time {
	end := s.Seen.Add(time.Duration(i.set.SessionIdle))
	if end.After(s.Until) {
		return s.Until
	}
	return end
}

// start makes a session with a token of its own; nothing of an earlier one is taken over.
func (i *Identity) start(tx gate.Tx, a *account, s session, from Remote) (Session, error) {
	token, hash, err := seal.NewToken(sessionPurpose)
	if err != nil {
		return Session{}, err
	}
	now := i.now()
	s.UID, s.Person, s.WayIn, s.Created, s.Seen = a.UID, a.Name, wayInOf(from), now, now
	s.Until = earlier(s.Until, now.Add(time.Duration(i.set.SessionLength)))
	if !a.Until.IsZero() && a.Until.Before(s.Until) {
		s.Until = a.Until
	}
	if from.IP.IsValid() {
		s.IP = from.IP.Unmap().WithZone("").String()
	}
	s.Agent = clip(from.UserAgent, 256)
	var mine []*gate.Doc
	seen := map[string]time.Time{}
	err = i.each(tx, kindSession, a.Name, func(d *gate.Doc) error {
		var old session
		if i.open(d, &old) == nil {
			seen[d.ID] = old.Seen
		}
		mine = append(mine, d)
		return nil
	})
	if err != nil {
		return Session{}, err
	}
	slices.SortFunc(mine, func(x, y *gate.Doc) int { return seen[x.ID].Compare(seen[y.ID]) })
	for n := 0; n <= len(mine)-maxSessions; n++ {
		if err := tx.DropDoc(kindSession, mine[n].ID); err != nil {
			return Session{}, err
		}
	}
	if err := i.put(tx, &gate.Doc{Kind: kindSession, ID: hash, Owner: a.Name, Expires: i.idle(&s)}, s); err != nil {
		return Session{}, err
	}
	return Session{Token: token.Reveal(), Principal: i.principal(a, &s), Expires: s.Until}, nil
}

// principal is who acts in a session, with what the account gives now.
func (i *Identity) principal(a *account, s *session) gate.Principal {
	roles := slices.Clone(a.Roles)
	if s.Capped {
		roles = intersect(a.Roles, s.Roles)
	}
	return gate.Principal{Person: a.Name, WayIn: s.WayIn, Strength: s.Strength, Roles: roles, Until: a.Until}
}

var errNoSession = errors.New("no such session")

func signInAgain() error {
	return &gate.Error{Kind: gate.ErrDenied, Message: "nobody is signed in here, or the session has ended", Changed: "nothing", Hint: "Sign in again.", Cause: errNoSession}
}

// session finds a live session with its account.
func (i *Identity) session(tx gate.Tx, token string) (*gate.Doc, *session, *account, error) {
	if token == "" || len(token) > maxToken {
		return nil, nil, nil, signInAgain()
	}
	s := new(session)
	d, err := i.get(tx, kindSession, hashSession(token), s)
	if err != nil {
		return nil, nil, nil, err
	}
	now := i.now()
	if d == nil || d.Owner != s.Person || !now.Before(i.idle(s)) || now.Before(s.Created.Add(-clockSkew)) {
		return nil, nil, nil, signInAgain()
	}
	_, a, err := i.account(tx, s.Person)
	if err != nil {
		return nil, nil, nil, err
	}
	if a == nil || a.UID != s.UID {
		return nil, nil, nil, signInAgain()
	}
	if e := a.active(now); e != nil {
		return nil, nil, nil, e
	}
	if !limited(i.principal(a, s).Roles) {
		return nil, nil, nil, noRole(a.Name)
	}
	return d, s, a, nil
}

func noRole(person string) error {
	return gate.Fail(gate.ErrDenied, "An administrator gives one.", "%s has no role any more", person)
}

// clockSkew between processes on one store.
const clockSkew = 2 * time.Minute

// Session says whose live session the token is, with the roles and the expiry that the account has now. Using it keeps
// it from ending idle.
func (i *Identity) Session(ctx context.Context, token string) (gate.Principal, error) {
	var p gate.Principal
	var stale bool
	err := i.view(ctx, "check session", func(tx gate.Tx) error {
		_, s, a, err := i.session(tx, token)
		if err != nil {
			return err
		}
		p, stale = i.principal(a, s), i.now().Sub(s.Seen) >= i.touchAfter()
		return nil
	})
	if err != nil {
		return gate.Principal{}, err
	}
	if stale {
		i.touch(ctx, token)
	}
	return p, nil
}

// touchAfter keeps a busy session from being written at each request.
func (i *Identity) touchAfter() time.Duration {
	return min(time.Minute, time.Duration(i.set.SessionIdle)/10)
}

func (i *Identity) touch(ctx context.Context, token string) {
	err := i.c.Store.Update(ctx, func(tx gate.Tx) error {
		d, s, _, err := i.session(tx, token)
		if err != nil {
			return err
		}
		if s.Seen = i.now(); d == nil {
			return nil
		}
		d.Expires = i.idle(s)
		return i.put(tx, d, s)
	})
	if err != nil && !errors.Is(err, errNoSession) && !errors.Is(err, gate.ErrStoreConflict) {
		i.log.Warn("use of a session not noted; it may end idle", "error", err)
	}
}

// SignOut ends a session. One that has ended is no error.
func (i *Identity) SignOut(ctx context.Context, token string) error {
	return i.update(ctx, "sign out", func(tx gate.Tx) (error, error) {
		if token == "" || len(token) > maxToken {
			return nil, nil
		}
		s := new(session)
		d, err := i.get(tx, kindSession, hashSession(token), s)
		if err != nil && !errors.Is(err, errForged) {
			return nil, err
		}
		if err == nil && d == nil {
			return nil, nil
		}
		return nil, i.end(tx, hashSession(token), s, gate.Principal{Person: s.Person, WayIn: s.WayIn})
	})
}

func (i *Identity) end(tx gate.Tx, id string, s *session, by gate.Principal) error {
	if err := tx.DropDoc(kindSession, id); err != nil {
		return err
	}
	_, err := i.append(tx, event{name: "session_ended", status: "ok", person: s.Person, by: by, method: s.Method})
	return err
}

// endAll ends the sessions of a person, but for one, without a record of each.
func (i *Identity) endAll(tx gate.Tx, person, but string) error {
	return i.each(tx, kindSession, person, func(d *gate.Doc) error {
		if d.ID == but {
			return nil
		}
		return tx.DropDoc(kindSession, d.ID)
	})
}

// Sessions lists the live sessions of a person, or of all when person is empty, newest first.
func (i *Identity) Sessions(ctx context.Context, person string) ([]SessionInfo, error) {
	var out []SessionInfo
	err := i.view(ctx, "list sessions", func(tx gate.Tx) error {
		out = nil
		return i.each(tx, kindSession, person, func(d *gate.Doc) error {
			var s session
			if err := i.open(d, &s); err != nil {
				i.damaged(d, err)
				out = append(out, SessionInfo{ID: clip(d.ID, 64), Person: clip(d.Owner, 64), Damaged: true})
				return nil
			}
			out = append(out, SessionInfo{ID: d.ID, Person: s.Person, WayIn: s.WayIn, Method: s.Method, Strength: s.Strength,
				Created: s.Created, Seen: s.Seen, Expires: i.idle(&s), IP: s.IP, UserAgent: s.Agent})
			return nil
		})
	})
	slices.SortFunc(out, func(x, y SessionInfo) int { return y.Created.Compare(x.Created) })
	return out, err
}

// EndSessions ends all sessions of a person: one's own, or anybody's for an administrator.
func (i *Identity) EndSessions(ctx context.Context, who gate.Principal, person string) error {
	return i.update(ctx, "end sessions", func(tx gate.Tx) (error, error) {
		if err := i.mayEnd(tx, who, person); err != nil {
			return nil, err
		}
		if !isName(person) {
			return nil, noAccount(person)
		}
		if err := i.endAll(tx, person, ""); err != nil {
			return nil, err
		}
		_, err := i.append(tx, event{name: "sessions_ended", status: "ok", person: person, by: who})
		return nil, err
	})
}

func (i *Identity) mayEnd(tx gate.Tx, who gate.Principal, person string) error {
	signedIn := who.Strength == gate.StrengthSession || who.Strength == gate.StrengthPasskey
	if signedIn && who.Agent == "" && who.Person != "" && who.Person == person {
		return nil
	}
	return i.mayManage(tx, who)
}

// EndSession ends a session by its id: one's own, or anybody's for an administrator.
func (i *Identity) EndSession(ctx context.Context, who gate.Principal, id string) error {
	return i.update(ctx, "end session", func(tx gate.Tx) (error, error) {
		d, err := tx.Doc(kindSession, id)
		if errors.Is(err, gate.ErrStoreNotFound) {
			return nil, gate.Fail(gate.ErrNotFound, "The list of sessions shows them.", "there is no such session")
		}
		if err != nil {
			return nil, err
		}
		if err := i.mayEnd(tx, who, d.Owner); err != nil {
			return nil, err
		}
		s := session{Person: d.Owner}
		_ = i.open(d, &s) // ending what was tampered with is right too
		s.Person = d.Owner
		return nil, i.end(tx, id, &s, who)
	})
}
