package undo

import (
	"context"
	"errors"
	"strings"
	"testing"

	"castellan/internal/gate"
)

// answers answers reads from a table, by operation and what follows it in brackets.
type answers struct {
	gate.View
	of map[string]string
}

func (a answers) Read(_ context.Context, _ string, r gate.Read) (gate.Answer, error) {
	key := r.Operation
	if ns := r.Params["ns"]; ns != "" {
		key += " " + ns
	}
	text, ok := a.of[key]
	if !ok {
		return gate.Answer{}, errors.New("no right to read it")
	}
	return gate.Answer{Data: rawJSON(text)}, nil
}

// TestElsewhere: what a plan made on a Backup Server and what backups have come to rest on is not deleted, nor anything of which
// castellan does not know what can rest on it.
func TestElsewhere(t *testing.T) {
	empty := map[string]string{"GET /admin/datastore/{store}/namespace": `[{"ns":""},{"ns":"a"}]`, "GET /admin/datastore/{store}/groups": `[]`, "GET /admin/datastore/{store}/groups a": `[]`,
		"GET /config/sync": `[]`, "GET /config/verify": `[]`, "GET /config/prune": `[]`, "GET /access/acl": `[]`, "GET /access/users": `[]`, "GET /access/users/{userid}/token": `[]`}
	with := func(key, text string) map[string]string {
		out := map[string]string{}
		for k, v := range empty {
			out[k] = v
		}
		if out[key] = text; text == "" {
			delete(out, key)
		}
		return out
	}
	store := gate.Sheet{Name: "datastore d", Delete: "DELETE /config/datastore/{name}", Place: map[string]string{"name": "d"}}
	for _, c := range []struct {
		name    string
		product string
		s       gate.Sheet
		of      map[string]string
		want    string
	}{
		{"empty", "pbs", store, empty, ""},
		{"a backup in a namespace", "pbs", store, with("GET /admin/datastore/{store}/groups a", `[{"backup-id":"100","backup-type":"vm"}]`), "in use"},
		{"a job", "pbs", store, with("GET /config/sync", `[{"id":"s","store":"d"}]`), "in use"},
		{"a job of another one", "pbs", store, with("GET /config/sync", `[{"id":"s","store":"e"}]`), ""},
		{"rights", "pbs", store, with("GET /access/acl", `[{"path":"/datastore/d","ugid":"a@pbs"}]`), "in use"},
		{"unread", "pbs", store, with("GET /admin/datastore/{store}/groups a", ""), "cannot be told"},
		{"a remote of a job", "pbs", gate.Sheet{Delete: "DELETE /config/remote/{name}", Place: map[string]string{"name": "r"}}, with("GET /config/sync", `[{"id":"s","remote":"r"}]`), "in use"},
		{"a realm with users", "pdm", gate.Sheet{Delete: "DELETE /config/access/ldap/{realm}", Place: map[string]string{"realm": "r"}}, with("GET /access/users", `[{"userid":"a@r"}]`), "in use"},
		{"a user with rights", "pbs", gate.Sheet{Delete: "DELETE /access/users/{userid}", Place: map[string]string{"userid": "a@pbs"}}, with("GET /access/acl", `[{"path":"/","ugid":"a@pbs"}]`), "in use"},
		{"a key", "pbs", gate.Sheet{Delete: "DELETE /config/tape-encryption-keys/{fingerprint}", Place: map[string]string{"fingerprint": "f"}}, empty, "cannot be told"},
		{"a tape pool", "pbs", gate.Sheet{Delete: "DELETE /config/media-pool/{name}", Place: map[string]string{"name": "p"}}, empty, "cannot be told"},
		{"a job itself", "pbs", gate.Sheet{Delete: "DELETE /config/prune/{id}", Place: map[string]string{"id": "p"}}, empty, ""},
		{"a list of addresses", "pmg", gate.Sheet{Delete: "DELETE /config/ruledb/who/{ogroup}", Place: map[string]string{"ogroup": "3"}}, empty, "cannot be told"},
	} {
		b := &back{ctx: t.Context(), v: answers{of: c.of}, product: c.product, target: "t", now: map[string]gate.Image{}, dropped: map[string][]map[string]string{}}
		_, err := b.unused(c.s, nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
