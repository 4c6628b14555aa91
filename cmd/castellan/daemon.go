package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"castellan/internal/cli"
	"castellan/internal/front"
	"castellan/internal/gate"
	"castellan/internal/local"
	"castellan/internal/mcpserver"
	notices "castellan/internal/notify"
	"castellan/internal/seal"
)

func (a *app) daemonCommand() *cobra.Command {
	root := &cobra.Command{Use: "daemon", Short: "Serve clients and people: HTTP and a unix socket, with keys, policy and store in one place", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.isDaemon = true
			s, path, notes, err := a.load()
			if err != nil {
				return err
			}
			if s.Daemon.Account != "" && os.Geteuid() == 0 {
				return gate.Fail(gate.ErrDenied, "Make the account (deploy/castellan.sysusers), or correct daemon.account.", "the daemon does not run as root, and daemon.account names %q, which is no account that it could become", s.Daemon.Account)
			}
			d, err := a.newDaemon(cmd.Context(), s, path, notes)
			if err != nil {
				return err
			}
			return d.run(cmd.Context())
		}}
	root.Flags().BoolVar(&a.fixtures, "conformance-fixtures", false, "serve the fixtures of the official conformance suite to anybody on this machine; only without a target")
	_ = root.Flags().MarkHidden("conformance-fixtures") // the flag is there
	certificate := a.certificateCommand()
	certificate.AddCommand(a.issueCommand())
	root.AddCommand(a.daemonCheckCommand(), certificate)
	return root
}

// daemon is the one process that owns keys, policy and store, and serves others.
type daemon struct {
	app    *app
	set    Settings
	path   string // of the configuration
	log    *slog.Logger
	quiet  *slog.Logger // for sessions, which come and go
	house  *house
	front  *front.Front
	socket *local.Server // nil when it is off
	mcp    *mcpserver.HTTP
	watch  *watch
	teller *teller
	parts  []part // what else runs
}

// part is something that runs beside gate and store until its context ends.
type part struct {
	name string
	run  func(ctx context.Context) error
}

// newDaemon puts everything together. Nothing runs yet.
func (a *app) newDaemon(ctx context.Context, s Settings, path string, notes []string) (*daemon, error) {
	level := slog.LevelInfo
	if _, set := a.env("CASTELLAN_LOG"); set {
		level = a.logLevel()
	}
	d := &daemon{app: a, set: s, path: path, log: slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level}))}
	d.quiet = slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: a.logLevel()}))
	for _, n := range notes {
		d.log.Info("settings", "note", n)
	}
	agents, err := s.Daemon.local().Agents(s.Agent)
	if err != nil {
		return nil, err
	}
	if s.Daemon.Account == "" && len(agents) == 0 {
		agents[accountName()] = s.Agent
	}
	d.watch = newWatch(func() local.Separation { return s.claim(path, os.Geteuid()).Judge() }, d.log)
	a.separation = d.watch.separate
	d.teller = &teller{}
	a.tell = d.teller.identity
	if d.house, err = a.build(ctx, s, path, d.log); err != nil {
		return nil, err
	}
	d.house.notes = notes
	d.watch.house = d.house
	if err := d.assemble(ctx, agents); err != nil {
		d.house.client.Close()
		return nil, errors.Join(err, d.house.store.Close())
	}
	return d, nil
}

// assemble makes the ways in, and what tells people.
func (d *daemon) assemble(ctx context.Context, agents map[string]string) error {
	link := d.set.link(d.house.url, true)
	notifier, err := notices.New(notices.Config{Settings: d.set.Notify, Source: d.house.gate, Store: d.house.store, Log: d.log, Link: func(plan string) string {
		if plan == "" {
			return d.house.url
		}
		return link(plan)
	}})
	if err != nil {
		return gate.Fail(gate.ErrInvalid, "Correct [notify] in "+d.path+".", "%v", err)
	}
	d.teller.give(notifier)
	d.parts = append(d.parts, part{"notify", notifier.Run}, part{"switches", d.watchSwitches}, part{"schedules", d.runSchedules(agents)})
	mounts, unprotected, err := d.mounts(ctx)
	if err != nil {
		return err
	}
	d.front, err = front.New(front.Config{Settings: d.set.Daemon.http(), Mounts: mounts, Unprotected: unprotected, Secret: readSecret,
		Health: front.Health{Ready: d.watch.ready, State: d.watch.state}, Refused: d.refusedRequest, Version: version, Log: d.log})
	if err != nil {
		return gate.Fail(gate.ErrInvalid, "Correct [daemon] in "+d.path+"; castellan daemon check reads it.", "%v", err)
	}
	path := d.set.Daemon.local().Path()
	if _, err := os.Stat(filepath.Dir(path)); path != "" && d.set.Daemon.Socket == "" && d.set.Daemon.Account == "" && errors.Is(err, fs.ErrNotExist) {
		d.log.Info("no socket is served: its usual folder is not there; daemon.socket names another", "path", path)
		path = ""
	}
	if path == "" {
		return nil
	}
	d.socket, err = local.New(local.Config{Path: path, Gate: d.house.gate, Agents: agents, People: door{d.house}, MCP: d.serveSocket, Checksum: d.checksum,
		Separate: func() bool { return d.watch.separate().OK }, Refused: d.refusedPeer, Log: d.log})
	return err
}

func readSecret(path string) ([]byte, error) {
	v, err := seal.Open(path)
	if err != nil {
		return nil, err
	}
	return v.Bytes(), nil
}

// run serves until ctx ends or a part of it fails.
func (d *daemon) run(ctx context.Context) error {
	outliveReader()
	listeners, err := d.front.Listen()
	if err != nil {
		return errors.Join(err, d.house.store.Close())
	}
	var socket net.Listener
	if d.socket != nil {
		if socket, err = d.socket.Listen(); err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
			return errors.Join(err, d.house.store.Close())
		}
	}
	d.house.start()
	serving, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	var mu sync.Mutex
	var faults []error
	begin := func(name string, run func(context.Context) error) {
		group.Go(func() {
			err := run(serving)
			if err != nil && serving.Err() == nil {
				mu.Lock()
				faults = append(faults, fmt.Errorf("%s: %w", name, err))
				mu.Unlock()
				stop() // half a daemon is worse than one that is started again
			}
		})
	}
	begin("http", func(ctx context.Context) error { return d.front.Run(ctx, listeners) })
	if socket != nil {
		begin("socket", func(ctx context.Context) error { return d.socket.Run(ctx, socket) })
	}
	begin("watch", d.watch.run)
	for _, p := range d.parts {
		begin(p.name, p.run)
	}
	for _, l := range listeners {
		d.log.Info("http", "address", l.Addr().String(), "url", d.front.URL())
	}
	if socket != nil {
		d.log.Info("socket", "path", socket.Addr().String())
	}
	d.log.Info("approvals", "highest", d.app.highest(d.set, d.path).String(), "why", d.watch.separate().Text())
	notify("READY=1")
	<-serving.Done()
	notify("STOPPING=1")
	d.mcp.Close()
	group.Wait()
	d.house.end(20 * time.Second)
	return errors.Join(faults...)
}

// notify tells systemd, where it has started this process.
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return // systemd waits in vain, and says so
	}
	defer c.Close()
	_, _ = c.Write([]byte(state)) // as above
}

func (a *app) daemonCheckCommand() *cobra.Command {
	return &cobra.Command{Use: "check", Short: "Say whether the daemon's configuration is good, and which approvals can count", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		a.isDaemon = true
		s, path, _, err := a.load()
		if err != nil {
			return err
		}
		if err := s.Daemon.http().Check(); err != nil {
			return gate.Fail(gate.ErrInvalid, "Correct "+path+".", "%v", err)
		}
		if _, err := s.Daemon.local().Agents(s.Agent); err != nil {
			return gate.Fail(gate.ErrInvalid, "Correct "+path+".", "%v", err)
		}
		if err := s.readable(); err != nil {
			return err
		}
		v := s.claim(path, os.Geteuid()).Judge()
		highest := gate.RungDialog
		if v.OK {
			highest = gate.RungTwoPasskeys
		}
		url, err := s.Daemon.http().URL()
		if err != nil {
			return err
		}
		if cli.JSON(cmd) {
			return cli.PrintJSON(a.out, map[string]any{"separate": v.OK, "reasons": append([]local.Reason{}, v.Reasons...), "highest_approval": highest.String(), "url": url, "socket": s.Daemon.local().Path()})
		}
		fmt.Fprintf(a.out, "url:      %s\nsocket:   %s\nseparate: %t; the highest approval is %s\n", cli.Safe(url), cli.Safe(s.Daemon.local().Path()), v.OK, highest)
		for _, r := range v.Reasons {
			fmt.Fprintln(a.out, "  - "+cli.Safe(r.Text))
		}
		if v.OK {
			fmt.Fprintln(a.out, "  Whether sudoers or polkit let an account on the socket become the daemon's is not looked at: see to it yourself.")
		}
		return nil
	}}
}

func (a *app) certificateCommand() *cobra.Command {
	return &cobra.Command{Use: "certificate", Short: "Print how clients come to trust the daemon's certificate", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		a.isDaemon = true
		s, _, _, err := a.load()
		if err != nil {
			return err
		}
		if s.Daemon.TLSCert == "" {
			return gate.Fail(gate.ErrInvalid, "Set daemon.tls_cert and daemon.tls_key.", "the daemon has no certificate of its own")
		}
		cert, err := os.ReadFile(s.Daemon.TLSCert)
		if err != nil {
			return fmt.Errorf("read certificate: %w", err)
		}
		key, err := readSecret(s.Daemon.TLSKey)
		if err != nil {
			return fmt.Errorf("read key: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("read certificate: %w", err)
		}
		t, err := front.ReadTrust(pair)
		if err != nil {
			return err
		}
		url, err := s.Daemon.http().URL()
		if err != nil {
			return err
		}
		if cli.JSON(cmd) {
			return cli.PrintJSON(a.out, map[string]any{"names": t.Names, "until": t.Until, "sha256": t.Fingerprint, "public": t.Public, "url": url})
		}
		fmt.Fprintf(a.out, "names:   %s\nuntil:   %s\nsha256:  %s\n", cli.Safe(strings.Join(t.Names, ", ")), t.Until.Format(time.DateOnly), t.Fingerprint)
		if t.Public {
			fmt.Fprintln(a.out, "A public authority signed it: clients need nothing more.")
			return nil
		}
		fmt.Fprintf(a.out, "No public authority signed it. On each client's machine (the file is kept only when its fingerprint is the one above):\n\n%s\n\nthen start the client with NODE_EXTRA_CA_CERTS=$HOME/.castellan-ca.pem\n", trustCommand(url, t.Fingerprint))
		return nil
	}}
}

// trustCommand takes the last certificate that the daemon shows, and keeps it only when it is the right one.
func trustCommand(url, fingerprint string) string {
	host := strings.TrimPrefix(strings.TrimPrefix(url, "https://"), "http://")
	if _, _, err := net.SplitHostPort(host); err != nil {
		host += ":443"
	}
	return "openssl s_client -showcerts -connect " + host + " </dev/null 2>/dev/null |\n" +
		"  awk '/BEGIN CERT/{c=\"\"} {c=c $0 \"\\n\"} /END CERT/{last=c} END{printf \"%s\",last}' >\"$HOME/.castellan-ca.pem.new\" &&\n" +
		"  openssl x509 -in \"$HOME/.castellan-ca.pem.new\" -noout -fingerprint -sha256 | grep -q '" + fingerprint + "' &&\n" +
		"  mv \"$HOME/.castellan-ca.pem.new\" \"$HOME/.castellan-ca.pem\" && echo trusted"
}
