package main

import (
	"encoding/json"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"castellan/internal/catalog/facts"
	"castellan/internal/cli"
	"castellan/internal/lab"
)

// labCommand serves a simulated site for tests of any Proxmox client. The first line on stdout is JSON.
func (a *app) labCommand() *cobra.Command {
	var listen, site, release, faultFile, delays string
	var ill []string
	cmd := &cobra.Command{Use: "lab", Short: "Serve a simulated Proxmox VE site over HTTPS", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		host, _, err := net.SplitHostPort(listen)
		if err != nil {
			return cli.Usage{Err: fmt.Errorf("--listen %q: give host:port", listen)}
		}
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			return cli.Usage{Err: fmt.Errorf("--listen %q: the lab has known secrets and listens on loopback only", listen)}
		}
		if delays != "on" && delays != "off" {
			return cli.Usage{Err: fmt.Errorf("--delays %q: on or off", delays)}
		}
		c := lab.Config{Site: site, Version: release, Delays: delays == "on", Facts: facts.Open()}
		if faultFile != "" {
			if c.Faults, err = lab.FaultsFromFile(faultFile); err != nil {
				return err
			}
		}
		for _, text := range ill {
			i, err := lab.ParseIllness(text)
			if err != nil {
				return cli.Usage{Err: err}
			}
			c.Ill = append(c.Ill, i)
		}
		l, err := lab.New(c)
		if err != nil {
			return cli.Usage{Err: err}
		}
		listener, err := net.Listen("tcp", listen)
		if err != nil {
			return fmt.Errorf("listen for the lab: %w", err)
		}
		b, err := json.Marshal(l.Info(listener.Addr().String()))
		if err != nil {
			return err
		}
		fmt.Fprintln(a.out, string(b))
		if a.terminal() {
			fmt.Fprintf(a.err, "\nThe simulated site answers until Ctrl-C. To try castellan on it, in another terminal:\n  castellan init --address %s\nThe login is root@pam with the password labroot123.\n", listener.Addr())
		}
		return l.Serve(cmd.Context(), listener)
	}}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "loopback address and port; port 0 takes a free one")
	cmd.Flags().StringVar(&site, "site", "small", "small, rig, 2000 or 10000")
	cmd.Flags().StringVar(&release, "release", "9", "Proxmox VE 8 or 9")
	cmd.Flags().StringVar(&faultFile, "faults", "", "JSON file of scripted faults")
	cmd.Flags().StringArrayVar(&ill, "ill", nil, "make a running guest ill: GUEST=cpu, memory, disk or full; again for others")
	cmd.Flags().StringVar(&delays, "delays", "on", "on: tasks take their time; off: everything is over at once")
	return cmd
}
