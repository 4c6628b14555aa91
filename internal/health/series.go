package health

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"castellan/internal/estate"
)

func number(text string) (float64, bool) {
	f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || f != f || f > 1e300 || f < -1e300 {
		return 0, false
	}
	return f, true
}

// series is a load history: points of a minute to some hours, with whichever figures the version keeps. PVE 9 has
// pressure and the memory that the host spends; PVE 8 has neither. A point may be empty.
type series struct {
	points []point
	keys   map[string]bool
}

type point struct {
	time    int64
	figures map[string]float64
}

func seriesOf(data json.RawMessage) (series, error) {
	rows, err := rowsOf(data)
	if err != nil {
		return series{}, err
	}
	s := series{keys: map[string]bool{}}
	for _, r := range rows {
		p := point{time: whole(r, "time"), figures: map[string]float64{}}
		for k := range r {
			if f, ok := num(estate.Config(r), k); ok && k != "time" {
				p.figures[k] = f
				s.keys[k] = true
			}
		}
		if p.time > 0 && len(p.figures) > 0 {
			s.points = append(s.points, p)
		}
	}
	slices.SortFunc(s.points, func(a, b point) int { return cmp.Compare(a.time, b.time) })
	return s, nil
}

// series is the answer as a load history; an odd answer is one without points. A day of it has more than a thousand points,
// and many checks look at it.
func (a *ask) series() series {
	if a == nil {
		return series{}
	}
	if a.past == nil {
		s, err := seriesOf(a.raw)
		if err != nil {
			s = series{}
		}
		a.past = &s
	}
	return *a.past
}

// has says whether the history knows a figure at all.
func (s series) has(key string) bool { return s.keys[key] }

// stat sums up one figure, or a computed one.
type stat struct {
	n         int
	mean, max float64
	last      float64
	share     float64 // of the points that are at or above the threshold
	since     int64   // start of the unbroken run at or above the threshold that reaches to the newest point; 0 = none
}

// over sums up what f makes of each point, against a threshold. Points without the figure are left out.
func (s series) over(threshold float64, f func(point) (float64, bool)) stat {
	var t stat
	above := 0
	for _, p := range s.points {
		v, ok := f(p)
		if !ok {
			continue
		}
		t.n++
		t.mean += v
		t.max = max(t.max, v)
		t.last = v
		if v >= threshold {
			above++
			if t.since == 0 {
				t.since = p.time
			}
		} else {
			t.since = 0
		}
	}
	if t.n > 0 {
		t.mean /= float64(t.n)
		t.share = float64(above) / float64(t.n)
	}
	return t
}

// figure picks one key of a point.
func figure(key string) func(point) (float64, bool) {
	return func(p point) (float64, bool) { f, ok := p.figures[key]; return f, ok }
}

// ratio divides two keys of a point.
func ratio(part, of string) func(point) (float64, bool) {
	return func(p point) (float64, bool) {
		a, okA := p.figures[part]
		b, okB := p.figures[of]
		if !okA || !okB || b <= 0 {
			return 0, false
		}
		return a / b, true
	}
}

// sum adds keys of a point; those that lack count as nothing, none at all is no figure.
func sum(keys ...string) func(point) (float64, bool) {
	return func(p point) (float64, bool) {
		total, any := 0.0, false
		for _, k := range keys {
			if f, ok := p.figures[k]; ok {
				total, any = total+f, true
			}
		}
		return total, any
	}
}

// fewest is how many points a history needs before a share of it says something.
const fewest = 5

// sustained says whether most of a history lies at or above the threshold.
func (t stat) sustained() bool { return t.n >= fewest && t.share >= 0.5 }

// sinceOf takes the earlier start of two histories of the same figure, the longer one first where it agrees.
func sinceOf(hour, day stat) string {
	switch {
	case hour.since == 0:
		return ""
	case day.since > 0 && day.since < hour.since:
		return stamp(day.since)
	}
	return stamp(hour.since)
}

// age of something that began at a Unix time.
func age(now time.Time, unix int64) time.Duration {
	if unix <= 0 {
		return 0
	}
	return now.Sub(time.Unix(unix, 0))
}
