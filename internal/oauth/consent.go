package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
)

const (
	codeLife = time.Minute
	// codeKept is how long a code is remembered, so that its replay is noticed.
	codeKept = 24 * time.Hour
	// graceLife is added to the lives of clients and grants, so that what they gave is not outlived by them.
	graceLife = 24 * time.Hour
	// skew is how far clocks of several machines may be apart.
	skew = time.Minute
)

// code is an authorization code, used or not.
type code struct {
	Hash      string    `json:"hash"`
	Client    string    `json:"client"`
	Agent     string    `json:"agent"`
	Name      string    `json:"name,omitempty"`
	Redirect  string    `json:"redirect"`
	Challenge string    `json:"challenge"`
	Person    string    `json:"person"`
	Scopes    []string  `json:"scopes"`
	Resource  string    `json:"resource"`
	At        time.Time `json:"at"`
	Until     time.Time `json:"until"`
	Used      time.Time `json:"used,omitzero"`
	Grant     string    `json:"grant,omitempty"` // what it gave
}

// consent is a consent that is remembered.
type consent struct {
	Client string    `json:"client"`
	Scopes []string  `json:"scopes"`
	At     time.Time `json:"at"`
}

// consentID changes with anything that the person was asked about.
func consentID(person string, r request) string {
	redirects := slices.Sorted(slices.Values(r.Redirects))
	b, _ := json.Marshal([]any{person, r.Client, r.Kind, redirects, r.Redirect, r.Scopes}) // of strings only: cannot fail
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// memorable: the answer goes to a web address of a client that somebody vouches for. A program on the person's machine
// could be any other.
func (s *Server) memorable(r request) bool {
	to, err := parseRedirect(r.Redirect)
	return err == nil && s.rules.remember > 0 && to.web && r.Kind != KindDynamic
}

// Recall gives the answer without asking where the setting allows it and the person has consented to the very same
// before; else ok is false, and the person is to be asked.
func (s *Server) Recall(ctx context.Context, ticket string, person gate.Principal) (redirect string, ok bool, err error) {
	defer forPeople(&err)
	r, err := s.open(ticket)
	if err != nil {
		return "", false, err
	}
	if r.Ask || !s.memorable(r) || isPerson(person) != nil {
		return "", false, nil
	}
	var c consent
	err = s.view(ctx, func(tx gate.Tx) error {
		_, err := s.vault.get(tx, kindConsent, consentID(person.Person, r), &c)
		if missing(err) {
			return nil
		}
		return err
	})
	if err != nil || c.At.IsZero() || !s.now().Before(c.At.Add(s.rules.remember)) {
		return "", false, err
	}
	redirect, err = s.allow(ctx, r, person, r.Scopes, false)
	return redirect, err == nil, err
}

// isPerson takes people who signed in; an agent cannot let itself in.
func isPerson(p gate.Principal) error {
	if p.Agent != "" || p.Person == "" || p.Strength != gate.StrengthSession && p.Strength != gate.StrengthPasskey {
		return gate.Fail(gate.ErrDenied, "Sign in on the console.", "only a person who has signed in can let a client in")
	}
	return nil
}

// Consent is the person's answer: it returns where the browser goes. scopes are those of Asked.Scopes that the person
// gives; they count when allow is true. An error is for the person; nothing was given then.
func (s *Server) Consent(ctx context.Context, ticket string, person gate.Principal, allow bool, scopes []string) (redirect string, err error) {
	defer forPeople(&err)
	r, err := s.open(ticket)
	if err != nil {
		return "", err
	}
	if err := isPerson(person); err != nil {
		return "", err
	}
	if !allow {
		err := s.update(ctx, func(tx gate.Tx) (*Refused, error) {
			if err := s.spend(tx, r); err != nil {
				return spent(err)
			}
			return nil, s.record(tx, event{name: "authorize_fail", status: "denied", from: r.From, who: gate.Principal{Agent: agentOf(r), Person: person.Person}, client: r.Client, reason: "refused_by_person"})
		})
		if err != nil {
			return "", err
		}
		return withQuery(r.Redirect, "error", "access_denied", "error_description", "the person refused", "state", r.State, "iss", s.issuer), nil
	}
	given := knownScopes(strings.Join(scopes, " "))
	if len(given) != len(scopes) || !subset(given, r.Scopes) {
		return "", page("Start again from the client.", "more was given than the client asked for")
	}
	if !usable(given) {
		return "", page("Give read, operate or both, or refuse.", "nothing was given that a client could use")
	}
	return s.allow(ctx, r, person, given, s.memorable(r) && slices.Equal(given, r.Scopes))
}

func agentOf(r request) string {
	to, err := parseRedirect(r.Redirect)
	if err != nil {
		return ""
	}
	return r.asClient().agent(to)
}

func (s *Server) spend(tx gate.Tx, r request) error {
	return tx.UseNonce("oauth/ticket/"+r.ID, r.Until)
}

// spent tells a ticket that has its answer from trouble with the store.
func spent(err error) (*Refused, error) {
	if errors.Is(err, gate.ErrNonceUsed) {
		return refuse(409, "invalid_request", "this request has its answer already; start again from the client"), nil
	}
	return nil, err
}

func (s *Server) allow(ctx context.Context, r request, person gate.Principal, given []string, remember bool) (string, error) {
	now, err := s.standing(ctx, person.Person)
	if errors.Is(err, errEnded) {
		return "", gate.Fail(gate.ErrDenied, "Ask an administrator.", "your access has ended, or has no role that could be given to a client (viewer, operator)")
	}
	if err != nil {
		return "", err
	}
	if !effective(rolesOf(scopeRoles(given), now.Roles)) {
		return "", gate.Fail(gate.ErrDenied, "Ask an administrator for the role viewer or operator.", "your account has no role that could be given to a client")
	}
	var text string
	err = s.update(ctx, func(tx gate.Tx) (*Refused, error) {
		if err := s.spend(tx, r); err != nil {
			return spent(err)
		}
		if err := s.let(tx, r); errors.Is(err, errUnknownClient) {
			return refuse(400, "invalid_client", "the client is not known here any more; start again from the client"), nil
		} else if err != nil {
			return nil, err
		}
		d, err := draw(codePrefix)
		if err != nil {
			return nil, err
		}
		at := s.now()
		c := code{Hash: d.hash, Client: r.Client, Agent: agentOf(r), Name: r.Name, Redirect: r.Redirect, Challenge: r.Challenge, Person: person.Person, Scopes: given, Resource: r.Resource,
			At: at, Until: at.Add(codeLife)}
		if err := s.vault.put(tx, &gate.Doc{Kind: kindCode, ID: d.id, Owner: person.Person, Expires: at.Add(codeKept)}, c); err != nil {
			return nil, err
		}
		if remember {
			if err := s.remember(tx, person.Person, r); err != nil {
				return nil, err
			}
		}
		text = d.text
		return nil, s.record(tx, event{name: "authorize_ok", status: "ok", from: r.From, who: gate.Principal{Agent: c.Agent, Person: c.Person}, client: r.Client, token: d.id,
			detail: strings.Join(given, " ") + " to " + r.Redirect})
	})
	if err != nil {
		return "", err
	}
	return withQuery(r.Redirect, "code", text, "state", r.State, "iss", s.issuer), nil
}

// let makes sure that the client is there, and writes one down that is known by its document.
func (s *Server) let(tx gate.Tx, r request) error {
	if r.Kind != KindDocument {
		_, _, err := s.known(tx, r.Client)
		return err
	}
	c := r.asClient()
	if s.rules.noDocuments || !s.library.allowed(c.host()) {
		return errUnknownClient
	}
	old := new(client)
	d, err := s.vault.get(tx, kindClient, r.Client, old)
	switch {
	case errors.Is(err, errAltered): // written anew, by the person's consent
		if d, err = tx.Doc(kindClient, r.Client); err != nil {
			return err
		}
		c.Since = s.now()
	case errors.Is(err, gate.ErrStoreNotFound):
		d, c.Since = &gate.Doc{Kind: kindClient, ID: r.Client, Owner: KindDocument}, s.now()
	case err != nil:
		return err
	default:
		c.Since = old.Since
	}
	if until := s.now().Add(graceLife); d.Expires.Before(until) {
		d.Expires = until
	}
	return s.vault.put(tx, d, c)
}

func (s *Server) remember(tx gate.Tx, person string, r request) error {
	id := consentID(person, r)
	d := &gate.Doc{Kind: kindConsent, ID: id, Owner: person}
	if old, err := tx.Doc(kindConsent, id); err == nil {
		d = old
	} else if !errors.Is(err, gate.ErrStoreNotFound) {
		return err
	}
	d.Expires = s.now().Add(s.rules.remember)
	return s.vault.put(tx, d, consent{Client: r.Client, Scopes: r.Scopes, At: s.now()})
}
