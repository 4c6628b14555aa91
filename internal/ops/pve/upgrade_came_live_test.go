package pve_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/ops/housetest"
)

// A guest that came to a node after its upgrade was approved was shown to nobody: the node is not rebooted under it, and nothing of
// it is begun where the guest was there before.
func TestRebootUnderAGuestThatCame(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	for _, late := range []bool{false, true} {
		h, all, _ := clusterToUpgrade(t)
		args := map[string]any{"nodes": []string{"pve3", "pve1"}, "reboot": true}
		_, err := h.Do(t.Context(), "upgrade_nodes", args)
		if err == nil {
			t.Fatal("all guests can be moved")
		}
		args["stop"] = stuck(err)
		out, err := h.Do(t.Context(), "upgrade_nodes", args)
		if err != nil || out.Plan == nil {
			t.Fatalf("%s %v", housetest.Text(out), err)
		}
		comes := func() {
			if _, err := h.Behind(t.Context(), "POST", "/nodes/pve3/lxc", url.Values{"vmid": {"893"}, "ostemplate": {"local:vztmpl/debian-13-standard_13.1-2_amd64.tar.zst"}, "storage": {"local-lvm"}, "start": {"1"}}); err != nil {
				t.Error(err)
			}
		}
		if late {
			all["pve3"].during = comes
		} else {
			comes()
		}
		done, err := h.Apply(t.Context(), out.Plan)
		text := housetest.Text(done) + fmt.Sprint(err)
		if err == nil && done.Status == gate.StatusDone || !strings.Contains(text, "893") || !late && !strings.Contains(text, "no guest runs on node pve3 but") {
			t.Errorf("late %t: %s", late, text)
		}
		if sent := h.Sent(); slices.Contains(sent, "POST /nodes/pve3/status") || slices.Contains(sent, "POST /nodes/pve1/status") {
			t.Errorf("late %t: a node was rebooted under a guest that nobody was shown: %v", late, sent)
		}
		if begun := slices.Contains(all["pve3"].asked, "upgrade"); begun != late || slices.Contains(all["pve1"].asked, "upgrade") {
			t.Errorf("late %t: what was asked: %v, %v", late, all["pve3"].asked, all["pve1"].asked)
		}
	}
}

// A guest that HA could move nowhere is named beforehand: HA would go on trying, with the node in maintenance.
func TestUpgradeWithAGuestThatHACannotMove(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	h, _, _ := clusterToUpgrade(t)
	args := map[string]any{"node": "pve2", "guests": "return", "reboot": true}
	_, before := h.Do(t.Context(), "upgrade_node", args)
	if before == nil || strings.Contains(before.Error(), "HA could not move it") {
		t.Fatalf("what stands against it at first: %v", before)
	}
	for _, storage := range []string{"local-lvm", "local-zfs", "ceph", "nfs", "nas", "shared"} {
		_, _ = h.Behind(t.Context(), "PUT", "/storage/"+storage, url.Values{"nodes": {"pve2"}}) // those that there are
	}
	if _, err := h.Do(t.Context(), "upgrade_node", args); err == nil || !strings.Contains(err.Error(), "HA could not move it") || !strings.Contains(err.Error(), "has no storage") || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("no other node has the storage of a guest that HA would move: %v", err)
	}
}
