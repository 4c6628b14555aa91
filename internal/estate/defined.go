package estate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"castellan/internal/gate"
)

// lies are the fields of a storage that say where it lies; of the last ones it counts too that they are not set.
var lies = []string{"type", "path", "server", "export", "share", "domain", "pool", "vgname", "thinpool", "base", "portal", "target", "monhost", "fs-name", "datastore", "namespace", "subdir"}

// Definitions gives the conditions by which what a request names, and what its effect reaches through, is what it is now:
// somebody defined it, and may define it anew. What cannot be read ties nothing, and unread says so. Requests that are there
// to define tie nothing of what they define.
func (e *Estate) Definitions(ctx context.Context, v gate.View, target string, r gate.Request, named []gate.Reference) (out []gate.Condition, unread []string) {
	t, err := v.Target(target)
	if err != nil || r.IsRun() {
		return nil, nil
	}
	_, path, _ := strings.Cut(r.Operation, " ")
	d := &definitions{ctx: ctx, v: v, target: target, seen: map[string]bool{}, answers: map[string]said{}}
	switch t.Product {
	case "pve":
	case "pbs":
		d.backupServer(path, texts(r))
		return d.out, d.unread
	default:
		return nil, nil
	}
	if path != "/storage" && path != "/storage/{storage}" && !strings.HasPrefix(path, "/cluster/mapping/") {
		if names := storagesIn(named); len(names) > 0 {
			out = e.storagesAre(ctx, v, target, names)
		}
		for _, m := range mappingsIn(r) {
			out = append(out, mappingIs(ctx, v, target, m[0], m[1])...)
		}
	}
	params := texts(r)
	d.request(path, params, d.before(r.Operation, params))
	return append(out, d.out...), d.unread
}

func (e *Estate) storagesAre(ctx context.Context, v gate.View, target string, names []string) (out []gate.Condition) {
	s, err := e.Survey(ctx, v, target, clusterAge)
	if err != nil {
		return nil
	}
	rows, _ := s.Storages()
	for _, row := range rows {
		if !slices.Contains(names, row["storage"]) {
			continue
		}
		var conditions []gate.Condition
		name := "storage " + row["storage"] + " is still"
		for _, k := range lies {
			c := gate.Condition{Read: gate.Read{Operation: "GET /storage"}, Where: map[string]string{"storage": row["storage"]}, Pointer: "/" + k, Rule: gate.RuleEquals, Value: quoted(row[k])}
			switch {
			case row[k] != "":
				name += " " + clipTo(row[k], 80)
			case k == "namespace" || k == "subdir":
				c.Rule, c.Value = gate.RuleAbsent, nil
			default:
				continue
			}
			conditions = append(conditions, c)
		}
		for _, c := range conditions {
			c.Name = name
			out = append(out, c)
		}
	}
	return out
}

func mappingIs(ctx context.Context, v gate.View, target, kind, id string) (out []gate.Condition) {
	read := gate.Read{Operation: "GET /cluster/mapping/" + kind + "/{id}", Params: map[string]string{"id": id}}
	var row struct {
		Map []string `json:"map"`
	}
	answer, err := v.Read(ctx, target, read)
	if err != nil || json.Unmarshal(answer.Data, &row) != nil {
		return nil
	}
	name := clipTo(fmt.Sprintf("%s mapping %s still stands for %s", kind, id, strings.Join(row.Map, "; ")), 400)
	for i, text := range row.Map {
		out = append(out, gate.Condition{Name: name, Read: read, Pointer: fmt.Sprintf("/map/%d", i), Rule: gate.RuleEquals, Value: quoted(text)})
	}
	return append(out, gate.Condition{Name: name, Read: read, Pointer: fmt.Sprintf("/map/%d", len(row.Map)), Rule: gate.RuleAbsent})
}

// storagesIn are those that a request names, at most ten.
func storagesIn(named []gate.Reference) (out []string) {
	for _, r := range named {
		if r.Object.Kind == gate.ObjectStorage && !slices.Contains(out, r.Object.ID) && len(out) < 10 {
			out = append(out, r.Object.ID)
		}
	}
	return out
}

// mappingsIn are the kinds and names of mapped devices and folders that a guest is given.
func mappingsIn(r gate.Request) (out [][2]string) {
	for _, p := range r.Params {
		text := r.Text(p.Name)
		for begin, kind := range map[string]string{"hostpci": "pci", "usb": "usb", "virtiofs": "dir"} {
			if rest, ok := strings.CutPrefix(p.Name, begin); !ok || strings.Trim(rest, "0123456789") != "" {
				continue
			}
			keys := []string{"mapping"}
			if kind == "dir" {
				keys = []string{"dirid", "-", "mapping"}
			}
			for _, key := range keys {
				if id, ok := gate.PropertyValue(text, key); ok && id != "" {
					out = append(out, [2]string{kind, id})
					break
				}
			}
		}
	}
	return out
}
