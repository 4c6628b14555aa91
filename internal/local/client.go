package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"castellan/internal/gate"
)

// ErrNoWelcome is in the chain of an error that came before anything was served.
var ErrNoWelcome = errors.New("the daemon did not welcome this client")

// Dial greets the daemon. The connection is the caller's to close; r holds what was read ahead.
func Dial(ctx context.Context, path string, h Hello) (c net.Conn, r *bufio.Reader, w Welcome, err error) {
	h.Castellan = protocol
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	var d net.Dialer
	if c, err = d.DialContext(ctx, "unix", path); err != nil {
		return nil, nil, w, unreachable(path, err)
	}
	conn := c
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	werr := (&lines{w: c}).write(h) // a daemon that refuses may have hung up; its answer says why
	r = bufio.NewReader(c)
	line, err := readLine(r, maxHello)
	if err != nil {
		return nil, nil, w, unreachable(path, errors.Join(err, werr))
	}
	if err = decode(line, &w); err != nil {
		e := gate.Fail(gate.ErrUnavailable, "Use the same version of castellan on both sides.", "the daemon at %s answered what is not understood: %v", path, err)
		e.Cause = ErrNoWelcome
		return nil, nil, w, e
	}
	if w.Error != nil {
		w.Error.Cause = ErrNoWelcome
		return nil, nil, w, w.Error
	}
	return c, r, w, nil
}

func unreachable(path string, err error) error {
	hint := "Look at: systemctl status castellan"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hint = "Start the daemon (systemctl start castellan), or set socket to where it listens."
	case errors.Is(err, fs.ErrPermission):
		hint = "This account may not reach the socket; whoever runs the daemon decides."
	case errors.Is(err, syscall.ECONNREFUSED):
		hint = "No daemon listens there any more: systemctl start castellan"
	}
	e := gate.Fail(gate.ErrUnavailable, hint, "the daemon at %s does not answer: %v", path, err)
	e.Cause = errors.Join(ErrNoWelcome, err)
	return e
}

// Client makes calls over the socket. One call at a time is carried; others wait.
type Client struct {
	path string
	conn net.Conn
	r    *bufio.Reader
	w    *lines
	// Welcome is what the daemon said.
	Welcome Welcome
	// SameAccount says that the daemon runs as the very account of this process.
	SameAccount bool

	mu   sync.Mutex
	dead bool
}

// Connect opens a connection for calls.
func Connect(ctx context.Context, path string) (*Client, error) {
	conn, r, w, err := Dial(ctx, path, Hello{Kind: KindCalls})
	if err != nil {
		return nil, err
	}
	c := &Client{path: path, conn: conn, r: r, w: &lines{w: conn}, Welcome: w}
	if u, ok := conn.(*net.UnixConn); ok {
		p, err := credentials(u)
		c.SameAccount = err == nil && p.UID == os.Geteuid()
	}
	return c, nil
}

// Close ends the connection, and a call that is under way.
func (c *Client) Close() error { return c.conn.Close() }

func (c *Client) ask(ctx context.Context, q request, p gate.Progress) (reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return reply{}, c.lost(q, io.ErrClosedPipe)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Now()) })
	defer stop()
	if err := c.w.write(q); err != nil {
		return reply{}, c.lost(q, err)
	}
	for {
		line, err := readLine(c.r, maxReply)
		if err == nil {
			var a reply
			if err = decode(line, &a); err == nil {
				switch {
				case a.Progress != nil:
					p.Report(a.Progress.Done, a.Progress.Total, a.Progress.Message)
					continue
				case a.Error != nil:
					return reply{}, a.Error
				}
				return a, nil
			}
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return reply{}, c.lost(q, err)
	}
}

// lost says what is known of a request whose answer did not come.
func (c *Client) lost(q request, err error) error {
	c.dead = true
	if q.Method == methodSignIn || q.Method == methodShow {
		return unreachable(c.path, err)
	}
	return &gate.Error{Kind: gate.ErrUnavailable, Operation: q.Operation, Message: fmt.Sprintf("the connection to the daemon ended before its answer came: %v", err), Changed: "unknown",
		Hint: "Look at castellan plans --all and castellan audit search for what was done before trying again.", Cause: err}
}

// Do makes a call. The daemon knows who calls; the principal in it is not sent.
func (c *Client) Do(ctx context.Context, call gate.Call, p gate.Progress) (*gate.Outcome, error) {
	a, err := c.ask(ctx, request{Method: methodDo, Operation: call.Operation, Args: call.Args, Reason: call.Reason, PlanOnly: call.PlanOnly}, p)
	return a.Outcome, err
}

// Confirm brings the yes of a terminal.
func (c *Client) Confirm(ctx context.Context, _ gate.Principal, id string, e gate.Evidence, p gate.Progress) (*gate.Outcome, error) {
	a, err := c.ask(ctx, request{Method: methodConfirm, Plan: id, Phrase: e.Phrase}, p)
	return a.Outcome, err
}

// Kill turns the kill switch; off is refused.
func (c *Client) Kill(ctx context.Context, _ gate.Principal, on bool) error {
	_, err := c.ask(ctx, request{Method: methodKill, On: on}, nil)
	return err
}

// Arm closes the armed window; opening it is refused.
func (c *Client) Arm(ctx context.Context, _ gate.Principal, until time.Time) error {
	_, err := c.ask(ctx, request{Method: methodArm, Until: until}, nil)
	return err
}

// Switches tells where they stand.
func (c *Client) Switches(ctx context.Context) (gate.Switches, error) {
	a, err := c.ask(ctx, request{Method: methodSwitch}, nil)
	if err != nil || a.Switches == nil {
		return gate.Switches{}, err
	}
	return *a.Switches, nil
}

// SignIn has the daemon check a password; what is proven holds for this connection. An empty person is the account's.
func (c *Client) SignIn(ctx context.Context, person, password string) error {
	_, err := c.ask(ctx, request{Method: methodSignIn, Person: person, Password: password}, nil)
	return err
}

// Show gives a plan as the person who signed in sees it.
func (c *Client) Show(ctx context.Context, plan string) (*gate.PlanView, error) {
	a, err := c.ask(ctx, request{Method: methodShow, Plan: plan}, nil)
	return a.Plan, err
}

// Approve approves a plan as the person who signed in. It starts nothing.
func (c *Client) Approve(ctx context.Context, plan string, newer bool) (*gate.PlanView, error) {
	a, err := c.ask(ctx, request{Method: methodApprove, Plan: plan, Newer: newer}, nil)
	return a.Plan, err
}

// Deny denies a plan as the person who signed in.
func (c *Client) Deny(ctx context.Context, plan, why string) error {
	_, err := c.ask(ctx, request{Method: methodDeny, Plan: plan, Reason: why}, nil)
	return err
}
