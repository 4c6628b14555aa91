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
func (e *Estate) Sharing(ctx context.Context, v gate.View, target string, q Cards) (Sharing, error) {
	out, err := e.SharingOf(ctx, v, target, q)
	if err != nil {
		return Sharing{}, err
	}
	return out[0], nil
}

// SharingOf is Sharing for several guests by one look at the site, in their order. It is as fresh as the freshest of them is to be.
func (e *Estate) SharingOf(ctx context.Context, v gate.View, target string, asked ...Cards) ([]Sharing, error) {
	out := make([]Sharing, len(asked))
	fresh := slices.ContainsFunc(asked, func(q Cards) bool { return q.Fresh })
	age := sharingAge
	if fresh {
		age = 0
	}
	s, err := e.Survey(ctx, v, target, age)
	if err != nil {
		return nil, err
	}
	inv := s.Inventory()
	if len(inv.Guests) == 0 { // there is at least the guest itself: nothing was listed, and an older listing does not stand in for it
		why := "it is empty"
		for _, gap := range s.Gaps(PartResources) {
			why = gap.Why
		}
		for i := range out {
			out[i].Unread = []string{"the list of guests: " + why}
		}
		return out, nil
	}
	unseen := slices.Clone(inv.Missing)
	for _, gap := range s.Gaps(PartResources) {
		if !slices.ContainsFunc(unseen, func(m string) bool { return strings.Contains(gap.Why, m) }) {
			unseen = append(unseen, "the list of guests: "+gap.Why)
		}
	}
	for i := range out {
		out[i].Unseen = slices.Clone(unseen)
	}
	if fresh { // the estate has taken the newer listing, and forgotten what it shows to have changed
		if s, err = e.Survey(ctx, v, target, sharingAge); err != nil {
			return nil, err
		}
	}
	s.sharing(inv, asked, out)
	return out, nil
}

// sharing reads the settings of the guests that count, once for all who ask.
func (s *Survey) sharing(inv *Inventory, asked []Cards, out []Sharing) {
	who := map[string][]int{} // who asks about an address
	for i, q := range asked {
		for _, c := range q.Cards {
			if a, err := net.ParseMAC(c); err == nil && !slices.Contains(who[a.String()], i) {
				who[a.String()] = append(who[a.String()], i)
			}
		}
	}
	stopped := slices.ContainsFunc(asked, func(q Cards) bool { return q.Stopped })
	var look []*Guest
	for i := range inv.Guests {
		g := &inv.Guests[i]
		if g.Template || g.NodeOff || g.Status == "stopped" && !stopped || len(asked) == 1 && g.ID == asked[0].ID { // a node that is off is named as a whole
			continue
		}
		look = append(look, g)
	}
	for i, set := range s.Settings(look) {
		g := *look[i]
		if set.Config == nil {
			if g.Status == "stopped" || s.gone(g.ID) {
				continue
			}
			text := strings.ToUpper(g.Kind) + " " + g.ID + ": " + s.why(g.ID)
			for i, q := range asked {
				if q.ID != g.ID {
					out[i].Unread = append(out[i].Unread, text)
				}
			}
			continue
		}
		for _, i := range set.askedFor(who) {
			switch {
			case asked[i].ID == g.ID:
			case g.Status != "stopped":
				out[i].Up = append(out[i].Up, g)
			case asked[i].Stopped:
				out[i].Down = append(out[i].Down, g)
			}
		}
	}
}

// gone says whether a listing that came after the first one lacks a guest: it was deleted while the site was looked at, so it
// answers for nobody.
func (s *Survey) gone(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moved == nil || s.moved.cut || len(s.moved.Guests) == 0 {
		return false
	}
	_, there := s.moved.ByID(id)
	return !there
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

// askedFor are those who ask about one of the addresses of these settings' network cards.
func (c Config) askedFor(who map[string][]int) (out []int) {
	for key, value := range c {
		if !numbered(key, "net") {
			continue
		}
		for part := range strings.SplitSeq(value, ",") {
			_, text, _ := strings.Cut(part, "=")
			if strings.Count(text, ":") != 5 {
				continue
			}
			a, err := net.ParseMAC(text)
			if err != nil {
				continue
			}
			for _, i := range who[a.String()] {
				if !slices.Contains(out, i) {
					out = append(out, i)
				}
			}
		}
	}
	return out
}
