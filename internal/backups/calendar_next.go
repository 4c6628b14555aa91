package backups

import (
	"time"
	_ "time/tzdata" // nodes name zones that this machine may not know
)

// farthest bounds the search: the 29th of February on a given day of the week comes back within forty years.
const farthest = 41

// Next is the first time after t at which the event happens, by the wall clock of loc; ok is false when there is none.
// A time that a clock change leaves out does not happen; one that it brings twice happens the first time only.
func (e Event) Next(t time.Time, loc *time.Location) (next time.Time, ok bool) {
	loc = e.zone(loc)
	t = t.In(loc)
	y, m, d := t.Date()
	for day := date(y, m, d); day.Year() <= y+farthest; {
		if !e.years.has(day.Year()) {
			day = date(day.Year()+1, 1, 1)
			continue
		}
		if !e.months.has(int(day.Month())) {
			day = date(day.Year(), day.Month()+1, 1)
			continue
		}
		if e.on(day) {
			if at, ok := e.first(day, t, loc); ok {
				return at, true
			}
		}
		day = day.AddDate(0, 0, 1)
	}
	return time.Time{}, false
}

// Last is the latest time, no later than t, at which the event happened; ok is false when there is none.
func (e Event) Last(t time.Time, loc *time.Location) (last time.Time, ok bool) {
	loc = e.zone(loc)
	t = t.In(loc)
	y, m, d := t.Date()
	for day := date(y, m, d); day.Year() >= y-farthest; {
		if !e.years.has(day.Year()) {
			day = date(day.Year()-1, 12, 31)
			continue
		}
		if !e.months.has(int(day.Month())) {
			day = date(day.Year(), day.Month(), 0)
			continue
		}
		if e.on(day) {
			if at, ok := e.latest(day, t, loc); ok {
				return at, true
			}
		}
		day = day.AddDate(0, 0, -1)
	}
	return time.Time{}, false
}

func (e Event) zone(loc *time.Location) *time.Location {
	if e.utc || loc == nil {
		return time.UTC
	}
	return loc
}

// date is a day without a zone: days are counted in UTC, where each has its 24 hours.
func date(y int, m time.Month, d int) time.Time { return time.Date(y, m, d, 0, 0, 0, 0, time.UTC) }

func (e Event) on(day time.Time) bool {
	if e.days != [7]bool{} && !e.days[day.Weekday()] {
		return false
	}
	return e.mdays.has(day.Day())
}

// slack is more than any clock change.
const slack = 4 * time.Hour

func (e Event) first(day, after time.Time, loc *time.Location) (time.Time, bool) {
	for h := range 24 {
		if !e.hours.has(h) || clock(day, h+1, 0, 0, loc).Add(slack).Before(after) {
			continue
		}
		for m := range 60 {
			if !e.minutes.has(m) || clock(day, h, m+1, 0, loc).Add(slack).Before(after) {
				continue
			}
			for s := range 60 {
				if !e.seconds.has(s) {
					continue
				}
				if at, there := instant(day, h, m, s, loc); there && at.After(after) {
					return at, true
				}
			}
		}
	}
	return time.Time{}, false
}

func (e Event) latest(day, until time.Time, loc *time.Location) (time.Time, bool) {
	for h := 23; h >= 0; h-- {
		if !e.hours.has(h) || clock(day, h, 0, 0, loc).Add(-slack).After(until) {
			continue
		}
		for m := 59; m >= 0; m-- {
			if !e.minutes.has(m) || clock(day, h, m, 0, loc).Add(-slack).After(until) {
				continue
			}
			for s := 59; s >= 0; s-- {
				if !e.seconds.has(s) {
					continue
				}
				if at, there := instant(day, h, m, s, loc); there && !at.After(until) {
					return at, true
				}
			}
		}
	}
	return time.Time{}, false
}

func clock(day time.Time, h, m, s int, loc *time.Location) time.Time {
	y, mo, d := day.Date()
	return time.Date(y, mo, d, h, m, s, 0, loc)
}

// instant is when the wall clock shows this time; there is none where a change leaves it out, and of two the first counts.
func instant(day time.Time, h, m, s int, loc *time.Location) (time.Time, bool) {
	t := clock(day, h, m, s, loc)
	shows := func(t time.Time) bool {
		y, mo, d := t.Date()
		return t.Hour() == h && t.Minute() == m && t.Second() == s && y == day.Year() && mo == day.Month() && d == day.Day()
	}
	if !shows(t) {
		return time.Time{}, false
	}
	_, now := t.Zone()
	_, before := t.Add(-slack).Zone()
	if before > now {
		if twin := t.Add(-time.Duration(before-now) * time.Second); shows(twin) {
			return twin, true
		}
	}
	return t, true
}
