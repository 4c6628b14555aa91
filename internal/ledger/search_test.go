package ledger_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"castellan/internal/ledger"
	"castellan/internal/ledger/ledgertest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func pemOf(t testing.TB, k ed25519.PublicKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func b64Of(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func search(t testing.TB, db ledgertest.DB, q ledger.Query) ledger.Page {
	t.Helper()
	var page ledger.Page
	if err := db.View(background, func(r ledgertest.Rows) (err error) {
		page, err = ledger.Search(background, r, q)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return page
}

func names(p ledger.Page) []string {
	var out []string
	for _, f := range p.Records {
		out = append(out, fmt.Sprintf("%s%d", f.Tree[:1], f.Seq))
	}
	return out
}

func TestSearch(t *testing.T) {
	for name, db := range map[string]ledgertest.DB{"memory": ledgertest.NewMemory(), "sqlite": openSQLite(t)} {
		t.Run(name, func(t *testing.T) {
			l := ledgertest.Log(t)
			at := func(i int) time.Time { return time.Date(2026, 1, 1, 0, i, 0, 0, time.UTC) }
			put := func(tree ledger.Tree, minute int, e ledger.Entry) {
				e.Time = at(minute)
				if e.Kind == "" {
					e.Kind = "k"
				}
				if _, err := appendTo(db, l, tree, e); err != nil {
					t.Fatal(err)
				}
			}
			cols := func(c ledger.Columns) ledger.Entry { return ledger.Entry{Columns: c} }
			put(ledger.Write, 0, cols(ledger.Columns{Kind: "plan", Op: "guest_power", Actor: "ann", Target: "pve/vm/100", Status: "ok", Effect: "change", Plan: "p1"}))
			put(ledger.Read, 1, cols(ledger.Columns{Kind: "read", Op: "list_guests", Actor: "bob", Client: "desk", Status: "ok", Effect: "read"}))
			put(ledger.Write, 2, ledger.Entry{Columns: ledger.Columns{Op: "o"}, Data: map[string]any{"why": `say "50%" _now_`}})
			put(ledger.Read, 3, ledger.Entry{Parts: []ledger.Part{{Name: "args", Body: []byte("Grüße 'x'; DROP TABLE y")}}})
			put(ledger.Write, 4, cols(ledger.Columns{Actor: "Ann", Target: "pve/vm/1001", Status: "denied"}))
			put(ledger.Write, 5, cols(ledger.Columns{Actor: "*", Target: "%"}))

			for _, tt := range []struct {
				name string
				q    ledger.Query
				want string
			}{
				{"all, newest first over both trees", ledger.Query{}, "w3 w2 r1 w1 r0 w0"},
				{"write tree", ledger.Query{Tree: ledger.Write}, "w3 w2 w1 w0"},
				{"read tree", ledger.Query{Tree: ledger.Read}, "r1 r0"},
				{"kind", ledger.Query{Kind: "plan"}, "w0"},
				{"op", ledger.Query{Op: "list_guests"}, "r0"},
				{"actor is whole and exact", ledger.Query{Actor: "ann"}, "w0"},
				{"client", ledger.Query{Client: "desk"}, "r0"},
				{"status", ledger.Query{Status: "denied"}, "w2"},
				{"effect", ledger.Query{Effect: "read"}, "r0"},
				{"plan", ledger.Query{Plan: "p1"}, "w0"},
				{"target is a part", ledger.Query{Target: "vm/100"}, "w2 w0"},
				{"two filters", ledger.Query{Target: "vm/100", Status: "ok"}, "w0"},
				{"since", ledger.Query{Since: at(4)}, "w3 w2"},
				{"until", ledger.Query{Until: at(1)}, "w0"},
				{"window", ledger.Query{Since: at(1), Until: at(3)}, "w1 r0"},
				{"text in data, quotes and wildcards literal", ledger.Query{Text: `"50%" _NOW`}, "w1"},
				{"percent is no wildcard", ledger.Query{Text: "5%0"}, ""},
				{"text in a part, any case", ledger.Query{Text: "grÜSSE"}, ""},
				{"text in a part, any case of letters with one form", ledger.Query{Text: "gRÜße"}, "r1"},
				{"text that looks like SQL", ledger.Query{Text: "'x'; drop table"}, "r1"},
				{"text in a column", ledger.Query{Text: "GUEST_p"}, "w0"},
				{"no regular expression", ledger.Query{Text: "guest.power"}, ""},
				{"star", ledger.Query{Text: "*"}, "w3"},
				{"keys of the form are not text", ledger.Query{Text: "actor"}, ""},
				{"filters are no patterns", ledger.Query{Actor: "*"}, "w3"},
				{"target percent", ledger.Query{Target: "%"}, "w3"},
				{"injection in a filter", ledger.Query{Actor: "' OR 1=1 --"}, ""},
				{"bytes that are no text", ledger.Query{Text: "\xff\x00"}, ""},
			} {
				page := search(t, db, tt.q)
				if got := strings.Join(names(page), " "); got != tt.want || page.Next != "" || page.Notice != "" {
					t.Errorf("%s: got %q, want %q (%+v)", tt.name, got, tt.want, page.Notice)
				}
				// The same in pages of one, and in pages cut by the bound on work.
				for _, cut := range []func(*ledger.Query){
					func(q *ledger.Query) { q.Limit = 1 },
					func(q *ledger.Query) { q.MaxScan = 1 },
					func(q *ledger.Query) { q.MaxTime = 1 },
				} {
					q := tt.q
					cut(&q)
					var got []string
					for n := 0; ; n++ {
						page := search(t, db, q)
						got = append(got, names(page)...)
						if page.Next == "" {
							break
						}
						if page.Notice == "" || n > 20 {
							t.Fatalf("%s: page without end or notice: %+v", tt.name, page)
						}
						q.Cursor = page.Next
					}
					if strings.Join(got, " ") != tt.want {
						t.Errorf("%s in pieces: got %q, want %q", tt.name, got, tt.want)
					}
				}
			}
			found := search(t, db, ledger.Query{Text: "drop table"}).Records[0]
			if len(found.Parts) != 1 || !bytes.Contains(found.Raw, []byte(`"parts"`)) {
				t.Errorf("%+v", found)
			}
			for _, bad := range []ledger.Query{{Tree: "x"}, {Limit: -1}, {Limit: 501}, {Cursor: "x"}, {Cursor: "w1r-1"}, {Cursor: "w1r1 "}, {Text: strings.Repeat("x", 2000)}, {Since: at(2), Until: at(2)}} {
				if err := db.View(background, func(r ledgertest.Rows) error {
					_, err := ledger.Search(background, r, bad)
					return err
				}); err == nil {
					t.Errorf("%+v was taken", bad)
				}
			}
		})
	}
}

// TestSearchShowsWhatIsSigned: columns changed in the database can hide a
// record (verification names it) but not pass it off as another.
func TestSearchShowsWhatIsSigned(t *testing.T) {
	s := filled(t)
	s.exec(t, "UPDATE ledger_write SET actor = 'mallory' WHERE idx = 3")
	if p := search(t, s, ledger.Query{Actor: "mallory"}); len(p.Records) != 0 {
		t.Errorf("%v", names(p))
	}
	s.forge(t, 25, nil)
	if p := search(t, s, ledger.Query{Op: "forged"}); len(p.Records) != 0 {
		t.Errorf("a record beyond the signed head is shown: %v", names(p))
	}
}

// TestSearchAgainstAPlainFilter compares paging with one pass over all records.
func TestSearchAgainstAPlainFilter(t *testing.T) {
	db, l := ledgertest.NewMemory(), ledgertest.Log(t)
	for range 5 {
		ledgertest.Fill(t, db, l, ledger.Write, 40)
		ledgertest.Fill(t, db, l, ledger.Read, 30)
	}
	all := search(t, db, ledger.Query{Limit: 500}).Records
	if !slices.IsSortedFunc(all, func(a, b ledger.Found) int { return strings.Compare(b.TS, a.TS) }) || len(all) != 350 {
		t.Fatalf("%d records, or not newest first", len(all))
	}
	rapid.Check(t, func(t *rapid.T) {
		q := ledger.Query{
			Kind: rapid.SampledFrom([]string{"", "plan", "step"}).Draw(t, "kind"), Effect: rapid.SampledFrom([]string{"", "change"}).Draw(t, "effect"),
			Target: rapid.SampledFrom([]string{"", "vm/103", "/10"}).Draw(t, "target"), Text: rapid.SampledFrom([]string{"", "output of 1", "AGENT-2"}).Draw(t, "text"),
			Limit: rapid.IntRange(1, 60).Draw(t, "limit"), MaxScan: rapid.IntRange(1, 400).Draw(t, "scan"),
		}
		var want []string
		for _, f := range all {
			text := strings.ToLower(q.Text)
			hit := text == "" || strings.Contains(strings.ToLower(f.Actor), text)
			for _, p := range f.Parts {
				hit = hit || strings.Contains(string(p.Body), text)
			}
			if hit && q.MatchColumns(f.Columns) {
				want = append(want, fmt.Sprint(f.Tree, f.Seq))
			}
		}
		var got []string
		for n := 0; n < 2000; n++ {
			var page ledger.Page
			if err := db.View(background, func(r ledgertest.Rows) (err error) {
				page, err = ledger.Search(background, r, q)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			for _, f := range page.Records {
				got = append(got, fmt.Sprint(f.Tree, f.Seq))
			}
			if q.Cursor = page.Next; page.Next == "" {
				break
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%+v\n%s", q, d)
		}
	})
}

func TestParseWhen(t *testing.T) {
	now := time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Time{
		"": {}, "90s": now.Add(-90 * time.Second), "15m": now.Add(-15 * time.Minute), "2h": now.Add(-2 * time.Hour), "7d": now.Add(-7 * 24 * time.Hour), " 3w ": now.Add(-21 * 24 * time.Hour), "0s": now,
		"2026-01-31T08:00:00Z": time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC), "2026-01-31T08:00:00+02:00": time.Date(2026, 1, 31, 6, 0, 0, 0, time.UTC),
		"2026-01-31": time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC), "2026-01-31 08:30": time.Date(2026, 1, 31, 8, 30, 0, 0, time.UTC),
		"1769846400": time.Unix(1769846400, 0).UTC(), "1769846400123": time.UnixMilli(1769846400123).UTC(),
	} {
		got, err := ledger.ParseWhen(in, now)
		if err != nil || !got.Equal(want) {
			t.Errorf("%q: %v %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"yesterday", "7", "-7d", "7y", "7.5d", "d", "99999999999d", "4294967295w", "2026-13-01", "2026-01-31T25:00:00Z", strings.Repeat("1", 100), "１d"} {
		if got, err := ledger.ParseWhen(in, now); err == nil {
			t.Errorf("%q became %v", in, got)
		}
	}
}

// FuzzQuery feeds text from outside to everything that a query is made of.
func FuzzQuery(f *testing.F) {
	db, l := ledgertest.NewMemory(), ledgertest.Log(f)
	ledgertest.Fill(f, db, l, ledger.Write, 9)
	ledgertest.Fill(f, db, l, ledger.Read, 9)
	f.Add("7d", "w5r3", "output", "vm")
	f.Add("2026-01-31", "", "%", "'")
	f.Fuzz(func(t *testing.T, when, cursor, text, target string) {
		now := time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC)
		since, err := ledger.ParseWhen(when, now)
		if err != nil {
			since = time.Time{}
		}
		if a, _ := (ledger.Query{Since: since}).Window(); !since.IsZero() && since.Year() > 0 && since.Year() < 10000 && len(a) != len(ledger.TimeLayout) {
			t.Fatalf("%q gives the bound %q", when, a)
		}
		err = db.View(background, func(r ledgertest.Rows) error {
			page, err := ledger.Search(background, r, ledger.Query{Since: since, Cursor: cursor, Text: text, Target: target, Limit: 5})
			if len(page.Records) > 5 {
				t.Fatal("too many records")
			}
			return err
		})
		_ = err
	})
}
