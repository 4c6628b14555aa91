package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"castellan/internal/lab"
)

func TestUntil(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.Local)
	for in, want := range map[string]time.Time{
		"": {}, "2027-01-31": time.Date(2027, 1, 31, 0, 0, 0, 0, time.Local), "2027-01-31 08:30": time.Date(2027, 1, 31, 8, 30, 0, 0, time.Local), "2027-01-31T08:30:00Z": time.Date(2027, 1, 31, 8, 30, 0, 0, time.UTC),
		"30d": now.Add(30 * 24 * time.Hour), "90m": now.Add(90 * time.Minute),
	} {
		if got, err := parseUntil(in, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v %v", in, got, err)
		}
	}
	for _, bad := range []string{"tomorrow", "-1h", "0d", "d", "1h30d", "99999999999d", "31.01.2027"} {
		if got, err := parseUntil(bad, now); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

// TestStaticTokenAtTheDaemon: a token made on the command line opens the daemon's MCP endpoint, until it is revoked there.
func TestStaticTokenAtTheDaemon(t *testing.T) {
	if testing.Short() {
		t.Skip("starts programs")
	}
	k := daemonOn(t, lab.Config{}, "")
	say := func(args ...string) string {
		t.Helper()
		cmd := k.program("", args...)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v %s", args, err, errs.String())
		}
		return string(out)
	}
	say("people", "add", "ann", "--role", "operator", "--no-password")
	var minted struct{ ID, Token, Agent string }
	if err := json.Unmarshal([]byte(say("token", "mint", "--json", "--name", "nightly", "--agent", "cron", "--person", "ann", "--roles", "viewer")), &minted); err != nil || minted.Token == "" {
		t.Fatalf("%+v %v", minted, err)
	}
	ask := func(token string) (int, string) {
		t.Helper()
		r, err := http.NewRequest("POST", "http://"+k.address+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode, resp.Header.Get("WWW-Authenticate")
	}
	if code, challenge := ask(""); code != 401 || !strings.Contains(challenge, "resource_metadata=") || strings.Contains(challenge, "error=") {
		t.Errorf("without a token: %d %s", code, challenge)
	}
	if code, challenge := ask(minted.Token); code != 200 {
		t.Errorf("with it: %d %s", code, challenge)
	}
	if code, challenge := ask(minted.Token[:len(minted.Token)-1] + "_"); code != 401 || !strings.Contains(challenge, `error="invalid_token"`) {
		t.Errorf("with another: %d %s", code, challenge)
	}
	if out := say("token", "list"); !strings.Contains(out, minted.ID) || strings.Contains(out, minted.Token) {
		t.Error(out)
	}
	say("token", "revoke", minted.ID)
	if code, challenge := ask(minted.Token); code != 401 || !strings.Contains(challenge, `error="invalid_token"`) {
		t.Errorf("after it was revoked: %d %s", code, challenge)
	}
	if out := say("token", "list", "--all"); !strings.Contains(out, "revoked") {
		t.Error(out)
	}
}
