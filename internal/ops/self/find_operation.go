package self

import (
	"context"
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
	Tool      bool        `json:"tool,omitempty"` // curated: there may be a tool of this name
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
		var docs []catalog.Document
		for _, o := range desk.Operations() {
			byName[o.Name] = o
			if o.Product != "" && !slices.Contains(products, o.Product) {
				continue
			}
			d := catalog.Document{Product: o.Product, Name: o.Name, Summary: o.Summary, Keywords: o.Keywords}
			if o.Effect == gate.EffectRead {
				d.Method = "GET"
			}
			docs = append(docs, d)
		}
		hits := c.Catalog.FindIn(in.Query, catalog.FindOptions{Products: products, Limit: limit}, docs)
		if !isAPIName(in.Query) {
			curatedFirst(hits)
		}
		out := findOperationOut{Operations: []foundOperation{}, Next: "describe_operation tells the arguments; call_operation calls, by this name, whatever is not among your tools."}
		for _, h := range hits {
			if o := byName[h.Name]; h.Name != "" && o != nil {
				out.Operations = append(out.Operations, foundOperation{Operation: o.Name, Product: o.Product, Summary: o.Summary, Effect: o.Effect, Tool: true,
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

// curatedFirst puts curated operations that fit about as well as the best hit before the API calls that they are
// made of: they look before they plan.
func curatedFirst(hits []catalog.Hit) {
	if len(hits) == 0 {
		return
	}
	enough := hits[0].Score / 2
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
