package reach

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"castellan/internal/catalog/facts"
	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/ops/opstest"
)

// labView reads from a simulated site in memory.
type labView struct {
	*opstest.View
	lab    *lab.Lab
	header http.Header
}

// failer is a test or a run of one.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func newLabView(t failer, site, token string) *labView {
	t.Helper()
	l, err := lab.New(lab.Config{Site: site, Facts: facts.Open()})
	if err != nil {
		t.Fatal(err)
	}
	v, err := opstest.New("")
	if err != nil {
		t.Fatal(err)
	}
	secret, ok := l.Tokens()[token]
	if !ok {
		t.Fatalf("no token %s", token)
	}
	v.Info.User, _, _ = strings.Cut(strings.TrimPrefix(secret, "PVEAPIToken="), "=")
	return &labView{View: v, lab: l, header: http.Header{"Authorization": {secret}}}
}

// call sends one request; parameters of the path are filled in, the others go where the method has them.
func (v *labView) call(ctx context.Context, operation string, params map[string]string) (json.RawMessage, error) {
	method, path, _ := strings.Cut(operation, " ")
	form := url.Values{}
	for k, text := range params {
		if strings.Contains(path, "{"+k+"}") {
			path = strings.ReplaceAll(path, "{"+k+"}", url.PathEscape(text))
			continue
		}
		form.Set(k, text)
	}
	target, body := "/api2/json"+path, []byte(nil)
	header := v.header.Clone()
	switch {
	case method == "GET" || method == "DELETE":
		if len(form) > 0 {
			target += "?" + form.Encode()
		}
	default:
		body = []byte(form.Encode())
		header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	status, reason, answer := v.lab.Do(ctx, method, target, header, body)
	if status != http.StatusOK {
		return nil, fmt.Errorf("%s: %d %s", operation, status, reason)
	}
	var envelope struct{ Data json.RawMessage }
	err := json.Unmarshal(answer, &envelope)
	return envelope.Data, err
}

func (v *labView) Read(ctx context.Context, _ string, r gate.Read) (gate.Answer, error) {
	data, err := v.call(ctx, r.Operation, r.Params)
	return gate.Answer{Data: data}, err
}

func (v *labView) rights(t *rapid.T) *rights {
	s, err := estate.New().Survey(context.Background(), v, "lab", 0)
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{ctx: context.Background(), v: v, s: s, out: &gate.Reach{}}
	r, ok := w.readRights()
	if !ok {
		t.Fatalf("gaps: %v", s.Gaps())
	}
	return r
}

// TestRightsAsTheSiteComputesThem draws users, groups, roles, tokens and entries, and compares what they may do with what
// the simulated site says of it: as it is, and after changes that the model carries out by itself.
func TestRightsAsTheSiteComputesThem(t *testing.T) {
	privs := []string{"VM.Audit", "VM.PowerMgmt", "Datastore.Audit", "Sys.Audit", "Pool.Audit"}
	paths := []string{"/", "/vms", "/vms/101", "/vms/102", "/pool", "/pool/prod", "/nodes", "/nodes/pve1", "/storage", "/storage/nas", "/access"}
	rapid.Check(t, func(t *rapid.T) {
		v := newLabView(t, "small", "admin")
		ctx := context.Background()
		must := func(operation string, params map[string]string) {
			if _, err := v.call(ctx, operation, params); err != nil {
				t.Fatal(err)
			}
		}
		groups, users, roles := []string{"g1", "g2"}, []string{"u1@pve", "u2@pve", "u3@pve"}, []string{"R1", "R2", "R3"}
		for _, g := range groups {
			must("POST /access/groups", map[string]string{"groupid": g})
		}
		some := func(of []string, what string) string {
			var out []string
			for _, x := range of {
				if rapid.Bool().Draw(t, what) {
					out = append(out, x)
				}
			}
			return strings.Join(out, ",")
		}
		for _, r := range roles {
			must("POST /access/roles", map[string]string{"roleid": r, "privs": some(privs, "privs of "+r)})
		}
		tokens := []string{}
		for i, u := range users {
			params := map[string]string{"userid": u}
			if in := some(groups, "groups of "+u); in != "" {
				params["groups"] = in
			}
			must("POST /access/users", params)
			if i < 2 {
				must("POST /access/users/{userid}/token/{tokenid}", map[string]string{"userid": u, "tokenid": "tk", "privsep": map[bool]string{true: "1", false: "0"}[rapid.Bool().Draw(t, "privsep")]})
				tokens = append(tokens, u+"!tk")
			}
		}
		acl := func() map[string]string {
			params := map[string]string{"path": rapid.SampledFrom(paths).Draw(t, "path"), "roles": rapid.SampledFrom(append([]string{"NoAccess"}, roles...)).Draw(t, "role"),
				"propagate": rapid.SampledFrom([]string{"0", "1"}).Draw(t, "propagate")}
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				params["users"] = rapid.SampledFrom(users).Draw(t, "user")
			case 1:
				params["groups"] = rapid.SampledFrom(groups).Draw(t, "group")
			default:
				params["tokens"] = rapid.SampledFrom(tokens).Draw(t, "token")
			}
			return params
		}
		for range rapid.IntRange(0, 10).Draw(t, "entries") {
			must("PUT /access/acl", acl())
		}
		compare := func(model *rights, when string) {
			for _, id := range append(slices.Clone(users), tokens...) {
				for _, path := range paths {
					data, err := v.call(ctx, "GET /access/permissions", map[string]string{"userid": id, "path": path})
					if err != nil {
						continue // deleted meanwhile
					}
					var told map[string]map[string]int
					if err := json.Unmarshal(data, &told); err != nil {
						t.Fatal(err)
					}
					want := slices.Sorted(maps.Keys(told[path]))
					got := slices.Sorted(maps.Keys(model.on(id, path)))
					if d := cmp.Diff(want, got); d != "" && len(want)+len(got) > 0 {
						t.Fatalf("%s: %s on %s (-site +model)\n%s", when, id, path, d)
					}
				}
			}
		}
		model := v.rights(t)
		compare(model, "as read")
		s, err := estate.New().Survey(ctx, v, "lab", 0)
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			var operation string
			var params map[string]string
			switch rapid.IntRange(0, 6).Draw(t, "change") {
			case 0, 1:
				operation, params = "PUT /access/acl", acl()
				if rapid.Bool().Draw(t, "delete") {
					params["delete"] = "1"
				}
			case 2:
				operation, params = "PUT /access/roles/{roleid}", map[string]string{"roleid": rapid.SampledFrom(roles).Draw(t, "altered role"), "privs": some(privs, "new privs")}
				switch rapid.IntRange(0, 2).Draw(t, "how") {
				case 0:
					params["append"] = "1"
				case 1:
					delete(params, "privs")
				}
			case 3:
				operation, params = "PUT /access/users/{userid}", map[string]string{"userid": rapid.SampledFrom(users).Draw(t, "altered user"), "groups": rapid.SampledFrom(groups).Draw(t, "new group")}
				if rapid.Bool().Draw(t, "append") {
					params["append"] = "1"
				}
			case 4:
				u, _, _ := strings.Cut(rapid.SampledFrom(tokens).Draw(t, "altered token"), "!")
				operation, params = "PUT /access/users/{userid}/token/{tokenid}", map[string]string{"userid": u, "tokenid": "tk", "privsep": rapid.SampledFrom([]string{"0", "1"}).Draw(t, "new privsep")}
			case 5:
				operation, params = "PUT /pools", map[string]string{"poolid": "prod", "vms": "102", "allow-move": "1"}
			default:
				g := rapid.SampledFrom(groups).Draw(t, "deleted group")
				operation, params = "DELETE /access/groups/{groupid}", map[string]string{"groupid": g}
			}
			if _, err := v.call(ctx, operation, params); err != nil {
				continue // gone by an earlier change: nothing changed
			}
			r := gate.Request{Product: "pve", Operation: operation}
			for k, text := range params {
				r.Params = append(r.Params, gate.Param{Name: k, Values: []gate.Value{{Text: text}}})
			}
			changes, known := readAccess(nil, r)
			if !known {
				t.Fatalf("%s is not read", operation)
			}
			for _, c := range changes {
				model, _ = model.change(c, s.Now())
			}
			compare(model, "after "+operation+fmt.Sprint(params))
		}
	})
}
