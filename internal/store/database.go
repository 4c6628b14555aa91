package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// database is one SQLite file or PostgreSQL database: a single writing session, and some that read.
type database struct {
	kind    kind
	sql     *sql.DB
	readers chan struct{} // bounds how many sessions read at once

	writing sync.Mutex // the one writer of this process
	writer  *session

	mu     sync.Mutex
	idle   []*session
	closed bool
}

// kind is what the two databases do differently.
type kind interface {
	name() string
	// begin are the statements that open a transaction.
	begin(write bool) string
	// lockHead is appended to the reading of a head in a writing transaction.
	lockHead() string
	// rebind turns ? into what the database calls its parameters.
	rebind(query string) string
	// position is the function that finds the second text in the first.
	position() string
	// columns hints how a search walks the records.
	columns(table string) string
	// schema is the folder of the migrations; version reads and setVersion writes the number of the last one.
	schema() string
	version(ctx context.Context, q *session) (int, error)
	setVersion(ctx context.Context, q *session, n int) error
	// lockSchema keeps other processes from migrating until the end of the transaction.
	lockSchema(ctx context.Context, q *session) error
	// prepare is run once before the first migration of an empty database.
	prepare(ctx context.Context, q *session) error
	// unwritable tells why an error means that nothing can be written at all; "" when it does not.
	unwritable(err error) string
	// busy says that another process held the database too long.
	busy(err error) bool
}

const (
	maxReaders  = 8
	writeLimit  = 30 * time.Second // for one writing transaction
	beginBudget = 10 * time.Second
)

func openDatabase(ctx context.Context, url string) (*database, error) {
	d := &database{readers: make(chan struct{}, maxReaders)}
	var err error
	if strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://") {
		d.kind, d.sql, err = openPostgres(url)
	} else {
		d.kind, d.sql, err = openSQLite(url)
	}
	if err != nil {
		return nil, err
	}
	d.sql.SetMaxOpenConns(maxReaders + 1)
	d.sql.SetMaxIdleConns(maxReaders + 1)
	return d, nil
}

func (d *database) close() error {
	d.mu.Lock()
	d.closed = true
	idle := d.idle
	d.idle = nil
	d.mu.Unlock()
	var errs []error
	for _, q := range idle {
		errs = append(errs, q.close())
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	if d.writer != nil {
		errs = append(errs, d.writer.close())
		d.writer = nil
	}
	return errors.Join(append(errs, d.sql.Close())...)
}

// session is one connection with the statements prepared on it.
type session struct {
	kind  kind
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func (d *database) session(ctx context.Context) (*session, error) {
	c, err := d.sql.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", d.kind.name(), err)
	}
	return &session{kind: d.kind, conn: c, stmts: map[string]*sql.Stmt{}}, nil
}

func (q *session) close() error {
	for _, st := range q.stmts {
		st.Close()
	}
	return q.conn.Close()
}

var errEnded = errors.New("the transaction has ended")

func (q *session) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if q == nil {
		return nil, errEnded
	}
	if st, ok := q.stmts[query]; ok {
		return st, nil
	}
	st, err := q.conn.PrepareContext(ctx, q.kind.rebind(query))
	if err != nil {
		return nil, err
	}
	q.stmts[query] = st
	return st, nil
}

// exec runs a statement with ? parameters; texts are encoded. It returns the number of rows touched.
func (q *session) exec(ctx context.Context, query string, args ...any) (int64, error) {
	st, err := q.prepare(ctx, query)
	if err != nil {
		return 0, err
	}
	r, err := st.ExecContext(ctx, encodeArgs(args)...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// run executes statements without parameters, unprepared.
func (q *session) run(ctx context.Context, statements string) error {
	_, err := q.conn.ExecContext(ctx, statements)
	return err
}

// one reads the single row of a query; found is false when there is none.
func (q *session) one(ctx context.Context, into []any, query string, args ...any) (found bool, err error) {
	st, err := q.prepare(ctx, query)
	if err != nil {
		return false, err
	}
	err = st.QueryRowContext(ctx, encodeArgs(args)...).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// each calls row for every row; scan reads its columns.
func (q *session) each(ctx context.Context, row func(scan func(...any) error) error, query string, args ...any) error {
	st, err := q.prepare(ctx, query)
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(ctx, encodeArgs(args)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// read runs f within a transaction that only reads, on a snapshot.
func (d *database) read(ctx context.Context, f func(*session) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case d.readers <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("read store: %w", ctx.Err())
	}
	defer func() { <-d.readers }()
	q, err := d.reader(ctx)
	if err != nil {
		return fmt.Errorf("read store: %w", err)
	}
	back := false
	defer func() {
		if !back {
			q.close() // f panicked, or the session is not fit for another
		}
	}()
	ferr := f(q)
	if _, err := q.exec(context.WithoutCancel(ctx), "ROLLBACK"); err != nil {
		if ferr == nil {
			ferr = fmt.Errorf("read store: %w", err)
		}
		return ferr
	}
	back = true
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errors.Join(ferr, q.close())
	}
	d.idle = append(d.idle, q)
	return ferr
}

// reader is a session within a transaction that only reads. One that died while idle is replaced.
func (d *database) reader(ctx context.Context) (*session, error) {
	for {
		q, fresh, err := d.idleReader(ctx)
		if err != nil {
			return nil, err
		}
		if _, err = q.exec(d.patient(ctx), d.kind.begin(false)); err == nil {
			return q, nil
		}
		q.close()
		if fresh || ctx.Err() != nil {
			return nil, err
		}
	}
}

func (d *database) idleReader(ctx context.Context) (q *session, fresh bool, err error) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, false, errors.New("the store is closed")
	}
	if n := len(d.idle); n > 0 {
		q := d.idle[n-1]
		d.idle = d.idle[:n-1]
		d.mu.Unlock()
		return q, false, nil
	}
	d.mu.Unlock()
	q, err = d.session(ctx)
	return q, true, err
}

// write runs f within the one writing transaction of this process and commits. It is not ended by a caller who
// goes away: what was asked for by several must not fail for one.
func (d *database) write(f func(ctx context.Context, q *session) error) error {
	return d.writeWithin(writeLimit, f)
}

func (d *database) writeWithin(limit time.Duration, f func(ctx context.Context, q *session) error) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return errors.New("the store is closed")
	}
	ctx, cancel := d.limited(limit)
	defer cancel()
	for attempt := 0; ; attempt++ {
		if d.writer == nil {
			q, err := d.session(ctx)
			if err != nil {
				return err
			}
			d.writer = q
		}
		err := d.writer.run(ctx, d.kind.begin(true))
		if err == nil {
			break
		}
		if d.kind.busy(err) {
			return fmt.Errorf("another process has been writing to the store for over %s: %w", beginBudget, err)
		}
		// A connection that died while idle is replaced once; nothing was sent on it yet.
		d.drop()
		if attempt > 0 {
			return err
		}
	}
	done := false
	defer func() {
		if !done { // an error or a panic
			if err := d.writer.run(context.WithoutCancel(ctx), "ROLLBACK"); err != nil {
				d.drop()
			}
		}
	}()
	if err := f(ctx, d.writer); err != nil {
		return err
	}
	if err := d.writer.run(ctx, "COMMIT"); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	done = true
	return nil
}

// limited bounds a writing transaction where a server may hang. An embedded database has nothing to wait for but
// its lock, which has a limit of its own.
func (d *database) limited(limit time.Duration) (context.Context, context.CancelFunc) {
	if d.kind.name() == nameSQLite {
		return context.Background(), func() {}
	}
	return context.WithTimeout(context.Background(), limit)
}

// patient is a context for statements that are over at once in an embedded database: to watch for its end would cost
// more than they do.
func (d *database) patient(ctx context.Context) context.Context {
	if d.kind.name() == nameSQLite {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

func (d *database) drop() {
	if d.writer != nil {
		d.writer.close()
		d.writer = nil
	}
}

// encodeArgs makes every text fit for both databases: PostgreSQL takes neither NUL nor invalid UTF-8. The form is
// reversible (see decode), keeps equal texts equal and parts of texts parts of them.
func encodeArgs(args []any) []any {
	for i, a := range args {
		if t, ok := a.(string); ok {
			args[i] = encode(t)
		}
	}
	return args
}

func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < 2 || s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func encode(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == 0:
			b.WriteString("\x010")
		case r == 1:
			b.WriteString("\x011")
		case r == '\uFFFD' && (len(s)-i < 3 || s[i:i+3] != "\uFFFD"):
			b.WriteString("\x01x")
			b.WriteString(strconv.FormatUint(uint64(s[i])|0x100, 16)[1:])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func decode(s string) string {
	if !strings.Contains(s, "\x01") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != 1 || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case '0':
			b.WriteByte(0)
		case '1':
			b.WriteByte(1)
		case 'x':
			if i+2 < len(s) {
				if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
					b.WriteByte(byte(n))
					i += 2
				}
			}
		}
	}
	return b.String()
}
