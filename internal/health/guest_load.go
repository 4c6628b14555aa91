package health

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"castellan/internal/estate"
)

// load gives a gauge of this guest what all have in common.
func (p *patient) load(g gauge, f func(point) (float64, bool)) gauge {
	hour := p.hour.series()
	day := p.day.series()
	g.where, g.hour, g.day = p.where, hour.over(g.warn, f), day.over(g.warn, f)
	g.source, g.history, g.days = p.status.source(), p.hour.source(), p.day.source()
	return g
}

// processors: use of its own processors, or of its limit, which may be less.
func (p *patient) processors(b *bag) {
	st, conf := p.status.row(), p.config.row()
	cpu, known := num(st, "cpu")
	cpus, _ := num(st, "cpus")
	limit, limited := num(conf, "cpulimit")
	limited = limited && limit > 0 && cpus > 0
	f := figure("cpu")
	g := gauge{check: "cpu_full", what: "it uses nearly all of its processors", figure: "processor use", now: cpu, known: known, warn: busyCPU, bad: fullCPU, write: pct, next: p.next("set_guest_config")}
	if cpus > 0 {
		g.hint = fmt.Sprintf("it has %s", plural(int(cpus+0.5), "processor", "processors"))
		if cpus != float64(int(cpus)) {
			g.hint = "it has " + short(cpus) + " processors"
		}
	}
	if limited && limit < cpus { // a VM counts use against all its processors, whatever its limit
		scale := cpus / limit
		g.check, g.what, g.figure = "cpu_limit", fmt.Sprintf("it uses nearly all that its processor limit of %s allows", plain(limit)), "use of the limit"
		g.now *= scale
		f = func(pt point) (float64, bool) { v, ok := pt.figures["cpu"]; return v * scale, ok }
		g.hint = fmt.Sprintf("it has %s processors", plain(cpus))
	} else if limited {
		g.check, g.what = "cpu_limit", fmt.Sprintf("it uses nearly all that its processor limit of %s allows", plain(limit))
	}
	b.gauge(p.load(g, f))
	if units, set := num(conf, "cpuunits"); set && units < 100 && p.host.node.CPU >= nodeCPU {
		b.add(Flag{Level: Info, Check: "cpu_weight", Where: p.where, What: "its processor weight is below that of others, and the node's processors are busy", Confidence: Possible, excess: 100 / max(units, 1), Next: p.next("set_guest_config"),
			Evidence: []Evidence{{Figure: "cpuunits", Value: plain(units), Threshold: "below 100", Source: p.config.source()}, {Figure: "processor use of the node", Value: pct(p.host.node.CPU), Threshold: "from " + pct(nodeCPU), Source: "GET /cluster/resources"}}})
	}
}

// memory: use against what it has, ballooning, swap of a container.
func (p *patient) memory(b *bag) {
	st, conf := p.status.row(), p.config.row()
	u, okU := num(st, "mem")
	t, okT := num(st, "maxmem")
	share := 0.0
	if t > 0 {
		share = u / t
	}
	g := gauge{check: "memory_full", what: "its memory is nearly used up", figure: "memory use", now: share, known: okU && okT && t > 0, warn: fullMemory, bad: fullMemoryBad, write: pct, next: p.next("set_guest_config")}
	if okT {
		g.hint = "it has " + size(t)
	}
	told := true
	if p.g.Kind == estate.VM {
		if _, balloon := st["ballooninfo"]; !balloon {
			told = false
			g.hint += "; the VM does not tell how much of it is cache, so that this counts cache as used"
			g.bad = 0
		}
	}
	if f, yes := p.load(g, ratio("mem", "maxmem")).flag(); yes {
		if !told {
			f.Level, f.Confidence = Info, Possible
		}
		b.add(f)
	}
	if have, ok := num(st, "balloon"); ok && p.g.Kind == estate.VM && t > 0 && have > 0 && have/t < ballooned && conf["balloon"] != "0" {
		b.add(Flag{Level: Warning, Check: "ballooned", Where: p.where, What: "the node has taken memory back from it by ballooning", Confidence: Possible, excess: t / have, Next: p.next("guest_config"),
			Evidence: []Evidence{{Figure: "memory that it has now", Value: size(have) + " of " + size(t), Threshold: "below " + pct(ballooned), Source: p.status.source()},
				{Figure: "memory use of the node", Value: pct(safeShare(float64(p.host.node.Mem), float64(p.host.node.MaxMem))), Source: "GET /cluster/resources"}}})
	}
	if p.g.Kind != estate.CT {
		return
	}
	su, okU := num(st, "swap")
	so, okT := num(st, "maxswap")
	if okU && okT && so > 0 && su/so >= swapUsed {
		f := Flag{Level: Warning, Check: "swapping", Where: p.where, What: "it has swapped memory out", Confidence: Possible, excess: su / so / swapUsed, Next: p.next("set_guest_config"),
			Evidence: []Evidence{{Figure: "swap use now", Value: pct(su/so) + " (" + size(su) + " of " + size(so) + ")", Threshold: "from " + pct(swapUsed), Source: p.status.source()},
				{Figure: "memory use now", Value: pct(share), Source: p.status.source()}}}
		if share >= fullMemory { // little memory left beside much in swap: two figures say the same
			f.Confidence = Likely
		}
		if su/so >= swapUsedBad && share >= fullMemory {
			f.Level = Critical
		}
		b.add(f)
	}
}

func safeShare(part, of float64) float64 {
	if of <= 0 {
		return 0
	}
	return part / of
}

// disk: how full its file systems are: a container's root, which the node sees; a VM's only through its agent.
func (p *patient) disk(b *bag) {
	if p.g.Kind == estate.CT {
		st := p.status.row()
		u, okU := num(st, "disk")
		t, okT := num(st, "maxdisk")
		if !okU || !okT {
			return
		}
		if f, yes := fill(Flag{Check: "disk_full", Where: p.where, What: "its root disk is nearly full", Confidence: Likely, Next: p.next("set_guest_config")}, u, t, diskFull, diskFullBad, "root disk", p.status.source()); yes {
			if f.Level == Critical {
				f.Confidence = Certain
			}
			b.add(f)
		}
		return
	}
	if !p.agent.ok() {
		return
	}
	for _, fs := range fileSystems(p.agent.raw) {
		u, okU := num(fs, "used-bytes")
		t, okT := num(fs, "total-bytes")
		if !okU || !okT || t < 64<<20 || readOnly(fs["type"]) {
			continue
		}
		f, yes := fill(Flag{Check: "disk_full", Where: p.where, What: "its file system " + named(fs["mountpoint"]) + " is nearly full", Confidence: Likely, Next: p.next("set_guest_config")}, u, t, diskFull, diskFullBad, "file system, from its agent", p.agent.source())
		if yes {
			if f.Level == Critical {
				f.Confidence = Certain
			}
			b.add(f)
		}
	}
}

// readOnly are file systems that are always full.
func readOnly(kind string) bool {
	switch strings.ToLower(kind) {
	case "iso9660", "squashfs", "udf", "cdfs", "erofs":
		return true
	}
	return false
}

// fileSystems unwraps the agent's answer.
func fileSystems(raw json.RawMessage) []estate.Config {
	var out struct {
		Result json.RawMessage `json:"result"`
	}
	if json.Unmarshal(raw, &out) != nil {
		return nil
	}
	rows, err := rowsOf(out.Result)
	if err != nil {
		return nil
	}
	return rows
}

// pressures: how long its own work waited, as PVE 9 and later measure it.
func (p *patient) pressures(b *bag) {
	st := p.status.row()
	for _, x := range []struct {
		key, check, what string
		warn, bad        float64
		next             *Next
	}{
		{"pressurecpusome", "cpu_pressure", "its work waits for processors", pressureSome, pressureSomeBad, p.next("set_guest_config")},
		{"pressurecpufull", "cpu_stall", "all its work stands still for processors at times", pressureFull, pressureFullBad, p.next("set_guest_config")},
		{"pressureiosome", "io_pressure", "its work waits for disks", pressureSome, pressureSomeBad, &Next{Operation: "list_storage", Arguments: map[string]string{"node": p.g.Node}}},
		{"pressureiofull", "io_stall", "all its work stands still for disks at times", pressureFull, pressureFullBad, &Next{Operation: "list_storage", Arguments: map[string]string{"node": p.g.Node}}},
		{"pressurememorysome", "memory_pressure", "its work waits for memory", pressureMem, pressureMemBad, p.next("set_guest_config")},
		{"pressurememoryfull", "memory_stall", "all its work stands still for memory at times", pressureMem, pressureMemBad, p.next("set_guest_config")},
	} {
		now, known := num(st, x.key)
		b.gauge(p.load(gauge{check: x.check, what: x.what, figure: x.key, now: now, known: known, warn: x.warn, bad: x.bad, write: points, measured: true, next: x.next}, figure(x.key)))
	}
}

func (p *patient) traffic() float64 {
	s := p.hour.series()
	return s.over(0, sum("diskread", "diskwrite")).mean
}

// limits: disk and network traffic against limits that its settings set. A limit of a disk is compared with the traffic
// of all disks, so that it can only be possible.
func (p *patient) limits(b *bag) {
	hour := p.hour.series()
	if len(hour.points) == 0 {
		return
	}
	conf := p.config.row()
	one := func(check, key, option, what string, most float64, f func(point) (float64, bool)) {
		if most <= 0 {
			return
		}
		s := hour.over(most*limitReached, f)
		if s.n == 0 || s.max < most*limitReached {
			return
		}
		fl := Flag{Level: Warning, Check: check, Where: p.where, What: what, Confidence: Possible, Since: stamp(s.since), excess: s.max / most, Next: p.next("set_guest_config"),
			Evidence: []Evidence{{Figure: "traffic, last hour, highest", Value: rate(s.max), Threshold: "from " + pct(limitReached) + " of " + rate(most), Source: p.hour.source()},
				{Figure: "traffic, last hour, mean", Value: rate(s.mean), Source: p.hour.source()}, {Figure: key + " " + option, Value: rate(most), Source: p.config.source()}}}
		if s.sustained() {
			fl.Confidence = Likely
		}
		b.add(fl)
	}
	disks := disksOf(conf)
	for _, d := range disks {
		for _, l := range []struct{ option, key, what string }{{"mbps_rd", "diskread", "reading"}, {"mbps_wr", "diskwrite", "writing"}, {"mbps", "", "traffic"}} {
			text, set := property(d.value, l.option)
			most, ok := number(text)
			if !set || !ok {
				continue
			}
			f := figure(l.key)
			if l.key == "" {
				f = sum("diskread", "diskwrite")
			}
			one("io_limit", d.key, l.option, fmt.Sprintf("%s of %s comes up to its limit", l.what, d.key), most*(1<<20), f)
		}
	}
	for _, k := range keysOf(conf, "net") {
		text, set := property(conf[k], "rate")
		if most, ok := number(text); set && ok {
			one("network_limit", k, "rate", "network traffic comes up to the limit of "+k, most*(1<<20), func(pt point) (float64, bool) {
				in, okIn := pt.figures["netin"]
				out, okOut := pt.figures["netout"]
				return max(in, out), okIn || okOut
			})
		}
	}
}

// property picks one key of a property string.
func property(text, key string) (string, bool) {
	for _, part := range strings.Split(text, ",") {
		if name, v, named := strings.Cut(part, "="); named && strings.TrimSpace(name) == key {
			return strings.TrimSpace(v), true
		}
	}
	return "", false
}

// figures are the plain numbers beside the flags: now, the last hour, the last day.
func (p *patient) figures() []Evidence {
	st := p.status.row()
	var out []Evidence
	add := func(name, value, source string) {
		out = append(out, Evidence{Figure: name, Value: value, Source: source})
	}
	if s := cmp.Or(st["status"], p.g.Status); s != "" {
		add("state", clean(s, 30), p.status.source())
	}
	if !p.running() {
		return out
	}
	if f, ok := num(st, "cpu"); ok {
		add("processor use now", pct(f), p.status.source())
	}
	for _, x := range []struct{ name, part, of string }{{"memory", "mem", "maxmem"}, {"swap", "swap", "maxswap"}, {"root disk", "disk", "maxdisk"}} {
		u, okU := num(st, x.part)
		t, okT := num(st, x.of)
		if okU && okT && t > 0 && (x.part != "disk" || p.g.Kind == estate.CT) {
			add(x.name+" now", size(u)+" of "+size(t)+" ("+pct(u/t)+")", p.status.source())
		}
	}
	hour := p.hour.series()
	day := p.day.series()
	for _, x := range []struct {
		name  string
		f     func(point) (float64, bool)
		write func(float64) string
	}{{"processor use", figure("cpu"), pct}, {"memory use", ratio("mem", "maxmem"), pct}, {"disk reading", figure("diskread"), rate}, {"disk writing", figure("diskwrite"), rate},
		{"network in", figure("netin"), rate}, {"network out", figure("netout"), rate}, {"waiting for processors (pressurecpusome)", figure("pressurecpusome"), points},
		{"waiting for disks (pressureiosome)", figure("pressureiosome"), points}, {"waiting for memory (pressurememorysome)", figure("pressurememorysome"), points}} {
		if s := hour.over(0, x.f); s.n > 0 {
			text := x.write(s.mean) + " mean, " + x.write(s.max) + " highest in the last hour"
			if d := day.over(0, x.f); d.n > 0 {
				text += "; " + x.write(d.mean) + " mean in the last day"
			}
			add(x.name, text, p.hour.source())
		}
	}
	return out
}
