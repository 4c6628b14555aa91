package proxmox

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
)

const taskUPID = "UPID:pve2:0000020F:00032057:6B0C1290:vzcreate:201:root@pam!full:"

func TestParseUPID(t *testing.T) {
	tests := []struct {
		text string
		want UPID
	}{
		{taskUPID, UPID{Node: "pve2", PID: 0x20f, PStart: 0x32057, Type: "vzcreate", ID: "201", User: "root@pam!full"}},
		{"UPID:pve1:0000020F:000320571:6B0C1290:vzdump::root@pam!full:", UPID{Node: "pve1", PID: 0x20f, PStart: 0x320571, Type: "vzdump", User: "root@pam!full"}},
		{"UPID:pve1:0000020F:00032057:6B0C1290:imgdel:200@local:root@pam:", UPID{Node: "pve1", PID: 0x20f, PStart: 0x32057, Type: "imgdel", ID: "200@local", User: "root@pam"}},
		{"UPID:pve1:0000020F:00032057:6B0C1290:download:debian-12.iso:root@pam:", UPID{Node: "pve1", PID: 0x20f, PStart: 0x32057, Type: "download", ID: "debian-12.iso", User: "root@pam"}},
		{"UPID:backup:0000020F:00032057:0000000A:6B0C1290:verify:store\\x3avm:root@pam!x:", UPID{Long: true, TaskID: 10, Node: "backup", PID: 0x20f, PStart: 0x32057, Type: "verify", ID: "store\\x3avm", User: "root@pam!x"}},
		{"pve:site-a!" + taskUPID, UPID{Product: "pve", Remote: "site-a", Node: "pve2", PID: 0x20f, PStart: 0x32057, Type: "vzcreate", ID: "201", User: "root@pam!full"}},
		{"pbs:b1!UPID:backup:0000020F:00032057:0000000A:6B0C1290:gc:store:root@pam:", UPID{Product: "pbs", Remote: "b1", Long: true, TaskID: 10, Node: "backup", PID: 0x20f, PStart: 0x32057, Type: "gc", ID: "store", User: "root@pam"}},
	}
	for _, tt := range tests {
		got, err := ParseUPID(tt.text)
		if err != nil {
			t.Error(err)
			continue
		}
		tt.want.Text, tt.want.Started = tt.text, time.Unix(0x6B0C1290, 0).UTC()
		if got != tt.want {
			t.Errorf("%s:\n got %+v\nwant %+v", tt.text, got, tt.want)
		}
	}
	for _, bad := range []string{"", "UPID", "UPID:::::::::", strings.TrimSuffix(taskUPID, ":"), taskUPID + "x", "x" + taskUPID, "pmg:a!" + taskUPID, "pve:!" + taskUPID,
		"pve:a/b!" + taskUPID, "pbs:a!" + taskUPID, strings.Replace(taskUPID, "201", "2 1", 1), strings.Replace(taskUPID, "pve2", "../x", 1),
		strings.Replace(taskUPID, "0000020F", "+000020F", 1), strings.Replace(taskUPID, "0000020F", "20F", 1), taskUPID + taskUPID} {
		if u, err := ParseUPID(bad); err == nil {
			t.Errorf("%q was taken as %+v", bad, u)
		}
	}
}

func FuzzParseUPID(f *testing.F) {
	f.Add(taskUPID)
	f.Add("pbs:b1!UPID:backup:0000020F:00032057:0000000A:6B0C1290:gc:store:root@pam:")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := ParseUPID(text)
		if err != nil {
			return
		}
		if u.String() != text || u.Node == "" || u.Type == "" || u.User == "" || strings.ContainsAny(u.Node+u.Remote, "/:?#% ") {
			t.Errorf("%q was read as %+v", text, u)
		}
		if again, err := ParseUPID(u.String()); err != nil || again != u {
			t.Errorf("%q is not stable", text)
		}
	})
}

func TestTask(t *testing.T) {
	lines := func(from, to int, last string) string {
		var rows []string
		for i := from; i < to; i++ {
			rows = append(rows, fmt.Sprintf(`{"n":%d,"t":"line %d"}`, i+1, i))
		}
		return "[" + strings.Join(append(rows, `{"n":9999,"t":"`+last+`"}`), ",") + "]"
	}
	tests := []struct {
		name, status, last string
		total              int
		want               gate.TaskState
		logs               int
	}{
		{"running", `{"status":"running","pid":1}`, "", 0, gate.TaskState{Running: true, Known: true}, 0},
		{"ended", `{"status":"stopped","exitstatus":"OK"}`, "", 0, gate.TaskState{Known: true, OK: true, Exit: "OK"}, 0},
		{"warned", `{"status":"stopped","exitstatus":"WARNINGS: 1"}`, "WARN: old machine type", 3, gate.TaskState{Known: true, OK: true, Exit: "WARNINGS: 1", Warnings: "WARN: old machine type"}, 1},
		{"warned, without a line", `{"status":"stopped","exitstatus":"WARNINGS: 2"}`, "TASK WARNINGS: 2", 3, gate.TaskState{Known: true, OK: true, Exit: "WARNINGS: 2", Warnings: "WARNINGS: 2"}, 1},
		{"failed, long log", `{"status":"stopped","exitstatus":"job errors"}`, "TASK ERROR: job errors", 5000, gate.TaskState{Known: true, Exit: "job errors"}, 2},
		{"failed by a text that begins like success", `{"status":"stopped","exitstatus":"OKAY not"}`, "x", 2, gate.TaskState{Known: true, Exit: "OKAY not"}, 1},
		{"log without a last line", `{"status":"stopped","exitstatus":"unexpected status"}`, "half", 2, gate.TaskState{Exit: "unexpected status"}, 1},
		{"unknown to a backup server", `{"status":"stopped","exitstatus":"unknown"}`, "half", 2, gate.TaskState{Exit: "unknown"}, 1},
		{"stopped without a status", `{"status":"stopped"}`, "half", 2, gate.TaskState{}, 1},
		{"nothing told", `{}`, "half", 2, gate.TaskState{}, 1},
		{"empty exit status", `{"status":"stopped","exitstatus":""}`, "half", 2, gate.TaskState{}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			logs := 0
			f := newFake(t, func(_ int, r seen) string {
				path, query, _ := strings.Cut(strings.TrimPrefix(r.line, "GET /api2/json"), "?")
				where := "/nodes/pve2/tasks/" + url.PathEscape(taskUPID)
				switch path {
				case where + "/status":
					return ok(tt.status)
				case where + "/log":
					logs++
					q, _ := url.ParseQuery(query)
					var start, limit int
					fmt.Sscan(q.Get("start"), &start)
					fmt.Sscan(q.Get("limit"), &limit)
					end := min(start+limit, tt.total)
					return raw("200 OK", jsonType, fmt.Sprintf(`{"data":%s,"total":%d}`, lines(start, end-1, tt.last), tt.total))
				}
				return raw("501 no", "", "")
			})
			set, secrets := tokenTarget(f)
			got, err := newClient(t, set, secrets).Task(t.Context(), "", taskUPID)
			if err != nil {
				t.Fatal(err)
			}
			if got.Running != tt.want.Running || got.Known != tt.want.Known || got.OK != tt.want.OK || got.Exit != tt.want.Exit || got.Warnings != tt.want.Warnings {
				t.Errorf("got %+v", got)
			}
			if got.Node != "pve2" || got.Type != "vzcreate" || got.ID != "201" || got.User != "root@pam!full" || got.Started.IsZero() {
				t.Errorf("got %+v", got)
			}
			if logs != tt.logs || got.LogTotal != tt.total {
				t.Errorf("%d log reads, total %d", logs, got.LogTotal)
			}
			if n := len(got.Log); n > 0 && got.Log[n-1] != tt.last || n > logTail {
				t.Errorf("the log ends in %q after %d lines", got.Log[n-1], n)
			}
		})
	}
}

func TestTaskNotToBeHad(t *testing.T) {
	tests := []struct {
		name, upid, answer string
		kind               gate.ErrorKind
	}{
		{"unknown task", taskUPID, raw("400 Parameter verification failed.", jsonType, `{"data":null,"errors":{"upid":"no such task"},"message":"Parameter verification failed.\n"}`), gate.ErrNotFound},
		{"node off", taskUPID, raw("595 No route to host", "", ""), gate.ErrUnavailable},
		{"somebody else's", taskUPID, raw("403 Permission check failed (/nodes/pve2, Sys.Audit)", "", ""), gate.ErrDenied},
		{"no task id", "nonsense", "", gate.ErrInvalid},
		{"of a remote, but no manager", "pve:x!" + taskUPID, "", gate.ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t, func(int, seen) string { return tt.answer })
			set, secrets := tokenTarget(f)
			got, err := newClient(t, set, secrets).Task(t.Context(), "", tt.upid)
			if got.Known || got.Running || got.OK {
				t.Errorf("got %+v", got)
			}
			kind := gate.ErrorKind("")
			if u := asUpstream(err); u != nil {
				kind = u.Kind
			} else if err != nil {
				kind = gate.AsError(err).Kind
			}
			if kind != tt.kind {
				t.Errorf("got %s, %v", kind, err)
			}
		})
	}
}

// Where each product keeps its tasks.
func TestTaskPaths(t *testing.T) {
	long := "UPID:backup:0000020F:00032057:0000000A:6B0C1290:gc:store:root@pam:"
	for _, tt := range []struct{ kind, upid, want string }{
		{"pbs", long, "/nodes/localhost/tasks/"}, {"pdm", long, "/nodes/localhost/tasks/"}, {"pmg", taskUPID, "/nodes/pve2/tasks/"},
		{"pdm", "pve:r1!" + taskUPID, "/pve/remotes/r1/tasks/"}, {"pdm", "pbs:r2!" + long, "/pbs/remotes/r2/tasks/"},
	} {
		f := newFake(t, func(_ int, r seen) string {
			if r.line == "POST /api2/json/access/ticket" {
				return ok(`{"ticket":"t","CSRFPreventionToken":"c"}`)
			}
			return ok(`{"status":"running"}`)
		})
		set, secrets := ticketTarget(f, tt.kind)
		if _, err := newClient(t, set, secrets).Task(t.Context(), "", tt.upid); err != nil {
			t.Fatal(err)
		}
		if got := f.requests()[1].line; got != "GET /api2/json"+tt.want+url.PathEscape(tt.upid)+"/status" {
			t.Errorf("%s: asked %s", tt.kind, got)
		}
	}
}

// The node's clock is an hour ahead, or behind.
func TestFindTasks(t *testing.T) {
	for _, off := range []time.Duration{time.Hour, 0, -time.Hour} {
		t.Run(off.String(), func(t *testing.T) { findTasks(t, off) })
	}
}

func findTasks(t *testing.T, off time.Duration) {
	now := time.Now()
	theirs := now.Add(off)
	upid := func(d time.Duration, kind, user string) string {
		return fmt.Sprintf("UPID:pve1:0000020F:00032057:%08X:%s:100:%s:", theirs.Add(d).Unix(), kind, user)
	}
	rows := `[{"upid":"` + upid(3*time.Second, "qmstart", "root@pam!full") + `","saved":"0","status":"RUNNING","user":"root@pam!full"},` +
		`{"upid":"` + upid(2*time.Second, "qmstop", "root@pam!full") + `","status":"OK","endtime":5,"user":"root@pam","tokenid":"full"},` +
		`{"upid":"` + upid(2*time.Second, "qmfail", "root@pam!full") + `","status":"job errors","endtime":5,"user":"root@pam","tokenid":"full"},` +
		`{"upid":"` + upid(2*time.Second, "qmx", "root@pam!other") + `","status":"OK","endtime":5,"user":"root@pam","tokenid":"other"},` +
		`{"upid":"` + upid(2*time.Second, "qmy", "root@pam") + `","status":"OK","endtime":5,"user":"root@pam"},` +
		`{"upid":"` + upid(-time.Minute, "qmold", "root@pam!full") + `","status":"OK","endtime":5,"user":"root@pam","tokenid":"full"},` +
		`{"upid":"broken"}]`
	var query url.Values
	f := newFake(t, func(_ int, r seen) string {
		if _, q, found := strings.Cut(r.line, "/nodes/pve1/tasks?"); found {
			query, _ = url.ParseQuery(q)
		}
		return strings.Replace(ok(rows), "\r\n", "\r\nDate: "+theirs.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")+"\r\n", 1)
	})
	set, secrets := tokenTarget(f)
	c := newClient(t, set, secrets)
	got, err := c.FindTasks(t.Context(), "", "pve1", now)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range got {
		names = append(names, fmt.Sprintf("%s %v %v %v", s.Type, s.Running, s.Known, s.OK))
	}
	if want := "[qmstart true true false qmstop false true true qmfail false true false]"; fmt.Sprint(names) != want {
		t.Errorf("got %v", names)
	}
	if query.Get("source") != "all" || query.Get("userfilter") != "root@pam" || query.Get("since") == "" {
		t.Errorf("asked %v", query)
	}
}
