package channel

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

const (
	barredAgain   = 5 * time.Minute // names are looked up so often
	resolveLimit  = 2 * time.Second
	mostAddressOf = 32 // of one name
)

// barred are the addresses of what castellan itself works through: an address that a guest reports is no reason to connect there.
type barred struct {
	hosts  []string // "host", "host:port", URLs
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)

	mu sync.Mutex
	at time.Time
	of map[string][]netip.Addr // by host; of a name that cannot be looked up what it was
}

// addresses gives them; names that nobody can look up are not known.
func (b *barred) addresses(ctx context.Context, now time.Time) (out []netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil || now.Sub(b.at) > barredAgain || now.Before(b.at) {
		b.look(ctx)
		b.at = now
	}
	for _, list := range b.of {
		out = append(out, list...)
	}
	return out
}

func (b *barred) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveLimit)
	defer cancel()
	if b.of == nil {
		b.of = map[string][]netip.Addr{}
	}
	type found struct {
		host string
		at   []netip.Addr
	}
	all := make(chan found, len(b.hosts))
	for _, text := range b.hosts {
		host := hostOf(text)
		if a, err := netip.ParseAddr(host); err == nil {
			all <- found{text, []netip.Addr{a.Unmap().WithZone("")}}
			continue
		}
		go func() {
			list, err := b.lookup(ctx, host)
			if err != nil {
				list = nil
			}
			all <- found{text, list[:min(len(list), mostAddressOf)]}
		}()
	}
	for range b.hosts {
		f := <-all
		for i, a := range f.at {
			f.at[i] = a.Unmap()
		}
		if len(f.at) > 0 {
			b.of[f.host] = f.at
		}
	}
}

// hostOf is the host of "host", "host:port", "[address]:port" or a URL.
func hostOf(text string) string {
	if _, rest, ok := strings.Cut(text, "://"); ok {
		text, _, _ = strings.Cut(rest, "/")
		text = text[strings.LastIndexByte(text, '@')+1:]
	}
	if host, _, err := net.SplitHostPort(text); err == nil {
		return host
	}
	return strings.Trim(text, "[]")
}

// resolve looks a name up.
func resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
