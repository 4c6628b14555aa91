package catalog

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"castellan/internal/regex"
)

func checkIP(text string) (string, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return "", fmt.Errorf("is not an IP address")
	}
	return text, nil
}

func checkIPv4(text string) (string, error) {
	if a, err := netip.ParseAddr(text); err != nil || !a.Is4() {
		return "", fmt.Errorf("is not an IPv4 address")
	}
	return text, nil
}

func checkIPv6(text string) (string, error) {
	if a, err := netip.ParseAddr(text); err != nil || !a.Is6() || a.Zone() != "" {
		return "", fmt.Errorf("is not an IPv6 address")
	}
	return text, nil
}

// cidr checks an address with a prefix length of at least low.
func cidr(version, low int) formatCheck {
	return func(text string) (string, error) {
		host, bits, ok := strings.Cut(text, "/")
		a, err := netip.ParseAddr(host)
		if !ok || err != nil || a.Zone() != "" || a.Is4() != (version == 4) {
			return "", fmt.Errorf("is not an IPv%d address with prefix length, such as %s", version, map[int]string{4: "10.0.0.5/24", 6: "fd00::5/64"}[version])
		}
		n, err := strconv.Atoi(bits)
		if err != nil || !isInteger(bits) || n < low || n > a.BitLen() {
			return "", fmt.Errorf("has no prefix length from %d to %d", low, a.BitLen())
		}
		return text, nil
	}
}

func checkMask(text string) (string, error) {
	if isInteger(text) && len(text) <= 2 {
		if n, _ := strconv.Atoi(text); n >= 0 && n <= 32 {
			return text, nil
		}
	}
	a, err := netip.ParseAddr(text)
	if err == nil && a.Is4() {
		b := a.As4()
		mask := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
		if inv := ^mask; inv&(inv+1) == 0 {
			return text, nil
		}
	}
	return "", fmt.Errorf("is not a netmask such as 255.255.255.0")
}

func checkHostPort(text string) (string, error) {
	host, port, ok := text, "", false
	if strings.HasPrefix(text, "[") {
		host, port, ok = strings.Cut(text[1:], "]:")
	} else if i := strings.LastIndexByte(text, ':'); i >= 0 {
		host, port, ok = text[:i], text[i+1:], true
	}
	if _, err := checkServer(host); err != nil || !ok || !isPort(port) {
		return "", fmt.Errorf("is not host:port")
	}
	return text, nil
}

func isPort(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && isInteger(text) && n >= 0 && n <= 65535
}

var (
	exprFirewallAlias = &regex.Lazy{Expr: `\A(?:(?:dc|guest|sdn)/)?` + exprAlias + `\z`}
	exprFirewallSet   = &regex.Lazy{Expr: `\A\+(?:(?:dc|guest|sdn)/)?` + exprAlias + `(?:/` + exprAlias + `)?\z`}
	exprService       = &regex.Lazy{Expr: `\A[a-z][a-z0-9-]*\z`}
)

func checkFirewallAlias(text string) (string, error) {
	if !exprFirewallAlias.MatchString(text) {
		return "", fmt.Errorf("is not an alias name")
	}
	return text, nil
}

// checkFirewallAddresses takes an alias, an IP set, or a list of addresses, networks and ranges.
func checkFirewallAddresses(text string) (string, error) {
	if exprFirewallSet.MatchString(text) || exprFirewallAlias.MatchString(text) {
		return text, nil
	}
	one := either("", checkIP, cidr(4, 0), cidr(6, 0))
	parts := strings.Split(text, ",")
	for i, part := range parts {
		part = strings.TrimSpace(part)
		low, high, isRange := strings.Cut(part, "-")
		_, err := one(part)
		if isRange {
			a, errA := netip.ParseAddr(low)
			b, errB := netip.ParseAddr(high)
			err = nil
			if errA != nil || errB != nil || a.BitLen() != b.BitLen() || b.Less(a) {
				err = fmt.Errorf("bad range")
			}
		}
		if err != nil {
			return "", fmt.Errorf("is not an address, network, range, alias or +ipset, or a list of addresses")
		}
		parts[i] = part
	}
	return strings.Join(parts, ","), nil
}

// checkFirewallPorts takes up to 15 ports, ranges 80:85 and service names.
func checkFirewallPorts(text string) (string, error) {
	parts := strings.Split(text, ",")
	if len(parts) > 15 {
		return "", fmt.Errorf("names more than 15 ports")
	}
	for i, part := range parts {
		part = strings.TrimSpace(part)
		low, high, isRange := strings.Cut(part, ":")
		switch {
		case isRange && isPort(low) && isPort(high):
			a, _ := strconv.Atoi(low)
			b, _ := strconv.Atoi(high)
			if b < a {
				return "", fmt.Errorf("holds a range that runs backwards")
			}
		case !isRange && (isPort(part) || exprService.MatchString(part)):
		default:
			return "", fmt.Errorf("is not a port, a range such as 80:85, a service name, or a list of them")
		}
		parts[i] = part
	}
	return strings.Join(parts, ","), nil
}

var (
	exprCalendarWord = &regex.Lazy{Expr: `\A(?:minutely|hourly|daily|weekly|monthly|yearly|annually|quarterly|semiannually|semi-annually)\z`}
	exprCalendarZone = &regex.Lazy{Expr: `\A(?:UTC|utc)\z`}
	exprCalendarDays = &regex.Lazy{Expr: `\A` + days + `(?:\.\.` + days + `)?(?:,` + days + `(?:\.\.` + days + `)?)*\z`}
	exprCalendarDate = &regex.Lazy{Expr: `\A(?:` + field4 + `-)?` + field2 + `-` + field2 + `\z`}
	exprCalendarTime = &regex.Lazy{Expr: `\A` + field2 + `(?::` + field2 + `){0,2}\z`}
)

const (
	days   = `(?:[mM]on(?:day)?|[tT]ue(?:s(?:day)?)?|[wW]ed(?:nesday)?|[tT]hu(?:r(?:s(?:day)?)?)?|[fF]ri(?:day)?|[sS]at(?:urday)?|[sS]un(?:day)?)`
	one2   = `(?:\*|[0-9]{1,2}(?:\.\.[0-9]{1,2})?)(?:/[0-9]{1,2})?`
	field2 = one2 + `(?:,` + one2 + `)*`
	one4   = `(?:\*|[0-9]{4}(?:\.\.[0-9]{4})?)(?:/[0-9]{1,4})?`
	field4 = one4 + `(?:,` + one4 + `)*`
)

// checkCalendar takes calendar events as the products read them: [days] [date] [time], or one word.
func checkCalendar(text string) (string, error) {
	bad := fmt.Errorf("is not a calendar event such as 'mon..fri 02:30', '*/15', 'daily' or '*-*-01 04:00'")
	parts := strings.Split(text, " ")
	if len(text) > 128 || len(parts) > 4 {
		return "", bad
	}
	stage := 0
	for i, part := range parts {
		switch {
		case len(parts) == 1 && exprCalendarWord.MatchString(part):
			return text, nil
		case stage < 1 && exprCalendarDays.MatchString(part):
			stage = 1
		case stage < 2 && exprCalendarDate.MatchString(part):
			stage = 2
		case stage < 3 && exprCalendarTime.MatchString(part):
			stage = 3
		case stage >= 1 && i == len(parts)-1 && exprCalendarZone.MatchString(part):
		default:
			return "", bad
		}
	}
	return text, nil
}
