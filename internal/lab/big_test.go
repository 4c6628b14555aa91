package lab

import (
	"context"
	"net/http"
	"testing"
	"time"
)

func bigLab(tb testing.TB, site string) *Lab {
	tb.Helper()
	l, err := New(Config{Site: site, Facts: sharedFacts()})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func TestBigSite(t *testing.T) {
	if testing.Short() {
		t.Skip("builds 10,000 guests")
	}
	l := bigLab(t, "10000")
	for _, token := range []string{"admin", "auditor"} {
		h := http.Header{"Authorization": {l.Tokens()[token]}}
		best := time.Hour
		var size int
		for i := 0; i < 3; i++ {
			start := time.Now()
			st, _, b := l.Do(context.Background(), "GET", "/api2/json/cluster/resources?type=vm", h, nil)
			if d := time.Since(start); d < best {
				best = d
			}
			if size = len(b); st != 200 || size < 1<<20 {
				t.Fatalf("%s: %d, %d bytes", token, st, size)
			}
		}
		t.Logf("10,000 guests as %s: %v, %d bytes", token, best, size)
	}
	if r := ask(t, l, "admin", "GET", "/nodes"); len(r.Data.([]any)) != 100 {
		t.Errorf("%d nodes", len(r.Data.([]any)))
	}
}

func BenchmarkResources10000(b *testing.B) {
	l := bigLab(b, "10000")
	h := http.Header{"Authorization": {l.Tokens()["admin"]}}
	for b.Loop() {
		l.Do(context.Background(), "GET", "/api2/json/cluster/resources", h, nil)
	}
}
