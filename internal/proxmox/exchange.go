package proxmox

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"castellan/internal/gate"
)

// call is one request on its way.
type call struct {
	c        *Client
	t        *target
	request  gate.Request
	rendered gate.Rendered
	write    bool
	veil     veil
	path     map[string]string // the placeholders as they were sent
	taking   *taking           // of a download
	stranger bool              // the reply did not come from the API: its words mean nothing there
}

// Read sends one catalogued read. An unreachable or failing address is passed over for the next one. Errors are
// *gate.UpstreamError, or *gate.Error for a target that is not configured.
func (c *Client) Read(ctx context.Context, name string, r gate.Request) (gate.Answer, error) {
	t, err := c.target(name)
	if err != nil {
		return gate.Answer{}, err
	}
	return c.read(ctx, t, r)
}

func (c *Client) read(ctx context.Context, t *target, r gate.Request) (gate.Answer, error) {
	k := &call{c: c, t: t, request: r}
	if err := k.render(nil); err != nil {
		return gate.Answer{}, err
	}
	ctx, stop := context.WithTimeout(ctx, t.set.ReadTimeout.or(40*time.Second))
	defer stop()
	var last *gate.UpstreamError
	order := t.link.order()
	for i, addr := range order {
		answer, fail, next := k.tryRead(ctx, addr)
		if fail == nil {
			return answer, nil
		}
		last = fail
		// "localhost" is another node at another address.
		if !next || ctx.Err() != nil || k.path["node"] == "localhost" && t.set.Kind == kindPVE {
			break
		}
		if i == len(order)-1 {
			break
		}
		c.log.Warn("address failed, trying the next one", "target", t.set.Name, "address", addr)
	}
	k.explain(ctx, last)
	return gate.Answer{}, last
}

// tryRead asks one address; next says that another one may know better.
func (k *call) tryRead(ctx context.Context, addr string) (answer gate.Answer, fail *gate.UpstreamError, next bool) {
	rep, notes, err := k.exchange(ctx, addr)
	if err != nil {
		fail := upstream(err, false)
		if fail.Auth {
			return gate.Answer{}, fail, false
		}
		// A call that ran out of time says nothing of the address: one dead storage can do that.
		if ctx.Err() == nil {
			k.t.link.fail(addr, fail.Message)
		}
		return gate.Answer{}, fail, ctx.Err() == nil
	}
	answer, fail = rep.answer(k.t.set.Kind, k.request.Text("download") == "1")
	k.stranger = rep.foreign()
	answer.Address, answer.Notes = addr, notes
	if fail == nil {
		k.t.link.works(addr)
		if k.request.Operation == "GET /version" {
			k.t.noteVersion(answer)
		}
		return answer, nil, false
	}
	switch rep.status {
	case statusUnreachable, statusNoAnswer:
		return gate.Answer{}, fail, k.elsewhere(ctx, rep, fail)
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		k.t.link.fail(addr, fail.Error())
		return gate.Answer{}, fail, true
	}
	if rep.status == http.StatusOK {
		// A page of something in between, or half an answer.
		if errors.Is(rep.cut, errTooLarge) {
			return gate.Answer{}, fail, false
		}
		k.t.link.fail(addr, fail.Error())
		return gate.Answer{}, fail, true
	}
	return gate.Answer{}, fail, false
}

// elsewhere decides whether a 595 or 596 is worth another address. It is said of the node of the path, which other
// addresses reach no better, or of a daemon of the contacted node itself.
func (k *call) elsewhere(ctx context.Context, rep reply, fail *gate.UpstreamError) (next bool) {
	node := k.path["node"]
	if node == "" || k.t.set.Kind != kindPVE {
		k.t.link.fail(rep.address, rep.line())
		return true
	}
	if at := k.contacted(ctx, rep); at == node || node == "localhost" {
		k.t.link.fail(rep.address, rep.line())
		fail.Hint = "The API daemon of node " + clean(node, 80) + " does not run or hangs; the other nodes can still be asked."
	} else if at != "" {
		fail.Message = "node " + clean(node, 80) + " cannot be reached (" + rep.line() + ")"
		fail.Hint = "That node is switched off, cut off, or its API daemon does not run; the others can still be asked."
		return false
	} else {
		fail.Hint = "Node " + clean(node, 80) + ", or the daemon of the server that was asked, cannot be reached."
	}
	// A hanging node has taken its half minute, and would again.
	return rep.status == statusUnreachable
}

// Send carries out the one write of the permit: one connection made for it, one request, no repetition. The only
// exception is a ticket that the server says has expired (401 proves that nothing was done): it is renewed once and
// the request sent once more, which the answer's notes tell. The answer's address is filled in on errors as well.
func (c *Client) Send(ctx context.Context, p *gate.Permit) (gate.Answer, error) {
	w, err := p.Take()
	if err != nil {
		return gate.Answer{}, err
	}
	return c.send(ctx, w)
}

func (c *Client) send(ctx context.Context, w gate.Write) (gate.Answer, error) {
	t, err := c.target(w.Target)
	if err != nil {
		return gate.Answer{}, notSent(err)
	}
	addr, err := t.writeAddress(w.Address)
	if err != nil {
		return gate.Answer{}, notSent(err)
	}
	k := &call{c: c, t: t, request: w.Request, write: true}
	if err := k.render(w.Open); err != nil {
		return gate.Answer{Address: addr}, err
	}
	limit := t.set.WriteTimeout.or(60 * time.Second)
	if k.taking, err = c.taking(w, k.rendered); err != nil {
		return gate.Answer{Address: addr}, notTaken(&gate.UpstreamError{Kind: gate.ErrInvalid, Message: "make request: " + err.Error(), Hint: "Nothing was sent.", Cause: err})
	} else if k.taking != nil {
		limit = downloadFor
	}
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	rep, notes, err := k.exchange(ctx, addr)
	if err != nil {
		fail := upstream(err, true)
		if k.taking != nil {
			notTaken(fail)
		}
		if fail.Delivery == gate.NotCarriedOut && !fail.Auth {
			t.link.fail(addr, fail.Message)
		}
		k.explain(ctx, fail)
		return gate.Answer{Address: addr, Notes: notes}, fail
	}
	if k.taking != nil && k.taking.saved != nil {
		return gate.Answer{Address: addr, Notes: notes, Saved: k.taking.saved}, nil
	} else if k.taking != nil && k.taking.err != nil {
		return gate.Answer{Address: addr, Notes: notes}, k.notSaved()
	}
	answer, fail := rep.answer(t.set.Kind, false)
	k.stranger = rep.foreign()
	answer.Address, answer.Notes = addr, notes
	if fail == nil {
		return answer, nil
	}
	if k.taking != nil {
		k.explain(ctx, fail)
		return gate.Answer{Address: addr, Notes: notes}, notTaken(fail)
	}
	other := false
	if rep.status == statusUnreachable {
		other = k.otherNode(ctx, rep)
	}
	fail.Delivery = delivery(t.set.Kind, w.Request.Operation, fail, rep, other)
	if rep.status < 300 {
		fail.Kind = gate.ErrUnknownOutcome
	}
	k.explain(ctx, fail)
	return gate.Answer{Address: addr, Notes: notes}, fail
}

func notSent(err error) error {
	e := gate.AsError(err)
	return &gate.UpstreamError{Kind: e.Kind, Delivery: gate.NotCarriedOut, Message: e.Message, Hint: e.Hint, Cause: err}
}

func (t *target) writeAddress(wanted string) (string, error) {
	if wanted == "" {
		return t.link.order()[0], nil
	}
	full, err := address(t.set.Kind, wanted)
	if err == nil {
		for _, a := range t.hosts {
			if a == full {
				return a, nil
			}
		}
	}
	return "", gate.Fail(gate.ErrStale, "Plan again.", "%s is no address of target %s any more", wanted, t.set.Name)
}

// render makes the bytes and remembers the secrets that go into them.
func (k *call) render(open func(gate.Value) (string, error)) error {
	if k.request.IsRun() { // it is for a runner: no API knows it
		return &gate.UpstreamError{Kind: gate.ErrInternal, Delivery: gate.NotCarriedOut, Message: k.request.Operation + " is no request of the API", Hint: "Nothing was sent."}
	}
	out, err := k.c.catalog.Render(k.request, func(v gate.Value) (string, error) {
		if open == nil {
			if v.Secret != nil || v.Ref != nil {
				return "", errors.New("open value: a read has no secrets and no references")
			}
			return v.Text, nil
		}
		s, err := open(v)
		if err == nil && v.Secret != nil {
			k.veil.add(s)
			k.veil.add(strings.TrimSuffix(strings.TrimPrefix(s, v.Secret.Before), v.Secret.After))
		}
		return s, err
	})
	if err != nil {
		text := k.veil.text(err.Error())
		return &gate.UpstreamError{Kind: gate.ErrInternal, Delivery: gate.NotCarriedOut, Message: "make request: " + text, Hint: "Nothing was sent."}
	}
	k.rendered = out
	k.path = pathValues(k.request.Operation, out.Path)
	return nil
}

// exchange logs in and sends, once; after a refused ticket once more with a new one.
func (k *call) exchange(ctx context.Context, addr string) (reply, []string, error) {
	var notes []string
	for again := false; ; again = true {
		cred, err := k.t.login.acquire(ctx, addr)
		if err != nil {
			return reply{}, notes, &loginError{err: err}
		}
		rep, err := k.carry(ctx, addr, &cred)
		if err != nil {
			k.t.login.report(cred, false, nil)
			return reply{}, notes, err
		}
		k.t.noteClock(addr, rep, k.c.now())
		if rep.status != http.StatusUnauthorized || rep.page() {
			k.t.login.report(cred, true, nil)
			return rep, notes, nil
		}
		refused := k.t.refused(rep)
		k.t.login.report(cred, true, refused)
		if cred.ticket == nil || again {
			return reply{}, notes, refused
		}
		notes = append(notes, "the server refused the ticket ("+rep.line()+"); castellan logged in again and sent the request once more")
		k.c.log.Info("ticket refused, logging in again", "target", k.t.set.Name)
	}
}

func (k *call) carry(ctx context.Context, addr string, cred *credential) (reply, error) {
	if !k.write && k.rendered.Method == http.MethodGet {
		return k.t.link.fetch(ctx, addr, k.rendered, cred)
	}
	return k.t.link.once(ctx, addr, k.rendered, cred, k.taking)
}

func (r reply) line() string {
	return strings.TrimSpace(strconv.Itoa(r.status) + " " + clean(r.reason, 200))
}

// loginError is a login that did not work: the request itself was never sent.
type loginError struct {
	err error
}

func (e *loginError) Error() string { return "log in: " + e.err.Error() }

func (e *loginError) Unwrap() error { return e.err }

// upstream turns whatever stopped a request into what callers get.
func upstream(err error, write bool) *gate.UpstreamError {
	var login *loginError
	if errors.As(err, &login) {
		var up *gate.UpstreamError
		if errors.As(login.err, &up) {
			e := *up
			e.Delivery = gate.NotCarriedOut
			return &e
		}
		e := transportFailure(login.err, false)
		e.Delivery = gate.NotCarriedOut
		if e.Hint == "" {
			e.Hint = "castellan could not log in, so nothing was sent."
		}
		e.Message = "log in: " + e.Message
		return e
	}
	var up *gate.UpstreamError
	if errors.As(err, &up) {
		e := *up
		return &e
	}
	return transportFailure(err, write)
}

// refused is what a 401 means for this target.
func (t *target) refused(r reply) *gate.UpstreamError {
	text, _ := r.words()
	e := &gate.UpstreamError{Kind: gate.ErrDenied, Delivery: gate.NotCarriedOut, Status: r.status, Auth: true, Message: text}
	if t.login.usesToken() {
		e.Hint = "The server does not take the token " + t.user + " of target " + t.set.Name + ": wrong or old secret, expired, deleted, or its user disabled (it says the same of all). " +
			"castellan does not try it again for a minute, or until the secret's file has changed."
	} else {
		e.Hint = "The server does not take the login of " + t.user + " at target " + t.set.Name + ", not even with a new ticket."
	}
	return e
}

// poster sends a login. It is a request of its own, never repeated.
func (c *Client) poster(t *target) func(context.Context, string, url.Values) (reply, error) {
	return func(ctx context.Context, addr string, form url.Values) (reply, error) {
		return t.link.once(ctx, addr, gate.Rendered{Method: http.MethodPost, Path: "/access/ticket", Body: form.Encode()}, nil, nil)
	}
}

// noteClock remembers how far a server's clock is ahead of ours, to the second.
func (t *target) noteClock(addr string, r reply, now time.Time) {
	at, err := http.ParseTime(r.header.Get("Date"))
	if err != nil {
		return
	}
	t.mu.Lock()
	t.skew[addr] = at.Sub(now)
	t.mu.Unlock()
}
