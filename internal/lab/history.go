package lab

import (
	"hash/fnv"
	"math"
	"strconv"
	"strings"
	"time"
)

// span is how a load history is kept: seconds a point, and how many.
type span struct{ step, count int64 }

// spans of this version; the newest point is the last whole step.
func (r release) spans() map[string]span {
	if r.major < 9 {
		return map[string]span{"hour": {60, 60}, "day": {1800, 70}, "week": {10800, 70}, "month": {43200, 70}, "year": {604800, 70}, "decade": {604800, 70}}
	}
	return map[string]span{"hour": {60, 60}, "day": {60, 1440}, "week": {1800, 336}, "month": {1800, 1440}, "year": {21600, 1440}, "decade": {604800, 570}}
}

// rrdData is a history of load. It is made up when it is asked for, the same for the same site and time, and agrees with
// what the state of now says. The nested site keeps none: there the points are empty.
func rrdData(c *call) (any, error) {
	point := func(int64) row { return nil }
	switch {
	case strings.Contains(c.op.Path, "{vmid}"):
		g, err := c.guestOf()
		if err != nil {
			return nil, err
		}
		point = func(at int64) row { return c.s.guestPoint(g, at) }
	case strings.Contains(c.op.Path, "{storage}"):
		st := c.s.storages[c.str("storage")]
		if st != nil {
			total, used := float64(st.total), float64(c.s.used(c.node.name, st))
			point = func(at int64) row {
				weeks := float64(c.s.now.Unix()-at) / (7 * 86400)
				return row{{"total", total}, {"used", math.Floor(used / (1 + weeks/100))}} // storages fill up slowly
			}
		}
	default:
		point = func(at int64) row { return c.s.nodePoint(c.node, at) }
	}
	sp, known := c.s.rel.spans()[c.str("timeframe")]
	if !known {
		sp = c.s.rel.spans()["hour"]
	}
	end := c.s.now.Unix() / sp.step * sp.step
	out := make([]any, 0, sp.count)
	for i := sp.count - 1; i > 0; i-- {
		at := end - i*sp.step
		p := row{{"time", at}}
		if !c.s.nested {
			p = append(p, point(at)...)
		}
		out = append(out, p)
	}
	return out, nil
}

// sway moves a figure around its mean: by the time of day, and from point to point.
func sway(seed string, at int64, mean float64) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(seed + "\x00" + strconv.FormatInt(at, 10)))
	noise := float64(h.Sum64()%2000)/1000 - 1
	h.Reset()
	_, _ = h.Write([]byte(seed))
	day := math.Sin(2 * math.Pi * float64(at+int64(h.Sum64()%86400)) / 86400)
	return max(0, mean*(1+0.2*day+0.2*noise))
}

// guestLoad are the figures of a running guest: shares 0 to 1, bytes a second, percent of the time.
type guestLoad struct {
	cpu, mem, swap, disk     float64
	read, write, in, out     float64
	waitCPU, waitIO, waitMem float64 // some waited; of them all waited for two thirds
}

// loadAt is the mean load of a guest around a time.
func (s *state) loadAt(g *guest, at time.Time) guestLoad {
	maxmem := float64(s.maxMem(g, g.conf))
	l := guestLoad{cpu: 0.005, mem: vmMem / maxmem, read: 2560, write: 18432, in: 1536, out: 2048, waitCPU: 0.2, waitIO: 0.3}
	if g.kind == kindLXC {
		l.mem, l.disk = ctMem/maxmem, ctDisk/float64(max(s.rootSize(g, g.conf), 1))
	}
	if k, ill := s.illAt(g.id, at); ill {
		k.worsen(&l)
	}
	return l
}

// guestPoint is one point of a guest's history. A guest that did not run has its sizes only.
func (s *state) guestPoint(g *guest, at int64) row {
	id := strconv.Itoa(g.id)
	maxmem, size := float64(s.maxMem(g, g.conf)), float64(s.rootSize(g, g.conf))
	p := row{{"maxcpu", s.cpus(g, g.conf)}, {"maxmem", maxmem}, {"maxdisk", size}}
	t := time.Unix(at, 0)
	if !g.running || t.Before(g.started) {
		return append(p, cell{"disk", 0})
	}
	l := s.loadAt(g, t)
	v := func(key string, mean float64) cell { return cell{key, sway(id+key, at, mean)} }
	share := func(key string, mean, of float64) cell { return cell{key, math.Floor(of * min(1, mean))} }
	p = append(p, cell{"cpu", min(1, sway(id+"cpu", at, l.cpu))}, share("mem", l.mem, maxmem), share("disk", l.disk, size),
		v("diskread", l.read), v("diskwrite", l.write), v("netin", l.in), v("netout", l.out))
	if s.rel.major < 9 {
		return p
	}
	if g.kind == kindQemu {
		p = append(p, share("memhost", l.mem, maxmem))
	}
	for _, w := range l.waiting() {
		p = append(p, cell{"pressure" + w.key, min(100, sway(id+w.key, at, w.mean))})
	}
	return p
}

type waiting struct {
	key  string
	mean float64
}

func (l guestLoad) waiting() []waiting {
	const all = 2.0 / 3 // of those times nobody could go on
	return []waiting{{"cpusome", l.waitCPU}, {"cpufull", l.waitCPU * all}, {"iosome", l.waitIO}, {"iofull", l.waitIO * all}, {"memorysome", l.waitMem}, {"memoryfull", l.waitMem * all}}
}

// nodeLoad are a node's own figures.
type nodeLoad struct{ cpu, wait, load, waitCPU, waitIO, waitMem float64 }

// nodeLoadAt is the mean load of a node: what it has anyway, and what ill guests add.
func (s *state) nodeLoadAt(n *node, at time.Time) nodeLoad {
	l := nodeLoad{cpu: 0.042, load: 0.36, waitCPU: 0.1, waitIO: 0.2}
	for id := range s.ill {
		g := s.guests[id]
		if g == nil || !g.running || g.node != n.name || at.Before(g.started) {
			continue
		}
		if _, ill := s.illAt(id, at); !ill {
			continue
		}
		x := s.loadAt(g, at)
		cores := min(s.cpus(g, g.conf), float64(n.cpus))
		l.cpu = min(1, l.cpu+x.cpu*cores/float64(n.cpus))
		l.load += x.cpu*cores + x.waitIO/50
		l.wait = min(0.9, l.wait+x.waitIO/500)
		l.waitCPU, l.waitIO, l.waitMem = max(l.waitCPU, x.waitCPU/20), max(l.waitIO, x.waitIO/3), max(l.waitMem, x.waitMem/20)
	}
	return l
}

func (s *state) nodePoint(n *node, at int64) row {
	l := s.nodeLoadAt(n, time.Unix(at, 0))
	v := func(key string, mean float64) cell { return cell{key, sway(n.name+key, at, mean)} }
	total := float64(n.mem)
	used := math.Floor(total / 4)
	p := row{{"maxcpu", n.cpus}, {"cpu", min(1, sway(n.name+"cpu", at, l.cpu))}, {"iowait", min(1, sway(n.name+"iowait", at, l.wait+0.001))}, v("loadavg", l.load), {"memtotal", total}, {"memused", used},
		{"swaptotal", 0}, {"swapused", 0}, {"roottotal", float64(n.disk)}, {"rootused", math.Floor(float64(n.disk) / 10)}, v("netin", 24576), v("netout", 32768)}
	if s.rel.major < 9 {
		return p
	}
	p = append(p, cell{"memavailable", total - used}, cell{"arcsize", 0})
	for _, w := range []waiting{{"cpusome", l.waitCPU}, {"iosome", l.waitIO}, {"iofull", l.waitIO * 2 / 3}, {"memorysome", l.waitMem}, {"memoryfull", l.waitMem * 2 / 3}} {
		p = append(p, cell{"pressure" + w.key, min(100, sway(n.name+w.key, at, w.mean))})
	}
	return p
}
