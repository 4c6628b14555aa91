package undo

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"castellan/internal/gate"
)

// replaced writes a file of a guest as it was before the step, over what the step wrote and nothing else. Its content goes
// into the plan under seal: it was never shown.
func (b *back) replaced() error {
	past, ok := b.v.(gate.Past)
	if !ok {
		return gate.Fail(gate.ErrUnavailable, "", "nothing is kept here of what plans did")
	}
	r := b.step.API
	file := r.Text("path")
	old, err := past.Replaced(b.ctx, b.plan.Plan.ID, b.step.Number)
	switch {
	case err != nil:
		b.leave("what %s held before is not kept", file)
		return nil
	case old.Absent:
		b.leave("%s was new, and castellan takes no files away", file)
		return nil
	case old.Cut:
		b.leave("what %s held before was too long to keep (%d bytes)", file, old.Size)
		return nil
	}
	content, err := base64.StdEncoding.DecodeString(old.Content64)
	if err != nil {
		return fmt.Errorf("read what %s held before: %w", file, err)
	}
	sum := sha256.Sum256(content)
	hash := hex.EncodeToString(sum[:])
	if hash != r.Text("expect") {
		b.leave("what is kept of %s is not what was replaced", file)
		return nil
	}
	params := map[string]any{"node": gate.Ref{Guest: r.Text("vmid"), Plan: r.Text("node")}, "vmid": r.Text("vmid"), "path": file, "expect": b.step.Undo.Kept,
		"content64": gate.Value{Text: base64.StdEncoding.EncodeToString(content), Veiled: true}}
	if len(content) == 0 {
		delete(params, "content64")
		params["content"] = ""
	}
	req, err := gate.NewRequest(b.product, r.Operation, params)
	if err != nil {
		return err
	}
	s := gate.Step{Target: b.target, API: &req, Undo: gate.Undo{How: "the content that it replaces is written again; castellan keeps it sealed, up to 700 KB", Kept: hash}}
	if err := b.identify(&s); err != nil {
		return err
	}
	for _, c := range b.step.Require { // running, and not locked, as then
		if !c.Identity && strings.HasSuffix(c.Read.Operation, "/status/current") {
			s.Require = append(s.Require, c)
		}
	}
	b.draft.Diff = append(b.draft.Diff, gate.Difference{Object: "guest/" + r.Text("vmid"), Key: file, Old: "what the plan wrote, sha256 " + b.step.Undo.Kept,
		New: fmt.Sprintf("what was there before, %d bytes, sha256 %s", len(content), hash)})
	b.draft.Phrase = r.Text("vmid")
	b.draft.Steps = append(b.draft.Steps, s)
	return nil
}
