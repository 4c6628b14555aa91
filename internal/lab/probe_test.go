package lab

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func TestProbe(t *testing.T) {
	if os.Getenv("PROBE") == "" {
		t.Skip()
	}
	clk := &manual{t: time.Date(2026, 11, 29, 13, 0, 0, 0, time.UTC)}
	l := rigLab(t, true, clk.now)
	b, _ := os.ReadFile(os.Getenv("PROBE"))
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if line == "" || line[0] == '#' {
			fmt.Println(line)
			continue
		}
		if strings.HasPrefix(line, "+") {
			d, _ := time.ParseDuration(line[1:])
			clk.t = clk.t.Add(d)
			continue
		}
		as := "root@pam!full"
		if strings.HasPrefix(line, "@") {
			as, line, _ = strings.Cut(line[1:], " ")
		}
		req, body, has := strings.Cut(line, " | ")
		method, path, _ := strings.Cut(req, " ")
		var bp *string
		if has {
			bp = &body
		}
		if !strings.HasPrefix(path, "/api2") {
			path = "/api2/json" + path
		}
		g := sendTimed(l, clk, as, "", method+" "+path, bp, "")
		out := show(g.answer)
		if m, ok := g.answer.(map[string]any); ok {
			out = show(m["data"])
			if m["errors"] != nil {
				out = show(m["errors"])
			}
			if upid, _ := m["data"].(string); strings.HasPrefix(upid, "UPID") {
				if task := l.s.byUPID[upid]; task != nil {
					for n := 0; n < 600 && !task.done; n++ {
						clk.t = clk.t.Add(200 * time.Millisecond)
						l.Advance(0)
					}
					out = "TASK " + task.typ + " " + task.exit + " " + strings.Join(task.log, " ¶ ")
				}
			}
		}
		if len(out) > 700 {
			out = out[:700]
		}
		fmt.Println(method, path[10:], body, "=>", g.line[9:], out)
	}
}
