package main

import (
	"strings"
	"testing"
)

// TestTrustCommand: what a client is told to trust lies nowhere where another account could put its own in between.
func TestTrustCommand(t *testing.T) {
	text := trustCommand("https://castellan.example", "AB:CD")
	if strings.Contains(text, "/tmp") || !strings.Contains(text, "castellan.example:443") || strings.Count(text, "$HOME/.castellan-ca.pem.new") != 3 || !strings.Contains(text, "'AB:CD'") {
		t.Error(text)
	}
}
