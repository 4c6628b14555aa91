package reach

import (
	"fmt"
	"strings"
	"testing"
)

// TestReadings: each value of a key that an archive has more than once is in one of its readings, and more of them than are
// looked at are not passed over.
func TestReadings(t *testing.T) {
	var lines []string
	for i := range mostReadings {
		lines = append(lines, fmt.Sprintf("tags: t%d", i))
	}
	few := parseArchived("memory: 1024\n"+strings.Join(lines, "\n"), true)
	seen := map[string]bool{}
	for _, r := range few.readings {
		if seen[r["tags"]] = true; r["memory"] != "1024" {
			t.Errorf("a reading without memory: %v", r)
		}
	}
	if len(seen) != mostReadings || few.unread {
		t.Errorf("%d of %d values are read, unread %t", len(seen), mostReadings, few.unread)
	}
	if many := parseArchived(strings.Join(append(lines, "tags: one-more"), "\n"), true); !many.unread {
		t.Error("a value that is in no reading is passed over")
	}
}
