package self

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// A request names storages, devices and folders by names that somebody defined. Whoever approves it has seen what the names
// stood for then, so they must stand for the same when it is carried out.

// lies are the fields of a storage that say where it lies; of the last ones it counts too that they are not set.
var lies = []string{"type", "path", "server", "export", "share", "domain", "pool", "vgname", "thinpool", "base", "portal", "target", "monhost", "fs-name", "datastore", "namespace", "subdir"}

// definedAs ties the step to what the names in it stand for. What the caller may not read ties nothing.
func (a *apiCall) definedAs(ctx context.Context, s *gate.Step) {
	if a.op.Path == "/storage" || a.op.Path == "/storage/{storage}" || strings.HasPrefix(a.op.Path, "/cluster/mapping/") {
		return // they are what it changes
	}
	if names := a.storages(); len(names) > 0 {
		read := gate.Read{Operation: "GET /storage"}
		var rows []json.RawMessage
		if answer, err := a.v.Read(ctx, a.target.Name, read); err == nil && json.Unmarshal(answer.Data, &rows) == nil {
			for _, raw := range rows {
				row, err := estate.ParseConfig(raw)
				if err != nil || !slices.Contains(names, row["storage"]) {
					continue
				}
				for _, k := range lies {
					c := gate.Condition{Name: fmt.Sprintf("%s of storage %s is %s", k, row["storage"], row[k]), Read: read, Where: map[string]string{"storage": row["storage"]}, Pointer: "/" + k, Rule: gate.RuleEquals, Value: quotedText(row[k])}
					if row[k] == "" {
						if k != "namespace" && k != "subdir" {
							continue
						}
						c.Name, c.Rule, c.Value = fmt.Sprintf("%s of storage %s is not set", k, row["storage"]), gate.RuleAbsent, nil
					}
					s.Require = append(s.Require, c)
				}
			}
		}
	}
	for _, m := range a.mappings() {
		read := gate.Read{Operation: "GET /cluster/mapping/" + m[0] + "/{id}", Params: map[string]string{"id": m[1]}}
		var row struct {
			Map []string `json:"map"`
		}
		answer, err := a.v.Read(ctx, a.target.Name, read)
		if err != nil || json.Unmarshal(answer.Data, &row) != nil {
			continue
		}
		name := m[0] + " mapping " + m[1]
		for i, text := range row.Map {
			s.Require = append(s.Require, gate.Condition{Name: name + " stands for " + text, Read: read, Pointer: fmt.Sprintf("/map/%d", i), Rule: gate.RuleEquals, Value: quotedText(text)})
		}
		s.Require = append(s.Require, gate.Condition{Name: name + " stands for nothing more", Read: read, Pointer: fmt.Sprintf("/map/%d", len(row.Map)), Rule: gate.RuleAbsent})
	}
}

// storages are those that the request names, at most ten.
func (a *apiCall) storages() (out []string) {
	for _, r := range a.c.Catalog.References(a.op, a.req) {
		if r.Object.Kind == gate.ObjectStorage && !slices.Contains(out, r.Object.ID) && len(out) < 10 {
			out = append(out, r.Object.ID)
		}
	}
	return out
}

// mappings are the kinds and names of mapped devices and folders that a guest is given.
func (a *apiCall) mappings() (out [][2]string) {
	for _, p := range a.req.Params {
		text := a.req.Text(p.Name)
		for begin, kind := range map[string]string{"hostpci": "pci", "usb": "usb", "virtiofs": "dir"} {
			if rest, ok := strings.CutPrefix(p.Name, begin); !ok || strings.Trim(rest, "0123456789") != "" {
				continue
			}
			for _, key := range map[string][]string{"dir": {"dirid", "-"}}[kind] {
				if id, ok := gate.PropertyValue(text, key); ok && id != "" {
					out = append(out, [2]string{kind, id})
					break
				}
			}
			if id, ok := gate.PropertyValue(text, "mapping"); ok && id != "" {
				out = append(out, [2]string{kind, id})
			}
		}
	}
	return out
}

func quotedText(s string) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		return json.RawMessage(`""`) // a text always has a JSON form
	}
	return b
}
