package hosts

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOf(t *testing.T) {
	for text, want := range map[string]string{
		"nas.example": "nas.example", "nas.example:25": "nas.example", "https://nas.example:8443/realms/x": "nas.example", "postgres://c:secret@10.0.0.6:5432/castellan": "10.0.0.6",
		"tls://[2001:db8::5]:6514": "2001:db8::5", "[fd00::9]:22": "fd00::9", "[fd00::9]": "fd00::9", "fd00::9": "fd00::9", "10.0.0.2": "10.0.0.2", "": "", "https://user@bridge.example/castellan": "bridge.example",
	} {
		if got := Of(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestAddresses: whatever is named is known by its address; a name that is not answered any more keeps what it had, and none
// is looked up at each question.
func TestAddresses(t *testing.T) {
	now, asked, down := time.Unix(1e9, 0), 0, false
	b := New(Config{Hosts: []string{"https://castellan.example", "castellan.example:25", "10.0.0.2", "10.1.0.0/16", "10.0.0.9/32", "[fd00::9%eth0]:22", "gone.example", ""}, Now: func() time.Time { return now },
		Lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
			if name == "castellan.example" {
				if asked++; !down {
					return []netip.Addr{netip.MustParseAddr("::ffff:10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, nil
				}
			}
			return nil, errors.New("no such host")
		}})
	want := []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::9"), netip.MustParseAddr("10.0.0.1")}
	for _, x := range []struct {
		later time.Duration
		down  bool
		asked int
	}{{0, false, 1}, {time.Minute, false, 1}, {again, false, 2}, {2 * again, true, 3}, {2 * again, false, 4}, {-time.Hour, false, 5}} {
		now, down = now.Add(x.later), x.down
		got := b.Addresses(t.Context())
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || asked != x.asked {
			t.Errorf("after %v, down %v: asked %d times, want %d; (-want +got):\n%s", x.later, x.down, asked, x.asked, diff)
		}
	}
	if got := (*Book)(nil).Addresses(t.Context()); got != nil {
		t.Errorf("a nil book knows %v", got)
	}
}
