package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"castellan/internal/frame"
)

// conn is one connection to a bridge: frames of many asks at once.
type conn struct {
	raw  io.ReadWriteCloser
	w    *frame.Writer
	told *frame.Self // what it said of itself when the connection was made

	mu      sync.Mutex
	waiting map[string]*waiter
	retired bool          // it ends with the last that waits
	err     error         // why it has ended
	done    chan struct{} // closed when it has
}

// waiter is an ask that waits for its end.
type waiter struct {
	end     chan frame.Tell // takes one
	live    func([]byte)
	started bool
}

// newConn takes over the connection; read must run.
func newConn(raw io.ReadWriteCloser) *conn {
	return &conn{raw: raw, w: frame.NewWriter(raw), waiting: map[string]*waiter{}, done: make(chan struct{})}
}

// read hands out what the bridge tells until the connection ends. What is no Tell ends it: nothing after it can be trusted.
func (c *conn) read() {
	r := frame.NewReader(c.raw)
	for {
		var t frame.Tell
		if err := r.Next(&t); err != nil {
			c.end(err)
			return
		}
		if t.ID == "" && t.Ending != "" {
			c.end(fmt.Errorf("the bridge could not read an ask: %s", bounded(t.Reason, 300)))
			return
		}
		c.hear(t)
	}
}

func (c *conn) hear(t frame.Tell) {
	c.mu.Lock()
	w := c.waiting[t.ID]
	if w != nil {
		w.started = w.started || t.Started
		if t.Ending != "" {
			delete(c.waiting, t.ID)
		}
	}
	over := c.retired && len(c.waiting) == 0
	c.mu.Unlock()
	if w == nil {
		return // of an ask that nobody waits for any more
	}
	if w.live != nil {
		for _, piece := range [][]byte{t.Out, t.Err} {
			if len(piece) > 0 {
				w.live(piece)
			}
		}
	}
	if t.Ending != "" {
		w.end <- t
	}
	if over {
		c.end(errRetired)
	}
}

var errRetired = errors.New("another connection has taken its place")

// retire ends the connection when nobody waits for anything over it any more.
func (c *conn) retire() {
	c.mu.Lock()
	c.retired = true
	over := len(c.waiting) == 0
	c.mu.Unlock()
	if over {
		c.end(errRetired)
	}
}

// end closes the connection; the first reason is kept.
func (c *conn) end(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the bridge closed the connection")
	}
	c.err = err
	clear(c.waiting)
	c.mu.Unlock()
	close(c.done)
	_ = c.raw.Close() // it is over in any case
}

// ended says why the connection is over; nil while it is not.
func (c *conn) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *conn) self() *frame.Self { return c.told }
func (c *conn) close(err error)   { c.end(err) }

// ask sends one ask and waits for its end.
func (c *conn) ask(ctx context.Context, a frame.Ask, live func([]byte)) (frame.Tell, error) {
	type sent struct {
		w   *waiter
		err error
	}
	put := make(chan sent, 1)
	go func() {
		w, err := c.put(a, live)
		put <- sent{w, err}
	}()
	var s sent
	select {
	case s = <-put:
	case <-ctx.Done(): // it does not read: whatever is half sent makes the connection useless
		c.end(errors.New("the bridge does not read"))
		<-put
		return frame.Tell{}, &cutError{cause: fmt.Errorf("send ask: %w", ctx.Err())}
	}
	if s.err != nil {
		return frame.Tell{}, &cutError{before: true, cause: s.err}
	}
	select {
	case t := <-s.w.end:
		return t, nil
	case <-ctx.Done():
		return frame.Tell{}, &cutError{started: c.leave(a.ID, s.w), cause: ctx.Err()}
	case <-c.done:
	}
	select { // it may have been told before the end
	case t := <-s.w.end:
		return t, nil
	default:
		return frame.Tell{}, &cutError{started: c.leave(a.ID, s.w), cause: c.ended()}
	}
}

// put sends an ask. An error says that no byte of it was sent.
func (c *conn) put(a frame.Ask, live func([]byte)) (*waiter, error) {
	w := &waiter{end: make(chan frame.Tell, 1), live: live}
	c.mu.Lock()
	switch {
	case c.err != nil:
		err := c.err
		c.mu.Unlock()
		return nil, err
	case c.retired:
		c.mu.Unlock()
		return nil, errRetired
	case c.waiting[a.ID] != nil:
		c.mu.Unlock()
		return nil, fmt.Errorf("an ask of the id %s is under way", a.ID)
	}
	c.waiting[a.ID] = w
	c.mu.Unlock()
	switch err := c.w.Put(a); {
	case errors.Is(err, frame.ErrTooLong):
		c.leave(a.ID, w)
		return nil, err
	case err != nil:
		c.end(err) // a part of it may have been sent
	}
	return w, nil
}

// leave gives up waiting, and says whether the run was told to have started; what is told of it later is not heard.
func (c *conn) leave(id string, w *waiter) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[id] == w {
		delete(c.waiting, id)
	}
	if c.retired && len(c.waiting) == 0 {
		go c.end(errRetired)
	}
	return w.started
}
