package pve

import (
	"context"
	"fmt"
	"slices"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

type guestConfigIn struct {
	Guest    string `json:"guest" jsonschema:"id or unique name"`
	Snapshot string `json:"snapshot,omitempty"`
	Target   string `json:"target,omitempty"`
}

type guestConfigOut struct {
	VMID    int64             `json:"vmid"`
	Kind    string            `json:"kind"`
	Node    string            `json:"node"`
	Config  map[string]string `json:"config"`            // pending values merged in
	Pending []pendingOut      `json:"pending,omitempty"` // written, not in force until the guest is stopped
	Digest  string            `json:"digest,omitempty"`
	Note    string            `json:"note,omitempty"`
}

type pendingOut struct {
	Key     string `json:"key"`
	Now     string `json:"now,omitempty"`
	Pending string `json:"pending,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
}

func guestConfig() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "guest_config", Summary: "Settings of a guest, pending ones, digest. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "configuration hardware options disks network show get vm_config", Toolset: "standard", Guest: "guest",
	}, runGuestConfig)
}

func runGuestConfig(ctx context.Context, v gate.View, in guestConfigIn) (guestConfigOut, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return guestConfigOut{}, err
	}
	found, err := s.inv.Guest(ctx, v, in.Guest)
	if err != nil {
		return guestConfigOut{}, err
	}
	g := &guest{Guest: found, site: s}
	if in.Snapshot != "" {
		if _, _, err := g.snapshot(ctx, in.Snapshot); err != nil {
			return guestConfigOut{}, err
		}
	}
	params := g.params(nil)
	if in.Snapshot != "" {
		params["snapshot"] = in.Snapshot
	}
	a, err := s.read(ctx, nil, g.at("GET", "/config"), params)
	if err != nil {
		return guestConfigOut{}, fmt.Errorf("read the settings of %s: %w", g.Title(), err)
	}
	c, err := estate.ParseConfig(a.Data)
	if err != nil {
		return guestConfigOut{}, fmt.Errorf("read the settings of %s: %w", g.Title(), err)
	}
	out := guestConfigOut{VMID: g.Number, Kind: g.Kind, Node: g.Node, Config: map[string]string{}, Digest: c["digest"]}
	for k, val := range c {
		if k == "digest" {
			continue
		}
		if slices.Contains(secretKeys, k) {
			val = "(hidden)"
		}
		out.Config[k] = val
	}
	if in.Snapshot != "" {
		out.Note = "as kept in snapshot " + in.Snapshot
		return out, nil
	}
	rows, err := g.pending(ctx)
	if err != nil {
		out.Note = "what is pending could not be read: " + clip(err.Error(), 200)
		return out, nil
	}
	for _, r := range rows {
		p := pendingOut{Key: string(r.Key), Deleted: r.Delete != 0}
		if r.Value != nil {
			p.Now = masked(p.Key, string(*r.Value))
		}
		if r.Pending != nil {
			p.Pending = masked(p.Key, string(*r.Pending))
		}
		out.Pending = append(out.Pending, p)
	}
	return out, nil
}
