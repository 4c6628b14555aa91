package ledger

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
)

// Kinds of records that the ledger itself writes and reads.
const (
	KindKey   = "ledger.key"   // the signing key was replaced
	KindSweep = "ledger.sweep" // retention removed parts or records
	KindGap   = "ledger.gap"   // reads may be missing
)

// rotation is what a KindKey record says.
type rotation struct{ old, new ed25519.PublicKey }

// rotationText is what both keys sign. It names the store, so that a rotation
// cannot be carried over to another.
func rotationText(store string, old, new ed25519.PublicKey) []byte {
	return []byte("castellan ledger key rotation\n" + store + "\n" +
		base64.StdEncoding.EncodeToString(old) + "\n" + base64.StdEncoding.EncodeToString(new) + "\n")
}

func parseRotation(h *Header) (rotation, bool) {
	m, err := h.Fields()
	if err != nil {
		return rotation{}, false
	}
	b64 := func(name string, size int) []byte {
		s, _ := m[name].(string)
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil || len(b) != size {
			return nil
		}
		return b
	}
	r := rotation{old: b64("old", ed25519.PublicKeySize), new: b64("new", ed25519.PublicKeySize)}
	oldSig, newSig := b64("old_sig", ed25519.SignatureSize), b64("new_sig", ed25519.SignatureSize)
	store, _ := m["store"].(string)
	if r.old == nil || r.new == nil || oldSig == nil || newSig == nil || r.old.Equal(r.new) {
		return rotation{}, false
	}
	text := rotationText(store, r.old, r.new)
	return r, ed25519.Verify(r.old, text, oldSig) && ed25519.Verify(r.new, text, newSig)
}

// Rotate records in the write tree that the key of l is replaced by signer, and
// signs the heads of both trees with the new key, all within the transaction
// behind rows. Once that has committed, go on with a new Log; this one, in this
// and every other process, refuses to append from then on.
func (l *Log) Rotate(ctx context.Context, rows Rows, signer crypto.Signer, e Entry) (Receipt, error) {
	key, ok := signer.Public().(ed25519.PublicKey)
	if !ok || key.Equal(l.key) {
		return Receipt{}, errors.New("rotate ledger key: the new key must be another Ed25519 key")
	}
	text := rotationText(l.store, l.key, key)
	oldSig, err := l.signer.Sign(rand.Reader, text, crypto.Hash(0))
	if err != nil {
		return Receipt{}, fmt.Errorf("rotate ledger key: sign with the old key: %w", err)
	}
	newSig, err := signer.Sign(rand.Reader, text, crypto.Hash(0))
	if err != nil {
		return Receipt{}, fmt.Errorf("rotate ledger key: sign with the new key: %w", err)
	}
	e.Kind = KindKey
	data := map[string]any{}
	for k, v := range e.Data {
		data[k] = v
	}
	b64 := base64.StdEncoding.EncodeToString
	data["store"], data["old"], data["new"] = l.store, b64(l.key), b64(key)
	data["old_sig"], data["new_sig"] = b64(oldSig), b64(newSig)
	e.Data = data

	next, err := New(Config{Store: l.store, Signer: signer, Now: l.now, Rand: l.rand, CacheBlocks: 1})
	if err != nil {
		return Receipt{}, fmt.Errorf("rotate ledger key: %w", err)
	}
	var receipt Receipt
	for _, tree := range Trees() {
		head, f, err := l.lastHead(ctx, rows, tree)
		if err != nil {
			return Receipt{}, fmt.Errorf("rotate ledger key: %s tree: %w", tree, err)
		}
		// Hand the proven head over, so that the new key signs on from it.
		next.remember(tree, head)
		if tree == Write {
			got, err := next.Append(ctx, rows, Write, e)
			if err != nil {
				return Receipt{}, fmt.Errorf("rotate ledger key: %w", err)
			}
			receipt = got[0]
			continue
		}
		// Also when it is empty: else a process with the old key could begin it.
		head, _, err = next.sign(tree, &f)
		if err != nil {
			return Receipt{}, fmt.Errorf("rotate ledger key: %w", err)
		}
		if err := rows.SetHead(ctx, tree, head); err != nil {
			return Receipt{}, fmt.Errorf("rotate ledger key: %w", err)
		}
	}
	return receipt, nil
}

// Replaced says whether the ledger recorded that the key of l was replaced by the one that signs its head now: then
// nothing was changed from outside, and a process that holds the new key goes on.
func (l *Log) Replaced(ctx context.Context, rows Finder) (bool, error) {
	head, err := rows.Head(ctx, Write)
	if err != nil {
		return false, fmt.Errorf("look for a key rotation: %w", err)
	}
	found, err := rows.Select(ctx, Write, Query{Kind: KindKey}, head.Size, 1)
	if err != nil {
		return false, fmt.Errorf("look for a key rotation: %w", err)
	}
	if len(found) == 0 || found[0].Header == nil {
		return false, nil
	}
	h, err := ParseHeader(found[0].Header)
	if err != nil {
		return false, nil // verification names it
	}
	r, ok := parseRotation(&h)
	if !ok || !r.old.Equal(l.key) {
		return false, nil
	}
	_, err = OpenCheckpoint(head.Note, r.new)
	return err == nil, nil
}
