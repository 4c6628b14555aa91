package reach

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"castellan/internal/estate"
)

// plainVerdict evaluates a ruleset without unknowns in the plainest way: rule after rule, groups written out in place.
func plainVerdict(f *ruleset, from netip.Addr, port uint16) verdict {
	if !f.on {
		return accepted
	}
	in := func(text string) bool {
		for _, e := range strings.Split(text, ",") {
			name, isSet := strings.CutPrefix(e, "+")
			if !isSet {
				if p, err := netip.ParsePrefix(e); err == nil && p.Contains(from) || e == from.String() {
					return true
				}
				continue
			}
			yes, no := false, false
			for _, m := range f.sets.sets[name] {
				if p := netip.MustParsePrefix(m.cidr); p.Contains(from) {
					yes, no = yes || !m.not, no || m.not
				}
			}
			if yes && !no {
				return true
			}
		}
		return false
	}
	var all []estate.Config
	for _, r := range f.rules {
		if r["type"] != "group" {
			all = append(all, r)
			continue
		}
		if r["enable"] == "1" && (r["source"] == "" || in(r["source"])) {
			all = append(all, f.groups[r["action"]]...)
		}
	}
	for _, r := range all {
		if r["enable"] != "1" || r["source"] != "" && !in(r["source"]) || r["proto"] == "udp" {
			continue
		}
		if d := r["dport"]; d != "" {
			var a, b uint16
			if n, _ := fmt.Sscanf(d, "%d:%d", &a, &b); n == 1 {
				b = a
			}
			if port < a || port > b {
				continue
			}
		}
		if r["action"] == "ACCEPT" {
			return accepted
		}
		return refused
	}
	if f.host && (port == 22 || port == 8006 || port == 3128 || port >= 5900 && port < 6000) && (in("+management") || slices.ContainsFunc(f.local, func(s span) bool { return s.has(from) })) {
		return accepted
	}
	if f.policy == "ACCEPT" {
		return accepted
	}
	return refused
}

func drawRuleset(t *rapid.T) *ruleset {
	networks := []string{"10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3", "0.0.0.0/0", "192.168.0.0/16", "fd00::/8", "::/0"}
	drawRule := func(group bool) estate.Config {
		r := estate.Config{"type": "in", "enable": rapid.SampledFrom([]string{"1", "1", "0"}).Draw(t, "enable"), "action": rapid.SampledFrom([]string{"ACCEPT", "DROP", "REJECT"}).Draw(t, "action"),
			"source": rapid.SampledFrom(append([]string{"", "+management", "+other", "10.1.2.3,192.168.0.0/16"}, networks...)).Draw(t, "source"),
			"proto":  rapid.SampledFrom([]string{"", "tcp", "udp"}).Draw(t, "proto"), "dport": rapid.SampledFrom([]string{"", "22", "8006", "1:1000", "5900:5999", "3306"}).Draw(t, "dport")}
		if !group && rapid.IntRange(0, 4).Draw(t, "grouped") == 0 {
			r = estate.Config{"type": "group", "action": rapid.SampledFrom([]string{"g", "absent"}).Draw(t, "group"), "enable": r["enable"], "source": r["source"]}
		}
		return r
	}
	f := &ruleset{on: rapid.IntRange(0, 9).Draw(t, "on") > 0, host: rapid.Bool().Draw(t, "host"), sets: newAddressSets(), groups: map[string][]estate.Config{}, policy: rapid.SampledFrom([]string{"", "DROP", "ACCEPT"}).Draw(t, "policy")}
	for range rapid.IntRange(0, 6).Draw(t, "rules") {
		f.rules = append(f.rules, drawRule(false))
	}
	for range rapid.IntRange(0, 3).Draw(t, "group rules") {
		f.groups["g"] = append(f.groups["g"], drawRule(true))
	}
	for _, name := range []string{"management", "other"} {
		for range rapid.IntRange(0, 3).Draw(t, name) {
			cidr := rapid.SampledFrom([]string{"10.0.0.0/8", "10.1.2.0/24", "10.1.2.3/32", "172.16.0.0/12", "fd00:1::/32"}).Draw(t, "member")
			f.sets.sets[name] = append(f.sets.sets[name], member{cidr, rapid.IntRange(0, 3).Draw(t, "not") == 0})
		}
	}
	f.local = []span{spanOf(netip.MustParsePrefix("10.1.0.0/16"))}
	return f
}

func drawAddr(t *rapid.T) netip.Addr {
	if rapid.Bool().Draw(t, "known") {
		return netip.MustParseAddr(rapid.SampledFrom([]string{"10.1.2.3", "10.1.2.4", "10.1.9.9", "10.200.0.1", "192.168.5.5", "8.8.8.8", "172.16.0.1", "fd00:1::5", "fd00:2::5", "2001:db8::1", "9.255.255.255", "11.0.0.0"}).Draw(t, "address"))
	}
	b := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "bytes")
	return netip.AddrFrom4([4]byte(b))
}

// TestRulesetAgainstThePlainReading compares with the plainest evaluation; within an atom all addresses fare alike.
func TestRulesetAgainstThePlainReading(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, from, port := drawRuleset(t), drawAddr(t), rapid.SampledFrom([]uint16{22, 80, 443, 3306, 5901, 8006, 61234}).Draw(t, "port")
		if from.IsLoopback() {
			t.Skip()
		}
		if got, want := f.judge(from, port), plainVerdict(f, from, port); got != want {
			t.Fatalf("%s to %d: %s, not %s\n%v\n%v", from, port, got, want, f.rules, f.groups)
		}
		cells := atoms(f.spans())
		i := slices.IndexFunc(cells, func(c span) bool { return c.has(from) })
		if i < 0 {
			t.Fatalf("%s is in no atom", from)
		}
		if f.judge(cells[i].from, port) != f.judge(from, port) && !cells[i].from.IsLoopback() {
			t.Fatalf("%s fares otherwise than its atom %s", from, cells[i])
		}
	})
}

// TestWhatOpensDoesNotShut: a rule that lets in shuts nobody out, one that refuses opens nothing, and a field that cannot be
// judged beforehand makes a verdict wider, never another one.
func TestWhatOpensDoesNotShut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, from, port := drawRuleset(t), drawAddr(t), rapid.SampledFrom([]uint16{22, 80, 3306, 8006}).Draw(t, "port")
		source := rapid.SampledFrom([]string{"", "10.0.0.0/8", "+other"}).Draw(t, "new source")
		more, less := *f, *f
		more.rules = append([]estate.Config{{"type": "in", "action": "ACCEPT", "enable": "1", "source": source}}, f.rules...)
		less.rules = append([]estate.Config{{"type": "in", "action": "DROP", "enable": "1", "source": source}}, f.rules...)
		if f.judge(from, port) == accepted && more.judge(from, port) != accepted {
			t.Fatal("a rule that lets in shut somebody out")
		}
		if f.judge(from, port) == refused && less.judge(from, port) != refused {
			t.Fatal("a rule that refuses let somebody in")
		}
		vague := *f
		vague.rules = slices.Clone(f.rules)
		if len(vague.rules) > 0 {
			i := rapid.IntRange(0, len(vague.rules)-1).Draw(t, "vague")
			r := estate.Config{"iface": "vmbr0"}
			for k, v := range vague.rules[i] {
				r[k] = v
			}
			vague.rules[i] = r
		}
		if sharp := f.judge(from, port); vague.judge(from, port)&sharp != sharp {
			t.Fatalf("with an interface named: %s does not hold %s", vague.judge(from, port), sharp)
		}
	})
}

func TestSpans(t *testing.T) {
	for text, want := range map[string]string{"10.0.0.0/8": "10.0.0.0/8", "10.0.0.1": "10.0.0.1", "10.0.0.1-10.0.0.3": "10.0.0.1-10.0.0.3", "0.0.0.0/0": "every IPv4 address", "10.0.0.0-10.255.255.255": "10.0.0.0/8", "fd00::/8": "fd00::/8"} {
		s, ok := parseSpan(text)
		if !ok || s.String() != want {
			t.Errorf("%s: %s, %v; want %s", text, s, ok, want)
		}
	}
	for text, want := range map[string]bool{"10.0.0.0/8": true, "10.0.0.0/16": true, "10.0.0.0/17": false, "10.0.0.1": false, "0.0.0.0/0": true, "::/0": true, "fd00::/64": false, "10.0.0.0-11.0.0.5": true} {
		if s, ok := parseSpan(text); !ok || s.wide() != want {
			t.Errorf("%s wide: %v", text, s.wide())
		}
	}
	for _, bad := range []string{"x", "10.0.0.3-10.0.0.1", "10.0.0.1-fd00::1", "10.0.0.0/33", ""} {
		if s, ok := parseSpan(bad); ok {
			t.Errorf("%s is read as %s", bad, s)
		}
	}
}
