package pve

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/backups"
	"castellan/internal/estate"
)

// ahead is what is known of backups that run or are due soon.
type ahead struct {
	guests map[string]string // guest → why it is left alone
	nodes  map[string]bool   // with a run of several guests under way
	site   *backups.Site
	until  time.Time
	unread []string
}

// backupsAhead reads the backup jobs and the runs under way.
func (s *site) backupsAhead(ctx context.Context, within time.Duration) ahead {
	out := ahead{guests: map[string]string{}, nodes: map[string]bool{}, until: s.v.Now().Add(within)}
	var rows []taskRow
	if _, err := s.read(ctx, &rows, "GET /cluster/tasks", nil); err != nil {
		out.unread = append(out.unread, "whether backups run now could not be read: "+clip(err.Error(), 160))
	}
	for _, r := range rows {
		if r.Type != "vzdump" || r.ended() || r.Status != "" && r.Status != "running" {
			continue
		}
		if r.ID != "" {
			out.guests[string(r.ID)] = "a backup of it runs"
		} else {
			out.nodes[string(r.Node)] = true
		}
	}
	look, err := backups.Look(ctx, s.v, s.target(), backups.Question{Jobs: true})
	if err != nil || !look.JobsKnown {
		out.unread = append(out.unread, "the backup jobs could not be read, so that one may begin meanwhile")
		return out
	}
	out.site = look
	return out
}

// of says why a guest is left alone for a backup.
func (a ahead) of(g estate.Guest) (string, bool) {
	if why := a.guests[g.ID]; why != "" {
		return why, true
	}
	if a.site == nil {
		return "", false
	}
	for i := range a.site.Jobs {
		j := &a.site.Jobs[i]
		if in, _ := a.site.Covers(j, g); !in || !j.On() {
			continue
		}
		if a.nodes[g.Node] {
			return fmt.Sprintf("a backup run is under way on its node %s, and job %s takes it", g.Node, clip(string(j.ID), 60)), true
		}
		if next, ok := a.site.NextRun(j, g.Node); ok && next.Before(a.until) {
			return fmt.Sprintf("its backup by job %s is due at %s", clip(string(j.ID), 60), next.Format("15:04 MST")), true
		}
	}
	return "", false
}

// mates are guests that are not worked on at the same time, by guest: the reason for each.
type mates map[string]map[string]bool

func (m mates) join(ids []string) {
	for _, a := range ids {
		for _, b := range ids {
			if a != b {
				if m[a] == nil {
					m[a] = map[string]bool{}
				}
				m[a][b] = true
			}
		}
	}
}

// mostByName is how many guests whose names differ in a number only count as one cluster: more of them are only numbered.
const mostByName = 5

// mates finds which of the guests are not to be out at the same time: those that an HA rule binds to each other, either way, those
// of one HA group, those with one tag that begins with cluster, and few whose names differ in their final number only.
func (s *site) mates(ctx context.Context, taken []*waver) (mates, string) {
	out, in := mates{}, map[string]bool{}
	for _, w := range taken {
		in[w.ID] = true
	}
	var notes []string
	pick := func(ids []string) (out []string) {
		for _, id := range ids {
			if in[id] {
				out = append(out, id)
			}
		}
		return out
	}
	together := func(what string, ids []string) {
		if ids = pick(ids); len(ids) > 1 {
			slices.SortFunc(ids, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
			out.join(ids)
			notes = append(notes, what+" ("+strings.Join(someIDs(ids), ", ")+")")
		}
	}
	rules, ruled := s.haRows(ctx, "GET /cluster/ha/rules")
	resources, managed := s.haRows(ctx, "GET /cluster/ha/resources")
	for _, r := range rules {
		if r["type"] == "resource-affinity" && !r.On("disable") {
			var ids []string
			for _, sid := range strings.FieldsFunc(r["resources"], func(c rune) bool { return c == ',' || c == ' ' || c == ';' }) {
				_, id, _ := strings.Cut(sid, ":")
				ids = append(ids, cmp.Or(id, sid))
			}
			together("HA rule "+clip(r["rule"], 40), ids)
		}
	}
	byGroup, byTag, byName := map[string][]string{}, map[string][]string{}, map[string][]string{}
	for _, r := range resources {
		if g := r["group"]; g != "" {
			_, id, _ := strings.Cut(r["sid"], ":")
			byGroup[g] = append(byGroup[g], cmp.Or(id, r["sid"]))
		}
	}
	for _, w := range taken {
		for _, t := range w.Tags {
			if strings.HasPrefix(strings.ToLower(t), "cluster") {
				byTag[t] = append(byTag[t], w.ID)
			}
		}
		if stem := strings.TrimRight(w.Name, "0123456789"); stem != w.Name && strings.Trim(stem, "-_. ") != "" {
			byName[stem] = append(byName[stem], w.ID)
		}
	}
	for _, of := range []struct {
		what string
		by   map[string][]string
	}{{"HA group", byGroup}, {"tag", byTag}, {"names that begin with", byName}} {
		for _, name := range sortedNames(of.by) {
			if ids := of.by[name]; of.what[0] != 'n' || len(ids) <= mostByName {
				together(of.what+" "+clip(name, 40), ids)
			}
		}
	}
	text := ""
	if len(notes) > 0 {
		text = "Never at the same time: " + strings.Join(notes[:min(len(notes), 8)], "; ")
		if n := len(notes) - 8; n > 0 {
			text += fmt.Sprintf("; and %d more groups", n)
		}
		text += "."
	}
	if !ruled && !managed {
		text += " HA could not be read: what its rules bind together is not kept apart."
	}
	return out, text
}

func someIDs(ids []string) []string {
	if n := len(ids) - 12; n > 0 {
		return append(slices.Clone(ids[:12]), fmt.Sprintf("%d more", n))
	}
	return ids
}

func sortedNames(by map[string][]string) (out []string) {
	for name := range by {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// haRows reads a list of HA; a site that has no such list is one without what would be in it.
func (s *site) haRows(ctx context.Context, operation string) (rows []estate.Config, ok bool) {
	var list []json.RawMessage
	if _, err := s.read(ctx, &list, operation, nil); err != nil {
		return nil, false
	}
	for _, raw := range list {
		row, err := estate.ParseConfig(raw)
		if err != nil {
			return nil, false
		}
		rows = append(rows, row)
	}
	return rows, true
}

// packed puts guests into batches: canaries first and by themselves, mates never in one, and those of one node or pool spread
// as far as that goes.
func packed(taken []*waver, apart mates, size int) (out [][]*waver) {
	for _, canary := range []bool{true, false} {
		var left []*waver
		for _, w := range taken {
			if w.canary == canary {
				left = append(left, w)
			}
		}
		for len(left) > 0 {
			var batch []*waver
			for len(batch) < size {
				best, least := -1, 0
				for i, w := range left {
					cost, mate := 0, false
					for _, b := range batch {
						mate = mate || apart[w.ID][b.ID]
						if b.Node == w.Node {
							cost += 2
						}
						if b.Pool != "" && b.Pool == w.Pool {
							cost++
						}
					}
					if !mate && (best < 0 || cost < least) {
						best, least = i, cost
					}
				}
				if best < 0 {
					break
				}
				batch = append(batch, left[best])
				left = slices.Delete(left, best, best+1)
			}
			out = append(out, batch)
		}
	}
	return out
}
