//go:build linux

package guestlab

import (
	"strconv"
	"testing"
	"time"
)

// Shutdown ends it in order.
func (c *Container) Shutdown(t testing.TB) {
	t.Helper()
	if _, err := must(t.Context(), time.Minute, "lxc-stop", "-n", strconv.Itoa(c.ID), "-t", "45"); err != nil {
		t.Fatalf("guestlab: shut guest %d down: %v", c.ID, err)
	}
}

// PowerLoss ends it between two instructions. What it had written stays.
func (c *Container) PowerLoss(t testing.TB) {
	t.Helper()
	if _, err := must(t.Context(), time.Minute, "lxc-stop", "-n", strconv.Itoa(c.ID), "-k"); err != nil {
		t.Fatalf("guestlab: cut the power of guest %d: %v", c.ID, err)
	}
}

// Boot starts it again and waits until its sshd answers.
func (c *Container) Boot(t testing.TB) {
	t.Helper()
	if err := c.boot(t.Context()); err != nil {
		t.Fatalf("guestlab: %v", err)
	}
}

// BootID is what the guest's kernel says, anew at each boot.
func (c *Container) BootID(t testing.TB) string {
	t.Helper()
	return c.Run(t, "cat", "/proc/sys/kernel/random/boot_id")
}

// Reboot has it reboot by itself and waits until its sshd answers after that.
func (c *Container) Reboot(t testing.TB) {
	t.Helper()
	before := c.Init()
	c.Run(t, "systemctl", "reboot")
	for end := time.Now().Add(bootLimit); ; time.Sleep(20 * time.Millisecond) {
		if now := c.Init(); now != 0 && now != before {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("guestlab: guest %d has not rebooted for %s", c.ID, bootLimit)
		}
	}
	if err := c.answers(t.Context()); err != nil {
		t.Fatalf("guestlab: %v", err)
	}
}

// Cut takes its network away, as a pulled cable does. Join gives it back.
func (c *Container) Cut(t testing.TB) { c.link(t, "down") }

// Join undoes Cut.
func (c *Container) Join(t testing.TB) { c.link(t, "up") }

func (c *Container) link(t testing.TB, state string) {
	t.Helper()
	if _, err := must(t.Context(), 10*time.Second, "ip", "link", "set", c.veth(), state); err != nil {
		t.Fatalf("guestlab: set the link of guest %d %s: %v", c.ID, state, err)
	}
}
