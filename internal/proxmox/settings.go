package proxmox

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"castellan/internal/regex"
)

// Settings lists the targets: the remotes that can be named in a call.
type Settings struct {
	Targets []Target `toml:"target"`
}

// Target is one remote of one product. Several addresses reach the same cluster: reads fail over from one to the
// next, a write stays with its address. It logs in by API token (token_file, or token_id with secret_file) or with
// a password (user, password_file). The server's certificate is always verified: by pins, else by the
// certificates of ca_file, else by the system's roots.
type Target struct {
	Name      string   `toml:"name"`      // how calls name it: letters, digits, - and _
	Kind      string   `toml:"kind"`      // pve, pbs, pmg or pdm
	Addresses []string `toml:"addresses"` // host or host:port

	TokenFile    string `toml:"token_file"`    // one line: USER@REALM!ID=SECRET
	TokenID      string `toml:"token_id"`      // USER@REALM!ID, or ID beside user; with secret_file
	SecretFile   string `toml:"secret_file"`   // the token's secret
	User         string `toml:"user"`          // USER@REALM
	PasswordFile string `toml:"password_file"` // the user's password
	TOTPFile     string `toml:"totp_file"`     // second factor: base32 secret or otpauth:// address
	RecoveryFile string `toml:"recovery_file"` // second factor: recovery codes, one a line, in the order they were given

	CAFile     string   `toml:"ca_file"`     // PEM certificates that may have signed the server's, or are it
	Pins       []string `toml:"pins"`        // SHA-256 of the server's certificate, its public key, or its CA's certificate
	ServerName string   `toml:"server_name"` // the name to expect in the certificate, where it is not the address

	Headers map[string]string `toml:"headers"` // extra request headers: name = file that holds the value
	Nodes   map[string]string `toml:"nodes"`   // node name = the address that is this node itself; learned where not given

	ConnectTimeout Duration `toml:"connect_timeout"` // for connecting and TLS; default 5s
	ReadTimeout    Duration `toml:"read_timeout"`    // for a whole read; default 40s (the server gives up after 30s)
	WriteTimeout   Duration `toml:"write_timeout"`   // for a whole write; default 60s
}

// Duration is a time.Duration that settings write as "5s".
type Duration time.Duration

// UnmarshalText reads "5s", "2m30s".
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("read duration %q: write it as 5s or 2m", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes it the same way.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d Duration) or(fallback time.Duration) time.Duration {
	if d == 0 {
		return fallback
	}
	return time.Duration(d)
}

// SettingsError names everything that is wrong with the settings, at once.
type SettingsError struct {
	Problems []SettingsProblem
}

// SettingsProblem is one wrong or missing key.
type SettingsProblem struct {
	Key     string // "target[0].pins[1]"
	Message string
}

func (e *SettingsError) Error() string {
	var b strings.Builder
	b.WriteString("check targets: ")
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s: %s", p.Key, p.Message)
	}
	return b.String()
}

func (e *SettingsError) add(key, format string, args ...any) {
	e.Problems = append(e.Problems, SettingsProblem{Key: key, Message: fmt.Sprintf(format, args...)})
}

func (e *SettingsError) orNil() error {
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}

const (
	kindPVE = "pve"
	kindPBS = "pbs"
	kindPMG = "pmg"
	kindPDM = "pdm"
)

var kinds = []string{kindPVE, kindPBS, kindPMG, kindPDM}

func defaultPort(kind string) string {
	switch kind {
	case kindPBS:
		return "8007"
	case kindPDM:
		return "8443"
	}
	return "8006"
}

// Validate names everything missing or wrong without opening a file or a connection.
func (s Settings) Validate() error {
	problems := &SettingsError{}
	seen := map[string]bool{}
	for i, t := range s.Targets {
		key := fmt.Sprintf("target[%d]", i)
		t.validate(key, problems)
		if t.Name != "" && seen[t.Name] {
			problems.add(key+".name", "%q is used twice; every target needs a name of its own", t.Name)
		}
		seen[t.Name] = true
	}
	return problems.orNil()
}

// isTargetName says whether a name holds at most 64 letters, digits, - and _, beginning with a letter or digit.
func isTargetName(s string) bool {
	return s != "" && len(s) <= 64 && s[0] != '-' && s[0] != '_' &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

func (t Target) validate(key string, p *SettingsError) {
	switch {
	case t.Name == "":
		p.add(key+".name", "missing; it is how calls name this target")
	case !isTargetName(t.Name):
		p.add(key+".name", "%q: use letters, digits, - and _ only", t.Name)
	}
	switch {
	case t.Kind == "":
		p.add(key+".kind", "missing; one of %s", strings.Join(kinds, ", "))
	case !slices.Contains(kinds, t.Kind):
		p.add(key+".kind", "%q is none of %s", t.Kind, strings.Join(kinds, ", "))
	}
	if len(t.Addresses) == 0 {
		p.add(key+".addresses", "missing; a list of host or host:port")
	}
	for i, a := range t.Addresses {
		if _, err := address(t.Kind, a); err != nil {
			p.add(fmt.Sprintf("%s.addresses[%d]", key, i), "%v", err)
		}
	}
	t.validateLogin(key, p)
	for i, text := range t.Pins {
		if _, err := parsePin(text); err != nil {
			p.add(fmt.Sprintf("%s.pins[%d]", key, i), "%v", err)
		}
	}
	for name := range t.Headers {
		if err := headerName(name); err != nil {
			p.add(key+".headers."+name, "%v", err)
		} else if t.Headers[name] == "" {
			p.add(key+".headers."+name, "empty; name the file that holds the value")
		}
	}
	for node, a := range t.Nodes {
		full, err := address(t.Kind, a)
		if err != nil {
			p.add(key+".nodes."+node, "%v", err)
		} else if !slices.Contains(t.hosts(), full) {
			p.add(key+".nodes."+node, "%q is none of this target's addresses", a)
		}
	}
	for k, d := range map[string]Duration{"connect_timeout": t.ConnectTimeout, "read_timeout": t.ReadTimeout, "write_timeout": t.WriteTimeout} {
		if d < 0 {
			p.add(key+"."+k, "%s is negative", time.Duration(d))
		}
	}
	t.validateExpanded(key, p)
	slices.SortStableFunc(p.Problems, func(a, b SettingsProblem) int { return strings.Compare(a.Key, b.Key) })
}

// validateExpanded refuses what looks like a variable that nobody filled in.
func (t Target) validateExpanded(key string, p *SettingsError) {
	for k, v := range map[string]string{"token_file": t.TokenFile, "token_id": t.TokenID, "secret_file": t.SecretFile, "user": t.User,
		"password_file": t.PasswordFile, "totp_file": t.TOTPFile, "recovery_file": t.RecoveryFile, "ca_file": t.CAFile, "server_name": t.ServerName} {
		if strings.Contains(v, "${") {
			p.add(key+"."+k, "holds %q, a variable that was not filled in", v)
		}
	}
}

func (t Target) validateLogin(key string, p *SettingsError) {
	token := t.TokenFile != "" || t.TokenID != "" || t.SecretFile != ""
	password := t.PasswordFile != "" || t.TOTPFile != "" || t.RecoveryFile != ""
	switch {
	case !token && !password:
		p.add(key, "no login: give token_file, or token_id with secret_file, or user with password_file")
	case token && password:
		p.add(key, "two logins: give either a token (token_file, token_id, secret_file) or a password (user, password_file), not both")
	case token && t.Kind == kindPMG:
		p.add(key, "a mail gateway has no API tokens: give user and password_file")
	case token:
		t.validateToken(key, p)
	default:
		if t.User == "" {
			p.add(key+".user", "missing beside password_file; USER@REALM")
		} else if !userForm.MatchString(t.User) {
			p.add(key+".user", "%q is not USER@REALM", t.User)
		}
		if t.PasswordFile == "" {
			p.add(key+".password_file", "missing beside user")
		}
	}
}

func (t Target) validateToken(key string, p *SettingsError) {
	if t.TokenFile != "" {
		if t.TokenID != "" || t.SecretFile != "" {
			p.add(key+".token_file", "holds id and secret both: leave token_id and secret_file out, or use these two instead")
		}
		return
	}
	switch {
	case t.TokenID == "":
		p.add(key+".token_id", "missing beside secret_file; USER@REALM!ID")
	default:
		if _, err := t.fullTokenID(); err != nil {
			p.add(key+".token_id", "%v", err)
		}
	}
	if t.SecretFile == "" {
		p.add(key+".secret_file", "missing beside token_id; the file that holds the token's secret")
	}
}

var (
	userForm      = &regex.Lazy{Expr: `^[^\s:/!]+@[A-Za-z][A-Za-z0-9._-]*$`}
	tokenNameForm = &regex.Lazy{Expr: `^[A-Za-z][A-Za-z0-9._-]*$`}
	tokenLine     = &regex.Lazy{Expr: `^(?:Authorization:\s*)?(?:P(?:VE|BS|DM)APIToken[= ]\s*)?([^\s:/!]+@[A-Za-z][A-Za-z0-9._-]*![A-Za-z][A-Za-z0-9._-]*)[=:](\S+)$`}
	headerForm    = &regex.Lazy{Expr: "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"}
)

// fullTokenID joins user and token name; either may stand in token_id alone.
func (t Target) fullTokenID() (string, error) {
	user, id, both := strings.Cut(t.TokenID, "!")
	switch {
	case both && !userForm.MatchString(user):
		return "", fmt.Errorf("%q: what stands before the ! is not USER@REALM", t.TokenID)
	case both && t.User != "" && t.User != user:
		return "", fmt.Errorf("%q belongs to another user than user = %q", t.TokenID, t.User)
	case !both && t.User == "":
		return "", fmt.Errorf("%q has no user part: write USER@REALM!%s, or give user = \"USER@REALM\" beside it", t.TokenID, t.TokenID)
	case !both && !userForm.MatchString(t.User):
		return "", fmt.Errorf("user = %q is not USER@REALM", t.User)
	case !both:
		user, id = t.User, t.TokenID
	}
	if !tokenNameForm.MatchString(id) {
		return "", fmt.Errorf("%q: the token's name holds letters, digits, . - _ and starts with a letter", t.TokenID)
	}
	return user + "!" + id, nil
}

// parseToken splits one line USER@REALM!ID=SECRET; a colon before the secret and the header's prefix are taken too.
func parseToken(line string) (id, secret string, err error) {
	m := tokenLine.FindStringSubmatch(strings.TrimSpace(line))
	if m == nil {
		return "", "", fmt.Errorf("it does not hold one line of the form USER@REALM!ID=SECRET")
	}
	return m[1], m[2], nil
}

// address gives host:port, with the product's own port where none is named.
func address(kind, text string) (string, error) {
	host := strings.TrimSuffix(strings.TrimPrefix(text, "https://"), "/")
	if host == "" {
		return "", fmt.Errorf("empty; write host or host:port")
	}
	if strings.Contains(host, "://") || strings.ContainsAny(host, "/?#@% \t\r\n\\\"'${}") {
		return "", fmt.Errorf("%q: write host or host:port; the connection is always https", text)
	}
	if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return net.JoinHostPort(ip.String(), defaultPort(kind)), nil
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		if strings.Contains(host, ":") {
			return "", fmt.Errorf("%q: write host or host:port", text)
		}
		return net.JoinHostPort(strings.ToLower(host), defaultPort(kind)), nil
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || name == "" {
		return "", fmt.Errorf("%q: the port is a number from 1 to 65535", text)
	}
	return net.JoinHostPort(strings.ToLower(name), port), nil
}

// hosts lists the addresses in their full form, the wrong ones left out.
func (t Target) hosts() []string {
	var out []string
	for _, a := range t.Addresses {
		if full, err := address(t.Kind, a); err == nil && !slices.Contains(out, full) {
			out = append(out, full)
		}
	}
	return out
}

// headerName refuses headers that would change what is asked, as whom, or how the message ends.
func headerName(name string) error {
	if !headerForm.MatchString(name) {
		return fmt.Errorf("%q is not the name of a header", name)
	}
	taken := []string{"authorization", "cookie", "csrfpreventiontoken", "host", "content-length", "content-type", "content-encoding",
		"transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "expect", "accept-encoding", "idempotency-key",
		"x-idempotency-key", "proxy-connection", "x-http-method-override"}
	if slices.Contains(taken, strings.ToLower(name)) {
		return fmt.Errorf("%s is set by castellan itself", name)
	}
	return nil
}

// pin is the SHA-256 of a certificate or of a public key.
type pin struct {
	sum  [32]byte
	only string // "cert", "key", "ca", or "" for any of them
}

// parsePin reads 64 hexadecimal digits (colons allowed) or base64 after "sha256/"; "cert:", "key:" or "ca:" before
// it says what it is the sum of.
func parsePin(text string) (pin, error) {
	var p pin
	rest := strings.TrimSpace(text)
	if sum, err := hex.DecodeString(strings.ReplaceAll(rest, ":", "")); err == nil && len(sum) == len(p.sum) {
		copy(p.sum[:], sum) // a sum may itself begin with CA:
		return p, nil
	}
	for prefix, only := range map[string]string{"cert:": "cert", "key:": "key", "spki:": "key", "ca:": "ca"} {
		if len(rest) >= len(prefix) && strings.EqualFold(rest[:len(prefix)], prefix) {
			p.only, rest = only, rest[len(prefix):]
			break
		}
	}
	var sum []byte
	var err error
	if b, ok := strings.CutPrefix(rest, "sha256/"); ok {
		sum, err = base64.StdEncoding.DecodeString(b)
	} else {
		if len(rest) > 7 && strings.EqualFold(rest[:7], "sha256:") {
			rest = rest[7:]
		}
		sum, err = hex.DecodeString(strings.ReplaceAll(rest, ":", ""))
	}
	if err != nil || len(sum) != len(p.sum) {
		return pin{}, fmt.Errorf("%q is not a SHA-256: 64 hexadecimal digits (colons allowed) or sha256/ and base64", text)
	}
	copy(p.sum[:], sum)
	return p, nil
}
