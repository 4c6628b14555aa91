//go:build unix

package channel

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/patch"
)

func used(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestSpeed measures words over kept connections. Only a wrong answer fails it; make bench prints its figures.
func TestSpeed(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures time")
	}
	n := newGuests()
	c := newChannels(t, n, nil)
	var all []*Entry
	var servers []*guest
	for i := range 3 {
		g := newGuest(t)
		address := fmt.Sprintf("10.0.0.%d", 5+i)
		n.put(address, g)
		all, servers = append(all, enrolled(t, c, g, 101+i, address)), append(servers, g)
	}
	ask := func(e *Entry) {
		if out, err := c.Ask(t.Context(), e, patch.Check, nil, 10*time.Second); err != nil || len(out) == 0 {
			t.Errorf("%q %v", out, err)
		}
	}
	for _, e := range all {
		ask(e)
	}
	const words = 200
	began := used(t)
	for i := range words {
		e, err := c.Find(t.Context(), testSite, all[i%3].VMID)
		if err != nil {
			t.Fatal(err)
		}
		ask(e)
	}
	cpu := (used(t) - began) / words
	for _, g := range servers {
		g.answers(func(word string, ch ssh.Channel, cut func()) uint32 {
			time.Sleep(time.Second)
			return echo(word, ch, cut)
		})
	}
	start := time.Now()
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() { ask(all[i%3]) })
	}
	group.Wait()
	t.Logf("figure channels %.2f %.2f", float64(cpu.Microseconds())/1000, time.Since(start).Seconds())
}
