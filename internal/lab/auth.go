package lab

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"castellan/internal/regex"
)

const (
	noTicket   = "No ticket"
	authFailed = "Authentication failed!"
	badCSRF    = "Permission denied - invalid csrf token"
	ticketLife = 2 * time.Hour
)

var tokenHeader = &regex.Lazy{Expr: `(?i)(?:^|\s)PVEAPIToken[= ](\S+)$`}

// authenticate finds out who asks. Operations open to the world need nobody.
func (s *state) authenticate(r *request, rel string) (caller, *failure) {
	world := isWorld(r.method, rel)
	refuse := func(msg string) (caller, *failure) {
		if world {
			return caller{}, nil
		}
		return caller{}, &failure{code: 401, msg: msg}
	}
	if c := cookie(r.header, "PVEAuthCookie"); c != "" {
		u, ok := s.verifyTicket(unescape(c))
		if !ok {
			return refuse(authFailed)
		}
		if r.method != "GET" && !world && !s.verifyCSRF(u, r.header.Get("CSRFPreventionToken")) && !isUpload(r) {
			return refuse(badCSRF)
		}
		return caller{user: u}, nil
	}
	h := r.header.Get("Authorization")
	m := tokenHeader.FindStringSubmatch(h)
	if m == nil {
		return refuse(noTicket)
	}
	id, secret, ok := cutLast(m[1], "=")
	userid, name := splitToken(id)
	u := s.users[userid]
	if !ok || u == nil || name == "" || u.tokens[name] == nil || secret == "" {
		return refuse(authFailed)
	}
	t := u.tokens[name]
	if !s.active(u) || t.expire != 0 && t.expire <= s.now.Unix() || subtle.ConstantTimeCompare([]byte(t.secret), []byte(secret)) != 1 {
		return refuse(authFailed)
	}
	return caller{user: userid, token: id}, nil
}

func (s *state) active(u *user) bool {
	return u.enable && (u.expire == 0 || u.expire > s.now.Unix())
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func isUpload(r *request) bool {
	return strings.HasPrefix(r.header.Get("Content-Type"), "multipart/form-data")
}

func isWorld(method, rel string) bool {
	switch method + " " + strings.TrimSuffix(rel, "/") {
	case "GET /access/domains", "GET /access/ticket", "POST /access/ticket", "POST /access/openid/auth-url", "POST /access/openid/login", "POST /access/vncticket":
		return true
	}
	return false
}

func cookie(h http.Header, name string) string {
	for _, line := range h.Values("Cookie") {
		for _, part := range strings.Split(line, ";") {
			if k, v, ok := strings.Cut(strings.TrimSpace(part), "="); ok && k == name {
				return v
			}
		}
	}
	return ""
}

func (s *state) sign(text string) string {
	m := hmac.New(sha256.New, s.ticketKey)
	m.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(m.Sum(nil))
}

// ticketFor makes a ticket in the genuine form PVE:user:HEXTIME::signature.
func (s *state) ticketFor(prefix, userid string) string {
	plain := fmt.Sprintf("%s:%s:%08X", prefix, userid, s.now.Unix())
	return plain + "::" + s.sign(plain)
}

func (s *state) verifyTicket(t string) (string, bool) {
	plain, sig, ok := strings.Cut(t, "::")
	if !ok || !strings.HasPrefix(plain, "PVE:") || strings.Contains(plain, "!tfa!") || subtle.ConstantTimeCompare([]byte(s.sign(plain)), []byte(sig)) != 1 {
		return "", false
	}
	parts := strings.Split(plain, ":")
	if len(parts) != 3 || !s.fresh(parts[2]) {
		return "", false
	}
	u := s.users[parts[1]]
	return parts[1], u != nil && s.active(u)
}

func (s *state) fresh(hexTime string) bool {
	var at int64
	if _, err := fmt.Sscanf(hexTime, "%X", &at); err != nil {
		return false
	}
	age := s.now.Sub(time.Unix(at, 0))
	return age > -5*time.Minute && age < ticketLife
}

func (s *state) csrfFor(userid string) string {
	at := fmt.Sprintf("%08X", s.now.Unix())
	return at + ":" + strings.TrimRight(s.sign("csrf:"+at+":"+userid), "=")
}

func (s *state) verifyCSRF(userid, tok string) bool {
	at, _, ok := strings.Cut(tok, ":")
	if !ok || !s.fresh(at) {
		return false
	}
	want := at + ":" + strings.TrimRight(s.sign("csrf:"+at+":"+userid), "=")
	return subtle.ConstantTimeCompare([]byte(want), []byte(tok)) == 1
}

// login is POST /access/ticket.
func login(c *call) (any, error) {
	name, realm := c.str("username"), c.str("realm")
	if realm != "" && !strings.HasSuffix(name, "@"+realm) {
		name += "@" + realm
	}
	fail := &failure{code: 401, msg: "authentication failure", delay: authDelay}
	u := c.s.users[name]
	if u == nil || !c.s.active(u) {
		return nil, fail
	}
	pass := c.str("password")
	if challenge := c.str("tfa-challenge"); challenge != "" {
		if !c.s.secondFactor(u, challenge, pass) {
			return nil, fail
		}
		return c.ticketAnswer(u), nil
	}
	if t, ok := c.s.verifyTicket(pass); ok && t == name {
		return c.ticketAnswer(u), nil
	}
	if u.password == "" || subtle.ConstantTimeCompare([]byte(u.password), []byte(pass)) != 1 {
		return nil, fail
	}
	if path := c.str("path"); path != "" {
		if c.s.mayAny(name, normalizePath(path), splitList(c.str("privs"))...) {
			return M{"username": name}, nil
		}
		return nil, fail
	}
	if u.totp != "" {
		ways := `{"totp":true}`
		if len(u.tfa) > 0 {
			ways = `{"recovery":"available","totp":true}`
		}
		plain := fmt.Sprintf("PVE:!tfa!%s:%08X", url.QueryEscape(ways), c.s.now.Unix())
		ticket := plain + "::" + c.s.sign(plain+":"+name)
		return M{"username": name, "ticket": ticket, "NeedTFA": 1, "CSRFPreventionToken": c.s.csrfFor(name)}, nil
	}
	return c.ticketAnswer(u), nil
}

func (c *call) ticketAnswer(u *user) any {
	out := M{"username": u.id, "ticket": c.s.ticketFor("PVE", u.id), "CSRFPreventionToken": c.s.csrfFor(u.id), "cap": c.s.capabilities(u.id)}
	if c.s.may(u.id, "/", "Sys.Audit") && c.s.cluster != "" {
		out["clustername"] = c.s.cluster
	}
	return out
}

// capabilities are what the web interface asks of a login.
func (s *state) capabilities(id string) M {
	out := M{"vms": M{}, "storage": M{}, "access": M{}, "nodes": M{}, "dc": M{}, "sdn": M{}, "mapping": M{}}
	add := func(area, path, prefix string) {
		into, _ := out[area].(M)
		for p := range s.perms(id, path) {
			if strings.HasPrefix(p, prefix) {
				into[p] = 1
			}
		}
	}
	add("vms", "/vms", "VM.")
	add("vms", "/vms", "Permissions.")
	add("storage", "/storage", "Datastore.")
	add("storage", "/storage", "Permissions.")
	for _, p := range []string{"User.", "Group.", "Permissions.", "Realm."} {
		add("access", "/access", p)
	}
	add("nodes", "/nodes", "Sys.")
	add("nodes", "/nodes", "Permissions.")
	add("dc", "/", "Sys.")
	add("dc", "/", "SDN.")
	add("sdn", "/sdn", "SDN.")
	add("sdn", "/sdn", "Permissions.")
	add("mapping", "/mapping", "Mapping.")
	add("mapping", "/mapping", "Permissions.")
	return out
}

// secondFactor checks a TOTP or recovery code against the challenge ticket; a recovery code works once.
func (s *state) secondFactor(u *user, challenge, answer string) bool {
	plain, sig, ok := strings.Cut(challenge, "::")
	if !ok || subtle.ConstantTimeCompare([]byte(s.sign(plain+":"+u.id)), []byte(sig)) != 1 || !strings.HasPrefix(plain, "PVE:!tfa!") {
		return false
	}
	kind, code, _ := strings.Cut(answer, ":")
	switch kind {
	case "totp":
		for _, step := range []int64{-1, 0, 1} {
			if totpCode(u.totp, s.now.Unix()/30+step) == code {
				return true
			}
		}
	case "recovery":
		for _, e := range u.tfa {
			if e.kind == "recovery" && e.codes[code] {
				delete(e.codes, code)
				return true
			}
		}
	}
	return false
}

// totpCode is RFC 6238 with SHA-1, six digits; the secret is hex.
func totpCode(secret string, counter int64) string {
	key, err := hex.DecodeString(secret)
	if err != nil {
		return ""
	}
	var msg [8]byte
	binary.BigEndian.PutUint64(msg[:], uint64(counter))
	m := hmac.New(sha1.New, key)
	m.Write(msg[:])
	sum := m.Sum(nil)
	o := sum[len(sum)-1] & 15
	n := binary.BigEndian.Uint32(sum[o:o+4]) & 0x7fffffff
	return fmt.Sprintf("%06d", n%1000000)
}
