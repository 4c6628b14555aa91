package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"castellan/internal/channel"
	"castellan/internal/frame"
	"castellan/internal/gate"
)

// Reading reads from the API of one target.
type Reading func(ctx context.Context, operation string, params map[string]string) (json.RawMessage, error)

// Viewed reads by a view.
func Viewed(v gate.View, target string) Reading {
	return func(ctx context.Context, operation string, params map[string]string) (json.RawMessage, error) {
		a, err := v.Read(ctx, target, gate.Read{Operation: operation, Params: params})
		return a.Data, err
	}
}

// driven reads by the driver.
func driven(d gate.Driver, target string) Reading {
	return func(ctx context.Context, operation string, params map[string]string) (json.RawMessage, error) {
		r := gate.Request{Product: "pve", Operation: operation}
		for _, name := range []string{"node", "vmid"} {
			r.Params = append(r.Params, gate.Param{Name: name, Values: []gate.Value{{Text: params[name]}}})
		}
		a, err := d.Read(ctx, target, r)
		return a.Data, err
	}
}

// Place is where a guest is: "lxc" or "qemu", node and id.
type Place struct {
	Kind, Node string
	VMID       int
}

// Addresses tells where Proxmox sees a guest: the addresses of its configuration first, then those that it has now. Those of
// network cards that the configuration does not know (of container engines inside, of tunnels) come last. What is told of a
// running guest is the guest's own word: it is tried, and nothing more is taken from it.
func Addresses(ctx context.Context, read Reading, p Place) ([]netip.Addr, error) {
	params := map[string]string{"node": p.Node, "vmid": strconv.Itoa(p.VMID)}
	data, err := read(ctx, "GET /nodes/{node}/"+p.Kind+"/{vmid}/config", params)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	fixed, cards := configured4(data)
	what := "/interfaces"
	if p.Kind == string(frame.VM) {
		what = "/agent/network-get-interfaces"
	}
	live, err := read(ctx, "GET /nodes/{node}/"+p.Kind+"/{vmid}"+what, params)
	if err != nil && len(fixed) == 0 {
		return nil, fmt.Errorf("read the addresses that it has now: %w", err)
	}
	known, others := reported(live, cards)
	var out []netip.Addr
	for _, a := range slices.Concat(fixed, known, others) {
		if a = a.Unmap(); a.IsValid() && channel.Forbidden(a, nil) == "" && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out, nil
}

// configured4 reads the fixed addresses of a configuration, and the hardware addresses of its network cards.
func configured4(data json.RawMessage) (fixed []netip.Addr, cards []string) {
	var raw map[string]any
	_ = json.Unmarshal(data, &raw) // what is none has no addresses
	names := make([]string, 0, len(raw))
	for name := range raw {
		if strings.HasPrefix(name, "net") || strings.HasPrefix(name, "ipconfig") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		text, _ := raw[name].(string)
		for part := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(part, "=")
			switch key {
			case "ip", "ip6":
				if pre, err := netip.ParsePrefix(value); err == nil {
					fixed = append(fixed, pre.Addr())
				}
			case "hwaddr", "virtio", "e1000", "e1000e", "rtl8139", "vmxnet3":
				cards = append(cards, strings.ToLower(value))
			}
		}
	}
	return fixed, cards
}

type reportedCard struct {
	Name      string `json:"name"`
	Hwaddr    string `json:"hwaddr"`
	Hardware  string `json:"hardware-address"`
	Inet      string `json:"inet"`
	Inet6     string `json:"inet6"`
	Addresses []struct {
		Address string `json:"ip-address"`
	} `json:"ip-addresses"`
}

const mostCards = 64

// reported reads the addresses of a running guest as a container's or an agent's answer has them.
func reported(data json.RawMessage, cards []string) (known, others []netip.Addr) {
	var list []reportedCard
	if json.Unmarshal(data, &list) != nil {
		var wrapped struct {
			Result []reportedCard `json:"result"`
		}
		if json.Unmarshal(data, &wrapped) != nil {
			return nil, nil
		}
		list = wrapped.Result
	}
	for _, c := range list[:min(len(list), mostCards)] {
		texts := []string{c.Inet, c.Inet6}
		for _, a := range c.Addresses {
			texts = append(texts, a.Address)
		}
		into := &others
		if slices.Contains(cards, strings.ToLower(c.Hwaddr)) && c.Hwaddr != "" || slices.Contains(cards, strings.ToLower(c.Hardware)) && c.Hardware != "" {
			into = &known
		}
		for _, t := range texts[:min(len(texts), mostCards)] {
			t, _, _ = strings.Cut(t, "/")
			if a, err := netip.ParseAddr(t); err == nil {
				*into = append(*into, a)
			}
		}
	}
	byKind := func(a, b netip.Addr) int { // IPv4 first: it is what most guests are reached by
		switch {
		case a.Is4() && !b.Is4():
			return -1
		case b.Is4() && !a.Is4():
			return 1
		}
		return 0
	}
	slices.SortStableFunc(known, byKind)
	slices.SortStableFunc(others, byKind)
	return known, others
}

// From is the address of this machine from which it would reach the first of the addresses. Nothing is sent.
func From(to []netip.Addr) (netip.Addr, error) {
	var last error = fmt.Errorf("the guest has no address that is known")
	for _, a := range to {
		from, err := channel.Route(a)
		if err == nil && channel.Forbidden(from, nil) == "" {
			return from, nil
		}
		if err == nil {
			err = fmt.Errorf("the route to %s leaves from %s, which no guest can reach", a, from)
		}
		last = err
	}
	return netip.Addr{}, last
}
