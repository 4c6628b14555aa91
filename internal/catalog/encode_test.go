package catalog

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"castellan/internal/gate"
)

func TestEncode(t *testing.T) {
	c := open(t)
	for _, tc := range []struct {
		product, id string
		args        map[string]any
		want        Encoded
	}{
		{"pve", "GET /nodes/{node}/tasks", map[string]any{"node": "pve1", "limit": 5, "typefilter": "vzdump"},
			Encoded{Method: "GET", Path: "/nodes/pve1/tasks", Query: "limit=5&typefilter=vzdump"}},
		{"pve", setCT, guest(map[string]any{"description": "a b&c=d;e+f\n", "delete": "tags"}),
			Encoded{Method: "PUT", Path: "/nodes/pve1/lxc/100/config", Body: "delete=tags&description=a%20b%26c%3Dd%3Be%2Bf%0A", ContentType: "application/x-www-form-urlencoded"}},
		{"pve", "DELETE /nodes/{node}/storage/{storage}/content/{volume}", map[string]any{"node": "pve1", "storage": "local", "volume": "local:iso/a.iso"},
			Encoded{Method: "DELETE", Path: "/nodes/pve1/storage/local/content/local%3Aiso%2Fa.iso"}},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/agent/exec", guest(map[string]any{"command": []any{"ls", "-l"}}),
			Encoded{Method: "POST", Path: "/nodes/pve1/qemu/100/agent/exec", Body: "command=ls&command=-l", ContentType: "application/x-www-form-urlencoded"}},
		{"pve", "PUT /pools", map[string]any{"poolid": "team/dev", "vms": "100"},
			Encoded{Method: "PUT", Path: "/pools", Body: "poolid=team%2Fdev&vms=100", ContentType: "application/x-www-form-urlencoded"}},
		{"pve", setVM, guest(map[string]any{"sshkeys": "ssh-rsa A b"}),
			Encoded{Method: "PUT", Path: "/nodes/pve1/qemu/100/config", Body: "sshkeys=ssh-rsa%2520A%2520b", ContentType: "application/x-www-form-urlencoded"}},
		{"pdm", "POST /sdn/zones", map[string]any{"zone": "z1x", "vrf-vxlan": 100, "remotes": []any{map[string]any{"remote": "site1", "controller": "c1"}}},
			Encoded{Method: "POST", Path: "/sdn/zones", Body: `{"remotes":[{"controller":"c1","remote":"site1"}],"vrf-vxlan":100,"zone":"z1x"}`, ContentType: "application/json"}},
	} {
		r, problems := c.Check(lookup(t, c, tc.product, tc.id), tc.args)
		if len(problems) > 0 {
			t.Errorf("%s: %v", tc.id, problems)
			continue
		}
		got, err := c.Encode(r, nil)
		if err != nil {
			t.Errorf("%s: %v", tc.id, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.id, diff)
		}
	}
}

func TestEncodeOpensSealedValues(t *testing.T) {
	c := open(t)
	h := &gate.Handle{ID: "s1", Before: "apitoken=", After: ",host=h"}
	r := gate.Request{Product: "pve", Operation: "POST /nodes/{node}/qemu/{vmid}/remote_migrate", Params: []gate.Param{
		{Name: "node", Values: []gate.Value{{Text: "pve1"}}}, {Name: "target-endpoint", Values: []gate.Value{{Secret: h}}}, {Name: "vmid", Values: []gate.Value{{Text: "100"}}}}}
	if _, err := c.Encode(r, nil); err == nil {
		t.Error("a sealed value was sent without being opened")
	}
	got, err := c.Encode(r, func(h gate.Handle) (string, error) { return "secret of " + h.ID, nil })
	if err != nil || got.Body != "target-endpoint=apitoken%3Dsecret%20of%20s1%2Chost%3Dh" {
		t.Error(got.Body, err)
	}
	if _, err := c.Encode(r, func(gate.Handle) (string, error) { return "", errors.New("gone") }); err == nil {
		t.Error("a value that cannot be opened was sent")
	}
}

func TestEncodeRefuses(t *testing.T) {
	c := open(t)
	text := func(name string, values ...string) gate.Param {
		p := gate.Param{Name: name}
		for _, v := range values {
			p.Values = append(p.Values, gate.Value{Text: v})
		}
		return p
	}
	for name, r := range map[string]gate.Request{
		"slash in a path value":  {Product: "pve", Operation: setVM, Params: []gate.Param{text("node", "pve1"), text("vmid", "100/config")}},
		"dots in a path value":   {Product: "pve", Operation: setVM, Params: []gate.Param{text("node", ".."), text("vmid", "100")}},
		"empty path value":       {Product: "pve", Operation: setVM, Params: []gate.Param{text("node", ""), text("vmid", "100")}},
		"path value missing":     {Product: "pve", Operation: setVM, Params: []gate.Param{text("node", "pve1")}},
		"path value twice":       {Product: "pve", Operation: setVM, Params: []gate.Param{text("node", "pve1", "pve2"), text("vmid", "100")}},
		"parameter twice":        {Product: "pve", Operation: setVM, Params: []gate.Param{text("node", "pve1"), text("vmid", "100"), text("cores", "1"), text("cores", "2")}},
		"empty part of a volume": {Product: "pve", Operation: "DELETE /nodes/{node}/storage/{storage}/content/{volume}", Params: []gate.Param{text("node", "a"), text("storage", "b"), text("volume", "c:d//e")}},
		"leading dot on PBS":     {Product: "pbs", Operation: "POST /admin/datastore/{store}/gc", Params: []gate.Param{text("store", ".x")}},
		"no such operation":      {Product: "pve", Operation: "GET /nope"},
		"not resolved": {Product: "pve", Operation: setVM, Params: []gate.Param{text("node", "pve1"),
			{Name: "vmid", Values: []gate.Value{{Ref: &gate.Ref{Step: 1, Plan: "100"}}}}}},
	} {
		if e, err := c.Encode(r, nil); err == nil {
			t.Errorf("%s: sent as %+v", name, e)
		}
	}
	_, err := c.Encode(gate.Request{Product: "pve", Operation: "POST /nodes/{node}/storage/{storage}/upload"}, nil)
	if !errors.Is(err, ErrTransfer) {
		t.Error("an upload is not a transfer:", err)
	}
}

func TestPrivileges(t *testing.T) {
	c := open(t)
	for _, tc := range []struct {
		product, id string
		args        map[string]any
		want        []string
	}{
		{"pve", "POST /nodes/{node}/qemu/{vmid}/status/start", guest(nil), []string{"VM.PowerMgmt on /vms/100"}},
		{"pve", "GET /nodes/{node}/qemu/{vmid}/config", guest(nil), []string{"VM.Audit on /vms/100"}},
		{"pve", "DELETE /nodes/{node}/qemu/{vmid}/snapshot/{snapname}", guest(map[string]any{"snapname": "s1"}), []string{"VM.Snapshot on /vms/100"}},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/clone", guest(map[string]any{"newid": 200}), []string{"VM.Allocate on /vms/200", "VM.Clone on /vms/100"}},
		{"pve", "POST /nodes/{node}/qemu/{vmid}/clone", guest(map[string]any{"newid": 200, "pool": "dev"}), []string{"VM.Allocate on /vms/200 or VM.Allocate on /pool/dev", "VM.Clone on /vms/100"}},
		{"pve", "PUT /access/password", map[string]any{"userid": "a@pve", "password": "geheim99"},
			[]string{"a login with password or ticket; an API token is refused",
				"being that user or Realm.AllocateUser on /access/realm/pve and User.Modify on /access/groups"}},
		{"pve", "POST /cluster/acme/account", map[string]any{"contact": "a@b.c"}, []string{rootItself}},
		{"pve", "GET /version", nil, nil},
		{"pve", setCT, guest(map[string]any{"mp0": "/etc,mp=/x", "tags": "a"}),
			[]string{"VM.Config.Disk on /vms/100", "VM.Config.Disk or VM.Config.CPU or VM.Config.Memory or VM.Config.Network or VM.Config.Options on /vms/100",
				"VM.Config.Options on /vms/100", "mp0 as a path of the host: " + rootItself}},
		{"pbs", "POST /admin/datastore/{store}/gc", map[string]any{"store": "s1x"}, []string{"Datastore.Modify on /datastore/s1x"}},
		{"pmg", "GET /config/acme/account", nil, []string{"role admin or audit"}},
		{"pdm", "POST /pve/remotes/{remote}/qemu/{vmid}/stop", map[string]any{"remote": "site1", "vmid": 100}, []string{"Resource.Manage on /resource/site1/guest/100"}},
	} {
		op := lookup(t, c, tc.product, tc.id)
		r, problems := c.Check(op, tc.args)
		if len(problems) > 0 {
			t.Errorf("%s: %v", tc.id, problems)
			continue
		}
		if diff := cmp.Diff(tc.want, c.Privileges(op, r)); diff != "" {
			t.Errorf("%s: %s", tc.id, diff)
		}
	}
}
