package pve

import (
	"context"

	"castellan/internal/gate"
)

type guestSQLIn struct {
	Guest    string `json:"guest" jsonschema:"id or unique name"`
	SQL      string `json:"sql" jsonschema:"one statement that only reads"`
	Database string `json:"database,omitempty"`
	Role     string `json:"role,omitempty" jsonschema:"of the database, if not the usual one"`
	Target   string `json:"target,omitempty"`
}

func guestSQL() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "guest_sql", Summary: "Ask the PostgreSQL server inside a guest one statement that only reads, in a read-only transaction. Read", Product: "pve", Kinds: []gate.Kind{gate.KindProbe},
		Keywords: "psql postgres database query select table rows count sessions locks size", Toolset: "full", Guest: "guest",
	}, runGuestSQL)
}

func runGuestSQL(ctx context.Context, v gate.View, in guestSQLIn) (probeAnswer, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return probeAnswer{}, err
	}
	args := map[string]any{"sql": in.SQL}
	if in.Database != "" {
		args["database"] = in.Database
	}
	if in.Role != "" {
		args["role"] = in.Role
	}
	return s.probeGuest(ctx, in.Guest, "psql", args)
}
