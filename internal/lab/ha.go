package lab

import (
	"fmt"
	"strings"
	"time"
)

// haState is the HA stack: resources, rules, and the manager's rounds.
type haState struct {
	resources map[string]*haResource
	rules     map[string]M
	groups    map[string]M // before rules
	master    string
	epoch     time.Time       // the manager's rounds are counted from here
	kicked    bool            // rounds are scheduled
	active    map[string]bool // nodes whose local manager holds its lock
	commands  []haCommand     // waiting for the manager's next round
}

type haCommand struct{ sid, verb, node string }

// haResource is one managed guest. request is what the configuration asks for, crm the manager's word.
type haResource struct {
	sid, request, comment   string
	group                   string // before rules
	crm                     string // empty while queued
	node, target            string
	running                 bool // the manager has heard that it runs
	done                    bool // the local manager has done what the manager's word asks
	maxRestart, maxRelocate int
	failback                int
	explicit                map[string]bool
}

// word is the state as it is shown.
func (r *haResource) word() string {
	switch {
	case r.request == "ignored":
		return "ignored"
	case r.crm == "":
		return "queued"
	case r.crm == "stopped" && (r.request == "started" || r.request == "enabled"):
		return "starting"
	case r.crm == "stopped" && r.request == "disabled":
		return "disabled"
	case r.crm == "started" && !r.running:
		return "starting"
	case r.crm == "started" && (r.request == "stopped" || r.request == "disabled"):
		return "stopping"
	}
	return r.crm
}

func newHA() *haState {
	return &haState{resources: map[string]*haResource{}, rules: map[string]M{}, groups: map[string]M{}, active: map[string]bool{}}
}

func (s *state) managed(g *guest) bool {
	r := s.ha.resources[g.sid()]
	return r != nil && r.request != "ignored"
}

func (s *state) haStatus(g *guest) M {
	r := s.ha.resources[g.sid()]
	if r == nil || r.request == "ignored" {
		return M{"managed": 0}
	}
	m := M{"managed": 1, "state": nil}
	if r.crm != "" {
		m["state"] = r.crm
	}
	return m
}

func (s *state) guestBySID(sid string) *guest {
	kind, id, _ := strings.Cut(sid, ":")
	g := s.guests[atoi(id)]
	if g == nil || kind == "vm" && g.kind != kindQemu || kind == "ct" && g.kind != kindLXC {
		return nil
	}
	return g
}

// sidOf resolves a resource id; a bare guest id is enough.
func (c *call) sidOf() string {
	sid := c.str("sid")
	if !strings.Contains(sid, ":") {
		if g := c.s.guests[atoi(sid)]; g != nil {
			return g.sid()
		}
		return "vm:" + sid
	}
	return sid
}

// haRequest is a guest power call on a managed guest: the task only hands the request on.
func (c *call) haRequest(g *guest, verb, want string) any {
	return c.quick("ha"+verb, fmt.Sprint(g.id), 800*time.Millisecond, func(t *task) error {
		t.say("Requesting HA %s for %s %d", verb, g.word(), g.id)
		r := c.s.ha.resources[g.sid()]
		if r == nil {
			return die("service '%s' is not HA managed", g.sid())
		}
		if verb == "stop" {
			c.s.ha.commands = append(c.s.ha.commands, haCommand{r.sid, "stop", ""})
		} else {
			r.request = want
		}
		c.s.haKick()
		return nil
	})
}

func (c *call) haMigrate(g *guest, target string) any {
	return c.quick("hamigrate", fmt.Sprint(g.id), 800*time.Millisecond, func(t *task) error {
		t.say("Requesting HA migration for %s %d to node %s", g.word(), g.id, target)
		c.s.ha.commands = append(c.s.ha.commands, haCommand{g.sid(), "migrate", target})
		c.s.haKick()
		return nil
	})
}

// The manager works every ten seconds, each node's local manager some seconds later.
const (
	haRound     = 10 * time.Second
	haPhase     = 200 * time.Millisecond
	haLocalLag  = 3 * time.Second
	haMaxRounds = 12
)

// haKick makes the rounds go on until nothing is left to do.
func (s *state) haKick() {
	if !s.delays {
		for i := 0; i < haMaxRounds && !s.haSettled(); i++ {
			s.haManage()
			for _, n := range s.nodes {
				s.haLocal(n)
			}
		}
		return
	}
	if s.ha.kicked {
		return
	}
	s.ha.kicked = true
	since := s.now.Sub(s.ha.epoch) - haPhase
	s.after(haRound-since%haRound, s.haTurn)
}

// haTurn is one round of the manager and the local rounds that follow it.
func (s *state) haTurn() {
	s.haManage()
	for i, n := range s.nodes {
		lag := haLocalLag
		if i > 0 {
			lag = haLocalLag * 9 / 5
		}
		s.after(lag, func() { s.haLocal(n) })
	}
	if s.haSettled() {
		s.ha.kicked = false
		return
	}
	s.after(haRound, s.haTurn)
}

func (s *state) haSettled() bool {
	if len(s.ha.commands) > 0 {
		return false
	}
	for sid, r := range s.ha.resources {
		g := s.guestBySID(sid)
		if g == nil {
			continue
		}
		switch r.request {
		case "started", "enabled":
			if r.crm != "started" || !r.running && s.startable(g) == nil {
				return false
			}
		case "stopped", "disabled":
			if r.crm != "stopped" {
				return false
			}
		case "ignored":
			if r.crm != "" {
				return false
			}
		}
	}
	return true
}

// haManage is the manager's round.
func (s *state) haManage() {
	for _, c := range s.ha.commands {
		r := s.ha.resources[c.sid]
		if r == nil {
			continue
		}
		switch c.verb {
		case "stop":
			r.request = "stopped"
		case "migrate":
			r.target, r.done = c.node, false
			if r.crm == "started" {
				r.crm = "migrate"
			} else if g := s.guestBySID(c.sid); g != nil {
				s.haCarry(g, c.node)
				r.node = c.node
			}
		}
	}
	s.ha.commands = nil
	for sid, r := range s.ha.resources {
		g := s.guestBySID(sid)
		up := r.request == "started" || r.request == "enabled"
		if g == nil {
			continue
		}
		if r.request == "ignored" {
			r.crm, r.running = "", false
			continue
		}
		switch r.crm {
		case "":
			r.node, r.done = g.node, false
			r.crm = "request_stop"
			if up {
				r.crm, r.running = "started", g.running
			}
		case "started":
			if !up {
				r.crm, r.done = "request_stop", false
			} else {
				r.running = g.running
			}
		case "request_stop":
			if r.done {
				r.crm, r.running = "stopped", false
			}
		case "stopped":
			if up {
				r.crm, r.running, r.done = "started", g.running, false
			}
		case "migrate":
			if r.done {
				r.crm, r.node, r.running, r.target = "started", r.target, false, ""
			}
		}
	}
}

// haLocal is the round of one node's local manager: it does what the manager's words ask for.
func (s *state) haLocal(n *node) {
	mine := false
	for sid, r := range s.ha.resources {
		if r.target == n.name {
			mine = true
		}
		g := s.guestBySID(sid)
		if r.node != n.name || g == nil || !n.up() {
			continue
		}
		mine = true
		switch r.crm {
		case "started":
			if !g.running && s.startable(g) == nil && g.conf["lock"] == "" {
				s.bootGuest(g)
			}
			r.done = true
		case "request_stop":
			if g.running {
				s.haltGuest(g)
			}
			r.done = true
		case "migrate":
			if g.running && g.kind == kindLXC {
				s.haltGuest(g)
			}
			s.haCarry(g, r.target)
			r.done = true
		}
	}
	if mine {
		s.ha.active[n.name] = true
	}
}

// haCarry moves a guest with its local volumes.
func (s *state) haCarry(g *guest, target string) {
	for _, k := range g.diskKeys(g.conf) {
		if x := s.vol(g.node, volumeOf(g.conf[k])); x != nil && x.node != "" {
			s.dropVol(x)
			s.addVol(target, x)
		}
	}
	g.node = target
	s.touch(g)
}

func (s *state) haRemove(sid string) {
	if s.ha.resources[sid] == nil {
		return
	}
	delete(s.ha.resources, sid)
	for id, r := range s.ha.rules {
		list, _ := r["resources"].(string)
		var keep []string
		for _, x := range splitList(list) {
			if x != sid {
				keep = append(keep, x)
			}
		}
		if len(keep) == 0 {
			delete(s.ha.rules, id)
			continue
		}
		r["resources"] = strings.Join(keep, ",")
	}
}

func haCurrent(c *call) (any, error) {
	s := c.s
	stamp := func(t time.Time) string { return t.UTC().Format("Mon Jan _2 15:04:05 2006") }
	out := []M{{"id": "quorum", "type": "quorum", "node": c.local.name, "quorate": b2i(!s.noQuorum), "status": map[bool]string{false: "OK", true: "No quorum!"}[s.noQuorum]}}
	if len(s.ha.resources) == 0 && s.ha.master == "" {
		return out, nil
	}
	master := firstNonEmpty(s.ha.master, s.nodes[0].name)
	out = append(out, M{"id": "master", "type": "master", "node": master, "status": master + " (active, " + stamp(s.now) + ")", "timestamp": s.now.Unix()})
	out = append(out, M{"id": "fencing", "type": "fencing", "node": master, "armed-state": "armed", "status": "armed (CRM watchdog active)"})
	wanted := map[string]bool{}
	for _, r := range s.ha.resources {
		wanted[r.node] = true
		wanted[r.target] = true
	}
	for _, n := range s.nodes {
		word := "idle, watchdog standby"
		switch {
		case n.state == NodeOff || n.state == NodeHanging:
			word = "old timestamp - dead?"
		case s.ha.active[n.name]:
			word = "active, watchdog active"
		case wanted[n.name]:
			word = "wait_for_agent_lock, watchdog standby"
		}
		out = append(out, M{"id": "lrm:" + n.name, "type": "lrm", "node": n.name, "status": n.name + " (" + word + ", " + stamp(s.now) + ")", "timestamp": s.now.Unix()})
	}
	for _, sid := range sortedKeys(s.ha.resources) {
		r := s.ha.resources[sid]
		node := r.node
		m := M{"id": "service:" + sid, "type": "service", "sid": sid, "node": node, "state": r.word(), "status": sid + " (" + node + ", " + r.word() + ")", "request_state": r.request,
			"max_restart": r.maxRestart, "max_relocate": r.maxRelocate, "failback": r.failback}
		if r.crm != "" {
			m["crm_state"] = r.crm
		}
		if r.comment != "" {
			m["comment"] = r.comment
		}
		out = append(out, m)
	}
	return out, nil
}

func haManager(c *call) (any, error) {
	s := c.s
	services := M{}
	for sid, r := range s.ha.resources {
		services[sid] = M{"node": r.node, "state": firstNonEmpty(r.crm, "queued"), "uid": digestOf(sid)[:22], "running": b2i(r.running)}
	}
	nodes, lrm := M{}, M{}
	for _, n := range s.nodes {
		nodes[n.name] = "online"
		word := "wait_for_agent_lock"
		if s.ha.active[n.name] {
			word = "active"
		}
		if !n.up() && n.state != NodeNoDaemon {
			nodes[n.name] = "unknown"
		}
		lrm[n.name] = M{"mode": "active", "results": M{}, "state": word, "timestamp": s.now.Unix()}
	}
	master := firstNonEmpty(s.ha.master, s.nodes[0].name)
	return M{"manager_status": M{"master_node": master, "node_status": nodes, "service_status": services, "timestamp": s.now.Unix()}, "quorum": M{"node": c.local.name, "quorate": "1"}, "lrm_status": lrm}, nil
}
