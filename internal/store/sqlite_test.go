package store_test

import (
	"path/filepath"
	"testing"

	"castellan/internal/store/storetest"
)

func sqliteFile(t testing.TB) string {
	return filepath.Join(t.TempDir(), "own", "state.db")
}

func TestSQLite(t *testing.T) { storetest.Run(t, sqliteFile) }
