package catalog

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"castellan/internal/catalog/facts"
)

// soundsSecret is wider than the rule: what it takes must be secret, or a reviewed name that only sounds so.
var soundsSecret = regexp.MustCompile(`(?i)pass|secret|token|ticket|(?:^|[-_.])otp|totp|cred|hmac|keyring|keys?$|bindpw`)

// soundsOnly are the reviewed names that sound like a secret and are none, beyond those of the rules.
var soundsOnly = map[string]string{
	"tokenid":              "the name of a token",
	"token-name":           "the name of a token",
	"tokens":               "names of tokens",
	"authorized-tokens":    "names of tokens",
	"sshkeys":              "public keys",
	"master-pubkey":        "a public key",
	"hostrsapubkey":        "a public key",
	"rootrsapubkey":        "a public key",
	"certkey":              "the path of a file on the node",
	"keephugepages":        "a switch",
	"encrypt":              "the fingerprint of a key",
	"regenerate-secret":    "a switch",
	"no-key-sharing":       "a switch",
	"persistent_keepalive": "a number",
	"token-coefficient":    "a number",
	"include_tokens":       "a switch",
	"keyctl":               "a switch",
}

func TestEveryNameThatSoundsSecretIsDecided(t *testing.T) {
	c := open(t)
	undecided := map[string]bool{}
	eachSchema(c, func(op *Operation, template string, s *facts.Schema) {
		name := leaf(template)
		last := name[strings.LastIndexByte(name, '.')+1:]
		if !soundsSecret.MatchString(last) || slices.Contains(op.Placeholders, template) || s.Alias != "" {
			return
		}
		if op.isSecret(template) || op.hasSecretKey(template) || notSecret[name] != "" || notSecret[last] != "" || notSecretHere(op, name) || soundsOnly[last] != "" {
			return
		}
		if top, _, inner := strings.Cut(strings.TrimSuffix(template, "[]"), "."); inner && op.isSecret(top) || op.isSecret(strings.TrimSuffix(template, "[]")) {
			return
		}
		undecided[op.Product+" "+name+"  e.g. "+op.ID] = true
	})
	for u := range undecided {
		t.Error("neither secret nor a reviewed exception:", u)
	}
}

func TestSecrets(t *testing.T) {
	c := open(t)
	for _, tc := range []struct {
		product, id string
		want        []string
	}{
		{"pve", setVM, []string{"cipassword"}},
		{"pve", setCT, nil},
		{"pve", "POST /nodes/{node}/lxc", []string{"password"}},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/remote_migrate", []string{"target-endpoint.apitoken"}},
		{"pve", "POST /access/domains", []string{"client-key", "password", "tfa.key"}},
		{"pve", "PUT /nodes/{node}/qemu/{vmid}/sendkey", nil},
		{"pve", "PUT /cluster/acme/plugins/{id}", []string{"data"}},
		{"pbs", "POST /config/notifications/endpoints/webhook", []string{"header.value", "secret.value"}},
		{"pbs", "POST /push", nil},
		{"pbs", "POST /config/s3", []string{"access-key", "secret-key"}},
		{"pmg", "POST /config/fetchmail", []string{"pass"}},
		{"pdm", "POST /auto-install/prepared", []string{"root-password", "root-password-hashed", "subscription-key"}},
	} {
		if diff := cmp.Diff(tc.want, lookup(t, c, tc.product, tc.id).Secrets()); diff != "" {
			t.Errorf("%s: %s", tc.id, diff)
		}
	}
}

func TestSplitSecret(t *testing.T) {
	c := open(t)
	for _, tc := range []struct {
		product, id, param, value string
		before, secret, after     string
	}{
		{"pve", setVM, "cipassword", "geheim", "", "geheim", ""},
		{"pve", setVM, "description", "geheim", "", "", ""},
		{"pve", setVM, "net0", "virtio,bridge=vmbr0", "", "", ""},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/remote_migrate", "target-endpoint", "apitoken=PVEAPIToken=a@b!c=d-e,host=h,port=1",
			"apitoken=", "PVEAPIToken=a@b!c=d-e", ",host=h,port=1"},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/remote_migrate", "target-endpoint", "unreadable,,=x", "", "unreadable,,=x", ""},
		{"pbs", "POST /config/notifications/endpoints/webhook", "secret", "name=a,value=Zm9v", "name=a,value=", "Zm9v", ""},
		{"pve", "POST /cluster/notifications/endpoints/webhook", "secret", "name=a,value=Zm9v", "name=a,value=", "Zm9v", ""},
		{"pve", "POST /cluster/notifications/endpoints/webhook", "header", "whole", "", "whole", ""},
		{"pve", "PUT /cluster/options", "http_proxy", "http://u:p@proxy:3128", "http://u:", "p", "@proxy:3128"},
		{"pve", "PUT /cluster/options", "http_proxy", "http://proxy:3128", "", "", ""},
	} {
		before, secret, after, ok := lookup(t, c, tc.product, tc.id).SplitSecret(tc.param, tc.value)
		if before != tc.before || secret != tc.secret || after != tc.after || ok != (tc.secret != "") {
			t.Errorf("%s %s: %q %q %q %v", tc.param, tc.value, before, secret, after, ok)
		}
		if ok && before+secret+after != tc.value {
			t.Errorf("%s: the parts do not make the value", tc.param)
		}
	}
}

func TestSecretFields(t *testing.T) {
	c := open(t)
	for _, tc := range []struct {
		product, id string
		has, hasNot []string
	}{
		{"pve", "GET /access/domains/{realm}", []string{"client-key"}, nil},
		{"pve", "GET /cluster/sdn/dns/{dns}", []string{"key"}, nil},
		{"pve", "GET /cluster/sdn/ipams", []string{"token"}, nil},
		{"pve", "GET /cluster/acme/plugins", []string{"data"}, nil},
		{"pve", "GET /nodes/{node}/qemu/{vmid}/cloudinit/dump", []string{""}, nil},
		{"pve", "GET /nodes/{node}/qemu/{vmid}/pending", nil, []string{"key", "value"}},
		{"pve", "GET /cluster/resources", nil, []string{"key", "token", "ticket"}},
		{"pve", "GET /nodes/{node}/subscription", []string{"key"}, nil},
		{"pve", "POST /access/users/{userid}/token/{tokenid}", []string{"value"}, nil},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/vncproxy", []string{"ticket", "password"}, nil},
		{"pmg", "GET /config/fetchmail", []string{"pass"}, nil},
		{"pmg", "GET /access/auth-realm/{realm}", []string{"client-key"}, nil},
		{"pbs", "GET /config/access/openid/{realm}", []string{"client-key"}, nil},
		{"pdm", "GET /auto-install/prepared", []string{"root-password-hashed", "subscription-key"}, nil},
		{"pdm", "GET /auto-install/installations", []string{"post-hook-token"}, nil},
		{"pdm", "GET /subscriptions/keys", []string{"key"}, nil},
	} {
		got := c.SecretFields(lookup(t, c, tc.product, tc.id))
		for _, f := range tc.has {
			if !slices.Contains(got, f) {
				t.Errorf("%s: %q is not taken out of %v", tc.id, f, got)
			}
		}
		for _, f := range tc.hasNot {
			if slices.Contains(got, f) {
				t.Errorf("%s: %q is taken out", tc.id, f)
			}
		}
	}
}

func TestReviewedSecretNamesExist(t *testing.T) {
	c := open(t)
	names := map[string]bool{}
	eachSchema(c, func(op *Operation, template string, s *facts.Schema) {
		name := leaf(template)
		names[name] = true
		names[name[strings.LastIndexByte(name, '.')+1:]] = true
	})
	for name := range notSecret {
		if !names[name] {
			t.Errorf("%s is reviewed but nothing has that name", name)
		}
	}
	for name := range soundsOnly {
		if !names[name] {
			t.Errorf("%s is reviewed but nothing has that name", name)
		}
	}
	for _, h := range secretHere {
		found := slices.ContainsFunc(c.All(), func(op *Operation) bool {
			return (h.product == "" || h.product == op.Product) && strings.Contains(op.Path, h.path)
		})
		if !found {
			t.Errorf("no operation for %+v", h)
		}
	}
	for _, a := range answerSecrets {
		found := slices.ContainsFunc(c.All(), func(op *Operation) bool {
			return (a.product == "" || a.product == op.Product) && (strings.HasSuffix(op.Path, a.path) || strings.HasSuffix(a.path, "/") && strings.Contains(op.Path+"/", a.path))
		})
		if !found {
			t.Errorf("no operation for %+v", a)
		}
	}
}

// TestEverySecretIsFoundByItsName: where only the name of an argument is known, no secret of any operation is missed.
func TestEverySecretIsFoundByItsName(t *testing.T) {
	c, n := newTestCatalog(t), 0
	for _, p := range Products() {
		for _, op := range c.Operations(p) {
			for _, name := range op.Secrets() {
				n++
				last := leaf(name)
				last = last[strings.LastIndexByte(last, '.')+1:]
				if !c.Guide().SecretName(last) {
					t.Errorf("%s %s: %s is secret, but not by its name", p, op.ID, name)
				}
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d secrets", n)
	}
}
