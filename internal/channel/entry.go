package channel

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/patch"
)

// Identity is what tells a guest from a later one of its id: of a container the volume of its root and the hardware address of
// its first network card, of a VM the SMBIOS uuid.
type Identity struct {
	Root string `json:"root,omitempty"`
	MAC  string `json:"mac,omitempty"`
	UUID string `json:"uuid,omitempty"`
}

// Differs says in what another guest is not this one; empty where it is.
func (i Identity) Differs(now Identity) string {
	switch {
	case i.Root != now.Root:
		return fmt.Sprintf("its root volume is %q and was %q", clip(now.Root, 100), clip(i.Root, 100))
	case !strings.EqualFold(i.MAC, now.MAC):
		return fmt.Sprintf("its first hardware address is %q and was %q", clip(now.MAC, 40), clip(i.MAC, 40))
	case !strings.EqualFold(i.UUID, now.UUID):
		return fmt.Sprintf("its SMBIOS uuid is %q and was %q", clip(now.UUID, 40), clip(i.UUID, 40))
	}
	return ""
}

// Empty says whether there is nothing to tell it by.
func (i Identity) Empty() bool { return i == Identity{} }

// Entry is a guest that castellan has a channel into. The private key is in no field that can be printed or marshalled.
type Entry struct {
	Site      string       `json:"site"`
	VMID      int          `json:"vmid"`
	Kind      string       `json:"kind"` // "lxc", "qemu"
	Name      string       `json:"name,omitempty"`
	Address   string       `json:"address"` // IP
	Port      int          `json:"port"`
	HostKeys  []string     `json:"host_keys"` // "ssh-ed25519 AAAA…"
	Account   string       `json:"account"`
	PublicKey string       `json:"public_key"`
	From      string       `json:"from"` // castellan's address, the only one that the guest takes the key from
	Automatic string       `json:"automatic,omitempty"`
	System    patch.System `json:"system"`
	Identity  Identity     `json:"identity"`
	By        string       `json:"by"`
	At        time.Time    `json:"at"`
	Plan      string       `json:"plan"`
	Run       string       `json:"run"`           // plan and step
	Way       string       `json:"way,omitempty"` // "bridge", "agent", "script"
	Record    uint64       `json:"record"`        // of its enrolment in the ledger, counted from 1

	// Addresses tells where Proxmox sees the guest now; nil: it is not asked.
	Addresses func(ctx context.Context) ([]netip.Addr, error) `json:"-"`

	key ed25519.PrivateKey
}

// New makes an entry with a key of its own, which nobody has seen before and nothing keeps yet.
func New(site string, vmid int, kind string) (*Entry, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	k, err := ssh.NewPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return &Entry{Site: site, VMID: vmid, Kind: kind, Port: 22, PublicKey: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k))), key: private}, nil
}

// ID names the channel of a guest, among all sites.
func ID(site string, vmid int) string { return site + "/" + strconv.Itoa(vmid) }

// ID names the channel.
func (e *Entry) ID() string { return ID(e.Site, e.VMID) }

// Guest is how the guest is called.
func (e *Entry) Guest() string {
	kind := "container"
	if e.Kind == "qemu" {
		kind = "VM"
	}
	return kind + " " + strconv.Itoa(e.VMID)
}

// Fingerprints are those of the pinned host keys.
func (e *Entry) Fingerprints() []string {
	var out []string
	for _, text := range e.HostKeys {
		if k, err := parseKey(text); err == nil {
			out = append(out, ssh.FingerprintSHA256(k))
		}
	}
	return out
}

// mostKeys bounds the host keys of a guest.
const mostKeys = 8

// parseKey reads "ssh-ed25519 AAAA…".
func parseKey(text string) (ssh.PublicKey, error) {
	if len(text) > 4096 || strings.ContainsAny(text, "\r\n") {
		return nil, errors.New("read host key: it is no line of a public key")
	}
	k, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	if err != nil || len(options) > 0 || len(rest) > 0 {
		return nil, fmt.Errorf("read host key: %q is no public key such as ssh-ed25519 AAAA…", clip(text, 60))
	}
	if strings.Contains(k.Type(), "cert") {
		return nil, errors.New("read host key: a certificate is not pinned")
	}
	return k, nil
}

// ParseHostKeys reads the lines of a guest's public host keys and gives them without comments. What is none is an error: it
// may be half of what was pasted.
func ParseHostKeys(lines []string) ([]string, error) {
	var out []string
	seen := map[string]bool{}
	for _, line := range lines {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		k, err := parseKey(line)
		if err != nil {
			return nil, err
		}
		plain := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k)))
		if seen[plain] {
			continue
		}
		seen[plain] = true
		if out = append(out, plain); len(out) > mostKeys {
			return nil, fmt.Errorf("read host keys: there are more than %d", mostKeys)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("read host keys: there is none")
	}
	return out, nil
}

// clip is a text of the other side as an error may hold it.
func clip(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r <= 0x9f || r >= 0x2028 && r <= 0x202e || r >= 0x200b && r <= 0x200f || r >= 0x2066 && r <= 0x2069 || r == 0xfeff {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
