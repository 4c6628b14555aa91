package self

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/ops/housetest"
	"castellan/internal/ops/pve"
	"castellan/internal/undo"
)

// shelf is a runner with one file of a guest: it replaces only what is expected.
type shelf struct {
	mu   sync.Mutex
	file string
}

func (s *shelf) Run(_ context.Context, p *gate.Permit, _ string, _ gate.RunHooks) (gate.RunResult, error) {
	w, err := p.Take()
	if err != nil {
		return gate.RunResult{}, err
	}
	value := func(name string) string {
		if v := w.Request.Get(name); len(v) == 1 {
			text, err := w.Open(v[0])
			if err == nil {
				return text
			}
		}
		return ""
	}
	content := value("content")
	if coded := value("content64"); coded != "" {
		b, err := base64.StdEncoding.DecodeString(coded)
		if err != nil {
			return gate.RunResult{}, err
		}
		content = string(b)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if hash(s.file) != value("expect") {
		return gate.RunResult{}, &gate.UpstreamError{Kind: gate.ErrInvalid, Delivery: gate.NotCarriedOut, Message: "something else is there"}
	}
	zero := 0
	res := gate.RunResult{ExitCode: &zero, OK: true, Gone: true, Way: "bridge", File: &gate.RunFile{Path: value("path"), Size: int64(len(s.file)), SHA256: hash(s.file), Content: s.file}}
	s.file = content
	return res, nil
}

func (s *shelf) Look(context.Context, string, gate.Request, string, string) (gate.RunResult, bool, error) {
	return gate.RunResult{}, false, errors.New("no such run")
}

func (s *shelf) Judge(context.Context, gate.View, string, gate.Request, []gate.ObjectFacts) gate.LaneVerdict {
	return gate.LaneVerdict{}
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func TestAWrittenFileIsTakenBack(t *testing.T) {
	const old, fresh = "the old password\n", "new\n"
	there := &shelf{file: old}
	looked := &bench{}
	h := housetest.Open(t, housetest.Config{Site: "small", Token: "admin", Gate: func(h *housetest.House, c *gate.Config) error {
		keeper, err := undo.New(undo.Config{Catalog: h.Catalog, Estate: h.Estate})
		looked.client = h.Client
		c.Operations = slices.Concat(pve.Operations(), Operations(Config{Catalog: h.Catalog, Undo: keeper, Doctor: looked, Estate: h.Estate}))
		c.Keeper, c.Runner, c.Lanes = keeper, there, there
		return err
	}})
	l := &live{House: h, t: t, lab: h.Lab, gate: h.Gate, bench: looked, who: h.Who}
	out, err := l.run("write_guest_file", text(map[string]any{"guest": "202", "path": "/etc/x", "content": fresh, "expect": hash(old)}))
	if err != nil || out.Status != gate.StatusDone {
		t.Fatalf("%+v %v", out, err)
	}
	if there.file != fresh || strings.Contains(text(out), "password") {
		t.Fatalf("there is %q; told was %s", there.file, text(out))
	}
	first := out.Receipt.Plan
	back, err := l.run("undo", text(map[string]any{"plan": first}))
	if err != nil || back.Status != gate.StatusDone {
		t.Fatalf("%s %v", text(back), err)
	}
	if there.file != old || strings.Contains(text(back), "password") {
		t.Fatalf("there is %q; told was %s", there.file, text(back))
	}
	again, err := l.run("undo", text(map[string]any{"plan": back.Receipt.Plan}))
	if err != nil || again.Status != gate.StatusDone || there.file != fresh {
		t.Fatalf("an undo is not undone: %q %s %v", there.file, text(again), err)
	}
	there.file = "somebody else's\n"
	if out, err := l.run("undo", text(map[string]any{"plan": again.Receipt.Plan})); err == nil && out.Status == gate.StatusDone || there.file != "somebody else's\n" {
		t.Errorf("what somebody else wrote is overwritten: %q %s", there.file, text(out))
	}
}
