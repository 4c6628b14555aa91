package identity_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"castellan/internal/identity"

	"github.com/pelletier/go-toml/v2"
)

func TestSettings(t *testing.T) {
	for _, tt := range []struct {
		text string
		keys []string // with problems
	}{
		{``, nil},
		{"session_idle = \"45m\"\nsession_length = \"8h\"\nlock_after = 3\nlock_for = \"1h\"\npassword_min = 16\nenrol_wait = \"10m\"\nprivate_hosts = [\"keycloak.lan\"]\n" +
			"[[oidc]]\nname = \"corp\"\nissuer = \"https://id.example/realms/x\"\nclient_id = \"c\"\nmap_by = \"email\"\ngroups_claim = \"g\"\ngroups = { ops = [\"operator\"] }\n" +
			"[[realm]]\nname = \"hosts\"\ntarget = \"lab\"\nrealm = \"pam\"\n[access]\nteam = \"t.cloudflareaccess.com\"\naudience = [\"a\"]\n", nil},
		{"session_idle = \"1s\"\nsession_length = \"9999h\"\nlock_for = \"1s\"\nenrol_wait = \"1ms\"\nlock_after = -1\npassword_min = 4", []string{"session_idle", "session_length", "lock_for", "enrol_wait", "lock_after", "password_min"}},
		{"private_hosts = [\"https://x\", \"\"]", []string{"private_hosts[0]", "private_hosts[1]"}},
		{"[[oidc]]\nname = \"a b\"\nissuer = \"http://id.example\"\nmap_by = \"name\"\ngroups = { x = [\"Root!\"] }", []string{"oidc[0].name", "oidc[0].issuer", "oidc[0].client_id", "oidc[0].map_by", "oidc[0].groups_claim", "oidc[0].groups.x"}},
		{"[[oidc]]\nname = \"a\"\nissuer = \"http://127.0.0.1:9\"\nclient_id = \"c\"\n[[oidc]]\nname = \"a\"\nissuer = \"https://x\"\nclient_id = \"c\"", []string{"oidc[1].name"}},
		{"[[realm]]\n[[realm]]\nname = \"x\"\ntarget = \"t\"\nrealm = \"a/b\"", []string{"realm[0].name", "realm[0].target", "realm[0].realm", "realm[1].realm"}},
		{"[access]\nteam = \"https://t.cloudflareaccess.com\"", []string{"access.team", "access.audience"}},
		{"[access]\naudience = [\"a\"]", []string{"access.team"}},
		{"[access]\nteam = \"t.example\"\naudience = [\"\"]\nmap_by = \"x\"", []string{"access.audience[0]", "access.map_by"}},
	} {
		var s identity.Settings
		if err := toml.NewDecoder(strings.NewReader(tt.text)).DisallowUnknownFields().Decode(&s); err != nil {
			t.Fatalf("%s: %v", tt.text, err)
		}
		err := s.Validate()
		var e *identity.SettingsError
		var keys []string
		if errors.As(err, &e) {
			for _, p := range e.Problems {
				keys = append(keys, p.Key)
				if !strings.Contains(err.Error(), p.Key) {
					t.Errorf("the error does not name %s", p.Key)
				}
			}
		}
		if !slices.Equal(keys, tt.keys) {
			t.Errorf("%q: %v", tt.text, err)
		}
	}
	var d identity.Duration
	if d.UnmarshalText([]byte("soon")) == nil {
		t.Error("a duration that is none was read")
	}
}

func TestSettingsCount(t *testing.T) {
	r := newRig(t, func(c *identity.Config) {
		c.Settings = identity.Settings{LockAfter: 2, LockFor: identity.Duration(time.Hour), SessionIdle: identity.Duration(5 * time.Minute), EnrolWait: identity.Duration(time.Minute), PasswordMin: 24}
	})
	r.account("ann", "approver")
	token := r.signIn("ann")
	r.wait(5 * time.Minute)
	_, err := r.Session(r.ctx, token)
	r.no(err, "nobody is signed in")
	_, err = r.AddAccount(r.ctx, root, identity.NewAccount{Name: "bob", Roles: []string{"viewer"}, Password: "not quite long enough"})
	r.no(err, "at least 24")
	r.enrol("ann")
	k := r.enrol("ann")
	r.wait(time.Minute + time.Second)
	c := challenge()
	_, err = r.Assertion(r.ctx, "ann", c, k.sign(c))
	r.ok(err)
	for range 2 {
		_, err = r.Password(r.ctx, "ann", "wrong", remote)
	}
	if locked(err) != time.Hour {
		t.Errorf("got %v", err)
	}
}

func TestPublicURL(t *testing.T) {
	for _, tt := range []struct{ url, says string }{
		{"https://castellan.example:8443", ""},
		{"https://CASTELLAN.example/", ""},
		{"http://localhost:8080", ""},
		{"https://192.0.2.1:8443", "ssh -L 8443:localhost:8443 USER@192.0.2.1"},
		{"https://[2001:db8::1]", "ssh -L 443:localhost:443"},
		{"http://castellan.example", "over https only"},
		{"http://127.0.0.1:8080", "localhost:8080"},
	} {
		r := newRig(t, func(c *identity.Config) { c.PublicURL = tt.url })
		err := r.PasskeyProblem()
		if tt.says == "" {
			r.ok(err)
			_, _, err = r.PasskeyStart(r.ctx)
			r.ok(err)
			continue
		}
		r.no(err, tt.says)
		_, _, err = r.PasskeyStart(r.ctx)
		r.no(err, tt.says)
		r.account("ann", "viewer")
		_, _, err = r.EnrolStart(r.ctx, r.signIn("ann"), "x")
		r.no(err, tt.says)
	}
}

func TestAllowedAddresses(t *testing.T) {
	for address, want := range map[string][2]bool{ // of any host, of one that the settings name
		"93.184.215.14:443":         {true, true},
		"[2606:4700::1]:443":        {true, true},
		"10.1.2.3:443":              {false, true},
		"192.168.1.1:443":           {false, true},
		"172.31.0.1:443":            {false, true},
		"100.64.0.1:443":            {false, true},
		"127.0.0.1:443":             {false, true},
		"[::1]:443":                 {false, true},
		"[fd00::1]:443":             {false, true},
		"[::ffff:10.0.0.1]:443":     {false, true},
		"[64:ff9b::a00:1]:443":      {false, true},
		"[2002:a00:1::]:443":        {false, true},
		"169.254.169.254:80":        {false, false},
		"[::ffff:169.254.1.1]:80":   {false, false},
		"[fe80::1%eth0]:443":        {false, false},
		"0.0.0.0:443":               {false, false},
		"[::]:443":                  {false, false},
		"224.0.0.1:443":             {false, false},
		"255.255.255.255:443":       {false, false},
		"[ff02::1]:443":             {false, false},
		"castellan.example:443":     {false, false},
		"[2001:db8::1]:443":         {false, true},
		"[2001:0:a00:1::]:443":      {false, true},
		"198.18.0.1:443":            {false, true},
		"[::ffff:93.184.215.14]:80": {true, true},
	} {
		for n, named := range []bool{false, true} {
			if err := identity.AllowedAddress("host", address, named); (err == nil) != want[n] {
				t.Errorf("%s, named %v: %v", address, named, err)
			}
		}
	}
}
