package lab

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"castellan/internal/catalog/facts"
)

// mutant is a genuine request changed in one place, with what the rules of the API say to it.
type mutant struct {
	what, as, secret, req string
	body                  *string
	ctype                 string
	line                  string // expected status line without the protocol
	errKey, errText       string // of a 400
	bare                  bool
}

var guestPath = regexp.MustCompile(`^(GET|PUT|POST|DELETE) (/api2/json/nodes/)([^/]+)/(qemu|lxc)/(\d{3,})(/[^?]*)?(\?.*)?$`)

// privileged tells who may do everything that a token of root may.
func privileged(as string) bool { return as == "root@pam!full" }

// mutants derives from one expectation those changes whose answer follows from a rule alone.
func mutants(api *facts.API, r *router, e expectation) []mutant {
	var out []mutant
	if e.As == "" || e.As == "no token" || !strings.Contains(e.Req, "/api2/json/") || strings.HasPrefix(e.Status, "501") || strings.HasPrefix(e.Status, "506") {
		return nil
	}
	base := mutant{as: e.As, req: e.Req, body: e.Body, ctype: e.Type}
	method, target, _ := strings.Cut(e.Req, " ")
	path, query := splitTarget(target)
	rel := strings.TrimPrefix(path, "/api2/json")
	op, vals := r.find(method, rel)
	if op == nil || strings.Contains(e.Text, "AnyEvent") || strings.Contains(e.Status, "no such user") {
		return nil // the body is not even read, or the permission check itself says it
	}
	with := func(f func(*mutant)) {
		m := base
		f(&m)
		out = append(out, m)
	}
	// A wrong secret, an unknown token: one text for all.
	with(func(m *mutant) {
		m.what, m.secret, m.line, m.bare = "wrong secret", "99999999-9999-4999-8999-999999999999", "401 Authentication failed!", true
	})
	with(func(m *mutant) {
		m.what, m.as, m.secret, m.line, m.bare = "unknown user", "ghost@pve!x1", "99999999-9999-4999-8999-999999999999", "401 Authentication failed!", true
	})
	// Another path below: not implemented, whoever asks.
	if n := strings.Count(rel, "/"); n > 0 && !strings.Contains(op.Path, "{volume}") && !strings.Contains(op.Path, "/ipset/") {
		with(func(m *mutant) {
			m.what, m.req, m.line = "unknown path", method+" "+strings.SplitN(target, "?", 2)[0]+"/nosuch/part", fmt.Sprintf("501 Method '%s %s/nosuch/part' not implemented", method, rel)
		})
	}
	down := vals["node"] == "pve3"
	if privileged(e.As) && !op.NoToken && string(op.Permissions) != "null" && !strings.HasPrefix(e.Status, "403") && !down && vals["node"] != "nope" && !strings.Contains(vals["node"], ".") {
		// A parameter that the schema does not know.
		if !strings.Contains(query, "bogusx") && (e.Body == nil || !strings.HasPrefix(strings.TrimSpace(*e.Body), "{") && !strings.HasPrefix(*e.Body, "[") && !strings.Contains(*e.Body, "form-data")) {
			with(func(m *mutant) {
				m.what, m.line, m.errKey, m.errText = "unknown parameter", "400 "+verificationFailed, "bogusx", msgUnknown
				sep := "?"
				if strings.Contains(m.req, "?") {
					sep = "&"
				}
				m.req += sep + "bogusx=1"
			})
		}
		// A node that is down or does not exist: told before parameters are looked at.
		if op.ProxyTo == "node" && strings.HasPrefix(op.Path, "/nodes/") {
			with(func(m *mutant) {
				m.what, m.req, m.line, m.bare = "node down", strings.Replace(m.req, "/nodes/"+vals["node"], "/nodes/pve3", 1), "595 Connection refused", true
			})
			with(func(m *mutant) {
				m.what, m.req = "unknown node", strings.Replace(m.req, "/nodes/"+vals["node"], "/nodes/elsewhere", 1)
				m.line = "500 hostname lookup 'elsewhere' failed - failed to get address info for: elsewhere: Temporary failure in name resolution"
			})
		}
	}
	g := guestPath.FindStringSubmatch(e.Req)
	if g == nil || down {
		return out
	}
	swap := func(id string) string {
		return g[1] + " " + g[2] + g[3] + "/" + g[4] + "/" + id + g[6] + g[7]
	}
	// Who may nothing is refused with the guest named, whether it is there or not.
	if strings.HasPrefix(e.Status, "403 ") && strings.Contains(e.Status, "(/vms/"+g[5]+", ") {
		with(func(m *mutant) {
			m.what, m.as, m.req, m.line = "other guest, no right", "nobody@pve!none", swap("997"), strings.Replace(e.Status, "/vms/"+g[5], "/vms/997", 1)
		})
	}
	if privileged(e.As) && e.Body == nil && g[7] == "" && method == "GET" && strings.HasPrefix(e.Status, "200") && (strings.HasSuffix(g[6], "/config") || strings.HasSuffix(g[6], "/pending") || strings.HasSuffix(g[6], "/current") || g[6] == "/snapshot" || g[6] == "/migrate") && !strings.Contains(g[6], "/snapshot/") {
		dir := map[string]string{"qemu": "qemu-server", "lxc": "lxc"}[g[4]]
		with(func(m *mutant) {
			m.what, m.req, m.line = "absent guest", swap("997"), fmt.Sprintf("500 Configuration file 'nodes/%s/%s/997.conf' does not exist", g[3], dir)
		})
		with(func(m *mutant) {
			m.what, m.line = "other kind", fmt.Sprintf("500 Configuration file 'nodes/%s/%s/%s.conf' does not exist", g[3], map[string]string{"qemu": "lxc", "lxc": "qemu-server"}[g[4]], g[5])
			m.req = strings.Replace(m.req, "/"+g[4]+"/", "/"+map[string]string{"qemu": "lxc", "lxc": "qemu"}[g[4]]+"/", 1)
			if strings.HasSuffix(g[6], "/migrate") {
				m.line = ""
			}
		})
		with(func(m *mutant) {
			m.what, m.req, m.line, m.errKey, m.errText = "id is no number", swap("12x"), "400 "+verificationFailed, "vmid", "type check ('integer') failed - got '12x'"
		})
		with(func(m *mutant) {
			m.what, m.req, m.line, m.errKey, m.errText = "id too small", swap("042"), "400 "+verificationFailed, "vmid", "invalid format - value does not look like a valid VM ID\n"
		})
		other := map[string]string{"pve1": "pve2", "pve2": "pve1"}[g[3]]
		with(func(m *mutant) {
			m.what, m.req, m.line = "guest of another node", strings.Replace(m.req, "/nodes/"+g[3]+"/", "/nodes/"+other+"/", 1), fmt.Sprintf("500 Configuration file 'nodes/%s/%s/%s.conf' does not exist", other, dir, g[5])
		})
	}
	// A bad value for each kind of parameter.
	if privileged(e.As) && method == "PUT" && strings.HasSuffix(g[6], "/config") && e.Body != nil && !strings.HasPrefix(*e.Body, "{") {
		for key, s := range op.Params {
			if !s.Optional || strings.Contains(key, "[") || strings.Contains(*e.Body, key+"=") {
				continue
			}
			var val, text string
			switch {
			case s.Type == "boolean":
				val, text = "maybe", "type check ('boolean') failed - got 'maybe'"
			case s.Type == "integer":
				val, text = "x1", "type check ('integer') failed - got 'x1'"
			case s.Type == "integer" && s.Maximum != nil:
				val, text = "9"+s.Maximum.String(), "value must have a maximum value of "+s.Maximum.String()
			default:
				continue
			}
			with(func(m *mutant) {
				b := *e.Body + "&" + key + "=" + val
				m.what, m.body, m.line, m.errKey, m.errText = "bad "+s.Type, &b, "400 "+verificationFailed, key, text
			})
		}
	}
	return out
}

// TestMutations changes genuine requests and holds the answers to the rules.
func TestMutations(t *testing.T) {
	fresh, _ := expectations(t)
	api, err := sharedFacts().API(facts.PVE)
	if err != nil {
		t.Fatal(err)
	}
	r := newRouter(append([]*facts.Operation{rootOperation()}, api.Operations...))
	total, wrong := 0, 0
	kinds := map[string]int{}
	l := rigLab(t, false, nil)
	for _, e := range fresh {
		for _, m := range mutants(api, r, e) {
			if m.line == "" || kinds[m.what] > 60 {
				continue
			}
			kinds[m.what]++
			total++
			secret := m.secret
			g := send(l, m.as, secret, m.req, m.body, m.ctype)
			bad := ""
			obj, _ := g.answer.(map[string]any)
			switch {
			case g.line != "HTTP/1.1 "+m.line:
				bad = fmt.Sprintf("status %q, want %q", g.line, m.line)
			case m.bare && g.answer != "":
				bad = fmt.Sprintf("body %s, want none", show(g.answer))
			case m.errKey != "":
				errs, _ := obj["errors"].(map[string]any)
				if errs[m.errKey] != m.errText {
					bad = fmt.Sprintf("errors %s, want %s: %q", show(obj["errors"]), m.errKey, m.errText)
				}
			case !m.bare:
				want := strings.TrimSpace(strings.SplitN(m.line, " ", 2)[1])
				if msg, _ := obj["message"].(string); strings.TrimSpace(msg) != want {
					bad = fmt.Sprintf("message %q, want %q", msg, want)
				}
			}
			if bad != "" {
				wrong++
				if wrong < 40 {
					t.Logf("%s: %s as %s %s: %s", m.what, m.req, m.as, deref(m.body), bad)
				}
			}
		}
	}
	b, err := json.Marshal(kinds)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d mutations, %d off the rules: %s", total, wrong, b)
	if total < 100 || wrong > 0 {
		t.Errorf("%d of %d mutations are off the rules", wrong, total)
	}
}
