package oauth

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestClientIDs(t *testing.T) {
	for id, ok := range map[string]bool{
		"https://claude.ai/oauth/mcp-oauth-client-metadata": true, "https://chatgpt.com/oauth/abc_1/client.json": true, "https://example.org:8443/c": true,
		"http://claude.ai/c": false, "https://claude.ai": false, "https://claude.ai/": false, "https://claude.ai/c#x": false, "https://claude.ai/c?x": false,
		"https://u@claude.ai/c": false, "https://claude.ai/a/../c": false, "https://claude.ai/./c": false, "https://claude.ai/%2e%2e/c": false, "https://CLAUDE.ai/c": false,
		"HTTPS://claude.ai/c": false, "https://claude.ai\\@evil.org/c": false, "https://127.0.0.1/c": false, "https://[::1]/c": false, "https://localhost/c": false, "https://2130706433/c": false,
		"https://0x7f.1/c": false, "https://0x7f000001/c": false, "https://127.1/c": false, "https://017700000001/c": false, "https://claude.ai./c": false, "https://claude.ai:/c": false,
		"https://cla\u0443de.ai/c": false, "https://claude.ai/c d": false, "https:///c": false, "https:claude.ai/c": false, "//claude.ai/c": false, "https://[fe80::1%25eth0]/c": false,
		"https://claude.ai/" + strings.Repeat("x", 400): false, "https://-x.org/c": false, "https://a..org/c": false, "https://claude.ai\t/c": false, "https://1.2.3.4.5/c": false,
	} {
		if _, err := checkDocumentID(id); (err == nil) != ok {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func TestPublicAddresses(t *testing.T) {
	for text, ok := range map[string]bool{
		"8.8.8.8": true, "160.79.104.10": true, "2606:4700::1111": true, "2a00:1450:4001::1": true, "::ffff:8.8.8.8": true,
		"127.0.0.1": false, "127.9.9.9": false, "10.1.2.3": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false, "169.254.169.254": false, "0.0.0.0": false, "0.1.2.3": false,
		"100.64.0.1": false, "100.127.255.255": false, "192.0.0.8": false, "192.0.2.1": false, "192.88.99.1": false, "198.18.0.1": false, "198.19.255.255": false, "198.51.100.1": false, "203.0.113.1": false,
		"224.0.0.1": false, "240.0.0.1": false, "255.255.255.255": false,
		"::1": false, "::": false, "fe80::1": false, "fe80::1%eth0": false, "fc00::1": false, "fd12::1": false, "fec0::1": false, "ff02::1": false, "::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false,
		"::ffff:169.254.169.254": false, "::127.0.0.1": false, "64:ff9b::7f00:1": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b:1::1": false, "2002:7f00:1::": false, "2002:a00:1::1": false,
		"2001::1": false, "2001:db8::1": false, "2001:10::1": false, "2001:20::1": false, "3fff::1": false, "100::1": false, "5f00::1": false, "4000::1": false, "2606:4700::1%eth0": false,
	} {
		if got := isPublic(netip.MustParseAddr(text)); got != ok {
			t.Errorf("%s: public %v", text, got)
		}
	}
	if isPublic(netip.Addr{}) {
		t.Error("no address is public")
	}
}

func TestNoWayToPrivateAddresses(t *testing.T) {
	s := newSite(t)
	s.does(give(doc("https://example.com/c", "https://example.com/cb")))
	for name, addresses := range map[string][]string{
		"loopback": {"127.0.0.1"}, "mapped": {"::ffff:127.0.0.1"}, "loopback 6": {"::1"}, "private": {"10.0.0.1"}, "link-local": {"169.254.169.254"}, "link-local 6": {"fe80::1"},
		"unique local": {"fd00::1"}, "translated": {"64:ff9b::7f00:1"}, "one of two": {"8.8.8.8", "127.0.0.1"}, "the other": {"127.0.0.1", "8.8.8.8"}, "unspecified": {"0.0.0.0"}, "none": nil,
	} {
		var list []netip.Addr
		for _, a := range addresses {
			list = append(list, netip.MustParseAddr(a))
		}
		f := Fetch{Roots: s.roots(), Lookup: func(context.Context, string) ([]netip.Addr, error) { return list, nil }}
		start := time.Now()
		_, _, err := f.get(ctx, f.client(), "https://example.com/c")
		if err == nil || addresses != nil && !errors.Is(err, errForbiddenAddress) || time.Since(start) > time.Second {
			t.Errorf("%s: %v after %v", name, err, time.Since(start))
		}
	}
	// A name that answers well first and then otherwise: what is connected to is what was checked.
	n := 0
	f := Fetch{Roots: s.roots(), Lookup: func(context.Context, string) ([]netip.Addr, error) {
		n++
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}, Permit: func(ap netip.AddrPort) bool { n += 100; return n < 200 }}
	if _, _, err := f.get(ctx, f.client(), s.id("/c")); !errors.Is(err, errForbiddenAddress) {
		t.Errorf("the connection itself is not checked: %v", err)
	}
	// Other ports are closed too.
	f = Fetch{Roots: s.roots(), Lookup: func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("8.8.8.8")}, nil
	}}
	if _, _, err := f.get(ctx, f.client(), "https://example.com:22/c"); !errors.Is(err, errForbiddenAddress) {
		t.Errorf("port 22: %v", err)
	}
	if s.asked.Load() != 0 {
		t.Errorf("the listener was asked %d times", s.asked.Load())
	}
	// A certificate of somebody else is none.
	f = s.fetch()
	f.Roots = nil
	if _, _, err := f.get(ctx, f.client(), s.id("/c")); err == nil {
		t.Error("a certificate of nobody is taken")
	}
}

func TestKeepFor(t *testing.T) {
	for _, tt := range []struct {
		headers []string
		want    time.Duration
	}{
		{nil, keepUsually}, {[]string{"Cache-Control", "max-age=60"}, time.Minute}, {[]string{"Cache-Control", "public, Max-Age=\"60\""}, time.Minute},
		{[]string{"Cache-Control", "max-age=60", "Age", "20"}, 40 * time.Second}, {[]string{"Cache-Control", "max-age=60", "Age", "200"}, 0},
		{[]string{"Cache-Control", "no-store"}, 0}, {[]string{"Cache-Control", "max-age=60, no-cache"}, 0}, {[]string{"Cache-Control", "max-age=999999999"}, keepAtMost},
		{[]string{"Cache-Control", "max-age=-1"}, 0}, {[]string{"Cache-Control", "max-age=x"}, 0}, {[]string{"Cache-Control", "private"}, keepUsually},
		{[]string{"Expires", "0"}, 0}, {[]string{"Date", "Sun, 06 Nov 1994 08:49:37 GMT", "Expires", "Sun, 06 Nov 1994 08:50:37 GMT"}, time.Minute},
		{[]string{"Date", "Sun, 06 Nov 1994 08:49:37 GMT", "Expires", "Sun, 06 Nov 1994 08:40:37 GMT"}, 0},
	} {
		h := http.Header{}
		for i := 0; i+1 < len(tt.headers); i += 2 {
			h.Set(tt.headers[i], tt.headers[i+1])
		}
		if got := keepFor(h); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.headers, got, tt.want)
		}
	}
}
