package channel

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// mostAddresses bounds the addresses of one guest that are tried.
const mostAddresses = 8

// Forbidden says why castellan never connects to an address, whoever names it; empty where it may. own are the addresses of
// castellan's own machine.
func Forbidden(a netip.Addr, own []netip.Addr) string {
	a = a.Unmap()
	switch {
	case !a.IsValid():
		return "it is no address"
	case a.IsLoopback():
		return "it is a loopback address"
	case a.IsLinkLocalUnicast() || a.Zone() != "":
		return "it is a link-local address"
	case a.IsMulticast() || a.IsUnspecified() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || a.Is4() && a.As4()[0] == 0:
		return "it is the address of no single machine"
	case slices.Contains(own, a):
		return "it is an address of castellan's own machine"
	}
	return ""
}

// ownAddresses are those of this machine.
func ownAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("read own addresses: %w", err)
	}
	var out []netip.Addr
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out, nil
}

// Route is the address from which this machine would reach another. Nothing is sent.
func Route(to netip.Addr) (netip.Addr, error) {
	c, err := net.Dial("udp", netip.AddrPortFrom(to, 22).String())
	if err != nil {
		return netip.Addr{}, fmt.Errorf("look for the route to %s: %w", to, err)
	}
	defer c.Close()
	at, ok := c.LocalAddr().(*net.UDPAddr)
	if !ok {
		return netip.Addr{}, fmt.Errorf("look for the route to %s: it has no address", to)
	}
	return at.AddrPort().Addr().Unmap(), nil
}
