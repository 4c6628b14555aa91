package reach

import (
	"net/netip"
	"slices"
	"strings"

	"castellan/internal/estate"
)

// A ruleset is what Proxmox makes of a scope's settings for connections that come in over TCP: the scope's own rules,
// those of the site after them (nodes only), what is let in for management whatever the rules say not about it (nodes
// only), and the policy. The newer engine looks at management before the rules; taking them in the older order is the
// more careful reading of both.
type ruleset struct {
	on     bool // filtered at all
	rules  []estate.Config
	groups map[string][]estate.Config
	sets   *addressSets
	here   []netip.Addr // the filtered side's own addresses; none = not known
	host   bool
	policy string // policy_in; "" is DROP
	// policyOut and policyForward are what becomes of connections that go out or through; "" is ACCEPT.
	policyOut, policyForward string
	local                    []span // the networks of the cluster, which are let in for management; with none known the outcome is unknown
	nolan                    bool   // they could not be found out
}

// verdict is a set: what can happen to a connection, as far as it is known.
type verdict uint8

const (
	accepted verdict = 1 << iota
	refused
)

func (v verdict) String() string {
	switch v {
	case accepted:
		return "let in"
	case refused:
		return "refused"
	}
	return "perhaps let in"
}

// answer says whether a rule fits.
type answer uint8

const (
	no answer = iota
	perhaps
	yes
)

func (a answer) and(b answer) answer { return min(a, b) }

// judge evaluates a new TCP connection from an address to a port.
func (f *ruleset) judge(from netip.Addr, port uint16) verdict {
	if !f.on || from.IsLoopback() {
		return accepted
	}
	v, open := f.pass(f.rules, from, port, 0)
	if !open {
		return v
	}
	if f.host && managementPort(port) {
		switch {
		case f.sets.has("management", from) || slices.ContainsFunc(f.local, func(s span) bool { return s.has(from) }):
			return v | accepted
		case f.nolan:
			v |= accepted
		}
	}
	if strings.EqualFold(f.policy, "ACCEPT") {
		return v | accepted
	}
	return v | refused
}

func managementPort(p uint16) bool {
	return p == 8006 || p == 22 || p == 3128 || p >= 5900 && p <= 5999
}

// pass goes through rules; open says whether a connection can come to their end.
func (f *ruleset) pass(rules []estate.Config, from netip.Addr, port uint16, depth int) (v verdict, open bool) {
	for _, r := range rules {
		if !r.On("enable") || r["errors"] != "" {
			continue
		}
		fits := f.fits(r, from, port)
		if fits == no {
			continue
		}
		switch r["type"] {
		case "in":
			switch r["action"] {
			case "ACCEPT":
				v |= accepted
			case "DROP", "REJECT":
				v |= refused
			default:
				v |= accepted | refused
			}
			if fits == yes {
				return v, false
			}
		case "group":
			if depth > 0 {
				continue
			}
			inner, through := f.pass(f.groups[r["action"]], from, port, depth+1)
			v |= inner
			if fits == yes && !through {
				return v, false
			}
		}
	}
	return v, true
}

func (f *ruleset) fits(r estate.Config, from netip.Addr, port uint16) answer {
	out := yes
	if r["iface"] != "" || r["sport"] != "" {
		out = perhaps
	}
	out = out.and(f.sets.fits(r["source"], []netip.Addr{from}))
	if r["dest"] != "" {
		if len(f.here) == 0 {
			out = out.and(perhaps)
		} else {
			out = out.and(f.sets.fits(r["dest"], f.here))
		}
	}
	if r["macro"] != "" {
		ports, known := macroPorts(r["macro"])
		switch {
		case !known || r["dport"] != "" || r["proto"] != "":
			return out.and(perhaps)
		default:
			return out.and(portFits(ports, port))
		}
	}
	switch r["proto"] {
	case "", "all", "any":
	case "tcp", "6":
	default:
		return no
	}
	if r["dport"] != "" {
		out = out.and(portFits(r["dport"], port))
	}
	return out
}

func portFits(text string, port uint16) answer {
	out := no
	for _, part := range list(text) {
		from, to, ranged := strings.Cut(part, ":")
		a, known := portOf(from)
		b := a
		if ranged {
			var k bool
			b, k = portOf(to)
			known = known && k
		}
		switch {
		case !known:
			out = max(out, perhaps)
		case a <= int64(port) && int64(port) <= b:
			return yes
		}
	}
	return out
}

func portOf(text string) (int64, bool) {
	if text != "" && strings.Trim(text, "0123456789") == "" && len(text) <= 5 {
		return number(text), true
	}
	p, ok := map[string]int64{"ssh": 22, "http": 80, "https": 443, "telnet": 23, "smtp": 25, "domain": 53, "sunrpc": 111, "ldap": 389, "ldaps": 636, "microsoft-ds": 445, "mysql": 3306, "ms-wbt-server": 3389, "postgresql": 5432, "redis": 6379}[strings.ToLower(text)]
	return p, ok
}

// addressSets are the names that rules can use for addresses in a scope; the inner scope comes first.
type addressSets struct {
	aliases map[string]span     // by lower-case name
	sets    map[string][]member // of each name
	outer   *addressSets        // the site's, seen from a guest
}

type member struct {
	cidr string
	not  bool
}

func newAddressSets() *addressSets {
	return &addressSets{aliases: map[string]span{}, sets: map[string][]member{}}
}

func (a *addressSets) alias(name string) (span, bool) {
	name = strings.ToLower(name)
	plain := strings.TrimPrefix(strings.TrimPrefix(name, "dc/"), "guest/")
	for at := a; at != nil; at = at.outer {
		if strings.HasPrefix(name, "dc/") && at.outer != nil {
			continue
		}
		if s, ok := at.aliases[plain]; ok {
			return s, true
		}
	}
	return span{}, false
}

func (a *addressSets) set(name string) ([]member, bool) {
	plain := strings.TrimPrefix(strings.TrimPrefix(name, "dc/"), "guest/")
	for at := a; at != nil; at = at.outer {
		if strings.HasPrefix(name, "dc/") && at.outer != nil {
			continue
		}
		if m, ok := at.sets[plain]; ok {
			return m, true
		}
	}
	return nil, false
}

// spanOf resolves one element that is no set.
func (a *addressSets) spanOf(text string) (span, bool) {
	if s, ok := parseSpan(text); ok {
		return s, true
	}
	return a.alias(text)
}

func (a *addressSets) has(set string, addr netip.Addr) bool {
	members, _ := a.set(set)
	in := false
	for _, m := range members {
		if s, ok := a.spanOf(m.cidr); ok && s.has(addr) {
			if m.not {
				return false
			}
			in = true
		}
	}
	return in
}

// fits says whether one of the addresses is meant by a rule's source or dest; "" means every one.
func (a *addressSets) fits(text string, addrs []netip.Addr) answer {
	if text == "" {
		return yes
	}
	hit := 0
	for _, addr := range addrs {
		for _, e := range list(text) {
			if name, isSet := strings.CutPrefix(e, "+"); isSet {
				if a.has(name, addr) {
					hit++
					break
				}
				continue
			}
			if s, ok := a.spanOf(e); ok && s.has(addr) {
				hit++
				break
			}
		}
	}
	switch hit {
	case 0:
		return no
	case len(addrs):
		return yes
	}
	return perhaps
}

// spans lists all addresses that the names stand for.
func (a *addressSets) spans() (out []span) {
	for at := a; at != nil; at = at.outer {
		for _, s := range at.aliases {
			out = append(out, s)
		}
		for _, members := range at.sets {
			for _, m := range members {
				if s, ok := a.spanOf(m.cidr); ok {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// spans are all runs of addresses that the ruleset tells apart.
func (f *ruleset) spans() []span {
	out := append(f.sets.spans(), f.local...)
	take := func(rules []estate.Config) {
		for _, r := range rules {
			for _, e := range list(r["source"]) {
				if s, ok := f.sets.spanOf(strings.TrimPrefix(e, "+")); ok {
					out = append(out, s)
				}
			}
		}
	}
	take(f.rules)
	for _, g := range f.groups {
		take(g)
	}
	return out
}

// macroPorts gives the TCP ports of a macro; "" for one that has none.
func macroPorts(name string) (string, bool) {
	ports, ok := map[string]string{
		"amanda": "10080", "auth": "113", "bgp": "179", "bittorrent": "6881:6889", "bittorrent32": "6881:6999", "cvs": "2401", "ceph": "3300,6789,6800:7300", "citrix": "1494,2598", "daap": "3689", "dcc": "",
		"dhcpfwd": "", "dhcpv6": "", "dns": "53", "distcc": "3632", "ftp": "21", "finger": "79", "gnunet": "2086", "gre": "", "git": "9418", "hkp": "11371", "http": "80", "https": "443", "icpv2": "", "icq": "5190",
		"imap": "143", "imaps": "993", "ipip": "", "ipsec": "", "ipsecah": "", "ipsecnat": "", "irc": "6667", "jetdirect": "9100", "l2tp": "", "ldap": "389", "ldaps": "636", "mdns": "", "msnp": "1863", "mssql": "1433",
		"mail": "25,465,587", "munin": "4949", "mysql": "3306", "nntp": "119", "nntps": "563", "ntp": "", "neighbordiscovery": "", "ospf": "", "openvpn": "", "pca": "5631", "pmg": "8006", "pop3": "110", "pop3s": "995",
		"pptp": "1723", "ping": "", "postgresql": "5432", "printer": "515", "rdp": "3389", "rip": "", "rndc": "953", "razor": "2703", "rdate": "37", "rsync": "873", "sane": "6566", "smb": "135,139,445", "smbswat": "901",
		"smtp": "25", "smtps": "465", "snmp": "161,162", "spamd": "783", "spiceproxy": "3128", "ssh": "22", "svn": "3690", "sixxs": "3874", "squid": "3128", "submission": "587", "syslog": "514", "tftp": "", "telnet": "23",
		"telnets": "992", "time": "37", "trcrt": "", "vnc": "5900:5999", "vncl": "5500", "web": "80,443", "webcache": "8080", "webmin": "10000", "whois": "43",
	}[strings.ToLower(name)]
	return ports, ok
}
