package proxmox

import (
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
)

func failed(t *testing.T, err error) *gate.UpstreamError {
	t.Helper()
	var u *gate.UpstreamError
	if !errors.As(err, &u) {
		t.Fatalf("no UpstreamError: %v", err)
	}
	return u
}

func TestReadShapes(t *testing.T) {
	tests := []struct {
		name, answer, want, sibling string
	}{
		{"object", ok(`{"cores":1}`), `{"cores":1}`, ""},
		{"null", ok(`null`), `null`, ""},
		{"total after data", raw("200 OK", jsonType, `{"data":[{"n":1}],"total":77}`), `[{"n":1}]`, `77`},
		{"total before data, blanks", raw("200 OK", jsonType, " { \"total\" : 77 ,\n\"data\" : [ 1 , \"}\\\"]\" ] } "), `[ 1 , "}\"]" ]`, `77`},
		{"exact numbers", ok(`[1.125899906842624e+15,42268934144,9223372036854775807,0.30000000000000004]`), `[1.125899906842624e+15,42268934144,9223372036854775807,0.30000000000000004]`, ""},
		{"gzip unasked", zipped(`{"data":["a"]}`), `["a"]`, ""},
		{"no content type", raw("200 OK", "", `{"data":"x"}`), `"x"`, ""},
		{"odd members", ok(`{"data":{"data":[{}]},"a":true}`), `{"data":{"data":[{}]},"a":true}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t, func(int, seen) string { return tt.answer })
			set, secrets := tokenTarget(f)
			a, err := readOne(t, newClient(t, set, secrets), "GET /nodes/{node}/x", map[string]any{"node": "pve1", "type": "a b&c"})
			if err != nil {
				t.Fatal(err)
			}
			if string(a.Data) != tt.want || string(a.Siblings["total"]) != tt.sibling || a.Address != f.addr {
				t.Errorf("got %s, total %s, from %s", a.Data, a.Siblings["total"], a.Address)
			}
			r := f.requests()[0]
			if r.line != "GET /api2/json/nodes/pve1/x?type=a+b%26c" || r.header.Get("Authorization") != "PVEAPIToken="+testToken {
				t.Errorf("sent %q as %q", r.line, r.header.Get("Authorization"))
			}
		})
	}
}

// A log that is asked for as text comes as text; nothing else does.
func TestReadText(t *testing.T) {
	f := newFake(t, func(int, seen) string { return raw("200 OK", "text/plain", "line \"1\"\nline 2") })
	set, secrets := tokenTarget(f)
	c := newClient(t, set, secrets)
	a, err := readOne(t, c, "GET /nodes/{node}/x/log", map[string]any{"node": "pve1", "download": true})
	if err != nil || string(a.Data) != `"line \"1\"\nline 2"` {
		t.Errorf("got %s, %v", a.Data, err)
	}
	if _, err := readOne(t, c, "GET /nodes/{node}/x/log", map[string]any{"node": "pve1"}); err == nil {
		t.Error("text was taken for an answer")
	}
	if _, fail := sendOne(t, c, opStart, onPVE3); fail == nil || fail.Delivery != gate.MaybeDone {
		t.Errorf("text was taken for the answer to a write: %+v", fail)
	}
}

// What is not an answer of the API is explained.
func TestReadStrangers(t *testing.T) {
	tests := []struct{ name, answer, says string }{
		{"login page", raw("200 OK", "text/html", "<!DOCTYPE html><html><head><title>Sign in ・ Cloudflare\n Access</title></head></html>"), `a web page came in place of an answer of the API, titled "Sign in ・ Cloudflare Access"`},
		{"forbidden page", raw("403 Forbidden", "text/html", "<html><head><title>Attention Required</title></head></html>"), "titled \"Attention Required\""},
		{"redirect", "HTTP/1.1 302 Found\r\nServer: cloudflare\r\nLocation: https://team.cloudflareaccess.com/cdn-cgi/access/login?kid=secret\r\nContent-Length: 0\r\n\r\n", "points to https://team.cloudflareaccess.com (redirects are never followed)"},
		{"bad gateway", raw("502 Bad Gateway", "text/html", "<html><title>502 Bad Gateway</title></html>"), "502 Bad Gateway"},
		{"half an answer", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{\"data\":[1,", "broke off after 11 bytes"},
		{"half JSON", raw("200 OK", jsonType, `{"data":[1,`), "not whole JSON"},
		{"no data", raw("200 OK", jsonType, `{"hello":"world"}`), `without "data"`},
		{"array", raw("200 OK", jsonType, `[1]`), "not JSON"},
		{"empty", raw("200 OK", jsonType, ""), "the answer is empty"},
		{"cut error", "HTTP/1.1 500 the reason\r\nContent-Type: application/json\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{\"data\":null,\"mess", "the reason"},
		{"picture", raw("200 OK", "image/png", "\x89PNG"), "type image/png"},
		{"plain error", raw("501 no formatter", "", "no formatter for uri /version, nope"), "no formatter for uri /version, nope"},
		{"reason alone", raw("596 Connection timed out", "", ""), "Connection timed out"},
		{"message over reason", raw("500 first line", jsonType, `{"data":null,"message":"first line\nsecond line\n"}`), "first line\nsecond line"},
		{"escape sequences", raw("500 x", jsonType, `{"data":null,"message":"a\u001b[31mb\u202e"}`), "a [31mb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t, func(int, seen) string { return tt.answer })
			set, secrets := tokenTarget(f)
			_, err := readOne(t, newClient(t, set, secrets), "GET /version", nil)
			u := failed(t, err)
			if !strings.Contains(u.Message, tt.says) || strings.Contains(u.Message, "kid=") {
				t.Errorf("got %q, want %q in it", u.Message, tt.says)
			}
			if u.Kind == "" {
				t.Error("no kind")
			}
		})
	}
}

func TestReadTooLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("sends 32 MiB")
	}
	f := newFake(t, func(int, seen) string {
		return zipped(`{"data":"` + strings.Repeat("x", maxAnswer) + `"}`)
	})
	set, secrets := tokenTarget(f)
	_, err := readOne(t, newClient(t, set, secrets), "GET /version", nil)
	if u := failed(t, err); !strings.Contains(u.Message, "larger than 32 MiB") {
		t.Errorf("got %q", u.Message)
	}
}

// Reads go on at the next address when the contacted one fails, and not when the node of the path does.
func TestReadFailover(t *testing.T) {
	tests := []struct {
		name   string
		answer string
		params map[string]any
		on     string
		second bool // the next address is asked
	}{
		{"cut", "", nil, "GET /version", true},
		{"own daemon down", raw("595 Connection refused", "", ""), nil, "GET /cluster/status", true},
		{"own daemon down, its node asked", raw("595 Connection refused", "", ""), map[string]any{"node": "pve1"}, "GET /nodes/{node}/qemu", true},
		{"own daemon hangs", raw("596 Connection timed out", "", ""), nil, "GET /cluster/status", true},
		{"own daemon hangs, its node asked", raw("596 Connection timed out", "", ""), map[string]any{"node": "pve1"}, "GET /nodes/{node}/qemu", false},
		{"another node by the same name", "", map[string]any{"node": "localhost"}, "GET /nodes/{node}/status", false},
		{"other node off", raw("595 No route to host", "", ""), map[string]any{"node": "pve3"}, "GET /nodes/{node}/qemu", false},
		{"proxy", raw("503 Service Unavailable", "text/html", "<html>"), nil, "GET /version", true},
		{"half", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{", nil, "GET /version", true},
		{"refusal", raw("500 no such thing 'x'", "", ""), nil, "GET /version", false},
		{"wrong token", raw("401 Authentication failed!", "", ""), nil, "GET /version", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var first *fake
			first = newFake(t, func(_ int, r seen) string {
				if r.line == "GET /api2/json/nodes" {
					return ok(`[{"node":"pve1","ssl_fingerprint":"` + fingerprint(first.leaf) + `"}]`)
				}
				return tt.answer
			})
			second := newFake(t, func(int, seen) string { return ok(`"second"`) })
			set, secrets := tokenTarget(first, second)
			c := newClient(t, set, secrets)
			a, err := readOne(t, c, tt.on, tt.params)
			if asked := len(second.requests()) > 0; asked != tt.second {
				t.Fatalf("the second address was asked: %v; %v", asked, err)
			}
			if !tt.second {
				if u := failed(t, err); tt.name == "other node off" && !strings.Contains(u.Message, "node pve3 cannot be reached") {
					t.Errorf("got %q", u.Message)
				}
				return
			}
			if err != nil || string(a.Data) != `"second"` || a.Address != second.addr {
				t.Fatalf("got %s from %s, %v", a.Data, a.Address, err)
			}
			before := len(first.requests())
			if _, err := readOne(t, c, tt.on, tt.params); err != nil || len(first.requests()) != before {
				t.Errorf("the failed address was asked again at once: %v", err)
			}
			if n := c.Notices(); len(n) != 1 || !strings.Contains(n[0], first.addr+" is passed over") {
				t.Errorf("notices: %q", n)
			}
			if at, _ := c.Address(""); at != second.addr {
				t.Errorf("a write would go to %s", at)
			}
		})
	}
}

func TestReadFailoverAcrossDeadAddress(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := ln.Addr().String()
	ln.Close()
	f := newFake(t, func(int, seen) string { return ok(`1`) })
	set, secrets := tokenTarget(f)
	set.Addresses = []string{dead, f.addr}
	a, err := readOne(t, newClient(t, set, secrets), "GET /version", nil)
	if err != nil || a.Address != f.addr {
		t.Fatalf("%v from %q", err, a.Address)
	}
}

// Idle connections that the server drops disturb nobody.
func TestReadIdleDropped(t *testing.T) {
	f := newFake(t, func(int, seen) string { return ok(`1`) })
	f.drop = true
	set, secrets := tokenTarget(f)
	c := newClient(t, set, secrets)
	for i := range 50 {
		if _, err := readOne(t, c, "GET /version", nil); err != nil {
			t.Fatalf("read %d: %v", i, err)
		}
	}
}

// A POST that only reads is sent once as well.
func TestReadByPost(t *testing.T) {
	f := newFake(t, func(int, seen) string { return "" })
	set, secrets := tokenTarget(f)
	_, err := readOne(t, newClient(t, set, secrets), "POST /nodes/{node}/qemu/{vmid}/agent/ping", map[string]any{"node": "pve1", "vmid": "100"})
	failed(t, err)
	if n := len(f.requests()); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

func TestReadDeadline(t *testing.T) {
	f := newFake(t, func(int, seen) string { return hang })
	set, secrets := tokenTarget(f)
	set.ReadTimeout = Duration(200 * time.Millisecond)
	began := time.Now()
	_, err := readOne(t, newClient(t, set, secrets), "GET /version", nil)
	if u := failed(t, err); !strings.Contains(u.Message, "within the time limit") || time.Since(began) > 5*time.Second {
		t.Errorf("got %q after %s", u.Message, time.Since(began))
	}
}

func TestTargets(t *testing.T) {
	c, err := New(Config{Catalog: plainCatalog{}, Secrets: files{"t": testToken, "s": "secret", "p": "pw"}.Open, ReadFile: files{"t": testToken, "s": "secret", "p": "pw"}.Read, Settings: Settings{Targets: []Target{
		{Name: "one", Kind: "pve", Addresses: []string{"10.0.0.1", "pve2:443"}, TokenFile: "t"},
		{Name: "two", Kind: "pbs", Addresses: []string{"https://[fd00::1]"}, TokenID: "backup", User: "root@pam", SecretFile: "s"},
		{Name: "mail", Kind: "pmg", Addresses: []string{"mail"}, User: "root@pam", PasswordFile: "p"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(c.Targets())
	want := `[{"name":"one","product":"pve","addresses":["10.0.0.1:8006","pve2:443"],"user":"root@pam!full"},` +
		`{"name":"two","product":"pbs","addresses":["[fd00::1]:8007"],"user":"root@pam!backup"},` +
		`{"name":"mail","product":"pmg","addresses":["mail:8006"],"user":"root@pam"}]`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, name := range []string{"", "three"} {
		_, err := c.Read(t.Context(), name, gate.Request{})
		if err == nil || !strings.Contains(err.Error(), "one, two, mail") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
