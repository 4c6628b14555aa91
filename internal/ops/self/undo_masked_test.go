package self

import (
	"net/url"
	"strings"
	"testing"

	"castellan/internal/gate"
)

// TestUndoBesideMaskedFields: a field that is never shown is left alone where the step did not touch it, and has to be typed again
// where it did; those that can be read are compared and set back as ever.
func TestUndoBesideMaskedFields(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	for _, o := range []struct {
		name, path, one string
		make            map[string]any
		field, was, is  string // one that can be read
		other, secret   string
		meanwhile       url.Values
	}{
		{"a DNS plugin", "/cluster/sdn/dns", "/cluster/sdn/dns/{dns}", map[string]any{"dns": "made", "type": "powerdns", "url": "https://a.example", "key": "k1", "ttl": 60}, "url", "https://a.example", "https://b.example", "https://c.example", "key", url.Values{"url": {"https://c.example"}}},
		{"a mail server", "/cluster/notifications/endpoints/smtp", "/cluster/notifications/endpoints/smtp/{name}", map[string]any{"name": "made", "server": "a.example", "from-address": "a@a.example", "mailto": "b@a.example", "username": "u", "password": "k1"}, "server", "a.example", "b.example", "c.example", "password", url.Values{"server": {"c.example"}}},
	} {
		t.Run(o.name, func(t *testing.T) {
			id := map[string]any{}
			for _, k := range []string{"dns", "name"} {
				if v, ok := o.make[k]; ok {
					id[k] = v
				}
			}
			with := func(params map[string]any) map[string]any {
				for k, v := range id {
					params[k] = v
				}
				return params
			}
			path := strings.NewReplacer("{dns}", "made", "{name}", "made").Replace(o.one)
			undo := func(l *live, of *gate.Outcome, partial bool) string {
				out, err := l.run("undo", text(map[string]any{"plan": of.Receipt.Plan, "partial": partial}))
				if err != nil {
					return text(gate.AsError(err))
				}
				return text(out)
			}
			is := func(l *live, want string) {
				t.Helper()
				if got := l.seen("GET " + path); !strings.Contains(got, `"`+want+`"`) {
					t.Errorf("%s is not %s: %s", o.field, want, got)
				}
			}
			l := openOn(t, "small", "admin", func(p gate.Policy) gate.Policy { return lenient{p} }, func(d gate.Driver) gate.Driver { return d })
			made := l.api("POST "+o.path, o.make)
			plain := l.api("PUT "+o.one, with(map[string]any{o.field: o.is}))
			if got := undo(l, plain, false); !strings.Contains(got, `"status":"done"`) || strings.Contains(got, "typed again") {
				t.Errorf("the secret was not touched: %s", got)
			}
			is(l, o.was)

			both := l.api("PUT "+o.one, with(map[string]any{o.field: o.is, o.secret: "k2"}))
			if got := undo(l, both, false); strings.Contains(got, `"status":"done"`) || !strings.Contains(got, o.secret) || !strings.Contains(got, "typed again") {
				t.Errorf("the secret was touched: %s", got)
			}
			is(l, o.is)
			if got := undo(l, both, true); !strings.Contains(got, `"status":"done"`) {
				t.Errorf("in part: %s", got)
			}
			is(l, o.was)

			later := l.api("PUT "+o.one, with(map[string]any{o.field: o.is}))
			l.other("PUT", path, o.meanwhile)
			if got := undo(l, later, true); !strings.Contains(got, "was changed since") {
				t.Errorf("somebody changed what can be read: %s", got)
			}
			is(l, o.other)
			l.other("PUT", path, url.Values{o.field: {o.was}})
			if got := undo(l, made, true); !strings.Contains(got, `"status":"done"`) {
				t.Errorf("the creation: %s", got)
			}
		})
	}
}
