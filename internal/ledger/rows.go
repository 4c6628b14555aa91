package ledger

import (
	"context"
	"time"
)

// Record is one row of a tree with its parts.
type Record struct {
	Index int64
	// Header is the canonical header, nil when retention has removed it.
	Header []byte
	// Hashes are the tree nodes that this record completed: its leaf hash, then
	// its ancestors upward; 32 bytes each, 1 + (trailing one bits of Index) of
	// them. They are never removed.
	Hashes []byte
	// Sig is set on the last record of each append: root hash (32 bytes), key
	// hash (4), Ed25519 signature (64) of the checkpoint of size Index+1.
	Sig []byte
	// Columns are the filterable copies of header fields.
	Columns
	// Parts are those that are still there, sorted by name.
	Parts []Part
}

// Head is the state of a tree, one row, moved in each appending transaction.
type Head struct {
	Size int64
	// Frontier holds the roots of the complete subtrees that make up the tree,
	// largest first, 32 bytes each. With it an append reads no other row.
	Frontier []byte
	// Note is the signed checkpoint of Size, "" while nobody has signed any.
	Note string
}

// Rows is the ledger's view of one database transaction. The ledger owns no
// database: what it writes commits or vanishes with the state it records.
type Rows interface {
	// Head returns the head of tree, the zero Head when nothing was appended.
	// In a transaction that may write it also locks the head until the end, so
	// that two appenders never see the same size.
	Head(ctx context.Context, tree Tree) (Head, error)
	// SetHead stores the head.
	SetHead(ctx context.Context, tree Tree, head Head) error
	// Insert adds records whose indexes follow each other. An index that is
	// already taken is an error.
	Insert(ctx context.Context, tree Tree, records []Record) error
	// Hashes returns Record.Hashes of the records from ≤ index < to in order,
	// strung together; absent records add nothing.
	Hashes(ctx context.Context, tree Tree, from, to int64) ([]byte, error)
	// Scan calls fn for each stored record with from ≤ index < to in index
	// order, swept ones and ones beyond the head included, exactly as stored.
	// The record and its bytes are valid only during the call. An error of fn
	// ends the scan and is returned.
	Scan(ctx context.Context, tree Tree, from, to int64, fn func(*Record) error) error
}

// Finder is what Search needs besides Rows.
type Finder interface {
	Rows
	// Select returns up to limit records with index < below whose columns match
	// q (see Query.MatchColumns; the text of q is not its business), newest
	// (highest index) first. Swept records are left out.
	Select(ctx context.Context, tree Tree, q Query, below int64, limit int) ([]Record, error)
}

// Sweeper is what retention needs besides Rows.
type Sweeper interface {
	Rows
	// DropParts removes the named parts (all when names is empty) of the records
	// from ≤ index < to and returns how many parts went.
	DropParts(ctx context.Context, tree Tree, from, to int64, names []string) (int64, error)
	// DropRecords removes header, columns and parts of the records
	// from ≤ index < to. Index, Hashes and Sig stay. It returns how many
	// records lost their header.
	DropRecords(ctx context.Context, tree Tree, from, to int64) (int64, error)
}

// Session is a process that queues reads. It is stored so that the next start
// can tell a clean stop from a kill.
type Session struct {
	ID     string // random
	Host   string
	PID    int
	Opened time.Time
	Seen   time.Time // last sign of life
}

// SessionRows keeps sessions.
type SessionRows interface {
	Rows
	// PutSession stores or replaces the session of that ID.
	PutSession(ctx context.Context, s Session) error
	// DropSession removes it and reports whether it was there.
	DropSession(ctx context.Context, id string) (bool, error)
	// Sessions returns all, ordered by ID.
	Sessions(ctx context.Context) ([]Session, error)
}
