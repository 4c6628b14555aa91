//go:build linux

package hostapt

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"castellan/internal/patch"
)

const (
	mostUnits = 500
	mostPorts = 1000
)

// Services tells what runs.
func (h *Host) Services(ctx context.Context) patch.House {
	out := patch.House{BootID: BootID(), Units: []patch.Unit{}, Ports: []patch.Port{}}
	r, err := h.run(ctx, 20*time.Second, "systemctl", "is-system-running")
	if err != nil {
		out.Unread = append(out.Unread, "the state of systemd")
	} else {
		out.State = clip(strings.TrimSpace(r.out), 30) // its exit code is for what is not "running"
	}
	text, err := h.text(ctx, 30*time.Second, "systemctl", "show", "--no-pager", "--property=Id,LoadState,ActiveState,SubState,UnitFileState,NRestarts", "*.service")
	if err != nil {
		out.Unread = append(out.Unread, "services: "+clip(err.Error(), 200))
	}
	out.Units = parseUnits(text)
	text, err = h.text(ctx, 20*time.Second, "ss", "-H", "-l", "-n", "-t", "-u", "-p")
	if err != nil {
		out.Unread = append(out.Unread, "listening ports: "+clip(err.Error(), 200))
	}
	out.Ports = parsePorts(text)
	return out
}

// parseUnits reads blocks of "Key=value"; units that are not loaded, or did nothing since the boot and are not switched on, are
// left out.
func parseUnits(text string) []patch.Unit {
	out := []patch.Unit{}
	for block := range strings.SplitSeq(text, "\n\n") {
		f := map[string]string{}
		for line := range strings.Lines(block) {
			if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
				f[k] = v
			}
		}
		u := patch.Unit{Name: clip(strings.TrimSuffix(f["Id"], ".service"), 120), Active: clip(f["ActiveState"], 20), Sub: clip(f["SubState"], 20), Enabled: f["UnitFileState"] == "enabled"}
		u.Restarts, _ = strconv.Atoi(f["NRestarts"])
		if u.Name == "" || f["LoadState"] != "loaded" || u.Active == "inactive" && !u.Enabled || len(out) >= mostUnits {
			continue
		}
		if strings.HasPrefix(u.Name, "castellan-upgrade-") {
			continue
		}
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b patch.Unit) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// parsePorts reads "tcp LISTEN 0 128 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=1,fd=3))".
func parsePorts(text string) []patch.Port {
	out := []patch.Port{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		at := strings.LastIndexByte(f[4], ':')
		if at < 0 {
			continue
		}
		n, err := strconv.Atoi(f[4][at+1:])
		if err != nil || n < 1 || n > 65535 {
			continue
		}
		host, _, _ := strings.Cut(strings.Trim(f[4][:at], "[]"), "%")
		if host == "*" {
			host = "::"
		}
		if _, err := netip.ParseAddr(host); err != nil {
			continue
		}
		p := patch.Port{Proto: f[0], Address: host, Port: n}
		if len(f) > 6 {
			if _, rest, ok := strings.Cut(f[6], `(("`); ok {
				p.Program, _, _ = strings.Cut(rest, `"`)
				p.Program = clip(p.Program, 40)
			}
		}
		if !slices.ContainsFunc(out, func(o patch.Port) bool { return o.Proto == p.Proto && o.Address == p.Address && o.Port == p.Port }) && len(out) < mostPorts {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b patch.Port) int {
		if a.Port != b.Port {
			return a.Port - b.Port
		}
		return strings.Compare(a.Proto+a.Address, b.Proto+b.Address)
	})
	return out
}
