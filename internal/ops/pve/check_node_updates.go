package pve

import (
	"context"
	"fmt"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/patch"
)

type checkNodeUpdatesIn struct {
	Node   string `json:"node"`
	Target string `json:"target,omitempty"`
}

type checkNodeUpdatesOut struct {
	Node         string          `json:"node"`
	Way          string          `json:"way"` // by what they would be installed, or why that cannot be
	System       *patch.System   `json:"system,omitempty"`
	Fresh        bool            `json:"fresh"` // the package lists were read just now; else nothing here says "up to date"
	UpToDate     bool            `json:"up_to_date"`
	Transaction  []string        `json:"full_upgrade"` // what upgrade_node would do: action, package, old, new, archive
	Security     int             `json:"security"`     // of them from a security archive
	NotInstalled []patch.Pending `json:"not_installed,omitempty"`
	Reboot       *patch.Reboot   `json:"reboot_now,omitempty"`
	RebootAfter  []string        `json:"reboot_after,omitempty"` // packages that only a reboot brings into force
	Against      []string        `json:"against_upgrading,omitempty"`
	Heed         []string        `json:"heed,omitempty"`
	Ceph         []string        `json:"ceph_daemons,omitempty"`
	NotCovered   []string        `json:"not_covered,omitempty"`
}

func checkNodeUpdates() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "check_node_updates", Summary: "What a full upgrade of a Proxmox node itself would do, and what stands against it: quorum, Ceph, HA, tasks. Read", Product: "pve",
		Kinds:    []gate.Kind{gate.KindUpdates, gate.KindRead},
		Keywords: "host hypervisor apt dist-upgrade full-upgrade packages patches security updates pending kernel reboot required subscription repository pveupgrade", Toolset: "full",
	}, runCheckNodeUpdates)
}

func runCheckNodeUpdates(ctx context.Context, v gate.View, in checkNodeUpdatesIn) (checkNodeUpdatesOut, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return checkNodeUpdatesOut{}, err
	}
	node, err := s.pickNode(in.Node)
	if err != nil {
		return checkNodeUpdatesOut{}, err
	}
	if err := s.withinReach(node); err != nil {
		return checkNodeUpdatesOut{}, err
	}
	h, err := s.lookAtHost(ctx, node)
	if err != nil {
		return s.listedUpdates(ctx, node, err)
	}
	r := h.report
	out := checkNodeUpdatesOut{Node: node, Way: "upgrade_node, through the bridge on the node", System: &r.System, Fresh: r.Fresh, UpToDate: r.UpToDate(), Transaction: r.All.Texts(), Reboot: &r.Reboot, RebootAfter: bootsKernel(r.All),
		Against: h.against, Heed: h.heed, Ceph: h.ceph.here, NotCovered: r.NotCovered, Security: len(r.Security)}
	for _, p := range r.Pending {
		if p.Why != "" {
			out.NotInstalled = append(out.NotInstalled, p)
		}
	}
	if len(h.ceph.here) > 0 {
		out.Heed = append(out.Heed, "Ceph daemons run here: upgrade_node sets the flag noout while it works")
	}
	return out, nil
}

// listedUpdates is what the API alone tells: its own list, made when the node last read its package lists.
func (s *site) listedUpdates(ctx context.Context, node string, why error) (checkNodeUpdatesOut, error) {
	var rows []struct {
		Package estate.Text `json:"Package"`
		Old     estate.Text `json:"OldVersion"`
		New     estate.Text `json:"Version"`
		Origin  estate.Text `json:"Origin"`
	}
	if _, err := s.read(ctx, &rows, "GET /nodes/{node}/apt/update", map[string]string{"node": node}); err != nil {
		return checkNodeUpdatesOut{}, why
	}
	out := checkNodeUpdatesOut{Node: node, Way: "none now: Proxmox's API lists updates and has no call that installs them; the bridge on the node would: " + clip(gate.Clean(why.Error()), 500), Transaction: []string{},
		Against: []string{"the node was not asked itself: " + clip(gate.Clean(why.Error()), 300)},
		Heed:    []string{"this is the API's list, as old as the node's last look at its archives; what an upgrade would remove or add is not in it"}}
	for i, r := range rows {
		if i == 500 {
			out.Heed = append(out.Heed, fmt.Sprintf("%d more are not shown", len(rows)-i))
			break
		}
		out.NotInstalled = append(out.NotInstalled, patch.Pending{Name: clip(gate.Clean(string(r.Package)), 100), Installed: clip(gate.Clean(string(r.Old)), 60), Available: clip(gate.Clean(string(r.New)), 60), Archive: clip(gate.Clean(string(r.Origin)), 60),
			Sort: patch.Official, Why: "no_way", Note: "listed by the API"})
	}
	return out, nil
}
