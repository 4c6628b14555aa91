package proxmox

import (
	"encoding/base32"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"castellan/internal/gate"
)

// Each product's own form of a token.
func TestTokenHeaders(t *testing.T) {
	for kind, want := range map[string]string{
		"pve": "PVEAPIToken=root@pam!x=s3cret", "pbs": "PBSAPIToken=root@pam!x:s3cret", "pdm": "PDMAPIToken=root@pam!x:s3cret",
	} {
		for _, line := range []string{"root@pam!x=s3cret", "root@pam!x:s3cret\n", want} {
			f := newFake(t, func(int, seen) string { return ok("1") })
			c := newClient(t, Target{Name: "a", Kind: kind, Addresses: []string{f.addr}, TokenFile: "t", CAFile: "ca"}, files{"t": line, "ca": f.ca})
			if _, err := readOne(t, c, "GET /version", nil); err != nil {
				t.Fatal(err)
			}
			r := f.requests()[0]
			if got := r.header.Get("Authorization"); got != want || r.header.Get("Cookie") != "" {
				t.Errorf("%s with %q: sent %q, cookie %q", kind, line, got, r.header.Get("Cookie"))
			}
		}
	}
}

// A wrong secret costs one request, however many calls are made at once, and none until it has changed.
func TestWrongTokenNoBurst(t *testing.T) {
	var good atomic.Bool
	f := newFake(t, func(_ int, r seen) string {
		if good.Load() && strings.HasSuffix(r.header.Get("Authorization"), "=right") {
			return ok("1")
		}
		time.Sleep(50 * time.Millisecond)
		return raw("401 Authentication failed!", "", "")
	})
	set, secrets := tokenTarget(f)
	set.TokenFile, set.TokenID, set.SecretFile = "", "root@pam!full", "secret"
	secrets["secret"] = "00000000-0000"
	c := newClient(t, set, secrets)
	var all sync.WaitGroup
	var refused atomic.Int32
	for range 10 {
		all.Go(func() {
			_, err := c.Read(t.Context(), "", gate.Request{Product: "pve", Operation: "GET /version"})
			if u := asUpstream(err); u != nil && u.Auth && u.Status == 401 && strings.Contains(u.Hint, "wrong or old secret") {
				refused.Add(1)
			}
		})
	}
	all.Wait()
	if n := len(f.requests()); n != 1 || refused.Load() != 10 {
		t.Fatalf("%d requests were sent, %d of 10 calls were told", n, refused.Load())
	}
	_, fail := sendOne(t, c, opStart, onPVE3)
	if fail == nil || !fail.Auth || fail.Delivery != gate.NotCarriedOut || len(f.requests()) != 1 {
		t.Errorf("got %+v, %d requests", fail, len(f.requests()))
	}
	good.Store(true)
	secrets["secret"] = "right"
	if _, err := readOne(t, c, "GET /version", nil); err != nil {
		t.Errorf("the new secret is not tried: %v", err)
	}
}

// ticketServer logs in, and takes the newest ticket only.
type ticketServer struct {
	mu      sync.Mutex
	prefix  string // of cookie and ticket
	logins  int
	valid   string
	bodies  []url.Values
	refuse  bool
	factors string // challenge, "" = none
	reads   int
}

func (s *ticketServer) answer(_ int, r seen) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.line == "POST /api2/json/access/ticket" {
		form, _ := url.ParseQuery(r.body)
		s.bodies = append(s.bodies, form)
		s.logins++
		if s.refuse {
			return raw("401 authentication failure", jsonType, `{"data":null,"message":"authentication failure\n"}`)
		}
		if s.factors != "" && form.Get("tfa-challenge") == "" {
			return ok(`{"username":"root@pam","NeedTFA":1,"ticket":"` + s.prefix + `:!tfa!` + s.escaped() + `:6B0C1290::sig=="}`)
		}
		s.valid = fmt.Sprintf("%s:root@pam:%08X::c2ln+/%d==", s.prefix, s.logins, s.logins)
		return ok(fmt.Sprintf(`{"username":"root@pam","ticket":%q,"CSRFPreventionToken":"csrf-%d"}`, s.valid, s.logins))
	}
	s.reads++
	if s.valid == "" || r.header.Get("Cookie") != s.prefix+"AuthCookie="+url.QueryEscape(s.valid) {
		return raw("401 Authentication failed!", "", "")
	}
	if !strings.HasPrefix(r.line, "GET ") && r.header.Get("CSRFPreventionToken") != fmt.Sprintf("csrf-%d", s.logins) {
		return raw("401 Permission denied - invalid csrf token", "", "")
	}
	return ok(`"done"`)
}

// escaped writes the challenge as the products do: all of it, or its colons alone.
func (s *ticketServer) escaped() string {
	if s.factors == "ESC" {
		return `{\"totp\"%3Atrue}`
	}
	return url.QueryEscape(s.factors)
}

func (s *ticketServer) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.valid = ""
}

func ticketTarget(f *fake, kind string) (Target, files) {
	return Target{Name: "a", Kind: kind, Addresses: []string{f.addr}, User: "root@pam", PasswordFile: "pw", CAFile: "ca"}, files{"pw": "pässword & more\n", "ca": f.ca}
}

func TestTicketLogin(t *testing.T) {
	for kind, prefix := range map[string]string{"pve": "PVE", "pbs": "PBS", "pmg": "PMG", "pdm": "PDM"} {
		s := &ticketServer{prefix: prefix}
		f := newFake(t, s.answer)
		set, secrets := ticketTarget(f, kind)
		c := newClient(t, set, secrets)
		if _, err := readOne(t, c, "GET /version", nil); err != nil {
			t.Fatal(kind, err)
		}
		if _, fail := sendOne(t, c, "PUT /config/admin", map[string]any{"email": "a@b"}); fail != nil {
			t.Fatal(kind, fail)
		}
		if s.logins != 1 || s.bodies[0].Get("password") != "pässword & more" || s.bodies[0].Get("username") != "root@pam" {
			t.Errorf("%s: %d logins, %v", kind, s.logins, s.bodies)
		}
		if got := f.requests()[1].header.Get("Authorization"); got != "" {
			t.Errorf("%s: a token header %q", kind, got)
		}
	}
}

// An expired ticket and ten calls at once: one login, and all succeed.
func TestExpiredTicketSharedLogin(t *testing.T) {
	s := &ticketServer{prefix: "PMG"}
	f := newFake(t, s.answer)
	set, secrets := ticketTarget(f, "pmg")
	c := newClient(t, set, secrets)
	if _, err := readOne(t, c, "GET /version", nil); err != nil {
		t.Fatal(err)
	}
	s.expire()
	var all sync.WaitGroup
	errs := make(chan error, 10)
	for range 10 {
		all.Go(func() {
			_, err := c.Read(t.Context(), "", gate.Request{Product: "pmg", Operation: "GET /statistics/mail"})
			errs <- err
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if s.logins != 2 {
		t.Errorf("%d logins, want 2", s.logins)
	}
}

// A write with an expired ticket: one login, one more sending, and both are told.
func TestExpiredTicketWrite(t *testing.T) {
	s := &ticketServer{prefix: "PVE"}
	f := newFake(t, s.answer)
	set, secrets := ticketTarget(f, "pve")
	c := newClient(t, set, secrets)
	if _, err := readOne(t, c, "GET /version", nil); err != nil {
		t.Fatal(err)
	}
	s.expire()
	a, fail := sendOne(t, c, opStart, onPVE3)
	if fail != nil || string(a.Data) != `"done"` {
		t.Fatal(fail)
	}
	if len(a.Notes) != 1 || !strings.Contains(a.Notes[0], "401 Authentication failed!") || !strings.Contains(a.Notes[0], "once more") {
		t.Errorf("notes: %q", a.Notes)
	}
	writes := 0
	for _, r := range f.requests() {
		if strings.Contains(r.line, "status/start") {
			writes++
		}
	}
	if writes != 2 || s.logins != 2 {
		t.Errorf("%d sendings, %d logins", writes, s.logins)
	}
}

// Sent once more and then cut: nobody knows, and both sendings are told.
func TestExpiredTicketThenCut(t *testing.T) {
	s := &ticketServer{prefix: "PVE"}
	var writes atomic.Int32
	f := newFake(t, func(n int, r seen) string {
		if strings.Contains(r.line, "status/start") && writes.Add(1) == 2 {
			return ""
		}
		return s.answer(n, r)
	})
	set, secrets := ticketTarget(f, "pve")
	c := newClient(t, set, secrets)
	if _, err := readOne(t, c, "GET /version", nil); err != nil {
		t.Fatal(err)
	}
	s.expire()
	a, fail := sendOne(t, c, opStart, onPVE3)
	if fail == nil || fail.Delivery != gate.MaybeDone || len(a.Notes) != 1 || writes.Load() != 2 {
		t.Errorf("%+v, notes %q, %d sendings", fail, a.Notes, writes.Load())
	}
}

// The page of a proxy that wants a login of its own is no word on our ticket: nothing is sent once more.
func TestProxyLoginIsNoRefusedTicket(t *testing.T) {
	s := &ticketServer{prefix: "PVE"}
	f := newFake(t, func(n int, r seen) string {
		if strings.Contains(r.line, "status/start") {
			return raw("401 Authorization Required", "text/html", "<html><head><title>401 Authorization Required</title></head></html>")
		}
		return s.answer(n, r)
	})
	set, secrets := ticketTarget(f, "pve")
	a, fail := sendOne(t, newClient(t, set, secrets), opStart, onPVE3)
	if fail == nil || fail.Auth || fail.Delivery != gate.MaybeDone || s.logins != 1 || len(f.requests()) != 2 || len(a.Notes) != 0 {
		t.Errorf("%+v, notes %q, %d requests", fail, a.Notes, len(f.requests()))
	}
	if !strings.Contains(fail.Message, "401 Authorization Required") || !strings.Contains(fail.Hint, "headers") {
		t.Errorf("%q, %q", fail.Message, fail.Hint)
	}
}

// A server that refuses every new ticket is not asked for ever.
func TestTicketNeverTaken(t *testing.T) {
	s := &ticketServer{prefix: "PVE"}
	f := newFake(t, func(n int, r seen) string {
		if r.line == "POST /api2/json/access/ticket" {
			return s.answer(n, r)
		}
		return raw("401 Authentication failed!", "", "")
	})
	set, secrets := ticketTarget(f, "pve")
	_, fail := sendOne(t, newClient(t, set, secrets), opStart, onPVE3)
	if fail == nil || !fail.Auth || fail.Delivery != gate.NotCarriedOut {
		t.Fatalf("got %+v", fail)
	}
	if n := len(f.requests()); n != 4 || s.logins != 2 {
		t.Errorf("%d requests, %d logins", n, s.logins)
	}
}

func TestWrongPasswordOnce(t *testing.T) {
	s := &ticketServer{prefix: "PVE", refuse: true}
	f := newFake(t, s.answer)
	set, secrets := ticketTarget(f, "pve")
	c := newClient(t, set, secrets)
	for range 3 {
		_, err := readOne(t, c, "GET /version", nil)
		if u := failed(t, err); !u.Auth || !strings.Contains(u.Message, "authentication failure") || strings.Contains(err.Error()+u.Hint, "pässword") {
			t.Errorf("got %v", err)
		}
	}
	if n := len(f.requests()); n != 1 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestSecondFactor(t *testing.T) {
	secret := base32.StdEncoding.EncodeToString([]byte("12345678901234567890"))
	tests := []struct {
		name, factors string
		change        func(*Target, files)
		want          string // prefix of the second password; "" = refused
	}{
		{"totp", `{"totp":true,"recovery":[0,1]}`, func(s *Target, f files) { s.TOTPFile, f["totp"] = "totp", secret }, "totp:"},
		{"recovery, first unused", `{"recovery":[2,3]}`, func(s *Target, f files) { s.RecoveryFile, f["r"] = "r", "0: aaaa-1\n1: bbbb-2\n2: cccc-3\n3: dddd-4\n" }, "recovery:cccc-3"},
		{"recovery, bare lines", `{"recovery":[1]}`, func(s *Target, f files) { s.RecoveryFile, f["r"] = "r", "aaaa-1\nbbbb-2\n" }, "recovery:bbbb-2"},
		{"none left", `{"recovery":[]}`, func(s *Target, f files) { s.RecoveryFile, f["r"] = "r", "aaaa-1\n" }, ""},
		{"none configured", `{"totp":true}`, func(*Target, files) {}, ""},
		{"escaped by another product", "ESC", func(s *Target, f files) { s.TOTPFile, f["totp"] = "totp", secret }, "totp:"},
		{"key only", `{"webauthn":{"challenge":"x"}}`, func(s *Target, f files) { s.TOTPFile, f["totp"] = "totp", secret }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &ticketServer{prefix: "PVE", factors: tt.factors}
			f := newFake(t, s.answer)
			set, secrets := ticketTarget(f, "pve")
			tt.change(&set, secrets)
			_, err := readOne(t, newClient(t, set, secrets), "GET /version", nil)
			if tt.want == "" {
				if u := failed(t, err); !u.Auth || s.logins != 1 {
					t.Errorf("got %v after %d logins", err, s.logins)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			second := s.bodies[1]
			if !strings.HasPrefix(second.Get("password"), tt.want) || !strings.HasPrefix(second.Get("tfa-challenge"), "PVE:!tfa!") || second.Get("username") != "root@pam" {
				t.Errorf("answered %v", second)
			}
		})
	}
}

// The test vectors of RFC 6238.
func TestTOTP(t *testing.T) {
	seed := base32.StdEncoding.EncodeToString([]byte("12345678901234567890"))
	code, err := parseTOTP("otpauth://totp/x:y?digits=8&secret=" + strings.ToLower(seed))
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[int64]string{59: "94287082", 1111111109: "07081804", 1111111111: "14050471", 1234567890: "89005924", 2000000000: "69279037", 20000000000: "65353130"} {
		if got := code.code(code.step(time.Unix(at, 0))); got != want {
			t.Errorf("at %d: %s, want %s", at, got, want)
		}
	}
	for _, bad := range []string{"", "1!", "otpauth://hotp/x?secret=" + seed, "otpauth://totp/x?digits=99&secret=" + seed, "otpauth://totp/x?algorithm=MD5&secret=" + seed} {
		if _, err := parseTOTP(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// A datacenter manager gives its ticket as a cookie alone.
func TestTicketFromCookie(t *testing.T) {
	f := newFake(t, func(_ int, r seen) string {
		if strings.HasPrefix(r.line, "POST /api2/json/access/ticket") {
			body := `{"data":{"username":"root@pam","CSRFPreventionToken":"c1","ticket-info":"PDM:root@pam:1::"}}`
			return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nSet-Cookie: __Host-PDMAuthCookie=PDM%%3Aroot%%40pam%%3A1%%3A%%3Asig; Secure; HttpOnly; Path=/\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
		if r.header.Get("Cookie") != "__Host-PDMAuthCookie=PDM%3Aroot%40pam%3A1%3A%3Asig" {
			return raw("401 Unauthorized", "", "")
		}
		return ok("1")
	})
	set, secrets := ticketTarget(f, "pdm")
	if _, err := readOne(t, newClient(t, set, secrets), "GET /version", nil); err != nil {
		t.Fatal(err)
	}
}

// An old ticket is exchanged before it ends, without password and second factor.
func TestTicketRenewed(t *testing.T) {
	s := &ticketServer{prefix: "PVE"}
	f := newFake(t, s.answer)
	set, secrets := ticketTarget(f, "pve")
	var mu sync.Mutex
	now := time.Now()
	c, err := New(Config{Settings: Settings{Targets: []Target{set}}, Catalog: plainCatalog{}, Secrets: secrets.Open, ReadFile: secrets.Read, Clock: func() time.Time { mu.Lock(); defer mu.Unlock(); return now }})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := readOne(t, c, "GET /version", nil); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		now = now.Add(ticketRenew + time.Minute)
		mu.Unlock()
	}
	if s.logins != 2 || !strings.HasPrefix(s.bodies[1].Get("password"), "PVE:root@pam:") {
		t.Errorf("%d logins: %v", s.logins, s.bodies)
	}
}
