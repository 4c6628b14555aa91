package guest

import (
	"context"
	"errors"
	"fmt"

	"castellan/internal/channel"
	"castellan/internal/frame"
	"castellan/internal/gate"
)

// judgePackages lets the fixed words about packages into guests that are enrolled, as long as they are those that were, and
// enrolment where there is a way to do it.
//
// In a privileged container these words need no lane of the host, unlike commands: nobody chooses what is run. The helper's and
// the scripts' texts are this program's own, what comes from outside are names and versions of packages out of the guest's own
// archives, compared before anything is installed; root in the guest was root there before, and a container whose root is the
// node's could always do to the node what its packages do.
func (l *Lanes) judgePackages(ctx context.Context, target string, o opened, g configured, objects []gate.ObjectFacts) gate.LaneVerdict {
	if o.word == wordUpgrade || o.word == wordRepair { // what is approved is what will be asked, so it is read as strictly here
		if _, _, err := o.asked(); err != nil {
			return no("apply_updates makes it from what check_updates finds.", "%v", err)
		}
	}
	switch {
	case l.channel == nil:
		return no("", "castellan keeps no channels into guests here")
	case o.word == wordEnrol && (o.text("way") == wayScript || o.text("way") == wayAccept):
		return gate.LaneVerdict{Note: "a person runs the script in the guest and hands back what it prints"}
	case o.word == wordUnenrol && o.yes("forget"):
		return gate.LaneVerdict{Note: "castellan's side only: what it left in the guest stays there"}
	case o.word == wordEnrol || o.word == wordUnenrol:
		return l.wayIn(target, o, g)
	}
	facts, _ := acted(objects, o.vmid)
	e, err := l.channel.Find(ctx, facts.Object.Site, o.vmid)
	switch {
	case errors.Is(err, channel.ErrNotEnrolled):
		return no("A person lets castellan look after its packages: "+o.command("enrol")+".", "%s is not enrolled", o)
	case err != nil:
		return no("", "%v", err)
	}
	if hint, why := mismatch(e, o, g); why != "" {
		return no(hint, "%s", why)
	}
	return gate.LaneVerdict{Note: "over castellan's channel into the guest, enrolled " + e.At.UTC().Format("2006-01-02")}
}

// wayIn says how castellan gets in to put its channel there, or take it away.
func (l *Lanes) wayIn(target string, o opened, g configured) gate.LaneVerdict {
	byHand := fmt.Sprintf("a person prints a script to paste in the guest: %s --script", o.command("enrol"))
	if o.word == wordUnenrol {
		byHand = "to remove castellan's side alone: " + o.command("unenrol") + " --forget"
	}
	if o.where == frame.VM {
		if !g.agent {
			return no("A person switches it on: agent=1 in the VM's configuration, then a stop and a start of the VM, with the package qemu-guest-agent in the guest. Or "+byHand+".", "the guest agent of %s is switched off, and it is the way into it", o)
		}
		return gate.LaneVerdict{Note: fmt.Sprintf("through the guest agent of VM %d, by castellan's own script", o.vmid)}
	}
	b := l.bridges.of(target, o.node)
	if b == nil {
		return no(fmt.Sprintf("A person runs castellan bridge install on node %s and adds a [[bridge]] with target = %q and node = %q to castellan's configuration. Or %s.", o.node, target, o.node, byHand),
			"there is no bridge to node %s of target %s, and it is the way into %s", o.node, target, o)
	}
	return gate.LaneVerdict{Note: "through the bridge on node " + o.node + ", which makes the script itself (its words must list \"enrol\")"}
}
