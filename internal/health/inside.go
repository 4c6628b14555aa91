package health

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"castellan/internal/gate"
)

// perProbe bounds one probe. What takes longer is told as unread; on the other side it ends at its own limit.
const perProbe = 20 * time.Second

// interior looks with probes into a guest, or at a node itself. What it shows of what programs there print is figures and
// names, no text.
type interior struct {
	v      gate.View
	target string
	run    string         // "RUN /nodes/{node}/lxc/{vmid}/probe"
	params map[string]any // of its place
	where  string         // "CT 105"
	next   Next           // the operation that asks a probe there, without the probe's name
	kind   string         // "ct", "vm", "node"

	mu     sync.Mutex
	asked  int
	unread []Unread
}

// probe asks one probe. ok says that its answer can be judged; where it cannot, why not is told as unread.
func (in *interior) probe(ctx context.Context, hides Level, probe string, args ...string) (text string, ok bool) {
	text, err := in.try(ctx, probe, args...)
	if err != nil {
		in.lacks(probe, reason(err), hides)
	}
	return text, err == nil
}

func (in *interior) try(ctx context.Context, probe string, args ...string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, perProbe)
	defer stop()
	params := map[string]any{"probe": probe}
	for k, v := range in.params {
		params[k] = v
	}
	if len(args) > 0 {
		params["arg"] = args
	}
	in.mu.Lock()
	in.asked++
	in.mu.Unlock()
	res, err := in.v.Run(ctx, in.target, in.run, params)
	switch {
	case err != nil:
		return "", err
	case res.TimedOut:
		return "", errors.New("it took too long")
	case !res.OK && res.ExitCode != nil && *res.ExitCode == 127:
		return "", errors.New("the program that it takes is not installed there")
	case !res.OK:
		return "", errors.New("it did not end well")
	case res.Stdout64 != "":
		return "", errors.New("its answer is no text")
	}
	return res.Stdout, nil
}

func (in *interior) lacks(probe, why string, hides Level) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.unread = append(in.unread, Unread{Part: "inside, probe " + probe, Where: in.where, Why: why, Hides: hides})
}

// reason is why a probe gave nothing, in castellan's words as far as others had a say in it.
func reason(err error) string {
	var u *gate.UpstreamError
	var e *gate.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %s", perProbe)
	case errors.As(err, &u) && u.Kind == gate.ErrDenied:
		return "the bridge of the node refuses it"
	case errors.As(err, &u):
		return orText(said(u.Message), "the way there failed")
	case errors.As(err, &e):
		return clean(e.Message, 200)
	}
	return clean(err.Error(), 100)
}

func orText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// look asks everything. closed is why nothing was asked: the lane is closed, or there is no way.
func (in *interior) look(ctx context.Context, causes, flags *bag) (figures []Evidence, closed string) {
	disks, err := in.try(ctx, "disk") // the first one tells whether there is a way
	var e *gate.Error
	if errors.As(err, &e) && e.Kind == gate.ErrDenied {
		return nil, "what runs inside was not looked at: " + clean(e.Message, 200)
	}
	var u *gate.UpstreamError
	if errors.As(err, &u) || errors.As(err, &e) { // the others would fare no better
		in.lacks("disk and all others", reason(err), Critical)
		return nil, ""
	}
	if err != nil {
		in.lacks("disk", reason(err), Critical)
	} else {
		in.disks(ctx, disks, flags)
	}
	var wait sync.WaitGroup
	var each [6]struct{ causes, flags bag } // in a fixed order, whoever answers first
	jobs := []func(causes, flags *bag){
		func(_, flags *bag) { in.inodes(ctx, flags) },
		func(_, flags *bag) { in.units(ctx, flags) },
		func(causes, _ *bag) { in.memory(ctx, causes) },
		func(causes, flags *bag) { in.kills(ctx, causes, flags) },
		func(_, flags *bag) { in.journal(ctx, flags) },
		func(_, _ *bag) { figures = in.processes(ctx) },
	}
	for i, job := range jobs {
		wait.Go(func() { job(&each[i].causes, &each[i].flags) })
	}
	wait.Wait()
	for i := range each {
		causes.flags = append(causes.flags, each[i].causes.flags...)
		flags.flags = append(flags.flags, each[i].flags.flags...)
	}
	return figures, ""
}

func (in *interior) ask(probe string, args map[string]string) *Next {
	n := Next{Operation: in.next.Operation, Arguments: map[string]string{"probe": probe}}
	for k, v := range in.next.Arguments {
		n.Arguments[k] = v
	}
	if len(args) > 0 {
		var list []string
		for k, v := range args {
			list = append(list, fmt.Sprintf("%q:%q", k, v))
		}
		n.Arguments["with"] = "{" + strings.Join(list, ",") + "}"
	}
	return &n
}

func (in *interior) source(probe string) string { return "probe " + probe }

// disks judges the file systems and tells what takes the space of those that are full.
func (in *interior) disks(ctx context.Context, text string, flags *bag) {
	full := 0
	for _, d := range mountedDisks(text) {
		f := Flag{Check: "disk_full_inside", Where: in.where, What: "the file system " + named(d.mount) + " is nearly full: what writes there fails then", Next: in.ask("disk_top", map[string]string{"path": d.mount})}
		f, is := fill(f, d.used, d.total, diskFull, diskFullBad, "use of "+named(d.mount), in.source("disk"))
		if !is {
			continue
		}
		if full++; full <= 2 { // to look costs the disk something
			if top, ok := in.probe(ctx, Info, "disk_top", "path="+d.mount, "depth=4", "min=50"); ok {
				for _, t := range largest(top, d.mount, 5) {
					f.Evidence = append(f.Evidence, Evidence{Figure: "space of " + named(t.path), Value: size(t.bytes), Source: in.source("disk_top")})
				}
			}
		}
		flags.add(f)
	}
}

func (in *interior) inodes(ctx context.Context, flags *bag) {
	text, ok := in.probe(ctx, Warning, "inodes")
	if !ok {
		return
	}
	for _, d := range inodesOf(text) {
		f := Flag{Check: "inodes_full_inside", Where: in.where, What: "the file system " + named(d.mount) + " has hardly any room for more files, whatever space is left", Next: in.ask("inodes", nil)}
		if share := d.used / d.total; share >= diskFull {
			f.Level, f.excess = Warning, share/diskFull
			if share >= diskFullBad {
				f.Level = Critical
			}
			f.Evidence = []Evidence{{Figure: "inodes in use of " + named(d.mount), Value: fmt.Sprintf("%.1f %%", 100*share), Threshold: fmt.Sprintf("from %.1f %%", 100*diskFull), Source: in.source("inodes")}}
			flags.add(f)
		}
	}
}

func (in *interior) units(ctx context.Context, flags *bag) {
	text, ok := in.probe(ctx, Warning, "failed_units")
	if !ok {
		return
	}
	units := failedUnits(text)
	if len(units) == 0 {
		return
	}
	f := Flag{Level: Warning, Check: "unit_failed_inside", Where: in.where, What: plural(len(units), "unit has failed: ", "units have failed: ") + some(units, 6), Next: in.ask("unit_journal", map[string]string{"unit": units[0]}),
		Evidence: []Evidence{{Figure: "failed units", Value: fmt.Sprint(len(units)), Threshold: "0", Source: in.source("failed_units")}}}
	if in.kind == "ct" && onlyOfHosts(units) {
		f.Level = Info
		f.What += "; in a container that is usual: they work on what only the node has"
	}
	flags.add(f)
}

// memory judges what a VM says of its own memory: of containers and nodes the API tells it.
func (in *interior) memory(ctx context.Context, causes *bag) {
	if in.kind != "vm" {
		return
	}
	text, ok := in.probe(ctx, Critical, "memory")
	if !ok {
		return
	}
	m := meminfo(text)
	total, free, known := m["MemTotal"], m["MemAvailable"], m["MemTotal"] > 0
	if !known {
		in.lacks("memory", "the answer has an unknown form", Critical)
		return
	}
	used := total - free
	f := Flag{Check: "memory_full_inside", Where: in.where, What: "it has hardly any memory left that it could give to programs", Confidence: Likely, Next: in.ask("processes", map[string]string{"by": "memory"})}
	if f, is := fill(f, used, total, fullMemory, fullMemoryBad, "memory in use, as the guest counts it", in.source("memory")); is {
		causes.add(f)
	}
	if swap := m["SwapTotal"]; swap > 0 {
		f := Flag{Check: "swap_inside", Where: in.where, What: "it swaps: a part of its memory is on its disk", Confidence: Possible, Next: in.ask("processes", map[string]string{"by": "memory"})}
		if f, is := fill(f, swap-m["SwapFree"], swap, swapUsed, swapUsedBad, "swap in use, as the guest counts it", in.source("memory")); is {
			causes.add(f)
		}
	}
}

// kills looks for programs that were ended since there was no memory left, and for disks that fail. The log of the kernel in a
// container is its node's, so that there the counter of its control group tells.
func (in *interior) kills(ctx context.Context, causes, flags *bag) {
	if in.kind == "ct" {
		text, ok := in.probe(ctx, Warning, "memory_limits")
		if !ok {
			return
		}
		n, known := counter(text, "memory.events", "oom_kill")
		if !known {
			in.lacks("memory_limits", "its control group is not told: kills for lack of memory are not known", Warning)
		}
		if n > 0 {
			causes.add(Flag{Level: Warning, Check: "oom_kills_inside", Where: in.where, What: "programs in it were killed since its memory was used up", Confidence: Possible, excess: n, Next: in.ask("processes", map[string]string{"by": "memory"}),
				Evidence: []Evidence{{Figure: "programs killed since its start", Value: fmt.Sprintf("%.0f", n), Threshold: "0", Source: in.source("memory_limits")}}})
		}
		return
	}
	text, ok := in.probe(ctx, Warning, "kernel_log", "since=1d", "lines=2000", "priority=info")
	if !ok {
		return
	}
	k := kernelTells(text)
	if k.kills > 0 {
		causes.add(Flag{Level: Warning, Check: "oom_kills_inside", Where: in.where, What: "programs were killed since there was no memory left: " + some(k.killed, 4), Confidence: Likely, excess: float64(k.kills), Next: in.ask("kernel_log", nil),
			Evidence: []Evidence{{Figure: "programs killed within a day", Value: fmt.Sprint(k.kills), Threshold: "0", Source: in.source("kernel_log")}}})
	}
	if k.disk > 0 {
		flags.add(Flag{Level: Critical, Check: "disk_errors_inside", Where: in.where, What: "the kernel tells of disks or file systems that fail", Next: in.ask("kernel_log", nil),
			Evidence: []Evidence{{Figure: "such lines within a day", Value: fmt.Sprint(k.disk), Threshold: "0", Source: in.source("kernel_log")}}})
	}
}

// manyErrors is from how many errors in a day on the journal is a warning.
const manyErrors = 100

func (in *interior) journal(ctx context.Context, flags *bag) {
	const most = 1000
	text, ok := in.probe(ctx, Info, "journal_errors", fmt.Sprintf("lines=%d", most))
	if !ok {
		return
	}
	n, programs, known := journalOf(text)
	if !known {
		in.lacks("journal_errors", "there is no journal of systemd: errors are not told from other lines", Info)
		return
	}
	if n == 0 {
		return
	}
	f := Flag{Level: Info, Check: "errors_inside", Where: in.where, What: "programs in it report errors", Next: in.ask("journal_errors", nil)}
	if n >= manyErrors {
		f.Level = Warning
	}
	count := fmt.Sprint(n)
	if n >= most {
		count = fmt.Sprintf("at least %d", most)
	}
	f.Evidence = append(f.Evidence, Evidence{Figure: "errors in the journal within a day", Value: count, Threshold: fmt.Sprintf("many from %d", manyErrors), Source: in.source("journal_errors")})
	for _, p := range programs[:min(3, len(programs))] {
		f.Evidence = append(f.Evidence, Evidence{Figure: "errors of " + named(p.name), Value: fmt.Sprint(p.n), Source: in.source("journal_errors")})
	}
	flags.add(f)
}

// processes are those that take most memory.
func (in *interior) processes(ctx context.Context) []Evidence {
	text, ok := in.probe(ctx, Info, "processes", "by=memory")
	if !ok {
		return nil
	}
	rows, known := processesOf(text)
	if !known {
		in.lacks("processes", "the answer has an unknown form", Info)
	}
	var out []Evidence
	for _, p := range rows[:min(3, len(rows))] {
		out = append(out, Evidence{Figure: fmt.Sprintf("memory of process %s (%s)", named(p.name), p.pid), Value: size(p.bytes), Source: in.source("processes")})
	}
	return out
}
