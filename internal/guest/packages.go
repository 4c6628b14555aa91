package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"castellan/internal/channel"
	"castellan/internal/frame"
	"castellan/internal/gate"
	"castellan/internal/patch"
	"castellan/internal/proxmox"
)

// The words of what works on packages.
const (
	wordUpdates = "updates"
	wordUpgrade = "upgrade"
	wordRepair  = "repair"
	wordEnrol   = "enrol"
	wordUnenrol = "unenrol"
)

// ofPackages says whether a run is about the packages of a guest, or the channel that they are reached by. Those of nodes go
// through the bridge.
func (o opened) ofPackages() bool {
	return o.where != frame.Host && slices.Contains([]string{wordUpdates, wordUpgrade, wordRepair, wordEnrol, wordUnenrol}, o.word)
}

// limit is what the request allows, or otherwise what its word takes.
func (o opened) limit(otherwise time.Duration) (time.Duration, error) {
	n, err := o.number("timeout", int(otherwise/time.Second))
	return time.Duration(n) * time.Second, err
}

// packages carries out a run about the packages of a guest.
func (r *Runner) packages(ctx context.Context, target string, agent *proxmox.Agent, o opened, g configured, id string, on gate.RunHooks) (gate.RunResult, error) {
	if r.channels == nil {
		return gate.RunResult{}, refused(gate.ErrUnavailable, "", "no channels into guests are configured")
	}
	began := time.Now()
	c := task{r: r, target: target, o: o, g: g, id: id, on: on, agent: agent}
	res, err := c.carry(ctx)
	if blind := c.blind(); err == nil && blind != "" {
		res.Note = joined(res.Note, blind)
	}
	res.TookMS = time.Since(began).Milliseconds()
	return res, err
}

// task is one run about the packages of a guest.
type task struct {
	r      *Runner
	target string
	o      opened
	g      configured
	id     string
	on     gate.RunHooks
	agent  *proxmox.Agent

	mu     sync.Mutex
	unseen []string // see blind
}

func (c *task) carry(ctx context.Context) (gate.RunResult, error) {
	switch c.o.word {
	case wordUpdates:
		return c.updates(ctx)
	case wordUpgrade, wordRepair:
		return c.install(ctx)
	case wordEnrol:
		return c.enrol(ctx)
	}
	return c.unenrol(ctx)
}

// command is how a person is told to let castellan in.
func (o opened) command(what string) string { return "castellan " + what + " " + strconv.Itoa(o.vmid) }

// identityOf is what tells the guest from a later one, as its configuration has it now.
func identityOf(g configured) channel.Identity {
	return channel.Identity{Root: g.root, MAC: g.mac, UUID: g.uuid}
}

// mismatch says why a channel is not one into the guest as it is now.
func mismatch(e *channel.Entry, o opened, g configured) (hint, why string) {
	if e.Kind != string(o.where) {
		return "Enrol it anew: " + o.command("enrol") + ".", fmt.Sprintf("%s is another one than was enrolled: that was a %s", o, e.Guest())
	}
	if d := e.Identity.Differs(identityOf(g)); d != "" {
		return fmt.Sprintf("If it was restored or replaced on purpose, a person enrols it anew: %s.", o.command("enrol")), fmt.Sprintf("%s is another one than was enrolled: %s", o, d)
	}
	return "", ""
}

// site is which site the target is.
func (c *task) site(ctx context.Context) (string, error) {
	site, err := c.r.driver.Identify(ctx, c.target)
	if err != nil {
		return "", notBegun(fmt.Errorf("identify the site of target %s: %w", c.target, err))
	}
	if site == "" {
		return "", refused(gate.ErrUnavailable, "castellan's own user needs to see the nodes and the certificate of the cluster.", "which site target %s is cannot be told", c.target)
	}
	return site, nil
}

func (c *task) addresses(ctx context.Context) ([]netip.Addr, error) {
	return Addresses(ctx, driven(c.r.driver, c.target), Place{Kind: string(c.o.where), Node: c.o.node, VMID: c.o.vmid})
}

// entry finds the channel into the guest as it is now.
func (c *task) entry(ctx context.Context) (*channel.Entry, error) {
	site, err := c.site(ctx)
	if err != nil {
		return nil, err
	}
	e, err := c.r.channels.Find(ctx, site, c.o.vmid)
	if errors.Is(err, channel.ErrNotEnrolled) {
		return nil, refused(gate.ErrUnavailable, "A person lets castellan look after its packages: "+c.o.command("enrol")+".", "%s is not enrolled", c.o)
	}
	if err != nil {
		return nil, notBegun(err)
	}
	if hint, why := mismatch(e, c.o, c.g); why != "" {
		return nil, refused(gate.ErrStale, hint, "%s", why)
	}
	e.Addresses = c.addresses
	return e, nil
}

// told makes an answer of this package's errors. changed says whether something may have been changed by then.
func (c *task) told(e *channel.Entry, err error, changed bool) error {
	var u *gate.UpstreamError
	if err == nil || errors.As(err, &u) || errors.Is(err, context.Canceled) {
		return err
	}
	out := &gate.UpstreamError{Kind: gate.ErrUnavailable, Delivery: gate.NotCarriedOut, Cause: err, Message: fmt.Sprintf("%s: %s", c.o, bounded(err.Error(), 800))}
	if changed {
		out.Kind, out.Delivery, out.Hint = gate.ErrUnknownOutcome, gate.MaybeDone, "It may have been begun. Look at update_result before anything is repeated."
		return out
	}
	var key *channel.HostKeyError
	var gone *channel.UnreachableError
	var no *channel.KeyRefusedError
	var much *channel.TooMuchError
	var slow *channel.SlowError
	var end *channel.EndError
	var other *strangerError
	var twin *twinError
	switch {
	case errors.As(err, &twin):
		out.Kind, out.Hint = gate.ErrDenied, twin.hint()
	case errors.As(err, &other):
		out.Kind = gate.ErrDenied
		out.Hint = "Nothing was changed, and nothing that it said counts. A copy of the guest (a clone, a restored backup) has its keys and may have taken its address: stop the copy, or give it another address and host keys of its own. If the guest's own cards were changed inside it, a person sets them as Proxmox has them."
	case errors.As(err, &key):
		out.Kind = gate.ErrDenied
		out.Hint = fmt.Sprintf("Nothing was sent. If the guest's key was changed on purpose, a person compares it in the guest itself (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub; pinned: %s) and enrols it anew: %s. Otherwise something else answers in its place.",
			strings.Join(e.Fingerprints(), ", "), c.o.command("enrol"))
	case errors.As(err, &gone):
		out.Hint = fmt.Sprintf("Nothing was sent. guest_status tells whether it runs. Its sshd must be reached from %s; after a changed address that Proxmox does not see, a person enrols it anew: %s.", e.From, c.o.command("enrol"))
	case errors.As(err, &no):
		out.Kind = gate.ErrDenied
		out.Hint = fmt.Sprintf("Nothing was sent. castellan comes from another address than it was enrolled with, or its account there was changed; a person enrols it anew: %s --from ADDRESS.", c.o.command("enrol"))
	case errors.As(err, &much), errors.As(err, &slow):
		out.Hint = "Nothing was changed by castellan. Look into the guest: what answers there is not as castellan left it, or is very busy."
	case errors.As(err, &end):
		out.Hint = fmt.Sprintf("Nothing was changed by castellan. If what castellan left in the guest was removed or is old, a person enrols it anew: %s.", c.o.command("enrol"))
	default:
		out.Hint = "Nothing was changed by castellan. Try again; guest_status tells whether the guest runs."
	}
	return out
}

// ask sends a word and has its answer read. An answer that reads well counts, however the word ended.
func (c *task) ask(ctx context.Context, e *channel.Entry, word patch.Word, limit time.Duration, read func([]byte) error) error {
	b, err := c.r.channels.Ask(ctx, e, word, nil, limit)
	var end *channel.EndError
	if err != nil && !(errors.As(err, &end) && len(b) > 0) {
		return err
	}
	if bad := read(b); bad != nil {
		if err != nil {
			return err
		}
		return fmt.Errorf("read what it answers to %s: %w", word, bad)
	}
	return nil
}

// strangerError says that another machine answered than the one that is enrolled: a copy of it has its keys.
type strangerError struct{ meant, shown []string }

func (e *strangerError) Error() string {
	return fmt.Sprintf("another machine answered: none of its network cards (%s) has an address of this guest's configuration (%s)", bounded(strings.Join(e.shown, ", "), 120), bounded(strings.Join(e.meant, ", "), 120))
}

// untold is what is not known where a machine does not say which one it is.
const untold = "which machine answered is not known: it does not tell its network cards, since what castellan left in it is older; a person enrols it anew"

// same holds the machine that answered against the guest's configuration. What is not told is added to what is not known.
// Who runs is looked at after the answer, so that a copy which was started meanwhile is seen.
func (c *task) same(ctx context.Context, shown []string, unread *[]string) error {
	switch {
	case len(c.g.cards) == 0: // there is nothing to hold it against
		return nil
	case len(shown) == 0:
		*unread = append(*unread, untold)
	case !slices.ContainsFunc(shown, func(card string) bool { return slices.Contains(c.g.cards, card) }):
		return &strangerError{c.g.cards, shown}
	}
	more, err := c.alone(ctx, false)
	*unread = append(*unread, more...)
	return err
}

// answer is the result of a word that answered.
func answer(v any, said string) (gate.RunResult, error) {
	if v == nil {
		return gate.RunResult{OK: true, Gone: true, Way: "channel", Said: said}, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return gate.RunResult{}, notBegun(err)
	}
	return gate.RunResult{OK: true, Gone: true, Way: "channel", Report: b, Said: said}, nil
}

// notWell is the result of what ended otherwise than well, for a reason that is known.
func notWell(v any, said string) (gate.RunResult, error) {
	res, err := answer(v, said)
	one := 1
	res.OK, res.ExitCode = false, &one
	return res, err
}

// The limits of words, where the request has none.
const (
	checkLimit  = 10 * time.Minute // archives may be slow
	lookLimit   = time.Minute
	bootLimit   = 5 * time.Minute
	verifyLimit = 5 * time.Minute
	askLimit    = 20 * time.Second // of a word that is asked again and again
)

// updates looks.
func (c *task) updates(ctx context.Context) (gate.RunResult, error) {
	word := patch.Word(c.o.text("word"))
	otherwise := lookLimit
	switch {
	case word == patch.Check:
		otherwise = checkLimit
	case word == "verify":
		otherwise = verifyLimit
	case c.o.text("other-than") != "":
		otherwise = bootLimit
	}
	limit, err := c.o.limit(otherwise)
	if err != nil {
		return gate.RunResult{}, refused(gate.ErrInvalid, "", "%v", err)
	}
	if c.o.text("other-than") != "" && word != patch.Status {
		return gate.RunResult{}, refused(gate.ErrInvalid, "Leave other-than out, or ask for status.", "other-than is for status")
	}
	e, err := c.entry(ctx)
	if err != nil {
		return gate.RunResult{}, err
	}
	switch word {
	case patch.Check:
		return c.check(ctx, e, limit)
	case "verify":
		return c.verify(ctx, e, limit)
	case patch.Result:
		return c.result(ctx, e, limit)
	case patch.Services:
		return c.services(ctx, e, limit)
	case patch.Status:
		if other := c.o.text("other-than"); other != "" {
			return c.otherBoot(ctx, e, other, limit)
		}
	}
	var v any
	said := ""
	err = c.ask(ctx, e, word, limit, func(b []byte) (err error) {
		v, said, err = c.parsed(ctx, word, b)
		return err
	})
	if err != nil {
		return gate.RunResult{}, c.told(e, err, false)
	}
	return answer(v, said)
}

// services tells how the guest's services are, and which of its ports castellan itself could connect to.
func (c *task) services(ctx context.Context, e *channel.Entry, limit time.Duration) (gate.RunResult, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	h, err := c.house(limited, e, nil)
	if err != nil {
		return gate.RunResult{}, c.told(e, err, false)
	}
	return answer(h, "")
}

// result tells how the last installation went, held against what castellan asked for: what the guest says that it was asked
// proves nothing.
func (c *task) result(ctx context.Context, e *channel.Entry, limit time.Duration) (gate.RunResult, error) {
	o, _, known, err := c.outcome(ctx, e, limit)
	if err != nil {
		return gate.RunResult{}, c.told(e, err, false)
	}
	if !known && (o.State == "ended" || o.State == "lost") {
		o.Services.Unread = append(o.Services.Unread, "what castellan asked for in it is not known here: there is the guest's own word only")
	}
	return answer(o, "")
}

// parsed makes a report of what a guest answers to a word that looks.
func (c *task) parsed(ctx context.Context, word patch.Word, b []byte) (v any, said string, err error) {
	switch word {
	case patch.Status:
		v, err = c.status(ctx, b)
	case patch.Progress:
		var p patch.Ongoing
		p, err = patch.ParseProgress(b)
		v, said = p, p.Log
	default:
		err = fmt.Errorf("there is no word %q", bounded(string(word), 40))
	}
	return v, said, err
}

// status reads the answer to status, of this guest alone.
func (c *task) status(ctx context.Context, b []byte) (patch.Report, error) {
	p, err := patch.ParseStatus(b, time.Now())
	if err == nil {
		err = c.same(ctx, p.Cards, &p.Unread)
	}
	return p, err
}

// passing says whether an error is one that may be over in a moment: the guest boots, its sshd is restarted.
func passing(err error) bool {
	var key *channel.HostKeyError
	var gone *channel.UnreachableError
	var slow *channel.SlowError
	var cut *channel.CutError
	var u *gate.UpstreamError
	if errors.As(err, &u) || errors.As(err, &key) {
		return false
	}
	return errors.As(err, &gone) || errors.As(err, &slow) || errors.As(err, &cut)
}

// otherBoot waits until the guest answers with another boot id than the one that is given.
func (c *task) otherBoot(ctx context.Context, e *channel.Entry, other string, limit time.Duration) (gate.RunResult, error) {
	end := time.Now().Add(limit)
	seen := "it did not answer"
	for {
		var p patch.Report
		err := c.ask(ctx, e, patch.Status, min(askLimit, max(time.Second, time.Until(end))), func(b []byte) (err error) {
			p, err = c.status(ctx, b)
			return err
		})
		switch {
		case ctx.Err() != nil:
			return gate.RunResult{}, ctx.Err()
		case err == nil && p.BootID != "" && p.BootID != other:
			return answer(p, "it answers with the boot id "+p.BootID)
		case err == nil:
			seen = "it still answers with the boot id of before"
			c.r.channels.Drop(e) // the connection is of the boot of before, in the end
		case !passing(err):
			return gate.RunResult{}, c.told(e, err, false)
		default:
			seen = err.Error()
		}
		if !time.Now().Add(c.r.pace).Before(end) {
			return gate.RunResult{}, refused(gate.ErrUnavailable, "guest_status tells whether it runs; its console shows where its boot stands.", "%s did not answer with another boot id within %s: %s", c.o, limit, bounded(seen, 300))
		}
		if err := wait(ctx, c.r.pace); err != nil {
			return gate.RunResult{}, err
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lookPackages finds out what became of a run about packages.
func (r *Runner) lookPackages(ctx context.Context, target string, o opened, id string) (gate.RunResult, bool, error) {
	if r.channels == nil {
		return gate.RunResult{}, false, errors.New("look for the run: no channels into guests are configured")
	}
	g, err := r.look(ctx, target, o)
	if err != nil {
		return gate.RunResult{}, false, err
	}
	c := task{r: r, target: target, o: o, g: g, id: id}
	switch o.word {
	case wordUpdates: // it only looks, and looks again
		res, err := c.updates(ctx)
		return res, false, err
	case wordUpgrade, wordRepair:
		return c.lookInstall(ctx)
	case wordEnrol:
		res, err := c.lookEnrol(ctx)
		return res, false, err
	}
	res, err := c.lookUnenrol(ctx)
	return res, false, err
}
