package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// postgresKind is a database that several replicas share. Writers wait for each other at the row of the write
// tree's head, so transactions are as serial as in the embedded one.
type postgresKind struct{}

func openPostgres(url string) (kind, *sql.DB, error) {
	c, err := pgx.ParseConfig(url)
	if err != nil {
		// The error may hold the URL, and that a password.
		return nil, nil, errors.New("the postgres:// address cannot be read; it has the form postgres://user@host:port/database?sslmode=verify-full")
	}
	if c.RuntimeParams == nil {
		c.RuntimeParams = map[string]string{}
	}
	c.RuntimeParams["application_name"] = "castellan"
	c.RuntimeParams["synchronous_commit"] = "on"
	c.RuntimeParams["lock_timeout"] = strconv.FormatInt(beginBudget.Milliseconds(), 10)
	c.RuntimeParams["idle_in_transaction_session_timeout"] = strconv.FormatInt(2*writeLimit.Milliseconds(), 10)
	return postgresKind{}, stdlib.OpenDB(*c), nil
}

func (postgresKind) name() string { return "postgresql" }

func (postgresKind) begin(write bool) string {
	if write {
		return "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
	}
	return "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
}

func (postgresKind) lockHead() string      { return " FOR UPDATE" }
func (postgresKind) position() string      { return "strpos" }
func (postgresKind) columns(string) string { return "" }
func (postgresKind) schema() string        { return "schema/postgres" }

func (postgresKind) rebind(query string) string {
	if !strings.Contains(query, "?") {
		return query
	}
	var b strings.Builder
	n := 0
	for _, part := range strings.SplitAfter(query, "?") {
		rest, found := strings.CutSuffix(part, "?")
		b.WriteString(rest)
		if found {
			n++
			b.WriteString("$" + strconv.Itoa(n))
		}
	}
	return b.String()
}

func (postgresKind) version(ctx context.Context, q *session) (int, error) {
	var there bool
	err := q.conn.QueryRowContext(ctx, "SELECT to_regclass('schema_version') IS NOT NULL").Scan(&there)
	if err != nil || !there {
		return 0, err
	}
	var n int
	err = q.conn.QueryRowContext(ctx, "SELECT coalesce(max(version), 0) FROM schema_version").Scan(&n)
	return n, err
}

func (postgresKind) setVersion(ctx context.Context, q *session, n int) error {
	if err := q.run(ctx, "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT PRIMARY KEY)"); err != nil {
		return err
	}
	_, err := q.exec(ctx, "INSERT INTO schema_version (version) VALUES (?)", n)
	return err
}

func (postgresKind) lockSchema(ctx context.Context, q *session) error {
	return q.run(ctx, "SELECT pg_advisory_xact_lock(hashtext('castellan schema'))")
}

func (postgresKind) prepare(ctx context.Context, q *session) error {
	var encoding string
	if err := q.conn.QueryRowContext(ctx, "SHOW server_encoding").Scan(&encoding); err != nil {
		return err
	}
	if encoding != "UTF8" {
		return fmt.Errorf("the database has the encoding %s; create one with ENCODING 'UTF8'", encoding)
	}
	return nil
}

func (postgresKind) unwritable(err error) string {
	var p *pgconn.PgError
	var n net.Error
	switch {
	case errors.As(err, &p):
		switch {
		case p.Code == "53100":
			return "the database server's disk is full"
		case strings.HasPrefix(p.Code, "53"):
			return "the database server is out of resources"
		case p.Code == "25006":
			return "the database is read-only"
		case p.Code == "42501":
			return "the database user may not write"
		case strings.HasPrefix(p.Code, "57P"), strings.HasPrefix(p.Code, "08"):
			return "the database server is not available"
		case strings.HasPrefix(p.Code, "58"), strings.HasPrefix(p.Code, "XX"):
			return "the database server reports errors of its own"
		case p.Code == "55P03":
			return "another process keeps the database locked"
		}
	case errors.As(err, &n), errors.Is(err, context.DeadlineExceeded), errors.Is(err, driver.ErrBadConn), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the database server cannot be reached"
	default:
		var c *pgconn.ConnectError
		if errors.As(err, &c) {
			return "the database server cannot be reached"
		}
	}
	return ""
}

func (postgresKind) busy(err error) bool {
	var p *pgconn.PgError
	return errors.As(err, &p) && p.Code == "55P03"
}
