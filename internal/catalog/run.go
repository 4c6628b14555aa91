package catalog

import (
	"encoding/json"
	"slices"
	"strings"

	"castellan/internal/catalog/facts"
)

// MethodRun is the method of castellan's own operations on hosts and in guests. They stand beside those of the API, so
// that a command is judged, shown, approved and recorded like any other request; no product answers to them.
const MethodRun = "RUN"

// runOperations describes what castellan itself can run and move on nodes and in guests of PVE.
func runOperations() []*facts.Operation {
	guest := func(kind string) map[string]*facts.Schema {
		return map[string]*facts.Schema{"node": text(64, "", "pve-node"), "vmid": {Type: "integer", Minimum: number("100"), Maximum: number("999999999"), Format: &facts.Format{Name: "pve-vmid"}}}
	}
	node := func() map[string]*facts.Schema { return map[string]*facts.Schema{"node": text(64, "", "pve-node")} }
	var out []*facts.Operation
	add := func(path string, params map[string]*facts.Schema, more map[string]*facts.Schema) {
		for name, s := range more {
			params[name] = s
		}
		out = append(out, &facts.Operation{Product: facts.PVE, Path: path, Method: MethodRun, Params: params, Permissions: json.RawMessage(`{"description":"not of Proxmox: the lane and the bridge decide"}`)})
	}
	for _, kind := range []string{"lxc", "qemu"} {
		at := "/nodes/{node}/" + kind + "/{vmid}/"
		add(at+"probe", guest(kind), probeParams())
		add(at+"command", guest(kind), commandParams())
		add(at+"script", guest(kind), scriptParams(false))
		add(at+"read-file", guest(kind), map[string]*facts.Schema{"path": absolute(), "max": optional(between("1", "2097152"))})
		add(at+"write-file", guest(kind), map[string]*facts.Schema{"path": absolute(), "content": optional(text(2<<20, "", "")), "content64": optional(text(3<<20, `[A-Za-z0-9+/=]*`, "")),
			"mode": optional(text(4, `0?[0-7]{3}`, "")), "expect": text(64, `absent|[0-9a-f]{64}`, "")})
		add(at+"updates", guest(kind), updatesParams())
		add(at+"upgrade", guest(kind), upgradeParams("security", "all"))
		add(at+"repair", guest(kind), map[string]*facts.Schema{"package": optional(list(text(600, `(upgrade|install)( [^ ]+){4}`, ""))), "protect": optional(choice("snapshot", "backup", "none")), "timeout": optional(between("60", "14400"))})
		add(at+"enrol", guest(kind), enrolParams())
		add(at+"unenrol", guest(kind), map[string]*facts.Schema{"forget": optional(&facts.Schema{Type: "boolean"})})
	}
	add("/nodes/{node}/probe", node(), probeParams())
	add("/nodes/{node}/command", node(), commandParams())
	add("/nodes/{node}/script", node(), scriptParams(true))
	add("/nodes/{node}/updates", node(), updatesParams())
	add("/nodes/{node}/upgrade", node(), upgradeParams("full"))
	add("/nodes/{node}/maintenance", node(), map[string]*facts.Schema{"mode": {Type: "string", Enum: []any{"enable", "disable"}}})
	add("/nodes/{node}/dead-man", node(), map[string]*facts.Schema{"action": choice("arm", "confirm"), "what": choice("firewall", "network"), "seconds": optional(between("30", "3600")), "guest": optional(between("100", "999999999"))})
	return out
}

// looks says whether what is run at this path changes nothing.
func looks(path string) bool {
	return slices.Contains([]string{"probe", "updates", "read-file"}, path[strings.LastIndexByte(path, '/')+1:])
}

// updatesParams are of what looks: what could be installed (check), whether it answers and since which boot (status; other_than
// waits for another boot), services, and how the last installation goes (progress), went (result), and left the guest (verify).
func updatesParams() map[string]*facts.Schema {
	return map[string]*facts.Schema{"word": choice("check", "status", "services", "progress", "result", "verify"),
		"other-than": optional(text(36, `[0-9a-f-]{36}`, "")), "timeout": optional(between("1", "3600"))}
}

// upgradeParams are of what installs exactly the packages named, each as "upgrade name:arch old new archive", "install name:arch
// - new archive" or "remove name:arch old - -". newer lets it take a newer version of a named package from the same archive.
// protect says what the plan holds before it to go back to.
func upgradeParams(modes ...string) map[string]*facts.Schema {
	m := map[string]*facts.Schema{"mode": choice(modes...), "package": list(text(600, `(upgrade|install|remove)( [^ ]+){4}`, "")),
		"newer": optional(&facts.Schema{Type: "boolean"}), "timeout": optional(between("60", "14400"))}
	if modes[0] != "full" {
		m["protect"] = optional(choice("snapshot", "backup", "none"))
	}
	return m
}

// enrolParams are of what lets castellan look after a guest's packages. Without way the bridge or the guest agent carries the
// script in; script prints it for a person, accept takes what it printed there.
func enrolParams() map[string]*facts.Schema {
	return map[string]*facts.Schema{"from": text(64, "", "ip"), "automatic": optional(choice("keep", "off", "on")), "way": optional(choice("script", "accept")),
		"family":   optional(choice("apt", "dnf", "pacman", "zypper", "apk")),
		"host-key": optional(list(text(4096, "", ""))), "port": optional(between("1", "65535"))}
}

func choice(words ...string) *facts.Schema {
	s := &facts.Schema{Type: "string"}
	for _, w := range words {
		s.Enum = append(s.Enum, w)
	}
	return s
}

func probeParams() map[string]*facts.Schema {
	return map[string]*facts.Schema{"probe": text(40, `[a-z][a-z0-9_]*`, ""), "arg": optional(list(text(8192, "", "")))}
}

func commandParams() map[string]*facts.Schema {
	p := runParams()
	p["command"] = list(text(32<<10, "", ""))
	return p
}

func scriptParams(host bool) map[string]*facts.Schema {
	p := runParams()
	p["script"] = text(64<<10, "", "")
	p["interpreter"] = optional(&facts.Schema{Type: "string", Enum: []any{"sh", "bash", "python3"}})
	if host {
		p["root"] = optional(&facts.Schema{Type: "boolean"})
	}
	return p
}

func runParams() map[string]*facts.Schema {
	return map[string]*facts.Schema{"input": optional(text(64<<10, "", "")), "env": optional(list(text(4096, `[A-Za-z_][A-Za-z0-9_]*=[\s\S]*`, ""))), "dir": optional(absolute()),
		"timeout": optional(between("1", "300")), "max-output": optional(between("1000", "200000"))}
}

func text(most int, pattern, format string) *facts.Schema {
	s := &facts.Schema{Type: "string", MaxLength: &most, Pattern: pattern}
	if format != "" {
		s.Format = &facts.Format{Name: format}
	}
	return s
}

func absolute() *facts.Schema { return text(4096, `/[^\x00]*`, "") }

func between(least, most string) *facts.Schema {
	return &facts.Schema{Type: "integer", Minimum: number(least), Maximum: number(most)}
}

func list(of *facts.Schema) *facts.Schema { return &facts.Schema{Type: "array", Items: of} }

func optional(s *facts.Schema) *facts.Schema {
	s.Optional = true
	return s
}

func number(text string) *json.Number {
	n := json.Number(text)
	return &n
}

// runBody is what a RUN shows of its parameters, beside those of its path.
func runBody(params []wireParam) (string, error) {
	body := map[string]any{}
	for _, p := range params {
		if body[p.name] = p.texts; len(p.texts) == 1 && !slices.Contains([]string{"command", "env", "arg", "package", "host-key"}, p.name) {
			body[p.name] = p.texts[0]
		}
	}
	if len(body) == 0 {
		return "", nil
	}
	b, err := json.Marshal(body)
	return string(b), err
}
