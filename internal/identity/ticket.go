package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"castellan/internal/gate"
	"castellan/internal/seal"
)

const (
	ticketLife = 5 * time.Minute
	maxTicket  = 8 << 10
)

// ticket is a ceremony under way. The browser carries it sealed, so any process can finish what another began; its nonce
// is used once.
type ticket struct {
	Random  []byte    `json:"random"`
	Expires time.Time `json:"expires"`
	Person  string    `json:"person,omitempty"`
	UID     string    `json:"uid,omitempty"`
	Session string    `json:"session,omitempty"` // hash of its token
	Code    string    `json:"code,omitempty"`    // id of the one-time code's document
	Voucher []byte    `json:"voucher,omitempty"` // the random part of the voucher that it rests on
	For     string    `json:"for,omitempty"`     // whose enrolment is vouched for
	Key     string    `json:"key,omitempty"`     // fingerprint of the passkey that vouched
	// Of an outside provider.
	Provider string `json:"provider,omitempty"`
	State    string `json:"state,omitempty"`
	Nonce    string `json:"nonce,omitempty"`
	Verifier string `json:"verifier,omitempty"`
}

// seal makes the ticket; purpose says for which ceremony, so that one of another opens none.
func (i *Identity) sealTicket(purpose string, t *ticket) (string, error) {
	t.Random = make([]byte, 32)
	_, _ = rand.Read(t.Random) // never fails: crypto/rand ends the process instead
	if end := i.now().Add(ticketLife); t.Expires.IsZero() || t.Expires.After(end) {
		t.Expires = end // one that rests on another does not outlive it
	}
	text, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("make ticket: %w", err)
	}
	box, err := i.c.Keys.Seal(seal.NewSecret(text), "identity ticket", purpose)
	if err != nil {
		return "", fmt.Errorf("make ticket: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(box), nil
}

// Purposes of tickets.
const (
	ticketSignIn  = "sign-in"
	ticketEnrol   = "enrol"
	ticketVouch   = "vouch"
	ticketVoucher = "voucher"
	ticketOIDC    = "oidc"
)

func (i *Identity) openTicket(purpose, text string) (*ticket, error) {
	begin := func(what string) error {
		return gate.Fail(gate.ErrDenied, "Begin again.", "the ticket of this ceremony %s", what)
	}
	if text == "" || len(text) > maxTicket {
		return nil, begin("is missing or none of ours")
	}
	box, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, begin("is none of ours")
	}
	plain, err := i.c.Keys.Unseal(box, "identity ticket", purpose)
	if err != nil {
		return nil, begin("is none of ours, or of another ceremony")
	}
	t := new(ticket)
	if json.Unmarshal(plain.Bytes(), t) != nil || len(t.Random) != 32 {
		return nil, begin("is none of ours")
	}
	if now := i.now(); !now.Before(t.Expires) || t.Expires.After(now.Add(ticketLife+clockSkew)) {
		return nil, begin(fmt.Sprintf("is older than %s", ticketLife))
	}
	return t, nil
}

// spend uses a ticket up; it is good once, whatever comes of it.
func (i *Identity) spend(tx gate.Tx, random []byte, expires time.Time) error {
	err := tx.UseNonce("identity/"+base64.RawURLEncoding.EncodeToString(random), expires)
	if errors.Is(err, gate.ErrNonceUsed) {
		return gate.Fail(gate.ErrDenied, "Begin again.", "this ceremony was finished before")
	}
	return err
}

// challenge is what a passkey signs in a ceremony of this package: purpose, whose, the session, and the random part.
func (t *ticket) challenge(purpose string) []byte {
	h := sha256.New()
	for _, s := range []string{purpose, t.Person, t.For, t.Session} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	h.Write(t.Random)
	return h.Sum(nil)
}
