// Package local is the way in over a unix socket. The daemon learns from the kernel which account is at the other end;
// what that end says of itself can only ask for less. A connection either relays the lines of one MCP client, or carries
// the calls of the command line.
package local

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"castellan/internal/gate"
)

// The kinds of connections.
const (
	KindMCP   = "mcp"   // after the greeting, lines of MCP in both directions
	KindCalls = "calls" // after the greeting, one request a line, each answered by progress and one end
)

// protocol is the number in a greeting; another one is refused.
const protocol = 1

// Hello is the first line of a connection, from the client. Nothing in it gives authority.
type Hello struct {
	Castellan int      `json:"castellan"` // 1
	Kind      string   `json:"kind"`
	Toolset   []string `json:"toolset,omitempty"`
	// Pin is the checksum that the toolset must have; Checksum asks for it and serves nothing.
	Pin      string `json:"pin,omitempty"`
	Checksum bool   `json:"checksum,omitempty"`
	// PlanOnly stops every change at its plan.
	PlanOnly bool `json:"plan_only,omitempty"`
}

// Welcome is the daemon's answer to a Hello.
type Welcome struct {
	Account  string      `json:"account,omitempty"` // as which the daemon knows the client
	Agent    string      `json:"agent,omitempty"`   // on whose side it is taken to be
	Separate bool        `json:"separate"`          // the daemon's keys are out of reach of the client's account
	Checksum string      `json:"checksum,omitempty"`
	Error    *gate.Error `json:"error,omitempty"`
}

// The methods of a connection of KindCalls.
const (
	methodDo      = "do"
	methodConfirm = "confirm"
	methodKill    = "kill"
	methodArm     = "arm"
	methodSwitch  = "switches"
	methodSignIn  = "sign_in"
	methodShow    = "show"
	methodApprove = "approve"
	methodDeny    = "deny"
)

type request struct {
	Method    string          `json:"method"`
	Operation string          `json:"operation,omitempty"`
	Args      json.RawMessage `json:"args,omitempty"`
	Reason    string          `json:"reason,omitempty"` // of a change, or why it is denied
	PlanOnly  bool            `json:"plan_only,omitempty"`
	Plan      string          `json:"plan,omitempty"`
	Phrase    string          `json:"phrase,omitempty"`
	On        bool            `json:"on,omitempty"`
	Until     time.Time       `json:"until,omitzero"`
	Person    string          `json:"person,omitempty"`
	Password  string          `json:"password,omitempty"`
	Newer     bool            `json:"newer,omitempty"` // of an approval: newer versions are allowed
}

type reply struct {
	Progress *progress      `json:"progress,omitempty"`
	Outcome  *gate.Outcome  `json:"outcome,omitempty"`
	Plan     *gate.PlanView `json:"plan,omitempty"`
	Switches *gate.Switches `json:"switches,omitempty"`
	Done     bool           `json:"done,omitempty"` // of a method with nothing to tell
	Error    *gate.Error    `json:"error,omitempty"`
}

type progress struct {
	Done    int    `json:"done"`
	Total   int    `json:"total"`
	Message string `json:"message"`
}

// Bounds of one line, in bytes: of a greeting, of a request, of an answer.
const (
	maxHello   = 64 << 10
	maxRequest = 4 << 20
	maxReply   = 64 << 20
)

var errTooLong = errors.New("the line is too long")

// readLine reads one line of at most limit bytes. It never keeps more than that.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, errTooLong
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// readJSON reads one line into v; unknown fields are errors, so that nothing is asked for that is silently not done.
func readJSON(r *bufio.Reader, limit int, v any) error {
	line, err := readLine(r, limit)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("read a line: %w", err)
	}
	if d.More() {
		return errors.New("read a line: it holds more than one value")
	}
	return nil
}

// lines writes whole lines; several goroutines may.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) write(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write a line: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.w.Write(append(b, '\n'))
	return err
}

// decode reads one line of an answer; what a newer daemon adds is passed over.
func decode(line []byte, v any) error { return json.Unmarshal(line, v) }
