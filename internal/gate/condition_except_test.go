package gate

import (
	"encoding/json"
	"testing"
)

// Rows that are excepted do not count; what is not told of a row excepts it from nothing.
func TestConditionsExcept(t *testing.T) {
	c := Condition{Name: "nobody else runs", Where: map[string]string{"node": "pve1"}, Except: map[string][]string{"status": {"stopped"}, "vmid": {"101"}, "template": {"1"}}, Pointer: "/id", Rule: RuleAbsent}
	for list, want := range map[string]string{
		`[]`: "",
		`[{"id":"qemu/101","vmid":101,"node":"pve1","status":"running"},{"id":"lxc/200","vmid":200,"node":"pve1","status":"stopped"},{"id":"qemu/9","vmid":9,"node":"pve1","template":1}]`: "",
		`[{"id":"lxc/200","vmid":200,"node":"pve2","status":"running"}]`:                                              "",
		`[{"id":"lxc/200","vmid":200,"node":"pve1","status":"running","template":0}]`:                                 "lxc/200",
		`[{"id":"lxc/200","vmid":200,"node":"pve1"}]`:                                                                 "lxc/200",
		`[{"id":"lxc/201","node":"pve1","status":"unknown"},{"id":"qemu/101","vmid":101,"node":"pve1"}]`:              "lxc/201",
		`[{"id":"lxc/1010","vmid":1010,"node":"pve1","status":"running"},{"id":"qemu/101","vmid":101,"node":"pve1"}]`: "lxc/1010",
	} {
		got, found, err := c.find(json.RawMessage(list))
		if err != nil || got != want || found != (want != "") {
			t.Errorf("%s: %q %t %v, want %q", list, got, found, err, want)
		}
	}
}
