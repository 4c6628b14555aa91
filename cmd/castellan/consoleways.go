package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"castellan/internal/console"
	"castellan/internal/gate"
	"castellan/internal/identity"
	"castellan/internal/ledger"
	"castellan/internal/proxmox"
)

// newConsole makes the pages for people.
func (d *daemon) newConsole() (*console.Console, error) {
	h := d.house
	return console.New(console.Config{Gate: h.gate, People: h.people, Ways: d.set.Identity, OAuth: h.clients, Audit: pageAudit{h.store}, Settings: pageSettings{h.runtime}, Switches: h.gate,
		PublicURL: h.url, OneAccount: !d.watch.separate().OK, Log: d.log})
}

// pageAudit is the ledger as the console shows it: all of it to those who oversee, to others what was done in their name.
type pageAudit struct{ store *lateStore }

func mayAudit(who gate.Principal, actor string) bool {
	if who.Oversees() {
		return true
	}
	_, person, ok := strings.Cut(actor, "|")
	return ok && person != "" && person == who.Person
}

// Search finds records, newest first.
func (a pageAudit) Search(ctx context.Context, who gate.Principal, q console.Query) (console.Found, error) {
	s, err := a.store.get(ctx)
	if err != nil {
		return console.Found{}, err
	}
	page, err := s.Search(ctx, ledger.Query{Since: q.Since, Until: q.Until, Op: q.Operation, Actor: q.Actor, Target: q.Target, Status: q.Status, Effect: q.Effect, Text: q.Text,
		Limit: q.Limit, Cursor: q.Cursor})
	if err != nil {
		return console.Found{}, gate.Fail(gate.ErrInvalid, "Change the filters.", "%v", err)
	}
	out := console.Found{Cursor: page.Next, Notice: page.Notice}
	for _, f := range page.Records {
		if mayAudit(who, f.Actor) {
			out.Records = append(out.Records, pageRecord(f, false))
		}
	}
	if !who.Oversees() {
		out.Notice = strings.TrimSpace("Only what was done in your own name is shown. " + out.Notice)
	}
	return out, nil
}

// Record gives one record whole.
func (a pageAudit) Record(ctx context.Context, who gate.Principal, tree string, index int64) (*console.Record, error) {
	s, err := a.store.get(ctx)
	if err != nil {
		return nil, err
	}
	none := gate.Fail(gate.ErrNotFound, "Search under Activity.", "there is no record %d of the %s tree", index, tree)
	at := map[string]string{"write": fmt.Sprintf("w%dr0", index+1), "read": fmt.Sprintf("w0r%d", index+1)}[tree]
	if at == "" || index < 0 {
		return nil, none
	}
	page, err := s.Search(ctx, ledger.Query{Tree: ledger.Tree(tree), Limit: 1, Cursor: at})
	if err != nil {
		return nil, err
	}
	if len(page.Records) == 0 || page.Records[0].Seq != index || !mayAudit(who, page.Records[0].Actor) {
		return nil, none
	}
	r := pageRecord(page.Records[0], true)
	return &r, nil
}

func pageRecord(f ledger.Found, whole bool) console.Record {
	row := rowOf(f, whole)
	r := console.Record{Tree: row.Tree, Index: f.Seq, At: f.TS, Kind: row.Kind, Operation: row.Operation, Actor: row.Actor, Client: row.Client, Target: row.Target, Status: row.Status,
		Effect: row.Effect, Plan: row.Plan, UPID: row.UPID, Parts: row.Parts, Withheld: row.Withheld}
	var data map[string]any
	if whole && json.Unmarshal(f.Data, &data) == nil {
		r.Marks = map[string]string{}
		for k, v := range data {
			if text, ok := v.(string); ok && k != "upid" {
				r.Marks[k] = text
			}
		}
	}
	return r
}

// pageSettings are the settings as the console shows them.
type pageSettings struct{ runtime *runtimeSettings }

// List gives every key.
func (p pageSettings) List(ctx context.Context, _ gate.Principal) ([]console.Setting, error) {
	list, notes, err := p.runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	var out []console.Setting
	for _, s := range list {
		x := console.Setting{Key: s.Key, Value: string(s.Value), Set: s.Set, Source: s.Source, Editable: s.Person}
		if s.By != "" {
			x.Source += " (" + s.By + ", " + s.At.Local().Format("2006-01-02 15:04") + ")"
		}
		for _, n := range notes {
			if strings.Contains(n, s.Key+" ") && strings.Contains(n, "does not count") {
				x.Problem = n
			}
		}
		out = append(out, x)
	}
	return out, nil
}

// Set changes a key; an empty value gives it back to file and environment.
func (p pageSettings) Set(ctx context.Context, who gate.Principal, key, value string) error {
	value = strings.TrimSpace(value)
	if value == "" {
		return p.runtime.Set(ctx, who, key, nil)
	}
	raw := json.RawMessage(value)
	if !json.Valid(raw) { // a plain word is a text
		raw, _ = json.Marshal(value) // a string always has a JSON form
	}
	return p.runtime.Set(ctx, who, key, raw)
}

// realm logs people in at a target.
type realm struct{ client *proxmox.Client }

var _ identity.Realm = realm{}

// Login tries a password and a second factor.
func (r realm) Login(ctx context.Context, target, user, password, code string) (string, error) {
	id, err := r.client.LogIn(ctx, target, user, password, code)
	if proxmox.Refused(err) {
		return "", fmt.Errorf("%w: %w", identity.ErrRealmRefused, err)
	}
	return id, err
}
