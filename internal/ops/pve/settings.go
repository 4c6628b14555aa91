package pve

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// base takes the number off an indexed key: net0 → net.
func base(key string) string { return strings.TrimRight(key, "0123456789") }

// diskKey says whether a key holds a volume, and its base.
func diskKey(key string) (string, bool) {
	switch b := base(key); b {
	case "scsi", "virtio", "sata", "ide", "efidisk", "tpmstate", "unused", "mp":
		return b, b != key
	case "rootfs":
		return b, true
	}
	return "", false
}

// nameless is the key that the first, nameless element of a property string stands for. A key that is absent here
// holds no property string.
var nameless = map[string]string{
	"net": "model", "scsi": "file", "virtio": "file", "sata": "file", "ide": "file", "efidisk": "file", "tpmstate": "file", "unused": "file",
	"rootfs": "volume", "mp": "volume", "dev": "path", "agent": "enabled", "cpu": "cputype", "vga": "type", "machine": "type", "memory": "current",
	"startup": "order", "boot": "legacy", "features": "", "hostpci": "host", "usb": "host", "ipconfig": "", "numa": "", "smbios": "", "watchdog": "model",
	"rng": "source", "audio": "device", "virtiofs": "dirid", "spice_enhancements": "", "ivshmem": "", "amd-sev": "type", "intel-tdx": "type", "meta": "",
}

// models are the network models that stand as key of the MAC address in a VM's net property.
var models = []string{"e1000", "e1000-82540em", "e1000-82544gc", "e1000-82545em", "e1000e", "i82551", "i82557b", "i82559er", "ne2k_isa", "ne2k_pci", "pcnet",
	"rtl8139", "virtio", "vmxnet3"}

// properties reads a property string into its keys, whatever their order and whichever way they are written. It
// answers nil for a key that holds none.
func properties(key, value string) map[string]string {
	first, is := nameless[base(key)]
	if !is {
		return nil
	}
	out := map[string]string{}
	for i, part := range strings.Split(value, ",") {
		part = strings.TrimSpace(part)
		name, v, named := strings.Cut(part, "=")
		switch {
		case part == "":
		case !named && i == 0 && first != "":
			out[first] = part
		case named && name == "volume" && first == "file":
			out["file"] = v
		case named && base(key) == "net" && slices.Contains(models, name):
			out["model"], out["macaddr"] = name, strings.ToUpper(v)
		case named && (name == "macaddr" || name == "hwaddr"):
			out[name] = strings.ToUpper(v)
		case named:
			out[name] = v
		default:
			out[part] = ""
		}
	}
	return out
}

// offByDefault are switches whose absence means 0.
var offByDefault = map[string]bool{"onboot": true, "protection": true, "template": true, "autostart": true}

// sameSetting says whether two values of a key mean the same to Proxmox: numbers as text, a description with the
// newline that containers add, tags in another order, property strings in another order or spelling.
func sameSetting(key, a, b string) bool {
	if a, b = strings.Trim(a, " "), strings.Trim(b, " "); a == b { // a lone blank is how an emptied list reads back
		return true
	}
	switch key {
	case "description":
		return strings.TrimRight(a, "\n") == strings.TrimRight(b, "\n")
	case "tags":
		return slices.Equal(tagList(a), tagList(b))
	}
	if offByDefault[key] {
		return orZero(a) == orZero(b)
	}
	if x, err := strconv.ParseFloat(a, 64); err == nil {
		if y, err := strconv.ParseFloat(b, 64); err == nil {
			return x == y
		}
	}
	if a == "" || b == "" {
		return false
	}
	if p := properties(key, a); p != nil {
		return maps.Equal(p, properties(key, b))
	}
	return false
}

func orZero(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

// tagList is a tag list as Proxmox stores it: lower case, sorted, each once.
func tagList(s string) []string {
	l := estate.Tags(strings.ToLower(s))
	slices.Sort(l)
	return slices.Compact(l)
}

// secretKeys are settings whose values nobody is shown.
var secretKeys = []string{"cipassword", "password"}

func masked(key, value string) string {
	if value != "" && slices.Contains(secretKeys, key) {
		return "(hidden)"
	}
	return clip(value, 400)
}

func unionKeys(a, b estate.Config) []string {
	all := map[string]bool{}
	for k := range a {
		all[k] = true
	}
	for k := range b {
		all[k] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// rootOnly tells why only root@pam itself may set this key to this value, whatever a role grants; empty = others may.
func rootOnly(kind, key, value string) string {
	switch key {
	case "args", "hookscript", "lock", "skiplock", "affinity":
		return key + " may be set by root@pam only"
	}
	p := properties(key, value)
	switch b := base(key); {
	case kind == estate.CT && (b == "mp" || b == "rootfs") && strings.HasPrefix(p["volume"], "/"):
		return key + " is a bind mount of the host's " + clip(p["volume"], 80) + ", which only root@pam may set"
	case kind == estate.CT && b == "dev":
		return key + " passes a host device through, which only root@pam may set"
	case kind == estate.CT && key == "features":
		for _, name := range slices.Sorted(maps.Keys(p)) {
			if name != "nesting" {
				return "features: " + clip(name, 40) + " may be set by root@pam only; nesting is the one that others may set"
			}
		}
	case kind == estate.VM && b == "serial" && strings.HasPrefix(value, "/"):
		return key + " opens a host device, which only root@pam may set"
	case kind == estate.VM && b == "parallel":
		return key + " opens a host device, which only root@pam may set"
	case kind == estate.VM && (b == "usb" || b == "hostpci") && p["mapping"] == "" && p["host"] != "" && !strings.HasPrefix(p["host"], "spice"):
		return key + " passes a host device through without a mapping, which only root@pam may set; use mapping=NAME"
	}
	return ""
}

// mayNotSet refuses what castellan's own user cannot do there, before anything is planned.
func (s *site) mayNotSet(kind string, set map[string]string) error {
	if s.rootUser() {
		return nil
	}
	var why []string
	for _, k := range slices.Sorted(maps.Keys(set)) {
		if w := rootOnly(kind, k, set[k]); w != "" {
			why = append(why, w)
		}
	}
	if len(why) == 0 {
		return nil
	}
	user := s.inv.Target.User
	if user == "" {
		user = "an API token"
	}
	return gate.Fail(gate.ErrDenied, "No role gives this to another user or to a token: leave it out, or do it on the host as root.",
		"%s (castellan is %s there)", strings.Join(why, "; "), user)
}

// settingText writes a value of a settings map as the text that is sent.
func settingText(key string, v any) (string, error) {
	switch x := v.(type) {
	case string:
		if strings.TrimSpace(x) == "" {
			return "", gate.Fail(gate.ErrInvalid, "Leave it out, or take the setting away with delete.", "%s is empty", clip(key, 40))
		}
		return x, nil
	case bool:
		if x {
			return "1", nil
		}
		return "0", nil
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64), nil
	case nil:
		return "", gate.Fail(gate.ErrInvalid, "Leave it out, or take the setting away with delete.", "%s is null", clip(key, 40))
	case map[string]any:
		return propertyText(key, x)
	case []any:
		var parts []string
		for _, e := range x {
			t, err := settingText(key, e)
			if err != nil {
				return "", err
			}
			parts = append(parts, t)
		}
		return strings.Join(parts, ";"), nil
	}
	return "", gate.Fail(gate.ErrInvalid, "Give a text, a number, true or false.", "%s has a value of an unknown form", clip(key, 40))
}

// propertyText writes an object as property string, the key that may stand first in front.
func propertyText(key string, m map[string]any) (string, error) {
	first := nameless[base(key)]
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		t, err := settingText(key+"."+k, m[k])
		if err != nil {
			return "", err
		}
		if strings.ContainsAny(t, ",\n") {
			return "", gate.Fail(gate.ErrInvalid, "Give the whole setting as text.", "%s.%s holds a comma or line break, which ends a property", clip(key, 40), clip(k, 40))
		}
		if k == first || first == "file" && k == "volume" {
			parts = slices.Insert(parts, 0, k+"="+t)
			continue
		}
		parts = append(parts, k+"="+t)
	}
	return strings.Join(parts, ","), nil
}

// settingTexts writes a whole map, or says what is wrong with it.
func settingTexts(set map[string]any) (map[string]string, error) {
	out := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(set)) {
		t, err := settingText(k, set[k])
		if err != nil {
			return nil, err
		}
		if k == "tags" {
			t = strings.Join(tagList(t), ";")
		}
		out[k] = t
	}
	return out, nil
}
