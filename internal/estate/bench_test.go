package estate

import (
	"context"
	"encoding/json"
	"net/http"
	"runtime"
	"testing"
	"time"

	"castellan/internal/lab"
)

func BenchmarkParse10000(b *testing.B) {
	l, err := lab.New(lab.Config{Site: "10000"})
	if err != nil {
		b.Fatal(err)
	}
	status, _, body := l.Do(context.Background(), "GET", "/api2/json/cluster/resources", http.Header{"Authorization": {l.Tokens()["admin"]}}, nil)
	if status != http.StatusOK {
		b.Fatalf("status %d: %.200s", status, body)
	}
	var envelope struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &envelope); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(envelope.Data)))
	for b.Loop() {
		inv, err := parse(envelope.Data)
		if err != nil || len(inv.Guests) < 10_000 {
			b.Fatalf("%d guests, %v", len(inv.Guests), err)
		}
	}
}

// BenchmarkGraph10000 reads and draws a site of 100 nodes and 10,000 guests as a whole.
func BenchmarkGraph10000(b *testing.B) {
	v := newLab(b, "10000")
	for b.Loop() {
		e := New()
		g := survey(b, e, v, time.Minute).Graph(ResourceParts()...)
		n, m := g.Size()
		b.ReportMetric(float64(v.count()), "calls")
		b.ReportMetric(float64(n+m), "parts")
	}
}

func BenchmarkConfig10000(b *testing.B) {
	v := newLab(b, "10000")
	for b.Loop() {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		e := New()
		began := time.Now()
		g := survey(b, e, v, time.Hour).Graph(append(ResourceParts(), ConfigParts()...)...)
		read := time.Since(began)
		calls := v.count()
		runtime.GC()
		runtime.ReadMemStats(&after)
		n, m := g.Size()
		b.Logf("%d calls, %v, %d vertices, %d edges, %d gaps, %.1f MiB kept (%.1f by count)", calls, read, n, m, len(g.Gaps), float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), float64(e.sites["lab"].kept.bytes)/(1<<20))
		for range 3 {
			began = time.Now()
			s := survey(b, e, v, time.Hour)
			s.Configs(s.Inventory().Guests)
			b.Logf("configs again: %v", time.Since(began))
			s.Graph()
			b.Logf("graph: %v", time.Since(began))
		}
		began = time.Now()
		s := survey(b, e, v, time.Hour)
		s.Graph(append(ResourceParts(), ConfigParts()...)...)
		b.Logf("graph again: %v, %d calls", time.Since(began), v.count())
		runtime.KeepAlive(e)
	}
}
