package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"castellan/internal/channel"
	"castellan/internal/frame"
	"castellan/internal/gate"
	"castellan/internal/lane"
)

// LanesConfig is what Lanes are made from.
type LanesConfig struct {
	Settings LaneSettings
	Targets  []string // the names of the targets of Proxmox VE; nothing may run on others
	Bridges  *Bridges
	Channels *channel.Channels // nil: no guest is enrolled
	File     string            // says for refusals where the settings stand: "/etc/castellan/castellan.toml"
	Person   string            // says who can change them
}

// Lanes say what the administrator lets run where. They implement gate.Lanes.
type Lanes struct {
	targets map[string]allowed
	other   allowed // of a target that has none: it lets nothing run
	bridges *Bridges
	channel *channel.Channels
}

// allowed is what the administrator lets run on one target.
type allowed struct {
	lock   *lane.Lock
	files  lane.Scope
	store  string
	person string
}

var _ gate.Lanes = (*Lanes)(nil)

// NewLanes makes Lanes.
func NewLanes(c LanesConfig) (*Lanes, error) {
	if c.Bridges == nil {
		return nil, errors.New("make lanes: bridges are needed")
	}
	settings, _, err := c.Settings.perTarget(c.Targets)
	if err != nil {
		return nil, err
	}
	file := cmp.Or(c.File, "the configuration")
	out := &Lanes{targets: map[string]allowed{}, bridges: c.Bridges, channel: c.Channels}
	open := func(s TargetLanes, key string) (allowed, error) {
		a := allowed{files: s.Files, store: "[" + key + "] in " + file, person: cmp.Or(c.Person, "whoever administers castellan")}
		var err error
		a.lock, err = lane.New(lane.Config{Settings: s.lock(), Store: a.store, Person: a.person})
		return a, err
	}
	for name, s := range settings {
		key := "lanes.target." + name
		if len(c.Targets) == 1 && len(c.Settings.Targets) == 0 {
			key = "lanes"
		}
		if out.targets[name], err = open(s, key); err != nil {
			return nil, err
		}
	}
	out.other, err = open(TargetLanes{ProbesOff: c.Settings.ProbesOff}, "lanes.target.NAME, of a target of kind pve")
	return out, err
}

func (l *Lanes) of(target string) allowed {
	if a, ok := l.targets[target]; ok {
		return a
	}
	return l.other
}

func no(hint, format string, args ...any) gate.LaneVerdict {
	return gate.LaneVerdict{Refused: fmt.Sprintf(format, args...), Hint: hint}
}

// Judge says what a request that runs something comes to.
func (l *Lanes) Judge(ctx context.Context, v gate.View, target string, r gate.Request, objects []gate.ObjectFacts) gate.LaneVerdict {
	if !r.IsRun() {
		return l.judgeAPI(ctx, v, target, r, objects)
	}
	o, err := openRun(r, lookValue)
	if err != nil {
		return no("", "%v", err)
	}
	for _, name := range []string{"command", "script", "arg", "probe"} {
		for _, value := range r.Get(name) {
			if value.Secret != nil || value.Ref != nil {
				return no("Give it as input, or in a file of the guest.", "what is to run holds a value that is not known when it is judged")
			}
		}
	}
	at := o.place()
	said := gate.LaneVerdict{}
	var g configured
	if o.where != frame.Host {
		facts, ok := acted(objects, o.vmid)
		if !ok || !facts.Known {
			return no("list_guests shows the guests that castellan can see.", "%s is not known to castellan, or cannot be read", o)
		}
		at.Pools = facts.Pools
		if g, err = l.config(ctx, v, target, o); err != nil {
			return no("Nothing runs in a guest whose configuration cannot be read.", "%v", err)
		}
		if g.template {
			return no("Take a guest that runs.", "%s is a template: nothing runs in it", o)
		}
	}
	if o.ofPackages() {
		return l.judgePackages(ctx, target, o, g, objects)
	}
	if refusal := l.of(target).allows(o, at); refusal.Refused != "" {
		return refusal
	}
	if g.privileged {
		said.Kinds = hostKinds(o.word)
		said.Note = "the container is privileged: root in it is root on the node, so it counts as the node itself"
	}
	way, refusal := l.way(target, o, g)
	if refusal.Refused == "" && o.hostPackages() {
		refusal = l.hostWay(target, o)
	}
	if refusal.Refused != "" {
		return refusal
	}
	said.Note = joined(said.Note, way)
	return said
}

// hostKinds are what a run in a privileged container counts as beside what it is.
func hostKinds(word string) []gate.Kind {
	switch word {
	case wordProbe, wordReadFile:
		return []gate.Kind{gate.KindHostProbe}
	case wordCommand:
		return []gate.Kind{gate.KindHostCommand}
	}
	return []gate.Kind{gate.KindHost}
}

// acted finds the guest that a request acts on.
func acted(objects []gate.ObjectFacts, vmid int) (gate.ObjectFacts, bool) {
	i := slices.IndexFunc(objects, func(f gate.ObjectFacts) bool {
		return f.Object.Kind == gate.ObjectGuest && f.Use == gate.UseActs && f.Object.ID == strconv.Itoa(vmid)
	})
	if i < 0 {
		return gate.ObjectFacts{}, false
	}
	return objects[i], true
}

// config reads what the guest is.
func (l *Lanes) config(ctx context.Context, v gate.View, target string, o opened) (configured, error) {
	req := configRead(o)
	params := map[string]string{}
	for _, p := range req.Params {
		params[p.Name] = p.Values[0].Text
	}
	a, err := v.Read(ctx, target, gate.Read{Operation: req.Operation, Params: params})
	if err != nil {
		return configured{}, fmt.Errorf("read the configuration of %s: %w", o, err)
	}
	return readConfig(o.where, a.Data)
}

// allows asks the lock.
func (l allowed) allows(o opened, at lane.Place) gate.LaneVerdict {
	var verdict lane.Verdict
	switch o.word {
	case wordProbe:
		args, err := o.args()
		if err != nil {
			return no("Give each argument once, as name=value.", "%v", err)
		}
		_, verdict = l.lock.Probe(at, o.text("probe"), args)
	case wordCommand:
		verdict = l.lock.Command(at, lane.Command{Argv: o.values["command"], Env: o.values["env"], Dir: o.text("dir")})
	case wordScript:
		verdict = l.lock.Script(at, lane.Script{Text: o.text("script"), Interpreter: o.interpreter(), Env: o.values["env"], Dir: o.text("dir")})
	case wordReadFile, wordWriteFile:
		if verdict = l.file(at); verdict.Allowed && o.word == wordWriteFile {
			verdict = l.lock.Code(at)
		}
	case wordUpdates, wordUpgrade:
		verdict.Allowed = o.hostPackages()
	case wordMaintenance, wordDeadMan:
		verdict.Allowed = true // fixed words: the bridge has a switch for each
	default:
		return no("", "there is no run %q", o.word)
	}
	if !verdict.Allowed {
		return no(verdict.Hint, "%s (rule %s)", verdict.Reason, verdict.Rule)
	}
	return gate.LaneVerdict{}
}

func (l allowed) file(at lane.Place) lane.Verdict {
	if l.files.Has(at) {
		return lane.Verdict{Allowed: true, Rule: "files"}
	}
	return lane.Verdict{Rule: "files", Reason: fmt.Sprintf("files of %s may not be read or written", at), Hint: fmt.Sprintf("Add %s to files in %s. Only a person can do that: %s, who then starts it anew.", at, l.store, l.person)}
}

// way says how it gets there, or what a person has to set up.
func (l *Lanes) way(target string, o opened, g configured) (string, gate.LaneVerdict) {
	b := l.bridges.of(target, o.node)
	switch {
	case o.where == frame.VM:
		if !g.agent {
			return "", no("A person switches it on: agent=1 in the VM's configuration, then a stop and a start of the VM; and the guest needs the package qemu-guest-agent.", "the guest agent of %s is switched off, and it is the way into it", o)
		}
		return "through the guest agent of VM " + strconv.Itoa(o.vmid), gate.LaneVerdict{}
	case b == nil:
		return "", no(fmt.Sprintf("A person runs castellan bridge install on node %s and adds a [[bridge]] with target = %q and node = %q to castellan's configuration.", o.node, target, o.node),
			"Proxmox has no API for commands in containers and on nodes, and no bridge to node %s of target %s is configured", o.node, target)
	}
	return "through the bridge on node " + o.node, gate.LaneVerdict{}
}

// judgeAPI holds the API's own ways into a guest to the same lists: what runs something there or opens a console to those of
// scripts, what reads or writes a file to those of files. What makes a new guest brings code to nobody's guest and is left to
// policy.
func (l *Lanes) judgeAPI(ctx context.Context, v gate.View, target string, r gate.Request, objects []gate.ObjectFacts) gate.LaneVerdict {
	switch r.Operation {
	case "POST /nodes/{node}/lxc", "POST /nodes/{node}/qemu", "POST /nodes/{node}/storage/{storage}/content", "POST /nodes/{node}/storage/{storage}/content/{volume}",
		"GET /nodes/{node}/qemu/{vmid}/rrd", "GET /nodes/{node}/lxc/{vmid}/rrd":
		return gate.LaneVerdict{}
	case "POST /nodes/{node}/execute":
		return no("Make the calls one by one.", "it carries a list of other calls, which no lane can judge")
	}
	for _, name := range []string{"command", "input-data", "key", "args", "entrypoint", "hookscript", "cicustom", "script"} {
		for _, value := range r.Get(name) {
			if value.Secret != nil || value.Ref != nil {
				return no("Give it in a file of the guest, without what looks like a password.", "what is to run holds a value that is not known when it is judged")
			}
		}
	}
	said := gate.LaneVerdict{}
	for _, f := range objects {
		if f.Object.Kind != gate.ObjectGuest || f.Use != gate.UseActs {
			continue
		}
		id, err := lane.ID(f.Object.ID)
		if err != nil {
			return no("", "%v", err)
		}
		o := opened{where: frame.VM, vmid: id}
		if strings.Contains(r.Operation, "/lxc/") {
			o.where = frame.CT
		}
		for _, value := range r.Get("node") {
			if o.node, err = lookValue(value); err != nil {
				return no("", "%v", err)
			}
		}
		at := o.place()
		if f.Known {
			at.Pools = f.Pools
		}
		if verdict := l.of(target).apiWay(at, r); !verdict.Allowed {
			return no(verdict.Hint, "it is a way into a guest: %s (rule %s)", verdict.Reason, verdict.Rule)
		}
		if o.where == frame.CT && r.Product == "pve" {
			g, err := l.config(ctx, v, target, o)
			if err != nil {
				return no("Nothing runs in a guest whose configuration cannot be read.", "%v", err)
			}
			if g.privileged {
				said.Kinds, said.Note = []gate.Kind{gate.KindHost}, "the container is privileged: root in it is root on the node, so it counts as the node itself"
			}
		}
	}
	return said
}

// apiWay asks the lock about one of the API's own ways into a guest.
func (l allowed) apiWay(at lane.Place, r gate.Request) lane.Verdict {
	_, what, _ := strings.Cut(r.Operation, "/{vmid}/")
	switch what {
	case "agent/file-read":
		return l.file(at)
	case "agent/file-write":
		if verdict := l.file(at); !verdict.Allowed {
			return verdict
		}
	case "agent/exec":
		var argv []string
		for _, a := range r.Get("command") {
			argv = append(argv, a.Text)
		}
		return l.lock.Free(at, argv, r.Text("input-data"))
	}
	return l.lock.Code(at)
}
