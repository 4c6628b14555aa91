package lab

import "castellan/internal/catalog/facts"

// pveHandlers binds operations to their models; what is not here is a generic store or says so.
func pveHandlers(ops []*facts.Operation) map[*facts.Operation]handler {
	all := map[string]handler{}
	for _, m := range []map[string]handler{clusterHandlers(), accessHandlers(), nodeHandlers(), storageHandlers(), firewallHandlers(), sdnHandlers(), haHandlers(), guestHandlers(), readHandlers(), writeHandlers()} {
		for k, h := range m {
			all[k] = h
		}
	}
	out := make(map[*facts.Operation]handler, len(all))
	for _, op := range ops {
		if h := all[op.Method+" "+op.Path]; h != nil {
			out[op] = h
			delete(all, op.Method+" "+op.Path)
		}
	}
	return out
}

func clusterHandlers() map[string]handler {
	return map[string]handler{
		"GET /version": version, "GET /cluster/resources": clusterResources, "GET /cluster/status": clusterStatus, "GET /cluster/nextid": nextID,
		"GET /cluster/options": clusterOptions, "PUT /cluster/options": setClusterOptions, "GET /cluster/log": clusterLog, "GET /cluster/tasks": clusterTasks,
		"GET /cluster/config/nodes": corosyncNodes, "GET /cluster/config/totem": totem, "GET /cluster/config/join": joinInfo,
		"GET /cluster/backup": listJobs, "POST /cluster/backup": createJob, "GET /cluster/backup/{id}": getJob, "PUT /cluster/backup/{id}": updateJob, "DELETE /cluster/backup/{id}": deleteJob,
		"GET /cluster/backup/{id}/included_volumes": includedVolumes, "GET /cluster/backup-info/not-backed-up": notBackedUp, "GET /cluster/jobs/schedule-analyze": scheduleAnalyze,
		"GET /cluster/replication": listRepl, "POST /cluster/replication": createRepl, "GET /cluster/replication/{id}": getRepl, "PUT /cluster/replication/{id}": updateRepl, "DELETE /cluster/replication/{id}": deleteRepl,
		"POST /cluster/bulk-action/guest/start": bulk("bulk-start", "VM.PowerMgmt", "Starting", actStart), "POST /cluster/bulk-action/guest/shutdown": bulk("bulk-shutdown", "VM.PowerMgmt", "Stopping", actStop),
		"POST /cluster/bulk-action/guest/suspend": bulk("bulk-suspend", "VM.PowerMgmt", "Suspending", actSuspend), "POST /cluster/bulk-action/guest/migrate": bulk("bulk-migrate", "VM.Migrate", "Migrating", actMigrate),
	}
}

func accessHandlers() map[string]handler {
	return map[string]handler{
		"GET /access": accessIndex, "POST /access/ticket": login, "PUT /access/password": changePassword, "GET /access/permissions": listPermissions,
		"GET /access/domains": listDomains, "POST /access/domains": createDomain, "GET /access/domains/{realm}": getDomain, "PUT /access/domains/{realm}": updateDomain, "DELETE /access/domains/{realm}": deleteDomain,
		"GET /access/users": listUsers, "POST /access/users": createUser, "GET /access/users/{userid}": getUser, "PUT /access/users/{userid}": updateUser, "DELETE /access/users/{userid}": deleteUser,
		"GET /access/users/{userid}/token": listTokens, "GET /access/users/{userid}/token/{tokenid}": getToken, "POST /access/users/{userid}/token/{tokenid}": createToken,
		"PUT /access/users/{userid}/token/{tokenid}": updateToken, "DELETE /access/users/{userid}/token/{tokenid}": deleteToken,
		"GET /access/groups": listGroups, "POST /access/groups": createGroup, "GET /access/groups/{groupid}": getGroup, "PUT /access/groups/{groupid}": updateGroup, "DELETE /access/groups/{groupid}": deleteGroup,
		"GET /access/roles": listRoles, "POST /access/roles": createRole, "GET /access/roles/{roleid}": getRole, "PUT /access/roles/{roleid}": updateRole, "DELETE /access/roles/{roleid}": deleteRole,
		"GET /access/acl": listACL, "PUT /access/acl": setACL,
		"GET /pools": listPools, "POST /pools": createPool, "PUT /pools": updatePool, "DELETE /pools": deletePool,
		"GET /pools/{poolid}": getPool, "PUT /pools/{poolid}": updatePool, "DELETE /pools/{poolid}": deletePool,
	}
}

func nodeHandlers() map[string]handler {
	m := map[string]handler{
		"GET /nodes": listNodes, "GET /nodes/{node}/status": nodeStatus, "GET /nodes/{node}/version": version, "GET /nodes/{node}/time": nodeTime, "PUT /nodes/{node}/time": setNodeTime,
		"GET /nodes/{node}/dns": nodeDNS, "PUT /nodes/{node}/dns": setNodeDNS, "GET /nodes/{node}/hosts": nodeHosts, "POST /nodes/{node}/hosts": setNodeHosts,
		"GET /nodes/{node}/config": nodeConfig, "PUT /nodes/{node}/config": setNodeConfig, "GET /nodes/{node}/subscription": nodeSubscription,
		"GET /nodes/{node}/network": listNetwork, "POST /nodes/{node}/network": createIface, "PUT /nodes/{node}/network": applyNetwork, "DELETE /nodes/{node}/network": revertNetwork,
		"GET /nodes/{node}/network/{iface}": getIface, "PUT /nodes/{node}/network/{iface}": updateIface, "DELETE /nodes/{node}/network/{iface}": deleteIface,
		"GET /nodes/{node}/services": listServices, "GET /nodes/{node}/services/{service}/state": serviceState,
		"GET /nodes/{node}/tasks": nodeTasks, "GET /nodes/{node}/tasks/{upid}": taskIndex, "GET /nodes/{node}/tasks/{upid}/status": taskStatus, "GET /nodes/{node}/tasks/{upid}/log": taskLog, "DELETE /nodes/{node}/tasks/{upid}": taskStop,
		"GET /nodes/{node}/rrddata": rrdData, "GET /nodes/{node}/syslog": syslog, "GET /nodes/{node}/journal": journal, "GET /nodes/{node}/netstat": netstat,
		"GET /nodes/{node}/disks/list": disksList, "GET /nodes/{node}/replication": nodeRepl, "GET /nodes/{node}/sdn/zones": nodeSDNZones,
		"POST /nodes/{node}/termproxy": console, "POST /nodes/{node}/vncshell": console,
		"POST /nodes/{node}/startall": bulk("startall", "VM.PowerMgmt", "Starting", actStart), "POST /nodes/{node}/stopall": bulk("stopall", "VM.PowerMgmt", "Stopping", actStop),
		"POST /nodes/{node}/suspendall": bulk("suspendall", "VM.PowerMgmt", "Suspending", actSuspend), "POST /nodes/{node}/migrateall": bulk("migrateall", "VM.Migrate", "Migrating", actMigrate),
		"POST /nodes/{node}/vzdump": vzdump, "GET /nodes/{node}/vzdump/defaults": vzdumpDefaults, "GET /nodes/{node}/vzdump/extractconfig": extractConfig,
	}
	for _, v := range []string{"start", "stop", "restart", "reload"} {
		m["POST /nodes/{node}/services/{service}/"+v] = serviceCommand(v)
	}
	return m
}

func storageHandlers() map[string]handler {
	const n = "/nodes/{node}/storage/{storage}"
	return map[string]handler{
		"GET /storage": listStorageConf, "POST /storage": createStorage, "GET /storage/{storage}": getStorageConf, "PUT /storage/{storage}": updateStorage, "DELETE /storage/{storage}": deleteStorage,
		"GET /nodes/{node}/storage": nodeStorageList, "GET " + n + "/status": nodeStorageStatus, "GET " + n + "/content": storageContent, "POST " + n + "/content": allocVolume,
		"GET " + n + "/content/{volume}": volumeInfo, "PUT " + n + "/content/{volume}": updateVolume, "DELETE " + n + "/content/{volume}": deleteVolume,
		"GET " + n + "/file-restore/list": listBackupFiles, "GET " + n + "/file-restore/download": downloadBackupFile, "POST " + n + "/upload": uploadFile, "POST " + n + "/download-url": downloadURL, "GET " + n + "/prunebackups": pruneDryRun, "DELETE " + n + "/prunebackups": pruneNow, "GET " + n + "/rrddata": rrdData,
	}
}

func firewallHandlers() map[string]handler {
	m := map[string]handler{
		"GET /cluster/firewall/groups": listFWGroups, "POST /cluster/firewall/groups": createFWGroup, "DELETE /cluster/firewall/groups/{group}": deleteFWGroup,
		"GET /cluster/firewall/groups/{group}": listRules, "POST /cluster/firewall/groups/{group}": createRule,
		"GET /cluster/firewall/groups/{group}/{pos}": getRule, "PUT /cluster/firewall/groups/{group}/{pos}": updateRule, "DELETE /cluster/firewall/groups/{group}/{pos}": deleteRule,
		"GET /cluster/firewall/macros": listMacros,
	}
	for _, p := range []string{"/cluster/firewall", "/nodes/{node}/firewall", "/nodes/{node}/qemu/{vmid}/firewall", "/nodes/{node}/lxc/{vmid}/firewall", "/cluster/sdn/vnets/{vnet}/firewall"} {
		m["GET "+p+"/rules"], m["POST "+p+"/rules"] = listRules, createRule
		m["GET "+p+"/rules/{pos}"], m["PUT "+p+"/rules/{pos}"], m["DELETE "+p+"/rules/{pos}"] = getRule, updateRule, deleteRule
		m["GET "+p+"/options"], m["PUT "+p+"/options"] = fwOptions, setFWOptions
		m["GET "+p+"/aliases"], m["POST "+p+"/aliases"] = listAliases, createAlias
		m["GET "+p+"/aliases/{name}"], m["PUT "+p+"/aliases/{name}"], m["DELETE "+p+"/aliases/{name}"] = getAlias, updateAlias, deleteAlias
		m["GET "+p+"/ipset"], m["POST "+p+"/ipset"] = listIPSets, createIPSet
		m["GET "+p+"/ipset/{name}"], m["POST "+p+"/ipset/{name}"], m["DELETE "+p+"/ipset/{name}"] = listMembers, addMember, deleteIPSet
		m["GET "+p+"/ipset/{name}/{cidr}"], m["PUT "+p+"/ipset/{name}/{cidr}"], m["DELETE "+p+"/ipset/{name}/{cidr}"] = getMember, updateMember, deleteMember
		m["GET "+p+"/refs"] = fwRefs
		m["GET "+p+"/log"] = syslogEmpty
	}
	return m
}

func syslogEmpty(c *call) (any, error) {
	return &result{data: []M{{"n": 1, "t": "no content"}}, total: 1}, nil
}

func sdnHandlers() map[string]handler {
	m := map[string]handler{"GET /cluster/sdn": sdnIndex, "PUT /cluster/sdn": applySDN, "POST /cluster/sdn/rollback": rollbackSDN}
	for _, p := range []string{"/cluster/sdn/zones|{zone}", "/cluster/sdn/vnets|{vnet}", "/cluster/sdn/vnets/{vnet}/subnets|{subnet}", "/cluster/sdn/controllers|{controller}", "/cluster/sdn/ipams|{ipam}", "/cluster/sdn/dns|{dns}"} {
		coll, item := splitAt(p, "|")
		m["GET "+coll], m["POST "+coll] = listSDN, createSDN
		m["GET "+coll+"/"+item], m["PUT "+coll+"/"+item], m["DELETE "+coll+"/"+item] = getSDN, updateSDN, deleteSDN
	}
	return m
}

func splitAt(s, sep string) (string, string) {
	a, b, _ := cutLast(s, sep)
	return a, b
}

func haHandlers() map[string]handler {
	return map[string]handler{
		"GET /cluster/ha/resources": listHA, "POST /cluster/ha/resources": createHA, "GET /cluster/ha/resources/{sid}": getHA, "PUT /cluster/ha/resources/{sid}": updateHA, "DELETE /cluster/ha/resources/{sid}": deleteHA,
		"POST /cluster/ha/resources/{sid}/migrate": migrateHA, "POST /cluster/ha/resources/{sid}/relocate": migrateHA,
		"GET /cluster/ha/rules": listHARules, "POST /cluster/ha/rules": createHARule, "GET /cluster/ha/rules/{rule}": getHARule, "PUT /cluster/ha/rules/{rule}": updateHARule, "DELETE /cluster/ha/rules/{rule}": deleteHARule,
		"GET /cluster/ha/groups": haGroups, "POST /cluster/ha/groups": haGroups, "GET /cluster/ha/groups/{group}": haGroups, "PUT /cluster/ha/groups/{group}": haGroups, "DELETE /cluster/ha/groups/{group}": haGroups,
		"GET /cluster/ha/status/current": haCurrent, "GET /cluster/ha/status/manager_status": haManager,
	}
}

func guestHandlers() map[string]handler {
	m := map[string]handler{
		"GET /nodes/{node}/qemu": guestList(kindQemu), "GET /nodes/{node}/lxc": guestList(kindLXC), "POST /nodes/{node}/qemu": createVM, "POST /nodes/{node}/lxc": createCT,
	}
	for _, kind := range []string{kindQemu, kindLXC} {
		g := "/nodes/{node}/" + kind + "/{vmid}"
		for k, h := range map[string]handler{
			"DELETE ": destroyGuest, "GET /config": guestConfig, "PUT /config": setGuestConfig, "POST /config": setGuestConfig, "GET /pending": guestPending, "GET /status/current": guestStatus,
			"POST /status/start": startGuest, "POST /status/stop": stopGuest, "POST /status/shutdown": shutdownGuest, "POST /status/reboot": rebootGuest, "POST /status/reset": resetGuest,
			"POST /status/suspend": suspendGuest, "POST /status/resume": resumeGuest, "GET /snapshot": listSnapshots, "POST /snapshot": makeSnapshot, "GET /snapshot/{snapname}": snapshotIndex,
			"DELETE /snapshot/{snapname}": deleteSnapshot, "GET /snapshot/{snapname}/config": snapshotConfig, "PUT /snapshot/{snapname}/config": setSnapshotConfig, "POST /snapshot/{snapname}/rollback": rollbackSnapshot,
			"GET /feature": guestFeature, "POST /clone": cloneGuest, "POST /template": toTemplate, "GET /migrate": migrateCheck, "POST /migrate": migrateGuest, "PUT /resize": resizeDisk, "PUT /unlink": unlinkDisks,
			"POST /move_disk": moveDisk, "POST /move_volume": moveDisk, "GET /rrddata": rrdData, "GET /interfaces": guestInterfaces, "POST /monitor": monitor, "PUT /sendkey": sendKey,
			"POST /termproxy": console, "POST /vncproxy": console,
		} {
			method, path := splitAt(k, " ")
			m[method+" "+g+path] = h
		}
	}
	a := "/nodes/{node}/qemu/{vmid}/agent"
	for _, k := range []string{"fsfreeze-freeze", "fsfreeze-status", "fsfreeze-thaw", "fstrim", "ping", "set-user-password", "shutdown", "suspend-disk", "suspend-hybrid", "suspend-ram"} {
		m["POST "+a+"/"+k] = agentCall
	}
	for _, k := range []string{"get-fsinfo", "get-host-name", "get-memory-block-info", "get-memory-blocks", "get-osinfo", "get-time", "get-timezone", "get-users", "get-vcpus", "info", "network-get-interfaces"} {
		m["GET "+a+"/"+k] = agentCall
	}
	m["POST "+a], m["POST "+a+"/exec"], m["GET "+a+"/exec-status"], m["GET "+a+"/file-read"], m["POST "+a+"/file-write"] = agentCall, agentExec, agentExecStatus, agentFileRead, agentFileWrite
	return m
}
