package estate

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"castellan/internal/gate"
)

// keepView makes conditions of what a lab answers, and calls what it does not know what the gate calls it.
type keepView struct{ *labView }

func (v keepView) Keep(_ string, c *gate.Condition, data json.RawMessage) error {
	c.Rule, c.Lines = gate.RuleSame, []string{string(data)}
	return nil
}

// TestDefinitions: what a request names, and what its effect reaches through, is held by few reads; what cannot be read is said.
func TestDefinitions(t *testing.T) {
	l := newLab(t, "small")
	for _, c := range []struct {
		method, path string
		form         url.Values
	}{
		{"POST", "/access/groups", url.Values{"groupid": {"made"}}},
		{"POST", "/pools", url.Values{"poolid": {"made"}}},
		{"POST", "/pools", url.Values{"poolid": {"made/below"}}},
		{"POST", "/cluster/backup", url.Values{"id": {"made"}, "pool": {"made"}, "schedule": {"sat 03:00"}, "enabled": {"0"}, "storage": {"local"}}},
		{"POST", "/cluster/firewall/aliases", url.Values{"name": {"made"}, "cidr": {"10.1.0.0/24"}}},
		{"POST", "/cluster/firewall/ipset", url.Values{"name": {"made"}}},
		{"POST", "/cluster/firewall/ipset/made", url.Values{"cidr": {"dc/made"}}},
		{"POST", "/cluster/sdn/zones", url.Values{"zone": {"made"}, "type": {"vlan"}, "bridge": {"vmbr0"}}},
		{"POST", "/cluster/sdn/vnets", url.Values{"vnet": {"made"}, "zone": {"made"}, "tag": {"7"}}},
	} {
		l.change(t, c.method, c.path, c.form)
	}
	for _, c := range []struct {
		operation string
		params    map[string]string
		hide      string // what may not be read
		want      []string
		unread    string
		most      int // reads
	}{
		{"PUT /access/acl", map[string]string{"path": "/vms/103", "groups": "made", "roles": "PVEVMUser"}, "", []string{"group made has the same members", "role PVEVMUser is as it was"}, "", 2},
		{"PUT /access/acl", map[string]string{"path": "/vms/103", "groups": "made", "roles": "PVEVMUser"}, "/access/groups/made", []string{"role PVEVMUser is as it was"}, "group made has the same members until then could not be read", 2},
		{"PUT /cluster/backup/{id}", map[string]string{"id": "made", "enabled": "1"}, "", []string{"backup made is as it was", "pool made holds the same members", "pool made/below holds the same members", "storage local keeps backups as it did"}, "", 5},
		{"PUT /cluster/backup/{id}", map[string]string{"id": "made", "vmid": "103"}, "", []string{"backup made is as it was", "storage local keeps backups as it did"}, "", 2},
		{"PUT /cluster/backup/{id}", map[string]string{"id": "made", "vmid": "103", "prune-backups": "keep-last=3"}, "", []string{"backup made is as it was"}, "", 1},
		{"PUT /cluster/backup/{id}", map[string]string{"id": "made", "enabled": "1"}, "/cluster/backup/made", nil, "backup made is as it was until then could not be read", 1},
		{"POST /cluster/firewall/rules", map[string]string{"type": "in", "action": "ACCEPT", "source": "+dc/made,10.0.0.1", "dest": "MADE"}, "", []string{"ipset made is as it was", "ipset made has the same entries", "alias made stands for the same"}, "", 3},
		{"POST /cluster/firewall/rules", map[string]string{"type": "in", "action": "ACCEPT", "source": "+nobody"}, "", []string{"ipset nobody is as it was"}, "", 1},
		{"POST /cluster/sdn/vnets/{vnet}/subnets", map[string]string{"vnet": "made", "subnet": "10.9.0.0/24"}, "", []string{"vnets made is as it was", "SDN zone made is as it was"}, "", 2},
		{"POST /nodes/{node}/qemu", map[string]string{"node": "pve1", "vmid": "700", "pool": "made", "net0": "virtio,bridge=vmbr0"}, "", nil, "", 1},
		{"POST /nodes/{node}/qemu", map[string]string{"node": "pve1", "vmid": "700", "net0": "virtio,bridge=made"}, "", []string{"vnet made is as it was", "SDN zone made is as it was"}, "", 3},
		{"POST /nodes/{node}/qemu/{vmid}/status/start", map[string]string{"node": "pve1", "vmid": "103"}, "", nil, "", 0},
		{"PUT /pools", map[string]string{"poolid": "made", "vms": "103"}, "", nil, "", 0},
	} {
		t.Run(fmt.Sprint(c.operation, c.params, c.hide), func(t *testing.T) {
			l.hide = func(path string) bool { return c.hide != "" && path == c.hide }
			l.count()
			r := gate.Request{Product: "pve", Operation: c.operation}
			for k, v := range c.params {
				r.Params = append(r.Params, gate.Param{Name: k, Values: []gate.Value{{Text: v}}})
			}
			held, unread := New().Definitions(t.Context(), keepView{l}, "lab", r, nil)
			var names []string
			for _, h := range held {
				names = append(names, h.Name)
			}
			slices.Sort(names)
			slices.Sort(c.want)
			if !slices.Equal(names, c.want) {
				t.Errorf("held %q, want %q", names, c.want)
			}
			if text := strings.Join(unread, "; "); (c.unread == "") != (text == "") || !strings.Contains(text, c.unread) {
				t.Errorf("unread %q, want %q", text, c.unread)
			}
			if n := l.count(); n > c.most {
				t.Errorf("%d reads, want at most %d", n, c.most)
			}
		})
	}
}

// serverView is a Backup Server that answers what it is given.
type serverView struct {
	keepView
	answers map[string]string
}

func (v serverView) Target(name string) (gate.TargetInfo, error) {
	return gate.TargetInfo{Name: name, Product: "pbs"}, nil
}

func (v serverView) Read(_ context.Context, _ string, r gate.Read) (gate.Answer, error) {
	text, there := v.answers[r.Operation+" "+r.Params["id"]+r.Params["name"]]
	if !there {
		return gate.Answer{}, &gate.UpstreamError{Kind: gate.ErrUnavailable, Message: "not now"}
	}
	return gate.Answer{Data: json.RawMessage(text)}, nil
}

// TestDefinitionsOfABackupServer: the run of a job rests on the job, and whatever names a remote server on what that is.
func TestDefinitionsOfABackupServer(t *testing.T) {
	v := serverView{keepView{newLab(t, "small")}, map[string]string{
		"GET /config/sync/{id} j":     `{"id":"j","store":"s","remote":"r","remote-store":"x","remove-vanished":false}`,
		"GET /config/prune/{id} p":    `{"id":"p","store":"s","keep-last":3}`,
		"GET /config/remote/{name} r": `{"name":"r","host":"192.0.2.7"}`,
	}}
	for _, c := range []struct{ operation, param, text, want string }{
		{"POST /admin/sync/{id}/run", "id", "j", "sync job j is as it was; remote r is as it was | "},
		{"POST /admin/prune/{id}/run", "id", "p", "prune job p is as it was | "},
		{"PUT /config/sync/{id}", "id", "j", "remote r is as it was | "},
		{"POST /pull", "remote", "r", "remote r is as it was | "},
		{"POST /pull", "remote", "q", " | remote q is as it was until then could not be read"},
		{"POST /admin/datastore/{store}/gc", "store", "s", " | "},
	} {
		r := gate.Request{Product: "pbs", Operation: c.operation, Params: []gate.Param{{Name: c.param, Values: []gate.Value{{Text: c.text}}}}}
		held, unread := New().Definitions(t.Context(), v, "backups", r, nil)
		var names []string
		for _, h := range held {
			names = append(names, h.Name)
		}
		if got := strings.Join(names, "; ") + " | " + strings.Join(unread, "; "); !strings.HasPrefix(got, c.want) || c.want == " | " && got != c.want {
			t.Errorf("%s %s: %q, want %q", c.operation, c.text, got, c.want)
		}
	}
}
