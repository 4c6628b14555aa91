package catalog

// accessRules: accounts, permissions, realms, second factors, tickets, certificates and ACME.
var accessRules = []familyRule{
	{"", "", "/access/acl", "lock ident"},
	{"", "", "/access/password", "lock ident sin"},
	{"", "POST", "/access/users|groups|roles", "ident"},
	{"", "PUT DELETE", "/access/users|groups|roles/*", "lock ident"},
	{"", "PUT", "/access/users/*", "sin"},
	{"", "PUT", "/access/users/*/unlock-tfa", "lock ident guard"},
	{"", "POST", "/access/users/*/token/*", "ident sin sout"},
	{"", "PUT", "/access/users/*/token/*", "lock ident sin sout"},
	{"", "DELETE", "/access/users/*/token/*", "lock ident"},
	// Outside PVE an account keeps its secrets in the same place as its name: the call touches them too.
	{"pbs pmg pdm", "DELETE", "/access/users/**", "sin"},
	{"pbs pmg pdm", "PUT", "/access/users/*/unlock-tfa", "sin"},
	{"", "", "/access/tfa/**", "lock ident sin guard"},
	{"", "POST", "/access/tfa/*", "sout"}, // recovery keys and challenges
	{"pve", "GET", "/access/users", "sout"},
	{"pve", "GET", "/access/users/*", "sout"},

	{"", "POST", "/access/domains|auth-realm", "ident sin ssrf"},
	{"", "PUT", "/access/domains|auth-realm/*", "lock ident sin ssrf"},
	{"", "DELETE", "/access/domains|auth-realm/*", "lock ident"},
	{"", "POST", "/access/domains/*/sync", "lock ident"},
	{"", "GET", "/access/domains|auth-realm/*", "sout"}, // client-key of an OpenID realm
	{"pbs pdm", "POST", "/config/access/ad|ldap|openid", "ident sin ssrf"},
	{"pbs pdm", "PUT", "/config/access/ad|ldap|openid/*", "lock ident sin ssrf"},
	{"pbs pdm", "PUT", "/config/access/pam|pbs|pdm", "lock ident sin"},
	{"pbs pdm", "DELETE", "/config/access/**", "lock ident"},
	{"pbs pdm", "GET", "/config/access/openid/**", "sout"},
	{"pbs pdm", "PUT", "/config/access/tfa/webauthn", "lock ident sin"},
	{"pmg", "PUT", "/config/tfa/webauthn", "ident"},
	{"pbs", "PUT", "/config/access/tfa/webauthn", "trust"},
	// Their realm settings can make the check of certificates weaker.
	{"pve", "PUT", "/access/domains/*", "guard"},
	{"pdm", "PUT", "/config/access/**", "guard"},

	{"", "POST", "/access/openid|oidc/login", "sin sout ssrf"},
	{"", "POST", "/access/openid|oidc/auth-url", "ssrf"}, // asks the issuer for its endpoints
	{"", "POST", "/access/ticket", "sin sout"},
	{"", "POST", "/access/vncticket", "sin console"},

	{"", "POST", "/**/acme/account", "sin ssrf trust"},
	{"", "PUT", "/**/acme/account/*", "sin trust"},
	{"", "POST PUT", "/**/acme/plugins/**", "sin exec trust"}, // data goes to shell hooks
	{"", "DELETE", "/**/acme/**", "trust"},
	{"", "GET", "/**/acme/plugins/**", "sout"},
	{"", "GET", "/**/acme/tos|meta", "ssrf"},
	{"", "", "/**/certificates/**", "lock trust"},
	{"", "POST", "/**/certificates/custom/**", "sin"},
	{"pdm", "PUT", "/config/certificate", "lock trust"},
}
