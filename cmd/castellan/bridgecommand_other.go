//go:build !linux

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// bridgeCommand says that nodes run Linux.
func (a *app) bridgeCommand() *cobra.Command {
	return &cobra.Command{Use: "bridge", Short: "On a Proxmox node: run probes, commands and scripts for castellan", RunE: func(*cobra.Command, []string) error {
		return errors.New("the bridge runs on a Proxmox node, which is Linux")
	}}
}
