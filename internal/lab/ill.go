package lab

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Illness makes a running guest ill: its figures of now and its history show it, since some hours before the site began.
type Illness struct {
	Guest int
	Kind  string // "cpu", "memory", "disk", "full" (a container's root disk)
}

// ErrIllness is returned for an illness that the lab does not know or cannot give to that guest.
var ErrIllness = errors.New("unknown illness; known are cpu, memory, disk (slow storage) and full (a container's root disk)")

// ParseIllness reads "202=memory".
func ParseIllness(text string) (Illness, error) {
	id, kind, _ := strings.Cut(text, "=")
	n, err := strconv.Atoi(id)
	if err != nil || n <= 0 {
		return Illness{}, fmt.Errorf("read illness %q: give GUEST=KIND, such as 202=memory: %w", text, ErrIllness)
	}
	return Illness{Guest: n, Kind: kind}, nil
}

// illFor is how long a guest has been ill when the lab is told so.
const illFor = 3 * time.Hour

type illness struct {
	kind  string
	since time.Time
}

// worsen changes the figures of a guest to those of an ill one.
func (i illness) worsen(l *guestLoad) {
	switch i.kind {
	case "cpu":
		l.cpu, l.waitCPU = 2, 64 // more work than its processors can do: the share stops at 1
	case "memory":
		l.cpu, l.mem, l.swap, l.read, l.waitMem, l.waitIO = 0.35, 0.985, 0.92, 24<<20, 38, 16
	case "disk":
		l.cpu, l.read, l.write, l.waitIO = 0.12, 42<<20, 68<<20, 71
	case "full":
		l.disk, l.write = 0.992, 512
	}
}

func (s *state) illAt(id int, at time.Time) (illness, bool) {
	i, ok := s.ill[id]
	return i, ok && !at.Before(i.since)
}

// SetIll makes a guest ill; an empty kind heals it.
func (l *Lab) SetIll(i Illness) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.s.guests[i.Guest]
	switch {
	case g == nil:
		return fmt.Errorf("make ill: there is no guest %d", i.Guest)
	case i.Kind == "":
		delete(l.s.ill, i.Guest)
		return nil
	case !slices.Contains([]string{"cpu", "memory", "disk", "full"}, i.Kind) || i.Kind == "full" && g.kind != kindLXC:
		return fmt.Errorf("make guest %d ill of %q: %w", i.Guest, i.Kind, ErrIllness)
	case !g.running:
		return fmt.Errorf("make ill: guest %d does not run", i.Guest)
	}
	l.s.ill[i.Guest] = illness{kind: i.Kind, since: l.s.now.Add(-illFor)}
	return nil
}

// showIll puts the load of an ill guest into its state of now: "pressure…" as text for containers, as numbers for VMs.
func (s *state) showIll(g *guest, m M) {
	if _, ill := s.illAt(g.id, s.now); !ill || !g.running {
		return
	}
	l := s.loadAt(g, s.now)
	maxmem := float64(s.maxMem(g, g.conf))
	m["cpu"], m["mem"] = min(1, l.cpu), int64(maxmem*l.mem)
	if g.kind == kindQemu {
		m["memhost"] = m["mem"]
	} else {
		m["disk"] = int64(float64(toInt(m["maxdisk"])) * l.disk)
		m["swap"] = int64(float64(toInt(m["maxswap"])) * l.swap)
	}
	up := float64(s.uptimeOf(g))
	m["diskread"], m["diskwrite"] = int64(l.read*up), int64(l.write*up)
	for _, w := range l.waiting() {
		if s.rel.major < 9 {
			break
		}
		if g.kind == kindQemu {
			m["pressure"+w.key] = w.mean
		} else {
			m["pressure"+w.key] = strconv.FormatFloat(w.mean, 'f', 2, 64)
		}
	}
}

// uptimeOf is how long it has been moving data as an ill guest does.
func (s *state) uptimeOf(g *guest) int64 {
	return min(s.uptime(g), int64(s.now.Sub(s.ill[g.id].since)/time.Second))
}

func toInt(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case int:
		return int64(n)
	}
	return 0
}
