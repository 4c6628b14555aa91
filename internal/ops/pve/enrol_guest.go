package pve

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"castellan/internal/catalog"
	"castellan/internal/estate"
	"castellan/internal/gate"
	lookedafter "castellan/internal/guest"
)

type enrolGuestIn struct {
	Guest     string   `json:"guest" jsonschema:"id or unique name"`
	Automatic string   `json:"automatic,omitempty" enum:"keep,off,on" jsonschema:"what becomes of the guest's own automatic updates; keep if absent"`
	From      string   `json:"from,omitempty" jsonschema:"castellan's address as the guest sees it; the one of the route to the guest if absent"`
	Pool      string   `json:"pool,omitempty" jsonschema:"put the guest into this pool too"`
	Tags      []string `json:"tags,omitempty" jsonschema:"give it these tags too; only tags that the site reserves"`
	Way       string   `json:"way,omitempty" enum:"script,accept" jsonschema:"script prints what a person runs in the guest, accept takes the host keys that it printed; else bridge or guest agent do it"`
	HostKeys  []string `json:"host_keys,omitempty" jsonschema:"of accept: each as ssh-ed25519 AAAA…"`
	Port      int64    `json:"port,omitempty" jsonschema:"of accept: of the guest's sshd; 22 if absent"`
	Family    string   `json:"family,omitempty" enum:"apt,dnf,pacman,zypper,apk" jsonschema:"of script: how the guest handles packages; of a container it is known"`
	Target    string   `json:"target,omitempty"`
}

func enrolGuest(e *estate.Estate) *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "enrol_guest", Summary: "Let castellan look after a guest's packages: one SSH key for fixed words. Write; undo: unenrol_guest", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindEnrol}, Undo: "unenrol_guest removes every trace",
		Keywords: "enroll register channel key ssh patch updates automatic unattended onboard", Toolset: "full", Guest: "guest", Wide: true,
	}, func(ctx context.Context, v gate.View, in enrolGuestIn) (*gate.Draft, error) {
		return planEnrolGuest(ctx, v, e, in)
	})
}

func planEnrolGuest(ctx context.Context, v gate.View, e *estate.Estate, in enrolGuestIn) (*gate.Draft, error) {
	switch {
	case (in.Way == "accept") != (len(in.HostKeys) > 0):
		return nil, gate.Fail(gate.ErrInvalid, "castellan enrol GUEST --accept reads the block that the script printed.", "host_keys go with way=accept, and it needs them")
	case in.Port != 0 && in.Way != "accept", in.Port < 0 || in.Port > 65535:
		return nil, gate.Fail(gate.ErrInvalid, "Give 1 to 65535, with way=accept.", "port is %d", in.Port)
	case in.Family != "" && in.Way != "script":
		return nil, gate.Fail(gate.ErrInvalid, "Leave it out: it is found out in the guest.", "family goes with way=script")
	}
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	g, err := s.inside(ctx, in.Guest)
	if err != nil {
		return nil, err
	}
	if err := g.mayEnrol(ctx, in); err != nil {
		return nil, err
	}
	twins, err := g.alone(ctx, e)
	if err != nil {
		return nil, err
	}
	from, how, err := g.castellansAddress(ctx, in.From)
	if err != nil {
		return nil, err
	}
	params := map[string]any{"from": from.String(), "automatic": orText(in.Automatic, "keep")}
	if in.Way != "" {
		params["way"] = in.Way
	}
	if len(in.HostKeys) > 0 {
		params["host-key"] = in.HostKeys
	}
	if in.Port > 0 {
		params["port"] = in.Port
	}
	if in.Way == "script" {
		params["family"] = orText(in.Family, g.family())
	}
	step, err := g.run(ctx, "enrol", params)
	if err != nil {
		return nil, err
	}
	step.Undo = gate.Undo{None: "a plan of unenrol_guest takes it all away, undo does not"}
	draft := &gate.Draft{Target: s.target(), Phrase: g.ID, Steps: []gate.Step{step}}
	note := g.nameNote(in.Guest) + how + " The key is made when the plan is carried out, and taken by this guest for fixed words only: no terminal, no forwarding, no command."
	if in.Way != "script" {
		note += " It is kept when it was tried; what was begun and does not work is taken away again."
	}
	draft.Note = strings.TrimSpace(note + " " + twins)
	if in.Pool != "" {
		step, err := g.intoPool(in.Pool)
		if err != nil {
			return nil, err
		}
		if step == nil {
			draft.Skip = append(draft.Skip, "it is in pool "+clip(in.Pool, 40)+" already")
		} else {
			draft.Steps = append(draft.Steps, *step)
		}
	}
	return draft, g.reservedTags(ctx, in.Tags, draft)
}

// alone refuses where another guest that runs has one of the guest's hardware addresses: nobody could tell which of them answers.
// What a plan says is as far as its caller may see; when it is carried out castellan looks at the whole site.
func (g *guest) alone(ctx context.Context, e *estate.Estate) (note string, err error) {
	var cards []string
	for key, value := range g.config {
		if set := properties(key, value); base(key) == "net" {
			cards = append(cards, set["hwaddr"], set["macaddr"])
		}
	}
	found, err := e.Sharing(ctx, g.site.v, g.site.target(), estate.Cards{ID: g.ID, Cards: cards, Fresh: true, Stopped: true})
	if err != nil {
		return "", err
	}
	if len(found.Up) > 0 {
		return "", gate.Fail(gate.ErrDenied, fmt.Sprintf("Stop %s, or give it hardware addresses of its own (net0 and so on in its settings; a restore with unique=1 does that). If it takes the place of %s, stop or delete that one, and enrol the other.", found.Up[0].Title(), g.Title()),
			"%s cannot be enrolled: %s has one of its hardware addresses in its settings too, and is not stopped, so nobody could tell which of them answers", g.Title(), titles(found.Up, 5))
	}
	if len(found.Unread) > 0 {
		return "", gate.Fail(gate.ErrUnavailable, "Try again when that can be read; node_status tells how the node is.", "%s cannot be enrolled now: whether another guest has its hardware addresses is not known, since settings could not be read of %s", g.Title(), clip(strings.Join(someOf(found.Unread, 5), "; "), 400))
	}
	if len(found.Down) > 0 {
		note = fmt.Sprintf("%s (stopped) has one of its hardware addresses too: once that runs, neither is believed or patched. ", titles(found.Down, 5))
	}
	if len(found.Unseen) > 0 && !g.site.v.Scoped() {
		note += "Whether guests that castellan does not see have its hardware addresses is not known: " + clip(strings.Join(someOf(found.Unseen, 4), "; "), 300) + ". "
	}
	return note, nil
}

func titles(guests []estate.Guest, n int) string {
	var out []string
	for _, g := range guests {
		out = append(out, g.Title())
	}
	return strings.Join(someOf(out, n), ", ")
}

// castellansAddress is from where castellan reaches the guest, and how that is known.
func (g *guest) castellansAddress(ctx context.Context, given string) (netip.Addr, string, error) {
	if given != "" {
		a, err := netip.ParseAddr(given)
		if err != nil || a.IsLoopback() || a.IsUnspecified() || a.Zone() != "" {
			return a, "", gate.Fail(gate.ErrInvalid, "Give castellan's address as the guest sees it, as 192.0.2.10.", "from %q is none that a guest can see", clip(given, 60))
		}
		return a.Unmap(), fmt.Sprintf("castellan's key is taken from %s only, as given.", a.Unmap()), nil
	}
	all, err := lookedafter.Addresses(ctx, lookedafter.Viewed(g.site.v, g.site.target()), lookedafter.Place{Kind: g.Path(), Node: g.Node, VMID: int(g.Number)})
	if err != nil {
		return netip.Addr{}, "", gate.Fail(gate.ErrUnavailable, "Give from: castellan's address as the guest sees it.", "where %s is reached cannot be told: %v", g.Title(), err)
	}
	from, err := lookedafter.From(all)
	if err != nil {
		return netip.Addr{}, "", gate.Fail(gate.ErrUnavailable, "Give from: castellan's address as the guest sees it.", "from where castellan reaches %s cannot be told: %v", g.Title(), err)
	}
	return from, fmt.Sprintf("castellan's key is taken from %s only: this machine's address on the route to the guest (%s). If the guest sees another, as behind NAT, give it as from.", from, all[0]), nil
}

// families of container types, as Proxmox names them.
var families = map[string]string{"debian": "apt", "devuan": "apt", "ubuntu": "apt", "fedora": "dnf", "centos": "dnf", "archlinux": "pacman", "opensuse": "zypper", "alpine": "apk"}

// family is how a guest handles packages, as far as its configuration tells; the script refuses another one.
func (g *guest) family() string {
	if f := families[g.config["ostype"]]; f != "" {
		return f
	}
	return "apt"
}

// intoPool adds the guest to a pool; nil where it is in it.
func (g *guest) intoPool(pool string) (*gate.Step, error) {
	switch {
	case g.Pool == pool:
		return nil, nil
	case g.Pool != "":
		return nil, gate.Fail(gate.ErrInvalid, "Take it out of that pool first, or leave pool out.", "%s is in pool %s", g.Title(), clip(g.Pool, 40))
	case !slices.Contains(g.site.inv.Pools, pool):
		return nil, gate.Fail(gate.ErrInvalid, "Name a pool that there is; call_operation with POST /pools makes one.", "there is no pool %q that castellan can see", clip(pool, 40))
	}
	r, err := gate.NewRequest("pve", "PUT /pools", map[string]any{"poolid": pool, "vms": g.ID})
	if err != nil {
		return nil, gate.Fail(gate.ErrInvalid, "Correct pool.", "%v", err)
	}
	return &gate.Step{API: &r, Undo: gate.Undo{None: "take it out of the pool by call_operation"}}, nil
}

// reservedTags adds the step that gives tags. Tags that anybody may give would grant nothing, and say what nobody vouches for.
func (g *guest) reservedTags(ctx context.Context, tags []string, draft *gate.Draft) error {
	var add []string
	for _, t := range tags {
		if t == "" {
			return gate.Fail(gate.ErrInvalid, "Name the tag.", "a tag is empty")
		}
		if slices.Contains(g.Tags, t) {
			draft.Skip = append(draft.Skip, "it has the tag "+clip(t, 40)+" already")
		} else if !slices.Contains(add, t) {
			add = append(add, t)
		}
	}
	if len(add) == 0 {
		return nil
	}
	rules, err := estate.New().TagRules(ctx, g.site.v, g.site.target())
	if err != nil {
		return err
	}
	for _, t := range add {
		if !rules.Reserved(t) {
			e := gate.Fail(gate.ErrInvalid, "Give castellan's user Sys.Audit on /, or use a pool.", "the tag %q is not reserved, so that whoever may edit a guest could give it: %s", clip(t, 40), rules.Why(t))
			if rules.Known {
				e.Hint = "Reserve it on the site first, or use a pool: " + clip(rules.Reserve(add), 500)
			}
			return e
		}
	}
	all := append(slices.Clone(g.Tags), add...)
	slices.Sort(all)
	step, err := g.step(ctx, "PUT", "/config", map[string]any{"tags": strings.Join(all, ";")})
	if err != nil {
		return err
	}
	step.Undo = gate.Undo{None: "set_guest_config sets the tags of before"}
	draft.Diff = append(draft.Diff, gate.Difference{Object: "guest/" + g.ID, Key: "tags", Old: strings.Join(g.Tags, ";"), New: strings.Join(all, ";")})
	draft.Steps = append(draft.Steps, step)
	return nil
}

// memberNote names what may have been given to a guest when it was enrolled, and stays.
func (g *guest) memberNote() string {
	var stays []string
	if g.Pool != "" {
		stays = append(stays, "in pool "+clip(g.Pool, 40))
	}
	if len(g.Tags) > 0 {
		stays = append(stays, "tagged "+strings.Join(someOf(clipped(g.Tags, 40), 10), ", "))
	}
	if len(stays) == 0 {
		return ""
	}
	return " It stays " + strings.Join(stays, " and ") + ": what was given with the enrolment is not taken back by this."
}

func orText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

type unenrolGuestIn struct {
	Guest  string `json:"guest" jsonschema:"id or unique name"`
	Forget bool   `json:"forget,omitempty" jsonschema:"destroy castellan's key only: for a guest that cannot be reached"`
	Target string `json:"target,omitempty"`
}

func unenrolGuest() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "unenrol_guest", Summary: "Take castellan's key, account and helper out of a guest, every trace. Write; undo: enrol_guest", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindEnrol}, Undo: "enrol_guest enrols it anew", Keywords: "unenroll remove channel key ssh patch updates offboard forget", Toolset: "full", Guest: "guest",
	}, planUnenrolGuest)
}

func planUnenrolGuest(ctx context.Context, v gate.View, in unenrolGuestIn) (*gate.Draft, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	var g *guest
	params := map[string]any{}
	if in.Forget {
		if g, err = s.guest(ctx, in.Guest); err != nil {
			return nil, err
		}
		params["forget"] = true
	} else if g, err = s.inside(ctx, in.Guest); err != nil {
		e := *gate.AsError(err)
		e.Hint = strings.TrimSpace(e.Hint + " With forget=true castellan's side alone is removed.")
		return nil, &e
	}
	step, err := g.step(ctx, catalog.MethodRun, "/unenrol", params)
	if err != nil {
		return nil, err
	}
	if !in.Forget {
		step.Require = append(step.Require, g.inState("running"))
	}
	step.Undo = gate.Undo{None: "enrol_guest enrols it anew, with another key"}
	note := "Packages that were installed for it (sudo, an sshd) stay."
	if in.Forget {
		note = "In the guest its account, gate, helper, rule of sudo and state stay; the key that opens them is destroyed here."
	}
	return &gate.Draft{Target: s.target(), Phrase: g.ID, Note: strings.TrimSpace(g.nameNote(in.Guest) + note + g.memberNote()), Steps: []gate.Step{step}}, nil
}
