package estate

import (
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
)

// Sharing is who else of a site has one of some hardware addresses in its settings: a restored backup or a copy by hand, which
// nothing but its number tells from the original.
type Sharing struct {
	Up   []Guest // that run, or of whom it is not known that they do not
	Down []Guest // that are stopped; looked at only where that is asked for
	// Unread are guests that run and whose settings could not be read, each with the reason.
	Unread []string
	// Unseen is what of the site is out of sight: nodes that are off, guests that castellan's token may not see.
	Unseen []string
}

// Cards asks who else of a site has one of some hardware addresses in its settings.
type Cards struct {
	ID      string   // the guest that is not meant; empty = all are
	Cards   []string // in any case
	Fresh   bool     // who runs is read now; else it may be some seconds old
	Stopped bool     // stopped guests are looked at too
}

// sharingAge is how old settings may be that were read before: what a task or a start changes is seen at once.
const sharingAge = 5 * time.Minute

// Sharing looks for other guests with one of the hardware addresses. A template has no say: it cannot be started.
func (e *Estate) Sharing(ctx context.Context, v gate.View, target string, q Cards) (out Sharing, err error) {
	age := sharingAge
	if q.Fresh {
		age = 0
	}
	s, err := e.Survey(ctx, v, target, age)
	if err != nil {
		return out, err
	}
	inv := s.Inventory()
	if len(inv.Guests) == 0 { // there is at least the guest itself: nothing was listed, and an older listing does not stand in for it
		why := "it is empty"
		for _, gap := range s.Gaps(PartResources) {
			why = gap.Why
		}
		out.Unread = append(out.Unread, "the list of guests: "+why)
		return out, nil
	}
	out.Unseen = slices.Clone(inv.Missing)
	for _, gap := range s.Gaps(PartResources) {
		if !slices.ContainsFunc(out.Unseen, func(m string) bool { return strings.Contains(gap.Why, m) }) {
			out.Unseen = append(out.Unseen, "the list of guests: "+gap.Why)
		}
	}
	if q.Fresh { // the estate has taken the newer listing, and forgotten what it shows to have changed
		if s, err = e.Survey(ctx, v, target, sharingAge); err != nil {
			return out, err
		}
	}
	s.sharing(inv, q, &out)
	return out, nil
}

// sharing reads the settings of the guests that count.
func (s *Survey) sharing(inv *Inventory, q Cards, out *Sharing) {
	mine := map[string]bool{}
	for _, c := range q.Cards {
		if a, err := net.ParseMAC(c); err == nil {
			mine[a.String()] = true
		}
	}
	var look []*Guest
	for i := range inv.Guests {
		g := &inv.Guests[i]
		if g.ID == q.ID || g.Template || g.NodeOff || g.Status == "stopped" && !q.Stopped { // a node that is off is named as a whole
			continue
		}
		look = append(look, g)
	}
	for i, set := range s.Settings(look) {
		g := *look[i]
		switch {
		case set.Config == nil && g.Status != "stopped":
			out.Unread = append(out.Unread, strings.ToUpper(g.Kind)+" "+g.ID+": "+s.why(g.ID))
		case set.Config == nil || !set.has(mine):
		case g.Status == "stopped":
			out.Down = append(out.Down, g)
		default:
			out.Up = append(out.Up, g)
		}
	}
}

// why is for what reason a guest's settings could not be read.
func (s *Survey) why(id string) string {
	for _, gap := range s.Gaps(PartConfig) {
		if gap.Of == id {
			return gap.Why
		}
	}
	return "its answer is empty"
}

// has says whether one of the network cards of these settings has one of the addresses.
func (c Config) has(cards map[string]bool) bool {
	for key, value := range c {
		if !numbered(key, "net") {
			continue
		}
		for part := range strings.SplitSeq(value, ",") {
			_, text, _ := strings.Cut(part, "=")
			if strings.Count(text, ":") != 5 {
				continue
			}
			if a, err := net.ParseMAC(text); err == nil && cards[a.String()] {
				return true
			}
		}
	}
	return false
}
