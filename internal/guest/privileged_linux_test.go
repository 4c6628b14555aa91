//go:build linux

package guest

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/guestlab"
	"castellan/internal/lane"
)

// A privileged container is the node, on both sides and for real: what castellan's lanes let through counts as a run on the node,
// the bridge refuses it where its lanes of the host are shut, and where they are open it runs and is marked.
func TestRealPrivilegedContainer(t *testing.T) {
	shut := newRealGuests(t, `"probe"`, guestlab.Guest{}, guestlab.Guest{Unprivileged: true})
	open := newRealGuests(t, `"probe", "command", "script"`, guestlab.Guest{})
	anywhere := lane.Scope{Guests: []string{"*"}}
	runs := []struct {
		word   string
		params map[string]any
		kind   gate.Kind
	}{
		{"command", map[string]any{"command": []string{"echo", "in"}}, gate.KindHostCommand},
		{"script", map[string]any{"script": "echo in; cat /proc/self/uid_map\n"}, gate.KindHost},
		{"write-file", map[string]any{"path": "/root/note", "content": "x\n", "expect": "absent"}, gate.KindHost},
		{"probe", map[string]any{"probe": "load"}, gate.KindHostProbe},
	}
	judged := func(r *real, word string, params map[string]any) gate.LaneVerdict {
		t.Helper()
		l, err := NewLanes(LanesConfig{Targets: []string{"lab"}, Bridges: r.bridges,
			Settings: LaneSettings{Scripts: anywhere, Files: anywhere, Commands: []lane.Rule{{Guests: []string{"*"}, Argv: "echo <word>"}}}})
		if err != nil {
			t.Fatal(err)
		}
		facts := []gate.ObjectFacts{{Object: gate.Object{Kind: gate.ObjectGuest, ID: strconv.Itoa(r.ct.ID)}, Use: gate.UseActs, Known: true}}
		return l.Judge(t.Context(), siteView{s: r.site}, "lab", r.request(t, word, params), facts)
	}
	for _, c := range runs {
		if said := judged(open[0], c.word, c.params); said.Refused != "" || !slices.Contains(said.Kinds, c.kind) || !strings.Contains(said.Note, "counts as the node itself") {
			t.Errorf("%s in a privileged container: %+v", c.word, said)
		}
		if said := judged(shut[1], c.word, c.params); said.Refused != "" || len(said.Kinds) > 0 {
			t.Errorf("%s in one that is not: %+v", c.word, said)
		}
		if c.word == "probe" {
			continue
		}
		res, err := carry(t, shut[0].runner, shut[0].request(t, c.word, c.params), nextID())
		if !notStarted(err) || !strings.Contains(err.Error(), "privileged") {
			t.Errorf("%s, with the lanes of the host shut: %+v %v", c.word, res, err)
		}
	}
	if out := shut[0].ct.Exec(t, "ls", "/root/note"); out.Code == 0 {
		t.Error("the file was written")
	}
	for _, c := range runs {
		id := nextID()
		res, err := carry(t, open[0].runner, open[0].request(t, c.word, c.params), id)
		if err != nil || !res.OK && c.word != "write-file" {
			t.Errorf("%s, with the lanes of the host open: %+v %v", c.word, res, err)
		}
		if c.word == "script" && (!strings.HasPrefix(res.Stdout, "in\n") || !strings.Contains(strings.Join(strings.Fields(res.Stdout), " "), "0 0 4294967295")) {
			t.Errorf("it did not run as root of the node: %q", res.Stdout)
		}
		if !markedRoot(t, id) {
			t.Errorf("%s is not marked", c.word)
		}
	}
	// What its configuration says does not make it less: castellan believes it, and the bridge does not.
	lying := shut[0]
	lying.site.conf["unprivileged"] = "1"
	conf, err := os.ReadFile(lying.ct.ConfigFile())
	if err == nil {
		err = os.WriteFile(lying.ct.ConfigFile(), append([]byte("unprivileged: 1\n"), bytes.ReplaceAll(conf, []byte("unprivileged: 0\n"), nil)...), 0o640)
	}
	if err != nil {
		t.Fatal(err)
	}
	if res, err := carry(t, lying.runner, lying.request(t, "script", map[string]any{"script": "echo in\n"}), nextID()); !notStarted(err) || !strings.Contains(err.Error(), "privileged") {
		t.Errorf("one that calls itself unprivileged: %+v %v", res, err)
	}
	id := nextID()
	if res, err := carry(t, shut[1].runner, shut[1].request(t, "script", map[string]any{"script": "echo in\n"}), id); err != nil || !res.OK || markedRoot(t, id) {
		t.Errorf("an unprivileged one beside it: %+v %v", res, err)
	}
}

// markedRoot says whether the record of the bridge marks an ask as root of the node.
func markedRoot(t *testing.T, id string) bool {
	t.Helper()
	text, err := os.ReadFile(bridgeLog)
	if err != nil {
		t.Fatal(err)
	}
	lines, marked := 0, 0
	for line := range bytes.Lines(text) {
		var e struct {
			ID   string `json:"id"`
			Root bool   `json:"root_on_host"`
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		if e.ID == id {
			lines++
			if e.Root {
				marked++
			}
		}
	}
	if lines == 0 {
		t.Errorf("%s is not in the record", id)
	}
	return marked > 0
}
