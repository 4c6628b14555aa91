package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/anchor"
	"castellan/internal/backups"
	"castellan/internal/catalog"
	"castellan/internal/catalog/facts"
	"castellan/internal/channel"
	"castellan/internal/cli"
	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/guest"
	"castellan/internal/hosts"
	"castellan/internal/identity"
	"castellan/internal/local"
	"castellan/internal/oauth"
	"castellan/internal/ops/pve"
	"castellan/internal/ops/self"
	"castellan/internal/policy"
	"castellan/internal/proxmox"
	"castellan/internal/reach"
	"castellan/internal/seal"
	"castellan/internal/settings"
	"castellan/internal/store"
	"castellan/internal/undo"
)

// house is everything that one process needs, put together.
type house struct {
	gate     *gate.Gate
	catalog  *catalog.Catalog
	store    *lateStore
	client   *proxmox.Client
	bridges  *guest.Bridges
	channels *channel.Channels
	policy   *policy.Live
	keys     *seal.Keys
	runtime  *runtimeSettings
	anchors  *anchor.Anchors
	sweeper  *sweeper
	people   *identity.Identity
	clients  *oauth.Server
	url      string   // where people's browsers find the console
	notes    []string // which settings the environment gave

	stop func()
	done chan struct{}
}

// declared lists all operations without opening anything; they do nothing until a gate runs them.
func declared() []*gate.Operation {
	return operations(nil, estate.New(), pve.PatchingSettings{}, nil, nil, nil, nil, nil)
}

func operations(c *catalog.Catalog, e *estate.Estate, set pve.PatchingSettings, audit self.Audit, s self.Settings, d self.Doctor, u self.Undoer, roll pve.Roll) []*gate.Operation {
	return slices.Concat(pve.OperationsOn(e, set, roll), self.Operations(self.Config{Catalog: c, Estate: e, Audit: audit, Settings: s, Doctor: d, Undo: u}))
}

// build puts a house together from settings. Nothing runs yet.
func (a *app) build(ctx context.Context, s Settings, path string, log *slog.Logger) (*house, error) {
	dir := filepath.Dir(path)
	c, err := catalog.New(catalog.Config{Facts: facts.Open()})
	if err != nil {
		return nil, err
	}
	if err := acceptedDescriptions(c, dir); err != nil {
		return nil, err
	}
	keys, err := seal.OpenKeys(s.Store.Keys)
	if err != nil {
		return nil, fmt.Errorf("open keys: %w", err)
	}
	p, err := makePolicy(s, dir, c, a)
	if err != nil {
		return nil, err
	}
	if err := s.Patching.Check(); err != nil {
		return nil, err
	}
	folder, err := s.folder()
	if err != nil {
		return nil, err
	}
	client, err := proxmox.New(proxmox.Config{Settings: proxmox.Settings{Targets: s.Targets}, Catalog: c.Guide(), Secrets: seal.Open, Log: log, Sink: folder})
	if err != nil {
		return nil, err
	}
	st := newLateStore(store.Config{URL: s.Store.URL, Signer: keys.Ledger(), Head: s.Store.Head, Log: log})
	seals := sealer{keys, seal.NewRedactor()}
	channels, err := channel.NewChannels(channel.Config{Store: st, Sealer: seals, Log: log, Barred: hosts.New(hosts.Config{Hosts: s.servers()})})
	if err != nil {
		return nil, err
	}
	e := estate.New()
	bridges, runner, lanes, err := s.hands(client, channels, newTwins(e, client, c), path, log)
	if err != nil {
		return nil, err
	}
	set, err := settings.New(settings.Config{Store: st, Sealer: seals})
	if err != nil {
		return nil, err
	}
	rt := a.newRuntime(path, set, func(s Settings) (*policy.Policy, error) { return makePolicy(s, dir, c, a) })
	live, err := policy.NewLive(policy.LiveConfig{Policy: p, Load: rt.load, Contained: contained(dir)})
	if err != nil {
		return nil, err
	}
	anchors, sweeper, err := s.upkeep(st, log)
	if err != nil {
		return nil, err
	}
	tell := a.tell
	if tell == nil && s.Notify.Given() {
		tell = leave(st, log)
	}
	who, clients, url, err := s.whoMayCome(st, keys, client, tell, log)
	if err != nil {
		return nil, err
	}
	rt.enrolled = who.Enrolled
	h := &house{people: who, clients: clients, url: url, catalog: c, store: st, client: client, bridges: bridges, channels: channels, policy: live, keys: keys, runtime: rt, anchors: anchors, sweeper: sweeper, done: make(chan struct{})}
	me, err := s.itself(client, st)
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	walker, err := reach.New(reach.Config{Estate: e, Catalog: c, Self: me})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	keeper, err := undo.New(undo.Config{Catalog: c, Estate: e})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	h.gate, err = gate.New(gate.Config{Operations: operations(c, e, s.Patching, auditOf{st}, rt, &physician{app: a, path: path, client: client, runtime: rt, people: who, house: h}, keeper, roll{channels, client}), Keeper: keeper, Catalog: c.Guide(), Driver: client, Runner: runner, Lanes: lanes, Policy: live, Store: st, Estate: e, Walker: walker, Backups: backups.Book{}, Sealer: seals, Witness: who, Link: s.link(url, a.isDaemon), Consent: consent(dir, time.Now, log),
		Log: log, Notices: func() []string {
			return slices.Concat(client.Notices(), rt.notices(), anchors.Notices(), a.notSeparate(s))
		}, Trace: a.trace, Heartbeat: a.heartbeat, FirstSweep: a.firstSweep})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return h, nil
}

// start runs gate and store until end is called.
func (h *house) start() {
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	var group sync.WaitGroup
	group.Go(func() { _ = h.store.Run(ctx) }) // ends with ctx; what it cannot do, Ready says
	group.Go(func() { _ = h.gate.Run(ctx) })
	group.Go(func() { h.sweeper.run(ctx) })
	// The anchors end last: they are to have the head that the end of the others makes.
	after, ended := context.WithCancel(context.Background())
	anchored := make(chan struct{})
	go func() {
		defer close(anchored)
		_ = h.anchors.Run(after) // ends with after; what does not work, Notices say
	}()
	go func() {
		group.Wait()
		ended()
		<-anchored
		close(h.done)
	}()
	h.gate.AwaitRunning()
}

// end stops everything; work under way pauses, or is adopted by another process when it takes longer than limit.
func (h *house) end(limit time.Duration) {
	h.stop()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-h.done:
		_ = h.store.Close() // its own complaint would come too late to change anything
	case <-t.C:
	}
	h.channels.Close()
	h.bridges.Close()
	h.client.Close()
}

// servers are the hosts that castellan works through.
func (s Settings) servers() (out []string) {
	for _, t := range s.Targets {
		out = append(append(out, t.Addresses...), slices.Collect(maps.Values(t.Nodes))...)
	}
	for _, b := range s.Bridges {
		for _, host := range []string{b.Address, b.URL} {
			if host != "" {
				out = append(out, host)
			}
		}
	}
	return out
}

// hands are what reaches into nodes and guests, and what says where that may be.
func (s Settings) hands(client *proxmox.Client, channels *channel.Channels, same *twins, path string, log *slog.Logger) (*guest.Bridges, *guest.Runner, *guest.Lanes, error) {
	bridges, err := guest.NewBridges(guest.BridgesConfig{Settings: guest.Settings{Bridges: s.Bridges}, Targets: s.bridged(), Secrets: seal.Open, Log: log})
	if err != nil {
		return nil, nil, nil, err
	}
	runner, err := guest.NewRunner(guest.RunnerConfig{Driver: client, Bridges: bridges, Agent: client, Channels: channels, Twins: same})
	if err != nil {
		return nil, nil, nil, err
	}
	lanes, err := guest.NewLanes(guest.LanesConfig{Settings: s.Lanes, Targets: s.bridged(), Bridges: bridges, Channels: channels, File: path})
	return bridges, runner, lanes, err
}

// endTime is how long a command waits for what it has under way.
const endTime = 30 * time.Second

// open is how commands get a gate that runs: the daemon's where there is one, else one of this process.
func (a *app) open(ctx context.Context) (cli.Gate, func(), error) {
	path, err := a.socket()
	if err != nil {
		return nil, nil, err
	}
	if path != "" {
		c, err := local.Connect(ctx, path)
		if err != nil {
			return nil, nil, err
		}
		return c, func() { _ = c.Close() }, nil
	}
	h, err := a.house(ctx)
	if err != nil {
		return nil, nil, err
	}
	h.start()
	return h.gate, func() { h.end(endTime) }, nil
}

func (a *app) house(ctx context.Context) (*house, error) {
	s, path, notes, err := a.load()
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: a.logLevel()}))
	for _, n := range notes {
		if strings.HasSuffix(n, environmentWon) || strings.Contains(n, notTaken) {
			log.Warn("settings", "note", n)
			continue
		}
		log.Info("settings", "note", n)
	}
	if err := a.inReach(s); err != nil {
		return nil, err
	}
	return a.build(ctx, s, path, log)
}

func (a *app) logLevel() slog.Level {
	var l slog.Level
	if text, ok := a.env("CASTELLAN_LOG"); !ok || l.UnmarshalText([]byte(text)) != nil {
		return slog.LevelWarn
	}
	return l
}

// sealer is the gate's side of the keys.
type sealer struct {
	keys     *seal.Keys
	redactor *seal.Redactor
}

func (s sealer) Seal(plain []byte, context string) ([]byte, error) {
	return s.keys.Seal(seal.NewSecret(plain), "plan secret", context)
}

func (s sealer) Open(box []byte, context string) ([]byte, error) {
	v, err := s.keys.Unseal(box, "plan secret", context)
	if err != nil {
		return nil, err
	}
	return v.Bytes(), nil
}

func (s sealer) Commit(plain []byte) (string, []byte) {
	c, err := seal.Commit(plain)
	if err != nil { // no randomness: an empty salt would tell equal secrets apart from others, so nothing is told
		return "", nil
	}
	return hex.EncodeToString(c.Sum[:]), c.Salt[:]
}

const tokenPurpose = "plan approval"

func (s sealer) Token() (string, string) {
	t, hash, err := seal.NewToken(tokenPurpose)
	if err != nil {
		return "", "" // matches nothing: the plan cannot be approved by it
	}
	return t.Reveal(), hash
}

func (s sealer) HashToken(t string) string { return seal.HashToken(t, tokenPurpose) }
func (s sealer) Redact(text string) string { return s.redactor.Text(text) }
