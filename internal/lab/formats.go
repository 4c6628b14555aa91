package lab

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"castellan/internal/regex"
)

// namedFormats are the checks that the schema names only; each gives the genuine text, newline included, or "".
func namedFormats() map[string]func(string) string {
	re := func(pattern, msg string) func(string) string {
		r := regexp.MustCompile(pattern)
		return func(v string) string {
			if r.MatchString(v) {
				return ""
			}
			return strings.ReplaceAll(msg, "%s", v) + "\n"
		}
	}
	ip := func(want func(netip.Addr) bool, msg string) func(string) string {
		return func(v string) string {
			if a, err := netip.ParseAddr(v); err == nil && want(a) {
				return ""
			}
			return msg + "\n"
		}
	}
	cidr := func(want func(netip.Addr) bool, msg string) func(string) string {
		return func(v string) string {
			if p, err := netip.ParsePrefix(v); err == nil && want(p.Addr()) {
				return ""
			}
			return msg + "\n"
		}
	}
	anyIP := func(netip.Addr) bool { return true }
	either := func(msg string, checks ...func(string) string) func(string) string {
		return func(v string) string {
			last := ""
			for _, c := range checks {
				if last = c(v); last == "" {
					return ""
				}
			}
			if msg == "" {
				return last
			}
			return strings.ReplaceAll(msg, "%s", v) + "\n"
		}
	}
	word := func(words ...string) func(string) string {
		return func(v string) string {
			if contains(words, v) {
				return ""
			}
			return "no"
		}
	}
	dns := re(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*$`, "value does not look like a valid DNS name")
	ipAny := ip(anyIP, "value does not look like a valid IP address")
	v4 := ip(netip.Addr.Is4, "value does not look like a valid IPv4 address")
	v6 := ip(netip.Addr.Is6, "value does not look like a valid IPv6 address")
	cidrAny := cidr(anyIP, "value does not look like a valid CIDR network")
	cidr4 := cidr(netip.Addr.Is4, "value does not look like a valid IPv4 network")
	cidr6 := cidr(netip.Addr.Is6, "value does not look like a valid IPv6 network")
	ipOrCIDR := either("value does not look like a valid IP address or CIDR network", ipAny, cidrAny)
	volume := func(v string) string {
		st, name, ok := strings.Cut(v, ":")
		if ok && storageName.MatchString(st) && name != "" {
			return ""
		}
		return "unable to parse volume ID '" + v + "'\n"
	}
	path := func(v string) string {
		if strings.HasPrefix(v, "/") {
			return ""
		}
		return "invalid path"
	}
	userid := func(v string) string {
		n := len([]rune(v))
		switch {
		case n < 3:
			return "user name '" + v + "' is too short\n"
		case n > 64:
			return "user name '" + v + "' is too long (" + strconv.Itoa(n) + " > 64)\n"
		case !userForm.MatchString(v):
			return "value '" + v + "' does not look like a valid user name\n"
		}
		return ""
	}
	email := re(`^[\w+~.-]+(\.[\w+~-]+)*@[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)*$`, "value does not look like a valid email address")
	return map[string]func(string) string{
		"pve-vmid":                       re(`^[1-9][0-9]{2,8}$`, "value does not look like a valid VM ID"),
		"pve-node":                       re(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?$`, "value does not look like a valid node name"),
		"pve-configid":                   re(`^(?i)[a-z][a-z0-9_-]+$`, "invalid configuration ID '%s'"),
		"pve-storage-id":                 re(`^(?i)[a-z][a-z0-9\-_.]*[a-z0-9]$`, "storage ID '%s' contains illegal characters"),
		"pve-realm":                      re(`^[A-Za-z][A-Za-z0-9.\-_]+$`, "value does not look like a valid realm"),
		"pve-userid":                     userid,
		"pve-tokenid":                    re(`^[^\s:/]+@[A-Za-z][A-Za-z0-9.\-_]+![A-Za-z][A-Za-z0-9.\-_]+$`, "value '%s' does not look like a valid token ID"),
		"pve-groupid":                    re(`^[A-Za-z0-9.\-_]+$`, "group name '%s' contains invalid characters"),
		"pve-roleid":                     re(`^[A-Za-z0-9.\-_]+$`, "role name '%s' contains invalid characters"),
		"pve-poolid":                     poolName,
		"pve-priv":                       privName,
		"pve-tag":                        re(`^(?i)[a-z0-9_][a-z0-9_\-+.]*$`, "invalid characters in tag"),
		"pve-iface":                      re(`^(?i)[a-z][a-z0-9_]{1,20}([:.]\d+)?$`, "invalid network interface name '%s'"),
		"pve-bridge-id":                  re(`^[-_.\w]+$`, "invalid bridge name '%s'"),
		"dns-name":                       dns,
		"mac-addr":                       re(`^(?i)[a-f0-9][02468ace](:[a-f0-9]{2}){5}$`, "value does not look like a valid unicast MAC address"),
		"mac-prefix":                     re(`^(?i)[a-f0-9][02468ace](:[a-f0-9]{2}){0,2}:?$`, "value is not a valid unicast MAC address prefix"),
		"ip":                             ipAny,
		"ipv4":                           v4,
		"ipv6":                           v6,
		"CIDR":                           cidrAny,
		"CIDRv4":                         cidr4,
		"CIDRv6":                         cidr6,
		"FullRangeCIDR":                  cidrAny,
		"IPorCIDR":                       ipOrCIDR,
		"IPorCIDRorAlias":                either("value does not look like a valid IP address or CIDR network", ipOrCIDR, re(`^(dc/|guest/)?[A-Za-z][A-Za-z0-9\-_]+$`, "no")),
		"ipv4mask":                       func(v string) string { return maskFormat(v) },
		"address":                        either("value does not look like a valid address: %s", ipAny, dns),
		"pve-storage-server":             either("value does not look like a valid server name or IP address", ipAny, dns),
		"pve-storage-portal-dns":         re(`^(\[[0-9a-fA-F:]+\]|[^:]+)(:\d+)?$`, "value does not look like a valid portal address"),
		"pve-storage-path":               re(`^/[-/a-zA-Z0-9_.@]*$`, "value does not look like a valid absolute path"),
		"pve-storage-content":            contentType,
		"pve-volume-id":                  volume,
		"pve-volume-id-or-qm-path":       either("", word("none", "cdrom"), path, volume),
		"pve-volume-id-or-absolute-path": either("", path, volume),
		"disk-size":                      re(`^\d+(\.\d+)?[KMGT]?$`, "value does not look like a valid disk size: %s"),
		"email":                          email,
		"email-or-username":              either("", re(`^[^\s:/]+@[A-Za-z][A-Za-z0-9.\-_]+$`, "no"), email),
		"urlencoded":                     urlencoded,
		"pve-startup-order":              startupOrder,
		"pve-calendar-event":             calendarFormat,
		"pve-day-of-week":                re(`^(mon|tue|wed|thu|fri|sat|sun)$`, "value '%s' does not look like a valid day of week"),
		"pve-ipv4-config":                either("value does not look like a valid ipv4 network configuration", word("dhcp", "manual"), cidr4),
		"pve-ipv6-config":                either("value does not look like a valid ipv6 network configuration", word("auto", "dhcp", "manual"), cidr6),
		"lxc-ip-with-ll-iface":           either("", ipAny),
		"pve-ha-resource-id":             re(`^((?i)[a-z]+):(\S+)$`, "value does not look like a valid ha resource id"),
		"pve-ha-resource-or-vm-id":       re(`^(((?i)[a-z]+):(\S+)|\d{3,})$`, "value does not look like a valid ha resource id"),
		"pve-ha-node":                    re(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(:\d+)?$`, "value does not look like a valid ha node"),
		"pve-replication-job-id":         re(`^[1-9][0-9]{2,8}-\d{1,9}$`, "invalid replication job id '%s'"),
		"pve-fw-addr-spec":               addressSpec,
		"pve-fw-sport-spec":              portSpec,
		"pve-fw-dport-spec":              portSpec,
		"pve-fw-protocol-spec":           protocolSpec,
		"pve-fw-icmp-type-spec":          func(string) string { return "" },
		"pve-cpuset":                     re(`^\s*\d+(?:-\d+)?(?:\s*,\s*\d+(?:-\d+)?)*\s*$`, "unable to parse cpuset"),
		"storage-pair":                   either("", re(`^1$`, "no"), pairOf(storageName)),
		"bridge-pair":                    either("", re(`^1$`, "no"), pairOf(&regex.Lazy{Expr: `^[-_.\w]+$`})),
		"pve-task-status-type":           statusFilter,
	}
}

var (
	storageName = &regex.Lazy{Expr: `^(?i)[a-z][a-z0-9\-_.]*[a-z0-9]$`}
	userForm    = &regex.Lazy{Expr: `^[^\s:/]+@[A-Za-z][A-Za-z0-9.\-_]+$`}
	poolPart    = &regex.Lazy{Expr: `^[A-Za-z0-9.\-_]+(/[A-Za-z0-9.\-_]+){0,2}$`}
)

func poolName(v string) string {
	if strings.Count(v, "/") > 2 {
		return "pool name '" + v + "' nested too deeply (max levels = 3)\n"
	}
	if !poolPart.MatchString(v) {
		return "pool name '" + v + "' contains invalid characters\n"
	}
	return ""
}

func privName(v string) string {
	for _, p := range append(allPrivs(), "VM.Monitor") { // which of them this version has, its handlers say
		if p == v {
			return ""
		}
	}
	return "invalid privilege '" + v + "'\n"
}

func contentType(v string) string {
	if contains([]string{"images", "rootdir", "vztmpl", "iso", "backup", "snippets", "import", "none"}, v) {
		return ""
	}
	return "invalid content type '" + v + "'\n"
}

func statusFilter(v string) string {
	if contains([]string{"ok", "error", "warning", "unknown"}, v) {
		return ""
	}
	return "invalid status '" + v + "'\n"
}

func maskFormat(v string) string {
	a, err := netip.ParseAddr(v)
	if err == nil && a.Is4() {
		return ""
	}
	return "value does not look like a valid IP netmask\n"
}

func pairOf(r *regex.Lazy) func(string) string {
	return func(v string) string {
		a, b, ok := strings.Cut(v, ":")
		if r.MatchString(a) && (!ok || r.MatchString(b)) {
			return ""
		}
		return "entry '" + v + "' is not a valid pair\n"
	}
}

func urlencoded(v string) string {
	for i := 0; i < len(v); i++ {
		c := v[i]
		switch {
		case c == '%':
			if i+2 >= len(v) || !isHex(v[i+1]) || !isHex(v[i+2]) {
				return "invalid urlencoded string: " + v + "\n"
			}
		case c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("-_.~!*'()", c) >= 0:
		default:
			return "invalid urlencoded string: " + v + "\n"
		}
	}
	return ""
}

var startupForm = &regex.Lazy{Expr: `^(order=)?\d+$|^(order|up|down)=\d+$`}

func startupOrder(v string) string {
	for _, p := range strings.Split(v, ",") {
		if strings.TrimSpace(p) != "" && !startupForm.MatchString(p) {
			return "unable to parse startup options\n"
		}
	}
	return ""
}

// addressSpec checks the source or destination of a firewall rule.
func addressSpec(v string) string {
	if strings.HasPrefix(v, "+") || aliasRef.MatchString(v) {
		return ""
	}
	for _, el := range strings.Split(v, ",") {
		from, to, isRange := strings.Cut(el, "-")
		if ok := validIP(from) && (!isRange || validIP(to)); !ok {
			if strings.IndexFunc(from, func(r rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF.:/+-", r) }) >= 0 {
				return "invalid IP address: Invalid chars in IP " + from + "\n"
			}
			if strings.Contains(from, ".") {
				return "invalid IP address: Invalid quad in IP address " + from + "\n"
			}
			return "invalid IP address: Cannot determine IP version for " + from + "\n"
		}
	}
	return ""
}

var aliasRef = &regex.Lazy{Expr: `^(dc/|guest/)?[A-Za-z][A-Za-z0-9\-_]+$`}

func validIP(v string) bool {
	if _, err := netip.ParseAddr(v); err == nil {
		return true
	}
	_, err := netip.ParsePrefix(v)
	return err == nil
}

func portSpec(v string) string {
	for _, el := range strings.Split(v, ",") {
		for _, p := range strings.Split(el, ":") {
			n, err := strconv.Atoi(p)
			if err == nil && (n < 0 || n > 65535) {
				return "invalid port '" + p + "'\n"
			}
			if err != nil && !serviceName.MatchString(p) {
				return "invalid port '" + p + "'\n"
			}
		}
	}
	return ""
}

var serviceName = &regex.Lazy{Expr: `^(ssh|http|https|domain|smtp|ftp|ntp|imap|imaps|pop3|pop3s|ldap|ldaps|mysql|snmp|telnet|tftp|syslog|bootps|bootpc|nfs|postgresql)$`}

func protocolSpec(v string) string {
	if _, err := strconv.Atoi(v); err == nil {
		return ""
	}
	if contains([]string{"tcp", "udp", "icmp", "igmp", "ipv6-icmp", "icmpv6", "esp", "ah", "gre", "sctp", "ospf", "vrrp", "dccp", "udplite", "ipv6", "ipip", "l2tp", "carp"}, strings.ToLower(v)) {
		return ""
	}
	return "unknown protocol '" + v + "'\n"
}

func looksLikeIP(v string) bool {
	_, err := netip.ParseAddr(v)
	return err == nil
}
