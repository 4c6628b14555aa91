package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
	"castellan/internal/local"
	"castellan/internal/ops/self"
	"castellan/internal/policy"
	"castellan/internal/proxmox"
	"castellan/internal/seal"
)

// physician looks at this process and its house, for the operation doctor.
type physician struct {
	app     *app
	path    string // of the configuration
	client  *proxmox.Client
	runtime *runtimeSettings
	people  *identity.Identity
	house   *house
}

var _ self.Doctor = (*physician)(nil)

// Contact tries each address of a target.
func (p *physician) Contact(ctx context.Context, target string) ([]self.Contact, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	all, err := p.client.Probe(ctx, target)
	out := make([]self.Contact, len(all))
	for i, c := range all {
		out[i] = self.Contact(c)
	}
	return out, err
}

// Enabled lists the capabilities that are on.
func (p *physician) Enabled(ctx context.Context) ([]string, error) {
	s, _, _, _, err := p.runtime.current(ctx)
	if err != nil || s.Policy.ReadOnly {
		return nil, err
	}
	return slices.Clone(s.Policy.Capabilities), nil
}

// Own looks at castellan itself.
func (p *physician) Own(ctx context.Context) []self.Check {
	var out []self.Check
	say := func(area, state, fix, format string, args ...any) {
		out = append(out, self.Check{Area: area, State: state, Text: fmt.Sprintf(format, args...), Fix: fix})
	}
	s, _, source, notes, err := p.runtime.current(ctx)
	if err != nil {
		say("settings", self.CheckProblem, "castellan config check", "the settings cannot be read: %v", err)
		return out
	}
	p.approvals(s, say)
	p.controls(ctx, s, source, notes, say)
	p.store(ctx, s, say)
	p.sites(ctx, s, say)
	for _, fault := range openFiles(s, p.path) {
		say("files", self.CheckProblem, "chmod 600, or 700 for a folder, and the owner that castellan runs as", "%s", fault)
	}
	if !slices.ContainsFunc(out, func(c self.Check) bool { return c.Area == "files" }) {
		say("files", self.CheckOK, "", "configuration, keys and secrets are closed to others")
	}
	return out
}

type sayer = func(area, state, fix, format string, args ...any)

// approvals says whether those above a dialog are real.
func (p *physician) approvals(s Settings, say sayer) {
	const area = "approvals"
	highest := p.app.highest(s, filepath.Dir(p.path))
	switch {
	case s.Daemon.Account == "":
		say(area, self.CheckNote, "castellan init --account NAME, as root, sets up a daemon under an account of its own",
			"one account holds agent, keys and policy: the highest approval that counts is %s; policy.stand_in = %q stands for a person's", highest, orOff(s.Policy.StandIn))
	case highest <= gate.RungDialog:
		v := local.Separation{}
		if p.app.separation != nil {
			v = p.app.separation()
		} else {
			v = s.claim(p.path, -1).Judge()
		}
		for _, r := range v.Reasons {
			say(area, self.CheckProblem, "castellan daemon check", "approvals count as a dialog at most: %s", r.Text)
		}
	default:
		say(area, self.CheckOK, "", "castellan runs under an account of its own: approvals of people count up to %s", highest)
	}
	if s.Daemon.Account != "" || s.Daemon.PublicURL != "" {
		if err := p.people.PasskeyProblem(); err != nil {
			say("passkeys", self.CheckProblem, "Set daemon.public_url, then enrol passkeys anew.", "%v", err)
		} else {
			say("passkeys", self.CheckOK, "", "the public URL %s can have passkeys", p.house.url)
		}
	}
	if s.Daemon.Account != "" && !p.app.isDaemon {
		c, err := net.DialTimeout("unix", s.Daemon.local().Path(), 2*time.Second)
		if err != nil {
			say("daemon", self.CheckProblem, "systemctl status castellan", "no daemon answers at %s", s.Daemon.local().Path())
		} else {
			_ = c.Close()
			say("daemon", self.CheckOK, "", "the daemon answers")
		}
	}
}

// sites tells of targets that are one and the same site: policies, lanes and rights go by the target's name, so that what one
// name refuses may go through by the other.
func (p *physician) sites(ctx context.Context, s Settings, say sayer) {
	if len(s.Targets) < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	names := make(map[string][]string)
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, t := range s.Targets {
		all.Go(func() {
			site, err := p.client.Identify(ctx, t.Name)
			if err != nil || site == "" {
				return // a target that does not answer is told of by itself
			}
			mu.Lock()
			defer mu.Unlock()
			names[site] = append(names[site], t.Name)
		})
	}
	all.Wait()
	for _, site := range slices.Sorted(maps.Keys(names)) {
		if same := names[site]; len(same) > 1 {
			slices.Sort(same)
			say("targets", self.CheckProblem, "Keep one of them in the configuration; several addresses of a cluster are addresses of one target.",
				"%s are one site (%s): policies, lanes and scopes go by the target's name, so what one name refuses may go through by another", strings.Join(same, ", "), site)
		}
	}
}

func orOff(s string) string {
	if s == "" {
		return "off"
	}
	return s
}

// controls says which are on, where they come from, and what is set and does not count.
func (p *physician) controls(ctx context.Context, s Settings, source map[string]string, notes []string, say sayer) {
	const area = "settings"
	from := func(key string) string {
		if w := source[key]; w != "" {
			return w
		}
		return "default"
	}
	shown := func(list []string) string {
		if len(list) == 0 {
			return "none"
		}
		return strings.Join(list, ", ")
	}
	say(area, self.CheckOK, "", "policy.read_only is %t (%s); capabilities that are on: %s (%s)", s.Policy.ReadOnly, from("policy.read_only"), shown(s.Policy.Capabilities), from("policy.capabilities"))
	var on, off []string
	control := func(key string, set bool) {
		if set {
			on = append(on, key+" ("+from(key)+")")
		} else {
			off = append(off, key)
		}
	}
	for _, list := range []struct {
		name string
		all  []string
		one  func(policy.TargetSettings) []string
	}{
		{"guests", s.Policy.Guests, func(t policy.TargetSettings) []string { return t.Guests }},
		{"pools", s.Policy.Pools, func(t policy.TargetSettings) []string { return t.Pools }},
		{"tags", s.Policy.Tags, func(t policy.TargetSettings) []string { return t.Tags }},
	} {
		some := false
		for _, name := range slices.Sorted(maps.Keys(s.Policy.Targets)) {
			if len(list.one(s.Policy.Targets[name])) > 0 {
				some = true
				control("policy.target."+name+"."+list.name, true)
			}
		}
		if len(list.all) > 0 || !some {
			control("policy."+list.name, len(list.all) > 0)
		}
	}
	control("policy.forbid", len(s.Policy.Forbid) > 0)
	control("policy.four_eyes", s.Policy.FourEyes)
	control("policy.writes_per_hour", s.Policy.WritesPerHour > 0)
	control("policy.windows", len(s.Policy.Windows) > 0)
	control("policy.arming", source["policy.arming"] != "")
	control("store.retention", s.Store.Retention != "")
	control("anchor", len(s.Anchors) > 0)
	control("notify", s.Notify.Given())
	say(area, self.CheckOK, "", "controls that are set: %s; not set: %s", shown(on), shown(off))
	for _, n := range notes {
		state := self.CheckOK
		if strings.HasSuffix(n, environmentWon) || strings.Contains(n, "which won") || strings.Contains(n, notTaken) || strings.Contains(n, "does not count") {
			state = self.CheckNote
		}
		say(area, state, "", "%s", n)
	}
	sw, err := p.house.gate.Switches(ctx)
	switch {
	case err != nil:
		say("switches", self.CheckProblem, "", "the switches cannot be read, so every write is refused: %v", err)
	case sw.Killed != "" || sw.Contained != "":
		say("switches", self.CheckNote, "castellan contain --help", "every write is stopped: %s%s", sw.Killed, sw.Contained)
	case sw.ArmingNeeded && sw.ArmedUntil.Before(time.Now()):
		say("switches", self.CheckNote, "castellan arm", "changes pass only within an armed window, and none is open")
	}
}

// store says whether what happens can be recorded, and kept from being rewritten.
func (p *physician) store(ctx context.Context, s Settings, say sayer) {
	const area = "ledger"
	if err := p.house.store.Ready(ctx); err != nil {
		say(area, self.CheckProblem, "castellan audit verify", "nothing can be recorded, so every change is refused: %v", err)
	} else {
		say(area, self.CheckOK, "", "the store takes records (%s)", storePlace(s.Store.URL))
	}
	for _, n := range p.house.anchors.Notices() {
		say(area, self.CheckProblem, "castellan anchor", "%s", n)
	}
	if outside, why := p.house.anchors.Outside(); !outside && len(p.house.anchors.Notices()) == 0 {
		say(area, self.CheckNote, "An [[anchor]] on another machine holds the ledger's head.", "%s", why)
	}
	for _, n := range p.house.gate.Limits().Notices {
		say("settings", self.CheckProblem, "castellan config check", "%s", n)
	}
}

// storePlace is the store's address without a password.
func storePlace(text string) string {
	if v, ok := masked("url", text).(string); ok {
		return v
	}
	return "set"
}

// openFiles lists what should be closed to other accounts and is not.
func openFiles(s Settings, path string) []string {
	var out []string
	for _, f := range s.secretFiles() {
		if _, err := seal.Open(f); err != nil && !errors.Is(err, seal.ErrEmpty) {
			out = append(out, err.Error())
		}
	}
	closed := []string{path, s.Store.Keys}
	if !strings.Contains(s.Store.URL, "://") {
		closed = append(closed, filepath.Dir(s.Store.URL))
	}
	for _, f := range closed {
		info, err := os.Stat(f)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			out = append(out, err.Error())
		case info.Mode().Perm()&0o077 != 0 && f != path || info.Mode().Perm()&0o022 != 0:
			out = append(out, fmt.Sprintf("%s has the mode %04o", f, info.Mode().Perm()))
		}
	}
	return out
}

// examined is the answer of the operation, as the command reads it.
type examined struct {
	Verdict  string       `json:"verdict"`
	Problems []self.Check `json:"problems"`
	Notes    []self.Check `json:"notes,omitempty"`
	Good     []self.Check `json:"good,omitempty"`
	Targets  []struct {
		Name     string          `json:"name"`
		Product  string          `json:"product"`
		Version  string          `json:"version,omitempty"`
		Login    string          `json:"login,omitempty"`
		Can      json.RawMessage `json:"can,omitempty"`
		Commands []string        `json:"commands,omitempty"`
		Narrow   []string        `json:"narrow,omitempty"`
		RootOnly []string        `json:"root_only,omitempty"`
	} `json:"targets"`
	Here json.RawMessage `json:"here,omitempty"`
}
