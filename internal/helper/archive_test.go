//go:build linux

package helper

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// signer is a key that archives are signed with.
type signer struct{ home string }

func newSigner(t *testing.T, expires ...string) *signer {
	t.Helper()
	home, err := os.MkdirTemp("/run", "key.") // sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{home: home}
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run() // it may have ended
		os.RemoveAll(home)
	})
	s.gpg(t, nil, "--passphrase", "", "--quick-gen-key", "another <another@example.invalid>", "ed25519", "sign", append(expires, "30d")[0])
	return s
}

func (s *signer) gpg(t *testing.T, in []byte, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("gpg", append([]string{"--homedir", s.home, "--batch", "--quiet", "--yes"}, args...)...)
	var errs bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("gpg %v: %v %s", args, err, errs.String())
	}
	return out
}

// trusted has the apt of a guest, and with ours the distribution itself, sign with a further key.
func (h *house) trusted(t *testing.T, s *signer, distribution bool) {
	t.Helper()
	h.appendTo(t, "etc/apt/keyrings/guestlab.asc", s.gpg(t, nil, "--export", "--armor"))
	if distribution {
		name := "debian"
		if h.installed.System.ID == "ubuntu" {
			name = "ubuntu"
		}
		h.appendTo(t, "usr/share/keyrings/"+name+"-archive-keyring.gpg", s.gpg(t, nil, "--export"))
	}
}

func (h *house) appendTo(t *testing.T, path string, more []byte) {
	t.Helper()
	old, err := os.ReadFile(filepath.Join(h.Root, path))
	if err != nil {
		t.Fatal(err)
	}
	h.write(t, path, append(old, more...))
}

// write writes a file of the guest, readable by all of it, from outside.
func (h *house) write(t *testing.T, path string, b []byte) {
	t.Helper()
	full := filepath.Join(h.Root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// publish packs a package, "name version" and fields of it, into a pool and signs the index anew, whose release file gets further
// fields. An empty package signs only.
func (h *house) publish(t *testing.T, s *signer, archive, dist, pool, name, version, postinst string, release []string, fields ...string) {
	t.Helper()
	root := filepath.Join(h.Root, "srv/guestlab", archive)
	if name != "" {
		stage := t.TempDir()
		control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: Guest Lab <lab@example.invalid>\n%sDescription: package %s for tests\n", name, version, strings.Join(append(fields, ""), "\n"), name)
		if err := os.MkdirAll(filepath.Join(stage, "DEBIAN"), 0o755); err != nil {
			t.Fatal(err)
		}
		for path, text := range map[string]string{"control": control, "postinst": "#!/bin/sh\n" + postinst + "\n"} {
			if err := os.WriteFile(filepath.Join(stage, "DEBIAN", path), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		shell(t, root, "dpkg-deb -Znone --root-owner-group --build "+stage+" pool/"+pool+"/"+name+"_"+version+"_all.deb")
	}
	packages := shell(t, root, "apt-ftparchive -qq packages pool/"+pool)
	h.write(t, "srv/guestlab/"+archive+"/dists/"+dist+"/main/binary-amd64/Packages", packages)
	old, err := os.ReadFile(filepath.Join(root, "dists", dist, "InRelease"))
	if err != nil {
		t.Fatal(err)
	}
	var head []string
	for _, l := range strings.Split(string(old), "\n") {
		for _, f := range []string{"Origin", "Label", "Suite", "Codename", "Architectures", "Components", "NotAutomatic", "ButAutomaticUpgrades"} {
			if strings.HasPrefix(l, f+": ") {
				head = append(head, l)
			}
		}
	}
	os.Remove(filepath.Join(root, "dists", dist, "InRelease"))
	index := shell(t, root, "apt-ftparchive -qq release dists/"+dist)
	for _, f := range release { // in place of its own
		name, _, _ := strings.Cut(f, ":")
		index = regexp.MustCompile("(?m)^"+name+":.*\n").ReplaceAll(index, nil)
	}
	text := strings.Join(append(append(head, release...), string(index)), "\n")
	h.write(t, "srv/guestlab/"+archive+"/dists/"+dist+"/InRelease", s.gpg(t, []byte(text), "--clearsign"))
}

func shell(t *testing.T, dir, command string) []byte {
	t.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v %s", command, err, errs.String())
	}
	return out
}
