package identity

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"castellan/internal/gate"
)

// Fingerprint names a credential: hex SHA-256 over the length of its id (4 bytes, big-endian), its id and its public key
// (COSE).
func Fingerprint(id, publicKey []byte) string {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(id))))
	h.Write(id)
	h.Write(publicKey)
	return hex.EncodeToString(h.Sum(nil))
}

// Purposes of the challenges that this package makes itself. The gate's begin with other words, so that no signature
// given for one purpose is good for another.
const (
	signInPurpose = "castellan sign-in v1"
	vouchPurpose  = "castellan enrolment v1"
)

// approvalPurposes are those of the gate.
func approvalPurposes() []string { return []string{"castellan approval v1", "castellan mandate v1"} }

// VerifyProof verifies a kept assertion with nothing but what it holds: that the credential of its fingerprint signed the
// challenge of exactly these parts, at its origin, with the person verified. Whether that credential was the approver's is
// for the ledger to say, at the index Proof.Enrolled.
func VerifyProof(a gate.Assertion) error {
	if err := verifyProof(a); err != nil {
		return fmt.Errorf("verify assertion: %w", err)
	}
	return nil
}

func verifyProof(a gate.Assertion) error {
	p := a.Proof
	if !slices.Contains(approvalPurposes(), a.Purpose) {
		return fmt.Errorf("%q is no purpose of an approval", clip(a.Purpose, 40))
	}
	for _, part := range []string{a.Verdict, a.Plan, a.Digest, a.Approver} {
		if part == "" || strings.ContainsRune(part, 0) {
			return errors.New("a part of its challenge is missing or holds a zero byte")
		}
	}
	if len(a.Random) != 32 {
		return errors.New("its random part does not have 32 bytes")
	}
	if p.Credential == "" || p.Credential != Fingerprint(p.CredentialID, p.PublicKey) {
		return errors.New("its public key is not that of its fingerprint")
	}
	u, err := url.Parse(p.Origin)
	if err != nil || u.Hostname() == "" {
		return errors.New("its origin is malformed")
	}
	d, err := parseAuthenticatorData(p.AuthenticatorData)
	if err != nil {
		return err
	}
	if err := (party{id: u.Hostname(), origin: p.Origin}).said(kindGet, a.ChallengeBytes(), p.ClientData, d); err != nil {
		return err
	}
	return verifySignature(p.PublicKey, signedBytes(p.AuthenticatorData, p.ClientData), p.Signature)
}

// signedBytes is what a passkey signs.
func signedBytes(authData, client []byte) []byte {
	sum := sha256.Sum256(client)
	return append(slices.Clone(authData), sum[:]...)
}
