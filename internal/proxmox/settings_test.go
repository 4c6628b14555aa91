package proxmox

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// Everything wrong is named at once, with its key.
func TestSettingsProblems(t *testing.T) {
	pinned := strings.Repeat("ab", 32)
	s := Settings{Targets: []Target{
		{},
		{Name: "a b", Kind: "esx", Addresses: []string{"", "http://x", "host/path", "u@host", "host:0", "host:x", "a:b:c"}, TokenFile: "t", PasswordFile: "p"},
		{Name: "mail", Kind: "pmg", Addresses: []string{"mail"}, TokenFile: "t"},
		{Name: "tok", Kind: "pve", Addresses: []string{"pve1"}, TokenID: "automation"},
		{Name: "tok", Kind: "pve", Addresses: []string{"pve1"}, TokenID: "a@pve!x", User: "b@pve", SecretFile: "s"},
		{Name: "pw", Kind: "pve", Addresses: []string{"pve1"}, PasswordFile: "${PW}", Pins: []string{"abc", pinned, "sha256/xyz"},
			Headers: map[string]string{"Authorization": "x", "bad name": "x", "X-Ok": ""}, Nodes: map[string]string{"pve1": "10.0.0.7"}, ReadTimeout: -1},
		{Name: "two", Kind: "pve", Addresses: []string{"pve1"}, TokenFile: "t", TokenID: "a@pve!x"},
	}}
	var e *SettingsError
	if !errors.As(s.Validate(), &e) {
		t.Fatal("no SettingsError")
	}
	var keys []string
	for _, p := range e.Problems {
		keys = append(keys, p.Key)
		if p.Message == "" {
			t.Errorf("%s: no message", p.Key)
		}
	}
	want := []string{"target[0]", "target[0].addresses", "target[0].kind", "target[0].name",
		"target[1]", "target[1].addresses[0]", "target[1].addresses[1]", "target[1].addresses[2]", "target[1].addresses[3]", "target[1].addresses[4]", "target[1].addresses[5]", "target[1].addresses[6]", "target[1].kind", "target[1].name",
		"target[2]", "target[3].secret_file", "target[3].token_id", "target[4].name", "target[4].token_id",
		"target[5].headers.Authorization", "target[5].headers.X-Ok", "target[5].headers.bad name", "target[5].nodes.pve1", "target[5].password_file",
		"target[5].pins[0]", "target[5].pins[2]", "target[5].read_timeout", "target[5].user", "target[6].token_file"}
	slices.Sort(keys)
	slices.Sort(want)
	if !slices.Equal(keys, want) {
		t.Errorf("got  %q\nwant %q", keys, want)
	}
	if !strings.Contains(e.Error(), "USER@REALM!automation") {
		t.Errorf("the form of the token id is not told: %v", e)
	}
}

// A name of a token with or without its user.
func TestTokenIDForms(t *testing.T) {
	for _, s := range []Target{
		{TokenID: "u@pve!t"}, {TokenID: "t", User: "u@pve"}, {TokenID: "u@pve!t", User: "u@pve"},
	} {
		if id, err := s.fullTokenID(); err != nil || id != "u@pve!t" {
			t.Errorf("%+v: %q, %v", s, id, err)
		}
	}
	for _, line := range []string{"u@pve!t=x-y", "PVEAPIToken=u@pve!t=x-y", "Authorization: PVEAPIToken=u@pve!t=x-y", "u@pve!t:x-y", "PBSAPIToken u@pve!t:x-y", " u@pve!t=x-y \n"} {
		if id, secret, err := parseToken(line); err != nil || id != "u@pve!t" || secret != "x-y" {
			t.Errorf("%q: %q %q %v", line, id, secret, err)
		}
	}
	for _, line := range []string{"", "x-y", "u@pve!t", "u!t=x", "u@pve!t=x y", "u@pve!t=x\nv@pve!t=y"} {
		if _, _, err := parseToken(line); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
}

// What settings name is opened at the start, and all of it told at once, without showing what it holds.
func TestNewOpensFiles(t *testing.T) {
	_, err := New(Config{Catalog: plainCatalog{}, Secrets: files{"ca": "no pem", "tok": "some-secret", "h": "a\nb", "empty": " "}.Open, ReadFile: files{"ca": "no pem", "tok": "some-secret", "h": "a\nb", "empty": " "}.Read, Settings: Settings{Targets: []Target{
		{Name: "a", Kind: "pve", Addresses: []string{"x"}, TokenFile: "tok", CAFile: "ca", Headers: map[string]string{"X-A": "h"}},
		{Name: "b", Kind: "pve", Addresses: []string{"x"}, User: "u@pam", PasswordFile: "gone", TOTPFile: "empty"},
	}}})
	for _, want := range []string{"target[0].token_file", "target[0].ca_file", "target[0].headers.X-A", "target[1].password_file", "target[1].totp_file"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "some-secret") {
		t.Error("the error shows a secret")
	}
}

func TestDuration(t *testing.T) {
	var d Duration
	if err := d.UnmarshalText([]byte("1m30s")); err != nil || time.Duration(d) != 90*time.Second {
		t.Error(d, err)
	}
	if err := d.UnmarshalText([]byte("90")); err == nil {
		t.Error("a bare number was taken")
	}
}
