package seal

import (
	"crypto"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"
)

// Files of a key directory.
const (
	ledgerFile = "ledger.pem"      // Ed25519, PKCS #8
	nextFile   = "ledger-next.pem" // its successor while a rotation is under way
	sealFile   = "seal.key"        // 32 bytes, base64
	macFile    = "mac.key"         // 32 bytes, base64
)

// Keys are the keys of one store. No method gives a private key away but by
// using it.
type Keys struct {
	dir    string
	ledger ed25519.PrivateKey
	next   ed25519.PrivateKey
	seal   []byte
	mac    []byte
}

// CreateKeys makes a key directory with new keys, whole or not at all, open to
// this user only. When the directory holds anything, also because another
// process was first, the error wraps fs.ErrExist.
func CreateKeys(dir string) (*Keys, error) {
	id, err := randomText(9)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, fmt.Errorf("create key directory: %w", err)
	}
	tmp := dir + ".new-" + id
	if err := makePrivateDir(tmp); err != nil {
		return nil, fmt.Errorf("create key directory: %w", err)
	}
	defer os.RemoveAll(tmp)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create ledger key: %w", err)
	}
	content := map[string][]byte{}
	if content[ledgerFile], err = encodeKey(key); err != nil {
		return nil, err
	}
	for _, name := range []string{sealFile, macFile} {
		b := make([]byte, 32)
		if _, err := io.ReadFull(rand.Reader, b); err != nil {
			return nil, fmt.Errorf("create key: %w", err)
		}
		content[name] = []byte(base64.StdEncoding.EncodeToString(b) + "\n")
	}
	for name, b := range content {
		if err := Create(filepath.Join(tmp, name), b); err != nil {
			return nil, err
		}
	}
	// An empty directory may be in the way (someone made it beforehand); one
	// with anything in it is not touched.
	if info, err := os.Lstat(dir); err == nil {
		if !info.IsDir() || os.Remove(dir) != nil {
			return nil, fmt.Errorf("create key directory %s: %w", dir, fs.ErrExist)
		}
	}
	if err := os.Rename(tmp, dir); err != nil {
		if _, e := os.Lstat(dir); e == nil {
			return nil, fmt.Errorf("create key directory %s: %w", dir, fs.ErrExist)
		}
		return nil, fmt.Errorf("create key directory %s: %w", dir, err)
	}
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return nil, err
	}
	return OpenKeys(dir)
}

// OpenKeys reads a key directory. Directory and files must belong to this user
// alone. A missing file is an error that names it: keys are never made up anew
// beside a store that others have sealed.
func OpenKeys(dir string) (*Keys, error) {
	d, err := openPrivate(dir)
	if err != nil {
		return nil, fmt.Errorf("open key directory: %w", err)
	}
	defer d.Close()
	info, err := d.Stat()
	if err != nil {
		return nil, fmt.Errorf("open key directory %s: %w", dir, err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("open key directory %s: it is not a directory", dir)
	}
	if err := checkPrivate(d, info); err != nil {
		return nil, fmt.Errorf("check key directory %s: %w", dir, err)
	}
	k := &Keys{dir: dir}
	if k.ledger, err = readKey(filepath.Join(dir, ledgerFile)); err != nil {
		return nil, err
	}
	if k.next, err = readKey(filepath.Join(dir, nextFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for name, dst := range map[string]*[]byte{sealFile: &k.seal, macFile: &k.mac} {
		path := filepath.Join(dir, name)
		s, err := Open(path)
		if err != nil {
			return nil, err
		}
		b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(s.Reveal()))
		if err != nil || len(b) != 32 {
			return nil, fmt.Errorf("read key %s: it is not 32 bytes in base64", path)
		}
		*dst = b
	}
	return k, nil
}

// OpenOrCreateKeys opens the key directory, or makes it when there is none. Of
// several processes that do so at once one makes it and all open it.
func OpenOrCreateKeys(dir string) (*Keys, error) {
	k, err := OpenKeys(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	// Only a directory that is absent or empty is made; one in which a single
	// file is missing keeps its error.
	k, createErr := CreateKeys(dir)
	if errors.Is(createErr, fs.ErrExist) {
		return OpenKeys(dir)
	}
	return k, createErr
}

func encodeKey(key ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode ledger key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func readKey(path string) (ed25519.PrivateKey, error) {
	s, err := Open(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(append(s.Bytes(), '\n'))
	if block == nil {
		return nil, fmt.Errorf("read ledger key %s: it is not PEM", path)
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		// The parser's own words may hold pieces of the key.
		return nil, fmt.Errorf("read ledger key %s: it is not a PKCS #8 key", path)
	}
	key, ok := k.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("read ledger key %s: it is not an Ed25519 key", path)
	}
	return key, nil
}

// signer hides the private key from everything that prints.
type signer struct {
	public ed25519.PublicKey
	sign   func([]byte) []byte
}

func (s signer) Public() crypto.PublicKey { return s.public }

func (s signer) Sign(_ io.Reader, msg []byte, opts crypto.SignerOpts) ([]byte, error) {
	if opts != nil && opts.HashFunc() != 0 {
		return nil, errors.New("sign: Ed25519 signs messages, not hashes")
	}
	return s.sign(msg), nil
}

func newSigner(key ed25519.PrivateKey) crypto.Signer {
	return signer{key.Public().(ed25519.PublicKey), func(b []byte) []byte { return ed25519.Sign(key, b) }}
}

// Ledger is the Ed25519 key that signs the ledger.
func (k *Keys) Ledger() crypto.Signer { return newSigner(k.ledger) }

// LedgerPublic is its public half.
func (k *Keys) LedgerPublic() ed25519.PublicKey { return k.ledger.Public().(ed25519.PublicKey) }

// LedgerPublicPEM is its public half as openssl reads it.
func (k *Keys) LedgerPublicPEM() (string, error) {
	der, err := x509.MarshalPKIXPublicKey(k.LedgerPublic())
	if err != nil {
		return "", fmt.Errorf("encode public key: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), nil
}

// NextLedger is the successor of the ledger key, nil when no rotation is under
// way. After a crash whoever finds one looks at who signed the stored head and
// calls FinishRotation or AbandonRotation.
func (k *Keys) NextLedger() crypto.Signer {
	if k.next == nil {
		return nil
	}
	return newSigner(k.next)
}

// BeginRotation makes and stores a successor of the ledger key. It is to be
// used once the ledger has recorded it; then FinishRotation puts it in place.
func (k *Keys) BeginRotation() (crypto.Signer, error) {
	if k.next != nil {
		return nil, errors.New("begin key rotation: one is under way already")
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("begin key rotation: %w", err)
	}
	b, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	if err := Create(filepath.Join(k.dir, nextFile), b); err != nil {
		return nil, fmt.Errorf("begin key rotation: %w", err)
	}
	k.next = key
	return newSigner(key), nil
}

// FinishRotation makes the successor the ledger key.
func (k *Keys) FinishRotation() error {
	if k.next == nil {
		return errors.New("finish key rotation: none is under way")
	}
	if err := os.Rename(filepath.Join(k.dir, nextFile), filepath.Join(k.dir, ledgerFile)); err != nil {
		return fmt.Errorf("finish key rotation: %w", err)
	}
	k.ledger, k.next = k.next, nil
	return syncDir(k.dir)
}

// AbandonRotation forgets the successor. The ledger must not have recorded it.
func (k *Keys) AbandonRotation() error {
	if err := os.Remove(filepath.Join(k.dir, nextFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("abandon key rotation: %w", err)
	}
	k.next = nil
	return syncDir(k.dir)
}

// ErrUnseal says that a box was altered, or is of another key, purpose or
// context.
var ErrUnseal = errors.New("the sealed value is damaged or belongs elsewhere")

const boxVersion = 1

// Seal encrypts value (XChaCha20-Poly1305, random nonce). It opens only with
// the same purpose and context: what it is (for instance "plan secret") and to
// what it belongs (for instance the plan id and the parameter).
func (k *Keys) Seal(value Secret, purpose string, context ...string) ([]byte, error) {
	aead, err := k.aead(purpose)
	if err != nil {
		return nil, err
	}
	box := make([]byte, 1+aead.NonceSize(), 1+aead.NonceSize()+len(value.Bytes())+aead.Overhead())
	box[0] = boxVersion
	nonce := box[1:]
	if _, err := io.ReadFull(rand.Reader, nonce); err != nil {
		return nil, fmt.Errorf("seal value: %w", err)
	}
	return aead.Seal(box, nonce, value.Bytes(), joined(purpose, context)), nil
}

// Unseal opens what Seal made; any failure is ErrUnseal.
func (k *Keys) Unseal(box []byte, purpose string, context ...string) (Secret, error) {
	aead, err := k.aead(purpose)
	if err != nil {
		return Secret{}, err
	}
	n := aead.NonceSize()
	if len(box) < 1+n+aead.Overhead() || box[0] != boxVersion {
		return Secret{}, fmt.Errorf("unseal %s: %w", purpose, ErrUnseal)
	}
	b, err := aead.Open(nil, box[1:1+n], box[1+n:], joined(purpose, context))
	if err != nil {
		return Secret{}, fmt.Errorf("unseal %s: %w", purpose, ErrUnseal)
	}
	return NewSecret(b), nil
}

type aead interface {
	NonceSize() int
	Overhead() int
	Seal(dst, nonce, plaintext, additional []byte) []byte
	Open(dst, nonce, ciphertext, additional []byte) ([]byte, error)
}

// aead derives one key per purpose, so that none opens what another sealed.
func (k *Keys) aead(purpose string) (aead, error) {
	key, err := hkdf.Key(sha256.New, k.seal, nil, "castellan seal: "+purpose, chacha20poly1305.KeySize)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	a, err := chacha20poly1305.NewX(key)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	return a, nil
}

// joined writes texts with their lengths, so that none can run into the next.
func joined(purpose string, texts []string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(purpose)))
	b = append(b, purpose...)
	for _, t := range texts {
		b = binary.BigEndian.AppendUint32(b, uint32(len(t)))
		b = append(b, t...)
	}
	return b
}

// MAC returns HMAC-SHA-256 of texts under a key of that purpose.
func (k *Keys) MAC(purpose string, texts ...string) [32]byte {
	m := hmac.New(sha256.New, k.mac)
	m.Write(joined("castellan mac: "+purpose, texts))
	var sum [32]byte
	m.Sum(sum[:0])
	return sum
}

// CheckMAC compares in constant time.
func (k *Keys) CheckMAC(mac []byte, purpose string, texts ...string) bool {
	sum := k.MAC(purpose, texts...)
	return hmac.Equal(mac, sum[:])
}

// Derive returns a 32-byte key of its own for a purpose, for instance a cookie
// or a cursor key.
func (k *Keys) Derive(purpose string) Secret {
	sum := k.MAC("derive", purpose)
	return NewSecret(sum[:])
}
