package proxmox

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// challengeOf finds the challenge in a ticket that is only half of a login: JSON after "!tfa!", of which the products
// escape more or less. A whole ticket has none.
func challengeOf(text string) (string, error) {
	plain := unescape(text)
	_, rest, ok := strings.Cut(plain, "!tfa!")
	if !ok {
		return "", nil
	}
	var challenge json.RawMessage
	if err := json.NewDecoder(strings.NewReader(rest)).Decode(&challenge); err != nil {
		return "", err
	}
	return string(challenge), nil
}

// answerChallenge answers with the second factor that the server would take and the settings have.
func (l *login) answerChallenge(ctx context.Context, challenge string) (string, error) {
	var offered struct {
		TOTP     bool            `json:"totp"`
		Recovery json.RawMessage `json:"recovery"`
	}
	if err := json.Unmarshal([]byte(challenge), &offered); err != nil {
		return "", l.refusal("the server asks for a second factor in a form that is not known")
	}
	if offered.TOTP && l.target.TOTPFile != "" {
		return l.totpAnswer(ctx)
	}
	if code, err := l.recoveryAnswer(offered.Recovery); code != "" || err != nil {
		return code, err
	}
	return "", l.refusal("%s needs a second factor that castellan does not have (set totp_file or recovery_file; keys and WebAuthn need a person); an API token needs none", l.target.User)
}

func (l *login) totpAnswer(ctx context.Context) (string, error) {
	text, err := l.reveal(l.target.TOTPFile)
	if err != nil {
		return "", fmt.Errorf("open totp_file: %w", err)
	}
	t, err := parseTOTP(text)
	if err != nil {
		return "", fmt.Errorf("read totp_file: %w", err)
	}
	// A server takes each code once.
	for t.step(l.now()) <= l.lastStep {
		next := time.Unix((l.lastStep+1)*int64(t.period/time.Second), 0)
		wait := time.NewTimer(max(next.Sub(l.now()), 50*time.Millisecond))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return "", ctx.Err()
		}
	}
	l.lastStep = t.step(l.now())
	return "totp:" + t.code(l.lastStep), nil
}

func (l *login) recoveryAnswer(offered json.RawMessage) (string, error) {
	if l.target.RecoveryFile == "" || len(offered) == 0 || string(offered) == "null" {
		return "", nil
	}
	text, err := l.reveal(l.target.RecoveryFile)
	if err != nil {
		return "", fmt.Errorf("open recovery_file: %w", err)
	}
	codes := recoveryCodes(text)
	// The server lists the numbers of the codes that were not used yet; older ones say only that some are left.
	var left []int
	if err := json.Unmarshal(offered, &left); err != nil {
		left = nil
		for i := range codes {
			left = append(left, i)
		}
	}
	for _, i := range left {
		if i >= 0 && i < len(codes) && !l.spent[codes[i]] {
			if l.spent == nil {
				l.spent = map[string]bool{}
			}
			l.spent[codes[i]] = true
			return "recovery:" + codes[i], nil
		}
	}
	return "", l.refusal("none of the codes in recovery_file is left unused")
}
