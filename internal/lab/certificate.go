package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"
)

// certificate is a leaf issued by a throw-away authority. Like the genuine cluster authority, it carries no keyUsage.
type certificate struct {
	tls         tls.Certificate
	caPEM       []byte
	leafPEM     []byte
	fingerprint string
	caPrint     string // the same of the authority
	notBefore   time.Time
	notAfter    time.Time
}

func newCertificate(host string) (*certificate, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make authority key: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	// Certificates live on real time even when the lab's own clock is moved.
	from := time.Now().Add(-time.Hour)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: from.AddDate(10, 0, 0),
		Subject:               pkix.Name{CommonName: "Proxmox Virtual Environment", Organization: []string{"PVE Cluster Manager CA"}},
		BasicConstraintsValid: true, IsCA: true,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("issue authority: %w", err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: from, NotAfter: from.AddDate(2, 0, 0),
		Subject:     pkix.Name{CommonName: host + ".lab.test", Organization: []string{"Proxmox Virtual Environment"}, OrganizationalUnit: []string{"PVE Cluster Node"}},
		DNSNames:    []string{"localhost", host, host + ".lab.test"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:    x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	caCert, err := x509.ParseCertificate(caDER)
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, caCert, key.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("issue certificate: %w", err)
	}
	return &certificate{
		tls:         tls.Certificate{Certificate: [][]byte{der, caDER}, PrivateKey: key},
		caPEM:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}),
		leafPEM:     pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		fingerprint: fingerprintOf(der), caPrint: fingerprintOf(caDER), notBefore: leaf.NotBefore, notAfter: leaf.NotAfter,
	}, nil
}

func fingerprintOf(der []byte) string {
	sum := sha256.Sum256(der)
	parts := make([]string, len(sum))
	for i, b := range sum {
		parts[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(parts, ":")
}
