package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/channel"
	"castellan/internal/gate"
	"castellan/internal/guest"
	"castellan/internal/lab"
	"castellan/internal/ops/housetest"
	"castellan/internal/ops/pve"
	"castellan/internal/ops/self"
	"castellan/internal/store"
)

// A backup that is restored with its hardware addresses is seen once it runs, at once, and before anything is put into either of the two.
func TestARestoredBackupIsTheTwinOfItsOriginal(t *testing.T) {
	h := twinHouse(t)
	ctx := t.Context()
	var saved string
	if _, err := h.Behind(ctx, "POST", "/nodes/pve1/vzdump", url.Values{"vmid": {"201"}, "storage": {"local"}, "mode": {"snapshot"}}); err != nil {
		t.Fatal(err)
	}
	content, err := h.Behind(ctx, "GET", "/nodes/pve1/storage/local/content", url.Values{"content": {"backup"}, "vmid": {"201"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, rest, ok := strings.Cut(string(content), `"volid":"`); ok {
		saved, _, _ = strings.Cut(rest, `"`)
	}
	restore := func(id, unique string) {
		t.Helper()
		form := url.Values{"vmid": {id}, "ostemplate": {saved}, "restore": {"1"}, "storage": {"local-lvm"}, "unique": {unique}}
		if _, err := h.Behind(ctx, "POST", "/nodes/pve1/lxc", form); err != nil {
			t.Fatal(err)
		}
	}
	config, err := h.Behind(ctx, "GET", "/nodes/pve1/lxc/201/config", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(config), "hwaddr=")
	card := strings.ToLower(rest[:17])
	look := newTwins(h.Estate, h.Client, h.Catalog)
	alone := func(when string, want ...string) {
		t.Helper()
		for _, fresh := range []bool{true, false} {
			s, err := look.Twins(ctx, "lab", 201, []string{card}, fresh)
			if err != nil || !slices.Equal(s.With, want) || len(s.Unread) > 0 {
				t.Errorf("%s: %+v %v, want %v", when, s, err, want)
			}
		}
	}
	asked := 0
	enrol := func(when, says string) {
		t.Helper()
		asked++ // an open plan of the same effect would be given back, with the note of then
		out, err := h.Plan(ctx, "enrol_guest", fmt.Sprintf(`{"guest":"201","from":"10.0.0.%d","way":"script"}`, asked))
		text := ""
		if err != nil {
			text = err.Error() + gate.AsError(err).Hint
		} else {
			text = out.Plan.Note
		}
		if says != "" && !strings.Contains(text, says) || says == "" && (err != nil || strings.Contains(text, "hardware addresses too")) {
			t.Errorf("%s: %s", when, text)
		}
		_, err = h.Plan(ctx, "enrol_guests", `{"guests":["201"],"from":"10.0.0.1"}`)
		if strings.Contains(says, "cannot") && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s, by the plan for several: %v", when, err)
		}
	}
	alone("before")
	restore("891", "1")
	if _, err := h.Behind(ctx, "POST", "/nodes/pve1/lxc/891/status/start", nil); err != nil {
		t.Fatal(err)
	}
	alone("with addresses of its own")
	enrol("with addresses of its own", "")
	restore("890", "0")
	alone("restored, and not started")
	enrol("restored, and not started", "890")
	if _, err := h.Behind(ctx, "POST", "/nodes/pve1/lxc/890/status/start", nil); err != nil {
		t.Fatal(err)
	}
	alone("started", "CT 890")
	enrol("started", "cannot be enrolled: CT 890")
	if s, err := look.Twins(ctx, "lab", 890, []string{strings.ToUpper(card)}, true); err != nil || !slices.Equal(s.With, []string{"CT 201"}) {
		t.Errorf("the other way round: %+v %v", s, err)
	}
	if _, err := h.Behind(ctx, "POST", "/nodes/pve1/lxc/890/status/stop", nil); err != nil {
		t.Fatal(err)
	}
	alone("stopped again")
	if _, err := h.Behind(ctx, "PUT", "/nodes/pve1/lxc/890/config", url.Values{"net0": {"name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:AA:01"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Behind(ctx, "POST", "/nodes/pve1/lxc/890/status/start", nil); err != nil {
		t.Fatal(err)
	}
	alone("started with another address")
}

// What could not be read is not taken for nothing.
func TestTwinsThatCannotBeLookedFor(t *testing.T) {
	h := twinHouse(t)
	look := newTwins(h.Estate, h.Client, h.Catalog)
	h.Lab.SetFaults([]lab.Fault{{Kind: "status", Method: "GET", Path: "/nodes/*/qemu/101/config", Status: 500, Reason: "got timeout"}})
	if s, err := look.Twins(t.Context(), "lab", 201, []string{"BC:24:11:00:AA:01"}, true); err != nil || len(s.Unread) != 1 || !strings.Contains(s.Unread[0], "VM 101") {
		t.Errorf("settings that cannot be read: %+v %v", s, err)
	}
	_, err := h.Plan(t.Context(), "enrol_guest", `{"guest":"201","from":"10.0.0.1"}`)
	if e := gate.AsError(err); e == nil || e.Kind != gate.ErrUnavailable || !strings.Contains(e.Message, "VM 101") {
		t.Errorf("settings that cannot be read: %v", err)
	}
	h.Lab.SetFaults([]lab.Fault{{Kind: "status", Method: "GET", Path: "/cluster/resources", Status: 500, Reason: "got timeout"}})
	if s, err := look.Twins(t.Context(), "lab", 201, []string{"BC:24:11:00:AA:01"}, true); err != nil || len(s.Unread) != 1 {
		t.Errorf("a listing that cannot be read: %+v %v", s, err)
	}
	h.Lab.SetFaults(nil)
	if err := h.Lab.SetNode("pve3", lab.NodeOff); err != nil {
		t.Fatal(err)
	}
	if s, err := look.Twins(t.Context(), "lab", 201, []string{"BC:24:11:00:AA:01"}, true); err != nil || len(s.Unread) > 0 || len(s.Unseen) == 0 || !strings.Contains(s.Unseen[0], "pve3") {
		t.Errorf("a node that is off: %+v %v", s, err)
	}
}

// Guests of a wave that look at the same time share a look, and a look that somebody does not wait for goes on for the others.
func TestTwinsLookTogether(t *testing.T) {
	h := twinHouse(t)
	slow := &slowDriver{Driver: h.Client, release: make(chan struct{})}
	look := newTwins(h.Estate, slow, h.Catalog)
	impatient, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	if _, err := look.Twins(impatient, "lab", 201, []string{"BC:24:11:00:AA:01"}, true); err == nil || !strings.Contains(err.Error(), "goes on") {
		t.Errorf("a look that takes long: %v", err)
	}
	var group sync.WaitGroup
	for i := range 24 {
		group.Go(func() {
			if s, err := look.Twins(t.Context(), "lab", 201+i, []string{fmt.Sprintf("BC:24:11:00:AA:%02X", i)}, true); err != nil || len(s.With)+len(s.Unread) > 0 {
				t.Errorf("%d: %+v %v", i, s, err)
			}
		})
	}
	for asked := 0; asked < 24; time.Sleep(time.Millisecond) { // until all have joined the look that waits
		look.mu.Lock()
		if next := look.sites["lab"].next; next != nil {
			asked = len(next.asked)
		}
		look.mu.Unlock()
	}
	close(slow.release)
	group.Wait()
	slow.mu.Lock()
	defer slow.mu.Unlock()
	if n := slow.asked["GET /cluster/resources"]; n > 3 {
		t.Errorf("%d listings for two looks", n)
	}
	if n := slow.asked["GET /nodes/{node}/lxc/{vmid}/config"]; n == 0 || n > 20 {
		t.Errorf("%d settings of containers were read", n)
	}
}

// slowDriver answers nothing before it is released, and counts what it is asked.
type slowDriver struct {
	gate.Driver
	release chan struct{}
	mu      sync.Mutex
	asked   map[string]int
}

func (d *slowDriver) Read(ctx context.Context, target string, r gate.Request) (gate.Answer, error) {
	d.mu.Lock()
	if d.asked == nil {
		d.asked = map[string]int{}
	}
	d.asked[r.Operation]++
	d.mu.Unlock()
	select {
	case <-d.release:
	case <-ctx.Done():
		return gate.Answer{}, ctx.Err()
	}
	return d.Driver.Read(ctx, target, r)
}

// twinHouse is a castellan that could enrol guests, in front of the simulated site.
func twinHouse(t *testing.T) *housetest.House {
	return housetest.Open(t, housetest.Config{Gate: func(h *housetest.House, c *gate.Config) error {
		c.Operations = slices.Concat(pve.OperationsOn(h.Estate, pve.PatchingSettings{}, nil), self.Operations(self.Config{Catalog: h.Catalog, Estate: h.Estate}))
		b, err := guest.NewBridges(guest.BridgesConfig{})
		if err != nil {
			return err
		}
		channels, err := channel.NewChannels(channel.Config{Store: c.Store.(*store.Store), Sealer: housetest.Sealer{}})
		if err != nil {
			return err
		}
		c.Lanes, err = guest.NewLanes(guest.LanesConfig{Targets: []string{"lab"}, Bridges: b, Channels: channels})
		return err
	}})
}
