package main

import (
	"context"
	"fmt"

	"castellan/internal/console"
	"castellan/internal/identity"
	"castellan/internal/proxmox"
)

// newConsole makes the pages for people.
func (d *daemon) newConsole() (*console.Console, error) {
	h := d.house
	return console.New(console.Config{Gate: h.gate, People: h.people, Ways: d.set.Identity, OAuth: h.clients, Settings: h.runtime, Switches: h.gate,
		PublicURL: h.url, OneAccount: !d.watch.separate().OK, Log: d.log})
}

// realm logs people in at a target.
type realm struct{ client *proxmox.Client }

var _ identity.Realm = realm{}

// Login tries a password and a second factor.
func (r realm) Login(ctx context.Context, target, user, password, code string) (string, error) {
	id, err := r.client.LogIn(ctx, target, user, password, code)
	if proxmox.Refused(err) {
		return "", fmt.Errorf("%w: %w", identity.ErrRealmRefused, err)
	}
	return id, err
}
