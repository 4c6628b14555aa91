package lab

import (
	"os"
	"strings"
	"testing"

	"castellan/internal/catalog/facts"
)

func TestScanReads(t *testing.T) {
	if os.Getenv("SCAN") == "" {
		t.Skip()
	}
	api, _ := sharedFacts().API(facts.PVE)
	rep := strings.NewReplacer("{node}", "pve1", "{storage}", "local", "{zone}", "z1", "{vnet}", "vn1", "{groupid}", "ops", "{roleid}", "LabOps", "{userid}", "joe@pve", "{realm}", "pve", "{group}", "websrv", "{pos}", "0", "{poolid}", "lab", "{service}", "pveproxy", "{sid}", "ct:201", "{rule}", "prefer-pve1", "{iface}", "vmbr0", "{ipam}", "pve", "{tokenid}", "t1", "{subnet}", "z1-10.50.0.0-24")
	for _, op := range api.Operations {
		if op.Method != "GET" {
			continue
		}
		p := rep.Replace(op.Path)
		if strings.Contains(op.Path, "qemu/{vmid}") {
			p = strings.ReplaceAll(p, "{vmid}", "100")
		}
		p = strings.ReplaceAll(p, "{vmid}", "200")
		if strings.Contains(p, "{") {
			continue
		}
		l := rigLab(t, false, nil)
		for k, s := range op.Params {
			if !s.Optional && !strings.Contains(op.Path, "{"+k+"}") {
				p += map[bool]string{true: "&", false: "?"}[strings.Contains(p, "?")] + k + "=x"
			}
		}
		g := send(l, "root@pam!full", "", "GET /api2/json"+p, nil, "")
		body := show(g.answer)
		if l.serve[op] != nil {
			continue
		}
		t.Logf("%s | %s | %.150s | %.160s", p, g.line[9:], body, show(op.Returns))
	}
}
