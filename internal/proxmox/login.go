package proxmox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"castellan/internal/gate"
	"castellan/internal/seal"
)

const (
	// ticketRenew is when a ticket (valid for two hours) is exchanged for a new one.
	ticketRenew = 90 * time.Minute
	// refusedFor is how long a refused login is not tried again: each try costs the server's three seconds and
	// may lock the account.
	refusedFor = time.Minute
	// provingFor is how long parallel calls wait for the first one to show that the token is right.
	provingFor = 4 * time.Second
	loginLimit = 45 * time.Second
)

// login holds what one target is asked with: a token, or a ticket that is got when it is needed.
type login struct {
	target Target
	open   func(path string) (seal.Secret, error)
	now    func() time.Time
	post   func(ctx context.Context, addr string, form url.Values) (reply, error) // POST /access/ticket

	mu       sync.Mutex
	token    seal.Secret // header value; zero = not read yet
	secret   seal.Secret // the part of it that is secret
	ticket   *ticket
	running  chan struct{} // a login is under way
	loginErr error         // how the last one failed
	refused  error
	until    time.Time // when refused is forgotten
	proven   bool
	proving  chan struct{}
	lastStep int64 // TOTP step used last
	spent    map[string]bool
}

type ticket struct {
	cookie seal.Secret // NAME=VALUE
	value  seal.Secret
	csrf   seal.Secret
	made   time.Time
}

// credential is one login as it goes into a request.
type credential struct {
	token  seal.Secret
	ticket *ticket
	prover bool // this call must report how the token fared
}

func (l *login) usesToken() bool { return l.target.PasswordFile == "" }

func (l *login) reveal(path string) (string, error) {
	s, err := l.open(path)
	return s.Reveal(), err
}

// readToken reads id and secret from where the settings say.
func (l *login) readToken() (id, secret string, err error) {
	if l.target.TokenFile != "" {
		text, err := l.reveal(l.target.TokenFile)
		if err != nil {
			return "", "", fmt.Errorf("open token_file: %w", err)
		}
		id, secret, err := parseToken(text)
		if err != nil {
			return "", "", fmt.Errorf("read token_file: %w", err)
		}
		return id, secret, nil
	}
	id, err = l.target.fullTokenID()
	if err != nil {
		return "", "", fmt.Errorf("read token_id: %w", err)
	}
	text, err := l.reveal(l.target.SecretFile)
	if err != nil {
		return "", "", fmt.Errorf("open secret_file: %w", err)
	}
	secret = strings.TrimSpace(text)
	// A whole token in the secret's file is understood when it is the same token.
	if whole, s, err := parseToken(secret); err == nil && whole == id {
		secret = s
	}
	if secret == "" || strings.ContainsAny(secret, " \t\r\n") {
		return "", "", errors.New("read secret_file: it does not hold one secret on one line")
	}
	return id, secret, nil
}

func tokenHeader(kind, id, secret string) string {
	switch kind {
	case kindPBS:
		return "PBSAPIToken=" + id + ":" + secret
	case kindPDM:
		return "PDMAPIToken=" + id + ":" + secret
	}
	return "PVEAPIToken=" + id + "=" + secret
}

// acquire gives what to log in with, logging in where that is needed. Parallel calls share one login, and the first
// use of a token is waited for, so that a wrong secret costs one refused request and no burst.
func (l *login) acquire(ctx context.Context, addr string) (credential, error) {
	if l.usesToken() {
		return l.acquireToken(ctx)
	}
	return l.acquireTicket(ctx, addr)
}

func (l *login) acquireToken(ctx context.Context) (credential, error) {
	limit := time.NewTimer(provingFor)
	defer limit.Stop()
	for {
		l.mu.Lock()
		if err := l.loadToken(); err != nil {
			l.mu.Unlock()
			return credential{}, err
		}
		if l.proven {
			c := credential{token: l.token}
			l.mu.Unlock()
			return c, nil
		}
		if l.proving == nil {
			l.proving = make(chan struct{})
			c := credential{token: l.token, prover: true}
			l.mu.Unlock()
			return c, nil
		}
		wait, c := l.proving, credential{token: l.token}
		l.mu.Unlock()
		select {
		case <-wait:
		case <-limit.C:
			return c, nil
		case <-ctx.Done():
			return credential{}, ctx.Err()
		}
	}
}

// loadToken reads the token once, and again after it was refused: a changed secret is tried at once, the same one
// only after refusedFor.
func (l *login) loadToken() error {
	if l.refused == nil && !l.token.IsZero() {
		return nil
	}
	id, secret, err := l.readToken()
	if err != nil {
		return err
	}
	header := seal.NewSecret([]byte(tokenHeader(l.target.Kind, id, secret)))
	if l.refused != nil {
		if header.Equal(l.token) && l.now().Before(l.until) {
			return l.refused
		}
		l.refused, l.proven = nil, false
	}
	l.token, l.secret = header, seal.NewSecret([]byte(secret))
	return nil
}

// report says how a request with this credential ended: ok, refused (401), or neither (nothing was answered).
func (l *login) report(c credential, answered bool, refused error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.ticket != nil {
		if refused != nil && l.ticket == c.ticket {
			l.ticket = nil
		}
		return
	}
	switch {
	case refused != nil && c.token.Equal(l.token):
		l.refused, l.until, l.proven = refused, l.now().Add(refusedFor), false
	case answered && refused == nil && c.token.Equal(l.token):
		l.proven = true
	}
	if c.prover && l.proving != nil {
		close(l.proving)
		l.proving = nil
	}
}

func (l *login) acquireTicket(ctx context.Context, addr string) (credential, error) {
	for range 3 {
		l.mu.Lock()
		if l.refused != nil && l.now().Before(l.until) {
			err := l.refused
			l.mu.Unlock()
			return credential{}, err
		}
		l.refused = nil
		if l.ticket != nil && l.now().Sub(l.ticket.made) < ticketRenew {
			c := credential{ticket: l.ticket}
			l.mu.Unlock()
			return c, nil
		}
		if l.running == nil {
			l.running = make(chan struct{})
			// The login is shared: one caller who gives up must not take it from the others.
			go l.run(context.WithoutCancel(ctx), addr, l.ticket)
		}
		wait := l.running
		l.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return credential{}, ctx.Err()
		}
		l.mu.Lock()
		err := l.loginErr
		l.mu.Unlock()
		if err != nil {
			return credential{}, err
		}
	}
	return credential{}, errors.New("log in: every new ticket was refused at once")
}

func (l *login) run(ctx context.Context, addr string, old *ticket) {
	ctx, stop := context.WithTimeout(ctx, loginLimit)
	defer stop()
	fresh, err := l.renewOrLogin(ctx, addr, old)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loginErr = err
	if err == nil {
		l.ticket = fresh
	} else {
		l.ticket = nil
		var up *gate.UpstreamError
		if errors.As(err, &up) && up.Auth {
			l.refused, l.until = err, l.now().Add(refusedFor)
		}
	}
	close(l.running)
	l.running = nil
}

func (l *login) renewOrLogin(ctx context.Context, addr string, old *ticket) (*ticket, error) {
	// A ticket that is still valid stands for password and second factor.
	if old != nil && !old.value.IsZero() {
		if t, err := l.ask(ctx, addr, url.Values{"username": {l.target.User}, "password": {old.value.Reveal()}}); err == nil && t.challenge == "" {
			return t.ticket(l.target.Kind, l.now()), nil
		}
	}
	password, err := l.reveal(l.target.PasswordFile)
	if err != nil {
		return nil, fmt.Errorf("open password_file: %w", err)
	}
	password = strings.TrimRight(password, "\r\n")
	if password == "" {
		return nil, errors.New("read password_file: it is empty")
	}
	first, err := l.ask(ctx, addr, url.Values{"username": {l.target.User}, "password": {password}})
	if err != nil {
		return nil, err
	}
	if first.challenge == "" {
		return first.ticket(l.target.Kind, l.now()), nil
	}
	answer, err := l.answerChallenge(ctx, first.challenge)
	if err != nil {
		return nil, err
	}
	second, err := l.ask(ctx, addr, url.Values{"username": {l.target.User}, "password": {answer}, "tfa-challenge": {first.Ticket}})
	if err != nil {
		return nil, err
	}
	if second.challenge != "" {
		return nil, l.refusal("the second factor was taken, and another one asked for: no user can be used here whose login needs more")
	}
	return second.ticket(l.target.Kind, l.now()), nil
}

// loginAnswer is what a server says to a login.
type loginAnswer struct {
	Username  string `json:"username"`
	Ticket    string `json:"ticket"`
	CSRF      string `json:"CSRFPreventionToken"`
	challenge string
	cookie    string // NAME=VALUE, where the server set it itself
}

func (a loginAnswer) ticket(kind string, now time.Time) *ticket {
	cookie := a.cookie
	if cookie == "" {
		cookie = cookieName(kind) + "=" + url.QueryEscape(a.Ticket)
	}
	return &ticket{cookie: seal.NewSecret([]byte(cookie)), value: seal.NewSecret([]byte(a.Ticket)), csrf: seal.NewSecret([]byte(a.CSRF)), made: now}
}

func cookieName(kind string) string {
	return strings.ToUpper(kind) + "AuthCookie"
}

func (l *login) ask(ctx context.Context, addr string, form url.Values) (loginAnswer, error) {
	var out loginAnswer
	rep, err := l.post(ctx, addr, form)
	if err != nil {
		return out, err
	}
	answer, up := rep.answer(l.target.Kind, false)
	if up != nil {
		if up.Status == http.StatusUnauthorized {
			return out, l.refusal("the login of %s was refused: %s", l.target.User, up.Message)
		}
		return out, up
	}
	if err := json.Unmarshal(answer.Data, &out); err != nil {
		return out, l.refusal("the answer to the login cannot be read")
	}
	if out.challenge, err = challengeOf(out.Ticket); err != nil {
		return out, l.refusal("the server asks for a second factor in a form that is not known")
	}
	for _, c := range (&http.Response{Header: rep.header}).Cookies() {
		if strings.HasSuffix(c.Name, cookieName(l.target.Kind)) && c.Value != "" && c.MaxAge >= 0 {
			out.cookie = c.Name + "=" + c.Value
		}
	}
	if out.Ticket == "" && out.cookie == "" {
		return out, l.refusal("the answer to the login holds no ticket")
	}
	return out, nil
}

func (l *login) refusal(format string, args ...any) *gate.UpstreamError {
	return &gate.UpstreamError{Kind: gate.ErrDenied, Delivery: gate.NotCarriedOut, Status: http.StatusUnauthorized, Auth: true,
		Message: fmt.Sprintf(format, args...),
		Hint:    fmt.Sprintf("Check user, password and second factor of target %s; castellan tries this login again after a minute, not before.", l.target.Name)}
}

// hidden lists what must never stand in a text: token secret and ticket.
func (l *login) hidden() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []string{l.secret.Reveal(), l.token.Reveal()}
	if l.ticket != nil {
		out = append(out, l.ticket.value.Reveal(), l.ticket.csrf.Reveal(), l.ticket.cookie.Reveal())
	}
	return out
}

// apply puts the login into a request.
func (c credential) apply(h http.Header, write bool) {
	if c.ticket == nil {
		h.Set("Authorization", c.token.Reveal())
		return
	}
	h.Set("Cookie", c.ticket.cookie.Reveal())
	if write && !c.ticket.csrf.IsZero() {
		h.Set("CSRFPreventionToken", c.ticket.csrf.Reveal())
	}
}
