package catalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"castellan/internal/gate"
)

const (
	rootItself  = "root@pam itself, which no API token is"
	loginNeeded = "a login with password or ticket; an API token is refused"
)

// Privileges says what Proxmox will ask of the token for this request, as "VM.PowerMgmt on /vms/100". It is a hint:
// the products check more in their code than they publish.
func (c *Catalog) Privileges(op *Operation, r gate.Request) []string {
	var out []string
	if op.Facts.NoToken {
		out = append(out, loginNeeded)
	}
	var perm struct {
		User  string          `json:"user"`
		Check json.RawMessage `json:"check"`
		Or    json.RawMessage `json:"or"`
		And   json.RawMessage `json:"and"`
	}
	raw := op.Facts.Permissions
	switch {
	case op.Foreign:
		return append(out, "not known")
	case len(raw) == 0 || string(raw) == "null":
		return append(out, rootItself)
	case json.Unmarshal(raw, &perm) != nil:
		return append(out, "not known")
	}
	p := privileges{op: op, request: r}
	switch op.Product {
	case "pve":
		var check any
		if json.Unmarshal(perm.Check, &check) == nil {
			out = append(out, p.perl(check)...)
		}
	case "pmg":
		var roles []string
		if json.Unmarshal(perm.Check, &roles) == nil && len(roles) > 0 {
			out = append(out, "role "+strings.Join(roles, " or "))
		}
	default:
		var check any
		if json.Unmarshal(raw, &check) == nil {
			out = append(out, p.rust(check)...)
		}
	}
	out = append(out, p.coded()...)
	slices.Sort(out)
	return slices.Compact(out)
}

type privileges struct {
	op      *Operation
	request gate.Request
}

// fill puts the request's values into a path with placeholders.
func (p privileges) fill(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if name, ok := placeholder(part); ok {
			if v := p.request.Text(name); v != "" {
				parts[i] = v
			}
		}
	}
	return strings.Join(parts, "/")
}

// perl reads PVE's form: ["perm", path, [privileges], "any", 1], ["and", ...], ["or", ...] and a few more.
func (p privileges) perl(check any) []string {
	list, _ := check.([]any)
	if len(list) == 0 {
		return nil
	}
	word, _ := list[0].(string)
	switch word {
	case "and":
		var out []string
		for _, c := range list[1:] {
			out = append(out, p.perl(c)...)
		}
		return out
	case "or":
		var alternatives []string
		for _, c := range list[1:] {
			if all := p.perl(c); len(all) > 0 {
				alternatives = append(alternatives, strings.Join(all, " and "))
			}
		}
		if len(alternatives) == 0 {
			return nil
		}
		return []string{strings.Join(alternatives, " or ")}
	case "perm":
		if len(list) < 3 {
			return nil
		}
		path, _ := list[1].(string)
		any := false
		for i := 3; i+1 < len(list); i += 2 {
			option, _ := list[i].(string)
			any = any || option == "any"
			if need, _ := list[i+1].(string); option == "require_param" && len(p.request.Get(need)) == 0 {
				return nil
			}
		}
		return on(words(list[2]), any, p.fill(path))
	case "perm-modify":
		return []string{"Permissions.Modify on " + orText(p.request.Text("path"), "the path")}
	case "userid-param":
		switch who, _ := list[len(list)-1].(string); who {
		case "self":
			return []string{"being that user"}
		default:
			_, realm, _ := strings.Cut(p.request.Text("userid"), "@")
			return []string{who + " on /access/realm/" + orText(realm, "{realm}")}
		}
	case "userid-group":
		if len(list) < 2 {
			return nil
		}
		return on(words(list[1]), true, "/access/groups")
	}
	return nil
}

// rust reads the form of PBS and PDM: {"check":{"path":[...],"privs":[...],"partial":true}}, {"or":[...]}, {"and":[...]}.
func (p privileges) rust(check any) []string {
	m, _ := check.(map[string]any)
	var out []string
	if c, ok := m["check"].(map[string]any); ok {
		path := "/" + strings.Trim(strings.Join(words(c["path"]), "/"), "/")
		partial, _ := c["partial"].(bool)
		out = append(out, on(words(c["privs"]), partial, p.fill(path))...)
	}
	if all, ok := m["and"].([]any); ok {
		for _, c := range all {
			out = append(out, p.rust(c)...)
		}
	}
	if some, ok := m["or"].([]any); ok {
		var alternatives []string
		for _, c := range some {
			if all := p.rust(c); len(all) > 0 {
				alternatives = append(alternatives, strings.Join(all, " and "))
			}
		}
		if len(alternatives) > 0 {
			out = append(out, strings.Join(alternatives, " or "))
		}
	}
	if _, ok := m["userParam"]; ok {
		out = append(out, "being that user")
	}
	return out
}

func words(v any) []string {
	var out []string
	list, _ := v.([]any)
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func on(privs []string, any bool, path string) []string {
	if len(privs) == 0 {
		return nil
	}
	if any {
		return []string{strings.Join(slices.Compact(privs), " or ") + " on " + path}
	}
	out := make([]string, 0, len(privs))
	for _, p := range privs {
		out = append(out, p+" on "+path)
	}
	return out
}

func orText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// configPrivileges name the privilege that PVE's code asks for per option of a guest's configuration.
var configPrivileges = map[string]string{
	"ide[n]": "VM.Config.Disk", "sata[n]": "VM.Config.Disk", "scsi[n]": "VM.Config.Disk", "virtio[n]": "VM.Config.Disk", "efidisk0": "VM.Config.Disk",
	"tpmstate0": "VM.Config.Disk", "unused[n]": "VM.Config.Disk", "rootfs": "VM.Config.Disk", "mp[n]": "VM.Config.Disk", "cdrom": "VM.Config.CDROM",
	"cores": "VM.Config.CPU", "cpu": "VM.Config.CPU", "cpulimit": "VM.Config.CPU", "cpuunits": "VM.Config.CPU", "numa": "VM.Config.CPU",
	"sockets": "VM.Config.CPU", "vcpus": "VM.Config.CPU", "affinity": "VM.Config.CPU",
	"memory": "VM.Config.Memory", "balloon": "VM.Config.Memory", "shares": "VM.Config.Memory", "swap": "VM.Config.Memory",
	"net[n]": "VM.Config.Network", "hostname": "VM.Config.Network", "nameserver": "VM.Config.Network", "searchdomain": "VM.Config.Network",
	"acpi": "VM.Config.HWType", "hotplug": "VM.Config.HWType", "kvm": "VM.Config.HWType", "machine": "VM.Config.HWType", "scsihw": "VM.Config.HWType",
	"smbios1": "VM.Config.HWType", "tablet": "VM.Config.HWType", "vga": "VM.Config.HWType", "watchdog": "VM.Config.HWType", "audio0": "VM.Config.HWType",
	"rng0": "VM.Config.HWType", "usb[n]": "VM.Config.HWType", "hostpci[n]": "VM.Config.HWType", "serial[n]": "VM.Config.HWType",
	"cicustom": "VM.Config.Cloudinit", "cipassword": "VM.Config.Cloudinit", "citype": "VM.Config.Cloudinit", "ciuser": "VM.Config.Cloudinit",
	"sshkeys": "VM.Config.Cloudinit", "ipconfig[n]": "VM.Config.Cloudinit",
	"description": "VM.Config.Options", "name": "VM.Config.Options", "onboot": "VM.Config.Options", "protection": "VM.Config.Options", "tags": "VM.Config.Options",
	"boot": "VM.Config.Options", "agent": "VM.Config.Options", "ostype": "VM.Config.Options", "startup": "VM.Config.Options", "bios": "VM.Config.Options",
}

// rootOptions are options of guests that PVE takes from root@pam only, whatever the role.
var rootOptions = []string{"args", "lock", "skiplock", "hookscript", "parallel[n]", "ivshmem", "dev[n]", "force-cpu"}

// coded adds what PVE checks in code for guests, by the parameters given.
func (p privileges) coded() []string {
	if p.op.Product != "pve" || p.op.Method == "GET" || !strings.HasPrefix(p.op.Path, "/nodes/{node}/qemu") && !strings.HasPrefix(p.op.Path, "/nodes/{node}/lxc") {
		return nil
	}
	var out []string
	guest := "/vms/" + orText(p.request.Text("vmid"), "{vmid}")
	create := p.op.Method == "POST" && len(p.op.Placeholders) == 1
	config := create || strings.HasSuffix(p.op.Path, "/config")
	if create {
		if pool := p.request.Text("pool"); pool != "" {
			out = append(out, "VM.Allocate on "+guest+" or VM.Allocate on /pool/"+pool)
		} else {
			out = append(out, "VM.Allocate on "+guest)
		}
	}
	for _, param := range p.request.Params {
		_, template, ok := p.op.Schema(param.Name)
		if !ok {
			continue
		}
		for _, v := range param.Values {
			out = append(out, p.option(param.Name, template, v.Text, guest, config)...)
		}
		if slices.Contains(rootOptions, template) {
			out = append(out, fmt.Sprintf("%s: %s", param.Name, rootItself))
		}
	}
	return out
}

// option adds what one option of a guest's configuration asks for.
func (p privileges) option(name, template, text, guest string, config bool) []string {
	var out []string
	if config {
		if priv := configPrivileges[template]; priv != "" && (len(p.op.Placeholders) > 1 || template == "net[n]") {
			out = append(out, priv+" on "+guest)
		}
		if isNameList(template) {
			for _, n := range gate.SplitList(text) {
				if _, t, ok := p.op.Schema(n); ok && configPrivileges[t] != "" {
					out = append(out, configPrivileges[t]+" on "+guest)
				}
			}
		}
	}
	props, ok := p.op.ParseProperty(name, text)
	if !ok {
		if template == "storage" && p.op.Method == "POST" {
			out = append(out, "Datastore.AllocateSpace on /storage/"+text)
		}
		return out
	}
	for _, kv := range props {
		switch {
		case kv.Key == "bridge":
			out = append(out, "SDN.Use on /sdn/zones/localnetwork/"+kv.Value+" (or the bridge's own zone)")
		case isDiskKey(template + "." + kv.Key):
			storage, size, isVolume := strings.Cut(kv.Value, ":")
			switch {
			case strings.HasPrefix(kv.Value, "/"):
				out = append(out, fmt.Sprintf("%s as a path of the host: %s", name, rootItself))
			case isVolume && newVolume.MatchString(size):
				out = append(out, "Datastore.AllocateSpace on /storage/"+storage)
			}
		case template == "features" && kv.Key != "nesting":
			out = append(out, fmt.Sprintf("features other than nesting: %s", rootItself))
		case kv.Key == "mapping":
			kind := strings.TrimRight(strings.TrimPrefix(name, "host"), "0123456789")
			out = append(out, "Mapping.Use on /mapping/"+kind+"/"+kv.Value)
		case template == "hostpci[n]" && kv.Key == "host":
			out = append(out, fmt.Sprintf("%s without a mapping: %s", name, rootItself))
		}
	}
	return out
}
