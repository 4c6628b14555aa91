package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/seal"
)

// Where Proxmox VE keeps its cluster's own authority.
const (
	clusterCA    = "/etc/pve/pve-root-ca.pem"
	clusterCAKey = "/etc/pve/priv/pve-root-ca.key"
)

// issueCommand makes a certificate for the daemon, signed by the Proxmox cluster's own authority or another one, and makes
// it anew before it ends.
func (a *app) issueCommand() *cobra.Command {
	var ca, caKey string
	var names []string
	var days, within int
	cmd := &cobra.Command{Use: "issue", Short: "Sign a certificate for the daemon with the Proxmox cluster's own CA (run on a node, as root), or renew it",
		Example: "  castellan daemon certificate issue --name castellan.example\n  castellan daemon certificate issue --if-within 30   # for a timer: only when the present one ends within 30 days",
		Args:    cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			a.isDaemon = true
			// Only root reads the authority's key. What comes after is the account's: it says where the certificate belongs, so
			// root must not be the one who writes there.
			authority, signer, unread := readAuthority(ca, caKey)
			s, _, _, err := a.load()
			if err != nil {
				return err
			}
			if s.Daemon.TLSCert == "" || s.Daemon.TLSKey == "" {
				return gate.Fail(gate.ErrInvalid, "Set daemon.tls_cert and daemon.tls_key to the files that shall be written.", "the configuration does not say where the certificate belongs")
			}
			if days < 1 || days > 397 {
				return cli.Usage{Err: fmt.Errorf("--days is %d; clients take certificates of 1 to 397 days", days)}
			}
			present := presentCertificate(s.Daemon.TLSCert)
			if within > 0 && present != nil && time.Until(present.NotAfter) > time.Duration(within)*24*time.Hour {
				fmt.Fprintf(a.out, "%s holds until %s: nothing was changed\n", s.Daemon.TLSCert, present.NotAfter.Format(time.DateOnly))
				return nil
			}
			if len(names) == 0 && present != nil {
				names = namesOf(present)
			}
			if u, err := url.Parse(s.Daemon.PublicURL); len(names) == 0 && err == nil && u.Hostname() != "" {
				names = []string{u.Hostname()}
			}
			if len(names) == 0 {
				return cli.Usage{Err: errors.New("give the host's name with --name, or set daemon.public_url")}
			}
			if unread != nil {
				return unread
			}
			cert, key, until, err := issue(authority, signer, names, time.Now(), time.Duration(days)*24*time.Hour)
			if err != nil {
				return err
			}
			// The daemon reads the two together and keeps the pair that it has until both fit.
			if err := errors.Join(seal.Replace(s.Daemon.TLSKey, key), seal.Replace(s.Daemon.TLSCert, cert), handOver(s.Daemon.Account, s.Daemon.TLSKey, s.Daemon.TLSCert)); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "wrote %s and its key for %s, until %s; a daemon that runs takes it up by itself\n", s.Daemon.TLSCert, cli.Safe(strings.Join(names, ", ")), until.Format(time.DateOnly))
			return nil
		}}
	cmd.Flags().StringVar(&ca, "ca", clusterCA, "certificate of the authority (PEM)")
	cmd.Flags().StringVar(&caKey, "ca-key", clusterCAKey, "its private key (PEM)")
	cmd.Flags().StringArrayVar(&names, "name", nil, "host name or address; repeatable (default: those of the present certificate, else that of daemon.public_url)")
	cmd.Flags().IntVar(&days, "days", 365, "how long it holds")
	cmd.Flags().IntVar(&within, "if-within", 0, "only when the present one ends within so many days")
	return cmd
}

// handOver gives files that root wrote to the daemon's account, which takes none of another's.
func handOver(account string, files ...string) error {
	if account == "" || os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup(account)
	if err != nil {
		return fmt.Errorf("hand the certificate over to daemon.account: %w", err)
	}
	uid, uerr := strconv.Atoi(u.Uid)
	gid, gerr := strconv.Atoi(u.Gid)
	if err := errors.Join(uerr, gerr); err != nil {
		return fmt.Errorf("hand the certificate over to daemon.account: %w", err)
	}
	for _, f := range files {
		if err := os.Chown(f, uid, gid); err != nil {
			return fmt.Errorf("hand the certificate over to daemon.account: %w", err)
		}
	}
	return nil
}

func presentCertificate(file string) *x509.Certificate {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return c
}

func namesOf(c *x509.Certificate) []string {
	out := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		out = append(out, ip.String())
	}
	return out
}

func readAuthority(cert, key string) (*x509.Certificate, crypto.Signer, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, nil, gate.Fail(gate.ErrInvalid, "Run it on a node of the cluster as root, or name another authority with --ca and --ca-key.", "the authority cannot be read: %v", err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || pair.Leaf == nil || !pair.Leaf.IsCA {
		return nil, nil, gate.Fail(gate.ErrInvalid, "Name a certificate authority with --ca.", "%s is no certificate of an authority", cert)
	}
	return pair.Leaf, signer, nil
}

// issue makes a key and a certificate for names with its authority behind it, both as PEM. It ends no later than the authority.
func issue(ca *x509.Certificate, signer crypto.Signer, names []string, now time.Time, life time.Duration) (cert, key []byte, until time.Time, err error) {
	fail := func(err error) ([]byte, []byte, time.Time, error) {
		return nil, nil, time.Time{}, fmt.Errorf("issue certificate: %w", err)
	}
	if !now.Before(ca.NotAfter) {
		return fail(fmt.Errorf("the authority itself ended on %s", ca.NotAfter.Format(time.DateOnly)))
	}
	if until = now.Add(life); until.After(ca.NotAfter) {
		until = ca.NotAfter
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return fail(err)
	}
	t := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: names[0], Organization: []string{"castellan"}}, NotBefore: now.Add(-5 * time.Minute), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	raw, err := x509.CreateCertificate(rand.Reader, t, ca, own.Public(), signer)
	if err != nil {
		return fail(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		return fail(err)
	}
	cert = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})...)
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), until, nil
}
