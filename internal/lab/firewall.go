package lab

import (
	"net/netip"
	"strings"
)

// firewall is one scope's configuration: cluster, node, guest or vnet.
type firewall struct {
	options M
	rules   []M
	aliases map[string]M // by lower-case name
	ipsets  map[string]*ipset
}

type fwGroup struct {
	comment string
	rules   []M
}

type ipset struct {
	comment string
	members []M
}

func newFirewall() *firewall {
	return &firewall{options: M{}, aliases: map[string]M{}, ipsets: map[string]*ipset{}}
}

// fwScope finds the firewall of the path.
func (c *call) fwScope() *firewall {
	key := "cluster"
	switch {
	case strings.Contains(c.op.Path, "/{vmid}/"):
		key = "guest/" + c.str("vmid")
	case strings.HasPrefix(c.op.Path, "/nodes/"):
		key = "node/" + c.node.name
	case strings.HasPrefix(c.op.Path, "/cluster/sdn/vnets/"):
		key = "vnet/" + c.str("vnet")
	}
	if c.s.fw[key] == nil {
		c.s.fw[key] = newFirewall()
	}
	return c.s.fw[key]
}

func listDigest(list []M) string {
	if len(list) == 0 {
		return digestOf("")
	}
	var b strings.Builder
	for _, m := range list {
		b.WriteString(digestMap(m))
	}
	return digestOf(b.String())
}

func (c *call) sameDigest(now string) error {
	if d := c.str("digest"); d != "" && d != now {
		return die(msgModified)
	}
	return nil
}

// ruleList points at the rules of the path: a scope's own or a group's.
func (c *call) ruleList() (*[]M, error) {
	if strings.HasPrefix(c.op.Path, "/cluster/firewall/groups/{group}") {
		g := c.s.fwGroups[c.str("group")]
		if g == nil {
			return nil, die("security group '%s' does not exist", c.str("group"))
		}
		return &g.rules, nil
	}
	return &c.fwScope().rules, nil
}

// shownRule adds what a reader gets beside the stored keys.
func (c *call) shownRule(r M, pos any, digest string) M {
	m := copyM(r)
	m["pos"], m["digest"] = pos, digest
	errs := M{}
	version := 0
	for _, k := range []string{"source", "dest"} {
		v, _ := r[k].(string)
		if v == "" {
			continue
		}
		first, _, _ := strings.Cut(v, ",")
		if ip := ipVersion(first); ip != 0 {
			version = ip
		}
		if name, ok := strings.CutPrefix(v, "+"); ok {
			if c.findIPSet(name) == nil {
				errs[k] = "no such ipset '" + name + "'"
			}
		} else if ipVersion(first) == 0 {
			a := c.findAlias(v)
			if a == nil {
				errs[k] = "no such alias '" + v + "'"
			} else if n, ok := a["ipversion"].(int); ok {
				version = n
			}
		}
	}
	if version != 0 && len(errs) == 0 {
		m["ipversion"] = version
	}
	if len(errs) > 0 {
		m["errors"] = errs
	}
	return m
}

func ipVersion(v string) int {
	from, _, _ := strings.Cut(v, "-")
	a, err := netip.ParseAddr(from)
	if err != nil {
		p, err := netip.ParsePrefix(from)
		if err != nil {
			return 0
		}
		a = p.Addr()
	}
	if a.Is4() {
		return 4
	}
	return 6
}

func (c *call) scopes() []*firewall {
	out := []*firewall{c.fwScope()}
	if cl := c.s.fw["cluster"]; cl != nil && cl != out[0] {
		out = append(out, cl)
	}
	return out
}

func (c *call) findAlias(name string) M {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "dc/"), "guest/")
	for _, f := range c.scopes() {
		if a := f.aliases[strings.ToLower(name)]; a != nil {
			return a
		}
	}
	return nil
}

func (c *call) findIPSet(name string) *ipset {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "dc/"), "guest/")
	for _, f := range c.scopes() {
		if s := f.ipsets[name]; s != nil {
			return s
		}
	}
	return nil
}

func listRules(c *call) (any, error) {
	rules, err := c.ruleList()
	if err != nil {
		return nil, err
	}
	out := []M{}
	d := listDigest(*rules)
	for i, r := range *rules {
		out = append(out, c.shownRule(r, i, d))
	}
	return out, nil
}

func getRule(c *call) (any, error) {
	rules, err := c.ruleList()
	if err != nil {
		return nil, err
	}
	pos := c.num("pos")
	if pos < 0 || pos >= len(*rules) {
		return nil, die("no rule at position %d", pos)
	}
	m := c.shownRule((*rules)[pos], c.str("pos"), listDigest(*rules))
	return m, nil
}

// fillRule takes a rule's keys from the parameters and checks what the schema cannot.
func (c *call) fillRule(r M) error {
	for k := range c.p {
		switch k {
		case "node", "vmid", "group", "pos", "digest", "delete", "moveto", "vnet":
			continue
		}
		if c.has(k) {
			r[k] = c.typedParam(k)
		}
	}
	typ, _ := r["type"].(string)
	action, _ := r["action"].(string)
	if typ == "in" || typ == "out" || typ == "forward" {
		if !contains([]string{"ACCEPT", "DROP", "REJECT"}, action) {
			return bad("action", "unknown action '%s'", action)
		}
	}
	if typ == "group" && !fwGroupName(action) {
		return bad("action", "invalid characters in security group name")
	}
	proto, _ := r["proto"].(string)
	_, macro := r["macro"]
	for _, k := range []string{"dport", "sport"} {
		if v, ok := r[k].(string); ok && v != "" && proto == "" && !macro {
			return bad("proto", "missing property - '%s' requires this property", k)
		}
		if v, ok := r[k].(string); ok && v != "" && proto != "" && !contains([]string{"tcp", "udp", "udplite", "sctp", "dccp", "6", "17"}, proto) && !strings.HasPrefix(proto, "icmp") {
			return bad(k, "protocol '%s' does not support ports", proto)
		}
	}
	if m, ok := r["macro"].(string); ok && !knownMacro(m) {
		return bad("macro", "unknown macro '%s'", m)
	}
	vs, vd := 0, 0
	if s, ok := r["source"].(string); ok {
		vs = ipVersion(strings.SplitN(s, ",", 2)[0])
	}
	if d, ok := r["dest"].(string); ok {
		vd = ipVersion(strings.SplitN(d, ",", 2)[0])
	}
	if vs != 0 && vd != 0 && vs != vd {
		return bad("dest", "detected mixed ipv4/ipv6 adresses in rule")
	}
	return nil
}

func fwGroupName(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	}) < 0
}

func knownMacro(m string) bool {
	for _, k := range macroNames() {
		if strings.EqualFold(k, m) {
			return true
		}
	}
	return false
}

func macroNames() []string {
	return strings.Fields("Amanda Auth BGP BitTorrent BitTorrent32 CVS Ceph Citrix DAAP DCC DHCPfwd DHCPv6 DNS Distcc FTP Finger GNUnet GRE Git HKP HTTP HTTPS ICPV2 ICQ IMAP IMAPS IPIP IPsec IPsecah IPsecnat IRC Jetdirect L2TP LDAP LDAPS MDNS MSNP MSSQL Mail Munin MySQL NNTP NNTPS NTP NeighborDiscovery OSPF OpenVPN PCA PMG POP3 POP3S PPtP Ping PostgreSQL Printer RDP RIP RNDC Razor Rdate Rsync SANE SMB SMBswat SMTP SMTPS SNMP SPAMD SPICEproxy SSH SVN SixXS Squid Submission Syslog TFTP Telnet Telnets Time Trcrt VNC VNCL Web Webcache Webmin Whois")
}

func createRule(c *call) (any, error) {
	rules, err := c.ruleList()
	if err != nil {
		return nil, err
	}
	if err := c.sameDigest(listDigest(*rules)); err != nil {
		return nil, err
	}
	r := M{"enable": 0}
	if err := c.fillRule(r); err != nil {
		return nil, err
	}
	if r["enable"] == nil {
		r["enable"] = 0
	}
	*rules = append([]M{r}, *rules...)
	return nil, nil
}

func updateRule(c *call) (any, error) {
	rules, err := c.ruleList()
	if err != nil {
		return nil, err
	}
	if err := c.sameDigest(listDigest(*rules)); err != nil {
		return nil, err
	}
	pos, list := c.num("pos"), *rules
	if pos < 0 || pos >= len(list) {
		return nil, die("no rule at position %d", pos)
	}
	if c.has("moveto") {
		to := c.num("moveto")
		r := list[pos]
		var out []M
		for i, x := range list {
			if i == to {
				out = append(out, r)
			}
			if i != pos {
				out = append(out, x)
			}
		}
		if to >= len(list) {
			out = append(out, r)
		}
		*rules = out
		return nil, nil
	}
	r := copyM(list[pos])
	for _, k := range splitList(c.str("delete")) {
		if k == "type" || k == "action" {
			return nil, bad("delete", "unable to delete required property '%s'", k)
		}
		delete(r, k)
	}
	if err := c.fillRule(r); err != nil {
		return nil, err
	}
	list[pos] = r
	return nil, nil
}

func deleteRule(c *call) (any, error) {
	rules, err := c.ruleList()
	if err != nil {
		return nil, err
	}
	if err := c.sameDigest(listDigest(*rules)); err != nil {
		return nil, err
	}
	pos, list := c.num("pos"), *rules
	if pos < 0 || pos >= len(list) {
		return nil, die("no rule at position %d", pos)
	}
	*rules = append(list[:pos:pos], list[pos+1:]...)
	return nil, nil
}

func fwOptions(c *call) (any, error) {
	m := copyM(c.fwScope().options)
	d := digestOf("")
	if len(m) > 0 {
		d = digestMap(m)
	}
	m["digest"] = d
	return m, nil
}

func setFWOptions(c *call) (any, error) {
	f := c.fwScope()
	d := digestOf("")
	if len(f.options) > 0 {
		d = digestMap(f.options)
	}
	if err := c.sameDigest(d); err != nil {
		return nil, err
	}
	for _, k := range splitList(c.str("delete")) {
		if lookup(c.op.Params, k) == nil {
			return nil, bad("delete", "no such option '%s'", k)
		}
		delete(f.options, k)
	}
	for k := range c.p {
		switch k {
		case "node", "vmid", "digest", "delete", "vnet":
		default:
			f.options[k] = c.typedParam(k)
		}
	}
	return nil, nil
}

func listFWGroups(c *call) (any, error) {
	out := []M{}
	for _, k := range sortedKeys(c.s.fwGroups) {
		m := M{"group": k}
		if t := c.s.fwGroups[k].comment; t != "" {
			m["comment"] = t
		}
		out = append(out, m)
	}
	d := listDigest(out)
	for _, m := range out {
		m["digest"] = d
	}
	return out, nil
}

func createFWGroup(c *call) (any, error) {
	name := c.str("group")
	if old := c.str("rename"); old != "" {
		g := c.s.fwGroups[old]
		if g == nil {
			return nil, bad("rename", "Security group '%s' does not exist", old)
		}
		if old != name && c.s.fwGroups[name] != nil {
			return nil, bad("group", "Security group '%s' already exists", name)
		}
		delete(c.s.fwGroups, old)
		c.s.fwGroups[name] = g
		g.comment = c.str("comment")
		return nil, nil
	}
	if c.s.fwGroups[name] != nil {
		return nil, bad("group", "Security group '%s' already exists", name)
	}
	c.s.fwGroups[name] = &fwGroup{comment: c.str("comment")}
	return nil, nil
}

func deleteFWGroup(c *call) (any, error) {
	g := c.s.fwGroups[c.str("group")]
	if g == nil {
		return nil, nil
	}
	if len(g.rules) > 0 {
		return nil, die("Security group '%s' is not empty", c.str("group"))
	}
	delete(c.s.fwGroups, c.str("group"))
	return nil, nil
}

func listMacros(c *call) (any, error) {
	out := []M{}
	for _, m := range macroNames() {
		out = append(out, M{"macro": m, "descr": m + " traffic"})
	}
	return out, nil
}
