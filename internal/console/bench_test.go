package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"castellan/internal/gate"
)

// BenchmarkApprovalPage draws the page of a plan of 200 steps. Bar: 30 ms.
func BenchmarkApprovalPage(b *testing.B) {
	w := newWorld(b)
	r := rollback("big", "101", w.at)
	step := r.Plan.Steps[1]
	r.Plan.Steps, r.Plan.Diff, r.Plan.Facts.Objects = nil, nil, nil
	for i := range 200 {
		s := step
		s.Number, s.Sentence = i+1, fmt.Sprintf("Roll back VM %d to snapshot before-upgrade on node pve%d", 100+i, i%7)
		r.Plan.Steps = append(r.Plan.Steps, s)
		r.Plan.Diff = append(r.Plan.Diff, gate.Difference{Object: fmt.Sprint("guest/", 100+i), Key: "memory", Old: "4096", New: "2048"})
		r.Plan.Facts.Objects = append(r.Plan.Facts.Objects, gate.ObjectFacts{Object: gate.Object{Kind: gate.ObjectGuest, ID: fmt.Sprint(100 + i)}, Use: gate.UseActs, Name: fmt.Sprint("größe", i), Tags: []string{"prod"}, Known: true})
	}
	w.gate.add(r)
	k, err := New(Config{Gate: w.gate, People: w.people, Switches: w.gate, PublicURL: w.srv.URL})
	if err != nil {
		b.Fatal(err)
	}
	token := w.people.open("anna", gate.StrengthSession).Token
	h := k.Handler()
	b.ResetTimer()
	for b.Loop() {
		q := httptest.NewRequest("GET", "/plans/big", nil)
		q.AddCookie(&http.Cookie{Name: "castellan", Value: token})
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, q)
		if rec.Code != http.StatusOK || rec.Body.Len() < 100_000 {
			b.Fatalf("%d, %d bytes", rec.Code, rec.Body.Len())
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(time.Millisecond), "ms/page")
}
