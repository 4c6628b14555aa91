package catalog

import (
	"slices"
	"sort"
	"strings"

	"castellan/internal/catalog/facts"
	"castellan/internal/regex"
)

// secretWord tells names that mean a credential in all four products; notSecret lists those that only look so.
var secretWord = &regex.Lazy{Expr: `(?i)(?:^|[-_.])(?:password|passwd|pass|bindpw|secret|token|apitoken|ticket|vncticket|otp|totp|hmac[-_]key|crypt_pass|keyring|cipassword)$|` +
	`(?:^|[-_])keys?$|(?:^|[-_])password[-_]hashed$|^tfa-challenge$|^otel-headers$`}

// notSecret are names that the rule above would take, with the reason why they are none.
var notSecret = map[string]string{
	"lock-token":               "shows who holds the lock on the SDN configuration, gives no access",
	"ssh-public-keys":          "public keys",
	"root-ssh-keys":            "public keys",
	"public_key":               "a public key",
	"config-keys":              "names of settings",
	"associated-key":           "names of keys",
	"active-encryption-key":    "the name of a key",
	"match.key":                "a field's name",
	"set.key":                  "a field's name",
	"proposal.assignments.key": "subscription keys inside a list of assignments, shown to who assigns them",
	"create-token":             "the name of a token to be made",
	"exit-action.key":          "a field's name",
	"pre-enrolled-keys":        "a switch",
	"ssh-public-host-keys":     "public keys",
	"decryption-keys":          "names of keys",
}

// secretHere are parameters that are secret in some operations only, by product and template ("" = all).
var secretHere = []struct{ product, path, param, why string }{
	{"", "/acme/plugins", "data", "holds the credentials of a DNS provider"},
	{"", "/access/tfa", "value", "the second factor itself"},
	{"", "/openid/login", "code", "can be exchanged for a login"},
	{"", "/oidc/login", "code", "can be exchanged for a login"},
	{"", "/notifications/endpoints/webhook", "secret.value", "the secret of a webhook"},
	{"", "/notifications/endpoints/webhook", "header.value", "headers carry credentials"},
	{"", "/notifications/endpoints/webhook", "secret", "the secret of a webhook"},
	{"pve", "/notifications/endpoints/webhook", "header", "headers carry credentials"},
	{"pve", "/access/users", "keys", "keys of a second factor"},
}

// leaf strips list marks and the index of a template: "secret[].value" becomes secret.value, "net[n]" net.
func leaf(template string) string {
	if strings.IndexByte(template, '[') < 0 { // almost always, and it is asked often
		return template
	}
	return strings.NewReplacer("[]", "", "[n]", "").Replace(template)
}

// isSecret tells whether a parameter ("password") or a key of a property string ("target-endpoint.apitoken") is
// secret as a whole.
func (op *Operation) isSecret(template string) bool {
	if known, ok := op.known.secret.Load(template); ok {
		return known.(bool)
	}
	secret := op.readSecret(template)
	if op.describes(template) { // what callers make up is not kept
		op.known.secret.Store(template, secret)
	}
	return secret
}

// describes tells whether a template is a parameter, or a key of one that is a property string.
func (op *Operation) describes(template string) bool {
	top, key, inner := strings.Cut(template, ".")
	s, ok := op.Facts.Params[top]
	if !ok || !inner {
		return ok
	}
	if s.Type == "array" && s.Items != nil {
		s = s.Items
	}
	p := op.properties(s)
	return p != nil && p.props[key] != nil
}

func (op *Operation) readSecret(template string) bool {
	name := leaf(template)
	for _, h := range secretHere {
		if h.param == name && (h.product == "" || h.product == op.Product) && strings.Contains(op.Path, h.path) {
			// Where the value is a property string, only its secret key is sealed.
			return !op.hasKeys(template)
		}
	}
	if notSecret[name] != "" || notSecretHere(op, name) {
		return false
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	if notSecret[last] != "" || !secretWord.MatchString(last) {
		return false
	}
	return !op.hasKeys(template)
}

// notSecretHere tells names that mean something else in one place.
func notSecretHere(op *Operation, name string) bool {
	switch {
	case strings.HasSuffix(op.Path, "/sendkey"): // who approves has to see what will be typed
		return name == "key"
	case op.Product == "pbs" && (op.Path == "/push" || op.Path == "/pull"):
		return name == "encryption-key" // the name of one
	}
	return false
}

// hasKeys tells whether a top-level parameter holds property strings with known keys.
func (op *Operation) hasKeys(template string) bool {
	s := op.Facts.Params[template]
	if s == nil {
		return false
	}
	if s.Type == "array" && s.Items != nil {
		s = s.Items
	}
	p := op.properties(s)
	return p != nil && !p.open
}

// hasSecretKey tells whether a parameter is a property string of which a key is secret.
func (op *Operation) hasSecretKey(template string) bool {
	s := op.Facts.Params[template]
	if s == nil {
		return false
	}
	if s.Type == "array" && s.Items != nil {
		s = s.Items
	}
	p := op.properties(s)
	if p == nil {
		return false
	}
	return slices.ContainsFunc(p.keys(), func(key string) bool { return op.isSecret(template + "." + key) })
}

// Secrets lists the parameters and property-string keys of an operation that hold secrets, sorted, by their names in
// the catalogue: "cipassword", "target-endpoint.apitoken". The slice must not be changed.
func (op *Operation) Secrets() []string { return keep(&op.known.secrets, op.readSecrets) }

func (op *Operation) readSecrets() []string {
	var out []string
	for name, s := range op.Facts.Params {
		if slices.Contains(op.Placeholders, name) {
			continue
		}
		if op.isSecret(name) && s.Type != "boolean" {
			out = append(out, name)
			continue
		}
		if s.Type == "array" && s.Items != nil {
			s = s.Items
		}
		if p := op.properties(s); p != nil {
			for _, key := range p.keys() {
				if op.isSecret(name+"."+key) && p.props[key].Alias == "" {
					out = append(out, name+"."+key)
				}
			}
		}
	}
	sort.Strings(out)
	return out
}

// SplitSecret finds the secret inside one value of a parameter, so that only that part is sealed: the value is
// before + secret + after. It answers false when the value holds none. A value that cannot be taken apart is secret
// as a whole.
func (op *Operation) SplitSecret(param, value string) (before, secret, after string, ok bool) {
	s, template, known := op.Schema(param)
	if !known || value == "" {
		return "", "", "", false
	}
	if op.isSecret(template) {
		if template == "secret" || template == "header" { // name=N,value=BASE64 where the product describes only a text
			if i := strings.Index(","+value, ",value="); i >= 0 {
				i += len("value=")
				end := len(value)
				if j := strings.IndexByte(value[i:], ','); j >= 0 {
					end = i + j
				}
				return value[:i], value[i:end], value[end:], true
			}
		}
		return "", value, "", s.Type != "boolean"
	}
	if proxyCredential(template) {
		return splitProxy(value)
	}
	if !op.hasSecretKey(template) {
		before, secret, after, ok = splitURL(value)
		if ok && op.runsText(template) && !plainPassword(secret) {
			return "", "", "", false
		}
		return before, secret, after, ok
	}
	if s.Type == "array" && s.Items != nil {
		s = s.Items
	}
	return op.splitKeys(op.properties(s), template, value)
}

// runsText tells parameters whose text is run, typed, or put where it may be run: whoever approves has to see all of it that
// could be code.
func (op *Operation) runsText(template string) bool {
	switch leaf(template) {
	case "command", "script", "input", "input-data", "content", "key", "args", "cmd", "cmd-opts", "entrypoint":
		return true
	}
	return false
}

// plainPassword says whether a text can be a password in an address and no piece of code beside: letters, digits, and signs
// that mean nothing to a shell.
func plainPassword(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._~%+,=:@", r))
	})
}

func (op *Operation) splitKeys(p *propSchema, template, value string) (before, secret, after string, ok bool) {
	props, prob := p.parse(value)
	if prob != nil {
		return "", value, "", true
	}
	from, to := len(value), 0
	for _, kv := range props {
		if !op.isSecret(template + "." + kv.Key) {
			continue
		}
		mark := kv.Key + "="
		i := strings.Index(","+value, ","+mark)
		if i < 0 || !strings.HasPrefix(value[i+len(mark):], kv.Value) {
			return "", value, "", true // quoted, or by another name: all of it
		}
		from, to = min(from, i+len(mark)), max(to, i+len(mark)+len(kv.Value))
	}
	if to == 0 {
		return "", "", "", false
	}
	return value[:from], value[from:to], value[to:], true // what lies between two secrets is sealed with them
}

func proxyCredential(template string) bool {
	return template == "http-proxy" || template == "http_proxy"
}

// splitURL finds the password of an address, wherever one may be given.
func splitURL(value string) (before, secret, after string, ok bool) {
	i := strings.Index(value, "://")
	if i <= 0 || strings.ContainsAny(value[:i], " \t\r\n/?#@") {
		return "", "", "", false
	}
	authority := value[i+3:]
	if end := strings.IndexAny(authority, "/?#"); end >= 0 {
		authority = authority[:end]
	}
	at, colon := strings.LastIndexByte(authority, '@'), strings.IndexByte(authority, ':')
	if at < 0 || colon < 0 || colon+1 >= at {
		return "", "", "", false
	}
	from, to := i+3+colon+1, i+3+at
	return value[:from], value[from:to], value[to:], true
}

// HoldsSecret says whether a value of a parameter, or of the field of that name in an answer, is a secret or has one in it.
func (op *Operation) HoldsSecret(param, value string) bool {
	if slices.Contains(op.Secrets(), param) {
		return true
	}
	if _, _, _, ok := op.SplitSecret(param, value); ok {
		return true
	}
	_, _, _, ok := splitURL(value)
	return ok
}

// splitProxy finds the password of a proxy address, http://user:password@host.
func splitProxy(value string) (before, secret, after string, ok bool) {
	at := strings.LastIndexByte(value, '@')
	if at < 0 {
		return "", "", "", false
	}
	start := 0
	if i := strings.Index(value[:at], "://"); i >= 0 {
		start = i + 3
	}
	if i := strings.IndexByte(value[start:at], ':'); i >= 0 {
		start += i + 1
	}
	return value[:start], value[start:at], value[at:], start < at
}

// wholeAnswer marks an answer that is secret from end to end.
const wholeAnswer = ""

// answerSecrets are fields of answers that are secret, by the end or the middle of a template. They come on top of
// those that the rules below find.
var answerSecrets = []struct {
	product, method, path string // path ends so, or holds it when it ends in a slash
	fields                []string
}{
	{"", "", "/access/ticket", []string{"ticket", "CSRFPreventionToken"}},
	{"", "", "/openid/login", []string{"ticket", "CSRFPreventionToken"}},
	{"", "", "/oidc/login", []string{"ticket", "CSRFPreventionToken"}},
	{"", "POST", "/token/{tokenid}", []string{"value", "secret"}},
	{"", "PUT", "/token/{tokenid}", []string{"value", "secret"}},
	{"", "POST", "/token/{token-name}", []string{"value", "secret"}},
	{"", "PUT", "/token/{token-name}", []string{"value", "secret"}},
	{"", "POST", "/access/tfa/{userid}", []string{"recovery", "challenge"}},
	{"", "", "/vncproxy", []string{"ticket", "password"}},
	{"", "", "/termproxy", []string{"ticket", "password"}},
	{"", "", "/spiceproxy", []string{"password", "proxyticket", "ticket"}},
	{"", "", "/vncshell", []string{"ticket", "password"}},
	{"", "", "/spiceshell", []string{"password", "ticket"}},
	{"", "", "/mtunnel", []string{"ticket"}},
	{"", "", "/acme/plugins", []string{"data"}},
	{"", "", "/acme/plugins/{id}", []string{"data"}},
	{"", "GET", "/subscription", []string{"key", "serverid"}},
	{"", "", "/notifications/endpoints/", []string{"token", "password", "secret", "header"}},
	{"pve", "GET", "/cloudinit/dump", []string{wholeAnswer}},
	{"pve", "GET", "/vzdump/extractconfig", []string{"cipassword"}},
	{"pve", "GET", "/access/domains/{realm}", []string{"client-key", "tfa", "password"}},
	{"pve", "GET", "/cluster/sdn/dns", []string{"key"}},
	{"pve", "GET", "/cluster/sdn/dns/{dns}", []string{"key"}},
	{"pve", "GET", "/cluster/sdn/ipams", []string{"token"}},
	{"pve", "GET", "/cluster/sdn/ipams/{ipam}", []string{"token"}},
	{"pve", "GET", "/cluster/metrics/server/{id}", []string{"token", "otel-headers"}},
	{"pve", "GET", "/access/users", []string{"keys"}},
	{"pve", "GET", "/access/users/{userid}", []string{"keys"}},
	{"pve", "GET", "/storage/{storage}", []string{"password", "keyring", "encryption-key"}},
	{"pve", "GET", "/storage", []string{"password", "keyring", "encryption-key"}},
	{"pmg", "GET", "/config/fetchmail", []string{"pass"}},
	{"pmg", "GET", "/config/fetchmail/{id}", []string{"pass"}},
	{"pmg", "GET", "/access/auth-realm/{realm}", []string{"client-key"}},
	{"pmg", "GET", "/access/users", []string{"crypt_pass", "keys"}},
	{"pmg", "GET", "/access/users/{userid}", []string{"crypt_pass", "keys"}},
	{"pmg", "GET", "/config/ldap/{profile}/config", []string{"bindpw"}},
	{"pmg", "GET", "/quarantine/link", []string{wholeAnswer}},
	{"pbs", "GET", "/config/access/openid", []string{"client-key"}},
	{"pbs", "GET", "/config/access/openid/{realm}", []string{"client-key"}},
	{"pbs", "GET", "/config/metrics/influxdb-http", []string{"token"}},
	{"pbs", "GET", "/config/metrics/influxdb-http/{name}", []string{"token"}},
	{"pdm", "GET", "/config/access/openid", []string{"client-key"}},
	{"pdm", "GET", "/config/access/openid/{realm}", []string{"client-key"}},
	{"pdm", "GET", "/auto-install/", []string{"root-password", "root-password-hashed", "subscription-key", "post-hook-token"}},
	{"pdm", "", "/auto-install/tokens", []string{"secret", "token"}},
	{"pdm", "", "/auto-install/tokens/{id}", []string{"secret", "token"}},
	{"pdm", "GET", "/subscriptions/", []string{"key"}},
	{"pdm", "GET", "/remotes/remote", []string{"token"}},
	{"pdm", "GET", "/remotes/remote/{id}", []string{"token"}},
	{"pdm", "GET", "/remotes/remote/{id}/config", []string{"token"}},
}

// SecretFields lists the named fields of an answer that are secret and have to be taken out before anybody sees it,
// at any depth; an empty name means the whole answer. It joins what the description of the answer says, what the
// writes of the same object mark secret, and a reviewed list. The slice must not be changed.
func (c *Catalog) SecretFields(op *Operation) []string {
	return keep(&op.known.fields, func() []string { return c.readSecretFields(op) })
}

func (c *Catalog) readSecretFields(op *Operation) []string {
	have := map[string]bool{}
	for _, a := range answerSecrets {
		if (a.product == "" || a.product == op.Product) && (a.method == "" || a.method == op.Method) &&
			(strings.HasSuffix(op.Path, a.path) || strings.HasSuffix(a.path, "/") && strings.Contains(op.Path+"/", a.path)) {
			for _, f := range a.fields {
				have[f] = true
			}
		}
	}
	returnedSecrets(op.Facts.Returns, 0, have)
	if op.Method == "GET" && !strings.Contains(op.Path, "/access/tfa") {
		parent := op.Path[:strings.LastIndexByte(op.Path, '/')]
		for _, id := range []string{"POST " + op.Path, "PUT " + op.Path, "POST " + parent, "PUT " + op.Path + "/{id}"} {
			if write, ok := c.Lookup(op.Product, id); ok {
				for _, s := range write.Secrets() {
					top, _, inner := strings.Cut(s, ".")
					if !inner || strings.HasSuffix(op.Path, "}") { // lists show such settings in short
						have[leaf(top)] = true
					}
				}
			}
		}
	}
	out := make([]string, 0, len(have))
	for f := range have {
		out = append(out, f)
	}
	sort.Strings(out)
	return out
}

func returnedSecrets(s *facts.Schema, depth int, have map[string]bool) {
	if s == nil || depth > maxDepth {
		return
	}
	for name, child := range s.Properties {
		plain := leaf(name)
		// A field called key is as often the name of a setting.
		if secretWord.MatchString(plain) && !strings.EqualFold(plain, "key") && notSecret[plain] == "" && child.Type != "boolean" && child.Type != "array" && child.Type != "object" {
			have[plain] = true
		}
		returnedSecrets(child, depth+1, have)
	}
	returnedSecrets(s.Items, depth+1, have)
}
