package self

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"castellan/internal/catalog"
	"castellan/internal/gate"
)

type findOperationIn struct {
	Query   string `json:"query"`
	Product string `json:"product,omitempty" jsonschema:"default: those configured" enum:"pve,pbs,pmg,pdm,all"`
	Limit   int    `json:"limit,omitempty"`
}

type foundOperation struct {
	Operation string      `json:"operation"` // what call_operation and describe_operation take
	Product   string      `json:"product,omitempty"`
	Summary   string      `json:"summary"`
	Effect    gate.Effect `json:"effect"`
	Tool      bool        `json:"tool,omitempty"` // the caller has a tool of this name; else call_operation takes it
	Off       string      `json:"off,omitempty"`  // why it would be refused
}

type findOperationOut struct {
	Operations []foundOperation `json:"operations"` // best first
	Next       string           `json:"next"`
}

func findOperation(c Config) *gate.Operation {
	return gate.Control(gate.Declaration{
		Name: "find_operation", Summary: "Find any Proxmox operation by plain words. Read; then describe_operation", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "search tools help what can you do list operations api endpoints", Toolset: "front",
	}, func(ctx context.Context, desk gate.Desk, in findOperationIn) (findOperationOut, error) {
		if strings.TrimSpace(in.Query) == "" {
			return findOperationOut{}, gate.Fail(gate.ErrInvalid, "Say in plain words what is to be done or known.", "the query is empty")
		}
		if in.Limit < 0 || in.Limit > 50 {
			return findOperationOut{}, gate.Fail(gate.ErrInvalid, "Give 1 to 50, or nothing for 8.", "limit %d is out of range", in.Limit)
		}
		products := configured(desk)
		switch in.Product {
		case "all":
			products = catalog.Products()
		case "":
		default:
			products = []string{in.Product}
		}
		limit := in.Limit
		if limit == 0 {
			limit = 8
		}
		status, err := desk.Status(ctx)
		if err != nil {
			return findOperationOut{}, err
		}
		byName := map[string]*gate.Operation{}
		for _, o := range desk.Operations() {
			byName[o.Name] = o
		}
		hits, next := c.asked(in.Query, catalog.FindOptions{Products: products, Limit: limit}, desk.Operations())
		out := findOperationOut{Operations: []foundOperation{}, Next: next}
		for _, h := range hits {
			if o := byName[h.Name]; h.Name != "" && o != nil {
				out.Operations = append(out.Operations, foundOperation{Operation: o.Name, Product: o.Product, Summary: o.Summary, Effect: o.Effect, Tool: desk.Shown(o.Name),
					Off: offFor(o.Kinds, status, false)})
				continue
			}
			op, ok := c.Catalog.Lookup(h.Product, h.Method+" "+h.Path)
			if !ok {
				continue
			}
			j := c.Catalog.Judge(op, gate.Request{Product: op.Product, Operation: op.ID})
			out.Operations = append(out.Operations, foundOperation{Operation: op.ID, Product: op.Product, Summary: clip(h.Summary, 160), Effect: c.Catalog.Effect(op),
				Off: offFor(j.Kinds, status, true)})
		}
		if len(out.Operations) == 0 {
			out.Next = "Nothing fits. doctor (by call_operation, where it is no tool) says what can be done here. Else say it in other words, or give product=all to search what no configured target has."
		}
		return out, nil
	})
}

// What find_operation says comes next.
const (
	nextCall   = "describe_operation tells the arguments; call_operation calls, by this name, whatever is not among your tools."
	nextWhatIf = "To know what it would hit, call it with plan_only=true: the plan names all that, and nothing is sent. " + nextCall
	nextHelp   = "doctor tells what works here and what is missing. Then say in plain words what is to be known or done. " + nextCall
)

// beginnings is what someone is shown who asks what there is.
func beginnings() []string {
	return []string{"doctor", "cluster_overview", "list_guests", "site_check", "backup_freshness", "check_updates", "list_plans"}
}

// asked finds what a question is about, in whatever form it is put: in general, as a deed, or as the question what a deed
// would bring.
func (c Config) asked(query string, o catalog.FindOptions, curated []*gate.Operation) (hits []catalog.Hit, next string) {
	if c.Catalog.General(query) {
		for _, name := range beginnings() {
			if h, ok := hitOf(name, o, curated); ok && len(hits) < o.Limit {
				hits = append(hits, h)
			}
		}
		return hits, nextHelp
	}
	deed, whatIf := c.Catalog.WhatIf(query)
	if !whatIf {
		return c.hits(query, o, curated), nextCall
	}
	wide := o
	wide.Limit = 2 * o.Limit
	hits = slices.DeleteFunc(c.hits(deed, wide, curated), func(h catalog.Hit) bool { return c.reads(h, curated) })
	if len(hits) == 0 {
		return c.hits(query, o, curated), nextCall
	}
	if h, ok := hitOf("estate_graph", o, curated); ok { // what depends on what, beside what the deed hits
		hits = slices.Insert(hits, 1, h)
	}
	return hits[:min(o.Limit, len(hits))], nextWhatIf
}

// hitOf is a curated operation as a hit, where it belongs to the products that are searched.
func hitOf(name string, o catalog.FindOptions, curated []*gate.Operation) (catalog.Hit, bool) {
	for _, op := range curated {
		if op.Name == name && (op.Product == "" || slices.Contains(o.Products, op.Product)) {
			return catalog.Hit{Product: op.Product, Name: name, Summary: op.Summary}, true
		}
	}
	return catalog.Hit{}, false
}

// reads says whether a hit only reads: then nobody asks what it would bring.
func (c Config) reads(h catalog.Hit, curated []*gate.Operation) bool {
	if h.Name == "" {
		op, ok := c.Catalog.Lookup(h.Product, h.Method+" "+h.Path)
		return !ok || op.Method == catalog.MethodRun || c.Catalog.Effect(op) == gate.EffectRead
	}
	at := slices.IndexFunc(curated, func(o *gate.Operation) bool { return o.Name == h.Name })
	return at < 0 || !curated[at].Writes()
}

// hits searches the catalogue and the curated operations together.
func (c Config) hits(query string, o catalog.FindOptions, curated []*gate.Operation) []catalog.Hit {
	var docs []catalog.Document
	for _, op := range curated {
		if op.Product != "" && !slices.Contains(o.Products, op.Product) {
			continue
		}
		d := catalog.Document{Product: op.Product, Name: op.Name, Summary: subject(op.Summary), Keywords: op.Keywords, Guest: needsGuest(op)}
		if op.Effect == gate.EffectRead {
			d.Method = "GET"
		}
		docs = append(docs, d)
	}
	wide := o
	wide.Limit = 3 * o.Limit // what is put first has to be among what is put in order
	hits := c.Catalog.FindIn(query, wide, docs)
	if !isAPIName(query) {
		curatedFirst(hits)
	}
	return hits[:min(o.Limit, len(hits))]
}

// subject is a summary without how the operation is undone: whoever looks for that deed looks for another operation.
func subject(summary string) string {
	for _, end := range []string{" Undo: ", "; undo", "; no undo", ", no undo"} {
		summary, _, _ = strings.Cut(summary, end)
	}
	return summary
}

// needsGuest says whether a call has to name one guest.
func needsGuest(o *gate.Operation) bool {
	var schema struct{ Required []string }
	return o.Guest != "" && json.Unmarshal(o.Input, &schema) == nil && slices.Contains(schema.Required, o.Guest)
}

// curatedFirst puts curated operations that fit about as well as the best hit before the API calls that they are
// made of: they look before they plan.
func curatedFirst(hits []catalog.Hit) {
	if len(hits) == 0 {
		return
	}
	enough := 0.65 * hits[0].Score
	slices.SortStableFunc(hits, func(a, b catalog.Hit) int {
		return rank(b, enough) - rank(a, enough)
	})
}

func rank(h catalog.Hit, enough float64) int {
	if h.Name != "" && h.Score >= enough {
		return 1
	}
	return 0
}

// configured lists the products that a target has; all of them when there is no target yet.
func configured(v gate.View) []string {
	var out []string
	for _, t := range v.Targets() {
		if !slices.Contains(out, t.Product) {
			out = append(out, t.Product)
		}
	}
	if len(out) == 0 {
		return catalog.Products()
	}
	return out
}

// offFor says why a call would be refused now, by the rows of the table it falls under. Those of a curated operation
// are alternatives; a catalogued one needs every one of its rows.
func offFor(kinds []gate.Kind, status map[string]gate.Decision, every bool) string {
	why := ""
	for _, k := range kinds {
		capability := gate.RowOf(k).Capability
		d, off := status[capability]
		off = off && capability != ""
		if off && why == "" {
			why = clip(strings.TrimSpace(d.Reason+" "+d.Hint), 300)
		}
		if off && every {
			return why
		}
		if !off && !every {
			return ""
		}
	}
	if every {
		return ""
	}
	return why
}
