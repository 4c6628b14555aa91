package main

import (
	"context"
	"net"
	"net/netip"
	"slices"

	"castellan/internal/gate"
	"castellan/internal/proxmox"
	"castellan/internal/reach"
)

// itself is what castellan knows of where it lives and who has to keep getting in.
func (s Settings) itself(client *proxmox.Client, st gate.Store) (reach.Self, error) {
	out, err := s.Self.Self()
	if err != nil {
		return reach.Self{}, err
	}
	out.Own = func(_ context.Context, target string) []netip.Addr { return client.Own(target) }
	out.Approvers = func(ctx context.Context) []netip.Addr { return approversAt(ctx, st) }
	out.MACs = ownMACs()
	out.Realms = map[string][]string{}
	for _, r := range s.Identity.Realms {
		out.Realms[r.Target] = append(out.Realms[r.Target], r.Realm)
	}
	return out, nil
}

// ownMACs are the hardware addresses of this machine. Those that it made up itself (bridges, containers of its own) match
// no guest and do no harm.
func ownMACs() (out []string) {
	all, err := net.Interfaces()
	if err != nil {
		return nil // then only what the settings say is known
	}
	for _, i := range all {
		if len(i.HardwareAddr) == 6 && i.Flags&net.FlagLoopback == 0 && !slices.Equal(i.HardwareAddr, make(net.HardwareAddr, 6)) {
			out = append(out, i.HardwareAddr.String())
		}
	}
	return out
}

// maxApprovals is how many of the latest approvals are looked at for where people approve from.
const maxApprovals = 200

// approversAt are the addresses from which people approved lately, as the ledger has them.
func approversAt(ctx context.Context, st gate.Store) (out []netip.Addr) {
	err := st.View(ctx, func(tx gate.Tx) error {
		out = nil
		records, err := tx.Recorded(gate.RecordFilter{Kind: "approval", Limit: maxApprovals})
		if err != nil {
			return err
		}
		for _, r := range records {
			a, err := netip.ParseAddr(r.Marks["ip"])
			if err == nil && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
		return nil
	})
	if err != nil {
		return nil // with nobody known, every address counts
	}
	return out
}
