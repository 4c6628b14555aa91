package ledger_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"castellan/internal/ledger"
	"castellan/internal/ledger/ledgertest"

	"golang.org/x/mod/sumdb/tlog"
)

// The three benchmarks each print one line with a ratio: the median of rounds
// in which the ledger and its baseline take turns. Run with -benchtime=1x.

const rounds = 7

// compare runs a and b in turns and returns the median times.
func compare(a, b func() time.Duration) (ma, mb time.Duration) {
	var as, bs []time.Duration
	for i := range rounds {
		if i%2 == 0 {
			as, bs = append(as, a()), append(bs, b())
		} else {
			bs, as = append(bs, b()), append(as, a())
		}
	}
	slices.Sort(as)
	slices.Sort(bs)
	return as[rounds/2], bs[rounds/2]
}

func report(b *testing.B, what, bar string, ratio float64, detail string) {
	b.ReportMetric(ratio, "ratio")
	b.ReportMetric(0, "ns/op")
	fmt.Printf("ledger %s ratio=%.2f (bar %s) %s\n", what, ratio, bar, detail)
}

func timed(fn func()) time.Duration {
	start := time.Now()
	fn()
	return time.Since(start)
}

// benchEntry is of the size of a usual step record.
func benchEntry(i int) ledger.Entry {
	e := ledgertest.Entry(i)
	e.Parts = []ledger.Part{
		{Name: "args", Body: fmt.Appendf(nil, `{"vmid":%d,"node":"pve1","snapname":"before-update-%d","vmstate":false}`, 100+i, i)},
		{Name: "output", Body: fmt.Appendf(nil, "UPID:pve1:%08X:00000000:65F0A1B2:qmsnapshot:%d:agent@pve!castellan: OK, 4 disks, 12.5 GiB", i, 100+i)},
	}
	return e
}

// BenchmarkAppend: durable appends by eight callers against raw group commit of
// the same rows into the same tables of another file on the same disk.
func BenchmarkAppend(b *testing.B) {
	const callers, each = 8, 100
	// The rows that the baseline writes are those that the ledger writes.
	mem := ledgertest.NewMemory()
	l := ledgertest.Log(b)
	if err := mem.Update(background, func(r ledgertest.Rows) error {
		for i := range callers * each {
			if _, err := l.Append(background, r, ledger.Write, benchEntry(i)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	records := ledgertest.Records(b, mem, ledger.Write)

	run := func(do func(i int) error) time.Duration {
		return timed(func() {
			var wg sync.WaitGroup
			for c := range callers {
				wg.Go(func() {
					for i := range each {
						if err := do(c*each + i); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
	ours := func() time.Duration {
		s, l := openDurable(b), ledgertest.Log(b)
		g := s.group()
		return run(func(i int) error {
			return g.do(func(x *sqliteTx) error {
				return x.apart(func() error {
					_, err := l.Append(background, x, ledger.Write, benchEntry(i))
					return err
				})
			})
		})
	}
	raw := func() time.Duration {
		s := openDurable(b)
		g := s.group()
		return run(func(i int) error {
			return g.do(func(x *sqliteTx) error { return x.Insert(background, ledger.Write, records[i:i+1]) })
		})
	}
	to, tr := compare(ours, raw)
	n := float64(callers * each)
	report(b, "append", ">=0.40", float64(tr)/float64(to), fmt.Sprintf("ours=%.0f/s raw=%.0f/s callers=%d", n/to.Seconds(), n/tr.Seconds(), callers))
}

// group shares transactions among callers.
func (s *sqlite) group() *group {
	return &group{lead: make(chan struct{}, 1), update: func(fn func(*sqliteTx) error) error {
		return s.Update(background, func(r ledgertest.Rows) error { return fn(r.(*sqliteTx)) })
	}}
}

// apart runs fn so that its error undoes what fn did and nothing else.
func (x *sqliteTx) apart(fn func() error) error {
	if _, err := x.exec(background, "", "SAVEPOINT call"); err != nil {
		return err
	}
	if err := fn(); err != nil {
		x.exec(background, "", "ROLLBACK TO call")
		return err
	}
	_, err := x.exec(background, "", "RELEASE call")
	return err
}

func bigStore(b *testing.B, n int) (*sqlite, *ledger.Log, ledger.Receipt) {
	b.Helper()
	s, l := openSQLite(b), ledgertest.Log(b)
	var last ledger.Receipt
	if err := s.Update(background, func(r ledgertest.Rows) error {
		for i := range n {
			got, err := l.Append(background, r, ledger.Write, benchEntry(i))
			if err != nil {
				return err
			}
			last = got[0]
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	return s, l, last
}

// BenchmarkProof: a proof from the store against the same proof from hashes
// that lie in one slice in memory.
func BenchmarkProof(b *testing.B) {
	const size, proofs = 50_000, 5_000
	s, l, last := bigStore(b, size)
	var flat []tlog.Hash
	tx, err := s.db.BeginTx(background, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		b.Fatal(err)
	}
	defer tx.Rollback()
	rows := &sqliteTx{s: s, tx: tx}
	hashes, err := rows.Hashes(background, ledger.Write, 0, math.MaxInt64)
	if err != nil {
		b.Fatal(err)
	}
	for ; len(hashes) > 0; hashes = hashes[32:] {
		flat = append(flat, tlog.Hash(hashes[:32]))
	}
	memory := tlog.HashReaderFunc(func(idx []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(idx))
		for i, x := range idx {
			out[i] = flat[x]
		}
		return out, nil
	})
	rng := rand.New(rand.NewPCG(5, 6))
	indexes := make([]int64, proofs)
	for i := range indexes {
		indexes[i] = rng.Int64N(size)
	}
	ours := func() time.Duration {
		return timed(func() {
			for _, i := range indexes {
				if _, err := l.Prove(background, rows, last.Checkpoint, i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	first := ours()
	to, tm := compare(ours, func() time.Duration {
		return timed(func() {
			for _, i := range indexes {
				if _, err := tlog.ProveRecord(size, i, memory); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
	per := func(d time.Duration) time.Duration { return d / proofs }
	report(b, "proof", "<=3", float64(to)/float64(tm), fmt.Sprintf("ours=%v memory=%v first-pass=%v records=%d", per(to), per(tm), per(first), size))
}

// BenchmarkVerify: a whole verification against a pass that reads the same rows
// and takes one SHA-256 of each.
func BenchmarkVerify(b *testing.B) {
	const size = 20_000
	s, _, _ := bigStore(b, size)
	bare := func() time.Duration {
		return timed(func() {
			for _, q := range []string{
				"SELECT idx, header, hashes, sig, ts, kind, op, actor, client, target, status, effect, plan FROM ledger_write ORDER BY idx",
				"SELECT id, name, salt, body FROM ledger_write_part ORDER BY id",
			} {
				rows, err := s.db.Query(q)
				if err != nil {
					b.Fatal(err)
				}
				cols, _ := rows.Columns()
				raw := make([]sql.RawBytes, len(cols))
				dst := make([]any, len(cols))
				for i := range raw {
					dst[i] = &raw[i]
				}
				var buf []byte
				for rows.Next() {
					if err := rows.Scan(dst...); err != nil {
						b.Fatal(err)
					}
					buf = buf[:0]
					for _, c := range raw {
						buf = append(buf, c...)
					}
					sha256.Sum256(buf)
				}
				rows.Close()
			}
		})
	}
	ours := func() time.Duration {
		return timed(func() {
			if err := s.View(background, func(r ledgertest.Rows) error {
				res, err := ledger.Verify(background, r, ledger.Options{Keys: []ed25519.PublicKey{pub("test")}})
				if err == nil && !res.OK {
					b.Error(res.Broken)
				}
				return err
			}); err != nil {
				b.Fatal(err)
			}
		})
	}
	to, tb := compare(ours, bare)
	report(b, "verify", ">=0.50", float64(tb)/float64(to), fmt.Sprintf("ours=%.0f/s bare=%.0f/s records=%d", size/to.Seconds(), size/tb.Seconds(), size))
}
