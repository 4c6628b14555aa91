package lab

import (
	"fmt"
	"strings"
	"time"
)

// writeHandlers are smaller writes that no other area models.
func writeHandlers() map[string]handler {
	return map[string]handler{
		"POST /access/tfa/{userid}": addTFA, "PUT /access/tfa/{userid}/{id}": changeTFA, "DELETE /access/tfa/{userid}/{id}": dropTFA, "PUT /access/users/{userid}/unlock-tfa": unlockTFA,
		"POST /access/vncticket": checkTicket, "POST /access/domains/{realm}/sync": syncRealm,
		"POST /nodes/{node}/apt/update": aptUpdate, "POST /nodes/{node}/status": nodePower, "POST /nodes/{node}/wakeonlan": wakeNode, "POST /nodes/{node}/aplinfo": fetchTemplate,
		"GET /nodes/{node}/aplinfo": constant([]any{}), "POST /nodes/{node}/replication/{id}/schedule_now": scheduleNow, "POST /cluster/notifications/targets/{name}/test": testTarget,
		"POST /cluster/sdn/lock": lockSDN, "DELETE /cluster/sdn/lock": unlockSDN, "POST /cluster/ha/status/arm-ha": done, "POST /cluster/ha/status/disarm-ha": done,
		"POST /nodes/{node}/subscription": done, "PUT /nodes/{node}/subscription": noSubscription, "DELETE /nodes/{node}/subscription": done,
	}
}

func done(*call) (any, error) { return nil, nil }

func noSubscription(c *call) (any, error) {
	return nil, bad("key", "not a valid subscription key for this product")
}

// confirmPassword asks the caller's own password for changes of second factors.
func (c *call) confirmPassword() error {
	if c.user.root() {
		return nil
	}
	me := c.s.users[c.user.user]
	if me == nil || c.str("password") == "" || me.password != c.str("password") {
		return &failure{code: 401, msg: "authentication failure", delay: authDelay}
	}
	return nil
}

func addTFA(c *call) (any, error) {
	u, err := c.userOf()
	if err != nil {
		return nil, err
	}
	if err := c.confirmPassword(); err != nil {
		return nil, err
	}
	kind := c.str("type")
	e := &tfaEntry{id: fmt.Sprintf("%s:%d", kind, len(u.tfa)+2), kind: kind, desc: c.str("description"), created: c.s.now.Unix()}
	switch kind {
	case "recovery":
		e.id, e.codes = "recovery", map[string]bool{}
		var codes []string
		for i := 0; i < 10; i++ {
			x := newUUID()
			code := x[0:4] + "-" + x[4:8] + "-" + x[9:13] + "-" + x[14:18]
			e.codes[code] = true
			codes = append(codes, code)
		}
		u.tfa = append(u.tfa, e)
		return M{"id": e.id, "recovery": codes}, nil
	case "totp":
		if c.str("totp") == "" {
			return nil, bad("totp", "missing 'totp' parameter")
		}
	case "webauthn", "yubico", "u2f":
		return nil, die("%s is not configured", kind)
	}
	u.tfa = append(u.tfa, e)
	return M{"id": e.id}, nil
}

func (c *call) factorOf() (*user, int, error) {
	u, err := c.userOf()
	if err != nil {
		return nil, 0, err
	}
	if err := c.confirmPassword(); err != nil {
		return nil, 0, err
	}
	for i, e := range u.tfa {
		if e.id == c.str("id") {
			return u, i, nil
		}
	}
	return u, -1, nil
}

func (c *call) noFactor() error {
	return die("No such tfa entry '%s'", c.str("id"))
}

func changeTFA(c *call) (any, error) {
	u, i, err := c.factorOf()
	if err != nil {
		return nil, err
	}
	if i < 0 {
		return nil, c.noFactor()
	}
	if c.has("description") {
		u.tfa[i].desc = c.str("description")
	}
	if c.has("enable") {
		u.tfa[i].disabled = !c.flag("enable")
	}
	return nil, nil
}

func dropTFA(c *call) (any, error) {
	u, i, err := c.factorOf()
	if err != nil {
		return nil, err
	}
	switch {
	case i >= 0:
		u.tfa = append(u.tfa[:i:i], u.tfa[i+1:]...)
	case c.str("id") == "totp:1" && u.totp != "":
		u.totp = ""
	default:
		return nil, c.noFactor()
	}
	return nil, nil
}

func unlockTFA(c *call) (any, error) {
	if _, err := c.userOf(); err != nil {
		return nil, err
	}
	return 0, nil
}

func checkTicket(c *call) (any, error) {
	plain, sig, _ := strings.Cut(c.str("vncticket"), "::")
	if sig == "" || c.s.sign(plain) != sig {
		return nil, &failure{code: 401, msg: "authentication failure", delay: authDelay}
	}
	return nil, nil
}

func syncRealm(c *call) (any, error) {
	r := c.s.realms[c.str("realm")]
	if r == nil {
		return nil, die("domain '%s' does not exist", c.str("realm"))
	}
	if t := fmt.Sprint(r["type"]); t != "ldap" && t != "ad" {
		return nil, die("Only LDAP/AD realms are supported for sync")
	}
	return c.quick("auth-realm-sync", c.str("realm"), time.Second, func(t *task) error {
		t.say("starting sync for realm %s", c.str("realm"))
		return die("unable to reach the directory of realm '%s'", c.str("realm"))
	}), nil
}

func aptUpdate(c *call) (any, error) {
	return c.quick("aptupdate", "", 2*time.Second, func(t *task) error {
		t.say("starting apt-get update")
		t.say("Reading package lists...")
		return nil
	}), nil
}

// nodePower reboots or shuts a node down; its guests go down with it.
func nodePower(c *call) (any, error) {
	n := c.node
	verb := c.str("command")
	c.s.after(5*time.Second, func() {
		for _, id := range c.s.sortedIDs() {
			if g := c.s.guests[id]; g.node == n.name && g.running {
				c.s.haltGuest(g)
			}
		}
		n.state = NodeOff
		if verb != "reboot" {
			return
		}
		c.s.after(60*time.Second, func() {
			n.state, n.boot = NodeOn, c.s.now
			if staged := c.s.ifaces[n.name]; staged != nil {
				staged.commit()
			}
			for _, id := range c.s.sortedIDs() {
				if g := c.s.guests[id]; g.node == n.name && g.conf["onboot"] == "1" && c.s.startable(g) == nil {
					c.s.bootGuest(g)
				}
			}
		})
	})
	return nil, nil
}

func wakeNode(c *call) (any, error) {
	name := c.str("node")
	n := c.s.node(name)
	if n == nil {
		return nil, bad("node", "no such node '%s'", name)
	}
	if n == c.local {
		return nil, bad("node", "%s is local node, cannot wake my self!", name)
	}
	wol, _ := c.s.nodeConf[name]["config"].(M)
	mac, _ := wol["wakeonlan"].(string)
	if mac == "" {
		return nil, die("No wake on LAN MAC address defined for '%s'!", name)
	}
	c.s.after(30*time.Second, func() { n.state = NodeOn })
	return mac, nil
}

func fetchTemplate(c *call) (any, error) {
	if _, err := c.s.usable(c.str("storage"), c.node.name); err != nil {
		return nil, err
	}
	return nil, bad("template", "no such template")
}

func scheduleNow(c *call) (any, error) {
	id := c.str("id")
	r := c.s.repl[id]
	if r == nil {
		return nil, die("no such replication job '%s'", id)
	}
	if err := c.need(fmt.Sprintf("/vms/%v", r["guest"]), "VM.Replicate"); err != nil {
		return nil, err
	}
	return nil, nil
}

func testTarget(c *call) (any, error) {
	v, err := notificationTargets(c)
	if err != nil {
		return nil, err
	}
	list, _ := v.([]M)
	for _, m := range list {
		if m["name"] == c.str("name") {
			return nil, die("could not notify via target(s): %s: the lab sends nothing", c.str("name"))
		}
	}
	return nil, die("endpoint '%s' does not exist", c.str("name"))
}

func lockSDN(c *call) (any, error) {
	d := c.s.sdn
	if d.lock != "" {
		return nil, die("configuration is already locked")
	}
	if !c.flag("allow-pending") {
		for kind, objs := range d.conf {
			for id := range objs {
				if digestMap(d.running[kind][id]) != digestMap(objs[id]) {
					return nil, die("configuration has pending changes")
				}
			}
		}
	}
	d.lock = newUUID()
	return d.lock, nil
}

func unlockSDN(c *call) (any, error) {
	d := c.s.sdn
	if !c.flag("force") && c.str("lock-token") != d.lock {
		return nil, die("global configuration lock token does not match")
	}
	d.lock = ""
	return nil, nil
}
