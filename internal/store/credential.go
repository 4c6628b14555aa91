package store

import (
	"context"
	"fmt"
)

// CredentialRemoved says whether the write tree holds a record of the removal of the credential of this fingerprint.
func (s *Store) CredentialRemoved(ctx context.Context, fingerprint string) (bool, error) {
	var n int64
	err := s.db.read(ctx, func(q *session) error {
		_, err := q.one(ctx, []any{&n}, `SELECT count(*) FROM write_records WHERE kind = 'credential' AND target = ? AND status = 'removed'`, key(fingerprint))
		return err
	})
	if err != nil {
		return false, fmt.Errorf("look for the removal of a credential: %w", err)
	}
	return n > 0, nil
}
