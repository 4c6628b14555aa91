package catalog

import (
	"encoding/pem"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"castellan/internal/gate"
)

// formatCheck returns the canonical text of a value, or what is wrong with it.
type formatCheck func(text string) (string, error)

// format checks a value against a named format.
func (k *checker) format(f field, name, text string) (string, []Problem) {
	if base, ok := strings.CutSuffix(name, "-opt"); ok {
		if text == "" {
			return "", nil
		}
		name = base
	}
	check, ok := formatChecks()[name]
	if !ok {
		// A format that only a host's own description names: plain characters pass, whatever it may mean.
		return text, nil
	}
	canonical, err := check(text)
	if err != nil {
		return "", f.bad("%s %v", f.show(text), err)
	}
	return canonical, nil
}

// form makes a check from an anchored expression and words for the reader.
func form(expr, words string) formatCheck {
	whole := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\A(?:` + expr + `)\z`) })
	return func(text string) (string, error) {
		if !whole().MatchString(text) {
			return "", fmt.Errorf("is not %s", words)
		}
		return text, nil
	}
}

func either(words string, checks ...formatCheck) formatCheck {
	return func(text string) (string, error) {
		for _, c := range checks {
			if canonical, err := c(text); err == nil {
				return canonical, nil
			}
		}
		return "", fmt.Errorf("is not %s", words)
	}
}

func word(words ...string) formatCheck {
	return func(text string) (string, error) {
		if slices.Contains(words, text) {
			return text, nil
		}
		if n := nearest(text, words); n != "" {
			return "", fmt.Errorf("is none of %s; did you mean %q?", strings.Join(words, ", "), n)
		}
		return "", fmt.Errorf("is none of %s", strings.Join(words, ", "))
	}
}

const (
	exprLabel   = `[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?`
	exprStorage = `[a-zA-Z][a-zA-Z0-9_.-]*[a-zA-Z0-9]`
	exprRealm   = `[A-Za-z][A-Za-z0-9._-]{1,31}`
	exprName    = `[A-Za-z0-9._-]+`
	exprTag     = `[a-zA-Z0-9_][a-zA-Z0-9_+.-]*`
	exprAlias   = `[A-Za-z][A-Za-z0-9_-]+`
	exprSafe    = `[^\s,;\x00-\x1f\x7f]+` // nothing that could begin another element, key or line
)

var (
	checkVMID    = form(`[1-9][0-9]{2,8}`, "a guest id (100 to 999999999, no leading zeros)")
	checkNode    = form(exprLabel, "a node name")
	checkDNS     = form(`(?:`+exprLabel+`\.)*`+exprLabel, "a DNS name")
	checkStorage = form(exprStorage, "a storage id")
	checkUserID  = bounded(3, 64, form(`[^\s:/,;!@\x00-\x1f\x7f]+(?:@[^\s:/,;!@\x00-\x1f\x7f]+)?@`+exprRealm, "user@realm"))
	checkEmail   = form(`[\w+~-]+(?:\.[\w+~-]+)*@(?:`+exprLabel+`\.)*`+exprLabel, "a mail address")
	checkConfig  = form(`[A-Za-z][A-Za-z0-9_-]+`, "an id (a letter, then letters, digits, - or _; two characters or more)")
	checkBridge  = form(`[-_.A-Za-z0-9]+`, "a bridge name")
	checkVolume  = noDots(form(exprStorage+`:[^\s,;\x00-\x1f\x7f]+`, "a volume id such as local:iso/name.iso"))
	checkAbs     = noDots(form(`/[^\s,;()\x00-\x1f\x7f]*`, "an absolute path"))
	checkServer  = either("a host name or an address", checkIP, checkDNS)
	checkRouteID = form(`[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}`, "a plain id")
)

func bounded(low, high int, check formatCheck) formatCheck {
	return func(text string) (string, error) {
		if len(text) < low || len(text) > high {
			return "", fmt.Errorf("must have %d to %d characters", low, high)
		}
		return check(text)
	}
}

// noDots refuses path parts that mean another directory.
func noDots(check formatCheck) formatCheck {
	return func(text string) (string, error) {
		for part := range strings.SplitSeq(text[strings.IndexByte(text, ':')+1:], "/") {
			if part == "." || part == ".." {
				return "", fmt.Errorf("holds a %s in its path", part)
			}
		}
		return check(text)
	}
}

// formatChecks has a check for every format that the published descriptions name and that is no property string
// with known keys. A name with -list is checked element by element with the name before it.
var formatChecks = sync.OnceValue(func() map[string]formatCheck {
	return map[string]formatCheck{
		"pve-vmid":       checkVMID,
		"pve-node":       checkNode,
		"pve-configid":   checkConfig,
		"pve-storage-id": checkStorage,
		"pve-iface":      form(`[a-zA-Z][a-zA-Z0-9_]{1,20}(?:[:.][0-9]+)?`, "an interface name"),
		"pve-bridge-id":  checkBridge,
		"pve-poolid":     noDots(form(exprName+`(?:/`+exprName+`){0,2}`, "a pool id (nested pools: team/dev)")),
		"pve-groupid":    form(exprName, "a group id"),
		"pve-roleid":     form(exprName, "a role id"),
		"pve-realm":      form(exprRealm, "a realm"),
		"pmg-realm":      form(exprRealm, "a realm"),
		"pve-userid":     checkUserID,
		"pmg-userid":     checkUserID,
		"pve-tokenid":    bounded(5, 128, form(`[^\s:/,;!\x00-\x1f\x7f]+@`+exprRealm+`![A-Za-z][A-Za-z0-9._-]+`, "user@realm!token")),
		"pve-priv":       form(`[A-Z][A-Za-z]*(?:\.[A-Z][A-Za-z]*)+`, "a privilege such as VM.Audit"),
		"pve-volume-id":  checkVolume,
		"pve-volume-id-or-qm-path": either("a volume id, none, cdrom or an absolute path", word("none", "cdrom"), checkAbs, checkVolume,
			form(`[0-9]+(?:\.[0-9]+)?`, "a size")),
		"pve-volume-id-or-absolute-path":      either("a volume id or an absolute path", checkAbs, checkVolume),
		"pve-lxc-mp-string":                   noDots(form(`[^\s,;\x00-\x1f\x7f]+`, "a path or volume")),
		"pve-lxc-dev-string":                  noDots(form(`/dev/[^\s,;\x00-\x1f\x7f]+`, "a path below /dev")),
		"pve-storage-path":                    checkAbs,
		"pve-storage-path-in-property-string": checkAbs,
		"pve-storage-server":                  checkServer,
		"pve-storage-portal-dns":              either("a host or address with an optional port", checkServer, checkHostPort),
		"pve-storage-vgname":                  form(`[a-zA-Z0-9_+.][a-zA-Z0-9_+.-]*`, "a volume group name"),
		"pve-storage-zfs-blocksize":           form(`[0-9]+[kKmM]?`, "a block size such as 8k"),
		"pve-storage-options":                 form(`[A-Za-z0-9_=,:./+@-]+`, "a list of mount options"),
		"pve-storage-content":                 word("none", "images", "rootdir", "iso", "vztmpl", "backup", "snippets", "import"),
		"pve-dir-override":                    noDots(form(`[a-z]+=[A-Za-z0-9_./-]+`, "content=folder")),
		"disk-size":                           form(`[0-9]+(?:\.[0-9]+)?[KMGT]?`, "a size such as 32G"),
		"urlencoded":                          form(`(?:[A-Za-z0-9_.!~*'()-]|%[0-9A-Fa-f]{2})*`, "percent-encoded text"),
		"ip":                                  checkIP,
		"ipv4":                                checkIPv4,
		"ipv6":                                checkIPv6,
		"address":                             checkServer,
		"CIDR":                                either("an address with prefix length, such as 10.0.0.1/24", cidr(4, 8), cidr(6, 8)),
		"CIDRv4":                              cidr(4, 8),
		"CIDRv6":                              cidr(6, 8),
		"FullRangeCIDR":                       either("an address with prefix length", cidr(4, 0), cidr(6, 0)),
		"IPorCIDR":                            either("an address or network", checkIP, cidr(4, 0), cidr(6, 0)),
		"IPorCIDRorAlias":                     either("an address, network or alias", checkIP, cidr(4, 0), cidr(6, 0), checkFirewallAlias),
		"ipv4mask":                            checkMask,
		"pve-ipv4-config":                     either("dhcp, manual or an address such as 10.0.0.5/24", word("dhcp", "manual"), cidr(4, 8)),
		"pve-ipv6-config":                     either("auto, dhcp, manual or an address with prefix length", word("auto", "dhcp", "manual"), cidr(6, 8)),
		"lxc-ip-with-ll-iface":                either("an address or host", word("host"), checkIP, form(`[fF][eE]80:[0-9a-fA-F:]+%[A-Za-z][A-Za-z0-9_.-]*`, "a link-local address")),
		"mac-addr":                            form(`[a-fA-F0-9][02468aceACE](?::[a-fA-F0-9]{2}){5}`, "a unicast MAC address"),
		"mac-prefix":                          form(`[a-fA-F0-9][02468aceACE](?::[a-fA-F0-9]{2}){0,2}:?`, "a MAC prefix"),
		"dns-name":                            checkDNS,
		"email":                               checkEmail,
		"email-or-username":                   either("a mail address or user@realm", checkEmail, checkUserID),
		"pve-startup-order":                   checkStartup,
		"pve-tag":                             form(exprTag, "a tag (letters, digits, _ - + .)"),
		"pve-calendar-event":                  checkCalendar,
		"calendar-event":                      checkCalendar,
		"pve-day-of-week":                     word("mon", "tue", "wed", "thu", "fri", "sat", "sun"),
		"pve-fw-addr-spec":                    checkFirewallAddresses,
		"pve-fw-sport-spec":                   checkFirewallPorts,
		"pve-fw-dport-spec":                   checkFirewallPorts,
		"pve-fw-protocol-spec":                form(`[0-9]{1,3}|[a-z][a-z0-9.+-]*`, "a protocol name or number"),
		"pve-fw-icmp-type-spec":               form(`[0-9]{1,3}(?:/[0-9]{1,3})?|[a-z][a-z0-9-]*`, "an ICMP type"),
		"conntrack-helper":                    word("amanda", "ftp", "irc", "netbios-ns", "pptp", "sane", "sip", "snmp", "tftp"),
		"pve-ha-resource-or-vm-id":            either("a guest id or vm:ID, ct:ID", checkVMID, form(`(?:vm|ct):[1-9][0-9]{2,8}`, "an HA resource id")),
		"pve-ha-resource-id":                  form(`(?:vm|ct):[1-9][0-9]{2,8}`, "an HA resource id such as vm:100"),
		"pve-ha-node":                         form(exprLabel+`(?::[0-9]{1,4})?`, "a node with an optional priority, node:1"),
		"pve-replication-job-id":              form(`[1-9][0-9]{2,8}-[0-9]{1,9}`, "a replication job id such as 100-0"),
		"pve-sdn-fabric-id":                   form(`[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,6}[a-zA-Z0-9])?`, "a fabric id"),
		"pve-sdn-isis-net":                    form(`[a-fA-F0-9]{2}(?:\.[a-fA-F0-9]{4}){3,9}\.[a-fA-F0-9]{2}`, "an IS-IS network entity title"),
		"pve-sdn-route-map-id":                checkRouteID,
		"pve-sdn-prefix-list-id":              checkRouteID,
		"pve-sdn-subnet-id":                   form(`[a-zA-Z0-9]+-[0-9a-fA-F.:-]+-[0-9]{1,3}|[0-9a-fA-F.:]+/[0-9]{1,3}`, "a subnet (10.0.0.0/24) or its id (zone-10.0.0.0-24)"),
		"pve-sdn-bgp-rt":                      form(`[0-9]{1,10}:[0-9]{1,10}|`+`[0-9]{1,3}(?:\.[0-9]{1,3}){3}:[0-9]{1,5}`, "a route target such as 65000:100"),
		"pem-string":                          checkPEM(1),
		"pem-certificate-chain":               checkPEM(16),
		"pve-acme-domain":                     form(`(?:\*\.)?(?:`+exprLabel+`\.)*`+exprLabel, "a domain"),
		"pmg-acme-domain":                     form(`(?:\*\.)?(?:`+exprLabel+`\.)*`+exprLabel, "a domain"),
		"pve-acme-alias":                      form(`(?:[a-zA-Z0-9_](?:[a-zA-Z0-9_-]*[a-zA-Z0-9])?\.)*[a-zA-Z0-9_](?:[a-zA-Z0-9_-]*[a-zA-Z0-9])?`, "a domain alias"),
		"pmg-acme-alias":                      form(`(?:[a-zA-Z0-9_](?:[a-zA-Z0-9_-]*[a-zA-Z0-9])?\.)*[a-zA-Z0-9_](?:[a-zA-Z0-9_-]*[a-zA-Z0-9])?`, "a domain alias"),
		"pmg-certificate-type":                word("api", "smtp"),
		"string":                              form(exprSafe, "one plain word"),
		"pve-command-batch":                   checkBatch,
		"pve-ct-timezone":                     noDots(form(`[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+){0,2}`, "host or a time zone such as Europe/Vienna")),
		"storage-pair":                        form(exprStorage+`(?::`+exprStorage+`)?|1`, "a storage, or from:to"),
		"bridge-pair":                         form(`[-_.A-Za-z0-9]+(?::[-_.A-Za-z0-9]+)?`, "a bridge, or from:to"),
		"pve-cpuset":                          form(`[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*`, "a list of CPUs such as 0-3,8"),
		"pve-qm-bootdisk":                     form(`(?:ide|sata|scsi|virtio|efidisk|tpmstate)[0-9]{1,2}`, "a disk such as scsi0"),
		"pve-qm-bootdev":                      form(`(?:ide|sata|scsi|virtio|net|usb|hostpci)[0-9]{1,2}`, "a device such as scsi0 or net0"),
		"pve-hotplug-features":                checkHotplug,
		"pve-phys-bits":                       form(`host|[89]|[1-5][0-9]|6[0-4]`, "host or a number from 8 to 64"),
		"pve-task-status-type":                word("ok", "error", "warning", "unknown"),
		"ldap-simple-attr":                    form(`[A-Za-z0-9][A-Za-z0-9;_-]*`, "an LDAP attribute"),
		"graphite-path":                       form(`[0-9a-zA-Z._-]+`, "a Graphite path"),
		"pve-vlan-id-or-range":                checkVLANs,
		"transport-domain":                    form(`\.?(?:`+exprLabel+`\.)*`+exprLabel, "a domain"),
		"transport-domain-or-nexthop":         form(`\.?(?:`+exprLabel+`\.)*`+exprLabel+`|\[?[0-9a-zA-Z.:-]+\]?(?::[0-9]{1,5})?`, "a domain or next hop"),
		"transport-domain-or-email":           either("a domain or mail address", form(`\.?(?:`+exprLabel+`\.)*`+exprLabel, "a domain"), checkEmail),
		"transport-address":                   either("a host or address", checkServer, form(`\[[0-9a-fA-F.:]+\]`, "an address")),
		"tls-policy-strict":                   word("none", "may", "encrypt", "dane", "dane-only", "fingerprint", "verify", "secure"),
		"dnsbl-entry":                         form(`[A-Za-z0-9._-]+(?:=[0-9.\[\]]+)?(?:\*-?[0-9]{1,4})?`, "a block list such as zen.spamhaus.org*2"),
		"pmg-postfix-queue-id":                form(`[A-Za-z0-9]+`, "a queue id"),
		"role":                                form(`[A-Za-z]+`, "a role name"),
		"group-filter":                        form(`(?:(?:include|exclude):)?(?:type:(?:vm|ct|host)|group:(?:vm|ct|host)/[A-Za-z0-9_][A-Za-z0-9._-]*|regex:[^\x00-\x1f\x7f]+)`, "type:vm, group:vm/100 or regex:..."),
		"http-proxy":                          form(`(?:https?://)?(?:[^\s@/\x00-\x1f\x7f]+@)?(?:\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+)(?::[0-9]{1,5})?/?`, "a proxy such as http://proxy:3128"),
		"tape-snapshot":                       form(`[A-Za-z0-9_][A-Za-z0-9._-]*:(?:ns/[A-Za-z0-9_][A-Za-z0-9._-]*/)*(?:host|vm|ct)/[A-Za-z0-9_][A-Za-z0-9._-]*/[0-9TZ:-]+`, "store:type/id/time"),
		"view-filter-rule":                    form(`[a-z-]+[=:][^\x00-\x1f\x7f]+`, "a rule such as resource-type=qemu"),
		"pve-sdn-fabric-wireguard-interface":  form(exprSafe, "a property string"),
		"datastore-backend-config":            form(exprSafe, "a property string"),
	}
})

// checkPEM takes one to most PEM blocks and nothing else.
func checkPEM(most int) formatCheck {
	return func(text string) (string, error) {
		rest, n := []byte(text), 0
		for {
			block, after := pem.Decode(rest)
			if block == nil {
				break
			}
			if n++; n > most {
				return "", fmt.Errorf("holds more than %d PEM blocks", most)
			}
			rest = after
		}
		if n == 0 || strings.TrimSpace(string(rest)) != "" {
			return "", fmt.Errorf("is not PEM text, or something follows it")
		}
		return text, nil
	}
}

// checkBatch takes a JSON list of API calls; what they do is for the caller of the catalogue to judge.
func checkBatch(text string) (string, error) {
	calls, ok := jsonArray(text)
	if !ok || len(calls) == 0 || len(calls) > 256 {
		return "", fmt.Errorf("is not a JSON list of calls")
	}
	for _, c := range calls {
		call, _ := c.(map[string]any)
		path, _ := call["path"].(string)
		method, _ := call["method"].(string)
		if path == "" || !slices.Contains([]string{"GET", "POST", "PUT", "DELETE"}, method) {
			return "", fmt.Errorf("is not a list of objects with path, method (GET, POST, PUT, DELETE) and args")
		}
	}
	return text, nil
}

func checkHotplug(text string) (string, error) {
	if text == "0" || text == "1" {
		return text, nil
	}
	one := word("network", "disk", "cpu", "memory", "usb", "cloudinit")
	parts := gate.SplitList(text)
	for _, p := range parts {
		if _, err := one(p); err != nil {
			return "", err
		}
	}
	if len(parts) == 0 {
		return "", fmt.Errorf("names nothing")
	}
	return strings.Join(parts, ","), nil
}

// checkStartup takes order=N,up=N,down=N; the first may be the bare number.
func checkStartup(text string) (string, error) {
	have := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.Trim(part, " ")
		key, value, named := strings.Cut(part, "=")
		if !named {
			key, value = "order", part
		}
		if !slices.Contains([]string{"order", "up", "down"}, key) || value == "" || len(value) > 9 || strings.Trim(value, "0123456789") != "" || have[key] != "" {
			return "", fmt.Errorf("is not of the form order=1,up=30,down=60")
		}
		have[key] = value
	}
	var parts []string
	for _, key := range []string{"order", "up", "down"} {
		if have[key] != "" {
			parts = append(parts, key+"="+have[key])
		}
	}
	return strings.Join(parts, ","), nil
}

func checkVLANs(text string) (string, error) {
	low, high, isRange := strings.Cut(text, "-")
	a, errA := vlan(low)
	b := a
	var errB error
	if isRange {
		b, errB = vlan(high)
	}
	if errA != nil || errB != nil || b < a || isRange && a == b {
		return "", fmt.Errorf("is not a VLAN id (1 to 4094) or a range such as 2-4094")
	}
	return text, nil
}

func vlan(text string) (int, error) {
	n := 0
	if !isInteger(text) || len(text) > 4 {
		return 0, fmt.Errorf("not a number")
	}
	fmt.Sscan(text, &n)
	if n < 1 || n > 4094 {
		return 0, fmt.Errorf("out of range")
	}
	return n, nil
}
