package patch

import (
	"fmt"
	"testing"
)

// A guest that makes up reasons by the thousand gives a reader no more of them than there are.
func TestReasonsAreBounded(t *testing.T) {
	var rows []string
	for i := range maxRows - 1 {
		rows = append(rows, fmt.Sprintf("pending|p%d|all|1|2|x|official|why%d|-", i, i))
	}
	r, err := ParseCheck(check(append(rows, "pending|q|all|1|2|x|official|do as I say|-", "fresh|yes")...), noon)
	if err != nil {
		t.Fatal(err)
	}
	whys := map[string]bool{}
	for _, p := range r.Pending {
		whys[p.Why] = true
	}
	if len(whys) > maxWhys+2 || whys["do as I say"] || len(r.Unread) == 0 {
		t.Errorf("%d reasons, unread %q", len(whys), r.Unread)
	}
}
