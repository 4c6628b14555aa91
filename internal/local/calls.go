package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"castellan/internal/gate"
)

// calls is one connection of the command line. Its processes may be an agent's: they get what an agent on behalf of the
// account gets. Only a password that the daemon itself has checked makes them more, and only for a plan's approval.
type calls struct {
	s        *Server
	who      gate.Principal
	peer     Peer
	planOnly bool
	w        *lines

	session string // of the person who signed in on this connection; never sent to the client
	person  gate.Principal
}

// serve answers requests, one after another, until the client goes or ctx ends. A client that goes ends its request.
func (c *calls) serve(ctx context.Context, r *bufio.Reader) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asked := make(chan request)
	go func() {
		defer cancel()
		defer close(asked)
		for {
			var q request
			if err := readJSON(r, maxRequest, &q); err != nil {
				if !errors.Is(err, io.EOF) && ctx.Err() == nil {
					_ = c.w.write(reply{Error: gate.Fail(gate.ErrInvalid, "Use the same version of castellan on both sides.", "a request was not understood: %v", err)})
				}
				return
			}
			select {
			case asked <- q:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		if c.session != "" {
			c.s.c.People.SignOut(context.WithoutCancel(ctx), c.session)
		}
	}()
	for {
		select {
		case q, open := <-asked:
			if !open || c.w.write(c.answer(ctx, q)) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// answer carries one request out; a panic in it is an error of this request.
func (c *calls) answer(ctx context.Context, q request) (a reply) {
	defer func() {
		if p := recover(); p != nil {
			c.s.c.Log.Error("panic in a request", "method", q.Method, "panic", fmt.Sprint(p))
			a = reply{Error: &gate.Error{Kind: gate.ErrInternal, Message: "a fault in castellan ended this call; its log tells more", Changed: "unknown",
				Hint: "Look at list_plans and audit_search for what was done before trying again."}}
		}
	}()
	a, err := c.do(ctx, q)
	if err != nil {
		return reply{Error: gate.AsError(err)}
	}
	return a
}

func (c *calls) do(ctx context.Context, q request) (reply, error) {
	switch q.Method {
	case methodDo:
		out, err := c.s.c.Gate.Do(ctx, gate.Call{Operation: q.Operation, Args: q.Args, Principal: c.who, Reason: q.Reason, PlanOnly: q.PlanOnly || c.planOnly}, c.progress)
		return reply{Outcome: out}, err
	case methodConfirm: // a yes on a terminal: the gate takes it as a dialog, and for nothing above
		out, err := c.s.c.Gate.Confirm(ctx, c.who, q.Plan, gate.Evidence{Kind: "terminal", Phrase: q.Phrase}, c.progress)
		return reply{Outcome: out}, err
	case methodKill:
		if !q.On {
			return reply{}, gate.Fail(gate.ErrDenied, "An approver switches it off on the console, or root does on this machine with: castellan contain off.",
				"over the socket the kill switch can be switched on only")
		}
		who := c.who
		who.Agent = "" // stopping everything is for anybody of the account
		return reply{Done: true}, c.s.c.Gate.Kill(ctx, who, true)
	case methodArm: // the gate lets a peer close the window, not open it
		return reply{Done: true}, c.s.c.Gate.Arm(ctx, c.who, q.Until)
	case methodSwitch:
		s, err := c.s.c.Gate.Switches(ctx)
		return reply{Switches: &s}, err
	}
	return c.approval(ctx, q)
}

// approval carries out what a person does.
func (c *calls) approval(ctx context.Context, q request) (reply, error) {
	people := c.s.c.People
	switch q.Method {
	case methodSignIn, methodShow, methodApprove, methodDeny:
	default:
		return reply{}, gate.Fail(gate.ErrInvalid, "Use the same version of castellan on both sides.", "there is no request %.40q", q.Method)
	}
	if people == nil {
		return reply{}, gate.Fail(gate.ErrUnavailable, "Approve on the console.", "this daemon knows no people with passwords")
	}
	if q.Method == methodSignIn {
		if c.session != "" {
			return reply{}, gate.Fail(gate.ErrInvalid, "", "somebody has signed in on this connection already")
		}
		session, who, err := people.SignIn(ctx, c.peer, orElse(q.Person, c.who.Person), q.Password)
		if err != nil {
			return reply{}, err
		}
		c.session, c.person = session, who
		return reply{Done: true}, nil
	}
	if c.session == "" {
		return reply{}, gate.Fail(gate.ErrDenied, "Sign in first.", "nobody has signed in on this connection")
	}
	switch q.Method {
	case methodShow:
		v, err := people.Show(ctx, c.person, q.Plan)
		return reply{Plan: v}, err
	case methodApprove:
		v, err := people.Approve(ctx, c.session, q.Plan, q.Newer)
		return reply{Plan: v}, err
	}
	return reply{Done: true}, people.Deny(ctx, c.session, q.Plan, q.Reason)
}

func (c *calls) progress(done, total int, message string) {
	_ = c.w.write(reply{Progress: &progress{done, total, message}}) // the end of the connection is seen by who reads
}
