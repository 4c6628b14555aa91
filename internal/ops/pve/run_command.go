package pve

import (
	"context"
	"strings"

	"castellan/internal/gate"
)

type runCommandIn struct {
	Guest   string   `json:"guest" jsonschema:"id or unique name"`
	Command []string `json:"command" jsonschema:"program and arguments, each as it is to arrive; no shell reads them"`
	runIn
	Snapshot bool   `json:"snapshot,omitempty" jsonschema:"take a snapshot first; without it the command does not run"`
	Target   string `json:"target,omitempty"`
}

func runCommand() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "run_command", Summary: "Run a listed command inside a guest, exact arguments, no shell. Execute; no undo but snapshot=true", Product: "pve", Effect: gate.EffectExecute,
		Kinds: []gate.Kind{gate.KindCommand}, Undo: "none; snapshot=true takes a snapshot to roll back to",
		Keywords: "exec execute argv shell ssh pct exec qm guest exec container vm restart service systemctl nginx apt inside", Toolset: "full", Guest: "guest",
	}, planRunCommand)
}

func planRunCommand(ctx context.Context, v gate.View, in runCommandIn) (*gate.Draft, error) {
	if err := checkArgv(in.Command); err != nil {
		return nil, err
	}
	params, err := in.params()
	if err != nil {
		return nil, err
	}
	params["command"] = in.Command
	return planInside(ctx, v, in.Target, in.Guest, "command", "what a command did", params, in.Snapshot)
}

// checkArgv refuses what no list can allow, with what to do instead.
func checkArgv(argv []string) error {
	switch {
	case len(argv) == 0 || argv[0] == "":
		return gate.Fail(gate.ErrInvalid, `Give program and arguments, as ["systemctl","restart","nginx"].`, "the command is empty")
	case len(argv) == 1 && strings.ContainsAny(argv[0], " \t\n"):
		return gate.Fail(gate.ErrInvalid, `Give each argument by itself, as ["systemctl","restart","nginx"]; a text for a shell goes to run_script.`, "the command is one text with blanks: no shell takes it apart")
	}
	return nil
}

// planInside makes the plan of one run inside a guest.
func planInside(ctx context.Context, v gate.View, target, name, run, what string, params map[string]any, snapshot bool) (*gate.Draft, error) {
	s, err := open(ctx, v, target)
	if err != nil {
		return nil, err
	}
	g, err := s.inside(ctx, name)
	if err != nil {
		return nil, err
	}
	step, err := g.run(ctx, run, params)
	if err != nil {
		return nil, err
	}
	step.Undo = noWayBack(what, snapshot, g.ID)
	draft := &gate.Draft{Target: s.target(), Phrase: g.ID, Note: strings.TrimSpace(g.nameNote(name)), Steps: []gate.Step{step}}
	return g.after(ctx, snapshot, draft)
}
