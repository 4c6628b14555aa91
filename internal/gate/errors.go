package gate

import (
	"errors"
	"fmt"
	"strings"
)

// ErrorKind is the stable code of an error.
type ErrorKind string

// The kinds of errors. Ways in map them to their own codes (exit codes, HTTP status).
const (
	ErrInvalid        ErrorKind = "invalid"
	ErrNotFound       ErrorKind = "not_found"
	ErrDenied         ErrorKind = "denied"
	ErrNeedsApproval  ErrorKind = "needs_approval"
	ErrStale          ErrorKind = "stale"
	ErrUnavailable    ErrorKind = "unavailable"
	ErrUnknownOutcome ErrorKind = "unknown_outcome"
	ErrInternal       ErrorKind = "internal"
)

// Error is what callers see. Its reader cannot see the code and is often a model: Message says what happened,
// Changed whether anything changed, Hint the next step.
type Error struct {
	Kind      ErrorKind `json:"kind"`
	Operation string    `json:"operation,omitempty"`
	Target    string    `json:"target,omitempty"`
	Message   string    `json:"message"`
	Changed   string    `json:"changed"` // "nothing", or what is known to have changed, or "unknown"
	Hint      string    `json:"hint,omitempty"`
	Upstream  string    `json:"upstream,omitempty"` // what the other side said, bounded; its words, not ours
	// Untrusted marks an error that may hold free text of outsiders, Outside says who may have written it.
	Untrusted bool     `json:"untrusted,omitempty"`
	Outside   []string `json:"outside,omitempty"`
	// Hits and Unread are what the plan of a refused call would have hit, where the caller asked for no more than the plan.
	Hits   []HitView `json:"hits,omitempty"`
	Unread []string  `json:"unread,omitempty"`
	Cause  error     `json:"-"`
	// applier: it is not the plan that is refused but who would carry it out, where that is not who asked for it.
	applier bool
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Message)
	if e.Upstream != "" {
		fmt.Fprintf(&b, " (the server said: %q)", e.Upstream)
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Fail makes an Error that changed nothing.
func Fail(kind ErrorKind, hint, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...), Changed: "nothing", Hint: hint}
}

// AsError finds the Error in a chain, or wraps what is there as internal.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Kind: ErrInternal, Message: err.Error(), Changed: "unknown", Hint: "Look at list_plans and audit_search for what was done.", Cause: err}
}

// ErrNoQuery is the cause when View.Query is asked for an operation that plans.
var ErrNoQuery = errors.New("the operation plans")

// Errors of the store that the gate tells apart.
var (
	ErrStoreNotFound = errors.New("not in the store")
	ErrStoreConflict = errors.New("changed by another process meanwhile")
	ErrNonceUsed     = errors.New("used before")
	ErrReadOnlyStore = errors.New("ledger cannot be written")
)

// Delivery says what is known about a request that did not end well.
type Delivery string

// The deliveries of a failed request.
const (
	NotCarriedOut Delivery = "not_carried_out" // proven: no byte left, or the server refused before acting
	MaybeDone     Delivery = "maybe_done"      // sent, and no proof either way
)

// UpstreamError is what a driver returns for a read or write that failed.
type UpstreamError struct {
	Kind     ErrorKind
	Delivery Delivery
	Status   int               // HTTP status; 0 = none came
	Message  string            // the server's words or the transport's, bounded
	Params   map[string]string // per parameter, where the server said so
	Hint     string
	Auth     bool // the login was refused or has expired
	// Refused: the product itself answered, in whole, that the call failed. What it changed before it failed is not said.
	Refused bool
	Cause   error
}

func (e *UpstreamError) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("%d %s", e.Status, e.Message)
	}
	return e.Message
}

// Unwrap gives the cause.
func (e *UpstreamError) Unwrap() error { return e.Cause }

// advice is the error with what to do next, without a full stop: it becomes part of a sentence.
func (e *Error) advice() string {
	if e.Hint == "" {
		return e.Error()
	}
	return e.Error() + ". " + strings.TrimSuffix(e.Hint, ".")
}
