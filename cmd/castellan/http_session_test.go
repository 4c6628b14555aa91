package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/mcpserver"
)

// TestSessionsAreBounded: a caller who opens ever more loses its own idle ones, and cannot take the place of others that
// work.
func TestSessionsAreBounded(t *testing.T) {
	w := newWeb(t, emptyHouse(t), func(c *mcpserver.HTTPConfig) { c.SessionsPerCaller, c.Sessions = 3, 5 })
	w.give("other", agentCaller("other", "eve", gate.RoleOperator))
	other := []string{"Authorization", "Bearer other"}
	theirs := w.open(t, "{}", other...)
	var mine []string
	for range 8 {
		mine = append(mine, w.open(t, "{}"))
	}
	for i, id := range mine {
		want := 404
		if i >= len(mine)-3 {
			want = 200
		}
		if r := w.request(t, "POST", ping, "Mcp-Session-Id", id); r.status != want {
			t.Errorf("session %d answers %d", i, r.status)
		}
	}
	if r := w.request(t, "POST", ping, append([]string{"Mcp-Session-Id", theirs}, other...)...); r.status != 200 || w.http.SessionCount() != 4 {
		t.Errorf("the session of another answers %d; %d are open", r.status, w.http.SessionCount())
	}
	for i := range 20 { // many callers: the sum is bounded too
		token := fmt.Sprint("t", i)
		w.give(token, agentCaller(token, "eve", gate.RoleOperator))
		w.open(t, "{}", "Authorization", "Bearer "+token)
	}
	if n := w.http.SessionCount(); n != 5 {
		t.Errorf("%d sessions are open", n)
	}
	for range 50 { // what begins no session leaves none behind
		w.request(t, "POST", ping)
		w.request(t, "POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":7}`)
	}
	if n := w.http.SessionCount(); n != 5 {
		t.Errorf("%d sessions are open", n)
	}
}

// TestIdleSessionsEnd: one that nobody uses is gone, and so is every one after a restart.
func TestIdleSessionsEnd(t *testing.T) {
	h := emptyHouse(t)
	w := newWeb(t, h, func(c *mcpserver.HTTPConfig) { c.SessionIdle = 400 * time.Millisecond })
	id := w.open(t, "{}")
	for range 4 {
		time.Sleep(150 * time.Millisecond)
		if r := w.request(t, "POST", ping, "Mcp-Session-Id", id); r.status != 200 {
			t.Fatalf("a session in use answers %d", r.status)
		}
	}
	for deadline := time.Now().Add(patience); w.http.SessionCount() > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("an idle session stays")
		}
	}
	if r := w.request(t, "POST", ping, "Mcp-Session-Id", id); r.status != 404 {
		t.Errorf("then: %d", r.status)
	}
	before, after := newWeb(t, h, nil), newWeb(t, h, nil)
	if r := after.request(t, "POST", ping, "Mcp-Session-Id", before.open(t, "{}")); r.status != 404 {
		t.Errorf("after a restart: %d", r.status)
	}
}

// TestSlowBody: a body that does not come is not waited for.
func TestSlowBody(t *testing.T) {
	w := newWeb(t, emptyHouse(t), func(c *mcpserver.HTTPConfig) { c.BodyTime = 300 * time.Millisecond })
	host := strings.TrimSuffix(strings.TrimPrefix(w.url, "http://"), "/mcp")
	c, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: 1000\r\n\r\n{", host)
	_ = c.SetReadDeadline(time.Now().Add(patience))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.Contains(line, "408") {
		t.Errorf("%q %v", line, err)
	}
}

// TestResumeOverHTTP: a client whose stream breaks reads on where it was and gets the result once.
func TestResumeOverHTTP(t *testing.T) {
	s := newSite(t, lab.Config{Delays: true}, all())
	w := newWeb(t, siteHouse(t, s), nil)
	w.give("other", agentCaller("other", "eve", gate.RoleOperator))
	id := w.open(t, "{}")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	body := `{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"_meta":{"progressToken":"p"},"name":"backup_guest","arguments":{"guest":101,"storage":"nas"}}}`
	req, err := http.NewRequestWithContext(ctx, "POST", w.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Session-Id": id, "MCP-Protocol-Version": "2025-11-25"} {
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	last, seen := "", 0
	for lines := bufio.NewScanner(res.Body); seen < 2 && lines.Scan(); {
		if event, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			last = event
			seen++
		}
	}
	_ = res.Body.Close() // broken
	if last == "" {
		t.Fatal("no event had an id")
	}
	if r := w.request(t, "GET", "", "Mcp-Session-Id", id, "Last-Event-ID", last, "Authorization", "Bearer other"); r.status != 404 {
		t.Errorf("another caller reads on: %d %s", r.status, bounded(r.body))
	}
	var got []message
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		r := w.request(t, "GET", "", "Mcp-Session-Id", id, "Last-Event-ID", last, "MCP-Protocol-Version", "2025-11-25")
		if r.status == 409 && time.Now().Before(deadline) { // the break is not noticed yet
			continue
		}
		if r.status != 200 {
			t.Fatalf("%d %s", r.status, r.body)
		}
		got = r.messages
		break
	}
	results := 0
	for _, m := range got {
		if string(m.ID) == `"call"` {
			results++
			if a := toolAnswer(t, m); a.IsError || a.Structured.Status != "done" {
				t.Errorf("%+v", a)
			}
		}
	}
	if results != 1 || s.asked("POST", "/vzdump") != 1 {
		t.Errorf("%d results, %d writes", results, s.asked("POST", "/vzdump"))
	}
}

// TestListChangesOverHTTP: a client hears when settings change what it was listed, in both eras.
func TestListChangesOverHTTP(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		s := newSite(t, lab.Config{}, "")
		w := newWeb(t, siteHouse(t, s), nil)
		heard := make(chan struct{}, 10)
		cs := w.client(t, version, "", &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { heard <- struct{}{} }})
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		list := func() (names []string) {
			l, err := cs.ListTools(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, tool := range l.Tools {
				names = append(names, tool.Name)
			}
			return names
		}
		before := list()
		s.write(t, strings.Replace(s.text(t), "[policy]", "[policy]\n"+all(), 1))
		for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
			called(t, cs, &mcp.CallToolParams{Name: "list_nodes"})
			if len(heard) > 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: nothing was heard", version)
			}
		}
		if after := list(); len(after) <= len(before) {
			t.Errorf("%s: %d tools before, %d after", version, len(before), len(after))
		}
		cancel()
	}
}

// TestManyAtOnceOverHTTP: sessions that come and go while others work lose nothing.
func TestManyAtOnceOverHTTP(t *testing.T) {
	w := newWeb(t, siteHouse(t, newSite(t, lab.Config{}, "")), func(c *mcpserver.HTTPConfig) { c.SessionsPerCaller, c.Sessions = 20, 20 })
	var group sync.WaitGroup
	for i := range 12 {
		group.Go(func() {
			token := fmt.Sprint("t", i%4)
			w.give(token, agentCaller(token, "ann", gate.RoleOperator))
			as := []string{"Authorization", "Bearer " + token}
			for n := range 6 {
				id := w.open(t, "{}", as...)
				for k := range 3 {
					body := strings.Replace(callBody("list_nodes", "{}"), `"id":7`, fmt.Sprintf(`"id":"%d-%d"`, n, k), 1)
					r := w.request(t, "POST", body, append([]string{"Mcp-Session-Id", id}, as...)...)
					if r.status != 200 || string(r.answer().ID) != fmt.Sprintf(`"%d-%d"`, n, k) {
						t.Errorf("%d %s", r.status, bounded(r.body))
					}
				}
				if r := w.modern(t, "tools/call", map[string]any{"name": "list_nodes", "arguments": map[string]any{}}, nil, as...); r.status != 200 {
					t.Errorf("%d %s", r.status, bounded(r.body))
				}
				if r := w.request(t, "DELETE", "", append([]string{"Mcp-Session-Id", id}, as...)...); r.status != 204 {
					t.Errorf("delete: %d", r.status)
				}
			}
		})
	}
	group.Wait()
	if n := w.http.SessionCount(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}
