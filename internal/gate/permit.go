package gate

import (
	"errors"
	"sync/atomic"
)

// ErrPermitSpent is what a used, or never minted, permit answers.
var ErrPermitSpent = errors.New("open permit: it permits nothing (never minted by the gate, or used)")

// Permit allows exactly one write of one step of one plan. Only the gate can mint one; its zero value permits nothing.
type Permit struct {
	sealed *Write
	used   atomic.Bool
}

// Write is what a permit allows.
type Write struct {
	Target  string
	Address string // the address that must take it; empty = the driver picks one and stays with it
	Request Request
	// Key names plan and step, in letters that can be part of a file's name; empty where there is no plan.
	Key string
	// Download is what the step says of the file that it fetches; nil = nothing is known of it.
	Download *Download
	// Open gives the text of a value; secrets are unsealed only here.
	Open func(Value) (string, error)
}

func mint(w Write) *Permit { return &Permit{sealed: &w} }

// Take returns the write, once.
func (p *Permit) Take() (Write, error) {
	if p == nil || p.sealed == nil || !p.used.CompareAndSwap(false, true) {
		return Write{}, ErrPermitSpent
	}
	return *p.sealed, nil
}
