//go:build linux

package guestlab

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// PVE is the folder of the node's own files.
const PVE = "/etc/pve"

// Lab is the node that the tests of one binary share.
type Lab struct {
	dir    string // on a tmpfs
	Signer ssh.Signer
	// KeyFile is the private key of Signer, which every guest's root account accepts.
	KeyFile string
}

// Open returns the lab, or skips the test where there is none. In CI it fails it.
func Open(t testing.TB) *Lab {
	t.Helper()
	dir := os.Getenv(envDir)
	if dir == "" {
		why := os.Getenv(envLacks)
		if why == "" {
			t.Fatal("guestlab: TestMain of this package does not call guestlab.Main")
		}
		if os.Getenv("CI") != "" {
			t.Fatalf("guestlab: no guests here: %s", why)
		}
		t.Skipf("guestlab: no guests here: %s", why)
	}
	l := &Lab{dir: filepath.Join(dir, "lab")}
	l.KeyFile = filepath.Join(l.dir, "key")
	b, err := os.ReadFile(l.KeyFile)
	if err != nil {
		t.Fatalf("guestlab: %v", err)
	}
	if l.Signer, err = ssh.ParsePrivateKey(b); err != nil {
		t.Fatalf("guestlab: read key: %v", err)
	}
	return l
}

// prepareNode writes what the node has once, before any test runs.
func prepareNode(dir string) error {
	lab := filepath.Join(dir, "lab")
	if _, err := os.Stat(filepath.Join(lab, "key")); err == nil {
		return nil // a test starts its own binary again
	}
	if err := writeKey(filepath.Join(lab, "key")); err != nil {
		return err
	}
	if err := writePVE(); err != nil {
		return err
	}
	return writeCommands(lab)
}

// writeKey makes a private key for SSH, and its public half beside it.
func writeKey(path string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(key, "guestlab")
	if err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	public, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	err = errors.Join(os.WriteFile(path+".pub", ssh.MarshalAuthorizedKey(public), 0o644), os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
	if err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	return nil
}

// writePVE writes the files of the node that do not depend on its guests.
func writePVE() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the cluster's certificate: %w", err)
	}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Proxmox Virtual Environment"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		return fmt.Errorf("make the cluster's certificate: %w", err)
	}
	for name, text := range map[string]string{
		"pve-root-ca.pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		".members": `{
"nodename": "` + Node + `",
"version": 4,
"cluster": { "name": "guestlab", "version": 1, "nodes": 1, "quorate": 1 },
"nodelist": {
  "` + Node + `": { "id": 1, "online": 1, "ip": "10.99.0.1"}
  }
}
`,
		"corosync.conf": `logging {
  debug: off
  to_syslog: yes
}

nodelist {
  node {
    name: ` + Node + `
    nodeid: 1
    quorum_votes: 1
    ring0_addr: 10.99.0.1
  }
}

quorum {
  provider: corosync_votequorum
}

totem {
  cluster_name: guestlab
  config_version: 1
  interface {
    linknumber: 0
  }
  ip_version: ipv4-6
  link_mode: passive
  secauth: on
  version: 2
}
`,
		"storage.cfg":         "dir: local\n\tpath /var/lib/vz\n\tcontent iso,vztmpl,backup\n\nzfspool: local-zfs\n\tpool rpool/data\n\tcontent images,rootdir\n\tsparse 1\n",
		"user.cfg":            "user:root@pam:1:0::::::\n",
		"firewall/cluster.fw": "[OPTIONS]\n\nenable: 0\n",
	} {
		path := filepath.Join(PVE, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			return fmt.Errorf("write the node's files: %w", err)
		}
	}
	for _, sub := range []string{"lxc", "qemu-server"} {
		if err := os.MkdirAll(filepath.Join(PVE, "nodes", Node, sub), 0o755); err != nil {
			return fmt.Errorf("write the node's files: %w", err)
		}
	}
	interfaces := "auto lo\niface lo inet loopback\n\nauto vmbr0\niface vmbr0 inet static\n\taddress 10.99.0.1/16\n\tbridge-ports none\n\tbridge-stp off\n\tbridge-fd 0\n"
	return errors.Join(
		os.Symlink(filepath.Join("nodes", Node), filepath.Join(PVE, "local")),
		os.WriteFile("/etc/hostname", []byte(Node+"\n"), 0o644),
		os.MkdirAll("/etc/network", 0o755),
		os.WriteFile("/etc/network/interfaces", []byte(interfaces), 0o644),
	)
}

// take reserves the lowest free number of a kind from first to last, or exactly the wanted one, until the test ends.
func (l *Lab) take(t testing.TB, kind string, wanted, first, last int) int {
	t.Helper()
	if wanted != 0 {
		first, last = wanted, wanted
	}
	for n := first; n <= last; n++ {
		mark := filepath.Join(l.dir, "taken", kind+"-"+strconv.Itoa(n))
		err := os.Mkdir(mark, 0o755)
		if err == nil {
			t.Cleanup(func() { _ = os.Remove(mark) }) // of no use to anyone but this lab
			return n
		}
		if !errors.Is(err, os.ErrExist) {
			t.Fatalf("guestlab: %v", err)
		}
	}
	t.Fatalf("guestlab: every %s from %d to %d is in use by another test", kind, first, last)
	return 0
}

// Result is how a program ended.
type Result struct {
	Code   int    // exit code; -1 after a signal
	Signal string // "killed", as Go names it
	Stdout []byte
	Stderr []byte
}

// run runs a program of the node, for at most limit.
func run(ctx context.Context, limit time.Duration, stdin []byte, argv ...string) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	r := Result{Stdout: stdout.Bytes(), Stderr: stderr.Bytes()}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return r, fmt.Errorf("run %s: %w: %s", strings.Join(argv, " "), context.Cause(ctx), tail(r.Stderr, 500))
	case err == nil:
	case errors.As(err, &exit):
		r.Code = exit.ExitCode()
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			r.Signal = status.Signal().String()
		}
	default:
		return r, fmt.Errorf("run %s: %w", strings.Join(argv, " "), err)
	}
	return r, nil
}

// must is run for what has to end with 0.
func must(ctx context.Context, limit time.Duration, argv ...string) (string, error) {
	r, err := run(ctx, limit, nil, argv...)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("run %s: exit code %d: %s", strings.Join(argv, " "), r.Code, tail(append(r.Stdout, r.Stderr...), 1000))
	}
	return strings.TrimSpace(string(r.Stdout)), err
}
