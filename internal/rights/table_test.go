package rights_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"castellan/internal/catalog"
	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
	"castellan/internal/rights"
)

// asked is one request that the catalogue judges, with what the API publishes of its checks.
type asked struct {
	op    *catalog.Operation
	judge gate.Judgement
}

func (a asked) String() string { return fmt.Sprintf("%s %v", a.op.ID, a.judge.Kinds) }

// everyRequest is every operation of Proxmox VE bare, and with each of its parameters alone.
func everyRequest(t *testing.T) []asked {
	t.Helper()
	c, err := catalog.New(catalog.Config{Facts: facts.Open()})
	if err != nil {
		t.Fatal(err)
	}
	api, err := facts.Open().API(facts.PVE)
	if err != nil {
		t.Fatal(err)
	}
	var out []asked
	for _, f := range api.Operations {
		op, _, err := c.Resolve("pve", f.Method, f.Path, nil)
		if err != nil {
			t.Fatal(err)
		}
		bare := gate.Request{Product: "pve", Operation: op.ID}
		out = append(out, asked{op, c.Judge(op, bare)})
		for name, s := range f.Params {
			name := strings.Replace(name, "[n]", "0", 1)
			value := "1"
			if len(s.Enum) > 0 {
				value = fmt.Sprint(s.Enum[0])
			}
			switch name {
			case "net0":
				value = "virtio,bridge=vmbr0"
				if strings.Contains(op.Path, "lxc") {
					value = "name=eth0,bridge=vmbr0"
				}
			case "scsi0", "virtio0", "rootfs", "mp0":
				value = "local:8"
			case "usb0", "hostpci0":
				value = "mapping=dev"
			}
			one := bare
			one.Params = []gate.Param{{Name: name, Values: []gate.Value{{Text: value}}}}
			out = append(out, asked{op, c.Judge(op, one)})
		}
	}
	return out
}

type holds func(privilege, path string) bool

// granted reads a list of rights as Proxmox would: what holds at a place holds below it, what holds at / holds there only.
func granted(all []rights.Right) holds {
	return func(privilege, path string) bool {
		return slices.Contains(all, rights.Right{Privilege: privilege, Place: rights.PlaceOf(path)})
	}
}

// rename says what a version calls a privilege: the agent had one for everything before 9.
func rename(p string, v rights.Version) string {
	if v.Major == 8 && strings.HasPrefix(p, "VM.GuestAgent.") {
		return "VM.Monitor"
	}
	return p
}

// allowed evaluates the published check as the API has it.
func allowed(t *testing.T, raw json.RawMessage, v rights.Version, has holds) bool {
	var p struct {
		User  string
		Check []any
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		t.Fatal(err)
	}
	return p.User != "" || tree(p.Check, v, has)
}

func tree(check []any, v rights.Version, has holds) bool {
	list := func(i int) []any {
		l, _ := check[i].([]any)
		return l
	}
	anyOf := func(privs []any, path string) bool {
		return slices.ContainsFunc(privs, func(p any) bool { return has(rename(fmt.Sprint(p), v), path) })
	}
	switch check[0] {
	case "and":
		for i := 1; i < len(check); i++ {
			if !tree(list(i), v, has) {
				return false
			}
		}
		return true
	case "or":
		for i := 1; i < len(check); i++ {
			if tree(list(i), v, has) {
				return true
			}
		}
		return false
	case "perm":
		path := fmt.Sprint(check[1])
		if slices.Contains(check[3:], any("any")) {
			return anyOf(list(2), path)
		}
		return !slices.ContainsFunc(list(2), func(p any) bool { return !has(rename(fmt.Sprint(p), v), path) })
	case "perm-modify":
		return !slices.ContainsFunc(rights.Places(), func(p rights.Place) bool { return !has("Permissions.Modify", p.Path()) }) // on the path that is changed
	case "userid-param":
		return check[len(check)-1] != "self" && has("Realm.AllocateUser", "/access/realm")
	case "userid-group":
		return anyOf(list(1), "/access/groups")
	case "explicit":
		return true
	}
	return false
}

func capabilities(kinds []gate.Kind) []string {
	var out []string
	for _, k := range kinds {
		if c := gate.RowOf(k).Capability; c != "" && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// beyondTokens are operations that no role makes possible for a token.
func beyondTokens(op *catalog.Operation) bool {
	return op.Facts.NoToken || len(op.Facts.Permissions) == 0 || string(op.Facts.Permissions) == "null"
}

// coded are the further checks that the catalogue knows of by parameter: "VM.Config.CPU on /vms/{vmid}".
func coded(a asked) [][2]string {
	var out [][2]string
	for _, line := range a.judge.Privileges {
		if p, path, ok := strings.Cut(line, " on "); ok && strings.HasPrefix(path, "/") && !strings.ContainsAny(p+path, " ") {
			out = append(out, [2]string{p, path})
		}
	}
	return out
}

// suffices says whether rights carry a request through on a version.
func suffices(t *testing.T, a asked, v rights.Version, all []rights.Right) string {
	has := granted(all)
	if !allowed(t, json.RawMessage(a.op.Facts.Permissions), v, has) {
		return string(a.op.Facts.Permissions)
	}
	for _, c := range coded(a) {
		if strings.HasPrefix(c[0], "VM.") && !has(rename(c[0], v), c[1]) {
			return c[0] + " on " + c[1]
		}
	}
	return ""
}

// TestTheTableSuffices: whatever kinds a request falls under, what the table names for the capabilities of these kinds, with
// reading, passes the checks that the API publishes, on 8 and on 9.
func TestTheTableSuffices(t *testing.T) {
	n := 0
	for _, a := range everyRequest(t) {
		enabled := capabilities(a.judge.Kinds)
		if beyondTokens(a.op) || len(enabled) == 0 || slices.Contains(a.judge.Kinds, gate.KindUnknown) {
			continue
		}
		for _, v := range rights.Versions() {
			n++
			if a.op.ID == "POST /nodes/{node}/qemu/{vmid}/agent" && !slices.Contains(enabled, "exec") {
				continue // takes the privilege for everything; each of its commands has an operation of its own
			}
			if missing := suffices(t, a, v, slices.Concat(rights.Reading(v), rights.OfCapabilities(enabled, v))); missing != "" {
				t.Errorf("%v on %v with %v: not enough for %s", a, v, enabled, missing)
			}
		}
	}
	if n < 1000 {
		t.Errorf("only %d requests were tried", n)
	}
}

// TestTheTableIsNarrow: each right of each capability is needed by some request of it, published or named here as checked
// in the products' code.
func TestTheTableIsNarrow(t *testing.T) {
	of := map[string][]asked{} // capability → requests that take it
	for _, a := range everyRequest(t) {
		if beyondTokens(a.op) {
			continue
		}
		for _, c := range capabilities(a.judge.Kinds) {
			of[c] = append(of[c], a)
		}
	}
	inCode := map[string]string{
		"VM.Backup":                  "vzdump, and the backups of a guest in a storage",
		"Datastore.AllocateSpace":    "new disks, backups, uploads",
		"SDN.Use":                    "the bridge of a network card",
		"Mapping.Use":                "mapped devices; testing a target of notices",
		"VM.Replicate":               "replication jobs",
		"Sys.Console":                "HA",
		"VM.Config.Cloudinit":        "options of cloud-init",
		"VM.GuestAgent.Unrestricted": "the agent",
		"Permissions.Modify":         "entries of the access list",
		"Datastore.Allocate":         "volumes of others",
		// For a rollback alone VM.Snapshot.Rollback is the narrower of two; options of a new guest are checked like changed ones.
		"VM.PowerMgmt": "bulk actions",
		"VM.Migrate":   "bulk actions",
	}
	for _, v := range rights.Versions() {
		for _, c := range gate.Capabilities() {
			all := rights.OfCapabilities([]string{c}, v)
			for _, r := range all {
				if inCode[r.Privilege] != "" || c == "create" && strings.HasPrefix(r.Privilege, "VM.Config.") || r.Privilege == "VM.Snapshot.Rollback" ||
					slices.Contains([]string{"probe", "command", "enrol", "read_file"}, c) || // castellan's own, by way of the agent
					c == "restore" && r.Privilege == "VM.Allocate" { // making a guest is checked in code, and restoring has no other call
					continue
				}
				needed := slices.ContainsFunc(of[c], func(a asked) bool {
					enabled := capabilities(a.judge.Kinds)
					own := slices.DeleteFunc(slices.Clone(all), func(x rights.Right) bool { return x == r })
					others := slices.DeleteFunc(enabled, func(x string) bool { return x == c })
					return suffices(t, a, v, slices.Concat(rights.Reading(v), own, rights.OfCapabilities(others, v))) != ""
				})
				if !needed {
					t.Errorf("%v: capability %s names %s at %s, which nothing of it asks for", v, c, r.Privilege, r.Place)
				}
			}
		}
	}
}

// TestVersions: what a version knows, and what it is called.
func TestVersions(t *testing.T) {
	for text, want := range map[string]string{"9.0.0~11": "9.0", "9.1.4": "9.1", "8.4.1": "8.4", "8.4-1": "8.4", "9": "9.0", "10.0~beta1": "10.0"} {
		if v, err := rights.ParseVersion(text); err != nil || v.String() != want {
			t.Errorf("%q: %v %v, not %s", text, v, err, want)
		}
	}
	if _, err := rights.ParseVersion("pve-manager"); err == nil {
		t.Error("a word is taken for a version")
	}
	for _, v := range rights.Versions() {
		for _, c := range append(gate.Capabilities(), "") {
			all := rights.OfCapabilities([]string{c}, v)
			if len(all) == 0 && c != "" && !slices.Contains(rights.Borrowing(), c) {
				t.Errorf("%v: capability %s takes nothing", v, c)
			}
			for _, r := range append(all, rights.Reading(v)...) {
				if !slices.Contains(rights.Privileges(v), r.Privilege) {
					t.Errorf("%v: capability %s takes %s, which that version does not know", v, c, r.Privilege)
				}
			}
		}
	}
}
