package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// A mandate that names a guest by its number is for the guest that has it when the mandate is given. One that is made anew under
// the number is another guest, unless the person said that the number alone counts.

// guestsNow is what a look at a mandate's guests showed: which are still those for which it was given, and why others are not.
type guestsNow struct {
	same  map[string]bool
	other map[string]string
}

// numbered are the guests that a mandate names by number, as its objects have them.
func (m *Mandate) numbered() (out []string) {
	for _, o := range m.Objects {
		if strings.HasPrefix(o, string(ObjectGuest)+"/") {
			out = append(out, o)
		}
	}
	return out
}

// marks are what tells each guest of a mandate, in words. What comes to be known as time goes is none.
func (m *Mandate) marks() map[string][]string {
	out := map[string][]string{}
	for guest, all := range m.Guests {
		for _, c := range all {
			if c.Since.IsZero() {
				out[guest] = append(out[guest], c.Name)
			}
		}
	}
	return out
}

// names says whether an object is among those that the mandate names: a guest only while it is the one that was meant.
func (m *Mandate) names(o Object) bool {
	text := o.String()
	return slices.Contains(m.Objects, text) && (o.Kind != ObjectGuest || m.ByNumber || m.looked != nil && m.looked.same[text])
}

// lacks says that a mandate does not name an object, or that what it names was another guest.
func (m *Mandate) lacks(o Object, otherwise string) string {
	if m.looked != nil && m.looked.other[o.String()] != "" {
		return m.looked.other[o.String()]
	}
	return otherwise
}

// guestTarget is the one target of a mandate that has guests; empty when there is none, or more than one.
func (g *Gate) guestTarget(targets []string) (target string) {
	for _, t := range g.c.Driver.Targets() {
		switch {
		case !slices.Contains(targets, t.Name) || t.Product != "pve":
		case target != "":
			return ""
		default:
			target = t.Name
		}
	}
	return target
}

// knowGuests keeps with a mandate what tells the guests that it names by number.
func (g *Gate) knowGuests(ctx context.Context, who Principal, m *Mandate) error {
	const hint = "Give the mandate without it, name it by a pool or tag, or say that the number alone counts, whichever guest has it."
	m.Guests, m.looked = nil, nil
	guests := m.numbered()
	if m.ByNumber || len(guests) == 0 {
		return nil
	}
	target := g.guestTarget(m.Targets)
	if target == "" {
		return Fail(ErrInvalid, hint, "none of the targets is a Proxmox VE, which could tell what distinguishes %s from a later guest of that number", guests[0])
	}
	v := g.freshView(who, g.now())
	v.most = maxWalkReads
	m.Guests = map[string][]Condition{}
	for _, o := range guests {
		_, id, _ := strings.Cut(o, "/")
		known, err := g.c.Estate.Lasting(ctx, v, target, id, g.now())
		if err != nil {
			e := AsError(err)
			return Fail(e.Kind, hint, "what distinguishes %s from a later guest of that number cannot be read: %s", clip(o, 40), e.Message)
		}
		if len(known) == 0 {
			return Fail(ErrInvalid, hint, "%s has nothing that distinguishes it from a later guest of that number: neither an SMBIOS uuid nor a hardware address", clip(o, 40))
		}
		m.Guests[o] = known
	}
	return nil
}

// lookAtGuests looks whether the guests that a mandate names by number, and that a plan touches, are still those that were meant.
func (g *Gate) lookAtGuests(ctx context.Context, m *Mandate, p *Plan) {
	m.looked = &guestsNow{same: map[string]bool{}, other: map[string]string{}}
	if m.ByNumber {
		return
	}
	target, touched := g.guestTarget(m.Targets), g.touchedGuests(p)
	v, read := g.freshView(p.Requester, g.now()), readings{}
	v.most = maxWalkReads
	for _, o := range m.numbered() {
		if !touched[o] {
			continue
		}
		if why := g.another(ctx, v, read, target, m.Guests[o]); why != "" {
			m.looked.other[o] = fmt.Sprintf("%s may not be the guest for which it was given (%s); a person gives a new one for the guest that has the number now", o, why)
			continue
		}
		m.looked.same[o] = true
	}
}

// another says why a guest is not surely the one that conditions tell; empty when it is.
func (g *Gate) another(ctx context.Context, v *view, read readings, target string, known []Condition) string {
	if target == "" || len(known) == 0 {
		return "it was kept with the number alone"
	}
	for _, c := range known {
		ok, got, err := read.holds(ctx, v, target, c)
		switch {
		case err != nil:
			return fmt.Sprintf("whether %s cannot be read: %s", c.Name, clip(AsError(err).Message, 200))
		case !ok:
			return fmt.Sprintf("no longer so: %s; found: %s", c.Name, clip(got, 120))
		}
	}
	return ""
}

// touchedGuests are the guests that a plan acts on or hits, by themselves, a snapshot or a volume of theirs.
func (g *Gate) touchedGuests(p *Plan) map[string]bool {
	out := map[string]bool{}
	add := func(o Object) {
		switch {
		case o.Kind == ObjectSnapshot:
			o.ID, _, _ = strings.Cut(o.ID, "/")
		case o.Kind == ObjectVolume && g.c.Backups != nil:
			o.ID = g.c.Backups.Owner(o.ID)
		case o.Kind != ObjectGuest:
			return
		}
		out[Object{Kind: ObjectGuest, ID: o.ID}.String()] = true
	}
	for _, o := range p.Facts.Objects {
		add(o.Object)
	}
	for _, h := range p.Facts.Reach.Hits {
		add(h.Object)
	}
	return out
}

// coversNow is covers after a look at the guests that the mandate names by number.
func (g *Gate) coversNow(ctx context.Context, m *Mandate, p *Plan) string {
	all := *m
	all.ByNumber = true
	if why := g.covers(&all, p); why != "" { // without a look at them
		return why
	}
	g.lookAtGuests(ctx, m, p)
	return g.covers(m, p)
}
