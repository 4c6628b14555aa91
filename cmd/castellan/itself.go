package main

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"

	"castellan/internal/gate"
	"castellan/internal/hosts"
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
	out.Uses = hosts.New(hosts.Config{Hosts: s.uses()}).Addresses
	out.Realms = map[string][]string{}
	for _, r := range s.Identity.Realms {
		out.Realms[r.Target] = append(out.Realms[r.Target], r.Realm)
	}
	return out, nil
}

// uses are what the settings name and castellan cannot do without: where people reach and sign in at it, where it keeps its
// state and its anchors, where its alerts go.
func (s Settings) uses() []string {
	out := slices.Concat([]string{s.Daemon.PublicURL, s.Notify.Webhook.URL, s.Notify.Ntfy.URL, s.Notify.SMTP.Address}, s.Daemon.Hosts, s.Daemon.TrustedProxies)
	for _, o := range s.Identity.OIDC {
		out = append(out, o.Issuer)
	}
	for _, a := range s.Anchors {
		out = append(out, a.URL)
		if !strings.HasPrefix(a.Address, "unix:") {
			out = append(out, a.Address)
		}
	}
	if strings.Contains(s.Store.URL, "://") {
		out = append(out, s.Store.URL)
	}
	return out
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
