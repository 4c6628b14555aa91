package channel

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"castellan/internal/gate"
	"castellan/internal/hosts"
)

// Config is what Channels are made from.
type Config struct {
	Store  gate.Store
	Sealer gate.Sealer
	Log    *slog.Logger                                                   // nil: nothing is logged
	Now    func() time.Time                                               // nil: time.Now
	Dial   func(ctx context.Context, to netip.AddrPort) (net.Conn, error) // nil: TCP
	Own    func() ([]netip.Addr, error)                                   // addresses of this machine; nil: those of its interfaces
	// Barred are the servers that castellan works through: no guest is led to one of them by an address that it reports.
	Barred *hosts.Book
}

// Channels keep who is enrolled, and the connections to them. They are safe for concurrent use.
type Channels struct {
	store   gate.Store
	sealer  gate.Sealer
	log     *slog.Logger
	now     func() time.Time
	dial    func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	own     func() ([]netip.Addr, error)
	barred  *hosts.Book
	changes changes

	mu     sync.Mutex
	ways   map[string]*way
	closed bool
}

// NewChannels makes Channels.
func NewChannels(c Config) (*Channels, error) {
	if c.Store == nil || c.Sealer == nil {
		return nil, errors.New("make channels: a store and a sealer are needed")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Dial == nil {
		var d net.Dialer
		c.Dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", to.String())
		}
	}
	if c.Own == nil {
		c.Own = ownAddresses
	}
	return &Channels{store: c.Store, sealer: c.Sealer, log: c.Log, now: c.Now, dial: c.Dial, own: c.Own, barred: c.Barred, changes: changes{last: map[string]change{}}, ways: map[string]*way{}}, nil
}

// of gives the way to an entry: connections of an earlier enrolment of the guest are not used any more.
func (c *Channels) of(e *Entry) (*way, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.New("castellan is ending")
	}
	w := c.ways[e.ID()]
	if w == nil || w.record != e.Record || w.key != e.PublicKey {
		if w != nil {
			go w.close()
		}
		w = newWay(e)
		c.ways[e.ID()] = w
	}
	return w, nil
}

// drop ends the connections to a guest.
func (c *Channels) drop(id string) {
	c.mu.Lock()
	w := c.ways[id]
	delete(c.ways, id)
	c.mu.Unlock()
	if w != nil {
		w.close()
	}
}

// Drop ends the connections to a guest, so that the next word makes a new one.
func (c *Channels) Drop(e *Entry) { c.drop(e.ID()) }

// Close ends all connections.
func (c *Channels) Close() {
	c.mu.Lock()
	c.closed = true
	all := c.ways
	c.ways = map[string]*way{}
	c.mu.Unlock()
	for _, w := range all {
		w.close()
	}
}
