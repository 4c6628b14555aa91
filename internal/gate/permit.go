package gate

import (
	"errors"
	"sync/atomic"
)

// ErrPermitSpent is what a used, or never minted, permit answers.
var ErrPermitSpent = errors.New("open permit: it permits nothing (never minted by the gate, or used)")

// Permit allows exactly one write of one step of one plan. Only the gate can mint one; its zero value permits nothing.
type Permit struct {
	sealed *permitted
	used   atomic.Bool
}

type permitted struct {
	target  string
	address string
	request Request
	open    func(Value) (string, error)
}

// Write is what a permit allows.
type Write struct {
	Target  string
	Address string // the address that must take it; empty = the driver picks one and stays with it
	Request Request
	// Open gives the text of a value; secrets are unsealed only here.
	Open func(Value) (string, error)
}

func mint(target, address string, r Request, open func(Value) (string, error)) *Permit {
	return &Permit{sealed: &permitted{target: target, address: address, request: r, open: open}}
}

// Take returns the write, once.
func (p *Permit) Take() (Write, error) {
	if p == nil || p.sealed == nil || !p.used.CompareAndSwap(false, true) {
		return Write{}, ErrPermitSpent
	}
	s := p.sealed
	return Write{Target: s.target, Address: s.address, Request: s.request, Open: s.open}, nil
}
