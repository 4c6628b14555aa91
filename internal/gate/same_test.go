package gate

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func plainField(_, text string) string { return text }

// TestSame: any change of an object or of a list of rows shows, and says what changed; another order, numbers as texts, and
// fields that move by themselves are no change.
func TestSame(t *testing.T) {
	key := rapid.SampledFrom([]string{"mode", "vmid", "storage", "enabled", "source", "cidr", "action"})
	value := rapid.StringMatching(`[a-z0-9]{1,6}`)
	row := rapid.MapOfN(key, value, 1, 5)
	lines := func(t *rapid.T, c Condition, v any) []string {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.lines(raw, plainField)
		if err != nil {
			t.Fatal(err)
		}
		return bounded(out)
	}
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(row, 1, 4).Draw(t, "rows")
		ordered := rapid.Bool().Draw(t, "ordered")
		for _, form := range []string{"object", "list"} {
			c := Condition{Ordered: ordered}
			var v any = rows
			if form == "object" {
				v = rows[0]
			}
			c.Lines = lines(t, c, v)
			with := func(change func(rows []map[string]string) []map[string]string) string {
				next := make([]map[string]string, len(rows))
				for i := range rows {
					next[i] = maps.Clone(rows[i])
				}
				next = change(next)
				if form == "object" {
					return c.changed(lines(t, c, next[0]))
				}
				return c.changed(lines(t, c, next))
			}
			if d := with(func(r []map[string]string) []map[string]string {
				r[0]["digest"], r[0]["comment"] = value.Draw(t, "digest"), "x"
				return r
			}); d != "" {
				t.Fatalf("%s: a field that moves: %s", form, d)
			}
			k := rapid.SampledFrom(slices.Sorted(maps.Keys(rows[0]))).Draw(t, "key")
			if d := with(func(r []map[string]string) []map[string]string { r[0][k] += "x"; return r }); !strings.Contains(d, k+"="+rows[0][k]+"x") {
				t.Fatalf("%s: %s was changed: %q", form, k, d)
			}
			if d := with(func(r []map[string]string) []map[string]string { delete(r[0], k); return r }); !strings.Contains(d, "no longer") {
				t.Fatalf("%s: %s was taken away: %q", form, k, d)
			}
			if d := with(func(r []map[string]string) []map[string]string { r[0]["new"] = "1"; return r }); !strings.Contains(d, "new=1") {
				t.Fatalf("%s: a field was added: %q", form, d)
			}
			if form == "list" {
				d := with(func(r []map[string]string) []map[string]string { slices.Reverse(r); return r })
				reversed := slices.Clone(c.Lines)
				slices.Reverse(reversed)
				if (d != "") != (ordered && !slices.Equal(reversed, c.Lines)) {
					t.Fatalf("another order (it counts: %v): %q", ordered, d)
				}
				if d := with(func(r []map[string]string) []map[string]string { return append(r, map[string]string{"cidr": "z"}) }); !strings.Contains(d, "now cidr=z") {
					t.Fatalf("a row more: %q", d)
				}
				if d := with(func(r []map[string]string) []map[string]string { return r[1:] }); !strings.Contains(d, "no longer") {
					t.Fatalf("a row less: %q", d)
				}
			}
		}
	})
	for _, pair := range [][2]string{{`{"a":1,"b":true,"c":["y","x"],"d":null}`, `{"d":"","c":["x","y"],"b":"1","a":"1"}`}, {`{"nodes":"b,a"}`, `{"nodes":"a,b"}`}} {
		a, err1 := Condition{}.lines([]byte(pair[0]), plainField)
		b, err2 := Condition{}.lines([]byte(pair[1]), plainField)
		if err1 != nil || err2 != nil || !slices.Equal(a, b) {
			t.Errorf("%q and %q are not the same: %v %v", a, b, err1, err2)
		}
	}
	long, _ := Condition{}.lines([]byte(`{"a":"`+strings.Repeat("x", 3000)+`y"}`), plainField)
	other, _ := Condition{}.lines([]byte(`{"a":"`+strings.Repeat("x", 3000)+`z"}`), plainField)
	if len(long) != 1 || len(long[0]) > maxSameLine || slices.Equal(long, other) {
		t.Errorf("a long value: %q %q", long, other)
	}
}

// TestTouches: what a plan itself changes before, its later steps do not hold.
func TestTouches(t *testing.T) {
	step := func(operation string, refs []Reference, params ...string) Step {
		s := Step{API: &Request{Operation: operation}, Judgement: Judgement{Effect: EffectChange, References: refs}}
		for i := 0; i < len(params); i += 2 {
			s.API.Params = append(s.API.Params, Param{Name: params[i], Values: []Value{{Text: params[i+1]}}})
		}
		return s
	}
	guest := []Reference{{Object: Object{Kind: ObjectGuest, ID: "101"}, Use: UseActs}}
	read := func(operation string, params map[string]string, where ...string) Condition {
		c := Condition{Rule: RuleSame, Read: Read{Operation: operation, Params: params}}
		if len(where) > 0 {
			c.Where = map[string]string{where[0]: where[1]}
		}
		return c
	}
	config := read("GET /nodes/{node}/qemu/{vmid}/config", map[string]string{"node": NodeOf("101"), "vmid": "101"})
	set := read("GET /cluster/firewall/ipset/{name}", map[string]string{"name": "web"})
	alias := read("GET /cluster/firewall/aliases", nil, "name", "web")
	pool := read("GET /pools", map[string]string{"poolid": "web"})
	for _, c := range []struct {
		name string
		s    Step
		c    Condition
		want bool
	}{
		{"settings of the guest", step("PUT /nodes/{node}/qemu/{vmid}/config", guest, "node", "n", "vmid", "101"), config, true},
		{"a disk of the guest", step("POST /nodes/{node}/qemu/{vmid}/move_disk", guest, "node", "n", "vmid", "101"), config, true},
		{"a snapshot of the guest", step("POST /nodes/{node}/qemu/{vmid}/snapshot", guest, "node", "n", "vmid", "101"), config, false},
		{"another guest", step("PUT /nodes/{node}/qemu/{vmid}/config", []Reference{{Object: Object{Kind: ObjectGuest, ID: "102"}, Use: UseActs}}, "node", "n", "vmid", "102"), config, false},
		{"an entry of the set", step("POST /cluster/firewall/ipset/{name}", nil, "name", "web", "cidr", "10.0.0.1"), set, true},
		{"the set is made", step("POST /cluster/firewall/ipset", nil, "name", "web"), set, true},
		{"another set is made", step("POST /cluster/firewall/ipset", nil, "name", "db"), set, false},
		{"an entry of another set", step("POST /cluster/firewall/ipset/{name}", nil, "name", "db", "cidr", "10.0.0.1"), set, false},
		{"the alias", step("POST /cluster/firewall/aliases", nil, "name", "web", "cidr", "10.0.0.1"), alias, true},
		{"another alias", step("POST /cluster/firewall/aliases", nil, "name", "db", "cidr", "10.0.0.1"), alias, false},
		{"members of the pool", step("PUT /pools", []Reference{{Object: Object{Kind: ObjectPool, ID: "web"}, Use: UseActs}}, "poolid", "web", "vms", "101"), pool, true},
		{"members of another pool", step("PUT /pools", nil, "poolid", "db", "vms", "101"), pool, false},
		{"a guest is made", step("POST /nodes/{node}/qemu", guest, "node", "n", "vmid", "101"), pool, true},
		{"a user leaves its groups", step("PUT /access/users/{userid}", nil, "userid", "a@pve", "groups", ""), read("GET /access/groups/{groupid}", map[string]string{"groupid": "web"}), true},
		{"a rule is added above", step("POST /cluster/firewall/rules", nil, "type", "in"), read("GET /cluster/firewall/rules/{pos}", map[string]string{"pos": "3"}), true},
		{"a rule of another list", step("POST /cluster/firewall/groups/{group}", nil, "group", "web"), read("GET /cluster/firewall/rules/{pos}", map[string]string{"pos": "3"}), false},
		{"it only looks", Step{API: &Request{Operation: "GET /pools"}, Judgement: Judgement{Effect: EffectRead}}, pool, false},
	} {
		if got := c.s.touches(c.c); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
