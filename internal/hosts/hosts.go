// Package hosts finds the addresses of the machines that settings name, as an address, a network or a name.
package hosts

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"
)

const (
	again  = 5 * time.Minute // names are looked up so often
	limit  = 2 * time.Second // and whoever asks waits so long for it
	mostOf = 32              // addresses of one name
)

// Config of a Book.
type Config struct {
	// Hosts are "host", "host:port", "[address]:port", URLs, or networks of one address; empty ones and larger networks name
	// nobody.
	Hosts []string
	// Lookup gives the addresses of a name; the system's resolver when it is nil.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// Now is the clock; the system's when it is nil.
	Now func() time.Time
}

// Book knows the addresses of some hosts. It is safe for concurrent use; a nil Book knows none.
type Book struct {
	c     Config
	fixed []netip.Addr
	names []string

	mu sync.Mutex
	at time.Time
	of map[string][]netip.Addr // by name
}

// New makes a Book. Nothing is looked up before it is asked.
func New(c Config) *Book {
	if c.Lookup == nil {
		c.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	b := &Book{c: c, of: map[string][]netip.Addr{}}
	for _, text := range c.Hosts {
		host := Of(text)
		if a, err := netip.ParseAddr(host); err == nil {
			b.fixed = append(b.fixed, a)
		} else if p, err := netip.ParsePrefix(text); err == nil {
			if p.IsSingleIP() {
				b.fixed = append(b.fixed, p.Addr())
			}
		} else if host != "" && !slices.Contains(b.names, host) {
			b.names = append(b.names, host)
		}
	}
	return b
}

// Of is the host of "host", "host:port", "[address]:port" or a URL.
func Of(text string) string {
	if u, err := url.Parse(text); err == nil && u.Host != "" {
		return u.Hostname()
	}
	if host, _, err := net.SplitHostPort(text); err == nil {
		return host
	}
	if len(text) > 2 && text[0] == '[' && text[len(text)-1] == ']' {
		return text[1 : len(text)-1]
	}
	return text
}

// Addresses gives each address once, those of IPv4 as such, without zones. A name that cannot be looked up keeps the
// addresses that it had; one that never could be has none.
func (b *Book) Addresses(ctx context.Context) (out []netip.Addr) {
	if b == nil {
		return nil
	}
	add := func(list []netip.Addr) {
		for _, a := range list {
			if a = a.Unmap().WithZone(""); !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	add(b.fixed)
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := b.c.Now(); len(b.names) > 0 && (b.at.IsZero() || now.Sub(b.at) > again || now.Before(b.at)) {
		b.look(ctx)
		b.at = now
	}
	for _, name := range slices.Sorted(maps.Keys(b.of)) {
		add(b.of[name])
	}
	return out
}

// look asks for all names at once.
func (b *Book) look(ctx context.Context) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer done()
	found := make([][]netip.Addr, len(b.names))
	var wait sync.WaitGroup
	for i, name := range b.names {
		wait.Go(func() {
			list, err := b.c.Lookup(ctx, name)
			if err == nil {
				found[i] = list[:min(len(list), mostOf)]
			}
		})
	}
	wait.Wait()
	for i, name := range b.names {
		if len(found[i]) > 0 {
			b.of[name] = found[i]
		}
	}
}
