package proxmox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"castellan/internal/rights"
)

// TestMinterAgainstAHostileServer: nothing of an answer is kept that is not the token asked for, no redirect is followed,
// no endless answer is read, and another certificate gets no password.
func TestMinterAgainstAHostileServer(t *testing.T) {
	want := rights.Want{User: "castellan@pve", Token: "agent", Capabilities: []string{"power"}}
	var elsewhere int
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer other.Close()
	answer := ""
	var got int
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got++
		switch {
		case answer == "redirect":
			http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
		case answer == "endless":
			_, _ = w.Write([]byte(`{"data":"`)) // the client goes away
			for {
				if _, err := w.Write([]byte(strings.Repeat("x", 1<<16))); err != nil {
					return
				}
			}
		default:
			fmt.Fprint(w, answer)
		}
	}))
	defer s.Close()
	sum := sha256.Sum256(s.Certificate().Raw)
	make := func(pin string) *Minter {
		m, err := NewMinter(MinterConfig{Address: strings.TrimPrefix(s.URL, "https://"), Pins: []string{pin}, Person: "root@pam", Want: want})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		return m
	}
	good := hex.EncodeToString(sum[:])
	token := rights.Command{Operation: "POST /access/users/{userid}/token/{tokenid}", Params: map[string]string{"userid": "castellan@pve", "tokenid": "agent", "privsep": "1"}}
	for _, a := range []string{
		`{"data":{"full-tokenid":"root@pam!x","value":"0123456789abcdef0123"}}`,
		`{"data":{"full-tokenid":"castellan@pve!agent","value":"0123456789abcdef\n[targets]\nx"}}`,
		`{"data":{"full-tokenid":"castellan@pve!agent","value":""}}`,
		`{"data":null}`, `{}`, `<html>`, "redirect", "endless",
	} {
		answer = a
		if secret, err := make(good).Give(t.Context(), token); err == nil || !secret.IsZero() {
			t.Errorf("%q was taken", a)
		}
	}
	if elsewhere > 0 {
		t.Error("a redirect was followed")
	}
	answer = `{"data":{"full-tokenid":"castellan@pve!agent","value":"01234567-89ab-cdef-0123-456789abcdef"}}`
	if secret, err := make(good).Give(t.Context(), token); err != nil || string(secret.Bytes()) != "castellan@pve!agent=01234567-89ab-cdef-0123-456789abcdef" {
		t.Errorf("%v", err)
	}
	got = 0
	if err := make(strings.Repeat("00", 32)).LogIn(t.Context(), "secret", func() (string, error) { return "", nil }); err == nil || got > 0 {
		t.Errorf("%v; %d requests got through to a server of another certificate", err, got)
	}
}
