package lane

import "strings"

// systemProbes tell how a system is doing.
func systemProbes() []Probe {
	unit := Arg{Name: "unit", Kind: Unit, Summary: "a service or other unit, such as nginx or nginx.service", Required: true}
	since := Arg{Name: "since", Kind: Span, Summary: "not older than this, such as 30min, 2h or 7d"}
	priority := Arg{Name: "priority", Kind: Enum, Summary: "of this importance or more", Enum: []string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}}
	journal := func(v values, more ...string) Invocation {
		return program("journalctl", "--no-pager", "--quiet", "--output=short-iso", "--lines="+v["lines"]).with(true, more...).
			with(v["since"] != "", "--since=-"+v["since"]).with(v["priority"] != "", "--priority="+v["priority"])
	}
	return []Probe{
		fixed("memory", "Memory in use and free", anywhere, program("cat", "/proc/meminfo")),
		fixed("swap", "Swap spaces", anywhere, program("cat", "/proc/swaps")),
		fixed("load", "Load averages, and seconds since the start", anywhere, program("cat", "/proc/loadavg", "/proc/uptime")),
		fixed("os_release", "Which distribution and version", anywhere, program("cat", "/etc/os-release")),
		{Name: "processes", Summary: "Processes, those that take most first (ps)", Where: anywhere, Args: []Arg{
			{Name: "by", Kind: Enum, Summary: "what counts", Enum: []string{"cpu", "memory"}, Default: "cpu"},
			{Name: "arguments", Kind: Enum, Summary: "show their arguments, in which some programs are given passwords", Enum: []string{"no", "yes"}, Default: "no"},
		}, build: func(v values) Invocation {
			what := map[string]string{"no": "comm", "yes": "args"}[v["arguments"]]
			return program("ps", "-e", "-ww", "-o", "pid,ppid,user:20,pcpu,pmem,rss,stat,etimes,"+what, "--sort="+map[string]string{"cpu": "-pcpu", "memory": "-rss"}[v["by"]]).other(1).
				or(program("ps", "-o", "pid,ppid,user,stat,vsz,rss,time,"+what))
		}},
		fixed("failed_units", "Units of systemd that failed", anywhere,
			program("systemctl", "list-units", "--state=failed", "--no-legend", "--plain", "--no-pager", "--full").or(program("rc-status", "--nocolor", "--crashed").ok(1))),
		{Name: "unit_status", Summary: "State of a unit, its processes and its last log lines", Where: anywhere, Args: []Arg{unit, lines(1000)}, build: func(v values) Invocation {
			return program("systemctl", "status", "--no-pager", "--full", "--lines="+v["lines"], "--", v["unit"]).ok(1, 2, 3).
				or(program("rc-service", strings.TrimSuffix(v["unit"], ".service"), "status").ok(3, 8, 16, 32))
		}},
		{Name: "unit_journal", Summary: "Log of a unit", Where: anywhere, Args: []Arg{unit, lines(5000), since, priority}, build: func(v values) Invocation {
			return journal(v, "--unit="+v["unit"]).or(program("grep", "-F", "-e", strings.TrimSuffix(v["unit"], ".service"), "--", "/var/log/messages").ok(1))
		}},
	}
}
