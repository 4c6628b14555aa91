package lane

import "strconv"

// logProbes read logs.
func logProbes() []Probe {
	since := Arg{Name: "since", Kind: Span, Summary: "not older than this, such as 30min, 2h or 7d"}
	priority := Arg{Name: "priority", Kind: Enum, Summary: "of this importance or more", Enum: []string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}}
	journal := func(v values, more ...string) Invocation {
		return program("journalctl", "--no-pager", "--quiet", "--output=short-iso", "--lines="+v["lines"]).with(true, more...).
			with(v["since"] != "", "--since=-"+v["since"]).with(v["priority"] != "", "--priority="+v["priority"])
	}
	messages := func(v values) Invocation { return program("tail", "-n", v["lines"], "/var/log/messages") }
	kernel := priority
	kernel.Default = "warning"
	errors, day := priority, since
	errors.Default, day.Default = "err", "1d"
	return []Probe{
		{Name: "unit_journal", Summary: "Log of a unit: of a service in a guest, or of an application that is one", Where: anywhere, Args: []Arg{unitArg(), lines(5000), since, priority}, build: func(v values) Invocation {
			return journal(v, "--unit="+v["unit"]).or(program("grep", "-F", "-e", openrc(v["unit"]), "/var/log/messages").ok(1))
		}},
		{Name: "journal", Summary: "Log of the whole system", Where: anywhere, Args: []Arg{lines(5000), since, priority}, build: func(v values) Invocation {
			return journal(v).or(messages(v))
		}},
		{Name: "journal_errors", Summary: "Errors in the log of the whole system, of the last day unless told otherwise", Where: anywhere, Args: []Arg{lines(5000), day, errors}, build: func(v values) Invocation {
			return journal(v).or(messages(v))
		}},
		{Name: "kernel_log", Summary: "Log of the kernel; that of a container is its host's", Where: anywhere, Args: []Arg{lines(5000), since, kernel}, build: func(v values) Invocation {
			return journal(v, "--dmesg").or(program("dmesg"))
		}},
		fixed("boots", "When the system was started, as far as its journal reaches", anywhere, program("journalctl", "--no-pager", "--quiet", "--list-boots")),
		fixed("journal_size", "How much space the journal takes", anywhere, program("journalctl", "--no-pager", "--disk-usage").or(program("du", "-s", "-k", "/var/log"))),
		fixed("log_files", "Files below /var/log: bytes, day of the last change, path", anywhere,
			program("find", "/var/log", "-xdev", "-type", "f", "-printf", `%s %TY-%Tm-%Td %p\n`).partial(1).other(1).or(program("ls", "-l", "-R", "/var/log"))),
		{Name: "log_tail", Summary: "Last lines of a log file below /var/log", Where: anywhere, Args: []Arg{{Name: "path", Kind: Path, Summary: "the file", Required: true, Under: "/var/log"}, lines(5000)}, build: func(v values) Invocation {
			return program("tail", "-n", v["lines"], "--", v["path"]).reads(v["path"])
		}},
		{Name: "docker_log", Summary: "Last lines that a Docker container printed", Where: guests, Args: []Arg{{Name: "container", Kind: Name, Summary: "its name or id", Required: true}, lines(5000), {Name: "since", Kind: Span, Summary: since.Summary}}, build: func(v values) Invocation {
			return program("docker", "logs", "--timestamps", "--tail="+v["lines"]).with(v["since"] != "", "--since="+goSpan(v["since"])).with(true, "--", v["container"])
		}},
	}
}

// goSpan is a Span as programs in Go read one.
func goSpan(span string) string {
	n, err := seconds(span)
	if err != nil {
		return "0s"
	}
	return strconv.FormatInt(n, 10) + "s"
}
