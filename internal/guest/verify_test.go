package guest

import (
	"context"
	"errors"
	"testing"
	"time"

	"castellan/internal/frame"
	"castellan/internal/gate"
)

// A check in which Proxmox could not be asked has found nothing: it is not one that says that a guest is worse.
func TestProxmoxDoesNotTellWhetherItRuns(t *testing.T) {
	const current = "GET /nodes/{node}/lxc/{vmid}/status/current"
	for name, k := range map[string]struct {
		status string
		down   error
		asked  bool
	}{
		"stopped":     {status: `{"status":"stopped"}`, asked: true},
		"no status":   {status: `{}`},
		"no JSON":     {status: `<html>`},
		"unreachable": {down: errors.New("connection refused")},
		"an error":    {down: &gate.UpstreamError{Kind: gate.ErrUnavailable, Delivery: gate.MaybeDone, Status: 599, Message: "timed out"}},
	} {
		s := newSite()
		s.says(current, k.status)
		s.down = k.down
		c := &task{r: &Runner{driver: s, settle: 5 * time.Millisecond}, target: "lab", id: "p_1.3", o: opened{where: frame.CT, word: wordUpdates, node: "pve1", vmid: 101, values: map[string][]string{"word": {"verify"}}}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		res, err := c.verify(ctx, nil, 30*time.Millisecond)
		cancel()
		var u *gate.UpstreamError
		if k.asked && (err != nil || res.OK || res.ExitCode == nil) || !k.asked && (!errors.As(err, &u) || u.Delivery != gate.NotCarriedOut) {
			t.Errorf("%s: %+v %v", name, res, err)
		}
	}
}
