package ledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/ledger"
	"castellan/internal/ledger/ledgertest"

	_ "modernc.org/sqlite"
)

// sqlite is the row interfaces on a plain SQLite file: what the tests attack
// and the benchmarks measure.
type sqlite struct {
	db   *sql.DB
	path string

	mu    sync.Mutex
	stmts map[string]*sql.Stmt
}

const sqliteSchema = `
CREATE TABLE ledger_head(tree TEXT PRIMARY KEY, size INTEGER NOT NULL, frontier BLOB NOT NULL, note TEXT NOT NULL);
CREATE TABLE ledger_session(id TEXT PRIMARY KEY, host TEXT, pid INTEGER, opened INTEGER, seen INTEGER);
`

const sqliteTree = `
CREATE TABLE ledger_TREE(idx INTEGER PRIMARY KEY, header BLOB, hashes BLOB NOT NULL, sig BLOB,
  ts TEXT, kind TEXT, op TEXT, actor TEXT, client TEXT, target TEXT, status TEXT, effect TEXT, plan TEXT);
CREATE TABLE ledger_TREE_part(id INTEGER PRIMARY KEY, name TEXT NOT NULL, salt BLOB NOT NULL, body BLOB NOT NULL);
`

// openSQLite makes a store that does not wait for the disk: what the tests kill
// is processes, not the machine. openDurable makes one that does.
func openSQLite(t testing.TB) *sqlite {
	return newSQLite(t, reopenSQLite(t, filepath.Join(t.TempDir(), "ledger.db")))
}

func openDurable(t testing.TB) *sqlite {
	return newSQLite(t, connectSQLite(t, filepath.Join(t.TempDir(), "ledger.db"), "FULL"))
}

func newSQLite(t testing.TB, s *sqlite) *sqlite {
	script := sqliteSchema
	for _, tree := range ledger.Trees() {
		script += strings.ReplaceAll(sqliteTree, "TREE", string(tree))
	}
	if _, err := s.db.Exec(script); err != nil {
		t.Fatal(err)
	}
	return s
}

func reopenSQLite(t testing.TB, path string) *sqlite { return connectSQLite(t, path, "OFF") }

func connectSQLite(t testing.TB, path, synchronous string) *sqlite {
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous("+synchronous+")&_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &sqlite{db: db, path: path, stmts: map[string]*sql.Stmt{}}
}

func (s *sqlite) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	if _, err := s.db.Exec(query, args...); err != nil {
		t.Fatal(err)
	}
}

func (s *sqlite) Update(ctx context.Context, fn func(ledgertest.Rows) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(&sqliteTx{s: s, tx: tx}); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *sqlite) View(ctx context.Context, fn func(ledgertest.Rows) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	return fn(&sqliteTx{s: s, tx: tx})
}

// sqliteTx uses statements that are prepared once for the store.
type sqliteTx struct {
	s  *sqlite
	tx *sql.Tx
}

func (s *sqlite) prepared(query string) (*sql.Stmt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.stmts[query]; st != nil {
		return st, nil
	}
	st, err := s.db.Prepare(query)
	if err == nil {
		s.stmts[query] = st
	}
	return st, err
}

func (x *sqliteTx) stmt(ctx context.Context, tree ledger.Tree, query string) (*sql.Stmt, error) {
	st, err := x.s.prepared(strings.ReplaceAll(query, "TREE", string(tree)))
	if err != nil {
		return nil, err
	}
	return x.tx.StmtContext(ctx, st), nil
}

func (x *sqliteTx) exec(ctx context.Context, tree ledger.Tree, query string, args ...any) (int64, error) {
	s, err := x.stmt(ctx, tree, query)
	if err != nil {
		return 0, err
	}
	res, err := s.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (x *sqliteTx) query(ctx context.Context, tree ledger.Tree, query string, args ...any) (*sql.Rows, error) {
	s, err := x.stmt(ctx, tree, query)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

func (x *sqliteTx) Head(ctx context.Context, tree ledger.Tree) (ledger.Head, error) {
	var h ledger.Head
	s, err := x.stmt(ctx, tree, "SELECT size, frontier, note FROM ledger_head WHERE tree = ?")
	if err != nil {
		return h, err
	}
	err = s.QueryRowContext(ctx, string(tree)).Scan(&h.Size, &h.Frontier, &h.Note)
	if err == sql.ErrNoRows {
		return ledger.Head{}, nil
	}
	return h, err
}

func (x *sqliteTx) SetHead(ctx context.Context, tree ledger.Tree, h ledger.Head) error {
	_, err := x.exec(ctx, tree, "INSERT INTO ledger_head(tree, size, frontier, note) VALUES(?,?,?,?) ON CONFLICT(tree) DO UPDATE SET size = excluded.size, frontier = excluded.frontier, note = excluded.note",
		string(tree), h.Size, h.Frontier, h.Note)
	return err
}

const (
	insertRecord = "INSERT INTO ledger_TREE(idx, header, hashes, sig, ts, kind, op, actor, client, target, status, effect, plan) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)"
	insertPart   = "INSERT INTO ledger_TREE_part(id, name, salt, body) VALUES(?,?,?,?)"
	partSlots    = 64
)

func (x *sqliteTx) Insert(ctx context.Context, tree ledger.Tree, records []ledger.Record) error {
	for _, r := range records {
		if _, err := x.exec(ctx, tree, insertRecord, r.Index, r.Header, r.Hashes, r.Sig, r.TS, r.Kind, r.Op, r.Actor, r.Client, r.Target, r.Status, r.Effect, r.Plan); err != nil {
			return err
		}
		for i, p := range r.Parts {
			if _, err := x.exec(ctx, tree, insertPart, r.Index*partSlots+int64(i), p.Name, p.Salt[:], p.Body); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *sqliteTx) Hashes(ctx context.Context, tree ledger.Tree, from, to int64) ([]byte, error) {
	rows, err := x.query(ctx, tree, "SELECT hashes FROM ledger_TREE WHERE idx >= ? AND idx < ? ORDER BY idx", from, to)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []byte
	var b sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&b); err != nil {
			return nil, err
		}
		out = append(out, b...)
	}
	return out, rows.Err()
}

const selectRecord = "SELECT idx, header, hashes, sig, coalesce(ts,''), coalesce(kind,''), coalesce(op,''), coalesce(actor,''), coalesce(client,''), coalesce(target,''), coalesce(status,''), coalesce(effect,''), coalesce(plan,'') FROM ledger_TREE"

func scanRecord(rows *sql.Rows, r *ledger.Record) error {
	return rows.Scan(&r.Index, &r.Header, &r.Hashes, &r.Sig, &r.TS, &r.Kind, &r.Op, &r.Actor, &r.Client, &r.Target, &r.Status, &r.Effect, &r.Plan)
}

// partCursor walks the parts beside the records.
type partCursor struct {
	rows *sql.Rows
	id   int64
	part ledger.Part
	have bool
}

func (x *sqliteTx) partsFrom(ctx context.Context, tree ledger.Tree, from, to int64) (*partCursor, error) {
	rows, err := x.query(ctx, tree, "SELECT id, name, salt, body FROM ledger_TREE_part WHERE id >= ? AND id < ? ORDER BY id", clampID(from), clampID(to))
	if err != nil {
		return nil, err
	}
	return &partCursor{rows: rows}, nil
}

func clampID(index int64) int64 { return min(max(index, -1<<50), 1<<50) * partSlots }

func (c *partCursor) of(index int64, parts []ledger.Part) ([]ledger.Part, error) {
	for {
		if !c.have {
			if !c.rows.Next() {
				return parts, c.rows.Err()
			}
			var salt sql.RawBytes
			c.part = ledger.Part{}
			if err := c.rows.Scan(&c.id, &c.part.Name, &salt, &c.part.Body); err != nil {
				return nil, err
			}
			if copy(c.part.Salt[:], salt); len(salt) != 32 {
				return nil, fmt.Errorf("salt of part %d has %d bytes", c.id, len(salt))
			}
			c.have = true
		}
		switch at := c.id >> 6; {
		case at > index:
			return parts, nil
		case at == index:
			parts = append(parts, c.part)
		}
		c.have = false
	}
}

func (x *sqliteTx) Scan(ctx context.Context, tree ledger.Tree, from, to int64, fn func(*ledger.Record) error) error {
	rows, err := x.query(ctx, tree, selectRecord+" WHERE idx >= ? AND idx < ? ORDER BY idx", from, to)
	if err != nil {
		return err
	}
	defer rows.Close()
	parts, err := x.partsFrom(ctx, tree, from, to)
	if err != nil {
		return err
	}
	defer parts.rows.Close()
	for rows.Next() {
		var r ledger.Record
		if err := scanRecord(rows, &r); err != nil {
			return err
		}
		if r.Parts, err = parts.of(r.Index, nil); err != nil {
			return err
		}
		if err := fn(&r); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (x *sqliteTx) Select(ctx context.Context, tree ledger.Tree, q ledger.Query, below int64, limit int) ([]ledger.Record, error) {
	query, args := selectRecord+" WHERE idx >= 0 AND idx < ? AND header IS NOT NULL", []any{below}
	where := func(cond string, v string) {
		if v != "" {
			query += " AND " + cond
			args = append(args, v)
		}
	}
	since, until := q.Window()
	where("ts >= ?", since)
	where("ts < ?", until)
	where("kind = ?", q.Kind)
	where("op = ?", q.Op)
	where("actor = ?", q.Actor)
	where("client = ?", q.Client)
	where("status = ?", q.Status)
	where("effect = ?", q.Effect)
	where("plan = ?", q.Plan)
	where("instr(target, ?) > 0", q.Target)
	rows, err := x.query(ctx, tree, query+" ORDER BY idx DESC LIMIT ?", append(args, limit)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []ledger.Record
	for rows.Next() {
		var r ledger.Record
		if err := scanRecord(rows, &r); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	for i := range out {
		c, err := x.partsFrom(ctx, tree, out[i].Index, out[i].Index+1)
		if err != nil {
			return nil, err
		}
		out[i].Parts, err = c.of(out[i].Index, nil)
		c.rows.Close()
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (x *sqliteTx) DropParts(ctx context.Context, tree ledger.Tree, from, to int64, names []string) (int64, error) {
	if len(names) == 0 {
		return x.exec(ctx, tree, "DELETE FROM ledger_TREE_part WHERE id >= ? AND id < ?", clampID(from), clampID(to))
	}
	var n int64
	for _, name := range names {
		k, err := x.exec(ctx, tree, "DELETE FROM ledger_TREE_part WHERE id >= ? AND id < ? AND name = ?", clampID(from), clampID(to), name)
		if err != nil {
			return 0, err
		}
		n += k
	}
	return n, nil
}

func (x *sqliteTx) DropRecords(ctx context.Context, tree ledger.Tree, from, to int64) (int64, error) {
	if _, err := x.DropParts(ctx, tree, from, to, nil); err != nil {
		return 0, err
	}
	return x.exec(ctx, tree, "UPDATE ledger_TREE SET header = NULL, ts = NULL, kind = NULL, op = NULL, actor = NULL, client = NULL, target = NULL, status = NULL, effect = NULL, plan = NULL WHERE idx >= ? AND idx < ? AND header IS NOT NULL", from, to)
}

func (x *sqliteTx) PutSession(ctx context.Context, s ledger.Session) error {
	_, err := x.exec(ctx, "", "INSERT OR REPLACE INTO ledger_session(id, host, pid, opened, seen) VALUES(?,?,?,?,?)", s.ID, s.Host, s.PID, s.Opened.UnixMicro(), s.Seen.UnixMicro())
	return err
}

func (x *sqliteTx) DropSession(ctx context.Context, id string) (bool, error) {
	n, err := x.exec(ctx, "", "DELETE FROM ledger_session WHERE id = ?", id)
	return n > 0, err
}

func (x *sqliteTx) Sessions(ctx context.Context) ([]ledger.Session, error) {
	rows, err := x.query(ctx, "", "SELECT id, host, pid, opened, seen FROM ledger_session ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []ledger.Session
	for rows.Next() {
		var s ledger.Session
		var opened, seen int64
		if err := rows.Scan(&s.ID, &s.Host, &s.PID, &opened, &seen); err != nil {
			return nil, err
		}
		s.Opened, s.Seen = time.UnixMicro(opened).UTC(), time.UnixMicro(seen).UTC()
		out = append(out, s)
	}
	return out, rows.Err()
}

func TestContract(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		ledgertest.Run(t, func(*testing.T) ledgertest.DB { return ledgertest.NewMemory() })
	})
	t.Run("sqlite", func(t *testing.T) {
		ledgertest.Run(t, func(t *testing.T) ledgertest.DB { return openSQLite(t) })
	})
}
