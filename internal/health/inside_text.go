package health

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"castellan/internal/regex"
)

// Readers of what probes print. It is text of programs on the other side, and may be cut in its middle or lie: what does not
// have the expected form is passed over.

// filled is a file system.
type filled struct {
	mount       string
	used, total float64
}

// notDisks are file systems that are full by their nature, or that nobody's files lie on.
var notDisks = []string{"tmpfs", "devtmpfs", "squashfs", "iso9660", "efivarfs", "overlay", "fuse.lxcfs", "ramfs", "udf", "erofs", "cramfs", "fuse.snapfuse", "rootfs"}

// mountedDisks reads `df -P -T -k`, fullest first. The root counts, whatever it is on.
func mountedDisks(text string) []filled {
	var out []filled
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 7 || !strings.HasSuffix(f[5], "%") {
			continue
		}
		mount := strings.Join(f[6:], " ")
		used, e1 := strconv.ParseFloat(f[3], 64)
		free, e2 := strconv.ParseFloat(f[4], 64)
		if e1 != nil || e2 != nil || !(used >= 0 && free >= 0 && used+free > 0) || mount != "/" && slices.Contains(notDisks, f[1]) || strings.HasPrefix(mount, "/snap/") {
			continue
		}
		out = append(out, filled{mount, used * 1024, (used + free) * 1024})
	}
	return ordered(out)
}

// inodesOf reads `df -P -i`.
func inodesOf(text string) []filled {
	var out []filled
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 6 || !strings.HasSuffix(f[4], "%") {
			continue
		}
		total, e1 := strconv.ParseFloat(f[1], 64)
		used, e2 := strconv.ParseFloat(f[2], 64)
		if mount := strings.Join(f[5:], " "); e1 == nil && e2 == nil && total > 0 && used >= 0 && !strings.HasPrefix(mount, "/snap/") && !slices.Contains(notDisks[:2], f[0]) {
			out = append(out, filled{mount, used, total})
		}
	}
	return ordered(out)
}

func ordered(list []filled) []filled {
	slices.SortStableFunc(list, func(a, b filled) int {
		return cmp.Or(cmp.Compare(b.used/b.total, a.used/a.total), cmp.Compare(a.mount, b.mount))
	})
	return list[:min(len(list), 20)]
}

// taken is a folder or file with what it takes.
type taken struct {
	path  string
	bytes float64
}

// largest reads `du -k`: what takes most, and of a folder that is mostly one thing in it that thing alone.
func largest(text, root string, most int) []taken {
	var all []taken
	for line := range strings.Lines(text) {
		kib, path, ok := strings.Cut(strings.TrimSpace(line), "\t")
		n, err := strconv.ParseFloat(kib, 64)
		if !ok || err != nil || n < 0 || path == root || path == "" {
			continue
		}
		all = append(all, taken{path, n * 1024})
	}
	slices.SortStableFunc(all, func(a, b taken) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.path, b.path)) })
	all = all[:min(len(all), 500)]
	var out []taken
	for _, t := range all {
		inner := 0.0
		for _, o := range all {
			if strings.HasPrefix(o.path, strings.TrimSuffix(t.path, "/")+"/") && strings.Count(o.path, "/") == strings.Count(t.path, "/")+1 {
				inner += o.bytes
			}
		}
		if inner < t.bytes/2 { // what it is made of is not listed beside it
			out = append(out, t)
		}
	}
	return out[:min(len(out), most)]
}

var unitForm = &regex.Lazy{Expr: `^[A-Za-z0-9][A-Za-z0-9:_.\\@-]{0,79}$`}

// failedUnits reads what systemctl lists as failed, or what rc-status lists as crashed.
func failedUnits(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		f := strings.Fields(strings.TrimLeft(strings.TrimSpace(line), "●* "))
		if len(f) >= 4 && f[2] == "failed" || len(f) >= 2 && strings.Contains(line, "crashed") {
			if unitForm.MatchString(f[0]) {
				out = append(out, f[0])
			} else {
				out = append(out, "one with a name of unusual form")
			}
		}
	}
	return out
}

// onlyOfHosts says whether all are units that have nothing to do in a container.
func onlyOfHosts(units []string) bool {
	return !slices.ContainsFunc(units, func(u string) bool {
		return !(strings.HasSuffix(u, ".mount") && (strings.HasPrefix(u, "sys-") || strings.HasPrefix(u, "dev-") || strings.HasPrefix(u, "proc-") || strings.HasPrefix(u, "run-"))) &&
			!slices.ContainsFunc([]string{"systemd-modules-load", "systemd-udev", "systemd-sysctl", "systemd-remount-fs", "systemd-binfmt", "proc-sys-fs-binfmt_misc"}, func(p string) bool { return strings.HasPrefix(u, p) })
	})
}

// meminfo reads /proc/meminfo, in bytes.
func meminfo(text string) map[string]float64 {
	out := map[string]float64{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if !ok || len(f) == 0 {
			continue
		}
		if n, err := strconv.ParseFloat(f[0], 64); err == nil && n >= 0 {
			out[name] = n * 1024
		}
	}
	return out
}

// counter finds "FILE:KEY N" in what grep -H prints of control files.
func counter(text, file, key string) (n float64, known bool) {
	for line := range strings.Lines(text) {
		path, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		f := strings.Fields(rest)
		if ok && strings.HasSuffix(path, "/"+file) && len(f) == 2 && f[0] == key {
			if n, err := strconv.ParseFloat(f[1], 64); err == nil && n >= 0 {
				return n, true
			}
		}
	}
	return 0, false
}

// kernel is what the kernel's log tells that matters.
type kernel struct {
	kills  int
	killed []string // names, each once
	disk   int
}

var (
	killForm = &regex.Lazy{Expr: `(?:Killed|Kill) process [0-9]+ \(([^)]*)\)`}
	diskForm = &regex.Lazy{Expr: `(?i)\bI/O error\b|EXT4-fs error|XFS .*(?:error|shutdown)|BTRFS (?:error|critical)|Remounting filesystem read-only|blk_update_request:.*error|critical medium error|failed command: (?:READ|WRITE)`}
)

func kernelTells(text string) kernel {
	var k kernel
	for line := range strings.Lines(text) {
		if m := killForm.FindStringSubmatch(line); m != nil {
			k.kills++
			if name := named(m[1]); !slices.Contains(k.killed, name) {
				k.killed = append(k.killed, name)
			}
			continue
		}
		if diskForm.MatchString(line) {
			k.disk++
		}
	}
	return k
}

// program is one that reports errors.
type program struct {
	name string
	n    int
}

var journalForm = &regex.Lazy{Expr: `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.+-]+ \S+ ([^\[: ]+)(?:\[[0-9]+\])?:`}

// journalOf counts the lines of a journal by program. known is false where it is no journal.
func journalOf(text string) (n int, programs []program, known bool) {
	by := map[string]int{}
	lines := 0
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "--") {
			continue
		}
		lines++
		if m := journalForm.FindStringSubmatch(line); m != nil {
			n++
			by[m[1]]++
		}
	}
	for name, n := range by {
		programs = append(programs, program{name, n})
	}
	slices.SortFunc(programs, func(a, b program) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.name, b.name)) })
	return n, programs, lines == 0 || n > 0
}

// process is one that runs.
type process struct {
	pid, name string
	bytes     float64
}

// processesOf reads ps: the columns that its first line names. known is false where it has none of them.
func processesOf(text string) (out []process, known bool) {
	at := map[string]int{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(at) == 0 {
			for i, name := range f {
				at[strings.ToUpper(name)] = i
			}
			if _, ok := at["RSS"]; !ok || at["PID"] != 0 {
				return nil, false
			}
			continue
		}
		rss := at["RSS"]
		last := len(at) - 1
		if len(f) <= last {
			continue
		}
		bytes, ok := kibOf(f[rss])
		if !ok || strings.Trim(f[0], "0123456789") != "" {
			continue
		}
		out = append(out, process{f[0], strings.Join(f[last:], " "), bytes})
	}
	slices.SortStableFunc(out, func(a, b process) int { return cmp.Compare(b.bytes, a.bytes) })
	return out, len(at) > 0
}

// kibOf reads KiB, or what busybox writes: "12m".
func kibOf(text string) (float64, bool) {
	unit := 1024.0
	switch {
	case strings.HasSuffix(text, "m"):
		unit, text = 1<<20, strings.TrimSuffix(text, "m")
	case strings.HasSuffix(text, "g"):
		unit, text = 1<<30, strings.TrimSuffix(text, "g")
	}
	n, err := strconv.ParseFloat(text, 64)
	return n * unit, err == nil && n >= 0
}
