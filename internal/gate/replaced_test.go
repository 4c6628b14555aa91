package gate

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

// writeOperations write a file by a run; veiled says whether its content is a secret.
func writeOperations() []*Operation {
	type in struct {
		Guest  string `json:"guest"`
		Veiled bool   `json:"veiled,omitempty"`
	}
	return append(runOperations(), Change(Declaration{Name: "write", Summary: "write", Effect: EffectChange, Kinds: []Kind{KindConfig}, Guest: "guest"},
		func(_ context.Context, _ View, in in) (*Draft, error) {
			r, err := NewRequest("pve", "RUN /guest/{vmid}/write-file", map[string]any{"vmid": in.Guest, "path": "/etc/x", "content64": Value{Text: "bmV3IHRleHQ=", Veiled: in.Veiled}})
			return &Draft{Steps: []Step{{API: &r, Undo: Undo{How: "the old content is written again", Kept: "hash"}}}}, err
		}))
}

func TestWhatAWriteReplacesIsKeptForUndoAlone(t *testing.T) {
	const old = "the old password"
	store, h := newMemory(), newHands()
	h.result.File = &RunFile{Path: "/etc/x", Size: int64(len(old)), SHA256: "abc", Content: old}
	r := newRigWith(t, store, newSite(), func(c *Config) { c.Operations, c.Runner, c.Lanes = writeOperations(), h, &doors{} })
	out, err := r.do(t, "write", `{"guest":"101","veiled":true}`)
	if err != nil {
		t.Fatal(err)
	}
	if req := out.Plan.Steps[0].Request; strings.Contains(req, "bmV3") || !strings.Contains(req, "(secret)") {
		t.Errorf("the plan shows %s", req)
	}
	if !strings.HasPrefix(out.Plan.Undo, "can be undone") {
		t.Errorf("undo: %s", out.Plan.Undo)
	}
	id := out.Plan.ID
	if out, err = apply(t, r, out.Plan, nil); err != nil || out.Status != StatusDone {
		t.Fatalf("%+v %v", out, err)
	}
	shown, err := r.do(t, "write", `{"guest":"101"}`)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(shown.Plan.Steps[0].Request, "bmV3") {
		t.Error("what nobody veiled is not shown")
	}
	told, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := r.g.load(t.Context(), agent, id)
	if err != nil {
		t.Fatal(err)
	}
	row, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"outcome": string(told), "row": string(row)} {
		if strings.Contains(text, old) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(old))) {
			t.Errorf("the %s holds what was replaced: %s", name, text)
		}
	}
	if strings.Contains(string(told), `"sealed"`) {
		t.Errorf("the outcome holds a box: %s", told)
	}
	for _, rec := range store.records {
		for name, text := range rec.Parts {
			if strings.Contains(text, old) || strings.Contains(text, `"sealed"`) {
				t.Errorf("the ledger's %s holds it: %s", name, text)
			}
		}
	}
	f, err := r.g.wholeView(agent).Replaced(t.Context(), id, 1)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.bytes(); err != nil || string(got) != old {
		t.Errorf("kept %q %v", got, err)
	}
	if _, err := r.g.wholeView(agent).Replaced(t.Context(), id, 2); err == nil {
		t.Error("a step that is not there replaced something")
	}
}
