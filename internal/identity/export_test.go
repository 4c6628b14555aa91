package identity

import (
	"context"
	"net/http"
	"net/netip"

	"castellan/internal/gate"
)

// Cheap makes password hashes quick for tests.
func (i *Identity) Cheap() {
	i.cost = cost{memory: 64, passes: 1, threads: 1}
	i.dummy = i.cost.dummyHash()
}

// Through lets tests reach an outside provider of any name; all other checks stay.
func (i *Identity) Through(t http.RoundTripper) { i.outside.Transport = &bounded{t} }

// What the fuzz tests and tables reach.
var (
	AllowedAddress = allowedAddress
	LeadsToRoot    = leadsToRoot
)

// Busy takes all turns of checking passwords until done is called; a check of a name that has no account then fails
// loudly.
func (i *Identity) Busy() (done func()) {
	i.dummy = "no hash"
	for range cap(i.slots) {
		i.slots <- struct{}{}
	}
	return func() {
		for range cap(i.slots) {
			<-i.slots
		}
	}
}

// Lock locks an address as failures do.
func (i *Identity) Lock(ctx context.Context, ip netip.Addr) error {
	return i.update(ctx, "lock", func(tx gate.Tx) (error, error) {
		for range i.set.LockAfter {
			if _, err := i.failed(tx, addressBucket(methodPassword, ip)); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
}
