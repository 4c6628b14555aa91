package catalog

import (
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"testing"

	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
)

func newTestCatalog(t testing.TB) *Catalog {
	t.Helper()
	c, err := New(Config{Facts: facts.Open()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type tally struct{ right, wrong, missed, dangerous, unseen, harmless, alarmed int }

func (s *tally) add(want, got []gate.Class) {
	for _, class := range got {
		if slices.Contains(want, class) {
			s.right++
		} else {
			s.wrong++
		}
	}
	for _, class := range want {
		if !slices.Contains(got, class) {
			s.missed++
		}
	}
	if len(want) == 0 {
		s.harmless++
		if len(got) > 0 {
			s.alarmed++
		}
		return
	}
	s.dangerous++
	if len(got) == 0 {
		s.unseen++
	}
}

func (s *tally) String() string {
	return fmt.Sprintf("precision %.3f, recall %.3f, %d of %d dangerous unseen, %d of %d harmless alarmed",
		float64(s.right)/float64(s.right+s.wrong), float64(s.right)/float64(s.right+s.missed), s.unseen, s.dangerous, s.alarmed, s.harmless)
}

// TestClassesAgreeWithReviewedSample compares with a sample of judged operations where the environment names one; the repository's own golden listing is the check that is always there.
func TestClassesAgreeWithReviewedSample(t *testing.T) {
	path := os.Getenv("CASTELLAN_RISK_SAMPLE")
	b, err := os.ReadFile(path) // no name, no file
	if err != nil {
		t.Skip("no sample of judged operations; set CASTELLAN_RISK_SAMPLE")
	}
	c := newTestCatalog(t)
	var all tally
	var half [2]tally
	rows := 0
	for line := range strings.Lines(string(b)) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(f) != 4 || f[0] == "product" {
			continue
		}
		op, ok := c.Lookup(f[0], f[1]+" "+f[2])
		if !ok {
			t.Errorf("%s %s %s: not in the catalogue", f[0], f[1], f[2])
			continue
		}
		rows++
		var want []gate.Class
		for word := range strings.SplitSeq(f[3], ",") {
			if word != "" {
				want = append(want, gate.Class(word))
			}
		}
		got := c.Classes(op)
		h := fnv.New32a()
		h.Write([]byte(line))
		all.add(want, got)
		half[h.Sum32()%2].add(want, got)
		if !slices.Equal(want, got) {
			t.Logf("%s %s: want %v, got %v", op.Product, op.ID, want, got)
		}
	}
	t.Logf("%d rows: %s", rows, &all)
	for i := range half {
		t.Logf("half %d: %s", i, &half[i])
	}
	if p := float64(all.right) / float64(all.right+all.wrong); p < 0.85 {
		t.Errorf("precision %.3f, want at least 0.85", p)
	}
	if r := float64(all.right) / float64(all.right+all.missed); r < 0.90 {
		t.Errorf("recall %.3f, want at least 0.90", r)
	}
	if all.unseen > 0 {
		t.Errorf("%d dangerous operations have no class", all.unseen)
	}
	if float64(all.alarmed) > 0.03*float64(all.harmless) {
		t.Errorf("%d of %d harmless operations have a class", all.alarmed, all.harmless)
	}
}
