package oauth

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"castellan/internal/gate"
)

// Refused is an answer of the endpoints, or to a bearer, that gives nothing.
type Refused struct {
	Status      int           // of HTTP
	Code        string        // of the RFCs: "invalid_grant", "invalid_token", ...
	Description string        // what happened and what to do next; holds no text of outsiders
	After       time.Duration // Retry-After, when not 0
	basic       bool          // the client authenticated with Basic
	cause       error
}

func (r *Refused) Error() string { return r.Description }

// Wait is how long to wait before trying again, 0 when that would not help.
func (r *Refused) Wait() time.Duration { return r.After }

// Unwrap gives the cause, which is not for outsiders.
func (r *Refused) Unwrap() error { return r.cause }

func refuse(status int, code, description string) *Refused {
	return &Refused{Status: status, Code: code, Description: description}
}

// asRefused finds the refusal in a chain; anything else is our own fault.
func asRefused(err error) *Refused {
	var r *Refused
	if errors.As(err, &r) {
		return r
	}
	return &Refused{Status: http.StatusInternalServerError, Code: "server_error", Description: "the server failed; nothing was given", cause: err}
}

// write sends the refusal in the form of RFC 6749.
func (r *Refused) write(w http.ResponseWriter) {
	if r.After > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((r.After+time.Second-1)/time.Second)))
	}
	if r.Status == http.StatusUnauthorized {
		scheme := "Bearer"
		if r.basic {
			scheme = "Basic"
		}
		w.Header().Set("WWW-Authenticate", scheme+` realm="castellan", error=`+quoted(r.Code))
	}
	answer(w, r.Status, struct {
		Error       string `json:"error"`
		Description string `json:"error_description,omitempty"`
	}{r.Code, plain(r.Description)})
}

// answer writes JSON that nobody may keep.
func answer(w http.ResponseWriter, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil { // of our own types: cannot be
		status, b = http.StatusInternalServerError, []byte(`{"error":"server_error"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Pragma", "no-cache")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(b) // a client that has gone has gone
}

// plain keeps what the RFCs let stand in a description: printable ASCII without quote and backslash.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '"' || r == '\\':
			return '\''
		case r < 0x20 || r > 0x7e:
			return ' '
		}
		return r
	}, s)
}

func quoted(s string) string { return `"` + plain(s) + `"` }

// forPeople turns a refusal into the form that ways in know; the refusal stays its cause.
func forPeople(err *error) {
	var r *Refused
	var known *gate.Error
	if !errors.As(*err, &r) || errors.As(*err, &known) {
		return
	}
	kind, hint := gate.ErrInvalid, "Start again from the client."
	switch {
	case r.Status == http.StatusConflict:
		kind = gate.ErrStale
	case r.Status == http.StatusTooManyRequests:
		kind, hint = gate.ErrDenied, "Wait, then try again."
	case r.Status >= 500:
		kind, hint = gate.ErrUnavailable, "Try again later; castellan daemon check and the log of the server say what is wrong."
	}
	*err = &gate.Error{Kind: kind, Message: r.Description, Changed: "nothing", Hint: hint, Cause: r}
}

// page is a refusal that a person sees: not safe to redirect.
func page(hint, format string, args ...any) error {
	return gate.Fail(gate.ErrInvalid, hint, format, args...)
}
