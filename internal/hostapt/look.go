//go:build linux

package hostapt

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"castellan/internal/patch"
)

// Look refreshes the package lists and tells what a full upgrade would do, and what stands against it. A report is made even
// where the lists could not be refreshed; it says so.
func (h *Host) Look(ctx context.Context, refresh bool) (patch.Report, error) {
	var r patch.Report
	all, err := h.inventory(ctx)
	if err != nil {
		return r, err
	}
	r.BootID, r.Clock, r.System = BootID(), time.Now().UTC().Truncate(time.Second), system(all)
	r.Lock = holder()
	if refresh {
		r.Fresh, r.Stale = h.refresh(ctx)
	} else {
		r.Stale = "the package lists were not read anew"
	}
	if r.Packages, err = h.database(ctx); err != nil {
		r.Unread = append(r.Unread, "the package database: "+clip(err.Error(), 300))
	}
	if err := h.full(ctx, &r, all); err != nil {
		r.Packages.Clean = false
		r.Packages.Problems = append(r.Packages.Problems, "what an upgrade would do could not be found out: "+clip(err.Error(), 400))
	}
	r.Reboot = h.reboot(all)
	r.Automatic = h.automatic(ctx, all)
	r.NotCovered = []string{"guests of this node and their packages", "firmware of the machine beside what packages bring"}
	r.Security = patch.Transaction{}
	for _, c := range r.All {
		if c.Security {
			r.Security = append(r.Security, c)
		}
	}
	return r, nil
}

// refresh reads the lists of all archives anew; why is what kept it from that.
func (h *Host) refresh(ctx context.Context) (fresh bool, why string) {
	options := append(aptOptions(""), "-o", "APT::Update::Error-Mode=any", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=15", "-o", "Acquire::https::Timeout=15", "-o", "DPkg::Lock::Timeout=20", "update")
	r, err := h.run(ctx, 2*time.Minute, append([]string{"apt-get"}, options...)...)
	if err == nil && r.code == 0 {
		return true, ""
	}
	text := r.err + r.out
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if (strings.HasPrefix(line, "E:") || strings.HasPrefix(line, "W:") || strings.HasPrefix(line, "Err:")) && len(lines) < 6 {
			lines = append(lines, clip(line, 200))
		}
	}
	why = strings.Join(lines, " / ")
	switch {
	case err != nil:
		why = err.Error() + " " + why
	case strings.Contains(text, "enterprise.proxmox.com") && strings.Contains(text, "401"):
		why = "the enterprise repository answers 401 Unauthorized: it takes a subscription. Enter a key, or switch that repository off and the no-subscription one on. " + why
	case strings.Contains(text, "is expired") || strings.Contains(text, "is not valid yet"):
		why = "a release file has expired or is not valid yet: look at the archive and at this machine's clock. " + why
	case strings.Contains(text, "NO_PUBKEY") || strings.Contains(text, "EXPKEYSIG"):
		why = "the key of an archive is missing or has expired. " + why
	}
	return false, clip(strings.TrimSpace(why), 900)
}

// full finds out what "apt-get dist-upgrade" would do with official archives alone.
func (h *Host) full(ctx context.Context, r *patch.Report, all inventory) error {
	policy, err := h.text(ctx, time.Minute, "apt-cache", "policy")
	if err != nil {
		return err
	}
	sources, code := parsePolicy(policy), r.System.Codename
	if err := h.verify(ctx, sources); err != nil {
		return err
	}
	for _, s := range sources {
		switch {
		case s.feigns():
			problem(r, fmt.Sprintf("the archive %s calls itself %s's and is not signed by a key of %s: take it out of the sources, or have the keys in their packages (debian-archive-keyring, proxmox-archive-keyring)", clip(s.place(), 120), s.origin, s.origin))
		case s.otherRelease(code):
			problem(r, fmt.Sprintf("an archive of another release is configured (%s of %s): castellan makes no release upgrades; take it out of the sources, or upgrade by hand, by Proxmox's own instructions", s.codename, s.origin))
		case s.official(code) && s.origin == "Proxmox" && (strings.Contains(s.comp, "test") || strings.Contains(s.comp, "no-subscription")):
			note(r, "packages come from "+s.archive()+", which Proxmox does not recommend for production")
		}
	}
	if !slices.ContainsFunc(sources, func(s source) bool { return s.official(code) && s.origin == "Proxmox" }) {
		note(r, "no archive of Proxmox is configured: its own packages get no updates")
	}
	dir, remove, err := h.preferences(sources, code)
	if err != nil {
		return err
	}
	defer remove()
	now, moves, err := h.transaction(ctx, dir, sources, code, all)
	if err != nil {
		return err
	}
	r.All = now
	r.Pending = h.pending(ctx, sources, code, all, now, moves)
	for _, c := range now {
		if c.Action != patch.Remove && c.Archive == "" {
			problem(r, c.Name+" "+c.New+" would come from no archive that is known")
		}
	}
	for _, c := range moves.foreign {
		problem(r, fmt.Sprintf("%s would come from %s, which is no archive of Debian or Proxmox of this release: a pin of the administrator's asks for it", c.Name, c.Archive))
	}
	h.space(ctx, r, dir, now)
	return nil
}

func problem(r *patch.Report, text string) {
	r.Packages.Clean = false
	if !slices.Contains(r.Packages.Problems, text) {
		r.Packages.Problems = append(r.Packages.Problems, text)
	}
}

func note(r *patch.Report, text string) {
	if !slices.Contains(r.NotCovered, text) && !slices.Contains(r.Unread, text) {
		r.Unread = append(r.Unread, text)
	}
}

// transaction is what a full upgrade with these preferences does.
func (h *Host) transaction(ctx context.Context, preferences string, sources []source, code string, all inventory) (patch.Transaction, simulated, error) {
	text, err := h.text(ctx, 2*time.Minute, append(append([]string{"apt-get"}, aptOptions(preferences)...), "-s", "dist-upgrade")...)
	if err != nil {
		return nil, simulated{}, err
	}
	sim, err := parseSimulation(text)
	if err != nil {
		return nil, sim, err
	}
	var names []string
	for i := range sim.moves {
		m := &sim.moves[i]
		if m.arch == "" {
			if have, ok := all.find(m.name, ""); ok {
				m.arch = have.arch
			}
		}
		if !m.remove {
			names = append(names, m.name+":"+m.arch)
		}
	}
	known, err := h.policyOf(ctx, names)
	if err != nil {
		return nil, sim, err
	}
	out := patch.Transaction{}
	for _, m := range sim.moves {
		c := patch.Change{Name: m.name, Arch: m.arch, Old: m.old, New: m.fresh, Action: patch.Upgrade}
		switch {
		case m.remove:
			c.Action = patch.Remove
		case m.old == "":
			c.Action = patch.Install
		}
		if c.Action != patch.Remove {
			if s, ok := best(policyFor(known, m.name, m.arch).archives(m.fresh, sources), code); ok {
				c.Archive, c.Security = s.archive(), s.sort(code) == patch.Security
				if !s.official(code) { // its name alone does not tell: another archive may go by the same
					sim.foreign = append(sim.foreign, c)
				}
			}
		}
		out = append(out, c)
	}
	sortTransaction(out)
	return out, sim, nil
}

func policyFor(known map[string]known, name, arch string) known {
	for _, n := range []string{name, name + ":" + arch} {
		if k, ok := known[n]; ok {
			return k
		}
	}
	return known[name+":all"]
}

// policyOf asks for many packages at once.
func (h *Host) policyOf(ctx context.Context, names []string) (map[string]known, error) {
	out := map[string]known{}
	for part := range slices.Chunk(names, 500) {
		for i, n := range part {
			part[i] = strings.TrimSuffix(n, ":all")
		}
		text, err := h.text(ctx, time.Minute, append([]string{"apt-cache", "policy", "--"}, part...)...)
		if err != nil {
			return nil, err
		}
		for k, v := range parsePolicyOf(text) {
			out[k] = v
		}
	}
	return out, nil
}

// pending names what has a newer version that is not installed, and why.
func (h *Host) pending(ctx context.Context, sources []source, code string, all inventory, now patch.Transaction, sim simulated) []patch.Pending {
	var out []patch.Pending
	coming := map[string]bool{}
	for _, c := range now {
		coming[c.Name] = true
		if c.Action == patch.Upgrade {
			p := patch.Pending{Name: c.Name, Arch: c.Arch, Installed: c.Old, Available: c.New, Archive: c.Archive, Sort: patch.Official}
			if c.Security {
				p.Sort = patch.Security
			}
			out = append(out, p)
		}
	}
	text, err := h.text(ctx, 2*time.Minute, append(append([]string{"apt-get"}, aptOptions("")...), "-s", "dist-upgrade")...)
	if err != nil {
		return out
	}
	wide, err := parseSimulation(text)
	if err != nil {
		return out
	}
	for _, m := range wide.moves {
		if m.remove || m.old == "" || coming[m.name] {
			continue
		}
		coming[m.name] = true
		p := patch.Pending{Name: m.name, Arch: m.arch, Installed: m.old, Available: m.fresh, Sort: patch.ThirdParty, Why: "third_party", Note: "its archive is not of Debian or Proxmox for this release"}
		if known, err := h.policyOf(ctx, []string{m.name}); err == nil {
			if s, ok := best(policyFor(known, m.name, m.arch).archives(m.fresh, sources), code); ok {
				p.Archive = s.archive()
				if strings.HasSuffix(s.codename, "-backports") {
					p.Why = "backports"
				}
			}
		}
		out = append(out, p)
	}
	for _, name := range append(slices.Clone(sim.kept), wide.kept...) {
		name, _, _ = strings.Cut(name, ":")
		have, ok := all.find(name, "")
		if !ok || coming[name] {
			continue
		}
		coming[name] = true
		p := patch.Pending{Name: name, Arch: have.arch, Installed: have.version, Sort: patch.Official, Why: "kept_back", Note: "apt keeps it back: what it needs cannot be had, or is not to be removed"}
		if have.held() {
			p.Why, p.Note = "held", "apt-mark hold"
		}
		if known, err := h.policyOf(ctx, []string{name}); err == nil {
			k := policyFor(known, name, have.arch)
			for _, v := range k.versions {
				if v.text != have.version {
					p.Available = v.text
					if s, ok := best(k.archives(v.text, sources), code); ok {
						p.Archive, p.Sort = s.archive(), s.sort(code)
					}
					break
				}
			}
		}
		out = append(out, p)
	}
	return out
}

// space compares what is free with what is needed, and tells the sizes of what is fetched.
func (h *Host) space(ctx context.Context, r *patch.Report, preferences string, now patch.Transaction) {
	fetch := int64(0)
	text, err := h.text(ctx, time.Minute, append(append([]string{"apt-get"}, aptOptions(preferences)...), "-y", "--print-uris", "dist-upgrade")...)
	if err != nil {
		r.Unread = append(r.Unread, "how much is to be fetched")
	}
	sizes := map[string]int64{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 3 || !strings.HasPrefix(f[0], "'") {
			continue
		}
		if n, err := strconv.ParseInt(f[2], 10, 64); err == nil && n >= 0 && strings.HasSuffix(f[1], ".deb") {
			name, _, _ := strings.Cut(f[1], "_")
			sizes[name] = n
			fetch += n
		}
	}
	kernels := 0
	for i := range now {
		now[i].Bytes = sizes[now[i].Name]
		if _, is := kernelOf(now[i].Name); is && now[i].Action == patch.Install {
			kernels++
		}
	}
	const margin = 256 << 20
	need := map[string]int64{"/": margin + 4*fetch, "/var": margin + 4*fetch}
	if kernels > 0 {
		need["/boot"] = int64(kernels)*180<<20 + 20<<20
	}
	seen := map[[2]uint64]bool{}
	for _, path := range []string{"/", "/var", "/boot"} {
		var f unix.Statfs_t
		var st unix.Stat_t
		if need[path] == 0 || unix.Statfs(path, &f) != nil || unix.Stat(path, &st) != nil {
			continue
		}
		if id := [2]uint64{uint64(st.Dev), 0}; path == "/var" && seen[id] {
			continue
		} else {
			seen[id] = true
		}
		r.Space = append(r.Space, patch.Space{Path: path, Free: int64(f.Bavail) * f.Bsize, Need: need[path]})
	}
}

// reboot says whether the machine waits for one.
func (h *Host) reboot(all inventory) patch.Reboot {
	r := patch.Reboot{Known: true}
	running := kernel()
	if virtual() {
		running = "" // a container has its node's kernel
	}
	newest := ""
	for _, p := range all {
		if k, ok := kernelOf(p.name); ok && (newest == "" || laterKernel(k, newest)) {
			newest = k
		}
	}
	if running != "" && newest != "" && laterKernel(newest, running) {
		r.Needed = true
		r.Why = append(r.Why, "kernel "+newest+" is installed, "+running+" runs")
	}
	if _, err := os.Stat("/run/reboot-required"); err == nil {
		r.Needed = true
		why := "/run/reboot-required is there"
		if b, err := os.ReadFile("/run/reboot-required.pkgs"); err == nil {
			why += ": " + clip(strings.Join(strings.Fields(string(b)), " "), 200)
		}
		r.Why = append(r.Why, why)
	}
	return r
}

// virtual says whether this is a container: its kernel is another machine's.
func virtual() bool {
	_, err := os.Stat("/run/systemd/container")
	return err == nil
}

// laterKernel compares releases of one flavour number by number; those of different flavours are not compared.
func laterKernel(a, b string) bool {
	split := func(s string) (numbers []int, flavour string) {
		for _, f := range strings.FieldsFunc(s, func(r rune) bool { return r == '.' || r == '-' || r == '+' || r == '~' }) {
			if n, err := strconv.Atoi(f); err == nil {
				numbers = append(numbers, n)
			} else {
				flavour += f
			}
		}
		return numbers, flavour
	}
	x, fx := split(a)
	y, fy := split(b)
	return fx == fy && slices.Compare(x, y) > 0
}

func (h *Host) automatic(ctx context.Context, all inventory) patch.Automatic {
	if _, ok := all.find("unattended-upgrades", ""); !ok {
		return patch.Automatic{State: "off"}
	}
	text, err := h.text(ctx, 20*time.Second, "apt-config", "dump", "APT::Periodic::Unattended-Upgrade")
	switch {
	case err != nil:
		return patch.Automatic{State: "unknown", By: "unattended-upgrades"}
	case strings.Contains(text, `"0"`) || strings.TrimSpace(text) == "":
		return patch.Automatic{State: "off", By: "unattended-upgrades"}
	}
	return patch.Automatic{State: "on", By: "unattended-upgrades"}
}

// Status tells the boot, the clock, and whether somebody works on packages.
func (h *Host) Status(ctx context.Context) (patch.Report, error) {
	all, err := h.inventory(ctx)
	if err != nil {
		return patch.Report{}, err
	}
	return patch.Report{BootID: BootID(), Clock: time.Now().UTC().Truncate(time.Second), System: system(all), Lock: holder(), Reboot: h.reboot(all), Stale: "a status does not read the package lists",
		Security: patch.Transaction{}, All: patch.Transaction{}}, nil
}

// conffiles are configuration files that an upgrade kept as they were, as dpkg's output tells.
func conffiles(log string) []string {
	var out []string
	file := ""
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "Configuration file '"); ok {
			file = strings.TrimSuffix(rest, "'")
		}
		if strings.HasPrefix(line, "==> Keeping old config file") && file != "" && filepath.IsAbs(file) && len(out) < 100 {
			out = append(out, clip(file, 300))
			file = ""
		}
	}
	return out
}
