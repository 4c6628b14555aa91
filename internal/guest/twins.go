package guest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"castellan/internal/gate"
)

// Twins tells which other guests of a target's site have one of some hardware addresses in their settings. What a machine says
// of its network cards tells it from a copy only where the copy has cards of its own.
type Twins interface {
	// Twins looks for guests other than vmid that run, or of whom it is not known that they do not. fresh wants to know who runs
	// now; else that may be seconds old.
	Twins(ctx context.Context, target string, vmid int, cards []string, fresh bool) (Shared, error)
}

// Shared is who shares hardware addresses with a guest.
type Shared struct {
	With   []string // short names: "VM 105"
	Unread []string // guests that run and whose settings could not be read, with the reason
	Unseen []string // what of the site castellan does not see
}

// How long the look may take; what was not read by then is not known. Before something is written it is waited for longer: a large
// site whose settings were not read for a while takes a minute, and a refusal ends a wave.
const (
	twinsLimit  = 15 * time.Second
	surelyLimit = 3 * time.Minute
)

// twinError says that another guest has one of the guest's hardware addresses, so that nobody can tell which of them answers.
type twinError struct {
	o    opened
	with []string
}

func (e *twinError) Error() string {
	return fmt.Sprintf("which machine answers for it cannot be told: %s has one of its hardware addresses in its settings too, and is not stopped, as a backup restored with its addresses (unique=0) would", strings.Join(e.with, ", "))
}

// hint says what to do about it.
func (e *twinError) hint() string {
	return fmt.Sprintf("Nothing was changed, and nothing that was answered counts. Stop %s, or give it hardware addresses of its own (in its settings, net0 and so on; a restore with unique=1 does that). If it is to take the place of guest %d, stop or delete that one and enrol the other: castellan enrol %s.",
		e.with[0], e.o.vmid, e.with[0][strings.LastIndexByte(e.with[0], ' ')+1:])
}

// alone refuses where another guest has one of this one's hardware addresses. What is not known of that is given back.
func (c *task) alone(ctx context.Context, fresh bool) (unread []string, err error) {
	if c.r.twins == nil || len(c.g.cards) == 0 {
		return nil, nil
	}
	limit := twinsLimit
	if fresh {
		limit = surelyLimit
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, err := c.r.twins.Twins(limited, c.target, c.o.vmid, c.g.cards, fresh)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return []string{"whether another guest has its hardware addresses: " + bounded(err.Error(), 200)}, nil
	}
	if len(s.With) > 0 {
		return nil, &twinError{c.o, someTexts(s.With, 5)}
	}
	c.seen(s.Unseen)
	if len(s.Unread) > 0 {
		unread = append(unread, "whether another guest has its hardware addresses, since settings could not be read of "+bounded(strings.Join(someTexts(s.Unread, 5), "; "), 400))
	}
	return unread, nil
}

// surelyAlone is alone before something is written: what is not known refuses.
func (c *task) surelyAlone(ctx context.Context) error {
	unread, err := c.alone(ctx, true)
	var twin *twinError
	switch {
	case errors.As(err, &twin):
		return refused(gate.ErrDenied, twin.hint(), "%s: %v", c.o, err)
	case err != nil:
		return err
	case len(unread) > 0:
		return refused(gate.ErrUnavailable, "Nothing was changed. Try again when that can be read; node_status tells how the node is, doctor what castellan's token may see.", "%s: it is not known %s", c.o, strings.Join(unread, "; "))
	}
	return nil
}

// seen keeps what of the site was out of sight when it was looked for twins.
func (c *task) seen(unseen []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range unseen {
		if text = bounded(text, 200); !slices.Contains(c.unseen, text) && len(c.unseen) < 8 {
			c.unseen = append(c.unseen, text)
		}
	}
}

// blind says what was out of sight, empty where nothing was.
func (c *task) blind() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unseen) == 0 {
		return ""
	}
	return "whether guests that castellan does not see have its hardware addresses is not known: " + strings.Join(c.unseen, "; ")
}

func someTexts(list []string, n int) []string {
	if len(list) <= n {
		return list
	}
	return append(slices.Clone(list[:n]), "and "+strconv.Itoa(len(list)-n)+" more")
}
