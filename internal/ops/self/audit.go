package self

import (
	"context"
	"time"
)

// Audit is what the two audit operations ask of the ledger.
type Audit interface {
	// Search finds records, newest first, in bounded time.
	Search(ctx context.Context, q AuditQuery) (AuditPage, error)
	// Verify checks the whole ledger; head is a signed checkpoint that it must extend, or empty.
	Verify(ctx context.Context, head string) (AuditReport, error)
}

// AuditQuery selects records. Every field that is set must match; Text is searched literally.
type AuditQuery struct {
	Since, Until time.Time
	Operation    string
	Actor        string
	Target       string
	Status       string
	Effect       string
	Text         string
	Payloads     bool // bring the droppable parts along
	Limit        int
	Cursor       string
}

// AuditRow is one record.
type AuditRow struct {
	Tree      string            `json:"tree"` // write or read
	Index     int64             `json:"index"`
	At        string            `json:"at"`
	Kind      string            `json:"kind"`
	Operation string            `json:"operation,omitempty"`
	Actor     string            `json:"actor,omitempty"`
	Client    string            `json:"client,omitempty"`
	Target    string            `json:"target,omitempty"`
	Status    string            `json:"status,omitempty"`
	Effect    string            `json:"effect,omitempty"`
	Plan      string            `json:"plan,omitempty"`
	UPID      string            `json:"upid,omitempty"`
	Marks     map[string]string `json:"marks,omitempty"` // with the payloads: further fields that are never dropped: ip, credential, digest
	Parts     map[string]string `json:"parts,omitempty"`
	Withheld  []string          `json:"withheld,omitempty"` // parts that were dropped
}

// AuditPage is part of an answer.
type AuditPage struct {
	Records []AuditRow
	Cursor  string
	Notice  string // why it is not the whole answer
}

// AuditReport is the outcome of a verification.
type AuditReport struct {
	OK     bool         `json:"ok"`
	Size   uint64       `json:"size"`
	Head   string       `json:"head,omitempty"` // signed checkpoint, to pin
	Broken *AuditBroken `json:"broken,omitempty"`
	Note   string       `json:"note,omitempty"`
}

// AuditBroken names the first bad record.
type AuditBroken struct {
	Index  uint64 `json:"index"`
	Reason string `json:"reason"`
}
