package lab

import (
	"fmt"
	"strings"
	"time"
)

// Durations of power calls as seen on small guests.
const (
	startTime    = 1200 * time.Millisecond
	stopTime     = 1200 * time.Millisecond
	shutdownTime = 1500 * time.Millisecond
)

func (g *guest) taskType(verb string) string {
	if g.kind == kindQemu {
		return "qm" + verb
	}
	return "vz" + verb
}

// hold makes a worker the holder of the guest's lock file until it is done.
func (g *guest) hold(t *task) { g.busy = t }

// boot brings a guest up.
func (s *state) bootGuest(g *guest) {
	_, _ = s.applyPending(g, true, nil)
	g.running, g.paused, g.started = true, false, s.now
	s.pid += 13
	g.pid = s.pid
	g.live = cloneMap(g.conf)
	g.makeSeed()
	s.touch(g)
}

// halt takes a guest down; a VM's pending values come into force then.
func (s *state) haltGuest(g *guest) {
	g.running, g.paused, g.pid, g.live = false, false, 0, nil
	if g.kind == kindQemu {
		_, _ = s.applyPending(g, true, nil)
	}
	s.touch(g)
}

// startable tells why a guest cannot come up.
func (s *state) startable(g *guest) error {
	if g.template() {
		if g.kind == kindQemu {
			return die("you can't start a vm if it's a template")
		}
		return die("you can't start a CT if it's a template")
	}
	if b := s.missingBridge(g); b != "" {
		if g.kind == kindLXC {
			return die("startup for container '%d' failed", g.id)
		}
		return die("bridge '%s' does not exist", b)
	}
	for _, k := range g.diskKeys(g.conf) {
		vol := volumeOf(g.conf[k])
		if strings.HasPrefix(k, "unused") || vol == "" {
			continue
		}
		st := s.storages[storeOf(vol)]
		want := "images"
		if g.kind == kindLXC {
			want = "rootdir"
		}
		bad := st == nil || st.disabled() || !st.on(g.node) || !isCDROM(g.conf[k]) && !st.holds(want) || s.vol(g.node, vol) == nil
		if !bad {
			continue
		}
		if g.kind == kindLXC && st != nil && !st.disabled() && st.on(g.node) {
			return die("startup for container '%d' failed", g.id)
		}
		if st == nil {
			return die("storage '%s' does not exist", storeOf(vol))
		}
		if st.disabled() {
			return die("storage '%s' is disabled", st.id)
		}
		if !st.on(g.node) {
			return die("storage '%s' is not available on node '%s'", st.id, g.node)
		}
		return die("volume '%s' does not exist", vol)
	}
	return nil
}

func startGuest(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		// A VM's start is not looked at before the worker runs.
		if strings.Contains(c.op.Path, "/qemu/") {
			if f := c.rootOnly("skiplock", "stateuri", "migratedfrom"); f != nil {
				return nil, f
			}
			return c.quick("qmstart", c.str("vmid"), 100*time.Millisecond, func(*task) error { return err }), nil
		}
		return nil, err
	}
	if err := c.rootOnly("skiplock", "stateuri", "migratedfrom", "migration_type", "migration_network", "machine-root"); err != nil {
		return nil, err
	}
	if g.kind == kindLXC && g.running {
		return nil, die("CT %d already running", g.id)
	}
	if c.s.noQuorum {
		return nil, die("cluster not ready - no quorum?")
	}
	if c.s.managed(g) {
		return c.haRequest(g, "start", "started"), nil
	}
	t := c.s.newTask(c.node, g.taskType("start"), fmt.Sprint(g.id), c.user)
	d := startTime
	if g.kind == kindQemu && g.running || g.template() || g.conf["lock"] != "" {
		d = 200 * time.Millisecond
	}
	c.s.work(t, d, func() error {
		if err := g.locked(); err != nil {
			return err
		}
		if g.running {
			return die("%s %d already running", g.word(), g.id)
		}
		if strings.Contains(strings.Join(g.cloudDisks(), ""), ":") {
			t.say("generating cloud-init ISO")
		}
		if err := c.s.startable(g); err != nil {
			if strings.HasPrefix(err.Error(), "startup for container") {
				t.say("%s", c.s.startTrouble(g))
			}
			return err
		}
		c.s.bootGuest(g)
		return nil
	})
	return t.upid, nil
}

// cloudDisks are the volumes of a VM's cloud-init drives.
func (g *guest) cloudDisks() []string {
	var out []string
	for _, k := range g.diskKeys(g.conf) {
		if vol := volumeOf(g.conf[k]); strings.Contains(vol, "cloudinit") {
			out = append(out, vol)
		}
	}
	return out
}

// missingBridge names a bridge that a guest wants and its node lacks.
func (s *state) missingBridge(g *guest) string {
	have := map[string]bool{"vmbr0": true}
	if n := s.ifaces[g.node]; n != nil {
		for _, m := range n.now {
			if name, ok := m["iface"].(string); ok {
				have[name] = true
			}
		}
	}
	for v := range s.sdn.running["vnets"] {
		have[v] = true
	}
	for _, k := range sortedKeys(g.conf) {
		if strings.HasPrefix(k, "net") && lookup(s.api.configs[kindLXC], k) != nil {
			if b := option(g.conf[k], "bridge"); b != "" && !have[b] {
				return b
			}
		}
	}
	return ""
}

// startTrouble is what a failing start hook prints first.
func (s *state) startTrouble(g *guest) string {
	a, b, c := 571, 845, 2046
	code := 2
	if st := s.storages[storeOf(volumeOf(g.conf["rootfs"]))]; st != nil && !st.holds("rootdir") {
		code = 25
	}
	if s.nested {
		a, b, c = 322, 844, 2027
	}
	return fmt.Sprintf("run_buffer: %d Script exited with status %d\nlxc_init: %d Failed to run lxc.hook.pre-start for container \"%d\"\n__lxc_start: %d Failed to initialize container \"%d\"", a, code, b, g.id, c, g.id)
}

// rootOnly refuses options that are for the true root.
func (c *call) rootOnly(keys ...string) error {
	for _, k := range keys {
		if c.has(k) && c.str(k) != "0" && !c.user.root() {
			return bad(k, "Only root may use this option.")
		}
	}
	return nil
}

func stopGuest(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		if strings.Contains(c.op.Path, "/qemu/") {
			if f := c.rootOnly("skiplock", "keepActive", "migratedfrom"); f != nil {
				return nil, f
			}
			return c.quick("qmstop", c.str("vmid"), 100*time.Millisecond, func(*task) error { return err }), nil
		}
		return nil, err
	}
	if err := c.rootOnly("skiplock", "keepActive", "migratedfrom"); err != nil {
		return nil, err
	}
	if g.kind == kindLXC && !g.running {
		return nil, die("CT %d not running", g.id)
	}
	if c.s.managed(g) && (g.kind == kindLXC || g.running || !c.flag("force")) {
		return c.haRequest(g, "stop", "stopped"), nil
	}
	if c.flag("overrule-shutdown") && g.busy != nil && !g.busy.done {
		c.s.interrupt(g.busy)
	}
	t := c.s.newTask(c.node, g.taskType("stop"), fmt.Sprint(g.id), c.user)
	if g.busy != nil && !g.busy.done {
		file := g.lockFile()
		c.s.work(t, 10*time.Second, func() error {
			t.say("trying to acquire lock...")
			return die("can't lock file '%s' - got timeout", file)
		})
		return t.upid, nil
	}
	d := stopTime
	if !g.running {
		d = 100 * time.Millisecond
	}
	c.s.work(t, d, func() error {
		if err := g.locked(); err != nil && !c.flag("skiplock") {
			return err
		}
		if g.running {
			c.s.haltGuest(g)
		}
		return nil
	})
	return t.upid, nil
}

func shutdownGuest(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		if strings.Contains(c.op.Path, "/qemu/") {
			return c.quick("qmshutdown", c.str("vmid"), 100*time.Millisecond, func(*task) error { return err }), nil
		}
		return nil, err
	}
	if err := c.rootOnly("skiplock", "keepActive"); err != nil {
		return nil, err
	}
	if g.kind == kindLXC && !g.running {
		return nil, die("CT %d not running", g.id)
	}
	if g.kind == kindQemu && g.paused && !c.flag("forceStop") {
		return nil, die("VM is paused - cannot shutdown")
	}
	if c.s.managed(g) {
		return c.haRequest(g, "stop", "stopped"), nil
	}
	wait := 60
	if g.kind == kindQemu {
		wait = 180
	}
	return c.goDown(g, "shutdown", time.Duration(c.numOr("timeout", wait))*time.Second, func() {}), nil
}

// goDown asks a guest to shut down and waits; what comes after runs when it is down.
func (c *call) goDown(g *guest, verb string, wait time.Duration, then func()) any {
	t := c.s.newTask(c.node, g.taskType(verb), fmt.Sprint(g.id), c.user)
	g.hold(t)
	switch {
	case !g.running:
		c.s.work(t, 100*time.Millisecond, func() error { return nil })
	case g.shutFail && c.flag("forceStop"):
		c.s.work(t, wait+time.Second, func() error {
			t.say("VM still running - terminating now with SIGTERM")
			c.s.haltGuest(g)
			then()
			return nil
		})
	case g.shutFail:
		c.s.work(t, wait, func() error {
			if g.kind == kindLXC {
				return die("container did not stop")
			}
			return die("VM quit/powerdown failed - got timeout")
		})
	default:
		d := shutdownTime
		if d > wait {
			d = wait
		}
		c.s.work(t, d, func() error {
			if err := g.locked(); err != nil {
				return err
			}
			c.s.haltGuest(g)
			then()
			return nil
		})
	}
	return t.upid
}

func rebootGuest(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	if !g.running {
		if g.kind == kindLXC {
			return nil, die("CT %d not running", g.id)
		}
		return nil, die("VM %d not running", g.id)
	}
	wait := 60
	if g.kind == kindQemu {
		wait = 180
	}
	return c.goDown(g, "reboot", time.Duration(c.numOr("timeout", wait))*time.Second, func() { c.s.bootGuest(g) }), nil
}

func resetGuest(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	if err := c.rootOnly("skiplock"); err != nil {
		return nil, err
	}
	if !g.running {
		return nil, die("VM %d not running", g.id)
	}
	return c.quick("qmreset", fmt.Sprint(g.id), 100*time.Millisecond, func(*task) error { return g.locked() }), nil
}

func suspendGuest(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	if err := c.rootOnly("skiplock"); err != nil {
		return nil, err
	}
	if !g.running {
		return nil, die("%s %d not running", g.word(), g.id)
	}
	if g.kind == kindQemu && c.flag("todisk") {
		return c.quick("qmsuspend", fmt.Sprint(g.id), 2*time.Second, func(*task) error {
			c.s.haltGuest(g)
			g.conf["lock"] = "suspended"
			return nil
		}), nil
	}
	typ := map[string]string{kindQemu: "qmpause", kindLXC: "vzsuspend"}[g.kind]
	return c.quick(typ, fmt.Sprint(g.id), 200*time.Millisecond, func(*task) error {
		if err := g.locked(); err != nil {
			return err
		}
		if g.kind == kindLXC {
			return die("command 'lxc-checkpoint -n %d -s -D /var/lib/vz/dump' failed: exit code 1", g.id)
		}
		g.paused = true
		return nil
	}), nil
}

func resumeGuest(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	if err := c.rootOnly("skiplock", "nocheck"); err != nil {
		return nil, err
	}
	if g.kind == kindLXC {
		if g.running {
			return nil, die("CT %d already running", g.id)
		}
		return c.quick("vzresume", fmt.Sprint(g.id), 200*time.Millisecond, func(*task) error { return die("no checkpoint of CT %d", g.id) }), nil
	}
	if !g.running && g.conf["lock"] != "suspended" {
		return nil, die("VM %d not running", g.id)
	}
	return c.quick("qmresume", fmt.Sprint(g.id), 200*time.Millisecond, func(*task) error {
		if g.conf["lock"] == "suspended" {
			delete(g.conf, "lock")
			c.s.bootGuest(g)
		}
		g.paused = false
		return nil
	}), nil
}
