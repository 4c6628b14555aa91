package patch

import (
	"fmt"
	"time"
)

// lives is until when the official archives of a release get security updates without a contract: Debian's long term support,
// Ubuntu's standard one.
var lives = map[[2]string]string{
	{"debian", "12"}: "2028-06-30", {"debian", "13"}: "2030-06-30",
	{"ubuntu", "22.04"}: "2027-06-01", {"ubuntu", "22.10"}: "2023-07-20", {"ubuntu", "23.04"}: "2024-01-25", {"ubuntu", "23.10"}: "2024-07-11",
	{"ubuntu", "24.04"}: "2029-05-31", {"ubuntu", "24.10"}: "2025-07-10", {"ubuntu", "25.04"}: "2026-01-15", {"ubuntu", "25.10"}: "2026-07-31",
}

// endOfLife says that a release gets no more updates, where castellan knows its end.
func endOfLife(s System, now time.Time) string {
	until, known := lives[[2]string{s.ID, s.Version}]
	if !known {
		return ""
	}
	end, err := time.Parse(time.DateOnly, until)
	if err != nil || !now.After(end) {
		return ""
	}
	return fmt.Sprintf("%s gets no more updates since %s, by castellan's own table", s.Name, until)
}
