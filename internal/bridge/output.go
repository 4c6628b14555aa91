package bridge

import (
	"sync"

	"castellan/internal/frame"
)

// keeper takes all that one output prints and keeps its begin and its end: half of max bytes each, never more.
type keeper struct {
	mu    sync.Mutex
	half  int
	head  []byte
	tail  []byte // a ring once it is full
	at    int    // where the ring's oldest byte is
	total int64
	fresh []byte // not yet told of, at most freshMost
	lost  bool   // some of it was not told of
	tell  bool
}

const freshMost = 16 << 10

func newKeeper(most int, tell bool) *keeper {
	return &keeper{half: max(most/2, 1), tell: tell}
}

// Write never fails.
func (k *keeper) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(p)
	k.total += int64(n)
	if k.tell {
		room := freshMost - len(k.fresh)
		k.fresh = append(k.fresh, p[:min(room, n)]...)
		k.lost = k.lost || room < n
	}
	if room := k.half - len(k.head); room > 0 {
		k.head = append(k.head, p[:min(room, len(p))]...)
		p = p[min(room, len(p)):]
	}
	if len(p) > k.half {
		p = p[len(p)-k.half:]
	}
	if room := k.half - len(k.tail); room > 0 {
		k.tail = append(k.tail, p[:min(room, len(p))]...)
		p = p[min(room, len(p)):]
	}
	for len(p) > 0 {
		c := copy(k.tail[k.at:], p)
		k.at, p = (k.at+c)%k.half, p[c:]
	}
	return n, nil
}

// printed is how many bytes came.
func (k *keeper) printed() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.total
}

// news is what came since the last call, its begin where it was much.
func (k *keeper) news() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := k.fresh
	k.fresh = nil
	return out
}

func (k *keeper) output() frame.Output {
	k.mu.Lock()
	defer k.mu.Unlock()
	o := frame.Output{Head: append([]byte(nil), k.head...), Total: k.total}
	tail := append(append([]byte(nil), k.tail[k.at:]...), k.tail[:k.at]...)
	if k.total == int64(len(k.head)+len(tail)) { // nothing is missing between
		o.Head = append(o.Head, tail...)
		return o
	}
	o.Tail = tail
	return o
}
