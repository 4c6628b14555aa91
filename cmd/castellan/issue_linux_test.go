package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestIssueAsRoot: root reads the authority's key, and the daemon's account writes what comes of it; so the account's
// configuration cannot have root write where the account may not.
func TestIssueAsRoot(t *testing.T) {
	c := newCastle(t, `"ANN"`)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Proxmox Virtual Environment"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	raw, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	authority, signer := filepath.Join(root, "ca.pem"), filepath.Join(root, "ca.key")
	for path, block := range map[string]*pem.Block{authority: {Type: "CERTIFICATE", Bytes: raw}, signer: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(c.config)
	if err != nil {
		t.Fatal(err)
	}
	issueTo := func(dir string) (string, string, int) {
		t.Helper()
		lines := "tls_cert = \"" + filepath.Join(dir, "cert.pem") + "\"\ntls_key = \"" + filepath.Join(dir, "cert.key") + "\"\n"
		if err := os.WriteFile(c.config, []byte(string(text)+lines), 0o600); err != nil {
			t.Fatal(err)
		}
		return c.do(nil, nil, "daemon", "certificate", "issue", "--ca", authority, "--ca-key", signer, "--name", "castellan.example")
	}
	if out, errs, code := issueTo(c.dir); code != 0 || !strings.Contains(out, "castellan.example") {
		t.Fatalf("code %d: %s %s", code, out, errs)
	}
	for _, name := range []string{"cert.pem", "cert.key"} {
		info, err := os.Stat(filepath.Join(c.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := info.Sys().(*syscall.Stat_t); !ok || s.Uid != c.own.uid || name == "cert.key" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, of user %d", name, info.Mode(), s.Uid)
		}
	}
	closed := filepath.Join(root, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := issueTo(closed); code == 0 {
		t.Errorf("root wrote where the account may not: %s %s", out, errs)
	}
	if left, err := os.ReadDir(closed); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
}
