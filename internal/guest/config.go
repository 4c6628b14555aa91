package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"castellan/internal/frame"
	"castellan/internal/gate"
)

// configured is what a guest's configuration says of it now.
type configured struct {
	template   bool
	privileged bool     // a container whose root is the host's
	agent      bool     // of a VM: the guest agent is switched on
	windows    bool     // of a VM
	root       string   // of a container: the volume of its root
	mac        string   // of its first network card
	uuid       string   // of a VM: SMBIOS
	cards      []string // hardware addresses of its network cards, sorted
	name       string
}

// configRead asks for the configuration of a guest as it is in force.
func configRead(o opened) gate.Request {
	kind := "lxc"
	if o.where == frame.VM {
		kind = "qemu"
	}
	return gate.Request{Product: "pve", Operation: "GET /nodes/{node}/" + kind + "/{vmid}/config", Params: []gate.Param{
		{Name: "current", Values: []gate.Value{{Text: "1"}}}, {Name: "node", Values: []gate.Value{{Text: o.node}}}, {Name: "vmid", Values: []gate.Value{{Text: strconv.Itoa(o.vmid)}}}}}
}

func readConfig(where frame.Where, data json.RawMessage) (configured, error) {
	var raw map[string]any
	if err := json.Unmarshal(data, &raw); err != nil || len(raw) == 0 {
		return configured{}, errors.New("read configuration: it is empty, or no object")
	}
	text := func(key string) string {
		switch v := raw[key].(type) {
		case string:
			return v
		case float64:
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
		return ""
	}
	c := configured{cards: hardware(text, raw), template: text("template") == "1", name: bounded(text("name")+text("hostname"), 80)}
	if where == frame.CT {
		c.privileged = text("unprivileged") != "1"
		volume, _, _ := strings.Cut(text("rootfs"), ",")
		c.root = strings.TrimPrefix(volume, "volume=")
		c.mac = firstMAC(text, raw, "hwaddr=")
		return c, nil
	}
	c.windows = strings.HasPrefix(text("ostype"), "win") || strings.HasPrefix(text("ostype"), "w2k") || text("ostype") == "wxp" || text("ostype") == "wvista"
	c.agent = agentOn(text("agent"))
	for part := range strings.SplitSeq(text("smbios1"), ",") {
		if v, ok := strings.CutPrefix(part, "uuid="); ok {
			c.uuid = v
		}
	}
	return c, nil
}

// agentOn reads "1", "enabled=1,fstrim_cloned_disks=1".
func agentOn(text string) bool {
	for i, part := range strings.Split(text, ",") {
		if v, ok := strings.CutPrefix(part, "enabled="); ok || i == 0 && !strings.Contains(part, "=") {
			if !ok {
				v = part
			}
			return v == "1" || v == "yes" || v == "on" || v == "true"
		}
	}
	return false
}

// hardware are the addresses of all network cards: "name=eth0,hwaddr=BC:…" of a container, "virtio=BC:…,bridge=vmbr0" of a VM.
func hardware(text func(string) string, raw map[string]any) (out []string) {
	for name := range raw {
		if n := strings.TrimPrefix(name, "net"); n == name || strings.Trim(n, "0123456789") != "" {
			continue
		}
		for part := range strings.SplitSeq(text(name), ",") {
			_, value, _ := strings.Cut(part, "=")
			if a, err := net.ParseMAC(value); err == nil && len(a) == 6 && !slices.Contains(out, a.String()) {
				out = append(out, a.String())
			}
		}
	}
	slices.Sort(out)
	return out
}

// firstMAC is the hardware address of the network card with the lowest number.
func firstMAC(text func(string) string, raw map[string]any, key string) string {
	first, at := "", -1
	for name := range raw {
		n, err := strconv.Atoi(strings.TrimPrefix(name, "net"))
		if !strings.HasPrefix(name, "net") || err != nil || at >= 0 && n > at {
			continue
		}
		mac := ""
		for part := range strings.SplitSeq(text(name), ",") {
			if v, ok := strings.CutPrefix(part, key); ok {
				mac = v
			}
		}
		first, at = mac, n
	}
	return first
}

// identify puts into a place what tells the guest from a later one of its id.
func (c configured) identify(p *frame.Place) error {
	p.Root, p.MAC, p.UUID = c.root, c.mac, c.uuid
	if p.Root == "" && p.MAC == "" && p.UUID == "" {
		return fmt.Errorf("guest %d has nothing that tells it from a later one of its id: no root volume, no network card, no SMBIOS uuid", p.VMID)
	}
	return nil
}
