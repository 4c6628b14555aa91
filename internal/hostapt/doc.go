// Package hostapt looks after the packages of the Proxmox host that it runs on: what a full upgrade would do, as apt itself
// says; what of that is not to be done on a host; and the upgrade of exactly what was asked for.
//
// It runs as root, starts the host's own programs without a shell between, and believes nobody who asks: the transaction is
// always recomputed, and what differs from it, or would take away what makes the machine a Proxmox host, is refused.
package hostapt
