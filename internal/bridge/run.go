//go:build linux

package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"castellan/internal/frame"
)

// job is one process to start on the host: the command itself, or what enters a guest with it.
type job struct {
	path      string
	argv, env []string
	input     []byte
	cred      *syscall.Credential // nil: as the bridge itself
	noNew     bool                // no new privileges
	leads     bool                // into a container: nobody in there looks into it on its way
	hunter    *hunter
	counted   bool // the process is the run's own, not what leads into a guest
	alone     bool // nothing that it started outlives it
	limit     time.Duration
	most      int   // bytes kept of each output
	total     int64 // bytes printed, then it is killed
	group     *group
	tell      func(out, err []byte) // nil: not asked for
	started   func(pid int)
	stop      <-chan string // why it is to be ended before its limit
}

// cause says why a run was killed.
type cause string

const (
	atLimit cause = "limit"
	atTotal cause = "output"
)

// errNotStarted is a process that never was.
var errNotStarted = errors.New("not started")

const (
	graceTerm  = 2 * time.Second // between TERM and KILL
	graceDrain = 300 * time.Millisecond
	tellEvery  = 200 * time.Millisecond
)

// run starts the job and stays with it until it has ended or was killed.
func (j *job) run(ctx context.Context) (frame.Result, cause, error) {
	var res frame.Result
	outR, outW, err := os.Pipe()
	if err != nil {
		return res, "", fmt.Errorf("%w: %v", errNotStarted, err)
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		closeAll(outR, outW)
		return res, "", fmt.Errorf("%w: %v", errNotStarted, err)
	}
	var inR, inW *os.File
	if len(j.input) > 0 {
		if inR, inW, err = os.Pipe(); err != nil {
			closeAll(outR, outW, errR, errW)
			return res, "", fmt.Errorf("%w: %v", errNotStarted, err)
		}
	}
	cmd := &exec.Cmd{Path: j.path, Args: j.argv, Env: j.env, Dir: "/", Stdout: outW, Stderr: errW,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Credential: j.cred}}
	if inR != nil {
		cmd.Stdin = inR
	}
	if j.group != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, j.group.fd
	}
	began := time.Now()
	err = start(cmd, j.noNew, j.leads)
	closeAll(outW, errW, inR)
	if err != nil {
		closeAll(outR, errR, inW)
		if errors.Is(err, os.ErrNotExist) {
			return res, "", fmt.Errorf("%w: %.60q", errNoProgram, j.argv[0])
		}
		return res, "", fmt.Errorf("%w: %v", errNotStarted, err)
	}
	j.hunter.root(cmd.Process.Pid, j.counted)
	if j.started != nil {
		j.started(cmd.Process.Pid)
	}
	if inW != nil {
		go func() {
			_, _ = io.Copy(inW, bytes.NewReader(j.input)) // a program need not read it
			inW.Close()
		}()
		defer inW.Close()
	}

	out, errs := newKeeper(j.most, j.tell != nil), newKeeper(j.most, j.tell != nil)
	tooMuch := make(chan struct{}, 2)
	drained := make(chan struct{})
	left := 2
	ended := make(chan struct{}, 2)
	for _, d := range []struct {
		from *os.File
		to   *keeper
	}{{outR, out}, {errR, errs}} {
		go func() {
			drain(d.from, d.to, j.total, tooMuch)
			ended <- struct{}{}
		}()
	}
	go func() {
		for ; left > 0; left-- {
			<-ended
		}
		close(drained)
	}()
	exited := make(chan *os.ProcessState, 1)
	go func() {
		_ = cmd.Wait() // how it ended is in its state
		exited <- cmd.ProcessState
	}()
	following, unfollow := context.WithCancel(context.WithoutCancel(ctx))
	followed := make(chan struct{})
	go func() { j.hunter.follow(following); close(followed) }()
	go j.group.release(following, cmd.Process.Pid)

	why, state := j.wait(ctx, exited, tooMuch, out, errs)
	killed := false
	if why != "" {
		killed = true
		res.Gone = j.end(cmd, &state, exited) && !j.hunter.strangers()
	}
	unfollow()
	<-followed
	if !killed {
		res.Gone = j.hunter.settled(100*time.Millisecond) && (j.group == nil || j.group.empty())
		if !res.Gone && j.alone {
			res.Gone = j.hunter.kill(graceTerm)
			if j.group != nil {
				res.Gone = j.group.kill()
			}
		}
	}
	wait := graceDrain
	if killed {
		wait = 50 * time.Millisecond
	}
	select { // what the run left behind may hold the pipes for ever
	case <-drained:
	case <-time.After(wait):
		_ = outR.SetReadDeadline(time.Now())
		_ = errR.SetReadDeadline(time.Now())
		<-drained
	}
	closeAll(outR, errR)
	res.Took = time.Since(began)
	res.Out, res.Err = out.output(), errs.output()
	res.TimedOut = why == atLimit
	if state != nil {
		code, sig := stateOf(state)
		res.Code, res.Signal = code, sig
	}
	if killed && res.Signal == "" {
		// What leads into a guest makes a number of the signal that ended the command there.
		if res.Code == nil || *res.Code >= 128 {
			res.Code, res.Signal = nil, "KILL"
		}
	}
	return res, why, nil
}

// wait stays until the process has ended, or there is a reason to end it.
func (j *job) wait(ctx context.Context, exited <-chan *os.ProcessState, tooMuch <-chan struct{}, out, errs *keeper) (cause, *os.ProcessState) {
	timer := time.NewTimer(j.limit)
	defer timer.Stop()
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case state := <-exited:
			return "", state
		case <-timer.C:
			return atLimit, nil
		case <-tooMuch:
			return atTotal, nil
		case <-ctx.Done():
			return "the bridge was ended", nil
		case why := <-j.stop:
			return cause(why), nil
		case <-tick.C:
			if j.tell == nil {
				continue
			}
			if o, e := out.news(), errs.news(); len(o)+len(e) > 0 {
				j.tell(o, e)
			}
		}
	}
}

// end kills all that the run has started and says whether none of it is left.
func (j *job) end(cmd *exec.Cmd, state **os.ProcessState, exited <-chan *os.ProcessState) bool {
	gone := j.hunter.kill(graceTerm)
	if j.group != nil {
		gone = j.group.kill() && gone
	}
	select {
	case *state = <-exited:
		return gone
	case <-time.After(200 * time.Millisecond):
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its own group, and it is not waited for yet
	select {
	case *state = <-exited:
	case <-time.After(5 * time.Second):
		return false
	}
	return gone && j.hunter.settled(time.Second)
}

// drain reads all that comes, whatever the keeper makes of it.
func drain(from *os.File, to *keeper, total int64, tooMuch chan<- struct{}) {
	buf := make([]byte, 64<<10)
	told := false
	for {
		n, err := from.Read(buf)
		_, _ = to.Write(buf[:n]) // never fails
		if !told && to.printed() > total {
			told = true
			tooMuch <- struct{}{}
		}
		if err != nil {
			return
		}
	}
}

// nobodysGroup is a group without members; which one does not matter.
const nobodysGroup = 65534

// start starts a command, on a thread that was made what the command is to be; the thread ends with the goroutine.
//
// With noNew it gave up new privileges: what it starts cannot gain any by programs that belong to others.
//
// What leads into a container is root of the node still when it has joined the container's namespaces already, where the
// container's root may trace whoever can be traced, and act as it. No process can be whose real and effective group differed
// when it was started; the program in the container is started after that, with both its own.
func start(cmd *exec.Cmd, noNew, leads bool) error {
	if !noNew && !leads {
		return cmd.Start()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if noNew {
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				done <- fmt.Errorf("give up new privileges: %w", err)
				return
			}
		}
		if leads {
			if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, nobodysGroup, uintptr(os.Getegid()), uintptr(os.Getegid())); e != 0 {
				done <- fmt.Errorf("be closed to tracing: %w", e)
				return
			}
		}
		done <- cmd.Start()
	}()
	return <-done
}

func stateOf(s *os.ProcessState) (code *int, sig string) {
	w, ok := s.Sys().(syscall.WaitStatus)
	if ok && w.Signaled() {
		return nil, strings.TrimPrefix(unix.SignalName(w.Signal()), "SIG")
	}
	c := s.ExitCode()
	return &c, ""
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
