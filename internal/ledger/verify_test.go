package ledger_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"castellan/internal/ledger"
	"castellan/internal/ledger/ledgertest"

	"golang.org/x/mod/sumdb/tlog"
)

var background = context.Background()

func pub(name string) ed25519.PublicKey {
	return ledgertest.Key(name).Public().(ed25519.PublicKey)
}

func verify(t testing.TB, db ledgertest.DB, heads ...string) ledger.Result {
	t.Helper()
	return verifyWith(t, db, ledger.Options{Keys: []ed25519.PublicKey{pub("test")}, Heads: heads})
}

func verifyWith(t testing.TB, db ledgertest.DB, o ledger.Options) ledger.Result {
	t.Helper()
	var res ledger.Result
	if err := db.View(background, func(r ledgertest.Rows) (err error) {
		res, err = ledger.Verify(background, r, o)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return res
}

// filled returns a SQLite store with write records, each signed on its own but
// for three appended at once at 10 to 12, and some read records.
func filled(t testing.TB) *sqlite {
	t.Helper()
	db, l := openSQLite(t), ledgertest.Log(t)
	ledgertest.Fill(t, db, l, ledger.Write, 10)
	if err := db.Update(background, func(r ledgertest.Rows) error {
		_, err := l.Append(background, r, ledger.Write, ledgertest.Entry(10), ledgertest.Entry(11), ledgertest.Entry(12))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ledgertest.Fill(t, db, l, ledger.Write, 12)
	ledgertest.Fill(t, db, l, ledger.Read, 8)
	return db
}

// rehash makes every stored hash and the head's size and frontier agree with
// the records as they stand, as somebody can who knows the format but has no
// key. Places are renumbered without gaps.
func (s *sqlite) rehash(t testing.TB, tree ledger.Tree) {
	t.Helper()
	recs := ledgertest.Records(t, s, tree)
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(idx []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(idx))
		for i, x := range idx {
			out[i] = stored[x]
		}
		return out, nil
	})
	for i, r := range recs {
		hs, err := tlog.StoredHashes(int64(i), r.Header, reader)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, hs...)
		var b []byte
		for _, h := range hs {
			b = append(b, h[:]...)
		}
		s.exec(t, fmt.Sprintf("UPDATE ledger_%s SET hashes = ? WHERE idx = ?", tree), b, r.Index)
	}
	var front []byte
	lo := int64(0)
	for bit := int64(1) << 40; bit > 0; bit >>= 1 {
		if int64(len(recs))&bit != 0 {
			level := 0
			for 1<<level < bit {
				level++
			}
			h := stored[tlog.StoredHashIndex(level, lo>>level)]
			front = append(front, h[:]...)
			lo += bit
		}
	}
	s.exec(t, "UPDATE ledger_head SET frontier = ?, size = ? WHERE tree = ?", front, len(recs), string(tree))
}

// shift moves records at or above index by d places, parts with them.
func (s *sqlite) shift(t testing.TB, index, d int64) {
	t.Helper()
	s.exec(t, "UPDATE ledger_write SET idx = -idx-1000 WHERE idx >= ?", index)
	s.exec(t, "UPDATE ledger_write SET idx = -(idx+1000) + ? WHERE idx < 0", d)
	s.exec(t, "UPDATE ledger_write_part SET id = -id-100000 WHERE id >= ?", index*64)
	s.exec(t, "UPDATE ledger_write_part SET id = -(id+100000) + ? WHERE id < 0", d*64)
}

// rewrite replaces text in a header and, if it is there, in the column beside.
func (s *sqlite) rewrite(t testing.TB, index int64, old, new string) {
	t.Helper()
	var h []byte
	if err := s.db.QueryRow("SELECT header FROM ledger_write WHERE idx = ?", index).Scan(&h); err != nil {
		t.Fatal(err)
	}
	changed := bytes.Replace(h, []byte(old), []byte(new), 1)
	if bytes.Equal(h, changed) {
		t.Fatalf("%q does not stand in %s", old, h)
	}
	s.exec(t, "UPDATE ledger_write SET header = ? WHERE idx = ?", changed, index)
}

func (s *sqlite) swap(t testing.TB, a, b int64) {
	t.Helper()
	for _, q := range [][2]int64{{a, -1}, {b, a}, {-1, b}} {
		s.exec(t, "UPDATE ledger_write SET idx = ? WHERE idx = ?", q[1], q[0])
		s.exec(t, "UPDATE ledger_write_part SET id = id + (?-?)*64 WHERE id >= ?*64 AND id < (?+1)*64", q[1], q[0], q[0], q[0])
	}
}

func (s *sqlite) remove(t testing.TB, index int64) {
	t.Helper()
	s.exec(t, "DELETE FROM ledger_write WHERE idx = ?", index)
	s.exec(t, "DELETE FROM ledger_write_part WHERE id >= ?*64 AND id < (?+1)*64", index, index)
}

// renumber gives each record from index on the number of its place.
func (s *sqlite) renumber(t testing.TB, index, was int64) {
	t.Helper()
	for _, r := range ledgertest.Records(t, s, ledger.Write) {
		if r.Index >= index && r.Header != nil {
			s.rewrite(t, r.Index, fmt.Sprintf(`"seq":%d,`, r.Index+was-index), fmt.Sprintf(`"seq":%d,`, r.Index))
		}
	}
}

func (s *sqlite) forge(t testing.TB, index int64, sig []byte) {
	t.Helper()
	h := fmt.Appendf(nil, `{"kind":"plan","op":"forged","seq":%d,"tree":"write","ts":"2026-01-02T03:04:30.000000Z","v":1}`, index)
	leaf := tlog.RecordHash(h)
	s.exec(t, "INSERT INTO ledger_write(idx, header, hashes, sig, ts, kind, op, actor, client, target, status, effect, plan) VALUES(?,?,?,?,'2026-01-02T03:04:30.000000Z','plan','forged','','','','','','')", index, h, leaf[:], sig)
}

// TestVerifyNamesTheAttack does to a SQLite file what an intruder could.
func TestVerifyNamesTheAttack(t *testing.T) {
	type attack struct {
		name  string
		do    func(t *testing.T, s *sqlite)
		fault ledger.Fault
		index int64
		// beside: what was attacked is not part of an export.
		beside bool
	}
	write := ledger.Write
	attacks := []attack{
		{"header edited", func(t *testing.T, s *sqlite) { s.rewrite(t, 5, `"effect":"destroy"`, `"effect":"change"`) }, ledger.Edit, 5, false},
		{"first record edited", func(t *testing.T, s *sqlite) { s.rewrite(t, 0, `"rung":"none"`, `"rung":"nope"`) }, ledger.Edit, 0, false},
		{"last record edited", func(t *testing.T, s *sqlite) { s.rewrite(t, 24, `"rung":"none"`, `"rung":"nope"`) }, ledger.Edit, 24, false},
		{"header edited and rehashed", func(t *testing.T, s *sqlite) {
			s.rewrite(t, 5, `"rung":"none"`, `"rung":"nope"`)
			s.rehash(t, write)
		}, ledger.Edit, 5, false},
		{"header and its leaf hash edited", func(t *testing.T, s *sqlite) {
			s.rewrite(t, 6, `"rung":"none"`, `"rung":"nope"`)
			var h []byte
			s.db.QueryRow("SELECT header FROM ledger_write WHERE idx = 6").Scan(&h)
			leaf := tlog.RecordHash(h)
			s.exec(t, "UPDATE ledger_write SET hashes = ? WHERE idx = 6", leaf[:])
		}, ledger.Edit, 6, false},
		{"edited and rehashed within one append", func(t *testing.T, s *sqlite) {
			s.rewrite(t, 11, `"rung":"none"`, `"rung":"nope"`)
			s.rehash(t, write)
		}, ledger.Edit, 10, false}, // 10 to 12 bear one signature
		{"edited, rehashed, later signatures removed", func(t *testing.T, s *sqlite) {
			s.rewrite(t, 5, `"rung":"none"`, `"rung":"nope"`)
			s.rehash(t, write)
			s.exec(t, "UPDATE ledger_write SET sig = NULL WHERE idx >= 5")
		}, ledger.Edit, 5, false},
		{"edited, rehashed, later signatures given the new roots", func(t *testing.T, s *sqlite) {
			s.rewrite(t, 5, `"rung":"none"`, `"rung":"nope"`)
			s.rehash(t, write)
			s.reroot(t)
		}, ledger.Edit, 5, false},
		{"header unreadable", func(t *testing.T, s *sqlite) { s.exec(t, "UPDATE ledger_write SET header = 'x' WHERE idx = 7") }, ledger.Edit, 7, false},
		{"header respelt", func(t *testing.T, s *sqlite) { s.rewrite(t, 7, `{"actor"`, `{ "actor"`) }, ledger.Edit, 7, false},
		{"column edited", func(t *testing.T, s *sqlite) { s.exec(t, "UPDATE ledger_write SET status = 'ok' WHERE idx = 4") }, ledger.Edit, 4, true},
		{"time column edited", func(t *testing.T, s *sqlite) {
			s.exec(t, "UPDATE ledger_write SET ts = '1999-01-01T00:00:00.000000Z' WHERE idx = 4")
		}, ledger.Edit, 4, true},
		{"part edited", func(t *testing.T, s *sqlite) { s.exec(t, "UPDATE ledger_write_part SET body = 'x' WHERE id = 8*64") }, ledger.Edit, 8, false},
		{"salt edited", func(t *testing.T, s *sqlite) {
			s.exec(t, "UPDATE ledger_write_part SET salt = ? WHERE id = 8*64", make([]byte, 32))
		}, ledger.Edit, 8, false},
		{"part renamed", func(t *testing.T, s *sqlite) { s.exec(t, "UPDATE ledger_write_part SET name = 'zzz' WHERE id = 8*64") }, ledger.Edit, 8, false},
		{"part put in", func(t *testing.T, s *sqlite) {
			s.exec(t, "INSERT INTO ledger_write_part VALUES(7*64, 'args', ?, 'x')", make([]byte, 32))
		}, ledger.Edit, 7, false},
		{"stored hash edited", func(t *testing.T, s *sqlite) {
			s.exec(t, "UPDATE ledger_write SET hashes = zeroblob(length(hashes)) WHERE idx = 9")
		}, ledger.Edit, 9, true},
		{"stored hash shortened", func(t *testing.T, s *sqlite) {
			s.exec(t, "UPDATE ledger_write SET hashes = substr(hashes, 1, 32) WHERE idx = 9")
		}, ledger.Edit, 9, true},
		{"stored hash lengthened", func(t *testing.T, s *sqlite) {
			s.exec(t, "UPDATE ledger_write SET hashes = hashes || hashes WHERE idx = 9")
		}, ledger.Edit, 9, true},
		{"signature of a record edited", func(t *testing.T, s *sqlite) {
			s.exec(t, "UPDATE ledger_write SET sig = zeroblob(100) WHERE idx = 9")
		}, ledger.Edit, 9, false},

		{"neighbours swapped", func(t *testing.T, s *sqlite) { s.swap(t, 5, 6) }, ledger.Reorder, 5, false},
		{"neighbours swapped and rehashed", func(t *testing.T, s *sqlite) { s.swap(t, 5, 6); s.rehash(t, write) }, ledger.Reorder, 5, false},
		{"far records swapped", func(t *testing.T, s *sqlite) { s.swap(t, 3, 20) }, ledger.Reorder, 3, false},
		{"record moved to the end", func(t *testing.T, s *sqlite) {
			s.exec(t, "UPDATE ledger_write SET idx = 100 WHERE idx = 5")
		}, ledger.Reorder, 5, false},
		{"record moved down, others shifted", func(t *testing.T, s *sqlite) {
			s.exec(t, "UPDATE ledger_write SET idx = 1000 WHERE idx = 5")
			for i := 6; i <= 9; i++ {
				s.exec(t, "UPDATE ledger_write SET idx = ? WHERE idx = ?", i-1, i)
			}
			s.exec(t, "UPDATE ledger_write SET idx = 9 WHERE idx = 1000")
			s.exec(t, "DELETE FROM ledger_write_part")
		}, ledger.Reorder, 5, false},

		{"record removed", func(t *testing.T, s *sqlite) { s.remove(t, 5) }, ledger.Removal, 5, false},
		{"first record removed", func(t *testing.T, s *sqlite) { s.remove(t, 0) }, ledger.Removal, 0, false},
		{"record removed, rest moved up", func(t *testing.T, s *sqlite) { s.remove(t, 5); s.shift(t, 6, -1) }, ledger.Removal, 5, false},
		{"record removed, rest moved up, rehashed", func(t *testing.T, s *sqlite) {
			s.remove(t, 5)
			s.shift(t, 6, -1)
			s.rehash(t, write)
		}, ledger.Removal, 5, false},
		{"three records removed, rest moved up", func(t *testing.T, s *sqlite) {
			for i := int64(5); i < 8; i++ {
				s.remove(t, i)
			}
			s.shift(t, 8, -3)
		}, ledger.Removal, 5, false},
		{"record removed, rest moved up, renumbered and rehashed", func(t *testing.T, s *sqlite) {
			s.remove(t, 5)
			s.shift(t, 6, -1)
			s.renumber(t, 5, 6)
			s.rehash(t, write)
		}, ledger.Removal, 5, false},
		{"header removed as if by retention", func(t *testing.T, s *sqlite) {
			s.exec(t, "UPDATE ledger_write SET header=NULL, ts=NULL, kind=NULL, op=NULL, actor=NULL, client=NULL, target=NULL, status=NULL, effect=NULL, plan=NULL WHERE idx = 5")
			s.exec(t, "DELETE FROM ledger_write_part WHERE id >= 5*64 AND id < 6*64")
		}, ledger.Removal, 5, false},

		{"record put in, rest moved down", func(t *testing.T, s *sqlite) { s.shift(t, 5, 1); s.forge(t, 5, nil) }, ledger.Insertion, 5, false},
		{"record put in, rest moved down, rehashed", func(t *testing.T, s *sqlite) {
			s.shift(t, 5, 1)
			s.forge(t, 5, nil)
			s.rehash(t, write)
		}, ledger.Insertion, 5, false},
		{"record put in at the start", func(t *testing.T, s *sqlite) { s.shift(t, 0, 1); s.forge(t, 0, nil); s.rehash(t, write) }, ledger.Insertion, 0, false},
		{"record put in, renumbered, rehashed", func(t *testing.T, s *sqlite) {
			s.shift(t, 5, 1)
			s.forge(t, 5, nil)
			s.renumber(t, 6, 5)
			s.rehash(t, write)
		}, ledger.Insertion, 5, false},
		{"copy of an older record put in", func(t *testing.T, s *sqlite) {
			s.shift(t, 8, 1)
			s.exec(t, "INSERT INTO ledger_write SELECT 8, header, hashes, sig, ts, kind, op, actor, client, target, status, effect, plan FROM ledger_write WHERE idx = 2")
		}, ledger.Insertion, 8, false},
		{"copy of the record before put in", func(t *testing.T, s *sqlite) {
			s.shift(t, 8, 1)
			s.exec(t, "INSERT INTO ledger_write SELECT 8, header, hashes, sig, ts, kind, op, actor, client, target, status, effect, plan FROM ledger_write WHERE idx = 7")
		}, ledger.Insertion, 8, false},
		{"record at a negative place", func(t *testing.T, s *sqlite) { s.forge(t, -4, nil) }, ledger.Insertion, -4, false},
		{"record replaced by a copy of another", func(t *testing.T, s *sqlite) {
			s.exec(t, "UPDATE ledger_write SET (header, hashes, ts, kind, op, actor, client, target, status, effect, plan) = (SELECT header, hashes, ts, kind, op, actor, client, target, status, effect, plan FROM ledger_write WHERE idx = 2) WHERE idx = 8")
		}, ledger.Edit, 8, false},

		{"record appended", func(t *testing.T, s *sqlite) { s.forge(t, 25, nil) }, ledger.ForgedAppend, 25, false},
		{"record appended, rehashed, head moved", func(t *testing.T, s *sqlite) { s.forge(t, 25, nil); s.rehash(t, write) }, ledger.ForgedAppend, 25, false},
		{"record appended, head signed with another key", func(t *testing.T, s *sqlite) {
			evil, err := ledger.New(ledger.Config{Store: "test", Signer: ledgertest.Key("evil")})
			if err != nil {
				t.Fatal(err)
			}
			// An intruder's own program does not mind whose head it continues.
			recs := ledgertest.Records(t, s, write)
			other := openSQLite(t)
			ledgertest.Fill(t, other, evil, write, 26)
			s.forge(t, 25, nil)
			s.rehash(t, write)
			var note string
			other.db.QueryRow("SELECT note FROM ledger_head WHERE tree = 'write'").Scan(&note)
			s.exec(t, "UPDATE ledger_head SET note = ? WHERE tree = 'write'", note)
			_ = recs
		}, ledger.ForgedAppend, 25, false},
		{"head unsigned", func(t *testing.T, s *sqlite) {
			s.exec(t, "UPDATE ledger_head SET note = substr(note, 1, instr(note, '—') - 1) WHERE tree = 'write'")
		}, ledger.WrongKey, -1, false},
		{"head's size edited", func(t *testing.T, s *sqlite) { s.exec(t, "UPDATE ledger_head SET size = 24 WHERE tree = 'write'") }, ledger.Edit, -1, true},
		{"head's frontier edited", func(t *testing.T, s *sqlite) {
			s.exec(t, "UPDATE ledger_head SET frontier = zeroblob(length(frontier)) WHERE tree = 'write'")
		}, ledger.Edit, -1, true},
		{"head row removed", func(t *testing.T, s *sqlite) { s.exec(t, "DELETE FROM ledger_head WHERE tree = 'write'") }, ledger.Rewind, 0, false},
		{"newest records removed", func(t *testing.T, s *sqlite) {
			s.remove(t, 24)
			s.remove(t, 23)
		}, ledger.Truncation, 23, false},
		{"all records removed", func(t *testing.T, s *sqlite) { s.exec(t, "DELETE FROM ledger_write") }, ledger.Truncation, 0, false},
	}
	var python second
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			s := filled(t)
			if res := verify(t, s); !res.OK || res.Size != 25 || res.Broken != nil {
				t.Fatalf("before the attack: %+v %v", res, res.Broken)
			}
			a.do(t, s)
			res := verify(t, s)
			if res.OK || res.Broken == nil {
				t.Fatal("the attack went unnoticed")
			}
			if b := *res.Broken; b.Fault != a.fault || b.Index != a.index || b.Tree != write || !strings.HasPrefix(b.Reason, string(a.fault)+": ") {
				t.Errorf("got %s at %d (%s), want %s at %d", b.Fault, b.Index, b.Reason, a.fault, a.index)
			}
			t.Log(res.Broken.Reason)

			// The export shows the same, save what is not in it: the copies
			// beside the records and the head row's own columns.
			var out bytes.Buffer
			exportTo(t, s, &out, ledger.ExportOptions{})
			got, err := ledger.VerifyExport(bytes.NewReader(out.Bytes()), ledger.Options{Keys: []ed25519.PublicKey{pub("test")}})
			if err != nil {
				t.Fatal(err)
			}
			if a.beside {
				if !got.OK {
					t.Errorf("the export is broken: %s", got.Broken.Reason)
				}
			} else if got.OK {
				t.Error("the export verifies")
			} else if b := *got.Broken; b.Fault != a.fault || b.Index != a.index {
				t.Errorf("export: got %s at %d (%s), want %s at %d", b.Fault, b.Index, b.Reason, a.fault, a.index)
			}
			python.add(t, out.Bytes(), got)
		})
	}
	python.check(t)
}

// reroot writes the present roots into the signatures, as if they were of them.
func (s *sqlite) reroot(t testing.TB) {
	t.Helper()
	recs := ledgertest.Records(t, s, ledger.Write)
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(idx []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(idx))
		for i, x := range idx {
			out[i] = stored[x]
		}
		return out, nil
	})
	for i, r := range recs {
		for b := r.Hashes; len(b) > 0; b = b[32:] {
			stored = append(stored, tlog.Hash(b[:32]))
		}
		if r.Sig == nil {
			continue
		}
		root, err := tlog.TreeHash(int64(i)+1, reader)
		if err != nil {
			t.Fatal(err)
		}
		s.exec(t, "UPDATE ledger_write SET sig = ? WHERE idx = ?", append(root[:], r.Sig[32:]...), i)
	}
}

func head(t testing.TB, db ledgertest.DB, tree ledger.Tree) string {
	t.Helper()
	var note string
	if err := db.View(background, func(r ledgertest.Rows) error {
		h, err := r.Head(background, tree)
		note = h.Note
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return note
}

func copyFile(t testing.TB, from *sqlite) string {
	t.Helper()
	from.exec(t, "PRAGMA wal_checkpoint(TRUNCATE)")
	b, err := os.ReadFile(from.path)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestVerifyAgainstAKeptHead: what no look at the log alone can show.
func TestVerifyAgainstAKeptHead(t *testing.T) {
	s, l := openSQLite(t), ledgertest.Log(t)
	ledgertest.Fill(t, s, l, ledger.Write, 9)
	ledgertest.Fill(t, s, l, ledger.Read, 3)
	old := copyFile(t, s)
	early := head(t, s, ledger.Write)
	ledgertest.Fill(t, s, l, ledger.Write, 6)
	kept, keptRead := head(t, s, ledger.Write), head(t, s, ledger.Read)

	check := func(name string, db ledgertest.DB, fault ledger.Fault, index int64, heads ...string) {
		t.Run(name, func(t *testing.T) {
			res := verify(t, db, heads...)
			var tail ledger.Result
			if err := db.View(background, func(r ledgertest.Rows) (err error) {
				tail, err = ledgertest.Log(t).VerifyTail(background, r, ledger.Options{Keys: []ed25519.PublicKey{pub("test")}, Heads: heads}, 4)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			for what, res := range map[string]ledger.Result{"whole": res, "tail": tail} {
				if fault == "" {
					if !res.OK {
						t.Errorf("%s: %+v", what, res.Broken)
					}
					continue
				}
				if res.OK || res.Broken.Fault != fault || res.Broken.Index != index {
					t.Errorf("%s: got %+v, want %s at %d", what, res.Broken, fault, index)
				}
			}
		})
	}
	check("the same head", s, "", 0, kept, keptRead)
	check("an older head", s, "", 0, early)
	check("both heads", s, "", 0, early, kept)
	text, _, _ := strings.Cut(kept, "\n\n")
	check("its three lines", s, "", 0, text)
	check("with line ends of another system", s, "", 0, strings.ReplaceAll(kept, "\n", "\r\n")+"\n")

	rewound := reopenSQLite(t, old)
	check("rewound without a kept head", rewound, "", 0)
	check("rewound", rewound, ledger.Truncation, 9, kept)
	check("rewound, three lines", rewound, ledger.Truncation, 9, text)
	ledgertest.Fill(t, rewound, ledgertest.Log(t), ledger.Write, 10) // other salts, so other leaves
	check("rewound and continued", rewound, ledger.Replacement, -1, kept)
	check("rewound and continued, head from before", rewound, "", 0, early)

	other := openSQLite(t)
	ledgertest.Fill(t, other, ledgertest.Log(t), ledger.Write, 15)
	check("replaced whole, same size", other, ledger.Replacement, -1, kept)
	empty := openSQLite(t)
	check("emptied", empty, ledger.Truncation, 0, kept)

	forged := strings.Replace(kept, "\n15\n", "\n14\n", 1)
	check("a head that nobody signed", s, ledger.WrongKey, -1, forged)

	if _, err := ledger.Verify(background, nil, ledger.Options{Keys: []ed25519.PublicKey{pub("test")}, Heads: []string{"rubbish"}}); err == nil {
		t.Error("an unreadable head was taken")
	}
	if _, err := ledger.Verify(background, nil, ledger.Options{}); err == nil {
		t.Error("verified without a key")
	}
}

func TestVerifyWrongKey(t *testing.T) {
	s := filled(t)
	for name, o := range map[string]ledger.Options{
		"another key":   {Keys: []ed25519.PublicKey{pub("other")}},
		"another store": {Keys: []ed25519.PublicKey{pub("test")}, Store: "elsewhere"},
	} {
		res := verifyWith(t, s, o)
		want := ledger.WrongKey
		if o.Store != "" {
			want = ledger.Replacement
		}
		if res.OK || res.Broken.Fault != want || res.Broken.Index != -1 {
			t.Errorf("%s: %+v", name, res.Broken)
		}
	}
	if res := verifyWith(t, s, ledger.Options{Keys: []ed25519.PublicKey{pub("other"), pub("test")}, Store: "test"}); !res.OK {
		t.Errorf("one of two keys: %+v", res.Broken)
	}
}

func TestVerifyReadTree(t *testing.T) {
	s := filled(t)
	s.exec(t, "UPDATE ledger_read SET header = replace(header, 'agent', 'angel') WHERE idx = 3")
	res := verify(t, s)
	if res.OK || res.Broken == nil || res.Broken.Tree != ledger.Read || res.Broken.Index != 3 || res.Broken.Fault != ledger.Edit || res.Size != 25 {
		t.Errorf("%+v %+v", res, res.Broken)
	}
}

// TestVerifyNoticesEveryByte flips single bits anywhere in the stored rows: no
// change may go unnoticed, and the record named is the one changed. Only the
// signatures of earlier heads are not looked at while the last one holds.
func TestVerifyNoticesEveryByte(t *testing.T) {
	s := filled(t)
	rng := rand.New(rand.NewPCG(3, 4))
	columns := []string{"header", "hashes", "sig", "ts", "kind", "op", "actor", "client", "target", "status", "effect", "plan"}
	for range 150 {
		idx, col := rng.Int64N(25), columns[rng.IntN(len(columns))]
		var was []byte
		if err := s.db.QueryRow("SELECT "+col+" FROM ledger_write WHERE idx = ?", idx).Scan(&was); err != nil {
			t.Fatal(err)
		}
		if len(was) == 0 {
			continue
		}
		b := bytes.Clone(was)
		at := rng.IntN(len(b))
		if col == "sig" {
			at %= 32
		}
		b[at] ^= 1 << rng.IntN(7)
		put := func(b []byte) {
			var v any = b
			if col != "header" && col != "hashes" && col != "sig" {
				v = string(b)
			}
			s.exec(t, "UPDATE ledger_write SET "+col+" = ? WHERE idx = ?", v, idx)
		}
		put(b)
		res := verify(t, s)
		if res.OK || res.Broken.Index != idx {
			t.Errorf("byte %d of %s of record %d: %+v", at, col, idx, res.Broken)
		}
		put(was)
	}
	if res := verify(t, s); !res.OK {
		t.Fatalf("after putting all back: %+v", res.Broken)
	}
}

// TestVerifyWithheld drops every droppable part, then whole records.
func TestVerifyWithheld(t *testing.T) {
	s, l := filled(t), ledgertest.Log(t)
	kept := head(t, s, ledger.Write)
	parts := 0
	for _, tree := range ledger.Trees() {
		for _, r := range ledgertest.Records(t, s, tree) {
			for _, p := range r.Parts {
				parts++
				if err := s.Update(background, func(x ledgertest.Rows) error {
					_, err := l.DropPart(background, x, tree, r.Index, p.Name, ledger.Entry{Columns: ledger.Columns{Actor: "root"}})
					return err
				}); err != nil {
					t.Fatal(err)
				}
				if res := verify(t, s, kept); !res.OK {
					t.Fatalf("after %s of %d: %+v", p.Name, r.Index, res.Broken)
				}
			}
		}
	}
	res := verify(t, s, kept)
	if got := res.Trees[ledger.Write].Withheld.Parts + res.Trees[ledger.Read].Withheld.Parts; !res.OK || got != int64(parts) || parts == 0 {
		t.Errorf("%d parts withheld, want %d; %+v", got, parts, res.Broken)
	}
	if err := s.Update(background, func(x ledgertest.Rows) error {
		_, err := l.DropPart(background, x, ledger.Write, 0, "args", ledger.Entry{})
		return err
	}); err == nil {
		t.Error("a part was dropped twice")
	}
}

// TestWithheldFromTheStart: a part that is only committed to is never kept, and its record verifies like one whose part
// was dropped later.
func TestWithheldFromTheStart(t *testing.T) {
	db, l := ledgertest.NewMemory(), ledgertest.Log(t)
	e := ledgertest.Entry(1)
	e.Parts = []ledger.Part{{Name: "request", Body: []byte("rm -rf /srv/private"), Withheld: true}, {Name: "note", Body: []byte("kept")}}
	if _, err := appendTo(db, l, ledger.Write, e); err != nil {
		t.Fatal(err)
	}
	records := ledgertest.Records(t, db, ledger.Write)
	if len(records) != 1 || len(records[0].Parts) != 1 || records[0].Parts[0].Name != "note" || !strings.Contains(string(records[0].Header), "request") || strings.Contains(string(records[0].Header), "private") {
		t.Fatalf("%+v", records)
	}
	if res := verify(t, db); !res.OK || res.Trees[ledger.Write].Withheld.Parts != 1 {
		t.Errorf("%+v", res)
	}
}
