package main

import (
	"strings"

	"castellan/internal/proxmox"
	"castellan/internal/rights"
	"castellan/internal/seal"
)

// firstGrants are the lines that make user, roles and token for exactly these capabilities.
func firstGrants(w rights.Want) []string { return rights.Lines(w.Commands(nil)) }

// tokenOf is the token id of a target, for printing; the secret never comes near.
func (a *app) tokenOf(t proxmox.Target) string {
	if strings.Contains(t.TokenID, "!") {
		return t.TokenID
	}
	if t.TokenID != "" && t.User != "" {
		return t.User + "!" + t.TokenID
	}
	if s, err := seal.Open(t.TokenFile); err == nil {
		if id, _, ok := strings.Cut(s.Reveal(), "="); ok {
			return id
		}
	}
	return defaultToken
}
