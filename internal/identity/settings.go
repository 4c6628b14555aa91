package identity

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"castellan/internal/gate"
)

// Settings say how people sign in: the part [identity] of the configuration. The zero value lets local accounts sign in
// with the defaults.
type Settings struct {
	// SessionIdle ends a session that was not used for so long; default 30m.
	SessionIdle Duration `toml:"session_idle"`
	// SessionLength ends every session this long after its sign-in; default 12h.
	SessionLength Duration `toml:"session_length"`
	// LockAfter failures within LockFor lock an account's password, or an address, for LockFor; default 5.
	LockAfter int `toml:"lock_after"`
	// LockFor is how long a lock-out lasts, and how far back failures count; default 15m.
	LockFor Duration `toml:"lock_for"`
	// PasswordMin is the least length of a new password in characters; default 12, at least 8.
	PasswordMin int `toml:"password_min"`
	// EnrolWait is how long a new passkey waits before it may approve; default 1h. The first of the installation does not wait.
	EnrolWait Duration `toml:"enrol_wait"`
	// PrivateHosts are hosts in private networks that sign-in may ask: "keycloak.lan". All others must have public addresses.
	PrivateHosts []string `toml:"private_hosts"`
	// OIDC are outside providers.
	OIDC []OIDCSettings `toml:"oidc"`
	// Realms are Proxmox realms whose users may sign in.
	Realms []RealmSettings `toml:"realm"`
	// Access accepts the assertions of Cloudflare Access.
	Access AccessSettings `toml:"access"`
}

// OIDCSettings is one outside provider.
type OIDCSettings struct {
	// Name is how accounts and pages call it: letters, digits, - and _.
	Name string `toml:"name"`
	// Issuer is its address: https, or http on loopback.
	Issuer string `toml:"issuer"`
	// ClientID that it knows castellan by.
	ClientID string `toml:"client_id"`
	// ClientSecretFile holds the client's secret (mode 0600); none for a public client.
	ClientSecretFile string `toml:"client_secret_file"`
	// Scopes to ask for beside openid; default email.
	Scopes []string `toml:"scopes"`
	// MapBy says which claim finds the account: "subject" (default) or "email", which must be verified.
	MapBy string `toml:"map_by"`
	// GroupsClaim names the claim that lists groups, Groups maps each to roles. With Groups set, a person has of the
	// account's roles only those that some group gives; a group never adds one.
	GroupsClaim string              `toml:"groups_claim"`
	Groups      map[string][]string `toml:"groups"`
}

// RealmSettings is one Proxmox realm.
type RealmSettings struct {
	// Name is how accounts and pages call it: letters, digits, - and _.
	Name string `toml:"name"`
	// Target is the configured target that checks the password.
	Target string `toml:"target"`
	// Realm there: pam, pve, or one of its own.
	Realm string `toml:"realm"`
}

// AccessSettings is a Cloudflare Access application in front of the console.
type AccessSettings struct {
	// Team is the team's domain: "example.cloudflareaccess.com". Empty accepts no assertions.
	Team string `toml:"team"`
	// Audience are the application's AUD tags.
	Audience []string `toml:"audience"`
	// MapBy says which claim finds the account: "email" (default) or "subject".
	MapBy string `toml:"map_by"`
}

// Duration is a time.Duration that settings write as "30m".
type Duration time.Duration

// UnmarshalText reads "30m", "12h".
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("read duration %q: write it as 30m or 12h", clip(string(text), 40))
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes it the same way.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d Duration) or(other time.Duration) Duration {
	if d == 0 {
		return Duration(other)
	}
	return d
}

func (s Settings) filled() Settings {
	s.SessionIdle = s.SessionIdle.or(30 * time.Minute)
	s.SessionLength = s.SessionLength.or(12 * time.Hour)
	s.LockFor = s.LockFor.or(15 * time.Minute)
	s.EnrolWait = s.EnrolWait.or(time.Hour)
	if s.LockAfter == 0 {
		s.LockAfter = 5
	}
	if s.PasswordMin == 0 {
		s.PasswordMin = 12
	}
	return s
}

// SettingsError names everything that is wrong with the settings, at once.
type SettingsError struct{ Problems []SettingsProblem }

// SettingsProblem is one wrong or missing key.
type SettingsProblem struct {
	Key     string // "oidc[0].issuer"
	Message string
}

func (e *SettingsError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.Key + ": " + p.Message
	}
	return "check identity settings: " + strings.Join(lines, "; ")
}

func (e *SettingsError) add(key, format string, args ...any) {
	e.Problems = append(e.Problems, SettingsProblem{Key: key, Message: fmt.Sprintf(format, args...)})
}

// Validate names everything missing or wrong, without opening a file or a connection; the error is a *SettingsError.
func (s Settings) Validate() error {
	e := &SettingsError{}
	between := func(key string, d Duration, least, most time.Duration) {
		if v := time.Duration(d); d != 0 && (v < least || v > most) {
			e.add(key, "%s is not between %s and %s", v, least, most)
		}
	}
	between("session_idle", s.SessionIdle, time.Minute, 7*24*time.Hour)
	between("session_length", s.SessionLength, time.Minute, 30*24*time.Hour)
	between("lock_for", s.LockFor, time.Minute, 24*time.Hour)
	between("enrol_wait", s.EnrolWait, time.Second, 30*24*time.Hour)
	if s.LockAfter < 0 || s.LockAfter > 100 {
		e.add("lock_after", "%d is not between 1 and 100", s.LockAfter)
	}
	if s.PasswordMin != 0 && (s.PasswordMin < 8 || s.PasswordMin > 128) {
		e.add("password_min", "%d is not between 8 and 128", s.PasswordMin)
	}
	for n, h := range s.PrivateHosts {
		if h == "" || strings.ContainsAny(h, "/:@ *") && !strings.HasPrefix(h, "[") {
			e.add(fmt.Sprintf("private_hosts[%d]", n), "%q is not a host name; give it without scheme and port", clip(h, 80))
		}
	}
	names := map[string]bool{}
	for n, o := range s.OIDC {
		o.validate(fmt.Sprintf("oidc[%d]", n), e)
		if names[o.Name] {
			e.add(fmt.Sprintf("oidc[%d].name", n), "%q is used twice", o.Name)
		}
		names[o.Name] = true
	}
	names = map[string]bool{}
	for n, r := range s.Realms {
		key := fmt.Sprintf("realm[%d]", n)
		if !isWord(r.Name) {
			e.add(key+".name", "give it a name of letters, digits, - and _")
		}
		if names[r.Name] {
			e.add(key+".name", "%q is used twice", r.Name)
		}
		names[r.Name] = true
		if !isWord(r.Target) {
			e.add(key+".target", "name the target that checks the password")
		}
		if !isWord(r.Realm) {
			e.add(key+".realm", "name the realm, for instance pam or pve")
		}
	}
	s.Access.validate("access", e)
	if len(e.Problems) > 0 {
		return e
	}
	return nil
}

func (o OIDCSettings) validate(key string, e *SettingsError) {
	if !isWord(o.Name) {
		e.add(key+".name", "give it a name of letters, digits, - and _")
	}
	if u, err := url.Parse(o.Issuer); err != nil || !safeURL(u) {
		e.add(key+".issuer", "%q is not an https address (http only on loopback)", clip(o.Issuer, 200))
	}
	if o.ClientID == "" {
		e.add(key+".client_id", "it is missing")
	}
	if o.MapBy != "" && o.MapBy != bySubject && o.MapBy != byEmail {
		e.add(key+".map_by", "%q is neither subject nor email", clip(o.MapBy, 40))
	}
	if len(o.Groups) > 0 && o.GroupsClaim == "" {
		e.add(key+".groups_claim", "name the claim that lists the groups")
	}
	for group, roles := range o.Groups {
		for _, r := range roles {
			if !isRole(r) {
				e.add(key+".groups."+clip(group, 40), "%q is not a role; the built-in ones are %s", clip(r, 40), strings.Join(gate.Roles(), ", "))
			}
		}
	}
}

func (a AccessSettings) validate(key string, e *SettingsError) {
	if a.Team == "" {
		if len(a.Audience) > 0 {
			e.add(key+".team", "name the team's domain, for instance example.cloudflareaccess.com")
		}
		return
	}
	if u, err := url.Parse("https://" + a.Team); err != nil || u.Host != a.Team || !strings.Contains(a.Team, ".") {
		e.add(key+".team", "%q is not a domain; give it without scheme and path", clip(a.Team, 80))
	}
	if len(a.Audience) == 0 {
		e.add(key+".audience", "give the application's AUD tag; without it any application of the team would do")
	}
	for n, tag := range a.Audience {
		if tag == "" {
			e.add(fmt.Sprintf("%s.audience[%d]", key, n), "it is empty")
		}
	}
	if a.MapBy != "" && a.MapBy != bySubject && a.MapBy != byEmail {
		e.add(key+".map_by", "%q is neither email nor subject", clip(a.MapBy, 40))
	}
}

// isWord: 1 to 64 letters, digits, -, _ and ., beginning with a letter or digit.
func isWord(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsAny(s[:1], "-_.") &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == ""
}

// isRole: 1 to 64 lower-case letters, digits, - and _.
func isRole(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}
