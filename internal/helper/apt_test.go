//go:build linux

package helper

import (
	"testing"

	"castellan/internal/guestlab"
	"castellan/internal/patch"
)

func TestFirst(t *testing.T) {
	h := enrol(t, guestlab.Guest{Unprivileged: true, Packages: []string{"demo-lib", "demo-app", "demo-point", "demo-backport", "demo-shadow", "demo-held", "demo-svc", "demo-new", "demo-old", "demo-repl", "docker-demo"}})
	t.Logf("%+v", h.installed)
	h.Run(t, "apt-mark", "hold", "demo-held")
	r := h.check(t)
	t.Logf("%+v", r)
	o := h.upgrade(t, patch.UpgradeSecurity, "p.1", r.Security, "demo-lib", "demo-shadow")
	t.Logf("%+v", o)
}
