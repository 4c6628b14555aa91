package lab

import (
	"strconv"
	"strings"
	"time"

	"castellan/internal/regex"
)

// calendar is a systemd-like event: days of the week, a date pattern, times of day.
type calendar struct {
	days           [7]bool
	months, mdays  map[int]bool // empty: all
	hours, minutes map[int]bool
}

var (
	dayNames = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
	timeForm = &regex.Lazy{Expr: `^[0-9*/.,]+(:[0-9*/.,]+){0,2}$`}
	dateForm = &regex.Lazy{Expr: `^(\*|\d{4})-([0-9*/.,]+)-([0-9*/.,]+)$|^([0-9*/.,]+)-([0-9*/.,]+)$`}
)

// parseCalendar reads an event; ok is false when it is none.
func parseCalendar(text string) (*calendar, bool) {
	c := &calendar{months: map[int]bool{}, mdays: map[int]bool{}, hours: map[int]bool{0: true}, minutes: map[int]bool{0: true}}
	switch text {
	case "minutely":
		text = "*:*"
	case "hourly":
		text = "*:00"
	case "daily":
		text = "00:00"
	case "weekly":
		text = "mon 00:00"
	case "monthly":
		text = "*-*-1 00:00"
	case "yearly", "annually":
		text = "*-1-1 00:00"
	}
	for i := range c.days {
		c.days[i] = true
	}
	parts := strings.Fields(strings.ToLower(text))
	if len(parts) == 0 || len(parts) > 3 {
		return nil, false
	}
	if days, ok := parseDays(parts[0]); ok {
		c.days = days
		parts = parts[1:]
	}
	if len(parts) > 0 {
		if m := dateForm.FindStringSubmatch(parts[0]); m != nil {
			mon, day := m[2], m[3]
			if m[4] != "" {
				mon, day = m[4], m[5]
			}
			var ok1, ok2 bool
			c.months, ok1 = parseSet(mon, 1, 12)
			c.mdays, ok2 = parseSet(day, 1, 31)
			if !ok1 || !ok2 {
				return nil, false
			}
			parts = parts[1:]
		}
	}
	if len(parts) == 0 {
		return c, true
	}
	if len(parts) > 1 || !timeForm.MatchString(parts[0]) {
		return nil, false
	}
	f := strings.Split(parts[0], ":")
	if len(f) == 1 {
		f = []string{"*", f[0]}
	}
	var ok1, ok2 bool
	c.hours, ok1 = parseSet(f[0], 0, 23)
	c.minutes, ok2 = parseSet(f[1], 0, 59)
	return c, ok1 && ok2
}

func parseDays(text string) ([7]bool, bool) {
	var out [7]bool
	for _, p := range strings.Split(text, ",") {
		a, b, isRange := strings.Cut(p, "..")
		i, j := dayIndex(a), dayIndex(b)
		if !isRange {
			j = i
		}
		if i < 0 || j < 0 {
			return out, false
		}
		for k := i; ; k = (k + 1) % 7 {
			out[k] = true
			if k == j {
				break
			}
		}
	}
	return out, true
}

func dayIndex(s string) int {
	if len(s) < 3 {
		return -1
	}
	for i, d := range dayNames {
		if strings.HasPrefix(s, d) {
			return i
		}
	}
	return -1
}

func parseSet(text string, min, max int) (map[int]bool, bool) {
	out := map[int]bool{}
	for _, p := range strings.Split(text, ",") {
		base, step, hasStep := strings.Cut(p, "/")
		n := 1
		if hasStep {
			var err error
			if n, err = strconv.Atoi(step); err != nil || n < 1 {
				return nil, false
			}
		}
		from, to := min, max
		if base != "*" {
			a, b, isRange := strings.Cut(base, "..")
			var err error
			if from, err = strconv.Atoi(a); err != nil || from < min || from > max {
				return nil, false
			}
			to = from
			if hasStep {
				to = max
			}
			if isRange {
				if to, err = strconv.Atoi(b); err != nil || to < from || to > max {
					return nil, false
				}
			}
		}
		for i := from; i <= to; i += n {
			out[i] = true
		}
	}
	return out, true
}

func calendarFormat(v string) string {
	if _, ok := parseCalendar(v); ok {
		return ""
	}
	return "invalid calendar event '" + v + "' - unable to parse calendar event\n\n"
}

// next is the first time after t at which the event happens; the zero time when there is none within five years.
func (c *calendar) next(t time.Time) time.Time {
	t = t.UTC().Truncate(time.Minute).Add(time.Minute)
	end := t.AddDate(5, 0, 0)
	for t.Before(end) {
		if !c.days[int(t.Weekday())] || len(c.months) > 0 && !c.months[int(t.Month())] || len(c.mdays) > 0 && !c.mdays[t.Day()] {
			t = time.Date(t.Year(), t.Month(), t.Day()+1, 0, 0, 0, 0, time.UTC)
			continue
		}
		if !c.hours[t.Hour()] {
			t = t.Truncate(time.Hour).Add(time.Hour)
			continue
		}
		if !c.minutes[t.Minute()] {
			t = t.Add(time.Minute)
			continue
		}
		return t
	}
	return time.Time{}
}
