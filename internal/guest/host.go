package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/frame"
	"castellan/internal/gate"
	"castellan/internal/patch"
)

// hostPackages says whether a run is about the packages of a node.
func (o opened) hostPackages() bool {
	return o.where == frame.Host && (o.word == wordUpdates || o.word == wordUpgrade)
}

// hostWord is what a bridge is asked for. Its arguments are names and versions that the bridge recomputes for itself.
func (o opened) hostWord() *frame.Word {
	if o.word == wordUpgrade {
		args := map[string]string{"mode": o.text("mode"), "packages": strings.Join(o.values["package"], "\n")}
		if o.yes("newer") {
			args["newer"] = "1"
		}
		return &frame.Word{Name: wordUpgrade, Args: args}
	}
	return lookWord(o.text("word"), o.text("timeout"))
}

func lookWord(word, seconds string) *frame.Word {
	args := map[string]string{"word": word}
	if seconds != "" {
		args["seconds"] = seconds
	}
	return &frame.Word{Name: wordUpdates, Args: args}
}

// onHost carries out what looks at, or installs, the packages of a node.
func (r *Runner) onHost(ctx context.Context, target string, o opened, id string, on gate.RunHooks) (gate.RunResult, error) {
	b, err := r.bridgeOf(target, o)
	if err != nil {
		return gate.RunResult{}, err
	}
	site, err := r.siteOf(ctx, target)
	if err != nil {
		return gate.RunResult{}, err
	}
	h := host{runner: r, b: b, site: site, node: o.node, id: id}
	began := time.Now()
	var res gate.RunResult
	switch {
	case o.word == wordUpgrade:
		res, err = h.upgrade(ctx, o, on)
	case o.text("word") == "verify":
		res, err = h.verify(ctx, o)
	case o.text("word") == "status" && o.text("other-than") != "":
		res, err = h.booted(ctx, o.text("other-than"))
	default:
		res, err = h.look(ctx, o)
	}
	res.Way, res.TookMS = "bridge", time.Since(began).Milliseconds()
	return res, err
}

// siteOf is the site that a bridge has to be of.
func (r *Runner) siteOf(ctx context.Context, target string) (string, error) {
	site, err := r.driver.Identify(ctx, target)
	if err != nil {
		return "", notBegun(fmt.Errorf("identify the site of target %s: %w", target, err))
	}
	if site == "" {
		return "", refused(gate.ErrUnavailable, "castellan's own user needs to see the nodes and the certificate of the cluster.", "which site target %s is cannot be told, so no bridge can be compared with it", target)
	}
	return site, nil
}

// host is a node whose packages are looked after.
type host struct {
	runner     *Runner
	b          *bridge
	site, node string
	id         string
	asked      int
}

func (h *host) frame(id string, w *frame.Word) frame.Ask {
	return frame.Ask{V: frame.Version, ID: id, Verb: frame.Manage, Place: frame.Place{Site: h.site, Node: h.node, Where: frame.Host}, Word: w}
}

// ask puts a looking word; its id is none of a run.
func (h *host) ask(ctx context.Context, w *frame.Word) (string, error) {
	h.asked++
	t, err := h.b.do(ctx, h.site, h.frame(fmt.Sprintf("%s.l%d", shorter(h.id), h.asked), w), nil)
	if err != nil {
		var cut *cutError
		if errors.As(err, &cut) && cut.before {
			return "", unreachable(h.b, err)
		}
		return "", notBegun(fmt.Errorf("the bridge of node %s did not answer: %w", h.node, err))
	}
	switch t.Ending {
	case frame.Done:
		return t.Text, nil
	case frame.Refused:
		return "", &gate.UpstreamError{Kind: gate.ErrDenied, Delivery: gate.NotCarriedOut, Message: fmt.Sprintf("the bridge of node %s refuses it: %s", h.node, bounded(t.Reason, 1500)), Hint: bounded(t.Hint, 600)}
	}
	return "", notBegun(fmt.Errorf("the bridge of node %s could not look: %s", h.node, bounded(t.Reason, 800)))
}

const mostReport = 2 << 20

// told reads a report of a bridge into v, bounded and clean.
func told(text string, v any) error {
	if len(text) > mostReport {
		return fmt.Errorf("read report: it is longer than %d bytes", mostReport)
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var raw any
	if err := d.Decode(&raw); err != nil {
		return fmt.Errorf("read report: %w", err)
	}
	clean, err := json.Marshal(washed(raw, 0))
	if err != nil {
		return fmt.Errorf("read report: %w", err)
	}
	strict := json.NewDecoder(bytes.NewReader(clean))
	strict.DisallowUnknownFields()
	if err := strict.Decode(v); err != nil {
		return fmt.Errorf("read report: %w", err)
	}
	return nil
}

// washed cleans every text of a report, and cuts what is too long.
func washed(v any, depth int) any {
	switch x := v.(type) {
	case string:
		const most = 80 << 10 // of a log
		if len(x) > most {
			x = strings.ToValidUTF8(x[:most], "")
		}
		return gate.Clean(x)
	case []any:
		if len(x) > 5000 || depth > 8 {
			return nil
		}
		for i := range x {
			x[i] = washed(x[i], depth+1)
		}
	case map[string]any:
		if depth > 8 {
			return nil
		}
		for k := range x {
			x[k] = washed(x[k], depth+1)
		}
	}
	return v
}

// whole holds a transaction of a report to the grammar that all of castellan reads.
func sound(ts ...patch.Transaction) error {
	for _, t := range ts {
		for _, c := range t {
			if c.Archive == "" && c.Action != patch.Remove {
				c.Archive = "unknown" // a package database does not know where a version came from
			}
			if _, err := patch.ParseChange(c.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

func encode(v any) (json.RawMessage, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write report: %w", err)
	}
	return b, nil
}

// look asks for a report.
func (h *host) look(ctx context.Context, o opened) (gate.RunResult, error) {
	word := o.text("word")
	text, err := h.ask(ctx, o.hostWord())
	if err != nil {
		return gate.RunResult{}, err
	}
	res := gate.RunResult{OK: true, Gone: true}
	switch word {
	case "progress":
		res.Said = gate.Clean(strings.ToValidUTF8(text[max(0, len(text)-16<<10):], ""))
		return res, nil
	case "services":
		var house patch.House
		if err = told(text, &house); err == nil {
			res.Report, err = encode(house)
		}
	case "result":
		var out patch.Outcome
		if out, err = outcomeOf(text); err == nil {
			res.Report, err = encode(out)
		}
	default:
		var rep patch.Report
		if err = told(text, &rep); err == nil {
			err = sound(rep.Security, rep.All)
		}
		if err == nil {
			rep.ClockOff = int64(time.Until(rep.Clock).Round(time.Second).Seconds())
			res.Report, err = encode(rep)
		}
	}
	if err != nil {
		return gate.RunResult{}, notBegun(fmt.Errorf("the bridge of node %s: %w", h.node, err))
	}
	return res, nil
}

// outcomeOf reads how an upgrade ended, and compares the services before and after.
func outcomeOf(text string) (patch.Outcome, error) {
	var o patch.Outcome
	if err := told(text, &o); err != nil {
		return o, err
	}
	if err := sound(o.Asked, o.Done, o.Missing, o.Beyond); err != nil {
		return o, err
	}
	if o.Before != nil && o.After != nil {
		o.Services = patch.Compare(*o.Before, *o.After)
	}
	return o, nil
}

// upgrade installs, and stays until it has ended.
func (h *host) upgrade(ctx context.Context, o opened, on gate.RunHooks) (gate.RunResult, error) {
	asked, err := patch.ParseTransaction(o.values["package"])
	if err != nil {
		return gate.RunResult{}, refused(gate.ErrInvalid, "", "%v", err)
	}
	t, err := h.b.do(ctx, h.site, h.frame(h.id, o.hostWord()), on.Live)
	for pause := lookFirst; err != nil || t.Running; pause = min(2*pause, lookMost) {
		var cut *cutError
		if err != nil && errors.As(err, &cut) && cut.before && !h.sent() {
			return gate.RunResult{}, unreachable(h.b, err)
		}
		h.asked++
		select { // the node's daemons restart: its sshd and its bridge may be away for a while
		case <-ctx.Done():
			if err == nil {
				err = ctx.Err()
			}
			return gate.RunResult{}, lost(h.b, err)
		case <-time.After(pause):
		}
		t, err = h.b.do(ctx, h.site, frame.Ask{V: frame.Version, ID: h.id, Verb: frame.Look}, nil)
	}
	return h.ended(t, asked, o.yes("newer"))
}

func (h *host) sent() bool { return h.asked > 0 }

// ended turns the end of an upgrade into an answer.
func (h *host) ended(t frame.Tell, asked patch.Transaction, newer bool) (gate.RunResult, error) {
	if t.Ending != frame.Done {
		return h.runner.told(h.b, frame.Ask{Word: &frame.Word{}}, t, zero)
	}
	out, err := outcomeOf(t.Text)
	if err != nil {
		return gate.RunResult{}, lost(h.b, err)
	}
	if out.ID != h.id {
		return gate.RunResult{}, lost(h.b, fmt.Errorf("it tells of another upgrade: %s", bounded(out.ID, 64)))
	}
	if out.State == "refused" {
		return gate.RunResult{}, refused(gate.ErrStale, "Nothing was changed. Look at the reason, then plan anew.", "node %s refuses the upgrade: %s", h.node, bounded(out.Stale, 1500))
	}
	out.Against(asked, newer)
	res := gate.RunResult{OK: out.State == "ended", Gone: true, Way: "bridge", Note: bounded(out.Note, 600)}
	if ok, why := out.Verdict(); !ok {
		res.Note = joined(res.Note, "it did not go well: "+bounded(strings.Join(why, "; "), 1500))
	}
	res.Report, err = encode(out)
	return res, err
}

// lookUpgrade finds out what became of an upgrade; it starts nothing.
func (h *host) lookUpgrade(ctx context.Context, o opened) (gate.RunResult, bool, error) {
	asked, err := patch.ParseTransaction(o.values["package"])
	if err != nil {
		return gate.RunResult{}, false, err
	}
	t, err := h.b.do(ctx, h.site, frame.Ask{V: frame.Version, ID: h.id, Verb: frame.Look}, nil)
	if err != nil {
		return gate.RunResult{}, false, fmt.Errorf("look for %s: %w", h.id, err)
	}
	if t.Running {
		return gate.RunResult{}, true, nil
	}
	res, err := h.ended(t, asked, o.yes("newer"))
	return res, false, err
}

// booted waits until the node answers with another boot id.
func (h *host) booted(ctx context.Context, old string) (gate.RunResult, error) {
	why := "it did not answer"
	for {
		h.b.drop(errors.New("the node is to answer anew"))
		text, err := h.ask(ctx, lookWord("status", ""))
		var rep patch.Report
		if err == nil {
			err = told(text, &rep)
		}
		switch {
		case err == nil && rep.BootID != "" && rep.BootID != old:
			report, err := encode(rep)
			return gate.RunResult{OK: true, Gone: true, Report: report}, err
		case err == nil:
			why = "it answers, and was not booted anew"
		default:
			why = bounded(err.Error(), 300)
		}
		select {
		case <-ctx.Done():
			code := 1
			return gate.RunResult{ExitCode: &code, Gone: true, Note: "node " + h.node + " did not come back with a new boot in time: " + why}, nil
		case <-time.After(lookMost):
		}
	}
}

// daemons are what a node of Proxmox VE cannot be without; the last only in a cluster.
var daemons = []string{"pve-cluster", "pvedaemon", "pveproxy", "pvestatd", "corosync"}

// verify holds the outcome of this plan's upgrade against what was asked for and what runs now, over a new connection.
func (h *host) verify(ctx context.Context, o opened) (gate.RunResult, error) {
	h.b.drop(errors.New("the node is to answer anew"))
	text, err := h.askAgain(ctx, lookWord("result", ""))
	if err != nil {
		return gate.RunResult{}, err
	}
	out, err := outcomeOf(text)
	if err != nil {
		return gate.RunResult{}, notBegun(fmt.Errorf("the bridge of node %s: %w", h.node, err))
	}
	var why []string
	if plan := planOfRun(h.id); plan == "" || planOfRun(out.ID) != plan {
		why = append(why, "the last upgrade of the node is none of this plan's")
	}
	if text, err = h.askAgain(ctx, lookWord("services", "")); err != nil {
		return gate.RunResult{}, err
	}
	var now patch.House
	if err := told(text, &now); err != nil {
		return gate.RunResult{}, notBegun(fmt.Errorf("the bridge of node %s: %w", h.node, err))
	}
	if out.Before != nil {
		out.After, out.Services = &now, patch.Compare(*out.Before, now)
	}
	_, more := out.Verdict()
	why = append(append(why, more...), daemonsDown(out.Before, now)...)
	res := gate.RunResult{OK: len(why) == 0, Gone: true}
	if !res.OK {
		code := 1
		res.ExitCode, res.Note = &code, bounded("not well: "+strings.Join(why, "; "), 2000)
	}
	res.Report, err = encode(out)
	return res, err
}

// askAgain asks until the node answers: its daemons may be restarting.
func (h *host) askAgain(ctx context.Context, w *frame.Word) (string, error) {
	for end := time.Now().Add(2 * time.Minute); ; {
		text, err := h.ask(ctx, w)
		var u *gate.UpstreamError
		if err == nil || errors.As(err, &u) && u.Kind == gate.ErrDenied || time.Now().After(end) {
			return text, err
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(lookMost):
		}
	}
}

// daemonsDown names what a node has to run and does not.
func daemonsDown(before *patch.House, now patch.House) (why []string) {
	active := func(h patch.House, name string) bool {
		return slices.ContainsFunc(h.Units, func(u patch.Unit) bool { return u.Name == name && u.Active == "active" })
	}
	for _, name := range daemons {
		if (before == nil || active(*before, name)) && !active(now, name) {
			if before == nil && name == "corosync" {
				continue
			}
			why = append(why, name+" does not run")
		}
	}
	return why
}

// planOfRun is the plan that a run is of: what stands before its last dot; "" where it is of none.
func planOfRun(id string) string {
	i := strings.LastIndexByte(id, '.')
	if i < 1 {
		return ""
	}
	return id[:i]
}

// hostWay says whether a bridge that has said hello has the word; castellan cannot switch it on.
func (l *Lanes) hostWay(target string, o opened) gate.LaneVerdict {
	b := l.bridges.of(target, o.node)
	if b == nil {
		return gate.LaneVerdict{}
	}
	if line := b.live(); line != nil && !slices.Contains(line.self().Words, o.word) {
		return no(fmt.Sprintf("Only root on the node can change it: add %q to words in %s there.", o.word, bounded(line.self().Settings["path"], 200)),
			"the bridge of node %s has the word %s switched off: Proxmox has no call that installs updates, so a node is upgraded by its bridge", o.node, o.word)
	}
	return gate.LaneVerdict{}
}
