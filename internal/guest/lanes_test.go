package guest

import (
	"errors"
	"strings"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/lane"
)

// What the lanes do not list is refused before anything is sent, and the refusal names the setting.
func TestLanesOfLab(t *testing.T) {
	h := newHouse(t, "admin", LaneSettings{Commands: []lane.Rule{{Guests: []string{"102"}, Argv: "hostname"}}}, nil)
	vm := func(operation string, params map[string]any) gate.Request {
		params["node"], params["vmid"] = "pve1", "101"
		r, err := gate.NewRequest("pve", operation, params)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, r := range []gate.Request{
		inGuest(t, "command", map[string]any{"command": []string{"hostname"}}),
		inGuest(t, "script", map[string]any{"script": "hostname"}),
		inGuest(t, "read-file", map[string]any{"path": "/etc/hostname"}),
		inGuest(t, "write-file", map[string]any{"path": "/etc/x", "content": "x", "expect": "absent"}),
		request(t, "command", map[string]any{"node": "pve1", "command": []string{"id"}}),
		request(t, "qemu/{vmid}/command", map[string]any{"node": "pve1", "vmid": "999", "command": []string{"id"}}),
		vm("POST /nodes/{node}/qemu/{vmid}/agent/exec", map[string]any{"command": []string{"hostname"}}),
		vm("POST /nodes/{node}/qemu/{vmid}/monitor", map[string]any{"command": "info status"}),
		vm("PUT /nodes/{node}/qemu/{vmid}/sendkey", map[string]any{"key": "ret"}),
		vm("POST /nodes/{node}/qemu/{vmid}/agent/file-write", map[string]any{"file": "/etc/x", "content": "x"}),
	} {
		_, err := h.do(r)
		if !errors.Is(err, errNotRun) || err.Error() == errNotRun.Error() {
			t.Errorf("%s: %v", r.Operation, err)
		}
	}
	for _, s := range h.Sent() {
		if strings.Contains(s, "/agent/") || strings.Contains(s, "/monitor") || strings.Contains(s, "/sendkey") {
			t.Errorf("it was sent: %s", s)
		}
	}
}

func TestSettings(t *testing.T) {
	good := BridgeSettings{Target: "lab", Node: "pve1", Address: "10.0.0.1", KeyFile: "k", HostKey: []string{"SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}}
	for name, c := range map[string]struct {
		change func(*BridgeSettings)
		want   string
	}{
		"good":           {func(*BridgeSettings) {}, ""},
		"no host key":    {func(b *BridgeSettings) { b.HostKey = nil }, "never learned"},
		"no fingerprint": {func(b *BridgeSettings) { b.HostKey = []string{"MD5:aa"} }, "host_key[0]"},
		"options":        {func(b *BridgeSettings) { b.Address = "-oProxyCommand=sh" }, "address"},
		"another target": {func(b *BridgeSettings) { b.Target = "pbs" }, "no target of kind pve"},
		"no node":        {func(b *BridgeSettings) { b.Node = "" }, "node: missing"},
		"two ways":       {func(b *BridgeSettings) { b.URL, b.SecretFile = "https://x", "s" }, "two ways"},
		"plain HTTP": {func(b *BridgeSettings) {
			*b = BridgeSettings{Target: "lab", Node: "pve1", URL: "http://10.0.0.1", SecretFile: "s"}
		}, "without TLS"},
		"HTTP to loopback": {func(b *BridgeSettings) {
			*b = BridgeSettings{Target: "lab", Node: "pve1", URL: "http://127.0.0.1:1", SecretFile: "s"}
		}, ""},
		"no secret": {func(b *BridgeSettings) { *b = BridgeSettings{Target: "lab", Node: "pve1", URL: "https://x"} }, "secret_file: missing"},
	} {
		b := good
		c.change(&b)
		err := Settings{Bridges: []BridgeSettings{b}}.Validate([]string{"lab"})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
