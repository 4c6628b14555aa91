package reach

import (
	"fmt"
	"net/netip"
)

// Settings say what castellan itself depends on, beside what it finds out: changes of it take a passkey, whatever else
// the policy says. Empty lists say nothing.
type Settings struct {
	Guests    []string `toml:"guests"`    // guests that it depends on, "101" or "target:101": its own, its reverse proxy, its identity provider, where alerts go
	Nodes     []string `toml:"nodes"`     // nodes on which it runs itself, without a guest
	Storages  []string `toml:"storages"`  // storages that hold its state, its backups or its anchors
	Operators []string `toml:"operators"` // addresses or networks from which people must always get in to nodes, "10.0.0.0/24"
}

// Self reads the settings.
func (s Settings) Self() (Self, error) {
	out := Self{Guests: s.Guests, Nodes: s.Nodes, Storages: s.Storages}
	for _, text := range s.Operators {
		p, err := netip.ParsePrefix(text)
		if a, ok := netip.ParseAddr(text); err != nil && ok == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return Self{}, fmt.Errorf("read self.operators: %q is neither an address nor a network", text)
		}
		out.Operators = append(out.Operators, p.Masked())
	}
	return out, nil
}
