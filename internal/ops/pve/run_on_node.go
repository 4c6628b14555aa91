package pve

import (
	"context"

	"castellan/internal/catalog"
	"castellan/internal/gate"
)

type runOnNodeIn struct {
	Node        string   `json:"node"`
	Command     []string `json:"command,omitempty" jsonschema:"program and arguments of the administrator's list; or give script"`
	Script      string   `json:"script,omitempty"`
	Interpreter string   `json:"interpreter,omitempty" enum:"sh,bash,python3" jsonschema:"of the script; sh if absent"`
	Root        bool     `json:"root,omitempty" jsonschema:"run the script as root; else as the bridge's own account"`
	runIn
	Target string `json:"target,omitempty"`
}

func runOnNode() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "run_on_node", Summary: "Run a command or script on a node itself, unprivileged unless root=true. Execute; no undo", Product: "pve", Effect: gate.EffectExecute,
		Kinds: []gate.Kind{gate.KindHostCommand, gate.KindHost, gate.KindRoot}, Undo: "none: a node has no snapshot",
		Keywords: "host hypervisor shell ssh exec root sudo bash script pve node command", Toolset: "full",
	}, planRunOnNode)
}

func planRunOnNode(ctx context.Context, v gate.View, in runOnNodeIn) (*gate.Draft, error) {
	var params map[string]any
	var err error
	what := "command"
	switch {
	case len(in.Command) > 0 && in.Script != "":
		return nil, gate.Fail(gate.ErrInvalid, "Give one of both.", "both a command and a script are given")
	case len(in.Command) == 0 && in.Script == "":
		return nil, gate.Fail(gate.ErrInvalid, `Give command, as ["uptime"], or script.`, "nothing to run is given")
	case len(in.Command) > 0 && (in.Root || in.Interpreter != ""):
		return nil, gate.Fail(gate.ErrInvalid, "Leave root and interpreter out, or give a script.", "root and interpreter are for scripts: a command runs as the bridge's own account")
	case len(in.Command) > 0:
		if err := checkArgv(in.Command); err != nil {
			return nil, err
		}
		if params, err = in.params(); err != nil {
			return nil, err
		}
		params["command"] = in.Command
	default:
		what = "script"
		if params, err = scriptParams(in.runIn, in.Script, in.Interpreter); err != nil {
			return nil, err
		}
		if in.Root {
			params["root"] = true
		}
	}
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	node, err := s.pickNode(in.Node)
	if err != nil {
		return nil, err
	}
	params["node"] = node
	r, err := gate.NewRequest("pve", catalog.MethodRun+" /nodes/{node}/"+what, params)
	if err != nil {
		return nil, gate.Fail(gate.ErrInvalid, "Correct the arguments.", "%v", err)
	}
	step := gate.Step{API: &r, Undo: noWayBack("what a "+what+" did", false, ""), Require: []gate.Condition{online(node)}}
	return &gate.Draft{Target: s.target(), Phrase: node, Steps: []gate.Step{step}}, nil
}

// online holds while the site sees the node.
func online(node string) gate.Condition {
	return gate.Condition{Name: "node " + node + " is online", Read: gate.Read{Operation: "GET /nodes"}, Where: map[string]string{"node": node}, Pointer: "/status", Rule: gate.RuleEquals, Value: text("online")}
}
