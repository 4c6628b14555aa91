package pve

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/backups"
	"castellan/internal/gate"
	"castellan/internal/health"
)

type siteCheckIn struct {
	Checks []string `json:"checks,omitempty" jsonschema:"groups, such as backups; all when left out"`
	Node   string   `json:"node,omitempty" jsonschema:"only this node"`
	From   string   `json:"snapshots_from,omitempty" jsonschema:"guest id to go on at"`
	Target string   `json:"target,omitempty"`
}

type siteCheckOut struct {
	Target string `json:"target"`
	health.SiteReport
}

func siteCheck() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "site_check", Summary: "Morning round: a ranked list of what needs a look, and what could not be read. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "health check daily morning problems alerts overview failed tasks missed backups replication zfs thin pool full storage certificates old snapshots locks ceph ha quorum clock updates is everything ok",
		Toolset:  "standard", Bounded: true, Wide: true,
	}, runSiteCheck)
}

func runSiteCheck(ctx context.Context, v gate.View, in siteCheckIn) (siteCheckOut, error) {
	for _, c := range in.Checks {
		if !slices.Contains(health.Checks(), c) {
			return siteCheckOut{}, gate.Fail(gate.ErrInvalid, "The groups are: "+strings.Join(health.Checks(), ", "), "there is no group of checks %q", clip(c, 40))
		}
	}
	v = newOnce(v)
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return siteCheckOut{}, err
	}
	if in.Node != "" {
		if _, err := s.inv.Node(in.Node); err != nil {
			return siteCheckOut{}, err
		}
		if err := s.withinReach(in.Node); err != nil {
			return siteCheckOut{}, err
		}
	}
	if in.From != "" {
		if _, ok := s.inv.ByID(in.From); !ok {
			return siteCheckOut{}, gate.Fail(gate.ErrNotFound, "list_guests shows the ids.", "there is no guest %q to start at", clip(in.From, 40))
		}
	}
	rep := health.Site(ctx, v, s.inv, health.SiteAsk{Checks: in.Checks, Node: in.Node, From: in.From,
		Backups: func(ctx context.Context) ([]health.Flag, []health.Unread) {
			return backupAges(ctx, v, s.target(), in.Node)
		}})
	s.withGrants(ctx, rep.Unread)
	return siteCheckOut{Target: s.target(), SiteReport: rep}, nil
}

// backupAges tells of backups that are missing against what the jobs promise. Guests that no job covers are told from the
// jobs themselves; templates, and guests that are parked, are no news.
func backupAges(ctx context.Context, v gate.View, target, node string) (flags []health.Flag, unread []health.Unread) {
	s, err := backups.Look(ctx, v, target, backups.Question{})
	if err != nil {
		return nil, []health.Unread{{Part: "ages of backups", Why: clip(err.Error(), 160), Hides: health.Warning}}
	}
	unread = backupGaps(&granting{ctx: ctx, v: v, t: s.Inventory.Target}, s.Gaps)
	var unclear, orphaned []string
	who := map[string][]string{} // check → ids
	for _, st := range s.States(seen(ctx, v, s.Inventory.Target.Name)) {
		if node != "" && st.Guest.Node != node {
			continue
		}
		f := health.Flag{Level: health.Warning, Where: st.Guest.Title() + " on node " + st.Guest.Node, Since: stamp(st.Due.Unix()), Next: &health.Next{Operation: "backup_freshness", Arguments: map[string]string{"guest": st.ID}},
			Evidence: []health.Evidence{{Figure: "newest archive", Value: "none", Threshold: "what its jobs promise", Source: "backup_freshness"}}}
		if st.Due.IsZero() {
			f.Since = ""
		}
		if a := st.Newest; a != nil && !a.Time.IsZero() {
			f.Evidence[0].Value = a.Time.UTC().Format(time.RFC3339) + ", " + roughly(s.Now.Sub(a.Time)) + " old"
		}
		switch st.Verdict {
		case backups.Never:
			f.Check, f.What = "backup_never", "a job covers it, and there is no backup of it"
		case backups.Stale:
			f.Check, f.What = "backup_stale", "a backup that its jobs promise is missing"
		case backups.Unclear:
			unclear = append(unclear, st.ID)
			continue
		case backups.Orphaned:
			orphaned = append(orphaned, st.ID)
			continue
		default:
			continue
		}
		if st.Failed != "" {
			f.What += "; " + failure(st.Failed)
		}
		flags = append(flags, f)
		who[f.Check] = append(who[f.Check], st.ID)
	}
	flags = together(flags, who)
	if len(unclear) > 0 {
		unread = append(unread, health.Unread{Part: "ages of backups", Where: plural(len(unclear), "guest", "guests"), Why: "cannot be told for " + firstOf(unclear, 12) + ": backup_freshness says why", Hides: health.Warning})
	}
	if len(orphaned) > 0 {
		flags = append(flags, health.Flag{Level: health.Info, Check: "backup_orphaned", Where: plural(len(orphaned), "guest id", "guest ids"), What: "archives of ids that no guest has: " + firstOf(orphaned, 12),
			Evidence: []health.Evidence{{Figure: "ids", Value: fmt.Sprint(len(orphaned)), Threshold: "0", Source: "backup_freshness"}}, Next: &health.Next{Operation: "backup_freshness", Arguments: map[string]string{"verdict": "orphaned"}}})
	}
	return flags, unread
}

// mostAlone is how many guests with the same finding are told one by one.
const mostAlone = 3

// together tells what more guests than a few have in common as one finding, with their ids: backup_freshness has the rest.
func together(flags []health.Flag, who map[string][]string) []health.Flag {
	var out []health.Flag
	done := map[string]bool{}
	for _, f := range flags {
		ids := who[f.Check]
		if len(ids) <= mostAlone {
			out = append(out, f)
			continue
		}
		if done[f.Check] {
			continue
		}
		done[f.Check] = true
		what := map[string]string{"backup_never": "jobs cover them, and there is no backup of them: ", "backup_stale": "a backup that their jobs promise is missing: "}[f.Check]
		out = append(out, health.Flag{Level: f.Level, Check: f.Check, Where: plural(len(ids), "guest", "guests"), What: what + firstOf(ids, 40),
			Evidence: []health.Evidence{{Figure: "guests", Value: fmt.Sprint(len(ids)), Threshold: "0", Source: "backup_freshness"}},
			Next:     &health.Next{Operation: "backup_freshness", Arguments: map[string]string{"verdict": strings.TrimPrefix(f.Check, "backup_")}}})
	}
	return out
}

// firstOf names the first few of a list.
func firstOf(list []string, most int) string {
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}
