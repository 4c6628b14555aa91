package catalog

// fleetRules: what only PDM has, remotes, automatic installation and the keys of many hosts.
var fleetRules = []familyRule{
	{"pdm", "POST", "/auto-install/answer", "data sin sout file trust"},
	{"pdm", "", "/auto-install/installations|prepared/**", "trust"},
	{"pdm", "POST", "/auto-install/installations/*/post-hook", "sin"},
	{"pdm", "POST PUT", "/auto-install/prepared/**", "data sin sout exec"},
	{"pdm", "", "/auto-install/tokens/**", "ident trust"},
	{"pdm", "POST PUT", "/auto-install/tokens/**", "sin sout"},
	{"pdm", "GET", "/auto-install/installations|prepared/**", "sout"},

	{"pdm", "POST", "/pve|pbs/scan", "sin sout ssrf trust"},
	{"pdm", "POST", "/pve|pbs/probe-tls", "ssrf"},
	{"pdm", "POST", "/remotes/remote/*/probe-certificate", "ssrf trust"}, // what a person then pins
	{"pdm", "GET", "/pve|pbs/realms", "sin ssrf"},
	{"pdm", "POST", "/remotes/remote", "sin ssrf trust"},
	{"pdm", "PUT", "/remotes/remote/*", "sin ssrf trust"},
	{"pdm", "DELETE", "/remotes/remote/*", "trust ident"},
	{"pdm", "POST", "/remotes/tasks|updates/refresh", "power"}, // work on every remote at once
	{"pdm", "GET", "/remotes/remote/*/config", "sout"},
	{"pdm", "", "/sdn/vnets|zones", "lock net"},

	{"pdm", "", "/subscriptions/**", "lic"},
	{"pdm", "GET", "/subscriptions", "lic"},
	{"pdm", "GET", "/subscriptions/node-status", "sout lic"},
	{"pdm", "GET", "/subscriptions/keys/**", "sout lic"},
	{"pdm", "POST", "/subscriptions/keys", "sin"},
	{"pdm", "POST", "/subscriptions/auto-assign|bulk-assign|keys|adopt-key|adopt-all", "sout"},
	{"pdm", "GET", "/resources/subscription", "sout"},
}

// reviewedExceptions lists the operations that their family's rule judges wrongly.
var reviewedExceptions = []reviewedException{
	{"pve", "GET /cluster/jobs/realm-sync", "lock", "shows which accounts the next run takes away, so who can be locked out; a request for it is a plain read"},
	{"pve", "GET /cluster/jobs/realm-sync/{id}", "lock", "as the list of these jobs"},
}
