package pve

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"castellan/internal/gate"
)

type writeGuestFileIn struct {
	Guest     string `json:"guest" jsonschema:"id or unique name"`
	Path      string `json:"path" jsonschema:"absolute, as the guest sees it"`
	Content   string `json:"content,omitempty" jsonschema:"the whole new text"`
	Content64 string `json:"content64,omitempty" jsonschema:"or in base64, where it is no text"`
	Mode      string `json:"mode,omitempty" jsonschema:"of a new file, octal; 0644 if absent"`
	Expect    string `json:"expect" jsonschema:"sha256 of what is there now, as read_guest_file tells it; absent for a new file"`
	Snapshot  bool   `json:"snapshot,omitempty" jsonschema:"take a snapshot first"`
	Target    string `json:"target,omitempty"`
}

func writeGuestFile() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "write_guest_file", Summary: "Write a file inside a guest, only over what is expected there. Execute; undo: the old content, kept sealed", Product: "pve", Effect: gate.EffectExecute,
		Kinds: []gate.Kind{gate.KindFile, gate.KindExec}, Undo: "the content that was replaced is written again; a new file stays",
		Keywords: "edit change config upload put save content agent file-write pct push inside container vm", Toolset: "full", Guest: "guest",
	}, planWriteGuestFile)
}

func planWriteGuestFile(ctx context.Context, v gate.View, in writeGuestFileIn) (*gate.Draft, error) {
	if err := checkGuestPath(in.Path); err != nil {
		return nil, err
	}
	content, err := in.bytes()
	if err != nil {
		return nil, err
	}
	expect := strings.ToLower(strings.TrimSpace(in.Expect))
	if sum, err := hex.DecodeString(expect); expect != "absent" && (err != nil || len(sum) != sha256.Size) {
		return nil, gate.Fail(gate.ErrInvalid, "read_guest_file tells the sha256 of what is there; absent means that there is no such file yet.", "expect %q is neither a sha256 nor absent", clip(in.Expect, 80))
	}
	sum := sha256.Sum256(content)
	hash := hex.EncodeToString(sum[:])
	if hash == expect {
		return nothing("The content is the one that is expected there already."), nil
	}
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	g, err := s.inside(ctx, in.Guest)
	if err != nil {
		return nil, err
	}
	params := map[string]any{"path": in.Path, "expect": expect}
	if in.Content64 != "" || !utf8.Valid(content) {
		params["content64"] = base64.StdEncoding.EncodeToString(content)
	} else {
		params["content"] = in.Content
	}
	if in.Mode != "" {
		params["mode"] = in.Mode
	}
	step, err := g.run(ctx, "write-file", params)
	if err != nil {
		return nil, err
	}
	old := "what is there, sha256 " + expect
	if expect == "absent" {
		old = "(no file)"
		step.Undo = gate.Undo{None: "the file is new, and castellan takes no files away"}
	} else {
		step.Undo = gate.Undo{How: "the content that was replaced is written again; castellan keeps it sealed, up to 700 KB", Kept: hash}
	}
	draft := &gate.Draft{Target: s.target(), Phrase: g.ID, Note: strings.TrimSpace(g.nameNote(in.Guest)), Steps: []gate.Step{step},
		Diff: []gate.Difference{{Object: "guest/" + g.ID, Key: in.Path, Old: old, New: fmt.Sprintf("%d bytes, sha256 %s", len(content), hash)}}}
	return g.after(ctx, in.Snapshot, draft)
}

func (in writeGuestFileIn) bytes() ([]byte, error) {
	content := []byte(in.Content)
	if in.Content64 != "" {
		if in.Content != "" {
			return nil, gate.Fail(gate.ErrInvalid, "Give one of both.", "content and content64 are both given")
		}
		var err error
		if content, err = base64.StdEncoding.DecodeString(in.Content64); err != nil {
			return nil, gate.Fail(gate.ErrInvalid, "Give plain base64, or content as text.", "content64 is no base64: %v", err)
		}
	}
	if len(content) > mostFile {
		return nil, gate.Fail(gate.ErrInvalid, "Bring it in another way, such as a package or an image.", "the content has %d bytes; %d are taken", len(content), mostFile)
	}
	return content, nil
}
