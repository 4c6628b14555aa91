package guest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"castellan/internal/channel"
	"castellan/internal/frame"
	"castellan/internal/gate"
	"castellan/internal/patch"
)

// TestSlowCheck: a guest that takes longer than a call has is not asked a second time: its answer goes to who asks again, once.
func TestSlowCheck(t *testing.T) {
	e := &channel.Entry{}
	r := &Runner{}
	c := &task{r: r, o: opened{where: frame.CT, word: wordUpdates, node: "pve1", vmid: 101}}
	answered, asked := make(chan struct{}), atomic.Int32{}
	r.checks.join(e.ID(), func() (patch.Report, error) {
		asked.Add(1)
		<-answered
		return patch.Report{BootID: "the answer"}, nil
	})
	_, err := c.check(t.Context(), e, 10*time.Millisecond)
	var u *gate.UpstreamError
	if !errors.As(err, &u) || u.Delivery != gate.NotCarriedOut || !strings.Contains(u.Message, "ask again in a minute") {
		t.Fatalf("%v", err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := c.check(stopped, e, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(answered)
	res, err := c.check(t.Context(), e, 10*time.Second)
	var report patch.Report
	if err != nil || json.Unmarshal(res.Report, &report) != nil || report.BootID != "the answer" || asked.Load() != 1 {
		t.Errorf("%+v %v, asked %d times", res, err, asked.Load())
	}
	if len(r.checks.under) != 0 {
		t.Error("an answer that was given is kept")
	}
}

// TestOldCheck: what nobody asked for again in time is not used.
func TestOldCheck(t *testing.T) {
	k := &checks{}
	old := k.join("a", func() (patch.Report, error) { return patch.Report{}, nil })
	<-old.done
	if k.join("a", nil) != old {
		t.Error("an answer of just now is not used")
	}
	k.mu.Lock()
	old.ended = time.Now().Add(-keepCheck - time.Second)
	k.mu.Unlock()
	next := k.join("a", func() (patch.Report, error) { return patch.Report{}, nil })
	<-next.done
	if next == old {
		t.Error("an old answer is used")
	}
	k.take("a", old)
	if k.under["a"] != next {
		t.Error("taking the old one has ended the new one")
	}
	k.forget("a") // something is installed
	if after := k.join("a", func() (patch.Report, error) { return patch.Report{}, nil }); after == next {
		t.Error("what was pending before an installation is told after it")
	}
}
