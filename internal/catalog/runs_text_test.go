package catalog

import (
	"strings"
	"testing"

	"castellan/internal/gate"
)

// Who approves sees all of what could be code: an address around it makes no password of it.
func TestCodeIsNoPassword(t *testing.T) {
	c := open(t)
	for _, k := range []struct{ operation, param string }{
		{"POST /nodes/{node}/qemu/{vmid}/agent/exec", "command"}, {"POST /nodes/{node}/qemu/{vmid}/agent/exec", "input-data"}, {"POST /nodes/{node}/qemu/{vmid}/agent/file-write", "content"},
		{"POST /nodes/{node}/qemu/{vmid}/monitor", "command"}, {"RUN /nodes/{node}/lxc/{vmid}/script", "script"}, {"RUN /nodes/{node}/lxc/{vmid}/command", "input"},
		{"RUN /nodes/{node}/qemu/{vmid}/write-file", "content"}, {"PUT /nodes/{node}/lxc/{vmid}/config", "entrypoint"},
	} {
		op, ok := c.Lookup("pve", k.operation)
		if !ok {
			t.Fatalf("there is no %s", k.operation)
		}
		for _, text := range []string{"x://y:;shutdown -h now;@z", "x://y:\n* * * * * root reboot\n@z", "x://y:$(reboot)@z", "x://y:`reboot`@z"} {
			if _, secret, _, ok := op.SplitSecret(k.param, text); ok {
				t.Errorf("%s %s: %q hides %q", k.operation, k.param, text, secret)
			}
			r := gate.Request{Product: "pve", Operation: op.ID, Params: []gate.Param{{Name: k.param, Values: []gate.Value{{Text: text}}}}}
			if s := c.Sentence(op, r); !strings.Contains(s, "reboot") && !strings.Contains(s, "shutdown") {
				t.Errorf("%s hides it: %s", k.operation, s)
			}
		}
		if _, secret, _, _ := op.SplitSecret(k.param, "https://ann:hunter2@host/x"); secret != "hunter2" {
			t.Errorf("%s %s: the password is not found: %q", k.operation, k.param, secret)
		}
	}
}

// What another process in a guest printed is no ordinary read: the agent tells it once, and it may be anybody's.
func TestOutputOfOthersIsNoRead(t *testing.T) {
	c := open(t)
	op, _ := c.Lookup("pve", "GET /nodes/{node}/qemu/{vmid}/agent/exec-status")
	if j := c.Judge(op, gate.Request{Product: "pve", Operation: op.ID}); j.Effect == gate.EffectRead {
		t.Errorf("%+v", j)
	}
}
