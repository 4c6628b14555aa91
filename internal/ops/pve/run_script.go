package pve

import (
	"context"
	"strings"

	"castellan/internal/gate"
)

type runScriptIn struct {
	Guest       string `json:"guest" jsonschema:"id or unique name"`
	Script      string `json:"script" jsonschema:"its whole text"`
	Interpreter string `json:"interpreter,omitempty" enum:"sh,bash,python3" jsonschema:"sh if absent"`
	runIn
	Snapshot bool   `json:"snapshot,omitempty" jsonschema:"take a snapshot first; without it the script does not run"`
	Target   string `json:"target,omitempty"`
}

func runScript() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "run_script", Summary: "Run a whole script as root inside a guest. Execute; no undo but snapshot=true", Product: "pve", Effect: gate.EffectExecute,
		Kinds: []gate.Kind{gate.KindExec}, Undo: "none; snapshot=true takes a snapshot to roll back to",
		Keywords: "bash shell python code pipe loop exec commands inside container vm install configure", Toolset: "full", Guest: "guest",
	}, planRunScript)
}

func planRunScript(ctx context.Context, v gate.View, in runScriptIn) (*gate.Draft, error) {
	params, err := scriptParams(in.runIn, in.Script, in.Interpreter)
	if err != nil {
		return nil, err
	}
	return planInside(ctx, v, in.Target, in.Guest, "script", "what a script did", params, in.Snapshot)
}

// mostScript bounds a script, in bytes.
const mostScript = 64 << 10

func scriptParams(run runIn, script, interpreter string) (map[string]any, error) {
	switch {
	case strings.TrimSpace(script) == "":
		return nil, gate.Fail(gate.ErrInvalid, "Give its text.", "the script is empty")
	case len(script) > mostScript:
		return nil, gate.Fail(gate.ErrInvalid, "Put what is long into a file with write_guest_file and run that.", "the script has %d bytes; %d are taken", len(script), mostScript)
	}
	params, err := run.params()
	if err != nil {
		return nil, err
	}
	params["script"] = script
	if interpreter != "" {
		params["interpreter"] = interpreter
	}
	return params, nil
}
