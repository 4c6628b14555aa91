package catalog

// hostRules: nodes and what belongs to a machine rather than to a guest.
var hostRules = []familyRule{
	{"", "", "/**/nodes/*/apt/repositories", "exec trust"},
	{"", "", "/**/nodes/*/apt/update", "power exec ssrf"},
	{"pve", "", "/nodes/*/apt/update", "send"}, // notify
	{"", "GET", "/**/nodes/*/apt/changelog", "ssrf"},
	{"", "", "/nodes/*/network/**", "lock net"},
	{"", "", "/nodes/*/dns", "lock net"},
	{"", "", "/nodes/*/time", "lock"},
	{"", "", "/nodes/*/hosts", "lock net trust"},
	{"", "", "/nodes/*/config", "lock"},
	{"pbs pdm", "", "/nodes/*/config", "ssrf"}, // http-proxy
	{"", "", "/nodes/*/services/*/*", "power"},
	{"", "", "/nodes/*/services/*/stop|restart|reload", "lock"},
	{"", "", "/nodes/*/status", "lock power"},
	{"", "", "/nodes/*/subscription", "lic"},
	{"", "PUT", "/nodes/*/subscription", "sin"},
	{"", "GET", "/nodes/*/subscription", "sout lic"},
	{"pdm", "GET", "/**/remotes/*/nodes/*/subscription", "sout"},
	{"", "GET", "/**/nodes/*/report|syslog|journal", "sout"},
	{"", "POST", "/**/nodes/*/termproxy|vncshell|spiceshell", "sout exec console"},
	{"", "GET", "/**/vncwebsocket|mtunnelwebsocket", "sin console"},
	{"", "POST", "/**/vncproxy|termproxy|spiceproxy|mtunnel", "sout console"},
	{"pve", "GET", "/**/rrd", "file"}, // writes a picture on the server and hands it out

	{"pve", "", "/nodes/*/execute", "data exec"},
	{"pve", "", "/nodes/*/wakeonlan", "power send"},
	{"pve", "", "/nodes/*/startall|stopall|suspendall|migrateall", "power"},
	{"pve", "GET", "/nodes/*/scan/*", "ssrf"},
	{"pve", "GET", "/nodes/*/query-url-metadata|query-oci-repo-tags", "ssrf"},
	{"", "", "/**/disks/directory|zfs|lvm|lvmthin|initgpt|wipedisk/**", "-cfgdel data"},
	{"pve", "GET", "/nodes/*/vzdump/extractconfig", "sout"},
	{"pve", "POST", "/nodes/*/aplinfo", "file ssrf"},

	{"pve", "DELETE", "/nodes/*/ceph/**", "-cfgdel data"},
	{"pve", "POST", "/nodes/*/ceph/osd", "data"},
	{"pve", "PUT", "/nodes/*/ceph/pool/*", "data"},
	{"pve", "POST", "/nodes/*/ceph/osd/*/in|out|scrub", "power"},
	{"pve", "POST", "/nodes/*/ceph/start|stop|restart|restart-bulk", "power"},
	{"pve", "POST", "/nodes/*/ceph/init", "trust"},
	{"pve", "GET", "/nodes/*/ceph/cfg/*", "sout"},

	{"pve", "DELETE", "/nodes/*/storage/*/content/*", "-cfgdel data"},
	{"pve", "POST", "/nodes/*/storage/*/content/**", "file"},
	{"pve", "PUT", "/nodes/*/storage/*/content/*", "guard"},
	{"pve", "POST", "/nodes/*/storage/*/upload", "data exec file"},
	{"pve", "POST", "/nodes/*/storage/*/download-url", "data exec file ssrf"},
	{"pve", "POST", "/nodes/*/storage/*/oci-registry-pull", "file ssrf"},
	{"pve", "GET", "/nodes/*/storage/*/file-restore/list", "sout"},
	{"pve", "GET", "/nodes/*/storage/*/file-restore/download", "sout file"},
	{"pve", "POST", "/nodes/*/vzdump", "data power exec send"},
}

// clusterRules: what is set once for a whole PVE or PMG cluster, and storages.
var clusterRules = []familyRule{
	{"pve", "", "/cluster/backup/**", "guard"},
	{"pve", "POST PUT", "/cluster/backup/**", "data exec"},
	{"pve", "", "/cluster/bulk-action/**", "power"},
	{"pve", "", "/cluster/ceph/flags/**", "power guard"}, // pause stops all input and output
	{"pve", "", "/cluster/ceph/health-mute/**", "guard"},
	{"pve", "", "/cluster/ceph/restart-bulk", "power"},
	{"pve", "POST", "/cluster/config", "lock trust"},
	{"pve", "POST", "/cluster/config/join", "data lock sin ssrf trust"},
	{"pve", "POST", "/cluster/config/nodes/*", "lock sout trust"}, // returns the corosync key
	{"pve", "DELETE", "/cluster/config/nodes/*", "-cfgdel data lock trust"},
	{"pmg", "POST", "/config/cluster/create", "lock trust"},
	{"pmg", "POST", "/config/cluster/join", "data lock sin ssrf trust"},
	{"pmg", "POST", "/config/cluster/nodes", "lock sout trust"},
	{"pmg", "POST", "/config/cluster/update-fingerprints", "lock trust"},
	{"pve", "GET", "/cluster/config/join", "sout"},
	{"pmg", "GET", "/config/cluster/join", "sout"},
	{"pve", "", "/cluster/firewall/**", "lock net guard"},
	{"pve", "", "/nodes/*/firewall/**", "lock net guard"},
	{"pve", "", "/cluster/ha/**", "power guard"},
	{"pve", "", "/cluster/jobs/realm-sync/**", "lock ident"},
	{"pve", "", "/cluster/metrics/server/**", "sin ssrf"},
	{"pve", "DELETE", "/cluster/metrics/server/**", "-sin -ssrf"},
	{"pve", "GET", "/cluster/log", "sout"},
	{"pve", "", "/cluster/options", "lock ident ssrf guard"},
	{"pve", "", "/cluster/replication/**", "guard"},
	{"pve", "PUT DELETE", "/cluster/replication/*", "data"},

	{"pve", "", "/cluster/sdn/**", "net"},
	{"pve", "PUT", "/cluster/sdn", "lock"},
	{"pve", "POST", "/cluster/sdn/lock", "sout"},
	{"pve", "POST PUT", "/cluster/sdn/dns|ipams/**", "sin ssrf"},
	{"pve", "GET", "/cluster/sdn/dns|ipams", "sout"},
	{"pve", "GET", "/cluster/sdn/dns|ipams/*", "sout"},
	{"pve", "", "/cluster/sdn/vnets/*/firewall/**", "guard"},

	{"pve pbs", "", "/**/notifications/**", "guard"},
	{"pve", "POST PUT", "/cluster/notifications/endpoints/**", "ssrf"},
	{"pbs", "POST PUT", "/config/notifications/endpoints/**", "sin ssrf"},
	{"pve pbs", "POST", "/**/notifications/targets/*/test", "ssrf send"},

	{"pve", "", "/pools/**", "ident"},
	{"pve", "POST PUT", "/storage/**", "sin ssrf guard"},
	{"pve", "PUT DELETE", "/storage/*", "data"},
}
