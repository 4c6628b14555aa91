package catalog

// guestRules: VMs and containers, on a PVE host or on a remote of PDM.
var guestRules = []familyRule{
	{"pve", "POST", "/nodes/*/qemu|lxc", "data sin exec"},
	{"pve", "DELETE", "/nodes/*/qemu|lxc/*", "-cfgdel data"},
	{"pve", "", "/nodes/*/qemu|lxc/*/config", "data net sin exec guard"},
	{"", "GET", "/**/qemu|lxc/*/config|pending", "sout"},
	{"", "GET", "/**/qemu|lxc/*/snapshot/*/config", "sout"},
	{"pve", "", "/nodes/*/qemu|lxc/*/status/*", "power"},
	{"pdm", "POST", "/pve/remotes/*/qemu|lxc/*/start|stop|shutdown|resume", "power"},
	{"", "POST", "/**/qemu|lxc/*/migrate", "power"},
	{"pve", "POST", "/nodes/*/qemu|lxc/*/remote_migrate", "data power sin ssrf trust"},
	{"pdm", "POST", "/pve/remotes/*/qemu|lxc/*/remote-migrate", "data power sin"},
	{"pve", "", "/nodes/*/qemu|lxc/*/move_disk|move_volume|resize|unlink|template", "data"},
	{"", "POST", "/**/snapshot/*/rollback", "data"},
	{"pdm", "POST", "/**/snapshot/*/rollback", "power"},
	{"pve", "PUT", "/nodes/*/qemu|lxc/*/snapshot/*/config", "guard"},
	{"", "", "/**/qemu|lxc/*/firewall/**", "net guard"},
	{"pdm", "", "/pve/remotes/*/**/firewall/options", "lock net guard"},
	{"pve", "PUT", "/nodes/*/qemu/*/cloudinit|sendkey", "exec"},
	{"pve", "PUT", "/nodes/*/qemu/*/sendkey", "power"}, // ctrl-alt-delete
	{"pve", "GET", "/nodes/*/qemu/*/cloudinit/**", "sout"},
	{"pve", "POST", "/nodes/*/qemu/*/monitor", "data power sout exec"},
	{"pdm", "POST", "/pve/remotes/*/qemu|lxc/*/termproxy", "exec"}, // opened with the token of PDM
	{"pve", "POST", "/nodes/*/qemu/*/dbus-vmstate", "console"},
	{"pve", "POST", "/nodes/*/qemu/*/agent", "power sout exec"},
	{"pve", "POST", "/nodes/*/qemu/*/agent/exec", "exec"},
	{"pve", "GET", "/nodes/*/qemu/*/agent/exec-status|get-users", "sout"},
	{"pve", "GET", "/nodes/*/qemu/*/agent/file-read", "sout file"},
	{"pve", "POST", "/nodes/*/qemu/*/agent/file-write", "data exec file"},
	{"pve", "POST", "/nodes/*/qemu/*/agent/set-user-password", "lock ident sin"},
	{"pve", "POST", "/nodes/*/qemu/*/agent/shutdown|suspend-disk|suspend-ram|suspend-hybrid|fsfreeze-freeze", "power"},
}
