package main

import (
	"fmt"
	"slices"
	"strings"

	"castellan/internal/proxmox"
	"castellan/internal/seal"
)

// look are the privileges of reading, on PVE 8 and 9 alike.
const lookRole = "PVEAuditor"

// privileges of each capability, by names that PVE 8 and 9 both know; those of PVE 9 alone stand in newer.
var privileges = map[string][]string{
	"power":         {"VM.PowerMgmt"},
	"snapshot":      {"VM.Snapshot"},
	"rollback":      {"VM.Snapshot", "VM.Snapshot.Rollback"},
	"backup":        {"VM.Backup", "Datastore.AllocateSpace"},
	"config":        {"VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Cloudinit", "VM.Config.Disk", "VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options", "SDN.Use", "Datastore.AllocateSpace"},
	"create":        {"VM.Allocate", "VM.Clone", "VM.Config.Disk", "VM.Config.Network", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.Options", "VM.Config.HWType", "Datastore.AllocateSpace", "SDN.Use"},
	"migrate":       {"VM.Migrate"},
	"destroy":       {"VM.Allocate", "Datastore.Allocate"},
	"delete_config": {"Sys.Modify", "Datastore.Allocate", "Pool.Allocate"},
	"settings":      {"Sys.Modify", "Pool.Allocate", "Datastore.Allocate"},
	"network":       {"Sys.Modify", "SDN.Allocate", "VM.Config.Network"},
	"guard":         {"Sys.Modify", "Sys.Console", "VM.Config.Options"},
	"host":          {"Sys.PowerMgmt", "Sys.Modify", "Sys.Console"},
	"file":          {"Datastore.AllocateTemplate", "Datastore.AllocateSpace"},
	"send":          {"Sys.AccessNetwork", "Mapping.Use", "Sys.Modify"},
	"secrets":       {"Sys.Modify", "User.Modify"},
	"access":        {"Permissions.Modify", "User.Modify", "Group.Allocate", "Realm.Allocate", "Realm.AllocateUser", "Sys.Modify"},
	"console":       {"VM.Console", "Sys.Console"},
	"license":       {"Sys.Modify"},
	"expose":        {"Sys.Modify", "Sys.Syslog"},
	"governs":       {"Permissions.Modify"},
	"exec":          {"VM.Config.Options"},
}

var newer = map[string][]string{"exec": {"VM.GuestAgent.Unrestricted"}}

func privilegesOf(capabilities []string) (both, nine []string) {
	for _, c := range capabilities {
		both = append(both, privileges[c]...)
		nine = append(nine, newer[c]...)
	}
	slices.Sort(both)
	slices.Sort(nine)
	return slices.Compact(both), slices.Compact(nine)
}

// firstGrants are the lines that make user, role and token for exactly these capabilities. With privilege separation
// the token has only what its user has too, so both are granted.
func firstGrants(token string, capabilities []string) []string {
	user, id, _ := strings.Cut(token, "!")
	roles := lookRole
	out := []string{fmt.Sprintf("pveum user add %s --comment castellan", user)}
	both, nine := privilegesOf(capabilities)
	if len(both) > 0 {
		roles += ",Castellan"
		out = append(out, fmt.Sprintf("pveum role add Castellan --privs %q", strings.Join(both, " ")))
	}
	if len(nine) > 0 {
		out = append(out, fmt.Sprintf("pveum role modify Castellan --append 1 --privs %q   # Proxmox VE 9 and later", strings.Join(nine, " ")))
	}
	return append(out,
		fmt.Sprintf("pveum acl modify / --users %s --roles %s", user, roles),
		fmt.Sprintf("pveum user token add %s %s --privsep 1", user, id),
		fmt.Sprintf("pveum acl modify / --tokens '%s' --roles %s", token, roles))
}

// pveumLines add the privileges of capabilities to what is granted already; none when nothing is missing.
func pveumLines(token string, capabilities []string, granted map[string]bool) []string {
	user, _, _ := strings.Cut(token, "!")
	both, nine := privilegesOf(capabilities)
	there := func(p string) bool { return granted[p] }
	both, nine = slices.DeleteFunc(both, there), slices.DeleteFunc(nine, there)
	if len(both)+len(nine) == 0 {
		return nil
	}
	var out []string
	if len(both) > 0 {
		p := strings.Join(both, " ")
		out = append(out, fmt.Sprintf("pveum role modify Castellan --append 1 --privs %q || pveum role add Castellan --privs %q", p, p))
	}
	if len(nine) > 0 {
		out = append(out, fmt.Sprintf("pveum role modify Castellan --append 1 --privs %q   # Proxmox VE 9 and later", strings.Join(nine, " ")))
	}
	return append(out, fmt.Sprintf("pveum acl modify / --users %s --roles %s,Castellan", user, lookRole),
		fmt.Sprintf("pveum acl modify / --tokens '%s' --roles %s,Castellan", token, lookRole))
}

// tokenOf is the token id of a target, for printing; the secret never comes near.
func (a *app) tokenOf(t proxmox.Target) string {
	if strings.Contains(t.TokenID, "!") {
		return t.TokenID
	}
	if t.TokenID != "" && t.User != "" {
		return t.User + "!" + t.TokenID
	}
	if s, err := seal.Open(t.TokenFile); err == nil {
		if id, _, ok := strings.Cut(s.Reveal(), "="); ok {
			return id
		}
	}
	return "castellan@pve!castellan"
}
