package notify

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
)

// Notice is something that happened and that people should hear of. It has typed fields only; text of agents, clients
// and guests has no place in it.
type Notice struct {
	// Kind is one word: "kill_switch", "armed", "credential_enrolled", "credential_removed", "role_granted", …
	Kind       string    `json:"kind"`
	Person     string    `json:"person,omitempty"`     // whom it concerns
	By         string    `json:"by,omitempty"`         // who did it
	Agent      string    `json:"agent,omitempty"`      // which configured agent it concerns
	State      string    `json:"state,omitempty"`      // "on", "off", …
	Operation  string    `json:"operation,omitempty"`  //
	Target     string    `json:"target,omitempty"`     //
	Rung       string    `json:"rung,omitempty"`       //
	Plan       string    `json:"plan,omitempty"`       //
	Credential string    `json:"credential,omitempty"` // fingerprint
	Count      int       `json:"count,omitempty"`
	At         time.Time `json:"at"`
	From       time.Time `json:"from,omitzero"` // from when it holds
	Until      time.Time `json:"until,omitzero"`
}

// urgent says whether quiet hours do not hold it back: whatever stops writes, or changes who can approve.
func (n Notice) urgent() bool {
	for _, start := range []string{"kill", "contain", "credential", "counter", "enrol", "password", "role", "account", "session", "token", "anchor", "rewind"} {
		if strings.HasPrefix(n.Kind, start) {
			return true
		}
	}
	return false
}

// cleaned has every field in the form in which it may stand in a header, a subject or a line.
func (n Notice) cleaned() Notice {
	for _, f := range []*string{&n.Kind, &n.Person, &n.By, &n.Agent, &n.State, &n.Operation, &n.Target, &n.Rung, &n.Plan, &n.Credential} {
		*f = clean(*f)
	}
	n.At, n.From, n.Until = n.At.UTC(), n.From.UTC(), n.Until.UTC()
	return n
}

const maxField = 80

// clean bounds a field and keeps only letters, digits and a few signs that mean nothing in a header, in a mail, in a
// title or in a terminal. Names of people that are not ASCII lose letters; that is the price.
func clean(s string) string {
	var b strings.Builder
	for _, r := range s {
		if b.Len() >= maxField {
			break
		}
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._:@/+-!|", r):
			b.WriteRune(r)
		default:
			b.WriteByte('_')
		}
	}
	return b.String()
}

// waits is one plan as it is told of.
type waits struct {
	ID        string    `json:"id"`
	Operation string    `json:"operation"`
	Targets   []string  `json:"targets"`
	Rung      string    `json:"rung"`
	Expires   time.Time `json:"expires"`
	URL       string    `json:"url,omitempty"`
}

func waitsOf(r *gate.PlanRecord, link func(string) string) waits {
	targets := map[string]bool{}
	for _, s := range r.Plan.Steps {
		if s.Target != "" {
			targets[clean(s.Target)] = true
		}
	}
	w := waits{ID: clean(r.Plan.ID), Operation: clean(r.Plan.Operation), Targets: slices.Sorted(maps.Keys(targets)), Rung: rungOf(r).String(), Expires: r.Plan.Expires.UTC()}
	if len(w.Targets) > 5 {
		w.Targets = append(w.Targets[:4:4], fmt.Sprintf("%d-more", len(w.Targets)-4))
	}
	if link != nil {
		w.URL = safeURL(link(r.Plan.ID))
	}
	return w
}

func rungOf(r *gate.PlanRecord) gate.Rung { return max(r.Plan.Decision.Rung, r.Plan.Decision.Asked) }

// safeURL is a link that can stand in a header; "" when it cannot.
func safeURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || len(text) > 500 ||
		strings.ContainsFunc(text, func(r rune) bool { return r <= 0x20 || r >= 0x7f || strings.ContainsRune("<>\"\\^`{|}", r) }) {
		return ""
	}
	return text
}

const (
	maxPlans   = 20 // listed in one message
	maxNotices = 50
	maxSubject = 240
)

// message is one notification, the same for every sink.
type message struct {
	ID      string    `json:"id"`
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	Urgent  bool      `json:"urgent"`
	Subject string    `json:"subject"`
	Count   int       `json:"count"` // of plans
	Plans   []waits   `json:"plans,omitempty"`
	Notices []Notice  `json:"notices,omitempty"`
	LeftOut int       `json:"left_out,omitempty"`
	URL     string    `json:"url,omitempty"`
}

func newMessage(id string, at time.Time, plans []waits, notices []Notice, link func(string) string) *message {
	m := &message{ID: id, Version: 1, At: at.UTC().Truncate(time.Second), Count: len(plans)}
	for i, n := range notices {
		notices[i] = n.cleaned()
		m.Urgent = m.Urgent || notices[i].urgent()
	}
	m.Subject = subject(plans, notices)
	m.LeftOut = max(0, len(plans)-maxPlans) + max(0, len(notices)-maxNotices)
	m.Plans, m.Notices = plans[:min(len(plans), maxPlans)], notices[:min(len(notices), maxNotices)]
	switch {
	case len(plans) == 1:
		m.URL = plans[0].URL
	case link != nil:
		m.URL = safeURL(link(""))
	}
	return m
}

func subject(plans []waits, notices []Notice) string {
	var parts []string
	switch len(plans) {
	case 0:
	case 1:
		p := plans[0]
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s%s waits for approval (%s), plan %s", p.Operation, onTargets(p.Targets), p.Rung, p.ID)))
	default:
		operations, targets, rungs := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for _, p := range plans {
			operations[p.Operation], rungs[p.Rung] = true, true
			for _, t := range p.Targets {
				targets[t] = true
			}
		}
		parts = append(parts, fmt.Sprintf("%d plans wait for approval: %s%s (%s)", len(plans), few(operations), onTargets(slices.Sorted(maps.Keys(targets))), few(rungs)))
	}
	switch len(notices) {
	case 0:
	case 1:
		parts = append(parts, notices[0].short())
	default:
		kinds := map[string]bool{}
		for _, n := range notices {
			kinds[n.Kind] = true
		}
		parts = append(parts, fmt.Sprintf("%d events: %s", len(notices), few(kinds)))
	}
	s := "castellan: " + strings.Join(parts, "; ")
	if len(s) > maxSubject {
		s = s[:maxSubject] + "..." // all of it is ASCII
	}
	return s
}

func onTargets(t []string) string {
	if len(t) == 0 {
		return ""
	}
	if len(t) > 3 {
		return fmt.Sprintf(" on %d targets", len(t))
	}
	return " on " + strings.Join(t, ", ")
}

func few(set map[string]bool) string {
	all := slices.Sorted(maps.Keys(set))
	if len(all) > 3 {
		return strings.Join(all[:3], ", ") + fmt.Sprintf(" and %d more", len(all)-3)
	}
	return strings.Join(all, ", ")
}

// short is a notice in one line.
func (n Notice) short() string {
	words := []string{n.Kind}
	for _, f := range []struct{ name, value string }{{"", n.State}, {"of ", n.Person}, {"agent ", n.Agent}, {"", n.Operation}, {"on ", n.Target}, {"rung ", n.Rung}, {"plan ", n.Plan}, {"by ", n.By}} {
		if f.value != "" {
			words = append(words, f.name+f.value)
		}
	}
	if n.Count > 0 {
		words = append(words, fmt.Sprintf("(%d)", n.Count))
	}
	return strings.Join(words, " ")
}

// text is the body for people: lines without a control character.
func (m *message) text() string {
	var b strings.Builder
	for _, p := range m.Plans {
		fmt.Fprintf(&b, "%s%s\n  plan %s, needs %s, waits until %s\n", p.Operation, onTargets(p.Targets), p.ID, p.Rung, p.Expires.Format("2006-01-02 15:04 UTC"))
		if p.URL != "" {
			fmt.Fprintf(&b, "  %s\n", p.URL)
		}
	}
	for _, n := range m.Notices {
		fmt.Fprintf(&b, "%s\n  at %s", n.short(), n.At.Format("2006-01-02 15:04:05 UTC"))
		if n.Credential != "" {
			fmt.Fprintf(&b, ", credential %s", n.Credential)
		}
		if !n.From.IsZero() {
			fmt.Fprintf(&b, ", holds from %s", n.From.Format("2006-01-02 15:04 UTC"))
		}
		if !n.Until.IsZero() {
			fmt.Fprintf(&b, ", until %s", n.Until.Format("2006-01-02 15:04 UTC"))
		}
		b.WriteString("\n")
	}
	if m.LeftOut > 0 {
		fmt.Fprintf(&b, "and %d more\n", m.LeftOut)
	}
	if m.URL != "" && len(m.Plans) != 1 {
		b.WriteString(m.URL + "\n")
	}
	b.WriteString("\nWhat a plan does is shown on its page; nothing is approved by opening it.\n")
	return b.String()
}
