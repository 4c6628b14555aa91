package estate

import (
	"maps"
	"strings"

	"castellan/internal/gate"
	"castellan/internal/regex"
)

var aliasName = &regex.Lazy{Expr: `\A[A-Za-z][A-Za-z0-9_-]+\z`}

const siteFirewall = "/cluster/firewall"

// firewall holds what a rule or an entry of a set names, and what these name: they count whether or not the firewall is on.
func (d *definitions) firewall(path string, params map[string]string, was Config) {
	base := path[:strings.Index(path, "/firewall/")+len("/firewall")]
	place := map[string]string{}
	for part := range strings.SplitSeq(base, "/") {
		if name := strings.Trim(part, "{}"); name != part {
			place[name] = params[name]
		}
	}
	if place["vmid"] != "" {
		place["node"] = gate.NodeOf(place["vmid"])
	}
	s := scope{d, base, place}
	rule := Config{}
	for _, k := range []string{"type", "action", "source", "dest"} {
		if rule[k] = was[k]; params[k] != "" {
			rule[k] = params[k]
		}
	}
	if strings.Contains(path, "/ipset/") {
		s.names(params["cidr"])
	}
	if strings.Contains(path, "/rules") || strings.Contains(path, "/groups/") {
		s.rule(rule)
	}
}

// scope is where the names of a rule are looked up: a guest's own, or the site's.
type scope struct {
	d     *definitions
	base  string
	place map[string]string
}

func (s scope) site() scope { return scope{s.d, siteFirewall, nil} }

func (s scope) rule(r Config) {
	if r["type"] == "group" {
		s.site().group(r["action"])
	}
	s.names(r["source"])
	s.names(r["dest"])
}

// names holds each alias and set in a list of addresses. A name alone may be the guest's own or the site's.
func (s scope) names(text string) {
	for _, e := range splitNames(text) {
		name, set := strings.CutPrefix(e, "+")
		in := []scope{s.site()}
		plain, isSite := strings.CutPrefix(name, "dc/")
		if !isSite && s.place["vmid"] != "" {
			own := false
			if plain, own = strings.CutPrefix(name, "guest/"); own {
				in = nil
			}
			in = append(in, s)
		}
		if !aliasName.MatchString(plain) {
			continue
		}
		for _, at := range in {
			if set {
				at.set(plain)
			} else {
				at.alias(plain)
			}
		}
	}
}

func (s scope) with(name, text string) map[string]string {
	out := map[string]string{name: text}
	maps.Copy(out, s.place)
	return out
}

// where says whose a name is.
func (s scope) where() string {
	if s.place["vmid"] != "" {
		return " of guest " + s.place["vmid"]
	}
	return ""
}

// alias holds what an alias stands for: capitals make no other name.
func (s scope) alias(name string) {
	read := gate.Read{Operation: "GET " + s.base + "/aliases", Params: s.place}
	if answer, err := s.d.read(read); err == nil {
		list, _ := rowsOf(answer.Data) // what cannot be read is said when it is held
		for _, row := range list {
			if strings.EqualFold(row["name"], name) {
				name = row["name"]
			}
		}
	}
	s.d.hold(gate.Condition{Name: "alias " + clipTo(name, 60) + s.where() + " stands for the same", Read: read, Where: map[string]string{"name": name}})
}

func (s scope) set(name string) {
	found := s.d.hold(gate.Condition{Name: "ipset " + clipTo(name, 60) + s.where() + " is as it was", Read: gate.Read{Operation: "GET " + s.base + "/ipset", Params: s.place}, Where: map[string]string{"name": name}})
	if len(found) == 0 {
		return
	}
	for _, e := range s.d.hold(gate.Condition{Name: "ipset " + clipTo(name, 60) + s.where() + " has the same entries", Read: gate.Read{Operation: "GET " + s.base + "/ipset/{name}", Params: s.with("name", name)}}) {
		s.names(e["cidr"])
	}
}

func (s scope) group(name string) {
	found := s.d.hold(gate.Condition{Name: "security group " + clipTo(name, 60) + " is as it was", Read: gate.Read{Operation: "GET " + s.base + "/groups"}, Where: map[string]string{"group": name}})
	if len(found) == 0 {
		return
	}
	for _, r := range s.d.hold(gate.Condition{Name: "security group " + clipTo(name, 60) + " has the same rules", Read: gate.Read{Operation: "GET " + s.base + "/groups/{group}", Params: map[string]string{"group": name}}, Ordered: true}) {
		s.rule(r)
	}
}
