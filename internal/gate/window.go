package gate

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Window is a time of the week in a zone. One whose end is not after its beginning goes on into the next day.
type Window struct {
	days     [7]bool
	from, to int // minutes of the day; to may be 1440
	zone     *time.Location
	text     string
}

var windowDays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// ParseWindow reads "mon-fri 22:00-04:00 Europe/Berlin", "sat,sun 01:00-05:00" or "02:00-04:00": without days it is every day,
// without a zone UTC.
func ParseWindow(text string) (Window, error) {
	bad := func(why string) (Window, error) {
		return Window{}, fmt.Errorf("%q is no window (%s): write days, times and a zone, such as sat,sun 22:00-04:00 Europe/Berlin", clip(text, 80), why)
	}
	f := strings.Fields(text)
	if len(f) == 0 || len(f) > 3 {
		return bad("it has no times")
	}
	w := Window{zone: time.UTC}
	if !strings.Contains(f[0], ":") {
		for part := range strings.SplitSeq(strings.ToLower(f[0]), ",") {
			first, last, span := strings.Cut(part, "-")
			a := slices.Index(windowDays, first)
			b := a
			if span {
				b = slices.Index(windowDays, last)
			}
			if a < 0 || b < 0 {
				return bad("the days are mon, tue, wed, thu, fri, sat, sun")
			}
			for d := a; ; d = (d + 1) % 7 {
				w.days[d] = true
				if d == b {
					break
				}
			}
		}
		f = f[1:]
	} else {
		w.days = [7]bool{true, true, true, true, true, true, true}
	}
	if len(f) == 0 {
		return bad("it has no times")
	}
	from, to, ok := strings.Cut(f[0], "-")
	if w.from, w.to = minutes(from), minutes(to); !ok || w.from < 0 || w.to < 0 || w.from == 1440 || w.from == w.to {
		return bad("the times are hours and minutes")
	}
	if len(f) > 2 {
		return bad("too many words")
	}
	if len(f) == 2 {
		zone, err := time.LoadLocation(f[1])
		if err != nil || strings.EqualFold(f[1], "local") {
			return bad("there is no zone " + clip(f[1], 40) + " here")
		}
		w.zone = zone
	}
	w.text = strings.Join(strings.Fields(text), " ")
	return w, nil
}

// minutes reads 00:00 to 24:00 as minutes of the day; -1 where it is none.
func minutes(text string) int {
	if len(text) != 5 || text[2] != ':' {
		return -1
	}
	n := 0
	for i, most := range map[int]byte{0: '2', 1: '9', 3: '5', 4: '9'} {
		if text[i] < '0' || text[i] > most {
			return -1
		}
	}
	n = (int(text[0]-'0')*10+int(text[1]-'0'))*60 + int(text[3]-'0')*10 + int(text[4]-'0')
	if n > 1440 {
		return -1
	}
	return n
}

func (w Window) String() string { return w.text }

// span is one time at which a window is open.
type span struct{ from, to time.Time }

// on is when the window is open that begins on the day of t, in its zone; false when none does.
func (w Window) on(t time.Time) (span, bool) {
	t = t.In(w.zone)
	y, m, d := t.Date()
	if !w.days[t.Weekday()] {
		return span{}, false
	}
	s := span{time.Date(y, m, d, 0, w.from, 0, 0, w.zone), time.Date(y, m, d, 0, w.to, 0, 0, w.zone)}
	if w.to <= w.from {
		s.to = time.Date(y, m, d+1, 0, w.to, 0, 0, w.zone)
	}
	return s, s.to.After(s.from) // the clock may be put forward over it
}

// between lists the times at which the window opens from a time on and before another, bounded.
func (w Window) between(from, to time.Time) (out []span) {
	day := from.In(w.zone).AddDate(0, 0, -1)
	for range 120 {
		if s, ok := w.on(day); ok && !s.from.Before(from) && s.from.Before(to) {
			out = append(out, s)
		}
		y, m, d := day.Date()
		if day = time.Date(y, m, d+1, 12, 0, 0, 0, w.zone); day.AddDate(0, 0, -1).After(to) {
			break
		}
	}
	return out
}

// openAt says which time of the windows holds a moment: the one that ends last.
func openAt(windows []string, at time.Time) (best span, open bool) {
	for _, text := range windows {
		w, err := ParseWindow(text)
		if err != nil {
			continue // what is not understood opens nothing
		}
		for _, day := range []time.Time{at.In(w.zone), at.In(w.zone).AddDate(0, 0, -1)} {
			if s, ok := w.on(day); ok && !at.Before(s.from) && at.Before(s.to) && (!open || s.to.After(best.to)) {
				best, open = s, true
			}
		}
	}
	return best, open
}

// NextWindow says when the windows open next, or since when one is open; false when that is not within a fortnight.
func NextWindow(windows []string, at time.Time) (from, to time.Time, ok bool) {
	if s, open := openAt(windows, at); open {
		return s.from, s.to, true
	}
	var best span
	for _, text := range windows {
		if w, err := ParseWindow(text); err == nil {
			if next := w.between(at, at.AddDate(0, 0, 14)); len(next) > 0 && (best.from.IsZero() || next[0].from.Before(best.from)) {
				best = next[0]
			}
		}
	}
	return best.from, best.to, !best.from.IsZero()
}
