package catalog

import (
	"strings"
	"testing"

	"castellan/internal/gate"
)

func TestCommandsOfRequests(t *testing.T) {
	c := newTextCatalog(t)
	for _, k := range []struct {
		id, param string
		values    []string
		want      gate.CommandRisk
	}{
		{"POST /nodes/{node}/qemu/{vmid}/agent/exec", "command", []string{"ls", "-l"}, gate.RiskLow},
		{"POST /nodes/{node}/qemu/{vmid}/agent/exec", "command", []string{"sh", "-c", "rm -rf /"}, gate.RiskHigh},
		{"POST /nodes/{node}/qemu/{vmid}/agent/exec", "command", []string{"echo", "; rm -rf /"}, gate.RiskLow},
		{"POST /nodes/{node}/qemu/{vmid}/agent/exec", "input-data", []string{"rm -rf /"}, gate.RiskHigh},
		{"POST /nodes/{node}/qemu/{vmid}/monitor", "command", []string{"info status"}, gate.RiskLow},
		{"POST /nodes/{node}/qemu/{vmid}/monitor", "command", []string{"migrate exec:sh"}, gate.RiskHigh},
		{"POST /nodes/{node}/qemu/{vmid}/config", "args", []string{"-no-reboot"}, gate.RiskHigh},
		{"PUT /nodes/{node}/lxc/{vmid}/config", "hookscript", []string{"local:snippets/x.pl"}, gate.RiskHigh},
		{"POST /nodes/{node}/vzdump", "script", []string{"/x"}, gate.RiskHigh},
		{"POST /nodes/{node}/qemu/{vmid}/config", "memory", []string{"2048"}, gate.RiskNone},
	} {
		op, ok := c.Lookup("pve", k.id)
		if !ok {
			t.Fatalf("there is no %s", k.id)
		}
		p := gate.Param{Name: k.param}
		for _, v := range k.values {
			p.Values = append(p.Values, gate.Value{Text: v})
		}
		j := c.Judge(op, gate.Request{Product: "pve", Operation: k.id, Params: []gate.Param{p}})
		if j.CommandRisk() != k.want {
			t.Errorf("%s %s=%q: %q %+v", k.id, k.param, k.values, j.CommandRisk(), j.Commands)
		}
	}
	op, _ := c.Lookup("pve", "POST /nodes/{node}/qemu/{vmid}/agent/exec")
	j := c.Judge(op, gate.Request{Product: "pve", Operation: op.ID, Params: []gate.Param{{Name: "command", Values: []gate.Value{{Text: "echo"}, {Text: "a\u202eb\x1b[31m" + strings.Repeat("x", 500)}}}}})
	if f := j.Commands[0]; len([]rune(f.Text)) > maxCommandText+1 || strings.ContainsAny(f.Text, "\u202e\x1b") {
		t.Errorf("text %q", f.Text)
	}
	j = c.Judge(op, gate.Request{Product: "pve", Operation: op.ID, Params: []gate.Param{{Name: "command", Values: []gate.Value{{Ref: &gate.Ref{Step: 1}}}}}})
	if j.CommandRisk() != gate.RiskHigh {
		t.Errorf("a command that an earlier step makes: %+v", j.Commands)
	}
	for _, r := range commandRules() { // each rule is for a parameter that there is
		used := false
		for _, product := range Products() {
			for _, op := range c.Operations(product) {
				if (familyRule{products: r.products, methods: r.methods, path: r.path}).matches(op) && op.Facts.Params[r.param] != nil {
					used = true
				}
			}
		}
		if !used {
			t.Errorf("no operation takes %s below %s", r.param, r.path)
		}
	}
}
