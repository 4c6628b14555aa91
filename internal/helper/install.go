package helper

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"castellan/internal/patch"
)

// InstallConfig is what a guest is told at enrolment.
type InstallConfig struct {
	PublicKey string       // castellan's for this guest alone, as ssh-keygen writes it
	From      string       // castellan's address as the guest sees it; several, or networks, are set apart by commas
	Automatic string       // what becomes of automatic updates: "keep" (empty), "off", "on"
	Account   string       // empty: Account
	Family    patch.Family // empty: APT
}

// Install is a script for sh that root runs in a guest. What it says on standard output is for ParseInstalled. Running it again
// replaces the key, the gate and the helper.
func Install(c InstallConfig) (string, error) {
	if c.Account == "" {
		c.Account = Account
	}
	if c.Account != Account {
		return "", fmt.Errorf("write script of enrolment: the account is called %s", Account)
	}
	if c.Family == "" {
		c.Family = patch.APT
	}
	if c.Automatic == "" {
		c.Automatic = "keep"
	}
	if !slices.Contains([]string{"keep", "off", "on"}, c.Automatic) {
		return "", fmt.Errorf("write script of enrolment: automatic updates are %.20q; keep, off or on can be", c.Automatic)
	}
	key, err := publicKey(c.PublicKey)
	if err != nil {
		return "", err
	}
	from, err := addresses(c.From)
	if err != nil {
		return "", err
	}
	text, err := Text(c.Family)
	if err != nil {
		return "", err
	}
	part := script("install_" + string(c.Family) + ".sh")
	if part == "" {
		return "", fmt.Errorf("write script of enrolment: there is none for the family %q", c.Family)
	}
	var words []string
	for _, w := range patch.Words() {
		words = append(words, string(w))
	}
	var b strings.Builder
	b.WriteString("#!/bin/sh\n")
	for _, v := range [][2]string{{"account", c.Account}, {"state", State}, {"automatic", c.Automatic}, {"words", strings.Join(words, " ")},
		{"address", strings.Split(strings.Split(from, ",")[0], "/")[0]},
		{"authorized", fmt.Sprintf(`restrict,from="%s",command="%s" %s castellan`, from, Gate, key)}} {
		fmt.Fprintf(&b, "%s='%s'\n", v[0], v[1]) // none of them can hold a quote
	}
	b.WriteString(script("install.sh") + "\n" + part + "\n")
	b.WriteString(writer("write_gate", Gate, GateText()))
	b.WriteString(writer("write_helper", Helper, text))
	b.WriteString("{\n\techo 'castellan 1 enrol' >&3\n\tenrol\n} 3>&1 >&2\n")
	return b.String(), nil
}

// writer is a function of shell that writes a file of root's.
func writer(name, path, text string) string {
	return fmt.Sprintf("\n%s() {\n\tput %s 755 <<'CASTELLAN-END-OF-FILE'\n%sCASTELLAN-END-OF-FILE\n}\n", name, path, text)
}

// Uninstall is a script for sh that takes away all that Install left, whatever the family.
func Uninstall() string {
	return "#!/bin/sh\n" + script("uninstall.sh") + "\n{\n\techo 'castellan 1 unenrol' >&3\n\tunenrol\n} 3>&1 >&2\n"
}

// Detect is a script for sh that changes nothing and says what the guest is, for ParseInstalled: which family to enrol it with.
func Detect() string {
	return `#!/bin/sh
echo 'castellan 1 detect'
(
	set +u
	ID= VERSION_ID= VERSION_CODENAME= PRETTY_NAME= PATH=/usr/sbin:/usr/bin:/sbin:/bin family=-
	[ -r /etc/os-release ] && . /etc/os-release
	for tool in apt-get:apt dnf:dnf pacman:pacman zypper:zypper apk:apk; do
		if command -v "${tool%:*}" >/dev/null 2>&1; then family=${tool#*:}; break; fi
	done
	printf 'system\t%s\t%s\t%s\t%s\t%s\n' "${ID:--}" "${VERSION_ID:--}" "${VERSION_CODENAME:--}" "$family" "${PRETTY_NAME:--}"
)
echo end
`
}

// publicKey is a key without options and comment.
func publicKey(text string) (string, error) {
	if len(text) > 8192 {
		return "", errors.New("read castellan's key: it is too long")
	}
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	if err != nil || len(options) > 0 || len(strings.TrimSpace(string(rest))) > 0 {
		return "", errors.New("read castellan's key: give one public key as ssh-keygen writes it, without options")
	}
	if !slices.Contains([]string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA}, key.Type()) {
		return "", fmt.Errorf("read castellan's key: a key of type %s is not taken", key.Type())
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), nil
}

// addresses are those that the key may come from, written anew.
func addresses(text string) (string, error) {
	var out []string
	for _, f := range strings.Split(text, ",") {
		if a, err := netip.ParseAddr(f); err == nil && a.Zone() == "" {
			out = append(out, a.Unmap().String())
		} else if p, err := netip.ParsePrefix(f); err == nil && p == p.Masked() {
			out = append(out, p.String())
		} else {
			return "", fmt.Errorf("read address of castellan: %.60q is no address and no network such as 192.0.2.0/24", f)
		}
	}
	if len(out) > 16 {
		return "", errors.New("read address of castellan: give at most 16")
	}
	return strings.Join(out, ","), nil
}
