package catalog

import (
	"testing"
	"unicode/utf8"
)

func BenchmarkSearchIndex(b *testing.B) {
	c := searchCatalog(b)
	c.All() // the facts are decoded before
	b.ReportAllocs()
	for b.Loop() {
		c.search = searchCache{}
		c.parts(Products())
	}
}

func BenchmarkSearchFind(b *testing.B) {
	c := searchCatalog(b)
	all := questions(b, "testdata/questions.tsv")
	c.Find("warm up", FindOptions{})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Find(all[i%len(all)].text, FindOptions{Limit: 5})
	}
}

func FuzzFind(f *testing.F) {
	for _, s := range []string{"", "start vm 101", "GET /nodes/pve1/qemu/100/config", "/", "pve_guest_power(vmid=1)", "\xff\xfe", "läuft das Zertifikat ab?", "仮想マシンvm100を起動", "UPID:pve:0000:", "a'b'c''", "turn the the the the off", "ſ İ ı", "-_-_-", "“quoted”"} {
		f.Add(s, 3)
	}
	c := searchCatalog(f)
	f.Fuzz(func(t *testing.T, query string, limit int) {
		hits := c.FindIn(query, FindOptions{Limit: limit}, []Document{{Name: "guest_power", Summary: "Start or stop a guest."}})
		if want := min(max(limit, 0), mostHits); len(hits) > max(want, defaultHits) && limit <= 0 || limit > 0 && len(hits) > want {
			t.Fatalf("%q: %d hits for limit %d", query, len(hits), limit)
		}
		again := c.FindIn(query, FindOptions{Limit: limit}, []Document{{Name: "guest_power", Summary: "Start or stop a guest."}})
		for i, h := range hits {
			if h != again[i] {
				t.Fatalf("%q: not the same answer twice", query)
			}
			if h.Name == "" {
				if _, ok := c.Lookup(h.Product, h.Method+" "+h.Path); !ok {
					t.Fatalf("%q finds %v, which does not exist", query, h)
				}
			}
			if !utf8.ValidString(h.Summary) {
				t.Fatalf("%q: summary is no text", query)
			}
		}
	})
}
