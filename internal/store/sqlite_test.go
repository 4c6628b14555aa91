package store_test

import (
	"path/filepath"
	"testing"

	"castellan/internal/ledger/ledgertest"
	"castellan/internal/store"
	"castellan/internal/store/storetest"
)

func sqliteFile(t testing.TB) string {
	return filepath.Join(t.TempDir(), "own", "state.db")
}

func TestSQLite(t *testing.T) { storetest.Run(t, sqliteFile) }

func TestSQLiteLedger(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T) ledgertest.DB {
		return store.LedgerRows{Store: storetest.Open(t, sqliteFile(t))}
	})
}

func TestSQLiteBackup(t *testing.T) { storetest.Backup(t, sqliteFile, sqliteFile) }
