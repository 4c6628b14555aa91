package guest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"castellan/internal/channel"
	"castellan/internal/frame"
	"castellan/internal/gate"
	"castellan/internal/helper"
	"castellan/internal/patch"
	"castellan/internal/proxmox"
)

// The ways of a person, in place of bridge and guest agent.
const (
	wayScript = "script" // it is printed, to be pasted in the guest
	wayAccept = "accept" // the host keys that it printed are handed back
)

const (
	scriptLimit = 10 * time.Minute // it may have to install an sshd
	tryLimit    = 90 * time.Second
)

// enrol lets castellan into a guest. The key is made here and now; the channel is kept when it was tried.
func (c *task) enrol(ctx context.Context) (gate.RunResult, error) {
	from, err := netip.ParseAddr(c.o.text("from"))
	if err != nil {
		return gate.RunResult{}, refused(gate.ErrInvalid, "", "from %q is no address", bounded(c.o.text("from"), 60))
	}
	if why := channel.Forbidden(from, nil); why != "" {
		return gate.RunResult{}, refused(gate.ErrInvalid, "Give the address of castellan's machine as the guest sees it.", "the guest cannot take the key from %s: %s", from, why)
	}
	site, err := c.site(ctx)
	if err != nil {
		return gate.RunResult{}, err
	}
	if identityOf(c.g).Empty() {
		return gate.RunResult{}, refused(gate.ErrInvalid, "Give the guest a network card.", "nothing tells %s from a later guest of its id", c.o)
	}
	if c.g.windows {
		return gate.RunResult{}, refused(gate.ErrInvalid, "", "%s runs Windows: castellan looks after the packages of Linux guests", c.o)
	}
	if err := c.surelyAlone(ctx); err != nil {
		return gate.RunResult{}, err
	}
	if c.o.text("way") == wayAccept {
		return c.accept(ctx, site, from)
	}
	e, err := channel.New(site, c.o.vmid, string(c.o.where))
	if err != nil {
		return gate.RunResult{}, notBegun(err)
	}
	e.From, e.Automatic, e.Account, e.Identity, e.Run, e.Name = from.String(), orKeep(c.o.text("automatic")), helper.Account, identityOf(c.g), c.id, c.g.name
	if c.o.text("way") == wayScript {
		e.Way = wayScript
		e.System.Family = patch.Family(c.o.text("family"))
		script, err := script(e)
		if err != nil {
			return gate.RunResult{}, refused(gate.ErrInvalid, "", "%v", err)
		}
		if err := c.r.channels.Pend(ctx, e); err != nil {
			return gate.RunResult{}, notBegun(err)
		}
		return pasted(c.o, script), nil
	}
	e.Way = "bridge"
	if c.o.where == frame.VM {
		e.Way = "agent"
	}
	out, err := c.put(ctx, e)
	if err != nil {
		return gate.RunResult{}, err
	}
	return c.installed(ctx, e, out)
}

// put carries the script in. A bridge finds out by itself which script the guest takes; through the guest agent that is asked first.
func (c *task) put(ctx context.Context, e *channel.Entry) (scriptEnd, error) {
	if c.o.where != frame.VM {
		return c.byBridge(ctx, "", &frame.Word{Name: wordEnrol, Args: map[string]string{"public_key": e.PublicKey, "from": e.From, "automatic": e.Automatic}})
	}
	found, err := c.byAgent(ctx, helper.Detect())
	if err != nil {
		return scriptEnd{}, notBegun(err)
	}
	i, err := helper.ParseInstalled(found.text)
	if err != nil {
		return scriptEnd{}, refused(gate.ErrUnavailable, "Look into the guest: it takes a POSIX shell.", "what %s is cannot be told: %v %s", c.o, err, bounded(found.errors, 300))
	}
	e.System = i.System
	script, err := script(e)
	if err != nil {
		return scriptEnd{}, refused(gate.ErrInvalid, "castellan does not look after such a guest; nothing was changed.", "%s is %s: %v", c.o, orNone(bounded(i.System.Name, 80)), err)
	}
	return c.byAgent(ctx, script)
}

func orKeep(text string) string {
	if text == "" {
		return "keep"
	}
	return text
}

func script(e *channel.Entry) (string, error) {
	return helper.Install(helper.InstallConfig{PublicKey: e.PublicKey, From: e.From, Automatic: e.Automatic, Account: e.Account, Family: e.System.Family})
}

// pasted is the answer to a person who runs the script in the guest.
func pasted(o opened, script string) gate.RunResult {
	return gate.RunResult{OK: true, Gone: true, Way: wayScript, Stdout: script, StdoutBytes: int64(len(script)), Said: "run the script as root in the guest; then hand back what it prints: " + o.command("enrol") + " --accept"}
}

// installed reads what the script said, tries the channel and keeps it. What was begun and does not work is taken away again.
func (c *task) installed(ctx context.Context, e *channel.Entry, out scriptEnd) (gate.RunResult, error) {
	i, err := helper.ParseInstalled(out.text)
	switch {
	case err != nil && out.code == 0:
		return c.failed(ctx, e, fmt.Sprintf("what the script said cannot be read: %v", err))
	case err != nil:
		return c.failed(ctx, e, fmt.Sprintf("the script ended with %d in the guest: %s", out.code, bounded(out.errors, 600)))
	case i.Refused != "":
		return notWell(nil, "nothing was enrolled, the guest is as it was: "+bounded(i.Refused, 600))
	}
	if err := c.fill(e, i); err != nil {
		return c.failed(ctx, e, err.Error())
	}
	at, err := c.tried(ctx, e)
	if err != nil {
		return c.failed(ctx, e, err.Error())
	}
	e.Address = at.String()
	if err := c.r.channels.Keep(ctx, e, c.id); err != nil {
		return c.failed(ctx, e, err.Error())
	}
	return c.enrolledNow(e, i), nil
}

// fill takes over what the guest said of itself.
func (c *task) fill(e *channel.Entry, i helper.Installed) error {
	keys, err := channel.ParseHostKeys(i.HostKeys)
	if err != nil {
		return err
	}
	e.HostKeys, e.System = keys, i.System
	if i.Account != "" && i.Account != helper.Account {
		return fmt.Errorf("it says that the account is %q", bounded(i.Account, 40))
	}
	if i.Port > 0 && i.Port <= 65535 {
		e.Port = i.Port
	}
	return nil
}

// tried finds the guest among its addresses and asks it something over the new channel.
func (c *task) tried(ctx context.Context, e *channel.Entry) (netip.Addr, error) {
	same, _, err := c.r.channels.Others(ctx, e, "")
	if err != nil {
		return netip.Addr{}, err
	}
	if len(same) > 0 {
		return netip.Addr{}, fmt.Errorf("its sshd has the same host key as %s: one is a copy of the other, and castellan could not tell them apart. Make new host keys in the guest (rm /etc/ssh/ssh_host_*; ssh-keygen -A; restart its sshd), then enrol it again", strings.Join(same, ", "))
	}
	e.Addresses = c.addresses
	try := *e
	try.Address = ""
	var last error
	for n := range 4 { // its sshd may have been started just now
		if n > 0 {
			if err := wait(ctx, c.r.pace); err != nil {
				return netip.Addr{}, err
			}
		}
		at, b, err := c.r.channels.Try(ctx, &try, patch.Status, tryLimit)
		if err == nil {
			var p patch.Report
			if p, err = c.status(ctx, b); err == nil {
				if e.System.ID == "" {
					e.System = p.System
				}
				return at, nil
			}
			return netip.Addr{}, fmt.Errorf("the channel was tried: %w", err)
		}
		if last = err; ctx.Err() != nil || !passing(err) {
			break
		}
	}
	var no *channel.KeyRefusedError
	if errors.As(last, &no) {
		return netip.Addr{}, fmt.Errorf("the guest at %s does not take castellan's key from here: castellan may reach it from another address than %s. Give that with --from", no.Address, e.From)
	}
	return netip.Addr{}, fmt.Errorf("the channel was tried: %w", last)
}

// enrolledNow is the answer of an enrolment that is kept.
func (c *task) enrolledNow(e *channel.Entry, i helper.Installed) gate.RunResult {
	said := fmt.Sprintf("enrolled: %s at %s, %s; host keys %s; castellan's key is taken from %s only", c.o, e.Address, orNone(bounded(e.System.Name, 80)), strings.Join(e.Fingerprints(), ", "), e.From)
	res := gate.RunResult{OK: true, Gone: true, Way: e.Way, Said: said}
	for _, n := range i.Notes {
		res.Note = joined(res.Note, bounded(n, 300))
	}
	if !e.System.Supported && e.System.Why != "" {
		res.Note = joined(res.Note, bounded(e.System.Why, 300))
	}
	return res
}

// failed takes away again what was begun in the guest, and says what is left.
func (c *task) failed(ctx context.Context, e *channel.Entry, why string) (gate.RunResult, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), scriptLimit)
	defer cancel()
	said := "not enrolled: " + bounded(why, 800) + ". "
	if e.Way == wayScript {
		said += "What the script made in the guest is still there: " + c.o.command("enrol") + " --script gives a new one, which replaces it."
		return notWell(nil, said)
	}
	out, err := c.remove(ctx, ".undo")
	if err == nil {
		err = allRemoved(out)
	}
	if err == nil {
		said += "What was begun in the guest was taken away again."
	} else {
		said += fmt.Sprintf("What was begun in the guest could not be taken away (%s): the account %s, %s, %s, %s and %s may be left.", bounded(err.Error(), 300), helper.Account, helper.Gate, helper.Helper, helper.Sudoers, helper.State)
	}
	if old, e2 := c.r.channels.Find(ctx, e.Site, e.VMID); e2 == nil {
		said += fmt.Sprintf(" The channel of %s may not work any more: enrol it again.", old.At.UTC().Format(time.DateOnly))
	}
	return notWell(nil, said)
}

// accept takes the host keys that a person hands back, tries the channel and keeps it.
func (c *task) accept(ctx context.Context, site string, from netip.Addr) (gate.RunResult, error) {
	e, err := c.r.channels.Pended(ctx, site, c.o.vmid)
	if errors.Is(err, channel.ErrNotEnrolled) {
		return gate.RunResult{}, refused(gate.ErrNotFound, "A person prints a script first: "+c.o.command("enrol")+" --script.", "no script was printed for %s, or too long ago", c.o)
	}
	if err != nil {
		return gate.RunResult{}, notBegun(err)
	}
	if hint, why := mismatch(e, c.o, c.g); why != "" {
		return gate.RunResult{}, refused(gate.ErrStale, hint, "%s", why)
	}
	if e.From != from.String() {
		return gate.RunResult{}, refused(gate.ErrInvalid, fmt.Sprintf("Leave --from out, or give %s.", e.From), "the script was made for castellan at %s", e.From)
	}
	if e.HostKeys, err = channel.ParseHostKeys(c.o.values["host-key"]); err != nil {
		return gate.RunResult{}, refused(gate.ErrInvalid, "Hand back the block that the script printed, whole.", "%v", err)
	}
	e.Way = wayScript
	if p, err := c.o.number("port", 22); err == nil && p <= 65535 {
		e.Port = p
	}
	at, err := c.tried(ctx, e)
	if err != nil {
		return notWell(nil, "not enrolled: "+bounded(err.Error(), 800)+". The key pair stays pending; correct it and hand the block back again.")
	}
	e.Address = at.String()
	if err := c.r.channels.Keep(ctx, e, c.id); err != nil {
		return gate.RunResult{}, notBegun(err)
	}
	return c.enrolledNow(e, helper.Installed{}), nil
}

// unenrol takes every trace out of the guest, then castellan's side.
func (c *task) unenrol(ctx context.Context) (gate.RunResult, error) {
	site, err := c.site(ctx)
	if err != nil {
		return gate.RunResult{}, err
	}
	left := fmt.Sprintf("the account %s, %s, %s, %s and %s", helper.Account, helper.Gate, helper.Helper, helper.Sudoers, helper.State)
	if c.o.yes("forget") {
		if err := c.r.channels.Forget(ctx, site, c.o.vmid, c.id, "forgotten"); err != nil {
			return gate.RunResult{}, notBegun(err)
		}
		return gate.RunResult{OK: true, Gone: true, Way: "castellan", Said: "castellan's key for the guest is destroyed, so nothing can use the channel any more; in the guest stay " + left}, nil
	}
	e, err := c.r.channels.Find(ctx, site, c.o.vmid)
	if err == nil {
		if hint, why := mismatch(e, c.o, c.g); why != "" {
			return gate.RunResult{}, refused(gate.ErrStale, "It is not the guest that was enrolled. "+hint+" To remove castellan's side alone: "+c.o.command("unenrol")+" --forget.", "%s", why)
		}
	}
	out, err := c.remove(ctx, "")
	if err != nil {
		return gate.RunResult{}, err
	}
	if err := allRemoved(out); err != nil {
		return notWell(nil, fmt.Sprintf("not all was removed: %v. In the guest may be left %s. castellan's side is as it was: try again, or %s --forget.", err, left, c.o.command("unenrol")))
	}
	if err := c.r.channels.Forget(ctx, site, c.o.vmid, c.id, "removed"); err != nil {
		return gate.RunResult{}, &gate.UpstreamError{Kind: gate.ErrUnavailable, Delivery: gate.MaybeDone, Cause: err, Message: "everything was removed from the guest; castellan's own record of it was not: " + err.Error(), Hint: "Run " + c.o.command("unenrol") + " --forget."}
	}
	return gate.RunResult{OK: true, Gone: true, Way: out.way, Said: "castellan's account, key, gate, helper and state were removed from the guest, and its key here is destroyed"}, nil
}

// allRemoved says why the removing script has not removed everything.
func allRemoved(out scriptEnd) error {
	_, refusal, err := helper.ParseRemoved(out.text)
	switch {
	case err != nil:
		return fmt.Errorf("the script ended with %d, and what it said cannot be read: %w; %s", out.code, err, bounded(out.errors, 300))
	case refusal != "":
		return errors.New(bounded(refusal, 300))
	}
	return nil
}

// scriptEnd is how a script ended in the guest.
type scriptEnd struct {
	text   []byte
	errors string
	code   int
	way    string
}

// remove takes everything out of the guest: the bridge makes the script itself and is sent the word only, a guest agent is
// handed the text. suffix tells it from another one of the same run.
func (c *task) remove(ctx context.Context, suffix string) (scriptEnd, error) {
	if c.o.where == frame.VM {
		return c.byAgent(ctx, helper.Uninstall())
	}
	return c.byBridge(ctx, suffix, &frame.Word{Name: wordUnenrol})
}

func (c *task) byBridge(ctx context.Context, suffix string, w *frame.Word) (scriptEnd, error) {
	b, err := c.r.bridgeOf(c.target, c.o)
	if err != nil {
		return scriptEnd{}, err
	}
	a := frame.Ask{V: frame.Version, ID: shorter(c.id) + suffix, Verb: frame.Manage, Word: w, Place: frame.Place{Node: c.o.node, Where: c.o.where, VMID: c.o.vmid}}
	if a.Place.Site, err = c.site(ctx); err != nil {
		return scriptEnd{}, err
	}
	if err := c.g.identify(&a.Place); err != nil {
		return scriptEnd{}, refused(gate.ErrInvalid, "Give the guest a network card, or read it again.", "%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, scriptLimit+time.Minute)
	defer cancel()
	t, err := b.do(ctx, a.Place.Site, a, nil)
	var cut *cutError
	switch {
	case errors.As(err, &cut) && cut.before:
		return scriptEnd{}, unreachable(b, err)
	case err != nil:
		return scriptEnd{}, lost(b, err)
	case t.Ending != frame.Done:
		_, err := c.r.told(b, a, t, zero)
		return scriptEnd{}, err
	case t.Result == nil:
		return scriptEnd{}, lost(b, errors.New("it does not say how the script ended"))
	}
	out := scriptEnd{way: "bridge", code: -1}
	head, tail, total := clamp(t.Result.Out)
	if total == int64(len(head)+len(tail)) {
		out.text = append(append([]byte{}, head...), tail...)
	}
	head, tail, _ = clamp(t.Result.Err)
	out.errors = strings.TrimSpace(string(head) + string(tail))
	if t.Result.Code != nil && !t.Result.TimedOut {
		out.code = *t.Result.Code
	}
	return out, nil
}

// byAgent hands the text to a shell of the guest as its input: it is read whole before it begins, so that nothing it starts
// can read on in it.
func (c *task) byAgent(ctx context.Context, script string) (_ scriptEnd, err error) {
	if c.agent == nil {
		return scriptEnd{}, refused(gate.ErrUnavailable, "A person prints a script to paste: "+c.o.command("enrol")+" --script.", "no way to guest agents is configured")
	}
	if !c.g.agent {
		return scriptEnd{}, refused(gate.ErrUnavailable, "A person switches it on: agent=1 in the VM's configuration, then a stop and a start of the VM; or prints a script to paste: "+c.o.command("enrol")+" --script.", "the guest agent of %s is switched off", c.o)
	}
	read, input := "cat", []byte(script)
	if len(input) > proxmox.AgentInput {
		if input, err = packed(script); err != nil {
			return scriptEnd{}, refused(gate.ErrInternal, "", "%v", err)
		}
		read = "base64 -d | gzip -dc"
	}
	if len(input) > proxmox.AgentInput {
		return scriptEnd{}, refused(gate.ErrInternal, "A person prints a script to paste: "+c.o.command("enrol")+" --script.", "the script has %d bytes; through the guest agent %d can be carried", len(script), proxmox.AgentInput)
	}
	argv := wrapped([]string{"/bin/sh", "-c", `script=$(` + read + `) && eval "$script" </dev/null`}, agentEnv, "", scriptLimit)
	end, err := c.agent.Exec(ctx, proxmox.AgentRun{Argv: argv, Input: input, Limit: scriptLimit, Group: true}, c.on.Handle)
	if err != nil {
		return scriptEnd{}, err
	}
	out := scriptEnd{text: end.Out, errors: strings.TrimSpace(string(end.Err)), code: -1, way: "agent"}
	if end.Code != nil && !end.TimedOut {
		out.code = *end.Code
	}
	return out, nil
}

// packed is a script that is too long for the guest agent as it is, in letters that need no encoding on the way.
func packed(script string) ([]byte, error) {
	var b bytes.Buffer
	coded := base64.NewEncoder(base64.StdEncoding, &b)
	z := gzip.NewWriter(coded)
	_, err := z.Write([]byte(script))
	if err = errors.Join(err, z.Close(), coded.Close()); err != nil {
		return nil, fmt.Errorf("pack script: %w", err)
	}
	return b.Bytes(), nil
}

// lookEnrol finds out what became of an enrolment: what is kept with its id is done.
func (c *task) lookEnrol(ctx context.Context) (gate.RunResult, error) {
	site, err := c.site(ctx)
	if err != nil {
		return gate.RunResult{}, err
	}
	if c.o.text("way") == wayScript {
		if e, err := c.r.channels.Pended(ctx, site, c.o.vmid); err == nil && e.Run == c.id {
			if script, err := script(e); err == nil {
				return pasted(c.o, script), nil
			}
		}
	}
	e, err := c.r.channels.Find(ctx, site, c.o.vmid)
	if err == nil && e.Run == c.id {
		return c.enrolledNow(e, helper.Installed{}), nil
	}
	return gate.RunResult{}, fmt.Errorf("look for %s: no channel of it is kept; what it left in the guest is replaced by %s, or removed by %s", c.id, c.o.command("enrol"), c.o.command("unenrol"))
}

func (c *task) lookUnenrol(ctx context.Context) (gate.RunResult, error) {
	site, err := c.site(ctx)
	if err != nil {
		return gate.RunResult{}, err
	}
	did, err := c.r.channels.Forgot(ctx, site, c.o.vmid, c.id)
	if err != nil {
		return gate.RunResult{}, err
	}
	if !did {
		return gate.RunResult{}, fmt.Errorf("look for %s: the channel is still kept; run %s again", c.id, c.o.command("unenrol"))
	}
	return gate.RunResult{OK: true, Gone: true, Way: "castellan", Said: "the channel is taken away"}, nil
}
