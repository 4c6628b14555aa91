package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/lab"
)

// all is a policy under which everything may be done and a phrase stands in for a person.
func all() string {
	b, _ := json.Marshal(gate.Capabilities()) // names have a JSON form, which is TOML too
	return "capabilities = " + string(b) + "\nstand_in = \"phrase\"\n"
}

func TestHandshakes(t *testing.T) {
	s := newSite(t, lab.Config{}, all())
	for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			r := startRaw(t, s.env(), "serve")
			m := r.initialize(version)
			var got struct {
				ProtocolVersion string
				Instructions    string
				Capabilities    map[string]any
				ServerInfo      struct{ Name, Version string }
			}
			if m.Error != nil || json.Unmarshal(m.Result, &got) != nil || got.ProtocolVersion != version || got.ServerInfo.Name != "castellan" {
				t.Fatalf("initialize answered %s %v", m.Result, m.Error)
			}
			if n := len(got.Instructions); n == 0 || n > 2000 {
				t.Errorf("instructions have %d characters", n)
			}
			for k := range got.Capabilities {
				if k != "tools" && k != "prompts" {
					t.Errorf("capability %s is declared", k)
				}
			}
			if m := r.ask("ping", map[string]any{}); m.Error != nil {
				t.Errorf("ping: %v", m.Error)
			}
			for _, method := range []string{"resources/list", "logging/setLevel", "completion/complete", "no/such"} {
				if m := r.ask(method, map[string]any{}); m.Error == nil || m.Error.Code != -32601 {
					t.Errorf("%s: %+v", method, m)
				}
			}
			if m := r.ask("prompts/list", map[string]any{}); m.Error != nil || strings.Count(string(m.Result), `"title"`) != 5 {
				t.Errorf("prompts/list: %s %+v", m.Result, m.Error)
			}
			if m := r.ask("prompts/get", map[string]any{"name": "why_slow", "arguments": map[string]any{"guest": "202"}}); m.Error != nil || !strings.Contains(string(m.Result), "diagnose_guest for guest") {
				t.Errorf("prompts/get: %s %+v", m.Result, m.Error)
			}
			if m := r.ask("prompts/get", map[string]any{"name": "why_slow", "arguments": map[string]any{}}); m.Error == nil || m.Error.Code != -32602 {
				t.Errorf("prompts/get without its argument: %+v", m)
			}
			if a := r.call("list_nodes", nil); a.IsError || a.Structured.Status != "answer" || a.Content[0].Type != "text" {
				t.Errorf("list_nodes: %+v", a)
			}
			if code := r.end(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
	t.Run("unknown version", func(t *testing.T) {
		r := startRaw(t, s.env(), "serve")
		m := r.initialize("1999-01-01")
		if m.Error != nil || !strings.Contains(string(m.Result), `"protocolVersion":"2025-11-25"`) {
			t.Errorf("%s %v", m.Result, m.Error)
		}
	})
	t.Run("2026-07-28", func(t *testing.T) {
		r := startRaw(t, s.env(), "serve")
		meta := map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": map[string]any{"name": "raw", "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": map[string]any{}}
		m := r.ask("server/discover", map[string]any{"_meta": meta})
		if m.Error != nil || !strings.Contains(string(m.Result), "2026-07-28") || !strings.Contains(string(m.Result), "2024-11-05") {
			t.Fatalf("server/discover: %s %+v", m.Result, m.Error)
		}
		m = r.ask("tools/list", map[string]any{"_meta": meta})
		var list struct {
			CacheScope string
			TTLMs      *int
			ResultType string
		}
		if m.Error != nil || json.Unmarshal(m.Result, &list) != nil || list.CacheScope != "private" || list.TTLMs == nil || list.ResultType != "complete" {
			t.Errorf("tools/list: %.200s %+v", m.Result, m.Error)
		}
		a := r.result(r.ask("tools/call", map[string]any{"_meta": meta, "name": "list_nodes", "arguments": map[string]any{}}))
		if a.IsError || a.ResultType != "complete" {
			t.Errorf("list_nodes: %+v", a)
		}
		meta["io.modelcontextprotocol/protocolVersion"] = "2027-01-01"
		if m = r.ask("tools/list", map[string]any{"_meta": meta}); m.Error == nil {
			t.Errorf("a version of the future is taken: %.200s", m.Result)
		}
		if code := r.end(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
}

// TestBadLines: what is no message is answered, and the next one is served.
func TestBadLines(t *testing.T) {
	s := newSite(t, lab.Config{}, "")
	r := startRaw(t, s.env(), "serve")
	r.initialize("2025-06-18")
	long := `{"jsonrpc":"2.0","id":9,"method":"ping","params":{"x":"` + strings.Repeat("a", 5<<20) + `"}}`
	for _, c := range []struct {
		line string
		code int
	}{
		{"nonsense", -32700}, {`{"jsonrpc":"2.0","id":1,`, -32700}, {"\x00\x01", -32700}, {`{"id":3,"method":"ping"}`, -32600}, {`"text"`, -32600}, {"17", -32600}, {"null", -32600},
		{"[]", -32600}, {`[1]`, -32600}, {`{"jsonrpc":"1.0","id":3,"method":"ping"}`, -32600}, {`{"jsonrpc":"2.0","id":{},"method":"ping"}`, -32600},
		{`{"jsonrpc":"2.0","id":4,"method":7}`, -32600}, {`{"jsonrpc":"2.0"}`, -32600}, {long, -32600},
	} {
		r.send(c.line)
		m := r.next()
		if m.Error == nil || m.Error.Code != c.code || string(m.ID) != "null" {
			t.Errorf("%.60q answered %+v", c.line, m)
		}
	}
	r.send("")
	r.send("   \r")
	r.send("{\"jsonrpc\":\"2.0\",\"id\":\"crlf\",\"method\":\"ping\"}\r")
	if m := r.next(); string(m.ID) != `"crlf"` || m.Error != nil {
		t.Errorf("ping: %+v", m)
	}
	r.send(`[{"jsonrpc":"2.0","id":"b1","method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":"b2","method":"ping"}]`)
	ids := map[string]bool{string(r.next().ID): true, string(r.next().ID): true}
	if !ids[`"b1"`] || !ids[`"b2"`] {
		t.Errorf("the batch was answered as %v", ids)
	}
	r.send(`{"jsonrpc":"2.0","id":77,"result":{}}`) // an answer to nothing that was asked
	if m := r.ask("ping", map[string]any{}); m.Error != nil {
		t.Errorf("ping: %+v", m.Error)
	}
	for name, says := range map[string]string{"list_guest": "did you mean list_guests", "nosuchthing": "find_operation", "": "unknown tool"} {
		m := r.ask("tools/call", map[string]any{"name": name, "arguments": map[string]any{}})
		if m.Error == nil || m.Error.Code != -32602 || !strings.Contains(m.Error.Message, says) {
			t.Errorf("tool %q: %+v", name, m)
		}
	}
	if code := r.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestOneAnswer: every request has exactly one answer, whatever its id, and every call asks the API once.
func TestOneAnswer(t *testing.T) {
	s := newSite(t, lab.Config{}, all())
	r := startRaw(t, s.env(), "serve")
	r.initialize("2025-11-25")
	r.call("guest_status", map[string]any{"guest": "101"}) // whatever is asked once per process is over after this
	s.lab.ResetRequests()
	ids := []string{`1000`, `"1000"`, `0`, `-5`, `"a b"`, `"é"`, `9007199254740991`, `""`}
	for _, id := range ids {
		r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"call_operation","arguments":{"operation":"GET /version"}}}`)
	}
	got := map[string]int{}
	for range ids {
		got[string(r.next().ID)]++
	}
	for _, id := range ids {
		if got[id] != 1 {
			t.Errorf("id %s was answered %d times (%v)", id, got[id], got)
		}
	}
	if n := s.asked("GET", "/version"); n != len(ids) || n != len(s.lab.Requests()) {
		t.Errorf("%d calls asked the API %d times: %v", len(ids), n, s.lab.Requests())
	}
	r.end()
	if len(r.seen) != 2+len(ids) { // initialize, guest_status
		t.Errorf("%d lines on stdout for %d requests", len(r.seen), 2+len(ids))
	}
	s.lab.ResetRequests()
	r = startRaw(t, s.env(), "serve")
	r.initialize("2025-11-25")
	if a := r.call("snapshot_guest", map[string]any{"guest": 101, "name": "once"}); a.Structured.Status != "done" {
		t.Fatalf("snapshot_guest: %+v", a)
	}
	r.end()
	if n := s.asked("POST", ""); n != 1 {
		t.Errorf("one snapshot sent %d writes", n)
	}
}

// TestForgivenArguments: what models get wrong harmlessly is taken, the rest is refused with a code and the next step.
func TestForgivenArguments(t *testing.T) {
	s := newSite(t, lab.Config{}, all())
	r := startRaw(t, s.env(), "serve")
	r.initialize("2025-06-18")
	for _, guest := range []any{101, "101", "db"} {
		if a := r.call("guest_status", map[string]any{"guest": guest}); a.IsError {
			t.Errorf("guest %v: %s", guest, a.Content[0].Text)
		}
	}
	for name, args := range map[string]any{
		"object as text":  map[string]any{"guest": "101", "set": `{"cores":4,"memory":"4096"}`, "plan_only": "true"},
		"object":          map[string]any{"guest": 101, "set": map[string]any{"cores": "3", "memory": 5120}, "plan_only": true, "reason": "because"},
		"list as text":    map[string]any{"guest": 101, "delete": `["description"]`, "set": map[string]any{"cores": 3}, "plan_only": true},
		"one for a list":  map[string]any{"guest": 101, "delete": "description", "set": map[string]any{"cores": 3}, "plan_only": 1},
		"null for absent": map[string]any{"guest": 101, "delete": nil, "set": map[string]any{"cores": 3}, "plan_only": true, "target": nil, "reason": nil},
	} {
		a := r.call("set_guest_config", args)
		if a.IsError || a.Structured.Plan == nil || a.Structured.Receipt != nil {
			t.Errorf("%s: %s", name, a.Content[0].Text)
		}
		if name == "object" && a.Structured.Plan.Reason != "because" {
			t.Errorf("the reason is lost: %+v", a.Structured.Plan)
		}
	}
	whole := map[string]any{"name": "guest_status", "arguments": `{"guest":101}`}
	if a := r.result(r.ask("tools/call", whole)); a.IsError {
		t.Errorf("arguments as JSON text: %s", a.Content[0].Text)
	}
	writes := s.asked("POST", "") + s.asked("PUT", "") + s.asked("DELETE", "")
	for _, c := range []struct {
		tool string
		args any
		kind string
		says string
	}{
		{"guest_status", map[string]any{"guest": "web"}, "invalid", "107"},
		{"guest_status", map[string]any{"guest": "nosuch"}, "not_found", "nosuch"},
		{"guest_status", map[string]any{"guets": 101}, "invalid", `"guest"`},
		{"guest_status", map[string]any{}, "invalid", "guest"},
		{"guest_power", map[string]any{"guest": 101, "action": "stopp"}, "invalid", `"stop"`},
		{"set_guest_config", map[string]any{"guest": 101, "set": map[string]any{"memmory": 4096}}, "invalid", "memory"},
		{"set_guest_config", map[string]any{"guest": 101, "set": map[string]any{"cores": 4}, "plan_only": "perhaps"}, "invalid", "plan_only"},
		{"call_operation", map[string]any{"operation": "GET /nodes/pve1/nosuch"}, "invalid", "/nodes/{node}"},
		{"show_plan", map[string]any{"plan": "p-nosuch"}, "not_found", "p-nosuch"},
		{"list_guests", map[string]any{"target": "nosuch"}, "not_found", "lab"},
		{"call_operation", map[string]any{"operation": "PUT /access/acl", "params": map[string]any{"path": "/", "roles": "Administrator", "tokens": "root@pam!admin"}}, "denied", ""},
	} {
		a := r.call(c.tool, c.args)
		if !a.IsError || a.Structured.Error == nil {
			t.Errorf("%s %v is no error: %.300s", c.tool, c.args, a.Content[0].Text)
			continue
		}
		e := a.Structured.Error
		if e.Kind != c.kind || !strings.Contains(e.Message+e.Hint, c.says) || e.Changed != "nothing" || e.Hint == "" || !strings.HasPrefix(a.Content[0].Text, c.kind+": ") {
			t.Errorf("%s %v: %+v, text %q", c.tool, c.args, *e, a.Content[0].Text)
		}
	}
	if n := s.asked("POST", "") + s.asked("PUT", "") + s.asked("DELETE", ""); n != writes {
		t.Errorf("%d writes were sent by calls that are refused", n-writes)
	}
}

// TestUpstreamErrors: what the API refuses is an error with a code that stays.
func TestUpstreamErrors(t *testing.T) {
	s := newSite(t, lab.Config{}, all())
	r := startRaw(t, s.env(), "serve")
	r.initialize("2025-06-18")
	for _, c := range []struct {
		status int
		reason string
		kinds  string
	}{{403, "Permission check failed (/vms/101, VM.Audit)", "denied"}, {500, "got no worker upid - start worker failed", "unavailable internal"}, {595, "No route to host", "unavailable"},
		{596, "Connection timed out", "unavailable"}, {401, "authentication failure", "denied unavailable"}} {
		s.lab.SetFaults([]lab.Fault{{Kind: "status", Path: "/nodes/pve1/qemu/101/status/current", Status: c.status, Reason: c.reason}})
		a := r.call("call_operation", map[string]any{"operation": "GET /nodes/pve1/qemu/101/status/current"})
		if !a.IsError || a.Structured.Error == nil || !strings.Contains(" "+c.kinds+" ", " "+a.Structured.Error.Kind+" ") || a.Structured.Error.Changed != "nothing" {
			t.Errorf("%d: %s", c.status, a.Content[0].Text)
		}
	}
}

// TestToolsetNames: an unknown name refuses to start, with nothing on stdout.
func TestToolsetNames(t *testing.T) {
	s := newSite(t, lab.Config{}, "")
	for _, name := range []string{"standart", "front,list_gests", "nosuch"} {
		out, errs, code := castellan(t, s.env(), "", "serve", "--toolset", name)
		if code != 2 || out != "" || !strings.Contains(errs, "there is no toolset or operation") {
			t.Errorf("%s: code %d, stdout %q, stderr %q", name, code, out, errs)
		}
	}
	for name, want := range map[string]int{"list_guests,guest_status": 4, "front": 9, "list_guests, front": 10} {
		r := startRaw(t, s.env(), "serve", "--toolset", name)
		r.initialize("2025-06-18")
		if n := len(r.tools()); n != want {
			t.Errorf("%s lists %d tools, not %d", name, n, want)
		}
		r.end()
	}
}

// TestWhatPeopleAskFirst: the tools that a client has without further settings answer what people begin with, and one that it
// does not have is told by an answer, which a model sees, with the call that reaches it.
func TestWhatPeopleAskFirst(t *testing.T) {
	s := newSite(t, lab.Config{}, "")
	r := startRaw(t, s.env(), "serve")
	r.initialize("2025-11-25")
	for name, args := range map[string]map[string]any{"doctor": {}, "site_check": {}, "diagnose_guest": {"guest": "101"}, "backup_freshness": {}, "list_guests": {}} {
		if a := r.call(name, args); a.IsError || a.Structured.Status != "answer" {
			t.Errorf("%s: %+v", name, a)
		}
	}
	a := r.call("estate_graph", map[string]any{})
	if !a.IsError || a.Structured.Error == nil || a.Structured.Error.Kind != "not_found" || !strings.Contains(a.Content[0].Text, `call_operation with operation="estate_graph"`) {
		t.Errorf("a tool of another toolset: %+v", a)
	}
	if a := r.call("call_operation", map[string]any{"operation": "estate_graph"}); a.IsError {
		t.Errorf("the way that was told: %+v", a)
	}
	var found struct {
		Operations []struct {
			Operation string
			Tool      bool
		}
	}
	for _, query := range []string{"what can you do here", "what depends on storage nas", "audit log"} {
		found.Operations = nil
		decode(t, r.call("find_operation", map[string]any{"query": query}).Structured.Answer, &found)
		for _, o := range found.Operations {
			if listed := slices.ContainsFunc(r.tools(), func(tool toolSeen) bool { return tool.Name == o.Operation }); listed != o.Tool {
				t.Errorf("%s: %s is a tool: %v, and it says %v", query, o.Operation, listed, o.Tool)
			}
		}
		if len(found.Operations) == 0 {
			t.Errorf("%s: nothing", query)
		}
	}
	r.end()
	r = startRaw(t, s.env(), "serve", "--toolset", "guest_status")
	r.initialize("2025-11-25")
	if a := r.call("list_guests", map[string]any{}); !a.IsError || !strings.Contains(a.Content[0].Text, "castellan serve --toolset full, or with list_guests") {
		t.Errorf("without the door: %+v", a)
	}
	r.end()
}

// TestBrokenStart: whatever is wrong with the configuration, a client is greeted, sees no tool, and is told file, line and
// key by every call; stderr says it too, and the exit code is not 0.
func TestBrokenStart(t *testing.T) {
	s := newSite(t, lab.Config{}, "")
	good := s.text(t)
	file := filepath.Base(s.config)
	for name, c := range map[string]struct{ text, says string }{
		"no TOML":        {"][", "line 1"},
		"unknown key":    {strings.Replace(good, "token_file", "tokenfile", 1), "token_file"},
		"unexpanded":     {strings.Replace(good, "kind = \"pve\"", "kind = \"${KIND}\"", 1), "${KIND}"},
		"unknown kind":   {strings.Replace(good, "kind = \"pve\"", "kind = \"pvee\"", 1), "pve"},
		"no pin":         {strings.Replace(good, "pins = [", "pins = [\"zz\", ", 1), "key target[0].pins[0]"},
		"bad capability": {strings.Replace(good, "[policy]", "[policy]\ncapabilities = [\"powr\"]", 1), "key policy.capabilities"},
		"token is gone":  {strings.Replace(good, "/token\"", "/nosuch\"", 1), "nosuch"},
		"keys are gone":  {strings.Replace(good, "[store]", "[store]\nkeys = \"/nonexistent/keys\"", 1), "/nonexistent/keys"},
	} {
		s.write(t, c.text)
		r := startRaw(t, s.env(), "serve")
		if m := r.initialize("2025-06-18"); m.Error != nil {
			t.Fatalf("%s: %+v", name, m.Error)
		}
		if tools := r.tools(); len(tools) != 0 {
			t.Errorf("%s: %d tools are listed", name, len(tools))
		}
		for _, tool := range []string{"list_guests", "anything"} {
			a := r.call(tool, nil)
			if !a.IsError || len(a.Content) == 0 || !strings.Contains(a.Content[0].Text, c.says) || !strings.Contains(a.Content[0].Text, file) || name != "keys are gone" && !strings.Contains(a.Content[0].Text, "line ") {
				t.Errorf("%s: %s answered %+v", name, tool, a)
			}
		}
		if code := r.end(); code == 0 || !strings.Contains(r.errs.String(), c.says) {
			t.Errorf("%s: code %d, stderr %q", name, code, r.errs.String())
		}
	}
}

// TestEndOfInput: the end of stdin ends the process, also while a plan runs; another process settles that plan.
func TestEndOfInput(t *testing.T) {
	s := newSite(t, lab.Config{Delays: true}, all())
	r := startRaw(t, s.env(), "serve")
	r.initialize("2025-06-18")
	r.id++
	r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"backup_guest","arguments":{"guest":"101","storage":"nas"}}}`, r.id))
	for deadline := time.Now().Add(patience); s.asked("POST", "/vzdump") == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the backup was never sent")
		}
	}
	if code := r.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	r = startRaw(t, s.env(), "serve")
	r.initialize("2025-06-18")
	var list struct {
		Plans []struct{ Plan, State string }
	}
	if err := json.Unmarshal(r.call("list_plans", nil).Structured.Answer, &list); err != nil || len(list.Plans) != 1 {
		t.Fatalf("plans: %+v %v", list, err)
	}
	s.lab.Drain()
	for deadline := time.Now().Add(patience); ; {
		a := r.call("show_plan", map[string]any{"plan": list.Plans[0].Plan, "wait": 5})
		var view planSeen
		if err := json.Unmarshal(a.Structured.Answer, &view); err != nil {
			t.Fatalf("%v: %s", err, a.Content[0].Text)
		}
		if view.State == "done" {
			break
		}
		if time.Now().After(deadline) || view.State != "paused" && view.State != "applying" {
			t.Fatalf("the plan is %s: %s", view.State, a.Content[0].Text)
		}
	}
	if n := s.asked("POST", "/vzdump"); n != 1 {
		t.Errorf("the backup was sent %d times", n)
	}
}

// toolSeen is a tool as it is listed.
type toolSeen struct {
	Name         string
	Description  string
	InputSchema  json.RawMessage
	OutputSchema json.RawMessage
	Annotations  map[string]any
}

func (r *raw) tools() []toolSeen {
	r.t.Helper()
	m := r.ask("tools/list", map[string]any{})
	var list struct {
		Tools      []toolSeen
		NextCursor string
	}
	if m.Error != nil || json.Unmarshal(m.Result, &list) != nil || list.NextCursor != "" {
		r.t.Fatalf("tools/list: %.300s %+v", m.Result, m.Error)
	}
	return list.Tools
}

// TestChangedSettings: serve takes a changed file up at its next call and tells the client when that changes the list;
// a broken file leaves the old settings in force, and every answer says so.
func TestChangedSettings(t *testing.T) {
	s := newSite(t, lab.Config{}, "capabilities = []\nstand_in = \"phrase\"")
	r := startRaw(t, s.env(), "serve", "--toolset", "full")
	r.initialize("2025-11-25")
	has := func(name string) bool {
		for _, tool := range r.tools() {
			if tool.Name == name {
				return true
			}
		}
		return false
	}
	if !has("guest_power") || has("delete_guest") {
		t.Error("what is off stays listed, but for what destroys")
	}
	a := r.call("snapshot_guest", map[string]any{"guest": 101, "name": "aa"})
	if a.Structured.Error == nil || a.Structured.Error.Kind != "denied" || !strings.Contains(a.Structured.Error.Hint, "capability on snapshot") || !strings.Contains(a.Structured.Error.Hint, "castellan mint --target ") {
		t.Errorf("%+v", a)
	}
	for _, c := range []string{"snapshot", "destroy"} {
		if out, errs, code := castellan(t, s.env(), "", "capability", "on", c); code != 0 {
			t.Fatalf("code %d: %s%s", code, out, errs)
		}
	}
	if a := r.call("snapshot_guest", map[string]any{"guest": 101, "name": "aa"}); a.Structured.Status != "done" {
		t.Errorf("%+v", a)
	}
	told := false
	for deadline := time.Now().Add(patience); !told && time.Now().Before(deadline); {
		r.ask("ping", map[string]any{})
		for _, line := range r.seen {
			told = told || strings.Contains(line, "notifications/tools/list_changed")
		}
	}
	if !told {
		t.Error("the client was not told that the list changed")
	}
	good := s.text(t)
	s.write(t, good+"\nnonsense = [\n")
	for range 2 {
		a := r.call("snapshot_guest", map[string]any{"guest": 102, "plan_only": true})
		if a.IsError || len(a.Structured.Notices) == 0 || !strings.Contains(strings.Join(a.Structured.Notices, " "), "line ") {
			t.Errorf("a broken file: %+v", a)
		}
	}
	if a := r.call("guest_power", map[string]any{"guest": 101, "action": "start"}); !a.IsError {
		t.Errorf("a broken file gave a capability: %+v", a)
	}
	s.write(t, good)
	if a := r.call("list_nodes", nil); a.IsError || len(a.Structured.Notices) != 0 {
		t.Errorf("the mended file: %+v", a)
	}
	if err := os.Remove(s.config); err != nil {
		t.Fatal(err)
	}
	if a := r.call("list_nodes", nil); a.IsError || len(a.Structured.Notices) == 0 {
		t.Errorf("without the file: %+v", a)
	}
	if code := r.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestOffIsSaid: the instructions name what is off, in one line.
func TestOffIsSaid(t *testing.T) {
	s := newSite(t, lab.Config{}, "capabilities = [\"power\"]")
	r := startRaw(t, s.env(), "serve")
	var got struct{ Instructions string }
	if err := json.Unmarshal(r.initialize("2025-11-25").Result, &got); err != nil {
		t.Fatal(err)
	}
	for _, c := range gate.Capabilities() {
		if c != "power" && !strings.Contains(got.Instructions, c) {
			t.Errorf("%s is off and not named: %s", c, got.Instructions)
		}
	}
	if _, off, _ := strings.Cut(got.Instructions, "Off here: "); strings.Contains(off, "power") || len(got.Instructions) > 2000 || strings.Contains(got.Instructions, "\n") {
		t.Errorf("%s", got.Instructions)
	}
}

// TestReaderGone: a client that stops reading and then goes away ends the process in good order.
func TestReaderGone(t *testing.T) {
	s := newSite(t, lab.Config{}, all())
	cmd := command(t, s.env(), "serve")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = out.Close()
	for i := range 3 {
		_, _ = fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", i)
	}
	_ = in.Close()
	kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	err = cmd.Wait()
	if !kill.Stop() || !cmd.ProcessState.Exited() {
		t.Errorf("it did not end by itself: %v %v", err, cmd.ProcessState)
	}
}

// TestCancelledCall: a call that its client gives up ends nothing but itself: the plan goes on and is found.
func TestCancelledCall(t *testing.T) {
	s := newSite(t, lab.Config{Delays: true}, all())
	r := startRaw(t, s.env(), "serve")
	r.initialize("2025-11-25")
	r.send(`{"jsonrpc":"2.0","id":500,"method":"tools/call","params":{"name":"backup_guest","arguments":{"guest":101,"storage":"nas"}}}`)
	for deadline := time.Now().Add(patience); s.asked("POST", "/vzdump") == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the backup was never sent")
		}
	}
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":500,"reason":"the user pressed escape"}}`)
	s.lab.Drain()
	var list struct {
		Plans []struct{ Plan, State string }
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		r.send(`{"jsonrpc":"2.0","id":501,"method":"tools/call","params":{"name":"list_plans","arguments":{}}}`)
		m := r.next()
		for string(m.ID) != "501" {
			m = r.next()
		}
		if err := json.Unmarshal(r.result(m).Structured.Answer, &list); err != nil || len(list.Plans) != 1 {
			t.Fatalf("%+v %v", list, err)
		}
		if list.Plans[0].State == "done" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the plan is %s", list.Plans[0].State)
		}
	}
	if n := s.asked("POST", "/vzdump"); n != 1 {
		t.Errorf("the backup was sent %d times", n)
	}
	r.end()
}

// TestEverything: one tool per API operation, through the same gate; what destroys is unlisted until it can be had.
func TestEverything(t *testing.T) {
	s := newSite(t, lab.Config{}, "capabilities = [\"power\", \"config\"]\nstand_in = \"phrase\"")
	r := startRaw(t, s.env(), "serve", "--toolset", "everything")
	r.initialize("2025-11-25")
	listed := map[string]toolSeen{}
	for _, tool := range r.tools() {
		listed[tool.Name] = tool
	}
	for name, want := range map[string]bool{"pve_get_version": true, "pve_delete_nodes_node_qemu_vmid": false, "pve_get_cluster_resources": true, "pve_put_nodes_node_qemu_vmid_config": true,
		"pve_post_nodes_node_qemu_vmid_status_stop": true, "delete_guest": false} {
		found := false
		for n := range listed {
			found = found || n == name || len(name) > 40 && strings.HasPrefix(n, name[:33])
		}
		if found != want {
			t.Errorf("%s is listed: %v", name, found)
		}
	}
	if a := r.call("pve_get_version", map[string]any{}); a.IsError {
		t.Errorf("%s", a.Content[0].Text)
	}
	if a := r.call("pve_delete_nodes_node_qemu_vmid", map[string]any{"node": "pve1", "vmid": 103}); !a.IsError || a.Structured.Error.Kind != "denied" {
		t.Errorf("an unlisted tool: %s", a.Content[0].Text)
	}
	if a := r.call("pve_get_version", map[string]any{"nosuch": 1}); !a.IsError || a.Structured.Error.Kind != "invalid" {
		t.Errorf("%s", a.Content[0].Text)
	}
	for name := range listed {
		if strings.HasPrefix(name, "pve_post_nodes_node_qemu_vmid_sta") && strings.Contains(listed[name].Description, "status/stop") {
			a := r.call(name, map[string]any{"node": "pve1", "vmid": "101", "reason": "why not"})
			if a.IsError || a.Structured.Status != "needs_approval" || a.Structured.Plan.Reason != "why not" {
				t.Errorf("%s: %s", name, a.Content[0].Text)
			}
		}
	}
	if n := s.asked("DELETE", "") + s.asked("POST", ""); n != 0 {
		t.Errorf("%d writes", n)
	}
}

// TestPipedSessionIsAnswered: what stands before the end of stdin is answered, also when stdin ends at once.
func TestPipedSessionIsAnswered(t *testing.T) {
	s := newSite(t, lab.Config{}, "")
	session := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"pipe","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"list_nodes","arguments":{}}}
`
	out, errs, code := castellan(t, s.env(), session, "serve")
	for _, want := range []string{`"id":1,"result"`, `"id":2,"result"`, `"id":3,"result"`, "pve3"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is not in the answers: %s%s", want, out, errs)
		}
	}
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestWhatIfIsAnsweredWhereItIsOff: who may read the whole site is told all that a refused deed would hit, when no more than
// its plan is asked for. It stays refused, nothing waits, and who sees a part of the site only is not told of the rest.
func TestWhatIfIsAnsweredWhereItIsOff(t *testing.T) {
	reboot := map[string]any{"operation": "POST /nodes/{node}/status", "params": map[string]any{"node": "pve2", "command": "reboot"}, "plan_only": true}
	s := newSite(t, lab.Config{}, "capabilities = []")
	r := startRaw(t, s.env(), "serve")
	r.initialize("2025-11-25")
	for name, args := range map[string]map[string]any{"call_operation": reboot, "guest_power": {"guest": "101", "action": "stop", "plan_only": true}} {
		a := r.call(name, args)
		if !a.IsError || a.Structured.Error.Kind != "denied" || len(a.Structured.Error.Hits) == 0 || !strings.Contains(a.Content[0].Text, "It would hit: ") {
			t.Errorf("%s: %+v", name, a)
		}
		delete(args, "plan_only")
		if a := r.call(name, args); !a.IsError || a.Structured.Error.Kind != "denied" || len(a.Structured.Error.Hits) != 0 {
			t.Errorf("%s, not as a plan only: %+v", name, a)
		}
		args["plan_only"] = true
	}
	if a := r.call("list_plans", map[string]any{}); a.IsError || strings.Contains(string(a.Structured.Answer), `"p-`) {
		t.Errorf("plans wait: %s", a.Structured.Answer)
	}
	r.end()
	s.write(t, s.text(t)+"pools = [\"prod/db\"]\n")
	r = startRaw(t, s.env(), "serve")
	r.initialize("2025-11-25")
	for name, args := range map[string]map[string]any{"call_operation": reboot, "guest_power": {"guest": "101", "action": "stop", "plan_only": true}} {
		if a := r.call(name, args); !a.IsError || a.Structured.Error == nil || len(a.Structured.Error.Hits) != 0 {
			t.Errorf("%s of who sees a part only: %+v", name, a)
		}
	}
	r.end()
	if n := s.asked("POST", "/status"); n != 0 {
		t.Errorf("%d writes were sent", n)
	}
}
