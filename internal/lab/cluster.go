package lab

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	pveVersion = "9.2.11"
	pveRelease = "9.2"
	pveRepoID  = "14a22df35955d97d"
)

func version(c *call) (any, error) {
	return M{"version": c.s.rel.version, "release": c.s.rel.release, "repoid": c.s.rel.repoid}, nil
}

func clusterStatus(c *call) (any, error) {
	s := c.s
	out := []M{{"id": "cluster", "type": "cluster", "name": s.cluster, "nodes": len(s.nodes), "quorate": b2i(!s.noQuorum), "version": s.version}}
	for _, n := range s.nodes {
		m := M{"id": "node/" + n.name, "type": "node", "name": n.name, "nodeid": n.id, "ip": n.ip, "local": b2i(n == c.local), "online": b2i(n.state != NodeOff && n.state != NodeHanging), "level": ""}
		out = append(out, m)
	}
	return out, nil
}

func nextID(c *call) (any, error) {
	if c.has("vmid") {
		id := c.num("vmid")
		if c.s.guests[id] != nil {
			return nil, bad("vmid", "VM %d already exists", id)
		}
		return strconv.Itoa(id), nil
	}
	low, high := 100, 1000000
	if t, ok := c.s.options["next-id"].(M); ok {
		if n := atoi(fmt.Sprint(t["lower"])); n > 0 {
			low = n
		}
		if n := atoi(fmt.Sprint(t["upper"])); n > 0 {
			high = n
		}
	}
	for id := low; id < high; id++ {
		if c.s.guests[id] == nil {
			return strconv.Itoa(id), nil
		}
	}
	return nil, die("unable to get any free VMID in range [%d, %d]", low, high)
}

// objectOptions are cluster options that are shown as objects although sent as property strings.
var objectOptions = map[string]bool{"tag-style": true, "bwlimit": false, "crs": true, "ha": true, "migration": true, "next-id": true, "notify": true, "u2f": true, "user-tag-access": true, "webauthn": true, "replication": true}

func clusterOptions(c *call) (any, error) {
	tags, _, _ := c.allowedTags()
	list := sortedKeys(tags)
	if !c.can("/", "Sys.Audit") {
		return M{"allowed-tags": list}, nil
	}
	m := copyM(c.s.options)
	if _, ok := m["description"]; !ok {
		m["description"] = ""
	}
	if _, ok := m["mac_prefix"]; !ok {
		m["mac_prefix"] = "BC:24:11"
	}
	m["allowed-tags"] = list
	return m, nil
}

func setClusterOptions(c *call) (any, error) {
	for _, k := range splitList(c.str("delete")) {
		if lookup(c.op.Params, k) == nil || k == "delete" {
			return nil, bad("delete", "no such option '%s'", k)
		}
		delete(c.s.options, k)
	}
	for k := range c.p {
		if k == "delete" {
			continue
		}
		v := c.typedParam(k)
		if sch := c.op.Params[k]; sch != nil && sch.Format != nil && sch.Format.Schema != nil && objectOptions[k] {
			parsed, _ := c.s.api.propertyString(sch.Format.Schema.Properties, c.str(k), k)
			obj := M{}
			for a, b := range parsed {
				obj[a] = b
				if ps := sch.Format.Schema.Properties[a]; ps != nil && (ps.Type == "integer" || ps.Type == "boolean") {
					obj[a] = number(b)
				}
				if a == "user-allow-list" {
					obj[a] = splitList(b)
				}
			}
			v = obj
		}
		if k == "description" {
			t := c.str(k)
			if t != "" && !strings.HasSuffix(t, "\n") {
				t += "\n"
			}
			v = t
		}
		if k == "registered-tags" {
			v = splitList(c.str(k))
		}
		c.s.options[k] = v
	}
	return nil, nil
}

func clusterLog(c *call) (any, error) {
	out := []M{}
	if !c.can("/", "Sys.Syslog") {
		return out, nil
	}
	max := c.numOr("max", 0)
	for i := len(c.s.tasks) - 1; i >= 0 && (max == 0 || len(out) < max) && len(out) < 500; i-- {
		t := c.s.tasks[i]
		out = append(out, M{"uid": i + 1, "time": t.start.Unix(), "msg": "starting task " + t.upid, "node": t.node, "pid": t.pid, "pri": 6, "tag": "pvedaemon", "user": t.user.id(), "id": fmt.Sprintf("%d:%s", i+1, t.node)})
	}
	if len(out) == 0 {
		out = append(out, M{"uid": 1, "time": c.s.boot.Unix(), "msg": "starting cluster", "node": c.local.name, "pid": 1, "pri": 6, "tag": "pmxcfs", "user": "root@pam", "id": "1:" + c.local.name})
	}
	return out, nil
}

func corosyncNodes(c *call) (any, error) {
	out := []M{}
	for _, n := range c.s.nodes {
		out = append(out, M{"name": n.name, "node": n.name, "nodeid": fmt.Sprint(n.id), "quorum_votes": "1", "ring0_addr": n.ip})
	}
	return out, nil
}

func (s *state) totem() M {
	return M{"cluster_name": s.cluster, "config_version": fmt.Sprint(s.version), "interface": M{"0": M{"linknumber": "0"}}, "ip_version": "ipv4-6", "link_mode": "passive", "secauth": "on", "version": "2"}
}

func totem(c *call) (any, error) { return c.s.totem(), nil }

func joinInfo(c *call) (any, error) {
	list := []M{}
	for _, n := range c.s.nodes {
		list = append(list, M{"name": n.name, "nodeid": fmt.Sprint(n.id), "pve_addr": n.ip, "pve_fp": n.fingerprint, "quorum_votes": "1", "ring0_addr": n.ip})
	}
	return M{"config_digest": digestOf(c.s.cluster), "nodelist": list, "preferred_node": firstNonEmpty(c.str("node"), c.local.name), "totem": c.s.totem()}, nil
}

// Backup jobs.
