package lab

import (
	"fmt"
	"strings"
	"testing"
)

// TestVzdumpConf: what a backup does not say is said by its node's file; retention by the storage before it.
func TestVzdumpConf(t *testing.T) {
	l := newLab(t, "small")
	defaults := func(token string, form ...string) map[string]any {
		t.Helper()
		r := ask(t, l, token, "GET", "/nodes/pve1/vzdump/defaults", form...)
		m, _ := r.Data.(map[string]any)
		if m == nil {
			t.Fatalf("%s %v: %d %s %s", token, form, r.Status, r.Reason, r.Raw)
		}
		return m
	}
	archives := func() int {
		t.Helper()
		n := 0
		for _, row := range ask(t, l, "admin", "GET", "/nodes/pve1/storage/local/content", "content", "backup", "vmid", "103").Data.([]any) {
			if strings.Contains(fmt.Sprint(row), "-103-") {
				n++
			}
		}
		return n
	}
	backUp := func() {
		t.Helper()
		if r := ask(t, l, "admin", "POST", "/nodes/pve1/vzdump", "vmid", "103", "storage", "local"); r.Status != 200 {
			t.Fatal(r.Reason)
		}
		l.Drain()
		l.Advance(5e9)
	}
	if ask(t, l, "admin", "PUT", "/storage/local", "delete", "prune-backups"); defaults("admin")["prune-backups"] != "keep-all=1" {
		t.Errorf("a node without a file keeps %v", defaults("admin")["prune-backups"])
	}
	backUp()
	backUp()
	if n := archives(); n < 2 {
		t.Fatalf("%d archives", n)
	}
	if err := l.SetVzdumpConf("pve1", map[string]string{"prune-backups": "keep-last=1", "script": "/root/hook"}); err != nil {
		t.Fatal(err)
	}
	if d := defaults("admin", "storage", "local"); d["prune-backups"] != "keep-last=1" || d["script"] != "/root/hook" || d["storage"] != "local" {
		t.Errorf("%v", d)
	}
	backUp()
	if n := archives(); n != 1 {
		t.Errorf("%d archives are left", n)
	}
	ask(t, l, "admin", "PUT", "/storage/local", "prune-backups", "keep-last=3")
	if d := defaults("admin", "storage", "local"); d["prune-backups"] != "keep-last=3" {
		t.Errorf("%v", d)
	}
	if l.SetVzdumpConf("nowhere", nil) == nil {
		t.Error("a node that is not there has a file")
	}
	if r := ask(t, l, "admin", "GET", "/nodes/pve1/vzdump/defaults", "storage", "nowhere"); r.Status != 500 {
		t.Errorf("%d %s", r.Status, r.Reason)
	}
}
