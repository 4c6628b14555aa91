package proxmox

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
)

const (
	opStart  = "POST /nodes/{node}/lxc/{vmid}/status/start"
	opConfig = "PUT /nodes/{node}/lxc/{vmid}/config"
)

var onPVE3 = map[string]any{"node": "pve3", "vmid": "1"}

// answers of the site while a write fails: the contacted node is pve1 by its certificate.
func siteAnswers(f **fake, write string) func(int, seen) string {
	return func(_ int, r seen) string {
		switch r.line {
		case "GET /api2/json/nodes":
			sum := fingerprint((*f).leaf)
			return ok(`[{"node":"pve1","ssl_fingerprint":"` + sum + `"},{"node":"pve3","ssl_fingerprint":"AA"}]`)
		case "GET /api2/json/nodes/pve1/lxc/1/config", "GET /api2/json/nodes/pve3/lxc/1/config":
			return ok(`{"cores":1}`)
		}
		if strings.HasPrefix(r.line, "GET ") {
			return raw("501 Method 'GET' not implemented", "", "")
		}
		return write
	}
}

// The table of proofs of no effect: one row a case, each over a real socket.
func TestDelivery(t *testing.T) {
	fault := func(text string) string { return raw(text, "", "") }
	tests := []struct {
		name, operation string
		params          map[string]any
		answer          string
		want            gate.Delivery
		kind            gate.ErrorKind
	}{
		{"401 before any login", opStart, onPVE3, fault("401 Authentication failed!"), gate.NotCarriedOut, gate.ErrDenied},
		{"403", opStart, onPVE3, raw("403 Permission check failed (/vms/1, VM.PowerMgmt)", jsonType, `{"data":null,"message":"Permission check failed (/vms/1, VM.PowerMgmt)\n"}`), gate.NotCarriedOut, gate.ErrDenied},
		{"403 without body", opStart, onPVE3, fault("403 Permission check failed"), gate.NotCarriedOut, gate.ErrDenied},
		{"501", opStart, onPVE3, raw("501 Method 'POST /x' not implemented", jsonType, `{"data":null,"message":"Method 'POST /x' not implemented"}`), gate.NotCarriedOut, gate.ErrInvalid},
		{"400", opStart, onPVE3, raw("400 Parameter verification failed.", jsonType, `{"data":null,"message":"Parameter verification failed.\n","errors":{"timeout":"type check ('integer') failed - got 'x'"}}`), gate.NotCarriedOut, gate.ErrInvalid},
		{"400 of a guest configuration", opConfig, onPVE3, raw("400 Parameter verification failed.", jsonType, `{"data":null,"message":"Parameter verification failed.\n","errors":{"net0":"hotplug problem - x"}}`), gate.MaybeDone, gate.ErrInvalid},
		{"400 of a guest configuration, asynchronous", "POST /nodes/{node}/qemu/{vmid}/config", onPVE3, raw("400 Parameter verification failed.", jsonType, `{"data":null,"errors":{"net0":"hotplug problem - x"}}`), gate.MaybeDone, gate.ErrInvalid},
		{"400 wrapped in a 500", opStart, onPVE3, raw("500 400 Parameter verification failed.", jsonType, `{"data":null,"message":"400 Parameter verification failed.\nvmid: property is missing\n"}`), gate.MaybeDone, gate.ErrInvalid},
		{"595 refused by the other node", opStart, onPVE3, fault("595 Connection refused"), gate.NotCarriedOut, gate.ErrUnavailable},
		{"595 refused by the own daemon", opStart, map[string]any{"node": "pve1", "vmid": "1"}, fault("595 Connection refused"), gate.MaybeDone, gate.ErrUnavailable},
		{"595 refused, own node by its other name", opStart, map[string]any{"node": "localhost", "vmid": "1"}, fault("595 Connection refused"), gate.MaybeDone, gate.ErrUnavailable},
		{"595 refused, no node in the path", "POST /pools", nil, fault("595 Connection refused"), gate.MaybeDone, gate.ErrUnavailable},
		{"595 no route", opStart, onPVE3, fault("595 No route to host"), gate.MaybeDone, gate.ErrUnavailable},
		{"596", opStart, onPVE3, fault("596 Connection timed out"), gate.MaybeDone, gate.ErrUnavailable},
		{"500", opStart, onPVE3, raw("500 CT 1 already running", jsonType, `{"data":null,"message":"CT 1 already running\n"}`), gate.MaybeDone, gate.ErrInvalid},
		{"502 of a proxy", opStart, onPVE3, raw("502 Bad Gateway", "text/html", "<html><head><title>502 Bad Gateway</title></head></html>"), gate.MaybeDone, gate.ErrUnavailable},
		{"401 page of a proxy", opStart, onPVE3, raw("401 Unauthorized", "text/html", "<html><title>401</title></html>"), gate.MaybeDone, gate.ErrDenied},
		{"403 page of a proxy", opStart, onPVE3, raw("403 Forbidden", "text/html", "<html><title>Blocked</title></html>"), gate.MaybeDone, gate.ErrDenied},
		{"302", opStart, onPVE3, "HTTP/1.1 302 Found\r\nLocation: https://login.example.org/x?y=z\r\nContent-Length: 0\r\n\r\n", gate.MaybeDone, gate.ErrUnavailable},
		{"cut before the answer", opStart, onPVE3, "", gate.MaybeDone, gate.ErrUnknownOutcome},
		{"cut in the status line", opStart, onPVE3, "HTTP/1.1 20", gate.MaybeDone, gate.ErrUnknownOutcome},
		{"half a body", opStart, onPVE3, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{\"data\":\"UPID:pv", gate.MaybeDone, gate.ErrUnknownOutcome},
		{"a page with status 200", opStart, onPVE3, raw("200 OK", "text/html", "<html><title>Sign in</title></html>"), gate.MaybeDone, gate.ErrUnknownOutcome},
		{"an empty answer with status 200", opStart, onPVE3, raw("200 OK", jsonType, ""), gate.MaybeDone, gate.ErrUnknownOutcome},
		{"403 with half a body", opStart, onPVE3, "HTTP/1.1 403 Permission check failed (/vms/1, VM.PowerMgmt)\r\nContent-Type: application/json\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{\"data\":n", gate.NotCarriedOut, gate.ErrDenied},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var f *fake
			answer := siteAnswers(&f, tt.answer)
			f = newFake(t, func(n int, r seen) string { return answer(n, r) })
			f.mu.Lock()
			f.drop = strings.HasPrefix(tt.name, "cut")
			f.mu.Unlock()
			set, secrets := tokenTarget(f)
			c := newClient(t, set, secrets)
			a, fail := sendOne(t, c, tt.operation, tt.params)
			if fail == nil {
				t.Fatal("the write did not fail")
			}
			if fail.Delivery != tt.want || fail.Kind != tt.kind {
				t.Errorf("got %s, %s (%v), want %s, %s", fail.Delivery, fail.Kind, fail, tt.want, tt.kind)
			}
			if a.Address != f.addr {
				t.Errorf("the address is %q, want %q", a.Address, f.addr)
			}
			writes := 0
			for _, r := range f.requests() {
				if !strings.HasPrefix(r.line, "GET ") {
					writes++
				}
			}
			if writes != 1 {
				t.Errorf("the write was sent %d times", writes)
			}
		})
	}
}

func TestDeliveryTimeout(t *testing.T) {
	f := newFake(t, func(int, seen) string { return hang })
	set, secrets := tokenTarget(f)
	set.WriteTimeout = Duration(2 * time.Second)
	_, fail := sendOne(t, newClient(t, set, secrets), opStart, onPVE3)
	if fail == nil || fail.Delivery != gate.MaybeDone || fail.Kind != gate.ErrUnknownOutcome {
		t.Fatalf("got %+v", fail)
	}
	if n := len(f.requests()); n != 1 {
		t.Errorf("the write was sent %d times", n)
	}
}

// Nothing leaves before connection, TLS and certificate are good.
func TestDeliveryBeforeAnyByte(t *testing.T) {
	t.Run("connect", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := ln.Addr().String()
		ln.Close()
		c := newClient(t, Target{Name: "lab", Kind: "pve", Addresses: []string{addr}, TokenFile: "token"}, files{"token": testToken})
		_, fail := sendOne(t, c, opStart, onPVE3)
		if fail == nil || fail.Delivery != gate.NotCarriedOut || fail.Kind != gate.ErrUnavailable {
			t.Fatalf("got %+v", fail)
		}
	})
	t.Run("tls", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
				conn.Close()
			}
		}()
		c := newClient(t, Target{Name: "lab", Kind: "pve", Addresses: []string{ln.Addr().String()}, TokenFile: "token"}, files{"token": testToken})
		_, fail := sendOne(t, c, opStart, onPVE3)
		if fail == nil || fail.Delivery != gate.NotCarriedOut {
			t.Fatalf("got %+v", fail)
		}
	})
	t.Run("hanging handshake", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		c := newClient(t, Target{Name: "lab", Kind: "pve", Addresses: []string{ln.Addr().String()}, TokenFile: "token", ConnectTimeout: Duration(200 * time.Millisecond)}, files{"token": testToken})
		_, fail := sendOne(t, c, opStart, onPVE3)
		if fail == nil || fail.Delivery != gate.NotCarriedOut {
			t.Fatalf("got %+v", fail)
		}
	})
	t.Run("pin", func(t *testing.T) {
		f := newFake(t, func(int, seen) string { return ok("null") })
		set, secrets := tokenTarget(f)
		set.CAFile, set.Pins = "", []string{strings.Repeat("ab", 32)}
		_, fail := sendOne(t, newClient(t, set, secrets), opStart, onPVE3)
		if fail == nil || fail.Delivery != gate.NotCarriedOut {
			t.Fatalf("got %+v", fail)
		}
		if !strings.Contains(fail.Message, fingerprint(f.leaf)) {
			t.Errorf("the fingerprint is not told: %s", fail.Message)
		}
		if n := len(f.requests()); n != 0 {
			t.Errorf("%d requests arrived", n)
		}
	})
}

// A server that drops connections after each answer makes no write ambiguous and none double.
func TestSendAfterDroppedIdleConnections(t *testing.T) {
	f := newFake(t, func(_ int, r seen) string {
		return ok(`"UPID:pve1:0000020F:00032057:6B0C1290:vzstart:1:root@pam!full:"`)
	})
	f.drop = true
	set, secrets := tokenTarget(f)
	c := newClient(t, set, secrets)
	operations := []string{opStart, opConfig, "DELETE /nodes/{node}/lxc/{vmid}"}
	for i := range 30 {
		if _, err := readOne(t, c, "GET /version", nil); err != nil {
			t.Fatalf("read %d: %v", i, err)
		}
		if _, fail := sendOne(t, c, operations[i%3], onPVE3); fail != nil {
			t.Fatalf("write %d: %v", i, fail)
		}
	}
	counts := map[bool]int{}
	for _, r := range f.requests() {
		counts[strings.HasPrefix(r.line, "GET ")]++
		if !strings.HasPrefix(r.line, "GET ") && (r.header.Get("Idempotency-Key") != "" || r.header.Get("Connection") != "close") {
			t.Errorf("a write came over a kept connection: %v", r.header)
		}
	}
	if counts[false] != 30 {
		t.Errorf("%d writes arrived of 30", counts[false])
	}
}

// Two nodes with one certificate are told apart by their own word, address by address.
func TestSharedCertificate(t *testing.T) {
	node := func(name string) func(int, seen) string {
		return func(_ int, r seen) string {
			switch r.line {
			case "GET /api2/json/nodes":
				return ok(`[{"node":"pve1","ssl_fingerprint":"AA"},{"node":"pve2","ssl_fingerprint":"AA"}]`)
			case "GET /api2/json/cluster/status":
				return ok(`[{"type":"node","name":"pve1","local":` + map[bool]string{true: "1", false: "0"}[name == "pve1"] + `},{"type":"node","name":"pve2","local":` + map[bool]string{true: "1", false: "0"}[name == "pve2"] + `}]`)
			}
			return raw("595 Connection refused", "", "")
		}
	}
	first, second := &fake{answer: node("pve1"), done: make(chan struct{})}, &fake{answer: node("pve2"), done: make(chan struct{})}
	cert := makeCertificate(t, first)
	second.ca, second.leaf = first.ca, first.leaf
	startFake(t, first, cert)
	startFake(t, second, cert)
	set, secrets := tokenTarget(first, second)
	c := newClient(t, set, secrets)
	for _, tt := range []struct {
		f    *fake
		node string
		want gate.Delivery
	}{
		{first, "pve2", gate.NotCarriedOut}, {first, "pve1", gate.MaybeDone}, {second, "pve2", gate.MaybeDone}, {second, "pve1", gate.NotCarriedOut},
	} {
		_, err := c.send(t.Context(), gate.Write{Address: tt.f.addr, Request: request(t, opStart, map[string]any{"node": tt.node, "vmid": "1"}), Open: plainOpen})
		var u *gate.UpstreamError
		if !errors.As(err, &u) || u.Delivery != tt.want {
			t.Errorf("%s at the address of %v: %+v", tt.node, tt.f == first, u)
		}
	}
}

// Writes stay with their address: the second one is never tried.
func TestSendStaysWithItsAddress(t *testing.T) {
	good := newFake(t, func(int, seen) string { return ok("null") })
	bad := newFake(t, func(int, seen) string { return "" })
	set, secrets := tokenTarget(bad, good)
	c := newClient(t, set, secrets)
	if _, fail := sendOne(t, c, opStart, onPVE3); fail == nil || fail.Delivery != gate.MaybeDone {
		t.Fatalf("got %+v", fail)
	}
	if n := len(good.requests()); n != 0 {
		t.Errorf("the other address was tried")
	}
	a, err := c.send(t.Context(), gate.Write{Address: good.addr, Request: request(t, opStart, onPVE3), Open: plainOpen})
	if err != nil || a.Address != good.addr {
		t.Errorf("got %v from %q", err, a.Address)
	}
	var u *gate.UpstreamError
	_, err = c.send(t.Context(), gate.Write{Address: "10.0.0.9", Request: request(t, opStart, onPVE3), Open: plainOpen})
	if !errors.As(err, &u) || u.Delivery != gate.NotCarriedOut {
		t.Errorf("a strange address gave %v", err)
	}
}

func TestSendNeedsAPermit(t *testing.T) {
	f := newFake(t, func(int, seen) string { return ok("null") })
	set, secrets := tokenTarget(f)
	c := newClient(t, set, secrets)
	for _, p := range []*gate.Permit{nil, {}} {
		if _, err := c.Send(t.Context(), p); !errors.Is(err, gate.ErrPermitSpent) {
			t.Errorf("got %v", err)
		}
	}
	if len(f.requests()) != 0 {
		t.Error("something was sent")
	}
}

// No secret stands in what comes back: neither that of the call nor castellan's own.
func TestSendHidesSecrets(t *testing.T) {
	secret := "hunter2 & co/€"
	f := newFake(t, func(_ int, r seen) string {
		own := r.header.Get("Authorization")
		body := `{"data":null,"message":"bad ` + secret + ` and ` + r.body + ` as ` + own + `\n","errors":{"password":"got '` + secret + `'"}}`
		return raw("400 Parameter verification failed.", jsonType, body)
	})
	set, secrets := tokenTarget(f)
	set.Headers = map[string]string{"CF-Access-Client-Secret": "cf"}
	secrets["cf"] = "cloudy-secret"
	c := newClient(t, set, secrets)
	r := gate.Request{Product: "pve", Operation: "POST /access/users", Params: []gate.Param{
		{Name: "password", Values: []gate.Value{{Secret: &gate.Handle{ID: "h1", Before: "pw=", After: ",x=1"}}}}, {Name: "userid", Values: []gate.Value{{Text: "a@pve"}}}}}
	_, err := c.send(t.Context(), gate.Write{Request: r, Open: func(v gate.Value) (string, error) {
		if v.Secret != nil {
			return v.Secret.Before + secret + v.Secret.After, nil
		}
		return v.Text, nil
	}})
	var u *gate.UpstreamError
	if !errors.As(err, &u) {
		t.Fatal(err)
	}
	all := u.Message + u.Hint + u.Params["password"] + err.Error()
	for _, bad := range []string{secret, "hunter2", "11111111-1111", "cloudy"} {
		if strings.Contains(all, bad) {
			t.Errorf("%q stands in %q", bad, all)
		}
	}
	if got := f.requests()[0].header.Get("CF-Access-Client-Secret"); got != "cloudy-secret" {
		t.Errorf("the header was %q", got)
	}
}

// A call that its caller gave up is not known to have failed.
func TestSendCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := newFake(t, func(int, seen) string { cancel(); return hang })
	set, secrets := tokenTarget(f)
	_, err := newClient(t, set, secrets).send(ctx, gate.Write{Request: request(t, opStart, onPVE3), Open: plainOpen})
	var u *gate.UpstreamError
	if !errors.As(err, &u) || u.Delivery != gate.MaybeDone {
		t.Fatalf("got %v", err)
	}
}
