package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	mandateKind = "mandate"
	maxMandate  = 1000                // runs of one mandate
	longestLife = 90 * 24 * time.Hour // of a mandate
)

// selecting are the arguments that only choose what is acted on, which the mandate's objects bound.
var selecting = []string{"target", "guest", "guests", "vmid", "node", "reason", "plan_only"}

// check says what is wrong with a mandate that a person writes.
func (g *Gate) checkMandate(m *Mandate) *Error {
	bad := func(format string, args ...any) *Error {
		return Fail(ErrInvalid, "Change the mandate and give it again.", format, args...)
	}
	if len(m.Operations) == 0 || len(m.Objects) == 0 || len(m.Targets) == 0 || m.For == "" || m.For == "|" {
		return bad("a mandate names who may use it, its operations, targets and objects")
	}
	for _, name := range m.Operations {
		op := g.byName[name]
		switch {
		case op == nil:
			return bad("there is no operation %q", clip(name, 60))
		case !op.Writes():
			return bad("%s changes nothing and needs no mandate", name)
		case op.Effect == EffectDestroy && op.run.door == nil:
			return bad("%s destroys, which no mandate covers", name)
		}
	}
	for _, t := range m.Targets {
		if !slices.ContainsFunc(g.c.Driver.Targets(), func(i TargetInfo) bool { return i.Name == t }) {
			return bad("there is no target %q", clip(t, 60))
		}
	}
	for _, o := range m.Objects {
		sort, name, ok := strings.Cut(o, "/")
		if !ok {
			sort, name, ok = strings.Cut(o, ":")
			ok = ok && (sort == "pool" || sort == "tag")
		}
		if !ok || sort == "" || strings.Trim(name, " *") == "" || strings.ContainsAny(name, "*\n") {
			return bad("%q is no object: write guest/101, node/pve1, storage/local, pool:web or tag:dev", clip(o, 80))
		}
	}
	if several := g.severalSites(m.Targets); several != "" {
		for _, o := range m.Objects {
			if !strings.HasPrefix(o, "tag:") {
				return bad("%s, so that %q would be meant on each of them, where it is another one: give a mandate for each target, or name the guests by a tag", several, clip(o, 80))
			}
		}
	}
	if len(m.Windows) > 20 {
		return bad("a mandate has 20 windows at most")
	}
	for _, text := range m.Windows {
		if _, err := ParseWindow(text); err != nil {
			return bad("%v", err)
		}
	}
	if s := m.Schedule; s != nil {
		var args map[string]json.RawMessage
		switch {
		case len(m.Windows) == 0:
			return bad("a schedule needs windows: it is called once in each")
		case !slices.Contains(m.Operations, s.Operation):
			return bad("the schedule calls %q, which is not among the mandate's operations", clip(s.Operation, 60))
		case len(s.Args) > 8<<10 || json.Unmarshal(orEmpty(s.Args), &args) != nil:
			return bad("the arguments of the schedule are no JSON object of at most 8 KiB")
		}
	}
	switch now := g.now(); {
	case m.Count < 1 || m.Count > maxMandate:
		return bad("a mandate is for 1 to %d runs", maxMandate)
	case !m.Until.After(now) || !m.Until.After(m.From):
		return bad("the mandate would end before it begins")
	case m.Until.Sub(now) > longestLife:
		return bad("a mandate lasts %d days at most", int(longestLife.Hours()/24))
	}
	return nil
}

// severalSites says that targets stand for more than one of a kind, on each of which a number, a name or a pool is another thing;
// empty when they do not. A target of kind pdm passes on to as many as it has remotes.
func (g *Gate) severalSites(targets []string) string {
	of := map[string][]string{}
	for _, t := range g.c.Driver.Targets() {
		switch {
		case !slices.Contains(targets, t.Name):
		case t.Product == "pdm":
			return "target " + t.Name + " passes on to other sites"
		default:
			of[t.Product] = append(of[t.Product], t.Name)
		}
	}
	for _, names := range of {
		if len(names) > 1 {
			return "the targets " + strings.Join(names, ", ") + " are of one kind"
		}
	}
	return ""
}

// digest covers all that a person agrees to when giving the mandate.
func (m Mandate) digest() (string, error) {
	what := map[string]any{"for": m.For, "operations": m.Operations, "targets": m.Targets, "objects": m.Objects, "args": m.Args,
		"count": m.Count, "from": m.From.UTC(), "until": m.Until.UTC(), "note": m.Note}
	if len(m.Windows) > 0 {
		what["windows"] = m.Windows
	}
	if m.Schedule != nil {
		what["schedule"] = m.Schedule
	}
	if m.AllowNewer {
		what["allow_newer"] = true
	}
	if m.ByNumber {
		what["by_number"] = true
	}
	if len(m.Guests) > 0 {
		what["known_guests"] = m.marks()
	}
	return Digest(what)
}

// ChallengeMandate makes what the person of a session signs to give this mandate.
func (g *Gate) ChallengeMandate(ctx context.Context, session string, m Mandate) (*Challenge, error) {
	who, err := g.person(ctx, session)
	if err != nil {
		return nil, err
	}
	if e := g.checkMandate(&m); e != nil {
		return nil, e
	}
	if err := g.knowGuests(ctx, who, &m); err != nil {
		return nil, err
	}
	digest, err := m.digest()
	if err != nil {
		return nil, err
	}
	return g.challenge(Assertion{Purpose: mandatePurpose, Verdict: SaysApprove, Plan: m.For, Digest: digest, Approver: who.Person})
}

// Grant keeps a mandate that the person of a session gives, at the rung of the evidence.
func (g *Gate) Grant(ctx context.Context, m Mandate, e Evidence) (*Mandate, error) {
	who, err := g.person(ctx, e.Session)
	if err != nil {
		return nil, err
	}
	if !who.Oversees() {
		return nil, Fail(ErrDenied, "An approver or administrator gives it.", "%s may not give mandates", who.Person)
	}
	if bad := g.checkMandate(&m); bad != nil {
		return nil, bad
	}
	if err := g.knowGuests(ctx, who, &m); err != nil {
		return nil, err
	}
	m.ID, m.By, m.Given, m.Uses, m.Revoked, m.Passkey, m.Rung = newID("m"), who, g.now(), nil, "", nil, RungPerson
	digest, err := m.digest()
	if err != nil {
		return nil, err
	}
	switch e.Kind {
	case "session":
	case "passkey":
		a, refusal := g.signed(ctx, Assertion{Purpose: mandatePurpose, Verdict: SaysApprove, Plan: m.For, Digest: digest, Approver: who.Person}, e)
		if refusal != nil {
			return nil, refusal
		}
		m.Passkey, m.Rung = a, RungPasskey
	default:
		return nil, Fail(ErrDenied, "", "%q is no evidence that a person can bring", clip(e.Kind, 40))
	}
	m.Rung = min(m.Rung, g.c.Policy.Limits().HighestRung)
	err = g.c.Store.Update(ctx, func(tx Tx) error {
		if m.Passkey != nil {
			if err := tx.UseNonce(m.Passkey.nonce(), g.now().Add(ticketLife)); err != nil {
				if errors.Is(err, ErrNonceUsed) {
					return Fail(ErrDenied, "Load the page anew and sign again.", "this answer of the passkey was used before")
				}
				return err
			}
		}
		text, err := Canonical(m)
		if err != nil {
			return err
		}
		rec := Record{At: g.now(), Kind: "mandate", Operation: "mandate", Actor: who.Key(), WayIn: who.WayIn, Status: "given", Digest: digest,
			Marks: map[string]string{"mandate": m.ID, "rung": m.Rung.String(), "ip": e.IP}, Parts: map[string]string{"mandate": string(text)}}
		if m.Passkey != nil {
			rec.Marks["credential"] = m.Passkey.Proof.Credential
		}
		if m.Record, err = tx.Append(rec); err != nil {
			return err
		}
		return g.putMandate(tx, &m, 0)
	})
	if err != nil {
		return nil, ledgerDown(err)
	}
	return &m, nil
}

// Revoke ends a mandate. Who gave it, or anybody who oversees, may.
func (g *Gate) Revoke(ctx context.Context, session, id string) error {
	who, err := g.person(ctx, session)
	if err != nil {
		return err
	}
	err = g.c.Store.Update(ctx, func(tx Tx) error {
		m, version, err := g.mandate(tx, id)
		if err != nil {
			return err
		}
		if who.Person != m.By.Person && !who.Oversees() {
			return Fail(ErrDenied, "An approver revokes it.", "%s did not give mandate %s", who.Person, m.ID)
		}
		if m.Revoked != "" {
			return nil
		}
		m.Revoked = "by " + who.Person + " at " + g.now().Format(time.RFC3339)
		rec := Record{At: g.now(), Kind: "mandate", Operation: "mandate", Actor: who.Key(), WayIn: who.WayIn, Status: "revoked", Marks: map[string]string{"mandate": m.ID}}
		if _, err := tx.Append(rec); err != nil {
			return err
		}
		return g.putMandate(tx, m, version)
	})
	if err != nil {
		return ledgerDown(err)
	}
	return nil
}

// Mandates lists those that the principal may see: one who oversees sees all, others their own.
func (g *Gate) Mandates(ctx context.Context, who Principal) ([]*Mandate, error) {
	var out []*Mandate
	err := g.c.Store.View(ctx, func(tx Tx) error {
		out = nil
		docs, err := tx.Docs(DocFilter{Kind: mandateKind, Limit: 1000})
		for _, d := range docs {
			m, err := g.openMandate(d)
			if err != nil {
				return err
			}
			if who.Oversees() || m.For == who.Key() || m.By.Person == who.Person {
				out = append(out, m)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list mandates: %w", err)
	}
	return out, nil
}

func (g *Gate) mandate(tx Tx, id string) (*Mandate, int64, error) {
	d, err := tx.Doc(mandateKind, id)
	if errors.Is(err, ErrStoreNotFound) {
		return nil, 0, Fail(ErrNotFound, "Look at the list of mandates.", "there is no mandate %q", clip(id, 40))
	}
	if err != nil {
		return nil, 0, err
	}
	m, err := g.openMandate(d)
	if err == nil && m.Revoked == "" {
		m.Revoked, err = revoked(tx, m)
	}
	return m, d.Version, err
}

// openMandate reads a kept mandate; what this installation did not write under this id and version is refused.
func (g *Gate) openMandate(d *Doc) (*Mandate, error) {
	text, err := g.c.Sealer.Open(d.Body, fmt.Sprintf("mandate/%s/%d", d.ID, d.Version))
	if err != nil {
		return nil, Fail(ErrInternal, "Look at audit_verify; revoke it by removing the row.", "mandate %s in the store was not written by castellan", clip(d.ID, 40))
	}
	var m Mandate
	if err := json.Unmarshal(text, &m); err != nil || m.ID != d.ID {
		return nil, Fail(ErrInternal, "", "mandate %s cannot be read", clip(d.ID, 40))
	}
	return &m, nil
}

func (g *Gate) putMandate(tx Tx, m *Mandate, version int64) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	box, err := g.c.Sealer.Seal(text, fmt.Sprintf("mandate/%s/%d", m.ID, version+1))
	if err != nil {
		return err
	}
	return tx.PutDoc(&Doc{Kind: mandateKind, ID: m.ID, Owner: m.For, Version: version, Body: box})
}

// useMandate approves a waiting plan by a mandate that contains it; false when none does.
func (g *Gate) useMandate(ctx context.Context, r *PlanRecord) (bool, error) {
	p := &r.Plan
	if r.State != PlanProposed || p.Facts.Effect == EffectDestroy || len(p.Facts.Governs) > 0 {
		return false, nil
	}
	var found []*Mandate
	err := g.c.Store.View(ctx, func(tx Tx) error {
		found = nil
		docs, err := tx.Docs(DocFilter{Kind: mandateKind, Owner: p.Requester.Key(), Limit: 1000})
		for _, d := range docs {
			m, err := g.openMandate(d)
			if err != nil {
				g.c.Log.Warn("mandate refused", "mandate", d.ID)
				continue
			}
			found = append(found, m)
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("look for mandates: %w", err)
	}
	for _, m := range found {
		if g.coversNow(ctx, m, p) != "" {
			continue
		}
		by, err := g.standing(ctx, m.By)
		if err != nil || !by.Oversees() {
			continue // who gave it could not give it any more
		}
		err = g.approve(ctx, p.ID, by, m.Rung, Evidence{Kind: "mandate", Mandate: m.ID, looked: m.looked}, nil)
		var e *Error
		switch {
		case err == nil:
			return true, nil
		case errors.As(err, &e) && (e.Kind == ErrDenied || e.Kind == ErrStale || e.Kind == ErrNeedsApproval):
			continue // used up meanwhile, or policy takes no approval of theirs: the plan waits as it would without
		}
		return false, err
	}
	return false, nil
}

// covers says why a mandate does not contain a plan; empty when it does.
func (g *Gate) covers(m *Mandate, p *Plan) string {
	now := g.now()
	switch {
	case m.Revoked != "":
		return "it is revoked"
	case m.For != p.Requester.Key():
		return "it is for another caller"
	case now.Before(m.From) || !now.Before(m.Until):
		return "it does not hold now"
	case len(m.Windows) > 0 && !m.open(now):
		return "none of its windows is open now"
	case len(m.Uses) >= m.Count:
		return "it is used up"
	case p.Facts.Effect == EffectDestroy || len(p.Facts.Governs) > 0:
		return "no mandate covers that effect"
	case p.Decision.Verdict == VerdictDeny || p.Decision.Rung > m.Rung || p.Decision.Rung > RungPasskey:
		return "the plan needs more"
	case !slices.Contains(m.Operations, p.Operation):
		return "it is for other operations"
	}
	for _, s := range p.Steps {
		if !slices.Contains(m.Targets, s.Target) {
			return "it is for other targets"
		}
		// Where no snapshot can be taken the same call makes a plan without one: who gave the mandate has not agreed to that.
		if slices.Contains(s.Judgement.Kinds, KindUpgradeBare) && !slices.Contains(m.Args["snapshot"], "false") {
			return "the plan has no way back, and the mandate does not say snapshot=false"
		}
	}
	if more := g.beyond(m, p); more != "" {
		return more
	}
	var args map[string]json.RawMessage
	if json.Unmarshal(p.Args, &args) != nil {
		return "the plan's arguments cannot be read"
	}
	for name, raw := range args {
		if slices.Contains(selecting, name) {
			continue
		}
		if m.scheduled(p.Operation, name, raw) {
			continue
		}
		allowed, listed := m.Args[name]
		if !listed || !slices.Contains(allowed, "*") && !slices.Contains(allowed, plainJSON(raw)) {
			return "argument " + name + " is not among what it allows"
		}
	}
	return ""
}

func (m *Mandate) open(now time.Time) bool {
	_, open := openAt(m.Windows, now)
	return open
}

// scheduled says whether an argument is the one that the mandate's own schedule gives: the person who gave it wrote it.
func (m *Mandate) scheduled(operation, name string, raw json.RawMessage) bool {
	if m.Schedule == nil || m.Schedule.Operation != operation {
		return false
	}
	var args map[string]json.RawMessage
	if json.Unmarshal(orEmpty(m.Schedule.Args), &args) != nil {
		return false
	}
	own, has := args[name]
	if !has {
		return false
	}
	a, err := Canonical(own)
	b, other := Canonical(raw)
	return err == nil && other == nil && bytes.Equal(a, b) || plainJSON(own) == plainJSON(raw)
}

func orEmpty(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}

// plainJSON is the text by which argument values are compared: of a string the string itself, else compact JSON.
func plainJSON(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

// holds says whether the object is one of the mandate's. Pools count only where they are known, tags only where
// the site reserves them. Where the mandate is for several sites, tags alone count.
func (m *Mandate) holds(o ObjectFacts, several bool) bool {
	if !several && m.names(o.Object) {
		return true
	}
	if !o.Known {
		return false
	}
	return !several && slices.ContainsFunc(o.Pools, func(p string) bool { return slices.Contains(m.Objects, "pool:"+p) }) ||
		slices.ContainsFunc(o.Reserved, func(t string) bool { return slices.Contains(m.Objects, "tag:"+t) })
}

// spend uses a mandate up by one plan, in the transaction of the approval.
func (g *Gate) spend(tx Tx, e Evidence, p *Plan) (*Mandate, error) {
	id := e.Mandate
	m, version, err := g.mandate(tx, id)
	if err != nil {
		return nil, err
	}
	m.looked = e.looked
	if why := g.covers(m, p); why != "" {
		return nil, Fail(ErrDenied, "A person approves the plan.", "mandate %s does not cover plan %s: %s", id, p.ID, why)
	}
	if err := unspent(tx, m); err != nil {
		return nil, err
	}
	m.Uses = append(m.Uses, MandateUse{Plan: p.ID, At: g.now()})
	return m, g.putMandate(tx, m, version)
}

// mandateEnded says why a mandate does not hold any more: revoked, run out, its giver may not give it any more, or the plan as
// it is now is not contained in it. Empty when it holds.
func (g *Gate) mandateEnded(ctx context.Context, id string, p *Plan) string {
	var m *Mandate
	err := g.c.Store.View(ctx, func(tx Tx) error {
		var err error
		m, _, err = g.mandate(tx, id)
		return err
	})
	if err != nil || m.Revoked != "" || !g.now().Before(m.Until) {
		return "mandate " + id + " holds no more"
	}
	if by, err := g.standing(ctx, m.By); err != nil || !by.Oversees() {
		return "who gave mandate " + id + " could not give it any more"
	}
	g.lookAtGuests(ctx, m, p)
	if more := g.beyond(m, p); more != "" {
		return "mandate " + id + " does not cover the plan any more: " + more
	}
	return ""
}
