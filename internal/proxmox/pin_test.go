package proxmox

import (
	"strings"
	"testing"
)

// TestPinForms: a sum that begins with the digits CA is no sum of a CA.
func TestPinForms(t *testing.T) {
	sum := "CA" + strings.Repeat(":46", 31)
	for text, only := range map[string]string{sum: "", strings.ToLower(sum): "", "ca:" + sum: "ca", "cert:" + sum: "cert", "sha256:" + sum: ""} {
		p, err := parsePin(text)
		if err != nil || p.only != only || p.sum[0] != 0xCA {
			t.Errorf("pin %s is of %q, begins with %x: %v", text, p.only, p.sum[0], err)
		}
	}
}
