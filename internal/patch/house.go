package patch

import (
	"fmt"
	"slices"
	"strings"
)

// ParseServices reads the answer to services.
func ParseServices(b []byte) (House, error) {
	r, err := readReport(b, string(Services))
	if err != nil {
		return House{}, err
	}
	r.system()
	r.one("clock", 1, 1)
	r.one("helper", 1, 1)
	h := r.house("")
	h.Cards = r.cards()
	h.Unread = r.rest()
	return *h, nil
}

// house reads the lines of services whose keys have a prefix.
func (r *report) house(prefix string) *House {
	h := &House{BootID: r.bootID(prefix + "boot"), State: clip(r.text(prefix+"init"), 40), Units: []Unit{}, Ports: []Port{}}
	seen := map[string]bool{}
	for _, row := range r.all(prefix+"unit", 2, 5, maxRows) {
		u := Unit{Name: clip(row[0], 250), Active: clip(row[1], 40), Sub: clip(row[2], 40), Enabled: row[3] == "1"}
		n, _ := r.number("unit", row[4], 1<<31)
		u.Restarts = int(n)
		if u.Name == "" || u.Active == "" || seen[u.Name] {
			r.concern("the report names the unit %q twice, or without a state", u.Name)
			continue
		}
		seen[u.Name] = true
		h.Units = append(h.Units, u)
	}
	for _, row := range r.all(prefix+"port", 3, 5, maxRows) {
		n, ok := r.number("port", row[2], 65535)
		p := Port{Proto: row[0], Address: clip(row[1], 60), Port: int(n), Program: clip(row[3], 60)}
		if p.Owner = row[4]; p.Owner != "" && p.Owner != ownerSystem && p.Owner != ownerAccount {
			r.concern("whose a port is is said as %q", clip(p.Owner, 20))
			p.Owner = ""
		}
		if !ok || n == 0 || p.Proto != "tcp" && p.Proto != "udp" {
			r.concern("the report has a port that is none: %q", clip(strings.Join(row, " "), 80))
			continue
		}
		if !slices.ContainsFunc(h.Ports, func(q Port) bool { return q.Proto == p.Proto && q.Address == p.Address && q.Port == p.Port }) {
			h.Ports = append(h.Ports, p)
		}
	}
	if prefix != "" {
		h.Unread = r.texts(prefix+"unread", maxTexts)
	}
	return h
}

// Whose a port is.
const (
	ownerSystem  = "system"
	ownerAccount = "account"
)

// ephemeral is the first port that systems give to whoever asks for any.
const ephemeral = 32768

// Compare says how a house differs from what it was.
func Compare(before, after House) (d Difference) {
	line := func(list *[]string, format string, args ...any) {
		if len(*list) < maxTexts {
			*list = append(*list, fmt.Sprintf(format, args...))
		}
	}
	for when, h := range map[string]House{"before": before, "after": after} {
		if len(h.Units) == 0 && len(h.Ports) == 0 {
			line(&d.Unread, "neither services nor ports are known from %s", when)
		}
	}
	for _, text := range after.Unread {
		line(&d.Unread, "%s", text)
	}
	for _, text := range before.Unread {
		line(&d.Unread, "before: %s", text)
	}
	slices.Sort(d.Unread)
	d.Unread = slices.Compact(d.Unread)
	rebooted := before.BootID != "" && after.BootID != "" && before.BootID != after.BootID
	if rebooted {
		line(&d.Other, "it was booted anew in between")
	}
	units := map[string]Unit{}
	for _, u := range after.Units {
		units[u.Name] = u
	}
	had := map[string]bool{}
	for _, b := range before.Units {
		had[b.Name] = true
		a, there := units[b.Name]
		up := b.Active == "active" || b.Active == "reloading"
		switch {
		case !there && up && b.Enabled && len(after.Units) > 0:
			line(&d.Worse, "%s is gone; it was %s", b.Name, b.state())
		case !there:
			if up {
				line(&d.Other, "%s is gone; it was %s", b.Name, b.state())
			}
		case a.Active == "failed" && b.Active != "failed":
			line(&d.Worse, "%s failed; it was %s", b.Name, b.state())
		case a.Active == "failed":
			line(&d.Other, "%s is failed, as before", b.Name)
		case b.Active == "failed":
			line(&d.Better, "%s is %s; it was failed", b.Name, a.state())
		case a.Sub == "auto-restart" && b.Sub != "auto-restart", a.Restarts > b.Restarts, rebooted && a.Restarts > 0:
			line(&d.Worse, "%s ends and is restarted by itself (%d times, before %d)", b.Name, a.Restarts, b.Restarts)
		case up && a.Active != "active" && a.Active != "reloading":
			if b.Enabled && b.Sub != "exited" || a.Active == "activating" || a.Active == "deactivating" {
				line(&d.Worse, "%s is %s; it was %s", b.Name, a.state(), b.state())
			} else {
				line(&d.Other, "%s is %s; it was %s", b.Name, a.state(), b.state())
			}
		case a.Restarts < b.Restarts:
			line(&d.Other, "%s was restarted", b.Name)
		}
	}
	for _, a := range after.Units {
		switch {
		case had[a.Name]:
		case a.Active == "failed" || a.Sub == "auto-restart":
			line(&d.Worse, "%s is new and %s", a.Name, a.state())
		case a.Active == "active":
			line(&d.Other, "%s is new and %s", a.Name, a.state())
		}
	}
	comparePorts(before, after, &d, line)
	return d
}

func (u Unit) state() string {
	if u.Sub == "" {
		return u.Active
	}
	return u.Active + " (" + u.Sub + ")"
}

func (p Port) name() string {
	text := fmt.Sprintf("%s port %d on %s", p.Proto, p.Port, dash(p.Address))
	if p.Program != "" {
		text += " (" + p.Program + ")"
	}
	return text
}

// comparePorts holds each port against the same one of after. Those of ordinary accounts are told and decide nothing: whoever has
// an account could else have an upgrade counted as failed, and gone back from.
func comparePorts(before, after House, d *Difference, line func(*[]string, string, ...any)) {
	find := func(h House, p Port) (Port, bool) {
		i := slices.IndexFunc(h.Ports, func(q Port) bool { return q.Proto == p.Proto && q.Port == p.Port && q.Address == p.Address })
		if i < 0 {
			return Port{}, false
		}
		return h.Ports[i], true
	}
	for _, b := range before.Ports {
		a, there := find(after, b)
		passing := b.Proto == "udp" && b.Port >= ephemeral // of a program that asks something just now
		switch {
		case !there && passing:
		case b.Owner == ownerAccount && (!there || a.Owner != ownerSystem):
			switch {
			case !there:
				line(&d.Other, "nothing listens on %s any more, which was of an ordinary account and does not count", b.name())
			case b.Reached != nil && *b.Reached && a.Reached != nil && !*a.Reached:
				line(&d.Other, "%s is not reached any more; it is of an ordinary account and does not count", a.name())
			}
		case !there:
			line(&d.Worse, "nothing listens on %s any more", b.name())
		case b.Owner == ownerSystem && a.Owner == ownerAccount:
			line(&d.Worse, "%s is of an ordinary account now; it was the system's", a.name())
		case b.Reached != nil && *b.Reached && a.Reached == nil:
			line(&d.Unread, "whether %s is reached was not tried again", a.name())
		case b.Reached != nil && *b.Reached && !*a.Reached:
			line(&d.Worse, "%s is not reached any more", a.name())
		case b.Reached != nil && !*b.Reached && a.Reached != nil && *a.Reached:
			line(&d.Better, "%s is reached, which it was not before", a.name())
		case b.Program != "" && a.Program != "" && b.Program != a.Program:
			line(&d.Other, "%s was %s's", a.name(), b.Program)
		}
	}
	for _, a := range after.Ports {
		if _, there := find(before, a); !there && (a.Proto != "udp" || a.Port < ephemeral) {
			line(&d.Other, "something listens on %s that did not before", a.name())
		}
	}
}
