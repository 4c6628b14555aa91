// Package lane says what may run on hosts and in guests, without running anything: a fixed catalogue of probes that only
// read, a lock for exact commands that an administrator listed, and a lock for scripts. castellan asks it when it plans, and
// the bridge asks it again on the node, with settings of its own.
package lane

import (
	"fmt"
	"strconv"
)

// Where something runs.
type Where string

// The places.
const (
	Host Where = "host"
	CT   Where = "lxc"
	VM   Where = "qemu"
)

// Place is a node, or a guest on it.
type Place struct {
	Where Where
	Node  string
	VMID  int      // of a guest
	Pools []string // that the guest is in, where known
}

func (p Place) String() string {
	switch p.Where {
	case CT:
		return fmt.Sprintf("CT %d", p.VMID)
	case VM:
		return fmt.Sprintf("VM %d", p.VMID)
	}
	return "node " + p.Node
}

// Verdict of a lock. What is refused was refused by the rule of that name; Hint says which setting would have to change and who can change it.
type Verdict struct {
	Allowed bool
	Rule    string // "commands[2]" of the administrator's, or "program", "option", "argument", "script.rm", …
	Reason  string
	Hint    string
}

// refused makes a verdict whose hint is that nothing of the settings would help.
func refused(rule, format string, args ...any) Verdict {
	return Verdict{Rule: rule, Reason: fmt.Sprintf(format, args...), Hint: "No setting allows this; ask for it in another way, or have a person do it by hand."}
}

// ID reads the number of a guest, in its one canonical form.
func ID(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || strconv.Itoa(n) != s || n < 100 || n > 999_999_999 {
		return 0, fmt.Errorf("read guest id %s: it is no number from 100 to 999999999 in plain digits", show(s))
	}
	return n, nil
}
