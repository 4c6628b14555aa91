package health

import "strings"

// gauge is one figure: what it is now, how it was, and from when on it counts.
type gauge struct {
	check, where, what string
	figure             string
	now                float64
	known              bool // now was read
	hour, day          stat // against warn
	warn, bad          float64
	write              func(float64) string
	measured           bool // the waiting itself was measured, not guessed from use
	source, history    string
	days               string // where the day comes from
	next               *Next
	// hint adds what the figure means here.
	hint string
}

// flag judges the figure. Confidence: likely when it is beyond its threshold now and was for most of the last hour, or
// when waiting itself was measured for either; possible when only one of them says so.
func (g gauge) flag() (Flag, bool) {
	beyond, sustained := g.known && g.now >= g.warn, g.hour.sustained()
	if !beyond && !sustained {
		return Flag{}, false
	}
	f := Flag{Level: Warning, Check: g.check, Where: g.where, What: g.what, Confidence: Possible, Next: g.next, Since: sinceOf(g.hour, g.day)}
	if beyond && sustained || g.measured {
		f.Confidence = Likely
	}
	worst := 0.0
	if sustained {
		worst = g.hour.mean
	}
	if beyond && (sustained || g.hour.n == 0) {
		worst = max(worst, g.now)
	}
	if g.bad > 0 && worst >= g.bad {
		f.Level = Critical
	}
	f.excess = max(g.hour.mean, g.now) / g.warn
	switch {
	case beyond && !sustained && g.hour.n >= fewest:
		f.What += ", at this moment"
	case !beyond && g.known:
		f.What += " for most of the last hour, not at this moment"
	case sustained:
		f.What += ", for most of the last hour"
	}
	if g.hint != "" {
		f.What += "; " + g.hint
	}
	limit := "from " + g.write(g.warn)
	if g.known {
		f.Evidence = append(f.Evidence, Evidence{Figure: g.figure + " now", Value: g.write(g.now), Threshold: limit, Source: g.source})
	}
	if g.hour.n > 0 {
		f.Evidence = append(f.Evidence,
			Evidence{Figure: g.figure + ", last hour, mean", Value: g.write(g.hour.mean), Threshold: limit, Source: g.history},
			Evidence{Figure: g.figure + ", last hour, highest", Value: g.write(g.hour.max), Source: g.history},
			Evidence{Figure: "share of the last hour beyond the threshold", Value: pct(g.hour.share), Threshold: "from 50.0 %", Source: g.history})
	}
	if g.day.n > 0 {
		f.Evidence = append(f.Evidence, Evidence{Figure: g.figure + ", last day, mean", Value: g.write(g.day.mean), Source: g.days})
	}
	return f, true
}

// bag collects flags.
type bag struct{ flags []Flag }

func (b *bag) gauge(g gauge) {
	if f, ok := g.flag(); ok {
		b.flags = append(b.flags, f)
	}
}

// tells says whether a check has a flag about a pool of this node already.
func (b *bag) tells(check, node string) bool {
	for _, f := range b.flags {
		if f.Check == check && strings.HasSuffix(f.Where, " on node "+node) {
			return true
		}
	}
	return false
}

func (b *bag) add(f Flag) { b.flags = append(b.flags, f) }

// fill judges how full something is: used of total, in shares.
func fill(f Flag, used, total, warn, bad float64, figure, source string) (Flag, bool) {
	if total <= 0 {
		return f, false
	}
	share := used / total
	if share < warn {
		return f, false
	}
	f.Level, f.excess = Warning, share/warn
	if share >= bad {
		f.Level = Critical
	}
	f.Evidence = append(f.Evidence, Evidence{Figure: figure, Value: pct(share) + " (" + size(used) + " of " + size(total) + ")", Threshold: "warning from " + pct(warn) + ", critical from " + pct(bad), Source: source})
	return f, true
}
