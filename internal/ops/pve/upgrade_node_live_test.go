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
	"castellan/internal/ops/housetest"
	"castellan/internal/ops/pve"
	"castellan/internal/ops/self"
	"castellan/internal/patch"
	"castellan/internal/reach"
)

// bridge is that of a node whose packages wait. It installs what it would compute itself and nothing else.
type bridge struct {
	mu      sync.Mutex
	now     patch.Transaction // what a full upgrade would do
	last    patch.Outcome
	sick    bool // services are down afterwards
	boot    string
	asked   []string
	reboots func() bool         // whether the node was told to
	keep    func(on bool) error // what comes of HA's maintenance
	during  func()              // what happens while its packages are installed
}

func (b *bridge) Run(_ context.Context, p *gate.Permit, id string, _ gate.RunHooks) (gate.RunResult, error) {
	w, err := p.Take()
	if err != nil {
		return gate.RunResult{}, err
	}
	return b.run(w, id)
}

func (b *bridge) run(w gate.Write, id string) (gate.RunResult, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	word := strings.TrimPrefix(w.Request.Operation, "RUN /nodes/{node}/") + " " + w.Request.Text("word")
	b.asked = append(b.asked, strings.TrimSpace(word))
	answer := func(v any, ok bool) (gate.RunResult, error) {
		text, err := json.Marshal(v)
		res := gate.RunResult{OK: ok, Gone: true, Way: "bridge", Report: text}
		if !ok {
			one := 1
			res.ExitCode, res.Note = &one, "not well"
		}
		return res, err
	}
	switch strings.TrimSpace(word) {
	case "updates check":
		return answer(patch.Report{System: patch.System{ID: "debian", Codename: "trixie", Family: patch.APT, Supported: true, Kind: "pve"}, Fresh: true, Packages: patch.State{Clean: true}, BootID: b.boot, All: b.now}, true)
	case "updates status":
		if b.reboots() {
			b.boot = "11111111-2222-4333-8444-555555555555"
		}
		return answer(patch.Report{BootID: b.boot}, b.boot != w.Request.Text("other-than"))
	case "updates verify":
		ok, _ := b.last.Verdict()
		return answer(b.last, ok && !b.sick && strings.HasPrefix(id, b.last.ID[:strings.LastIndex(b.last.ID, ".")]+"."))
	case "upgrade":
		var texts []string
		for _, v := range w.Request.Get("package") {
			texts = append(texts, v.Text)
		}
		if !slices.Equal(texts, b.now.Texts()) {
			return gate.RunResult{}, &gate.UpstreamError{Kind: gate.ErrStale, Delivery: gate.NotCarriedOut, Message: "the node refuses the upgrade: what apt would do has changed since it was asked for"}
		}
		house := patch.House{BootID: b.boot, Units: []patch.Unit{{Name: "pveproxy", Active: "active"}}}
		b.last = patch.Outcome{ID: id, State: "ended", Mode: "full", Asked: b.now, Done: b.now, Packages: patch.State{Clean: true}, Before: &house, After: &house}
		b.now = nil
		if b.during != nil {
			b.during()
		}
		return answer(b.last, true)
	}
	return gate.RunResult{}, errors.New("no such word")
}

func (b *bridge) Look(context.Context, string, gate.Request, string, string) (gate.RunResult, bool, error) {
	return gate.RunResult{}, false, errors.New("no such run")
}

func (b *bridge) Judge(context.Context, gate.View, string, gate.Request, []gate.ObjectFacts) gate.LaneVerdict {
	return gate.LaneVerdict{}
}

func nodeToUpgrade(t *testing.T, me reach.Self) (*housetest.House, *bridge) {
	t.Helper()
	waiting, err := patch.ParseTransaction([]string{"upgrade openssl:amd64 3.5.1-1 3.5.1-2 Debian-Security:trixie-security", "install proxmox-kernel-6.17.9-1-pve-signed:amd64 - 6.17.9-1 Proxmox:trixie/pve-enterprise"})
	if err != nil {
		t.Fatal(err)
	}
	b := &bridge{now: waiting, boot: "00000000-2222-4333-8444-555555555555"}
	h := housetest.Open(t, housetest.Config{Gate: func(h *housetest.House, c *gate.Config) error {
		walker, err := reach.New(reach.Config{Estate: h.Estate, Catalog: h.Catalog, Self: me})
		c.Operations = slices.Concat(pve.Operations(), self.Operations(self.Config{Catalog: h.Catalog, Estate: h.Estate}))
		c.Walker, c.Runner, c.Lanes, c.Soak = walker, b, b, 50*time.Millisecond
		return err
	}})
	b.reboots = func() bool { return slices.Contains(h.Sent(), "POST /nodes/pve1/status") }
	return h, b
}

// TestUpgradeNode goes through whole plans on a simulated site, whose bridge keeps state.
func TestUpgradeNode(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	h, b := nodeToUpgrade(t, reach.Self{})
	out, err := h.Do(t.Context(), "upgrade_node", map[string]any{"node": "pve1"})
	if err != nil || out.Plan == nil {
		t.Fatalf("%s %v", housetest.Text(out), err)
	}
	if text := housetest.Text(out.Plan); !strings.Contains(text, "openssl") || !strings.Contains(text, "reboot is needed") || out.Plan.Asked != gate.RungPerson || strings.Contains(text, `governs`) {
		t.Errorf("%s", text)
	}
	// The archives move on between plan and approval.
	b.mu.Lock()
	was := b.now
	b.now = append(slices.Clone(b.now), patch.Change{Action: patch.Upgrade, Name: "zlib1g", Arch: "amd64", Old: "1", New: "2", Archive: "Debian:trixie"})
	b.mu.Unlock()
	done, err := h.Apply(t.Context(), out.Plan)
	if text := housetest.Text(done); err == nil && done.Status == gate.StatusDone || !strings.Contains(text, "has changed") {
		t.Errorf("%s %v", text, err)
	}
	b.mu.Lock()
	b.now, b.asked = was, nil
	b.mu.Unlock()
	out, err = h.Run(t.Context(), "upgrade_node", map[string]any{"node": "pve1"})
	if err != nil || out.Status != gate.StatusDone {
		t.Fatalf("%s %v", housetest.Text(out), err)
	}
	if want := []string{"updates check", "upgrade", "updates verify"}; !slices.Equal(b.asked, want) || len(h.Sent()) > 0 {
		t.Errorf("asked %v, sent %v", b.asked, h.Sent())
	}
	if out, err = h.Do(t.Context(), "upgrade_node", map[string]any{"node": "pve1"}); err != nil || out.Status == gate.StatusWaiting {
		t.Errorf("there is nothing left: %s %v", housetest.Text(out), err)
	}
}

func TestUpgradeNodeMovesGuests(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	h, b := nodeToUpgrade(t, reach.Self{})
	_, err := h.Do(t.Context(), "upgrade_node", map[string]any{"node": "pve1", "guests": "move", "reboot": true})
	if err == nil || !strings.Contains(err.Error(), "nothing was changed") || !strings.Contains(err.Error(), "cannot be moved away") {
		t.Fatalf("guests that cannot be moved are named before anything is done: %v", err)
	}
	t.Log(err)
	var stop []string
	for _, part := range strings.Split(err.Error(), "; ") {
		f := strings.FieldsFunc(part, func(r rune) bool { return r < '0' || r > '9' })
		if i := strings.Index(part, "VM "); i >= 0 || strings.Contains(part, "CT ") {
			for _, n := range f {
				if len(n) == 3 && strings.Contains(part, n+" (") {
					stop = append(stop, n)
					break
				}
			}
		}
	}
	out, err := h.Do(t.Context(), "upgrade_node", map[string]any{"node": "pve1", "guests": "move", "reboot": true, "stop": stop})
	if err != nil || out.Plan == nil {
		t.Fatalf("%v: %s %v", stop, housetest.Text(out), err)
	}
	if text := housetest.Text(out.Plan); !strings.Contains(text, "STOPS with the reboot") || !strings.Contains(text, "Moved first") {
		t.Errorf("%s", text)
	}
	b.mu.Lock()
	b.sick = true
	b.mu.Unlock()
	done, err := h.Apply(t.Context(), out.Plan)
	if err == nil && done.Status == gate.StatusDone {
		t.Errorf("%s", housetest.Text(done))
	}
	if sent := h.Sent(); slices.Contains(sent, "POST /nodes/pve1/status") || !slices.ContainsFunc(sent, func(s string) bool { return strings.HasSuffix(s, "/migrate") }) {
		t.Errorf("a node that is not well after its upgrade is not rebooted: %v", sent)
	}
}

// The node that castellan runs on governs, and so does one of its guest.
func TestUpgradeOfOwnNode(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	for _, me := range []reach.Self{{Nodes: []string{"pve1"}}, {Guests: []string{"101"}}} {
		h, _ := nodeToUpgrade(t, me)
		out, err := h.Do(t.Context(), "upgrade_node", map[string]any{"node": "pve1"})
		if err == nil && (out.Plan == nil || !strings.Contains(housetest.Text(out.Plan), "governs")) || err != nil && !strings.Contains(err.Error(), "govern") && !strings.Contains(err.Error(), "passkey") {
			t.Errorf("%+v: %s %v", me, housetest.Text(out), err)
		}
	}
}
