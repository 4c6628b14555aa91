package reach

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// vzdumpDefaults are what a node does where a backup to this storage does not say: what its vzdump.conf has, its retention
// only where the storage has none of its own.
func (w *walk) vzdumpDefaults(node, storage string) (estate.Config, bool) {
	params := map[string]string{"node": node}
	if storage != "" {
		params["storage"] = storage
	}
	rows, ok := w.s.Rows(estate.PartJobs, node, gate.Read{Operation: "GET /nodes/{node}/vzdump/defaults", Params: params})
	if !ok || len(rows) == 0 {
		return nil, false
	}
	return rows[0], true
}

// retention writes what is kept as a property string, however it came; empty = nothing is deleted.
func retention(text string) string {
	if strings.HasPrefix(text, "{") {
		var keeps map[string]any
		if json.Unmarshal([]byte(text), &keeps) != nil {
			return text
		}
		var out []string
		for k, v := range keeps {
			out = append(out, fmt.Sprint(k, "=", v))
		}
		slices.Sort(out)
		text = strings.Join(out, ",")
	}
	if strings.HasPrefix(text, "keep-all=1") {
		return ""
	}
	return text
}

// deletion is what a backup deletes of older ones because of what it does not say itself.
type deletion struct {
	keep  string
	whose string // "storage nas", "node pve1 (vzdump.conf)"
	sure  bool   // false: it could not be read
}

// deletions are those of backups to a storage from these nodes that name no retention of their own.
func (w *walk) deletions(storage string, nodes []string) (out []deletion) {
	if storage != "" {
		def, ok := w.storage(storage)
		switch keep := def["prune-backups"]; {
		case !ok:
			return []deletion{{whose: "the retention of storage " + storage}}
		case keep != "":
			if keep = retention(keep); keep == "" {
				return nil
			}
			return []deletion{{keep: keep, whose: "storage " + storage, sure: true}}
		}
	}
	defaults := make([]estate.Config, len(nodes))
	each(len(nodes), func(i int) { defaults[i], _ = w.vzdumpDefaults(nodes[i], storage) })
	for i, node := range nodes {
		whose := "node " + node + " itself (vzdump.conf)"
		if defaults[i] == nil {
			out = append(out, deletion{whose: "what " + whose + " keeps"})
		} else if keep := retention(defaults[i]["prune-backups"]); keep != "" {
			out = append(out, deletion{keep: keep, whose: whose, sure: true})
		}
	}
	return out
}

// deletes says of backups without a retention of their own what they delete. That of a storage is told by its settings,
// and is a note; that of a node stands in a file of it.
func (w *walk) deletes(o gate.Object, storage string, nodes []string, whom, when string, kinds ...gate.Kind) {
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	if len(nodes) > most {
		w.unread(ClassLosesBackup, gate.WeightCaution, o, fmt.Sprintf("the retention of %d more nodes", len(nodes)-most), kinds...)
		nodes = nodes[:most]
	}
	for _, d := range w.deletions(storage, nodes) {
		switch {
		case !d.sure:
			w.unread(ClassLosesBackup, gate.WeightCaution, o, d.whose+", by which older backups may be deleted,", kinds...)
		case strings.HasPrefix(d.whose, "storage "):
			w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightNote, Object: o, Text: when + " older backups of " + whom + " on it are deleted by the retention of " + d.whose + ": " + clean(d.keep)})
		default:
			w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: o, Kinds: kinds, Text: when + " older backups of " + whom + " beyond " + clean(d.keep) + " are deleted by " + d.whose})
		}
	}
}

// modeOn is how a backup that names no mode is made on a node; where that cannot be told, by stopping the guest.
func (w *walk) modeOn(mode, node, storage string) (string, bool) {
	if mode != "" {
		return mode, true
	}
	def, ok := w.vzdumpDefaults(node, storage)
	if !ok {
		return "stop", false
	}
	if def["mode"] == "" {
		return "snapshot", true
	}
	return def["mode"], true
}
