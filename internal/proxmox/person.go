package proxmox

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"castellan/internal/gate"
)

// LogIn tries a person's password at a target, and code as the second factor where the target asks for one (of an
// authenticator app, or "recovery:" and a recovery key). It keeps no ticket. The answer is USER@REALM as the target knows
// it; an UpstreamError with Auth says that the target refused.
func (c *Client) LogIn(ctx context.Context, target, user, password, code string) (string, error) {
	t, err := c.target(target)
	if err != nil {
		return "", err
	}
	addr, err := c.Address(t.set.Name)
	if err != nil {
		return "", err
	}
	set := t.set
	set.User = user
	l := &login{target: set, open: nil, now: c.now, post: c.poster(t)}
	first, err := l.ask(ctx, addr, url.Values{"username": {user}, "password": {password}})
	if err != nil {
		return "", err
	}
	last := first
	if first.challenge != "" {
		if code == "" {
			return "", l.refusal("a second factor is asked for")
		}
		if !strings.Contains(code, ":") {
			code = "totp:" + code
		}
		if last, err = l.ask(ctx, addr, url.Values{"username": {user}, "password": {code}, "tfa-challenge": {first.Ticket}}); err != nil {
			return "", err
		}
	}
	if last.challenge != "" || last.Username == "" || last.Ticket == "" && last.cookie == "" {
		return "", l.refusal("the login was not completed")
	}
	return last.Username, nil
}

// Refused says whether an error means that the target does not take the credentials.
func Refused(err error) bool {
	var up *gate.UpstreamError
	return errors.As(err, &up) && up.Auth
}
