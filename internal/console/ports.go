package console

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"castellan/internal/gate"
)

// Gate is what the console asks of the gate.
type Gate interface {
	// Waiting lists the plans that wait for a person, oldest first.
	Waiting(ctx context.Context) ([]*gate.PlanRecord, error)
	Plans(ctx context.Context, who gate.Principal, f gate.PlanFilter) ([]*gate.PlanRecord, string, error)
	// Show fails with not_found for a plan that this principal may not see.
	Show(ctx context.Context, who gate.Principal, id string) (*gate.PlanView, *gate.PlanRecord, error)
	// Challenge is what a passkey signs; verdict is "approve" or "deny".
	Challenge(ctx context.Context, session, plan, verdict string) (*gate.Challenge, error)
	Approve(ctx context.Context, plan string, e gate.Evidence) (*gate.PlanView, error)
	Refuse(ctx context.Context, plan, why string, e gate.Evidence) error
	Apply(ctx context.Context, who gate.Principal, plan string, progress gate.Progress) (*gate.Outcome, error)
	Grant(ctx context.Context, m gate.Mandate, e gate.Evidence) (*gate.Mandate, error)
	Mandates(ctx context.Context, who gate.Principal) ([]*gate.Mandate, error)
	ChallengeMandate(ctx context.Context, session string, m gate.Mandate) (*gate.Challenge, error)
	Revoke(ctx context.Context, session, id string) error
	// Receipt is the full one, which verifies with the ledger's public key alone.
	Receipt(ctx context.Context, who gate.Principal, id string) (*gate.Receipt, error)
	Operations() []*gate.Operation
	Targets() []gate.TargetInfo
}

// Switches stop and allow all writes.
type Switches interface {
	Switches(ctx context.Context) (gate.Switches, error)
	Kill(ctx context.Context, who gate.Principal, on bool) error
	Arm(ctx context.Context, who gate.Principal, until time.Time) error
}

// Remote is where a request came from.
type Remote struct {
	IP        netip.Addr
	UserAgent string
}

// Session is a live sign-in. Token is given to the browser and nobody else.
type Session struct {
	Token     string
	Principal gate.Principal
	Expires   time.Time
}

// People signs people in and keeps their credentials. A sign-in that is refused for too many failures returns an error
// that has the method Wait() time.Duration.
type People interface {
	// Session says whose live sign-in the token is, with the roles and the expiry that hold now.
	Session(ctx context.Context, token string) (gate.Principal, error)
	Password(ctx context.Context, name, password string, from Remote) (Session, error)
	PasskeyStart(ctx context.Context) (options json.RawMessage, ticket string, err error)
	PasskeyFinish(ctx context.Context, ticket string, response json.RawMessage, from Remote) (Session, error)
	SignOut(ctx context.Context, token string) error
	// EnrolStart begins to enrol a passkey for the person of the session; code is the one-time code, where one is needed.
	EnrolStart(ctx context.Context, session, code string) (options json.RawMessage, ticket string, err error)
	EnrolFinish(ctx context.Context, session, ticket string, response json.RawMessage, name string) error
	Credentials(ctx context.Context, person string) ([]Credential, error)
	RemoveCredential(ctx context.Context, session, id string) error
	Accounts(ctx context.Context) ([]Account, error)
	SetRoles(ctx context.Context, who gate.Principal, name string, roles []string, until time.Time) error
	Disable(ctx context.Context, who gate.Principal, name string) error
}

// Credential is one enrolled passkey.
type Credential struct {
	ID          string // names it in RemoveCredential
	RawID       []byte // as WebAuthn knows it
	Name        string // the person's own words
	Enrolled    time.Time
	UsableFrom  time.Time // may approve from then on
	LastUsed    time.Time
	Transports  []string
	Fingerprint string
}

// Account is one person.
type Account struct {
	Name     string
	Roles    []string
	Until    time.Time // zero = no expiry
	Disabled bool
	Passkeys int
	Source   string // "local", or the provider or realm
}

// Outside are the ways to sign in that others keep; nil when there are none.
type Outside interface {
	Realms(ctx context.Context) []string // Proxmox realms, "" never
	RealmLogin(ctx context.Context, realm, name, password, totp string, from Remote) (Session, error)
	Providers(ctx context.Context) []Provider // OpenID providers
	// ProviderStart gives the address to send the browser to, and a ticket that the same browser must bring back.
	ProviderStart(ctx context.Context, provider string) (address, ticket string, err error)
	ProviderFinish(ctx context.Context, ticket string, answer url.Values, from Remote) (Session, error)
	// Proxy says whether an access proxy vouches for people, and how it is called.
	Proxy() (name string, on bool)
	ProxyLogin(r *http.Request, from Remote) (Session, error)
}

// Provider is one OpenID provider.
type Provider struct{ ID, Name, Host string }

// OAuth is what the console asks of the authorization server.
type OAuth interface {
	// Authorize checks an authorization request. An error that has the method Redirect() string is told to the client
	// there; any other must be shown.
	Authorize(ctx context.Context, query url.Values, from Remote) (*Asked, error)
	// Consent gives the address to send the browser to.
	Consent(ctx context.Context, ticket string, person gate.Principal, allow bool, scopes []string) (string, error)
	Clients(ctx context.Context) ([]Client, error)
	Tokens(ctx context.Context) ([]Token, error)
	RevokeClient(ctx context.Context, who gate.Principal, id string) error
	RevokeToken(ctx context.Context, who gate.Principal, id string) error
}

// Asked is an authorization request that waits for a person.
type Asked struct {
	Ticket       string
	ClientID     string
	ClientName   string // the client's own words
	ClientHost   string // host of the client id; empty for a client that registered itself
	RedirectURI  string
	RedirectHost string
	Scopes       []string
	Resource     string
	Changed      bool // the redirects are not those that were agreed to before
}

// Client is a registered OAuth client.
type Client struct {
	ID, Name, Kind, Host string
	Redirects            []string
	Created, Expires     time.Time
	LastUsed             time.Time
}

// Token is a live access: a grant of a person to a client, or a static bearer.
type Token struct {
	ID, Client, Agent, Person string
	Static                    bool
	Roles, Scopes             []string
	Created, Expires          time.Time
	LastUsed                  time.Time
}

// Audit reads the ledger, within what the person may see of it.
type Audit interface {
	Search(ctx context.Context, who gate.Principal, q Query) (Found, error)
	Record(ctx context.Context, who gate.Principal, tree string, index int64) (*Record, error)
}

// Query selects records. Every field that is set must match; Text is searched literally.
type Query struct {
	Since, Until time.Time
	Operation    string
	Actor        string
	Target       string
	Status       string
	Effect       string
	Text         string
	Limit        int
	Cursor       string
}

// Found is one page of records, newest first.
type Found struct {
	Records []Record
	Cursor  string
	Notice  string // why it is not the whole answer
}

// Record is one record of the ledger.
type Record struct {
	Tree      string
	Index     int64
	At        string
	Kind      string
	Operation string
	Actor     string
	Client    string
	Target    string
	Status    string
	Effect    string
	Plan      string
	UPID      string
	Marks     map[string]string
	Parts     map[string]string
	Withheld  []string // parts that were dropped
}

// Settings are the keys of the configuration and of the running installation.
type Settings interface {
	List(ctx context.Context, who gate.Principal) ([]Setting, error)
	Set(ctx context.Context, who gate.Principal, key, value string) error
}

// Setting is one key. A secret one has no Value.
type Setting struct {
	Key, Value string
	Set        bool // false: the default is in force
	Secret     bool
	Source     string // "default", "file", "environment", "console", ...
	Help       string
	Editable   bool
	Choices    []string // the values it takes; empty = any
	Problem    string   // why a value that was given is not in force
}
