package proxmox

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"hash"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// totp makes one-time passwords by RFC 6238.
type totp struct {
	secret []byte
	digits int
	period time.Duration
	hash   func() hash.Hash
}

// parseTOTP reads a base32 secret, or an otpauth:// address with its digits, period and algorithm.
func parseTOTP(text string) (*totp, error) {
	t := &totp{digits: 6, period: 30 * time.Second, hash: sha1.New}
	secret := strings.TrimSpace(text)
	if strings.HasPrefix(secret, "otpauth://") {
		u, err := url.Parse(secret)
		if err != nil || u.Host != "totp" {
			return nil, fmt.Errorf("it is not an otpauth://totp/ address")
		}
		q := u.Query()
		secret = q.Get("secret")
		if d := q.Get("digits"); d != "" {
			n, err := strconv.Atoi(d)
			if err != nil || n < 6 || n > 10 {
				return nil, fmt.Errorf("its digits are not a number from 6 to 10")
			}
			t.digits = n
		}
		if p := q.Get("period"); p != "" {
			n, err := strconv.Atoi(p)
			if err != nil || n < 5 || n > 300 {
				return nil, fmt.Errorf("its period is not a number of seconds from 5 to 300")
			}
			t.period = time.Duration(n) * time.Second
		}
		switch strings.ToUpper(q.Get("algorithm")) {
		case "", "SHA1":
		case "SHA256":
			t.hash = sha256.New
		case "SHA512":
			t.hash = sha512.New
		default:
			return nil, fmt.Errorf("its algorithm is none of SHA1, SHA256, SHA512")
		}
	}
	clean := strings.TrimRight(strings.ToUpper(strings.NewReplacer(" ", "", "-", "").Replace(secret)), "=")
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(clean)
	if err != nil || len(raw) == 0 {
		return nil, fmt.Errorf("it holds no base32 secret")
	}
	t.secret = raw
	return t, nil
}

// step is the number of the period that now lies in; a server takes the code of a step once.
func (t *totp) step(now time.Time) int64 { return now.Unix() / int64(t.period/time.Second) }

func (t *totp) code(step int64) string {
	mac := hmac.New(t.hash, t.secret)
	var counter [8]byte
	binary.BigEndian.PutUint64(counter[:], uint64(step))
	mac.Write(counter[:])
	sum := mac.Sum(nil)
	at := sum[len(sum)-1] & 0x0f
	value := uint64(binary.BigEndian.Uint32(sum[at:at+4]) & 0x7fffffff)
	mod := uint64(1)
	for range t.digits {
		mod *= 10
	}
	return fmt.Sprintf("%0*d", t.digits, value%mod)
}

// recoveryCodes reads one code a line; a number and a colon before it are the server's own listing.
func recoveryCodes(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		code := strings.TrimSpace(line)
		if n, rest, ok := strings.Cut(code, ":"); ok {
			if _, err := strconv.Atoi(strings.TrimSpace(n)); err == nil {
				code = strings.TrimSpace(rest)
			}
		}
		if code != "" {
			out = append(out, code)
		}
	}
	return out
}
