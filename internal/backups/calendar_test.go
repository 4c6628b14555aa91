package backups

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func zone(tb testing.TB, name string) *time.Location {
	tb.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		tb.Fatal(err)
	}
	return loc
}

func at(tb testing.TB, s string) time.Time {
	tb.Helper()
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func TestNextRuns(t *testing.T) {
	for _, c := range []struct{ event, zone, after, want string }{
		{"02:30", "Etc/UTC", "2026-11-29T02:30:00Z", "2026-11-30T02:30:00Z"},
		{"mon..fri 02:00", "Etc/UTC", "2026-11-27T02:00:00Z", "2026-11-30T02:00:00Z"},
		{"*/2:00", "Etc/UTC", "2026-11-29T02:00:00Z", "2026-11-29T04:00:00Z"},
		{"sat *-1..7 15:00", "Etc/UTC", "2026-11-29T00:00:00Z", "2026-12-05T15:00:00Z"},
		{"Sat *-1..7 15:00", "Etc/UTC", "2026-12-05T15:00:00Z", "2027-01-02T15:00:00Z"},
		{"monthly", "Etc/UTC", "2026-11-29T00:00:00Z", "2026-12-01T00:00:00Z"},
		{"quarterly", "Etc/UTC", "2026-11-29T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"semi-annually", "Etc/UTC", "2027-01-01T00:00:00Z", "2027-07-01T00:00:00Z"},
		{"yearly", "Etc/UTC", "2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"},
		{"weekly", "Etc/UTC", "2026-11-29T00:00:00Z", "2026-11-30T00:00:00Z"},
		{"hourly", "Etc/UTC", "2026-11-29T00:10:00Z", "2026-11-29T01:00:00Z"},
		{"minutely", "Etc/UTC", "2026-11-29T00:10:00Z", "2026-11-29T00:11:00Z"},
		{"*:0/15", "Etc/UTC", "2026-11-29T00:10:00Z", "2026-11-29T00:15:00Z"},
		{"*/5", "Etc/UTC", "2026-11-29T00:10:00Z", "2026-11-29T00:15:00Z"},
		{"mon..wed 30/10", "Etc/UTC", "2026-11-30T00:50:00Z", "2026-11-30T01:30:00Z"},
		{"mon..fri 8..17,22:0/15", "Etc/UTC", "2026-11-30T17:45:00Z", "2026-11-30T22:00:00Z"},
		{"2026-12-24 18:30:15", "Etc/UTC", "2026-11-29T00:00:00Z", "2026-12-24T18:30:15Z"},
		{"*-05", "Etc/UTC", "2026-11-29T00:00:00Z", "2026-12-05T00:00:00Z"},
		{"sat..mon", "Etc/UTC", "2026-11-24T00:00:00Z", "2026-11-28T00:00:00Z"},
		{"2-29", "Etc/UTC", "2026-11-29T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"sun 2-29", "Etc/UTC", "2026-11-29T00:00:00Z", "2032-02-29T00:00:00Z"},
		{"mon 25:00", "Etc/UTC", "2026-11-29T00:00:00Z", "2026-11-30T00:25:00Z"},
		{"02:30", "Europe/Berlin", "2026-11-29T00:00:00Z", "2026-11-29T01:30:00Z"},
		{"02:30 UTC", "Europe/Berlin", "2026-11-29T00:00:00Z", "2026-11-29T02:30:00Z"},
		{"02:30", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-30T00:30:00Z"},    // 02:30 is left out that night
		{"02:30", "Europe/Berlin", "2026-10-24T23:00:00Z", "2026-10-25T00:30:00Z"},    // comes twice: the first
		{"02:30", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},    // and not again
		{"02:30", "America/New_York", "2026-11-01T04:00:00Z", "2026-11-01T07:30:00Z"}, // after the change there
	} {
		e, err := ParseEvent(c.event)
		if err != nil {
			t.Error(err)
			continue
		}
		got, ok := e.Next(at(t, c.after), zone(t, c.zone))
		if !ok || !got.Equal(at(t, c.want)) {
			t.Errorf("%s in %s after %s: %s, %v; want %s", c.event, c.zone, c.after, got.UTC().Format(time.RFC3339), ok, c.want)
		}
	}
}

func TestNoEvent(t *testing.T) {
	for _, text := range []string{"", " ", "nonsense", "02:30 mon", "mon-fri 02:30", "* 02:30", "mon 02:70", "mon..xyz 02:30", "sat 1..7 15:00", "5..2:00", "*/0:00", "13-01", "2-32",
		"02:30;x", "02:30\n", "+2:30", "mon,", "1e1:00", "²:00", strings.Repeat("1,", 80) + "1"} {
		if e, err := ParseEvent(text); err == nil {
			if text == "02:30\n" { // surrounding blanks are nothing
				continue
			}
			t.Errorf("%q was read as %+v", text, e)
		}
	}
	e, err := ParseEvent("2-30")
	if err != nil {
		t.Fatal(err)
	}
	if at, ok := e.Next(time.Unix(1, 0), time.UTC); ok {
		t.Errorf("the 30th of February came at %s", at)
	}
	if at, ok := e.Last(time.Unix(1e9, 0), time.UTC); ok {
		t.Errorf("the 30th of February was at %s", at)
	}
}

// randomEvent writes an event of the kind that people write, and stranger ones.
func randomEvent(r *rand.Rand) string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	field := func(from, top int) string {
		n := func() int { return from + r.IntN(top-from) }
		switch r.IntN(6) {
		case 0:
			return "*"
		case 1:
			return fmt.Sprintf("*/%d", 1+r.IntN(top-1))
		case 2:
			a, b := n(), n()
			return fmt.Sprintf("%d..%d", min(a, b), max(a, b))
		case 3:
			return fmt.Sprintf("%d/%d", n(), 1+r.IntN(top-1))
		case 4:
			return fmt.Sprintf("%d,%d", n(), n())
		}
		return fmt.Sprint(n())
	}
	var out []string
	if r.IntN(3) == 0 {
		out = append(out, pick("mon", "mon..fri", "sat,sun", "fri..tue", "wed"))
	}
	if r.IntN(4) == 0 {
		out = append(out, pick("*", field(1, 13))+"-"+field(1, 32))
	}
	if r.IntN(5) > 0 || len(out) == 0 {
		out = append(out, pick(field(0, 24)+":"+field(0, 60), field(0, 24)+":00", field(0, 60), "2:30", "1..3:*/7"))
	}
	return strings.Join(out, " ")
}

// TestAgainstEveryMinute compares with a look at every minute of days around clock changes.
func TestAgainstEveryMinute(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	type span struct{ zone, from string }
	for _, s := range []span{{"Europe/Berlin", "2026-03-28T00:00:00Z"}, {"Europe/Berlin", "2026-10-24T00:00:00Z"}, {"America/New_York", "2026-10-31T12:00:00Z"},
		{"Australia/Lord_Howe", "2026-04-04T00:00:00Z"}, {"Australia/Lord_Howe", "2026-10-03T00:00:00Z"}, {"Asia/Kolkata", "2026-02-27T00:00:00Z"}, {"Etc/UTC", "2026-12-30T00:00:00Z"},
		{"America/Santiago", "2026-09-05T12:00:00Z"}} {
		loc := zone(t, s.zone)
		for range 25 {
			text := randomEvent(r)
			e, err := ParseEvent(text)
			if err != nil {
				t.Fatal(err)
			}
			from := at(t, s.from)
			const minutes = 3 * 24 * 60
			var want []time.Time
			seen := map[string]bool{}
			for m := -24 * 60; m < minutes; m++ {
				now := from.Add(time.Duration(m) * time.Minute).In(loc)
				wall := now.Format("2006-01-02 15:04")
				first := !seen[wall]
				seen[wall] = true
				if first && m > 0 && e.on(date(now.Year(), now.Month(), now.Day())) && e.months.has(int(now.Month())) && e.hours.has(now.Hour()) && e.minutes.has(now.Minute()) {
					want = append(want, now)
				}
			}
			cursor := from
			for i, w := range want[:min(len(want), 400)] {
				got, ok := e.Next(cursor, loc)
				if !ok || !got.Equal(w) {
					t.Fatalf("%q in %s: run %d after %s is %s, want %s", text, s.zone, i, cursor.In(loc), got, w)
				}
				last, ok := e.Last(got.Add(30*time.Second), loc)
				if !ok || !last.Equal(w) {
					t.Fatalf("%q in %s: the last run before %s is %s, want %s", text, s.zone, got, last, w)
				}
				cursor = got
			}
			if got, ok := e.Next(cursor, loc); len(want) < 400 && ok && got.Before(from.Add(minutes*time.Minute)) {
				t.Fatalf("%q in %s: %s is a run too many", text, s.zone, got)
			}
		}
	}
}

func FuzzEvent(f *testing.F) {
	for _, s := range []string{"mon..fri 02:00", "*/2:00", "sat *-1..7 15:00", "monthly", "2015-10-21", "*:*:*", "0/0", "UTC", "mon UTC"} {
		f.Add(s, int64(1_795_953_600))
	}
	f.Fuzz(func(t *testing.T, text string, unix int64) {
		e, err := ParseEvent(text)
		if err != nil {
			return
		}
		now := time.Unix(unix%4_000_000_000, 0)
		next, ok := e.Next(now, time.UTC)
		if !ok {
			return
		}
		if !next.After(now) {
			t.Fatalf("%q: %s does not come after %s", text, next, now)
		}
		if last, ok := e.Last(next, time.UTC); !ok || !last.Equal(next) {
			t.Fatalf("%q: %s is a run, but the last until then is %s", text, next, last)
		}
	})
}
