package pve

import (
	"context"
	"path"
	"strings"

	"castellan/internal/gate"
)

type readGuestFileIn struct {
	Guest  string `json:"guest" jsonschema:"id or unique name"`
	Path   string `json:"path" jsonschema:"absolute, as the guest sees it"`
	Max    int64  `json:"max,omitempty" jsonschema:"bytes; 40000 if absent, at most 2097152"`
	Target string `json:"target,omitempty"`
}

func readGuestFile() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "read_guest_file", Summary: "Read a file inside a guest, with size, mode, owner and sha256. Expose: it may hold secrets, so it is a plan", Product: "pve", Effect: gate.EffectExpose,
		Kinds: []gate.Kind{gate.KindReadFile}, Undo: "none: what was shown stays known", Keywords: "cat content config file download view agent file-read pct pull inside container vm",
		Toolset: "full", Guest: "guest",
	}, planReadGuestFile)
}

const (
	usualFile = 40_000
	mostFile  = 2 << 20
)

func planReadGuestFile(ctx context.Context, v gate.View, in readGuestFileIn) (*gate.Draft, error) {
	if err := checkGuestPath(in.Path); err != nil {
		return nil, err
	}
	switch {
	case in.Max < 0 || in.Max > mostFile:
		return nil, gate.Fail(gate.ErrInvalid, "Give 1 to 2097152; the end of a log is told by guest_log.", "max is %d", in.Max)
	case in.Max == 0:
		in.Max = usualFile
	}
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	g, err := s.inside(ctx, in.Guest)
	if err != nil {
		return nil, err
	}
	step, err := g.run(ctx, "read-file", map[string]any{"path": in.Path, "max": in.Max})
	if err != nil {
		return nil, err
	}
	step.Undo = gate.Undo{None: "what was shown stays known"}
	return &gate.Draft{Target: s.target(), Phrase: g.ID, Note: strings.TrimSpace(g.nameNote(in.Guest)), Steps: []gate.Step{step}}, nil
}

// checkGuestPath refuses paths that are not written plainly: what is approved is what is opened.
func checkGuestPath(p string) error {
	switch {
	case !strings.HasPrefix(p, "/"):
		return gate.Fail(gate.ErrInvalid, "Give it from the root, as /etc/hosts.", "the path %q is not absolute", clip(p, 80))
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return gate.Fail(gate.ErrInvalid, "Give a path without them.", "the path holds control characters")
	case path.Clean(p) != p || p == "/":
		return gate.Fail(gate.ErrInvalid, "Write it plainly, as "+clip(path.Clean(p), 80)+".", "the path %q holds \"..\", \".\", a double or a last slash, or is no file", clip(p, 80))
	}
	return nil
}
