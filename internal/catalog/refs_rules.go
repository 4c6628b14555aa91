package catalog

import "castellan/internal/gate"

// refKind says what a value refers to; the zero value means that it refers to nothing.
type refKind string

// Besides the kinds of objects, some values hold several objects in one.
const (
	refGuest    refKind = refKind(gate.ObjectGuest)
	refVolume   refKind = refKind(gate.ObjectVolume)
	refStorage  refKind = refKind(gate.ObjectStorage)
	refNode     refKind = refKind(gate.ObjectNode)
	refBridge   refKind = refKind(gate.ObjectBridge)
	refPool     refKind = refKind(gate.ObjectPool)
	refUser     refKind = refKind(gate.ObjectUser)
	refZone     refKind = refKind(gate.ObjectZone)
	refTag      refKind = refKind(gate.ObjectTag)
	refACL      refKind = refKind(gate.ObjectACL)
	refRemote   refKind = "remote"   // another site: a PDM or PBS remote, the far end of a migration
	refHA       refKind = "ha"       // vm:100, or a guest id
	refJob      refKind = "job"      // a replication job, 100-0
	refPairs    refKind = "storages" // from:to pairs of storages
	refBridges  refKind = "bridges"  // from:to pairs of bridges
	refMapping  refKind = "mapping"  // a resource mapping, by its ACL path
	refToken    refKind = "token"    // a token's name below the user of the path
	refSnapshot refKind = "backup"   // store:type/id/time
	refBatch    refKind = "batch"    // nested calls
	refAll      refKind = "all"      // a switch that means everything
	refTask     refKind = "task"     // a UPID: its node and its guest
)

// refFormats are the named formats that refer to something.
var refFormats = map[string]refKind{
	"pve-vmid": refGuest, "pve-node": refNode, "pve-ha-node": refNode, "pve-storage-id": refStorage, "pve-bridge-id": refBridge,
	"pve-poolid": refPool, "pve-userid": refUser, "pmg-userid": refUser, "pve-groupid": refUser, "pve-roleid": refUser, "pve-realm": refUser,
	"pmg-realm": refUser, "pve-tokenid": refUser, "role": refUser, "pve-tag": refTag,
	"pve-volume-id": refVolume, "pve-volume-id-or-qm-path": refVolume, "pve-volume-id-or-absolute-path": refVolume,
	"pve-ha-resource-or-vm-id": refHA, "pve-ha-resource-id": refHA, "pve-replication-job-id": refJob,
	"storage-pair": refPairs, "bridge-pair": refBridges, "pve-sdn-fabric-id": refZone, "pve-sdn-subnet-id": refZone,
	"tape-snapshot": refSnapshot, "pve-command-batch": refBatch,
}

// refNames are the names that refer to something wherever no more special rule says otherwise, by the last part of
// a template. They serve where the description names no format.
var refNames = map[string]refKind{
	"vmid": refGuest, "vms": refGuest, "newid": refGuest, "target-vmid": refGuest, "guest": refGuest,
	"node": refNode, "nodes": refNode, "target_node": refNode, "target-node": refNode, "node_id": refNode, "check-node": refNode, "node-list": refNode,
	"storage": refStorage, "storages": refStorage, "store": refStorage, "datastore": refStorage, "target-storage": refPairs, "targetstorage": refPairs,
	"bridge": refBridge, "vnet": refBridge, "iface": refBridge, "target-bridge": refBridges, "bridge_ports": refBridge, "slaves": refBridge, "ovs_bridge": refBridge,
	"vlan-raw-device": refBridge, "bond-primary": refBridge, "ovs_ports": refBridge, "ovs_bonds": refBridge, "bridges": refBridge, "interfaces.name": refBridge,
	"pool": refPool, "poolid": refPool,
	"userid": refUser, "username": refUser, "users": refUser, "user": refUser, "groups": refUser, "groupid": refUser, "group": refUser, "roles": refUser,
	"roleid": refUser, "role": refUser, "realm": refUser, "auth-id": refUser, "authid": refUser, "owner": refUser, "new-owner": refUser, "notify-user": refUser,
	"tokens": refUser, "mailto-user": refUser, "userfilter": refUser,
	"tokenid": refToken, "token-name": refToken,
	"volume": refVolume, "ostemplate": refVolume, "archive": refVolume, "zone": refZone, "tags": refTag,
	"remote": refRemote, "remotes": refRemote, "target-endpoint": refRemote, "sid": refHA, "resources": refHA, "resource": refHA,
	"upid": refTask, "mapping": refMapping, "dirid": refMapping, "pci-id-or-mapping": refMapping,
}

// refRule is a reviewed rule for one place; it wins over formats and names.
type refRule struct {
	product, path, param string // path: holds this text; "" = anywhere
	kind                 refKind
	use                  gate.Use // "" = as the kind usually is
}

// refRules are read in order; the first that fits decides. An empty kind says that the value refers to nothing.
var refRules = []refRule{
	{"", "/access/acl", "path", refACL, gate.UseActs},
	{"", "/access/permissions", "path", refACL, gate.UseNames},
	{"pve", "/pools", "vms", refGuest, gate.UseActs},
	{"pve", "/pools", "storage", refStorage, gate.UseActs},
	{"pve", "/pools", "type", "", ""},
	{"pve", "/cluster/backup", "id", "", ""},
	{"pve", "/vzdump", "all", refAll, ""},
	{"pve", "/cluster/backup", "all", refAll, ""},
	{"pve", "/vzdump", "pool", refPool, gate.UseActs},
	{"pve", "/cluster/backup", "pool", refPool, gate.UseActs},
	{"pve", "/vzdump", "exclude", refGuest, gate.UseNames},
	{"pve", "/cluster/backup", "exclude", refGuest, gate.UseNames},
	{"pve", "/cluster/nextid", "vmid", refGuest, gate.UseNames},
	{"pve", "/cluster/replication", "target", refNode, gate.UseNames},
	{"pve", "/cluster/replication", "source", refNode, gate.UseNames},
	{"pve", "/cluster/mapping/pci/", "id", refMapping, gate.UseActs},
	{"pve", "/cluster/mapping/", "id", refMapping, gate.UseActs},
	{"pve", "/cluster/mapping/", "map.path", "", ""},
	{"pve", "/cluster/sdn/fabrics/fabric", "id", refZone, gate.UseActs},
	{"pve", "/cluster/sdn/fabrics", "interfaces", refBridge, ""},
	{"pve", "/cluster/sdn/zones", "zone", refZone, gate.UseActs},
	{"pve", "/cluster/sdn/vnets", "vnet", refBridge, gate.UseActs},
	{"pve", "/cluster/sdn", "controller", refZone, ""},
	{"pve", "/cluster/sdn", "secondary-controllers", refZone, gate.UseNames},
	{"pve", "/cluster/sdn", "exitnodes-primary", refNode, gate.UseNames},
	{"pve", "/cluster/sdn", "exitnodes", refNode, gate.UseNames},
	{"pve", "/cluster/sdn", "isis-ifaces", refBridge, gate.UseNames},
	{"pve", "/cluster/sdn", "peers.node", refNode, gate.UseNames},
	{"pve", "/cluster/firewall/groups", "group", "", ""},
	{"pve", "/firewall/", "iface", "", ""}, // in a rule: net0, or an interface of the node that the path names
	{"pve", "/cluster/ha/groups", "group", "", ""},
	{"pve", "/cluster/ha/resources", "group", "", ""},
	{"pve", "/cluster/config/nodes", "node", refNode, gate.UseActs},
	{"pve", "/cluster/config", "clustername", "", ""},
	{"pve", "/cluster/qemu/custom-cpu-models", "cputype", "", ""},
	{"pve", "/storage", "nodes", refNode, gate.UseNames},
	{"pve", "/storage", "username", "", ""}, // an account of the storage server
	{"pve", "/storage", "pool", "", ""},     // a ZFS or Ceph pool
	{"pve", "/storage", "datastore", "", ""},
	{"pve", "/storage", "base", refVolume, gate.UseNames},
	{"pve", "/ceph/", "name", "", ""},
	{"pve", "/scan/", "username", "", ""},
	{"pve", "/disks/", "name", "", ""},
	{"pve", "/migrate", "target", refNode, gate.UseNames},
	{"pve", "/clone", "target", refNode, gate.UseNames},
	{"pve", "/nodes/{node}/storage/{storage}/content/{volume}", "target", refVolume, gate.UseActs},
	{"pve", "/nodes/{node}/storage/{storage}/content/{volume}", "target_node", refNode, gate.UseNames},
	{"pve", "/nodes/{node}/storage", "target", refNode, gate.UseNames},
	{"pve", "/nodes/{node}/storage", "filename", "", ""},
	{"pve", "/status/start", "migratedfrom", refNode, gate.UseNames},
	{"pve", "/access/tfa", "id", "", ""},
	{"pve", "/agent/set-user-password", "username", "", ""}, // an account inside the guest
	{"pve", "/access/domains", "group_name_attr", "", ""},
	{"pve", "/capabilities/qemu", "node", refNode, ""},
	{"pve", "/mtunnel", "storages", refStorage, gate.UseNames},
	{"pve", "/mtunnel", "bridges", refBridge, gate.UseNames},
	{"", "/notifications/", "target", "", ""}, // names of notification endpoints
	{"", "/notifications/", "username", "", ""},
	{"", "", "lock-token", "", ""}, // shows who holds a lock
	{"", "", "token", "", ""},      // the credential itself
	{"", "", "create-token", "", ""},
	{"pdm", "", "authorized-tokens", "", ""},  // tokens of the installer, not of users
	{"pdm", "", "network_interfaces", "", ""}, // of a machine that is being installed
	{"pdm", "", "network-interfaces", "", ""},
	{"pve", "", "target-volume", "", ""}, // a key of the target's configuration, mp1
	{"pve", "", "registered-tags", refTag, gate.UseActs},
	{"pve", "", "rng0.source", "", ""},
	{"pve", "", "redistribute.source", "", ""},
	{"pve", "", "ballooning-target", "", ""},
	{"pve", "", "peers.node_iface", refBridge, gate.UseNames},
	{"pve", "/storage", "target", "", ""},    // an iSCSI target
	{"pve", "/storage", "data-pool", "", ""}, // a Ceph pool
	{"pbs", "/tape/restore", "namespaces.source", "", ""},
	{"pbs", "/tape/restore", "namespaces.target", "", ""},
	{"pmg", "", "target", "", ""}, // a mail address
	{"pmg", "", "autocreate-role", refUser, gate.UseNames},
	{"pmg", "", "autocreate-role-assignment.fixed-role", refUser, gate.UseNames},
	{"pmg", "", "autocreate-role-assignment.source", "", ""},
	{"pve", "/metrics/", "path", "", ""},
	{"pve", "/cluster/metrics/export", "node-list", refNode, gate.UseNames},
	{"pve", "", "volume-group", "", ""},
	{"pve", "", "source", "", ""}, // an address in firewall rules, a task source in task lists
	{"pve", "", "features.mount", "", ""},
	{"pve", "", "hostpci[n].host", "", ""},
	{"pve", "", "statestorage", refStorage, gate.UseNames},
	{"pve", "", "vmstatestorage", refStorage, gate.UseNames},
	{"pve", "", "import-working-storage", refStorage, gate.UseNames},
	{"pve", "", "fleecing.storage", refStorage, gate.UseNames},
	{"pve", "", "wakeonlan.bind-interface", refBridge, gate.UseNames},
	{"pve", "", "mp[n].volume", refVolume, gate.UseNames},
	{"pve", "", "rootfs.volume", refVolume, gate.UseNames},
	{"pve", "", "net[n].name", "", ""}, // the interface's name inside the container
	{"pve", "", "virtiofs[n].dirid", refMapping, gate.UseNames},
	{"pbs", "/config/datastore", "name", refStorage, gate.UseActs},
	{"pbs", "", "group-filter", "", ""},
	{"pbs", "", "pool", "", ""}, // a pool of tape media
	{"pbs", "/media-pool", "name", "", ""},
	{"pbs", "/config/remote", "name", refRemote, gate.UseActs},
	{"pbs", "/config/remote", "auth-id", "", ""}, // an account of the remote
	{"pbs", "", "remote-store", "", ""},          // a datastore of the remote
	{"pbs", "/tape/restore", "store", refStorage, gate.UseActs},
	{"pbs", "/traffic-control", "users", refUser, gate.UseNames},
	{"pmg", "/config/ruledb", "group", "", ""}, // an LDAP group in a filter rule
	{"pmg", "/config/fetchmail", "user", "", ""},
	{"pmg", "/config/pbs", "username", "", ""},
	{"pmg", "/config/pbs", "datastore", "", ""},
	{"pmg", "/config/pbs", "remote", refRemote, gate.UseActs},
	{"pmg", "/config/cluster", "name", refNode, gate.UseActs},
	{"pdm", "/remotes/remote", "id", refRemote, gate.UseActs},
	{"pdm", "/remotes/remote", "authid", "", ""}, // an account of the remote
	{"pdm", "/scan", "authid", "", ""},
	{"pdm", "/remotes/remote", "nodes", "", ""},
	{"pdm", "/sdn/", "remotes.remote", refRemote, gate.UseActs},
	{"pdm", "/sdn/", "remotes.zone", refZone, gate.UseActs},
	{"pdm", "/sdn/", "remotes.controller", refZone, gate.UseNames},
	{"pdm", "/remote-migrate", "target", refRemote, gate.UseNames},
	{"pdm", "/migrate", "target", refNode, gate.UseNames},
	{"pdm", "/nodes/{node}/storage", "target", refNode, gate.UseNames},
	{"pdm", "/subscriptions", "proposal.assignments.node", refNode, gate.UseActs},
	{"pdm", "/subscriptions", "proposal.assignments.remote", refRemote, gate.UseActs},
	{"pdm", "/nodes/{node}/network", "slaves", refBridge, ""},
}
