package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// certificates that end soon. The node renews its own certificate by itself, so that it counts later than one that
// somebody put there.
func (c *round) certificates(n *nodeAsks) {
	if !n.certs.ok() {
		return
	}
	for _, r := range n.certs.rows {
		end := whole(r, "notafter")
		if end == 0 {
			continue
		}
		left := time.Unix(end, 0).Sub(c.now)
		soon := certSoon
		if r["filename"] == "pve-ssl.pem" {
			soon = certOwnSoon
		}
		if left >= soon {
			continue
		}
		f := Flag{Level: Warning, Check: "certificate_ends", Where: whereNode(n.name), What: fmt.Sprintf("certificate %s ends in %s", clean(r["filename"], 40), span(left)), excess: float64(soon) / float64(max(left, time.Hour)),
			Evidence: []Evidence{{Figure: "ends", Value: stamp(end), Threshold: "warning within " + span(soon) + ", critical within " + span(certVerySoon), Source: n.certs.source()}},
			Next:     &Next{Operation: "call_operation", Arguments: map[string]string{"operation": "GET /nodes/" + n.name + "/certificates/info"}}}
		if left < certVerySoon {
			f.Level = Critical
		}
		if left <= 0 {
			f.What = fmt.Sprintf("certificate %s has ended", clean(r["filename"], 40))
		}
		c.b.add(f)
	}
}

// clocks compares the nodes' clocks with each other, with what the answers' own way took as doubt.
func (c *round) clocks() {
	type reading struct {
		node          string
		offset, doubt time.Duration
		source        string
	}
	var all []reading
	for _, name := range sortedNodes(c.node) {
		a := c.node[name].time
		if !a.ok() {
			continue
		}
		t := whole(a.row(), "time")
		if t == 0 {
			continue
		}
		middle := a.at.Add(-a.took / 2)
		all = append(all, reading{name, time.Unix(t, 0).Add(time.Second / 2).Sub(middle), a.took/2 + time.Second, a.source()})
	}
	if len(all) == 0 {
		return
	}
	offsets := make([]time.Duration, 0, len(all))
	for _, r := range all {
		offsets = append(offsets, r.offset)
	}
	slices.Sort(offsets)
	median := offsets[(len(offsets)-1)/2]
	for _, r := range all {
		off := (r.offset - median).Abs() - r.doubt
		if len(all) < 2 || off < clockSkew {
			continue
		}
		f := Flag{Level: Warning, Check: "clock_skew", Where: whereNode(r.node), What: "the node's clock differs from the others'", excess: float64(off) / float64(clockSkew),
			Evidence: []Evidence{{Figure: "difference, at least", Value: off.Round(100 * time.Millisecond).String(), Threshold: "warning from " + clockSkew.String() + ", critical from " + clockSkewBad.String(), Source: r.source}},
			Next:     &Next{Operation: "call_operation", Arguments: map[string]string{"operation": "GET /nodes/" + r.node + "/time"}}}
		if off >= clockSkewBad {
			f.Level = Critical
		}
		c.b.add(f)
	}
	if median.Abs() >= clockSkewBad {
		c.b.add(Flag{Level: Warning, Check: "clock_castellan", Where: "castellan", What: "castellan's clock and the site's differ: ages and approvals that end by the clock are off by as much", excess: float64(median.Abs()) / float64(clockSkewBad),
			Evidence: []Evidence{{Figure: "difference", Value: median.Round(time.Second).String(), Threshold: "from " + clockSkewBad.String(), Source: all[0].source}}})
	}
}

// judgeVersions: nodes of one site on different versions.
func (c *round) judgeVersions() {
	if !c.on("versions") || c.scoped {
		return
	}
	by := map[string][]string{}
	source := ""
	for _, name := range sortedNodes(c.node) {
		n := c.node[name]
		if !n.status.ok() {
			continue
		}
		text := n.status.row()["pveversion"]
		if _, rest, ok := strings.Cut(text, "/"); ok {
			text, _, _ = strings.Cut(rest, "/")
		}
		if text = clean(text, 30); text != "" {
			by[text], source = append(by[text], name), n.status.source()
		}
	}
	if len(by) < 2 {
		return
	}
	var parts, majors []string
	for v, nodes := range by {
		parts = append(parts, v+": "+some(nodes, 6))
		major, _, _ := strings.Cut(v, ".")
		if !slices.Contains(majors, major) {
			majors = append(majors, major)
		}
	}
	slices.Sort(parts)
	f := Flag{Level: Info, Check: "version_mix", Where: "site", What: "nodes run different versions: " + some(parts, 6), Next: &Next{Operation: "list_nodes"}, excess: float64(len(by)),
		Evidence: []Evidence{{Figure: "versions", Value: fmt.Sprint(len(by)), Threshold: "1", Source: source}}}
	if len(majors) > 1 {
		f.Level, f.What = Warning, "nodes run different major versions: guests may not move back: "+some(parts, 6)
	}
	c.b.add(f)
}

// packages: updates that wait, and a kernel that a reboot would bring.
func (c *round) packages(n *nodeAsks) {
	next := &Next{Operation: "call_operation", Arguments: map[string]string{"operation": "GET /nodes/" + n.name + "/apt/update"}}
	if n.updates.ok() && len(n.updates.rows) > 0 {
		security := 0
		for _, r := range n.updates.rows {
			if strings.Contains(strings.ToLower(r["Origin"]+" "+r["Section"]), "security") {
				security++
			}
		}
		f := Flag{Level: Info, Check: "updates_pending", Where: whereNode(n.name), What: plural(len(n.updates.rows), "package update waits", "package updates wait"), Next: next, excess: float64(len(n.updates.rows)) / 100,
			Evidence: []Evidence{{Figure: "updates", Value: fmt.Sprint(len(n.updates.rows)), Threshold: "from 1", Source: n.updates.source()}}}
		if security > 0 {
			f.Evidence = append(f.Evidence, Evidence{Figure: "of them from a security source", Value: fmt.Sprint(security), Source: n.updates.source()})
		}
		c.b.add(f)
	}
	if !n.installed.ok() {
		return
	}
	running, newest := "", ""
	for _, r := range n.installed.rows {
		if k := r["RunningKernel"]; k != "" {
			running = k
		}
		if k, ok := kernelOf(r["Package"]); ok && r["CurrentState"] == "Installed" && (newest == "" || compareVersions(k, newest) > 0) {
			newest = k
		}
	}
	if running != "" && newest != "" && compareVersions(newest, running) > 0 {
		c.b.add(Flag{Level: Info, Check: "reboot_needed", Where: whereNode(n.name), What: "a newer kernel is installed than the one that runs", Next: &Next{Operation: "node_status", Arguments: map[string]string{"node": n.name}},
			Evidence: []Evidence{{Figure: "running", Value: clean(running, 40), Source: n.installed.source()}, {Figure: "newest installed", Value: clean(newest, 40), Source: n.installed.source()}}})
	}
}

// kernelOf reads the version that an installed kernel package brings, as uname tells it: proxmox-kernel-6.17.2-2-pve-signed.
// A package that only names a series (proxmox-kernel-6.17) brings none.
func kernelOf(name string) (string, bool) {
	for _, prefix := range []string{"proxmox-kernel-", "pve-kernel-"} {
		if v, ok := strings.CutPrefix(name, prefix); ok {
			v = strings.TrimSuffix(v, "-signed")
			return v, strings.HasSuffix(v, "-pve")
		}
	}
	return "", false
}

// compareVersions compares kernel versions number by number.
func compareVersions(a, b string) int {
	split := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	}
	x, y := split(a), split(b)
	for i := range min(len(x), len(y)) {
		m, _ := number(x[i])
		n, _ := number(y[i])
		if d := cmp.Compare(m, n); d != 0 {
			return d
		}
	}
	return cmp.Compare(len(x), len(y))
}

// cut reports lists that the server shortens to what castellan may see.
func (c *round) cut() {
	g, ok := grantsOf(c.rights)
	if !ok {
		return // reported as unread itself
	}
	c.un = append(c.un, g.whole("guests", "", Warning, "/vms", "VM.Audit")...)
	if c.on("storages", "pools") {
		c.un = append(c.un, g.whole("storages", "", Critical, "/storage", "Datastore.Audit", "Datastore.AllocateSpace")...)
	}
	for _, name := range sortedNodes(c.node) {
		if n := c.node[name]; n.failed.ok() || n.active.ok() {
			c.un = append(c.un, g.whole("tasks of others", whereNode(name), Warning, "/nodes/"+name, "Sys.Audit")...)
		}
	}
}
