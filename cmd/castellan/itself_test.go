package main

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"castellan/internal/anchor"
	"castellan/internal/identity"
	notices "castellan/internal/notify"

	"github.com/google/go-cmp/cmp"
)

// TestWhatCastellanUses: whatever the settings name, by a name or an address, is known by its address; a name that is not
// answered keeps the addresses that it had, and none is asked for at each plan.
func TestWhatCastellanUses(t *testing.T) {
	var s Settings
	s.Daemon.PublicURL, s.Daemon.TrustedProxies = "https://castellan.example", []string{"10.0.0.2", "10.1.0.0/16", "10.0.0.9/32"}
	s.Notify.SMTP.Address, s.Notify.Ntfy = "mail.example:25", notices.Ntfy{URL: "https://ntfy.example/topic"}
	s.Identity.OIDC = []identity.OIDCSettings{{Issuer: "https://id.example:8443/realms/x"}}
	s.Anchors = []anchor.Settings{{URL: "https://10.0.0.4/head"}, {Address: "tls://[2001:db8::5]:6514"}, {Address: "unix:///run/log"}}
	s.Store.URL = "postgres://c:secret@10.0.0.6:5432/castellan"
	want := []string{"castellan.example", "ntfy.example", "mail.example", "10.0.0.2", "10.1.0.0/16", "10.0.0.9/32", "id.example", "10.0.0.4", "2001:db8::5", "10.0.0.6"}
	if diff := cmp.Diff(want, s.uses()); diff != "" {
		t.Fatalf("hosts (-want +got):\n%s", diff)
	}
	now, asked, down := time.Unix(1e9, 0), 0, false
	l := &lookup{hosts: []string{"castellan.example", "10.0.0.2", "10.1.0.0/16", "10.0.0.9/32", "localhost", "gone.example"}, now: func() time.Time { return now },
		resolve: func(_ context.Context, _, host string) ([]netip.Addr, error) {
			switch {
			case host == "localhost":
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			case host == "castellan.example" && !down:
				asked++
				return []netip.Addr{netip.MustParseAddr("::ffff:10.0.0.1")}, nil
			}
			return nil, errors.New("no such host")
		}}
	addrs := func(texts ...string) (out []netip.Addr) {
		for _, x := range texts {
			out = append(out, netip.MustParseAddr(x))
		}
		return out
	}
	all := addrs("10.0.0.1", "10.0.0.2", "10.0.0.9")
	for _, x := range []struct {
		later time.Duration
		down  bool
		asked int
	}{{0, false, 1}, {time.Minute, false, 1}, {lookedUpFor, false, 2}, {lookedUpFor * 2, true, 2}, {lookedUpFor * 2, false, 3}} {
		now, down = now.Add(x.later), x.down
		got := l.addresses(t.Context())
		if diff := cmp.Diff(all, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || asked != x.asked {
			t.Errorf("after %v, down %v: asked %d times, want %d; (-want +got):\n%s", x.later, x.down, asked, x.asked, diff)
		}
	}
}
