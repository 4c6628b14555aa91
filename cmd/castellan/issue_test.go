package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"
)

func TestIssue(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Proxmox Virtual Environment"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(100 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	raw, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if ca, err = x509.ParseCertificate(raw); err != nil {
		t.Fatal(err)
	}
	cert, own, until, err := issue(ca, key, []string{"castellan.example", "192.0.2.7"}, now, 365*24*time.Hour)
	if err != nil || until.After(ca.NotAfter) {
		t.Fatalf("until %s, %v", until, err)
	}
	pair, err := tls.X509KeyPair(cert, own)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	for _, name := range []string{"castellan.example", "192.0.2.7"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "other.example"}); err == nil {
		t.Error("it is good for any name")
	}
	if _, _, _, err := issue(ca, key, []string{"x"}, ca.NotAfter.Add(time.Hour), time.Hour); err == nil {
		t.Error("an authority that has ended signed")
	}
}
