package ledger_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"castellan/internal/ledger"
	"castellan/internal/ledger/ledgertest"

	"golang.org/x/mod/sumdb/tlog"
)

func appendTo(db ledgertest.DB, l *ledger.Log, tree ledger.Tree, entries ...ledger.Entry) (got []ledger.Receipt, err error) {
	err = db.Update(background, func(r ledgertest.Rows) error {
		got, err = l.Append(background, r, tree, entries...)
		return err
	})
	return got, err
}

// TestAppendRefusesWhatItDidNotSign: a log that was changed in the database is
// never vouched for by signing on from it.
func TestAppendRefusesWhatItDidNotSign(t *testing.T) {
	for _, a := range []struct {
		name string
		do   func(t *testing.T, s *sqlite)
		want error
	}{
		{"rehashed", func(t *testing.T, s *sqlite) {
			s.rewrite(t, 5, `"rung":"none"`, `"rung":"nope"`)
			s.rehash(t, ledger.Write)
		}, ledger.ErrTampered},
		{"size edited", func(t *testing.T, s *sqlite) { s.exec(t, "UPDATE ledger_head SET size = 24") }, ledger.ErrTampered},
		{"frontier edited", func(t *testing.T, s *sqlite) {
			s.exec(t, "UPDATE ledger_head SET frontier = zeroblob(length(frontier))")
		}, ledger.ErrTampered},
		{"note removed", func(t *testing.T, s *sqlite) { s.exec(t, "UPDATE ledger_head SET note = ''") }, ledger.ErrTampered},
		{"note of the other tree", func(t *testing.T, s *sqlite) {
			s.exec(t, "UPDATE ledger_head SET (size, frontier, note) = (SELECT size, frontier, note FROM ledger_head WHERE tree = 'read') WHERE tree = 'write'")
		}, ledger.ErrTampered},
		{"head row removed", func(t *testing.T, s *sqlite) { s.exec(t, "DELETE FROM ledger_head WHERE tree = 'write'") }, nil}, // the taken index refuses
	} {
		for _, fresh := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, fresh process %v", a.name, fresh), func(t *testing.T) {
				s, l := openSQLite(t), ledgertest.Log(t)
				ledgertest.Fill(t, s, l, ledger.Write, 25)
				ledgertest.Fill(t, s, l, ledger.Read, 3)
				a.do(t, s)
				if fresh {
					l = ledgertest.Log(t)
				}
				_, err := appendTo(s, l, ledger.Write, ledgertest.Entry(1))
				if err == nil || a.want != nil && !errors.Is(err, a.want) {
					t.Errorf("got %v, want %v", err, a.want)
				}
				if n := len(ledgertest.Records(t, s, ledger.Write)); n != 25 {
					t.Errorf("%d records", n)
				}
			})
		}
	}
}

func TestAppendRefusesARewind(t *testing.T) {
	s, l := openSQLite(t), ledgertest.Log(t)
	ledgertest.Fill(t, s, l, ledger.Write, 5)
	old := reopenSQLite(t, copyFile(t, s))
	got, err := appendTo(s, l, ledger.Write, ledgertest.Entry(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := appendTo(old, l, ledger.Write, ledgertest.Entry(2)); err != nil {
		t.Errorf("before the commit is known nothing is wrong: %v", err)
	}
	l.Committed(got[0].Checkpoint)
	if _, err := appendTo(reopenSQLite(t, copyFile(t, old)), l, ledger.Write, ledgertest.Entry(2)); !errors.Is(err, ledger.ErrRewound) {
		t.Errorf("another record at the same size: %v", err)
	}
	if _, err := appendTo(s, l, ledger.Write, ledgertest.Entry(2)); err != nil {
		t.Error(err)
	}
}

func TestAppendRefusesBadEntries(t *testing.T) {
	db, l := ledgertest.NewMemory(), ledgertest.Log(t)
	part := func(names ...string) (e ledger.Entry) {
		e = ledgertest.Entry(1)
		e.Parts = nil
		for _, n := range names {
			e.Parts = append(e.Parts, ledger.Part{Name: n})
		}
		return e
	}
	data := func(v any) (e ledger.Entry) { e = ledgertest.Entry(1); e.Data = map[string]any{"x": v}; return e }
	long := data(strings.Repeat("x", ledger.MaxHeader))
	old := ledgertest.Entry(1)
	old.Time = time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC)
	big := part("a", "b")
	big.Parts[0].Body, big.Parts[1].Body = make([]byte, ledger.MaxPart), make([]byte, ledger.MaxPart)
	for name, e := range map[string]ledger.Entry{
		"no kind": {}, "no part name": part(""), "odd part name": part("A"), "part twice": part("a", "a"), "too many parts": part(strings.Split(strings.Repeat("a.", 70), ".")...),
		"float": data(1.5), "struct": data(struct{}{}), "too long": long, "year 12026": old, "parts too long": big,
	} {
		if _, err := appendTo(db, l, ledger.Write, ledgertest.Entry(0), e); !errors.Is(err, ledger.ErrEntry) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := appendTo(db, l, "other", ledgertest.Entry(0)); err == nil {
		t.Error("a tree that does not exist was written")
	}
	if got, err := appendTo(db, l, ledger.Write); err != nil || got != nil {
		t.Errorf("nothing to append: %v %v", got, err)
	}
	if n := len(ledgertest.Records(t, db, ledger.Write)); n != 0 {
		t.Errorf("%d records were written", n)
	}
	for _, c := range []ledger.Config{{Store: "a"}, {Signer: ledgertest.Key("a")}, {Store: "A/b", Signer: ledgertest.Key("a")}, {Store: "a\nb", Signer: ledgertest.Key("a")}} {
		if _, err := ledger.New(c); err == nil {
			t.Errorf("%q was taken", c.Store)
		}
	}
}

// TestProofs compares with sumdb/tlog over hashes in memory, at every size.
func TestProofs(t *testing.T) {
	db, l := ledgertest.NewMemory(), ledgertest.Log(t)
	const n = 700 // beyond two blocks of hashes
	var at []ledger.Receipt
	for i := range n {
		got, err := appendTo(db, l, ledger.Write, ledgertest.Entry(i))
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, got[0])
	}
	recs := ledgertest.Records(t, db, ledger.Write)
	var flat []tlog.Hash
	for _, r := range recs {
		for b := r.Hashes; len(b) > 0; b = b[32:] {
			flat = append(flat, tlog.Hash(b[:32]))
		}
	}
	memory := tlog.HashReaderFunc(func(idx []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(idx))
		for i, x := range idx {
			out[i] = flat[x]
		}
		return out, nil
	})
	rng := rand.New(rand.NewPCG(7, 8))
	if err := db.View(background, func(rows ledgertest.Rows) error {
		for range 2000 {
			size := 1 + rng.Int64N(n)
			cp := at[size-1].Checkpoint
			if root, _ := tlog.TreeHash(size, memory); root != cp.Root || cp.Size != size {
				t.Fatalf("root of %d records", size)
			}
			i := rng.Int64N(size)
			p, err := l.Prove(background, rows, cp, i)
			if err != nil {
				return err
			}
			want, _ := tlog.ProveRecord(size, i, memory)
			if fmt.Sprint(p.Path) != fmt.Sprint([]tlog.Hash(want)) {
				t.Fatalf("proof of %d in %d", i, size)
			}
			p.Note = at[size-1].Note
			if err := p.Check(recs[i].Header, pub("test")); err != nil {
				t.Fatal(err)
			}
			if p.Check(recs[(i+1)%n].Header, pub("test")) == nil || p.Check(recs[i].Header, pub("other")) == nil {
				t.Fatal("a proof holds for another record or key")
			}
			old := at[rng.Int64N(size)].Checkpoint
			path, err := l.ProveGrowth(background, rows, cp, old)
			if err != nil {
				return err
			}
			if err := ledger.CheckGrowth(path, cp, old); err != nil {
				t.Fatal(err)
			}
		}
		for _, bad := range []func() error{
			func() error { _, err := l.Prove(background, rows, at[9].Checkpoint, 10); return err },
			func() error { _, err := l.Prove(background, rows, at[9].Checkpoint, -1); return err },
			func() error {
				_, err := l.ProveGrowth(background, rows, at[4].Checkpoint, at[9].Checkpoint)
				return err
			},
			func() error {
				cp := at[9].Checkpoint
				cp.Root[0] ^= 1
				_, err := l.Prove(background, rows, cp, 3)
				return err
			},
			func() error {
				cp := at[9].Checkpoint
				cp.Origin = "castellan/other/write"
				_, err := l.Prove(background, rows, cp, 3)
				return err
			},
		} {
			if bad() == nil {
				t.Error("an impossible proof was given")
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestProofsSurviveARollBack: hashes read within a transaction that was then
// rolled back must not spoil later proofs.
func TestProofsSurviveARollBack(t *testing.T) {
	db, l := ledgertest.NewMemory(), ledgertest.Log(t)
	ledgertest.Fill(t, db, l, ledger.Write, 100)
	no := errors.New("no")
	prove := func(r ledgertest.Rows, cp ledger.Checkpoint, i int64) {
		t.Helper()
		if _, err := l.Prove(background, r, cp, i); err != nil {
			t.Error(err)
		}
	}
	if err := db.Update(background, func(r ledgertest.Rows) error {
		for i := range 300 {
			got, err := l.Append(background, r, ledger.Write, ledgertest.Entry(i))
			if err != nil {
				return err
			}
			if i == 299 {
				prove(r, got[0].Checkpoint, 250)
				prove(r, got[0].Checkpoint, 120)
			}
		}
		return no
	}); !errors.Is(err, no) {
		t.Fatal(err)
	}
	ledgertest.Fill(t, db, l, ledger.Write, 300)
	if err := db.View(background, func(r ledgertest.Rows) error {
		cp, _, err := l.Head(background, r, ledger.Write)
		prove(r, cp, 250)
		prove(r, cp, 120)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestRotation(t *testing.T) {
	for _, reads := range []int{0, 4} {
		t.Run(fmt.Sprint(reads, " reads"), func(t *testing.T) {
			db, old := openSQLite(t), ledgertest.Log(t)
			ledgertest.Fill(t, db, old, ledger.Write, 5)
			ledgertest.Fill(t, db, old, ledger.Read, reads)
			before := head(t, db, ledger.Write)
			if err := db.Update(background, func(r ledgertest.Rows) error {
				_, err := old.Rotate(background, r, ledgertest.Key("new"), ledger.Entry{Columns: ledger.Columns{Actor: "root"}})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			for _, tree := range ledger.Trees() {
				if _, err := appendTo(db, old, tree, ledgertest.Entry(1)); !errors.Is(err, ledger.ErrTampered) {
					t.Errorf("the old key still appends to the %s tree: %v", tree, err)
				}
			}
			now, err := ledger.New(ledger.Config{Store: "test", Signer: ledgertest.Key("new")})
			if err != nil {
				t.Fatal(err)
			}
			ledgertest.Fill(t, db, now, ledger.Write, 3)
			ledgertest.Fill(t, db, now, ledger.Read, 3)
			var python second
			for _, name := range []string{"test", "new"} {
				o := ledger.Options{Keys: []ed25519.PublicKey{pub(name)}, Heads: []string{before, head(t, db, ledger.Write)}}
				if res := verifyWith(t, db, o); !res.OK {
					t.Errorf("with the %s key: %+v", name, res.Broken)
				}
				var out bytes.Buffer
				exportTo(t, db, &out, ledger.ExportOptions{})
				res := verifyExport(t, out.Bytes(), o)
				if !res.OK {
					t.Errorf("export with the %s key: %+v", name, res.Broken)
				}
				if name == "test" {
					python.add(t, out.Bytes(), res)
				}
			}
			python.check(t, before)
			if res := verifyWith(t, db, ledger.Options{Keys: []ed25519.PublicKey{pub("third")}}); res.OK {
				t.Error("verified with a key that never signed")
			}

			// Whoever has stolen the retired key can still not sign a head.
			db.exec(t, "UPDATE ledger_write SET header = replace(header, 'none', 'nope') WHERE idx = 8")
			db.rehash(t, ledger.Write)
			thief := ledgertest.Log(t)
			other := openSQLite(t)
			ledgertest.Fill(t, other, thief, ledger.Write, 9)
			db.exec(t, "UPDATE ledger_head SET note = ? WHERE tree = 'write'", head(t, other, ledger.Write))
			if res := verify(t, db); res.OK || res.Broken.Index != 8 {
				t.Errorf("a head by the retired key: %+v", res.Broken)
			}

			if err := db.Update(background, func(r ledgertest.Rows) error {
				_, err := now.Rotate(background, r, ledgertest.Key("new"), ledger.Entry{})
				return err
			}); err == nil {
				t.Error("rotated to the same key")
			}
		})
	}
}

// TestRotationForged: a rotation that only the new key signed, or that is of
// another store, moves no trust.
func TestRotationForged(t *testing.T) {
	db := openSQLite(t)
	evil, err := ledger.New(ledger.Config{Store: "test", Signer: ledgertest.Key("evil")})
	if err != nil {
		t.Fatal(err)
	}
	// A whole log by the intruder, with a rotation from "test" to his key that
	// only he has signed.
	e := ledger.Entry{Columns: ledger.Columns{Kind: ledger.KindKey}, Data: map[string]any{"store": "test"}}
	for k, v := range forgedRotation(t) {
		e.Data[k] = v
	}
	if _, err := appendTo(db, evil, ledger.Write, e); err != nil {
		t.Fatal(err)
	}
	if res := verify(t, db); res.OK || res.Broken.Fault != ledger.WrongKey {
		t.Errorf("%+v", res.Broken)
	}
}

func TestSweep(t *testing.T) {
	db := openSQLite(t)
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	l, err := ledger.New(ledger.Config{Store: "test", Signer: ledgertest.Key("test"), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	day := 24 * time.Hour
	for i := range 30 {
		e := ledgertest.Entry(i)
		e.Time = now.Add(time.Duration(i-30) * day)
		for _, tree := range ledger.Trees() {
			if _, err := appendTo(db, l, tree, e); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept := head(t, db, ledger.Write)
	sweep := func(r ledger.Retention) (s ledger.Swept, err error) {
		err = db.Update(background, func(x ledgertest.Rows) error {
			s, err = l.Sweep(background, x, r)
			return err
		})
		return s, err
	}
	all := int64(1) << 60

	for name, r := range map[string]ledger.Retention{
		"future bound": {Tree: ledger.Read, RecordsBefore: now.Add(day), AnchoredSize: all},
		"no tree":      {RecordsBefore: now, AnchoredSize: all},
	} {
		if _, err := sweep(r); err == nil {
			t.Errorf("%s: swept", name)
		}
	}
	now = now.Add(60 * day)
	if _, err := sweep(ledger.Retention{Tree: ledger.Read, RecordsBefore: now.Add(-day), AnchoredSize: all}); !errors.Is(err, ledger.ErrClock) {
		t.Errorf("clock two months ahead: %v", err)
	}
	now = now.Add(-62 * day)
	if _, err := sweep(ledger.Retention{Tree: ledger.Read, RecordsBefore: now.Add(-day), AnchoredSize: all}); !errors.Is(err, ledger.ErrClock) {
		t.Errorf("clock behind: %v", err)
	}
	now = now.Add(2 * day)

	got, err := sweep(ledger.Retention{Tree: ledger.Read, RecordsBefore: now.Add(-20 * day), PartsBefore: now.Add(-10 * day), AnchoredSize: all})
	if err != nil || got.Records != 10 || got.Receipt == nil {
		t.Fatalf("%+v %v", got, err)
	}
	got, err = sweep(ledger.Retention{Tree: ledger.Write, RecordsBefore: now.Add(-20 * day), Keep: []string{"receipt"}, AnchoredSize: 8})
	if err != nil || got.Records != 6 { // 0 to 7 without the receipts 2 and 5
		t.Fatalf("%+v %v", got, err)
	}
	got, err = sweep(ledger.Retention{Tree: ledger.Write, PartsBefore: now.Add(-10 * day), AnchoredSize: all, MaxRecords: 3})
	if err != nil || !got.More || got.Parts == 0 {
		t.Fatalf("%+v %v", got, err)
	}
	if got, err := sweep(ledger.Retention{Tree: ledger.Write, AnchoredSize: all}); err != nil || got.Receipt != nil {
		t.Fatalf("a sweep of nothing: %+v %v", got, err)
	}
	check := func(what string, ok bool) {
		t.Helper()
		var out bytes.Buffer
		exportTo(t, db, &out, ledger.ExportOptions{})
		export := verifyExport(t, out.Bytes(), ledger.Options{})
		if res := verify(t, db, kept); res.OK != ok || export.OK != ok {
			t.Errorf("%s: %+v, export %+v", what, res.Broken, export.Broken)
		}
		var python second
		python.add(t, out.Bytes(), export)
		python.check(t)
	}
	check("after the sweeps", true)
	if res := verify(t, db); res.Trees[ledger.Read].Withheld.Records != 10 || res.Trees[ledger.Write].Withheld.Records != 6 {
		t.Errorf("%+v", res.Trees)
	}
	// Taking out one more, below what was swept, does not go unnoticed.
	db.exec(t, "UPDATE ledger_write SET header=NULL, ts=NULL, kind=NULL, op=NULL, actor=NULL, client=NULL, target=NULL, status=NULL, effect=NULL, plan=NULL WHERE idx = 2")
	db.exec(t, "DELETE FROM ledger_write_part WHERE id >= 2*64 AND id < 3*64")
	check("one more taken out", false)
}

// TestSweepKeepsTheEvidence: a changed time column must not make retention
// remove a record early.
func TestSweepKeepsTheEvidence(t *testing.T) {
	s := filled(t)
	s.exec(t, "UPDATE ledger_write SET ts = '2001-01-01T00:00:00.000000Z' WHERE idx = 0")
	now := time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)
	l, _ := ledger.New(ledger.Config{Store: "test", Signer: ledgertest.Key("test"), Now: func() time.Time { return now }})
	err := s.Update(background, func(x ledgertest.Rows) error {
		_, err := l.Sweep(background, x, ledger.Retention{Tree: ledger.Write, RecordsBefore: now.Add(-365 * 24 * time.Hour), AnchoredSize: 100})
		return err
	})
	if !errors.Is(err, ledger.ErrTampered) {
		t.Errorf("got %v", err)
	}
}

// TestTail: the quick check sees what concerns the head and the newest records.
func TestTail(t *testing.T) {
	tail := func(t *testing.T, s *sqlite) ledger.Result {
		t.Helper()
		var res ledger.Result
		if err := s.View(background, func(r ledgertest.Rows) (err error) {
			res, err = ledgertest.Log(t).VerifyTail(background, r, ledger.Options{Keys: []ed25519.PublicKey{pub("test")}}, 6)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return res
	}
	for _, a := range []struct {
		name string
		do   func(t *testing.T, s *sqlite)
		ok   bool
	}{
		{"sound", func(t *testing.T, s *sqlite) {}, true},
		{"old record edited", func(t *testing.T, s *sqlite) { s.rewrite(t, 3, `"rung":"none"`, `"rung":"nope"`) }, true}, // left to the whole check
		{"new record edited", func(t *testing.T, s *sqlite) { s.rewrite(t, 23, `"rung":"none"`, `"rung":"nope"`) }, false},
		{"new record edited and rehashed", func(t *testing.T, s *sqlite) {
			s.rewrite(t, 23, `"rung":"none"`, `"rung":"nope"`)
			s.rehash(t, ledger.Write)
		}, false},
		{"old record edited and rehashed", func(t *testing.T, s *sqlite) {
			s.rewrite(t, 3, `"rung":"none"`, `"rung":"nope"`)
			s.rehash(t, ledger.Write)
		}, false},
		{"newest removed", func(t *testing.T, s *sqlite) { s.remove(t, 24) }, false},
		{"appended", func(t *testing.T, s *sqlite) { s.forge(t, 25, nil) }, false},
		{"head unsigned", func(t *testing.T, s *sqlite) { s.exec(t, "UPDATE ledger_head SET note = ''") }, false},
		{"size edited", func(t *testing.T, s *sqlite) { s.exec(t, "UPDATE ledger_head SET size = 20") }, false},
		{"old hashes edited", func(t *testing.T, s *sqlite) {
			s.exec(t, "UPDATE ledger_write SET hashes = zeroblob(length(hashes)) WHERE idx = 15")
		}, false},
		{"old hashes gone", func(t *testing.T, s *sqlite) { s.exec(t, "UPDATE ledger_write SET hashes = x'' WHERE idx = 15") }, false},
	} {
		t.Run(a.name, func(t *testing.T) {
			s := filled(t)
			a.do(t, s)
			if res := tail(t, s); res.OK != a.ok {
				t.Errorf("%+v", res.Broken)
			}
		})
	}
	if res := tail(t, openSQLite(t)); !res.OK {
		t.Errorf("empty: %+v", res.Broken)
	}
}

// TestProcesses: several processes append to one file; one is killed amid its
// work; the log stays whole and every acknowledged record is in it.
func TestProcesses(t *testing.T) {
	if path := os.Getenv("LEDGER_TEST_APPENDER"); path != "" {
		appender(t, path)
		return
	}
	if testing.Short() {
		t.Skip("starts processes")
	}
	s := openSQLite(t)
	var cmds []*exec.Cmd
	var outs []*bytes.Buffer
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestProcesses$")
		cmd.Env = append(os.Environ(), "LEDGER_TEST_APPENDER="+s.path)
		out := &bytes.Buffer{}
		cmd.Stdout = out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	// Kill the first once all have been seen at work.
	deadline := time.Now().Add(time.Minute)
	for len(ledgertest.Records(t, s, ledger.Write)) < 30 && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	cmds[0].Process.Kill()
	cmds[0].Wait()
	for i, cmd := range cmds[1:] {
		if err := cmd.Wait(); err != nil {
			t.Errorf("appender %d: %v\n%s", i+1, err, outs[i+1])
		}
	}
	res := verify(t, s)
	if !res.OK {
		t.Fatalf("%+v", res.Broken)
	}
	there := map[string]bool{}
	for _, r := range ledgertest.Records(t, s, ledger.Write) {
		there[r.Plan] = true
	}
	acked := 0
	for _, out := range outs {
		for line := range strings.Lines(out.String()) {
			if id, ok := strings.CutPrefix(strings.TrimSpace(line), "done "); ok {
				acked++
				if !there[id] {
					t.Errorf("%s was acknowledged and is not there", id)
				}
			}
		}
	}
	if acked < 80 {
		t.Errorf("only %d were acknowledged", acked)
	}
	t.Logf("%d records, %d acknowledged", res.Size, acked)
}

func appender(t *testing.T, path string) {
	s, l := reopenSQLite(t, path), ledgertest.Log(t)
	for i := range 40 {
		e := ledgertest.Entry(i)
		e.Plan = fmt.Sprintf("%d-%d", os.Getpid(), i)
		if _, err := appendTo(s, l, ledger.Write, e); err != nil {
			t.Fatal(err)
		}
		fmt.Println("done", e.Plan)
	}
}

// forgedRotation is signed twice with the intruder's key.
func forgedRotation(t *testing.T) map[string]any {
	t.Helper()
	b64 := base64.StdEncoding.EncodeToString
	old, evil := pub("test"), ledgertest.Key("evil")
	text := "castellan ledger key rotation\ntest\n" + b64(old) + "\n" + b64(pub("evil")) + "\n"
	sig := b64(ed25519.Sign(evil, []byte(text)))
	return map[string]any{"old": b64(old), "new": b64(pub("evil")), "old_sig": sig, "new_sig": sig}
}
