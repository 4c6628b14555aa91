package store_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/store"
	"castellan/internal/store/storetest"
)

const callers = 8

// BenchmarkAppend is durable appends by eight callers at once.
func BenchmarkAppend(b *testing.B) {
	s := storetest.Open(b, sqliteFile(b))
	ctx := context.Background()
	each(b, func(n int) error {
		return s.Update(ctx, func(tx gate.Tx) error { _, err := tx.Append(storetest.Record(n)); return err })
	})
}

// BenchmarkAppendOne is durable appends by a single caller.
func BenchmarkAppendOne(b *testing.B) {
	s := storetest.Open(b, sqliteFile(b))
	ctx := context.Background()
	n := 0
	for b.Loop() {
		n++
		if err := s.Update(ctx, func(tx gate.Tx) error { _, err := tx.Append(storetest.Record(n)); return err }); err != nil {
			b.Fatal(err)
		}
	}
}

func each(b *testing.B, f func(n int) error) {
	b.Helper()
	var n atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for {
				i := n.Add(1)
				if i > int64(b.N) {
					return
				}
				if err := f(int(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkRawGroupCommit is the bar: the same rows into the same tables, eight to a transaction, nothing else.
func BenchmarkRawGroupCommit(b *testing.B) {
	ctx := context.Background()
	path := sqliteFile(b)
	s := storetest.Open(b, path)
	if err := s.Update(ctx, func(tx gate.Tx) error { _, err := tx.Append(storetest.Record(0)); return err }); err != nil {
		b.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=synchronous(FULL)&_pragma=secure_delete(ON)")
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	const columns = "header, hashes, sig, parts, ts, kind, op, actor, client, target, status, effect, plan"
	var v [13]any
	scan := make([]any, len(v))
	for i := range v {
		scan[i] = &v[i]
	}
	if err := db.QueryRow("SELECT " + columns + " FROM write_records").Scan(scan...); err != nil {
		b.Fatal(err)
	}
	insert := "INSERT INTO write_records (idx, " + columns + ") VALUES (?" + strings.Repeat(", ?", len(v)) + ")"
	idx := 1
	b.ResetTimer()
	for n := 0; n < b.N; n += callers {
		tx, err := db.Begin()
		if err != nil {
			b.Fatal(err)
		}
		st, err := tx.Prepare(insert)
		if err != nil {
			b.Fatal(err)
		}
		for range min(callers, b.N-n) {
			v[4] = fmt.Sprintf("2026-03-04T05:06:07.%06dZ", idx%1e6)
			if _, err := st.Exec(append([]any{idx}, v[:]...)...); err != nil {
				b.Fatal(err)
			}
			idx++
		}
		if err := tx.Commit(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen is opening an existing store.
func BenchmarkOpen(b *testing.B) {
	path := sqliteFile(b)
	storetest.Open(b, path).Close()
	for b.Loop() {
		s, err := store.Open(context.Background(), store.Config{URL: path, Signer: storetest.Key()})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		s.Close()
		b.StartTimer()
	}
}

// BenchmarkView is reading one mark.
func BenchmarkView(b *testing.B) {
	s := storetest.Open(b, sqliteFile(b))
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for b.Loop() {
		if err := s.View(ctx, func(tx gate.Tx) error { _, err := tx.Get("taint/agent|ann"); return err }); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPosition is a record's proof.
func BenchmarkPosition(b *testing.B) {
	s := storetest.Open(b, sqliteFile(b))
	fill(b, s, 10_000)
	n := 0
	for b.Loop() {
		n++
		if _, err := s.Position(context.Background(), uint64(n*7919%10_000)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkVerify is a whole verification; the bar is BenchmarkVerifyBare.
func BenchmarkVerify(b *testing.B) {
	s := storetest.Open(b, sqliteFile(b))
	fill(b, s, 50_000)
	for b.Loop() {
		if r, err := s.Verify(context.Background()); err != nil || !r.OK {
			b.Fatal(r, err)
		}
	}
}

// BenchmarkVerifyBare reads the same rows and takes one SHA-256 of each.
func BenchmarkVerifyBare(b *testing.B) {
	path := sqliteFile(b)
	s := storetest.Open(b, path)
	fill(b, s, 50_000)
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	for b.Loop() {
		rows, err := db.Query("SELECT idx, header, hashes, sig, parts, ts, kind, op, actor, client, target, status, effect, plan FROM write_records ORDER BY idx")
		if err != nil {
			b.Fatal(err)
		}
		v := make([]sql.RawBytes, 14)
		scan := make([]any, len(v))
		for i := range v {
			scan[i] = &v[i]
		}
		n := 0
		for rows.Next() {
			if err := rows.Scan(scan...); err != nil {
				b.Fatal(err)
			}
			h := sha256.New()
			for _, c := range v {
				h.Write(c)
			}
			n += len(h.Sum(nil))
		}
		if rows.Close(); n != 50_000*32 {
			b.Fatal(n)
		}
	}
}

func fill(b *testing.B, s *store.Store, n int) {
	b.Helper()
	for at := 0; at < n; {
		if err := s.Update(context.Background(), func(tx gate.Tx) error {
			for range 1000 {
				if _, err := tx.Append(storetest.Record(at)); err != nil {
					return err
				}
				at++
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
}
