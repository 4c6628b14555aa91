package lab

import (
	"encoding/json"
	"fmt"
	"strings"

	"castellan/internal/catalog/facts"
)

// rootOperation is GET /, which the API description leaves out.
func rootOperation() *facts.Operation {
	return &facts.Operation{Product: facts.PVE, Path: "/", Method: "GET", Permissions: json.RawMessage(`{"user":"all"}`), Params: map[string]*facts.Schema{}, Returns: &facts.Schema{Type: "array"}}
}

// readHandlers are reads that no other area models: indexes, capabilities, built-in objects.
func readHandlers() map[string]handler {
	m := map[string]handler{
		"GET /":        names("subdir", "version", "cluster", "nodes", "storage", "access", "pools"),
		"GET /cluster": names("name", "acme", "backup", "backup-info", "bulk-action", "ceph", "config", "firewall", "ha", "jobs", "log", "mapping", "metrics", "notifications", "nextid", "options", "qemu", "replication", "resources", "status", "tasks", "sdn"),
		"GET /nodes/{node}": names("name", "aplinfo", "apt", "capabilities", "ceph", "certificates", "config", "disks", "dns", "firewall", "hardware", "hosts", "journal", "lxc", "migrateall", "netstat", "network", "qemu", "query-oci-repo-tags", "query-url-metadata",
			"replication", "report", "rrd", "rrddata", "scan", "sdn", "services", "spiceshell", "startall", "status", "stopall", "storage", "subscription", "suspendall", "syslog", "tasks", "termproxy", "time", "version", "vncshell", "vzdump", "wakeonlan"),
		"GET /nodes/{node}/lxc/{vmid}":         names("subdir", "config", "pending", "status", "vncproxy", "termproxy", "vncwebsocket", "spiceproxy", "migrate", "clone", "rrd", "rrddata", "firewall", "snapshot", "resize", "interfaces"),
		"GET /nodes/{node}/lxc/{vmid}/status":  names("subdir", "current", "start", "stop", "shutdown", "reboot", "migrate"),
		"GET /nodes/{node}/qemu/{vmid}":        names("subdir", "config", "cloudinit", "pending", "status", "unlink", "vncproxy", "termproxy", "migrate", "resize", "move", "rrd", "rrddata", "monitor", "agent", "snapshot", "spiceproxy", "sendkey", "firewall", "mtunnel", "remote_migrate"),
		"GET /nodes/{node}/qemu/{vmid}/status": names("subdir", "current", "start", "stop", "reset", "shutdown", "suspend", "reboot"),
		"GET /nodes/{node}/storage/{storage}":  names("subdir", "content", "download-url", "file-restore", "import-metadata", "prunebackups", "rrd", "rrddata", "status", "upload"),
		"GET /nodes/{node}/services/{service}": names("subdir", "state", "start", "stop", "restart", "reload"),
		"GET /nodes/{node}/sdn/zones/{zone}":   names("subdir", "content", "bridges", "ip-vrf"), "GET /nodes/{node}/sdn/vnets/{vnet}": names("subdir", "mac-vrf"),
		"GET /nodes/{node}/hardware": names("type", "pci", "usb"), "GET /nodes/{node}/hardware/pci/{pci-id-or-mapping}": names("method", "mdev"),
		"GET /nodes/{node}/scan":             names("method", "cifs", "iscsi", "lvm", "nfs", "pbs", "zfs"),
		"GET /nodes/{node}/replication/{id}": names("name", "schedule_now", "log", "status"),
		"GET /cluster/config":                names("name", "nodes", "totem", "join", "qdevice", "apiversion"), "GET /cluster/backup-info": names("subdir", "not-backed-up"),
		"GET /cluster/config/apiversion": constant("1"), "GET /cluster/config/qdevice": constant(M{}),
		"GET /cluster/acme/directories": func(*call) (any, error) {
			return []M{{"name": "Let's Encrypt V2", "url": "https://acme-v02.api.letsencrypt.org/directory"}, {"name": "Let's Encrypt V2 Staging", "url": "https://acme-staging-v02.api.letsencrypt.org/directory"}}, nil
		},
		"GET /cluster/acme/challenge-schema": func(*call) (any, error) {
			return []M{{"id": "acmedns", "name": "acme-dns.io", "type": "dns", "schema": M{"fields": M{"ACMEDNS_BASE_URL": M{"type": "string", "description": "The API URL"}}}}, {"id": "standalone", "name": "standalone", "type": "standalone", "schema": M{}}}, nil
		},
		"GET /cluster/acme/plugins": acmePlugins, "GET /cluster/acme/tos": constant("https://letsencrypt.org/documents/LE-SA-v1.5-February-24-2025.pdf"), "GET /cluster/acme/meta": constant(M{}),
		"GET /cluster/metrics/export": exportMetrics,
		"GET /cluster/qemu/cpu-flags": cpuFlagList, "GET /nodes/{node}/capabilities/qemu/cpu-flags": cpuFlagList, "GET /nodes/{node}/capabilities/qemu/cpu": cpuModels,
		"GET /nodes/{node}/capabilities/qemu/machines":  machineTypes,
		"GET /nodes/{node}/capabilities/qemu/migration": constant(M{"has-dbus-vmstate": 1}),
		"GET /cluster/notifications/matcher-fields":     names("name", "type", "hostname", "job-id"),
		"GET /cluster/notifications/matcher-field-values": func(c *call) (any, error) {
			out := []M{}
			for _, t := range []string{"fencing", "package-updates", "replication", "system-mail", "vzdump"} {
				out = append(out, M{"field": "type", "value": t, "comment": nil})
			}
			for _, n := range c.s.nodes {
				out = append(out, M{"field": "hostname", "value": n.name, "comment": nil})
			}
			return out, nil
		},
		"GET /cluster/notifications/matchers":           withBuiltin(M{"name": "default-matcher", "comment": "Route all notifications to mail-to-root", "mode": "all", "origin": "builtin", "target": []string{"mail-to-root"}}),
		"GET /cluster/notifications/endpoints/sendmail": withBuiltin(M{"name": "mail-to-root", "comment": "Send mails to root@pam's email address", "mailto-user": []string{"root@pam"}, "origin": "builtin"}),
		"GET /cluster/notifications/targets":            notificationTargets,
		"GET /cluster/sdn/fabrics/all":                  constant(M{"fabrics": []any{}, "nodes": []any{}}), "GET /cluster/sdn/dry-run": constant(M{}),
		"GET /nodes/{node}/apt/repositories": func(*call) (any, error) {
			return M{"digest": digestOf(""), "errors": []any{}, "files": []any{}, "infos": []any{}, "standard-repos": []M{{"handle": "enterprise", "name": "Enterprise"}, {"handle": "no-subscription", "name": "No-Subscription"}}}, nil
		},
		"GET /nodes/{node}/apt/versions": aptVersions, "GET /nodes/{node}/certificates/info": certificateInfo, "GET /nodes/{node}/report": report,
		"GET /nodes/{node}/disks/lvm": constant(M{"leaf": 0, "children": []any{}}), "GET /nodes/{node}/query-url-metadata": urlMetadata,
		"GET /nodes/{node}/storage/{storage}/identity": func(c *call) (any, error) {
			st, err := c.storageParam()
			if err != nil {
				return nil, err
			}
			return M{"type": st.typ(), "id": st.typ() + ":" + st.root()}, nil
		},
		"GET /access/tfa": listTFA, "GET /access/tfa/{userid}": userTFA, "GET /access/tfa/{userid}/{id}": oneTFA, "GET /access/users/{userid}/tfa": tfaTypes,
		"GET /nodes/{node}/qemu/{vmid}/cloudinit": guestCloudinit, "PUT /nodes/{node}/qemu/{vmid}/cloudinit": regenCloudinit, "GET /nodes/{node}/qemu/{vmid}/cloudinit/dump": dumpCloudinit,
		"GET /cluster/sdn/ipams/{ipam}/status": constant([]any{}),
	}
	for _, p := range []string{"/nodes/{node}", "/nodes/{node}/qemu/{vmid}", "/nodes/{node}/lxc/{vmid}", "/nodes/{node}/storage/{storage}"} {
		m["GET "+p+"/rrd"] = rrdImage
	}
	for _, p := range []string{"/cluster/ceph/status", "/cluster/ceph/metadata", "/cluster/ceph/flags", "/cluster/ceph/health-mute", "/nodes/{node}/ceph/status", "/nodes/{node}/ceph/cfg/db", "/nodes/{node}/ceph/cfg/raw", "/nodes/{node}/ceph/cfg/value",
		"/nodes/{node}/ceph/cmd-safety", "/nodes/{node}/ceph/crush", "/nodes/{node}/ceph/fs", "/nodes/{node}/ceph/log", "/nodes/{node}/ceph/mds", "/nodes/{node}/ceph/mgr", "/nodes/{node}/ceph/mon", "/nodes/{node}/ceph/osd", "/nodes/{node}/ceph/pool", "/nodes/{node}/ceph/rules"} {
		m["GET "+p] = noCeph
	}
	for _, k := range []string{"start", "stop", "restart"} {
		m["POST /nodes/{node}/ceph/"+k] = noCeph
	}
	m["PUT /cluster/ceph/flags"], m["POST /nodes/{node}/ceph/pool"], m["POST /nodes/{node}/ceph/mon/{monid}"], m["POST /nodes/{node}/ceph/mgr/{id}"], m["POST /nodes/{node}/ceph/mds/{name}"] = noCeph, noCeph, noCeph, noCeph, noCeph
	return m
}

// exportMetrics gives the current figures of nodes and guests.
func exportMetrics(c *call) (any, error) {
	out := []M{}
	add := func(id, metric string, val any) {
		out = append(out, M{"id": id, "metric": metric, "timestamp": c.s.now.Unix(), "type": "gauge", "value": val})
	}
	for _, n := range c.s.nodes {
		if n.up() {
			add("node/"+n.name, "cpu_max", n.cpus)
			add("node/"+n.name, "mem_total", n.mem)
			add("node/"+n.name, "uptime", int64(c.s.now.Sub(n.boot).Seconds()))
		}
	}
	for _, id := range c.s.sortedIDs() {
		g := c.s.guests[id]
		key := fmt.Sprintf("%s/%d", g.kind, id)
		add(key, "mem_total", c.s.maxMem(g, g.conf))
		add(key, "uptime", c.s.uptime(g))
	}
	return M{"data": out}, nil
}

func constant(v any) handler { return func(*call) (any, error) { return v, nil } }

// withBuiltin lists a generic collection together with the object that every site has.
func withBuiltin(m M) handler {
	return func(c *call) (any, error) {
		v, err := c.genericList()
		if err != nil {
			return nil, err
		}
		list, _ := v.([]M)
		for _, x := range list {
			x["origin"] = "user-created"
			if x["name"] == m["name"] {
				x["origin"] = "modified-builtin"
				return list, nil
			}
		}
		return append([]M{copyM(m)}, list...), nil
	}
}

func acmePlugins(c *call) (any, error) {
	g := c.items("/cluster/acme/plugins")
	var text strings.Builder
	for _, id := range g.order {
		text.WriteString(id + digestMap(g.items[id]))
	}
	d := digestOf(text.String())
	out := []M{{"plugin": "standalone", "type": "standalone", "digest": d}}
	for _, id := range g.order {
		m := copyM(g.items[id])
		m["plugin"], m["digest"] = id, d
		out = append(out, m)
	}
	return out, nil
}

func cpuFlagList(c *call) (any, error) {
	out := []M{}
	for _, f := range []string{"nested-virt", "md-clear", "pcid", "spec-ctrl", "ssbd", "ibpb", "virt-ssbd", "amd-ssbd", "amd-no-ssb", "pdpe1gb", "hv-tlbflush", "hv-evmcs", "aes"} {
		out = append(out, M{"name": f, "description": "CPU feature " + f})
	}
	return out, nil
}

func cpuModels(c *call) (any, error) {
	out := []M{}
	for _, m := range [][2]string{{"486", "default"}, {"host", "default"}, {"kvm64", "default"}, {"qemu64", "default"}, {"max", "default"}, {"x86-64-v2-AES", "default"}, {"x86-64-v3", "default"}, {"EPYC", "AuthenticAMD"}, {"EPYC-Milan", "AuthenticAMD"}, {"Skylake-Server", "GenuineIntel"}, {"Icelake-Server", "GenuineIntel"}} {
		out = append(out, M{"name": m[0], "vendor": m[1], "custom": 0})
	}
	return out, nil
}

func machineTypes(c *call) (any, error) {
	out := []M{}
	for _, v := range []string{"10.1", "10.0", "9.2", "9.0", "8.1"} {
		out = append(out, M{"id": "pc-i440fx-" + v, "type": "i440fx", "version": v}, M{"id": "pc-q35-" + v, "type": "q35", "version": v})
	}
	return out, nil
}

func notificationTargets(c *call) (any, error) {
	out := []M{{"name": "mail-to-root", "type": "sendmail", "comment": "Send mails to root@pam's email address", "origin": "builtin"}}
	for _, kind := range []string{"gotify", "sendmail", "smtp", "webhook"} {
		g := c.items("/cluster/notifications/endpoints/" + kind)
		for _, id := range g.order {
			if id == "mail-to-root" {
				continue
			}
			m := M{"name": id, "type": kind, "origin": "user-created"}
			if t, ok := g.items[id]["comment"]; ok {
				m["comment"] = t
			}
			out = append(out, m)
		}
	}
	return out, nil
}

func aptVersions(c *call) (any, error) {
	out := []M{}
	for _, p := range [][2]string{{"proxmox-ve", "9.2.0"}, {"pve-manager", c.s.rel.version}, {"qemu-server", "9.2.4"}, {"pve-container", "6.1.2"}, {"libpve-storage-perl", "9.2.1"}, {"corosync", "3.1.9-pve2"}, {"pve-firewall", "6.0.4"}, {"pve-ha-manager", "5.2.0"}} {
		m := M{"Package": p[0], "Version": p[1], "OldVersion": p[1], "Title": p[0], "Arch": "amd64", "Section": "admin", "Priority": "optional", "Origin": "Proxmox", "Description": p[0] + " package", "CurrentState": "Installed"}
		if p[0] == "proxmox-ve" {
			m["RunningKernel"] = "6.17.2-2-pve"
		}
		if p[0] == "pve-manager" {
			m["ManagerVersion"] = c.s.rel.version + "/" + c.s.rel.repoid
		}
		out = append(out, m)
	}
	return out, nil
}

func certificateInfo(c *call) (any, error) {
	l := c.l.cert
	line := func(file, subject, print, pem string, san []string) M {
		return M{"filename": file, "fingerprint": print, "issuer": "/CN=Proxmox Virtual Environment/OU=" + c.s.cluster + "/O=PVE Cluster Manager CA", "subject": subject, "notbefore": l.notBefore.Unix(), "notafter": l.notAfter.Unix(),
			"pem": pem, "public-key-bits": 256, "public-key-type": "id-ecPublicKey", "san": san}
	}
	return []M{line("pve-root-ca.pem", "/CN=Proxmox Virtual Environment/O=PVE Cluster Manager CA", l.caPrint, string(l.caPEM), []string{}),
		line("pve-ssl.pem", "/OU=PVE Cluster Node/O=Proxmox Virtual Environment/CN="+c.node.name+".lab.test", c.node.fingerprint, string(l.leafPEM), []string{"127.0.0.1", "localhost", c.node.ip, c.node.name, c.node.name + ".lab.test"})}, nil
}

func report(c *call) (any, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "\n==== general system info ====\n\n# hostname\n%s\n\n# pveversion --verbose\npve-manager: %s\n\n==== guests ====\n", c.node.name, c.s.rel.version)
	for _, id := range c.s.sortedIDs() {
		if g := c.s.guests[id]; g.node == c.node.name {
			fmt.Fprintf(&b, "\n# %d %s\n%s", id, g.name(), fileText(g.conf))
		}
	}
	return b.String(), nil
}

// urlMetadata never leaves the machine: every address refuses.
func urlMetadata(c *call) (any, error) {
	host := strings.TrimPrefix(strings.TrimPrefix(c.str("url"), "http://"), "https://")
	host, _, _ = strings.Cut(host, "/")
	if !strings.Contains(host, ":") {
		host += map[bool]string{true: ":443", false: ":80"}[strings.HasPrefix(c.str("url"), "https:")]
	}
	return nil, die("invalid server response: '500 Can't connect to %s (Connection refused)'", host)
}

func rrdImage(c *call) (any, error) {
	if strings.Contains(c.op.Path, "{vmid}") {
		if _, err := c.guestOf(); err != nil {
			return nil, err
		}
	}
	return M{"filename": "/var/lib/rrdcached/db/" + strings.Trim(strings.ReplaceAll(c.rel, "/", "_"), "_") + ".png", "image": "\u0089PNG\r\n\u001a\n"}, nil
}

// Two-factor entries.

func (e *tfaEntry) shown() M {
	return M{"id": e.id, "type": e.kind, "description": e.desc, "created": e.created, "enable": b2i(!e.disabled)}
}

func (u *user) factors() []M {
	out := []M{}
	if u.totp != "" {
		out = append(out, M{"id": "totp:1", "type": "totp", "description": "authenticator", "created": 0, "enable": 1})
	}
	for _, e := range u.tfa {
		out = append(out, e.shown())
	}
	return out
}

func listTFA(c *call) (any, error) {
	all := c.s.mayAny(c.user.id(), "/access/groups", "User.Modify", "Sys.Audit")
	out := []M{}
	for _, id := range sortedKeys(c.s.users) {
		if f := c.s.users[id].factors(); len(f) > 0 && (all || id == c.user.user) {
			out = append(out, M{"userid": id, "entries": f})
		}
	}
	return out, nil
}

func userTFA(c *call) (any, error) {
	u, err := c.userOf()
	if err != nil {
		return nil, err
	}
	return u.factors(), nil
}

func oneTFA(c *call) (any, error) {
	u, err := c.userOf()
	if err != nil {
		return nil, err
	}
	for _, m := range u.factors() {
		if m["id"] == c.str("id") {
			return m, nil
		}
	}
	return nil, die("No such tfa entry '%s'", c.str("id"))
}

func tfaTypes(c *call) (any, error) {
	u, err := c.userOf()
	if err != nil {
		return nil, err
	}
	kinds := []string{}
	for _, m := range u.factors() {
		k, _ := m["type"].(string)
		kinds = append(kinds, k)
	}
	if c.flag("multiple") {
		return M{"types": kinds}, nil
	}
	if len(kinds) == 0 {
		return M{}, nil
	}
	return M{"user": "oath"}, nil
}

// Cloud-init.

func ciKeys() []string {
	return []string{"cicustom", "cipassword", "citype", "ciuser", "ciupgrade", "nameserver", "searchdomain", "sshkeys", "name"}
}

func guestCloudinit(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	out := []M{}
	shown := c.s.shown(g, g.conf)
	for _, k := range sortedKeys(shown) {
		if !isSeed(k) || k == "name" && g.conf["ciuser"] == "" && g.conf["ipconfig0"] == "" {
			continue
		}
		m := M{"key": k, "value": shown[k]}
		if p, ok := g.pend[k]; ok {
			m["pending"] = p
		}
		if was, ok := g.seed[k]; g.seed != nil && was != g.conf[k] {
			m["pending"] = shown[k]
			delete(m, "value")
			if ok && k == "cipassword" {
				was = "**********"
			}
			if ok {
				m["value"] = was
			}
		}
		out = append(out, m)
	}
	for _, k := range sortedKeys(g.seed) {
		if g.conf[k] == "" {
			out = append(out, M{"key": k, "delete": 1})
		}
	}
	return out, nil
}

func isSeed(key string) bool { return contains(ciKeys(), key) || strings.HasPrefix(key, "ipconfig") }

func regenCloudinit(c *call) (any, error) {
	g, err := c.guestOf()
	if err == nil {
		g.makeSeed()
	}
	return nil, err
}

// makeSeed makes the cloud-init image of what is set now.
func (g *guest) makeSeed() {
	if len(g.cloudDisks()) == 0 {
		return
	}
	g.seed = map[string]string{}
	for k, v := range g.conf {
		if isSeed(k) {
			g.seed[k] = v
		}
	}
}

func dumpCloudinit(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	switch c.str("type") {
	case "user":
		return fmt.Sprintf("#cloud-config\nhostname: %s\nmanage_etc_hosts: true\nuser: %s\nchpasswd:\n  expire: False\nusers:\n  - default\npackage_upgrade: true\n", g.name(), firstNonEmpty(g.conf["ciuser"], "root")), nil
	case "network":
		return "version: 1\nconfig:\n    - type: physical\n      name: eth0\n", nil
	}
	return "instance-id: " + digestOf(g.name()) + "\n", nil
}
