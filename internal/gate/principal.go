package gate

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

// Principal is who acts. Authority is the intersection of agent and person; Client is what the other side says
// of itself and is never authority.
type Principal struct {
	Agent    string    `json:"agent,omitempty"`  // the configured agent, empty for a person acting alone
	Person   string    `json:"person,omitempty"` // on whose behalf
	Client   string    `json:"client,omitempty"` // the client's own words, bounded
	WayIn    string    `json:"way_in"`           // "mcp-stdio", "cli", "demo", ...
	Strength Strength  `json:"strength"`
	Roles    []string  `json:"roles,omitempty"`
	Until    time.Time `json:"until,omitzero"` // zero = no expiry
	// IP is where the request came from, and Token the id of the token that it brought, for the record of it alone: they are
	// no part of who somebody is.
	IP    string `json:"-"`
	Token string `json:"-"`
}

// marks are what a record tells of where a request came from; nil when nothing is known.
func (p Principal) marks() map[string]string {
	var out map[string]string
	for name, value := range map[string]string{"ip": p.IP, "token": p.Token} {
		if value == "" {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = value
	}
	return out
}

// Strength says how well the principal is known.
type Strength string

// The strengths. Account means: a process of the account that also holds keys, policy and store; peer: a process of
// another account of this machine, by the credentials of its socket.
const (
	StrengthAccount Strength = "account"
	StrengthPeer    Strength = "peer"
	StrengthToken   Strength = "token"
	StrengthSession Strength = "session"
	StrengthPasskey Strength = "passkey"
)

// Key identifies agent and person together; plans belong to it.
func (p Principal) Key() string { return p.Agent + "|" + p.Person }

// The built-in roles. Roles of a principal are words for policy; these four have a meaning of their own: who has any of
// them may do only what one of them lets.
const (
	RoleViewer        = "viewer"        // reads
	RoleOperator      = "operator"      // reads and makes plans
	RoleApprover      = "approver"      // reads, and approves plans of others
	RoleAdministrator = "administrator" // all of it, and settings
)

// Roles lists the built-in roles, least first.
func Roles() []string { return []string{RoleViewer, RoleOperator, RoleApprover, RoleAdministrator} }

// Oversees says whether the principal is a person who may see, approve and stop the plans of others: at this machine's
// account that holds everything, or signed in with the role of approver or administrator.
func (p Principal) Oversees() bool {
	if p.Agent != "" || p.Person == "" {
		return false
	}
	switch p.Strength {
	case StrengthAccount:
		return true
	case StrengthSession, StrengthPasskey:
		return slices.Contains(p.Roles, RoleApprover) || slices.Contains(p.Roles, RoleAdministrator)
	}
	return false
}

// looksOnly says whether none of the principal's built-in roles lets it change anything.
func (p Principal) looksOnly() bool {
	any := false
	for _, r := range p.Roles {
		if r == RoleOperator || r == RoleAdministrator {
			return false
		}
		any = any || slices.Contains(Roles(), r)
	}
	return any
}

// Call is all that a way in builds.
type Call struct {
	Operation string
	Args      json.RawMessage // one JSON object; empty = {}
	Principal Principal
	Reason    string // the caller's words, shown as such
	PlanOnly  bool   // stop at the plan even where no approval is needed
	// ClientDialog says that the way in can show a dialog to the caller's user (MCP elicitation, a terminal).
	ClientDialog bool
	// Shown says of an operation whether the caller has a tool or command of its name; nil: of every one.
	Shown     func(operation string) bool
	scheduled bool // the gate itself makes it, by a mandate's schedule
}

// Progress receives lines while a call waits; nil is fine. Done and total are in steps.
type Progress func(done, total int, message string)

// Report calls p when it is there.
func (p Progress) Report(done, total int, message string) {
	if p != nil {
		p(done, total, message)
	}
}

// Status is what became of a call.
type Status string

// The statuses of an Outcome.
const (
	StatusAnswer  Status = "answer"
	StatusNothing Status = "nothing_to_do"
	StatusWaiting Status = "needs_approval"
	StatusPlanned Status = "planned" // plan_only: approved by nobody, needs none
	StatusRunning Status = "running"
	StatusDone    Status = "done"
	StatusFailed  Status = "failed"
	StatusUnknown Status = "unknown"
)

// Outcome is the result of a call that was not an error.
type Outcome struct {
	Status  Status          `json:"status"`
	Answer  json.RawMessage `json:"answer,omitempty"`
	Plan    *PlanView       `json:"plan,omitempty"`
	Receipt *Receipt        `json:"receipt,omitempty"`
	// Output is what the runs of a plan that has ended gave: text of programs on the other side.
	Output []RunOutput `json:"output,omitempty"`
	// Saved are the files that a plan which has ended fetched.
	Saved []SavedFile `json:"saved,omitempty"`
	// Next says in one line what the caller should do now.
	Next string `json:"next,omitempty"`
	// Notices concern every answer: the ledger cannot be written, a changed configuration was not taken up.
	Notices []string `json:"notices,omitempty"`
	// Untrusted marks answers with free text that outsiders may have written.
	Untrusted bool `json:"untrusted,omitempty"`
	// Outside says who may have written that text. Removed counts the control and unseen characters that were taken out,
	// Cut the texts that were shortened.
	Outside []string `json:"outside,omitempty"`
	Removed int      `json:"removed_characters,omitempty"`
	Cut     int      `json:"cut_texts,omitempty"`
}

// Clock tells the time; tests bring their own.
type Clock func() time.Time

// Operation is a declared capability. It never writes: it answers, or it describes.
type Operation struct {
	Name     string          // [a-z0-9_], at most 40 characters
	Summary  string          // one line
	Product  string          // "pve", ...; empty for castellan's own
	Effect   Effect          // the worst that it can have
	Kinds    []Kind          // the rows it usually falls under: for listing and refusals; facts decide
	Undo     string          // how it is undone, or that it is not
	Keywords string          // more words to find it by
	Toolset  string          // "front", "standard" or "full": the smallest toolset that shows it
	Guest    string          // the argument that names one guest, if any
	Bounded  bool            // shows identifiers, states and figures only: what it reads does not taint
	Input    json.RawMessage // closed JSON schema of the arguments
	Output   json.RawMessage // JSON schema of the answer
	wide     bool
	run      runner
	takes    *shape
	fault    error // of the declaration; New refuses it
}

// runner is exactly one of the three forms of an operation.
type runner struct {
	query   func(ctx context.Context, v View, args json.RawMessage) (any, error)
	change  func(ctx context.Context, v View, args json.RawMessage) (*Draft, error)
	control func(ctx context.Context, d Desk, args json.RawMessage) (any, error)
	door    func(ctx context.Context, v View, args json.RawMessage) (any, *Draft, error)
}

// Door says whether the operation leads to all others by their names.
func (o *Operation) Door() bool { return o.run.door != nil }

// Writes says whether the operation can make plans.
func (o *Operation) Writes() bool { return o.run.change != nil || o.run.door != nil }
