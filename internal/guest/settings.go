package guest

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Settings say where the bridges are.
type Settings struct {
	Bridges []BridgeSettings `toml:"bridge"`
}

// BridgeSettings are the way to `castellan bridge` on one node: over SSH (address, user, key_file, host_key), or over HTTP
// (url, secret_file). Without a bridge, nothing runs on the node and in its containers.
type BridgeSettings struct {
	Target string `toml:"target"` // the target that the node belongs to
	Node   string `toml:"node"`   // the node's name

	Address string `toml:"address"` // host or host:port of the node's sshd; default port 22
	User    string `toml:"user"`    // account whose forced command is the bridge; default castellan-bridge
	KeyFile string `toml:"key_file"`
	// HostKey is what the node's sshd must show: SHA256:… (ssh-keygen -lf prints it) or "ssh-ed25519 AAAA…". It is never
	// learned from a connection.
	HostKey []string `toml:"host_key"`

	URL              string   `toml:"url"`                // https://…, or http:// to loopback: the bridge as a service behind a tunnel
	SecretFile       string   `toml:"secret_file"`        // the secret that service and castellan share
	AccessIDFile     string   `toml:"access_id_file"`     // Cloudflare Access: client id of a service token
	AccessSecretFile string   `toml:"access_secret_file"` // and its secret
	CAFile           string   `toml:"ca_file"`            // PEM certificates that may have signed the server's; default the system's
	Pins             []string `toml:"pins"`               // SHA-256 of the server's certificate, in place of an authority

	RootSecretFile string `toml:"root_secret_file"` // lets scripts that are approved for it run as root on the node
	Parallel       int    `toml:"parallel"`         // runs at once; default 64
}

const (
	defaultUser     = "castellan-bridge"
	defaultParallel = 64
	mostParallel    = 256
)

// SettingsError names everything that is wrong with the settings, at once.
type SettingsError struct{ Problems []string }

func (e *SettingsError) Error() string { return "check bridges: " + strings.Join(e.Problems, "; ") }

func (e *SettingsError) add(key, format string, args ...any) {
	e.Problems = append(e.Problems, key+": "+fmt.Sprintf(format, args...))
}

// Validate names everything missing or wrong without opening a file or a connection. targets are the names of the targets
// that can have bridges.
func (s Settings) Validate(targets []string) error {
	p := &SettingsError{}
	seen := map[string]bool{}
	for i, b := range s.Bridges {
		key := fmt.Sprintf("bridge[%d]", i)
		switch {
		case b.Target == "":
			p.add(key+".target", "missing; the name of the target that the node belongs to")
		case !slices.Contains(targets, b.Target):
			p.add(key+".target", "%q is no target of kind pve", b.Target)
		}
		switch {
		case b.Node == "":
			p.add(key+".node", "missing; the name of the node")
		case !nodeName(b.Node):
			p.add(key+".node", "%q is no name of a node", b.Node)
		case seen[b.Target+"/"+b.Node]:
			p.add(key+".node", "%s of target %s has two bridges", b.Node, b.Target)
		}
		seen[b.Target+"/"+b.Node] = true
		if b.Parallel < 0 || b.Parallel > mostParallel {
			p.add(key+".parallel", "%d is not within 1 to %d", b.Parallel, mostParallel)
		}
		if b.URL != "" {
			b.validateHTTP(key, p)
		} else {
			b.validateSSH(key, p)
		}
	}
	if len(p.Problems) > 0 {
		return p
	}
	return nil
}

func nodeName(s string) bool {
	return s != "" && len(s) <= 63 && s[0] != '-' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == ""
}

func (b BridgeSettings) validateSSH(key string, p *SettingsError) {
	if b.Address == "" {
		p.add(key+".address", "missing; host or host:port of the node's sshd (or url, for a bridge that is a service)")
	} else if _, err := sshAddress(b.Address); err != nil {
		p.add(key+".address", "%v", err)
	}
	if b.User != "" && strings.Trim(b.User, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" {
		p.add(key+".user", "%q is no name of an account", b.User)
	}
	if b.KeyFile == "" {
		p.add(key+".key_file", "missing; the file of castellan's private key")
	}
	if len(b.HostKey) == 0 {
		p.add(key+".host_key", "missing; run ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub on the node and write the SHA256:… here: it is never learned from a connection")
	}
	for i, text := range b.HostKey {
		if _, err := parseHostKey(text); err != nil {
			p.add(fmt.Sprintf("%s.host_key[%d]", key, i), "%v", err)
		}
	}
	for name, v := range map[string]string{"secret_file": b.SecretFile, "access_id_file": b.AccessIDFile, "access_secret_file": b.AccessSecretFile, "ca_file": b.CAFile} {
		if v != "" {
			p.add(key+"."+name, "goes with url, not with address")
		}
	}
	if len(b.Pins) > 0 {
		p.add(key+".pins", "goes with url; the key of an sshd stands in host_key")
	}
}

func (b BridgeSettings) validateHTTP(key string, p *SettingsError) {
	if b.Address != "" || b.KeyFile != "" || len(b.HostKey) > 0 || b.User != "" {
		p.add(key, "two ways: give either url and secret_file, or address, user, key_file and host_key")
	}
	u, err := url.Parse(b.URL)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		p.add(key+".url", "%q: write https://host or https://host:port/path", b.URL)
	case u.Scheme == "http" && !loopback(u.Hostname()):
		p.add(key+".url", "%q: without TLS only 127.0.0.1 and ::1 can be reached", b.URL)
	case u.Scheme != "https" && u.Scheme != "http":
		p.add(key+".url", "%q: write https://host", b.URL)
	}
	if b.SecretFile == "" {
		p.add(key+".secret_file", "missing; the file of the secret that castellan bridge secret printed on the node")
	}
	if (b.AccessIDFile == "") != (b.AccessSecretFile == "") {
		p.add(key+".access_id_file", "access_id_file and access_secret_file go together")
	}
	for i, text := range b.Pins {
		if _, err := parsePin(text); err != nil {
			p.add(fmt.Sprintf("%s.pins[%d]", key, i), "%v", err)
		}
	}
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// sshAddress gives host:port.
func sshAddress(text string) (string, error) {
	if text == "" || strings.ContainsAny(text, "/?#@ \t\r\n\\\"'${}") || strings.HasPrefix(text, "-") {
		return "", fmt.Errorf("%q: write host or host:port", text)
	}
	if ip, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return net.JoinHostPort(ip.String(), "22"), nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		if strings.Contains(text, ":") {
			return "", fmt.Errorf("%q: write host or host:port", text)
		}
		return net.JoinHostPort(text, "22"), nil
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || host == "" {
		return "", fmt.Errorf("%q: the port is a number from 1 to 65535", text)
	}
	return text, nil
}

// hostKey is a pinned key of an sshd: its fingerprint, and the kind of key where that is known.
type hostKey struct{ fingerprint, kind string }

func parseHostKey(text string) (hostKey, error) {
	text = strings.TrimSpace(text)
	if b64, ok := strings.CutPrefix(text, "SHA256:"); ok {
		sum, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(b64, "="))
		if err != nil || len(sum) != sha256.Size {
			return hostKey{}, fmt.Errorf("%q is no SHA256:… fingerprint as ssh-keygen -lf prints it", text)
		}
		return hostKey{fingerprint: "SHA256:" + base64.RawStdEncoding.EncodeToString(sum)}, nil
	}
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	if err != nil || len(options) > 0 || len(rest) > 0 {
		return hostKey{}, fmt.Errorf("%.80q is neither SHA256:… nor a public key such as ssh-ed25519 AAAA…", text)
	}
	return hostKey{ssh.FingerprintSHA256(key), key.Type()}, nil
}

// parsePin reads the SHA-256 of a certificate, 64 hexadecimal digits, colons allowed.
func parsePin(text string) (string, error) {
	plain := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(text), ":", ""))
	if len(plain) != 2*sha256.Size || strings.Trim(plain, "0123456789abcdef") != "" {
		return "", fmt.Errorf("%q is no SHA-256 of a certificate: 64 hexadecimal digits, colons allowed", text)
	}
	return plain, nil
}

func (b BridgeSettings) parallel() int {
	if b.Parallel == 0 {
		return defaultParallel
	}
	return b.Parallel
}

// asksPath is where a bridge that is a service takes asks, and the header that carries the shared secret.
const (
	asksPath     = "/v1/asks"
	secretHeader = "X-Castellan-Bridge-Secret"
)

// SecretFiles lists the files of the settings that hold secrets.
func (s Settings) SecretFiles() []string {
	var out []string
	for _, b := range s.Bridges {
		for _, f := range []string{b.KeyFile, b.SecretFile, b.AccessIDFile, b.AccessSecretFile, b.RootSecretFile} {
			if f != "" {
				out = append(out, f)
			}
		}
	}
	return out
}
