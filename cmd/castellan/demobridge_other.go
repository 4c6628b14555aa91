//go:build !linux

package main

import (
	"context"
	"errors"

	"castellan/internal/guest"
	"castellan/internal/lab"
)

// demoBridge says that nodes run Linux.
func (a *app) demoBridge(context.Context, string, *lab.Lab) (guest.BridgeSettings, func(), error) {
	return guest.BridgeSettings{}, nil, errors.New("the bridge is for Proxmox nodes, which are Linux; this system is another")
}
