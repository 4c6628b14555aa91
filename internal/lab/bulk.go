package lab

import (
	"fmt"
	"sort"
	"strings"
	"time"
)

func (c *call) bulkGuests() []int {
	var out []int
	want := map[int]bool{}
	for _, v := range c.list("vms") {
		for _, x := range splitList(v) {
			want[atoi(x)] = true
		}
	}
	for _, id := range c.s.sortedIDs() {
		g := c.s.guests[id]
		if len(want) > 0 && !want[id] {
			continue
		}
		if strings.HasPrefix(c.op.Path, "/nodes/") && g.node != c.node.name {
			continue
		}
		out = append(out, id)
	}
	sort.Ints(out)
	return out
}

// bulk runs one action over many guests; single failures do not stop it.
func bulk(typ, priv, verb string, act func(c *call, g *guest, t *task) error) handler {
	return func(c *call) (any, error) {
		ids := c.bulkGuests()
		if !c.can("/", priv) {
			for _, id := range ids {
				if err := c.need(fmt.Sprintf("/vms/%d", id), priv); err != nil && len(c.list("vms")) > 0 {
					return nil, err
				}
			}
			if len(c.list("vms")) == 0 {
				return nil, denied("/, " + priv)
			}
		}
		for _, v := range c.list("vms") {
			for _, x := range splitList(v) {
				if c.s.guests[atoi(x)] == nil && strings.HasPrefix(c.op.Path, "/cluster/") {
					return nil, die("unable to find guest '%s'", x)
				}
			}
		}
		return c.quick(typ, "", 1500*time.Millisecond, func(t *task) error {
			var failed []string
			texts := make([]string, len(ids))
			for i, id := range ids {
				texts[i] = fmt.Sprint(id)
			}
			if strings.HasPrefix(typ, "bulk") {
				t.say("%s guests: %s", verb, strings.Join(texts, ", "))
			}
			for _, id := range ids {
				g := c.s.guests[id]
				if g == nil {
					continue
				}
				t.say("%s %s %d", verb, g.word(), id)
				if err := act(c, g, t); err != nil {
					t.warn("500 %s", err)
					failed = append(failed, fmt.Sprint(id))
				}
			}
			if len(failed) > 0 && strings.HasPrefix(typ, "bulk") {
				t.warnings = 0
				return die("Some guests failed to %s: %s", strings.TrimPrefix(typ, "bulk-"), strings.Join(failed, ", "))
			}
			return nil
		}), nil
	}
}

func actStart(c *call, g *guest, t *task) error {
	if g.running {
		return die("%s %d already running", g.word(), g.id)
	}
	if err := g.locked(); err != nil {
		return err
	}
	if err := c.s.startable(g); err != nil {
		return err
	}
	c.s.bootGuest(g)
	return nil
}

func actStop(c *call, g *guest, t *task) error {
	if !g.running {
		return nil
	}
	if err := g.locked(); err != nil {
		return err
	}
	c.s.haltGuest(g)
	return nil
}

func actSuspend(c *call, g *guest, t *task) error {
	if g.kind != kindQemu || !g.running {
		return nil
	}
	g.paused = true
	return nil
}

func actMigrate(c *call, g *guest, t *task) error {
	target := c.str("target")
	if g.node == target {
		return die("already on node '%s'", target)
	}
	if g.running && g.kind == kindLXC {
		return die("can't migrate running container without --online or --restart")
	}
	for _, k := range g.diskKeys(g.conf) {
		if x := c.s.vol(g.node, volumeOf(g.conf[k])); x != nil && x.node != "" {
			c.s.dropVol(x)
			c.s.addVol(target, x)
		}
	}
	g.node = target
	c.s.touch(g)
	return nil
}
