package oauth

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/seal"
)

// Kinds of documents.
const (
	kindClient  = "oauth.client"  // a client that registered, or that a person let in
	kindCode    = "oauth.code"    // an authorization code, used or not
	kindGrant   = "oauth.grant"   // what a person gave to a client
	kindToken   = "oauth.token"   // an access, refresh or static token
	kindConsent = "oauth.consent" // a consent that is remembered
)

// errAltered: a document is not as it was written. It is refused like one that is not there, and said in the log.
var errAltered = errors.New("the document was changed by somebody else")

// vault keeps documents whose bodies nobody can make up who only can write the database: each begins with a MAC over
// kind, id, owner, expiry, version and text.
type vault struct{ keys *seal.Keys }

const macLen = 32

func macTexts(d *gate.Doc, version int64, text []byte) []string {
	expires := ""
	if !d.Expires.IsZero() {
		expires = strconv.FormatInt(d.Expires.UnixMicro(), 10)
	}
	return []string{d.Kind, d.ID, d.Owner, expires, strconv.FormatInt(version, 10), string(text)}
}

// put writes body as the document d, whose Version says which it replaces.
func (v vault) put(tx gate.Tx, d *gate.Doc, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("write %s: %w", d.Kind, err)
	}
	d.Expires = d.Expires.Truncate(time.Microsecond)
	mac := v.keys.MAC("oauth document", macTexts(d, d.Version+1, text)...)
	d.Body = append(mac[:], text...)
	return tx.PutDoc(d)
}

// get reads a document into body. Its errors are gate.ErrStoreNotFound, errAltered, or the store's.
func (v vault) get(tx gate.Tx, kind, id string, body any) (*gate.Doc, error) {
	d, err := tx.Doc(kind, id)
	if err != nil {
		return nil, err
	}
	if d.Kind != kind || d.ID != id {
		return nil, errAltered
	}
	return d, v.decode(d, body)
}

func (v vault) decode(d *gate.Doc, body any) error {
	if len(d.Body) < macLen || !v.keys.CheckMAC(d.Body[:macLen], "oauth document", macTexts(d, d.Version, d.Body[macLen:])...) {
		return errAltered
	}
	if err := json.Unmarshal(d.Body[macLen:], body); err != nil {
		return fmt.Errorf("read %s: %w", d.Kind, err)
	}
	return nil
}

// missing says whether a document is not there, or not to be believed.
func missing(err error) bool {
	return errors.Is(err, gate.ErrStoreNotFound) || errors.Is(err, errAltered)
}

// each reads all documents of a kind, of one owner when that is given; altered ones are left out.
func each[T any](v vault, tx gate.Tx, kind, owner string, f func(*gate.Doc, *T) error) error {
	after := ""
	for {
		docs, err := tx.Docs(gate.DocFilter{Kind: kind, Owner: owner, After: after, Limit: pageSize})
		if err != nil {
			return err
		}
		for _, d := range docs {
			body := new(T)
			if err := v.decode(d, body); errors.Is(err, errAltered) {
				continue
			} else if err != nil {
				return err
			}
			if err := f(d, body); err != nil {
				return err
			}
		}
		if len(docs) < pageSize {
			return nil
		}
		after = docs[len(docs)-1].ID
	}
}

const pageSize = 1000

// The beginnings of what we give out say what it is, so that it is found where it should not be.
const (
	codePrefix    = "cac_"
	accessPrefix  = "cat_"
	refreshPrefix = "crt_"
	staticPrefix  = "cst_"
)

const (
	idLen     = 16 // base32: 80 bits
	secretLen = 24 // base64url: 144 bits
)

// drawn is a new secret text: prefix, id, "_", secret. Only id and hash are stored.
type drawn struct {
	text string
	id   string
	hash string
}

func newID() string { return strings.ToLower(rand.Text()[:idLen]) }

func draw(prefix string) (drawn, error) {
	id := newID()
	secret, hash, err := seal.NewToken("oauth "+prefix, id)
	if err != nil {
		return drawn{}, err
	}
	return drawn{text: prefix + id + "_" + secret.Reveal(), id: id, hash: hash}, nil
}

// split takes a text of ours apart; the secret is not checked yet.
func split(text string) (prefix, id, secret string, ok bool) {
	if len(text) != 4+idLen+1+secretLen || text[4+idLen] != '_' {
		return "", "", "", false
	}
	prefix, id, secret = text[:4], text[4:4+idLen], text[4+idLen+1:]
	switch prefix {
	case codePrefix, accessPrefix, refreshPrefix, staticPrefix:
	default:
		return "", "", "", false
	}
	if strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return "", "", "", false
	}
	for _, c := range []byte(secret) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return "", "", "", false
		}
	}
	return prefix, id, secret, true
}

// right compares in constant time.
func right(prefix, id, secret, hash string) bool {
	return seal.CheckToken(secret, hash, "oauth "+prefix, id)
}
