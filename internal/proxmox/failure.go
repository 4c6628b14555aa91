package proxmox

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"strings"

	"castellan/internal/gate"
)

const (
	statusUnreachable = 595 // the server could not connect to the node or daemon that has to do it
	statusNoAnswer    = 596 // it connected and got no answer
)

// failure says what a reply with an error status means, as far as the reply alone tells.
func (r reply) failure(kind string) *gate.UpstreamError {
	text, params := r.words()
	e := &gate.UpstreamError{Delivery: gate.MaybeDone, Status: r.status, Message: text, Params: params}
	switch r.status {
	case http.StatusUnauthorized:
		e.Kind, e.Auth = gate.ErrDenied, !r.page()
	case http.StatusForbidden:
		e.Kind = gate.ErrDenied
	case http.StatusBadRequest:
		e.Kind = gate.ErrInvalid
	case http.StatusNotFound:
		e.Kind = gate.ErrNotFound
	case http.StatusNotImplemented:
		e.Kind = gate.ErrInvalid
		e.Hint = "This server does not have that call; its version may be older or newer than the catalogue."
	default:
		e.Kind = gate.ErrUnavailable
	}
	if r.foreign() {
		e.Message = r.stranger("text/html")
		e.Hint = "Something other than the API answered at " + r.address + ": a reverse proxy or an access service. If it wants headers of its own, name them under headers of this target."
		if r.redirect() {
			e.Kind = gate.ErrUnavailable
		}
		return e
	}
	e.Refused = kind == kindPVE && r.ownRefusal()
	return e
}

// ownRefusal tells that the API's method itself ended with an error: its whole answer came, in the form that no other
// program gives. The method has ended then, and does nothing any more.
func (r reply) ownRefusal() bool {
	if r.status != http.StatusInternalServerError || r.cut != nil {
		return false
	}
	_, data, err := envelope(bytes.TrimSpace(r.body))
	return err == nil && string(bytes.TrimSpace(data)) == "null"
}

// page tells a web page: below /api2/json the products never answer with one, so somebody in between did.
func (r reply) page() bool {
	media, _, _ := mime.ParseMediaType(r.header.Get("Content-Type"))
	return media == "text/html" || bytes.HasPrefix(bytes.TrimSpace(r.body[:min(len(r.body), 256)]), []byte("<"))
}

func (r reply) redirect() bool { return r.status >= 300 && r.status < 400 }

// foreign says that somebody else than the API answered.
func (r reply) foreign() bool { return r.page() || r.redirect() }

// transportFailure says what it means that no reply came.
func transportFailure(err error, write bool) *gate.UpstreamError {
	e := &gate.UpstreamError{Kind: gate.ErrUnavailable, Delivery: gate.MaybeDone, Message: clean(err.Error(), 600), Cause: err}
	var before *connectError
	var sent *sentError
	var cert *certificateError
	switch {
	case errors.As(err, &before):
		e.Delivery = gate.NotCarriedOut
		e.Hint = "Nothing was sent. Check that the host is up and the address right."
		if errors.As(err, &cert) {
			e.Hint = "Nothing secret was sent. If the certificate was renewed on purpose, check its fingerprint on the host itself (pvenode cert info) and change pins or ca_file of this target; otherwise somebody may stand in between."
		}
	case errors.As(err, &sent):
		if !sent.wrote {
			e.Delivery = gate.NotCarriedOut
		}
		if write && e.Delivery == gate.MaybeDone {
			e.Kind = gate.ErrUnknownOutcome
			e.Hint = "The request had left; it may or may not have been carried out. Read back before anything is repeated."
		}
	}
	return e
}

// guestConfigWrite tells the writes of a guest's configuration: a failed hotplug answers 400 there after the change
// was stored.
func guestConfigWrite(operation string) bool {
	method, path, _ := strings.Cut(operation, " ")
	if method != http.MethodPut && method != http.MethodPost {
		return false
	}
	return strings.HasSuffix(path, "/qemu/{vmid}/config") || strings.HasSuffix(path, "/lxc/{vmid}/config")
}

// parameterRefusal tells a 400 that was said before anything was done. PVE and PMG say 400 for parameters only; PBS
// and PDM say it for every failure, so there only the text of their parameter check counts.
func parameterRefusal(kind string, e *gate.UpstreamError) bool {
	if kind == kindPVE || kind == kindPMG {
		return true
	}
	return strings.HasPrefix(strings.ToLower(e.Message), "parameter verification failed") || strings.HasPrefix(e.Message, "parameter verification errors")
}

// delivery is the table of proofs that a write had no effect. Everything that is not in it may have been done.
// A web page proves nothing: who made it may have let the request through before. otherNode says that the node of the
// path is known not to be the one that was talked to.
func delivery(kind, operation string, e *gate.UpstreamError, r reply, otherNode bool) gate.Delivery {
	if r.page() {
		return gate.MaybeDone
	}
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotImplemented:
		return gate.NotCarriedOut
	case http.StatusBadRequest:
		if !guestConfigWrite(operation) && parameterRefusal(kind, e) {
			return gate.NotCarriedOut
		}
	case statusUnreachable:
		// Said of the own daemon it may be a restart in the middle of the call.
		if kind == kindPVE && otherNode && strings.EqualFold(r.reason, "Connection refused") {
			return gate.NotCarriedOut
		}
	}
	return gate.MaybeDone
}

// pathValues reads the placeholders of a template back out of a rendered path.
func pathValues(operation, rendered string) map[string]string {
	_, template, _ := strings.Cut(operation, " ")
	want, have := strings.Split(template, "/"), strings.Split(rendered, "/")
	out := map[string]string{}
	for i, part := range want {
		if i >= len(have) {
			break
		}
		if len(part) > 2 && part[0] == '{' && part[len(part)-1] == '}' {
			out[part[1:len(part)-1]] = unescape(have[i])
		}
	}
	return out
}
