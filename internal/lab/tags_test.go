package lab

import (
	"strings"
	"testing"
)

// TestTagRules: what others may tag is judged by what they type; what is kept is in small letters, unless letters count.
func TestTagRules(t *testing.T) {
	l := newLab(t, "small")
	const config = "/nodes/pve1/qemu/103/config"
	options := func(form ...string) {
		t.Helper()
		if r := ask(t, l, "admin", "PUT", "/cluster/options", form...); r.Status != 200 {
			t.Fatal(r.Raw)
		}
	}
	options("registered-tags", "agent-ok")
	if r := ask(t, l, "admin", "POST", "/access/users", "userid", "owner@pve"); r.Status != 200 {
		t.Fatal(r.Raw)
	}
	r := ask(t, l, "admin", "POST", "/access/users/owner@pve/token/tags", "privsep", "0")
	data, _ := r.Data.(map[string]any)
	secret, _ := data["value"].(string)
	if secret == "" {
		t.Fatal(r.Raw)
	}
	if r := ask(t, l, "admin", "PUT", "/access/acl", "path", "/vms/103", "users", "owner@pve", "roles", "PVEVMAdmin"); r.Status != 200 {
		t.Fatal(r.Raw)
	}
	as := func(tags string) reply {
		return ask(t, l, "PVEAPIToken=owner@pve!tags="+secret, "PUT", config, "tags", tags)
	}
	kept := func() string {
		data, _ := ask(t, l, "admin", "GET", config).Data.(map[string]any)
		text, _ := data["tags"].(string)
		return text
	}
	for _, c := range []struct{ style, access, typed, kept string }{
		{"", "", "agent-ok", ""},
		{"", "", "Agent-OK", "agent-ok"},
		{"", "", "mine\u00a0Yours", "mine;yours"},
		{"", "user-allow=existing", "Agent-OK", ""},
		{"", "user-allow=list,user-allow-list=Mine", "Mine", "mine"},
		{"", "user-allow=list,user-allow-list=Mine", "mine", ""},
		{"", "user-allow=none", "mine", ""},
		{"case-sensitive=1", "user-allow=free", "Agent-OK", "Agent-OK"},
		{"case-sensitive=1", "user-allow=free", "agent-ok", ""},
	} {
		if r := ask(t, l, "admin", "PUT", config, "delete", "tags"); r.Status != 200 {
			t.Fatal(r.Raw)
		}
		if c.access != "" {
			options("user-tag-access", c.access)
		}
		if c.style != "" {
			options("tag-style", c.style)
		}
		r := as(c.typed)
		if refused := strings.Contains(r.Reason, "Sys.Modify for modifying tag"); refused != (c.kept == "") || kept() != c.kept {
			t.Errorf("%+v: %d %s, kept %q", c, r.Status, r.Reason, kept())
		}
	}
	options("user-tag-access", "user-allow=free", "delete", "tag-style")
	ask(t, l, "admin", "PUT", config, "tags", "agent-ok;mine")
	if r := as("mine"); !strings.Contains(r.Reason, "agent-ok") {
		t.Errorf("a registered tag was taken away: %d %s", r.Status, r.Reason)
	}
	if r := as("agent-ok;other"); r.Status != 200 || kept() != "agent-ok;other" {
		t.Errorf("beside a registered tag: %d %s, kept %q", r.Status, r.Reason, kept())
	}
}
