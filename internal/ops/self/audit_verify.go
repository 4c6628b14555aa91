package self

import (
	"context"

	"castellan/internal/gate"
)

type auditVerifyIn struct {
	Head string `json:"head,omitempty"`
}

func auditVerify(a Audit) *gate.Operation {
	return gate.Control(gate.Declaration{
		Name: "audit_verify", Summary: "Prove that the ledger is whole and unaltered. Read", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "tamper evident log integrity check proof checkpoint head", Toolset: "front",
	}, func(ctx context.Context, _ gate.Desk, in auditVerifyIn) (AuditReport, error) {
		if a == nil {
			return AuditReport{}, noAudit()
		}
		return a.Verify(ctx, in.Head)
	})
}
