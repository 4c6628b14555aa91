package lane

import "strings"

// systemProbes tell how a system is doing.
func systemProbes() []Probe {
	unit := unitArg()
	return []Probe{
		fixed("memory", "Memory in use and free", anywhere, program("cat", "/proc/meminfo")),
		fixed("memory_limits", "Limits, use and out-of-memory kills of the guest's control group", anywhere,
			program("grep", "-H", "-s", ".", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.high", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.swap.max", "/sys/fs/cgroup/memory.swap.current", "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids.current", "/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu.stat").partial(2)),
		fixed("swap", "Swap spaces", anywhere, program("cat", "/proc/swaps")),
		fixed("load", "Load averages with running and all tasks, then seconds since the start", anywhere, program("cat", "/proc/loadavg", "/proc/uptime")),
		fixed("pressure", "How long tasks waited for processor, memory and disks; in a container those of the whole host may follow its own", anywhere,
			program("grep", "-H", "-s", ".", "/sys/fs/cgroup/cpu.pressure", "/sys/fs/cgroup/memory.pressure", "/sys/fs/cgroup/io.pressure", "/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io").partial(2)),
		fixed("boot", "Boot id, seconds since the start, and the kernel", anywhere, program("cat", "/proc/sys/kernel/random/boot_id", "/proc/uptime", "/proc/version")),
		fixed("os_release", "Which distribution and version", anywhere, program("cat", "/etc/os-release")),
		fixed("reboot_required", "Whether packages ask for a restart (no answer: they do not)", anywhere, program("grep", "-H", "-s", ".", "/run/reboot-required", "/run/reboot-required.pkgs").ok(1, 2)),
		fixed("logins", "Who is signed in", anywhere, program("who", "-a").other(1).or(program("who"))),
		fixed("time_sync", "Clock, time zone and whether the clock is kept right", anywhere,
			program("timedatectl", "show", "--no-pager", "--property=Timezone", "--property=NTP", "--property=NTPSynchronized", "--property=TimeUSec", "--property=RTCTimeUSec").other(1).or(program("date", "-u"))),
		fixed("chrony", "How far chrony's clock is off", anywhere, program("chronyc", "-n", "tracking")),
		{Name: "processes", Summary: "Processes, those that take most first (ps)", Where: anywhere, Args: []Arg{
			{Name: "by", Kind: Enum, Summary: "what counts", Enum: []string{"cpu", "memory"}, Default: "cpu"},
			{Name: "arguments", Kind: Enum, Summary: "show their arguments, in which some programs are given passwords", Enum: []string{"no", "yes"}, Default: "no"},
		}, build: func(v values) Invocation {
			what := map[string]string{"no": "comm", "yes": "args"}[v["arguments"]]
			return program("ps", "-e", "-ww", "-o", "pid,ppid,user:20,pcpu,pmem,rss,stat,etimes,"+what, "--sort="+map[string]string{"cpu": "-pcpu", "memory": "-rss"}[v["by"]]).other(1).
				or(program("ps", "-o", "pid,ppid,user,stat,vsz,rss,time,"+what).other(1)).or(program("ps", "-o", "pid,ppid,user,stat,vsz,rss,"+what))
		}},
		{Name: "process", Summary: "State, memory and account of one process", Where: anywhere, Args: []Arg{{Name: "pid", Kind: Number, Summary: "its number", Required: true, Min: 1, Max: 4 << 20}}, build: func(v values) Invocation {
			return program("cat", "/proc/"+v["pid"]+"/status")
		}},
		fixed("failed_units", "Units of systemd that failed", anywhere,
			program("systemctl", "list-units", "--state=failed", "--no-legend", "--plain", "--no-pager", "--full").other(1).or(program("rc-status", "--nocolor", "--crashed").ok(1))),
		fixed("services", "Services that run", anywhere,
			program("systemctl", "list-units", "--type=service", "--state=running", "--no-legend", "--plain", "--no-pager", "--full").other(1).or(program("rc-status", "--nocolor", "--servicelist"))),
		fixed("timers", "Timers of systemd: when each ran last and runs next", anywhere,
			program("systemctl", "list-timers", "--all", "--no-pager", "--full").other(1).or(program("ls", "-l", "-R", "/etc/periodic"))),
		fixed("cron_jobs", "Commands that cron runs, with the files they stand in", anywhere,
			program("grep", "-r", "-s", "-H", "-E", "-e", "^[^#]", "/etc/crontab", "/etc/cron.d", "/etc/crontabs", "/var/spool/cron").ok(1, 2)).root(),
		{Name: "unit_status", Summary: "State of a unit, its processes and its last log lines", Where: anywhere, Args: []Arg{unit, lines(1000)}, build: func(v values) Invocation {
			return program("systemctl", "status", "--no-pager", "--full", "--lines="+v["lines"], "--", v["unit"]).ok(2, 3).partial(1).other(1).
				or(program("rc-service", openrc(v["unit"]), "status").ok(3, 8, 16, 32))
		}},
		{Name: "unit_state", Summary: "State, result, restarts, memory and file of a unit, as NAME=value", Where: anywhere, Args: []Arg{unit}, build: func(v values) Invocation {
			return program("systemctl", "show", "--no-pager", "--property=Id,Description,LoadState,ActiveState,SubState,UnitFileState,Result,MainPID,ExecMainStatus,ExecMainCode,NRestarts,ActiveEnterTimestamp,InactiveEnterTimestamp,StateChangeTimestamp,MemoryCurrent,MemoryPeak,MemoryMax,TasksCurrent,CPUUsageNSec,FragmentPath,DropInPaths,NeedDaemonReload,TriggeredBy,Restart", "--", v["unit"]).other(1).
				or(program("rc-service", openrc(v["unit"]), "status").ok(3, 8, 16, 32))
		}},
		fixed("packages_broken", "Packages that are half installed or half configured", anywhere, program("dpkg", "--audit").partial(1)),
		fixed("packages", "Installed packages with their versions", anywhere,
			program("dpkg-query", "--show", `--showformat=${Package}\t${Version}\t${db:Status-Abbrev}\n`).
				or(program("apk", "info", "-v")).or(program("rpm", "-q", "-a")).or(program("pacman", "-Q"))),
		{Name: "package", Summary: "Version of an installed package", Where: anywhere, Args: []Arg{{Name: "package", Kind: Package, Summary: "its name", Required: true}}, build: func(v values) Invocation {
			return program("dpkg-query", "--show", `--showformat=${Package}\t${Version}\t${Architecture}\t${db:Status-Abbrev}\n`, "--", v["package"]).
				or(program("apk", "info", "-v", "-e", v["package"])).or(program("rpm", "-q", "--", v["package"])).or(program("pacman", "-Q", "--", v["package"]))
		}},
		// The caches of apt are not written, locks are not taken, and no list is fetched.
		fixed("updates", "Packages for which updates are known, as of the last refresh of the lists", anywhere,
			program("apt-get", "--simulate", "--quiet", "-o", "Debug::NoLocking=true", "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "-o", "APT::Get::Show-User-Simulation-Note=false", "-o", "AptCli::Hooks::Upgrade=", "-o", "Dir::Log::Planner=/dev/null", "-o", "Dir::Log::Solver=/dev/null", "dist-upgrade").
				or(program("apk", "--no-network", "list", "--upgradable"))),
	}
}

func unitArg() Arg {
	return Arg{Name: "unit", Kind: Unit, Summary: "a service or other unit, such as nginx or nginx.service", Required: true}
}

// openrc is how a system without systemd calls a service.
func openrc(unit string) string { return strings.TrimSuffix(unit, ".service") }
