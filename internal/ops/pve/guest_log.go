package pve

import (
	"context"
	"strings"

	"castellan/internal/gate"
)

type guestLogIn struct {
	Guest    string `json:"guest" jsonschema:"id or unique name"`
	Unit     string `json:"unit" jsonschema:"a service, such as nginx"`
	Lines    int64  `json:"lines,omitempty" jsonschema:"the newest, 100 if absent"`
	Since    string `json:"since,omitempty" jsonschema:"such as 30min, 2h, 7d"`
	Priority string `json:"priority,omitempty" enum:"emerg,alert,crit,err,warning,notice,info,debug" jsonschema:"of this importance or more"`
	Target   string `json:"target,omitempty"`
}

func guestLog() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "guest_log", Summary: "The newest log lines of a service inside a guest, with the service's state. Read", Product: "pve", Kinds: []gate.Kind{gate.KindProbe},
		Keywords: "journal journalctl container logs tail service unit errors why did it fail crash restart", Toolset: "full", Guest: "guest",
	}, runGuestLog)
}

type guestLogOut struct {
	probeAnswer
	State string `json:"state,omitempty" jsonschema:"what systemctl says of the unit in its first lines"`
}

// mostStateLines is how much of a unit's state is shown beside its log.
const mostStateLines = 6

func runGuestLog(ctx context.Context, v gate.View, in guestLogIn) (guestLogOut, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return guestLogOut{}, err
	}
	args := map[string]any{"unit": in.Unit}
	if in.Lines != 0 {
		args["lines"] = in.Lines
	}
	if in.Since != "" {
		args["since"] = in.Since
	}
	if in.Priority != "" {
		args["priority"] = in.Priority
	}
	log, err := s.probeGuest(ctx, in.Guest, "unit_journal", args)
	if err != nil {
		return guestLogOut{}, err
	}
	out := guestLogOut{probeAnswer: log}
	state, err := s.probeGuest(ctx, in.Guest, "unit_status", map[string]any{"unit": in.Unit, "lines": 1})
	if err != nil {
		out.State = "not read: " + clip(err.Error(), 160)
		return out, nil
	}
	lines := strings.Split(strings.TrimSpace(state.Stdout+state.Stderr), "\n")
	out.State = strings.Join(lines[:min(len(lines), mostStateLines)], "\n")
	return out, nil
}
