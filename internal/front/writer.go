package front

import (
	"net/http"
	"strings"
	"time"
)

// writer keeps the status, gives every write a deadline, and puts JSON in place of texts and pages for "not found" and
// "not allowed" where no person reads.
type writer struct {
	http.ResponseWriter
	route    string
	status   int
	json     bool // the client asks for no HTML
	replaced bool
}

// Unwrap lets http.ResponseController reach the connection.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sends the status.
func (w *writer) WriteHeader(status int) {
	if status < 200 { // it is followed by the real one
		w.ResponseWriter.WriteHeader(status)
		return
	}
	if w.status != 0 {
		return
	}
	machine := strings.Contains(w.Header().Get("Content-Type"), "json")
	if w.json && !machine && (status == http.StatusNotFound || status == http.StatusMethodNotAllowed) {
		w.replaced = true
		w.status = status
		w.json = false
		message, hint := "there is nothing at this path", "MCP is served at /mcp, the console at /."
		if status == http.StatusMethodNotAllowed {
			message, hint = "this method is not allowed here", "Allowed: "+w.Header().Get("Allow")+"."
		}
		inner := w.ResponseWriter
		fail(inner, status, "not_found", message, hint)
		return
	}
	w.status = status
	w.deadline()
	w.ResponseWriter.WriteHeader(status)
}

// Write sends a part of the body. A client that does not read does not hold a request for ever.
func (w *writer) Write(b []byte) (int, error) {
	if w.replaced {
		return len(b), nil
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.deadline()
	return w.ResponseWriter.Write(b)
}

// Flush sends what is held back.
func (w *writer) Flush() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.deadline()
	_ = http.NewResponseController(w.ResponseWriter).Flush() // where it cannot, nothing is held back
}

func (w *writer) deadline() {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(writeTime)) // a recorder in a test has none
}
