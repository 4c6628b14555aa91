//go:build linux

package bridge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"castellan/internal/frame"
)

const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// account is one of the node that runs commands.
type account struct {
	name, home string
	uid, gid   int
}

// exec runs a probe, a command or a script.
func (b *Bridge) exec(ctx context.Context, ask frame.Ask, tell func(frame.Tell)) (frame.Tell, error) {
	r := ask.Run
	g, act, err := b.clear(ctx, ask)
	if err != nil {
		return frame.Tell{}, err
	}
	leave, err := b.seat()
	if err != nil {
		return frame.Tell{}, err
	}
	defer leave()
	asRoot := act.root || g != nil && g.privileged // root of a privileged container is root here
	if err := b.rec.write(entryOf(ask, frame.Tell{}).rooted(asRoot)); err != nil {
		return frame.Tell{}, refuse("Look at the file of the setting log on the node.", "nothing is run that cannot be recorded: %v", err)
	}
	nonce := newNonce()
	h, known, err := b.begin(ask, nonce, groupDir(g, nonce), r.Limit, r.Lane != frame.Probe)
	if h == nil {
		return known, err
	}
	stop := make(chan string, 1)
	b.mu.Lock()
	b.stops[ask.ID] = stop
	b.mu.Unlock()
	last := b.carry(ctx, ask, g, act, nonce, stop, tell)
	b.mu.Lock()
	delete(b.stops, ask.ID)
	b.mu.Unlock()
	b.finish(h, &last)
	b.rec.note(entryOf(ask, last).rooted(asRoot))
	return last, nil
}

// begin marks that an ask is begun. Without a mark, the Tell or the error is the answer to it.
func (b *Bridge) begin(ask frame.Ask, nonce, in string, limit time.Duration, durable bool) (*held, frame.Tell, error) {
	h, err := b.state.begin(ask.ID, mark{Nonce: nonce, Group: in, Place: ask.Place, Began: time.Now(), Limit: int64(limit)}, durable)
	if errors.Is(err, errKnownID) {
		return nil, frame.Tell{Ending: frame.Unknown, Reason: "an ask of this id was begun before: look what became of it; nothing was started now"}, nil
	}
	if err != nil {
		return nil, frame.Tell{}, refuse("Look at the folder of the setting state on the node.", "nothing is done that cannot be marked: %v", err)
	}
	return h, frame.Tell{}, nil
}

// finish keeps how an ask ended, for whoever looks for it.
func (b *Bridge) finish(h *held, last *frame.Tell) {
	last.ID = h.id
	if err := h.end(*last); err != nil {
		b.log.Warn("keep result", "err", err)
	}
}

// clear proves identity and passes the locks: after it, what remains is to run.
func (b *Bridge) clear(ctx context.Context, ask frame.Ask) (*guest, action, error) {
	r := ask.Run
	if err := b.bounds(r); err != nil {
		return nil, action{}, err
	}
	g, err := b.prove(ask.Place)
	if err != nil {
		return nil, action{}, err
	}
	if g != nil {
		if err := b.enter(ctx, g); err != nil {
			return nil, action{}, err
		}
		if err := g.judgePrivilege(); err != nil {
			return nil, action{}, err
		}
	}
	act, err := b.judge(ask.Place, g, r)
	if err != nil {
		return nil, action{}, err
	}
	if len(act.files) == 0 {
		return g, act, nil
	}
	leave := nothing
	if g != nil {
		if leave, err = b.filesOf(g.id); err != nil {
			return nil, action{}, err
		}
	}
	_, err = within(fileLimit, func() (struct{}, error) { defer leave(); return struct{}{}, sound(g, act.files) }, nil)
	return g, act, err
}

// sound refuses files that a probe would open by name where they are no regular ones, or a link is on the way to them.
// What is not there is left to the program.
func sound(g *guest, files []string) error {
	top, err := os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if g != nil {
		top, err = rootOf(g.init)
	}
	if err != nil {
		return refuse("", "%v", err)
	}
	defer top.Close()
	for _, name := range files {
		fd, err := unix.Openat2(int(top.Fd()), name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS})
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if errors.Is(err, unix.ELOOP) {
			return refuse("Name the file itself.", "a part of the path %.200q is a symbolic link", name)
		}
		if err != nil {
			return refuse("", "%.200q cannot be looked at: %v", name, err)
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		unix.Close(fd)
		if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			return refuse("Only regular files are read.", "%.200q is a %s", name, kindOf(st.Mode&unix.S_IFMT))
		}
	}
	return nil
}

// bounds refuses what is outside of the protocol's and the settings' limits.
func (b *Bridge) bounds(r *frame.Run) error {
	total := 0
	for _, a := range r.Argv {
		total += len(a) + 1
	}
	most := time.Duration(b.set.Limits.Seconds) * time.Second
	switch {
	case len(r.Script) > frame.MaxScript:
		return refuse("", "the script is longer than %d bytes", frame.MaxScript)
	case len(r.Input) > frame.MaxInput:
		return refuse("", "the standard input is longer than %d bytes", frame.MaxInput)
	case total > frame.MaxArgv:
		return refuse("", "the arguments are longer than %d bytes", frame.MaxArgv)
	case r.Limit < time.Second || r.Limit > most:
		return refuse(b.set.hint("limits.seconds", "raise it"), "the limit of %s is not within 1s to %s", r.Limit, most)
	case r.MaxOutput < 2 || r.MaxOutput > b.set.Limits.Output:
		return refuse(b.set.hint("limits.output", "raise it"), "max_output of %d is not within 2 to %d bytes", r.MaxOutput, b.set.Limits.Output)
	case r.Dir != "" && (!strings.HasPrefix(r.Dir, "/") || strings.ContainsRune(r.Dir, 0) || len(r.Dir) > 4096):
		return refuse("", "the working directory is an absolute path")
	}
	return variables(r.Env)
}

// variables refuses an environment that is none. Which variables may be set is for the locks to say.
func variables(env []string) error {
	size := 0
	for _, e := range env {
		name, _, ok := strings.Cut(e, "=")
		size += len(e)
		if !ok || !envName.MatchString(name) || strings.ContainsRune(e, 0) || name == nonceName || strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "LXC_") {
			return refuse("", "%.60q is no variable that can be set: NAME=value, the name of letters, digits and _, and none that changes how programs load", e)
		}
	}
	if size > 64<<10 || len(env) > 64 {
		return refuse("", "the environment is more than 64 variables or 65536 bytes")
	}
	return nil
}

// carry runs what was cleared, and makes the last Tell of it.
func (b *Bridge) carry(ctx context.Context, ask frame.Ask, g *guest, act action, nonce string, stop <-chan string, tell func(frame.Tell)) frame.Tell {
	r := ask.Run
	end := time.Now().Add(r.Limit)
	script, err := b.layScript(g, act, nonce)
	if err != nil {
		return ending(ask.ID, err)
	}
	defer script.remove()
	var res frame.Result
	var why cause
	started := false
	for n, try := range act.tries {
		j := &job{input: try.input, limit: time.Until(end), most: r.MaxOutput, total: b.set.Limits.Total, stop: stop}
		if j.limit <= 0 {
			break
		}
		if r.Stream {
			j.tell = func(out, err []byte) { tell(frame.Tell{ID: ask.ID, Out: out, Err: err}) }
		}
		j.started = func(int) {
			if !started {
				started = true
				tell(frame.Tell{ID: ask.ID, Started: true})
			}
		}
		argv := try.argv
		if script.path != "" {
			argv = []string{argv[0], script.path}
		}
		if err = b.aim(j, g, act, try, argv, nonce); err == nil {
			res, why, err = j.run(ctx)
		}
		if j.group != nil {
			j.group.close()
		}
		if err != nil && errors.Is(err, errNoProgram) && n+1 < len(act.tries) {
			continue
		}
		if err != nil {
			break
		}
		res.Argv, res.User = append([]string{}, try.argv...), act.user
		if n+1 < len(act.tries) && why == "" && res.Code != nil && act.unfit(*res.Code, res.Out.Total > 0) {
			continue
		}
		break
	}
	t := frame.Tell{ID: ask.ID, Ending: frame.Done, Result: &res}
	switch {
	case errors.Is(err, errNoProgram):
		code := 127
		t.Result = &frame.Result{Argv: act.tries[len(act.tries)-1].argv, Code: &code, Gone: true, User: act.user, Err: frame.Output{Head: []byte(err.Error() + "\n"), Total: int64(len(err.Error()) + 1)}}
	case err != nil:
		return ending(ask.ID, err)
	case why == atTotal:
		t.Reason = fmt.Sprintf("it printed more than %d bytes and was ended (limits.total of the bridge)", b.set.Limits.Total)
	case why == atLimit:
		t.Reason = fmt.Sprintf("it was ended at its limit of %s", r.Limit)
	case why != "":
		t.Reason = string(why)
	}
	return t
}

// errNoProgram is a program that this node does not have.
var errNoProgram = errors.New("there is no such program")

// aim makes the job one of the host or one that enters a guest.
func (b *Bridge) aim(j *job, g *guest, act action, try attempt, argv []string, nonce string) error {
	own := append([]string{nonceName + "=" + nonce}, try.own...)
	if dir := act.dir; dir != "" && dir != "/" {
		// No program of every guest changes the folder and nothing else. The text is fixed; folder and command are arguments,
		// which the shell does not read.
		argv = append([]string{"/bin/sh", "-c", `cd -- "$1" || exit 126; shift; exec "$@"`, "sh", dir}, argv...)
	}
	var err error
	var init process
	if g != nil {
		init = g.init
	}
	if j.group, err = newGroup(groupDir(g, nonce), init); err != nil {
		j.group = nil // an older kernel: by nonce, descent and session
	}
	whole := ""
	if j.group != nil {
		whole = j.group.dir
	}
	if g != nil {
		among := b.scans.of(groupsOf(g.init, g.id))
		if whole != "" && !g.privileged { // nothing leaves the group: the kernel lets nobody in there write above it
			among = &scan{groups: []string{whole}}
		}
		j.hunter = newHunter(nonce, among, whole, b.sightOf(whole, true))
		j.leads = true
		j.path, j.argv, j.env, err = b.attach(g, argv, own, try.asked, whole != "")
		return err
	}
	j.counted, j.argv = true, argv
	j.env = append(own, try.asked...)
	if j.path, err = onHost(argv[0]); err != nil {
		return err
	}
	among := b.scans.of(nil)
	if j.group != nil && !act.root {
		among = &scan{groups: []string{j.group.dir}}
	}
	j.hunter = newHunter(nonce, among, whole, b.sight)
	if !act.root {
		a := act.account
		j.noNew, j.alone = true, true
		if a.uid == os.Geteuid() && a.gid == os.Getegid() {
			return nil // the bridge runs as this account itself: there is nothing to change
		}
		j.cred = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid), Groups: []uint32{}}
	}
	return nil
}

// onHost finds a program of the node where root keeps programs.
func onHost(name string) (string, error) {
	if strings.HasPrefix(name, "/") {
		return name, nil
	}
	if strings.Contains(name, "/") {
		return "", refuse("", "%.60q is a program by a relative path", name)
	}
	p, err := tool("", name)
	if err != nil {
		return "", fmt.Errorf("%w: %.60q", errNoProgram, name)
	}
	return p, nil
}

// hostAccount is the unprivileged account for the host.
func (b *Bridge) hostAccount() (account, error) {
	u, err := user.Lookup(b.set.Account)
	if err != nil {
		return account{}, refuse("Run castellan bridge install on the node.", "the account %q, which runs commands of the host, does not exist", b.set.Account)
	}
	uid, e1 := strconv.Atoi(u.Uid)
	gid, e2 := strconv.Atoi(u.Gid)
	if e1 != nil || e2 != nil || uid == 0 || gid == 0 {
		return account{}, refuse(b.set.hint("account", "name an account that is not root and not in root's group"), "the account %q is root or in root's group", b.set.Account)
	}
	return account{name: u.Username, home: u.HomeDir, uid: uid, gid: gid}, nil
}
