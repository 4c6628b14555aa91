package reach

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// span is a run of addresses of one family, both ends in it.
type span struct{ from, to netip.Addr }

func spanOf(p netip.Prefix) span {
	p = p.Masked()
	end := p.Addr().AsSlice()
	for i := p.Bits(); i < len(end)*8; i++ {
		end[i/8] |= 1 << (7 - i%8)
	}
	last, _ := netip.AddrFromSlice(end) // of the same length, so it is one
	return span{p.Addr(), last}
}

// parseSpan reads an address, a network or "from-to".
func parseSpan(text string) (span, bool) {
	text = strings.TrimSpace(text)
	if from, to, ranged := strings.Cut(text, "-"); ranged {
		a, err1 := netip.ParseAddr(from)
		b, err2 := netip.ParseAddr(to)
		return span{a, b}, err1 == nil && err2 == nil && a.BitLen() == b.BitLen() && a.Compare(b) <= 0
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return spanOf(p), true
	}
	a, err := netip.ParseAddr(text)
	return span{a, a}, err == nil
}

func (s span) has(a netip.Addr) bool {
	return a.BitLen() == s.from.BitLen() && s.from.Compare(a) <= 0 && a.Compare(s.to) <= 0
}

func (s span) String() string {
	switch {
	case s.from == s.to:
		return s.from.String()
	case s.from == netip.IPv4Unspecified() && s == spanOf(netip.PrefixFrom(s.from, 0)):
		return "every IPv4 address"
	case s.from == netip.IPv6Unspecified() && s == spanOf(netip.PrefixFrom(s.from, 0)):
		return "every IPv6 address"
	}
	for bits := range s.from.BitLen() {
		if s == spanOf(netip.PrefixFrom(s.from, bits)) {
			return netip.PrefixFrom(s.from, bits).String()
		}
	}
	return s.from.String() + "-" + s.to.String()
}

// wide says whether a span is more than a site's own network: 65536 IPv4 addresses or a /32 of IPv6.
func (s span) wide() bool {
	bits := 16
	if s.from.Is6() {
		bits = 96
	}
	from, to := s.from.AsSlice(), s.to.AsSlice()
	for i := range (len(from)*8 - bits) / 8 {
		if from[i] != to[i] {
			return true
		}
	}
	return spanOf(netip.PrefixFrom(s.from, s.from.BitLen()-bits)) == s
}

// vast says whether a span is an eighth of all addresses or more.
func (s span) vast() bool {
	return s.to.AsSlice()[0]-s.from.AsSlice()[0] >= 32
}

// atoms cuts all addresses at the ends of the spans: within an atom, no set tells two addresses apart.
func atoms(spans []span) []span {
	var out []span
	for _, all := range []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)} {
		whole := spanOf(all)
		cuts := []netip.Addr{whole.from}
		for _, s := range spans {
			if s.from.BitLen() != whole.from.BitLen() {
				continue
			}
			cuts = append(cuts, s.from)
			if next := s.to.Next(); next.IsValid() {
				cuts = append(cuts, next)
			}
		}
		slices.SortFunc(cuts, netip.Addr.Compare)
		cuts = slices.Compact(cuts)
		for i, from := range cuts {
			to := whole.to
			if i+1 < len(cuts) {
				to = cuts[i+1].Prev()
			}
			out = append(out, span{from, to})
		}
	}
	return out
}

// join puts neighbours together.
func join(spans []span) []span {
	var out []span
	for _, s := range spans {
		if n := len(out); n > 0 && out[n-1].to.Next() == s.from && out[n-1].to.BitLen() == s.from.BitLen() {
			out[n-1].to = s.to
			continue
		}
		out = append(out, s)
	}
	return out
}

func spansText(spans []span) string {
	var out []string
	var v4, v6 []span
	for _, s := range join(spans) {
		if s.from.Is4() {
			v4 = append(v4, s)
		} else {
			v6 = append(v6, s)
		}
	}
	for _, family := range [][]span{v4, v6} {
		if len(family) > 1 && slices.ContainsFunc(family, span.vast) {
			out = append(out, "almost every "+map[bool]string{true: "IPv4", false: "IPv6"}[family[0].from.Is4()]+" address")
			continue
		}
		for _, s := range family {
			out = append(out, s.String())
		}
	}
	const most = 4
	if len(out) > most {
		return fmt.Sprintf("%s and %d more ranges", strings.Join(out[:most], ", "), len(out)-most)
	}
	return strings.Join(out, ", ")
}
