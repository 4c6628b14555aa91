package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

const nameSQLite = "sqlite"

// sqliteKind is the embedded database: one file, its write-ahead log beside it. Commits are durable (synchronous
// FULL); what is deleted is overwritten.
type sqliteKind struct{}

func openSQLite(path string) (kind, *sql.DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, nil, fmt.Errorf("find %s: %w", path, err)
	}
	if err := guardFile(path); err != nil {
		return nil, nil, err
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path)}
	if p := u.Path; len(p) > 1 && p[1] == ':' {
		u.Path = "/" + p // a drive letter
	}
	q := url.Values{"_dqs": {"0"}, "_error_rc": {"1"}, "_pragma": {
		fmt.Sprintf("busy_timeout(%d)", beginBudget.Milliseconds()), "synchronous(FULL)", "secure_delete(ON)", "trusted_schema(OFF)"}}
	u.RawQuery = q.Encode()
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", path, err)
	}
	return sqliteKind{}, db, nil
}

func (sqliteKind) name() string { return nameSQLite }

func (sqliteKind) begin(write bool) string {
	if write {
		return "BEGIN IMMEDIATE"
	}
	return "BEGIN"
}

func (sqliteKind) lockHead() string           { return "" } // BEGIN IMMEDIATE has done it
func (sqliteKind) rebind(query string) string { return query }
func (sqliteKind) position() string           { return "instr" }
func (sqliteKind) columns(table string) string {
	return " INDEXED BY " + table[:len(table)-len("records")] + "columns"
}
func (sqliteKind) schema() string { return "schema/sqlite" }

func (sqliteKind) version(ctx context.Context, q *session) (int, error) {
	var n int
	err := q.conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&n)
	return n, err
}

func (sqliteKind) setVersion(ctx context.Context, q *session, n int) error {
	return q.run(ctx, "PRAGMA user_version = "+strconv.Itoa(n))
}

func (sqliteKind) lockSchema(context.Context, *session) error { return nil }

func (sqliteKind) prepare(ctx context.Context, q *session) error {
	var mode string
	if err := q.conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("the file system cannot hold a write-ahead log (journal mode stays %q); put the store on a local disk", mode)
	}
	return nil
}

func (sqliteKind) unwritable(err error) string {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return ""
	}
	switch e.Code() & 0xff {
	case lib.SQLITE_FULL:
		return "the disk is full"
	case lib.SQLITE_READONLY:
		return "the database file cannot be written"
	case lib.SQLITE_IOERR:
		return "the disk answers with errors"
	case lib.SQLITE_CANTOPEN:
		return "the database file cannot be opened for writing"
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		return "the database file is damaged"
	case lib.SQLITE_PERM, lib.SQLITE_AUTH:
		return "the database file may not be written"
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return "another process keeps the database locked"
	}
	return ""
}

func (sqliteKind) busy(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == lib.SQLITE_BUSY
}
