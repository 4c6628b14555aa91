package pve_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/helper"
	"castellan/internal/ops/housetest"
	"castellan/internal/ops/pve"
	"castellan/internal/ops/self"
	"castellan/internal/patch"
)

// looked is a stand-in for what castellan left in a guest: it installs what it is asked for, and the look afterwards ends as told.
type looked struct {
	mu      sync.Mutex
	todo    patch.Transaction
	upgrade error
	verify  func() (gate.RunResult, error)
}

func (l *looked) Run(_ context.Context, p *gate.Permit, id string, _ gate.RunHooks) (gate.RunResult, error) {
	w, err := p.Take()
	if err != nil {
		return gate.RunResult{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	answer := func(v any) (gate.RunResult, error) {
		text, err := json.Marshal(v)
		return gate.RunResult{OK: true, Gone: true, Way: "channel", Report: text}, err
	}
	switch {
	case strings.HasSuffix(w.Request.Operation, "/upgrade"):
		if l.upgrade != nil {
			return gate.RunResult{}, l.upgrade
		}
		return answer(patch.Outcome{ID: id, State: "ended", Asked: l.todo, Done: l.todo, Packages: patch.State{Clean: true}})
	case w.Request.Text("word") == "verify":
		return l.verify()
	case w.Request.Text("word") == "check":
		return answer(patch.Report{System: patch.System{ID: "debian", Family: patch.APT, Supported: true}, Fresh: true, Packages: patch.State{Clean: true}, BootID: "11111111-2222-3333-4444-555555555555", Clock: time.Now(), Security: l.todo, All: l.todo, Helper: helper.Version(), Reboot: patch.Reboot{Known: true}})
	case w.Request.Text("word") == "services":
		return answer(patch.House{})
	}
	return gate.RunResult{}, errors.New("no such word")
}

func (l *looked) Look(context.Context, string, gate.Request, string, string) (gate.RunResult, bool, error) {
	return gate.RunResult{}, false, errors.New("no such run")
}

func (l *looked) Judge(context.Context, gate.View, string, gate.Request, []gate.ObjectFacts) gate.LaneVerdict {
	return gate.LaneVerdict{}
}

// The way back that was approved for a check that fails is taken where the check says that it is worse. Where it is not known how the guest
// stands, or whether anything was installed, nothing goes back, since all that was written meanwhile would be lost for nothing.
func TestNothingGoesBackWhereItIsNotKnown(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	todo, err := patch.ParseTransaction([]string{"upgrade openssl:amd64 3.5.1-1 3.5.1-2 Debian-Security:trixie-security"})
	if err != nil {
		t.Fatal(err)
	}
	one := 1
	worse := func() (gate.RunResult, error) {
		return gate.RunResult{Gone: true, ExitCode: &one, Said: "it did not go well: nginx.service failed"}, nil
	}
	well := func() (gate.RunResult, error) { return gate.RunResult{OK: true, Gone: true}, nil }
	blind := func() (gate.RunResult, error) {
		return gate.RunResult{}, &gate.UpstreamError{Kind: gate.ErrUnavailable, Delivery: gate.NotCarriedOut, Message: "CT 206 could not be compared with what was before: Proxmox does not tell whether it runs"}
	}
	lost := func() (gate.RunResult, error) {
		return gate.RunResult{}, &gate.UpstreamError{Kind: gate.ErrUnknownOutcome, Delivery: gate.MaybeDone, Message: "the answer was lost"}
	}
	for _, k := range []struct {
		name    string
		upgrade error
		verify  func() (gate.RunResult, error)
		back    bool
		done    bool
	}{
		{"it went well", nil, well, false, true},
		{"it is worse", nil, worse, true, false},
		{"it could not be compared", nil, blind, false, false},
		{"the look was lost", nil, lost, false, false},
		{"whether it was installed is not known", &gate.UpstreamError{Kind: gate.ErrUnknownOutcome, Delivery: gate.MaybeDone, Message: "it was started, and its end is not known"}, worse, false, false},
	} {
		l := &looked{todo: todo, upgrade: k.upgrade, verify: k.verify}
		h := housetest.Open(t, housetest.Config{Gate: func(h *housetest.House, c *gate.Config) error {
			c.Operations = slices.Concat(pve.Operations(), self.Operations(self.Config{Catalog: h.Catalog, Estate: h.Estate}))
			c.Runner, c.Lanes = l, l
			return nil
		}})
		out, err := h.Run(t.Context(), "apply_updates", `{"guest":"201","rollback_if_worse":true}`)
		if err != nil && out == nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		sent := h.Sent()
		back := slices.ContainsFunc(sent, func(s string) bool { return strings.HasSuffix(s, "/rollback") })
		snapshot := slices.ContainsFunc(sent, func(s string) bool { return strings.HasSuffix(s, "/snapshot") })
		if back != k.back || !snapshot || (out.Status == gate.StatusDone) != k.done {
			t.Errorf("%s: went back %t, sent %v: %s", k.name, back, sent, housetest.Text(out))
		}
	}
}
