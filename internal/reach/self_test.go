package reach

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"testing"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/ops/opstest"
)

// TestSelf walks requests on what castellan depends on: those that change it govern, and taking back the state of its own
// guest is refused.
func TestSelf(t *testing.T) {
	site, err := os.ReadFile("testdata/cluster.site")
	if err != nil {
		t.Fatal(err)
	}
	self := Self{MACs: []string{"bc:24:11:00:01:01"}, Guests: []string{"lab:202", "other:102"}, Storages: []string{"nas"}}
	uses := Self{Uses: func(context.Context) []netip.Addr { return []netip.Addr{netip.MustParseAddr("10.9.0.7")} }}
	fixed := `GET /nodes/pve1/lxc/201/config {"hostname":"dns","net0":"name=eth0,bridge=vlab,hwaddr=BC:24:11:00:02:01,ip=10.9.0.7/24,type=veth","rootfs":"local:201/vm-201-disk-0.raw,size=4G"}`
	for _, x := range []struct {
		request string
		self    Self
		more    string
		governs bool
		refused bool
	}{
		{"POST /nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback\nnode=pve1\nvmid=101\nsnapname=s1", self, "", true, true},
		{"POST /nodes/{node}/lxc/{vmid}/snapshot/{snapname}/rollback\nnode=pve2\nvmid=202\nsnapname=s1", self, "", true, true},
		{"POST /nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback\nnode=pve1\nvmid=102\nsnapname=s1", self, "", false, false},
		{"POST /nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback\nnode=pve1\nvmid=101\nsnapname=s1", Self{}, "", false, false},
		{"POST /nodes/{node}/qemu\nnode=pve1\nvmid=101\narchive=nas:backup/vzdump-qemu-101-2026_01_01-00_00_00.vma.zst\nforce=1", self, "", true, true},
		{"POST /nodes/{node}/lxc\nnode=pve2\nvmid=202\nostemplate=nas:backup/vzdump-lxc-202-2026_01_01-00_00_00.tar.zst\nrestore=1\nforce=1", self, "", true, true},
		{"POST /nodes/{node}/qemu/{vmid}/snapshot\nnode=pve1\nvmid=101\nsnapname=s2", self, "", false, false},
		{"POST /nodes/{node}/qemu/{vmid}/status/shutdown\nnode=pve1\nvmid=101", self, "", true, false},
		{"PUT /nodes/{node}/qemu/{vmid}/config\nnode=pve1\nvmid=101\nmemory=512", self, "", true, false},
		{"POST /nodes/{node}/qemu/{vmid}/status/shutdown\nnode=pve1\nvmid=102", self, "GET /nodes/pve1/qemu/102/config error: 595 Connection refused", true, false},
		{"DELETE /storage/{storage}\nstorage=nas", self, "", true, false},
		{"POST /nodes/{node}/status\nnode=pve2\ncommand=reboot", self, "", true, false},
		{"POST /nodes/{node}/status\nnode=pve3\ncommand=reboot", self, "", false, false},
		{"POST /nodes/{node}/status\nnode=pve3\ncommand=reboot", Self{Nodes: []string{"pve3"}}, "", true, false},
		{"POST /nodes/{node}/lxc/{vmid}/status/shutdown\nnode=pve1\nvmid=201", uses, fixed, true, false},
		{"POST /nodes/{node}/lxc/{vmid}/status/shutdown\nnode=pve1\nvmid=201", uses, "", false, false},
		{"POST /nodes/{node}/lxc/{vmid}/status/shutdown\nnode=pve1\nvmid=201", Self{}, fixed, false, false},
		{"POST /nodes/{node}/qemu/{vmid}/status/shutdown\nnode=pve1\nvmid=102", uses, "GET /nodes/pve1/qemu/102/config error: 595 Connection refused", true, false},
	} {
		v, err := opstest.New(string(site) + "\n" + x.more)
		if err != nil {
			t.Fatal(err)
		}
		k, err := New(Config{Estate: estate.New(), Catalog: v.Catalog, Self: x.self})
		if err != nil {
			t.Fatal(err)
		}
		r := requestOf(t, x.request)
		got := k.Walk(t.Context(), v, gate.WalkQuestion{Steps: []gate.Step{{Number: 1, Target: "lab", API: r, Judgement: judge(t, v.Catalog, r)}}})
		governs := slices.ContainsFunc(got.Hits, func(h gate.Hit) bool { return slices.Contains(h.Kinds, gate.KindGoverns) })
		refused := slices.ContainsFunc(got.Hits, func(h gate.Hit) bool { return h.Refused })
		if governs != x.governs || refused != x.refused {
			t.Errorf("%s\ngoverns %v, refused %v; want %v, %v\n%s", opstestRequest(r), governs, refused, x.governs, x.refused, showReach(got))
		}
	}
}

// byAnother is a view of a site with a second way to it.
type byAnother struct {
	*opstest.View
	site string
}

func (v byAnother) Target(name string) (gate.TargetInfo, error) {
	if name != "door" {
		return v.View.Target(name)
	}
	t := v.Info
	t.Name, t.Site = name, v.site
	return t, nil
}

// TestSelfByAnotherTarget: what is castellan's by one target is castellan's by every other one of the same site.
func TestSelfByAnotherTarget(t *testing.T) {
	site, err := os.ReadFile("testdata/cluster.site")
	if err != nil {
		t.Fatal(err)
	}
	for of, governs := range map[string]bool{"lab": true, "": true, "elsewhere": false} {
		for _, request := range []string{"POST /nodes/{node}/qemu/{vmid}/status/shutdown\nnode=pve1\nvmid=102", "PUT /access/password\nuserid=joe@pve\npassword=xxxxxxxx"} {
			v, err := opstest.New(string(site))
			if err != nil {
				t.Fatal(err)
			}
			k, err := New(Config{Estate: estate.New(), Catalog: v.Catalog, Self: Self{Guests: []string{"door:102"}, Realms: map[string][]string{"door": {"pve"}}}})
			if err != nil {
				t.Fatal(err)
			}
			r := requestOf(t, request)
			got := k.Walk(t.Context(), byAnother{v, of}, gate.WalkQuestion{Steps: []gate.Step{{Number: 1, Target: "lab", API: r, Judgement: judge(t, v.Catalog, r)}}})
			if has := slices.ContainsFunc(got.Hits, func(h gate.Hit) bool { return slices.Contains(h.Kinds, gate.KindGoverns) }); has != governs {
				t.Errorf("the other target is of site %q: %s\n%s", of, opstestRequest(r), showReach(got))
			}
		}
	}
}
