package console

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"castellan/internal/gate"
)

// words are what the pages can say.
func (c *Console) words() template.FuncMap {
	return template.FuncMap{
		"v": value, "t": line, "said": said, "join": strings.Join, "when": when, "span": span,
		"ago": func(t time.Time) string { return c.ago(t) },
		// since tells from when something holds: now, or in how long.
		"since": func(t time.Time) string {
			if t.After(c.now()) {
				return c.ago(t)
			}
			return "now"
		},
		// bare is "agent|person" without the bar where there is no agent.
		"bare": func(s string) string { return strings.TrimPrefix(s, "|") },
		"rung": func(r gate.Rung) string { return rungText(r) },
		"name": nameOf, "state": stateText,
		"effect": func(e gate.Effect) string { return effectText(e) },
		"short":  func(s string) string { return clipRunes(s, 12) },
	}
}

func when(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2 Jan 2006 15:04:05 UTC")
}

// ago tells a time as people say it, seen from now.
func (c *Console) ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	if d := t.Sub(c.now()); d > 0 {
		return "in " + span(d)
	}
	return span(c.now().Sub(t)) + " ago"
}

func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

func nameOf(p gate.Principal) string {
	switch {
	case p.Agent != "" && p.Person != "":
		return "agent " + p.Agent + " for " + p.Person
	case p.Agent != "":
		return "agent " + p.Agent
	}
	return p.Person
}

func rungText(r gate.Rung) string {
	switch r {
	case gate.RungNone:
		return "no approval"
	case gate.RungRestated:
		return "the plan's sentence repeated by the caller"
	case gate.RungPhrase:
		return "a literal phrase"
	case gate.RungDialog:
		return "a yes in a dialog"
	case gate.RungPerson:
		return "a signed-in person"
	case gate.RungPasskey:
		return "a person with a passkey"
	case gate.RungTwoPasskeys:
		return "two different people, each with a passkey"
	}
	return "nobody: it is denied"
}

func stateText(s gate.PlanState) string {
	switch s {
	case gate.PlanProposed:
		return "Waits for a decision"
	case gate.PlanApproved:
		return "Approved, not started"
	case gate.PlanApplying:
		return "Running now"
	case gate.PlanPaused:
		return "Paused between two steps"
	case gate.PlanDone:
		return "Done, and seen done"
	case gate.PlanFailed:
		return "Failed"
	case gate.PlanUnknown:
		return "What became of it is not known"
	case gate.PlanDenied:
		return "Denied"
	case gate.PlanExpired:
		return "Expired: nobody approved it in time"
	case gate.PlanWithdrawn:
		return "Withdrawn by the caller"
	case gate.PlanStale:
		return "Out of date: something changed since it was made"
	}
	return "In a state that this page does not know"
}

func effectText(e gate.Effect) string {
	switch e {
	case gate.EffectRead:
		return "It only reads."
	case gate.EffectChange:
		return "It changes something that another call can bring back."
	case gate.EffectExpose:
		return "It reveals a secret, a ticket or a key."
	case gate.EffectExecute:
		return "It runs code or commands that the caller chose."
	case gate.EffectDestroy:
		return "It destroys data or state that no other call brings back."
	}
	return "Nobody has judged what it does: take it as destroying."
}

func classText(k gate.Class) string {
	switch k {
	case gate.ClassData:
		return "Data is destroyed or overwritten."
	case gate.ClassCfgdel:
		return "A configuration object is deleted."
	case gate.ClassLock:
		return "It can lock you out, or take the management away."
	case gate.ClassNet:
		return "Network reachability is changed or cut."
	case gate.ClassPower:
		return "A guest, a node or a service is stopped, started, restarted or moved."
	case gate.ClassIdent:
		return "Identities, permissions or authentication change."
	case gate.ClassSin:
		return "It carries a secret in."
	case gate.ClassSout:
		return "Its answer is a secret or private content."
	case gate.ClassExec:
		return "It runs a command or code that the caller chose."
	case gate.ClassConsole:
		return "It opens a console or a tunnel, or makes the ticket for one."
	case gate.ClassFile:
		return "Files are uploaded or downloaded."
	case gate.ClassSsrf:
		return "The server contacts an address that the caller chose."
	case gate.ClassSend:
		return "Something is sent outwards."
	case gate.ClassGuard:
		return "A safeguard is weakened."
	case gate.ClassLic:
		return "Subscription keys change."
	case gate.ClassTrust:
		return "Trust between hosts changes."
	}
	return "It is of a class that this page does not know: take the worst."
}

func waitText(w gate.Wait) string {
	limit := w.Limit
	if limit == 0 {
		limit = time.Hour
	}
	switch w.Kind {
	case gate.WaitNone:
		return ""
	case gate.WaitTask:
		return "waits for its task, at most " + span(limit)
	case gate.WaitGuest:
		return "waits until the guest answers, at most " + span(limit)
	case gate.WaitBoot:
		return "waits for a new boot, at most " + span(limit)
	case gate.WaitUntil:
		return "not before " + when(w.Until)
	case gate.WaitSoak:
		return "waits " + span(limit) + " without a failed check"
	case gate.WaitVerify:
		return "waits until it is seen done, at most " + span(limit)
	}
	return "waits in a way that this page does not know"
}
