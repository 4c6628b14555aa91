package proxmox

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"net"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
)

func hexOf(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

func TestTrust(t *testing.T) {
	nothing := func(*x509.Certificate) {}
	ended := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	elsewhere := func(c *x509.Certificate) {
		c.IPAddresses, c.DNSNames = []net.IP{net.IPv4(10, 0, 0, 1)}, []string{"other"}
	}
	wrong := strings.Repeat("0f", 32)
	tests := []struct {
		name  string
		leaf  leafOption
		set   func(f *fake, s *Target)
		taken bool
	}{
		{"system roots", nothing, func(f *fake, s *Target) { s.CAFile = "" }, false},
		{"CA file, CA without key usage", nothing, func(f *fake, s *Target) {}, true},
		{"CA file holds the certificate itself", nothing, func(f *fake, s *Target) { s.CAFile = "leaf" }, true},
		{"CA file of another CA", nothing, func(f *fake, s *Target) { s.CAFile = "other" }, false},
		{"CA file, ended", ended, func(f *fake, s *Target) {}, false},
		{"CA file, other name", elsewhere, func(f *fake, s *Target) {}, false},
		{"CA file, expected name", elsewhere, func(f *fake, s *Target) { s.ServerName = "other" }, true},
		{"pin of the certificate", nothing, func(f *fake, s *Target) { s.CAFile, s.Pins = "", []string{wrong, fingerprint(f.leaf)} }, true},
		{"pin of the certificate, as such", elsewhere, func(f *fake, s *Target) { s.CAFile, s.Pins = "", []string{"cert:" + hexOf(f.leaf.Raw)} }, true},
		{"pin of the certificate, ended", ended, func(f *fake, s *Target) { s.CAFile, s.Pins = "", []string{hexOf(f.leaf.Raw)} }, true},
		{"pin of the key", nothing, func(f *fake, s *Target) { s.CAFile, s.Pins = "", []string{hexOf(f.leaf.RawSubjectPublicKeyInfo)} }, true},
		{"pin of the key, base64", nothing, func(f *fake, s *Target) {
			sum := sha256.Sum256(f.leaf.RawSubjectPublicKeyInfo)
			s.CAFile, s.Pins = "", []string{"key:sha256/" + base64.StdEncoding.EncodeToString(sum[:])}
		}, true},
		{"pin of the certificate where a key is meant", nothing, func(f *fake, s *Target) { s.CAFile, s.Pins = "", []string{"key:" + hexOf(f.leaf.Raw)} }, false},
		{"pin of the CA", nothing, func(f *fake, s *Target) { s.Pins = []string{hexOf(caOf(f).Raw)} }, true},
		{"pin of the CA, other name", elsewhere, func(f *fake, s *Target) { s.Pins = []string{hexOf(caOf(f).Raw)} }, false},
		{"pin of the CA, ended", ended, func(f *fake, s *Target) { s.Pins = []string{"ca:" + hexOf(caOf(f).Raw)} }, false},
		{"pin of the CA as a certificate", nothing, func(f *fake, s *Target) { s.Pins = []string{"cert:" + hexOf(caOf(f).Raw)} }, false},
		{"wrong pin beside the right CA", nothing, func(f *fake, s *Target) { s.Pins = []string{wrong} }, false},
		{"pin of a CA that did not sign", nothing, func(f *fake, s *Target) { s.CAFile, s.Pins = "other", []string{wrong} }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t, func(int, seen) string { return ok("1") }, tt.leaf)
			other := &fake{}
			makeCertificate(t, other)
			set, secrets := tokenTarget(f)
			secrets["leaf"], secrets["other"] = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.leaf.Raw})), other.ca
			tt.set(f, &set)
			if tt.name == "pin of a CA that did not sign" {
				set.Pins = []string{hexOf(caOf(other).Raw)}
			}
			c := newClient(t, set, secrets)
			_, err := readOne(t, c, "GET /version", nil)
			if (err == nil) != tt.taken {
				t.Fatalf("taken: %v, %v", err == nil, err)
			}
			if err != nil {
				u := failed(t, err)
				if n := len(f.requests()); n != 0 || u.Delivery != gate.NotCarriedOut || !strings.Contains(u.Message, fingerprint(f.leaf)) || !strings.Contains(u.Hint, "Nothing secret was sent") {
					t.Errorf("%d requests arrived; %s: %q, %q", n, u.Delivery, u.Message, u.Hint)
				}
			}
		})
	}
}

func caOf(f *fake) *x509.Certificate {
	certs, err := readAnchors([]byte(f.ca))
	if err != nil {
		panic(err)
	}
	return certs[0]
}

func TestNotices(t *testing.T) {
	for days, want := range map[int]string{29: "in 28 days", 31: "", 700: ""} {
		f := newFake(t, func(int, seen) string { return ok("1") }, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(time.Duration(days) * 24 * time.Hour) })
		set, secrets := tokenTarget(f)
		c := newClient(t, set, secrets)
		if len(c.Notices()) != 0 {
			t.Error("a notice before any connection")
		}
		if _, err := readOne(t, c, "GET /version", nil); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(c.Notices(), "\n")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%d days: %q", days, got)
		}
	}
}
