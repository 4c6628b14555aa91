package channel

import (
	"errors"
	"net"
	"sync/atomic"
)

// What may come over a connection, in bytes: for the handshake, for each word, for each sign of life.
const (
	allowHello = 1 << 20
	allowWord  = 3 << 20
	allowAlive = 64 << 10
	allowMost  = 256 << 20
)

// errFlood is a guest that sends more than it was asked for.
var errFlood = errors.New("it sends more than it was asked for")

// meter lets no more through than was asked for: a guest cannot keep castellan busy with what nobody waits for.
type meter struct {
	net.Conn
	left atomic.Int64
}

func newMeter(c net.Conn) *meter {
	m := &meter{Conn: c}
	m.left.Store(allowHello)
	return m
}

func (m *meter) allow(n int64) {
	if m.left.Load() < allowMost {
		m.left.Add(n)
	}
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	if m.left.Add(-int64(n)) < 0 {
		return 0, errFlood
	}
	return n, err
}
