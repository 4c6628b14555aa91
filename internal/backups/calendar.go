package backups

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"castellan/internal/regex"
)

// Event is a calendar event as Proxmox writes schedules: "mon..fri 02:00", "*/2:00", "sat *-1..7 15:00", "monthly". It is
// matched against the wall clock of a time zone, to the second.
type Event struct {
	text                 string
	utc                  bool
	days                 [7]bool // by time.Weekday; none set = all
	years, months, mdays field
	hours, minutes       field
	seconds              field
}

// field is a list of values; empty = all.
type field []values

// values is from, from+step, ... up to to; step 0 is from alone.
type values struct{ from, step, to int }

func (f field) has(n int) bool {
	if len(f) == 0 {
		return true
	}
	for _, v := range f {
		if n == v.from || v.step > 0 && n > v.from && n <= v.to && (n-v.from)%v.step == 0 {
			return true
		}
	}
	return false
}

func one(n int) field { return field{{from: n}} }

// named are the events that have a word of their own; at the start of the day unless the word says more.
func named(word string) (Event, bool) {
	e := Event{hours: one(0), minutes: one(0), seconds: one(0)}
	switch word {
	case "minutely":
		e.hours, e.minutes = nil, nil
	case "hourly":
		e.hours = nil
	case "daily":
	case "weekly":
		e.days[time.Monday] = true
	case "monthly":
		e.mdays = one(1)
	case "yearly", "annually":
		e.mdays, e.months = one(1), one(1)
	case "quarterly":
		e.mdays, e.months = one(1), field{{from: 1}, {from: 4}, {from: 7}, {from: 10}}
	case "semiannually", "semi-annually":
		e.mdays, e.months = one(1), field{{from: 1}, {from: 7}}
	default:
		return Event{}, false
	}
	return e, true
}

const maxEvent = 128

var (
	eventDays = &regex.Lazy{Expr: `^[A-Za-z]+(?:\.\.[A-Za-z]+)?(?:,[A-Za-z]+(?:\.\.[A-Za-z]+)?)*`}
	eventDate = &regex.Lazy{Expr: `^(?:([0-9*/.,]+)-)?([0-9*/.,]+)-([0-9*/.,]+)(?:\s+|$)`}
	eventTime = &regex.Lazy{Expr: `^(?:([0-9*/.,]+):)?([0-9*/.,]+)(?::([0-9*/.,]+))?$`}
)

// ParseEvent reads a calendar event. The error says what is wrong in words for whoever wrote it.
func ParseEvent(text string) (Event, error) {
	bad := func(why string) (Event, error) {
		return Event{}, fmt.Errorf("read schedule %q: %s; write it as mon..fri 02:00, */2:00, sat *-1..7 15:00, daily or monthly", clip(text, 60), why)
	}
	if len(text) > maxEvent {
		return bad("it is too long")
	}
	rest := strings.TrimSpace(text)
	rest, utc := strings.CutSuffix(rest, "UTC")
	rest = strings.TrimRight(rest, " ")
	e, whole := named(rest)
	e.text, e.utc = text, utc
	if whole {
		return e, nil
	}
	given := false
	if m := eventDays.FindStringSubmatch(rest); m != nil {
		days, err := parseDays(m[0])
		if err != nil {
			return bad(err.Error())
		}
		e.days, given = days, true
		rest = strings.TrimLeft(rest[len(m[0]):], " ")
	}
	if m := eventDate.FindStringSubmatch(rest); m != nil {
		var err error
		if m[1] != "" {
			if e.years, err = parseField(m[1], 0, 2200); err != nil {
				return bad("its year " + err.Error())
			}
		}
		if e.months, err = parseField(m[2], 1, 13); err != nil {
			return bad("its month " + err.Error())
		}
		if e.mdays, err = parseField(m[3], 1, 32); err != nil {
			return bad("its day " + err.Error())
		}
		given = true
		rest = rest[len(m[0]):]
	}
	switch {
	case rest != "":
		if err := e.parseTime(rest); err != nil {
			return bad(err.Error())
		}
	case !given:
		return bad("it has neither day nor time")
	default:
		e.hours, e.minutes, e.seconds = one(0), one(0), one(0)
	}
	return e, nil
}

// parseTime reads [[hours:]minutes][:seconds]; two parts are hours and minutes, unless the first is no hour.
func (e *Event) parseTime(text string) error {
	m := eventTime.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("%q is no time", clip(text, 40))
	}
	hours, minutes, seconds := m[1], m[2], m[3]
	e.hours, e.seconds = nil, one(0)
	var err error
	if hours != "" {
		if e.hours, err = parseField(hours, 0, 24); err != nil {
			if seconds != "" {
				return fmt.Errorf("its hour %w", err)
			}
			e.hours, minutes, seconds = nil, hours, minutes // as Proxmox reads it
		}
	}
	if e.minutes, err = parseField(minutes, 0, 60); err != nil {
		return fmt.Errorf("its minute %w", err)
	}
	if seconds != "" {
		if e.seconds, err = parseField(seconds, 0, 60); err != nil {
			return fmt.Errorf("its second %w", err)
		}
	}
	return nil
}

// parseField reads a list of values below top: "*", "*/5", "3", "1..7", "1..10/2", "0/15", parted by commas.
func parseField(text string, from, top int) (field, error) {
	number := func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n >= top || strings.Trim(s, "0123456789") != "" {
			return 0, fmt.Errorf("%q is no number below %d", clip(s, 20), top)
		}
		return n, nil
	}
	if text == "*" {
		return nil, nil
	}
	if step, ok := strings.CutPrefix(text, "*/"); ok {
		n, err := number(step)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%q is no step", clip(step, 20))
		}
		return field{{from: from, step: n, to: top - 1}}, nil
	}
	var out field
	for _, part := range strings.Split(text, ",") {
		base, step, stepped := strings.Cut(part, "/")
		low, high, ranged := strings.Cut(base, "..")
		v := values{}
		var err error
		if v.from, err = number(low); err != nil {
			return nil, err
		}
		v.to = v.from
		if ranged {
			if v.to, err = number(high); err != nil {
				return nil, err
			}
			if v.to < v.from {
				return nil, fmt.Errorf("%q ends before it begins", clip(base, 20))
			}
			v.step = 1
		}
		if stepped {
			if v.step, err = number(step); err != nil {
				return nil, err
			}
			if !ranged {
				v.to = top - 1
			}
		}
		out = append(out, v)
	}
	return out, nil
}

var weekdays = []string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

// parseDays reads a list of days and ranges of days; a range may go over the end of the week.
func parseDays(text string) (days [7]bool, err error) {
	day := func(s string) (int, error) {
		for i, name := range weekdays {
			if strings.EqualFold(s, name) || strings.EqualFold(s, name[:3]) {
				return i, nil
			}
		}
		return 0, fmt.Errorf("%q is no day of the week", clip(s, 20))
	}
	for _, part := range strings.Split(text, ",") {
		first, last, ranged := strings.Cut(part, "..")
		if !ranged {
			last = first
		}
		from, err := day(first)
		if err != nil {
			return days, err
		}
		to, err := day(last)
		if err != nil {
			return days, err
		}
		for d := from; ; d = (d + 1) % 7 {
			days[d] = true
			if d == to {
				break
			}
		}
	}
	return days, nil
}

// String is the event as it was written.
func (e Event) String() string { return e.text }

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
