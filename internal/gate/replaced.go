package gate

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// What a run replaces in a guest is kept for undo alone: sealed in the record of its step, shown to nobody, in no ledger.

const writesFile = "/write-file"

// Replaces says whether a run replaces a file of a guest.
func (r Request) Replaces() bool { return r.IsRun() && strings.HasSuffix(r.Operation, writesFile) }

// maxReplaced bounds the content that is kept of a replaced file, in bytes; a longer one has no way back.
const maxReplaced = 700 << 10

func replacedPlace(plan string, step int) string { return fmt.Sprintf("%s/replaced/%d", plan, step) }

// sealReplaced puts the content of the file that a run replaced under seal.
func (g *Gate) sealReplaced(plan string, step int, r Request, res *RunResult) error {
	if !r.Replaces() || res.File == nil {
		return nil
	}
	f := *res.File
	res.File = &f
	content, err := f.bytes()
	f.Content, f.Content64 = "", ""
	switch {
	case err != nil:
		return fmt.Errorf("read what was replaced: %w", err)
	case f.Absent || f.Cut:
		return nil
	case len(content) > maxReplaced:
		f.Cut = true
		return nil
	}
	box, err := g.c.Sealer.Seal(content, replacedPlace(plan, step))
	if err != nil {
		return fmt.Errorf("seal what was replaced: %w", err)
	}
	f.Sealed = base64.StdEncoding.EncodeToString(box)
	return nil
}

func (f RunFile) bytes() ([]byte, error) {
	if f.Content64 != "" {
		return base64.StdEncoding.DecodeString(f.Content64)
	}
	return []byte(f.Content), nil
}

// Replaced implements Past.
func (v *view) Replaced(ctx context.Context, id string, step int) (*RunFile, error) {
	r, err := v.g.load(ctx, v.principal, id)
	if err != nil {
		return nil, err
	}
	var res RunResult
	if step < 1 || step > len(r.Steps) || len(r.Steps[step-1].Answer) == 0 || json.Unmarshal(r.Steps[step-1].Answer, &res) != nil || res.File == nil {
		return nil, Fail(ErrNotFound, "", "nothing is kept of what step %d of plan %s replaced", step, clip(id, 40))
	}
	f := *res.File
	if f.Sealed != "" {
		box, err := base64.StdEncoding.DecodeString(f.Sealed)
		if err != nil {
			return nil, fmt.Errorf("read what step %d of plan %s replaced: %w", step, clip(id, 40), err)
		}
		content, err := v.g.c.Sealer.Open(box, replacedPlace(id, step))
		if err != nil {
			return nil, fmt.Errorf("open what step %d of plan %s replaced: %w", step, clip(id, 40), err)
		}
		f.Content64, f.Sealed = base64.StdEncoding.EncodeToString(content), ""
		f.Cut = false
	}
	return &f, nil
}

// recordedRun is a result as the ledger has it: without the content of files, of which it has the hash.
func recordedRun(res RunResult) ([]byte, error) {
	if res.File != nil {
		f := *res.File
		f.Content, f.Content64, f.Sealed = "", "", ""
		res.File = &f
	}
	return json.Marshal(res)
}
