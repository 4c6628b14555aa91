package catalog

// mailRules: the mail gateway.
var mailRules = []familyRule{
	{"pmg", "PUT", "/config/admin", "power exec ssrf guard"}, // custom_check_path is run for every mail
	{"pmg", "PUT", "/config/clamav", "power guard"},
	{"pmg", "PUT", "/config/mail", "net power guard"},
	{"pmg", "PUT", "/config/spam", "power guard"},
	{"pmg", "PUT", "/config/spamquar|virusquar", "data power guard"},
	{"pmg", "", "/config/customscores/**", "guard"},
	{"pmg", "", "/config/dkim/**", "guard"},
	{"pmg", "", "/config/domains/**", "net"},
	{"pmg", "", "/config/transport/**", "net"},
	{"pmg", "", "/config/mynetworks|tlspolicy|tls-inbound-domains/**", "net guard"},
	{"pmg", "POST PUT", "/config/fetchmail/**", "sin ssrf"},
	{"pmg", "GET", "/config/fetchmail/**", "sout"},
	{"pmg", "POST PUT", "/config/ldap/**", "ident sin ssrf"},
	{"pmg", "DELETE", "/config/ldap/*", "ident"},
	{"pmg", "GET", "/config/ldap/*/groups|users/**", "sout ssrf"},
	{"pmg", "POST PUT", "/config/pbs/**", "data sin sout ssrf trust"},
	{"pmg", "DELETE", "/config/pbs/*", "trust"},
	{"pmg", "", "/config/ruledb|welcomelist|whitelist/**", "guard"},
	{"pmg", "POST", "/config/ruledb", "data"}, // back to the factory's rules

	{"pmg", "GET", "/nodes/*/backup/*", "sout file"},
	{"pmg", "POST", "/nodes/*/backup/*", "data lock"},
	{"pmg", "DELETE", "/nodes/*/backup/*", "-cfgdel data"},
	{"pmg", "GET", "/nodes/*/pbs/*/snapshot/**", "ssrf"},
	{"pmg", "POST DELETE", "/nodes/*/pbs/*/snapshot/**", "-cfgdel data ssrf"},
	{"pmg", "POST", "/nodes/*/pbs/*/snapshot/*/*/verify", "-data"},
	{"pmg", "POST", "/nodes/*/backup", "file"},                        // a file with all secrets, kept on the node
	{"pmg", "POST", "/nodes/*/postfix/discard_verify_cache", "power"}, // reloads postfix
	{"pmg", "POST", "/nodes/*/clamav/database", "power"},
	{"pmg", "POST", "/nodes/*/spamassassin/rules", "power"},
	{"pmg", "DELETE", "/nodes/*/postfix/queue/**", "-cfgdel data"},
	{"pmg", "POST", "/nodes/*/postfix/flush_queues", "power send"},
	{"pmg", "POST", "/nodes/*/postfix/queue/**", "send"},
	{"pmg", "POST", "/nodes/*/postfix/queue/*", "data"},
	{"pmg", "GET", "/nodes/*/postfix/queue/*", "sout"},
	{"pmg", "GET", "/nodes/*/postfix/queue/*/*", "sout"},
	{"pmg", "GET", "/nodes/*/tracker/**", "sout"},

	{"pmg", "", "/quarantine/welcomelist|whitelist|blocklist|blacklist", "guard"},
	{"pmg", "POST", "/quarantine/sendlink", "send"},
	{"pmg", "POST", "/quarantine/content", "data send guard"},
	{"pmg", "GET", "/quarantine/attachment|content|download|link|listattachments|quarusers|spam|spamusers|virus", "sout"},
	{"pmg", "GET", "/statistics/contact|detail|receiver|sender|recentreceivers|recentsenders", "sout"},
}
