package pve

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/ops/table"
)

// Enrolled is a guest whose packages castellan looks after.
type Enrolled struct {
	Site, Kind, Name, System, Address, Way, Automatic, From, By string
	VMID                                                        int64
	Since, Answered                                             time.Time
	Bad                                                         string // the channel cannot be used: why
}

// Roll lists the enrolled guests of all sites.
type Roll interface {
	Enrolled(ctx context.Context) ([]Enrolled, error)
	// Site names the site that a target is.
	Site(ctx context.Context, target string) (string, error)
}

type listEnrolledIn struct {
	table.Ask
	Target string `json:"target,omitempty"`
}

type listEnrolledOut struct {
	Guests     []map[string]any `json:"guests"`
	Incomplete []string         `json:"incomplete,omitempty"`
	table.Count
}

var enrolledColumns = table.Columns{
	All:     []string{"vmid", "name", "status", "system", "address", "since", "last_answer", "automatic", "from", "way", "by", "problem"},
	Default: []string{"vmid", "name", "status", "system", "address", "since", "last_answer", "problem"},
}

func listEnrolled(roll Roll) *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "list_enrolled", Summary: "List the guests whose packages castellan looks after, with when each last answered. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "enrolled enrolment channel patch updates looked after ssh keys", Toolset: "full", Bounded: true,
	}, func(ctx context.Context, v gate.View, in listEnrolledIn) (listEnrolledOut, error) {
		return runListEnrolled(ctx, v, in, roll)
	})
}

func runListEnrolled(ctx context.Context, v gate.View, in listEnrolledIn, roll Roll) (listEnrolledOut, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return listEnrolledOut{}, err
	}
	if roll == nil {
		return listEnrolledOut{}, gate.Fail(gate.ErrUnavailable, "", "castellan keeps no channels into guests here")
	}
	site, err := roll.Site(ctx, s.target())
	if err != nil {
		return listEnrolledOut{}, err
	}
	all, err := roll.Enrolled(ctx)
	if err != nil {
		return listEnrolledOut{}, err
	}
	known := map[string]estate.Guest{}
	for _, g := range s.inv.Guests {
		known[g.ID] = g
	}
	at := map[string][]string{} // of this site, who is enrolled at an address
	for _, e := range all {
		if e.Site == site && e.Address != "" {
			at[e.Address] = append(at[e.Address], strconv.FormatInt(e.VMID, 10))
		}
	}
	var rows []Enrolled
	for _, e := range all {
		g, there := known[strconv.FormatInt(e.VMID, 10)]
		if e.Site != site || v.Scoped() && (!there || !v.Sees(ctx, s.target(), gate.ObjectFacts{Object: gate.Object{Kind: gate.ObjectGuest, ID: g.ID}, Use: gate.UseNames, Name: g.Name, Tags: g.Tags, Pools: estate.Pools(g.Pool), Known: true})) {
			continue
		}
		rows = append(rows, e)
	}
	cut, count, err := table.Cut(in.Ask, enrolledColumns, rows, func(e Enrolled) string { return strconv.FormatInt(e.VMID, 10) }, func(e Enrolled) map[string]any {
		g, there := known[strconv.FormatInt(e.VMID, 10)]
		row := map[string]any{"vmid": e.VMID, "name": g.Name, "status": g.Status, "system": e.System, "address": e.Address, "automatic": e.Automatic, "from": e.From, "way": e.Way, "by": e.By, "problem": e.Bad}
		if !there {
			row["name"], row["status"] = e.Name, "gone"
		}
		if same := at[e.Address]; e.Bad == "" && len(same) > 1 {
			row["problem"] = clip("enrolled at the address of "+sharers(same, e.VMID, rows)+" too: only one of them can have it, and a copy of a guest takes its keys along", 300)
		}
		if !e.Since.IsZero() {
			row["since"] = stamp(e.Since.Unix())
		}
		row["last_answer"] = "not yet"
		if !e.Answered.IsZero() {
			row["last_answer"] = stamp(e.Answered.Unix())
		}
		return row
	})
	if err != nil {
		return listEnrolledOut{}, err
	}
	return listEnrolledOut{Guests: cut, Incomplete: s.inv.Missing, Count: count}, nil
}

// sharers names the others that are enrolled at an address, as far as they are in sight.
func sharers(ids []string, own int64, sight []Enrolled) string {
	var out []string
	for _, e := range sight {
		if id := strconv.FormatInt(e.VMID, 10); e.VMID != own && slices.Contains(ids, id) {
			out = append(out, id)
		}
	}
	if len(out) == 0 {
		return "another guest"
	}
	return "guest " + strings.Join(someOf(out, 5), ", ")
}
