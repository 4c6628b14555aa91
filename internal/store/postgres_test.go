//go:build unix

package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ledger/ledgertest"
	"castellan/internal/store"
	"castellan/internal/store/storetest"
)

func TestPostgreSQL(t *testing.T) {
	fresh := startPostgres(t)
	storetest.Run(t, fresh)
	t.Run("many processes", func(t *testing.T) { manyProcesses(t, fresh(t)) })
	t.Run("lost connections", func(t *testing.T) { lostConnections(t, fresh(t)) })
	t.Run("backup", func(t *testing.T) { storetest.Backup(t, fresh, fresh) })
	t.Run("backup of the other database", func(t *testing.T) { storetest.Backup(t, sqliteFile, fresh) })
	t.Run("retention", func(t *testing.T) { sweepStore(t, fresh(t)) })
	t.Run("key rotation", func(t *testing.T) { rotateStore(t, fresh(t)) })
	t.Run("ledger", func(t *testing.T) {
		ledgertest.Run(t, func(t *testing.T) ledgertest.DB {
			return store.LedgerRows{Store: storetest.Open(t, fresh(t))}
		})
	})
}

// startPostgres starts a server of its own on a unix socket and returns what makes an empty database in it.
func startPostgres(t *testing.T) func(testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starting PostgreSQL takes seconds")
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		t.Skip("PostgreSQL is not installed here (no /usr/lib/postgresql/*/bin/initdb)")
	}
	bin := filepath.Dir(found[len(found)-1])
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	attr := &syscall.SysProcAttr{}
	if os.Getuid() == 0 { // initdb refuses root
		who, err := user.Lookup("postgres")
		if err != nil {
			if who, err = user.Lookup("nobody"); err != nil {
				t.Skipf("there is no unprivileged user for PostgreSQL: %v", err)
			}
		}
		uid, _ := strconv.Atoi(who.Uid)
		gid, _ := strconv.Atoi(who.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	command := func(name string, args ...string) (*exec.Cmd, *bytes.Buffer) {
		c := exec.Command(filepath.Join(bin, name), args...)
		var out bytes.Buffer
		c.Dir, c.SysProcAttr, c.Stdout, c.Stderr = dir, attr, &out, &out
		c.Env = []string{"LC_ALL=C.UTF-8", "PATH=" + bin}
		return c, &out
	}
	data := filepath.Join(dir, "data")
	if c, out := command("initdb", "-D", data, "-U", "castellan", "-A", "trust", "-E", "UTF8", "--no-sync"); c.Run() != nil {
		t.Fatalf("initdb: %s", out)
	}
	server, out := command("postgres", "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=60")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Signal(syscall.SIGINT)
		server.Wait()
	})
	address := func(database string) string {
		return "postgres://castellan@/" + database + "?host=" + url.QueryEscape(dir) + "&sslmode=disable"
	}
	admin, err := sql.Open("pgx", address("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Close() })
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if err = admin.PingContext(context.Background()); err == nil {
			break
		}
		if time.Since(start) > 30*time.Second {
			t.Fatalf("PostgreSQL does not answer: %v\n%s", err, out)
		}
	}
	var n atomic.Int64
	return func(t testing.TB) string {
		name := fmt.Sprintf("store%d", n.Add(1))
		if _, err := admin.Exec("CREATE DATABASE " + name); err != nil {
			t.Fatal(err)
		}
		return address(name)
	}
}

// lostConnections: connections that die while idle are replaced; one that dies within a transaction fails that alone.
func lostConnections(t *testing.T, url string) {
	ctx := context.Background()
	s := storetest.Open(t, url)
	admin, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	cut := func() {
		if _, err := admin.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'castellan' AND datname = current_database()"); err != nil {
			t.Fatal(err)
		}
	}
	add := func() error {
		return s.Update(ctx, func(tx gate.Tx) error { _, err := tx.Append(storetest.Record(1)); return err })
	}
	look := func() error {
		return s.View(ctx, func(tx gate.Tx) error { _, err := tx.Get("kill"); return err })
	}
	if err := errors.Join(add(), look()); err != nil {
		t.Fatal(err)
	}
	cut()
	if err := errors.Join(look(), add()); err != nil {
		t.Errorf("after the connections were cut: %v", err)
	}
	err = s.Update(ctx, func(tx gate.Tx) error {
		if _, err := tx.Append(storetest.Record(2)); err != nil {
			return err
		}
		cut()
		return tx.Set("a", "b")
	})
	if !errors.Is(err, gate.ErrReadOnlyStore) {
		t.Errorf("cut within a transaction: %v", err)
	}
	if err := add(); err != nil {
		t.Errorf("after that: %v", err)
	}
	if h, err := s.Health(ctx); err != nil || h.Size != 3 {
		t.Errorf("health: %+v, %v", h, err)
	}
}
