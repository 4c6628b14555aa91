package console

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"castellan/internal/gate"
)

// minuteForm is how a form gives a time, in UTC.
const minuteForm = "2006-01-02T15:04"

type mandatesPage struct {
	Mandates   []mandateLine
	Operations []*gate.Operation
	Targets    []gate.TargetInfo
	Written    mandateForm
	Problem    string
	Hint       string
	ByPasskey  bool
	Exposed    bool // a session alone gives none
}

// mandateForm is what a person wrote, as text, so that it comes back when something is wrong with it.
type mandateForm struct {
	For, Objects, Args, Count, From, Until, Note string
	Windows, Scheduled, ScheduledArgs            string
	Operations, Targets                          []string
	Newer, ByNumber                              bool
}

type mandateLine struct {
	*gate.Mandate
	Used  int
	Live  bool
	State string
}

func (c *Console) mandateLine(m *gate.Mandate) mandateLine {
	out := mandateLine{Mandate: m, Used: len(m.Uses)}
	switch now := c.now(); {
	case m.Revoked != "":
		out.State = "Revoked " + m.Revoked
	case !now.Before(m.Until):
		out.State = "Expired " + c.ago(m.Until)
	case len(m.Uses) >= m.Count:
		out.State = "Used up"
	case now.Before(m.From):
		out.State, out.Live = "Holds "+c.ago(m.From), true
	default:
		out.State, out.Live = "Holds", true
	}
	return out
}

func (c *Console) drawMandates(v *visit, status int, p mandatesPage) {
	list, err := c.c.Gate.Mandates(v.ctx, v.who)
	if err != nil {
		c.fail(v, err)
		return
	}
	slices.SortFunc(list, func(a, b *gate.Mandate) int { return b.Given.Compare(a.Given) })
	for _, m := range list {
		p.Mandates = append(p.Mandates, c.mandateLine(m))
	}
	slices.SortStableFunc(p.Mandates, func(a, b mandateLine) int {
		if a.Live == b.Live {
			return 0
		} else if a.Live {
			return -1
		}
		return 1
	})
	for _, o := range c.c.Gate.Operations() {
		if o.Writes() && o.Effect != gate.EffectDestroy {
			p.Operations = append(p.Operations, o)
		}
	}
	p.Targets = c.c.Gate.Targets()
	if p.Written.From == "" {
		p.Written.From, p.Written.Until, p.Written.Count = c.now().UTC().Format(minuteForm), c.now().UTC().Add(24*time.Hour).Format(minuteForm), "10"
	}
	keys, err := c.c.People.Credentials(v.ctx, v.who.Person)
	p.ByPasskey, p.Exposed = err == nil && c.usable(keys), c.exposed
	c.draw(v, status, "mandates", sheet{Title: "Mandates", At: "/mandates", Script: true, Body: p})
}

func (c *Console) mandates(v *visit) { c.drawMandates(v, http.StatusOK, mandatesPage{}) }

// written reads the form. Both the challenge and the grant are made of it, so it holds no time of its own.
func written(v *visit) (gate.Mandate, mandateForm, error) {
	f := v.r.PostForm
	w := mandateForm{For: strings.TrimSpace(f.Get("for")), Objects: f.Get("objects"), Args: f.Get("args"), Count: f.Get("count"), From: f.Get("from"), Until: f.Get("until"),
		Note: clipRunes(strings.TrimSpace(f.Get("note")), 300), Operations: f["operation"], Targets: f["target"], Newer: f.Get("newer") != "", ByNumber: f.Get("bynumber") != ""}
	m := gate.Mandate{Operations: w.Operations, Targets: w.Targets, Objects: strings.Fields(w.Objects), Note: w.Note, AllowNewer: w.Newer, ByNumber: w.ByNumber}
	agent, person, _ := strings.Cut(w.For, "|")
	m.For = gate.Principal{Agent: strings.TrimSpace(agent), Person: strings.TrimSpace(person)}.Key()
	bad := func(format string, args ...any) error {
		return gate.Fail(gate.ErrInvalid, "Change it below.", format, args...)
	}
	for l := range strings.Lines(w.Args) {
		name, values, ok := strings.Cut(strings.TrimSpace(l), "=")
		if strings.TrimSpace(l) == "" {
			continue
		}
		if !ok || strings.TrimSpace(name) == "" {
			return m, w, bad("the argument line %q is not name=value", clipRunes(strings.TrimSpace(l), 80))
		}
		if m.Args == nil {
			m.Args = map[string][]string{}
		}
		name = strings.TrimSpace(name)
		m.Args[name] = append(m.Args[name], strings.TrimSpace(values))
	}
	w.Windows, w.Scheduled, w.ScheduledArgs = f.Get("windows"), strings.TrimSpace(f.Get("scheduled")), strings.TrimSpace(f.Get("scheduled_args"))
	for l := range strings.Lines(w.Windows) {
		if l = strings.Join(strings.Fields(l), " "); l != "" {
			m.Windows = append(m.Windows, l)
		}
	}
	switch {
	case w.Scheduled != "":
		m.Schedule = &gate.Schedule{Operation: w.Scheduled}
		if w.ScheduledArgs != "" {
			if !json.Valid([]byte(w.ScheduledArgs)) {
				return m, w, bad("the arguments of the schedule are no JSON")
			}
			m.Schedule.Args = json.RawMessage(w.ScheduledArgs)
		}
	case w.ScheduledArgs != "":
		return m, w, bad("arguments of a schedule are given, and no operation that it calls")
	}
	var err error
	if m.Count, err = strconv.Atoi(strings.TrimSpace(w.Count)); err != nil {
		return m, w, bad("the number of runs cannot be read")
	}
	if m.From, err = time.Parse(minuteForm, w.From); err != nil {
		return m, w, bad("the time from which it holds cannot be read; give it as 2026-01-31T18:00")
	}
	if m.Until, err = time.Parse(minuteForm, w.Until); err != nil {
		return m, w, bad("the time until which it holds cannot be read; give it as 2026-01-31T18:00")
	}
	return m, w, nil
}

// grant gives a mandate; with challenge=1 it answers the page's script with what a passkey must sign for it.
func (c *Console) grant(v *visit) {
	m, w, err := written(v)
	if err == nil && !c.decides(v) {
		err = gate.Fail(gate.ErrDenied, "Ask somebody who has one of these roles.", "only an approver or administrator may give a mandate")
	}
	if v.r.PostForm.Get("challenge") != "" {
		c.mandateChallenge(v, m, err)
		return
	}
	var e gate.Evidence
	if err == nil {
		e, err = c.sure(v)
	}
	if err == nil {
		_, err = c.c.Gate.Grant(v.ctx, m, e)
	}
	if err != nil {
		e := gate.AsError(err)
		status := http.StatusForbidden
		if e.Kind == gate.ErrInvalid {
			status = http.StatusBadRequest
		}
		c.drawMandates(v, status, mandatesPage{Written: w, Problem: e.Message + ". No mandate was given.", Hint: e.Hint})
		return
	}
	c.to(v, "/mandates")
}

func (c *Console) mandateChallenge(v *visit, m gate.Mandate, err error) {
	var ch *gate.Challenge
	var options json.RawMessage
	if err == nil {
		ch, err = c.c.Gate.ChallengeMandate(v.ctx, v.token, m)
	}
	if err == nil {
		options, err = c.c.People.RequestOptions(v.ctx, v.who.Person, ch.Bytes)
	}
	if err != nil {
		c.failJSON(v, err)
		return
	}
	c.json(v, http.StatusOK, map[string]any{"ticket": ch.Ticket, "options": options})
}

type mandatePage struct {
	mandateLine
	Args  []mandateArg
	Known []mandateArg // what tells the guests that it names by number
	Lost  []string     // those of which nothing was kept when it was given
	Plans []planLine
	May   bool
	// Runs are what became of its windows, the newest first; Opens and Shuts when one is open next.
	Runs         []scheduleLine
	Opens, Shuts time.Time
	Call         string
}

type scheduleLine struct {
	gate.ScheduleRun
	Text string
	Link bool // this person may see its plan
}

// scheduleWords say what became of a window.
var scheduleWords = map[gate.ScheduleState]string{gate.ScheduleClaimed: "is made now", gate.ScheduleMoved: "put off", gate.ScheduleCarried: "carried out", gate.ScheduleWaiting: "waits for a person",
	gate.ScheduleNothing: "nothing to do", gate.ScheduleRefused: "refused", gate.ScheduleMissed: "missed", gate.ScheduleLost: "lost"}

type mandateArg struct {
	Name   string
	Values []string
}

func (c *Console) mandate(v *visit) {
	list, err := c.c.Gate.Mandates(v.ctx, v.who)
	if err != nil {
		c.fail(v, err)
		return
	}
	i := slices.IndexFunc(list, func(m *gate.Mandate) bool { return m.ID == v.r.PathValue("id") })
	if i < 0 {
		c.refuse(v, http.StatusNotFound, "There is no such mandate", "The list of mandates shows those that you may see.")
		return
	}
	body := mandatePage{mandateLine: c.mandateLine(list[i]), May: c.decides(v) || list[i].By.Person == v.who.Person}
	for name, values := range list[i].Args {
		body.Args = append(body.Args, mandateArg{name, values})
	}
	for guest, known := range list[i].Guests {
		a := mandateArg{Name: guest}
		for _, k := range known {
			a.Values = append(a.Values, k.Name)
		}
		body.Known = append(body.Known, a)
	}
	for _, o := range list[i].Objects {
		if strings.HasPrefix(o, "guest/") && !list[i].ByNumber && len(list[i].Guests[o]) == 0 {
			body.Lost = append(body.Lost, o)
		}
	}
	slices.SortFunc(body.Known, func(a, b mandateArg) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(body.Args, func(a, b mandateArg) int { return strings.Compare(a.Name, b.Name) })
	for _, u := range list[i].Uses[max(0, len(list[i].Uses)-100):] {
		l := planLine{ID: u.Plan, Created: u.At, Sentence: "not visible to you"}
		if _, r, err := c.c.Gate.Show(v.ctx, v.who, u.Plan); err == nil {
			l = c.lineOf(r)
			l.Created = u.At
		}
		body.Plans = append(body.Plans, l)
	}
	m := list[i]
	body.Opens, body.Shuts, _ = gate.NextWindow(m.Windows, c.now())
	if m.Schedule != nil {
		body.Call = strings.TrimSpace(m.Schedule.Operation + " " + string(m.Schedule.Args))
		runs, err := c.c.Gate.ScheduleRuns(v.ctx, m)
		if err != nil {
			c.fail(v, err)
			return
		}
		for _, r := range runs[:min(len(runs), 50)] {
			l := scheduleLine{ScheduleRun: r, Text: scheduleWords[r.State]}
			if r.Plan != "" {
				_, _, err := c.c.Gate.Show(v.ctx, v.who, r.Plan)
				l.Link = err == nil
			}
			body.Runs = append(body.Runs, l)
		}
	}
	c.draw(v, http.StatusOK, "mandate", sheet{Title: "Mandate", At: "/mandates", Body: body})
}

func (c *Console) revokeMandate(v *visit) {
	if err := c.c.Gate.Revoke(v.ctx, v.token, v.r.PathValue("id")); err != nil {
		c.failAt(v, err, "/mandates")
		return
	}
	c.to(v, "/mandates/"+v.r.PathValue("id"))
}
