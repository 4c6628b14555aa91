package ledger

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Checkpoint says: the tree named Origin has Size records and the root Root.
// Its signed form is a note in the C2SP tlog-checkpoint form.
type Checkpoint struct {
	Origin string // castellan/<store>/<tree>
	Size   int64
	Root   tlog.Hash
}

const originPrefix = "castellan/"

func origin(store string, tree Tree) string { return originPrefix + store + "/" + string(tree) }

// Store and Tree that the origin names; "" when it is not one of ours.
func (c Checkpoint) split() (store string, tree Tree) {
	rest, ok := strings.CutPrefix(c.Origin, originPrefix)
	if !ok {
		return "", ""
	}
	i := strings.LastIndexByte(rest, '/')
	if i <= 0 || !storeName(rest[:i]) || !Tree(rest[i+1:]).valid() {
		return "", ""
	}
	return rest[:i], Tree(rest[i+1:])
}

// Tree that the checkpoint is of, "" when the origin is not a castellan's.
func (c Checkpoint) Tree() Tree { _, t := c.split(); return t }

// Store id that the checkpoint is of, "" when the origin is not a castellan's.
func (c Checkpoint) Store() string { s, _ := c.split(); return s }

func storeName(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	return true
}

// Text is the signed text: three lines.
func (c Checkpoint) Text() string {
	return c.Origin + "\n" + strconv.FormatInt(c.Size, 10) + "\n" + base64.StdEncoding.EncodeToString(c.Root[:]) + "\n"
}

// MaxNote bounds the length of a signed checkpoint that is read from outside.
const MaxNote = 16 << 10

// ParseCheckpoint reads the text of a checkpoint, signed or not, without
// looking at signatures. Further lines of the text are refused: none are
// written, and what is not understood is not vouched for.
func ParseCheckpoint(s string) (Checkpoint, error) {
	if len(s) > MaxNote {
		return Checkpoint{}, errors.New("parse checkpoint: too long")
	}
	if i := strings.Index(s, "\n\n"); i >= 0 {
		s = s[:i+1]
	}
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	if len(lines) != 3 {
		return Checkpoint{}, errors.New("parse checkpoint: it has not the three lines origin, size, root")
	}
	c := Checkpoint{Origin: lines[0]}
	if store, _ := c.split(); store == "" {
		return Checkpoint{}, fmt.Errorf("parse checkpoint: origin %q is not castellan/<store>/<tree>", clip(lines[0]))
	}
	n, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != lines[1] {
		return Checkpoint{}, fmt.Errorf("parse checkpoint: size %q is not a number", clip(lines[1]))
	}
	c.Size = n
	if c.Root, err = tlog.ParseHash(lines[2]); err != nil || base64.StdEncoding.EncodeToString(c.Root[:]) != lines[2] {
		return Checkpoint{}, errors.New("parse checkpoint: root is not a SHA-256 in base64")
	}
	return c, nil
}

// keyHash is the key id of a note signature: name and key are bound together,
// so a signature of one tree is none of the other.
func keyHash(name string, key ed25519.PublicKey) uint32 {
	h := sha256.New()
	h.Write([]byte(name + "\n\x01"))
	h.Write(key)
	return binary.BigEndian.Uint32(h.Sum(nil))
}

// sigLen is the length of Record.Sig.
const sigLen = tlog.HashSize + 4 + ed25519.SignatureSize

// signNote returns the signed note and its compact form for Record.Sig.
func signNote(c Checkpoint, sign func([]byte) ([]byte, error), key ed25519.PublicKey) (string, []byte, error) {
	text := c.Text()
	sig, err := sign([]byte(text))
	if err != nil {
		return "", nil, fmt.Errorf("sign checkpoint: %w", err)
	}
	if len(sig) != ed25519.SignatureSize {
		return "", nil, errors.New("sign checkpoint: the signer is not an Ed25519 key")
	}
	compact := make([]byte, 0, sigLen)
	compact = append(compact, c.Root[:]...)
	compact = binary.BigEndian.AppendUint32(compact, keyHash(c.Origin, key))
	compact = append(compact, sig...)
	return noteOf(c, compact), compact, nil
}

// noteOf rebuilds the signed note of c from the compact form.
func noteOf(c Checkpoint, compact []byte) string {
	return c.Text() + "\n— " + c.Origin + " " + base64.StdEncoding.EncodeToString(compact[tlog.HashSize:]) + "\n"
}

// checkSig reports whether the compact form carries a good signature by one of
// keys on the checkpoint of tree origin and size.
func checkSig(origin string, size int64, compact []byte, keys []ed25519.PublicKey) bool {
	if len(compact) != sigLen {
		return false
	}
	c := Checkpoint{Origin: origin, Size: size}
	copy(c.Root[:], compact)
	id := binary.BigEndian.Uint32(compact[tlog.HashSize:])
	for _, k := range keys {
		if keyHash(origin, k) == id && ed25519.Verify(k, []byte(c.Text()), compact[tlog.HashSize+4:]) {
			return true
		}
	}
	return false
}

// ErrWrongKey says that a checkpoint bears no good signature by a trusted key.
var ErrWrongKey = errors.New("not signed by a trusted key")

// OpenCheckpoint parses a signed checkpoint and checks that one of keys signed
// it. The error wraps ErrWrongKey when the form is right but no good signature
// of those keys is there.
func OpenCheckpoint(msg string, keys ...ed25519.PublicKey) (Checkpoint, error) {
	c, err := ParseCheckpoint(msg)
	if err != nil {
		return Checkpoint{}, err
	}
	if _, err := note.Open([]byte(msg), verifiers(keys)); err != nil {
		var unverified *note.UnverifiedNoteError
		var bad *note.InvalidSignatureError
		if errors.As(err, &unverified) || errors.As(err, &bad) {
			return Checkpoint{}, fmt.Errorf("open checkpoint: %w", ErrWrongKey)
		}
		return Checkpoint{}, fmt.Errorf("open checkpoint: %w", err)
	}
	// The library takes other spellings of the same base64; one head is to have
	// one text.
	_, sigs, _ := strings.Cut(msg, "\n\n")
	for line := range strings.Lines(sigs) {
		b64 := strings.TrimSuffix(line[strings.LastIndexByte(line, ' ')+1:], "\n")
		if _, err := base64.StdEncoding.Strict().DecodeString(b64); err != nil {
			return Checkpoint{}, fmt.Errorf("open checkpoint: signature: %w", err)
		}
	}
	return c, nil
}

// verifiers finds a key by name and id among keys, whatever tree it signs for.
type verifiers []ed25519.PublicKey

func (v verifiers) Verifier(name string, hash uint32) (note.Verifier, error) {
	for _, k := range v {
		if keyHash(name, k) == hash {
			return verifier{name, hash, k}, nil
		}
	}
	return nil, &note.UnknownVerifierError{Name: name, KeyHash: hash}
}

type verifier struct {
	name string
	hash uint32
	key  ed25519.PublicKey
}

func (v verifier) Name() string              { return v.name }
func (v verifier) KeyHash() uint32           { return v.hash }
func (v verifier) Verify(msg, s []byte) bool { return ed25519.Verify(v.key, msg, s) }

// FormatKey returns the public key of a tree in the verifier form of signed
// notes: <origin>+<key id>+<base64>.
func FormatKey(store string, tree Tree, key ed25519.PublicKey) string {
	s, err := note.NewEd25519VerifierKey(origin(store, tree), key)
	if err != nil {
		return ""
	}
	return s
}

// ParseKey reads a public key: the form of FormatKey, bare base64 of the 32
// bytes, or PEM (PKIX, as openssl writes it).
func ParseKey(s string) (ed25519.PublicKey, error) {
	s = strings.TrimSpace(s)
	if len(s) > MaxNote {
		return nil, errors.New("parse public key: too long")
	}
	if block, _ := pem.Decode([]byte(s)); block != nil {
		k, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse public key: %w", err)
		}
		if k, ok := k.(ed25519.PublicKey); ok {
			return k, nil
		}
		return nil, errors.New("parse public key: the PEM holds no Ed25519 key")
	}
	raw := s
	if name, rest, ok := strings.Cut(s, "+"); ok && strings.HasPrefix(name, originPrefix) {
		if _, err := note.NewVerifier(s); err != nil {
			return nil, fmt.Errorf("parse public key: %w", err)
		}
		_, raw, _ = strings.Cut(rest, "+")
		b, err := base64.StdEncoding.DecodeString(raw)
		if err != nil || len(b) != 1+ed25519.PublicKeySize {
			return nil, errors.New("parse public key: the key is not 33 bytes in base64")
		}
		return ed25519.PublicKey(b[1:]), nil
	}
	b, err := base64.StdEncoding.DecodeString(raw)
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, errors.New("parse public key: neither castellan/…+id+key, nor base64 of 32 bytes, nor PEM")
	}
	return ed25519.PublicKey(b), nil
}

// compactSig reads a signature line of a note into the form of Record.Sig with
// an empty root, nil when it is none.
func compactSig(line string) []byte {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "— ")
	_, b64, ok2 := strings.Cut(rest, " ")
	b, err := base64.StdEncoding.DecodeString(b64)
	if !ok || !ok2 || err != nil || len(b) != 4+ed25519.SignatureSize {
		return nil
	}
	return append(make([]byte, tlog.HashSize, sigLen), b...)
}
