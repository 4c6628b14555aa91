package proxmox

import (
	"strings"

	"castellan/internal/gate"
)

// agentWords are what the API says before a guest agent has done anything, with what to do.
var agentWords = []struct{ part, hint string }{
	{"No QEMU guest agent configured", "A person switches it on: agent=1 in the VM's configuration, then a stop and a start of the VM; and the guest needs the package qemu-guest-agent."},
	{"QEMU guest agent is not running", "The agent does not answer: the guest may still be starting, or the package qemu-guest-agent is not installed or not started in it."},
	{"qga socket", "The agent does not answer: the guest may still be starting, or the package qemu-guest-agent is not installed or not started in it."},
	{"has been disabled", "It is the policy of the guest itself: its settings block this call of the agent (on RHEL and its kin in /etc/sysconfig/qemu-ga). Waiting does not help: somebody has to allow it inside the guest."},
	{"has not been found", "The guest agent there does not have this call; it may be too old."},
	{"is not running", "Start the guest first."},
	{"does not exist", "list_guests shows where each guest is now."},
	{"Agent error:", ""},
}

// agentError says of a request to a guest agent what is known to have been done: what is said before the agent acts, and
// what the agent itself refuses, proves that nothing was.
func agentError(err error, word string) error {
	u := asUpstream(err)
	if u == nil || u.Delivery == gate.NotCarriedOut {
		return err
	}
	e := *u
	if strings.Contains(e.Message, "timeout") && !strings.Contains(e.Message, "qga socket") {
		return &e // it was given to the agent, which may still do it
	}
	for _, w := range agentWords {
		if !strings.Contains(e.Message, w.part) {
			continue
		}
		if e.Hint == "" || w.hint != "" {
			e.Hint = w.hint
		}
		// A file is opened, written and closed one after the other: only the first proves something.
		if word != "file-write" || w.part != "Agent error:" || strings.Contains(e.Message, "open file") {
			e.Delivery = gate.NotCarriedOut
			if e.Kind == gate.ErrUnknownOutcome {
				e.Kind = gate.ErrUnavailable
			}
		}
		return &e
	}
	return &e
}
