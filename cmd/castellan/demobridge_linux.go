package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"castellan/internal/bridge"
	"castellan/internal/guest"
	"castellan/internal/lab"
)

// demoBridge runs the bridge of one simulated node on this machine, with settings of its own in the demo's folder. What it
// runs, it runs as the account that started the demo, or where that is root as nobody.
func (a *app) demoBridge(ctx context.Context, dir string, l *lab.Lab) (guest.BridgeSettings, func(), error) {
	fail := func(err error) (guest.BridgeSettings, func(), error) { return guest.BridgeSettings{}, nil, err }
	dir, err := filepath.EvalSymlinks(dir) // the bridge follows no links
	if err != nil {
		return fail(err)
	}
	who, err := demoAccount()
	if err != nil {
		return fail(err)
	}
	cluster, err := clusterOf(ctx, l)
	if err != nil {
		return fail(err)
	}
	secret, kept := bridge.NewSecret()
	at := func(name string) string { return filepath.Join(dir, "bridge", name) }
	if err := os.MkdirAll(at("pve"), 0o700); err != nil {
		return fail(err)
	}
	quoted := strconv.Quote
	for name, text := range map[string]string{
		"pve/pve-root-ca.pem": string(l.CAPEM()),
		"pve/corosync.conf":   "totem {\n  cluster_name: " + cluster + "\n}\n",
		"secret":              secret + "\n",
		"secret.hash":         kept + "\n",
		"bridge.toml": "account = " + quoted(who) + "\nnode = " + quoted(demoNode) + "\nstate = " + quoted(at("state")) + "\nlog = " + quoted(at("log")) +
			"\n[lanes]\nhost = [\"probe\", \"command\"]\n[[rules.commands]]\nnodes = [" + quoted(demoNode) + "]\nargv = " + quoted(demoCommand) +
			"\n[paths]\npve = " + quoted(at("pve")) + "\n[service]\nsecret = " + quoted(at("secret.hash")) + "\n",
	} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			return fail(err)
		}
	}
	set, err := bridge.LoadSettings(at("bridge.toml"))
	if err != nil {
		return fail(err)
	}
	b, err := bridge.New(bridge.Config{Settings: set, Build: version, Peer: "demo"})
	if err != nil {
		return fail(err)
	}
	service, err := bridge.NewService(b)
	if err != nil {
		return fail(errors.Join(err, b.Close()))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fail(errors.Join(err, b.Close()))
	}
	serving, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := service.Serve(serving, listener); err != nil {
			fmt.Fprintf(a.err, "castellan: bridge of the demo: %v\n", err)
		}
	}()
	end := func() {
		stop()
		<-done
		_ = b.Close() // its record goes with the folder
	}
	return guest.BridgeSettings{Target: "lab", Node: demoNode, URL: "http://" + listener.Addr().String(), SecretFile: at("secret")}, end, nil
}

// demoAccount is who the demo's commands run as: never root.
func demoAccount() (string, error) {
	if os.Geteuid() == 0 {
		return "nobody", nil
	}
	u, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("find this account: %w", err)
	}
	return u.Username, nil
}

// clusterOf is the name of the simulated cluster.
func clusterOf(ctx context.Context, l *lab.Lab) (string, error) {
	status, _, answer := l.Do(ctx, http.MethodGet, "/api2/json/cluster/status", http.Header{"Authorization": {l.Tokens()["admin"]}}, nil)
	var rows struct {
		Data []struct{ Type, Name string } `json:"data"`
	}
	if err := json.Unmarshal(answer, &rows); err != nil {
		return "", fmt.Errorf("read the simulated site (status %d): %w", status, err)
	}
	for _, r := range rows.Data {
		if r.Type == "cluster" {
			return r.Name, nil
		}
	}
	return "", errors.New("the simulated site has no cluster")
}
