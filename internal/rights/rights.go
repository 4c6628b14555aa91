// Package rights knows which privileges Proxmox VE asks for, by kind of change, version and path, and writes the commands
// and requests that give them: the narrowest, to a user and to its token.
package rights

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"castellan/internal/regex"
)

// Version of Proxmox VE; the zero value is unknown.
type Version struct{ Major, Minor int }

// Versions are those whose privileges are known here.
func Versions() []Version { return []Version{{Major: 8, Minor: 4}, {Major: 9, Minor: 2}} }

var versionForm = &regex.Lazy{Expr: `^(\d{1,3})(?:\.(\d{1,4}))?`}

// ParseVersion reads what a server says of itself: 9.0.0~11, 9.1.4, 8.4-1.
func ParseVersion(text string) (Version, error) {
	m := versionForm.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return Version{}, fmt.Errorf("parse version: %.40q is none", text)
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return Version{Major: major, Minor: minor}, nil
}

// Known says whether the privileges of this version are known; those of a later one are taken to be as the newest here.
func (v Version) Known() bool { return v.Major == 8 || v.Major == 9 }

// String is "9.2", or "unknown".
func (v Version) String() string {
	if v.Major == 0 {
		return "unknown"
	}
	return fmt.Sprintf("%d.%d", v.Major, v.Minor)
}

// Place is a part of the tree of access-control paths.
type Place string

// The places. PlaceSite is the path / itself: what is given there is not passed on to the others.
const (
	PlaceSite    Place = "site"
	PlaceGuests  Place = "guests"
	PlaceStorage Place = "storage"
	PlaceNetwork Place = "network"
	PlaceNodes   Place = "nodes"
	PlaceMapping Place = "mapping"
	PlaceAccess  Place = "access"
	PlacePools   Place = "pools"
)

// Places lists them in the order of printing.
func Places() []Place {
	return []Place{PlaceSite, PlaceGuests, PlaceStorage, PlaceNetwork, PlaceNodes, PlaceMapping, PlaceAccess, PlacePools}
}

// Path is the access-control path of a whole place.
func (p Place) Path() string {
	switch p {
	case PlaceGuests:
		return "/vms"
	case PlaceStorage:
		return "/storage"
	case PlaceNetwork:
		return "/sdn"
	case PlaceNodes:
		return "/nodes"
	case PlaceMapping:
		return "/mapping"
	case PlaceAccess:
		return "/access"
	case PlacePools:
		return "/pool"
	}
	return "/"
}

// PlaceOf is the place that a path lies in.
func PlaceOf(path string) Place {
	for _, p := range Places() {
		if p != PlaceSite && (path == p.Path() || strings.HasPrefix(path, p.Path()+"/")) {
			return p
		}
	}
	return PlaceSite
}

// Right is one privilege at one place.
type Right struct {
	Privilege string
	Place     Place
}

// Privileges lists what a version of Proxmox VE has; nil for a version that is not known.
func Privileges(v Version) []string {
	if v.Major == 0 {
		return nil
	}
	out := strings.Fields(`Datastore.Allocate Datastore.AllocateSpace Datastore.AllocateTemplate Datastore.Audit Group.Allocate
Mapping.Audit Mapping.Modify Mapping.Use Permissions.Modify Pool.Allocate Pool.Audit Realm.Allocate Realm.AllocateUser SDN.Allocate SDN.Audit
SDN.Use Sys.AccessNetwork Sys.Audit Sys.Console Sys.Incoming Sys.Modify Sys.PowerMgmt Sys.Syslog User.Modify VM.Allocate VM.Audit VM.Backup
VM.Clone VM.Config.CDROM VM.Config.CPU VM.Config.Cloudinit VM.Config.Disk VM.Config.HWType VM.Config.Memory VM.Config.Network
VM.Config.Options VM.Console VM.Migrate VM.PowerMgmt VM.Snapshot VM.Snapshot.Rollback`)
	if v.Major < 9 {
		out = append(out, "VM.Monitor")
	} else {
		out = append(out, "VM.GuestAgent.Audit", "VM.GuestAgent.FileRead", "VM.GuestAgent.FileSystemMgmt", "VM.GuestAgent.FileWrite", "VM.GuestAgent.Unrestricted", "VM.Replicate")
	}
	slices.Sort(out)
	return out
}

// on gives a privilege its name in a version; "" where that version asks for nothing of the kind.
func on(privilege string, v Version) string {
	switch {
	case v.Major != 8:
		return privilege
	case strings.HasPrefix(privilege, "VM.GuestAgent."):
		return "VM.Monitor" // one privilege for all of the agent
	case privilege == "VM.Replicate":
		return "" // replication asked for storage rights only
	}
	return privilege
}

// Auditor is the built-in role that reads everything, on 8 and 9 alike.
const Auditor = "PVEAuditor"

// auditing are the privileges of that role.
func auditing(v Version) []string {
	out := []string{"Datastore.Audit", "Mapping.Audit", "Pool.Audit", "SDN.Audit", "Sys.Audit", "VM.Audit"}
	if v.Major != 8 {
		out = append(out, "VM.GuestAgent.Audit")
	}
	return out
}
