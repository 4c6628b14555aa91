package reach_test

import (
	"net/url"
	"strings"
	"testing"

	"castellan/internal/gate"
)

// TestStarts: what others left waiting and a start brings into force is told of starts that no request names, and comes
// into force on the site as told.
func TestStarts(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	quiet, h := open(t), open(t)
	behind := func(method, path string, form url.Values) {
		t.Helper()
		if _, err := h.Behind(t.Context(), method, path, form); err != nil {
			t.Fatal(err)
		}
	}
	backup := map[string]any{"node": "pve1", "vmid": "103", "storage": "pbs1", "mode": "snapshot", "remove": false}
	reboot := map[string]any{"node": "pve1", "command": "reboot"}
	const vzdump, power = "POST /nodes/{node}/vzdump", "POST /nodes/{node}/status"
	if out, err := quiet.do("call_operation", map[string]any{"operation": vzdump, "params": backup}); err != nil || out.Status != gate.StatusDone {
		t.Fatalf("a backup of a VM that does not run is not routine: %v %s %s\n%s", err, out.Status, out.Plan.Why, shown(out.Plan))
	}
	if got := shown(quiet.plan(power, reboot)); strings.Contains(got, "staged") || strings.Contains(got, "starts guest/103") {
		t.Errorf("nothing waits, and yet:\n%s", got)
	}
	behind("PUT", "/nodes/pve1/qemu/103/config", url.Values{"ide0": {"nas:cloudinit"}, "onboot": {"1"}})
	behind("POST", "/nodes/pve1/qemu/103/status/start", nil) // with it the image is made
	behind("POST", "/nodes/pve1/qemu/103/status/stop", nil)
	behind("PUT", "/nodes/pve1/qemu/103/config", url.Values{"cicustom": {"user=local:snippets/eve.yaml"}})
	behind("POST", "/nodes/pve1/network", url.Values{"iface": {"vmbr7"}, "type": {"bridge"}})
	got := shown(h.plan(power, reboot))
	for _, want := range []string{"staged changes of its network come into force when pve1 starts again", "starts guest/103", "cicustom was set since"} {
		if !strings.Contains(got, want) {
			t.Errorf("a reboot lacks %q:\n%s", want, got)
		}
	}
	p := h.plan(vzdump, backup)
	if got := shown(p); !strings.Contains(got, "danger setting guest/103: cicustom") {
		t.Errorf("a backup lacks it:\n%s", got)
	}
	if _, err := h.Apply(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if got := shown(h.plan(power, reboot)); strings.Contains(got, "cicustom") {
		t.Errorf("the backup has made the image anew, and yet:\n%s", got)
	}
}
