package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
	"castellan/internal/guest"
	"castellan/internal/lab"
	"castellan/internal/lane"
	"castellan/internal/proxmox"
	"castellan/internal/seal"
)

// demoHouse is a house of its own: the embedded lab as its only target, keys, store and ledger in a temporary folder
// that goes with the process, all capabilities on, a phrase standing in for what only people can give.
func (a *app) demoHouse(ctx context.Context) (*house, func(), error) {
	dir, err := os.MkdirTemp("", "castellan-demo-")
	if err != nil {
		return nil, nil, fmt.Errorf("make demo folder: %w", err)
	}
	remove := func() { _ = os.RemoveAll(dir) } // a folder that stays behind holds nothing of value
	l, err := lab.New(lab.Config{Site: "small", Facts: facts.Open(), Ill: []lab.Illness{{Guest: 202, Kind: "memory"}}})
	if err != nil {
		remove()
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		remove()
		return nil, nil, fmt.Errorf("listen for the simulated site: %w", err)
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := l.Serve(serving, listener); err != nil && !errors.Is(err, net.ErrClosed) {
			fmt.Fprintf(a.err, "castellan: simulated site: %v\n", err)
		}
	}()
	clean := func() {
		stop()
		_ = listener.Close() // Serve may have closed it
		<-done
		remove()
	}
	s, err := demoSettings(dir, listener.Addr().String(), l)
	if err != nil {
		clean()
		return nil, nil, err
	}
	way, end, err := a.demoBridge(serving, dir, l)
	if err != nil {
		fmt.Fprintf(a.err, "castellan: the demo goes without a bridge: %v\n", err)
	} else {
		s.Bridges = []guest.BridgeSettings{way}
		house := clean
		clean = func() { end(); house() }
	}
	log := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: a.logLevel()}))
	h, err := a.build(ctx, s, filepath.Join(dir, "castellan.toml"), log)
	if err != nil {
		clean()
		return nil, nil, err
	}
	return h, clean, nil
}

func demoSettings(dir, address string, l *lab.Lab) (Settings, error) {
	s := Settings{Agent: "demo", Store: StoreSettings{URL: filepath.Join(dir, "state", "castellan.db"), Keys: filepath.Join(dir, "keys")}}
	_, token, ok := strings.Cut(l.Tokens()["admin"], "PVEAPIToken=")
	if !ok {
		return s, errors.New("make demo: the simulated site offers no admin token")
	}
	file := filepath.Join(dir, "token")
	if err := seal.Create(file, []byte(token+"\n")); err != nil {
		return s, err
	}
	if err := seal.Create(filepath.Join(dir, "castellan.toml"), []byte("# the demo's settings are in the program\n")); err != nil {
		return s, err
	}
	if _, err := seal.CreateKeys(s.Store.Keys); err != nil {
		return s, err
	}
	s.Targets = []proxmox.Target{{Name: "lab", Kind: "pve", Addresses: []string{address}, TokenFile: file, Pins: []string{l.Fingerprint()}}}
	s.Policy.Capabilities = gate.Capabilities()
	s.Policy.StandIn = "phrase"
	s.Lanes = guest.LaneSettings{Commands: []lane.Rule{{Guests: []string{"*"}, Argv: "hostname"}, {Nodes: []string{demoNode}, Argv: demoCommand}}}
	return s, nil
}

// The node that the demo's bridge answers for, and the one command that it and castellan let through.
const (
	demoNode    = "pve1"
	demoCommand = "uname -sr"
)
