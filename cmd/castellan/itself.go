package main

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

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
	out.Uses = (&lookup{hosts: s.uses(), resolve: net.DefaultResolver.LookupNetIP, now: time.Now}).addresses
	out.Realms = map[string][]string{}
	for _, r := range s.Identity.Realms {
		out.Realms[r.Target] = append(out.Realms[r.Target], r.Realm)
	}
	return out, nil
}

// uses are the hosts that the settings name and castellan cannot do without: where people reach and sign in at it, where
// it keeps its state and its anchors, where its alerts go.
func (s Settings) uses() (hosts []string) {
	add := func(texts ...string) {
		for _, t := range texts {
			host := t
			if u, err := url.Parse(t); err == nil && u.Host != "" {
				host = u.Hostname()
			} else if h, _, err := net.SplitHostPort(t); err == nil {
				host = h
			}
			if host != "" && !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
	}
	add(s.Daemon.PublicURL, s.Notify.Webhook.URL, s.Notify.Ntfy.URL, s.Notify.SMTP.Address)
	add(s.Daemon.Hosts...)
	add(s.Daemon.TrustedProxies...)
	for _, o := range s.Identity.OIDC {
		add(o.Issuer)
	}
	for _, a := range s.Anchors {
		add(a.URL)
		if !strings.HasPrefix(a.Address, "unix:") {
			add(a.Address)
		}
	}
	if strings.HasPrefix(s.Store.URL, "postgres") {
		add(s.Store.URL)
	}
	return hosts
}

const (
	// lookedUpFor is how long the addresses of names are used before they are asked for again.
	lookedUpFor = 5 * time.Minute
	// lookupWait is how long a plan waits for them.
	lookupWait = 2 * time.Second
)

// lookup finds the addresses of hosts. A name that is not answered keeps those that it had.
type lookup struct {
	hosts   []string // addresses, networks or names
	resolve func(ctx context.Context, network, host string) ([]netip.Addr, error)
	now     func() time.Time

	mu    sync.Mutex
	at    time.Time
	known map[string][]netip.Addr
}

func (l *lookup) addresses(ctx context.Context) (out []netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); l.known == nil || now.Sub(l.at) > lookedUpFor || now.Before(l.at) {
		l.ask(ctx)
		l.at = now
	}
	for _, host := range l.hosts {
		for _, a := range l.known[host] {
			if a = a.Unmap().WithZone(""); !a.IsLoopback() && !a.IsUnspecified() && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out
}

func (l *lookup) ask(ctx context.Context) {
	if l.known == nil {
		l.known = map[string][]netip.Addr{}
	}
	ctx, done := context.WithTimeout(ctx, lookupWait)
	defer done()
	var wait sync.WaitGroup
	found := make([][]netip.Addr, len(l.hosts))
	for i, host := range l.hosts {
		if a, err := netip.ParseAddr(host); err == nil {
			found[i] = []netip.Addr{a}
			continue
		}
		if p, err := netip.ParsePrefix(host); err == nil {
			if p.IsSingleIP() {
				found[i] = []netip.Addr{p.Addr()}
			}
			continue
		}
		wait.Go(func() {
			got, err := l.resolve(ctx, "ip", host)
			if err == nil {
				found[i] = got
			}
		})
	}
	wait.Wait()
	for i, host := range l.hosts {
		if len(found[i]) > 0 {
			l.known[host] = found[i]
		}
	}
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
