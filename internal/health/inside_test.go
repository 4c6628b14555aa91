package health

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"castellan/internal/gate"
)

// insides answers probes by name; an error stands for what refuses.
type insides struct {
	gate.View
	answers map[string]any
	asked   chan string
}

func (v insides) Run(_ context.Context, _, _ string, params map[string]any) (gate.RunResult, error) {
	name := fmt.Sprint(params["probe"])
	v.asked <- name
	switch a := v.answers[name].(type) {
	case error:
		return gate.RunResult{}, a
	case gate.RunResult:
		return a, nil
	case string:
		return gate.RunResult{OK: true, Gone: true, Stdout: a}, nil
	}
	code := 127
	return gate.RunResult{ExitCode: &code, Gone: true}, nil
}

func lookInto(kind string, answers map[string]any) (rep Report, asked int) {
	v := insides{answers: answers, asked: make(chan string, 100)}
	rep.within(context.Background(), &interior{v: v, kind: kind, where: "CT 105", next: Next{Operation: "probe_guest", Arguments: map[string]string{"guest": "105"}}})
	return rep, len(v.asked)
}

const (
	noErrors  = ""
	littleUse = "Filesystem Type 1024-blocks Used Available Capacity Mounted on\n/dev/sda1 ext4 1000 100 900 10% /\n"
	fewNodes  = "Filesystem Inodes IUsed IFree IUse% Mounted on\n/dev/sda1 1000 100 900 10% /\n"
	processes = "    PID    PPID USER                 %CPU %MEM   RSS STAT ELAPSED COMMAND\n     77       1 postgres              0.0  0.1  2048 Ss   100 postgres\n      1       0 root                  0.0  0.1  1024 Ss   100 systemd\n"
)

func TestInside(t *testing.T) {
	fine := func(more map[string]any) map[string]any {
		out := map[string]any{"disk": littleUse, "inodes": fewNodes, "failed_units": "", "memory": "MemTotal: 1000 kB\nMemAvailable: 900 kB\n", "memory_limits": "/sys/fs/cgroup/memory.events:oom_kill 0\n",
			"kernel_log": "", "journal_errors": noErrors, "processes": processes}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	for name, c := range map[string]struct {
		kind    string
		answers map[string]any
		want    string // "level check" of each, then what is unread
	}{
		"all well":       {"ct", fine(nil), ""},
		"all well, a VM": {"vm", fine(nil), ""},
		"a full disk, and by what": {"ct", fine(map[string]any{"disk": "Filesystem Type 1024-blocks Used Available Capacity Mounted on\ntmpfs tmpfs 10 10 0 100% /run\n/dev/sda1 ext4 1000 990 10 99% /\n",
			"disk_top": "900000\t/\n880000\t/var\n870000\t/var/log\n860000\t/var/log/a b\n5000\t/usr\n"}), "critical disk_full_inside [space of with a name of unusual form 839.8 MiB, space of /usr 4.9 MiB]"},
		"a full disk that cannot be looked into": {"ct", fine(map[string]any{"disk": "x\n/dev/sda1 ext4 1000 950 50 95% /srv\n"}), "warning disk_full_inside [] unread inside, probe disk_top"},
		"no inodes":                              {"vm", fine(map[string]any{"inodes": "h\n/dev/sda1 1000 999 1 100% /var\n"}), "critical inodes_full_inside"},
		"a failed unit":                          {"vm", fine(map[string]any{"failed_units": "nginx.service loaded failed failed A web server\n● ../x loaded failed failed y\n"}), "warning unit_failed_inside"},
		"what fails in every container":          {"ct", fine(map[string]any{"failed_units": "sys-kernel-config.mount loaded failed failed Kernel Configuration\n"}), "info unit_failed_inside"},
		"little memory":                          {"vm", fine(map[string]any{"memory": "MemTotal: 1000 kB\nMemAvailable: 10 kB\nSwapTotal: 100 kB\nSwapFree: 5 kB\n"}), "critical memory_full_inside, critical swap_inside"},
		"killed in a container":                  {"ct", fine(map[string]any{"memory_limits": "/sys/fs/cgroup/memory.max:1\n/sys/fs/cgroup/memory.events:oom 4\n/sys/fs/cgroup/memory.events:oom_kill 3\n"}), "warning oom_kills_inside"},
		"killed in a VM, a disk that fails": {"vm", fine(map[string]any{"kernel_log": "2026-01-01T00:00:00+0000 a kernel: Out of memory: Killed process 12 (java) total-vm:1kB\n2026-01-01T00:00:01+0000 a kernel: blk_update_request: I/O error, dev sda, sector 1\n"}),
			"warning oom_kills_inside, critical disk_errors_inside"},
		"errors":                {"ct", fine(map[string]any{"journal_errors": strings.Repeat("2026-01-01T00:00:00+0000 a nginx[7]: failed\n", 120)}), "warning errors_inside"},
		"no journal":            {"ct", fine(map[string]any{"journal_errors": "Jan  1 00:00:00 a b: c\n"}), "unread inside, probe journal_errors"},
		"no such program":       {"ct", fine(map[string]any{"failed_units": nil, "processes": nil}), "unread inside, probe failed_units, inside, probe processes"},
		"it took too long":      {"ct", fine(map[string]any{"inodes": gate.RunResult{TimedOut: true}}), "unread inside, probe inodes"},
		"no text":               {"ct", fine(map[string]any{"inodes": gate.RunResult{OK: true, Stdout64: "AA=="}}), "unread inside, probe inodes"},
		"the bridge refuses it": {"ct", map[string]any{"disk": &gate.UpstreamError{Kind: gate.ErrDenied, Message: "x"}}, "unread inside, probe disk and all others"},
	} {
		rep, _ := lookInto(c.kind, c.answers)
		var found, unread []string
		for _, f := range append(rep.Causes, rep.Flags...) {
			text := string(f.Level) + " " + f.Check
			if f.Check == "disk_full_inside" {
				var by []string
				for _, e := range f.Evidence[1:] {
					by = append(by, e.Figure+" "+e.Value)
				}
				text += " [" + strings.Join(by, ", ") + "]"
			}
			if len(f.Evidence) == 0 || f.Next == nil {
				t.Errorf("%s: no evidence, or nothing to do next: %+v", name, f)
			}
			found = append(found, text)
		}
		for _, u := range rep.Unread {
			unread = append(unread, u.Part)
		}
		slices.Sort(unread)
		got := strings.Join(found, ", ")
		if len(unread) > 0 {
			got = strings.TrimSpace(got + " unread " + strings.Join(unread, ", "))
		}
		if got != c.want {
			t.Errorf("%s: %s", name, cmp.Diff(c.want, got))
		}
		if len(rep.Unseen) > 0 {
			t.Errorf("%s: %q", name, rep.Unseen)
		}
	}
	rep, asked := lookInto("ct", map[string]any{"disk": gate.Fail(gate.ErrDenied, "", "the capability probe is off")})
	if asked != 1 || len(rep.Unread) > 0 || len(rep.Unseen) != 1 || !strings.Contains(rep.Unseen[0], "capability") {
		t.Errorf("a closed lane: %d asked, %+v", asked, rep)
	}
	rep, _ = lookInto("ct", map[string]any{"disk": littleUse, "processes": processes})
	if len(rep.Figures) != 2 || rep.Figures[0].Figure != "memory of process postgres (77)" || rep.Figures[0].Value != "2.0 MiB" {
		t.Errorf("%+v", rep.Figures)
	}
}

func FuzzInside(f *testing.F) {
	for _, s := range []string{littleUse, fewNodes, processes, "1\t/a\n", "a.service loaded failed failed", "x: 1 kB", "2026-01-01T00:00:00+0000 a b[1]: c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		answers := map[string]any{}
		for _, p := range []string{"disk", "disk_top", "inodes", "failed_units", "memory", "memory_limits", "kernel_log", "journal_errors", "processes"} {
			answers[p] = text
		}
		for _, kind := range []string{"ct", "vm"} {
			rep, _ := lookInto(kind, answers)
			for _, fl := range append(rep.Causes, rep.Flags...) {
				if strings.ContainsAny(fl.What, "\x1b\n\x00") || len(fl.What) > 1000 {
					t.Errorf("%q", fl.What)
				}
				for _, e := range fl.Evidence {
					if strings.ContainsAny(e.Figure+e.Value, "\x1b\n\x00") || len(e.Figure) > 300 {
						t.Errorf("%+v", e)
					}
				}
			}
		}
	})
}
