package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/seal"
	"castellan/internal/store"
)

// TestAStoreThatComesLater: what kept the store from being opened at the start is not held against it for ever.
func TestAStoreThatComesLater(t *testing.T) {
	keys, err := seal.CreateKeys(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	blocked := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	nothing := func(gate.Tx) error { return nil }
	l := newLateStore(store.Config{URL: filepath.Join(blocked, "c.db"), Signer: keys.Ledger()})
	if err := l.View(ctx, nothing); err == nil {
		t.Fatal("a store was opened in a file")
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	if err := l.View(ctx, nothing); err == nil {
		t.Error("it was tried again at once")
	}
	l.again = 0
	if err := l.View(ctx, nothing); err != nil {
		t.Errorf("it is not tried again: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	never := newLateStore(store.Config{URL: filepath.Join(t.TempDir(), "c.db"), Signer: keys.Ledger()})
	if err := never.Close(); err != nil {
		t.Error(err)
	}
	if err := never.View(ctx, nothing); err == nil {
		t.Error("it was opened after its end")
	}
}
