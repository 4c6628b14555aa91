package console

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
	"castellan/internal/oauth"
)

// Gate is what the console asks of the gate.
type Gate interface {
	// Do makes a call of the person's own: reads of the ledger and of the settings, as far as policy lets them.
	Do(ctx context.Context, c gate.Call, progress gate.Progress) (*gate.Outcome, error)
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
	// MayApply says why this principal may not carry out a plan that is approved or paused.
	MayApply(ctx context.Context, who gate.Principal, r *gate.PlanRecord) error
	Grant(ctx context.Context, m gate.Mandate, e gate.Evidence) (*gate.Mandate, error)
	Mandates(ctx context.Context, who gate.Principal) ([]*gate.Mandate, error)
	// ScheduleRuns tells what became of the windows of a mandate that has a schedule, the newest first.
	ScheduleRuns(ctx context.Context, m *gate.Mandate) ([]gate.ScheduleRun, error)
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

// People signs people in and keeps their passkeys; *identity.Identity is one.
type People interface {
	// Session says whose live sign-in the token is, with the roles and the expiry that hold now.
	Session(ctx context.Context, token string) (gate.Principal, error)
	Password(ctx context.Context, name, password string, from identity.Remote) (identity.Session, error)
	RealmLogin(ctx context.Context, realm, name, password, totp string, from identity.Remote) (identity.Session, error)
	OIDCStart(ctx context.Context, name string) (redirect, ticket string, err error)
	OIDCFinish(ctx context.Context, ticket string, query url.Values, from identity.Remote) (identity.Session, error)
	Access(ctx context.Context, r *http.Request, from identity.Remote) (identity.Session, error)
	SignOut(ctx context.Context, token string) error

	PasskeyProblem() error
	PasskeyStart(ctx context.Context) (options json.RawMessage, ticket string, err error)
	PasskeyFinish(ctx context.Context, ticket string, response json.RawMessage, from identity.Remote) (identity.Session, error)
	// RequestOptions is what the browser is asked so that the person's passkey signs a challenge.
	RequestOptions(ctx context.Context, person string, challenge []byte) (json.RawMessage, error)
	EnrolStart(ctx context.Context, session, proof string) (options json.RawMessage, ticket string, err error)
	EnrolFinish(ctx context.Context, session, ticket string, response json.RawMessage, name string) error
	// A voucher says that somebody with a passkey lets this person enrol one.
	VouchStart(ctx context.Context, session, name string) (options json.RawMessage, ticket string, err error)
	VouchFinish(ctx context.Context, session, ticket string, response json.RawMessage) (voucher string, err error)
	Invite(ctx context.Context, session, voucher, name string) (code string, err error)
	Credentials(ctx context.Context, person string) ([]identity.Credential, error)
	RemoveCredential(ctx context.Context, session, id string) error

	Sessions(ctx context.Context, person string) ([]identity.SessionInfo, error)
	EndSession(ctx context.Context, who gate.Principal, id string) error
	Accounts(ctx context.Context) ([]*identity.Account, error)
	SetRoles(ctx context.Context, who gate.Principal, name string, roles []string, until time.Time) error
	Disable(ctx context.Context, who gate.Principal, name string, disabled bool) error
}

// OAuth is the authorization server, for which the console asks people; *oauth.Server is one.
type OAuth interface {
	Authorize(ctx context.Context, query url.Values, from oauth.Remote) (*oauth.Asked, error)
	Recall(ctx context.Context, ticket string, person gate.Principal) (redirect string, ok bool, err error)
	Consent(ctx context.Context, ticket string, person gate.Principal, allow bool, scopes []string) (redirect string, err error)
	Clients(ctx context.Context) ([]oauth.ClientInfo, error)
	Tokens(ctx context.Context) ([]oauth.TokenInfo, error)
	RevokeClient(ctx context.Context, who gate.Principal, id string) error
	RevokeToken(ctx context.Context, who gate.Principal, id string) error
}

// Settings sets keys while castellan runs; nil value gives a key back to file and environment. What the keys are, the
// operation get_settings tells.
type Settings interface {
	Set(ctx context.Context, who gate.Principal, key string, value json.RawMessage) error
}

var (
	_ Gate     = (*gate.Gate)(nil)
	_ Switches = (*gate.Gate)(nil)
	_ People   = (*identity.Identity)(nil)
	_ OAuth    = (*oauth.Server)(nil)
)
