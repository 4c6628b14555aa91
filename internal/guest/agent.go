package guest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"castellan/internal/frame"
	"castellan/internal/gate"
	"castellan/internal/lane"
	"castellan/internal/proxmox"
)

// Agent is the way to the guest agents of VMs: *proxmox.Client.
type Agent interface {
	OpenAgent(p *gate.Permit) (*proxmox.Agent, error)
	LookAgent(ctx context.Context, target, node, vmid string, pid int) (proxmox.AgentEnd, bool, error)
	AgentAge(ctx context.Context, target, node, vmid string) (time.Duration, error)
}

// agentEnv is the environment of commands and scripts in a VM: the agent's own is not passed on.
var agentEnv = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/sh", "LANG=C.UTF-8", "TERM=dumb"}

// wrapped puts around a command what gives it a clean environment, a process group of its own and a limit that holds in the
// guest even when nobody asks any more. No shell is among it.
func wrapped(argv, env []string, dir string, limit time.Duration) []string {
	out := []string{"/usr/bin/env", "-i"}
	if dir != "" && dir != "/" {
		out = append(out, "-C", dir)
	}
	out = append(append(out, env...), "setsid", "timeout", "-k", "2", strconv.Itoa(max(1, int(limit/time.Second))))
	return append(out, argv...)
}

// inVM is one run in a VM.
type inVM struct {
	agent *proxmox.Agent
	o     opened
	g     configured
	on    gate.RunHooks
}

// runByAgent carries out a run in a VM.
func (r *Runner) runByAgent(ctx context.Context, agent *proxmox.Agent, o opened, g configured, on gate.RunHooks) (gate.RunResult, error) {
	if agent == nil {
		return gate.RunResult{}, refused(gate.ErrUnavailable, "", "no way to guest agents is configured")
	}
	if !g.agent {
		return gate.RunResult{}, refused(gate.ErrUnavailable, "A person switches it on: agent=1 in the VM's configuration, then a stop and a start of the VM; and the guest needs the package qemu-guest-agent.", "the guest agent of %s is switched off", o)
	}
	v := inVM{agent: agent, o: o, g: g, on: on}
	switch o.word {
	case wordReadFile:
		return v.read(ctx)
	case wordWriteFile:
		return v.put(ctx)
	}
	run, err := o.run()
	if err != nil {
		return gate.RunResult{}, refused(gate.ErrInvalid, "", "%v", err)
	}
	if g.windows && (run.Lane != frame.Command || len(run.Env) > 0 || run.Dir != "") {
		return gate.RunResult{}, refused(gate.ErrInvalid, "Give a command without env and dir.", "%s runs Windows: probes, scripts, env and dir are for Linux guests", o)
	}
	switch run.Lane {
	case frame.Probe:
		return v.probe(ctx, run)
	case frame.Script:
		return v.script(ctx, run)
	}
	ask := proxmox.AgentRun{Argv: wrapped(run.Argv, slices.Concat(agentEnv, run.Env), run.Dir, run.Limit), Input: run.Input, Limit: run.Limit, Group: true, Settle: true}
	if g.windows {
		ask = proxmox.AgentRun{Argv: run.Argv, Input: run.Input, Limit: run.Limit}
	}
	end, err := agent.Exec(ctx, ask, on.Handle)
	return endOf(end, run.MaxOutput, func(code int) bool { return code == 0 }), err
}

// endOf turns how a program in a VM ended into an answer.
func endOf(e proxmox.AgentEnd, most int, accepted func(code int) bool) gate.RunResult {
	res := gate.RunResult{ExitCode: e.Code, TimedOut: e.TimedOut, Gone: e.Gone, TookMS: e.Took.Milliseconds(), Way: "agent", StdoutBytes: int64(len(e.Out)), StderrBytes: int64(len(e.Err))}
	if e.Signal != 0 {
		res.Signal = signalName(e.Signal)
	}
	res.OK = e.Code != nil && !e.TimedOut && accepted(*e.Code)
	outputs(&res, showBytes(e.Out, most), showBytes(e.Err, most))
	if e.OutCut || e.ErrCut {
		res.Cut = true
		res.Note = joined(res.Note, fmt.Sprintf("it printed more than %d bytes, which is all that the guest agent keeps", proxmox.AgentOutput))
	}
	if e.TimedOut && !e.Gone {
		res.Note = joined(res.Note, "whether all of it was killed in the guest could not be seen")
	}
	return res
}

func showBytes(b []byte, most int) printed {
	if len(b) <= most {
		return show(b, nil, int64(len(b)))
	}
	return show(b[:most/2], b[len(b)-most/2:], int64(len(b)))
}

var signals = map[int]string{1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 11: "SEGV", 13: "PIPE", 14: "ALRM", 15: "TERM"}

func signalName(n int) string {
	if s, ok := signals[n]; ok {
		return s
	}
	return strconv.Itoa(n)
}

// probe runs the first of a probe's commands that this guest has.
func (v inVM) probe(ctx context.Context, run *frame.Run) (gate.RunResult, error) {
	p, ok := lane.Find(run.Probe)
	if !ok {
		return gate.RunResult{}, refused(gate.ErrInvalid, "", "there is no probe %q", bounded(run.Probe, 60))
	}
	inv, err := p.Command(run.Args)
	if err != nil {
		return gate.RunResult{}, refused(gate.ErrInvalid, "", "%v", err)
	}
	tries := append([]lane.Invocation{inv}, inv.Alternatives...)
	var end proxmox.AgentEnd
	for n, i := range tries {
		end, err = v.agent.Exec(ctx, proxmox.AgentRun{Argv: wrapped(i.Argv, i.Env, "", run.Limit), Input: i.Input, Limit: run.Limit, Group: true}, v.on.Handle)
		if err != nil {
			return gate.RunResult{}, err
		}
		if n == len(tries)-1 || end.Code == nil || !inv.Unfit(*end.Code, len(end.Out) > 0) {
			return whole(i, endOf(end, run.MaxOutput, i.Answered)), nil
		}
	}
	return whole(inv, endOf(end, run.MaxOutput, inv.Answered)), nil
}

// script puts the text into a file that only root of the guest can read, runs it and takes it away.
func (v inVM) script(ctx context.Context, run *frame.Run) (gate.RunResult, error) {
	if len(run.Script) > proxmox.AgentContent {
		return gate.RunResult{}, refused(gate.ErrInvalid, "Make it shorter, or put a part of it into a file of the guest first.", "the script has %d bytes; through the guest agent %d can be carried", len(run.Script), proxmox.AgentContent)
	}
	dir := "/run/castellan-" + strings.ToLower(rand.Text())
	if err := v.own(ctx, "make a folder for the script", "mkdir", "-m", "700", dir); err != nil {
		return gate.RunResult{}, err
	}
	file := dir + "/script"
	if err := v.agent.WriteFile(ctx, file, []byte(run.Script)); err != nil {
		v.remove(ctx, dir)
		return gate.RunResult{}, notBegun(err)
	}
	end, err := v.agent.Exec(ctx, proxmox.AgentRun{Argv: wrapped([]string{run.Interpreter, file}, slices.Concat(agentEnv, run.Env), run.Dir, run.Limit), Input: run.Input, Limit: run.Limit, Group: true, Settle: true}, v.on.Handle)
	var u *gate.UpstreamError
	known := err == nil || errors.As(err, &u) && u.Delivery == gate.NotCarriedOut
	left := !known
	if known && ctx.Err() == nil { // else it may still be read
		left = !v.remove(ctx, dir)
	}
	if err != nil {
		return gate.RunResult{}, err
	}
	res := endOf(end, run.MaxOutput, func(code int) bool { return code == 0 })
	if left {
		res.Note = joined(res.Note, "the script's text was left in "+dir+" of the guest")
	}
	return res, nil
}

// remove takes the folder of a script away.
func (v inVM) remove(ctx context.Context, dir string) bool {
	return v.own(ctx, "remove the script", "rm", "-rf", dir) == nil
}

const ownLimit = 10 * time.Second

// own runs one of castellan's own small commands in the guest; an error says that nothing of the run itself has begun.
func (v inVM) own(ctx context.Context, what string, argv ...string) error {
	end, err := v.agent.Exec(ctx, proxmox.AgentRun{Argv: wrapped(argv, agentEnv, "", ownLimit), Limit: ownLimit, Group: true}, nil)
	if err != nil {
		return notBegun(err)
	}
	if end.Code == nil || *end.Code != 0 {
		return refused(gate.ErrUnavailable, "Look into the guest.", "%s in %s: %s", what, v.o, bounded(strings.TrimSpace(string(end.Err)), 300))
	}
	return nil
}

// stat is what a path is in the guest.
type stat struct {
	absent   bool
	mode     uint32
	size     int64
	uid, gid int
}

const (
	kindMask    = 0o170000
	kindRegular = 0o100000
)

// stat looks at a path before the agent opens it: to open a FIFO would hang the agent.
func (v inVM) stat(ctx context.Context, file string) (stat, error) {
	end, err := v.agent.Exec(ctx, proxmox.AgentRun{Argv: wrapped([]string{"stat", "-L", "-c", "%f %s %u %g", file}, agentEnv, "", ownLimit), Limit: ownLimit, Group: true}, nil)
	if err != nil {
		return stat{}, notBegun(err)
	}
	if end.Code == nil || *end.Code != 0 {
		text := strings.TrimSpace(string(end.Err))
		if strings.Contains(text, "No such file") {
			return stat{absent: true}, nil
		}
		return stat{}, refused(gate.ErrUnavailable, "Look into the guest.", "%s in %s cannot be looked at: %s", file, v.o, bounded(text, 300))
	}
	var mode uint64
	var s stat
	if n, err := fmt.Sscanf(strings.TrimSpace(string(end.Out)), "%x %d %d %d", &mode, &s.size, &s.uid, &s.gid); err != nil || n != 4 {
		return stat{}, refused(gate.ErrUnavailable, "", "%s in %s cannot be looked at: stat says %q", file, v.o, bounded(string(end.Out), 100))
	}
	s.mode = uint32(mode)
	if s.mode&kindMask != kindRegular {
		return stat{}, refused(gate.ErrInvalid, "Only regular files are read and written.", "%s in %s is no regular file", file, v.o)
	}
	return s, nil
}

// content reads a regular file, and at most what the agent gives.
func (v inVM) content(ctx context.Context, file string) (stat, *frame.Found, error) {
	if err := cleanPath(file); err != nil {
		return stat{}, nil, refused(gate.ErrInvalid, "", "%v", err)
	}
	s, err := v.stat(ctx, file)
	if err != nil {
		return s, nil, err
	}
	f := &frame.Found{Path: file, Size: s.size, Mode: s.mode & 0o7777, UID: s.uid, GID: s.gid, Absent: s.absent}
	if s.absent {
		return s, f, nil
	}
	if s.size > proxmox.AgentOutput {
		return s, nil, refused(gate.ErrInvalid, "Run a command that shows a part of it.", "%s in %s has %d bytes; the guest agent gives %d at most", file, v.o, s.size, proxmox.AgentOutput)
	}
	content, cut, err := v.agent.ReadFile(ctx, file)
	if err != nil {
		return s, nil, notBegun(err)
	}
	f.Content, f.Cut, f.Size = content, cut, max(s.size, int64(len(content)))
	if !cut {
		sum := sha256.Sum256(content)
		f.SHA256 = hex.EncodeToString(sum[:])
	}
	return s, f, nil
}

func cleanPath(file string) error {
	if !path.IsAbs(file) || path.Clean(file) != file || strings.ContainsAny(file, "\x00\n\r") || len(file) > 4096 {
		return fmt.Errorf("the path %q is not absolute, or not in its plain form", bounded(file, 200))
	}
	return nil
}

func (v inVM) read(ctx context.Context) (gate.RunResult, error) {
	if v.g.windows {
		return gate.RunResult{}, refused(gate.ErrInvalid, "", "%s runs Windows: files are read and written in Linux guests only", v.o)
	}
	ask, err := v.o.file()
	if err != nil {
		return gate.RunResult{}, refused(gate.ErrInvalid, "", "%v", err)
	}
	_, f, err := v.content(ctx, ask.Path)
	if err != nil {
		return gate.RunResult{}, err
	}
	if f.Absent {
		return gate.RunResult{}, refused(gate.ErrNotFound, "", "there is no file %s in %s", ask.Path, v.o)
	}
	if len(f.Content) > ask.Max {
		f.Content, f.Cut = f.Content[:ask.Max], true
	}
	return gate.RunResult{OK: true, Gone: true, Way: "agent", File: fileOf(f)}, nil
}

// put replaces the content of a file if it is the expected one, and reads it back.
func (v inVM) put(ctx context.Context) (gate.RunResult, error) {
	if v.g.windows {
		return gate.RunResult{}, refused(gate.ErrInvalid, "", "%s runs Windows: files are read and written in Linux guests only", v.o)
	}
	ask, err := v.o.file()
	if err != nil {
		return gate.RunResult{}, refused(gate.ErrInvalid, "", "%v", err)
	}
	if len(ask.Content) > proxmox.AgentContent {
		return gate.RunResult{}, refused(gate.ErrInvalid, "Write it in parts with a script, or by another way.", "the content has %d bytes; through the guest agent %d can be written at once", len(ask.Content), proxmox.AgentContent)
	}
	_, was, err := v.content(ctx, ask.Path)
	if err != nil {
		return gate.RunResult{}, err
	}
	switch {
	case ask.Expect == "":
		return gate.RunResult{}, refused(gate.ErrInvalid, "", "what is expected to be there is not said")
	case was.Absent != (ask.Expect == "absent"), !was.Absent && was.SHA256 != ask.Expect:
		now := "its SHA-256 is " + was.SHA256
		if was.Absent {
			now = "there is none"
		}
		return gate.RunResult{}, refused(gate.ErrStale, "Read it and plan anew.", "%s in %s is not what was expected: %s", ask.Path, v.o, now)
	}
	if err := v.agent.WriteFile(ctx, ask.Path, ask.Content); err != nil {
		return gate.RunResult{}, err
	}
	res := gate.RunResult{OK: true, Gone: true, Way: "agent", File: fileOf(was), Note: "the guest agent writes a file in place, not at one stroke"}
	if was.Absent {
		mode := ask.Mode
		if mode == 0 {
			mode = 0o644
		}
		if err := v.own(ctx, "set the mode", "chmod", fmt.Sprintf("%04o", mode), ask.Path); err != nil {
			res.Note = joined(res.Note, "its mode could not be set: "+bounded(err.Error(), 200))
		}
	}
	back, cut, err := v.agent.ReadFile(ctx, ask.Path)
	if err != nil || cut || string(back) != string(ask.Content) {
		return gate.RunResult{}, &gate.UpstreamError{Kind: gate.ErrUnknownOutcome, Delivery: gate.MaybeDone, Cause: err, Message: "the file was written and reads back otherwise, or not at all", Hint: "Read the file before anything is repeated."}
	}
	return res, nil
}

// lookByAgent asks once what became of a process in a VM.
func (r *Runner) lookByAgent(ctx context.Context, target string, o opened, handle string) (gate.RunResult, bool, error) {
	var pid int
	var began int64
	if n, err := fmt.Sscanf(handle, "pid %d at %d", &pid, &began); n != 2 || err != nil || r.agent == nil {
		return gate.RunResult{}, false, errors.New("look for the run: which process it is in the guest was not recorded")
	}
	run, err := o.run()
	if err != nil {
		return gate.RunResult{}, false, fmt.Errorf("look for the run: %w", err)
	}
	end, running, err := r.agent.LookAgent(ctx, target, o.node, strconv.Itoa(o.vmid), pid)
	if err != nil {
		return gate.RunResult{}, false, err
	}
	// Its numbers begin anew with an agent that was started since: then this one may be another command's.
	since := time.Since(time.Unix(began, 0))
	if age, err := r.agent.AgentAge(ctx, target, o.node, strconv.Itoa(o.vmid)); err != nil {
		return gate.RunResult{}, false, fmt.Errorf("look for the run: whether process %d is still that command's cannot be told: %w", pid, err)
	} else if age < since {
		return gate.RunResult{}, false, fmt.Errorf("look for the run: the guest agent was started %s ago, after the command: its process %d is another one", age.Round(time.Second), pid)
	}
	if running {
		return gate.RunResult{}, true, nil
	}
	accepted := func(code int) bool { return code == 0 }
	if run.Lane == frame.Probe {
		if p, ok := lane.Find(run.Probe); ok {
			if inv, err := p.Command(run.Args); err == nil {
				accepted = inv.Answered
			}
		}
	}
	res := endOf(end, run.MaxOutput, accepted)
	res.Note = joined(res.Note, "its end was read afterwards")
	return res, false, nil
}
